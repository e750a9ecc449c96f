"""Finds the change of the configuration, a queue, a quota or a priority class that made a job, or waits, worse.

A change counts as the cause if reverting it helps: sessions, or the whole workload, are decided again without it.
`alterations.py` finds the changes and reverts them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from vcd.eventlog import LogError
from vcd.model import events as ev
from vcd.model.projection_codec import encode_payload
from vcd.model.wording import counted, did_you_mean, span_in_words
from vcd.state.snapshot import Snapshot
from vcd.text.time_formats import moment
from vcd.text.trial_templates import BISECTIONS
from vcd.timetravel.alterations import CONFIGURATION, Alteration, RevertibleChange, alterations, revert_changes
from vcd.timetravel.history import History, object_in, opened
from vcd.timetravel.query_errors import NotFound
from vcd.timetravel.whatif.logged_workload import Workload
from vcd.timetravel.whatif.run_measures import quantile
from vcd.timetravel.whatif.runs import BASELINE, Run, Variant, simulated
from vcd.timetravel.whatif.simulated_cluster import PERIOD
from vcd.timetravel.whatif.workloadreader import workload_of
from vcd.timetravel.why.change_search import Trials
from vcd.timetravel.why.job_waits import Wait, first_placement, wait_at, waits_of
from vcd.timetravel.why.name_lookup import named

SESSIONS = 40
"""Sessions of a wait in which changes are reverted, before the earliest one is searched."""
MOST_DECISIONS = 400
"""Maximum number of sessions that are decided again."""
ONE_BY_ONE = 8
"""Up to this many changes are tried one by one; more are halved as long as reverting a half helps."""


class Started(msgspec.Struct, frozen=True):
    """The outcome of reverting one change in the sessions in which a job waits. ``session`` is the first session in
    which the job then starts (None: no tried session), at RFC 3339 ``time``, with nodes for this number of its
    ``pods``. ``tried``: the change was reverted in some session, alone or with others."""

    change: Alteration
    session: int | None
    time: str = ""
    pods: int = 0
    tried: bool = True

    def became(self) -> str:
        """Return the outcome in words."""
        flag = "" if self.session is not None else "not" if self.tried else "unknown"
        return BISECTIONS.sentence("starts", {"session": f"{self.session}"}, [flag])


class JobBisection(msgspec.Struct, frozen=True):
    """Which change prevented a job's start in its last wait.

    ``changes`` are all changes; changes without which the job starts come first. ``found`` is the change without which
    it starts earliest. The job waits in ``waits`` sessions; changes were tried in ``sessions`` of them, by
    ``decisions`` repeated decisions. ``started`` is the session in which the job did start (None: it never did).
    """

    job: str
    found: Started | None
    started: int | None
    changes: list[Started]
    sessions: int
    waits: int
    decisions: int
    exhausted: bool

    def lines(self) -> Iterator[str]:
        """Yield the answer, the tried changes, and the effort."""
        count, never = sum(one.tried for one in self.changes), "never" if self.started is None else ""
        facts = {
            "name": self.job.partition("/")[2],
            "then": BISECTIONS.sentence("started", {"session": f"{self.started}"}, [never]),
            "changes": counted(count, "change"),
            "sessions": counted(self.sessions, "session"),
            "waits": f"{self.waits}",
            "decisions": counted(self.decisions, "decision"),
            "most": f"{MOST_DECISIONS}",
        }
        if self.found is not None:
            found = {"session": f"{self.found.session}", "time": self.found.time, "change": self.found.change.text}
            yield BISECTIONS.sentence("job", {**facts, **found})
        elif not count:
            yield BISECTIONS.sentence("job unchanged", facts)
            yield BISECTIONS["job oldest"]
        else:
            yield BISECTIONS.sentence("job none", facts)
        for one in self.changes:
            yield BISECTIONS.sentence("without", {"change": one.change.text, "became": one.became()})
        yield BISECTIONS.sentence("job tried", facts)
        if self.exhausted:
            yield BISECTIONS.sentence("job ended", facts)


def bisect_job(
    path: str | Path, name: str, namespace: str = "default", first: int | None = None, last: int | None = None
) -> JobBisection:
    """Return the change without which a job would have started in the earliest session.

    Changes that took effect in the sessions ``first`` to ``last`` (None: no bound) are tried in later sessions in
    which the job waits: each session is decided again as if the change had not been made. What other jobs did in the
    log stays. Raises NotFound if the log has no such job or it never waits, and LogError.
    """
    with opened(path) as history:
        _, group, _ = named(history, "job", name, namespace)
        return _JobSearch(history, group, first, last).run()


class _JobSearch:
    """Reverts changes in the sessions in which a job waits."""

    def __init__(self, history: History, group: str, first: int | None, last: int | None) -> None:
        waits = waits_of(history, group)
        if not waits:
            raise NotFound(f"event log {history.reader.path}: job {group} waits in none of its sessions")
        self._history, self._group, self._all = history, group, alterations(history)
        inside = range(first or 0, (last or history.reader.last_session()) + 1)
        self._changes = [one for one in self._all if one.told.session in inside]
        self._first = waits[-1].first
        infos = history.reader.sessions(self._first, waits[-1].last)
        self._waits = [(info.number, info.head) for info in infos]
        self._decisions = 0
        self._tried: set[int] = set()
        self._reverted: set[int] = set()
        self._wait: tuple[int, Wait | None] = (0, None)

    @property
    def _exhausted(self) -> bool:
        return self._decisions >= MOST_DECISIONS

    def run(self) -> JobBisection:
        """Try each change in some sessions, then search the earliest session for those that let the job start."""
        found: dict[int, Started] = {}
        before, chosen = -1, _evenly_spaced(len(self._waits), SESSIONS)
        for place in chosen:
            open_ = [one for one in self._changes_at(place) if one.told.event not in found]
            for change in self._find_starting(place, open_):
                found[change.told.event] = self._earliest(change, before, place)
            before = place
        outcomes = [
            found.get(one.told.event, Started(one.told, None, tried=one.told.event in self._reverted))
            for one in self._changes
        ]
        outcomes.sort(key=lambda one: (one.session is None, not one.tried, one.session or 0, one.change.event))
        started = first_placement(self._history, self._group, self._first)
        first = outcomes[0] if outcomes and outcomes[0].session is not None else None
        return JobBisection(
            self._group, first, started, outcomes, len(self._tried), len(self._waits), self._decisions,
            self._exhausted,
        )  # fmt: skip

    def _changes_at(self, place: int) -> list[RevertibleChange]:
        return [one for one in self._changes if one.told.event <= self._waits[place][1]]

    def _find_starting(self, place: int, changes: Sequence[RevertibleChange]) -> Iterator[RevertibleChange]:
        """Yield the changes without which the job starts in a session."""
        if len(changes) > ONE_BY_ONE:
            if self._starts(place, changes):
                middle = len(changes) // 2
                yield from self._find_starting(place, changes[:middle])
                yield from self._find_starting(place, changes[middle:])
            return
        for change in changes:
            if self._starts(place, [change]):
                yield change

    def _earliest(self, change: RevertibleChange, low: int, high: int) -> Started:
        """Return the first session in which the job starts without a change, by bisection between two places."""
        while high - low > 1 and not self._exhausted:
            middle = (low + high) // 2
            if change in self._changes_at(middle) and self._starts(middle, [change]):
                high = middle
            else:
                low = middle
        wait = self._at(high)
        assert wait is not None
        trials, snapshot = self._without(wait, [change])
        pods = len(trials.effect(snapshot).bound)
        return Started(change.told, self._waits[high][0], moment(wait.record.now), pods)

    def _starts(self, place: int, changes: Sequence[RevertibleChange]) -> bool:
        wait = self._at(place)
        if wait is None or self._exhausted:
            return False
        self._decisions += 1
        self._tried.add(place)
        self._reverted.update(change.told.event for change in changes)
        trials, snapshot = self._without(wait, changes)
        return trials.lets_in(snapshot)

    def _without(self, wait: Wait, changes: Sequence[RevertibleChange]) -> tuple[Trials, Snapshot]:
        """Return a session as if some changes had not been made; later changes of the same fields stay."""
        back = {one.told.event for one in changes}
        made = [one for one in self._all if one.told.event <= wait.record.head]
        policy = self._history.policy(wait.record)
        for one in reversed([one for one in made if one.told.kind == CONFIGURATION]):
            if one.told.event not in back:
                break
            policy = one.policy or policy
        snapshot = revert_changes(wait.session.snapshot, changes, [one for one in made if one.told.event not in back])
        return Trials(wait, policy, MOST_DECISIONS), snapshot

    def _at(self, place: int) -> Wait | None:
        """Return the job's wait at a session; None if this version starts the job there."""
        number = self._waits[place][0]
        if self._wait[0] != number:
            try:
                self._wait = number, wait_at(self._history, self._group, number)
            except NotFound:
                self._wait = number, None
        return self._wait[1]


