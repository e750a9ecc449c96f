"""A gate's figures and conditions, on a workload small enough to compute by hand."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests import dsl
from tests.timetravel.histories import START, scheduler
from tests.timetravel.plays import CONF, Work, play
from vcd.eventlog import LogReader
from vcd.timetravel.log_times import BadTime
from vcd.timetravel.whatif import gate as gates
from vcd.timetravel.whatif.fail_conditions import ConditionError, Unit, read_condition
from vcd.timetravel.whatif.gate import (
    Figure,
    GateError,
    GateResult,
    gate,
    judgement_in_words,
    spread_in_words,
    stretch_of,
)

PACKED = CONF.replace("nodeorder", "binpack")
TIED = CONF.replace("  - name: nodeorder\n", "")
CLOSED = CONF.replace(", allocate, backfill", "")
UNITS: dict[str, Unit] = {
    "wait.p95": "seconds",
    "wait.p95{queue=research}": "seconds",
    "evictions": "count",
    "utilisation.nvidia.com/gpu": "part",
}


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two nodes of 2 cpu: apart, small-0 and small-1 keep wide waiting for 20 s; on one node, it starts at once."""
    path = tmp_path_factory.mktemp("log") / "events.sqlite"
    work = [
        Work("small-0", 0, 30),
        Work("small-1", 1, 60),
        Work("wide", 10, 20, cpu=2, queue="research"),
    ]
    nodes = [dsl.node(f"n{i}", cpu=2) for i in range(2)]
    asyncio.run(play(path, nodes, work, seconds=62, queues=[dsl.queue("research")]))
    return path


