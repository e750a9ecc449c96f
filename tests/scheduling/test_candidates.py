"""The fast tables against computing everything anew."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pytest

from tests.dsl import gang, group, node, pod, session_of, use_evaluator
from tests.plugins.opened import task_of
from tests.reasons import because, by_words
from tests.sizes import seeds
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.search.candidates import Candidates, Evaluator, Memory
from vcd.scheduling.search.factscores import PercentOfHighest
from vcd.scheduling.search.parts import Mask, Predicate, Reads, Score, Scores, distinguishes_pods
from vcd.scheduling.session.nodes import Usage
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.statement import Statement
from vcd.scheduling.session.views import Job, Task


class EvenCpu(Predicate):
    name = "even"
    reason = because("odd")
    reads = Reads.USAGE | Reads.FACTS
    keys = ()

    def mask(self, task: Task, usage: Usage) -> Mask:
        return usage.pods % 5 != 4


class Fullness(Score):
    name = "fullness"
    reads = Reads.USAGE | Reads.FACTS
    keys = ()

    def raw(self, task: Task, usage: Usage) -> Scores:
        return np.asarray(usage.used[0] / np.maximum(usage.allocatable[0], 1) * 7 + usage.pods % 3, np.float64)


class Name(Score):
    name = "name"
    reads = Reads.FACTS
    keys = ()

    def raw(self, task: Task, usage: Usage) -> Scores:
        return np.arange(len(usage), dtype=np.float64) % 3


class Relative(Name):
    name = "relative"

    def normalise(self, raw: Scores, feasible: Mask) -> Scores:
        return raw / max(1.0, float(raw[feasible].max(initial=0)))


class RelativeToHighest(Relative, PercentOfHighest):
    """Depends on the highest rating alone, so that one node decides whether it differs."""


class Against(Name):
    """Puts the node that the others rate highest last: who is first hangs on whether that one is rated."""

    name = "against"

    def raw(self, task: Task, usage: Usage) -> Scores:
        return np.array([2.0, 0.0, -5.0])


def opened(seed: int, scores: list[Score]) -> tuple[Session, Memory]:
    rand = random.Random(seed)
    nodes = [node(f"n{i}", cpu=rand.randint(2, 9)) for i in range(12)]
    session = session_of(*nodes, gang("a", 8, cpu=1), gang("b", 8, cpu=2), gang("c", 6, cpu=1, memory=3))
    memory = Memory()
    use_evaluator(session, Evaluator(session, [EvenCpu()], scores, memory))
    return session, memory


def fresh_table(session: Session, task: Task) -> Candidates:
    """A table of a task's kind that was asked nothing yet."""
    evaluator = framework_of(session).evaluator
    _, parts = evaluator.keys.of(task)
    return Candidates(evaluator, task, parts)


@pytest.mark.parametrize(
    "scores",
    [[Fullness(2), Name()], [Fullness(), Relative(3)], [Fullness(), RelativeToHighest(3)]],
    ids=["simple", "normalised", "by the highest"],
)
@pytest.mark.parametrize("seed", seeds(10, 25))
def test_tables_kept_up_to_date_equal_fresh_ones(seed: int, scores: list[Score]) -> None:
    rand = random.Random(seed)
    session, _ = opened(seed, scores)
    tasks = [task for job in session.jobs_with_pending() for task in job.pending()]
    open_statements: list[Statement] = []
    for _ in range(60):
        if open_statements and rand.random() < 0.3:
            open_statements.pop(rand.randrange(len(open_statements))).discard()
        else:
            task = rand.choice(tasks)
            row = framework_of(session).candidates(task).best() if task.node < 0 else None
            if row is not None:
                statement = Statement(session.trial, "test", task.job)
                if session.nodes.has_room(row, task.request) and rand.random() < 0.9:
                    statement.allocate([task], [row])
                else:
                    statement.pipeline([task], [row])
                open_statements.append(statement)
        checked = rand.choice(tasks)
        kept = framework_of(session).candidates(checked).keys().copy()
        fresh = fresh_table(session, checked).keys()
        assert (kept == fresh).all()
        best = int(fresh.argmax())
        found = None if fresh[best] == np.iinfo(np.int64).min else best
        assert fresh_table(session, checked).best() == framework_of(session).candidates(checked).best() == found


