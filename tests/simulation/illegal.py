"""Faults that no API server has unless its storage was restored. vcd has to detect and repair them, and stay safe."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.simulation.workload import RESOURCES
from vcd.embedded.controllers.controller_base import is_deleting
from vcd.embedded.watch_cache import ADDED, DELETED, MODIFIED, Write

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation


def spoil(sim: Simulation, resource: str, how: str, count: int) -> None:
    """On the open watches of a resource, the next ``count`` events are lost (``drop``), swapped with the next one
    (``swap``), or repeated after later ones (``repeat``)."""
    for stream in sim.server.open_watches(RESOURCES.get(resource, resource)):
        sim.affected["spoil"] += 1
        _Spoiler(stream, how, count)


class _Spoiler:
    """Changes the lines of a watch until its count is used up."""

    def __init__(self, stream: Any, how: str, count: int) -> None:
        self._stream, self._how, self._left = stream, how, count
        self._push = stream._push
        self._held: list[bytes] = []
        stream._push = self

    def __call__(self, line: bytes) -> None:
        if b'"BOOKMARK"' in line[:20] or b'"ERROR"' in line[:20]:
            self._push(line)
            return
        if self._held:
            self._push(line)
            self._push(self._held.pop())
        elif self._left:
            self._left -= 1
            if self._how != "drop":
                self._held.append(line)
            if self._how == "repeat":
                self._push(line)
        else:
            self._push(line)
        if not self._left and not self._held:
            self._stream._push = self._push


def restore(sim: Simulation, seconds: float) -> None:
    """Back up the storage now, and restore it after some seconds: objects and versions are as before, and all watches
    end."""
    store = sim.store
    backup = {storage: dict(shelf.entries) for storage, shelf in store._shelves.items()}
    sim.loop.call_later(seconds, _restore, sim, store.version, backup)


def _restore(sim: Simulation, version: int, backup: dict[str, dict[Any, Any]]) -> None:
    if sim.calm:
        return
    store = sim.store
    sim.affected["restore"] += 1
    sim.server.cut_watches()
    for storage, shelf in list(store._shelves.items()):
        wanted = backup.get(storage, {})
        for key, entry in list(shelf.entries.items()):
            if key not in wanted:
                _tell(sim, storage, Write(DELETED, entry, entry))
        for key, entry in wanted.items():
            have = shelf.entries.get(key)
            if have is not entry:
                _tell(sim, storage, Write(ADDED if have is None else MODIFIED, entry, have))
        shelf.changes.clear()
        shelf.floor = version
    store.version = version
    # an administrator who restores a server restarts the controllers
    for controller in sim.cluster.manager.controllers:
        for resource in controller.resources:
            for obj in store.list(resource):
                controller.observe(ADDED, resource, obj)
    ending = [each for each in store.list("namespaces") if is_deleting(each)]
    store._ending = {each["metadata"]["name"] for each in ending}


def _tell(sim: Simulation, storage: str, change: Write) -> None:
    """Apply a change to a shelf, and notify all components of this cluster."""
    sim.store.shelf(storage).record(change)
    for watcher in tuple(sim.store._watchers.get(storage, ())):
        watcher(change)


ACTS: dict[str, Callable[..., None]] = {each.__name__: each for each in (spoil, restore)}
