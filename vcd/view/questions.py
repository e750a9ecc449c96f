"""The questions of the page: parse their parameters and answer them from the log.

`answer` runs in a worker process (`page_worker.py`), so that an expensive question does not block the event loop of the
server. Each question has two functions: one for users who may see everything, and one that filters by `Visibility`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import NamedTuple

import msgspec

from vcd.text.log_templates import LOGS
from vcd.text.time_formats import moment as format_moment
from vcd.timetravel.log_operations import LogError
from vcd.timetravel.log_queries import Log, LoggedJob
from vcd.timetravel.log_standing import errors_with_writer, standing
from vcd.timetravel.log_times import BadTime
from vcd.timetravel.log_upgrade import errors_about
from vcd.timetravel.overview import PodLine, pods_on
from vcd.timetravel.query_errors import NotFound
from vcd.timetravel.session_lines import Ends, SessionLine, session_lines
from vcd.timetravel.session_lines import ends as log_ends
from vcd.timetravel.whatif.cluster_edits import EditError
from vcd.view.answers import (
    WhatIf,
    encode_job,
    encode_session,
    explained,
    forecast,
    forget,
    indented,
    log_of,
    overview_of,
    waits_of,
    whatif_of,
)
from vcd.view.page_documents import (
    ClusterOverview,
    ForecastText,
    JobText,
    NodePods,
    PageError,
    SessionAt,
    SessionText,
    WhatIfText,
)
from vcd.view.visibility import CLASSES, NODES, PODS, QUEUES, Hidden, UnreviewedRights, Visibility

PAGE = 2000
"""Sessions in one answer at most."""

_MILLISECONDS = range(10**8, 253_402_300_800_000)
"""Numbers that are milliseconds since the epoch: larger than a date without dashes, and up to the year 9999."""

Answer = tuple[int, bytes]
"""HTTP status and JSON body."""


def answer(
    path: str, question: str, given: tuple[str, ...], visibility: Visibility | None, called: str = ""
) -> Answer | UnreviewedRights:
    """Answer one of QUESTIONS about the log at ``path``, which errors name as ``called``. Wrong parameters and
    unreadable logs are answers with an error status.

    ``given`` are the raw values of the question's parameters, empty if not given. ``visibility`` filters the answer
    (None: the user may see everything). If the answer depends on rights that ``visibility`` does not know, these rights
    are returned instead.
    """
    found = _answer_question(path, question, given, visibility, called or path)
    return found if visibility is None or not visibility.unreviewed else visibility.missing()


def _answer_question(
    path: str, question: str, given: tuple[str, ...], visibility: Visibility | None, called: str
) -> Answer:
    entry = QUESTIONS[question]
    try:
        with errors_about(Path(called), Path(path)), errors_with_writer(path), _pinned(path, question):
            return 200, entry.whole(path, *given) if visibility is None else entry.part(visibility, path, *given)
    except Hidden as error:
        return _error(403, str(error))
    except (_BadParameter, BadTime, EditError) as error:
        return _error(400, str(error))
    except NotFound as error:
        return _error(404, str(error))
    except LogError as error:
        return _error(500, str(error))
    except BaseException:
        forget()  # the failure may have interrupted a fold
        raise


def _pinned(path: str, question: str) -> AbstractContextManager[None]:
    """Pin the log's head for one answer, so that it is consistent while the log is written. A long question reads the
    log once; a pinned head would stop the writer from truncating its WAL."""
    return nullcontext() if question in LONG else log_of(path).pinned()


def _error(status: int, sentence: str) -> Answer:
    if status == 500:
        forget()
    return status, msgspec.json.encode(PageError(sentence))


class _BadParameter(Exception):
    """A parameter that cannot be read; the message states the expected form."""


# --- parameters -------------------------------------------------------------------------------------------------------


def _number(name: str, text: str, default: int) -> int:
    if not text:
        return default
    if not (text.isascii() and text.isdigit()) or len(text) > 15:
        raise _BadParameter(f"{name}: {text[:40]!r} is not a session's number; write one such as {name}=1")
    return int(text)


def _session(path: str, name: str, text: str) -> int:
    """Return the number of a session that is in the log; by default, of the last one."""
    ends = log_ends(log_of(path).history)
    number = _number(name, text, ends.last)
    if not ends.last:
        raise NotFound("no session is in the log yet")
    if not ends.first <= number <= ends.last:
        gone = ", and older ones were removed or never in it" if 0 < number < ends.first else ""
        raise NotFound(f"session {number} is not in the log; it has sessions {ends.first} to {ends.last}{gone}")
    return number


def _session_or_end(path: str, text: str) -> int | None:
    """Return the number of a session that is in the log; by default None, the log's end."""
    number = _session(path, "session", text)
    return number if text else None


