"""Parameters other than quotas that may let a job start: labels, cordons and number of nodes, its pods' requirements,
its minimum."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import msgspec
import numpy as np

from vcd.diagnosis.funnel import Clause, Funnel, all_passing
from vcd.model.objects import PodSpec
from vcd.model.reasons import Cause
from vcd.model.selectors import EQUAL, EXISTS, IN, Toleration, tolerates
from vcd.scheduling.search.parts import Mask
from vcd.scheduling.search.predicates.node_predicates import CORDON, HARD_EFFECTS, required_nodes, taint_clause
from vcd.scheduling.search.predicates.spread_predicate import HARD
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job
from vcd.state.snapshot import Snapshot
from vcd.timetravel.why.domainparameters import domain_parameters
from vcd.timetravel.why.parameters import Parameter
from vcd.timetravel.why.snapshotchanges import (
    What,
    with_labels,
    with_minimum,
    with_more_nodes,
    with_pods,
    without_cordons,
)

_TYPES = 3
"""Types of nodes of which more are tried, at most."""


def pod_parameters(session: Session, job: Job, funnel: Funnel) -> Iterator[Parameter]:
    """Yield all parameters for a pod that found no node."""
    missing = max(1, job.min_available - job.ready_count)
    yield from _cordons(session, funnel, missing)
    yield from _labels(session, funnel, missing)
    yield from _tolerations(session, job, funnel)
    yield from _without_terms(session, job, funnel.task.shape.spec)
    yield from domain_parameters(session, job, funnel)
    yield from _with_fewer(session, job)
    yield from _more_nodes(session, funnel, missing)


def _counting(
    what: What, subject: str, field: str, most: int, missing: int, turned: Callable[[int], Snapshot], now: int = 0,
    nodes: Sequence[str] = (),
) -> Parameter:  # fmt: skip
    """Return a parameter that counts up from ``now`` (down if that is above 0)."""
    unit = -1 if now else 1
    steps = {"": most} if most > 0 else {}
    likely = {"": min(missing, most)} if most > 0 else {}
    return Parameter(
        what, subject, field, {"": now}, {"": unit}, likely, steps, lambda amounts: turned(amounts[""]),
        lambda _, value: str(value), tuple(nodes),
    )  # fmt: skip


def _nearest(funnel: Funnel, among: Mask, lifted: Callable[[Clause], bool]) -> list[str]:
    """Return the names of some nodes: those first that pass all clauses except the lifted ones, then those on which
    most pods fit."""
    rows = np.flatnonzero(among & (funnel.empty > 0))
    passes = all_passing((clause for clause in funnel.lasting if not lifted(clause)), len(funnel.now))
    order = rows[np.lexsort((-funnel.now[rows], ~passes[rows]))]
    return [funnel.session.nodes.facts.names[row] for row in order.tolist()]


def _is_of_cordon(clause: Clause) -> bool:
    return clause.cause == Cause.UNSCHEDULABLE_NODE or clause.text == taint_clause(CORDON)


def _is_of_selector(clause: Clause) -> bool:
    return clause.cause == Cause.SELECTOR


def _cordons(session: Session, funnel: Funnel, missing: int) -> Iterator[Parameter]:
    facts = session.nodes.facts
    cordoned = np.array([node.spec.unschedulable for node in facts.nodes], np.bool_)
    names = _nearest(funnel, cordoned, _is_of_cordon)
    if names:
        yield _counting(
            "cordon", "", "", len(names), missing, lambda count: without_cordons(session.snapshot, names[:count]),
            nodes=names,
        )  # fmt: skip


def _labels(session: Session, funnel: Funnel, missing: int) -> Iterator[Parameter]:
    wanted = _wanted_labels(funnel.task.shape.spec)
    if not wanted:
        return
    facts = session.nodes.facts
    others = np.array(
        [any(node.metadata.labels.get(k) != v for k, v in wanted.items()) for node in facts.nodes], np.bool_
    )
    names = _nearest(funnel, others, _is_of_selector)
    text = ",".join(f"{key}={value}" for key, value in sorted(wanted.items()))
    yield _counting(
        "label", text, "", len(names), missing, lambda count: with_labels(session.snapshot, names[:count], wanted),
        nodes=names,
    )  # fmt: skip


def _wanted_labels(spec: PodSpec) -> dict[str, str]:
    """Return labels with which a node passes the selector and the required affinity, as far as labels can."""
    wanted, required = dict(spec.node_selector), required_nodes(spec)
    if required is not None and len(required.node_selector_terms) == 1:
        for need in required.node_selector_terms[0].match_expressions:
            if need.operator in (IN, EXISTS):
                wanted.setdefault(need.key, need.values[0] if need.values else "true")
    return wanted


def _tolerations(session: Session, job: Job, funnel: Funnel) -> Iterator[Parameter]:
    known = funnel.task.shape.spec.tolerations
    taints = {taint for node in session.nodes.facts.nodes for taint in node.spec.taints if taint.effect in HARD_EFFECTS}
    for taint in sorted(taints, key=taint_clause):
        if not tolerates(known, taint):
            more = Toleration(key=taint.key, operator=EQUAL, value=taint.value, effect=taint.effect)
            change = partial(_with_toleration, more)
            yield _single_step(session, job, "toleration", taint_clause(taint), change)


def _with_toleration(more: Toleration, spec: PodSpec) -> PodSpec:
    return msgspec.structs.replace(spec, tolerations=(*spec.tolerations, more))


def _single_step(
    session: Session, job: Job, what: What, subject: str, change: Callable[[PodSpec], PodSpec]
) -> Parameter:
    """Return a parameter with a single step that changes the pods' specs."""
    return _counting(what, subject, "", 1, 1, lambda _: with_pods(session.snapshot, job.key, change))


