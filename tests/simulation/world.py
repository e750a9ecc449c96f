"""Acts of the cluster: others bind and evict pods, controllers are late, webhooks deny."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from tests.e2e.cluster import pod
from tests.simulation.workload import RESOURCES, pods_of, refusable
from vcd.embedded.controllers.controller_base import Controller, Key, is_deleting, key_of, with_condition
from vcd.embedded.controllers.pod_properties import TERMINAL
from vcd.embedded.status_errors import StatusError

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

Obj = dict[str, Any]
HOLD = "simulation.example/hold"
"""A finalizer that delays deletion."""


@dataclass
class World:
    """The temporary conditions of a simulation's cluster, which end with ``calm``."""

    sim: Simulation
    late: dict[str, float] = field(default_factory=dict)
    """For each controller, and each node's kubelet, the time (simulated seconds) until which it does nothing."""
    denied: dict[tuple[str, str], tuple[int, float]] = field(default_factory=dict)
    """By verb and resource: a webhook's answer, and its end."""
    unbindable: dict[tuple[str, str], float] = field(default_factory=dict)
    """By namespace and name of a pod: the time until which a webhook denies its binding."""
    away: dict[str, Obj] = field(default_factory=dict)
    """Nodes that will return."""
    undone: dict[tuple[Controller, Key], None] = field(default_factory=dict)
    """The delayed work of late controllers."""

    def __post_init__(self) -> None:
        for controller in self.sim.cluster.manager.controllers:
            self._delay(controller)
        self._guard("create", "insert")
        self._guard("update", "replace")
        self._guard_binds()

    def _delay(self, controller: Controller) -> None:
        """Delay a controller's work while it is late; the work remains in its queue."""
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
                sim.affected["late"] += 1
                clock.call_later(until - sim.loop.time() + 1e-3, lambda: self._wake(controller, key))

        controller.reconcile = later  # type: ignore[method-assign]

    def _wake(self, controller: Controller, key: Key) -> None:
        if (controller, key) in self.undone:
            del self.undone[controller, key]
            controller.enqueue(key)

    def calm(self) -> None:
        """Do all delayed work at once, and let all removed nodes return."""
        self.denied.clear()
        self.unbindable.clear()
        self.late.clear()
        for controller, key in list(self.undone):
            self._wake(controller, key)
        for name in sorted(self.away):
            self.give_back(name)

    def give_back(self, name: str) -> None:
        """Let a removed node join."""
        made = self.away.pop(name, None)
        if made is not None:
            with refusable():
                self.sim.store.create("nodes", made)

    def _node_of(self, key: Key) -> str:
        if key[0] == "Node":
            return key[2]
        found = self.sim.store.find("pods", key[1], key[2])
        return (found or {}).get("spec", {}).get("nodeName") or ""

    def _guard(self, verb: str, method: str) -> None:
        """Call webhooks before the store does something."""
        inner = getattr(self.sim.store, method)

        def asked(rtype: Any, obj: Obj, *args: Any, **options: Any) -> Any:
            code, until = self.denied.get((verb, rtype.resource)) or self.denied.get((verb, "*"), (0, 0.0))
            if until > self.sim.loop.time() and rtype.resource.partition(".")[0] != "leases":
                self.sim.affected["webhook"] += 1
                raise _refusal(code)
            return inner(rtype, obj, *args, **options)

        setattr(self.sim.store, method, asked)

    def _guard_binds(self) -> None:
        bind = self.sim.store.bind

        def asked(namespace: str, name: str, binding: Obj) -> None:
            if self.unbindable.get((namespace, name), 0.0) > self.sim.loop.time():
                self.sim.affected["refuse_binds"] += 1
                raise _refusal(403)
            bind(namespace, name, binding)

        self.sim.store.bind = asked  # type: ignore[method-assign]


def _refusal(code: int) -> StatusError:
    """Return the API server's error if a webhook denies, or is unreachable with failurePolicy Fail."""
    if code == 500:
        return StatusError(500, "InternalError", "failed calling webhook: context deadline exceeded")
    return StatusError(code, "Forbidden", "admission webhook denied the request")


_WORLDS: WeakKeyDictionary[Simulation, World] = WeakKeyDictionary()


def world_of(sim: Simulation) -> World:
    """Return the conditions of a simulation."""
    found = _WORLDS.get(sim)
    if found is None:
        found = _WORLDS[sim] = World(sim)
    return found


# --- controllers and webhooks -----------------------------------------------------------------------------------------


def late(sim: Simulation, name: str, seconds: float) -> None:
    """Stop a controller for some seconds: a kubelet (``kubelet/NODE``), the disruption controller ..."""
    world = world_of(sim)
    world.late[name] = max(world.late.get(name, 0.0), sim.loop.time() + seconds)


def retire(sim: Simulation, name: str) -> None:
    """Remove a controller from this cluster."""
    for each in sim.cluster.manager.controllers:
        if each.name == name:
            sim.affected["retire"] += 1
            each.reconcile = lambda key: None  # type: ignore[method-assign]


def webhook(sim: Simulation, verb: str, resource: str, code: int, seconds: float) -> None:
    """A webhook denies (403), or fails (500), every creation or update of a resource (``*``: of any)."""
    world_of(sim).denied[verb, RESOURCES.get(resource, resource)] = (code, sim.loop.time() + seconds)


