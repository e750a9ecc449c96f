"""Tenants of a storm in namespaces of their own: one that does what costs a scheduler most, one that binds its own
pods, one whose writes a webhook denies, and an innocent one whose small jobs have to get nodes all the while.

None of their pods asks for CPU, so that nodes and queues have room for them at any time.
"""

from __future__ import annotations

import asyncio
import base64
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from tests.e2e.cluster import GROUPS, QUEUES, group, pod
from tests.real.api import Api
from tests.real.stormload import GONE, NODES, PACE, ask
from vcd.embedded.kubelet import RUN_SECONDS

Obj = dict[str, Any]
HOSTILE, BINDER, GATED, INNOCENT = "hostile", "binder", "gated", "innocent"
NAMESPACES = (HOSTILE, BINDER, GATED, INNOCENT)
GATES = ("pods/binding", "podgroups", "pods/status")
"""The writes that are denied in the namespace `GATED`."""
MANY = 1000
"""Resource names, selector terms or spread constraints of one pod."""
MOST_PODS = 12
"""Pods of one of these tenants at a time."""
TEXT = 96 << 10
"""Random bytes of an annotation, which is patched again and again."""


class Tenants:
    """Their acts, while they ``run``; ``see`` is told of each change of a pod."""

    def __init__(self, api: Api, chance: random.Random) -> None:
        self._api = api
        self._chance = chance
        self._number = 0
        self._live: dict[str, dict[str, Obj]] = {name: {} for name in NAMESPACES}
        """Pods by namespace and name."""
        self.done: Counter[str] = Counter()
        self.probes: list[str] = []
        """The keys of the innocent tenant's pods, each a job."""
        self.broken: list[str] = []

    def furnish(self) -> None:
        """Namespaces, and the innocent tenant's queue."""
        there = {each["metadata"]["name"] for each in self._api.list("namespaces")}
        for name in set(NAMESPACES) - there:
            self._api.create("namespaces", {"metadata": {"name": name}})
        spec = {"weight": 1, "deserved": {"cpu": "1"}, "reclaimable": False}
        self._api.create(QUEUES, {"metadata": {"name": INNOCENT}, "spec": spec})

    def see(self, event: str, _: str, obj: Obj) -> None:
        meta = obj["metadata"]
        there = self._live.get(meta["namespace"])
        if there is None:
            return
        if event == "DELETED":
            there.pop(meta["name"], None)
        else:
            there[meta["name"]] = obj
        if meta["namespace"] == GATED and obj["spec"].get("nodeName"):
            self.broken.append(f"{meta['name']} was bound where the webhook denies binds")

    async def run(self, until: float) -> None:
        """Act until then (monotonic seconds), and leave."""
        while time.monotonic() < until:
            heavy = self._chance.choice([self._many_names, self._many_terms, self._many_constraints])
            await self._submit(HOSTILE, heavy)
            await self._patch_annotation()
            await self._bind_itself()
            await self._submit(GATED, dict)
            await self._probe()
            await asyncio.sleep(PACE)
        await self.leave()

    async def leave(self) -> None:
        """They and their jobs are gone; the queue stays."""
        for name in NAMESPACES:
            for resource in (GROUPS, "pods"):
                await ask(self._api.clear, resource, name)

    def waiting(self) -> Iterator[str]:
        """Pods of the innocent tenant that have no node."""
        return (name for name, each in self._live[INNOCENT].items() if not each["spec"].get("nodeName"))

    # --- jobs ---------------------------------------------------------------------------------------------------------

    async def _submit(self, namespace: str, spec: Callable[[], Obj], queue: str = "default", **annotations: str) -> str:
        """A job of one pod; its name. Empty where `MOST_PODS` are there: one that ended, or the oldest, goes; of the
        innocent tenant none that waits."""
        there = self._live[namespace]
        if len(there) >= MOST_PODS:
            ended = [name for name, each in there.items() if each.get("status", {}).get("phase") in GONE]
            going = ended or ([] if namespace == INNOCENT else list(there))
            for name in going[:1]:
                await ask(self._api.delete, "pods", namespace, name)
                await ask(self._api.delete, GROUPS, namespace, name)
            return ""
        self._number += 1
        name = f"{namespace}-{self._number}"
        made = pod(name, name, 0, **spec())
        made["metadata"]["annotations"] |= annotations
        for resource, obj in ((GROUPS, group(name, 1, queue=queue)), ("pods", made)):
            obj["metadata"]["namespace"] = namespace
            await ask(self._api.create, resource, obj)
        self.done[f"jobs of {namespace}"] += 1
        return name

    def _many_names(self) -> Obj:
        amounts = {f"example.com/{self._chance.getrandbits(48):x}": "1" for _ in range(MANY)}
        return {"containers": [{"name": "c", "image": "pause", "resources": {"requests": amounts, "limits": amounts}}]}

    def _many_terms(self) -> Obj:
        def term() -> Obj:
            wanted = {"key": f"example.com/{self._chance.getrandbits(48):x}", "operator": "DoesNotExist"}
            return {"matchExpressions": [wanted]}

        preferred = [{"weight": 1, "preference": term()} for _ in range(MANY)]
        required = {"nodeSelectorTerms": [term() for _ in range(MANY)]}
        parts = {"Preferred": preferred, "Required": required}
        rules = {f"{how.lower()}DuringSchedulingIgnoredDuringExecution": terms for how, terms in parts.items()}
        return {"affinity": {"nodeAffinity": rules}}

    def _many_constraints(self) -> Obj:
        selector = {"matchLabels": {"app": "a"}}
        how = self._chance.choice(["DoNotSchedule", "ScheduleAnyway"])
        keys = [f"example.com/{self._chance.getrandbits(48):x}" for _ in range(MANY)]
        spread = [
            {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": how, "labelSelector": selector} for key in keys
        ]
        return {"topologySpreadConstraints": spread}

    async def _patch_annotation(self) -> None:
        if there := sorted(self._live[HOSTILE]):
            text = base64.b64encode(self._chance.randbytes(TEXT)).decode()
            patch = {"metadata": {"annotations": {"example.com/text": text}}}
            await ask(self._api.patch, "pods", HOSTILE, self._chance.choice(there), patch)
            self.done["annotations patched"] += 1

    async def _bind_itself(self) -> None:
        """Some pods that vcd would place are bound by their owner first, or after it."""
        name = await self._submit(BINDER, dict)
        if name and self._chance.random() < 0.5:
            target = {"apiVersion": "v1", "kind": "Node", "name": self._chance.choice(list(NODES))}
            body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
            await ask(self._api.request, "POST", f"/api/v1/namespaces/{BINDER}/pods/{name}/binding", body)
            self.done["pods bound by their owner"] += 1

    async def _probe(self) -> None:
        if name := await self._submit(INNOCENT, dict, INNOCENT, **{RUN_SECONDS: "1"}):
            self.probes.append(f"{INNOCENT}/{name}")
