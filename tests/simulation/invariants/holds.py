"""Remarks on holds are true: whoever is named holds, by plain objects, what the remark says (docs/laws.md, law 8)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.laws.accounts import asked_by
from tests.simulation.invariants.witness import Witness
from tests.simulation.replica import Machine
from vcd.daemon.service import SchedulerService
from vcd.model import events as ev
from vcd.model.reasons import Reason
from vcd.model.status import TaskStatus
from vcd.model.wording import rfc3339
from vcd.scheduling.framework.declared_reasons import cause_of, keeps_back
from vcd.scheduling.session.session import Session
from vcd.text.reason_sentences import full_reason_text, reason_for_namespace

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

_FULL = {"node-room", "fragmentation", "cluster-full"}
_LIMITED = {"queue-capability", "parent-limit"}
_WHERE_EVICTION_HELPS = {
    "queue-deserved",
    "others-guarantee",
    "order",
    "device",
    "pod-affinity",
    "spread",
    "ports",
    "volume",
}
_EXPLAINED = {
    "held-nominated": _FULL,
    "held-reserved": {"admission", *_LIMITED},
    "held-guaranteed": _LIMITED,
    "eviction-refused": {*_FULL, *_LIMITED, *_WHERE_EVICTION_HELPS},
}
"""The causes of reasons and verdicts that each remark may follow."""
_GOING = (int(TaskStatus.RELEASING), int(TaskStatus.SUCCEEDED), int(TaskStatus.FAILED))
_SECOND = 10**9


def with_remarks(words: str, cause: str, reasons: Iterable[ev.Waiting]) -> str:
    """A reason or verdict of a cause in words, with the remarks that follow it."""
    remarks = [one for one in held_in(reasons) if cause in _EXPLAINED[_said(one).code]]
    return "; ".join([words, *map(reason_for_namespace, remarks)])


def held_in(reasons: Iterable[ev.Waiting]) -> list[ev.Waiting]:
    """The remarks on holds among reasons."""
    return [one for one in reasons if one.gate == "held"]


def _said(remark: ev.Waiting) -> Reason:
    assert isinstance(remark.reason, Reason)
    return remark.reason


class Holds:
    """Looks at each session as it is told: at the remarks of all groups that wait after it."""

    def __init__(self, sim: Simulation, witness: Witness) -> None:
        self._sim = sim
        witness.services.append(self._watch)

    def _watch(self, machine: Machine, service: SchedulerService) -> None:
        tell = service.status_reporter.session

        def watched(record: ev.SessionDecided | None, plan: ev.Plan, session: Session, durations: Any) -> None:
            for what in untrue(plan, session):
                self._sim.violated("reasons are true", f"{machine.name}, session at {session.now}: {what}")
            tell(record, plan, session, durations)

        service.status_reporter.session = watched  # type: ignore[method-assign]


def untrue(plan: ev.Plan, session: Session) -> Iterator[str]:
    """What a session says of holds that is not so; of a group whose turn comes in another session it says nothing."""
    facts, aside = _Facts(plan, session), {session.jobs.keys[index] for index in np.flatnonzero(session.turns.aside)}
    for group, reasons in ev.waits_after(session.snapshot.waiting, plan.waiting).items():
        first = next(filter(keeps_back, reasons), None)
        for remark in held_in(reasons) if group not in aside else ():
            if first is None or cause_of(first) not in _EXPLAINED[_said(remark).code]:
                yield f"{group} is told of a hold that does not explain its first reason: {full_reason_text(remark)!r}"
            elif not facts.hold(group, _said(remark)):
                yield f"{group} is told of a hold that is none: {full_reason_text(remark)!r}"


class _Facts:
    """Pods, groups and queues as a session saw them, and what it decided; counted pod by pod."""

    def __init__(self, plan: ev.Plan, session: Session) -> None:
        self._session, self._snapshot = session, session.snapshot
        operations = [one for statement in plan.statements for one in statement.operations]
        self._evicted = {one.key for one in operations if one.verb == "evict"}
        self._nodes_of: dict[str, set[str]] = {}
        """Where pods of a group wait for capacity."""
        for one in operations:
            if one.verb == "pipeline":
                self._nodes_of.setdefault(self._group_of(self._row_of[one.key]), set()).add(one.node)

    @cached_property
    def _row_of(self) -> Mapping[str, int]:
        return {key: row for row, key in enumerate(self._snapshot.tasks.keys) if key is not None}

    def _group_of(self, row: int) -> str:
        number = int(self._snapshot.tasks.job[row])
        return "" if number < 0 else self._snapshot.job_keys[number] or ""

    def hold(self, group: str, remark: Reason) -> bool:
        """Whether those whom a remark to a group names hold what it says."""
        names, held = dict(remark.names), remark.amounts_of("held")
        if remark.code == "eviction-refused":
            return names["until"] == self._rests_until(group)
        listed, _, more = names["owner" if remark.code == "held-nominated" else "owners"].partition(" and ")
        owners = listed.split(", ")
        if len(set(owners)) < len(owners) or group in owners:
            return False
        checks: dict[str, Callable[[], bool]] = {
            "held-nominated": lambda: all(self._could_use(group, owner) for owner in owners),
            "held-reserved": lambda: self._reserve(owners, held, names.get("until", ""), bool(more)),
            "held-guaranteed": lambda: self._are_guaranteed(group, owners, held, bool(more)),
        }
        return checks[remark.code]()

    def _rests_until(self, group: str) -> str:
        backoffs = self._snapshot.backoffs.values()
        times = [one.others_from for one in backoffs if one.verb == "evict" and one.preemptor == group]
        return rfc3339(max(times, default=0))

    # --- nominations --------------------------------------------------------------------------------------------------

    def _could_use(self, group: str, owner: str) -> bool:
        """Whether a pod of a group would find capacity on a node where pods of another one wait for it."""
        asked = [
            asked_by(pod)
            for row, pod in self._pods()
            if self._group_of(row) == group and self._snapshot.tasks.status[row] == TaskStatus.PENDING
        ]
        left = [self._left_on(node) for node in self._nodes_of.get(owner, ())]
        return any(all(free.get(name, 0) >= amount for name, amount in ask.items()) for free in left for ask in asked)

    def _left_on(self, node: str) -> dict[str, int]:
        """What a node has beside the pods that stay there."""
        facts, used = self._snapshot.facts, Counter[str]()
        row = facts.names.index(node)
        for at, pod in self._pods():
            if self._snapshot.tasks.node[at] == row and self._stays(at):
                used.update(asked_by(pod))
        amounts = zip(self._snapshot.resources, facts.allocatable[row].tolist(), strict=True)
        return {name: amount - used[name] for name, amount in amounts}

    def _pods(self) -> Iterator[tuple[int, Any]]:
        return ((row, pod) for row, pod in enumerate(self._snapshot.tasks.pods) if pod is not None)

    def _stays(self, row: int) -> bool:
        tasks = self._snapshot.tasks
        return tasks.status[row] not in _GOING and tasks.keys[row] not in self._evicted

    # --- reservations and guarantees ----------------------------------------------------------------------------------

    def _reserve(self, owners: list[str], held: Mapping[str, int], until: str, more: bool) -> bool:
        """Whether admitted groups that lack pods have these minimum resources together, and end then."""
        snapshot, total = self._snapshot, Counter[str]()
        pods = Counter(self._group_of(row) for row, _ in self._pods())
        timeout, ends = snapshot.settings.admission_timeout * _SECOND, 0
        for owner in owners:
            record = snapshot.groups.get(owner)
            if record is None or record.group.status.phase != "Inqueue":
                return False
            if pods[owner] >= max(record.group.spec.min_member, 1):
                return False
            total.update(record.min_resources or {})
            admission = snapshot.admissions[owner]
            ends = max(ends, admission.since + timeout if admission.since and timeout else 0)
        if more:
            return all(amount >= total[name] for name, amount in held.items())
        return all(amount == total[name] for name, amount in held.items()) and until == (rfc3339(ends) if ends else "")

    def _are_guaranteed(self, group: str, owners: list[str], held: Mapping[str, int], more: bool) -> bool:
        """Whether queues, none of them the group's, are guaranteed this and their pods do not use it."""
        queues, total = self._snapshot.queues, Counter[str]()
        for owner in owners:
            if owner not in queues or owner == self._queue_of(group):
                return False
            used: Counter[str] = Counter()
            for row, pod in self._pods():
                if self._snapshot.tasks.node[row] >= 0 and self._stays(row):
                    used.update(asked_by(pod) if self._queue_of(self._group_of(row)) == owner else {})
            unused = {name: max(queues[owner].guarantee.get(name, 0) - used[name], 0) for name in held}
            if not any(unused.values()):
                return False
            total.update(unused)
        return bool(held) and (more or all(amount <= total[name] for name, amount in held.items()))

    def _queue_of(self, group: str) -> str:
        record = self._snapshot.groups.get(group)
        return "" if record is None else self._session.queue_name_of(record)
