"""Cached answers about a log for users who may see all of it, and the parts that answers for other users share.

A finished session never changes, so its answers are cached by path and number. Answers that depend on later events are
cached by the log's head as well.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from vcd.timetravel.log_queries import Log, LoggedJob
from vcd.timetravel.overview import Overview, overview, overview_before_sessions
from vcd.timetravel.query_errors import NotFound
from vcd.timetravel.whatif.job_whatif import JobWhatIf, job_whatif
from vcd.timetravel.whatif.submission_forecast import eta, eta_in_words
from vcd.timetravel.why.explain import Explanation
from vcd.timetravel.why.job_answer import answer_lines
from vcd.timetravel.why.longestcauses import longest_waits
from vcd.timetravel.why.obstacles import Obstacles
from vcd.view.page_documents import JobText, Line, SessionText, WaitLine, WhatIfText

Sees = Callable[[str, str], bool]
"""Return whether the user may see an object, given its kind and key."""


def log_of(path: str) -> Log:
    """Return the open log for the file that the path names now. Raises LogError."""
    file = Path(path)
    return _open_log(path, file.stat().st_ino if file.exists() else 0)


@lru_cache(maxsize=1)
def _open_log(path: str, file: int) -> Log:
    """Open a log file. Cached answers about a previous file of the same name are dropped."""
    _overview_at.cache_clear()
    _waits_at.cache_clear()
    encode_session.cache_clear()
    encode_job.cache_clear()
    forecast.cache_clear()
    whatif_of.cache_clear()
    return Log(path)


def forget() -> None:
    """Reopen the log file at the next question."""
    _open_log.cache_clear()


def overview_of(path: str, number: int) -> Overview:
    """Return the cluster at the end of a session; 0: before the first session."""
    return _overview_at(path, number) if number else overview_before_sessions(log_of(path).history)


@lru_cache(maxsize=16)
def _overview_at(path: str, number: int) -> Overview:
    return overview(log_of(path).history, number)


_MINUTE = 60.0
_DIAGNOSED = 1000
"""Waiting jobs whose cause is searched: that takes a second with 1,000 nodes if no two of the jobs are equivalent."""


def waits_of(path: str, number: int, groups: frozenset[str] | None = None) -> list[WaitLine]:
    """Return why jobs wait at a session, the longest waits first; only those of ``groups`` if given."""
    return _waits_at(path, number, groups, int(time.time() // _MINUTE))


@lru_cache(maxsize=16)
def _waits_at(path: str, number: int, groups: frozenset[str] | None, minute: int) -> list[WaitLine]:
    """Return the same as of a minute: in a cluster at rest, another cause can come to have held longest."""
    if not number:  # no session has decided yet
        return []
    jobs = [job for job in overview_of(path, number).jobs if groups is None or job.key in groups]
    waits = longest_waits(log_of(path).history, number, jobs, _DIAGNOSED)
    return [WaitLine(one.group, one.job, one.needs, one.cause, one.why) for one in waits]


@lru_cache(maxsize=128)
def encode_session(path: str, number: int, head: int) -> bytes:
    """Return a session as of the log's head: later events add outcomes of API calls and the next session."""
    return msgspec.json.encode(SessionText(number, indented(log_of(path).session(number).lines())))


@lru_cache(maxsize=128)
def encode_job(path: str, key: str, session: int | None, head: int) -> bytes:
    """Return a job as of a session (None: the log's head): the answer of ``vcd explain job`` and its ``--all``
    lines."""
    answer, story = explained(log_of(path).job(key, session=session))
    return msgspec.json.encode(JobText(key, session, answer, indented(story.lines())))


def explained(job: LoggedJob, sees: Sees | None = None) -> tuple[list[str], Explanation]:
    """Return the lines of ``vcd explain job`` and the story of a job. Other jobs are named only if ``sees`` allows it
    for their kind and key."""
    story = job.story()
    try:
        verdict = job.verdict(seen=sees)
    except NotFound:  # it never waited
        return list(answer_lines(story)), story
    obstacles = None if job.last_wait is None else job.obstacles()
    if obstacles is not None and sees is not None:
        obstacles = _visible_obstacles(obstacles, sees)
    return list(answer_lines(story, verdict, obstacles)), story


def _visible_obstacles(obstacles: Obstacles, sees: Sees) -> Obstacles:
    """Remove the holders and the jobs ahead that the user may not see."""

    def named(job: str) -> bool:
        return sees("PodGroup", job)

    place = obstacles.place
    if place is not None:
        place = replace(place, before=[one for one in place.before if named(one[0])])
    return replace(
        obstacles,
        held_by=[one for one in obstacles.held_by if named(one.job)],
        place=place,
        limits=[replace(one, held_by=[job for job in one.held_by if named(job.job)]) for one in obstacles.limits],
        nodes=[replace(one, held_by=[job for job in one.held_by if named(job.job)]) for one in obstacles.nodes],
        ahead=[one for one in obstacles.ahead if named(one.job)],
    )


_FORECAST_RUNS = 8
"""Simulated runs of a forecast on the page. A command uses more, but an open page should answer quickly."""


@lru_cache(maxsize=128)
def forecast(path: str, key: str, session: int) -> list[str]:
    """Return the start time, past or predicted, of a job that is pending after a session. The result is
    deterministic."""
    log = log_of(path)
    job = log.job(key, session=session).story().key
    return eta_in_words(eta(log.history.reader.path, job, session=session, samples=_FORECAST_RUNS))


class WhatIf(NamedTuple):
    """A job's what-if and its JSON for users who may see everything."""

    found: JobWhatIf
    whole: bytes


@lru_cache(maxsize=32)
def whatif_of(path: str, key: str, queue: str, priority: str, head: int) -> WhatIf:
    """Return the what-if of a job in another queue or priority class, by the log up to event ``head``."""
    found = job_whatif(log_of(path).history, key, queue, priority)
    return WhatIf(found, msgspec.json.encode(WhatIfText(key, indented(found.lines()))))


def indented(lines: Iterable[str]) -> list[Line]:
    """Return each line with its indent depth, since HTML does not indent by spaces."""
    return [((len(line) - len(line.lstrip(" "))) // 2, line.strip()) for line in lines]
