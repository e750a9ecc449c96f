"""For what a cluster lost most: pod-hours by cause, computed by hand; and planted causes found among others."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests import dsl
from tests.planted.causes import planted
from tests.planted.runs import by_hand
from tests.timetravel.histories import CONF, scheduler, write_busy_history, write_takeover
from tests.timetravel.questions import first_causes, verdict
from tests.timetravel.test_counterfactual import PLAIN, log_of, running
from vcd.model import events as ev
from vcd.timetravel.log_operations import LogError
from vcd.timetravel.why import lostpodhours
from vcd.timetravel.why.lostpodhours import DAY

HOUR = 3600


async def test_a_gang_counts_with_the_pods_that_it_misses(tmp_path: Path) -> None:
    await write_busy_history(tmp_path / "log")
    found = first_causes(tmp_path / "log")
    # large: 5 pods, 660 s; third: 2 pods, 663 s
    assert [(one.cause, one.job) for one in found.causes] == [
        ("cluster-full", "default/large"),
        ("queue-capability", "default/third"),
    ]
    assert [one.hours * HOUR for one in found.causes] == pytest.approx([3300, 1326])
    assert found.hours * HOUR == pytest.approx(4626)
    assert [one.subject for one in found.causes] == ["cpu", "queue small spec.capability.cpu"]
    assert [one.jobs for one in found.causes] == [1, 1]
    assert found.causes[1].mend == "raise spec.capability.cpu of queue small by 2 cpu"
    assert (found.asked, found.asked_share, found.likened, found.as_logged) == (2, 1.0, 0.0, 0.0)


async def test_a_stretch_counts_what_lies_in_it(tmp_path: Path) -> None:
    await write_busy_history(tmp_path / "log")
    found = first_causes(tmp_path / "log", 6, 7)
    # from session 6 to session 7 are 600 s: 5 pods of large, which comes at 6, and 2 of third, which waits already
    assert {one.job: one.hours * HOUR for one in found.causes} == pytest.approx(
        {"default/large": 3000, "default/third": 1200}
    )
    assert not found.whole_day
    with pytest.raises(LogError, match="no session from 60 to 70"):
        first_causes(tmp_path / "log", 60, 70)


async def test_only_the_last_day_counts_unless_told_otherwise(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log", PLAIN) as made:
        await made.show(dsl.node("n1"), dsl.queue("root"), dsl.queue("default"), dsl.gang("bert", 1, cpu=64))
        await made.cycle(seconds=2 * DAY / 10**9)
        await made.show(dsl.node("n2"))
        await made.cycle()
    assert first_causes(tmp_path / "log").hours == pytest.approx(24)
    assert first_causes(tmp_path / "log", 1).hours == pytest.approx(48)


async def test_who_is_like_one_that_was_looked_into_counts_as_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lostpodhours, "ASKED", 2)
    async with scheduler(tmp_path / "log", PLAIN) as made:
        await made.show(dsl.node("n1", cpu=8), dsl.queue("root"), dsl.queue("default"))
        await made.show(*(dsl.gang(f"large-{i}", 1, cpu=64) for i in range(4)))
        await made.show(dsl.gang("typo", 1, cpu=1, spec={"nodeSelector": {"disk": "sssd"}}))
        await made.cycle(seconds=HOUR)
        await made.cycle()
    found = first_causes(tmp_path / "log")
    shape, selector = sorted(found.causes, key=lambda one: -one.hours)
    assert (shape.cause, shape.jobs, shape.hours) == ("unschedulable-shape", 4, pytest.approx(4))
    assert (selector.cause, selector.jobs, selector.subject) == ("selector", 1, "nodeSelector disk=sssd")
    assert (found.asked, found.likened, found.as_logged) == (2, pytest.approx(0.6), 0)
    monkeypatch.setattr(lostpodhours, "ASKED", 0)
    found = first_causes(tmp_path / "log")
    assert (found.asked, found.likened, found.as_logged) == (0, 0, 1)


async def test_room_in_pieces_is_mended_by_room_for_a_pod(tmp_path: Path) -> None:
    nodes = [dsl.node(f"n{i}", cpu=8) for i in range(3)]
    jobs = [running(f"x{i}", 1, f"n{i}", cpu=5) for i in range(3)]
    path = await log_of(tmp_path, PLAIN, nodes, *jobs, list(dsl.gang("bert", 2, cpu=4)))
    (one,) = first_causes(path).causes
    assert one.cause == "fragmentation"
    assert one.mend == "4 cpu free on one node: fewer pieces of it in use, or another node"


async def test_what_this_version_lets_in_is_told_as_the_log_says(tmp_path: Path) -> None:
    """A session that another version decided: by this one nobody waits there."""
    async with scheduler(tmp_path / "log", PLAIN) as made:
        await made.show(dsl.node("n1"), dsl.queue("root"), dsl.queue("default"), dsl.gang("bert", 1, cpu=64))
        plan = ev.decode_plan((await made.cycle(seconds=30)).plan)
        await made.delete("PodGroup", "default/bert")
        await made.delete("Pod", "default/bert-0")
        await made.show(dsl.gang("small", 1, cpu=1))
        pods = ("default/small-0",)
        waiting = tuple(msgspec.structs.replace(one, group="default/small", pods=pods) for one in plan.waiting)
        await made.cycle(seconds=60, forge=lambda it: msgspec.structs.replace(it, waiting=waiting, statements=()))
        await made.show(dsl.node("n2"))
    told = first_causes(tmp_path / "log", change=True)
    assert [(one.job, one.verified) for one in told.causes] == [("default/small", False)]


async def test_a_wait_of_a_moment_is_none_in_words(tmp_path: Path) -> None:
    found = first_causes(await log_of(tmp_path, PLAIN, dsl.node("n1"), list(dsl.gang("bert", 1, cpu=64))))
    head, cause, worst, *_ = found.lines()
    assert head.startswith("0 pod-hours lost by 1 job in ")
    assert cause == "1. unschedulable-shape: cpu: 0 h (100%), 1 job"
    assert worst.startswith("     most by default/bert: it waited 0 s: ")


async def test_without_a_wait_there_is_no_cause(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log", CONF) as made:
        await made.show(dsl.node("n1"), dsl.queue("root"), dsl.queue("default"))
        await made.cycle()
    found = first_causes(tmp_path / "log")
    assert (found.causes, found.hours) == ([], 0)
    assert [line.startswith("no pod waited in the log's last 24 h") for line in found.lines()] == [True]


async def test_with_a_change_the_worst_job_is_mended(tmp_path: Path) -> None:
    await write_busy_history(tmp_path / "log")
    found = first_causes(tmp_path / "log", change=True)
    assert [(one.verified, one.mend) for one in found.causes][1] == (True, "queue small's capability of cpu 8 -> 10")


async def test_a_log_of_several_replicas(tmp_path: Path) -> None:
    await write_takeover(tmp_path / "log")
    (one,) = first_causes(tmp_path / "log").causes
    assert (one.cause, one.job) == ("unschedulable-shape", "default/job")


@pytest.mark.parametrize("code", ["selector", "taint", "fragmentation", "cluster-full", "parent-limit", "pod-affinity"])
async def test_a_planted_cause_is_among_the_first_as_its_verdict_names_it(code: str, tmp_path: Path) -> None:
    plant = planted(code, 0)
    await by_hand(plant, tmp_path / "log")
    (mine,) = [one for one in first_causes(tmp_path / "log").causes if one.cause == code]
    alone = verdict(tmp_path / "log", plant.asked)
    assert mine.job == plant.asked
    assert (mine.cause, mine.text.partition(": ")[2][:40]) == (alone.cause, alone.text.partition(": ")[2][:40])
