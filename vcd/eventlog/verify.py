"""Proof that a log file is sound: what is in it can be read, is what was logged, and agrees with itself."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import pairwise
from pathlib import Path

import msgspec

from vcd.eventlog.chain import Chain, Content
from vcd.eventlog.errors import LogError
from vcd.eventlog.reader import LAST, LogReader, is_decision
from vcd.eventlog.rows import Logged, Row, columns, group_rows, outcome_row, session_rows
from vcd.model.codec import BadObject, decode_payload
from vcd.model.events import ObjectPut, OperationDone, PolicyLoaded, SessionDecided

Problems = Callable[[], list[str]]
Fold = Callable[[bytes, Iterator[Logged]], bytes]
"""Encoded state before (empty: nothing yet) and the events that follow, to the encoded state after."""

_INDEXES = (("entry", "session_row"), ("statements", "statements"), ("operations", "operations"))
"""What a session's index holds, in words, and the statement that reads it; in the order of ``session_rows``."""


class Head(msgspec.Struct, frozen=True):
    """An event's link in the chain: it holds all events up to this one. As text, ``HEX@SEQUENCE``."""

    sequence: int
    link: bytes

    def __str__(self) -> str:
        return f"{self.link.hex()}@{self.sequence}"


class Verified(msgspec.Struct, frozen=True):
    """What was found: problems (none: the log is sound) and what the chain does not hold, each a sentence; and the last
    event's link, to be noted and compared later (None: it has none)."""

    problems: list[str]
    uncovered: list[str] = []
    head: Head | None = None


def verify(
    path: str | Path,
    fold: Fold | None = None,
    noted: Head | None = None,
    beside: Callable[[Problems], Problems] = lambda work: work,
    is_same: Callable[[bytes, bytes], bool] = bytes.__eq__,
) -> Verified:
    """Look through a log file.

    Checked: SQLite's structures; sequence numbers without gap, times that do not go back; every payload decodes; the
    chain; sessions, outcomes and configurations are indexed as their events say; outcomes refer to operations;
    checkpoints can be read, and are those that the chain holds; the history begins at 1 or with a checkpoint. With
    ``fold``, also that folding the events between two checkpoints (and from the beginning to the first) gives the state
    that was kept, so that fold(all) = fold(checkpoint + tail). With ``noted``, that this event still has this link. A
    file that is being written may be verified too. Raises LogError when the file cannot be opened.

    ``beside`` begins the folding, which takes as long as all else, and gives what waits for its result. ``is_same``
    compares a folded state with a stored one of other bytes, which an older version may have written.
    """
    with LogReader(path) as reader, reader.pinned():
        try:
            if problems := reader.integrity():
                return Verified([f"SQLite: {problem}" for problem in problems])
            refolded = None if fold is None else beside(partial(_refolded, Path(path), fold, is_same))
            return _Verification(reader).verified(refolded, noted)
        except LogError as error:
            return Verified([str(error)])


class _Rows(msgspec.Struct):
    """Rows in any order: how many, and the sum of their digests, which other rows do not have."""

    count: int = 0
    total: int = 0

    def add(self, rows: Iterable[Row]) -> None:
        """Take in some more."""
        for row in rows:
            digest = hashlib.blake2b("\0".join(map(str, row)).encode(), digest_size=16).digest()
            self.count, self.total = self.count + 1, self.total + int.from_bytes(digest, "big")


