"""``vcd plan``: what it reads, prints, and how it exits."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

import vcd
from tests import dsl
from tests.cli.results import run_vcd

run = partial(run_vcd, "plan")

OBJECTS = dsl.flat(
    [
        dsl.node("n1", cpu=4),
        dsl.gang("fits", 2, cpu=2, phase="Pending", minimum={"cpu": 4}),
        dsl.gang("waits", 2, cpu=3, phase="Pending", created=1),
    ]
)
CONF = 'actions: "enqueue, allocate, backfill"\ntiers:\n- plugins:\n  - name: priority\n  - name: gang\n'
NOW = ("--now", "2026-11-21T08:00:00Z")


def as_json(*arguments: object, stdin: str | None = None) -> Any:
    result = run(*arguments, "-o", "json", stdin=stdin)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    path = tmp_path / "volcano-scheduler.conf"
    path.write_text(CONF)
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump_all(OBJECTS))
    return path


def test_json_is_what_the_library_says(file: Path, conf: Path) -> None:
    result = vcd.plan(OBJECTS, CONF, dsl.NOW)
    assert as_json("-f", file, "--scheduler-conf", conf, *NOW) == {
        "apiVersion": "vcd/v1",
        "kind": "Plan",
        "binds": result.binds,
        "evictions": result.evictions,
        "ungated": result.ungated,
        "pipelined": result.pipelined,
        "placed": msgspec.to_builtins(result.placed),
        "waits": msgspec.to_builtins(result.waits),
        "phases": result.phases,
        "why": result.why,
        "problems": result.problems,
        "notes": result.notes,
        "unknown": result.unknown,
        "refused": result.refused,
    }


def test_a_gang_that_fits_is_bound_and_the_other_waits(file: Path, conf: Path) -> None:
    printed = as_json("-f", file, "--scheduler-conf", conf, *NOW)
    assert printed["binds"] == {"default/fits-0": "n1", "default/fits-1": "n1"}
    assert [reason["gate"] for reason in printed["why"]["default/waits"]] == ["predicate", "gang"]


@pytest.mark.parametrize(
    "text",
    [
        yaml.safe_dump_all(OBJECTS),
        yaml.safe_dump({"kind": "List", "items": OBJECTS}),
        "\n".join(json.dumps(one) for one in OBJECTS),
        json.dumps({"kind": "List", "apiVersion": "v1", "items": OBJECTS}, indent=1),
    ],
    ids=["documents", "list", "json documents", "json list"],
)
def test_standard_input_may_hold(text: str, conf: Path) -> None:
    assert len(as_json("-f", "-", "--scheduler-conf", conf, *NOW, stdin=text)["binds"]) == 2


def test_a_folder_and_files_make_one_cluster(tmp_path: Path, conf: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "nodes.json").write_text(json.dumps(OBJECTS[0]))
    (folder / "notes.txt").write_text("no manifest")
    (tmp_path / "jobs.yml").write_text(yaml.safe_dump_all(OBJECTS[1:]))
    printed = as_json("-f", folder, "-f", tmp_path / "jobs.yml", "--scheduler-conf", conf, *NOW)
    assert len(printed["binds"]) == 2


def test_the_configuration_may_come_from_standard_input(file: Path) -> None:
    assert len(as_json("-f", file, "--scheduler-conf", "-", stdin=CONF)["binds"]) == 2


def test_standard_input_is_read_once() -> None:
    result = run("-f", "-", "--scheduler-conf", "-", stdin=CONF)
    assert (result.exit_code, "can be read only once" in result.stderr) == (2, True)


def test_the_table_shows_binds_and_waits(file: Path, conf: Path) -> None:
    assert run("-f", file, "--scheduler-conf", conf, *NOW).stdout.splitlines() == [
        "WOULD BIND  1 job, 2 pods",
        "  default/fits  n1 (2 pods)",
        "WAITS          QUEUE    NEEDS      WHY",
        "default/waits  default  2 x 3 cpu  never: all nodes together have 4 cpu",
    ]


def test_wide_names_each_pod_and_gives_the_whole_sentence(file: Path, conf: Path) -> None:
    assert run("-f", file, "--scheduler-conf", conf, *NOW, "-o", "wide").stdout.splitlines() == [
        "WOULD BIND  1 job, 2 pods",
        "  default/fits-0  n1",
        "  default/fits-1  n1",
        "WAITS          QUEUE    NEEDS      CAUSE         WHY",
        "default/waits  default  2 x 3 cpu  cluster-full  it needs 6 cpu, and all nodes together have 4",
    ]


def test_the_table_says_when_there_is_nothing_to_do(conf: Path) -> None:
    assert "no pod to bind or evict" in run("-f", "-", stdin=json.dumps(dsl.node("n1"))).stdout


def test_the_seed_chooses_among_equal_nodes(conf: Path, tmp_path: Path) -> None:
    objects = [*(dsl.node(f"n{i}") for i in range(8)), *dsl.gang("a", 1, cpu=1)]
    (tmp_path / "all.json").write_text(json.dumps({"kind": "List", "items": objects}))
    chosen = {
        as_json("-f", tmp_path / "all.json", "--scheduler-conf", conf, "--seed", seed)["binds"]["default/a-0"]
        for seed in range(6)
    }
    assert len(chosen) > 1


def test_an_object_that_cannot_be_used_is_named_and_the_others_are_planned(file: Path, conf: Path) -> None:
    bad = dsl.pod("bad", requests={"cpu": "much"})
    result = run("-f", file, "-f", "-", "--scheduler-conf", conf, "-o", "json", stdin=json.dumps(bad))
    assert len(json.loads(result.stdout)["binds"]) == 2
    assert result.stderr.startswith("refused: Pod default/bad: ")


def test_limits_are_requests_where_there_are_none(conf: Path, tmp_path: Path) -> None:
    pods = [dsl.pod(f"p{i}", group="g") for i in range(2)]
    for pod in pods:
        pod["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    objects = [dsl.node("n", gpu=1), dsl.group("g", members=1), *pods]
    (tmp_path / "all.json").write_text(json.dumps({"kind": "List", "items": objects}))
    assert len(as_json("-f", tmp_path / "all.json", "--scheduler-conf", conf)["binds"]) == 1


def test_what_a_plugin_finds_wrong_with_an_object_is_told(file: Path, tmp_path: Path) -> None:
    conf = tmp_path / "cards.conf"
    conf.write_text(CONF + "  - name: capacity-card\n")
    queue = dsl.queue("cards")
    queue["metadata"]["annotations"] = {"volcano.sh/card.quota": "{A100: 8}"}
    result = run("-f", file, "-f", "-", "--scheduler-conf", conf, "-o", "json", stdin=json.dumps(queue))
    assert result.exit_code == 0
    assert result.stderr.startswith("Queue cards: ")
    assert "volcano.sh/card.quota" in result.stderr
    assert len(json.loads(result.stdout)["problems"]["Queue cards"]) == 1


@pytest.mark.parametrize("now", ["yesterday", "2026-11-21T08:00:00"])
def test_a_time_that_is_none_is_refused(file: Path, now: str) -> None:
    result = run("-f", file, "--now", now)
    assert (result.exit_code, "write one like 2026-11-21T08:00:00Z" in result.stderr) == (2, True)


def test_a_bad_configuration_is_told_line_by_line(file: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.conf"
    bad.write_text(CONF.replace("allocate", "allocat"))
    result = run("-f", file, "--scheduler-conf", bad)
    assert result.exit_code == 2
    assert result.stderr.startswith(
        f'{bad}:1: error: actions: "enqueue, allocat, backfill": there is no action allocat'
    )


def test_a_file_is_needed() -> None:
    assert run().exit_code == 2


# --- what is not understood -------------------------------------------------------------------------------------------

TYPO = {**dsl.queue("research"), "spec": {"wieght": 3, "guarantee": {"resources": {"cpu": "1"}}}}


def test_fields_that_there_are_none_of_are_warned_of(tmp_path: Path) -> None:
    path = tmp_path / "queue.yaml"
    path.write_text(yaml.safe_dump(TYPO))
    result = run("-f", path)
    assert result.exit_code == 0
    assert "warning: Queue research: spec.wieght is not a field; did you mean weight?" in result.stderr
    assert "warning: Queue research: spec.guarantee.resources is not a field; did you mean resource?" in result.stderr


def test_strictly_they_are_errors(tmp_path: Path, file: Path) -> None:
    path = tmp_path / "queue.yaml"
    path.write_text(yaml.safe_dump(TYPO))
    result = run("-f", path, "--strict")
    assert result.exit_code == 1
    assert "error: Queue research: spec.wieght is not a field; did you mean weight?" in result.stderr
    assert run("-f", file, "--strict").exit_code == 0


def test_what_is_not_understood_is_named_and_never_nothing_to_bind(tmp_path: Path) -> None:
    template = {"spec": {"containers": [{"name": "c"}]}}
    objects = [
        {
            "apiVersion": "x.com/v1",
            "kind": "Batch",
            "metadata": {"name": "x"},
            "spec": {"replicaSpecs": [{"template": template}]},
        },
        *({"apiVersion": "x.com/v1", "kind": "Dashboard", "metadata": {"name": name}} for name in "ab"),
        {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "i"}},
    ]
    path = tmp_path / "objects.yaml"
    path.write_text(yaml.safe_dump_all(objects))
    result = run("-f", path)
    assert result.exit_code == 0
    batch, dashboards = result.stderr.splitlines()
    assert batch == (
        "warning: Batch of API group x.com is not understood: default/x; spec.replicaSpecs[0].template looks like a pod"
        " template; give the pods that it makes"
    )
    assert dashboards.startswith(
        "warning: Dashboard of API group x.com is not understood: default/a, default/b; it has no pod template"
    )
    assert "no pod to bind or evict of what is read; see the notes" in result.stdout