def _session_or_none_yet(path: str, text: str) -> int:
    """Return the number of a session that is in the log; by default the last one, or 0 if there is none."""
    return _session(path, "session", text) if text or log_ends(log_of(path).history).last else 0


# --- questions --------------------------------------------------------------------------------------------------------


def _head(path: str) -> bytes:
    return msgspec.json.encode(log_ends(log_of(path).history))


def _head_for(visibility: Visibility, path: str) -> bytes:
    return _head(path)


def _at(path: str, time: str) -> bytes:
    """Return the last session at a time: RFC 3339, or milliseconds since the epoch as Grafana writes them."""
    log = log_of(path)
    is_number = time.isascii() and time.isdigit() and len(time) <= 15 and int(time) in _MILLISECONDS
    moment = int(time) * 1_000_000 if is_number else log.time(time)
    return msgspec.json.encode(SessionAt(log.session_at(moment), _missing_events(log, moment)))


def _missing_events(log: Log, moment: int) -> str:
    """Return why the last session may not be the last one at a time: a log that ends earlier may lack later events."""
    reader = log.history.reader
    stands = None if moment <= reader.last_time() else standing(reader.path)
    if stands is None or not stands.lacks:
        return ""
    return LOGS.sentence("ends", {"time": format_moment(reader.last_time()), "standing": stands.words})


def _at_for(visibility: Visibility, path: str, time: str) -> bytes:
    return _at(path, time)


def _sessions(path: str, first: str, last: str) -> bytes:
    return msgspec.json.encode(list(session_lines(log_of(path).history, *_range(path, first, last))))


def _sessions_for(visibility: Visibility, path: str, first: str, last: str) -> bytes:
    lines = session_lines(log_of(path).history, *_range(path, first, last), visibility.sees)
    return msgspec.json.encode(list(lines))


def _range(path: str, first: str, last: str) -> tuple[int, int]:
    ends = log_ends(log_of(path).history)
    start, end = _number("from", first, ends.first), _number("to", last, ends.last)
    if end - start >= PAGE:
        raise _BadParameter(f"from={start} to={end}: at most {PAGE} sessions are given at once; ask for fewer")
    return start, end


def _overview(path: str, session: str) -> bytes:
    number = _session_or_none_yet(path, session)
    return msgspec.json.encode(ClusterOverview.of(overview_of(path, number), waits_of(path, number)))


def _overview_for(visibility: Visibility, path: str, session: str) -> bytes:
    number = _session_or_none_yet(path, session)
    whole = overview_of(path, number)
    jobs = [job for job in whole.jobs if visibility.sees("PodGroup", job.key)]
    waits = waits_of(path, number, frozenset(job.key for job in jobs))
    part = msgspec.structs.replace(
        whole,
        queues=whole.queues if visibility.may(QUEUES) else [],
        nodes=whole.nodes if visibility.may(NODES) else [],
        jobs=[msgspec.structs.replace(job, waiting=visibility.without_others(job.waiting)) for job in jobs],
        pods=whole.pods if visibility.may(PODS) else {},
    )
    if not (part.queues or part.nodes or part.jobs or part.pods):
        raise Hidden(visibility.nothing(f"session {whole.session}"))
    waits = [msgspec.structs.replace(one, why=visibility.without_others(one.why)) for one in waits]
    return msgspec.json.encode(ClusterOverview.of(part, waits, visibility.withheld()))


def _plan(path: str, number: str) -> bytes:
    return encode_session(path, _session(path, "number", number), log_ends(log_of(path).history).head)


def _plan_for(visibility: Visibility, path: str, number: str) -> bytes:
    session = _session(path, "number", number)
    title, *lines = log_of(path).session(session, visibility.sees).lines()
    visible = [visibility.without_others(line) for line in lines]
    return msgspec.json.encode(SessionText(session, indented([title, *visible, *visibility.withheld()])))


def _job(path: str, key: str, session: str) -> bytes:
    _namespace_in(key)
    return encode_job(path, key, _session_or_end(path, session), log_ends(log_of(path).history).head)


def _namespace_in(key: str) -> str:
    namespace, slash, name = key.partition("/")
    if not (namespace and slash and name):
        raise _BadParameter(f"key: {key[:80]!r} names no job; write one such as key=default/train")
    return namespace


def _job_for(visibility: Visibility, path: str, key: str, session: str) -> bytes:
    visibility.expect_job(_namespace_in(key))
    number = _session_or_end(path, session)
    job = _visible_job(path, key, number)
    answer, story = explained(job, visibility.sees)
    for episode in story.episodes:  # a job's victims and preemptors are named only if the user may see them
        if episode.group:
            visibility.sees("PodGroup", episode.group)
    lines = indented(map(visibility.without_others, story.lines()))
    return msgspec.json.encode(JobText(key, number, list(map(visibility.without_others, answer)), lines))


