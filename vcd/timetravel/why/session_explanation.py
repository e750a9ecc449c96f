"""The explanation of a session: what changed before it, what it decided, what happened then, and how it differs from
the sessions before and after it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial

import msgspec

from vcd.eventlog import LogReader, SessionInfo
from vcd.model import events as ev
from vcd.model.resource_requests import format_sum
from vcd.model.wording import counted, some, span_in_words
from vcd.scheduling.framework.declared_reasons import Told, all_told, told
from vcd.scheduling.session.session import Session
from vcd.scheduling.session_close import plan_of
from vcd.state.cluster_state import ClusterState
from vcd.text.amounts import quantities_text
from vcd.text.job_names import ANOTHER
from vcd.text.plans import operation_in_words, status_in_words
from vcd.text.reason_sentences import gate_text, gates_text
from vcd.text.session_templates import SESSIONS
from vcd.text.time_formats import moment
from vcd.timetravel.history import History
from vcd.timetravel.plan_differences import difference_from
from vcd.timetravel.query_errors import NotFound
from vcd.timetravel.queuestatistics import allocated_now, held_by_queue, queue_statistics
from vcd.timetravel.why.statechanges import ClusterContents, StateChange, call_changes, object_changes

_MOST_LINES = 12
"""Entries of a list that become lines, at most."""

Waits = tuple[ev.Waiting, ...]


class EvictedPod(msgspec.Struct, omit_defaults=True):
    """A pod that a session chose to evict, its group and queue, and the group and queue that it was evicted for.

    ``group`` and ``queue`` are empty if the pod is in no known one.
    """

    session: int
    time: str
    action: str
    pod: str
    node: str
    group: str
    queue: str
    for_group: str
    for_queue: str
    reason: str = ""


class Decided(msgspec.Struct, omit_defaults=True):
    """A statement: what one action decided for one group, all or nothing.

    ``binds`` and ``held`` (resources reserved for pods until victims terminate) give pods their nodes. ``dropped``
    states why the statement no longer held when it was to be carried out; then nothing of it was done. ``outcomes``
    counts the calls by their last result, ``failures`` describes those that were not done.
    """

    statement: int
    action: str
    group: str
    queue: str
    binds: dict[str, str] = {}
    held: dict[str, str] = {}
    evictions: list[EvictedPod] = []
    dropped: str = ""
    outcomes: dict[str, int] = {}
    failures: list[str] = []


class WaitChange(msgspec.Struct, omit_defaults=True):
    """What a group waited for before a session, and after it; empty if it did not wait."""

    group: str
    was: tuple[Told, ...] = ()
    now: tuple[Told, ...] = ()

    def __str__(self) -> str:
        facts = {"group": self.group, "now": gates_text(self.now), "was": gates_text(self.was)}
        return SESSIONS.sentence("wait", facts, ["ended" if not self.now else "" if self.was else "began"])


class QueueChange(msgspec.Struct, omit_defaults=True):
    """What the jobs of a queue held before and after a session, and what the queue deserved in it, as quantities.

    ``deserved`` is None if no plugin counts it.
    """

    queue: str
    before: dict[str, str]
    after: dict[str, str]
    deserved: dict[str, str] | None = None

    def __str__(self) -> str:
        before, after = (quantities_text(each) or "nothing" for each in (self.before, self.after))
        deserved = "" if self.deserved is None else f", deserved {quantities_text(self.deserved) or 'nothing'}"
        facts = {"queue": self.queue, "after": after, "deserved": deserved}
        facts["before"] = f" (before {before})" if self.before != self.after else ""
        return SESSIONS.sentence("queue", facts)


class Contrast(msgspec.Struct, omit_defaults=True):
    """How another session differs: operations and waits (without their numbers) that only one of the two has.

    ``seconds`` is the time between them; ``configuration``: the other one was decided with another configuration.
    """

    session: int
    seconds: float
    configuration: bool = False
    operations_here: list[str] = []
    operations_there: list[str] = []
    waits_here: list[str] = []
    waits_there: list[str] = []

    def lines(self, here: int) -> Iterator[str]:
        """Yield the differences, each with the session that has it."""
        if self.configuration:
            yield SESSIONS.sentence("configuration", {"session": f"{self.session}"})
        for number, operations, waits in (
            (here, self.operations_here, self.waits_here),
            (self.session, self.operations_there, self.waits_there),
        ):
            texts = [
                SESSIONS.sentence("only", {"session": f"{number}", "text": text}) for text in (*operations, *waits)
            ]
            yield from _shortened(texts)


class SessionExplanation(msgspec.Struct, omit_defaults=True):
    """One session.

    ``time`` is when it was logged, ``now`` the time it was decided for (RFC 3339); ``head`` is its last input event,
    and ``meanwhile`` the number of events logged while it decided. ``previous`` and ``next`` are the adjacent
    sessions, None at the ends of the log. ``waiting`` has the groups whose reasons changed, ``still`` counts the
    groups that wait after it by reason. ``again`` is empty if this version makes the same plan, else it states the
    difference; ``queues`` is empty if the session cannot be decided again. ``shadow``: nothing that it decided was
    done.
    """

    session: int
    time: str
    now: str
    head: int
    epoch: int
    policy: str
    news: list[StateChange]
    decided: list[Decided]
    admitted: list[str]
    phases: list[str]
    waiting: list[WaitChange]
    still: dict[str, int]
    queues: list[QueueChange]
    meanwhile: int = 0
    faults: list[str] = []
    outside: list[str] = []
    more: bool = False
    again: str = ""
    previous: Contrast | None = None
    next: Contrast | None = None
    shadow: bool = False

    def lines(self) -> Iterator[str]:
        """Yield the explanation in sentences, with times in UTC."""
        facts = {"session": f"{self.session}", "now": self.now, "head": f"{self.head}", "epoch": f"{self.epoch}"}
        yield SESSIONS.sentence("session", facts, ["shadow" if self.shadow else ""])
        facts = {"count": counted(self.meanwhile, "event")}
        if self.previous is not None:
            facts |= {"previous": f"{self.previous.session}", "span": span_in_words(self.previous.seconds)}
        title = SESSIONS.sentence("new", facts, ["first" if self.previous is None else ""])
        yield from _section(title, map(str, self.news), SESSIONS["new none"])
        if self.meanwhile:
            yield SESSIONS.sentence("meanwhile", facts)
        yield from _section(SESSIONS["decided"], self._decisions(), SESSIONS["decided none"])
        yield from _section(SESSIONS["groups"], self.phases)
        yield from _section(SESSIONS["faults"], self.faults)
        yield from _section(SESSIONS["outside"], self.outside)
        yield from _section(SESSIONS["waits"], map(str, self.waiting))
        counts = {reason: counted(count, "group") for reason, count in self.still.items()}
        still = [SESSIONS.sentence("still one", {"count": of, "reason": reason}) for reason, of in counts.items()]
        yield from _section(SESSIONS["still"], still, SESSIONS["still none"])
        yield from _section(SESSIONS["queues"], map(str, self.queues))
        if self.again:
            yield self.again
        for when, contrast in (("before", self.previous), ("after", self.next)):
            if contrast is not None:
                facts = {"session": f"{contrast.session}", "span": span_in_words(contrast.seconds), "when": when}
                title = SESSIONS.sentence("against", facts)
                yield from _section(title, contrast.lines(self.session), SESSIONS["against none"])

    def _decisions(self) -> Iterator[str]:
        for one in self.decided:
            yield from _statement_lines(one)
        if self.admitted:
            facts = {"count": counted(len(self.admitted), "group"), "names": some(self.admitted)}
            yield SESSIONS.sentence("admitted", facts)
        if self.more:
            yield SESSIONS["bounded"]


# --- text -------------------------------------------------------------------------------------------------------------


def _section(title: str, lines: Iterable[str], otherwise: str = "") -> Iterator[str]:
    """Yield a title and its lines; without lines, one line with ``otherwise``, or nothing if that is empty."""
    texts = list(lines)
    if texts:
        yield title
        yield from (f"  {line}" for line in texts)
    elif otherwise:
        yield f"{title} {otherwise}"


def _shortened(lines: Sequence[str]) -> Iterator[str]:
    yield from lines[:_MOST_LINES]
    if len(lines) > _MOST_LINES:
        yield SESSIONS.sentence("more", {"count": f"{len(lines) - _MOST_LINES:,}"})


def _statement_lines(one: Decided) -> Iterator[str]:
    facts = {"who": f"{one.action} for {one.group}" + (f" of queue {one.queue}" if one.queue else "")}
    binds = [f"{pod} to {node}" for pod, node in one.binds.items()]
    held = [f"{pod} on {node}" for pod, node in one.held.items()]
    for code, names in (("bind", binds), ("hold", held)):
        if names:
            yield SESSIONS.sentence(code, {**facts, "names": some(names)})
    for reason in dict.fromkeys(eviction.reason for eviction in one.evictions):
        gone = [f"{each.pod} from {each.node}" for each in one.evictions if each.reason == reason]
        facts |= {"names": some(gone), "reason": f" ({reason})" if reason else ""}
        yield SESSIONS.sentence("evict", facts)
    if one.dropped:
        yield SESSIONS.sentence("dropped", {"why": one.dropped})
    elif one.outcomes:
        results = ", ".join(f"{count} {result}" for result, count in one.outcomes.items())
        yield SESSIONS.sentence("calls", {"count": counted(sum(one.outcomes.values()), "call"), "results": results})
        yield from (f"    {failure}" for failure in one.failures)


# --- decisions --------------------------------------------------------------------------------------------------------


def queue_in(state: ClusterState, group: str) -> str:
    """Return the queue of a group as of a state; empty if there is no such group."""
    record = state.groups.get(group)
    return "" if record is None else state.settings.queue_of(record.group)


def group_in(state: ClusterState, pod: str) -> str:
    """Return the group of a pod as of a state; empty if it has none or does not exist."""
    found = state.pod(pod)
    return "" if found is None else found.group_key


def evicted_by(
    statement: ev.Statement,
    info: SessionInfo,
    queue_of: Callable[[str], str],
    group_of: Callable[[str, SessionInfo], str],
) -> list[EvictedPod]:
    """Return the evictions of a statement. The functions return the queue of a group, and the group of a pod as of its
    session."""
    wanted = queue_of(statement.group)
    found = []
    for one in statement.operations:
        if one.verb == "evict":
            group = group_of(one.key, info)
            place = (one.key, one.node, group, queue_of(group))
            found.append(
                EvictedPod(
                    info.number, moment(info.time), statement.action, *place, statement.group, wanted, one.reason
                )
            )
    return found


def _decided(history: History, info: SessionInfo, record: ev.SessionDecided, state: ClusterState) -> list[Decided]:
    plan, stale, found = ev.decode_plan(record.plan), dict(record.stale), []
    for number, statement in enumerate(plan.statements):
        decided = Decided(number, statement.action, statement.group, queue_in(state, statement.group))
        decided.binds = {one.key: one.node for one in statement.operations if one.verb == "bind"}
        decided.held = {one.key: one.node for one in statement.operations if one.verb == "pipeline"}
        decided.evictions = evicted_by(statement, info, partial(queue_in, state), lambda pod, _: group_in(state, pod))
        decided.dropped = stale.get(number, "")
        found.append(decided)
    if not state.settings.shadow:
        _add_outcomes(history, info, plan, [decided for decided in found if not decided.dropped])
    return found


def _add_outcomes(history: History, info: SessionInfo, plan: ev.Plan, accepted: Sequence[Decided]) -> None:
    """Add the last outcome of each call of a session; the log is read only until all are known."""
    open_calls = {(decided.statement, position) for decided in accepted for position, _ in _calls(plan, decided)}
    last: dict[tuple[int, int], ev.OperationDone] = {}
    for logged in history.reader.find(type="outcome", after=info.sequence) if open_calls else ():
        event = logged.event
        if isinstance(event, ev.OperationDone) and event.session == info.number:
            last[event.statement, event.operation] = event
            if event.result != "unknown":
                open_calls.discard((event.statement, event.operation))
            if not open_calls:
                break
    for decided in accepted:
        own = [(last.get((decided.statement, position)), key) for position, key in _calls(plan, decided)]
        results = Counter("without an answer yet" if done is None else str(done.result) for done, _ in own)
        decided.outcomes = dict(sorted(results.items()))
        failed: dict[str, list[str]] = {}
        for done, key in own:
            if done is not None and done.result != "done":
                text = f"{done.result}: {done.detail}" if done.detail else str(done.result)
                failed.setdefault(text, []).append(key)
        decided.failures = [f"{text} ({some(pods)})" for text, pods in failed.items()]


def _calls(plan: ev.Plan, decided: Decided) -> list[tuple[int, str]]:
    """Return the positions of a statement's operations that are API calls, with their pods."""
    operations = enumerate(plan.statements[decided.statement].operations)
    return [(position, operation.key) for position, operation in operations if operation.verb != "pipeline"]


