"""The format of a segment: a zstd frame of length-prefixed messages: a header, pieces of the log, and an end.

The pieces are those that replicas exchange (`vcd.eventlog.replication`): row contents, not file pages, so that versions
with another schema can read them.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from hashlib import blake2b

import msgspec
import zstandard

from vcd.eventlog import chain
from vcd.eventlog.archive.segment_names import ArchiveSegment
from vcd.eventlog.archive.stores import ArchiveError
from vcd.eventlog.chain import Chain
from vcd.eventlog.log_errors import LogError
from vcd.eventlog.replication import CheckpointPiece, EventsPiece, Piece, Position, StartPiece
from vcd.eventlog.rows import to_logged
from vcd.model.events import SessionDecided
from vcd.model.wording import SECOND

FORMAT = 1
"""Version of the format. A higher number was written by a newer vcd."""
MAX_MESSAGE = 1 << 30
"""Bytes per message."""


class Header(msgspec.Struct, frozen=True, array_like=True, tag="segment"):
    """The start of a segment: format, writer and its version, and what precedes the segment."""

    format: int
    version: str
    identity: str
    epoch: int
    after: int
    before: bytes | None


class End(msgspec.Struct, frozen=True, array_like=True, tag="end"):
    """The end of a segment."""

    last: Position


_encode = msgspec.msgpack.Encoder().encode
_decoder: msgspec.msgpack.Decoder[Header | Piece | End] = msgspec.msgpack.Decoder(Header | Piece | End)


class SegmentWriter:
    """Build a segment in memory."""

    def __init__(self, header: Header, session: int) -> None:
        """Start a segment; ``session`` is the number of the last session before it."""
        self._header = header
        self._buffer = io.BytesIO()
        self._stream = zstandard.ZstdCompressor(level=3).stream_writer(self._buffer, closefd=False)
        self._base: CheckpointPiece | None = None
        self._time = 0
        self.session = session
        self.end: Position | None = None
        self._write_message(header)

    def __len__(self) -> int:
        """Return the number of bytes compressed so far."""
        return self._buffer.tell()

    def add(self, piece: Piece) -> None:
        if isinstance(piece, CheckpointPiece):
            if piece.after is None:
                self._base = piece
            elif self._base is not None and piece.sequence == self._base.sequence:
                piece = msgspec.structs.replace(piece, parts=[])  # the segment already contains its state
        elif isinstance(piece, StartPiece):
            self.session = piece.session
        else:
            (*_, (content, link)) = piece.rows
            self.end, self._time = None if link is None else Position(content[0], link), content[1]
            self.session = max([self.session, *_sessions(piece)])
        self._write_message(piece)

    def finish(self) -> tuple[ArchiveSegment, bytes]:
        """Return the segment and its bytes. The last event must have a link."""
        assert self.end is not None
        self._write_message(End(self.end))
        self._stream.flush(zstandard.FLUSH_FRAME)
        data, header = self._buffer.getvalue(), self._header
        seconds = -(-self._time // SECOND)
        segment = ArchiveSegment(
            header.after, self.end.sequence, header.epoch, self.session, seconds, header.before, self.end.link,
            _digest(data), self._base is not None or header.after == 0,
        )  # fmt: skip
        return segment, data

    def _write_message(self, message: Header | Piece | End) -> None:
        data = _encode(message)
        self._stream.write(len(data).to_bytes(4, "big") + data)


class DamagedSegment(ArchiveError):
    """A segment differs from what was shipped."""

    def __init__(self, segment: ArchiveSegment, why: str) -> None:
        super().__init__(f"{segment} cannot be used: {why} (segment {segment.name})")
        self.segment = segment


def read_pieces(segment: ArchiveSegment, data: bytes) -> Iterator[Piece]:
    """Yield the pieces of a segment, each checked against the chain.

    Raises DamagedSegment at the first piece that was changed, and LogError for a newer format.
    """
    try:
        if _digest(data) != segment.digest:
            raise ValueError("its bytes do not match the digest in its name")
        yield from _check_links(segment, _check_frame(segment, _messages(data)))
    except (zstandard.ZstdError, msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise DamagedSegment(segment, str(error)) from error


def _check_links(segment: ArchiveSegment, pieces: Iterator[Piece]) -> Iterator[Piece]:
    """Yield the pieces as long as their events are consecutive and match their links."""
    links, at, states = Chain(segment.before), segment.after, dict[int, bytes]()
    for piece in pieces:
        if isinstance(piece, EventsPiece):
            for content, link in piece.rows:
                at += 1
                if content[0] != at or not links.check_next(content, link):
                    raise ValueError(f"event {at} was changed or moved: its link does not match")
        elif isinstance(piece, CheckpointPiece):
            if piece.after not in (None, at) or states.setdefault(piece.sequence, piece.digest) != piece.digest:
                raise ValueError(f"checkpoint {piece.sequence} was changed: its digest does not match")
            try:
                piece.check()
            except LogError as error:
                raise ValueError(str(error)) from error
            if piece.after is not None:
                links.mark(at, chain.seal_mark(piece.sequence, piece.time, piece.digest))
        yield piece
    if (at, links.link) != (segment.last, segment.link):
        raise ValueError(f"its last event ({at}), or the hash of that event, is not the one in its name")


def _check_frame(segment: ArchiveSegment, messages: Iterator[Header | Piece | End]) -> Iterator[Piece]:
    """Yield the pieces between header and end, which must match the segment's name."""
    header, end = next(messages, None), None
    if not isinstance(header, Header):
        raise ValueError("it has no header")
    if (header.after, header.before, header.epoch) != (segment.after, segment.before, segment.epoch):
        raise ValueError("its header does not match its name")
    for message in messages:
        if isinstance(message, Header) or end is not None:
            raise ValueError("it continues after its end")
        if isinstance(message, End):
            end = message.last
        else:
            yield message
    if end != segment.end:
        raise ValueError("its end does not match its name")


def _messages(data: bytes) -> Iterator[Header | Piece | End]:
    with zstandard.ZstdDecompressor().stream_reader(data) as stream:
        while size := stream.read(4):
            length = int.from_bytes(size, "big")
            message = stream.read(min(length, MAX_MESSAGE))
            if len(size) < 4 or len(message) < length:
                raise ValueError("it is truncated")
            decoded = _decoder.decode(message)
            if isinstance(decoded, Header) and decoded.format > FORMAT:
                raise LogError(f"a newer vcd ({decoded.version}) wrote the archive; use that version")
            yield decoded


def _sessions(events: EventsPiece) -> Iterator[int]:
    for content, _ in events.rows:
        if content[2] == "session" and isinstance(event := to_logged(content).event, SessionDecided):
            yield event.session


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()
