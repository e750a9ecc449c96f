"""What a daemon remembers once all has come to rest: nothing by the name of what is gone, and no task that is done."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tests.e2e.cluster import GROUPS, QUEUES
from vcd.daemon.firstqueues import ROOT
from vcd.daemon.metrics import Metrics
from vcd.daemon.service import SchedulerService
from vcd.eventlog.log import EventLog
from vcd.kube.recent import Recent
from vcd.state.cluster import ClusterState

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

_ELSEWHERE = (ClusterState, EventLog, Metrics, Recent)
"""What is held against the server by itself, shows the last session, or keeps no more than so many things, whatever
they are."""
_KINDS = ("pods", GROUPS, QUEUES)


class Memory:
    """Notes the names of all pods, groups and queues that ever were, and looks for them in what daemons keep."""

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim
        self._were: set[str] = set()
        sim.store.subscribe(_KINDS, self._came)

    def _came(self, _: str, __: str, obj: dict[str, Any]) -> None:
        self._were.add(_key(obj))

    def at_rest(self) -> None:
        """Look through each daemon that runs."""
        there = {_key(obj) for resource in _KINDS for obj in self._sim.store.list(resource)}
        asked_for = {group["spec"].get("queue", "") for group in self._sim.store.list(GROUPS)}
        gone = self._were - there - asked_for
        for replica in self._sim.replicas:
            if replica.service is not None and replica.machine is not None:
                for what in _remembered(replica.service, gone):
                    self._sim.violated("nothing is kept of what is gone", f"{replica.machine.name}: {what}")


def _key(obj: dict[str, Any]) -> str:
    meta = obj["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else str(meta["name"])


def _remembered(service: SchedulerService, gone: set[str]) -> Iterator[str]:
    gone = gone - {ROOT, service.options.default_queue}  # which it makes
    for path, kept in _containers(service):
        if found := sorted(name for name in map(_name, kept) if name in gone):
            yield f"{path} has {len(found)} that are gone, as {found[0]}"
        if done := [each for each in kept if isinstance(each, asyncio.Task) and each.done()]:
            yield f"{path} has {len(done)} tasks that are done"


def _name(key: object) -> str:
    """By what a container has something: a name, or a kind and a name."""
    return str(key[-1]) if isinstance(key, tuple) and key else str(key)


def _containers(service: SchedulerService) -> Iterator[tuple[str, Any]]:
    """What the daemon's objects keep under their attributes."""
    left, seen = deque[tuple[str, Any]]([("service", service)]), {id(service)}
    while left:
        path, found = left.popleft()
        for name, value in vars(found).items():
            if id(value) in seen or isinstance(value, _ELSEWHERE):
                continue
            seen.add(id(value))
            if isinstance(value, (dict, set, list)):
                yield f"{path}.{name}", value
            elif type(value).__module__.startswith(("vcd.daemon", "vcd.kube")) and hasattr(value, "__dict__"):
                left.append((f"{path}.{name}", value))
