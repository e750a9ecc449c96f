"""A small language for clusters and what is expected of a cycle.

``node("n1", cpu=8)``, ``gang("train", 3, cpu=2)`` ... give manifests; ``planned(*objects)`` decides one cycle on them;
``session_of(*objects)`` gives the session itself, for tests of plugins.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from vcd.scheduling.decide import instances, run
from vcd.scheduling.framework import registry
from vcd.scheduling.framework.framework import Framework, framework_of
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.framework.policy import PluginOption, Policy, parse_policy
from vcd.scheduling.framework.registry import kinds_read
from vcd.scheduling.search.candidates import Evaluator, Memory
from vcd.scheduling.session.outside import NOBODY, Outside
from vcd.scheduling.session.session import Session
from vcd.state.snapshot import Snapshot, SnapshotMaker
from vcd.timetravel import planning
from vcd.timetravel.planning import PlanResult, state_of

Manifest = dict[str, Any]

NOW = datetime.datetime(2026, 11, 21, 8, 0, tzinfo=datetime.UTC)
NOW_NS = int(NOW.timestamp()) * 1_000_000_000
BARE = "actions: allocate\ntiers:\n- plugins:\n  - name: priority\n  - name: gang\n"
BY_QUEUE = """\
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
- plugins:
  - name: predicates
  - name: capacity
"""
"""A configuration in which queues have what their specs state."""
ONE_TIER = """
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: predicates
  - name: capacity
  - name: nodeorder
