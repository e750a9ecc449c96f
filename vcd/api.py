"""The public functions: what ``import vcd`` offers and the commands call."""

from __future__ import annotations

import datetime
import importlib
import time
from collections.abc import Collection, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vcd.model.codec import BadObject
from vcd.model.jsontext import shallow
from vcd.model.manifests import plain
from vcd.model.plainjson import TOO_MANY_DIGITS
from vcd.model.reasons import CAUSES
from vcd.model.version import __version__
from vcd.model.words import counted, cut, did_you_mean, some, span_in_words
from vcd.text.amounts import pods_on_nodes
from vcd.text.phrases import UNKNOWN
from vcd.text.times import clock_time, moment
from vcd.timetravel import logfile
from vcd.timetravel.errors import NotFound
from vcd.timetravel.history import opened
from vcd.timetravel.log import Log, LoggedJob
from vcd.timetravel.logfile import LogError
from vcd.timetravel.older import errors_about, up_to_date
from vcd.timetravel.why.explain import Explanation
from vcd.timetravel.why.names import Kind

if TYPE_CHECKING:
    from vcd.diagnosis.diagnosedwaits import DiagnosedWait
    from vcd.model.yamltext import YamlError, read_documents
    from vcd.scheduling.configuration import read_policy
    from vcd.scheduling.framework.arguments import parse_duration
    from vcd.scheduling.framework.permissions import roles_for
    from vcd.scheduling.framework.policy import Policy, PolicyError, Problem
    from vcd.scheduling.framework.policydiff import PolicyChange, policy_changes
    from vcd.scheduling.framework.queuefields import check_queues, unread_queue_fields
    from vcd.scheduling.framework.registry import RegistryError, describe_policy
    from vcd.text.amounts import number, resource_name
    from vcd.text.capacity import capacity_lines, cluster_resource, resource_shown
    from vcd.text.outcomes import Screen
    from vcd.text.reasons import full_reason_text
    from vcd.timetravel.bisect import JobBisection, WaitsBisection, bisect_job, bisect_waits
    from vcd.timetravel.clusterchanges import ClusterChanges
    from vcd.timetravel.differences import Difference
    from vcd.timetravel.joblines import STATES
    from vcd.timetravel.joblist import JobFilter, JobRow, Jobs, jobs
    from vcd.timetravel.lognames import names_in
    from vcd.timetravel.logwriter import LogStanding, errors_with_writer, standing
    from vcd.timetravel.overview import (
        Glance,
        NodeUse,
        Overview,
        PodLine,
        glances,
        longest_waits,
        overview,
        overview_before_sessions,
        pods_on,
    )
    from vcd.timetravel.parallel import processors
    from vcd.timetravel.planning import PlacedJob, PlanResult
    from vcd.timetravel.queuestatistics import QueueStatistics
    from vcd.timetravel.reading import Reading, queues_in, read, to_create
    from vcd.timetravel.remarks import remarks
    from vcd.timetravel.replay import Replayed, replay
    from vcd.timetravel.shadow.comparison import SHADOW_KINDS, NoShadow, ShadowComparison, compare_shadow
    from vcd.timetravel.tablefiles import FORMATS, NoWriter, table_bytes
    from vcd.timetravel.tables import TABLES, TableRows
    from vcd.timetravel.timeline import Ends, SessionLine, ends, session_lines
    from vcd.timetravel.times import BadTime
    from vcd.timetravel.whatif.conditions import ConditionError
    from vcd.timetravel.whatif.edits import EditError, read_edits
    from vcd.timetravel.whatif.fidelity import Fidelity, unlike_in_words
    from vcd.timetravel.whatif.fill import Filling, fill
    from vcd.timetravel.whatif.forecasts import Submission
    from vcd.timetravel.whatif.gate import (
        GateError,
        GateResult,
        change_in_words,
        gate,
        judgement_in_words,
        spread_in_words,
        summary,
        told_figures,
    )
    from vcd.timetravel.whatif.onejob import JobWhatIf, job_whatif
    from vcd.timetravel.whatif.runs import Comparison, Run, Variant, whatif
    from vcd.timetravel.whatif.screens import comparison_screen, gate_screen
    from vcd.timetravel.whatif.submit import RUNS, eta, eta_in_words, submit
    from vcd.timetravel.whatif.submitted import NO_POD, NothingSubmitted
    from vcd.timetravel.whatif.sweep import Sweep, sweep, variants_of
    from vcd.timetravel.why.answer import answer_lines
    from vcd.timetravel.why.counterfactual import KINDS, MOST_DECISIONS, Counterfactual
    from vcd.timetravel.why.evictions import EvictionExplanation
    from vcd.timetravel.why.jobdifference import JobDifference
    from vcd.timetravel.why.lostpodhours import FirstCauses
    from vcd.timetravel.why.obstacles import Obstacles
    from vcd.timetravel.why.orders import OrderExplanation
    from vcd.timetravel.why.queueanswer import QueueExplanation
    from vcd.timetravel.why.queues import SAMPLES
    from vcd.timetravel.why.sessions import SessionExplanation
    from vcd.timetravel.why.snapshotchanges import Change, What
    from vcd.timetravel.why.verdict import Verdict, with_fix

