"""The event log: one SQLite file with everything that the scheduler observed and decided."""

from typing import TYPE_CHECKING, Any

from vcd.eventlog.event_lines import format_event_line as format_event_line
from vcd.eventlog.log_errors import LogError as LogError
from vcd.eventlog.log_reader import LogReader as LogReader
from vcd.eventlog.log_reader import SessionInfo as SessionInfo
from vcd.eventlog.log_verification import Head as Head
from vcd.eventlog.log_verification import Verified as Verified
from vcd.eventlog.log_verification import verify as verify
from vcd.eventlog.rows import Logged as Logged
from vcd.eventlog.transfer import Written as Written
from vcd.eventlog.transfer import compact as compact
from vcd.eventlog.transfer import export as export
from vcd.eventlog.transfer import write_new_log as write_new_log

if TYPE_CHECKING:
    from vcd.eventlog.log_writer import EventLog as EventLog


def __getattr__(name: str) -> Any:
    if name == "EventLog":
        from vcd.eventlog.log_writer import EventLog

        return EventLog
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
