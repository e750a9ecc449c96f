"""Nobody decides on what it does not know: who begins to lead lists every kind anew before its first session."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from tests.e2e.cluster import LEASES
from tests.simulation.invariants.witness import Call, Witness
from tests.simulation.replica import Machine
from vcd.daemon.service import SchedulerService
from vcd.embedded.status_errors import StatusError
from vcd.model import events as ev
from vcd.model.kinds import Kind
from vcd.scheduling.framework.registry import kinds_read

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation


class Lists:
    """Notes when each machine was given lists, and since when it holds the Lease."""

    def __init__(self, sim: Simulation, witness: Witness) -> None:
        self._sim = sim
        self._at: dict[str, dict[str, float]] = defaultdict(dict)
        """When the server last gave a machine a list, by its name and the plural of the kind."""
        self._since: dict[tuple[str, int], float] = {}
        """When machines began to hold the Lease, by name and epoch."""
        witness.calls.append(self._called)
        witness.services.append(self._watch)
        sim.store.subscribe([LEASES], self._changed)

    def _called(self, call: Call) -> None:
        query = call.request.query
        if call.request.method == "GET" and "limit" in query and "watch" not in query:
            self._at[call.machine.name][call.request.path.rpartition("/")[2]] = call.at

    def _changed(self, event: str, _: str, obj: dict[str, Any]) -> None:
        holder = None if event == "DELETED" else obj["spec"].get("holderIdentity")
        if holder:
            self._since.setdefault((holder, int(obj["spec"].get("leaseTransitions") or 0)), self._sim.loop.time())

    def _watch(self, machine: Machine, service: SchedulerService) -> None:
        def folded(event: ev.Event) -> None:
            if isinstance(event, ev.SessionDecided) and (service.replica is None or service.terms.leads()):
                self._decided(machine, service, event)

        service.state_writer.observers.append(folded)

    def _decided(self, machine: Machine, service: SchedulerService, event: ev.SessionDecided) -> None:
        since = self._since.get((service.options.identity, event.epoch), 0.0) if service.options.leader_elect else 0.0
        for kind in kinds_read(service.policy.named(event.policy)):  # not what a newer one adds at this moment
            if self._is_served(kind) and self._at[machine.name].get(kind.plural, -1.0) < since:
                what = f"{machine.name}: session {event.session}, with no list of {kind.name} in its term"
                self._sim.violated("listed first", what)
                return

    def _is_served(self, kind: Kind) -> bool:
        try:
            self._sim.store.list(f"{kind.plural}.{kind.group}" if kind.group else kind.plural)
        except StatusError:
            return False
        return True
