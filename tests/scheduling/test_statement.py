"""Statements: what each operation changes, and that its reverse leaves nothing behind."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.dsl import gang, node, queue, session_of
from tests.plugins.opened import conf, job_of, plugin_of, queue_of, task_of
from tests.sizes import examples
from vcd.model.status import TaskStatus
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.plugins.drf import DrfPlugin
from vcd.scheduling.plugins.proportion import ProportionPlugin
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.statement import Statement
from vcd.scheduling.session.views import Task

CONF = conf("priority", "gang", "drf", "proportion")
NAMES = [f"{name}-{i}" for name in ("a", "b") for i in range(4)]


def opened() -> Session:
    return session_of(
        *[node("n0", cpu=16), node("n1", cpu=16), queue("q")],
        gang("a", 4, members=2, on=["n0", "n1"], cpu=2, memory=1, queue="q"),
        gang("b", 4, members=3, on=["n0"], cpu=1, annotations={"volcano.sh/task-spec": "w"}),
        conf=CONF,
    )


def picture(session: Session) -> dict[str, Any]:
    """All that a statement may change, as plain values."""
    shares = plugin_of(session, DrfPlugin)
    queues = plugin_of(session, ProportionPlugin)
    return {
        "usage": session.nodes.usage.matrix.tolist(),
        "jobs": {
            job.name: (
                list(job.counts),
                list(job.allocated),
                job.best_effort_pending,
                {role: list(counts) for role, counts in job.role_counts().items()},
                shares.share(shares.held(job)),
            )
            for job in session.all_jobs()
        },
        "tasks": {name: (task.status, task.node) for name in NAMES for task in [task_of(session, name)]},
        "queues": sorted(map(tuple, queues.gauges())),
        "order": [framework_of(session).queue_key(queue_of(session, name)) for name in ("default", "q")],
        "placements": session.trial.placements,
    }


def used(session: Session, row: int) -> int:
    return int(session.nodes.usage.used[0, row])


def test_allocate_takes_idle_room_and_counts_the_task_as_allocated() -> None:
    session = opened()
    task, job = task_of(session, "a-2"), job_of(session, "a")
    Statement(session.trial, "test", job).allocate([task], [0])
    assert (task.status, task.node) == (TaskStatus.ALLOCATED, 0)
    assert used(session, 0) == 2000 + 1000 + 2000
    assert job.ready_count == 3
    assert job.allocated[0] == 6000


def test_pipeline_takes_future_room_only() -> None:
    session = opened()
    task, job = task_of(session, "a-2"), job_of(session, "a")
    Statement(session.trial, "test", job).pipeline([task], [1])
    usage = session.nodes.usage
    assert (task.status, task.node) == (TaskStatus.PIPELINED, 1)
    assert (int(usage.idle[0, 1]), int(usage.future_idle[0, 1])) == (14000, 12000)
    assert (job.ready_count, job.waiting_count, job.allocated[0]) == (2, 1, 4000)


def test_evict_makes_room_that_is_being_freed() -> None:
    session = opened()
    task, job = task_of(session, "a-0"), job_of(session, "a")
    Statement(session.trial, "test", job).evict(task, "for a test")
    usage = session.nodes.usage
    assert (task.status, task.node) == (TaskStatus.RELEASING, 0)
    assert (int(usage.idle[0, 0]), int(usage.future_idle[0, 0])) == (13000, 15000)
    assert (job.ready_count, job.allocated[0]) == (1, 2000)


@pytest.mark.parametrize(
    ("operation", "name", "node"), [("allocate", "a-2", 0), ("pipeline", "b-1", 1), ("evict", "a-0", None)]
)
def test_each_reverse_restores_all(operation: str, name: str, node: int | None) -> None:
    session = opened()
    before = picture(session)
    statement = Statement(session.trial, "test", task_of(session, name).job)
    if node is None:
        statement.evict(task_of(session, name), "why")
    else:
        getattr(statement, operation)([task_of(session, name)], [node])
    assert picture(session) != before
    statement.discard()
    assert picture(session) == before


def test_undo_goes_back_to_the_save_point_only() -> None:
    session = opened()
    statement = Statement(session.trial, "test", job_of(session, "a"))
    statement.allocate([task_of(session, "a-2")], [0])
    there, kept = statement.save(), picture(session)
    statement.evict(task_of(session, "b-0"), "why")
    statement.pipeline([task_of(session, "a-3")], [0])
    statement.undo(there)
    assert picture(session) == kept
    assert len(statement) == 1


def step(session: Session, statement: Statement, task: Task, choice: str, row: int) -> None:
    """Do what is possible for a task."""
    if task.status == TaskStatus.PENDING:
        getattr(statement, "allocate" if choice == "allocate" else "pipeline")([task], [row])
    elif task.status in (TaskStatus.RUNNING, TaskStatus.ALLOCATED):
        statement.evict(task, "why")


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["allocate", "pipeline", "save", "undo"]),
        st.sampled_from(NAMES),
        st.integers(0, 1),
    ),
    max_size=25,
)


@settings(max_examples=examples(150), deadline=None)
@given(STEPS)
def test_any_way_back_restores_exactly_what_was_at_the_save_point(steps: list[tuple[str, str, int]]) -> None:
    session = opened()
    statement = Statement(session.trial, "test", job_of(session, "a"))
    saved = [(statement.save(), picture(session))]
    for choice, name, row in steps:
        if choice == "save":
            saved.append((statement.save(), picture(session)))
        elif choice == "undo":
            point, before = saved.pop() if len(saved) > 1 else saved[0]
            statement.undo(point)
            assert picture(session) == before
        else:
            step(session, statement, task_of(session, name), choice, row)
    statement.discard()
    assert picture(session) == saved[0][1]
    assert len(statement) == 0


def test_commit_turns_allocated_tasks_into_binding_ones() -> None:
    session = opened()
    statement = Statement(session.trial, "test", job_of(session, "a"))
    statement.allocate([task_of(session, "a-2")], [0])
    statement.pipeline([task_of(session, "a-3")], [1])
    statement.commit()
    assert task_of(session, "a-2").status == TaskStatus.BINDING
    assert task_of(session, "a-3").status == TaskStatus.PIPELINED
    assert session.trial.statements == [statement]


def test_an_empty_statement_is_not_part_of_the_decision() -> None:
    session = opened()
    Statement(session.trial, "test", job_of(session, "a")).commit()
    assert session.trial.statements == []


def test_what_was_taken_back_leaves_no_operation() -> None:
    session = opened()
    statement = Statement(session.trial, "test", job_of(session, "a"))
    statement.evict(task_of(session, "b-0"), "why")
    statement.discard()
    statement.commit()
    assert statement.operations() == ()
    assert session.trial.statements == []


def test_operations_name_pod_uid_node_and_reason() -> None:
    session = opened()
    statement = Statement(session.trial, "test", job_of(session, "a"))
    statement.allocate([task_of(session, "a-2")], [1])
    statement.pipeline([task_of(session, "a-3")], [0])
    statement.evict(task_of(session, "b-0"), "for a-3")
    statement.commit()
    assert [(op.verb, op.key, op.uid, op.node, op.reason) for op in statement.operations()] == [
        ("bind", "default/a-2", "uid-default-a-2", "n1", ""),
        ("pipeline", "default/a-3", "uid-default-a-3", "n0", ""),
        ("evict", "default/b-0", "uid-default-b-0", "n0", "for a-3"),
    ]


def test_a_pipelined_job_holds_room_but_nothing_is_bound() -> None:
    session = opened()
    statement = Statement(session.trial, "test", job_of(session, "a"))
    statement.allocate([task_of(session, "a-2")], [0])
    statement.pipeline([task_of(session, "a-3")], [1])
    statement.stay_pipelined()
    assert used(session, 0) == 5000
    assert [op.verb for op in statement.operations()] == ["pipeline"]


def test_what_was_pipelined_can_be_committed_later() -> None:
    session = opened()
    job = job_of(session, "a")
    statement = Statement(session.trial, "test", job)
    statement.allocate([task_of(session, "a-2")], [0])
    statement.stay_pipelined()
    session.commit_pipelined(job)
    assert [op.verb for op in statement.operations()] == ["bind"]
    assert session.trial.pipelined == {}
