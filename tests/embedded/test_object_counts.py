"""What a cluster holds, counted as it changes; and the removal of what has ended."""

from __future__ import annotations

from tests.embedded.simulated import Simulated
from vcd.embedded.controllers.controller_base import PODGROUPS, PODS, Obj
from vcd.embedded.controllers.finished_controller import FinishedController
from vcd.embedded.object_counts import ClusterTally
from vcd.embedded.workload_generator import gang, pod, pod_spec


def _gang(count: int, cpu: str = "2", run: str = "10") -> list[tuple[str, Obj]]:
    members = [pod(f"p{i}", pod_spec({"cpu": cpu}), {"vcd.sim/run-seconds": run}) for i in range(count)]
    return list(gang("g", "default", members))


def _counted(count: int, **more: str) -> tuple[Simulated, ClusterTally]:
    cluster = Simulated(1)
    tally = ClusterTally(cluster.store)
    for resource, obj in _gang(count, **more):
        cluster.create(resource, obj)
    return cluster, tally


def _bind(cluster: Simulated, *names: str) -> None:
    for name in names:
        cluster.bind(name)
    cluster.settle()


def test_pods_without_a_node_are_unbound() -> None:
    _, tally = _counted(3)
    assert (tally.unbound, tally.binds) == (3, 0)


def test_a_bind_is_counted() -> None:
    cluster, tally = _counted(3)
    _bind(cluster, "p0", "p1")
    assert (tally.binds, tally.unbound) == (2, 1)


def test_a_group_is_as_ready_as_it_has_pods_with_a_node() -> None:
    cluster, tally = _counted(3)
    _bind(cluster, "p0", "p1")
    assert (tally.groups["default/g"].ready, tally.groups["default/g"].minimum) == (2, 3)


def test_a_pod_that_ended_is_counted() -> None:
    cluster, tally = _counted(1)
    _bind(cluster, "p0")
    cluster.advance(20)
    assert (tally.phases["Running"], tally.ended["Succeeded"]) == (0, 1)


def test_pods_that_are_gone_still_count_as_ended_and_bound() -> None:
    cluster, tally = _counted(1)
    _bind(cluster, "p0")
    cluster.advance(20)
    cluster.delete(PODS, "p0")
    assert (tally.phases["Succeeded"], tally.ended["Succeeded"], tally.binds) == (0, 1, 1)


def test_a_completed_group_is_counted_once_and_listed_no_more() -> None:
    cluster, tally = _counted(1)
    for phase in ("Running", "Completed", "Completed"):
        cluster.store.patch(PODGROUPS, "default", "g", {"status": {"phase": phase}})
    assert (tally.completed, tally.groups) == (1, {})


def test_a_tally_begins_with_what_is_there() -> None:
    cluster, tally = _counted(3)
    _bind(cluster, "p0")
    later = ClusterTally(cluster.store)
    assert (later.unbound, later.phases, later.groups) == (2, tally.phases, tally.groups)


# --- what ended is removed ----------------------------------------------------------------------------------------


def _removing(after: float) -> Simulated:
    cluster = Simulated(1)
    controller = FinishedController(cluster.cluster.manager, after)
    cluster.cluster.manager.add(controller)
    for resource, obj in _gang(2):
        cluster.create(resource, obj)
    _bind(cluster, "p0", "p1")
    return cluster


def test_pods_are_removed_some_time_after_their_end() -> None:
    cluster = _removing(60.0)
    cluster.advance(30)
    before = len(cluster.store.list(PODS))
    cluster.advance(60)
    assert (before, cluster.store.list(PODS)) == (2, [])


def test_a_group_is_removed_with_its_last_pod() -> None:
    cluster = _removing(60.0)
    cluster.advance(30)
    before = len(cluster.store.list(PODGROUPS))
    cluster.advance(60)
    assert (before, cluster.store.list(PODGROUPS)) == (1, [])
