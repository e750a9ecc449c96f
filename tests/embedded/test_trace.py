"""The published trace format: nodes, tasks, gangs, times."""

from pathlib import Path
from typing import Any

import pytest

from bench.gputrace import TraceError, arrivals, queues_of, read_nodes, read_tasks
from tests.embedded.simulated import Simulated
from vcd.embedded.controllers.controller_base import JOBS, PODGROUPS, PODS
from vcd.embedded.workload_generator import Arrival, Feeder, install

DATA = Path(__file__).parent.parent / "data" / "trace"


def pods_of(found: list[Arrival]) -> dict[str, dict[str, Any]]:
    return {obj["metadata"]["name"]: obj for arrival in found for resource, obj in arrival.objects if resource == PODS}


@pytest.fixture
def found() -> list[Arrival]:
    return list(arrivals(read_tasks(DATA / "pods.csv")))


@pytest.fixture
def pods(found: list[Arrival]) -> dict[str, dict[str, Any]]:
    return pods_of(found)


def requests(pod: dict[str, Any]) -> dict[str, str]:
    asked: dict[str, str] = pod["spec"]["containers"][0]["resources"]["requests"]
    return asked


def test_a_node_has_its_room_and_product() -> None:
    node = {each["metadata"]["name"]: each for each in read_nodes(DATA / "nodes.csv")}["n-06"]
    assert node["status"]["allocatable"] == {
        "cpu": "96000m",
        "memory": "393216Mi",
        "nvidia.com/gpu": "8",
        "pods": "110",
    }
    labels = node["metadata"]["labels"]
    assert (labels["nvidia.com/gpu.product"], labels["gpu-model"]) == ("V100M16", "V100M16")


def test_a_node_without_gpu_has_no_product() -> None:
    node = read_nodes(DATA / "nodes.csv")[0]
    assert "nvidia.com/gpu" not in node["status"]["allocatable"]
    assert "nvidia.com/gpu.product" not in node["metadata"]["labels"]


def test_a_task_asks_for_what_it_had(pods: dict[str, dict[str, Any]]) -> None:
    assert requests(pods["t-04"]) == {"cpu": "8000m", "memory": "30720Mi", "nvidia.com/gpu": "8"}


def test_a_share_of_a_gpu_asks_for_a_whole_one(pods: dict[str, dict[str, Any]]) -> None:
    assert requests(pods["t-01"])["nvidia.com/gpu"] == "1"


def test_a_task_without_gpu_asks_for_none(pods: dict[str, dict[str, Any]]) -> None:
    assert "nvidia.com/gpu" not in requests(pods["t-07"])


def test_tasks_of_one_second_and_request_are_a_gang(found: list[Arrival]) -> None:
    groups = {
        obj["metadata"]["name"]: obj["spec"]["minMember"]
        for arrival in found for resource, obj in arrival.objects if resource == PODGROUPS
    }  # fmt: skip
    assert groups == {
        "t-00": 1,
        "t-01": 2,
        "t-03": 1,
        "t-04": 2,
        "t-06": 1,
        "t-07": 1,
        "t-08": 1,
        "t-09": 1,
        "t-10": 1,
        "t-11": 1,
    }


def test_members_of_a_gang_run_as_long_as_each_did(pods: dict[str, dict[str, Any]]) -> None:
    seconds = [pods[name]["metadata"]["annotations"]["vcd.sim/run-seconds"] for name in ("t-04", "t-05")]
    assert seconds == ["600", "1200"]


def test_models_become_affinity_and_card_annotation(pods: dict[str, dict[str, Any]]) -> None:
    pod = pods["t-08"]
    affinity = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert affinity["nodeSelectorTerms"][0]["matchExpressions"][0]["values"] == ["V100M16", "V100M32"]
    assert pod["metadata"]["annotations"]["volcano.sh/card.name"] == "V100M16|V100M32"


def test_a_task_for_any_model_has_no_affinity(pods: dict[str, dict[str, Any]]) -> None:
    assert "affinity" not in pods["t-00"]["spec"]


def test_a_task_that_was_never_scheduled_is_kept(pods: dict[str, dict[str, Any]]) -> None:
    assert pods["t-08"]["metadata"]["annotations"]["vcd.sim/run-seconds"] == "50"


def test_a_failed_task_ends_with_an_exit_code(pods: dict[str, dict[str, Any]]) -> None:
    failed = [name for name, pod in pods.items() if "vcd.sim/exit-code" in pod["metadata"]["annotations"]]
    assert failed == ["t-03"]


