"""``vcd gate``, ``whatif`` and ``sweep`` on logs of ``vcd sim``, whose controllers make groups and pods: what started
then starts again, and where it does not, that is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import structlog
import yaml
from click.testing import Result

from tests.cli.results import run_vcd as run
from tests.timetravel.plays import CONF
from tests.timetravel.shadowed import bind, job, shadow, write_shadow_history

CONDITION = "wait.p95 > +10%"
TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"app": "a"}, "annotations": {"vcd.sim/run-seconds": "30"}},
    "spec": {
        "schedulerName": "volcano",
        "containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}],
    },
}


def made(kind: str, version: str, name: str, spec: dict[str, Any], at: int = 0) -> dict[str, Any]:
    meta = {"name": name, "namespace": "default", "annotations": {"vcd.sim/at-seconds": str(at)}}
    return {"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec}


def bare(name: str, at: int = 0, cpu: int = 1) -> dict[str, Any]:
    pod = made("Pod", "v1", name, {**TEMPLATE["spec"]}, at)
    pod["metadata"]["annotations"]["vcd.sim/run-seconds"] = "30"
    pod["spec"] = json.loads(json.dumps(pod["spec"]))
    pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = str(cpu)
    return pod


def deployment(name: str, at: int = 0) -> dict[str, Any]:
    labels = {"app": name}
    template = {**TEMPLATE, "metadata": {**TEMPLATE["metadata"], "labels": labels}}
    spec = {"replicas": 3, "selector": {"matchLabels": labels}, "template": template}
    return made("Deployment", "apps/v1", name, spec, at)


def volcano_job(name: str, at: int = 0) -> dict[str, Any]:
    tasks = [{"name": "worker", "replicas": 2, "template": TEMPLATE}]
    return made("Job", "batch.volcano.sh/v1alpha1", name, {"minAvailable": 2, "tasks": tasks}, at)


def simulated(folder: Path, *manifests: dict[str, Any]) -> Path:
    """The log of 100 s of a cluster of three nodes to which these come."""
    (folder / "work.yaml").write_text(yaml.safe_dump_all(manifests))
    log, before = folder / "events.sqlite", structlog.get_config()
    words = ("sim", "--nodes", "3*cpu=4,memory=8Gi", "--workload", folder / "work.yaml", "--duration", 100, "--jump")
    result = run(*words, "--event-log", log)
    structlog.configure(**before)
    assert result.exit_code == 0, result.output
    return log


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of bare pods, a Deployment, whose pods end and come again, and a Volcano Job, for which the last pod waits."""
    folder = tmp_path_factory.mktemp("recorded")
    (folder / "new.conf").write_text(CONF)
    return simulated(
        folder, bare("alone"), deployment("web"), volcano_job("train", at=5), bare("late", at=20), bare("wide", 21, 4)
    )


def judged(log: Path, *words: object, fail_if: str = CONDITION) -> Result:
    (log.parent / "new.conf").write_text(CONF)
    new = ("--new", log.parent / "new.conf", "--seeds", 1, "--jobs", 1)
    return run("gate", log, *new, "--fail-if", fail_if, *words)


