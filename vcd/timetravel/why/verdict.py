"""The verdict on a waiting job: in one sentence the cause that held longest, whom it is about, and the figures."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import msgspec
import numpy as np

from vcd.diagnosis.case import Diagnosis, Served, served
from vcd.diagnosis.diagnosis import diagnosed, pods_missing
from vcd.diagnosis.funnel import Funnel, FunnelLine
from vcd.diagnosis.spans import WaitSpan, dominant, held_of, longest
from vcd.diagnosis.verdictwords import said, shortened
from vcd.diagnosis.waiting import pending_task
from vcd.model.words import span_in_words
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.framework.standing import precedence
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job
from vcd.state.records import seconds_of
from vcd.timetravel.history import WHOLE, History, LogWindow, shown
from vcd.timetravel.why.counterfactual import Counterfactual
from vcd.timetravel.why.explain import NotFound
from vcd.timetravel.why.waits import wait_at
from vcd.timetravel.words import moment

_SECOND = 1_000_000_000
_MOST_JOBS = 500
"""How many jobs are looked at for whether they came later."""


class Verdict(msgspec.Struct, frozen=True):
    """Why a job waited. ``cause`` is that which held longest, ``share`` of the ``waited`` seconds that began at
    ``since`` (RFC 3339); ``subject`` names what it is about and ``amounts`` has the figures, by resource (empty for
    plain counts) and role in base units, as of ``session``. ``fix`` is the smallest change that would let it in,
    ``verified`` by deciding again; ``text`` says it all in a sentence. ``funnel`` counts the nodes that pass each thing
    that a pod of it asks of nodes."""

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

    def lines(self) -> Iterator[str]:
        """The sentence, and the funnel in a line."""
        yield self.text
        if len(self.funnel) > 1:  # there is more than room that nodes have to pass
            yield f"  nodes: {'; '.join(map(str, self.funnel))}"


def _without_pods(history: History, group: str, window: LogWindow) -> Verdict:
    """The verdict on a job of which no session says that it waits: it does where pods of it are missing."""
    number = window.last_session(history.reader)
    if number:
        record, session = history.rerun(number)
        index = session.jobs.index(group)
        found = None if index is None else pods_missing(session.job(index))
        if found is not None:
            since = next(logged.time for logged in history.reader.object_history("PodGroup", group))
            since = max(since, window.since)
            waited = max(window.end(history.reader) - since, 0)
            return _made(group, found, since, waited, 1.0, record.session, "waits")
    raise NotFound(f"event log {history.reader.path}: job {group} waits in none of its sessions")


def with_fix(verdict: Verdict, found: Counterfactual) -> Verdict:
    """A verdict with the smallest change that was found at its session."""
    if found.change is None:
        return verdict
    fix = found.change.text()
    text = shortened(verdict.text, f"; {fix}, and it starts (verified)")
    return msgspec.structs.replace(verdict, fix=fix, verified=True, text=text)


def verdict_on(history: History, group: str, spans: list[WaitSpan], window: LogWindow = WHOLE) -> Verdict:
    """The verdict on a job by its group's key, of which ``spans`` are the waits in the window. Raises NotFound where it
    never waited, and LogError for what the log does not hold."""
    if not spans:
        return _without_pods(history, group, window)
    first, held = spans[0].first, held_of(spans)
    looked = longest(held)
    found = [
        diagnosed(
            wait_at(history, group, one.span.last, traced=True),  # as who asks next wants it
            served_between(history, first, one.span.last),
        )
        for one in looked
    ]
    place, length = dominant((one.length, diagnosis) for one, diagnosis in zip(looked, found, strict=True))
    diagnosis, session = found[place], looked[place].span.last
    if "ahead" in diagnosis.subject:
        diagnosis = _with_key(history, diagnosis, group, first, spans[-1].last)
    waited = sum(one.length for one in held.values())
    still = spans[-1].last == window.last_session(history.reader) and spans[-1].end >= window.end(history.reader)
    verb = "waits" if still else "waited"
    return _made(group, diagnosis, spans[0].start, waited, round(length / waited, 3), session, verb)


def _made(group: str, found: Diagnosis, since: int, waited: int, share: float, session: int, verb: str) -> Verdict:
    """A diagnosis as a verdict without a change; times in ns."""
    seconds = round(waited / _SECOND, 6)  # a moment counts as a ns
    text = shortened(f"{group.partition('/')[2]} {verb} {span_in_words(seconds)}: {said(found)}")
    return Verdict(
        group, found.cause, found.subject, found.amounts, moment(since), seconds, share, session, "", False, text,
        found.funnel,
    )  # fmt: skip


def served_between(history: History, first: int, last: int) -> Served:
    """The pods that were given nodes in some sessions."""
    return served(frozenset(key for (key,) in history.reader.rows("served", first=first, last=last)))


def _with_key(history: History, diagnosis: Diagnosis, group: str, first: int, last: int) -> Diagnosis:
    """With what put the one that was served first before the job, as its session began, and how many that came later
    than the job were placed, while it waited, on nodes that its pods may use."""
    ahead = diagnosis.subject["ahead"]
    (number,) = history.reader.rows("served_in", group=ahead, first=first)[0]
    _, session = history.rerun(number, actions=False)
    one, other = session.jobs.index(ahead), session.jobs.index(group)
    if one is None or other is None:
        return diagnosis
    later = _came_later(history, session, session.job(other), first, last)
    amounts = {**diagnosis.amounts, "": {**diagnosis.amounts[""], "later": later}}
    why = precedence(framework_of(session).participants, session.job(one), session.job(other))
    key = str(why) if why is not None else "room was there for it, not for this"
    return msgspec.structs.replace(diagnosis, subject={**diagnosis.subject, "key": key}, amounts=amounts)


def _came_later(history: History, session: Session, job: Job, first: int, last: int) -> int:
    """How many jobs came later than one and were placed, in some sessions, on nodes that its pods may use."""
    task, reader, facts = pending_task(session, job), history.reader, session.nodes.facts
    if task is None:
        return 0
    funnel = Funnel(session, task)
    usable = {facts.names[row] for row in np.flatnonzero(funnel.allowed & (funnel.empty > 0)).tolist()}
    placed = reader.rows("served_there", first=first, last=last)
    groups = sorted({key for key, node in placed if node in usable})[:_MOST_JOBS]

    def created(key: str) -> int:
        seen = (shown(logged.event) for logged in reader.object_history("PodGroup", key))
        texts = [group.metadata.creation_timestamp or "" for group in islice(filter(None, seen), 1)]
        return seconds_of(texts[0]) if texts and texts[0] else 0

    return sum(created(key) > job.created + 1 for key in groups)  # these times are whole seconds
