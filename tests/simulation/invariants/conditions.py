"""Conditions that others write stay as they are, whatever is written beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.e2e.cluster import GROUPS
from tests.simulation.invariants.witness import Witness

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

Obj = dict[str, Any]
OTHERS = "simulation.example/"
"""What the types of conditions begin with that others write."""


class Conditions:
    """Compares each pod and PodGroup that a replica writes with what it was."""

    def __init__(self, sim: Simulation, witness: Witness) -> None:
        self._sim, self._witness = sim, witness
        self._known: dict[str, dict[str, Obj]] = {}
        """By UID, what others wrote, by type."""
        for resource in (GROUPS, "pods"):
            sim.store.subscribe([resource], self._changed)

    def _changed(self, event: str, _: str, obj: Obj) -> None:
        uid = obj["metadata"]["uid"]
        if event == "DELETED":
            self._known.pop(uid, None)
            return
        conditions = (obj.get("status") or {}).get("conditions") or ()
        now = {each["type"]: each for each in conditions if each["type"].startswith(OTHERS)}
        before, call = self._known.get(uid, {}), self._witness.asking
        if call is not None and now != before:
            self._sim.violated("others' conditions stay", f"{call}: {before} became {now}")
        self._known[uid] = now
