"""What the state remembers of evictions: who lost pods, who waits for their room, and what makes it void."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.dsl import flat, gang, group, node, pod, queue
from tests.state.test_cluster_state import folded, put
from vcd.model import events as ev
from vcd.state.cluster_state import ClusterState
from vcd.state.gang_completion import Completion
from vcd.state.immunity import Evicted, GroupProgress, Immunity
from vcd.state.snapshot import SnapshotMaker

BASE = [
    ev.PolicyLoaded("p", "actions: allocate"),
    *map(put, flat([node("n1"), node("n2"), queue("default"), gang("old", 3, on=["n1"] * 3, cpu=2)])),
    *map(put, flat([gang("new", 2, members=1, cpu=2), group("empty")])),
]
KNOWN = tuple(f"uid-default-old-{i}" for i in range(3))


def lost(*numbers: int) -> Evicted:
    """What is remembered when these pods of the group went first."""
    return Evicted({"default/new": tuple(KNOWN[number] for number in numbers)}, KNOWN)


def evict(name: str) -> ev.Operation:
    return ev.Operation("evict", f"default/{name}", f"uid-default-{name}", "n1", "why")


def wait(name: str, to: str = "n1") -> ev.Operation:
    return ev.Operation("pipeline", f"default/{name}", f"uid-default-{name}", to)


def decided(
    *statements: tuple[ev.Operation, ...],
    action: str = "preempt",
    session: int = 1,
    stale: Any = (),
    now: int = 0,
    group: str = "default/new",
) -> ev.SessionDecided:
    parts = tuple(ev.Statement(group, action, operations) for operations in statements)
    return ev.SessionDecided(session, 0, "p", now, 0, 1, {}, ev.encode_plan(ev.Plan(statements=parts)), stale)


ONE = decided((evict("old-0"), wait("new-0")))


def evicted(*events: ev.Event) -> dict[str, Evicted]:
    """What is remembered, whatever happened since."""
    found = folded(*BASE, *events).immunity.evicted
    return {key: msgspec.structs.replace(one, undisturbed=True) for key, one in found.items()}


def done(result: str, operation: int = 0, session: int = 1) -> ev.OperationDone:
    return ev.OperationDone(session, 0, operation, result)


# --- counted ----------------------------------------------------------------------------------------------------


def test_a_group_that_lost_a_pod_is_remembered_with_what_it_had() -> None:
    assert evicted(ONE) == {"default/old": lost(0)}


def test_all_pods_of_a_session_are_counted() -> None:
    assert evicted(decided((evict("old-0"),), (evict("old-2"),))) == {"default/old": lost(0, 2)}


def test_later_sessions_are_added_and_what_it_had_stays_that_of_the_first() -> None:
    back = put(pod("old-0b", group="old", cpu=2))
    again = decided((evict("old-1"),), session=2)
    assert evicted(ONE, ev.ObjectGone("Pod", "default/old-0"), back, again) == {"default/old": lost(0, 1)}


OTHER = [put(manifest) for manifest in flat([gang("other", 1, cpu=2)])]
BY_OTHER = decided((evict("old-1"), evict("old-9")), group="default/other", session=2)
BACK = put(pod("old-9", group="old", on="n1", cpu=2))


def test_each_owner_has_the_pods_that_were_there_before_its_first_eviction() -> None:
    found = evicted(ONE, ev.ObjectGone("Pod", "default/old-0"), *OTHER, BACK, BY_OTHER)["default/old"]
    assert (found.known, found.older) == (KNOWN, {"default/other": ("uid-default-old-9",)})
    assert found.older_for(["default/other"]) == {"uid-default-old-9"}
    assert found.older_for(["default/new"]) == found.older_for(["default/new", "default/other"]) == set()


def test_a_third_owner_leaves_the_second_what_it_had() -> None:
    third = [put(manifest) for manifest in flat([gang("third", 1, cpu=2), pod("old-8", group="old", on="n1", cpu=2)])]
    by_third = decided((evict("old-2"),), group="default/third", session=3)
    history = [ONE, ev.ObjectGone("Pod", "default/old-0"), *OTHER, BACK, BY_OTHER, *third, by_third]
    assert evicted(*history)["default/old"].older == {
        "default/other": ("uid-default-old-9",),
        "default/third": ("uid-default-old-8", "uid-default-old-9"),
    }


def test_an_eviction_that_was_not_made_is_taken_back_from_its_own_owner() -> None:
    state = folded(*BASE, ONE, *OTHER, decided((evict("old-1"),), group="default/other", session=2))
    assert state.immunity.withdraw("default/old", KNOWN[1]) == "default/other"
    assert state.immunity.evicted["default/old"].losses == {"default/new": (KNOWN[0],)}


@pytest.mark.parametrize("refused", [(0,), (1,), (0, 1)])
def test_they_are_forgotten_with_the_last_loss_to_that_owner(refused: tuple[int, ...]) -> None:
    outcomes = [done("failed", number, session=2) for number in refused]
    found = evicted(ONE, ev.ObjectGone("Pod", "default/old-0"), *OTHER, BACK, BY_OTHER, *outcomes)["default/old"]
    assert bool(found.older) is (len(refused) < 2) is ("default/other" in found.losses)


def test_a_checkpoint_holds_them() -> None:
    state = folded(*BASE, ONE, ev.ObjectGone("Pod", "default/old-0"), *OTHER, BACK, BY_OTHER)
    resumed = ClusterState.load(state.dump())
    assert resumed.immunity.evicted == state.immunity.evicted == state.immunity.copy().evicted
    assert resumed.dump() == state.dump()
    earlier = msgspec.msgpack.decode(state.dump())
    del earlier["older"]
    read = ClusterState.load(msgspec.msgpack.encode(earlier)).immunity.evicted["default/old"]
    assert (read.losses, read.older) == (state.immunity.evicted["default/old"].losses, {})


@pytest.mark.parametrize("action", ["preempt", "reclaim", "gangpreempt", "gangreclaim"])
def test_each_action_that_takes_room_counts(action: str) -> None:
    assert evicted(decided((evict("old-0"),), action=action)) == {"default/old": lost(0)}


@pytest.mark.parametrize("action", ["shuffle", "release"])
def test_actions_with_bounds_of_their_own_do_not_count(action: str) -> None:
    assert evicted(decided((evict("old-0"),), action=action)) == {}


def test_a_stale_statement_does_not_count() -> None:
    assert evicted(decided((evict("old-0"),), (evict("old-1"),), stale=((0, "gone"),))) == {"default/old": lost(1)}


def test_a_pod_without_a_group_does_not_count() -> None:
    assert evicted(put(pod("lone", on="n1")), decided((evict("lone"),))) == {}


# --- settled ----------------------------------------------------------------------------------------------------

RUNS, WAITS, ENDED = {"on": "n1"}, {}, {"on": "n1", "phase": "Succeeded"}
NO_PODS: dict[str, str] = {"group": "unknown"}
"""Of pods that are of another group."""


@pytest.mark.parametrize(
    ("owner", "victim", "undisturbed", "is_over"),
    [
        (RUNS, RUNS, False, True),
        (RUNS, RUNS, True, False),
        (RUNS, WAITS, False, False),
        (RUNS, NO_PODS, False, False),
        (WAITS, RUNS, False, False),
        (NO_PODS, RUNS, False, False),
        (ENDED, WAITS, True, True),
    ],
    ids=[
        *("all have theirs", "nothing happened", "victim waits", "victim is not back"),
        *("owner waits", "owner has no pods", "owner ended"),
    ],
)
def test_a_loss_is_over_once_no_cycle_can_follow(
    owner: dict[str, str], victim: dict[str, str], undisturbed: bool, is_over: bool
) -> None:
    """A pod without a group, and one that is gone, count for none."""
    pods = [pod("lone", on="n1"), pod("o", **{"group": "o", **owner}), pod("v", **{"group": "v", **victim})]  # type: ignore[arg-type]
    gone = [put(pod("o-gone", group="o")), put(pod("v-gone", group="v"))]
    ends = [ev.ObjectGone("Pod", "default/o-gone"), ev.ObjectGone("Pod", "default/v-gone")]
    state = folded(*gone, *map(put, flat([group("o"), group("v"), node("n1"), pods])), *ends)
    immunity = Immunity()
    immunity.remember("default/o", "default/v", ["uid-default-v-old"], ["uid-default-v-old"])
    if not undisturbed:
        immunity.record_end("default/another")
    immunity.settle(GroupProgress(state.tasks, state.job_keys))
    assert bool(immunity.evicted.get("default/v", Evicted({}, ())).losses) == (not is_over)
    assert ("default/v" in immunity.evicted) == (not is_over or victim is WAITS)


BIND = decided((ev.Operation("bind", "default/b", "uid-default-b", "n1"),), action="allocate", group="default/g")


@pytest.mark.parametrize(
    ("status", "happening", "believed", "is_settled"),
    [
        ({"on": "n1"}, (), False, True),
        ({"on": "n1", "deleting": True}, (), False, False),
        ({"on": "n1", "phase": "Failed"}, (), False, False),
        ({"on": "n1", "phase": "Pending"}, (), False, True),
        ({}, (BIND,), False, False),
        ({}, (BIND,), True, True),
    ],
    ids=["runs", "terminates", "failed", "bound", "a bind under way", "a bind that is believed"],
)
def test_a_gang_is_settled_by_pods_that_have_a_place_for_good(
    status: dict[str, Any], happening: tuple[ev.Event, ...], believed: bool, is_settled: bool
) -> None:
    objects = [node("n1"), group("g", members=2), pod("lone", on="n1"), pod("a", group="g", on="n1")]
    state = folded(*map(put, flat([*objects, pod("b", group="g", **status)])), *happening)
    found = Completion(state.tasks, state.pods, state.job_keys, believed=believed).settled(["default/g"], state.groups)
    assert found == (["default/g"] if is_settled else [])


# --- taken back -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("result", ["failed", "conflict", "gone"])
def test_an_eviction_that_was_not_made_is_taken_back(result: str) -> None:
    assert evicted(ONE, done(result)) == {}


def test_of_two_one_is_taken_back() -> None:
    both = decided((evict("old-0"), evict("old-1"), wait("new-0")))
    assert evicted(both, done("failed", 1)) == {"default/old": lost(0)}


def test_an_eviction_by_an_action_that_does_not_count_takes_nothing_back() -> None:
    moved = decided((evict("old-1"),), action="shuffle", session=2)
    assert evicted(ONE, moved, done("failed", 0, session=2)) == {"default/old": lost(0)}


@pytest.mark.parametrize("result", ["done", "unknown"])
def test_an_eviction_that_was_made_or_may_have_been_stays(result: str) -> None:
    assert evicted(ONE, done(result)) == {"default/old": lost(0)}


# --- void and not -------------------------------------------------------------------------------------------------

VOID = {
    "a node appears": put(node("n3")),
    "a node goes": ev.ObjectGone("Node", "n2"),
    "a node grows": put(node("n2", cpu=16)),
    "a node's labels": put(node("n2", labels={"a": "b"})),
    "a node's taints": put(node("n2", taints=[{"key": "a", "effect": "NoSchedule"}])),
    "a node is cordoned": put(node("n2", unschedulable=True)),
    "a queue appears": put(queue("other")),
    "a queue goes": ev.ObjectGone("Queue", "default"),
    "a queue's weight": put(queue("default", weight=2)),
    "a queue's capability": put(queue("default", capability={"cpu": "4"})),
    "the group's minimum": put(group("old", members=1)),
    "the group's queue": put(group("old", members=3, queue="other")),
    "the group goes": ev.ObjectGone("PodGroup", "default/old"),
    "another configuration": ev.PolicyLoaded("q", "actions: preempt"),
}
KEPT = {
    "a node's heartbeat": put(node("n2", status={"conditions": [{"type": "Ready", "status": "True"}]})),
    "a node's annotation": put({**node("n2"), "metadata": {**node("n2")["metadata"], "annotations": {"a": "b"}}}),
    "a queue's state": put(queue("default", state="Closing")),
    "the group's phase": put(group("old", members=3, phase="Running")),
    "another group": put(group("empty", members=7)),
    "another group goes": ev.ObjectGone("PodGroup", "default/empty"),
    "the evicted pod goes": ev.ObjectGone("Pod", "default/old-0"),
    "its replacement": put(pod("old-9", group="old", cpu=2)),
    "the same configuration": ev.PolicyLoaded("p", "actions: allocate"),
    "another session": decided(session=2),
    "a fresh list": ev.KindListed("Pod", "9"),
}


@pytest.mark.parametrize("happening", sorted(VOID))
def test_void(happening: str) -> None:
    assert evicted(ONE, VOID[happening]) == {}


@pytest.mark.parametrize("happening", sorted(KEPT))
def test_kept(happening: str) -> None:
    assert evicted(ONE, KEPT[happening]) == {"default/old": lost(0)}


def test_a_change_of_one_group_leaves_the_others() -> None:
    more = [put(group("more")), put(pod("more-0", group="more", on="n1"))]
    both = decided((evict("old-0"), evict("more-0")))
    assert evicted(*more, both, put(group("more", members=4))) == {"default/old": lost(0)}


# --- reasons that are newer ---------------------------------------------------------------------------------------

NEWER = [put(manifest) for manifest in flat([gang("newer", 1, cpu=2)])]
TAKES_NEW = decided((evict("new-1"),), group="default/newer", session=2)
TOOK = (put(pod("new-1", group="new", on="n2", cpu=2)), ONE)
"""A pod of the owner has a place."""


def losses(*events: ev.Event) -> dict[str, list[str]]:
    """The owners of what each group lost."""
    found = folded(*BASE, *events).immunity.evicted
    return {group: sorted(one.losses) for group, one in found.items()}


@pytest.mark.parametrize(
    ("events", "ends"),
    [
        ((*TOOK, *NEWER, TAKES_NEW), True),
        ((*NEWER, *TOOK, TAKES_NEW), False),
        ((*NEWER, *TOOK, put(pod("newer-1", group="newer", cpu=2)), TAKES_NEW), True),
        ((*NEWER, *TOOK, put(group("newer", members=2)), TAKES_NEW), True),
        ((*NEWER, *TOOK, put(group("other")), TAKES_NEW), False),
    ],
    ids=["a new group", "an older group", "a new pod", "another spec", "another new group"],
)
def test_a_loss_ends_when_its_owner_loses_pods_for_a_newer_reason(events: tuple[ev.Event, ...], ends: bool) -> None:
    assert losses(*events) == {"default/old": [] if ends else ["default/new"], "default/new": ["default/newer"]}


def test_a_newer_reason_is_passed_on_along_a_chain() -> None:
    third = [put(manifest) for manifest in flat([gang("third", 1, on=["n2"], cpu=2)])]
    by_new = decided((evict("third-0"),), session=2)
    by_third = decided((evict("old-0"),), group="default/third", session=1)
    by_newer = decided((evict("new-1"),), group="default/newer", session=1)
    events = (*third, TOOK[0], by_third, *NEWER, by_newer, by_new)
    assert losses(*events)["default/old"] == []
    assert losses(*events[:-1])["default/old"] == ["default/third"]


@pytest.mark.parametrize("comes", [1, 3])
def test_what_comes_back_late_is_no_new_reason_though_the_loss_ended(comes: int) -> None:
    """The pods took long to terminate; otherwise two groups could be each other's newer reason for ever."""
    back = [put(pod(f"old-0-{number}", group="old", cpu=2)) for number in range(comes)]
    again = decided((evict("new-1"),), group="default/old", session=3)
    events = (*TOOK, *NEWER, TAKES_NEW, ev.ObjectGone("Pod", "default/old-0"), *back)
    state = folded(*BASE, *events)
    assert dict(state.immunity.dump_inputs()[1]) == {"default/newer": 2, "default/new": 2}
    assert sorted(losses(*events, again)["default/new"]) == ["default/newer", "default/old"]


