"""What a log's workload is where controllers, users and other schedulers change it on the way to its decision."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests import dsl
from tests.dsl import Manifest
from tests.timetravel.histories import START, Scheduler, scheduler
from tests.timetravel.plays import CONF
from tests.timetravel.shadowed import bind, job, shadow
from vcd.eventlog import LogReader
from vcd.model.wording import SECOND, rfc3339
from vcd.scheduling.configuration import read_policy
from vcd.timetravel.history import opened as history_of
from vcd.timetravel.query_errors import NotFound
from vcd.timetravel.whatif.cluster_edits import EditError, edited, read_edits
from vcd.timetravel.whatif.job_whatif import job_whatif
from vcd.timetravel.whatif.logged_workload import Unit, Workload
from vcd.timetravel.whatif.run_measures import Measure
from vcd.timetravel.whatif.runs import Comparison, Variant, whatif
from vcd.timetravel.whatif.runtimes import RunTimes
from vcd.timetravel.whatif.simulated_cluster import SimulatedCluster, SimulatedUnit
from vcd.timetravel.whatif.sweep import sweep
from vcd.timetravel.whatif.workloadreader import PROMPT, workload_of

GATE = "scheduling.volcano.sh/queue-allocation-gate"


def work_of(path: Path) -> Workload:
    with LogReader(path) as reader:
        return workload_of(reader)


def units(path: Path) -> dict[str, Unit]:
    return {unit.key.removeprefix("default/"): unit for unit in work_of(path).units}


def again(path: Path, *variants: Variant) -> Comparison:
    return whatif(path, variants)


def waits(comparison: Comparison, run: int) -> dict[str, float | None]:
    return {key.removeprefix("default/"): wait for key, (_, wait) in comparison.runs[run].jobs.items()}


def seconds(time: int | None) -> int | None:
    return None if time is None else (time - START) // SECOND


class Watched(SimulatedCluster):
    """A simulated cluster that remembers in which order pods start."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.order: list[str] = []

    def _starts(self, piece: SimulatedUnit, node: str, elapsed: int) -> None:
        super()._starts(piece, node, elapsed)
        self.order.append(piece.unit.key)


def pod_of(group: str, name: str, **more: Any) -> Manifest:
    return dsl.pod(name, group=group, cpu=1, **more)


def unnamed(pod: Manifest) -> Manifest:
    """The pod before its controller named its group."""
    return {**pod, "metadata": {**pod["metadata"], "annotations": {}}}


def with_uid(manifest: Manifest, uid: str) -> Manifest:
    return {**manifest, "metadata": {**manifest["metadata"], "uid": uid}}


async def begun(made: Scheduler, cpu: int = 4) -> None:
    await made.show(dsl.node("n", cpu=cpu), dsl.queue("root"), dsl.queue("default"), dsl.queue("other"))
    await session(made)


async def session(made: Scheduler) -> None:
    """One that is carried out at once; then a second passes."""
    await made.carry_out(await made.cycle(seconds=0))
    made.clock.now += SECOND


async def end(made: Scheduler, keys: Iterable[str], *, gone: bool = True) -> None:
    for key in keys:
        await made.finish(f"default/{key}")
        if gone:
            await made.delete("Pod", f"default/{key}")


# --- what a controller adds -------------------------------------------------------------------------------------------


async def test_pods_are_in_the_group_that_a_controller_names_later(tmp_path: Path) -> None:
    group, *pods = dsl.gang("a", 3, cpu=1, phase="Pending")
    async with scheduler(tmp_path / "log", CONF) as made:
        await begun(made)
        await made.show(map(unnamed, pods))
        made.clock.now += 2 * SECOND
        await made.show(group, pods)
        await session(made)
    work = work_of(tmp_path / "log")
    assert [(unit.group, unit.delay, seconds(unit.arrived), seconds(unit.ready)) for unit in work.units] == [
        ("default/a", None, 1, 3)
    ] * 3
    found = again(tmp_path / "log")
    assert waits(found, 0) == waits(found, 1) == {"a": 2}
    assert not found.fidelity.far


async def test_what_takes_the_place_of_a_deleted_pod_may_name_its_group_later(tmp_path: Path) -> None:
    group, *pods = dsl.gang("a", 1, cpu=1, phase="Pending")
    async with scheduler(tmp_path / "log", CONF) as made:
        await begun(made)
        await made.show(group, pods)
        await session(made)
        await made.delete("Pod", "default/a-0")
        later = with_uid(pod_of("a", "a-new"), "new")
        await made.show(unnamed(later))
        await made.show(later)
        await session(made)
    (unit,) = work_of(tmp_path / "log").units
    assert (unit.key, len(unit.earlier), unit.bound is not None) == ("default/a-0", 1, True)


