"""Random clusters of nodes with cards, and queues that have a quota of each model."""

from __future__ import annotations

import copy
import json
from typing import Any

from tests.reference.clusters import GPU, Maker, Manifest, RandomCase

MODELS = ("H200", "H800", "RTX")
NPU = "huawei.com/npu"
MIG, SHARED = "nvidia.com/mig-1g.18gb", "nvidia.com/gpu.shared"
CARD_RESOURCES = (GPU, NPU, MIG, SHARED)
SLICES = ("H200/mig-1g.18gb-mixed", "H800/mig-1g.18gb-mixed")
SHARES = ("H200/mps-80g*1/2", "H800/mps-80g*1/2")
QUEUE_NAME = "volcano.sh/queue-name"


class CardMaker(Maker):
    """Draws one case with capacity-card on, some of whose pods ask for cards by name."""

    def plugins(self) -> list[str]:
        found = ["priority", "gang", "predicates", "capacity-card"]
        found += [name for name in ("drf", "overcommit", "nodeorder", "binpack", "conformance") if self.often(0.4)]
        if self.often(0.2):
            found.remove("gang")
        self.random.shuffle(found)
        return found

    def arguments(self, name: str) -> dict[str, Any]:
        if name == "capacity-card":
            found: dict[str, Any] = {"cardUnlimitedCpuMemory": "true"} if self.often(0.3) else {}
            return {**found, "nodeOrderWeight": self.pick((0, 0.5, 10))} if self.often(0.3) else found
        return super().arguments(name)

    def plugin_lines(self, name: str) -> list[str]:
        lines = super().plugin_lines(name)
        if name == "capacity-card" and not any("Allocatable" in line for line in lines) and self.often(0.05):
            lines.insert(1, "    enabledAllocatable: false")  # the quota holds nobody at its gate
        return lines

    def make(self) -> list[Manifest]:
        self.has.update(dict.fromkeys(("selectors", "volumes", "spread", "affinity", "taints"), False), gpu=True)
        self.has["shares"] = self.often(0.3)
        self.models = self.random.sample(MODELS, self.pick((2, 3)))
        objects = super().make()
        for one in objects:
            kind = one["kind"]
            if kind == "Node":
                self.dress_node(one)
            elif kind == "Queue":
                self.dress_queue(one)
            elif kind == "PodGroup":
                self.dress_group(one)
        for one in objects:
            if one["kind"] == "Pod":
                self.dress_pod(one)
        self.lose_groups()
        for number in range(self.random.randint(0, 2)):
            self.make_unborn(number)
        for number in range(self.pick((0, 1, 3))):
            self.make_gang(f"g{number}")
        return self.objects

    def dress_node(self, node: Manifest) -> None:
        """A model and some of its cards, seldom no labels, seldom cards of another vendor."""
        listed, marks = node["status"]["allocatable"], node["metadata"]["labels"]
        listed.pop(GPU, None)
        if self.often(0.15):
            return
        if self.often(0.1):
            listed[NPU] = str(self.random.randint(1, 4))
            marks.update({"huawei.com/npu.product": "Ascend", "huawei.com/npu.memory": "65536"})
        else:
            if self.often(0.9):
                listed[GPU] = str(self.pick((1, 2, 4)))
            if self.has["shares"] and self.often(0.6):
                listed[self.pick((MIG, SHARED))] = str(self.pick((2, 4)))
                marks["nvidia.com/gpu.replicas"] = "2"
            if self.often(0.97):
                marks.update({"nvidia.com/gpu.product": self.pick(self.models), "nvidia.com/gpu.memory": "81920"})
        node["status"]["capacity"] = dict(listed)

    def cards(self) -> tuple[str, ...]:
        return (*MODELS, "Ascend", *(SLICES + SHARES if self.has["shares"] else ()))

    def dress_queue(self, queue: Manifest) -> None:
        spec = queue["spec"]
        if spec.get("capability", {}).pop(GPU, None) and self.often(0.5):
            spec["capability"]["cpu"] = "0"
        if self.often(0.3):
            spec["deserved"] = {"cpu": str(self.random.randint(1, 9)), "memory": f"{self.random.randint(1, 16)}Gi"}
        if self.often(0.95):
            most = self.pick((2, 5))
            quota = {card: self.random.randint(0, most) for card in self.cards() if self.often(0.8)}
            queue["metadata"].setdefault("annotations", {})["volcano.sh/card.quota"] = json.dumps(quota)

    def names(self) -> str:
        """One card or several that are one resource, seldom cards that nobody has or that do not go together."""
        if self.often(0.04):
            return str(self.pick(("nowhere", "H200|Ascend", "nowhere|RTX")))
        among = MODELS if not self.has["shares"] or self.often(0.6) else self.pick((SLICES, SHARES))
        return "|".join(self.random.sample(among, self.pick((1, 1, 2, 2, len(among)))))

    def dress_group(self, group: Manifest) -> None:
        minimum = group["spec"].get("minResources")
        if minimum is not None and GPU in minimum and self.often(0.5):
            del minimum[GPU]
        marks = group["metadata"].setdefault("annotations", {})
        if self.often(0.3):
            marks["volcano.sh/card.name"] = self.names()

    def dress_pod(self, pod: Manifest) -> None:
        marks = pod["metadata"].setdefault("annotations", {})
        pod["spec"] = copy.deepcopy(pod["spec"])  # twins are made of one
        requests = pod["spec"]["containers"][0]["resources"]["requests"]
        requests.pop(GPU, None)
        if self.often(0.25):
            return
        names = self.names()
        resource = SHARED if "mps-" in names else MIG if "mig-" in names else NPU if "Ascend" in names else GPU
        requests[resource] = self.pick(("1", "1", "2"))
        if self.often(0.85):
            marks["volcano.sh/card.name"] = names
        if pod["spec"].get("schedulingGates") and self.often(0.5):
            marks["scheduling.volcano.sh/queue-allocation-gate"] = "true"
        if self.often(0.02):
            requests[MIG] = "1"

    def lose_groups(self) -> None:
        """The groups of some running pods are gone; the pods may say which queue they were of."""
        queues = {
            one["metadata"]["name"]: one["spec"].get("queue", "default")
            for one in self.objects
            if one["kind"] == "PodGroup" and one["status"]["phase"] == "Running"
        }
        lost = {name for name in sorted(queues) if self.often(0.15)}
        self.objects[:] = [
            one for one in self.objects if one["kind"] != "PodGroup" or one["metadata"]["name"] not in lost
        ]
        for one in self.objects:
            if one["kind"] == "Pod" and self.often(0.8):
                marks = one["metadata"].get("annotations") or {}
                name = marks.get("scheduling.k8s.io/group-name")
                if name in lost:
                    marks[self.pick((QUEUE_NAME, f"scheduling.{QUEUE_NAME}"))] = queues[name]

    def make_gang(self, name: str) -> None:
        """A gang that needs all of its pods, of which some or all have the choice between two cards; of one that says
        what it needs some pods may be yet to come."""
        size, two = self.random.randint(2, 4), self.random.sample(self.models, 2)
        spec: dict[str, Any] = {"minMember": size, "queue": self.pick(("default", "q0"))}
        meta = {"name": name, "namespace": "default", "creationTimestamp": self.time()}
        phase = {"phase": self.pick(("Pending", "Inqueue"))}
        self.add("scheduling.volcano.sh/v1beta1", "PodGroup", meta, spec=spec, status=phase)
        choosy = self.pick((size, self.random.randint(1, size - 1)))
        if self.often(0.4):
            spec["minResources"] = {GPU: str(size)}
            size -= self.random.randint(0, size - 1)
        for index in range(size):
            names = "|".join(two) if index < choosy else self.pick((two[0], two[0], two[1]))
            requests = {"cpu": "100m", GPU: "1"}
            container = {"name": "c0", "image": "image-0", "resources": {"requests": requests}}
            pod = {"name": f"{name}-{index}", "namespace": "default", "uid": f"default-{name}-{index}"}
            marks = {"scheduling.k8s.io/group-name": name, "volcano.sh/card.name": names}
            more = {"creationTimestamp": self.time(), "annotations": marks, "labels": {"app": "web"}}
            ours = {"containers": [container], "schedulerName": "volcano"}
            self.add("v1", "Pod", {**pod, **more}, spec=ours, status={"phase": "Pending"})

    def make_unborn(self, number: int) -> None:
        """A group whose pods are not made before it is admitted."""
        asks = {self.names(): self.random.randint(1, 3) for _ in range(self.random.randint(1, 2))}
        text = "{" if self.often(0.05) else json.dumps(asks)
        self.add(
            "scheduling.volcano.sh/v1beta1",
            "PodGroup",
            {
                "name": f"u{number}",
                "namespace": "default",
                "creationTimestamp": self.time(),
                "annotations": {"volcano.sh/card.request": text},
            },
            spec={
                "minMember": self.random.randint(1, 3),
                "queue": self.pick(("default", "q0")),
                "minResources": {"cpu": self.pick(("1", "2", "0"))},
            },
            status={"phase": self.pick(("Pending", "Pending", "Inqueue"))},
        )


