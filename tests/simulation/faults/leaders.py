"""What goes wrong with who leads: the Lease is deleted or taken, terms end amid calls, two believe to lead."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from tests.e2e.cluster import LEASES
from tests.simulation.faults.aim import WHAT, add_draw, at_request, chosen, lasts, later, spoil
from tests.simulation.faults.network import answer_of
from tests.simulation.road import Way
from tests.simulation.workload import refusable, submit_bare
from tests.simulation.world import bind_ours
from vcd.kube.lease import DEFAULT_NAME, DEFAULT_NAMESPACE, RELEASED_SECONDS

if TYPE_CHECKING:
    from tests.simulation.replica import Machine, Replica
    from tests.simulation.simulation import Simulation

Obj = dict[str, Any]
_LOOK = 0.1
"""Seconds between two looks at who leads."""
_SOON = 0.02
"""Seconds within which a program that ended has not begun again."""
_APART = 20.0
"""Seconds that lie between two deletions of the Lease."""
_DELETED: WeakKeyDictionary[Simulation, float] = WeakKeyDictionary()
"""When the Lease was deleted last."""
_BEFORE = 3.0
"""Seconds before the end of a term in which pods come that are bound amid that."""
OTHER = "vc-scheduler_5f4d"
"""Who another program says it is."""
SHARED = "vcd"
"""The one identity that several programs are given."""
_HELD, _RENEWED = 15, 2.0
"""Seconds for which another program's Lease holds, and after which it renews it, as vc-scheduler has it."""


def leader(sim: Simulation) -> Replica | None:
    """The replica that leads, or believes so."""
    return next((each for each in sim.replicas if each.leads), None)


def when_led(sim: Simulation, act: Callable[[Replica], None]) -> None:
    """Do something to who leads, as soon as somebody does."""
    led = leader(sim)
    if led is not None and led.service is not None:
        act(led)
    elif not sim.calm:
        later(sim, _LOOK, partial(when_led, sim, act))


# --- two at once ------------------------------------------------------------------------------------------------------


def two_leaders(sim: Simulation, patience: float, more: float) -> None:
    """Who leads is stopped until another does (for ``patience`` seconds at most), and ``more`` seconds beyond; then it
    goes on with what it was about to do."""
    led = leader(sim)
    if led is not None:
        _stop_until_another_leads(sim, led, patience, more)


def two_leaders_at(sim: Simulation, number: int, what: str, takes: float, patience: float, more: float) -> None:
    """The same from the ``number``-th next request of those that are meant, of each replica: as it is made, or if it
    ``takes`` seconds to connect, amid that. ``marks`` are meant, too: the status of a pod that is evicted."""

    def act(each: Replica, way: Way) -> None:
        stop = partial(_stop_until_another_leads, sim, each, patience, more)
        if takes:
            way.there += 2 * takes
            way.connecting = stop
        else:
            stop()

    for each in sim.replicas:
        if what == "marks":
            _at_mark(each, partial(act, each))
        else:
            at_request(each, number, what, "two_leaders_at", partial(act, each))


def _at_mark(replica: Replica, act: Callable[[Way], None]) -> None:
    def draw(method: str, path: str, way: Way) -> None:
        if b"DisruptionTarget" in way.asked.body:
            replica.road.draws.remove(draw)
            replica.road.affected["two_leaders_at"] += 1
            act(way)

    replica.road.draws.append(draw)


def _stop_until_another_leads(sim: Simulation, led: Replica, patience: float, more: float) -> None:
    machine = led.machine
    if machine is None or not machine.alive:
        return
    stop = object()
    machine.stops.append(stop)
    until = sim.loop.time() + patience

    def look() -> None:
        others = [each for each in sim.replicas if each.machine is not machine]
        leads = any(each.leads for each in others)
        if leads:
            led.road.affected["two_leaders"] += 1
        if leads or sim.calm or sim.loop.time() >= until:
            later(sim, 0.0 if sim.calm else more, partial(machine.go_on, stop))
        else:
            later(sim, _LOOK, look)

    later(sim, _LOOK, look)


