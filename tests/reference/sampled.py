"""Random clusters with samples of what their nodes really use, for the plugin usage."""

from __future__ import annotations

import json
from typing import Any

from tests.reference.clusters import Maker, Manifest, RandomCase
from tests.reference.usage import KIND

_OFF = ("volumes", "spread", "affinity", "selectors", "zones", "images", "taints", "ports", "full", "init")
NOW = 1795248000
"""2026-11-21T08:00:00Z in seconds, when the cases are decided."""


class SampledMaker(Maker):
    """Draws one case: nodes of which most are sampled, some long ago, and limits above requests."""

    def make(self) -> list[Manifest]:
        self.has.update(dict.fromkeys(_OFF, False))
        super().make()
        for one in self.objects:
            if one["kind"] == "Pod" and one.get("status", {}).get("phase") == "Running" and self.often(0.8):
                one["status"]["startTime"] = self.pick(
                    ("2026-11-21T07:59:45Z", "2026-11-21T07:59:30Z", "2026-11-21T07:00:00Z")
                )
        self.make_sample()
        return self.objects

    def make_sample(self) -> None:
        nodes: dict[str, Any] = {}
        for name in self.nodes:
            if self.often(0.85):
                loads = (self.random.randint(0, 100), self.random.randint(0, 79), 79.5, 80, 80.1)
                nodes[name] = {"cpu": float(self.pick(loads[:4])), "memory": float(self.pick(loads[1:]))}
                if self.often(0.3):
                    nodes[name]["at"] = (NOW - self.pick((10, 299, 300, 301))) * 10**9
        at = (NOW - self.pick((5, 5, 5, 5, 5, 299, 300, 301))) * 10**9
        self.add("vcd", KIND, {"name": "last"}, at=at, nodes=nodes)

    def plugins(self) -> list[str]:
        found = ["priority", "gang", "predicates", "drf", "nodeorder", "binpack", "proportion", "usage"]
        found = [name for name in found if name in ("gang", "usage") or self.often(0.3)]
        self.random.shuffle(found)
        return found

    def arguments(self, name: str) -> dict[str, Any]:
        if name != "usage":
            return super().arguments(name)
        found: dict[str, Any] = {
            f"{key}.weight": self.random.randint(-1, 5) for key in ("usage", "cpu", "memory") if self.often(0.5)
        }
        if self.often(0.4):
            found["thresholds"] = json.dumps({"cpu": self.pick((50, 80, 100)), "mem": self.pick((60, 80))})
        if self.often(0.6):
            rates = {"request_ratio": self.pick((0.5, 1.0)), "burst_ratio": self.pick((0.0, 0.3))}
            rates |= {"risk_threshold": self.pick((0.3, 0.6)), "risk_factor": self.pick((1.0, 1.5))}
            more = {"be_cpu": "500m", "be_mem": "1Gi"} if self.often(0.4) else {}
            found["estimator"] = json.dumps({**rates, **more})
        return found

    def container(self, number: int) -> Manifest:
        container = super().container(number)
        requests = container["resources"]["requests"]
        if "cpu" in requests and "memory" in requests and self.often(0.5):
            container["resources"]["limits"] = {**requests, "cpu": "4", "memory": "4Gi"}
        return container


def sampled_case(seed: int) -> RandomCase:
    """The case of a seed."""
    maker = SampledMaker(seed)
    objects = maker.make()
    return RandomCase(seed, maker.conf(), objects)
