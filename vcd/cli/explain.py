"""``vcd explain``: explain jobs, pods, queues, sessions, evictions and changes from an event log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import click
import msgspec

from vcd.cli.command_errors import report_errors
from vcd.cli.completion import complete_named
from vcd.cli.fromcluster import EventLog, FileLog
from vcd.cli.inputs import NUMBER, event_log_option, namespace_option
from vcd.cli.output import text_output
from vcd.cli.printing import print_lines, print_result
from vcd.model.wording import did_you_mean
from vcd.timetravel.log_queries import Log
from vcd.timetravel.log_times import BadTime
from vcd.timetravel.log_warnings import remarks
from vcd.timetravel.process_pool import processors
from vcd.timetravel.query_errors import NotFound
from vcd.timetravel.whatif.forecasts import Submission
from vcd.timetravel.whatif.submission_forecast import eta as forecast_start
from vcd.timetravel.whatif.submission_forecast import eta_in_words
from vcd.timetravel.why.counterfactual import Counterfactual
from vcd.timetravel.why.explain import Explanation
from vcd.timetravel.why.job_answer import answer_lines
from vcd.timetravel.why.obstacles import Obstacles
from vcd.timetravel.why.queueanswer import QueueExplanation
from vcd.timetravel.why.verdict import Verdict, with_fix


class JobExplanation(Explanation, omit_defaults=True):
    """The story of a job or pod. While it waits, also its obstacles; if requested, the change that would let it start
    and the forecast of its start."""

    verdict: Verdict | None = None
    eta: Submission | None = None
    obstacles: Obstacles | None = None
    change: Counterfactual | None = None

    def lines(self) -> Iterator[str]:
        """Yield the answer."""
        eta = () if self.eta is None else tuple(eta_in_words(self.eta))
        yield from answer_lines(self, self.verdict, self.obstacles, self.change, eta)

    def all_lines(self) -> Iterator[str]:
        """Yield the answer, then each episode and each trial."""
        yield from self.lines()
        yield from Explanation.lines(self)
        if self.change is not None:
            head, _, *rest = self.change.lines()  # the answer contains the sentence
            yield from (head, *rest)


class _Result(Protocol):
    """A document for JSON with lines of text."""

    def lines(self) -> Iterable[str]: ...


@dataclass(frozen=True)
class _Query:
    """The parsed arguments of the command."""

    log: Log
    name: str
    namespace: str
    session: int | None
    """The session as of which to explain; for a queue or the cluster the last one of the range."""
    first: int | None
    since: int
    """The time (ns) from which to explain."""
    change: bool
    eta: bool
    around: str
    other: str
    other_log: Log | None
    called: dict[str, str]
    """Names of logs by the files that they are read from."""


def _answer(story: Explanation, **parts: Any) -> JobExplanation:
    return JobExplanation(**msgspec.structs.asdict(story), **parts)


def _job(query: _Query) -> _Result:
    result = _story(query)
    if not query.eta:
        return result
    path = query.log.history.reader.path
    eta = forecast_start(path, result.key, session=query.session, jobs=processors())
    return msgspec.structs.replace(result, eta=eta)


def _story(query: _Query) -> JobExplanation:
    job = query.log.job(query.name, query.namespace, query.session, query.since)
    story = job.story()
    try:
        verdict = job.verdict()
    except NotFound:  # it never waited
        return _answer(story)
    if job.last_wait is None:  # pods of it are missing, and no session states a reason
        return _answer(story, verdict=verdict)
    if not query.change:
        return _answer(story, verdict=verdict, obstacles=job.obstacles())
    change = job.change(verdict.session)
    return _answer(story, verdict=with_fix(verdict, change), obstacles=job.obstacles(), change=change)


def _pod(query: _Query) -> _Result:
    story = query.log.pod(query.name, query.namespace, query.session, query.since)
    if not story.group or not any(episode.what == "waited" for episode in story.episodes):
        return _answer(story)
    try:  # a pod waits because its job waits
        return _answer(story, verdict=query.log.job(story.group, "", query.session, query.since).verdict())
    except NotFound:
        return _answer(story)


def _difference(query: _Query) -> _Result:
    found = query.log.difference(
        query.name, query.other, query.namespace, session=query.session, other_log=query.other_log
    )
    one, other = (msgspec.structs.replace(side, file=query.called[side.file]) for side in (found.one, found.other))
    return msgspec.structs.replace(found, one=one, other=other)


KINDS: dict[str, Callable[[_Query], _Result]] = {
    "cluster": lambda query: query.log.causes(query.first, query.session, change=query.change),
    "job": _job,
    "pod": _pod,
    "queue": lambda query: query.log.queue(query.name, query.first, query.session),
    "session": lambda query: query.log.session(query.session or query.name or "last"),
    "eviction": lambda query: query.log.eviction(query.name, query.namespace, query.session, query.since),
    "diff": _difference,
    "changes": lambda query: query.log.changes(query.since, query.session, query.around, query.namespace),
    "order": lambda query: query.log.order(query.name or None, query.session),
}
"""What can be explained, with the function that explains it."""


class _Kinds(click.Choice):  # type: ignore[type-arg]  # not generic in older click
    """A choice that suggests the nearest value for a mistyped one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the kind. Raises BadParameter."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            hint = did_you_mean(str(value), map(str, self.choices))
            raise click.BadParameter(f"{error.message.rstrip('.')}{hint}", ctx, param) from None


