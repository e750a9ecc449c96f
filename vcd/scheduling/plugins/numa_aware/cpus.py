"""Choice of exclusive CPUs on NUMA nodes. Sets of CPUs and of NUMA nodes are integers, one bit each.

The results equal those of the kubelet's CPU manager (policy static) and topology manager.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import msgspec

from vcd.model.objects import CpuPlace, Numatopology, PodSpec
from vcd.model.qos import is_guaranteed
from vcd.model.quantity import QuantityError, parse_milli
from vcd.model.reasons import Cause, Reason, ReasonCode

NONE = "none"
BEST_EFFORT = "best-effort"
RESTRICTED = "restricted"
SINGLE = "single-numa-node"
POLICIES = (NONE, BEST_EFFORT, RESTRICTED, SINGLE)
CPU_MANAGER = "CPUManagerPolicy"
TOPOLOGY_MANAGER = "TopologyManagerPolicy"
STATIC = "static"
_OTHER_MANAGER = ReasonCode(
    "numa-cpu-manager", Cause.DEVICE, f"node(s) had a {CPU_MANAGER} other than {STATIC}", nodes_help=True
)()
_UNREADABLE = ReasonCode(
    "numa-unreadable",
    Cause.DEVICE,
    "node(s) had a Numatopology that cannot be read; restart their resource exporter",
    nodes_help=True,
)()
_MOST_CPUS = 4096
_MOST_NUMA_NODES = 8
"""The kubelet's own limit; more NUMA nodes have too many combinations."""


class TopologyError(ValueError):
    """An unreadable Numatopology; the message names the field."""


# --- sets ---------------------------------------------------------------------------------------------------------


def read_cpus(text: str) -> int:
    """Parse a list such as ``0-3,8`` into a set. Raises TopologyError."""
    result = 0
    for part in filter(None, (part.strip() for part in text.split(","))):
        first, dash, last = part.partition("-")
        low, high = _number(first), _number(last if dash else first)
        if low is None or high is None or high < low:
            raise TopologyError(f"{text!r} is not a list of CPUs such as 0-3,8")
        result |= (1 << high + 1) - (1 << low)
    return result


def _number(text: str) -> int | None:
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 and int(text) < _MOST_CPUS else None


def write_cpus(cpus: int) -> str:
    """Format a set as a list with ranges."""
    parts, numbers = [], list(bits(cpus))
    while numbers:
        length = 1
        while length < len(numbers) and numbers[length] == numbers[0] + length:
            length += 1
        parts.append(str(numbers[0]) if length == 1 else f"{numbers[0]}-{numbers[length - 1]}")
        numbers = numbers[length:]
    return ",".join(parts)


