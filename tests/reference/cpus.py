"""The plugin numa-aware: CPUs of their own, as the kubelet's CPU and topology managers would hand them out."""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

from tests.reference.config import Arguments
from tests.reference.model import Manifest, Node, Task, annotations_of, created, meta, quantities
from tests.reference.session import PredicateFailure, Session
from tests.reference.values import CPU, MEMORY

POLICY, GIVEN = "volcano.sh/numa-topology-policy", "volcano.sh/numa-cpus"
NONE, BEST_EFFORT, RESTRICTED, SINGLE = "none", "best-effort", "restricted", "single-numa-node"
ENDED = ("Succeeded", "Failed")

Cpus = set[int]


def read(text: str) -> Cpus:
    """The CPUs of a list such as 0-3,8."""
    found: Cpus = set()
    for part in text.split(","):
        if part:
            first, _, last = part.partition("-")
            found |= set(range(int(first), int(last or first) + 1))
    return found


def written(cpus: Cpus) -> str:
    """The reverse of ``read``."""
    starts = sorted(cpu for cpu in cpus if cpu - 1 not in cpus)
    ends = sorted(cpu for cpu in cpus if cpu + 1 not in cpus)
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True))


class Machine:
    """What a node's Numatopology says: where its CPUs are, and how the kubelet hands them out."""

    def __init__(self, manifest: Manifest) -> None:
        spec = manifest.get("spec") or {}
        self.policy = (spec.get("policies") or {}).get("TopologyManagerPolicy") or NONE
        self.static = (spec.get("policies") or {}).get("CPUManagerPolicy") == "static"
        detail = {int(cpu): place for cpu, place in (spec.get("cpuDetail") or {}).items()}
        self.numa = {cpu: place["numa"] for cpu, place in detail.items()}
        self.socket = {cpu: place["socket"] for cpu, place in detail.items()}
        self.core = {cpu: (place["socket"], place["core"]) for cpu, place in detail.items()}
        self.cpus = set(detail)
        kept = quantities(spec.get("resReserved")).get(CPU, 0)
        self.reserved = self.take(self.cpus, math.ceil(kept))
        listed = read(((spec.get("numares") or {}).get(CPU) or {}).get("allocatable") or "")
        self.listed = listed - self.reserved
        self.gone = self.cpus - listed - self.reserved
        self.served = [
            (a.get("uid"), f"{a.get('namespace')}/{a.get('name')}") for a in spec.get("podAllocations") or []
        ]

    def hands_out(self) -> bool:
        """Whether the kubelet minds where containers' own CPUs are."""
        return self.static and self.policy != NONE

    def on(self, place: dict[int, Any], value: Any, among: Cpus) -> Cpus:
        return {cpu for cpu in among if place[cpu] == value}

    def numa_nodes(self, cpus: Cpus) -> int:
        return len({self.numa[cpu] for cpu in cpus})

    def take(self, free: Cpus, count: int) -> Cpus:
        """So many of the free CPUs: whole sockets, then whole cores, fullest sockets first, then single ones, by
        sockets of which most was taken, then the fullest, then the fullest cores."""
        taken: Cpus = set()

        def left() -> Cpus:
            return free - taken

        def whole(place: dict[int, Any], value: Any) -> None:
            part = self.on(place, value, self.cpus)
            if part <= left() and len(part) <= count - len(taken):
                taken.update(part)

        for socket in sorted(set(self.socket.values())):
            whole(self.socket, socket)
        room = left()
        for core in sorted(set(self.core.values()), key=lambda c: (len(self.on(self.socket, c[0], room)), c)):
            whole(self.core, core)
        rest, before = left(), set(taken)

        def near(cpu: int) -> tuple[Any, ...]:
            socket = self.socket[cpu]
            here = len(self.on(self.socket, socket, before)), len(self.on(self.socket, socket, rest))
            return (-here[0], here[1], len(self.on(self.core, self.core[cpu], rest)), self.core[cpu], cpu)

        for cpu in sorted(rest, key=near):
            if len(taken) < count:
                taken.add(cpu)
        return taken

    def best(self, free: Cpus, count: int) -> Cpus | None:
        """The free CPUs of the NUMA nodes that the topology manager takes for one container."""
        numbers = sorted(set(self.numa.values()))
        every = [
            names for size in range(1, len(numbers) + 1) for names in combinations(numbers, size)
        ]  # the fewest first, of these the lowest

        def of(names: tuple[int, ...], among: Cpus) -> Cpus:
            return {cpu for cpu in among if self.numa[cpu] in names}

        could = [len(names) for names in every if len(of(names, self.cpus)) >= count]
        fewest = min(could, default=len(numbers))
        can = [names for names in every if len(of(names, free)) >= count]
        can.sort(key=lambda names: (len(names) != fewest, len(names), sum(2**name for name in names)))
        if self.policy in (RESTRICTED, SINGLE):
            can = [names for names in can if len(names) == fewest]
        if self.policy == SINGLE:
            can = [names for names in can if len(names) == 1]
        return of(can[0], free) if can else None

    def give(self, free: Cpus, wanted: list[int]) -> Cpus | None:
        """The CPUs that a pod's containers get one after the other; None where one of them cannot be served."""
        given: Cpus = set()
        for count in wanted:
            if count:
                pool = self.best(free - given, count)
                if pool is None:
                    return None
                given |= self.take(pool, count)
        return given

    def kept_for(self, free: Cpus, cpus: Cpus) -> Cpus:
        """What stays free of others for a pod that was to get ``cpus``: these, and as many others for what is gone of
        them, on the same NUMA nodes where possible."""
        kept = cpus & free
        missing = len(cpus & self.cpus) - len(kept)
        numas = {self.numa[cpu] for cpu in cpus & self.cpus}
        for near in (True, False):
            pool = {cpu for cpu in free - kept if (self.numa[cpu] in numas) == near}
            more = self.take(pool, min(missing, len(pool)))
            kept, missing = kept | more, missing - len(more)
        return kept


