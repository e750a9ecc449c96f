"""The fold of the log: placing, intending, setting aside, and equal states by whatever way."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.dsl import flat, gang, group, node, open_session, pod, queue
from tests.sizes import seeds
from vcd.model import events as ev
from vcd.model.objects import Object, ObjectMeta
from vcd.model.projection_codec import BadObject, Foreign, as_plain, encode_payload, from_manifest
from vcd.model.resource_requests import UNOFFERED
from vcd.model.status import TaskStatus
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.decide import instances
from vcd.scheduling.search.candidates import Memory
from vcd.state.cluster_state import ClusterState
from vcd.state.records import MOST_RESOURCES
from vcd.state.snapshot import SnapshotMaker


def put(manifest: dict) -> ev.ObjectPut:
    kind, obj, version = from_manifest(manifest)
    return ev.ObjectPut(kind, obj.key, version, encode_payload(obj))


def folded(*events: ev.Event, state: ClusterState | None = None) -> ClusterState:
    state = state or ClusterState()
    for event in events:
        state.apply(state.sequence + 1, event)
    return state


def status_of(state: ClusterState, key: str) -> TaskStatus:
    return TaskStatus(int(state.tasks.column("status")[state.tasks.row_of[key]]))


def node_of(state: ClusterState, key: str) -> str:
    snapshot = SnapshotMaker(state).snapshot()
    row = int(snapshot.tasks.node[state.tasks.row_of[key]])
    return snapshot.facts.names[row] if row >= 0 else ""


def decided(*operations: ev.Operation, session: int = 1, stale: tuple = (), **plan: object) -> ev.SessionDecided:
    statements = (ev.Statement("default/g", "allocate", operations),) if operations else ()
    encoded = ev.encode_plan(ev.Plan(statements=statements, **plan))
    return ev.SessionDecided(session, 0, "p", 0, 0, 1, {}, encoded, stale)


BASE = [put(node("n1")), put(node("n2")), put(group("g")), put(pod("a", group="g", cpu=1))]
BIND = ev.Operation("bind", "default/a", "uid-default-a", "n1")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, TaskStatus.PENDING),
        ({"on": "n1"}, TaskStatus.RUNNING),
        ({"on": "n1", "phase": "Pending"}, TaskStatus.BOUND),
        ({"on": "n1", "deleting": True}, TaskStatus.RELEASING),
        ({"deleting": True}, TaskStatus.RELEASING),
        ({"on": "n1", "phase": "Succeeded"}, TaskStatus.SUCCEEDED),
        ({"on": "n1", "phase": "Failed"}, TaskStatus.FAILED),
        ({"on": "n1", "phase": "Unknown"}, TaskStatus.UNKNOWN),
    ],
)
def test_a_pods_status_follows_its_phase_node_and_deletion(options: dict, expected: TaskStatus) -> None:
    assert status_of(folded(put(pod("a", group="g", **options))), "default/a") is expected


def test_a_bind_that_was_decided_holds_its_node_before_the_server_shows_it() -> None:
    state = folded(*BASE, decided(BIND))
    assert status_of(state, "default/a") is TaskStatus.BINDING
    assert node_of(state, "default/a") == "n1"


def test_an_unrelated_change_of_the_pod_does_not_undo_a_decided_bind() -> None:
    state = folded(*BASE, decided(BIND), put(pod("a", group="g", cpu=1, labels={"new": "label"})))
    assert status_of(state, "default/a") is TaskStatus.BINDING


def test_a_bind_that_failed_leaves_the_pod_pending() -> None:
    state = folded(*BASE, decided(BIND), ev.OperationDone(1, 0, 0, "conflict"))
    assert status_of(state, "default/a") is TaskStatus.PENDING
    assert node_of(state, "default/a") == ""


def test_a_bind_of_a_stale_statement_is_not_intended() -> None:
    assert status_of(folded(*BASE, decided(BIND, stale=((0, "gone"),))), "default/a") is TaskStatus.PENDING


def test_a_new_pod_of_the_same_name_is_not_bound_by_the_old_ones_intent() -> None:
    again = pod("a", group="g", cpu=1)
    again["metadata"]["uid"] = "another"
    assert status_of(folded(*BASE, decided(BIND), put(again)), "default/a") is TaskStatus.PENDING


def test_an_eviction_that_was_decided_is_releasing_at_once() -> None:
    state = folded(put(node("n1")), put(pod("a", group="g", on="n1")))
    folded(decided(ev.Operation("evict", "default/a", "uid-default-a", "n1")), state=state)
    assert status_of(state, "default/a") is TaskStatus.RELEASING


def test_a_phase_that_was_decided_survives_a_late_echo_of_the_old_one() -> None:
    waiting = put(group("g", phase="Pending"))
    state = folded(waiting, decided(groups=(ev.GroupStatus("default/g", "Inqueue", was="Pending"),)), waiting)
    assert state.groups["default/g"].group.status.phase == "Inqueue"


def test_a_group_that_went_while_its_session_was_decided_waits_for_nothing() -> None:
    session = decided(waiting=(ev.Waiting("default/g", "allocate", reason="no room"),))
    assert folded(put(group("g")), session).waiting.keys() == {"default/g"}
    assert not folded(put(group("g")), ev.ObjectGone("PodGroup", "default/g"), session).waiting


def test_a_phase_that_someone_else_wrote_wins_over_the_decided_one() -> None:
    state = folded(
        put(group("g", phase="Pending")),
        decided(groups=(ev.GroupStatus("default/g", "Inqueue", was="Pending"),)),
        put(group("g", phase="Completed")),
    )
    assert state.groups["default/g"].group.status.phase == "Completed"


def test_a_bad_quantity_sets_the_object_aside_and_names_it() -> None:
    state = folded(put(node("n1", cpu="a lot")))
    assert "n1" not in state.nodes
    assert "a lot" in state.bad["Node", "n1"]


@pytest.mark.parametrize("count", [10, MOST_RESOURCES, MOST_RESOURCES + 1, 15 * MOST_RESOURCES])
def test_a_group_that_names_too_many_resources_is_set_aside(count: int) -> None:
    state = folded(put(group("g", minimum={f"example.com/r-{number}": 1 for number in range(count)})))
    message = (
        f"spec.minResources: {count:,} resources are more than the limit of 1,000" if count > MOST_RESOURCES else ""
    )
    assert message in state.bad.get(("PodGroup", "default/g"), "")
    assert ("default/g" in state.groups) is (not message)


@pytest.mark.parametrize("count", [1, 167, 168, 5000])
@pytest.mark.parametrize(
    "selector", [{"matchLabels": {"k": "v"}}, {"matchExpressions": [{"key": "k", "operator": "Exists"}]}]
)
def test_a_group_that_divides_its_pods_too_often_is_set_aside(count: int, selector: dict[str, object]) -> None:
    """Each of its pods is compared with each policy in each session: 3,000 policies and 800 pods took 0.7 s."""
    policies = [{"name": f"s{number}", "matchLabelKeys": ["x"], "labelSelector": selector} for number in range(count)]
    state = folded(put(group("g", subGroupPolicy=policies)))
    message = f"spec.subGroupPolicy: {3 * count:,} policies, keys and requirements are more than the limit of 500"
    assert ("default/g" in state.groups) is (count * 3 <= 500)
    assert state.bad.get(("PodGroup", "default/g"), message).removeprefix("PodGroup default/g: ") == message


def test_an_object_that_becomes_good_again_is_no_longer_set_aside() -> None:
    state = folded(put(node("n1", cpu="a lot")), put(node("n1", cpu=8)))
    assert "n1" in state.nodes
    assert not state.bad


def test_a_change_without_payload_changes_nothing() -> None:
    state = folded(*BASE)
    before = state.dump()
    state.apply(state.sequence, ev.ObjectPut("Pod", "default/a", "99", None))
    assert state.dump() == before


def test_deleted_objects_leave_no_trace() -> None:
    state = folded(*BASE)
    gone = [ev.ObjectGone(e.kind, e.key) for e in BASE]
    folded(*gone, state=state)
    assert not state.nodes and not state.groups and not state.tasks.row_of
    assert not len(state.shapes) and not len(state.label_sets) and not len(state.job_keys)


def test_a_pod_on_a_node_that_comes_back_still_uses_it() -> None:
    """Volcano #4888: a node removed and added again."""
    state = folded(put(node("n1")), put(pod("a", group="g", on="n1", cpu=2)))
    folded(ev.ObjectGone("Node", "n1"), put(node("n1")), state=state)
    assert node_of(state, "default/a") == "n1"


