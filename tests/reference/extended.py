"""Random clusters with an extender that has a say in some things, and fails in some."""

from __future__ import annotations

import json
from typing import Any

from tests.reference.clusters import GPU, Maker, Manifest, RandomCase
from tests.reference.extender import KIND
from tests.reference.reclaiming import ReclaimMaker

VERBS = (
    "onSessionOpen", "predicate", "prioritize", "jobEnqueueable", "jobEnqueued", "queueOverused", "jobReady",
    "allocateFunc", "deallocateFunc", "preemptable", "reclaimable",
)  # fmt: skip
VICTIMS = ("preemptable", "reclaimable")
_OFF = ("volumes", "spread", "affinity", "selectors", "zones", "taints", "ports", "init", "loose")


class ExtendedMaker(ReclaimMaker):
    """Draws one case, some of them full; an extender that fails at priorities may be ignored, for then no node is taken
    otherwise."""

    contests = 0.9
    full = False
    """Whether it is a cluster in which somebody has to go,"""
    hunts = False
    """and then of one queue."""

    def make(self) -> list[Manifest]:
        self.full = self.often(0.4)
        self.hunts = self.full and self.often(0.5)
        if self.full:
            super().make()
            for one in self.objects:
                if self.hunts and one["kind"] == "PodGroup":
                    kind = "high" if one["metadata"]["name"].startswith("j") else "low"
                    one["spec"].update(queue="q0", priorityClassName=kind)
        else:
            self.has.update(dict.fromkeys(_OFF, False))
            Maker.make(self)
        self.down = [verb for verb in VERBS if self.often(0.08)]
        self.add("vcd", KIND, {"name": "answers"}, seed=self.random.randint(0, 10**6), down=self.down)
        return self.objects

    def make_queues(self) -> list[str]:
        return super().make_queues() if self.full else Maker.make_queues(self)

    def actions(self) -> str:
        if self.hunts:
            return self.pick(("allocate, preempt", "preempt"))
        return super().actions() if self.full else Maker.actions(self)

    def plugins(self) -> list[str]:
        if self.full:
            found = [*super().plugins(), "extender"]
            if self.hunts:
                found.remove(self.shares.partition(" ")[0])
            self.random.shuffle(found)
            return found
        found = ["priority", "gang", "overcommit", "drf", "predicates", "nodeorder", "binpack", "extender"]
        found = [name for name in found if name in ("gang", "extender") or self.often(0.4)]
        self.random.shuffle(found)
        return found

    def arguments(self, name: str) -> dict[str, Any]:
        if name != "extender":
            return super().arguments(name) if self.full else Maker.arguments(self, name)
        found: dict[str, Any] = {"extender.urlPrefix": "http://extender.example"}
        likely = {verb: 0.9 if verb in VICTIMS else 0.3 for verb in VERBS} if self.full else dict.fromkeys(VERBS, 0.6)
        found.update({f"extender.{verb}Verb": verb for verb, chance in likely.items() if self.often(chance)})
        if "prioritize" in self.down or self.often(0.3):
            found["extender.ignorable"] = "true"
        if self.often(0.15 if self.full else 0.3):
            found["extender.managedResources"] = json.dumps([self.pick((GPU, "cpu", "memory"))])
        return found


def extended_case(seed: int) -> RandomCase:
    """The case of a seed."""
    maker = ExtendedMaker(seed)
    objects = maker.make()
    return RandomCase(seed, maker.conf(), objects)
