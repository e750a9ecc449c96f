"""Explain: what a job or pod waited for, when, and why it went where it went."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from tests import dsl
from tests.timetravel.histories import (
    SCORED,
    Scheduler,
    scheduler,
    write_history_that_begins_amid_a_session,
    write_takeover,
)
from tests.timetravel.questions import verdict
from vcd.api import explain
from vcd.eventlog import LogError
from vcd.model import events as ev
from vcd.timetravel import log_operations
from vcd.timetravel.history import opened
from vcd.timetravel.query_errors import NotFound
from vcd.timetravel.why.episodefacts import reasons
from vcd.timetravel.why.explain import Explanation
from vcd.timetravel.why.jobepisodes import Episode, JobEpisodes
from vcd.timetravel.why.placement import Placement, Rated, choices
from vcd.timetravel.why.queue_timeline import explain_queue
from vcd.timetravel.why.session_explanation import explain_session

UID = "0f3c2b1a-0000-4000-8000-123456789abc"


def told(explanation: Explanation, *whats: str) -> list[Episode]:
    return [episode for episode in explanation.episodes if not whats or episode.what in whats]


def texts(explanation: Explanation, *whats: str) -> list[str]:
    return [episode.text for episode in told(explanation, *whats)]


def waits(episode: Episode) -> list[tuple[str, str]]:
    return [(reason.gate, reason.reason) for reason in episode.waiting]


def clock(episode: Episode) -> tuple[str, str]:
    return f"{episode.start:%H:%M:%S}", "" if episode.end is None else f"{episode.end:%H:%M:%S}"


# --- the way of a job -------------------------------------------------------------------------------------------------


def test_a_job_waits_at_enqueue_then_for_a_node_then_is_bound_and_runs(busy: Path) -> None:
    assert [episode.what for episode in explain(busy, "job", "large").episodes] == [
        "created",
        "created",
        "waited",
        "admitted",
        "waited",
        "bound",
        "outcome",
        "running",
    ]


def test_waits_have_their_times_and_reasons(busy: Path) -> None:
    enqueue, predicate = told(explain(busy, "job", "large"), "waited")
    assert (clock(enqueue), waits(enqueue)[0]) == (
        ("00:00:05", "00:10:05"),
        ("enqueue", "resource in cluster is overused"),
    )
    assert (clock(predicate), waits(predicate)[0]) == (("00:10:05", "00:11:05"), ("predicate", "Insufficient cpu"))


def test_waits_are_told_with_their_numbers(busy: Path) -> None:
    assert texts(explain(busy, "job", "large"), "waited") == [
        "waited 10 min at enqueue (overcommit): resource in cluster is overused (requested 35 cpu, limit 32.4 cpu)",
        "waited 1 min at predicate for large-3: 5 nodes Insufficient cpu",
    ]


def test_the_session_that_admitted_it_is_named(busy: Path) -> None:
    assert texts(explain(busy, "job", "large"), "admitted") == ["admitted by session 7"]


def test_a_pod_has_its_jobs_waits_and_its_own_way(busy: Path) -> None:
    assert [episode.what for episode in explain(busy, "pod", "large-3").episodes] == [
        "created",
        "waited",
        "admitted",
        "waited",
        "bound",
        "outcome",
        "running",
    ]


async def test_a_group_that_is_edited_was_created_as_it_was(tmp_path: Path) -> None:
    """The sentence about its creation named the queue that it was moved to later."""
    log = tmp_path / "log.sqlite"
    async with scheduler(log) as made:
        await made.show(dsl.queue("q"), dsl.queue("r"), dsl.gang("g", 1, cpu=1, queue="q", phase="Pending"))
        group = made.last_shown("PodGroup", "default/g")
        await made.show({**group, "status": {"phase": "Inqueue"}})
        await made.show({**group, "spec": {**group["spec"], "queue": "r", "minMember": 2}})
    assert texts(explain(log, "job", "g"), "created", "edited") == [
        "created: queue q, at least 1 pod together",
        "1 pod created: g-0, requesting 1 cpu",
        "the group was changed: queue r, at least 2 pods together",
    ]


def test_a_pod_that_waits_for_its_gang_waits_for_what_the_gang_waits_for(busy: Path) -> None:
    explanation = explain(busy, "pod", "third-0")
    assert waits(explanation.episodes[-1]) == [
        ("queue", "queue has no room within what it deserves"),
        ("gang", "fewer tasks than the minimum"),
    ]


def test_a_wait_that_goes_on_is_lasting(busy: Path) -> None:
    explanation = explain(busy, "job", "third")
    assert explanation.episodes[-1].lasting
    assert explanation.now.startswith("the job is Inqueue with 2 Pending; it waits: third-1: queue has")


def test_outcomes_of_the_calls_are_told(busy: Path) -> None:
    assert texts(explain(busy, "job", "first"), "outcome") == [
        "bind of first-0, first-1, first-2: failed: the node does not answer",
        "bind of first-0, first-1, first-2: done by the API server",
    ]


def test_a_job_that_ended_is_completed(busy: Path) -> None:
    explanation = explain(busy, "job", "first")
    assert texts(explanation, "succeeded", "phase") == [
        "the job is Running (session 3)",
        "first-0, first-1, first-2 succeeded on n0, n2",
        "the job is Completed (session 5)",
    ]
    assert explanation.now == "the job is Completed with 3 Succeeded"


def test_lines_begin_with_the_time_in_utc(busy: Path) -> None:
    lines = list(explain(busy, "pod", "large-3").lines())
    assert lines[0] == "pod default/large-3 in queue default"
    assert lines[2].startswith("  2026-01-01 00:00:05 - 00:10:05  waited 10 min at enqueue")
    assert lines[-1] == "2026-01-01T00:11:06.000Z: the pod is Running on n2"


def test_an_explanation_is_data_for_json(busy: Path) -> None:
    explanation = explain(busy, "job", "large")
    assert msgspec.json.decode(msgspec.json.encode(explanation), type=Explanation) == explanation


# --- why there --------------------------------------------------------------------------------------------------------


async def choice_among(path: Path, conf: str, *objects: dsl.Manifest) -> tuple[Episode, list[str]]:
    """A pod of 2 cpu is bound; the episode and the reasons."""
    async with scheduler(path, conf) as made:
        await made.show(dsl.queue("default"), *objects, dsl.gang("job", 1, cpu=2, memory=1))
        await made.carry_out(await made.cycle())
    (episode,) = told(explain(path, "pod", "job-0"), "bound")
    return episode, episode.why


async def test_the_winner_is_told_against_the_runner_up_by_score(tmp_path: Path) -> None:
    nodes = [dsl.node("small", cpu=4, memory=8), dsl.node("large", cpu=64, memory=128)]
    episode, why = await choice_among(tmp_path / "log", SCORED, *nodes)
    (choice,) = episode.choices
    winner, other = choice.best
    assert (choice.node, winner.node, other.node) == ("large", "large", "small")
    assert winner.points > other.points
    assert winner.points == pytest.approx(sum(winner.scores.values()))
    assert why[0].startswith(f"2 of 2 nodes took it: large rates {winner.points:g} points (")
    assert f"small {other.points:g} points (" in why[0]


async def test_nodes_that_rate_alike_go_by_the_seeded_order(tmp_path: Path) -> None:
    _, why = await choice_among(tmp_path / "log", SCORED, dsl.node("a"), dsl.node("b"))
    assert "points alike" in why[0]
    assert why[0].endswith("comes first in the seeded order")


async def test_the_only_node_is_told_with_what_refused_the_pod_elsewhere(tmp_path: Path) -> None:
    _, why = await choice_among(tmp_path / "log", SCORED, dsl.node("a", cpu=1), dsl.node("b"))
    assert why == ["1 of 2 nodes took it (1 node Insufficient cpu)"]


@pytest.mark.parametrize("refusals", [1, 2, 3, 5])
async def test_a_node_for_which_a_bind_was_refused_is_told(tmp_path: Path, refusals: int) -> None:
    async with scheduler(tmp_path / "log") as made:
        await made.show(dsl.queue("default"), *[dsl.node(name) for name in "abc"], dsl.gang("job", 1, cpu=2))
        for number in range(1, refusals + 1):
            record = await made.cycle(seconds=60)
            await made.tell(ev.OperationDone(number, 0, 0, "failed", "a policy denied it", record.now))
        nodes = made.state.backoffs["default/job-0"].nodes
        await made.cycle()
    *_, episode = told(explain(tmp_path / "log", "pod", "job-0"), "bound")
    others = min(refusals, 2)  # where all nodes refused, the one that did so first is tried again
    counted = ("1 node" if others == 1 else "2 nodes") + " had a bind of the pod refused by the API server"
    assert episode.why[0].startswith(f"{3 - others} of 3 nodes took it ({counted}")
    assert len(nodes) == len(set(nodes)) == min(refusals, 3)
    assert (list(episode.places.values()) == [nodes[0]]) is (refusals >= 3)


async def test_only_the_best_nodes_are_listed(tmp_path: Path) -> None:
    episode, _ = await choice_among(tmp_path / "log", SCORED, *(dsl.node(f"n{i}", cpu=8 + i) for i in range(9)))
    (choice,) = episode.choices
    assert (choice.nodes, choice.passed, len(choice.best)) == (9, 9, 3)


async def test_the_choice_sees_what_the_session_placed_before(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log") as made:
        await made.show(dsl.queue("default"), dsl.node("a", cpu=2), dsl.node("b", cpu=2), dsl.gang("job", 2, cpu=2))
        await made.cycle()
    (episode,) = told(explain(tmp_path / "log", "job", "job"), "bound")
    assert [choice.passed for choice in episode.choices] == [2, 1]
    assert [choice.node for choice in episode.choices] == list(episode.places.values())


def test_running_a_session_again_places_every_pod_where_its_plan_does(busy: Path) -> None:
    with opened(busy) as history:
        for info in history.reader.sessions():
            plan = ev.decode_plan(history.reader.session(info.number).plan)
            binds = {one.key: one.node for one in plan.operations("bind")}
            made = choices(history, info.number, binds)
            assert {key: choice.node for key, choice in made.items()} == binds


async def test_a_plan_that_does_not_come_out_again_is_told(tmp_path: Path) -> None:
    def elsewhere(plan: ev.Plan) -> ev.Plan:
        (statement,) = plan.statements
        (bind,) = statement.operations
        other = msgspec.structs.replace(bind, node="a" if bind.node == "b" else "b")
        return msgspec.structs.replace(plan, statements=(msgspec.structs.replace(statement, operations=(other,)),))

    async with scheduler(tmp_path / "log") as made:
        await made.show(dsl.queue("default"), dsl.node("a"), dsl.node("b"), dsl.gang("job", 1, cpu=2))
        await made.cycle(forge=elsewhere)
    (episode,) = told(explain(tmp_path / "log", "pod", "job-0"), "bound")
    assert episode.why[0].startswith("deciding it again puts it on ")


async def test_a_pod_that_room_was_made_for_goes_there(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log") as made:
        pod = dsl.pod("job-0", group="job", cpu=2)
        pod["status"]["nominatedNodeName"] = "b"
        await made.show(dsl.queue("default"), dsl.node("a"), dsl.node("b"), dsl.group("job"), pod)
        await made.cycle()
    (episode,) = told(explain(tmp_path / "log", "pod", "job-0"), "bound")
    assert episode.why == ["capacity had been freed for it on b"]


def rated(node: str, points: float, *, now: bool = True) -> Rated:
    return Rated(node, now, points, {"binpack": points})


@pytest.mark.parametrize(
    ("best", "why"),
    [
        ((rated("a", 9), rated("b", 7)), "a rates 9 points (binpack 9), b 7 points (binpack 7)"),
        ((rated("a", 7), rated("b", 9, now=False)), "a has free capacity now, b only after its pods terminate"),
        ((rated("b", 9), rated("a", 7)), "a plugin chose a over b, which rates 9 points (binpack 9) against 7 points"),
        ((Rated("a", True, 0, {}), Rated("b", True, 0, {})), "a and b are not rated by any plugin, and a comes first"),
    ],
)
def test_a_choice_is_told_against_the_next_node(best: tuple[Rated, ...], why: str) -> None:
    choice = Placement("ns/p", "a", 2, 2, best)
    episode = Episode("bound", datetime.now(UTC), places={"ns/p": "a"}, choices=(choice,))
    (text,) = reasons(episode, JobEpisodes("ns/g", "ns/p"))
    assert text.startswith(f"2 of 2 nodes took it: {why}")


async def test_a_session_that_cannot_be_run_again_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object) -> None:
        raise ZeroDivisionError("no such luck")

    monkeypatch.setattr("vcd.timetravel.why.explain.choices", broken)
    _, why = await choice_among(tmp_path / "log", SCORED, dsl.node("a"))
    assert why == ["running the session again fails with ZeroDivisionError: no such luck"]


# --- what else can happen ---------------------------------------------------------------------------------------------


async def decided(made: Scheduler, *statements: ev.Statement, stale: tuple[tuple[int, str], ...] = ()) -> None:
    """A session with statements that no action makes yet."""
    record = ev.SessionDecided(
        made.log.last_session + 1,
        made.state.sequence,
        made.policy.digest,
        made.clock.now,
        7,
        1,
        {},
        ev.encode_plan(ev.Plan(statements=statements)),
        stale,
    )
    await made.tell(record)


def operation(verb: ev.Verb, pod: str, node: str, reason: str = "") -> ev.Operation:
    return ev.Operation(verb, f"default/{pod}", f"uid-default-{pod}", node, reason)


async def test_an_eviction_is_told_with_who_wanted_it_and_why(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log") as made:
        await made.show(dsl.queue("default"), dsl.node("n1"), dsl.gang("job", 1, cpu=2, on=["n1"]))
        evict = operation("evict", "job-0", "n1", "preempted")
        await decided(made, ev.Statement("default/urgent", "preempt", (evict,)))
        await made.tell(ev.OperationDone(1, 0, 0, "done"))
        await made.show(dsl.pod("job-0", group="job", on="n1", deleting=True, cpu=2))
        await made.delete("Pod", "default/job-0")
    explanation = explain(tmp_path / "log", "pod", "job-0")
    assert texts(explanation)[-4:] == [
        "session 1 (preempt) evicted the pod from n1 for default/urgent: preempted",
        "eviction of the pod: done by the API server",
        "the pod is being deleted",
        "the pod is gone",
    ]
    assert explanation.now == "the pod does not exist any more"


async def test_a_dropped_statement_is_told_with_the_reason(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log") as made:
        await made.show(dsl.queue("default"), dsl.node("n1"), dsl.gang("job", 1, cpu=2))
        await made.cycle(ev.ObjectGone("Node", "n1"))
    assert texts(explain(tmp_path / "log", "job", "job"), "dropped", "bound") == [
        "session 1 (allocate) dropped binding job-0 before any call: bind default/job-0: node n1 is gone"
    ]


async def test_room_that_is_held_is_told_once(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log") as made:
        await made.show(dsl.queue("default"), dsl.node("n1"), dsl.gang("job", 1, cpu=2))
        for _ in range(3):
            await decided(made, ev.Statement("default/job", "preempt", (operation("pipeline", "job-0", "n1"),)))
    assert texts(explain(tmp_path / "log", "pod", "job-0"), "held") == [
        "session 1 (preempt) holds capacity that is being freed: the pod to n1"
    ]


async def test_a_pod_that_no_session_saw_is_told_so(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log") as made:
        await made.show(dsl.queue("default"), dsl.gang("job", 2, cpu=2))
    assert explain(tmp_path / "log", "job", "job").now == (
        "the job is Inqueue with 2 Pending; no session has stated why it waits"
    )


async def test_a_pod_whose_bind_is_on_its_way_is_being_bound(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log") as made:
        await made.show(dsl.queue("default"), dsl.node("n1"), dsl.gang("job", 1, cpu=2))
        await made.cycle()
    assert explain(tmp_path / "log", "job", "job").now == "the job is Inqueue with 1 being bound"
    assert explain(tmp_path / "log", "pod", "job-0").now == "the pod is being bound"


async def test_a_pod_that_somebody_else_placed_is_told(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log") as made:
        await made.show(dsl.queue("default"), dsl.node("n1"), dsl.gang("job", 1, cpu=2))
        await made.show(dsl.pod("job-0", group="job", on="n1", cpu=2))
    assert texts(explain(tmp_path / "log", "pod", "job-0"), "placed") == [
        "the pod was placed by another scheduler on n1"
    ]


async def test_a_pod_that_comes_back_under_another_uid_is_another(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log") as made:
        await made.show(dsl.queue("default"), dsl.node("n1"), dsl.gang("job", 1, cpu=2))
        await made.carry_out(await made.cycle())
        again = dsl.pod("job-0", group="job", cpu=2, created=9)
        again["metadata"]["uid"] = "another"
        made.clock.now += 9_000_000_000
        await made.show(again)
    whats = [episode.what for episode in explain(tmp_path / "log", "pod", "job-0").episodes]
    assert whats == ["created", "bound", "outcome", "running", "created", "gone"]


async def test_an_object_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log") as made:
        await made.show(dsl.queue("default"), dsl.gang("job", 1, cpu=2))
        await made.tell(ev.ObjectBad("Pod", "default/job-0", "2", "spec.priority: not a number"))
    assert texts(explain(tmp_path / "log", "job", "job"), "bad") == ["job-0 is set aside: spec.priority: not a number"]


async def test_a_missing_queue_is_what_a_job_waits_for(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log") as made:
        await made.show(dsl.queue("default"), dsl.node("n1"), dsl.gang("job", 1, cpu=2, queue="typo"))
        await made.cycle()
    assert texts(explain(tmp_path / "log", "pod", "job-0"), "waited") == ["waits at queue: queue typo does not exist"]


async def test_a_wait_whose_numbers_change_is_one_wait(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log") as made:
        small = [dsl.node(f"n{i}", cpu=1) for i in range(3)]
        await made.show(dsl.queue("default"), small[:2], dsl.gang("job", 1, cpu=2))
        await made.cycle()
        await made.show(small)
        await made.cycle()
    (text,) = texts(explain(tmp_path / "log", "pod", "job-0"), "waited")
    large = "at predicate for job-0: a pod of the group is larger than any node (largest node 1 cpu, needs 2 cpu)"
    assert text == (
        f"waits {large}; at predicate for job-0: 3 nodes Insufficient cpu;"
        f" at first {large}; at predicate for job-0: 2 nodes Insufficient cpu"
    )


async def test_a_pod_of_another_scheduler_is_told_so(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log") as made:
        await made.show(dsl.queue("default"), dsl.pod("p", spec={"schedulerName": "default-scheduler"}))
    assert explain(tmp_path / "log", "pod", "p").now == (
        "the pod is Pending; its schedulerName is default-scheduler, and this scheduler serves volcano"
    )


async def test_a_pod_without_a_group_is_told_so(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log") as made:
        await made.show(dsl.queue("default"), dsl.pod("p", cpu=1))
    assert explain(tmp_path / "log", "pod", "p").now == (
        "the pod is Pending; it has no annotation scheduling.k8s.io/group-name, so it is in no group that a session"
        " could place; Volcano's controllers create its PodGroup; without them, vcd run --controllers=podgroup does"
    )


async def test_a_pod_whose_group_is_missing_is_told_so(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log") as made:
        await made.show(dsl.queue("default"), dsl.pod("p", group="none", cpu=1))
    assert explain(tmp_path / "log", "pod", "p").now == "the pod is Pending; its PodGroup default/none does not exist"


async def test_pods_that_were_listed_before_their_group_are_its_pods(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log") as made:
        objects = list(dsl.gang("job", 2, cpu=2))
        await made.show(dsl.queue("default"), dsl.node("n1"), *reversed(objects))
        await made.cycle()
    explanation = explain(tmp_path / "log", "job", "job")
    assert [sorted(episode.places) for episode in told(explanation, "bound")] == [["default/job-0", "default/job-1"]]


# --- parts of histories -----------------------------------------------------------------------------------------------


def test_a_wait_that_is_older_than_the_log_is_known_from_its_checkpoint(busy: Path) -> None:
    assert verdict(busy, "third").text.startswith("third waits ")
    log_operations.compact(busy, max_age=1)
    explanation = explain(busy, "job", "third")
    assert waits(explanation.episodes[-1])[0][0] == "queue"
    assert [len(episode.pods) for episode in told(explanation, "created")] == [0, 2]
    assert explanation.episodes[-1].text.startswith("waits already at queue")
    assert verdict(busy, "third").text.startswith("third waits at least ")


def test_nobody_is_said_to_have_placed_what_had_a_node_when_the_log_began(busy: Path) -> None:
    assert told(explain(busy, "job", "second"), "bound")
    log_operations.compact(busy, max_age=1)
    explanation = explain(busy, "job", "second")
    assert texts(explanation)[-1] == "second-0, second-1 ran on n0, n1 already when the log first shows them"
    assert not told(explanation, "bound", "placed", "running")


def test_a_job_that_is_younger_than_the_oldest_checkpoint_is_told_whole(busy: Path) -> None:
    whole = texts(explain(busy, "job", "large"))
    log_operations.compact(busy, max_age=1)
    assert texts(explain(busy, "job", "large")) == whole


async def test_a_story_goes_on_where_another_replica_takes_over(tmp_path: Path) -> None:
    await write_takeover(tmp_path / "log")
    whats = [episode.what for episode in explain(tmp_path / "log", "pod", "job-0").episodes]
    assert whats == ["created", "waited", "bound", "outcome", "running"]


# --- names ------------------------------------------------------------------------------------------------------------


async def log_with_groups(path: Path, *names: str) -> Path:
    async with scheduler(path) as made:
        await made.show(dsl.queue("default"), *(dsl.group(name) for name in names))
    return path


async def test_a_job_is_found_by_the_name_of_its_volcano_job(tmp_path: Path) -> None:
    path = await log_with_groups(tmp_path / "log", f"train-{UID}", "train-other")
    assert explain(path, "job", "train").key == f"default/train-{UID}"


async def test_a_job_is_found_by_the_beginning_of_its_name(tmp_path: Path) -> None:
    path = await log_with_groups(tmp_path / "log", "train-one", "test")
    assert explain(path, "job", "tr").key == "default/train-one"


async def test_the_whole_name_comes_before_the_beginning(tmp_path: Path) -> None:
    path = await log_with_groups(tmp_path / "log", "train", "train-one")
    assert explain(path, "job", "default/train").key == "default/train"


async def test_a_beginning_that_several_have_is_refused(tmp_path: Path) -> None:
    path = await log_with_groups(tmp_path / "log", "train-one", "train-two")
    with pytest.raises(NotFound, match="train may mean default/train-one, default/train-two; give more of the name"):
        explain(path, "job", "train")


async def test_a_job_of_another_namespace_is_hinted_at(tmp_path: Path) -> None:
    path = await log_with_groups(tmp_path / "log", "train")
    with pytest.raises(
        NotFound, match=r"no job ml/train is in it; there is default/train \(choose a namespace with -n\)"
    ):
        explain(path, "job", "train", "ml")


async def test_an_unknown_pod_is_refused(tmp_path: Path) -> None:
    path = await log_with_groups(tmp_path / "log")
    with pytest.raises(NotFound, match="no pod default/none is in it"):
        explain(path, "pod", "none")


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="there is no such file"):
        explain(tmp_path / "none", "pod", "p")


# --- why groups wait after a plan -------------------------------------------------------------------------------------


def test_what_a_plan_says_of_a_group_replaces_what_was_known() -> None:
    known = ev.waits_by_group([ev.Waiting("g", "enqueue"), ev.Waiting("g", "gang"), ev.Waiting("h", "queue")])
    waits = ev.waits_after(known, [ev.Waiting("g", "predicate")])
    assert {group: [reason.gate for reason in reasons] for group, reasons in waits.items()} == {
        "g": ["predicate"],
        "h": ["queue"],
    }


def test_a_group_that_waits_for_nothing_is_not_among_those_that_wait() -> None:
    assert ev.waits_after({"g": (ev.Waiting("g", "enqueue"),)}, [ev.Waiting("g", "")]) == {}


# --- the queue's scheduling gate --------------------------------------------------------------------------------------

GATE = "scheduling.volcano.sh/queue-allocation-gate"
QUOTA = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: gang
  - name: predicates
  - name: capacity
"""


