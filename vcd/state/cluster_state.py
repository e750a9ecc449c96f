"""The cluster as of an event: the fold of the log, and nothing else (docs/laws.md, law 1).

Events change the state (`apply`, `session_in_steps`) after they are in the log. A field that is not derived from others
has to be in the checkpoint (`checkpoint.py`); otherwise a restored state decides differently.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from itertools import chain
from typing import cast

import msgspec
import numpy as np
from msgspec.structs import replace

from vcd.model import events as ev
from vcd.model.objects import Condition, Node, Object, Pod, PodGroup, PodGroupStatus, PodSpec, Queue
from vcd.model.projection_codec import BadObject, decode_payload, encode_payload, payload_digest
from vcd.model.quantity import QuantityError
from vcd.model.resource_requests import countable, counted_spec, may_be_resized
from vcd.model.status import Phase, TaskStatus, phase_of
from vcd.state.backoff import RELEASE, RefusalBackoff, after_refusal, after_release
from vcd.state.checkpoint import COPIED_FIELDS, Dump, StateCopy, decoded, on_node
from vcd.state.gang_completion import Completion
from vcd.state.grouptable import GroupTable
from vcd.state.immunity import ENDED, GroupProgress, Immunity
from vcd.state.incomplete_admissions import IncompleteAdmission, is_incomplete
from vcd.state.interning import NO_ROW, Changes, Interner, Pages, Rows
from vcd.state.podtable import PodTable, load_pods
from vcd.state.records import (
    REPEATING_ACTIONS,
    GroupRecord,
    Intent,
    NodeRecord,
    QueueRecord,
    Settings,
    Shape,
    has_queue_gate,
    seconds_of,
    spec_key,
    task_priority,
    task_role,
    task_status,
)
from vcd.state.turns_taken import TurnsTaken, after_news, after_session

_amounts_key = msgspec.msgpack.Encoder(order="deterministic").encode
_ALWAYS = ("cpu", "memory", "pods")
_SET_BACK = 5_000_000_000
"""Nanoseconds between two sessions by which the clock must be set back until times of holds move with it.

