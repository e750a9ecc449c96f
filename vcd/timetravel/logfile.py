"""What people do with log files: list, prove sound, make others of them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from vcd import eventlog
from vcd.diagnosis import folding
from vcd.eventlog import Head as Head
from vcd.eventlog import LogError as LogError
from vcd.eventlog import Logged, LogReader
from vcd.eventlog import Verified as Verified
from vcd.eventlog import Written as Written
from vcd.model.events import PolicyLoaded
from vcd.model.words import did_you_mean, rfc3339
from vcd.scheduling.framework.policy import digest_of
from vcd.state.cluster import ClusterState
from vcd.timetravel.errors import NotFound
from vcd.timetravel.times import time_before

if TYPE_CHECKING:
    from vcd.eventlog.archive.restoration import Restored as Restored
    from vcd.timetravel.anonymise.rewrite import Anonymised as Anonymised

_POLL_SECONDS = 0.2
LONG = 20_000
"""Events for the folding of which another process is begun."""


class Compacted(msgspec.Struct, frozen=True):
    """What compaction did: how many events it removed first, and the file's size in bytes before and after."""

    removed: int
    before: int
    after: int


def events(
    path: str | Path,
    *,
    kind: str | None = None,
    key: str | None = None,
    type: str | None = None,
    first: int | None = None,
    last: int | None = None,
    limit: int | None = None,
) -> Iterator[dict[str, Any]]:
    """The events of a kind (whatever its case), an object key or a type, from one sequence number to another, as plain
    data.

    Raises LogError, and NotFound for a kind that there is none of.
    """
    with LogReader(path) as reader:
        after = first - 1 if first else 0
        kind = None if kind is None else _kind_in(reader, kind)
        found = reader.find(kind=kind, key=key, type=type, after=after, until=last, limit=limit)
        yield from map(eventlog.format_event_line, found)


def _kind_in(reader: LogReader, word: str) -> str:
    """The kind that is meant: one of those that this version knows, or another one that the log has."""
    from vcd.scheduling.framework.registry import kinds  # which takes longer than most questions to a log

    known = {kind.casefold(): kind for kind in kinds()}
    if word.casefold() in known:
        return known[word.casefold()]
    if any(reader.find(kind=word, limit=1)):
        return word
    near, there = did_you_mean(word, known.values()), ", ".join(known.values())
    raise NotFound(f"there is no kind {word}{near}; there are {there}")


def sessions(
    path: str | Path, first: int | None = None, last: int | None = None, limit: int | None = None
) -> Iterator[dict[str, Any]]:
    """The sessions from one number to another, as plain data. Raises LogError."""
    with LogReader(path) as reader:
        for info in reader.sessions(first, last, limit):
            line: dict[str, Any] = msgspec.to_builtins(info)
            line["session"] = line.pop("number")
            yield line | {"time": rfc3339(info.time, 6), "now": rfc3339(info.now, 6)}


def tail(
    path: str | Path,
    count: int,
    *,
    follow: bool | Callable[[], bool] = False,
    told: Mapping[str, Any] | None = None,
) -> Iterator[dict[str, Any]]:
    """The last events as plain data; with ``follow`` then what is appended, as it comes, without end, or as long as it
    says so. In place of the last ones what comes after an event that was ``told``, as this gives it, of another copy of
    the log: all events where that is not one of them, since the log was begun anew.

    Raises LogError.
    """
    with LogReader(path) as reader:
        after = reader.head()
        if told is not None:
            first = reader.read(_place_of(reader, told))
        else:
            first = reader.last(count) if count else iter(())
        for logged in first:
            after = max(after, logged.sequence)
            yield eventlog.format_event_line(logged)
        if follow:
            goes_on = follow if callable(follow) else lambda: True
            yield from map(eventlog.format_event_line, _following(reader, after, goes_on))


def _place_of(reader: LogReader, told: Mapping[str, Any]) -> int:
    """The sequence number of an event that was told; 0 where it is not in this log."""
    sequence: int = told["sequence"]
    there = reader.find(after=sequence - 1, until=sequence)
    return sequence if any(eventlog.format_event_line(logged) == told for logged in there) else 0


def _following(reader: LogReader, after: int, goes_on: Callable[[], bool]) -> Iterator[Logged]:
    while goes_on():
        for logged in reader.read(after):
            after = logged.sequence
            yield logged
        time.sleep(_POLL_SECONDS)