class ContestMaker(CardMaker):
    """Draws one case in which groups of several priorities want cards of a queue whose quota is used up, or nearly,
    while a node has idle cards."""

    def plugins(self) -> list[str]:
        found = ["priority", "gang", "predicates", "capacity-card"]
        found += [name for name in ("drf", "binpack", "conformance") if self.often(0.4)]
        self.random.shuffle(found)
        return found

    def actions(self) -> str:
        return "enqueue, allocate, " + self.pick(("preempt", "preempt", "gangpreempt", "gangpreempt", "backfill"))

    def make(self) -> list[Manifest]:
        self.has["priorities"] = True
        super().make()
        model, queue = self.pick(self.models), self.pick(("default", "q0"))
        self.make_shelf(model)
        held = sum(self.make_running(number, model, queue) for number in range(self.random.randint(1, 4)))
        for number in range(self.random.randint(1, 3)):
            self.make_wanting(number, model, queue)
        for one in self.objects:
            if one["kind"] == "Pod":
                one.get("status", {}).pop("nominatedNodeName", None)  # the reference makes room without regard to it
            if one["kind"] == "Queue" and one["metadata"]["name"] == queue:
                marks = one["metadata"].setdefault("annotations", {})
                quota = {
                    **json.loads(marks.get("volcano.sh/card.quota", "{}")),
                    model: max(held + self.pick((0, 0, 1)), 0),
                }
                marks["volcano.sh/card.quota"] = json.dumps(quota)
                one["spec"].pop("capability", None)
        return self.objects

    def make_shelf(self, model: str) -> None:
        room = {"cpu": "64", "memory": "64Gi", "pods": "110", GPU: "32"}
        marks = {"nvidia.com/gpu.product": model, "nvidia.com/gpu.memory": "81920"}
        meta = {"name": "shelf", "labels": marks}
        self.add("v1", "Node", meta, spec={}, status={"allocatable": room, "capacity": dict(room)})

    def make_running(self, number: int, model: str, queue: str) -> int:
        """A group that holds cards; how many."""
        size = self.random.randint(1, 4)
        spec: dict[str, Any] = {"minMember": self.random.randint(0, size), "queue": queue}
        spec["priorityClassName"] = self.pick(("low", "low", "high"))
        if self.often(0.5):
            spec["minResources"] = {"cpu": "1"} if self.often(0.3) else {GPU: str(self.random.randint(1, size))}
        marks = {"volcano.sh/preemptable": "false"} if self.often(0.1) else {}
        self.add_group(f"r{number}", spec, "Running", marks)
        return sum(self.add_user(f"r{number}", index, model, spec, "shelf") for index in range(size))

    def make_wanting(self, number: int, model: str, queue: str) -> None:
        """A group that wants cards; some are admitted, some of these without pods."""
        size = self.random.randint(1, 4)
        spec: dict[str, Any] = {"minMember": self.random.randint(1, size), "queue": queue}
        spec["priorityClassName"] = self.pick(("low", "high", "high"))
        if self.often(0.7):
            spec["minResources"] = {GPU: str(self.random.randint(1, size)), "cpu": "1"}
        phase = self.pick(("Pending", "Pending", "Inqueue"))
        marks = {"volcano.sh/card.request": json.dumps({model: size})}
        self.add_group(f"w{number}", spec, phase, marks)
        for index in range(size if self.often(0.8) else 0):
            self.add_user(f"w{number}", index, model, spec, "")

    def add_group(self, name: str, spec: dict[str, Any], phase: str, marks: dict[str, str]) -> None:
        meta = {"name": name, "namespace": "default", "creationTimestamp": self.time(), "annotations": marks}
        self.add("scheduling.volcano.sh/v1beta1", "PodGroup", meta, spec=spec, status={"phase": phase})

    def add_user(self, group: str, index: int, model: str, spec: dict[str, Any], node: str) -> int:
        """A pod that uses cards, or wants some; how many."""
        gpus = self.pick((1, 1, 1, 2))
        requests = {"cpu": "100m", GPU: str(gpus)}
        container = {"name": "c0", "image": "image-0", "resources": {"requests": requests}}
        marks = {"scheduling.k8s.io/group-name": group, "volcano.sh/card.name": model}
        name = f"{group}-{index}"
        meta: dict[str, Any] = {"name": name, "namespace": "default", "uid": f"default-{name}", "annotations": marks}
        meta["creationTimestamp"] = self.time()
        ours = {"containers": [container], "schedulerName": "volcano", "priorityClassName": spec["priorityClassName"]}
        if node:
            ours["nodeName"] = node
        if node and self.often(0.05):
            meta["deletionTimestamp"] = self.time()
        self.add("v1", "Pod", meta, spec=ours, status={"phase": "Running" if node else "Pending"})
        return 0 if "deletionTimestamp" in meta else gpus


