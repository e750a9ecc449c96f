"""A log copied into another as it grows: what is sent of it, and where two files part.

A copy holds the same events under the same numbers, times and links, and the same checkpoints. A link stands for all
before it, so that one position which two files share shows that they are the same up to there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Self

import msgspec
from aiosqlite import Connection

from vcd.eventlog import chain
from vcd.eventlog.chain import Chain, Content
from vcd.eventlog.errors import DamagedLog, LogError
from vcd.eventlog.log import EventLog, begin_checkpoint
from vcd.eventlog.packing import PackError, unpacked_state
from vcd.eventlog.reader import LogReader
from vcd.eventlog.rows import Logged, Row, digest_of
from vcd.eventlog.statements import statements

_EVENTS = 500
"""Events of one piece at most."""
_BYTES = 4 << 20
"""Bytes of payloads after which a piece ends."""


class Position(msgspec.Struct, frozen=True, array_like=True):
    """An event, or the checkpoint that a log's history begins with, and its link; of such a checkpoint that an older
    vcd kept, which has none, the digest of its state."""

    sequence: int
    link: bytes


class Begin(msgspec.Struct, frozen=True, array_like=True, tag="begin"):
    """What a log begins with: digest and text of the configurations that were loaded before its first event, and the
    last session's number before it."""

    policies: list[tuple[str, str]]
    session: int = 0


class Events(msgspec.Struct, frozen=True, array_like=True, tag="events"):
    """Events that follow each other, each with its link."""

    rows: list[tuple[Content, bytes | None]]


class Kept(msgspec.Struct, frozen=True, array_like=True, tag="checkpoint"):
    """A checkpoint, and after which event it was kept (None: the history begins with it, and ``link`` is its event's).

    ``parts`` are the compressed state as it is in the file; none where it was removed since, or is there already.
    """

    after: int | None
    sequence: int
    time: int
    size: int
    digest: bytes
    parts: list[bytes]
    link: bytes | None = None

    def check(self) -> None:
        """Raises LogError unless the parts are the state that the digest is of."""
        if self.after is None and not self.parts:
            raise LogError(f"checkpoint {self.sequence} of another log, with which it begins, is without its state")
        try:
            state = unpacked_state(self.parts, self.size) if self.parts else b""
        except PackError as error:
            raise LogError(f"checkpoint {self.sequence} of another log cannot be read: {error}") from error
        if self.parts and (len(state), digest_of(state)) != (self.size, self.digest):
            raise LogError(f"checkpoint {self.sequence} of another log is damaged")


class DamagedHistory(DamagedLog):
    """An event or a checkpoint is not as it was logged. No copy can continue from an event up to ``sequence``."""

    def __init__(self, path: Path, what: str, sequence: int) -> None:
        super().__init__(
            f"{what} is damaged: event log {path}; copies begin with a later checkpoint, run `vcd log verify` for more"
        )
        self.sequence = sequence


Piece = Begin | Events | Kept
"""What is sent of a log, in order."""


def positions(reader: LogReader) -> list[Position]:
    """Where a log is, and was: its end, and each time twice as far back, down to its beginning; the latest first.

    Of a log without a chain, one that an older vcd wrote and nobody since, the checkpoint that it begins with at most.
    """
    head, oldest, back, found = reader.head(), max(reader.oldest(), 1), 1, []
    places = [head] if head else []
    while places and places[-1] > oldest:
        places.append(max(head - back, oldest))
        back *= 2
    for place in places:
        mark = _mark(reader, place)
        if mark is not None:
            found.append(Position(place, mark))
    return found


def _mark(reader: LogReader, place: int) -> bytes | None:
    """What a place is known by (``Position``); None where a log of an older vcd has nothing."""
    link = reader.link(place)
    if link is not None or place != reader.oldest():
        return link
    return next((digest for sequence, *_, digest in reader.rows("checkpoints") if sequence == place), None)


