"""``vcd run``: the scheduler's daemon, with vc-scheduler's flags."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.util
import os
import sys
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

import click
import structlog

from vcd import __version__
from vcd.daemon import structured_logging
from vcd.daemon.options import (
    FLAGS,
    WITHOUT_EFFECT,
    Flag,
    OptionError,
    Options,
    join_address,
    normalise_arguments,
    parse_options,
    split_address,
)

if TYPE_CHECKING:
    from vcd.daemon.http.security import Security

_log = structlog.get_logger(__name__)

_HELP = """Schedule the pods of a cluster until SIGTERM or SIGINT.

The flags are vc-scheduler's, in its syntax, and some of vcd's own. Each can also be set by the environment variable
that is named with it.

Exits with 0 after SIGTERM or SIGINT; with 1 if it cannot continue (the event log or an address cannot be used); with 2
for a bad flag, a bad configuration file or certificate, an event log of a newer vcd, a log of the other kind (a
shadow's, or with --shadow a scheduler's), or if no API server is named; with 70 after a defect of vcd itself.
"""


class _GoLikeCommand(click.Command):
    """A command that takes its arguments as Go programs do."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, normalise_arguments(args))

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Accepted for compatibility with vc-scheduler, without effect"):
            formatter.write_text(", ".join(flag.written for flag in WITHOUT_EFFECT))


def _serve(**given: tuple[str, ...]) -> None:
    try:
        options = parse_options({flag.name: given[flag.name.replace("-", "_")] for flag in FLAGS}, os.environ)
    except OptionError as error:
        raise click.UsageError(str(error)) from None
    structured_logging.configure(options.log_format, options.verbosity)
    if options.without_effect:
        _log.info("flags without effect here", flags=dict(options.without_effect))
    sys.exit(_run(options))


def _run(options: Options) -> int:
    process = importlib.import_module("vcd.daemon.process")  # not imported for `vcd run --help`
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        code: int = runner.run(process.run(options, lambda replica: _page(options, replica.security)))
    return code


@contextlib.asynccontextmanager
async def _page(options: Options, security: Security) -> AsyncIterator[None]:
    """Serve the log as a page if it is enabled. If it cannot be served, scheduling continues without it."""
    server = importlib.import_module("vcd.view.page_server")
    async with contextlib.AsyncExitStack() as stack:
        if options.view_address:
            host, port = split_address(options.view_address, "--view-address")
            page = server.View(
                options.event_log,
                host,
                port,
                reviews=security.page,
                hosts=options.page_hosts,
                tls=None if security.certificate is None else security.certificate.context,
                flag="--view-address",
            )
            try:
                await stack.enter_async_context(page)
                address = join_address(host, page.port)
                _log.info("listening", address=address, pages=["/"], tls=page.url.startswith("https:"))
            except server.ViewError as error:
                _log.warning("the page is not served", reason=str(error))
        yield


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's event loop factory if it is installed; None for asyncio's own."""
    if importlib.util.find_spec("uvloop") is None:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = importlib.import_module("uvloop").new_event_loop
    return factory


def _option(flag: Flag) -> click.Option:
    """Return the flag as a click option that takes any text, since the table of flags parses and checks it."""
    names = ["-v", "--v"] if flag.name == "v" else [f"--{flag.name}"]
    default = f"; default {flag.default}" if flag.default else ""
    words = f"{flag.doc}  [{flag.variable}{default}]"
    metavar = flag.kind.upper().removesuffix("S")
    return click.Option(names, multiple=True, metavar=metavar, help=words, hidden=bool(flag.idle))


run = _GoLikeCommand(
    "run",
    callback=_serve,
    params=[_option(flag) for flag in FLAGS],
    help=_HELP,
    context_settings={"help_option_names": ["-h", "--help"]},
)
"""The command."""
click.version_option(__version__, prog_name="vcd", message="%(prog)s %(version)s")(run)
