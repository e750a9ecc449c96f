"""The event log: appends of single events and of batches, reading, verification, checkpoint and retention."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from rich.console import Console
from rich.table import Table

from vcd.eventlog import EventLog, LogReader, verify
from vcd.model.events import ObjectGone, ObjectPut
from vcd.model.projection_codec import encode_payload, from_manifest

EVENTS = 40_000
TASKS = 200
Row = tuple[str, float, str, float | None]


def _pod_events(count: int) -> list[ObjectPut]:
    """Return puts of different small pods, such as a watch delivers on a busy cluster."""
    events = []
    for number in range(count):
        manifest = {
            "kind": "Pod",
            "metadata": {
                "name": f"batch-{number // 100}-worker-{number % 100}",
                "namespace": "research",
                "uid": f"{number * 2654435761 % (1 << 32):08x}-1f2e-4d3c-8b4a-5a6978879605",
                "labels": {"app": f"batch-{number // 100}"},
                "annotations": {"scheduling.k8s.io/group-name": f"batch-{number // 100}"},
            },
            "spec": {
                "schedulerName": "volcano",
                "containers": [{"name": "main", "resources": {"requests": {"cpu": "2", "memory": "4Gi"}}}],
            },
            "status": {"phase": "Pending"},
        }
        kind, pod, _ = from_manifest(manifest)
        events.append(ObjectPut(kind, pod.key, str(number), encode_payload(pod)))
    return events


async def _one_by_one(log: EventLog, events: list[Any]) -> None:
    async def appender(share: list[Any]) -> None:
        for event in share:
            await log.append([event])

    await asyncio.gather(*(appender(events[start::TASKS]) for start in range(TASKS)))


async def _in_hundreds(log: EventLog, events: list[Any]) -> None:
    for start in range(0, len(events), 100):
        await log.append(events[start : start + 100])


def _rate_of_appends(work: Callable[[EventLog, list[Any]], Awaitable[None]], path: Path, events: list[Any]) -> float:
    async def timed() -> float:
        async with EventLog.open(path) as log:
            start = time.perf_counter()
            await work(log, events)
            return len(events) / (time.perf_counter() - start)

    return asyncio.run(timed())


def _rate_of_reading(path: Path) -> float:
    with LogReader(path) as reader:
        start = time.perf_counter()
        count = sum(1 for _ in reader.read())
        return count / (time.perf_counter() - start)


async def _longest_append(log: EventLog, event: ObjectPut, beside: Awaitable[Any]) -> float:
    """Return the duration (ms) of the longest append while ``beside`` runs."""
    task = asyncio.ensure_future(beside)
    longest = 0.0
    while not task.done():
        start = time.perf_counter()
        await log.append([event])
        longest = max(longest, time.perf_counter() - start)
    await task
    return longest * 1000


async def _upkeep(path: Path, event: ObjectPut) -> list[Row]:
    """Measure checkpoint and retention, and the longest append during each."""
    state = b"".join(Random(n).randbytes(2 << 20) for n in range(50))
    async with EventLog.open(path) as log:
        start = time.perf_counter()
        beside_checkpoint = await _longest_append(log, event, log.checkpoint(log.head, state))
        written = time.perf_counter()
        beside_retention = await _longest_append(log, event, log.retain(max_age=0))
        removed = time.perf_counter()
    return [
        ("checkpoint of a state of 100 MiB", written - start, "s", None),
        ("longest append meanwhile", beside_checkpoint, "ms", 100),
        (f"retention that removes {EVENTS:,} pods", removed - written, "s", None),
        ("longest append meanwhile", beside_retention, "ms", 100),
    ]


def _rate_of_verify(path: Path) -> float:
    start = time.perf_counter()
    if problems := verify(path).problems:
        raise RuntimeError(f"the log of the benchmark is not sound: {problems[0]}")
    return EVENTS / (time.perf_counter() - start)


def _measure(folder: Path) -> Iterator[Row]:
    puts = _pod_events(EVENTS)
    small = [ObjectGone("Pod", put.key, put.resource_version) for put in puts]
    for name, events in (("small events", small), ("pods", puts)):
        single, batched = folder / f"{name}-1.sqlite", folder / f"{name}-100.sqlite"
        rate = _rate_of_appends(_one_by_one, single, events)
        yield f"append {name}, one call each, {TASKS} tasks", rate, "events/s", 20_000
        yield f"append {name}, 100 a call", _rate_of_appends(_in_hundreds, batched, events), "events/s", 20_000
        yield f"read {name} back", _rate_of_reading(batched), "events/s", 200_000
    yield "a pod before packing", sum(len(put.payload or b"") for put in puts) / EVENTS, "bytes", None
    yield "a pod in the file, with its index", batched.stat().st_size / EVENTS, "bytes", None
    yield "verify pods", _rate_of_verify(batched), "events/s", None
    yield from asyncio.run(_upkeep(batched, puts[0]))


def run() -> list[dict[str, Any]]:
    """Measure and return the rows. Volcano has no log, so there is no ``peer``."""
    with tempfile.TemporaryDirectory() as folder:
        return [
            {"what": what, "value": value, "unit": unit, "peer": None, "goal": goal}
            for what, value, unit, goal in _measure(Path(folder))
        ]


def main() -> None:
    """Print the table."""
    table = Table("what", "value", "unit", "peer", "goal", title="event log")
    for row in run():
        value = f"{row['value']:,.{0 if row['value'] >= 100 else 1}f}"
        table.add_row(row["what"], value, row["unit"], row["peer"] or "-", f"{row['goal']:,}" if row["goal"] else "-")
    Console().print(table)


if __name__ == "__main__":
    main()
