"""Each rule of the slow reference decides some of the random clusters, so that the comparison with it has cases.

These tests try the generators of cases, not vcd, and run with `make test-all`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.laws.plans import decided_otherwise, enough, without_effect
from tests.laws.sharing import borrowed_case, shares_case
from tests.parity.cases import NOW
from tests.reference import PLUGINS, Result, actions, decide, evictions, gangs, lending
from tests.reference.carded import carded_case, contested_case, lent_case
from tests.reference.cards import IDS
from tests.reference.clusters import RandomCase, random_case
from tests.reference.cpus import GIVEN, own_cpus
from tests.reference.crowded import crowded_case, waiting_case
from tests.reference.extended import VICTIMS, extended_case
from tests.reference.extender import Server
from tests.reference.ganging import gang_case
from tests.reference.machines import machine_case
from tests.reference.model import Job, build, total
from tests.reference.ordering import ordering_case
from tests.reference.quotas import Cards, Demands
from tests.reference.rebalancing import rebalance_case
from tests.reference.reclaiming import reclaim_case
from tests.reference.sampled import sampled_case
from tests.reference.shared import shared_case
from tests.reference.shuffling import shuffle_case
from tests.reference.values import Resource

pytestmark = pytest.mark.wide
CaseOf = Callable[[int], RandomCase]
SHARING = (26, *range(160, 180), 2442, 2801)


def decided(case_of: CaseOf, count: int) -> list[Result]:
    """What the reference decides on the first cases of a family."""
    return [decide(case.objects, case.conf, NOW) for case in map(case_of, range(count))]


# --- one rule less ----------------------------------------------------------------------------------------------------


def instead(target: Any, name: str, value: Any) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda monkeypatch: monkeypatch.setattr(target, name, value)


def without(plugin: str) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda monkeypatch: monkeypatch.setitem(PLUGINS, plugin, lambda session, arguments: None)


def displacing_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (evictions, gangs):
        monkeypatch.setattr(module, "displacing", lambda *_: False)


def _ahead_of_all(cards: Cards, job: Job) -> tuple[Demands, Resource]:
    """What all admitted groups may still take, as Volcano counts."""
    waiting, basic = cards.inqueue[job.queue], cards.waits[job.queue]
    return [each for _, demands in waiting for each in demands], total(amount for _, amount in basic)


@pytest.mark.parametrize(
    ("case_of", "patch", "seeds", "least"),
    [
        (waiting_case, displacing_nothing, range(200), 3),
        (ordering_case, instead(actions, "unpipeline_idle", lambda session, is_mine: None), range(200), 10),
        (extended_case, instead(Server, "forbids", lambda *_: False), range(80), 4),
        (sampled_case, without("usage"), range(40), 10),
        (machine_case, without("numa-aware"), range(40), 12),
        (shared_case, without("deviceshare"), range(40), 12),
        (carded_case, without("capacity-card"), range(40), 13),
        (contested_case, instead(Cards, "freed", lambda *_: {}), range(100), 5),
        (contested_case, instead(Cards, "ahead", _ahead_of_all), range(100), 5),
        (borrowed_case, instead(lending, "reclaimable", lambda *asked: Resource()), range(20), 1),
        (shares_case, instead(actions, "_lend", lambda session: None), SHARING, 1),
        (shares_case, instead(lending, "never_placed", lambda session: set()), SHARING, 1),
        (shares_case, instead(lending, "takes_guaranteed", lambda *asked: False), SHARING, 1),
        (shares_case, instead(lending, "usable", lambda *asked: {}), SHARING, 1),
        (
            shares_case,
            instead(lending, "reserved", lambda session, queue, volcano: queue.guarantee or Resource()),
            SHARING,
            1,
        ),
    ],
)
def test_a_rule_decides_some_cases(
    case_of: CaseOf, patch: Callable[[pytest.MonkeyPatch], None], seeds: range, least: int
) -> None:
    assert enough(decided_otherwise(case_of, patch, seeds), least)


RECLAIM = ("capacity-card", "preemptive"), ("capacity-card", "unprotected reclaimable", "reclaimable")
PARTS = (
    ("conformance", "unprotected", "reclaimable"),
    ("pdb", "unprotected", "reclaimable"),
    ("cdp", "unprotected", "reclaimable"),
    ("proportion", "preemptive"),
    ("proportion", "unprotected reclaimable", "reclaimable"),
    ("capacity", "preemptive"),
    ("capacity", "unprotected reclaimable", "reclaimable"),
    ("capacity", "victimQueueOrder"),
    ("drf", "reclaimable"),
)
TDM = ("predicate", "nodeOrder", "jobOrder", "jobPipelined", "jobStarving", "preemptable", "victimTasks")
ASKED = ("predicate", "nodeOrder", "jobEnqueueable", "jobEnqueued", "overused", "jobReady", *VICTIMS)


@pytest.mark.parametrize(
    ("case_of", "parts", "count"),
    [
        (reclaim_case, PARTS, 300),
        (lent_case, (*RECLAIM, ("capacity-card", "surplus")), 150),
        (shuffle_case, [("tdm", point) for point in TDM], 300),
        (extended_case, [("extender", point) for point in ASKED], 300),
    ],
)
def test_what_a_plugin_says_at_a_point_decides_some_cases(
    case_of: CaseOf, parts: list[tuple[str, ...]], count: int
) -> None:
    assert without_effect(case_of, parts, range(count)) == {}


# --- what happens -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case_of", "count", "least"),
    [
        (crowded_case, 200, 10),
        (contested_case, 100, 20),
        (ordering_case, 200, 20),
        (reclaim_case, 100, 25),
        (shuffle_case, 100, 10),
        (rebalance_case, 150, 19),
    ],
)
def test_pods_are_evicted(case_of: CaseOf, count: int, least: int) -> None:
    cases = map(case_of, range(count))
    assert enough((decide(case.objects, case.conf, NOW).evictions for case in cases), least)


def test_the_cases_place_wait_and_refuse() -> None:
    results = decided(random_case, 100)
    assert enough((result.binds for result in results), 40)
    assert enough((result.pipelined for result in results), 6)
    phases = {phase for result in results for phase in result.phases.values()}
    assert phases == {"Pending", "Inqueue", "Running", "Unknown", "Completed"}


def test_pods_are_bound_where_pods_are_shuffled() -> None:
    assert enough((result.binds for result in decided(shuffle_case, 30)), 5)


def _ends_jobs(case: RandomCase, gone: list[str]) -> bool:
    """Whether a job goes as a whole that had a minimum."""
    least = {o["metadata"]["name"]: o["spec"]["minMember"] for o in case.objects if o["kind"] == "PodGroup"}
    runs: dict[str, list[str]] = {}
    for pod in case.objects:
        if pod["kind"] == "Pod" and pod["spec"].get("nodeName"):
            group = pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"]
            runs.setdefault(group, []).append(f"{pod['metadata']['namespace']}/{pod['metadata']['name']}")
    return any(least[name] > 0 and set(pods) <= set(gone) for name, pods in runs.items())


def test_gangs_are_evicted_by_either_action_some_as_whole_jobs() -> None:
    found: Counter[str] = Counter()
    for case in map(gang_case, range(200)):
        gone = decide(case.objects, case.conf, NOW).evictions
        done = case.conf.partition("\n")[0]
        found.update([name for name in ("gangpreempt", "gangreclaim") if gone and name in done])
        found.update(["whole"] if _ends_jobs(case, gone) else [])
        if len(found) == 3 and min(found.values()) >= 10:
            return
    raise AssertionError(found)


def test_cards_and_cpus_are_handed_out() -> None:
    cards = [marks.get(IDS, "") for result in decided(shared_case, 100) for marks in result.annotations.values()]
    assert enough(cards, 50)
    assert enough(("[" in ids for ids in cards), 10)
    assert enough(
        (GIVEN in marks for result in decided(machine_case, 100) for marks in result.annotations.values()), 50
    )


def test_limits_make_some_pods_guaranteed_and_others_not() -> None:
    tasks = [task for seed in range(60) for task in build(machine_case(seed).objects).tasks.values()]
    limited = [task for task in tasks if any("limits" in one["resources"] for one in task.spec["containers"])]
    assert enough((own_cpus(task) is None for task in limited), 50)
    assert enough((own_cpus(task) is not None for task in limited), 200)
