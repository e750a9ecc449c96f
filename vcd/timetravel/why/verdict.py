"""The verdict on a waiting job: in one sentence the cause that held longest, whom it is about, and the figures."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import islice

import msgspec
import numpy as np

from vcd.model.words import span_in_words
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.framework.standing import precedence
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job
from vcd.state.records import seconds_of
from vcd.timetravel.history import WHOLE, History, LogWindow, shown
from vcd.timetravel.why.case import Diagnosis, as_given, in_order
from vcd.timetravel.why.counterfactual import Counterfactual
from vcd.timetravel.why.diagnosis import diagnose, pods_missing
from vcd.timetravel.why.explain import NotFound
from vcd.timetravel.why.funnel import Funnel, FunnelLine
from vcd.timetravel.why.obstacles import pending_task
from vcd.timetravel.why.spans import WaitSpan
from vcd.timetravel.why.verdictwords import said
from vcd.timetravel.why.waits import Wait, wait_at
from vcd.timetravel.words import moment

LONGEST = 200
"""Characters that a verdict has at most."""
_SECOND = 1_000_000_000
_ENOUGH = 0.9
"""Of a wait so much is looked into."""
_MOST_JOBS = 500
"""How many jobs are looked at for whether they came later."""
_MOST = 3
"""Kinds of spans that are looked into at most: each costs a session decided again."""


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
    waited = sum(span.weight for span in spans)
    held: dict[str, int] = {}
    found: dict[str, tuple[Diagnosis, WaitSpan]] = {}
    for length, span in _longest(spans, waited):
        diagnosis = diagnosed(wait_at(history, group, span.last), served_between(history, spans[0].first, span.last))
        held[diagnosis.cause] = held.get(diagnosis.cause, 0) + length
        found.setdefault(diagnosis.cause, (diagnosis, span))
    cause = max(held, key=held.__getitem__)
    diagnosis, span = found[cause]
    if "ahead" in diagnosis.subject:
        diagnosis = _with_key(history, diagnosis, group, spans[0].first, spans[-1].last)
    length = sum(span.end - span.start for span in spans)
    verb = "waits" if spans[-1].last == window.last_session(history.reader) else "waited"
    return _made(group, diagnosis, spans[0].start, length, round(held[cause] / waited, 3), span.last, verb)


def _made(group: str, found: Diagnosis, since: int, waited: int, share: float, session: int, verb: str) -> Verdict:
    """A diagnosis as a verdict without a change; times in ns."""
    seconds = waited / _SECOND
    text = shortened(f"{group.partition('/')[2]} {verb} {span_in_words(seconds)}: {said(found)}")
    return Verdict(
        group, found.cause, found.subject, found.amounts, moment(since), seconds, share, session, "", False, text,
        found.funnel,
    )  # fmt: skip


def shortened(text: str, end: str = "") -> str:
    """A sentence of LONGEST characters at most; its end stays, and as many of its first parts as there is room for."""
    left = LONGEST - len(end)
    if len(text) > left:
        parts = max(text.rfind(mark, 0, left) for mark in ("; ", ", "))
        text = text[:parts] if parts > left // 2 else f"{text[: max(left - 4, 0)].rstrip()} ..."
    return text + end[:LONGEST]


def _longest(spans: list[WaitSpan], waited: int) -> list[tuple[int, WaitSpan]]:
    """Of each kind of reasons how long it held, and its longest span; the longest kinds, until they are most of it."""
    lengths: dict[frozenset[tuple[str, str]], int] = {}
    for span in spans:
        lengths[span.kind] = lengths.get(span.kind, 0) + span.weight
    chosen, covered = [], 0
    for kind in sorted(lengths, key=lambda kind: (-lengths[kind], sorted(kind)))[:_MOST]:
        chosen.append((lengths[kind], max((span for span in spans if span.kind == kind), key=lambda one: one.weight)))
        covered += lengths[kind]
        if covered >= waited * _ENOUGH:
            break
    return chosen


def served_between(history: History, first: int, last: int) -> frozenset[str]:
    """The pods that were given nodes in some sessions."""
    return frozenset(key for (key,) in history.reader.rows("served", first=first, last=last))


def diagnosed(wait: Wait, served: Collection[str]) -> Diagnosis:
    """Why a job waits; what the log says where a plugin fails at being asked again."""
    try:
        return diagnose(wait, served)
    except Exception as error:  # noqa: BLE001 - a plugin may fail today; what the log says is told all the same
        given = as_given(in_order(wait.reasons)[0])
        words = f"{given.words} (asking the nodes again fails with {type(error).__name__}: {error})"
        return msgspec.structs.replace(given, words=words)


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
