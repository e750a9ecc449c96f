"""What can happen: the events of the log. The state is their fold, in the order of their sequence numbers.

Times are integers, nanoseconds since the epoch. A new event is a class here, a branch in ``ClusterState.apply``
and nothing else.
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

    ``payload`` is the projection (``vcd.model.codec.encode_payload``), or None when it is the same as before:
    then only the resource version moved.
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
    """An object could not be read and is set aside; ``message`` names field and value."""

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

    ``settings`` are the program's flags that decide: scheduler names, default queue, bound on placements.
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
    """The machine's wall clock went ``by`` nanoseconds (below 0: back) beside its monotonic one.

    The times of the log and of decisions do not follow it, unless ``followed``: it stood by its new time for long.
    """

    by: int
    followed: bool = False


class Answered(_Event, frozen=True, tag="answer"):
    """What the world outside answered to a question that a plugin asked; read again in a replay."""

    question: str
    answer: bytes


class PluginLate(_Event, frozen=True, tag="late"):
    """A plugin or action took too long in a session: sessions ``until`` a time, ``pause`` nanoseconds from then, are
    decided without it. ``fault`` says what happened, as ``name: what happened``."""

    name: str
    fault: str
    until: int
    pause: int


class ForeignBound(_Event, frozen=True, tag="foreign"):
    """A pod of ours came to ``node`` by somebody else's doing while this replica led; ``uid`` is the pod's.

    If ``until`` (ns since the epoch) is set, the pod's namespace is held back: sessions before then decide nothing
    about its pending pods.
    """

    key: str
    uid: str
    node: str
    until: int = 0


class InstallationFault(_Event, frozen=True, tag="fault"):
    """A fault of the installation began, or its message changed; an empty ``message`` ends it. ``code`` is in
    ``vcd.model.installation.FAULTS``, ``subject`` is what the fault is about."""

    code: str
    subject: str
    message: str = ""

    @property
    def key(self) -> str:
        """What tells it from other faults."""
        return f"{self.code} {self.subject}"


class VolumeChoice(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What an unbound claim of a pod gets on the node chosen: a volume, or one that is made there (no name).

    ``claim`` is the claim's key, ``uid`` the claim's.
    """

    claim: str
    volume: str = ""
    uid: str = ""


