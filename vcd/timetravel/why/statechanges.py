"""What changed in a cluster between two events of a log, in words and counted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from vcd.model import events as ev
from vcd.model.objects import Object, Pod
from vcd.model.wording import counted, some
from vcd.state.cluster_state import ClusterState
from vcd.text.session_templates import SESSIONS
from vcd.timetravel.history import History
from vcd.timetravel.object_fields import changed_fields, value_text

NAMED = 4
"""Keys that a line names, at most; the data has all of them."""

_IGNORED = {
    "Node": ("status.capacity", "status.images", "metadata.resourceVersion"),
    "PodGroup": ("status.", "metadata.resourceVersion"),
    "Queue": ("status.allocated", "metadata.resourceVersion"),
}
"""Fields that a session does not read, or that the scheduler itself writes, by kind: they are no changes for it."""


class StateChange(msgspec.Struct, omit_defaults=True):
    """A change of objects of a kind (or of calls, answers, the configuration) that happened to all ``keys``;
    ``details`` describes it for the first of them, ``count`` is their number if one key means several."""

    kind: str
    what: str
    keys: list[str]
    details: list[str] = []
    count: int = 0

    def __str__(self) -> str:
        names = some(self.details or self.keys, NAMED, len(self.keys))
        facts = {"count": counted(self.count or len(self.keys), self.kind), "what": self.what, "names": names}
        return SESSIONS.sentence("change", facts)


class ClusterContents(msgspec.Struct, frozen=True):
    """The cluster in a state: pods with UID and status, other objects by kind and key."""

    pods: Mapping[str, tuple[str, str, Pod]] = msgspec.field(default_factory=dict)
    objects: Mapping[str, Mapping[str, Object]] = msgspec.field(default_factory=dict)
    bad: Mapping[tuple[str, str], str] = msgspec.field(default_factory=dict)
    policy: str = ""
    leader: tuple[int, bool] = (0, False)

    @classmethod
    def of(cls, state: ClusterState) -> ClusterContents:
        """Copy a state, which changes when the history continues."""
        pods = {}
        for key, row in state.tasks.row_of.items():
            pod = state.pods[row]
            if pod is not None:
                pods[key] = (pod.metadata.uid, _standing(pod, state.shown_nodes[row]), pod)
        objects: dict[str, dict[str, Object]] = {kind: dict(known) for kind, known in state.others.items()}
        objects["Node"] = {key: node.node for key, node in state.nodes.items()}
        objects["PodGroup"] = {key: group.group for key, group in state.groups.items()}
        objects["Queue"] = {key: queue.queue for key, queue in state.queues.items()}
        policy = "" if state.policy is None else state.policy.digest
        return cls(pods, objects, dict(state.bad), policy, (state.epoch, state.leading))


def _standing(pod: Pod, node: str) -> str:
    if pod.metadata.deletion_timestamp is not None:
        return "being deleted"
    standing = {"Running": "running", "Succeeded": "succeeded", "Failed": "failed"}.get(pod.status.phase)
    return standing or ("bound" if node else "pending")


def object_changes(before: ClusterContents, after: ClusterContents) -> Iterator[StateChange]:
    """Yield the changes: configuration, leadership, objects by kind, pods by their new status."""
    if after.policy != before.policy:
        yield StateChange("configuration", "loaded", [after.policy[:16]])
    if after.leader != before.leader:
        epoch, leading = after.leader
        if epoch < 0:
            yield StateChange("shadow", "began", [SESSIONS["shadow began"]])
        else:
            yield StateChange("leadership", "won" if leading else "lost", [f"epoch {epoch}"])
    for kind in sorted(before.objects.keys() | after.objects.keys()):
        yield from _changed_objects(kind, before.objects.get(kind, {}), after.objects.get(kind, {}), after.bad)
    yield from _changed_pods(before, after)
    bad = sorted(place for place, message in after.bad.items() if before.bad.get(place) != message)
    if bad:
        texts = [f"{kind} {key} ({after.bad[kind, key]})" for kind, key in bad]
        yield StateChange("object", "set aside", [f"{kind} {key}" for kind, key in bad], texts[:NAMED])


def _changed_objects(
    kind: str, before: Mapping[str, Object], after: Mapping[str, Object], bad: Mapping[tuple[str, str], str]
) -> Iterator[StateChange]:
    created = sorted(after.keys() - before.keys())
    gone = sorted(key for key in before.keys() - after.keys() if (kind, key) not in bad)
    if created:
        yield StateChange(kind, "created", created)
    changed = {}
    for key in sorted(after.keys() & before.keys()):
        if before[key] is not after[key] and (fields := changes_of(kind, before[key], after[key])):
            changed[key] = f"{key} ({some(fields)})"
    if changed:
        yield StateChange(kind, "changed", list(changed), list(changed.values())[:NAMED])
    if gone:
        yield StateChange(kind, "gone", gone)


def _changed_pods(before: ClusterContents, after: ClusterContents) -> Iterator[StateChange]:
    found: dict[str, list[str]] = {}
    for key in sorted(before.pods.keys() | after.pods.keys()):
        old, new = before.pods.get(key), after.pods.get(key)
        if new is None and ("Pod", key) in after.bad:
            continue
        if old is not None and (new is None or new[0] != old[0]):
            found.setdefault("gone", []).append(key)
        if new is not None and (old is None or new[0] != old[0]):
            found.setdefault("created" if new[1] == "pending" else f"new and {new[1]}", []).append(key)
        elif new is not None and old is not None and new[1] != old[1]:
            found.setdefault(new[1], []).append(key)
        elif new is not None and old is not None and new[2] is not old[2] and new[2] != old[2]:
            found.setdefault("changed", []).append(key)
    for what, keys in sorted(found.items()):
        yield StateChange("Pod", what, keys)


def changes_of(kind: str, before: Object, after: Object) -> list[str]:
    """Return the changed fields of an object, as ``status.allocatable.cpu 8 to 24``, without those that the scheduler
    writes."""
    steps = changed_fields(msgspec.to_builtins(before), msgspec.to_builtins(after))
    ignored = _IGNORED.get(kind, ("metadata.resourceVersion",))
    texts = {
        ".".join(path): " to ".join(value_text(value) or "nothing" for value in pair) for path, pair in steps.items()
    }
    return [f"{path} {text}" for path, text in texts.items() if not path.startswith(ignored)]


def call_changes(history: History, after: int, until: int) -> Iterator[StateChange]:
    """Yield the outcomes and answers between two events, without those by which an imported log rebuilds a state."""
    found: dict[tuple[str, str], list[str]] = {}
    answers = history.reader.find(type="answer", after=after, until=until)
    for logged in (*history.reader.find(type="outcome", after=after, until=until), *answers):
        event = logged.event
        if isinstance(event, ev.OperationDone):
            found.setdefault(("call", event.result), []).append(f"session {event.session}")
        elif isinstance(event, ev.Answered):
            found.setdefault(("answer", "came"), []).append(event.question)
    for (kind, what), keys in sorted(found.items()):
        yield StateChange(kind, what, list(dict.fromkeys(keys)), count=len(keys))
