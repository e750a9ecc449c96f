"""The cards of nodes: models by labels, numbers by allocatable (docs/semantics/capacity-card.md).

A node has one model. A resource of a node represents one card: the whole card, or an MPS share or MIG slice of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import msgspec
import numpy as np
import numpy.typing as npt

from vcd.model.objects import Node
from vcd.state.node_facts import NodeFacts
from vcd.state.sums import sum_of

Mask = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.int32]

NO_CARD = -1
"""The code of a node whose card of a resource is unknown."""
MPS_RESOURCE = "nvidia.com/gpu.shared"
MPS_REPLICAS = "nvidia.com/gpu.replicas"
MIG_PREFIX = "nvidia.com/mig-"

_PRODUCT = re.compile(r"(?P<vendor>[^/]+)/(?P<kind>\w+)\.product")
_NUMBER = re.compile(r"[0-9]{1,18}")


class Model(msgspec.Struct, frozen=True):
    """A node's model by its labels ``<vendor>/<kind>.product`` and ``.memory`` (MiB; None: not a number)."""

    product: str
    vendor: str
    kind: str
    memory: int | None
    replicas: int | None

    def card(self, resource: str, whole: Iterable[str]) -> str | None:
        """Return the name of a resource's card on such a node; ``whole`` are the resources of whole cards."""
        if resource == MPS_RESOURCE:
            if not self.memory or not self.replicas:
                return None
            return f"{self.product}/mps-{(self.memory + 512) // 1024}g*1/{self.replicas}"
        if resource.startswith(MIG_PREFIX):
            return f"{self.product}/mig-{resource.removeprefix(MIG_PREFIX)}-mixed"
        return self.product if resource in whole else None


def model_of(labels: Mapping[str, str]) -> Model | None:
    """Return the model that labels name; of several, the first by label key."""
    for key in sorted(key for key in labels if key.endswith(".product")):
        found = None if key.startswith(MIG_PREFIX) else _PRODUCT.fullmatch(key)
        if found is None or not labels[key]:
            continue
        vendor, kind = found["vendor"], found["kind"]
        memory = labels.get(f"{vendor}/{kind}.memory")
        if memory:
            return Model(labels[key], vendor, kind, _number(memory), _number(labels.get(MPS_REPLICAS, "")))
    return None


def _number(text: str) -> int | None:
    return int(text) if _NUMBER.fullmatch(text) else None


def whole_resource(model: Model, resources: Iterable[str]) -> str | None:
    """Return a node's resource of whole cards: ``<vendor>/<kind>``, else the vendor's first that is not a share."""
    own = sorted(name for name in resources if _is_whole(name, model.vendor))
    usual = f"{model.vendor}/{model.kind}"
    return usual if usual in own else own[0] if own else None


def _is_whole(resource: str, vendor: str) -> bool:
    return resource.startswith(f"{vendor}/") and resource != MPS_RESOURCE and not resource.startswith(MIG_PREFIX)


