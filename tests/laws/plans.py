"""What the laws that compare plans with the slow reference share."""

from __future__ import annotations

import yaml

from tests.parity.cases import NOW
from tests.reference.clusters import RandomCase
from vcd.scheduling.closing import plan_of
from vcd.scheduling.decide import run
from vcd.scheduling.registry import kinds_read, read_policy
from vcd.state.snapshot import SnapshotMaker
from vcd.timetravel.planning import state_of


def planned_annotations(case: RandomCase, seed: int = 0) -> dict[str, dict[str, str]]:
    """By pod what its bind brings, of pods to which it brings anything."""
    policy = read_policy(case.conf)
    state = state_of(case.objects, kinds=kinds_read(policy))
    session = run(SnapshotMaker(state).snapshot(), policy, int(NOW.timestamp() * 10**9), seed)
    return {
        operation.key: dict(operation.annotations)
        for statement in plan_of(session).statements
        for operation in statement.operations
        if operation.verb == "bind" and operation.annotations
    }


def without(conf: str, plugin: str) -> str:
    """A configuration less one plugin."""
    loaded = yaml.safe_load(conf)
    for tier in loaded["tiers"]:
        tier["plugins"] = [one for one in tier["plugins"] if one["name"] != plugin]
    return str(yaml.safe_dump(loaded))
