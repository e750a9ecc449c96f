"""Errors of users, printed without a traceback."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec

import click
import msgspec

from vcd.cli.printing import print_lines, printable
from vcd.scheduling.framework.policy import PolicyError
from vcd.scheduling.framework.registry import RegistryError
from vcd.timetravel.log_operations import LogError
from vcd.timetravel.query_errors import NotFound

Params = ParamSpec("Params")


class Unusable(click.ClickException):
    """A file that cannot be read or used, a name that is not in it, or a broken installation: exit code 2."""

    exit_code = 2

    def format_message(self) -> str:
        """Return the message with control characters escaped: names in it may come from a PodGroup."""
        return "\n".join(map(printable, self.message.splitlines()))


class InvalidConf(click.ClickException):
    """A configuration file with problems, printed one per line: exit code 2."""

    exit_code = 2

    def __init__(self, name: str, error: PolicyError) -> None:
        super().__init__(f"{name} cannot be used")
        self._lines = [f"{name}:{problem.line}: error: {problem.sentence}" for problem in error.problems]

    def show(self, file: Any = None) -> None:
        """Print the problems."""
        print_lines(self._lines, err=True)


def report_errors(command: Callable[Params, None]) -> Callable[Params, None]:
    """Let a command report wrong files and unknown names with a message and exit code 2."""

    @wraps(command)
    def wrapped(*args: Params.args, **kwargs: Params.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except (LogError, NotFound, RegistryError) as error:
            raise Unusable(str(error)) from None
        except msgspec.MsgspecError as error:
            what = f"this version cannot read a part of the log: {error}; run `vcd log verify`"
            raise Unusable(what) from error

    return wrapped
