"""Gangs that the API server admitted only in part: find the ones that are complete or have no pods left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from vcd.model.objects import Pod, PodGroupSpec
from vcd.model.status import TaskStatus
from vcd.model.subgroups import SubGroups, place_of
from vcd.state.interning import Interner, Pages, Rows
from vcd.state.records import GroupRecord, task_role

Ints = npt.NDArray[np.integer[Any]]


class Completion:
    """The placed pods of each group at one moment, counted once for all groups.

    A bind in progress does not complete a gang, since it may fail as the last one did, unless it is ``believed``.
    """

    def __init__(
        self, tasks: Rows, pods: Pages[Pod | None], job_keys: Interner[str], *, believed: bool = False
    ) -> None:
        self._pods, self._job_keys = pods, job_keys
        status, self._job = tasks.column("status"), tasks.column("job")
        placed = (tasks.column("node") >= 0) & ~np.isin(status, (TaskStatus.RELEASING, TaskStatus.FAILED))
        self._sure = placed if believed else placed & (status != TaskStatus.BINDING)
        self._placed_of, self._sure_of = self._count(placed), self._count(self._sure)

    def _count(self, of: npt.NDArray[np.bool_]) -> Ints:
        return np.bincount(self._job[of & (self._job >= 0)], minlength=len(self._job_keys.values))

    def settled(self, gangs: Iterable[str], groups: Mapping[str, GroupRecord]) -> list[str]:
        """Return the gangs, by key, that have their whole minimum, or no pods that could be released."""
        return [key for key in gangs if not self._is_partial(self._job_keys.number(key), groups.get(key))]

    def completed(self, gangs: Iterable[str], groups: Mapping[str, GroupRecord]) -> list[str]:
        """Return the gangs, by key, that have their whole minimum and placed pods."""
        return [key for key in self.settled(gangs, groups) if self._holds_any(self._job_keys.number(key))]

    def _holds_any(self, number: int | None) -> bool:
        return number is not None and bool(self._placed_of[number])

    def _is_partial(self, number: int | None, record: GroupRecord | None) -> bool:
        if number is None or record is None or not self._placed_of[number]:
            return False
        spec = record.group.spec
        if self._sure_of[number] < spec.min_member:
            return True
        return not (self._roles_reach(number, spec) and self._sub_groups_reach(number, spec))

    def _roles_reach(self, number: int, spec: PodGroupSpec) -> bool:
        minima = spec.min_task_member
        if not minima or sum(minima.values()) > spec.min_member:  # such minima do not apply (docs/semantics/status.md)
            return True
        roles = Counter(map(task_role, self._sure_pods(number)))
        return all(roles[role] >= minimum for role, minimum in minima.items())

    def _sub_groups_reach(self, number: int, spec: PodGroupSpec) -> bool:
        policies = [SubGroups(policy, index) for index, policy in enumerate(spec.sub_group_policy)]
        if not policies:
            return True
        sizes = Counter(place_of(pod, policies) for pod in self._sure_pods(number))
        whole = Counter(policy for (policy, _), size in sizes.items() if policy is not None and size >= policy.size)
        return all(whole[policy] >= policy.minimum for policy in policies)

    def _sure_pods(self, number: int) -> list[Pod]:
        jobs, rows = self._by_job
        start, end = np.searchsorted(jobs, (number, number + 1))
        return [cast(Pod, self._pods[row]) for row in rows[start:end].tolist()]

    @cached_property
    def _by_job(self) -> tuple[Ints, Ints]:
        rows = np.flatnonzero(self._sure)
        order = np.argsort(self._job[rows], kind="stable")
        return self._job[rows][order], rows[order]
