"""Histories of work with known run times, played second by second."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests import dsl
from tests.dsl import Manifest
from tests.eventlog.samples import SECOND
from tests.timetravel.histories import START, scheduler
from vcd.model import events as ev

CONF = """\
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
- plugins:
  - name: predicates
  - name: proportion
  - name: nodeorder
"""


@dataclass(frozen=True)
class Work:
    """A gang: when it comes and how long each pod runs, in seconds from the beginning; None: longer than the log."""

    name: str
    at: int
    run: int | None
    cpu: int = 1
    pods: int = 1
    queue: str = "default"
    options: dict[str, Any] = field(default_factory=dict)


async def play(
    path: Path,
    nodes: Sequence[Manifest],
    work: Sequence[Work],
    *,
    seconds: int,
    conf: str = CONF,
    queues: Sequence[Manifest] = (),
) -> None:
    """Write the log of a cluster that does this work; what is evicted comes again as a pod of the same name."""
    async with scheduler(path, conf) as made:
        await made.show(nodes, dsl.queue("root"), dsl.queue("default"), queues)
        ends: dict[str, int] = {}
        length = {f"default/{one.name}-{i}": one.run for one in work for i in range(one.pods)}
        pods: dict[str, Manifest] = {}
        for second in range(seconds):
            made.clock.now = START + second * SECOND
            for key in sorted(key for key, end in ends.items() if end == second):
                await made.finish(key)
                del ends[key]
            for one in work:
                if one.at == second:
                    objects = dsl.gang(
                        one.name, one.pods, queue=one.queue, cpu=one.cpu, phase="Pending", created=second, **one.options
                    )
                    objects = list(objects)
                    pods |= {f"default/{each['metadata']['name']}": each for each in objects if each["kind"] == "Pod"}
                    await made.show(objects)
            record = await made.cycle(seconds=0)
            await made.carry_out(record)
            for statement in ev.decode_plan(record.plan).statements:
                for operation in statement.operations:
                    run = length[operation.key]
                    if operation.verb == "bind" and run is not None:
                        ends[operation.key] = second + run
                    elif operation.verb == "evict":
                        ends.pop(operation.key, None)
                        pod = pods[operation.key]
                        await made.show({**pod, "metadata": {**pod["metadata"], "uid": f"{operation.uid}-again"}})
