"""The extension points: each call that an action can make to the plugins, declared once.

A plugin implements a point by a method of the point's name. ``check`` validates answers of third-party plugins.
``rule`` combines the answers of several plugins: it builds the framework's method that actions call. The annotated type
is the signature of that method; plugins receive the same parameters, unless the rule documents otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, ParamSpec, TypeVar

from vcd.model.events import VolumeChoice
from vcd.scheduling.framework import answer_checks, rules
from vcd.scheduling.framework.guard import Closed, MakeCheck
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.framework.plugin import Vote as Vote  # imported from here by plugins
from vcd.scheduling.framework.rules import Participants, Refused
from vcd.scheduling.framework.victims import Victims
from vcd.scheduling.search.candidates import Candidates, OtherCandidates
from vcd.scheduling.search.parts import Predicate, Score
from vcd.scheduling.session.queue_view import Queue
from vcd.scheduling.session.views import Job, SubJob, Task
from vcd.scheduling.topology.tree import Domain

P = ParamSpec("P")
R = TypeVar("R")
Key = tuple[Any, ...]


@dataclass(eq=False)
class Point(Generic[P, R]):
    """One extension point.

    ``flag`` is the key in a plugin's configuration entry that removes the plugin from the point; empty if nothing does.
    Plugins that protect and implement the point ``protected_as`` are also called, for the victims that they leave
    unprotected. ``closed`` returns the most restrictive answer, which is used for a plugin that failed (docs/laws.md,
    law 7). At points without ``closed``, a failed plugin is not called, except where it follows the session.
    """

    rule: Callable[[Participants], Callable[P, R]]
    check: MakeCheck | None
    flag: str = ""
    protected_as: str = ""
    closed: Closed | None = None
    name: str = field(init=False)

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, framework: Points, owner: type) -> Callable[P, R]:
        """Return the method that actions call; store it as an attribute of the framework, so that it is built once."""
        method: Callable[P, R] = framework.build_method(self)
        vars(framework)[self.name] = method
        return method


class Points:
    """All extension points."""

    def build_method(self, point: Point[P, R]) -> Callable[P, R]:
        """Return the method that actions call at a point."""
        raise NotImplementedError

    # orders: the smallest key comes first
    queue_order = Point[[Queue], Key](rules.first_difference, answer_checks.keys, "enableQueueOrder")
    job_order = Point[[Job], Key](rules.first_difference, answer_checks.keys, "enableJobOrder")
    sub_job_order = Point[[SubJob], Key](rules.first_difference, answer_checks.keys, "enabledSubJobOrder")
    task_order = Point[[Task], Key](rules.first_difference, answer_checks.keys, "enableTaskOrder")
    victim_queue_order = Point[[Queue, Queue], Key](rules.first_difference_for, answer_checks.keys)
    # gates
    job_valid = Point[[Job], Refused | None](rules.first_refusal, answer_checks.refusal, closed=answer_checks.refuses)
    job_enqueueable = Point[[Job], Refused | None](
        rules.first_reject, answer_checks.admission, "enableJobEnqueued", closed=answer_checks.refuses
    )
    job_enqueued = Point[[Job], None](rules.broadcast, None, "enableJobEnqueued")
    overused = Point[[Queue], Refused | None](
        rules.first_refusal, answer_checks.refusal, "enabledOverused", closed=answer_checks.refuses
    )
    allocatable = Point[[Queue, Task, int], Refused | None](
        rules.first_refusal, answer_checks.refusal, "enabledAllocatable", closed=answer_checks.refuses
    )
    preemptive = Point[[Queue, list[Task]], Refused | None](
        rules.first_refusal, answer_checks.refusal, "enablePreemptive", closed=answer_checks.refuses
    )
    lend = Point[[bool], bool](rules.any_of, answer_checks.truth, "enabledAllocatable", closed=answer_checks.denies)
    job_ready = Point[[Job], bool](rules.unanimous, answer_checks.truth, "enableJobReady", closed=answer_checks.denies)
    sub_job_ready = Point[[SubJob], bool](
        rules.unanimous, answer_checks.truth, "enabledSubJobReady", closed=answer_checks.denies
    )
    job_pipelined = Point[[Job], bool](
        rules.no_reject, answer_checks.vote, "enableJobPipelined", closed=answer_checks.rejects
    )
    sub_job_pipelined = Point[[SubJob], bool](
        rules.no_reject, answer_checks.vote, "enabledSubJobPipelined", closed=answer_checks.rejects
    )
    missing_tasks = Point[[Job], int](rules.most, answer_checks.count, "enableJobReady")
    job_starving = Point[[Job], bool](
        rules.unanimous_first_tier, answer_checks.truth, "enableJobStarving", closed=answer_checks.denies
    )
    # nodes
    pre_predicate = Point[[Task], Refused | None](
        rules.first_refusal, answer_checks.refusal, "enablePredicate", closed=answer_checks.refuses
    )
    predicates = Point[[], tuple[Predicate, ...]](
        rules.parts, answer_checks.predicates, "enablePredicate", closed=answer_checks.no_node
    )
    hyper_node_limits = Point[[], tuple[Predicate, ...]](
        rules.parts, answer_checks.predicates, closed=answer_checks.no_node
    )
    node_order = Point[[], tuple[Score, ...]](rules.parts, answer_checks.scores, "enableNodeOrder")
    batch_node_order = Point[[], tuple[Score, ...]](rules.parts, answer_checks.scores, "enableNodeOrder")
    # domains of nodes, for a job or sub-job
    hyper_node_gradient = Point[[Job | SubJob, Domain | None], Sequence[Sequence[Domain]] | None](
        rules.first_answer, answer_checks.domains, "enabledHyperNodeGradient"
    )
    hyper_node_order = Point[[Job | SubJob, Sequence[Domain]], list[float]](
        rules.sums, answer_checks.ratings, "enabledHyperNodeOrder"
    )
    best_node = Point[[Task, Candidates | OtherCandidates], int | None](
        rules.first_choice, answer_checks.row, "enableBestNode"
    )
    # victims: the preemptor (or, for unified_evictable, a context of the action), and candidates in eviction order
    preemptable = Point[[Task, list[Task]], Victims](
        rules.intersection,
        answer_checks.victims,
        "enablePreemptable",
        protected_as="preemptable",
        closed=answer_checks.no_victims,
    )
    reclaimable = Point[[Task, list[Task]], Victims](
        rules.intersection,
        answer_checks.victims,
        "enableReclaimable",
        protected_as="reclaimable",
        closed=answer_checks.no_victims,
    )
    unified_evictable = Point[[Any, list[Task]], Victims](
        rules.intersection, answer_checks.victims, protected_as="unified_evictable", closed=answer_checks.no_victims
    )
    victim_tasks = Point[[list[Task]], list[Task]](
        rules.union_of_tier,
        answer_checks.listed_victims,
        "enabledVictim",
        protected_as="unified_evictable",
        closed=answer_checks.no_victims,
    )
    # Changes of equivalent tasks of one job, each on the node's row at its position, in trial or committed. An eviction
    # is a deallocate, and its reversal an allocate.
    pre_bind = Point[[Task, int], tuple[VolumeChoice, ...]](rules.all_volumes, answer_checks.volumes, "enablePredicate")
    bind_annotations = Point[[Task, int], dict[str, str]](rules.all_annotations, answer_checks.texts)
    on_allocate = Point[[list[Task], list[int]], list[Refused]](rules.consent, answer_checks.consent)
    on_deallocate = Point[[list[Task], list[int]], None](rules.broadcast, None)


POINTS: Mapping[str, Point[..., Any]] = {name: each for name, each in vars(Points).items() if isinstance(each, Point)}


def reads_jobs(plugin: type[Plugin]) -> bool:
    """Return whether a plugin receives jobs, tasks or queues other than through keys of its predicates and scores."""
    return any(hasattr(plugin, name) for name, point in POINTS.items() if point.rule is not rules.parts)


IN_CONFIGURED_ORDER = (rules.first_difference, rules.first_difference_for, rules.first_choice, rules.first_answer)
"""Rules for which the order of plugins within a tier matters. For other rules, plugins are sorted by name, so that the
order in the file changes nothing, not even a reason."""

IDLE_FLAGS: Mapping[str, str] = {
    "enabledClusterOrder": "there is one cluster",
    "enableReservedNodes": "no action of Volcano or vcd calls it",
    "enableTargetJob": "no action of Volcano or vcd calls it",
}
"""Enable flags that have no effect here, and why."""

FLAGS: Mapping[str, bool] = {
    **{point.flag: True for point in POINTS.values() if point.flag},
    **dict.fromkeys(IDLE_FLAGS, True),
    "enabledClusterOrder": False,
    "enableHierarchy": False,
}
"""Every enable flag of a plugin's entry, with its default (Volcano ``plugins/defaults.go``)."""
