"""``vcd sim``: what it prints and how it exits."""

from __future__ import annotations

import datetime
import json
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
import yaml
from click.testing import CliRunner, Result

from tests.waiting import WAIT_LIMIT
from vcd.cli import main
from vcd.cli.sim import sim
from vcd.eventlog import LogReader
from vcd.model.events import ObjectGone

SMALL = ("--nodes", "3", "--mix", "gangs=2,jobs=0,deployments=0,pods=2,size=2-3,run=20-60")
MANIFESTS = """\
apiVersion: v1
kind: Pod
metadata: {name: huge, namespace: default}
spec:
  schedulerName: volcano
  containers: [{name: main, image: registry.example/work:1, resources: {requests: {cpu: "500"}}}]
---
apiVersion: v1
kind: Pod
metadata: {name: lost, namespace: nowhere, annotations: {scheduling.k8s.io/group-name: none}}
spec:
  schedulerName: volcano
  containers: [{name: main, image: registry.example/work:1}]
"""


@pytest.fixture(autouse=True)
def _as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Temporary logs in the test's folder, and structlog's settings put back."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = structlog.get_config()
    yield
    structlog.configure(**before)


def call(*arguments: object) -> Result:
    return CliRunner().invoke(sim, [str(argument) for argument in arguments])


def summary(*arguments: object) -> dict[str, Any]:
    result = call(*arguments, "--exit-when-idle", "-o", "json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_the_summary_counts_the_pods_that_ran_and_names_the_log() -> None:
    found = summary(*SMALL)
    assert found["pods"] == {"Succeeded": found["binds"]}
    assert found["binds"] >= 6
    assert Path(found["event_log"]).stat().st_size == found["log_bytes"] > 0


def test_the_summary_for_people_names_log_and_binds(tmp_path: Path) -> None:
    result = call(*SMALL, "--exit-when-idle", "--event-log", tmp_path / "events.sqlite")
    time, decided, *_, log = result.stdout.splitlines()[-5:]
    assert time.startswith("time  ")
    assert decided.endswith("binds on 3 nodes")
    assert log.startswith(f"event log   {tmp_path / 'events.sqlite'} (")


def test_what_found_no_place_is_named_with_its_reason_and_so_is_what_was_refused(tmp_path: Path) -> None:
    (tmp_path / "work.yaml").write_text(MANIFESTS)
    result = call("--nodes", "3", "--workload", tmp_path / "work.yaml", "--exit-when-idle", "-o", "json")
    found = json.loads(result.stdout)
    assert result.exit_code == 1
    [pod], [refused] = found["never_bound"], found["refused"]
    assert pod["name"] == "default/huge"
    assert "larger than any node" in pod["reason"]
    assert refused["name"] == "there is no PodGroup nowhere/none"


CAPPED = """\
apiVersion: scheduling.volcano.sh/v1beta1
kind: QueueList
items:
- metadata: {name: default, resourceVersion: "12", uid: 8c1f2a3b-0000-4111-8222-333344445555}
  spec: {weight: 1, capability: {cpu: "1"}}
  status: {state: Open}
---
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: train, namespace: research}
spec:
  pytorchReplicaSpecs:
    Worker:
      replicas: 1
      template: {spec: {containers: [{name: c, image: x, resources: {requests: {cpu: 100m}}}]}}
---
apiVersion: batch/v1
kind: Job
metadata: {generateName: small-}
spec:
  parallelism: 4
  template: {spec: {restartPolicy: Never, containers: [{name: c, image: x, resources: {limits: {cpu: "1"}}}]}}
"""


def test_a_printed_queue_replaces_the_default_one_and_workloads_come_as_pods(tmp_path: Path) -> None:
    (tmp_path / "work.yaml").write_text(CAPPED)
    found = summary("--nodes", "3", "--workload", tmp_path / "work.yaml")
    assert (found["refused"], found["unknown"], found["pods"]) == ([], [], {"Pending": 4, "Running": 1})


@pytest.mark.parametrize(("strict", "code"), [((), 0), (("--strict",), 1)])
def test_what_is_not_understood_is_an_error_if_it_is_strict(tmp_path: Path, strict: tuple[str, ...], code: int) -> None:
    (tmp_path / "thing.yaml").write_text("apiVersion: x.com/v1\nkind: Thing\nmetadata: {name: a}\n")
    result = call("--nodes", "1", "--workload", tmp_path / "thing.yaml", "--exit-when-idle", "-o", "json", *strict)
    assert (result.exit_code, json.loads(result.stdout)["unknown"][0][:33]) == (
        code,
        "Thing of API group x.com is not u",
    )
    assert result.stderr.startswith("error: Thing" if strict else "warning: Thing")


def test_it_ends_after_the_duration_though_pods_still_run() -> None:
    deployments = "gangs=0,jobs=0,deployments=1,pods=0"
    result = call("--nodes", "3", "--mix", deployments, "--jump", "--duration", "90", "-o", "json")
    assert json.loads(result.stdout)["cluster_seconds"] == 90


def test_it_ends_on_time_though_pods_end_later() -> None:
    result = call("--nodes", "3", "--mix", "gangs=2,run=500-500,every=0", "--exit-when-idle", "--duration", "90")
    assert "for 1 min 30 s" in result.stdout


def test_queues_are_made_and_ended_pods_removed_after_the_time_given() -> None:
    found = summary(*SMALL, "--queues", "research:2,serving", "--remove-after", "1")
    assert (found["refused"], found["waiting"]) == ([], [])
    assert found["pods"] == {"Succeeded": found["binds"]}


NODES = """\
apiVersion: v1
kind: Node
metadata: {name: mine-a}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "10"}, capacity: {cpu: "4", memory: 8Gi, pods: "10"}}
---
apiVersion: v1
kind: Node
metadata: {name: node-0}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "10"}, capacity: {cpu: "4", memory: 8Gi, pods: "10"}}
"""


def run_for(name: str, seconds: float) -> str:
    return (
        f"---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: default, "
        f'annotations: {{vcd.sim/run-seconds: "{seconds}"}}}}\n'
        "spec: {schedulerName: volcano, containers: [{name: main, image: work:1}]}\n"
    )


@pytest.mark.parametrize(
    ("nodes", "count"),
    [([], 2), (["--nodes", "0"], 2), (["--nodes", "3*cpu=1,name=more-{i}"], 5)],
    ids=["none asked for", "0", "3 more"],
)
def test_the_nodes_of_a_workload_are_the_cluster_and_others_are_added(
    tmp_path: Path, nodes: list[str], count: int
) -> None:
    (tmp_path / "work.yaml").write_text(NODES + run_for("a", 5))
    found = summary(*nodes, "--workload", tmp_path / "work.yaml")
    assert (found["nodes"], found["binds"], found["refused"]) == (count, 1, [])


def test_a_cluster_may_have_no_nodes(tmp_path: Path) -> None:
    (tmp_path / "work.yaml").write_text(run_for("a", 5))
    found = summary("--nodes", "0", "--workload", tmp_path / "work.yaml")
    assert (found["nodes"], found["binds"]) == (0, 0)


def test_a_node_that_is_there_twice_is_told(tmp_path: Path) -> None:
    (tmp_path / "work.yaml").write_text(NODES)
    result = call("--nodes", "2", "--workload", tmp_path / "work.yaml")
    assert (result.exit_code, "two nodes have the name node-0" in result.stderr) == (2, True)


@pytest.mark.parametrize("after", [60, 7])
def test_an_ended_pod_is_removed_at_its_time_though_nothing_else_happens_then(tmp_path: Path, after: int) -> None:
    (tmp_path / "work.yaml").write_text(run_for("short", 10) + run_for("long", 3000))
    log = tmp_path / "events.sqlite"
    summary("--nodes", "1", "--workload", tmp_path / "work.yaml", "--jump", "--remove-after", after, "--event-log", log)
    with LogReader(log) as reader:
        events = list(reader.read())
    of_it = [logged for logged in events if getattr(logged.event, "key", "") == "default/short"]
    ended, removed = sorted({logged.time for logged in of_it})[-2:]
    assert isinstance(of_it[-1].event, ObjectGone)
    assert removed - ended == after * 1_000_000_000


def test_the_variable_names_no_new_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is that of another cluster, and often there already."""
    there = tmp_path / "there.sqlite"
    there.write_bytes(b"another log")
    monkeypatch.setenv("VCD_EVENT_LOG", str(there))
    found = summary(*SMALL)
    assert Path(found["event_log"]).name == "events.sqlite"
    assert there.read_bytes() == b"another log"


def test_the_variable_names_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VCD_EVENT_LOG", str(tmp_path / "named.sqlite"))
    summary(*SMALL, "--event-log", tmp_path / "named.sqlite")
    for command in (["replay"], ["explain", "queue", "default"], ["log", "ls"], ["log", "verify"], ["conf", "show"]):
        result = CliRunner().invoke(main, command)
        assert result.exit_code == 0, (command, result.output)
    for command in (
        ["top", "--once"],
        ["whatif", "--set", "queue/default.spec.weight=4"],
        ["sweep", "--seeds=0", "--jobs=1"],
    ):
        result = CliRunner().invoke(main, command)
        assert "Missing option" not in result.output, (command, result.output)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--nodes", "3*cpu=lots"], "lots"),
        (["--queues", "research:0"], "research:0"),
        (["--mix", "gang=2"], "mix has no 'gang'"),
        (["--serve", "here"], "HOST:PORT"),
        (["--jump", "--speed", "2"], "--jump and --speed exclude each other"),
        (["--seed", 10**20], "is more than the largest number in a log"),
        (["--speed", "inf"], "'inf' is not a finite number"),
        (["--speed", "nan"], "'nan' is not a finite number"),
        (["--duration", "inf"], "'inf' is not a finite number"),
        (["--remove-after", "nan"], "'nan' is not a finite number"),
        (["--workload", "missing.yaml"], "missing.yaml"),
        (["--event-log", __file__], "exists already"),
    ],
)
def test_what_cannot_be_used_is_told_in_a_line(arguments: list[object], words: str) -> None:
    result = call(*arguments)
    assert result.exit_code == 2
    assert words in result.stderr


def test_what_would_take_ages_is_not_waited_for(tmp_path: Path) -> None:
    """A job kept for ages after its end, and a pod that runs for them."""
    run = {"annotations": {"vcd.sim/run-seconds": "5"}}
    spec = {"schedulerName": "volcano", "restartPolicy": "Never", "containers": [{"name": "a", "image": "b"}]}
    task = {"name": "t", "replicas": 1, "template": {"metadata": run, "spec": spec}}
    job = {"minAvailable": 1, "schedulerName": "volcano", "ttlSecondsAfterFinished": 9 * 10**18, "tasks": [task]}
    ages = {"name": "a", "annotations": {"vcd.sim/run-seconds": "999999999999"}}
    manifests = [
        {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "j"}, "spec": job},
        {"apiVersion": "v1", "kind": "Pod", "metadata": ages, "spec": spec},
    ]
    (tmp_path / "ages.yaml").write_text(yaml.safe_dump_all(manifests))
    told = summary("--workload", tmp_path / "ages.yaml", "--event-log", tmp_path / "log.sqlite")
    assert told["pods"] == {"Running": 1, "Succeeded": 1}


def test_a_bad_configuration_is_told_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "conf.yaml").write_text('actions: "enqueue, allocat"\n')
    result = call(*SMALL, "--scheduler-conf", tmp_path / "conf.yaml")
    assert (result.exit_code, "did you mean" in result.stderr) == (2, True)


def test_an_address_that_is_taken_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        result = call(*SMALL, "--serve", address)
    assert result.exit_code == 2
    assert address in result.stderr
    assert "in use" in result.stderr


def test_ctrl_c_ends_it_with_the_summary(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "vcd", "sim", "--nodes", "2", "--serve", "127.0.0.1:0", "-o", "json"]
    running = subprocess.Popen(
        [*command, "--mix", "gangs=1", "--event-log", str(tmp_path / "log")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stderr is not None
    begun = running.stderr.readline()
    assert "API server at http://127.0.0.1:" in begun and f"event log {tmp_path / 'log'} (for vcd top)" in begun
    running.send_signal(signal.SIGINT)
    output, errors = running.communicate(timeout=WAIT_LIMIT)
    assert running.returncode == 0, errors
    assert json.loads(output)["event_log"] == str(tmp_path / "log")


TDM = """\
actions: "allocate, backfill"
tiers:
- plugins:
  - name: gang
  - name: predicates
  - name: tdm
    arguments: {{tdm.revocable-zone.night: "{opens}-{closes}"}}
"""


def night(hours: int) -> str:
    """A time of day so many hours from now."""
    return (datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=hours)).strftime("%H:%M")


def one_pod(path: Path, request: dict[str, str]) -> Path:
    meta = {"name": "p", "namespace": "default"}
    marks = {"volcano.sh/revocable-zone": "*", "volcano.sh/preemptable": "true", "vcd.sim/run-seconds": "5"}
    container = {"name": "c", "image": "registry.example/work:1", "resources": {"requests": request}}
    spec = {"schedulerName": "volcano", "containers": [container]}
    path.write_text(
        yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", "metadata": {**meta, "annotations": marks}, "spec": spec})
    )
    return path


def test_time_jumps_to_the_opening_of_a_window(tmp_path: Path) -> None:
    """Nothing else happens until then."""
    conf = tmp_path / "conf"
    conf.write_text(TDM.format(opens=night(2), closes=night(4)))
    nodes, work = "1*cpu=4,memory=8Gi,volcano.sh/revocable-zone=night", one_pod(tmp_path / "work.yaml", {"cpu": "1"})
    found = summary("--nodes", nodes, "--workload", work, "--scheduler-conf", conf)
    assert found["pods"] == {"Succeeded": 1}


def test_a_window_that_opens_in_vain_does_not_keep_it_from_its_end(tmp_path: Path) -> None:
    conf = tmp_path / "conf"
    conf.write_text(TDM.format(opens=night(2), closes=night(4)))
    nodes, work = "1*cpu=4,memory=8Gi,volcano.sh/revocable-zone=night", one_pod(tmp_path / "work.yaml", {"cpu": "9"})
    found = summary("--nodes", nodes, "--workload", work, "--scheduler-conf", conf)
    assert found["pods"] == {"Pending": 1}
