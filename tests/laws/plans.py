"""How the laws that compare with the slow reference find that a rule of it decides some of their random clusters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

import pytest

from tests.parity.cases import NOW
from tests.reference import decide
from tests.reference.clusters import RandomCase
from tests.reference.session import Session

Part = tuple[str, ...]
"""A plugin and points at which it says something."""
ENOUGH = 2


def enough(found: Iterable[object], least: int) -> bool:
    """Return whether at least so many are found; look no further than that."""
    return len(list(islice((each for each in found if each), least))) == least


def decided_otherwise(
    case_of: Callable[[int], RandomCase], patch: Callable[[pytest.MonkeyPatch], None], seeds: Iterable[int]
) -> Iterator[bool]:
    """Yield for each seed whether a patch changes what the reference decides."""
    for case in map(case_of, seeds):
        before = outcome(case)
        with pytest.MonkeyPatch.context() as monkeypatch:
            patch(monkeypatch)
            yield outcome(case) != before


def without_effect(
    case_of: Callable[[int], RandomCase], parts: Sequence[Part], seeds: Iterable[int]
) -> dict[Part, int]:
    """Return the parts that changed the outcome of fewer than two of the cases, and of how many."""
    counts = Counter[Part]()
    for seed in seeds:
        left = [part for part in parts if counts[part] < ENOUGH]
        if not left:
            break
        case = case_of(seed)
        asked = [part for part in left if f"name: {part[0]}\n" in case.conf]
        before = outcome(case) if asked else ()
        for plugin, *points in asked:
            with _without_a_say(plugin, *points):
                counts[plugin, *points] += outcome(case) != before
    return {part: counts[part] for part in parts if counts[part] < ENOUGH}


@contextmanager
def _without_a_say(plugin: str, *points: str) -> Iterator[None]:
    """Change the reference so that a plugin says nothing at some points."""
    registering = Session.register

    def register(session: Session, point: str, name: str, function: Callable[..., Any]) -> None:
        if name != plugin or point not in points:
            registering(session, point, name, function)

    Session.register = register  # type: ignore[method-assign]
    try:
        yield
    finally:
        Session.register = registering  # type: ignore[method-assign]


def outcome(case: RandomCase) -> tuple[object, ...]:
    """Return what the reference decides on a case."""
    result = decide(case.objects, case.conf, NOW)
    return result.binds, result.pipelined, result.phases, result.evictions
