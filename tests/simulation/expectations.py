"""Acts that check a script's result at a stated time instead of changing something.

An invariant holds in every run. An expectation holds in one script only, because only that script's acts make it true.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

Obj = dict[str, Any]


def expect_placed(sim: Simulation, gang: str, count: int) -> None:
    """At least ``count`` pods of a gang have a node or have ended. A gang without pods is not checked."""
    pods = _pods_of(sim, "expect_placed", gang)
    placed = [each for each in pods if each["spec"].get("nodeName")]
    if pods and len(placed) < count:
        waiting = [each["metadata"]["name"] for each in pods if each not in placed]
        sim.violated("stories end well", f"{gang}: {len(placed)} of {count} pods are placed; {waiting} wait")


def expect_evicted(sim: Simulation, gang: str, count: int) -> None:
    """At least ``count`` pods of a gang are being deleted, or are gone; ``count`` is at most how many it had."""
    pods = _pods_of(sim, "expect_evicted", gang)
    staying = [each["metadata"]["name"] for each in pods if "deletionTimestamp" not in each["metadata"]]
    if pods and len(staying) > len(pods) - count:
        sim.violated("stories end well", f"{gang}: {staying} stay, and {count} of {len(pods)} pods were to be evicted")


def expect_waiting(sim: Simulation, gang: str) -> None:
    """No pod of a gang has a node."""
    pods = _pods_of(sim, "expect_waiting", gang)
    placed = [each["metadata"]["name"] for each in pods if each["spec"].get("nodeName")]
    if placed:
        sim.violated("stories end well", f"{gang}: {placed} have nodes, and were to wait")


def expect_nodes(sim: Simulation, gang: str, count: int) -> None:
    """The pods of a gang are all placed, on this number of nodes."""
    nodes = {each["spec"].get("nodeName", "") for each in _pods_of(sim, "expect_nodes", gang)}
    if nodes and len(nodes - {""}) != count:
        sim.violated("stories end well", f"{gang}: its pods are on {sorted(nodes)}, and not on {count}")


def expect_log_below(sim: Simulation, size: int) -> None:
    """The log of each replica has fewer bytes; its write-ahead log does not count, because SQLite reuses it."""
    for each in sim.replicas:
        if each.service is not None:
            sim.affected["expect_log_below"] += 1
            with contextlib.closing(
                sqlite3.connect(f"file:{each.service.state_writer.log.path}?mode=ro", uri=True)
            ) as log:
                ((found,),) = log.execute("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size")
            if found >= size:
                sim.violated("stories end well", f"the log of {each.name} has {found:,} bytes, and not below {size:,}")


def _pods_of(sim: Simulation, act: str, gang: str) -> list[Obj]:
    found = [each for each in sim.store.list("pods") if (each["metadata"].get("labels") or {}).get("gang") == gang]
    sim.affected[act] += bool(found)
    return found


ACTS: dict[str, Callable[..., None]] = {
    each.__name__: each for each in (expect_placed, expect_evicted, expect_waiting, expect_nodes, expect_log_below)
}
