"""What must hold at every step by the server's truth, and what once nothing goes wrong any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.invariants.acknowledged import Acknowledged
from tests.simulation.invariants.binds import Binds
from tests.simulation.invariants.calls import Calls
from tests.simulation.invariants.conditions import Conditions
from tests.simulation.invariants.configurations import Configurations
from tests.simulation.invariants.copies import Copies
from tests.simulation.invariants.decisions import Decisions
from tests.simulation.invariants.delays import Delays
from tests.simulation.invariants.gangs import Gangs
from tests.simulation.invariants.handles import Handles
from tests.simulation.invariants.holds import Holds
from tests.simulation.invariants.known import Known
from tests.simulation.invariants.limits import Limits
from tests.simulation.invariants.lists import Lists
from tests.simulation.invariants.logs import Logs
from tests.simulation.invariants.memory import Memory
from tests.simulation.invariants.minima import Minima
from tests.simulation.invariants.onelog import OneLog, is_one_log
from tests.simulation.invariants.outcomes import Outcomes
from tests.simulation.invariants.places import Places
from tests.simulation.invariants.programs import Programs
from tests.simulation.invariants.rest import Rest
from tests.simulation.invariants.terms import Terms
from tests.simulation.invariants.told import Told
from tests.simulation.invariants.topology import Topology
from tests.simulation.invariants.witness import Witness
from tests.simulation.invariants.writes import Writes

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation


class Invariants:
    """Looks at each change of the store and at each call as they happen, and at logs and states at the end."""

    def __init__(self, sim: Simulation) -> None:
        witness = Witness(sim)
        terms, known = Terms(sim, witness), Known(sim, witness)
        decisions = Decisions(sim, witness, terms, known)
        places = Places(sim, witness, decisions, known)
        writes = Writes(sim, witness, decisions, terms)
        self._calls = Calls(sim, witness)
        Binds(sim, witness)
        Limits(sim, witness, decisions, places)
        self._gangs = Gangs(sim, witness, decisions)
        self._programs = Programs(sim, witness)
        self._rest = Rest(sim, witness)
        Lists(sim, witness)
        Delays(sim, witness, decisions)
        Conditions(sim, witness)
        Configurations(sim, decisions)
        Minima(sim, decisions)
        self._memory, self._handles = Memory(sim), Handles(sim)
        self._told = Told(sim, witness, decisions)
        Holds(sim, witness)
        self._topology = Topology(sim, witness, decisions)
        self._logs = Logs(sim, witness, writes.done, Acknowledged(sim, witness))
        Outcomes(sim, witness)
        Copies(sim, witness)
        self._one_log: OneLog | None = None
        if is_one_log(sim.script):
            self._one_log = OneLog(sim, witness, writes.done, self._logs.spoilt)

    async def at_rest(self) -> None:
        """Look at what must hold once all has come to rest."""
        await self._rest.comes()
        if self._rest.at_rest():
            self._gangs.at_rest()
        self._topology.at_rest()
        self._calls.at_rest()
        self._memory.at_rest()
        self._handles.at_rest()
        self._told.at_rest()
        self._logs.at_rest()
        if self._one_log is not None:
            await self._one_log.at_rest()
        self._programs.at_rest()
