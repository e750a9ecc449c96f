"""resource-strategy-fit: spread or pack pods by a strategy for each resource (docs/semantics/plugins.md)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from vcd.model.annotations import AnnotationError, json_mapping
from vcd.model.reasons import Cause, Reason, ReasonCode
from vcd.model.resource_requests import CPU, MEMORY
from vcd.model.status import TaskStatus
from vcd.scheduling.framework.arguments import Argument, ArgumentValues
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.search.parts import Predicate, Reads, Score, Scores
from vcd.scheduling.search.predicates.proportional import Proportional, Rate
from vcd.scheduling.search.scores.resource_strategy import (
    LEAST,
    MOST,
    Rating,
    ScarceResourceAvoidance,
    Strategy,
    strategy_of,
)
from vcd.scheduling.session.nodes import Usage
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task

_INVALID = ReasonCode(
    "resource-strategy-invalid", Cause.INVALID, "the pod's resource strategy is invalid, it is rated by none"
)

SCORING_TYPE = "volcano.sh/resource-strategy-scoring-type"
SCORING_WEIGHT = "volcano.sh/resource-strategy-weight"
DEFAULT_WEIGHT = 10

_INT64 = range(-(2**63), 2**63)
_RESOURCES = (
    Argument(
        "<resource>",
        "mapping",
        None,
        "A resource, or a pattern such as `nvidia.com/*`.",
        fields=(
            Argument("type", "str", LEAST, "Whether pods are packed or spread by it.", choices=(MOST, LEAST)),
            Argument("weight", "int", 1, "The resource's weight; below 1 it means 1."),
        ),
    ),
)
_SRA = (
    Argument("enable", "bool", False, "Whether pods that do not need scarce resources avoid nodes that have them."),
    Argument("resources", "strings", (), "The scarce resources."),
    Argument("weight", "int", 1, "Weight relative to the strategies; below 1 it is off."),
    Argument(
        "resourceWeight",
        "mapping",
        {},
        "Weights of scarce resources.",
        fields=(Argument("<resource>", "int", 1, "Its weight; below 0 it means 1."),),
    ),
)
_PROPORTIONAL = (
    Argument("enable", "bool", False, "Whether cpu and memory are reserved for idle units of scarce resources."),
    Argument("resources", "strings", (), "The scarce resources."),
    Argument(
        "resourceProportion",
        "mapping",
        {},
        "What to reserve for each idle unit.",
        fields=(
            Argument("<resource>.cpu", "float", 1.0, "Cores; below 0 it means 1."),
            Argument("<resource>.memory", "float", 1.0, "Gigabytes; below 0 it means 1."),
        ),
    ),
)


class ResourceStrategy(Score):
    """The rating by the configuration, or by the pod's own strategy."""

    name = "resource strategy"
    reads = Reads.USAGE
    keys = (SCORING_TYPE, SCORING_WEIGHT)

    def __init__(self, plugin: ResourceStrategyFitPlugin) -> None:
        super().__init__(1)
        self._plugin = plugin

    def applies(self, task: Task) -> bool:
        rating = self._plugin.rating_of(task)
        return rating is not None and rating.minds(task)

    def raw(self, task: Task, usage: Usage) -> Scores:
        rating = self._plugin.rating_of(task)
        return np.zeros(len(usage)) if rating is None else rating.points(task, usage)


