"""Operations on log files: list, verify, export, compact."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from vcd import eventlog
from vcd.diagnosis import log_fold
from vcd.eventlog import Head as Head
from vcd.eventlog import LogError as LogError
from vcd.eventlog import Logged, LogReader
from vcd.eventlog import Verified as Verified
from vcd.eventlog import Written as Written
from vcd.model.events import PolicyLoaded
from vcd.model.wording import did_you_mean, rfc3339
from vcd.scheduling.framework.policy import digest_of
from vcd.state.cluster_state import ClusterState
from vcd.timetravel.log_times import time_before
from vcd.timetravel.query_errors import NotFound

if TYPE_CHECKING:
    from vcd.eventlog.archive.restoration import Restored as Restored
    from vcd.timetravel.anonymise.anonymised_log import Anonymised as Anonymised

_POLL_SECONDS = 0.2
LONG = 20_000
"""Events above which another process is started to fold them."""


class Compacted(msgspec.Struct, frozen=True):
    """The result of compaction: the number of removed events, and the file's size in bytes before and after."""

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
    """Yield the events of a kind (in any case), an object key or a type, from one sequence number to another, as plain
    data.

    Raises LogError, and NotFound for an unknown kind.
    """
    with LogReader(path) as reader:
        after = first - 1 if first else 0
        kind = None if kind is None else _kind_in(reader, kind)
        found = reader.find(kind=kind, key=key, type=type, after=after, until=last, limit=limit)
        yield from map(eventlog.format_event_line, found)


def _kind_in(reader: LogReader, word: str) -> str:
    """Return the kind that a word means: one that this version knows, or another one in the log."""
    from vcd.scheduling.framework.registry import kinds  # a slow import

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
    """Yield the sessions from one number to another, as plain data. Raises LogError."""
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
    last: Mapping[str, Any] | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield the last events as plain data; with ``follow``, then all appended events, without end, or as long as it
    returns True.

    With ``last``, an event from another copy of the log as yielded here, start after that event instead. If the log
    does not have it, the log was started again from nothing, and all events are yielded. Raises LogError.
    """
    with LogReader(path) as reader:
        after = reader.head()
        if last is not None:
            first = reader.read(_place_of(reader, last))
        else:
            first = reader.last(count) if count else iter(())
        for logged in first:
            after = max(after, logged.sequence)
            yield eventlog.format_event_line(logged)
        if follow:
            goes_on = follow if callable(follow) else lambda: True
            yield from map(eventlog.format_event_line, _following(reader, after, goes_on))


def _place_of(reader: LogReader, last: Mapping[str, Any]) -> int:
    """Return the sequence number of an event that was yielded; 0 if it is not in this log."""
    sequence: int = last["sequence"]
    there = reader.find(after=sequence - 1, until=sequence)
    return sequence if any(eventlog.format_event_line(logged) == last for logged in there) else 0


def _following(reader: LogReader, after: int, goes_on: Callable[[], bool]) -> Iterator[Logged]:
    while goes_on():
        for logged in reader.read(after):
            after = logged.sequence
            yield logged
        time.sleep(_POLL_SECONDS)


def verify(path: str | Path, noted: Head | None = None) -> Verified:
    """Verify a log file: see ``vcd.eventlog.log_verification``.

    In addition, the state is folded between checkpoints, and must equal them (docs/laws.md, law 1), and each session's
    configuration must exist. Raises LogError if the file cannot be opened, or a worker process ends early.
    """
    with LogReader(path) as reader:
        is_long = reader.head() > LONG
    found = (
        _verify_with_worker(path, noted)
        if is_long
        else eventlog.verify(path, log_fold.fold, noted, is_same=log_fold.is_same)
    )
    if found.problems:
        return found
    with LogReader(path) as reader:
        missing = [f"configuration {digest} is missing" for (digest,) in reader.rows("missing_policies")]
        loaded = {logged.event.digest for logged in reader.policies() if isinstance(logged.event, PolicyLoaded)}
        others = [(digest, text) for digest, text, _ in reader.rows("policies") if digest not in loaded]
    # a text is logged without credentials, so its digest differs from that of the text that was read
    unproven = [
        f"the text of configuration {digest} is not in the chain, and not all that was read"
        for digest, text in others
        if digest_of(text) != digest
    ]
    return msgspec.structs.replace(found, problems=missing, uncovered=[*found.uncovered, *unproven])


def _verify_here(path: str | Path, noted: Head | None) -> Verified:
    return eventlog.verify(path, log_fold.fold, noted, is_same=log_fold.is_same)


def _verify_with_worker(path: str | Path, noted: Head | None) -> Verified:
    """Verify a log with another process that folds the events, if there is a processor for it."""
    from vcd.timetravel.process_pool import processors, worker_process  # slow imports

    if processors() == 1:
        return _verify_here(path, noted)
    with worker_process() as begin:
        return eventlog.verify(path, log_fold.fold, noted, begin, log_fold.is_same)


def export(path: str | Path, out: str | Path, first: int | None = None, last: int | None = None) -> Written:
    """Write sessions of a log into a new, self-contained file: see ``vcd.eventlog.export``. Raises LogError."""
    return eventlog.export(path, out, log_fold.fold, first, last)


def anonymise(path: str | Path, out: str | Path, first: int | None = None, last: int | None = None) -> Anonymised:
    """Do the same without names: see ``vcd.timetravel.anonymise.anonymised_log``. Raises LogError."""
    from vcd.timetravel.anonymise import anonymised_log  # imported here: few commands need it

    return anonymised_log.anonymised(path, out, log_fold.fold, first, last)


def restore(
    where: str, out: str | Path, at: str | None = None, last: int | None = None, epoch: int | None = None
) -> Restored:
    """Write the newest log of an archive (a directory, or ``s3://BUCKET/PREFIX``) into a new file: as of a time, up to
    a session, or as of a leader's epoch, if given. See ``vcd.eventlog.archive``. Raises LogError and BadTime."""
    import asyncio  # a slow import

    from vcd.eventlog.archive import restoration

    moment = None if at is None else time_before(restoration.ends_at(where), at)
    return asyncio.run(restoration.restore(restoration.RestoreJob(where, str(out), moment, last, epoch)))


def check_archive(where: str) -> Verified:
    """Verify an archive: see ``vcd.eventlog.archive.archive_verification``. Raises LogError."""
    from vcd.eventlog.archive.archive_verification import check

    return check(where)


def policy_in_force(path: str | Path) -> str | None:
    """Return the text of the configuration with which a log was last decided, or None. Raises LogError."""
    with LogReader(path) as reader:
        loaded = deque(reader.policies(), maxlen=1)
        if loaded and isinstance(loaded[0].event, PolicyLoaded):
            return loaded[0].event.text
        base = reader.latest_checkpoint()
    policy = None if base is None else ClusterState.load(base.state).policy
    return None if policy is None else policy.text


def compact(path: str | Path, max_age: int | None = None, max_bytes: int | None = None) -> Compacted:
    """Rewrite a log without free space, in this version's schema; no process may be writing it.

    First removes history older than ``max_age`` (ns), or that makes the file larger than ``max_bytes``, up to a
    checkpoint; the newest checkpoint stays. Raises LogError.
    """
    removed = 0
    if max_age is not None or max_bytes is not None:
        import asyncio  # a slow import

        removed = asyncio.run(_retain(Path(path), max_age, max_bytes))
    return Compacted(removed, *eventlog.compact(path))


async def _retain(path: Path, max_age: int | None, max_bytes: int | None) -> int:
    async with eventlog.EventLog.open(path, create=False) as opened:
        return (await opened.retain(max_age, max_bytes)).removed
