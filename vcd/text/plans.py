"""Parts of a plan as text, for replay and explain."""

from __future__ import annotations

from vcd.model import events as ev
from vcd.model.wording import quantities_in_words
from vcd.scheduling.framework.declared_reasons import told
from vcd.text.reason_sentences import gates_text


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
