"""Waits as a daemon counts them: no more of what is over than anybody asks about."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from tests.dsl import group
from tests.world import World
from vcd.daemon.reporting.wait_history import ReportedSession, WaitHistory
from vcd.diagnosis.waittimeline import MOST_SPANS, WaitTimeline
from vcd.model import events as ev
from vcd.scheduling.session.session import Session

GROUP = "default/g"


def _told(number: int, *reasons: ev.Waiting) -> ReportedSession:
    """A session that says why the group waits, or that it does not."""
    record = ev.SessionDecided(number, 0, "", number * 10**9, 0, 1, {}, b"")
    return ReportedSession(record, number, record.now, cast(Session, None), {GROUP: reasons}, [])


def test_of_the_waits_that_are_over_the_last_one_stays() -> None:
    waits = WaitHistory(Path("log"), World(group("g")).state)
    for number in range(1, 9):
        waits.fold(_told(number, *[ev.Waiting(GROUP, "predicate")] * (number % 2)))
    last = waits.last(GROUP, 8 * 10**9)
    assert last is not None
    assert (last.start, last.end, last.first) == (7 * 10**9, 8 * 10**9, 7)
    assert waits._timeline.jobs[GROUP].ended == [last]


def test_of_a_wait_whose_reasons_change_again_and_again_the_older_half_is_summed() -> None:
    waits, sessions = WaitHistory(Path("log"), World(group("g")).state), 1001
    for number in range(1, sessions + 1):
        waits.fold(_told(number, ev.Waiting(GROUP, ("enqueue", "predicate")[number % 2])))
    last = waits.last(GROUP, sessions * 10**9)
    assert last is not None
    assert len(last.spans) <= MOST_SPANS + 1
    assert (last.start, last.end, last.first, last.last) == (10**9, sessions * 10**9, 1, sessions)
    assert [one.held // 10**9 for one in last.held().values()] == [500, 500]


def test_nothing_is_stored_of_groups_that_are_gone() -> None:
    timeline = WaitTimeline()
    timeline.decided(1, 5, 10**9, {GROUP: (ev.Waiting(GROUP, "predicate"),)})
    timeline.deleted(GROUP, 2 * 10**9, 6)
    timeline.deleted("default/other", 2 * 10**9, 7)
    assert timeline.groups() == [GROUP, "default/other"]
    timeline.forget(GROUP)
    timeline.decided(2, 6, 3 * 10**9, {"default/other": (ev.Waiting("default/other", "predicate"),)})
    assert timeline.groups() == ["default/other"]  # the session did not see that it is deleted
    assert timeline.waits("default/other", 3 * 10**9) == []
    timeline.decided(3, 7, 4 * 10**9, {})
    assert timeline.groups() == []
