"""Whom and what a fault is for, and how long it lasts: what the acts of this package share."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, TypeVar

from tests.simulation.road import Draw, Road, Way

if TYPE_CHECKING:
    from tests.simulation.replica import Replica
    from tests.simulation.simulation import Simulation

WHAT: dict[str, Callable[[str, str], bool]] = {
    "all": lambda method, path: True,
    "reads": lambda method, path: method == "GET",
    "lists": lambda method, path: method == "GET" and "limit=" in path,
    "watches": lambda method, path: method == "WATCH",
    "writes": lambda method, path: method not in ("GET", "WATCH"),
    "lease": lambda method, path: "/leases" in path,
    "bindings": lambda method, path: method == "POST" and "/binding" in path,
    "deletes": lambda method, path: method == "DELETE",
    "status": lambda method, path: method in ("PUT", "PATCH") and ("/status" in path or "/podgroups/" in path),
    "events": lambda method, path: method in ("POST", "PATCH") and "/events" in path,
}
"""Requests that a fault can be for, by method (WATCH for a watch) and path."""

F = TypeVar("F", bound=Hashable)
Effect = Callable[[str, str, Way], bool]
"""Changes what becomes of a request, and says whether it did."""


def chosen(sim: Simulation, replica: int) -> list[Replica]:
    """The replica of a number, or all for a negative one."""
    return list(sim.replicas) if replica < 0 else [sim.replicas[replica % len(sim.replicas)]]


def affected(sim: Simulation, replica: int, name: str, *, runs: bool = False) -> list[Replica]:
    """The chosen, on each of which an act of a name has an effect; where its program ``runs``, if it has to."""
    found = [each for each in chosen(sim, replica) if not runs or (each.machine is not None and each.machine.alive)]
    for each in found:
        each.road.affected[name] += 1
    return found


def later(sim: Simulation, seconds: float, what: Callable[[], None]) -> None:
    """Do something in the world, whoever asks for it."""
    sim.loop.call_later(max(0.0, seconds), what, context=sim.loop.world.context())


def lasts(sim: Simulation, fault: Hashable, seconds: float, end: Callable[[], None]) -> None:
    """Let a fault end after so long, unless the same goes on for longer."""
    all_last(sim, [fault], seconds, lambda _: end())


def all_last(sim: Simulation, faults: Sequence[F], seconds: float, end: Callable[[F], None]) -> None:
    """Let each of some faults end after so long, unless it goes on for longer."""
    for fault in faults:
        sim.ends[fault] = max(sim.ends.get(fault, 0.0), sim.loop.time() + seconds)

    def look() -> None:
        for fault in faults:
            if sim.ends.get(fault, math.inf) <= sim.loop.time():
                del sim.ends[fault]
                end(fault)

    later(sim, seconds, look)


def spoil(
    sim: Simulation, replica: int, seconds: float, share: float, what: str, name: str, effect: Effect
) -> None:  # fmt: skip
    """For so long, let an effect befall a share of the requests that are meant."""
    meant = WHAT[what]
    for each in chosen(sim, replica):
        add_draw(sim, each.road, seconds, _spoiled(sim, each.road, share, meant, name, effect))


def _spoiled(
    sim: Simulation, road: Road, share: float, meant: Callable[[str, str], bool], name: str, effect: Effect
) -> Draw:  # fmt: skip
    def draw(method: str, path: str, way: Way) -> None:
        if meant(method, path) and sim.loop.rng.random() < share and effect(method, path, way):
            road.affected[name] += 1

    return draw


def add_draw(sim: Simulation, road: Road, seconds: float, draw: Draw) -> None:
    """For so long, let a draw hold."""
    road.draws.append(draw)

    def end() -> None:
        if draw in road.draws:
            road.draws.remove(draw)

    later(sim, seconds, end)


def count(sim: Simulation, seconds: float, what: str, name: str) -> None:
    """For so long, count the requests on which something has an effect that is done elsewhere."""
    meant = WHAT[what]
    for each in sim.replicas:
        add_draw(sim, each.road, seconds, _counted(each.road, meant, name))


def _counted(road: Road, meant: Callable[[str, str], bool], name: str) -> Draw:
    def draw(method: str, path: str, way: Way) -> None:
        road.affected[name] += meant(method, path)

    return draw


def at_request(replica: Replica, number: int, what: str, name: str, act: Callable[[Way], object]) -> None:
    """Let something befall the ``number``-th request from now on (1: the next) of those that are meant, once. ``act``
    says False where nothing came of it."""
    left, road, meant = number, replica.road, WHAT[what]

    def draw(method: str, path: str, way: Way) -> None:
        nonlocal left
        if not meant(method, path):
            return
        left -= 1
        if left <= 0:
            road.draws.remove(draw)
            road.affected[name] += act(way) is not False

    road.draws.append(draw)


def at_write(replica: Replica, number: int, name: str, act: Callable[[bool], bool]) -> None:
    """Let something befall the ``number``-th write to the log from now on (1: the next): ``act`` is told of it before
    (False) and after it (True), until it says that it has acted."""
    left, plans = number, replica.drive.plans

    def plan(done: bool) -> None:
        nonlocal left
        left -= not done
        if left <= 0 and act(done):
            plans.remove(plan)
            replica.road.affected[name] += 1

    plans.append(plan)
