"""Programs end when they are told to, or by what the script does to their disks; nothing in them fails unexpectedly."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.faults import change
from tests.simulation.invariants.witness import Witness
from tests.simulation.replica import Machine
from vcd.daemon.service import SchedulerService
from vcd.model import events as ev

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

_SPOIL = ("flip_bits", "lose_syncs")
"""Acts after which a log may fail at any time, until somebody moves it away."""


class Programs:
    """Is told of each end of a program, and looks at the exceptions that nobody asked for."""

    def __init__(self, sim: Simulation, witness: Witness) -> None:
        self._sim = sim
        self._services: list[tuple[Machine, SchedulerService]] = []
        witness.services.append(self._watch)
        for replica in sim.replicas:
            told, replica.ended = replica.ended, self._ended
            self._told = told

    def _watch(self, machine: Machine, service: SchedulerService) -> None:
        self._services.append((machine, service))
        commit = service.committer.commit

        async def watched(record: ev.SessionDecided, plan: ev.Plan) -> None:
            try:
                await commit(record, plan)
            except Exception as error:
                if service.state_writer.log.failure is None:  # else its outcomes cannot be logged
                    self._sim.violated("nothing fails unseen", f"{machine.name}: commit: {error!r}")
                raise

        service.committer.commit = watched  # type: ignore[method-assign]

    def _ended(self, machine: Machine, code: int) -> None:
        self._told(machine, code)
        service = machine.service
        # one that is closed is opened once more, where its replica begins anew
        opens = service is None or service.state_writer.log.failure is not None
        if opens and self._disk_fails(machine):
            return
        if code == 2 and service is None and change.is_bad(self._sim):
            return  # it was to start by that
        self._sim.violated("no program ends by itself", f"{machine.name} with {code}")

    def _disk_fails(self, machine: Machine) -> bool:
        """Whether its disk refused a write, or has a log that was spoilt."""
        spoilt = machine.disk.drive.damaged or any(machine.link.road.affected[act] for act in _SPOIL)
        return machine.disk.refused or spoilt

    def at_rest(self) -> None:
        """Look at what went wrong inside, and whether all replicas are up again."""
        for replica in self._sim.replicas:
            why = "it runs no program" if replica.service is None else replica.service.ready()
            if why:
                self._sim.violated("all come up", f"{replica.name}: {why}")
        for machine in self._sim.machines:
            if machine.crash is not None:
                self._sim.violated("no program ends with a traceback", f"{machine.name}: {machine.crash!r}")
        for context in self._sim.loop.broken:
            error = context.get("exception")
            self._sim.violated("nothing fails unseen", f"{context.get('message')}: {error!r}")
        for machine, service in self._services:
            if service._failure is not None and not _log_failed(service):
                self._sim.violated("nothing fails unseen", f"{machine.name}: {service._failure!r}")
            for kind, status in service.watches.statuses().items():
                if status.crashes and not _log_failed(service):
                    self._sim.violated("nothing fails unseen", f"{machine.name}: watch of {kind}: {status.last_error}")


def _log_failed(service: SchedulerService) -> bool:
    """Whether its log failed, and was not only closed at the end of its program."""
    failure = service.state_writer.log.failure
    return failure is not None and not str(failure).endswith("it is closed")
