"""Acts of nodes and their administrators: nodes leave, return and shrink, are drained, relabelled and tainted."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.e2e.cluster import node
from tests.simulation.workload import refusable
from tests.simulation.world import world_of
from vcd.embedded.controllers.controller_base import key_of, with_condition

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

Obj = dict[str, Any]


def lose_node(sim: Simulation, name: str, seconds: float, cpu: int) -> None:
    """Remove a node. After some seconds (never if 0), a node of its name with some cores joins."""
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
    """Cordon or uncordon a node."""
    with refusable():
        sim.store.patch("nodes", None, name, {"spec": {"unschedulable": on or None}})


def drain(sim: Simulation, name: str) -> None:
    """Cordon a node and evict its pods as far as budgets permit."""
    cordon(sim, name, True)
    for each in sim.store.list("pods"):
        if each["spec"].get("nodeName") == name:
            with refusable():
                sim.store.evict(*key_of(each), {})


def set_ready(sim: Simulation, name: str, status: str) -> None:
    """Set a node's condition Ready to True, False, or Unknown, as if its kubelet were silent."""
    found = sim.store.find("nodes", None, name)
    if found is None:
        return
    conditions = (found.get("status") or {}).get("conditions") or ()
    fresh = with_condition(conditions, {"type": "Ready", "status": status}, sim.store.now)
    with refusable():
        sim.store.patch("nodes", None, name, {"status": {"conditions": fresh}}, "status")


def resize(sim: Simulation, name: str, room: dict[str, str]) -> None:
    """Change a node's allocatable, also below the used quantity, as if its system reserved more."""
    with refusable():
        sim.store.patch("nodes", None, name, {"status": {"allocatable": room}}, "status")


def relabel(sim: Simulation, name: str, labels: dict[str, str | None]) -> None:
    """Change a node's labels."""
    with refusable():
        sim.store.patch("nodes", None, name, {"metadata": {"labels": labels}})


def taint(sim: Simulation, name: str, taints: list[Obj]) -> None:
    """Set a node's taints."""
    with refusable():
        sim.store.patch("nodes", None, name, {"spec": {"taints": taints}})


ACTS: dict[str, Callable[..., None]] = {
    each.__name__: each for each in (lose_node, cordon, drain, set_ready, resize, relabel, taint)
}