def _evenly_spaced(count: int, most: int) -> list[int]:
    """Return places in a list, evenly spaced, including its first and last."""
    if count <= most:
        return list(range(count))
    return sorted({round(number * (count - 1) / (most - 1)) for number in range(most)})


# --- waits ------------------------------------------------------------------------------------------------------------


class WaitEffect(msgspec.Struct, frozen=True):
    """The effect of one change on waits: their 95th percentile and mean without it, in seconds, and how many jobs
    never start without it."""

    change: Alteration
    p95: float
    mean: float
    never: int


class WaitsBisection(msgspec.Struct, frozen=True):
    """Which change made waits longer.

    ``p95``, ``mean`` (seconds) and ``never`` are those with all changes; a job that never starts waits until the end.
    ``effects`` are of the changes that were reverted alone, the best first; ``set_aside`` are changes that were only
    reverted with others, which did not help. ``found`` is the one without which the 95th percentile, or else the mean,
    is best; None if reverting improves neither.
    """

    queue: str
    jobs: int
    p95: float
    mean: float
    never: int
    found: WaitEffect | None
    effects: list[WaitEffect]
    set_aside: list[Alteration]
    runs: int

    def lines(self) -> Iterator[str]:
        """Yield the answer, then the effect of each change."""
        count = len(self.effects) + len(self.set_aside)
        facts = {
            "where": f"in queue {self.queue}" if self.queue else "in all queues",
            "old": _spans(self.p95, self.mean),
            "changes": counted(count, "change"),
            "jobs": counted(self.jobs, "job"),
            "runs": counted(self.runs, "run"),
        }
        if self.found is not None:
            found = {"new": _spans(self.found.p95, self.found.mean), "change": self.found.change.text}
            yield BISECTIONS.sentence("waits", {**facts, **found})
        else:
            yield BISECTIONS.sentence("waits none" if count else "waits unchanged", facts)
        for one in self.effects:
            never = f", {counted(one.never, 'job')} never starts" if one.never else ""
            became = f"{_spans(one.p95, one.mean)}{never}"
            yield BISECTIONS.sentence("without", {"change": one.change.text, "became": became})
        for change in self.set_aside:
            yield BISECTIONS.sentence("waits together", {"change": change.text})
        yield BISECTIONS.sentence("waits basis", facts)


