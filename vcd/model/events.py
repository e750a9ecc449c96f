"""The events of the log. The state is their fold, in the order of their sequence numbers.

Times are integers, nanoseconds since the epoch. A new event needs a class here and a branch in ``ClusterState.apply``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, TypeVar

import msgspec

from vcd.model.reasons import Reason

Verb = Literal["bind", "evict", "pipeline", "ungate"]
Result = Literal["done", "conflict", "gone", "failed", "unknown"]


class _Event(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="event"):
    """Base of all events."""


class ObjectPut(_Event, frozen=True, tag="put"):
    """An object was added or changed.

    ``payload`` is the projection (``vcd.model.projection_codec.encode_payload``), or None if it is unchanged and only
    the resource version is new.
    """

    kind: str
    key: str
    resource_version: str
    payload: bytes | None


class ObjectGone(_Event, frozen=True, tag="gone"):
    """An object was deleted, or was missing in a fresh list."""

    kind: str
    key: str
    resource_version: str = ""


class ObjectBad(_Event, frozen=True, tag="bad"):
    """An object is invalid and ignored; ``message`` names field and value."""

    kind: str
    key: str
    resource_version: str
    message: str


class KindListed(_Event, frozen=True, tag="listed"):
    """A list of a kind is complete, as of a resource version."""

    kind: str
    resource_version: str


class PolicyLoaded(_Event, frozen=True, tag="policy"):
    """A configuration came into force: ``text`` is the file, ``digest`` identifies it.

    ``settings`` are the program's flags that affect decisions: scheduler names, default queue, limit of placements.
    """

    digest: str
    text: str
    settings: dict[str, str] = {}


class LeadershipChanged(_Event, frozen=True, tag="leadership"):
    """This replica won (``leading``) or lost the lease; ``epoch`` is the lease's count of transitions."""

    epoch: int
    identity: str
    leading: bool


class ClockJumped(_Event, frozen=True, tag="clock"):
    """The machine's wall clock jumped ``by`` nanoseconds (below 0: back) relative to its monotonic clock.

    Times of the log and of decisions do not follow it, unless ``followed``: the clock stayed at its new time for long.
    """

    by: int
    followed: bool = False


class Answered(_Event, frozen=True, tag="answer"):
    """The answer of an external system to a plugin's question; a replay reads it from here."""

    question: str
    answer: bytes


class PluginLate(_Event, frozen=True, tag="late"):
    """A plugin or action took too long in a session.

    Sessions before ``until``, for ``pause`` nanoseconds, are decided without it. ``fault`` is ``name: what happened``.
    """

    name: str
    fault: str
    until: int
    pause: int


class ForeignBound(_Event, frozen=True, tag="foreign"):
    """Another scheduler bound a pod of vcd's to ``node`` while this replica led; ``uid`` is the pod's.

    If ``until`` (ns since the epoch) is set, the pod's namespace is held back: sessions before then decide nothing
    about its pending pods.
    """

    key: str
    uid: str
    node: str
    until: int = 0


class InstallationFault(_Event, frozen=True, tag="fault"):
    """A fault of the installation began, or its message changed; an empty ``message`` ends it.

    ``code`` is in ``vcd.model.installation_faults.FAULTS``, ``subject`` is what the fault is about.
    """

    code: str
    subject: str
    message: str = ""

    @property
    def key(self) -> str:
        """The identity of the fault."""
        return f"{self.code} {self.subject}"


