"""All acts of a script, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.simulation import expectations, faults, illegal, nodes, outside, resizing, workload, world

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation


def calm(sim: Simulation) -> None:
    """End all faults, in replicas, networks, disks and the cluster."""
    faults.calm(sim)
    world.calm(sim)
    outside.calm(sim)


ACTS: dict[str, Callable[..., None]] = {
    **workload.ACTS, **faults.ACTS, **world.ACTS, **nodes.ACTS, **illegal.ACTS, **outside.ACTS,
    **resizing.ACTS, **expectations.ACTS, "calm": calm,
}  # fmt: skip
