"""What the cluster does to the scheduler: nodes that go and return, others that bind pods, controllers that are late.

All of it is legal, but for what ``ILLEGAL`` names: that no API server does, unless its storage was restored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from tests.e2e.cluster import node, pod
from tests.simulation.workload import RESOURCES, refusable
from vcd.embedded.controllers.base import Controller, Key, is_deleting, key_of, with_condition
from vcd.embedded.controllers.pods import TERMINAL
from vcd.embedded.errors import StatusError
from vcd.embedded.shelf import ADDED, DELETED, MODIFIED, Write

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

Obj = dict[str, Any]
_UNHEALED = 10.0
"""Seconds for which what illegal faults did stays as it is when all else is mended."""
HOLD = "simulation.example/hold"
"""A finalizer that keeps what is deleted."""


@dataclass
class World:
    """What is going on in a simulation's cluster that ends with ``calm``."""

    sim: Simulation
    late: dict[str, float] = field(default_factory=dict)
    """Until when (simulated seconds) a controller does nothing, by its name; a kubelet's by its node."""
    denied: dict[tuple[str, str], tuple[int, float]] = field(default_factory=dict)
    """By verb and resource what a webhook answers, and until when."""
    away: dict[str, Obj] = field(default_factory=dict)
    """Nodes that will return."""
    spoiled: bool = False
    """Whether something illegal happened to what watches tell, which only a list heals."""
    undone: dict[tuple[Controller, Key], None] = field(default_factory=dict)
    """What controllers have not done that are late."""

    def __post_init__(self) -> None:
        for controller in self.sim.cluster.manager.controllers:
            self._delay(controller)
        self._guard("create", "insert")
        self._guard("update", "replace")

    def _delay(self, controller: Controller) -> None:
        """Let a controller's work wait as long as it is late; what waits is still in its queue."""
        reconcile, clock, sim = controller.reconcile, self.sim.clock, self.sim

        def later(key: Key) -> None:
            name = controller.name
            if name == "kubelet":
                name = f"kubelet/{self._node_of(key)}"
            until = self.late.get(name, 0.0)
            if until <= sim.loop.time():
                self.undone.pop((controller, key), None)
                reconcile(key)
            elif (controller, key) not in self.undone:
                self.undone[controller, key] = None
                clock.call_later(until - sim.loop.time() + 1e-3, lambda: self._wake(controller, key))

        controller.reconcile = later  # type: ignore[method-assign]

    def _wake(self, controller: Controller, key: Key) -> None:
        if (controller, key) in self.undone:
            del self.undone[controller, key]
            controller.enqueue(key)

    def calm(self) -> None:
        """Let everybody do at once what is to be done."""
        self.denied.clear()
        self.late.clear()
        for controller, key in list(self.undone):
            self._wake(controller, key)

    def _node_of(self, key: Key) -> str:
        if key[0] == "Node":
            return key[2]
        found = self.sim.store.find("pods", key[1], key[2])
        return (found or {}).get("spec", {}).get("nodeName") or ""

    def _guard(self, verb: str, method: str) -> None:
        """Let webhooks be asked before the store does something."""
        inner = getattr(self.sim.store, method)

        def asked(rtype: Any, obj: Obj, *args: Any, **options: Any) -> Any:
            code, until = self.denied.get((verb, rtype.resource)) or self.denied.get((verb, "*"), (0, 0.0))
            if until > self.sim.loop.time() and rtype.resource.partition(".")[0] != "leases":
                raise _refusal(code)
            return inner(rtype, obj, *args, **options)

        setattr(self.sim.store, method, asked)


def _refusal(code: int) -> StatusError:
    """What an API server says where a webhook denies, or where it cannot be reached and has failurePolicy Fail."""
    if code == 500:
        return StatusError(500, "InternalError", "failed calling webhook: context deadline exceeded")
    return StatusError(code, "Forbidden", "admission webhook denied the request")


_WORLDS: WeakKeyDictionary[Simulation, World] = WeakKeyDictionary()


def _world(sim: Simulation) -> World:
    found = _WORLDS.get(sim)
    if found is None:
        found = _WORLDS[sim] = World(sim)
    return found


# --- nodes ------------------------------------------------------------------------------------------------------------


