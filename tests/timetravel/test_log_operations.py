"""What the log commands rest on: plain lines, and the proof that a file is sound."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.eventlog.samples import write_history
from vcd.eventlog import EventLog
from vcd.model import events as ev
from vcd.state.cluster_state import ClusterState
from vcd.timetravel import log_operations


def test_a_log_whose_checkpoint_is_the_fold_of_its_events_is_sound(busy: Path) -> None:
    assert log_operations.verify(busy).problems == []


def test_a_checkpoint_that_is_not_the_fold_is_a_problem(busy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    apply = ClusterState.apply

    def forgetful(state: ClusterState, sequence: int, event: ev.Event) -> None:
        apply(state, sequence, ev.KindListed("Pod", "1") if isinstance(event, ev.OperationDone) else event)

    monkeypatch.setattr(ClusterState, "apply", forgetful)
    (problem,) = log_operations.verify(busy).problems
    assert problem.endswith("gives another state")


async def test_a_checkpoint_that_is_no_state_is_a_problem(tmp_path: Path) -> None:
    await write_history(tmp_path / "log", 3, checkpoints=(1, 2))
    (problem,) = log_operations.verify(tmp_path / "log").problems
    assert problem.startswith("this version cannot fold the events")


@pytest.mark.parametrize("beside", [False, True])
async def test_another_process_finds_what_this_one_does(
    busy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside: bool
) -> None:
    """Long logs are folded beside everything else."""
    monkeypatch.setattr(log_operations, "LONG", 0 if beside else 1 << 60)
    monkeypatch.setattr("vcd.timetravel.process_pool.processors", lambda: 2)
    assert log_operations.verify(busy).problems == []
    async with EventLog.open(busy) as log:
        await log.checkpoint(log.head, ClusterState().dump())
    (problem,) = log_operations.verify(busy).problems
    assert problem.endswith("gives another state")
    await write_history(tmp_path / "log", 3, checkpoints=(1, 2))
    (problem,) = log_operations.verify(tmp_path / "log").problems
    assert problem.startswith("this version cannot fold the events")
    with closing(sqlite3.connect(busy)) as connection, connection:
        connection.execute("DELETE FROM event WHERE sequence = 7")
    assert not any("another state" in problem for problem in log_operations.verify(busy).problems)


def test_a_hole_is_a_problem(busy: Path) -> None:
    with closing(sqlite3.connect(busy)) as connection, connection:
        connection.execute("DELETE FROM event WHERE sequence = 7")
    assert "events 7 to 7 are missing" in log_operations.verify(busy).problems


def test_the_tail_is_the_last_events(busy: Path) -> None:
    whole = [line["sequence"] for line in log_operations.events(busy)]
    assert [line["sequence"] for line in log_operations.tail(busy, 3)] == whole[-3:]


def test_the_tail_goes_on_in_another_copy_of_the_log_behind_what_was_told(busy: Path, tmp_path: Path) -> None:
    whole = [line["sequence"] for line in log_operations.events(busy)]
    *_, told = log_operations.tail(busy, 3)
    assert list(log_operations.tail(busy, 3, last=told)) == []
    told = next(log_operations.tail(busy, 3))
    shutil.copyfile(busy, tmp_path / "copy")
    assert [line["sequence"] for line in log_operations.tail(tmp_path / "copy", 3, last=told)] == whole[-2:]


@pytest.mark.parametrize("changes", [{"time": "2020-01-01T00:00:00.000000Z"}, {"sequence": 1 << 40}])
def test_the_tail_of_a_log_that_was_begun_anew_is_all_of_it(busy: Path, changes: dict[str, Any]) -> None:
    whole = [line["sequence"] for line in log_operations.events(busy)]
    told = next(log_operations.tail(busy, 3)) | changes
    assert [line["sequence"] for line in log_operations.tail(busy, 3, last=told)] == whole


def test_lines_are_of_the_events_chosen(busy: Path) -> None:
    assert [line["session"] for line in log_operations.sessions(busy, 2, 3)] == [2, 3]
    assert {line["type"] for line in log_operations.events(busy, type="outcome")} == {"outcome"}


def test_compaction_tells_what_it_did(busy: Path) -> None:
    done = log_operations.compact(busy, max_age=1)
    assert done.removed > 10
    assert done.after == busy.stat().st_size


def test_logged_events_are_those_of_the_log(busy: Path) -> None:
    assert [line["sequence"] for line in log_operations.events(busy, first=3, last=5)] == [3, 4, 5]
