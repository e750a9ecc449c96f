"""What is to be known of a log before anything else: that it is a shadow's, that another scheduler is at work, or that
a fault of the installation keeps vcd from its work."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from vcd.eventlog import LogReader
from vcd.model import events as ev
from vcd.model.installation import faults_in_words
from vcd.model.words import counted
from vcd.state.checkpoint import faults_of

_LATELY = 20_000
"""Events of the log's end that are looked through."""


def remarks(reader: LogReader, *, named: bool = True) -> list[str]:
    """Return the remarks on a log as it is now, in sentences. Raises LogError.

    Unless ``named``, faults of the installation are without their subjects and messages, which may name objects of any
    namespace.
    """
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
    return [*found, *faults_in_words(open_faults(reader).values(), named=named)]


def open_faults(reader: LogReader) -> dict[str, ev.InstallationFault]:
    """Return the faults of the installation that last at the log's end, by their keys. Raises LogError."""
    newest = max((info.sequence for info in reader.checkpoints()), default=0)
    faults = dict(_checkpointed(reader, newest)) if newest else {}
    for logged in reader.find(type="fault", after=newest):
        if isinstance(fault := logged.event, ev.InstallationFault):
            faults.pop(fault.key, None)
            if fault.message:
                faults[fault.key] = fault
    return faults


@lru_cache(maxsize=1)
def _checkpointed(reader: LogReader, sequence: int) -> Mapping[str, ev.InstallationFault]:
    """The faults in a checkpoint: the page asks for them every few seconds."""
    found = reader.latest_checkpoint(sequence)
    return {} if found is None else faults_of(found.state)


def _foreign(reader: LogReader) -> int:
    """How many pods somebody else bound since a replica last won the Lease, of late."""
    after, won = max(0, reader.head() - _LATELY), 0
    for logged in reader.find(type="leadership", after=after):
        if isinstance(logged.event, ev.LeadershipChanged) and logged.event.leading:
            won = logged.sequence
    return sum(1 for _ in reader.find(type="foreign", after=max(after, won)))
