"""Copy a log into another file while it grows, and find where two logs diverge.

A copy has the same events with the same numbers, times and links, and the same checkpoints. A link covers all earlier
events, so two logs that share one `Position` are equal up to it. The pieces are sent between replicas and stored in
archives: their encoding must stay readable by other versions.
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
from vcd.eventlog.log_errors import DamagedLog, LogError
from vcd.eventlog.log_reader import LogReader
from vcd.eventlog.log_writer import EventLog, prepare_checkpoint
from vcd.eventlog.packing import PackError, unpack_state
from vcd.eventlog.rows import Logged, Row, state_digest
from vcd.eventlog.sql_statements import statements

_MAX_EVENTS = 500
"""Events per piece."""
_MAX_BYTES = 4 << 20
"""Bytes of payloads after which a piece ends."""


class Position(msgspec.Struct, frozen=True, array_like=True):
    """An event and its link. For the checkpoint that a log begins with, the digest of its state if it has no link."""

    sequence: int
    link: bytes


class StartPiece(msgspec.Struct, frozen=True, array_like=True, tag="begin"):
    """Digest and text of the configurations loaded before the first event, and the number of the session before it."""

    policies: list[tuple[str, str]]
    session: int = 0


class EventsPiece(msgspec.Struct, frozen=True, array_like=True, tag="events"):
    """Consecutive events with their links."""

    rows: list[tuple[Content, bytes | None]]


class CheckpointPiece(msgspec.Struct, frozen=True, array_like=True, tag="checkpoint"):
    """A checkpoint, written after event ``after`` (None: the log begins with it, and ``link`` is its event's).

    ``parts`` are the compressed state, empty if the state was removed or the receiver has it already.
    """

    after: int | None
    sequence: int
    time: int
    size: int
    digest: bytes
    parts: list[bytes]
    link: bytes | None = None

    def check(self) -> None:
        """Raise LogError unless the parts match the digest."""
        if self.after is None and not self.parts:
            raise LogError(f"checkpoint {self.sequence} of another log, its first one, lacks its state")
        try:
            state = unpack_state(self.parts, self.size) if self.parts else b""
        except PackError as error:
            raise LogError(f"checkpoint {self.sequence} of another log cannot be read: {error}") from error
        if self.parts and (len(state), state_digest(state)) != (self.size, self.digest):
            raise LogError(f"checkpoint {self.sequence} of another log is damaged")


class DamagedHistory(DamagedLog):
    """An event or a checkpoint is not as it was logged. No copy can continue from an event up to ``sequence``."""

    def __init__(self, path: Path, what: str, sequence: int) -> None:
        super().__init__(
            f"{what} is damaged: event log {path}; copies begin with a later checkpoint, run `vcd log verify` for more"
        )
        self.sequence = sequence


Piece = StartPiece | EventsPiece | CheckpointPiece
"""What is sent of a log, in order."""


def sample_positions(reader: LogReader) -> list[Position]:
    """Return positions of a log, latest first: its end, then at doubling distances back to its beginning.

    A log without a chain, which only an older vcd has written, has at most the position of its first checkpoint.
    """
    head, oldest, back, found = reader.head(), max(reader.oldest(), 1), 1, []
    places = [head] if head else []
    while places and places[-1] > oldest:
        places.append(max(head - back, oldest))
        back *= 2
    for place in places:
        mark = _fingerprint(reader, place)
        if mark is not None:
            found.append(Position(place, mark))
    return found


def _fingerprint(reader: LogReader, place: int) -> bytes | None:
    """Return the link of `Position` for an event; None if a log of an older vcd has none."""
    link = reader.link(place)
    if link is not None or place != reader.oldest():
        return link
    return next((digest for sequence, *_, digest in reader.rows("checkpoints") if sequence == place), None)


class LogSource:
    """A log that is copied while it grows; a context manager. For one thread at a time.

    Every method raises LogError if the file lacks the rows, and DamagedHistory if the rows are damaged.
    """

    def __init__(self, path: str | Path, damaged: int | None = None) -> None:
        """With ``damaged``, check all pieces as the copy does.

        The history up to event ``damaged`` (0: none) is known to be damaged, and counts as removed.
        """
        self._reader = LogReader(path)
        self._is_checked, self._damaged = damaged is not None, damaged or 0
        self._at = self._oldest = 0
        self._link: bytes | None = None
        self._copied_seals: set[int] = set()
        """Checkpoints after the current event whose seals the copy already has."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()

    def last_shared(self, known: Iterable[Position]) -> int | None:
        """Return the last of another log's positions that this log has, too; None if a copy starts from the beginning.

        Raises LogError if a copy cannot start yet.
        """
        oldest, head = max(self._reader.oldest(), self._damaged + 1), self._reader.head()
        inside = (one for one in known if oldest <= one.sequence <= head)
        last = max(
            (one.sequence for one in inside if _fingerprint(self._reader, one.sequence) == one.link), default=None
        )
        if last is None:
            self._beginning()
        return last

    def matching_prefix(self, links: Mapping[int, bytes | None]) -> list[int]:
        """Return another log's consecutive events up to the first whose link differs from this log's."""
        return list(takewhile(lambda each: links[each] is not None and links[each] == self.link(each), links))

    def positions(self) -> list[Position]:
        return sample_positions(self._reader)

    def head(self) -> Position | None:
        """Return the log's last position; None if it is empty or has no chain."""
        head = self._reader.head()
        link = self._reader.link(head) if head else None
        return None if link is None else Position(head, link)

    def has(self, position: Position) -> bool:
        """Return whether this log has a position of another log."""
        return self.last_shared([position]) is not None

    def oldest(self) -> int:
        """Return the event after which the history begins: 0, or that of the oldest checkpoint."""
        return self._reader.oldest()

    def link(self, sequence: int) -> bytes | None:
        """Return the link of an event, or of the checkpoint that the history begins with; None if it has none."""
        return self._reader.link(sequence)

    def seals_at(self, sequence: int) -> list[int]:
        """Return the checkpoints written between an event and the next one."""
        return [checkpoint for after, checkpoint, *_ in self._seals(sequence, sequence)]

    def continue_after(self, after: int, copied_seals: Sequence[int]) -> None:
        """Continue with the events after ``after``, for a copy that has the seals ``copied_seals`` after that event."""
        self._at, self._copied_seals, self._oldest = after, set(copied_seals), self._reader.oldest()
        self._link = self._reader.link(after)  # retention may remove it from the file while the copy is made

    def pieces_from_start(self) -> Iterator[Piece]:
        """Yield the pieces that an empty copy starts with."""
        yield from self.pieces_from_checkpoint(self._beginning())

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

    def pieces_from_checkpoint(self, begin: int) -> Iterator[Piece]:
        """Yield the pieces that a copy of the history after a checkpoint starts with; 0 for the whole log."""
        reader = self._reader
        ((session,),) = reader.rows("session_before", at=begin)
        first = [self._checkpoint_piece(None, begin)] if begin else []
        yield StartPiece([(digest, text) for digest, text, _ in reader.rows("policies")], session)
        yield from first
        self.continue_after(begin, [])

    def checkpoints(self, after: int) -> list[int]:
        """Return the checkpoints from event ``after`` on whose event has a link."""
        checkpoints = (info.sequence for info in self._reader.checkpoints())
        return [sequence for sequence in checkpoints if sequence >= after and self._reader.link(sequence) is not None]

    def new_pieces(self) -> Iterator[Piece]:
        """Yield the events and checkpoints that were logged after the last call."""
        head = self._reader.head()
        yield from self._pieces(head, head)

    def pieces_up_to(self, last: int) -> Iterator[Piece]:
        """Yield what was logged since the last call, up to event ``last`` and the checkpoints written before it."""
        yield from self._pieces(last, last - 1)

    def _pieces(self, last: int, last_seal: int) -> Iterator[Piece]:
        for after, checkpoint, *_ in self._seals(self._at, last_seal):
            yield from self._events(after)
            if checkpoint not in self._copied_seals:
                piece = self._checkpoint_piece(after, checkpoint)
                self._copied_seals.add(checkpoint)
                yield piece
        yield from self._events(last)

    def _seals(self, first: int, last: int) -> list[tuple[int, int, int, bytes]]:
        rows = self._reader.rows("seals", after=first)
        return [(after, sequence, time, digest) for after, sequence, time, digest in rows if after <= last]

    def _events(self, until: int) -> Iterator[EventsPiece]:
        """Yield the events up to one.

        The events before a damaged one come first, because another replica may lack them.
        """
        links = self._reader.chain(self._at)
        links.link = self._link
        while self._at < until:
            rows = self._reader.rows("linked", after=self._at, until=until, limit=_MAX_EVENTS)
            if not rows or rows[0][0] != self._at + 1:
                raise LogError(f"event log {self._reader.path}: the events after {self._at} were removed")
            piece, size = [], 0
            for row in rows:
                content = self._sound(row, links)
                if content is None:
                    break
                piece.append((content, row[-1]))
                size += len(content[-1] or b"")
                if size >= _MAX_BYTES:
                    break
            if not piece:
                raise DamagedHistory(self._reader.path, f"event {self._at + 1}", self._at + 1)
            self._at, self._copied_seals, self._link = piece[-1][0][0], set(), piece[-1][1]
            yield EventsPiece(piece)

    def _sound(self, row: Row, links: Chain) -> Content | None:
        """Return what the next event's row holds; None if a copy would refuse it."""
        try:
            content = self._reader.parse_row(row[:-1])[0]
        except LogError:
            if self._is_checked:
                return None
            raise
        return content if not self._is_checked or links.check_next(content, row[-1]) else None

    def _checkpoint_piece(self, after: int | None, sequence: int) -> CheckpointPiece:
        """Return a checkpoint with its state, or without it if retention has removed the state."""
        reader = self._reader
        row = next((row for row in reader.rows("checkpoints") if row[0] == sequence), None)
        if row is None:
            # retention that removed this checkpoint also removes events that the copy still needs
            is_expired = self._oldest <= sequence < reader.oldest()
            if after is None or is_expired or sequence not in (seals := reader.seals()):
                raise LogError(f"event log {reader.path}: checkpoint {sequence} was removed")
            time, digest = seals[sequence]
            return CheckpointPiece(after, sequence, time, 0, digest, [])
        _, time, size, _, digest = row
        parts = [bytes(data) for _, data in reader.rows("checkpoint_parts", sequence=sequence)]
        link = reader.link(sequence) if after is None else None
        piece = CheckpointPiece(after, sequence, time, size, digest, parts, link)
        try:
            if self._is_checked:
                piece.check()
        except LogError:
            raise DamagedHistory(reader.path, f"checkpoint {sequence}", after or sequence) from None
        return piece


async def write_piece(log: EventLog, piece: Piece) -> list[Logged]:
    """Write the next piece of a log into its copy; return the events in it.

    Raises LogError if it is not the next piece, and as ``EventLog.append`` does.
    """
    match piece:
        case EventsPiece(rows):
            return await log.append_copied(rows)
        case StartPiece(policies, session):
            await log.run_in_transaction(partial(_insert, "append", "policy", [(*policy, 0) for policy in policies]))
            await log.set_last_session(session)
        case CheckpointPiece():
            await asyncio.to_thread(piece.check)
            if piece.after is None:
                await log.start_from_checkpoint(piece.sequence, piece.link, partial(_write_checkpoint, piece))
            else:
                await log.run_in_transaction(partial(_write_sealed_checkpoint, log, piece))
    return []


async def _insert(section: str, name: str, rows: list[Row], connection: Connection) -> None:
    await connection.executemany(statements(section)[name], rows)


async def _write_checkpoint(piece: CheckpointPiece, connection: Connection) -> None:
    rows = [(piece.sequence, number, part) for number, part in enumerate(piece.parts)]
    await _insert("checkpoint", "part", rows, connection)
    complete = (piece.sequence, piece.time, piece.size, len(piece.parts), piece.digest, piece.link)
    await _insert("checkpoint", "complete", [complete], connection)


async def _write_sealed_checkpoint(log: EventLog, piece: CheckpointPiece, connection: Connection) -> None:
    sql = statements("checkpoint")
    is_there = await prepare_checkpoint(connection, piece.sequence)
    if piece.parts and not is_there:
        await _write_checkpoint(piece, connection)
    if piece.after != log.head:
        raise LogError(f"checkpoint {piece.sequence} to be copied follows event {piece.after}, not {log.head}")
    await connection.execute(sql["seal"], (piece.after, piece.sequence, piece.time, piece.digest))
    log.mark(log.head, chain.seal_mark(piece.sequence, piece.time, piece.digest))
