"""What of a configuration cannot work together: plugins that contradict each other, actions without what they need.

Such a file is read and decided by as Volcano does; the findings are reported by ``vcd conf check`` and when a file is
loaded. A finding names the entry of the file that it is about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from vcd.scheduling.framework.arguments import read_arguments
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.framework.points import POINTS

_DIVIDERS = ("capacity", "capacity-card", "proportion")
_EVICTING = {
    "preempt": ("preemptable",),
    "reclaim": ("reclaimable",),
    "gangpreempt": ("unified_evictable",),
    "gangreclaim": ("unified_evictable",),
    "shuffle": ("victim_tasks",),
}
"""The points at which plugins name whom an action evicts."""
_ADMITTING = ("enqueue", "job_enqueueable")


class Entry(NamedTuple):
    """A plugin's entry: its class, its flags, and its arguments as the file has them."""

    kind: type[Plugin]
    enabled: Mapping[str, bool]
    arguments: Mapping[str, Any]

    def answers(self, name: str) -> bool:
        """Whether it takes part at a point."""
        flag = POINTS[name].flag
        return hasattr(self.kind, name) and (not flag or self.enabled.get(flag, True))


def misfits(actions: Sequence[str], entries: Mapping[str, Entry]) -> Iterator[tuple[str, str]]:
    """Yield the name of the plugin, or an empty text for the line of actions, and what does not fit."""
    for rule in _RULES:
        yield from rule(actions, entries)


def _nothing_is_bound(actions: Sequence[str], entries: Mapping[str, Entry]) -> Iterator[tuple[str, str]]:
    if "allocate" not in actions:
        binds = "backfill binds pods without requests only" if "backfill" in actions else "no action binds pods"
        yield "", f"{binds}; add allocate"


def _victims_are_unnamed(actions: Sequence[str], entries: Mapping[str, Entry]) -> Iterator[tuple[str, str]]:
    for action in actions:
        points = _EVICTING.get(action, ())
        if points and not any(entry.answers(point) for entry in entries.values() for point in points):
            yield "", f"{action} never evicts: no plugin that is on names victims for it; add one, such as gang"


def _divided_twice(actions: Sequence[str], entries: Mapping[str, Entry]) -> Iterator[tuple[str, str]]:
    first, *others = [name for name in entries if name in _DIVIDERS] or [""]
    for name in others:
        yield name, f"divides the cluster among queues as {first} does, and a pod needs the consent of both; keep one"


def _admission_is_off(actions: Sequence[str], entries: Mapping[str, Entry]) -> Iterator[tuple[str, str]]:
    action, point = _ADMITTING
    if action in actions:
        return
    for name, entry in entries.items():
        others = [each for each in POINTS if each not in (point, "job_enqueued") and entry.answers(each)]
        if entry.answers(point) and not others:
            yield name, f"has no effect: it decides on admission only, and {action} is not among the actions"


def _nodes_are_not_checked(actions: Sequence[str], entries: Mapping[str, Entry]) -> Iterator[tuple[str, str]]:
    if not any(entry.answers("predicates") and name == "predicates" for name, entry in entries.items()):
        yield "", "pods are bound whatever their selectors, affinity and tolerations are; add the plugin predicates"


def _gangs_are_not_kept(actions: Sequence[str], entries: Mapping[str, Entry]) -> Iterator[tuple[str, str]]:
    if not any(entry.answers("job_ready") for entry in entries.values()):
        yield "", "pods are bound though their group has fewer than minMember; add the plugin gang"


def _negative_weights(actions: Sequence[str], entries: Mapping[str, Entry]) -> Iterator[tuple[str, str]]:
    for name, entry in entries.items():
        for key, value in read_arguments(entry.kind.arguments, entry.arguments)[0].items():
            if "weight" in key.lower() and isinstance(value, int | float) and value < 0:
                yield name, f"{key} is {value:g}: the nodes that it should prefer come last; use 0 to turn it off"


_RULES: tuple[Callable[[Sequence[str], Mapping[str, Entry]], Iterator[tuple[str, str]]], ...] = (
    _nothing_is_bound,
    _victims_are_unnamed,
    _divided_twice,
    _admission_is_off,
    _nodes_are_not_checked,
    _gangs_are_not_kept,
    _negative_weights,
)
