"""Explain queue: its figures over time, its jobs' waits by reason, and evictions in it and for it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests import dsl
from tests.timetravel.histories import START, Scheduler, put, scheduler, write_busy_history, write_takeover
from tests.timetravel.questions import explain_queue
from tests.timetravel.test_counterfactual import CAPACITY
from vcd.eventlog import LogError
from vcd.model import events as ev
from vcd.timetravel import log_operations
from vcd.timetravel.query_errors import NotFound
from vcd.timetravel.why import queue_timeline
from vcd.timetravel.why.queueanswer import QueueExplanation, standing
from vcd.timetravel.why.queuewaits import WaitedFor

CONF = """\
actions: "allocate, reclaim"
tiers:
- plugins:
  - name: priority
  - name: gang
- plugins:
  - name: capacity
"""
NO_NODE = "predicate: Insufficient cpu"


async def at(made: Scheduler, seconds: int) -> None:
    """One session at so many seconds after the beginning."""
    made.clock.now = START + seconds * 1_000_000_000
    await made.carry_out(await made.cycle(seconds=0))


def standings(explanation: QueueExplanation) -> list[tuple[float, str]]:
    """How long, and the figures without the queue's state."""
    return [(span.seconds, "; ".join(standing(span.figures)[1:])) for span in explanation.spans]


# --- which queue, which sessions --------------------------------------------------------------------------------------


def test_a_queue_that_is_not_there_is_told_with_those_that_are(busy: Path) -> None:
    with pytest.raises(NotFound, match="no queue larg is in it; there is default, root, small"):
        explain_queue(busy, "larg")


def test_sessions_that_are_not_there_are_told_with_those_that_are(busy: Path) -> None:
    with pytest.raises(NotFound, match="it has no sessions from 9 to the end; it has sessions 1 to 8"):
        explain_queue(busy, "default", 9)


