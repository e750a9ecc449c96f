"""``vcd whatif`` and ``vcd sweep``: what they ask for, print and refuse."""

from __future__ import annotations

import asyncio
import errno
import json
from pathlib import Path

import pytest
import yaml

from tests import dsl
from tests.cli.results import run_vcd as run
from tests.timetravel.plays import CONF, Work, play
from vcd.timetravel.whatif import sweep as sweeps


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """On one node of 2 cpu, ``late`` waits 20 s for ``early``."""
    path = tmp_path_factory.mktemp("log") / "events.sqlite"
    work = [Work("early", 0, 30, cpu=2), Work("late", 10, 20, cpu=2)]
    asyncio.run(play(path, [dsl.node("n", cpu=2)], work, seconds=55))
    return path


BETTER = """\
node/n.status.allocatable.cpu=4: 0 of 2 jobs wait longer, 1 shorter

                       BEFORE  AFTER
jobs started           2 of 2  2 of 2
wait, median           10 s    0 s
wait, 95 in 100 under  19 s    0 s
wait, longest          20 s    0 s
wait, mean             10 s    0 s
evictions              0       0
cpu in use             100.0%  50.0%

Baseline   reproduces the record: 2 of 2 jobs that started in the log start again
           their mean wait is 10 s, in the log 10 s
Run times  in the log, for all of 2 pods
"""
WORSE = """\
node/n.status.allocatable.cpu=1: 2 of 2 jobs wait longer, 0 shorter

                       BEFORE  AFTER
jobs started           2 of 2  0 of 2
wait, median           10 s    never
wait, 95 in 100 under  19 s    never
wait, longest          20 s    never
wait, mean             10 s    never
evictions              0       0
cpu in use             100.0%  0.0%

WAITS LONGER   QUEUE    BEFORE  AFTER  WHY
default/early  default  0 s     never  never: the largest node has 1 cpu
default/late   default  20 s    never  never: the largest node has 1 cpu

Baseline   reproduces the record: 2 of 2 jobs that started in the log start again
           their mean wait is 10 s, in the log 10 s
Run times  in the log, for all of 2 pods
"""


@pytest.mark.parametrize(("cpu", "screen"), [(4, BETTER), (1, WORSE)])
def test_the_answer_a_table_of_both_who_waits_longer_and_what_it_rests_on(log: Path, cpu: int, screen: str) -> None:
    result = run("whatif", "--event-log", log, "--set", f"node/n.status.allocatable.cpu={cpu}")
    assert (result.exit_code, result.stdout) == (0, screen)


def test_all_has_a_column_for_each_run_and_the_jobs_that_change(log: Path) -> None:
    result = run("whatif", "--event-log", log, "--set", "node/n.status.allocatable.cpu=4", "--all")
    assert result.stdout.startswith(BETTER)
    detail = result.stdout.removeprefix(BETTER)
    assert "  wait, 95 in 100 under                19 s       19 s" in detail
    assert "  default/late (queue default): 20 s -> 0 s" in detail


def test_json_holds_each_job(log: Path, tmp_path: Path) -> None:
    more = tmp_path / "more.yaml"
    more.write_text(yaml.safe_dump(dsl.node("m", cpu=2)))
    found = json.loads(run("whatif", "--event-log", log, "--add", more, "-o", "json").stdout)
    assert [each["name"] for each in found["runs"]] == ["recorded", "baseline", "changed"]
    assert [each["jobs"]["default/late"][1] for each in found["runs"]] == [20, 20, 0]
    assert found["effects"] == [{"run": "changed", "shorter": 1, "longer": 0, "worst": []}]


@pytest.mark.parametrize("command", [("whatif",), ("sweep", "--jobs", 1)], ids=lambda command: command[0])
def test_what_is_not_added_is_named(log: Path, tmp_path: Path, command: tuple[object, ...]) -> None:
    more = tmp_path / "more.yaml"
    unknown = {"kind": "Widget", "apiVersion": "x.io/v1", "metadata": {"name": "w"}}
    more.write_text(yaml.safe_dump_all([dsl.node("m", cpu=2), unknown]))
    asked = (*command, "--event-log", log, "--add", more)
    for strict, code in ((), 0), (("--strict",), 1):
        result = run(*asked, *strict)
        assert (result.exit_code, "Widget of API group x.io is not understood" in result.stderr) == (code, True)
    more.write_text(yaml.safe_dump_all([dsl.node("m", cpu=2), dsl.pod("p")]))
    result = run(*asked)
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (1, WORK_ADDED)


WORK_ADDED = "refused: workloads cannot be added to the cluster: Pod default/p; forecast them with --submit"


