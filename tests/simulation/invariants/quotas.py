"""What queues may hold at most, added up from plain objects: capabilities along the tree, cards, groups of nodes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any

from tests.laws.accounts import ALWAYS, Accounts, asked_by
from tests.simulation.swarm.cluster import GPU, GROUP_LABEL
from vcd.model.objects import Pod
from vcd.model.resource_requests import resource_values
from vcd.scheduling.framework.policy import PluginOption

CARDS, LIMITS = "volcano.sh/card.quota", "volcano.sh/nodegroup-resource-limits"
PRODUCT = f"{GPU}.product"
ROOT = "root"


class Quotas:
    """Looks at what queues hold once pods are placed, by the plugins that are on. ``evicted`` pods are to go: they
    count in no queue's capability, nor do those that are being deleted."""

    def __init__(self, accounts: Accounts, plugins: Mapping[str, PluginOption], evicted: Container[str]) -> None:
        self._accounts, self._plugins, self._evicted = accounts, plugins, evicted

    def over(self, bound: list[str]) -> Iterator[tuple[str, str]]:
        """The invariant and what is wrong, for each limit that pods in ``bound`` came to exceed."""
        for queue in sorted({self._accounts.queue_of(key) for key in bound} & self._accounts.queues.keys()):
            mine = [key for key in bound if self._accounts.queue_of(key) == queue]
            yield from self._over_capability(queue, mine)
            if "capacity-card" in self._plugins:
                yield from self._over_cards(queue, mine)
                yield from self._over_rest(queue, mine)
            if "nodegroup" in self._plugins:
                yield from self._over_groups_of_nodes(queue, mine)

    def _asked(self, bound: Iterable[str]) -> set[str]:
        return {name for key in bound for name in asked_by(self._accounts.pods[key])}

    def _held(self, queues: Iterable[str], leaving: bool = False) -> Iterator[tuple[Pod, str]]:
        """Pods of queues and their nodes; with those that are ``leaving``, if so asked."""
        accounts, among = self._accounts, set(queues)
        for key, node in accounts.node_of.items():
            pod = accounts.pods[key]
            over = pod.status.phase in ("Succeeded", "Failed", "Unknown")
            gone = not leaving and (bool(pod.metadata.deletion_timestamp) or key in self._evicted)
            if node in accounts.nodes and not over and not gone and accounts.queue_of(key) in among:
                yield pod, node

    # --- capability ---------------------------------------------------------------------------------------------------

    def _over_capability(self, queue: str, bound: list[str]) -> Iterator[tuple[str, str]]:
        option = self._plugins.get("capacity")
        tree = option is not None and option.enabled.get("enableHierarchy", False)
        for name in [queue, *(self._above(queue) if tree else ())] if self._limits() else ():
            held: Counter[str] = Counter()
            for pod, _ in self._held(self._below(name) if tree else [name]):
                held.update(asked_by(pod))
            stated = self._accounts.queues[name].capability
            limits = {resource: limit for resource, limit in stated.items() if limit or resource not in ALWAYS}
            if "proportion" in self._plugins:  # which gives what is guaranteed (docs/semantics/plugins.md)
                guaranteed = self._accounts.queues[name].guarantee
                limits = {resource: max(limit, guaranteed.get(resource, 0)) for resource, limit in limits.items()}
            minded = (self._asked(bound) - {"pods"}) & limits.keys()
            if over := sorted(resource for resource in minded if held[resource] > limits[resource]):
                yield "no queue over", f"{name} has too little {over} for {bound}"

    def _limits(self) -> bool:
        return bool({"capacity", "proportion"} & self._plugins.keys())

    def _parent(self, queue: str) -> str:
        return self._accounts.queues[queue].queue.spec.parent or (ROOT if queue != ROOT else "")

    def _above(self, queue: str) -> list[str]:
        """A queue's ancestors that are there."""
        found: list[str] = []
        while (queue := self._parent(queue)) in self._accounts.queues and queue not in found:
            found.append(queue)
        return found

    def _below(self, queue: str) -> set[str]:
        """A queue and all below it."""
        return {name for name in self._accounts.queues if name == queue or queue in self._above(name)}

    # --- cards --------------------------------------------------------------------------------------------------------

    def _over_cards(self, queue: str, bound: list[str]) -> Iterator[tuple[str, str]]:
        """Each pod's cards count as those of its node, until it is gone."""
        quota = _listed(self._accounts.queues[queue].queue.metadata.annotations.get(CARDS))
        if quota is None:
            return
        held: Counter[str] = Counter()
        for pod, node in self._held([queue], leaving=True):
            held[self._card(node)] += asked_by(pod).get(GPU, 0) // 1000
        cards = {self._card(self._accounts.node_of[key]) for key in bound if GPU in self._asked([key])}
        for card in sorted(cards - {""}):
            if held[card] > quota.get(card, 0):
                yield "no card quota over", f"{queue} has {held[card]} of {quota.get(card, 0)} {card} with {bound}"

    def _card(self, node: str) -> str:
        record = self._accounts.nodes.get(node)
        return "" if record is None else record.node.metadata.labels.get(PRODUCT, "")

    def _over_rest(self, queue: str, bound: list[str]) -> Iterator[tuple[str, str]]:
        """Cpu and memory by the capability, of which 0 is none; pods with cards may count none."""
        free = self._plugins["capacity-card"].arguments.get("cardUnlimitedCpuMemory") is True
        held: Counter[str] = Counter()
        for pod, _ in self._held([queue]):
            asked = asked_by(pod)
            held.update({} if free and GPU in asked else asked)
        minded = self._asked(key for key in bound if not (free and GPU in self._asked([key])))
        stated = self._accounts.queues[queue].capability
        over = sorted(name for name in minded & stated.keys() & set(ALWAYS) if held[name] > stated[name])
        if over:
            yield "no queue over", f"{queue} has too little {over} for {bound}"

    # --- groups of nodes ----------------------------------------------------------------------------------------------

    def _over_groups_of_nodes(self, queue: str, bound: list[str]) -> Iterator[tuple[str, str]]:
        annotations = self._accounts.queues[queue].queue.metadata.annotations
        for group, amounts in sorted((_listed(annotations.get(LIMITS)) or {}).items()):
            mine = [key for key in bound if self._group_of(self._accounts.node_of[key]) == group]
            held: Counter[str] = Counter()
            for pod, node in self._held([queue]):
                if self._group_of(node) == group:
                    held.update(asked_by(pod))
            limits = resource_values(amounts)
            over = sorted(name for name in self._asked(mine) & limits.keys() if held[name] > limits[name])
            if over:
                yield "no queue over", f"{queue} may have no more {over} of the nodes {group}, with {mine}"

    def _group_of(self, node: str) -> str:
        record = self._accounts.nodes.get(node)
        return "" if record is None else record.node.metadata.labels.get(GROUP_LABEL, "")


def _listed(text: str | None) -> dict[str, Any] | None:
    """What a queue's annotation lists; None where there is none."""
    return dict(json.loads(text)) if text else None
