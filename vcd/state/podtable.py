"""The pods of a checkpoint as a table: shared values are stored once, and a state loads all pods at once.

The table is part of the format of checkpoints: an older version's table must remain readable. `checkpoint.py` encodes
the rest of a state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from vcd.model.objects import ObjectMeta, Pod, PodSpec, PodStatus
from vcd.model.projection_codec import encode_payload
from vcd.model.resource_requests import may_be_resized
from vcd.state.interning import DistinctValues, Interner
from vcd.state.records import Shape, seconds_of, spec_key, task_priority, task_status

Numbers = npt.NDArray[np.int64]

_encode = msgspec.msgpack.Encoder(order="deterministic").encode


class PodTable(msgspec.Struct, array_like=True):
    """Pods in the order of their keys, a column per field.

    Each pod has its name and UID, and indexes into shared values: metadata without name and UID, spec without node
    name, status, and node name. ``digests`` are those of the last payloads.
    """

    names: list[str] = []
    uids: list[str] = []
    digests: list[int] = []
    meta_of: list[int] = []
    spec_of: list[int] = []
    status_of: list[int] = []
    node_of: list[int] = []
    metas: list[ObjectMeta] = []
    specs: list[PodSpec] = []
    statuses: list[PodStatus] = []
    nodes: list[str] = []

    def keys(self) -> list[str]:
        """Return the pods' keys, ``namespace/name``."""
        begins = [f"{meta.namespace}/" for meta in self.metas]
        return [begins[meta] + name for meta, name in zip(self.meta_of, self.names, strict=True)]

    def pods(self) -> list[Pod]:
        """Return the pods without their nodes' names."""
        metas, specs, statuses = self.metas, self.specs, self.statuses
        rows = zip(self.names, self.uids, self.meta_of, self.spec_of, self.status_of, strict=True)
        replace = msgspec.structs.replace
        return [
            Pod(replace(metas[meta], name=name, uid=uid), specs[spec], statuses[status])
            for name, uid, meta, spec, status in rows
        ]

    def payloads(self) -> Iterator[bytes]:
        """Yield the pods' payloads as they were logged."""
        for pod, node in zip(self.pods(), self.node_of, strict=True):
            spec = msgspec.structs.replace(pod.spec, node_name=self.nodes[node])
            yield encode_payload(msgspec.structs.replace(pod, spec=spec))


class PodTableMaker:
    """Builds a table of pods that are added one by one, in the order of their keys."""

    def __init__(self) -> None:
        self._table = PodTable()
        self._metas: DistinctValues[ObjectMeta] = DistinctValues(_encode)
        self._specs: DistinctValues[PodSpec] = DistinctValues(spec_key)
        self._statuses: DistinctValues[PodStatus] = DistinctValues(_encode)
        self._nodes: DistinctValues[str] = DistinctValues(str)
        self._place_of_spec: dict[int, int] = {}

    def add(self, key: str, pod: Pod, node: str, digest: int) -> bool:
        """Add a pod without its node's name; return whether it was added.

        Not added are pods that may be resized in place, and pods stored under another key than their own.
        """
        meta, table = pod.metadata, self._table
        if may_be_resized(pod) or key != f"{meta.namespace}/{meta.name}":
            return False
        spec = self._place_of_spec.get(id(pod.spec))  # most pods share their spec object
        if spec is None:
            spec = self._place_of_spec[id(pod.spec)] = self._specs.place(pod.spec)
        table.names.append(meta.name)
        table.uids.append(meta.uid)
        table.digests.append(digest)
        table.meta_of.append(self._metas.place(msgspec.structs.replace(meta, name="", uid="")))
        table.spec_of.append(spec)
        table.status_of.append(self._statuses.place(pod.status))
        table.node_of.append(self._nodes.place(node))
        return True

    def table(self) -> PodTable:
        """Return the table of all added pods."""
        table = self._table
        table.metas, table.specs = self._metas.values, self._specs.values
        table.statuses, table.nodes = self._statuses.values, self._nodes.values
        return table