_NAMELESS = ("cluster", "session", "order", "changes")
_BY_SESSIONS = ("cluster", "queue")
"""Kinds that are explained over a range of sessions."""
_SAME = (("at", "session", "session"), ("at", "last", "to"), ("since", "first", "from"))
"""Options that state the same: the first one, the parameter of the second, and the second's name."""
_OF: dict[str, tuple[str, tuple[str, ...]]] = {
    "session": ("session", ("job", "pod", "session", "order", "eviction", "diff", "changes")),
    "since": ("since", ("cluster", "job", "pod", "queue", "eviction", "changes")),
    "from": ("first", _BY_SESSIONS),
    "to": ("last", _BY_SESSIONS),
    "change": ("change", ("cluster", "job")),
    "eta": ("eta", ("job",)),
    "all": ("whole", ("job", "pod", "queue")),
    "around": ("around", ("changes",)),
    "other-log": ("other_log", ("diff",)),
}
"""The parameter of each option, and the kinds that the option is for."""


@click.command()
@click.argument("kind", type=_Kinds(list(KINDS)), default="cluster")
@click.argument("name", default="", shell_complete=complete_named)
@click.argument("other", default="", metavar="[OTHER]", shell_complete=complete_named)
@event_log_option
@namespace_option
@click.option("--at", metavar="TIME", help="As of the last session at or before TIME.")
@click.option(
    "--since", metavar="TIME", help="cluster, job, pod, queue, eviction, changes: only what happened after TIME."
)
@click.option("--session", type=NUMBER, help="As of this session; for cluster and queue see --to.")
@click.option("--from", "first", type=NUMBER, help="cluster, queue: from this session on.")
@click.option("--to", "last", type=NUMBER, help="cluster, queue: up to this session.")
@click.option(
    "--change",
    is_flag=True,
    help="job, cluster: search the smallest change that would have let the job start, or the worst job of each cause.",
)
@click.option(
    "--eta", is_flag=True, help="job: forecast when the waiting job starts, by 20 simulated runs, which take a while."
)
@click.option(
    "--around", default="", metavar="JOB", help="changes: from ten minutes before JOB was created to its start."
)
@click.option(
    "--other-log", type=click.Path(dir_okay=False, path_type=Path), help="diff: the log that has the other job."
)
@click.option("--all", "whole", is_flag=True, help="job, pod, queue: the whole story, with every reason.")
@text_output
@report_errors
def explain(kind: str, event_log: EventLog, output: str, whole: bool, **given: Any) -> None:
    """Explain from an event log what happened, and why. Times are in UTC.

    \b
    cluster        the five causes that cost jobs most pod-hours, in the log's last 24 h or --from one session --to
                   another, each with its worst job; this is the default KIND
    job NAME       its state, why it waits or waited, which jobs hold what it needs, which jobs are ahead of it, and
                   what happened; with --change what would let it start, with --eta a forecast of its start, with
                   --all all its waits with their reasons, and its placement with the reasons for it
    pod NAME       the same for one pod
    queue NAME     what it uses, deserves and requests, which jobs wait in it and why, evictions and changes; with
                   --all its statistics and waits over time
    session [N]    what it was decided from, what it decided, and how it differs from the sessions before and after it;
                   by default the last one
    eviction NAME  why a pod, or a job's pods, were evicted, and not others
    diff A B       why job A started and B did not, or later: how they differ, which one comes first, and what would
                   let B start, too. A@5 is A as of session 5, so diff A@5 A@9 compares A with itself; with
                   --other-log B, or A itself, is read from another log
    changes        what people and failures changed: nodes, queues, quotas, priority classes, the configuration,
                   faults of the installation; --since a time, or --around a job
    order [QUEUE]  the order in which queues and jobs are served, with the value of each plugin

    NAME of a job is its PodGroup, the Volcano Job of the PodGroup, or a unique prefix of the PodGroup's name.
    NAMESPACE/NAME is accepted, too.

    A TIME is one such as 2026-01-31T05:12:00Z, or 05:12 (in UTC, the last such time in the log), or 2h: that long
    before the log's end.

    Exits with 0; with 2 if the file cannot be used or the log has no such name.
    """
    _check(kind, {**given, "whole": whole})
    with ExitStack() as stack:
        called: dict[str, str] = {}

        def opened(log: EventLog) -> Log:
            path = stack.enter_context(log.reading())
            called[str(path)] = log.name
            found = stack.enter_context(Log(path))
            stack.enter_context(found.pinned())
            return found

        log, other = opened(event_log), given.pop("other_log")
        given["namespace"] = given["namespace"] or event_log.namespace
        query = _parse_query(
            log, kind, other_log=None if other is None else opened(FileLog(other)), called=called, **given
        )
        for remark in remarks(log.history.reader):
            print_lines([f"note: {remark}"], err=True)
        result = KINDS[kind](query)
    lines = result.all_lines() if whole and isinstance(result, JobExplanation | QueueExplanation) else result.lines()
    assert isinstance(result, msgspec.Struct)
    print_result(result, lines, output)


