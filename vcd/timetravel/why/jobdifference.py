"""Why one job started and another did not: how they differ, which one comes first, and which change would have
helped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec
import numpy as np

from vcd.model.objects import Pod, altered
from vcd.model.reasons import shown
from vcd.model.resource_requests import format_sum
from vcd.model.wording import SECOND, rfc3339, some
from vcd.scheduling.framework.declared_reasons import all_told
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.framework.order_positions import precedence
from vcd.scheduling.framework.registry import plugins
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job, Task
from vcd.state.snapshot import Snapshot
from vcd.state.sums import sum_of
from vcd.text.reason_sentences import reasons_text
from vcd.text.text_table import aligned
from vcd.text.time_formats import moment
from vcd.text.trial_templates import DIFFERENCES
from vcd.timetravel.history import History, LogWindow
from vcd.timetravel.object_fields import leaves, value_text
from vcd.timetravel.query_errors import NotFound
from vcd.timetravel.why.change_search import Trials
from vcd.timetravel.why.job_waits import Wait, first_placement, wait_at, waits_of
from vcd.timetravel.why.name_lookup import named
from vcd.timetravel.why.snapshotchanges import in_queue, with_age, with_minimum, with_pods, with_priority
from vcd.timetravel.why.verdict import verdict_on

MOST_DECISIONS = 50
_TERMS = {
    "nodeSelector": "node_selector",
    "affinity": "affinity",
    "tolerations": "tolerations",
    "topologySpreadConstraints": "topology_spread_constraints",
    "schedulingGates": "scheduling_gates",
    "volumes": "volumes",
}
"""Fields of a pod that exclude nodes, by their names in the API, with the names in the code."""
_REPORTED_ELSEWHERE = ("nodeName", "containers", "initContainers", "priority", "priorityClassName")
"""Fields of a pod that are reported elsewhere, or that differ between any two pods."""


class Fact(msgspec.Struct, frozen=True):
    """A difference between two jobs, with the value of each; empty if it has none. ``enough``: with the first job's
    value, the other job starts at its session, too; None if that was not tried."""

    name: str
    one: str
    other: str
    enough: bool | None = None


class Side(msgspec.Struct, frozen=True):
    """A job as of a session. ``started`` is the session that first gave nodes to pods of it, with its ``time`` (RFC
    3339); None if no session did. ``verdict`` states why it waited, empty if it never did; ``waits`` why it waits at
    this session."""

    job: str
    file: str
    session: int
    started: int | None
    time: str
    verdict: str
    waits: str

    @property
    def name(self) -> str:
        """The name without the namespace."""
        return self.job.partition("/")[2]


class JobDifference(msgspec.Struct, frozen=True):
    """The difference between two jobs, the one that started first as ``one``. ``order`` states which comes first and
    why, if both are in one session; ``facts`` are the differences."""

    one: Side
    other: Side
    order: str
    facts: list[Fact]

    @property
    def is_one_job(self) -> bool:
        """Whether it is one job at two sessions."""
        return (self.one.job, self.one.file) == (self.other.job, self.other.file)

    def sentence(self) -> str:
        """Return which job started, and why the other did not."""
        enough, other = next((fact for fact in self.facts if fact.enough), None), self.other
        what, why = self._what(), self.order
        if self.is_one_job:
            names = {"names": some([fact.name for fact in self.facts], 5)}
            why = DIFFERENCES.sentence("differs" if self.facts else "equal", names)
        elif enough is not None:
            facts = {"name": enough.name, "one": enough.one or "none", "other": enough.other or "none"}
            why = DIFFERENCES.sentence("enough", {**facts, "job": other.name})
        elif other.started != self.one.started and other.waits:
            why = DIFFERENCES.sentence("waits", {"job": other.name, "reasons": other.waits})
        return DIFFERENCES.sentence("why", {"what": what, "why": why}) if why else what

    def _what(self) -> str:
        one, other, names = self.one, self.other, self._names()
        if self.is_one_job:
            facts = {"one": one.name, "session": f"{one.session}", "other_session": f"{other.session}"}
            return DIFFERENCES.sentence("sessions", facts)
        facts = {"one": names[0], "other": names[1], "session": f"{one.started}", "other_session": f"{other.started}"}
        if one.started is None:
            return DIFFERENCES.sentence("neither", facts)
        if one.started == other.started and one.file == other.file:
            return DIFFERENCES.sentence("both", facts)
        return DIFFERENCES.sentence("first", facts, ["only" if other.started is None else ""])

    def _names(self) -> tuple[str, str]:
        """Return names that distinguish the two."""
        one, other = self.one, self.other
        if self.is_one_job:
            return f"session {one.session}", f"session {other.session}"
        if one.file != other.file:
            return f"{one.name} of {one.file}", f"{other.name} of {other.file}"
        return (one.name, other.name) if one.name != other.name else (one.job, other.job)

    def lines(self) -> Iterator[str]:
        """Yield the sentence, why both waited, the order, and a table of the differences."""
        yield self.sentence()
        names = self._names()
        for name, side in zip(names, (self.one, self.other), strict=True):
            facts = {"name": name, "session": f"{side.session}", "reasons": side.waits}
            if self.is_one_job:
                yield DIFFERENCES.sentence("side", facts, ["waits" if side.waits else ""])
            else:
                facts["verdict"] = side.verdict or "it never waited"
                yield DIFFERENCES.sentence("side verdict", facts)
        if self.order:
            yield DIFFERENCES.sentence("order", {"order": self.order})
        if not self.facts:
            yield DIFFERENCES["no difference"]
            return
        rows = [[fact.name, fact.one, fact.other, _ENOUGH[fact.enough]] for fact in self.facts]
        yield from (f"  {line}" for line in aligned(["", *names, "if equal"], rows))


_ENOUGH = {None: "", True: "starts, too", False: "does not start"}


class _At(NamedTuple):
    """A job of a history at the beginning of a session."""

    history: History
    group: str
    number: int
    session: Session
    job: Job


def explain_difference(
    mine: History,
    theirs: History,
    one: str,
    other: str = "",
    namespace: str = "default",
    *,
    session: int | None = None,
) -> JobDifference:
    """Return how two jobs differ: ``one`` of a log and ``other`` of the same or another log, each named as for
    ``explain``, with ``@SESSION`` appended to compare it as of that session. Without ``other``, the same job is
    compared with itself.

    By default, the job that started first is compared as of the session in which it did, and the other one as of the
    first session from then on in which it waits; with two logs, each by its own log. Raises NotFound, and LogError for
    what a log does not have.
    """
    sides = [
        _named(mine, one, namespace, session),
        _named(theirs, other or one.partition("@")[0], namespace, session),
    ]
    if sides[0] == sides[1]:
        raise NotFound(
            f"event log {mine.reader.path}: that is one job at one session; name another job, session or log"
        )
    sides.sort(key=lambda side: first_placement(side[0], side[1]) or _LATEST)
    pair = _at_sessions(*sides)
    return _compared(*pair)


_LATEST = 2**62
_DIGITS = 19
"""More digits than a session number can have."""
_Named = tuple[History, str, int | None]


def _named(history: History, text: str, namespace: str, session: int | None) -> _Named:
    name, _, number = text.partition("@")
    if number and not (number.isdecimal() and len(number) < _DIGITS and int(number)):
        raise NotFound(f"{text}: {number} is no number of a session; they count from 1")
    return history, named(history, "job", name, namespace)[1], int(number) if number else session


def _at_sessions(one: _Named, other: _Named) -> tuple[_At, _At]:
    """Return both jobs at the sessions at which they are compared."""
    first = one[2] or first_placement(one[0], one[1]) or _last_wait(*one[:2])
    second = other[2]
    if second is None:
        waits = waits_of(other[0], other[1])
        after = [max(wait.first, first) for wait in waits if wait.last >= first] if one[0] is other[0] else []
        second = after[0] if after else waits[-1].last if waits else first_placement(other[0], other[1])
    if second is None:
        raise NotFound(f"event log {other[0].reader.path}: job {other[1]} neither waits nor starts in any session")
    return _at(one[0], one[1], first), _at(other[0], other[1], second)


def _last_wait(history: History, group: str) -> int:
    waits = waits_of(history, group)
    if not waits:
        raise NotFound(f"event log {history.reader.path}: job {group} neither waits nor starts in any session")
    return waits[-1].last


def _at(history: History, group: str, number: int) -> _At:
    _, session = history.rerun(number, actions=False)
    index = session.jobs.index(group)
    if index is None:
        raise NotFound(f"event log {history.reader.path}: session {number}: job {group} is not there")
    return _At(history, group, number, session, session.job(index))


def _compared(one: _At, other: _At) -> JobDifference:
    facts, order = list(_facts(one, other)), ""
    if one.history is other.history and one.number == other.number:
        order = _order(one.session, other.group, one.group) or _order(one.session, one.group, other.group)
    before, wait = _wait(one), _wait(other)
    if wait is not None and wait.job is not None and (one.history, one.group) != (other.history, other.group):
        facts = [_try_equal(fact, one, wait, other.history) for fact in facts]
    facts.sort(key=lambda fact: fact.enough is not True)
    return JobDifference(_side(one, before), _side(other, wait), order, facts)


def _wait(at: _At) -> Wait | None:
    """Return the job's wait at the session; None if it does not wait."""
    try:
        return wait_at(at.history, at.group, at.number)
    except NotFound:
        return None


