"""Pods in a checkpoint, as rows: what many have in common is there once, and a state takes them over at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import msgspec

from vcd.model.objects import ObjectMeta, Pod, PodSpec, PodStatus
from vcd.model.requests import may_be_resized
from vcd.state.interning import Interner
from vcd.state.records import Shape, seconds_of, spec_key, task_priority, task_status

Columns = dict[str, Sequence[int]]


class PodRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A pod: ``spec`` is the place among the checkpoint's specs of its spec without the node's name, which is ``node``;
    ``digest`` that of its last payload."""

    metadata: ObjectMeta
    spec: int
    status: PodStatus
    node: str
    digest: int

    @property
    def key(self) -> str:
        """The pod's, ``namespace/name``."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    def pod(self, specs: Sequence[PodSpec]) -> Pod:
        """The pod as the API server showed it."""
        return Pod(self.metadata, msgspec.structs.replace(specs[self.spec], node_name=self.node), self.status)


class PodRows:
    """Rows that are made of pods one by one, for which ``specs`` are the places of specs in order of their coming."""

    def __init__(self) -> None:
        self.rows: list[PodRow] = []
        self.specs: list[PodSpec] = []
        self._places: dict[bytes, int] = {}
        self._place_of: dict[int, int] = {}

    def add(self, key: str, pod: Pod, node: str, digest: int) -> bool:
        """Add a pod without its node's name, and say so; not one that counts with other amounts than its spec's, or
        that goes by another key than its own."""
        meta = pod.metadata
        if may_be_resized(pod) or key != f"{meta.namespace}/{meta.name}":
            return False
        place = self._place_of.get(id(pod.spec))
        if place is None:
            place = self._places.setdefault(spec_key(pod.spec), len(self.specs))
            if place == len(self.specs):
                self.specs.append(pod.spec)
            self._place_of[id(pod.spec)] = place
        self.rows.append(PodRow(meta, place, pod.status, node, digest))
        return True


class Interners(Protocol):
    """What numbers what pods have in common."""

    shapes: Interner[Shape]
    label_sets: Interner[dict[str, str]]
    namespaces: Interner[str]
    schedulers: Interner[str]
    job_keys: Interner[str]
    node_names: Interner[str]


def table_of(interners: Interners, shapes: Sequence[int], rows: Sequence[PodRow]) -> tuple[list[Pod], Columns]:
    """The pods of rows, without their nodes' names, and what the columns of a state hold of them, as the API server
    shows them; ``shapes`` are the numbers of the specs' shapes. What they share is theirs from now on."""
    labels = [frozenset(row.metadata.labels.items()) for row in rows]
    shared = dict(zip(labels, [row.metadata.labels for row in rows], strict=True))
    spaces, numbers = _same([row.metadata.namespace for row in rows]), [shapes[row.spec] for row in rows]
    pods = [
        Pod(
            msgspec.structs.replace(row.metadata, labels=shared[of], namespace=space),
            interners.shapes[number].spec,
            row.status,
        )
        for row, of, space, number in zip(rows, labels, spaces, numbers, strict=True)
    ]
    return pods, {
        "shape": numbers,
        "labels": _numbers(interners.label_sets, labels, shared.__getitem__),
        "namespace": _numbers(interners.namespaces, spaces),
        "scheduler": _numbers(interners.schedulers, [pod.spec.scheduler_name for pod in pods]),
        "job": _numbers(interners.job_keys, [pod.group_key for pod in pods], none=""),
        "node": _numbers(interners.node_names, [row.node for row in rows], none=""),
        "status": [task_status(pod, row.node) for pod, row in zip(pods, rows, strict=True)],
        "priority": [task_priority(pod) for pod in pods],
        "created": [seconds_of(row.metadata.creation_timestamp) for row in rows],
    }


def _same(texts: list[str]) -> list[str]:
    """Texts, of which equal ones are one."""
    one = dict(zip(texts, texts, strict=True))
    return [one[text] for text in texts]


def _numbers(
    interner: Interner[Any], keys: Sequence[Any], value: Callable[[Any], Any] = str, none: Any = None
) -> list[int]:
    """The numbers of values by their keys, -1 for ``none``; each key is a use of its value."""
    number_of = {
        key: interner.acquire(key, partial(value, key), uses) if key != none else -1
        for key, uses in Counter(keys).items()
    }
    return [number_of[key] for key in keys]
