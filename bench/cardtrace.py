"""The published GPU cluster trace with card quotas: capacity-card with preempt and reclaim.

``python -m bench.cardtrace [--compress N] [--limit N] [--share F] [--no-replay] [--keep FILE]`` submits the trace's
gangs as Volcano Jobs to one queue per qos, whose quota is a share of its largest demand. Then it checks the event log:
no queue was above its quota, no pod was evicted twice, every task ran to its end.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from bench import gputrace
from bench.cardlaws import QUOTA, check
from bench.contention import conf
from bench.gputrace import GPU, PRODUCT_LABEL, TraceRow
from bench.table import Row, row, show
from bench.trace import TRACE, limited, simulate, vcd
from vcd.cli import simview
from vcd.cli.simulation import Scenario
from vcd.embedded.workload_generator import Arrival, queue

COMPRESSION = 300.0
SHARE = 0.8
"""Share of a queue's largest demand that its quota allows."""
CONF = conf(
    "enqueue, allocate, preempt, reclaim, backfill",
    "priority, conformance",
    "gang, drf, predicates, capacity-card, nodeorder, binpack",
)
"""Plugin gang is in the second tier, where it protects gangs of several pods but not jobs of one pod."""

MEMORY_LABEL = "nvidia.com/gpu.memory"
MEMORY_MIB = {"T4": 15360, "P100": 16384, "V100M16": 16384, "V100M32": 32768, "A10": 23028}
"""Cards are identified by this label and the product label. The trace has no memory size for G2 and G3."""
CLASSES = {"urgent": 1000, "usual": 100, "patient": 10}

Obj = dict[str, Any]
Offer = tuple[str, tuple[int, int, int]]
"""A node's model, and its cpu, memory and cards."""

# --- demand -----------------------------------------------------------------------------------------------------------


@dataclass
class Share:
    """The limits of a queue: cards by model, cpu in thousandths, memory in MiB."""

    cards: dict[str, int] = field(default_factory=dict)
    cpu: int = 0
    memory: int = 0

    def __str__(self) -> str:
        cards = ", ".join(f"{card} {count}" for card, count in self.cards.items() if count)
        return f"{cards or 'no cards'}; {self.cpu / 1000:,.0f} cores, {self.memory / 1024:,.0f} GiB"


def shares(tasks: list[TraceRow], nodes: list[Obj], compression: float, part: float) -> dict[str, Share]:
    """Return the limits of each queue: ``part`` of its largest demand without waits, rounded down, but at least its
    largest gang.

    A task that names several models counts for the first one; tasks without a model are distributed in proportion to
    the cluster's cards.
    """
    offers = [_offer(node) for node in nodes]
    total = Counter[str]()
    for model, room in offers:
        total[model] += room[2]
    cards = sorted(model for model, count in total.items() if count)
    result: dict[str, Share] = {}
    for name in sorted({task.queue for task in tasks}):
        own = [task for task in tasks if task.queue == name]
        peaks = {
            models: _peak([task for task in own if task.models == models], compression, _cards)
            for models in _gpu_models(own)
        }
        share = result[name] = Share(
            cpu=int(part * _peak(own, compression, lambda t: t.cpu_milli)),
            memory=int(part * _peak(own, compression, lambda t: t.memory_mib)),
        )
        for card in cards:
            named = sum(peak for models, peak in peaks.items() if models and models[0] == card)
            share.cards[card] = int(part * (named + peaks.get((), 0) * total[card] / sum(total.values())))
        for gang in itertools.chain.from_iterable(gputrace.gangs_of(own)):
            _widen(share, gang, offers)
    return result


def _cards(task: TraceRow) -> int:
    return task.gpus


def _gpu_models(tasks: Iterable[TraceRow]) -> set[tuple[str, ...]]:
    return {task.models for task in tasks if task.gpus}


def _offer(node: Obj) -> Offer:
    room = node["status"]["allocatable"]
    amounts = int(room["cpu"].removesuffix("m")), int(room["memory"].removesuffix("Mi")), int(room.get(GPU, 0))
    return node["metadata"]["labels"].get(PRODUCT_LABEL, ""), amounts


def _peak(tasks: Iterable[TraceRow], compression: float, of: Callable[[TraceRow], int]) -> int:
    """Return the largest sum over concurrent tasks if none has to wait."""
    changes = []
    for task in tasks:
        amount, came = of(task), task.creation / compression
        if amount:
            changes += [(came, amount), (came + task.deletion - task.creation, -amount)]
    return max([0, *itertools.accumulate(amount for _, amount in sorted(changes))])