def _check(kind: str, given: dict[str, Any]) -> None:
    """Raise UsageError if arguments do not go together."""
    if given["other"] and kind != "diff":
        raise click.UsageError(f"explain {kind} requires one name")
    if given["name"] and kind in ("cluster", "changes"):
        raise click.UsageError(f"explain {kind} has no name argument")
    if not given["name"] and kind not in _NAMELESS:
        raise click.UsageError(f"explain {kind} needs a name")
    if kind == "session" and given["name"] and (given["session"] or given["at"]):
        option = "session" if given["session"] else "at"
        raise click.UsageError(f"{given['name']} and --{option} both choose a session; give one of them")
    for option, (key, kinds) in _OF.items():
        if given[key] and kind not in kinds:
            raise click.UsageError(f"--{option} is for explain {' and '.join(kinds)}")
    for option, key, other in _SAME:
        if given[option] and given[key]:
            raise click.UsageError(f"--{option} and --{other} both choose a session; give one of them")


def _parse_query(
    log: Log, kind: str, at: str | None, since: str | None, session: int | None, last: int | None, **given: Any
) -> _Query:
    """Return the parsed arguments, with times as sessions for kinds that are explained by sessions."""
    try:
        session = log.session_at(log.time(at)) if at else session or last
        begin = log.time(since) if since else 0
    except BadTime as error:
        raise click.UsageError(str(error)) from None
    if since and kind in _BY_SESSIONS:
        given["first"] = log.session_after(begin)
    return _Query(log, session=session, since=begin, **given)
