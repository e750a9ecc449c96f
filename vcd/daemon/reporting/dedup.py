"""What of plugins is news: their faults, and what they find misconfigured in other people's objects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from vcd.model.objects import Object
from vcd.scheduling.framework.guard import name_in
from vcd.scheduling.session.reasons import Problem
from vcd.scheduling.session.session import Session
from vcd.state.cluster import ClusterState

REPEAT = 600.0
"""Seconds until a fault that lasts is told again."""
CHANGE = 60.0
"""Seconds until a plugin is told of again that fails in other words than before; they may name a pod or a time."""


class FaultDedup:
    """What was last told of each plugin, and when. ``clock`` gives monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._told: dict[str, tuple[str, float]] = {}

    def is_news(self, fault: str) -> bool:
        """Whether a session's fault shall be told; it counts as told then."""
        name, now = name_in(fault), self._clock()
        before = self._told.get(name)
        if before is not None and now - before[1] < (REPEAT if fault == before[0] else CHANGE):
            return False
        self._told[name] = (fault, now)
        return True


class ProblemDedup:
    """The problems that the last session showed."""

    def __init__(self) -> None:
        self._standing: dict[str, frozenset[Problem]] = {}
        """By plugin."""
        self._objects: frozenset[tuple[str, str]] = frozenset()
        """Kinds and keys that the problems are about."""

    def news(self, session: Session) -> list[Problem]:
        """Problems that the session before did not show, in order; one that is mended and comes back is news again.

        Where a plugin failed to tell, what stood stands.
        """
        before, known = self._standing, self._all()
        self._standing = {
            name: before.get(name, frozenset()) if isinstance(told, Exception) else frozenset(told)
            for name, told in session.problems.items()
        }
        self._objects = frozenset((problem.kind, problem.key) for problem in self._all())
        return sorted(self._all() - known)

    def forget(self, kind: str, key: str) -> bool:
        """Drop the problems of an object that was deleted; return whether there were any."""
        if (kind, key) not in self._objects:
            return False
        self._objects -= {(kind, key)}
        self._standing = {
            name: frozenset(one for one in found if (one.kind, one.key) != (kind, key))
            for name, found in self._standing.items()
        }
        return True

    def counts(self) -> dict[tuple[str, ...], int]:
        """How many problems each object has, by kind and key, in order."""
        return dict(sorted(Counter((problem.kind, problem.key) for problem in self._all() if problem.kind).items()))

    def _all(self) -> frozenset[Problem]:
        return frozenset().union(*self._standing.values())


def uid_of(state: ClusterState, kind: str, key: str) -> str:
    """The UID of an object that the state holds; empty where it does not."""
    found: Object | None = state.others.get(kind, {}).get(key)
    if kind == "Pod":
        found = state.pod(key)
    elif kind == "Node" and key in state.nodes:
        found = state.nodes[key].node
    elif kind == "PodGroup" and key in state.groups:
        found = state.groups[key].group
    elif kind == "Queue" and key in state.queues:
        found = state.queues[key].queue
    return found.metadata.uid if found is not None else ""
