"""The verdict on a waiting job: the cause that held longest, its subject and quantities, in one sentence."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from vcd.diagnosis.dominant_cause import dominant
from vcd.diagnosis.funnel import Funnel
from vcd.diagnosis.group_wait import pending_task
from vcd.diagnosis.job_diagnosis import diagnosed, pods_missing
from vcd.diagnosis.waiting_job import Served, served
from vcd.diagnosis.waittimeline import WaitSpan, WholeWait
from vcd.eventlog.log_reader import LAST
from vcd.model.diagnosis import Diagnosis, FunnelLine
from vcd.model.events import ObjectGone
from vcd.model.objects import Pod, PodGroup
from vcd.model.status import Phase
from vcd.model.wording import SECOND, span_in_words
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.framework.order_positions import precedence
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job
from vcd.state.records import seconds_of
from vcd.text.causes import JOBS, cut, said, shortened
from vcd.text.job_names import ANOTHER
from vcd.text.remedies import remedy_of
from vcd.text.time_formats import moment
from vcd.timetravel.history import WHOLE, History, LogWindow, object_in
from vcd.timetravel.query_errors import NotFound
from vcd.timetravel.why.job_waits import first_placement, wait_at

if TYPE_CHECKING:
    from vcd.timetravel.why.counterfactual import Counterfactual

_ENDED = ("Succeeded", "Failed")
_MOST_JOBS = 500
"""Jobs that are checked for whether they were created later, at most."""


class Verdict(msgspec.Struct, frozen=True):
    """Why a job waited.

    ``cause`` is the one that held longest, for ``share`` of the ``waited`` seconds that began at ``since`` (RFC 3339);
    ``subject`` names what it is about and ``amounts`` has the quantities, by resource (empty for counts) and role in
    base units, as of ``session``. ``remedy`` is what would end a wait for this cause, ``fix`` the smallest change that
    would let it start, ``verified`` by deciding again; ``text`` states all in a sentence, ``why`` the cause alone.
    ``funnel`` counts the nodes that pass each clause of a pod. The wait is the present one (``still``) or the last one;
    ``earlier`` ones lasted ``earlier_waited`` seconds in total. ``looked`` is the examined part of the wait, which is
    less than 1 if it had very many kinds of reasons. ``older`` is a wait that began before the log.
    """

    job: str
    cause: str
    subject: dict[str, str]
    amounts: dict[str, dict[str, int]]
    since: str
    waited: float
    share: float
    session: int
    fix: str
    verified: bool
    text: str
    funnel: list[FunnelLine] = []
    earlier: int = 0
    earlier_waited: float = 0
    looked: float = 1
    older: bool = False
    still: bool = False
    why: str = ""
    remedy: str = ""


def _without_pods(history: History, group: str, window: LogWindow) -> Verdict:
    """Return the verdict on a job for which no session states a reason: it waits if pods of it are missing, unless it
    has completed."""
    observed, number = _observed_states(history, group, window), window.last_session(history.reader)
    if number and not _has_completed(history, group, observed, window):
        record, session = history.rerun(number)
        index = session.jobs.index(group)
        found = None if index is None else pods_missing(session.job(index))
        if found is not None:
            since = max([window.since, *(time for _, time, _ in observed[:1])])
            waited = max(window.end(history.reader) - since, 0)
            verdict = _build_verdict(group, found, since, waited, waited, record.session, "waits")
            return msgspec.structs.replace(verdict, still=True, remedy=remedy_of(found, ()))
    raise NotFound(f"event log {history.reader.path}: job {group} waits in none of its sessions")


_ObservedGroup = tuple[int, int, PodGroup]
"""The number and time (ns) of an event, and the group in it."""


def _observed_states(history: History, group: str, window: LogWindow) -> list[_ObservedGroup]:
    """Return the observed states of a group since a group of its name was deleted, or the log begins."""
    reader, record = history.reader, history.oldest().groups.get(group)
    first = next(reader.sessions(limit=1), None)
    found = [(reader.oldest(), 0 if first is None else first.time, record.group)] if record is not None else []
    for logged in reader.object_history("PodGroup", group):
        if window.until is not None and logged.sequence > window.until:
            break
        if isinstance(logged.event, ObjectGone):
            found = []
        elif isinstance(obj := object_in(logged.event), PodGroup):
            found.append((logged.sequence, logged.time, obj))
    return found


def _has_completed(history: History, group: str, observed: list[_ObservedGroup], window: LogWindow) -> bool:
    """Return whether all pods of a group have ended, without later unfinished ones."""
    completed = [sequence for sequence, _, one in observed if one.status.phase == Phase.COMPLETED.text]
    if not completed:
        return False
    reader = history.reader
    since, until = completed[-1], LAST if window.until is None else window.until
    return not any(
        isinstance(pod := object_in(logged.event), Pod) and pod.status.phase not in _ENDED
        for key in reader.pods_of(group, since, until)
        for logged in reader.object_history("Pod", key)
        if since < logged.sequence <= until
    )


def with_fix(verdict: Verdict, found: Counterfactual) -> Verdict:
    """Return a verdict with the smallest change that was found at its session."""
    if found.change is None:
        return verdict
    fix = found.change.text()
    text = shortened(verdict.text, f"; {fix}, and it starts (verified)")
    return msgspec.structs.replace(verdict, fix=fix, verified=True, text=text)


def verdict_on(
    history: History,
    group: str,
    waits: list[WholeWait],
    window: LogWindow = WHOLE,
    seen: Callable[[str, str], bool] | None = None,
) -> Verdict:
    """Return the verdict on the last of a job's waits in the window, by its group's key. Other jobs are named if
    ``seen`` (None: all) allows their kind and key. Raises NotFound if it never waited, and LogError for what the log
    does not have."""
    if not waits:
        return _without_pods(history, group, window)
    *earlier, wait = waits
    found = dominant(wait, lambda one: diagnosed_at(history, group, wait, one, traced=True))
    diagnosis = found.diagnosis
    if "ahead" in diagnosis.subject:
        diagnosis = _with_order(history, diagnosis, group, wait.first, wait.last)
    if seen is not None:
        diagnosis = _without_others(diagnosis, seen)
    still = wait.last == window.last_session(history.reader) and wait.end >= window.end(history.reader)
    session = found.held.last
    verb = ("waits" if still else "waited") + (" at least" if wait.older else "")
    return msgspec.structs.replace(
        _build_verdict(group, diagnosis, wait.start, wait.length, found.length, session, verb),
        earlier=len(earlier),
        earlier_waited=sum(one.length for one in earlier) / SECOND,
        looked=round(found.looked / wait.length, 3),
        older=wait.older,
        still=still,
        remedy=remedy_of(diagnosis, found.held.reasons),
    )


def diagnosed_at(history: History, group: str, wait: WholeWait, span: WaitSpan, *, traced: bool) -> Diagnosis:
    """Return the diagnosis of a group's wait at the last session of a span; ``traced`` as the obstacles need it."""
    return diagnosed(wait_at(history, group, span.last, traced=traced), served_between(history, wait.first, span.last))