Smaller corrections are no jumps (``SteadyClock.JUMP``).
"""
_VOID = -1
"""The turn of a nomination that no longer holds."""


class ClusterState:
    """The state after ``sequence`` events.

    Pods are stored in columns (one row a pod), other objects as records by key. Row numbers are arbitrary: no decision
    may depend on them, and ``dump`` does not contain them.
    """

    def __init__(self) -> None:
        self.sequence = 0
        self.session = 0
        self.epoch = 0
        self.leading = False
        self.policy: ev.PolicyLoaded | None = None
        self.settings = Settings()
        self.listed: dict[str, str] = {}
        self.bad: dict[tuple[str, str], str] = {}
        self.answers: dict[str, bytes] = {}
        self.digests: dict[str, dict[str, int]] = {}

        self.nodes: dict[str, NodeRecord] = {}
        self.groups: dict[str, GroupRecord] = {}
        self.former: dict[str, str | None] = {}
        """Groups that pods name and that do not exist, with their last queue; None if the group was never observed."""
        self.queues: dict[str, QueueRecord] = {}
        self.others: dict[str, dict[str, Object]] = {}
        self.facts_version = 0
        self.others_version: dict[str, int] = {}
        self.changed_rows: Changes[int] = Changes(lambda: len(self.pods))
        """Rows of ``tasks`` whose pod, status or node changed."""
        self.changed_groups: Changes[str] = Changes(self.groups.__len__)
        self.changed_queues: Changes[str] = Changes(self.queues.__len__)
        self.changed_waiting: Changes[str] = Changes(lambda: len(self.waiting))

        self.tasks = Rows(
            status=np.int8,
            node=np.int32,
            job=np.int32,
            shape=np.int32,
            labels=np.int32,
            namespace=np.int32,
            scheduler=np.int32,
            priority=np.int32,
            created=np.int64,
        )
        self.pods: Pages[Pod | None] = Pages()
        self.shown_nodes: list[str] = []
        self.node_names: Interner[str] = Interner()
        self.job_keys: Interner[str] = Interner()
        self.shapes: Interner[Shape] = Interner()
        self.label_sets: Interner[dict[str, str]] = Interner()
        self.namespaces: Interner[str] = Interner()
        self.schedulers: Interner[str] = Interner()

        self.intents: dict[str, Intent] = {}
        self.intended_volumes: dict[str, tuple[ev.VolumeChoice, ...]] = {}
        """Volumes that intended binds bind, by pod."""
        self.intended_annotations: dict[str, dict[str, str]] = {}
        """Annotations that pods get with their bind and that are not observed yet, by pod."""
        self.lifting: dict[str, str] = {}
        """Pods whose queue admission gate is being removed, with their UIDs, until the removal is observed."""
        self.intended_status: dict[str, ev.GroupStatus] = {}
        self.waiting: dict[str, tuple[ev.Waiting, ...]] = {}
        self.stranded: dict[str, int] = {}
        """Groups with a failed bind while other binds succeeded, and since when (time of the session)."""
        self.backoffs: dict[str, RefusalBackoff] = {}
        """Pods with an operation that the API server refused, until they are bound or deleted or their spec changes."""
        self.released: dict[str, RefusalBackoff] = {}
        """Released gangs, until they have their minimum or are deleted or their spec changes."""
        self.admissions: dict[str, IncompleteAdmission] = {}
        """Admitted groups without all pods of their minimum; empty if the settings have no timeout for them."""
        self.nominated: dict[str, str] = {}
        """Pods that wait for evictions, with their node, as decided and not observed yet."""
        self.observed_nominations: dict[str, str] = {}
        """Observed nominations (``status.nominatedNodeName``)."""
        self.nomination_turns: dict[str, tuple[str, int]] = {}
        """Pods that sessions of this log nominated, or whose nomination they ended: the node, and the turn.

        Turns rise with each session. Session numbers would not do, since an import renumbers them.
        """
        self.immunity = Immunity()
        """Groups that lost pods to others, while spec, nodes, queues and configuration stay the same."""
        self.rounds: dict[str, int] = {}
        """When plugins that act in rounds had their last one (``Plan.rounds``), ns since the epoch."""
        self.late: dict[str, ev.PluginLate] = {}
        """Plugins and actions that took too long under this configuration, by name, with the latest event."""
        self.faults: dict[str, ev.InstallationFault] = {}
        """Active faults of the installation, by key."""
        self.held_namespaces: dict[str, int] = {}
        """Namespaces in which another scheduler binds vcd's pods, with the end of the hold (ns since the epoch).

        Until then no session decides on their pending pods. The first session after that removes the entry.
        """
        self.turns: dict[str, TurnsTaken] = {}
        """Namespaces with more kinds of pending pods than one session tries, and where the last session stopped."""
        self.as_intended = False
        """Whether the last event only confirmed a session's intent (a bind or a status): it requires no session."""
        self._decided_at = 0
        self._lists_admissions = True
        self._intent_of_call: dict[tuple[int, int, int], str] = {}

    # --- queries ------------------------------------------------------------------------------------------------------

    def digest(self, kind: str, key: str) -> int | None:
        """Return the digest of an object's last payload, or None if it does not exist or could not be decoded."""
        return self.digests.get(kind, {}).get(key) or None

    @property
    def size(self) -> int:
        """The number of objects in the log, valid or not."""
        return sum(map(len, self.digests.values()))

    def keys(self, kind: str) -> list[str]:
        """Return the keys of all objects of a kind in the log, valid or not."""
        return list(self.digests.get(kind, {}))

    def pod(self, key: str) -> Pod | None:
        """Return a pod as last observed."""
        row = self.tasks.row_of.get(key)
        pod = None if row is None else self.pods[row]
        return None if row is None or pod is None else on_node(pod, self.shown_nodes[row])

    def is_work(self, kind: str, key: str) -> bool:
        """Return whether a new object calls for a session soon: a pending pod for vcd without a node, or a group that
        has not begun. Of a namespace whose turns go on it does not, because the next session follows anyway."""
        if self.turns and key.partition("/")[0] in self.turns:
            return False
        if kind == "PodGroup":
            return key in self.groups and self.groups[key].phase in (Phase.PENDING, Phase.INQUEUE)
        row, names = self.tasks.row_of.get(key) if kind == "Pod" else None, self.settings.scheduler_names
        if row is None or self.tasks.at(row, "status") != TaskStatus.PENDING:
            return False
        return not names or self.schedulers[self.tasks.at(row, "scheduler")] in names

    # --- folding --------------------------------------------------------------------------------------------------

    def apply(self, sequence: int, event: ev.Event) -> None:
        """Fold one event. Events come in order. An invalid object is recorded in ``bad`` and never raises."""
        self.as_intended = False
        match event:
            case ev.ObjectPut():
                self._put(event.kind, event.key, event.payload)
            case ev.ObjectGone():
                self._gone(event.kind, event.key)
            case ev.ObjectBad():
                self.digests.setdefault(event.kind, {})[event.key] = 0
                self._set_aside(event.kind, event.key, event.message)
            case ev.KindListed():
                self.listed[event.kind] = event.resource_version
            case ev.PolicyLoaded():
                if self.policy is None or self.policy.digest != event.digest:
                    self.immunity.clear()
                    self.late.clear()
                self.policy = event
                self.settings = Settings.from_text(event.settings)
                self._list_admissions()
                self.facts_version += 1  # settings include the node selector
            case ev.LeadershipChanged():
                self.epoch, self.leading = event.epoch, event.leading
            case ev.ClockJumped():
                pass  # for readers of the log only: the state uses the times of decisions
            case ev.Answered():
                self.answers[event.question] = event.answer
            case ev.PluginLate():
                self.late[event.name] = event
            case ev.ForeignBound():
                if event.until:
                    self.held_namespaces[event.key.partition("/")[0]] = event.until
            case ev.InstallationFault():
                self.faults.pop(event.key, None)
                if event.message:
                    self.faults[event.key] = event
            case ev.SessionDecided():
                for _ in self._intend(event):
                    pass
            case ev.OperationDone():
                self._outcome(event)
        if self.turns and self._is_news(event):
            self.turns = after_news(self.turns)
        self.sequence = sequence

    def _is_news(self, event: ev.Event) -> bool:
        """Whether a folded event may change decisions and was not foreseen by a session."""
        match event:
            case ev.ObjectPut():
                return event.payload is not None and not self.as_intended
            case ev.OperationDone():
                return event.result != "done"
        return not isinstance(event, ev.SessionDecided)

    def session_in_steps(self, sequence: int, event: ev.SessionDecided) -> Iterator[None]:
        """Fold a session as ``apply`` does, pausing wherever it yields; the state is consistent once it has ended."""
        yield from self._intend(event)
        self.sequence = sequence

    def _put(self, kind: str, key: str, payload: bytes | None) -> None:
        if payload is None:
            return
        self.digests.setdefault(kind, {})[key] = payload_digest(payload)
        self.bad.pop((kind, key), None)
        self._put_object(kind, key, payload)

    def _put_object(self, kind: str, key: str, payload: bytes) -> None:
        try:
            obj = decode_payload(kind, payload)
            match obj:
                case Pod():
                    self._put_pod(key, obj)
                case Node():
                    node = NodeRecord.of(obj)
                    if key not in self.nodes or node.offers_other_than(self.nodes[key]):
                        self.immunity.clear()
                    self.nodes[key] = node
                    self.facts_version += 1
                case PodGroup():
                    group = self._with_intended_status(key, GroupRecord.of(obj))
                    self.as_intended = key in self.groups and self.groups[key].group == group.group
                    before = self.groups.get(key)
                    if before is None or before.group.spec != obj.spec:
                        self.immunity.forget_group(key)
                        self.immunity.record_arrival(key)
                        self.released.pop(key, None)
                    self._set_group(key, group)
                    self.former.pop(key, None)
                case Queue():
                    queue = QueueRecord.of(obj)
                    self.as_intended = key in self.queues and self.queues[key].queue == queue.queue
                    if key not in self.queues or self.queues[key].is_other_than(obj):
                        self.immunity.clear()
                    self.queues[key] = queue
                    self.changed_queues.note(key)
                case _:
                    self.others.setdefault(kind, {})[key] = obj
                    self.others_version[kind] = self.others_version.get(kind, 0) + 1
        except BadObject as error:
            self._set_aside(kind, key, str(error))

    def _set_aside(self, kind: str, key: str, message: str) -> None:
        self._drop(kind, key)
        self.bad[kind, key] = message

    def _gone(self, kind: str, key: str) -> None:
        self.digests.get(kind, {}).pop(key, None)
        self.bad.pop((kind, key), None)
        self._drop(kind, key)

    def offered(self) -> frozenset[str]:
        """Return the names of the resources that nodes offer or queues limit, plus the ones that always count."""
        nodes = [node.allocatable for node in self.nodes.values()]
        stated = [(queue.capability, queue.deserved, queue.guarantee) for queue in self.queues.values()]
        return frozenset(_ALWAYS).union(*nodes, *chain.from_iterable(stated))

    def _drop(self, kind: str, key: str) -> None:
        if kind == "Pod":
            self._drop_pod(key)
        elif kind == "Node":
            if self.nodes.pop(key, None) is not None:
                self.facts_version += 1
                self.immunity.clear()
        elif kind == "PodGroup":
            record = self.groups.pop(key, None)
            if record is not None:
                self.changed_groups.note(key)
                if key in self.job_keys:
                    self.former[key] = record.group.spec.queue
            self.intended_status.pop(key, None)
            self._set_waiting(key, ())
            self.stranded.pop(key, None)
            self.released.pop(key, None)
            self.admissions.pop(key, None)
            self.immunity.forget_group(key)
        elif kind == "Queue":
            if self.queues.pop(key, None) is not None:
                self.changed_queues.note(key)
                self.immunity.clear()
        elif self.others.get(kind, {}).pop(key, None) is not None:
            self.others_version[kind] = self.others_version.get(kind, 0) + 1

    def _set_group(self, key: str, record: GroupRecord) -> None:
        self.groups[key] = record
        self._note_admission(key)
        self.changed_groups.note(key)

    def _note_admission(self, key: str) -> None:
        """Record a group while it is admitted and has fewer pods than its minimum."""
        is_listed = bool(self.settings.admission_timeout) and is_incomplete(
            self.groups.get(key), self.job_keys.uses(key)
        )
        if is_listed:
            self.admissions.setdefault(key, IncompleteAdmission(self._decided_at))
        elif self.admissions.pop(key, None) is not None:
            self.changed_groups.note(key)

    def _list_admissions(self) -> None:
        """Check all groups after the setting for admissions was turned on or off."""
        if bool(self.settings.admission_timeout) != self._lists_admissions:
            self._lists_admissions = bool(self.settings.admission_timeout)
            for key in sorted(self.groups):
                self._note_admission(key)

    def _set_waiting(self, group: str, reasons: tuple[ev.Waiting, ...]) -> None:
        if reasons:
            self.waiting[group] = reasons
        elif self.waiting.pop(group, None) is None:
            return
        self.changed_waiting.note(group)

    # --- pods -----------------------------------------------------------------------------------------------------

    def _put_pod(self, key: str, pod: Pod) -> None:
        row = self.tasks.row_of.get(key)
        spec = msgspec.structs.replace(pod.spec, node_name="")
        if row is not None and self._is_unchanged(row, pod, spec):
            stored, intent = cast(Pod, self.pods[row]), self.intents.get(key)
            self._set_observed_pod(
                key, row, pod, msgspec.structs.replace(pod, metadata=stored.metadata, spec=stored.spec)
            )
            if intent is not None and intent.verb == "bind" and self.tasks.at(row, "status") == TaskStatus.BOUND:
                self.as_intended = intent.node == pod.spec.node_name
        else:
            self._put_other_pod(key, pod, spec)

    def _is_unchanged(self, row: int, pod: Pod, spec: PodSpec) -> bool:
        """Whether a pod is the same as before in all columns except status and node."""
        if cast(Pod, self.pods[row]).metadata != pod.metadata or may_be_resized(pod):
            return False
        return self.shapes.is_known_as(self.tasks.at(row, "shape"), spec_key(spec))

    def _put_other_pod(self, key: str, pod: Pod, spec: PodSpec) -> None:
        field = "metadata.creationTimestamp"
        try:
            created = seconds_of(pod.metadata.creation_timestamp)
            field = "resources"
            counted = counted_spec(pod)
            shape = self._shape(spec, None if counted is pod.spec else counted)
        except ValueError as error:
            bad = BadObject("Pod", key, f"{field}: {error}")
            cut = countable(pod)
            if not pod.spec.node_name or cut == pod:
                raise bad from error
            self._put_pod(key, cut)  # the pod runs, so its capacity is in use although its request is invalid
            self.bad["Pod", key] = str(bad)
            return
        meta = pod.metadata
        job_key = pod.group_key
        # acquire before the row's own number is released: a deleted group's number lasts while a pod names the group
        job = self.job_keys.acquire(job_key, lambda: job_key) if job_key else NO_ROW
        if job_key and job_key not in self.groups:
            self.former.setdefault(job_key, None)
        tasks = self.tasks
        row = tasks.row_of.get(key)
        if row is None:
            row, node, is_new = tasks.add(key), NO_ROW, True
            if row == len(self.pods):
                self.pods.append(None)
                self.shown_nodes.append("")
        else:
            node = tasks.at(row, "node")
            is_new = self._uid_at(row) != meta.uid
            if is_new:
                self._forget_plans(key, row)
            elif key in self.intents and _membership(cast(Pod, self.pods[row])) != _membership(pod):
                self._strand_unbound(self.intents[key], row)
            if shape != tasks.at(row, "shape"):
                self.backoffs.pop(key, None)
            self._release(row)
        if is_new:
            (self.immunity.record_arrival if job_key in self.groups else self.immunity.record_end)(job_key)
        labels = self.label_sets.acquire(frozenset(meta.labels.items()), lambda: meta.labels)
        namespace = self.namespaces.acquire(meta.namespace, lambda: meta.namespace)
        name = spec.scheduler_name
        tasks.put(
            row,
            shape=shape,
            labels=labels,
            namespace=namespace,
            scheduler=self.schedulers.acquire(name, lambda: name),
            job=job,
            node=node,
            created=created,
            priority=task_priority(pod),
        )
        if job_key in self.admissions:
            self._note_admission(job_key)
        # shared values are stored once
        meta = msgspec.structs.replace(meta, labels=self.label_sets[labels], namespace=self.namespaces[namespace])
        self._set_observed_pod(key, row, pod, msgspec.structs.replace(pod, metadata=meta, spec=self.shapes[shape].spec))

    def _set_observed_pod(self, key: str, row: int, pod: Pod, stored: Pod) -> None:
        """Record the observed pod. ``stored`` is the stored part of it, without its node."""
        self.pods[row] = stored
        self.shown_nodes[row] = pod.spec.node_name
        self._place(key, row)
        node = self.tasks.at(row, "node")
        if node >= 0 and self.node_names[node] == pod.spec.node_name:
            self.shown_nodes[row] = self.node_names[node]

    def _shape(self, spec: PodSpec, counted: PodSpec | None) -> int:
        """Return the number of a shape; quantities are taken from ``counted`` if it is given."""
        make = partial(Shape.of, spec, counted)
        key = spec_key(spec)
        if counted is None:
            return self.shapes.acquire(key, make)
        amounts = (counted.containers, counted.init_containers, counted.resources)
        return self.shapes.acquire((key, _amounts_key(amounts)), make)

    def _put_table(self, table: PodTable) -> None:
        """Load a checkpoint's pods into an empty state, with the same result as putting each by itself."""
        keys = table.keys()
        self.digests.setdefault("Pod", {}).update(zip(keys, table.digests, strict=True))
        try:
            taken = load_pods(self, table)
        except (QuantityError, ValueError):  # written by a version that accepts what this one does not
            for key, payload in zip(keys, table.payloads(), strict=True):
                self._put_object("Pod", key, payload)
            return
        self.pods, self.shown_nodes = Pages(taken.pods), taken.nodes
        self.tasks.begin(keys, taken.columns)
        self.former.update((key, None) for key in self.job_keys.values if key and key not in self.groups)
        for row, (key, pod) in enumerate(zip(keys, taken.pods, strict=True)):
            if key in self.intents or pod.status.nominated_node_name:
                self._place(key, row)

    def _put_groups(self, table: GroupTable) -> None:
        """Load a checkpoint's PodGroups into an empty state, with the same result as putting each by itself."""
        groups = {group.key: group for group in table.groups()}
        self.digests.setdefault("PodGroup", {}).update(zip(groups, table.digests, strict=True))
        try:
            records = {key: GroupRecord.of(group) for key, group in groups.items()}
        except BadObject:  # written by a version that accepts what this one does not
            for key, group in groups.items():
                self._put_object("PodGroup", key, encode_payload(group))
            return
        self.groups.update(records)
        self.changed_groups.note_many(len(records))
        for key in records:
            self.former.pop(key, None)

    def _place(self, key: str, row: int) -> None:
        """Set status and node of a row: what was observed, overlaid by an intent that is not observed yet."""
        pod = cast(Pod, self.pods[row])
        self.changed_rows.note(row)
        node_name = self.shown_nodes[row]
        status = task_status(pod, node_name)
        intent = self.intents.get(key)
        if intent is not None:
            if self._is_observed(intent, status, pod.spec):
                if not node_name:
                    self._strand_unbound(intent, row)
                self._forget_intent(key)
            elif intent.verb == "bind":
                node_name, status = intent.node, TaskStatus.BINDING
            elif intent.verb == "evict":
                status = TaskStatus.RELEASING
        if status in ENDED and self.tasks.at(row, "status") not in ENDED:
            self._group_input(row)
        self.tasks.put(row, status=status, node=self._node_instead_of(self.tasks.at(row, "node"), node_name))
        self._nominate(key, pod.status.nominated_node_name if status is TaskStatus.PENDING else "")
        if node_name:
            self.nominated.pop(key, None)
            self.nomination_turns.pop(key, None)
            if key in self.backoffs and key not in self.intents:
                self._end_backoff(key, status)

    def _end_backoff(self, key: str, status: TaskStatus) -> None:
        """End a back-off after the pod was placed. A back-off from evictions lasts until the pod terminates."""
        if self.backoffs[key].verb != "evict" or status not in (TaskStatus.BOUND, TaskStatus.RUNNING):
            del self.backoffs[key]

    def _node_instead_of(self, old: int, name: str) -> int:
        """Return the number of a pod's current node (-1: none), and release the ``old`` number if it differs."""
        names = self.node_names
        if old >= 0 and names.is_known_as(old, name):
            return old
        new = names.acquire(name, lambda: name) if name else NO_ROW
        if old >= 0:
            names.release(old)
        return new

    def _nominate(self, key: str, node: str) -> None:
        """Record an observed nomination. A change of it is newer than what was decided before."""
        if node == self.observed_nominations.get(key, ""):
            return
        self.nominated.pop(key, None)
        if node:
            self.observed_nominations[key] = node
        else:
            del self.observed_nominations[key]
            self.nomination_turns.pop(key, None)

    def nominations(self) -> dict[str, tuple[str, int]]:
        """Return nominated pods with their node and the turn of the nomination; 0 if it was only observed."""
        found: dict[str, tuple[str, int]] = {}
        for key, node in {**self.observed_nominations, **self.nominated}.items():
            where, turn = self.nomination_turns.get(key, ("", 0))
            if where != node:
                turn = 0
            if turn != _VOID:
                found[key] = (node, turn)
        return found

    @staticmethod
    def _is_observed(intent: Intent, status: TaskStatus, spec: PodSpec) -> bool:
        if intent.verb == "ungate":
            return status is not TaskStatus.PENDING or not has_queue_gate(spec)
        if intent.verb == "bind":
            return status is not TaskStatus.PENDING
        return status in (TaskStatus.RELEASING, TaskStatus.SUCCEEDED, TaskStatus.FAILED)

    def _release(self, row: int) -> None:
        tasks = self.tasks
        self.shapes.release(tasks.at(row, "shape"))
        self.label_sets.release(tasks.at(row, "labels"))
        self.namespaces.release(tasks.at(row, "namespace"))
        self.schedulers.release(tasks.at(row, "scheduler"))
        job = tasks.at(row, "job")
        if job >= 0:
            key = self.job_keys[job]
            self.job_keys.release(job)
            if key not in self.job_keys:
                self.former.pop(key, None)
            self._note_admission(key)

    def _drop_pod(self, key: str) -> None:
        if key not in self.tasks.row_of:
            return
        row = self.tasks.row_of[key]
        self._forget_plans(key, row)
        self._group_input(row)
        self._release(row)
        node = self.tasks.at(row, "node")
        if node >= 0:
            self.node_names.release(node)
        self.tasks.put(row, node=NO_ROW, job=NO_ROW, status=TaskStatus.UNKNOWN)
        self.pods[row], self.shown_nodes[row] = None, ""
        self.changed_rows.note(row)
        self.tasks.remove(key)
        self.observed_nominations.pop(key, None)

    def _forget_plans(self, key: str, row: int) -> None:
        """Forget plans for a pod that was deleted or replaced, while its row is still its own."""
        if key in self.intents:
            self._strand_unbound(self.intents[key], row)
        self._forget_intent(key)
        self.backoffs.pop(key, None)
        self.nominated.pop(key, None)
        self.nomination_turns.pop(key, None)

    # --- decisions ------------------------------------------------------------------------------------------------

    def _intend(self, decided: ev.SessionDecided) -> Iterator[None]:
        self.session = decided.session
        if self._decided_at - decided.now > _SET_BACK:
            self._move_times(decided.now)
        self._decided_at = decided.now
        for namespace in [name for name, until in self.held_namespaces.items() if until <= decided.now]:
            del self.held_namespaces[namespace]
        plan = ev.decode_plan(decided.plan)
        self.rounds.update(dict.fromkeys(plan.rounds, decided.now))
        if self.turns or plan.turns:
            is_news = bool(decided.stale) or decided.head != self.sequence
            self.turns = after_session(self.turns, plan, is_news=is_news)
        self._end_admissions(plan.lapsed)
        if not self.settings.shadow:  # a shadow executes nothing: its next session sees the cluster as it is
            yield from self._take_over(decided, plan)
        yield from self._wait(plan.waiting)

    def _move_times(self, now: int) -> None:
        """Move the times of holds after the clock was set back, so that none lasts longer than it states (law 8).

        Times that the old clock cannot have given stay: they are from after the change.
        """
        last, by = self._decided_at, self._decided_at - now

        def end(until: int) -> int:
            return until - by if until > last else until

        def start(since: int) -> int:
            return since - by if since > now else since

        for backoffs in (self.backoffs, self.released):
            backoffs.update({key: replace(one, until=end(one.until)) for key, one in backoffs.items()})
        self.late.update({name: replace(one, until=end(one.until)) for name, one in self.late.items()})
        self.held_namespaces.update({name: end(until) for name, until in self.held_namespaces.items()})
        self.admissions.update({key: replace(one, since=start(one.since)) for key, one in self.admissions.items()})
        for starts in (self.stranded, self.rounds):
            starts.update({key: start(since) for key, since in starts.items()})

    def _end_admissions(self, lapsed: Iterable[str]) -> None:
        """End reservations, and set the start of admissions older than the first session."""
        for key in [key for key, admission in self.admissions.items() if not admission.since]:
            self.admissions[key] = IncompleteAdmission(self._decided_at)
        for key in lapsed:
            if key in self.admissions:
                self.admissions[key] = IncompleteAdmission(self.admissions[key].since, ended=True)
                self.changed_groups.note(key)

    def _take_over(self, decided: ev.SessionDecided, plan: ev.Plan) -> Iterator[None]:
        """Fold what was decided as if it were done."""
        forgotten = self._forget_completed()
        if self.immunity.evicted:
            self.immunity.settle(GroupProgress(self.tasks, self.job_keys))
        stale = dict(decided.stale)
        for number, statement in enumerate(plan.statements):
            if number in stale:
                continue
            for position, operation in enumerate(statement.operations):
                yield
                if operation.verb == "pipeline":
                    continue
                is_there = self._intend_operation(decided.session, number, position, operation)
                if operation.verb == "bind" and not is_there:  # deleted during the decision
                    self._strand_group(statement.group)
        self._strand_again(forgotten)
        self._back_off_released(each for number, each in enumerate(plan.statements) if number not in stale)
        self._nominate_pipelined(plan.statements, stale)
        self._remember_evictions(
            statement
            for number, statement in enumerate(plan.statements)
            if number not in stale and statement.action not in REPEATING_ACTIONS
        )
        for status in plan.groups:
            yield
            record = self.groups.get(status.key)
            if record is not None:
                self.intended_status[status.key] = status
                self._set_group(status.key, _with_status(record, status))

    def _nominate_pipelined(self, statements: Sequence[ev.Statement], stale: Mapping[int, str]) -> None:
        """Record the pods that others are evicted for, with their node.

        An older nomination to a node ends when the session gives that node's capacity to a pod that others are evicted
        for, or to one of higher priority, and has nothing for the older one's group. A gang then loses all of its
        nominations.
        """
        nominated = {
            operation.key: operation.node
            for number, statement in enumerate(statements)
            if number not in stale and any(operation.verb == "evict" for operation in statement.operations)
            for operation in statement.operations
            if operation.verb == "pipeline" and operation.key in self.tasks.row_of
        }
        older = self.nominations()
        if not (nominated or older):
            return
        served, taken = self._served(statements, stale)
        priorities, jobs = self.tasks.column("priority"), self.tasks.column("job")
        turn = 1 + max([0, *(turn for _, turn in self.nomination_turns.values())])
        nodes, rows = set(nominated.values()), {key: self.tasks.row_of[key] for key in older}
        lost: dict[str, int] = {}
        for key, (node, _) in older.items():
            job, priority = int(jobs[rows[key]]), int(priorities[rows[key]])
            is_taken = node in nodes or taken.get(node, priority) > priority
            if is_taken and (job < 0 or self.job_keys[job] not in served):
                lost[key] = job
        gangs = {job for job in lost.values() if self._is_gang(job)}
        for key, (node, _) in older.items():
            if key in lost or int(jobs[rows[key]]) in gangs:
                self.nomination_turns[key] = (node, _VOID)
        self.nominated.update(nominated)
        self.nomination_turns.update({key: (node, turn) for key, node in nominated.items()})

    def _is_gang(self, job: int) -> bool:
        """Whether the pods of a group start together or not at all."""
        record = self.groups.get(self.job_keys[job]) if job >= 0 else None
        return record is not None and record.group.spec.min_member > 1

    def _served(
        self, statements: Sequence[ev.Statement], stale: Mapping[int, str]
    ) -> tuple[Collection[str], dict[str, int]]:
        """Return the groups that a session placed pods of, and by node the highest priority that got its capacity."""
        served: set[str] = set()
        taken: dict[str, int] = {}
        priorities, rows = self.tasks.column("priority"), self.tasks.row_of
        for number, statement in enumerate(statements):
            for operation in statement.operations:
                if operation.verb in ("bind", "pipeline"):
                    served.add(statement.group)
                    if number not in stale and operation.key in rows:
                        priority = int(priorities[rows[operation.key]])
                        taken[operation.node] = max(priority, taken.get(operation.node, priority))
        return served, taken

    def _remember_evictions(self, statements: Iterable[ev.Statement]) -> None:
        """Record the pods that each group loses to the groups of ``statements``."""
        jobs = self.tasks.column("job")
        lost: dict[tuple[str, int], list[str]] = {}
        for statement in statements:
            for operation in statement.operations:
                row = self.tasks.row_of.get(operation.key) if operation.verb == "evict" else None
                if row is not None and jobs[row] != NO_ROW:
                    lost.setdefault((statement.group, int(jobs[row])), []).append(self._uid_at(row))
        victims = {job for _, job in lost if self.job_keys[job] in self.groups}
        if not victims:
            return
        rows = np.flatnonzero(np.isin(jobs, sorted(victims)))
        members: dict[int, list[str]] = {}
        for row, job in zip(rows.tolist(), jobs[rows].tolist(), strict=True):
            members.setdefault(job, []).append(self._uid_at(row))
        for (owner, job), uids in lost.items():
            if job in victims:
                self.immunity.remember(owner, self.job_keys[job], uids, members[job])

    def _uid_at(self, row: int) -> str:
        return cast(Pod, self.pods[row]).metadata.uid

    def _group_input(self, row: int) -> None:
        """Record that the pod of a row is new, ended or was deleted."""
        job = self.tasks.at(row, "job")
        self.immunity.record_end(self.job_keys[job] if job >= 0 else "")

    def _wait(self, changes: Iterable[ev.Waiting]) -> Iterator[None]:
        for group, reasons in ev.waits_by_group(changes).items():
            yield
            if group in self.groups:  # it may have been deleted during the decision
                self._set_waiting(group, reasons)

    def _intend_operation(self, session: int, statement: int, position: int, operation: ev.Operation) -> bool:
        """Fold an operation as done; return False if its pod does not exist."""
        row = self.tasks.row_of.get(operation.key)
        pod = None if row is None else self.pods[row]
        if row is None or pod is None or pod.metadata.uid != operation.uid:
            return False
        fields = (operation.verb, operation.uid, operation.node, operation.volumes, operation.annotations)
        self._remember_intent(operation.key, Intent(session, statement, position, *fields))
        self._place(operation.key, row)
        return True

    def _outcome(self, done: ev.OperationDone) -> None:
        if done.result in ("done", "unknown"):
            return
        key = self._intent_of_call.get((done.session, done.statement, done.operation))
        if key is None:
            return
        intent, row = self.intents[key], self.tasks.row_of.get(key)
        if row is None:  # another version stored the pod, which is invalid for this one
            self._forget_intent(key)
            return
        preemptor = node = ""
        if intent.verb == "bind":
            self._strand(row)
            node = intent.node if done.is_refusal else ""
        elif intent.verb == "evict":
            job = self.tasks.at(row, "job")
            preemptor = self.immunity.withdraw(self.job_keys[job] if job >= 0 else "", self._uid_at(row))
        self._forget_intent(key)
        self._place(key, row)
        if done.refused_at:
            before = self.backoffs.get(key)
            self.backoffs[key] = after_refusal(
                before, intent.uid, intent.verb, done.refused_at, done.detail, preemptor, node
            )

    def _strand(self, row: int) -> None:
        job = self.tasks.at(row, "job")
        if job >= 0:
            self._strand_group(self.job_keys[job])

    def _strand_group(self, key: str) -> None:
        """Record that a gang was admitted only in part; removed later if it has its minimum all the same."""
        if key in self.groups:
            self.stranded.setdefault(key, self._decided_at)

    def _strand_unbound(self, intent: Intent, row: int) -> None:
        """Strand the group of a pod that was deleted or left it before its bind: others of its gang may be bound."""
        if intent.verb == "bind":
            self._strand(row)

    def _forget_completed(self) -> list[str]:
        """Remove gangs from ``stranded`` that are complete or have no pods left; return their keys."""
        forgotten = []
        if self.stranded or self.released:
            completion = Completion(self.tasks, self.pods, self.job_keys)
            forgotten = completion.settled(self.stranded, self.groups)
            for key in forgotten:
                del self.stranded[key]
            for key in completion.completed(self.released, self.groups):
                del self.released[key]
                self.changed_groups.note(key)
        return forgotten

    def _back_off_released(self, statements: Iterable[ev.Statement]) -> None:
        """Start the back-off of gangs released by a session, so that they are not bound in part repeatedly."""
        for key in {each.group: None for each in statements if each.action == RELEASE}:
            before = self.released.get(key)
            # an eviction that is retried belongs to the same release
            if key in self.groups and (before is None or before.until <= self._decided_at):
                uid = self.groups[key].group.metadata.uid
                self.released[key] = after_release(before, uid, self._decided_at)
                self.changed_groups.note(key)

    def _strand_again(self, forgotten: list[str]) -> None:
        """Strand gangs again that had no pods left and were bound in part by the session.

        Their earlier pods were deleted during the decision.
        """
        if forgotten:
            completion = Completion(self.tasks, self.pods, self.job_keys, believed=True)
            settled = set(completion.settled(forgotten, self.groups))
            for key in forgotten:
                if key not in settled:
                    self._strand_group(key)

    def _remember_intent(self, key: str, intent: Intent) -> None:
        self._forget_intent(key)
        self.intents[key] = intent
        if intent.volumes:
            self.intended_volumes[key] = intent.volumes
        if intent.annotations:
            self.intended_annotations[key] = dict(intent.annotations)
        if intent.verb == "ungate":
            self.lifting[key] = intent.uid
        self._intent_of_call[intent.session, intent.statement, intent.operation] = key

    def _forget_intent(self, key: str) -> None:
        intent = self.intents.pop(key, None)
        self.intended_volumes.pop(key, None)
        self.intended_annotations.pop(key, None)
        self.lifting.pop(key, None)
        if intent is not None:
            del self._intent_of_call[intent.session, intent.statement, intent.operation]

    def _with_intended_status(self, key: str, record: GroupRecord) -> GroupRecord:
        """Return the record with the decided status, until a phase other than the old and the new one is observed."""
        intended = self.intended_status.get(key)
        if intended is None:
            return record
        before = self.groups.get(key)
        phase = record.group.status.phase
        if before is None or phase == intended.phase or phase_of(phase) is not phase_of(intended.was):
            del self.intended_status[key]
            return record
        return _with_status(record, intended)

    # --- checkpoints ----------------------------------------------------------------------------------------------

    def dump(self) -> bytes:
        """Return the whole state as canonical bytes: equal states have equal dumps, however they came about."""
        return self.freeze().encode()

    def freeze(self) -> StateCopy:
        """Copy what ``dump`` encodes: cheap, so that the encoding can run while the state changes."""
        return StateCopy(
            {kind: dict(digests) for kind, digests in self.digests.items()},
            {
                "Node": {key: record.node for key, record in self.nodes.items()},
                "PodGroup": {key: record.group for key, record in self.groups.items()},
                "Queue": {key: record.queue for key, record in self.queues.items()},
                **{kind: dict(objects) for kind, objects in self.others.items()},
            },
            dict(self.tasks.row_of),
            list(self.pods),
            list(self.shown_nodes),
            Dump(
                sequence=self.sequence,
                **{name: copy(getattr(self, name)) for name in COPIED_FIELDS},
                bad=sorted((kind, key, message) for (kind, key), message in self.bad.items()),
                objects=[],
                intents={
                    key: (i.session, i.statement, i.operation, i.verb, i.uid, i.node) for key, i in self.intents.items()
                },
                decided_at=self._decided_at,
                former={key: queue for key, queue in self.former.items() if queue is not None},
                immunity=self.immunity.dump(),
                inputs=self.immunity.dump_inputs(),
                older=self.immunity.dump_older(),
                intended_volumes=dict(self.intended_volumes),
                intended_annotations=dict(self.intended_annotations),
            ),
        )

    @classmethod
    def load(cls, data: bytes) -> ClusterState:
        """Load a state from a dump. Raises msgspec.MsgspecError for other bytes."""
        return cls.of(decoded(data))

    @classmethod
    def of(cls, dump: Dump) -> ClusterState:
        """Build the state of a dump. This empties the dump's objects, so that nothing large exists twice."""
        state = cls()
        for key, fields in dump.intents.items():
            volumes, annotations = dump.intended_volumes.get(key, ()), dump.intended_annotations.get(key, {})
            state._remember_intent(key, Intent(*fields, volumes, annotations))
        state._put_table(dump.pods)
        state._put_groups(dump.groups)
        dump.pods, dump.groups = PodTable(), GroupTable()
        dump.objects.reverse()
        while dump.objects:
            kind, key, payload, digest = dump.objects.pop()
            if payload:
                state._put_object(kind, key, payload)
            state.digests.setdefault(kind, {})[key] = digest
        for kind, key, message in dump.bad:
            state.bad[kind, key] = message
        for name in COPIED_FIELDS:
            setattr(state, name, getattr(dump, name))
        state._decided_at = dump.decided_at
        state._lists_admissions = False  # checkpoints of version 0.1.0 have no admissions
        state.former.update(dump.former)
        state.immunity = Immunity.load(dump.immunity, dump.inputs, dump.older)
        if state.policy is not None:
            state.apply(dump.sequence, state.policy)  # the same policy as before, so nothing is invalidated
        state._list_admissions()
        state.turns = dump.turns  # after the policy, which counts as a change and would end turns
        state.sequence = dump.sequence
        return state


def _membership(pod: Pod) -> tuple[str, str, Mapping[str, str]]:
    """Return what makes a pod count for a gang's minima: its group, its role, and the labels that sub-groups match."""
    return pod.group_key, task_role(pod), pod.metadata.labels


def _with_status(record: GroupRecord, intended: ev.GroupStatus) -> GroupRecord:
    conditions = record.group.status.conditions
    if intended.condition is not None:
        kind, state, reason, message = intended.condition
        others = tuple(condition for condition in conditions if condition.type != kind)
        conditions = (*others, Condition(kind, state, reason, message))
    status = PodGroupStatus(intended.phase, conditions, intended.running, intended.succeeded, intended.failed)
    group = msgspec.structs.replace(record.group, status=status)
    return msgspec.structs.replace(record, group=group, phase=phase_of(status.phase))
