"""Why a pod was evicted: for which pod or job, by which quantities, why not another victim, and what happened
afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Literal

import msgspec

from vcd.eventlog import LogError, Logged
from vcd.eventlog.log_reader import OperationInfo
from vcd.model import events as ev
from vcd.model.diagnosis import FunnelLine
from vcd.model.objects import Pod
from vcd.model.wording import counted, span_in_words
from vcd.scheduling.framework.order_positions import Precedence
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task
from vcd.state.records import seconds_of
from vcd.text.amounts import quantities_text, resource_name
from vcd.text.eviction_templates import EVICTIONS
from vcd.text.reason_sentences import reasons_text
from vcd.text.session_templates import SESSIONS
from vcd.text.text_table import aligned
from vcd.text.time_formats import moment
from vcd.timetravel.history import WHOLE, History, LogWindow
from vcd.timetravel.queuestatistics import QueueStatistics
from vcd.timetravel.why.job_waits import every_wait
from vcd.timetravel.why.jobepisodes import JobEpisodes
from vcd.timetravel.why.name_lookup import group_of, named
from vcd.timetravel.why.victim_choices import EvictedTask, Offer, VictimQuestion, evicted

Fate = Literal["evicted", "spared", "not needed", "not asked"]

SHOWN_CANDIDATES = 10
"""Rows of other pods in the output, at most."""


class Candidate(msgspec.Struct, omit_defaults=True):
    """Another possible victim: on the same node or, if the preemptor is a gang, among the pods considered for it.

    ``place`` is its position among the pods that the plugins permitted (0: it is not among them), ``fate`` what
    happened to it, ``plugin`` the one that protected it, ``why`` the reason in words.
    """

    pod: str
    group: str
    queue: str
    priority: int
    fate: Fate
    place: int = 0
    plugin: str = ""
    why: str = ""


class Eviction(msgspec.Struct, omit_defaults=True):
    """One eviction of a pod, as its session decided it.

    ``group`` and ``queue`` are the pod's own; ``for_pod``, ``for_group`` and ``for_queue`` those of the preemptor (a
    whole gang has no ``for_pod``); ``reason`` is the logged one. ``queues`` has the statistics of both queues when the
    plugins voted, ``resources`` the relevant ones. ``freed`` is what the victim held, ``asked`` and ``lacked`` are
    what the preemptor requested and what the node lacked of it, as quantities. ``place`` is the victim's position
    among those that the plugins in ``let_go`` permitted, ``chosen_before`` the next one that was not evicted,
    ``difference`` why. ``needed`` states why an eviction was necessary, with the ``funnel`` of the nodes then,
    ``elsewhere`` the outcome of the search on other nodes before; ``ran`` is the run time in seconds that was lost.
    ``result`` is the API server's answer to the call (empty: none yet), ``dropped`` why there was no call.
    ``came_back`` is the pod that replaced the victim, and ``bound_to`` that pod's node. ``text`` is the explanation in
    a sentence, ``why`` has further sentences.
    """

    pod: str
    node: str
    session: int
    time: str
    action: str
    reason: str
    group: str = ""
    queue: str = ""
    for_pod: str = ""
    for_group: str = ""
    for_queue: str = ""
    resources: list[str] = []
    queues: dict[str, QueueStatistics] = {}
    freed: dict[str, str] = {}
    asked: dict[str, str] = {}
    lacked: dict[str, str] = {}
    place: int = 0
    let_go: tuple[str, ...] = ()
    chosen_before: str = ""
    difference: Precedence | None = None
    candidates: list[Candidate] = []
    needed: str = ""
    funnel: list[FunnelLine] = []
    elsewhere: str = ""
    ran: float = 0.0
    result: str = ""
    dropped: str = ""
    came_back: str = ""
    bound_to: str = ""
    text: str = ""
    why: list[str] = []

    def lines(self) -> Iterator[str]:
        """Yield the sentence, further sentences, and the other possible victims in a table."""
        yield f"{self.time}  session {self.session}: {self.pod} on {self.node} {self.text}"
        yield from (f"  {line}" for line in self.why)
        if self.candidates:
            rows = _merged(self.candidates)
            yield "  the others:"
            head = ["pod", "job", "queue", "priority", "fate", "why"]
            yield from (f"    {line}" for line in aligned(head, rows[:SHOWN_CANDIDATES]))
            if len(rows) > SHOWN_CANDIDATES:
                yield "    and more"


def _merged(candidates: list[Candidate]) -> list[list[str]]:
    """Return the rows of a table, one for adjacent pods of a job with equal fate and reason."""
    rows = []
    adjacent = groupby(candidates, lambda one: (one.group, one.queue, one.priority, one.fate, one.plugin, one.why))
    for (group, queue, priority, fate, plugin, why), of_kind in adjacent:
        first, *more = [one.pod for one in of_kind]
        pods = f"{first} and {len(more)} more" if more else first
        rows.append([pods, group, queue, str(priority), fate, f"{plugin}: {why}" if plugin else why])
    return rows


class EvictionExplanation(msgspec.Struct):
    """The evictions of a pod, or of a job's pods, in order. ``key`` is ``namespace/name``; ``until`` the time of the
    last examined event."""

    kind: Literal["job", "pod"]
    key: str
    until: str
    evictions: list[Eviction]

    def lines(self) -> Iterator[str]:
        """Yield the explanation in sentences, with times in UTC."""
        facts = {"kind": self.kind, "key": self.key, "until": self.until}
        facts["count"] = counted(len(self.evictions), "eviction")
        yield EVICTIONS.sentence("count" if self.evictions else "none", facts)
        for eviction in self.evictions:
            yield from eviction.lines()


def explain_eviction(
    history: History, name: str, namespace: str = "default", window: LogWindow = WHOLE
) -> EvictionExplanation:
    """Explain from a log why a pod, or pods of a job, were evicted.

    ``name`` may be ``namespace/name``; a job is named as for ``explain``. Raises NotFound if neither exists, and
    LogError for what the log does not have.
    """
    kind, key, group = named(history, None, name, namespace)
    pods = [key] if kind == "pod" else _evicted_pods(history, group)
    found = [info for pod in pods for info in history.reader.operations_of(pod) if info.verb == "evict"]
    found = [info for info in found if window.since <= info.time and info.sequence <= (window.until or info.sequence)]
    found.sort(key=lambda info: (info.session, info.statement, info.operation))
    evictions: list[Eviction] = []
    for number, of_session in groupby(found, key=lambda info: info.session):
        evictions += _of_session(history, number, list(of_session))
    for eviction, after in zip(evictions, _aftermath(history, group, found, window), strict=True):
        _add_aftermath(eviction, after)
    return EvictionExplanation(kind, key, moment(window.end(history.reader)), evictions)


def _evicted_pods(history: History, group: str) -> list[str]:
    """Return the keys of a group's pods that sessions decided to evict."""
    namespace = group.partition("/")[0] + "/"
    keys: dict[str, None] = {}
    for logged in history.reader.find(type="session"):
        assert isinstance(logged.event, ev.SessionDecided)
        operations = ev.decode_plan(logged.event.plan).operations("evict")
        keys.update((one.key, None) for one in operations if one.key.startswith(namespace))
    return [key for key in keys if group_of(history, key) == group]


