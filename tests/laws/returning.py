"""A cluster whose controllers bring back, under the same name or another, what is evicted."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.dsl import flat, moment
from tests.laws.answering import Answering
from vcd.model import events as ev

Manifest = dict[str, Any]


class Returning(Answering):
    """What is evicted is pending again in the next cycle; ``renames`` gives it another name, as a ReplicaSet does."""

    def __init__(self, *objects: Any, conf: str | None = None, memory: bool = True, renames: bool = False) -> None:
        self._manifests: dict[str, Manifest] = {}
        self._slot: dict[str, str] = {}
        self._renames = renames
        self._made = 0
        self.evictions: Counter[str] = Counter()
        """How often each pod, or what took its place, was evicted."""
        super().__init__(*objects, conf=conf, memory=memory)

    def put(self, *manifests: Any) -> None:
        """Objects appear or change; pods among them come back when they are evicted."""
        objects = flat(manifests)
        for manifest in objects:
            if manifest.get("kind") == "Pod":
                key = f"{manifest['metadata']['namespace']}/{manifest['metadata']['name']}"
                self._manifests[key] = manifest
                self._slot.setdefault(key, key)
        super().put(*objects)

    def cycle(self) -> ev.Plan:
        """One session, carried out, and what was evicted is made anew."""
        before = len(self.evicted)
        plan = super().cycle()
        for key in self.evicted[before:]:
            self.evictions[self._slot[key]] += 1
            self._bring_back(key)
        return plan

    def cycles(self, count: int) -> None:
        """So many sessions, whatever they decide."""
        for _ in range(count):
            self.cycle()

    def _bring_back(self, key: str) -> None:
        self._made += 1
        old = self._manifests[key]
        name = f"{old['metadata']['name']}-r{self._made}" if self._renames else old["metadata"]["name"]
        meta = {
            **old["metadata"],
            "name": name,
            "uid": f"uid-{self._made}",
            "creationTimestamp": moment(100 + self._made),
        }
        spec = {field: value for field, value in old["spec"].items() if field != "nodeName"}
        self._slot[f"{meta['namespace']}/{name}"] = self._slot[key]
        self.put({**old, "metadata": meta, "spec": spec, "status": {"phase": "Pending"}})