_LATER = {
    "vcd.model.yamltext": "YamlError read_documents",
    "vcd.scheduling.configuration": "read_policy",
    "vcd.scheduling.framework.arguments": "parse_duration",
    "vcd.scheduling.framework.permissions": "roles_for",
    "vcd.scheduling.framework.policy": "Policy PolicyError Problem",
    "vcd.scheduling.framework.policydiff": "PolicyChange policy_changes",
    "vcd.scheduling.framework.queuefields": "check_queues unread_queue_fields",
    "vcd.scheduling.framework.registry": "RegistryError describe_policy",
    "vcd.text.amounts": "number resource_name",
    "vcd.text.capacity": "capacity_lines cluster_resource resource_shown",
    "vcd.text.outcomes": "Screen",
    "vcd.text.reasons": "full_reason_text",
    "vcd.timetravel.bisect": "JobBisection WaitsBisection bisect_job bisect_waits",
    "vcd.timetravel.clusterchanges": "ClusterChanges",
    "vcd.timetravel.differences": "Difference",
    "vcd.timetravel.queuestatistics": "QueueStatistics",
    "vcd.timetravel.joblines": "STATES",
    "vcd.timetravel.joblist": "JobFilter JobRow Jobs jobs",
    "vcd.timetravel.lognames": "names_in",
    "vcd.timetravel.overview": (
        "Glance NodeUse Overview PodLine glances longest_waits overview overview_before_sessions pods_on"
    ),
    "vcd.timetravel.parallel": "processors",
    "vcd.timetravel.planning": "PlacedJob PlanResult DiagnosedWait",
    "vcd.timetravel.reading": "Reading queues_in read to_create",
    "vcd.timetravel.remarks": "remarks",
    "vcd.timetravel.replay": "Replayed replay",
    "vcd.timetravel.shadow.comparison": "NoShadow SHADOW_KINDS ShadowComparison compare_shadow",
    "vcd.timetravel.logwriter": "LogStanding standing errors_with_writer",
    "vcd.timetravel.tablefiles": "FORMATS NoWriter table_bytes",
    "vcd.timetravel.tables": "TABLES TableRows",
    "vcd.timetravel.timeline": "Ends SessionLine ends session_lines",
    "vcd.timetravel.times": "BadTime",
    "vcd.timetravel.whatif.runs": "Comparison Run Variant whatif",
    "vcd.timetravel.whatif.conditions": "ConditionError",
    "vcd.timetravel.whatif.edits": "EditError read_edits",
    "vcd.timetravel.whatif.fill": "Filling fill",
    "vcd.timetravel.whatif.fidelity": "Fidelity unlike_in_words",
    "vcd.timetravel.whatif.forecasts": "Submission",
    "vcd.timetravel.whatif.gate": (
        "GateResult GateError change_in_words gate judgement_in_words spread_in_words summary told_figures"
    ),
    "vcd.timetravel.whatif.onejob": "JobWhatIf job_whatif",
    "vcd.timetravel.whatif.screens": "comparison_screen gate_screen",
    "vcd.timetravel.whatif.submit": "RUNS eta eta_in_words submit",
    "vcd.timetravel.whatif.submitted": "NO_POD NothingSubmitted",
    "vcd.timetravel.whatif.sweep": "Sweep sweep variants_of",
    "vcd.timetravel.why.answer": "answer_lines",
    "vcd.timetravel.why.lostpodhours": "FirstCauses",
    "vcd.timetravel.why.snapshotchanges": "Change What",
    "vcd.timetravel.why.jobdifference": "JobDifference",
    "vcd.timetravel.why.counterfactual": "KINDS MOST_DECISIONS Counterfactual",
    "vcd.timetravel.why.evictions": "EvictionExplanation",
    "vcd.timetravel.why.obstacles": "Obstacles",
    "vcd.timetravel.why.orders": "OrderExplanation",
    "vcd.timetravel.why.queueanswer": "QueueExplanation",
    "vcd.timetravel.why.queues": "SAMPLES",
    "vcd.timetravel.why.sessions": "SessionExplanation",
    "vcd.timetravel.why.verdict": "Verdict with_fix",
}
"""Names by module that are imported at first use, because not every command needs them."""
_MODULE_OF = {name: module for module, names in _LATER.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULE_OF])


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
    from vcd.scheduling.configuration import read_policy
    from vcd.state.records import Settings
    from vcd.timetravel import planning

    settings = Settings(tuple(schedulers or ()), default_queue, node_selector=tuple(node_selector), kinds=0)
    return planning.plan(objects, read_policy(conf), at, seed, settings)


