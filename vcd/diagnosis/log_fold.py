"""Fold a part of a log: from the state of a checkpoint to the state after the events that follow it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from vcd.eventlog import LogError, Logged
from vcd.state.checkpoint import is_same_for_first_version
from vcd.state.cluster_state import ClusterState


def fold(before: bytes, events: Iterator[Logged]) -> bytes:
    """Return the encoded state after some events; ``before`` is the encoded state before them (empty: the initial
    state).

    Raises LogError for what this version cannot read.
    """
    try:
        state = ClusterState.load(before) if before else ClusterState()
        for logged in events:
            state.apply(logged.sequence, logged.event)
    except msgspec.MsgspecError as error:
        raise LogError(f"this version cannot fold the events from a checkpoint on: {error}") from error
    return state.dump()


def is_same(folded: bytes, stored: bytes) -> bool:
    """Return whether an encoded state equals a stored one. An older version may have encoded the same state
    differently, or without fields that it did not know. Raises LogError for what this version cannot read."""
    return fold(stored, iter(())) == folded or is_same_for_first_version(folded, stored)