class LogSource:
    """A log of which a copy is made while it grows; a context manager, which closes the file. For one thread at a time.

    Every method raises LogError for what the file does not hold, and DamagedHistory for what a copy would refuse.
    """

    def __init__(self, path: str | Path, damaged: int | None = None) -> None:
        """With ``damaged``, check all that is sent as its copy does. The history up to the event ``damaged`` (0: none)
        is known to be damaged, and counts as removed."""
        self._reader = LogReader(path)
        self._is_checked, self._damaged = damaged is not None, damaged or 0
        self._at = self._oldest = 0
        self._link: bytes | None = None
        self._sealed: set[int] = set()
        """Of which checkpoints the copy has the seal after the event where it is."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()

    def shared(self, known: Iterable[Position]) -> int | None:
        """Return the last of some positions of another log that this one has, too; None if a copy has to begin anew.
        Raises LogError if a copy has to, but cannot yet."""
        oldest, head = max(self._reader.oldest(), self._damaged + 1), self._reader.head()
        inside = (one for one in known if oldest <= one.sequence <= head)
        last = max((one.sequence for one in inside if _mark(self._reader, one.sequence) == one.link), default=None)
        if last is None:
            self._beginning()
        return last

    def same(self, links: Mapping[int, bytes | None]) -> list[int]:
        """Those of another log's events, which follow each other, up to the first whose link is not this log's."""
        return list(takewhile(lambda each: links[each] is not None and links[each] == self.link(each), links))

    def positions(self) -> list[Position]:
        """``positions`` of it."""
        return positions(self._reader)

    def head(self) -> Position | None:
        """Where the log ends; None where it is empty, or has no chain."""
        head = self._reader.head()
        link = self._reader.link(head) if head else None
        return None if link is None else Position(head, link)

    def has(self, position: Position) -> bool:
        """Whether a position of another log is one of this one, too."""
        return self.shared([position]) is not None

    def oldest(self) -> int:
        """The event that the history is after: 0, or that of the oldest checkpoint."""
        return self._reader.oldest()

    def link(self, sequence: int) -> bytes | None:
        """The link of an event, or of the checkpoint that the history begins with; None where it has none."""
        return self._reader.link(sequence)

    def seals_at(self, sequence: int) -> list[int]:
        """The checkpoints that were kept after an event and before the next."""
        return [checkpoint for after, checkpoint, *_ in self._seals(sequence, sequence)]

    def go_on(self, after: int, sealed: Sequence[int]) -> None:
        """Send next what follows an event, to a copy that has these checkpoints' seals after it."""
        self._at, self._sealed, self._oldest = after, set(sealed), self._reader.oldest()
        self._link = self._reader.link(after)  # retention may remove it from the file while the copy is made

    def from_the_beginning(self) -> Iterator[Piece]:
        """What a copy begins with that has nothing. Raises LogError for an import, whose parts are several logs'."""
        reader = self._reader
        if reader.segments():
            raise LogError(f"event log {reader.path}: an import cannot be copied event by event; copy the file")
        yield from self.from_checkpoint(self._beginning())

    def _beginning(self) -> int:
        """Return the checkpoint that a copy begins with, or 0. Raises LogError if there is none after the damage."""
        oldest = self._reader.oldest()
        if not self._damaged or self._damaged < oldest:
            return oldest
        after = next(iter(self.checkpoints(self._damaged + 1)), None)
        if after is None:
            what = f"no checkpoint after damaged event {self._damaged}: event log {self._reader.path}"
            raise LogError(f"{what}; wait until one is written")
        return after

    def from_checkpoint(self, begin: int) -> Iterator[Piece]:
        """What a copy begins with that has nothing of what was before a checkpoint; 0 for one that is to have all."""
        reader = self._reader
        ((session,),) = reader.rows("session_before", at=begin)
        kept = [self._kept(None, begin)] if begin else []
        yield Begin([(digest, text) for digest, text, _ in reader.rows("policies")], session)
        yield from kept
        self.go_on(begin, [])

    def checkpoints(self, after: int) -> list[int]:
        """The checkpoints of events from one on that have a link."""
        kept = (info.sequence for info in self._reader.checkpoints())
        return [sequence for sequence in kept if sequence >= after and self._reader.link(sequence) is not None]

    def news(self) -> Iterator[Piece]:
        """What came since, up to now."""
        head = self._reader.head()
        yield from self._pieces(head, head)

    def up_to(self, last: int) -> Iterator[Piece]:
        """What came since, up to an event; of checkpoints those that were kept before that event."""
        yield from self._pieces(last, last - 1)

    def _pieces(self, last: int, sealed: int) -> Iterator[Piece]:
        for after, checkpoint, *_ in self._seals(self._at, sealed):
            yield from self._events(after)
            if checkpoint not in self._sealed:
                kept = self._kept(after, checkpoint)
                self._sealed.add(checkpoint)
                yield kept
        yield from self._events(last)

    def _seals(self, first: int, last: int) -> list[tuple[int, int, int, bytes]]:
        rows = self._reader.rows("seals", after=first)
        return [(after, sequence, time, digest) for after, sequence, time, digest in rows if after <= last]

    def _events(self, until: int) -> Iterator[Events]:
        """Yield the events up to one. Those before a damaged one come first: another replica may lack them."""
        links = self._reader.chain(self._at)
        links.link = self._link
        while self._at < until:
            rows = self._reader.rows("linked", after=self._at, until=until, limit=_EVENTS)
            if not rows or rows[0][0] != self._at + 1:
                raise LogError(f"event log {self._reader.path}: the events after {self._at} are not there any more")
            piece, size = [], 0
            for row in rows:
                content = self._sound(row, links)
                if content is None:
                    break
                piece.append((content, row[-1]))
                size += len(content[-1] or b"")
                if size >= _BYTES:
                    break
            if not piece:
                raise DamagedHistory(self._reader.path, f"event {self._at + 1}", self._at + 1)
            self._at, self._sealed, self._link = piece[-1][0][0], set(), piece[-1][1]
            yield Events(piece)

    def _sound(self, row: Row, links: Chain) -> Content | None:
        """Return what the next event's row holds; None if a copy would refuse it."""
        try:
            content = self._reader.parsed(row[:-1])[0]
        except LogError:
            if self._is_checked:
                return None
            raise
        return content if not self._is_checked or links.follow(content, row[-1]) else None

    def _kept(self, after: int | None, sequence: int) -> Kept:
        """A checkpoint as it is in the file, or what its seal says of one that is there no more."""
        reader = self._reader
        row = next((row for row in reader.rows("checkpoints") if row[0] == sequence), None)
        if row is None:
            is_going = self._oldest <= sequence < reader.oldest()  # and the events after it, which the copy lacks, too
            if after is None or is_going or sequence not in (seals := reader.seals()):
                raise LogError(f"event log {reader.path}: checkpoint {sequence} is not there any more")
            time, digest = seals[sequence]
            return Kept(after, sequence, time, 0, digest, [])
        _, time, size, _, digest = row
        parts = [bytes(data) for _, data in reader.rows("checkpoint_parts", sequence=sequence)]
        kept = Kept(after, sequence, time, size, digest, parts, reader.link(sequence) if after is None else None)
        try:
            if self._is_checked:
                kept.check()
        except LogError:
            raise DamagedHistory(reader.path, f"checkpoint {sequence}", after or sequence) from None
        return kept


