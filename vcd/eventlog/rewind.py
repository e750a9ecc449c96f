"""Remove the end of a log, when a copy has events that the leader's log does not have."""

from __future__ import annotations

from pathlib import Path

from vcd.eventlog.log_errors import LogError
from vcd.eventlog.log_file import open_for_writing, transaction
from vcd.eventlog.log_reader import LogReader
from vcd.eventlog.sql_statements import statements
from vcd.model.events import PolicyLoaded

_TABLES = (
    "statement", "operation", "session", "outcome", "group_event", "checkpoint", "part", "seal", "event",
)  # fmt: skip


def rewind(path: str | Path, to: int) -> None:
    """Remove everything after event ``to``, as if it had never been logged. No writer may have the log open.

    Raises LogError and changes nothing if the history does not reach back that far.
    """
    with LogReader(path) as reader:
        base = reader.oldest()
        if not base <= to <= reader.head():
            raise LogError(f"event log {path}: it cannot go back to event {to}; it has {base} to {reader.head()}")
        loaded = {
            one.event.digest: one.sequence for one in reader.policies(until=to) if isinstance(one.event, PolicyLoaded)
        }
    sql = statements("rewind")
    with open_for_writing(Path(path)) as connection, transaction(connection):
        ((number,),) = connection.execute(sql["session_before"], {"to": to}).fetchall()
        for table in _TABLES:
            connection.execute(sql[table], {"to": to, "base": base})
        if number is not None:
            connection.execute(sql["number"], {"number": number})
        connection.executemany(
            sql["policy"], [{"digest": digest, "sequence": sequence} for digest, sequence in loaded.items()]
        )
        # if the log's beginning was removed, a configuration may have been loaded there
        connection.execute(sql["policy_of_before" if base else "policy_of_none"], {"to": to, "base": base})