def test_what_came_is_forgotten_with_its_group_and_with_the_last_loss() -> None:
    events = (*TOOK, *NEWER, put(group("more")))
    assert folded(*BASE, *events).immunity.dump_inputs() == (3, {"default/newer": 2, "default/more": 3})
    gone = (ev.ObjectGone("PodGroup", "default/newer"), ev.ObjectGone("Pod", "default/newer-0"))
    assert folded(*BASE, *events, *gone).immunity.dump_inputs()[1] == {"default/more": 3}
    assert folded(*BASE, *events, VOID["a node appears"]).immunity.dump_inputs()[1] == {}


REASONS = (*TOOK, *NEWER, TAKES_NEW, put(pod("new-9", group="new", cpu=2)), put(group("more")))


@pytest.mark.parametrize("cut", range(len(REASONS) + 1))
def test_the_order_of_reasons_is_the_same_after_a_checkpoint(cut: int) -> None:
    loaded = ClusterState.load(folded(*BASE, *REASONS[:cut]).dump())
    folded(*REASONS[cut:], state=loaded)
    assert loaded.dump() == folded(*BASE, *REASONS).dump()


# --- who waits ----------------------------------------------------------------------------------------------------


def nominated(*events: ev.Event) -> dict[str, str]:
    return folded(*BASE, *events).nominated


