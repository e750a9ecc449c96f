"""How tests wait: for a stated condition, with one limit that only a hang reaches, never a slow machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from tests.sizes import WIDE

WAIT_LIMIT = 300.0
"""Seconds that a test waits for a condition, an answer or the end of a process. pytest's own limit is above it."""
_POLL = 0.01
"""Seconds between two looks at a condition."""


async def until(condition: Callable[[], object], what: str = "") -> None:
    """Return once the condition holds.

    Args:
        condition: Called again and again on the event loop.
        what: The condition in words, for the failure.

    Raises:
        AssertionError: The condition did not hold within `WAIT_LIMIT`.
    """
    deadline = time.monotonic() + WAIT_LIMIT
    while not condition():
        assert time.monotonic() < deadline, f"not within {WAIT_LIMIT:g} s: {what or 'the condition'}"
        await asyncio.sleep(_POLL)


def assert_prompt(seconds: float, limit: float) -> None:
    """Assert an upper bound on real time, in a wide run only: on a busy machine it says nothing about vcd."""
    assert not WIDE or seconds <= limit, f"{seconds:.3f} s, not within {limit:g} s"
