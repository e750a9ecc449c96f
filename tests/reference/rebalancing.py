"""Random clusters with samples of what their nodes use, some of it too much, for the plugin rescheduling."""

from __future__ import annotations

import json
from typing import Any

from tests.reference.clusters import GPU, Manifest, RandomCase
from tests.reference.crowded import PROTECTING
from tests.reference.rebalance import ORDERS
from tests.reference.sampled import NOW
from tests.reference.shuffling import ShuffleMaker
from tests.reference.usage import KIND


class RebalanceMaker(ShuffleMaker):
    """Draws one case: nodes that are busy or idle by the last sample, and pods that run there."""

    def actions(self) -> str:
        return self.pick(("shuffle", "shuffle", "allocate, shuffle", "shuffle, allocate", "allocate, preempt, shuffle"))

    def plugins(self) -> list[str]:
        found = ["priority", "gang", "predicates", "rescheduling"]
        found += [name for name in (*PROTECTING, "tdm", "drf", "usage") if self.often(0.2)]
        if self.often(0.3):
            found.remove(self.pick(("gang", "gang", "priority", "predicates")))
        self.random.shuffle(found)
        return found

    def arguments(self, name: str) -> dict[str, Any]:
        if name == "usage":
            return {}
        if name != "rescheduling":
            return super().arguments(name)
        found: dict[str, Any] = {"strategies": json.dumps(self.strategies())}
        if self.often(0.3):
            found["interval"] = self.pick(("5m", "2h", "7m", "1s", "100s", "105s", "101s"))
        if self.often(0.15):
            found["queueSelector"] = json.dumps(self.pick((["q0"], ["q0", "q1"])))
        if self.often(0.15):
            found["labelSelector"] = json.dumps({"app": self.pick(("web", "db"))})
        return found

    def strategies(self) -> list[Manifest]:
        most = {part: self.pick((40, 50, 62.5, 75)) for part in ("cpu", "memory") if self.often(0.9)}
        least = {part: self.pick((20, 35, 50)) for part in ("cpu", "memory")}
        params: dict[str, Any] = {"thresholds": least, "targetThresholds": most}
        if self.often(0.3):
            params["nodeFit"] = self.often(0.3)
        if self.often(0.2):
            params["thresholdPriorityClassName"] = self.pick(("low", "high", "nobody", "system-node-critical"))
        found = [{"name": "lowNodeUtilization", "params": params}]
        found += [{"name": name} for name in (*ORDERS, "offlineOnly") if self.often(0.2)]
        self.random.shuffle(found)
        return found if self.often(0.97) else found[1:]

    def make(self) -> list[Manifest]:
        objects = super().make()
        cards = self.often(0.5)
        for one in objects:
            if one["kind"] == "Pod" and one["spec"].get("nodeName"):
                self.dress_running(one["spec"])
            elif one["kind"] == "Node":
                listed = one["status"]["allocatable"]
                if cards:
                    listed[GPU] = "8"
                one["status"]["capacity"] = {**listed, "cpu": "16"} if self.often(0.4) else dict(listed)
        nodes: dict[str, Any] = {}
        for name in self.nodes:
            if self.often(0.95):
                busy = self.often(0.5)
                loads = (41.0, 51.0, 62.5, 80.0) if busy else (0.0, 10.0, 20.0, 34.9)
                nodes[name] = {part: self.pick(loads) for part in ("cpu", "memory")}
                if self.often(0.05):
                    nodes[name]["at"] = (NOW - self.pick((10, 299, 300, 301))) * 10**9
        at = (NOW - self.pick((5, 5, 5, 5, 5, 5, 5, 299, 300, 301))) * 10**9
        self.add("vcd", KIND, {"name": "last"}, at=at, nodes=nodes)
        return self.objects

    def dress_running(self, spec: Manifest) -> None:
        """Some are best-effort but for cards, some guaranteed."""
        for container in spec["containers"]:
            requests = container["resources"]["requests"]
            if self.often(0.15):
                container["resources"]["requests"] = {GPU: "1"} if self.often(0.5) else {}
            elif self.often(0.3):
                container["resources"]["limits"] = {
                    **requests,
                    **({"cpu": "4"} if "cpu" in requests and self.often(0.2) else {}),
                }
        spec.pop("priority", None)
        if self.often(0.3):
            spec["priority"] = self.pick((0, 10, 1000, 2_000_000_000))


def rebalance_case(seed: int) -> RandomCase:
    """The case of a seed."""
    maker = RebalanceMaker(seed)
    objects = maker.make()
    return RandomCase(seed, maker.conf(), objects)
