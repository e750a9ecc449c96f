"""500 jobs of mixed shapes, as users submit them to a cluster of 160 cores: more than it has room for at once."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from tests.e2e.cluster import GROUPS, QUEUES, group, pod
from tests.e2e.test_eviction import CLASSES, JOBS, job
from tests.real.cluster import VolcanoCluster
from vcd.embedded.kubelet import RUN_SECONDS

Obj = dict[str, Any]
COUNT = 500
NODES, CORES = 20, 8
NARROW, RESEARCH = "narrow", "research"
DEPLOYMENTS = "deployments.apps"
NEVER = "never"
"""Of jobs for which there is never room."""


def furnish(cluster: VolcanoCluster) -> None:
    """Nodes, priority classes and queues."""
    cluster.add_nodes(NODES, CORES)
    for name, value in (("high", 1000), ("low", 10)):
        cluster.store.create(CLASSES, {"metadata": {"name": name}, "value": value})
    for name, spec in ((NARROW, {"weight": 1, "capability": {"cpu": "12"}}), (RESEARCH, {"weight": 3})):
        cluster.store.create(QUEUES, {"metadata": {"name": name}, "spec": spec})


def jobs() -> Iterator[list[tuple[str, Obj]]]:
    """What is created for each job, by resource, in order; the same each time."""
    chance = random.Random(12)
    for number in range(COUNT):
        queue = chance.choices(["default", RESEARCH, NARROW], [5, 3, 1])[0]
        seconds = str(chance.choice([0, 1, 1, 2, 4]))
        size, cores = chance.choice([1, 1, 2, 3, 4, 6]), chance.choice([1, 1, 2, 3])
        match number % 20:
            case 0 | 5 | 10:
                yield [_bare(f"bare-{number}", cores, seconds)]
            case 7:
                yield [_deployment(f"web-{number}")] if number < 100 else [_bare(f"bare-{number}", cores, seconds)]
            case 13 if number % 100 == 13:
                yield _gang(f"{NEVER}-{number}", 2, 2, 9, queue, seconds)
            case 1 | 4 | 9 | 11 | 14 | 18:
                yield [_volcano_job(f"job-{number}", size, cores, queue, seconds, "low" if number % 3 else "high")]
            case _:
                yield _gang(f"gang-{number}", size, chance.randint(1, size), cores, queue, seconds)


def _gang(name: str, size: int, minimum: int, cores: int, queue: str, seconds: str) -> list[tuple[str, Obj]]:
    """A PodGroup and its pods, all at once, as an operator makes them."""
    made = [_ending(pod(f"{name}-{number}", name, cores, priorityClassName="high"), seconds) for number in range(size)]
    wanted = group(name, minimum, queue=queue, priorityClassName="high")
    return [(GROUPS, wanted), *(("pods", each) for each in made)]


def _ending(obj: Obj, seconds: str) -> Obj:
    obj["metadata"].setdefault("annotations", {})[RUN_SECONDS] = seconds
    return obj


def _bare(name: str, cores: int, seconds: str) -> tuple[str, Obj]:
    """A pod that brings no group: Volcano's controller makes one."""
    made = _ending(pod(name, "", cores, priorityClassName="high"), seconds)
    del made["metadata"]["annotations"]["scheduling.k8s.io/group-name"]
    return "pods", made


def _volcano_job(name: str, size: int, cores: int, queue: str, seconds: str, priority: str) -> tuple[str, Obj]:
    made = job(name, size, minimum=size, queue=queue, priority=priority, cpu=cores)
    template = made["spec"]["tasks"][0]["template"]
    template["metadata"] = {"annotations": {RUN_SECONDS: seconds}}
    template["spec"] |= {"terminationGracePeriodSeconds": 1, "priorityClassName": priority}
    return JOBS, made


def _deployment(name: str) -> tuple[str, Obj]:
    """Pods that run to the end of the day, and are given their group after they were made."""
    labels = {"app": name}
    spec = pod(name, "", priorityClassName="high")["spec"]
    template = {"metadata": {"labels": labels}, "spec": {**spec, "terminationGracePeriodSeconds": 0}}
    wanted = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    return DEPLOYMENTS, {"metadata": {"name": name, "namespace": "default"}, "spec": wanted}
