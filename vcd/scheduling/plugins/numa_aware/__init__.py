"""numa-aware: place pods with exclusive CPUs only on nodes whose topology manager admits them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, ClassVar

import msgspec
import numpy as np

from vcd.model.objects import Numatopology
from vcd.model.reasons import MEND_NAMED, Cause, Reason, ReasonCode
from vcd.model.status import TaskStatus
from vcd.scheduling.framework.arguments import Argument
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.plugins.numa_aware.cpus import (
    NONE,
    POLICIES,
    NodeTopology,
    Placed,
    TopologyError,
    assign,
    cpus_to_reserve,
    exclusive_cpus,
    read_cpus,
    unlisted_cpus,
    write_cpus,
)
from vcd.scheduling.search.parts import Mask, Predicate, Reads, Score, Scores
from vcd.scheduling.search.predicates.node_predicates import at_rows
from vcd.scheduling.session.nodes import Ints, Usage
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task

POLICY = "volcano.sh/numa-topology-policy"
CPUS = "volcano.sh/numa-cpus"
_NO_OBJECT = ReasonCode("numa-unknown", Cause.DEVICE, "node(s) had no Numatopology", nodes_help=True)()
_OTHER_POLICY = ReasonCode(
    "numa-policy",
    Cause.DEVICE,
    f"node(s) had another topology manager policy than the pod's annotation {POLICY} asks for",
    nodes_help=True,
)()
_NO_CPUS = ReasonCode("numa-cpus", Cause.DEVICE, "node(s) had no CPUs left for exclusive use", nodes_help=True)()
_NOT_ADMITTED = ReasonCode(
    "numa-not-admitted",
    Cause.DEVICE,
    "node(s) could not give each container its CPUs as the topology manager policy wants",
    nodes_help=True,
)()
_NO_POLICY = ReasonCode(
    "numa-policy-unknown",
    Cause.INVALID,
    f"annotation {POLICY} is {{value}}; it must be one of {', '.join(POLICIES)}",
    mend=MEND_NAMED,
)
_FRESH = (TaskStatus.ALLOCATED, TaskStatus.PIPELINED)


class _CpuRequest(msgspec.Struct, frozen=True):
    """The topology manager policy that a pod requires (none: any), and the exclusive CPUs of its containers."""

    policy: str
    counts: tuple[int, ...]


class _Fitting:
    """Where one request fits, over all nodes: the number of NUMA nodes that it would use, or why it does not fit."""

    def __init__(self, nodes: int) -> None:
        self.passed: Mask = np.zeros(nodes, np.bool_)
        self.spread: Ints = np.zeros(nodes, np.int64)
        self.why: dict[int, Reason] = {}
        self.position = -1


class NumaAdmission(Predicate):
    """Accepts nodes whose topology manager admits a pod."""

    name: ClassVar[str] = "numa-aware"
    reason: ClassVar[Reason] = _NOT_ADMITTED
    reads = Reads.PODS
    keys = (POLICY,)

    def __init__(self, plugin: NumaAwarePlugin) -> None:
        self._plugin = plugin

    def applies(self, task: Task) -> bool:
        request = self._plugin.request_of(task)
        return request is not None and request.policy in POLICIES

    def mask(self, task: Task, usage: Usage) -> Mask:
        return at_rows(self._plugin.fitting_of(task).passed, usage)

    def unresolvable_nodes(self, task: Task, usage: Usage, failed: Mask) -> Mask:
        return failed

    def reasons(self, task: Task, usage: Usage, failed: Mask) -> Mapping[Reason, int]:
        rows = np.arange(len(failed)) if usage.rows is None else usage.rows
        why = self._plugin.fitting_of(task).why
        return Counter(why.get(row, self.reason) for row in rows[failed].tolist())


class NumaSpread(Score):
    """100 - 100 x NUMA nodes / the most NUMA nodes on any feasible node, rounded to integers."""

    name: ClassVar[str] = "numa-aware"
    reads = Reads.PODS
    keys = (POLICY,)

    def __init__(self, plugin: NumaAwarePlugin, weight: int) -> None:
        super().__init__(weight)
        self._plugin = plugin

    def applies(self, task: Task) -> bool:
        request = self._plugin.request_of(task)
        return request is not None and request.policy != NONE

    def raw(self, task: Task, usage: Usage) -> Scores:
        return at_rows(self._plugin.fitting_of(task).spread, usage).astype(np.float64)

    def normalise(self, raw: Scores, feasible: Mask) -> Scores:
        most = float(raw[feasible].max()) if feasible.any() else 0.0
        if not most:
            return np.full_like(raw, 100.0)
        return 100.0 - np.floor_divide(100.0 * raw, most)


class NumaAwarePlugin(Plugin):
    """Place pods with exclusive CPUs only on nodes whose kubelet's topology manager would admit them.

    The plugin handles Guaranteed pods. A pod with the annotation ``volcano.sh/numa-topology-policy`` (best-effort,
    restricted, single-numa-node) needs a node with a Numatopology, CPU manager policy static, the same topology manager
    policy and free CPUs. Each container and sidecar must be admitted, and without the annotation, too, if the node has
    such a policy. best-effort accepts any set of NUMA nodes with enough free CPUs. restricted accepts only a set as
    small as if all CPUs were free. single-numa-node accepts one NUMA node. The smallest set is chosen, of several the
    lowest. Within it, whole sockets are assigned before whole cores, and those before single CPUs, without CPUs that
    the kubelet reserves. Evictions are not tried for CPUs, because the kubelet frees them later.

    Score of a pod with a policy: weight x (100 - 100 x numaNodes / the most numaNodes on any feasible node).

    The bind writes the CPUs to the pod (``volcano.sh/numa-cpus``). They remain reserved for it until the Numatopology's
    podAllocations name the pod. If the exporter lists no pods, they remain reserved until as many CPUs are missing from
    the free ones. If the kubelet assigned some of them to other pods, the same number of other CPUs is reserved. CPUs
    are the only resource with hints, so merging hints means taking the best one. With ``enablePredicate: false`` the
    plugin does nothing, because its score and assignment use results of the filter. Source: Volcano
    ``plugins/numaaware``, design/numa-aware.md.
    """

    name = "numa-aware"
    kinds = ("Numatopology",)
    keys = (POLICY, CPUS)
    arguments = (Argument("weight", "int", 1, "Weight of the plugin's score relative to the scores of other plugins."),)

    def open(self, session: Session) -> None:
        """Read the topologies, and reserve CPUs of pods that the kubelets do not list yet."""
        self._session = session
        self._counts_of = cache(lambda shape: exclusive_cpus(shape.spec))
        self._requests: dict[int, _CpuRequest | None] = {}
        self._assign = cache(assign)  # cached: computed once for all equivalent nodes
        self._fittings: dict[_CpuRequest, _Fitting] = {}
        self._held: dict[int, tuple[int, int]] = {}
        self._log: list[int] = []
        self._topologies = self._read_topologies(session)
        self._on = self.flags.get("enablePredicate", True)
        self._active = [
            self._on and isinstance(topology, NodeTopology) and topology.topology_policy != NONE
            for topology in self._topologies
        ]
        self._free = [topology.free if isinstance(topology, NodeTopology) else 0 for topology in self._topologies]
        self._reserve_unlisted(session)

    def _read_topologies(self, session: Session) -> list[NodeTopology | Reason]:
        """Return each node's topology, or why it has none; an object is parsed again only after it changed."""
        objects = session.snapshot.others.get("Numatopology", {})
        facts = session.nodes.facts
        read: dict[str, tuple[Numatopology, NodeTopology | Reason]] = facts.cached("numa topologies", dict)
        layouts: dict[Any, Any] = facts.cached("numa layouts", dict)
        found: list[NodeTopology | Reason] = []
        for name in facts.names:
            obj = objects.get(name)
            if not isinstance(obj, Numatopology):
                found.append(_NO_OBJECT)
                continue
            known = read.get(name)
            if known is None or known[0] is not obj:
                known = read[name] = (obj, NodeTopology.of(obj, layouts))
            found.append(known[1])
        return found

    def _reserve_unlisted(self, session: Session) -> None:
        """Remove from the free CPUs what placed pods will get and their Numatopology does not list yet."""
        if not any(self._active):
            return
        tasks = session.snapshot.tasks
        exclusive = session.shape_flags(lambda shape: any(self._counts_of(shape)))
        placed = tasks.placed & exclusive[tasks.shape]
        rows = np.flatnonzero(placed).tolist()
        by_node: dict[int, list[Placed]] = {}
        for row in sorted(rows, key=lambda row: (int(tasks.created[row]), tasks.keys[row] or "")):
            node = int(tasks.node[row])
            if isinstance(self._topologies[node], NodeTopology):
                by_node.setdefault(node, []).append(self._placed(session, row))
        for node, pods in by_node.items():
            topology = self._topologies[node]
            assert isinstance(topology, NodeTopology)
            for cpus in unlisted_cpus(topology, pods):
                self._free[node] &= ~cpus_to_reserve(topology.layout, self._free[node], cpus)

    def _placed(self, session: Session, row: int) -> Placed:
        snapshot = session.snapshot
        key, pod = snapshot.tasks.keys[row] or "", snapshot.tasks.pods[row]
        shape = snapshot.shapes[int(snapshot.tasks.shape[row])]
        assert pod is not None and shape is not None
        text = snapshot.annotations.get(key, {}).get(CPUS, pod.metadata.annotations.get(CPUS))
        try:
            cpus = read_cpus(text or "")
        except TopologyError:
            cpus = 0
        runs = pod.status.phase == "Running"
        return Placed((key, pod.metadata.uid), runs, sum(self._counts_of(shape)), cpus)

    # --- requests -----------------------------------------------------------------------------------------------------

    def request_of(self, task: Task) -> _CpuRequest | None:
        """Return a task's request of CPUs; None if NUMA topology does not matter to it on any node."""
        counts = self._counts_of(task.shape)
        if not counts:
            return None
        found = self._requests.get(task.row)
        if found is None and task.row not in self._requests:
            policy = task.pod.metadata.annotations.get(POLICY) or NONE
            matters = policy != NONE or (any(counts) and any(self._active))
            found = self._requests[task.row] = _CpuRequest(policy, counts) if matters else None
        return found

    def policy_of(self, task: Task) -> str:
        """Return the task's policy, the only part of its request that is not in its shape."""
        request = self.request_of(task)
        return NONE if request is None else request.policy

    def fitting_of(self, task: Task) -> _Fitting:
        """Return where the task's request fits now."""
        request = self.request_of(task)
        assert request is not None
        fitting = self._fittings.get(request)
        if fitting is None:
            fitting = self._fittings[request] = _Fitting(len(self._topologies))
        start, fitting.position = fitting.position, len(self._log)
        rows: Iterable[int] = range(len(self._topologies)) if start < 0 else sorted(set(self._log[start:]))
        for row in rows:
            self._refresh(fitting, request, row)
        return fitting

    def _refresh(self, fitting: _Fitting, request: _CpuRequest, row: int) -> None:
        """Recompute whether and how a request fits one node."""
        why = self._refusal(request, row)
        cpus = 0
        topology = self._topologies[row]
        if why is None and self._active[row] and isinstance(topology, NodeTopology):
            found = self._assign(topology.layout, self._free[row], topology.topology_policy, request.counts)
            if found is None:
                why = _NOT_ADMITTED
            else:
                cpus = topology.layout.numa_nodes_of(found)
        fitting.passed[row] = why is None
        fitting.spread[row] = cpus
        if why is not None:
            fitting.why[row] = why

    def _refusal(self, request: _CpuRequest, row: int) -> Reason | None:
        """Return why a node does not meet the policy that a pod requires."""
        if request.policy == NONE:
            return None
        topology = self._topologies[row]
        if isinstance(topology, Reason):
            return topology
        if topology.topology_policy != request.policy:
            return _OTHER_POLICY
        return None if self._free[row] else _NO_CPUS

    # --- points -------------------------------------------------------------------------------------------------------

    def pre_predicate(self, task: Task) -> Reason | None:
        """Return a reason if the pod's policy does not exist."""
        request = self.request_of(task)
        if request is None or request.policy in POLICIES:
            return None
        return _NO_POLICY({"value": repr(request.policy)})

    def predicates(self) -> Iterable[Predicate]:
        """Return the filter of policies and CPUs."""
        yield NumaAdmission(self)

    def batch_node_order(self) -> Iterable[Score]:
        """Return the score, unless its weight is 0."""
        weight: int = self.values["weight"]
        if weight and self._on:
            yield NumaSpread(self, weight)

    def bind_annotations(self, task: Task, row: int) -> Mapping[str, str]:
        """Return the annotation with the task's CPUs."""
        held = self._held.get(task.row)
        return {} if held is None else {CPUS: write_cpus(held[1])}

    def on_allocate(self, tasks: list[Task], rows: list[int]) -> None:
        """Assign CPUs to placed tasks. After the rollback of an eviction, a task still has its CPUs."""
        for task, row in zip(tasks, rows, strict=True):
            self._take(task, row)

    def _take(self, task: Task, row: int) -> None:
        topology = self._topologies[row]
        if not self._active[row] or not isinstance(topology, NodeTopology) or task.status not in _FRESH:
            return
        counts = self._counts_of(task.shape)
        if task.row in self._held or not any(counts):
            return
        cpus = self._assign(topology.layout, self._free[row], topology.topology_policy, counts)
        if cpus:
            self._held[task.row] = (row, cpus)
            self._free[row] &= ~cpus
            self._log.append(row)

    def on_deallocate(self, tasks: list[Task], rows: list[int]) -> None:
        """Free the CPUs of a placement that is rolled back. An evicted task holds them until the kubelet frees them."""
        for task in tasks:
            held = self._held.get(task.row)
            if held is not None and task.status != TaskStatus.RELEASING:
                del self._held[task.row]
                self._free[held[0]] |= held[1]
                self._log.append(held[0])
