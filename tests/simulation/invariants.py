"""What must hold at every step by the server's truth, and what once nothing goes wrong any more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vcd.eventlog import LogReader
from vcd.timetravel.logfile import verify
from vcd.timetravel.replay import replay

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

Obj = dict[str, Any]


class Invariants:
    """Looks at each change of the store as it happens, and at logs and states at the end."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.bound: dict[str, str] = {}
        """Nodes, by the UID of the pod that is there."""
        sim.store.subscribe(["pods"], self._pod)

    def _pod(self, event: str, _: str, obj: Obj) -> None:
        name, uid, place = obj["metadata"]["name"], obj["metadata"]["uid"], obj["spec"].get("nodeName")
        self.sim.note(event, name, place, obj["status"].get("phase"))
        if event == "DELETED" or not place:
            return
        before = self.bound.setdefault(uid, place)
        if before != place:
            self.sim.violated("bound once", f"{name} to {before} and to {place}")

    async def at_rest(self) -> None:
        """Look at what must hold once all has come to rest."""
        leaders = [replica.name for replica in self.sim.replicas if (s := replica.service) and s.terms.leads()]
        if len(leaders) != 1:
            self.sim.violated("one leader", f"{leaders}")
        for machine in self.sim.machines:
            if machine.disk.log.exists():
                self._log(machine.disk.folder.name, machine.disk.log)

    def _log(self, name: str, path: Any) -> None:
        found = verify(path)
        if found.problems:
            self.sim.violated("sound log", f"{name}: {found.problems[0]}")
        with LogReader(path) as reader:
            if not list(reader.sessions()):
                return
        for one in replay(path):
            if one.difference:
                self.sim.violated("replay", f"{name}: session {one.session}: {one.difference}")
