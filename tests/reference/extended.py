"""Random clusters with an extender that has a say in some things, and fails in some."""

from __future__ import annotations

import json
from typing import Any

from tests.reference.clusters import GPU, Maker, Manifest, RandomCase
from tests.reference.extender import KIND

VERBS = ("onSessionOpen", "predicate", "prioritize", "jobEnqueueable", "queueOverused", "jobReady")
_OFF = ("volumes", "spread", "affinity", "selectors", "zones", "taints", "ports", "init", "loose")


class ExtendedMaker(Maker):
    """Draws one case; an extender that fails at priorities may be ignored, for then no node is taken otherwise."""

    def make(self) -> list[Manifest]:
        self.has.update(dict.fromkeys(_OFF, False))
        super().make()
        self.down = [verb for verb in VERBS if self.often(0.12)]
        self.add("vcd", KIND, {"name": "answers"}, seed=self.random.randint(0, 10**6), down=self.down)
        return self.objects

    def plugins(self) -> list[str]:
        found = ["priority", "gang", "overcommit", "drf", "predicates", "nodeorder", "binpack", "extender"]
        found = [name for name in found if name in ("gang", "extender") or self.often(0.4)]
        self.random.shuffle(found)
        return found

    def arguments(self, name: str) -> dict[str, Any]:
        if name != "extender":
            return super().arguments(name)
        found: dict[str, Any] = {"extender.urlPrefix": "http://extender.example"}
        found.update({f"extender.{verb}Verb": verb for verb in VERBS if self.often(0.6)})
        if "prioritize" in self.down or self.often(0.3):
            found["extender.ignorable"] = "true"
        if self.often(0.3):
            found["extender.managedResources"] = json.dumps([self.pick((GPU, "memory"))])
        return found


def extended_case(seed: int) -> RandomCase:
    """The case of a seed."""
    maker = ExtendedMaker(seed)
    objects = maker.make()
    return RandomCase(seed, maker.conf(), objects)
