"""``vcd top``: queues, nodes and waiting jobs of an event log, live in the terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import click
import msgspec
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from vcd.cli.command_errors import report_errors
from vcd.cli.fromcluster import EventLog, FollowedLog, files_of
from vcd.cli.inputs import DAY, FiniteRange, event_log_argument
from vcd.cli.output import output_option
from vcd.cli.printing import add_row, console, filled, print_json, print_tables, terminal_width
from vcd.diagnosis.diagnosedwaits import DiagnosedWait
from vcd.model.wording import SECOND, counted, span_in_words
from vcd.text.amounts import number, resource_name
from vcd.text.capacity_lines import capacity_lines, cluster_resource, resource_shown
from vcd.text.phrases import UNKNOWN
from vcd.text.time_formats import clock_time
from vcd.timetravel.history import opened
from vcd.timetravel.joblines import WAITING_STATES
from vcd.timetravel.overview import Glance, Overview, glances
from vcd.timetravel.queuestatistics import QueueStatistics

_JOBS, _QUEUES = 20, 12
"""Maximum number of rows of each table."""
_BAR = 16
"""Columns of a bar."""
_ROW = ("allocated", "deserved", "request")
"""The series whose quantities are next to a queue's bar."""


@click.command()
@event_log_argument
@click.option(
    "--interval", type=FiniteRange(0.1, DAY), default=2.0, show_default=True, help="Seconds between two frames."
)
@click.option("--once", is_flag=True, help="Print one frame and end; the default without a terminal.")
@output_option("text", "json", help="json: one frame.")
@report_errors
def top(event_log: EventLog, interval: float, once: bool, output: str) -> None:
    """Watch an event log: free capacity, queues as bars, the jobs that wait longest and why. Ctrl-C ends it.

    A scheduler may be writing the log; this command changes nothing in it. A bar is what the queue uses, up to its
    capability (or to what all nodes offer, if it has no limit), with a mark at its deserved share.

    Exits with 0; with 2 if the file cannot be used.
    """
    if output == "json" or once or terminal_width() is None:
        with event_log.reading() as path, opened(path) as history:
            glance = next(glances(history))
        if output == "json":
            print_json(glance)
        else:
            print_tables(frame(event_log.title, glance, time.time_ns()))
        return
    with event_log.following() as followed:
        found = _glances(followed)
        live(console(), lambda: frame(event_log.title, next(found), time.time_ns()), lambda: time.sleep(interval))


def _glances(followed: FollowedLog) -> Iterator[Glance]:
    """Yield the log's current state, without end, also after another file replaced the log's."""
    notes: list[str] = []
    for path in files_of(followed, notes.append):
        with opened(path) as history:
            for glance in glances(history):
                yield msgspec.structs.replace(glance, remarks=[*glance.remarks, *notes[-1:]])
                if followed.is_other(path):
                    break


def live(console: Console, look: Callable[[], RenderableType], wait: Callable[[], None]) -> None:
    """Draw frame after frame, until Ctrl-C."""
    with Live(console=console, screen=True, auto_refresh=False) as screen:
        try:
            while True:
                screen.update(look(), refresh=True)
                wait()
        except KeyboardInterrupt:
            return


def frame(name: str, glance: Glance, now: int) -> RenderableType:
    """Return the screen at one moment, 80 columns wide; ``now`` in nanoseconds since the epoch."""
    behind = _behind(glance.time, now)
    view = glance.overview
    if view is None:
        return Group(Text(f"{name}: no session yet, {glance.head:,} events, {behind}", style="bold"), *_first(glance))
    return Group(
        Text(f"{name}: session {view.session:,} at {clock_time(view.time)}, {behind}", style="bold"),
        *_first(glance),
        *map(Text, _capacity(view)),
        Text(),
        _queues(view, glance.as_of),
        Text(),
        _jobs(view, glance.waits, glance.as_of),
    )


def _capacity(view: Overview) -> Iterator[str]:
    waiting = sum(job.state in WAITING_STATES for job in view.jobs)
    running = sum(job.running > 0 and job.state not in WAITING_STATES for job in view.jobs)
    return capacity_lines(view.nodes, waiting, running)


def _first(glance: Glance) -> Iterator[Text]:
    """Yield the lines at the top: whose log it is, and remarks."""
    if (stands := glance.standing) is not None:
        yield Text(stands.words, style="bold yellow" if stands.lacks else "")
    yield from (Text(remark, style="bold yellow") for remark in glance.remarks)


