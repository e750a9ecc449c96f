"""Explain eviction: for whom, by which numbers, why this pod and not another one, and what became of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests import dsl
from tests.actions.test_shuffle import called, moving
from tests.dsl import Manifest
from tests.plugins.test_capacity_card import card_queue, carded, users
from tests.timetravel.histories import Scheduler, scheduler
from tests.timetravel.questions import explain_eviction
from vcd.model import events as ev
from vcd.scheduling.framework.order_positions import Precedence
from vcd.timetravel.history import History
from vcd.timetravel.query_errors import NotFound
from vcd.timetravel.why.eviction_explanation import Eviction, EvictionExplanation

CONF = """\
actions: "allocate, reclaim, preempt"
tiers:
- plugins:
  - name: priority
  - name: gang
- plugins:
  - name: proportion
"""
LOWER = Precedence("lower priority (5 against 10)", "priority")


async def reclaimed(made: Scheduler) -> ev.SessionDecided:
    """Of 80 cpu queue ``a`` holds 61: job x two pods of 20, job z three of 7. Queue ``b`` holds 12 and wants 30 more,
    so that both deserve 40. Of x only one may go, of z two; with x-1 and z-2 gone ``a`` would be below 40."""
    await made.show(dsl.node("n1", cpu=80), dsl.priority_class("high", 10), dsl.priority_class("low", 5))
    await made.show(dsl.queue(name) for name in ("root", "default", "a", "b"))
    low, high = {"priorityClassName": "low"}, {"priorityClassName": "high"}
    await made.show(
        dsl.gang("x", 2, members=1, cpu=20, on=["n1"] * 2, queue="a", phase="Running", group_spec=low),
        dsl.gang("z", 3, members=1, cpu=7, on=["n1"] * 3, queue="a", phase="Running", group_spec=high),
        dsl.gang("old", 1, cpu=12, on=["n1"], queue="b", phase="Running"),
        dsl.gang("new", 3, members=1, cpu=10, queue="b"),
    )
    return await made.cycle(seconds=60)


async def gone_and_back(made: Scheduler) -> None:
    """x-1 is gone at once, comes back after a minute, and finds no room until two minutes later z and x-0 end."""
    await made.carry_out(await reclaimed(made))
    await made.show(dsl.pod("x-1", group="x", cpu=20))
    await made.carry_out(await made.cycle(seconds=120))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "evictions.log"


def only(explanation: EvictionExplanation) -> Eviction:
    (eviction,) = explanation.evictions
    return eviction


# --- reclaim ----------------------------------------------------------------------------------------------------------


async def test_a_reclaimed_pod_is_told_the_numbers_of_both_queues_and_who_went_not(path: Path) -> None:
    async with scheduler(path, CONF) as made:
        await gone_and_back(made)
    eviction = only(explain_eviction(path, "x-1"))
    assert eviction.text == (
        "evicted by reclaim of queue b (deserved 40 cpu, had 12) because queue a held 61 cpu over 40;"
        " chosen before default/z-2: lower priority (5 against 10)"
    )
    assert (eviction.chosen_before, eviction.difference) == ("default/z-2", LOWER)
    assert (eviction.for_pod, eviction.for_group, eviction.for_queue) == ("default/new-0", "default/new", "b")


async def test_what_it_freed_and_what_was_lacking_are_told(path: Path) -> None:
    async with scheduler(path, CONF) as made:
        await reclaimed(made)
    eviction = only(explain_eviction(path, "x-1"))
    assert (eviction.asked, eviction.lacked, eviction.freed) == ({"cpu": "10"}, {"cpu": "3"}, {"cpu": "20"})
    assert eviction.why[:3] == [
        "default/new-0 requested 10 cpu; n1 lacked 3 cpu of it; this pod freed 20 cpu",
        "an eviction was needed: the only node that it may use had no capacity",
        "gang, proportion permitted it, as number 1 of 2 in order",
    ]


async def test_why_anybody_had_to_go_names_the_idle_node_that_was_closed_to_it(path: Path) -> None:
    """n1 and n2 are full, n3 is idle and tainted; on n2 nobody may go, since its gang has no more than its minimum."""
    taint = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}
    low, high = {"priorityClassName": "low"}, {"priorityClassName": "high"}
    async with scheduler(path, f"{CONF}  - name: predicates\n") as made:
        await made.show(dsl.node("n1", cpu=8), dsl.node("n2", cpu=8), dsl.node("n3", cpu=8, taints=[taint]))
        await made.show(dsl.priority_class("high", 10), dsl.priority_class("low", 5))
        await made.show(dsl.queue(name) for name in ("root", "default"))
        spare = list(dsl.gang("spare", 2, members=1, cpu=4, on=["n1"] * 2, phase="Running", group_spec=low))
        for manifest in spare[1:]:
            manifest["status"]["startTime"] = "2025-12-31T22:00:00Z"
        await made.show(
            dsl.gang("whole", 2, members=2, cpu=4, on=["n2"] * 2, phase="Running", group_spec=low),
            spare,
            dsl.gang("new", 1, cpu=4, group_spec=high),
        )
        await made.cycle()
    (eviction,) = explain_eviction(path, "spare").evictions
    assert eviction.needed == (
        "the 2 nodes that it may use had no capacity; n3 had, and dedicated=x:NoSchedule keeps it out"
    )
    assert [(line.cause, line.passes) for line in eviction.funnel] == [("taint", 2), ("node-room", 1)]
    assert f"an eviction was needed: {eviction.needed}" in eviction.why
    assert "it had run for 2 h: that work is lost" in eviction.why
    assert eviction.ran == 7200
    assert eviction.elsewhere == "1 node examined before could not free enough for it (gang protected 2)"


async def test_each_of_the_others_is_told_with_who_spared_it(path: Path) -> None:
    async with scheduler(path, CONF) as made:
        await reclaimed(made)
    others = {one.pod.partition("/")[2]: one for one in only(explain_eviction(path, "x-1")).candidates}
    assert [(name, one.fate, one.plugin) for name, one in others.items()] == [
        ("z-2", "not needed", ""),
        ("x-0", "spared", "gang"),
        ("z-1", "spared", "proportion"),
        ("z-0", "spared", "proportion"),
        ("old-0", "not asked", ""),
    ]
    assert others["z-2"].why == "default/x-1 is evicted first: lower priority (5 against 10), says priority"
    assert others["z-0"].why == (
        "lets go: tasks of queues above their share of the usable resources, until these queues reach it;"
        " default/x-1 is evicted first: lower priority (5 against 10), says priority"
    )
    assert others["old-0"].why == "is of queue b itself"


async def test_the_lines_hold_the_sentence_the_reasons_and_a_table(path: Path) -> None:
    async with scheduler(path, CONF) as made:
        await reclaimed(made)
    explanation = explain_eviction(path, "x-1")
    lines = list(explanation.lines())
    assert lines[0] == "pod default/x-1: 1 eviction up to 2026-01-01T00:00:00.000Z"
    assert lines[1] == f"2026-01-01T00:00:00.000Z  session 1: default/x-1 on n1 {explanation.evictions[0].text}"
    assert lines[-4].split("  ")[2] == "default/z-2"
    assert (
        json.loads(msgspec.json.encode(explanation))["evictions"][0]["queues"]["a"]["amounts"]["deserved"]["cpu"]
        == 40000
    )


# --- what became of it ------------------------------------------------------------------------------------------------


async def test_a_pod_that_came_back_waits_or_is_bound_some_time_later(path: Path) -> None:
    async with scheduler(path, CONF) as made:
        await gone_and_back(made)
        waiting = only(explain_eviction(path, "x-1"))
        for key in ("new-0", "new-1", "z-0", "z-1"):
            await made.finish(f"default/{key}")
        await made.carry_out(await made.cycle())
    assert waiting.why[-1] == (
        "it came back after 1 min, and waits: x-1: queue has no room within what it deserves"
        " (allocated 41 cpu, requested 20 cpu, deserved 40 cpu)"
    )
    back = only(explain_eviction(path, "x-1"))
    assert (back.came_back, back.bound_to) == ("default/x-1", "n1")
    assert back.why[-1] == "it came back after 1 min, and was bound to n1 3 min 1 s after the eviction"


async def test_a_pod_of_another_name_in_its_place_is_found(path: Path) -> None:
    async with scheduler(path, CONF) as made:
        await made.carry_out(await reclaimed(made))
        await made.show(dsl.pod("stranger", group="z", cpu=1), dsl.pod("x-new", group="x", cpu=20))
    eviction = only(explain_eviction(path, "x-1"))
    assert eviction.came_back == "default/x-new"
    assert eviction.why[-1].startswith("default/x-new came in its place after 1 min")


async def test_one_that_is_gone_for_good_and_one_not_yet_gone(path: Path) -> None:
    async with scheduler(path, CONF) as made:
        record = await reclaimed(made)
        assert only(explain_eviction(path, "x-1")).why[-1] == "the API server has not answered yet"
        await made.carry_out(record)
    assert only(explain_eviction(path, "x-1")).why[-1] == "nothing has come in its place"


async def test_a_call_that_failed_is_told(path: Path) -> None:
    async with scheduler(path, CONF) as made:
        await made.carry_out(await reclaimed(made), "failed", "no answer")
    eviction = only(explain_eviction(path, "x-1"))
    assert (eviction.result, eviction.why[-1]) == ("failed", "the call: failed")


async def test_an_eviction_that_was_dropped_before_its_call_says_so(path: Path) -> None:
    async with scheduler(path, CONF) as made:
        await made.show(dsl.node("n1", cpu=4), dsl.queue("root"), dsl.priority_class("high", 10))
        await made.show(dsl.queue("default"))
        await made.show(
            dsl.gang("low", 1, members=0, cpu=4, on=["n1"], phase="Running"),
            dsl.gang("urgent", 1, cpu=4, group_spec={"priorityClassName": "high"}),
        )
        await made.cycle(ev.ObjectGone("Pod", "default/urgent-0"))
    eviction = only(explain_eviction(path, "low-0"))
    assert eviction.text.startswith("was to be evicted by preempt for default/urgent of its own queue default")
    assert eviction.dropped
    assert eviction.why[-1] == f"it was dropped before any call: {eviction.dropped}"


# --- a job, and several evictions -------------------------------------------------------------------------------------


async def test_a_job_is_told_all_evictions_of_its_pods_in_order(path: Path) -> None:
    async with scheduler(path, CONF) as made:
        await made.show(dsl.node("n1", cpu=8), dsl.queue("root"), dsl.queue("a"), dsl.queue("b"))
        await made.show(dsl.gang("x", 8, members=1, cpu=1, on=["n1"] * 8, queue="a", phase="Running"))
        await made.show(dsl.gang("new", 1, cpu=2, queue="b"))
        await made.carry_out(await made.cycle())
    first, second = explain_eviction(path, "x").evictions
    assert [(one.pod, one.place, one.queues["a"].quantity("allocated", "cpu")) for one in (first, second)] == [
        ("default/x-7", 1, "8"),
        ("default/x-6", 2, "8"),
    ]
    assert [one.fate for one in first.candidates if one.pod == "default/x-6"] == ["evicted"]
    assert first.candidates[0].why == "is evicted, too"
    assert str(second.difference) == "comes later by name"


async def test_who_started_last_goes_first_among_equals(path: Path) -> None:
    async with scheduler(path, CONF) as made:
        await made.show(dsl.node("n1", cpu=8), dsl.queue("root"), dsl.queue("a"), dsl.queue("b"))
        await made.show(dsl.group("x", members=0, queue="a", phase="Running"))
        await made.show(dsl.pod("early", group="x", on="n1", cpu=4, created=5))
        await made.show(dsl.pod("alone", group="x", on="n1", cpu=4, created=9), dsl.gang("new", 1, cpu=4, queue="b"))
        await made.cycle()
    assert only(explain_eviction(path, "alone")).difference == Precedence(
        "created later (2026-01-01T00:00:09Z against 2026-01-01T00:00:05Z)"
    )


async def test_others_of_one_job_with_one_fate_share_a_line(path: Path) -> None:
    async with scheduler(path, CONF) as made:
        await made.show(dsl.node("n1", cpu=8), dsl.queue("root"), dsl.queue("a"), dsl.queue("b"))
        await made.show(dsl.gang("x", 8, members=0, cpu=1, on=["n1"] * 8, queue="a", phase="Running"))
        await made.show(dsl.gang("new", 1, cpu=4, queue="b"))
        await made.carry_out(await made.cycle())
    lines = list(explain_eviction(path, "x-7").lines())
    assert [line.split("  ")[2] for line in lines[-2:]] == ["default/x-6 and 2 more", "default/x-3 and 3 more"]


async def test_indices_in_names_count_where_all_have_one(path: Path) -> None:
    async with scheduler(path, CONF) as made:
        await made.show(dsl.node("n1", cpu=8), dsl.queue("root"), dsl.queue("a"), dsl.queue("b"))
        await made.show(dsl.gang("x-w", 2, members=0, cpu=4, on=["n1"] * 2, queue="a", phase="Running"))
        await made.show(dsl.gang("new", 1, cpu=4, queue="b"))
        await made.cycle()
    assert only(explain_eviction(path, "x-w-1")).difference == Precedence("higher index in its name (1 against 0)")


async def test_the_queue_furthest_over_its_share_gives_first(path: Path) -> None:
    async with scheduler(path, CONF) as made:
        await made.show(dsl.node("n1", cpu=12), [dsl.queue(name) for name in ("root", "a", "b", "c")])
        await made.show(dsl.gang("x", 1, members=0, cpu=5, on=["n1"], queue="a", phase="Running"))
        await made.show(dsl.gang("y", 1, members=0, cpu=7, on=["n1"], queue="c", phase="Running"))
        await made.show(dsl.gang("new", 1, cpu=4, queue="b"))
        await made.cycle()
    eviction = only(explain_eviction(path, "y-0"))
    assert eviction.difference == Precedence("larger share (1.75 against 1.25)", "proportion")
    assert eviction.chosen_before == "default/x-0"


# --- other actions ----------------------------------------------------------------------------------------------------


async def test_a_preempted_pod_is_told_the_priorities(path: Path) -> None:
    async with scheduler(path, CONF) as made:
        await made.show(dsl.node("n1", cpu=4), dsl.queue("root"), dsl.queue("default"), dsl.priority_class("high", 10))
        await made.show(
            dsl.gang("low", 1, members=0, cpu=4, on=["n1"], phase="Running"),
            dsl.gang("urgent", 1, cpu=4, group_spec={"priorityClassName": "high"}),
        )
        await made.cycle()
    eviction = only(explain_eviction(path, "low-0"))
    assert eviction.text == "evicted by preempt for default/urgent of its own queue default (priority 10, its own 0)"
    assert eviction.let_go == ("gang", "priority")


async def test_a_pod_that_went_for_a_gang_is_told_so(path: Path) -> None:
    async with scheduler(path, CONF.replace("reclaim", "gangreclaim")) as made:
        await made.show(dsl.node("n1", cpu=8), dsl.queue("root"), dsl.queue("a"), dsl.queue("b"))
        await made.show(dsl.gang("x", 8, members=1, cpu=1, on=["n1"] * 8, queue="a", phase="Running"))
        await made.show(dsl.gang("new", 2, cpu=2, queue="b"))
        await made.cycle()
    evictions = explain_eviction(path, "x").evictions
    assert len(evictions) == 4
    assert evictions[0].text.startswith(
        "evicted by gangreclaim of queue b (deserved 4 cpu, had 0) because queue a held 8 cpu over 4"
    )
    assert (evictions[0].for_pod, evictions[0].asked) == ("", {"cpu": "4"})
    assert evictions[0].why[0] == "job default/new requested 4 cpu; this pod freed 1 cpu"


async def test_a_card_is_told_by_its_model_and_its_quota(path: Path) -> None:
    text = CONF.replace("proportion", "capacity-card").replace("name: gang", "name: conformance")
    async with scheduler(path, text) as made:
        await made.show(carded("n1", "A100", 4), card_queue("be", {"A100": 1}), card_queue("q", {"A100": 4}))
        await made.show(users("old", 4, "A100", queue="be", on=["n1"] * 4, phase="Running"), users("new", 1, "A100"))
        await made.cycle()
    eviction = only(explain_eviction(path, "old"))
    assert eviction.text.startswith(
        "evicted by reclaim of queue q (deserved 4 A100, had 0) because queue be held 4 A100 over 1;"
    )


async def test_a_plugin_that_counts_no_shares_leaves_what_the_queues_hold(path: Path) -> None:
    async with scheduler(path, CONF.replace("proportion", "binpack")) as made:
        await made.show(dsl.node("n1", cpu=4), dsl.queue("root"), dsl.queue("a"), dsl.queue("b"))
        await made.show(dsl.gang("x", 1, members=0, cpu=4, on=["n1"], queue="a", phase="Running"))
        await made.show(dsl.gang("new", 1, cpu=2, queue="b"))
        await made.cycle()
    eviction = only(explain_eviction(path, "x-0"))
    assert eviction.text == "evicted by reclaim of queue b (had 0 cpu); queue a held 4 cpu"


async def test_a_shuffled_pod_is_told_who_wanted_it_elsewhere(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    conf = moving(monkeypatch, [called("other"), called("mine")])
    async with scheduler(path, conf) as made:
        await made.show(dsl.node("n1"), dsl.queue("root"), dsl.queue("default"))
        await made.show(dsl.group("x"), dsl.pod("mine", group="x", on="n1", cpu=1))
        await made.cycle()
    eviction = only(explain_eviction(path, "mine"))
    assert eviction.text == "evicted by shuffle: mover1 wants it elsewhere"
    assert eviction.candidates == []


async def test_a_gang_that_was_released_since_it_stayed_incomplete_is_told_so(path: Path) -> None:
    async with scheduler(path, CONF) as made:
        await made.show(dsl.node("n1", cpu=8), dsl.queue("root"), dsl.queue("default"), dsl.gang("x", 2, cpu=4))
        record = await made.cycle(seconds=120)
        await made.tell(ev.OperationDone(record.session, 0, 0, "done"))
        await made.tell(ev.OperationDone(record.session, 0, 1, "failed", "no such node"))
        await made.show(dsl.pod("x-0", group="x", on="n1", cpu=4), dsl.node("n1", cpu=4))
        await made.cycle()
    eviction = only(explain_eviction(path, "x"))
    assert eviction.text == "evicted by release: its gang was let in only in part and not completed in 60 s"


# --- whom nobody asked about ------------------------------------------------------------------------------------------


def bystander(queue: str, **options: object) -> list[Manifest]:
    """A job of one running pod."""
    return list(dsl.gang("by", 1, members=0, on=["n1"], queue=queue, phase="Running", cpu=1, **options))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("made_of", "why"),
    [
        (lambda: bystander("shut"), "queue shut is not reclaimable"),
        (lambda: bystander("b"), "is of queue b itself"),
        (
            lambda: bystander("a", annotations={"volcano.sh/preemptable": "false"}),
            "says that it may not be preempted",
        ),
    ],
)
async def test_who_is_not_asked_is_told_with_the_rule(
    path: Path, made_of: Callable[[], list[Manifest]], why: str
) -> None:
    async with scheduler(path, CONF) as made:
        await made.show(dsl.node("n1", cpu=9), dsl.queue("root"), dsl.queue("a"), dsl.queue("b"))
        await made.show(dsl.queue("shut", reclaimable=False), *made_of())
        await made.show(dsl.gang("x", 2, members=0, cpu=4, on=["n1"] * 2, queue="a", phase="Running"))
        await made.show(dsl.gang("new", 1, cpu=3, queue="b"))
        await made.cycle()
    (other,) = [one for one in only(explain_eviction(path, "x-1")).candidates if one.pod == "default/by-0"]
    assert (other.fate, other.why) == ("not asked", why)


async def test_one_that_holds_nothing_of_what_lacks_is_not_needed(path: Path) -> None:
    async with scheduler(path, CONF) as made:
        await made.show(dsl.node("n1", cpu=8, gpu=2), dsl.queue("root"), dsl.queue("a"), dsl.queue("b"))
        await made.show(dsl.group("x", members=0, queue="a", phase="Running"))
        await made.show(
            dsl.pod("gpus", group="x", on="n1", gpu=2), dsl.pod("plain", group="x", on="n1", cpu=4, created=9)
        )
        await made.show(dsl.gang("new", 1, gpu=1, queue="b"))
        await made.cycle()
    eviction = only(explain_eviction(path, "gpus"))
    assert eviction.lacked == {"nvidia.com/gpu": "1"}
    assert [(one.pod, one.why) for one in eviction.candidates] == [
        ("default/plain", "holds nothing of what the node lacks")
    ]
    assert eviction.resources == ["nvidia.com/gpu"]
    assert "because queue a held 2 GPU over 1" in eviction.text


# --- where deciding it again does not help ----------------------------------------------------------------------------


async def test_an_eviction_that_is_not_decided_again_says_so(path: Path) -> None:
    evict = ev.Operation("evict", "default/x-0", "uid-default-x-0", "n1", "for nobody")
    forged = ev.Plan((ev.Statement("default/x", "reclaim", (evict,)),))
    async with scheduler(path, CONF) as made:
        await made.show(dsl.node("n1"), dsl.queue("root"), dsl.queue("default"))
        await made.show(dsl.gang("x", 1, cpu=1, on=["n1"], phase="Running"))
        await made.cycle(forge=lambda _: forged)
    eviction = only(explain_eviction(path, "x-0"))
    assert eviction.text == "evicted by reclaim: for nobody"
    assert eviction.why[0] == "deciding it again does not evict it; vcd replay shows why"


async def test_a_session_that_cannot_be_run_again_leaves_what_the_log_says(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scheduler(path, CONF) as made:
        await reclaimed(made)

    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("broken today")

    monkeypatch.setattr(History, "rerun", fails)
    eviction = only(explain_eviction(path, "x-1"))
    assert eviction.text == "evicted by reclaim: reclaim for default/new of queue b"
    assert eviction.why[0] == "running the session again fails with RuntimeError: broken today"


# --- names ------------------------------------------------------------------------------------------------------------


async def test_one_that_was_never_evicted_says_so(path: Path) -> None:
    async with scheduler(path, CONF) as made:
        await reclaimed(made)
    for kind, name in (("pod", "z-0"), ("job", "z")):
        assert list(explain_eviction(path, name).lines()) == [
            f"{kind} default/z{'-0' if kind == 'pod' else ''}: no session evicted it up to 2026-01-01T00:00:00.000Z"
        ]


async def test_a_name_may_be_given_with_its_namespace(path: Path) -> None:
    async with scheduler(path, CONF) as made:
        await reclaimed(made)
    assert explain_eviction(path, "default/x-1", "elsewhere").key == "default/x-1"


async def test_an_unknown_name_is_told(path: Path) -> None:
    async with scheduler(path, CONF) as made:
        await reclaimed(made)
    with pytest.raises(NotFound, match=r"no job default/nobody is in it;.*; no pod default/nobody either"):
        explain_eviction(path, "nobody")
