"""Follow a shadow's log event by event: when vcd would have placed each pod, and when it was placed."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

from vcd.eventlog import Logged
from vcd.model import events as ev
from vcd.model.objects import Pod, PodGroup
from vcd.model.status import Phase, phase_of
from vcd.scheduling.framework.declared_reasons import cause_of
from vcd.state.cluster_state import ClusterState
from vcd.state.records import Settings
from vcd.text.reason_sentences import full_reason_text
from vcd.text.replay_templates import REPLAYS
from vcd.timetravel.history import object_in

NEVER = 1 << 62
"""The number of an event that did not occur."""
_TIMED = frozenset({"Pod", "PodGroup"})
"""The kinds whose time of observation matters."""
_CAPACITY = "leaving"
"""The cause of a wait for resources that vcd's evictions would have freed."""


@dataclass(slots=True, eq=False)
class ShadowedGroup:
    """A group: its queue; its reasons by the event that they hold since; whether it was observed before it was
    admitted, when it was admitted, and when a session first admitted it (ns; 0: not). ``late``: its first observed
    state, or its admission, may be much older than its event."""

    uid: str = ""
    queue: str = ""
    waits: list[tuple[int, tuple[ev.Waiting, ...]]] = field(default_factory=list)
    pending: bool = False
    admitted: int = 0
    given: int = 0
    late: bool = False


@dataclass(slots=True, eq=False)
class Track:
    """A pod that had no node when it was first observed, by event ``created``. ``late``: its creation or bind may be
    much older than its event.

    ``given`` is the first session that gave it a node, its time (ns) and the node; ``held`` the first that would have
    freed capacity for it, and where; ``withdrawn`` the first that gave it no node any more while it was not bound.
    ``bound`` is the event of its bind, ``left`` the first of its bind and its deletion, ``gone_at`` when it was
    deleted (ns; 0: not).
    """

    key: str
    uid: str
    group: ShadowedGroup | None
    created: int
    late: bool
    given: tuple[int, int, str] | None = None
    held: tuple[int, str] | None = None
    withdrawn: int = 0
    bound: int = NEVER
    left: int = NEVER
    bound_at: int = 0
    bound_to: str = ""
    gone_at: int = 0