def test_who_others_were_evicted_for_is_remembered_with_the_node() -> None:
    assert nominated(ONE) == {"default/new-0": "n1"}


def test_who_waits_without_that_anybody_goes_is_not() -> None:
    assert nominated(decided((wait("new-0"),))) == {}


def test_all_of_a_statement_that_evicts_are() -> None:
    assert nominated(decided((evict("old-0"), wait("new-0"), wait("new-1", "n2")))) == {
        "default/new-0": "n1",
        "default/new-1": "n2",
    }


def test_a_stale_statement_nominates_nobody() -> None:
    assert nominated(decided((evict("old-0"), wait("new-0")), stale=((0, "gone"),))) == {}


def test_a_later_choice_replaces_an_earlier_one() -> None:
    assert nominated(ONE, decided((evict("old-1"), wait("new-0", "n2")), session=2)) == {"default/new-0": "n2"}


@pytest.mark.parametrize(
    "happening",
    [
        put(pod("new-0", group="new", cpu=2, on="n2")),
        ev.ObjectGone("Pod", "default/new-0"),
        decided((ev.Operation("bind", "default/new-0", "uid-default-new-0", "n2"),), action="allocate", session=2),
    ],
    ids=["placed", "gone", "being bound"],
)
def test_who_has_a_place_or_is_gone_waits_no_more(happening: ev.Event) -> None:
    assert nominated(ONE, happening) == {}


