"""What law 7 of docs/laws.md says, added up from plain objects: nothing of the core's columns is used."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable

from tests.laws.histories import GROUP
from vcd.model import events as ev
from vcd.model.objects import Pod
from vcd.model.resource_requests import counted_spec, is_best_effort, pod_requests
from vcd.state.cluster_state import ClusterState

ALWAYS = ("cpu", "memory")
"""Resources that every pod minds, also when it asks for none of them."""


def asked_by(pod: Pod) -> dict[str, int]:
    """What a pod counts with, also while it is resized in place."""
    return pod_requests(counted_spec(pod))


class Accounts:
    """A state as it was, with what placements add to it; ``node_of`` is where a pod is, "" where it has no node."""

    def __init__(self, state: ClusterState) -> None:
        self.nodes, self.groups, self.queues = dict(state.nodes), dict(state.groups), dict(state.queues)
        self.former = dict(state.former)
        self.pods: dict[str, Pod] = {}
        self.node_of: dict[str, str] = {}
        for key in sorted(state.tasks.row_of):
            pod = state.pod(key)
            if pod is not None:
                self.pods[key] = pod
                intent = state.intents.get(key)
                bound = intent is not None and intent.verb == "bind"
                self.node_of[key] = intent.node if intent is not None and bound else pod.spec.node_name

    def copy(self) -> Accounts:
        """The same accounts, to place other things in."""
        other = copy.copy(self)
        other.node_of = dict(self.node_of)
        return other

    def bind(self, operations: Iterable[ev.Operation]) -> None:
        """Place what operations bind."""
        for operation in operations:
            if operation.verb == "bind":
                self.node_of[operation.key] = operation.node

    def _over(self, pod: Pod) -> bool:
        return pod.status.phase in ("Succeeded", "Failed")

    # --- nodes ------------------------------------------------------------------------------------------------------

    def over_on(self, node: str, bound: Iterable[str]) -> list[str]:
        """Resources that pods in ``bound`` mind and of which a node has less than its pods ask for."""
        used: Counter[str] = Counter()
        for key, place in self.node_of.items():
            if place == node and not self._over(self.pods[key]):
                used.update(asked_by(self.pods[key]))
        room = self.nodes[node].allocatable
        minded = {name for key in bound for name in asked_by(self.pods[key])}
        return [name for name in sorted(minded.union(ALWAYS)) if used[name] > room.get(name, 0)]

    def is_too_large(self, group: str) -> bool:
        """Whether too few of a group's pods for its minimum would find room on a node that is empty; of a Volcano Job
        without pods, whether none has room for what they ask for on average."""
        sizes = [record.allocatable for record in self.nodes.values()]
        asked = [asked_by(pod) for key, pod in self.pods.items() if self.group_of(key) == group]
        record = self.groups[group]
        least = max(1, record.group.spec.min_member)
        if not asked and any(
            owner.api_version.startswith("batch.volcano.sh/") for owner in record.group.metadata.owner_references
        ):
            minimum = (record.min_resources or {}).items()
            return bool(sizes) and any(
                -(-amount // least) > max(size.get(name, 0) for size in sizes) for name, amount in minimum
            )
        held = sum(any(all(size.get(name, 0) >= ask[name] for name in ask) for size in sizes) for ask in asked)
        return bool(sizes) and held < len(asked) and held < least

    # --- queues -----------------------------------------------------------------------------------------------------

    def group_of(self, key: str) -> str:
        """The group's key; "" for a pod without one."""
        name = self.pods[key].metadata.annotations.get(GROUP)
        return f"{key.partition('/')[0]}/{name}" if name else ""

    def queue_of(self, key: str) -> str:
        """The queue of the pod's group, that it was in where it is gone; "" where nobody saw it."""
        group = self.group_of(key)
        record = self.groups.get(group)
        queue = self.former.get(group) if record is None else record.group.spec.queue
        return "" if queue is None else queue or "default"

    def over_in(self, queue: str, bound: Iterable[str]) -> list[str]:
        """Resources that pods in ``bound`` ask for and of which a queue has more than its real capability."""
        held = self._held_by(queue)
        return [name for name in self._asked_by(bound) if held[name] > self.real_capability(queue, name)]

    def above_capability(self, queue: str, bound: Iterable[str]) -> list[str]:
        """Resources that pods in ``bound`` ask for and of which a queue has more than its stated capability."""
        held, limits = self._held_by(queue), self._limits(queue)
        return [name for name in self._asked_by(bound) if held[name] > limits.get(name, held[name])]

    def _held_by(self, queue: str) -> Counter[str]:
        held: Counter[str] = Counter()
        for key, node in self.node_of.items():
            pod = self.pods[key]
            there = node in self.nodes and not self._over(pod) and not pod.metadata.deletion_timestamp
            if there and pod.status.phase != "Unknown" and self.queue_of(key) == queue:
                held.update(asked_by(pod))
        return held

    def _asked_by(self, keys: Iterable[str]) -> list[str]:
        return sorted({name for key in keys for name in asked_by(self.pods[key])} - {"pods"})

    def _limits(self, queue: str) -> dict[str, int]:
        """The stated capability; zero cpu or memory limits nothing, as in Volcano."""
        stated = self.queues[queue].capability
        return {name: limit for name, limit in stated.items() if limit or name not in ALWAYS}

    def real_capability(self, queue: str, name: str) -> int:
        """min(capability, cluster - guarantees of the others) of one resource."""
        cluster = sum(record.allocatable.get(name, 0) for record in self.nodes.values())
        kept = {each: self._kept_guarantee(each, name) for each in self.queues}
        real = max(cluster - sum(kept.values()), 0) + kept[queue]
        return min(real, self._limits(queue).get(name, real))

    def _kept_guarantee(self, queue: str, name: str) -> int:
        """What others have to leave of a queue's guarantee: if it is not Open, only what it holds of it."""
        record = self.queues[queue]
        guarantee = record.guarantee.get(name, 0)
        guarantee = min(guarantee, self._limits(queue).get(name, guarantee))
        is_open = record.queue.status.state in ("", "Open")
        return guarantee if is_open or not guarantee else min(guarantee, self._held_by(queue)[name])

    # --- gangs ------------------------------------------------------------------------------------------------------

    def short_of(self, group: str) -> int:
        """How many members a group misses to its minimum; pending best-effort ones that nothing holds need no room."""
        have = 0
        for key, pod in self.pods.items():
            if self.group_of(key) != group:
                continue
            if pod.status.phase == "Succeeded":
                have += 1
            elif pod.status.phase in ("Failed", "Unknown") or pod.metadata.deletion_timestamp:
                continue
            elif self.node_of[key] or (is_best_effort(asked_by(pod)) and not pod.spec.scheduling_gates):
                have += 1
        return self.groups[group].group.spec.min_member - have
