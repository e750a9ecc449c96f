"""The extension points: every question that an action may ask the plugins, declared once.

A declaration is all that a point is. A plugin answers by a method of the point's name; what comes from one that is not
ours passes the ``check``; ``rule`` makes the method of the framework by which actions ask.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, ParamSpec, TypeVar

from vcd.model.events import VolumeChoice
from vcd.scheduling.framework import checks, rules
from vcd.scheduling.framework.guard import Closed, MakeCheck
from vcd.scheduling.framework.plugin import Vote as Vote  # plugins take it from here
from vcd.scheduling.framework.rules import Participants, Refused
from vcd.scheduling.framework.victims import Victims
from vcd.scheduling.search.candidates import Candidates, OtherCandidates
from vcd.scheduling.search.parts import Predicate, Score
from vcd.scheduling.session.queues import Queue
from vcd.scheduling.session.views import Job, SubJob, Task

P = ParamSpec("P")
R = TypeVar("R")
Key = tuple[Any, ...]


@dataclass(eq=False)
class Point(Generic[P, R]):
    """One extension point. The parameters are what an action asks, and what it learns; plugins are asked the same, but
    where the rule says otherwise.

    ``flag`` is the key of a plugin's entry in the configuration file that takes the plugin out of the point (empty: it
    cannot be). Those plugins that protect and take part at the point ``protected_as`` are asked whom they leave
    unprotected, too. ``closed`` gives the answer of a plugin that failed: it forbids (docs/laws.md, law 7). At points
    without it such a plugin is not called, except where it keeps up with the session.
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
        """The method by which actions ask, made when it is asked for; an attribute of the framework's own from then on,
        so that nothing is looked up here again."""
        ask: Callable[P, R] = framework.asking(self)
        vars(framework)[self.name] = ask
        return ask