async def test_a_group_is_as_it_was_when_it_was_decided_on(tmp_path: Path) -> None:
    """Its queue and its minimum are changed while it waits, and its minimum again while it runs."""
    async with scheduler(tmp_path / "log", CONF) as made:
        await begun(made, cpu=2)
        group, *pods = dsl.gang("a", 3, cpu=1, phase="Pending", members=3)
        await made.show(group, pods)
        await session(made)  # there is room for two
        made.clock.now += 10 * SECOND
        shown = made.last_shown("PodGroup", "default/a")
        await made.show({**shown, "spec": {**shown["spec"], "minMember": 2, "queue": "other"}})
        await session(made)
        shown = made.last_shown("PodGroup", "default/a")
        await made.show({**shown, "spec": {**shown["spec"], "minMember": 1}})
    life = work_of(tmp_path / "log").groups["default/a"]
    assert (life.group.spec.queue, life.group.spec.min_member) == ("other", 2)
    assert [group.spec.min_member for _, group in life.versions] == [3, 2, 1]
    found = again(tmp_path / "log")
    assert waits(found, 0) == {"a": 11}
    assert waits(found, 1)["a"] == 11


async def test_a_gate_that_a_user_lifts_is_lifted_then_again(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log", CONF) as made:
        await begun(made)
        group, pod = dsl.gang("a", 1, cpu=1, phase="Pending")
        await made.show(group, {**pod, "spec": {**pod["spec"], "schedulingGates": [{"name": "example.com/hold"}]}})
        await session(made)
        made.clock.now += 30 * SECOND
        await made.show(pod)
        await session(made)
    found = again(tmp_path / "log")
    assert waits(found, 0) == waits(found, 1) == {"a": 31}


async def test_a_gate_that_the_scheduler_lifts_is_its_to_lift_again(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log", CONF) as made:
        await begun(made)
        group, pod = dsl.gang("a", 1, cpu=1, phase="Pending", annotations={GATE: "true"})
        await made.show(group, {**pod, "spec": {**pod["spec"], "schedulingGates": [{"name": GATE}]}})
        for _ in range(3):
            await session(made)
    (unit,) = work_of(tmp_path / "log").units
    assert unit.bound is not None
    assert [gate.name for gate in unit.pod.spec.scheduling_gates] == [GATE]
    assert unit.versions == []
    assert waits(again(tmp_path / "log"), 1)["a"] is not None


async def test_a_priority_that_comes_later_decides(tmp_path: Path) -> None:
    """Of two pods that wait for one place, the one that is raised meanwhile goes first, then as again."""
    async with scheduler(tmp_path / "log", CONF) as made:
        await begun(made, cpu=1)
        await made.show(dsl.gang("first", 1, cpu=1, phase="Pending"))
        await session(made)
        await made.show(dsl.gang("a", 2, cpu=1, phase="Pending", members=1, created=1))
        await session(made)
        shown = made.last_shown("Pod", "default/a-1")
        await made.show({**shown, "spec": {**shown["spec"], "priority": 10}})
        made.clock.now += 10 * SECOND
        await end(made, ["first-0"])
        await session(made)
    work = work_of(tmp_path / "log")
    runs = {unit.key: unit for unit in work.units}
    assert (runs["default/a-0"].bound, runs["default/a-1"].pod.spec.priority) == (None, 10)
    measure = Measure(work.begin)
    cluster = Watched(work, read_policy(CONF), measure, RunTimes.of(work))
    cluster.run()
    assert cluster.order == ["default/first-0", "default/a-1", "default/a-0"]


# --- what comes again under its name ----------------------------------------------------------------------------------


async def test_bare_pods_under_one_name_are_jobs_of_their_own(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log", CONF) as made:
        await begun(made)
        for number in (1, 2, 3):
            group = f"podgroup-{number}"
            pod = with_uid(pod_of(group, "x"), f"x-{number}")
            await made.show(unnamed(pod))
            await made.show(dsl.group(group, members=1, phase="Pending"), pod)
            await session(made)
            made.clock.now += 5 * SECOND
            await end(made, ["x"])
            await made.delete("PodGroup", f"default/{group}")
    assert sorted(units(tmp_path / "log")) == ["x", "x~2", "x~3"]
    found = again(tmp_path / "log")
    assert waits(found, 0) == waits(found, 1) == {f"podgroup-{number}": 0 for number in (1, 2, 3)}
    assert not found.fidelity.far


async def test_a_job_that_is_deleted_and_submitted_again_is_another_one(tmp_path: Path) -> None:
    """Its group and pods have the names of the ones that are gone, and its pod is seen before its group."""
    async with scheduler(tmp_path / "log", CONF) as made:
        await begun(made)
        for number in (1, 2):
            group, pod = (with_uid(one, f"{one['kind']}-{number}") for one in dsl.gang("a", 1, cpu=1, phase="Pending"))
            await made.show(pod)
            await made.show(group)
            await session(made)
            made.clock.now += 20 * SECOND
            await made.delete("PodGroup", "default/a")
            await made.delete("Pod", "default/a-0")
    work = work_of(tmp_path / "log")
    assert [(unit.key, unit.group, unit.earlier, (unit.run or 0) // SECOND) for unit in work.units] == [
        ("default/a-0", "default/a", [], 21),
        ("default/a-0~2", "default/a~2", [], 21),
    ]
    found = again(tmp_path / "log")
    assert waits(found, 0) == waits(found, 1) == {"a": 0, "a~2": 0}


async def test_a_group_that_is_made_again_for_its_pods_is_the_same(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log", CONF) as made:
        await begun(made)
        group, *pods = dsl.gang("a", 2, cpu=1, phase="Pending")
        await made.show(group, pods)
        await made.delete("PodGroup", "default/a")
        await made.show(with_uid(group, "again"))
        await session(made)
    assert list(work_of(tmp_path / "log").groups) == ["default/a"]
    found = again(tmp_path / "log")
    assert waits(found, 0) == waits(found, 1) == {"a": 0}


async def test_a_group_that_goes_without_pods_holds_nothing_up(tmp_path: Path) -> None:
    """Its job is deleted while its group waits; what it asked for must not stay promised."""
    async with scheduler(tmp_path / "log", CONF.replace("proportion", "overcommit")) as made:
        await begun(made)
        await made.show(dsl.group("given-up", members=1, phase="Pending", minimum={"cpu": 4}))
        await session(made)
        await made.delete("PodGroup", "default/given-up")
        await made.show(dsl.gang("a", 4, cpu=1, phase="Pending", minimum={"cpu": 4}))
        await session(made)
    life = work_of(tmp_path / "log").groups["default/given-up"]
    assert seconds(life.withdrawn) == 2
    found = again(tmp_path / "log")
    assert waits(found, 0) == waits(found, 1) == {"given-up": None, "a": 0}


def test_changes_are_made_to_all_that_came_under_a_name(tmp_path: Path) -> None:
    async def twice() -> None:
        async with scheduler(tmp_path / "log", CONF) as made:
            await begun(made)
            for uid in ("1", "2"):
                await made.show([with_uid(one, f"{one['kind']}-{uid}") for one in dsl.gang("a", 1, cpu=1)])
                await made.delete("PodGroup", "default/a")
                await made.delete("Pod", "default/a-0")

    asyncio.run(twice())
    work = work_of(tmp_path / "log")
    assert edited(work, read_edits(without=["podgroup/default/a"])).units == []
    moved = edited(work, read_edits(["podgroup/default/a.spec.queue=other"]))
    assert {life.group.spec.queue for life in moved.groups.values()} == {"other"}
    with pytest.raises(EditError, match="there is no PodGroup default/b"):
        edited(work, read_edits(without=["podgroup/default/b"]))


# --- Deployments ------------------------------------------------------------------------------------------------------


async def test_a_deployment_that_is_scaled_down_and_up_asks_for_pods_then(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log", CONF) as made:
        await begun(made)
        await made.show(dsl.group("web", members=1, phase="Pending"), [pod_of("web", f"web-{i}") for i in range(2)])
        await session(made)
        made.clock.now += 100 * SECOND
        await made.delete("Pod", "default/web-1")
        made.clock.now += PROMPT + 100 * SECOND
        late = pod_of("web", "web-2")
        await made.show(unnamed(late))
        await made.show(late)
        await session(made)
    found = units(tmp_path / "log")
    assert {key: (unit.earlier, unit.delay) for key, unit in found.items()} == {
        key: ([], None) for key in ("web-0", "web-1", "web-2")
    }
    assert (found["web-1"].run or 0) // SECOND == 101
    assert seconds(found["web-2"].arrived) == 262
    runs = again(tmp_path / "log").runs
    assert [run.busy_seconds for run in runs] == [runs[0].busy_seconds] * 2


# --- who else places --------------------------------------------------------------------------------------------------


async def test_pods_of_other_schedulers_take_room_and_wait_for_nobody(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log", CONF) as made:
        await begun(made, cpu=2)
        foreign = dsl.pod("daemon", cpu=1)
        foreign["spec"]["schedulerName"] = "default-scheduler"
        await made.show(foreign)
        await made.show({**foreign, "spec": {**foreign["spec"], "nodeName": "n"}, "status": {"phase": "Running"}})
        await made.show(dsl.gang("wide", 1, cpu=2, phase="Pending"))
        await session(made)
    found = again(tmp_path / "log")
    assert (waits(found, 0), found.runs[0].running) == ({"wide": None}, 1)
    # it goes when the other one is taken to end, an hour after it was last seen
    assert waits(found, 1) == {"wide": 3600}


async def test_a_shadows_log_comes_out_as_the_other_scheduler_had_it(tmp_path: Path) -> None:
    async with shadow(tmp_path / "log") as made:
        group, pod = job("a", phase="Pending")
        await made.show(unnamed(pod))
        await made.show(group, pod)
        await made.cycle()
        await made.show({**group, "status": {"phase": "Inqueue"}})
        await bind(made, "a", "n0")
    found = again(tmp_path / "log")
    assert (waits(found, 0), waits(found, 1)) == ({"a": 1}, {"a": 0})
    assert (found.fidelity.recorded, found.fidelity.baseline, found.fidelity.far) == (1, 1, False)


# --- logs that are not whole ------------------------------------------------------------------------------------------


async def test_a_log_whose_beginning_was_removed_has_who_was_there(tmp_path: Path) -> None:
    """A pod whose group is named only after the removed part is in it; what ran is there, and runs."""
    group, *pods = dsl.gang("a", 2, cpu=1, phase="Pending")
    async with scheduler(tmp_path / "log", CONF) as made:
        await begun(made)
        await made.show(dsl.gang("runs", 1, cpu=1, phase="Pending"))
        await session(made)
        await made.show(map(unnamed, pods))
        await made.checkpoint()
        made.clock.now += 10 * SECOND
        await made.show(dsl.queue("more"))
        await made.checkpoint()
        await made.log.retain(5 * SECOND, None, None)
        await made.show(group, pods)
        await session(made)
    with LogReader(tmp_path / "log") as reader:
        assert reader.oldest() > 0
    assert {key: (unit.group, bool(unit.node)) for key, unit in units(tmp_path / "log").items()} == {
        "a-0": ("default/a", False),
        "a-1": ("default/a", False),
        "runs-0": ("default/runs", True),
    }
    found = again(tmp_path / "log")
    assert waits(found, 0) == waits(found, 1) == {"a": 0}
    assert [run.running for run in found.runs] == [1, 1]


async def test_who_ran_before_the_log_has_no_wait_and_only_tells_how_long_it_ran_where_that_is_known(
    tmp_path: Path,
) -> None:
    """Of three that ran before it begins one says since when; one has ended, and is still there."""
    began = START - 60 * SECOND
    over, silent, running = (list(dsl.gang(name, 1, cpu=1, on=["n"])) for name in ("over", "silent", "running"))
    for each in (over, running):
        each[1]["status"]["startTime"] = rfc3339(began)
    over[1]["status"]["phase"] = "Succeeded"
    async with scheduler(tmp_path / "log", CONF) as made:
        await begun(made)
        await made.show(over, silent, running, dsl.gang("new", 1, cpu=1, phase="Pending"))
        await session(made)
        made.clock.now += 30 * SECOND
        for each in (silent, running):
            await made.show({**each[1], "status": {**each[1]["status"], "phase": "Succeeded"}})
        await session(made)
    work = work_of(tmp_path / "log")
    whole = {unit.key: unit for unit in work.units if unit.seen_whole}
    assert whole.keys() == {"default/running-0", "default/new-0"}
    ran = whole["default/running-0"].run
    assert ran == (whole["default/running-0"].ended or 0) - began > 90 * SECOND
    estimate = RunTimes.of(work).estimate(next(unit.pod for unit in work.units if unit.key == "default/silent-0"))
    assert estimate is not None
    assert (estimate.count, estimate.median) == (1, ran)
    found = again(tmp_path / "log")
    assert [(waits(found, run), found.runs[run].running) for run in (0, 1)] == [({"new": 0}, 3)] * 2
    assert (found.fidelity.jobs, found.fidelity.recorded, found.fidelity.far) == (1, 1, False)
    with history_of(tmp_path / "log") as history, pytest.raises(NotFound, match="default/running ran already when"):
        job_whatif(history, "default/running", queue="other")


# --- configurations ---------------------------------------------------------------------------------------------------


async def test_as_it_was_is_under_the_configurations_of_then(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log", CONF.replace(", allocate, backfill", "")) as made:
        await begun(made)
        await made.show(dsl.gang("a", 1, cpu=1, phase="Pending"))
        await session(made)
        made.clock.now += 20 * SECOND
        await made.load(CONF)
        await session(made)
    found = again(tmp_path / "log", Variant("grown", edits=read_edits(["node/n.status.allocatable.cpu=8"])))
    assert waits(found, 0) == waits(found, 1) == waits(found, 2) == {"a": 21}
    first = sweep(tmp_path / "log", [Variant("first", CONF.replace(", allocate, backfill", ""))], jobs=1)
    assert [run.name for run in first.runs] == ["first"]
    assert (first.runs[0].waits.never, first.fidelity.baseline, first.fidelity.far) == (1, 1, False)
