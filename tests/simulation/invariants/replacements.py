"""A pod that replaces an evicted one is not evicted again for the same group (docs/semantics/actions.md)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.e2e.cluster import QUEUES
from tests.laws.accounts import Accounts
from tests.simulation.replica import Machine
from vcd.model import events as ev
from vcd.state.cluster_state import ClusterState

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

EXEMPT = ("release", "shuffle")
"""Actions with bounds in time."""
Facts = tuple[Any, ...]


@dataclass
class _Evicted:
    """What a group lost to an owner: the UIDs of the evicted pods, of all pods that the group had before the first of
    these evictions, and of the owner's pods."""

    owner_pods: set[str]
    known: set[str]
    gone: set[str] = field(default_factory=set)


@dataclass
class _Lost:
    """What a group lost, by owner, with the facts then. ``spec`` is the group's, with its UID."""

    facts: Facts
    spec: object
    to: dict[str, _Evicted] = field(default_factory=dict)


class Replacements:
    """Follows what each replica's sessions evicted of each group, as long as its log and the facts are the same."""

    def __init__(self, sim: Simulation) -> None:
        self._lost: dict[str, dict[str, _Lost]] = defaultdict(dict)
        self._session: dict[str, int] = defaultdict(int)
        self._changes = 0
        """How often nodes or queues changed at the server, were it back and forth."""
        sim.store.subscribe(["nodes", QUEUES], self._changed)
        self._specs: dict[str, object] = {}

    def _changed(self, event: str, resource: str, obj: dict[str, Any]) -> None:
        name = f"{resource}/{obj['metadata']['name']}"
        spec = (obj.get("spec"), resource == QUEUES or obj)
        if event == "DELETED" or self._specs.get(name) != spec:
            self._changes += 1
        self._specs[name] = spec

    def forget(self, machine: Machine) -> None:
        """A replica loaded another configuration, and may evict what it did not."""
        self._lost[machine.name.partition("-")[0]].clear()

    def seen(
        self, machine: Machine, state: ClusterState, event: ev.SessionDecided, accounts: Accounts
    ) -> Iterator[tuple[str, str]]:
        """What is wrong with a session's evictions."""
        replica = machine.name.partition("-")[0]
        if event.session <= self._session[replica]:  # its log was lost, or a part
            self._lost[replica].clear()
        self._session[replica] = event.session
        nodes = {key: record.node for key, record in state.nodes.items()}
        queues = {key: record.queue.spec for key, record in state.queues.items()}
        facts = (event.policy, self._changes, nodes, queues)
        for statement in event.accepted().statements:
            if statement.action not in EXEMPT:
                keys = [each.key for each in statement.operations if each.verb == "evict" and each.key in accounts.pods]
                yield from self._evicted(self._lost[replica], facts, state, accounts, statement.group, keys)

    def _evicted(
        self,
        lost: dict[str, _Lost],
        facts: Facts,
        state: ClusterState,
        accounts: Accounts,
        owner: str,
        keys: Iterable[str],
    ) -> Iterator[tuple[str, str]]:
        """What is wrong with evictions for ``owner``, which lost no pods itself and has the pods that it had; none of
        them has ended since."""
        own = [pod for key, pod in accounts.pods.items() if accounts.group_of(key) == owner]
        pods = {pod.metadata.uid for pod in own if pod.status.phase not in ("Succeeded", "Failed")}
        for key in keys:
            group = accounts.group_of(key)
            if group not in state.groups:
                continue
            shown, uid = state.groups[group].group, accounts.pods[key].metadata.uid
            spec = shown.metadata.uid, shown.spec
            members = [pod for other, pod in accounts.pods.items() if accounts.group_of(other) == group]
            known = lost.get(group)
            if known is None or (known.facts, known.spec) != (facts, spec):
                known = lost[group] = _Lost(facts, spec)
            evicted = known.to.get(owner)
            if evicted is None or owner in lost or evicted.owner_pods != pods:
                evicted = known.to[owner] = _Evicted(pods, {pod.metadata.uid for pod in members})
            fresh = [pod for pod in members if pod.metadata.uid not in evicted.known]
            fresh.sort(key=lambda pod: (pod.metadata.creation_timestamp, pod.key))
            staying = {pod.metadata.uid for pod in members if pod.metadata.deletion_timestamp is None}
            replaced = evicted.gone - staying  # a refused eviction has no replacement, nor one under way
            if uid in {pod.metadata.uid for pod in fresh[: len(replaced)]}:
                yield "nobody evicted twice", f"{key} took the place of one of {group}, and goes for {owner}, too"
            evicted.gone.add(uid)
