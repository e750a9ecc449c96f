"""The public Python functions, which ``import vcd`` offers, and the errors that they raise."""

from __future__ import annotations

import datetime
import time
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from vcd.model.projection_codec import BadObject
from vcd.model.version import __version__
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.framework.policy import PolicyError
from vcd.state.records import Settings
from vcd.timetravel import planning
from vcd.timetravel.log_operations import LogError
from vcd.timetravel.log_queries import Log
from vcd.timetravel.planning import PlanResult
from vcd.timetravel.query_errors import NotFound
from vcd.timetravel.replay import replay
from vcd.timetravel.why.explain import Explanation
from vcd.timetravel.why.name_lookup import Kind

__all__ = [
    "BadObject", "LogError", "NotFound", "PlanResult", "PolicyError", "__version__",
    "explain", "open", "plan", "replay",
]  # fmt: skip


def plan(
    objects: Iterable[Any],
    conf: str | None = None,
    now: datetime.datetime | None = None,
    seed: int = 0,
    schedulers: Collection[str] | None = None,
    *,
    default_queue: str = "default",
    node_selector: Sequence[str] = (),
) -> PlanResult:
    """Decide one cycle over manifests (mappings), without a cluster.

    Args:
        conf: Text of a scheduler configuration file; None for vc-scheduler's compiled-in default.
        now: Time to decide for; None for the current time.
        schedulers: Values of ``schedulerName`` whose pods to schedule; None for all pending pods.
        default_queue: Queue of PodGroups that name none.
        node_selector: Labels as ``key:value``; if given, only nodes with one of them are used.

    Raises:
        PolicyError: The configuration is invalid.
        BadObject: An object is no manifest.
    """
    at = time.time_ns() if now is None else int(now.timestamp() * 1_000_000_000)
    settings = Settings(tuple(schedulers or ()), default_queue, node_selector=tuple(node_selector), kinds=0)
    return planning.plan(objects, read_policy(conf), at, seed, settings)


def open(path: str | Path) -> Log:
    """Open a log file for queries; use it as a context manager. Raises LogError for an unusable file."""
    return Log(path)


def explain(path: str | Path, kind: Kind, name: str, namespace: str = "default") -> Explanation:
    """Explain the history of a job or pod."""
    with Log(path) as log, log.pinned():
        return log.pod(name, namespace) if kind == "pod" else log.job(name, namespace).story()
