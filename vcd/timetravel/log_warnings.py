"""Remarks that precede any answer from a log: that it is a shadow's, that another scheduler binds the same pods, or
that a fault of the installation hinders vcd."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from vcd.eventlog import LogReader
from vcd.model import events as ev
from vcd.model.installation_faults import faults_in_words
from vcd.model.wording import counted
from vcd.state.checkpoint import faults_of
from vcd.text.log_templates import LOGS

_RECENT_EVENTS = 20_000
"""Events at the log's end that are examined."""


def remarks(reader: LogReader, *, named: bool = True) -> list[str]:
    """Return the remarks on a log as it is now, as sentences. Raises LogError.

    Unless ``named``, faults of the installation are without their subjects and messages, which may name objects of any
    namespace.
    """
    last = reader.last_session()
    found = []
    if any(info.epoch < 0 for info in reader.sessions(last, last)):
        found.append(LOGS["shadow"])
    others = _count_foreign_binds(reader)
    if others:
        found.append(LOGS.sentence("foreign", {"pods": counted(others, "pod")}))
    return [*found, *faults_in_words(open_faults(reader).values(), named=named)]


def open_faults(reader: LogReader) -> dict[str, ev.InstallationFault]:
    """Return the faults of the installation that persist at the log's end, by key. Raises LogError."""
    newest = max((info.sequence for info in reader.checkpoints()), default=0)
    faults = dict(_faults_in_checkpoint(reader, newest)) if newest else {}
    for logged in reader.find(type="fault", after=newest):
        if isinstance(fault := logged.event, ev.InstallationFault):
            faults.pop(fault.key, None)
            if fault.message:
                faults[fault.key] = fault
    return faults


@lru_cache(maxsize=1)
def _faults_in_checkpoint(reader: LogReader, sequence: int) -> Mapping[str, ev.InstallationFault]:
    """Return the faults in a checkpoint; cached, since the page reads them every few seconds."""
    found = reader.latest_checkpoint(sequence)
    return {} if found is None else faults_of(found.state)


def _count_foreign_binds(reader: LogReader) -> int:
    """Return how many pods another scheduler bound recently, since a replica last won the Lease."""
    after, won = max(0, reader.head() - _RECENT_EVENTS), 0
    for logged in reader.find(type="leadership", after=after):
        if isinstance(logged.event, ev.LeadershipChanged) and logged.event.leading:
            won = logged.sequence
    return sum(1 for _ in reader.find(type="foreign", after=max(after, won)))
