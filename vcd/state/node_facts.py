"""Fixed properties of nodes in columns: labels, taints, images, allocatable.

Shared by all snapshots until a node changes, together with results computed from them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from vcd.model.objects import Node
from vcd.model.resource_requests import PODS
from vcd.model.selectors import (
    DOES_NOT_EXIST,
    EXISTS,
    GREATER,
    IN,
    NOT_IN,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Taint,
    Toleration,
    check_node_terms,
    int64_of,
    tolerates,
)
from vcd.state.interning import Computed
from vcd.state.records import NodeRecord, name_bits

Mask = npt.NDArray[np.bool_]

_BOUNDLESS = int(np.iinfo(np.int64).max) // 2

_CELLS, _LEAST_CACHED = 1 << 26, 1000
"""Cached results cover about this many nodes in total, and at least this many selectors or lists of tolerations."""

_NOT_FOUND = -2
NO_VALUE = -1
"""The code of a label that a node does not have."""


def _code_of(values: list[str], text: str) -> int:
    """Return the index of a text in sorted values, or a code that no node has."""
    place = bisect_left(values, text)
    return place if place < len(values) and values[place] == text else _NOT_FOUND


def rows_as_bytes(matrix: npt.NDArray[np.generic]) -> list[bytes]:
    rows = np.ascontiguousarray(matrix)
    found: list[bytes] = rows.view(f"V{rows.itemsize * rows.shape[1]}").ravel().tolist()
    return found


class NodeFacts:
    """The nodes in order of name, one row each.

    ``allocatable`` is int64 of shape (nodes, resources), in the order of ``resources``.
    """

    def __init__(self, nodes: Mapping[str, NodeRecord], resources: Sequence[str]) -> None:
        self.names: list[str] = sorted(nodes)
        self.row_of: dict[str, int] = {name: row for row, name in enumerate(self.names)}
        self.nodes: list[Node] = [nodes[name].node for name in self.names]
        self.resources = tuple(resources)
        self.column_of = {name: column for column, name in enumerate(resources)}
        self.allocatable = np.zeros((len(self.names), len(resources)), np.int64)
        amounts = [nodes[name].allocatable for name in self.names]
        for column, resource in enumerate(resources):
            self.allocatable[:, column] = [each.get(resource, 0) for each in amounts]
        self._labels: dict[str, tuple[npt.NDArray[np.int32], list[str]]] = {}
        self.cached = Computed(max(_CELLS // max(1, len(self)), _LEAST_CACHED))
        """Results computed from these facts alone."""

    def __len__(self) -> int:
        return len(self.names)

    # --- sizes ------------------------------------------------------------------------------------------------------

    @cached_property
    def largest(self) -> npt.NDArray[np.int64]:
        """The largest amount of each resource on any node; the number of pods is unlimited."""
        found = self.allocatable.max(axis=0) if len(self) else np.zeros(len(self.resources), np.int64)
        found[self.column_of[PODS]] = _BOUNDLESS
        return found

    @cached_property
    def sizes(self) -> npt.NDArray[np.int64]:
        """The distinct sizes of nodes, without those that another one equals or exceeds in every resource."""
        rows = np.array(self.allocatable, np.int64, order="C")
        rows[:, self.column_of[PODS]] = _BOUNDLESS
        sizes = rows[list(dict(zip(rows_as_bytes(rows), range(len(rows)), strict=True)).values())]
        maximal: list[npt.NDArray[np.int64]] = []
        for size in sizes[np.argsort(-sizes.sum(axis=1), kind="stable")]:
            if not any((size <= other).all() for other in maximal):
                maximal.append(size)
        return np.array(maximal, np.int64).reshape(len(maximal), len(self.resources))

    def too_large(self, requests: npt.NDArray[np.int64]) -> Mask:
        """Return which requests, as (requests, resources), fit no node even if empty; none if there is no node."""
        rest = np.arange(len(requests) if len(self) else 0)
        for size in self.sizes:
            rest = rest[(requests[rest] > size).any(axis=1)]
            if not len(rest):
                break
        result = np.zeros(len(requests), np.bool_)
        result[rest] = True
        return result

    # --- labels -----------------------------------------------------------------------------------------------------

    def label(self, key: str) -> tuple[npt.NDArray[np.int32], list[str]]:
        """Return a label over the nodes: codes (NO_VALUE where absent), and the sorted values that codes index."""
        if key not in self._label_keys:  # selectors may name any number of keys
            return self._no_value, []
        found = self._labels.get(key)
        if found is None:
            texts = [node.metadata.labels.get(key) for node in self.nodes]
            values = sorted({text for text in texts if text is not None})
            code_of: dict[str | None, int] = {text: code for code, text in enumerate(values)}
            code_of[None] = NO_VALUE
            codes = np.fromiter((code_of[text] for text in texts), np.int32, len(texts))
            found = self._labels[key] = (codes, values)
        return found

    def ties(self, seed: int) -> npt.NDArray[np.int64]:
        """Return each row's rank in the seeded order of nodes; ties go to the smallest (docs/semantics/actions.md).

        Seed 0 is the order of names, in which Volcano's list of nodes starts. For other seeds it is derived from seed
        and names.
        """
        if seed == 0:
            return np.arange(len(self.names))

        def rank() -> npt.NDArray[np.int64]:
            bits = [name_bits(seed, name) for name in self.names]
            order = sorted(range(len(bits)), key=lambda row: (bits[row], self.names[row]))
            ranks = np.empty(len(bits), np.int64)
            ranks[order] = np.arange(len(bits))
            return ranks

        ranks: npt.NDArray[np.int64] = self.cached(("ties", seed), rank)
        return ranks

    # --- selectors --------------------------------------------------------------------------------------------------

    @cached_property
    def _label_keys(self) -> frozenset[str]:
        return frozenset[str]().union(*[node.metadata.labels for node in self.nodes])

    @cached_property
    def _no_value(self) -> npt.NDArray[np.int32]:
        return np.full(len(self), NO_VALUE, np.int32)

    def matches_labels(self, wanted: Mapping[str, str]) -> Mask:
        """Return nodes that have all the given labels."""
        result = np.ones(len(self), np.bool_)
        for key, text in wanted.items():
            codes, values = self.label(key)
            if (code := _code_of(values, text)) == _NOT_FOUND:
                return np.zeros(len(self), np.bool_)  # so a pod costs no more than the keys that nodes have
            result &= codes == code
        return result

    def matches_term(self, term: NodeSelectorTerm) -> Mask:
        """Return nodes that match a term; an empty term matches none. Raises SelectorError."""
        check_node_terms((term,))
        result = np.full(len(self), bool(term.match_expressions or term.match_fields), np.bool_)
        for need in term.match_expressions:
            result &= self._matches_requirement(need)
        for need in term.match_fields:  # the name is the only field, and it is compared with one value
            is_named = np.arange(len(self)) == self.row_of.get(need.values[0], NO_VALUE)
            result &= is_named if need.operator == IN else ~is_named
        return result

    def _matches_requirement(self, need: NodeSelectorRequirement) -> Mask:
        codes, values = self.label(need.key)
        if need.operator in (EXISTS, DOES_NOT_EXIST):
            result: Mask = (codes >= 0) == (need.operator == EXISTS)
        elif need.operator in (IN, NOT_IN):
            wanted = [_code_of(values, text) for text in need.values]
            result = np.isin(codes, wanted) if len(wanted) != 1 else codes == wanted[0]
            result = result if need.operator == IN else ~result
        else:
            result = self._compares(need)
        return result

    def _compares(self, need: NodeSelectorRequirement) -> Mask:
        """Return nodes whose label is above (Gt) or below (Lt) a number; labels that are no int64 match neither."""
        codes, values = self.label(need.key)

        def read() -> tuple[npt.NDArray[np.int64], Mask]:
            numbers = [int64_of(text) for text in values]
            is_number = np.array([number is not None for number in numbers] + [False], np.bool_)
            return np.array([number or 0 for number in numbers] + [0], np.int64)[codes], is_number[codes]

        numbers, is_number = self.cached(("numbers", need.key), read)
        bound = int64_of(need.values[0])
        if bound is None:
            return np.zeros(len(self), np.bool_)
        result: Mask = is_number & (numbers > bound if need.operator == GREATER else numbers < bound)
        return result

    # --- taints -----------------------------------------------------------------------------------------------------

    def taint_sets(self) -> tuple[npt.NDArray[np.int32], list[tuple[Taint, ...]]]:
        """Return a number per node, and the distinct lists of taints that the numbers index."""

        def collect() -> tuple[npt.NDArray[np.int32], list[tuple[Taint, ...]]]:
            numbers: dict[tuple[Taint, ...], int] = {}
            codes = [numbers.setdefault(node.spec.taints, len(numbers)) for node in self.nodes]
            return np.array(codes, np.int32).reshape(len(codes)), list(numbers)

        found: tuple[npt.NDArray[np.int32], list[tuple[Taint, ...]]] = self.cached("taint sets", collect)
        return found

    @cached_property
    def taint_effects(self) -> frozenset[str]:
        """The effects of the nodes' taints."""
        return frozenset(taint.effect for taints in self.taint_sets()[1] for taint in taints)

    def untolerated(self, tolerations: tuple[Toleration, ...], effects: tuple[str, ...]) -> npt.NDArray[np.int64]:
        """Return how many taints of the given effects each node has that the tolerations do not cover."""

        def count() -> npt.NDArray[np.int64]:
            codes, sets = self.taint_sets()
            counts = [
                sum(taint.effect in effects and not tolerates(tolerations, taint) for taint in taints)
                for taints in sets
            ]
            return np.array(counts or [0], np.int64)[codes]

        counts: npt.NDArray[np.int64] = self.cached(("untolerated", tolerations, effects), count)
        return counts
