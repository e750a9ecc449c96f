"""A divided group's sub-groups, counted anew from plain tasks whenever it is asked."""

from __future__ import annotations

from typing import Any

from tests.reference.labels import label_selector
from tests.reference.model import READY, Job, Task

Part = tuple[int, tuple[str, ...]]
"""A policy's number, and its labels' values; the number after the last one stands for what no policy takes."""


class Parts:
    """The sub-groups of a job by its group's policies."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._policies: list[dict[str, Any]] = (job.group.get("spec") or {}).get("subGroupPolicy") or []

    @property
    def are_there(self) -> bool:
        """Whether the job is divided at all."""
        return bool(self._policies)

    def of(self, task: Task) -> Part:
        """The sub-group that a task is of."""
        for number, policy in enumerate(self._policies):
            selector = policy.get("labelSelector")
            if selector is None or label_selector(selector).matches(task.labels):
                values = tuple(task.labels.get(key, "") for key in policy["matchLabelKeys"])
                if all(values):
                    return number, values
        return len(self._policies), ()

    def is_ready(self, part: Part) -> bool:
        """Whether as many of its tasks have room, or need none, as its policy's size."""
        tasks = [task for task in self._job.tasks if self.of(task) == part]
        have = sum(
            task.status in READY or (task.status == "Pending" and task.best_effort and not task.gated) for task in tasks
        )
        return have >= (self._policies[part[0]].get("subGroupSize", 1) if part[0] < len(self._policies) else 1)

    def too_few(self) -> bool:
        """Whether a policy has fewer sub-groups than its minimum."""
        return self._below(self._all())

    def too_few_ready(self) -> bool:
        """Whether a policy has fewer sub-groups with room than its minimum."""
        return self._below([part for part in self._all() if self.is_ready(part)])

    def one_is_not_ready(self) -> bool:
        """Whether some sub-group misses its size."""
        return any(not self.is_ready(part) for part in self._all())

    def _all(self) -> list[Part]:
        return list(dict.fromkeys(self.of(task) for task in self._job.tasks))

    def _below(self, parts: list[Part]) -> bool:
        return any(
            sum(part[0] == number for part in parts) < policy.get("minSubGroups", 0)
            for number, policy in enumerate(self._policies)
        )
