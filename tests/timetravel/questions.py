"""Single questions to a log file, each at one moment of it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from vcd.timetravel.log_queries import Log
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


def first_causes(
    path: str | Path, first: int | None = None, last: int | None = None, *, change: bool = False
) -> FirstCauses:
    """Return the causes for which the cluster's jobs lost most pod-hours."""
    with Log(path) as log, log.pinned():
        return log.causes(first, last, change=change)


def verdict(path: str | Path, name: str, namespace: str = "default", *, change: bool = False) -> Verdict:
    """Return why a job waits, in one sentence; with ``change`` also the smallest change that would have helped."""
    with Log(path) as log, log.pinned():
        return log.job(name, namespace).verdict(change=change)


def obstacles(path: str | Path, name: str, session: int | None = None) -> Obstacles:
    """Return what prevents the placement of a job in a session (None: the last in which it waited)."""
    with Log(path) as log, log.pinned():
        return log.job(name).obstacles(session)


def smallest_change(
    path: str | Path,
    name: str,
    session: int | None = None,
    kinds: Sequence[What] | None = None,
    most_decisions: int | None = None,
) -> Counterfactual:
    """Return the smallest change with which a session (see ``obstacles``) would have placed a job."""
    with Log(path) as log, log.pinned():
        return log.job(name).change(session, kinds, most_decisions)


def explain_queue(
    path: str | Path, name: str, first: int | None = None, last: int | None = None, *, samples: int | None = None
) -> QueueExplanation:
    """Explain a queue over a range of sessions."""
    with Log(path) as log, log.pinned():
        return log.queue(name, first, last, samples=samples)


def explain_session(path: str | Path, number: int | str = "last") -> SessionExplanation:
    """Explain what changed before a session and what it decided."""
    with Log(path) as log, log.pinned():
        return log.session(number)


def explain_eviction(path: str | Path, name: str, namespace: str = "default") -> EvictionExplanation:
    """Explain why a pod, or the pods of a job, were evicted."""
    with Log(path) as log, log.pinned():
        return log.eviction(name, namespace)


def explain_difference(
    path: str | Path,
    one: str,
    other: str = "",
    namespace: str = "default",
    *,
    session: int | None = None,
    other_path: str | Path | None = None,
) -> JobDifference:
    """Return the differences between two jobs; ``other_path`` is the log of the other one, if it is another log."""
    with ExitStack() as stack:
        logs = [stack.enter_context(Log(each)) for each in (path, other_path) if each is not None]
        for each in logs:
            stack.enter_context(each.pinned())
        log, other_log = logs[0], logs[1] if len(logs) > 1 else None
        return log.difference(one, other, namespace, session=session, other_log=other_log)


def explain_order(path: str | Path, queue: str | None = None, session: int | None = None) -> OrderExplanation:
    """Explain the order in which a session considers jobs."""
    with Log(path) as log, log.pinned():
        return log.order(queue, session)
