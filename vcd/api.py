"""The public functions, which ``import vcd`` and the commands share."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterable
from typing import Any

from vcd.scheduling.policy import Policy, PolicyError, Problem
from vcd.scheduling.registry import RegistryError, describe_policy, read_policy
from vcd.timetravel import planning
from vcd.timetravel.planning import PlanResult

__all__ = [
    "PlanResult",
    "Policy",
    "PolicyError",
    "Problem",
    "RegistryError",
    "describe_policy",
    "plan",
    "read_policy",
]


def plan(
    objects: Iterable[Any], conf: str | None = None, now: datetime.datetime | None = None, seed: int = 0
) -> PlanResult:
    """One cycle over plain manifests (mappings), without a cluster.

    ``conf`` is the text of a scheduler configuration file, None vc-scheduler's compiled-in default; ``now`` the time
    to decide for, None the present. Every pending pod is taken as ours, whatever its schedulerName.

    Raises PolicyError for a bad configuration and BadObject for what is no manifest at all.
    """
    moment = time.time_ns() if now is None else int(now.timestamp() * 1_000_000_000)
    return planning.plan(objects, read_policy(conf), moment, seed)
