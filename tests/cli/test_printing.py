"""How commands print: within a terminal's width, and plain and whole where there is none."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from tests.timetravel.histories import write_busy_history

ROOT = Path(__file__).parents[2]
PLAN = ("plan", "-f", "examples/gang.yaml")
STYLE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def on_terminal(arguments: tuple[str, ...], columns: int, **environment: str) -> str:
    """What ``vcd`` writes to a terminal of so many columns, with the escapes that colour it."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    known = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    with subprocess.Popen(
        [sys.executable, "-m", "vcd", *arguments],
        cwd=ROOT,
        env={**known, "TERM": "xterm", **environment},
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
    ) as process:
        os.close(theirs)
        written = b""
        while piece := _read(ours):
            written += piece
    os.close(ours)
    assert process.returncode == 0, written
    return written.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # how Linux says that nobody has the other end any more
        return b""


def piped(arguments: tuple[str, ...], **environment: str) -> str:
    """What ``vcd`` writes to a pipe."""
    command = [sys.executable, "-m", "vcd", *arguments]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def lines(shown: str) -> list[str]:
    """The lines of a terminal without their colours."""
    return [line.rstrip() for line in STYLE.sub("", shown).splitlines()]


@pytest.fixture
async def busy(tmp_path: Path) -> Path:
    """A log of eight sessions."""
    await write_busy_history(tmp_path / "busy.log")
    return tmp_path / "busy.log"


@pytest.mark.parametrize("columns", [60, 100])
def test_nothing_is_wider_than_the_terminal(busy: Path, columns: int) -> None:
    log = ("--event-log", str(busy))
    asked = (("explain", "job", "large", *log), ("explain", "order", *log, "--session", "7"), ("top", "--once", *log))
    for arguments in (PLAN, ("conf", "show"), ("log", "ls", str(busy)), *asked):
        shown = lines(on_terminal(arguments, columns))
        assert (max(map(len, shown)) <= columns, len(shown) > 2) == (True, True), shown


def test_the_variable_names_the_columns_of_a_terminal() -> None:
    assert max(map(len, lines(on_terminal(PLAN, 200, COLUMNS="70")))) <= 70 < max(map(len, lines(piped(PLAN))))


def test_a_sentence_goes_on_below_where_its_text_began(busy: Path) -> None:
    shown = lines(on_terminal(("explain", "job", "large", "--event-log", str(busy)), 100))
    (first,) = (place for place, line in enumerate(shown) if "waited 10 min at enqueue" in line)
    assert shown[first + 1].index(shown[first + 1].strip()) == shown[first].index("waited 10 min")
    whole = piped(("explain", "job", "large", "--event-log", str(busy)))
    assert " ".join(" ".join(shown).split()) == " ".join(whole.split())


def test_a_pipe_gets_whole_lines_without_colour_or_lines_around_cells(busy: Path) -> None:
    for arguments in (PLAN, ("conf", "show"), ("top", "--event-log", str(busy))):
        narrow = piped(arguments, COLUMNS="40", FORCE_COLOR="1")
        assert STYLE.search(narrow) is None
        assert not set(narrow) & set("┃─━┏┓…")
        assert [line for line in narrow.splitlines() if line != line.rstrip()] == []
        assert len(narrow.splitlines()) == len(piped(arguments, COLUMNS="400").splitlines())
    assert STYLE.search(on_terminal(PLAN, 100)) is not None
