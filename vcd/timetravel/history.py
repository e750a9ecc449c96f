"""The states of a log: folds it up to any event, and decides its sessions again.

A history moves forward from the nearest checkpoint; to go back, it begins at an earlier one. Sessions that are decided
again get the recorded time, seed, configuration and answers, so their plans equal the recorded ones.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NamedTuple, Protocol, Self

import msgspec

from vcd.eventlog import LogError, Logged, LogReader, SessionInfo
from vcd.model import events as ev
from vcd.model.objects import Object
from vcd.model.projection_codec import BadObject, decode_payload
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.decide import run
from vcd.scheduling.framework.policy import Policy, PolicyError
from vcd.scheduling.framework.trace import Trace
from vcd.scheduling.session.outside import Remembered
from vcd.scheduling.session.session import Session
from vcd.state.checkpoint import uncollected
from vcd.state.cluster_state import ClusterState
from vcd.state.snapshot import Snapshot, SnapshotMaker
from vcd.timetravel.log_standing import as_of


def opened(path: str | Path) -> History:
    """Return the history of a log file. Raises LogError for one that cannot be used."""
    return History(LogReader(path))


def object_in(event: ev.Event) -> Object | None:
    """Return the object in an event; None if the event has no new content, or content that is unreadable: the state
    sets such objects aside, too."""
    if not isinstance(event, ev.ObjectPut) or event.payload is None:
        return None
    try:
        return decode_payload(event.kind, event.payload)
    except BadObject:
        return None


class LogWindow(NamedTuple):
    """The part of a log that a query is about: events after a time (ns), as of a session (None: the log's end)."""

    since: int = 0
    session: SessionInfo | None = None

    def last_session(self, reader: LogReader) -> int:
        """Return the number of its last session; 0 for none."""
        return reader.last_session() if self.session is None else self.session.number

    def end(self, reader: LogReader) -> int:
        """Return when it ends (ns); a log that is being written ends now."""
        return as_of(reader) if self.session is None else self.session.time

    @property
    def until(self) -> int | None:
        """The number of its last event; None for the log's end."""
        return None if self.session is None else self.session.sequence


KEPT = 3
"""Sessions decided again whose result is cached."""

WHOLE = LogWindow()
"""The whole log."""


class Listener(Protocol):
    """Receives the events of a history."""

    def catch_up(self, state: ClusterState, time: int) -> None:
        """Take over the state before the first event; ``time`` is that of the event (ns)."""

    def see(self, logged: Logged) -> None:
        """Handle one event."""


def concerning(reader: LogReader, group: str, pod: str | None, until: int) -> list[Logged]:
    """Return the events up to a number that concern a group and its pods, or one pod and its group, and
    configurations, in order. The pods of a group are those that named it in some event."""
    found: dict[int, Logged] = {}
    pods = [pod] if pod is not None else reader.pods_of(group, 0, until)
    for events in (
        reader.object_history("PodGroup", group),
        reader.sessions_of(group, 0, until),
        reader.policies(until=until),
        *(reader.object_history("Pod", key) for key in pods),
        *(reader.decisions_of(key) for key in pods),
    ):
        found.update((logged.sequence, logged) for logged in events if logged.sequence <= until)
    return [found[sequence] for sequence in sorted(found)]


class History:
    """The state of a log at one event after another; a context manager, which closes the file.

    A later event is reached by folding the events up to it, an earlier one from the latest checkpoint. Every method
    raises LogError for what the file does not have or this version cannot read.
    """

    def __init__(self, reader: LogReader) -> None:
        self.reader = reader
        self._policies: dict[str, Policy] = {}
        self._state: ClusterState | None = None
        self._maker: SnapshotMaker | None = None
        self._reruns: dict[tuple[int, bool, frozenset[str] | None], tuple[ev.SessionDecided, Session]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.reader.close()

    def state(self, sequence: int, *, jump: bool = False) -> ClusterState:
        """Return the state after ``sequence``; the next call changes it.

        With ``jump``, a checkpoint on the way replaces the folding of all events before it.
        """
        state = self._state
        if state is None or self._must_reload(state.sequence, sequence, jump):
            state = self._begin(sequence)
        self._fold(state, sequence)
        return state

    def oldest(self) -> ClusterState:
        """Return the state with which the log begins; the next call changes it."""
        first = self.reader.oldest()
        return self.state(first, jump=True) if first else ClusterState()

    def feed(self, listener: Listener, after: int, until: int | None) -> None:
        """Pass a listener the events after one number and up to another (None: all)."""
        self._feed(listener, self.reader.read(after, until), after)

    def feed_concerning(self, listener: Listener, group: str, pod: str | None, until: int) -> None:
        """Do the same with events that concern a group and its pods (None), or one pod, from the log's beginning."""
        self._feed(listener, concerning(self.reader, group, pod, until), self.reader.oldest())

    def _feed(self, listener: Listener, events: Iterable[Logged], after: int) -> None:
        self._catch_up(listener, after)
        for one in events:
            try:
                listener.see(one)
            except msgspec.MsgspecError as error:
                raise LogError(
                    f"event log {self.reader.path}: this version cannot read event {one.sequence}: {error}"
                ) from error

    def _catch_up(self, listener: Listener, sequence: int) -> None:
        following = next(self.reader.find(after=sequence, limit=1), None)
        time = self.reader.last_time() if following is None else following.time
        listener.catch_up(self.state(sequence, jump=True) if sequence else ClusterState(), time)

    def snapshot(self, info: SessionInfo, *, jump: bool = False) -> Snapshot:
        """Return what a session was decided from: the state after its head, without events between head and session."""
        return self._snapshot_after(info.head, jump)

    def _snapshot_after(self, sequence: int, jump: bool) -> Snapshot:
        state = self.state(sequence, jump=jump)
        if self._maker is None:
            self._maker = SnapshotMaker(state)
        return self._maker.snapshot()

    def undecided(self) -> tuple[int, Session]:
        """Return the cluster after the log's last event, as a session that has decided nothing, and the event's time
        (ns). A log without a configuration is read with the default one."""
        snapshot, loaded = self._snapshot_after(self.reader.head(), True), self.state(self.reader.head()).policy
        policy = read_policy(None if loaded is None else loaded.text, logged=True)
        now = self.reader.last_time()
        return now, run(snapshot, dataclasses.replace(policy, actions=()), now, 0, outside=Remembered(()))

    def rerun(
        self,
        number: int,
        *,
        jump: bool = True,
        about: Collection[str] | None = None,
        trace: Trace | None = None,
        actions: bool = True,
    ) -> tuple[ev.SessionDecided, Session]:
        """Decide a session again, and return its record and the session after its last action. ``trace``, or a new
        trace ``about`` some jobs and pods, records how it is decided.

        External questions are answered from the record. Without ``actions``, return the session at its beginning,
        without the plugins that failed during it. Results without ``trace`` are cached and shared: callers must not
        change them.
        """
        key = (number, actions, None if about is None else frozenset(about))
        known = None if trace is not None else self._reruns.get(key)
        if known is not None:
            return known
        record = self.reader.session(number)
        (info,) = self.reader.sessions(number, number)
        snapshot, policy = self.snapshot(info, jump=jump), self.policy(record)
        session = run(
            snapshot,
            policy if actions else dataclasses.replace(policy, actions=()),
            record.now,
            record.seed,
            trace=Trace(about) if trace is None and about is not None else trace,
            outside=Remembered(record.asked),
            interrupted=record.interrupted if actions else ev.decode_plan(record.plan).faults,
        )
        if trace is None:
            while len(self._reruns) >= KEPT:
                del self._reruns[next(iter(self._reruns))]
            self._reruns[key] = record, session
        return record, session

    def policy(self, record: ev.SessionDecided) -> Policy:
        """Return the configuration that a session was decided with."""
        known = self._policies.get(record.policy)
        if known is None:
            try:
                known = self._policies[record.policy] = read_policy(self.reader.policy(record.policy), logged=True)
            except PolicyError as error:
                raise LogError(
                    f"event log {self.reader.path}: session {record.session} was decided by configuration"
                    f" {record.policy[:16]}, which this version cannot read: {error.problems[0]}"
                ) from error
        return known

    def _must_reload(self, position: int, sequence: int, jump: bool) -> bool:
        if sequence < position:
            return True
        return jump and any(position < info.sequence <= sequence for info in self.reader.checkpoints())

    def _begin(self, sequence: int) -> ClusterState:
        base = self.reader.base(sequence)
        try:
            with uncollected():
                state = ClusterState.load(base.state) if base.state else ClusterState()
        except msgspec.MsgspecError as error:
            raise LogError(
                f"event log {self.reader.path}: this version cannot read the checkpoint at {base.sequence}: {error}"
            ) from error
        state.sequence = base.sequence
        self._state, self._maker = state, None
        return state

    def _fold(self, state: ClusterState, sequence: int) -> None:
        if state.sequence == sequence:
            return
        with uncollected():
            for logged in self.reader.read(state.sequence, sequence):
                try:
                    state.apply(logged.sequence, logged.event)
                except (msgspec.MsgspecError, ValueError) as error:
                    raise LogError(
                        f"event log {self.reader.path}: this version cannot fold event {logged.sequence}: {error}"
                    ) from error
        if state.sequence != sequence:
            raise LogError(
                f"event log {self.reader.path}: it ends with event {state.sequence}, before event {sequence}"
            )