def random_events(seed: int) -> list[ev.Event]:
    """A random history of pods, nodes, groups, sessions and outcomes."""
    rand = random.Random(seed)
    events: list[ev.Event] = []
    session = 0
    for _ in range(rand.randint(5, 60)):
        name = f"p{rand.randint(0, 5)}"
        match rand.randint(0, 8):
            case 0 | 1:
                place = rand.choice(["", "", "n0", "n1", "n9"])
                events.append(put(pod(name, group=rand.choice("gh"), on=place, cpu=rand.randint(1, 3))))
            case 2:
                events.append(ev.ObjectGone("Pod", f"default/{name}"))
            case 3:
                events.append(put(node(f"n{rand.randint(0, 2)}", cpu=rand.choice([4, 8, "x"]))))
            case 4:
                events.append(ev.ObjectGone("Node", f"n{rand.randint(0, 2)}"))
            case 5:
                events.append(put(group(rand.choice("gh"), phase=rand.choice(["Pending", "Inqueue", "Running"]))))
            case 6:
                session += 1
                chosen = (ev.VolumeChoice("default/c", rand.choice(["", "v"]), "u"),) if session % 3 == 0 else ()
                operation = ev.Operation("bind", f"default/{name}", f"uid-default-{name}", "n0", volumes=chosen)
                status = ev.GroupStatus("default/g", "Inqueue", was="Pending")
                waiting = ev.Waiting("default/h", rand.choice(["", "enqueue"]), reason="r")
                events.append(decided(operation, session=session, groups=(status,), waiting=(waiting,)))
            case 7:
                result, at = rand.choice([("done", 0), ("conflict", 0), ("failed", 1), ("failed", 10**12)])
                events.append(ev.OperationDone(max(session, 1), 0, 0, result, "", at))
            case 8:
                events.append(ev.LeadershipChanged(rand.randint(0, 3), "me", rand.random() < 0.5))
    return events


