"""Packed payloads: unpacking gives back what was packed, anything else is an error."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcd.eventlog.packing import Packer, PackError, build_dictionary

OLD = Packer({1: b"an older dictionary " * 20})
BOTH = Packer({1: b"an older dictionary " * 20, 2: build_dictionary()})


@given(st.binary(max_size=300), st.integers(1, 40))
def test_unpacking_gives_back_what_was_packed(piece: bytes, times: int) -> None:
    payload = piece * times
    assert BOTH.unpack(BOTH.pack(payload)) == payload


@given(st.binary(min_size=1, max_size=50), st.integers(1, 40))
def test_payloads_of_an_older_dictionary_stay_readable(piece: bytes, times: int) -> None:
    payload = piece * times
    assert BOTH.unpack(OLD.pack(payload)) == payload


@given(st.binary(max_size=300))
def test_packing_adds_one_byte_at_most(payload: bytes) -> None:
    assert len(BOTH.pack(payload)) <= len(payload) + 1


@pytest.mark.parametrize("packed", [b"", b"\x01\xff", b"\x03abc", OLD.pack(b"long enough " * 30)[:-1]])
def test_what_was_not_packed_is_an_error(packed: bytes) -> None:
    with pytest.raises(PackError):
        BOTH.unpack(packed)
