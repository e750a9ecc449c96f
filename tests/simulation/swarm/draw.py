"""What the parts of a script are drawn by, and what the cluster has so far that they can speak of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

from tests.simulation.faults.aim import WHAT
from tests.simulation.script import Act

T = TypeVar("T")
CALLS = (*WHAT, "bindings", "bindings", "status")


@dataclass
class Draw:
    """``traits`` are what the configuration has plugins for: cards, tree, nodegroups, zones ..."""

    rng: Random
    storm: float
    replicas: int
    traits: frozenset[str]
    nodes: dict[str, int] = field(default_factory=dict)
    """Names, and how many cores each has."""
    queues: list[str] = field(default_factory=lambda: ["default"])
    namespaces: list[str] = field(default_factory=lambda: ["default"])
    classes: list[str] = field(default_factory=list)
    gangs: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Namespaces, and how many pods each has at first, by the label ``gang`` of the pods."""
    jobs: list[str] = field(default_factory=list)
    deployments: list[str] = field(default_factory=list)
    budgets: list[str] = field(default_factory=list)

    def often(self, part: float) -> bool:
        """Yes in this part of the cases."""
        return self.rng.random() < part

    def pick(self, among: Sequence[T]) -> T:
        """One of them."""
        return self.rng.choice(among)

    def some(self, among: Sequence[T], part: float) -> list[T]:
        """Those that are on."""
        return [each for each in among if self.often(part)]

    def number(self, low: int, high: int) -> int:
        """From low to high, both included."""
        return self.rng.randint(low, high)

    def when(self, low: float = 0.0) -> float:
        """A time within the storm; many things happen in the same second as others do."""
        at = self.rng.uniform(low, self.storm)
        return float(int(at)) if self.often(0.3) else round(at, 3)

    def seconds(self, most: float) -> float:
        """How long something lasts: short ones are as frequent as long ones."""
        return round(most ** self.rng.uniform(-0.5, 1.0), 3)

    def replica(self) -> int:
        """One of the replicas."""
        return self.rng.randrange(self.replicas)

    def anyone(self) -> int:
        """One of the replicas, or -1 for all."""
        return -1 if self.often(0.15) else self.replica()

    def part(self) -> float:
        """A share of what there is."""
        return self.pick((0.1, 0.3, 0.7, 1.0))

    def soon(self) -> int:
        """Which one of those that come next, often one of the first."""
        return int(2 ** self.rng.uniform(0, 6))

    def share(self, most: float) -> tuple[int, float, float]:
        """Whom something befalls, for how many seconds, and which share of what it does."""
        return self.anyone(), self.seconds(most), self.part()

    def call(self) -> str:
        """Which calls a fault of calls is for: what a scheduler does is tried most."""
        return self.pick(CALLS)

    def node(self) -> str:
        """One of the nodes."""
        return self.pick(sorted(self.nodes))

    def gang(self) -> str:
        """One of the gangs."""
        return self.pick(sorted(self.gangs)) if self.gangs else "nobody"

    def pod(self) -> tuple[str, str]:
        """The namespace and name of a pod of some gang."""
        gang = self.gang()
        namespace, pods = self.gangs.get(gang, ("default", 1))
        return namespace, f"{gang}-{self.rng.randrange(max(1, pods))}"

    def act(self, at: float, what: str, *given: Any) -> Act:
        """One that cannot be before the cluster is there."""
        return Act(at, what, given)