def test_qos_is_the_queue() -> None:
    queues = queues_of(read_tasks(DATA / "pods.csv"))
    assert [each["metadata"]["name"] for each in queues] == ["be", "burstable", "guaranteed", "ls"]


def test_time_counts_from_the_first_task(found: list[Arrival]) -> None:
    assert [each.at for each in found] == [0, 60, 300, 600, 800, 900, 1100, 1200]


def test_compression_brings_arrivals_together() -> None:
    found = list(arrivals(read_tasks(DATA / "pods.csv"), compression=100))
    assert [each.at for each in found][:3] == [0, 0.6, 3]


def test_compression_leaves_run_times_alone() -> None:
    pod = pods_of(list(arrivals(read_tasks(DATA / "pods.csv"), compression=100)))["t-11"]
    assert pod["metadata"]["annotations"]["vcd.sim/run-seconds"] == "3600"


@pytest.mark.parametrize("compression", [0.0, -1.0])
def test_compression_is_above_zero(compression: float) -> None:
    with pytest.raises(ValueError, match="above zero"):
        list(arrivals([], compression=compression))


def test_the_cluster_takes_the_whole_trace() -> None:
    sim = Simulated(nodes=0)
    tasks = read_tasks(DATA / "pods.csv")
    install(sim.store, read_nodes(DATA / "nodes.csv"), queues_of(tasks))
    feeder = Feeder(sim.store, sim.clock, arrivals(tasks))
    feeder.start()
    sim.advance(5000)
    assert (feeder.refused, len(sim.names()), len(sim.names(PODGROUPS))) == ([], 12, 10)


# --- as jobs ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def jobs() -> dict[str, dict[str, Any]]:
    found = arrivals(read_tasks(DATA / "pods.csv"), as_jobs=True, priority_of=lambda task: f"class-of-{task.queue}")
    return {obj["metadata"]["name"]: obj for arrival in found for resource, obj in arrival.objects if resource == JOBS}


def test_as_jobs_each_gang_is_a_job_of_one_task_for_each_row(jobs: dict[str, dict[str, Any]]) -> None:
    assert len(jobs) == 10
    job = jobs["t-04"]["spec"]
    assert (job["queue"], job["minAvailable"]) == ("burstable", 2)
    assert [(task["name"], task["replicas"]) for task in job["tasks"]] == [("t-04", 1), ("t-05", 1)]


def test_as_jobs_each_task_runs_as_long_as_its_row_did(jobs: dict[str, dict[str, Any]]) -> None:
    marks = [task["template"]["metadata"]["annotations"] for task in jobs["t-04"]["spec"]["tasks"]]
    assert [each["vcd.sim/run-seconds"] for each in marks] == ["600", "1200"]
    assert jobs["t-03"]["spec"]["tasks"][0]["template"]["metadata"]["annotations"]["vcd.sim/exit-code"] == "1"


def test_as_jobs_the_cards_are_named_and_asked_for_before_there_are_pods(jobs: dict[str, dict[str, Any]]) -> None:
    assert jobs["t-04"]["metadata"]["annotations"] == {
        "volcano.sh/card.name": "V100M16|V100M32",
        "volcano.sh/card.request": '{"V100M16|V100M32": 16}',
    }
    template = jobs["t-04"]["spec"]["tasks"][1]["template"]
    assert template["metadata"]["annotations"]["volcano.sh/card.name"] == "V100M16|V100M32"
    assert "nodeAffinity" in template["spec"]["affinity"]
    assert jobs["t-00"]["metadata"]["annotations"] == {}


def test_as_jobs_those_that_name_no_model_ask_for_any_that_there_is() -> None:
    tasks = read_tasks(DATA / "pods.csv")
    found = {
        obj["metadata"]["name"]: obj["metadata"]["annotations"].get("volcano.sh/card.request")
        for arrival in arrivals(tasks, as_jobs=True, models=("G2", "T4"))
        for _, obj in arrival.objects
    }
    assert (found["t-01"], found["t-03"], found["t-07"]) == ('{"G2|T4": 2}', '{"T4": 1}', None)


def test_as_jobs_the_priority_class_is_the_one_asked_for(jobs: dict[str, dict[str, Any]]) -> None:
    assert jobs["t-03"]["spec"]["priorityClassName"] == "class-of-be"


