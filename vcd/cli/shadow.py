"""``vcd shadow``: compare the decisions of ``vcd run --shadow`` with what the active scheduler did."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec
from rich.table import Table
from rich.text import Text

from vcd.cli.command_errors import Unusable, report_errors
from vcd.cli.fromcluster import FileLog
from vcd.cli.inputs import COUNT, event_log_path
from vcd.cli.output import text_output
from vcd.cli.printing import add_row, print_json, print_lines, print_tables, table
from vcd.model.wording import span_in_words
from vcd.timetravel.shadow.shadow_comparison import SHADOW_KINDS, NoShadow, ShadowComparison, compare_shadow


def _refuse(_: click.Context, __: click.Parameter, is_given: bool) -> None:
    """Explain how to reach a shadow's log. Raises UsageError."""
    if is_given:
        raise click.UsageError(
            "a shadow has no Lease and does not serve its log; run the command where the log is, as in"
            " kubectl -n volcano-system exec deploy/vcd-scheduler -- vcd shadow /var/lib/vcd/events.sqlite,"
            " or copy the file here"
        )


@click.command()
@event_log_path
@click.option("--from-cluster", is_flag=True, hidden=True, expose_value=False, callback=_refuse)
@click.option("--kind", type=click.Choice(list(SHADOW_KINDS)), help="Only pods of this kind.")
@click.option("--queue", help="Only pods of this queue.")
@click.option("--limit", type=COUNT, default=20, show_default=True, help="At most this many pods; 0: all.")
@text_output
@report_errors
def shadow(event_log: Path, kind: str | None, queue: str | None, limit: int, output: str) -> None:
    """Compare vcd's decisions with what the active scheduler did, from the log of a shadow (`vcd run --shadow`).

    \b
    same-node   bound to the node that vcd had chosen
    other-node  bound to another node than vcd had chosen
    kept-back   bound while vcd left it pending; the log does not have for how long
    only-vcd    placed by vcd, and not bound
    undecided   bound before a session decided about it

    The first session that gave a pod a node counts, with that node and that session's time. Each session decides on the
    cluster as it is, without the pods that only vcd would have started. So vcd looks too early if pods wait long for
    the active scheduler while more pods arrive. The summary also counts pods for which a later session had no node.

    The log is a file: on the shadow's volume, or a copy of it.

    `vcd explain pod NAME` and `vcd explain session N` have the details.

    Exits with 0; with 2 if the file cannot be used, is not a shadow's, or has no pod of the queue.
    """
    try:
        with FileLog(event_log).reading() as log:
            found = compare_shadow(log)
    except NoShadow as error:
        raise Unusable(str(error)) from None
    queues = [one.queue for one in found.queues]
    if queue is not None and queue not in queues:
        raise Unusable(f"--queue {queue}: no pod of it was placed; those of {', '.join(queues) or 'no queue'} were")
    chosen = [one for one in found.differences if kind in (None, one.kind) and queue in (None, one.queue)]
    limited = msgspec.structs.replace(found, differences=chosen[:limit] if limit else chosen)
    if output == "json":
        print_json(limited)
        return
    print_lines(_summary(found))
    print_tables(_queues(found), Text(), _differences(limited))
    if len(chosen) > len(limited.differences):
        click.echo(
            f"... and {len(chosen) - len(limited.differences):,} more; choose with --limit, --kind or --queue", err=True
        )


def _summary(found: ShadowComparison) -> list[str]:
    lines = [f"{found.sessions} sessions of a shadow, {found.since} to {found.until}"]
    lines += [f"{count:>6}  {kind:10}  {SHADOW_KINDS[kind]}" for kind, count in found.pods.items()]
    lines.append(f"{found.waiting:>6}  {'waiting':10}  placed by neither")
    if found.withdrawn:
        lines.append(f"{found.withdrawn} of the pods that vcd placed got no node in a later session")
    if found.untimed:
        lines.append(
            f"{found.untimed} waited, or were bound, while the shadow did not watch: their times do not compare"
        )
    groups = found.admissions
    if groups.earlier:
        lines.append(
            f"{groups.earlier} groups admitted earlier by vcd, by {_seconds(groups.p50)} in the middle and "
            f"{_seconds(groups.most)} at most"
        )
    if groups.only_vcd:
        lines.append(f"{groups.only_vcd} groups admitted by vcd, and not by the active scheduler")
    if found.evictions:
        gone = sum(bool(one.gone_at) for one in found.evictions)
        lines.append(f"{len(found.evictions)} pods that vcd would have evicted, {gone} of which no longer exist")
    return lines


def _queues(found: ShadowComparison) -> Table:
    queue_table = table("queue", *SHADOW_KINDS, "vcd earlier p50", "p95", "most", right=True)
    for one in found.queues:
        seconds = map(_seconds, (one.p50, one.p95, one.most))
        add_row(queue_table, one.queue or "-", *map(str, one.pods.values()), *seconds)
    return queue_table


def _seconds(value: float | None) -> str:
    return "-" if value is None else span_in_words(value)


def _differences(found: ShadowComparison) -> Table:
    pod_table = table("pod", "queue", "kind", "vcd: node", "at", "session", "bound to", "at", "vcd earlier by", "why")
    for one in found.differences:
        earlier = _seconds(one.seconds) if one.timed else "-"
        why = one.why or (f"session {one.withdrawn} had no node for it any more" if one.withdrawn else "")
        cells = (one.node or "-", one.at or "-", str(one.session or "-"), one.bound_to or "-", one.bound_at or "-")
        cause = f"{one.cause}: {why}" if one.cause else why
        add_row(pod_table, one.pod, one.queue or "-", one.kind, *cells, earlier, cause)
    return pod_table