def test_what_pods_have_in_common_is_kept_once() -> None:
    """Of very many pods labels, namespaces, specs and nodes' names would else be most of the memory."""
    pods = [put(pod(name, group="g", cpu=1, on="n1", labels={"app": "trainer-of-models"})) for name in ("one", "two")]
    for state in (folded(*BASE, *pods), ClusterState.load(folded(*BASE, *pods).dump())):
        one, two = (state.pods[state.tasks.row_of[f"default/{name}"]] for name in ("one", "two"))
        assert one is not None and two is not None
        assert one.metadata.labels is two.metadata.labels
        assert one.metadata.namespace is two.metadata.namespace
        assert one.spec is two.spec
        assert len({id(name) for name in state.shown_nodes if name}) == 1


@pytest.mark.parametrize("seed", seeds(20, 60))
def test_folding_all_equals_folding_a_checkpoint_and_the_rest(seed: int) -> None:
    """docs/laws.md, law 1."""
    events = random_events(seed)
    cut = random.Random(seed).randint(0, len(events))
    whole = folded(*events)
    resumed = ClusterState.load(folded(*events[:cut]).dump())
    assert folded(*events[cut:], state=resumed).dump() == whole.dump()


def test_objects_added_in_any_order_give_the_same_state() -> None:
    objects = [put(m) for m in flat([node("n1"), node("n2"), queue("q"), gang("g", 3, cpu=1, on=["n1"]), gang("h", 2)])]
    expected = folded(*objects).dump()
    for seed in range(10):
        random.Random(seed).shuffle(objects)
        assert folded(*objects).dump() == expected