def share_identity(sim: Simulation, seconds: float) -> None:
    """All programs are started again under one identity, and after so long each under its own."""
    for each in sim.replicas:
        each.identity = SHARED
        each.road.affected["share_identity"] += 1
        each.kill(pause=sim.loop.rng.random())
    lasts(sim, "identity", seconds, partial(part_identities, sim))


def part_identities(sim: Simulation) -> None:
    """Start each program under its own identity again."""
    for each in sim.replicas:
        if each.identity:
            each.identity = ""
            each.kill()


# --- terms ------------------------------------------------------------------------------------------------------------


def slow_renewals(sim: Simulation, late: float, lost: float, seconds: float) -> None:
    """Who leads hears of its next renewal ``late`` seconds after it was made, and then of none for ``lost`` seconds,
    while all else arrives, some of it slowly, by up to ``seconds``."""
    led = leader(sim)
    if led is None:
        return

    def slow(method: str, path: str, way: Way) -> None:
        if "/leases" not in path and method != "WATCH":
            way.there += sim.loop.rng.uniform(0, seconds)

    def renewal(way: Way) -> None:
        way.back += late
        add_draw(sim, led.road, late + lost, slow)
        later(sim, late, lambda: add_draw(sim, led.road, lost, gone))

    def gone(method: str, path: str, way: Way) -> None:
        way.lost |= "/leases" in path

    at_request(led, 1, "lease", "slow_renewals", renewal)


def clock_back(sim: Simulation, back: float, seconds: float) -> None:
    """Who leads does not get at the Lease any more, and its wall clock goes back, until another leads, and for so long;
    all else arrives, and users go on working."""
    led = leader(sim)
    if led is None or led.service is None:
        return
    options = led.service.options
    goes_on = options.lease_duration + options.retry_period + seconds
    spoil(sim, sim.replicas.index(led), goes_on, 1.0, "lease", "clock_back", _refuse)
    led.set_wall_ahead(-back)
    lasts(sim, ("clock", led.name), goes_on, partial(led.set_wall_ahead, 0.0))
    later(sim, goes_on - seconds / 2, partial(submit_bare, sim, "amid-two", 2, 1))


def _refuse(method: str, path: str, way: Way) -> bool:
    way.refused = True
    return True


def term_amid_calls(sim: Simulation, more: float, what: str) -> None:
    """Who leads does not get at the Lease until its term is over. At the end of that time pods come, and some kind of
    writes is put off until ``more`` seconds after it, when this replica may lead again."""
    led = leader(sim)
    if led is None or led.service is None:
        return
    elector, ends = led.service.terms.elector, led.service.options.renew_deadline
    begins, over = sim.loop.time() + ends - _BEFORE, math.inf

    def draw(method: str, path: str, way: Way) -> None:
        nonlocal over
        leads, now = elector.is_leader(), sim.loop.time()
        if not leads:
            over = min(over, now + more)
        if "/leases" in path:
            way.refused |= leads
        elif begins <= now < over and WHAT[what](method, path):
            led.road.affected["term_amid_calls"] += 1
            way.instead = answer_of(429, {"retryAfterSeconds": 1})

    add_draw(sim, led.road, ends + more, draw)
    for number, at in enumerate((_BEFORE, _BEFORE / 2)):
        later(sim, ends - at, partial(submit_bare, sim, f"amid-term-{number}", 2, 1))


# --- the Lease --------------------------------------------------------------------------------------------------------


def delete_lease(sim: Simulation, replica: int) -> None:
    """Somebody deletes the Lease as a replica asks for it, and all have seen its last transition: one that has not
    cannot know of that (docs/reliability.md), nor one of a Lease that is there for a moment. So it is put back where
    one of them ends before another one has made it."""

    def act(each: Replica, way: Way) -> bool:
        now, last, lease = sim.loop.time(), _DELETED.get(sim, -_APART), sim.store.find(LEASES, *_named(sim))
        if lease is None or now - last < _APART:
            return False
        transitions = int(lease["spec"].get("leaseTransitions") or 0)
        if not all(_has_seen(replica, transitions) for replica in sim.replicas):
            return False
        _DELETED[sim] = now
        with refusable():
            sim.store.delete(LEASES, *_named(sim))
        _put_back(sim, dict(lease["spec"]), [replica.machine for replica in sim.replicas])
        return True

    for each in chosen(sim, replica)[:1]:
        at_request(each, 1, "lease", "delete_lease", partial(act, each))