class Operation(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One call that a statement intends: bind ``key`` to ``node``, evict it, hold room on ``node`` for it, or lift the
    scheduling gate that its queue keeps it behind.

    ``uid`` is the pod's; ``reason`` says why it is evicted and for whom; ``volumes`` are to be bound before the pod;
    ``annotations`` become the pod's with the bind (what a plugin chose on the node: devices, cpus).
    """

    verb: Verb
    key: str
    uid: str
    node: str = ""
    reason: str = ""
    volumes: tuple[VolumeChoice, ...] = ()
    annotations: dict[str, str] = {}


class Statement(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Operations that are made all or none, on behalf of one group, by one action."""

    group: str
    action: str
    operations: tuple[Operation, ...]


class GroupStatus(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The status a group shall have after a session: phase, condition and counts; ``was`` the phase before."""

    key: str
    phase: str
    condition: tuple[str, str, str, str] | None = None
    """type, status, reason, message; None leaves the conditions alone. The message is empty: why a group waits the
    plan's ``waiting`` says, and words are made of it where the condition is written. Plans before version 3 have them
    here."""
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    was: str = ""


EVICTING = ("preempt", "reclaim", "gangpreempt", "gangreclaim")
GATES = ("enqueue", "queue", "predicate", "gang", "invalid", "gated", "unsupported", *EVICTING, "held", "annotation")
"""Where pods of a group stop. What is said at the last one keeps none back; what is said at an action that evicts
explains why it evicted no pod for the group."""


class Waiting(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Why some pods of a group wait.

    ``gate`` is where they stopped, one of ``GATES`` unless a plugin has one of its own; ``plugin`` which plugin said
    no; ``reason`` why; ``nodes`` how many nodes say so (0 where nodes are not the matter); ``tasks`` how many pods it
    concerns and ``pods`` the keys of the first of them, 0 and none for the whole group.
    An empty gate says that the group waits for nothing any more. A log of vcd 0.1 has words as ``reason``, and
    quantities by name as ``detail``.
    """

    group: str
    gate: str
    plugin: str = ""
    reason: Reason | str = ""
    nodes: int = 0
    tasks: int = 0
    pods: tuple[str, ...] = ()
    detail: dict[str, str] = {}


def waits_by_group(changes: Iterable[Waiting]) -> dict[str, tuple[Waiting, ...]]:
    """What a plan's ``waiting`` says of each group that it names: why it waits from now on; nothing where it does not
    wait any more."""
    found: dict[str, list[Waiting]] = {}
    for waiting in changes:
        reasons = found.setdefault(waiting.group, [])
        if waiting.gate:
            reasons.append(waiting)
    return {group: tuple(reasons) for group, reasons in found.items()}


def waits_after(
    before: Mapping[str, tuple[Waiting, ...]], changes: Iterable[Waiting]
) -> dict[str, tuple[Waiting, ...]]:
    """Why groups wait once a plan's ``waiting`` is taken over, of those that wait."""
    return {group: reasons for group, reasons in {**before, **waits_by_group(changes)}.items() if reasons}


class QueueUsage(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What a queue has allocated after a session, as quantities, for its status."""

    name: str
    allocated: dict[str, str]


class Turn(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The last group of a namespace that had its turn, and what orders it; an empty ``group``: all of them had it."""

    namespace: str
    priority: int = 0
    created: int = 0
    """Seconds since the epoch."""
    group: str = ""


class Plan(msgspec.Struct, frozen=True, omit_defaults=True):
    """A whole decision. Its bytes (``encode_plan``) are what a replay compares.

    ``waiting`` holds the groups whose reasons changed: what is given replaces all that was known of a group.
    """

    statements: tuple[Statement, ...] = ()
    groups: tuple[GroupStatus, ...] = ()
    queues: tuple[QueueUsage, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    faults: tuple[str, ...] = ()
    """Plugins that failed in this session and were left out, as ``name: error``."""
    more: bool = False
    """Work is left: a bound on one cycle's work was reached and the next cycle follows at once."""
    rounds: tuple[str, ...] = ()
    """Plugins that act in rounds, and evicted something in this session."""
    lapsed: tuple[str, ...] = ()
    """Admitted groups whose reservation ends, since no pod of them was created in time."""
    turns: tuple[Turn, ...] = ()
    """Namespaces with more kinds of pending pods than one cycle tries, and where the next cycle goes on."""

    def operations(self, verb: Verb, group: str | None = None) -> Iterator[Operation]:
        """The operations of one kind, of all statements or of those for a group, in order."""
        for statement in self.statements:
            if group in (None, statement.group):
                yield from (operation for operation in statement.operations if operation.verb == verb)


class Asked(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A question that a session asked the world outside: its digest, and the answer or the error in words."""

    question: bytes
    answer: bytes = b""
    error: str = ""


class SessionDecided(_Event, frozen=True, tag="session"):
    """One cycle: what it was decided from, and the whole decision. Replaying it must give the same ``plan`` bytes.

    ``session`` counts from 1 in this log; ``head`` is the last event folded into its snapshot; ``now`` the time it
    was decided for; ``versions`` of code, plugins and projection; ``plan`` the encoded Plan; ``stale`` the statements
    (pairs of index in the plan and reason) that no longer held against the head state: none of their operations is
    made.
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
    """What it asked the world outside, in order, with the answers: a replay reads them here."""
    interrupted: tuple[str, ...] = ()
    """Plugins and actions that took too long, in it or not long before, as ``name: what happened``. The session was
    decided without them from its beginning, and so is a replay; they are among the plan's faults, too."""

    def accepted(self) -> Plan:
        """The plan without the statements that no longer held. Raises msgspec.MsgspecError for one that cannot be
        read."""
        plan, stale = decode_plan(self.plan), dict(self.stale)
        kept = tuple(statement for number, statement in enumerate(plan.statements) if number not in stale)
        return msgspec.structs.replace(plan, statements=kept)


class OperationDone(_Event, frozen=True, tag="outcome"):
    """What became of one operation: the API server's answer to its call.

    ``refused_at`` is when a call was refused (ns since the epoch): its pod backs off from then. It is 0 for an
    operation that was done, that was never tried, or whose outcome is unknown, and in logs before 0.2. ``is_outage``:
    the call failed since the API server, or a webhook that it calls, did not work, as it would have for any node.
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


def _decoded(decoder: msgspec.msgpack.Decoder[T], data: bytes) -> T:
    try:
        return decoder.decode(data)
    except (UnicodeDecodeError, RecursionError) as error:  # the two that it lets through
        raise msgspec.DecodeError(str(error)) from error


def by_key(texts: Mapping[str, str]) -> dict[str, str]:
    """As a decoded event has it: by key. What a plan holds is in this order, so that words made of it are the same
    before it was in the log and afterwards."""
    return dict(sorted(texts.items()))


def encode_plan(plan: Plan) -> bytes:
    """A plan as bytes; equal plans have equal bytes.

    The newest is remembered with its bytes: what reads it back at once (the log's rows, the state) need not decode it.
    """
    global _newest
    data = _encoder.encode(plan)
    _newest = (data, plan)
    return data


def decode_plan(data: bytes) -> Plan:
    """The plan of bytes that encode_plan made. Raises msgspec.MsgspecError when they are not."""
    known = _newest
    return known[1] if known is not None and known[0] is data else _decoded(_plan_decoder, data)


def encode_event(event: Event) -> bytes:
    """An event as bytes; equal events have equal bytes."""
    return _encoder.encode(event)


def decode_event(data: bytes) -> Event:
    """The event of bytes that encode_event made. Raises msgspec.MsgspecError when they are not."""
    return _decoded(_decoder, data)
