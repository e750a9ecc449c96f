"""The cases of the oracle in which this scheduler decides otherwise on purpose; docs/differences.md lists the same."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Difference:
    """Which expectations do not hold, and why they should not; ``specified`` where the plugin's own document says so,
    against what Volcano made of it; ``pains`` where users reported Volcano's way, and the reference can decide so."""

    keys: tuple[str, ...]
    reason: str
    specified: bool = False
    pains: bool = False


_HIERARCHY = (
    "vc-scheduler refuses drf's hierarchy beside proportion in one tier, and so do we; the table passed that by."
)
_UNKNOWN = "A gang of which some pods run and that is unschedulable is Unknown by Volcano's source (getPodGroupPhase)."

_BINDS = ("binds", "bound_per_job", "bound_per_node", "bound_total")
_ANY_CARD = (
    "Volcano looks up the resource of the first card that a pod names, and so refuses A|B where no node has A. Here "
    "any of the named cards will do."
)

DIFFERENCES = {
    "capacity_card-001": Difference(_BINDS, _ANY_CARD, specified=True),
    "capacity_card-009": Difference(_BINDS, _ANY_CARD, specified=True),
    "pod_affinity-001": Difference(
        keys=("bound_per_node",),
        reason=(
            "Volcano puts pods of app=me beside pods that it placed earlier in the same session and whose required "
            "anti-affinity forbids app=me on their host: its list of nodes with such pods is made when the session "
            "opens. Here a required rule holds whenever the pod that has it was placed."
        ),
    ),
    "enqueue_overcommit-004": Difference(
        keys=("phases",),
        reason=(
            "A gang of five pods of 1 CPU is admitted that the only node, of 4 CPUs, can never hold. There its "
            "reservation keeps the next group out for ever, here it reserves nothing."
        ),
        pains=True,
    ),
    "proportion-005": Difference(
        keys=_BINDS,
        reason=(
            "One CPU is idle that q1 deserves, and its pods ask for two. There it stays idle, here a pod of q0 has it."
        ),
        pains=True,
    ),
    "pdb-005": Difference(
        keys=("evicted_per_job", "evicted_total", "pipelined_per_job"),
        reason="Volcano evicts two pods whose budget allows no disruption: an earlier tier than pdb's names them.",
    ),
    "tables_drf-051": Difference(keys=("policy",), reason=_HIERARCHY),
    "tables_drf-052": Difference(keys=("policy",), reason=_HIERARCHY),
    "tables_predicates-067": Difference(
        keys=("evicted_per_job", "evicted_total", "evictions", "pipelined_per_job"),
        reason="A node that has all the pods it takes is no place for preemption there; an eviction makes room here.",
    ),
    "tables_preempt-068": Difference(keys=("phases",), reason=_UNKNOWN),
    "tables_preempt-081": Difference(keys=("phases",), reason=_UNKNOWN),
}
