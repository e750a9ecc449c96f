"""What others do in the very moment in which a replica does something about the same, or again and again."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.simulation.faults.aim import WHAT, add_draw, affected, chosen, later
from tests.simulation.nodes import cordon
from tests.simulation.road import Road, Way
from tests.simulation.workload import refusable, submit

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

Obj = dict[str, Any]
_POD = re.compile(r"/api/v1/namespaces/([^/]+)/pods/([^/?]+)")
_CORES = 3
"""What a pod asks for that waits."""
_GIVEN = ("nodeName", "nominatedNodeName")
"""What a pod's owner does not say in its spec."""


def remake_pod(sim: Simulation, replica: int, number: int, what: str) -> None:
    """As a replica makes its ``number``-th next request of those that are meant, its pod is deleted, and another one of
    the same name made."""
    for each in chosen(sim, replica):
        _at_pod(sim, each.road, number, what, "remake_pod", partial(_remake, sim))


def bind_pod(sim: Simulation, replica: int, number: int) -> None:
    """As a replica binds a pod, its ``number``-th from now on, another scheduler binds it, too, and is faster."""
    for each in chosen(sim, replica):
        _at_pod(sim, each.road, number, "bindings", "bind_pod", partial(_bind, sim))


def _at_pod(sim: Simulation, road: Road, number: int, what: str, name: str, act: Callable[[str, str], None]) -> None:
    left, meant = number, WHAT[what]

    def draw(method: str, path: str, way: Way) -> None:
        nonlocal left
        pod = _POD.match(path)
        if pod is None or not meant(method, path):
            return
        left -= 1
        if left <= 0:
            road.draws.remove(draw)
            road.affected[name] += 1
            act(*pod.groups())

    road.draws.append(draw)


def _remake(sim: Simulation, namespace: str, name: str) -> None:
    found = sim.store.find("pods", namespace, name)
    if found is None:
        return
    metadata = {key: found["metadata"].get(key) or {} for key in ("labels", "annotations")}
    spec = {key: value for key, value in found["spec"].items() if key not in _GIVEN}
    with refusable():
        sim.store.delete("pods", namespace, name, grace_period=0)
        sim.store.create("pods", {"metadata": {"namespace": namespace, "name": name, **metadata}, "spec": spec})


def _bind(sim: Simulation, namespace: str, name: str) -> None:
    nodes = [each["metadata"]["name"] for each in sim.store.list("nodes")]
    if nodes:
        with refusable():
            sim.store.bind(namespace, name, {"target": {"name": sim.loop.rng.choice(nodes)}})


def flap(sim: Simulation, name: str, seconds: float, every: float) -> None:
    """A node is cordoned and uncordoned in turn, for so long, each ``every`` seconds, while a gang waits that is too
    large for all of them, so that there are new reasons for it each time."""
    until = sim.loop.time() + seconds
    pods = sum(int(each["status"]["capacity"]["cpu"]) for each in sim.store.list("nodes")) // _CORES + 2
    submit(sim, f"waits-for-{name}", pods, pods, _CORES, {})

    def turn(on: bool) -> None:
        if sim.calm or sim.loop.time() >= until:
            cordon(sim, name, False)
            return
        cordon(sim, name, on)
        later(sim, every, partial(turn, not on))

    turn(True)


def hear_late(sim: Simulation, replica: int, seconds: float, late: float) -> None:
    """All that a replica asks for and says arrives ``late`` seconds late, for so long."""

    def slow(method: str, path: str, way: Way) -> None:
        way.there += late / 2
        way.back += late / 2

    for each in affected(sim, replica, "hear_late"):
        add_draw(sim, each.road, seconds, slow)


ACTS: dict[str, Callable[..., None]] = {act.__name__: act for act in (remake_pod, bind_pod, flap, hear_late)}
