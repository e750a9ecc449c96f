"""Deciding logged sessions again: the same input must give the same plan, byte for byte (design law 5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import msgspec

from vcd.eventlog import LogError, LogReader, SessionInfo
from vcd.model import events as ev
from vcd.scheduling.candidates import Memory
from vcd.scheduling.decide import decide, versions
from vcd.scheduling.outside import Recorded
from vcd.timetravel.history import History
from vcd.timetravel.words import operation_in_words, status_in_words, usage_in_words, waiting_in_words


class Difference(msgspec.Struct, frozen=True):
    """The first thing in which two plans differ: where it is, what was recorded, what came out now."""

    where: str
    recorded: str
    replayed: str

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
    total: Callable[[int], None] = lambda _: None,
) -> Iterator[Replayed]:
    """Decide the sessions ``first`` to ``last`` (None: no bound) of a log again, one after the other.

    Each is decided from the state folded up to its head, with the configuration, settings, time and seed of then.
    ``memory`` keeps what sessions computed for the next ones, as the daemon does; without it each stands alone.
    ``total`` is told the number of sessions before the first one. Raises LogError when the file cannot be used,
    has no such session, or holds what this version cannot read.
    """
    with LogReader(path) as reader:
        infos = list(reader.sessions(first, last))
        if not infos:
            raise LogError(f"event log {path}: {_no_session(first, last)}")
        total(len(infos))
        history = History(reader)
        shared = Memory() if memory else None
        for info in infos:
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
            words = ["nothing" if one is None else in_words(one) for one in (before, after)]
            return Difference(f"{name} {number}", *words)
    return None
