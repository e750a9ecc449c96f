"""Predicates and scores of one node at a time: the same as in vector form, and only on what they declare."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.dsl import NOW_NS, flat, gang, group, node, pod, session_of
from tests.plugins.opened import job_of, task_of, tasks_of
from tests.reasons import because, by_words
from tests.sizes import examples
from vcd.model.reasons import Reason
from vcd.model.resource_requests import UNOFFERED
from vcd.model.status import TaskStatus
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.decide import decide, run
from vcd.scheduling.framework import registry
from vcd.scheduling.framework.declared_reasons import all_told
from vcd.scheduling.framework.demand import demand_of
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.search.candidates import Memory
from vcd.scheduling.search.parts import Mask, Predicate, Reads, Score, Scores, VectorPredicate, VectorScore
from vcd.scheduling.search.predicates.node_predicates import at_rows
from vcd.scheduling.search.scalar import ScalarPredicate, ScalarScore, TaskView, UndeclaredError
from vcd.scheduling.session.nodeview import NodeView, all_nodes
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.statement import Statement
from vcd.state.snapshot import SnapshotMaker
from vcd.timetravel.planning import state_of

CONF = "actions: enqueue, allocate, backfill\ntiers:\n- plugins:\n  - name: gang\n  - name: ours\n"
FACTS, USAGE, PODS = Reads.FACTS, Reads.USAGE, Reads.PODS
JOB, QUEUE, TIME = Reads.JOB, Reads.QUEUE, Reads.TIME


def predicate(passes: Callable[[TaskView, NodeView], Any], needs: Reads = FACTS) -> type[ScalarPredicate]:
    """A predicate that answers so."""
    return type(
        "Ours",
        (ScalarPredicate,),
        {
            "name": "ours",
            "reason": because("not ours"),
            "reads": needs,
            "passes": lambda self, task, node: passes(task, node),
        },
    )


def score(points: Callable[[TaskView, NodeView], Any], needs: Reads = FACTS) -> type[ScalarScore]:
    """A score that rates so."""
    return type(
        "Ours",
        (ScalarScore,),
        {"name": "ours", "reads": needs, "points": lambda self, task, node: points(task, node)},
    )


def offered(
    monkeypatch: pytest.MonkeyPatch,
    predicates: Callable[[Session], list[VectorPredicate]] = lambda session: [],
    scores: Callable[[Session], list[VectorScore]] = lambda session: [],
) -> None:
    """Have a plugin named ours with these parts."""

    class Ours(Plugin):
        name = "ours"

        def open(self, session: Session) -> None:
            self._session = session

        def predicates(self) -> list[VectorPredicate]:
            return predicates(self._session)

        def node_order(self) -> list[VectorScore]:
            return scores(self._session)

    known = MappingProxyType({**registry.plugins(), "ours": Ours})
    monkeypatch.setattr(registry, "plugins", lambda: known)


def session() -> Session:
    return session_of(
        *[node("a", cpu=4, labels={"zone": "x"}), node("b", cpu=8, gpu=2), node("c", cpu=2)],
        gang("old", 3, on=["a", "a", "b"], cpu=1),
        gang("new", 2, cpu=1, labels={"app": "web"}),
        pod("leaving", on="c", cpu=1, deleting=True),
    )


# --- the view of a node -----------------------------------------------------------------------------------------------


def test_a_node_shows_itself_by_names() -> None:
    found = {each.name: each for each in all_nodes(session())}
    assert list(found) == ["a", "b", "c"]
    assert found["a"].labels == {"zone": "x", "kubernetes.io/hostname": "a"}
    amounts = {"cpu": 4000, "memory": 32 << 30, "nvidia.com/gpu": 0, "pods": 110, UNOFFERED: 0}
    assert found["a"].allocatable == amounts
    assert (found["a"].used["cpu"], found["a"].idle["cpu"], found["a"].pods) == (2000, 2000, 2)
    assert found["b"].allocatable["nvidia.com/gpu"] == 2000
    assert (found["c"].releasing["cpu"], found["c"].used["cpu"]) == (1000, 1000)
    assert [task.name for task in found["a"].tasks] == ["old-0", "old-1"]
    assert [task.name for task in found["c"].tasks] == ["leaving"]


def test_a_node_shows_what_is_done_in_trial() -> None:
    opened = session()
    a, b = NodeView(opened, 0), NodeView(opened, 1)
    assert len(b.tasks) == 1
    first, second = tasks_of(opened, "new-0", "new-1")
    statement = Statement(opened.trial, "test", job_of(opened, "new"))
    statement.allocate([first], [1])
    statement.pipeline([second], [0])
    assert ([task.name for task in a.tasks], a.pods) == (["new-1", "old-0", "old-1"], 3)
    assert ([task.name for task in b.tasks], b.used["cpu"]) == (["new-0", "old-2"], 2000)
    statement.evict(task_of(opened, "old-2"), "test")
    assert ([task.name for task in b.tasks], b.pods) == (["new-0", "old-2"], 1)
    statement.discard()
    assert ([task.name for task in a.tasks], [task.name for task in b.tasks]) == (["old-0", "old-1"], ["old-2"])
    assert (a.pods, b.used["cpu"]) == (2, 1000)


def test_tasks_that_ended_are_on_no_node() -> None:
    opened = session_of(node("a"), pod("done", on="a", phase="Succeeded"), pod("lost", on="gone"))
    assert NodeView(opened, 0).tasks == []


@given(st.integers(0, 10**6))
def test_the_tasks_of_nodes_are_those_of_a_slow_search(seed: int) -> None:
    chance = random.Random(seed)
    opened = session_of(
        [node(f"n{i}", cpu=64) for i in range(4)],
        [pod(f"p{i}", on=chance.choice(["", "n0", "n1", "n2", "n3"]), cpu=1) for i in range(12)],
    )
    tasks = [opened.task(int(row)) for row in np.flatnonzero(opened.job_of_row >= 0)]
    statements: list[Statement] = []
    for _ in range(20):
        step, task = chance.random(), chance.choice(tasks)
        if step < 0.5 and task.node < 0:
            statements.append(Statement(opened.trial, "test", task.job))
            getattr(statements[-1], chance.choice(["allocate", "pipeline"]))([task], [chance.randrange(4)])
        elif step < 0.7 and task.node >= 0 and task.status == TaskStatus.RUNNING:
            statements.append(Statement(opened.trial, "test", task.job))
            statements[-1].evict(task, "test")
        elif statements:
            statements.pop(chance.randrange(len(statements))).discard()
        if chance.random() < 0.5:
            for row in range(4):
                slow = sorted(task.name for task in tasks if task.node == row)
                assert sorted(task.name for task in NodeView(opened, row).tasks) == slow


# --- what was not declared --------------------------------------------------------------------------------------------

NODE_READS: list[tuple[Callable[[TaskView, NodeView], Any], Reads, str]] = [
    (lambda task, node: node.idle, USAGE | PODS | JOB | QUEUE, "node.idle"),
    (lambda task, node: node.used, USAGE | PODS | JOB | QUEUE, "node.used"),
    (lambda task, node: node.releasing, USAGE | PODS | JOB | QUEUE, "node.releasing"),
    (lambda task, node: node.pods, USAGE | PODS | JOB | QUEUE, "node.pods"),
    (lambda task, node: node.tasks, PODS, "node.tasks"),
    (lambda task, node: task.namespace, PODS | JOB | QUEUE | TIME, "task.namespace"),
    (lambda task, node: node.name, FACTS | PODS | JOB | QUEUE | TIME, "node.name"),
    (lambda task, node: node.labels, FACTS | PODS | JOB | QUEUE | TIME, "node.labels, node.annotations or node.node"),
    (lambda task, node: task.queue, QUEUE | JOB, "task.queue"),
    (lambda task, node: task.job, JOB, "task.job"),
]


@pytest.mark.parametrize(("read", "needed", "what"), NODE_READS)
@pytest.mark.parametrize("declared", [FACTS, USAGE, PODS, JOB, QUEUE, TIME, USAGE | TIME])
def test_what_is_read_has_to_be_declared(
    read: Callable[[TaskView, NodeView], Any], needed: Reads, what: str, declared: Reads
) -> None:
    """A result is kept as long as what was declared did not change."""
    opened = session()
    ours = predicate(lambda task, node: bool(read(task, node) is not None), declared)(opened)
    if declared & needed:
        assert ours.mask(task_of(opened, "new-0"), opened.nodes.usage).all()
        return
    with pytest.raises(UndeclaredError, match=rf"predicate ours reads {what}: declare it, reads = Reads\."):
        ours.mask(task_of(opened, "new-0"), opened.nodes.usage)


@pytest.mark.parametrize("what", ["labels", "annotations"])
@pytest.mark.parametrize("declared", [FACTS, USAGE | FACTS, JOB, QUEUE, TIME])
def test_annotations_and_labels_of_the_pod_have_to_be_declared(what: str, declared: Reads) -> None:
    opened = session_of(node("a"), pod("new", cpu=1, **{what: {"app": "web", "tier": "front"}}))
    task, usage = task_of(opened, "new"), opened.nodes.usage
    base = predicate(lambda task, node: getattr(task, what).get("app") == "web", declared)
    assert type("Ours", (base,), {"keys": ("app",)})(opened).mask(task, usage).all()
    listed = predicate(lambda task, node: [*getattr(task, what)] == ["app"], declared)
    assert type("Ours", (listed,), {"keys": ("app",)})(opened).mask(task, usage).all()
    with pytest.raises(UndeclaredError, match=rf"the {what[:-1]} app of the pod: declare it, keys = \('app',\)"):
        base(opened).mask(task, usage)


def test_reads_are_flags() -> None:
    """A plugin of vcd 0.1 named kinds of objects there."""
    base = predicate(lambda task, node: True)
    with pytest.raises(TypeError, match=r"Ours\.reads: must be Reads, such as Reads\.USAGE, not \('Rack',\)"):
        type("Ours", (base,), {"reads": ("Rack",)})(session())


def test_what_never_changes_needs_no_declaration() -> None:
    opened = session()

    def passes(task: TaskView, node: NodeView) -> bool:
        assert not task.best_effort
        assert task.request["cpu"] == 1000
        assert task.spec.scheduler_name == "volcano"
        return node.allocatable["cpu"] > 2000 and not node.annotations and node.node.spec.unschedulable is False

    assert predicate(passes)(opened).mask(task_of(opened, "new-0"), opened.nodes.usage).tolist() == [True, True, False]


def test_a_task_shows_its_labels_and_job_where_declared() -> None:
    opened = session()
    ours = predicate(lambda task, node: (task.labels, task.job.name, task.namespace) ==
                     ({"app": "web"}, "new", "default"), JOB | PODS)(opened)  # fmt: skip
    assert ours.mask(task_of(opened, "new-0"), opened.nodes.usage).all()


@pytest.mark.parametrize("what", ["annotations", "labels"])
def test_annotations_and_labels_of_the_group_have_to_be_declared(what: str) -> None:
    """Jobs that differ in others are equivalent: one of them is tried for all."""
    marked, key = group("g"), "example.com/tier"
    marked["metadata"][what] = {key: "gold"}
    opened = session_of(node("a"), marked, pod("g-0", group="g", cpu=1))
    task, usage = task_of(opened, "g-0"), opened.nodes.usage
    base = predicate(lambda task, node: getattr(task.job, what).get(key) == "gold", JOB)
    assert type("Ours", (base,), {"keys": (key,)})(opened).mask(task, usage).all()
    with pytest.raises(UndeclaredError, match=rf"the {what[:-1]} {key} of the group: declare it, keys = \('{key}',\)"):
        base(opened).mask(task, usage)
    whole = predicate(lambda task, node: task.job.record.group.metadata.name == "g", JOB)
    assert type("Ours", (whole,), {"keys": ("*",)})(opened).mask(task, usage).all()
    with pytest.raises(UndeclaredError, match=r"reads task\.job\.record; use task\.job\.annotations"):
        whole(opened).mask(task, usage)


# --- answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("needs", [FACTS, USAGE | FACTS, PODS, JOB, QUEUE, TIME])
def test_rows_may_be_a_selection(needs: Reads) -> None:
    opened = session()
    task, some = task_of(opened, "new-0"), opened.nodes.usage.take(np.array([2, 0]))
    ours = predicate(lambda task, node: node.name != "a", needs)(opened)
    assert ours.mask(task, some).tolist() == [True, False]
    assert ours.mask(task, opened.nodes.usage).tolist() == [False, True, True]
    assert ours.mask(task, some).dtype == np.bool_
    rates = score(lambda task, node: node.allocatable["cpu"], needs)(opened)
    assert rates.raw(task, some).tolist() == [2000.0, 4000.0]
    assert rates.raw(task, some).dtype == np.float64


def test_usage_may_be_another_than_the_sessions() -> None:
    """Tables look at a node as it would be with more tasks on it."""
    opened = session()
    task = task_of(opened, "new-0")
    fuller = opened.nodes.usage.plus(task.deltas.allocate, 2)
    ours = predicate(lambda task, node: node.idle["cpu"] > 0, USAGE)(opened)
    assert ours.mask(task, fuller).tolist() == [False, True, False]


def test_reasons_are_counted_by_their_words() -> None:
    opened = session()
    answers = {"a": False, "b": because("too good for it"), "c": because("too good for it")}
    ours = predicate(lambda task, node: answers[node.name])(opened)
    task, usage = task_of(opened, "new-0"), opened.nodes.usage
    failed = ~ours.mask(task, usage)
    assert failed.all()
    assert by_words(ours.reasons(task, usage, failed)) == {"not ours": 1, "too good for it": 2}
    some = usage.take(np.array([2, 0]))
    assert by_words(ours.reasons(task, some, np.array([True, False]))) == {"too good for it": 1}


@pytest.mark.parametrize("answer", [None, 1, 0.5, ("a",), "no"])
def test_an_answer_is_a_bool_or_a_reason(answer: Any) -> None:
    opened = session()
    with pytest.raises(TypeError, match=r"predicate ours answers .* for a: neither a bool nor a Reason"):
        predicate(lambda task, node: answer)(opened).mask(task_of(opened, "new-0"), opened.nodes.usage)


@pytest.mark.parametrize(("needs", "times"), [(FACTS, 1), (TIME, 1), (USAGE | FACTS, 3), (PODS, 3), (QUEUE, 3)])
def test_what_no_placement_changes_is_asked_once_a_session(needs: Reads, times: int) -> None:
    opened = session()
    asked: list[str] = []
    ours = predicate(lambda task, node: not asked.append(node.name), needs)(opened)
    for _ in range(3):
        ours.mask(task_of(opened, "new-0"), opened.nodes.usage)
    assert asked == ["a", "b", "c"] * times


def test_another_shape_is_asked_about_again() -> None:
    opened = session_of(node("a"), pod("small", cpu=1), pod("large", cpu=4))
    ours = predicate(lambda task, node: task.request["cpu"] < 2000)(opened)
    masks = [ours.mask(task_of(opened, name), opened.nodes.usage).tolist() for name in ("small", "large")]
    assert masks == [[True], [False]]


@pytest.mark.parametrize("needs", [FACTS, USAGE, PODS, JOB, QUEUE, TIME])
def test_pods_of_another_kind_are_asked_about_again(needs: Reads) -> None:
    """An annotation among ``keys`` distinguishes them."""
    pods = [pod(name, cpu=1, annotations={"rack": name}) for name in ("a", "b")]
    opened = session_of(node("a"), node("b"), *pods)
    keys, needs = {"keys": ("rack",)}, needs | FACTS
    ours = type("OfRack", (predicate(lambda task, node: task.annotations["rack"] == node.name, needs),), keys)(opened)
    rates = type("OfRack", (score(lambda task, node: task.annotations["rack"] == node.name, needs),), keys)(opened)
    for name, expected in (("a", [True, False]), ("b", [False, True]), ("a", [True, False])):
        assert ours.mask(task_of(opened, name), opened.nodes.usage).tolist() == expected
        assert rates.raw(task_of(opened, name), opened.nodes.usage).tolist() == expected


# --- in plugins -------------------------------------------------------------------------------------------------------


class VectorFit(Predicate):
    """Room for twice the request, as a column."""

    name = "ours"
    reason = because("not ours")
    reads = USAGE
    keys = ()

    def mask(self, task: Any, usage: Any) -> Mask:
        result: Mask = (usage.idle >= 2 * task.request[:, None]).all(axis=0)
        return result


class VectorRate(Score):
    """Nodes with fewer pods first, and a label's number."""

    name = "ours"
    reads = USAGE | FACTS
    keys = ()

    def __init__(self, session: Session) -> None:
        super().__init__(2)
        labels = [node.metadata.labels.get("rank", "0") for node in session.nodes.facts.nodes]
        self._ranks = np.array([float(text) for text in labels])

    def raw(self, task: Any, usage: Any) -> Scores:
        return at_rows(self._ranks, usage) - usage.pods * 3.0


