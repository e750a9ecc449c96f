"""Kubelets: pods start, run, end and go."""

import pytest
from structlog.testing import capture_logs

from tests.embedded.simulated import NODES, PODS, Simulated, pod
from vcd.embedded.controllers.pod_properties import condition_of, is_ready


@pytest.fixture
def sim() -> Simulated:
    return Simulated()


def test_a_bound_pod_runs_after_the_start_delay(sim: Simulated) -> None:
    sim.create(PODS, pod("a"))
    sim.bind("a")
    assert sim.phases() == {"a": "Pending"}
    sim.advance(1)
    assert sim.phases() == {"a": "Running"}


def test_an_unbound_pod_stays_pending(sim: Simulated) -> None:
    sim.create(PODS, pod("a"))
    sim.advance(1000)
    assert sim.phases() == {"a": "Pending"}


def test_a_running_pod_is_ready_in_all_conditions(sim: Simulated) -> None:
    sim.create(PODS, pod("a"))
    sim.bind("a")
    sim.advance(1)
    running = sim.get(PODS, "a")
    kinds = ("PodScheduled", "PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")
    assert {(condition_of(running, kind) or {}).get("status") for kind in kinds} == {"True"}


def test_a_running_pod_has_addresses_and_container_statuses(sim: Simulated) -> None:
    sim.create(PODS, pod("a"))
    sim.bind("a")
    sim.advance(1)
    status = sim.get(PODS, "a")["status"]
    node = sim.get(NODES, "n0", "")
    assert status["hostIP"] == node["status"]["addresses"][0]["address"]
    assert status["podIP"].startswith("10.")
    assert status["startTime"] == "2023-11-14T22:13:21Z"
    assert status["containerStatuses"][0]["state"] == {"running": {"startedAt": "2023-11-14T22:13:21Z"}}


def test_pods_have_different_addresses(sim: Simulated) -> None:
    for name in ("a", "b"):
        sim.create(PODS, pod(name))
        sim.bind(name)
    sim.advance(1)
    assert sim.get(PODS, "a")["status"]["podIP"] != sim.get(PODS, "b")["status"]["podIP"]


def test_init_containers_have_ended_and_sidecars_run(sim: Simulated) -> None:
    first = {"name": "first", "image": "i"}
    side = {"name": "side", "image": "i", "restartPolicy": "Always"}
    sim.create(PODS, pod("a", initContainers=[first, side]))
    sim.bind("a")
    sim.advance(1)
    states = {each["name"]: list(each["state"]) for each in sim.get(PODS, "a")["status"]["initContainerStatuses"]}
    assert states == {"first": ["terminated"], "side": ["running"]}


def test_a_pod_succeeds_after_its_run_time(sim: Simulated) -> None:
    sim.create(PODS, pod("a", annotations={"vcd.sim/run-seconds": "60"}))
    sim.bind("a")
    sim.advance(60)
    assert sim.phases() == {"a": "Running"}
    sim.advance(1)
    assert sim.phases() == {"a": "Succeeded"}


def test_a_pod_without_run_time_runs_forever(sim: Simulated) -> None:
    sim.create(PODS, pod("a"))
    sim.bind("a")
    sim.advance(1e7)
    assert sim.phases() == {"a": "Running"}


@pytest.mark.parametrize("ages", ["inf", "1e300", "999999999999"])
def test_a_pod_that_runs_for_ages_runs_forever(sim: Simulated, ages: str) -> None:
    sim.create(PODS, pod("a", annotations={"vcd.sim/run-seconds": ages}))
    sim.bind("a")
    sim.advance(1)
    assert sim.clock.next_due() is None
    assert sim.phases() == {"a": "Running"}


def test_a_pod_with_an_exit_code_fails_with_it(sim: Simulated) -> None:
    sim.create(PODS, pod("a", annotations={"vcd.sim/run-seconds": "5", "vcd.sim/exit-code": "137"}))
    sim.bind("a")
    sim.advance(10)
    status = sim.get(PODS, "a")["status"]
    assert status["phase"] == "Failed"
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137


def test_an_ended_pod_is_not_ready(sim: Simulated) -> None:
    sim.create(PODS, pod("a", annotations={"vcd.sim/run-seconds": "5"}))
    sim.bind("a")
    sim.advance(10)
    assert not is_ready(sim.get(PODS, "a"))


def test_a_deleted_pod_stays_for_its_grace_period(sim: Simulated) -> None:
    sim.create(PODS, pod("a", terminationGracePeriodSeconds=20))
    sim.bind("a")
    sim.advance(5)
    sim.delete(PODS, "a")
    sim.advance(19)
    assert sim.names() == ["a"]
    sim.advance(1)
    assert sim.names() == []


def test_a_shorter_grace_period_takes_effect(sim: Simulated) -> None:
    sim.create(PODS, pod("a", terminationGracePeriodSeconds=100))
    sim.bind("a")
    sim.advance(5)
    sim.delete(PODS, "a")
    sim.delete(PODS, "a", grace_period=3)
    sim.advance(3)
    assert sim.names() == []


def test_a_deleted_pod_that_never_started_goes_at_once(sim: Simulated) -> None:
    sim.create(PODS, pod("a"))
    sim.bind("a")
    sim.delete(PODS, "a")
    assert sim.names() == []