def _without_others(diagnosis: Diagnosis, seen: Callable[[str, str], bool]) -> Diagnosis:
    """Replace the names of jobs that may not be named, and remove the reason of their order."""
    hidden = [role for role in JOBS if role in diagnosis.subject and not seen("PodGroup", diagnosis.subject[role])]
    subject = {role: ANOTHER if role in hidden else name for role, name in diagnosis.subject.items()}
    if "ahead" in hidden:
        subject.pop("key", None)
    return msgspec.structs.replace(diagnosis, subject=subject)


def _build_verdict(
    group: str, found: Diagnosis, since: int, waited: int, held: int, session: int, verb: str
) -> Verdict:
    """Return a diagnosis as a verdict without a change, whose cause ``held`` that long; times in ns."""
    seconds = round(waited / SECOND, 6)  # a wait without duration counts as 1 ns
    why = said(found)
    text = shortened(f"{cut(group.partition('/')[2])} {verb} {span_in_words(seconds)}: {why}")
    share = round(held / waited, 3) if waited else 1.0
    return Verdict(
        group, found.cause, found.subject, found.amounts, moment(since), seconds, share, session, "", False, text,
        found.funnel, why=why,
    )  # fmt: skip


def served_between(history: History, first: int, last: int) -> Served:
    """Return the pods that were placed in some sessions; the log is read when a cause needs them."""

    @cache
    def pods() -> frozenset[str]:
        return frozenset(key for (key,) in history.reader.rows("served", first=first, last=last))

    return lambda session: served(pods())(session)


def _with_order(history: History, diagnosis: Diagnosis, group: str, first: int, last: int) -> Diagnosis:
    """Add why the job that was served first came before this one when its session began, and how many jobs created
    later were placed, while it waited, on nodes that its pods may use."""
    ahead = diagnosis.subject["ahead"]
    number = first_placement(history, ahead, first)
    assert number is not None
    _, session = history.rerun(number, actions=False)
    one, other = session.jobs.index(ahead), session.jobs.index(group)
    if one is None or other is None:
        return diagnosis
    later = _count_later_jobs(history, session, session.job(other), first, last)
    amounts = {**diagnosis.amounts, "": {**diagnosis.amounts[""], "later": later}}
    why = precedence(framework_of(session).participants, session.job(one), session.job(other))
    key = str(why) if why is not None else "capacity was free for it, not for this"
    return msgspec.structs.replace(diagnosis, subject={**diagnosis.subject, "key": key}, amounts=amounts)


def _count_later_jobs(history: History, session: Session, job: Job, first: int, last: int) -> int:
    """Return how many jobs were created later than one and placed, in some sessions, on nodes that its pods may use."""
    task, reader, facts = pending_task(session, job), history.reader, session.nodes.facts
    if task is None:
        return 0
    funnel = Funnel(session, task)
    usable = {facts.names[row] for row in np.flatnonzero(funnel.allowed & (funnel.empty > 0)).tolist()}
    placed = reader.rows("served_there", first=first, last=last)
    groups = sorted({key for key, node in placed if node in usable})[:_MOST_JOBS]

    def created(key: str) -> int:
        seen = (object_in(logged.event) for logged in reader.object_history("PodGroup", key))
        texts = [group.metadata.creation_timestamp or "" for group in islice(filter(None, seen), 1)]
        return seconds_of(texts[0]) if texts and texts[0] else 0

    return sum(created(key) > job.created + 1 for key in groups)  # timestamps have whole seconds
