"""The jobs that wait at the end of one session, each with its cause, for lists."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from vcd.diagnosis.group_wait import GroupWait
from vcd.diagnosis.job_diagnosis import diagnosed, pods_missing
from vcd.diagnosis.waiting_job import Served, served
from vcd.model import events as ev
from vcd.model.diagnosis import Diagnosis
from vcd.model.objects import PodGroup
from vcd.model.status import TaskStatus
from vcd.scheduling.framework.declared_reasons import keeps_back
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job
from vcd.text.amounts import needs
from vcd.text.causes import said
from vcd.text.phrases import phrase


class DiagnosedWait(msgspec.Struct, frozen=True):
    """A waiting job. ``group`` is the key of its PodGroup, ``job`` the name that users know (`job_name`); ``needs`` is
    what its pods without a node request; ``cause``, ``subject`` and ``amounts`` are those of its `Diagnosis`, ``why``
    states it in a few words and ``text`` in a sentence."""

    group: str
    job: str
    queue: str
    needs: str
    cause: str
    why: str
    text: str
    subject: dict[str, str] = {}
    amounts: dict[str, dict[str, int]] = {}


Diagnose = Callable[[GroupWait, Served], Diagnosis]
"""Returns the cause of a wait at one session."""
NONE_SERVED = served(frozenset())


def diagnosed_waits(
    session: Session,
    waiting: Mapping[str, tuple[ev.Waiting, ...]],
    over_time: Callable[[GroupWait, Diagnose], Diagnosis] = lambda wait, diagnose: diagnose(wait, NONE_SERVED),
) -> list[DiagnosedWait]:
    """Return the groups that wait at the end of a session, by key; ``waiting`` gives their reasons.

    ``over_time`` returns the cause that held longest; without it, the cause is that of the session.

    A group without a reason that keeps it back waits only if pods are missing, for which no session states a reason.
    Jobs with equal requests and equal reasons are diagnosed once.
    """
    diagnose = _Diagnoses(session)
    found = []
    for group in sorted(waiting):
        record = session.snapshot.groups.get(group)
        if record is None:
            continue
        wait = GroupWait(group, session, tuple(filter(keeps_back, waiting[group])))
        diagnosis = over_time(wait, diagnose) if wait.reasons else _without_reason(wait)
        if diagnosis is None:
            continue
        requested = "" if wait.job is None else needs(_requests(wait.job))
        where = (group, job_name(record.group), session.queue_name_of(record), requested)
        about = diagnosis.subject, diagnosis.amounts
        found.append(DiagnosedWait(*where, diagnosis.cause, phrase(diagnosis), said(diagnosis), *about))
    return found


def _without_reason(wait: GroupWait) -> Diagnosis | None:
    return None if wait.job is None else pods_missing(wait.job)


def job_name(group: PodGroup) -> str:
    """Return the name by which users know a group, with its namespace: that of its Volcano Job, else its own."""
    meta = group.metadata
    owners = (one.name for one in meta.owner_references if one.controller and one.kind == "Job")
    owner = next((name for name in owners if meta.name.startswith(f"{name}-")), meta.name)
    return f"{meta.namespace}/{owner}"


class _Diagnoses:
    """The diagnoses of a session, one for all equivalent jobs."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._found: dict[Any, Diagnosis] = {}

    def __call__(self, wait: GroupWait, served: Served) -> Diagnosis:
        """Return the diagnosis of a wait; of two results of ``served``, one contains the other."""
        key = len(served(self._session)), self._key(wait)
        if key not in self._found:
            self._found[key] = diagnosed(wait, served)
        return self._found[key]

    def _key(self, wait: GroupWait) -> Any:
        job = wait.job
        if job is None:
            return wait.group
        shape_of = self._session.snapshot.tasks.shape
        pods = tuple(sorted((int(shape_of[task.row]), task.labels, task.status) for task in job.pending()))
        reasons = [msgspec.msgpack.encode(msgspec.structs.replace(one, group="", pods=())) for one in wait.reasons]
        namespace = wait.group.partition("/")[0]
        return namespace, job.queue.index, job.min_available, job.ready_count, job.task_count, pods, tuple(reasons)


def _requests(job: Job) -> Iterable[Mapping[str, int]]:
    """Yield what each pod of a job without a node requests, by resource."""
    return (task.shape.requests for task in job.pending() if task.status == TaskStatus.PENDING)
