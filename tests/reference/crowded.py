"""Random full clusters, in which somebody has to go for whoever comes."""

from __future__ import annotations

from typing import Any

from tests.reference.clusters import Maker, Manifest, RandomCase
from tests.reference.config import EVICTION_FLAGS, FLAGS

PROTECTING = ("conformance", "pdb", "cdp")
_OFF = ("volumes", "spread", "gates", "loose", "quota", "closed", "full", "terminating", "zones")
_APART = ("selectors", "affinity", "taints", "ports", "init", "gpu", "besteffort", "namespaces", "roles")
"""What keeps pods from nodes, or tells them apart otherwise than by size."""


class CrowdedMaker(Maker):
    """Draws one case: nodes full of running groups, and groups of other priorities that wait."""

    flags = tuple(sorted({**FLAGS, **EVICTION_FLAGS}.values()))
    contests = 0.0
    """In how many cases it is about who of many has to go."""
    contested = False
    """Whether this is one of them: one or two large nodes full of small pods, and nothing else."""

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
        self.begin()
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

    def begin(self) -> None:
        """Decide what there is at all."""
        self.has.update(dict.fromkeys(_OFF, False), crowded=True, priorities=True)
        self.contested = self.often(self.contests)
        if self.contested:
            self.has.update(dict.fromkeys(_APART, False))

    def container(self, number: int) -> Manifest:
        container = super().container(number)
        if self.contested:
            requests = {"cpu": self.pick(("500m", "1", "1", "2")), "memory": self.pick(("512Mi", "1Gi", "2Gi"))}
            container["resources"] = {"requests": requests}
        return container

    def make_nodes(self) -> None:
        super().make_nodes()
        if self.contested:
            kept = self.pick((1, 1, 2))
            self.nodes = self.nodes[:kept]
            self.objects = [
                one for one in self.objects if one["kind"] != "Node" or one["metadata"]["name"] in self.nodes
            ]
            for one in self.objects:
                if one["kind"] == "Node":
                    one["status"]["allocatable"].update(cpu="8", memory="12Gi", pods="110")
                    one["status"]["capacity"] = dict(one["status"]["allocatable"])

    def make_running(self, name: str, queues: list[str]) -> None:
        """A group whose pods run, some with a cool-down or protected."""
        size = self.random.randint(1, 4)
        namespace = "kube-system" if self.contested and self.often(0.1) else "default"
        spec = {"minMember": self.random.randint(0, size), "queue": self.pick(queues)}
        spec["priorityClassName"] = self.pick(("low", "low", "low", "high"))
        meta = {"name": name, "namespace": namespace, "creationTimestamp": self.time()}
        self.add("scheduling.volcano.sh/v1beta1", "PodGroup", meta, spec=spec, status={"phase": "Running"})
        for index in range(size):
            pod_spec = {**self.pod_spec(namespace), "nodeName": self.pick(self.nodes), "schedulerName": "volcano"}
            if self.often(0.5):
                pod_spec["priority"] = self.pick((0, 10, 1000))
            if self.often(0.2 if self.contested else 0.1):
                pod_spec["priorityClassName"] = "system-node-critical"
            marks = {"scheduling.k8s.io/group-name": name}
            if self.often(0.35 if self.contested else 0.2):
                marks["volcano.sh/cooldown-time"] = self.pick(("1h", "100000h", "x"))
            if self.often(0.1):
                marks["volcano.sh/preemptable"] = self.pick(("false", "true"))
            pod_meta = {
                "name": f"{name}-{index}",
                "namespace": namespace,
                "uid": f"{namespace}-{name}-{index}",
                "creationTimestamp": self.time(),
                "annotations": marks,
                "labels": {"app": self.pick(("web", "db", "cache"))},
            }
            if self.contested and self.often(0.05):  # asked to go five seconds ago, or much longer
                pod_meta["deletionTimestamp"] = self.pick(("2026-11-21T08:00:25Z", "2026-11-21T07:59:00Z"))
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


class WaitingMaker(CrowdedMaker):
    """Draws one case: jobs of lower priority wait for pods that terminate, and others want more than that."""

    contests = 0.9

    def actions(self) -> str:
        return self.pick(("allocate, preempt", "allocate, backfill, preempt", "allocate, gangpreempt"))

    def make(self) -> list[Manifest]:
        super().make()
        for number in range(3, self.random.randint(4, 8)):
            self.make_job(number, ["default"])
        self.add("scheduling.k8s.io/v1", "PriorityClass", {"name": "middle"}, value=100)
        rank = {one["metadata"]["name"]: self.dress_group(one) for one in self.objects if one["kind"] == "PodGroup"}
        for one in self.objects:
            if one["kind"] == "Pod":
                self.dress_pod(one, rank[one["metadata"]["annotations"]["scheduling.k8s.io/group-name"]])
        return self.objects

    def dress_group(self, group: Manifest) -> str:
        """Give a group its priority class, and return that."""
        spec = group["spec"]
        spec["queue"] = "default"
        if not group["metadata"]["name"].startswith("r"):
            spec.update(priorityClassName=self.pick(("high", "middle")), minMember=self.pick((1, 1, 2)))
        elif self.often(0.7):
            spec.update(priorityClassName="low", minMember=0)
        return str(spec["priorityClassName"])

    def dress_pod(self, pod: Manifest, rank: str) -> None:
        """Let some that run terminate, and let those of the highest class want almost a whole node."""
        pod["status"].pop("nominatedNodeName", None)
        if pod["spec"].get("nodeName"):
            if self.often(0.4):
                pod["metadata"]["deletionTimestamp"] = "2026-11-21T07:59:00Z"
        elif rank == "high" and self.contested:
            pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = self.pick("5678")


def waiting_case(seed: int) -> RandomCase:
    """The case of a seed."""
    maker = WaitingMaker(seed)
    objects = maker.make()
    return RandomCase(seed, maker.conf(), objects)