# --- volumes that are bound before their pod --------------------------------------------------------------------------

CHOSEN = (ev.VolumeChoice("default/data", "v", "uid-data"), ev.VolumeChoice("default/scratch", "", "uid-scratch"))
BIND_WITH_VOLUMES = ev.Operation("bind", "default/a", "uid-default-a", "n1", volumes=CHOSEN)


def volumes_of(state: ClusterState) -> dict[str, tuple[ev.VolumeChoice, ...]]:
    return dict(SnapshotMaker(state).snapshot().volumes)


def test_what_a_pods_claims_get_is_remembered_until_the_pod_is_bound() -> None:
    state = folded(*BASE, decided(BIND_WITH_VOLUMES))
    assert volumes_of(state) == {"default/a": CHOSEN}
    folded(put(pod("a", group="g", cpu=1, on="n1")), state=state)
    assert volumes_of(state) == {}


@pytest.mark.parametrize(
    "end", [ev.OperationDone(1, 0, 0, "failed"), ev.ObjectGone("Pod", "default/a")], ids=["failed", "gone"]
)
def test_what_a_pods_claims_were_to_get_is_forgotten_when_it_is_not_bound(end: ev.Event) -> None:
    assert volumes_of(folded(*BASE, decided(BIND_WITH_VOLUMES), end)) == {}


def test_an_outcome_of_a_pod_that_another_version_kept_and_this_one_cannot_read_ends_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = folded(*BASE, decided(BIND)).dump()

    def unreadable(*_: object) -> None:
        raise ValueError("a quantity as a later version has it")

    monkeypatch.setattr("vcd.state.cluster_state.load_pods", unreadable)
    monkeypatch.setattr("vcd.state.cluster_state.counted_spec", unreadable)
    state = ClusterState.load(kept)
    assert ("Pod", "default/a") in state.bad
    folded(ev.OperationDone(1, 0, 0, "failed"), state=state)
    assert state.intents == {}


def test_a_back_off_of_a_pod_that_another_version_kept_and_this_one_cannot_read_is_in_no_snapshot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused = ev.OperationDone(1, 0, 0, "failed", "403 Forbidden", refused_at=1)
    kept = folded(*BASE, decided(BIND), refused).dump()
    assert SnapshotMaker(ClusterState.load(kept)).snapshot().backoffs

    def unreadable(*_: object) -> None:
        raise ValueError("a quantity as a later version has it")

    monkeypatch.setattr("vcd.state.cluster_state.load_pods", unreadable)
    monkeypatch.setattr("vcd.state.cluster_state.counted_spec", unreadable)
    state = ClusterState.load(kept)
    assert list(state.backoffs) == ["default/a"]
    assert SnapshotMaker(state).snapshot().backoffs == {}


def test_a_new_decision_replaces_what_a_pods_claims_get() -> None:
    again = ev.Operation("bind", "default/a", "uid-default-a", "n2")
    assert volumes_of(folded(*BASE, decided(BIND_WITH_VOLUMES), decided(again, session=2))) == {}


def test_volumes_of_a_stale_statement_are_not_remembered() -> None:
    assert volumes_of(folded(*BASE, decided(BIND_WITH_VOLUMES, stale=((0, "volume gone"),)))) == {}


def test_a_checkpoint_holds_the_volumes_that_are_being_bound() -> None:
    state = folded(*BASE, decided(BIND_WITH_VOLUMES))
    assert volumes_of(ClusterState.load(state.dump())) == {"default/a": CHOSEN}


def test_a_checkpoint_of_a_version_that_knew_no_volumes_is_what_it_was() -> None:
    """Its bytes are compared with those of the fold."""
    plain = folded(*BASE, decided(BIND)).dump()
    assert b"intended_volumes" not in plain
    assert ClusterState.load(plain).dump() == plain