def bits(mask: int) -> Iterator[int]:
    """Yield the members of a set, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def _union(sets: Iterable[int]) -> int:
    result = 0
    for each in sets:
        result |= each
    return result


# --- nodes --------------------------------------------------------------------------------------------------------


class Layout:
    """The CPUs of a node's NUMA nodes, sockets and cores."""

    def __init__(self, detail: Mapping[str, CpuPlace]) -> None:
        self.numa: dict[int, int] = {}
        self.sockets: dict[int, int] = {}
        self.cores: dict[tuple[int, int], int] = {}
        self.cpus = 0
        for text, place in sorted(detail.items()):
            cpu = _number(text)
            if cpu is None or min(place.numa, place.socket, place.core) < 0 or place.numa >= 64:
                raise TopologyError(f"spec.cpuDetail: {text!r} is not a CPU with NUMA node, socket and core")
            bit = 1 << cpu
            self.cpus |= bit
            self.numa[place.numa] = self.numa.get(place.numa, 0) | bit
            self.sockets[place.socket] = self.sockets.get(place.socket, 0) | bit
            core = (place.socket, place.core)
            self.cores[core] = self.cores.get(core, 0) | bit
        if len(self.numa) > _MOST_NUMA_NODES:
            raise TopologyError(f"spec.cpuDetail: more than {_MOST_NUMA_NODES} NUMA nodes")
        nodes = sorted(self.numa)
        self.masks = sorted(
            (
                (_union(1 << node for node in chosen), _union(self.numa[node] for node in chosen))
                for size in range(1, len(nodes) + 1)
                for chosen in combinations(nodes, size)
            ),
            key=lambda mask: (mask[0].bit_count(), mask[0]),
        )
        """Every set of NUMA nodes with its CPUs, smallest sets first, then the lowest."""
        self._fewest: dict[int, int] = {}

    def fewest(self, count: int) -> int:
        """Return the fewest NUMA nodes that have ``count`` CPUs if all are free, or all nodes if these are too few."""
        if count not in self._fewest:
            enough = (nodes.bit_count() for nodes, cpus in self.masks if cpus.bit_count() >= count)
            self._fewest[count] = next(enough, len(self.numa))
        return self._fewest[count]

    def numa_nodes_of(self, cpus: int) -> int:
        """Return the number of NUMA nodes that the CPUs belong to."""
        return sum(bool(cpus & own) for own in self.numa.values())

    def take(self, free: int, count: int) -> int | None:
        """Return ``count`` of the ``free`` CPUs: whole sockets first, then whole cores, then single CPUs near them."""
        if free.bit_count() < count:
            return None
        taken = self._take_whole([self.sockets[socket] for socket in sorted(self.sockets)], free, count)
        left = free & ~taken
        taken |= self._take_whole(self._cores_in_order(left), left, count - taken.bit_count())
        for cpu in self._single_ones(free & ~taken, taken):
            if taken.bit_count() >= count:
                break
            taken |= 1 << cpu
        return taken

    @staticmethod
    def _take_whole(parts: Iterable[int], free: int, count: int) -> int:
        """Return the parts that are entirely free, while as many CPUs are still needed."""
        taken = 0
        for cpus in parts:
            if cpus & free == cpus and cpus.bit_count() <= count - taken.bit_count():
                taken |= cpus
        return taken

    def _cores_in_order(self, free: int) -> list[int]:
        """Return the CPUs of cores, of sockets with the fewest free CPUs first."""
        order = sorted(self.sockets, key=lambda socket: ((self.sockets[socket] & free).bit_count(), socket))
        return [self.cores[core] for socket in order for core in sorted(self.cores) if core[0] == socket]

    def _single_ones(self, free: int, taken: int) -> list[int]:
        """Return CPUs of sockets with the most taken CPUs, then with the fewest free ones, then of such cores."""

        def key(core: tuple[int, int]) -> tuple[int, ...]:
            socket = self.sockets[core[0]]
            near, left = (socket & taken).bit_count(), (socket & free).bit_count()
            return (-near, left, (self.cores[core] & free).bit_count(), *core)

        return [cpu for core in sorted(self.cores, key=key) for cpu in bits(self.cores[core] & free)]


