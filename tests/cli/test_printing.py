"""How commands print: within a terminal's width, and plain and whole where there is none."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

import pytest

from tests import dsl
from tests.e2e import processes
from tests.timetravel.histories import scheduler, write_busy_history
from tests.waiting import WAIT_LIMIT

ROOT = Path(__file__).parents[2]
PLAN = ("plan", "-f", "examples/gang.yaml")
STYLE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def on_terminal(arguments: tuple[str, ...], columns: int, code: int = 0, **environment: str) -> str:
    """What ``vcd``, which exits with ``code``, writes to a terminal of so many columns, with the escapes that colour
    it."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    known = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    with os.fdopen(theirs, "wb", buffering=0) as terminal, Path(os.devnull).open("wb") as nowhere:
        given = {**known, "TERM": "xterm", **environment}
        process = processes.start("vcd.cli:main", arguments, stdout=terminal, stderr=nowhere, environment=given)
    written = b""
    while piece := _read(ours):
        written += piece
    os.close(ours)
    assert process.wait(WAIT_LIMIT) == code, written
    return written.decode()


def lines_on_terminal(arguments: tuple[str, ...], columns: int, code: int = 0) -> list[str]:
    """The same without escapes; no line is wider than the terminal."""
    lines = STYLE.sub("", on_terminal(arguments, columns, code)).replace("\r", "").splitlines()
    assert [line for line in lines if len(line) > columns] == []
    return lines


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # how Linux says that nobody has the other end any more
        return b""


def piped(arguments: tuple[str, ...], **environment: str) -> str:
    """What ``vcd`` writes to what is no terminal."""
    with tempfile.TemporaryDirectory() as folder:
        done = processes.run("vcd.cli:main", arguments, Path(folder), {**os.environ, **environment}, WAIT_LIMIT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def lines(shown: str) -> list[str]:
    """The lines of a terminal without their colours."""
    return [line.rstrip() for line in STYLE.sub("", shown).splitlines()]


@pytest.mark.parametrize("columns", [60, 100])
def test_nothing_is_wider_than_the_terminal(busy: Path, columns: int) -> None:
    log = ("--event-log", str(busy))
    asked = (("explain", "job", "large", *log), ("explain", "order", *log, "--session", "7"), ("top", "--once", *log))
    for arguments in (PLAN, ("conf", "show"), ("log", "ls", str(busy)), ("jobs", str(busy)), *asked):
        shown = lines(on_terminal(arguments, columns))
        assert (max(map(len, shown)) <= columns, len(shown) > 2) == (True, True), shown


def test_the_variable_names_the_columns_of_a_terminal(busy: Path) -> None:
    asked = ("explain", "job", "large", "--event-log", str(busy))
    assert max(map(len, lines(on_terminal(asked, 200, COLUMNS="70")))) <= 70 < max(map(len, lines(piped(asked))))


def test_a_terminal_of_which_nobody_said_how_wide_it_is_has_80_columns(busy: Path) -> None:
    for arguments in (PLAN, ("log", "ls", str(busy))):
        assert on_terminal(arguments, 0) == on_terminal(arguments, 80) == on_terminal(arguments, 80, COLUMNS="wide")


def test_notes_are_told_on_a_terminal_of_which_nobody_said_how_wide_it_is() -> None:
    ours, theirs = pty.openpty()
    known = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    program = "from vcd.cli.printing import print_lines; print_lines(['a note ' * 30], err=True)"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=known, stderr=theirs, check=True)
    os.close(theirs)
    assert max(map(len, os.read(ours, 65536).decode().splitlines())) <= 80
    os.close(ours)


def test_of_many_rows_those_after_the_first_follow_as_they_come() -> None:
    program = (
        "import sys; from vcd.cli.printing import print_rows\n"
        "def rows():\n"
        "    for number in range(3000):\n"
        "        print(number, file=sys.stderr) if number == 2500 else None\n"
        "        yield str(number), 'x' * (number % 7), 'end'\n"
        "print_rows(('number', 'name', 'last'), rows())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    shown = done.stdout.splitlines()
    assert len(shown) == 3001
    assert {line.index("last" if place == 0 else "end") for place, line in enumerate(shown)} == {16}
    assert [line.split()[0] for line in shown[1:]] == [str(number) for number in range(3000)]
    mixed = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    )
    said = mixed.stdout.splitlines()
    assert 1000 < said.index("2500") < 3000  # what comes before it is written already


def test_what_an_encoding_cannot_write_is_told_in_letters(busy: Path) -> None:
    command = [sys.executable, "-m", "vcd", "top", "--once", "--event-log", str(busy)]
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert "\\u2588" in done.stdout