"""
"""Plugins among which no tier decides before another; the actions come before."""


def quantities(amounts: dict[str, Any]) -> dict[str, str]:
    """Keyword arguments as a list of quantities: ``gpu`` is nvidia.com/gpu, numbers of memory are Gi."""
    names = {"gpu": "nvidia.com/gpu"}
    return {
        names.get(name, name): f"{value}Gi" if name == "memory" and isinstance(value, int) else str(value)
        for name, value in amounts.items()
    }


def node(
    name: str,
    *,
    labels: dict[str, str] | None = None,
    taints: Iterable[Manifest] = (),
    unschedulable: bool = False,
    pods: int = 110,
    status: Manifest | None = None,
    **room: Any,
) -> Manifest:
    """A node; room not given is 8 cpu and 32 Gi."""
    amounts = quantities({"cpu": 8, "memory": 32, **room}) | {"pods": str(pods)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": {"taints": list(taints), "unschedulable": unschedulable},
        "status": {"allocatable": amounts, "capacity": amounts, **(status or {})},
    }


def queue(name: str, *, weight: int = 1, state: str = "Open", **spec: Any) -> Manifest:
    """A queue; capability, deserved, guarantee are given as lists of quantities."""
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"weight": weight, **spec},
        "status": {"state": state},
    }


def priority_class(name: str, value: int, *, default: bool = False) -> Manifest:
    """A priority class."""
    return {"kind": "PriorityClass", "metadata": {"name": name}, "value": value, "globalDefault": default}


def group(
    name: str,
    *,
    members: int = 1,
    queue: str = "default",
    phase: str = "Inqueue",
    created: int = 0,
    minimum: dict[str, Any] | None = None,
    namespace: str = "default",
    **spec: Any,
) -> Manifest:
    """A pod group; ``minimum`` is its minResources, ``created`` seconds after the first of January."""
    if minimum is not None:
        spec["minResources"] = quantities(minimum)
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": namespace, "creationTimestamp": moment(created)},
        "spec": {"minMember": members, "queue": queue, **spec},
        "status": {"phase": phase},
    }


def pod(
    name: str,
    *,
    group: str | None = None,
    on: str = "",
    phase: str = "",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    created: int = 0,
    namespace: str = "default",
    deleting: bool = False,
    spec: Manifest | None = None,
    requests: Manifest | None = None,
    **amounts: Any,
) -> Manifest:
    """A pod; ``on`` names its node, and it runs there unless ``phase`` says otherwise."""
    marks = dict(annotations or {})
    if group is not None:
        marks["scheduling.k8s.io/group-name"] = group
    meta: Manifest = {
        "name": name,
        "namespace": namespace,
        "uid": f"uid-{namespace}-{name}",
        "labels": labels or {},
        "annotations": marks,
        "creationTimestamp": moment(created),
    }
    if deleting:
        meta["deletionTimestamp"] = moment(created + 1)
    container = {"name": "c", "image": "image", "resources": {"requests": requests or quantities(amounts)}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": {
            "schedulerName": "volcano",
            "containers": [container],
            **({"nodeName": on} if on else {}),
            **(spec or {}),
        },
        "status": {"phase": phase or ("Running" if on else "Pending")},
    }


def gang(
    name: str,
    size: int,
    *,
    members: int | None = None,
    on: Iterable[str] = (),
    queue: str = "default",
    phase: str = "Inqueue",
    created: int = 0,
    minimum: dict[str, Any] | None = None,
    group_spec: Manifest | None = None,
    **pod_options: Any,
) -> Iterator[Manifest]:
    """A group and its pods ``<name>-0`` ...; the first ones run on the nodes given by ``on``."""
    places = list(on)
    yield group(
        name,
        members=size if members is None else members,
        queue=queue,
        phase=phase,
        created=created,
        minimum=minimum,
        **(group_spec or {}),
    )
    for i in range(size):
        place = places[i] if i < len(places) else ""
        yield pod(f"{name}-{i}", group=name, on=place, created=created, **pod_options)


def moment(seconds: int) -> str:
    """A time, seconds after the first of January 2026."""
    start = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    return (start + datetime.timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def flat(objects: Iterable[Manifest | Iterable[Manifest]]) -> list[Manifest]:
    """Manifests out of manifests and gangs."""
    result: list[Manifest] = []
    for entry in objects:
        result.extend([entry] if isinstance(entry, dict) else entry)
    return result


def planned(*objects: Manifest | Iterable[Manifest], conf: str | None = None, seed: int = 0) -> PlanResult:
    """One cycle over the objects."""
    return planning.plan(flat(objects), policy_of(conf), NOW_NS, seed)


def policy_of(conf: str | None) -> Policy:
    """A configuration as it is taken, read once."""
    return _policy_of(conf, tuple(registry.plugins().items()), tuple(registry.actions().items()))


@lru_cache(maxsize=256)
def _policy_of(conf: str | None, plugins: object, actions: object) -> Policy:
    """With the plugins and actions that there are, since some tests bring their own, and without the trial cycle."""
    registry.kinds()
    return parse_policy(conf, actions=registry.actions(), plugins=registry.plugins())


def session_of(*objects: Manifest | Iterable[Manifest], conf: str = BARE, seed: int = 0) -> Session:
    """An opened session in which no action ran yet."""
    policy = policy_of(conf)
    return open_session(snapshot_of(policy, *objects), policy, instances(policy), NOW_NS, seed)


def open_session(
    snapshot: Snapshot,
    policy: Policy,
    plugins: list[list[tuple[PluginOption, Plugin]]],
    now: int,
    seed: int,
    memory: Memory | None = None,
    outside: Outside = NOBODY,
) -> Session:
    """A session whose plugins are open, as a cycle begins it."""
    session = Session(snapshot, now, seed, policy_digest=policy.digest, outside=outside)
    Framework(session, policy, plugins, memory or Memory())
    return session


def use_evaluator(session: Session, evaluator: Evaluator) -> None:
    """Have an opened session search over other predicates and scores than those of its plugins."""
    framework_of(session).evaluator = evaluator


def session_after(*objects: Manifest | Iterable[Manifest], conf: str = BARE, seed: int = 0) -> Session:
    """The session after its last action."""
    policy = policy_of(conf)
    return run(snapshot_of(policy, *objects), policy, NOW_NS, seed)


def snapshot_of(policy: Policy, *objects: Manifest | Iterable[Manifest]) -> Snapshot:
    """What a daemon with that policy sees of the objects: nothing of kinds that none of its plugins declares."""
    return SnapshotMaker(state_of(flat(objects), kinds=kinds_read(policy))).snapshot()
