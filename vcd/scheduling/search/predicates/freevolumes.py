"""The volumes of a storage class in columns: to which volume a claim can be bound on each node.

Source: component-helpers ``storage/volume`` (FindMatchingVolume), as kube-scheduler 1.36 uses it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from vcd.model.objects import PersistentVolume, PersistentVolumeClaim, Quantities
from vcd.model.quantity import QuantityError, parse_units
from vcd.model.selectors import IN, LabelSelector, NodeSelectorTerm
from vcd.scheduling.search.parts import Mask
from vcd.scheduling.search.predicates.node_predicates import matching
from vcd.scheduling.session.nodes import Ints
from vcd.state.node_facts import NodeFacts

ChosenVolumes = npt.NDArray[np.int64]
"""Per node the number of the volume that a claim would be bound to, -1 for none."""

NONE = -1
_NARROW = 64
"""Volumes that at most this many nodes reach are processed together, wider ones one by one."""


def size_of(quantities: Quantities) -> int:
    """Return bytes of storage, 0 if none are given. Raises QuantityError."""
    return parse_units(quantities.get("storage", 0))


def reaches(facts: NodeFacts, volume: PersistentVolume) -> Mask:
    """Return nodes that can use a volume. As in kube-scheduler, its terms see a node's labels, not its name."""
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return np.ones(len(facts), np.bool_)
    result = np.zeros(len(facts), np.bool_)
    for term in affinity.required.node_selector_terms:
        if not any(need.operator == IN for need in term.match_fields):
            result |= matching(facts, NodeSelectorTerm(match_expressions=term.match_expressions))
    return result


class ClassVolumes:
    """Volumes numbered by size, then by name. Unreadable and terminating volumes are left out."""

    def __init__(self, facts: NodeFacts, volumes: Iterable[PersistentVolume]) -> None:
        self._facts = facts
        sized = sorted((size, volume.metadata.name, volume) for size, volume in _readable_volumes(volumes))
        self.names = [name for _, name, _ in sized]
        self._number_of = {name: number for number, name in enumerate(self.names)}
        self._volumes = [volume for _, _, volume in sized]
        self._sizes: Ints = np.array([size for size, _, _ in sized], np.int64)
        self._free: Mask = np.array(
            [volume.spec.claim_ref is None and volume.status.phase == "Available" for volume in self._volumes], np.bool_
        )
        self._claimed: dict[str, list[int]] = {}
        for number, volume in enumerate(self._volumes):
            reference = volume.spec.claim_ref
            if reference is not None:
                self._claimed.setdefault(f"{reference.namespace}/{reference.name}", []).append(number)
        numbers: dict[tuple[str, frozenset[str]], int] = {}
        kinds = [(volume.spec.volume_mode, frozenset(volume.spec.access_modes)) for volume in self._volumes]
        self._kind: Ints = np.array([numbers.setdefault(kind, len(numbers)) for kind in kinds], np.int64)
        self._kinds = list(numbers)
        self._compute_reach()

    def _compute_reach(self) -> None:
        """Compute which nodes reach which volumes: pairs for narrow volumes, a mask for each wide one."""
        rows, numbers = [], []
        self._wide: list[tuple[int, Mask]] = []
        for number, volume in enumerate(self._volumes):
            mask = reaches(self._facts, volume)
            where = np.flatnonzero(mask)
            if where.size > _NARROW:
                self._wide.append((number, mask))
            else:
                rows.append(where)
                numbers.append(np.full(where.size, number, np.int64))
        self._rows = np.concatenate(rows) if rows else np.zeros(0, np.intp)
        self._numbers = np.concatenate(numbers) if numbers else np.zeros(0, np.int64)

    # --- reservations -------------------------------------------------------------------------------------------------

    def assume(self, number: int, claim: str) -> None:
        """Reserve a volume for a claim."""
        self._free[number] = False
        self._claimed.setdefault(claim, []).append(number)

    def release(self, number: int, claim: str) -> None:
        """Undo ``assume``."""
        self._free[number] = True
        self._claimed[claim].remove(number)

    def number_of(self, name: str) -> int:
        """Return the number of a volume, or NONE if it is not in this class."""
        return self._number_of.get(name, NONE)

    def is_free(self, number: int) -> bool:
        """Whether a volume is available and reserved for no claim."""
        return bool(self._free[number])

    # --- choosing -----------------------------------------------------------------------------------------------------

    def choose(self, claim: PersistentVolumeClaim, others: Sequence[ChosenVolumes]) -> ChosenVolumes:
        """Return, per node, the smallest volume that suits a claim and that none of the ``others`` chose there.

        If a volume is reserved for the claim, only that volume is considered. Raises QuantityError and SelectorError
        for an invalid claim.
        """
        suitable = self._suitable(claim)
        beyond = len(self.names)
        chosen = np.full(len(self._facts), beyond, np.int64)
        pairs = suitable[self._numbers]
        rows, numbers = self._rows[pairs], self._numbers[pairs]
        for other in others:
            untaken = other[rows] != numbers
            rows, numbers = rows[untaken], numbers[untaken]
        reached, first = np.unique(rows, return_index=True)
        chosen[reached] = numbers[first]  # pairs are in order of number: the first is the smallest
        for number, mask in self._wide:
            if suitable[number]:
                better = mask & (chosen > number)
                for other in others:
                    better &= other != number
                chosen[better] = number
                if chosen.max() <= number:
                    break
        chosen[chosen == beyond] = NONE
        return chosen

    def _suitable(self, claim: PersistentVolumeClaim) -> Mask:
        """Return the volumes that a claim may be bound to, by number."""
        spec = claim.spec
        needed = size_of(spec.resources.requests)
        claimed = [number for number in self._claimed.get(claim.key, ()) if self._is_for(number, claim, needed)]
        if claimed:
            result = np.zeros(len(self.names), np.bool_)
            result[min(claimed, key=lambda number: self.names[number])] = True
            return result
        modes = set(spec.access_modes)
        kinds = [mode == spec.volume_mode and modes <= offered for mode, offered in self._kinds]
        result = self._free & (self._sizes >= needed) & np.array(kinds, np.bool_)[self._kind]
        if spec.selector is not None:
            selector = LabelSelector.compile(spec.selector)
            for number in np.flatnonzero(result).tolist():
                result[number] = selector.matches(self._volumes[number].metadata.labels)
        return result

    def _is_for(self, number: int, claim: PersistentVolumeClaim, needed: int) -> bool:
        volume = self._volumes[number]
        reference = volume.spec.claim_ref
        return (
            self._sizes[number] >= needed
            and volume.spec.volume_mode == claim.spec.volume_mode
            and (reference is None or reference.uid in ("", claim.metadata.uid))
        )


def _readable_volumes(volumes: Iterable[PersistentVolume]) -> Iterable[tuple[int, PersistentVolume]]:
    for volume in volumes:
        if volume.metadata.deletion_timestamp is None:
            try:
                yield size_of(volume.spec.capacity), volume
            except QuantityError:
                continue  # the API server admits no such volume; its size is unknown
