"""What a log's users asked for and how long it ran, freed from what the scheduler of then made of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from vcd.model import events as ev
from vcd.model.objects import Object, Pod, PodGroup, PodStatus, altered
from vcd.state.backoff import RefusalBackoff
from vcd.state.cluster import ClusterState
from vcd.state.immunity import Immunity
from vcd.state.records import Settings, seconds_of

SECOND = 1_000_000_000
EVICTED = "evicted"
_AGAIN = "~"
"""Before the number of what came again under its name; no name of Kubernetes has it."""


def named_again(name: str, number: int) -> str:
    """The name of the n-th, from 1, that came under a name: nothing else in a workload has it."""
    return name if number == 1 else f"{name}{_AGAIN}{number}"


def name_in_log(name: str) -> str:
    """The name, or key, that the log has for what came again."""
    return name.partition(_AGAIN)[0]


class Unit(msgspec.Struct):
    """A piece of work: a pod, with all that took its place after it was evicted or deleted.

    Times are ns since the epoch. ``pod`` is the pod as it was when it was decided on, without a node, and ``group`` the
    one that it was in then; ``versions`` what others made of it while it waited: how long after its coming, and the pod
    from then on (none: it came as ``pod``). ``delay`` is how long after its group's admission it was made, None where
    it came by itself, at ``arrived``. ``node`` is where it was when the log first saw it, ``place`` where it was last.
    ``bound`` is its last bind; ``ending`` how it ended: succeeded, failed, deleted, or evicted and never back ("": it
    has not). ``requests`` are its amounts by resource, ``earlier`` what came to nothing: from when to when it was on
    which node. ``seen_whole`` is whether it is known when it was bound, and that it had not ended before it was seen:
    else it says nothing of how long such work runs.
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
        """When it was as it was decided on."""
        return self.arrived + (self.versions[-1][0] if self.versions else 0)

    @property
    def run(self) -> int | None:
        """How long it held its node, from bind, or from when it was first seen there, to end; None where it has not
        ended, or was cut short."""
        if self.bound is None or self.ended is None or self.ending == EVICTED:
            return None
        return self.ended - self.bound

    def seen_running(self, end: int) -> int:
        """How long it held its node at least, in a log that ends at ``end``."""
        return 0 if self.bound is None else (end if self.ended is None else self.ended) - self.bound


class GroupLife(msgspec.Struct):
    """A PodGroup as it was decided on, without status; when it came, and was admitted (None: never). ``waited``: it was
    not admitted yet when it came. ``versions`` are as a unit's, also while it runs; ``withdrawn`` is when one went that
    had no pods."""

    key: str
    group: PodGroup
    arrived: int
    waited: bool
    admitted: int | None = None
    versions: list[tuple[int, PodGroup]] = msgspec.field(default_factory=list)
    withdrawn: int | None = None


class Workload(msgspec.Struct):
    """What happened to a cluster from outside: ``base`` is there at ``begin``, ``changes`` come at their times, and so
    do ``groups`` and ``units``, each under a name of its own. ``policies`` are the configurations that came into force
    after the first. ``end`` is the time of the last event."""

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
    """How long evicted pods took to go (ns)."""
    evictions: Counter[str] = msgspec.field(default_factory=Counter)
    """How many were decided, by action."""
    sessions: list[int] = msgspec.field(default_factory=list)
    """When the log's scheduler decided (ns)."""
    spared: Immunity = msgspec.field(default_factory=Immunity)
    """What groups had lost to others when it begins: what took its place is not evicted again."""
    backoffs: dict[str, RefusalBackoff] = msgspec.field(default_factory=dict)
    released: dict[str, RefusalBackoff] = msgspec.field(default_factory=dict)
    """What backs off when it begins, by the keys of pods and of groups."""

    def queue_of(self, group: str) -> str:
        """The queue of a group; empty for a pod without one."""
        life = self.groups.get(group)
        return "" if life is None else self.settings.queue_of(life.group)

    def job_of(self, unit: Unit) -> str:
        """The job that a unit is of: its group, or itself where there is none."""
        return unit.group if unit.group in self.groups else unit.key

    def ran_already(self) -> frozenset[str]:
        """The jobs of which pods were on nodes when they were first seen: nobody placed these here, and they have no
        wait."""
        return frozenset(self.job_of(unit) for unit in self.units if unit.node)

    def as_it_was(self) -> Workload:
        """With the configurations that came into force, each at its time."""
        changes: list[tuple[int, ev.Event]] = [*self.changes, *self.policies]
        return msgspec.structs.replace(self, changes=sorted(changes, key=lambda one: one[0]), policies=[])

    def starts(self) -> dict[str, int]:
        """When groups first had their minimum of pods on nodes (ns), of those that had it."""
        bound: dict[str, list[int]] = {}
        for unit in self.units:
            first = unit.earlier[0][0] if unit.earlier else unit.bound
            if first is not None:
                bound.setdefault(unit.group, []).append(first)
        minima = {key: max(1, life.group.spec.min_member) for key, life in self.groups.items()}
        known = ((key, sorted(times), minima.get(key, 1)) for key, times in bound.items())
        return {key: times[minimum - 1] for key, times, minimum in known if len(times) >= minimum}


def bare_pod(pod: Pod) -> Pod:
    """A pod as it was asked for: with no node and no status."""
    meta = {"deletion_timestamp": None, "deletion_grace_period_seconds": None, "resource_version": ""}
    return altered(pod, metadata=meta, spec={"node_name": ""}, status=PodStatus())


def started(pod: Pod) -> int | None:
    """When a pod says that it began, in ns; None where it says nothing that can be read."""
    try:
        return seconds_of(pod.status.start_time) * SECOND if pod.status.start_time else None
    except ValueError:
        return None


def fixed_objects(state: ClusterState) -> Iterable[tuple[str, str, Object]]:
    """What a state holds beside groups and pods."""
    yield from (("Node", key, record.node) for key, record in sorted(state.nodes.items()))
    yield from (("Queue", key, record.queue) for key, record in sorted(state.queues.items()))
    for kind, objects in sorted(state.others.items()):
        yield from ((kind, key, obj) for key, obj in sorted(objects.items()))