def test_who_is_shown_again_without_a_place_still_waits() -> None:
    assert nominated(ONE, put(pod("new-0", group="new", cpu=2, labels={"a": "b"}))) == {"default/new-0": "n1"}


def shown(name: str = "new-0", on: str = "", **status: str) -> ev.ObjectPut:
    manifest = pod(name, group="new", cpu=2, on=on)
    manifest["status"].update(status)
    return put(manifest)


def waits(*events: ev.Event) -> dict[str, str]:
    """Who waits where, as a session sees it."""
    return dict(SnapshotMaker(folded(*BASE, *events)).snapshot().nominated)


AT_N1, AT_N2 = shown(nominatedNodeName="n1"), shown(nominatedNodeName="n2")


def test_what_the_api_server_shows_counts_without_any_memory() -> None:
    assert waits(AT_N2, shown("new-1", nominatedNodeName="n1")) == {"default/new-0": "n2", "default/new-1": "n1"}


@pytest.mark.parametrize(
    "events, where",
    [
        ((ONE, AT_N2), "n2"),
        ((AT_N2, ONE), "n1"),
        ((AT_N2, ONE, AT_N1), "n1"),
        ((ONE, AT_N1, AT_N2), "n2"),
    ],
    ids=["shown later", "decided later", "decided, then shown", "shown twice"],
)
def test_the_later_word_counts(events: tuple[ev.Event, ...], where: str) -> None:
    assert waits(*events) == {"default/new-0": where}


