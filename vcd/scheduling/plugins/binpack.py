"""binpack: prefer fuller nodes (docs/semantics/plugins.md)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from vcd.model.resource_requests import CPU, MEMORY
from vcd.scheduling.framework.arguments import Argument, ArgumentValues
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.search.parts import Mask, Reads, Score, Scores
from vcd.scheduling.session.nodes import Usage
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task

_RESOURCE = "binpack.resources.<resource>"


class _Part(NamedTuple):
    """A weighed resource. ``in_parts``: ``Usage.used_parts`` holds its share, computed for all scores."""

    column: int
    weight: int
    in_parts: bool


class Binpack(Score):
    """100 x weight x the weighted mean of (request + used) / allocatable over the resources that the pod requests.

    A node on which one of these resources would not fit scores 0. Pipelined pods are not part of used.
    """

    name = "binpack"
    reads = Reads.USAGE
    keys = ()

    def __init__(self, session: Session, factor: int, weights: Mapping[str, int]) -> None:
        super().__init__(1)
        self._factor = float(100 * factor)
        nodes = session.nodes
        self._parts = [
            _Part(column, weights[name], nodes.in_parts and column < 2 and weights[name] == 1)
            for name, column in nodes.column_of.items()
            if weights.get(name)
        ]
        self._in_parts = any(part.in_parts for part in self._parts)

    def applies(self, task: Task) -> bool:
        for part in self._parts:  # noqa: SIM110 - called for every task
            if task.amounts[part.column]:
                return True
        return False

    def raw(self, task: Task, usage: Usage) -> Scores:
        used = usage.used_parts(task.deltas) if self._in_parts else None
        score: Scores | None = None
        over: Mask | None = None
        weights = 0
        for column, weight, in_parts in self._parts:
            if not task.amounts[column]:
                continue
            weights += weight
            if used is not None and in_parts:
                share = used.parts[1, column]
                beyond = None if used.within else share > 1.0
            else:
                capacity = usage.allocatable[column].astype(np.float64)
                requested = usage.used[column] + task.amounts[column]
                there = capacity != 0
                weighed = requested.astype(np.float64) * weight
                share = np.divide(weighed, capacity, out=np.zeros(len(usage)), where=there)
                beyond = (requested > capacity) & there
            score = share if score is None else score + share
            if beyond is not None:
                over = beyond if over is None else over | beyond
        if score is None:
            return np.zeros(len(usage))
        if weights & (weights - 1):
            score = score / weights * self._factor
        else:  # a power of two: one multiplication gives the same result
            score = score * np.float64(self._factor / weights)
        if over is not None:
            np.putmask(score, over, 0.0)
        return score


class BinpackPlugin(Plugin):
    """Prefer nodes whose requested resources are used most, so that other nodes stay empty.

    Each requested resource with a weight adds weight x (request + used) / allocatable. The sum is divided by the sum
    of the weights and multiplied by 100 x binpack.weight. A node on which one of these resources does not fit scores
    0. A resource that the node does not offer adds nothing. With binpack.weight 0 the plugin has no effect.
    Source: Volcano ``plugins/binpack``.
    """

    name = "binpack"
    keys = ()
    arguments = (
        Argument("binpack.weight", "int", 1, "Weight of the plugin's score relative to the scores of other plugins."),
        Argument("binpack.cpu", "int", 1, "Weight of cpu; below 0 it means 1.", default_below=0),
        Argument("binpack.memory", "int", 1, "Weight of memory; below 0 it means 1.", default_below=0),
        Argument("binpack.resources", "strings", (), "Further resources that have a weight."),
        Argument(
            _RESOURCE,
            "int",
            1,
            "Weight of a resource listed in binpack.resources; below 0 it means 1.",
            default_below=0,
        ),
    )

    def __init__(self, arguments: ArgumentValues) -> None:
        super().__init__(arguments)
        stated = arguments.matching(_RESOURCE)
        self.factor: int = arguments["binpack.weight"]
        self.weights: dict[str, int] = {name: stated.get(name, 1) for name in arguments["binpack.resources"]}
        self.weights |= {CPU: arguments["binpack.cpu"], MEMORY: arguments["binpack.memory"]}

    def open(self, session: Session) -> None:
        self._session = session

    def node_order(self) -> Iterable[Score]:
        """Return the score, unless its weight is 0."""
        if self.factor:
            yield Binpack(self._session, self.factor, self.weights)
