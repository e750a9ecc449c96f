"""Random clusters for the plugins beyond the default ones, on top of those of ``clusters``."""

from __future__ import annotations

import json
from typing import Any

from tests.reference.clusters import GPU, Maker, Manifest, RandomCase

ROLES = ("ps", "worker", "chief")
GROUPS = ("red", "blue", "gold")
FURTHER = ("sla", "resourcequota", "task-topology", "nodegroup", "resource-strategy-fit")
_HARD, _SOFT = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"


class WideMaker(Maker):
    """Draws one case in which some of the further plugins are on, with what they read."""

    shares = ""
    """What divides the cluster among queues in proportion's place, if anything does."""

    def plugins(self) -> list[str]:
        found = super().plugins()
        for name in [name for name in FURTHER if self.often(0.2 if name == "nodegroup" else 0.5)]:
            found.insert(self.random.randint(0, len(found)), name)
        if self.shares:
            found = [name for name in found if name != "proportion"]
        if self.shares.startswith("capacity"):
            found.insert(self.random.randint(0, len(found)), "capacity")
        return found

    def plugin_lines(self, name: str) -> list[str]:
        lines = super().plugin_lines(name)
        if self.shares == f"{name} tree":
            lines.insert(1, "    enableHierarchy: true")
        return lines

    def arguments(self, name: str) -> dict[str, Any]:
        if name == "sla" and self.often(0.5):
            return {"sla-waiting-time": self.pick(("1h", "90000h", "1h30m0.5s"))}
        if name == "task-topology" and self.often(0.4):
            return {"task-topology.weight": self.random.randint(-1, 10)}
        if name == "nodegroup":
            return {"strict": self.pick(("true", "false")), "enablePreferredOrder": self.pick(("true", "false"))}
        if name == "resource-strategy-fit" and self.often(0.8):
            return self.strategies()
        return super().arguments(name)

    def strategies(self) -> dict[str, Any]:
        def part() -> dict[str, Any]:
            return {"type": self.pick(("MostAllocated", "LeastAllocated")), "weight": self.random.randint(1, 5)}

        found: dict[str, Any] = {"resourceStrategyFitWeight": self.random.randint(0, 10)}
        names = [name for name in ("cpu", "memory", GPU, "nvidia.com/*") if self.often(0.5)]
        if names:
            found["resources"] = json.dumps({name: part() for name in names})
        if self.often(0.5):
            weights = {GPU: self.random.randint(0, 3)} if self.often(0.5) else {}
            found["sra"] = json.dumps(
                {"enable": self.often(0.8), "resources": GPU, "weight": 2, "resourceWeight": weights}
            )
        if self.often(0.4):
            rates = {f"{GPU}.cpu": self.pick((0.5, 1, 2)), f"{GPU}.memory": self.pick((0.5, 1))}
            found["proportional"] = json.dumps({"enable": True, "resources": GPU, "resourceProportion": rates})
        return found

    def make(self) -> list[Manifest]:
        self.has["selectors"] = self.has["volumes"] = False  # what the default plugins' cases have, and hides the rest
        self.shares = self.pick(("", "capacity", "capacity tree", "drf tree"))
        if self.shares == "drf tree":
            self.has.update(crowded=True, priorities=False, quota=False)
        objects = super().make()
        for manifest in objects:
            kind, meta = manifest["kind"], manifest["metadata"]
            if kind == "Node" and self.often(0.8):
                meta["labels"]["volcano.sh/nodegroup-name"] = self.pick(GROUPS)
            elif kind == "Queue":
                self.dress_queue(manifest)
            elif kind == "PodGroup":
                self.dress_group(meta)
            elif kind == "Pod":
                self.dress_pod(meta)
        for number in range(self.random.randint(0, 3)):
            self.add_quota(number)
        if self.often(0.5):
            self.add_tree()
        return objects

    def dress_queue(self, queue: Manifest) -> None:
        if self.often(0.8):
            affinity = {}
            for key in ("nodeGroupAffinity", "nodeGroupAntiAffinity"):
                count = 3 if key == "nodeGroupAffinity" else 1
                terms = {rule: self.random.sample(GROUPS, count) for rule in (_HARD, _SOFT) if self.often(0.5)}
                if terms:
                    affinity[key] = terms
            queue["spec"]["affinity"] = affinity
        if self.often(0.3):
            text = json.dumps({self.pick(GROUPS): {"cpu": str(self.random.randint(2, 9))}})
            text = self.pick((text, text, text, "{", '"x"'))
            queue["metadata"].setdefault("annotations", {})["volcano.sh/nodegroup-resource-limits"] = text
        if self.often(0.7):
            queue["spec"]["deserved"] = {"cpu": str(self.random.randint(1, 9))}
            if self.often(0.5):
                queue["spec"]["deserved"]["memory"] = f"{self.random.randint(1, 16)}Gi"
        if self.often(0.8):
            path = ["root", *self.random.sample(("eng", "ops", "art"), self.random.randint(1, 2))]
            weights = "/".join(self.pick(("1", "2", "8", "x")) for _ in path)
            marks = {"volcano.sh/hierarchy": "/".join(path), "volcano.sh/hierarchy-weights": weights}
            queue["metadata"].setdefault("annotations", {}).update(marks)

    def add_tree(self) -> None:
        """Parents for the queues: some with room for what their children are due, some without, some that are not
        there."""
        queues = [one for one in self.objects if one["kind"] == "Queue" and one["metadata"]["name"] != "default"]
        version = "scheduling.volcano.sh/v1beta1"
        self.add(version, "Queue", {"name": "root"}, spec={"weight": 1}, status={"state": "Open"})
        for name in ("dep0", "dep1"):
            spec: dict[str, Any] = {"weight": 1}
            if self.often(0.7):
                spec["deserved"] = {"cpu": "40", "memory": "90Gi"}
                spec["guarantee"] = {"resource": {"cpu": str(self.pick((0, 6)))}}
            if self.often(0.5):
                spec["capability"] = {"cpu": str(self.pick((3, 12, 60)))}
            self.add(version, "Queue", {"name": name}, spec=spec, status={"state": "Open"})
        for queue in queues:
            queue["spec"]["parent"] = self.pick(("dep0", "dep0", "dep1", "root", "", "nowhere"))

    def dress_group(self, meta: dict[str, Any]) -> None:
        marks = meta.setdefault("annotations", {})
        if self.often(0.3):
            marks[self.pick(("volcano.sh/sla-waiting-time", "sla-waiting-time"))] = self.pick(
                ("1h", "90000h", "x", "0s")
            )
        for name in ("affinity", "anti-affinity"):
            if self.often(0.6):
                roles = ROLES if self.often(0.2) else ROLES[:2]
                sets = [",".join(self.random.sample(roles, self.random.randint(1, 2))) for _ in range(2)]
                marks[f"volcano.sh/task-topology-{name}"] = ";".join(sets[: self.random.randint(1, 2)])
        if self.often(0.3):
            marks["volcano.sh/task-topology-task-order"] = ",".join(self.random.sample(ROLES[:2], 2))

    def dress_pod(self, meta: dict[str, Any]) -> None:
        if self.often(0.8):
            meta.setdefault("annotations", {})["volcano.sh/task-spec"] = self.pick(
                ("ps", "ps", "worker", "worker", "chief")
            )
        if self.often(0.2):
            weights = self.pick(('{"cpu": 2, "memory": 1}', '{"cpu": 0, "nvidia.com/gpu": 3}', "", "["))
            kind = self.pick(("MostAllocated", "LeastAllocated"))
            mine = {"volcano.sh/resource-strategy-scoring-type": kind, "volcano.sh/resource-strategy-weight": weights}
            meta.setdefault("annotations", {}).update(mine)

    def add_quota(self, number: int) -> None:
        hard = {name: str(self.random.randint(1, 6)) for name in ("cpu", "cpu", "requests.cpu", GPU) if self.often(0.5)}
        used = {name: str(self.random.randint(0, 3)) for name in hard if self.often(0.5)}
        meta = {"name": f"quota{number}", "namespace": self.pick(("default", "default", "other"))}
        self.add("v1", "ResourceQuota", meta, spec={"hard": hard}, status={"hard": hard, "used": used})
        for pod in self.objects:
            if pod["kind"] == "Pod":  # one without a status is yet to be created, and the quota may refuse it
                pod.setdefault("status", {"phase": "Pending"})


def wide_case(seed: int) -> RandomCase:
    """The case of a seed."""
    maker = WideMaker(seed)
    objects = maker.make()
    return RandomCase(seed, maker.conf(), objects)
