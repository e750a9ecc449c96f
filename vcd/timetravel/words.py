"""Parts of a plan as text, for replay and explain."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from vcd.model import events as ev
from vcd.model.words import quantities_in_words, rfc3339
from vcd.scheduling.framework.reasons import told
from vcd.text.reasons import gates_text

ANOTHER = "a job of another namespace"
"""The name of a job whose real name may not be reported."""
UID = re.compile(r"-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""The suffix of the group's name of a Volcano Job."""


def operation_in_words(operation: ev.Operation) -> str:
    """Return what an operation does to which pod, where, and why."""
    match operation.verb:
        case "bind":
            words = f"bind {operation.key} to {operation.node}"
        case "pipeline":
            words = f"hold capacity on {operation.node} for {operation.key}"
        case "ungate":
            words = f"lift the queue's scheduling gate of {operation.key}"
        case "evict":
            words = f"evict {operation.key} from {operation.node}"
    return f"{words} ({operation.reason})" if operation.reason else words


def status_in_words(status: ev.GroupStatus) -> str:
    """Return a group's phase, its counts and its condition."""
    words = f"{status.key} {status.phase}"
    counted = (("running", status.running), ("succeeded", status.succeeded), ("failed", status.failed))
    counts = [f"{count} {name}" for name, count in counted if count]
    if counts:
        words += f" with {', '.join(counts)}"
    if status.condition is not None:
        kind, value, reason, message = status.condition
        words += f", condition {kind}={value} {reason}" + (f": {message}" if message else "")
    return f"{words} (was {status.was})" if status.was else words


def usage_in_words(usage: ev.QueueUsage) -> str:
    """Return what a queue has allocated."""
    return f"queue {usage.name} has {quantities_in_words(usage.allocated) or 'nothing'} allocated"


def waiting_in_words(waiting: ev.Waiting) -> str:
    """Return which group waits where for what."""
    if not waiting.gate:
        return f"{waiting.group} waits no more"
    return f"{waiting.group} waits {gates_text([told(waiting)])}"


def clock(nanoseconds: int) -> str:
    """Return a time in nanoseconds since the epoch as text in UTC, to the second."""
    return datetime.fromtimestamp(nanoseconds // 1_000_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def moment(nanoseconds: int) -> str:
    """Return a time in nanoseconds since the epoch as RFC 3339, in UTC, to the millisecond."""
    return rfc3339(nanoseconds, 3)


def clock_time(nanoseconds: int) -> str:
    """Return the time of day (UTC) of a time in ns: ``09:22:38``."""
    return moment(nanoseconds)[11:19]
