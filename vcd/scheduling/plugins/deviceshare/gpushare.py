"""GPU sharing and GPU number, the predecessors of vGPU: memory of one card, or whole cards, by index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vcd.model.objects import Container, Node, PodSpec
from vcd.model.quantity import QuantityError, parse_units
from vcd.scheduling.plugins.deviceshare.shared_cards import Card, Cards, Piece, Request

GPU_MEMORY = "volcano.sh/gpu-memory"
GPU_NUMBER = "volcano.sh/gpu-number"
GPU_INDEX = "volcano.sh/gpu-index"
PREDICATE_TIME = "volcano.sh/predicate-time"
UNHEALTHY = "volcano.sh/gpu-unhealthy-ids"
NODE_LOCK = "gpu"
"""The annotation with which vc-scheduler locks a node for one pod at a time."""

NO_CARDS = f"node(s) had no cards in their capacity of {GPU_NUMBER} and {GPU_MEMORY}"
_MANY = 2**31
_MOST_CARDS = 1024


def indexed_cards(nodes: Sequence[Node]) -> Cards:
    """Return the cards by the nodes' capacity, all of one size; unhealthy cards get no pods."""
    found: list[list[Card]] = []
    for node in nodes:
        try:
            stated = node.status.capacity if GPU_MEMORY in node.status.capacity else {}
            memory, number = parse_units(stated.get(GPU_MEMORY, 0)), parse_units(stated.get(GPU_NUMBER, 0))
        except QuantityError:
            memory = number = 0
        size = memory // number if number else 0
        usable = 0 < number <= _MOST_CARDS and size < _MANY
        unhealthy = _indices(node.metadata.annotations.get(UNHEALTHY, ""))
        found.append([Card(str(i), size, _MANY, healthy=i not in unhealthy) for i in range(number)] if usable else [])
    return Cards(found, [""] * len(found), ["" if cards else NO_CARDS for cards in found])


def _indices(text: str) -> list[int]:
    """Return the numbers of a list with commas; other entries are ignored."""
    parts = (part.strip() for part in text.split(","))
    return [int(part) for part in parts if part.isascii() and part.isdigit() and len(part) < 10]


def indexed_requests(spec: PodSpec, *, by_number: bool) -> tuple[Request, ...] | str:
    """Return a pod's request as a whole: memory of one card, or a number of unused cards."""
    name = GPU_NUMBER if by_number else GPU_MEMORY
    try:
        amount = max(
            sum(_stated(container, name) for container in spec.containers),
            max((_stated(container, name) for container in spec.init_containers), default=0),
        )
    except QuantityError as error:
        return f"{name}: {error}"
    if amount >= _MANY:
        return f"{name}: {amount} is more than any card has"
    if not amount:
        return ()
    return (Request(amount, 0, alone=True),) if by_number else (Request(1, amount),)


def _stated(container: Container, name: str) -> int:
    return parse_units(container.resources.limits.get(name, container.resources.requests.get(name, 0)))


def indexed(pieces: Sequence[Piece], time: int) -> dict[str, str]:
    """Return the annotations from which the device plugin reads the cards of a pod; ``time`` in nanoseconds."""
    return {GPU_INDEX: ",".join(piece.identity for piece in pieces), PREDICATE_TIME: str(time)}


def shares_by_index(
    annotations: Mapping[str, str], places: Mapping[str, int], requests: Sequence[Request]
) -> list[Piece]:
    """Return the shares of the cards that a pod's annotation names."""
    memory = requests[0].memory if requests else 0
    indices = dict.fromkeys(_indices(annotations.get(GPU_INDEX, "")))
    return [Piece(0, places[str(index)], str(index), memory, 0, memory) for index in indices if str(index) in places]
