"""What would end a wait, by its cause. Lists state it for many jobs at once, so no simulation verifies it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from vcd.model import events as ev
from vcd.model.diagnosis import Diagnosis
from vcd.model.reasons import Cause
from vcd.model.wording import counted
from vcd.scheduling.framework.declared_reasons import mending
from vcd.text.amounts import amount_of


def remedy_of(diagnosis: Diagnosis, reasons: Iterable[ev.Waiting]) -> str:
    """Return what would end a wait: the remedy that its reasons declare, else that of its cause; empty if only time
    ends it."""
    words = _REMEDIES.get(diagnosis.cause)
    return next(filter(None, map(mending, reasons)), "" if words is None else words(diagnosis))


def _short_resource(diagnosis: Diagnosis) -> tuple[str, dict[str, int]]:
    """Return the first resource that is short, and its quantities by role."""
    return next(((name, of) for name, of in diagnosis.amounts.items() if name), ("", {}))


def _missing_amount(diagnosis: Diagnosis, limit: str, has: str) -> str:
    """Return by how much a limit is too low for the request: ``4 cpu``; empty if the quantities are missing."""
    resource, of = _short_resource(diagnosis)
    if not {limit, has, "asks"} <= of.keys():
        return ""
    return amount_of(resource, max(of[has] + of["asks"] - of[limit], 0))


def _limit(diagnosis: Diagnosis) -> str:
    subject, lacks = diagnosis.subject, _missing_amount(diagnosis, "limit", "has")
    whose = f"queue {subject['queue']}" if "queue" in subject else "the configuration"
    way = "lower" if diagnosis.cause == Cause.OTHERS_GUARANTEE else "raise"
    field = subject.get("field") or "the limit"
    by = f" by {lacks}" if _short_resource(diagnosis)[0] in field else f", so that it leaves {lacks} more"
    return f"{way} {field} of {whose}" + (by if lacks else "")


def _admission(diagnosis: Diagnosis) -> str:
    """Return what admits a job: more nodes if the cluster's total limits its queue, else another configuration."""
    subject, lacks = diagnosis.subject, _missing_amount(diagnosis, "limit", "has")
    if "queue" not in subject or not lacks:
        return _limit(diagnosis)
    holder = f"the end of {subject['holder']}, or " if "holder" in subject else ""
    field = f" and in {subject['field']} of queue {subject['queue']}" if "field" in subject else ""
    return f"{holder}{lacks} more on nodes{field}"


def _full(diagnosis: Diagnosis) -> str:
    resource, of = _short_resource(diagnosis)
    if not {"asks", "free"} <= of.keys():
        return "more nodes"
    return f"{amount_of(resource, max(of['asks'] - of['free'], 0))} more on nodes"


def _node_capacity(diagnosis: Diagnosis) -> str:
    resource, of = _short_resource(diagnosis)
    pod = of.get("pod", of.get("asks", 0))  # with ``pod``, ``asks`` is the sum of all missing pods
    # a node has enough of this resource, but not of another one, or not for all pods
    if pod <= max(of.get("most", 0), of.get("largest", 0)):
        return "more free capacity on a node"
    return f"{amount_of(resource, pod)} free on one node: fewer pieces of it in use, or another node"


def _clause(diagnosis: Diagnosis) -> str:
    counts, clause = diagnosis.amounts.get("", {}), diagnosis.subject.get("clause", "")
    more = counted(max(counts.get("needs", 1) - counts.get("fits", 0), 1), "node")
    if diagnosis.cause == Cause.TAINT:
        return f"tolerate {clause}, or take the taint from {more}"
    if diagnosis.cause == Cause.UNSCHEDULABLE_NODE:
        return f"uncordon {more}"
    return f"let {clause or 'the selector'} fit {more} more"


def _order(diagnosis: Diagnosis) -> str:
    ahead = diagnosis.subject.get("ahead")
    return f"capacity reserved for it while others wait, or a higher place in the order than {ahead}" if ahead else ""


_REMEDIES: dict[str, Callable[[Diagnosis], str]] = {
    Cause.QUEUE_CAPABILITY: _limit,
    Cause.QUEUE_DESERVED: _limit,
    Cause.PARENT_LIMIT: _limit,
    Cause.OTHERS_GUARANTEE: _limit,
    Cause.CARD_QUOTA: _limit,
    Cause.ADMISSION: _admission,
    Cause.NAMESPACE_QUOTA: lambda diagnosis: f"raise ResourceQuota {diagnosis.subject.get('quota', '')}".rstrip(),
    Cause.CLUSTER_FULL: _full,
    Cause.FRAGMENTATION: _node_capacity,
    Cause.NODE_ROOM: _node_capacity,
    Cause.SELECTOR: _clause,
    Cause.TAINT: _clause,
    Cause.UNSCHEDULABLE_NODE: _clause,
    Cause.PODS_MISSING: lambda diagnosis: f"{diagnosis.subject.get('owner', 'its owner')} creates the missing pods",
    Cause.ORDER: _order,
}
"""Remedies by cause, for causes that neither time ends nor a reason's own remedy."""
