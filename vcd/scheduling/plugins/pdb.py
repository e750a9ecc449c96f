"""pdb: disruption budgets hold for evictions too (docs/semantics/plugins.md)."""

from __future__ import annotations

import numpy as np

from vcd.model.status import TaskStatus
from vcd.scheduling.eviction.budgets import KIND, Budgets, Disruptions
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.framework.victims import lets_go
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task
from vcd.state.deletion import asked_since

SETTLING = 10
"""Seconds after which a budget's status is taken to show that a pod is being deleted."""

_SECOND = 10**9
_NOWHERE = -1


class PdbPlugin(Plugin):
    """A pod goes only while every PodDisruptionBudget of its namespace that selects it allows one disruption more.

    What a budget allows is its `status.disruptionsAllowed`, less one for each pod that it selects and that

    - is to go by the same question (one that stays takes nothing, whatever its other budgets allow),
    - is evicted in this session, trials included as long as they last,
    - was evicted before and is not shown as deleted yet, or since less than 10 seconds, which the budget's status may
      not show yet.

    Pods in `status.disruptedPods` are counted in it already. A budget without selector, or with an empty one, selects
    nothing. A pod that no budget selects may go. Source: Volcano ``plugins/pdb``.
    """

    name = "pdb"
    treats_alike = True
    kinds = (KIND,)
    protects = True
    timed = True

    def open(self, session: Session) -> None:
        """Read the budgets, and what of them is spent."""
        self._session = session
        self._budgets = Budgets(session)
        self._evicted: dict[int, tuple[int, ...]] = {}
        if len(self._budgets):
            self._spend_releasing(session)

    def _spend_releasing(self, session: Session) -> None:
        """Count pods whose eviction the budgets' statuses may not show yet."""
        tasks = session.snapshot.tasks
        for row in np.flatnonzero((tasks.status == TaskStatus.RELEASING) & (tasks.node != _NOWHERE)).tolist():
            pod = tasks.pods[row]
            if pod is not None and session.now < asked_since(pod, session.now) + SETTLING * _SECOND:
                self._budgets.take(self._budgets.of(pod, int(tasks.labels[row])))

    # --- points -----------------------------------------------------------------------------------------------------

    def minds_exchanges(self) -> bool:
        """No: what budgets have left counts who goes."""
        return False

    @lets_go("those whose budgets allow it, each that goes taking from what is left for the others")
    def preemptable(self, preemptor: Task, tasks: list[Task]) -> Disruptions:
        """Those whose budgets allow it, each that goes taking from what is left for the others."""
        self._tell(preemptor, tasks)
        return self._budgets.allowance()

    reclaimable = preemptable

    @lets_go("those whose budgets allow it, each that goes taking from what is left for the others")
    def unified_evictable(self, context: object, tasks: list[Task]) -> Disruptions:
        """Those whose budgets allow it, each that goes taking from what is left for the others."""
        return self._budgets.allowance()

    def _tell(self, asker: Task, tasks: list[Task]) -> None:
        """Note on the asking job which budgets of its candidates cannot be read."""
        namespaces = {task.namespace for task in tasks} if self._budgets.unread else set()
        for refusal in [refusal for namespace, refusal in self._budgets.unread if namespace in namespaces]:
            if all(waiting.reason != refusal for waiting in asker.job.why):
                asker.job.note("invalid", self.name, refusal)

    def on_deallocate(self, task: Task, row: int) -> None:
        """An eviction takes from the pod's budgets; a placement taken back does not."""
        if len(self._budgets) and task.status == TaskStatus.RELEASING:
            budgets = self._evicted[task.row] = self._budgets.of(task.pod, task.labels)
            self._budgets.take(budgets)

    def on_allocate_together(self, tasks: list[Task], rows: list[int]) -> None:
        """Pods that are placed for the first time take from no budget."""

    def on_allocate(self, task: Task, row: int) -> None:
        """An eviction taken back gives to the pod's budgets again."""
        self._budgets.give_back(self._evicted.pop(task.row, ()))
