"""Combinations in a configuration that cannot work: contradicting plugins, and actions without what they need.

Such a file is accepted and decided by, as in Volcano. Findings are reported by ``vcd conf check`` and when the file is
loaded. Each finding names the entry of the file that it is about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from vcd.scheduling.framework.arguments import read_arguments
from vcd.scheduling.framework.guard import is_ours
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.framework.points import POINTS, reads_jobs
from vcd.scheduling.framework.usage_samples import USAGE
from vcd.scheduling.search.parts import ANY_KEY

_EVICTING = {
    "preempt": ("preemptable",),
    "reclaim": ("reclaimable",),
    "gangpreempt": ("unified_evictable",),
    "gangreclaim": ("unified_evictable",),
    "shuffle": ("victim_tasks",),
}
"""The points at which plugins name victims of an action."""
_KEEPS_SHARES = "stays_within_share"
"""A method of plugins that divide the cluster among queues."""
_ONE_ACTION = {
    "enqueue": ("admission", ("job_enqueueable", "job_enqueued")),
    "shuffle": ("the victims of shuffle", ("victim_tasks",)),
}
"""What plugins decide for an action alone, and at which points."""
_HIERARCHY = "enableHierarchy"


class ConfiguredPlugin(NamedTuple):
    """A plugin's entry: its class, its flags, and its arguments as in the file."""

    kind: type[Plugin]
    enabled: Mapping[str, bool]
    arguments: Mapping[str, Any]

    def answers(self, name: str) -> bool:
        """Return whether the plugin takes part at a point."""
        flag = POINTS[name].flag
        return hasattr(self.kind, name) and (not flag or self.enabled.get(flag, True))


class Configured(NamedTuple):
    """The contents of a file, and all available plugins."""

    actions: Sequence[str]
    entries: Mapping[str, ConfiguredPlugin]
    plugins: Mapping[str, type[Plugin]]
    is_usage_measured: bool
    """Whether the file names a source of samples of the nodes' usage."""


def misfits(conf: Configured) -> Iterator[tuple[str, str]]:
    """Yield the plugin (empty for the line of actions) and the message of each finding."""
    for rule in _RULES:
        yield from rule(conf)


def _nothing_is_bound(conf: Configured) -> Iterator[tuple[str, str]]:
    if "allocate" not in conf.actions:
        binds = "backfill binds pods without requests only" if "backfill" in conf.actions else "no action binds pods"
        yield "", f"{binds}; add allocate"


def _victims_are_unnamed(conf: Configured) -> Iterator[tuple[str, str]]:
    for action in conf.actions:
        points = _EVICTING.get(action, ())
        if points and not any(entry.answers(point) for entry in conf.entries.values() for point in points):
            yield "", f"{action} never evicts: no plugin that is on names victims for it; add one, such as gang"


def _divided_twice(conf: Configured) -> Iterator[tuple[str, str]]:
    first, *others = [name for name, entry in conf.entries.items() if hasattr(entry.kind, _KEEPS_SHARES)] or [""]
    for name in others:
        yield name, f"divides the cluster among queues as {first} does, and a pod needs the consent of both; keep one"


def _action_is_off(conf: Configured) -> Iterator[tuple[str, str]]:
    for action, (decision, points) in _ONE_ACTION.items():
        for name, entry in conf.entries.items() if action not in conf.actions else ():
            answered = {point for point in POINTS if entry.answers(point)}
            if points[0] in answered and answered.issubset(points):
                yield name, f"has no effect: it decides on {decision} only, and {action} is not among the actions"


def _usage_is_unmeasured(conf: Configured) -> Iterator[tuple[str, str]]:
    for name, entry in conf.entries.items() if not conf.is_usage_measured else ():
        if USAGE in entry.kind.outside:
            yield name, "has no effect: no usage of nodes is measured; name its source in the section metrics"


def _missing_plugins(conf: Configured) -> Iterator[tuple[str, str]]:
    for name, kind in sorted(conf.plugins.items()):
        if kind.without_it and name not in conf.entries:
            yield "", f"{kind.without_it}; add the plugin {name}"


def _negative_weights(conf: Configured) -> Iterator[tuple[str, str]]:
    for name, entry in conf.entries.items():
        for key, value in read_arguments(entry.kind.arguments, entry.arguments)[0].items():
            if "weight" in key.lower() and isinstance(value, int | float) and value < 0:
                yield name, f"{key} is {value:g}: the nodes that it should prefer come last; use 0 to turn it off"


def _no_hierarchy(conf: Configured) -> Iterator[tuple[str, str]]:
    for name, entry in conf.entries.items():
        readers = [field.partition("?")[2] for field in entry.kind.queue_fields]
        if entry.enabled.get(_HIERARCHY) and _HIERARCHY not in (*readers, *dict(entry.kind.excludes)):
            yield name, f"{_HIERARCHY} has no effect: the plugin divides by no hierarchy"


def _reading_anything(conf: Configured) -> Iterator[tuple[str, str]]:
    for name, entry in conf.entries.items():
        if ANY_KEY in entry.kind.keys and reads_jobs(entry.kind) and not is_ours(entry.kind):
            yield (
                name,
                "declares no keys, so equal jobs are tried one by one; its author should list in keys the annotations"
                " and labels that it reads, or () for none",
            )


_RULES: tuple[Callable[[Configured], Iterator[tuple[str, str]]], ...] = (
    _nothing_is_bound,
    _victims_are_unnamed,
    _divided_twice,
    _action_is_off,
    _usage_is_unmeasured,
    _missing_plugins,
    _negative_weights,
    _no_hierarchy,
    _reading_anything,
)
