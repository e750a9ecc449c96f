"""What a shadow decided beside what the scheduler that was there did, by the shadow's log alone.

Each session of a shadow decides on the cluster as it was. The first that gave a pod a node says when vcd would have
started it, and where; what was bound is what the log shows of the pod. Nothing is told that these events do not show:
once a pod is bound no session decides on it any more, so of a pod that vcd kept back nobody can say for how long it
would have.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from vcd.timetravel.history import opened
from vcd.timetravel.shadow.following import ShadowFold, Track
from vcd.timetravel.whatif.measure import quantile
from vcd.timetravel.words import moment

Kind = Literal["same-node", "other-node", "kept-back", "only-vcd", "undecided"]
SHADOW_KINDS: dict[str, str] = {
    "same-node": "bound to the node that vcd had given it",
    "other-node": "bound to another node than vcd had given it",
    "kept-back": "bound while vcd kept it back",
    "only-vcd": "given a node by vcd, and not bound",
    "undecided": "bound before a session said anything of it",
}
"""What became of a pod that somebody placed, each in words."""
_SECOND = 1_000_000_000


class NoShadow(ValueError):
    """The log is not a shadow's."""


class ShadowDifference(msgspec.Struct, frozen=True):
    """One pod; one that comes again under its name is another, of another ``uid``.

    ``node`` and ``at`` are where and when vcd would have started it (empty: not at all), by ``session``; of a pod that
    was kept back that is the last session before it was bound. ``bound_to`` and ``bound_at`` are what the log shows
    (empty: not bound). ``seconds`` from the node that vcd gave it to its bind, or its end, or the log's; None where vcd
    gave it none; below zero where it was bound already, and the session that placed it had not been shown it yet.
    ``cause`` and ``why`` say for what vcd kept it back. ``withdrawn`` is the first later session that had no node for
    it any more while, as far as it knew, it was not bound: others had got what it was given (0: none). ``timed`` is
    False where times do not compare: it waited already when the shadow began to look, or was bound or went while it did
    not look."""

    pod: str
    uid: str
    queue: str
    kind: Kind
    node: str
    at: str
    session: int
    bound_to: str
    bound_at: str
    seconds: float | None
    cause: str
    why: str
    withdrawn: int
    timed: bool


class QueueComparison(msgspec.Struct, frozen=True):
    """The pods of a queue by kind; and, over those ``timed`` ones that both placed, quantiles of the seconds by which
    vcd gave a pod its node before it was bound (None: there are none)."""

    queue: str
    pods: dict[str, int]
    timed: int
    p50: float | None
    p95: float | None
    most: float | None


class ShadowEviction(msgspec.Struct, frozen=True):
    """A pod that vcd would have evicted: the first session to say so, and why; when it went (empty: it is there)."""

    pod: str
    node: str
    session: int
    action: str
    reason: str
    gone_at: str


class Admissions(msgspec.Struct, frozen=True):
    """How many groups vcd would have admitted earlier than they were; not earlier, or not at all; and that vcd alone
    would have. Of the first the median and the most of the seconds. Groups that were there when the shadow began to
    look, or were admitted while it did not, are left out. Pods that are made only once their group is admitted come by
    the other scheduler's word."""

    earlier: int
    not_earlier: int
    only_vcd: int
    p50: float | None
    most: float | None


class ShadowComparison(msgspec.Struct, frozen=True):
    """A shadow's log. ``pods`` counts those that somebody placed by kind, ``waiting`` those that nobody did. Of the
    pods that vcd gave a node ``withdrawn`` were given none by a later session; of ``untimed`` ones no times compare.
    ``differences`` has each pod that somebody placed: those kept back first, then by ``seconds``, the most first."""

    sessions: int
    since: str
    until: str
    pods: dict[str, int]
    waiting: int
    withdrawn: int
    untimed: int
    queues: list[QueueComparison]
    admissions: Admissions
    evictions: list[ShadowEviction]
    differences: list[ShadowDifference]


def compare_shadow(path: str | Path) -> ShadowComparison:
    """What a shadow's log says of each pod. Raises NoShadow where the log is none, and LogError."""
    with opened(path) as history:
        fold = ShadowFold(history.oldest())
        for logged in history.reader.read(history.reader.oldest()):
            fold.see(logged)
    if not fold.settings.shadow:
        raise NoShadow(f"event log {path}: it is no shadow's; `vcd run --shadow` writes one")
    found = [one for track in fold.tracks if (one := _difference(fold, track)) is not None]
    found.sort(key=lambda one: (one.seconds is not None, -(one.seconds or 0.0), one.pod))
    return ShadowComparison(
        len(fold.heads),
        moment(fold.begin),
        moment(fold.time),
        _counts(found),
        len(fold.tracks) - len(found),
        sum(one.withdrawn > 0 for one in found),
        sum(not one.timed for one in found),
        [_of_queue(queue, found) for queue in sorted({one.queue for one in found})],
        _admissions(fold),
        list(_evicted(fold)),
        found,
    )


def _difference(fold: ShadowFold, track: Track) -> ShadowDifference | None:
    """What became of a pod; None for one that nobody placed."""
    if track.given is None and not track.bound_to:
        return None
    queue = "" if track.group is None else track.group.queue
    who = (track.key, track.uid, queue)
    shown = (track.bound_to, moment(track.bound_at) if track.bound_to else "")
    if track.given is None:
        session, cause, why = fold.kept_back(track)
        kind: Kind = "kept-back" if why else "undecided"
        return ShadowDifference(*who, kind, "", "", session, *shown, None, cause, why, 0, not track.late)
    session, now, node = track.given
    kind = "only-vcd" if not track.bound_to else "same-node" if node == track.bound_to else "other-node"
    seconds = ((track.bound_at or track.gone_at or fold.time) - now) / _SECOND
    given = (node, moment(now), session)
    return ShadowDifference(*who, kind, *given, *shown, seconds, "", "", track.withdrawn, not track.late)


def _counts(found: list[ShadowDifference]) -> dict[str, int]:
    return {kind: sum(one.kind == kind for one in found) for kind in SHADOW_KINDS}


def _of_queue(queue: str, found: list[ShadowDifference]) -> QueueComparison:
    own = [one for one in found if one.queue == queue]
    leads = [one.seconds for one in own if one.timed and one.bound_to and one.seconds is not None]
    most = max(leads, default=None)
    return QueueComparison(queue, _counts(own), len(leads), quantile(leads, 0.5), quantile(leads, 0.95), most)


def _admissions(fold: ShadowFold) -> Admissions:
    groups = [group for group in fold.groups if group.pending and not group.late]
    earlier = [
        (group.admitted - group.given) / _SECOND for group in groups if group.given and group.given < group.admitted
    ]
    admitted = sum(group.admitted > 0 for group in groups)
    only = sum(group.given > 0 and not group.admitted for group in groups)
    return Admissions(len(earlier), admitted - len(earlier), only, quantile(earlier, 0.5), max(earlier, default=None))


def _evicted(fold: ShadowFold) -> Iterator[ShadowEviction]:
    for uid, (session, action, operation) in fold.evictions.items():
        gone = fold.gone.get(uid)
        at = "" if gone is None else moment(gone)
        yield ShadowEviction(operation.key, operation.node, session, action, operation.reason, at)
