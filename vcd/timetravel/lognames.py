"""The names of objects at a log's end, for shell completion."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from vcd.diagnosis.diagnosedwaits import job_name
from vcd.timetravel.history import History

NamedKind = Literal["job", "pod", "queue", "namespace"]


def names_in(history: History, kind: NamedKind) -> list[str]:
    """Return the names of a kind in order; those of jobs and pods are ``namespace/name``. Raises LogError."""
    return sorted(set(_names(history, kind)))


def _names(history: History, kind: NamedKind) -> Iterator[str]:
    state = history.state(history.reader.head(), jump=True)
    if kind == "queue":
        yield from state.queues
    elif kind == "pod":
        yield from filter(None, state.tasks.keys)
    elif kind == "job":
        yield from (job_name(record.group) for record in state.groups.values())
    else:
        yield from (key.partition("/")[0] for key in state.groups)
