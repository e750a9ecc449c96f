"""task-topology: annotations, buckets, order of tasks, points of nodes, what trials change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.dsl import flat, gang, group, moment, node, planned, pod, priority_class, session_of
from tests.plugins.opened import plugin_of, task_of
from tests.predicates.asking import pending
from tests.scores.rating import points
from tests.sizes import examples
from tests.world import World
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.plugins.task_topology import TaskTopologyPlugin
from vcd.scheduling.plugins.task_topology.buckets import (
    AFFINITY,
    ANTI_AFFINITY,
    TASK_ORDER,
    Topology,
    TopologyError,
    read_topology,
)
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.statement import Statement

Manifest = dict[str, Any]

ROLE = "volcano.sh/task-spec"
SCORE = "task topology"


def conf(weight: int | None = None, *plugins: str) -> str:
    lines = ["actions: allocate", "tiers:", "- plugins:", *(f"  - name: {name}" for name in plugins)]
    lines.append("  - name: task-topology")
    if weight is not None:
        lines += ["    arguments:", f"      task-topology.weight: {weight}"]
    return "\n".join(lines) + "\n"


def task(name: str, role: str | None = None, **options: Any) -> Manifest:
    """A pod of the job j; its role is its name up to the number, unless given."""
    role = name.rstrip("0123456789") if role is None else role
    return pod(name, group="j", annotations={ROLE: role} if role else {}, **{"cpu": 1, **options})


def job(
    *tasks: Manifest, affinity: str | None = None, anti: str | None = None, order: str | None = None, members: int = 1
) -> list[Manifest]:
    """The group j with its annotations, and its pods."""
    made = group("j", members=members)
    texts = {AFFINITY: affinity, ANTI_AFFINITY: anti, TASK_ORDER: order}
    made["metadata"]["annotations"] = {key: text for key, text in texts.items() if text is not None}
    return [made, *tasks]


def tasks(*names: str, **options: Any) -> list[Manifest]:
    return [task(name, **options) for name in names]


def opened(*objects: Any, weight: int | None = None) -> Session:
    return session_of(*objects, conf=conf(weight))


def buckets(session: Session) -> list[set[str]]:
    """The names of the tasks in each bucket."""
    found: dict[int, set[str]] = {}
    index = session.jobs.index("default/j")
    topology = plugin_of(session, TaskTopologyPlugin)._jobs.get(index)
    if topology is None:
        return []
    for row, bucket in topology.bucket_of.items():
        found.setdefault(bucket.index, set()).add(session.task(row).name)
    return [found[index] for index in sorted(found)]


def order(session: Session) -> list[str]:
    """The names of the job's pending tasks, the first to be placed first."""
    waiting = session.job(session.jobs.index("default/j")).pending()
    return [task.name for task in framework_of(session).in_task_order(waiting)]


# --- annotations ------------------------------------------------------------------------------------------------------

ROLES = {"ps", "worker", "chief", "evaluator", "ps-some", "worker-some"}


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        (
            {AFFINITY: "ps,worker;ps,chief", ANTI_AFFINITY: "ps;worker,chief", TASK_ORDER: "ps,worker,chief,evaluator"},
            Topology(
                (("ps", "worker"), ("ps", "chief")),
                (("ps",), ("worker", "chief")),
                ("ps", "worker", "chief", "evaluator"),
            ),
        ),
        ({AFFINITY: "ps-some,worker-some"}, Topology(affinity=(("ps-some", "worker-some"),))),
        ({ANTI_AFFINITY: "worker"}, Topology(anti_affinity=(("worker",),))),
        ({TASK_ORDER: "ps"}, Topology(order=("ps",))),
        ({AFFINITY: "ps,worker;;"}, Topology(affinity=(("ps", "worker"), ("",), ("",)))),
        ({TASK_ORDER: "ps,,worker,"}, Topology(order=("ps", "", "worker", ""))),
        ({AFFINITY: ""}, Topology(affinity=(("",),))),
    ],
)
def test_sets_are_parted_by_semicolons_and_roles_by_commas(annotations: dict[str, str], expected: Topology) -> None:
    assert read_topology(annotations, ROLES) == expected


