"""What a command that was run in this process came to."""

from __future__ import annotations

from click.testing import Result

from vcd.cli import DEFECT


def without_defect(result: Result) -> Result:
    """A result; what a defect of vcd raised fails the test, with its traceback."""
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code != DEFECT, result.stderr
    return result