def _put_back(sim: Simulation, spec: Obj, saw: list[Machine | None]) -> None:
    namespace, name = _named(sim)
    if sim.store.find(LEASES, namespace, name) is not None:
        return
    if any(machine is None or not machine.alive for machine in saw):
        with refusable():
            sim.store.create(LEASES, {"metadata": {"namespace": namespace, "name": name}, "spec": spec})
        return
    later(sim, _SOON, partial(_put_back, sim, spec, saw))


def _has_seen(replica: Replica, transitions: int) -> bool:
    if replica.service is None:
        return False
    elector = replica.service.terms.elector
    return bool(elector.observed_at) and elector.last_epoch >= transitions


def take_lease(sim: Simulation, wait: float, seconds: float, count: int) -> None:
    """Another program stands for the same Lease, for ``wait`` seconds at most. Once it is free it holds it for so long,
    binds ``count`` of our pods each time that it renews it, and gives it back."""
    _Other(sim, sim.loop.time() + wait, seconds, count).look()


def _named(sim: Simulation) -> tuple[str, str]:
    flags = sim.script.flags
    namespace = flags.get("leader-elect-resource-namespace", [DEFAULT_NAMESPACE])[-1]
    return namespace, flags.get("leader-elect-resource-name", [DEFAULT_NAME])[-1]


class _Other:
    """A scheduler that is elected as client-go does it."""

    def __init__(self, sim: Simulation, until: float, seconds: float, count: int) -> None:
        self._sim, self._until, self._seconds, self._count = sim, until, seconds, count
        self._seen: tuple[Obj, float] = ({}, 0.0)
        """The Lease's spec as it was last seen to change, and when."""

    def look(self) -> None:
        now, found = self._sim.loop.time(), self._sim.store.find(LEASES, *_named(self._sim))
        spec: Obj = dict(found["spec"]) if found is not None else {}
        if spec != self._seen[0]:
            self._seen = spec, now
        if self._sim.calm or now >= self._until:
            return
        held = spec.get("holderIdentity") and now < self._seen[1] + (spec.get("leaseDurationSeconds") or _HELD)
        if held or not self._write(self._spec(spec.get("leaseTransitions", -1) + 1)):
            later(self._sim, _LOOK, self.look)
            return
        self._until = now + self._seconds
        self._sim.affected["take_lease"] += 1
        self._renew()

    def _renew(self) -> None:
        found = self._sim.store.find(LEASES, *_named(self._sim))
        if found is None or found["spec"].get("holderIdentity") != OTHER:
            return
        spec = dict(found["spec"])
        if self._sim.calm or self._sim.loop.time() >= self._until:
            self._write({**spec, "holderIdentity": "", "leaseDurationSeconds": RELEASED_SECONDS})
            return
        self._write({**spec, "renewTime": self._sim.store.now})
        bind_ours(self._sim, self._count, self._sim.loop.rng.randrange(8))
        later(self._sim, _RENEWED, self._renew)

    def _spec(self, transitions: int) -> Obj:
        since = self._sim.store.now
        return {"holderIdentity": OTHER, "leaseDurationSeconds": _HELD, "acquireTime": since, "renewTime": since,
                "leaseTransitions": max(transitions, 0)}  # fmt: skip

    def _write(self, spec: Obj) -> bool:
        store, (namespace, name) = self._sim.store, _named(self._sim)
        with refusable():
            if store.find(LEASES, namespace, name) is None:
                store.create(LEASES, {"metadata": {"namespace": namespace, "name": name}, "spec": spec})
            else:
                store.patch(LEASES, namespace, name, {"spec": spec})
            return True
        return False


ACTS: dict[str, Callable[..., None]] = {
    act.__name__: act
    for act in (
        two_leaders,
        two_leaders_at,
        share_identity,
        slow_renewals,
        clock_back,
        term_amid_calls,
        delete_lease,
        take_lease,
    )
}