def refuse_binds(sim: Simulation, namespace: str, name: str, seconds: float) -> None:
    """A webhook denies the binding of a pod for some seconds."""
    world_of(sim).unbindable[namespace, name] = sim.loop.time() + seconds


def hold(sim: Simulation, namespace: str, name: str, seconds: float) -> None:
    """A finalizer delays the deletion of a pod for some seconds."""
    with refusable():
        sim.store.patch("pods", namespace, name, {"metadata": {"finalizers": [HOLD]}})
    sim.loop.call_later(seconds, _let_go, sim, namespace, name)


def _let_go(sim: Simulation, namespace: str, name: str) -> None:
    found = sim.store.find("pods", namespace, name)
    if found is not None and HOLD in (found["metadata"].get("finalizers") or ()):
        with refusable():
            sim.store.patch("pods", namespace, name, {"metadata": {"finalizers": None}})


def write_condition(sim: Simulation, what: str, gang: str, condition: Obj) -> None:
    """Another controller writes a condition of a group ("group") or of each of its pods ("pod")."""
    resource = RESOURCES[what]
    named = [each for each in sim.store.list(resource) if each["metadata"]["name"] == gang]
    for each in named if what == "group" else pods_of(sim, gang):
        status = each.get("status") or {}
        conditions = with_condition(status.get("conditions") or (), condition, sim.store.now)
        with refusable():
            part = ("status",) if what == "pod" else ()  # a PodGroup has no such subresource
            sim.store.patch(resource, *key_of(each), {"status": {"conditions": conditions}}, *part)


# --- others -----------------------------------------------------------------------------------------------------------


def bind_ours(sim: Simulation, count: int, node: int) -> None:
    """Another scheduler binds some of vcd's pending pods to a node, whether they fit or not."""
    nodes = [each["metadata"]["name"] for each in sim.store.list("nodes")]
    waiting = [each for each in sim.store.list("pods") if _waits(each)]
    for each in waiting[:count] if nodes else ():
        with refusable():
            sim.store.bind(*key_of(each), {"target": {"name": nodes[node % len(nodes)]}})


def _waits(each: Obj) -> bool:
    return each["spec"].get("schedulerName") == "volcano" and not each["spec"].get("nodeName") and not is_deleting(each)


def bind_theirs(sim: Simulation, name: str, node: int, pods: int, cpu: int, seconds: int) -> None:
    """Another scheduler binds its own pods to a node, where they run for some seconds."""
    nodes = [each["metadata"]["name"] for each in sim.store.list("nodes")]
    for number in range(pods) if nodes else ():
        made = pod(f"{name}-{number}", "", cpu, schedulerName="default-scheduler")
        made["metadata"]["annotations"] = {"vcd.sim/run-seconds": str(seconds)}
        with refusable():
            sim.store.create("pods", made)
            sim.store.bind("default", f"{name}-{number}", {"target": {"name": nodes[node % len(nodes)]}})


def fail(sim: Simulation, count: int) -> None:
    """Some running pods fail, as if a kubelet lacked memory."""
    running = [each for each in sim.store.list("pods") if each["status"].get("phase") == "Running"]
    for each in running[:count]:
        status = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}
        with refusable():
            sim.store.patch("pods", *key_of(each), {"status": status}, "status")


def go_back(sim: Simulation, count: int, how: str, seconds: float) -> None:
    """Kubelets report an older status of some running pods: pending, or not ready for some seconds; or they write the
    current status again after some seconds ("older")."""
    running = [each for each in sim.store.list("pods") if each["spec"].get("nodeName") and not _is_over(each)]
    for each in running[:count]:
        conditions = each["status"].get("conditions") or ()
        if how == "pending":
            _write(sim, each, {"phase": "Pending"})
        elif how == "unready":
            unready = with_condition(conditions, {"type": "Ready", "status": "False"}, sim.store.now)
            _write(sim, each, {"conditions": unready})
        if how != "pending":
            sim.loop.call_later(seconds, _write, sim, each, dict(each["status"]))


def _write(sim: Simulation, pod: Obj, status: Obj) -> None:
    """Write a pod's status, unless the pod has ended or is another one."""
    found = sim.store.find("pods", *key_of(pod))
    if found is not None and found["metadata"]["uid"] == pod["metadata"]["uid"] and not _is_over(found):
        with refusable():
            sim.store.patch("pods", *key_of(pod), {"status": status}, "status")
            sim.affected["go_back"] += 1


def evict(sim: Simulation, count: int) -> None:
    """A third party evicts some running pods."""
    running = [each for each in sim.store.list("pods") if each["spec"].get("nodeName") and not _is_over(each)]
    for each in running[:count]:
        with refusable():
            sim.store.evict(*key_of(each), {})


def _is_over(each: Obj) -> bool:
    return is_deleting(each) or each["status"].get("phase") in TERMINAL


# --- the end ----------------------------------------------------------------------------------------------------------


def calm(sim: Simulation) -> None:
    """Deliver all delayed work, and end all denials."""
    world_of(sim).calm()
    for each in sim.store.list("pods"):
        _let_go(sim, *key_of(each))


ACTS: dict[str, Callable[..., None]] = {
    each.__name__: each
    for each in (
        late, retire, webhook, refuse_binds, hold, write_condition, bind_ours, bind_theirs, fail, go_back, evict,
    )
}  # fmt: skip
