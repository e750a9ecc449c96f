"""The command ``vcd``. Each command is one module, imported when the command is called."""

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
    "jobs": "List jobs, their state, and why they wait.",
    "explain": "Explain why a job or pod waits, or where it was placed.",
    "bisect": "Find the change that made a job, or waits, worse.",
    "top": "Watch queues, nodes and waiting jobs of an event log.",
    "view": "Show an event log as a page in the browser.",
    "whatif": "Run a log's workload again with a change.",
    "sweep": "Run many what-ifs at once.",
    "gate": "Judge a new configuration by a log's workload.",
    "shadow": "Compare a shadow's decisions with the active scheduler's.",
    "export": "Write tables of an event log as CSV or Parquet.",
    "log": "List, verify, export and compact event logs.",
    "conf": "Check and print the scheduler's configuration.",
    "hypernodes": "Print HyperNodes for the labels of nodes.",
    "completion": "Print the completion script for a shell.",
}
"""The commands with their short help. Each command is the object of that name in the module of that name."""

INTERRUPTED = 130
"""Exit code of a command that Ctrl-C ended."""
UNREAD = 141
"""Exit code of a command whose output is closed, as of a program that SIGPIPE ended."""
UNWRITTEN = 2
"""Exit code of a command that could not write its output, or met another error of the machine. It is not 1, which is a
verdict of some commands."""
DEFECT = 70
"""Exit code of a command that a defect of vcd ended (EX_SOFTWARE of sysexits.h); not a verdict either."""

_COLLECTIONS = (50_000, 20, 100)
"""Thresholds of the garbage collector. Objects that a command imports and reads remain in use until it ends, so garbage
collection would only cost time.
"""


class Group(click.Group):
    """A group that suggests the nearest command for an unknown one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the named command. Raises UsageError."""
        name = args[0]
        if not ctx.resilient_parsing and name[:1].isalnum() and self.get_command(ctx, name) is None:
            words = importlib.import_module("vcd.model.wording")  # imported here: valid commands do not need it
            ctx.fail(f"No such command {name!r}{words.did_you_mean(name, self.list_commands(ctx))}")
        return super().resolve_command(ctx, args)


class Commands(Group):
    """A group that imports a command only when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of a name, or None."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(importlib.import_module(f"{__name__}.{cmd_name}"), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands with their short help, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the command line. An error of the machine ends it with a message, a defect with a traceback, neither
        with the exit code of a verdict."""
        try:
            return super().main(*args, **kwargs)
        except OSError as error:  # not about a file that the user named, but for example a full disk
            sys.exit(_report_error(error))
        except Exception:  # noqa: BLE001 - printed here, since Python would exit with 1
            sys.excepthook(*sys.exc_info())
            sys.exit(DEFECT)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; Ctrl-C ends it without a message."""
        gc.set_threshold(*_COLLECTIONS)
        # numpy would start a thread per processor, which no command needs
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):  # write what the encoding lacks as escapes
                stream.reconfigure(errors="backslashreplace")
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
        except BrokenPipeError as error:  # click would exit with 1
            ctx.exit(_report_error(error))


def _report_error(error: OSError) -> int:
    """Report an error of the machine, unless the output is closed, and return the exit code. Unwritten output is
    dropped: Python would write it again at exit, and exit with its own code."""
    is_unread = isinstance(error, BrokenPipeError)
    if not is_unread:
        with suppress(OSError):  # standard error itself may be unwritable
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
    """The Volcano batch scheduler, event-sourced: it explains its decisions."""
    if "structlog" in sys.modules:  # imported by the command; commands without a log start sooner without it
        structlog = sys.modules["structlog"]
        structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
