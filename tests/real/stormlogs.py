"""What the logs of replicas tell of a storm."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.real.stormlaws import BIND, EVICTION, Audit, clock, uid_of
from vcd.eventlog import LogReader
from vcd.eventlog.rows import Logged
from vcd.model import events as ev


class Intents:
    """What the sessions in a replica's log meant to do, and in those that it kept apart when it went back."""

    def __init__(self, log: Path) -> None:
        self._meant: dict[tuple[str, str, str], int] = {}
        for each in (log, *log.parent.glob(f"{log.stem}-apart-*{log.suffix}")):
            with LogReader(each) as reader:
                for logged in reader.find(type="session"):
                    self._take(logged)

    def _take(self, logged: Logged) -> None:
        assert isinstance(logged.event, ev.SessionDecided)
        for statement in logged.event.accepted().statements:
            for one in statement.operations:
                meant = (one.verb, one.uid, one.node)
                self._meant[meant] = min(logged.time, self._meant.get(meant, logged.time))

    def broken(self, audit: Audit, replica: str) -> Iterator[str]:
        """Binds and evictions of this replica that no session meant, or only later."""
        meant = defaultdict(list)
        for (verb, uid, place), at in self._meant.items():
            meant[verb, uid, place if verb == "bind" else ""].append(at)
        made = [("bind", each) for each in audit.of(BIND)] + [("evict", each) for each in audit.of(EVICTION, "delete")]
        for verb, write in made:
            if write.replica != replica:
                continue
            times = meant.get((verb, uid_of(write), write.body["target"]["name"] if verb == "bind" else ""))
            if times is None:
                yield f"in no session of its logs: {write}"
            elif min(times) / 1e9 > write.answered:
                yield f"meant after it was done: {write}, logged at {clock(min(times) / 1e9)}"
