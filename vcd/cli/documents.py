"""What ``-o json`` prints: each document with the version of its form, and its kind, which is the name of its type.

Within a version fields are added, never renamed or changed in meaning. docs/schemas has the schema of each kind.
"""

from __future__ import annotations

from typing import Any

import msgspec

from vcd import api

API_VERSION = "vcd/v1"

_UNSET = msgspec.UNSET


class JobExplanation(api.Explanation, omit_defaults=True):
    """A job's or pod's story; what stands in its way while it waits, and what would let it in and when it will start,
    where that was asked."""

    verdict: api.Verdict | None = None
    eta: api.Submission | None = None
    obstacles: api.Obstacles | None = None
    change: api.Counterfactual | None = None


class PlannedCluster(msgspec.Struct):
    """Which cluster was planned, and the kinds that could not be listed there: resource, why, role, without."""

    server: str
    context: str
    missing: list[dict[str, str]]


class Plan(msgspec.Struct):
    """What one cycle would do; see ``api.PlanResult``."""

    binds: dict[str, str]
    evictions: list[str]
    ungated: list[str]
    pipelined: dict[str, str]
    placed: list[api.PlacedJob]
    waits: list[api.DiagnosedWait]
    phases: dict[str, str]
    why: dict[str, list[dict[str, Any]]]
    problems: dict[str, list[str]]
    notes: list[str]
    unknown: list[str]
    refused: list[str]
    cluster: PlannedCluster | msgspec.UnsetType = _UNSET


class Replay(msgspec.Struct):
    """How many sessions of a file were decided again, how many alike, and those that differ."""

    file: str
    sessions: int
    identical: int
    different: list[api.Replayed]


class ConfigurationCheck(msgspec.Struct):
    """Whether a configuration file can be used, and what is wrong with it.

    ``unread_queue_fields`` are the fields of Queues that none of its plugins reads, each with the plugins that would.
    ``queues`` has a sentence for each such field that the given Queues state.
    """

    file: str
    usable: bool
    problems: list[api.Problem]
    warnings: list[api.Problem]
    unread_queue_fields: dict[str, list[str]] = {}
    queues: list[str] = []


class ConfigurationChange(msgspec.Struct):
    """What differs in how two configurations decide, and what of each cannot work together."""

    old: str
    new: str
    changes: list[api.PolicyChange]
    misfits: list[api.Problem]


class Configuration(msgspec.Struct):
    """What a configuration comes to: see ``api.describe_policy``."""

    digest: str
    actions: list[dict[str, Any]]
    tiers: list[list[dict[str, Any]]]
    metrics: dict[str, str]
    warnings: list[str]


class LogEvent(msgspec.Struct):
    """An event of a log: of an object of which ``kind`` and ``key`` (both may be empty), and all that it holds."""

    sequence: int
    time: str
    type: str
    kind: str
    key: str
    version: str
    what: str
    event: dict[str, Any]


class LogSession(msgspec.Struct):
    """A session of a log: the number of its event, the event that it was decided from, and what it holds."""

    session: int
    sequence: int
    time: str
    head: int
    epoch: int
    now: str
    policy: str
    statements: int
    operations: int


class LogVerification(msgspec.Struct):
    """What is wrong with a log, what its chain does not cover, and the chain's head."""

    file: str
    problems: list[str]
    uncovered: list[str]
    head: str | None


class WrittenLog(msgspec.Struct):
    """A new log: its first and last event, and how many sessions; of one without names, those that are only renamed."""

    file: str
    first: int
    last: int
    sessions: int
    renamed: list[int] | msgspec.UnsetType = _UNSET


class RestoredLog(msgspec.Struct):
    """A log out of an archive: its first and last event, its last session, and what was missing."""

    file: str
    first: int
    last: int
    session: int
    gaps: list[str]


class LogCompaction(msgspec.Struct):
    """What was removed of a log: events, and its size in bytes before and after."""

    file: str
    removed: int
    before: int
    after: int


def document(found: msgspec.Struct) -> dict[str, Any]:
    """A structure as it is printed, with its version and kind; what it calls its kind itself is ``of`` what it is."""
    plain: dict[str, Any] = msgspec.to_builtins(found, str_keys=True)
    of = {"of": plain.pop("kind")} if "kind" in plain else {}
    return {"apiVersion": API_VERSION, "kind": type(found).__name__, **of, **plain}
