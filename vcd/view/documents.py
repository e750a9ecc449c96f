"""What the page's API answers, as types: each answer of ``/api/*`` is one of these in JSON."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from vcd import api

Line = tuple[int, str]
"""A line of text and the depth of its indent: a page does not indent by spaces."""


class PageError(msgspec.Struct, frozen=True):
    """Why there is no answer, in one sentence."""

    error: str


class SessionAt(msgspec.Struct, frozen=True):
    """The last session at a time; ``remark`` says why it may not be the last one, if the log ends before that time."""

    session: int
    remark: str


class WaitLine(msgspec.Struct, frozen=True):
    """Why a job waits, for a list: the fields of `DiagnosedWait` that fit into a row."""

    group: str
    job: str
    needs: str
    cause: str
    why: str


class ClusterOverview(api.Overview, frozen=True, kw_only=True):
    """The cluster as a session left it: ``resource`` is the one that its free capacity is counted in, ``waits`` has the
    longest waits first, and ``withheld`` what the user may not see."""

    resource: str
    waits: list[WaitLine]
    withheld: list[str]

    @classmethod
    def of(cls, overview: api.Overview, waits: list[WaitLine], withheld: Sequence[str] = ()) -> ClusterOverview:
        """Return an overview with the waits at its session."""
        fields = msgspec.structs.asdict(overview)
        resource = api.cluster_resource(overview.nodes)
        return cls(**fields, resource=resource, waits=waits, withheld=list(withheld))


class SessionText(msgspec.Struct, frozen=True):
    """The lines of ``vcd explain session``."""

    session: int
    lines: list[Line]


class JobText(msgspec.Struct, frozen=True):
    """The lines of ``vcd explain job``, and of its ``--all``, as of a session (null: as of the log's end)."""

    key: str
    session: int | None
    answer: list[str]
    lines: list[Line]


class NodePods(msgspec.Struct, frozen=True):
    """The pods on a node as a session left it; ``others`` counts those that the user may not see."""

    node: str
    session: int
    pods: list[api.PodLine]
    others: int


class ForecastText(msgspec.Struct, frozen=True):
    """When a job that waits after a session may start."""

    key: str
    session: int
    lines: list[Line]


class WhatIfText(msgspec.Struct, frozen=True):
    """What becomes of a job in another queue or priority class."""

    key: str
    lines: list[Line]
