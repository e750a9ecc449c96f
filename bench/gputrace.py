"""Reads the published GPU cluster trace format (nodes.csv, pods.csv) into nodes, queues and timed arrivals.

The format is that of Alibaba's cluster-trace-gpu-v2023 ("Beware of Fragmentation: Scheduling GPU-Sharing Workloads
with Fragmentation Gradient Descent", USENIX ATC 2023). How a row becomes objects:

* A node's GPUs are ``nvidia.com/gpu``; its model is the label ``nvidia.com/gpu.product`` (and ``gpu-model``).
* A task is a pod in a PodGroup of one; tasks created in the same second with the same request are one gang.
* ``qos`` in lower case is the queue. ``gpu_spec`` (``A|B``: models allowed) is the annotation ``volcano.sh/card.name``
  and a required node affinity on the product label.
* A request for a share of a GPU becomes a request for a whole GPU.
* A task runs as long as it existed, deletion minus creation. Tasks that were never scheduled (no scheduled_time) also
  run that long, although they only waited: their run time is unknown, and without them the load would be too low. A
  task whose last phase was Failed ends with exit code 1.
* ``compression`` divides the times of arrival, not the run times: contention grows with it.
* With ``arrivals(..., as_jobs=True)`` a gang is a Volcano Job, with a task of one replica for each row, so that an
  evicted pod is created again and runs its whole time. The PodGroup states the requested cards of its models in
  ``volcano.sh/card.request``, because it has no pods before it is admitted.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final

from vcd.embedded.cluster_clock import FARTHEST
from vcd.embedded.controllers.controller_base import Obj
from vcd.embedded.kubelet import EXIT_CODE, RUN_SECONDS
from vcd.embedded.workload_generator import Arrival, gang, job, node, pod, pod_spec, queue, task

GPU: Final = "nvidia.com/gpu"
PRODUCT_LABEL: Final = "nvidia.com/gpu.product"
MODEL_LABEL: Final = "gpu-model"
CARD_ANNOTATION: Final = "volcano.sh/card.name"
CARD_REQUEST: Final = "volcano.sh/card.request"

KEPT_SECONDS: Final = 60
"""Seconds until finished jobs and pods are deleted: the trace's tasks are deleted when they end."""
_RESTARTS: Final = 1000
"""maxRetry of a job. It is large because each eviction counts as a retry."""

_DIGITS: Final = 15
"""The most digits of a number: more thousandths of a core, or MiB, than any cluster has."""

_NODE_COLUMNS: Final = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
_TASK_COLUMNS: Final = (
    "name",
    "cpu_milli",
    "memory_mib",
    "num_gpu",
    "gpu_milli",
    "gpu_spec",
    "qos",
    "pod_phase",
    "creation_time",
    "deletion_time",
    "scheduled_time",
)


class TraceError(ValueError):
    """A file has an invalid format; the message names file, line and column."""


@dataclass(frozen=True)
class TraceRow:
    """One row of pods.csv. ``models`` are the allowed GPU models (empty: any); times are seconds."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    models: tuple[str, ...]
    queue: str
    creation: int
    deletion: int
    failed: bool

    @property
    def request(self) -> tuple[int, int, int, tuple[str, ...], str]:
        """Return the key by which tasks of the same second form a gang."""
        return self.cpu_milli, self.memory_mib, self.gpus, self.models, self.queue


def read_nodes(path: Path) -> list[Obj]:
    """Read a nodes.csv as node manifests. Raises TraceError, OSError."""
    return [_node(row, where) for where, row in _rows(path, _NODE_COLUMNS)]


def read_tasks(path: Path) -> list[TraceRow]:
    """Read a pods.csv, sorted by creation, in the file's order within a second. Raises TraceError, OSError."""
    tasks = sorted((_task(row, where) for where, row in _rows(path, _TASK_COLUMNS)), key=lambda each: each.creation)
    if tasks and tasks[-1].creation - tasks[0].creation > FARTHEST:
        first, last = tasks[0].creation, tasks[-1].creation
        raise TraceError(f"{path}: creation_time is {first} to {last}; it must be within {FARTHEST} seconds")
    return tasks


def queues_of(tasks: Iterable[TraceRow]) -> list[Obj]:
    """Return a queue of weight 1 for each qos class, sorted by name."""
    return [queue(name) for name in sorted({each.queue for each in tasks})]


def arrivals(
    tasks: Iterable[TraceRow],
    *,
    compression: float = 1.0,
    as_jobs: bool = False,
    priority_of: Callable[[TraceRow], str] = lambda _: "",
    models: Iterable[str] = (),
) -> Iterator[Arrival]:
    """Yield the gangs of tasks (sorted by creation), the first at second 0, with gaps divided by ``compression``.

    ``as_jobs``: each gang is a Volcano Job with the priority class that ``priority_of`` returns for its first task
    (empty: none); else a PodGroup and its pods. Jobs without models request cards of any of ``models``.
    Raises ValueError for a compression that is not above zero.
    """
    if not compression > 0:
        raise ValueError(f"compression {compression!r} must be above zero")
    any_card = "|".join(models)
    first: int | None = None
    for members in gangs_of(tasks):
        first = members[0][0].creation if first is None else first
        objects: list[tuple[str, Obj]] = []
        for each in members:
            if as_jobs:
                objects.append(_job(each, priority_of(each[0]), any_card))
            else:
                objects += _gang(each)
        yield Arrival((members[0][0].creation - first) / compression, tuple(objects))


