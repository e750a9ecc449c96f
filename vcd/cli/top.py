"""``vcd top``: queues, nodes and waiting jobs of an event log, live in the terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import click
import msgspec
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from vcd import api
from vcd.cli.errors import says_errors
from vcd.cli.fromcluster import EventLog, FollowedLog, files_of
from vcd.cli.inputs import DAY, FiniteRange, event_log_argument
from vcd.cli.printing import console, filled, print_json, print_tables, terminal_width

_ROWS = 10
"""Nodes and jobs that a table shows at most."""
_QUEUE_ROWS = 16
_BAR = 24
_SECOND = 1_000_000_000


@click.command()
@event_log_argument
@click.option(
    "--interval", type=FiniteRange(0.1, DAY), default=2.0, show_default=True, help="Seconds between two looks."
)
@click.option("--once", is_flag=True, help="Print one frame and end; so it is where there is no terminal.")
@click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="JSON: one frame."
)
@says_errors
def top(event_log: EventLog, interval: float, once: bool, output: str) -> None:
    """Watch an event log: queues as bars, the fullest nodes, the jobs that wait longest and why. Ctrl-C ends it.

    The log may be one that a scheduler is writing; nothing is changed by it. A bar is what the queue has allocated,
    up to its capability (or the cluster's room, where it has no limit), with a mark at what it deserves.

    Exits with 0, with 2 if the file cannot be used.
    """
    if output == "json" or once or terminal_width() is None:
        with event_log.reading() as path, api.opened(path) as history:
            glance = next(api.glances(history))
        if output == "json":
            print_json(glance)
        else:
            print_tables(frame(event_log.title, glance, time.time_ns()))
        return
    with event_log.following() as followed:
        found = _glances(followed)
        live(console(), lambda: frame(event_log.title, next(found), time.time_ns()), lambda: time.sleep(interval))


def _glances(followed: FollowedLog) -> Iterator[api.Glance]:
    """A log as it is each time that it is looked at, whichever file has it then; without end."""
    notes: list[str] = []
    for path in files_of(followed, notes.append):
        with api.opened(path) as history:
            for glance in api.glances(history):
                yield msgspec.structs.replace(glance, remarks=[*glance.remarks, *notes[-1:]])
                if followed.is_other(path):
                    break


def live(console: Console, look: Callable[[], RenderableType], wait: Callable[[], None]) -> None:
    """Show frame after frame, until Ctrl-C."""
    with Live(console=console, screen=True, auto_refresh=False) as shown:
        try:
            while True:
                shown.update(look(), refresh=True)
                wait()
        except KeyboardInterrupt:
            return


def frame(name: str, glance: api.Glance, now: int) -> RenderableType:
    """What is shown at one moment; ``now`` in nanoseconds since the epoch."""
    behind = _behind(glance.time, now)
    view = glance.overview
    if view is None:
        return Group(Text(f"{name}: no session yet, {glance.head:,} events, {behind}", style="bold"), *_first(glance))
    pods = ", ".join(f"{count:,} {status}" for status, count in view.pods.items()) or "none"
    ready = sum(node.ready for node in view.nodes)
    session = f"session {view.session:,} of {api.moment(view.time)}, {glance.rate:.3g} sessions a minute"
    return Group(
        Text(f"{name}: {session}, {behind}", style="bold"),
        *_first(glance),
        Text(f"nodes: {ready:,} of {len(view.nodes):,} ready   jobs: {len(view.jobs):,}   pods: {pods}"),
        Text(),
        _queues(view),
        Text(),
        _nodes(view),
        Text(),
        _jobs(view, glance.waits),
    )


def _first(glance: api.Glance) -> Iterator[Text]:
    """What is to be known before all else: whose log it is, and the remarks."""
    if (stands := glance.standing) is not None:
        yield Text(stands.words, style="bold yellow" if stands.lacks else "")
    yield from (Text(remark, style="bold yellow") for remark in glance.remarks)


def _behind(time: int, now: int) -> str:
    """How old the last event is. A clock that was simulated, or is another machine's, may be ahead of this one's."""
    if not time:
        return "no event yet"
    apart = api.span_in_words(abs(now - time) / _SECOND)
    return f"last event {apart} ago" if time <= now else f"last event {apart} ahead of this clock"


def _table(*columns: str) -> Table:
    """A table of one line a row, whose last column gives way where there is little room."""
    table = Table(box=None, pad_edge=False, expand=True)
    for column in columns[:-1]:
        table.add_column(column, no_wrap=True)
    table.add_column(columns[-1], no_wrap=True, ratio=1)
    return table


# --- queues -----------------------------------------------------------------------------------------------------------


def _queues(view: api.Overview) -> Table:
    rows = [cells for queue in view.queues for cells in _queue_rows(queue, _room(view))]
    table = _table("queue", "resource", "allocated", "", "deserved", "capability", "request")
    return filled(table, rows, _QUEUE_ROWS, len(rows))


def _room(view: api.Overview) -> dict[str, int]:
    """What all nodes together offer."""
    room: dict[str, int] = {}
    for node in view.nodes:
        for resource, amount in node.allocatable.items():
            room[resource] = room.get(resource, 0) + amount
    return room


def _queue_rows(queue: api.QueueFigures, room: dict[str, int]) -> Iterator[Sequence[Any]]:
    """A row for each resource that the queue has, asks for, or is owed."""
    amounts = queue.amounts
    series = [amounts.get(name, {}) for name in ("allocated", "request", "deserved", "guarantee")]
    told = {name for of_series in series for name, amount in of_series.items() if amount}
    resources = [name for name in (*room, *sorted(told - room.keys())) if name in told and name != "pods"]
    title = f"{queue.name}{'' if queue.state == 'Open' else f' ({queue.state})'}"
    if not resources:
        yield title, "", Text("nothing", style="dim")
    for position, resource in enumerate(resources):
        allocated = amounts.get("allocated", {}).get(resource, 0)
        limit = amounts.get("capability", {}).get(resource, room.get(resource, 0))
        deserved = amounts.get("deserved", {}).get(resource)
        yield (
            "" if position else title,
            resource,
            _bar(allocated, limit, deserved, over=queue.overused),
            queue.quantity("allocated", resource),
            "" if deserved is None else queue.quantity("deserved", resource),
            queue.quantity("capability", resource),
            queue.quantity("request", resource),
        )


def _bar(amount: int, limit: int, mark: int | None = None, *, over: bool = False) -> Text:
    """How much of a limit an amount is, with a mark at another amount."""
    filled = _cells(amount, limit)
    cells = ["█"] * filled + ["░"] * (_BAR - filled)
    bar = Text("".join(cells), style="yellow" if over else "cyan")
    if mark is not None and limit:
        place = min(_cells(mark, limit), _BAR - 1)
        bar = Text.assemble(bar[:place], ("│", "bold magenta"), bar[place + 1 :])
    return bar


def _cells(amount: int, limit: int) -> int:
    return min(_BAR, round(_BAR * amount / limit)) if limit > 0 else 0


# --- nodes and jobs ---------------------------------------------------------------------------------------------------


def _nodes(view: api.Overview) -> Table:
    fullest = sorted(view.nodes, key=lambda node: (-_fullness(node)[0], node.name))
    rows = []
    for node in fullest:
        share, resource = _fullness(node)
        cells = (Text(node.name, style="" if node.ready else "red"), _bar(round(share * 1000), 1000), f"{share:.0%}")
        rows.append((*cells, resource, f"{node.pods:,}", "yes" if node.ready else "no"))
    return filled(_table("node", "fullest in", "", "", "pods", "ready"), rows, _ROWS, len(rows))


def _fullness(node: api.NodeUse) -> tuple[float, str]:
    """The largest share of a resource that is used, and the resource."""
    shares = [
        (node.used.get(name, 0) / room, name) for name, room in node.allocatable.items() if name != "pods" and room
    ]
    return max(shares, key=lambda one: one[0], default=(0.0, ""))


def _jobs(view: api.Overview, waits: list[api.DiagnosedWait]) -> Table:
    waiting = sorted((job for job in view.jobs if job.since is not None), key=lambda job: (job.since or 0, job.key))
    causes = {one.group: one for one in waits}
    rows = []
    for job in waiting:
        known = causes.get(job.key)
        since = api.span_in_words((view.time - (job.since or 0)) / _SECOND)
        name, needs = (job.key, "") if known is None else (known.job, known.needs)
        why = known.why if known is not None else job.waiting or "no session has said why"
        rows.append((name, job.queue, f"{job.running:,} of {job.pods:,}", needs, since, why))
    return filled(_table("waiting job", "queue", "run", "needs", "for", "why"), rows, _ROWS, len(rows))
