"""A log open for questions: all of them from one file that is open once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import vcd
from tests import dsl
from tests.timetravel.histories import CONF, scheduler, write_busy_history
from vcd import api
from vcd.cli import main
from vcd.eventlog import LogReader


@pytest.fixture
async def busy(tmp_path: Path) -> Path:
    """A log in which the job ``large`` waits twice and is bound."""
    await write_busy_history(tmp_path / "busy.log")
    return tmp_path / "busy.log"


def test_what_an_open_log_says_is_what_a_question_to_the_file_says(busy: Path) -> None:
    with vcd.open(busy) as log:
        large = log.job("large")
        assert large.story() == api.explain(busy, "job", "large")
        assert large.verdict() == api.verdict(busy, "large")
        assert large.obstacles() == api.obstacles(busy, "large")
        assert large.change() == api.smallest_change(busy, "large")
        assert log.pod("large-2") == api.explain(busy, "pod", "large-2")
        assert log.queue("small") == api.explain_queue(busy, "small")
        assert log.session(3) == api.explain_session(busy, 3)
        assert log.eviction("large") == api.explain_eviction(busy, "large")
        assert log.order("default", 6) == api.explain_order(busy, "default", 6)


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
