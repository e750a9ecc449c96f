"""A segment's bytes: a zstd frame of messages, each after its length: a header, pieces of the log, and the end.

The pieces are those that replicas send each other (``vcd.eventlog.copying``), content of rows and no file: who restores
packs and indexes for itself, so that a segment is read by versions of another schema, too.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from hashlib import blake2b

import msgspec
import zstandard

from vcd.eventlog import chain
from vcd.eventlog.archive.names import ArchiveSegment
from vcd.eventlog.archive.stores import ArchiveError
from vcd.eventlog.chain import Chain
from vcd.eventlog.copying import Begin, Events, Kept, Piece, Position
from vcd.eventlog.errors import LogError
from vcd.eventlog.rows import logged_of
from vcd.model.events import SessionDecided

FORMAT = 1
"""Of what a segment is made of; one of a higher number is a newer vcd's."""
LARGEST = 1 << 30
"""Bytes of one message at most."""


class Header(msgspec.Struct, frozen=True, array_like=True, tag="segment"):
    """What a segment begins with: the form, who wrote it with which version, and what is before it."""

    format: int
    version: str
    identity: str
    epoch: int
    after: int
    before: bytes | None


class End(msgspec.Struct, frozen=True, array_like=True, tag="end"):
    """What a segment ends with: its last event."""

    last: Position


_encode = msgspec.msgpack.Encoder().encode
_decoder: msgspec.msgpack.Decoder[Header | Begin | Events | Kept | End] = msgspec.msgpack.Decoder(
    Header | Begin | Events | Kept | End
)


class SegmentWriter:
    """A segment that grows, in memory."""

    def __init__(self, header: Header, session: int) -> None:
        """``session``: the last one's number before the segment."""
        self._header = header
        self._buffer = io.BytesIO()
        self._stream = zstandard.ZstdCompressor(level=3).stream_writer(self._buffer, closefd=False)
        self._base: Kept | None = None
        self._time = 0
        self.session = session
        self.end: Position | None = None
        """Its last event so far."""
        self._say(header)

    def __len__(self) -> int:
        """Its bytes, as far as they are compressed."""
        return self._buffer.tell()

    def add(self, piece: Piece) -> None:
        """Write a piece of the log."""
        if isinstance(piece, Kept):
            if piece.after is None:
                self._base = piece
            elif self._base is not None and piece.sequence == self._base.sequence:
                piece = msgspec.structs.replace(piece, parts=[])  # its state is there already
        elif isinstance(piece, Begin):
            self.session = piece.session
        else:
            (*_, (content, link)) = piece.rows
            self.end, self._time = None if link is None else Position(content[0], link), content[1]
            self.session = max([self.session, *_sessions(piece)])
        self._say(piece)

    def done(self) -> tuple[ArchiveSegment, bytes]:
        """What its name says, and its bytes. Its last event has a link."""
        assert self.end is not None
        self._say(End(self.end))
        self._stream.flush(zstandard.FLUSH_FRAME)
        data, header = self._buffer.getvalue(), self._header
        seconds = -(-self._time // 1_000_000_000)
        segment = ArchiveSegment(
            header.after, self.end.sequence, header.epoch, self.session, seconds, header.before, self.end.link,
            _digest(data), self._base is not None or header.after == 0,
        )  # fmt: skip
        return segment, data

    def _say(self, message: Header | Piece | End) -> None:
        data = _encode(message)
        self._stream.write(len(data).to_bytes(4, "big") + data)


class Damaged(ArchiveError):
    """A segment is not what was shipped; the message names it."""

    def __init__(self, segment: ArchiveSegment, why: str) -> None:
        super().__init__(f"{segment} cannot be used: {why} (segment {segment.name})")
        self.segment = segment


def pieces(segment: ArchiveSegment, data: bytes) -> Iterator[Piece]:
    """The pieces of a segment, each event and each state held against the chain; up to the first that is not as it was
    logged. Raises Damaged, and LogError for a newer vcd's."""
    try:
        if _digest(data) != segment.digest:
            raise ValueError("its bytes are not those that its name says")
        yield from _linked(segment, _told(segment, _messages(data)))
    except (zstandard.ZstdError, msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise Damaged(segment, str(error)) from error


def _linked(segment: ArchiveSegment, told: Iterator[Piece]) -> Iterator[Piece]:
    """A segment's pieces as far as its events follow each other, from the link before it to that of its last event."""
    links, at, states = Chain(segment.before), segment.after, dict[int, bytes]()
    for piece in told:
        if isinstance(piece, Events):
            for content, link in piece.rows:
                at += 1
                if content[0] != at or not links.follow(content, link):
                    raise ValueError(f"event {at} is not as it was logged, or not in its place")
        elif isinstance(piece, Kept):
            if piece.after not in (None, at) or states.setdefault(piece.sequence, piece.digest) != piece.digest:
                raise ValueError(f"checkpoint {piece.sequence} is not the one that was kept")
            try:
                piece.check()
            except LogError as error:
                raise ValueError(str(error)) from error
            if piece.after is not None:
                links.mark(at, chain.seal(piece.sequence, piece.time, piece.digest))
        yield piece
    if (at, links.link) != (segment.last, segment.link):
        raise ValueError(f"it ends with event {at}, or with another link")


def _told(segment: ArchiveSegment, messages: Iterator[Header | Piece | End]) -> Iterator[Piece]:
    header, end = next(messages, None), None
    if not isinstance(header, Header):
        raise ValueError("it has no header")
    if (header.after, header.before, header.epoch) != (segment.after, segment.before, segment.epoch):
        raise ValueError("its header says other events than its name")
    for message in messages:
        if isinstance(message, Header) or end is not None:
            raise ValueError("it goes on after its end")
        if isinstance(message, End):
            end = message.last
        else:
            yield message
    if end != segment.end:
        raise ValueError("it ends with another event than its name says")


def _messages(data: bytes) -> Iterator[Header | Piece | End]:
    with zstandard.ZstdDecompressor().stream_reader(data) as stream:
        while size := stream.read(4):
            length = int.from_bytes(size, "big")
            message = stream.read(min(length, LARGEST))
            if len(size) < 4 or len(message) < length:
                raise ValueError("it breaks off")
            told = _decoder.decode(message)
            if isinstance(told, Header) and told.format > FORMAT:
                raise LogError(f"a newer vcd ({told.version}) wrote the archive; use that version")
            yield told


def _sessions(events: Events) -> Iterator[int]:
    for content, _ in events.rows:
        if content[2] == "session" and isinstance(event := logged_of(content).event, SessionDecided):
            yield event.session


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()
