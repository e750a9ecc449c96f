"""Events of a file, each held against its link: who goes on by them knows that they are those that were logged."""

from __future__ import annotations

from collections.abc import Iterator

from vcd.eventlog.chain import Content
from vcd.eventlog.errors import DamagedLog
from vcd.eventlog.reader import LogReader
from vcd.eventlog.rows import Logged, content_of


class Links:
    """The links of a file's events, one after the other, each held against what its event says."""

    def __init__(self, reader: LogReader, begin: int) -> None:
        """``begin``: the event, or checkpoint, before the first."""
        self._reader = reader
        self._chain = reader.chain(begin)
        self._links = reader.cursor("links", after=begin)

    def __call__(self, content: Content) -> bytes | None:
        """The next event's link. Raises DamagedLog when it is not that of ``content``."""
        link: bytes | None
        (link,) = next(self._links)
        if not self._chain.follow(content, link):
            raise not_as_logged(self._reader, f"event {content[0]}")
        return link


def as_logged(reader: LogReader, after: int, until: int | None = None) -> Iterator[Logged]:
    """The events after one, or after a checkpoint, up to another (None: to the end). Raises DamagedLog for one that is
    not as it was logged, and LogError as ``LogReader.read``."""
    links = Links(reader, after)
    for logged in reader.read(after, until):
        links(content_of(logged))
        yield logged


def not_as_logged(reader: LogReader, what: str) -> DamagedLog:
    """The error of something that was changed since it was logged."""
    return DamagedLog(
        f"event log {reader.path}: {what} is not the one that was logged; restore a copy, or move the file away and"
        f" start a new one. `vcd log verify {reader.path}` tells all that was changed"
    )