# --- waits and queues -------------------------------------------------------------------------------------------------


Place = tuple[Hashable, ...]
"""A gate, the plugin that refuses there, and the reason's code and names; or what distinguishes operations."""


def kinds_of(waits: Iterable[ev.Waiting]) -> dict[Place, str]:
    """Return the first reason of each kind, regardless of numbers, in words: ``queue (PLUGIN): queue is overused``."""
    found: dict[Place, str] = {}
    for one in waits:
        reason = one.reason
        place = (one.gate, one.plugin, *((reason,) if isinstance(reason, str) else (reason.code, reason.names)))
        if one.gate and place not in found:
            found[place] = f"{gate_text(one)}: {told(one).reason}"
    return found


def _still(waits: Mapping[str, Waits]) -> dict[str, int]:
    """Return how many groups wait for reasons of each kind, by the words of the first of them; most first."""
    kinds, words = Counter[Place](), dict[Place, str]()
    for found in map(kinds_of, waits.values()):
        kinds.update(found.keys())
        words = {**found, **words}
    totals: Counter[str] = Counter()
    for place, count in kinds.items():
        totals[words[place]] += count
    return dict(totals.most_common())


def _wait_changes(before: Mapping[str, Waits], after: Mapping[str, Waits]) -> list[WaitChange]:
    pairs = ((group, before.get(group, ()), after.get(group, ())) for group in sorted(before.keys() | after.keys()))
    return [WaitChange(group, all_told(was), all_told(now)) for group, was, now in pairs if was != now]


