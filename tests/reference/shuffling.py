"""Random full clusters with nodes that are ours by the hour only."""

from __future__ import annotations

from typing import Any

from tests.reference.clusters import Manifest, RandomCase
from tests.reference.crowded import PROTECTING
from tests.reference.reclaiming import ReclaimMaker

ZONES = ("east", "west", "none")
RECENT = ("2026-11-21T07:59:30Z", "2026-11-21T07:57:00Z", "2026-11-21T08:00:10Z")


class ShuffleMaker(ReclaimMaker):
    """Draws one case: some nodes in revocable zones, whose windows are open or not at eight in the morning."""

    contests = 0.0
    hunts = False
    """Whether it is about preemption: one queue, and those who wait are not preemptable,"""
    places = False
    """or about who gets the room that there is, and on which nodes: few run, many wait."""

    def plugins(self) -> list[str]:
        found = ["priority", "gang", "predicates", "tdm"]
        found += [name for name in (*PROTECTING, "binpack", "nodeorder", "drf") if self.often(0.3)]
        if self.hunts or self.places or self.often(0.3):
            found.remove(self.pick(("gang", "gang", "priority", "predicates")))
        self.random.shuffle(found)
        return found

    def plugin_lines(self, name: str) -> list[str]:
        lines = super().plugin_lines(name)
        if name == "tdm" and self.often(0.1):
            lines.insert(1, f"    {self.pick(('enabledVictim', 'enablePreemptable', 'enableJobOrder'))}: false")
        return lines

    def actions(self) -> str:
        if self.places:
            return self.pick(("allocate", "allocate, shuffle", "allocate, backfill"))
        if self.hunts:
            return self.pick(("allocate, preempt", "preempt, shuffle"))
        return self.pick(("shuffle", "allocate, shuffle", "shuffle, allocate", "allocate, preempt, shuffle"))

    def arguments(self, name: str) -> dict[str, Any]:
        if name != "tdm":
            return super().arguments(name)
        windows = ("10:00-21:00", "7:00-8:00", "8:00-8:00", "22:00-6:00", "22:00-9:30", "8:01-7:59")
        found: dict[str, Any] = {f"tdm.revocable-zone.{zone}": f'"{self.pick(windows)}"' for zone in ZONES[:2]}
        if self.often(0.4):
            found["tdm.evict.period"] = self.pick(("10s", "1m", "5m"))
        return found

    def make(self) -> list[Manifest]:
        self.places = self.often(0.3)
        self.hunts = not self.places and self.often(0.6)
        super().make()
        if self.places:
            self.make_newcomers()
        if self.places or (not self.hunts and self.often(0.4)):
            stay = 0.15 if self.places else 0.3
            self.objects = [one for one in self.objects if "nodeName" not in one.get("spec", ()) or self.often(stay)]
        for one in self.objects:
            kind, meta = one["kind"], one["metadata"]
            if kind == "Node" and self.often(0.6):
                meta["labels"]["volcano.sh/revocable-zone"] = self.pick(
                    ZONES[:2] if self.places else (*ZONES[:2], *ZONES)
                )
            elif kind == "PodGroup":
                self.dress_group(one)
            elif kind == "Pod":
                self.dress_pod(one)
        return self.objects

    def make_newcomers(self) -> None:
        """More groups that wait, of any size."""
        start = len(self.objects)
        for number in range(3, self.random.randint(5, 7)):
            self.make_job(number, ["q0"])
        for one in self.objects[start:]:
            if one["kind"] == "PodGroup":
                one["status"]["phase"] = "Inqueue"
            else:
                one["status"].pop("nominatedNodeName", None)

    def dress_group(self, group: Manifest) -> None:
        meta = group["metadata"]
        if self.hunts:
            group["spec"]["queue"] = "q0"
        if (self.hunts or self.places) and meta["name"].startswith("j"):
            group["spec"]["minMember"] = self.random.randint(1, 3)
        marks = meta.setdefault("annotations", {})
        if self.often(0.4):
            (marks if self.often(0.7) else meta.setdefault("labels", {}))["volcano.sh/preemptable"] = self.pick(
                ("true", "false")
            )
        for key in ("min-available", "max-unavailable"):
            if self.often(0.25):
                marks[f"volcano.sh/jdb-{key}"] = self.pick(("0", "1", "2", "3", "50%", "34%", "x"))
        if meta["name"].startswith("r") and self.often(0.4):
            group["spec"]["minMember"] = self.random.randint(1, 3)

    def dress_pod(self, pod: Manifest) -> None:
        meta = pod["metadata"]
        marks = meta.setdefault("annotations", {})
        if self.often(0.1 if self.hunts else 0.7 if self.places else 0.4):
            marks["volcano.sh/revocable-zone"] = self.pick(("*", "*", "east"))
        if self.hunts and not pod["spec"].get("nodeName"):
            marks["volcano.sh/preemptable"] = self.pick(("true", "false", "false", "false"))
        elif self.often(0.4):
            marks["volcano.sh/preemptable"] = self.pick(("true", "true", "false"))
        if self.often(0.06):
            meta["creationTimestamp"] = self.pick(RECENT[:2])
        if pod["spec"].get("nodeName") and self.often(0.05):
            meta["deletionTimestamp"] = self.pick(RECENT)
            if self.often(0.5):
                pod["spec"]["terminationGracePeriodSeconds"] = self.pick((0, 90))


def shuffle_case(seed: int) -> RandomCase:
    """The case of a seed."""
    maker = ShuffleMaker(seed)
    objects = maker.make()
    return RandomCase(seed, maker.conf(), objects)