class _Verification:
    """One pass over a file, collecting what is wrong."""

    def __init__(self, reader: LogReader) -> None:
        self._reader = reader
        self._segments = reader.segments()
        self._kept = [info.sequence for info in reader.checkpoints()]
        self._first = reader.first() or reader.head() + 1
        self._found: list[str] = []
        self._unlinked = 0
        """The last event without a link."""
        self._groups = _Rows()
        self._totals = {"sessions": 0, "statements": 0, "operations": 0, "outcomes": 0}
        self._policies: dict[str, tuple[str, int]] = {}

    def verified(self, refolded: Problems | None, noted: Head | None) -> Verified:
        self._events()
        self._index_totals()
        self._indexed_policies()
        self._indexed_groups()
        self._checkpoints()
        self._seals()
        if noted is not None:
            self._noted(noted)
        if refolded is not None and not self._found:
            self._found += refolded()
        head = self._reader.head()
        link = self._reader.link(head)
        return Verified(self._found, self._uncovered(refolded is not None), None if link is None else Head(head, link))

    def _events(self) -> None:
        time, before = 0, self._first - 1 if self._first - 1 in (0, *self._kept) else -1
        starts = {segment.sequence for segment in self._segments}
        chain = self._reader.chain(self._first - 1)
        for *row, link in self._reader.cursor("chained"):
            sequence, _, *described, _ = row
            if self._first < sequence != before + 1:
                self._found.append(f"events {before + 1} to {sequence - 1} are missing")
            try:
                content, logged = self._reader.parsed(tuple(row))
            except LogError as error:
                self._found.append(str(error))
                chain.link = link
            else:
                if logged.time < time and sequence - 1 not in starts:
                    self._found.append(f"event {sequence}: its time is before that of the event before it")
                if columns(logged.event) != tuple(described):
                    self._found.append(f"event {sequence}: its columns are not as its payload says")
                self._link(chain, content, link, is_next=sequence == before + 1)
                self._event(logged)
                time = logged.time
            before = sequence

    def _link(self, chain: Chain, content: Content, link: bytes | None, *, is_next: bool) -> None:
        """Hold an event against its link; ``is_next``: the chain has that of the event before it.

        That is missing in a gap, and before the first event that an unfinished retention has left.
        """
        if not chain.follow(content, link) and is_next:
            self._found.append(f"event {content[0]} is not as it was logged, or not in its place: so its link says")
        if link is None:
            self._unlinked = content[0]

    def _event(self, logged: Logged) -> None:
        event = logged.event
        if isinstance(event, ObjectPut) and event.payload is not None:
            try:
                decode_payload(event.kind, event.payload)
            except BadObject as error:
                self._found.append(f"event {logged.sequence}: {event.key}: {error}")
            self._groups.add(group_rows(logged))
        elif isinstance(event, PolicyLoaded):
            self._policies[event.digest] = event.text, logged.sequence
        elif isinstance(event, SessionDecided) and is_decision(self._segments, logged.sequence):
            self._totals["sessions"] += 1
            self._session(logged.sequence, event)
        elif isinstance(event, OperationDone) and is_decision(self._segments, logged.sequence):
            self._totals["outcomes"] += 1
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
        self._groups.add(group_rows(Logged(sequence, 0, event)))
        self._totals["statements"] += len(rows["statement"])
        self._totals["operations"] += len(rows["operation"])

    def _index_totals(self) -> None:
        (counted,) = self._reader.rows("counts", first=self._first)
        for (name, total), indexed in zip(self._totals.items(), counted, strict=True):
            if indexed != total:
                self._found.append(f"{indexed} {name} are indexed, {total} are in the events")
        for sequence, session, statement, operation in self._reader.rows("stray_outcomes", first=self._first):
            self._found.append(
                f"event {sequence}: the outcome of operation {operation} of statement {statement} in session {session},"
                " which has no such operation"
            )

    def _indexed_policies(self) -> None:
        indexed = {digest: (text, sequence) for digest, text, sequence in self._reader.rows("policies")}
        for digest, loaded in self._policies.items():
            if indexed.get(digest) != loaded:
                self._found.append(f"configuration {digest} is not kept as event {loaded[1]} says")

    def _indexed_groups(self) -> None:
        indexed = _Rows()
        indexed.add(self._reader.cursor("group_events", first=self._first))
        if indexed == self._groups:
            return
        others = set(self._reader.cursor("group_events", first=self._first))
        for row in self._reader.cursor("unindexed"):
            with suppress(LogError, msgspec.MsgspecError):  # that it cannot be read is told already
                others.symmetric_difference_update(group_rows(self._reader.parsed(row)[1]))
        for sequence in sorted({sequence for _, sequence in others}):
            self._found.append(f"event {sequence}: the groups that it concerns are not indexed as it says")

    def _checkpoints(self) -> None:
        for sequence in self._kept:
            try:
                self._reader.latest_checkpoint(sequence)
            except LogError as error:
                self._found.append(str(error))
        if self._first > 1 and not any(sequence >= self._first - 1 for sequence in self._kept):
            self._found.append(f"the history begins with event {self._first}, with no checkpoint from which to fold it")

    def _seals(self) -> None:
        """Hold checkpoints against the chain: retention takes the oldest away, and none between others."""
        rows = {sequence: (time, digest) for sequence, time, _, _, digest in self._reader.rows("checkpoints")}
        for (sequence,) in self._reader.rows("other_links"):
            self._found.append(f"checkpoint {sequence} has not the link of its event")
        oldest = min(rows, default=0)
        for sequence, sealed in self._reader.seals().items():
            if sequence >= oldest and sequence not in rows:
                self._found.append(f"checkpoint {sequence} is missing")
            elif rows.get(sequence, sealed) != sealed:
                self._found.append(f"checkpoint {sequence} is not the one that was kept: so the chain says")

    def _noted(self, noted: Head) -> None:
        head, link = self._reader.head(), self._reader.link(noted.sequence)
        if noted.sequence > head:
            self._found.append(f"the log ends with event {head}, before event {noted.sequence}, whose link was noted")
        elif noted.sequence < self._first and noted.sequence not in self._kept:
            self._found.append(
                f"the log begins with event {self._first}, after event {noted.sequence}, whose link was noted"
            )
        elif link != noted.link:
            self._found.append(f"event {noted.sequence} has not the link that was noted: another log, or a changed one")

    def _uncovered(self, refolded: bool) -> list[str]:
        """What could have been changed without any link showing it."""
        found, seals = [], self._reader.seals()
        if self._unlinked:
            found.append(f"events {self._first} to {self._unlinked} were written before there was a chain")
        for sequence in self._kept:
            is_folded = refolded and (self._first == 1 or sequence > self._kept[0])
            if sequence not in seals and not is_folded:
                found.append(f"the state of checkpoint {sequence} is not in the chain")
        found += [f"segment {one.sequence} is not in the chain" for one in self._segments if not one.chained]
        return found


def _refolded(path: Path, fold: Fold, is_same: Callable[[bytes, bytes], bool]) -> list[str]:
    """Which checkpoints are not what folding the events before them gives."""
    found = []
    with LogReader(path) as reader, reader.pinned():
        kept, first = [info.sequence for info in reader.checkpoints()], reader.first() or reader.head() + 1
        for start, end in pairwise([0, *(segment.sequence for segment in reader.segments()), LAST]):
            points = [sequence for sequence in kept if start <= sequence < end]
            if (start or first == 1) and start not in points:
                points.insert(0, start)
            for earlier, later in pairwise(points):
                state, there = fold(reader.base(earlier).state, reader.read(earlier, later)), reader.base(later).state
                if state != there and not is_same(state, there):
                    found.append(f"checkpoint {later}: folding the events {earlier + 1} to {later} gives another state")
    return found
