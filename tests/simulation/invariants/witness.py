"""Who did what: the requests of machines that the server carried out, and the daemons that made them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tests.simulation.apiserver import Request
from tests.simulation.replica import Machine
from tests.simulation.road import Asked
from vcd.daemon.service import SchedulerService

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

Obj = dict[str, Any]
Operation = tuple[str, str, str, str]
"""Verb, key, UID and node (of binds) of a bind or an eviction."""
_POD = re.compile(r"/api/v1/namespaces/([^/]+)/pods/([^/]+)(?:/(\w+))?")
_STORES_NOTHING = ("reviews", "/token")


@dataclass(frozen=True)
class Call:
    """A request of a machine that the server carried out."""

    at: float
    machine: Machine
    request: Request

    @property
    def writes(self) -> bool:
        """Whether something was stored by it."""
        return self.request.method not in ("GET", "HEAD") and not self.request.path.endswith(_STORES_NOTHING)

    @property
    def is_of_lease(self) -> bool:
        """Whether it is part of the election."""
        return "/leases" in self.request.path

    @cached_property
    def body(self) -> Obj:
        """What was sent."""
        return dict(json.loads(self.request.payload or b"{}"))

    @cached_property
    def operation(self) -> Operation | None:
        """Verb, key, UID and node of the bind or eviction that it is; None for another request."""
        found = _POD.fullmatch(self.request.path)
        if found is None:
            return None
        namespace, name, part = found.groups()
        if part == "binding":
            uid, node = self.body["metadata"].get("uid", ""), self.body["target"]["name"]
            return "bind", f"{namespace}/{name}", uid, node
        if self.request.method == "DELETE" or part == "eviction":
            options = self.body.get("deleteOptions") or self.body
            return "evict", f"{namespace}/{name}", (options.get("preconditions") or {}).get("uid", ""), ""
        return None

    def __str__(self) -> str:
        return f"{self.machine.name} {self.request.method} {self.request.path}"


class Witness:
    """Tells of each call, and of each daemon before its first one; and of each request, as Link.heard is told."""

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim
        self.calls: list[Callable[[Call], None]] = []
        self.services: list[Callable[[Machine, SchedulerService], None]] = []
        self.requests: list[Callable[[str, Machine, Asked], None]] = []
        self._known: dict[str, SchedulerService] = {}
        self._machines: dict[str, Machine] = {}
        sim.server.executed = self._executed
        sim.heard = self._heard

    def machine(self, identity: str) -> Machine | None:
        """The machine of a name."""
        if identity not in self._machines:
            self._machines |= {machine.name: machine for machine in self._sim.machines}
        return self._machines.get(identity)

    @property
    def asking(self) -> Call | None:
        """What the server is carrying out; None where a change of the store is somebody else's."""
        asked = self._sim.server.asked
        machine = None if asked is None else self.machine(asked.identity)
        return None if asked is None or machine is None else Call(self._sim.loop.time(), machine, asked)

    def _heard(self, what: str, asked: Asked) -> None:
        machine = self.machine(asked.identity)
        if machine is not None:
            for told in self.requests:
                told(what, machine, asked)

    def _executed(self, request: Request, status: int) -> None:
        machine = self.machine(request.identity)
        if machine is None:
            return
        service = machine.service
        if service is not None and self._known.get(machine.name) is not service:
            self._known[machine.name] = service
            for tell in self.services:
                tell(machine, service)
        if status < 300:
            call = Call(self._sim.loop.time(), machine, request)
            for told in self.calls:
                told(call)
