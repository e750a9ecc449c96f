"""``vcd top``: what a frame shows, worked out by hand, and how frames follow a log that is written."""

from __future__ import annotations

import asyncio
import json
from io import StringIO
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from rich.console import Console, RenderableType

from tests import dsl
from tests.cli.results import without_defect
from tests.timetravel.histories import CONF, START, scheduler
from tests.timetravel.test_log_upgrade import make_older
from vcd.cli import main
from vcd.cli.top import frame, live
from vcd.timetravel.history import opened
from vcd.timetravel.overview import glances

SECOND = 1_000_000_000


def run(*arguments: object) -> Result:
    """Run ``vcd top``; a traceback fails the test."""
    result = CliRunner().invoke(main, ["top", *map(str, arguments)])
    return without_defect(result)


def row(text: str, *begin: str) -> list[str]:
    """The cells of the one line that begins with some cells."""
    (found,) = [line.split() for line in text.splitlines() if line.split()[: len(begin)] == list(begin)]
    return found


@pytest.fixture
async def log(tmp_path: Path) -> Path:
    """Two nodes of 8 and 4 cpu; queue wide has 6 of them allocated of a capability of 12, and a gang of 3 x 4 waits
    since the first second, one of 9 since the second one."""
    path = tmp_path / "events.log"
    async with scheduler(path, CONF.replace("enqueue, ", "")) as made:
        lost = {"conditions": [{"type": "Ready", "status": "False"}]}
        await made.show(
            dsl.node("n1", cpu=8),
            dsl.node("n2", cpu=4, status=lost),
            dsl.queue("wide", capability={"cpu": "12"}),
            dsl.queue("shut", state="Closed"),
            dsl.gang("runs", 1, cpu=6, memory=1, queue="wide", on=["n1"], phase="Running"),
            dsl.gang("newer", 1, cpu=9, memory=1, queue="wide", created=2),
            dsl.gang("older", 3, cpu=4, memory=1, queue="wide", created=1),
        )
        made.clock.now += 100 * SECOND
        await made.cycle(seconds=20)
        await made.show(dsl.gang("newest", 1, cpu=9, queue="wide", created=110))
        await made.cycle()
    return path


SCREEN = """\
12 cpu: 6 used, 6 free   memory 1Gi/64Gi
1/2 nodes   free cpu per node: 2: n1
Not ready: n2
3 jobs waiting, 1 running

QUEUE                           USED/DESERVED/REQUESTED  LIMIT  OLDEST WAIT
wide          ████████░░░░░░░│  6/12/36 cpu              12     1 min 59 s
1 idle queue

WAITING         NEEDS      SINCE       WHY
default/older   3 x 4 cpu  1 min 59 s  cluster full: 6 of 12 cpu free
default/newer   1 x 9 cpu  1 min 58 s  never: the largest node has 8 cpu
default/newest  1 x 9 cpu  10 s        never: the largest node has 8 cpu
"""


def test_a_screen_shows_capacity_queues_and_the_job_that_waits_longest_first(log: Path) -> None:
    first, rest = run("--event-log", log, "--once").stdout.split("\n", 1)
    assert first.startswith("events.log: session 2 at 00:02:00, last event ")
    assert rest == SCREEN
    assert max(map(len, rest.splitlines())) <= 80


async def test_nothing_is_younger_than_new(tmp_path: Path) -> None:
    """The API server's clock may be ahead of the scheduler's, and both of this one's."""
    async with scheduler(tmp_path / "log") as made:
        await made.show(dsl.queue("default"), dsl.node("n1", cpu=1), dsl.gang("a", 1, cpu=2, created=7))
        await made.cycle(seconds=0)
        with opened(tmp_path / "log") as history:
            screen = Console(file=StringIO(), width=200)
            screen.print(frame("log", next(glances(history)), made.clock.now - 90 * SECOND))
    text = screen.file.getvalue()  # type: ignore[attr-defined]
    assert text.splitlines()[0].endswith("last event 1 min 30 s ahead of this clock")
    assert " ".join(row(text, "default/a")) == "default/a 1 x 2 cpu 0 s never: the largest node has 1 cpu"


def test_json_is_the_whole_frame(log: Path) -> None:
    found = json.loads(run("--event-log", log, "-o", "json").stdout)
    assert (found["session"], found["rate"], found["time"]) == (2, 3.0, START + 120 * SECOND)
    assert [node["name"] for node in found["overview"]["nodes"]] == ["n1", "n2"]


async def test_a_long_list_is_cut_and_says_so(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log") as made:
        await made.show(dsl.queue("default"), dsl.node("n1"), *(dsl.gang(f"a{i:02}", 1, cpu=9) for i in range(23)))
        await made.cycle()
    lines = [line.strip() for line in run("--event-log", tmp_path / "log").stdout.splitlines()]
    assert [lines[-2].split()[0], lines[-1]] == ["default/a19", "... and 3 more"]


async def test_a_gang_that_lost_a_pod_counts_as_waiting(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log") as made:
        await made.show(dsl.node("n"), dsl.queue("default"), dsl.gang("g", 2, cpu=1, phase="Running", on=["n", "n"]))
        await made.delete("Pod", "default/g-1")
        await made.cycle()
    assert "1 job waiting, 0 running" in run("--event-log", tmp_path / "log").stdout


async def test_a_log_without_sessions_is_shown(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log"):
        pass
    result = run("--event-log", tmp_path / "log")
    assert (result.exit_code, result.stdout.startswith("log: no session yet, 2 events, last event ")) == (0, True)


async def test_frames_follow_a_log_that_is_written_until_ctrl_c(tmp_path: Path) -> None:
    screen = Console(file=StringIO(), force_terminal=True, width=160, height=40)
    seen: list[int] = []
    async with scheduler(tmp_path / "log") as made:
        await made.show(dsl.queue("default"), dsl.node("n1"))
        loop = asyncio.get_running_loop()

        def wait() -> None:
            if len(seen) == 3:
                raise KeyboardInterrupt
            asyncio.run_coroutine_threadsafe(decide(), loop).result()

        async def decide() -> None:
            await made.show(dsl.gang(f"job-{len(seen)}", 1, cpu=1))
            await made.cycle()

        def watch() -> None:
            with opened(tmp_path / "log") as history:
                found = glances(history)

                def look() -> RenderableType:
                    glance = next(found)
                    seen.append(glance.session)
                    return frame("log", glance, made.clock.now)

                live(screen, look, wait)

        await asyncio.to_thread(watch)
    assert seen == [0, 1, 2]
    assert "session 2 at" in screen.file.getvalue()  # type: ignore[attr-defined]


def test_a_file_of_an_older_vcd_is_shown_from_a_copy(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_older(log, monkeypatch)
    result = run("--event-log", log)
    assert (result.exit_code, "written by an older vcd" in result.stderr) == (0, True)
    assert result.stdout.startswith("events.log: session 2 ")


@pytest.mark.parametrize("options", [("--interval", "0"), ("--interval", "soon"), ("--interval", "1e300")])
def test_a_bad_interval_exits_with_2(log: Path, options: tuple[str, ...]) -> None:
    assert run("--event-log", log, *options).exit_code == 2


def test_a_file_that_cannot_be_used_exits_with_2(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello " * 1000)
    for name, message in (("text", "it is not a vcd log"), ("none", "there is no such file")):
        result = run("--event-log", tmp_path / name)
        assert (result.exit_code, message in result.stderr) == (2, True)