class NodeCards:
    """The cards of a cluster, by node.

    ``names`` are all cards, sorted. ``codes`` has, by card resource, the number of each node's card (NO_CARD if its
    labels do not identify it). ``total`` is what is allocatable of each card, in thousandths. ``nameless`` are the
    nodes that have some of a card resource, but an unknown card.
    """

    def __init__(self, facts: NodeFacts) -> None:
        models = [model_of(node.metadata.labels) for node in facts.nodes]
        found = self._cards(facts, models)
        self.names: list[str] = sorted({card for cards in found for card in cards.values()})
        self.code_of = {name: code for code, name in enumerate(self.names)}
        self.resources = tuple(sorted({resource for cards in found for resource in cards}))
        column_of = {name: column for column, name in enumerate(facts.resources)}
        self.columns = [column_of[resource] for resource in self.resources]
        self.codes: dict[str, Codes] = {}
        self.total = dict.fromkeys(self.names, 0)
        self.cards_of: dict[str, tuple[str, ...]] = {}
        self.resources_of: dict[str, tuple[str, ...]] = {}
        self.nameless: dict[str, Mask] = {}
        self._has_resource: dict[str, Mask] = {}
        self._masks: dict[tuple[str, tuple[str, ...], bool], Mask] = {}
        for resource in self.resources:
            self._fill(resource, found, facts.allocatable[:, column_of[resource]])
        self.has_nameless = {resource: bool(nodes.any()) for resource, nodes in self.nameless.items()}
        self.lists = {resource: codes.tolist() for resource, codes in self.codes.items()}

    @staticmethod
    def _cards(facts: NodeFacts, models: list[Model | None]) -> list[dict[str, str]]:
        """Return the card by resource for each node.

        A node without a resource (its device plugin is down) retains the card that other nodes of its model offer,
        because pods may still run on it.
        """
        counted = set(facts.resources)
        offered = [_offered(node) & counted for node in facts.nodes]
        own = [
            None if model is None else whole_resource(model, names)
            for model, names in zip(models, offered, strict=True)
        ]
        whole = sorted({resource for resource in own if resource is not None})
        shares = sorted({name for names in offered for name in names if _is_share(name)})
        found: list[dict[str, str]] = []
        for model, resource in zip(models, own, strict=True):
            cards: dict[str, str] = {}
            if model is not None:
                vendors = [name for name in whole if _is_whole(name, model.vendor)]
                for name in (*([resource] if resource else vendors), *shares):
                    card = model.card(name, whole)
                    if card is not None:
                        cards[name] = card
            found.append(cards)
        pairs = list(zip(found, offered, strict=True))
        real = {(name, card) for cards, names in pairs for name, card in cards.items() if name in names}
        return [{name: card for name, card in cards.items() if (name, card) in real} for cards in found]

    def _fill(self, resource: str, found: list[dict[str, str]], allocatable: npt.NDArray[np.int64]) -> None:
        codes = np.array([self.code_of.get(cards.get(resource, ""), NO_CARD) for cards in found], np.int32)
        self.codes[resource] = codes
        self._has_resource[resource] = allocatable > 0
        self.nameless[resource] = self._has_resource[resource] & (codes == NO_CARD)
        present = np.unique(codes[codes >= 0]).tolist()
        self.cards_of[resource] = tuple(self.names[code] for code in present)
        for code in present:
            name = self.names[code]
            self.total[name] += int(sum_of(allocatable[codes == code]))
            self.resources_of[name] = (*self.resources_of.get(name, ()), resource)

    def mask(self, resource: str, names: tuple[str, ...], nameless: bool) -> Mask:
        """Return the nodes whose card is one of ``names``, and with ``nameless`` also nodes whose card is unknown."""
        key = (resource, names, nameless)
        found = self._masks.get(key)
        if found is None:
            table = np.zeros(len(self.names) + 1, np.bool_)
            table[[self.code_of[name] for name in names if name in self.code_of]] = True
            table[NO_CARD] = nameless
            found = self._masks[key] = table[self.codes[resource]]
        return found

    def others(self, resource: str, names: tuple[str, ...]) -> Mask:
        """Return the nodes that have some of a resource, and a card that is not one of ``names``."""
        return self._has_resource[resource] & ~self.mask(resource, names, False)

    def card_at(self, resource: str, row: int) -> str | None:
        """Return the card of a resource on a node; None if it is unknown or the node was deleted."""
        code = self.lists[resource][row] if row >= 0 else NO_CARD
        return self.names[code] if code >= 0 else None


def _offered(node: Node) -> set[str]:
    return set(node.status.allocatable or node.status.capacity)


def _is_share(resource: str) -> bool:
    return resource == MPS_RESOURCE or resource.startswith(MIG_PREFIX)


def cards_of(facts: NodeFacts) -> NodeCards:
    """Return the cards of the nodes, recomputed when a node changes."""
    cards: NodeCards = facts.cached("cards of nodes", lambda: NodeCards(facts))
    return cards