@pytest.mark.parametrize(
    "happening",
    [
        shown(),
        shown(on="n2", phase="Running", nominatedNodeName="n1"),
        shown(phase="Failed", nominatedNodeName="n1"),
        ev.ObjectGone("Pod", "default/new-0"),
        decided((ev.Operation("bind", "default/new-0", "uid-default-new-0", "n2"),), action="allocate", session=2),
    ],
    ids=["withdrawn", "placed", "ended", "gone", "being bound"],
)
def test_what_was_shown_counts_no_more_once_it_is_withdrawn_or_the_pod_needs_it_no_more(happening: ev.Event) -> None:
    assert waits(ONE, AT_N1, happening) == {}


@pytest.mark.parametrize("cut", range(5))
def test_what_was_shown_is_the_same_after_a_checkpoint(cut: int) -> None:
    events = (ONE, AT_N1, decided((evict("old-1"), wait("new-0", "n2")), session=2), AT_N1, AT_N2)
    loaded = ClusterState.load(folded(*BASE, *events[:cut]).dump())
    whole = folded(*BASE, *events)
    folded(*events[cut:], state=loaded)
    assert loaded.dump() == whole.dump()
    assert SnapshotMaker(loaded).snapshot().nominated == SnapshotMaker(whole).snapshot().nominated


