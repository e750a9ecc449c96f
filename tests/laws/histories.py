"""Random histories: a random cluster on which jobs arrive and end and nodes change, cycle after cycle."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

from tests.laws.answering import Answering
from tests.reference.clusters import random_case
from vcd.model import events as ev
from vcd.model.status import TaskStatus
from vcd.state.snapshot import SnapshotMaker

Manifest = dict[str, Any]

GROUP = "scheduling.k8s.io/group-name"
_LATER = 1_000_000
"""Added to a seed, gives the cluster that later jobs are taken from."""
_RUNNING = (TaskStatus.RUNNING, TaskStatus.BOUND)


class History(Answering):
    """A random cluster and what happens to it. The same seed and the same decisions give the same history.

    ``conf`` replaces the case's own configuration. Without ``memory`` nothing at all is kept between sessions.
    """

    def __init__(self, seed: int, *, conf: str | None = "", memory: bool = True) -> None:
        case = random_case(seed)
        self.random = random.Random(seed)
        self._nodes = {m["metadata"]["name"]: m for m in case.objects if m["kind"] == "Node"}
        self._later = list(jobs_of(random_case(seed + _LATER).objects))
        self._forgets = not memory
        super().__init__(case.objects, conf=case.conf if conf == "" else conf, memory=memory)

    def decide(self) -> ev.Plan:
        """One session, logged."""
        if self._forgets:
            self.maker = SnapshotMaker(self.state)
        return super().decide()

    def live(self, cycles: int) -> Iterator[ev.Plan]:
        """Cycles, with one to three changes before each of them but the first."""
        for count in range(cycles):
            for _ in range(self.random.randint(1, 3) if count else 0):
                self.change()
            yield self.cycle()

    # --- changes ----------------------------------------------------------------------------------------------------

    def change(self) -> None:
        """Something happens."""
        happening = self.random.choice(
            (self.arrive, self.arrive, self.end, self.end, self.vanish, self.leave, self.shrink, self.node_goes)
        )
        happening()

    def arrive(self) -> None:
        """A new job."""
        if self._later:
            self.put(self._later.pop())

    def end(self) -> None:
        """A pod that runs ends."""
        key = self._some_pod(*_RUNNING)
        if key:
            self.update_pod(key, phase=self.random.choice(("Succeeded", "Failed")))

    def vanish(self) -> None:
        """A pod is deleted."""
        key = self._some_pod(*TaskStatus)
        if key:
            self.remove("Pod", key)

    def leave(self) -> None:
        """A whole group is deleted, its pods remain or not."""
        groups = sorted(self.state.groups)
        if groups:
            key = self.random.choice(groups)
            self.remove("PodGroup", key)
            if self.random.random() < 0.7:
                self.remove("Pod", *[pod for pod in sorted(self.state.tasks.row_of) if self._group_of(pod) == key])

    def shrink(self) -> None:
        """A node is as it was at first, smaller, or closed."""
        name = self.random.choice(sorted(self._nodes))
        node = copy.deepcopy(self._nodes[name])
        chance = self.random.random()
        if chance < 0.3:
            node["status"]["allocatable"]["cpu"] = "1"
        elif chance < 0.5:
            node.setdefault("spec", {})["unschedulable"] = True
        elif chance < 0.6:
            node["metadata"]["labels"]["zone"] = "b"
        self.put(node)

    def node_goes(self) -> None:
        """A node is deleted."""
        names = sorted(self.state.nodes)
        if len(names) > 1:
            self.remove("Node", self.random.choice(names))

    def elsewhere(self) -> None:
        """Another scheduler binds a pod that waits."""
        key = self._some_pod(TaskStatus.PENDING)
        if key and self.state.nodes:
            self.update_pod(key, node=self.random.choice(sorted(self.state.nodes)), phase="Running")

    def _some_pod(self, *statuses: TaskStatus) -> str:
        column = self.state.tasks.column("status")
        keys = [key for key, row in sorted(self.state.tasks.row_of.items()) if int(column[row]) in statuses]
        return self.random.choice(keys) if keys else ""

    def _group_of(self, key: str) -> str:
        pod = self.state.pod(key)
        name = "" if pod is None else pod.metadata.annotations.get(GROUP, "")
        return f"{key.partition('/')[0]}/{name}"


def jobs_of(objects: list[Manifest]) -> Iterator[list[Manifest]]:
    """The groups of a cluster with their pods, under other names, none of them placed yet."""
    for number, group in enumerate([m for m in objects if m["kind"] == "PodGroup"]):
        name, late = group["metadata"]["name"], f"late{number}"
        meta = {**group["metadata"], "name": late}
        pods = [m for m in objects if m["kind"] == "Pod" and m["metadata"].get("annotations", {}).get(GROUP) == name]
        yield [{**group, "metadata": meta, "status": {"phase": "Pending"}}, *[_afresh(pod, late) for pod in pods]]


def _afresh(pod: Manifest, group: str) -> Manifest:
    meta = {key: value for key, value in pod["metadata"].items() if key != "deletionTimestamp"}
    meta["name"] = f"{group}-{meta['name']}"
    meta["uid"] = f"uid-{meta['name']}"
    meta["annotations"] = {**meta["annotations"], GROUP: group}
    spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
    return {**pod, "metadata": meta, "spec": spec, "status": {"phase": "Pending"}}


def sessions(log: list[ev.Event]) -> Iterator[ev.SessionDecided]:
    """The sessions of a log."""
    return (event for event in log if isinstance(event, ev.SessionDecided))
