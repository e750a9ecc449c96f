"""binpack: fuller nodes first (docs/semantics/plugins.md)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from vcd.model.requests import CPU, MEMORY
from vcd.scheduling.framework.arguments import Argument, ArgumentValues
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.search.parts import Columns, Depends, Score, Scores
from vcd.scheduling.session.nodes import Usage
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task

_RESOURCE = "binpack.resources.<resource>"


class _Part(NamedTuple):
    """A weighed resource: its column, its weight, and whether all nodes have some."""

    column: int
    weight: int
    everywhere: bool


class Binpack(Score):
    """100 x weight x the weighed mean of (request + used) / allocatable over the resources that the pod asks for.

    0 where one of them would not fit; used counts no pods that wait for room.
    """

    name = "binpack"
    depends = Depends.USAGE

    def __init__(self, session: Session, factor: int, weights: Mapping[str, int]) -> None:
        super().__init__(1)
        self._factor = float(100 * factor)
        allocatable = session.nodes.usage.allocatable
        self._parts = [
            _Part(column, weights[name], bool(allocatable[column].all()))
            for name, column in session.nodes.column_of.items()
            if name in weights
        ]

    def applies(self, task: Task) -> bool:
        return any(part.weight and task.amounts[part.column] for part in self._parts)

    def node_columns(self) -> Columns:
        return ()

    def raw(self, task: Task, usage: Usage) -> Scores:
        allocatable, used = usage.float_allocatable, usage.used
        score, over = np.zeros(len(usage)), np.zeros(len(usage), np.bool_)
        asked = [part for part in self._parts if task.amounts[part.column]]
        for column, weight, everywhere in asked:
            if not weight:
                continue
            capacity, part = allocatable[column], (used[column] + task.amounts[column]).astype(np.float64)
            beyond = part > capacity
            if weight != 1:
                part *= weight
            if everywhere:
                part /= capacity
            else:
                there = capacity != 0
                beyond &= there
                part = np.divide(part, capacity, out=np.zeros(len(usage)), where=there)
            over |= beyond
            score += part
        score /= float(sum(part.weight for part in asked)) or 1.0
        score *= self._factor
        np.putmask(score, over, 0.0)
        return score


class BinpackPlugin(Plugin):
    """Pods go where the resources that they ask for are used most, so that other nodes stay empty.

    Each weighed resource that a pod asks for adds weight x (request + used) / allocatable; the sum is divided by the
    sum of the weights and multiplied by 100 x binpack.weight. A node on which one of them would not fit gets 0, one
    that has none of it no points for it. With binpack.weight 0 the plugin rates nothing. Source: Volcano
    ``plugins/binpack``.
    """

    name = "binpack"
    treats_alike = True
    arguments = (
        Argument("binpack.weight", "int", 1, "How much the plugin's score counts beside other plugins' scores."),
        Argument("binpack.cpu", "int", 1, "Weight of cpu; below 0 it means 1."),
        Argument("binpack.memory", "int", 1, "Weight of memory; below 0 it means 1."),
        Argument("binpack.resources", "strings", (), "Further resources that are weighed."),
        Argument(_RESOURCE, "int", 1, "Weight of one of them; below 0 it means 1. Others than those are not weighed."),
    )

    def __init__(self, arguments: ArgumentValues) -> None:
        super().__init__(arguments)
        given = arguments.matching(_RESOURCE)
        weights = {name: given.get(name, 1) for name in arguments["binpack.resources"]}
        weights |= {CPU: arguments["binpack.cpu"], MEMORY: arguments["binpack.memory"]}
        self.factor: int = arguments["binpack.weight"]
        self.weights: dict[str, int] = {name: 1 if weight < 0 else weight for name, weight in weights.items()}

    def open(self, session: Session) -> None:
        """Remember whose nodes to rate."""
        self._session = session

    def node_order(self) -> Iterable[Score]:
        """The one score, unless its weight is 0."""
        if self.factor:
            yield Binpack(self._session, self.factor, self.weights)
