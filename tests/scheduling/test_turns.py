"""A session tries pods of so many kinds of each namespace; the others have their turn in the next ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from tests.actions.test_preempt import CLASSES, CONF, job
from tests.dsl import BARE, BY_QUEUE, gang, group, node, pod, priority_class, queue
from tests.world import Manifest, World
from vcd.model import events as ev
from vcd.model.term_counts import MOST
from vcd.state.cluster_state import ClusterState
from vcd.state.records import Settings


def kinds(count: int, *, first: int = 0, least: int = 1, namespace: str = "default") -> Iterator[Manifest]:
    """Jobs of one pod, each of another kind; what is created first comes first."""
    for number in range(first, first + count):
        name = f"job-{number:03}"
        yield group(name, namespace=namespace, created=number)
        amounts = {"cpu": f"{1000 * least + number}m"}
        yield pod(name, group=name, namespace=namespace, created=number, requests=amounts)


def bounded(limit: int, *objects: Manifest | Iterable[Manifest], conf: str = BARE, memory: bool = True) -> World:
    """A cluster whose sessions try so many kinds."""
    world = World(conf=conf, memory=memory)
    world.happen(ev.PolicyLoaded(world.policy.digest, world.policy.text, Settings(kinds=limit).as_text()))
    world.put(*objects)
    return world


def until_all_had_their_turn(world: World, most: int = 60) -> list[ev.Plan]:
    """The plans of sessions, until no other one has to follow."""
    plans = [world.cycle()]
    while plans[-1].more:
        plans.append(world.cycle())
        assert len(plans) < most
    return plans


def binds(plan: ev.Plan) -> list[str]:
    return [operation.key for operation in plan.operations("bind")]


@pytest.mark.parametrize(("count", "limit"), [(5, 2), (9, 3), (7, 1), (40, 16)])
def test_the_first_by_age_have_their_turn_first_and_all_have_one(count: int, limit: int) -> None:
    world = bounded(limit, node("n", cpu=count * 2), kinds(count))
    plans = until_all_had_their_turn(world)
    bound = [key for plan in plans for key in binds(plan)]
    assert bound == [f"default/job-{number:03}" for number in range(count)]
    assert {len(binds(plan)) for plan in plans} <= {limit, count % limit, 0}
    assert not world.state.turns


@pytest.mark.parametrize("count", [4, 30, 90])
def test_another_namespace_does_not_wait_for_one_with_many_kinds(count: int) -> None:
    world = bounded(3, node("n", cpu=200), kinds(count), kinds(1, first=900, namespace="other"))
    assert "other/job-900" in binds(world.cycle())


def test_higher_priority_has_its_turn_first() -> None:
    urgent = group("urgent", created=900, priorityClassName="high"), pod("urgent", group="urgent", cpu=1)
    world = bounded(2, node("n", cpu=100), priority_class("high", 10), kinds(9), urgent)
    assert binds(world.cycle()) == ["default/urgent", "default/job-000"]


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_equal_jobs_and_equal_pods_count_once(limit: int) -> None:
    alike = [one for number in range(20) for one in gang(f"g{number:02}", 4, cpu=1)]
    world = bounded(limit, node("n", cpu=100), *alike)
    plan = world.cycle()
    assert len(binds(plan)) == 80
    assert not plan.turns


def test_a_gang_of_more_kinds_than_a_session_tries_is_tried_whole() -> None:
    pods = [pod(f"p{number}", group="g", cpu=number + 1) for number in range(6)]
    world = bounded(2, node("n", cpu=60), group("g", members=6), *pods, kinds(3, first=10))
    plans = until_all_had_their_turn(world)
    assert [len(binds(plan)) for plan in plans][:2] == [6, 2]


def test_a_pod_that_states_many_terms_counts_as_several_kinds() -> None:
    expressions = [{"key": f"key-{number}", "operator": "DoesNotExist"} for number in range(12)]
    selector = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selector}}
    heavy = group("heavy"), pod("heavy", group="heavy", cpu=1, spec={"affinity": affinity})
    conf = BARE + "  - name: predicates\n"
    world = bounded(5, node("n", cpu=60), heavy, kinds(4, first=1), conf=conf)
    assert binds(world.cycle()) == ["default/heavy", "default/job-001"]


@pytest.mark.parametrize("memory", [True, False])
def test_those_that_fit_nowhere_are_each_tried_once_and_then_the_cluster_rests(memory: bool) -> None:
    world = bounded(4, node("n", cpu=8), kinds(10, least=9), memory=memory)
    plans = until_all_had_their_turn(world)
    assert [len(plan.turns) for plan in plans] == [1, 1, 1]
    assert len(world.state.waiting) == 10
    again = world.cycle()
    assert not (again.statements or again.waiting or again.groups)


def test_reasons_of_those_whose_turn_comes_later_stay() -> None:
    world = bounded(4, node("n", cpu=8), kinds(10, least=9))
    until_all_had_their_turn(world)
    waiting = dict(world.state.waiting)
    world.put(node("far", cpu=1))
    plan = world.cycle()
    assert {each.group for each in plan.waiting} <= {f"default/job-{number:03}" for number in range(4)}
    assert waiting.keys() == world.state.waiting.keys()


@pytest.mark.parametrize("sessions", [1, 2, 3])
def test_what_happens_while_others_have_their_turn_gives_all_another_one(sessions: int) -> None:
    """The node that the first job needs comes after its turn; the last session says that another one has to follow."""
    world = bounded(3, node("n", cpu=8), kinds(12, least=9))
    for _ in range(sessions):
        world.cycle()
    world.put(node("large", cpu=9))
    plans = until_all_had_their_turn(world)
    assert "default/job-000" in [key for plan in plans for key in binds(plan)]


def test_what_happens_while_the_first_session_is_decided_is_news() -> None:
    world = bounded(3, node("n", cpu=8), kinds(7, least=9))
    snapshot = world.maker.snapshot()
    plan = ev.Plan(more=True, turns=(ev.Turn("default", 0, 1, "default/job-002"),))
    world.put(node("large", cpu=9))
    record = ev.SessionDecided(1, snapshot.sequence, "", world.now, 0, 1, {}, ev.encode_plan(plan))
    world.happen(record)
    assert world.state.turns["default"].is_news


def test_a_namespace_whose_jobs_are_gone_is_forgotten() -> None:
    world = bounded(3, node("n", cpu=8), kinds(9, least=9))
    world.cycle()
    assert list(world.state.turns) == ["default"]
    for number in range(9):
        world.remove("Pod", f"default/job-{number:03}")
        world.remove("PodGroup", f"default/job-{number:03}")
    until_all_had_their_turn(world)
    assert not world.state.turns


def test_nominated_jobs_have_their_turn_in_each_session() -> None:
    """The capacity that is being freed for a preemptor stays its own."""
    jobs = job("victim", "low", on=["n"], cpu=8), job("nominated", "middle", cpu=8)
    world = bounded(2, CLASSES, node("n", cpu=8), *jobs, conf=CONF)
    world.decide()
    assert world.state.nominated
    world.put(*[job(f"high-{number}", "high", cpu=number) for number in range(10, 20)])
    assert world.decide().turns
    assert world.session is not None
    nominated, last = (world.session.jobs.index(f"default/{name}") for name in ("nominated", "high-19"))
    assert not world.session.turns.aside[nominated]
    assert world.session.turns.aside[last]


def test_a_checkpoint_holds_the_turns() -> None:
    world = bounded(3, node("n", cpu=8), kinds(9, least=9))
    world.cycle()
    dumped = world.state.dump()
    loaded = ClusterState.load(dumped)
    assert loaded.turns == world.state.turns
    assert world.state.turns


@pytest.mark.parametrize(
    ("field", "spec"),
    [
        (
            "spec.affinity",
            {
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [
                                {"matchExpressions": [{"key": f"k{number}", "operator": "Exists"}]}
                                for number in range(MOST // 2 + 1)
                            ]
                        }
                    }
                }
            },
        ),
        (
            "spec.topologySpreadConstraints",
            {
                "topologySpreadConstraints": [
                    {"maxSkew": 1, "topologyKey": f"k{number}", "whenUnsatisfiable": "ScheduleAnyway"}
                    for number in range(MOST + 1)
                ]
            },
        ),
    ],
)
def test_a_pod_that_states_too_much_waits_and_is_told_which_field_does(field: str, spec: Manifest) -> None:
    world = World(node("n", cpu=8), group("g"), pod("g", group="g", cpu=1, spec=spec), conf=BARE)
    assert not binds(world.cycle())
    assert f"{field} with more than {MOST}" in world.reasons("g")


def test_what_only_confirms_a_decision_or_shows_nothing_new_is_no_news() -> None:
    """Else the conditions that are written of some jobs would give all others another turn, and so on."""
    world = bounded(3, node("n", cpu=8), kinds(9, least=9))
    session = world.cycle()
    assert session.turns
    shown = ev.ObjectPut("Pod", "default/job-000", "7", None)
    world.happen(shown, ev.OperationDone(world.state.session, 0, 0, "done"))
    assert not world.state.turns["default"].is_news


def test_a_gang_that_lacks_pods_is_told_the_same_in_each_session() -> None:
    """Whoever looks at it while others have their turn, its reasons are those of its own turn."""
    gang_plugin = BARE + "  - name: proportion\n"
    short = [group("short", members=3, minTaskMember={"main": 3}), pod("short", group="short", cpu=1)]
    world = bounded(2, node("n", cpu=8), kinds(5, first=1, least=9), *short, conf=gang_plugin)
    until_all_had_their_turn(world)
    told = world.state.waiting["default/short"]
    for number in range(4):
        world.put(node(f"more-{number}", cpu=1))
        for plan in until_all_had_their_turn(world):
            assert not [each for each in plan.waiting if each.group == "default/short"]
    assert world.state.waiting["default/short"] == told


def test_equal_jobs_keep_their_reasons_while_another_stands_for_them() -> None:
    equal = [gang(f"equal-{number}", 1, cpu=30) for number in range(4)]
    world = bounded(2, node("n", cpu=8), *equal, kinds(5, first=1, least=9))
    until_all_had_their_turn(world)
    told = dict(world.state.waiting)
    assert len(told) == 9
    world.put(node("more", cpu=1))
    for plan in until_all_had_their_turn(world):
        assert not [each for each in plan.waiting if not each.gate]
    assert world.state.waiting.keys() == told.keys()


def test_nobody_of_lower_priority_comes_before_those_whose_turn_is_still_to_come() -> None:
    classes = priority_class("high", 10)
    jobs = list(kinds(7))
    for each in jobs:
        if each["kind"] == "PodGroup":
            each["spec"]["priorityClassName"] = "high"
    world = bounded(3, classes, node("n", cpu=100), jobs, kinds(1, first=900, namespace="other"))
    bound = [binds(plan) for plan in until_all_had_their_turn(world)]
    assert [len(keys) for keys in bound[:2]] == [3, 3]
    assert "other/job-900" in bound[2]


def test_each_job_has_its_turn_where_two_namespaces_differ_in_priority() -> None:
    classes = priority_class("high", 10)
    first, second = list(kinds(5)), list(kinds(5, namespace="other"))
    for each in first:
        if each["kind"] == "PodGroup":
            each["spec"]["priorityClassName"] = "high"
    world = bounded(2, classes, node("n", cpu=100), first, second)
    plans = until_all_had_their_turn(world)
    assert len([key for plan in plans for key in binds(plan)]) == 10


def test_what_a_session_decides_gives_those_before_it_another_turn() -> None:
    """The first job is tried before the eviction that makes room for it, which another namespace's turn brings."""
    plan = ev.Plan(statements=(ev.Statement("other/g", "reclaim", (ev.Operation("evict", "other/p", "", ""),)),))
    world = bounded(3, node("n", cpu=8), kinds(9, least=9))
    world.cycle()
    record = ev.SessionDecided(2, world.state.sequence, "", world.now, 0, 1, {}, ev.encode_plan(plan))
    world.happen(record)
    assert world.state.turns["default"].is_news


