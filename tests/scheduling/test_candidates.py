"""The fast tables against computing everything anew."""

from __future__ import annotations

import random
from typing import ClassVar

import numpy as np
import pytest

from tests.dsl import gang, node, session_of
from vcd.scheduling.candidates import Candidates, Evaluator, Memory
from vcd.scheduling.nodes import Usage
from vcd.scheduling.plugin import Depends, Mask, Predicate, Score, Scores
from vcd.scheduling.session import Session
from vcd.scheduling.statement import Statement
from vcd.scheduling.views import Task


class EvenCpu(Predicate):
    name = "even"
    reason = "odd"
    depends: ClassVar[Depends] = Depends.USAGE

    def mask(self, task: Task, usage: Usage) -> Mask:
        return usage.pods % 5 != 4


class Fullness(Score):
    name = "fullness"
    depends: ClassVar[Depends] = Depends.USAGE

    def raw(self, task: Task, usage: Usage) -> Scores:
        return np.asarray(usage.used[0] / np.maximum(usage.allocatable[0], 1) * 7 + usage.pods % 3, np.float64)


class Name(Score):
    name = "name"
    normalised: ClassVar[bool] = False

    def raw(self, task: Task, usage: Usage) -> Scores:
        return np.arange(len(usage), dtype=np.float64) % 3


class Relative(Name):
    name = "relative"
    normalised: ClassVar[bool] = True

    def normalise(self, raw: Scores, feasible: Mask) -> Scores:
        return raw / max(1.0, float(raw[feasible].max(initial=0)))


def opened(seed: int, scores: list[Score]) -> tuple[Session, Memory]:
    rand = random.Random(seed)
    nodes = [node(f"n{i}", cpu=rand.randint(2, 9)) for i in range(12)]
    session = session_of(*nodes, gang("a", 8, cpu=1), gang("b", 8, cpu=2), gang("c", 6, cpu=1, memory=3))
    memory = Memory()
    session.evaluator = Evaluator(session, [EvenCpu()], scores, memory)
    return session, memory


@pytest.mark.parametrize("scores", [[Fullness(2), Name()], [Fullness(), Relative(3)]], ids=["simple", "normalised"])
@pytest.mark.parametrize("seed", range(25))
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
            row = session.candidates(task).best() if task.node < 0 else None
            if row is not None:
                statement = Statement(session, "test", task.job)
                if session.nodes.has_room(row, task.request) and rand.random() < 0.9:
                    statement.allocate(task, row)
                else:
                    statement.pipeline(task, row)
                open_statements.append(statement)
        checked = rand.choice(tasks)
        kept = session.candidates(checked).keys().copy()
        fresh = Candidates(session.evaluator, checked, ()).keys()
        assert (kept == fresh).all()


@pytest.mark.parametrize("seed", range(10))
def test_tables_of_an_earlier_session_equal_fresh_ones(seed: int) -> None:
    first, memory = opened(seed, [Fullness(2), Name()])
    tasks = [task for job in first.jobs_with_pending() for task in job.pending()]
    for task in tasks[:9]:
        row = first.candidates(task).best()
        if row is not None and first.nodes.has_room(row, task.request):
            Statement(first, "test", task.job).allocate(task, row)
    second, _ = opened(seed, [])
    second.nodes.facts = first.nodes.facts
    second.evaluator = Evaluator(second, [EvenCpu()], [Fullness(2), Name()], memory)
    for job in second.jobs_with_pending():
        for task in job.pending():
            kept = second.candidates(task).keys().copy()
            assert (kept == Candidates(second.evaluator, task, ()).keys()).all()


def test_ties_go_to_the_seeded_order_of_nodes() -> None:
    winners = set()
    for seed in range(20):
        session = session_of(*[node(f"n{i}") for i in range(6)], gang("a", 1, cpu=1), seed=seed)
        task = next(session.jobs_with_pending()).pending()[0]
        row = session.candidates(task).best()
        assert row is not None
        assert session.nodes.facts.ties(seed)[row] == 0
        winners.add(row)
    assert len(winners) > 1


def test_a_node_with_room_now_comes_before_a_better_one_that_must_be_freed() -> None:
    session = session_of(
        node("full", cpu=4), node("free", cpu=4), gang("old", 1, on=["full"], cpu=4, deleting=True), gang("a", 1, cpu=4)
    )
    session.evaluator = Evaluator(session, [], [Fullness(100)], Memory())
    task = next(session.jobs_with_pending()).pending()[0]
    assert session.nodes.facts.names[session.candidates(task).best() or 0] == "free"


def test_a_node_over_its_room_in_one_resource_takes_nothing() -> None:
    session = session_of(node("over", memory=1), gang("old", 1, on=["over"], memory=2), gang("a", 1, cpu=1))
    task = next(session.jobs_with_pending()).pending()[0]
    assert session.candidates(task).best() is None


def test_reasons_count_each_node_once_per_lacking_resource() -> None:
    session = session_of(node("n1", cpu=1), node("n2", cpu=1, memory=1), gang("a", 1, cpu=2, memory=2))
    task = next(session.jobs_with_pending()).pending()[0]
    assert session.candidates(task).reasons() == {"Insufficient cpu": 2, "Insufficient memory": 1}


def test_tables_in_which_no_node_passes_share_one_column_and_do_not_disturb_each_other() -> None:
    memory, rows = Memory(), []
    for _ in range(2):
        session = session_of(
            node("n", cpu=8), gang("old", 1, on=["n"], cpu=8), gang("a", 1, cpu=1), gang("b", 1, cpu=5)
        )
        if rows:
            session.nodes.facts = rows[0].nodes.facts
        session.evaluator = Evaluator(session, [], [], memory)
        rows.append(session)
    tasks = [next(job for job in rows[1].jobs_with_pending() if job.name == name).pending()[0] for name in "ab"]
    assert [rows[1].candidates(task).best() for task in tasks] == [None, None]
    assert all(rows[1].candidates(task).is_light for task in tasks)
    old = next(job for job in rows[1].all_jobs() if job.name == "old").tasks()[0]
    rows[1].nodes.change(0, -old.deltas.allocate + tasks[0].deltas.allocate * 4, None, 1)
    assert [rows[1].candidates(task).best() for task in tasks] == [0, None]


def test_tables_used_long_ago_give_way_and_are_computed_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vcd.scheduling.candidates._FEWEST_TABLES", 2)
    monkeypatch.setattr("vcd.scheduling.candidates._COLUMNS", 0)
    session = session_of(node("n", cpu=64), *[gang(f"g{i}", 1, cpu=i + 1) for i in range(5)])
    tasks = [job.pending()[0] for job in session.jobs_with_pending()]
    assert [session.candidates(task).best() for task in tasks] == [0] * 5
    assert len(session.evaluator.memory.tables) == 2
    assert session.candidates(tasks[0]).best() == 0
