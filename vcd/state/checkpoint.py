"""Encode a state for checkpoints. The encoding is canonical: equal states have equal bytes."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from vcd.model import events as ev
from vcd.model.objects import Pod
from vcd.model.projection_codec import encode_payload
from vcd.state.backoff import RefusalBackoff
from vcd.state.grouptable import GroupTable, GroupTableMaker
from vcd.state.immunity import Dumped as Lost
from vcd.state.immunity import DumpedInputs, DumpedOlder
from vcd.state.incomplete_admissions import IncompleteAdmission
from vcd.state.podtable import PodTable, PodTableMaker
from vcd.state.turns_taken import TurnsTaken

_LEAST_BETWEEN = 10_000
"""Events that may follow any checkpoint: they are folded in a tenth of a second."""

_encode = msgspec.msgpack.Encoder(order="deterministic").encode


class Dump(msgspec.Struct, omit_defaults=True):
    """All contents of a state. ``objects`` are kind, key, payload and digest, in order.

    Most pods and PodGroups are in tables instead; older checkpoints have none there.
    """

    sequence: int
    session: int
    epoch: int
    leading: bool
    policy: ev.PolicyLoaded | None
    listed: dict[str, str]
    bad: list[tuple[str, str, str]]
    answers: dict[str, bytes]
    objects: list[tuple[str, str, bytes, int]]
    intents: dict[str, tuple[int, int, int, str, str, str]]
    intended_status: dict[str, ev.GroupStatus]
    waiting: dict[str, tuple[ev.Waiting, ...]]
    stranded: dict[str, int]
    decided_at: int
    intended_volumes: dict[str, tuple[ev.VolumeChoice, ...]] = {}  # none: left out, as in older checkpoints
    intended_annotations: dict[str, dict[str, str]] = {}
    backoffs: dict[str, RefusalBackoff] = {}
    released: dict[str, RefusalBackoff] = {}
    admissions: dict[str, IncompleteAdmission] = {}
    nominated: dict[str, str] = {}
    nomination_turns: dict[str, tuple[str, int]] = msgspec.field(name="promises", default_factory=dict)
    evicted: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}  # older checkpoints only: they name no owner
    former: dict[str, str] = {}
    rounds: dict[str, int] = {}
    late: dict[str, ev.PluginLate] = {}
    faults: dict[str, ev.InstallationFault] = {}
    held_namespaces: dict[str, int] = {}
    turns: dict[str, TurnsTaken] = {}
    immunity: dict[str, Lost] = {}
    inputs: DumpedInputs = (0, {})
    older: DumpedOlder = {}
    pods: PodTable = msgspec.field(default_factory=PodTable)
    groups: GroupTable = msgspec.field(default_factory=GroupTable)

    def every_object(self) -> Iterator[tuple[str, str, bytes, int]]:
        """Yield all objects in the form of ``objects``, including those in tables."""
        for key, payload, digest in zip(self.pods.keys(), self.pods.payloads(), self.pods.digests, strict=True):
            yield "Pod", key, payload, digest
        for group, digest in zip(self.groups.groups(), self.groups.digests, strict=True):
            yield "PodGroup", group.key, encode_payload(group), digest
        yield from self.objects


def _without(names: tuple[str, ...]) -> type[msgspec.Struct]:
    """Return a variant of ``Dump`` that lacks some fields."""
    fields: list[tuple[str, Any, Any]] = []
    for one in msgspec.structs.fields(Dump):
        default = {} if one.default is msgspec.NODEFAULT else {"default": one.default}
        factory = {} if one.default_factory is msgspec.NODEFAULT else {"default_factory": one.default_factory}
        if one.name not in names:
            fields.append((one.name, one.type, msgspec.field(name=one.encode_name, **default, **factory)))
    return msgspec.defstruct("FirstDump", fields, omit_defaults=True)


_FirstDump = _without(
    (
        "faults",
        "held_namespaces",
        "turns",
        "immunity",
        "inputs",
        "older",
        "pods",
        "groups",
        "backoffs",
        "released",
        "admissions",
    )
)
"""A dump of version 0.1.0."""
COPIED_FIELDS = (
    "session", "epoch", "leading", "policy", "listed", "answers", "intended_status", "waiting", "stranded", "backoffs",
    "released", "admissions", "nominated",
    "nomination_turns", "rounds", "late", "faults", "held_namespaces", "turns",
)  # fmt: skip
"""The fields that a dump takes unchanged from the state, under the same name."""


class StateCopy(msgspec.Struct, eq=False):
    """A state's contents at one moment; ``encode`` may run in another thread."""

    _digests: dict[str, dict[str, int]]
    _objects: dict[str, dict[str, Any]]
    _rows: dict[str, int]
    _pods: list[Pod | None]
    _shown_nodes: list[str]
    _dump: Dump

    def encode(self) -> bytes:
        """Return the canonical bytes."""
        pods, groups = PodTableMaker(), GroupTableMaker()
        for kind in sorted(self._digests):
            digests = self._digests[kind]
            for key in sorted(digests):
                if kind == "Pod":
                    payload = self._pod(key, digests[key], pods)
                elif (obj := self._objects.get(kind, {}).get(key)) is None:
                    payload = b""
                elif kind == "PodGroup":
                    payload = groups.add(key, obj, digests[key])
                else:
                    payload = encode_payload(obj)
                if payload is not None:
                    self._dump.objects.append((kind, key, payload, digests[key]))
        self._dump.pods, self._dump.groups = pods.table(), groups.table()
        return _encode(self._dump)

    def _pod(self, key: str, digest: int, pods: PodTableMaker) -> bytes | None:
        """Return a pod's payload: empty for an invalid pod, None if it was added to the table."""
        row = self._rows.get(key)
        pod = None if row is None else self._pods[row]
        if row is None or pod is None:
            return b""
        node = self._shown_nodes[row]
        return None if pods.add(key, pod, node, digest) else encode_payload(on_node(pod, node))


