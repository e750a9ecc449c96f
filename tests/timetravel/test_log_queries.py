"""A log open for questions: all of them from one file that is open once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import vcd
from tests import dsl
from tests.timetravel.histories import CONF, scheduler
from tests.timetravel.test_eviction_explanation import CONF as RECLAIM
from tests.timetravel.test_eviction_explanation import gone_and_back
from vcd import api
from vcd.cli import main
from vcd.eventlog import LogReader
from vcd.scheduling.decide import run
from vcd.text.time_formats import moment
from vcd.timetravel.query_errors import NotFound


def test_what_an_open_log_says_is_what_a_question_to_the_file_says(busy: Path) -> None:
    with vcd.open(busy) as log:
        large = log.job("large")
        assert large.story() == api.explain(busy, "job", "large")
        assert log.pod("large-2") == api.explain(busy, "pod", "large-2")


def test_an_answer_does_not_depend_on_what_was_asked_before(busy: Path) -> None:
    with vcd.open(busy) as log:
        first = log.job("large").obstacles(), log.session(7), log.order(), log.pod("large-2")
        log.job("large").change()
        again = log.job("large").obstacles(), log.session(7), log.order(), log.pod("large-2")
    assert again == first


def test_the_file_is_open_once_for_all_parts_of_an_explanation(busy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Path] = []
    begin = LogReader.__init__

    def counted(self: LogReader, path: Any) -> None:
        opened.append(path)
        begin(self, path)

    monkeypatch.setattr(LogReader, "__init__", counted)
    result = CliRunner().invoke(main, ["explain", "job", "large", "--change", "--event-log", str(busy)])
    assert (result.exit_code, opened) == (0, [busy])


async def test_the_last_wait_is_that_which_sessions_tell_of(busy: Path, tmp_path: Path) -> None:
    async with scheduler(tmp_path / "short.log", CONF) as made:
        await made.show(
            dsl.queue("root"), dsl.queue("default"), dsl.node("n1"), next(iter(dsl.gang("train", 3, members=5)))
        )
        await made.cycle()
    with vcd.open(busy) as log:
        assert log.job("large").last_wait == 7
    with vcd.open(tmp_path / "short.log") as log:
        assert log.job("train").last_wait is None
        assert log.job("train").verdict().cause == "pods-missing"


# --- windows ----------------------------------------------------------------------------------------------------------


def test_a_job_as_of_a_session_knows_nothing_of_what_came_later(busy: Path) -> None:
    with vcd.open(busy) as log:
        whole, then = log.job("large"), log.job("large", session=7)
        assert (whole.verdict().text.split()[1], then.verdict().text.split()[1]) == ("waited", "waits")
        assert [one.what for one in then.story().episodes if one.what in ("bound", "running")] == []
        end = log.history.reader.info(7)
        assert then.story().until == moment(end.time)
        assert then.last_wait == 7
        assert log.job("large", session=6).last_wait == 6
        assert log.pod("large-2", session=7).now.startswith("the pod is Pending")


def test_a_job_that_came_later_is_not_there_yet(busy: Path) -> None:
    with vcd.open(busy) as log, pytest.raises(NotFound, match="session 1: job default/large is not there yet"):
        log.job("large", session=1).story()


def test_a_story_since_a_time_leaves_out_what_was_over_before(busy: Path) -> None:
    with vcd.open(busy) as log:
        whole = log.job("large").story().episodes
        cut = log.history.reader.info(7).time
        since = log.job("large", since=cut).story().episodes
        begin = next(one.start for one in whole if one.what == "admitted")
        assert since == [one for one in whole if (one.end or one.start) >= begin]
        assert 0 < len(since) < len(whole)


def test_a_wait_since_a_time_is_counted_from_there(busy: Path) -> None:
    with vcd.open(busy) as log:
        whole = log.job("large").verdict()
        cut = log.history.reader.info(7).time
        found = log.job("large", since=cut).verdict()
        assert found.since == moment(cut)
        assert found.waited == 60.0 < whole.waited
        with pytest.raises(NotFound):
            log.job("large", since=log.history.reader.last_time() + 1).verdict()


async def test_evictions_outside_a_window_are_not_told(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log", RECLAIM) as made:
        await made.cycle(seconds=60)
        await gone_and_back(made)
    with vcd.open(tmp_path / "log") as log:
        time = log.history.reader.info(2).time
        assert [one.session for one in log.eviction("x").evictions] == [2]
        assert [one.session for one in log.eviction("x", session=2, since=time).evictions] == [2]
        assert not log.eviction("x", since=time + 1).evictions
        assert not log.eviction("x", session=1).evictions


async def test_what_came_of_an_eviction_is_told_as_of_the_session(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log", RECLAIM) as made:
        await gone_and_back(made)
    with vcd.open(tmp_path / "log") as log:
        (then,), (now,) = log.eviction("x", session=1).evictions, log.eviction("x").evictions
    assert (then.came_back, now.came_back) == ("", "default/x-1")


def test_a_session_is_decided_once_for_those_that_only_look(busy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decided: list[bool] = []

    def counted(*given: Any, **options: Any) -> Any:
        decided.append(options["trace"] is not None)
        return run(*given, **options)

    monkeypatch.setattr("vcd.timetravel.history.run", counted)
    with vcd.open(busy) as log:
        first = log.job("large", session=7).verdict()
        before = len(decided)
        assert log.job("large", session=7).verdict() == first
        assert len(decided) == before > 0


def test_what_is_imported_late_is_there_as_if_it_had_been() -> None:
    script = "import vcd; print(vcd.api.replay is vcd.replay, 'open' in dir(vcd), {*vcd.__all__} <= {*vcd.api.__all__})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "True True True\n"
