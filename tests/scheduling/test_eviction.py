"""Making room: the fewest that suffice, trials that leave nothing behind, budgets, and who is not evicted again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.dsl import NOW_NS, Manifest, flat, gang, node, open_session, pod, priority_class, queue, session_of
from tests.plugins.opened import job_of, named, plugin_of, queue_of, task_of, tasks_of
from tests.sizes import examples
from tests.state.test_evictions import decided, evict
from tests.world import World
from vcd.model import events as ev
from vcd.model.objects import PodDisruptionBudget
from vcd.model.status import TaskStatus
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.decide import instances
from vcd.scheduling.eviction.budgets import budgets_now
from vcd.scheduling.eviction.vetoes import Vetoes
from vcd.scheduling.eviction.victim_search import VictimFinder, placed_tasks
from vcd.scheduling.framework import registry
from vcd.scheduling.framework.arguments import parse_arguments
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.plugins.drf import DrfPlugin
from vcd.scheduling.plugins.proportion import ProportionPlugin
from vcd.scheduling.search.candidates import Memory
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.session_immunity import immunity_of
from vcd.scheduling.session.statement import Statement
from vcd.state.snapshot import SnapshotMaker
from vcd.timetravel.planning import state_of

CONF = """actions: preempt
tiers:
- plugins:
  - name: conformance
  - name: predicates
  - name: drf
    enablePreemptable: false
  - name: proportion
"""


def room_for(session: Session, name: str = "new") -> VictimFinder:
    """The search for room among all placed tasks of other jobs."""
    placed = placed_tasks(session)
    job = job_of(session, name)
    chosen = session.job_of_row[placed.rows] != job.index
    return VictimFinder(
        framework_of(session),
        job,
        framework_of(session).preemptable,
        placed.freeable(chosen),
        lambda task: "is of the job itself" if task.job is job else "",
        "for a test",
        Vetoes(),
    )


def picture(session: Session) -> dict[str, Any]:
    """All that a trial may change, as plain values."""
    shares, queues = plugin_of(session, DrfPlugin), plugin_of(session, ProportionPlugin)
    return {
        "usage": session.nodes.usage.matrix.tolist(),
        "jobs": [
            (job.key, list(job.counts), list(job.allocated), job.best_effort_pending, shares.share(shares.held(job)))
            for job in session.all_jobs()
        ],
        "tasks": [(task.key, task.status, task.node) for job in session.all_jobs() for task in job.tasks()],
        "queues": sorted(map(tuple, queues.gauges())),
        "order": [framework_of(session).queue_key(entry) for entry in session.queue_list],
        "placements": session.trial.placements,
        "nodes": [
            [(name, framework_of(session).candidates(task_of(session, name)).keys().tolist())] for name in ("new-0",)
        ],
    }


def freed(session: Session, *names: str, where: int = 0) -> list[str] | None:
    """Whom the task new-0 has evicted of those offered in this order."""
    statement = Statement(session.trial, "test", job_of(session, "new"))
    found = room_for(session).evict_for(statement, task_of(session, "new-0"), where, tasks_of(session, *names))
    if found is not None:
        evicted = {
            task.name for job in session.all_jobs() for task in job.tasks() if task.status == TaskStatus.RELEASING
        }
        assert evicted == set(named(found))
    return None if found is None else named(found)


def opened(*olds: dict[str, Any], new: dict[str, Any], **room: Any) -> Session:
    """A node with running pods old0-0, old1-0, ... of these requests, and a task that waits."""
    jobs = [gang(f"old{i}", 1, on=["n"], **options) for i, options in enumerate(olds)]
    return session_of(node("n", **room), queue("default"), *jobs, gang("new", 1, **new), conf=CONF)


# --- the fewest ---------------------------------------------------------------------------------------------------


def test_nobody_goes_where_there_is_room() -> None:
    assert freed(opened({"cpu": 2}, new={"cpu": 4}), "old0-0") == []


def test_as_many_go_as_are_needed_the_first_offered_first() -> None:
    session = opened(*[{"cpu": 2}] * 4, new={"cpu": 4})
    assert freed(session, "old2-0", "old0-0", "old1-0", "old3-0") == ["old2-0", "old0-0"]


def test_who_turns_out_to_be_too_little_is_given_back() -> None:
    """The small one went first, and the big one alone is enough."""
    session = opened({"cpu": 1}, {"cpu": 7}, new={"cpu": 7})
    assert freed(session, "old0-0", "old1-0") == ["old1-0"]


def test_who_would_go_last_is_given_back_first() -> None:
    """Either of the two small ones would do beside the big one."""
    session = opened({"cpu": 2}, {"cpu": 2}, {"cpu": 4}, new={"cpu": 6})
    assert freed(session, "old0-0", "old1-0", "old2-0") == ["old0-0", "old2-0"]


def test_who_holds_nothing_that_is_lacking_is_not_asked_to_go() -> None:
    session = opened({"gpu": 4}, {"cpu": 8}, new={"cpu": 4}, gpu=4)
    assert freed(session, "old0-0", "old1-0") == ["old1-0"]


def test_where_not_all_of_them_would_do_nobody_goes() -> None:
    session = opened({"cpu": 4}, {"cpu": 4}, new={"cpu": 8})
    before = picture(session)
    assert freed(session, "old0-0") is None
    assert picture(session) == before


def test_where_the_queue_has_no_room_those_go_whose_going_makes_some() -> None:
    """The node is half empty; the queue's capability is what is short, of cpu and not of gpu."""
    jobs = [gang("gpus", 1, on=["n"], gpu=2), gang("cpus", 1, on=["n"], cpu=4)]
    limited = queue("default", capability={"cpu": "4"})
    session = session_of(node("n", cpu=16, gpu=4), limited, *jobs, gang("new", 1, cpu=4), conf=CONF)
    assert freed(session, "gpus-0", "cpus-0") == ["cpus-0"]


