"""Read logs that an older vcd wrote, from an upgraded copy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from vcd.eventlog.log_file import migrate_copy


@contextmanager
def up_to_date(path: str | Path, note: Callable[[str], None] = lambda _: None) -> Iterator[Path]:
    """Yield a log with this version's schema in place of ``path``: the file itself, or a temporary copy, about which
    ``note`` is called with a sentence. Errors name the original file, which is not changed. Raises LogError."""
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
    """Replace the name of a log's copy by that of the log in errors."""
    try:
        yield
    except Exception as error:
        error.args = tuple(text.replace(str(copy), str(path)) if isinstance(text, str) else text for text in error.args)
        raise
