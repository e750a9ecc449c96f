"""Deciding logged sessions again: the same input must give the same plan, byte for byte (docs/laws.md, law 5)."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache, partial
from itertools import pairwise
from pathlib import Path

import msgspec

from vcd.eventlog import LogError, SessionInfo
from vcd.model.words import counted
from vcd.scheduling.decide import RULES, RULES_VERSION, decide, rules_of, versions
from vcd.scheduling.search.candidates import Memory
from vcd.scheduling.session.outside import Recorded
from vcd.timetravel.differences import Difference, difference_from
from vcd.timetravel.history import History, opened
from vcd.timetravel.parallel import Part, in_order
from vcd.timetravel.why.placement import choices
from vcd.timetravel.why.sentences import rates_in_words

LEAST = 50
"""How many sessions a process is begun for."""
PARTS = 16
"""Into how many parts the sessions of one process are cut."""


class Replayed(msgspec.Struct, frozen=True, omit_defaults=True):
    """One session decided again.

    ``sequence`` is its event's; ``now`` the time it was decided for (ns since the epoch). ``difference`` is None
    when the plan came out byte-identical. ``versions`` tells what is of another version now than it was then, as
    name to (then, now); empty texts stand for what was not there.
    """

    session: int
    sequence: int
    head: int
    now: int
    epoch: int
    operations: int
    difference: Difference | None = None
    versions: dict[str, tuple[str, str]] = {}

    @property
    def other_rules(self) -> tuple[str, str] | None:
        """The version of the rules that decided it and of those that decide now; None where they are the same."""
        return self.versions.get(RULES)


def replay(
    path: str | Path,
    first: int | None = None,
    last: int | None = None,
    *,
    memory: bool = True,
    jobs: int = 1,
    total: Callable[[int], None] = lambda _: None,
    advanced: Callable[[], None] = lambda: None,
) -> Iterator[Replayed]:
    """Decide the sessions ``first`` to ``last`` (None: no bound) of a log again; gives them in order.

    Each is decided from the state folded up to its head, with the configuration, settings, time and seed of then.
    Without ``first`` it begins with the first session of which that state is still in the log.
    ``memory`` keeps what sessions computed for the next ones, as the daemon does; without it each stands alone.
    ``jobs`` processes share the sessions, each a part of them from the checkpoint before it on; 1 is this process
    alone, and whatever the number, what comes out is the same. ``total`` is told the number of sessions before the
    first one, ``advanced`` is called for each of them. Raises LogError when the file cannot be used, has no such
    session, or holds what this version cannot read.
    """

    def finished(count: int) -> None:
        for _ in range(count):
            advanced()

    with opened(path) as history:
        infos = list(history.reader.sessions(first, last))
        if first is None:
            infos = history.reader.sessions_with_state(last=last) or infos
        if not infos:
            raise LogError(f"event log {path}: {_no_session(first, last)}")
        total(len(infos))
        parts = _parts(infos, [info.sequence for info in history.reader.checkpoints()], jobs)
        if jobs == 1 or len(parts) == 1:
            for replayed in _replayed_part(history, memory, (infos[0].number, infos[-1].number)):
                advanced()
                yield replayed
            return
    try:
        yield from in_order(partial(_replayed_there, str(path), memory), parts, jobs, finished)
    except BrokenProcessPool:
        raise LogError(f"event log {path}: a process that replays it ended early; try with fewer --jobs") from None


def _parts(infos: Sequence[SessionInfo], checkpoints: Sequence[int], jobs: int) -> list[Part]:
    """Where the sessions are cut, as first and last number: several parts for each of the processes so that they end
    together, a checkpoint rather than any other place, and none so small that folding up to it costs more than it
    saves."""
    full = max(LEAST, -(-len(infos) // (jobs * PARTS)))
    parts = [(infos[0].number, infos[0].number)]
    size = 1
    for before, info in pairwise(infos):
        passed = bisect.bisect(checkpoints, info.head) > bisect.bisect(checkpoints, before.head)
        if size >= full or (passed and 2 * size >= full):
            parts.append((info.number, info.number))
            size = 0
        parts[-1] = (parts[-1][0], info.number)
        size += 1
    return parts


def _replayed_there(path: str, memory: bool, part: Part) -> Iterator[Replayed]:
    """A part, in a process of its own, which goes on from where its last one ended."""
    return _replayed_part(_kept_open(path), memory, part)


@lru_cache(maxsize=1)
def _kept_open(path: str) -> History:
    return opened(path)


def _replayed_part(history: History, memory: bool, part: Part) -> Iterator[Replayed]:
    shared = Memory() if memory else None
    for position, info in enumerate(list(history.reader.sessions(*part))):
        history.state(info.head, jump=position == 0)
        yield _replayed(history, info, shared)


def _no_session(first: int | None, last: int | None) -> str:
    if first is not None and first == last:
        return f"session {first} is not in it"
    if first is None and last is None:
        return "it has no sessions"
    return f"it has no sessions from {first or 1} to {last or 'the end'}"


def _replayed(history: History, info: SessionInfo, memory: Memory | None) -> Replayed:
    snapshot = history.snapshot(info)
    record = history.reader.session(info.number)
    policy = history.policy(record)
    difference: Difference | None = None
    outside = Recorded(record.asked)
    try:
        plan = decide(
            snapshot, policy, record.now, record.seed, memory, outside=outside, interrupted=record.interrupted
        )
    except Exception as error:  # noqa: BLE001 - whatever deciding raises now, then it made a plan
        difference = Difference("deciding", "a plan", f"{type(error).__name__}: {error}")
    else:
        difference = difference_from(record, plan, partial(_rated, history, info.number, rules_of(record.versions)))
        if difference is None and (departure := outside.departure()):
            difference = Difference(*departure)
    return Replayed(
        session=info.number,
        sequence=info.sequence,
        head=info.head,
        now=info.now,
        epoch=info.epoch,
        operations=info.operations,
        difference=difference,
        versions=_moved(record.versions, versions()),
    )


def _moved(then: dict[str, str], now: dict[str, str]) -> dict[str, tuple[str, str]]:
    names = sorted(then.keys() | now.keys())
    pairs = {name: (then.get(name, ""), now.get(name, "")) for name in names}
    pairs[RULES] = rules_of(then), rules_of(now)
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _rated(history: History, session: int, rules: str, pod: str, then: str, now: str) -> tuple[str, ...]:
    """How a pod's two nodes rate now, score by score; what they rated then is in no log."""
    choice = choices(history, session, [pod], {pod: then}).get(pod)
    if choice is None or choice.node != now:
        other = "no node" if choice is None else choice.node
        cause = "a plugin is not pure" if rules == RULES_VERSION else f"it was decided by rules {rules}"
        return (f"asked closer, {pod} goes to {other}: {cause}",)
    if choice.nominated:
        return (f"{now} has the room that an earlier eviction made for {pod}",)
    rated = tuple(f"{one.node} rates {rates_in_words(one)} now" for one in choice.best if one.node == now)
    if choice.beside is not None:
        return (*rated, f"{then} rates {rates_in_words(choice.beside)} now")
    if then not in history.state(history.reader.session(session).head).nodes:
        return (*rated, f"no node {then} was there")
    refused = ", ".join(f"{counted(count, 'node')} {reason}" for reason, count in choice.refused.items())
    return (*rated, f"{then} does not take {pod} now ({refused})")