@pytest.mark.parametrize(
    ("annotations", "words"),
    [
        ({AFFINITY: "$%GF$^trtqwrg^"}, f"{AFFINITY}: task $%GF$^trtqwrg^ does not exist in the job"),
        ({ANTI_AFFINITY: "ps;driver"}, f"{ANTI_AFFINITY}: task driver does not exist in the job"),
        ({TASK_ORDER: "ps,driver"}, f"{TASK_ORDER}: task driver does not exist in the job"),
        ({AFFINITY: "ps, worker"}, f"{AFFINITY}: task  worker does not exist in the job"),
        ({ANTI_AFFINITY: "ps,ps"}, f"{ANTI_AFFINITY}: task ps is named twice in ps,ps"),
        ({TASK_ORDER: "ps,worker,ps"}, f"{TASK_ORDER}: task ps is named twice in ps,worker,ps"),
    ],
)
def test_roles_must_exist_and_be_named_once_in_a_set(annotations: dict[str, str], words: str) -> None:
    with pytest.raises(TopologyError) as raised:
        read_topology(annotations, ROLES)
    assert str(raised.value) == words


def test_one_wrong_annotation_makes_all_three_count_for_nothing_and_is_told_of() -> None:
    objects = job(*tasks("ps0", "ps1", cpu=9), affinity="ps", order="driver")
    assert buckets(opened(node("n"), objects)) == []
    result = planned(node("n"), objects, gang("ok", 1, cpu=1), conf=conf(1))
    assert result.binds == {"default/ok-0": "n"}
    why = next(reason for reason in result.why["default/j"] if reason.get("plugin") == "task-topology")
    assert why["reason"] == "the group's task topology is invalid, it is ignored"
    assert why["detail"]["error"] == f"{TASK_ORDER}: task driver does not exist in the job"
    assert ROLE in why["detail"]["mend"]


def test_a_group_without_annotations_has_no_buckets() -> None:
    session = opened(node("n"), job(*tasks("ps0", "ps1")))
    assert buckets(session) == []
    assert framework_of(session).evaluator.scores == ()


def test_a_job_without_pending_tasks_has_no_buckets() -> None:
    assert buckets(opened(node("n"), job(*tasks("ps0", "ps1", on="n"), affinity="ps"))) == []


def test_a_role_of_a_label_exists_but_puts_no_task_into_a_bucket() -> None:
    """As in Volcano: rules are checked against annotations and labels, buckets look at annotations alone."""
    labelled = pod("w", group="j", labels={ROLE: "worker"}, cpu=1)
    assert buckets(opened(node("n"), job(task("ps0"), labelled, affinity="ps,worker"))) == [{"ps0"}]


# --- buckets ----------------------------------------------------------------------------------------------------------

TENSORFLOW = tasks("ps0", "ps1", "worker0", "worker1", "worker2", "worker3")


def test_the_example_of_the_design_document() -> None:
    """Ps like workers and shun each other; workers go where less is asked for."""
    session = opened(node("n"), job(*TENSORFLOW, affinity="ps,worker", anti="ps"))
    assert buckets(session) == [{"ps0", "worker0", "worker2"}, {"ps1", "worker1", "worker3"}]
    assert order(session) == ["ps0", "worker0", "worker2", "ps1", "worker1", "worker3"]


def test_tasks_that_like_their_own_share_a_bucket() -> None:
    assert buckets(opened(node("n"), job(*tasks("a0", "a1", "a2"), affinity="a"))) == [{"a0", "a1", "a2"}]


def test_tasks_that_shun_their_own_have_a_bucket_each() -> None:
    assert buckets(opened(node("n"), job(*tasks("a0", "a1", "a2"), anti="a"))) == [{"a0"}, {"a1"}, {"a2"}]


def test_roles_that_shun_each_other_are_kept_apart() -> None:
    session = opened(node("n"), job(*tasks("a0", "a1", "b0", "b1"), anti="a,b"))
    assert buckets(session) == [{"a0", "a1"}, {"b0", "b1"}]


def test_a_role_that_is_neither_liked_nor_shunned_joins_a_bucket() -> None:
    session = opened(node("n"), job(*tasks("a0", "b0", "c0"), affinity="a,b;c"))
    assert buckets(session) == [{"a0", "b0", "c0"}]


