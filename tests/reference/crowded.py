"""Random full clusters, in which somebody has to go for whoever comes."""

from __future__ import annotations

from typing import Any

from tests.reference.clusters import Maker, Manifest, RandomCase

PROTECTING = ("conformance", "pdb", "cdp")


class CrowdedMaker(Maker):
    """Draws one case: nodes full of running groups, and groups of other priorities that wait."""

    def plugins(self) -> list[str]:
        found = ["priority", "gang", "predicates"]
        found += [name for name in (*PROTECTING, "drf", "binpack", "nodeorder") if self.often(0.5)]
        if self.often(0.3):
            found.remove("gang")
        self.random.shuffle(found)
        return found

    def actions(self) -> str:
        return self.pick(("enqueue, allocate, backfill, preempt", "allocate, preempt", "preempt"))

    def arguments(self, name: str) -> dict[str, Any]:
        if name == "nodeorder":  # what compares the candidates among themselves is not in these cases
            off = ("nodeaffinity", "podaffinity", "tainttoleration", "podtopologyspread")
            return {**{f"{key}.weight": 0 for key in off}, "leastrequested.weight": self.random.randint(0, 3)}
        return super().arguments(name)

    def make(self) -> list[Manifest]:
        off = ("volumes", "spread", "gates", "loose", "quota", "closed", "full", "flags", "terminating", "zones")
        self.has.update(dict.fromkeys(off, False), crowded=True, priorities=True)
        self.make_namespaces()
        self.make_nodes()
        self.make_classes()
        queues = self.make_queues()[:2]
        for number in range(self.random.randint(3, 7)):
            self.make_running(f"r{number}", queues)
        for number in range(self.random.randint(1, 3)):
            self.make_job(number, queues)
        for number in range(self.random.randint(0, 2)):
            self.make_budget(number)
        for one in self.objects:
            if one["kind"] == "Pod":
                one["status"].pop("nominatedNodeName", None)
            elif one["kind"] == "PodGroup" and one["metadata"]["name"].startswith("j") and self.often(0.7):
                one["spec"]["priorityClassName"] = "high"
        return self.objects

    def make_running(self, name: str, queues: list[str]) -> None:
        """A group whose pods run, one after the other on the nodes, some with a cool-down or protected."""
        size = self.random.randint(1, 4)
        spec = {"minMember": self.random.randint(0, size), "queue": self.pick(queues)}
        spec["priorityClassName"] = self.pick(("low", "low", "low", "high"))
        meta = {"name": name, "namespace": "default", "creationTimestamp": self.time()}
        self.add("scheduling.volcano.sh/v1beta1", "PodGroup", meta, spec=spec, status={"phase": "Running"})
        for index in range(size):
            pod_spec = {**self.pod_spec("default"), "nodeName": self.pick(self.nodes), "schedulerName": "volcano"}
            if self.often(0.5):
                pod_spec["priority"] = self.pick((0, 10, 1000))
            if self.often(0.1):
                pod_spec["priorityClassName"] = "system-node-critical"
            marks = {"scheduling.k8s.io/group-name": name}
            if self.often(0.2):
                marks["volcano.sh/cooldown-time"] = self.pick(("1h", "100000h", "x"))
            if self.often(0.1):
                marks["volcano.sh/preemptable"] = self.pick(("false", "true"))
            pod_meta = {
                "name": f"{name}-{index}",
                "namespace": "default",
                "uid": f"default-{name}-{index}",
                "creationTimestamp": self.time(),
                "annotations": marks,
                "labels": {"app": self.pick(("web", "db", "cache"))},
            }
            placed = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
            self.add("v1", "Pod", pod_meta, spec=pod_spec, status={"phase": "Running", "conditions": [placed]})

    def make_budget(self, number: int) -> None:
        selector = {"matchLabels": {"app": self.pick(("web", "db", "cache"))}} if self.often(0.9) else {}
        self.add(
            "policy/v1",
            "PodDisruptionBudget",
            {"name": f"budget{number}", "namespace": "default"},
            spec={"selector": selector},
            status={"disruptionsAllowed": self.random.randint(0, 2)},
        )


def crowded_case(seed: int) -> RandomCase:
    """The case of a seed."""
    maker = CrowdedMaker(seed)
    objects = maker.make()
    return RandomCase(seed, maker.conf(), objects)
