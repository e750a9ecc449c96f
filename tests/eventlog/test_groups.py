"""The index of what concerns a group: its pods, and the sessions that say something of it."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from tests.eventlog.samples import (
    SECOND,
    Clock,
    execute,
    fold,
    gone,
    put,
    write_history,
)
from vcd.eventlog import EventLog, LogReader, export, verify
from vcd.eventlog.log_errors import DamagedLog
from vcd.eventlog.log_file import migrate_copy
from vcd.model.events import ObjectPut
from vcd.model.projection_codec import decode_payload, encode_payload

SCHEMA_1 = Path(__file__).parents[1] / "data" / "older" / "schema-1.sqlite"
LAST = 1 << 60


def of_group(number: int, group: str) -> ObjectPut:
    """A put of a pod that names a group; of none, for an empty name."""
    event = put(number)
    pod = decode_payload("Pod", event.payload or b"")
    annotations = {"scheduling.k8s.io/group-name": group} if group else {}
    meta = msgspec.structs.replace(pod.metadata, annotations=annotations)
    return ObjectPut("Pod", event.key, "1", encode_payload(msgspec.structs.replace(pod, metadata=meta)))


def rows(path: Path) -> list[tuple[str, int]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT group_key, sequence FROM group_event ORDER BY sequence, group_key").fetchall()


async def test_pods_are_found_by_the_group_that_they_once_named(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    async with EventLog.open(path) as log:
        await log.append([put(1), of_group(1, "gang"), of_group(2, "gang-2"), of_group(1, ""), gone(1)])
        await log.append([ObjectPut("Pod", "ns/odd", "1", b"no pod"), ObjectPut("Pod", "ns/none", "1", None)])
    with LogReader(path) as reader:
        assert reader.pods_of("ns/gang", 0, LAST) == ["ns/pod-1"]
        assert reader.pods_of("ns/gang", 0, 1) == reader.pods_of("ns/gang", 2, LAST) == []
        assert reader.pods_of("ns/gang-2", 0, LAST) == ["ns/pod-2"]


async def test_sessions_are_found_by_the_groups_that_they_name(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    await write_history(path, 3)
    with LogReader(path) as reader:
        for group in ("ns/gang", "ns/other"):
            assert [logged.sequence for logged in reader.sessions_of(group, 0, None)] == [4, 10, 16]
        assert [logged.sequence for logged in reader.sessions_of("ns/gang", 4, 15)] == [10]
        assert list(reader.sessions_of("ns/gan", 0, None)) == []


async def test_what_retention_takes_away_is_out_of_the_index(tmp_path: Path) -> None:
    path, clock = tmp_path / "log.sqlite", Clock()
    await write_history(path, 4, checkpoints=(2,), clock=clock)
    async with EventLog.open(path, clock=clock) as log:
        await log.append([of_group(number, f"gang-{number}") for number in range(50)])
        await log.retain(max_age=90 * SECOND)
    assert {sequence for _, sequence in rows(path)} == {16, 22, *range(25, 75)}
    assert verify(path, fold).problems == []


def test_a_file_of_before_the_index_is_indexed_as_if_it_had_been_there(tmp_path: Path) -> None:
    copy = migrate_copy(SCHEMA_1, tmp_path)
    assert copy is not None
    with LogReader(copy) as reader:
        groups = {group for group, _ in rows(copy)}
        assert groups and all(next(reader.object_history("PodGroup", group), None) for group in groups)
        assert any(reader.pods_of(group, 0, LAST) for group in groups)
    assert verify(copy).problems == []


def test_a_file_of_before_the_index_whose_dictionary_a_disk_changed_is_told_of(tmp_path: Path) -> None:
    """To index it is to read its payloads, which nothing can do any more."""
    damaged = tmp_path / "log.sqlite"
    shutil.copy(SCHEMA_1, damaged)
    execute(damaged, "DELETE FROM dictionary")
    (tmp_path / "copy").mkdir()
    with pytest.raises(DamagedLog, match="the dictionary of its payloads is missing; restore a copy"):
        migrate_copy(damaged, tmp_path / "copy")


async def test_files_made_of_files_are_indexed(tmp_path: Path) -> None:
    one = tmp_path / "one"
    await write_history(one, 4)
    export(one, tmp_path / "part", fold, 2, 3)
    assert {sequence for _, sequence in rows(tmp_path / "part")} == {10, 16}