def test_a_pod_too_many_for_the_node_is_a_lack_as_well() -> None:
    session = opened({"cpu": 1}, {}, new={}, pods=2)
    assert freed(session, "old1-0", "old0-0") == ["old1-0"]


REQUESTS = st.fixed_dictionaries({"cpu": st.integers(0, 4), "memory": st.integers(0, 4), "gpu": st.integers(0, 2)})


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(REQUESTS, max_size=6), REQUESTS)
def test_victims_are_minimal_and_a_failed_trial_leaves_nothing(olds: list[dict[str, int]], new: dict[str, int]) -> None:
    """With room alone to mind: who goes is enough, none of them could stay, and None means that all are too few."""
    held = {name: sum(old[name] for old in olds) for name in ("cpu", "memory", "gpu")}
    total = {name: max(value, 3) for name, value in held.items()}
    session = opened(*olds, new=new, **total)
    names = [f"old{i}-0" for i in range(len(olds))]

    def enough(going: Iterable[str]) -> bool:
        gone = [olds[names.index(name)] for name in going]
        return all(
            total[name] - held[name] + sum(old[name] for old in gone) >= new[name] for name in ("cpu", "memory", "gpu")
        )

    before = picture(session)
    found = freed(session, *names)
    if found is None:
        assert not enough(names)
        assert picture(session) == before
    else:
        assert enough(found)
        assert not any(enough([other for other in found if other != name]) for name in found)


def test_a_trial_that_is_undone_leaves_nothing() -> None:
    session = opened(*[{"cpu": 2}] * 4, new={"cpu": 4})
    before = picture(session)
    statement = Statement(session.trial, "test", job_of(session, "new"))
    task, room = task_of(session, "new-0"), room_for(session)
    assert room.evict_for(statement, task, 0, room.victim_candidates(task, 0))
    statement.pipeline([task], [0])
    assert picture(session) != before
    statement.discard()
    assert picture(session) == before