def test_liked_and_shunned_tasks_are_set_off() -> None:
    """The worker likes two ps and shuns one chief in the first bucket: 2 - 1; the other bucket it likes by one."""
    objects = [*tasks("ps0", "ps1", "chief0", on="n"), *tasks("ps2", on="m"), task("worker0")]
    session = opened(node("n"), node("m"), job(*objects, affinity="ps,worker", anti="worker,chief"))
    assert buckets(session) == [{"ps2", "worker0"}, {"ps0", "ps1", "chief0"}]


def test_a_tie_goes_to_the_bucket_whose_waiting_tasks_ask_for_less() -> None:
    """A thousandth of a cpu or gpu counts as much as a mebibyte."""
    shunning = [task("a0", cpu=2, memory="1Gi"), task("a1", cpu=1, memory="2100Mi"), task("a2", cpu=1, gpu=3)]
    session = opened(node("n"), job(*shunning, task("b0"), anti="a", affinity="a,b"))
    assert buckets(session) == [{"a0", "b0"}, {"a1"}, {"a2"}]


def test_tasks_on_nodes_are_in_a_bucket_for_each_node() -> None:
    """In the order of the nodes' names, whatever the rules; their requests do not count as load."""
    placed = [task("a0", on="n2"), task("a1", on="n1"), task("b0", on="n2", cpu=4)]
    session = opened(node("n1"), node("n2"), job(*placed, task("a2"), anti="a;a,b"))
    assert buckets(session) == [{"a1"}, {"a0", "b0"}, {"a2"}]


def test_tasks_on_nodes_that_are_gone_share_the_last_bucket_and_do_not_wait() -> None:
    placed = [task("a0", on="gone"), task("a1", on="lost"), task("a2", on="n")]
    session = opened(node("n"), job(*placed, task("b0"), affinity="a;b", anti="a,b"))
    assert buckets(session) == [{"a2"}, {"a0", "a1"}, {"b0"}]
    assert points(session, SCORE, "b0") == {"n": 0}


@pytest.mark.parametrize("outside", [{"role": ""}, {"role": "other"}])
def test_tasks_without_a_role_or_a_rule_for_it_are_in_no_bucket(outside: Manifest) -> None:
    session = opened(node("n"), job(task("x", **outside), task("a0"), affinity="a"))
    assert buckets(session) == [{"a0"}]


def test_a_role_that_is_only_in_the_order_is_in_no_bucket() -> None:
    assert buckets(opened(node("n"), job(task("a0"), task("b0"), affinity="a", order="b,a"))) == [{"a0"}]


# --- order of tasks ---------------------------------------------------------------------------------------------------


def test_larger_buckets_come_first_and_tasks_in_none_last() -> None:
    """a0 and a2 in one bucket, a1 in another, a3 in none: the example of Volcano's source."""
    objects = [task("a0", "x"), task("a1", "y"), task("a2", "x"), task("a3", "")]
    assert order(opened(node("n"), job(*objects, affinity="x;y", anti="x,y"))) == ["a0", "a2", "a1", "a3"]


def test_of_buckets_of_one_size_the_older_comes_first() -> None:
    assert order(opened(node("n"), job(*tasks("a1", "a0", "a2"), anti="a"))) == ["a0", "a1", "a2"]


def test_only_waiting_tasks_make_a_bucket_large() -> None:
    placed = tasks("a0", "a1", "a2", on="n")
    session = opened(node("n"), job(*placed, *tasks("a3", "b0", "b1"), affinity="a;b", anti="a,b"))
    assert buckets(session) == [{"a0", "a1", "a2", "a3"}, {"b0", "b1"}]
    assert order(session) == ["b0", "b1", "a3"]


def test_within_a_bucket_the_given_order_counts() -> None:
    names = ["ps0", "worker0", "chief0"]
    session = opened(node("n"), job(*tasks(*names), affinity="ps,worker,chief", order="chief,worker,ps"))
    assert order(session) == ["chief0", "worker0", "ps0"]


def test_roles_outside_the_given_order_come_after_those_in_it() -> None:
    session = opened(node("n"), job(*tasks("a0", "b0", "c0"), affinity="a,b,c", order="c"))
    assert order(session) == ["c0", "a0", "b0"]


