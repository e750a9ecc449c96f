"""What the logs of replicas tell of a storm. Old history may be gone from them."""

from __future__ import annotations

import contextlib
import itertools
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.real.stormlaws import BIND, EVICTION, Audit, clock, uid_of
from tests.real.stormtenants import BINDER
from vcd.eventlog import LogError, LogReader
from vcd.eventlog.rows import Logged
from vcd.model import events as ev

SESSIONS = 5
"""Sessions at most from the first one that sees a job of the innocent tenant to the one that decides its bind. While
faults keep the leader from reading the PodGroup again it is decided again (docs/laws.md, law 3)."""
BACK = 5000
"""Events by which a log goes back at most."""


class Intents:
    """What the sessions in a replica's log meant to do, and in those that it kept apart when it went back.

    ``look`` reads what is new while the storm lasts, since old history goes; ``read_all`` what is there at the end.
    """

    def __init__(self) -> None:
        self.waits: dict[str, int] = {}
        """How many sessions saw a pod and its PodGroup until one decided its bind, by the pod's key."""
        self._meant: dict[tuple[str, str, str], int] = {}
        self._head = 0

    def look(self, log: Path, keys: list[str]) -> None:
        """Read the sessions since the last look, and those that took the place of others when the log went back. Count
        the waits of these pods."""
        with contextlib.suppress(LogError):  # another file takes its place just now
            self._read(log, max(0, self._head - BACK))
            self._count(log, [key for key in keys if key not in self.waits])

    def _count(self, log: Path, keys: list[str]) -> None:
        with LogReader(log) as reader:
            first, heads = reader.first() or 1, {info.number: info.head for info in reader.sessions()}
            for key in keys:
                made = [one for one in reader.operations_of(key) if one.verb == "bind"]
                seen = [one.sequence for kind in ("Pod", "PodGroup") for one in first_of(reader, kind, key)]
                if made and len(seen) == 2 and first < min(seen) and (came := max(seen)) < made[0].sequence:
                    self.waits[key] = sum(came <= head for number, head in heads.items() if number <= made[0].session)

    def read_all(self, log: Path) -> None:
        """Read all sessions that are there."""
        for each in (log, *log.parent.glob(f"{log.stem}-apart-*{log.suffix}")):
            self._read(each, 0)

    def _read(self, log: Path, after: int) -> None:
        with LogReader(log) as reader:
            self._head = reader.head()
            for logged in reader.find(type="session", after=after):
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


def first_of(reader: LogReader, kind: str, key: str) -> list[Logged]:
    """The first event of an object that is there, as a list of one; empty for none."""
    return list(itertools.islice(reader.object_history(kind, key), 1))


def has_sessions(log: Path) -> bool:
    """Whether a log has any: those of a replica that has not led for long are old history."""
    with LogReader(log) as reader:
        return next(reader.sessions(limit=1), None) is not None


def held_back(log: Path) -> Iterator[str]:
    """The namespaces that a replica held back, but for that of the tenant that binds its own pods."""
    with LogReader(log) as reader:
        for logged in reader.find(type="foreign"):
            assert isinstance(logged.event, ev.ForeignBound)
            if logged.event.until and not logged.event.key.startswith(f"{BINDER}/"):
                yield f"held back although nobody binds pods there: {logged.event}"
