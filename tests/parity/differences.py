"""The cases of the oracle in which this scheduler decides otherwise on purpose; docs/differences.md lists the same."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Difference:
    """Which expectations do not hold, and why they should not."""

    keys: tuple[str, ...]
    reason: str


DIFFERENCES = {
    "pod_affinity-001": Difference(
        keys=("bound_per_node",),
        reason=(
            "Volcano puts pods of app=me beside pods that it placed earlier in the same session and whose required "
            "anti-affinity forbids app=me on their host: its list of nodes with such pods is made when the session "
            "opens. Here a required rule holds whenever the pod that has it was placed."
        ),
    ),
}
