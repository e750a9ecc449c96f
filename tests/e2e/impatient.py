"""The command ``vcd``, for which a leader has three seconds to be reached, and not thirty."""

from __future__ import annotations

from vcd.cli import main as command
from vcd.daemon.reader import log_copy


def main() -> None:
    """The command, by this process's arguments and environment."""
    log_copy.PATIENCE = 3.0
    command()
