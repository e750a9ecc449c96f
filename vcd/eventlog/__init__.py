"""The event log: one SQLite file that holds everything the scheduler saw and decided."""

from vcd.eventlog.errors import LogError
from vcd.eventlog.log import EventLog
from vcd.eventlog.plain import event_line
from vcd.eventlog.reader import (
    Checkpoint,
    CheckpointInfo,
    LogReader,
    OperationInfo,
    Segment,
    SessionInfo,
)
from vcd.eventlog.retention import Retained
from vcd.eventlog.rows import Logged
from vcd.eventlog.transfer import Written, compact, export, import_logs
from vcd.eventlog.verify import Fold, verify

__all__ = [
    "Checkpoint",
    "CheckpointInfo",
    "EventLog",
    "Fold",
    "LogError",
    "LogReader",
    "Logged",
    "OperationInfo",
    "Retained",
    "Segment",
    "SessionInfo",
    "Written",
    "compact",
    "event_line",
    "export",
    "import_logs",
    "verify",
]
