"""Task statuses, their groups, and the phases of groups (docs/semantics/status.md)."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vcd.model.objects import Condition


class TaskStatus(enum.IntEnum):
    """The status of a task. The numbers are values of columns; they have no order."""

    PENDING = 0
    ALLOCATED = 1
    PIPELINED = 2
    BINDING = 3
    BOUND = 4
    RUNNING = 5
    RELEASING = 6
    SUCCEEDED = 7
    FAILED = 8
    UNKNOWN = 9


STATUSES = len(TaskStatus)

ALLOCATED_STATUSES = (TaskStatus.ALLOCATED, TaskStatus.BINDING, TaskStatus.BOUND, TaskStatus.RUNNING)
"""Statuses whose requests count as allocated."""

READY_STATUSES = (*ALLOCATED_STATUSES, TaskStatus.SUCCEEDED)
"""Statuses that count towards a gang's minimum."""

TERMINATED_STATUSES = (TaskStatus.SUCCEEDED, TaskStatus.FAILED)
"""Statuses that use no resources."""


class Phase(enum.IntEnum):
    """A group's phase. The numbers are values of columns; they have no order."""

    PENDING = 0
    INQUEUE = 1
    RUNNING = 2
    UNKNOWN = 3
    COMPLETED = 4

    @property
    def text(self) -> str:
        """The phase in the API's spelling."""
        return self.name.capitalize()


_PHASES = {phase.text: phase for phase in Phase}


def phase_of(text: str) -> Phase:
    """Parse the phase in a group's status; empty or unknown is Pending."""
    return _PHASES.get(text, Phase.PENDING)


UNSCHEDULABLE = "Unschedulable"
SCHEDULED = "Scheduled"
"""The types of a PodGroup's conditions for whether its gang has capacity."""


def condition_of(kind: str, conditions: Sequence[Condition]) -> Condition | None:
    """Return a group's condition of a type, or None if it has none or its opposite was set later.

    Scheduled and Unschedulable are opposites and both stay: the later one in the list is current.
    """
    for each in reversed(conditions):
        if each.type == kind:
            return each
        if kind in (SCHEDULED, UNSCHEDULABLE) and each.type in (SCHEDULED, UNSCHEDULABLE):
            return None
    return None
