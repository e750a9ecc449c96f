"""The public functions, which ``import vcd`` and the commands share."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterable
from typing import Any

from vcd.model.codec import BadObject
from vcd.model.version import __version__
from vcd.scheduling.policy import Policy, PolicyError, Problem
from vcd.scheduling.registry import RegistryError, describe_policy, read_policy
from vcd.timetravel import logfile, planning
from vcd.timetravel.explain import Explanation, NotFound, explain
from vcd.timetravel.logfile import LogError
from vcd.timetravel.planning import PlanResult
from vcd.timetravel.replay import Difference, Replayed, replay
from vcd.timetravel.words import moment

__all__ = [
    "BadObject",
    "Difference",
    "Explanation",
    "LogError",
    "NotFound",
    "PlanResult",
    "Policy",
    "PolicyError",
    "Problem",
    "RegistryError",
    "Replayed",
    "__version__",
    "describe_policy",
    "explain",
    "logfile",
    "moment",
    "plan",
    "read_policy",
    "replay",
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
