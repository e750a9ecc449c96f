"""The command ``vcd``: one file a command, loaded when it is called."""

from __future__ import annotations

import gc
import importlib
import io
import os
import sys
from contextlib import suppress
from typing import Any

import click

from vcd import __version__

COMMANDS = {
    "run": "Schedule a cluster.",
    "sim": "Schedule an embedded cluster.",
    "plan": "Decide one cycle over manifests.",
    "replay": "Decide logged sessions again.",
    "jobs": "List jobs, how they stand, and why they wait.",
    "explain": "Tell why a job or pod waits, or where it went.",
    "bisect": "Find the change that made a job, or waits, worse.",
    "top": "Watch queues, nodes and waiting jobs of an event log.",
    "view": "Show an event log as a page in the browser.",
    "whatif": "Let a log's workload come again under other conditions.",
    "sweep": "Many what-ifs at once.",
    "gate": "Let a configuration pass, or fail, on a log's workload.",
    "shadow": "Compare a shadow's decisions with what was done.",
    "export": "Write tables of an event log as CSV or Parquet.",
    "log": "Look into event logs and prove them sound.",
    "conf": "Check and show the scheduler's configuration.",
    "completion": "Print the completion script for a shell.",
}
"""The commands with their short help; each is the object of its name in the module of its name."""

INTERRUPTED = 130
"""The exit code of a program that Ctrl-C ended."""
UNREAD = 141
"""The exit code of one whose output nobody reads any more, as of one that SIGPIPE ended."""
UNWRITTEN = 2
"""The exit code of one that could not write what it had to say, or was refused something else by the machine: 1 is a
verdict of some commands."""
DEFECT = 70
"""The exit code of one that a defect of its own ended, which is no verdict either (EX_SOFTWARE of sysexits.h)."""

_COLLECTIONS = (50_000, 20, 100)
"""How many new objects begin a collection of garbage, and how many collections one of older objects: what a command
imports and reads lasts, and most commands end before any of it is garbage."""


class Group(click.Group):
    """A group that tells of a command that it has not which one may have been meant."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the words name. Raises UsageError."""
        name = args[0]
        if not ctx.resilient_parsing and name[:1].isalnum() and self.get_command(ctx, name) is None:
            words = importlib.import_module("vcd.model.words")  # only here: it is not needed for what is right
            ctx.fail(f"No such command {name!r}{words.did_you_mean(name, self.list_commands(ctx))}")
        return super().resolve_command(ctx, args)


class Commands(Group):
    """A group whose commands are imported only when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands that there are."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name, None where there is none."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(importlib.import_module(f"{__name__}.{cmd_name}"), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands with their short help, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the command line; an error of the machine ends it in a line, a defect with its traceback, and neither is
        a verdict."""
        try:
            return super().main(*args, **kwargs)
        except OSError as error:  # of no file that was asked for: as when the output's disk is full
            sys.exit(_told(error))
        except Exception:  # noqa: BLE001 - it is told; Python would exit with 1
            sys.excepthook(*sys.exc_info())
            sys.exit(DEFECT)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; Ctrl-C ends it without a word."""
        gc.set_threshold(*_COLLECTIONS)
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy begins a thread a processor, which nothing here uses
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):  # what its encoding cannot write is told in letters
                stream.reconfigure(errors="backslashreplace")
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
        except BrokenPipeError as error:  # click would end it with 1
            ctx.exit(_told(error))


def _told(error: OSError) -> int:
    """The exit code for an error of the machine, which is told, unless it is that nobody reads. What cannot be written
    is dropped: Python would try again at its end, and exit with a code of its own."""
    is_unread = isinstance(error, BrokenPipeError)
    if not is_unread:
        with suppress(OSError):  # it may be standard error that cannot be written
            click.echo(f"Error: {error.strerror or error}", err=True)
    for name in ("stdout", "stderr"):
        try:
            if (stream := getattr(sys, name)) is not None:
                stream.flush()
        except OSError:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: PTH123, SIM115
    return UNREAD if is_unread else UNWRITTEN


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="vcd")
def main() -> None:
    """The Volcano batch scheduler, event-sourced: it can be asked why."""
    if "structlog" in sys.modules:  # by the command: one that logs nothing starts sooner without it
        structlog = sys.modules["structlog"]
        structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
