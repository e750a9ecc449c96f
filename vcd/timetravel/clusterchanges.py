"""What people and failures changed in a cluster, by time: nodes, queues, quotas, priority classes, the configuration,
faults of the installation. Jobs and pods are not included: they are the workload."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from vcd.eventlog import LogError
from vcd.model import events as ev
from vcd.model.objects import Node
from vcd.model.wording import counted, span_in_words
from vcd.text.changes import change_in_words
from vcd.text.time_formats import moment
from vcd.timetravel.alterations import alterations
from vcd.timetravel.history import WHOLE, History, object_in

BEFORE = 600 * 1_000_000_000
"""Changes around a job are listed from this long (ns) before its creation."""
_TOGETHER = 60 * 1_000_000_000
"""The same change of several objects within this time (ns) is one line."""
_LIFECYCLE = "node.kubernetes.io/"
"""Taints with this prefix follow the node's conditions and cordon, which are changes of their own."""


class ClusterChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """A change of one or more objects of a ``kind``, which is also ``configuration`` or ``fault``. ``time`` is RFC
    3339, ``what`` a key of `vcd.text.changes.WORDS`, ``detail`` what changed exactly, ``text`` the whole change in
    words."""

    time: str
    event: int
    kind: str
    names: list[str]
    what: str
    text: str
    detail: str = ""


class ClusterChanges(msgspec.Struct, frozen=True):
    """The changes between two times (RFC 3339), oldest first."""

    begin: str
    end: str
    seconds: float
    changes: list[ClusterChange]

    def lines(self) -> Iterator[str]:
        """Return a line for each change, with times in UTC."""
        where = f"in {span_in_words(self.seconds)} from {self.begin} to {self.end}"
        yield f"{counted(len(self.changes), 'change')} {where}" if self.changes else f"nothing changed {where}"
        day = self.begin[:10]
        for one in self.changes:
            if one.time[:10] != day:
                day = one.time[:10]
                yield day
            yield f"{one.time[11:19]}  {one.text}"


class _Change(NamedTuple):
    """A change of one object."""

    sequence: int
    time: int
    kind: str
    name: str
    what: str
    detail: str = ""


def cluster_changes(history: History, since: int = 0, until: int | None = None) -> ClusterChanges:
    """Return what changed between two times (ns since the epoch; None: the log's end).

    What the log knew before its first session is not a change. Raises LogError for a log without sessions.
    """
    reader = history.reader
    first = next(reader.sessions(limit=1), None)
    if first is None:
        raise LogError(f"event log {reader.path}: it has no sessions, so nothing is a change yet")
    begin, end = max(since, first.time), WHOLE.end(reader) if until is None else until
    streams = (_edits(history), _node_changes(history, first.head), _faults(history))
    found = [one for one in heapq.merge(*streams) if begin <= one.time <= end]
    changes = [_merged_change(group) for group in _group_equal(found)]
    return ClusterChanges(moment(begin), moment(end), (end - begin) / 1e9, changes)


def _merged_change(group: dict[str, _Change]) -> ClusterChange:
    first, names = next(iter(group.values())), sorted(filter(None, group))
    text = change_in_words(first.kind, names, first.what, first.detail)
    return ClusterChange(moment(first.time), first.sequence, first.kind, names, first.what, text, first.detail)


def _group_equal(changes: list[_Change]) -> list[dict[str, _Change]]:
    """Group changes, in order: the same change of several objects within a minute is one group, by object."""
    last: dict[tuple[str, str, str], dict[str, _Change]] = {}
    groups: list[dict[str, _Change]] = []
    for one in changes:
        same = (one.kind, one.what, one.detail)
        group = last.get(same)
        if group is None or one.name in group or one.time - next(iter(group.values())).time > _TOGETHER:
            group = last[same] = {}
            groups.append(group)
        group[one.name] = one
    return groups


# --- edits by people --------------------------------------------------------------------------------------------------


def _edits(history: History) -> Iterator[_Change]:
    for revertible in alterations(history):
        change = revertible.told
        detail = "; ".join(map(str, change.steps)) if change.what == "changed" else ""
        yield _Change(change.event, revertible.nanoseconds, change.kind, change.key, change.what, detail)


# --- faults -----------------------------------------------------------------------------------------------------------


def _faults(history: History) -> Iterator[_Change]:
    standing: dict[str, str] = {}
    for logged in history.reader.find(type="fault"):
        fault = logged.event
        assert isinstance(fault, ev.InstallationFault)
        if standing.get(fault.key, "") == fault.message:
            continue
        standing[fault.key] = fault.message
        what = "began" if fault.message else "ended"
        yield _Change(logged.sequence, logged.time, "fault", fault.key, what, fault.message)


# --- nodes ------------------------------------------------------------------------------------------------------------


def _node_changes(history: History, first_head: int) -> Iterator[_Change]:
    """Yield the changes of nodes; nodes that the first session knew are not reported as added."""
    reader = history.reader
    known = {name: record.node for name, record in history.oldest().nodes.items()}
    for logged in reader.find(kind="Node", after=reader.oldest()):
        event = logged.event
        if not isinstance(event, ev.ObjectPut | ev.ObjectGone | ev.ObjectBad):  # a list of nodes ended
            continue
        for what, detail in _of_node(known, event):
            if logged.sequence > first_head:
                yield _Change(logged.sequence, logged.time, "Node", event.key, what, detail)


def _of_node(known: dict[str, Node], event: ev.ObjectPut | ev.ObjectGone | ev.ObjectBad) -> Iterator[tuple[str, str]]:
    """Yield what an event changes about a node, and update ``known``."""
    name = event.key
    if not isinstance(event, ev.ObjectPut):
        if known.pop(name, None) is not None:
            yield "removed", ""
        return
    node = object_in(event)
    if not isinstance(node, Node):
        return  # as before, or set aside
    before = known.get(name)
    known[name] = node
    if before is None:
        yield "added", ""
    else:
        yield from node_differences(before, node)


def node_differences(before: Node, after: Node) -> Iterator[tuple[str, str]]:
    """Yield what changed about a node, each as a key of `vcd.text.changes.WORDS` and a detail."""
    if (ready := _is_ready(after)) != _is_ready(before):
        yield ("ready" if ready else "not-ready"), ""
    if after.spec.unschedulable != before.spec.unschedulable:
        yield ("cordoned" if after.spec.unschedulable else "uncordoned"), ""
    old, new = _taints(before), _taints(after)
    yield from (("taint-added", taint) for taint in new if taint not in old)
    yield from (("taint-removed", taint) for taint in old if taint not in new)
    yield from (("allocatable", step) for step in _steps(before.status.allocatable, after.status.allocatable))
    yield from (("label", step) for step in _steps(before.metadata.labels, after.metadata.labels))


def _is_ready(node: Node) -> bool:
    return all(one.status == "True" for one in node.status.conditions if one.type == "Ready")


def _taints(node: Node) -> list[str]:
    taints = [taint for taint in node.spec.taints if not taint.key.startswith(_LIFECYCLE)]
    return [f"{taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}" for taint in taints]


def _steps(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            yield f"{name} {before.get(name, 'nothing')} -> {after.get(name, 'nothing')}"