class ResourceStrategyFitPlugin(Plugin):
    """Spread pods over nodes by some resources, and pack them by others.

    - Score: 100 x `resourceStrategyFitWeight` x the weighted mean over the requested resources: `MostAllocated`
      (request + used) / allocatable, `LeastAllocated` (allocatable - request - used) / allocatable; 0 if one of them
      does not fit. `resources` names them. A pattern such as `nvidia.com/*` matches by prefix. An exact name wins over
      a pattern, and a longer pattern over a shorter one. Other patterns are ignored.
    - A pod's annotations `volcano.sh/resource-strategy-scoring-type` and `volcano.sh/resource-strategy-weight` (JSON
      such as `{"cpu": 2, "memory": 1}`) together replace `resources` for it. If the type has no weights, or one of them
      is unreadable, the pod gets no score of strategies. Weights without a type have no effect.
    - `sra` (scarce resource avoidance) adds 100 x weight x (1 - weights of the scarce resources that the node has / all
      of them), so that pods without such requests avoid these nodes; 0 if the node lacks a requested resource.
    - `proportional` reserves cores and gigabytes (10^9 bytes) for each idle unit of a scarce resource: pods that
      request none of these resources must leave them on the node.

    Source: Volcano ``plugins/resource-strategy-fit``.
    """

    name = "resource-strategy-fit"
    keys = (SCORING_TYPE, SCORING_WEIGHT)
    arguments = (
        Argument(
            "resourceStrategyFitWeight",
            "int",
            DEFAULT_WEIGHT,
            "Weight of the strategies; below 0 it means 10, with 0 they are off.",
            default_below=0,
        ),
        Argument(
            "resources",
            "mapping",
            None,
            "The resources and their strategies. Empty: cpu and memory, LeastAllocated, weight 1.",
            fields=_RESOURCES,
        ),
        Argument("sra", "mapping", None, "Scarce resource avoidance.", fields=_SRA),
        Argument("proportional", "mapping", None, "What to reserve for scarce resources.", fields=_PROPORTIONAL),
    )

    def __init__(self, arguments: ArgumentValues) -> None:
        super().__init__(arguments)
        self.weight: int = arguments["resourceStrategyFitWeight"]
        self.strategies = _strategies(arguments["resources"])
        self._sra: ArgumentValues = arguments["sra"]
        self._proportional: ArgumentValues = arguments["proportional"]
        weights = self._sra["resourceWeight"].matching("<resource>")
        self.scarce = {name: weight if (weight := weights.get(name, 1)) >= 0 else 1 for name in self._sra["resources"]}
        proportions: ArgumentValues = self._proportional["resourceProportion"]
        cores, gigabytes = proportions.matching("<resource>.cpu"), proportions.matching("<resource>.memory")
        self.rates = {
            name: Rate.of(cores.get(name), gigabytes.get(name))
            for name in self._proportional["resources"]
            if name not in (CPU, MEMORY)
        }

    def open(self, session: Session) -> None:
        """Determine the strategy of each resource."""
        self._session = session
        patterns = [name for name in self.strategies if name.endswith("*")]
        found = {name: strategy_of(name, self.strategies, patterns) for name in session.nodes.resources}
        known = {name: strategy for name, strategy in found.items() if strategy is not None}
        self._rating = Rating(session, self.weight, known)
        self._own_of_row: dict[int, tuple[str, str]] = {}
        self._ratings: dict[tuple[str, str], Rating | None] = {}
        self._errors: dict[tuple[str, str], Reason] = {}

    def close(self, session: Session) -> None:
        """Note invalid annotations on the pods' jobs."""
        keys = session.snapshot.tasks.keys
        wrong = [row for row, own in self._own_of_row.items() if own in self._errors]
        for row in sorted(wrong, key=lambda row: keys[row] or ""):  # rows are numbered in order of arrival
            task = session.task(row)
            task.job.note("annotation", self.name, self._errors[self._own_of_row[row]], task=task)

    # --- strategies of pods -----------------------------------------------------------------------------------------

    def _find_own(self) -> None:
        """Find pending pods with their own strategy, and build its rating."""
        tasks = self._session.snapshot.tasks
        pending = (self._session.job_of_row >= 0) & (tasks.status == TaskStatus.PENDING)
        for row in np.flatnonzero(pending).tolist():
            pod = tasks.pods[row]
            kind = pod.metadata.annotations.get(SCORING_TYPE) if pod is not None else None
            if pod is None or not kind:
                continue
            own = self._own_of_row[row] = (kind, pod.metadata.annotations.get(SCORING_WEIGHT, ""))
            if own not in self._ratings:
                self._ratings[own] = self._rating_by(own)

    def _rating_by(self, own: tuple[str, str]) -> Rating | None:
        kind, text = own
        try:
            strategies = {name: Strategy(kind, weight) for name, weight in _weights(text).items()}
            if kind not in (MOST, LEAST):
                raise AnnotationError(f"{SCORING_TYPE}: {kind!r} is not one of {MOST}, {LEAST}")
        except AnnotationError as error:
            remedy = f'give both {SCORING_TYPE} and {SCORING_WEIGHT}, such as {{"cpu": 2, "memory": 1}}'
            self._errors[own] = _INVALID({"error": str(error), "mend": remedy})
            return None
        return Rating(self._session, self.weight, strategies)

    def rating_of(self, task: Task) -> Rating | None:
        """Return the rating for a pod; None if its own strategy is unreadable."""
        own = self._own_of_row.get(task.row)
        return self._rating if own is None else self._ratings[own]

    # --- points -----------------------------------------------------------------------------------------------------

    def predicates(self) -> Iterable[Predicate]:
        """Return the filter of reserved resources, if it is enabled."""
        if self._proportional["enable"] and self.rates:
            yield Proportional(self._session, self.rates)

    def node_order(self) -> Iterable[Score]:
        """Return the scores of the strategies and of scarce resource avoidance, if they have a weight."""
        if self.weight > 0:
            self._find_own()
            yield ResourceStrategy(self)
        if self._sra["enable"] and self._sra["weight"] > 0:
            yield ScarceResourceAvoidance(self._session, self._sra["weight"], self.scarce)


def _strategies(given: ArgumentValues) -> dict[str, Strategy]:
    """Return strategies by resource or pattern, without invalid patterns."""
    if not given:
        return {CPU: Strategy(LEAST, 1), MEMORY: Strategy(LEAST, 1)}
    return {
        name: Strategy(each["type"], max(1, each["weight"]))
        for name, each in given.items()
        if "*" not in name or (len(name) > 1 and name.find("*") == len(name) - 1)
    }


def _weights(text: str) -> dict[str, int]:
    """Parse the weights by resource of the annotation. Raises AnnotationError."""
    if not text:
        raise AnnotationError(f"{SCORING_WEIGHT} is missing")
    try:
        weights = {name: 0 if value is None else value for name, value in json_mapping(text).items()}
    except AnnotationError as error:
        raise AnnotationError(f"{SCORING_WEIGHT}: {error}") from None
    for name, value in weights.items():
        if isinstance(value, bool) or not isinstance(value, int) or value not in _INT64:
            raise AnnotationError(f"{SCORING_WEIGHT}: the weight of {name} is {value!r}, not an integer")
    return weights
