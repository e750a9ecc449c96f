"""Random clusters whose nodes have cards that pods share, for deviceshare."""

from __future__ import annotations

import json
from typing import Any

from tests.reference.cards import GPU_MEMORY, GPU_NUMBER, IDS, INDEX, REGISTER
from tests.reference.clusters import Maker, Manifest, RandomCase

_OFF = ("volumes", "spread", "affinity", "selectors", "zones", "besteffort", "images", "taints", "ports", "full", "gpu")
V100, A100 = "NVIDIA-Tesla V100", "NVIDIA-A100-40GB"
WAYS = {  # the memory of the instances of each way to cut an A100, in order, and how many there are
    "group1": ((5000, 2), (10000, 1), (20000, 1)),
    "group2": ((20000, 2),),
    "group3": ((10000, 1), (5000, 3)),
}


class SharedMaker(Maker):
    """Draws one case: one way to share cards, and pods that have some or want some."""

    def make(self) -> list[Manifest]:
        self.has.update(dict.fromkeys(_OFF, False))
        self.kind = self.pick(("VGPU", "VGPU", "VGPU", "GPUSharing", "GPUNumber"))
        self.factor = self.pick((1, 1, 100))
        self.cards: dict[str, list[tuple[str, bool]]] = {}
        self.ways = self.random.sample(sorted(WAYS), 2)
        super().make()
        if self.kind == "VGPU" and (self.factor > 1 or self.often(0.8)):
            self.make_configuration()
        return self.objects

    def make_configuration(self) -> None:
        ways = [
            {
                "group": name,
                "geometries": [
                    {"name": f"i{i}", "memory": memory, "count": count} for i, (memory, count) in enumerate(WAYS[name])
                ],
            }
            for name in self.ways
        ]
        nvidia: dict[str, Any] = {"knownMigGeometries": [{"models": ["A100"], "allowedGeometries": ways}]}
        if self.factor > 1:
            nvidia["gpuMemoryFactor"] = self.factor
        meta = {"name": "volcano-vgpu-device-config", "namespace": "kube-system"}
        self.add("v1", "ConfigMap", meta, data={"device-config.yaml": json.dumps({"nvidia": nvidia})})

    def plugins(self) -> list[str]:
        found = ["priority", "gang", "predicates", "drf", "nodeorder", "binpack", "proportion", "deviceshare"]
        found = [name for name in found if name in ("gang", "deviceshare", "predicates") or self.often(0.3)]
        self.random.shuffle(found)
        return found

    def plugin_lines(self, name: str) -> list[str]:
        lines = super().plugin_lines(name)
        if name == "deviceshare" and not any("enablePredicate" in line for line in lines) and self.often(0.05):
            lines.insert(1, "    enablePredicate: false")
        return lines

    def arguments(self, name: str) -> dict[str, Any]:
        if name != "deviceshare":
            return super().arguments(name)
        found: dict[str, Any] = {f"deviceshare.{self.kind}Enable": "true"}
        if self.often(0.7):
            found["deviceshare.ScheduleWeight"] = self.random.randint(0, 10)
        if self.often(0.7):
            found["deviceshare.SchedulePolicy"] = self.pick(("binpack", "spread"))
        if self.often(0.15) and self.kind == "VGPU":
            found["deviceshare.NodeLockEnable"] = "true"
        if self.often(0.3):
            found["deviceshare.GPUExclusiveRules"] = json.dumps([{"app": self.pick(("web", "db"))}])
        return found

    def make_nodes(self) -> None:
        super().make_nodes()
        for one in self.objects:
            if one["kind"] == "Node" and self.often(0.95):
                self.make_cards(one)

    def make_cards(self, node: Manifest) -> None:
        name, number = node["metadata"]["name"], self.random.randint(1, 3)
        marks = node["metadata"].setdefault("annotations", {})
        mig = self.often(0.4)
        self.cards[name] = [(f"GPU-{name}-{i}" if self.kind == "VGPU" else str(i), mig) for i in range(number)]
        if self.kind == "VGPU":
            sizes = [40000 if mig else self.pick((8000, 16000)) for _ in range(number)]
            text = ""
            for (uuid, _), size in zip(self.cards[name], sizes, strict=True):
                kind, healthy = A100 if mig else self.pick((V100, A100)), "false" if self.often(0.1) else "true"
                mode = "mig" if mig else self.pick(("hami-core", "mps"))
                text += f"{uuid},{self.pick((1, 2, 10))},{size // self.factor},{kind},{healthy},{mode}:"
            marks[REGISTER] = text
            listed = {"volcano.sh/vgpu-number": "100", "volcano.sh/vgpu-memory": "1000000"}
            listed |= {"volcano.sh/vgpu-cores": "10000", "volcano.sh/vgpu-memory-percentage": "10000"}
        else:
            listed = {GPU_NUMBER: str(number), GPU_MEMORY: str(number * 8000)}
            if self.often(0.2):
                marks["volcano.sh/gpu-unhealthy-ids"] = "0"
        for where in (node["status"]["allocatable"], node["status"]["capacity"]):
            where.update(listed, cpu="16", memory="64Gi")

    def make_pod(self, name: str, namespace: str, group: str, role: str, spec: Manifest, placed: bool) -> None:
        super().make_pod(name, namespace, group, role, spec, placed)
        pod = self.objects[-1]
        marks = pod["metadata"]["annotations"]
        for mark, chance, values in (
            ("volcano.sh/vgpu-mode", 0.1, ("mig", "hami-core")),
            ("volcano.sh/vgpu-podgroup-policy", 0.2, ("spread",)),
            ("nvidia.com/use-gputype", 0.08, ("a100", "V100,A100", "H100")),
            ("nvidia.com/nouse-gputype", 0.08, ("a100", "v100")),
            ("volcano.sh/vgpu-nouse-gpuuuid", 0.08, ("GPU-n0-0", "GPU-n0-0, GPU-n1-0")),
            ("volcano.sh/vgpu-use-gpuuuid", 0.05, ("GPU-n0-0", "GPU-n0-1,GPU-n1-0,GPU-n2-0")),
        ):
            if self.often(chance):
                marks[mark] = self.pick(values)
        node = pod["spec"].get("nodeName")
        if node in self.cards and self.often(0.9):
            self.give(pod, self.pick(self.cards[node]))

    def give(self, pod: Manifest, card: tuple[str, bool]) -> None:
        """A placed pod has a share of a card, and may not have been handed it."""
        marks, (uuid, mig) = pod["metadata"]["annotations"], card
        if self.kind != "VGPU":
            marks[INDEX] = uuid
            return
        if mig and self.often(0.9):
            way = self.ways[0] if self.often(0.9) else self.ways[1]
            uuid += f"[{way}-{self.random.randrange(sum(count for _, count in WAYS[way]))}]"
        memory = self.pick((2000, 5000, 8000)) // self.factor
        marks[IDS] = f"{uuid},NVIDIA,{memory},{self.pick((0, 0, 30, 50, 100))}:"
        if pod["status"]["phase"] == "Pending" or self.often(0.2):
            marks["volcano.sh/bind-phase"] = self.pick(("allocating", "allocating", "success"))
            marks["volcano.sh/bind-time"] = str(NOW_SECONDS - self.pick((10, 10, 1000)))

    def container(self, number: int) -> Manifest:
        container = super().container(number)
        wanted: dict[str, str] = {}
        if self.kind == "VGPU" and self.often(0.85):
            if self.often(0.8):
                wanted["volcano.sh/vgpu-number"] = self.pick("1112")
            if self.often(0.7) or not wanted:
                wanted["volcano.sh/vgpu-memory"] = str(self.pick((1000, 3000, 5000, 6000, 9000)) // self.factor)
            elif self.often(0.6):
                wanted["volcano.sh/vgpu-memory-percentage"] = self.pick(("10", "25", "50", "100"))
            if self.often(0.4):
                wanted["volcano.sh/vgpu-cores"] = self.pick(
                    ("10", "30", "50", "100", "100" if self.often(0.7) else "150")
                )
        elif self.kind == "GPUSharing" and self.often(0.8):
            wanted[GPU_MEMORY] = self.pick(("1000", "3000", "5000", "8000", "9000"))
        elif self.kind == "GPUNumber" and self.often(0.8):
            wanted[GPU_NUMBER] = self.pick("112")
        container["resources"]["requests"].update({"cpu": self.pick(("500m", "1", "2")), **wanted})
        if wanted:
            container["resources"]["limits"] = dict(wanted)
        return container


NOW_SECONDS = 1795248000
"""2026-11-21T08:00:00Z, when the cases are decided."""


def shared_case(seed: int) -> RandomCase:
    """The case of a seed."""
    maker = SharedMaker(seed)
    objects = maker.make()
    return RandomCase(seed, maker.conf(), objects)