class VolumeChoice(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The volume that an unbound claim of a pod gets on the chosen node. No name: a new one is provisioned there.

    ``claim`` is the claim's key, ``uid`` the claim's.
    """

    claim: str
    volume: str = ""
    uid: str = ""


class Operation(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One intended call of a statement.

    Verbs: bind ``key`` to ``node``, evict it, pipeline it (reserve resources on ``node``), or ungate it (remove the
    scheduling gate of its queue). ``uid`` is the pod's. ``reason`` is why and for which job it is evicted. ``volumes``
    are bound before the pod. ``annotations`` are set on the pod with the bind (devices or cpus that a plugin chose on
    the node).
    """

    verb: Verb
    key: str
    uid: str
    node: str = ""
    reason: str = ""
    volumes: tuple[VolumeChoice, ...] = ()
    annotations: dict[str, str] = {}


class Statement(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Operations for one group by one action; either all are executed, or none."""

    group: str
    action: str
    operations: tuple[Operation, ...]


class GroupStatus(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The status that a group gets after a session: phase, condition and counts; ``was`` is the phase before."""

    key: str
    phase: str
    condition: tuple[str, str, str, str] | None = None
    """type, status, reason, message; None leaves the conditions unchanged.

    The message is empty: the plan's ``waiting`` has the reasons, and the text is rendered when the condition is
    written. Plans before version 3 have the text here.
    """
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    was: str = ""


EVICTING = ("preempt", "reclaim", "gangpreempt", "gangreclaim")
GATES = ("enqueue", "queue", "predicate", "gang", "invalid", "gated", "unsupported", *EVICTING, "held", "annotation")
"""Where pods of a group stop.

A remark of the last gate keeps no pod waiting. The reasons of an action that evicts explain why it evicted no pod for
the group.
"""


class Waiting(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Why some pods of a group wait.

    ``gate`` is where they stopped: one of ``GATES``, or a plugin's own. ``plugin`` is the plugin that refused them.
    ``nodes`` is how many nodes give this reason (0: not about nodes). ``tasks`` is how many pods it concerns, and
    ``pods`` are the keys of the first of them; 0 and none for the whole group. An empty gate means that the group no
    longer waits. A log of vcd 0.1 has text as ``reason``, and quantities by name as ``detail``.
    """

    group: str
    gate: str
    plugin: str = ""
    reason: Reason | str = ""
    nodes: int = 0
    tasks: int = 0
    pods: tuple[str, ...] = ()
    detail: dict[str, str] = {}

    def may_concern(self, pod: str) -> bool:
        """Return whether this may be a reason of one of the group's pods."""
        return not self.pods or pod in self.pods or self.tasks > len(self.pods)


def waits_by_group(changes: Iterable[Waiting]) -> dict[str, tuple[Waiting, ...]]:
    """Return the new reasons of each group in a plan's ``waiting``; empty if it no longer waits."""
    found: dict[str, list[Waiting]] = {}
    for waiting in changes:
        reasons = found.setdefault(waiting.group, [])
        if waiting.gate:
            reasons.append(waiting)
    return {group: tuple(reasons) for group, reasons in found.items()}


def waits_after(
    before: Mapping[str, tuple[Waiting, ...]], changes: Iterable[Waiting]
) -> dict[str, tuple[Waiting, ...]]:
    """Return the reasons of all waiting groups after a plan's ``waiting`` is applied."""
    return {group: reasons for group, reasons in {**before, **waits_by_group(changes)}.items() if reasons}


class QueueUsage(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What a queue has allocated after a session, as quantities, for its status."""

    name: str
    allocated: dict[str, str]


class Turn(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The last group of a namespace that had its turn, and its sort key; an empty ``group``: all of them had it."""

    namespace: str
    priority: int = 0
    created: int = 0
    """Seconds since the epoch."""
    group: str = ""


class Plan(msgspec.Struct, frozen=True, omit_defaults=True):
    """A whole decision. Its bytes (``encode_plan``) are what a replay compares.

    ``waiting`` holds the groups whose reasons changed; they replace all earlier reasons of a group.
    """

    statements: tuple[Statement, ...] = ()
    groups: tuple[GroupStatus, ...] = ()
    queues: tuple[QueueUsage, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    faults: tuple[str, ...] = ()
    """Plugins that failed in this session and were left out, as ``name: error``."""
    more: bool = False
    """Work is left: a limit of one cycle was reached, and the next cycle follows at once."""
    rounds: tuple[str, ...] = ()
    """Plugins that act in rounds, and evicted something in this session."""
    lapsed: tuple[str, ...] = ()
    """Admitted groups whose reservation ends, since not all pods of their minimum were created in time."""
    turns: tuple[Turn, ...] = ()
    """Namespaces with more kinds of pending pods than one cycle tries, and where the next cycle continues."""

    def operations(self, verb: Verb, group: str | None = None) -> Iterator[Operation]:
        """Yield the operations of one kind, of all statements or of those for a group, in order."""
        for statement in self.statements:
            if group in (None, statement.group):
                yield from (operation for operation in statement.operations if operation.verb == verb)


class Asked(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A question of a session to an external system: its digest, and the answer or the error text."""

    question: bytes
    answer: bytes = b""
    error: str = ""


class SessionDecided(_Event, frozen=True, tag="session"):
    """One cycle: what it was decided from, and the whole decision. Replaying it must give the same ``plan`` bytes.

    ``session`` counts from 1 in this log. ``head`` is the last event folded into its snapshot. ``now`` is the time it
    was decided for. ``versions`` has the versions of code, plugins and projection. ``plan`` is the encoded Plan.
    ``stale`` are statements (pairs of index in the plan and reason) that no longer held against the head state: none of
    their operations is executed.
    """

    session: int
    head: int
    policy: str
    now: int
    seed: int
    epoch: int
    versions: dict[str, str]
    plan: bytes
    stale: tuple[tuple[int, str], ...] = ()
    asked: tuple[Asked, ...] = ()
    """Questions to external systems in order, with the answers: a replay reads them here."""
    interrupted: tuple[str, ...] = ()
    """Plugins and actions that took too long, in it or shortly before, as ``name: what happened``.

    The session was decided without them from its beginning, and so is a replay. The plan's faults include these.
    """

    def accepted(self) -> Plan:
        """Return the plan without stale statements. Raises msgspec.MsgspecError for an invalid plan."""
        plan, stale = decode_plan(self.plan), dict(self.stale)
        kept = tuple(statement for number, statement in enumerate(plan.statements) if number not in stale)
        return msgspec.structs.replace(plan, statements=kept)


class OperationDone(_Event, frozen=True, tag="outcome"):
    """The outcome of one operation: the API server's answer to its call.

    ``refused_at`` is when a call was refused (ns since the epoch): its pod backs off from then. It is 0 for an
    operation that succeeded, that was never tried, or whose outcome is unknown, and in logs before 0.2. ``is_outage``:
    the call failed because the API server, or a webhook that it calls, did not work; it would have failed for any node.
    """

    session: int
    statement: int
    operation: int
    result: Result
    detail: str = ""
    refused_at: int = 0
    is_outage: bool = False

    @property
    def is_refusal(self) -> bool:
        """Whether the API server refused the operation, so that it may accept another one for the same pod."""
        return self.result == "failed" and not self.is_outage


Event = (
    ObjectPut
    | ObjectGone
    | ObjectBad
    | KindListed
    | PolicyLoaded
    | LeadershipChanged
    | ClockJumped
    | Answered
    | PluginLate
    | ForeignBound
    | InstallationFault
    | SessionDecided
    | OperationDone
)

_encoder = msgspec.msgpack.Encoder(order="deterministic")
_decoder: msgspec.msgpack.Decoder[Event] = msgspec.msgpack.Decoder(Event)
_plan_decoder = msgspec.msgpack.Decoder(Plan)
_newest: tuple[bytes, Plan] | None = None
T = TypeVar("T")


def _decode(decoder: msgspec.msgpack.Decoder[T], data: bytes) -> T:
    try:
        return decoder.decode(data)
    except (UnicodeDecodeError, RecursionError) as error:  # the two that msgspec does not convert
        raise msgspec.DecodeError(str(error)) from error


def by_key(texts: Mapping[str, str]) -> dict[str, str]:
    """Sort a mapping by key, as in a decoded event: text rendered from a plan is then the same after logging."""
    return dict(sorted(texts.items()))


def encode_plan(plan: Plan) -> bytes:
    """Encode a plan; equal plans have equal bytes.

    The newest plan is cached with its bytes, for readers that decode it right away (the log's rows, the state).
    """
    global _newest
    data = _encoder.encode(plan)
    _newest = (data, plan)
    return data


def decode_plan(data: bytes) -> Plan:
    """Decode what encode_plan returned. Raises msgspec.MsgspecError for other bytes."""
    known = _newest
    return known[1] if known is not None and known[0] is data else _decode(_plan_decoder, data)


def encode_event(event: Event) -> bytes:
    """Encode an event; equal events have equal bytes."""
    return _encoder.encode(event)


def decode_event(data: bytes) -> Event:
    """Decode what encode_event returned. Raises msgspec.MsgspecError for other bytes."""
    return _decode(_decoder, data)
