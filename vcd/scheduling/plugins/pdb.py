"""pdb: respect PodDisruptionBudgets in evictions (docs/semantics/plugins.md)."""

from __future__ import annotations

import numpy as np

from vcd.model.status import TaskStatus
from vcd.model.wording import SECOND
from vcd.scheduling.eviction.budgets import KIND, Budgets, Disruptions
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.framework.victims import victim_rule
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task
from vcd.state.deletion_time import asked_since
from vcd.state.interning import NO_ROW

SETTLING = 10
"""Seconds after an eviction request until the budget's status is trusted to include it."""


class PdbPlugin(Plugin):
    """Evict a pod only while every PodDisruptionBudget of its namespace that selects it allows another disruption.

    A budget allows its `status.disruptionsAllowed` evictions, less one for each selected pod that

    - is another victim of the same choice (a protected candidate uses nothing of its other budgets),
    - is evicted in this session, including statements that may still be discarded,
    - was evicted before, if the watch does not report its deletion yet, or reported it less than 10 seconds ago: the
      budget's status may not include it yet.

    Pods in `status.disruptedPods` are already part of the status. A budget with no selector, or an empty one, selects
    nothing. A pod that no budget selects is not protected. Source: Volcano ``plugins/pdb``.
    """

    name = "pdb"
    keys = ()
    kinds = (KIND,)
    protects = True
    timed = True

    def open(self, session: Session) -> None:
        """Read the budgets, and count recent evictions."""
        self._session = session
        self._budgets = Budgets(session)
        self._evicted: dict[int, tuple[int, ...]] = {}
        if len(self._budgets):
            self._spend_releasing(session)

    def _spend_releasing(self, session: Session) -> None:
        """Count terminating pods that the budgets' statuses may not include yet."""
        tasks = session.snapshot.tasks
        for row in np.flatnonzero((tasks.status == TaskStatus.RELEASING) & (tasks.node != NO_ROW)).tolist():
            pod = tasks.pods[row]
            if pod is not None and session.now < asked_since(pod, session.now) + SETTLING * SECOND:
                self._budgets.take(self._budgets.of(pod, int(tasks.labels[row])))

    # --- points -----------------------------------------------------------------------------------------------------

    @victim_rule("tasks whose budgets allow a disruption; each victim uses up one")
    def preemptable(self, preemptor: Task, tasks: list[Task]) -> Disruptions:
        """Permit victims while their budgets last; each victim uses one disruption of its budgets."""
        self._note_unreadable(preemptor, tasks)
        return self._budgets.allowance()

    reclaimable = preemptable

    @victim_rule("tasks whose budgets allow a disruption; each victim uses up one")
    def unified_evictable(self, context: object, tasks: list[Task]) -> Disruptions:
        """Permit victims while their budgets last; each victim uses one disruption of its budgets."""
        return self._budgets.allowance()

    def _note_unreadable(self, preemptor: Task, tasks: list[Task]) -> None:
        """Note unreadable budgets in the candidates' namespaces on the preemptor's job."""
        namespaces = {task.namespace for task in tasks} if self._budgets.unread else set()
        for refusal in [refusal for namespace, refusal in self._budgets.unread if namespace in namespaces]:
            if all(waiting.reason != refusal for waiting in preemptor.job.why):
                preemptor.job.note("invalid", self.name, refusal)

    def on_deallocate(self, tasks: list[Task], rows: list[int]) -> None:
        """Charge evictions to the pods' budgets; a placement that is rolled back costs nothing."""
        for task in tasks if len(self._budgets) else ():
            if task.status == TaskStatus.RELEASING:
                budgets = self._evicted[task.row] = self._budgets.of(task.pod, task.labels)
                self._budgets.take(budgets)

    def on_allocate(self, tasks: list[Task], rows: list[int]) -> None:
        """Refund the budgets when evictions are rolled back."""
        for task in tasks if self._evicted else ():
            self._budgets.give_back(self._evicted.pop(task.row, ()))
