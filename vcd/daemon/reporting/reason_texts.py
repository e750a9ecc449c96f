"""The reasons of waiting groups as text, for objects of the group's namespace: rendered once for condition and pods."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from vcd.kube.lru import LruCache
from vcd.model.events import Waiting
from vcd.scheduling.framework.declared_reasons import cause_of
from vcd.scheduling.holdnotes import remarks_on
from vcd.text.reason_sentences import reason_for_namespace

_GROUPS = 1024
"""Groups whose texts are cached: those of the last sessions, whose pods may come later."""


class GroupTexts(NamedTuple):
    """Why a group waits, and each reason as text."""

    reasons: Sequence[Waiting]
    texts: list[str]

    def text_of(self, chosen: Iterable[Waiting]) -> str:
        """Return some of the reasons as one text."""
        return "; ".join([self.texts[self.reasons.index(reason)] for reason in chosen])

    def by_pod(self) -> dict[str, str]:
        """Return the text of each pod that has a reason of its own, with the remarks on holds that explain it."""
        return {
            pod: self.text_of([reason, *remarks_on(cause_of(reason), self.reasons)])
            for reason in reversed(self.reasons)
            for pod in reason.pods
        }


class ReasonTexts:
    """Caches the texts of groups."""

    def __init__(self) -> None:
        self._known: LruCache[str, GroupTexts] = LruCache(_GROUPS)

    def of(self, reasons: Sequence[Waiting]) -> GroupTexts:
        """Return the texts of all reasons of one group."""
        group = reasons[0].group
        known = self._known.get(group)
        if known is None or known.reasons != reasons:
            known = GroupTexts(reasons, list(map(reason_for_namespace, reasons)))
            self._known.set(group, known)
        return known
