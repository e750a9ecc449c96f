"""What the laws that compare plans with the slow reference share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import yaml

from tests.parity.cases import NOW
from tests.reference import Result, decide
from tests.reference.clusters import RandomCase
from tests.reference.session import Session
from vcd.scheduling.closing import plan_of
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.decide import run
from vcd.scheduling.framework.registry import kinds_read
from vcd.state.snapshot import SnapshotMaker
from vcd.timetravel.planning import state_of


def planned_annotations(case: RandomCase, seed: int = 0) -> dict[str, dict[str, str]]:
    """By pod what its bind brings, of pods to which it brings anything."""
    policy = read_policy(case.conf)
    state = state_of(case.objects, kinds=kinds_read(policy))
    session = run(SnapshotMaker(state).snapshot(), policy, int(NOW.timestamp() * 10**9), seed)
    return {
        operation.key: dict(operation.annotations)
        for statement in plan_of(session).statements
        for operation in statement.operations
        if operation.verb == "bind" and operation.annotations
    }


def without(conf: str, plugin: str) -> str:
    """A configuration less one plugin."""
    loaded = yaml.safe_load(conf)
    for tier in loaded["tiers"]:
        tier["plugins"] = [one for one in tier["plugins"] if one["name"] != plugin]
    return str(yaml.safe_dump(loaded))


@contextmanager
def without_a_say(plugin: str, *points: str) -> Iterator[None]:
    """The reference as it would be did a plugin say nothing at some points."""
    registering = Session.register

    def register(session: Session, point: str, name: str, function: Callable[..., Any]) -> None:
        if name != plugin or point not in points:
            registering(session, point, name, function)

    Session.register = register  # type: ignore[method-assign]
    try:
        yield
    finally:
        Session.register = registering  # type: ignore[method-assign]


Part = tuple[str, ...]
"""A plugin and points at which it says something."""


def without_effect(
    case_of: Callable[[int], RandomCase], parts: Sequence[Part], seeds: Iterable[int]
) -> dict[Part, int]:
    """The parts that changed the outcome of fewer than two of the cases, and of how many."""
    counts = Counter[Part]()
    for seed in seeds:
        left = [part for part in parts if counts[part] < ENOUGH]
        if not left:
            break
        case = case_of(seed)
        asked = [part for part in left if f"name: {part[0]}\n" in case.conf]
        before = _outcome(decide(case.objects, case.conf, NOW)) if asked else ()
        for plugin, *points in asked:
            with without_a_say(plugin, *points):
                counts[plugin, *points] += _outcome(decide(case.objects, case.conf, NOW)) != before
    return {part: counts[part] for part in parts if counts[part] < ENOUGH}


ENOUGH = 2


def _outcome(result: Result) -> tuple[object, ...]:
    return result.binds, result.pipelined, result.phases, result.evictions