def _queues(session: Session) -> list[QueueChange]:
    """Return the queues whose jobs hold, held or request resources."""
    before = held_by_queue(session, session.jobs.allocated)
    after = held_by_queue(session, allocated_now(session))
    found = []
    for name, figures in queue_statistics(session).items():
        if before[name] or after[name] or any(figures.amounts.get("request", {}).values()):
            deserved = figures.amounts.get("deserved")
            owed = None if deserved is None else _quantities(deserved)
            found.append(QueueChange(name, _quantities(before[name]), _quantities(after[name]), owed))
    return found


def _quantities(amounts: Mapping[str, int]) -> dict[str, str]:
    return {name: format_sum(name, value) for name, value in sorted(amounts.items()) if value}


# --- adjacent sessions ------------------------------------------------------------------------------------------------


class _Adjacent(msgspec.Struct, frozen=True):
    """What sessions are compared by: accepted operations, and the waits after it, each in words."""

    info: SessionInfo
    operations: dict[Place, str]
    waits: dict[Place, str]

    @classmethod
    def of(cls, info: SessionInfo, record: ev.SessionDecided, waits: Mapping[str, Waits], seen: Seen) -> _Adjacent:
        accepted = record.accepted().statements
        operations: dict[Place, str] = {
            (one.verb, one.key, one.node, one.reason): operation_in_words(one)
            for statement in accepted
            for one in statement.operations
            if seen("Pod", one.key)
        }
        kinds: dict[Place, str] = {
            (group, *place): f"{group} waits at {words}"
            for group, reasons in waits.items()
            if seen("PodGroup", group)
            for place, words in kinds_of(reasons).items()
        }
        return cls(info, operations, kinds)

    def against(self, other: _Adjacent) -> Contrast:
        """Return how another session differs from this one."""
        return Contrast(
            other.info.number,
            abs(other.info.now - self.info.now) / 1e9,
            other.info.policy != self.info.policy,
            *_only(self.operations, other.operations),
            *_only(self.waits, other.waits),
        )


