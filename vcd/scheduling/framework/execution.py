"""A session's actions are run, and its plugins are asked what they show, those that are not ours behind their gates."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import chain

import numpy as np

from vcd.model.status import TaskStatus
from vcd.scheduling.framework import checks
from vcd.scheduling.framework.action import Action
from vcd.scheduling.framework.arguments import ArgumentValues
from vcd.scheduling.framework.framework import Framework
from vcd.scheduling.framework.guard import Gate, Guard, Unexpected, Watch, action_name, expected, is_asked_directly
from vcd.scheduling.framework.queuefields import stated_in_vain
from vcd.scheduling.session.reasons import Problem
from vcd.scheduling.session.session import Session

PASSED_OVER = "(not supported)"
"""Under this name ``session.problems`` holds what no plugin says, but that there is none for it."""
_ON_NODES = (TaskStatus.ALLOCATED, TaskStatus.PIPELINED, TaskStatus.BINDING, TaskStatus.RELEASING)


def execute(kind: type[Action], arguments: ArgumentValues, framework: Framework) -> None:
    """Run an action. One that is not ours has to leave every node within its room, and tasks on nodes that exist."""
    if is_asked_directly(kind):
        kind(arguments).execute(framework)
        return
    before = _Before(framework.session)
    gate = Gate(action_name(kind.name), framework.guard.watch)
    gate.ask("execute", before.compare, (), lambda: kind(arguments).execute(framework))


def take_gauges(framework: Framework, watch: Watch | None) -> None:
    """Ask the plugins that are not ours for their gauges now, in the thread that decides.

    They are in ``session.gauges`` then, or the error in their place: gauges decide nothing. Raises Interrupted.
    """
    session = framework.session
    for plugin in framework.plugins:
        if not is_asked_directly(type(plugin)):
            try:
                session.gauges[plugin.name] = Guard(watch).method(plugin, "gauges", checks.every)()
            except Exception as error:  # noqa: BLE001 - whatever it raises
                session.gauges[plugin.name] = error


def take_wakes(framework: Framework) -> None:
    """Ask the built-in plugins when time alone changes what they say, for each the first time after the session. It is
    in ``session.wakes`` then."""
    session = framework.session
    found = []
    for plugin in framework.plugins:
        if is_asked_directly(type(plugin)):
            found += [min((time for time in plugin.wakes() if time > session.now), default=0)]
    session.wakes = tuple(time for time in found if time)


def take_problems(framework: Framework, kinds: Collection[str], watch: Watch | None) -> None:
    """Ask all plugins what they find misconfigured, in the thread that decides, and tell what is passed over; what they
    tell of are objects of the ``kinds`` that there are.

    It is in ``session.problems`` then, or the error in its place: problems decide nothing. Raises Interrupted.
    """
    session = framework.session
    queues = [(key, record.queue.spec) for key, record in session.snapshot.queues.items()]
    passed_over = (*_passed_over(session), *stated_in_vain(framework.policy, queues))
    if passed_over:
        session.problems[PASSED_OVER] = passed_over
    for plugin in framework.plugins:
        try:
            session.problems[plugin.name] = tuple(Guard(watch).method(plugin, "problems", checks.problems(kinds))())
        except Exception as error:  # noqa: BLE001 - whatever it raises
            session.problems[plugin.name] = error


def _passed_over(session: Session) -> Iterator[Problem]:
    """What groups and queues ask for that is not supported, and that nobody has to wait for."""
    snapshot = session.snapshot
    for key, group in snapshot.groups.items():
        if group.passed_over:
            yield from (Problem("PodGroup", key, words) for words in group.passed_over)
    for key, queue in snapshot.queues.items():
        yield from (Problem("Queue", key, words) for words in queue.passed_over)


class _Before:
    """A session as an action found it, to be compared with how it left it."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._idle = session.nodes.usage.idle.copy()
        self._moves = len(session.views.moves)
        self._statements = len(session.trial.statements)

    def compare(self, answer: object) -> None:
        """Nobody is over its room, tasks are on nodes, and what goes into the log can be written there."""
        session = self._session
        nodes = session.nodes
        idle = nodes.usage.idle
        over = (idle < 0) & (idle < self._idle)
        if over.any():
            column, row = np.argwhere(over)[0].tolist()
            where = f"{nodes.facts.names[row]} {-int(idle[column, row])} over in {nodes.resources[column]}"
            raise Unexpected("no node over its room", where)
        for task in session.views.moves[self._moves :]:
            if task.status in _ON_NODES and not 0 <= task.node < len(nodes):
                expected(f"{task.key} on a row from 0 to {len(nodes) - 1}", task.node)
        for statement in (
            *session.trial.statements[self._statements :],
            *chain.from_iterable(session.trial.pipelined.values()),
        ):
            words = (statement.action, *[operation.reason for operation in statement.operations()])
            if not all(isinstance(each, str) for each in words):
                expected("texts as a statement's action and reasons", words)
        for job in session.views.jobs():
            for why in job.why:
                if not (isinstance(why.gate, str) and isinstance(why.plugin, str)):
                    expected(f"texts as where {job.key} waits", (why.gate, why.plugin))
                checks.well_told(why.reason)
