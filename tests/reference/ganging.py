"""Random full clusters in which whole gangs get room from other gangs."""

from __future__ import annotations

from tests.reference.clusters import Manifest, RandomCase
from tests.reference.reclaiming import ReclaimMaker

ROLES = ("chief", "worker")


class GangMaker(ReclaimMaker):
    """Draws one case: running gangs of all sizes of minimum, and gangs that wait, of the same queue or of another."""

    preempts = False
    """Whether it is about one queue with priorities rather than several queues."""

    def actions(self) -> str:
        name = "gangpreempt" if self.preempts else "gangreclaim"
        return self.pick((name, f"allocate, {name}", f"allocate, {name}", "allocate, gangpreempt, gangreclaim"))

    def plugin_lines(self, name: str) -> list[str]:
        lines = super().plugin_lines(name)
        if name == self.shares.partition(" ")[0] and self.often(0.15) and "enablePreemptive" not in "".join(lines):
            lines.insert(1, "    enablePreemptive: false")
        return lines

    def make_tree(self, names: list[str]) -> None:
        """As of others, but that parents are soon full."""
        super().make_tree(names)
        for queue in self.objects:
            if queue["kind"] == "Queue" and queue["metadata"]["name"].startswith("dep") and self.often(0.4):
                queue["spec"].pop("guarantee", None)
                queue["spec"]["capability"] = {"cpu": str(self.random.randint(2, 8))}

    def make_budget(self, number: int) -> None:
        super().make_budget(number)
        if self.often(0.5):
            super().make_budget(number + 10)

    def conf(self) -> str:
        found = super().conf()
        if self.often(0.15):
            found += "configurations:\n"
            for name in ("gangpreempt", "gangreclaim"):
                found += f"- name: {name}\n  arguments:\n    allowWholeBundle: false\n"
        return found

    def make(self) -> list[Manifest]:
        self.preempts = self.often(0.5)
        self.has.update(ports=self.uses("ports"), selectors=self.uses("selectors"))
        sizes: dict[str, int] = {}
        kept = []
        for one in super().make():
            if one["kind"] == "Pod":
                name = one["metadata"]["annotations"]["scheduling.k8s.io/group-name"]
                if sizes.get(name, 0) == 3 and not one["spec"].get("nodeName") and self.often(0.9):
                    continue
                sizes[name] = sizes.get(name, 0) + 1
                self.dress_pod(one)
            elif one["kind"] == "Node" and self.often(0.8):
                one["status"]["allocatable"]["pods"] = "110"
            kept.append(one)
        for one in kept:
            if one["kind"] == "PodGroup":
                self.dress_group(one, sizes.get(one["metadata"]["name"], 0))
        return kept

    def dress_pod(self, pod: Manifest) -> None:
        if self.uses("roles"):
            pod["metadata"]["annotations"]["volcano.sh/task-spec"] = self.pick(ROLES)
        spec = pod["spec"]
        if spec.get("nodeName"):
            if self.often(0.06):
                pod["status"]["phase"] = "Pending"  # bound, and not running yet
                if self.often(0.5):
                    del spec["nodeName"]
            return
        spec.pop("preemptionPolicy", None)
        if self.often(0.02):
            spec["preemptionPolicy"] = "Never"
        if self.often(0.03):
            spec["schedulingGates"] = [{"name": "example.com/wait"}]
        if self.often(0.7):
            spec.pop("affinity", None)

    def dress_group(self, group: Manifest, size: int) -> None:
        spec, meta = group["spec"], group["metadata"]
        runs = meta["name"].startswith("r")
        if self.preempts and self.often(0.9):
            spec["queue"] = "q0"
            spec["priorityClassName"] = self.pick(("low", "low", "high") if runs else ("high", "high", "low"))
        spec.pop("minTaskMember", None)
        if runs:
            spec["minMember"] = self.pick((*range(size + 1), *range(size + 1), *[size] * 4, size + 1))
            if self.uses("roles"):
                spec["minTaskMember"] = {role: self.random.randint(0, 1) for role in ROLES}
        elif self.often(0.5):
            spec["minMember"] = self.random.randint(1, max(size, 1))
        if self.often(0.08):
            marks = meta.setdefault(self.pick(("annotations", "labels")), {})
            marks["volcano.sh/preemptable"] = self.pick(("false", "true", "x"))


def gang_case(seed: int) -> RandomCase:
    """The case of a seed."""
    maker = GangMaker(seed)
    objects = maker.make()
    return RandomCase(seed, maker.conf(), objects)