class NodeTopology(msgspec.Struct, frozen=True, eq=False):
    """A node's topology.

    ``free`` are CPUs that neither a pod has exclusively nor the kubelet reserves, ``taken`` those that pods have.
    """

    layout: Layout
    topology_policy: str
    free: int
    taken: int
    assigned: frozenset[str] = msgspec.field(default_factory=frozenset)
    """Keys and UIDs of the pods with CPUs from the kubelet, if the exporter lists them."""

    @classmethod
    def of(cls, obj: Numatopology, layouts: dict[tuple[tuple[str, CpuPlace], ...], Layout]) -> NodeTopology | Reason:
        """Parse an object, or return why it is unusable. Equal layouts are shared through ``layouts``."""
        spec = obj.spec
        if spec.policies.get(CPU_MANAGER) != STATIC:
            return _OTHER_MANAGER
        try:
            key = tuple(sorted(spec.cpu_detail.items()))
            layout = layouts.get(key)
            if layout is None:
                layout = layouts[key] = Layout(spec.cpu_detail)
            listed = spec.numares.get("cpu")
            free = read_cpus(listed.allocatable) & layout.cpus if listed is not None else 0
            reserved = -(-parse_milli(spec.res_reserved.get("cpu", "0")) // 1000)
            reserved_cpus = layout.take(layout.cpus, min(reserved, layout.cpus.bit_count())) or 0
        except (TopologyError, QuantityError):
            return _UNREADABLE
        pods = [(pod.uid, f"{pod.namespace}/{pod.name}") for pod in spec.pod_allocations]
        assigned = frozenset(text for pair in pods for text in pair if text)
        policy = spec.policies.get(TOPOLOGY_MANAGER, NONE)
        return cls(
            layout,
            policy if policy in POLICIES else NONE,
            free & ~reserved_cpus,
            layout.cpus & ~free & ~reserved_cpus,
            assigned,
        )


class Placed(NamedTuple):
    """A placed pod with exclusive CPUs.

    Its key and UID, whether it runs, the number of its CPUs, and the CPUs assigned by its bind (0 if not recorded).
    """

    names: tuple[str, str]
    runs: bool
    number: int
    cpus: int


def unlisted_cpus(topology: NodeTopology, pods: Sequence[Placed]) -> list[int]:
    """Return the CPUs assigned to pods of a node that the Numatopology does not list as theirs yet, one set per pod.

    If it lists pods, these are the CPUs of the other pods. If it does not, CPUs missing from the free ones are
    attributed to running pods, and to other pods that were assigned some of these CPUs, as long as their number
    suffices. Missing CPUs that no assignment explains may belong to a deleted pod, so they are attributed to running
    pods only.
    """
    if topology.assigned:
        return [pod.cpus for pod in pods if topology.assigned.isdisjoint(pod.names)]
    left = topology.taken.bit_count()
    waiting = []
    for pod in sorted(pods, key=lambda pod: (not pod.runs, pod.cpus & ~topology.taken != 0)):
        if pod.number <= left and (pod.runs or pod.cpus & topology.taken):
            left -= pod.number
        else:
            waiting.append(pod.cpus)
    return waiting


# --- choosing -----------------------------------------------------------------------------------------------------


class Hint(NamedTuple):
    """A sufficient set of NUMA nodes, and whether no smaller set would suffice if all CPUs were free (preferred)."""

    nodes: int
    cpus: int
    preferred: bool


def hints(layout: Layout, free: int, count: int) -> Iterator[Hint]:
    """Yield the sets of NUMA nodes with enough free CPUs, smaller ones first, so that preferred sets come first."""
    least = layout.fewest(count)
    for nodes, cpus in layout.masks:
        if (cpus & free).bit_count() >= count:
            yield Hint(nodes, cpus, nodes.bit_count() == least)


def best_hint(policy: str, found: Iterator[Hint]) -> Hint | None:
    """Return the hint that a policy accepts, which is the first or none (None: not admitted)."""
    hint = next(found, None)
    if hint is None or policy == BEST_EFFORT:
        return hint
    return hint if hint.preferred and (policy == RESTRICTED or hint.nodes.bit_count() == 1) else None


def assign(layout: Layout, free: int, policy: str, counts: Sequence[int]) -> int | None:
    """Return the free CPUs assigned to containers, one container after the other; None if one cannot be served.

    ``counts`` are the exclusive CPUs of each container, 0 for containers that share the other CPUs.
    """
    result = 0
    for count in counts:
        if not count:
            continue
        left = free & ~result
        if policy == NONE:
            taken = layout.take(left, count)
        else:
            hint = best_hint(policy, hints(layout, left, count))
            taken = None if hint is None else layout.take(left & hint.cpus, count)
        if taken is None:
            return None
        result |= taken
    return result


def cpus_to_reserve(layout: Layout, free: int, cpus: int) -> int:
    """Return the free CPUs to reserve for a pod that was assigned ``cpus`` and does not have them yet.

    CPUs that other pods got are replaced by as many others, on the same NUMA nodes if possible.
    """
    reserved_cpus = cpus & free
    missing = (cpus & layout.cpus).bit_count() - reserved_cpus.bit_count()
    near = _union(own for own in layout.numa.values() if own & cpus)
    for pool in (free & near & ~reserved_cpus, free & ~near & ~reserved_cpus):
        part = layout.take(pool, min(missing, pool.bit_count())) or 0
        reserved_cpus |= part
        missing -= part.bit_count()
    return reserved_cpus


# --- pods ---------------------------------------------------------------------------------------------------------


def exclusive_cpus(spec: PodSpec) -> tuple[int, ...]:
    """Return the exclusive CPUs of each container of a Guaranteed pod, sidecars first, as the kubelet admits them.

    Empty for other pods. Other init containers pass their CPUs on to later containers.
    """
    sidecars = [each for each in spec.init_containers if each.restart_policy == "Always"]
    try:
        if not is_guaranteed(spec):
            return ()
        counts = []
        for container in (*sidecars, *spec.containers):
            resources = container.resources
            milli = parse_milli(resources.requests.get("cpu", resources.limits.get("cpu", 0)))
            counts.append(0 if milli % 1000 else milli // 1000)
    except QuantityError:
        return ()
    return tuple(counts)