@pytest.mark.parametrize("limit", [0, 1, 2])
@pytest.mark.parametrize("claims", ["none", "of others", "its own"])
def test_a_group_that_fits_nowhere_reserves_nothing_while_its_turn_is_later(limit: int, claims: str) -> None:
    """Also if another pod names a claim, so that pods of one shape can differ in the nodes that they pass, and if its
    own claim does not exist."""
    conf = BY_QUEUE.replace("capacity", "proportion")
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    no_node = {"nodeSelector": {"disk": "none"}}
    nowhere = [
        group("nowhere", queue="q", minimum={"cpu": 3}),
        pod("nowhere", group="nowhere", cpu=3, spec={"volumes": volumes} if claims == "its own" else no_node),
    ]
    late = group("late", queue="q", phase="Pending", created=50, minimum={"cpu": 2})
    world = bounded(
        limit,
        node("n", cpu=8),
        queue("q", capability={"cpu": "4"}),
        nowhere,
        late,
        kinds(3, first=9, least=9),
        gang("claims", 1, cpu=9, spec={"volumes": volumes}) if claims == "of others" else [],
        conf=conf,
    )
    until_all_had_their_turn(world)
    assert world.state.groups["default/late"].group.status.phase == "Inqueue"


def test_a_group_that_runs_in_part_shows_the_same_phase_in_each_session() -> None:
    part = gang("part", 3, on=["n"], cpu=1, phase="Running")
    others = kinds(6, first=1, least=9)
    world = bounded(2, node("n", cpu=2), part, others)
    until_all_had_their_turn(world)
    world.put(node("more", cpu="500m"))
    for plan in until_all_had_their_turn(world):
        assert not plan.groups


