"""Random full clusters in which queues take back from others what is theirs."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from tests.reference.clusters import GPU, Manifest, RandomCase
from tests.reference.crowded import PROTECTING, CrowdedMaker
from tests.reference.model import GROUP_KEYS, pod_requests
from tests.reference.values import quantity

SHARING = ("proportion", "proportion", "capacity", *["capacity tree"] * 3, "drf tree")


class ReclaimMaker(CrowdedMaker):
    """Draws one case: nodes full of running groups of some queues, and groups of others that wait."""

    contests = 0.6
    shares = ""
    """What divides the cluster among queues."""

    def plugins(self) -> list[str]:
        found = ["priority", "gang", "predicates", self.shares.partition(" ")[0]]
        found += [name for name in PROTECTING if self.often(0.5 if self.contested else 0.3)]
        found += [name for name in ("binpack", "nodeorder") if self.often(0.3)]
        if self.shares != "drf tree" and self.often(0.3):
            found.append("drf")
        if self.often(0.2):
            found.remove(self.pick(("gang", "priority", "predicates")))
        self.random.shuffle(found)
        return found

    def plugin_lines(self, name: str) -> list[str]:
        lines = super().plugin_lines(name)
        if self.shares == f"{name} tree":
            lines.insert(1, "    enableHierarchy: true")
        if name == "proportion" and self.often(0.3):  # then what it says of preemptive stands alone
            off = ("enableReclaimable", "enabledAllocatable", "enabledOverused")
            lines = [
                lines[0],
                *(f"    {key}: false" for key in off),
                *(one for one in lines[1:] if ": false" not in one),
            ]
        return lines

    def actions(self) -> str:
        return self.pick(
            ("enqueue, allocate, backfill, reclaim", "allocate, reclaim", "reclaim", "allocate, preempt, reclaim")
        )

    def arguments(self, name: str) -> dict[str, Any]:
        if self.shares == "capacity tree" and name == "capacity":
            return {"ancestorReclaimLevel": self.pick((0, 0, 1, 2))}
        return super().arguments(name)

    def make_queues(self) -> list[str]:
        self.has["quota"] = False
        self.shares = self.pick(SHARING)
        names = [f"q{i}" for i in range(self.random.randint(3 if self.contested else 2, 4))]
        version = "scheduling.volcano.sh/v1beta1"
        for name in names:
            spec: dict[str, Any] = {"weight": self.random.randint(1, 4)}
            asks = self.contested and name == names[-1]
            if asks or self.often(0.5 if self.contested else 0.7):
                few = (0, self.pick((1, 1, 3))) if self.contested else (1, 9)
                spec["deserved"] = self.amounts(*((6, 9) if asks else few))
            if self.often(0.1 if self.contested else 0.2):
                spec["guarantee"] = {"resource": self.amounts(1, 3)}
            if self.often(0.05 if self.contested else 0.2):
                spec["capability"] = {"cpu": str(self.random.randint(3, 12))}
            if self.often(0.2):
                spec["priority"] = self.random.randint(0, 2)
            if self.often(0.1):
                spec["reclaimable"] = self.often(0.3)
            meta: dict[str, Any] = {"name": name, "creationTimestamp": self.time()}
            if self.shares == "drf tree":
                path = ["root", *self.random.sample(("eng", "ops"), self.random.randint(0, 2))]
                weights = "/".join(self.pick(("1", "2", "8")) for _ in path)
                meta["annotations"] = {
                    "volcano.sh/hierarchy": "/".join([*path, name]),
                    "volcano.sh/hierarchy-weights": f"{weights}/{self.random.randint(1, 4)}",
                }
            self.add(version, "Queue", meta, spec=spec, status={"state": "Open"})
        if self.shares == "capacity tree":
            self.make_tree(names)
        return names

    def amounts(self, least: int, most: int) -> dict[str, str]:
        found = {"cpu": str(self.random.randint(least, most))}
        if self.often(0.3):
            found["memory"] = f"{self.random.randint(least, 2 * most)}Gi"
        if self.uses("gpu"):
            found[GPU] = str(self.random.randint(0, 2))
        return found

    def make_tree(self, names: list[str]) -> None:
        """Parents, one of them often below the other, mostly with room for what their children are due."""
        version = "scheduling.volcano.sh/v1beta1"
        self.add(version, "Queue", {"name": "root"}, spec={"weight": 1}, status={"state": "Open"})
        plain = self.contested and self.often(0.7)
        parents = ["dep0", "dep1", "dep2"][: 2 if plain else self.random.randint(1, 3)]
        for number, name in enumerate(parents):
            spec: dict[str, Any] = {"weight": 1, "parent": "root" if plain else self.pick(["root", *parents[:number]])}
            room = 400 // 4**number
            spec["deserved"] = {"cpu": str(room), "memory": f"{room}Gi", GPU: str(room)}
            if plain:
                self.add(version, "Queue", {"name": name}, spec=spec, status={"state": "Open"})
                continue
            if self.often(0.6):
                spec["deserved"] = {"cpu": str(self.random.randint(8, 30)), "memory": f"{room}Gi", GPU: str(room)}
            spec["guarantee"] = {"resource": {"cpu": str(self.pick((0, 0, 4, 8)))}}
            if self.often(0.3):
                spec["capability"] = {"cpu": str(self.pick((6, 12, 60)))}
            self.add(version, "Queue", {"name": name}, spec=spec, status={"state": "Open"})
        for queue in self.objects:
            if queue["kind"] == "Queue" and queue["metadata"]["name"] in names:
                beside = queue["metadata"]["name"] in (names[0], names[-1])
                queue["spec"]["parent"] = parents[not beside] if plain else self.pick([*parents, "root"])
                if self.often(0.8):
                    queue["spec"].pop("guarantee", None)

    def make(self) -> list[Manifest]:
        self.begin()
        for name in ("selectors", "affinity", "taints", "ports"):
            self.has[name] = self.has[name] and self.often(0.4)
        self.make_namespaces()
        self.make_nodes()
        self.make_classes()
        queues = self.make_queues()
        greedy = queues[:-1] if self.contested else queues[: self.random.randint(1, len(queues) - 1)]
        asking = queues[-1:] if self.contested else queues[1:]
        for number in range(self.random.randint(6, 12)):
            self.make_running(f"r{number}", greedy if self.often(0.8) else queues)
        for number in range(self.random.randint(1, 3)):
            self.make_job(number, asking if self.often(0.8) else queues)
        for number in range(self.random.randint(*((1, 3) if self.contested else (0, 2)))):
            self.make_budget(number)
        self.fit()
        for one in self.objects:
            if one["kind"] == "Pod":
                one["status"].pop("nominatedNodeName", None)
                if self.often(0.05):
                    one["spec"]["preemptionPolicy"] = "Never"
        return self.objects

    def fit(self) -> None:
        """Mostly no more runs on a node than it has room for, and who waits could run."""
        left: dict[str, list[Fraction]] = {}
        for one in self.objects:
            if one["kind"] == "Node":
                has = one["status"]["allocatable"]
                left[one["metadata"]["name"]] = [quantity(has["cpu"]), quantity(has["memory"])]
        kept = []
        for one in self.objects:
            kind, spec = one["kind"], one.get("spec") or {}
            if kind == "PodGroup" and self.often(0.9):
                runs = one["metadata"]["name"].startswith("r")
                spec["minMember"] = self.random.randint(0, 1) if runs else self.pick((1, 1, 2))
            if kind == "PodGroup" and one["metadata"]["name"][0] == "j" and spec.get("minResources"):
                spec["minResources"] = {"cpu": "1"}
            if self.contested and kind == "PodGroup" and one["status"]["phase"] == "Pending" and self.often(0.7):
                one["status"]["phase"] = "Inqueue"
            if self.contested and kind == "Pod" and "nodeName" not in spec:
                spec["containers"][0]["resources"]["requests"]["cpu"] = self.pick(("1", "2", "3", "4"))
            if kind == "Pod" and spec.get("nodeName") in left:
                asks = [pod_requests(one, use_status=False).get(name, Fraction(0)) for name in ("cpu", "memory")]
                free = left[spec["nodeName"]]
                if any(wants > has for wants, has in zip(asks, free, strict=True)) and self.often(0.97):
                    continue
                left[spec["nodeName"]] = [has - wants for wants, has in zip(asks, free, strict=True)]
            kept.append(one)
        groups = {(one["metadata"].get("annotations") or {}).get(GROUP_KEYS[0]) for one in kept if one["kind"] == "Pod"}
        self.objects = [one for one in kept if one["kind"] != "PodGroup" or one["metadata"]["name"] in groups]


def reclaim_case(seed: int) -> RandomCase:
    """The case of a seed."""
    maker = ReclaimMaker(seed)
    objects = maker.make()
    placed = [one for one in objects if one["kind"] == "Pod" and one["spec"].get("nodeName")]
    for one in placed[seed % 4 :: 4]:
        if one["status"]["phase"] == "Running":
            one["status"] = {**one["status"], "phase": "Pending"}  # bound, and its image cannot be pulled
    return RandomCase(seed, maker.conf(), objects)