class ShadowFold:
    """Folds a shadow's log, starting from a state."""

    def __init__(self, state: ClusterState) -> None:
        self.settings = state.settings
        self.begin = self.time = 0
        """Times of the first event and the last (ns)."""
        self.tracks: list[Track] = []
        self.groups: list[ShadowedGroup] = []
        self.evictions: dict[str, tuple[int, str, ev.Operation]] = {}
        """The first session that would have evicted a pod, the action and the operation, by UID."""
        self.gone: dict[str, int] = {}
        """When pods that vcd would have evicted were deleted (ns), by UID."""
        self.heads: list[tuple[int, int]] = []
        """The event that each session was decided from, and its number."""
        self._listing = set(_TIMED)
        """Kinds whose first list since the shadow began to watch is incomplete: events may describe old changes."""
        self._pods: dict[str, Track] = {}
        self._waiting: dict[str, Track] = {}
        """Pods that were given a node and still waited in the last session's snapshot, by UID."""
        self._groups: dict[str, ShadowedGroup] = {}
        self._victims: dict[str, str] = {}
        for key, record in state.groups.items():
            self._see_group(key, record.group)
        for key in sorted(state.tasks.row_of):
            if (pod := state.pod(key)) is not None:
                self._see_pod(key, pod, state.sequence)
        for key, reasons in state.waiting.items():
            self._group(key).waits.append((state.sequence, reasons))
        self._listing -= state.listed.keys()  # a log whose beginning was removed has no first list

    def see(self, logged: Logged) -> None:
        """Handle one event."""
        event, self.time = logged.event, logged.time
        self.begin = self.begin or logged.time
        match event:
            case ev.ObjectPut(kind="Pod" | "PodGroup"):
                obj = object_in(event)
                if isinstance(obj, Pod):
                    self._see_pod(event.key, obj, logged.sequence)
                elif isinstance(obj, PodGroup):
                    self._see_group(event.key, obj)
            case ev.ObjectGone(kind="Pod"):
                self._note_deleted_pod(event.key, logged.sequence)
            case ev.ObjectGone(kind="PodGroup"):
                self._group(event.key).waits.append((logged.sequence, ()))
            case ev.KindListed():
                self._listing.discard(event.kind)
            case ev.LeadershipChanged():  # at each start, a shadow logs that it does not lead
                self._listing = set(_TIMED)
            case ev.PolicyLoaded():
                self.settings = Settings.from_text(event.settings)
            case ev.SessionDecided():
                self._session(event)

    # --- objects ------------------------------------------------------------------------------------------------------

    def _group(self, key: str, uid: str = "") -> ShadowedGroup:
        """Return the group for a key; a new UID means a new group."""
        before = known = self._groups.get(key)
        if known is None or (uid and known.uid not in ("", uid)):
            known = self._groups[key] = ShadowedGroup(late="PodGroup" in self._listing)
            self.groups.append(known)
            if before is not None:
                self._move_tracks(before, known)
        known.uid = uid or known.uid
        return known

    def _move_tracks(self, before: ShadowedGroup, known: ShadowedGroup) -> None:
        """Move waiting pods to the new group of that name, also pods that were created before it."""
        for track in self._pods.values():
            if track.group is before and not track.bound_to:
                track.group = known

    def _see_group(self, key: str, group: PodGroup) -> None:
        known = self._group(key, group.metadata.uid)
        known.queue = self.settings.queue_of(group)
        if phase_of(group.status.phase) is Phase.PENDING:
            known.pending = True
        elif known.pending and not known.admitted:
            known.admitted = self.time
            known.late = known.late or "PodGroup" in self._listing

    def _see_pod(self, key: str, pod: Pod, sequence: int) -> None:
        track, uid, node = self._pods.get(key), pod.metadata.uid, pod.spec.node_name
        if self._victims.get(key, uid) != uid:
            self._note_deleted_victim(key)
        if track is not None and track.uid != uid:
            self._note_deleted_pod(key, sequence)
            track = None
        if track is None and not node:
            self._note_new_pod(key, pod, sequence)
        elif track is not None and not track.bound_to:
            if pod.group_key:  # a controller may have set the group only now
                track.group = self._group(pod.group_key)
            if node:
                self._bound(track, node, sequence)

    def _bound(self, track: Track, node: str, sequence: int) -> None:
        track.bound, track.bound_at, track.bound_to, track.left = sequence, self.time, node, sequence
        track.late = track.late or "Pod" in self._listing

    def _note_new_pod(self, key: str, pod: Pod, sequence: int) -> None:
        names = self.settings.scheduler_names
        if pod.status.phase in ("", "Pending") and (not names or pod.spec.scheduler_name in names):
            group = self._group(pod.group_key) if pod.group_key else None
            self._pods[key] = Track(key, pod.metadata.uid, group, sequence, "Pod" in self._listing)
            self.tracks.append(self._pods[key])

    def _note_deleted_pod(self, key: str, sequence: int) -> None:
        self._note_deleted_victim(key)
        track = self._pods.pop(key, None)
        if track is not None:
            track.gone_at, track.left = self.time, min(track.left, sequence)
            track.late = track.late or ("Pod" in self._listing and not track.bound_to)

    def _note_deleted_victim(self, key: str) -> None:
        if key in self._victims:
            self.gone[self._victims.pop(key)] = self.time

    # --- sessions -----------------------------------------------------------------------------------------------------

    def _session(self, record: ev.SessionDecided) -> None:
        self.heads.append((record.head, record.session))
        plan = record.accepted()
        for key, reasons in ev.waits_by_group(plan.waiting).items():
            self._group(key).waits.append((record.head, reasons))
        for status in plan.groups:
            group = self._group(status.key)
            if phase_of(status.phase) is not Phase.PENDING and not group.given:
                group.given = record.now
        for statement in plan.statements:
            for operation in statement.operations:
                self._operation(record, statement.action, operation)
        # events after its head were unknown to it, even if they were logged before it
        self._waiting = {uid: track for uid, track in self._waiting.items() if track.left > record.head}
        bound_uids = {one.uid for one in ev.decode_plan(record.plan).operations("bind")}
        for uid, track in self._waiting.items():
            if uid not in bound_uids and not track.withdrawn:
                track.withdrawn = record.session

    def _operation(self, record: ev.SessionDecided, action: str, operation: ev.Operation) -> None:
        if operation.verb == "evict" and operation.uid not in self.evictions:
            self.evictions[operation.uid] = record.session, action, operation
            self._victims[operation.key] = operation.uid
        track = self._pods.get(operation.key)
        if track is None or track.uid != operation.uid:
            return
        if operation.verb == "bind" and track.given is None:
            track.given = record.session, record.now, operation.node
            if not track.bound_to:
                self._waiting[track.uid] = track
        elif operation.verb == "pipeline" and track.held is None:
            track.held = record.session, operation.node

    def kept_back(self, track: Track) -> tuple[int, str, str]:
        """Return (session, cause, text) of the wait of a pod that got no node from a session before it was bound.

        The session is the last one that saw the pod, or 0. The text is empty if the log has no reason."""
        place = bisect_left(self.heads, (track.bound, 0)) - 1
        if place < 0 or self.heads[place][0] < track.created:
            return 0, "", ""
        session = self.heads[place][1]
        earlier = () if track.group is None else [reasons for head, reasons in track.group.waits if head < track.bound]
        concerning = [one for one in (earlier[-1] if earlier else ()) if one.may_concern(track.key)]
        if concerning:
            return session, cause_of(concerning[0]), "; ".join(map(full_reason_text, concerning))
        if track.held is not None:
            by, node = track.held
            return session, _CAPACITY, REPLAYS.sentence("held", {"session": f"{by}", "node": node})
        return session, "", ""