def open(path: str | Path) -> Log:
    """Open a log file for queries; use it as a context manager. Raises LogError for an unusable file."""
    return Log(path)


# --- single queries of a log file: shortcuts for methods of ``Log`` ---------------------------------------------------


def explain(path: str | Path, kind: Kind, name: str, namespace: str = "default") -> Explanation:
    """Explain the history of a job or pod."""
    with Log(path) as log, log.pinned():
        return log.pod(name, namespace) if kind == "pod" else log.job(name, namespace).story()


def first_causes(
    path: str | Path, first: int | None = None, last: int | None = None, *, change: bool = False
) -> FirstCauses:
    """Return the causes for which the cluster's jobs lost most pod-hours."""
    with Log(path) as log, log.pinned():
        return log.causes(first, last, change=change)


def verdict(path: str | Path, name: str, namespace: str = "default", *, change: bool = False) -> Verdict:
    """Return why a job waits, in one sentence; with ``change`` also the smallest change that would have helped."""
    with Log(path) as log, log.pinned():
        return log.job(name, namespace).verdict(change=change)


def obstacles(path: str | Path, name: str, session: int | None = None) -> Obstacles:
    """Return what prevents the placement of a job in a session (None: the last in which it waited)."""
    with Log(path) as log, log.pinned():
        return log.job(name).obstacles(session)


def smallest_change(
    path: str | Path,
    name: str,
    session: int | None = None,
    kinds: Sequence[What] | None = None,
    most_decisions: int | None = None,
) -> Counterfactual:
    """Return the smallest change with which a session (see ``obstacles``) would have placed a job."""
    with Log(path) as log, log.pinned():
        return log.job(name).change(session, kinds, most_decisions)


def explain_queue(
    path: str | Path, name: str, first: int | None = None, last: int | None = None, *, samples: int | None = None
) -> QueueExplanation:
    """Explain a queue over a range of sessions."""
    with Log(path) as log, log.pinned():
        return log.queue(name, first, last, samples=samples)


def explain_session(path: str | Path, number: int | str = "last") -> SessionExplanation:
    """Explain what changed before a session and what it decided."""
    with Log(path) as log, log.pinned():
        return log.session(number)


def explain_eviction(path: str | Path, name: str, namespace: str = "default") -> EvictionExplanation:
    """Explain why a pod, or the pods of a job, were evicted."""
    with Log(path) as log, log.pinned():
        return log.eviction(name, namespace)


def explain_difference(
    path: str | Path,
    one: str,
    other: str = "",
    namespace: str = "default",
    *,
    session: int | None = None,
    other_path: str | Path | None = None,
) -> JobDifference:
    """Return the differences between two jobs; ``other_path`` is the log of the other one, if it is another log."""
    with ExitStack() as stack:
        logs = [stack.enter_context(Log(each)) for each in (path, other_path) if each is not None]
        for each in logs:
            stack.enter_context(each.pinned())
        log, other_log = logs[0], logs[1] if len(logs) > 1 else None
        return log.difference(one, other, namespace, session=session, other_log=other_log)


def explain_order(path: str | Path, queue: str | None = None, session: int | None = None) -> OrderExplanation:
    """Explain the order in which a session considers jobs."""
    with Log(path) as log, log.pinned():
        return log.order(queue, session)