class EvenCpuOfAlike(EvenCpu):
    """Declares that it reads nothing but usage, so that nodes of one usage are computed once."""

    reads = Reads.USAGE


class FullnessOfAlike(Fullness):
    reads = Reads.USAGE


@pytest.mark.parametrize("others", [[Name()], [Relative(3)], []], ids=["simple", "normalised", "usage only"])
@pytest.mark.parametrize("seed", seeds(6, 12))
def test_nodes_alike_are_rated_as_each_for_itself(seed: int, others: list[Score]) -> None:
    rand = random.Random(seed)
    sizes = [rand.choice([4, 8]) for _ in range(30)]
    together, apart = (session_of(*many_nodes(sizes), seed=seed) for _ in range(2))
    kept = Memory()
    parts: list[Score] = [FullnessOfAlike(2), *others]
    use_evaluator(together, Evaluator(together, [EvenCpuOfAlike()], parts, kept))
    use_evaluator(apart, Evaluator(apart, [EvenCpu()], [Fullness(2), *others], Memory()))
    tasks = [list(zip(*[job.pending() for job in jobs], strict=True)) for jobs in both_jobs(together, apart)]
    placed: list[tuple[Statement, Statement]] = []
    for _ in range(80):
        if placed and rand.random() < 0.25:
            for statement in placed.pop(rand.randrange(len(placed))):
                statement.discard()
            continue
        pair = rand.choice(rand.choice(tasks))
        tables = [framework_of(s).candidates(t) for s, t in zip((together, apart), pair, strict=True)]
        assert tables[0].best() == tables[1].best()
        assert (tables[0].keys() == tables[1].keys()).all()
        row = tables[0].best()
        if row is None or pair[0].node >= 0:
            continue
        now = together.nodes.has_room(row, pair[0].floor) and rand.random() < 0.8
        placed.append((put(together, pair[0], row, now), put(apart, pair[1], row, now)))
    assert kept.node_groups is not None
    assert len(set(kept.node_groups.of.tolist())) < 30


