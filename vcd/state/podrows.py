"""Pods in a checkpoint, as rows: what many have in common is there once, and a state takes them over at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from vcd.model.codec import encode_payload
from vcd.model.objects import ObjectMeta, Pod, PodSpec, PodStatus
from vcd.model.quantity import QuantityError
from vcd.model.requests import may_be_resized
from vcd.state.interning import Interner
from vcd.state.records import Shape, seconds_of, spec_key, task_priority, task_status

if TYPE_CHECKING:  # who holds these rows imports this module
    from vcd.state.cluster import ClusterState


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


def put_pods(state: ClusterState, specs: Sequence[PodSpec], rows: Sequence[PodRow]) -> None:
    """Let a state that has no pods have these, as if each had been put by itself."""
    try:
        shapes = [Shape.of(spec) for spec in specs]
        created = [seconds_of(row.metadata.creation_timestamp) for row in rows]
    except (QuantityError, ValueError):  # a version wrote them that could read what this one cannot
        for row in rows:
            state.put_object("Pod", row.key, encode_payload(row.pod(specs)))
    else:
        uses = Counter([row.spec for row in rows])
        numbers = [state.take_shape(shape, uses[place]) for place, shape in enumerate(shapes)]
        _put_columns(state, numbers, rows, created)
    state.digests.setdefault("Pod", {}).update([(row.key, row.digest) for row in rows])


def _put_columns(state: ClusterState, shapes: Sequence[int], rows: Sequence[PodRow], created: Sequence[int]) -> None:
    labels = [frozenset(row.metadata.labels.items()) for row in rows]
    shared = dict(zip(labels, [row.metadata.labels for row in rows], strict=True))
    spaces, nodes = _same([row.metadata.namespace for row in rows]), _same([row.node for row in rows])
    pods = [
        Pod(
            msgspec.structs.replace(row.metadata, labels=shared[of], namespace=space),
            state.shapes[shapes[row.spec]].spec,
            row.status,
        )
        for row, of, space in zip(rows, labels, spaces, strict=True)
    ]
    groups = [pod.group_key for pod in pods]
    state.take_pods(
        [row.key for row in rows],
        pods,
        nodes,
        shape=[shapes[row.spec] for row in rows],
        labels=_numbers(state.label_sets, labels, shared.__getitem__),
        namespace=_numbers(state.namespaces, spaces),
        scheduler=_numbers(state.schedulers, [pod.spec.scheduler_name for pod in pods]),
        job=_numbers(state.job_keys, groups, none=""),
        node=_numbers(state.node_names, nodes, none=""),
        status=[task_status(pod, node) for pod, node in zip(pods, nodes, strict=True)],
        priority=[task_priority(pod) for pod in pods],
        created=created,
    )
    for key in dict.fromkeys(filter(None, groups)):
        if key not in state.groups:
            state.former.setdefault(key, None)


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
