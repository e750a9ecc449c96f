"""What the rows of a shadow's log say of each pod, read one by one: without the fold that ``vcd shadow`` reads by."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from vcd.eventlog import Logged, LogReader
from vcd.model import events as ev
from vcd.model.objects import Pod, PodGroup
from vcd.model.status import Phase, phase_of
from vcd.model.wording import rfc3339
from vcd.scheduling.framework.declared_reasons import cause_of
from vcd.timetravel.history import History, object_in
from vcd.timetravel.shadow.shadow_comparison import ShadowComparison, ShadowDifference


def written(nanoseconds: int) -> str:
    return rfc3339(nanoseconds, 3) if nanoseconds else ""


@dataclass
class Seen:
    """A pod: the rows that showed it first, bound, and gone (0: none), and the key of its group when last seen."""

    key: str
    created: int = 0
    bound: int = 0
    node: str = ""
    group: str = ""
    gone: int = 0


class Decided:
    """A session: the binds that it decided by UID, ``planned`` with those that did not hold any more."""

    def __init__(self, record: ev.SessionDecided) -> None:
        self.record = record
        self.session, self.head, self.now = record.session, record.head, record.now
        self.plan = record.accepted()
        self.binds = {operation.uid: operation for operation in self.plan.operations("bind")}
        self.planned = {operation.uid: operation for operation in ev.decode_plan(record.plan).operations("bind")}


@dataclass
class Rows:
    """All rows of a log."""

    path: Path
    times: dict[int, int] = field(default_factory=dict)
    """By sequence."""
    pods: dict[str, Seen] = field(default_factory=dict)
    """By UID, those that were seen without a node."""
    bound_first: set[str] = field(default_factory=set)
    """UIDs of those that had a node when they were first seen."""
    phases: dict[str, list[tuple[int, Phase]]] = field(default_factory=dict)
    """Of groups, by UID, with the time of each row."""
    group_keys: dict[str, str] = field(default_factory=dict)
    sessions: list[Decided] = field(default_factory=list)

    def __post_init__(self) -> None:
        there: dict[str, str] = {}
        with LogReader(self.path) as reader:
            for logged in reader.read():
                self.times[logged.sequence] = logged.time
                self._see(logged, there)

    def _see(self, logged: Logged, there: dict[str, str]) -> None:
        match logged.event:
            case ev.ObjectPut(kind="Pod") as event if isinstance(pod := object_in(event), Pod):
                self._see_pod(pod, logged, there)
            case ev.ObjectPut(kind="PodGroup") as event if isinstance(group := object_in(event), PodGroup):
                self.group_keys[group.metadata.uid] = event.key
                phase = phase_of(group.status.phase)
                self.phases.setdefault(group.metadata.uid, []).append((logged.time, phase))
            case ev.ObjectGone(kind="Pod", key=key) if key in there:
                self.pods[there.pop(key)].gone = logged.sequence
            case ev.SessionDecided() as event:
                self.sessions.append(Decided(event))

    def _see_pod(self, pod: Pod, logged: Logged, there: dict[str, str]) -> None:
        uid, node = pod.metadata.uid, pod.spec.node_name
        if uid not in self.pods and (node or pod.spec.scheduler_name != "volcano"):
            self.bound_first.add(uid)
            return
        seen = self.pods.setdefault(uid, Seen(pod.key, logged.sequence))
        there[pod.key] = uid
        seen.group = pod.group_key or seen.group
        if node and not seen.bound:
            seen.bound, seen.node = logged.sequence, node

    # --- what is told of each pod ----------------------------------------------------------------------------------

    def check(self, one: ShadowDifference, queues: dict[str, str]) -> None:
        """Whether what is told of a pod is what the rows show, and its queue that of its group."""
        seen, gave = self.pods[one.uid], self.gave(one.uid)
        assert (one.pod, one.bound_to) == (seen.key, seen.node)
        assert one.bound_at == (written(self.times[seen.bound]) if seen.bound else "")
        assert queues[seen.group] == one.queue, one
        if gave is None:
            assert (one.kind in ("kept-back", "undecided"), one.node, one.seconds) == (True, "", None)
            self._check_not_given(one, seen)
            return
        session, operation = gave
        assert (one.session, one.node, one.at) == (session.session, operation.node, written(session.now))
        assert one.kind == ("only-vcd" if not seen.bound else "same-node" if one.node == seen.node else "other-node")
        end = self.times[seen.bound or seen.gone or max(self.times)]
        assert one.seconds == pytest.approx((end - session.now) / 1e9)
        assert one.seconds >= 0 or session.head < seen.bound, f"a session that had seen the bind placed it again: {one}"
        assert one.withdrawn == self._withdrawn(one.uid, seen, session), one

    def gave(self, uid: str) -> tuple[Decided, ev.Operation] | None:
        """The first session that gave a pod a node, and how."""
        return next(((each, found) for each in self.sessions if (found := each.binds.get(uid))), None)

    def _withdrawn(self, uid: str, seen: Seen, given: Decided) -> int:
        """The first session after that which saw the pod, unbound, and had no node for it."""
        end = seen.bound or seen.gone or max(self.times) + 1
        later = (each for each in self.sessions if given.session < each.session and each.head < end)
        return next((each.session for each in later if uid not in each.planned), 0)

    def _check_not_given(self, one: ShadowDifference, seen: Seen) -> None:
        """The session that is told is the last one that saw it before it was bound; none where there is none."""
        saw = [each.session for each in self.sessions if seen.created <= each.head < seen.bound]
        assert one.session == (saw[-1] if saw else 0), one
        assert (one.kind == "kept-back") == bool(one.why) == bool(one.cause), one

    # --- sums -------------------------------------------------------------------------------------------------------

    def check_sums(self, found: ShadowComparison) -> None:
        """Whether the figures are those of the pods that are told of, and no pod is left out."""
        assert found.sessions == len(self.sessions)
        assert found.pods == {kind: Counter(one.kind for one in found.differences)[kind] for kind in found.pods}
        placed = {uid for uid, seen in self.pods.items() if seen.bound or self.gave(uid)}
        assert {one.uid for one in found.differences} == placed
        assert found.waiting == len(self.pods) - len(placed)
        for queue in found.queues:
            leads = sorted(
                one.seconds
                for one in found.differences
                if one.queue == queue.queue and one.bound_to and one.timed and one.seconds is not None
            )
            assert (queue.timed, queue.most) == (len(leads), leads[-1])
            assert leads[0] <= (queue.p50 or 0) <= (queue.p95 or 0) <= leads[-1]
        self._check_admissions(found)
        self._check_evictions(found)

    def _check_admissions(self, found: ShadowComparison) -> None:
        earlier, other, only = [], 0, 0
        for uid, rows in self.phases.items():
            pending = next((number for number, (_, phase) in enumerate(rows) if phase is Phase.PENDING), None)
            if pending is None:
                continue
            admitted = next((time for time, phase in rows[pending:] if phase is not Phase.PENDING), 0)
            given = self._admitted(self.group_keys[uid])
            if admitted and 0 < given < admitted:
                earlier.append((admitted - given) / 1e9)
            other += bool(admitted) and not 0 < given < admitted
            only += bool(given) and not admitted
        told = found.admissions
        assert (told.earlier, told.not_earlier, told.only_vcd) == (len(earlier), other, only)
        assert told.most == pytest.approx(max(earlier))

    def _admitted(self, key: str) -> int:
        """When a session first admitted a group."""
        for each in self.sessions:
            for status in each.plan.groups:
                if status.key == key and status.phase != Phase.PENDING.text:
                    return each.now
        return 0

    def _check_evictions(self, found: ShadowComparison) -> None:
        first: dict[str, tuple[int, str]] = {}
        for each in self.sessions:
            for operation in each.plan.operations("evict"):
                first.setdefault(operation.uid, (each.session, operation.key))
        assert sorted((one.session, one.pod) for one in found.evictions) == sorted(first.values())


# --- sessions that are named ------------------------------------------------------------------------------------------


def sampled(found: list[ShadowDifference], each: int = 12) -> list[ShadowDifference]:
    """Some of each kind, and of those that were withdrawn."""
    by_kind: dict[str, list[ShadowDifference]] = {}
    for one in found:
        by_kind.setdefault("withdrawn" if one.withdrawn else one.kind, []).append(one)
    return [one for some in by_kind.values() for one in some[:: max(1, len(some) // each)]]


def check_session(history: History, rows: Rows, one: ShadowDifference) -> None:
    """Whether the session that is named, decided again, says of the pod what is told."""
    number = one.withdrawn or one.session
    if not number:
        return
    record, session = history.rerun(number)
    assert one.pod in session.snapshot.tasks.keys
    decided = Decided(record)
    if one.node and not one.withdrawn:
        assert decided.binds[one.uid].node == one.node
        return
    assert one.uid not in decided.binds
    waits = ev.waits_after(session.snapshot.waiting, ev.decode_plan(record.plan).waiting)
    reasons = [each for each in waits.get(rows.pods[one.uid].group, ()) if _may_concern(each, one.pod)]
    if one.kind == "kept-back":
        assert one.cause in {cause_of(each) for each in reasons} | {"leaving"}, one
    elif one.kind == "undecided":
        assert one.uid in decided.planned or reasons == [], (one, reasons)


def _may_concern(waiting: ev.Waiting, pod: str) -> bool:
    return not waiting.pods or pod in waiting.pods or waiting.tasks > len(waiting.pods)