def _visible_job(path: str, key: str, session: int | None) -> LoggedJob:
    """Return a job. The error of a missing job does not suggest jobs of the same name in other namespaces."""
    try:
        return log_of(path).job(key, session=session)
    except NotFound:
        as_of = "" if session is None else f" as of session {session}"
        raise NotFound(f"no job {key[:120]} is in the log{as_of}, or it is not one alone") from None


def _eta(path: str, key: str, session: str) -> bytes:
    number = _session(path, "session", session)
    return msgspec.json.encode(ForecastText(key, number, indented(forecast(path, key, number))))


def _eta_for(visibility: Visibility, path: str, key: str, session: str) -> bytes:
    visibility.expect_job(_namespace_in(key))
    number = _session(path, "session", session)
    _visible_job(path, key, number)
    lines = map(visibility.without_others, forecast(path, key, number))
    return msgspec.json.encode(ForecastText(key, number, indented(lines)))


def _node(path: str, name: str, session: str) -> bytes:
    number = _session(path, "session", session)
    return _encode_node(name, number, pods_on(log_of(path).history, number, name), 0)


def _node_for(visibility: Visibility, path: str, name: str, session: str) -> bytes:
    visibility.expect(NODES, "nodes")
    number = _session(path, "session", session)
    pods = pods_on(log_of(path).history, number, name)
    seen = [pod for pod in pods if visibility.sees("Pod", pod.key)]
    return _encode_node(name, number, seen, len(pods) - len(seen))


def _encode_node(name: str, session: int, pods: list[PodLine], others: int) -> bytes:
    return msgspec.json.encode(NodePods(name, session, pods, others))


def _whatif(path: str, key: str, queue: str, priority: str) -> bytes:
    _namespace_in(key)
    return _find_whatif(path, log_of(path).job(key).key, queue, priority).whole


def _whatif_for(visibility: Visibility, path: str, key: str, queue: str, priority: str) -> bytes:
    visibility.expect_job(_namespace_in(key))
    if queue:
        visibility.expect(QUEUES, "queues")
    if priority:
        visibility.expect(CLASSES, "priority classes")
    job = _visible_job(path, key, log_ends(log_of(path).history).last).key
    found = _find_whatif(path, job, queue, priority).found
    lines = list(map(visibility.without_others, found.lines(visibility.sees)))
    return msgspec.json.encode(WhatIfText(key, indented(lines)))


def _find_whatif(path: str, key: str, queue: str, priority: str) -> WhatIf:
    if not (queue or priority):
        raise _BadParameter("state a change: queue=NAME, or priority=NAME of a PriorityClass")
    return whatif_of(path, key, queue, priority, log_ends(log_of(path).history).head)


class PageQuestion(NamedTuple):
    """A question: its description, its parameters, the functions that answer it for users who may see everything and
    for users who may see a part, and the type of the answer."""

    about: str
    parameters: tuple[str, ...]
    whole: Callable[..., bytes]
    part: Callable[..., bytes]
    answer: object


QUESTIONS: dict[str, PageQuestion] = {
    "head": PageQuestion("Where the log begins and ends", (), _head, _head_for, Ends),
    "at": PageQuestion("The session that was the last one at a time", ("time",), _at, _at_for, SessionAt),
    "sessions": PageQuestion(f"Sessions, at most {PAGE}", ("from", "to"), _sessions, _sessions_for, list[SessionLine]),
    "overview": PageQuestion(
        "Queues, nodes and jobs as a session left them", ("session",), _overview, _overview_for, ClusterOverview
    ),
    "session": PageQuestion(
        "What a session found new, decided and changed", ("number",), _plan, _plan_for, SessionText
    ),
    "job": PageQuestion("Why a job waits, and its history", ("key", "session"), _job, _job_for, JobText),
    "node": PageQuestion("The pods on a node as a session left it", ("name", "session"), _node, _node_for, NodePods),
    "whatif": PageQuestion(
        "What a job would do in another queue or priority class",
        ("key", "queue", "priority"),
        _whatif,
        _whatif_for,
        WhatIfText,
    ),
    "eta": PageQuestion("When a job that waits may start", ("key", "session"), _eta, _eta_for, ForecastText),
}
"""The questions by name."""
PARAMETERS: dict[str, str] = {
    "from": "number of the first session; the log's first by default",
    "key": "a job as NAMESPACE/NAME; required",
    "name": "a node's name; required",
    "number": "number of a session; the last by default",
    "priority": "name of a PriorityClass; this or `queue` is required",
    "queue": "name of a queue; this or `priority` is required",
    "session": "number of a session; the last by default",
    "time": "RFC 3339, or milliseconds since the epoch; required",
    "to": "number of the last session; the log's last by default",
}
"""Descriptions of the parameters by name."""
LONG = frozenset({"eta", "whatif"})
"""Questions that may take many seconds. A separate worker answers them, so that they delay no other question."""
