"""Acts of nodes and their administrators: nodes leave, return, shrink, are drained, relabelled and tainted."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.e2e.cluster import node
from tests.simulation.workload import refusable
from tests.simulation.world import world_of
from vcd.embedded.controllers.base import key_of, with_condition

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

Obj = dict[str, Any]


def lose_node(sim: Simulation, name: str, seconds: float, cpu: int) -> None:
    """A node goes, and one of its name joins after so many seconds, with so many cores; never if that is 0."""
    found = sim.store.find("nodes", None, name)
    if found is None:
        return
    with refusable():
        sim.store.delete("nodes", None, name)
    if seconds:
        made = node(name, cpu)
        made["metadata"]["labels"] = dict(found["metadata"].get("labels") or {})
        room = {**(found["status"].get("capacity") or {}), "cpu": str(cpu)}
        made["status"].update(allocatable=room, capacity=room)
        world = world_of(sim)
        world.away[name] = made
        sim.loop.call_later(seconds, world.give_back, name)


def cordon(sim: Simulation, name: str, on: bool) -> None:
    """An administrator lets nothing more onto a node, or something again."""
    with refusable():
        sim.store.patch("nodes", None, name, {"spec": {"unschedulable": on or None}})


def drain(sim: Simulation, name: str) -> None:
    """An administrator cordons a node and evicts its pods, as far as budgets let that happen."""
    cordon(sim, name, True)
    for each in sim.store.list("pods"):
        if each["spec"].get("nodeName") == name:
            with refusable():
                sim.store.evict(*key_of(each), {})


def set_ready(sim: Simulation, name: str, status: str) -> None:
    """A node's condition Ready becomes True, False, or Unknown, as where its kubelet is not heard of."""
    found = sim.store.find("nodes", None, name)
    if found is None:
        return
    conditions = (found.get("status") or {}).get("conditions") or ()
    fresh = with_condition(conditions, {"type": "Ready", "status": status}, sim.store.now)
    with refusable():
        sim.store.patch("nodes", None, name, {"status": {"conditions": fresh}}, "status")


def resize(sim: Simulation, name: str, room: dict[str, str]) -> None:
    """What a node can give changes, below what is used there, too, as where its system reserves more."""
    with refusable():
        sim.store.patch("nodes", None, name, {"status": {"allocatable": room}}, "status")


def relabel(sim: Simulation, name: str, labels: dict[str, str | None]) -> None:
    """A node's labels change."""
    with refusable():
        sim.store.patch("nodes", None, name, {"metadata": {"labels": labels}})


def taint(sim: Simulation, name: str, taints: list[Obj]) -> None:
    """A node's taints are set."""
    with refusable():
        sim.store.patch("nodes", None, name, {"spec": {"taints": taints}})


ACTS: dict[str, Callable[..., None]] = {
    each.__name__: each for each in (lose_node, cordon, drain, set_ready, resize, relabel, taint)
}