@pytest.mark.parametrize("action", ["preempt", "reclaim", "gangpreempt", "gangreclaim"])
def test_an_action_that_finds_nothing_leaves_nothing(monkeypatch: pytest.MonkeyPatch, action: str) -> None:
    """The gang needs two nodes, and a pod that is never evicted has one of them."""
    rule = {"labelSelector": {"matchLabels": {"app": "new"}}, "topologyKey": "kubernetes.io/hostname"}
    apart = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [rule]}}}
    high = {"group_spec": {"priorityClassName": "high"}, "queue": "q" if "reclaim" in action else "default"}
    high |= {"labels": {"app": "new"}, "spec": apart}
    jobs = [gang("old", 4, members=1, on=["n"] * 4, cpu=2), gang("new", 2, members=2, cpu=2, **high)]
    jobs.append(gang("kept", 1, on=["m"], cpu=8, annotations={"volcano.sh/preemptable": "false"}))
    conf = CONF + "- plugins:\n  - name: gang\n  - name: priority\n"
    session = session_of(node("m"), node("n"), queue("q"), priority_class("high", 100), *jobs, conf=conf)
    trials: list[str] = []
    really = Statement.evict
    monkeypatch.setattr(Statement, "evict", lambda self, task, why: (trials.append(task.name), really(self, task, why)))
    before = picture(session)
    kind = registry.actions()[action]
    kind(parse_arguments(kind.arguments, {})).execute(framework_of(session))
    assert trials
    assert session.trial.statements == []
    assert picture(session) == before


# --- who is asked -------------------------------------------------------------------------------------------------


def test_tasks_that_left_in_trial_are_not_offered_again() -> None:
    session = opened({"cpu": 2}, {"cpu": 2}, new={"cpu": 8})
    statement = Statement(session.trial, "test", job_of(session, "new"))
    statement.evict(task_of(session, "old0-0"), "why")
    assert named(placed_tasks(session).on_node(0)) == ["old1-0"]
    statement.discard()
    assert named(placed_tasks(session).on_node(0)) == ["old0-0", "old1-0"]


def test_what_is_freeable_of_a_node_is_what_the_chosen_hold() -> None:
    session = session_of(node("m"), node("n"), gang("a", 3, on=["m", "n", "n"], cpu=2, memory=1), conf=CONF)
    placed = placed_tasks(session)
    freeable = placed.freeable(placed.nodes == 1)
    assert freeable.initial[:2].tolist() == [[0, 4000], [0, 2 * 2**30]]


def test_what_is_left_to_free_is_less_what_went_until_that_is_taken_back() -> None:
    session = session_of(node("m"), node("n"), gang("a", 3, on=["m", "n", "n"], cpu=2, memory=1), conf=CONF)
    placed = placed_tasks(session)
    freeable = placed.freeable(placed.nodes == 1)
    statement = Statement(session.trial, "test", job_of(session, "a"))
    statement.evict(task_of(session, "a-0"), "on a node that is not among them")
    statement.evict(task_of(session, "a-1"), "why")
    assert freeable.left()[0].tolist() == [0, 2000]
    assert freeable.initial[0].tolist() == [0, 4000]
    statement.discard()
    assert freeable.left()[0].tolist() == [0, 4000]


def world_with_replacement(*others: Any) -> World:
    """The group old lost old-0 to the group new, which waits, and old-3 came for it."""
    world = World(
        node("n", cpu=16),
        gang("old", 3, members=1, on=["n"] * 3, cpu=1),
        gang("new", 1, cpu=4),
        *others,
        conf=CONF,
    )
    world.happen(decided((evict("old-0"),)))
    world.remove("Pod", "default/old-0")
    world.put([*gang("old", 4, members=1, on=["n"] * 4, cpu=1, created=60)][4:])
    return world


def immune(world: World, preemptor: str = "new") -> list[str]:
    """The placed pods that are not evicted for a job."""
    policy = read_policy(CONF)
    session = open_session(world.maker.snapshot(), policy, instances(policy), NOW_NS, 0, Memory())
    immunity, job = immunity_of(session), job_of(session, preemptor)
    tasks = session.views.tasks_at(placed_tasks(session).rows.tolist())
    found = named([task for task in tasks if immunity.covers(task, job)])
    offered = named(room_for(session, preemptor).victim_candidates(job.tasks()[0], 0))
    assert not set(found) & set(offered)
    return sorted(found)


