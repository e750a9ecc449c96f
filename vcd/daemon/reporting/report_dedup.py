"""Suppresses repeated reports of plugin faults, and of problems that plugins find in objects of users."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from vcd.model.objects import Object
from vcd.scheduling.framework.guard import name_in
from vcd.scheduling.session.object_problems import Problem
from vcd.scheduling.session.session import Session
from vcd.state.cluster_state import ClusterState

REPEAT = 600.0
"""Seconds until a lasting fault is reported again."""
CHANGE = 60.0
"""Seconds until a plugin's next fault with another message, which may contain a pod or a time."""


class FaultDedup:
    """The last reported fault of each plugin. ``clock`` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._reported: dict[str, tuple[str, float]] = {}

    def is_news(self, fault: str) -> bool:
        """Return whether to report a fault; then it counts as reported."""
        name, now = name_in(fault), self._clock()
        before = self._reported.get(name)
        if before is not None and now - before[1] < (REPEAT if fault == before[0] else CHANGE):
            return False
        self._reported[name] = (fault, now)
        return True


class ProblemDedup:
    """The problems of the last session."""

    def __init__(self) -> None:
        self._problems: dict[str, frozenset[Problem]] = {}
        """By plugin."""
        self._objects: frozenset[tuple[str, str]] = frozenset()
        """Kinds and keys that the problems are about."""

    def news(self, session: Session) -> list[Problem]:
        """Return problems that the last session did not have, in order.

        If a plugin failed to report, its last problems remain.
        """
        before, known = self._problems, self._all()
        self._problems = {
            name: before.get(name, frozenset()) if isinstance(result, Exception) else frozenset(result)
            for name, result in session.problems.items()
        }
        self._objects = frozenset((problem.kind, problem.key) for problem in self._all())
        return sorted(self._all() - known)

    def forget(self, kind: str, key: str) -> bool:
        """Drop the problems of an object that was deleted; return whether there were any."""
        if (kind, key) not in self._objects:
            return False
        self._objects -= {(kind, key)}
        self._problems = {
            name: frozenset(one for one in found if (one.kind, one.key) != (kind, key))
            for name, found in self._problems.items()
        }
        return True

    def counts(self) -> dict[tuple[str, ...], int]:
        """How many problems each object has, by kind and key, in order."""
        return dict(sorted(Counter((problem.kind, problem.key) for problem in self._all() if problem.kind).items()))

    def _all(self) -> frozenset[Problem]:
        return frozenset().union(*self._problems.values())


def uid_of(state: ClusterState, kind: str, key: str) -> str:
    """Return the UID of an object in the state, or an empty text."""
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
