"""The history of a job or a pod, as episodes in the order of time.

The waits are those of the wait timeline (`add_waits`); everything else is read from the events of the log.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Literal, cast

import msgspec

from vcd.diagnosis.waittimeline import WaitSpan, WholeWait
from vcd.eventlog import Logged
from vcd.model import events as ev
from vcd.model.objects import Pod, PodGroup
from vcd.model.projection_codec import BadObject, decode_payload
from vcd.scheduling.framework.declared_reasons import Told, all_told
from vcd.state.cluster_state import ClusterState
from vcd.state.records import Settings
from vcd.text.episode_templates import group_text
from vcd.timetravel.why.placement import Placement

What = Literal[
    "created",
    "edited",
    "waited",
    "admitted",
    "phase",
    "bound",
    "held",
    "evicted",
    "ungated",
    "dropped",
    "outcome",
    "placed",
    "found",
    "running",
    "succeeded",
    "failed",
    "leaving",
    "gone",
    "bad",
]


class Episode(msgspec.Struct, omit_defaults=True):
    """One event or lasting condition, with the pods that it concerns.

    ``end`` is None for a moment, and for a wait that has not ended (``lasting``); ``older`` is a wait that began
    before the log. ``places`` gives pods their nodes; ``detail`` is a reason, a phase or a message, depending on
    ``what``; ``waiting`` are the last reasons of a wait, ``waiting_first`` the first ones if they changed; ``choices``
    why pods were placed on their nodes. ``text`` is a sentence, ``why`` one for each choice. ``shadow``: it was
    decided, and not done.
    """

    what: What
    start: datetime
    end: datetime | None = None
    lasting: bool = False
    older: bool = False
    session: int = 0
    action: str = ""
    group: str = ""
    verb: str = ""
    result: str = ""
    detail: str = ""
    pods: list[str] = []
    places: dict[str, str] = {}
    waiting: tuple[Told, ...] = ()
    waiting_first: tuple[Told, ...] = ()
    choices: tuple[Placement, ...] = ()
    text: str = ""
    why: list[str] = []
    shadow: bool = False


class JobEpisodes:
    """Receives the events of a log, in order, and collects the episodes of a group and its pods, or of one pod.

    ``only`` is the one pod of the story; None means the group and all its pods.
    """

    def __init__(self, group: str, only: str | None = None) -> None:
        self.group_key = group
        self.only = only
        self.group: PodGroup | None = None
        self.pods: dict[str, Pod] = {}
        self.phase = ""
        self.episodes: list[Episode] = []
        self.settings = Settings()
        self.time = 0
        """Time of the last event, in ns; 0 before the first."""
        self._intended: dict[str, str] = {}
        """The nodes that sessions decided for pods."""
        self._held: dict[str, str] = {}
        """The nodes on which resources are reserved for pods."""
        self.shadowed: dict[tuple[str, str], tuple[str, int]] = {}
        """A shadow's decisions about pods, by verb and pod: the node, and the session that chose it."""
        self.waits_for: tuple[Told, ...] = ()
        """Why it waits after the last event; empty if it does not."""
        self._without_node: list[tuple[int, int | None]] = []
        """In the story of one pod, the times (ns) in which it existed and had no node."""
        self._calls: dict[tuple[int, int, int], ev.Operation] = {}
        self._growing: dict[tuple[str, ...], Episode] = {}
        self._name_bytes = group.partition("/")[2].encode()
        self._namespace = group.partition("/")[0] + "/"

    def is_being_bound(self, key: str) -> bool:
        """Return whether a session decided a node for a pod that the API server does not report yet."""
        return key in self._intended and not self.pods[key].spec.node_name

    # --- beginning and end --------------------------------------------------------------------------------------------

    def catch_up(self, state: ClusterState, time: int) -> None:
        """Take over the state before the first event."""
        self.settings, record = state.settings, state.groups.get(self.group_key)
        if record is not None:
            self._see_group(record.group, time)
        else:
            self._note_deleted("PodGroup", self.group_key, time)
        prefix = self._namespace if self.only is None else self.only
        for key in sorted(key for key in state.tasks.row_of if key.startswith(prefix)):
            pod = state.pod(key)
            if pod is not None and self._belongs(key, pod):
                self._see_pod(key, pod, time)
        for key, intent in sorted(state.intents.items()):
            if key in self.pods:
                call = ev.Operation(cast(ev.Verb, intent.verb), key, intent.uid, intent.node)
                self._calls[intent.session, intent.statement, intent.operation] = call
                if intent.node:
                    self._intended[key] = intent.node
        self._follow_node(time)

    def finish(self, since: int = 0) -> list[Episode]:
        """Return the episodes that were not over before a time (ns), in the order of time."""
        episodes, begin = sorted(self.episodes, key=lambda episode: episode.start), _when(since)
        return [one for one in episodes if one.lasting or (one.end or one.start) >= begin]

    # --- events -------------------------------------------------------------------------------------------------------

    def see(self, logged: Logged) -> None:
        """Handle one event."""
        event, self.time = logged.event, logged.time
        time = self.time
        match event:
            case ev.ObjectPut() if event.payload is not None:
                self._put(event.kind, event.key, event.payload, time)
            case ev.ObjectGone():
                self._note_deleted(event.kind, event.key, time)
            case ev.ObjectBad() if self._is_known(event.kind, event.key):
                self._add("bad", time, detail=event.message, pods=[event.key] if event.kind == "Pod" else [])
            case ev.SessionDecided():
                self._session(event, time)
            case ev.OperationDone():
                self._outcome(event, time)
            case ev.PolicyLoaded():
                self.settings = Settings.from_text(event.settings)
        self._follow_node(time)

    def _is_known(self, kind: str, key: str) -> bool:
        return (kind == "PodGroup" and key == self.group_key) or (
            kind == "Pod" and (key == self.only or key in self.pods)
        )

    def _put(self, kind: str, key: str, payload: bytes, time: int) -> None:
        is_pod = kind == "Pod" and (
            self._is_known(kind, key)
            or (self.only is None and key.startswith(self._namespace) and self._name_bytes in payload)
        )
        if not is_pod and not (kind == "PodGroup" and key == self.group_key):
            return
        try:
            obj = decode_payload(kind, payload)
        except BadObject as error:
            self._add("bad", time, detail=str(error), pods=[key] if is_pod else [])
            return
        if isinstance(obj, PodGroup):
            self._see_group(obj, time)
        elif isinstance(obj, Pod) and self._belongs(key, obj):
            self._see_pod(key, obj, time)

    def _belongs(self, key: str, pod: Pod) -> bool:
        if self.only is not None:
            return key == self.only
        return pod.group_key == self.group_key

    def _note_deleted(self, kind: str, key: str, time: int) -> None:
        if kind == "PodGroup" and key == self.group_key and self.group is not None:
            self.group, self.phase = None, ""
            if self.only is None:
                self._add("gone", time)
        elif kind == "Pod" and self.pods.pop(key, None) is not None:
            self._intended.pop(key, None)
            self._held.pop(key, None)
            self.shadowed = {of: where for of, where in self.shadowed.items() if of[1] != key}
            self._add_pod("gone", time, key)

    # --- objects ------------------------------------------------------------------------------------------------------

    def _see_group(self, group: PodGroup, time: int) -> None:
        text = group_text(group)
        if self.only is None and self.group is None:
            self._add("created", created_at(group.metadata.creation_timestamp, time), detail=text)
        elif self.only is None and self.group is not None and text != group_text(self.group):
            self._add("edited", time, detail=text)
        self.group = group
        self._enter(group.status.phase or "Pending", time, 0)

    def _enter(self, phase: str, time: int, session: int) -> None:
        """Note the group's new phase, decided by a session or first reported by the API server."""
        before, self.phase = self.phase, phase
        if phase == before or (not before and phase == "Pending"):
            return
        if before == "Pending" and phase == "Inqueue" and (self.only is None or self.only in self.pods):
            self._add("admitted", time, session=session)
        elif self.only is None and before:
            self._add("phase", time, session=session, detail=phase)

    def _see_pod(self, key: str, pod: Pod, time: int) -> None:
        before = self.pods.get(key)
        if before is not None and before.metadata.uid != pod.metadata.uid:
            self._note_deleted("Pod", key, time)
            before = None
        if before is None:
            self._add_pod("created", created_at(pod.metadata.creation_timestamp, time), key)
        elif pod == before:
            return
        self.pods[key] = pod
        (phase, node, leaves), (old_phase, old_node, left) = _status_of(pod), _status_of(before)
        if before is None and node:
            self._add_pod("found", time, key, node=node, detail=phase)
            old_phase = phase
        elif node and not old_node and node != self._intended.get(key):
            self._add_pod("placed", time, key, node=node)
        if phase != old_phase and phase in _PHASES:
            detail = {"detail": pod.status.reason} if phase == "Failed" else {}
            self._add_pod(_PHASES[phase], time, key, node=node, **detail)
        if leaves and not left:
            self._add_pod("leaving", time, key)

    # --- sessions -----------------------------------------------------------------------------------------------------

    def _session(self, record: ev.SessionDecided, time: int) -> None:
        plan = ev.decode_plan(record.plan)
        stale = dict(record.stale)
        for status in plan.groups:
            if status.key == self.group_key:
                self._decide_phase(status.phase, time, record.session)
        for number, statement in enumerate(plan.statements):
            mine = [(i, one) for i, one in enumerate(statement.operations) if one.key in self.pods]
            for verb in ("bind", "pipeline", "evict", "ungate"):
                chosen = [(i, operation) for i, operation in mine if operation.verb == verb]
                if chosen:
                    self._statement(record, number, statement, chosen, stale.get(number), time)

    def _decide_phase(self, phase: str, time: int, session: int) -> None:
        """Note the group's phase that a session decided; of a shadow's decisions, only the first admission."""
        if not self.settings.shadow:
            self._enter(phase, time, session)
        elif phase == "Inqueue" and self.phase in ("", "Pending") and ("admit", "") not in self.shadowed:
            self.shadowed["admit", ""] = "", session
            self._add("admitted", time, session=session, shadow=True)

    def _add_shadow_decision(self, places: dict[str, str], what: What, time: int, **common: Any) -> None:
        """Note a shadow's decision about some pods if it differs from its previous one."""
        verb, session = common["verb"], common["session"]
        new = {key: node for key, node in places.items() if self.shadowed.get((verb, key), ("", 0))[0] != node}
        self.shadowed.update({(verb, key): (node, session) for key, node in new.items()})
        if new:
            self._add(what, time, places=new, shadow=True, **common)

    def _statement(
        self,
        record: ev.SessionDecided,
        number: int,
        statement: ev.Statement,
        chosen: list[tuple[int, ev.Operation]],
        stale: str | None,
        time: int,
    ) -> None:
        verb = chosen[0][1].verb
        places = {operation.key: operation.node for _, operation in chosen}
        common = {"session": record.session, "action": statement.action, "group": statement.group, "verb": verb}
        if stale is not None:
            if verb != "pipeline":
                self._add("dropped", time, places=places, detail=stale, **common)
            return
        reasons = "; ".join(dict.fromkeys(operation.reason for _, operation in chosen if operation.reason))
        if self.settings.shadow:
            self._add_shadow_decision(places, _DECIDED[verb], time, detail=reasons, **common)
            return
        if verb == "pipeline":
            places = {key: node for key, node in places.items() if self._held.get(key) != node}
            self._held.update(places)
            if places:
                self._add("held", time, places=places, **common)
            return
        for position, operation in chosen:
            self._calls[record.session, number, position] = operation
            if verb == "bind":
                self._intended[operation.key] = operation.node
        self._add(_DECIDED[verb], time, places=places, detail=reasons, **common)

    def _outcome(self, done: ev.OperationDone, time: int) -> None:
        call = self._calls.get((done.session, done.statement, done.operation))
        if call is None:
            return
        if done.result not in ("done", "unknown"):
            self._intended.pop(call.key, None)
        self._add_pod(
            "outcome", time, call.key, node=call.node, session=done.session, verb=call.verb, result=done.result,
            detail=done.detail,
        )  # fmt: skip

    # --- waits --------------------------------------------------------------------------------------------------------

    def add_waits(self, waits: Iterable[WholeWait]) -> None:
        """Add the waits of the group after the last event; in the story of one pod, those that concern it, while it
        had no node."""
        self.waits_for = ()
        for wait in waits:
            for span in wait.spans:
                is_last = wait.lasting and span is wait.spans[-1]
                for start, end in self._parts(span.start, None if is_last else span.end):
                    self._add_wait(span, start, end)

    def _add_wait(self, span: WaitSpan, start: int, end: int | None) -> None:
        latest, opening = all_told(span.reasons), all_told(span.opening)
        episode = self._add("waited", start, lasting=end is None, older=span.older and start == span.start)
        episode.waiting, episode.waiting_first = latest, opening if opening != latest else ()
        if end is None:
            self.waits_for = latest
        else:
            episode.end = _when(end)

    def _parts(self, start: int, end: int | None) -> Iterator[tuple[int, int | None]]:
        """Yield the parts of a time (ns; no end: it lasts) that belong to the story: of one pod, those without a
        node."""
        for since, until in [(start, end)] if self.only is None else self._without_node:
            begin, stop = max(start, since), min([one for one in (end, until) if one is not None], default=None)
            if stop is None or begin < stop or begin == stop == start == end:
                yield begin, stop

    def _follow_node(self, time: int) -> None:
        """Note since when, or until when, the one pod has no node."""
        pod, spans = None if self.only is None else self.pods.get(self.only), self._without_node
        waits, waited = pod is not None and not self._has_node(pod), bool(spans) and spans[-1][1] is None
        if waits and not waited:
            spans.append((time, None))
        elif waited and not waits:
            spans[-1] = (spans[-1][0], time)

    def _has_node(self, pod: Pod) -> bool:
        return bool(pod.spec.node_name) or self.only in self._intended

    # --- episodes -----------------------------------------------------------------------------------------------------

    def _add(self, what: What, time: int, **fields: Any) -> Episode:
        """Add an episode; growing ones are complete."""
        self._growing.clear()
        episode = Episode(what, _when(time), **fields)
        self.episodes.append(episode)
        return episode

    def _add_pod(self, what: What, time: int, pod: str, *, node: str = "", **fields: str | int) -> None:
        """Add an episode of a pod, or add the pod to the growing episode of the same kind."""
        key = (what, *(f"{name} {value}" for name, value in fields.items()))
        episode = self._growing.get(key)
        if episode is None:
            growing = dict(self._growing)
            episode = self._add(what, time, **fields)
            self._growing = {**growing, key: episode}
        else:
            episode.start, last = min(episode.start, _when(time)), max(episode.end or episode.start, _when(time))
            episode.end = last if last > episode.start else None
        episode.pods.append(pod)
        if node:
            episode.places[pod] = node


_PHASES: dict[str, What] = {"Running": "running", "Succeeded": "succeeded", "Failed": "failed"}
_DECIDED: dict[str, What] = {"bind": "bound", "evict": "evicted", "ungate": "ungated", "pipeline": "held"}


def _status_of(pod: Pod | None) -> tuple[str, str, bool]:
    """Return phase, node, and whether a pod is being deleted; for None, the values of a new pod."""
    if pod is None:
        return "Pending", "", False
    return pod.status.phase or "Pending", pod.spec.node_name, pod.metadata.deletion_timestamp is not None


def _when(nanoseconds: int) -> datetime:
    return datetime.fromtimestamp(nanoseconds // 1_000_000_000, UTC).replace(
        microsecond=nanoseconds % 1_000_000_000 // 1000
    )


def created_at(stamp: str | None, seen: int) -> int:
    """Return the creation timestamp in nanoseconds; ``seen`` if it is missing or unreadable."""
    if stamp and re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", stamp):
        return int(datetime.fromisoformat(stamp).timestamp()) * 1_000_000_000
    return seen
