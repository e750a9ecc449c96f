"""Rewrites a log as version 0.1.0 would have written it, for tests of what newer versions make of it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import msgspec
import zstandard

from vcd.eventlog.log_errors import LogError
from vcd.eventlog.log_file import open_for_writing, split_script, transaction
from vcd.eventlog.log_reader import LogReader
from vcd.eventlog.packing import PART
from vcd.eventlog.rows import Row, state_digest
from vcd.eventlog.sql_statements import statements
from vcd.model.events import decode_plan
from vcd.state.checkpoint import without_tables

FIRST = 1
"""The schema of version 0.1.0."""
_TYPES = ["answer", "bad", "clock", "gone", "late", "leadership", "listed", "outcome", "policy", "put", "session"]
_REVERT = """
DROP INDEX event_policy;
DROP TABLE group_event;
ALTER TABLE event DROP COLUMN chain;
ALTER TABLE checkpoint DROP COLUMN chain;
ALTER TABLE segment DROP COLUMN chained;
DROP TABLE seal;
CREATE TABLE session_group (
    group_key TEXT NOT NULL,
    session INTEGER NOT NULL,
    PRIMARY KEY (group_key, session)
) STRICT, WITHOUT ROWID;
CREATE INDEX session_group_session ON session_group (session);
"""


def revert_to_first_schema(path: str | Path) -> None:
    """Rewrite a log in place. Raises LogError and changes nothing if it has an event that 0.1.0 cannot read, or if a
    writer has it open."""
    with (
        open_for_writing(Path(path)) as connection,
        LogReader(path) as reader,
        reader.pinned(),
        transaction(connection),
    ):  # the reader's pinned transaction still sees the newer schema
        others = "SELECT type, min(sequence) FROM event WHERE type NOT IN (SELECT value FROM json_each(?))"
        ((kind, first),) = connection.execute(others, (msgspec.json.encode(_TYPES).decode(),))
        if first is not None:
            raise LogError(f"event log {path}: version 0.1.0 cannot read event {first}, of type {kind}")
        for statement in split_script(_REVERT):
            connection.execute(statement)
        for info in reader.sessions():
            connection.executemany(
                "INSERT INTO session_group (group_key, session) VALUES (?, ?)", _session_groups(reader, info.number)
            )
        # checkpoints of 0.1.0 lack part of the state, which only the events have
        retained = None if reader.first() == 1 else next(iter(reader.checkpoints()), None)
        for checkpoint in reader.checkpoints():
            if checkpoint == retained:
                _write_state(connection, checkpoint.sequence, without_tables(reader.base(checkpoint.sequence).state))
            else:
                connection.execute("DELETE FROM checkpoint_part WHERE sequence = ?", (checkpoint.sequence,))
                connection.execute("DELETE FROM checkpoint WHERE sequence = ?", (checkpoint.sequence,))
        connection.execute(f"PRAGMA user_version = {FIRST}")


def _session_groups(reader: LogReader, number: int) -> list[Row]:
    """Return the rows of schema 1's index of the groups that a session acted on or set the status of."""
    plan = decode_plan(reader.session(number).plan)
    named = {statement.group for statement in plan.statements} | {status.key for status in plan.groups}
    return [(group, number) for group in sorted(named)]


def _write_state(connection: sqlite3.Connection, sequence: int, state: bytes) -> None:
    starts = range(0, len(state), PART)
    connection.execute("DELETE FROM checkpoint_part WHERE sequence = ?", (sequence,))
    parts = [(sequence, part, zstandard.compress(state[start : start + PART], 3)) for part, start in enumerate(starts)]
    connection.executemany(statements("checkpoint")["part"], parts)
    connection.execute(
        "UPDATE checkpoint SET size = ?, parts = ?, digest = ? WHERE sequence = ?",
        (len(state), len(starts), state_digest(state), sequence),
    )
