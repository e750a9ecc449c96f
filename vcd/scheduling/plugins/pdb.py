"""pdb: disruption budgets hold for evictions too (seed 000 s.4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from vcd.model.objects import Pod, PodDisruptionBudget
from vcd.model.selectors import LabelSelector, Selector, SelectorError
from vcd.model.status import TaskStatus
from vcd.scheduling.plugin import Plugin, Refusal
from vcd.scheduling.plugins._leaving import asked_since
from vcd.scheduling.session import Session
from vcd.scheduling.views import Task

KIND = "PodDisruptionBudget"
SETTLING = 10
"""Seconds after which a budget's status is taken to show that a pod is being deleted."""

_SECOND = 10**9
_NOWHERE = -1


class _Budget(NamedTuple):
    """What a budget protects. ``disrupted`` are pods that its status has counted already."""

    namespace: str
    selector: Selector
    disrupted: frozenset[str]


class PdbPlugin(Plugin):
    """A pod goes only while every PodDisruptionBudget of its namespace that selects it allows one disruption more.

    What a budget allows is its `status.disruptionsAllowed`, less one for each pod that it selects and that

    - was named before in the same question,
    - is evicted in this session, trials included as long as they last,
    - was evicted before and is not shown as leaving yet, or since less than 10 seconds, which the budget's status may
      not show yet.

    Pods in `status.disruptedPods` are counted in it already. A budget without selector, or with an empty one, selects
    nothing. A pod that no budget selects may go. Source: seed 000 s.4, Volcano ``plugins/pdb``.
    """

    name = "pdb"
    kinds = (KIND,)
    protects = True
    timed = True

    def open(self, session: Session) -> None:
        """Read the budgets, and what of them is spent."""
        self._session = session
        self._budgets: list[_Budget] = []
        self._left: list[int] = []
        self._unread: list[tuple[str, Refusal]] = []
        for key, budget in sorted(session.snapshot.others.get(KIND, {}).items()):
            if isinstance(budget, PodDisruptionBudget):
                self._read(key, budget)
        self._namespaces = frozenset(budget.namespace for budget in self._budgets)
        self._selecting: dict[tuple[str, int], tuple[int, ...]] = {}
        self._evicted: dict[int, tuple[int, ...]] = {}
        if self._budgets:
            self._spend_leaving(session)

    def _read(self, key: str, budget: PodDisruptionBudget) -> None:
        try:
            selector = LabelSelector.compile(budget.spec.selector)
        except SelectorError as error:
            detail = {"object": f"{KIND} {key}", "because": f"spec.selector.{error}"}
            reason = f"{KIND} {key} protects nothing: its selector cannot be read; mend spec.selector"
            self._unread.append((key.partition("/")[0], Refusal(reason, detail)))
            return
        if selector.requirements:
            disrupted = frozenset(budget.status.disrupted_pods)
            self._budgets.append(_Budget(key.partition("/")[0], selector, disrupted))
            self._left.append(budget.status.disruptions_allowed)

    def _spend_leaving(self, session: Session) -> None:
        """Count pods whose eviction the budgets' statuses may not show yet."""
        tasks = session.snapshot.tasks
        for row in np.flatnonzero((tasks.status == TaskStatus.RELEASING) & (tasks.node != _NOWHERE)).tolist():
            pod = tasks.pods[row]
            if pod is not None and session.now < asked_since(pod, session.now) + SETTLING * _SECOND:
                for number in self._budgets_of(pod, int(tasks.labels[row])):
                    self._left[number] -= 1

    def _budgets_of(self, pod: Pod, labels: int) -> tuple[int, ...]:
        """The budgets that a pod's eviction takes from; ``labels`` is the number of its labels."""
        meta = pod.metadata
        if meta.namespace not in self._namespaces:
            return ()
        key = (meta.namespace, labels)
        found = self._selecting.get(key)
        if found is None:
            found = self._selecting[key] = tuple(
                number
                for number, budget in enumerate(self._budgets)
                if budget.namespace == meta.namespace and budget.selector.matches(meta.labels)
            )
        if any(meta.name in self._budgets[number].disrupted for number in found):
            return tuple(number for number in found if meta.name not in self._budgets[number].disrupted)
        return found

    # --- points -----------------------------------------------------------------------------------------------------

    def preemptable(self, preemptor: Task, tasks: list[Task]) -> list[Task]:
        """Those whose budgets allow it, each taking from what is left for the next."""
        self._tell(preemptor, tasks)
        return self._allowed(tasks)

    def reclaimable(self, reclaimer: Task, tasks: list[Task]) -> list[Task]:
        """Those whose budgets allow it, each taking from what is left for the next."""
        self._tell(reclaimer, tasks)
        return self._allowed(tasks)

    def unified_evictable(self, context: object, tasks: list[Task]) -> list[Task]:
        """Those whose budgets allow it, each taking from what is left for the next."""
        return self._allowed(tasks)

    def _allowed(self, tasks: list[Task]) -> list[Task]:
        left = self._left.copy()
        victims = []
        for task in tasks:
            budgets = self._budgets_of(task.pod, task.labels)
            if all(left[number] > 0 for number in budgets):
                for number in budgets:
                    left[number] -= 1
                victims.append(task)
        return victims

    def _tell(self, asker: Task, tasks: list[Task]) -> None:
        """Note on the asking job which budgets of its candidates cannot be read."""
        for refusal in self._complaints({task.namespace for task in tasks} if self._unread else frozenset()):
            if all(waiting.reason != refusal.reason for waiting in asker.job.why):
                self._session.note(asker.job, "invalid", self.name, refusal)

    def _complaints(self, namespaces: set[str] | frozenset[str]) -> Iterator[Refusal]:
        return (refusal for namespace, refusal in self._unread if namespace in namespaces)

    def on_deallocate(self, task: Task, row: int) -> None:
        """An eviction takes from the pod's budgets; a placement taken back does not."""
        if self._budgets and task.status == TaskStatus.RELEASING:
            budgets = self._evicted[task.row] = self._budgets_of(task.pod, task.labels)
            for number in budgets:
                self._left[number] -= 1

    def on_allocate(self, task: Task, row: int) -> None:
        """An eviction taken back gives to the pod's budgets again."""
        for number in self._evicted.pop(task.row, ()):
            self._left[number] += 1