def many_nodes(sizes: list[int]) -> Iterator[Any]:
    yield from (node(f"n{i:02}", cpu=size) for i, size in enumerate(sizes))
    yield gang("old", 8, on=[f"n{i:02}" for i in range(8)], cpu=1, deleting=True)
    yield from (gang(f"j{i}", 6, cpu=1 + i % 3, memory=1 + i // 3) for i in range(9))


def both_jobs(first: Session, second: Session) -> list[tuple[Job, Job]]:
    return list(zip(first.jobs_with_pending(), second.jobs_with_pending(), strict=True))


def put(session: Session, task: Task, row: int, now: bool) -> Statement:
    statement = Statement(session.trial, "test", task.job)
    (statement.allocate if now else statement.pipeline)([task], [row])
    return statement


@pytest.mark.parametrize("seed", seeds(5, 10))
def test_tables_of_an_earlier_session_equal_fresh_ones(seed: int) -> None:
    first, memory = opened(seed, [Fullness(2), Name()])
    tasks = [task for job in first.jobs_with_pending() for task in job.pending()]
    for task in tasks[:9]:
        row = framework_of(first).candidates(task).best()
        if row is not None and first.nodes.has_room(row, task.request):
            Statement(first.trial, "test", task.job).allocate([task], [row])
    second, _ = opened(seed, [])
    second.nodes.facts = first.nodes.facts
    use_evaluator(second, Evaluator(second, [EvenCpu()], [Fullness(2), Name()], memory))
    for job in second.jobs_with_pending():
        for task in job.pending():
            kept = framework_of(second).candidates(task).keys().copy()
            assert (kept == fresh_table(second, task).keys()).all()


def test_whom_facts_put_first_follows_from_who_is_rated() -> None:
    """The points of the scores that compare are those of now, also where a table before was asked about more nodes."""
    session = session_of(*[node(f"n{i}", cpu=8) for i in range(3)], gang("a", 1, cpu=1), gang("full", 1, cpu=8))
    use_evaluator(session, Evaluator(session, [], [Against(), RelativeToHighest(3)], Memory()))
    task, filler = (job.pending()[0] for job in session.jobs_with_pending())
    best = [fresh_table(session, task).best()]
    statement = put(session, filler, 2, now=True)
    best += [fresh_table(session, task).best(), int(fresh_table(session, task).keys().argmax())]
    statement.discard()
    assert [*best, fresh_table(session, task).best()] == [0, 1, 1, 0]


def test_ties_go_to_the_seeded_order_of_nodes() -> None:
    winners = set()
    for seed in range(20):
        session = session_of(*[node(f"n{i}") for i in range(6)], gang("a", 1, cpu=1), seed=seed)
        task = next(session.jobs_with_pending()).pending()[0]
        row = framework_of(session).candidates(task).best()
        assert row is not None
        assert session.nodes.facts.ties(seed)[row] == 0
        winners.add(row)
    assert len(winners) > 1


def test_a_node_with_room_now_comes_before_a_better_one_that_must_be_freed() -> None:
    session = session_of(
        node("full", cpu=4), node("free", cpu=4), gang("old", 1, on=["full"], cpu=4, deleting=True), gang("a", 1, cpu=4)
    )
    use_evaluator(session, Evaluator(session, [], [Fullness(100)], Memory()))
    task = next(session.jobs_with_pending()).pending()[0]
    assert session.nodes.facts.names[framework_of(session).candidates(task).best() or 0] == "free"


def test_a_node_over_its_room_in_one_resource_takes_nothing() -> None:
    session = session_of(node("over", memory=1), gang("old", 1, on=["over"], memory=2), gang("a", 1, cpu=1))
    task = next(session.jobs_with_pending()).pending()[0]
    assert framework_of(session).candidates(task).best() is None


def test_reasons_count_each_node_once_per_lacking_resource() -> None:
    session = session_of(node("n1", cpu=1), node("n2", cpu=1, memory=1), gang("a", 1, cpu=2, memory=2))
    task = next(session.jobs_with_pending()).pending()[0]
    assert by_words(framework_of(session).candidates(task).reasons()) == {
        "Insufficient cpu": 2,
        "Insufficient memory": 1,
    }


def test_tables_in_which_no_node_passes_share_one_column_and_do_not_disturb_each_other() -> None:
    memory, rows = Memory(), []
    for _ in range(2):
        session = session_of(
            node("n", cpu=8), gang("old", 1, on=["n"], cpu=8), gang("a", 1, cpu=1), gang("b", 1, cpu=5)
        )
        if rows:
            session.nodes.facts = rows[0].nodes.facts
        use_evaluator(session, Evaluator(session, [], [], memory))
        rows.append(session)
    tasks = [next(job for job in rows[1].jobs_with_pending() if job.name == name).pending()[0] for name in "ab"]
    assert [framework_of(rows[1]).candidates(task).best() for task in tasks] == [None, None]
    assert all(framework_of(rows[1]).candidates(task).is_light for task in tasks)
    old = next(job for job in rows[1].all_jobs() if job.name == "old").tasks()[0]
    rows[1].nodes.change([0], -old.deltas.allocate + tasks[0].deltas.allocate * 4, None, 1)
    assert [framework_of(rows[1]).candidates(task).best() for task in tasks] == [0, None]


def test_tables_used_long_ago_give_way_and_are_computed_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vcd.scheduling.search.candidates._FEWEST_TABLES", 2)
    monkeypatch.setattr("vcd.scheduling.search.candidates._COLUMNS", 0)
    session = session_of(node("n", cpu=64), *[gang(f"g{i}", 1, cpu=i + 1) for i in range(5)])
    tasks = [job.pending()[0] for job in session.jobs_with_pending()]
    assert [framework_of(session).candidates(task).best() for task in tasks] == [0] * 5
    assert len(framework_of(session).evaluator.memory.tables) == 2
    assert framework_of(session).candidates(tasks[0]).best() == 0


# --- kinds ------------------------------------------------------------------------------------------------------------


class OfRack(Predicate):
    """Nodes of the rack that the pod's annotation names."""

    name = "rack"
    reason = because("another rack")
    asked: ClassVar[list[str]] = []

    def applies(self, task: Task) -> bool:
        return "rack" in task.pod.metadata.annotations

    def key_of(self, task: Task) -> str:
        self.asked.append(task.name)
        return task.pod.metadata.annotations["rack"]

    def mask(self, task: Task, usage: Usage) -> Mask:
        rows = np.arange(len(usage)) if usage.rows is None else usage.rows
        return rows == int(task.pod.metadata.annotations["rack"])


def of_racks(reads: Reads, *pods: dict[str, Any], memory: Memory | None = None) -> Session:
    """A session on three nodes in which pods may name a rack."""
    session = session_of(*[node(f"n{i}") for i in range(3)], *pods)
    part = type("OfRack", (OfRack,), {"reads": reads, "keys": ()})()
    use_evaluator(session, Evaluator(session, [part], [], memory or Memory()))
    return session


def racked(name: str, rack: str | None = None, **options: Any) -> dict[str, Any]:
    return pod(name, cpu=1, annotations={} if rack is None else {"rack": rack}, **options)


ALL_READS = [Reads.FACTS, Reads.USAGE | Reads.FACTS, Reads.PODS, Reads.JOB, Reads.QUEUE, Reads.TIME]


@pytest.mark.parametrize("reads", ALL_READS)
def test_tasks_of_one_shape_and_other_kinds_do_not_share_a_table(reads: Reads) -> None:
    pods = [racked("a", "0"), racked("b", "1"), racked("c"), racked("d", "1")]
    session = of_racks(reads, *pods)
    passing = {name: framework_of(session).candidates(task_of(session, name)).passing().tolist() for name in "abcd"}
    assert passing == {"a": [True, False, False], "b": [False, True, False], "c": [True] * 3, "d": [False, True, False]}
    tables = {name: framework_of(session).candidates(task_of(session, name)) for name in "abcd"}
    assert (tables["b"] is tables["d"]) is (reads is not Reads.JOB)  # each of these pods is a job of its own
    assert len({id(table) for table in tables.values()}) == (4 if reads is Reads.JOB else 3)
    kinds = {name: framework_of(session).evaluator.keys.of(task_of(session, name))[0] for name in "abcd"}
    assert all((kinds[x] == kinds[y]) is (tables[x] is tables[y]) for x in "abcd" for y in "abcd")


@pytest.mark.parametrize("reads", [Reads.FACTS, Reads.USAGE | Reads.FACTS])
def test_parts_whose_answers_no_one_else_changes_leave_a_table_simple(reads: Reads) -> None:
    session = of_racks(reads, racked("a", "0"), racked("b", "1"))
    for name in "aabb":  # the first time nothing is kept
        framework_of(session).candidates(task_of(session, name)).best()
    before = framework_of(session).evaluator.evaluations
    session.trial.changes += 1
    for name in "ab":
        framework_of(session).candidates(task_of(session, name)).best()
    assert framework_of(session).evaluator.evaluations == before


@pytest.mark.parametrize("reads", ALL_READS)
def test_labels_tell_tasks_apart_only_where_pods_matter(reads: Reads) -> None:
    options: dict[str, Any] = {"group": "g"}
    pods = [group("g", members=1, phase="Inqueue"), *[racked(n, "1", labels={"app": n}, **options) for n in "ab"]]
    session = of_racks(reads, *pods)
    tables = {id(framework_of(session).candidates(task_of(session, name))) for name in "ab"}
    assert len(tables) == (2 if reads is Reads.PODS else 1)


def test_jobs_tell_tasks_apart_only_where_a_part_that_applies_looks_at_them() -> None:
    session = of_racks(Reads.JOB, racked("a"), racked("b"))
    assert framework_of(session).candidates(task_of(session, "a")) is framework_of(session).candidates(
        task_of(session, "b")
    )


def test_kinds_are_asked_only_of_tasks_to_which_the_part_applies() -> None:
    session = of_racks(Reads.FACTS, racked("with", "1"), racked("without"))
    OfRack.asked.clear()
    for name in ("with", "without"):
        framework_of(session).candidates(task_of(session, name))
    assert set(OfRack.asked) == {"with"}


@pytest.mark.parametrize("part", [Name(), EvenCpu()])
def test_parts_without_kinds_are_not_asked_for_them(part: Predicate | Score) -> None:
    assert not distinguishes_pods(part)
    assert distinguishes_pods(OfRack())


@pytest.mark.parametrize("reads", ALL_READS)
def test_kinds_mean_the_same_in_a_later_session(reads: Reads) -> None:
    memory = Memory()
    facts = None
    for racks in ("01", "10", "12", "21"):
        session = of_racks(reads, *[racked(name, rack) for name, rack in zip("ab", racks, strict=True)])
        facts = session.nodes.facts = facts or session.nodes.facts
        use_evaluator(session, Evaluator(session, framework_of(session).evaluator.predicates, [], memory))
        found = [
            framework_of(session).candidates(task_of(session, name)).passing().nonzero()[0].tolist() for name in "ab"
        ]
        assert found == [[int(rack)] for rack in racks]


def test_what_was_kept_is_void_when_parts_come_or_go() -> None:
    """Another part's kinds would be in the place of this one's."""
    memory = Memory()
    first = of_racks(Reads.FACTS, racked("a", "1"), memory=memory)
    assert framework_of(first).candidates(task_of(first, "a")).passing().tolist() == [False, True, False]
    second = of_racks(Reads.FACTS, racked("a", "1"))
    second.nodes.facts = first.nodes.facts
    use_evaluator(second, Evaluator(second, [], [], memory))
    assert framework_of(second).candidates(task_of(second, "a")).passing().all()


class Marked(Predicate):
    """Pods that are marked take the first node only."""

    name = "marked"
    reason = because("not the first")
    reads = Reads.USAGE | Reads.FACTS
    keys = ("marked",)

    def applies(self, task: Task) -> bool:
        return "marked" in task.pod.metadata.annotations

    def mask(self, task: Task, usage: Usage) -> Mask:
        return (np.arange(len(usage)) if usage.rows is None else usage.rows) == 0


class Hour(Predicate):
    """Lets every pod pass, as of now."""

    name = "hour"
    reason = because("not now")
    keys = ()
    reads = Reads.TIME

    def mask(self, task: Task, usage: Usage) -> Mask:
        return np.ones(len(usage), np.bool_)


def test_which_parts_apply_means_the_same_where_one_that_looks_at_what_moves_comes_first() -> None:
    """It takes the place of another in the order, and not in what tables are known by."""
    memory = Memory()
    first = session_of(*[node(f"n{i}") for i in range(3)], pod("a", cpu=1, annotations={"marked": "yes"}))
    use_evaluator(first, Evaluator(first, [Marked()], [Relative()], memory))
    assert framework_of(first).candidates(task_of(first, "a")).passing().tolist() == [True, False, False]
    second = session_of(*[node(f"n{i}") for i in range(3)], pod("a", cpu=1))
    second.nodes.facts = first.nodes.facts
    use_evaluator(second, Evaluator(second, [Hour(), Marked()], [Relative()], memory))
    task = task_of(second, "a")
    task.shape = task_of(first, "a").shape  # as a state gives it to one session after the other
    assert framework_of(second).candidates(task).passing().all()


class Far(Name):
    """Puts the first two nodes ahead by so much that float64 tells millionths apart no more."""

    def raw(self, task: Task, usage: Usage) -> Scores:
        return np.array([1e11, 1e11, 0.0])


class Near(Score):
    """One node is better by a few millionths."""

    name = "near"
    reads = Reads.USAGE | Reads.FACTS
    keys = ()

    def __init__(self, better: int) -> None:
        super().__init__()
        self.better = better

    def raw(self, task: Task, usage: Usage) -> Scores:
        return ((np.arange(3) if usage.rows is None else usage.rows) == self.better) * 3e-6


@pytest.mark.parametrize("better", [0, 1])
def test_points_beyond_what_float64_tells_apart_are_added_in_one_order(better: int) -> None:
    """So that a table asked for the first time names the same node as one that has keys."""
    session = session_of(*[node(f"n{i}") for i in range(3)], pod("a", cpu=1))
    use_evaluator(session, Evaluator(session, [], [Far(), Near(better)], Memory()))
    task = task_of(session, "a")
    assert fresh_table(session, task).best() == int(fresh_table(session, task).keys().argmax())