def test_a_file_whose_name_is_no_text_is_read(busy: Path) -> None:
    named = busy.parent / os.fsdecode(b"\xff.sqlite")
    busy.rename(named)
    for arguments in (("log", "verify"), ("top", "--once"), ("replay",)):
        told = piped((*arguments, str(named)))
        assert "\\udcff.sqlite" in told or arguments == ("replay",)
    for arguments in (("log", "verify"), ("replay",)):
        told = json.loads(piped((*arguments, str(named), "-o", "json")))
        assert told["file"] == f"{named.parent}/\\udcff.sqlite"


def test_a_sentence_goes_on_below_where_its_text_began(busy: Path) -> None:
    shown = lines(on_terminal(("explain", "job", "large", "--all", "--event-log", str(busy)), 100))
    (first,) = (place for place, line in enumerate(shown) if "waited 10 min at enqueue" in line)
    assert shown[first + 1].index(shown[first + 1].strip()) == shown[first].index("waited 10 min")
    whole = piped(("explain", "job", "large", "--all", "--event-log", str(busy)))
    assert " ".join(" ".join(shown).split()) == " ".join(whole.split())


def test_a_pipe_gets_whole_lines_without_colour_or_lines_around_cells(busy: Path) -> None:
    for arguments in (PLAN, ("conf", "show"), ("top", "--event-log", str(busy))):
        narrow = piped(arguments, COLUMNS="40", FORCE_COLOR="1")
        assert STYLE.search(narrow) is None
        assert not set(narrow) & set("┃─━┏┓…")
        assert [line for line in narrow.splitlines() if line != line.rstrip()] == []
        assert len(narrow.splitlines()) == len(piped(arguments, COLUMNS="400").splitlines())
    assert STYLE.search(on_terminal(PLAN, 100)) is not None


@pytest.mark.parametrize("columns", [60, 80])
def test_what_is_wrong_with_a_configuration_is_broken_between_words(columns: int, tmp_path: Path) -> None:
    conf = tmp_path / "bad.conf"
    conf.write_text("actions: allocat\ntiers:\n- plugins:\n  - {name: gnag}\n  - {name: gang, arguments: {x: 1}}\n")
    lines = lines_on_terminal(("conf", "check", str(conf)), columns, code=1)
    told = " ".join(lines)
    assert len(lines) > 4
    assert 'error: tiers[0].plugins[0].name: "gnag": there is no plugin gnag; did you mean gang?' in told


@pytest.mark.parametrize("columns", [60, 80, 140])
@pytest.mark.parametrize("words", [(), ("--sessions",)])
async def test_no_time_of_a_log_is_cut(columns: int, words: tuple[str, ...], tmp_path: Path) -> None:
    await write_busy_history(tmp_path / "busy.sqlite")
    told = "\n".join(lines_on_terminal(("log", "ls", str(tmp_path / "busy.sqlite"), *words), columns))
    times = re.findall(r"2026-\S*", told)
    assert len(times) > 5
    assert [time for time in times if not re.fullmatch(r"2026-01-01T\d\d:\d\d:\d\d\.\d{6}Z", time)] == []
    assert "…" not in told


@pytest.mark.parametrize("columns", [60, 80])
async def test_runs_side_by_side_are_within_the_terminal(columns: int, tmp_path: Path) -> None:
    await write_busy_history(tmp_path / "busy.sqlite")
    words = (str(tmp_path / "busy.sqlite"), "--set", "queue/small.spec.capability.cpu=4")
    lines = lines_on_terminal(("whatif", *words), columns)
    assert lines[0].startswith("queue/small.spec.capability.cpu=4: ")
    assert any(line.startswith("wait, 95 in 100 under") for line in lines)


@pytest.mark.parametrize("queue", ["a\x1b[2J\x1b]0;b\x07", "a\nb is sound", "a[/b]", "a[bold]b"])
async def test_what_somebody_named_is_shown_as_letters(queue: str, tmp_path: Path) -> None:
    """No API server checks what a PodGroup says of its queue."""
    path = tmp_path / "named.log"
    async with scheduler(path) as made:
        await made.show(dsl.node("n"), dsl.queue("default"), dsl.gang("train", 1, queue=queue, phase="Pending", cpu=1))
        await made.cycle()
        await made.cycle()
    said = queue.replace("\x1b", r"\x1b").replace("\x07", r"\x07").replace("\n", r"\n")
    log = ("--event-log", str(path))
    for arguments in (
        ("explain", "job", "train"),
        ("explain",),
        ("top", "--once"),
        ("log", "ls"),
        ("whatif", "--seed=1", "--all"),
    ):
        shown = STYLE.sub("", on_terminal((*arguments, *log), 400))
        assert not set(shown) & {"\x1b", "\x07"}, shown
        assert arguments[0] == "log" or said in shown, shown
    assert f"queue {said} does not exist" in piped(("top", *log))


def test_without_a_standard_output_nothing_is_told_and_nothing_fails(busy: Path) -> None:
    for arguments in (("explain",), ("explain", "order"), ("top",), ("log", "ls")):
        command = [sys.executable, "-m", "vcd", *arguments, "--event-log", str(busy)]
        done = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", *command], cwd=ROOT, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, ""), arguments