def test_another_configuration_names_its_run(log: Path, tmp_path: Path) -> None:
    conf = tmp_path / "other.conf"
    conf.write_text(CONF)
    result = run("whatif", "--event-log", log, "--scheduler-conf", conf)
    assert result.exit_code == 0, result.output
    assert "other.conf" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "no change: give"),
        (("--seed", "1", "--period", "inf"), "inf is not in the range 0.001<=x<=86400"),
        (("--seed", "1", "--period", "nan"), "'nan' is not a finite number"),
        (("--set", "queue/x.spec.weight=2"), "there is no Queue x"),
        (("--without", "node"), "write it like node/gpu-7"),
        (("--session", "3", "--without", "node/n"), "--session is for --submit"),
        (("--submit", "-", "--without", "node/n"), "omit --submit"),
        (("--seed", "1", "--run", "30m"), "--samples and --run are for --submit"),
        (("--submit", "-", "--run", "soon"), "write one such as 90m"),
        (("--submit", "-", "--run", "0s"), "is not a duration"),
        (("--submit", "-", "--samples", str(10**20)), "is not in the range 1<=x<=10000"),
        (("--scheduler-conf", "nowhere.conf"), "nowhere.conf: No such file"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_a_line(log: Path, arguments: tuple[str, ...], words: str) -> None:
    result = run("whatif", "--event-log", log, *arguments)
    assert result.exit_code == 2
    assert words in " ".join(result.stderr.split())


def test_what_goes_at_once_is_the_first_line(log: Path, tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(yaml.safe_dump(dsl.pod("new", cpu=1)))
    result = run("whatif", "--event-log", log, "--submit", job)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("job default/new starts at once: new to n\nas of ")
    found = json.loads(run("whatif", "--event-log", log, "--submit", job, "--run", "90s", "-o", "json").stdout)
    (job_found,) = found["jobs"]
    assert (found["samples"], job_found["runs_for"]["median"]) == (20, 90_000_000_000)
    assert job_found["ends"]["median"] - found["now"] == 90_000_000_000


def test_exit_codes_of_a_submission(log: Path, tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    lost, thing = dsl.pod("lost", group="gone"), {"apiVersion": "x.com/v1", "kind": "Thing", "metadata": {"name": "a"}}
    for objects, strict, code, words in (
        ([dsl.pod("new", cpu=1), thing], (), 0, "warning: Thing of API group x.com"),
        ([dsl.pod("new", cpu=1), thing], ("--strict",), 1, "error: Thing of API group x.com"),
        ([dsl.pod("new", cpu=1), lost], (), 1, "refused: there is no PodGroup default/gone"),
        ([lost], (), 2, "refused: there is no PodGroup default/gone"),
        ([lost], (), 2, "Error: the submitted manifests have no pod"),
        ([thing], ("--strict",), 2, "error: Thing of API group x.com"),
    ):
        job.write_text(yaml.safe_dump_all(objects))
        result = run("whatif", "--event-log", log, "--submit", job, *strict)
        assert (result.exit_code, words in result.stderr) == (code, True), result.output


def test_a_bad_configuration_is_told_line_by_line(log: Path, tmp_path: Path) -> None:
    conf = tmp_path / "bad.conf"
    conf.write_text("actions: allocat\n")
    for command in ("whatif", "sweep"):
        result = run(command, "--event-log", log, "--scheduler-conf", conf)
        assert result.exit_code == 2
        assert "bad.conf:1: error:" in result.stderr


def test_a_sweep_has_a_column_for_each_configuration_and_seed(log: Path, tmp_path: Path) -> None:
    conf = tmp_path / "same.conf"
    conf.write_text(CONF)
    result = run("sweep", "--event-log", log, "--scheduler-conf", conf, "--seeds", "0-1", "--jobs", 1)
    assert result.exit_code == 0, result.output
    assert "same.conf seed 0" in result.stdout
    assert "same.conf seed 1" in result.stdout


def test_configurations_of_one_name_are_told_apart_by_as_much_of_their_paths_as_it_takes(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = ["a/prod/s.conf", "a/pr/s.conf", "b/pr/s.conf", "s.conf", "other/t.conf"]
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(CONF)
    monkeypatch.chdir(tmp_path)
    confs = [word for file in files for word in ("--scheduler-conf", file)]
    found = json.loads(run("sweep", "--event-log", log, *confs, "--jobs", 1, "-o", "json").stdout)
    names = [one["name"] for one in found["runs"]]
    assert names == ["prod/s.conf", "a/pr/s.conf", "b/pr/s.conf", "s.conf", "t.conf"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--seeds", "3-1"), "write one like 3 or 0-9"),
        (("--seeds", "x"), "write one like 3 or 0-9"),
        (("--seeds", f"5-{10**20}"), "at most 10,000 seeds"),
        (("--seeds", f"{10**20}"), "at most 10,000 seeds"),
        (("--period", "1e300"), "is not in the range"),
        (("--jobs", str(10**20)), "is not in the range 1<=x<=10000"),
    ],
)
def test_a_sweep_that_cannot_be(log: Path, arguments: tuple[str, ...], words: str) -> None:
    result = run("sweep", "--event-log", log, *arguments)
    assert result.exit_code == 2
    assert words in result.stderr


def test_a_sweep_reports_what_the_machine_refuses(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(sweeps, "processes", refused)
    result = run("sweep", "--event-log", log)
    assert (result.exit_code, result.stderr) == (2, "Error: Too many open files\n")