@pytest.fixture(scope="module")
def ties(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where nothing scores nodes, the seed alone says whether small goes where wide has to: it waits 20 s, or not."""
    path = tmp_path_factory.mktemp("ties") / "events.sqlite"
    work = [Work("small", 0, 30), Work("wide", 10, 20, cpu=2)]
    asyncio.run(play(path, [dsl.node("big", cpu=2), dsl.node("little", cpu=1)], work, seconds=52))
    return path


def judged(path: Path, *fail_if: str, new: str = PACKED, **options: Any) -> GateResult:
    options = {"seeds": 1, "jobs": 1, **options}
    return gate(path, ("new.conf", new), fail_if, **options)


def figures(found: GateResult) -> dict[str, Figure]:
    return {figure.name: figure for figure in found.figures}


# --- figures ----------------------------------------------------------------------------------------------------------


def test_figures_are_those_of_both_configurations(log: Path) -> None:
    found = judged(log)
    medians = {name: (figure.old.median, figure.new.median) for name, figure in figures(found).items()}
    assert medians["wait.max"] == (20, 0)
    assert medians["wait.mean"] == (6.666667, 0)
    assert medians["wait.p95{queue=research}"] == (20, 0)
    assert medians["wait.max{queue=default}"] == (0, 0)
    assert medians["started"] == (3, 3)
    assert (found.jobs, found.running, found.old, found.new) == (3, 0, "as logged", "new.conf")


def test_the_change_is_a_part_of_the_old_figure(log: Path) -> None:
    assert figures(judged(log))["wait.max"].change == -1
    turned = figures(judged(log, new=CONF, old=("packed", PACKED)))["wait.max"]
    assert (turned.change, gates.change_in_words(turned)) == (None, "+20 s")


def test_seeds_show_how_far_ties_alone_go(ties: Path) -> None:
    found = gate(ties, ("tied.conf", TIED), ["wait.max < +0%"], old=("scored.conf", CONF), seeds=5, jobs=1)
    figure = figures(found)["wait.max"]
    assert (figure.old.least, figure.old.most) == (20, 20)
    assert (figure.new.least, figure.new.most) == (0, 20)
    assert spread_in_words(figure.new, "seconds") == "0 s (0 s to 20 s)"
    (judgement,) = found.conditions
    assert judgement.failed
    assert "some seeds give the same result in both configurations" in judgement_in_words(judgement)


def test_jobs_that_never_start_wait_without_end_and_are_named(log: Path) -> None:
    found = judged(log, "wait.p95 > 30m", "started < -5% and never_started > 2", "wait.p95 < 1h", new=CLOSED)
    assert [one.failed for one in found.conditions] == [True, True, False]
    assert figures(found)["wait.p95"].new.median is None
    assert "wait.p95 18 s -> never" in judgement_in_words(found.conditions[0])
    assert found.notes[0].startswith("3 jobs that start under as logged never do under new.conf")
    assert (found.shifts[0].baseline, found.shifts[0].wait) in ((0, None), (20, None))


def test_old_is_the_configuration_that_was_in_force_last(tmp_path: Path) -> None:
    async def changed() -> None:
        async with scheduler(tmp_path / "log", CLOSED) as made:
            await made.show(dsl.node("n", cpu=2), dsl.queue("root"), dsl.queue("default"))
            await made.cycle()
            await made.load(CONF)
            await made.show(dsl.gang("a", 1, cpu=1, phase="Pending", created=1))
            await made.carry_out(await made.cycle())

    asyncio.run(changed())
    found = judged(tmp_path / "log")
    assert figures(found)["started"].old.median == 1
    assert any(note.startswith("2 configurations were in force") for note in found.notes)


# --- stretches --------------------------------------------------------------------------------------------------------


def test_what_ran_when_the_stretch_begins_is_in_no_wait(log: Path) -> None:
    found = judged(log, begin="2026-01-01T00:00:05Z")
    assert (found.jobs, found.running) == (1, 2)
    assert found.begin > START
    # where the small ones are is not for the new configuration to change any more
    assert (figures(found)["wait.mean"].old.median, figures(found)["wait.mean"].new.median) == (20, 20)


def test_a_stretch_ends_where_it_is_told_to(log: Path) -> None:
    found = judged(log, end="2026-01-01T00:00:05Z")
    assert (found.jobs, found.running) == (2, 0)


def test_since_counts_back_from_the_end_of_the_stretch(log: Path) -> None:
    with LogReader(log) as reader:
        assert stretch_of(reader, None, "00:00:30", "20s") == stretch_of(reader, "00:00:10", "00:00:30", None)
        assert stretch_of(reader, None, None, "7d") == stretch_of(reader, None, None, None)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"begin": "00:00:30", "end": "00:00:10"}, "the interval is empty"),
        ({"end": "2025-01-01T00:00:00Z"}, "no session of the log is before 2025"),
        ({"since": "1s"}, "no job came from"),
    ],
)
def test_a_stretch_that_holds_nothing_is_refused(log: Path, options: dict[str, str], words: str) -> None:
    with pytest.raises(GateError, match=words):
        judged(log, **options)


def test_what_is_no_length_of_time_is_refused(log: Path) -> None:
    with pytest.raises(BadTime, match="is not a duration"):
        judged(log, since="05:12")


def test_a_pod_that_ran_already_has_run_since_it_was_bound(log: Path) -> None:
    with LogReader(log) as reader:
        work = stretch_of(reader, "00:00:20", None, None).workload(reader)
    runs = {unit.key: unit.run for unit in work.units}
    assert (runs["default/small-0-0"], runs["default/small-1-0"]) == (30 * 10**9, 60 * 10**9)


# --- conditions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "old", "new", "holds"),
    [
        ("wait.p95 > +10%", 20, 22, False),
        ("wait.p95 >= +10%", 20, 22, True),
        ("wait.p95 >= +10%", 50, 55, True),
        ("wait.p95 > +10%", 20, 22.5, True),
        ("wait.p95 > +10%", 0, 0, False),
        ("wait.p95 > +10%", 0, 1, True),
        ("wait.p95<-5%", 20, 18.9, True),
        ("wait.p95 <= -5%", 20, 19, True),
        ("wait.p95 > 30m", 0, 1800, False),
        ("wait.p95 > 30m", 0, 1801, True),
        ("wait.p95 > 30m", 0, float("inf"), True),
        ("wait.p95 > +10%", float("inf"), float("inf"), False),
        ("wait.p95 > +10%", float("inf"), 5, False),
        ("wait.p95{queue=research} < 1h30m", 0, 5399, True),
        ('wait.p95{queue="research"} < 1h30m', 0, 5400, False),
        ("evictions > 12", 0, 13, True),
        ("utilisation.nvidia.com/gpu < 0.5", 0, 0.49, True),
        ("utilisation.nvidia.com/gpu < .5", 0, 0.5, False),
        ("evictions > +0%", 7, 8, True),
    ],
)
def test_a_clause_compares(text: str, old: float, new: float, holds: bool) -> None:
    (clause,) = read_condition(text, UNITS).clauses
    assert clause.holds(old, new) is holds


def test_clauses_that_are_combined_all_have_to_hold(log: Path) -> None:
    both, one = judged(log, "wait.max < -50% and started > 2", "wait.max < -50% and started > 3").conditions
    assert (both.failed, one.failed) == (True, False)
    assert judgement_in_words(both).startswith("FAILED wait.max < -50% and started > 2: wait.max 20 s -> 0 s (-100.0%")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("wait.p96 > 1m", "there is no metric wait.p96; did you mean wait.p95?; there are wait.p95, evictions"),
        ("nonsense > 1m", "such as wait.p95{queue=research}"),
        ("wait.p95{queue=reserch} > 1m", "no job came in queue reserch; did you mean research?"),
        ("evictions{queue=research} > 1", "evictions is not measured by queue; by queue are wait.p95"),
        ("wait.p95 > 30", "wait.p95 is a time, not '30'; write it like 90s"),
        ("wait.p95 > +5m", "changes are in percent"),
        ("evictions > 30m", "'30m' is not a number"),
        ("evictions > nan", "'nan' is not a number"),
        ("utilisation.nvidia.com/gpu < 50%", "50% has no sign: write +50% for a change, 0.5 for the part itself"),
        ("evictions > -120%", "-120% is below -100%"),
        ("evictions = 3", "is not a condition: write METRIC"),
        ("evictions >", "is not a condition: write METRIC"),
        ("", "is not a condition: write METRIC"),
        ("evictions > 3 and", "is not a condition: write METRIC"),
        ("evictions > 3 and wait.p95", "'wait.p95' in 'evictions > 3 and wait.p95' is not a condition"),
        ("evictions > 3 or wait.p95 > 1m", "is not a condition"),
    ],
)
def test_a_condition_that_cannot_be_is_told(text: str, words: str) -> None:
    with pytest.raises(ConditionError) as told:
        read_condition(text, UNITS)
    assert words in str(told.value)


def test_mistakes_are_found_before_the_first_run(log: Path) -> None:
    done: list[str] = []
    with pytest.raises(ConditionError):
        judged(log, "wait.p95 > 30", progress=done.append)
    assert done == []