async def write_copy(log: EventLog, piece: Piece) -> list[Logged]:
    """Write a piece of another log into its copy; the events that it holds. Raises LogError for what is not the next
    piece of it, and as ``EventLog.append``."""
    match piece:
        case Events(rows):
            return await log.copy(rows)
        case Begin(policies, session):
            await log.transact(partial(_insert, "append", "policy", [(*policy, 0) for policy in policies]))
            await log.number_from(session)
        case Kept():
            await asyncio.to_thread(piece.check)
            if piece.after is None:
                await log.begin_with(piece.sequence, piece.link, partial(_write_kept, piece))
            else:
                await log.transact(partial(_write_sealed, log, piece))
    return []


async def _insert(section: str, name: str, rows: list[Row], connection: Connection) -> None:
    await connection.executemany(statements(section)[name], rows)


async def _write_kept(kept: Kept, connection: Connection) -> None:
    rows = [(kept.sequence, number, part) for number, part in enumerate(kept.parts)]
    await _insert("checkpoint", "part", rows, connection)
    complete = (kept.sequence, kept.time, kept.size, len(kept.parts), kept.digest, kept.link)
    await _insert("checkpoint", "complete", [complete], connection)


async def _write_sealed(log: EventLog, kept: Kept, connection: Connection) -> None:
    """Write a checkpoint that is not there yet, and its seal."""
    sql = statements("checkpoint")
    is_there = await begin_checkpoint(connection, kept.sequence)
    if kept.parts and not is_there:
        await _write_kept(kept, connection)
    if kept.after != log.head:
        raise LogError(f"checkpoint {kept.sequence} to be copied was kept after event {kept.after}, not {log.head}")
    await connection.execute(sql["seal"], (kept.after, kept.sequence, kept.time, kept.digest))
    log.mark(log.head, chain.seal(kept.sequence, kept.time, kept.digest))
