"""Compare what a shadow decided with what the active scheduler did, from the shadow's log alone.

Each session of a shadow decides on the cluster as it was. The first session that gave a pod a node determines when vcd
would have started it, and where; the pod's events show where it was bound. Nothing else is inferred: no session
decides on a bound pod, so how long a pod that vcd left pending would have waited is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from vcd.model.wording import SECOND
from vcd.text.time_formats import moment
from vcd.timetravel.history import opened
from vcd.timetravel.shadow.shadow_fold import ShadowFold, Track
from vcd.timetravel.whatif.run_measures import quantile

Kind = Literal["same-node", "other-node", "kept-back", "only-vcd", "undecided"]
SHADOW_KINDS: dict[str, str] = {
    "same-node": "bound to the node that vcd had chosen",
    "other-node": "bound to another node than vcd had chosen",
    "kept-back": "bound while vcd held it back",
    "only-vcd": "placed by vcd, and not bound",
    "undecided": "bound before a session considered it",
}
"""The kinds of a compared pod, each in words."""


class NoShadow(ValueError):
    """The log is not a shadow's."""


class ShadowDifference(msgspec.Struct, frozen=True):
    """One pod. A later pod of the same name has another ``uid`` and its own entry.

    ``node`` and ``at`` are where and when vcd would have started it (empty: not at all), by ``session``; for a pod
    that vcd left pending, that is the last session before it was bound. ``bound_to`` and ``bound_at`` are from the log
    (empty: not bound). ``seconds`` is the time from vcd's decision to the bind, or the pod's end, or the log's; None
    if vcd gave it no node; negative if the pod was bound already when a session placed it that had not observed that
    yet.

    ``cause`` and ``why`` state why vcd left it pending. ``withdrawn`` is the first later session that had no node for
    it any more although it was not bound as far as that session knew: other pods had got its place (0: none).
    ``timed`` is False if times do not compare: the pod waited before the shadow began to watch, or was bound or
    deleted while it did not watch.
    """

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
    """The pods of a queue by kind; and, over the ``timed`` ones that both schedulers placed, quantiles of the seconds
    by which vcd decided before the pod was bound (None: there are none)."""

    queue: str
    pods: dict[str, int]
    timed: int
    p50: float | None
    p95: float | None
    most: float | None


class ShadowEviction(msgspec.Struct, frozen=True):
    """A pod that vcd would have evicted: the first session that decided so, and why; when it was deleted (empty: it
    exists)."""

    pod: str
    node: str
    session: int
    action: str
    reason: str
    gone_at: str


class Admissions(msgspec.Struct, frozen=True):
    """How many groups vcd would have admitted earlier than they were, not earlier or not at all, and how many vcd
    alone would have admitted; of the first, the median and the maximum of the seconds. Groups that existed when the
    shadow began to watch, or were admitted while it did not, are left out. Pods that are created only after admission
    depend on the other scheduler's admission."""

    earlier: int
    not_earlier: int
    only_vcd: int
    p50: float | None
    most: float | None


class ShadowComparison(msgspec.Struct, frozen=True):
    """The comparison of a shadow's log. ``pods`` counts the pods that either scheduler placed by kind, ``waiting``
    those that neither did. ``withdrawn`` pods got a node from vcd, and none from a later session; times of ``untimed``
    pods do not compare. ``differences`` has each placed pod: those that vcd left pending first, then by ``seconds``,
    the most first."""

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
    """Compare each pod of a shadow's log. Raises NoShadow for another log, and LogError."""
    with opened(path) as history:
        fold = ShadowFold(history.oldest())
        for logged in history.reader.read(history.reader.oldest()):
            fold.see(logged)
    if not fold.settings.shadow:
        raise NoShadow(f"event log {path}: it is not the log of a shadow; `vcd run --shadow` writes one")
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
    """Return the comparison of a pod; None if neither scheduler placed it."""
    if track.given is None and not track.bound_to:
        return None
    queue = "" if track.group is None else track.group.queue
    who = (track.key, track.uid, queue)
    bound = (track.bound_to, moment(track.bound_at) if track.bound_to else "")
    if track.given is None:
        session, cause, why = fold.kept_back(track)
        kind: Kind = "kept-back" if why else "undecided"
        return ShadowDifference(*who, kind, "", "", session, *bound, None, cause, why, 0, not track.late)
    session, now, node = track.given
    kind = "only-vcd" if not track.bound_to else "same-node" if node == track.bound_to else "other-node"
    seconds = ((track.bound_at or track.gone_at or fold.time) - now) / SECOND
    given = (node, moment(now), session)
    return ShadowDifference(*who, kind, *given, *bound, seconds, "", "", track.withdrawn, not track.late)


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
        (group.admitted - group.given) / SECOND for group in groups if group.given and group.given < group.admitted
    ]
    admitted = sum(group.admitted > 0 for group in groups)
    only = sum(group.given > 0 and not group.admitted for group in groups)
    return Admissions(len(earlier), admitted - len(earlier), only, quantile(earlier, 0.5), max(earlier, default=None))


def _evicted(fold: ShadowFold) -> Iterator[ShadowEviction]:
    for uid, (session, action, operation) in fold.evictions.items():
        gone = fold.gone.get(uid)
        at = "" if gone is None else moment(gone)
        yield ShadowEviction(operation.key, operation.node, session, action, operation.reason, at)