# --- the session decided again ----------------------------------------------------------------------------------------


def _of_session(history: History, number: int, found: list[OperationInfo]) -> list[Eviction]:
    """Return the evictions of one session, which is decided again with a trace of its victim searches."""
    record = history.reader.session(number)
    plan = ev.decode_plan(record.plan)
    stale = dict(record.stale)
    evicted_tasks: dict[str, EvictedTask] = {}
    failed, session = "", None
    try:
        session, evicted_tasks = evicted(history, number, {info.key for info in found}, {info.group for info in found})
    except LogError:
        raise
    except Exception as error:  # noqa: BLE001 - a plugin may fail now; the logged facts are returned anyway
        failed = SESSIONS.sentence("failed", {"error": f"{type(error).__name__}: {error}"})
    made_for = {
        operation.key: (place, statement.group)
        for place, statement in enumerate(plan.statements)
        for operation in statement.operations
        if operation.verb == "evict" and place not in stale
    }
    evictions = []
    for info in found:
        operation = plan.statements[info.statement].operations[info.operation]
        eviction = Eviction(
            info.key, info.node, number, moment(info.time), info.action, operation.reason, for_group=info.group
        )
        eviction.result, eviction.dropped = info.result or "", stale.get(info.statement, "")
        if session is None:
            eviction.text, eviction.why = _logged(eviction), [failed]
        else:
            _work_out(eviction, session, evicted_tasks.get(info.key), made_for)
        evictions.append(eviction)
    return evictions


