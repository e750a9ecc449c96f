"""A log folded again: the same state from its beginning, from any state that was kept, and in the daemon's memory; and
each session decided again from such a state, with nothing that the process remembered."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tests.simulation.replica import Machine
from vcd.eventlog import LogReader
from vcd.eventlog.log_reader import SessionInfo
from vcd.model import events as ev
from vcd.scheduling.decide import decide
from vcd.scheduling.session.outside import Recorded
from vcd.state.cluster_state import ClusterState
from vcd.state.snapshot import SnapshotMaker
from vcd.timetravel.history import History

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation


class Folding:
    """Folds a log twice in parallel: all of it, and from the state that was kept at the session before."""

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim
        self._log = Path()
        self._same_plan: set[bytes] = set()
        """Digests of the states and sessions of which the plan was the same again: copies of one log share them."""

    def holds(self, log: Path, machine: Machine | None) -> None:
        """Look through a log; ``machine`` is the one that writes it now."""
        self._log = log
        with LogReader(log) as reader, History(LogReader(log)) as history:
            kept = history.oldest().dump()
            for info in reader.sessions_with_state():
                whole = history.state(info.head).dump()
                if not self._same(_folded(reader, kept, info.head), whole, f"at session {info.number}"):
                    return
                self._decided_again(history, info, whole)
                kept = whole
            if machine is not None and machine.service is not None and machine.service.state_writer.whole.is_set():
                state = machine.service.state_writer.state
                whole = history.state(state.sequence).dump()
                if self._same(_folded(reader, kept, state.sequence), whole, "at the end"):
                    self._same(state.dump(), whole, "as the daemon has it")

    def _same(self, found: bytes, whole: bytes, where: str) -> bool:
        if found != whole:
            self._sim.violated("state is the log, folded", f"{self._log.parent.name} {where}")
        return found == whole

    def _decided_again(self, history: History, info: SessionInfo, state: bytes) -> None:
        record = history.reader.session(info.number)
        if not self._shown(history, info.head, record.policy):
            what = f"{self._log.parent.name}, session {info.number}: the log shows its configuration only later"
            self._sim.violated("replay", what)
        policy = history.policy(record)
        digest = hashlib.sha256(state + msgspec.msgpack.encode(record)).digest()
        if digest in self._same_plan:
            return
        snapshot = SnapshotMaker(ClusterState.load(state)).snapshot()
        asked = Recorded(record.asked)
        plan = decide(snapshot, policy, record.now, record.seed, outside=asked, interrupted=record.interrupted)
        if ev.encode_plan(plan) == record.plan:
            self._same_plan.add(digest)
        else:
            what = f"{self._log.parent.name}, session {info.number}: decided from a state that was kept, it is another"
            self._sim.violated("replay", what)

    def _shown(self, history: History, head: int, policy: str) -> bool:
        """Whether a configuration was in force before an event by the log; what retention took away may have been."""
        reader = history.reader
        loaded = [event for each in reader.policies(until=head) if isinstance(event := each.event, ev.PolicyLoaded)]
        return reader.oldest() > 0 or policy in [event.digest for event in loaded]


def _folded(reader: LogReader, kept: bytes, until: int) -> bytes:
    """The state after an event, from one that was kept before it."""
    state = ClusterState.load(kept)
    for logged in reader.read(state.sequence, until):
        state.apply(logged.sequence, logged.event)
    return state.dump()