# --- kinds of plugins ---------------------------------------------------------------------------------------------


class _Rack(Object, frozen=True):
    closed: bool = False


class _OtherRack(Object, frozen=True):
    closed: int = 0


def rack(name: str, closed: bool = True) -> ev.ObjectPut:
    return ev.ObjectPut("Rack", name, "1", encode_payload(_Rack(ObjectMeta(name=name, uid=f"uid-{name}"), closed)))


def test_objects_of_a_plugins_kind_are_kept_without_the_plugin() -> None:
    state = folded(rack("a"), rack("b"), ev.ObjectGone("Rack", "b"))
    assert state.bad == {}
    assert state.digest("Rack", "a") is not None
    assert {key: obj.metadata.uid for key, obj in state.others["Rack"].items()} == {"a": "uid-a"}
    assert ClusterState.load(state.dump()).dump() == state.dump()


def test_they_are_shown_as_plain_data_without_the_plugin() -> None:
    (obj,) = folded(rack("a")).others["Rack"].values()
    assert as_plain(obj) == {"metadata": {"name": "a", "uid": "uid-a"}, "closed": True}


def test_who_knows_the_type_reads_them() -> None:
    (obj,) = folded(rack("a")).others["Rack"].values()
    assert isinstance(obj, Foreign)
    assert obj.read_as(_Rack).closed is True
    with pytest.raises(BadObject, match="_OtherRack a: payload cannot be read"):
        obj.read_as(_OtherRack)


def test_what_is_no_object_is_set_aside_whatever_its_kind() -> None:
    state = folded(ev.ObjectPut("Rack", "a", "1", b"nonsense"))
    assert "payload cannot be read" in state.bad["Rack", "a"]


def test_a_session_shows_them_typed_and_leaves_out_what_another_version_logged() -> None:
    state = folded(rack("a"), rack("b", closed=False))
    policy = read_policy("actions: allocate")
    session = open_session(SnapshotMaker(state).snapshot(), policy, instances(policy), 0, 0, Memory())
    assert {key: obj.closed for key, obj in session.objects("Rack", _Rack).items()} == {"a": True, "b": False}
    assert session.objects("Rack", _OtherRack).keys() == {"b"}
    assert session.objects("Nothing", _Rack) == {}


# --- groups that are gone before their pods ---------------------------------------------------------------------------

GROUP_GONE = ev.ObjectGone("PodGroup", "default/g")


def orphans_of(state: ClusterState) -> dict[str | None, str]:
    snapshot = SnapshotMaker(state).snapshot()
    return {snapshot.tasks.keys[row]: queue for row, queue in snapshot.orphans.items()}


def running(name: str, **options: Any) -> ev.ObjectPut:
    return put(pod(name, group="g", on="n1", **options))


def test_pods_count_against_the_queue_of_their_group_once_that_is_gone() -> None:
    state = folded(put(node("n1")), put(group("g", queue="q")), running("a"), running("b"), put(pod("c", group="g")))
    assert orphans_of(state) == {}
    folded(GROUP_GONE, state=state)
    assert orphans_of(state) == {"default/a": "q", "default/b": "q"}
    folded(put(pod("b", group="g", on="n1", phase="Succeeded")), ev.ObjectGone("Pod", "default/a"), state=state)
    assert orphans_of(state) == {}


def test_the_queue_of_a_group_that_names_none_is_the_default_queue() -> None:
    state = folded(put(group("g", queue="")), running("a"), GROUP_GONE)
    assert orphans_of(state) == {"default/a": "default"}


def test_what_is_known_of_a_group_lasts_through_changes_of_its_only_pod() -> None:
    state = folded(put(node("n1")), put(group("g", queue="q")), running("a"), GROUP_GONE)
    folded(running("a", deleting=True), state=state)
    assert orphans_of(state) == {"default/a": "q"}