def scalar_fit(task: TaskView, node: NodeView) -> bool:
    return all(node.idle[name] >= 2 * amount for name, amount in task.request.items())


def scalar_rate(task: TaskView, node: NodeView) -> float:
    return float(node.labels.get("rank", "0")) - node.pods * 3


@pytest.mark.parametrize("needs", [USAGE | FACTS, USAGE | PODS, PODS, JOB])
@settings(max_examples=examples(60))
@given(seed=st.integers(0, 10**6))
def test_scalar_and_vector_forms_decide_the_same(needs: Reads, seed: int) -> None:
    chance = random.Random(seed)
    objects = flat([
        *[node(f"n{i}", cpu=chance.randrange(2, 12), labels={"rank": str(chance.randrange(5))}) for i in range(5)],
        *[gang(f"g{i}", chance.randrange(1, 4), cpu=chance.randrange(0, 3), created=i,
               on=[f"n{chance.randrange(5)}"] if chance.random() < 0.3 else []) for i in range(6)],
    ])  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        offered(patch, lambda session: [VectorFit()], lambda session: [VectorRate(session)])
        policy, snapshot = read_policy(CONF), SnapshotMaker(state_of(objects)).snapshot()
        vector = decide(snapshot, policy, NOW_NS, 0)
        offered(
            patch,
            lambda session: [predicate(scalar_fit, needs)(session)],
            lambda session: [score(scalar_rate, needs)(session, weight=2)],
        )
        scalar, memory = decide(snapshot, policy, NOW_NS, 0), Memory()
        again = [decide(snapshot, policy, NOW_NS, 0, memory) for _ in range(2)]
    assert vector.faults == ()
    assert scalar == vector
    assert again == [scalar, scalar]


