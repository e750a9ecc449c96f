"""Changes by people of the configuration, queues, quotas and priority classes in a log, and reverting each of them."""

from __future__ import annotations

import dataclasses
import difflib
import heapq
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from vcd.eventlog import Logged
from vcd.model import events as ev
from vcd.model.objects import Object, Queue
from vcd.model.projection_codec import as_plain, from_manifest
from vcd.model.wording import rfc3339
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.framework.policy import Policy
from vcd.scheduling.framework.registry import kinds
from vcd.state.cluster_state import ClusterState
from vcd.state.records import QueueRecord
from vcd.state.snapshot import Snapshot
from vcd.timetravel.history import History, object_in
from vcd.timetravel.object_fields import Path, Steps, changed_fields, leaves, set_field, value_text

CONFIGURATION = "configuration"
KINDS = ("Queue", "ResourceQuota", "PriorityClass")
"""Kinds of objects whose changes are collected, in addition to the configuration."""
_WRITTEN = ("spec", "value", "globalDefault", "preemptionPolicy")
"""Parts of an object that people write; also its annotations and, of a Queue, the state in its status."""


class AlterationStep(msgspec.Struct, frozen=True):
    """A changed field, with its values as text; empty for a field that did not exist."""

    field: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.field} {self.before or 'nothing'} -> {self.after or 'nothing'}".strip()


class Alteration(msgspec.Struct, frozen=True):
    """A change: the number of its event, its time (RFC 3339), the first session decided with it (None: none was), the
    object's kind (``configuration`` for the configuration) and key, and the changed fields, which a created or deleted
    object has none of. ``what`` is ``changed``, ``created`` or ``gone``."""

    event: int
    time: str
    session: int | None
    kind: str
    key: str
    what: str
    steps: list[AlterationStep]

    @property
    def text(self) -> str:
        """The change as text: ``queue a: spec.weight 4 -> 1 (session 7, 2026-01-01T00:00:00.000Z)``."""
        whose = self.kind if self.kind == CONFIGURATION else f"{self.kind} {self.key}"
        what = "; ".join(map(str, self.steps)) if self.what == "changed" else self.what
        where = "after the last session" if self.session is None else f"session {self.session}"
        return f"{whose}: {what} ({where}, {self.time})"


class RevertibleChange(msgspec.Struct, frozen=True):
    """A change that can be reverted, with the object's or configuration's content before and after it."""

    told: Alteration
    nanoseconds: int
    before: Object | ev.PolicyLoaded | None
    after: Object | ev.PolicyLoaded | None

    @property
    def policy(self) -> Policy | None:
        """The configuration before the change; None if the change is about an object."""
        return read_policy(self.before.text, logged=True) if isinstance(self.before, ev.PolicyLoaded) else None

    @property
    def changed(self) -> Steps:
        """The fields of an object that it changed; empty if the object was created or deleted."""
        if not isinstance(self.before, Object) or not isinstance(self.after, Object):
            return {}
        return _steps(self.before, self.after)

    def overwritten(self, now: Object) -> set[Path]:
        """Return the changed fields whose value ``now`` differs from the one that this change set."""
        values = dict(leaves(_written_parts(now)))
        return {path for path, (_, after) in self.changed.items() if values.get(path) != after}

    def of_object(self, now: Object | None, settled: Collection[Path] = ()) -> Object | None:
        """Return the object without the change: fields that still have the value that it set get their former value,
        except those in ``settled``, which later changes set. None if the object would not exist."""
        if not isinstance(self.before, Object) or not isinstance(self.after, Object) or now is None:
            return self.before if isinstance(self.before, Object) else None
        plain = msgspec.json.decode(msgspec.json.encode(as_plain(now)))
        overwritten = {*self.overwritten(now), *settled}
        for path, (before, _) in self.changed.items():
            if path not in overwritten:
                set_field(plain, path, before)
        kind = kinds()[self.told.kind]
        return from_manifest({**plain, "kind": kind.manifest_kind}, (kind,))[1]

    def is_of(self, event: ev.Event) -> bool:
        """Return whether an event is about the changed object, or about a configuration if that changed."""
        if isinstance(event, ev.PolicyLoaded):
            return self.told.kind == CONFIGURATION
        return (
            isinstance(event, ev.ObjectPut | ev.ObjectGone | ev.ObjectBad)
            and event.kind == self.told.kind
            and event.key == self.told.key
        )


def alterations(history: History, first: int | None = None, last: int | None = None) -> list[RevertibleChange]:
    """Return the changes that took effect in the sessions ``first`` to ``last``, in order.
    Raises LogError.

    What exists when the log begins, or appears before its first session, is not a change.
    """
    reader = history.reader
    heads = [(info.head, info.number) for info in reader.sessions()]
    if not heads:
        return []
    begin, contents = reader.oldest(), _KnownContents(history.oldest())
    streams = [*(reader.find(kind=kind, after=begin) for kind in KINDS), reader.policies(begin)]
    found: list[RevertibleChange] = []
    for logged in heapq.merge(*streams, key=lambda one: one.sequence):
        place = bisect_left(heads, (logged.sequence, 0))
        session = heads[place][1] if place < len(heads) else None
        change = contents.see(logged, session)
        if change is None or (change.told.what == "created" and logged.sequence <= heads[0][0]):
            continue
        if session is not None and (first or 0) <= session <= (last or session):
            found.append(change)
    return found