def _spans(p95: float, mean: float) -> str:
    return BISECTIONS.sentence("spans", {"p95": span_in_words(p95), "mean": span_in_words(mean)})


class _Waits(NamedTuple):
    p95: float
    mean: float
    jobs: int
    never: int


def bisect_waits(
    path: str | Path,
    queue: str = "",
    first: int | None = None,
    last: int | None = None,
    *,
    period: int = PERIOD,
    progress: Callable[[str, float], None] = lambda _, __: None,
) -> WaitsBisection:
    """Return the change without which jobs of a queue, or all jobs, would have waited least.

    The log's workload runs in simulated time with all changes, and without each; with many changes, without halves of
    them, as long as that helps. The changes are those that took effect in the sessions ``first`` to ``last``; the
    workload ends with ``last``. ``period`` and ``progress`` as for ``whatif``. Raises LogError, and NotFound for a
    queue without jobs.
    """
    with opened(path) as history:
        changes, reader = alterations(history, first, last), history.reader
        until = next((info.sequence for info in reader.sessions(last, last)), None) if last is not None else None
        work = workload_of(reader, until).with_logged_policies()
    if not work.groups:
        raise LogError(f"event log {path}: it holds no job")
    search = _WaitsSearch(work, queue, period, progress)
    if not search.base.jobs:
        near = did_you_mean(queue, sorted(set(map(work.queue_of, work.groups))))
        raise NotFound(f"event log {path}: no job was in queue {queue}{near}")
    return search.run(changes)