class Points:
    """All extension points."""

    def asking(self, point: Point[P, R]) -> Callable[P, R]:
        """Make the method by which actions ask at a point."""
        raise NotImplementedError

    # orders
    queue_order = Point[[Queue], Key](rules.first_difference, checks.keys, "enableQueueOrder")
    job_order = Point[[Job], Key](rules.first_difference, checks.keys, "enableJobOrder")
    sub_job_order = Point[[SubJob], Key](rules.first_difference, checks.keys, "enabledSubJobOrder")
    task_order = Point[[Task], Key](rules.first_difference, checks.keys, "enableTaskOrder")
    victim_queue_order = Point[[Queue, Queue], Key](rules.first_difference_for, checks.keys)
    # gates
    job_valid = Point[[Job], Refused | None](rules.first_refusal, checks.refusal, closed=checks.refuses)
    job_enqueueable = Point[[Job], Refused | None](
        rules.first_reject, checks.admission, "enableJobEnqueued", closed=checks.refuses
    )
    job_enqueued = Point[[Job], None](rules.tell, None, "enableJobEnqueued")
    overused = Point[[Queue], Refused | None](
        rules.first_refusal, checks.refusal, "enabledOverused", closed=checks.refuses
    )
    allocatable = Point[[Queue, Task], Refused | None](
        rules.first_refusal_for, checks.refusal, "enabledAllocatable", closed=checks.refuses
    )
    preemptive = Point[[Queue, list[Task]], Refused | None](
        rules.first_refusal_for, checks.refusal, "enablePreemptive", closed=checks.refuses
    )
    lend = Point[[bool], bool](rules.any_of, checks.truth, "enabledAllocatable", closed=checks.denies)
    job_ready = Point[[Job], bool](rules.unanimous, checks.truth, "enableJobReady", closed=checks.denies)
    sub_job_ready = Point[[SubJob], bool](rules.unanimous, checks.truth, "enabledSubJobReady", closed=checks.denies)
    job_pipelined = Point[[Job], bool](rules.no_reject, checks.vote, "enableJobPipelined", closed=checks.rejects)
    sub_job_pipelined = Point[[SubJob], bool](
        rules.no_reject, checks.vote, "enabledSubJobPipelined", closed=checks.rejects
    )
    job_starving = Point[[Job], bool](
        rules.unanimous_first_tier, checks.truth, "enableJobStarving", closed=checks.denies
    )
    # nodes
    pre_predicate = Point[[Task], Refused | None](
        rules.first_refusal, checks.refusal, "enablePredicate", closed=checks.refuses
    )
    predicates = Point[[], tuple[Predicate, ...]](
        rules.parts, checks.predicates, "enablePredicate", closed=checks.no_node
    )
    node_order = Point[[], tuple[Score, ...]](rules.parts, checks.scores, "enableNodeOrder")
    batch_node_order = Point[[], tuple[Score, ...]](rules.parts, checks.scores, "enableNodeOrder")
    best_node = Point[[Task, Candidates | OtherCandidates], int | None](
        rules.first_choice, checks.row, "enableBestNode"
    )
    # victims: for whom, and the tasks in question, in the order in which they would go
    preemptable = Point[[Task, list[Task]], Victims](
        rules.intersection, checks.victims, "enablePreemptable", protected_as="preemptable", closed=checks.keeps_all
    )
    reclaimable = Point[[Task, list[Task]], Victims](
        rules.intersection, checks.victims, "enableReclaimable", protected_as="reclaimable", closed=checks.keeps_all
    )
    unified_evictable = Point[[Any, list[Task]], Victims](
        rules.intersection, checks.victims, protected_as="unified_evictable", closed=checks.keeps_all
    )
    victim_tasks = Point[[list[Task]], list[Task]](
        rules.union_of_tier,
        checks.listed_victims,
        "enabledVictim",
        protected_as="unified_evictable",
        closed=checks.keeps_all,
    )
    # what happens to a task on a row, in trial or for good: an eviction is a deallocate, taken back it is an allocate
    pre_bind = Point[[Task, int], tuple[VolumeChoice, ...]](rules.all_volumes, checks.volumes, "enablePredicate")
    bind_annotations = Point[[Task, int], dict[str, str]](rules.all_annotations, checks.texts)
    on_allocate = Point[[Task, int], list[Refused]](rules.consent, checks.consent)
    on_deallocate = Point[[Task, int], None](rules.tell, None)
    # the same of several alike tasks of one job, pending, one placed after the other (``Framework.many_at_once``)
    allocatable_together = Point[[Queue, Task, int], bool](
        rules.unanimous_for, checks.truth, "enabledAllocatable", closed=checks.denies
    )
    missing_tasks = Point[[Job], int](rules.most, checks.count, "enableJobReady")
    on_allocate_together = Point[[list[Task], list[int]], None](rules.tell, None)


POINTS: Mapping[str, Point[..., Any]] = {name: each for name, each in vars(Points).items() if isinstance(each, Point)}

IN_CONFIGURED_ORDER = (rules.first_difference, rules.first_difference_for, rules.first_choice)
"""Rules by which the order of plugins within a tier matters; by all others it changes nothing, not even a reason."""

IDLE_FLAGS: Mapping[str, str] = {
    "enabledClusterOrder": "there is one cluster",
    "enabledHyperNodeOrder": "HyperNodes are not read",
    "enabledHyperNodeGradient": "HyperNodes are not read",
    "enableReservedNodes": "no action of Volcano's asks it any more, nor one of vcd's",
    "enableTargetJob": "no action of Volcano's asks it any more, nor one of vcd's",
}
"""The enable flags that change nothing, and why."""

FLAGS: Mapping[str, bool] = {
    **{point.flag: True for point in POINTS.values() if point.flag},
    **dict.fromkeys(IDLE_FLAGS, True),
    "enabledClusterOrder": False,
    "enableHierarchy": False,
}
"""Every enable flag of a plugin's entry, and its value where the file is silent (Volcano ``plugins/defaults.go``)."""
