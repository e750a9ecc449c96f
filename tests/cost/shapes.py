"""The shapes whose calls are counted: those of ``bench session``, ``steady`` and ``contention``, small."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from typing import NamedTuple

from bench.clusters import Manifest, pending_gangs
from bench.contention import CONFS, full_of_low, half_deserved, in_teams, with_cards
from bench.hostile import ATTACKS
from bench.session import DEFAULT, PLACEMENT, create_gang, different_pods, pods_apart, pods_spread, running_gangs
from bench.steady import Scheduler, running_jobs, waiting_jobs
from tests.dsl import policy_of
from vcd.scheduling.decide import decide
from vcd.state.cluster_state import ClusterState
from vcd.state.snapshot import SnapshotMaker
from vcd.timetravel.planning import state_of

LINEAR = 2.3
"""How much more a shape of twice the size may cost where the work of a session grows with it."""
STEADY = 1.3
"""The same where only the cluster grows, and what a session has to do does not."""
BOUNDED = 1.05
"""The same where only one namespace grows, of which a session tries no more than ``Settings.kinds`` kinds."""
_COMING = 10
"""Objects of an attack that come before a session is decided, and as many while it is."""

Prepare = Callable[[int], Callable[[], object]]
"""Makes a cluster of size n and returns the session to be counted."""


class Shape(NamedTuple):
    """A size, how much the count may grow from n to 2n, and the session."""

    n: int
    growth: float
    prepare: Prepare


def _first_session(objects: Callable[[int], Iterable[Manifest]], conf: str) -> Prepare:
    return _session_of(lambda n: state_of(objects(n)), conf)


def _session_of(state: Callable[[int], ClusterState], conf: str) -> Prepare:
    def prepare(n: int) -> Callable[[], object]:
        maker = SnapshotMaker(state(n))
        return lambda: decide(maker.snapshot(), policy_of(conf), 0, 0)

    return prepare


def _new_gang_among_running(n: int) -> Callable[[], object]:
    scheduler = Scheduler(running_gangs(n, 2 * n))
    for number in (9000, 9001):
        scheduler.fold(*scheduler.decide())
        create_gang(scheduler.state, number)
    return scheduler.decide


def _idle(objects: Callable[[int], Iterable[Manifest]]) -> Prepare:
    return lambda n: Scheduler(objects(n)).decide


def _newcomer(objects: Callable[[int], Iterable[Manifest]]) -> Prepare:
    def prepare(n: int) -> Callable[[], object]:
        scheduler = Scheduler(objects(n))
        for _ in range(2):
            scheduler.fold(*scheduler.decide())
            scheduler.create_job()
        return scheduler.decide

    return prepare


def _attacked(attack: str) -> Prepare:
    """Decide and verify while the first n groups of an attack are there and more come: one pod of others is new."""

    def prepare(n: int) -> Callable[[], object]:
        objects = ATTACKS[attack](20)
        scheduler = Scheduler(running_jobs(0, 20))
        scheduler.put(islice(objects, 2 * n))

        def session() -> None:
            scheduler.put(islice(objects, _COMING))
            scheduler.create_job()
            decided = scheduler.decide()
            scheduler.put(islice(objects, _COMING))
            scheduler.verify(*decided)
            scheduler.fold(*decided)

        for _ in range(3):
            session()
        return session

    return prepare


def _running_groups(n: int) -> Iterable[Manifest]:
    return running_jobs(n, 50)


def _equal_groups(n: int) -> Iterable[Manifest]:
    return waiting_jobs(n, 20, 1, 1)


def _groups_of_kinds(n: int) -> Iterable[Manifest]:
    return waiting_jobs(n, 20, 20, 10)


def _groups_without_a_node(n: int) -> Iterable[Manifest]:
    for manifest in _equal_groups(n):
        if manifest["kind"] == "Pod" and not manifest["spec"].get("nodeName"):
            manifest["spec"]["nodeSelector"] = {"no": "such"}
        yield manifest


_ATTACKS = (
    "1,000 groups with preferred anti-affinity",
    "5,000 running pods with 5 preferred terms",
    "1,000 running pods with 100 required terms",
    "3,000 kinds of pods",
    "3,000 kinds of pods that fit nowhere",
    "1,000 groups with required anti-affinity that fit nowhere",
)

SHAPES = {
    "gangs": Shape(1000, LINEAR, _session_of(lambda n: pending_gangs(n // 5, n, 4), DEFAULT)),
    "different": Shape(2, LINEAR, _first_session(lambda n: different_pods(50 * n, n), DEFAULT)),
    "new gang among running": Shape(20, STEADY, _new_gang_among_running),
    "anti-affinity": Shape(100, LINEAR, _first_session(pods_apart, PLACEMENT)),
    "spread": Shape(100, LINEAR, _first_session(pods_spread, PLACEMENT)),
    "running groups: idle": Shape(500, STEADY, _idle(_running_groups)),
    "running groups: newcomer": Shape(500, STEADY, _newcomer(_running_groups)),
    "equal pending groups: idle": Shape(500, STEADY, _idle(_equal_groups)),
    "equal pending groups: newcomer": Shape(500, STEADY, _newcomer(_equal_groups)),
    "pending groups of 20 kinds: idle": Shape(500, STEADY, _idle(_groups_of_kinds)),
    "pending groups of 20 kinds: newcomer": Shape(500, STEADY, _newcomer(_groups_of_kinds)),
    "groups that no node takes: idle": Shape(500, STEADY, _idle(_groups_without_a_node)),
    **{f"newcomer beside {attack}": Shape(250, BOUNDED, _attacked(attack)) for attack in _ATTACKS},
    "reclaim": Shape(50, LINEAR, _first_session(half_deserved, CONFS["reclaim"])),
    "gangreclaim": Shape(50, LINEAR, _first_session(lambda n: half_deserved(n, n // 2), CONFS["gangreclaim"])),
    **{
        name: Shape(100, LINEAR, _first_session(full_of_low, CONFS[name]))
        for name in ("allocate", "preempt", "preempt by share", "gangpreempt")
    },
    "queues": Shape(50, LINEAR, _first_session(partial(in_teams, tree=False), CONFS["queues"])),
    "capacity": Shape(50, LINEAR, _first_session(partial(in_teams, tree=False), CONFS["capacity"])),
    "capacity in a tree": Shape(50, LINEAR, _first_session(partial(in_teams, tree=True), CONFS["capacity in a tree"])),
    "cards": Shape(50, LINEAR, _first_session(with_cards, CONFS["cards"])),
    "capacity-card": Shape(50, LINEAR, _first_session(with_cards, CONFS["capacity-card"])),
}