def test_a_deleted_pod_does_not_end_in_between(sim: Simulated) -> None:
    sim.create(PODS, pod("a", annotations={"vcd.sim/run-seconds": "10"}, terminationGracePeriodSeconds=100))
    sim.bind("a")
    sim.advance(5)
    sim.delete(PODS, "a")
    sim.advance(50)
    assert sim.phases() == {"a": "Running"}


def test_a_pod_that_does_not_fit_is_rejected(sim: Simulated) -> None:
    sim.create(PODS, pod("a", cpu="40"))
    sim.create(PODS, pod("b", cpu="40"))
    sim.bind("a")
    sim.bind("b")
    sim.advance(1)
    assert sim.phases() == {"a": "Running", "b": "Failed"}
    assert sim.get(PODS, "b")["status"]["reason"] == "OutOfcpu"


def test_a_terminating_pod_still_takes_its_room(sim: Simulated) -> None:
    sim.create(PODS, pod("a", cpu="40"))
    sim.bind("a")
    sim.advance(1)
    sim.delete(PODS, "a")
    sim.create(PODS, pod("b", cpu="40"))
    sim.bind("b")
    assert sim.phases()["b"] == "Failed"


def test_an_ended_pod_gives_its_room_back(sim: Simulated) -> None:
    sim.create(PODS, pod("a", cpu="40", annotations={"vcd.sim/run-seconds": "5"}))
    sim.bind("a")
    sim.advance(10)
    sim.create(PODS, pod("b", cpu="40"))
    sim.bind("b")
    sim.advance(1)
    assert sim.phases() == {"a": "Succeeded", "b": "Running"}


def test_a_removed_pod_gives_its_room_back(sim: Simulated) -> None:
    sim.create(PODS, pod("a", cpu="40"))
    sim.bind("a")
    sim.advance(1)
    sim.delete(PODS, "a", grace_period=0)
    sim.create(PODS, pod("b", cpu="40"))
    sim.bind("b")
    sim.advance(1)
    assert sim.phases() == {"b": "Running"}


def test_a_node_takes_no_more_pods_than_it_may() -> None:
    sim = Simulated(pods="1")
    for name in ("a", "b"):
        sim.create(PODS, pod(name))
        sim.bind(name)
    sim.advance(1)
    assert sim.phases() == {"a": "Running", "b": "Failed"}


def test_a_pod_waits_for_a_node_that_comes_later(sim: Simulated) -> None:
    sim.create(PODS, pod("a"))
    sim.bind("a", "n9")
    sim.advance(5)
    sim.create(NODES, {"metadata": {"name": "n9"}, "status": {"capacity": {"cpu": "4", "memory": "4Gi", "pods": "9"}}})
    sim.advance(1)
    assert sim.phases() == {"a": "Running"}


def test_a_new_node_is_reported_ready(sim: Simulated) -> None:
    conditions = sim.get(NODES, "n0", "")["status"]["conditions"]
    assert {each["type"]: each["status"] for each in conditions} == {
        "Ready": "True",
        "MemoryPressure": "False",
        "DiskPressure": "False",
        "PIDPressure": "False",
    }


def test_a_condition_that_somebody_set_is_kept(sim: Simulated) -> None:
    down = [{"type": "Ready", "status": "False", "reason": "Broken"}]
    sim.create(NODES, {"metadata": {"name": "n5"}, "status": {"capacity": {"cpu": "4"}, "conditions": down}})
    conditions = sim.get(NODES, "n5", "")["status"]["conditions"]
    assert next(each for each in conditions if each["type"] == "Ready")["reason"] == "Broken"


def test_allocatable_is_the_capacity_where_it_is_not_given(sim: Simulated) -> None:
    assert sim.get(NODES, "n0", "")["status"]["allocatable"]["cpu"] == "64"


def test_a_node_without_pressure_is_not_tainted(sim: Simulated) -> None:
    assert "taints" not in sim.get(NODES, "n0", "")["spec"]


def test_a_senseless_annotation_stops_no_other_pod(sim: Simulated) -> None:
    sim.create(PODS, pod("a", annotations={"vcd.sim/run-seconds": "5", "vcd.sim/exit-code": "odd"}))
    sim.create(PODS, pod("b", annotations={"vcd.sim/run-seconds": "5"}))
    sim.create(PODS, pod("c", annotations={"vcd.sim/run-seconds": "nan"}))
    for name in ("a", "b", "c"):
        sim.bind(name)
    with capture_logs() as logs:
        sim.advance(10)
    assert sim.phases() == {"a": "Running", "b": "Succeeded", "c": "Running"}
    assert ["nan" in logs[0]["error"], "odd" in logs[1]["error"]] == [True, True]


def test_thousands_of_pods_need_one_timer_each() -> None:
    sim = Simulated(nodes=1, cpu="5000", pods="5000", memory="5000Gi")
    for index in range(1500):
        sim.store.create(PODS, pod(f"p{index}", annotations={"vcd.sim/run-seconds": "10"}))
        sim.store.bind("default", f"p{index}", {"target": {"name": "n0"}})
    sim.advance(1)
    assert set(sim.phases().values()) == {"Running"}
    sim.advance(10)
    assert set(sim.phases().values()) == {"Succeeded"}