def lose_node(sim: Simulation, name: str, seconds: float, cpu: int) -> None:
    """A node goes, and one of its name joins after so many seconds, with so many cores; never if that is 0."""
    found = sim.store.find("nodes", None, name)
    if found is None:
        return
    with refusable():
        sim.store.delete("nodes", None, name)
    if seconds:
        made = node(name, cpu)
        made["metadata"]["labels"] = dict(found["metadata"].get("labels") or {})
        room = {**(found["status"].get("capacity") or {}), "cpu": str(cpu)}
        made["status"].update(allocatable=room, capacity=room)
        _world(sim).away[name] = made
        sim.loop.call_later(seconds, _return, sim, name)


def _return(sim: Simulation, name: str) -> None:
    made = _world(sim).away.pop(name, None)
    if made is not None:
        with refusable():
            sim.store.create("nodes", made)


def cordon(sim: Simulation, name: str, on: bool) -> None:
    """An administrator lets nothing more onto a node, or something again."""
    with refusable():
        sim.store.patch("nodes", None, name, {"spec": {"unschedulable": on or None}})


def drain(sim: Simulation, name: str) -> None:
    """An administrator cordons a node and evicts its pods, as far as budgets let that happen."""
    cordon(sim, name, True)
    for each in sim.store.list("pods"):
        if each["spec"].get("nodeName") == name:
            with refusable():
                sim.store.evict(*key_of(each), {})


def set_ready(sim: Simulation, name: str, status: str) -> None:
    """A node's condition Ready becomes True, False, or Unknown, as where its kubelet is not heard of."""
    found = sim.store.find("nodes", None, name)
    if found is None:
        return
    conditions = (found.get("status") or {}).get("conditions") or ()
    fresh = with_condition(conditions, {"type": "Ready", "status": status}, sim.store.now)
    with refusable():
        sim.store.patch("nodes", None, name, {"status": {"conditions": fresh}}, "status")


def resize(sim: Simulation, name: str, room: dict[str, str]) -> None:
    """What a node can give changes, below what is used there, too, as where its system reserves more."""
    with refusable():
        sim.store.patch("nodes", None, name, {"status": {"allocatable": room}}, "status")


def relabel(sim: Simulation, name: str, labels: dict[str, str | None]) -> None:
    """A node's labels change."""
    with refusable():
        sim.store.patch("nodes", None, name, {"metadata": {"labels": labels}})


def taint(sim: Simulation, name: str, taints: list[Obj]) -> None:
    """A node's taints are set."""
    with refusable():
        sim.store.patch("nodes", None, name, {"spec": {"taints": taints}})


# --- controllers and webhooks -----------------------------------------------------------------------------------------


def late(sim: Simulation, name: str, seconds: float) -> None:
    """A controller does nothing for so long: a kubelet (``kubelet/NODE``), the disruption controller ..."""
    world = _world(sim)
    world.late[name] = max(world.late.get(name, 0.0), sim.loop.time() + seconds)


def retire(sim: Simulation, name: str) -> None:
    """A controller does not run on this cluster."""
    for each in sim.cluster.manager.controllers:
        if each.name == name:
            each.reconcile = lambda key: None  # type: ignore[method-assign]


def webhook(sim: Simulation, verb: str, resource: str, code: int, seconds: float) -> None:
    """A webhook denies (403) or fails (500) whatever is to be created, or updated, of a resource (``*``: of any)."""
    _world(sim).denied[verb, RESOURCES.get(resource, resource)] = (code, sim.loop.time() + seconds)


def hold(sim: Simulation, namespace: str, name: str, seconds: float) -> None:
    """Somebody's finalizer keeps a pod that is deleted, for so long."""
    with refusable():
        sim.store.patch("pods", namespace, name, {"metadata": {"finalizers": [HOLD]}})
    sim.loop.call_later(seconds, _let_go, sim, namespace, name)


def _let_go(sim: Simulation, namespace: str, name: str) -> None:
    found = sim.store.find("pods", namespace, name)
    if found is not None and HOLD in (found["metadata"].get("finalizers") or ()):
        with refusable():
            sim.store.patch("pods", namespace, name, {"metadata": {"finalizers": None}})


# --- others -----------------------------------------------------------------------------------------------------------


def bind_ours(sim: Simulation, count: int, node: int) -> None:
    """Another scheduler binds so many of our pods that wait to a node, which has room or not."""
    nodes = [each["metadata"]["name"] for each in sim.store.list("nodes")]
    waiting = [each for each in sim.store.list("pods") if _waits(each)]
    for each in waiting[:count] if nodes else ():
        with refusable():
            sim.store.bind(*key_of(each), {"target": {"name": nodes[node % len(nodes)]}})


