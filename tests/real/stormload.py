"""What users and operators do in a storm: gangs of many shapes come, run, lose pods, are deleted amid it, and end.

A gang's operator makes anew each of its pods that somebody else deleted, so that who was evicted waits again under
another UID. Requests go straight to the API server.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.e2e.cluster import GROUPS, QUEUES, group, node, pod
from tests.e2e.test_eviction import CLASSES, TIERS
from tests.real.api import Api, Refused
from vcd.embedded.kubelet import RUN_SECONDS

Obj = dict[str, Any]
CONF = f'actions: "enqueue, allocate, preempt, reclaim, backfill"{TIERS}'
NODES = {f"node-{number:02}": cpu for number, cpu in enumerate((4, 4, 6, 8, 8, 12, 16))}
"""Cores by name."""
NARROW, RESEARCH = "narrow", "research"
SPECS: dict[str, Obj] = {
    "default": {"weight": 1, "deserved": {"cpu": "24"}, "reclaimable": True},
    RESEARCH: {"weight": 3, "deserved": {"cpu": "26"}, "reclaimable": True},
    NARROW: {"weight": 1, "capability": {"cpu": "8"}, "deserved": {"cpu": "8"}, "reclaimable": True},
}
PACE = 0.25
"""Seconds between two looks of the users."""
BACKLOG = 60
"""Cores that may wait before users wait with what they have."""
BURST = 3
"""Gangs."""
PATIENCE = 30
"""How often users ask a server that has too much to do, each second."""
GONE = ("Succeeded", "Failed")


@dataclass
class Gang:
    """One that somebody submitted. ``seconds`` is for how long its pods run; None: for good."""

    name: str
    size: int
    minimum: int
    cpu: int
    queue: str
    priority: str
    seconds: float | None
    fits: bool = True

    def pods(self) -> list[str]:
        return [f"{self.name}-{number}" for number in range(self.size)]

    def manifest(self, name: str) -> Obj:
        spec = {"priorityClassName": self.priority, "terminationGracePeriodSeconds": 1}
        made = pod(name, self.name, self.cpu, **spec)
        if self.seconds is not None:
            made["metadata"]["annotations"][RUN_SECONDS] = f"{self.seconds:g}"
        return made


class Load:
    """The users. ``look`` each ``PACE`` seconds; ``see`` is told of each change of a pod."""

    def __init__(self, api: Api, chance: random.Random) -> None:
        self._api = api
        self._chance = chance
        self._number = 0
        self.gangs: dict[str, Gang] = {}
        self.live: dict[str, Obj] = {}
        """Pods as they are, by name."""
        self.done: Counter[str] = Counter()

    def furnish(self) -> None:
        """Nodes, priority classes, queues, and a gang for which there is never room."""
        for name, cpu in NODES.items():
            self._api.create("nodes", node(name, cpu))
        for name, value in (("high", 1000), ("low", 10)):
            self._api.create(CLASSES, {"metadata": {"name": name}, "value": value})
        for name, spec in SPECS.items():
            if name == "default":
                self._api.patch(QUEUES, None, name, {"spec": spec})
            else:
                self._api.create(QUEUES, {"metadata": {"name": name}, "spec": spec})
        self._submit(Gang("never", 3, 2, 64, "default", "high", None, fits=False))

    def see(self, event: str, _: str, obj: Obj) -> None:
        meta = obj["metadata"]
        if meta["namespace"] != "default":
            return
        if event == "DELETED":
            self.live.pop(meta["name"], None)
        else:
            self.live[meta["name"]] = obj

    async def look(self, *, more: bool) -> None:
        """Do what is to be done now; begin something new if ``more``."""
        for gang in list(self.gangs.values()):
            if all(self._has_ended(name) for name in gang.pods()):
                await self._end(gang, "ran to their end")
            else:
                await self._complete(gang)
        if more and self._waiting() < BACKLOG:
            await ask(self._submit, self._drawn())
        if more and self._chance.random() < 0.06:
            await self._end_amid()
        if more and self._chance.random() < 0.06:
            await self._delete_a_pod()

    async def burst(self) -> None:
        """Several at once, whatever waits already: there are calls under way when something goes wrong."""
        for _ in range(BURST):
            await ask(self._submit, self._drawn())

    async def keep(self) -> None:
        """Submit what stays for good, for which there is room once all else has ended."""
        for queue, size, cpu in (("default", 4, 2), (RESEARCH, 6, 2), (NARROW, 3, 1)):
            gang = Gang(f"keeper-{queue}", size, size, cpu, queue, "high", None)
            await ask(self._submit, gang)

    def lasting(self) -> list[Gang]:
        """The gangs that are there and never end."""
        return [gang for gang in self.gangs.values() if gang.seconds is None]

    def _waiting(self) -> int:
        """Cores for which pods wait."""
        waits = sum(gang.size * gang.cpu for gang in self.gangs.values() if gang.fits)
        runs = sum(self.gangs[each].cpu for each in map(_group_of, self._placed()) if each in self.gangs)
        return waits - runs

    def _has_ended(self, name: str) -> bool:
        return bool(self.live.get(name, {}).get("status", {}).get("phase") in GONE)

    def _placed(self) -> list[Obj]:
        return [each for each in self.live.values() if each["spec"].get("nodeName")]

    def _drawn(self) -> Gang:
        self._number += 1
        chance = self._chance
        queue = chance.choices(["default", RESEARCH, NARROW], [5, 4, 1])[0]
        size, cpu = chance.choice([1, 1, 2, 3, 4, 6, 8]), chance.choice([1, 1, 2, 3])
        if queue == NARROW:  # 5 cores at most: beside the 3 of the gang that stays for good there is room for it
            size, cpu = min(size, 4), 1 if size > 2 else min(cpu, 2)
        priority = chance.choice(["high", "low", "low"])
        minimum = chance.choice([size, size, max(1, size // 2)])
        seconds = chance.choice([1.0, 2.0, 3.0, 6.0, 12.0 if priority == "low" else 4.0])
        return Gang(f"gang-{self._number}", size, minimum, cpu, queue, priority, seconds)

    # --- requests -----------------------------------------------------------------------------------------------------

    def _submit(self, gang: Gang) -> None:
        self.gangs[gang.name] = gang
        spec = {"queue": gang.queue, "priorityClassName": gang.priority}
        self._api.create(GROUPS, group(gang.name, gang.minimum, **spec))
        for name in gang.pods():
            self._api.create("pods", gang.manifest(name))
        self.done["gangs submitted"] += 1

    async def _complete(self, gang: Gang) -> None:
        """Make anew what was deleted."""
        for name in gang.pods():
            if name not in self.live:
                await ask(self._api.create, "pods", gang.manifest(name))

    async def _end(self, gang: Gang, what: str) -> None:
        del self.gangs[gang.name]
        self.done[f"gangs that {what}"] += 1
        await ask(self._api.delete, GROUPS, "default", gang.name)
        for name in gang.pods():
            await ask(self._api.delete, "pods", "default", name)

    async def _end_amid(self) -> None:
        """A user deletes a gang, whatever it is at."""
        if ending := [gang for gang in self.gangs.values() if gang.seconds is not None]:
            await self._end(self._chance.choice(ending), "were deleted amid it")

    async def _delete_a_pod(self) -> None:
        if there := sorted(each["metadata"]["name"] for each in self._placed()):
            self.done["pods deleted by users"] += 1
            await ask(self._api.delete, "pods", "default", self._chance.choice(there))


async def ask(request: Callable[..., Any], *given: Any) -> None:
    """A request that another may have made superfluous: what it is about is gone, or there already. While the server
    has too much to do it is made again."""
    for left in reversed(range(PATIENCE)):
        try:
            await asyncio.to_thread(request, *given)
        except Refused as error:
            if error.status in (404, 409):
                return
            if not left or (400 <= error.status < 500 and error.status != 429):
                raise
            await asyncio.sleep(1)
        else:
            return


def _group_of(obj: Obj) -> str:
    name: str = obj["metadata"]["annotations"]["scheduling.k8s.io/group-name"]
    return name
