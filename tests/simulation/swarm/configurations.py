"""Configurations of the scheduler, put together from parts."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

import yaml

from tests.laws import liveness

ORDERS = (*liveness.ORDERS, "enqueue, allocate, preempt, backfill, shuffle")
QUOTAS: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("proportion", {}, ""),
    ("proportion", {}, ""),
    ("capacity", {}, ""),
    ("capacity", {"enableHierarchy": True}, "tree"),
    ("capacity-card", {}, "cards"),
    ("capacity-card", {"arguments": {"cardUnlimitedCpuMemory": True}}, "cards"),
    ("", {}, ""),
)
"""Plugins that hold queues to something, what else their entry says, and the trait that needs."""
FIRST: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("conformance", {}, ""),
    ("sla", {"arguments": {"sla-waiting-time": "20s"}}, ""),
    ("tdm", {"arguments": {"tdm.revocable-zone.rz": "00:00-00:01", "tdm.evict.period": "5s"}}, "zones"),
    ("cdp", {}, ""),
    ("pdb", {}, "budgets"),
)
"""What may stand beside priority and gang in the first tier."""
SECOND: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("overcommit", {"arguments": {"overcommit-factor": 1.1}}, ""),
    ("overcommit", {}, ""),
    ("drf", {}, ""),
    ("nodeorder", {}, ""),
    ("binpack", {"arguments": {"binpack.weight": 5}}, ""),
    ("resourcequota", {}, "quotas"),
    ("nodegroup", {"arguments": {"strict": False}}, "nodegroups"),
    ("nodegroup", {"enableHierarchy": True}, "nodegroups"),
    ("task-topology", {"arguments": {"task-topology.weight": 10}}, ""),
    ("resource-strategy-fit", {}, ""),
    ("deviceshare", {"arguments": {"deviceshare.GPUNumberEnable": True}}, "shares"),
    ("pdb", {}, "budgets"),
    ("usage", {"arguments": {"thresholds": {"cpu": 60, "mem": 70}}}, "loads"),
    ("rescheduling", {"arguments": {"interval": "10s", "strategies": [
        {"name": "lowNodeUtilization", "params": {"thresholds": {"cpu": 40, "memory": 40},
                                                  "targetThresholds": {"cpu": 60, "memory": 70}}}]}}, "loads"),
    ("extender", {"arguments": {f"extender.{verb}Verb": verb for verb in (
        "onSessionOpen", "predicate", "prioritize", "preemptable", "reclaimable")}
        | {"extender.urlPrefix": "http://extender:8080"}}, "extender"),
)  # fmt: skip
"""What may stand in the second tier."""
METRICS = {"type": "prometheus", "address": "http://prometheus:9090", "interval": "5s"}
"""Where from what nodes use is known."""


@dataclass(frozen=True)
class Configuration:
    """A configuration file's text, empty for the compiled-in one; and what of the cluster its plugins look at."""

    text: str
    traits: frozenset[str]


def configuration(rng: Random) -> Configuration:
    """One of all that can be put together; the compiled-in one seldom."""
    if rng.random() < 0.1:
        return Configuration("", frozenset())
    chosen = [each for each in SECOND if rng.random() < (0.08 if each[2] in ("loads", "extender") else 0.35)]
    name, options, trait = rng.choice(QUOTAS)
    if name:
        chosen.insert(rng.randint(0, len(chosen)), (name, options, trait))
    chosen.insert(rng.randint(0, len(chosen)), ("predicates", {}, ""))
    first = [("priority", {}, ""), *([("gang", {}, "")] if rng.random() < 0.8 else [])]
    tiers = [[*first, *(each for each in FIRST if rng.random() < 0.3)], chosen]
    if rng.random() < 0.2:
        everything = [each for tier in tiers for each in tier]
        rng.shuffle(everything)
        cut = rng.randint(1, len(everything))
        tiers = [everything[:cut], everything[cut:]]
    return _written(rng.choice(ORDERS), tiers)


def _written(order: str, tiers: list[list[tuple[str, dict[str, Any], str]]]) -> Configuration:
    known: dict[str, str] = {}
    written = []
    for tier in tiers:
        plugins = []
        for name, options, trait in tier:
            if name not in known:
                known[name] = trait
                plugins.append({"name": name, **options})
        if plugins:
            written.append({"plugins": plugins})
    if "rescheduling" in known and "shuffle" not in order:
        order += ", shuffle"
    metrics = {"metrics": METRICS} if "loads" in known.values() else {}
    text = yaml.safe_dump({"actions": order, "tiers": written, **metrics}, sort_keys=False)
    return Configuration(text, frozenset(known.values()) - {""})
