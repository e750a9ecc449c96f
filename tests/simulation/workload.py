"""What users and administrators do: nodes, queues, groups and their pods come, change and go."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from tests.e2e.cluster import GROUPS, QUEUES, group, node, pod
from vcd.embedded.errors import StatusError

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

Obj = dict[str, Any]


@contextlib.contextmanager
def refusable() -> Iterator[None]:
    """What a user asks for may be refused, as when the name is taken or what is to be deleted is gone."""
    with contextlib.suppress(StatusError):
        yield


def add_node(sim: Simulation, name: str, cpu: int) -> None:
    """A node joins."""
    with refusable():
        sim.store.create("nodes", node(name, cpu))


def add_queue(sim: Simulation, name: str, spec: Obj) -> None:
    """An administrator makes a queue."""
    with refusable():
        sim.store.create(QUEUES, {"metadata": {"name": name}, "spec": spec})


def submit(sim: Simulation, name: str, minimum: int, pods: int, cpu: int, spec: Obj) -> None:
    """A user submits a group and its pods; ``spec`` is more of the group's."""
    with refusable():
        sim.store.create(GROUPS, group(name, minimum, **spec))
    for number in range(pods):
        with refusable():
            sim.store.create("pods", pod(f"{name}-{number}", name, cpu))


ACTS: dict[str, Callable[..., None]] = {"add_node": add_node, "add_queue": add_queue, "submit": submit}
