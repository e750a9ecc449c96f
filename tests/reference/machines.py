"""Random clusters whose nodes publish where their CPUs are, for numa-aware."""

from __future__ import annotations

from typing import Any

from tests.reference.clusters import Maker, Manifest, RandomCase
from tests.reference.cpus import GIVEN, POLICY, read, written

POLICIES = ("best-effort", "restricted", "single-numa-node")
_OFF = (
    "volumes",
    "spread",
    "affinity",
    "selectors",
    "zones",
    "besteffort",
    "images",
    "taints",
    "ports",
    "full",
    "quota",
)


class MachineMaker(Maker):
    """Draws one case: machines with few CPUs on several NUMA nodes, and Guaranteed pods."""

    def make(self) -> list[Manifest]:
        self.has.update(dict.fromkeys(_OFF, False))
        self.policies = [self.pick(POLICIES) for _ in range(2)]
        self.cpus: dict[str, dict[str, dict[str, int]]] = {}
        super().make()
        for node in self.nodes:
            if self.often(0.9):
                self.make_topology(node)
        return self.objects

    def plugins(self) -> list[str]:
        found = ["priority", "gang", "predicates", "drf", "nodeorder", "binpack", "proportion", "numa-aware"]
        found = [name for name in found if name in ("gang", "numa-aware", "predicates") or self.often(0.4)]
        self.random.shuffle(found)
        return found

    def arguments(self, name: str) -> dict[str, Any]:
        if name == "numa-aware":
            return {"weight": self.random.randint(-1, 10)} if self.often(0.7) else {}
        return super().arguments(name)

    def plugin_lines(self, name: str) -> list[str]:
        lines = super().plugin_lines(name)
        if name == "numa-aware" and not any("enablePredicate" in line for line in lines) and self.often(0.05):
            lines.insert(1, "    enablePredicate: false")
        return lines

    def make_nodes(self) -> None:
        super().make_nodes()
        for one in self.objects:
            if one["kind"] == "Node":
                cpus = self.cpus[one["metadata"]["name"]] = self.places()
                for listed in (one["status"]["allocatable"], one["status"]["capacity"]):
                    listed.update(cpu=str(len(cpus) + self.random.randint(0, 4)), memory="64Gi")

    def places(self) -> dict[str, dict[str, int]]:
        """CPUs of sockets of one or several NUMA nodes, or of NUMA nodes of several sockets; numbered in order, or in
        turns over the cores as where threads are numbered last."""
        sockets, threads, cores = self.random.randint(1, 3), self.random.randint(1, 2), self.random.randint(1, 3)
        per_socket = self.random.randint(1, 2)
        cores *= per_socket
        shared = self.often(0.2)
        spots = []
        for thread in range(threads):
            for socket in range(sockets):
                for core in range(cores):
                    numa = socket // 2 if shared else socket * per_socket + core * per_socket // cores
                    spots.append((thread, {"numa": numa, "socket": socket, "core": core}))
        if self.often(0.5):
            spots.sort(key=lambda spot: (spot[1]["socket"], spot[1]["core"]))
        return {str(number): place for number, (_, place) in enumerate(spots)}

    def make_topology(self, node: str) -> None:
        """What the exporter publishes: not always what runs, and of pods with CPUs all, some or none."""
        cpus = set(map(int, self.cpus[node]))
        lists = self.often(0.5)
        gone, listed = set(), []
        for pod in self.objects:
            if pod["kind"] == "Pod" and pod["spec"].get("nodeName") == node and self.given(pod) and self.often(0.7):
                size = sum(int(c["resources"]["limits"]["cpu"]) for c in pod["spec"]["containers"])
                mine = (
                    set(self.random.sample(sorted(cpus), min(size, len(cpus)))) if self.often(0.3) else self.given(pod)
                )
                gone |= mine & cpus
                meta = pod["metadata"]
                name = {"name": meta["name"], "namespace": meta["namespace"]}
                listed.append(self.pick(({"uid": meta["uid"]}, name, {"uid": meta["uid"], **name})))
        if self.often(0.2):
            gone |= set(self.random.sample(sorted(cpus), self.random.randint(0, len(cpus) // 2)))
        manager = "static" if self.often(0.9) else "none"
        policy = self.pick(self.policies) if self.often(0.85) else self.pick((*POLICIES, "none"))
        spec: dict[str, Any] = {
            "policies": {"CPUManagerPolicy": manager, "TopologyManagerPolicy": policy},
            "numares": {"cpu": {"allocatable": written(cpus - gone), "capacity": len(cpus)}},
            "cpuDetail": self.cpus[node],
        }
        if self.often(0.3):
            spec["resReserved"] = {"cpu": self.pick(("1", "500m", "1500m"))}
        if lists:
            spec["podAllocations"] = listed
        self.add("nodeinfo.volcano.sh/v1alpha1", "Numatopology", {"name": node}, spec=spec)

    @staticmethod
    def given(pod: Manifest) -> set[int]:
        return read((pod["metadata"].get("annotations") or {}).get(GIVEN) or "")

    def make_pod(self, name: str, namespace: str, group: str, role: str, spec: Manifest, placed: bool) -> None:
        super().make_pod(name, namespace, group, role, spec, placed)
        pod = self.objects[-1]
        marks = pod["metadata"]["annotations"]
        if self.often(0.6):
            marks[POLICY] = self.pick(self.policies) if self.often(0.95) else self.pick(("none", "besteffort"))
        node = pod["spec"].get("nodeName")
        limits = [container["resources"].get("limits") for container in pod["spec"]["containers"]]
        if node in self.cpus and all(one and one["cpu"].isdigit() for one in limits) and self.often(0.85):
            cpus, size = sorted(map(int, self.cpus[node])), sum(int(one["cpu"]) for one in limits)
            start = self.random.randint(0, max(len(cpus) - size, 0))
            chosen = cpus[start : start + size] if self.often(0.7) else self.random.sample(cpus, min(size, len(cpus)))
            marks[GIVEN] = ",".join(map(str, sorted(chosen)))

    def container(self, number: int) -> Manifest:
        container = super().container(number)
        if self.often(0.9):
            amounts = {"cpu": self.pick(("1", "1", "2", "2", "3", "4", "1500m")), "memory": "1Gi"}
            container["resources"] = {"requests": amounts, "limits": dict(amounts)}
            if self.often(0.08):
                container["resources"] = {"limits": dict(amounts)}
            elif self.often(0.08):
                amounts[self.pick(("cpu", "memory"))] = "500m"
            elif self.often(0.04):
                del container["resources"]["limits"]["memory"]
        return container

    def pod_spec(self, namespace: str) -> Manifest:
        """Seldom with resources of the pod as a whole."""
        spec = super().pod_spec(namespace)
        if self.often(0.1):
            whole = {"cpu": self.pick(("2", "4")), "memory": "2Gi"}
            limits = self.pick((whole, whole, {**whole, "cpu": "5"}, {"cpu": whole["cpu"]}, {}))
            spec["resources"] = {"requests": whole, "limits": dict(limits)}
        return spec


def machine_case(seed: int) -> RandomCase:
    """The case of a seed."""
    maker = MachineMaker(seed)
    objects = maker.make()
    return RandomCase(seed, maker.conf(), objects)
