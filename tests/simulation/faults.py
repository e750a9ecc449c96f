"""What goes wrong: with the network, the API server, processes, disks, clocks. Each ends by itself or by ``calm``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation


def kill(sim: Simulation, replica: int, pause: float) -> None:
    """A replica's program is ended as by SIGKILL, and started again after ``pause`` seconds."""
    sim.replicas[replica % len(sim.replicas)].kill(pause=pause)


def pause(sim: Simulation, replica: int, seconds: float) -> None:
    """Nothing of a replica runs for so long."""
    sim.replicas[replica % len(sim.replicas)].stop_for(seconds)


def calm(sim: Simulation) -> None:
    """From now on nothing goes wrong."""
    for replica in sim.replicas:
        if (machine := replica.machine) is not None:
            machine.stopped = False
            machine.disk.slow, machine.disk.room = 0.0, None
            machine.link.up = machine.link.down = True
            machine.link.draws.clear()
            for line in machine.link.lines:
                line.resume()
                line.late = 0.0
        replica.set_wall_ahead(0.0)


ACTS: dict[str, Callable[..., None]] = {"kill": kill, "pause": pause, "calm": calm}
