"""What is left to do in a storm's cluster: nothing, once all has come to rest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tests.e2e.cluster import GROUPS, QUEUES, Daemon
from tests.real.stormlaws import group_of
from vcd.model.quantity import resource_value

if TYPE_CHECKING:
    from tests.real.storm import Storm


def left(storm: Storm) -> Iterator[str]:
    """What is not as it shall be at the end."""
    leaders = [name for name in storm.names if decides(storm.replicas[name])]
    if leaders != [storm.leading()]:
        yield f"{leaders} say that they lead, the Lease says {storm.lease()}"
    if waiting := list(storm.tenants.waiting()):
        yield f"jobs of the innocent tenant wait: {waiting}"
    if ending := [gang.name for gang in storm.load.gangs.values() if gang.seconds is not None]:
        yield f"gangs that have not run to their end: {ending}"
    phases = {each["metadata"]["name"]: each.get("status", {}).get("phase") for each in storm.store.list(GROUPS)}
    pods = list(storm.load.live.values())
    for gang in storm.load.lasting():
        placed = sum(bool(each["spec"].get("nodeName")) for each in pods if group_of(each) == gang.name)
        if placed != (gang.size if gang.fits else 0):
            yield f"{gang.name} has {placed} of {gang.size} pods placed"
        if (phases.get(gang.name) == "Running") is not gang.fits:
            yield f"{gang.name} is said to be {phases.get(gang.name)}"
    yield from _queues_left(storm)


def _queues_left(storm: Storm) -> Iterator[str]:
    gangs = {gang.name: gang.queue for gang in storm.load.gangs.values()}
    for queue in storm.store.list(QUEUES):
        name, said = queue["metadata"]["name"], queue.get("status", {}).get("allocated", {}).get("cpu", "0")
        if name != "root" and resource_value("cpu", said) != storm.truth.used(gangs, name):
            yield f"queue {name} is said to have {said} CPUs and has {storm.truth.used(gangs, name)} thousandths"


def decides(daemon: Daemon) -> bool:
    """Whether a replica's last word on leadership is that it leads."""
    said = [line["event"] for line in daemon.lines() if line["event"] in ("leading", "leadership_lost")]
    return said[-1:] == ["leading"]
