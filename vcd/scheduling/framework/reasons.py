"""Logged reasons with what their plugins declared of them. `vcd.text.reasons` renders them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from vcd.model.events import Waiting
from vcd.model.reasons import CODES, REMEDY, Reason, ReasonCode
from vcd.scheduling.framework import registry

SAID_IN_WORDS = "said-in-words"
"""The cause of what a log of vcd 0.1 holds, which has words and no codes."""
NOT_INSTALLED = "not-installed"
"""The cause of a reason that a plugin gave which is not here."""


class Told(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why some pods of a group wait, for who reads it: as ``Waiting``, with the cause and the words that were declared
    of the code; ``detail`` has the names and amounts that the words do not hold."""

    group: str
    gate: str
    plugin: str = ""
    code: str = ""
    cause: str = ""
    reason: str = ""
    nodes: int = 0
    tasks: int = 0
    pods: tuple[str, ...] = ()
    detail: dict[str, str] = {}
    amounts: dict[str, dict[str, int]] = {}
    """By resource and role, in base units."""


def declared(reason: Reason | str, plugin: str = "") -> ReasonCode | None:
    """What was declared of a reason's code, by this plugin where that is known; None for what an older log says in
    words, or a plugin said that is not here."""
    if isinstance(reason, str):
        return None
    if plugin and reason.code not in CODES:  # codes are declared where they are given, in modules not imported yet
        registry.plugins().get(plugin)
    if reason.code not in CODES:
        dict(registry.plugins()), dict(registry.actions())
    return CODES.get(reason.code)


def keeps_back(waiting: Waiting) -> bool:
    """Whether a reason keeps its group back; a remark on what was passed over does not."""
    if waiting.gate in ("", "annotation"):
        return False
    code = declared(waiting.reason, waiting.plugin)
    return code is None or not code.remark


def label_of(reason: Reason | str) -> str:
    """What a reason comes to: a ``Cause``, or why that is not known."""
    if isinstance(reason, str):
        return SAID_IN_WORDS
    code = declared(reason)
    return NOT_INSTALLED if code is None else code.label


def cause_of(waiting: Waiting) -> str:
    """What a wait comes to: a ``Cause``, or why that is not known."""
    return label_of(waiting.reason)


def told(waiting: Waiting) -> Told:
    """A reason as it is shown."""
    reason, code = waiting.reason, declared(waiting.reason, waiting.plugin)
    where = (waiting.group, waiting.gate, waiting.plugin)
    pods = (waiting.nodes, waiting.tasks, waiting.pods)
    if isinstance(reason, str):
        return Told(*where, "", SAID_IN_WORDS, reason, *pods, waiting.detail)
    words, detail = (reason.code, reason.facts()) if code is None else (reason.words, reason.detail)
    cause = NOT_INSTALLED if code is None else code.label
    return Told(*where, reason.code, cause, words, *pods, dict(sorted(detail.items())), reason.by_resource())


def all_told(reasons: Iterable[Waiting]) -> tuple[Told, ...]:
    """Reasons as they are shown."""
    return tuple(map(told, reasons))


def mending(waiting: Waiting) -> str:
    """Return what ends a wait that does not pass by itself, as the reason or its code states it; empty if it passes."""
    code, reason = declared(waiting.reason, waiting.plugin), waiting.reason
    stated = dict(reason.names).get(REMEDY, "") if isinstance(reason, Reason) else ""
    return stated or ("" if code is None else code.mend)
