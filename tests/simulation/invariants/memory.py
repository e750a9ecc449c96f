"""What a daemon remembers once all has come to rest: nothing by the name or the UID of what is gone, and no task that
is done.

All is looked through that a daemon's objects lead to, however deep, as long as it is vcd's or a container. What a key
stands for is not asked: it stays no longer than the key.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import TYPE_CHECKING, Any

from tests.simulation.invariants.truth import group_of
from vcd.daemon.cycle.session_loop import Cycle
from vcd.daemon.leadership.interlock import Interlock
from vcd.daemon.reporting.verdicts import Verdicts
from vcd.daemon.service import SchedulerService
from vcd.kube.lru import LruCache
from vcd.model import events as ev
from vcd.model.objects import ROOT_QUEUE, ObjectMeta
from vcd.scheduling.framework.registry import kinds
from vcd.scheduling.search.candidates import Candidates
from vcd.scheduling.search.candidates import Memory as Tables
from vcd.scheduling.session.session import Session
from vcd.state.cluster_state import ClusterState
from vcd.state.immunity import Evicted, Immunity
from vcd.state.interning import Changes, Computed
from vcd.state.node_facts import NodeFacts
from vcd.state.snapshot import Snapshot, SnapshotMaker

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

_KEEP = (
    LruCache,  # no more than so many things, whatever they are
    Changes,  # the last ones that changed, so many by a fixed share: what went is one of them
    Evicted, Immunity,  # UIDs of evicted pods, until whom they were evicted for, nodes or queues are others
    ev.Waiting,  # the words of a group that is there, by the pods that waited when they were said
    Computed,  # all of it goes when it is so much
    Session, Snapshot,  # what the last session was decided from, and shows, until the next one
    Tables,  # no more tables than so many, and what a session does not use goes by and by
    NodeFacts, Candidates,  # the nodes of the last session, and for which of its tasks they were rated
)  # fmt: skip
"""What may keep what is gone, by class."""
_KEEP_AS = {
    (SnapshotMaker, "_copies"),  # what the last snapshot shares with the next one
    (Cycle, "_last_usage"),  # what the last session that was logged said of queues
    (ClusterState, "held_namespaces"),  # namespaces in which others bound pods, until the next session after the hold
    (Interlock, "_last"),  # the same, of the last minutes (--others-quiet-period)
    (Verdicts, "_session"),  # the last session, which is asked
}
"""The same by class and attribute."""
_BY_WHAT_IS_THERE = {
    (Interlock, "_chosen"),  # of pods that are there UIDs and nodes of binds that may still come
    (ClusterState, "nomination_turns"),  # of such pods the node
}
"""Mappings of which the keys alone have to be there, by class and attribute."""


class Memory:
    """Notes the names and UIDs of all that a daemon can watch and that ever was, and looks for them in what daemons
    keep."""

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim
        self._were: set[str] = set()
        self._kinds = [f"{kind.plural}.{kind.group}" if kind.group else kind.plural for kind in kinds().values()]
        sim.store.subscribe(self._kinds, self._came)

    def _came(self, _: str, __: str, obj: dict[str, Any]) -> None:
        self._were.update(_called(obj))

    def at_rest(self) -> None:
        """Look through each daemon that runs."""
        gone = set(self._were)
        for obj in (obj for resource in self._kinds for obj in self._sim.store.list(resource)):
            gone.difference_update(_called(obj), _texts(obj))
            if obj["kind"] == "Pod":
                gone.discard(group_of(obj))
        running = [(each.machine, each.service) for each in self._sim.replicas if each.service is not None]
        watched = [set(service.watches.statuses()) for _, service in running]
        for machine, service in running:
            assert machine is not None
            for what in _remembered(service, gone - _as_they_were(service, watched)):
                self._sim.violated("nothing is kept of what is gone", f"{machine.name}: {what}")


def _called(obj: dict[str, Any]) -> tuple[str, str]:
    """By what a manifest's object is known."""
    meta = obj["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else str(meta["name"]), str(meta["uid"])


def _texts(value: object) -> Iterator[str]:
    """All that a manifest says: who is named there, as a queue is by its groups, is asked for, though it may be
    gone."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)


def _as_they_were(service: SchedulerService, watched: list[set[str]]) -> set[str]:
    """What a state has of kinds that not everybody watches any more: it stays as it was when the configuration
    changed. And the nodes of binds of which nobody knows yet what became."""
    state = service.state_writer.state
    unread = [keys for kind, keys in state.digests.items() if not all(kind in each for each in watched)]
    return {intent.node for intent in state.intents.values()}.union(*unread)


def _remembered(service: SchedulerService, gone: set[str]) -> Iterator[str]:
    gone = gone - {ROOT_QUEUE, service.options.default_queue}  # which it makes
    for path, kept in _containers(service):
        if path.startswith("service.metrics") and not service.terms.leads():
            continue  # it shows the last session of its term
        if found := sorted(name for each in kept for name in _names(each) if name in gone):
            yield f"{path} has {len(found)} that are gone, as {found[0]}"
        if done := [each for each in kept if isinstance(each, asyncio.Task) and each.done()]:
            yield f"{path} has {len(done)} tasks that are done"


def _names(each: object) -> Iterator[str]:
    """What may be a name of what a container has: a text, each part of a tuple, each text that an object holds."""
    if isinstance(each, str):
        yield each
    elif isinstance(each, tuple):
        for part in each:
            yield from _names(part)
    elif _is_ours(each) and not isinstance(each, _KEEP):
        for value in _attributes(each).values():
            if isinstance(value, (str, ObjectMeta)):
                yield from _names(value)


def _containers(service: SchedulerService) -> Iterator[tuple[str, list[object]]]:
    """What is in each container that a daemon's objects lead to; of mappings the keys."""
    left, seen = deque[tuple[str, object]]([("service", service)]), dict[int, object]()
    while left:
        path, found = left.popleft()
        if id(found) in seen or isinstance(found, _KEEP):
            continue
        seen[id(found)] = found
        inside: Iterable[tuple[str, object]] = ()
        if isinstance(found, Mapping):
            yield path, list(found)
            inside = [(f"{path}[]", each) for pair in found.items() for each in pair]
        elif isinstance(found, (Set, deque, list)):
            yield path, list(found)
            inside = [(f"{path}[]", each) for each in found]
        elif isinstance(found, tuple):  # which does not grow, and goes with what it is in
            inside = [(f"{path}[]", each) for each in found]
        elif _is_ours(found):
            has = [(name, value) for name, value in _attributes(found).items() if (type(found), name) not in _KEEP_AS]
            by_keys = [name for name, _ in has if (type(found), name) in _BY_WHAT_IS_THERE]
            yield from ((f"{path}.{name}", list(value)) for name, value in has if name in by_keys)
            inside = [(f"{path}.{name}", value) for name, value in has if name not in by_keys]
        left.extend(pair for pair in inside if not isinstance(pair[1], (str, bytes, int, float, type(None))))


def _is_ours(value: object) -> bool:
    return type(value).__module__.startswith("vcd.")


def _attributes(value: object) -> dict[str, object]:
    """What an object holds, without asking it: nothing is computed."""
    slots = [name for each in type(value).__mro__ for name in getattr(each, "__slots__", ())]
    found = {name: getattr(value, name) for name in slots if name[:2] != "__" and hasattr(value, name)}
    return found | getattr(value, "__dict__", {})
