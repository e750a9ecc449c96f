"""Orphans: pods whose group was deleted first. They retain their resources until they end, and count against their
queue."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vcd.model.status import ALLOCATED_STATUSES, TaskStatus
from vcd.state.snapshot import Snapshot
from vcd.state.sums import Ints, sums_by

_ALLOCATED = np.array([status in ALLOCATED_STATUSES for status in TaskStatus])


class Orphans:
    """Pods that belong to no job, and count against queues of the session.

    ``rows`` are rows of the snapshot's columns, ascending; ``queues`` are the numbers of their queues from
    ``number_of``. ``allocated`` is what they hold, by queue and resource, without terminating pods, as for jobs.
    """

    def __init__(self, snapshot: Snapshot, number_of: Mapping[str, int]) -> None:
        known = {row: number_of[name] for row, name in snapshot.orphans.items() if name in number_of}
        self.rows: Ints = np.array(list(known), np.int64)
        self.queues: Ints = np.array(list(known.values()), np.int64)
        chosen = _ALLOCATED[snapshot.tasks.status[self.rows]]
        requests = snapshot.shape_columns.requests[snapshot.tasks.shape[self.rows[chosen]]]
        self.allocated = sums_by(self.queues[chosen], requests, len(number_of))

    def __len__(self) -> int:
        return len(self.rows)