async def test_a_log_without_sessions_is_told_so(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log") as made:
        await made.show(dsl.queue("default"))
    with pytest.raises(NotFound, match=r"it has no sessions$"):
        explain_queue(tmp_path / "log", "default")


def test_a_file_that_is_no_log_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(LogError):
        explain_queue(tmp_path / "nothing", "default")


# --- figures ----------------------------------------------------------------------------------------------------------


def test_sessions_with_the_same_figures_are_one_span(busy: Path) -> None:
    explanation = explain_queue(busy, "small")
    assert standings(explanation) == [
        (2, "nothing in use, nothing requested"),
        (1, "6 of 6 cpu deserved, limit 8"),
        (663, "6 of 8 cpu deserved, requested 10, limit 8"),
    ]
    assert [span.sessions for span in explanation.spans] == [(1, 2), (3, 3), (4, 8)]
    assert (explanation.sampled, explanation.sessions) == (8, 8)


def test_a_queue_that_has_all_it_deserves_while_nobody_wants_more_is_not_called_overused(busy: Path) -> None:
    explanation = explain_queue(busy, "default")
    assert [span.sessions for span in explanation.spans if span.overused] == []
    assert not any(line.startswith("  overused for") or line.endswith("; overused") for line in explanation.all_lines())


async def test_one_that_has_all_it_deserves_and_keeps_a_job_waiting_is_overused_for_that_time(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log") as made:
        await made.show(dsl.node("n1", cpu=16, pods=4), (dsl.queue(name) for name in ("red", "blue")))
        for color in ("red", "blue"):
            await made.show(dsl.gang(f"{color}s", 2, cpu=4, on=["n1", "n1"], queue=color, phase="Running"))
        await at(made, 0)
        await made.show(dsl.gang("more", 1, cpu=4, queue="blue"), dsl.gang("more-red", 1, cpu=4, queue="red"))
        await at(made, 60)
        await at(made, 120)
    explanation = explain_queue(tmp_path / "log", "blue")
    assert [(span.sessions, span.overused) for span in explanation.spans] == [((1, 1), False), ((2, 3), True)]
    assert "  overused for 1 min of 2 min" in list(explanation.all_lines())


@pytest.mark.parametrize(("samples", "sampled"), [(0, 1), (1, 2), (3, 4), (8, 8), (100, 8)])
def test_no_more_sessions_are_decided_again_than_asked_for_and_the_last(busy: Path, samples: int, sampled: int) -> None:
    explanation = explain_queue(busy, "small", samples=samples)
    assert explanation.sampled == sampled
    assert explanation.spans[-1].sessions[1] == 8
    assert explanation.seconds == 666


async def test_every_figure_of_a_resource_is_told(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log", CONF) as made:
        limits = {"capability": {"cpu": "6"}, "deserved": {"cpu": "4"}, "guarantee": {"resource": {"cpu": "2"}}}
        await made.show(dsl.queue("a", **limits), dsl.node("n1", cpu=8))
        await made.show(dsl.gang("job", 3, members=1, queue="a", cpu=3, memory=1))
        await at(made, 0)
    explanation = explain_queue(tmp_path / "log", "a")
    assert standings(explanation) == [
        (0, "6 of 4 cpu deserved, requested 9, guarantee 2, limit 6; 2Gi of 0 memory deserved, requested 3Gi")
    ]


async def test_a_queue_that_goes_is_not_there_any_more(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log") as made:
        await made.show(dsl.queue("default"), dsl.queue("a"), dsl.node("n1"))
        await at(made, 0)
        await made.delete("Queue", "a")
        await at(made, 60)
    explanation = explain_queue(tmp_path / "log", "a")
    assert [(span.seconds, standing(span.figures)[0]) for span in explanation.spans] == [
        (60, "Open, weight 1"),
        (0, "the queue does not exist"),
    ]
    assert [edit.text for edit in explanation.edits] == ["created", "deleted"]


async def test_changes_of_the_queue_have_their_times(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log") as made:
        await made.show(dsl.queue("a", capability={"cpu": "8"}), dsl.node("n1"))
        await at(made, 0)
        made.clock.now += 90_000_000_000
        await made.show(dsl.queue("a", capability={"cpu": "8"}, weight=3))
        await made.tell(ev.ObjectBad("Queue", "a", "", "spec.weight: not a number"))
        await at(made, 120)
        await made.show(dsl.queue("a", weight=5))
    whole, rest = explain_queue(tmp_path / "log", "a"), explain_queue(tmp_path / "log", "a", 2)
    assert [(edit.time[14:19], edit.text) for edit in whole.edits] == [
        ("00:00", "created"),
        ("01:30", "spec.weight 1 to 3"),
        ("01:30", "set aside: spec.weight: not a number"),
    ]
    assert rest.edits == []


async def test_a_session_that_cannot_be_run_again_is_noted(busy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object, **named: object) -> None:
        raise ZeroDivisionError("no such luck")

    monkeypatch.setattr("vcd.timetravel.history.run", broken)
    explanation = explain_queue(busy, "default", samples=1)
    assert (explanation.sampled, explanation.spans) == (0, [])
    assert explanation.notes == [
        f"deciding session {number} again fails with ZeroDivisionError: no such luck" for number in (1, 8)
    ]
    assert explanation.waited == 1


# --- waits ------------------------------------------------------------------------------------------------------------


def test_waits_are_counted_by_reason(busy: Path) -> None:
    explanation = explain_queue(busy, "default")
    assert explanation.reasons == [
        WaitedFor("enqueue (overcommit): resource in cluster is overused", 600, 1, "default/large", 600),
        WaitedFor(NO_NODE, 60, 1, "default/large", 60),
    ]
    assert (explanation.waited, explanation.waiting) == (1, 0)
    assert [(job.group, job.seconds, job.still) for job in explanation.longest] == [("default/large", 660, False)]


def test_a_wait_that_goes_on_counts_up_to_the_last_event(busy: Path) -> None:
    explanation = explain_queue(busy, "small")
    assert [(job.group, job.seconds, job.still) for job in explanation.longest] == [("default/third", 663, True)]


def test_a_range_begins_with_those_that_wait_and_ends_with_the_next_session(busy: Path) -> None:
    explanation = explain_queue(busy, "default", 7, 7)
    assert (explanation.start, explanation.until) == ("2026-01-01T00:10:05.000Z", "2026-01-01T00:11:05.000Z")
    assert explanation.reasons == [WaitedFor(NO_NODE, 60, 1, "default/large", 60)]
    assert explain_queue(busy, "small", 5, 6).longest[0].seconds == 601


def test_a_wait_that_is_older_than_the_log_is_known_from_its_checkpoint(busy: Path) -> None:
    log_operations.compact(busy, max_age=1)
    explanation = explain_queue(busy, "small")
    assert (explanation.first, explanation.waited) == (5, 1)
    assert explanation.longest[0].seconds == 662


async def test_the_time_of_several_jobs_is_summed_and_the_longest_come_first(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log") as made:
        await made.show(dsl.queue("default"), dsl.node("n1", cpu=1), dsl.node("n2", cpu=1))
        for number in range(6):
            await made.show(dsl.gang(f"job-{number}", 1, cpu=2, created=number))
            await at(made, 10 * number)
        await at(made, 60)
    explanation = explain_queue(tmp_path / "log", "default")
    (reason,) = (one for one in explanation.reasons if one.reason == NO_NODE)
    assert (reason.seconds, reason.jobs, reason.longest, reason.longest_seconds) == (
        60 + 50 + 40 + 30 + 20 + 10, 6, "default/job-0", 60,
    )  # fmt: skip
    assert [job.group for job in explanation.longest] == [f"default/job-{number}" for number in range(5)]
    assert explanation.waiting == 6


async def test_a_job_that_is_deleted_waits_no_longer(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log") as made:
        await made.show(dsl.queue("default"), dsl.node("n1", cpu=1), dsl.gang("job", 1, cpu=2))
        await made.show(dsl.gang("other", 1, cpu=2))
        await at(made, 0)
        made.clock.now += 10_000_000_000
        await made.delete("Pod", "default/job-0")
        await made.delete("PodGroup", "default/job")
        await at(made, 3600)
        await made.delete("PodGroup", "default/other")
        made.clock.now += 5_000_000_000
        await made.show(dsl.node("n2", cpu=1))
    explanation = explain_queue(tmp_path / "log", "default")
    assert [(job.group, job.seconds, job.still) for job in explanation.longest] == [
        ("default/other", 3600, False),
        ("default/job", 10, False),
    ]


def set_aside(how: str) -> ev.ObjectPut:
    """A put of the group ``big`` of which no state can make anything."""
    group = dsl.group("big", queue="q1")
    if how == "amount":
        group["spec"]["minResources"] = {"cpu": "much"}
    if how == "time":
        group["metadata"]["creationTimestamp"] = "nonsense"
    return ev.ObjectPut("PodGroup", "default/big", "1", b"junk") if how == "junk" else put(group)


@pytest.mark.parametrize("how", ["amount", "time", "junk"])
@pytest.mark.parametrize("back", [False, True])
async def test_a_group_that_cannot_be_read_any_more_waits_no_longer(tmp_path: Path, how: str, back: bool) -> None:
    async with scheduler(tmp_path / "log") as made:
        await made.show(dsl.node("n0", cpu=4), dsl.queue("q1"), dsl.gang("big", 1, cpu=8, queue="q1"))
        await at(made, 0)
        made.clock.now += 10_000_000_000
        await made.tell(set_aside(how))
        await at(made, 60)
        if back:
            await made.delete("Pod", "default/big-0")
            await made.show(dsl.group("big", queue="q1"))
        await at(made, 160)
    assert list(made.state.waiting) == []
    explanation = explain_queue(tmp_path / "log", "q1")
    assert (explanation.waiting, [(job.seconds, job.still) for job in explanation.longest]) == (0, [(10, False)])


async def test_what_moves_while_a_session_decides_moves_after_it(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log") as made:
        await made.show(dsl.node("n0", cpu=4), dsl.queue("a"), dsl.queue("b"), dsl.gang("big", 1, cpu=8, queue="a"))
        await made.cycle(made.shown(dsl.group("big", queue="b")), seconds=10)
        await made.cycle(seconds=10)
    seconds = {name: [job.seconds for job in explain_queue(tmp_path / "log", name).longest] for name in ("a", "b")}
    assert seconds == {"a": [10], "b": [0]}


async def test_who_comes_after_the_last_session_does_not_wait_yet(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log") as made:
        await made.show(dsl.node("n0", cpu=4), dsl.queue("a"), dsl.queue("b"), dsl.gang("big", 1, cpu=8, queue="a"))
        await at(made, 0)
        await made.show(dsl.group("big", queue="b"))
    assert (explain_queue(tmp_path / "log", "a").waiting, explain_queue(tmp_path / "log", "b").waiting) == (0, 0)


async def test_a_queue_that_cannot_be_read_is_below_none(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log") as made:
        await made.show(dsl.node("n0", cpu=4), dsl.queue("dad"), dsl.queue("kid", parent="dad"))
        await made.show(dsl.gang("big", 1, cpu=8, queue="kid"))
        await at(made, 0)
        await made.show(dsl.queue("kid", parent="dad", capability={"cpu": "much"}))
        await at(made, 10)
        await at(made, 20)
    whole, rest = explain_queue(tmp_path / "log", "dad"), explain_queue(tmp_path / "log", "dad", 2, 3)
    assert (whole.below, whole.waiting, rest.below, rest.waiting) == (0, 0, 0, 0)


async def test_a_job_that_changes_its_queue_waits_in_both(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log") as made:
        await made.show(dsl.queue("a"), dsl.queue("b"), dsl.node("n1", cpu=1), dsl.gang("job", 1, cpu=2, queue="a"))
        await at(made, 0)
        await made.show(dsl.group("job", queue="b"))
        await at(made, 30)
        await at(made, 50)
    seconds = {name: [job.seconds for job in explain_queue(tmp_path / "log", name).longest] for name in ("a", "b")}
    assert seconds == {"a": [30], "b": [20]}


async def test_waits_go_on_where_another_replica_takes_over(tmp_path: Path) -> None:
    await write_takeover(tmp_path / "log")
    explanation = explain_queue(tmp_path / "log", "default")
    assert [(job.group, job.seconds, job.still) for job in explanation.longest] == [("default/job", 61, False)]


# --- evictions --------------------------------------------------------------------------------------------------------


@pytest.fixture
async def reclaimed(tmp_path: Path) -> Path:
    """Queue a holds all four cpu; after ten seconds b, which deserves half, takes two of them back."""
    half = {"deserved": {"cpu": "2"}}
    async with scheduler(tmp_path / "log", CONF) as made:
        await made.show(dsl.queue("a", **half), dsl.queue("b", **half), dsl.node("n1", cpu=4))
        await made.show(dsl.gang("old", 4, members=1, on=["n1"] * 4, queue="a", cpu=1))
        await at(made, 0)
        await made.show(dsl.gang("new", 1, queue="b", cpu=2))
        await at(made, 10)
        await at(made, 20)
    return tmp_path / "log"


def test_evictions_are_told_in_the_queue_that_loses_and_in_the_one_that_gains(reclaimed: Path) -> None:
    loser, winner = explain_queue(reclaimed, "a"), explain_queue(reclaimed, "b")
    assert loser.evictions == winner.evictions_for
    assert loser.evictions_for == winner.evictions == []
    assert [(one.session, one.action, one.pod, one.queue, one.for_queue) for one in loser.evictions] == [
        (2, "reclaim", f"default/old-{number}", "a", "b") for number in (3, 2)
    ]
    assert "  2 pods of queue a by reclaim for queue b" in list(loser.all_lines())
    assert "2 pods evicted for it:" in list(winner.all_lines())


def test_the_figures_follow_the_evictions(reclaimed: Path) -> None:
    assert standings(explain_queue(reclaimed, "a")) == [
        (10, "4 of 2 cpu deserved"),
        (10, "2 of 2 cpu deserved, requested 4"),
        (0, "2 of 2 cpu deserved"),
    ]


async def test_an_eviction_that_was_dropped_is_not_counted(tmp_path: Path) -> None:
    half = {"deserved": {"cpu": "2"}}
    async with scheduler(tmp_path / "log", CONF) as made:
        await made.show(dsl.queue("a", **half), dsl.queue("b", **half), dsl.node("n1", cpu=4))
        await made.show(dsl.gang("old", 4, members=1, on=["n1"] * 4, queue="a", cpu=1))
        await made.show(dsl.gang("new", 1, queue="b", cpu=2))
        record = await made.cycle(ev.ObjectGone("Pod", "default/new-0"))
    assert record.stale
    assert explain_queue(tmp_path / "log", "a").evictions == []


# --- the whole --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["default", "small", "root"])
def test_an_explanation_is_data_for_json(busy: Path, name: str) -> None:
    explanation = explain_queue(busy, name)
    assert msgspec.json.decode(msgspec.json.encode(explanation), type=QueueExplanation) == explanation


def test_the_answer_is_how_the_queue_stands_and_why_its_jobs_wait(busy: Path) -> None:
    assert list(explain_queue(busy, "small").lines()) == [
        "queue small  Open  weight 1  1 waiting",
        "RESOURCE  USED  DESERVED  REQUESTED  GUARANTEE  LIMIT",
        "cpu       6     8         10         -          8",
        "WAITING        NEEDS      SINCE       WHY",
        "default/third  2 x 2 cpu  11 min 4 s  queue small: 6 of 8 cpu in use",
        "Changed  00:00:00 created",
        "As of    2026-01-01T00:11:06.000Z, sessions 1 to 8; --all shows its figures over time",
    ]


def test_the_answer_counts_evictions_by_action_and_queue(reclaimed: Path) -> None:
    loser, winner = (list(explain_queue(reclaimed, name).lines()) for name in "ab")
    assert "Evicted  2 pods of it by reclaim for queue b" in loser
    assert "Evicted  2 pods for it by reclaim of queue a" in winner


async def test_the_answer_about_a_deleted_queue_says_so(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log") as made:
        await made.show(dsl.queue("default"), dsl.queue("a"), dsl.node("n1"))
        await at(made, 0)
        await made.delete("Queue", "a")
        await at(made, 60)
    first, *_ = explain_queue(tmp_path / "log", "a").lines()
    assert first == "queue a  does not exist any more"


def test_all_lines_render_each_span_of_the_range(busy: Path) -> None:
    lines = list(explain_queue(busy, "small").all_lines())
    assert lines[0] == "queue small, sessions 1 to 8, 11 min 6 s until 2026-01-01T00:11:06.000Z"
    assert lines[3:6] == [
        "  2026-01-01T00:00:00.000Z  2 s           Open, weight 1; nothing in use, nothing requested",
        "  2026-01-01T00:00:02.000Z  1 s           Open, weight 1; 6 of 6 cpu deserved, limit 8",
        "  2026-01-01T00:00:03.000Z  11 min 3 s    Open, weight 1; 6 of 8 cpu deserved, requested 10, limit 8",
    ]


async def test_a_queue_in_which_nobody_waited_is_told_so(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log") as made:
        await made.show(dsl.queue("a"), dsl.queue("b"), dsl.node("n1", cpu=1), dsl.gang("job", 1, cpu=2, queue="a"))
        await at(made, 0)
    lines = list(explain_queue(tmp_path / "log", "b").all_lines())
    assert "none of its jobs waited" in lines


async def test_jobs_of_queues_below_wait_in_it_too(tmp_path: Path) -> None:
    """The limit of the queue above is what the jobs of its child wait for; those beside it do not count."""
    async with scheduler(tmp_path / "log", CAPACITY.replace("capacity", "capacity\n    enableHierarchy: true")) as made:
        await made.show(dsl.queue("root"), dsl.queue("default"), dsl.queue("org", capability={"cpu": "1"}))
        await made.show(dsl.queue("team", parent="org"), dsl.queue("beside"), dsl.node("n1", cpu=8))
        await made.show(dsl.gang("job", 1, cpu=2, queue="team"), dsl.gang("other", 1, cpu=9, queue="beside"))
        await at(made, 0)
        await at(made, 60)
    explanation = explain_queue(tmp_path / "log", "org")
    assert [(job.group, job.queue, job.seconds, job.still) for job in explanation.longest] == [
        ("default/job", "team", 60, True)
    ]
    assert explanation.waiting == 1
    lines = list(explanation.all_lines())
    assert any(line.startswith("  default/job (queue team) 1 min, and still waits: ") for line in lines)
    assert explain_queue(tmp_path / "log", "root").waited == 2
    assert explain_queue(tmp_path / "log", "team").longest[0].queue == ""


async def test_jobs_of_queues_below_count_with_those_of_the_queue(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log") as made:
        await made.show(*(dsl.queue(name) for name in ("root", "org", "other")), dsl.node("n1", cpu=1))
        await made.show(dsl.queue("team", parent="org"))
        await made.show(dsl.gang("job", 1, cpu=2, queue="team"), dsl.gang("else", 1, cpu=2, queue="other"))
        await at(made, 0)
        await at(made, 30)
        await made.show(dsl.queue("team", parent="other"))
        await at(made, 50)
    waited = {
        name: {job.group: job.seconds for job in explain_queue(tmp_path / "log", name).longest}
        for name in ("org", "team", "other", "root")
    }
    assert waited == {
        "org": {"default/job": 50},
        "team": {"default/job": 50},
        "other": {"default/else": 50, "default/job": 0},
        "root": {"default/else": 50, "default/job": 50},
    }
    assert "2 jobs waited in it and in 3 queues below it, 2 at the end, all together:" in list(
        explain_queue(tmp_path / "log", "root").all_lines()
    )


async def test_of_a_long_stretch_the_sessions_after_checkpoints_are_decided_again(
    busy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = explain_queue(busy, "small")
    monkeypatch.setattr(queue_timeline, "FOLDED", 1)
    few = explain_queue(busy, "small")
    assert (whole.sampled, few.sampled) == (8, 2)
    assert (few.reasons, few.longest, few.waits) == (whole.reasons, whole.longest, whole.waits)


async def test_a_log_of_which_no_session_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await write_busy_history(tmp_path / "log")

    def unreadable(*_: object, **__: object) -> None:
        raise LogError("this version cannot read the checkpoint")

    monkeypatch.setattr("vcd.timetravel.history.History.rerun", unreadable)
    with pytest.raises(LogError, match="cannot read the checkpoint"):
        explain_queue(tmp_path / "log", "default")
