"""Forecasts: what will come is drawn from what came, intervals hold what they say, and what waits has an ETA."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, pairwise, takewhile
from pathlib import Path

import pytest

from tests import dsl
from tests.dsl import Manifest
from tests.eventlog.samples import SECOND
from tests.timetravel.histories import START, scheduler
from tests.timetravel.plays import CONF, Work, play
from tests.timetravel.test_submission_forecast import PLAIN, after, begin, learn, one_node, only
from vcd.eventlog import LogError, LogReader
from vcd.model.objects import PodGroup
from vcd.model.projection_codec import from_manifest
from vcd.text.time_formats import clock
from vcd.timetravel.whatif import sampledruns
from vcd.timetravel.whatif.arrivals import Arrivals, ArrivedJob
from vcd.timetravel.whatif.expectedpods import ExpectedPods
from vcd.timetravel.whatif.forecasts import Span, span_of
from vcd.timetravel.whatif.logged_workload import GroupLife
from vcd.timetravel.whatif.present_workload import present
from vcd.timetravel.whatif.sampledruns import ContinuedRun
from vcd.timetravel.whatif.simulated_cluster import SimulatedCluster
from vcd.timetravel.whatif.submission_forecast import eta, eta_in_words, etas, submit
from vcd.timetravel.whatif.workloadreader import workload_of

MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
ORDERED = CONF.replace("  - name: proportion\n", "")


def arrivals(path: Path) -> Arrivals:
    with LogReader(path) as reader:
        past = workload_of(reader)
        return Arrivals.of(past, ExpectedPods(past, present(reader, None).state))


async def busy(path: Path) -> None:
    """A job of 8 s every 5 s on one node for two of them: one or two always run, and no more ever wait."""
    work = [Work(f"short-{n}", 5 * n + 1, 8) for n in range(24)]
    await play(path, [dsl.node("n", cpu=2)], work, seconds=121, conf=ORDERED)


# --- what will come ---------------------------------------------------------------------------------------------------


async def test_what_comes_is_a_copy_of_what_came_under_a_name_of_its_own(tmp_path: Path) -> None:
    await busy(tmp_path / "log")
    found = arrivals(tmp_path / "log")
    assert (len(found.came), found.span) == (24, 120 * SECOND)
    drawn = list(islice(found.drawn(START, START + HOUR, lambda _: 0.0), 3))
    assert [one.life.key for one in drawn] == [f"default/short-{n}~{n + 1}" for n in range(3)]
    assert [(one.life.arrived - START) / SECOND for one in drawn] == [1, 6, 11]
    (unit,) = drawn[0].units
    assert (unit.key, unit.group, unit.node, unit.bound) == ("default/short-0-0~1", "default/short-0~1", "", None)
    assert (unit.pod.metadata.name, drawn[0].of, drawn[0].lengths) == (
        "short-0-0~1",
        "default/short-0",
        {unit.key: 8 * SECOND},
    )


async def test_as_many_come_in_a_time_as_came(tmp_path: Path) -> None:
    await busy(tmp_path / "log")
    stretches = iter([n * 0.37 % 1 for n in range(1000)])
    drawn = arrivals(tmp_path / "log").drawn(START, START + HOUR, lambda _: next(stretches))
    hour = list(takewhile(lambda one: one.life.arrived < START + HOUR, drawn))
    assert 690 <= len(hour) <= 750  # 720 of one every 5 s
    times = [one.life.arrived for one in hour]
    assert times == sorted(times)


async def test_a_run_draws_from_as_many_stretches_as_the_last_while_has(tmp_path: Path) -> None:
    await busy(tmp_path / "log")
    asked: list[str] = []

    def uniform(name: str) -> float:
        asked.append(name)
        return len(asked) * 0.37 % 1

    assert list(arrivals(tmp_path / "log").drawn(START, START + HOUR, uniform))
    turns = {name for name in asked if name.startswith("turn")}
    assert len(turns) == 241  # of 15 s each
    assert set(asked) - turns == {f"stretch {number}" for number in range(8)}


async def test_stretches_in_which_nothing_came_come_to_an_end(tmp_path: Path) -> None:
    life = [GroupLife(f"default/{name}", a_group(name), 10 * SECOND, waited=True) for name in "abc"]
    found = Arrivals([ArrivedJob(one, []) for one in life], 0, 80 * SECOND)
    assert list(found.drawn(START, START + HOUR, lambda _: 0.5)) == []


async def test_what_still_runs_comes_again_to_run_at_least_as_long(tmp_path: Path) -> None:
    work = [*(Work(f"short-{n}", 5 * n + 1, 8) for n in range(3)), Work("long", 20, 500)]
    await play(tmp_path / "log", [dsl.node("n", cpu=4)], work, seconds=121, conf=ORDERED)
    found = arrivals(tmp_path / "log")
    drawn = list(takewhile(lambda one: one.life.arrived < START + 120 * SECOND, _in_order(found)))
    (long,) = (one for one in drawn if one.of == "default/long")
    assert (long.lengths, list(long.seen.values())) == ({}, [100 * SECOND])
    assert all(one.lengths and not one.seen for one in drawn if one is not long)


def _in_order(found: Arrivals) -> Iterator[ArrivedJob]:
    """What came comes again as it did."""
    return found.drawn(START, START + HOUR, lambda name: int(name.split()[1]) % 8 / 8 + 0.001)


def test_of_too_few_nothing_is_said() -> None:
    life = GroupLife("default/a", a_group("a"), 10, waited=True)
    assert list(Arrivals([ArrivedJob(life, [])] * 2, 0, 100).drawn(0, 1000, lambda _: 0.0)) == []


async def test_who_wants_the_whole_node_waits_for_a_gap_in_what_comes(tmp_path: Path) -> None:
    # what runs has ended in 8 s at most: it is what comes that it waits for
    await busy(tmp_path / "log")
    found = submit(tmp_path / "log", dsl.flat([dsl.gang("large", 1, cpu=2)]), samples=4)
    starts = only(found).starts
    assert starts is not None
    assert starts.high is None or starts.high > found.now + 8 * SECOND
    assert "jobs continue to arrive like the last 24, which came in 2 min" in found.caveats
    assert list(found.lines())[1].startswith("provided that jobs continue to arrive")


# --- what the bounds say ----------------------------------------------------------------------------------------------


def test_bounds_hold_four_in_five_of_what_may_come() -> None:
    # of 19 runs the k-th stands for k/20
    assert span_of(range(1, 20)) == Span(10, 2, 18, 19)
    assert span_of([5]) == Span(5, 5, 5, 1)


def test_runs_in_which_it_does_not_start_are_later_than_all_others() -> None:
    # the fifth that an interval leaves out is below it then
    assert span_of([*range(1, 13), *[None] * 7]) == Span(10, 4, None, 12)
    assert span_of([*range(1, 5), *[None] * 15]) == Span(None, 4, None, 4)
    assert span_of([None, None]) is None


def test_what_starts_in_hardly_any_run_starts_after_all_of_them() -> None:
    assert span_of([None, None], until=70) == Span(None, 70, None, 0)
    assert span_of([5, *[None] * 18], until=70) == Span(None, 70, None, 1)
    assert span_of([90, *[None] * 18], until=70) == Span(None, 90, None, 1)


def test_what_may_have_been_earlier_is_in_the_lower_bound() -> None:
    assert span_of(range(11, 30), [5] * 19) == Span(20, 7, 28, 19)


# --- the rest ---------------------------------------------------------------------------------------------------------


async def test_how_long_it_runs_may_be_said(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log", PLAIN) as made:
        await one_node(made)
        await learn(made, 10, 10, 10, 10, 10)
    found = submit(tmp_path / "log", [dsl.pod("work-9", cpu=1)], samples=2, runs_for=3 * MINUTE)
    assert after(found, only(found).ends) == (3, 3, 3, 2)
    assert "  each is taken to run 3 min" in list(found.lines())


async def test_where_all_goes_at_once_nothing_is_run_unless_asked(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log", PLAIN) as made:
        await one_node(made)
        await learn(made, 10)
    told: list[object] = []
    found = submit(tmp_path / "log", [dsl.pod("new", cpu=1)], first=told.append)
    assert (found.samples, told, next(found.lines())) == (0, [], "job default/new starts at once: new to n")


async def test_what_goes_at_once_is_told_before_the_runs(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log", PLAIN) as made:
        await one_node(made)
        await learn(made, 10)
    told: list[str] = []
    submit(
        tmp_path / "log",
        dsl.flat([dsl.gang("new", 1, cpu=9)]),
        samples=1,
        first=lambda found: told.extend(found.lines()),
    )
    (line,) = told
    assert line.startswith("job default/new: no pod can be placed at once: it waits: new-0: a pod of")


async def test_what_waits_has_an_eta(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log", PLAIN) as made:
        await one_node(made)
        await learn(made, 10, 10, 10, 10, 10)  # sessions 1 and 2
        await begin(made, dsl.gang("work-8", 1, cpu=8), minutes=4)  # sessions 3 and 4
        await begin(made, dsl.gang("waits", 1, cpu=8), minutes=2)  # 5 and 6
    found = eta(tmp_path / "log", "default/waits", samples=3)
    assert (after(found, only(found).starts), found.session, found.compared) == ((4, 4, 4, 3), 6, 0)
    assert eta_in_words(found)[0] == "it starts in 4 min, as far as can be told"
    assert after(earlier := eta(tmp_path / "log", "default/waits", session=5, samples=1), only(earlier).starts)[0] == 6
    with pytest.raises(LogError, match="there is no group default/none after session 6"):
        eta(tmp_path / "log", "default/none")


async def test_what_does_not_wait_is_told_when_it_started(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log", PLAIN) as made:
        await one_node(made)
        await learn(made, 10)
        await begin(made, dsl.gang("runs", 2, members=2, cpu=1), minutes=3)
    found = eta(tmp_path / "log", "default/runs")
    started = found.now - 3 * MINUTE
    assert (only(found).starts, found.samples) == (Span(started, started, started, 0), 0)
    assert eta_in_words(found) == [f"it does not wait: it started {clock(started)}"]
    ended = eta(tmp_path / "log", "default/work-0")  # gone, and still known
    assert only(ended).starts == Span(START, START, START, 0)


async def test_what_waits_is_forecast_together_as_one_by_one(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log", PLAIN) as made:
        await one_node(made)
        await learn(made, 10, 10, 10, 20, 20, 20)
        await begin(made, dsl.gang("work-8", 1, cpu=8), minutes=4)
        await begin(made, dsl.gang("waits-1", 1, cpu=8), dsl.gang("waits-2", 1, cpu=4, created=1))
    path = tmp_path / "log"
    together = etas(path, samples=2)
    assert [job.key for job in together.jobs] == ["default/waits-1", "default/waits-2"]
    for job in together.jobs:
        assert job.starts == only(eta(path, job.key, samples=2)).starts
    assert only(etas(path, ["default/waits-2", "default/work-8"], samples=2)).key == "default/waits-2"
    before = etas(path, session=2, samples=2)
    assert (before.jobs, before.session) == ([], 2)


async def test_a_run_decides_once_in_a_period(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with scheduler(tmp_path / "log", PLAIN) as made:
        await one_node(made)
        await learn(made, 10, 10, 10, 10, 10)
        await begin(made, dsl.gang("work-8", 1, cpu=8), minutes=4)
        await begin(made, *(dsl.gang(f"waits-{n}", 1, cpu=3) for n in range(3)))
    times: list[int] = []
    decide = SimulatedCluster._decide

    def noted(run: SimulatedCluster) -> bool:
        if isinstance(run, ContinuedRun):
            times.append(run.now)
        return decide(run)

    monkeypatch.setattr(SimulatedCluster, "_decide", noted)
    etas(tmp_path / "log", samples=1, period=10 * SECOND)
    assert len(times) > 3
    assert all(later - earlier >= 10 * SECOND for earlier, later in pairwise(times))


async def test_a_run_ends_at_its_horizon_and_what_waits_then_has_no_upper_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampledruns, "EXACT", 10**6)
    monkeypatch.setattr(sampledruns, "LIMIT", 10**6)
    # of 5 cpu some are always taken, until no more comes: that is beyond what the log speaks of
    work = [Work(f"short-{n}", 2 * n + 1, 8) for n in range(50)]
    await play(tmp_path / "log", [dsl.node("n", cpu=5)], work, seconds=101, conf=ORDERED)
    found = submit(tmp_path / "log", dsl.flat([dsl.gang("large", 1, cpu=5)]), samples=1)
    starts = only(found).starts
    assert starts is not None
    assert (starts.median, starts.high, starts.runs) == (None, None, 0)
    horizon = sampledruns.FOLLOWED * 2 * SECOND  # one comes every 2 s
    assert horizon <= starts.low - found.now <= 1.1 * horizon
    assert "starts in 0 of 1 run, after 13 min" in next(found.lines())
    assert list(found.lines())[-1] == "note: no run is simulated for more than 13 min 20 s"


async def test_copies_of_what_still_runs_run_at_least_as_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = [*(Work(f"short-{n}", 5 * n + 1, 8) for n in range(23)), Work("long", 20, 500)]
    await play(tmp_path / "log", [dsl.node("n", cpu=4)], work, seconds=121, conf=ORDERED)
    runs: list[ContinuedRun] = []
    outcome = ContinuedRun.outcome
    monkeypatch.setattr(ContinuedRun, "outcome", lambda run: runs.append(run) or outcome(run))
    submit(tmp_path / "log", dsl.flat([dsl.gang("large", 1, cpu=4)]), samples=2)
    copies = [job for run in runs for key, job in run.measure.jobs.items() if key.startswith("default/long~")]
    lengths = [job.ended - job.started for job in copies if job.ended is not None and job.started is not None]
    assert lengths
    assert min(lengths) >= 100 * SECOND


async def test_a_start_may_have_been_earlier_by_the_time_between_sessions_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scheduler(tmp_path / "log", PLAIN) as made:
        await one_node(made)
        await learn(made, 10, 10, 10, 10, 10)
        await begin(made, dsl.gang("work-8", 1, cpu=8), minutes=4)
        await begin(made, dsl.gang("waits", 1, cpu=8))
    assert after(exact := eta(tmp_path / "log", "default/waits", samples=1), only(exact).starts)[:2] == (6, 6)
    monkeypatch.setattr(sampledruns, "EXACT", 0)
    monkeypatch.setattr(sampledruns, "FOLLOWED", 10**6)
    median, low, _, _ = after(coarse := eta(tmp_path / "log", "default/waits", samples=1), only(coarse).starts)
    assert low <= 6 <= median
    assert low < median


async def test_what_never_fits_is_said_not_to_start(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log", PLAIN) as made:
        await one_node(made)
        await begin(made, dsl.gang("huge", 1, cpu=9))
    assert eta_in_words(eta(tmp_path / "log", "default/huge", samples=1))[0].startswith("it never starts")


async def test_runs_are_the_same_in_several_processes(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log", PLAIN) as made:
        await one_node(made)
        await learn(made, 1, 2, 3, 5, 8, 13)
        await begin(made, dsl.gang("work-8", 1, cpu=8))
    job = dsl.flat([dsl.gang("new", 1, cpu=8)])
    assert submit(tmp_path / "log", job, samples=4, jobs=2) == submit(tmp_path / "log", job, samples=4)


def a_group(name: str, **spec: object) -> PodGroup:
    manifest: Manifest = {"kind": "PodGroup", "metadata": {"name": name, "namespace": "default"}, "spec": spec}
    group = from_manifest(manifest)[1]
    assert isinstance(group, PodGroup)
    return group
