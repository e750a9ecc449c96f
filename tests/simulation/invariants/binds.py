"""Nobody asks for what was done: neither who was told that a pod is bound, nor who did not look whether it is."""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.simulation.invariants.known import may_go_back
from tests.simulation.invariants.witness import Call, Witness
from tests.simulation.replica import Machine
from tests.simulation.road import Asked
from vcd.daemon.service import SchedulerService
from vcd.model import events as ev

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

_POD = re.compile(r"/api/v1/namespaces/([^/]+)/pods/([^/]+)(/binding)?")


@dataclass
class _Bind:
    """A machine's last bind of a pod: where to, when it was sent, whether the server accepted it, when its answer came,
    and whether that said so."""

    node: str
    at: float
    accepted: bool = False
    over_at: float = math.inf
    told: bool = False


class Binds:
    """Follows what each machine asks for and when it was shown a pod since, by a list, a watch or a look."""

    def __init__(self, sim: Simulation, witness: Witness) -> None:
        self._sim, self._goes_back = sim, may_go_back(sim.script)
        self._last: dict[tuple[str, str, str], _Bind] = {}
        """By machine, and the key and UID of the pod."""
        self._shown: dict[tuple[str, str], float] = defaultdict(lambda: -math.inf)
        """When a machine was last shown a pod, by its key; under "" all of them."""
        witness.requests.append(self._heard)
        witness.services.append(self._watch)
        witness.calls.append(self._called)

    def _watch(self, machine: Machine, service: SchedulerService) -> None:
        def folded(event: ev.Event) -> None:
            if isinstance(event, (ev.ObjectPut, ev.ObjectGone)) and event.kind == "Pod":
                self._shown[machine.name, event.key] = self._sim.loop.time()
            elif isinstance(event, ev.KindListed) and event.kind == "Pod":
                self._shown[machine.name, ""] = self._sim.loop.time()

        service.state_writer.observers.append(folded)

    def _heard(self, what: str, machine: Machine, asked: Asked) -> None:
        found = _POD.fullmatch(asked.place)
        if found is None:
            return
        key, now = f"{found[1]}/{found[2]}", self._sim.loop.time()
        if asked.method == "GET" and what == "over" and asked.status in (200, 404):
            self._shown[machine.name, key] = now
        elif asked.method == "POST" and found[3]:
            body = json.loads(asked.body)
            one = machine.name, key, body["metadata"].get("uid", "")
            if what == "sent":
                self._sent(one, _Bind(body["target"]["name"], now))
            elif what == "over" and one in self._last:
                self._last[one].over_at, self._last[one].told = now, asked.status in (200, 201)

    def _called(self, call: Call) -> None:
        if call.operation is not None and call.operation[0] == "bind":
            _, key, uid, _ = call.operation
            self._last[call.machine.name, key, uid].accepted = True

    def _sent(self, one: tuple[str, str, str], bind: _Bind) -> None:
        last, (machine, key, uid) = self._last.get(one), one
        self._last[one] = bind
        if last is None:
            return
        shown = max(self._shown[machine, key], self._shown[machine, ""])
        if last.over_at > bind.at:
            self._sim.violated("bound once", f"{machine} binds {key} {uid} while it does so already")
        elif last.told and not self._goes_back:
            self._sim.violated("bound once", f"{machine} binds {key} {uid} again, of which it was told that it is done")
        elif last.accepted and last.node != bind.node and shown < last.at:
            what = f"{machine} binds {key} {uid} to {bind.node}, and did not look what became of {last.node}"
            self._sim.violated("bound once", what)
