"""Task statuses, their groups, and the phases of groups (docs/semantics/status.md)."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vcd.model.objects import Condition


class TaskStatus(enum.IntEnum):
    """Where a task stands. The numbers are columns' values and order nothing."""

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
"""Statuses that use no room."""


class Phase(enum.IntEnum):
    """A group's phase. The numbers are columns' values and order nothing."""

    PENDING = 0
    INQUEUE = 1
    RUNNING = 2
    UNKNOWN = 3
    COMPLETED = 4

    @property
    def text(self) -> str:
        """As the API writes it."""
        return self.name.capitalize()


_PHASES = {phase.text: phase for phase in Phase}


def phase_of(text: str) -> Phase:
    """The phase that a group's status names; empty or unheard of is Pending."""
    return _PHASES.get(text, Phase.PENDING)


UNSCHEDULABLE = "Unschedulable"
SCHEDULED = "Scheduled"
"""The types of a PodGroup's conditions that tell whether its gang has room."""


def condition_of(kind: str, conditions: Sequence[Condition]) -> Condition | None:
    """The condition of a type that a group shows; None for none, and where its opposite was set later. Of Scheduled and
    Unschedulable, both of which stay, the one further back in the list holds."""
    for each in reversed(conditions):
        if each.type == kind:
            return each
        if kind in (SCHEDULED, UNSCHEDULABLE) and each.type in (SCHEDULED, UNSCHEDULABLE):
            return None
    return None
