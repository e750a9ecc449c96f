"""Diagnoses of nodes: the pods' size, a clause that excludes nodes with capacity, other pods, or too little
capacity."""

from __future__ import annotations

import numpy as np

from vcd.diagnosis.funnel import Clause, Funnel
from vcd.diagnosis.holders import holders_of
from vcd.diagnosis.waiting_job import Case, as_given
from vcd.model import events as ev
from vcd.model.diagnosis import Amounts, Diagnosis
from vcd.model.reasons import Cause
from vcd.scheduling.framework.declared_reasons import cause_of
from vcd.scheduling.search.parts import Mask
from vcd.scheduling.session.nodes import Ints
from vcd.scheduling.session.nodeview import NodeView
from vcd.state.sums import sum_of

_OF_NODES = (Cause.NODE_ROOM, Cause.SHAPE, Cause.SELECTOR, Cause.TAINT, Cause.UNSCHEDULABLE_NODE, Cause.NODE_POLICY)

_VALUES = 5
"""Values of a label that a diagnosis names; it always states how many there are."""


def is_of_nodes(funnel: Funnel, reason: ev.Waiting) -> bool:
    """Return whether the nodes determine the cause more precisely than the reason: which clause, and how many nodes."""
    cause = cause_of(reason)
    if cause == Cause.INVALID or (not isinstance(reason.reason, str) and "claim" in dict(reason.reason.names)):
        return False
    return cause in {*_OF_NODES, *(clause.cause for clause in (*funnel.lasting, *funnel.moving))}


def of_nodes(case: Case, funnel: Funnel) -> Diagnosis:
    """Return why the nodes do not fit the missing pods of a job."""
    if funnel.never:
        return of_shape(case, funnel)
    if not funnel.allowed.any():  # the clauses come first, even if the other nodes have no capacity either
        return _diagnose_clause(case, funnel, min(funnel.lasting, key=lambda one: int(one.passes.sum())))
    if funnel.fits < case.missing_equal or case.short:
        clause = _decisive(case, funnel)
        if clause is not None:
            return _diagnose_clause(case, funnel, clause)
        return _diagnose_order(case, funnel) or _diagnose_capacity(case, funnel)
    takes = [(int(funnel.now[funnel.allowed & one.passes].sum()), one) for one in funnel.moving]
    count, clause = min(takes, key=lambda each: each[0], default=(case.missing_equal, None))
    if clause is not None and count < case.missing_equal:
        return _diagnose_clause(case, funnel, clause)
    others = [one for one in case.reasons if cause_of(one) not in (*_OF_NODES, Cause.GANG_INCOMPLETE)]
    if others:
        return _diagnose_turn(case, funnel, others[0])
    if case.missing_equal < case.missing or case.job.partition is not None:  # each pod fits alone, but not all together
        return _diagnose_order(case, funnel) or as_given(case.reasons[0])
    return _diagnose_order(case, funnel) or Diagnosis(Cause.ORDER, {}, _counts(case, funnel))


def of_shape(case: Case, funnel: Funnel) -> Diagnosis:
    """Return the diagnosis that no empty node fits the pod: the allowed node that lacks least, and what it lacks."""
    allowed = funnel.wanted if funnel.wanted.any() else np.ones_like(funnel.wanted)
    allocatable, request = case.session.nodes.usage.allocatable, funnel.task.request
    row = _nearest(allowed, allocatable, request)
    lacks: list[int] = np.flatnonzero(allocatable[:, row] < request).tolist()
    subject = {"node": case.session.nodes.facts.names[row]}
    of_nodes_own = (Cause.TAINT, Cause.UNSCHEDULABLE_NODE)
    clauses = [one.text for one in funnel.lasting if not one.passes.all() and one.cause not in of_nodes_own]
    if clauses:
        subject["clause"] = "; ".join(clauses)
    return Diagnosis(Cause.SHAPE, subject, case.amounts_by_role(lacks, asks=request, largest=allocatable[:, row]))


# --- clauses ----------------------------------------------------------------------------------------------------------


def _decisive(case: Case, funnel: Funnel) -> Clause | None:
    """Return the lasting clause whose removal adds most capacity; None if nodes outside the clauses have too little."""
    if funnel.now.sum() < case.missing_equal:
        return None
    gains = [(int(funnel.now[funnel.without(one)].sum()), one) for one in funnel.lasting]
    best = max(gains, key=lambda each: each[0], default=None)
    if best is None or best[0] == funnel.fits:  # several clauses exclude the same nodes
        return max(funnel.lasting, key=lambda one: int(funnel.now[~one.passes].sum()), default=None)
    return best[1]


def _diagnose_clause(case: Case, funnel: Funnel, clause: Clause) -> Diagnosis:
    """Return how many nodes a clause leaves, and how many nodes with capacity it excludes."""
    counts, count_fitting = _counts(case, funnel), (funnel.now > 0) & ~clause.passes
    counts[""] |= {"passes": int(clause.passes.sum()), "excluded with room": int(count_fitting.sum())}
    subject, values = _subject_of(clause), _existing_values(case, clause)
    if values:
        subject["existing"] = ", ".join(values[:_VALUES])
        counts[""]["existing"] = len(values)
    return Diagnosis(clause.cause, subject, counts, clause.reason.words)


