"""What-ifs on histories small enough to compute by hand."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from tests import dsl
from tests.timetravel.plays import CONF, Work, play
from vcd.eventlog import LogReader
from vcd.model.wording import SECOND
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.framework.policy import PolicyError
from vcd.timetravel.whatif.cluster_edits import EditError, Edits, read_edits
from vcd.timetravel.whatif.fidelity import fidelity
from vcd.timetravel.whatif.logged_workload import Workload
from vcd.timetravel.whatif.run_measures import SPANS, Course, quantile
from vcd.timetravel.whatif.runs import Comparison, Run, Variant, recorded, simulated, whatif
from vcd.timetravel.whatif.sweep import sweep, variants_of
from vcd.timetravel.whatif.workloadreader import workload_of

LINE = [
    Work("first", 0, 100, cpu=2),
    Work("second", 10, 100, cpu=2),
    Work("third", 20, 50, cpu=2),
    Work("fourth", 30, 40, cpu=2),
]
"""On one node of 4 cpu: third waits for the end of first (80 s), fourth for that of second (80 s)."""

RECLAIM = """\
actions: "enqueue, allocate, reclaim"
tiers:
- plugins:
  - name: priority
  - name: gang
    enablePreemptable: false
  - name: conformance
- plugins:
  - name: predicates
  - name: proportion