def _without_terms(session: Session, job: Job, spec: PodSpec) -> Iterator[Parameter]:
    """Yield the removal of each requirement in the pods' specs."""
    for subject, change in _terms(spec):
        yield _single_step(session, job, "term", subject, change)


def _terms(spec: PodSpec) -> Iterator[tuple[str, Callable[[PodSpec], PodSpec]]]:
    if spec.node_selector:
        yield "nodeSelector", lambda one: msgspec.structs.replace(one, node_selector={})
    affinity = spec.affinity
    for field, name in (
        ("node_affinity", "nodeAffinity"),
        ("pod_affinity", "podAffinity"),
        ("pod_anti_affinity", "podAntiAffinity"),
    ):
        part = None if affinity is None else getattr(affinity, field)
        if part is not None and part.required:
            yield name, partial(_without_required, field)
    if any((each.when_unsatisfiable or HARD) == HARD for each in spec.topology_spread_constraints):
        yield "topologySpreadConstraints", lambda one: msgspec.structs.replace(one, topology_spread_constraints=())


def _without_required(field: str, spec: PodSpec) -> PodSpec:
    affinity = spec.affinity
    if affinity is None or getattr(affinity, field) is None:
        return spec
    part = msgspec.structs.replace(getattr(affinity, field), required=None if field == "node_affinity" else ())
    return msgspec.structs.replace(spec, affinity=msgspec.structs.replace(affinity, **{field: part}))


def _with_fewer(session: Session, job: Job) -> Iterator[Parameter]:
    least = job.record.group.spec.min_member
    if least > 1:
        yield _counting(
            "minimum",
            job.key,
            "minMember",
            least - 1,
            1,
            lambda count: with_minimum(session.snapshot, job.key, count),
            least,
        )


def _more_nodes(session: Session, funnel: Funnel, missing: int) -> Iterator[Parameter]:
    """Yield more nodes of each existing type, those types first on whose empty nodes most of the pods fit."""
    seen: set[Mapping[str, str] | tuple[object, ...]] = set()
    rows = np.flatnonzero((funnel.empty > 0) & funnel.allowed)
    for row in rows[np.argsort(-funnel.empty[rows], kind="stable")].tolist():
        node = session.nodes.facts.nodes[row]
        kind = (tuple(session.nodes.facts.allocatable[row].tolist()), node.spec.taints)
        if kind in seen or len(seen) >= _TYPES:
            continue
        seen.add(kind)
        yield _counting(
            "node", node.metadata.name, "", missing, -(-missing // int(funnel.empty[row])),
            partial(with_more_nodes, session.snapshot, node.metadata.name),
        )  # fmt: skip
