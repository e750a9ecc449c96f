"""Runs the actions of a session, and collects gauges, wake times and problems of its plugins afterwards.

Third-party actions and plugins run behind gates; what an action leaves behind is validated. Gauges, wake times and
problems decide nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import chain

import numpy as np

from vcd.model.status import TaskStatus
from vcd.model.unsupported import describe_wish
from vcd.scheduling.framework import answer_checks
from vcd.scheduling.framework.action import Action
from vcd.scheduling.framework.arguments import ArgumentValues
from vcd.scheduling.framework.framework import Framework
from vcd.scheduling.framework.guard import Gate, Guard, Unexpected, Watch, action_name, expected, is_called_directly
from vcd.scheduling.framework.queuefields import find_unread_fields
from vcd.scheduling.session.object_problems import Problem
from vcd.scheduling.session.session import Session

PASSED_OVER = "(not supported)"
"""The entry of ``session.problems`` for unsupported fields, which no plugin reports."""
_ON_NODES = (TaskStatus.ALLOCATED, TaskStatus.PIPELINED, TaskStatus.BINDING, TaskStatus.RELEASING)


def execute(kind: type[Action], arguments: ArgumentValues, framework: Framework) -> None:
    """Run an action. A third-party one must leave no node overcommitted, and all placed tasks on nodes that exist."""
    if is_called_directly(kind):
        kind(arguments).execute(framework)
        return
    before = _SessionBefore(framework.session)
    gate = Gate(action_name(kind.name), framework.guard.watch)
    gate.ask("execute", before.compare, (), lambda: kind(arguments).execute(framework))


def take_gauges(framework: Framework, watch: Watch | None) -> None:
    """Store the gauges of third-party plugins in ``session.gauges``, or the error that was raised instead.

    Runs in the deciding thread, so that ``watch`` can limit the time. Raises Interrupted.
    """
    session = framework.session
    for plugin in framework.plugins:
        if not is_called_directly(type(plugin)):
            try:
                session.gauges[plugin.name] = Guard(watch).method(plugin, "gauges", answer_checks.every)()
            except Exception as error:  # noqa: BLE001 - whatever it raises
                session.gauges[plugin.name] = error


def take_wakes(framework: Framework) -> None:
    """Store in ``session.wakes`` the first time after the session at which answers of each built-in plugin change with
    time alone."""
    session = framework.session
    found = []
    for plugin in framework.plugins:
        if is_called_directly(type(plugin)):
            found += [min((time for time in plugin.wakes() if time > session.now), default=0)]
    session.wakes = tuple(time for time in found if time)


def take_problems(framework: Framework, kinds: Collection[str], watch: Watch | None) -> None:
    """Store in ``session.problems`` what each plugin finds misconfigured, or the error that it raised, and fields of
    groups and queues that have no effect.

    Problems must be about objects of ``kinds``. Runs in the deciding thread. Raises Interrupted.
    """
    session = framework.session
    queues = [(key, record.queue.spec) for key, record in session.snapshot.queues.items()]
    passed_over = (*_unsupported_problems(session), *find_unread_fields(framework.policy, queues))
    if passed_over:
        session.problems[PASSED_OVER] = passed_over
    for plugin in framework.plugins:
        try:
            session.problems[plugin.name] = tuple(
                Guard(watch).method(plugin, "problems", answer_checks.problems(kinds))()
            )
        except Exception as error:  # noqa: BLE001 - whatever it raises
            session.problems[plugin.name] = error


def _unsupported_problems(session: Session) -> Iterator[Problem]:
    """Yield requests of groups and queues that vcd ignores as unsupported, so that no group waits for them."""
    snapshot = session.snapshot
    found = [("PodGroup", key, path) for key, group in snapshot.groups.items() for path in group.passed_over]
    found += [("Queue", key, path) for key, queue in snapshot.queues.items() for path in queue.passed_over]
    for kind, key, path in found:
        if path not in session.views.supported:
            yield Problem(kind, key, describe_wish(kind, path))


class _SessionBefore:
    """The session before an action, for comparison with its result."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._idle = session.nodes.usage.idle.copy()
        self._moves = len(session.views.moves)
        self._statements = len(session.trial.statements)

    def compare(self, answer: object) -> None:
        """Check that no node is overcommitted, that tasks are on nodes, and that the log can hold everything."""
        session = self._session
        nodes = session.nodes
        idle = nodes.usage.idle
        over = (idle < 0) & (idle < self._idle)
        if over.any():
            column, row = np.argwhere(over)[0].tolist()
            where = f"{nodes.facts.names[row]} {-int(idle[column, row])} over in {nodes.resources[column]}"
            raise Unexpected("no node above its capacity", where)
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
                answer_checks.check_reason(why.reason)
