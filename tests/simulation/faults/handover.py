"""What goes wrong with who leads as it is amid something: it ends amid its calls, the next hears of them late, and what
a session was decided on is gone before it ends."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.simulation.faults.aim import at_request, later, spoil
from tests.simulation.faults.leaders import when_led
from tests.simulation.faults.network import answer_of, delay
from tests.simulation.faults.processes import busy
from tests.simulation.road import Way
from tests.simulation.workload import delete_pods, edit_pods, submit_bare

if TYPE_CHECKING:
    from tests.simulation.replica import Replica
    from tests.simulation.simulation import Simulation

_LOOK, _PATIENCE = 0.05, 15.0
"""Seconds between two looks at whether it decides, and for which that may go on."""


def blind_handover(sim: Simulation, number: int, late: float, seconds: float) -> None:
    """Who leads is killed when its ``number``-th next bind is done, and is back after so long; until then what watches
    tell the others arrives ``late`` seconds late."""
    when_led(sim, partial(_blind_handover, sim, number, late, seconds))


def _blind_handover(sim: Simulation, number: int, late: float, seconds: float, led: Replica) -> None:
    def act(way: Way) -> None:
        way.done = partial(led.kill, pause=seconds)

    for each in sim.replicas:
        delay(sim, each, seconds, late, "late")
    at_request(led, number, "bindings", "blind_handover", act)
    _pods_come(sim, number)


def _pods_come(sim: Simulation, number: int) -> None:
    """So many pods, that there is something to bind."""
    submit_bare(sim, f"handed-over-{round(sim.loop.time() * 1000)}", number, 1)


def end_amid_calls(sim: Simulation, number: int, refused: float, part: float, seconds: float) -> None:
    """Who leads is ended as by SIGTERM at its ``number``-th next bind. Its binds and evictions are answered with 503
    for ``refused`` seconds, and until ``seconds`` have passed take that part of the request time-out to arrive (and
    half as much to connect)."""
    when_led(sim, partial(_end_amid_calls, sim, number, refused, part, seconds))


def _end_amid_calls(sim: Simulation, number: int, refused: float, part: float, seconds: float, led: Replica) -> None:
    assert led.service is not None
    slow = part * led.service.options.request_timeout

    def effect(method: str, path: str, way: Way) -> bool:
        if sim.loop.time() < until:
            way.instead = answer_of(503)
        else:
            way.there += slow
        return True

    def act(way: Way) -> None:
        nonlocal until
        until = sim.loop.time() + refused
        effect("", "", way)
        for what in ("bindings", "deletes"):
            spoil(sim, sim.replicas.index(led), seconds, 1.0, what, "end_amid_calls", effect)
        led.terminate()

    until = 0.0
    at_request(led, number, "bindings", "end_amid_calls", act)
    _pods_come(sim, number)


def delete_amid_session(sim: Simulation, slow: float, gang: str, every: int) -> None:
    """Who leads takes up to ``slow`` seconds longer to decide, and amid its next session somebody deletes a gang's
    pods, or each second one ..."""
    _amid_session(sim, "delete_amid_session", slow, lambda led: delete_pods(sim, gang, every))


def edit_amid_session(sim: Simulation, slow: float, gang: str, every: int, patch: dict[str, Any]) -> None:
    """The same, but that somebody changes these pods by a merge patch."""
    _amid_session(sim, "edit_amid_session", slow, lambda led: edit_pods(sim, gang, every, patch))


def pause_amid_session(sim: Simulation, slow: float, seconds: float) -> None:
    """Who leads takes up to ``slow`` seconds longer to decide, and amid its next session is stopped for ``seconds``."""
    _amid_session(sim, "pause_amid_session", slow, lambda led: led.stop_for(seconds))


def _amid_session(sim: Simulation, name: str, slow: float, act: Callable[[Replica], None]) -> None:
    when_led(sim, partial(_busy_until_it_decides, sim, name, slow, act))


def _busy_until_it_decides(
    sim: Simulation, name: str, slow: float, act: Callable[[Replica], None], led: Replica
) -> None:  # fmt: skip
    until = sim.loop.time() + _PATIENCE
    busy(sim, led, slow, _PATIENCE)

    def look() -> None:
        if led.service is not None and led.service.cycle.deciding.locked():
            sim.affected[name] += 1
            act(led)
        elif sim.loop.time() < until:
            later(sim, _LOOK, look)

    look()


ACTS: dict[str, Callable[..., None]] = {
    act.__name__: act
    for act in (blind_handover, end_amid_calls, delete_amid_session, edit_amid_session, pause_amid_session)
}
