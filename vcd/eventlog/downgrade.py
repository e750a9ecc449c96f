"""A log for an older vcd: the file taken back to the schema that it reads."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import msgspec
import zstandard

from vcd.eventlog.errors import LogError
from vcd.eventlog.packing import PART
from vcd.eventlog.reader import LogReader
from vcd.eventlog.rows import Row, digest_of
from vcd.eventlog.statements import statements
from vcd.eventlog.store import migrations, opened_to_write, split_script, transaction
from vcd.model.events import decode_plan


class Version(msgspec.Struct, frozen=True):
    """What a version reads: the schema of its log, and types of events."""

    schema: int
    types: frozenset[str]


_FIRST = "put gone bad listed policy leadership clock answer late session outcome"
VERSIONS = {"0.1.0": Version(1, frozenset(_FIRST.split()))}
"""By the name of the version."""
Older = Callable[[bytes], bytes]
"""An encoded state to the same in the words of versions whose checkpoints have no tables."""


class Downgraded(msgspec.Struct, frozen=True):
    """What was done: the file's schema before and after, and what of it is no more, in sentences."""

    before: int
    after: int
    lost: list[str]


def downgrade(path: str | Path, version: str, older: Older) -> Downgraded:
    """Take a log, which nobody may be writing, to the schema that a version reads, in one transaction.

    Raises LogError, and changes nothing, for a version to which that cannot be done, or a file that cannot be used.
    """
    if version not in VERSIONS:
        known = ", ".join(VERSIONS)
        raise LogError(f"event log {path}: version {version} is none whose schema is known; there are {known}")
    after, before = VERSIONS[version].schema, migrations()[-1][0]
    sql = statements("downgrade")
    with (
        opened_to_write(Path(path)) as connection,
        LogReader(path) as reader,
        reader.pinned(),
        transaction(connection),
    ):  # the reader sees the file as it was
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
    return Downgraded(before, after, ["the chain: whether anything was changed cannot be told any more"])


def _bases(reader: LogReader) -> set[int]:
    """Return the sequences of the checkpoints whose state no earlier event or checkpoint leads to.

    The older version's checkpoints lack part of the state. Only these are stored without it; the state at every other
    place is folded from the events, which have all of it.
    """
    starts = [0, *(segment.sequence for segment in reader.segments())]
    found = {
        max(start for start in starts if start <= each.sequence): each.sequence for each in reader.checkpoints()[::-1]
    }
    if reader.first() == 1:
        found.pop(0, None)
    return set(found.values())


def _check_readable(reader: LogReader, version: str) -> None:
    """Raises LogError for events that a version does not know: it could read nothing of the file."""
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
    """The rows of schema 1's index of groups: those that a session acted for, or set the status of."""
    plan = decode_plan(reader.session(number).plan)
    named = {statement.group for statement in plan.statements} | {status.key for status in plan.groups}
    return [(group, number) for group in sorted(named)]


def _write_state(connection: sqlite3.Connection, sequence: int, state: bytes) -> None:
    sql, starts = statements("downgrade"), range(0, len(state), PART)
    connection.execute(sql["parts"], (sequence,))
    parts = [(sequence, part, zstandard.compress(state[start : start + PART], 3)) for part, start in enumerate(starts)]
    connection.executemany(statements("checkpoint")["part"], parts)
    connection.execute(sql["checkpoint"], (len(state), len(starts), digest_of(state), sequence))