async def write_gated_history(path: Path, result: ev.Result = "done") -> None:
    """A pod is let through its queue's gate, and goes."""
    held = {"schedulingGates": [{"name": GATE}]}
    async with scheduler(path, QUOTA) as made:
        await made.show(
            dsl.queue("default"), dsl.node("n"), dsl.gang("g", 1, cpu=1, annotations={GATE: "true"}, spec=held)
        )
        await made.carry_out(await made.cycle(), result)
        await made.carry_out(await made.cycle())


async def test_a_gate_that_is_lifted_is_told(tmp_path: Path) -> None:
    await write_gated_history(tmp_path / "log")
    explanation = explain(tmp_path / "log", "job", "g")
    assert texts(explanation, "ungated", "outcome") == [
        "session 1 (allocate) found capacity in the queue for g-0, and lifts the gate",
        "lifting the gate of g-0: done by the API server",
        "bind of g-0: done by the API server",
    ]
    assert [episode.what for episode in explanation.episodes].index("ungated") < [
        episode.what for episode in explanation.episodes
    ].index("bound")


async def test_one_that_could_not_be_lifted_is_lifted_again(tmp_path: Path) -> None:
    await write_gated_history(tmp_path / "log", "failed")
    assert texts(explain(tmp_path / "log", "job", "g"), "ungated") == [
        f"session {session} (allocate) found capacity in the queue for g-0, and lifts the gate" for session in (1, 2)
    ]


async def test_where_retention_took_away_what_a_session_was_decided_from_the_rest_is_told(tmp_path: Path) -> None:
    await write_history_that_begins_amid_a_session(tmp_path / "log")
    (bound,) = told(explain(tmp_path / "log", "job", "job"), "bound")
    with opened(tmp_path / "log") as history:
        assert bound.why == ["retention took away what session 1 was decided from"]
        assert explain_session(history, 2).previous is None
        queue = explain_queue(history, "default")
    assert (queue.notes, queue.first, queue.last) == ([], 2, 2)
