"""Explain order: in which order queues and jobs are served, plugin by plugin, as a session began."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from tests import dsl
from tests.plugins.opened import conf
from tests.plugins.test_drf_hierarchy import HIERARCHICAL, placed
from tests.timetravel.histories import CONF, scheduler
from tests.timetravel.questions import explain_order
from vcd.eventlog import LogReader
from vcd.scheduling.framework import registry
from vcd.scheduling.framework.order import SHARE, Label, labelled
from vcd.scheduling.framework.order_positions import Precedence
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.session.views import Job
from vcd.timetravel.history import History
from vcd.timetravel.query_errors import NotFound
from vcd.timetravel.why.order_explanation import Factor, OrderedJob, OrderExplanation

SMALLER = "smaller share (0.5 against 1), says proportion"


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    """Queue ``red`` holds 4 of the 8 cpu and 1 of the 2 pods that it deserves, ``blue`` all of the same, ``green``
    nothing, and nobody waits in it.

    Three jobs wait in red: ``late`` and ``early`` alike but for their age, ``urgent`` of higher priority. In the first
    session the cluster of 16 cpu has 4 left: ``urgent`` takes them.
    """
    log = tmp_path / "order.log"
    async with scheduler(log) as made:
        await made.show(dsl.node("n1", cpu=16, pods=4), dsl.priority_class("high", 10))
        await made.show(dsl.queue(name) for name in ("root", "default", "red", "blue", "green"))
        await made.show(
            dsl.gang("old", 1, cpu=4, on=["n1"], queue="red", phase="Running"),
            dsl.gang("blues", 2, cpu=4, on=["n1", "n1"], queue="blue", phase="Running"),
            dsl.gang("more", 1, cpu=4, queue="blue", created=3),
            dsl.gang("late", 1, cpu=4, queue="red", created=9),
            dsl.gang("early", 1, cpu=4, queue="red", created=5),
            dsl.gang("urgent", 1, cpu=4, queue="red", created=20, group_spec={"priorityClassName": "high"}),
        )
        await made.carry_out(await made.cycle())
        await made.carry_out(await made.cycle())
    return log


def keys(order: OrderExplanation, queue: str) -> list[str]:
    return [job.key.removeprefix("default/") for job in order.jobs[queue]]


def test_queues_come_by_their_share_as_the_session_began(path: Path) -> None:
    order = explain_order(path, session=1)
    assert [(queue.position, queue.name, queue.waiting) for queue in order.queues] == [(1, "red", 3), (2, "blue", 1)]
    assert [queue.factors[-1] for queue in order.queues] == [
        Factor("proportion", {"priority": "0", "share": "0.5"}),
        Factor("proportion", {"priority": "0", "share": "1"}),
    ]
    assert str(order.queues[0].before_next) == SMALLER
    assert order.queues[1].before_next is None


def test_a_queue_that_has_all_it_deserves_is_passed_over(path: Path) -> None:
    red, blue = explain_order(path, session=1).queues
    assert red.passed_over == ""
    assert blue.passed_over.startswith("queue is overused (proportion: deserved cpu 8")


def test_jobs_come_by_priority_then_age(path: Path) -> None:
    order = explain_order(path, session=1)
    assert keys(order, "red") == ["urgent", "early", "late"]
    urgent, early, late = order.jobs["red"]
    assert urgent.before_next == Precedence("higher priority (10 against 0)", "priority")
    assert early.before_next == Precedence("created earlier (2026-01-01T00:00:05Z against 2026-01-01T00:00:09Z)")
    assert (late.position, late.phase, late.pending, late.before_next) == (3, "Inqueue", 1, None)


def test_each_plugin_says_its_own_value(path: Path) -> None:
    assert explain_order(path, session=1).jobs["red"][0].factors == [
        Factor("priority", {"priority": "10"}),
        Factor("gang", {"gang": "without room"}),
        Factor("drf", {"share": "0"}),
    ]


def test_the_last_session_is_taken_unless_told_and_what_was_placed_waits_no_more(path: Path) -> None:
    order = explain_order(path)
    assert order.session == 2
    assert keys(order, "red") == ["early", "late"]
    assert [queue.factors[-1].values["share"] for queue in order.queues] == ["1", "1"]


def test_one_queue_is_told_of_alone_among_the_places_of_all(path: Path) -> None:
    order = explain_order(path, "blue", 1)
    assert list(order.jobs) == ["blue"]
    assert [queue.name for queue in order.queues] == ["red", "blue"]


def test_a_queue_in_which_nobody_waits_has_its_place_when_asked_for(path: Path) -> None:
    order = explain_order(path, "green", 1)
    assert [queue.name for queue in order.queues] == ["green", "red", "blue"]
    assert list(order.lines())[-1] == "queue green: no job waits"


def test_lines_are_aligned_tables_with_the_reason_below(path: Path) -> None:
    assert list(explain_order(path, "red", 1).lines()) == [
        "session 1 at 2026-01-01T00:00:00.000Z, as it began: in which order queues and jobs are served",
        "#  queue  waiting  proportion.priority  proportion.share  passed over",
        "1  red    3        0                    0.5",
        "2  blue   1        0                    1                 queue is overused"
        " (proportion: deserved cpu 8, deserved pods 2, allocated cpu 8, allocated pods 2)",
        f"queue red comes before blue: {SMALLER}",
        "",
        "queue red: 3 jobs waiting",
        "#  job             phase    pending  priority  gang          drf  created",
        "1  default/urgent  Inqueue  1        10        without room  0    2026-01-01T00:00:20Z",
        "2  default/early   Inqueue  1        0         without room  0    2026-01-01T00:00:05Z",
        "3  default/late    Inqueue  1        0         without room  0    2026-01-01T00:00:09Z",
        "job default/urgent comes before default/early: higher priority (10 against 0), says priority",
    ]


def test_the_order_told_is_the_order_served(path: Path) -> None:
    with LogReader(path) as reader:
        _, session = History(reader).rerun(1)
    bound = [operation.key for statement in session.trial.statements for operation in statement.operations()]
    assert bound == ["default/urgent-0"]


async def test_a_capacity_queue_shows_the_share_it_is_ordered_by(tmp_path: Path) -> None:
    log = tmp_path / "order.log"
    async with scheduler(log, CONF.replace("proportion", "capacity")) as made:
        await made.show(dsl.node("n1", cpu=8))
        await made.show(dsl.queue("red", deserved={"cpu": "8"}), dsl.queue("blue"))
        await made.show(dsl.gang("one", 1, cpu=2, on=["n1"], queue="red", phase="Running"))
        await made.show(dsl.gang("two", 1, cpu=8, queue="red"), dsl.gang("three", 1, cpu=8, queue="blue"))
        await made.cycle()
    red, blue = explain_order(log).queues
    assert red.factors[-1].values == {"priority": "0", "parent": "no", "borrows": "no", "share": "0.25"}
    assert blue.factors[-1].values["share"] == "1 (deserves nothing)"
    assert red.before_next == Precedence("smaller share (0.25 against 1 (deserves nothing))", "capacity")


async def test_a_queue_in_a_hierarchy_shows_its_share_by_weight(tmp_path: Path) -> None:
    """Red holds 4 of 8 cpu with weight 2: 0.25."""
    log = tmp_path / "order.log"
    async with scheduler(log, HIERARCHICAL) as made:
        await made.show(dsl.node("n1", cpu=8), placed("red", "root/red", "1/2"), placed("blue", "root/blue", "1/1"))
        await made.show(dsl.gang("one", 1, cpu=4, on=["n1"], queue="red", phase="Running"))
        await made.show(dsl.gang("two", 1, cpu=8, queue="red"), dsl.gang("three", 1, cpu=8, queue="blue"))
        await made.cycle()
    blue, red = explain_order(log).queues
    assert (blue.name, red.name) == ("blue", "red")
    assert [queue.factors[-1].values["hierarchy"] for queue in (blue, red)] == ["0", "0.25"]
    assert blue.before_next == Precedence("first in the tree (0 against 0.25)", "drf")


async def test_a_deadline_is_shown_as_a_time(tmp_path: Path) -> None:
    log = tmp_path / "order.log"
    async with scheduler(log, CONF.replace("name: drf", "name: sla")) as made:
        await made.show(dsl.node("n1", cpu=8), dsl.queue("root"), dsl.queue("default"))
        soon = dsl.group("soon", created=10)
        soon["metadata"]["annotations"] = {"sla-waiting-time": "1m"}
        await made.show(dsl.gang("any", 1, cpu=8), soon, dsl.pod("soon-0", group="soon", cpu=8))
        await made.cycle()
    soonest, other = explain_order(log, session=1).jobs["default"]
    assert (soonest.key, other.key) == ("default/soon", "default/any")
    assert soonest.before_next == Precedence("earlier deadline (2026-01-01T00:01:10.000Z against none)", "sla")


async def first_of_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job_order: Callable[[Plugin, Job], Any]
) -> OrderedJob:
    """What comes first of jobs a and b, where one plugin alone orders them."""
    kind = type("Mine", (Plugin,), {"name": "mine", "job_order": job_order})
    monkeypatch.setattr(registry, "plugins", lambda: MappingProxyType({"mine": kind}))
    log = tmp_path / "order.log"
    async with scheduler(log, conf("mine", actions="allocate")) as made:
        await made.show(dsl.queue("root"), dsl.queue("default"), dsl.gang("a", 1, cpu=8), dsl.gang("b", 1, cpu=8))
        await made.cycle()
    first, _ = explain_order(log).jobs["default"]
    return first


@pytest.mark.parametrize("labels", [(), (SHARE, SHARE)], ids=["none", "for another key"])
async def test_a_plugin_without_labels_for_its_keys_is_shown_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, labels: tuple[Label, ...]
) -> None:
    @labelled(*labels)
    def job_order(self: Plugin, job: Job) -> tuple[bool, float, str]:
        return job.name != "b", 0.25, job.name

    first = await first_of_two(tmp_path, monkeypatch, job_order)
    assert (first.key, first.factors) == ("default/b", [Factor("mine", {"mine": "False/0.25/b"})])
    assert first.before_next == Precedence("first (False/0.25/b against True/0.25/a)", "mine")


async def test_a_label_that_fails_leaves_the_value_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @labelled(Label("shift", "early", "late", {"day": "by day"}.__getitem__))
    def job_order(self: Plugin, job: Job) -> str:
        return "day" if job.name == "b" else "night"

    first = await first_of_two(tmp_path, monkeypatch, job_order)
    assert first.before_next == Precedence("early (by day against night)", "mine")


# --- unknown names ----------------------------------------------------------------------------------------------------


def test_an_unknown_queue_is_told_with_those_that_there_are(path: Path) -> None:
    with pytest.raises(NotFound, match="session 2 has no queue pink; there are blue, default, green, red, root"):
        explain_order(path, "pink")


def test_an_unknown_session_is_told_with_those_that_there_are(path: Path) -> None:
    with pytest.raises(NotFound, match="session 9 is not in it; it has sessions 1 to 2"):
        explain_order(path, session=9)


async def test_jobs_whose_queue_does_not_exist_are_listed(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log") as made:
        await made.show(dsl.queue("default"), dsl.node("n1", cpu=4), dsl.gang("lost", 1, queue="nope"))
        await made.cycle()
    found = explain_order(tmp_path / "log")
    assert found.unqueued == {"queue nope does not exist": ["default/lost"]}
    assert list(found.lines())[1:] == ["queue nope does not exist; its jobs are never served: default/lost"]


async def test_a_log_without_sessions_says_so(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "empty.log"):
        pass
    with pytest.raises(NotFound, match="it has no sessions"):
        explain_order(tmp_path / "empty.log")
