"""Read events and check each against its link, so that nothing is folded or copied that was changed on disk."""

from __future__ import annotations

from collections.abc import Iterator

from vcd.eventlog.chain import Content
from vcd.eventlog.log_errors import DamagedLog
from vcd.eventlog.log_reader import LogReader
from vcd.eventlog.rows import Logged, to_content


class LinkChecker:
    """Check consecutive events of a file against their links."""

    def __init__(self, reader: LogReader, begin: int) -> None:
        self._reader = reader
        self._chain = reader.chain(begin)
        self._links = reader.cursor("links", after=begin)

    def __call__(self, content: Content) -> bytes | None:
        """Return the next event's link. Raises DamagedLog if it does not match ``content``."""
        link: bytes | None
        (link,) = next(self._links)
        if not self._chain.check_next(content, link):
            raise changed_error(self._reader, f"event {content[0]}")
        return link


def read_verified(reader: LogReader, after: int, until: int | None = None) -> Iterator[Logged]:
    """Yield the events after one event, or checkpoint, up to another (None: to the end).

    Raises DamagedLog for a changed event, and LogError as ``LogReader.read`` does.
    """
    links = LinkChecker(reader, after)
    for logged in reader.read(after, until):
        links(to_content(logged))
        yield logged


def changed_error(reader: LogReader, what: str) -> DamagedLog:
    """Return the error for something that was changed after it was logged."""
    return DamagedLog(
        f"event log {reader.path}: {what} was changed after it was logged; restore a copy, or move the file away and"
        f" start a new one. `vcd log verify {reader.path}` lists every change"
    )
