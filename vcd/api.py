"""The public functions, which ``import vcd`` and the commands share."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterable
from typing import Any

from vcd.model.codec import BadObject
from vcd.model.jsontext import shallow
from vcd.model.version import __version__
from vcd.model.words import span_in_words
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.framework.permissions import roles_for
from vcd.scheduling.framework.policy import Policy, PolicyError, Problem
from vcd.scheduling.framework.reasons import in_words as reason_in_words
from vcd.scheduling.framework.registry import RegistryError, describe_policy
from vcd.timetravel import logfile, planning
from vcd.timetravel.differences import Difference
from vcd.timetravel.figures import QueueFigures
from vcd.timetravel.history import opened
from vcd.timetravel.logfile import LogError
from vcd.timetravel.older import up_to_date
from vcd.timetravel.overview import Glance, NodeUse, Overview, glances, overview
from vcd.timetravel.parallel import processors
from vcd.timetravel.planning import PlanResult
from vcd.timetravel.replay import Replayed, replay
from vcd.timetravel.timeline import Ends, SessionLine, ends, session_lines
from vcd.timetravel.whatif.compare import Comparison, Run, Variant, whatif
from vcd.timetravel.whatif.edits import EditError, read_edits
from vcd.timetravel.whatif.fill import Filling, fill
from vcd.timetravel.whatif.report import html_report
from vcd.timetravel.whatif.submit import Submission, submit
from vcd.timetravel.whatif.sweep import Sweep, sweep, variants_of
from vcd.timetravel.why.causes import FirstCauses, first_causes
from vcd.timetravel.why.changes import Change
from vcd.timetravel.why.counterfactual import Counterfactual, smallest_change
from vcd.timetravel.why.evictions import EvictionExplanation, explain_eviction
from vcd.timetravel.why.explain import Explanation, NotFound, explain
from vcd.timetravel.why.obstacles import Obstacles, obstacles
from vcd.timetravel.why.orders import OrderExplanation, explain_order
from vcd.timetravel.why.queues import QueueExplanation, explain_queue
from vcd.timetravel.why.sessions import SessionExplanation, explain_session
from vcd.timetravel.why.verdict import Verdict, verdict, with_fix
from vcd.timetravel.words import moment


def plan(
    objects: Iterable[Any], conf: str | None = None, now: datetime.datetime | None = None, seed: int = 0
) -> PlanResult:
    """One cycle over plain manifests (mappings), without a cluster.

    ``conf`` is the text of a scheduler configuration file, None vc-scheduler's compiled-in default; ``now`` the time
    to decide for, None the present. Every pending pod is taken as ours, whatever its schedulerName.

    Raises PolicyError for a bad configuration and BadObject for what is no manifest at all.
    """
    at = time.time_ns() if now is None else int(now.timestamp() * 1_000_000_000)
    return planning.plan(objects, read_policy(conf), at, seed)