class _WaitsSearch:
    """Runs a workload with some changes reverted."""

    def __init__(self, work: Workload, queue: str, period: int, progress: Callable[[str, float], None]) -> None:
        self._work, self._queue, self._period, self._progress = work, queue, period, progress
        self._runs = 0
        self._set_aside: list[Alteration] = []
        self.base = self._waits(())

    def run(self, changes: Sequence[RevertibleChange]) -> WaitsBisection:
        """Return the effect of each change, and the best one."""
        effects = sorted(self._effects(changes), key=lambda one: (one.p95, one.mean, one.change.event))
        base = self.base
        found = effects[0] if effects and (effects[0].p95, effects[0].mean) < (base.p95, base.mean) else None
        return WaitsBisection(
            self._queue, base.jobs, base.p95, base.mean, base.never, found, effects, self._set_aside, self._runs
        )

    def _effects(self, changes: Sequence[RevertibleChange]) -> Iterator[WaitEffect]:
        if len(changes) > ONE_BY_ONE:
            waits = self._waits(changes)
            if (waits.p95, waits.mean) < (self.base.p95, self.base.mean):
                middle = len(changes) // 2
                yield from self._effects(changes[:middle])
                yield from self._effects(changes[middle:])
            else:
                self._set_aside += [one.told for one in changes]
            return
        for change in changes:
            waits = self._waits((change,))
            yield WaitEffect(change.told, waits.p95, waits.mean, waits.never)

    def _waits(self, without: Sequence[RevertibleChange]) -> _Waits:
        self._runs += 1
        name = f"run {self._runs}" if without else BASELINE
        work = self._work
        for change in sorted(without, key=lambda one: -one.told.event):
            work = _without(work, change)
        return self._measure_waits(simulated(work, Variant(name), self._period, progress=self._progress))

    def _measure_waits(self, run: Run) -> _Waits:
        """Return the waits of a run; a job that never starts counts as waiting from the start of the run to its end."""
        waits = [wait for queue, wait in run.jobs.values() if self._queue in ("", queue)]
        known = [run.seconds if wait is None else wait for wait in waits]
        never = sum(wait is None for wait in waits)
        mean = math.fsum(known) / max(len(known), 1)
        return _Waits(quantile(known, 0.95) or 0.0, mean, len(known), never)


def _without(work: Workload, change: RevertibleChange) -> Workload:
    """Return a workload without a change; values that a later change sets stay, even if they are equal."""
    changes, is_over, settled = list[tuple[int, ev.Event]](), False, set[tuple[str, ...]]()
    for time, event in work.changes:
        is_later = time > change.nanoseconds
        if time < change.nanoseconds or is_over or not change.is_of(event):
            changes.append((time, event))
        elif isinstance(event, ev.PolicyLoaded):
            if event != change.after:
                is_over = is_later
                changes.append((time, event))
        elif (
            change.told.what == "changed" and isinstance(event, ev.ObjectPut) and (now := object_in(event)) is not None
        ):
            settled |= change.overwritten(now) if is_later else set()
            before = change.of_object(now, settled)
            assert before is not None
            changes.append((time, ev.ObjectPut(event.kind, event.key, "", encode_payload(before))))
        else:
            is_over = is_later and isinstance(event, ev.ObjectGone)  # a later object of this name is another one
            if change.told.what == "changed" or (change.told.what == "gone" and is_later):
                changes.append((time, event))
    return msgspec.structs.replace(work, changes=changes)
