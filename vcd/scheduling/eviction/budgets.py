"""PodDisruptionBudgets from the log: which pods each protects, and how many disruptions it still allows."""

from __future__ import annotations

from typing import NamedTuple

from vcd.model.objects import Pod, PodDisruptionBudget
from vcd.model.reasons import Cause, Reason, ReasonCode
from vcd.model.selectors import LabelSelector, Selector, SelectorError
from vcd.model.status import TaskStatus
from vcd.scheduling.framework.victims import Allowance
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task

_UNREADABLE = ReasonCode(
    "budget-unreadable",
    Cause.INVALID,
    "PodDisruptionBudget {key} protects nothing: its selector cannot be read; mend spec.selector",
    remark=True,
)
_EMPTY = ReasonCode(
    "budget-empty",
    Cause.INVALID,
    "PodDisruptionBudget {key} protects nothing: its selector is empty; state the labels of its pods in spec.selector",
    remark=True,
)

KIND = "PodDisruptionBudget"


class _Budget(NamedTuple):
    """What a budget protects. ``disrupted`` are pods that its status has counted already."""

    namespace: str
    selector: Selector
    disrupted: frozenset[str]


class Disruptions(Allowance):
    """The disruption budgets' limit on joint evictions; each victim reduces ``left``."""

    def __init__(self, budgets: Budgets, left: list[int]) -> None:
        self._budgets = budgets
        self._left = left

    def permits(self, task: Task) -> bool:
        """Whether each of the task's budgets has a disruption left."""
        return all(self._left[number] > 0 for number in self._budgets.of(task.pod, task.labels))

    def spend(self, task: Task) -> None:
        """Take one disruption from each of the task's budgets."""
        for number in self._budgets.of(task.pod, task.labels):
            self._left[number] -= 1


class Budgets:
    """Track ``status.disruptionsAllowed`` in a session; pods in ``status.disruptedPods`` are counted there already.

    A budget without selector, or with an empty one, protects nothing, as in Volcano. ``unread`` holds, for each budget
    with an empty or invalid selector, its namespace and a remark.
    """

    def __init__(self, session: Session) -> None:
        self.unread: list[tuple[str, Reason]] = []
        self._budgets: list[_Budget] = []
        self._left: list[int] = []
        for key, budget in sorted(session.snapshot.others.get(KIND, {}).items()):
            if isinstance(budget, PodDisruptionBudget):
                self._read(key, budget)
        self._namespaces = frozenset(budget.namespace for budget in self._budgets)
        self._selecting: dict[tuple[str, int], tuple[int, ...]] = {}

    def _read(self, key: str, budget: PodDisruptionBudget) -> None:
        namespace = key.partition("/")[0]
        try:
            selector = LabelSelector.compile(budget.spec.selector)
        except SelectorError as error:
            names = {"key": key, "object": f"{KIND} {key}", "because": f"spec.selector.{error}"}
            self.unread.append((namespace, _UNREADABLE(names)))
            return
        if not selector.requirements:
            self.unread.append((namespace, _EMPTY({"key": key, "object": f"{KIND} {key}"})))
        else:
            self._budgets.append(_Budget(namespace, selector, frozenset(budget.status.disrupted_pods)))
            self._left.append(budget.status.disruptions_allowed)

    def __len__(self) -> int:
        return len(self._budgets)

    def of(self, pod: Pod, labels: int) -> tuple[int, ...]:
        """Return the budgets that an eviction of the pod takes from; ``labels`` is the number of its label set."""
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

    def take(self, budgets: tuple[int, ...]) -> None:
        """Take one disruption from each of the budgets."""
        for number in budgets:
            self._left[number] -= 1

    def give_back(self, budgets: tuple[int, ...]) -> None:
        """Reverse ``take``."""
        for number in budgets:
            self._left[number] += 1

    def allowance(self) -> Disruptions:
        """Return the current limit on joint evictions, without reducing the budgets."""
        return Disruptions(self, self._left.copy())

    def violated(self, tasks: list[Task]) -> int:
        """Return how many of ``tasks`` exceed a budget if all of them are evicted."""
        left = self._left.copy()
        count = 0
        for task in tasks:
            budgets = self.of(task.pod, task.labels)
            for number in budgets:
                left[number] -= 1
            count += any(left[number] < 0 for number in budgets)
        return count


def budgets_now(session: Session) -> Budgets:
    """Return the budgets, less this session's evictions so far."""
    budgets = Budgets(session)
    if len(budgets):
        gone = {task.row: task for task in session.views.moves if task.status == TaskStatus.RELEASING}
        for task in gone.values():
            budgets.take(budgets.of(task.pod, task.labels))
    return budgets
