"""Decide logged sessions again: the same input must give the same plan, byte for byte (docs/laws.md, law 5)."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache, partial
from itertools import pairwise
from pathlib import Path

import msgspec

from vcd.eventlog import LogError, SessionInfo
from vcd.model.wording import counted
from vcd.scheduling.decide import RULES, RULES_VERSION, decide, rules_of, versions
from vcd.scheduling.search.candidates import Memory
from vcd.scheduling.session.outside import Recorded
from vcd.text.replay_templates import REPLAYS
from vcd.timetravel.history import History, opened
from vcd.timetravel.plan_differences import Difference, difference_from
from vcd.timetravel.process_pool import Part, in_order
from vcd.timetravel.why.episodefacts import rates_in_words
from vcd.timetravel.why.placement import Rated, choices

LEAST = 50
"""Sessions that a process is started for, at least."""
PARTS = 16
"""Parts into which the sessions of one process are cut."""


class Replayed(msgspec.Struct, frozen=True, omit_defaults=True):
    """One session decided again.

    ``sequence`` is its event's; ``now`` the time it was decided for (ns since the epoch). ``difference`` is None if
    the plan is byte-identical. ``versions`` has the versions that changed, as name to (then, now), with an empty text
    for a missing one.
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
        """The version of the rules that decided it and of the present ones; None if they are the same."""
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
    """Decide the sessions ``first`` to ``last`` (None: no bound) of a log again; yield them in order.

    Each is decided from the state folded up to its head, with its configuration, settings, time and seed. Without
    ``first`` the first one is the oldest session whose state is still in the log. With ``memory``, a session reuses
    what previous ones computed, as in the daemon. ``jobs`` processes share the sessions, each from a checkpoint on; 1
    uses this process only. The result does not depend on the number. ``total`` is called with the number of sessions
    before the first one, ``advanced`` for each of them. Raises LogError if the file cannot be used, has no such
    session, or contains what this version cannot read.
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
            for replayed in _replay_part(history, memory, (infos[0].number, infos[-1].number)):
                advanced()
                yield replayed
            return
    try:
        yield from in_order(partial(_replay_in_worker, str(path), memory), parts, jobs, finished)
    except BrokenProcessPool:
        raise LogError(f"event log {path}: a process that replays it ended early; try with fewer --jobs") from None


def _parts(infos: Sequence[SessionInfo], checkpoints: Sequence[int], jobs: int) -> list[Part]:
    """Cut the sessions into parts, as first and last number: several for each process so that they end together,
    preferably at checkpoints, and large enough that folding up to a part costs less than it saves."""
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


def _replay_in_worker(path: str, memory: bool, part: Part) -> Iterator[Replayed]:
    """Replay a part in a worker process, which continues from the state of its previous part."""
    return _replay_part(_cached_history(path), memory, part)


@lru_cache(maxsize=1)
def _cached_history(path: str) -> History:
    return opened(path)


def _replay_part(history: History, memory: bool, part: Part) -> Iterator[Replayed]:
    shared = Memory() if memory else None
    for position, info in enumerate(list(history.reader.sessions(*part))):
        history.state(info.head, jump=position == 0)
        yield _replay_session(history, info, shared)


def _no_session(first: int | None, last: int | None) -> str:
    if first is not None and first == last:
        return f"session {first} is not in it"
    if first is None and last is None:
        return "it has no sessions"
    return f"it has no sessions from {first or 1} to {last or 'the end'}"


def _replay_session(history: History, info: SessionInfo, memory: Memory | None) -> Replayed:
    snapshot = history.snapshot(info)
    record = history.reader.session(info.number)
    policy = history.policy(record)
    difference: Difference | None = None
    outside = Recorded(record.asked)
    try:
        plan = decide(
            snapshot, policy, record.now, record.seed, memory, outside=outside, interrupted=record.interrupted
        )
    except Exception as error:  # noqa: BLE001 - deciding succeeded when it was recorded, so any error is a difference
        difference = Difference("deciding", "a plan", f"{type(error).__name__}: {error}")
    else:
        difference = difference_from(
            record, plan, partial(_compare_scores, history, info.number, rules_of(record.versions))
        )
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
        versions=_changed_versions(record.versions, versions()),
    )


def _changed_versions(then: dict[str, str], now: dict[str, str]) -> dict[str, tuple[str, str]]:
    names = sorted(then.keys() | now.keys())
    pairs = {name: (then.get(name, ""), now.get(name, "")) for name in names}
    pairs[RULES] = rules_of(then), rules_of(now)
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _compare_scores(history: History, session: int, rules: str, pod: str, then: str, now: str) -> tuple[str, ...]:
    """Return how a pod's two nodes are scored now, score by score; the scores of then are not logged."""
    choice = choices(history, session, [pod], {pod: then}).get(pod)
    if choice is None or choice.node != now:
        other = "no node" if choice is None else choice.node
        cause = REPLAYS.sentence("impure" if rules == RULES_VERSION else "other rules", {"rules": rules})
        return (REPLAYS.sentence("other node", {"pod": pod, "node": other, "cause": cause}),)
    if choice.nominated:
        return (REPLAYS.sentence("nominated", {"node": now, "pod": pod}),)
    rated = tuple(_rated(now, one) for one in choice.best if one.node == now)
    if choice.beside is not None:
        return (*rated, _rated(then, choice.beside))
    if then not in history.state(history.reader.session(session).head).nodes:
        return (*rated, REPLAYS.sentence("node absent", {"node": then}))
    refused = ", ".join(f"{counted(count, 'node')} {reason}" for reason, count in choice.refused.items())
    return (*rated, REPLAYS.sentence("refused", {"node": then, "pod": pod, "refused": refused}))


def _rated(node: str, rates: Rated) -> str:
    return REPLAYS.sentence("rates", {"node": node, "rates": rates_in_words(rates)})
