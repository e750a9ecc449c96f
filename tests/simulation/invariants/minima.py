"""Whether gangs have their minimum with what a session binds for them, by what its replica knew when it logged it."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from tests.laws.accounts import Accounts
from tests.simulation.invariants.decisions import Decisions
from tests.simulation.invariants.witness import Witness
from tests.simulation.replica import Machine
from vcd.daemon.service import SchedulerService
from vcd.model import events as ev
from vcd.model.requests import is_best_effort, pod_requests
from vcd.state.cluster import ClusterState

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation


class Minima:
    """Looks at each session as it is about to be logged. Of a group that was edited or made anew since the session
    began nothing is asked."""

    def __init__(self, sim: Simulation, witness: Witness, decisions: Decisions) -> None:
        self._sim = sim
        self._edited: dict[str, dict[str, int]] = defaultdict(dict)
        """By machine the events by which groups were last put, by key."""
        witness.services.append(self._watch)
        decisions.looks.append(self._decided)

    def _watch(self, machine: Machine, service: SchedulerService) -> None:
        state, edited = service.keeper.state, self._edited[machine.name]

        def folded(event: ev.Event) -> None:
            if isinstance(event, ev.ObjectPut) and event.kind == "PodGroup":
                edited[event.key] = state.sequence

        service.keeper.observers.append(folded)

    def _decided(self, machine: Machine, service: SchedulerService, event: ev.SessionDecided) -> None:
        policy, state = service.policy.named(event.policy), service.keeper.state
        gang = next((one for tier in policy.tiers for one in tier if one.name == "gang"), None)
        if gang is None or not gang.enabled.get("enableJobReady", True):
            return
        operations = [each for statement in event.accepted().statements for each in statement.operations]
        if all(operation.verb != "bind" for operation in operations):
            return
        accounts = Accounts(state)
        accounts.bind(operations)
        for group in sorted({accounts.group_of(each.key) for each in operations if each.verb == "bind"}):
            record = state.groups.get(group)
            if record is None or self._edited[machine.name].get(group, -1) > event.head:
                continue
            ready = sum(accounts.group_of(key) == group and _counts(state, accounts, key) for key in accounts.pods)
            if ready < record.group.spec.min_member:
                what = f"session {event.session} binds for {group}, which then has {ready}"
                self._sim.violated("gangs whole", f"{machine.name}: {what} of {record.group.spec.min_member}")


def _counts(state: ClusterState, accounts: Accounts, key: str) -> bool:
    """Whether a pod counts towards its gang's minimum."""
    pod, intent = accounts.pods[key], state.intents.get(key)
    if pod.status.phase == "Succeeded":
        return True
    if pod.status.phase == "Failed" or pod.metadata.deletion_timestamp or (intent and intent.verb == "evict"):
        return False
    free = is_best_effort(pod_requests(pod.spec)) and not pod.spec.scheduling_gates
    return bool(accounts.node_of[key]) or free
