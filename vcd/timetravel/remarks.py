"""What is to be known of a log before anything else: that it is a shadow's, or that another scheduler is at work."""

from __future__ import annotations

from vcd.eventlog import LogReader
from vcd.model import events as ev
from vcd.model.words import counted

_LATELY = 20_000
"""Events of the log's end that are looked through."""


def remarks(reader: LogReader) -> list[str]:
    """The remarks on a log as it is now, in sentences. Raises LogError."""
    last = reader.last_session()
    found = []
    if any(info.epoch < 0 for info in reader.sessions(last, last)):
        found.append("a shadow's log: bound and evicted is what vcd would have, nothing of it was done (vcd shadow)")
    others = _foreign(reader)
    if others:
        found.append(
            f"somebody else binds pods of vcd's schedulerName: {counted(others, 'pod')} in the leader's last term "
            "(vcd log ls --type foreign)"
        )
    return found


def _foreign(reader: LogReader) -> int:
    """How many pods somebody else bound since a replica last won the Lease, of late."""
    after, won = max(0, reader.head() - _LATELY), 0
    for logged in reader.find(type="leadership", after=after):
        if isinstance(logged.event, ev.LeadershipChanged) and logged.event.leading:
            won = logged.sequence
    return sum(1 for _ in reader.find(type="foreign", after=max(after, won)))
