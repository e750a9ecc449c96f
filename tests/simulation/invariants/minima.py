"""Whether gangs have their minimum with what a session binds for them.

Their minimum is what their group asked for as their pods were made, by the API server's truth, and what the replica
knew when it logged the session.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tests.e2e.cluster import GROUPS
from tests.laws.accounts import Accounts
from tests.simulation import illegal
from tests.simulation.invariants.decisions import Decisions
from tests.simulation.invariants.truth import key_of
from tests.simulation.replica import Machine
from vcd.daemon.service import SchedulerService
from vcd.model import events as ev
from vcd.model.controllers import GROUP_NAME
from vcd.model.resource_requests import is_best_effort, pod_requests
from vcd.state.cluster_state import ClusterState

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

Obj = dict[str, Any]


class Minima:
    """Looks at each session as it is about to be logged, by the state that holds all that precedes it in the log."""

    def __init__(self, sim: Simulation, decisions: Decisions) -> None:
        self._sim = sim
        self._stored: dict[str, list[int]] = defaultdict(lambda: [0])
        """The minima that each group has had at the API server, 0 while there was no such group."""
        self._joined: dict[str, tuple[str, int]] = {}
        """The group of each pod by UID, and how many minima that had had when the pod came to it."""
        decisions.looks.append(self._decided)
        sim.store.subscribe([GROUPS], self._group)
        sim.store.subscribe(["pods"], self._pod)
        # where events were lost nobody may know before all is listed
        self._is_told = not any(act.what in illegal.ACTS for act in sim.script.acts)

    def _group(self, event: str, _: str, obj: Obj) -> None:
        stored, least = self._stored[key_of(obj)], obj["spec"].get("minMember", 0)
        if event == "DELETED" or stored[-1] != least:
            stored.append(0 if event == "DELETED" else least)

    def _pod(self, event: str, _: str, obj: Obj) -> None:
        metadata = obj["metadata"]
        group = f"{metadata['namespace']}/{(metadata.get('annotations') or {}).get(GROUP_NAME, '')}"
        if event == "DELETED":
            self._joined.pop(metadata["uid"], None)
        elif self._joined.get(metadata["uid"], ("", 0))[0] != group:
            self._joined[metadata["uid"]] = group, len(self._stored[group])

    def _stored_for(self, group: str, uids: Iterable[str]) -> int:
        """The least that a group has asked for since the last of some pods came to it; 0 where that cannot be told."""
        joined = [self._joined.get(uid, ("", 0)) for uid in uids]
        if any(key != group for key, _ in joined):
            return 0
        return min(self._stored[group][max(count for _, count in joined) - 1 :])

    def _decided(self, machine: Machine, service: SchedulerService, event: ev.SessionDecided) -> None:
        policy, state = service.policy.named(event.policy), service.state_writer.state
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
            if record is None:
                continue
            least = record.group.spec.min_member
            if self._is_told and not service.reads.trusts_watches:
                bound = [
                    each.uid for each in operations if each.verb == "bind" and accounts.group_of(each.key) == group
                ]
                least = max(least, self._stored_for(group, bound))
            ready = sum(accounts.group_of(key) == group and _counts(state, accounts, key) for key in accounts.pods)
            if ready < least:
                what = f"session {event.session} binds for {group}, which then has {ready}"
                self._sim.violated("gangs whole", f"{machine.name}: {what} of {least}")


def _counts(state: ClusterState, accounts: Accounts, key: str) -> bool:
    """Whether a pod counts towards its gang's minimum."""
    pod, intent = accounts.pods[key], state.intents.get(key)
    if pod.status.phase == "Succeeded":
        return True
    if pod.status.phase == "Failed" or pod.metadata.deletion_timestamp or (intent and intent.verb == "evict"):
        return False
    free = is_best_effort(pod_requests(pod.spec)) and not pod.spec.scheduling_gates
    return bool(accounts.node_of[key]) or free