def test_a_group_without_pending_pods_is_told_the_same_while_others_have_their_turn() -> None:
    short = gang("short", 2, members=3, on=["n", "n"], cpu=1, phase="Running")
    world = bounded(2, node("n", cpu=2), short, kinds(6, first=1, least=9))
    until_all_had_their_turn(world)
    told = world.state.waiting["default/short"]
    world.put(node("more", cpu="500m"))
    for plan in until_all_had_their_turn(world):
        assert not plan.groups
        assert world.state.waiting["default/short"] == told


@pytest.mark.parametrize(("jobs", "labelled", "sessions"), [(16, False, 1), (40, False, 3), (16, True, 16)])
def test_jobs_of_one_shape_are_one_kind_unless_labels_matter(jobs: int, labelled: bool, sessions: int) -> None:
    """They are of one class only where nothing else tells them apart, as their queues do here."""
    selector = {"labelSelector": {"matchLabels": {"app": "a"}}, "topologyKey": "kubernetes.io/hostname"}
    term = {"weight": 1, "podAffinityTerm": selector}
    affinity = {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}
    queues = [queue(f"q{number}") for number in range(jobs)]
    made = [
        gang(
            f"g{number:02}",
            1,
            cpu=1,
            queue=f"q{number}",
            labels={"n": str(number)},
            spec={"affinity": affinity} if labelled else {},
        )
        for number in range(jobs)
    ]
    world = bounded(1, node("n", cpu=jobs), *queues, *made, conf=BARE + "  - name: predicates\n")
    plans = [plan for plan in until_all_had_their_turn(world) if binds(plan)]
    assert len(plans) == sessions
