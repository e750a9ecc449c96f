"""If this is submitted now: on clusters where what follows can be worked out by hand."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests import dsl
from tests.dsl import Manifest
from tests.timetravel.histories import CONF, START, Scheduler, scheduler
from vcd.eventlog import EventLog, LogError, LogReader
from vcd.model import events as ev
from vcd.model.objects import PodGroup
from vcd.model.podgroups import QUEUE_ANNOTATION
from vcd.model.projection_codec import BadObject
from vcd.model.wording import SECOND
from vcd.scheduling.framework.policy import PolicyError
from vcd.state.cluster_state import ClusterState
from vcd.timetravel.planning import state_of
from vcd.timetravel.whatif.forecasts import Forecast, Span, Submission
from vcd.timetravel.whatif.logged_workload import Workload
from vcd.timetravel.whatif.present_workload import PresentWorkload, present
from vcd.timetravel.whatif.submission_forecast import eta, submit
from vcd.timetravel.whatif.submitted_groups import submitted
from vcd.timetravel.whatif.workloadreader import workload_of
from vcd.timetravel.workload_expansion import Work

MINUTE = 60 * SECOND
PLAIN = "actions: allocate\ntiers:\n- plugins:\n  - name: priority\n  - name: gang\n  - name: predicates\n"
PREEMPTING = PLAIN.replace("actions: allocate", 'actions: "allocate, preempt"')
HIGH = dsl.priority_class("high", 100)
URGENT = {"spec": {"priorityClassName": "high"}, "group_spec": {"priorityClassName": "high"}}


async def learn(made: Scheduler, *minutes: float) -> None:
    """Jobs ``work-0`` ... begin together on an empty cluster, run so long, and are gone."""
    names = [f"work-{number}" for number in range(len(minutes))]
    await made.show(*(dsl.gang(name, 1, cpu=1) for name in names))
    await made.carry_out(await made.cycle(seconds=0))
    began = made.clock.now
    for name, length in sorted(zip(names, minutes, strict=True), key=lambda one: one[1]):
        made.clock.now = began + round(length * MINUTE)
        await made.finish(f"default/{name}-0")
        await made.delete("Pod", f"default/{name}-0")
        await made.delete("PodGroup", f"default/{name}")
    await made.carry_out(await made.cycle(seconds=0))


async def begin(made: Scheduler, *objects: Manifest | Iterable[Manifest], minutes: float = 0) -> None:
    """More comes and is decided on; then so much time passes."""
    await made.show(*objects)
    await made.carry_out(await made.cycle(seconds=0))
    made.clock.now += round(minutes * MINUTE)
    await made.carry_out(await made.cycle(seconds=0))


async def one_node(made: Scheduler) -> None:
    await made.show(dsl.queue("root"), dsl.queue("default"), dsl.node("n", cpu=8), HIGH)


def after(found: Submission, span: Span | None) -> tuple[float, float, float, int]:
    """A span in minutes from the submission."""
    assert span is not None
    median, low, high = ((time - found.now) / MINUTE for time in (span.median, span.low, span.high))
    return median, low, high, span.runs


def only(found: Submission) -> Forecast:
    (job,) = found.jobs
    return job


async def test_it_starts_when_what_runs_has_run_its_time(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log", PLAIN) as made:
        await one_node(made)
        await learn(made, 10, 10, 10, 10, 10)
        await begin(made, dsl.gang("work-8", 2, cpu=4), minutes=4)
    found = submit(tmp_path / "log", dsl.flat([dsl.gang("work-9", 2, cpu=4)]), samples=3)
    assert found.now == START + 14 * MINUTE
    job = only(found)
    assert (job.placed, [why.reason for why in job.waits]) == (
        {},
        ["Insufficient cpu", "fewer tasks than the minimum"],
    )
    assert after(found, job.starts) == (6, 6, 6, 3)
    assert after(found, job.ends) == (16, 16, 16, 3)
    assert (job.runs_for.median, job.runs_for.of, job.runs_for.count) == (10 * MINUTE, "work named default/work*", 5)
    assert (found.evicted, found.delayed, job.never) == ([], [], [])


async def test_it_goes_at_once_where_there_is_room(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log", PLAIN) as made:
        await one_node(made)
        await learn(made, 10, 10, 10, 10, 10)
    found = submit(tmp_path / "log", [dsl.pod("work-9", cpu=1)], samples=2)
    job = only(found)
    assert (job.placed, job.waits, after(found, job.starts)) == ({"default/work-9": "n"}, [], (0, 0, 0, 2))
    assert list(found.lines()) == [
        "job default/work-9 starts 2026-01-01 00:10:00, after 0 s",
        "provided that no job arrives later (the log has too few arrivals to estimate a rate)",
        "as of 2026-01-01 00:10:00, after session 2; 2 runs of what follows",
        "job default/work-9 in queue default: 1 pod, at least 1 together",
        "  each runs 10 min (10 min to 16 min 40 s in four of five cases)",
        "  as work named default/work* that asks for the same (5 ended)",
        "  at once: work-9 to n",
        "  ends 2026-01-01 00:20:00, after 10 min",
    ]


async def test_run_times_that_differ_make_a_range(tmp_path: Path) -> None:
    # of seven (six, and the next) that have run for 4 minutes three end at 10 and three at 30: room comes after 6 or
    # 26, or later than ever before
    async with scheduler(tmp_path / "log", PLAIN) as made:
        await one_node(made)
        await learn(made, 10, 10, 10, 30, 30, 30)
        await begin(made, dsl.gang("work-8", 1, cpu=8), minutes=4)
    found = submit(tmp_path / "log", dsl.flat([dsl.gang("other", 1, cpu=8)]), samples=40)
    starts = only(found).starts
    assert starts is not None
    median, low, high, runs = after(found, starts)
    assert (low, runs) == (6, 40)
    assert 6 <= median <= 26 < high


async def test_a_longer_period_makes_times_coarser(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log", PLAIN) as made:
        await one_node(made)
        await learn(made, 10, 10, 10, 10, 10)
        await begin(made, dsl.gang("work-8", 1, cpu=8), minutes=4)
    done: list[int] = []
    job = dsl.flat([dsl.gang("work-9", 1, cpu=8)])
    found = submit(tmp_path / "log", job, samples=2, period=15 * MINUTE, progress=done.append)
    # at minute 14 there is no session: the first is at 15, and the room of minute 20 is seen at 30
    assert (after(found, only(found).starts), done) == ((16, 16, 16, 2), [1, 2])


async def test_what_ran_longer_already_is_not_taken_for_short(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log", PLAIN) as made:
        await one_node(made)
        await learn(made, 10, 10, 10, 30, 30, 30)
        await begin(made, dsl.gang("work-8", 1, cpu=8), minutes=20)
    found = submit(tmp_path / "log", dsl.flat([dsl.gang("other", 1, cpu=8)]), samples=5)
    assert after(found, only(found).starts)[:2] == (10, 10)


async def test_who_waits_longer_because_of_it_is_told(tmp_path: Path) -> None:
    # 11 and 12 wait for the room of what runs; the urgent one goes before them and takes 10 minutes
    async with scheduler(tmp_path / "log", PLAIN) as made:
        await one_node(made)
        await learn(made, 10, 10, 10, 10, 10)
        await begin(made, dsl.gang("work-8", 1, cpu=8), minutes=4)
        await begin(made, dsl.gang("work-11", 1, cpu=8), dsl.gang("work-12", 1, cpu=4, created=1))
    found = submit(tmp_path / "log", dsl.flat([dsl.gang("urgent", 1, cpu=8, **URGENT)]), samples=3)
    assert after(found, only(found).starts) == (6, 6, 6, 3)
    assert [(delay.job, delay.queue, delay.by) for delay in found.delayed] == [
        ("default/work-11", "default", 10 * MINUTE),
        ("default/work-12", "default", 10 * MINUTE),
    ]
    assert list(found.lines())[-2:] == [
        "waits longer for it: default/work-11 (queue default) 6 min -> 16 min: cluster full: 0 of 8 cpu free",
        "waits longer for it: default/work-12 (queue default) 16 min -> 26 min: cluster full: 0 of 8 cpu free",
    ]


async def test_who_comes_later_in_order_delays_nobody(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log", PLAIN) as made:
        await one_node(made)
        await learn(made, 10, 10, 10, 10, 10)
        await begin(made, dsl.gang("work-8", 1, cpu=8), minutes=4)
        await begin(made, dsl.gang("work-11", 1, cpu=8))
    found = submit(tmp_path / "log", dsl.flat([dsl.gang("work-9", 1, cpu=8)]), samples=2)
    assert (after(found, only(found).starts)[1], found.delayed) == (16, [])


async def test_who_would_be_evicted_for_it_is_told(tmp_path: Path) -> None:
    # one of the two goes at once, waits until the urgent one has run its 10 minutes, and runs again
    async with scheduler(tmp_path / "log", PREEMPTING) as made:
        await one_node(made)
        await learn(made, 10, 10, 10, 10, 10)
        await begin(made, dsl.gang("work-8", 2, members=1, cpu=4), minutes=4)
    found = submit(tmp_path / "log", dsl.flat([dsl.gang("urgent", 1, cpu=4, **URGENT)]), samples=2)
    (victim,) = found.evicted
    assert (victim.job, victim.runs) == ("default/work-8", 2)
    assert victim.pod in ("default/work-8-0", "default/work-8-1")
    assert "default/urgent" in victim.reason
    assert after(found, only(found).starts) == (0, 0, 0, 2)
    assert f"evicted for it in 2 of 2 runs: {victim.pod} of job default/work-8: {victim.reason}" in list(found.lines())


async def evicted_and_back(made: Scheduler) -> None:
    """A node of 15 cpu, on which ``owner`` has a pod of 6 cpu, for which one of ``work-8`` was evicted, and waits with
    one of 7 cpu. The evicted pod has come back, and runs where another job ended; 1 cpu is idle."""
    await made.show(dsl.queue("root"), dsl.queue("default"), dsl.node("n", cpu=15), HIGH)
    await learn(made, 10, 10, 10, 10, 10)
    urgent = [dsl.gang("long", 1, cpu=6, **URGENT), dsl.gang("short", 1, cpu=1, **URGENT)]
    work = dsl.flat([dsl.gang("work-8", 2, members=1, cpu=6)])
    owner = dsl.flat([dsl.gang("owner", 2, members=1, **URGENT)])
    for pod, cpu in ((work[2], "2"), (owner[1], "6"), (owner[2], "7")):
        pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu
    await begin(made, *urgent, work, minutes=1)
    await begin(made, owner, minutes=1)
    work[1]["metadata"]["uid"] = "it is back"
    for name, more in (("long", [work[1]]), ("short", [])):
        await made.finish(f"default/{name}-0")
        await made.delete("Pod", f"default/{name}-0")
        await made.delete("PodGroup", f"default/{name}")
        await begin(made, more, minutes=1)


@pytest.mark.parametrize(("cpu", "starts"), [(7, 8), (5, 0)])
async def test_who_was_evicted_before_and_is_back_is_spared_in_forecasts_too(
    tmp_path: Path, cpu: int, starts: int
) -> None:
    """For a job like the owner, which still waits: work-8 runs its 10 minutes out. Not for one that asks for less."""
    async with scheduler(tmp_path / "log", PREEMPTING) as made:
        await evicted_and_back(made)
        await made.show(dsl.gang("late", 1, cpu=cpu, created=1, **URGENT))
    found = eta(tmp_path / "log", "default/late", samples=3)
    assert after(found, only(found).starts)[:2] == (starts, starts)


async def test_what_is_submitted_has_evicted_who_is_back_after_an_eviction_for_another_job(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log", PREEMPTING) as made:
        await evicted_and_back(made)
    found = submit(tmp_path / "log", dsl.flat([dsl.gang("late", 1, cpu=5, **URGENT)]), samples=3)
    assert [victim.pod for victim in found.evicted] == ["default/work-8-0"]


async def test_what_never_starts_says_why(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log", PLAIN) as made:
        await one_node(made)
        await learn(made, 10)
    found = submit(tmp_path / "log", dsl.flat([dsl.gang("huge", 1, cpu=9)]), samples=2)
    job = only(found)
    assert (job.starts, job.ends) == (None, None)
    assert [(why.gate, why.reason, why.nodes) for why in job.never][:2] == [
        ("predicate", "a pod of the group is larger than any node", 0),
        ("predicate", "Insufficient cpu", 1),
    ]
    assert (
        "job default/huge never starts: it waits: huge-0: "
        "a pod of the group is larger than any node (largest node 8 cpu, needs 9 cpu);" in next(found.lines())
    )


@pytest.mark.parametrize(
    ("running", "named"), [(1, "default/first-0"), (4, "default/first-0, default/first-1 and 2 more")]
)
async def test_a_start_that_unknown_run_times_decide_cannot_be_told(tmp_path: Path, running: int, named: str) -> None:
    """Nothing like what runs has ended; of other work much has."""
    async with scheduler(tmp_path / "log", PLAIN) as made:
        await one_node(made)
        await learn(made, 10, 10, 10, 10, 10)
        work = [dsl.gang(f"first-{number}", 1, cpu=8 // running) for number in range(running)]
        await begin(made, *work, minutes=6)
    found = submit(tmp_path / "log", dsl.flat([dsl.gang("next", 1, cpu=8)]), samples=2)
    assert next(found.lines()) == f"job default/next: cannot be told: nothing like {named} has ended yet"
    assert any(caveat == f"{named} do not end: nothing like them has ended yet" for caveat in found.caveats)


async def test_a_start_beside_unknown_run_times_can_be_told(tmp_path: Path) -> None:
    """What is known to end frees enough."""
    async with scheduler(tmp_path / "log", PLAIN) as made:
        await one_node(made)
        await learn(made, 10, 10, 10, 10, 10)
        await begin(made, dsl.gang("first", 1, cpu=4), dsl.gang("work-8", 1, cpu=4), minutes=4)
    found = submit(tmp_path / "log", dsl.flat([dsl.gang("work-9", 1, cpu=4)]), samples=2)
    assert 6 <= after(found, only(found).starts)[0] < 10
    assert "default/first do not end: nothing like them has ended yet" in found.caveats


async def test_it_may_be_submitted_after_an_earlier_session(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log", PLAIN) as made:
        await one_node(made)
        await learn(made, 10, 10, 10, 10, 10)  # sessions 1 and 2
        await begin(made, dsl.gang("work-8", 1, cpu=8), minutes=4)  # sessions 3 and 4
        await begin(made, minutes=6)
    path, job = tmp_path / "log", dsl.flat([dsl.gang("new", 1, cpu=8)])
    starts = [only(found).starts for n in (2, 3, 4) if (found := submit(path, job, samples=1, session=n))]
    assert [(span.median - START) / MINUTE for span in starts if span] == [10, 20, 20]
    with pytest.raises(LogError, match="session 99 is not in it"):
        submit(path, job, session=99)


async def test_what_only_a_later_part_of_the_log_shows_is_not_known_before(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log", PLAIN) as made:
        await one_node(made)
        await begin(made, dsl.gang("first", 1, cpu=8), minutes=5)
        await made.finish("default/first-0")
    job = dsl.flat([dsl.gang("next", 1, cpu=8)])
    assert only(submit(tmp_path / "log", job, samples=1, session=2)).runs_for.count == 0
    assert only(submit(tmp_path / "log", job, samples=1)).runs_for.count == 1


async def test_another_configuration_may_be_asked(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log", PLAIN) as made:
        await one_node(made)
        await made.show(dsl.queue("small", capability={"cpu": "2"}))
        await learn(made, 10)
    path, job = tmp_path / "log", dsl.flat([dsl.gang("new", 1, cpu=4, queue="small")])
    assert only(submit(path, job, samples=1)).placed == {"default/new-0": "n"}
    refused = only(submit(path, job, samples=1, conf=CONF))
    assert (refused.starts, refused.never[0].plugin) == (None, "proportion")
    with pytest.raises(PolicyError, match="did you mean allocate"):
        submit(path, job, conf="actions: allocat\n")


async def test_groups_whose_pods_are_not_made_yet_take_their_minimum(tmp_path: Path) -> None:
    # the group asks for all 8 before, and its pods are made when it is admitted
    async with scheduler(tmp_path / "log", PLAIN) as made:
        await one_node(made)
        await learn(made, 10, 10, 10, 10, 10)
        await begin(made, dsl.group("work-7", members=2, minimum={"cpu": 8}))
    found = submit(tmp_path / "log", dsl.flat([dsl.gang("work-9", 1, cpu=8)]), samples=2)
    assert after(found, only(found).starts) == (10, 10, 10, 2)
    assert any("1 group (default/work-7) without pods yet" in note for note in found.notes)


async def test_the_same_question_has_the_same_answer(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log", PLAIN) as made:
        await one_node(made)
        await learn(made, 1, 2, 3, 5, 8, 13)
        await begin(made, dsl.gang("work-8", 1, cpu=8))
    job = dsl.flat([dsl.gang("new", 1, cpu=8)])
    first, again, other = (submit(tmp_path / "log", job, samples=9, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first.jobs != other.jobs


# --- the present ------------------------------------------------------------------------------------------------------


def going_on(path: Path, session: int | None = None) -> Workload:
    with LogReader(path) as reader:
        here = present(reader, session)
        return PresentWorkload(reader, here, workload_of(reader, until=here.sequence)).workload()


def stands(work: Workload) -> dict[str, tuple[str, float | None]]:
    """Where each unit is, and since when in minutes from the beginning of the log."""
    return {
        unit.key.partition("/")[2]: (unit.node, None if unit.bound is None else (unit.bound - START) / MINUTE)
        for unit in work.units
    }


async def test_what_runs_and_waits_is_work(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log", PLAIN) as made:
        await one_node(made)
        await begin(made, dsl.gang("first", 1, cpu=5), minutes=3)
        await begin(made, dsl.gang("second", 2, members=1, cpu=3), minutes=2)
    assert stands(going_on(tmp_path / "log")) == {
        "first-0": ("n", 0),
        "second-0": ("n", 3),
        "second-1": ("", None),
    }


async def test_what_is_decided_and_not_shown_yet_counts(tmp_path: Path) -> None:
    # one bind and one eviction are decided: what goes comes again
    async with scheduler(tmp_path / "log", PREEMPTING) as made:
        await one_node(made)
        await begin(made, dsl.gang("low", 2, members=1, cpu=3), minutes=1)
        await made.show(dsl.gang("small", 1, cpu=2, created=1), dsl.gang("urgent", 1, cpu=3, **URGENT))
        record = await made.cycle()
        await made.show(dsl.pod("low-1", group="low", cpu=3, on="n", deleting=True))
    operations = [one for statement in ev.decode_plan(record.plan).statements for one in statement.operations]
    assert sorted((one.verb, one.key) for one in operations) == [
        ("bind", "default/small-0"),
        ("evict", "default/low-1"),
        ("pipeline", "default/urgent-0"),
    ]
    for session in (record.session, None):
        assert stands(going_on(tmp_path / "log", session)) == {
            "low-0": ("n", 0),
            "low-1": ("", None),
            "small-0": ("n", 1),
            "urgent-0": ("", None),
        }


async def test_what_has_ended_leaves_or_stays_for_ever_is_no_work(tmp_path: Path) -> None:
    agent = dsl.pod("agent", on="n", cpu=1)
    agent["metadata"]["ownerReferences"] = [{"kind": "DaemonSet", "name": "agent", "controller": True}]
    async with scheduler(tmp_path / "log", PLAIN) as made:
        await one_node(made)
        await begin(made, dsl.gang("pair", 2, cpu=1), agent, minutes=1)
        await made.finish("default/pair-0")
        await made.show(dsl.pod("leaving", on="n", cpu=1, deleting=True), dsl.pod("stray", cpu=1))
    work = going_on(tmp_path / "log")
    assert stands(work) == {"pair-1": ("n", 0)}
    pods = [event.key for event in work.base if isinstance(event, ev.ObjectPut) and event.kind == "Pod"]
    assert pods == ["default/agent", "default/pair-0", "default/stray"]


async def test_an_empty_log_has_no_present(tmp_path: Path) -> None:
    async with EventLog.open(tmp_path / "log"):
        pass
    with pytest.raises(LogError, match="it is empty"):
        submit(tmp_path / "log", [dsl.pod("p")])


# --- manifests --------------------------------------------------------------------------------------------------------

CONTAINERS = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}


def made(*manifests: Manifest, state: ClusterState | None = None) -> Work:
    return submitted(manifests, state or state_of([HIGH]), "2026-01-01T00:00:00Z")


def volcano_job(*tasks: Manifest, **spec: Any) -> Manifest:
    spec["tasks"] = [{"template": {"spec": CONTAINERS}, **task} for task in tasks]
    return {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "train"}, "spec": spec}


def workload(kind: str, group: str, **spec: Any) -> Manifest:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": CONTAINERS}
    return {
        "apiVersion": f"{group}/v1",
        "kind": kind,
        "metadata": {"name": "web"},
        "spec": {"template": template, **spec},
    }


def group_of(found: Work) -> PodGroup:
    (group,) = found.groups
    return group


def test_a_volcano_job_becomes_a_group_and_its_tasks_pods() -> None:
    found = made(
        volcano_job(
            {"name": "ps", "replicas": 1}, {"name": "worker", "replicas": 3, "minAvailable": 2}, queue="research"
        )
    )
    group = group_of(found)
    assert [pod.metadata.name for pod in found.pods] == [
        "train-ps-0",
        "train-worker-0",
        "train-worker-1",
        "train-worker-2",
    ]
    assert {pod.metadata.annotations["scheduling.k8s.io/group-name"] for pod in found.pods} == {group.metadata.name}
    assert (group.spec.queue, group.spec.min_member, group.spec.min_task_member) == (
        "research",
        3,
        {"ps": 1, "worker": 2},
    )
    assert (group.spec.min_resources or {})["cpu"] == "6"
    assert found.pods[3].metadata.annotations["volcano.sh/task-spec"] == "worker"
    assert found.pods[0].spec.scheduler_name == "volcano"  # as the Job's webhook fills in


def test_less_than_the_tasks_minima_counts_replicas_in_order() -> None:
    job = volcano_job({"name": "a", "replicas": 3}, {"name": "b", "replicas": 3}, minAvailable=4)
    group = group_of(made(job))
    assert (group.spec.min_member, (group.spec.min_resources or {})["cpu"]) == (4, "8")


@pytest.mark.parametrize(
    ("manifest", "pods", "minimum"),
    [
        (workload("Deployment", "apps", replicas=3), 3, 1),
        (workload("Deployment", "apps"), 1, 1),
        (workload("Job", "batch", parallelism=4), 4, 1),
        (workload("Job", "batch", parallelism=4, completions=2), 2, 1),
    ],
)
def test_workloads_become_one_group(manifest: Manifest, pods: int, minimum: int) -> None:
    found = made(manifest)
    assert (len(found.pods), group_of(found).spec.min_member) == (pods, minimum)
    assert [pod.metadata.labels["app"] for pod in found.pods] == ["web"] * pods


def test_a_workload_may_state_its_minimum() -> None:
    manifest = workload("Deployment", "apps", replicas=3)
    manifest["metadata"]["annotations"] = {"scheduling.volcano.sh/group-min-member": "2", "volcano.sh/x": "y"}
    group = group_of(made(manifest))
    assert (group.spec.min_member, (group.spec.min_resources or {})["cpu"]) == (2, "4")
    assert group.metadata.annotations == {"volcano.sh/x": "y"}


def test_completions_that_come_later_are_said_to_be_left_out() -> None:
    found = made(workload("Job", "batch", parallelism=2, completions=9))
    assert (len(found.pods), found.notes) == (
        2,
        ["Job default/web runs 2 of its 9 completions at a time; only the first 2 are considered"],
    )


def test_what_an_api_server_fills_in_is_filled_in() -> None:
    pod = dsl.pod("p", spec={"priorityClassName": "high"}, on="n")
    pod["spec"]["containers"] = [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": 1, "cpu": "4"}}}]
    (made_pod,) = made(pod).pods
    assert made_pod.spec.containers[0].resources.requests == {"nvidia.com/gpu": 1, "cpu": "4"}
    assert (made_pod.spec.priority, made_pod.spec.node_name, made_pod.status.phase) == (100, "", "Pending")
    state = ClusterState()  # serves pods whose scheduler is volcano
    assert made(workload("Deployment", "apps"), state=state).pods[0].spec.scheduler_name == "volcano"


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        (
            {"kind": "DaemonSet", "metadata": {"name": "x"}},
            "DaemonSet default/x: spec.template has no spec.containers",
        ),
        ({"kind": "Pod", "metadata": {}}, "Pod [(]no name[)]: it has no metadata.name"),
        ({"kind": "Pod", "metadata": {"name": "x", "labels": []}, "spec": 3}, "Pod default/x: Expected `object`"),
        ({**workload("Job", "example.com")}, "Job of API group example.com is not understood"),
        (volcano_job({"replicas": "many"}), r"Job default/train: spec.tasks\[0\].replicas: Expected `int`"),
        (volcano_job({"replicas": 1}, minAvailable=2), "spec.minAvailable is 2, more than the 1 replicas of its tasks"),
        (volcano_job({"replicas": 1, "minAvailable": 3}), r"spec.tasks\[0\]: minAvailable 3 of 1 replicas"),
        (
            volcano_job({"replicas": 1, "partitionPolicy": {}}),
            r"spec.tasks\[0\].partitionPolicy.partitionSize is below 1",
        ),
        (volcano_job({"replicas": 1, "template": {"spec": {}}}), r"spec.tasks\[0\].template has no spec.containers"),
        (volcano_job(), "the submitted manifests have no pod"),
        (volcano_job({"replicas": 1}, priorityClassName="top"), "there is no PriorityClass top; add it"),
        (dsl.pod("there"), "Pod default/there: the cluster already has an object of that name"),
    ],
)
def test_what_cannot_be_submitted_is_named(manifest: Manifest, message: str) -> None:
    with pytest.raises(BadObject, match=message):
        made(manifest, state=state_of([dsl.pod("there")]))


def test_a_job_of_a_name_that_is_taken_is_refused_though_its_pods_are_not_made_yet() -> None:
    group = dsl.group("train-8c1f2a3b-0000-1111-2222-333344445555", members=1)
    owner = {"kind": "Job", "apiVersion": "batch.volcano.sh/v1alpha1", "name": "train", "uid": "u", "controller": True}
    group["metadata"]["ownerReferences"] = [owner]
    job = volcano_job({"name": "a", "replicas": 1})
    with pytest.raises(
        BadObject, match="Job default/train: the cluster already has an object of that name; submit it under"
    ):
        made(job, state=state_of([group]))
    job["metadata"]["name"] = "train-2"
    assert len(made(job, state=state_of([group])).pods) == 1


def test_nothing_is_submitted_twice() -> None:
    found = made(dsl.pod("p"), dsl.pod("p"))
    assert (len(found.pods), found.refused) == (1, ["Pod default/p: it is given twice; leave one out"])


def test_what_can_be_submitted_is_beside_what_cannot() -> None:
    found = made(
        dsl.pod("p"),
        dsl.pod("lost", group="gone"),
        {"apiVersion": "x.com/v1", "kind": "Foo", "metadata": {"name": "f"}},
    )
    assert [pod.key for pod in found.pods] == ["default/p"]
    assert [line.partition(":")[0] for line in [*found.refused, *found.unknown]] == [
        "there is no PodGroup default/gone",
        "Foo of API group x.com is not understood",
    ]


def test_a_submission_brings_its_queue_class_and_namespace() -> None:
    space = {"kind": "Namespace", "metadata": {"name": "team", "annotations": {QUEUE_ANNOTATION: "own"}}}
    pod = dsl.pod("p", namespace="team", spec={"priorityClassName": "high"})
    found = made(dsl.queue("own"), dsl.priority_class("high", 7), space, pod)
    assert [(event.kind, event.key) for event in found.others] == [
        ("Namespace", "team"),
        ("PriorityClass", "high"),
        ("Queue", "own"),
    ]
    assert (found.pods[0].spec.priority, group_of(found).spec.queue) == (7, "own")


async def test_the_queue_of_a_submission_replaces_the_clusters(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log", CONF) as made:
        await one_node(made)
        await begin(made)
    own = dsl.queue("default", capability={"cpu": "1"})
    work = [dsl.pod(name, cpu=1) for name in "ab"]
    assert [len(job.placed) for job in submit(tmp_path / "log", work).jobs] == [1, 1]
    assert sum(len(job.placed) for job in submit(tmp_path / "log", [own, *work]).jobs) == 1


def test_what_is_passed_over_is_said() -> None:
    tasks = {"name": "a", "replicas": 1, "dependsOn": {"name": ["b"]}}, {"name": "b", "replicas": 1}
    job = volcano_job(*tasks, volumes=[{"mountPath": "/data", "volumeClaimName": "data"}])
    assert made(job).notes == [
        "dependsOn of job train is ignored: all its pods are created at once",
        "volumes of job train are ignored",
    ]


async def test_a_gate_of_its_queue_is_lifted_in_what_follows(tmp_path: Path) -> None:
    gate = "scheduling.volcano.sh/queue-allocation-gate"
    async with scheduler(tmp_path / "log", PLAIN) as made:
        await one_node(made)
        await learn(made, 10, 10, 10, 10, 10)
    held = dsl.pod("work-9", cpu=1, annotations={gate: "true"}, spec={"schedulingGates": [{"name": gate}]})
    job = only(submit(tmp_path / "log", [held], samples=2))
    assert job.starts is not None and job.starts.runs == 2
