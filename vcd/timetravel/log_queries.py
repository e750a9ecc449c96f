"""An open log for queries. Folded states and sessions decided again are shared by all of them.

Queries import modules that only they need, because importing all of them takes as long as many queries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self

from vcd.timetravel.history import WHOLE, LogWindow, opened
from vcd.timetravel.query_errors import NotFound
from vcd.timetravel.why.explain import Explanation, explain
from vcd.timetravel.why.name_lookup import named

if TYPE_CHECKING:
    from vcd.diagnosis.waittimeline import WholeWait
    from vcd.timetravel.clusterchanges import ClusterChanges
    from vcd.timetravel.log_tables import TableRows
    from vcd.timetravel.why.counterfactual import Counterfactual
    from vcd.timetravel.why.eviction_explanation import EvictionExplanation
    from vcd.timetravel.why.jobdifference import JobDifference
    from vcd.timetravel.why.lostpodhours import FirstCauses
    from vcd.timetravel.why.obstacles import Obstacles
    from vcd.timetravel.why.order_explanation import OrderExplanation
    from vcd.timetravel.why.queueanswer import QueueExplanation
    from vcd.timetravel.why.session_explanation import SessionExplanation
    from vcd.timetravel.why.snapshotchanges import What
    from vcd.timetravel.why.verdict import Verdict


class Log:
    """An open log file; a context manager, which closes it.

    Sessions are named by their numbers. Every query raises NotFound for what is not in the log, and LogError for what
    this version cannot read.
    """

    def __init__(self, path: str | Path) -> None:
        """Open ``path``. Raises LogError for a file that cannot be used."""
        self.history = opened(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.history.reader.close()

    def pinned(self) -> AbstractContextManager[None]:
        """Answer all queries within the context as of one event, even if the log is being written."""
        return self.history.reader.pinned()

    def causes(self, first: int | None = None, last: int | None = None, *, change: bool = False) -> FirstCauses:
        """Return the causes of most lost pod-hours, over some sessions (neither given: the log's last 24 h); with
        ``change``, search the smallest change for the worst job of each."""
        from vcd.timetravel.why.lostpodhours import first_causes

        return first_causes(self.history, first, last, change=change)

    def time(self, text: str) -> int:
        """Parse a time to ns since the epoch: RFC 3339, a time of day in UTC (``05:12``, the last such time in the
        log), or a duration before the log's end (``2h``). Raises BadTime."""
        from vcd.timetravel.log_times import time_of

        return time_of(self.history.reader, text)

    def session_at(self, time: int) -> int:
        """Return the last session that was decided at or before a time (ns)."""
        from vcd.timetravel.log_times import session_at

        return session_at(self.history.reader, time)

    def session_after(self, time: int) -> int:
        """Return the first session that was decided at or after a time (ns)."""
        from vcd.timetravel.log_times import session_after

        return session_after(self.history.reader, time)

    def job(self, name: str, namespace: str = "default", session: int | None = None, since: int = 0) -> LoggedJob:
        """Return a job as of a session, from a time (ns) on; named by its PodGroup, a unique prefix of that name, or
        its Volcano Job."""
        return LoggedJob(self, named(self.history, "job", name, namespace)[1], self._window(session, since))

    def pod(self, name: str, namespace: str = "default", session: int | None = None, since: int = 0) -> Explanation:
        """Return a pod's story up to a session, and after a time (ns)."""
        return explain(self.history, "pod", name, namespace, self._window(session, since))

    def queue(
        self, name: str, first: int | None = None, last: int | None = None, *, samples: int | None = None
    ) -> QueueExplanation:
        """Return a queue over some sessions: what it used and deserved, which jobs waited in it and which were
        evicted. At most ``samples`` sessions and the last one are decided again."""
        from vcd.timetravel.why.queue_timeline import explain_queue

        return explain_queue(self.history, name, first, last, samples=samples)

    def session(self, number: int | str = "last", seen: Callable[[str, str], bool] | None = None) -> SessionExplanation:
        """Return what a session found changed, what it decided, and how it differs from the sessions before and after
        it; with ``seen``, only of objects whose kind and key that allows."""
        from vcd.timetravel.why.session_explanation import explain_session

        return explain_session(self.history, number, seen)

    def eviction(
        self, name: str, namespace: str = "default", session: int | None = None, since: int = 0
    ) -> EvictionExplanation:
        """Return why a pod, or a job's pods, were evicted, up to a session and after a time (ns)."""
        from vcd.timetravel.why.eviction_explanation import explain_eviction

        return explain_eviction(self.history, name, namespace, self._window(session, since))

    def changes(
        self, since: int = 0, session: int | None = None, around: str = "", namespace: str = "default"
    ) -> ClusterChanges:
        """Return what people and failures changed in the cluster after a time (ns) and up to a session; with
        ``around`` a job, from ten minutes before its creation until its last pod was bound."""
        from vcd.timetravel.clusterchanges import BEFORE, cluster_changes

        window = self._window(session, since)
        if around:
            job = self.job(around, namespace, session)
            return cluster_changes(self.history, *job.span(BEFORE))
        return cluster_changes(self.history, since, window.end(self.history.reader))

    def difference(
        self,
        one: str,
        other: str = "",
        namespace: str = "default",
        *,
        session: int | None = None,
        other_log: Log | None = None,
    ) -> JobDifference:
        """Return how two jobs differ, each named as for ``job``, with ``@SESSION`` appended to compare it as of that
        session; the other one is read from ``other_log`` if given."""
        from vcd.timetravel.why.jobdifference import explain_difference

        theirs = self.history if other_log is None else other_log.history
        return explain_difference(self.history, theirs, one, other, namespace, session=session)

    def order(self, queue: str | None = None, session: int | None = None) -> OrderExplanation:
        """Return the order in which jobs are served, in one queue or in all."""
        from vcd.timetravel.why.order_explanation import explain_order

        return explain_order(self.history, queue, session)

    def jobs(self) -> TableRows:
        """Return all jobs after the last session, one per row: see ``JobRow``."""
        from vcd.timetravel.log_tables import jobs_table

        return jobs_table(self.history)

    def waits(self) -> TableRows:
        """Return the jobs that wait after the last session, the longest waits first, and why: see ``JobRow``."""
        from vcd.timetravel.log_tables import waits_table

        return waits_table(self.history)

    def sessions(self) -> TableRows:
        """Return all sessions and what they decided, in numbers: see ``SessionRow``."""
        from vcd.timetravel.log_tables import sessions_table

        return sessions_table(self.history)

    def evictions(self) -> TableRows:
        """Return all pods that sessions evicted, and for which jobs: see ``EvictionRow``."""
        from vcd.timetravel.log_tables import evictions_table

        return evictions_table(self.history)

    def queue_usage(self, samples: int | None = None) -> TableRows:
        """Return what queues used, requested and deserved, by resource, in this many sessions (None: ``SAMPLES``),
        evenly spaced, and in the last one. Each of them is decided again: see ``QueueUsageRow``."""
        from vcd.timetravel.log_tables import SAMPLES, queue_usage_table

        return queue_usage_table(self.history, SAMPLES if samples is None else samples)

    def _window(self, session: int | None, since: int) -> LogWindow:
        return LogWindow(since, None if session is None else self.history.reader.info(session))


class LoggedJob:
    """A job of an open log, in a window of it. ``key`` is its PodGroup's, ``namespace/name``."""

    def __init__(self, log: Log, key: str, window: LogWindow) -> None:
        self._history = log.history
        self._window = window
        self.key = key

    def story(self) -> Explanation:
        """Return its waits with their reasons, and where it was placed and why there."""
        return explain(self._history, "job", self.key, window=self._window)

    def span(self, before: int = 0) -> tuple[int, int]:
        """Return the times (ns) of ``before`` its creation and of the bind of its last pod, or now while a pod has no
        node."""
        story = self.story()
        times = [int(one.start.timestamp() * 1e9) for one in story.episodes if one.what in ("created", "bound")]
        end = self._window.end(self._history.reader)
        is_over = story.pending is None and len(times) > 1
        return min(times, default=end) - before, times[-1] if is_over else end

    @cached_property
    def _waits(self) -> list[WholeWait]:
        from vcd.timetravel.why.job_waits import waits_of

        return waits_of(self._history, self.key, self._window)

    @property
    def last_wait(self) -> int | None:
        """The last session in which it waited, according to the sessions' reasons."""
        return self._waits[-1].last if self._waits else None

    def verdict(self, *, change: bool = False, seen: Callable[[str, str], bool] | None = None) -> Verdict:
        """Return why it waits, in a sentence; with ``change``, search the smallest change, too. With ``seen``, other
        jobs are named only if that allows their kind and key. Raises NotFound if it never waited."""
        from vcd.timetravel.why.verdict import verdict_on, with_fix

        found = verdict_on(self._history, self.key, self._waits, self._window, seen)
        return with_fix(found, self.change(found.session)) if change else found

    def obstacles(self, session: int | None = None) -> Obstacles:
        """Return its obstacles at a session (None: the last in which it waited). Raises NotFound if it does not wait
        there."""
        from vcd.timetravel.why.obstacles import obstacles

        return obstacles(self._history, self.key, self._examined_session(session))

    def change(
        self, session: int | None = None, kinds: Sequence[What] | None = None, most_decisions: int | None = None
    ) -> Counterfactual:
        """Return the smallest change that would have let it start, at a session as for ``obstacles``; of ``kinds``
        (None: all), after at most ``most_decisions`` trials (None: ``MOST_DECISIONS``)."""
        from vcd.timetravel.why.counterfactual import KINDS, MOST_DECISIONS, smallest_change

        most = MOST_DECISIONS if most_decisions is None else most_decisions
        return smallest_change(
            self._history, self.key, self._examined_session(session), KINDS if kinds is None else kinds, most
        )

    def _examined_session(self, session: int | None) -> int | None:
        """Return the session to examine; None if it waits in no session of the log."""
        number = self.last_wait if session is None else session
        if number is None and self._window != WHOLE:
            where = f"event log {self._history.reader.path}: job {self.key}"
            raise NotFound(f"{where} waits in none of the sessions that are asked about")
        return number