def _existing_values(case: Case, clause: Clause) -> list[str]:
    """Return the values on nodes of the label that a clause requires; empty if a node passes the clause."""
    label = dict(clause.reason.names).get("label", "")
    return [] if clause.passes.any() else case.session.nodes.facts.label(label)[1]


def _diagnose_turn(case: Case, funnel: Funnel, reason: ev.Waiting) -> Diagnosis:
    """Return what excluded a pod at its turn, when other pods of the job had places."""
    of_cause = [one for one in funnel.moving if one.cause == cause_of(reason)]
    code = reason.reason if isinstance(reason.reason, str) else reason.reason.code
    clause = next((one for one in of_cause if one.reason.code == code), next(iter(of_cause), None))
    if clause is None:
        return as_given(reason)
    counts = _counts(case, funnel)
    counts[""] |= {"passes": len(funnel.now) - reason.nodes, "excluded with room": 0}
    return Diagnosis(clause.cause, _subject_of(clause), counts)


def _subject_of(clause: Clause) -> dict[str, str]:
    """Return what a clause names, and its text: a "clause" of nodes or a "term" about pods."""
    names = {role: name for role, name in clause.reason.names if role not in ("clause", "label", "taint")}
    return {**names, "clause" if clause.cause in _OF_NODES else "term": clause.text}


def _counts(case: Case, funnel: Funnel) -> Amounts:
    return {"": {"nodes": len(funnel.now), "needs": case.missing_equal, "fits": funnel.fits}}


# --- capacity ---------------------------------------------------------------------------------------------------------


def _diagnose_capacity(case: Case, funnel: Funnel) -> Diagnosis:
    """Return the diagnosis that allowed nodes lack capacity: too little in sum, fragmented, or held by other jobs."""
    usage, names = case.session.nodes.usage, case.session.nodes.resources
    if funnel.freed[funnel.allowed].sum() >= case.missing_equal and not case.short:
        return case.diagnose_terminating()
    if case.short:
        return case.diagnose_full_cluster({column: int(case.needed[column]) for column in case.short})
    idle, requested = np.maximum(usage.idle, 0), case.needed > 0
    allowed = sum_of(idle[:, funnel.allowed], axis=1)
    near = _nearest(funnel.allowed, idle, funnel.task.request)
    lacking = _short_resources(funnel.task.request, idle[:, near])
    if (allowed[requested] >= case.needed[requested]).all():
        largest, request = idle[:, funnel.allowed].max(axis=1), funnel.task.request
        lacking = [column for column in lacking if largest[column] < request[column]] or lacking
        amounts = case.amounts_by_role(lacking, asks=case.needed, pod=request, free=allowed, largest=largest)
        return Diagnosis(Cause.FRAGMENTATION, {}, amounts | _counts(case, funnel))
    held = holders_of(case.session, NodeView(case.session, near).tasks, [names[column] for column in lacking])
    subject = {"node": case.session.nodes.facts.names[near], **({"holder": held[0].job} if held else {})}
    amounts = case.amounts_by_role(lacking, asks=funnel.task.request, most=idle[:, near])
    return Diagnosis(Cause.NODE_ROOM, subject, amounts | _counts(case, funnel))


def _nearest(allowed: Mask, free: Ints, request: Ints) -> int:
    """Return the allowed node that has the largest part of a pod's request."""
    part = (free / np.maximum(request, 1)[:, None])[request > 0].min(axis=0)
    return int(np.where(allowed, part, -1).argmax())


def _short_resources(request: Ints, free: Ints) -> list[int]:
    """Return the columns of the resources of which a node has too little, the smallest part of the request first."""
    lacking: list[int] = np.flatnonzero((request > 0) & (free < request)).tolist()
    return sorted(
        lacking or np.flatnonzero(request > 0).tolist()[:1], key=lambda column: free[column] / request[column]
    )


def _diagnose_order(case: Case, funnel: Funnel) -> Diagnosis | None:
    """Return the diagnosis that the job would fit without the pods that were placed while it waited; None if it would
    not."""
    idle = case.session.nodes.usage.idle
    freed, by_job = idle.copy(), dict[str, dict[int, Ints]]()
    for task in case.placed_while_waiting():
        freed[:, task.node] += task.request
        back = by_job.setdefault(task.job.key, {})
        back[task.node] = back.get(task.node, 0) + task.request
    if not by_job or funnel.count_fitting(freed)[funnel.allowed].sum() < case.missing_equal:
        return None
    given = {}
    for key, back in by_job.items():
        rows = np.array(list(back), np.intp)
        more = funnel.count_fitting(idle[:, rows] + np.stack(list(back.values()), axis=1), rows) - funnel.now[rows]
        given[key] = int(more[funnel.allowed[rows]].sum())
    return case.diagnose_order({key: pods for key, pods in given.items() if pods} or dict.fromkeys(given, 1))
