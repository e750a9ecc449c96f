"""Reason templates: what was noted for one job, transferred to equivalent jobs.

In a template, a pod's name is replaced by its position among the job's pods, in the order in which equivalent pods are
tried. Reasons that a group already displays become a number in the same way, so that among thousands of equivalent jobs
only those with other reasons are examined.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import msgspec
import numpy as np

from vcd.model.events import Waiting
from vcd.state.group_columns import GroupColumns, Rows
from vcd.state.records import alike_in_order
from vcd.state.sums import Ints

Condition = tuple[str, str, str]
"""Type, status, reason."""

_encode = msgspec.msgpack.Encoder(order="deterministic").encode
_OPEN = "\0"
"""Prefix of a pod's position in a template. It cannot occur in a name from outside."""


def shown_reasons(jobs: GroupColumns, rows: Rows) -> Ints:
    """Return numbers for the reasons for which groups are known to wait; 0 if there are none."""
    found = np.zeros(len(rows), np.int64)
    if not jobs.waiting:
        return found
    wait = [place for place, index in enumerate(rows.tolist()) if jobs.keys[index] in jobs.waiting]
    for place, members in zip(wait, jobs.members(rows[wait]), strict=True):
        reasons = jobs.waiting[jobs.keys[rows[place]]]
        found[place] = number_of(open_reasons(reasons, keys_as_tried(jobs, members)))
    return found


def pods_of(jobs: GroupColumns, index: int) -> list[str]:
    """Return the keys of a job's pods in the order in which equivalent ones are tried."""
    return keys_as_tried(jobs, jobs.rows_of(index))


def keys_as_tried(jobs: GroupColumns, rows: Sequence[int]) -> list[str]:
    """Return the keys of equivalent pods of one job, in the order in which they are tried."""
    tasks = jobs.tasks
    keys = [tasks.keys[row] or "" for row in rows]
    if len(keys) < 2:
        return keys
    order = alike_in_order(keys, tasks.created[list(rows)].tolist(), lambda: tasks.uids_of(rows))
    return [key for _, key in sorted(zip(order, keys, strict=True))]


def number_of(said: tuple[object, ...]) -> int:
    """Return a hash of a template; 0 for an empty one."""
    return int.from_bytes(blake2b(_encode(said), digest_size=8).digest(), "big") >> 1 if said else 0


def open_reasons(reasons: Sequence[Waiting], pods: Sequence[str]) -> tuple[Waiting, ...]:
    """Return a group's reasons as templates that hold for any equivalent group."""
    place_of = {key: f"{_OPEN}{place}" for place, key in enumerate(pods)} if reasons else {}
    return tuple(
        [
            msgspec.structs.replace(reason, group="", pods=tuple([place_of.get(key, key) for key in reason.pods]))
            for reason in reasons
        ]
    )


def reasons_of(said: Sequence[Waiting], group: str, pods: Sequence[str]) -> tuple[Waiting, ...]:
    """Return the reasons of a group from templates."""
    key_of = {f"{_OPEN}{place}": key for place, key in enumerate(pods)}
    return tuple(
        [
            msgspec.structs.replace(reason, group=group, pods=tuple([key_of.get(key, key) for key in reason.pods]))
            for reason in said
        ]
    )