class _KnownContents:
    """The known content of objects and the configuration while events are read."""

    def __init__(self, state: ClusterState) -> None:
        self._policy = state.policy
        self._known: dict[tuple[str, str], Object | None] = {}
        for kind in KINDS:
            self._known |= {(kind, key): obj for key, obj in state.others.get(kind, {}).items()}
        self._known |= {("Queue", key): record.queue for key, record in state.queues.items()}

    def see(self, logged: Logged, session: int | None) -> RevertibleChange | None:
        """Return the change that an event makes; None if it makes no relevant one."""
        event, before = logged.event, self._policy
        if isinstance(event, ev.PolicyLoaded):
            self._policy = event
            change = _describe_change(logged, session, (CONFIGURATION, ""), before, event)
            return None if change is None else RevertibleChange(change, logged.time, before, event)
        if not isinstance(event, ev.ObjectPut | ev.ObjectGone):
            return None
        known, after = self._known.get((event.kind, event.key)), object_in(event)
        if isinstance(event, ev.ObjectPut) and after is None:
            return None  # as before, or set aside
        self._known[event.kind, event.key] = after
        change = _describe_change(logged, session, (event.kind, event.key), known, after)
        return None if change is None else RevertibleChange(change, logged.time, known, after)


def _describe_change(
    logged: Logged,
    session: int | None,
    name: tuple[str, str],
    before: Object | ev.PolicyLoaded | None,
    after: Object | ev.PolicyLoaded | None,
) -> Alteration | None:
    """Return a change as plain values; None if no relevant field changed."""
    what, steps = "changed", list[AlterationStep]()
    if isinstance(before, ev.PolicyLoaded) and isinstance(after, ev.PolicyLoaded):
        steps = list(_changed_lines(before.text, after.text))
    elif isinstance(before, Object) and isinstance(after, Object):
        changed = _steps(before, after)
        steps = [
            AlterationStep(".".join(path), value_text(old), value_text(new)) for path, (old, new) in changed.items()
        ]
    elif before is not after:
        what = "created" if before is None else "gone"
    if what == "changed" and not steps:
        return None
    return Alteration(logged.sequence, rfc3339(logged.time, 3), session, *name, what, steps)


def _changed_lines(before: str, after: str) -> Iterator[AlterationStep]:
    old, new = ([line.strip(" -") for line in text.splitlines() if line.strip()] for text in (before, after))
    for what, i, j, k, m in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if what != "equal":
            yield AlterationStep("", " ".join(old[i:j]), " ".join(new[k:m]))


def _written_parts(obj: Object) -> dict[str, Any]:
    """Return the parts of an object that people write."""
    plain: dict[str, Any] = as_plain(obj)
    found = {part: plain[part] for part in _WRITTEN if part in plain}
    found["metadata"] = {"annotations": plain["metadata"].get("annotations", {})}
    if isinstance(obj, Queue):
        found["status"] = {"state": obj.status.state}
    return found


def _steps(before: Object, after: Object) -> Steps:
    return changed_fields(_written_parts(before), _written_parts(after))


def revert_changes(
    snapshot: Snapshot, changes: Iterable[RevertibleChange], others: Collection[RevertibleChange] = ()
) -> Snapshot:
    """Return a snapshot with some changes of objects reverted, the last one first. Fields that ``others``, which stay,
    set later keep their values."""
    for change in sorted(changes, key=lambda one: -one.told.event):
        kind, key = change.told.kind, change.told.key
        since = [
            one for one in others if (one.told.kind, one.told.key) == (kind, key) and one.told.event > change.told.event
        ]
        # the object was created again since
        if kind == CONFIGURATION or any(one.told.what != "changed" for one in since):
            continue
        settled = {path for one in since for path in one.changed}
        if kind == "Queue":
            queue = snapshot.queues.get(key)
            before = change.of_object(None if queue is None else queue.queue, settled)
            record = QueueRecord.of(before) if isinstance(before, Queue) else None
            snapshot = dataclasses.replace(snapshot, queues=_with(snapshot.queues, key, record))
        else:
            of_kind = snapshot.others.get(kind, {})
            changed = _with(of_kind, key, change.of_object(of_kind.get(key), settled))
            snapshot = dataclasses.replace(snapshot, others={**snapshot.others, kind: changed})
    return snapshot


def _with(known: Mapping[str, Any], key: str, value: Any) -> dict[str, Any]:
    others = {name: one for name, one in known.items() if name != key}
    return others if value is None else {**others, key: value}
