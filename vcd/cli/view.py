"""``vcd view``: an event log as a read-only page in the browser."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from pathlib import Path

import click

from vcd.cli.command_errors import Unusable, report_errors
from vcd.cli.fromcluster import EventLog, FileLog, FollowedLog, files_of, print_note
from vcd.cli.inputs import event_log_argument
from vcd.daemon.options import OptionError, split_address
from vcd.timetravel.history import opened
from vcd.timetravel.session_lines import ends
from vcd.view.page_server import View, ViewError

ADDRESS = "127.0.0.1:8090"
LOOK = 0.5
"""Seconds between two checks whether another file has replaced the log's."""


def address(context: click.Context, option: click.Parameter, value: str | None) -> tuple[str, int] | None:
    """Parse ``HOST:PORT``; None if not given. Raises BadParameter."""
    if value is None:
        return None
    try:
        return split_address(value, option.opts[0])
    except OptionError as error:
        raise click.BadParameter(str(error)) from None


@click.command()
@event_log_argument
@click.option(
    "--address",
    "where",
    callback=address,
    default=ADDRESS,
    show_default=True,
    metavar="HOST:PORT",
    help="The address to serve it at, reachable from this machine only; port 0: any free one.",
)
@report_errors
def view(event_log: EventLog, where: tuple[str, int]) -> None:
    """Serve a page of an event log: sessions to scrub through, queues, nodes, jobs and why they wait.

    Prints the page's address, and serves it until SIGTERM or SIGINT. A scheduler may be writing the log; this command
    changes nothing in it.

    Exits with 0 after SIGTERM or SIGINT; with 2 if the file cannot be used, or the address is in use or not one of
    this machine.
    """
    with event_log.following() as followed:
        with followed.reading() as path, opened(path) as history:
            ends(history)  # report an unusable file before serving
        try:
            asyncio.run(_serve(followed, event_log.name if isinstance(event_log, FileLog) else "", *where))
        except ViewError as error:
            raise Unusable(str(error)) from None


async def _serve(followed: FollowedLog, called: str, host: str, port: int) -> None:
    """Serve the page until a signal, from whichever file has the log; errors name the log as ``called``."""
    stop, served = asyncio.Event(), 0
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    for path in files_of(followed, print_note):
        async with View(path, host, served or port, called=called) as page:
            if not served:
                served = page.port
                click.echo(page.url)
            await _until_other(followed, path, stop)
        if stop.is_set():
            return


async def _until_other(followed: FollowedLog, path: Path, stop: asyncio.Event) -> None:
    while not stop.is_set() and not followed.is_other(path):
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK):
                await stop.wait()
