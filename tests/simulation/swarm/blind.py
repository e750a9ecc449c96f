"""Stories of what chance alone seldom comes to: one identity for several replicas, logs that grow by bytes, plugins
that raise, conditions that others write, gates, weights that change."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.invariants.conditions import OTHERS
from tests.simulation.raising import ENTRY, RAISES
from tests.simulation.script import Act
from tests.simulation.swarm.draw import Draw
from tests.simulation.swarm.scenes import PREEMPTABLE, PREEMPTS
from tests.simulation.workload import GATE

WITH_RAISING = PREEMPTS.replace("- name: predicates", f"- name: predicates{ENTRY}")
"""A configuration with a third-party plugin."""
LOG_LIMIT = 256 * 1024
"""Bytes of --log-retention-size where a log grows by large events, with no checkpoint for their number."""
LARGE_EVENTS = {"log-retention-size": [str(LOG_LIMIT)], "checkpoint-interval": ["100000"]}


def one_identity(draw: Draw) -> Iterator[Act]:
    """All replicas have one identity for a while, in which gangs come; later each has its own again."""
    draw.replicas = 2
    at, seconds = draw.rng.uniform(2.0, 8.0), draw.pick((10.0, 25.0))
    yield draw.act(at, "share_identity", seconds)
    for number in range(draw.number(4, 8)):
        ends = {"annotations": {"vcd.sim/run-seconds": str(draw.number(2, 8))}}
        when = at + draw.rng.uniform(0.0, seconds)
        yield draw.act(when, "submit", f"gang-{number}", 1, draw.number(1, 2), 1, {}, ends)


def log_of_large_events(draw: Draw) -> Iterator[Act]:
    """A user writes large annotations again and again; the log stays near the size that it may have."""
    pods, size = draw.number(1, 3), draw.pick((4_000, 16_000))
    count = 8 * LOG_LIMIT // (pods * size)
    yield draw.act(1.0, "submit", "large", 1, pods, 0, {}, {})
    yield draw.act(3.0, "annotate_often", "large", size, count, 20.0 / count)
    if draw.often(0.5):
        yield draw.act(draw.rng.uniform(5.0, 20.0), "kill", -1, draw.pick((0.5, 3.0)))
    yield draw.act(60.0, "expect_log_below", 2 * LOG_LIMIT)


def plugin_that_raises(draw: Draw) -> Iterator[Act]:
    """A third-party plugin raises for the pods of one gang: where it forbids that gang waits, and no other one does;
    where it orders nobody waits."""
    draw.nodes["roomy"] = 8
    yield draw.act(0.0, "add_node", "roomy", 8, {})
    at, point = draw.rng.uniform(2.0, 4.0), draw.pick(("pre_predicate", "task_order", "pre_predicate task_order"))
    forbids, pods = "pre_predicate" in point, draw.number(1, 3)
    yield draw.act(at, "submit", "broken", pods, pods, 1, {}, {"annotations": {RAISES: point}})
    for number in range(draw.number(1, 3)):
        yield draw.act(at + draw.pick((0.0, 2.0)), "submit", f"whole-{number}", 1, 1, 1, {}, {})
        yield draw.act(at + 45.0, "expect_placed", f"whole-{number}", 1)
    if draw.often(0.3):
        yield draw.act(at + 3.0, "kill_leader", 2.0)
    yield draw.act(at + 45.0, *(("expect_waiting", "broken") if forbids else ("expect_placed", "broken", pods)))
    yield draw.act(at + 46.0, "edit_pods", "broken", 1, {"metadata": {"annotations": {RAISES: None}}})
    yield draw.act(at + 65.0, "expect_placed", "broken", pods)


def conditions_of_others(draw: Draw) -> Iterator[Act]:
    """Other controllers write conditions on groups and pods that wait, are placed and end, again and again."""
    total = sum(draw.nodes.values())
    gangs = [f"gang-{number}" for number in range(draw.number(2, 4))]
    for name in gangs:
        pods = draw.number(1, total)
        ends = {"annotations": {"vcd.sim/run-seconds": str(draw.number(3, 12))}}
        yield draw.act(draw.rng.uniform(1.0, 4.0), "submit", name, pods, pods, 1, {}, ends)
    for number in range(draw.number(6, 16)):
        kind = draw.pick(("Checked", "Admitted"))
        condition = {
            "type": f"{OTHERS}{kind}", "status": draw.pick(("True", "False")), "reason": f"Number{number}",
            "message": "by others",
        }  # fmt: skip
        what = draw.pick(("group", "pod"))
        yield draw.act(draw.rng.uniform(3.0, 25.0), "write_condition", what, draw.pick(gangs), condition)


def gates_that_are_lifted(draw: Draw) -> Iterator[Act]:
    """A gang's pods are made with a gate, of some or of all; none is placed before so many of them have none that its
    minimum is there."""
    draw.nodes["roomy"] = 8
    yield draw.act(0.0, "add_node", "roomy", 8, {})
    at, pods = draw.rng.uniform(2.0, 4.0), draw.number(2, 4)
    gated = {"spec": {"schedulingGates": [{"name": GATE}]}}
    free = draw.number(0, pods - 1)
    yield draw.act(at, "submit", "gated", pods, free, 1, {}, {})
    yield draw.act(at, "add_pods", "gated", free, pods - free, 1, gated)
    yield draw.act(at + 0.5, "submit", "beside", 1, 1, 1, {}, {})
    yield draw.act(at + 15.0, "expect_placed", "beside", 1)
    yield draw.act(at + 15.0, "expect_waiting", "gated")
    if draw.often(0.3):
        yield draw.act(at + 16.0, "kill_leader", 2.0)
    if pods - free > 1 and draw.often(0.5):
        yield draw.act(at + 20.0, "delete", "pod", "default", f"gated-{pods - 1}")
        yield draw.act(at + 21.0, "lift_gates", "gated", 1)
        yield draw.act(at + 40.0, "expect_waiting", "gated")
        yield draw.act(at + 41.0, "add_pods", "gated", pods - 1, 1, 1, {})
    else:
        yield draw.act(at + 40.0, "lift_gates", "gated", 1)
    yield draw.act(at + 75.0, "expect_placed", "gated", pods)


def weights_that_change(draw: Draw) -> Iterator[Act]:
    """Weights of plugins and of queues are written anew: the next gangs are placed by the new ones."""
    spread, pack = (
        PREEMPTS.replace("preempt", "reclaim")
        + f"  - name: binpack\n    arguments: {{binpack.weight: {binpack}}}\n"
        + f"  - name: nodeorder\n    arguments: {{leastrequested.weight: {least}, balancedresource.weight: 0}}\n"
        for binpack, least in ((0, 10), (10, 0))
    )
    orders = [(spread, 2), (pack, 1)]
    if draw.often(0.5):
        orders.reverse()
    for number in range(2):
        yield draw.act(0.0, "add_node", f"weighed-{number}", 4, {"labels": {"weighed": "yes"}})
    for number, (text, nodes) in enumerate(orders):
        at, name = 3.0 + 20.0 * number, f"pair-{number}"
        ends = {"annotations": {"vcd.sim/run-seconds": "8"}, "spec": {"nodeSelector": {"weighed": "yes"}}}
        yield draw.act(at, "configure", text)
        yield draw.act(at + 6.0, "submit", name, 2, 2, 1, {}, ends)
        yield draw.act(at + 13.0, "expect_nodes", name, nodes)
    total = sum(draw.nodes.values()) + 8
    for name in ("light", "heavy"):
        yield draw.act(40.0, "add_queue", name, {"weight": 1, "reclaimable": True}, {})
        yield draw.act(41.0, "submit", name, 1, total, 1, {"queue": name}, PREEMPTABLE)
    yield draw.act(60.0, "expect_placed", "light", total // 2 - 1)
    yield draw.act(61.0, "edit", "queue", "", "heavy", {"spec": {"weight": 1000}})
    for number in range(2):  # gangs that wait reclaim: one that has its minimum does not
        yield draw.act(64.0, "submit", f"late-{number}", 1, 1, 1, {"queue": "heavy"}, {})
        yield draw.act(110.0, "expect_placed", f"late-{number}", 1)