def own_cpus(task: Task) -> list[int] | None:
    """How many whole CPUs each container of a Guaranteed pod has for itself; None for other pods."""
    spec = task.spec
    containers = spec.get("containers") or []

    def amounts(one: dict[str, Any]) -> tuple[Any, Any]:
        resources = one.get("resources") or {}
        limits = quantities(resources.get("limits"))
        return {**limits, **quantities(resources.get("requests"))}, limits

    whole = spec.get("resources") or {}
    stating = (
        [spec] if whole.get("requests") or whole.get("limits") else containers + (spec.get("initContainers") or [])
    )
    for one in stating:
        requests, limits = amounts(one)
        if any(not limits.get(name) or requests[name] != limits[name] for name in (CPU, MEMORY)):
            return None
    sidecars = [one for one in spec.get("initContainers") or [] if one.get("restartPolicy") == "Always"]
    return [int(asks) if (asks := amounts(one)[0][CPU]).denominator == 1 else 0 for one in sidecars + containers]


def numa_aware(session: Session, arguments: Arguments) -> None:
    """Pods with CPUs of their own go where the topology manager admits them; what is scored and handed out is what the
    test of the node found."""
    if "predicate" in session.option("numa-aware").off:
        return
    weight = arguments.integer("weight", 1)
    found = {meta(one)["name"]: Machine(one) for one in session.cluster.all("Numatopology")}
    machines = {name: machine for name, machine in found.items() if name in session.cluster.nodes}
    free = {name: set(machine.listed) for name, machine in machines.items()}
    held: dict[str, tuple[str, Cpus]] = {}

    for name, machine in machines.items():
        placed = [task for task, _ in session.cluster.nodes[name].tasks.values() if any(own_cpus(task) or [])]
        for cpus in _still_to_come(machine, [task for task in placed if task.status not in ENDED]):
            free[name] -= machine.kept_for(free[name], cpus)

    def policy_of(task: Task) -> str:
        return annotations_of(task.pod).get(POLICY) or NONE

    def pre_predicate(task: Task) -> None:
        if own_cpus(task) is not None and policy_of(task) not in (NONE, BEST_EFFORT, RESTRICTED, SINGLE):
            raise PredicateFailure("no topology manager has this policy")

    def predicate(task: Task, node: Node) -> list[str]:
        wanted, machine, policy = own_cpus(task), machines.get(node.name), policy_of(task)
        if wanted is None:
            return []
        if policy != NONE:
            if machine is None or not machine.static or machine.policy != policy:
                return ["another topology manager policy"]
            if not free[node.name]:
                return ["no CPUs left"]
        if machine is None or not machine.hands_out():
            return []
        return [] if machine.give(free[node.name], wanted) is not None else ["containers not admitted"]

    def score(task: Task, nodes: list[Node]) -> dict[str, float]:
        wanted = own_cpus(task)
        if wanted is None or policy_of(task) == NONE:
            return {}
        on = {n.name: machines[n.name] for n in nodes}
        spread = {name: machine.numa_nodes(machine.give(free[name], wanted) or set()) for name, machine in on.items()}
        most = max(spread.values())
        return {name: weight * (100 - (100 * count // most if most else 0)) for name, count in spread.items()}

    def allocate(task: Task) -> None:
        machine, wanted = machines.get(task.node), own_cpus(task)
        if machine is None or wanted is None or not machine.hands_out() or task.key in held:
            return
        if task.status in ("Allocated", "Pipelined"):
            cpus = machine.give(free[task.node], wanted) or set()
            held[task.key] = (task.node, cpus)
            free[task.node] -= cpus

    def deallocate(task: Task) -> None:
        if not task.evicted and task.key in held:  # who is evicted keeps them until the kubelet frees them
            node, cpus = held.pop(task.key)
            free[node] |= cpus

    def annotations(task: Task) -> dict[str, str]:
        return {GIVEN: written(held[task.key][1])} if task.key in held and held[task.key][1] else {}

    session.register("kind", "numa-aware", lambda task: own_cpus(task) is not None and policy_of(task))
    session.handlers.append((allocate, deallocate))
    session.register("prePredicate", "numa-aware", pre_predicate)
    session.register("predicate", "numa-aware", predicate)
    session.register("bindAnnotations", "numa-aware", annotations)
    if weight:
        session.register("nodeOrder", "numa-aware", score)


def _still_to_come(machine: Machine, pods: list[Task]) -> list[Cpus]:
    """What placed pods were to get and the kubelet was not seen to give them.

    An exporter that lists pods says who was served. One that does not is believed by number: CPUs that are missing
    serve first who runs, of them whose own are missing, then who waits for some of the missing ones.
    """

    def given(task: Task) -> Cpus:
        return read(annotations_of(task.pod).get(GIVEN) or "")

    pods = sorted(pods, key=lambda task: (created(task.pod), task.key))
    if machine.served:
        return [
            given(task)
            for task in pods
            if not any((uid and uid == task.uid) or name == task.key for uid, name in machine.served)
        ]
    left, waiting = len(machine.gone), []

    def runs(task: Task) -> bool:
        return (task.pod.get("status") or {}).get("phase") == "Running"

    for task in sorted(pods, key=lambda task: (not runs(task), bool(given(task) - machine.gone))):
        number = sum(own_cpus(task) or [])
        if number <= left and (runs(task) or given(task) & machine.gone):
            left -= number
        else:
            waiting.append(given(task))
    return waiting
