"""Commands that are run in the test's own process."""

from __future__ import annotations

from click.testing import CliRunner, Result

from vcd.cli import DEFECT, main


def run_vcd(*words: object, stdin: str | bytes | None = None) -> Result:
    """Run ``vcd``; a traceback fails the test."""
    return without_defect(CliRunner().invoke(main, list(map(str, words)), input=stdin))


def without_defect(result: Result) -> Result:
    """A result; what a defect of vcd raised fails the test, with its traceback."""
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code != DEFECT, result.stderr
    return result