"""


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("line") / "line.log"
    asyncio.run(play(path, [dsl.node("n", cpu=4)], LINE, seconds=160))
    return path


def work_of(path: Path) -> Workload:
    with LogReader(path) as reader:
        return workload_of(reader)


def waits(run: Run) -> dict[str, float | None]:
    return {key.removeprefix("default/"): wait for key, (_, wait) in run.jobs.items()}


def otherwise(path: Path, *fields: str, conf: str | None = None, **edits: list[object]) -> Run:
    """The run of one variant; the two before it are as they must be."""
    made = read_edits(fields, edits.get("without", []), edits.get("add", []))  # type: ignore[arg-type]
    return whatif(path, [Variant("other", conf, made)]).runs[2]


# --- what the log holds -----------------------------------------------------------------------------------------------


def test_arrivals_and_run_times_are_read_from_the_log(line: Path) -> None:
    work = work_of(line)
    assert [(unit.key, (unit.arrived - work.begin) // SECOND, (unit.run or 0) // SECOND) for unit in work.units] == [
        ("default/first-0", 0, 100),
        ("default/second-0", 10, 100),
        ("default/third-0", 20, 50),
        ("default/fourth-0", 30, 40),
    ]
    assert all(unit.pod.spec.node_name == "" and unit.ending == "succeeded" for unit in work.units)


async def test_a_pod_that_took_the_place_of_an_evicted_one_is_the_same_work(tmp_path: Path) -> None:
    path = tmp_path / "reclaimed.log"
    await _reclaimed(path)
    work = work_of(path)
    units = {unit.key.removeprefix("default/"): unit for unit in work.units}
    assert len(units) == 5
    again = [unit for unit in units.values() if unit.earlier]
    assert [len(unit.earlier) for unit in again] == [1, 1]
    assert all((unit.run or 0) // SECOND == 60 for unit in again)
    assert work.evictions == {"reclaim": 2}


async def _reclaimed(path: Path) -> None:
    """Queue a fills the node; b, of equal weight, comes at 10 and takes half of it back."""
    await play(
        path,
        [dsl.node("n", cpu=4)],
        [Work("a", 0, 60, pods=4, queue="a", options={"members": 1}), Work("b", 10, 30, cpu=2, queue="b")],
        seconds=150,
        conf=RECLAIM,
        queues=[dsl.queue("a", reclaimable=True), dsl.queue("b")],
    )


async def test_work_without_a_run_time_is_known_to_have_none(tmp_path: Path) -> None:
    path = tmp_path / "open.log"
    await play(path, [dsl.node("n", cpu=1)], [Work("long", 0, None), Work("late", 5, 10)], seconds=20)
    units = {unit.key: unit for unit in work_of(path).units}
    assert units["default/long-0"].run is None
    assert units["default/late-0"].bound is None


async def test_pods_that_are_made_after_the_admission_wait_for_it_again(tmp_path: Path) -> None:
    """The group comes at 0 and is admitted; its pod is made 3 s later."""
    path = tmp_path / "made.log"
    await play(path, [dsl.node("n", cpu=4)], [Work("early", 0, 10, cpu=4)], seconds=4)
    work = work_of(path)
    assert [unit.delay for unit in work.units] == [None]


# --- the same again ---------------------------------------------------------------------------------------------------


def test_diagnosing_the_jobs_that_wait_changes_nothing(line: Path) -> None:
    plain, explained = (simulated(work_of(line), Variant("x"), explain=explain) for explain in (False, True))
    assert {key: wait.why for key, wait in explained.delayed.items()} == {
        "default/fourth": "cluster full: 0 of 4 cpu free",
        "default/third": "cluster full: 0 of 4 cpu free",
    }
    explained.delayed = {}
    assert explained == plain


def test_as_recorded_and_simulated_the_waits_are_the_same(line: Path) -> None:
    runs = whatif(line, []).runs
    assert [run.name for run in runs] == ["recorded", "baseline"]
    for run in runs:
        assert waits(run) == {"first": 0, "second": 0, "third": 80, "fourth": 80}
        assert (
            run.busy_seconds == 110
        )  # fourth starts then; until then first used 2 for 100 s, second too, third for 10 s
        assert run.utilisation["cpu"] == pytest.approx((200 + 200 + 20) / (4 * 110))
    assert runs[1].seconds == 150


@pytest.mark.parametrize(("later", "far"), [(0, False), (9, False), (15, True)])
def test_a_baseline_whose_jobs_wait_longer_does_not_reproduce_the_record(line: Path, later: float, far: bool) -> None:
    """The mean wait may differ by a tenth, 10 s or two cycles, which are a few seconds here."""
    work = work_of(line)
    then = recorded(work).jobs
    again = {job: (queue, None if wait is None else wait + later) for job, (queue, wait) in then.items()}
    found = fidelity(work, then, again)
    assert (found.far, found.recorded_wait, found.baseline_wait) == (far, 40, 40 + later)
    assert found.sentences[0].startswith("does not reproduce" if far else "reproduces")


async def test_an_eviction_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "reclaimed.log"
    await _reclaimed(path)
    then, again = whatif(path, []).runs
    assert then.evictions == again.evictions == {"reclaim": 2}
    assert waits(then) == {"a": 0, "b": 1}
    assert waits(again) == {
        "a": 0,
        "b": 0,
    }  # what is evicted is gone at once, as the log has it, and is decided on then
    assert [run.lost_hours * 3600 for run in (then, again)] == pytest.approx([2 * 10, 2 * 10])
    assert again.seconds == 100  # b ends at 40, and what it pushed out runs its 60 s anew


# --- otherwise --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "third", "fourth"),
    [
        (["node/n.status.allocatable.cpu=6"], 0, 40),  # fourth takes the room of third, which ends at 70
        (["node/n.status.allocatable.cpu=8"], 0, 0),
        (["node/n.status.allocatable.cpu=2"], 180, 220),  # one after the other
    ],
)
def test_a_node_of_another_size(line: Path, fields: list[str], third: float, fourth: float) -> None:
    found = waits(otherwise(line, *fields))
    assert (found["third"], found["fourth"]) == (third, fourth)


def test_a_node_more(line: Path) -> None:
    run = otherwise(line, add=[dsl.node("m", cpu=2)])
    assert (waits(run)["third"], waits(run)["fourth"]) == (0, 40)


def test_a_node_less_and_nothing_ever_starts(line: Path) -> None:
    run = otherwise(line, without=["node/n"])
    assert run.waits.never == 4
    assert run.waits.median is None


def test_another_priority_turns_the_order(line: Path) -> None:
    changed = read_edits(["podgroup/default/fourth.spec.priorityClassName=high"], added=[dsl.priority_class("high", 9)])
    comparison = whatif(line, [Variant("urgent", None, changed)])
    assert waits(comparison.runs[2])["fourth"] == 70
    assert waits(comparison.runs[2])["third"] == 90
    assert {(one.job, one.baseline, one.wait) for one in comparison.shifts} == {
        ("default/fourth", 80.0, 70.0),
        ("default/third", 80.0, 90.0),
    }


def test_another_configuration(line: Path) -> None:
    """Without the action that places anything nothing starts."""
    run = otherwise(line, conf=CONF.replace("enqueue, allocate, backfill", "enqueue"))
    assert run.waits.never == 4


def test_a_queue_may_hold_less(line: Path) -> None:
    run = otherwise(line, "queue/default.spec.capability.cpu=2")
    assert waits(run) == {"first": 0, "second": 90, "third": 180, "fourth": 220}


async def test_work_that_was_given_up_while_it_waited_is_given_up_again(tmp_path: Path) -> None:
    path = tmp_path / "given-up.log"
    await play(path, [dsl.node("n", cpu=1)], [Work("long", 0, 50), Work("late", 5, 10)], seconds=60)
    work = work_of(path)
    late = next(unit for unit in work.units if unit.key == "default/late-0")
    late.bound = None
    late.ended, late.ending = work.begin + 30 * SECOND, "deleted"
    run = recorded(work)
    assert run.jobs["default/late"] == ("default", None)


# --- what cannot be ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("queue/default", "write it like queue/a.spec.weight=4"),
        ("thing/x.spec.y=1", "thing is not a kind"),
        ("queue/nowhere.spec.weight=1", "there is no Queue nowhere in the log; there are default, root"),
        ("queue/default.spec.wieght=3", "changes nothing"),
        ("queue/default.spec.weight=heavy", "Expected `int`"),
        ("node/n.metadata.name.deep=1", "name holds no fields"),
        ("node/n.metadata.name=other", "this would make it another object"),
        ("node/n.status.allocatable.cpu=eight", "Node n: status.allocatable: resource cpu"),
        ("queue/default.spec.capability.cpu=-4", "quantity '-4' is negative"),
        ("podgroup/default/first.spec.minResources={cpu: x}", "PodGroup default/first: spec.minResources"),
        ("pod/default/first-0.spec.containers=[{resources: {requests: {cpu: x}}}]", "Pod default/first-0: resources"),
        ("queue/default.spec.capability.cpu={", "not YAML"),
        (f"queue/default.spec.weight={'9' * 5000}", "not YAML"),
        (f"queue/default.spec.weight={'[' * 2000}", "not YAML"),
    ],
)
def test_a_change_that_cannot_be_made_is_refused_in_words(line: Path, field: str, words: str) -> None:
    with pytest.raises(EditError, match=re.escape(words)):
        whatif(line, [Variant("other", None, read_edits([field]))])


def test_pods_are_submitted_not_added(line: Path) -> None:
    with pytest.raises(EditError, match="--submit"):
        whatif(line, [Variant("other", None, read_edits(added=[dsl.pod("p")]))])


def test_what_a_scheduler_would_set_aside_is_not_added(line: Path) -> None:
    broken = dsl.node("new") | {"status": {"allocatable": {"cpu": "x"}}}
    with pytest.raises(EditError, match="Node new: status"):
        whatif(line, [Variant("other", None, read_edits(added=[broken]))])


def test_manifests_to_add_are_read_as_all_others() -> None:
    widget = {"kind": "Widget", "apiVersion": "x.io/v1", "metadata": {"name": "w"}}
    listed = {"kind": "List", "apiVersion": "v1", "items": [dsl.node("new"), widget]}
    quota = {"kind": "ResourceQuota", "metadata": {"name": "q", "namespace": "team"}, "spec": {"hard": {"pods": "1"}}}
    queue = {"kind": "Queue", "metadata": {"name": "a", "resourceVersion": "7"}, "spec": {"wieght": 3}}
    edits = read_edits(added=[listed, quota, queue, dsl.pod("p"), dsl.node("bad", cpu="x")])
    assert [(event.kind, event.key) for event in edits.added] == [
        ("Queue", "a"), ("Node", "new"), ("ResourceQuota", "team/q"),
    ]  # fmt: skip
    assert edits.words == "3 objects added"
    bad, work = edits.refused
    assert bad.startswith("Node bad: ")
    assert work == "workloads cannot be added to the cluster: Pod default/p; forecast them with --submit"
    kind, field = edits.unknown
    assert kind.startswith("Widget of API group x.io is not understood: ")
    assert "spec.wieght" in field


def test_a_bad_configuration_is_refused_before_anything_runs(line: Path) -> None:
    with pytest.raises(PolicyError):
        whatif(line, [Variant("other", "actions: allocat")])


def test_annotations_stay_texts() -> None:
    (field,) = read_edits(['queue/a.metadata.annotations[volcano.sh/card.quota]={"A100": 8}']).fields
    assert (field.path, field.value) == (("metadata", "annotations", "volcano.sh/card.quota"), '{"A100": 8}')


def test_edits_in_words() -> None:
    assert read_edits(["queue/a.spec.weight=4"], ["node/x.y"]).words == "queue/a.spec.weight=4, without node/x.y"
    assert not Edits()


# --- sweeps and reports -----------------------------------------------------------------------------------------------


def test_a_sweep_gives_what_each_run_alone_gives(line: Path) -> None:
    edits = read_edits(["node/n.status.allocatable.cpu=6"])
    variants = variants_of(
        [("as it was", None), ("no backfill", CONF.replace(", backfill", ""))], [0, 1], Variant("", edits=edits)
    )
    found = sweep(line, variants, jobs=2)
    assert [run.name for run in found.runs] == [
        "as it was seed 0", "as it was seed 1", "no backfill seed 0", "no backfill seed 1",
    ]  # fmt: skip
    assert all(waits(run)["fourth"] == 40 for run in found.runs)


def test_the_number_of_processes_changes_no_run(line: Path) -> None:
    variants = [Variant("larger", edits=read_edits(["node/n.status.allocatable.cpu=6"])), Variant("as it was")]
    assert sweep(line, variants, jobs=2) == sweep(line, variants, jobs=1)


def test_a_run_is_the_same_each_time(line: Path) -> None:
    one, other = (whatif(line, [Variant("seed", seed=3)]) for _ in range(2))
    assert one == other


# --- courses ----------------------------------------------------------------------------------------------------------


def test_a_course_keeps_every_step() -> None:
    course = Course(0)
    course.set(0, 2)
    course.set(100, 4)
    course.set(4000, 0)
    assert course.mean(8000) == pytest.approx((2 * 100 + 4 * 3900) / 8000)
    assert course.mean(100) == 2
    assert course.mean(0) == 2
    points = course.points(8000)
    assert len(points) <= SPANS
    assert sum(value for _, value in points) / len(points) == pytest.approx(course.mean(8000), rel=0.01)
    assert (points[0], points[-1][1]) == ((0, 2), 0)


@pytest.mark.parametrize(
    ("values", "share", "expected"), [([], 0.5, None), ([7], 0.95, 7), ([1, 2, 3, 4], 0.5, 2.5), ([0, 10], 0.95, 9.5)]
)
def test_quantiles_lie_between_neighbours(values: list[int], share: float, expected: float | None) -> None:
    assert quantile(values, share) == expected


def test_fairness_is_one_while_nobody_waits(line: Path) -> None:
    comparison: Comparison = whatif(line, [])
    assert comparison.runs[1].fairness == 1.0
    assert read_policy(work_of(line).policy).actions == ("enqueue", "allocate", "backfill")


async def test_work_that_was_evicted_and_never_came_back_has_no_run_time(tmp_path: Path) -> None:
    path = tmp_path / "lost.log"
    await _reclaimed(path)
    work = work_of(path)
    unit = next(unit for unit in work.units if unit.earlier)
    unit.bound, unit.ended, unit.ending = work.begin, work.begin + 7 * SECOND, "evicted"
    assert unit.run is None
    assert unit.seen_running(work.end) == 7 * SECOND


def test_use_is_a_part_of_the_room_of_then(line: Path) -> None:
    """Three of the four run, 2 cpu each, on 8 cpu, until the last one starts; the only queue's part is the whole."""
    run = otherwise(line, add=[dsl.node("m", cpu=4)])
    whole = [part for _, part in run.courses["cpu used"]]
    assert (whole[0], max(whole)) == (0.25, 0.75)
    assert run.courses["cpu used"] == run.courses["default: cpu"]
