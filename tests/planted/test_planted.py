"""Of causes that were planted, vcd names the right one with the right object; and what was planted is the cause."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.planted.asking import malformed, misnamed, verdict_of
from tests.planted.causes import CAUSES, planted
from tests.planted.census import room_cause
from tests.planted.plant import Plant
from tests.planted.runs import CYCLES, Served, by_hand, under_a_daemon
from tests.sizes import some
from vcd.eventlog import LogReader
from vcd.model import events as ev
from vcd.model.reasons import Reason

SEEDS = range(4)
FEWEST = 2
OF_ROOMS = (
    "unschedulable-shape", "selector", "taint", "unschedulable-node", "node-room", "fragmentation", "cluster-full",
)  # fmt: skip
FULL = ("order", "leaving")
"""Causes at which the cluster is full while the job waits; at all that are neither there is room."""
SHORT_BEFORE = ("selector", "cluster-full", "queue-capability", "volume", "gated", "leaving")
"""Codes that are also planted behind a queue that is closed for a short while before."""


def plants() -> Iterator[Any]:
    """A few plants of each code; those after the second that are of no new variant are marked ``wide``."""
    for code in CAUSES:
        variants: set[str] = set()
        for seed in SEEDS:
            plant = planted(code, seed)
            wide = seed >= FEWEST and plant.variant in variants
            variants.add(plant.variant)
            yield pytest.param(plant, id=plant.label, marks=pytest.mark.wide if wide else ())


@pytest.mark.parametrize("plant", list(plants()))
async def test_the_job_waits_for_what_was_planted_and_the_verdict_names_it(plant: Plant, tmp_path: Path) -> None:
    ran = await by_hand(plant, tmp_path / "planted")
    assert ran.placed(plant.asked) == 0
    assert [key for stage in plant.stages for key in stage.runs if not ran.placed(key)] == []
    if plant.variant != "affinity":  # by what cannot be read no node can be counted
        room = plant.code if plant.code in OF_ROOMS else "cluster-full" if plant.code in FULL else ""
        assert room_cause(plant, ran) == room
    verdict = verdict_of(tmp_path / "planted", plant)
    assert [*misnamed(plant, verdict), *malformed(plant, verdict)] == []
    mended = await by_hand(plant.fixed(), tmp_path / "mended")
    assert mended.started


@pytest.mark.parametrize("code", SHORT_BEFORE)
async def test_of_a_queue_that_was_closed_before_and_the_cause_that_held_longest_the_second_is_named(
    code: str, tmp_path: Path
) -> None:
    plant = planted(code, 3).after_closed()
    ran = await by_hand(plant, tmp_path / "planted")
    assert ran.placed(plant.asked) == 0
    with LogReader(tmp_path / "planted") as reader:
        told = [_codes(plan, plant.asked) for plan in _plans(reader)]
    assert "queue-closed" in told[0]
    assert "queue-closed" not in set().union(*told[CYCLES:])
    assert plant.stages[0].seconds < plant.stages[1].seconds / 10
    verdict = verdict_of(tmp_path / "planted", plant)
    assert [*misnamed(plant, verdict), *malformed(plant, verdict)] == []
    assert verdict.share < 1


def _plans(reader: LogReader) -> list[ev.Plan]:
    decided = [logged.event for logged in reader.find(type="session")]
    return [ev.decode_plan(session.plan) for session in decided if isinstance(session, ev.SessionDecided)]


def _codes(plan: ev.Plan, group: str) -> set[str]:
    """The codes of the reasons that a plan newly gives a group."""
    waits = ev.waits_by_group(plan.waiting).get(group, ())
    return {wait.reason.code for wait in waits if isinstance(wait.reason, Reason)}


def test_a_seed_gives_the_same_cluster_again() -> None:
    for code in CAUSES:
        assert planted(code, 7) == planted(code, 7)
        assert planted(code, 7) != planted(code, 8)


NOT_TOLD = ("pods-missing", "queue-missing")
"""Codes at which no session looks at the group: it gets no condition, and has no pods that are counted."""
UNDER_A_DAEMON = (
    "selector", "cluster-full", "queue-capability", "card-quota", "volume", "pods-missing", "gated", "leaving",
)  # fmt: skip
"""Codes of most kinds of causes (the order takes half a minute), and one that is not told; a wide run plants all of
them under a daemon."""
CLOCK = re.compile(r"\S+ waits [^:]+: ")
KEY = re.compile(r" \([^()]*\)(?=( and \d+ other jobs?)? first)|; \d+ later jobs? overtook it$")
"""What put another job first, and how many others overtook it: only the log has the sessions in which they did."""


@pytest.mark.parametrize("code", some(len(UNDER_A_DAEMON), dict.fromkeys((*UNDER_A_DAEMON, *CAUSES))))
async def test_under_a_daemon_the_job_waits_and_log_condition_and_metric_name_the_cause(
    code: str, tmp_path: Path
) -> None:
    plant = planted(code, 1)
    left = await under_a_daemon(plant, tmp_path)
    _assert_waits(plant, left)
    verdict = verdict_of(left.log, plant)
    assert [*misnamed(plant, verdict), *malformed(plant, verdict)] == []
    if code in NOT_TOLD:
        assert left.conditions == {}
    else:
        _assert_told(plant, left, verdict.text)


def _assert_waits(plant: Plant, left: Served) -> None:
    with LogReader(left.log) as reader:
        plans = _plans(reader)
    groups = {
        statement.group
        for plan in plans
        for statement in plan.statements
        if any(operation.verb == "bind" for operation in statement.operations)
    }
    assert plans
    assert plant.asked not in groups
    assert groups.issuperset(key for stage in plant.stages for key in stage.runs)


def _assert_told(plant: Plant, left: Served, verdict: str) -> None:
    text = KEY.sub("", CLOCK.sub("", verdict, count=1))
    told = left.conditions["Unschedulable"]["message"].partition(" tasks in gang unschedulable: ")[2]
    assert told == text or told.startswith(f"{text}; "), told  # what is held for other jobs may follow
    for name in ("vcd_verdict_pods", "vcd_lost_pod_seconds_total"):
        series = {one: value for one, value in left.metrics.items() if one.startswith(f"{name}{{") and value}
        assert any(f'cause="{plant.code}"' in one for one in series), series


def test_another_cause_another_object_and_a_long_text_are_found() -> None:
    plant = planted("queue-closed", 0)
    (queue,) = plant.subject["queue"]
    right = Said("queue-closed", {"queue": queue}, "queue is not open", 60.0, 1.0)
    assert [*misnamed(plant, right), *malformed(plant, right)] == []
    for wrong in ({"cause": "order"}, {"subject": {"queue": "web"}}, {"subject": {}}):
        assert len(list(misnamed(plant, right._replace(**wrong)))) == 1
    for wrong in ({"text": "x" * 201}, {"share": 1.5}, {"waited": 0.0}, {"amounts": {"cpu": {"asks": 0.5}}}):
        assert len(list(malformed(plant, right._replace(**wrong)))) == 1


class Said(NamedTuple):
    """What of a verdict is looked at."""

    cause: str
    subject: dict[str, str]
    text: str
    waited: float
    share: float
    amounts: Mapping[str, Mapping[str, float]] = {}
