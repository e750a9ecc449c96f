"""The sentence that states a diagnosis. `phrases.py` has its short form for rows of a list."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from vcd.model.diagnosis import Diagnosis
from vcd.model.reasons import JOB_ROLES, Cause
from vcd.model.wording import counted, without_others
from vcd.text.amounts import number, resource_name
from vcd.text.phrases import existing_values

LONGEST = 200
"""Characters of a sentence with `shortened`, at most."""


_LONG = 50
"""Characters of a name in a sentence, at most."""
_IMPLIED: dict[str, str] = {Cause.GATED: "gate", Cause.QUEUE_CLOSED: "queue"}
"""The role of the name that the words of a reason lack, by cause."""
JOBS = ("holder", "ahead")
"""Roles of the jobs that a sentence names."""


def said(diagnosis: Diagnosis) -> str:
    """Return what a job waits for, as a sentence."""
    subject = {role: cut(name) if role in JOBS else name for role, name in diagnosis.subject.items()}
    return _sentence(msgspec.structs.replace(diagnosis, subject=subject))


def for_namespace(diagnosis: Diagnosis, namespace: str) -> Diagnosis:
    """Return a diagnosis for readers in one namespace: jobs of other namespaces are not named."""
    subject, words = dict(diagnosis.subject), diagnosis.words
    for role, name in diagnosis.subject.items():
        if role in JOB_ROLES:
            subject[role] = without_others(name, namespace)
            words = words.replace(name, subject[role])
    return msgspec.structs.replace(diagnosis, subject=subject, words=words)


def cut(name: str) -> str:
    """Shorten a long name in the middle: names of one owner begin the same and differ at the end."""
    half = (_LONG - 3) // 2
    return name if len(name) <= _LONG else f"{name[:half]}...{name[-half:]}"


def _sentence(diagnosis: Diagnosis) -> str:
    if "passes" in diagnosis.amounts.get("", {}):  # a clause of a node selector, taint or claim, whatever the cause
        return _of_claim(diagnosis) if "claim" in diagnosis.subject else _of_clause(diagnosis)
    if diagnosis.words:
        return _of_namespace(diagnosis) if diagnosis.cause == Cause.NAMESPACE_QUOTA else _own_words(diagnosis)
    return _SENTENCES.get(diagnosis.cause, _own_words)(diagnosis)


def shortened(text: str, end: str = "") -> str:
    """Return a sentence cut to LONGEST characters: ``end`` stays whole, and as many leading clauses as fit before
    it."""
    left = LONGEST - len(end)
    if len(text) > left:
        parts = max(text.rfind(mark, 0, left) for mark in ("; ", ", "))
        text = text[:parts] if parts > left // 2 else f"{text[: max(left - 4, 0)].rstrip()} ..."
    return text + end[:LONGEST]


class _Quantities:
    """Quantities of the first resource that is short, and the counts, as text."""

    def __init__(self, diagnosis: Diagnosis) -> None:
        self.counts = diagnosis.amounts.get("", {})
        self.resource = next((name for name in diagnosis.amounts if name), "")
        self._amounts = diagnosis.amounts.get(self.resource, {}) if self.resource else {}

    def __getitem__(self, role: str) -> str:
        """Return a quantity without its resource; ``none`` if it is missing."""
        return number(self.resource, self._amounts[role]) if role in self._amounts else "none"

    def of(self, role: str) -> str:
        """Return a quantity with its resource: ``8 GPU``."""
        return f"{self[role]} {resource_name(self.resource)}"

    @property
    def needs(self) -> str:
        """Return how many pods are missing and how many of them fit: ``it needs 4 pods, 2 fit``."""
        needs, fits = self.counts.get("needs", 1), self.counts.get("fits", 0)
        return "it needs 1 pod" if needs == 1 else f"it needs {needs} pods, {fits} fit"


def _own_words(diagnosis: Diagnosis) -> str:
    about = ", ".join(f"{role} {name}" for role, name in diagnosis.subject.items() if role not in ("pod", "words"))
    if not diagnosis.words:
        return f"{diagnosis.cause} ({about})" if about else diagnosis.cause
    name = diagnosis.subject.get(_IMPLIED.get(diagnosis.cause, ""))
    return diagnosis.words if name is None else f"{diagnosis.words}: {name}"


def _shape(diagnosis: Diagnosis) -> str:
    figures, clause = _Quantities(diagnosis), diagnosis.subject.get("clause")
    which = f" with {clause}" if clause else ""
    return (
        f"can never run here: a pod requests {figures.of('asks')}, and node {diagnosis.subject['node']}, the largest"
        f"{which}, has {figures['largest']}"
    )


_EXCLUDING: dict[str, str] = {
    Cause.TAINT: "taint {}",
    Cause.UNSCHEDULABLE_NODE: "a cordon (spec.unschedulable)",
    Cause.NODE_POLICY: "a policy ({})",
}
"""What keeps a pod from nodes, by cause."""


def _of_clause(diagnosis: Diagnosis) -> str:
    counts, subject = _Quantities(diagnosis).counts, diagnosis.subject
    if "clause" not in subject:
        passes = f"{counts['passes']} of {counted(counts['nodes'], 'node')} pass it"
        return f"{subject['term']}: {passes}; {_Quantities(diagnosis).needs}"
    clause, excluded = subject["clause"], counts["excluded with room"]
    if diagnosis.cause in _EXCLUDING:
        kept = counts["nodes"] - counts["passes"]
        what = _EXCLUDING[diagnosis.cause].format(clause)
        words = f"{what} excludes {kept} of {counted(counts['nodes'], 'node')}, {excluded} of these with capacity"
    else:
        existing = f" (existing: {existing_values(diagnosis)})" if "existing" in subject else ""
        words = f"{clause} fits {counts['passes']} of {counted(counts['nodes'], 'node')}{existing}"
        words += f", {excluded} others with capacity"
    return f"{words}; {_Quantities(diagnosis).needs}"


def _node_capacity(diagnosis: Diagnosis) -> str:
    figures, subject = _Quantities(diagnosis), diagnosis.subject
    held = f", held by {subject['holder']}" if "holder" in subject else ""
    most = f"{subject['node']} has most, {figures['most']}{held}"
    if fits := figures.counts.get("fits"):  # some pods fit, but fewer than needed
        needs = counted(figures.counts["needs"], "pod")
        return f"nodes that it may use fit {fits} of {needs} of {figures.of('asks')} ({most})"
    return f"no node that it may use has {figures.of('asks')} free ({most})"


def _fragmentation(diagnosis: Diagnosis) -> str:
    figures, amounts = _Quantities(diagnosis), diagnosis.amounts
    if all(of["largest"] >= of["pod"] for name, of in amounts.items() if name and "pod" in of):
        which = "too few nodes have" if figures.counts.get("fits") else "no node has"
        return f"enough is free in sum, and {which} all that a pod requests at once: {figures.needs}"
    return (
        f"{figures.of('free')} are free in sum, {figures['largest']} on a node at most; it requests {figures['asks']}:"
        f" {figures.needs}"
    )


def _full(diagnosis: Diagnosis) -> str:
    figures, holder = _Quantities(diagnosis), diagnosis.subject.get("holder")
    held = f"; {holder} holds most" if holder else ""
    amounts = diagnosis.amounts[figures.resource]
    if amounts["asks"] > amounts["total"]:
        return f"it needs {figures.of('asks')}, and all nodes together have {figures['total']}"
    free = f"{figures['free']} of {figures.of('total')} are free"
    return f"the cluster is full: {free}, and it needs {figures['asks']}{held}"


def _limit(diagnosis: Diagnosis) -> str:
    figures, subject = _Quantities(diagnosis), diagnosis.subject
    taken = f"{_in_use(diagnosis)}, and it requests {figures['asks']}"
    field = subject.get("field", "").removeprefix("metadata.annotations[").removesuffix("]")
    if diagnosis.cause == Cause.OTHERS_GUARANTEE:
        what = "what queue {} deserves and can use" if field == "spec.weight" else "what is guaranteed to queue {}"
        reserved = f"{what.format(subject['queue'])} ({field}) leaves {figures.of('limit')}"
        return f"{reserved}: {taken}"
    # without a field, the cluster's total is the limit, or a third-party plugin declares no field of its limit
    return f"queue {subject['queue']} may use {figures.of('limit')}{f' ({field})' if field else ''}: {taken}"


def _in_use(diagnosis: Diagnosis) -> str:
    """Return what counts against a limit: ``4 in use``, or ``1 in use, 3 reserved, most for ns/job``."""
    figures = _Quantities(diagnosis)
    amounts = diagnosis.amounts[figures.resource]
    if not amounts.get("reserved"):
        return f"{figures['has']} in use"
    used = amounts["has"] - amounts["reserved"]
    in_use = f"{number(figures.resource, used)} in use, " if used else ""
    holder = f", most for {diagnosis.subject['holder']}" if "holder" in diagnosis.subject else ""
    return f"{in_use}{figures['reserved']} reserved{holder}"


def _admission(diagnosis: Diagnosis) -> str:
    figures, subject = _Quantities(diagnosis), diagnosis.subject
    if "queue" in subject:
        return _limit(diagnosis)
    holder = f", most by {subject['holder']}" if "holder" in subject else ""
    return (
        f"not admitted: {figures['has']} of {figures.of('limit')} that {subject['field']} leaves are reserved{holder},"
        f" and it requests {figures['asks']}"
    )


def _of_claim(diagnosis: Diagnosis) -> str:
    claim, counts = diagnosis.subject["claim"], _Quantities(diagnosis).counts
    passes = f"{counts['passes']} of {counted(counts['nodes'], 'node')}"
    return f"claim {claim} leads to {passes} ({diagnosis.words}); {_Quantities(diagnosis).needs}"


def _of_namespace(diagnosis: Diagnosis) -> str:
    figures, subject = _Quantities(diagnosis), diagnosis.subject
    if not figures.resource:
        return _own_words(diagnosis)
    used = f"{figures['used']} of {figures.of('limit')} are used"
    return f"ResourceQuota {subject['quota']}: {used}, and it requests {figures['asks']}"


def _pods_missing(diagnosis: Diagnosis) -> str:
    counts = _Quantities(diagnosis).counts
    return f"{counts['pods']} of {counts['minimum']} pods exist; {diagnosis.subject['owner']} has to create the others"


def _order(diagnosis: Diagnosis) -> str:
    counts, subject = _Quantities(diagnosis).counts, diagnosis.subject
    if "ahead" not in subject:
        return "nodes have enough capacity, and its turn did not come"
    more = f" and {counted(counts['served'] - 1, 'other job')}" if counts["served"] > 1 else ""
    key = f" ({subject['key']})" if subject.get("key") else ""
    later = f"; {counted(counts['later'], 'later job')} overtook it" if counts.get("later") else ""
    return f"what it needs went to {subject['ahead']}{key}{more} first{later}"


def _terminating(diagnosis: Diagnosis) -> str:
    counts, holder = _Quantities(diagnosis).counts, diagnosis.subject.get("holder")
    whose = f" of {holder}" if holder else ""
    return f"capacity is being freed for it: {counted(counts['pods'], 'pod')}{whose} terminating"


_SENTENCES: dict[str, Callable[[Diagnosis], str]] = {
    Cause.SHAPE: _shape,
    Cause.NODE_ROOM: _node_capacity,
    Cause.FRAGMENTATION: _fragmentation,
    Cause.CLUSTER_FULL: _full,
    Cause.QUEUE_CAPABILITY: _limit,
    Cause.QUEUE_DESERVED: _limit,
    Cause.PARENT_LIMIT: _limit,
    Cause.OTHERS_GUARANTEE: _limit,
    Cause.CARD_QUOTA: _limit,
    Cause.ADMISSION: _admission,
    Cause.PODS_MISSING: _pods_missing,
    Cause.ORDER: _order,
    Cause.LEAVING: _terminating,
}
"""Sentences by cause, for diagnoses without a clause and without words of their own."""
