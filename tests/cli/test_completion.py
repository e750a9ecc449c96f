"""Names that a shell completes: those of the log that the command line, or the variable, names."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from tests import dsl
from tests.timetravel.histories import scheduler
from vcd.cli import main
from vcd.cli.inputs import EVENT_LOG

ML = {"namespace": "ml", "group_spec": {"namespace": "ml"}}


@pytest.fixture
async def log(tmp_path: Path) -> Path:
    """Jobs in two namespaces and two queues; no session was decided."""
    async with scheduler(tmp_path / "log") as made:
        await made.show(dsl.queue("default"), dsl.queue("research"), dsl.gang("train", 1), dsl.gang("trial", 1, **ML))
    return tmp_path / "log"


def completed(log: Path | None, *words: str) -> list[str]:
    """What a shell is given for the last of the words of a command line, whose first, or first two, are the command."""
    *before, last = words
    place = 2 if before[0] in ("bisect", "explain") else 1
    given = [*before[:place], *([] if log is None else ["--event-log", str(log)]), *before[place:]]
    return [item.value for item in ShellComplete(main, {}, "vcd", "_VCD").get_completions(given, last)]


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (("explain", "job", "tr"), ["train"]),
        (("explain", "job", "ml/"), ["ml/trial"]),
        (("explain", "job", "-n", "ml", ""), ["trial"]),
        (("explain", "pod", "train"), ["train-0"]),
        (("explain", "queue", ""), ["default", "research"]),
        (("explain", "order", "r"), ["research"]),
        (("explain", "diff", "train", "-n", "ml", "t"), ["trial"]),
        (("explain", "session", ""), []),
        (("explain", "job", "train", "-n", "m"), ["ml"]),
        (("bisect", "job", "tr"), ["train"]),
        (("jobs", "--queue", "re"), ["research"]),
        (("jobs", "-n", ""), ["default", "ml"]),
        (("jobs", "--state", "w"), ["waiting"]),
        (("jobs", "--cause", "cluster"), ["cluster-full"]),
    ],
)
def test_names_are_those_of_the_log(log: Path, words: tuple[str, ...], names: list[str]) -> None:
    assert completed(log, *words) == names


def test_the_variable_names_the_log(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(EVENT_LOG, str(log))
    assert completed(None, "explain", "queue", "d") == ["default"]


def test_no_log_gives_no_names(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no log")
    assert [completed(path, "explain", "job", "") for path in (None, tmp_path / "none", tmp_path / "text")] == [[]] * 3