def test_without_an_order_the_kind_of_rule_counts() -> None:
    """Shunning oneself, liking others, liking oneself, shunning others; all end up in one bucket but the last."""
    names = ["d-shuns-others0", "e-shuns-others0", "c-self0", "b-inter0", "x-inter0", "z-shuns-itself0"]
    rules = {"affinity": "b-inter,x-inter;c-self", "anti": "z-shuns-itself;d-shuns-others,e-shuns-others"}
    session = opened(node("n"), job(*tasks(*names), **rules))
    assert order(session) == [
        "z-shuns-itself0",
        "b-inter0",
        "x-inter0",
        "c-self0",
        "d-shuns-others0",
        "e-shuns-others0",
    ]


def test_jobs_without_topology_keep_their_order() -> None:
    session = opened(node("n"), job(*tasks("b0", "a0")), flat(gang("k", 2, cpu=1)))
    assert order(session) == ["a0", "b0"]


# --- points of nodes --------------------------------------------------------------------------------------------------

THREE = [node("n1", cpu=2), node("n2", cpu=1), node("n3", cpu=4)]


def test_as_many_of_the_bucket_as_fit_count() -> None:
    """The design document's first table: 2, 1, 3 of a bucket of 3."""
    session = opened(*THREE, job(*TENSORFLOW, affinity="ps,worker", anti="ps"), weight=3)
    assert points(session, SCORE, "ps0") == {"n1": 200, "n2": 100, "n3": 300}


def test_what_is_there_and_what_is_shunned_counts() -> None:
    """The document's tables as its tasks are placed: n3 gets ps0, worker0, worker2, then n1 gets ps1, worker1."""
    session = opened(*THREE, job(*TENSORFLOW, affinity="ps,worker", anti="ps"), weight=3)
    first = task_of(session, "ps0")
    statement = Statement(session.trial, "allocate", first.job)
    statement.allocate([first], [2])
    assert points(session, SCORE, "worker0") == {"n1": 200, "n2": 100, "n3": 300}
    statement.allocate([task_of(session, "worker0")], [2])
    assert points(session, SCORE, "worker2") == {"n1": 100, "n2": 100, "n3": 300}
    statement.allocate([task_of(session, "worker2")], [2])
    assert points(session, SCORE, "ps1") == {"n1": 200, "n2": 100, "n3": 0}


def test_the_document_is_followed_to_its_end() -> None:
    objects = job(*TENSORFLOW, affinity="ps,worker", anti="ps")
    binds = {key.partition("/")[2]: name for key, name in planned(*THREE, objects, conf=conf(10)).binds.items()}
    assert binds.pop("worker3") in ("n2", "n3")
    assert binds == {"ps0": "n3", "worker0": "n3", "worker2": "n3", "ps1": "n1", "worker1": "n1"}


@pytest.mark.parametrize(("weight", "expected"), [(None, 100), (1, 100), (10, 1000), (-1, -100)])
def test_the_weight_multiplies(weight: int | None, expected: float) -> None:
    assert points(opened(node("n"), job(task("a0"), affinity="a"), weight=weight), SCORE) == {"n": expected}


def test_a_weight_of_zero_rates_nothing() -> None:
    session = opened(node("n"), job(task("a0"), affinity="a"), weight=0)
    assert framework_of(session).evaluator.scores == ()
    assert buckets(session) == [{"a0"}]


def test_points_are_parts_of_the_largest_bucket() -> None:
    """Buckets of 3 and 1: the one alone gets a third."""
    session = opened(node("n"), job(*tasks("a0", "a1", "a2", "b0"), affinity="a;b", anti="a,b"))
    assert points(session, SCORE, "b0") == {"n": pytest.approx(100 / 3)}


def test_tasks_in_no_bucket_are_not_rated() -> None:
    session = opened(node("n"), job(task("a0"), task("x", ""), affinity="a"))
    score = next(score for score in framework_of(session).evaluator.scores if score.name == SCORE)
    assert score.applies(pending(session, "a0"))
    assert not score.applies(pending(session, "x"))


def test_a_node_that_is_too_small_for_the_task_gets_nothing_even_where_its_bucket_is() -> None:
    placed = task("a0", on="n1", cpu=2)
    session = opened(node("n1", cpu=3), node("n2"), job(placed, task("a1", cpu=2), affinity="a"))
    assert points(session, SCORE, "a1") == {"n1": 0, "n2": 50}