def gangs_of(tasks: Iterable[TraceRow]) -> Iterator[list[list[TraceRow]]]:
    """Yield the gangs of each second. The tasks must be sorted by creation."""
    for _, together in groupby(tasks, key=lambda each: each.creation):
        gangs: dict[tuple[object, ...], list[TraceRow]] = {}
        for each in together:
            gangs.setdefault(each.request, []).append(each)
        yield list(gangs.values())


def _rows(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[str, dict[str, str]]]:
    with path.open(newline="", encoding="utf-8-sig") as file:  # spreadsheets write a byte order mark
        reader = csv.DictReader(file)
        missing = [column for column in columns if column not in (reader.fieldnames or ())]
        if missing:
            raise TraceError(f"{path}: line 1: column {missing[0]!r} is missing; it must have {', '.join(columns)}")
        for row in reader:
            where = f"{path}: line {reader.line_num}"
            short = [column for column in columns if row[column] is None]
            if short:
                raise TraceError(f"{where}: column {short[0]!r} is missing")
            yield where, row


def _number(row: dict[str, str], column: str, where: str) -> int:
    text = row[column]
    if not (text.isascii() and text.isdigit()):
        raise TraceError(f"{where}: {column} is {text!r}; it must be a whole number, zero or more")
    if len(text) > _DIGITS:
        raise TraceError(f"{where}: {column} has {len(text)} digits; it must have {_DIGITS} at most")
    return int(text)


def _node(row: dict[str, str], where: str) -> Obj:
    gpus = _number(row, "gpu", where)
    resources = {
        "cpu": f"{_number(row, 'cpu_milli', where)}m",
        "memory": f"{_number(row, 'memory_mib', where)}Mi",
        **({GPU: str(gpus)} if gpus else {}),
    }
    model = row["model"]
    if gpus and not model:
        raise TraceError(f"{where}: model is empty for a node with {gpus} GPUs")
    return node(row["sn"], resources, {PRODUCT_LABEL: model, MODEL_LABEL: model} if model else {})


def _task(row: dict[str, str], where: str) -> TraceRow:
    creation, deletion = _number(row, "creation_time", where), _number(row, "deletion_time", where)
    if deletion < creation:
        raise TraceError(f"{where}: deletion_time {deletion} is before creation_time {creation}")
    models = tuple(dict.fromkeys(filter(None, row["gpu_spec"].split("|"))))
    if not row["qos"]:
        raise TraceError(f"{where}: qos is empty")
    return TraceRow(
        name=row["name"],
        cpu_milli=_number(row, "cpu_milli", where),
        memory_mib=_number(row, "memory_mib", where),
        gpus=_number(row, "num_gpu", where),
        models=models,
        queue=row["qos"].lower(),
        creation=creation,
        deletion=deletion,
        failed=row["pod_phase"] == "Failed",
    )


def _gang(tasks: list[TraceRow]) -> tuple[tuple[str, Obj], ...]:
    first = tasks[0]
    card = _card(first)
    pods = [pod(each.name, _spec(first), {**card, **_life(each)}) for each in tasks]
    return gang(first.name, first.queue, pods, card)


def _job(tasks: list[TraceRow], priority_class: str, any_card: str) -> tuple[str, Obj]:
    """Return a Volcano Job with one task per row, which needs all of them."""
    first = tasks[0]
    card = _card(first)
    names = card.get(CARD_ANNOTATION, any_card)
    wanted = {CARD_REQUEST: json.dumps({names: first.gpus * len(tasks)})} if names and first.gpus else {}
    more = {"priorityClassName": priority_class} if priority_class else {}
    return job(
        first.name, first.queue,
        [task(each.name, 1, _spec(first), {**card, **_life(each)}) for each in tasks],
        {**card, **wanted}, maxRetry=_RESTARTS, ttlSecondsAfterFinished=KEPT_SECONDS,
        policies=[{"event": "PodEvicted", "action": "RestartTask"}], **more,
    )  # fmt: skip


def _spec(row: TraceRow) -> Obj:
    """Return the spec of a task's pod."""
    requests = {"cpu": f"{row.cpu_milli}m", "memory": f"{row.memory_mib}Mi"}
    if row.gpus:
        requests[GPU] = str(row.gpus)
    return pod_spec(requests, **(_affinity(row.models) if row.models else {}))


def _card(row: TraceRow) -> dict[str, str]:
    """Return the annotation with the models of a task, if it names any."""
    return {CARD_ANNOTATION: "|".join(row.models)} if row.models else {}


def _life(row: TraceRow) -> dict[str, str]:
    """Return the annotations for a task's run time and its failure, if any."""
    return {RUN_SECONDS: str(row.deletion - row.creation), **({EXIT_CODE: "1"} if row.failed else {})}


def _affinity(models: tuple[str, ...]) -> Obj:
    """Return a required node affinity for the models."""
    term = {"matchExpressions": [{"key": PRODUCT_LABEL, "operator": "In", "values": list(models)}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {"affinity": {"nodeAffinity": required}}