def verify(path: str | Path, noted: Head | None = None) -> Verified:
    """Look through a log file: see ``vcd.eventlog.verify``.

    Beside the file itself, the state is folded anew between its checkpoints, and must be what they hold (docs/laws.md,
    law 1). Each session's configuration is there. Raises LogError when the file cannot be opened, or a process ends
    before its time.
    """
    with LogReader(path) as reader:
        is_long = reader.head() > LONG
    found = (
        _refolded_beside(path, noted)
        if is_long
        else eventlog.verify(path, folding.fold, noted, is_same=folding.is_same)
    )
    if found.problems:
        return found
    with LogReader(path) as reader:
        missing = [f"configuration {digest} is missing" for (digest,) in reader.rows("missing_policies")]
        loaded = {logged.event.digest for logged in reader.policies() if isinstance(logged.event, PolicyLoaded)}
        others = [(digest, text) for digest, text, _ in reader.rows("policies") if digest not in loaded]
    # what is logged of a text has no credentials in it, and then another digest than the text that was read
    unproven = [
        f"the text of configuration {digest} is not in the chain, and not all that was read"
        for digest, text in others
        if digest_of(text) != digest
    ]
    return msgspec.structs.replace(found, problems=missing, uncovered=[*found.uncovered, *unproven])


def _refolded_here(path: str | Path, noted: Head | None) -> Verified:
    return eventlog.verify(path, folding.fold, noted, is_same=folding.is_same)


def _refolded_beside(path: str | Path, noted: Head | None) -> Verified:
    """What is found of a log of which another process folds the events, where there is a processor for it."""
    from vcd.timetravel.parallel import beside, processors  # which take longer than most questions to a log

    if processors() == 1:
        return _refolded_here(path, noted)
    with beside() as begin:
        return eventlog.verify(path, folding.fold, noted, begin, folding.is_same)


def export(path: str | Path, out: str | Path, first: int | None = None, last: int | None = None) -> Written:
    """Write sessions of a log into a new file that stands alone: see ``vcd.eventlog.export``. Raises LogError."""
    return eventlog.export(path, out, folding.fold, first, last)


def anonymise(path: str | Path, out: str | Path, first: int | None = None, last: int | None = None) -> Anonymised:
    """The same without names, to be given away: see ``vcd.timetravel.anonymise.rewrite``. Raises LogError."""
    from vcd.timetravel.anonymise import rewrite  # which few who have to do with a log need

    return rewrite.anonymised(path, out, folding.fold, first, last)


def restore(
    where: str, out: str | Path, at: str | None = None, last: int | None = None, epoch: int | None = None
) -> Restored:
    """Write the newest log of an archive (a directory, or ``s3://BUCKET/PREFIX``) into a new file: as of a time, up to
    a session, or as of a leader's epoch, where given. See ``vcd.eventlog.archive``. Raises LogError and BadTime."""
    import asyncio  # which takes longer than most questions to a log

    from vcd.eventlog.archive import restoration

    moment = None if at is None else time_before(restoration.ends_at(where), at)
    return asyncio.run(restoration.restore(restoration.RestoreJob(where, str(out), moment, last, epoch)))


def check_archive(where: str) -> Verified:
    """Look through an archive: see ``vcd.eventlog.archive.verification``. Raises LogError."""
    from vcd.eventlog.archive.verification import check

    return check(where)


def policy_in_force(path: str | Path) -> str | None:
    """The text of the configuration that a log was last decided under, None where it holds none. Raises LogError."""
    with LogReader(path) as reader:
        loaded = deque(reader.policies(), maxlen=1)
        if loaded and isinstance(loaded[0].event, PolicyLoaded):
            return loaded[0].event.text
        base = reader.latest_checkpoint()
    policy = None if base is None else ClusterState.load(base.state).policy
    return None if policy is None else policy.text


def compact(path: str | Path, max_age: int | None = None, max_bytes: int | None = None) -> Compacted:
    """Rewrite a log without free room, in this version's schema; nobody may be writing it.

    First removes history older than ``max_age`` (ns), or that makes the file larger than ``max_bytes``, up to a
    checkpoint and never the newest. Raises LogError.
    """
    removed = 0
    if max_age is not None or max_bytes is not None:
        import asyncio  # which takes longer than most questions to a log

        removed = asyncio.run(_retain(Path(path), max_age, max_bytes))
    return Compacted(removed, *eventlog.compact(path))


async def _retain(path: Path, max_age: int | None, max_bytes: int | None) -> int:
    async with eventlog.EventLog.open(path, create=False) as opened:
        return (await opened.retain(max_age, max_bytes)).removed
