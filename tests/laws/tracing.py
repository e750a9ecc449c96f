"""What a trace says of a session, held against the plan that was made without one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from vcd.model import events as ev
from vcd.model.status import TaskStatus
from vcd.scheduling.decide import run
from vcd.scheduling.framework.framework import Framework, framework_of
from vcd.scheduling.framework.order_positions import standing_of_job, standing_of_queue
from vcd.scheduling.framework.policy import Policy
from vcd.scheduling.framework.trace import EVERYTHING, NodeChoice, Trace, VictimSearch
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task
from vcd.scheduling.session_close import plan_of
from vcd.state.snapshot import Snapshot


@dataclass
class Counts:
    """How much was held against plans."""

    choices: int = 0
    victims: int = 0


def differences(snapshot: Snapshot, policy: Policy, now: int, seed: int, plan: bytes, seen: Counts) -> list[str]:
    """Where the trace of a session does not say what its plan says."""
    trace = Trace(EVERYTHING)
    session = run(snapshot, policy, now, seed, trace=trace)
    again = plan_of(session)
    found = [] if ev.encode_plan(again) == plan else ["the plan is another one with a trace"]
    idle = ev.encode_plan(plan_of(run(snapshot, policy, now, seed, trace=Trace())))
    found += [] if idle == plan else ["the plan is another one with a trace about nobody"]
    seen.choices += len(trace.choices)
    seen.victims += sum(len(search.going) for search in trace.searches)
    found += [text for choice in trace.choices if (text := _of_choice(session, trace, choice))]
    found += _of_places(session, trace)
    found += [text for search in trace.searches for text in _of_search(search)]
    found += _of_evictions(session, trace)
    return found + _of_orders(framework_of(session))


def _of_choice(session: Session, trace: Trace, choice: NodeChoice) -> str:
    """The sum of what the scores give is the search's; its best is who was chosen, where no plugin chose."""
    rating = choice.rating
    total = sum(rating.points.values(), np.zeros(len(rating.sum)))
    among = rating.now if rating.now.any() else rating.passed
    if among.any() and np.ptp(total[among] - rating.sum[among]):  # what all nodes are given tells none apart
        return f"{choice.task.key}: the scores do not add up to the sum"
    if not among.any():
        return f"{choice.task.key}: a node is chosen though none passes" if choice.row is not None else ""
    limit, ties = framework_of(session).evaluator.limit, session.nodes.facts.ties(session.seed)
    points = np.clip(rating.sum, -limit, limit)
    best = min(np.flatnonzero(among).tolist(), key=lambda row: (-points[row], ties[row]))
    question = next(each for each in trace.at("best_node") if each.asked[0] is choice.task)
    if any(answer.answer is not None for answer in question.answers):
        return ""
    return "" if best == choice.row else f"{choice.task.key}: the best is {best}, chosen was {choice.row}"


def _of_places(session: Session, trace: Trace) -> list[str]:
    """Who was placed and has not been taken away is where the session has him, and was chosen or nominated."""
    places: dict[int, tuple[Task, int | None]] = {}
    for task, row, _ in trace.moves():
        places[task.row] = task, row
    found = [
        f"{task.key}: moved to {row}, is on {task.node}"
        for task, row in places.values()
        if row not in (None, task.node)
    ]
    rows = {task.row for statement in session.trial.statements for task in statement.pipelined()}
    waiting = session.snapshot.tasks.status == TaskStatus.PENDING
    for task, row in places.values():
        choice = trace.choice_of(task.key)
        nominated = session.nominated_node(task) if session.snapshot.nominated else None
        if row is None or not waiting[task.row] or nominated == row or task.row in rows:
            continue
        if choice is None or choice.row != row:
            found.append(f"{task.key}: placed on {row}, chosen was {None if choice is None else choice.row}")
    return found


def _of_search(search: VictimSearch) -> list[str]:
    """Tasks were asked about in the order of their standings; nobody goes whom somebody keeps."""
    first, found = search.rounds[0], []
    standing = search.standings
    if isinstance(search.asker, Task):
        indexed = all(standing[task.row].number is not None for task in first.tasks)
        keys = [_victim_key(standing[task.row], indexed) for task in first.tasks]
        for one, other, mine, theirs in zip(first.tasks, first.tasks[1:], keys, keys[1:], strict=False):
            if mine[0] > theirs[0] or (mine[0] == theirs[0] and mine[1:] < theirs[1:]):
                found.append(f"{one.key} was asked about before {other.key}")
    kept = search.rounds[-1].kept
    found += [f"{task.key} goes though {kept[task.row]} keeps it" for task in search.going if task.row in kept]
    return found


def _victim_key(standing: Any, indexed: bool) -> tuple[Any, ...]:
    """The key of a task; a job's age and name do not count, as tasks of jobs alike to all plugins go in one order."""
    gives, job, said = (tuple(each.key for each in of) for of in (standing.gives, standing.job.said, standing.said))
    return (gives, standing.queue.key, job, said, standing.number if indexed else 0, standing.created)


def _of_evictions(session: Session, trace: Trace) -> list[str]:
    """Who goes was chosen by a search, or wanted elsewhere by a plugin."""
    chosen = {task.row for search in trace.searches for task in search.going}
    chosen |= {task.row for question in trace.at("victim_tasks") for task in question.outcome}
    gone = [task for statement in session.trial.statements for task in statement.evicted()]
    return [f"{task.key} is evicted, and nobody chose it" for task in gone if task.row not in chosen]


def _of_orders(framework: Framework) -> list[str]:
    """Standings are the keys of the orders."""
    session = framework.session
    wrong = [
        f"queue {queue.name}: another key" for queue in session.queue_list
        if standing_of_queue(framework.participants, queue).key != framework.queue_key(queue)
    ]  # fmt: skip
    return wrong + [
        f"job {job.key}: another key" for job in session.all_jobs()
        if standing_of_job(framework.participants, job).key != framework.job_key(job)
    ]  # fmt: skip