class LentMaker(ContestMaker):
    """Draws one case in which queues hold cards beyond their quotas, and cpu beyond what they deserve, on a node that
    is full, while groups of other queues wait."""

    def plugins(self) -> list[str]:
        found = ["priority", "predicates", "capacity-card"]
        found += [name for name in ("overcommit", "gang", "binpack", "conformance") if self.often(0.6)]
        self.random.shuffle(found)
        return found

    def actions(self) -> str:
        return self.pick(("enqueue, allocate, reclaim", "enqueue, allocate, reclaim", "allocate, reclaim", "reclaim"))

    def arguments(self, name: str) -> dict[str, Any]:
        found = super().arguments(name)
        if name == "overcommit":
            return {**found, "overcommit-factor": 1}
        if name == "capacity-card" and self.often(0.1):
            return {**found, "volcanoSharesEnable": "true"}
        return found

    def make(self) -> list[Manifest]:
        self.has["priorities"] = True
        CardMaker.make(self)
        for one in self.objects:
            if one["kind"] == "Node" and self.often(0.8):
                one["spec"] = {**one.get("spec", {}), "unschedulable": True}
            if one["kind"] == "Pod":
                one.get("status", {}).pop("nominatedNodeName", None)
        model, number = self.pick(self.models), 0
        cpu = cards = 0
        for queue in ("lends", "lent0", "lent1"):
            held = 0
            for _ in range(self.random.randint(0 if queue == "lends" else 1, 3)):
                more, taken = self.make_group_of(f"r{number}", model, queue, "shelf")
                held, cpu, number = held + more, cpu + taken, number + 1
            cards += held
            self.make_lender(queue, model, held)
        for number in range(self.random.randint(1, 3)):
            self.make_group_of(f"w{number}", model, self.pick(("lends", "lends", "lent0")), "")
        self.make_shelf(model)
        shelf = self.objects[-1]["status"]
        shelf["allocatable"].update({"cpu": str(cpu + self.pick((0, 0, 1))), GPU: str(cards + self.pick((0, 0, 1)))})
        return self.objects

    def make_lender(self, name: str, model: str, held: int) -> None:
        """A queue whose quota may be below what it holds."""
        spec: dict[str, Any] = {"weight": 1}
        if self.often(0.6):
            spec["deserved"] = {"cpu": str(self.random.randint(0, 6))}
        if self.often(0.2):
            spec["deserved"] = {**spec.get("deserved", {}), "memory": f"{self.random.randint(1, 8)}Gi"}
        if self.often(0.2):
            spec["guarantee"] = {"resource": {"cpu": str(self.random.randint(1, 3))}}
        if self.often(0.1):
            spec["reclaimable"] = False
        quota = held + self.random.randint(1, 4) if name == "lends" else self.random.randint(0, held)
        meta: dict[str, Any] = {"name": name, "creationTimestamp": self.time()}
        meta["annotations"] = {"volcano.sh/card.quota": json.dumps({model: quota})}
        self.add("scheduling.volcano.sh/v1beta1", "Queue", meta, spec=spec, status={"state": "Open"})

    def make_group_of(self, name: str, model: str, queue: str, node: str) -> tuple[int, int]:
        """A group whose pods use cards, or cpu alone; how many cards and cpus they have."""
        size, has_cards = self.random.randint(1, 3), self.often(0.6)
        spec: dict[str, Any] = {"minMember": self.random.randint(0 if node else 1, size), "queue": queue}
        spec["priorityClassName"] = self.pick(("low", "high"))
        if self.often(0.7):
            least = str(spec["minMember"])
            spec["minResources"] = {"cpu": least, **({GPU: least} if has_cards else {})}
        marks = {"volcano.sh/preemptable": "false"} if node and self.often(0.1) else {}
        if has_cards and self.often(0.5):
            marks["volcano.sh/card.request"] = json.dumps({model: size})
        self.add_group(name, spec, "Running" if node else self.pick(("Pending", "Pending", "Inqueue")), marks)
        for index in range(size if node or self.often(0.8) else 0):
            self.add_user(name, index, model, spec, node)
            pod = self.objects[-1]
            pod["metadata"].pop("deletionTimestamp", None)
            requests = pod["spec"]["containers"][0]["resources"]["requests"]
            requests["cpu"] = "1"
            if self.often(0.3):
                requests["memory"] = "1Gi"
            if not has_cards:
                del requests[GPU], pod["metadata"]["annotations"]["volcano.sh/card.name"]
        held = sum(
            int(one["spec"]["containers"][0]["resources"]["requests"].get(GPU, 0))
            for one in self.objects
            if one["kind"] == "Pod" and one["metadata"]["name"].startswith(f"{name}-")
        )
        return held, size


def carded_case(seed: int) -> RandomCase:
    """The case of a seed."""
    maker = CardMaker(seed)
    objects = maker.make()
    return RandomCase(seed, maker.conf(), objects)


def contested_case(seed: int) -> RandomCase:
    """The case of a seed in which quotas are used up."""
    maker = ContestMaker(seed)
    objects = maker.make()
    return RandomCase(seed, maker.conf(), objects)


def lent_case(seed: int) -> RandomCase:
    """The case of a seed in which queues hold more than they are entitled to."""
    maker = LentMaker(seed)
    objects = maker.make()
    return RandomCase(seed, maker.conf(), objects)
