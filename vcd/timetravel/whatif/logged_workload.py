"""The workload of a log: what users submitted and how long it ran, without the scheduler's decisions.

`workloadreader.py` reads it from a log, `cluster_edits.py` changes it, and `simulated_cluster.py` simulates it. A unit
of work survives evictions: its replacement pods continue it and are no additional work.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from vcd.model import events as ev
from vcd.model.objects import Object, Pod, PodGroup, PodStatus, altered
from vcd.model.wording import SECOND
from vcd.state.backoff import RefusalBackoff
from vcd.state.cluster_state import ClusterState
from vcd.state.immunity import Immunity
from vcd.state.records import Settings, seconds_of

EVICTED = "evicted"
_AGAIN = "~"
"""The separator before the number of a name that is used again; no Kubernetes name contains it."""


def named_again(name: str, number: int) -> str:
    """Return the name of the n-th object, from 1, that had a name: unique in a workload."""
    return name if number == 1 else f"{name}{_AGAIN}{number}"


def name_in_log(name: str) -> str:
    """Return the name, or key, in the log for a name in a workload."""
    return name.partition(_AGAIN)[0]


class Unit(msgspec.Struct):
    """A piece of work: a pod, with all its replacements after evictions or deletions.

    Times are ns since the epoch. ``pod`` is the pod on which the last decision was made, without a node, and ``group``
    its group then; ``versions`` are its changes while it waited: how long after its arrival, and the pod from then on
    (none: it arrived as ``pod``). ``delay`` is how long after its group's admission it was created, None if it arrived
    by itself, at ``arrived``. ``node`` is its node when the log first observed it, ``place`` its last one. ``bound``
    is its last bind; ``ending`` how it ended: succeeded, failed, deleted, or evicted without replacement ("": it has
    not). ``requests`` are its requests by resource, ``earlier`` its lost runs: begin, end and node. ``seen_whole``:
    its bind is known, and it had not ended before it was observed; otherwise it does not count for run times.
    """

    key: str
    uid: str
    group: str
    pod: Pod
    requests: dict[str, int]
    arrived: int
    delay: int | None = None
    node: str = ""
    place: str = ""
    bound: int | None = None
    ended: int | None = None
    ending: str = ""
    earlier: list[tuple[int, int, str]] = msgspec.field(default_factory=list)
    versions: list[tuple[int, Pod]] = msgspec.field(default_factory=list)
    seen_whole: bool = True

    @property
    def ready(self) -> int:
        """When its last version appeared."""
        return self.arrived + (self.versions[-1][0] if self.versions else 0)

    @property
    def run(self) -> int | None:
        """How long it held its node, from its bind, or from when it was first observed there, to its end; None if it
        has not ended, or was evicted."""
        if self.bound is None or self.ended is None or self.ending == EVICTED:
            return None
        return self.ended - self.bound

    def seen_running(self, end: int) -> int:
        """Return how long it held its node at least, in a log that ends at ``end``."""
        return 0 if self.bound is None else (end if self.ended is None else self.ended) - self.bound


class GroupLife(msgspec.Struct):
    """A PodGroup on which the last decision was made, without status; when it arrived, and was admitted (None: never).
    ``waited``: it was not admitted yet when it arrived. ``versions`` are as a unit's, also while it runs;
    ``withdrawn`` is when a group without pods was deleted."""

    key: str
    group: PodGroup
    arrived: int
    waited: bool
    admitted: int | None = None
    versions: list[tuple[int, PodGroup]] = msgspec.field(default_factory=list)
    withdrawn: int | None = None


class Workload(msgspec.Struct):
    """What happened to a cluster from outside: ``base`` exists at ``begin``, ``changes``, ``groups`` and ``units``
    arrive at their times, each with a unique name. ``policies`` are the configurations after the first. ``end`` is the
    time of the last event."""

    begin: int
    end: int
    policy: str | None
    settings: Settings
    base: list[ev.Event] = msgspec.field(default_factory=list)
    changes: list[tuple[int, ev.Event]] = msgspec.field(default_factory=list)
    groups: dict[str, GroupLife] = msgspec.field(default_factory=dict)
    units: list[Unit] = msgspec.field(default_factory=list)
    policies: list[tuple[int, ev.PolicyLoaded]] = msgspec.field(default_factory=list)
    leaving: list[int] = msgspec.field(default_factory=list)
    """How long evicted pods took to terminate (ns)."""
    evictions: Counter[str] = msgspec.field(default_factory=Counter)
    """Decided evictions, by action."""
    sessions: list[int] = msgspec.field(default_factory=list)
    """When the log's scheduler decided (ns)."""
    spared: Immunity = msgspec.field(default_factory=Immunity)
    """What groups had lost to others at the beginning: their replacements are not evicted again."""
    backoffs: dict[str, RefusalBackoff] = msgspec.field(default_factory=dict)
    released: dict[str, RefusalBackoff] = msgspec.field(default_factory=dict)
    """Back-offs at the beginning, by the keys of pods and of groups."""

    def queue_of(self, group: str) -> str:
        """Return the queue of a group; empty for a pod without one."""
        life = self.groups.get(group)
        return "" if life is None else self.settings.queue_of(life.group)

    def job_of(self, unit: Unit) -> str:
        """Return the job of a unit: its group, or itself if there is none."""
        return unit.group if unit.group in self.groups else unit.key

    def ran_already(self) -> frozenset[str]:
        """Return the jobs with pods on nodes when they were first observed: they were not placed in this workload, and
        have no wait."""
        return frozenset(self.job_of(unit) for unit in self.units if unit.node)

    def with_logged_policies(self) -> Workload:
        """Return the workload with the log's configurations, each at its time."""
        changes: list[tuple[int, ev.Event]] = [*self.changes, *self.policies]
        return msgspec.structs.replace(self, changes=sorted(changes, key=lambda one: one[0]), policies=[])

    def starts(self) -> dict[str, int]:
        """Return when groups first had their minimum of pods on nodes (ns), for those that had it."""
        bound: dict[str, list[int]] = {}
        for unit in self.units:
            first = unit.earlier[0][0] if unit.earlier else unit.bound
            if first is not None:
                bound.setdefault(unit.group, []).append(first)
        minima = {key: max(1, life.group.spec.min_member) for key, life in self.groups.items()}
        known = ((key, sorted(times), minima.get(key, 1)) for key, times in bound.items())
        return {key: times[minimum - 1] for key, times, minimum in known if len(times) >= minimum}


def bare_pod(pod: Pod) -> Pod:
    """Return a pod as its user created it: without a node and status."""
    meta = {"deletion_timestamp": None, "deletion_grace_period_seconds": None, "resource_version": ""}
    return altered(pod, metadata=meta, spec={"node_name": ""}, status=PodStatus())


def started(pod: Pod) -> int | None:
    """Return the start time in a pod's status, in ns; None if it is missing or unreadable."""
    try:
        return seconds_of(pod.status.start_time) * SECOND if pod.status.start_time else None
    except ValueError:
        return None


def fixed_objects(state: ClusterState) -> Iterable[tuple[str, str, Object]]:
    """Yield the objects of a state other than groups and pods."""
    yield from (("Node", key, record.node) for key, record in sorted(state.nodes.items()))
    yield from (("Queue", key, record.queue) for key, record in sorted(state.queues.items()))
    for kind, objects in sorted(state.others.items()):
        yield from ((kind, key, obj) for key, obj in sorted(objects.items()))
