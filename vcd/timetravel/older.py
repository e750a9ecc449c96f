"""Logs that an older vcd wrote: read from a copy that is brought up to date."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from vcd.eventlog.log_file import migrate_copy


@contextmanager
def up_to_date(path: str | Path, note: Callable[[str], None] = lambda _: None) -> Iterator[Path]:
    """A log of this version's schema to read in place of ``path``: the file itself, or a copy of it for as long as
    the context lasts, of which ``note`` is told in a sentence; errors name the file. The file stays as it is. Raises
    LogError.
    """
    path = Path(path)
    with TemporaryDirectory(prefix="vcd-") as folder, errors_about(path, Path(folder) / path.name):
        copy = migrate_copy(path, Path(folder))
        if copy is not None:
            note(
                f"note: event log {path} was written by an older vcd; a copy of it is read, in {folder};"
                " `vcd log compact` brings the file itself up to date"
            )
        yield copy or path


@contextmanager
def errors_about(path: Path, copy: Path) -> Iterator[None]:
    """Let errors that name a copy of a log name the log."""
    try:
        yield
    except Exception as error:
        error.args = tuple(text.replace(str(copy), str(path)) if isinstance(text, str) else text for text in error.args)
        raise