def _work_out(
    eviction: Eviction, session: Session, evicted_task: EvictedTask | None, made_for: dict[str, tuple[int, str]]
) -> None:
    if evicted_task is None:
        eviction.text = _logged(eviction)
        eviction.why.append(EVICTIONS["otherwise"])
        return
    task, ask = evicted_task.task, evicted_task.question
    eviction.group, eviction.queue = task.job.key, task.job.queue.name
    eviction.freed = _without_pods(session.amounts(task.request.tolist()))
    if ask is None:
        plugins = " and ".join(evicted_task.wanted_by)
        facts = {"action": eviction.action, "plugins": plugins}
        eviction.text = EVICTIONS.sentence("moved", facts) if plugins else _logged(eviction)
        return
    _fill(eviction, ask, session)
    eviction.ran = _ran(task, session.now)
    eviction.candidates = _candidates(eviction, ask, made_for)
    _choose_next(eviction, ask)
    eviction.text = _sentence(eviction, task, ask)
    eviction.why += _details(eviction, ask)


def _fill(eviction: Eviction, ask: VictimQuestion, session: Session) -> None:
    """Fill in the request, the preemptor, and the queues' statistics then."""
    eviction.for_pod = "" if ask.asker is None else ask.asker.key
    eviction.for_queue = ask.job.queue.name
    eviction.place, eviction.let_go = ask.offers[eviction.pod].place, ask.let_go
    eviction.asked, eviction.lacked = _without_pods(ask.asked), ask.lacked
    eviction.needed, eviction.funnel, eviction.elsewhere = ask.needed, ask.funnel, ask.elsewhere
    eviction.queues = {name: ask.figures[name] for name in dict.fromkeys((eviction.for_queue, eviction.queue))}
    names = list(_without_pods(ask.lacked) or _without_pods(ask.asked))
    counted_names = {name for figures in eviction.queues.values() for have in figures.amounts.values() for name in have}
    held = eviction.queues[eviction.queue].amounts.get("allocated", {})
    cards = sorted(set(held) - set(session.nodes.resources))  # by model; a pod requests them by their resource
    eviction.resources = [name for name in names if name in counted_names] + cards


def _ran(task: Task, now: int) -> float:
    """Return for how many seconds a pod has run; 0 if its status has no start time."""
    since = task.pod.status.start_time
    try:
        return max(now / 1e9 - seconds_of(since), 0.0) if since else 0.0
    except ValueError:
        return 0.0


def _without_pods(amounts: dict[str, str]) -> dict[str, str]:
    return {name: amount for name, amount in amounts.items() if name != "pods"}


def _candidates(eviction: Eviction, ask: VictimQuestion, made_for: dict[str, tuple[int, str]]) -> list[Candidate]:
    """Return the other possible victims, in eviction order."""
    mine = ask.offers[eviction.pod]
    others = [offer for offer in ask.offers.values() if offer is not mine]
    others.sort(key=lambda offer: (not offer.place, not offer.rank, offer.place, offer.rank))
    return [_candidate(offer, mine, ask, made_for) for offer in others]


def _candidate(offer: Offer, mine: Offer, ask: VictimQuestion, made_for: dict[str, tuple[int, str]]) -> Candidate:
    key, job = offer.task.key, offer.task.job
    found = Candidate(key, job.key, job.queue.name, job.priority, "not needed", offer.place, offer.plugin)
    before = ask.differences.get((mine.task.key, key))
    facts = {"pod": mine.task.key, "difference": "" if before is None else str(before)}
    first = EVICTIONS.sentence("first", facts, ["because" if before else ""])
    if not offer.rank:
        found.fate, found.why = "not asked", offer.rule
    elif not offer.place and (offer.helps or not offer.alone):
        found.fate = "spared"
        found.why = f"{offer.rule}; {first}" if offer.alone and offer.rank > mine.rank else offer.rule
    elif key in made_for:
        found.fate = "evicted"
        statement, group = made_for[key]
        is_same = statement == made_for.get(mine.task.key, (-1, ""))[0]
        found.why = EVICTIONS.sentence("too" if is_same else "for another", {"group": group})
    elif offer.place > mine.place:
        found.why = first
    elif not offer.helps:
        found.why = EVICTIONS["not helpful"]
    else:
        found.why = EVICTIONS["not needed"]
    return found


