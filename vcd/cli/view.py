"""``vcd view``: an event log as a read-only page in the browser."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import click

from vcd import api
from vcd.cli.errors import Unusable, says_errors
from vcd.cli.inputs import event_log_option
from vcd.daemon.options import OptionError, split_address
from vcd.view.server import View, ViewError

ADDRESS = "127.0.0.1:8090"


def address(context: click.Context, option: click.Parameter, value: str | None) -> tuple[str, int] | None:
    """Host and port of ``HOST:PORT``, None where none is given. Raises BadParameter."""
    if value is None:
        return None
    try:
        return split_address(value, option.opts[0])
    except OptionError as error:
        raise click.BadParameter(str(error)) from None


@click.command()
@event_log_option
@click.option(
    "--address",
    "where",
    callback=address,
    default=ADDRESS,
    show_default=True,
    metavar="HOST:PORT",
    help="Where to serve it, on this machine alone; port 0 takes any free one.",
)
@says_errors
def view(event_log: Path, where: tuple[str, int]) -> None:
    """Serve a page that shows an event log: sessions to scrub through, queues, nodes, jobs and why they wait.

    Prints the page's address, and serves it until SIGTERM or SIGINT. The log may be one that a scheduler is writing.
    Nothing is changed by it.

    Exits with 0 when it was told to stop, with 2 if the file cannot be used or the address is taken or is not this
    machine's own.
    """
    with api.up_to_date(event_log, lambda note: click.echo(note, err=True)) as log:
        with api.opened(log) as history:
            api.ends(history)  # a file that cannot be used is told before anything is served
        try:
            asyncio.run(_serve(log, where))
        except ViewError as error:
            raise Unusable(str(error)) from None


async def _serve(event_log: Path, where: tuple[str, int]) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with View(event_log, *where) as page:
        click.echo(page.url)
        await stop.wait()
