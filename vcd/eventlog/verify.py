"""Proof that a log file is sound: what is in it can be read, and agrees with itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import msgspec

from vcd.eventlog.errors import LogError
from vcd.eventlog.reader import LAST, LogReader, is_decision
from vcd.eventlog.rows import Logged, columns, outcome_row, session_rows
from vcd.model.codec import BadObject, decode_payload
from vcd.model.events import ObjectPut, OperationDone, SessionDecided

Fold = Callable[[bytes, Iterator[Logged]], bytes]
"""Encoded state before (empty: nothing yet) and the events that follow, to the encoded state after."""

_INDEXES = (("entry", "session_row"), ("statements", "statements"), ("operations", "operations"), ("groups", "groups"))
"""What a session's index holds, in words, and the statement that reads it; in the order of ``session_rows``."""


def verify(path: str | Path, fold: Fold | None = None) -> list[str]:
    """The problems of a log file, each a sentence; none when it is sound.

    Checked: SQLite's structures; sequence numbers without gap, times that do not go back; every payload decodes;
    sessions and outcomes are indexed as their events say; outcomes refer to operations; checkpoints can be read;
    the history begins at 1 or with a checkpoint. With ``fold``, also that folding the events between two
    checkpoints (and from the beginning to the first) gives the state that was kept, so that
    fold(all) = fold(checkpoint + tail). A file that is being written may be verified too.
    Raises LogError when the file cannot be opened.
    """
    with LogReader(path) as reader:
        reader.snapshot()
        try:
            if problems := reader.integrity():
                return [f"SQLite: {problem}" for problem in problems]
            return _Verification(reader).problems(fold)
        except LogError as error:
            return [str(error)]


class _Verification:
    """One pass over a file, collecting what is wrong."""

    def __init__(self, reader: LogReader) -> None:
        self._reader = reader
        self._segments = reader.segments()
        self._found: list[str] = []
        self._sessions = 0
        self._outcomes = 0

    def problems(self, fold: Fold | None) -> list[str]:
        self._events()
        self._index_totals()
        self._checkpoints()
        if fold is not None and not self._found:
            self._folds(fold)
        return self._found

    def _events(self) -> None:
        before = time = 0
        starts = {segment.sequence for segment in self._segments}
        for sequence, at, *described in self._reader.cursor("columns"):
            if before and sequence != before + 1:
                self._found.append(f"events {before + 1} to {sequence - 1} are missing")
            if at < time and sequence - 1 not in starts:
                self._found.append(f"event {sequence}: its time is before that of the event before it")
            before, time = sequence, at
            try:
                (logged,) = self._reader.read(sequence - 1, sequence)
            except LogError as error:
                self._found.append(str(error))
                continue
            if columns(logged.event) != tuple(described):
                self._found.append(f"event {sequence}: its columns are not as its payload says")
            self._event(logged)

    def _event(self, logged: Logged) -> None:
        event = logged.event
        if isinstance(event, ObjectPut) and event.payload is not None:
            try:
                decode_payload(event.kind, event.payload)
            except BadObject as error:
                self._found.append(f"event {logged.sequence}: {event.key}: {error}")
        elif isinstance(event, SessionDecided) and is_decision(self._segments, logged.sequence):
            self._sessions += 1
            self._session(logged.sequence, event)
        elif isinstance(event, OperationDone) and is_decision(self._segments, logged.sequence):
            self._outcomes += 1
            if self._reader.rows("outcome_row", sequence=logged.sequence) != [outcome_row(logged.sequence, event)]:
                self._found.append(f"event {logged.sequence}: its outcome is not indexed as the event says")

    def _session(self, sequence: int, event: SessionDecided) -> None:
        number = event.session
        if event.head >= sequence:
            self._found.append(f"session {number}: its head {event.head} is not before its own event {sequence}")
        try:
            rows = session_rows(sequence, event)
        except msgspec.MsgspecError as error:
            self._found.append(f"session {number}: its plan cannot be read: {error}")
            return
        for (name, of), expected in zip(_INDEXES, rows.values(), strict=True):
            if self._reader.rows(of, session=number) != expected:
                self._found.append(f"session {number}: the index of its {name} is not as its event {sequence} says")

    def _index_totals(self) -> None:
        first = self._reader.first()
        first = self._reader.head() + 1 if first is None else first
        ((sessions, outcomes),) = self._reader.rows("counts", first=first)
        if sessions != self._sessions:
            self._found.append(f"{sessions} sessions are indexed, {self._sessions} are in the events")
        if outcomes != self._outcomes:
            self._found.append(f"{outcomes} outcomes are indexed, {self._outcomes} are in the events")
        for sequence, session, statement, operation in self._reader.rows("stray_outcomes", first=first):
            self._found.append(
                f"event {sequence}: the outcome of operation {operation} of statement {statement} in session {session},"
                " which has no such operation"
            )

    def _checkpoints(self) -> None:
        kept = self._reader.checkpoints()
        for info in kept:
            try:
                self._reader.latest_checkpoint(info.sequence)
            except LogError as error:
                self._found.append(str(error))
        first = self._reader.first() or 1
        if first > 1 and not any(info.sequence >= first - 1 for info in kept):
            self._found.append(f"the history begins with event {first}, with no checkpoint from which to fold it")

    def _folds(self, fold: Fold) -> None:
        starts = [0, *(segment.sequence for segment in self._segments), LAST]
        for start, end in pairwise(starts):
            points = [info.sequence for info in self._reader.checkpoints() if start <= info.sequence < end]
            if (start or self._reader.first() == 1) and start not in points:
                points.insert(0, start)
            for earlier, later in pairwise(points):
                state = fold(self._reader.base(earlier).state, self._reader.read(earlier, later))
                if state != self._reader.base(later).state:
                    self._found.append(
                        f"checkpoint {later}: folding the events {earlier + 1} to {later} gives another state"
                    )