def test_room_that_is_being_freed_counts() -> None:
    leaving = pod("old", on="n1", cpu=2, deleting=True)
    session = opened(node("n1", cpu=2), leaving, job(*tasks("a0", "a1"), affinity="a"))
    assert points(session, SCORE, "a0") == {"n1": 100}


def test_tasks_of_the_bucket_on_a_node_count_there() -> None:
    placed = tasks("a0", "a1", on="n1")
    session = opened(node("n1"), node("n2"), job(*placed, task("a2"), affinity="a"))
    assert points(session, SCORE, "a2") == {"n1": 100, "n2": pytest.approx(100 / 3)}


def test_shunned_tasks_that_were_placed_before_the_session_count() -> None:
    placed = [task("a0", on="n1"), task("done", "a", on="n2", phase="Succeeded")]
    session = opened(node("n1"), node("n2"), job(*placed, task("a1"), anti="a"))
    assert points(session, SCORE, "a1") == {"n1": 0, "n2": 100}


def test_points_fall_below_zero_with_every_shunned_task() -> None:
    placed = tasks("a0", "a1", "a2", on="n1")
    session = opened(node("n1"), job(*placed, task("a3"), anti="a"))
    assert points(session, SCORE, "a3") == {"n1": pytest.approx((1 - 3) * 100 / 3)}


@pytest.mark.parametrize(
    ("cpu", "fits"),
    [(10, 4), (9, 3), (6, 3), (5, 2), (4, 2), (3, 1), (2, 1)],
)
def test_the_last_of_the_bucket_are_left_out_first(cpu: int, fits: int) -> None:
    """Requests of 2, 2, 2 and 4 in the order of adding: without the 4 three fit into 6."""
    waiting = [task("a0", cpu=2), task("a1", cpu=2), task("a2", cpu=2), task("a3", cpu=4)]
    session = opened(node("n", cpu=cpu), job(*waiting, affinity="a"))
    assert points(session, SCORE, "a0") == {"n": fits * 25}


def test_a_bucket_that_asks_for_more_than_64_bits_hold_is_rated_like_another() -> None:
    """1,100 pods of 8 PiB each: the plugin goes on, for other jobs, too."""
    huge = [task(f"a{i}", cpu=1, memory=str(2**53 - 1)) for i in range(1, 1101)]
    small = task("a0", cpu=1)
    found = planned(node("n1"), node("n2", cpu=1), job(*huge, small, affinity="a"), conf=conf(None, "gang"))
    assert (found.faults, found.binds) == ([], {"default/a0": "n1"})
    session = opened(node("n1"), node("n2", cpu=1), job(*huge, small, affinity="a"))
    assert points(session, SCORE, "a0") == {name: pytest.approx(100 / 1101) for name in ("n1", "n2")}


def test_the_scarcest_resource_decides_how_many_fit() -> None:
    waiting = tasks("a0", "a1", "a2", "a3", memory="1Gi", gpu=2)
    session = opened(node("n", cpu=8, memory="3Gi", gpu=4), job(*waiting, affinity="a"))
    assert points(session, SCORE, "a0") == {"n": 50}


def test_a_resource_that_the_bucket_does_not_ask_for_does_not_matter() -> None:
    over = pod("old", on="n", gpu=2, cpu=0)
    session = opened(node("n", gpu=1), over, job(*tasks("a0", "a1"), affinity="a"))
    assert points(session, SCORE, "a0") == {"n": 100}  # that node is over in what nobody here asks for
    session = opened(node("n", gpu=1), job(*tasks("a0", "a1"), affinity="a"))
    assert points(session, SCORE, "a0") == {"n": 100}


def test_the_point_may_be_switched_off() -> None:
    session = session_of(node("n"), job(task("a0"), affinity="a"), conf=conf() + "    enableNodeOrder: false\n")
    assert framework_of(session).evaluator.scores == ()


# --- trials -----------------------------------------------------------------------------------------------------------


def figures(session: Session, names: Iterable[str]) -> list[dict[str, float]]:
    return [points(session, SCORE, name) for name in names]


