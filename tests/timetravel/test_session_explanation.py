"""Explain session: what was new, what was decided and became of it, and how the sessions beside it differ."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests import dsl
from tests.timetravel.histories import CONF, scheduler, write_takeover
from tests.timetravel.questions import explain_session
from tests.timetravel.test_counterfactual import CARDS, H200, card_queue
from vcd.eventlog import LogError, LogReader, SessionInfo
from vcd.model import events as ev
from vcd.timetravel import log_operations
from vcd.timetravel.query_errors import NotFound
from vcd.timetravel.why.session_explanation import Contrast, SessionExplanation

RECLAIM = """\
actions: "allocate, reclaim"
tiers:
- plugins:
  - name: priority
  - name: gang
- plugins:
  - name: proportion
"""


def news(explanation: SessionExplanation) -> list[str]:
    return [str(one) for one in explanation.news]


def contrast(found: Contrast | None) -> Contrast:
    assert found is not None
    return found


# --- which session ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("last", [0, "0", "last", 8, "8"])
def test_the_last_session_has_several_names(busy: Path, last: int | str) -> None:
    assert explain_session(busy, last).session == 8


@pytest.mark.parametrize("number", [9, -1, "eight", 10**30])
def test_a_session_that_is_not_there_is_told_with_those_that_are(busy: Path, number: int | str) -> None:
    with pytest.raises(NotFound, match=rf"no session {number} is in it; it has sessions 1 to 8"):
        explain_session(busy, number)


@pytest.mark.parametrize("number", [1, 3, "last"])
def test_no_more_sessions_are_listed_than_those_beside_it(
    busy: Path, number: int | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: set[int] = set()
    sessions = LogReader.sessions

    def noted(reader: LogReader, *bounds: Any, **most: Any) -> Iterator[SessionInfo]:
        for info in sessions(reader, *bounds, **most):
            listed.add(info.number)
            yield info

    monkeypatch.setattr(LogReader, "sessions", noted)
    found = explain_session(busy, number)
    beside = [one.session for one in (found.previous, found.next) if one is not None]
    assert listed == {1, found.session, *beside}  # and the first of the log, which is named where one is not in it


async def test_a_log_without_sessions_is_told_so(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log"):
        pass
    with pytest.raises(NotFound, match="it has no sessions"):
        explain_session(tmp_path / "log")


def test_a_file_that_is_no_log_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(LogError):
        explain_session(tmp_path / "nothing")


# --- what is new ------------------------------------------------------------------------------------------------------


def test_to_the_first_session_everything_is_new(busy: Path) -> None:
    explanation = explain_session(busy, 1)
    assert explanation.previous is None
    assert news(explanation)[1:] == [
        "1 leadership won: epoch 1",
        "4 Nodes created: n0, n1, n2, n3",
        "1 PodGroup created: default/first",
        "3 Queues created: default, root, small",
        "3 Pods created: default/first-0, default/first-1, default/first-2",
    ]
    assert news(explanation)[0].startswith("1 configuration loaded: ")


def test_pods_that_came_and_that_run_are_new(busy: Path) -> None:
    assert news(explain_session(busy, 3)) == [
        "1 PodGroup created: default/second",
        "2 Pods created: default/second-0, default/second-1",
        "3 Pods running: default/first-0, default/first-1, default/first-2",
        "3 calls done: session 2",
    ]


def test_outcomes_of_the_session_before_are_new(busy: Path) -> None:
    assert news(explain_session(busy, 2)) == ["3 calls failed: session 1"]


def test_a_change_is_told_field_by_field(busy: Path) -> None:
    assert news(explain_session(busy, 8)) == ["1 Node changed: n4 (status.allocatable.cpu 8 to 24)"]


async def test_what_goes_and_what_comes_back_under_another_uid_is_new(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log") as made:
        await made.show(dsl.queue("default"), dsl.node("a", cpu=1), dsl.gang("job", 2, cpu=2), dsl.queue("spare"))
        await made.show(dsl.node("b", cpu=1))
        await made.cycle()
        again = dsl.pod("job-0", group="job", cpu=2)
        again["metadata"]["uid"] = "another"
        await made.show(again)
        await made.delete("Pod", "default/job-1")
        await made.delete("Queue", "spare")
        await made.tell(ev.ObjectBad("Node", "b", "2", "status.allocatable: not a number"))
        await made.cycle()
    assert news(explain_session(tmp_path / "log")) == [
        "1 Queue gone: spare",
        "1 Pod created: default/job-0",
        "2 Pods gone: default/job-0, default/job-1",
        "1 object set aside: Node b (status.allocatable: not a number)",
    ]


async def test_what_the_scheduler_writes_is_nothing_new(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log") as made:
        queue = dsl.queue("default")
        await made.show(queue, dsl.node("a", cpu=1), dsl.gang("job", 1, cpu=2))
        await made.cycle()
        await made.show({**queue, "status": {**queue["status"], "allocated": {"cpu": "1"}}})
        await made.show(dsl.group("job", phase="Running"))
        await made.cycle()
    explanation = explain_session(tmp_path / "log")
    assert explanation.news == []
    assert "new since session 1, 1 s before: nothing that a scheduler reads" in list(explanation.lines())


async def test_another_configuration_is_new_and_told_in_the_contrast(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log") as made:
        await made.show(dsl.queue("default"), dsl.node("a"), dsl.gang("job", 1, cpu=2))
        await made.cycle()
        await made.load(dsl.BARE)
        await made.cycle()
    explanation = explain_session(tmp_path / "log")
    assert news(explanation) == [f"1 configuration loaded: {explanation.policy[:16]}"]
    assert contrast(explanation.previous).configuration


def test_the_oldest_session_that_is_kept_is_told_from_the_checkpoint_on(busy: Path) -> None:
    whole = news(explain_session(busy, 5))
    log_operations.compact(busy, max_age=1)
    explanation = explain_session(busy, 5)
    assert explanation.previous is None
    assert news(explanation) == whole[:1] == ["3 Pods succeeded: default/first-0, default/first-1, default/first-2"]


async def test_the_news_of_another_replica_are_against_what_the_one_before_saw(tmp_path: Path) -> None:
    await write_takeover(tmp_path / "log")
    assert news(explain_session(tmp_path / "log")) == [
        "1 leadership won: epoch 2",
        "1 Node changed: n1 (status.allocatable.cpu 4 to 8)",
    ]


# --- what was decided -------------------------------------------------------------------------------------------------


def test_a_statement_is_told_with_what_became_of_its_calls(busy: Path) -> None:
    (decided,) = explain_session(busy, 1).decided
    assert (decided.action, decided.group, decided.queue) == ("allocate", "default/first", "default")
    assert sorted(decided.binds) == ["default/first-0", "default/first-1", "default/first-2"]
    assert decided.outcomes == {"failed": 3}
    assert decided.failures == ["failed: the node does not answer (default/first-0, default/first-1, default/first-2)"]


def test_groups_that_were_admitted_are_told(busy: Path) -> None:
    assert [explain_session(busy, number).admitted for number in (3, 7)] == [["default/second"], ["default/large"]]


async def test_a_statement_that_was_dropped_is_told_with_the_reason(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log") as made:
        await made.show(dsl.queue("default"), dsl.node("n1"), dsl.gang("job", 1, cpu=2))
        await made.cycle(ev.ObjectGone("Node", "n1"))
    explanation = explain_session(tmp_path / "log")
    (decided,) = explanation.decided
    assert (decided.dropped, decided.outcomes) == ("bind default/job-0: node n1 is gone", {})
    lines = list(explanation.lines())
    assert "1 event came while it was decided" in lines
    assert "    dropped whole before any call: bind default/job-0: node n1 is gone" in lines


async def test_calls_whose_outcome_is_not_known_are_told(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log") as made:
        await made.show(dsl.queue("default"), dsl.node("n1"), dsl.gang("job", 3, cpu=2))
        await made.cycle()
        await made.tell(ev.OperationDone(1, 0, 0, "unknown", "no answer"), ev.OperationDone(1, 0, 0, "done"))
        await made.tell(ev.OperationDone(1, 0, 1, "conflict", "bound by another"))
    (decided,) = explain_session(tmp_path / "log").decided
    assert decided.outcomes == {"conflict": 1, "done": 1, "without an answer yet": 1}
    assert decided.failures == ["conflict: bound by another (default/job-1)"]


async def test_evictions_and_held_room_are_told_with_who_wants_them(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log", RECLAIM) as made:
        await made.show(dsl.queue("a"), dsl.queue("b"), dsl.node("n1", cpu=4, memory=8))
        await made.show(dsl.gang("old", 4, members=1, on=["n1"] * 4, queue="a", cpu=1))
        await made.show(dsl.gang("new", 1, queue="b", cpu=2))
        await made.carry_out(await made.cycle())
    explanation = explain_session(tmp_path / "log")
    (decided,) = explanation.decided
    assert decided.held == {"default/new-0": "n1"}
    assert [(one.pod, one.group, one.queue, one.for_group, one.for_queue) for one in decided.evictions] == [
        (f"default/old-{i}", "default/old", "a", "default/new", "b") for i in (3, 2)
    ]
    assert decided.outcomes == {"done": 2}
    assert (
        "  reclaim for default/new of queue b: evict default/old-3 from n1, default/old-2 from n1"
        " (reclaim for default/new of queue b)" in list(explanation.lines())
    )
    queues = {one.queue: (one.before.get("cpu"), one.after.get("cpu")) for one in explanation.queues}
    assert queues == {"a": ("4", "2"), "b": (None, None)}


async def test_plugins_that_failed_are_told_and_that_work_is_left(tmp_path: Path) -> None:
    def failing(plan: ev.Plan) -> ev.Plan:
        return msgspec.structs.replace(plan, faults=("drf: ZeroDivisionError: oh",), more=True)

    async with scheduler(tmp_path / "log") as made:
        await made.show(dsl.queue("default"), dsl.node("n1"))
        await made.cycle(forge=failing)
    explanation = explain_session(tmp_path / "log")
    assert explanation.faults == ["drf: ZeroDivisionError: oh"]
    lines = list(explanation.lines())
    assert "  drf: ZeroDivisionError: oh" in lines
    assert "  a bound on one session's work was reached: the next session goes on with the rest" in lines
    assert explanation.again.startswith("it comes out otherwise today")


async def test_a_session_that_cannot_be_run_again_is_told_all_the_same(
    busy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: object, **named: object) -> None:
        raise ZeroDivisionError("no such luck")

    monkeypatch.setattr("vcd.timetravel.history.run", broken)
    explanation = explain_session(busy, 8)
    assert explanation.again == "running the session again fails with ZeroDivisionError: no such luck"
    assert (len(explanation.decided), explanation.queues) == (1, [])


def test_queues_are_told_before_and_after_with_what_they_deserve(busy: Path) -> None:
    explanation = explain_session(busy, 8)
    assert explanation.again == ""
    assert [str(one) for one in explanation.queues] == [
        "default: 35 cpu, 5 pods in use (before nothing), deserved 35 cpu, 5 pods",
        "small: 6 cpu, 2 pods in use, deserved 8 cpu, 4 pods",
    ]


# --- waits and the sessions beside it ---------------------------------------------------------------------------------


def test_who_waits_for_something_else_than_before_is_told(busy: Path) -> None:
    begins, changes, ends = (explain_session(busy, number).waiting for number in (6, 7, 8))
    assert [(one.group, len(one.was), len(one.now)) for one in begins] == [("default/large", 0, 2)]
    assert [(one.was[0].gate, one.now[0].gate) for one in changes] == [("enqueue", "predicate")]
    assert [(one.group, one.now) for one in ends] == [("default/large", ())]
    assert str(ends[0]).startswith("default/large waits no more; before at predicate for large-3: 5 nodes")


def test_who_waits_after_it_is_counted_by_reason(busy: Path) -> None:
    assert explain_session(busy, 7).still == {
        "gang: fewer tasks than the minimum": 2,
        "predicate: Insufficient cpu": 1,
        "queue (proportion): queue has no room within what it deserves": 1,
    }


def test_the_sessions_before_and_after_are_told_by_what_only_one_has(busy: Path) -> None:
    explanation = explain_session(busy, 7)
    before, after = contrast(explanation.previous), contrast(explanation.next)
    assert (before.session, before.seconds, after.session, after.seconds) == (6, 600, 8, 60)
    assert (before.operations_here, before.operations_there, after.operations_here) == ([], [], [])
    assert before.waits_here == ["default/large waits at predicate: Insufficient cpu"]
    assert before.waits_there == ["default/large waits at enqueue (overcommit): resource in cluster is overused"]
    assert [text.partition(" to ")[0] for text in after.operations_there] == [
        f"bind default/large-{i}" for i in range(5)
    ]
    assert after.waits_here[0] == "default/large waits at predicate: Insufficient cpu"
    assert after.waits_there == []


def test_sessions_that_decide_the_same_are_told_so(busy: Path) -> None:
    assert "against session 1, 1 s before: the same" in list(explain_session(busy, 2).lines())


async def test_reasons_are_alike_whatever_the_numbers_in_their_words(tmp_path: Path) -> None:
    """What a queue of cards refuses, it says with the numbers of the case in the sentence."""
    labels = {"nvidia.com/gpu.product": H200, "nvidia.com/gpu.memory": "81920", "nvidia.com/gpu.count": "8"}
    card = {"volcano.sh/card.name": H200}
    async with scheduler(tmp_path / "log", CARDS) as made:
        await made.show(dsl.queue("root"), dsl.queue("default"), dsl.node("n1", cpu=64, gpu=8, labels=labels))
        await made.show(card_queue({H200: 3}))
        for size in (4, 5):
            job = dsl.gang(f"asks-{size}", 1, queue="team-a", gpu=size, annotations=card)
            await made.show(job)
        await made.cycle()
        await made.show(card_queue({H200: 2}))
        await made.cycle()
    explained = explain_session(tmp_path / "log", 2)
    assert [words.partition(" has ")[0] for words in explained.still] == [
        "queue (capacity-card): Queue <team-a>", "gang: fewer tasks than the minimum",
    ]  # fmt: skip
    assert list(explained.still.values()) == [2, 2]
    assert len(explained.waiting) == 2
    assert (contrast(explained.previous).waits_here, contrast(explained.previous).waits_there) == ([], [])


async def test_a_long_difference_is_cut_in_the_lines_only(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log") as made:
        await made.show(dsl.queue("default"), dsl.node("n1", cpu=32, pods=110), dsl.gang("job", 20, cpu=1))
        await made.cycle()
        await made.load(CONF)
        await made.cycle()
    explanation = explain_session(tmp_path / "log", 1)
    assert len(contrast(explanation.next).operations_here) == 20
    lines = list(explanation.lines())
    assert lines[-1] == "  ... and 8 more"
    assert any(line.endswith("default/job-11 to n1 and 16 more") for line in lines)


@pytest.mark.parametrize("number", range(1, 9))
def test_an_explanation_is_data_for_json(busy: Path, number: int) -> None:
    explanation = explain_session(busy, number)
    assert msgspec.json.decode(msgspec.json.encode(explanation), type=SessionExplanation) == explanation