def _only(here: Mapping[Place, str], there: Mapping[Place, str]) -> tuple[list[str], list[str]]:
    """Return the words of what only one of two has, in its order."""
    own = [words for place, words in here.items() if place not in there]
    return own, [words for place, words in there.items() if place not in here]


Seen = Callable[[str, str], bool]
"""Returns whether an object may be named, by its kind and key."""


def explain_session(history: History, number: int | str = 0, seen: Seen | None = None) -> SessionExplanation:
    """Explain a session of a log: what changed before it, what it decided, what happened then, and how the sessions
    before and after it differ.

    ``number`` 0 or "last" is the last session. With ``seen``, only objects that it allows are named and counted: of an
    eviction the victim but not the preemptor, changes of known kinds, and no failed plugins, external questions, or
    repeated decision. Raises NotFound with the existing sessions if there is no such session, and LogError for what
    the log does not have.
    """
    reader = history.reader
    wanted = _number_in(reader, number)
    info, *later = reader.sessions(wanted, limit=2)
    before = next(iter(reader.sessions_with_state(wanted - 1, wanted - 1)), None)
    return _explained(history, before, info, later[0] if later else None, seen)


def _number_in(reader: LogReader, number: int | str) -> int:
    """Return the number of a session that is in the log. Raises NotFound."""
    where = f"event log {reader.path}:"
    first = next((info.number for info in reader.sessions(limit=1)), None)
    if first is None:
        raise NotFound(f"{where} it has no sessions")
    wanted, last = str(number), reader.last_session()
    if wanted in ("0", "last"):
        return last
    if wanted.isdecimal() and len(wanted) <= len(str(last)) and any(reader.sessions(int(wanted), int(wanted))):
        return int(wanted)
    existing = f"it has sessions {first} to {last}"
    raise NotFound(f"{where} no session {wanted} is in it; {existing}, and the last is also called last")