def _waits(each: Obj) -> bool:
    return each["spec"].get("schedulerName") == "volcano" and not each["spec"].get("nodeName") and not is_deleting(each)


def bind_theirs(sim: Simulation, name: str, node: int, pods: int, cpu: int, seconds: int) -> None:
    """Others' pods are bound to a node by who schedules them, where they run for so long."""
    nodes = [each["metadata"]["name"] for each in sim.store.list("nodes")]
    for number in range(pods) if nodes else ():
        made = pod(f"{name}-{number}", "", cpu, schedulerName="default-scheduler")
        made["metadata"]["annotations"] = {"vcd.sim/run-seconds": str(seconds)}
        with refusable():
            sim.store.create("pods", made)
            sim.store.bind("default", f"{name}-{number}", {"target": {"name": nodes[node % len(nodes)]}})


def fail(sim: Simulation, count: int) -> None:
    """So many pods that run fail, as where a kubelet is short of memory."""
    running = [each for each in sim.store.list("pods") if each["status"].get("phase") == "Running"]
    for each in running[:count]:
        status = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}
        with refusable():
            sim.store.patch("pods", *key_of(each), {"status": status}, "status")


def evict(sim: Simulation, count: int) -> None:
    """Somebody else evicts so many pods that run."""
    running = [each for each in sim.store.list("pods") if each["spec"].get("nodeName") and not _is_over(each)]
    for each in running[:count]:
        with refusable():
            sim.store.evict(*key_of(each), {})


def _is_over(each: Obj) -> bool:
    return is_deleting(each) or each["status"].get("phase") in TERMINAL


# --- what must not happen ---------------------------------------------------------------------------------------------


def spoil(sim: Simulation, resource: str, how: str, count: int) -> None:
    """On the open watches of a resource the next ``count`` events are lost (``drop``), change places with the one
    behind them (``swap``), or come again behind later ones (``repeat``)."""
    _world(sim).spoiled = True
    for stream in sim.server.open_watches(RESOURCES.get(resource, resource)):
        _Spoiler(stream, how, count)


class _Spoiler:
    """Stands between a watch and its lines until its count is used up."""

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
    """The storage is restored from a backup that is made now, so many seconds later: objects and their versions are
    what they were, and all watches end."""
    _world(sim).spoiled = True
    store = sim.store
    backup = {storage: dict(shelf.entries) for storage, shelf in store._shelves.items()}
    sim.loop.call_later(seconds, _restore, sim, store.version, backup)


def _restore(sim: Simulation, version: int, backup: dict[str, dict[Any, Any]]) -> None:
    if sim.calm:
        return
    store = sim.store
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
    ending = [each for each in store.list("namespaces") if is_deleting(each)]
    store._ending = {each["metadata"]["name"] for each in ending}


def _tell(sim: Simulation, storage: str, change: Write) -> None:
    """Let a shelf have a change, and let all know of it that live in this cluster."""
    sim.store.shelf(storage).record(change)
    for watcher in tuple(sim.store._watchers.get(storage, ())):
        watcher(change)


# --- the end ----------------------------------------------------------------------------------------------------------


def calm(sim: Simulation) -> None:
    """All that was kept back comes, and nobody denies anything."""
    world = _world(sim)
    world.calm()
    for name in sorted(world.away):
        _return(sim, name)
    for each in sim.store.list("pods"):
        _let_go(sim, *key_of(each))
    if world.spoiled:
        sim.loop.call_later(_UNHEALED, _compare, sim)


def _compare(sim: Simulation) -> None:
    """The half hour is over after which replicas compare what they know with a list; it would cost too much to wait."""
    for replica in sim.replicas:
        if (service := replica.service) is not None:
            for watcher in service.watches._watchers.values():
                watcher._relist_at = 0.0
    sim.server.cut_watches()


ACTS: dict[str, Callable[..., None]] = {
    each.__name__: each
    for each in (
        lose_node, cordon, drain, set_ready, resize, relabel, taint, late, retire, webhook, hold, bind_ours,
        bind_theirs, fail, evict, spoil, restore,
    )
}  # fmt: skip
ILLEGAL = frozenset({"spoil", "restore"})
"""What no API server does: it is to be found and healed, and nothing unsafe done meanwhile."""