def _widen(share: Share, gang: list[TraceRow], offers: list[Offer]) -> None:
    """Raise the limits until a gang fits on the nodes, preferably with cards of its first model."""
    first, count = gang[0], len(gang)
    share.cpu = max(share.cpu, first.cpu_milli * count)
    share.memory = max(share.memory, first.memory_mib * count)
    if not first.gpus:
        return
    places = Counter[str]()
    for model, room in offers:
        places[model] += _places(first, model, room)
    choice = [card for card in first.models or sorted(share.cards, key=lambda card: -share.cards[card]) if places[card]]
    missing = count - sum(min(places[card], share.cards[card] // first.gpus) for card in choice)
    for card in choice if missing > 0 else ():
        had = min(places[card], share.cards[card] // first.gpus)
        more = min(places[card] - had, missing)
        share.cards[card] = max(share.cards[card], (had + more) * first.gpus)
        missing -= more


def _places(task: TraceRow, model: str, room: tuple[int, int, int]) -> int:
    """Return how many such tasks fit on an empty node."""
    if task.models and model not in task.models:
        return 0
    wanted = task.cpu_milli, task.memory_mib, task.gpus
    return min([have // need for need, have in zip(wanted, room, strict=True) if need], default=1)


def queues_of(found: Mapping[str, Share]) -> list[Obj]:
    """Return queues with these quotas and capabilities."""
    result = []
    for name, share in found.items():
        each = queue(name)
        each["metadata"]["annotations"] = {QUOTA: json.dumps(share.cards)}
        each["spec"]["capability"] = {"cpu": f"{share.cpu}m", "memory": f"{share.memory}Mi"}
        result.append(each)
    return result


def nodes_of(path: Path) -> list[Obj]:
    """Return the trace's nodes with the labels that identify their cards."""
    nodes = gputrace.read_nodes(path)
    for node in nodes:
        labels = node["metadata"]["labels"]
        if PRODUCT_LABEL in labels:
            labels[MEMORY_LABEL] = str(MEMORY_MIB.get(labels[PRODUCT_LABEL], 0))
    return nodes


def classes() -> list[Obj]:
    """Return the priority classes."""
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    return [{**kind, "metadata": {"name": name}, "value": value} for name, value in CLASSES.items()]


def class_of(task: TraceRow) -> str:
    """Return a task's priority class, by a hash of its name: 10 % urgent, 40 % usual, 50 % patient."""
    drawn = hashlib.sha256(task.name.encode()).digest()[0] % 10
    return "urgent" if drawn == 0 else "usual" if drawn < 5 else "patient"


# --- simulation -------------------------------------------------------------------------------------------------------


def run(
    compression: float = COMPRESSION,
    limit: int | None = None,
    part: float = SHARE,
    replayed: bool = True,
    files: Path = TRACE,
    log: Path | None = None,
    policy: str = CONF,
) -> list[Row]:
    """Run the trace, or return one row if the files are missing. Raises RuntimeError if a law is broken."""
    if not (files / "pods.csv").is_file():
        return [row("cardtrace: skipped, there is no shared/traces/openb beside the project", None, "")]
    with tempfile.TemporaryDirectory() as folder:
        tasks = gputrace.read_tasks(limited(files / "pods.csv", Path(folder), limit))
        nodes = nodes_of(files / "nodes.csv")
        found = shares(tasks, nodes, compression, part)
        for name, share in found.items():
            click.echo(f"queue {name}: {share}", err=True)
        configuration = Path(folder) / "scheduler.conf"
        configuration.write_text(policy, encoding="utf-8")
        plan = Scenario(
            event_log=log or Path(folder) / "events.sqlite",
            nodes=nodes,
            queues=queues_of(found),
            arrivals=_arrivals(tasks, nodes, compression),
            manifests=classes(),
            conf=configuration,
        )
        return _rows(plan, tasks, found, simulate(plan), replayed)


def _arrivals(tasks: list[TraceRow], nodes: list[Obj], compression: float) -> Iterator[Arrival]:
    models = sorted({model for model, room in map(_offer, nodes) if room[2]})
    return gputrace.arrivals(tasks, compression=compression, as_jobs=True, priority_of=class_of, models=models)


def _rows(
    plan: Scenario, tasks: list[TraceRow], found: Mapping[str, Share], ended: simview.SimulationSummary, replayed: bool
) -> list[Row]:
    if ended.refused:
        raise RuntimeError(f"refused: {ended.refused[0]}")
    checked = check(plan.event_log)
    served = {task for _, _, task, _ in checked.bound & checked.finished}
    offers = [_offer(node) for node in plan.nodes]
    left = [task.name for task in tasks if task.name not in served]
    nowhere = {task.name for task in tasks if not any(_places(task, *offer) for offer in offers)}
    unserved = [name for name in left if name not in nowhere]
    if unserved:
        raise RuntimeError(f"{len(unserved)} tasks never ran to their end, such as {unserved[:5]}")
    rows = [
        row(f"cards, {len(plan.nodes):,} nodes, {len(tasks):,} tasks: wall time", ended.wall_seconds, "s"),
        row("  CPU: cluster, API server and daemon", ended.cpu_seconds, "s"),
        row("  sessions", ended.sessions, ""),
        row("  binds", ended.binds, ""),
        row("  tasks that ran to their end", len(tasks) - len(left), "", goal=len(tasks) - len(left)),
        row(f"  tasks that fit no node ({', '.join(left)})", len(left), ""),
    ]
    rows += [row(f"  evicted by {action}", checked.evictions[action], "") for action in ("preempt", "reclaim")]
    for name in found:
        resource, used = max(checked.used[name].items(), key=lambda pair: pair[1], default=("", 0.0))
        rows.append(row(f"  most of a quota that {name} held ({resource})", 100 * used, "%"))
    rows.append(row("  the longest that a task waited to be bound", checked.waited / 3600, "h"))
    rows.append(row("  log", ended.log_bytes / 2**20, "MiB"))
    if replayed:
        began = time.perf_counter()
        replay = vcd("replay", "--event-log", plan.event_log, "-o", "json")
        rows.append(row("  sessions that replay identically", replay["identical"], "", goal=replay["sessions"]))
        rows.append(row("  replaying them", time.perf_counter() - began, "s"))
    return rows


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compress", type=float, default=COMPRESSION, help="divides the times of arrival")
    parser.add_argument("--limit", type=int, help="only so many tasks, the first of the file")
    parser.add_argument("--share", type=float, default=SHARE, help="the part of its demand that a queue may hold")
    parser.add_argument("--no-replay", action="store_true", help="do not decide the sessions again")
    parser.add_argument("--keep", type=Path, help="a new file for the event log, which is kept")
    given = parser.parse_args()
    show(run(given.compress, given.limit, given.share, not given.no_replay, log=given.keep))


if __name__ == "__main__":
    main()