def test_what_is_placed_in_trial_and_taken_back_leaves_no_trace() -> None:
    """Volcano counts it on."""
    session = opened(*THREE, job(*TENSORFLOW, affinity="ps,worker", anti="ps"))
    names = ["ps1", "worker1"]
    before, first = figures(session, names), order(session)
    statement = Statement(session.trial, "allocate", task_of(session, "ps0").job)
    statement.allocate([task_of(session, "ps0")], [2])
    statement.pipeline([task_of(session, "worker0")], [0])
    assert figures(session, names) != before
    assert order(session) != first
    statement.discard()
    assert figures(session, names) == before
    assert order(session) == first


def test_an_evicted_task_is_there_no_more_and_does_not_wait() -> None:
    objects = [*tasks("a0", "b0", on="n1"), *tasks("a1", "b1", "c0")]
    session = opened(node("n1"), node("n2"), job(*objects, affinity="a,c", anti="b"))
    names = ["a1", "b1", "c0"]
    before = figures(session, names)
    statement = Statement(session.trial, "preempt", task_of(session, "a0").job)
    statement.evict(task_of(session, "a0"), "test")
    statement.evict(task_of(session, "b0"), "test")
    after = figures(session, names)
    assert [row["n1"] - row["n2"] for row in after] == [0, 0, 0]
    assert [row["n2"] for row in after] == [row["n2"] for row in before]
    statement.discard()
    assert figures(session, names) == before


def test_tasks_of_other_jobs_change_nothing() -> None:
    session = opened(*THREE, job(*tasks("a0", "a1"), affinity="a"), gang("k", 1, cpu=1))
    before = points(session, SCORE, "a0")
    other = task_of(session, "k-0")
    statement = Statement(session.trial, "allocate", other.job)
    statement.allocate([other], [2])
    assert points(session, SCORE, "a0") == before


# --- plans ------------------------------------------------------------------------------------------------------------


def test_tasks_that_like_each_other_go_to_one_node() -> None:
    nodes = [node(f"n{i}", cpu=4) for i in range(4)]
    result = planned(*nodes, job(*tasks("a0", "a1", "b0", "b1"), affinity="a,b"), conf=conf(10, "gang"))
    assert len(result.binds) == 4
    assert len(set(result.binds.values())) == 1


def test_tasks_that_shun_each_other_are_spread() -> None:
    """Of one shape and role, in eight buckets: tables are kept apart by several marks."""
    nodes = [node(f"n{i}") for i in range(8)]
    names = [f"a{i}" for i in range(8)]
    result = planned(*nodes, job(*tasks(*names), anti="a", members=8), conf=conf(10, "gang"))
    assert len(set(result.binds.values())) == 8


def test_pairs_stay_together_and_apart_from_other_pairs() -> None:
    nodes = [node(f"n{i}", cpu=8) for i in range(4)]
    names = [f"{role}{i}" for i in range(3) for role in ("ps", "w")]
    objects = job(*tasks(*names), affinity="ps,w", anti="ps;w", members=6)
    binds = planned(*nodes, objects, conf=conf(10, "gang")).binds
    places = [{binds[f"default/{role}{i}"] for role in ("ps", "w")} for i in range(3)]
    assert [len(place) for place in places] == [1, 1, 1]
    assert len(set.union(*places)) == 3


def test_jobs_of_one_shape_are_rated_by_their_own_buckets() -> None:
    """Each has one task on a node, which the next of it follows."""
    objects = []
    for i in range(5):
        made = group(f"k{i}")
        made["metadata"]["annotations"] = {AFFINITY: "a"}
        marks = {ROLE: "a"}
        objects += [made, pod(f"k{i}-0", group=f"k{i}", annotations=marks, on=f"n{i}", cpu=1)]
        objects += [pod(f"k{i}-1", group=f"k{i}", annotations=marks, cpu=1)]
    result = planned(*[node(f"n{i}") for i in range(5)], objects, conf=conf(10))
    assert result.binds == {f"default/k{i}-1": f"n{i}" for i in range(5)}


def test_a_restarted_task_goes_back_to_its_bucket() -> None:
    world = World(node("n0"), node("n1"), node("n2"), job(*tasks("a0", "a1", "a2"), affinity="a"), conf=conf(10))
    world.cycle()
    (home,) = set(world.placed().values())
    world.remove("Pod", "default/a1")
    world.put(task("a3"))
    world.cycle()
    assert world.placed() == {"a0": home, "a2": home, "a3": home}


# --- the columns are plain loops --------------------------------------------------------------------------------------

