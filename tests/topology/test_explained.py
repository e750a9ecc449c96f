"""Answers about groups that wait for a HyperNode: the domains, what holds them, and changes that help."""

from __future__ import annotations

from pathlib import Path

from tests import dsl
from tests.dsl import Manifest
from tests.timetravel.test_counterfactual import log_of, running
from tests.topology.manifests import CONF, hard, racks
from vcd import api
from vcd.model.reasons import Reason
from vcd.scheduling.framework import domainsearch
from vcd.timetravel.why.job_answer import answer_lines
from vcd.timetravel.why.snapshotchanges import Change

LABELS = CONF + "    arguments:\n      labels: zone, rack\n"


def answer(log: Path, name: str, *, change: bool = True) -> list[str]:
    """The lines of an answer, without its history."""
    with api.open(log) as opened:
        job = opened.job(name, "default")
        found = job.change(job.verdict().session) if change else None
        lines = list(answer_lines(job.story(), job.verdict(), job.obstacles(), found))
    return [line for line in lines if line.split()[0] not in ("History", "As")]


def change_of(log: Path, name: str) -> Change | None:
    with api.open(log) as opened:
        job = opened.job(name, "default")
        return job.change(job.verdict().session).change


def wide(size: int = 4, **limit: object) -> list[Manifest]:
    return list(dsl.gang("wide", size, cpu=8, group_spec={"networkTopology": {"mode": "hard", **limit}}))


async def test_the_answer_has_each_domain_and_its_holders_and_the_tier_that_helps(tmp_path: Path) -> None:
    held = running("old", 2, "r1-n0", cpu=4)
    log = await log_of(tmp_path, CONF, list(racks([2, 4, 2])), held, wide(highestTierAllowed=1))
    assert answer(log, "wide") == [
        "default/wide  WAITING 0 s  queue default  4 x 8 cpu, all or nothing",
        "Why      No allowed HyperNode fits: r1 takes 3 of 4 pods (tier 1, tried 3).",
        "Nodes    a HyperNode of tier 1 or below: 8; free capacity: 7",
        "Domains  r1 (tier 1) takes 3 of 4 pods, held by default/old 8 cpu; r0 (tier 1) 2; r2 (tier 1) 2",
        "Helps    job default/wide's highestTierAllowed 1 -> 2: all 4 pods are bound, to r0-n0, r0-n1, r2-n0, r2-n1",
    ]
    assert "Note     with highestTierAllowed 2, spine would have enough free resources" in answer(
        log, "wide", change=False
    )


async def test_the_change_of_a_limit_by_name_states_the_tier(tmp_path: Path) -> None:
    log = await log_of(tmp_path, CONF, list(racks([2, 3])), wide(highestTierName="rack"))
    before, after = {"": "rack"}, {"": "2"}
    assert change_of(log, "wide") == Change("tier", "default/wide", "highestTierName", before, after)


async def test_a_name_that_no_tier_has_is_changed_to_a_tier(tmp_path: Path) -> None:
    log = await log_of(tmp_path, CONF, list(racks([2, 4])), wide(highestTierName="row"))
    assert answer(log, "wide")[1] == (
        "Why      spec.networkTopology.highestTierName is row, which no HyperNode has as its tierName (existing: rack,"
        " spine)."
    )
    assert change_of(log, "wide") == Change("tier", "default/wide", "highestTierName", {"": "row"}, {"": "1"})


async def test_a_sub_group_has_its_own_limit_raised(tmp_path: Path) -> None:
    policy = {"name": "all", "subGroupSize": 4, "networkTopology": {"mode": "hard", "highestTierAllowed": 1}}
    pods = list(dsl.gang("wide", 4, cpu=8, group_spec={"subGroupPolicy": [policy]}))
    log = await log_of(tmp_path, CONF, list(racks([2, 3])), pods)
    assert change_of(log, "wide") == Change(
        "tier", "default/wide", "subGroupPolicy[0].highestTierAllowed", {"": "1"}, {"": "2"}
    )


async def test_a_node_is_labelled_for_a_domain(tmp_path: Path) -> None:
    nodes = [dsl.node(f"n{number}", cpu=8, labels={"zone": "z0", "rack": "r0"}) for number in range(3)]
    spare = dsl.node("spare", cpu=8, labels={"zone": "z0"})
    log = await log_of(tmp_path, LABELS, [*nodes, spare], wide(highestTierAllowed=1))
    assert answer(log, "wide")[1:] == [
        "Why      No allowed HyperNode fits: z0/r0 takes 3 of 4 pods (tier 1, tried 1).",
        "Nodes    a HyperNode of tier 1 or below: 3; free capacity: 4 (3 left)",
        "Domains  z0/r0 (tier 1) takes 3 of 4 pods",
        "Helps    label spare rack=r0: all 4 pods are bound, to n0, n1, n2, spare",
    ]


async def test_a_cluster_without_hyper_nodes_is_the_reason(tmp_path: Path) -> None:
    log = await log_of(tmp_path, CONF, [dsl.node("n0", cpu=8)], wide(1, highestTierAllowed=1))
    assert answer(log, "wide")[1] == "Why      spec.networkTopology is hard, and there is no HyperNode."


async def test_no_change_is_offered_that_does_not_help(tmp_path: Path) -> None:
    log = await log_of(tmp_path, CONF, list(racks([1, 1])), wide(4, highestTierAllowed=1))
    change = change_of(log, "wide")
    assert change is not None
    assert change.what == "minimum"


def test_one_pod_is_no_plural() -> None:
    taken = dsl.gang("old", 1, cpu=8, on=["r0-n0"], phase="Running")
    racks_of_one = racks([1]), dsl.node("spare", cpu=8)
    result = dsl.planned(*racks_of_one, taken, dsl.gang("g", 1, cpu=8, group_spec=hard(1)), conf=CONF)
    assert result.why["default/g"][0]["reason"] == "no allowed HyperNode fits: r0 takes 0 of 1 pods"


def test_a_reason_of_an_older_log_can_be_read() -> None:
    old = Reason(domainsearch.NO_DOMAIN.name, (("domains", "r1 (tier 1) takes 3"),), (("needed", "", 4),))
    assert old.words == "no allowed HyperNode fits: ? takes ? of 4 pods"
    assert old.detail == {"domains": "r1 (tier 1) takes 3"}