def test_pods_elsewhere_are_looked_at_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most one pod of a job on a node, written with the tasks on it."""

    def passes(task: TaskView, node: NodeView) -> bool | Reason:
        there = [other.name for other in node.tasks if other.job.key == task.job.key]
        return because(f"holds {there[0]}") if there else True

    offered(monkeypatch, lambda session: [predicate(passes, PODS | JOB)(session)])
    snapshot = SnapshotMaker(state_of(flat([node("a"), node("b"), gang("g", 3, members=1, cpu=1)]))).snapshot()
    session = run(snapshot, read_policy(CONF), NOW_NS, 0)
    assert session.faults == ()
    assert sorted(op.node for s in session.trial.statements for op in s.operations()) == ["a", "b"]
    reasons = {why.reason for why in all_told(job_of(session, "g").why)}
    assert reasons >= {"holds g-0", "holds g-1"}


@pytest.mark.parametrize("reads", ["keys", "applies"])
def test_demand_counts_pods_that_an_annotation_tells_apart(monkeypatch: pytest.MonkeyPatch, reads: str) -> None:
    """Only the first pod can use the node, and what it shows is not remembered for the others of its shape."""
    members: dict[str, Any] = {
        "keys": ("rack",),
        "applies": lambda self, task: task.pod.metadata.annotations["rack"] != "a",
    }
    base = predicate(lambda task, node: reads == "keys" and task.annotations["rack"] == node.name)
    ours = type("OfRack", (base,), {reads: members[reads]})
    offered(monkeypatch, lambda session: [ours(session)])
    pods = [pod(rack, cpu=1, annotations={"rack": rack}) for rack in ("a", "b", "c")]
    memory, racks = Memory(), [["a", "b", "c"], ["b", "c"], ["a", "c"]]
    for names in racks:
        objects = flat([node("a"), *[own for own, name in zip(pods, "abc", strict=True) if name in names]])
        session = run(SnapshotMaker(state_of(objects)).snapshot(), read_policy(CONF), NOW_NS, 0, memory)
        assert demand_of(session).can_be_placed.tolist() == [name == "a" for name in names]


def test_a_predicate_that_reads_what_it_did_not_declare_refuses_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    offered(monkeypatch, lambda session: [predicate(lambda task, node: node.pods < 3)(session)])
    snapshot = SnapshotMaker(state_of(flat([node("a"), gang("g", 1, cpu=1)]))).snapshot()
    plan = decide(snapshot, read_policy(CONF), NOW_NS, 0)
    assert plan.statements == ()
    assert plan.faults[0].startswith("ours: UndeclaredError('predicate ours reads node.pods: declare it, reads = ")
