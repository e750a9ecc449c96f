"""Taking back what a log has that the log it is a copy of does not."""

from __future__ import annotations

from pathlib import Path

from vcd.eventlog.errors import LogError
from vcd.eventlog.reader import LogReader
from vcd.eventlog.statements import statements
from vcd.eventlog.store import opened_to_write, transaction
from vcd.model.events import PolicyLoaded

_TABLES = (
    "statement", "operation", "session", "outcome", "group_event", "checkpoint", "part", "seal", "event",
)  # fmt: skip


def rewind(path: str | Path, to: int) -> None:
    """Take everything after an event out of a log, as if it had never been logged.

    Nobody may be writing it. Raises LogError, and changes nothing, where its history does not reach back so far, or it
    is an import.
    """
    with LogReader(path) as reader:
        base = reader.oldest()
        if not base <= to <= reader.head():
            raise LogError(f"event log {path}: it cannot go back to event {to}; it has {base} to {reader.head()}")
        if reader.segments():
            raise LogError(f"event log {path}: an import does not go back to an event")
        loaded = {
            one.event.digest: one.sequence for one in reader.policies(until=to) if isinstance(one.event, PolicyLoaded)
        }
    sql = statements("rewind")
    with opened_to_write(Path(path)) as connection, transaction(connection):
        ((number,),) = connection.execute(sql["session_before"], {"to": to}).fetchall()
        for table in _TABLES:
            connection.execute(sql[table], {"to": to, "base": base})
        if number is not None:
            connection.execute(sql["number"], {"number": number})
        connection.executemany(
            sql["policy"], [{"digest": digest, "sequence": sequence} for digest, sequence in loaded.items()]
        )
        # where the log has its beginning no more, any of them may have been loaded before
        connection.execute(sql["policy_of_before" if base else "policy_of_none"], {"to": to, "base": base})
