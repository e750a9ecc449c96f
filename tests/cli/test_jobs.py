"""``vcd jobs``: a job in each state, the filters, and the forms of the output."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests import dsl
from tests.cli.results import run_vcd, without_defect
from tests.timetravel.histories import CONF, scheduler
from vcd.cli.kubectl import kubectl_vcd

run = partial(run_vcd, "jobs")

ML, VISION = ({"namespace": name, "group_spec": {"namespace": name}} for name in ("ml", "vision"))
OWNER = {"kind": "Job", "name": "train", "controller": True}


def table(result: Result) -> dict[str, list[str]]:
    """The cells of each row but the first, by the first column. Cells are two spaces apart."""
    head, *lines = (" | ".join(line.split("  ")).split(" | ") for line in result.stdout.splitlines())
    rows = [[cell.strip() for cell in line if cell.strip()] for line in lines]
    return {"": [cell.strip() for cell in head if cell.strip()], **{row[0]: row for row in rows}}


@pytest.fixture
async def log(tmp_path: Path) -> Path:
    """Three nodes with 4 GPUs in all, and 60 s after the first second a job in each state."""
    path = tmp_path / "events.log"
    train = [*dsl.gang("train-0123", 2, cpu=1, gpu=4, **ML, queue="research", created=1)]
    train[0]["metadata"]["ownerReferences"] = [OWNER]
    async with scheduler(path, CONF.replace("enqueue, ", "")) as made:
        await made.show(
            dsl.node("gpu-0", gpu=4),
            dsl.node("n1"),
            dsl.node("n2"),
            dsl.queue("default"),
            dsl.queue("research"),
            train,
            dsl.gang("runs", 2, cpu=2, on=["n1", "n2"], phase="Running", **VISION),
            dsl.gang("starts", 1, cpu=1, created=30, **VISION),
            dsl.gang("elastic", 2, members=1, gpu=3, created=50, queue="research", **ML),
            dsl.group("empty", members=2, created=1),
            dsl.group("done", phase="Completed"),
            dsl.group("retried", phase="Running"),
            dsl.pod("retried-0", group="retried", on="n1", phase="Failed"),
            dsl.pod("retried-1", group="retried", on="n1", phase="Succeeded"),
            dsl.group("broken", phase="Running"),
            dsl.pod("broken-0", group="broken", on="n1", phase="Failed"),
            dsl.group("ends", phase="Running"),
            dsl.pod("ends-0", group="ends", on="n1", deleting=True),
        )
        made.clock.now += 61_000_000_000
        await made.cycle()
    return path


async def test_a_group_without_min_member_waits_though_its_phase_is_completed(tmp_path: Path) -> None:
    """As in Volcano: no pod is too few for a minimum of 0, and all placed pods succeeded, as there is none."""
    path = tmp_path / "events.log"
    async with scheduler(path, CONF) as made:
        await made.show(dsl.node("n", cpu=1), dsl.queue("default"), dsl.gang("g", 1, members=0, cpu=2))
        await made.carry_out(await made.cycle())
        assert made.last_shown("PodGroup", "default/g")["status"]["phase"] == "Completed"
    row = table(run("--event-log", path))["default/g"]
    assert row[1:] == ["waiting", "default", "1 x 2 cpu", "1 s", "never: the largest node has 1 cpu"]


async def test_a_gang_that_lost_a_pod_waits_for_it(tmp_path: Path) -> None:
    """It was listed as running, with a reason to wait; `vcd explain job` said that it waits."""
    path = tmp_path / "events.log"
    async with scheduler(path, CONF) as made:
        await made.show(dsl.node("n"), dsl.queue("default"), dsl.gang("g", 2, cpu=1, phase="Running", on=["n", "n"]))
        await made.delete("Pod", "default/g-1")
        await made.cycle()
    assert table(run("--event-log", path))["default/g"][1] == "waiting"


def test_each_job_has_its_state_and_why_it_waits(log: Path) -> None:
    found = table(run("--event-log", log))
    assert found.pop("") == ["JOB", "STATE", "QUEUE", "NEEDS", "AGE", "WHY"]
    assert {job: row[1] for job, row in found.items()} == {
        "default/broken": "failed",
        "default/done": "completed",
        "default/empty": "waiting",
        "default/ends": "terminating",
        "default/retried": "completed",
        "ml/elastic": "partial",
        "ml/train": "waiting",
        "vision/runs": "running",
        "vision/starts": "starting",
    }
    assert found["ml/train"][2:] == ["research", "2 x 4 GPU", "1 min", "never: all nodes together have 4 GPU"]
    assert found["ml/elastic"][2:] == ["research", "1 x 3 GPU", "11 s", "cluster full: 1 of 4 GPU free"]
    assert found["default/empty"][-1] == "0 of 2 pods exist"
    assert found["vision/runs"][2:] == ["default", "2 x 2 cpu", "1 min 1 s"]


def test_wide_adds_the_owner_and_the_nodes(log: Path) -> None:
    found = table(run("--event-log", log, "-o", "wide"))
    assert found[""][3:7] == ["OWNER", "PRIORITY", "MIN", "PODS"]
    assert found["ml/train"][3:] == [
        *("Job", "0", "2", "0 of 2", "2 x 4 GPU", "1 min", "train-0123"),
        "never: all nodes together have 4 GPU",
    ]
    assert found["vision/runs"][-1] == "n1, n2"


@pytest.mark.parametrize(
    ("options", "jobs"),
    [
        (("-n", "ml"), ["ml/elastic", "ml/train"]),
        (("--queue", "research", "--state", "waiting"), ["ml/train"]),
        (("--cause", "cluster-full"), ["ml/elastic", "ml/train"]),
    ],
)
def test_filters_hold_together_and_names_are_one_a_line(log: Path, options: tuple[str, ...], jobs: list[str]) -> None:
    assert run("--event-log", log, "-o", "name", *options).stdout.split() == jobs


def test_the_namespace_that_kubectl_is_given_is_a_filter(log: Path) -> None:
    result = CliRunner().invoke(kubectl_vcd, ["-n", "ml", "jobs", "--event-log", str(log), "-o", "name"])
    assert without_defect(result).stdout.split() == ["ml/elastic", "ml/train"]


def test_json_has_the_diagnosis_in_flat_fields(log: Path) -> None:
    found = json.loads(run("--event-log", log, "-o", "json", "-n", "ml", "--state", "waiting").stdout)
    (job,) = found["jobs"]
    ended = json.loads(run("--event-log", log, "-o", "json", "--state", "completed").stdout)["jobs"]
    assert (found["kind"], found["session"]) == ("Jobs", 1)
    assert (job["name"], job["group"], job["cause"], job["age"]) == ("train", "train-0123", "cluster-full", 60)
    assert (job["waited"], [one["waited"] for one in ended]) == (60, [None, None])
    assert job["text"] == "it needs 8 GPU, and all nodes together have 4"


def test_a_row_has_at_most_100_columns(log: Path) -> None:
    lines = run("--event-log", log).stdout.splitlines()
    assert max(map(len, lines)) <= 100


async def test_a_long_reason_is_cut_unless_the_output_is_wide(tmp_path: Path) -> None:
    label = {"nodeSelector": {"example.com/accelerator-generation": "hopper-next"}}
    async with scheduler(tmp_path / "log", CONF + "  - name: predicates\n") as made:
        await made.show(dsl.queue("default"), dsl.node("n1"), dsl.gang("a" * 30, 1, cpu=1, spec=label))
        await made.cycle()
        await made.cycle()
    (row,), (wide,) = (
        run("--event-log", tmp_path / "log", *more).stdout.splitlines()[1:] for more in ((), ("-o", "wide"))
    )
    assert (len(row), row.endswith("...")) == (100, True)
    assert "example.com/accelerator-generation=hopper-next" in wide


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("--queue", "resaerch"), "no job has queue resaerch; did you mean research?"),
        (("-n", "vision", "--queue", "research"), "no job has all of these"),
    ],
)
def test_an_empty_list_says_so_in_one_line(log: Path, options: tuple[str, ...], line: str) -> None:
    result = run("--event-log", log, *options)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", f"{log}: {line}\n")


async def test_a_log_without_sessions_or_jobs_says_so(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log") as made:
        assert run("--event-log", tmp_path / "log").stderr == f"{tmp_path / 'log'}: no session yet\n"
        await made.cycle()
    assert run("--event-log", tmp_path / "log").stderr == f"{tmp_path / 'log'}: no jobs\n"
