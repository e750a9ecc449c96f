"""Why one job started and another did not: one difference is planted, and it is what is told and mended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests import dsl
from tests.timetravel.histories import scheduler, write_busy_history
from tests.timetravel.plays import CONF
from tests.timetravel.questions import explain_difference
from vcd.timetravel.query_errors import NotFound
from vcd.timetravel.why.jobdifference import JobDifference

TAINTS = [{"key": "dedicated", "value": "ml", "effect": "NoSchedule"}]
TOLERATES = [{"key": "dedicated", "operator": "Exists"}]
ALIKE: dict[str, Any] = {"cpu": 2, "created": 1}


async def both(path: Path, one: dict[str, Any], other: dict[str, Any], cpu: int = 8) -> JobDifference:
    """Two jobs that come together to a node of so many cpu; ``b-`` puts the second one behind by name."""
    async with scheduler(path, CONF) as made:
        await made.show(dsl.node("n1", cpu=cpu, labels={"tier": "gold"}), dsl.node("n2", cpu=4, taints=TAINTS))
        await made.show(dsl.queue("root"), dsl.queue("default"), dsl.queue("small", capability={"cpu": "1"}))
        await made.show(dsl.priority_class("high", 10), dsl.priority_class("low", 1))
        await made.show(dsl.gang("a", 1, **(ALIKE | one)), dsl.gang("b", 1, **(ALIKE | other)))
        for _ in range(2):
            await made.carry_out(await made.cycle())
    return explain_difference(path, "b", "a")


def helped(found: JobDifference) -> dict[str, tuple[str, str]]:
    return {fact.name: (fact.one, fact.other) for fact in found.facts if fact.enough}


@pytest.mark.parametrize(
    ("one", "other", "cpu", "name", "values"),
    [
        ({}, {"queue": "small"}, 8, "queue", ("default", "small")),
        ({}, {"spec": {"nodeSelector": {"tier": "glod"}}}, 8, "nodeSelector", ("", "tier glod")),
        ({}, {"cpu": 9}, 8, "a pod requests", ("2 cpu", "9 cpu")),
        ({"cpu": 1, "spec": {"tolerations": TOLERATES}}, {"cpu": 1}, 0, "tolerations", None),
    ],
)
async def test_what_differs_and_would_be_enough_is_told_first(
    tmp_path: Path, one: dict[str, Any], other: dict[str, Any], cpu: int, name: str, values: tuple[str, str] | None
) -> None:
    found = await both(tmp_path / "log", one, other, cpu)
    assert (found.one.job, found.one.started, found.other.job, found.other.started) == (
        "default/a",
        1,
        "default/b",
        None,
    )
    assert list(helped(found)) == [name]
    assert values is None or helped(found)[name] == values
    assert found.facts[0].name == name
    assert found.sentence().startswith(f"a started at session 1, b never did: {name} is ")
    assert found.sentence().endswith("and with the same value b starts (verified)")


async def test_a_priority_puts_one_before_the_other(tmp_path: Path) -> None:
    found = await both(
        tmp_path / "log", {"group_spec": {"priorityClassName": "high"}}, {"group_spec": {"priorityClassName": "low"}}, 2
    )
    assert found.order == "a comes before b: higher priority (10 against 1), says priority"
    assert ("priority", "10", "1") in [(fact.name, fact.one, fact.other) for fact in found.facts]
    # alike they are equal, and the name decides
    assert helped(found) == {}
    assert found.sentence().startswith("a started at session 1, b never did: b waits: ")


async def test_a_minimum_that_is_too_high(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log", CONF) as made:
        await made.show(dsl.node("n1", cpu=8), dsl.queue("root"), dsl.queue("default"))
        await made.show(dsl.gang("a", 2, cpu=1), dsl.gang("b", 8, cpu=1))
        await made.carry_out(await made.cycle())
    found = explain_difference(tmp_path / "log", "a", "b")
    assert helped(found) == {"minMember": ("2", "8")}


async def test_one_job_at_two_sessions(tmp_path: Path) -> None:
    await write_busy_history(tmp_path / "log")
    found = explain_difference(tmp_path / "log", "large@6", "large@7")
    assert found.is_one_job
    assert [(fact.name, fact.one, fact.other) for fact in found.facts][:2] == [
        ("the cluster's nodes", "4", "5"),
        ("the cluster's free cpu", "26", "34"),
    ]
    head, first, second, *_ = found.lines()
    assert head.startswith("large at session 6 and at session 7: it differs in the cluster's nodes, ")
    assert (first.startswith("  session 6: it waits: "), second.startswith("  session 7: it waits: ")) == (True, True)


async def test_one_job_in_two_logs(tmp_path: Path) -> None:
    await both(tmp_path / "one", {}, {})
    await both(tmp_path / "other", {}, {"queue": "small"})
    found = explain_difference(tmp_path / "one", "b", other_path=tmp_path / "other")
    assert (found.one.file, found.other.file) == (str(tmp_path / "one"), str(tmp_path / "other"))
    assert helped(found) == {"queue": ("default", "small")}
    assert found.order == ""


async def test_what_cannot_be_compared(tmp_path: Path) -> None:
    await write_busy_history(tmp_path / "log")
    for one, other, words in (
        ("large", "large", "one job at one session"),
        ("large@6", "none", "no job default/none"),
        ("large@six", "first", "six is no number of a session"),
        ("large@2", "first", "job default/large is not there"),
    ):
        with pytest.raises(NotFound, match=words):
            explain_difference(tmp_path / "log", one, other)
