"""What the page is told of a log: the answers, and what is said of a question that has none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from tests import dsl
from tests.timetravel.histories import scheduler, write_busy_history
from tests.view.situations import write_situation
from vcd.cli import main
from vcd.model import events as ev
from vcd.view.questions import PAGE, Answer, answer
from vcd.view.visibility import UnreviewedRights


@pytest.fixture
async def busy(tmp_path: Path) -> str:
    """A log of eight sessions: gangs that come, wait, run and end."""
    await write_busy_history(tmp_path / "busy.log")
    return str(tmp_path / "busy.log")


def told(path: str, question: str, given: tuple[str, ...]) -> Answer:
    """The answer to somebody who may see everything."""
    found = answer(path, question, given, None)
    assert not isinstance(found, UnreviewedRights)
    return found


def data(path: str, question: str, *given: str) -> Any:
    status, body = told(path, question, given)
    assert status == 200, body
    return json.loads(body)


def error(path: str, question: str, *given: str) -> tuple[int, str]:
    status, body = told(path, question, given)
    return status, json.loads(body)["error"]


def test_the_head_names_the_ends_of_the_log(busy: str) -> None:
    told = data(busy, "head")
    assert (told["first"], told["last"]) == (1, 8)
    assert told["head"] > 8
    assert told["time"] > 1_767_225_600_000  # ms, later than the beginning of 2026


def test_a_session_is_a_line_of_counts(busy: str) -> None:
    lines = data(busy, "sessions", "", "")
    assert [line[0] for line in lines] == list(range(1, 9))
    assert [line[2] for line in lines] == [3, 3, 2, 0, 0, 0, 0, 5]  # first (twice: the calls fail), second, large
    assert [line[5] for line in lines] == [1, 0, 1, 1, 0, 0, 1, 0]  # first, second, third, large
    assert [line[6] for line in lines] == [0, 0, 0, 1, 0, 1, 1, 1]  # third waits; large waits, for less, not any more
    assert lines[6][1] - lines[5][1] == 600_000


async def test_a_line_counts_what_was_not_dropped(tmp_path: Path) -> None:
    def operation(verb: ev.Verb, pod: str) -> ev.Operation:
        return ev.Operation(verb, f"default/{pod}", "uid", "n0")

    plan = ev.Plan(
        statements=(
            ev.Statement("default/a", "reclaim", (operation("evict", "x"), operation("pipeline", "a-0"))),
            ev.Statement("default/b", "allocate", (operation("bind", "b-0"), operation("bind", "b-1"))),
            ev.Statement("default/c", "allocate", (operation("bind", "c-0"),)),
        ),
        faults=("slow: took too long",),
    )
    path = tmp_path / "forged.log"
    async with scheduler(path) as made:
        record = await made.cycle()
        forged = {"session": 2, "plan": ev.encode_plan(plan), "stale": ((1, "node n0 is gone"),)}
        await made.log.append([msgspec.structs.replace(record, **forged)])
    assert data(str(path), "sessions", "2", "2")[0][2:] == [1, 1, 1, 0, 0, 1, 1]


def test_some_sessions_are_asked_for_by_number(busy: str) -> None:
    assert [line[0] for line in data(busy, "sessions", "3", "5")] == [3, 4, 5]
    assert data(busy, "sessions", "5", "4") == []


def test_too_many_sessions_at_once_are_refused(busy: str) -> None:
    status, sentence = error(busy, "sessions", "1", str(PAGE + 1))
    assert (status, sentence) == (
        400,
        f"from=1 to={PAGE + 1}: at most {PAGE} sessions are given at once; ask for fewer",
    )


def test_an_overview_shows_queues_nodes_and_jobs(busy: str) -> None:
    told = data(busy, "overview", "2")
    assert [queue["name"] for queue in told["queues"]] == ["default", "root", "small"]
    assert [node["name"] for node in told["nodes"]] == ["n0", "n1", "n2", "n3"]
    assert sum(node["used"].get("cpu", 0) for node in told["nodes"]) == 12_000
    assert [(job["key"], job["pods"]) for job in told["jobs"]] == [("default/first", 3)]


async def test_an_overview_has_a_cause_for_each_waiting_job_the_longest_wait_first(tmp_path: Path) -> None:
    await write_situation("full", tmp_path / "full.log")
    told = data(str(tmp_path / "full.log"), "overview", "")
    assert told["resource"] == "nvidia.com/gpu"
    assert told["waits"] == [
        {"group": f"default/{name}", "job": f"default/{name}", "needs": needs, "cause": cause, "why": why}
        for name, needs, cause, why in (
            ("bert-finetune", "1 x 1 GPU", "cluster-full", "cluster full: 0 of 24 GPU free"),
            ("resnet50-train", "4 x 2 GPU", "cluster-full", "cluster full: 0 of 24 GPU free"),
            ("diffusion", "1 x 16 GPU", "unschedulable-shape", "never: the largest node has 8 GPU"),
            ("yolo-sweep", "1 x 1 GPU", "cluster-full", "cluster full: 0 of 24 GPU free"),
        )
    ]


def test_without_a_number_the_last_session_is_meant(busy: str) -> None:
    assert data(busy, "overview", "")["session"] == 8
    assert data(busy, "session", "")["session"] == 8


def test_a_session_is_told_in_lines_with_the_difference_to_the_next(busy: str) -> None:
    lines = data(busy, "session", "7")["lines"]
    assert lines[0][0] == 0 and lines[0][1].startswith("session 7 ")
    (start,) = [index for index, (_, text) in enumerate(lines) if text.startswith("against session 8")]
    assert any("only session 8: bind default/large-0" in text for _, text in lines[start:])


def test_a_job_is_answered_as_by_explain_job_and_its_story_told(busy: str) -> None:
    told = data(busy, "job", "default/large", "")
    printed = CliRunner().invoke(main, ["explain", "job", "large", "--event-log", busy])
    assert told["answer"] == printed.stdout.splitlines()
    why = "the cluster is full: 34 of 40 cpu are free, and it needs 35; default/second holds most"
    assert told["answer"][1] == f"Before   Waited 11 min: {why}."
    assert told["lines"][0] == [0, "job default/large in queue default"]
    assert any("session 8 (allocate) bound large-0" in text and depth == 1 for depth, text in told["lines"])


def test_a_job_is_told_as_it_was_at_the_session_that_is_chosen(busy: str) -> None:
    told = data(busy, "job", "default/large", "7")
    assert (told["session"], told["lines"][0][1]) == (7, "job default/large in queue default")
    assert told["answer"][0].startswith("default/large  WAITING 10 min  queue default")
    assert not any("bound" in text for _, text in told["lines"])
    assert error(busy, "job", "default/large", "2")[0] == 404


def test_a_job_that_never_waited_has_no_cause(busy: str) -> None:
    names = [line.split()[0] for line in data(busy, "job", "default/first", "2")["answer"][1:]]
    assert names == ["Placed", "History", "As"]


@pytest.mark.parametrize(
    ("question", "given", "status", "says"),
    [
        ("overview", "x", 400, "session: 'x' is not a session's number; write one such as session=1"),
        ("overview", "-1", 400, "session: '-1' is not a session's number; write one such as session=1"),
        ("overview", "9" * 40, 400, f"session: '{'9' * 40}' is not a session's number; write one such as session=1"),
        ("overview", "9", 404, "session 9 is not in the log; it has sessions 1 to 8"),
        ("overview", "0", 404, "session 0 is not in the log; it has sessions 1 to 8"),
        ("session", "1.5", 400, "number: '1.5' is not a session's number; write one such as number=1"),
        ("job", ("default/large", "9"), 404, "session 9 is not in the log; it has sessions 1 to 8"),
        ("job", ("", ""), 400, "key: '' names no job; write one such as key=default/train"),
        ("job", ("large", ""), 400, "key: 'large' names no job; write one such as key=default/train"),
    ],
)
def test_a_mistake_of_the_asker_says_how_to_mend_it(
    busy: str, question: str, given: str | tuple[str, ...], status: int, says: str
) -> None:
    assert error(busy, question, *([given] if isinstance(given, str) else given)) == (status, says)


def test_a_time_may_be_in_milliseconds_up_to_the_last_that_can_be_written(busy: str) -> None:
    assert data(busy, "at", "1767225600000") == {"session": 1, "remark": ""}
    assert data(busy, "at", "253402300799999")["session"] == 8


@pytest.mark.parametrize("time", ["1767227999999999999999", "999999999999999", "253402300800000", "9" * 5000])
async def test_a_number_that_is_no_time_is_a_mistake_whatever_is_in_the_log(
    busy: str, tmp_path: Path, time: str
) -> None:
    async with scheduler(tmp_path / "empty.log"):
        pass
    for path in (busy, str(tmp_path / "empty.log")):
        status, sentence = error(path, "at", time)
        assert (status, sentence.startswith(f"'{time}' is not a time; write one such as")) == (400, True)


def test_when_a_job_starts_is_forecast_as_of_the_session_that_is_chosen(
    busy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vcd.view.answers._FORECAST_RUNS", 1)
    told = data(busy, "eta", "default/large", "7")
    assert (told["key"], told["session"]) == ("default/large", 7)
    assert told["lines"] == [[0, "cannot be told: nothing like default/second has ended yet"]]
    ((_, line),) = data(busy, "eta", "default/large", "8")["lines"]
    assert line.startswith("it does not wait: it started 2026-01-01 ")


def test_of_an_unknown_job_nothing_is_forecast(busy: str) -> None:
    assert error(busy, "eta", "default/none", "7")[0] == 404
    assert error(busy, "eta", "default/large", "99")[0] == 404


def test_an_unknown_job_is_not_found(busy: str) -> None:
    status, text = error(busy, "job", "default/none", "")
    assert (status, text.partition(";")[0]) == (404, f"event log {busy}: no job default/none is in it")


def test_errors_name_a_log_as_it_is_called_where_a_copy_of_it_is_read(busy: str) -> None:
    found = answer(busy, "job", ("default/none", ""), None, "/logs/old.log")
    assert found[0] == 404
    assert found[1].startswith(b'{"error":"event log /logs/old.log: no job default/none is in it;')


async def test_a_log_without_sessions_has_nodes_queues_and_jobs(tmp_path: Path) -> None:
    path = str(tmp_path / "empty.log")
    async with scheduler(Path(path)) as made:
        assert (data(path, "head")["first"], data(path, "head")["last"]) == (0, 0)
        assert data(path, "sessions", "", "") == []
        assert data(path, "overview", "")["nodes"] == []
        await made.show(dsl.node("n1", cpu=4), dsl.queue("left"), dsl.gang("job", 1, cpu=1, queue="left"))
        told = data(path, "overview", "")
        assert (told["session"], told["waits"]) == (0, [])
        assert [one["name"] for kind in ("nodes", "queues") for one in told[kind]] == ["n1", "left"]
        assert [(job["key"], job["pending"]) for job in told["jobs"]] == [("default/job", 1)]
        assert error(path, "overview", "1") == (404, "no session is in the log yet")
        await made.cycle()
        assert data(path, "overview", "")["session"] == 1


def test_a_missing_file_is_told_and_asked_for_again(tmp_path: Path) -> None:
    status, sentence = error(str(tmp_path / "none"), "head")
    assert status == 500 and str(tmp_path / "none") in sentence


async def test_what_is_logged_later_is_in_later_answers(tmp_path: Path) -> None:
    path = str(tmp_path / "growing.log")
    async with scheduler(Path(path)) as made:
        await made.cycle()
        assert data(path, "head")["last"] == 1
        assert not any("against session 2" in text for _, text in data(path, "session", "1")["lines"])
        await made.cycle()
        assert data(path, "head")["last"] == 2
        assert any("against session 2" in text for _, text in data(path, "session", "1")["lines"])


async def test_another_file_of_the_same_name_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "one.log"
    await write_busy_history(path)
    assert len(data(str(path), "overview", "1")["nodes"]) == 4
    async with scheduler(tmp_path / "two.log") as made:
        await made.show(dsl.node("alone", cpu=1))
        await made.cycle()
    (tmp_path / "two.log").rename(path)
    assert [node["name"] for node in data(str(path), "overview", "1")["nodes"]] == ["alone"]


async def test_past_sessions_are_kept_and_cost_no_second_run(busy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = told(busy, "overview", ("3",))

    def again(*given: object) -> None:
        raise AssertionError("the session is run again")

    monkeypatch.setattr("vcd.view.answers.overview", again)
    assert told(busy, "overview", ("3",)) == first
