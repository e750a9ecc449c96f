"""The acts of a run as data, which can be shrunk, stored in a file, and run again."""

from __future__ import annotations

from typing import Any

import msgspec


class Act(msgspec.Struct, frozen=True):
    """Something that is done at a time (simulated seconds): the name of an act, and what it is given."""

    at: float
    what: str
    given: tuple[Any, ...] = ()


class Script(msgspec.Struct, frozen=True):
    """A run. ``storm`` seconds in which the acts happen, then ``calm`` ones in which nothing goes wrong.

    ``flags`` are of vcd run, ``conf`` is the scheduler's configuration. ``seed`` draws all that the acts leave open.
    """

    seed: int
    replicas: int = 2
    flags: dict[str, list[str]] = {}
    conf: str = ""
    storm: float = 60.0
    calm: float = 120.0
    acts: tuple[Act, ...] = ()