# --- whose nomination is the later ----------------------------------------------------------------------------------

OLD = [put(manifest) for manifest in flat([gang("rival", 2, members=1, cpu=2)])]
"""A group that room is made for beside ``new``."""
RIVAL = decided((evict("old-1"), wait("rival-0")), group="default/rival", session=2)


def rival_shown(**status: str) -> ev.ObjectPut:
    manifest = pod("rival-0", group="rival", cpu=2)
    manifest["status"].update(status)
    return put(manifest)


def turns(*events: ev.Event) -> list[str]:
    """Whom room was made for, the last first; with a mark on those whom only the API server tells of."""
    found = SnapshotMaker(folded(*BASE, *OLD, *events)).snapshot().nomination_turns
    return [
        key.partition("/")[2] + ("" if turn else "?") for key, turn in sorted(found.items(), key=lambda one: -one[1])
    ]


BOTH = decided((evict("old-1"), wait("rival-0")), (wait("new-0"),), group="default/rival", session=2)
"""Room is made for rival-0, and a pod of new's group still waits for its own."""


def with_group(decision: ev.SessionDecided, number: int, group: str) -> ev.SessionDecided:
    """The same with another group for one of its statements."""
    plan = ev.decode_plan(decision.plan)
    statements = list(plan.statements)
    statements[number] = msgspec.structs.replace(statements[number], group=group)
    plan = msgspec.structs.replace(plan, statements=tuple(statements))
    return msgspec.structs.replace(decision, plan=ev.encode_plan(plan))


BESIDE = with_group(BOTH, 1, "default/new")
ELSEWHERE = decided((evict("old-1"), wait("rival-0", "n2")), group="default/rival", session=2)


