"""Why a job waits, as a phrase for a row of a list. `causes.py` has the full sentence."""

from __future__ import annotations

from typing import Final

from vcd.model.diagnosis import Diagnosis
from vcd.model.reasons import Cause
from vcd.model.wording import counted, cut, some
from vcd.text.amounts import number, resource_name

LONGEST = 80
"""Characters of a phrase, at most."""
UNKNOWN: Final = "no session has said why"
"""The phrase of a waiting job for which no session states a reason."""

PHRASES: Final[dict[str, str]] = {
    Cause.SHAPE: "never: the largest node has {largest} {resource}",
    "shape-of-some": "never: the largest node with {clause} has {largest} {resource}",
    Cause.CLUSTER_FULL: "cluster full: {free} of {total} {resource} free",
    "cluster-too-small": "never: all nodes together have {total} {resource}",
    Cause.NODE_ROOM: "no allowed node has {asks} {resource} free",
    "node-room-for-some": "{fits} of {needs} pods fit on allowed nodes",
    Cause.FRAGMENTATION: "fragmented: {free} {resource} free, no node has {pod}",
    "fragmented-for-some": "fragmented: {free} {resource} free, {fits} of {needs} pods fit",
    "fragmented-by-resources": "fragmented: no node has all that a pod asks for",
    Cause.QUEUE_DESERVED: "queue {queue}: {has} of {limit} {resource} in use",
    Cause.QUEUE_CAPABILITY: "queue {queue}: {has} of {limit} {resource} in use",
    "limit-and-reserved": "queue {queue}: {has} of {limit} {resource} in use or reserved",
    "limit-of-none": "queue {queue} may use 0 {resource}, needs {asks}",
    Cause.PARENT_LIMIT: "queue {queue} above it: {has} of {limit} {resource} in use",
    Cause.OTHERS_GUARANTEE: "reserved for queue {queue}: {has} of {limit} other {resource} in use",
    Cause.CARD_QUOTA: "queue {queue}: {has} of {limit} {resource} cards in use",
    Cause.NAMESPACE_QUOTA: "ResourceQuota {quota}: {used} of {limit} {resource} in use",
    Cause.ADMISSION: "not admitted: {has} of {limit} {resource} reserved",
    Cause.PODS_MISSING: "{pods} of {minimum} pods exist",
    Cause.ORDER: "behind {ahead}",
    Cause.LEAVING: "capacity is being freed: {counted_pods} terminating",
    Cause.QUEUE_CLOSED: "queue {queue} is not open",
    Cause.GATED: "scheduling gate {gate}",
    Cause.UNSUPPORTED: "not supported: {field}",
    Cause.TAINT: "taint {clause} excludes {excluded} of {nodes} nodes",
    Cause.UNSCHEDULABLE_NODE: "{excluded} of {nodes} nodes are cordoned",
    Cause.NODE_POLICY: "{clause} ({excluded} of {nodes} nodes)",
    "clause-of-none": "no node has {clause}",
    "clause-of-others": "no node has {clause} (existing: {existing})",
    "clause": "{clause}: {passes} of {nodes} nodes, needs {needs}",
    "claim": "claim {claim}: {passes} of {nodes} nodes",
}
"""Templates by cause or variant of a cause. `_facts` provides the names in braces."""


def phrase(diagnosis: Diagnosis) -> str:
    """Return why a job waits, in at most LONGEST characters; without a matching template, the words of the reason."""
    try:
        text = PHRASES[_variant(diagnosis)].format_map(_facts(diagnosis))
    except KeyError:  # no template, or a plugin's reason lacks a name that the template needs
        text = diagnosis.words or diagnosis.cause
    return cut(text, LONGEST)


def existing_values(diagnosis: Diagnosis) -> str:
    """Return the values of a label that exist on nodes, the first ones of many; empty unless the diagnosis lists
    them."""
    values = diagnosis.subject.get("existing", "").split(", ")
    return some(values, len(values), diagnosis.amounts.get("", {}).get("existing", 0))


def _variant(diagnosis: Diagnosis) -> str:
    """Return the template's name for a diagnosis: some causes have several, for different quantities."""
    cause, subject, counts = diagnosis.cause, diagnosis.subject, diagnosis.amounts.get("", {})
    if "passes" in counts:
        if "claim" in subject:
            return "claim"
        if cause in (Cause.TAINT, Cause.UNSCHEDULABLE_NODE, Cause.NODE_POLICY):
            return cause
        if counts["passes"] or "clause" not in subject:
            return "clause"
        return "clause-of-others" if "existing" in subject else "clause-of-none"
    if cause == Cause.SHAPE:
        return "shape-of-some" if "clause" in subject else cause
    if cause == Cause.CLUSTER_FULL:
        first = next((of for name, of in diagnosis.amounts.items() if name), {})
        return "cluster-too-small" if first["asks"] > first["total"] else cause
    if cause == Cause.NODE_ROOM:
        return "node-room-for-some" if counts.get("fits") else cause
    if cause == Cause.FRAGMENTATION:
        if counts.get("fits"):
            return "fragmented-for-some"
        pieces = [of for name, of in diagnosis.amounts.items() if name and "pod" in of]
        return "fragmented-by-resources" if pieces and all(of["largest"] >= of["pod"] for of in pieces) else cause
    if cause == Cause.ADMISSION and "queue" in subject:
        return "limit-and-reserved"
    if cause in (Cause.QUEUE_DESERVED, Cause.QUEUE_CAPABILITY, Cause.CARD_QUOTA):
        limited = next((of for name, of in diagnosis.amounts.items() if name), {})
        if limited.get("limit") == 0 and "asks" in limited:
            return "limit-of-none"
        return "limit-and-reserved" if limited.get("reserved") and cause != Cause.CARD_QUOTA else cause
    if cause == Cause.ORDER and "ahead" not in subject:
        return ""
    return cause


def _facts(diagnosis: Diagnosis) -> dict[str, str]:
    """Return the values for templates: the subject, the counts, and the quantities of the first resource that is
    short."""
    counts = diagnosis.amounts.get("", {})
    facts = {role: f"{count:,}" for role, count in counts.items()}
    if "pods" in counts:
        facts["counted_pods"] = counted(counts["pods"], "pod")
    if "passes" in counts and "nodes" in counts:
        facts["excluded"] = f"{counts['nodes'] - counts['passes']:,}"
    resource = next((name for name in diagnosis.amounts if name), "")
    facts["resource"] = resource_name(resource)
    if resource:
        facts |= {role: number(resource, amount) for role, amount in diagnosis.amounts[resource].items()}
    facts |= diagnosis.subject
    clause = facts.get("clause", facts.get("term", ""))
    facts["clause"] = clause.removeprefix("nodeSelector ").removeprefix("nodeAffinity ")
    facts["existing"] = existing_values(diagnosis)
    return facts
