"""Logged reasons with the declarations of their codes, which plugins make. `vcd.text.reason_sentences` renders them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from vcd.model.events import Waiting
from vcd.model.reasons import CODES, REMEDY, Cause, Reason, ReasonCode
from vcd.scheduling.framework import registry

SAID_IN_WORDS = "said-in-words"
"""The cause of a reason in a log of vcd 0.1, which has words and no codes."""
NOT_INSTALLED = "not-installed"
"""The cause of a reason of a plugin that is not installed."""


class Told(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why some pods of a group wait, for readers: a ``Waiting`` with the declared cause and words of its code.

    ``detail`` has the names and amounts that are not in the words.
    """

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
    """Return the declaration of a reason's code; None for a text of an older log, or if its plugin is not installed.

    ``plugin`` is the plugin that gave the reason, if known: only its module is then imported.
    """
    if isinstance(reason, str):
        return None
    if plugin and reason.code not in CODES:  # modules that declare codes may not be imported yet
        registry.plugins().get(plugin)
    if reason.code not in CODES:
        dict(registry.plugins()), dict(registry.actions())
    return CODES.get(reason.code)


def keeps_back(waiting: Waiting) -> bool:
    """Return whether a reason makes its group wait. A remark about ignored settings does not."""
    if waiting.gate in ("", "annotation"):
        return False
    code = declared(waiting.reason, waiting.plugin)
    return code is None or not code.remark


def label_of(reason: Reason | str) -> str:
    """Return the ``Cause`` of a reason, or why it is unknown."""
    if isinstance(reason, str):
        return SAID_IN_WORDS
    code = declared(reason)
    return NOT_INSTALLED if code is None else code.label


def cause_of(waiting: Waiting) -> str:
    """Return the ``Cause`` of a wait, or why it is unknown."""
    return label_of(waiting.reason)


def told(waiting: Waiting) -> Told:
    """Return a reason for readers."""
    reason, code = waiting.reason, declared(waiting.reason, waiting.plugin)
    where = (waiting.group, waiting.gate, waiting.plugin)
    pods = (waiting.nodes, waiting.tasks, waiting.pods)
    if isinstance(reason, str):
        return Told(*where, "", SAID_IN_WORDS, reason, *pods, waiting.detail)
    words, detail = (reason.code, reason.facts()) if code is None else (reason.words, reason.detail)
    cause = NOT_INSTALLED if code is None else code.label
    return Told(*where, reason.code, cause, words, *pods, dict(sorted(detail.items())), reason.by_resource())


def all_told(reasons: Iterable[Waiting]) -> tuple[Told, ...]:
    """Return reasons for readers."""
    return tuple(map(told, reasons))


def mending(waiting: Waiting) -> str:
    """Return what ends a wait that does not pass by itself, as the reason or its code states it; empty if it passes."""
    code, reason = declared(waiting.reason, waiting.plugin), waiting.reason
    if code is None:
        return ""
    names = dict(reason.names) if isinstance(reason, Reason) else {}
    plugin = _supporting(names.get("fields", "")) if code.cause == Cause.UNSUPPORTED else ""
    return names.get(REMEDY, "") or (
        f"add plugin {plugin} to the configuration, or {code.mend}" if plugin else code.mend
    )


def _supporting(fields: str) -> str:
    """Return the first plugin, by name, that supports one of some unsupported fields; empty if none does."""
    known = registry.plugins()
    return next((name for name in sorted(known) if any(path in fields.split() for path in known[name].supports)), "")