@pytest.mark.parametrize(
    "events, first_to_last",
    [
        ((ONE, BESIDE), ["rival-0", "new-0"]),
        ((ONE, ELSEWHERE), ["rival-0", "new-0"]),
        ((ONE, BESIDE, AT_N1), ["rival-0", "new-0"]),
        ((ONE, BESIDE, AT_N1, rival_shown(nominatedNodeName="n1")), ["rival-0", "new-0"]),
        ((ONE, rival_shown(nominatedNodeName="n1")), ["new-0", "rival-0?"]),
        ((AT_N1, rival_shown(nominatedNodeName="n1")), ["new-0?", "rival-0?"]),
        ((ONE, AT_N2, AT_N1), ["new-0"]),
        ((ONE, AT_N1, shown(), AT_N1), ["new-0?"]),
        ((ONE, ELSEWHERE, decided((evict("old-2"), wait("new-0")), session=3)), ["new-0", "rival-0"]),
    ],
    ids=[
        "both got something",
        "on different nodes",
        "the earlier shown",
        "both shown",
        "one only shown",
        "both only shown",
        "shown late and out of order",
        "withdrawn and shown again",
        "made anew",
    ],
)
def test_who_room_was_made_for_last_comes_first(events: tuple[ev.Event, ...], first_to_last: list[str]) -> None:
    assert turns(*events) == first_to_last


@pytest.mark.parametrize(
    "events",
    [
        (ONE, RIVAL),
        (AT_N1, RIVAL),
        (ONE, AT_N1, RIVAL),
        (ONE, RIVAL, AT_N1),
    ],
    ids=["decided", "only shown", "decided and shown", "shown after its end"],
)
def test_a_nomination_ends_when_the_room_is_made_for_another_and_its_own_group_gets_nothing(
    events: tuple[ev.Event, ...],
) -> None:
    assert turns(*events) == ["rival-0"]


def test_it_ends_for_good_until_room_is_made_for_it_anew() -> None:
    assert turns(ONE, RIVAL, ev.ObjectGone("Pod", "default/rival-0")) == []
    assert turns(ONE, RIVAL, decided((evict("old-2"), wait("new-0", "n2")), session=3)) == ["new-0", "rival-0"]
    assert turns(AT_N1, RIVAL, AT_N2) == ["rival-0", "new-0?"]


def test_a_statement_that_was_dropped_ends_no_nomination() -> None:
    dropped = decided((evict("old-1"), wait("rival-0")), group="default/rival", session=2, stale=((0, "gone"),))
    assert turns(ONE, dropped) == ["new-0"]


def test_the_numbers_of_sessions_do_not_matter() -> None:
    """An import of several replicas' logs gives sessions new numbers; checkpoints in it hold the former ones."""
    late, early = (msgspec.structs.replace(each, session=number) for each, number in ((ONE, 900), (ELSEWHERE, 0)))
    assert turns(late, early) == turns(ONE, ELSEWHERE) == ["rival-0", "new-0"]


STORY = (ONE, AT_N1, ELSEWHERE, RIVAL, AT_N2, decided((evict("old-2"), wait("new-1")), session=4), BESIDE)


@pytest.mark.parametrize("cut", range(len(STORY) + 1))
def test_whose_nomination_is_the_later_is_the_same_after_a_checkpoint(cut: int) -> None:
    loaded = ClusterState.load(folded(*BASE, *OLD, *STORY[:cut]).dump())
    whole = folded(*BASE, *OLD, *STORY)
    folded(*STORY[cut:], state=loaded)
    assert loaded.dump() == whole.dump()
    assert SnapshotMaker(loaded).snapshot().nomination_turns == SnapshotMaker(whole).snapshot().nomination_turns


