"""Run times: estimated from what ended and from what still runs, on cases computed by hand."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable
from random import Random

import pytest

from tests import dsl
from vcd.model.objects import Pod
from vcd.model.projection_codec import from_manifest
from vcd.model.wording import SECOND
from vcd.state.records import Settings
from vcd.timetravel.whatif.logged_workload import Unit, Workload
from vcd.timetravel.whatif.runtimes import RunTimes, accuracy

MINUTE = 60 * SECOND
Runs = Iterable[tuple[float, bool]]
"""Minutes, and whether it ended then."""
_COUNT = itertools.count()


def a_pod(name: str = "train-0", group: str | None = "train", **options: object) -> Pod:
    pod = from_manifest(dsl.pod(name, group=group, **{"cpu": 1, **options}))[1]
    assert isinstance(pod, Pod)
    return pod


def a_unit(pod: Pod | None = None, *, bound: float = 0, ended: float | None = None, job: str = "") -> Unit:
    """A unit of a job (its own, where none is named) that was bound and ended at these minutes."""
    pod = pod or a_pod()
    end = None if ended is None else round(ended * MINUTE)
    job = job or f"job-{next(_COUNT)}"
    return Unit(pod.key, pod.metadata.uid, job, pod, {}, 0, bound=round(bound * MINUTE), ended=end, ending="succeeded")


def learned(runs: Runs) -> RunTimes:
    return RunTimes((a_unit(), round(minutes * MINUTE), ended) for minutes, ended in runs)


def minutes(model: RunTimes, uniform: float, elapsed: float = 0) -> float:
    drawn = model.draw(a_pod(), round(elapsed * MINUTE), uniform)
    assert drawn is not None
    return drawn / MINUTE


def test_of_n_runs_each_gap_is_as_likely_for_the_next() -> None:
    # after k of 10 runs 1 - k/11 are left
    estimate = learned((n, True) for n in range(1, 11)).estimate(a_pod())
    assert estimate is not None
    assert (estimate.low, estimate.median, estimate.high) == (2 * MINUTE, 6 * MINUTE, 10 * MINUTE)
    assert (estimate.of, estimate.count) == ("work named default/train* that asks for the same", 10)


def test_what_still_runs_counts_for_as_long_as_it_was_seen() -> None:
    # at risk 6, 5, 3: the share left is 5/6 after 1, 5/6 * 4/5 = 2/3 after 2, and 2/3 * 2/3 = 4/9 after 4
    model = learned([(1, True), (2, True), (3, False), (4, True), (5, False)])
    assert [minutes(model, share) for share in (0.16, 0.17, 0.33, 0.34, 0.55)] == [1, 2, 2, 4, 4]


def test_who_was_watched_until_the_moment_of_an_end_was_at_risk_of_it() -> None:
    # both were at risk at 2, and so is the next: two in three are left, and not half
    assert minutes(learned([(2, True), (2, False)]), 0.33) == 2
    assert minutes(learned([(2, True), (2, False)]), 0.34) > 2


def test_what_was_old_when_it_was_first_seen_was_at_risk_from_then_on() -> None:
    # at risk are 3 at 1 and 2 at 2, without the one that is seen from 8 on; with it and the next 2 at 10
    young = [(a_unit(), minutes * MINUTE, True) for minutes in (1, 2)]
    old = (a_unit(bound=-8), 10 * MINUTE, True)
    model = RunTimes([*young, old])
    assert [minutes(model, share) for share in (0.33, 0.34, 0.66, 0.67, 0.83)] == [1, 2, 2, 10, 10]
    assert minutes(RunTimes([*young, (a_unit(bound=-8), 8 * MINUTE, False)]), 0.66) == 2  # no more was seen of it


def test_what_has_run_already_is_measured_by_what_ran_as_long() -> None:
    model = learned([(1, True), (1, True), (1, True), (10, True), (20, True)])
    # of the three left after 1 (two, and the next) one each ends at 10 and at 20
    assert [minutes(model, 0.5), minutes(model, 0.33, 1), minutes(model, 0.5, 12)] == [1, 10, 20]
    assert minutes(model, 0.34, 1) == 20


def test_what_outlives_all_that_is_known_runs_as_long_again() -> None:
    model = learned([(1, True), (2, True)])
    assert minutes(model, 0.5, 8) == 16
    assert minutes(model, 0.75, 8) == 32
    assert minutes(model, 1.0, 8) == pytest.approx(800)


def test_beyond_what_was_seen_half_of_what_is_left_runs_as_long_again() -> None:
    # two in three are left at 10, and a third at 20
    model = learned([(4, True), (10, False)])
    assert minutes(model, 0.33) == 4
    assert minutes(model, 2 / 3) == pytest.approx(20)
    assert minutes(model, 0.5, 10) == pytest.approx(20)
    assert minutes(model, 0.5, 30) == pytest.approx(60)
    assert minutes(model, 0.9, 30) == pytest.approx(300)


def test_the_next_may_outlive_all_that_ended() -> None:
    assert minutes(learned((n, True) for n in range(1, 5)), 0.8) == 4
    assert minutes(learned((n, True) for n in range(1, 5)), 0.9) == pytest.approx(8)


def test_runs_of_no_length_are_runs() -> None:
    model = learned([(0, True), (0, True), (0, True), (6, True)])
    assert [minutes(model, 0.5), minutes(model, 0.6), minutes(model, 0.61)] == [0, 0, 6]
    assert minutes(model, 0.1, 1) == 6
    assert minutes(learned([(0, True)]), 0.9) == 0


def test_of_one_run_half_of_what_comes_is_longer() -> None:
    estimate = learned([(7, True)]).estimate(a_pod())
    assert estimate is not None
    assert (estimate.low, estimate.median, estimate.count) == (7 * MINUTE, 7 * MINUTE, 1)
    assert estimate.high == pytest.approx(35 * MINUTE)


def test_nothing_is_estimated_where_nothing_ended() -> None:
    model = learned([(5, False), (9, False)])
    assert model.estimate(a_pod()) is None
    assert model.draw(a_pod(), 0, 0.5) is None
    assert RunTimes([]).estimate(a_pod()) is None


def test_draws_follow_the_curve() -> None:
    model = learned([(1, True), (2, True), (3, True), (4, True)])
    drawn = [minutes(model, (n + 0.5) / 100) for n in range(100)]
    assert [drawn.count(n) for n in (1, 2, 3, 4)] == [20, 20, 20, 20]


def test_a_job_counts_once_however_many_pods_it_has() -> None:
    # of four jobs and the next the one of six pods is a fifth
    pods = [(a_unit(job="wide"), 9 * MINUTE, True) for _ in range(6)]
    model = RunTimes([*pods, *((a_unit(), length * MINUTE, True) for length in (1, 2, 3))])
    assert [minutes(model, share) for share in (0.2, 0.21, 0.4, 0.41, 0.6, 0.61, 0.8)] == [1, 2, 2, 3, 3, 9, 9]
    estimate = model.estimate(a_pod())
    assert estimate is not None
    assert estimate.count == 4


def test_pods_of_one_job_do_not_make_a_class_speak() -> None:
    wide = [(a_unit(a_pod(f"eval-{n}", "eval-1"), job="eval-1"), 1 * MINUTE, True) for n in range(8)]
    other = [(a_unit(a_pod("train-0", "train-0")), 9 * MINUTE, True) for _ in range(5)]
    assert estimated(RunTimes([*wide, *other]), a_pod("eval-9", "eval-9"))[1] == (
        "work of namespace default that asks for the same"
    )


def test_what_is_known_is_drawn_about_what_it_says() -> None:
    model = learned((n, True) for n in range(1, 12))
    medians = [minutes(model.drawn(Random(seed)), 0.5) for seed in range(400)]
    assert minutes(model.drawn(Random(7)), 0.5) == medians[7]
    assert statistics.fmean(medians) == pytest.approx(6.5, abs=0.25)  # the first by which half is reached
    # a median of 12 has a standard error of about 12 / (2 * sqrt(12))
    assert 1 < statistics.stdev(medians) < 2.5
    assert minutes(model, 0.5) == 6


# --- classes ----------------------------------------------------------------------------------------------------------


def classed(*runs: tuple[Pod, float]) -> RunTimes:
    return RunTimes((a_unit(pod), round(length * MINUTE), True) for pod, length in runs)


def estimated(model: RunTimes, pod: Pod) -> tuple[float, str]:
    estimate = model.estimate(pod)
    assert estimate is not None
    return estimate.median / MINUTE, estimate.of


def test_a_class_speaks_when_enough_of_it_ended() -> None:
    short = [(a_pod(f"eval-{n}", f"eval-{n}"), 1.0) for n in range(5)]
    long = [(a_pod(f"train-{n}", f"train-{n}"), 9.0) for n in range(7)]
    model = classed(*short, *long)
    assert estimated(model, a_pod("eval-8", "eval-8")) == (1, "work named default/eval* that asks for the same")
    assert estimated(model, a_pod("eval-8", "eval-8", cpu=2)) == (1, "work named default/eval*")
    assert estimated(model, a_pod("new", "new")) == (9, "work of namespace default that asks for the same")
    assert estimated(model, a_pod("new", "new", cpu=3)) == (9, "work of namespace default")
    assert estimated(model, a_pod("new", "new", namespace="other")) == (9, "all work")


def test_of_classes_too_small_the_most_specific_speaks() -> None:
    model = classed((a_pod("eval", "eval"), 1), (a_pod("train", "train"), 9), (a_pod("train", "train"), 9))
    assert estimated(model, a_pod("eval", "eval")) == (1, "work named default/eval* that asks for the same")


@pytest.mark.parametrize(
    ("pod", "named"),
    [
        (a_pod("x", "train-17"), "train"),
        (a_pod("x", "train-8c1f2a3b-0000-1111-2222-333344445555"), "train"),
        (a_pod("x", "train-17-3.4-tail"), "train-tail"),
        (a_pod("x", "llama3-8b"), "llama3-8b"),
        (a_pod("solo-3", "podgroup-8c1f2a3b-0000-1111-2222-333344445555"), "solo"),
        (a_pod("solo-3", None), "solo"),
    ],
)
def test_work_is_named_without_numbers_and_uids(pod: Pod, named: str) -> None:
    assert estimated(classed((pod, 1)), pod)[1] == f"work named default/{named}* that asks for the same"


def test_pods_of_a_controller_are_named_by_it() -> None:
    manifest = dsl.pod("web-5d9c7-abcde", group="podgroup-1", cpu=1, labels={"pod-template-hash": "5d9c7"})
    manifest["metadata"]["ownerReferences"] = [{"kind": "ReplicaSet", "name": "web-5d9c7", "controller": True}]
    pod = from_manifest(manifest)[1]
    assert isinstance(pod, Pod)
    assert estimated(classed((pod, 1)), pod)[1] == "work named default/web* that asks for the same"


# --- accuracy ---------------------------------------------------------------------------------------------------------


def workload(*units: Unit, end: float = 1000) -> Workload:
    for number, unit in enumerate(units):
        unit.key = f"default/{number:03d}"
    return Workload(0, round(end * MINUTE), None, Settings(), units=list(units))


def test_the_first_half_is_held_against_the_second() -> None:
    # known when the second of four has ended, at 20: runs of 10 and 10
    found = accuracy(
        workload(
            a_unit(bound=0, ended=10),
            a_unit(bound=10, ended=20),
            a_unit(bound=30, ended=40),  # as estimated
            a_unit(bound=30, ended=70),  # four times as long
        )
    )
    assert found is not None
    assert (found.learned, found.tested, found.median_ratio, found.within_bounds) == (2, 2, 2.5, 0.5)


def test_work_under_way_is_estimated_from_where_it_stood() -> None:
    # at 10, two of three have ended and the last has run for 10: half of those that do run to 20
    found = accuracy(workload(a_unit(bound=0, ended=5), a_unit(bound=0, ended=10), a_unit(bound=0, ended=20)))
    assert found is not None
    assert (found.learned, found.tested, found.within_bounds) == (2, 1, 1.0)
    assert found.median_ratio == pytest.approx(1)


def test_what_ends_together_is_not_divided() -> None:
    gang = [a_unit(bound=0, ended=10) for _ in range(3)]
    found = accuracy(workload(*gang, a_unit(bound=20, ended=30)))
    assert found is not None
    assert (found.learned, found.tested) == (3, 1)


@pytest.mark.parametrize("units", [[], [a_unit(ended=3)], [a_unit(ended=3), a_unit(ended=3)], [a_unit(), a_unit()]])
def test_too_little_says_nothing(units: list[Unit]) -> None:
    assert accuracy(workload(*units)) is None


def test_what_ended_and_what_still_runs_is_learned_from_a_log() -> None:
    model = RunTimes.of(workload(a_unit(bound=0, ended=4), a_unit(bound=0), end=10))
    assert minutes(model, 0.33) == 4
    assert minutes(model, 2 / 3) == pytest.approx(20)
