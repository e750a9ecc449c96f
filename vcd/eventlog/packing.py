"""Payloads as they lie in the file: compressed where it pays, against a dictionary that the file carries.

A packed payload is one byte and a body. Byte 0: the body is the payload itself. Byte n: the body is a zstd frame
made with dictionary n of the file's table ``dictionary``. The dictionary is a run of payloads of typical objects:
what objects have in common (field names, conditions, resource names) then costs almost nothing in each row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources

import msgspec
import zstandard

from vcd.model.codec import encode_payload, from_manifest

LEVEL = 1
SHORTEST = 64
"""Payloads of fewer bytes are kept as they are."""
_LARGEST = 1 << 28
"""Bytes of a packed payload at most, five times what a session says of 100,000 groups that wait."""
_SMALL = 1 << 24
_MOST_TIMES = 512
"""What is unpacked may have this many times the bytes that it has packed, beyond ``_SMALL``: 100,000 groups that wait
for one reason reach 192, a state 8. Otherwise a small file could fill a reader's memory."""
PART = 1 << 20
"""Bytes of state in one part of a checkpoint, before compression."""
LARGEST_STATE = 2 << 30
"""Bytes of a state at most: as many as etcd holds by default, of which a state leaves much out."""


class PackError(ValueError):
    """A packed payload cannot be unpacked."""


def typical_payloads() -> bytes:
    """The dictionary of new files: the payloads of the objects in ``typical.json``, one after the other."""
    manifests = msgspec.json.decode((resources.files("vcd.eventlog") / "typical.json").read_bytes())
    return b"".join(encode_payload(from_manifest(manifest)[1]) for manifest in manifests)


class Packer:
    """Packs with the newest dictionary of a file, unpacks with any. For use by one thread at a time."""

    def __init__(self, dictionaries: Mapping[int, bytes]) -> None:
        """``dictionaries`` by number, 1 and up, as in the file."""
        data = {n: zstandard.ZstdCompressionDict(d, zstandard.DICT_TYPE_RAWCONTENT) for n, d in dictionaries.items()}
        self._number = max(data)
        self._prefix = bytes([self._number])
        data[self._number].precompute_compress(level=LEVEL)
        self._compress = zstandard.ZstdCompressor(level=LEVEL, dict_data=data[self._number]).compress
        self._decompress = {n: zstandard.ZstdDecompressor(dict_data=d).decompress for n, d in data.items()}

    def pack(self, payload: bytes) -> bytes:
        """The payload as it lies in the file."""
        if len(payload) >= SHORTEST:
            packed = self._compress(payload)
            if len(packed) < len(payload) <= _most_bytes(len(packed), _LARGEST):
                return self._prefix + packed
        return b"\0" + payload

    def unpack(self, packed: bytes) -> bytes:
        """What ``pack`` was given. Raises PackError."""
        try:
            number = packed[0]
            if number == 0:
                return packed[1:]
            body = memoryview(packed)[1:]
            most = _most_bytes(len(body), _LARGEST)
            if zstandard.frame_content_size(body) not in range(most + 1):  # before it is unpacked, whatever it says
                raise PackError(f"packed payload of {len(body):,} bytes says no size, or more than {most:,} bytes")
            return self._decompress[number](body)
        except (IndexError, KeyError, zstandard.ZstdError) as error:
            raise PackError(f"packed payload cannot be unpacked: {error!r}") from error


def unpacked_state(parts: Sequence[bytes], size: int) -> bytes:
    """Return the state of a checkpoint of so many bytes. No part is unpacked before all their sizes are known to be
    right. Raises PackError."""
    try:
        sizes = [zstandard.frame_content_size(part) for part in parts]
        most = _most_bytes(sum(map(len, parts)), LARGEST_STATE)
        if not 0 <= size <= most or any(each not in range(PART + 1) for each in sizes) or sum(sizes) != size:
            raise PackError(f"its parts have not the {size:,} bytes that it says, or these are more than a state has")
        return b"".join(map(zstandard.decompress, parts))
    except (TypeError, zstandard.ZstdError) as error:  # what was changed may be no bytes any more
        raise PackError(str(error)) from error


def _most_bytes(packed: int, largest: int) -> int:
    """Return how many bytes may become of so many packed ones."""
    return min(largest, _SMALL + _MOST_TIMES * packed)
