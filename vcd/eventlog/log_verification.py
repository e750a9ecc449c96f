"""Verifies a log file: all of it is readable, unchanged since it was logged, and consistent.

It reads one consistent version of the file and changes nothing, so a writer can continue. It does not fold the events;
its caller passes a function for that, because this package does not know the state.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import pairwise
from pathlib import Path

import msgspec

from vcd.eventlog.chain import Chain, Content
from vcd.eventlog.log_errors import LogError
from vcd.eventlog.log_reader import LogReader
from vcd.eventlog.rows import Logged, Row, group_rows, index_columns, outcome_row, session_rows
from vcd.model.events import ObjectPut, OperationDone, PolicyLoaded, SessionDecided
from vcd.model.projection_codec import BadObject, decode_payload

ProblemFinder = Callable[[], list[str]]
Fold = Callable[[bytes, Iterator[Logged]], bytes]
"""Takes an encoded state (empty: no state yet) and the events that follow; returns the encoded state after them."""

_INDEXES = (("entry", "session_row"), ("statements", "statements"), ("operations", "operations"))
"""Names of a session's index rows, and the statements that read them; in the order of ``session_rows``."""


class Head(msgspec.Struct, frozen=True):
    """An event's link, which covers all events up to this one. As text: ``HEX@SEQUENCE``."""

    sequence: int
    link: bytes

    def __str__(self) -> str:
        return f"{self.link.hex()}@{self.sequence}"


class Verified(msgspec.Struct, frozen=True):
    """The result: problems (none: the log is sound), what the chain does not cover, and the last event's link, to be
    noted and compared later (None: it has none)."""

    problems: list[str]
    uncovered: list[str] = []
    head: Head | None = None


def verify(
    path: str | Path,
    fold: Fold | None = None,
    noted: Head | None = None,
    start_refold: Callable[[ProblemFinder], ProblemFinder] = lambda work: work,
    is_same: Callable[[bytes, bytes], bool] = bytes.__eq__,
) -> Verified:
    """Verify a log file, which may have a writer.

    Checks SQLite's structures; sequence numbers and times; that every payload can be decoded; the chain; that the
    indexes of sessions, outcomes, configurations and groups match the events; that outcomes refer to operations; that
    checkpoints can be read and match the chain; and that the history begins at 1 or with a checkpoint.

    Args:
        fold: If given, fold the events between checkpoints and compare: fold(all) = fold(checkpoint + tail).
        noted: If given, check that this event still has this link.
        start_refold: Starts the folding, which takes as long as everything else; returns a function that waits for it.
        is_same: Compares a folded state with a stored one of other bytes, which an older version may have written.

    Raises LogError if the file cannot be opened.
    """
    with LogReader(path) as reader, reader.pinned():
        try:
            if problems := reader.integrity():
                return Verified([f"SQLite: {problem}" for problem in problems])
            refolded = None if fold is None else start_refold(partial(_check_folds, Path(path), fold, is_same))
            return _Verification(reader).run(refolded, noted)
        except LogError as error:
            return Verified([str(error)])


class _RowDigest(msgspec.Struct):
    """A digest of rows in any order: their number, and the sum of their hashes."""

    count: int = 0
    total: int = 0

    def add(self, rows: Iterable[Row]) -> None:
        for row in rows:
            digest = hashlib.blake2b("\0".join(map(str, row)).encode(), digest_size=16).digest()
            self.count, self.total = self.count + 1, self.total + int.from_bytes(digest, "big")