def _explained(
    history: History, before: SessionInfo | None, info: SessionInfo, after: SessionInfo | None, seen: Seen | None
) -> SessionExplanation:
    reader, shows = history.reader, seen or (lambda kind, key: True)
    previous = None if before is None else _adjacent(history, before, shows)
    # the last event that is not new to it: the head of the session before, or the beginning of the log
    start = min(reader.oldest(), info.head) if before is None else before.head
    old = ClusterContents.of(history.state(start, jump=True)) if start else ClusterContents()
    state = history.state(info.head, jump=True)
    news = [*object_changes(old, ClusterContents.of(state)), *call_changes(history, start, info.head)]
    record = reader.session(info.number)
    plan = ev.decode_plan(record.plan)
    known = dict(state.waiting)
    waits = ev.waits_after(known, plan.waiting)
    here = _Adjacent.of(info, record, waits, shows)
    groups = [one for one in plan.groups if shows("PodGroup", one.key)]
    explanation = SessionExplanation(
        info.number, moment(info.time), moment(info.now), info.head, info.epoch, info.policy, news,
        decided=_decided(history, info, record, state),
        admitted=[one.key for one in groups if one.phase == "Inqueue" and one.was in ("", "Pending")],
        phases=[status_in_words(one) for one in groups],
        waiting=[change for change in _wait_changes(known, waits) if shows("PodGroup", change.group)],
        still=_still({group: found for group, found in waits.items() if shows("PodGroup", group)}),
        queues=[],
        meanwhile=info.sequence - info.head - 1,
        faults=list(plan.faults),
        outside=_external_questions(record),
        more=plan.more,
        shadow=state.settings.shadow,
    )  # fmt: skip
    _decide_again(history, explanation, record)
    explanation.previous = None if previous is None else here.against(previous)
    explanation.next = None if after is None else here.against(_adjacent(history, after, shows))
    return explanation if seen is None else _visible_part(explanation, seen)


