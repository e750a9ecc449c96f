"""The logged reasons of a wait as text: the sentence, names and quantities of each, as its plugin declared them.

A diagnosis (`causes.py`) is used where nodes and limits can be examined again. This text is for reasons exactly as a
session stated them: the story of a job, a session, a plan.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from vcd.model.events import Waiting
from vcd.model.reasons import JOB_ROLES, REMEDY, Cause, Reason
from vcd.model.wording import counted, without_others
from vcd.scheduling.framework.declared_reasons import Told, mending, told
from vcd.text.amounts import amount_of

ROLES = {"asks": "requested", "has": "in use"}
"""Roles of quantities that text names differently."""


def reason_text(reason: Told) -> str:
    """Return a reason with its quantities: ``3 nodes Insufficient cpu (requested 4 cpu)``."""
    is_of_nodes = reason.nodes and reason.cause != Cause.INVALID
    words = f"{counted(reason.nodes, 'node')} {reason.reason}" if is_of_nodes else reason.reason
    message, quantities = reason.detail.get("message"), _quantities(reason)
    others = {name: text for name, text in reason.detail.items() if name not in ("message", REMEDY)}
    facts = [quantities.get(name, f"{name} {text}") for name, text in others.items()]
    return words + (f": {message}" if message else "") + (f" ({', '.join(facts)})" if facts else "")


def _quantities(reason: Told) -> dict[str, str]:
    """Return the quantities of a reason as text, by their names among its details."""
    return {
        f"{role} {resource}".rstrip(): f"{ROLES.get(role, role)} {amount_of(resource, amount)}"
        for resource, amounts in reason.amounts.items()
        for role, amount in amounts.items()
    }


def gate_text(reason: Waiting | Told) -> str:
    """Return the gate at which a group waits and the plugin that refuses it: ``queue (PLUGIN)``."""
    return reason.gate if reason.plugin in ("", reason.gate) else f"{reason.gate} ({reason.plugin})"


def pods_text(reason: Waiting | Told) -> str:
    """Return the pods that a reason concerns: ``5 pods (a, b, c ...)``. A pod that was tried twice counts once."""
    names = list(dict.fromkeys(key.partition("/")[2] for key in reason.pods))
    count = len(names) if reason.tasks <= len(reason.pods) else reason.tasks
    if count == 1:
        return names[0]
    return f"{count} pods ({', '.join(names)}{' ...' if count > len(names) else ''})"


def reasons_text(reasons: Iterable[Told]) -> str:
    """Return the reasons of a wait: ``queue is closed; 4 pods (a, b ...): no node fits``."""
    return "; ".join(
        f"{pods_text(one)}: {reason_text(one)}" if one.pods else reason_text(one) for one in _without_gang(reasons)
    )


def gates_text(reasons: Iterable[Told]) -> str:
    """Return the reasons with the gate of each: ``at queue (PLUGIN): queue is closed; at predicate for a: no node``."""
    pods = ((one, f" for {pods_text(one)}" if one.pods else "") for one in _without_gang(reasons))
    return "; ".join(f"at {gate_text(one)}{whose}: {reason_text(one)}" for one, whose in pods)


def _without_gang(reasons: Iterable[Told]) -> list[Told]:
    """Remove the gang's reason, unless it is the only one: a gang waits because its pods wait."""
    given = list(reasons)
    return [one for one in given if one.gate != "gang"] or given


def full_reason_text(waiting: Waiting) -> str:
    """Return a reason with its quantities, its plugin, and the remedy if waiting does not help."""
    source, remedy = f" [{waiting.plugin}]" if waiting.plugin else "", mending(waiting)
    return f"{reason_text(told(waiting))}{source}" + (f"; this does not pass by itself: {remedy}" if remedy else "")


def reason_for_namespace(waiting: Waiting) -> str:
    """Return the same text for readers in the group's namespace: jobs of other namespaces are not named."""
    reason = waiting.reason
    if not isinstance(reason, Reason):
        return full_reason_text(waiting)
    namespace = waiting.group.partition("/")[0]
    names = tuple((role, without_others(name, namespace) if role in JOB_ROLES else name) for role, name in reason.names)
    return full_reason_text(msgspec.structs.replace(waiting, reason=msgspec.structs.replace(reason, names=names)))
