"""The pods that groups get which have none yet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests import dsl
from tests.timetravel.histories import scheduler
from tests.timetravel.test_submission_forecast import PLAIN
from vcd.eventlog import LogReader
from vcd.model.objects import PodGroup
from vcd.model.projection_codec import from_manifest
from vcd.timetravel.whatif.expectedpods import ExpectedPods
from vcd.timetravel.whatif.logged_workload import Unit
from vcd.timetravel.whatif.present_workload import present
from vcd.timetravel.whatif.workloadreader import workload_of

TASK = "volcano.sh/task-spec"
GROUP = "scheduling.k8s.io/group-name"


def a_group(name: str, marks: dict[str, str] | None = None, **spec: Any) -> PodGroup:
    meta = {"name": name, "namespace": "default", "uid": name, "annotations": marks or {}}
    group = from_manifest({"kind": "PodGroup", "metadata": meta, "spec": spec})[1]
    assert isinstance(group, PodGroup)
    return group


async def meant(path: Path, *objects: dsl.Manifest) -> ExpectedPods:
    """What a log with these objects speaks for."""
    async with scheduler(path, PLAIN) as made:
        await made.show(dsl.queue("root"), dsl.queue("default"), dsl.node("n", cpu=8), *objects)
        await made.carry_out(await made.cycle(seconds=0))
    with LogReader(path) as reader:
        return ExpectedPods(workload_of(reader), present(reader, None).state)


def told(units: list[Unit]) -> list[tuple[str, str, int]]:
    """Name, task and cpu (thousandths) of each."""
    return [(one.key, one.pod.metadata.annotations.get(TASK, ""), one.requests["cpu"]) for one in units]


async def test_pods_are_as_the_minimum_says_with_a_task_each(tmp_path: Path) -> None:
    spec = {"minMember": 3, "minTaskMember": {"worker": 2, "master": 1}, "minResources": {"cpu": "7"}}
    units = (await meant(tmp_path / "log")).units(a_group("train", **spec), 5)
    assert told(units) == [
        ("default/train-0", "master", 2334),  # a third, rounded up
        ("default/train-1", "worker", 2334),
        ("default/train-2", "worker", 2334),
    ]
    assert {(one.group, one.arrived, one.pod.spec.scheduler_name) for one in units} == {("default/train", 5, "volcano")}


async def test_those_that_no_task_speaks_of_have_none(tmp_path: Path) -> None:
    spec = {"minMember": 3, "minTaskMember": {"master": 1}, "minResources": {"cpu": "3"}}
    found = told((await meant(tmp_path / "log")).units(a_group("train", **spec), 5))
    assert [task for _, task, _ in found] == ["master", "", ""]


async def test_a_group_that_says_nothing_of_its_pods_has_none(tmp_path: Path) -> None:
    found = await meant(tmp_path / "log")
    assert found.units(a_group("train", minMember=3), 5) == []
    assert found.units(a_group("train", minResources={"cpu": "3"}, minMember=0), 5) == []
    assert found.units(a_group("train", minResources={"cpu": "none"}, minMember=1), 5) == []


def two_tasks(name: str, few: str, many: str) -> list[dsl.Manifest]:
    """A group of a pod of 3 cpu and two of 1, of tasks with these names."""
    group, *pods = dsl.gang(name, 3, members=3, cpu=1)
    group["spec"] |= {"minTaskMember": {few: 1, many: 2}, "minResources": {"cpu": "5"}}
    pods[0]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "3"
    for pod, task in zip(pods, (few, many, many), strict=True):
        pod["metadata"]["annotations"][TASK] = task
    return [group, *pods]


async def test_a_group_gets_such_pods_as_the_last_that_asked_the_same_under_its_own_names(tmp_path: Path) -> None:
    found = await meant(tmp_path / "log", *two_tasks("job-a", "head", "hand"))
    spec = {"minMember": 3, "queue": "default", "minTaskMember": {"boss": 1, "crew": 2}, "minResources": {"cpu": "5"}}
    units = found.units(a_group("job-b", **spec), 5)
    assert told(units) == [
        ("default/job-b-0", "boss", 3000),
        ("default/job-b-1", "crew", 1000),
        ("default/job-b-2", "crew", 1000),
    ]
    assert {one.pod.metadata.annotations[GROUP] for one in units} == {"job-b"}


async def test_what_asked_for_something_else_is_no_template(tmp_path: Path) -> None:
    found = await meant(tmp_path / "log", *two_tasks("job-a", "head", "hand"))
    spec = {"minMember": 3, "queue": "default", "minTaskMember": {"boss": 1, "crew": 2}, "minResources": {"cpu": "6"}}
    assert [cpu for _, _, cpu in told(found.units(a_group("job-b", **spec), 5))] == [2000, 2000, 2000]
