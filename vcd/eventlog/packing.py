"""Compress payloads and states in the file.

A packed payload is one byte and a body. For byte 0, the body is the payload. For byte n, the body is a zstd frame made
with dictionary n of the table ``dictionary``. The dictionary consists of payloads of typical objects, so that field
names and other common text cost almost nothing per row. Unpacked sizes are checked before unpacking: a log can come
from anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources

import msgspec
import zstandard

from vcd.model.projection_codec import encode_payload, from_manifest

LEVEL = 1
MIN_PACKED = 64
"""Shorter payloads are stored uncompressed."""
_MAX_PAYLOAD = 1 << 28
"""Bytes of an unpacked payload: five times a session that lists 100,000 pending groups."""
_FREE_BYTES = 1 << 24
_MAX_RATIO = 512
"""Maximum ratio of unpacked to packed bytes, beyond ``_FREE_BYTES``, so that a small file cannot fill a reader's
memory. 100,000 groups pending for one reason reach 192, a state 8."""
PART = 1 << 20
"""Bytes of state per part of a checkpoint, before compression."""
MAX_STATE = 2 << 30
"""The maximum bytes of a state: etcd's default limit. A state has only part of the objects in etcd."""


class PackError(ValueError):
    """A packed payload cannot be unpacked."""


def build_dictionary() -> bytes:
    """Return the dictionary for new files: the payloads of the objects in ``typical.json``."""
    manifests = msgspec.json.decode((resources.files("vcd.eventlog") / "typical.json").read_bytes())
    return b"".join(encode_payload(from_manifest(manifest)[1]) for manifest in manifests)


class Packer:
    """Pack with a file's newest dictionary, unpack with any. For one thread at a time."""

    def __init__(self, dictionaries: Mapping[int, bytes]) -> None:
        """Create a packer with ``dictionaries`` by number, from 1."""
        data = {n: zstandard.ZstdCompressionDict(d, zstandard.DICT_TYPE_RAWCONTENT) for n, d in dictionaries.items()}
        self._number = max(data)
        self._prefix = bytes([self._number])
        data[self._number].precompute_compress(level=LEVEL)
        self._compress = zstandard.ZstdCompressor(level=LEVEL, dict_data=data[self._number]).compress
        self._decompress = {n: zstandard.ZstdDecompressor(dict_data=d).decompress for n, d in data.items()}

    def pack(self, payload: bytes) -> bytes:
        """Return the payload as stored in the file."""
        if len(payload) >= MIN_PACKED:
            packed = self._compress(payload)
            if len(packed) < len(payload) <= _max_unpacked(len(packed), _MAX_PAYLOAD):
                return self._prefix + packed
        return b"\0" + payload

    def unpack(self, packed: bytes) -> bytes:
        """Return the payload of stored bytes. Raises PackError."""
        try:
            number = packed[0]
            if number == 0:
                return packed[1:]
            body = memoryview(packed)[1:]
            most = _max_unpacked(len(body), _MAX_PAYLOAD)
            if zstandard.frame_content_size(body) not in range(most + 1):
                raise PackError(f"packed payload of {len(body):,} bytes has no size, or more than {most:,} bytes")
            return self._decompress[number](body)
        except (IndexError, KeyError, zstandard.ZstdError) as error:
            raise PackError(f"packed payload cannot be unpacked: {error!r}") from error


def unpack_state(parts: Sequence[bytes], size: int) -> bytes:
    """Return the state of a checkpoint of ``size`` bytes, after checking all parts' sizes. Raises PackError."""
    try:
        sizes = [zstandard.frame_content_size(part) for part in parts]
        most = _max_unpacked(sum(map(len, parts)), MAX_STATE)
        if not 0 <= size <= most or any(each not in range(PART + 1) for each in sizes) or sum(sizes) != size:
            raise PackError(f"its parts do not add up to {size:,} bytes, or this exceeds the limit")
        return b"".join(map(zstandard.decompress, parts))
    except (TypeError, zstandard.ZstdError) as error:  # TypeError: SQLite returns another type for a damaged value
        raise PackError(str(error)) from error


def _max_unpacked(packed: int, largest: int) -> int:
    return min(largest, _FREE_BYTES + _MAX_RATIO * packed)