def _visible_part(whole: SessionExplanation, seen: Seen) -> SessionExplanation:
    """Remove decisions, changes and queues that may not be named; groups are filtered already."""
    decided = [one for one in (_visible_statement(one, seen) for one in whole.decided) if one is not None]
    news = [one for one in (_visible_change(one, seen) for one in whole.news) if one is not None]
    queues = [queue for queue in whole.queues if seen("Queue", queue.queue)]
    return msgspec.structs.replace(whole, decided=decided, news=news, queues=queues, faults=[], outside=[], again="")


def _visible_statement(decided: Decided, seen: Seen) -> Decided | None:
    """Return a statement as a user who may not see its group may read it; None if it moves none of the user's pods."""
    evictions = [one for one in decided.evictions if seen("Pod", one.pod)]
    if seen("PodGroup", decided.group):
        own = len(evictions) == len(decided.evictions)
        return msgspec.structs.replace(decided, evictions=evictions, failures=decided.failures if own else [])
    if not evictions:
        return None
    evictions = [msgspec.structs.replace(one, for_group=ANOTHER, for_queue="") for one in evictions]
    return Decided(decided.statement, decided.action, ANOTHER, "", evictions=evictions)


def _visible_change(new: StateChange, seen: Seen) -> StateChange | None:
    if new.kind in ("configuration", "leadership"):
        return new
    visible = [(number, key) for number, key in enumerate(new.keys) if seen(new.kind, key)]
    details = [new.details[number] for number, _ in visible if number < len(new.details)]
    return msgspec.structs.replace(new, keys=[key for _, key in visible], details=details) if visible else None


def _adjacent(history: History, info: SessionInfo, seen: Seen) -> _Adjacent:
    record = history.reader.session(info.number)
    known = history.state(info.head, jump=True).waiting
    return _Adjacent.of(info, record, ev.waits_after(known, ev.decode_plan(record.plan).waiting), seen)


def _external_questions(record: ev.SessionDecided) -> list[str]:
    """Return the number of external questions, and their errors."""
    if not record.asked:
        return []
    errors = Counter(one.error for one in record.asked if one.error)
    facts = {"count": counted(len(record.asked), "question")}
    facts["answered"] = f"{len(record.asked) - sum(errors.values())}"
    failed = ({"count": f"{count}", "error": error} for error, count in errors.items())
    return [SESSIONS.sentence("questions", facts), *(SESSIONS.sentence("questions failed", one) for one in failed)]


def _decide_again(history: History, explanation: SessionExplanation, record: ev.SessionDecided) -> None:
    """Decide the session again for the queues' statistics, and note whether the plan is the same."""
    try:
        _, session = history.rerun(record.session)
    except Exception as error:  # noqa: BLE001 - a plugin may fail now; the logged facts are returned anyway
        explanation.again = SESSIONS.sentence("failed", {"error": f"{type(error).__name__}: {error}"})
        return
    explanation.queues = _queues(session)
    if difference_from(record, plan_of(session)) is not None:
        explanation.again = SESSIONS["otherwise"]
