"""Deciding logged sessions again: the same input must give the same plan, byte for byte (docs/laws.md, law 5)."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Any

import msgspec

from vcd.eventlog import LogError, LogReader, SessionInfo
from vcd.model import events as ev
from vcd.model.words import counted
from vcd.scheduling.decide import decide, versions
from vcd.scheduling.framework.policy import Policy
from vcd.scheduling.search.candidates import Memory
from vcd.scheduling.session.outside import Recorded
from vcd.state.snapshot import Snapshot
from vcd.timetravel.history import History
from vcd.timetravel.parallel import Failed, Lost, Part, in_order
from vcd.timetravel.why.placement import choices
from vcd.timetravel.why.sentences import rates_in_words
from vcd.timetravel.words import operation_in_words, status_in_words, usage_in_words, waiting_in_words

LEAST = 50
"""How many sessions a process is begun for."""
PARTS = 4
"""Into how many parts the sessions of one process are cut."""


class Difference(msgspec.Struct, frozen=True):
    """The first thing in which two plans differ: where it is, what was recorded, what came out now, and what is known
    of the reason."""

    where: str
    recorded: str
    replayed: str
    why: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.where}: recorded {self.recorded}; replayed {self.replayed}"


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
    ``memory`` keeps what sessions computed for the next ones, as the daemon does; without it each stands alone.
    ``jobs`` processes share the sessions, each a part of them from the checkpoint before it on; 1 is this process
    alone, and whatever the number, what comes out is the same. ``total`` is told the number of sessions before the
    first one, ``advanced`` is called as each of them is decided, in any order. Raises LogError when the file cannot
    be used, has no such session, or holds what this version cannot read.
    """
    with LogReader(path) as reader:
        infos = list(reader.sessions(first, last))
        if not infos:
            raise LogError(f"event log {path}: {_no_session(first, last)}")
        total(len(infos))
        parts = _parts(infos, [info.sequence for info in reader.checkpoints()], jobs)
        if jobs == 1 or len(parts) == 1:
            for replayed in _replayed_part(History(reader), memory, (infos[0].number, infos[-1].number)):
                advanced()
                yield replayed
            return
    try:
        yield from in_order(_replaying, (path, memory), parts, jobs, LogError, advanced)
    except Failed as error:
        raise LogError(str(error)) from None
    except Lost as error:
        raise LogError(
            f"event log {path}: a process that replays it ended early, with {error.code}; try with fewer --jobs"
        ) from None


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


@contextmanager
def _replaying(path: str | Path, memory: bool) -> Iterator[Callable[[Part], Iterator[Replayed]]]:
    """The work of one process."""
    with LogReader(path) as reader:
        yield partial(_replayed_part, History(reader), memory)


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
    difference: Difference | None
    outside = Recorded(record.asked)
    try:
        plan = decide(
            snapshot, policy, record.now, record.seed, memory, outside=outside, interrupted=record.interrupted
        )
    except Exception as error:  # noqa: BLE001 - whatever deciding raises now, then it made a plan
        difference = Difference("deciding", "a plan", f"{type(error).__name__}: {error}")
    else:
        difference = None if ev.encode_plan(plan) == record.plan else first_difference(record.plan, plan)
        if difference is not None and (elsewhere := _bind_elsewhere(record.plan, plan)):
            why = _rated(snapshot, policy, record, *elsewhere)
            difference = msgspec.structs.replace(difference, why=why)
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
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


# --- differences ------------------------------------------------------------------------------------------------------


def first_difference(recorded: bytes, plan: ev.Plan) -> Difference:
    """Where a plan first departs from a recorded one: statements operation by operation, then the rest in order."""
    try:
        before = ev.decode_plan(recorded)
    except msgspec.MsgspecError as error:
        return Difference(
            "the recorded plan", f"{len(recorded)} bytes that this version cannot read: {error}", "a plan"
        )
    for found in (
        _in_statements(before.statements, plan.statements),
        _in_list("group status", before.groups, plan.groups, status_in_words),
        _in_list("queue usage", before.queues, plan.queues, usage_in_words),
        _in_list("reason to wait", before.waiting, plan.waiting, waiting_in_words),
        _in_list("fault", before.faults, plan.faults, str),
        _in_list("work left", (before.more,), (plan.more,), str),
    ):
        if found is not None:
            return found
    return Difference(
        "the encoded plan", f"{len(recorded)} bytes", f"{len(ev.encode_plan(plan))} bytes that say the same"
    )


def _in_statements(recorded: Sequence[ev.Statement], replayed: Sequence[ev.Statement]) -> Difference | None:
    for number, (before, after) in enumerate(zip_longest(recorded, replayed)):
        where = f"statement {number}"
        if before is None or after is None or (before.group, before.action) != (after.group, after.action):
            return Difference(where, _statement_in_words(before), _statement_in_words(after))
        where = f"{where} ({before.action} for {before.group})"
        found = _in_list(f"{where}, operation", before.operations, after.operations, operation_in_words)
        if found is not None:
            return found
    return None


def _bind_elsewhere(recorded: bytes, plan: ev.Plan) -> tuple[str, str, str] | None:
    """The pod, and its node then and now, where plans depart from each other with a bind to another node."""
    try:
        before = ev.decode_plan(recorded)
    except msgspec.MsgspecError:
        return None  # the difference says so
    for then, now in zip(before.statements, plan.statements, strict=False):
        if (then.group, then.action) != (now.group, now.action):
            return None
        for old, new in zip(then.operations, now.operations, strict=False):
            if old != new:
                moved = (old.verb, old.key) == ("bind", new.key) and new.verb == "bind" and old.node != new.node
                return (old.key, old.node, new.node) if moved else None
        if then != now:
            return None
    return None


def _rated(
    snapshot: Snapshot, policy: Policy, record: ev.SessionDecided, pod: str, then: str, now: str
) -> tuple[str, ...]:
    """How a pod's two nodes rate now, score by score; what they rated then is in no log."""
    choice = choices(snapshot, policy, record, [pod], {pod: then}).get(pod)
    if choice is None or choice.node != now:
        return (f"asked closer, {pod} goes to {'no node' if choice is None else choice.node}: a plugin is not pure",)
    if choice.nominated:
        return (f"{now} has the room that an earlier eviction made for {pod}",)
    rated = tuple(f"{one.node} rates {rates_in_words(one)} now" for one in choice.best if one.node == now)
    if choice.beside is not None:
        return (*rated, f"{then} rates {rates_in_words(choice.beside)} now")
    if then not in snapshot.facts.row_of:
        return (*rated, f"no node {then} was there")
    refused = ", ".join(f"{counted(count, 'node')} {reason}" for reason, count in choice.refused.items())
    return (*rated, f"{then} does not take {pod} now ({refused})")


def _statement_in_words(statement: ev.Statement | None) -> str:
    if statement is None:
        return "nothing"
    first = f", first {operation_in_words(statement.operations[0])}" if statement.operations else ""
    return f"{statement.action} for {statement.group} with {len(statement.operations)} operations{first}"


def _in_list(
    name: str, recorded: Sequence[Any], replayed: Sequence[Any], in_words: Callable[[Any], str]
) -> Difference | None:
    for number, (before, after) in enumerate(zip_longest(recorded, replayed)):
        if before != after:
            then, now = ("nothing" if one is None else in_words(one) for one in (before, after))
            return Difference(f"{name} {number}", then, now)
    return None