def _side(at: _At, wait: Wait | None) -> Side:
    started = first_placement(at.history, at.group)
    time = "" if started is None else moment(at.history.reader.session(started).now)
    try:
        window = LogWindow(session=at.history.reader.info(at.number))
        text = verdict_on(at.history, at.group, waits_of(at.history, at.group, window), window).text
    except NotFound:
        text = ""
    waits = "" if wait is None else reasons_text(all_told(wait.reasons))
    return Side(at.group, str(at.history.reader.path), at.number, started, time, text, waits)


def _order(session: Session, second: str, first: str) -> str:
    """Return that ``first`` comes before ``second`` in a session, and why; empty if it does not."""
    indices = session.jobs.index(first), session.jobs.index(second)
    if indices[0] is None or indices[1] is None:
        return ""
    why = precedence(framework_of(session).participants, session.job(indices[0]), session.job(indices[1]))
    return "" if why is None else f"{first.partition('/')[2]} comes before {second.partition('/')[2]}: {why}"


# --- differences ------------------------------------------------------------------------------------------------------


def _facts(one: _At, other: _At) -> Iterator[Fact]:
    mine, theirs = dict(_read_facts(one)), dict(_read_facts(other))
    names = [*mine, *(name for name in theirs if name not in mine)]
    if one.number == other.number and one.history is other.history:
        names = [name for name in names if not name.startswith("the cluster's ")]
    return (Fact(name, a, b) for name in names if (a := mine.get(name, "")) != (b := theirs.get(name, "")))


