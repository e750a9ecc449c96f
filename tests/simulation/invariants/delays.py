"""What is done comes soon after what called for it, once nothing goes wrong any more: liveness has a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.e2e.cluster import GROUPS, LEASES, QUEUES
from tests.simulation.invariants.decisions import Decisions
from tests.simulation.invariants.truth import key_of
from tests.simulation.invariants.witness import Call, Witness
from tests.simulation.machine import EPOCH
from tests.simulation.replica import Machine
from vcd.daemon.outside.usage_poller import settings_of
from vcd.daemon.service import SchedulerService
from vcd.daemon.watching.outcome_resolver import PATIENCE
from vcd.kube.watcher import IDLE_TIMEOUT
from vcd.model import events as ev

if TYPE_CHECKING:
    from tests.simulation.network import Exchange
    from tests.simulation.simulation import Simulation

Obj = dict[str, Any]
_SESSION = 5.0
"""Seconds for a session and its calls, where ``--kube-api-qps`` does not hold them up."""
_CALLS = 60
"""Calls that may come before one, at the rate that is drawn."""
SOON = {"bind": 20.0 + 15.0 + _SESSION, "evict": 60.0 + 15.0 + _SESSION, "admit": 20.0 + _SESSION}
"""Seconds: sla has its groups wait for 20 (swarm/configurations.py), one of which a part was let in is released after
60 (docs/operations/failures.md), and a call that failed is made again after 15 at most
(``committer._LONGEST_PATIENCE``)."""
_LOOKED_UP = 1.25 * PATIENCE
"""Seconds until a replica finds that what it was told is done is done no more: of that the watch shows nothing."""
TAKES_OVER = 15.0
"""Seconds until somebody has the Lease beyond twice its duration, since who sees no lists lets others go first: the
program begins anew, and asks again each ``--leader-elect-retry-period``."""


def _sample(service: SchedulerService) -> float:
    """Seconds until a replica has a sample of the nodes' usage, where one is waited for in vain; 0 where it takes
    none."""
    given = service.usage.settings()
    settings = settings_of(given)
    return (settings["timeout"] + settings["interval"]) / 1e9 if given.get("address") else 0.0


class Delays:
    """Looks at binds, evictions and admissions, and at who holds the Lease."""

    def __init__(self, sim: Simulation, witness: Witness, decisions: Decisions) -> None:
        self._sim, self._witness = sim, witness
        self._term = "", 0
        """Whose the Lease is, and which of its terms it is."""
        self._changed = 0.0
        """When somebody else than the scheduler changed something last, or another one began to lead."""
        self._evicts = False
        """Whether the session that was decided last evicts: what it binds may have waited for the same."""
        self._phases: dict[str, str] = {}
        self._bound: dict[str, str] = {}
        """The UIDs of pods that have a node, by key."""
        self._looked_up = 0.0
        """Until when binds are looked up that a restore of the server's storage undid; till then they hold capacity."""
        storm = sim.script.storm
        # what is after the storm, such as a pause of all replicas for half an hour, says for how long at its end
        self._calm = max([storm, *(sum((act.at, *act.given[-1:])) for act in sim.script.acts if act.at > storm)])
        self._under_way: list[Exchange] = []
        """Requests of before then that are answered late, or never."""
        qps = sim.script.flags.get("kube-api-qps")
        self._calls = _CALLS / float(qps[0]) if qps else 0.0
        """Seconds for the calls that come before one."""
        self._rests = self._calm
        """Until when replicas do not stand that gave the Lease back, which they do for ever longer."""
        self._started: dict[str, float] = {}
        """When each program began to do something."""
        witness.services.append(lambda machine, _: self._started.setdefault(machine.name, sim.loop.time()))
        sim.store.subscribe(["nodes", "pods", QUEUES, GROUPS], self._see)
        sim.store.subscribe([LEASES], self._see_lease)
        witness.calls.append(self._called)
        decisions.looks.append(self._decided)
        self._begun = False

    def _begin(self) -> None:
        """Nothing goes wrong from now on; a watch whose end was not heard is begun anew after a while, and what was
        sent late arrives late."""
        if self._begun or self._sim.loop.time() < self._calm:
            return
        self._begun = True
        services = [each.service for each in self._sim.replicas if each.service is not None]
        rest = [each.terms.elector.abstains_until - each.clock.monotonic() for each in services]
        self._rests = max([self._calm, *(self._sim.loop.time() + seconds for seconds in rest)])
        alive = [each.machine for each in self._sim.replicas if each.machine is not None and each.machine.alive]
        lines = [line for machine in alive for line in machine.link.lines]
        if any(line.closed for line in lines):
            self._calm += IDLE_TIMEOUT
        self._calm = max([self._calm, *(line.free for line in lines)])
        self._calm = max([self._calm, *(self._sim.loop.time() + _sample(each) for each in services)])
        self._under_way = [exchange for machine in alive for exchange in machine.link.exchanges]

    def _goes_well_since(self) -> float:
        """Since when nothing goes wrong, and nothing that went wrong is waited for."""
        self._begin()
        if self._under_way:
            self._calm = max(self._calm, self._sim.loop.time())
            self._under_way = [each for each in self._under_way if not each.left]
        return self._calm

    def _see(self, event: str, resource: str, obj: Obj) -> None:
        is_made = resource == GROUPS and event == "ADDED"  # be it by a replica, in the controller's place
        if self._witness.asking is None or is_made:
            self._changed = self._sim.loop.time()
        if resource == "pods":
            self._see_pod(event, obj)
        if resource == GROUPS:
            key, phase = key_of(obj), (obj.get("status") or {}).get("phase") or ""
            if phase == "Inqueue" and self._phases.get(key) != phase:
                self._look("admit", key)
            self._phases[key] = phase

    def _see_pod(self, event: str, pod: Obj) -> None:
        key, uid = key_of(pod), pod["metadata"]["uid"]
        if event != "DELETED" and pod["spec"].get("nodeName"):
            self._bound[key] = uid
        elif self._bound.pop(key, None) == uid and event != "DELETED":
            self._looked_up = self._sim.loop.time() + _LOOKED_UP

    def _see_lease(self, event: str, resource: str, obj: Obj) -> None:
        since = self._goes_well_since()
        spec = obj.get("spec") or {}
        term = holder, _ = spec.get("holderIdentity") or "", spec.get("leaseTransitions") or 0
        if holder and term != self._term:
            now, most = self._sim.loop.time(), 2 * spec["leaseDurationSeconds"] + TAKES_OVER
            waited = now - max(self._rests, since, self._somebody_runs_since())
            if waited > most and holder != self._term[0]:
                self._sim.violated("done soon", f"{holder} has the Lease {waited:.1f} s later, not in {most:g}")
            self._changed = now
        self._term = term

    def _somebody_runs_since(self) -> float:
        """When the first of those that run began: a machine may be back only long after all goes well."""
        running = [each.machine for each in self._sim.replicas if each.machine is not None and each.machine.alive]
        now = self._sim.loop.time()
        return min((self._started.get(each.name, now) for each in running), default=now)

    def _decided(self, _: Machine, __: SchedulerService, event: ev.SessionDecided) -> None:
        operations = [one for statement in event.accepted().statements for one in statement.operations]
        self._evicts = any(one.verb == "evict" for one in operations)

    def _called(self, call: Call) -> None:
        if call.operation is not None:
            self._look(*call.operation[:2])
            if call.operation[0] == "evict":  # others may come in its place, or its gang anew
                self._changed = self._sim.loop.time()

    def _look(self, verb: str, key: str) -> None:
        waited = self._sim.loop.time() - max(self._changed, self._goes_well_since(), self._looked_up)
        soon = SOON["evict" if verb == "bind" and self._evicts else verb] + self._calls + self._behind()
        if waited > soon:
            self._sim.violated("done soon", f"{verb} {key} {waited:.1f} s after the last change, not in {soon:g}")

    def _behind(self) -> float:
        """By how many seconds the clock of who acts is behind (docs/reliability.md): what has its time comes later."""
        service = None if self._witness.asking is None else self._witness.asking.machine.service
        return 0.0 if service is None else max(0.0, EPOCH + self._sim.loop.time() - service.clock.wall() / 1e9)
