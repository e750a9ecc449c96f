"""What a state holds of objects after all that it was told of them is what it would hold had they just been listed."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Any

import msgspec

from vcd.model import events as ev
from vcd.state.cluster_state import ClusterState
from vcd.state.records import GroupRecord, Shape

Listed = Mapping[tuple[str, str], bytes]
"""Payloads of objects that can be read, by kind and key."""
Obj = dict[str, Any]
_BY_NUMBER = {
    "node": "node_names",
    "job": "job_keys",
    "shape": "shapes",
    "labels": "label_sets",
    "namespace": "namespaces",
    "scheduler": "schedulers",
}
"""Columns of tasks that have numbers, and what gives them meaning."""
_AS_THEY_ARE = ("status", "priority", "created")


def unlike_listed(state: ClusterState, listed: Listed, kinds: Container[str]) -> Iterator[str]:
    """The objects of some kinds that a state holds otherwise than one which was told of them once, as they are now."""
    fresh = ClusterState()
    if state.policy is not None:
        fresh.apply(1, state.policy)
    for (kind, key), payload in listed.items():
        fresh.apply(fresh.sequence + 1, ev.ObjectPut(kind, key, "", payload))
    found, wanted = _held(state), _held(fresh)
    for name in sorted({*found, *wanted}):
        if name[0] not in kinds or _is_intended(state, *name):
            continue
        if (differences := _differences(found.get(name, {}), wanted.get(name, {}))) != "":
            yield f"{name[0]} {name[1]} is held otherwise than it is listed: {differences}"


def _is_intended(state: ClusterState, kind: str, key: str) -> bool:
    """Whether something is held as it is to be: a pod that is to be bound has its node, and a group that does not wait
    any more the condition for which nobody found words while it did."""
    if kind == "PodGroup":
        return key in state.intended_status and key not in state.waiting
    return kind == "Pod" and (key in state.intents or key in state.lifting or key in state.intended_annotations)


def _differences(found: Obj, wanted: Obj) -> str:
    names = [name for name in {**found, **wanted} if found.get(name) != wanted.get(name)]
    return ", ".join(f"{name} {found.get(name)!r} instead of {wanted.get(name)!r}" for name in names)


def _held(state: ClusterState) -> dict[tuple[str, str], Obj]:
    """What sessions are shown of each object, by its kind and key."""
    held: dict[tuple[str, str], Obj] = {("Pod", key): _pod(state, key) for key in state.tasks.row_of}
    for kind, records in (("Node", state.nodes), ("Queue", state.queues)):
        held |= {(kind, key): msgspec.structs.asdict(record) for key, record in records.items()}
    held |= {("PodGroup", key): _group(record) for key, record in state.groups.items()}
    for kind, objects in state.others.items():
        held |= {(kind, key): {"object": obj} for key, obj in objects.items()}
    return held


def _group(record: GroupRecord) -> Obj:
    """A group, with that of its conditions which holds, but for its words and times: what a session decides on a status
    says neither, and counts until the status is another one."""
    replace, status = msgspec.structs.replace, record.group.status
    bare = {"message": "", "last_transition_time": None, "transition_id": ""}
    conditions = tuple(replace(each, **bare) for each in status.conditions[-1:])
    group = replace(record.group, status=replace(status, conditions=conditions))
    return {**msgspec.structs.asdict(record), "group": group}


def _pod(state: ClusterState, key: str) -> Obj:
    row = state.tasks.row_of[key]
    columns = {name: int(state.tasks.at(row, name)) for name in (*_BY_NUMBER, *_AS_THEY_ARE)}
    for name, table in _BY_NUMBER.items():
        number = columns[name]
        columns[name] = getattr(state, table).values[number] if number >= 0 else None
    shape = columns["shape"]
    assert isinstance(shape, Shape)
    return {**columns, "shape": msgspec.structs.asdict(shape), "pod": state.pod(key)}
