"""The score by images that a node has already. Source: kube-scheduler 1.36 ``imagelocality``."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vcd.model.objects import PodSpec
from vcd.scheduling.search.parts import Reads, Score, Scores
from vcd.scheduling.search.predicates.node_predicates import at_rows
from vcd.scheduling.session.nodes import Ints, Usage
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task
from vcd.state.node_facts import NodeFacts

LEAST = 23 * 1024 * 1024
"""Fewer bytes than this score 0."""
MOST = 1000 * 1024 * 1024
"""More bytes per container than this score no higher."""


class _ImageNodes(NamedTuple):
    """The nodes that have an image, and its size in bytes on each."""

    rows: npt.NDArray[np.intp]
    sizes: Ints


class ImageLocality(Score):
    """The bytes of the pod's images that a node has, each scaled by the fraction of nodes that have it.

    100 x (sum - 23Mi) / (1000Mi x containers - 23Mi), between 0 and 100, rounded down. The number of nodes that have an
    image is the current one (Volcano's depends on the order in which nodes arrived: docs/differences.md).
    """

    name = "imagelocality"
    reads = Reads.FACTS
    keys = ("spec.initContainers.image", "spec.containers.image")
    kinds = ()

    def __init__(self, session: Session, weight: float = 1) -> None:
        super().__init__(weight)
        facts = session.nodes.facts
        self._count = len(facts)
        self._images: dict[str, _ImageNodes] = facts.cached("images", lambda: _images_of(facts))
        self.has_effect = bool(self._images)
        """Whether any node lists images."""

    def applies(self, task: Task) -> bool:
        return any(name in self._images for name in _images_of_pod(task.shape.spec))

    def raw(self, task: Task, usage: Usage) -> Scores:
        wanted = _images_of_pod(task.shape.spec)
        present = np.zeros(self._count, np.int64)
        for name in wanted:
            image = self._images.get(name)
            if image is not None:
                spread = image.rows.size / self._count
                present[image.rows] += (image.sizes * spread).astype(np.int64)
        most = MOST * len(wanted)
        np.clip(present, LEAST, most, out=present)
        result = (100 * (present - LEAST) // (most - LEAST)).astype(np.float64)
        return at_rows(result, usage)


def _images_of_pod(spec: PodSpec) -> list[str]:
    """Return the images of a pod's containers, with repetitions."""
    return [_with_tag(container.image) for container in (*spec.init_containers, *spec.containers)]


def _with_tag(name: str) -> str:
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"


def _images_of(facts: NodeFacts) -> dict[str, _ImageNodes]:
    found: dict[str, dict[int, int]] = {}
    for row, node in enumerate(facts.nodes):
        for image in node.status.images:
            for name in image.names:
                found.setdefault(name, {})[row] = image.size_bytes
    return {
        name: _ImageNodes(np.fromiter(sizes, np.intp), np.fromiter(sizes.values(), np.int64))
        for name, sizes in found.items()
    }