def test_a_checkpoint_that_knows_of_no_turns_is_read_as_if_they_were_the_oldest() -> None:
    fields = msgspec.msgpack.decode(folded(*BASE, *OLD, ONE).dump())
    del fields["promises"]
    loaded = ClusterState.load(msgspec.msgpack.encode(fields))
    folded(ELSEWHERE, state=loaded)
    snapshot = SnapshotMaker(loaded).snapshot()
    assert dict(snapshot.nominated) == {"default/new-0": "n1", "default/rival-0": "n2"}
    assert snapshot.nomination_turns["default/rival-0"] > snapshot.nomination_turns["default/new-0"] == 0


# --- snapshots and checkpoints --------------------------------------------------------------------------------------


def test_a_snapshot_holds_copies() -> None:
    state = folded(*BASE, ONE)
    snapshot = SnapshotMaker(state).snapshot()
    folded(ev.ObjectGone("Pod", "default/new-0"), VOID["a node appears"], state=state)
    assert (dict(snapshot.nominated), dict(snapshot.evicted)) == (
        {"default/new-0": "n1"},
        {"default/old": lost(0)},
    )
    assert (state.nominated, state.immunity.evicted) == ({}, {})


TAIL = [
    done("done"),
    ev.ObjectGone("Pod", "default/old-0"),
    put(pod("old-3", group="old", cpu=2)),
    KEPT["a queue's state"],
]


@pytest.mark.parametrize("cut", range(len(TAIL) + 1))
def test_a_checkpoint_and_the_rest_are_the_whole(cut: int) -> None:
    whole = folded(*BASE, ONE, *TAIL)
    loaded = ClusterState.load(folded(*BASE, ONE, *TAIL[:cut]).dump())
    assert loaded.immunity.evicted.keys() == {"default/old"}
    assert loaded.nominated == {"default/new-0": "n1"}
    assert folded(*TAIL[cut:], state=loaded).dump() == whole.dump()


def test_a_failure_after_a_checkpoint_takes_back_what_is_in_it() -> None:
    loaded = ClusterState.load(folded(*BASE, ONE).dump())
    assert folded(done("failed"), state=loaded).immunity.evicted == {}


def test_an_older_checkpoint_knows_of_no_eviction() -> None:
    """It names no owner, so that its end could not be told."""
    fields = msgspec.msgpack.decode(folded(*BASE, ONE).dump())
    fields["evicted"] = {"default/old": (fields.pop("immunity")["default/old"][0]["default/new"], KNOWN)}
    assert ClusterState.load(msgspec.msgpack.encode(fields)).immunity.evicted == {}


def quota_of(text: str) -> dict[str, Any]:
    manifest = queue("default")
    manifest["metadata"]["annotations"] = {"volcano.sh/card.quota": text}
    return manifest


def test_what_a_queue_may_have_by_an_annotation_is_another_queue() -> None:
    """Who took an evicted pod's place could never be asked to go when the quota was lowered further."""
    before = put(quota_of('{"A": 3}'))
    assert evicted(before, ONE, put(quota_of('{"A": 3}')))
    assert not evicted(before, ONE, put(quota_of('{"A": 0}')))


def test_a_pod_that_comes_again_under_its_name_is_not_nominated() -> None:
    """A list shows it so, when the watch missed that the first one went."""
    again = pod("new-0", group="new", cpu=2)
    again["metadata"]["uid"] = "another"
    at_once = folded(*BASE, ONE, put(again))
    in_between = folded(*BASE, ONE, ev.ObjectGone("Pod", "default/new-0"), put(again))
    assert (at_once.nominated, at_once.nominations()) == ({}, {})
    assert (at_once.nominated, at_once.nomination_turns) == (in_between.nominated, in_between.nomination_turns)


@pytest.mark.parametrize(("result", "undisturbed"), [("done", True), ("failed", False), ("conflict", False)])
def test_a_refused_eviction_is_news(result: str, undisturbed: bool) -> None:
    """Otherwise replacements that came before it are immune to all, though it was not made."""
    again = decided((evict("old-1"),), session=2)
    found = folded(*BASE, ONE, put(group("other")), again, done(result, 0, session=2)).immunity.evicted
    assert found["default/old"].undisturbed is undisturbed