def test_pods_beyond_the_number_of_evicted_ones_may_go() -> None:
    world = world_with_replacement()
    world.put([*gang("old", 5, members=1, on=["n"] * 5, cpu=1, created=120)][5:])
    assert immune(world) == ["old-3"]


def test_where_the_whole_group_was_made_anew_none_is_evicted_again() -> None:
    """A job that restarts as a whole when it loses one."""
    world = world_with_replacement()
    world.remove("Pod", "default/old-1", "default/old-2")
    world.put([*gang("old", 6, members=1, on=["n"] * 6, cpu=1, created=120)][5:])
    assert immune(world) == ["old-3", "old-4", "old-5"]


NEWS = list(gang("late", 1, cpu=1))
"""A job that comes later: new input."""


@pytest.mark.parametrize(
    ("preemptor", "undisturbed", "after_news"),
    [
        ([], True, True),
        (list(gang("twin", 1, cpu=4)), True, True),
        (list(gang("small", 1, cpu=3)), True, False),
        (list(gang("urgent", 1, cpu=4, group_spec={"priorityClassName": "high"})), True, False),
        (list(gang("elsewhere", 1, cpu=4, queue="other")), True, False),
    ],
    ids=["the owner", "an equivalent one", "another shape", "another priority", "another queue"],
)
def test_the_replacement_is_immune_to_whom_its_predecessor_was_evicted_for(
    preemptor: Any, undisturbed: bool, after_news: bool
) -> None:
    preemptor = list(preemptor)
    name = preemptor[0]["metadata"]["name"] if preemptor else "new"
    world = world_with_replacement(priority_class("high", 1000), queue("other"), preemptor)
    assert (immune(world, name) == ["old-3"]) is undisturbed
    world.put(NEWS)
    assert (immune(world, name) == ["old-3"]) is after_news
    assert immune(world, "late") == []


@pytest.mark.parametrize("name", ["new", "twin"])
def test_once_the_owner_has_its_place_those_equivalent_to_it_may_have_the_replacement_evicted(name: str) -> None:
    world = world_with_replacement(gang("twin", 1, cpu=4), NEWS)
    world.put(node("n", cpu=16), [*gang("new", 1, on=["n"], cpu=4)], [*gang("news", 1, cpu=1)])
    assert immune(world, name) == ([] if name == "twin" else ["old-3"])


def refuse_bind(world: World, name: str) -> None:
    session = world.state.session + 1
    bind = ev.Operation("bind", f"default/{name}", f"uid-default-{name}", "n")
    world.happen(decided((bind,), action="allocate", session=session))
    world.happen(ev.OperationDone(session, 0, 0, "failed", "a webhook denied it", NOW_NS))


@pytest.mark.parametrize("waiting", [1, 2, 3])
def test_an_owner_whose_pods_were_all_refused_last_does_not_stand_for_equivalent_jobs(waiting: int) -> None:
    """Whether its back-off is over or not. For equivalent jobs that were refused, too, it does."""
    world = world_with_replacement(gang("new", waiting, cpu=4), gang("twin", 1, cpu=4), NEWS)
    world.put(NEWS[0] | {"metadata": {**NEWS[0]["metadata"], "name": "more"}})
    for number in range(waiting):
        assert immune(world, "twin") == ["old-3"]
        refuse_bind(world, f"new-{number}")
    assert immune(world, "twin") == []
    assert immune(world, "new") == ["old-3"]
    refuse_bind(world, "twin-0")
    assert immune(world, "twin") == ["old-3"]


