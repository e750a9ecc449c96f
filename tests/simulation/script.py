"""The acts of a run, as data: it can be shrunk, stored in a file, and run again."""

from __future__ import annotations

from typing import Any

import msgspec


class Act(msgspec.Struct, frozen=True):
    """The name of an act, its time (simulated seconds), and its arguments."""

    at: float
    what: str
    given: tuple[Any, ...] = ()


class Script(msgspec.Struct, frozen=True):
    """A run: ``storm`` seconds with acts, then ``calm`` seconds without faults.

    ``flags`` are of vcd run, ``conf`` is the scheduler's configuration. ``seed`` draws everything that the acts leave
    open.
    """

    seed: int
    replicas: int = 2
    flags: dict[str, list[str]] = {}
    conf: str = ""
    storm: float = 60.0
    calm: float = 120.0
    acts: tuple[Act, ...] = ()