NAMES = ("a", "b", "c")
sets_of = st.lists(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True), max_size=3)
tasks_of = st.lists(
    st.tuples(
        st.sampled_from(("a", "b", "c", "")),
        st.sampled_from((None, None, None, 0, 1)),
        st.integers(1, 3),
        st.integers(0, 3),
    ),
    max_size=7,
)


@settings(max_examples=examples(120), deadline=None)
@given(
    given_=tasks_of,
    likes=sets_of,
    shuns=sets_of,
    places=st.permutations(NAMES),
    ordered=st.booleans(),
    rooms=st.lists(st.integers(3, 12), min_size=2, max_size=3),
    trials=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2)), max_size=4),
)
def test_buckets_and_points_are_the_specifications(
    given_: list[tuple[str, int | None, int, int]],
    likes: list[list[str]],
    shuns: list[list[str]],
    places: list[str],
    ordered: bool,
    rooms: list[int],
    trials: list[tuple[int, int]],
) -> None:
    # every role exists, and something waits
    drawn = [*given_, *((role, None, 1, 1) for role in NAMES)]
    members = [
        task(f"t{i}", role, cpu=cpu, memory=f"{memory}Gi", **({} if at is None else {"on": f"n{at}"}))
        for i, (role, at, cpu, memory) in enumerate(drawn)
    ]
    texts = {
        "affinity": ";".join(",".join(names) for names in likes) or None,
        "anti": ";".join(",".join(names) for names in shuns) or None,
        "order": ",".join(places) if ordered else None,
    }
    nodes = [node(f"n{i}", cpu=cpu, memory="12Gi") for i, cpu in enumerate(rooms)]
    session = opened(*nodes, job(*members, **texts))
    naive = Naive(drawn, likes, shuns, list(places) if ordered else [], rooms)
    if not likes and not shuns:
        naive.buckets = []
    assert buckets(session) == [{f"t{i}" for i in bucket} for bucket in naive.buckets]
    statement = Statement(session.trial, "allocate", task_of(session, "t0").job)
    for i, at in trials:
        if i < len(drawn) and naive.at[i] is None and at < len(rooms):
            statement.pipeline([task_of(session, f"t{i}")], [at])
            naive.place(i, at)
    for i in range(len(drawn)):
        if naive.at[i] is None and naive.bucket_of(i) is not None:
            expected = {f"n{at}": naive.points(i, at) for at in range(len(rooms))}
            assert points(session, SCORE, f"t{i}") == pytest.approx(expected)
    statement.discard()