@pytest.mark.parametrize(
    "change",
    [
        lambda world: world.put(node("m")),
        lambda world: world.put(queue("other")),
        lambda world: world.put([*gang("old", 0, members=2)]),
        lambda world: world.put(pod("new-1", group="new", cpu=4)),
    ],
    ids=["node", "queue", "group", "the owner grows"],
)
def test_it_may_go_once_something_changed(change: Callable[[World], None]) -> None:
    world = world_with_replacement()
    change(world)
    assert immune(world) == []


# --- budgets ------------------------------------------------------------------------------------------------------


def budget(
    name: str, allowed: int, selector: Manifest | None, *, namespace: str = "default", **status: Any
) -> Manifest:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {} if selector is None else {"selector": selector},
        "status": {"disruptionsAllowed": allowed, **status},
    }


APP = {"matchLabels": {"app": "x"}}
ANY = {"matchExpressions": [{"key": "none", "operator": "DoesNotExist"}]}


def guarded(*budgets: Manifest) -> Session:
    manifests = flat(
        [node("n"), gang("a", 4, on=["n"] * 4, cpu=1, labels={"app": "x"}), gang("b", 1, on=["n"], cpu=1), budgets]
    )
    session = session_of(manifests, conf=CONF)
    assert all(
        isinstance(kept, PodDisruptionBudget) for kept in session.snapshot.others["PodDisruptionBudget"].values()
    )
    return session


def violated(session: Session, *names: str) -> int:
    return budgets_now(session).violated(tasks_of(session, *names))


@pytest.mark.parametrize(
    ("budgets", "names", "count"),
    [
        ([budget("x", 2, APP)], ["a-0", "a-1"], 0),
        ([budget("x", 2, APP)], ["a-0", "a-1", "a-2"], 1),
        ([budget("x", 0, APP)], ["a-0", "a-1"], 2),
        ([budget("x", 0, APP)], ["b-0"], 0),
        ([budget("x", 0, {})], ["a-0", "b-0"], 0),
        ([budget("x", 0, ANY)], ["a-0", "b-0"], 2),
        ([budget("x", 0, None)], ["a-0"], 0),
        ([budget("x", 0, APP, namespace="other")], ["a-0"], 0),
        ([budget("x", 0, APP, disruptedPods={"a-0": "2026-01-01T00:00:00Z"})], ["a-0", "a-1"], 1),
        ([budget("x", 0, APP), budget("y", 0, ANY)], ["a-0"], 1),
        ([budget("x", 1, APP), budget("y", 0, ANY)], ["a-0", "a-1"], 2),
        ([budget("x", 0, {"matchExpressions": [{"key": "app", "operator": "Among"}]})], ["a-0"], 0),
    ],
)
def test_victims_that_exceed_a_budget(budgets: list[Manifest], names: list[str], count: int) -> None:
    """Each counts once, however many budgets it exceeds."""
    assert violated(guarded(*budgets), *names) == count


def test_what_the_session_evicted_already_is_off_the_budget() -> None:
    session = guarded(budget("x", 1, APP))
    statement = Statement(session.trial, "test", job_of(session, "a"))
    statement.evict(task_of(session, "a-0"), "why")
    assert violated(session, "a-1") == 1
    statement.discard()
    assert violated(session, "a-1") == 0


def test_asking_takes_nothing_off_the_budget() -> None:
    budgets = budgets_now(session := guarded(budget("x", 1, APP)))
    assert [budgets.violated(tasks_of(session, "a-0")) for _ in range(3)] == [0, 0, 0]


def test_a_cluster_without_budgets() -> None:
    session = session_of(node("n"), gang("a", 1, on=["n"], cpu=1), conf=CONF)
    assert violated(session, "a-0") == 0
    assert queue_of(session, "default").is_open


def test_rows_of_an_unknown_group_are_passed_over() -> None:
    """Its pods remain after the group is gone."""
    maker = SnapshotMaker(state_of(flat([node("n"), gang("a", 1, on=["n"], cpu=1)])))
    policy = read_policy(CONF)
    session = open_session(maker.snapshot(), policy, instances(policy), NOW_NS, 0, Memory())
    assert not immunity_of(session)