def _read_facts(at: _At) -> Iterator[tuple[str, str]]:
    """Yield what scheduling reads of a job, by name, as text; then of its queue and of the cluster."""
    job, spec = at.job, at.job.queue.record.queue.spec
    task = next(iter(job.pending()), None) or next(iter(job.tasks()), None)
    yield "queue", job.queue.name
    yield "priority", f"{job.priority}"
    yield "minMember", f"{job.min_available}"
    yield "pods", f"{job.task_count}"
    yield "created", rfc3339(job.created * SECOND)
    if task is not None:
        yield "a pod requests", _requests_text(at.session, task)
        yield from _of_pod(task.pod)
    read = {name for plugin in plugins().values() for name in plugin.keys}
    for name, text in sorted(job.record.group.metadata.annotations.items()):
        if name in read:
            yield f"annotation {name}", text
    yield from ((f"the queue's {path}", text) for path, text in _texts(msgspec.to_builtins(spec)))
    yield "the cluster's configuration", at.session.policy_digest[:16]
    yield from _of_cluster(at.session, task)


def _requests_text(session: Session, task: Task) -> str:
    amounts = zip(session.nodes.resources, task.request.tolist(), strict=True)
    return ", ".join(f"{shown(name, amount)} {name}" for name, amount in amounts if amount and name != "pods")


def _of_pod(pod: Pod) -> Iterator[tuple[str, str]]:
    plain: dict[str, Any] = msgspec.to_builtins(pod.spec)
    for name, value in plain.items():
        if name in _TERMS and value:
            yield name, "; ".join(f"{path} {text}".strip() for path, text in _texts(value))
        elif name not in (*_REPORTED_ELSEWHERE, *_TERMS):
            yield from ((f"{name}.{path}".rstrip("."), text) for path, text in _texts(value))


def _texts(value: Any) -> Iterator[tuple[str, str]]:
    """Yield the leaves of nested mappings by their dotted paths, as text."""
    return ((".".join(path), value_text(leaf)) for path, leaf in leaves(value))


def _of_cluster(session: Session, task: Task | None) -> Iterator[tuple[str, str]]:
    yield "the cluster's nodes", f"{len(session.nodes)}"
    columns = () if task is None else np.flatnonzero(task.request).tolist()
    for column in columns:
        name = session.nodes.resources[column]
        idle = int(sum_of(np.maximum(session.nodes.usage.idle[column], 0)))
        yield f"the cluster's free {name}", format_sum(name, idle)


# --- trying equal values ----------------------------------------------------------------------------------------------


def _try_equal(fact: Fact, one: _At, wait: Wait, history: History) -> Fact:
    """Return the fact with whether the waiting job starts with the other one's value."""
    make = _equalizer(fact.name, one, wait)
    if make is None:
        return fact
    trials = Trials(wait, history.policy(wait.record), MOST_DECISIONS)
    return msgspec.structs.replace(fact, enough=trials.lets_in(make(wait.session.snapshot)))


def _equalizer(name: str, one: _At, wait: Wait) -> Callable[[Snapshot], Snapshot] | None:
    """Return a function that gives the waiting job the other job's value; None if no change can."""
    job, key = one.job, wait.group
    task = next(iter(job.pending()), None) or next(iter(job.tasks()), None)
    makes: dict[str, Callable[[Snapshot], Snapshot]] = {
        "priority": lambda snapshot: with_priority(snapshot, key, job.priority),
        "minMember": lambda snapshot: with_minimum(snapshot, key, job.min_available),
        "created": lambda snapshot: with_age(snapshot, key, job.created),
    }
    if job.queue.name in wait.session.queues:
        makes["queue"] = lambda snapshot: in_queue(snapshot, key, job.queue.name)
    known = set(wait.session.nodes.resources)
    if task is not None and known.issuperset(one.session.amounts(task.request.tolist())):
        spec = task.pod.spec
        asks = {"containers": spec.containers, "init_containers": spec.init_containers, "overhead": spec.overhead}
        makes["a pod requests"] = lambda snapshot: with_pods(
            snapshot, key, lambda of: altered(of, **asks), counted=True
        )
        if name in _TERMS:
            term = {_TERMS[name]: getattr(spec, _TERMS[name])}
            return lambda snapshot: with_pods(snapshot, key, lambda of: altered(of, **term))
    return makes.get(name)