def events_between(objects: int, most: int) -> int:
    """Return how many events may follow a checkpoint of ``objects`` objects before the next one, at most ``most``.

    A query reads a checkpoint and folds the events after it; an object costs about half as much as an event.
    """
    return min(max(objects // 2, _LEAST_BETWEEN), most)


def decoded(data: bytes) -> Dump:
    """Decode a dump. Raises msgspec.MsgspecError for other bytes."""
    return msgspec.msgpack.decode(data, type=Dump)


class _Faults(msgspec.Struct):
    """The part of a dump with the faults of the installation."""

    faults: dict[str, ev.InstallationFault] = {}


def faults_of(data: bytes) -> dict[str, ev.InstallationFault]:
    """Return the faults in an encoded state, without decoding the rest. Raises msgspec.MsgspecError."""
    return msgspec.msgpack.decode(data, type=_Faults).faults


def without_tables(data: bytes) -> bytes:
    """Return an encoded state in the encoding of version 0.1.0, which has no tables of pods and groups.

    Raises msgspec.MsgspecError.
    """
    dump = decoded(data)
    whole = _encode(msgspec.structs.replace(dump, objects=sorted(dump.every_object())))
    return _encode(msgspec.msgpack.decode(whole, type=_FirstDump))


def is_same_for_first_version(state: bytes, stored: bytes) -> bool:
    """Whether ``stored``, written by version 0.1.0, is the same state in what both versions store.

    Evictions are not compared: the versions store different facts about them. Raises msgspec.MsgspecError.
    """
    if decoded(stored).pods.names:
        return False
    first, second = (
        msgspec.structs.replace(msgspec.msgpack.decode(without_tables(data), type=_FirstDump), evicted={})
        for data in (state, stored)
    )
    return bool(first == second)


def on_node(pod: Pod, node_name: str) -> Pod:
    """Return the pod with its node's name, which the state stores separately."""
    if not node_name:
        return pod
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=node_name))


@contextmanager
def uncollected() -> Iterator[None]:
    """Disable garbage collection for code that creates many lasting objects: each collection would scan them."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
