"""Terms of leaders: none writes beyond its own, a new one waits, an epoch is of one term (docs/laws.md, law 4)."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.e2e.cluster import LEASES
from tests.simulation.invariants.decisions import operations_of
from tests.simulation.invariants.known import may_go_back
from tests.simulation.invariants.witness import Call, Operation, Witness
from tests.simulation.replica import Machine
from tests.simulation.road import Asked
from vcd.daemon.options import Options
from vcd.daemon.service import SchedulerService
from vcd.kube.lease import RELEASED_SECONDS
from vcd.model import events as ev

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

Obj = dict[str, Any]
_SAME = 1e-6
"""Seconds within which two moments are one."""


@dataclass
class _Term:
    """What is known of a machine's last one: its epoch, when that began, until when it may write, and from when it may
    decide."""

    epoch: int = -1
    since: float = -math.inf
    until: float = -math.inf
    safe_at: float = -math.inf


class Terms:
    """Follows the Lease by what the server did and by when replicas asked for it."""

    def __init__(self, sim: Simulation, witness: Witness) -> None:
        self._sim = sim
        self._options: dict[str, Options] = {}
        self._terms: dict[str, _Term] = defaultdict(_Term)
        self._sent: dict[str, float] = {}
        """When a machine last sent something to the Lease."""
        self._went: dict[tuple[str, str], float] = {}
        """When a machine last sent some other write, by its name and the path."""
        self._lease: Obj | None = None
        """Its spec, as long as it is there."""
        self._deleted = False
        """Whether somebody ever deleted it."""
        self._epochs: dict[int, str] = {}
        """Whose each epoch was."""
        self._robbed: dict[str, float] = {}
        """Until when who held the Lease may write that somebody took away."""
        self._restored = may_go_back(sim.script)
        self._sessions: dict[str, dict[Operation, int]] = defaultdict(dict)
        """Under which epoch a machine decided an operation last."""
        witness.services.append(self._watch)
        witness.requests.append(self._heard)
        witness.calls.append(self._called)
        sim.store.subscribe([LEASES], self._changed)
        self._witness = witness

    # --- the Lease ----------------------------------------------------------------------------------------------------

    def _changed(self, event: str, _: str, obj: Obj) -> None:
        before, self._lease = self._lease, None if event == "DELETED" else dict(obj["spec"])
        holder, call = "" if before is None else str(before.get("holderIdentity") or ""), self._witness.asking
        now_held = "" if self._lease is None else str(self._lease.get("holderIdentity") or "")
        self._deleted |= event == "DELETED"
        if call is None and holder and holder != now_held:  # deleted, or as it was when a backup was made
            self._robbed[holder] = self._terms[holder].until + self._patience(holder)
        if call is not None and self._lease is not None:
            self._written(call.machine, before, self._lease)

    def _written(self, machine: Machine, before: Obj | None, spec: Obj) -> None:
        name, options, now = machine.name, self._options.get(machine.name), self._sim.loop.time()
        if options is None:
            return
        if spec.get("holderIdentity") != options.identity:  # given back
            self._terms[name].until = min(self._terms[name].until, now)
            return
        term, epoch = self._terms[name], int(spec.get("leaseTransitions") or 0)
        term.until = self._sent.get(name, now) + options.renew_deadline
        if epoch == term.epoch:
            return
        again = self._epochs.setdefault(epoch, name) != name or epoch < term.epoch
        anew = self._deleted and before is None and epoch == 0  # neither a Lease nor its log tells of those before
        if again and not anew and not self._restored:
            self._sim.violated("an epoch is one term", f"{name} leads under {epoch}, as {self._epochs[epoch]} did")
        term.epoch, term.since = epoch, now
        held = before is not None and not _is_released(before)
        term.safe_at = now + options.request_timeout if held else now
        if before is not None and before.get("holderIdentity") == options.identity:  # perhaps of another program
            for other in [each for each in self._terms.values() if each is not term]:
                other.until = min(other.until, term.safe_at)

    def _patience(self, name: str) -> float:
        options = self._options.get(name)
        return 0.0 if options is None else options.request_timeout

    def epoch(self, name: str) -> int:
        """The epoch of a machine's last term, below 0 for none."""
        return self._terms[name].epoch

    def may_still_write(self, name: str) -> bool:
        """Whether a machine cannot know yet that somebody deleted its Lease."""
        return self._sim.loop.time() <= self._robbed.get(name, -math.inf)

    def is_over(self, name: str) -> bool:
        """Whether the term of a machine has ended."""
        return self._sim.loop.time() > self._terms[name].until + _SAME

    # --- what is done under it ----------------------------------------------------------------------------------------

    def _heard(self, what: str, machine: Machine, asked: Asked) -> None:
        options = None if machine.service is None else machine.service.options
        if what != "sent" or options is None:
            return
        self._options.setdefault(machine.name, options)
        now = self._sim.loop.time()
        if "/leases" in asked.place:
            if asked.method != "GET":
                self._sent[machine.name] = now
        elif options.leader_elect and _writes(asked):
            self._went[machine.name, asked.place] = now
            if (late := now - self._terms[machine.name].until) > _SAME:
                what = f"{machine.name} {asked.method} {asked.place}, {late:.3f} s after its term"
                self._sim.violated("written by who leads", what)

    def _called(self, call: Call) -> None:
        name, operation = call.machine.name, call.operation
        service = call.machine.service
        if operation is None or service is None or not service.options.leader_elect:
            return
        epoch, term = self._sessions[name].get(operation), self._terms[name]
        # what was on its way as a term ended, or as somebody deleted the Lease, has arrived before the next one decides
        was_sent = self._went.get((name, call.request.path), math.inf) < term.since
        arrives = (was_sent and call.at <= term.safe_at) or self.may_still_write(name)
        if epoch is not None and epoch != term.epoch and not arrives:
            what = f"{call}, decided under epoch {epoch}, under {term.epoch}"
            self._sim.violated("written by who leads", what)

    def _watch(self, machine: Machine, service: SchedulerService) -> None:
        self._options.setdefault(machine.name, service.options)

        def folded(event: ev.Event) -> None:
            if isinstance(event, ev.SessionDecided) and service.options.leader_elect:
                self._sessions[machine.name].update(dict.fromkeys(operations_of(event), event.epoch))
                early = self._terms[machine.name].safe_at - self._sim.loop.time()
                if event.epoch == self._terms[machine.name].epoch and early > _SAME:
                    what = f"{machine.name} decides {early:.3f} s before calls of the leader before it have ended"
                    self._sim.violated("a new leader waits", what)

        service.state_writer.observers.append(folded)


def _is_released(spec: Obj) -> bool:
    return not spec.get("holderIdentity") and spec.get("leaseDurationSeconds") == RELEASED_SECONDS


def _writes(asked: Asked) -> bool:
    return asked.method not in ("GET", "WATCH") and not asked.place.endswith("reviews")
