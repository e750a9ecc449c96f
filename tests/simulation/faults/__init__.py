"""What goes wrong: with the network, the API server, processes, disks, clocks. Each ends by itself or by ``calm``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.simulation.faults import change, disks, handover, leaders, moments, network, peers, processes, watches

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation


def calm(sim: Simulation) -> None:
    """From now on nothing goes wrong."""
    change.mend(sim)
    change.roll_out(sim)
    leaders.part_identities(sim)
    peers.calm(sim)
    sim.server.habits.bookmarks, sim.server.habits.fail_watches = True, 0
    sim.ends.clear()
    for replica in sim.replicas:
        replica.set_wall_ahead(0.0)
        replica.set_busy(0.0)
        disks.mend(sim, replica)
        replica.access.renew()
        replica.road.draws.clear()
        replica.road.late = 0.0
        network.heal(sim, replica)
        if (machine := replica.machine) is not None:
            machine.stops.clear()
            for line in machine.link.lines:
                line.stalled = False
            machine.link.resume()
            machine.link.reset_lost()


ACTS: dict[str, Callable[..., None]] = {
    **network.ACTS, **watches.ACTS, **processes.ACTS, **leaders.ACTS, **moments.ACTS, **disks.ACTS, **change.ACTS,
    **handover.ACTS, **peers.ACTS, "calm": calm,
}  # fmt: skip
"""All of it, by name."""