def test_a_group_that_cannot_be_read_any_more_is_gone_and_one_that_comes_back_is_there() -> None:
    bad = ev.ObjectPut("PodGroup", "default/g", "2", encode_payload(from_manifest(group("g", minimum={"cpu": "x"}))[1]))
    state = folded(put(group("g", queue="q")), running("a"), bad)
    assert orphans_of(state) == {"default/a": "q"}
    folded(put(group("g", queue="r")), state=state)
    assert orphans_of(state) == {}
    folded(GROUP_GONE, state=state)
    assert orphans_of(state) == {"default/a": "r"}


@pytest.mark.parametrize("key", ["volcano.sh/queue-name", "scheduling.volcano.sh/queue-name"])
@pytest.mark.parametrize("where", ["annotations", "labels"])
def test_where_nobody_saw_the_group_the_pod_says_its_queue(key: str, where: str) -> None:
    """A first start, or a lost volume: the pod's own word is all there is."""
    state = folded(running("a", **{where: {key: "q"}}), running("b"))
    assert orphans_of(state) == {"default/a": "q"}
    folded(put(group("g", queue="r")), GROUP_GONE, state=state)
    assert orphans_of(state) == {"default/a": "r", "default/b": "r"}


def test_nothing_is_kept_of_a_group_that_no_pod_names() -> None:
    state = folded(put(group("g", queue="q")), GROUP_GONE)
    assert state.former == {}
    folded(put(group("g", queue="q")), running("a"), GROUP_GONE, ev.ObjectGone("Pod", "default/a"), state=state)
    assert state.former == {}


def test_a_pod_that_changes_its_group_leaves_nothing_behind() -> None:
    state = folded(put(group("g", queue="q")), running("a"), GROUP_GONE, put(pod("a", group="h", on="n1")))
    assert list(state.former) == ["default/h"]


def test_a_checkpoint_holds_the_queues_of_groups_that_are_gone() -> None:
    state = folded(put(node("n1")), put(group("g", queue="q")), running("a"), running("b"), GROUP_GONE)
    loaded = ClusterState.load(state.dump())
    assert orphans_of(loaded) == orphans_of(state) == {"default/a": "q", "default/b": "q"}
    assert loaded.dump() == state.dump()


def test_pods_that_come_before_their_group_leave_no_trace_in_a_checkpoint() -> None:
    late = folded(put(pod("a", group="g")), put(group("g")))
    early = folded(put(group("g")), put(pod("a", group="g")))
    assert late.dump() == early.dump()
    assert b"former" not in late.dump()


def test_resources_have_columns_if_nodes_offer_or_queues_limit_them() -> None:
    """Whoever may create pods made all sums wider by the names of resources that a pod asked for."""
    state = folded(*BASE)
    odd = {f"example.com/odd-{number}": "2" for number in range(100)}
    folded(put(pod("odd", group="odd", requests={**odd, "example.com/last": "3"})), state=state)
    folded(put(queue("default")), put(group("odd", minimum=odd)), state=state)
    snapshot = SnapshotMaker(state).snapshot()
    assert snapshot.resources == ("cpu", "memory", "pods", UNOFFERED)
    row, index = state.tasks.row_of["default/odd"], snapshot.group_columns.keys.index("default/odd")
    assert snapshot.shape_columns.requests[snapshot.tasks.shape[row]].tolist() == [0, 0, 1, 3000]
    assert snapshot.group_columns.min_resources[index].tolist() == [0, 0, 0, 2000]
    limits = queue("limits", capability={"example.com/odd-2": 8})
    folded(put(node("n3", **{"example.com/odd-1": 8})), put(limits), state=state)
    names = (*snapshot.resources[:2], "example.com/odd-1", "example.com/odd-2", "pods", UNOFFERED)
    for each in (state, ClusterState.load(state.dump())):
        assert SnapshotMaker(each).snapshot().resources == names
    folded(ev.ObjectGone("Node", "n3"), ev.ObjectGone("Queue", "limits"), state=state)
    assert SnapshotMaker(state).snapshot().resources == snapshot.resources
