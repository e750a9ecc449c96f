"""What must hold at every step by the server's truth, and what once nothing goes wrong any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.invariants.decisions import Decisions
from tests.simulation.invariants.gangs import Gangs
from tests.simulation.invariants.logs import Logs
from tests.simulation.invariants.places import Places
from tests.simulation.invariants.programs import Programs
from tests.simulation.invariants.rest import Rest
from tests.simulation.invariants.witness import Witness
from tests.simulation.invariants.writes import Writes

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation


class Invariants:
    """Looks at each change of the store and at each call as they happen, and at logs and states at the end."""

    def __init__(self, sim: Simulation) -> None:
        witness = Witness(sim)
        self._places = Places(sim, witness)
        decisions = Decisions(sim, witness)
        writes = Writes(sim, witness, decisions)
        self._gangs = Gangs(sim, witness)
        self._programs = Programs(sim, witness)
        self._rest = Rest(sim, witness)
        self._logs = Logs(sim, writes.done)

    async def at_rest(self) -> None:
        """Look at what must hold once all has come to rest."""
        await self._rest.comes()
        plugins = self._rest.at_rest()
        self._gangs.at_rest(plugins)
        self._logs.at_rest()
        self._programs.at_rest()
