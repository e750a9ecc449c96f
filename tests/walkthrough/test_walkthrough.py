"""The pages of docs/howto: each command is run on the logs of examples/nights, and prints what the page says."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.walkthrough.nights import NIGHTS
from vcd.cli import main

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "docs" / "howto" / f"{name}.md" for name in ("explain", "whatif", "gate", "replay")]
EXAMPLES = ROOT / "examples" / "nights"


def steps() -> list[tuple[str, list[str], int]]:
    """Return the commands of the pages, each with its output and its exit code: 0, or the output of ``echo $?``."""
    found: list[tuple[str, list[str], int]] = []
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    for block in re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line.removeprefix("$ "), [], 0))
            else:
                found[-1][1].append(line)
        if found[-1][0] == "echo $?":
            _, (code,), _ = found.pop()
            found[-1] = (*found[-1][:2], int(code))
    return found


def departure(shown: list[str], printed: list[str]) -> str | None:
    """The first shown line that is not printed where it should be; ``...`` stands for lines, or for a line's end."""
    at, may_skip = 0, False
    for line in shown:
        if line.strip() == "...":
            may_skip = True
            continue
        start = line.removesuffix(" ...").rstrip() if line.endswith(" ...") else None
        places = range(at, len(printed)) if may_skip else range(at, min(at + 1, len(printed)))
        for place in places:
            if printed[place].rstrip() == line.rstrip() or (start and printed[place].startswith(start)):
                at, may_skip = place + 1, False
                break
        else:
            return line
    return None if may_skip or at == len(printed) else f"(nothing more) but there is: {printed[at]}"


@pytest.fixture
def night(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the logs, to be in."""
    for file in EXAMPLES.iterdir():
        shutil.copy(file, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


@pytest.mark.usefixtures("night")
@pytest.mark.parametrize(("command", "shown", "code"), steps(), ids=[command for command, _, _ in steps()])
def test_a_step_prints_what_its_page_says(command: str, shown: list[str], code: int) -> None:
    program, *arguments = shlex.split(command)
    assert program == "vcd"
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == code, result.output
    assert departure(shown, result.stdout.splitlines()) is None, result.stdout


def test_the_pages_have_a_step_for_each_kind_of_question() -> None:
    commands = " ".join(command for command, _, _ in steps())
    for words in (
        "explain job",
        "--change",
        "explain order",
        "explain session",
        "explain queue",
        "explain eviction",
        "gate",
    ):
        assert words in commands
    assert {f"{name}.sqlite" for name in NIGHTS} == {file.name for file in EXAMPLES.glob("*.sqlite")}


@pytest.mark.parametrize(
    ("shown", "printed", "is_so"),
    [
        (["a", "b"], ["a", "b"], True),
        (["a"], ["a", "b"], False),
        (["a", "..."], ["a", "b"], True),
        (["b"], ["a", "b"], False),
        (["...", "b"], ["a", "b"], True),
        (["a ..."], ["a and so on"], True),
        (["...", "c"], ["a", "b"], False),
    ],
)
def test_lines_are_compared_one_by_one(shown: list[str], printed: list[str], is_so: bool) -> None:
    assert (departure(shown, printed) is None) is is_so
