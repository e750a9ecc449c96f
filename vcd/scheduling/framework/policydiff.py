"""The effect of a change of configuration: compares two policies, not two texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from vcd.scheduling.framework import registry
from vcd.scheduling.framework.points import FLAGS, IDLE_FLAGS, POINTS
from vcd.scheduling.framework.policy import Policy
from vcd.scheduling.framework.queuefields import unread_queue_fields


class PolicyChange(msgspec.Struct, frozen=True):
    """One change.

    ``what`` is its subject, as in ``plugin NAME: ARGUMENT``; ``before`` and ``after`` are the values (empty for none),
    and ``effect`` is what the change means.
    """

    what: str
    before: str
    after: str
    effect: str = ""


class _Entry(NamedTuple):
    tier: int
    described: Mapping[str, Any]


def policy_changes(old: Policy, new: Policy) -> list[PolicyChange]:
    """Return the differences in how two policies decide: actions, plugins, their arguments and flags, the source of
    usage metrics, and fields of Queues that are read. Empty if only the text differs."""
    before, after = registry.describe_policy(old), registry.describe_policy(new)
    return [
        *_of_actions(before["actions"], after["actions"]),
        *_of_plugins(_entries(before["tiers"]), _entries(after["tiers"])),
        *_of_orders(before["tiers"], after["tiers"]),
        *_of_values("metrics", before["metrics"], after["metrics"]),
        *_of_queue_fields(unread_queue_fields(old), unread_queue_fields(new)),
    ]


def _of_actions(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> Iterator[PolicyChange]:
    before, after = ({each["name"]: each["arguments"] for each in one} for one in (old, new))
    named = [", ".join(each["name"] for each in one) for one in (old, new)]
    if named[0] != named[1]:
        yield PolicyChange("actions", *named)
    for name in after:
        if name in before:
            yield from _of_values(f"action {name}", _plain(before[name]), _plain(after[name]))


def _of_plugins(before: dict[str, _Entry], after: dict[str, _Entry]) -> Iterator[PolicyChange]:
    for name in [*before, *(name for name in after if name not in before)]:
        old, new = before.get(name), after.get(name)
        what = f"plugin {name}"
        if old is None or new is None:
            effect = _summary(name) if old is None else f"no longer: {_summary(name)}"
            yield PolicyChange(what, _place(old), _place(new), effect)
            continue
        if old.tier != new.tier:
            yield PolicyChange(what, f"tier {old.tier}", f"tier {new.tier}", _TIERS)
        before_flags, after_flags = (_flags_read(name, entry.described["flags"]) for entry in (old, new))
        yield from _of_values(what, before_flags, after_flags, default="default")
        yield from _of_values(what, _plain(old.described["arguments"]), _plain(new.described["arguments"]))


def _flags_read(name: str, flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flags that change what a plugin does: those of points that it implements, and those that it declares.

    A third-party plugin may read any flag, except those without effect.
    """
    kind = registry.plugins()[name]
    known = {point.flag for point in POINTS.values() if hasattr(kind, point.name)}
    known |= {field.partition("?")[2] for field in kind.queue_fields} | {flag for flag, _ in kind.excludes}
    if not kind.__module__.startswith(_BUILT_IN):
        known |= FLAGS.keys() - IDLE_FLAGS.keys()
    return {flag: on for flag, on in flags.items() if flag in known}


_BUILT_IN = "vcd.scheduling.plugins."
_TIERS = "a tier decides on victims and orders only what the tiers before it leave open"


def _of_orders(old: list[list[dict[str, Any]]], new: list[list[dict[str, Any]]]) -> Iterator[PolicyChange]:
    for number, tiers in enumerate(zip(old, new, strict=False), 1):
        names = [[each["name"] for each in tier] for tier in tiers]
        common = [[name for name in one if name in names[0] and name in names[1]] for one in names]
        if common[0] != common[1]:
            yield PolicyChange(f"order of tier {number}", *(", ".join(one) for one in common))


def _of_queue_fields(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[PolicyChange]:
    for field in sorted(before.keys() ^ after.keys()):
        read = field not in after
        yield PolicyChange(f"queues: spec.{field}", *(("not read", "read") if read else ("read", "not read")))


def _of_values(
    what: str, before: Mapping[str, Any], after: Mapping[str, Any], default: str = ""
) -> Iterator[PolicyChange]:
    for key in sorted({*before, *after}):
        old, new = (_text(one[key]) if key in one else default for one in (before, after))
        if old != new:
            yield PolicyChange(f"{what}: {key}", old, new)


def _place(entry: _Entry | None) -> str:
    return "" if entry is None else f"tier {entry.tier}"


def _entries(tiers: list[list[dict[str, Any]]]) -> dict[str, _Entry]:
    return {each["name"]: _Entry(number, each) for number, tier in enumerate(tiers, 1) for each in tier}


def _plain(arguments: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {key: one["value"] for key, one in arguments.items()}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _summary(name: str) -> str:
    """Return the first sentence of a plugin's documentation."""
    text = " ".join((registry.plugins()[name].__doc__ or "").split("\n\n")[0].split())
    return text.partition(". ")[0].rstrip(".")
