"""The extension points: every question an action may ask the plugins, declared once.

A point's ``combine`` rule says how the answers of several plugins become one (Volcano's
``framework/session_plugins.go``); ``flag`` is the key of a plugin's entry in the configuration file that turns the
point off for that plugin (None: it cannot be turned off); ``default`` is the flag's value where the file is silent.
A plugin implements a point by a method of the point's name; its signature is the one in ``call``.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Combine(enum.Enum):
    """How the answers of the plugins at one point are combined, tier by tier in the configuration's order."""

    FIRST_DIFFERENCE = "the first plugin that tells two apart decides; then age, then name"
    INTERSECTION = "all plugins of a tier must let a victim go; the first tier that lets one go decides"
    UNION_OF_TIER = "what any plugin of a tier names; the first tier that names one who may go decides"
    ALL = "all must agree"
    ANY = "one yes is enough"
    ALL_OF_FIRST_TIER = "all of the first tier that answers must agree"
    VOTE = "one reject rejects; a tier with a permit decides; all abstaining permits"
    FIRST = "the first plugin that answers decides"
    COLLECT = "every contribution counts: predicates filter, scores add up, volumes are bound"
    NOTIFY = "all are told"
    CONSENT = "all are told; where one refuses, the placement is taken back"


class Vote(enum.IntEnum):
    """An answer at a point whose rule is VOTE."""

    REJECT = -1
    ABSTAIN = 0
    PERMIT = 1


@dataclass(frozen=True)
class Point:
    """One extension point; see the module's docstring."""

    name: str
    flag: str | None
    combine: Combine
    call: str
    default: bool = True
    without_effect: str = ""
    """Why no action asks it: plugins may implement it, and its flag may be set, for Volcano's sake."""


_ALL = (
    # orders -------------------------------------------------------------------------------------------------------
    Point("queue_order", "enableQueueOrder", Combine.FIRST_DIFFERENCE, "(queue: Queue) -> key, smaller first"),
    Point("job_order", "enableJobOrder", Combine.FIRST_DIFFERENCE, "(job: Job) -> key, smaller first"),
    Point("sub_job_order", "enabledSubJobOrder", Combine.FIRST_DIFFERENCE, "(sub_job: SubJob) -> key, smaller first"),
    Point("task_order", "enableTaskOrder", Combine.FIRST_DIFFERENCE, "(task: Task) -> key, smaller first"),
    Point(
        "cluster_order",
        "enabledClusterOrder",
        Combine.FIRST_DIFFERENCE,
        "(cluster: str) -> key, smaller first",
        default=False,
        without_effect="there is one cluster",
    ),
    Point("victim_queue_order", None, Combine.FIRST_DIFFERENCE, "(queue: Queue, preemptor: Queue) -> key"),
    # gates --------------------------------------------------------------------------------------------------------
    Point("job_valid", None, Combine.ALL, "(job: Job) -> Refusal | None"),
    Point("job_enqueueable", "enableJobEnqueued", Combine.VOTE, "(job: Job) -> Vote | Refusal"),
    Point("job_enqueued", "enableJobEnqueued", Combine.NOTIFY, "(job: Job) -> None"),
    Point("overused", "enabledOverused", Combine.ANY, "(queue: Queue) -> Refusal | None"),
    Point("allocatable", "enabledAllocatable", Combine.ALL, "(queue: Queue, task: Task) -> Refusal | None"),
    Point("preemptive", "enablePreemptive", Combine.ALL, "(queue: Queue, tasks: list[Task]) -> Refusal | None"),
    Point("job_ready", "enableJobReady", Combine.ALL, "(job: Job) -> bool"),
    Point("sub_job_ready", "enabledSubJobReady", Combine.ALL, "(sub_job: SubJob) -> bool"),
    Point("job_pipelined", "enableJobPipelined", Combine.VOTE, "(job: Job) -> Vote"),
    Point("sub_job_pipelined", "enabledSubJobPipelined", Combine.VOTE, "(sub_job: SubJob) -> Vote"),
    Point("job_starving", "enableJobStarving", Combine.ALL_OF_FIRST_TIER, "(job: Job) -> bool"),
    # nodes --------------------------------------------------------------------------------------------------------
    Point("pre_predicate", "enablePredicate", Combine.ALL, "(task: Task) -> Refusal | None"),
    Point("predicates", "enablePredicate", Combine.COLLECT, "() -> Iterable[Predicate]"),
    Point("node_order", "enableNodeOrder", Combine.COLLECT, "() -> Iterable[Score]"),
    Point("batch_node_order", "enableNodeOrder", Combine.COLLECT, "() -> Iterable[Score]"),
    Point("best_node", "enableBestNode", Combine.FIRST, "(task: Task, keys: int64 per node row) -> row | None"),
    Point(
        "reserved_nodes",
        "enableReservedNodes",
        Combine.NOTIFY,
        "() -> None",
        without_effect="no action of Volcano's asks it any more, nor one of vcd's",
    ),
    # victims ------------------------------------------------------------------------------------------------------
    Point(
        "preemptable",
        "enablePreemptable",
        Combine.INTERSECTION,
        "(preemptor: Task, tasks) -> VictimsAnswer",
    ),
    Point(
        "reclaimable",
        "enableReclaimable",
        Combine.INTERSECTION,
        "(reclaimer: Task, tasks) -> VictimsAnswer",
    ),
    Point("unified_evictable", None, Combine.INTERSECTION, "(context, tasks) -> VictimsAnswer"),
    Point("victim_tasks", "enabledVictim", Combine.UNION_OF_TIER, "(tasks: list[Task]) -> list[Task]"),
    Point(
        "target_job",
        "enableTargetJob",
        Combine.FIRST,
        "(jobs: list[Job]) -> Job | None",
        without_effect="no action of Volcano's asks it any more, nor one of vcd's",
    ),
    Point("pre_bind", "enablePredicate", Combine.COLLECT, "(task: Task, row: int) -> Iterable[VolumeChoice]"),
    Point("bind_annotations", None, Combine.COLLECT, "(task: Task, row: int) -> Mapping[str, str]"),
    # what happens, in trial or for good: an eviction is a deallocate, taken back it is an allocate ------------------
    Point("on_allocate", None, Combine.CONSENT, "(task: Task, row: int) -> Refusal | None"),
    Point("on_deallocate", None, Combine.NOTIFY, "(task: Task, row: int) -> None"),
)

POINTS: dict[str, Point] = {point.name: point for point in _ALL}

IN_CONFIGURED_ORDER = (Combine.FIRST_DIFFERENCE, Combine.FIRST)
"""Rules by which the order of plugins within a tier matters; by all others it changes nothing, not even a reason."""

VICTIM_POINTS = ("preemptable", "reclaimable", "unified_evictable")
"""Where a plugin that protects has the last word."""

FLAGS: dict[str, bool] = {
    **{point.flag: point.default for point in _ALL if point.flag},
    "enableHierarchy": False,
    "enabledHyperNodeOrder": True,
    "enabledHyperNodeGradient": True,
}
"""Every enable flag of a plugin's entry, and its value where the file is silent (Volcano ``plugins/defaults.go``)."""

IDLE_FLAGS: dict[str, str] = {
    "enabledHyperNodeOrder": "HyperNodes are not read",
    "enabledHyperNodeGradient": "HyperNodes are not read",
}
IDLE_FLAGS.update((point.flag, point.without_effect) for point in _ALL if point.flag and point.without_effect)
"""The enable flags that change nothing, and why."""