def test_as_jobs_nothing_has_a_priority_class_unless_asked_for() -> None:
    found = arrivals(read_tasks(DATA / "pods.csv"), as_jobs=True)
    assert not any("priorityClassName" in obj["spec"] for arrival in found for _, obj in arrival.objects)


def as_jobs() -> Simulated:
    """The cluster after ten minutes, all groups let in, and nobody to place pods."""
    sim = Simulated(nodes=0)
    tasks = read_tasks(DATA / "pods.csv")
    install(sim.store, read_nodes(DATA / "nodes.csv"), queues_of(tasks))
    Feeder(sim.store, sim.clock, arrivals(tasks, as_jobs=True)).start()
    sim.advance(600)
    for each in sim.store.list(PODGROUPS):
        meta = each["metadata"]
        sim.store.patch(PODGROUPS, meta["namespace"], meta["name"], {"status": {"phase": "Inqueue"}}, "status")
    sim.advance(1)
    return sim


def test_as_jobs_groups_carry_the_cards_and_pods_follow_once_they_are_let_in() -> None:
    sim = as_jobs()
    metas = [each["metadata"] for each in sim.store.list(PODGROUPS)]
    marks = {meta["ownerReferences"][0]["name"]: meta.get("annotations") for meta in metas}
    assert marks["t-03"] == {"volcano.sh/card.name": "T4", "volcano.sh/card.request": '{"T4": 1}'}
    assert "t-04-t-05-0" in sim.names()


def test_as_jobs_a_pod_that_is_evicted_comes_back() -> None:
    sim = as_jobs()
    before = sim.store.get(PODS, "default", "t-03-t-03-0")["metadata"]["uid"]
    sim.store.delete(PODS, "default", "t-03-t-03-0")
    sim.advance(60)
    assert sim.store.get(PODS, "default", "t-03-t-03-0")["metadata"]["uid"] != before
    assert sim.store.get(JOBS, "default", "t-03")["status"]["state"]["phase"] == "Pending"


HEADER = "sn,cpu_milli,memory_mib,gpu,model\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sn,cpu_milli\na,1\n", "line 1: column 'memory_mib' is missing"),
        (HEADER + "a,x,1,0,\n", "line 2: cpu_milli is 'x'"),
        (HEADER + "a,-1,1,0,\n", "line 2: cpu_milli is '-1'"),
        (HEADER + "a,1,1\n", "line 2: column 'gpu' is missing"),
        (HEADER + "a,1,1,2,\n", "line 2: model is empty for a node with 2 GPUs"),
    ],
)
def test_a_wrong_file_is_an_error_that_names_line_and_column(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "nodes.csv"
    file.write_text(text)
    with pytest.raises(TraceError, match=message):
        read_nodes(file)


@pytest.mark.parametrize("digits", [16, 5000])
def test_a_number_that_no_cluster_has_is_an_error(tmp_path: Path, digits: int) -> None:
    file = tmp_path / "nodes.csv"
    file.write_text(f"sn,cpu_milli,memory_mib,gpu,model\nn,{'9' * digits},1,0,\n")
    with pytest.raises(TraceError, match=f"line 2: cpu_milli has {digits} digits; it must have 15 at most"):
        read_nodes(file)


def test_a_byte_order_mark_is_not_of_the_first_columns_name(tmp_path: Path) -> None:
    file = tmp_path / "nodes.csv"
    file.write_bytes(b"\xef\xbb\xbf" + (DATA / "nodes.csv").read_bytes().replace(b"\n", b"\r\n"))
    assert read_nodes(file) == read_nodes(DATA / "nodes.csv")


def test_times_that_the_clock_does_not_get_to_are_an_error(tmp_path: Path) -> None:
    header = (DATA / "pods.csv").read_text().splitlines()[0]
    file = tmp_path / "pods.csv"
    rows = [f"t{at},1,1,0,0,,LS,Running,{at},{at},\n" for at in (0, 10**12)]
    file.write_text(f"{header}\n{''.join(rows)}")
    with pytest.raises(TraceError, match="creation_time is 0 to 1000000000000; it must be within 3153600000 seconds"):
        read_tasks(file)


def test_a_task_that_ends_before_it_begins_is_an_error(tmp_path: Path) -> None:
    header = (DATA / "pods.csv").read_text().splitlines()[0]
    file = tmp_path / "pods.csv"
    file.write_text(f"{header}\nt,1,1,0,0,,LS,Running,100,50,\n")
    with pytest.raises(TraceError, match="line 2: deletion_time 50 is before creation_time 100"):
        read_tasks(file)