def _choose_next(eviction: Eviction, ask: VictimQuestion) -> None:
    """Note the next victim in order that was not evicted, else the next one that was protected because of earlier
    victims."""
    later = [offer for offer in ask.offers.values() if offer.rank > ask.offers[eviction.pod].rank]
    stayed = {one.pod for one in eviction.candidates if one.fate != "evicted"}
    for other in [offer for offer in later if offer.place] + [offer for offer in later if offer.alone]:
        if other.task.key in stayed:
            eviction.chosen_before = other.task.key
            eviction.difference = ask.differences.get((eviction.pod, other.task.key))
            return


# --- text -------------------------------------------------------------------------------------------------------------


def _logged(eviction: Eviction) -> str:
    return EVICTIONS.sentence("logged", {"action": eviction.action, "reason": eviction.reason})


def _sentence(eviction: Eviction, task: Task, ask: VictimQuestion) -> str:
    """Return the explanation, such as ``evicted by reclaim of queue b (deserved 40 cpu, had 12) because queue a held
    ...``."""
    why = f": {eviction.difference.words}" if eviction.difference else ""
    facts = {
        "action": eviction.action,
        "for_pod": eviction.for_pod or eviction.for_group,
        "for_group": eviction.for_group,
        "for_queue": eviction.for_queue,
        "for_priority": f"{ask.job.priority}",
        "priority": f"{task.job.priority}",
        "chosen": f"; chosen before {eviction.chosen_before}{why}" if eviction.chosen_before else "",
    }
    if eviction.queue != eviction.for_queue:
        facts |= {"share": _share_text(eviction), "held": _held_text(eviction)}
        return EVICTIONS.sentence("reclaimed", facts)
    return EVICTIONS.sentence("for its job" if task.job is ask.job else "for its queue", facts)


def _measure(figures: QueueStatistics) -> str:
    """Return the series by which a queue's plugin limits it: deserved or, with cards, capability; empty if none
    does."""
    return next((series for series in ("deserved", "capability") if series in figures.amounts), "")


def _amount_text(code: str, figures: QueueStatistics, name: str, flag: str) -> str:
    measure = _measure(figures)
    facts = {"had": figures.quantity("allocated", name), "resource": resource_name(name), "series": measure}
    return EVICTIONS.sentence(code, {**facts, "limit": figures.quantity(measure, name)}, [flag if measure else ""])


def _share_text(eviction: Eviction) -> str:
    """Return what the preemptor's queue deserved and had: `` (deserved 40 cpu, had 12)``."""
    figures = eviction.queues[eviction.for_queue]
    parts = [_amount_text("had", figures, name, "of limit") for name in eviction.resources]
    return f" ({'; '.join(parts)})" if parts else ""


def _held_text(eviction: Eviction) -> str:
    """Return what the victim's queue held, and over which limit."""
    figures = eviction.queues[eviction.queue]
    measure = _measure(figures)
    limits, allocated = figures.amounts.get(measure, {}), figures.amounts.get("allocated", {})
    unlimited = float("inf") if measure == "capability" else 0
    over = [name for name in eviction.resources if allocated.get(name, 0) > limits.get(name, unlimited)]
    held = [_amount_text("held", figures, name, "over" if over else "of") for name in over or eviction.resources]
    joint = " because" if measure and over else ";"
    return f"{joint} queue {eviction.queue} held {', '.join(held)}" if held else ""


def _details(eviction: Eviction, ask: VictimQuestion) -> Iterator[str]:
    lacked = quantities_text(eviction.lacked)
    facts = {
        "who": eviction.for_pod or f"job {eviction.for_group}",
        "requested": quantities_text(eviction.asked) or "no resources",
        "lacked": f"; {eviction.node} lacked {lacked} of it" if lacked else "",
        "limits": f"; its queue: {ask.no_room}" if ask.no_room else "",
        "freed": quantities_text(eviction.freed) or "nothing",
        "needed": eviction.needed,
        "span": span_in_words(eviction.ran),
        "plugins": ", ".join(eviction.let_go),
        "place": f"{eviction.place}",
        "places": f"{sum(offer.place > 0 for offer in ask.offers.values())}",
        "other": eviction.chosen_before,
        "difference": str(eviction.difference),
    }
    yield EVICTIONS.sentence("requested", facts)
    if eviction.needed:
        yield EVICTIONS.sentence("needed", facts)
    if eviction.elsewhere:
        yield eviction.elsewhere
    if eviction.ran:
        yield EVICTIONS.sentence("ran", facts)
    if eviction.let_go:
        yield EVICTIONS.sentence("permitted", facts)
    if eviction.difference:
        yield EVICTIONS.sentence("difference", facts)


