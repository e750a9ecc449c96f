"""The chain over the events: what it holds, where it begins, and that every way to make a file of a file keeps it."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.eventlog.samples import execute, fold, gone, outcome, put, session, write_history
from vcd.eventlog import EventLog, Head, LogError, LogReader, compact, export, verify
from vcd.eventlog.chain import Chain, seal_mark

SCHEMA_1 = Path(__file__).parents[1] / "data" / "older" / "schema-1.sqlite"
"""Written by a simulation of version 0.1.0 before there was a chain: 185 events, a checkpoint after the last."""
EXCHANGED = "UPDATE event SET payload = (SELECT payload FROM event WHERE sequence = 2) WHERE sequence = 8"


def head_of(path: Path) -> Head:
    """The head of a sound log."""
    found = verify(path, fold)
    assert (found.problems, found.uncovered) == ([], [])
    assert found.head is not None
    return found.head


def links(path: Path) -> dict[int, bytes | None]:
    """The link of each event."""
    with closing(sqlite3.connect(path)) as connection:
        return dict(connection.execute("SELECT sequence, chain FROM event"))


async def test_a_payload_exchanged_for_another_valid_one_is_found(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    await write_history(path, 2)
    execute(path, EXCHANGED.replace("= 8", "= 1"))
    (problem,) = verify(path).problems
    assert problem == "event 1 was changed or moved: its link does not match"


async def test_the_head_does_not_depend_on_how_events_came(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    events = [put(1), gone(1), put(2), session(1, 3), outcome(1)]
    async with EventLog.open(one, clock=lambda: 7) as log:
        await log.append(events)
    for event in events:
        async with EventLog.open(other, clock=lambda: 7) as log:
            await log.append([event])
    assert head_of(one) == head_of(other)


async def test_a_tail_that_was_cut_off_shows_by_a_head_that_was_noted(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    await write_history(path, 2)
    noted = head_of(path)
    execute(
        path,
        """
        DELETE FROM event WHERE sequence > 6; DELETE FROM session WHERE number > 1;
        DELETE FROM statement WHERE session > 1; DELETE FROM operation WHERE session > 1;
        DELETE FROM outcome WHERE session > 1; DELETE FROM group_event WHERE sequence > 6;
        """,
    )
    assert verify(path, fold).problems == []
    assert verify(path, fold, noted).problems == ["the log ends with event 6, before the noted event 12"]


async def test_a_chain_that_was_made_anew_shows_by_a_head_that_was_noted(tmp_path: Path) -> None:
    path, other = tmp_path / "log.sqlite", tmp_path / "other.sqlite"
    await write_history(path, 2)
    async with EventLog.open(other) as log:
        await log.append([gone(n) for n in range(20)])
    noted = head_of(path)
    assert verify(other, fold).problems == []
    assert verify(other, fold, noted).problems == [
        "event 12 does not have the noted link: it is another log, or was changed"
    ]


async def test_a_noted_head_stays_good_while_the_log_grows_and_loses_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    await write_history(path, 2, checkpoints=(1,))
    early = Head(6, links(path)[6] or b"")
    late = head_of(path)
    await write_history(path, 3, checkpoints=(4,))
    assert [verify(path, fold, noted).problems for noted in (early, late)] == [[], []]
    async with EventLog.open(path) as log:
        noted = Head(24, links(path)[24] or b"")
        await log.retain(max_age=0)
    assert verify(path, fold, noted).problems == []
    assert verify(path, fold, late).problems == ["the log begins with event 25, after the noted event 12"]


async def test_after_retention_the_chain_begins_with_the_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    await write_history(path, 3, checkpoints=(1, 2))
    before = head_of(path)
    async with EventLog.open(path) as log:
        await log.retain(max_age=0)
    assert head_of(path) == before
    execute(path, "UPDATE checkpoint SET chain = zeroblob(16)")
    assert any(problem.startswith("event 13 was changed or moved") for problem in verify(path).problems)


async def test_the_first_checkpoint_after_retention_cannot_be_exchanged(tmp_path: Path) -> None:
    """No fold leads to it: only the chain holds its state, in the event that was logged next."""
    path, other = tmp_path / "log.sqlite", tmp_path / "other.sqlite"
    await write_history(path, 3, checkpoints=(2,))
    await write_history(other, 3)
    async with EventLog.open(other) as log:
        await log.checkpoint(12, b"another state")
    async with EventLog.open(path) as log:
        await log.retain(max_age=0)
    exchange = f"""
        ATTACH '{other}' AS other;
        UPDATE checkpoint_part SET data = (SELECT data FROM other.checkpoint_part);
        UPDATE checkpoint SET (size, parts, digest) = (SELECT size, parts, digest FROM other.checkpoint);
    """
    execute(path, exchange)
    assert verify(path, fold).problems == ["checkpoint 12 was changed: its digest does not match the chain"]
    execute(path, "UPDATE seal SET digest = (SELECT digest FROM checkpoint)")
    assert verify(path, fold).problems == ["event 13 was changed or moved: its link does not match"]


async def test_a_log_without_events_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    await write_history(path, 2, checkpoints=(2,))
    before = head_of(path)
    async with EventLog.open(path) as log:
        await log.retain(max_age=0)
    assert head_of(path) == before
    async with EventLog.open(path) as log:
        await log.append([gone(1)])
    assert head_of(path).sequence == 13
    assert verify(path, fold, before).problems == []


async def test_compacting_keeps_the_chain(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    await write_history(path, 2)
    before = head_of(path)
    compact(path)
    assert head_of(path) == before


@pytest.mark.parametrize("first", [None, 3])
async def test_an_export_has_the_links_of_its_log(tmp_path: Path, first: int | None) -> None:
    path, out = tmp_path / "log.sqlite", tmp_path / "out.sqlite"
    await write_history(path, 4, checkpoints=(1, 2, 3))
    export(path, out, fold, first, 3)
    kept = links(out)
    assert kept == {sequence: links(path)[sequence] for sequence in kept}
    noted = head_of(path)
    await write_history(path, 1)
    assert verify(out, fold).problems == []
    assert verify(path, fold, verify(out, fold).head).problems == []
    assert verify(path, fold, noted).problems == []


async def test_an_export_says_that_the_chain_does_not_hold_the_state_it_begins_with(tmp_path: Path) -> None:
    path, out = tmp_path / "log.sqlite", tmp_path / "out.sqlite"
    await write_history(path, 4, checkpoints=(1,))
    export(path, out, fold, 3)
    assert verify(out, fold).uncovered == ["the state of checkpoint 15 is not in the chain"]


async def test_what_was_changed_is_not_exported(tmp_path: Path) -> None:
    path, out = tmp_path / "log.sqlite", tmp_path / "out.sqlite"
    await write_history(path, 3, checkpoints=(1,))
    execute(path, EXCHANGED)
    for make in (
        lambda: export(path, out, fold),
        lambda: export(path, out, fold, 3),  # it would be in the state that this begins with
    ):
        with pytest.raises(LogError, match="event 8 was changed after it was logged"):
            make()


async def test_a_checkpoint_that_was_changed_is_not_exported(tmp_path: Path) -> None:
    path, out = tmp_path / "log.sqlite", tmp_path / "out.sqlite"
    await write_history(path, 2, checkpoints=(1,))
    execute(path, "UPDATE checkpoint SET time = time + 1")
    with pytest.raises(LogError, match="checkpoint 6 was changed after it was logged"):
        export(path, out, fold)


async def test_a_log_of_before_the_chain_is_migrated_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    shutil.copy(SCHEMA_1, path)
    async with EventLog.open(path) as log:
        assert await log.append([gone(1), put(1)]) == 187
        await log.checkpoint(186, b"state")
        await log.append([gone(2)])
    found = verify(path)
    assert found.problems == []
    assert found.uncovered == [
        "events 1 to 185 were written before there was a chain",
        "the state of checkpoint 185 is not in the chain",
    ]
    assert found.head is not None
    assert found.head.sequence == 188
    execute(path, "UPDATE event SET resource_version = '9' WHERE sequence = 186")
    assert [problem.partition(" was ")[0] for problem in verify(path).problems] == ["event 186"]
    execute(path, "UPDATE event SET chain = NULL WHERE sequence = 187")
    assert any(problem.startswith("event 187 was changed or moved") for problem in verify(path).problems)


async def test_an_export_keeps_what_had_no_chain_without(tmp_path: Path) -> None:
    path, out = tmp_path / "log.sqlite", tmp_path / "out.sqlite"
    shutil.copy(SCHEMA_1, path)
    async with EventLog.open(path) as log:
        number = log.last_session + 1
        await log.append([put(1), session(number, 186), gone(1)])
    export(path, out, lambda state, _: state, None, number)
    assert links(out) == {sequence: link for sequence, link in links(path).items() if sequence in links(out)}
    assert verify(out).problems == []
    assert verify(out).head == verify(path).head


def test_events_of_an_older_log_are_written_as_they_were_read(tmp_path: Path) -> None:
    """Else their links in a copy would be others than in the log."""
    path, out = tmp_path / "log.sqlite", tmp_path / "out.sqlite"
    shutil.copy(SCHEMA_1, path)
    compact(path)
    export(path, out, lambda state, _: state)
    with LogReader(path) as reader, LogReader(out) as copy:
        rows = [[one.parse_row(row[:-1])[0] for row in one.cursor("chained")] for one in (reader, copy)]
    assert rows[0][-len(rows[1]) :] == rows[1]


def test_lengths_are_part_of_a_link() -> None:
    links = {
        Chain().extend((1, 1, "put", kind, key, "", payload))
        for kind, key, payload in [("ab", "c", None), ("a", "bc", None), ("ab", "c", b""), ("ab", "", b"c")]
    }
    assert len(links) == 4


MARKS = [
    seal_mark(5, 10, b"state"), seal_mark(6, 10, b"state"), seal_mark(5, 11, b"state"), seal_mark(5, 10, b"other"),
]  # fmt: skip
CONTENT = (6, 0, "put", "Pod", "default/p", "1", b"payload")


def test_a_link_depends_on_the_one_before_on_each_part_of_each_mark_and_on_each_part_of_the_event() -> None:
    found = []
    for before in (None, b"before"):
        for mark in (None, *MARKS):
            chain = Chain(before)
            if mark is not None:
                chain.mark(5, mark)
            found.append(chain.extend(CONTENT))
    for place, value in enumerate((7, 1, "gone", "Node", "default/q", "2", b"other")):
        other: Any = (*CONTENT[:place], value, *CONTENT[place + 1 :])
        found.append(Chain().extend(other))
    assert len(set(found)) == len(found) == 2 * 5 + 7
