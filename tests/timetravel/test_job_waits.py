"""How long a job waited for what: one fold for the verdict, the cluster's causes and the daemon."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import msgspec
import pytest

from tests import dsl
from tests.timetravel.histories import Scheduler, scheduler, write_busy_history, write_takeover
from tests.timetravel.questions import explain_queue, first_causes, verdict
from tests.timetravel.test_counterfactual import CAPACITY, PLAIN, running
from vcd.api import explain
from vcd.diagnosis.loggedtimeline import read_timeline, waiting_at
from vcd.model import events as ev
from vcd.model.events import decode_plan
from vcd.model.reasons import Reason
from vcd.scheduling.framework.declared_reasons import all_told
from vcd.text.reason_sentences import gates_text
from vcd.timetravel.history import opened
from vcd.timetravel.query_errors import NotFound
from vcd.timetravel.why.job_waits import waits_of


async def pass_time(made: Scheduler, seconds: float) -> None:
    await made.carry_out(await made.cycle(seconds=seconds))


async def test_a_wait_after_a_run_is_another_one(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log", PLAIN) as made:
        await made.show(dsl.queue("root"), dsl.queue("default"), dsl.node("n1", cpu=8), running("x", 1, "n1", cpu=4))
        await made.show(dsl.gang("train", 1, cpu=8))
        await pass_time(made, 11_000)
        await made.delete("Pod", "default/x-0")
        await made.delete("PodGroup", "default/x")
        await pass_time(made, 5_000)  # it runs
        await made.delete("Pod", "default/train-0")
        await pass_time(made, 10)
        await made.show(dsl.node("n1", cpu=8, unschedulable=True), dsl.pod("train-0", group="train", cpu=8))
        await pass_time(made, 120)
        await pass_time(made, 0)
    found = verdict(tmp_path / "log", "train")
    assert found.text.startswith("train waits 2 min: ")
    assert (found.cause, found.waited, found.share, found.since) == (
        "unschedulable-node", 120, 1, "2026-01-01T04:26:50.000Z",
    )  # fmt: skip
    assert (found.earlier, found.earlier_waited) == (1, 11_000)
    # for what the cluster lost both count
    assert {one.cause: one.hours * 3600 for one in first_causes(tmp_path / "log").causes} == pytest.approx(
        {"cluster-full": 11_000, "unschedulable-node": 120}
    )


async def test_a_group_that_cannot_be_read_waits_for_nothing(tmp_path: Path) -> None:
    """What it waits for once it can is another wait, and no session between is asked about."""
    async with scheduler(tmp_path / "log", PLAIN) as made:
        await made.show(dsl.queue("root"), dsl.queue("default"), dsl.node("n1", cpu=4), dsl.gang("a", 1, cpu=8))
        await pass_time(made, 10)
        await made.tell(ev.ObjectBad("PodGroup", "default/a", "2", "spec: not an object"))
        await pass_time(made, 100)
        await made.show(dsl.group("a"))
        await pass_time(made, 1000)
    found = verdict(tmp_path / "log", "a")
    assert (found.waited, found.earlier, found.earlier_waited) == (1000, 1, 10)
    waits = [one for one in explain(tmp_path / "log", "job", "a").episodes if one.what == "waited"]
    assert [one.text.partition(" at ")[0] for one in waits] == ["waited 10 s", "waits"]
    assert [job.seconds for job in explain_queue(tmp_path / "log", "default").longest] == [1010]


async def test_a_group_that_went_while_a_session_decided_did_not_wait(tmp_path: Path) -> None:
    """The session states reasons of it, and no state holds them; no reader has them."""
    log = tmp_path / "log"
    async with scheduler(log, PLAIN) as made:
        await made.show(dsl.queue("root"), dsl.queue("default"), dsl.node("n1", cpu=4), dsl.gang("a", 1, cpu=8))
        await made.cycle(ev.ObjectGone("PodGroup", "default/a"), seconds=10)
        await pass_time(made, 100)
    assert made.state.waiting == {}
    with pytest.raises(NotFound, match="waits in none"):
        verdict(log, "a")
    assert "waited" not in [one.what for one in explain(log, "job", "a").episodes]
    assert (explain_queue(log, "default").waited, first_causes(log).jobs) == (0, 0)


async def test_a_remark_alone_is_no_wait(tmp_path: Path) -> None:
    log, remark = tmp_path / "log", ev.Waiting("default/a", "preempt", "", Reason("never-evicts"))
    async with scheduler(log, PLAIN) as made:
        await made.show(dsl.queue("root"), dsl.queue("default"), dsl.node("n1", cpu=4), dsl.gang("a", 1, cpu=8))
        await made.cycle(seconds=10, forge=lambda plan: msgspec.structs.replace(plan, waiting=(remark,)))
    assert made.state.waiting == {"default/a": (remark,)}
    assert "waited" not in [one.what for one in explain(log, "job", "a").episodes]
    assert (explain_queue(log, "default").waited, first_causes(log).jobs) == (0, 0)


async def test_a_job_that_has_completed_waits_for_no_pods(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log", PLAIN) as made:
        await made.show(dsl.queue("root"), dsl.queue("default"), dsl.node("n1", cpu=8), dsl.gang("a", 2, cpu=1))
        await pass_time(made, 1)
        for pod in ("default/a-0", "default/a-1"):
            await made.finish(pod)
        await pass_time(made, 1)
        for pod in ("default/a-0", "default/a-1"):
            await made.delete("Pod", pod)
        await pass_time(made, 60)
        await pass_time(made, 1)
        with pytest.raises(NotFound, match="waits in none"):
            verdict(tmp_path / "log", "a")
        # it is started again, and its pods are lost
        await made.show(dsl.pod("a-0", group="a", cpu=1), dsl.pod("a-1", group="a", cpu=1))
        await pass_time(made, 1)
        for pod in ("default/a-0", "default/a-1"):
            await made.delete("Pod", pod)
        await pass_time(made, 1)
        assert verdict(tmp_path / "log", "a").cause == "pods-missing"


async def test_who_has_the_name_of_a_deleted_job_did_not_wait_as_that(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log", PLAIN) as made:
        await made.show(dsl.queue("root"), dsl.queue("default"), dsl.node("n1", cpu=8), dsl.gang("a", 1, cpu=9))
        await pass_time(made, 1000)
        await made.delete("Pod", "default/a-0")
        await made.delete("PodGroup", "default/a")
        await made.show(dsl.gang("a", 1, cpu=10, created=1000))
        await pass_time(made, 20)
        await pass_time(made, 0)
    found = verdict(tmp_path / "log", "a")
    assert (found.waited, found.earlier) == (20, 0)
    assert first_causes(tmp_path / "log").hours * 3600 == pytest.approx(1020)


async def moved_between_queues(path: Path) -> None:
    """A job waits 50 s in a closed queue, and 20 s behind the capability of each of four others."""
    async with scheduler(path, CAPACITY) as made:
        await made.show(dsl.queue("root"), dsl.queue("default"), dsl.node("n1", cpu=80))
        await made.show(dsl.queue("shut", state="Closed"))
        queues = ["a", "b", "c", "d"]
        await made.show([dsl.queue(name, capability={"cpu": f"{cpu}"}) for cpu, name in enumerate(queues, 2)])
        (group, pod) = dsl.gang("train", 1, cpu=8, phase="Pending", queue="shut", minimum={"cpu": 8})
        await made.show(group, pod)
        await made.cycle(seconds=50)
        for name in queues:
            await made.show({**group, "spec": {**group["spec"], "queue": name}})
            await made.cycle(seconds=20 if name != "b" else 21)
        await made.cycle(seconds=0)


async def test_many_kinds_of_reasons_with_one_cause_are_looked_into(tmp_path: Path) -> None:
    await moved_between_queues(tmp_path / "log")
    found = verdict(tmp_path / "log", "train")
    assert (found.cause, found.share, found.looked) == ("queue-capability", round(81 / 131, 3), 1)
    # the sentence is about the last queue, in which it waits for the same cause
    assert found.subject == {"queue": "d", "field": "spec.capability.cpu"}
    assert found.amounts == {"cpu": {"asks": 8000, "has": 0, "limit": 5000}}


async def test_what_was_not_looked_into_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vcd.diagnosis.dominant_cause._MOST", 2)
    await moved_between_queues(tmp_path / "log")
    found = verdict(tmp_path / "log", "train")
    assert found.looked == pytest.approx(0.53, abs=0.005)


@pytest.mark.parametrize("name", ["busy", "takeover"])
async def test_the_daemon_reads_from_a_log_what_explain_reads(tmp_path: Path, name: str) -> None:
    await (write_busy_history if name == "busy" else write_takeover)(tmp_path / name)
    with opened(tmp_path / name) as history:
        reader, end = history.reader, history.reader.last_time()
        groups = sorted({logged.event.key for logged in reader.find(kind="PodGroup", type="put")})  # type: ignore[union-attr]
        nobody = [f"default/nobody-{number}" for number in range(9)]  # of so many groups, each session is read
        timeline = read_timeline(reader, [*groups, *nobody], partial(waiting_at, reader))
        assert {read_timeline(reader, [group], partial(waiting_at, reader)).last for group in groups} == {timeline.last}
        told = {group: timeline.waits(group, end) for group in groups}
        assert told == {group: waits_of(history, group) for group in groups}
        lost = sum(held.lost for of in told.values() for one in of for held in one.held().values())
        assert any(told.values()) and lost > 0
        assert read_timeline(reader, (), partial(waiting_at, reader)).jobs == {}


async def test_a_takeover_ends_a_wait_that_the_other_replica_does_not_know(tmp_path: Path) -> None:
    await write_takeover(tmp_path / "log")
    with opened(tmp_path / "log") as history:
        (wait,) = waits_of(history, "default/job")
    assert (wait.first, wait.last) == (1, 1)


async def test_a_pod_that_two_actions_try_is_named_once(tmp_path: Path) -> None:
    conf = CAPACITY.replace("enqueue, allocate", "allocate, allocate")
    async with scheduler(tmp_path / "log", conf) as made:
        await made.show(dsl.queue("root"), dsl.queue("default"), dsl.queue("a", capability={"cpu": "1"}))
        await made.show(dsl.node("n1", cpu=8), dsl.gang("train", 1, cpu=2, queue="a"))
        record = await made.cycle()
    (reason, *_) = decode_plan(record.plan).waiting
    assert reason.pods == ("default/train-0", "default/train-0")
    assert " for train-0: " in gates_text(all_told([reason]))
