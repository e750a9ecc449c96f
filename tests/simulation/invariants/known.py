"""Until when replicas know what the API server has, by what their watches and lists could have told them."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING

from tests.simulation.invariants.witness import Witness
from tests.simulation.road import Asked

if TYPE_CHECKING:
    from tests.simulation.line import Line
    from tests.simulation.replica import Machine, Replica
    from tests.simulation.script import Script
    from tests.simulation.simulation import Simulation

LOOK = 1.0
"""Seconds between looks at the watches of replicas."""
HEARD = 5.0
"""Seconds in which a replica knows of a change whose watches nothing holds up."""
LATE = 30.0
"""Seconds beyond the stale deadline that it may take until who is that late notices, and leads no more."""
_MINDED = ("pods", "nodes", "queues", "podgroups", "poddisruptionbudgets")


def may_go_back(script: Script) -> bool:
    """Whether the server's storage is restored from a backup: only then is what was done undone."""
    return any(act.what == "restore" for act in script.acts)


class Known:
    """Looks at each replica's watches again and again: what they are told is known soon where each is open and nothing
    holds it up, and the disk and the threads of its program have nothing else to do."""

    def __init__(self, sim: Simulation, witness: Witness) -> None:
        self._sim = sim
        self._until: dict[tuple[str, str], float] = {}
        """Until when a machine knows all of a kind, by its name and the kind's plural."""
        self._since: dict[tuple[str, str], float] = {}
        """Since when nothing holds a watch up."""
        self._listed: dict[tuple[str, str], float] = {}
        """When a list was asked for that has come, and with which nothing goes on yet."""
        self._open: dict[tuple[str, str], bool] = defaultdict(bool)
        """Whether the server agreed to the last watch."""
        # what a watch does not tell is known by the next list, and what is restored by none that was under way
        illegal = [act.at for act in sim.script.acts if act.what in ("spoil", "restore")]
        self._told_all_until = min(illegal, default=math.inf)
        witness.requests.append(self._heard)
        sim.loop.call_later(LOOK, self._tick)

    def until(self, machine: Machine) -> float:
        """Before when all that happened is known to who decides now."""
        now, watchers = self._sim.loop.time(), _plurals(machine)
        known = min((self._until.get((machine.name, plural), -math.inf) for plural in watchers), default=-math.inf)
        stale = 0.0 if machine.service is None else machine.service.options.stale_deadline
        return max(min(known, self._told_all_until), now - stale - LATE)

    def _heard(self, what: str, machine: Machine, asked: Asked) -> None:
        plural = asked.place.rpartition("/")[2]
        if plural not in _MINDED:
            return
        one = machine.name, plural
        if asked.method == "WATCH":
            self._open[one] = what == "over" and asked.status == 200
            self._since.pop(one, None)
            if what == "asked" and one in self._listed:
                self._until[one] = self._listed.pop(one)
        elif what == "over" and asked.status == 200 and "limit=" in asked.path and "continue=" not in asked.path:
            self._listed[one] = asked.at

    def _tick(self) -> None:
        for replica in self._sim.replicas:
            if replica.machine is not None and replica.service is not None:
                self._look(replica, replica.machine)
        self._sim.loop.call_later(LOOK, self._tick)

    def _look(self, replica: Replica, machine: Machine) -> None:
        now = self._sim.loop.time()
        free = {line.path.partition("?")[0].rpartition("/")[2] for line in machine.link.lines if _is_free(line, now)}
        idle = not (machine.stopped or machine.busy or replica.drive.slow or replica.road.late)
        for plural in _plurals(machine):
            one = machine.name, plural
            if not (idle and self._open[one] and plural in free):
                self._since.pop(one, None)
            elif now - self._since.setdefault(one, now) >= HEARD:
                self._until[one] = now - HEARD


def _plurals(machine: Machine) -> list[str]:
    """Of the kinds that a machine watches those that are minded."""
    watchers = {} if machine.service is None else machine.service.watches._watchers
    return [each.kind.plural for each in watchers.values() if each.kind.plural in _MINDED]


def _is_free(line: Line, now: float) -> bool:
    """Whether what the server writes arrives, and at once."""
    return not line.closed and not line.held and line.free <= now + LOOK