def test_a_gate_knows_the_groups_that_controllers_make(log: Path) -> None:
    result = judged(log, "-o", "json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    figures = {figure["name"]: figure for figure in found["figures"]}
    assert found["jobs"] == 5
    assert [figures[name]["old"]["median"] for name in ("started", "never_started")] == [5, 0]
    assert (found["fidelity"]["recorded"], found["fidelity"]["baseline"]) == (5, 5)
    assert (found["unjudged"], found["passed"]) == ([], True)


def test_a_whatif_starts_again_what_was_started(log: Path) -> None:
    result = run("whatif", log, "--seed", 1, "-o", "json")
    found = json.loads(result.stdout)
    recorded, baseline, _ = found["runs"]
    assert [run["waits"]["never"] for run in found["runs"]] == [0, 0, 0]
    assert recorded["jobs"].keys() == baseline["jobs"].keys()
    assert found["fidelity"] | {"lost_jobs": [], "gained_jobs": []} == found["fidelity"]
    assert (
        "Baseline   reproduces the record: 5 of 5 jobs that started in the log start again"
        in run("whatif", log, "--seed", 1).stdout
    )


def test_a_sweep_starts_again_what_was_started(log: Path) -> None:
    found = json.loads(run("sweep", log, "--seeds", "1-2", "--jobs", 1, "-o", "json").stdout)
    assert [run["waits"]["never"] for run in found["runs"]] == [0, 0]
    assert (found["fidelity"]["lost"], found["fidelity"]["far"]) == (0, False)


# --- where it does not come out as it was -----------------------------------------------------------------------------


@pytest.fixture
async def unlike(tmp_path: Path) -> Path:
    """Of a shadow, beside a scheduler that starts what vcd never would."""
    await write_shadow_history(tmp_path / "events.sqlite")
    return tmp_path / "events.sqlite"


def test_a_gate_does_not_pass_where_the_baseline_is_not_what_was_recorded(unlike: Path) -> None:
    result = judged(unlike)
    assert result.exit_code == 2
    said = " ".join(result.stderr.split())
    unlike_record = "does not reproduce the record: 3 of 4 jobs that started in the log start again"
    assert f"this cannot be judged: the baseline {unlike_record}; 1 job never starts again (default/kept)" in said
    assert f"not judged {CONDITION}" in result.stdout
    assert "passed" not in result.stdout
    found = json.loads(judged(unlike, "-o", "json").stdout)
    assert (found["passed"], found["fidelity"]["lost_jobs"]) == (False, ["default/kept"])


def test_it_does_not_fail_either(unlike: Path) -> None:
    assert judged(unlike, fail_if="started > 0").exit_code == 2


def test_old_may_be_another_and_the_baseline_is_the_logs(unlike: Path, log: Path) -> None:
    (unlike.parent / "old.conf").write_text(CONF)
    assert judged(unlike, "--old", unlike.parent / "old.conf").exit_code == 2
    assert judged(log, "--old", log.parent / "new.conf").exit_code == 0


def test_a_sweep_warns_before_its_figures(unlike: Path) -> None:
    result = run("sweep", unlike, "--jobs", 1)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    (warning,) = [number for number, line in enumerate(lines) if line.startswith("WARNING: ")]
    (figures,) = [number for number, line in enumerate(lines) if line.startswith("what is other")]
    assert warning < figures
    assert "1 job never starts again (default/kept)" in lines[warning]


def test_a_whatif_states_that_its_baseline_does_not_reproduce_the_record(unlike: Path) -> None:
    result = run("whatif", unlike, "--seed", 1)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    first = lines.index("Baseline   does not reproduce the record: 3 of 4 jobs that started in the log start again")
    assert lines[first + 1] == "           1 job never starts again (default/kept)"


def test_where_nothing_starts_nothing_is_judged(tmp_path: Path) -> None:
    result = judged(simulated(tmp_path, bare("huge", cpu=500)))
    assert result.exit_code == 2
    said = " ".join(result.stderr.split())
    assert "this cannot be judged: no job starts, neither under as logged nor under new.conf" in said


async def test_jobs_that_start_too_late_are_told_of(tmp_path: Path) -> None:
    """Another scheduler starts what vcd would only when others have ended, of which the log does not know when."""
    log = tmp_path / "events.sqlite"
    async with shadow(log) as played:
        await played.show(job("first", cpu=4), job("second", cpu=4), job("third", cpu=4, created=1))
        await played.cycle(seconds=2)
        for name, node in (("first", "n0"), ("second", "n1"), ("third", "n0")):
            await bind(played, name, node)
        await played.cycle(seconds=2)
    found = judged(log, "-o", "json")
    assert found.exit_code == 2, found.output
    told = json.loads(found.stdout)
    assert (told["fidelity"]["late_jobs"], told["fidelity"]["lost"]) == (["default/third"], 0)
    assert "1 job starts again only after the log's end (default/third)" in judged(log).stderr
    assumed = "nothing like default/first and 1 more has ended: 1 of 3 jobs starts after an assumed end"
    assert assumed in run("whatif", log, "--seed", 1).stdout