class _Verification:
    def __init__(self, reader: LogReader) -> None:
        self._reader = reader
        self._checkpoint_sequences = [info.sequence for info in reader.checkpoints()]
        self._first = reader.first() or reader.head() + 1
        self._problems: list[str] = []
        self._last_unlinked = 0
        self._groups = _RowDigest()
        self._totals = {"sessions": 0, "statements": 0, "operations": 0, "outcomes": 0}
        self._policies: dict[str, tuple[str, int]] = {}

    def run(self, refolded: ProblemFinder | None, noted: Head | None) -> Verified:
        self._check_events()
        self._check_totals()
        self._check_policies()
        self._check_groups()
        self._check_checkpoints()
        self._check_seals()
        if noted is not None:
            self._check_noted(noted)
        if refolded is not None and not self._problems:
            self._problems += refolded()
        head = self._reader.head()
        link = self._reader.link(head)
        uncovered = self._find_uncovered(refolded is not None)
        return Verified(self._problems, uncovered, None if link is None else Head(head, link))

    def _report(self, problem: str) -> None:
        self._problems.append(problem)

    def _check_events(self) -> None:
        time, before = 0, self._first - 1 if self._first - 1 in (0, *self._checkpoint_sequences) else -1
        chain = self._reader.chain(self._first - 1)
        for *row, link in self._reader.cursor("chained"):
            sequence, _, *described, _ = row
            if self._first < sequence != before + 1:
                self._report(f"events {before + 1} to {sequence - 1} are missing")
            try:
                content, logged = self._reader.parse_row(tuple(row))
            except LogError as error:
                self._report(str(error))
                chain.link = link
            else:
                if logged.time < time:
                    self._report(f"event {sequence}: its time is before that of the event before it")
                if index_columns(logged.event) != tuple(described):
                    self._report(f"event {sequence}: its columns differ from its payload")
                self._check_link(chain, content, link, is_next=sequence == before + 1)
                self._check_event(logged)
                time = logged.time
            before = sequence

    def _check_link(self, chain: Chain, content: Content, link: bytes | None, *, is_next: bool) -> None:
        """Compare an event with its link, unless the chain lacks the previous event's: in a gap, and
        after retention.
        """
        if not chain.check_next(content, link) and is_next:
            self._report(f"event {content[0]} was changed or moved: its link does not match")
        if link is None:
            self._last_unlinked = content[0]

    def _check_event(self, logged: Logged) -> None:
        event = logged.event
        if isinstance(event, ObjectPut) and event.payload is not None:
            try:
                decode_payload(event.kind, event.payload)
            except BadObject as error:
                self._report(f"event {logged.sequence}: {event.key}: {error}")
            self._groups.add(group_rows(logged))
        elif isinstance(event, PolicyLoaded):
            self._policies[event.digest] = event.text, logged.sequence
        elif isinstance(event, SessionDecided):
            self._totals["sessions"] += 1
            self._check_session(logged.sequence, event)
        elif isinstance(event, OperationDone):
            self._totals["outcomes"] += 1
            if self._reader.rows("outcome_row", sequence=logged.sequence) != [outcome_row(logged.sequence, event)]:
                self._report(f"event {logged.sequence}: its outcome differs from the index")

    def _check_session(self, sequence: int, event: SessionDecided) -> None:
        number = event.session
        if event.head >= sequence:
            self._report(f"session {number}: its head {event.head} is not before its own event {sequence}")
        try:
            rows = session_rows(sequence, event)
        except msgspec.MsgspecError as error:
            self._report(f"session {number}: its plan cannot be read: {error}")
            return
        for (name, of), expected in zip(_INDEXES, rows.values(), strict=True):
            if self._reader.rows(of, session=number) != expected:
                self._report(f"session {number}: the index of its {name} differs from its event {sequence}")
        self._groups.add(group_rows(Logged(sequence, 0, event)))
        self._totals["statements"] += len(rows["statement"])
        self._totals["operations"] += len(rows["operation"])

    def _check_totals(self) -> None:
        (counted,) = self._reader.rows("counts", first=self._first)
        for (name, total), indexed in zip(self._totals.items(), counted, strict=True):
            if indexed != total:
                self._report(f"{indexed} {name} are indexed, {total} are in the events")
        for sequence, session, statement, operation in self._reader.rows("stray_outcomes", first=self._first):
            self._report(
                f"event {sequence}: the outcome of operation {operation} of statement {statement} in session {session},"
                " which has no such operation"
            )

    def _check_policies(self) -> None:
        indexed = {digest: (text, sequence) for digest, text, sequence in self._reader.rows("policies")}
        for digest, loaded in self._policies.items():
            if indexed.get(digest) != loaded:
                self._report(f"configuration {digest} differs from event {loaded[1]}")

    def _check_groups(self) -> None:
        indexed = _RowDigest()
        indexed.add(self._reader.cursor("group_events", first=self._first))
        if indexed == self._groups:
            return
        others = set(self._reader.cursor("group_events", first=self._first))
        for row in self._reader.cursor("unindexed"):
            with suppress(LogError, msgspec.MsgspecError):  # already reported as unreadable
                others.symmetric_difference_update(group_rows(self._reader.parse_row(row)[1]))
        for sequence in sorted({sequence for _, sequence in others}):
            self._report(f"event {sequence}: its groups differ from the index")

    def _check_checkpoints(self) -> None:
        for sequence in self._checkpoint_sequences:
            try:
                self._reader.latest_checkpoint(sequence)
            except LogError as error:
                self._report(str(error))
        if self._first > 1 and not any(sequence >= self._first - 1 for sequence in self._checkpoint_sequences):
            self._report(f"the history begins with event {self._first}, without a checkpoint to fold from")

    def _check_seals(self) -> None:
        rows = {sequence: (time, digest) for sequence, time, _, _, digest in self._reader.rows("checkpoints")}
        for (sequence,) in self._reader.rows("other_links"):
            self._report(f"checkpoint {sequence} does not have the link of its event")
        oldest = min(rows, default=0)
        for sequence, sealed in self._reader.seals().items():
            if sequence >= oldest and sequence not in rows:
                self._report(f"checkpoint {sequence} is missing")
            elif rows.get(sequence, sealed) != sealed:
                self._report(f"checkpoint {sequence} was changed: its digest does not match the chain")

    def _check_noted(self, noted: Head) -> None:
        head, link = self._reader.head(), self._reader.link(noted.sequence)
        if noted.sequence > head:
            self._report(f"the log ends with event {head}, before the noted event {noted.sequence}")
        elif noted.sequence < self._first and noted.sequence not in self._checkpoint_sequences:
            self._report(f"the log begins with event {self._first}, after the noted event {noted.sequence}")
        elif link != noted.link:
            self._report(f"event {noted.sequence} does not have the noted link: it is another log, or was changed")

    def _find_uncovered(self, refolded: bool) -> list[str]:
        uncovered, seals = [], self._reader.seals()
        if self._last_unlinked:
            uncovered.append(f"events {self._first} to {self._last_unlinked} were written before there was a chain")
        for sequence in self._checkpoint_sequences:
            is_folded = refolded and (self._first == 1 or sequence > self._checkpoint_sequences[0])
            if sequence not in seals and not is_folded:
                uncovered.append(f"the state of checkpoint {sequence} is not in the chain")
        return uncovered


def _check_folds(path: Path, fold: Fold, is_same: Callable[[bytes, bytes], bool]) -> list[str]:
    found = []
    with LogReader(path) as reader, reader.pinned():
        points = [info.sequence for info in reader.checkpoints()]
        if (reader.first() or reader.head() + 1) == 1 and 0 not in points:
            points.insert(0, 0)
        for earlier, later in pairwise(points):
            state, there = fold(reader.base(earlier).state, reader.read(earlier, later)), reader.base(later).state
            if state != there and not is_same(state, there):
                found.append(f"checkpoint {later}: folding the events {earlier + 1} to {later} gives another state")
    return found
