"""Convert a log to the schema of an older vcd, in place."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import msgspec
import zstandard

from vcd.eventlog.errors import LogError
from vcd.eventlog.log_file import migrations, open_for_writing, split_script, transaction
from vcd.eventlog.packing import PART
from vcd.eventlog.reader import LogReader
from vcd.eventlog.rows import Row, state_digest
from vcd.eventlog.statements import statements
from vcd.model.events import decode_plan


class Version(msgspec.Struct, frozen=True):
    """What a version of vcd can read: its log schema and event types."""

    schema: int
    types: frozenset[str]


_FIRST = "put gone bad listed policy leadership clock answer late session outcome"
VERSIONS = {"0.1.0": Version(1, frozenset(_FIRST.split()))}
"""By version."""
Older = Callable[[bytes], bytes]
"""Converts an encoded state to the encoding of versions before state tables."""


class Downgraded(msgspec.Struct, frozen=True):
    """The result: schema before and after, and sentences that state what was lost."""

    before: int
    after: int
    lost: list[str]


def downgrade(path: str | Path, version: str, older: Older) -> Downgraded:
    """Convert a log to the schema that ``version`` reads, in one transaction. No writer may have the log open.

    Raises LogError and changes nothing if the version is unknown, or the file cannot be converted.
    """
    if version not in VERSIONS:
        known = ", ".join(VERSIONS)
        raise LogError(f"event log {path}: the schema of version {version} is unknown; known versions: {known}")
    after, before = VERSIONS[version].schema, migrations()[-1][0]
    sql = statements("downgrade")
    with (
        open_for_writing(Path(path)) as connection,
        LogReader(path) as reader,
        reader.pinned(),
        transaction(connection),
    ):  # the reader's pinned transaction still sees the old schema
        _check_readable(reader, version)
        for number in range(before, after, -1):
            for statement in split_script(sql[str(number)]):
                connection.execute(statement)
        for info in reader.sessions():
            connection.executemany(sql["session_group"], _session_groups(reader, info.number))
        bases = _bases(reader)
        for checkpoint in reader.checkpoints():
            if checkpoint.sequence in bases:
                _write_state(connection, checkpoint.sequence, older(reader.base(checkpoint.sequence).state))
            else:
                connection.execute(sql["parts"], (checkpoint.sequence,))
                connection.execute(sql["remove"], (checkpoint.sequence,))
        connection.execute(f"PRAGMA user_version = {after}")
    return Downgraded(before, after, ["the chain: changes of the file can no longer be detected"])


def _bases(reader: LogReader) -> set[int]:
    """Return the checkpoints to keep: those whose state cannot be folded from an earlier place.

    An older version's checkpoints lack part of the state, which only the events have.
    """
    starts = [0, *(segment.sequence for segment in reader.segments())]
    found = {
        max(start for start in starts if start <= each.sequence): each.sequence for each in reader.checkpoints()[::-1]
    }
    if reader.first() == 1:
        found.pop(0, None)
    return set(found.values())


def _check_readable(reader: LogReader, version: str) -> None:
    known = msgspec.json.encode(sorted(VERSIONS[version].types)).decode()
    ((kind, first),) = reader.rows("other_types", types=known)
    if first is None:
        return
    ((session,),) = reader.rows("session_before", at=first)
    instead = f"; the sessions before it can go: vcd log export {reader.path} OUT --to {session}" if session else ""
    raise LogError(
        f"event log {reader.path}: version {version} cannot read event {first}, of type {kind}, nor a log that holds it"
        f"{instead}"
    )


def _session_groups(reader: LogReader, number: int) -> list[Row]:
    """Return the rows of schema 1's index of the groups that a session acted on or set the status of."""
    plan = decode_plan(reader.session(number).plan)
    named = {statement.group for statement in plan.statements} | {status.key for status in plan.groups}
    return [(group, number) for group in sorted(named)]


def _write_state(connection: sqlite3.Connection, sequence: int, state: bytes) -> None:
    sql, starts = statements("downgrade"), range(0, len(state), PART)
    connection.execute(sql["parts"], (sequence,))
    parts = [(sequence, part, zstandard.compress(state[start : start + PART], 3)) for part, start in enumerate(starts)]
    connection.executemany(statements("checkpoint")["part"], parts)
    connection.execute(sql["checkpoint"], (len(state), len(starts), state_digest(state), sequence))
