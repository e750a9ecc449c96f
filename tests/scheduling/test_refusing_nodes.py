"""Nodes for which the API server refused to bind a pod come after the others (docs/semantics/actions.md)."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from tests.dsl import BARE, Manifest, flat, gang, node, pod, priority_class, queue
from tests.laws.tracing import Counts, differences
from tests.scheduling.test_backoff import (
    HIGH,
    PREEMPTING,
    SECOND,
    TAKES,
    TAKING,
    Refusing,
    refused_preemptor,
    rest,
    urgent,
)
from vcd.model import events as ev
from vcd.scheduling import decide
from vcd.scheduling.session_close import plan_of
from vcd.state.backoff import RefusalBackoff, after_refusal
from vcd.state.cluster_state import ClusterState
from vcd.state.snapshot import SnapshotMaker

PACKING = """\
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
- plugins:
  - name: predicates
  - name: PLUGIN
  - name: nodeorder
  - name: binpack
"""
CONFS = pytest.mark.parametrize(
    "conf", [BARE, *(PACKING.replace("PLUGIN", name) for name in ("drf", "proportion", "capacity"))]
)


def at(*nodes: str) -> Callable[[ev.Operation], bool]:
    """Binds to these nodes are refused."""
    return lambda operation: operation.verb == "bind" and operation.node in nodes


def better_first(*names: str, cpu: int = 8) -> list[Manifest]:
    """Nodes of which the first is rated best by binpack, since it is used most; without scores its name is first."""
    used = [gang(f"used-{name}", 1, on=[name], cpu=len(names) - place) for place, name in enumerate(names)]
    return flat(node(name, cpu=cpu + len(names) - place) for place, name in enumerate(names)) + flat(used)


class Nodes(Refusing):
    """A cluster that notes to which nodes binds were refused, and decides each session again from a checkpoint."""

    def cycle(self) -> ev.Plan:
        self.tried: list[str] = getattr(self, "tried", [])
        again = SnapshotMaker(ClusterState.load(self.state.dump())).snapshot()
        now = self.now
        plan = super().cycle()
        assert ev.encode_plan(plan_of(decide.run(again, self.policy, now, 0))) == ev.encode_plan(plan)
        self.tried += [op.node for op in plan.operations("bind") if self.refuses(op)]
        return plan


@CONFS
def test_a_pod_whose_bind_one_node_refuses_gets_another(conf: str) -> None:
    world = Nodes(*better_first("n1", "n2", "n3"), gang("g", 1, cpu=1), refuses=at("n1"), conf=conf)
    world.cycle()
    assert world.tried == ["n1"]
    world.run(1)
    assert world.placed("g") == {"g-0": "n2"}
    assert not world.state.backoffs


@pytest.mark.parametrize("size", [2, 3, 20])
@CONFS
def test_a_gang_gets_another_node(conf: str, size: int) -> None:
    world = Nodes(*better_first("n1", "n2", cpu=20), gang("g", size, cpu=1), refuses=at("n1"), conf=conf)
    world.run(1)
    assert world.tried == ["n1"] * size
    assert world.placed("g-") == {f"g-{number}": "n2" for number in range(size)}


@pytest.mark.parametrize("size", [3, 5])
def test_one_pod_of_a_gang_gets_another_node(size: int) -> None:
    """One pod of a gang is refused on any of two nodes, the others nowhere."""
    world = Nodes(
        *[node(f"n{number}", cpu=size) for number in range(3)],
        gang("g", size, cpu=1),
        refuses=lambda op: op.key == "default/g-1" and op.node in ("n0", "n1"),
    )
    world.run(3)
    assert world.tried == ["n0", "n1"]
    assert world.placed() == {f"g-{number}": "n2" if number == 1 else "n0" for number in range(size)}
    world.cycle()
    assert not world.state.stranded


@pytest.mark.parametrize("nodes", [1, 2, 3])
@pytest.mark.parametrize("size", [1, 3])
def test_where_all_nodes_refuse_they_are_tried_in_turn_ever_more_rarely(size: int, nodes: int) -> None:
    names = [f"n{number}" for number in range(nodes)]
    world = Nodes(*[node(name, cpu=size) for name in names], gang("g", size, cpu=1), refuses=at(*names))
    world.run(40)
    assert [second for second, name in world.attempts if name == "g-0"] == [0, 1, 3, 7, 15, 31]
    assert world.tried[::size] == [names[number % nodes] for number in range(6)]
    assert world.state.backoffs["default/g-0"].nodes == tuple(dict.fromkeys(reversed(world.tried)))[::-1]


@pytest.mark.parametrize("allows", ["n0", "n1", "n2"])
def test_a_node_that_refused_once_is_tried_again_after_the_others(allows: str) -> None:
    refuses = ["n0", "n1", "n2"]
    world = Nodes(
        *[node(f"n{number}", cpu=1) for number in range(3)],
        gang("g", 1, cpu=1),
        refuses=lambda op: op.node in refuses,
    )
    world.run(7)
    assert world.tried == ["n0", "n1", "n2", "n0"]
    refuses.remove(allows)
    world.run(60)
    assert world.placed() == {"g-0": allows}


def test_a_node_on_which_pods_terminate_is_not_waited_for() -> None:
    """The refusing node has idle resources, the other one will have some: the back-off goes on as before."""
    world = Nodes(node("n1", cpu=1), node("n2", cpu=1), gang("g", 1, cpu=1), refuses=at("n1"))
    world.put(pod("old", cpu=1, on="n2", phase="Running", deleting=True))
    world.run(7)
    assert world.tried == ["n1"] * 4
    world.remove("Pod", "default/old")
    world.run(8)
    assert world.placed() == {"g-0": "n2"}


def test_a_full_node_is_no_other_node() -> None:
    full = gang("full", 1, cpu=1, on=["n2"], phase="Running")
    world = Nodes(node("n1", cpu=1), node("n2", cpu=1), full, gang("g", 1, cpu=1), refuses=at("n1"))
    world.run(7)
    assert world.tried == ["n1"] * 4
    assert world.placed("g") == {}


def test_a_nominated_node_that_refuses_comes_after_others() -> None:
    nominated = pod("g-0", group="g", cpu=1)
    nominated["status"]["nominatedNodeName"] = "n2"
    group, _ = gang("g", 1, cpu=1)
    world = Nodes(node("n1", cpu=1), node("n2", cpu=1), group, nominated, refuses=at("n2"))
    world.run(1)
    assert world.tried == ["n2"]
    assert world.placed() == {"g-0": "n1"}


def test_a_best_effort_pod_gets_another_node() -> None:
    conf = PACKING.replace("PLUGIN", "proportion")
    best_effort = gang("g", 1, requests={}, minimum={})
    world = Nodes(node("n1"), node("n2"), best_effort, refuses=at("n1"), conf=conf)
    world.run(1)
    assert world.placed() == {"g-0": "n2"}


@pytest.mark.parametrize("count", [2, 10])
def test_equivalent_jobs_get_another_node_each(count: int) -> None:
    jobs = [gang(f"g{number}", 1, cpu=1, created=number) for number in range(count)]
    world = Nodes(node("n1", cpu=count), node("n2", cpu=count), *jobs, refuses=at("n1"))
    world.run(1)
    assert world.placed() == {f"g{number}-0": "n2" for number in range(count)}


def test_a_part_of_a_job_gets_another_node() -> None:
    parts = {"subGroupPolicy": [{"name": "part", "subGroupSize": 2, "minSubGroups": 2, "matchLabelKeys": ["part"]}]}
    group, *pods = gang("g", 4, cpu=1, group_spec=parts)
    for number, each in enumerate(pods):
        each["metadata"].setdefault("labels", {})["part"] = str(number // 2)
    world = Nodes(node("n1", cpu=4), node("n2", cpu=4), group, pods, refuses=at("n1"))
    world.run(1)
    assert world.placed() == {f"g-{number}": "n2" for number in range(4)}


@pytest.mark.parametrize("size", [1, 3])
def test_a_preemptor_whose_node_refuses_gets_the_idle_one(size: int) -> None:
    """Its victims leave n1; n2 becomes idle while it backs off."""
    world = Nodes(
        *[node(name, cpu=size + 1) for name in ("n1", "n2")],
        priority_class("high", 9),
        gang("low", size + 1, members=1, cpu=1, on=["n1"] * (size + 1)),
        gang("done", 1, cpu=size + 1, on=["n2"], group_spec=HIGH, spec={"priority": 9}),
        refuses=at("n1"),
        conf=PREEMPTING,
    )
    world.put(gang("high", size, cpu=1, group_spec=HIGH, spec={"priority": 9}))
    for _ in range(3):
        world.cycle()
    assert world.tried == ["n1"] * size
    world.remove("Pod", "default/done-0")
    world.run(2)
    assert world.placed("high") == {f"high-{number}": "n2" for number in range(size)}


# --- what ends it -----------------------------------------------------------------------------------------------------

ENDS: dict[str, Callable[[Nodes], None]] = {
    "another spec": lambda world: world.put(pod("g-0", group="g", cpu=2)),
    "replaced": lambda world: world.put(
        {**(p := pod("g-0", group="g", cpu=1)), "metadata": {**p["metadata"], "uid": "x"}}
    ),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_it_ends_with_the_back_off(end: Callable[[Nodes], None]) -> None:
    world = Nodes(node("n1", cpu=2), node("n2", cpu=2), gang("g", 1, cpu=1), refuses=at("n1"))
    world.cycle()
    end(world)
    world.cycle()
    assert world.tried == ["n1", "n1"]


def test_an_outage_is_no_refusal_of_a_node() -> None:
    """A webhook that does not answer would cost each waiting pod its best node."""
    world = Nodes(node("n1", cpu=1), node("n2", cpu=1), gang("g", 1, cpu=1), refuses=at())
    for _ in range(3):
        plan = world.decide()
        assert [op.node for op in plan.operations("bind")] == ["n1"]
        world.happen(ev.OperationDone(world.state.session, 0, 0, "failed", "500", world.now, is_outage=True))
        world.now = world.state.backoffs["default/g-0"].until
    assert world.state.backoffs["default/g-0"].nodes == ()
    assert "refused to bind the pod (refusals" not in world.reasons("g")


@pytest.mark.parametrize("result", ["conflict", "gone"])
def test_nor_is_a_pod_that_is_another_one(result: ev.Result) -> None:
    world = Nodes(node("n1", cpu=1), gang("g", 1, cpu=1), refuses=at())
    world.decide()
    world.happen(ev.OperationDone(1, 0, 0, result, "409", world.now))
    assert world.state.backoffs["default/g-0"].nodes == ()


def test_the_nodes_that_refused_last_are_stored() -> None:
    found: RefusalBackoff | None = None
    for number in range(250):
        found = after_refusal(found, "uid", "bind", SECOND, "no", node=f"n{number % 200}")
    assert found is not None
    assert found.nodes == tuple(f"n{number % 200}" for number in range(150, 250))


def test_a_record_without_nodes_is_read() -> None:
    """As checkpoints from before nodes were stored hold it."""
    record = RefusalBackoff("uid", "bind", 2, SECOND, "no")
    assert b"nodes" not in msgspec.msgpack.encode(record)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(record), type=RefusalBackoff) == record


# --- reasons ----------------------------------------------------------------------------------------------------------


def test_the_reason_names_the_nodes() -> None:
    world = Nodes(node("n1", cpu=1), node("n2", cpu=1), gang("g", 1, cpu=1), refuses=at("n1", "n2"))
    world.run(1)
    world.cycle()
    assert "a webhook denied it; it is tried again at" in world.reasons("g")
    assert "on nodes other than n1, n2 first" in world.reasons("g")


@pytest.mark.parametrize("refusing", [("n1",), ("n1", "n2"), ("n1", "n2", "n3")])
@CONFS
def test_the_trace_of_a_session_states_the_choice(conf: str, refusing: tuple[str, ...]) -> None:
    world = Nodes(*better_first("n1", "n2", "n3"), gang("g", 2, cpu=1), refuses=at(*refusing), conf=conf)
    for _ in range(5):
        snapshot, now = world.maker.snapshot(), world.now
        plan, seen = world.cycle(), Counts()
        assert differences(snapshot, world.policy, now, 0, ev.encode_plan(plan), seen) == []
        assert seen.choices or not list(plan.operations("bind"))
        world.now += 8 * SECOND


def test_no_queue_exceeds_its_capability_by_it() -> None:
    conf = PACKING.replace("PLUGIN", "capacity")
    jobs = [gang(f"g{number}", 1, cpu=1, queue="q", created=number) for number in range(3)]
    limited = queue("q", capability={"cpu": "2"})
    world = Nodes(node("n1"), node("n2"), limited, *jobs, refuses=at("n1"), conf=conf)
    world.run(10)
    assert sorted(world.placed().values()) == ["n2", "n2"]


@pytest.mark.parametrize("size", [3, 5])
@TAKES
def test_a_preemptor_evicts_on_another_node(action: str, size: int) -> None:
    """Each evicted pod comes back, so that no node is idle."""
    world = refused_preemptor(action, size, ())
    refused = at(*(f"n{number}" for number in range(size - 1)))
    world.refuses = lambda op: refused(op) and "urgent" in op.key
    urgent(world, "urgent")
    rest(world)
    assert world.placed("urgent") == {"urgent-0": f"n{size - 1}"}
    assert len(world.evicted) == size


@pytest.mark.parametrize("others", [8, 12])
@pytest.mark.parametrize("action", ["preempt", "reclaim"])
@pytest.mark.parametrize("nodes", [2, 4])
def test_a_preemptor_evicts_on_another_node_though_other_jobs_fill_the_first(
    action: str, nodes: int, others: int
) -> None:
    owner, lender = ("owner", "lender") if "reclaim" in action else ("owner", "owner")
    refusing = [f"n{number}" for number in range(nodes - 1)]
    world = Refusing(
        *[node(f"n{number}", cpu=2) for number in range(nodes)],
        queue("owner", deserved={"cpu": str(2 * nodes), "memory": "64Gi"}),
        queue("lender", deserved={"cpu": "0"}),
        priority_class("high", 1000),
        *[gang(f"low{number}", 1, queue=lender, cpu=2, created=number) for number in range(others)],
        refuses=lambda op: op.verb == "bind" and "urgent" in op.key and op.node in refusing,
        conf=TAKING.replace("ACTION", action),
    )
    world.cycle()
    urgent(world, "urgent", owner)
    assert world.placed("urgent") == {"urgent-0": f"n{nodes - 1}"}
    assert len(world.evicted) == nodes


@pytest.mark.parametrize("nodes", [2, 4])
def test_comparing_the_loss_puts_refusing_nodes_last(nodes: int) -> None:
    """The victims on the node that refuses are the least loss."""
    conf = TAKING.replace("ACTION", "preempt")
    conf += "configurations:\n- name: preempt\n  arguments:\n"
    conf += "    enableTopologyAwarePreemption: true\n    minCandidateNodesAbsolute: 100\n"
    victims = [gang(f"low{n}", 1, on=[f"n{n}"], cpu=2, phase="Running", spec={"priority": n}) for n in range(1, nodes)]
    later = [gang(f"later{n}", 1, cpu=2, created=9 + n, spec={"priority": -1}) for n in range(5)]
    world = Refusing(
        *[node(f"n{number}", cpu=2) for number in range(nodes)],
        priority_class("high", 1000),
        *victims,
        *later,
        refuses=lambda op: op.verb == "bind" and "urgent" in op.key and op.node == "n0",
        conf=conf,
    )
    world.cycle()
    assert world.placed("later") == {"later0-0": "n0"}
    urgent(world, "urgent", "default")
    assert world.placed("urgent") == {"urgent-0": "n1"}
    assert world.evicted == ["default/later0-0", "default/low1-0"]
