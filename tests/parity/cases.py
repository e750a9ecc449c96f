"""The oracle's cases: where they are, which a configuration admits, and what it means to agree."""

from __future__ import annotations

import datetime
import gzip
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import yaml

from tests.reference.config import LOADER
from vcd.scheduling.framework import registry

NOW = datetime.datetime(2026, 11, 21, 8, 0, tzinfo=datetime.UTC)
REFERENCE_ACTIONS = frozenset({"enqueue", "allocate", "backfill"})
REFERENCE_PLUGINS = frozenset(
    {"priority", "gang", "conformance", "overcommit", "drf", "proportion", "predicates", "nodeorder", "binpack"}
)
"""What the slow reference knows."""
ENVIRONMENT = "VCD_ORACLE_DIR"
EVICTING = ("preempt", "pdb", "cdp", "conformance", "reclaim")
"""Families (with or without ``tables_``) in which another choice of victims or nodes is no disagreement."""
_GETTING_IN = ("bound_per_job", "bound_total", "pipelined_per_job", "phases")
_WHO_GOES = ("binds", "bound_per_node", "evictions", "evicted_per_job", "evicted_total")
_ROOT = Path(__file__).resolve().parents[2]
_DRAWN = _ROOT / "tests" / "data" / "oracle"
_MEASURED = _ROOT / "tests" / "data" / "measured" / "volcano.json.gz"


class Outcome(Protocol):
    """What an implementation returns."""

    binds: dict[str, str]
    evictions: list[str]
    pipelined: dict[str, str]
    phases: dict[str, str]


Implementation = Callable[[list[dict[str, Any]], str, datetime.datetime, int], Outcome]
"""Objects, configuration, time and seed to a decision."""
MEASURED_SEED = 1


@dataclass(frozen=True)
class Case:
    """One cluster with its configuration and what Volcano decided on it."""

    family: str
    name: str
    conf: str
    objects: list[dict[str, Any]]
    expected: dict[str, Any]
    seed: int = 0


@cache
def load() -> tuple[Case, ...]:
    """All cases: the drawn families of this checkout, and the tables where the oracle's folder is at hand."""
    files = sorted(_DRAWN.glob("*.json"))
    folder = Path(os.environ.get(ENVIRONMENT) or _ROOT.parent / "shared" / "oracle")
    if folder.is_dir():
        files += sorted(folder.glob("tables_*.json"))
    return tuple(recorded(file.stem, raw) for file in files for raw in json.loads(file.read_text()))


@cache
def measured() -> tuple[Case, ...]:
    """Random clusters and what Volcano decided on them, ties by the seeded order (see the data's README)."""
    listed = json.loads(gzip.decompress(_MEASURED.read_bytes()))
    return tuple(replace(recorded("measured", raw), seed=MEASURED_SEED) for raw in listed)


def select(actions: Iterable[str] = (), plugins: Iterable[str] = (), hierarchy: bool = True) -> list[Case]:
    """The cases whose configuration names only these actions and plugins, any where none are given, with or without
    drf's hierarchy."""
    allowed_actions = set(actions) or {*registry.actions()}
    allowed_plugins = set(plugins) or {*registry.plugins()}
    chosen = []
    for case in load():
        conf = _read(case.conf)
        options = [plugin for tier in conf["tiers"] for plugin in tier["plugins"]]
        hierarchical = any(plugin["name"] == "drf" and plugin.get("enableHierarchy") for plugin in options)
        named = {action.strip() for action in conf["actions"].split(",")}
        if named <= allowed_actions and {plugin["name"] for plugin in options} <= allowed_plugins:
            chosen += [case] if hierarchy or not hierarchical else []
    return chosen


@cache
def _read(conf: str) -> dict[str, Any]:
    read: dict[str, Any] = yaml.load(conf, Loader=LOADER)
    return read


def referable() -> list[Case]:
    """The cases that the slow reference can decide."""
    return select(REFERENCE_ACTIONS, REFERENCE_PLUGINS, hierarchy=False)


def run(case: Case, implementation: Implementation) -> list[str]:
    """The disagreements of an implementation on a case."""
    return compare(case, implementation(case.objects, case.conf, NOW, case.seed))


def disagreements(case: Case, outcome: Outcome) -> list[str]:
    """Every expected key that does not hold and should: where tasks are evicted it is enough that the same pods get in
    with no more evictions."""
    problems = compare(case, outcome)
    if not problems or not case.family.removeprefix("tables_").startswith(EVICTING):
        return problems
    got, expected = _told(case, outcome), case.expected
    same = all((expected[key] or None) == (got[key] or None) for key in _GETTING_IN if key in expected)
    fewer = len(outcome.evictions) <= expected.get("evicted_total", len(outcome.evictions))
    return [problem for problem in problems if not (same and fewer and problem.split(":")[0] in _WHO_GOES)]


def compare(case: Case, outcome: Outcome) -> list[str]:
    """Every expected key that does not hold, with both sides."""
    got = _told(case, outcome)
    return [
        f"{key}: expected {value}, got {got[key]}"
        for key, value in sorted(case.expected.items())
        if (value or None) != (got[key] or None)
    ]


def _told(case: Case, outcome: Outcome) -> dict[str, Any]:
    groups = _groups(case)
    return {
        "binds": outcome.binds,
        "bound_per_job": _count(groups.get(pod) for pod in outcome.binds),
        "bound_per_node": _count(outcome.binds.values()),
        "bound_total": len(outcome.binds),
        "evictions": sorted(outcome.evictions),
        "evicted_per_job": _count(groups.get(pod) for pod in outcome.evictions),
        "evicted_total": len(outcome.evictions),
        "pipelined_per_job": _count(groups.get(pod) for pod in outcome.pipelined),
        "phases": {key: outcome.phases.get(key) for key in case.expected.get("phases") or {}},
    }


def recorded(family: str, raw: dict[str, Any]) -> Case:
    """A case as it is recorded."""
    return Case(family, raw["name"], raw["conf"], list(map(_with_priority, raw["objects"])), raw["expected"])


def _with_priority(manifest: dict[str, Any]) -> dict[str, Any]:
    """A pod with its priority stated: Volcano got it without the API server's admission, and took 1 where none is."""
    spec = manifest.get("spec") or {}
    if manifest["kind"] != "Pod" or spec.get("priority") is not None:
        return manifest
    return {**manifest, "spec": {**spec, "priority": 1}}


def _groups(case: Case) -> dict[str, str]:
    """Group name by pod."""
    found = {}
    for manifest in case.objects:
        if manifest["kind"] == "Pod":
            meta = manifest["metadata"]
            group = (meta.get("annotations") or {}).get("scheduling.k8s.io/group-name", "")
            found[f"{meta.get('namespace', 'default')}/{meta['name']}"] = group
    return found


def _count(names: Iterable[str | None]) -> dict[str, int]:
    return dict(Counter(name or "" for name in names))
