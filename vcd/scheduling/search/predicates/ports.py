"""Host ports (kube-scheduler's NodePorts filter)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import numpy as np

from vcd.model.objects import Pod, PodSpec
from vcd.model.reasons import Cause, Reason, ReasonCode
from vcd.scheduling.search.domain_counts import Domains, Sums
from vcd.scheduling.search.parts import Mask, Predicate, Reads, Rows
from vcd.scheduling.search.placed_counts import PlacedCounts
from vcd.scheduling.search.podindex import PodIndex, SessionCounts, index_of
from vcd.scheduling.search.predicates.node_predicates import at_rows
from vcd.scheduling.session.nodes import Usage
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task
from vcd.state.records import Shape

EVERY_ADDRESS = "0.0.0.0"


class Port(NamedTuple):
    """A port of the host that a container takes, on one address or on all."""

    protocol: str
    number: int
    address: str


def host_ports(spec: PodSpec) -> tuple[Port, ...]:
    """Return the host ports of a pod's containers, including init containers that keep running (sidecars)."""
    containers = spec.containers
    if spec.init_containers:
        containers = (*[each for each in spec.init_containers if each.restart_policy == "Always"], *containers)
    ports = [port for container in containers for port in container.ports if port.host_port > 0]
    return tuple([Port(port.protocol or "TCP", port.host_port, port.host_ip or EVERY_ADDRESS) for port in ports])


def has_host_ports(shape: Shape) -> bool:
    """Whether pods of a shape use host ports."""
    return bool(host_ports(shape.spec))


class PlacedPorts(PlacedCounts[Port]):
    """Host ports of placed pods, by node."""

    has = staticmethod(has_host_ports)

    def things_of(self, pod: Pod) -> Sequence[Port]:
        return host_ports(pod.spec)

    def domains(self, thing: Port) -> Domains:
        nodes = len(self.facts)
        domains: Domains = self.facts.cached("each node", lambda: Domains(np.arange(nodes), nodes))
        return domains


class SessionPorts(SessionCounts[Port]):
    """Host ports of placed pods, found by protocol and number."""

    kind = PlacedPorts

    def __init__(self, index: PodIndex) -> None:
        self._addresses: dict[tuple[str, int], dict[str, Port]] = {}
        super().__init__(index)
        for port in self.placed.sums:
            self.on_appeared(port)

    def on_appeared(self, thing: Port) -> None:
        self._addresses.setdefault((thing.protocol, thing.number), {})[thing.address] = thing

    def conflicting(self, port: Port) -> list[Sums]:
        """Return pods that use the same port on an overlapping address; the wildcard overlaps with all."""
        addresses = self._addresses.get((port.protocol, port.number), {})
        overlapping = (
            addresses.values() if port.address == EVERY_ADDRESS else map(addresses.get, (port.address, EVERY_ADDRESS))
        )
        found = [self.sums(each) for each in overlapping if each is not None]
        return [sums for sums in found if sums is not None and sums.total]


_PORTS = ReasonCode("ports", Cause.PORTS, "node(s) didn't have free ports for the requested pod ports", nodes_help=True)


class NodePorts(Predicate):
    """Nodes whose host ports requested by a task are free."""

    name: ClassVar[str] = "NodePorts"
    reason: ClassVar[Reason] = _PORTS()
    reads = Reads.PODS
    keys = ()

    def __init__(self, session: Session) -> None:
        self._nodes = session.nodes
        self._index = index_of(session)
        self._ports_of_shape: dict[Shape, tuple[Port, ...]] = {}

    def applies(self, task: Task) -> bool:
        spec = task.shape.spec
        for container in (*spec.init_containers, *spec.containers) if spec.init_containers else spec.containers:
            if container.ports:
                return bool(self._ports(task))
        return False

    def mask(self, task: Task, usage: Usage) -> Mask:
        ports = self._index.counts_of(SessionPorts)
        taken = np.zeros(len(self._nodes), np.bool_)
        for port in self._ports(task):
            for sums in ports.conflicting(port):
                taken |= sums.positive()[:-1]
        return at_rows(~taken, usage)

    def divisions(self, task: Task, rows: Rows) -> list[Rows]:
        """Return each node by itself: pods of one shape request the same ports."""
        return [np.arange(len(self._nodes))] if self.applies(task) else []

    def clauses(self, task: Task, usage: Usage) -> list[tuple[Reason, Mask]]:
        text = ", ".join(f"hostPort {port.number}/{port.protocol}" for port in self._ports(task))
        return [(_PORTS({"clause": text}), self.mask(task, usage))]

    def _ports(self, task: Task) -> tuple[Port, ...]:
        found = self._ports_of_shape.get(task.shape)
        if found is None:
            found = self._ports_of_shape[task.shape] = host_ports(task.shape.spec)
        return found