class Interners(Protocol):
    """The interners of a state, which number the values that pods share."""

    shapes: Interner[Shape]
    label_sets: Interner[dict[str, str]]
    namespaces: Interner[str]
    schedulers: Interner[str]
    job_keys: Interner[str]
    node_names: Interner[str]


class LoadedPods(NamedTuple):
    """A table in the form of a state: pods without node names, node names, columns by name, and shapes of the specs."""

    pods: list[Pod]
    nodes: list[str]
    columns: dict[str, Numbers]
    shapes: list[Shape]


def load_pods(interners: Interners, table: PodTable) -> LoadedPods:
    """Convert a table to the form of a state; numbers are taken from ``interners``.

    Raises QuantityError or ValueError, before any number is taken, for a spec or time that this version cannot read.
    """
    shapes = [Shape.of(spec) for spec in table.specs]
    created = [seconds_of(meta.creation_timestamp) for meta in table.metas]
    meta_of, spec_of, node_of = (np.array(of, np.int64) for of in (table.meta_of, table.spec_of, table.node_of))
    shape_of = {spec_key(shape.spec): shape for shape in shapes}
    labels_of = {frozenset(meta.labels.items()): meta.labels for meta in table.metas}
    numbers = _numbers(interners.shapes, list(shape_of), spec_of, shape_of.__getitem__)
    labels = _numbers(
        interners.label_sets, [frozenset(meta.labels.items()) for meta in table.metas], meta_of, labels_of.__getitem__
    )
    spaces = _numbers(interners.namespaces, [meta.namespace for meta in table.metas], meta_of)
    columns = {
        "shape": numbers[spec_of],
        "labels": labels[meta_of],
        "namespace": spaces[meta_of],
        "scheduler": _numbers(interners.schedulers, [spec.scheduler_name for spec in table.specs], spec_of)[spec_of],
        "job": _numbers(interners.job_keys, [Pod(meta).group_key or None for meta in table.metas], meta_of)[meta_of],
        "node": _numbers(interners.node_names, [node or None for node in table.nodes], node_of)[node_of],
        "created": np.array(created, np.int64)[meta_of],
    }
    shared = PodTable(
        **{name: getattr(table, name) for name in ("names", "uids", "meta_of", "spec_of", "status_of", "statuses")},
        metas=[
            msgspec.structs.replace(meta, labels=interners.label_sets[label], namespace=interners.namespaces[space])
            for meta, label, space in zip(table.metas, labels.tolist(), spaces.tolist(), strict=True)
        ],
        specs=[interners.shapes[number].spec for number in numbers.tolist()],
    )
    pods, nodes = shared.pods(), [table.nodes[place] for place in table.node_of]
    return LoadedPods(pods, nodes, {**columns, **_of_kinds(table, pods, nodes)}, shapes)


def _numbers(
    interner: Interner[Any], keys: Sequence[Hashable], places: Numbers, value: Callable[[Any], Any] = str
) -> Numbers:
    """Return the numbers of the values with ``keys``, -1 for None.

    Each entry of ``places``, which are indexes into ``keys``, is one use.
    """
    uses: Counter[Hashable] = Counter()
    for key, count in zip(keys, np.bincount(places, minlength=len(keys)).tolist(), strict=True):
        if key is not None:
            uses[key] += count
    numbers = interner.acquire_all(uses, value)
    return np.array([numbers.get(key, -1) for key in keys], np.int64)


def _of_kinds(table: PodTable, pods: Sequence[Pod], nodes: Sequence[str]) -> dict[str, Numbers]:
    """Return status and priority of each pod.

    They are computed once for pods with equal metadata, spec and status that all have a node, or all have none.
    """
    codes = np.array(table.meta_of, np.int64) * len(table.specs) + table.spec_of
    codes = (codes * len(table.statuses) + table.status_of) * 2 + [name != "" for name in nodes]
    _, firsts, kinds = np.unique(codes, return_index=True, return_inverse=True)
    statuses = [task_status(pods[first], nodes[first]) for first in firsts.tolist()]
    priorities = [task_priority(pods[first]) for first in firsts.tolist()]
    return {"status": np.array(statuses, np.int64)[kinds], "priority": np.array(priorities, np.int64)[kinds]}
