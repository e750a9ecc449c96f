"""The types of the page's API: each answer of ``/api/*`` is one of them, encoded as JSON."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from vcd.text.capacity_lines import cluster_resource
from vcd.timetravel.overview import Overview, PodLine

Line = tuple[int, str]
"""A line of text and its indent depth."""


class PageError(msgspec.Struct, frozen=True):
    """Why there is no answer, in one sentence."""

    error: str


class SessionAt(msgspec.Struct, frozen=True):
    """The last session at a time. If the log ends before that time, ``remark`` explains why later sessions may
    exist."""

    session: int
    remark: str


class WaitLine(msgspec.Struct, frozen=True):
    """Why a job waits, as a row of a list: the fields of `DiagnosedWait` that fit into a row."""

    group: str
    job: str
    needs: str
    cause: str
    why: str


class ClusterOverview(Overview, frozen=True, kw_only=True):
    """The cluster at the end of a session. Free capacity is counted in ``resource``, ``waits`` has the longest waits
    first, and ``withheld`` lists what the user may not see."""

    resource: str
    waits: list[WaitLine]
    withheld: list[str]

    @classmethod
    def of(cls, overview: Overview, waits: list[WaitLine], withheld: Sequence[str] = ()) -> ClusterOverview:
        """Return an overview with the waits at its session."""
        fields = msgspec.structs.asdict(overview)
        resource = cluster_resource(overview.nodes)
        return cls(**fields, resource=resource, waits=waits, withheld=list(withheld))


class SessionText(msgspec.Struct, frozen=True):
    """The lines of ``vcd explain session``."""

    session: int
    lines: list[Line]


class JobText(msgspec.Struct, frozen=True):
    """The lines of ``vcd explain job`` and of its ``--all``, as of a session (null: as of the log's end)."""

    key: str
    session: int | None
    answer: list[str]
    lines: list[Line]


class NodePods(msgspec.Struct, frozen=True):
    """The pods on a node at the end of a session; ``others`` counts the pods that the user may not see."""

    node: str
    session: int
    pods: list[PodLine]
    others: int


class ForecastText(msgspec.Struct, frozen=True):
    """When a job that is pending after a session may start."""

    key: str
    session: int
    lines: list[Line]


class WhatIfText(msgspec.Struct, frozen=True):
    """The outcome of a job in another queue or priority class."""

    key: str
    lines: list[Line]