class Naive:
    """The specification with plain lists; tasks are numbers."""

    def __init__(
        self,
        drawn: list[tuple[str, int | None, int, int]],
        likes: list[list[str]],
        shuns: list[list[str]],
        order: list[str],
        rooms: list[int],
    ) -> None:
        self.drawn, self.likes, self.shuns, self.order, self.rooms = drawn, likes, shuns, order, rooms
        self.at = [at for _, at, _, _ in drawn]
        self.opened_at = list(self.at)
        self.buckets: list[list[int]] = []
        concerned = [i for i, (role, *_) in enumerate(drawn) if any(role in names for names in (*likes, *shuns))]
        for at in sorted({self.at[i] for i in concerned if self.at[i] is not None}):
            self.buckets.append([i for i in concerned if self.at[i] == at])
        waiting = [i for i in concerned if self.at[i] is None]
        for i in sorted(waiting, key=lambda i: (self._place(drawn[i][0]), -self._priority(drawn[i][0]), f"t{i}")):
            best: list[int] | None = None
            for bucket in self.buckets:
                if best is None or (self._liking(i, bucket), -self._load(bucket)) > (
                    self._liking(i, best),
                    -self._load(best),
                ):
                    best = bucket
            if best is None or self._liking(i, best) < 0:
                best = []
                self.buckets.append(best)
            best.append(i)

    def _place(self, role: str) -> int:
        return self.order.index(role) if role in self.order else len(self.order)

    def _priority(self, role: str) -> int:
        kinds = [4 if len(names) == 1 else 1 for names in self.shuns if role in names]
        kinds += [2 if len(names) == 1 else 3 for names in self.likes if role in names]
        return max(kinds)

    def _related(self, sets: list[list[str]], one: str, other: str) -> bool:
        if one == other:
            return any(names == [one] for names in sets)
        return any(one in names and other in names for names in sets)

    def _liking(self, i: int, bucket: list[int]) -> int:
        role = self.drawn[i][0]
        liked = sum(self._related(self.likes, role, self.drawn[k][0]) for k in bucket)
        return liked - sum(self._related(self.shuns, role, self.drawn[k][0]) for k in bucket)

    def _load(self, bucket: list[int]) -> int:
        """Milli-cpu and mebibytes, and a pod each, of what waited when the session began."""
        waiting = [self.drawn[k] for k in bucket if self.opened_at[k] is None]
        return sum(cpu * 1000 + memory * 1024 + 1 for _, _, cpu, memory in waiting)

    def bucket_of(self, i: int) -> list[int] | None:
        return next((bucket for bucket in self.buckets if i in bucket), None)

    def place(self, i: int, at: int) -> None:
        """A task waits for room on a node: it is there, but takes none yet."""
        self.at[i] = at

    def points(self, i: int, at: int) -> float:
        role, _, cpu, memory = self.drawn[i]
        bucket = self.bucket_of(i)
        assert bucket is not None
        free_cpu = self.rooms[at] - sum(t[2] for t, on in zip(self.drawn, self.opened_at, strict=True) if on == at)
        free_memory = 12 - sum(t[3] for t, on in zip(self.drawn, self.opened_at, strict=True) if on == at)
        if cpu > free_cpu or memory > free_memory:
            return 0.0
        score = sum(self.at[k] == at for k in bucket)
        present = [k for k, on in enumerate(self.at) if on == at]
        score -= sum(self._related(self.shuns, role, self.drawn[k][0]) for k in present)
        waiting = [k for k in bucket if self.at[k] is None]
        # the first task like it stands for it
        like = next(k for k in waiting if self.drawn[k][2:] == self.drawn[i][2:])
        others = [k for k in waiting if k != like]
        while others and (
            cpu + sum(self.drawn[k][2] for k in others) > free_cpu
            or memory + sum(self.drawn[k][3] for k in others) > free_memory
        ):
            others.pop()
        return (score + 1 + len(others)) * 100 / max(len(bucket) for bucket in self.buckets)


def test_a_node_that_lost_its_devices_still_rates_for_tasks_that_ask_for_none() -> None:
    """A node holds a pod with devices that it does not show any more: what a task does not ask for does not bar it."""
    lost = pod("gone", on="b", gpu=2, cpu=0)
    made = opened(node("a", cpu=8), node("b", cpu=8), lost, job(*tasks("ps1", "ps2"), affinity="ps"))
    rated = points(made, SCORE, "ps1")
    assert rated["b"] == rated["a"] > 0


def _apart(size: int, **options: Any) -> list[Manifest]:
    """A gang of one role that shuns itself: each of its pods, the last one the oldest, is in a bucket of its own."""
    made = list(gang("a", size, cpu=1, annotations={ROLE: "worker"}, **options))
    made[0]["metadata"]["annotations"] = {ANTI_AFFINITY: "worker"}
    for number, each in enumerate(made[1:]):
        each["metadata"]["creationTimestamp"] = moment(100 - number)
    return made


def test_pods_alike_come_in_the_order_of_their_buckets() -> None:
    plan = planned(
        *[node(f"n{i}", cpu=1) for i in range(3)], _apart(12, members=1), conf=conf(None, "gang", "predicates")
    )
    assert sorted(plan.binds) == ["default/a-0", "default/a-1", "default/a-10"]


@pytest.mark.parametrize("seed", range(4))
def test_room_is_made_where_each_ones_own_bucket_is(seed: int) -> None:
    """The pods are alike but for their buckets, and each is rated by its own."""
    low = [gang(f"r{i}", 1, members=0, cpu=1, on=["abc"[i // 2]]) for i in range(6)]
    new = _apart(4, group_spec={"priorityClassName": "high"}, spec={"priority": 1000})
    text = conf(None, "priority", "gang", "predicates").replace("allocate", "preempt")
    objects = [priority_class("high", 1000), *[node(name, cpu=2) for name in "abc"], *low, new]
    plan = planned(*objects, conf=text, seed=seed)
    assert sorted(Counter(plan.pipelined.values()).values()) == [2, 2]
