"""Shared cards of nodes, pods' requests of them, and pods' shares.

Quantities are integers in the units of the device plugins: memory in MB (or blocks of it), cores in percent of a card.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from vcd.scheduling.search.parts import Mask
from vcd.scheduling.session.nodes import Ints

HAMI_CORE = "hami-core"
MIG = "mig"
POINT = 1_000_000
"""Points of cards are integers in millionths."""
FULL = 100
"""All cores of a card, in percent."""


class Instance(NamedTuple):
    """A kind of MIG instance in a geometry: its name, memory and number."""

    name: str
    memory: int
    number: int


class Geometry(NamedTuple):
    """One partitioning of a MIG card: the group's name and its instances, in the order of positions."""

    group: str
    instances: tuple[Instance, ...]


class Card(NamedTuple):
    """A card of a node. ``slots`` is how many pods may share it; ``geometries`` are the partitionings of a MIG card."""

    uuid: str
    memory: int
    slots: int
    type: str = ""
    healthy: bool = True
    geometries: tuple[Geometry, ...] = ()


class Request(NamedTuple):
    """One container's request of each of ``number`` cards.

    ``percent`` of the card's memory, if not None, wins over ``memory``. ``alone``: the card must be unused.
    """

    number: int
    memory: int
    percent: int | None = None
    cores: int = 0
    alone: bool = False

    def memory_on(self, card_memory: int) -> int:
        """Return the memory that the request uses on a card with ``card_memory``."""
        return self.memory if self.percent is None else card_memory * self.percent // 100


class PodRequest(msgspec.Struct, frozen=True):
    """Everything that decides which cards a pod can get: equal requests get equal results.

    ``avoids`` are the marks of cards that the pod must not get (marks of rules apply to nodes without MIG only).
    ``queue`` is set if its remaining capability limits the nodes.
    """

    requests: tuple[Request, ...]
    mode: str = ""
    use_types: tuple[str, ...] = ()
    no_types: tuple[str, ...] = ()
    use_uuids: tuple[str, ...] = ()
    no_uuids: tuple[str, ...] = ()
    avoids: tuple[str, ...] = ()
    queue: str = ""

    @property
    def memory(self) -> int:
        """Memory over all cards, without requests in percent."""
        return sum(request.number * request.memory for request in self.requests if request.percent is None)

    @property
    def cores(self) -> int:
        """Percent of cores over all cards."""
        return sum(request.number * request.cores for request in self.requests)


class Piece(NamedTuple):
    """A share of a card.

    The index of its container, the card's place on its node, the identity written to the pod, requested memory and
    cores, the memory that it takes of the card, and the position in the geometry of a MIG card.
    """

    container: int
    card: int
    identity: str
    memory: int
    cores: int
    takes: int
    slot: tuple[int, int] | None = None


class SharePlan(NamedTuple):
    """The shares that a pod gets on a node, and their score in millionths of a point."""

    pieces: tuple[Piece, ...]
    points: int

    @property
    def memory(self) -> int:
        """Requested memory over all cards."""
        return sum(piece.memory for piece in self.pieces)

    @property
    def cores(self) -> int:
        """Percent of cores over all cards."""
        return sum(piece.cores for piece in self.pieces)


class Cards:
    """The cards of all nodes, one row a node, as columns of shape (nodes, cards).

    ``problems`` has a text for each node whose cards cannot be used, else an empty one.
    """

    def __init__(self, nodes: Sequence[Sequence[Card]], modes: Sequence[str], problems: Sequence[str]) -> None:
        width = max([1, *map(len, nodes)])
        shape = (len(nodes), width)
        self.nodes = nodes
        self.modes = modes
        self.problems = problems
        self.memory: Ints = np.zeros(shape, np.int64)
        self.slots: Ints = np.zeros(shape, np.int64)
        self.usable: Mask = np.zeros(shape, np.bool_)
        self.type_codes: Ints = np.zeros(shape, np.int64)
        self.mig_rows = [row for row, mode in enumerate(modes) if mode == MIG]
        self.places = [{card.uuid: place for place, card in enumerate(cards)} for cards in nodes]
        codes: dict[str, int] = {}
        flat = [
            (row, place, card.memory, card.slots, codes.setdefault(card.type, len(codes)), card.healthy)
            for row, cards in enumerate(nodes)
            for place, card in enumerate(cards)
        ]
        if flat:
            rows, places, memory, slots, types, healthy = np.array(flat, np.int64).T
            self.memory[rows, places] = memory
            self.slots[rows, places] = slots
            self.type_codes[rows, places] = types
            sound = np.array([not problem for problem in problems], np.bool_)
            self.usable[rows, places] = (healthy > 0) & sound[rows]
        self.types = list(codes)

    def __len__(self) -> int:
        return len(self.nodes)

    def of_mode(self, pod_request: PodRequest) -> Mask:
        """Return the nodes whose cards are shared in the mode that a pod requests."""
        if not pod_request.mode:
            return np.ones(len(self), np.bool_)
        return np.fromiter((mode == pod_request.mode for mode in self.modes), np.bool_, len(self))

    def allowed(self, pod_request: PodRequest) -> Mask:
        """Return the cards that may serve a request, whatever their usage."""
        result: Mask = self.usable & self.of_mode(pod_request)[:, None]
        if pod_request.use_types or pod_request.no_types:
            table = [_type_passes(pod_request, card_type) for card_type in self.types]
            result &= np.array(table or [False], np.bool_)[self.type_codes]
        if pod_request.use_uuids or pod_request.no_uuids:
            matching = np.full(result.shape, not pod_request.use_uuids, np.bool_)
            for row, places in enumerate(self.places):
                for uuid in pod_request.use_uuids:
                    if uuid in places:
                        matching[row, places[uuid]] = True
                for uuid in pod_request.no_uuids:
                    if uuid in places:
                        matching[row, places[uuid]] = False
            result &= matching
        return result


def _type_passes(pod_request: PodRequest, card_type: str) -> bool:
    """Return whether a type of card is wanted. Wanted types, if any are named, win over unwanted ones."""
    upper = card_type.upper()
    if pod_request.use_types:
        return any(word in upper for word in pod_request.use_types)
    return not any(word in upper for word in pod_request.no_types)


def pick_slot(
    geometries: Sequence[Geometry], used: Sequence[tuple[int, int]], memory: int
) -> tuple[tuple[int, int], int] | None:
    """Return the smallest free MIG instance with enough memory: (group, position) and its memory.

    A partitioned card remains as it is; an unused one is partitioned in the first way that fits.
    """
    groups = [used[0][0]] if used else range(len(geometries))
    for group in groups:
        first, choices = 0, []
        for instance in geometries[group].instances:
            free = (first + i for i in range(instance.number) if (group, first + i) not in used)
            position = next(free, None)
            if position is not None and instance.memory >= memory:
                choices.append((instance.memory, position))
            first += instance.number
        if choices:
            size, position = min(choices)
            return (group, position), size
    return None
