"""Programs end when they are told to, or by what the script does to their disks; nothing in them fails unexpectedly."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.faults import change, disks
from tests.simulation.invariants.witness import Witness
from tests.simulation.replica import Machine
from vcd.daemon.replicas.following import BegunAnew, Parted
from vcd.daemon.replicas.replica import Unseated
from vcd.daemon.service import SchedulerService

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

DISK = disks.HARM | {"slow_followers", "fill_followers"}
"""Acts that harm disks."""
AGAIN = (Unseated, Parted, BegunAnew)
"""What makes a replica of one log begin anew, in the same program."""


class Programs:
    """Is told of each end of a program, and looks at the exceptions that nobody asked for."""

    def __init__(self, sim: Simulation, witness: Witness) -> None:
        self._sim = sim
        self._services: list[tuple[Machine, SchedulerService]] = []
        witness.services.append(lambda machine, service: self._services.append((machine, service)))
        for replica in sim.replicas:
            told, replica.ended = replica.ended, self._ended
            self._told = told

    def _ended(self, machine: Machine, code: int) -> None:
        self._told(machine, code)
        service = machine.service
        opens = service is None or isinstance(service._failure, AGAIN)  # its log, perhaps once more
        if self._disks_fail and (opens or (service is not None and _log_failed(service))):
            return
        if code == 2 and service is None and change.is_bad(self._sim):
            return  # it was to start by that
        self._sim.violated("no program ends by itself", f"{machine.name} with {code}")

    @property
    def _disks_fail(self) -> bool:
        return any(act.what in DISK for act in self._sim.script.acts)

    def at_rest(self) -> None:
        """Look at what went wrong inside."""
        for machine in self._sim.machines:
            if machine.crash is not None:
                self._sim.violated("no program ends with a traceback", f"{machine.name}: {machine.crash!r}")
        for context in self._sim.loop.broken:
            error = context.get("exception")
            self._sim.violated("nothing fails unseen", f"{context.get('message')}: {error!r}")
        for machine, service in self._services:
            known = isinstance(service._failure, AGAIN) or _log_failed(service)
            if service._failure is not None and not known:
                self._sim.violated("nothing fails unseen", f"{machine.name}: {service._failure!r}")
            for kind, status in service.watches.statuses().items():
                if status.crashes and not _log_failed(service):
                    self._sim.violated("nothing fails unseen", f"{machine.name}: watch of {kind}: {status.last_error}")


def _log_failed(service: SchedulerService) -> bool:
    """Whether its log failed, and was not only closed at the end of its program."""
    failure = service.keeper.log.failure
    return failure is not None and not str(failure).endswith("it is closed")