def _behind(time: int, now: int) -> str:
    """Return the age of the last event. A simulated clock, or another machine's, may be ahead of this one."""
    if not time:
        return "no event yet"
    apart = span_in_words(abs(now - time) // SECOND)
    return f"last event {apart} ago" if time <= now else f"last event {apart} ahead of this clock"


def _table(*columns: str) -> Table:
    """Return a table of one line per row, whose last column is cut if space is short."""
    table = Table(box=None, pad_edge=False, expand=True)
    for column in columns[:-1]:
        table.add_column(column, no_wrap=True)
    table.add_column(columns[-1], no_wrap=True, ratio=1)
    return table


# --- queues -----------------------------------------------------------------------------------------------------------


def _queues(view: Overview, now: int) -> Table:
    """Return a row for each queue that uses, deserves or requests something, or has jobs; the others are counted."""
    oldest, main = _oldest_waits(view), cluster_resource(view.nodes)
    rows = [(queue, resource_shown(main, _amounts(queue, *_ROW))) for queue in view.queues]
    used = [(queue, resource) for queue, resource in rows if resource or queue.name in oldest]
    table = _table("QUEUE", "", "USED/DESERVED/REQUESTED", "LIMIT", "OLDEST WAIT")
    filled(table, (_queue_row(view, *row, _since(oldest.get(row[0].name), now)) for row in used), _QUEUES, len(used))
    if idle := len(rows) - len(used):
        add_row(table, Text(f"{counted(idle, 'idle queue')}", style="dim"), "", "", "", "")
    return table


def _since(begin: int | None, now: int) -> str:
    return "" if begin is None else span_in_words((now - begin) // SECOND)


def _amounts(queue: QueueStatistics, *series: str) -> list[dict[str, int]]:
    return [queue.amounts.get(name, {}) for name in series]


def _oldest_waits(view: Overview) -> dict[str, int]:
    """Return since when (ns) the oldest waiting job of each queue waits."""
    oldest: dict[str, int] = {}
    for job in view.jobs:
        if job.since is not None:
            oldest[job.queue] = min(job.since, oldest.get(job.queue, job.since))
    return oldest


def _queue_row(view: Overview, queue: QueueStatistics, resource: str, wait: str) -> Sequence[str | Text]:
    title = f"{queue.name}{'' if queue.state == 'Open' else f' ({queue.state})'}"
    if not resource:
        return title, "", "", "", wait
    used, deserved, requested, limit = (each.get(resource) for each in _amounts(queue, *_ROW, "capability"))
    offered = sum(node.allocatable.get(resource, 0) for node in view.nodes)
    bar = _bar(used or 0, offered if limit is None else limit, deserved, over=queue.overused)
    numbers = "/".join("-" if each is None else number(resource, each) for each in (used or 0, deserved, requested))
    limited = "" if limit is None else number(resource, limit)
    return title, bar, f"{numbers} {resource_name(resource)}", limited, wait


def _bar(amount: int, limit: int, mark: int | None = None, *, over: bool = False) -> Text:
    filled = _cells(amount, limit)
    bar = Text("█" * filled + "░" * (_BAR - filled), style="yellow" if over else "cyan")
    if mark is not None and limit:
        place = min(_cells(mark, limit), _BAR - 1)
        bar = Text.assemble(bar[:place], ("│", "bold magenta"), bar[place + 1 :])
    return bar


def _cells(amount: int, limit: int) -> int:
    return min(_BAR, round(_BAR * amount / limit)) if limit > 0 else 0


# --- jobs -------------------------------------------------------------------------------------------------------------


def _jobs(view: Overview, waits: list[DiagnosedWait], now: int) -> Table:
    waiting = sorted((job for job in view.jobs if job.since is not None), key=lambda job: (job.since or 0, job.key))
    causes = {one.group: one for one in waits}
    rows = []
    for job in waiting:
        known = causes.get(job.key)
        name, needs = (job.key, "") if known is None else (known.job, known.needs)
        why = known.why if known is not None else job.waiting or UNKNOWN
        rows.append((name, needs, _since(job.since, now), why))
    return filled(_table("WAITING", "NEEDS", "SINCE", "WHY"), rows, _JOBS, len(rows))
