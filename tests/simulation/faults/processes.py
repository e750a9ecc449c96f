"""What goes wrong with replicas' programs and clocks; ``replica`` is a number, or -1 for all."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from tests.simulation.faults.aim import affected, at_request, at_write, chosen, lasts, later
from tests.simulation.road import Way

if TYPE_CHECKING:
    from tests.simulation.replica import Machine, Replica
    from tests.simulation.simulation import Simulation


def kill(sim: Simulation, replica: int, pause: float) -> None:
    """A replica's program is ended as by SIGKILL, and started again after ``pause`` seconds."""
    for each in affected(sim, replica, "kill", runs=True):
        each.kill(pause=pause)


def kill_at_write(sim: Simulation, replica: int, number: int, done: bool, pause: float) -> None:
    """A replica's program is killed at its ``number``-th next write to the log: before it, or when it is done."""

    def act(each: Replica, is_done: bool) -> bool:
        if is_done == done:
            each.kill(pause=pause)
        return is_done == done

    for each in chosen(sim, replica):
        at_write(each, number, "kill_at_write", partial(act, each))


def kill_at_request(sim: Simulation, replica: int, number: int, done: bool, pause: float, what: str) -> None:
    """A replica's program is killed at its ``number``-th next request: before it, or when the server has done it."""

    def act(each: Replica, way: Way) -> None:
        if done:
            way.done = partial(each.kill, pause=pause)
        else:
            each.kill(pause=pause)

    for each in chosen(sim, replica):
        at_request(each, number, what, "kill_at_request", partial(act, each))


def terminate(sim: Simulation, replica: int, grace: float) -> None:
    """A replica's program is ended as by SIGTERM, and killed when it is not gone after ``grace`` seconds."""
    for each in affected(sim, replica, "terminate", runs=True):
        machine = each.machine
        each.terminate()
        later(sim, grace, partial(_kill_same, each, machine))


def _kill_same(replica: Replica, machine: Machine | None) -> None:
    if replica.machine is machine:
        replica.kill()


def pause(sim: Simulation, replica: int, seconds: float) -> None:
    """Nothing of a replica runs for so long."""
    for each in affected(sim, replica, "pause"):
        each.stop_for(seconds)


def pause_at_write(sim: Simulation, replica: int, number: int, seconds: float) -> None:
    """A replica is stopped for so long when its ``number``-th next write to the log is done."""

    def act(each: Replica, is_done: bool) -> bool:
        if is_done:
            each.stop_for(seconds)
        return is_done

    for each in chosen(sim, replica):
        at_write(each, number, "pause_at_write", partial(act, each))


def pause_at_request(sim: Simulation, replica: int, number: int, seconds: float, what: str) -> None:
    """A replica is stopped for so long when it is about to make its ``number``-th next request."""

    def act(each: Replica, way: Way) -> None:
        each.stop_for(seconds)

    for each in chosen(sim, replica):
        at_request(each, number, what, "pause_at_request", partial(act, each))


def pause_at_connection(sim: Simulation, replica: int, number: int, takes: float, seconds: float, what: str) -> None:
    """The connection for a replica's ``number``-th next request takes so long to come about (TLS, a slow server), and
    amid that the replica is stopped for ``seconds``."""

    def act(each: Replica, way: Way) -> None:
        way.there += 2 * takes
        way.connecting = partial(each.stop_for, seconds)

    for each in chosen(sim, replica):
        at_request(each, number, what, "pause_at_connection", partial(act, each))


def set_clock(sim: Simulation, replica: int, ahead: float, seconds: float) -> None:
    """A machine's wall clock jumps, to be so many seconds ahead (or behind, if negative), and back after a while."""
    for each in affected(sim, replica, "set_clock"):
        _jump(sim, each, ahead, seconds)


def _jump(sim: Simulation, replica: Replica, ahead: float, seconds: float) -> None:
    replica.set_wall_ahead(ahead)
    lasts(sim, ("clock", replica.name), seconds, partial(replica.set_wall_ahead, 0.0))


def keep_busy(sim: Simulation, replica: int, slow: float, seconds: float) -> None:
    """For so long, all that a replica does in threads, as deciding, takes up to ``slow`` seconds longer."""
    for each in affected(sim, replica, "keep_busy"):
        busy(sim, each, slow, seconds)


def busy(sim: Simulation, replica: Replica, slow: float, seconds: float) -> None:
    """Let a replica be busy for so long."""
    replica.set_busy(slow)
    lasts(sim, ("busy", replica.name), seconds, partial(replica.set_busy, 0.0))


def restart_with_clock(sim: Simulation, replica: int, ahead: float, pause: float, seconds: float) -> None:
    """A machine restarts, and its wall clock is ahead (or behind, if negative) when it is back, for so long."""
    for each in affected(sim, replica, "restart_with_clock"):
        each.kill(pause=pause)
        _jump(sim, each, ahead, pause + seconds)


ACTS: dict[str, Callable[..., None]] = {
    act.__name__: act
    for act in (
        kill, kill_at_write, kill_at_request, terminate, pause, pause_at_write, pause_at_request,
        pause_at_connection, set_clock, restart_with_clock, keep_busy,
    )
}  # fmt: skip