# --- afterwards -------------------------------------------------------------------------------------------------------


class _After(msgspec.Struct):
    """What happened after an eviction; times in nanoseconds since the epoch, 0 if it did not happen."""

    info: OperationInfo
    gone: int = 0
    came: int = 0
    key: str = ""
    uid: str = ""
    bound: int = 0
    node: str = ""
    waiting: str = ""

    def is_open(self, sequence: int) -> bool:
        """Return whether a pod created by an event may be the replacement."""
        return not self.came and sequence > self.info.sequence and self.info.verdict != "stale"


class _ReplacementFinder(JobEpisodes):
    """Follows evictions: for each finds the pod of the same group that replaced it, by name, else the next new pod."""

    def __init__(self, group: str, found: list[OperationInfo]) -> None:
        super().__init__(group)
        self.evictions = [_After(info) for info in found]
        self._sequence = 0
        self._names: set[str] = set()
        """The names of all pods that the group ever had: a pod with one of them replaces the former one."""

    def see(self, logged: Logged) -> None:
        self._sequence = logged.sequence
        super().see(logged)

    def _note_deleted(self, kind: str, key: str, time: int) -> None:
        super()._note_deleted(kind, key, time)
        for after in self.evictions:
            if (kind, key) == ("Pod", after.info.key) and not after.gone and self._sequence > after.info.sequence:
                after.gone = time

    def _see_pod(self, key: str, pod: Pod, time: int) -> None:
        before, uid = self.pods.get(key), pod.metadata.uid
        super()._see_pod(key, pod, time)
        if before is None or before.metadata.uid != uid:
            open_places = [after for after in self.evictions if after.is_open(self._sequence)]
            of_its_name = [after for after in open_places if after.info.key == key]
            if key not in self._names:
                of_its_name = of_its_name or open_places
            self._names.add(key)
            for after in of_its_name[:1]:
                after.came, after.key, after.uid = time, key, uid
        for after in self.evictions if pod.spec.node_name else ():
            if (after.key, after.uid) == (key, uid) and not after.bound:
                after.bound, after.node = time, pod.spec.node_name


def _aftermath(history: History, group: str, found: list[OperationInfo], window: LogWindow) -> list[_After]:
    """Follow the group from the first eviction on."""
    later = _ReplacementFinder(group, found)
    if found and group:
        until = window.until or history.reader.head()
        history.feed_concerning(later, group, None, until)
        later.add_waits(every_wait(history, group, None, until, later.time))
    for after in later.evictions:
        if after.came and not after.bound and after.key in later.pods:
            after.waiting = reasons_text(later.waits_for)
    return later.evictions


def _add_aftermath(eviction: Eviction, after: _After) -> None:
    eviction.came_back, eviction.bound_to = after.key, after.node
    if eviction.dropped:
        eviction.text = EVICTIONS.sentence("dropped", {"eviction": eviction.text})
    eviction.why += _afterwards(eviction, after)


def _afterwards(eviction: Eviction, after: _After) -> Iterator[str]:
    if eviction.dropped:
        yield EVICTIONS.sentence("no call", {"why": eviction.dropped})
        return
    if eviction.result not in ("", "done", "gone"):
        yield EVICTIONS.sentence("refused", {"result": eviction.result})
    elif not after.gone:
        yield EVICTIONS["not gone" if eviction.result else "no answer"]
    if not after.came:
        yield from [EVICTIONS["not replaced"]] if after.gone else []
        return
    facts = {"pod": after.key, "span": _since(after.came, after)}
    words = EVICTIONS.sentence("came back" if after.key == eviction.pod else "replaced", facts)
    if after.bound:
        words += EVICTIONS.sentence("bound", {"node": after.node, "span": _since(after.bound, after)})
    elif after.waiting:
        words += EVICTIONS.sentence("waits", {"reasons": after.waiting})
    yield words


def _since(time: int, after: _After) -> str:
    return span_in_words((time - after.info.time) / 1e9)
