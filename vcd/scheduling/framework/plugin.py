"""What a plugin is, and the words it answers in.

A plugin is one class in one module of ``vcd.scheduling.plugins`` (or an entry point of the group ``vcd.plugins``). It
declares its arguments and what it reads, and has a method for each extension point that it implements
(``vcd.scheduling.framework.points``). A new instance is made for every session.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from vcd.model.kinds import Kind
from vcd.scheduling.framework.arguments import Argument, ArgumentValues
from vcd.scheduling.framework.gauges import Gauge

if TYPE_CHECKING:
    from vcd.scheduling.session.nodes import Usage
    from vcd.scheduling.session.session import Session
    from vcd.scheduling.session.views import Task

Mask = npt.NDArray[np.bool_]
Scores = npt.NDArray[np.float64]


class Vote(enum.IntEnum):
    """An answer at a point whose rule is VOTE."""

    REJECT = -1
    ABSTAIN = 0
    PERMIT = 1


@dataclass(frozen=True)
class Refusal:
    """No, and why: a reason in words and the quantities behind it, by name."""

    reason: str
    detail: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, order=True)
class Problem:
    """Something wrong with an object, for its owner to mend: the name of its kind (``vcd.model.kinds``, or a plugin's),
    its key (``namespace/name``, or ``name``), and a sentence that names the field, its value and what to do. Without
    kind and key it is about the configuration."""

    kind: str
    key: str
    message: str


class Depends(enum.Flag):
    """What a predicate or score looks at, beside the task: the framework computes it again only when that changed."""

    FACTS = 0
    """The nodes' labels, taints, room and other objects: what no placement changes."""
    USAGE = enum.auto()
    """What is used of the node itself."""
    PODS = enum.auto()
    """Where other pods are: affinity, spread, ports."""
    JOB = enum.auto()
    """Where the job's own tasks are."""
    QUEUE = enum.auto()
    """What queues hold; which one's matters is for ``kind_of`` to say."""
    TIME = enum.auto()
    """The session's time."""


class Predicate:
    """One test of nodes. ``unresolvable``: evicting pods from a node that fails it would not help, whatever the pod;
    where that is so of some nodes or pods only, ``hopeless`` says which.

    ``owner`` is the plugin's name, set when the session collects it.
    """

    owner: str = ""
    name: ClassVar[str]
    reason: ClassVar[str]
    depends: ClassVar[Depends] = Depends.FACTS
    unresolvable: ClassVar[bool] = False
    reads: ClassVar[tuple[str, ...]] = ()
    """Kinds beside pods and nodes; a change in one of them makes kept results void."""

    def applies(self, task: Task) -> bool:
        """Whether the task can fail it at all; False spares the test."""
        return True

    def keeps_away(self, task: Task, others: Iterable[Task]) -> bool:
        """Whether it may keep the task from nodes because of others that this session evicts: they are in the way
        until they are gone."""
        return False

    def kind_of(self, task: Task) -> Hashable:
        """What else tells the tasks to which it applies apart for it, such as an annotation, or the queue's name.

        One task is asked about in place of all of its kind: those of one shape (with the namespace where that names
        claims; in any case where it depends on more than FACTS), labels where it depends on PODS, job where it depends
        on JOB, and equal answers here. Answers mean the same from session to session: names and values, no numbers
        that a session gave.
        """
        return None

    def mask(self, task: Task, usage: Usage) -> Mask:
        """Which nodes pass, one bool per row of ``usage``. With FACTS it sees all nodes; with USAGE ``usage`` may hold
        any selection of rows. Only what makes the task's kind may matter, see ``kind_of``."""
        raise NotImplementedError

    def hopeless(self, task: Task, usage: Usage, failed: Mask) -> Mask:
        """Of the ``failed`` nodes those on which no eviction would help. Not asked of predicates that depend on FACTS
        alone: nothing that is evicted changes these."""
        return failed if self.unresolvable else np.zeros_like(failed)

    def reasons(self, task: Task, usage: Usage, failed: Mask) -> Mapping[str, int]:
        """Reasons in words and how many of the ``failed`` nodes have them."""
        return {self.reason: int(failed.sum())}


class Score:
    """One rating of nodes. Its weighted value is a float64 per node; a plugin's scores are added in order.

    ``owner`` is the plugin's name, set when the session collects it.
    """

    owner: str = ""
    name: ClassVar[str]
    depends: ClassVar[Depends] = Depends.FACTS
    normalised: ClassVar[bool] = False
    """Whether ``normalise`` looks at the set of feasible nodes."""
    reads: ClassVar[tuple[str, ...]] = ()

    def __init__(self, weight: float = 1) -> None:
        self.weight = weight

    def applies(self, task: Task) -> bool:
        """Whether it tells nodes apart for this task; False spares the computation."""
        return True

    def kind_of(self, task: Task) -> Hashable:
        """What else tells the tasks to which it applies apart for it; see ``Predicate.kind_of``."""
        return None

    def raw(self, task: Task, usage: Usage) -> Scores:
        """The rating, one float64 per row of ``usage``, before normalisation and weight."""
        raise NotImplementedError

    def normalise(self, raw: Scores, feasible: Mask) -> Scores:
        """The rating made comparable over the feasible nodes (only asked when ``normalised``)."""
        return raw


def tells_kinds(part: Predicate | Score) -> bool:
    """Whether a part has a ``kind_of`` of its own; the others are not asked."""
    method = getattr(part.kind_of, "__func__", part.kind_of)
    return method not in (Predicate.kind_of, Score.kind_of)


class Allowance:
    """What a plugin lets go of several pods together: one that goes may leave less for the others, as with a gang's
    surplus, a disruption budget, or a queue's room above its share.

    Made for one question. Pods are tried in one order; a pod goes where all who were asked permit it, and then spends
    of each allowance. One that stays spends nothing, so that it does not matter in which order plugins are asked.
    """

    def permits(self, task: Task) -> bool:
        """Whether a task may go beside those that spent so far; changes nothing."""
        raise NotImplementedError

    def spend(self, task: Task) -> None:
        """A task goes that it permits."""

    def among(self, tasks: Sequence[Task]) -> list[Task]:
        """Those of ``tasks`` that may go together, if nobody else is asked; they spend."""
        going = []
        for task in tasks:
            if self.permits(task):
                self.spend(task)
                going.append(task)
        return going


VictimsAnswer = list["Task"] | Allowance | None
"""An answer at a victims' point: who may go, each for itself; what is allowed to them together; None: no opinion."""


class Plugin:
    """Base of all plugins; see the module's docstring."""

    name: ClassVar[str]
    arguments: ClassVar[tuple[Argument, ...]] = ()
    kinds: ClassVar[tuple[str | Kind, ...]] = ()
    """Kinds it reads beside pods, nodes, groups and queues, by their names in ``vcd.model.kinds``, or declared here
    where they are its own: they are watched, logged and permitted when it is on; see ``Session.objects``."""
    timed: ClassVar[bool | str] = False
    """Whether the passing of time alone can change what it says: then cycles run at each period. The key of a switch
    among its arguments where that says so."""
    questions: ClassVar[tuple[str, ...]] = ()
    """Questions to the world outside whose answers the daemon logs as they come, such as ``usage``: when the plugin is
    on, an answer starts a cycle."""
    annotations: ClassVar[tuple[str, ...]] = ()
    """Annotations and labels that it obeys, for its page in docs/plugins/."""
    queue_limits: ClassVar[tuple[str, ...]] = ()
    """Annotations that limit a queue in what only the plugin can count: a plan that counted by another text, or by
    another use of the queue, is not committed."""
    protects: ClassVar[bool] = False
    """Whether only what ``unprotected`` names can be a victim, whatever other tiers say (docs/laws.md, law 7)."""

    watched: ClassVar[bool] = False
    """Whether the watchdog looks after it though it comes with vcd. One that was interrupted still takes part in its
    session, in ``session.left_out``: what it does then is for it to say."""

    def __init__(self, arguments: ArgumentValues) -> None:
        self.values = arguments
        self.flags: Mapping[str, bool] = {}
        """Every enable flag of its entry in the configuration, set before ``open``."""

    def open(self, session: Session) -> None:
        """Called once, before any action; what it keeps of the session is on ``self``."""

    def close(self, session: Session) -> None:
        """Called once, after the last action."""

    def unprotected(self, point: str, asker: Any, tasks: list[Task]) -> VictimsAnswer:
        """Its answer at a victims' point about ``tasks`` where a tier without it decides.

        Only asked of plugins that protect; they mean the same as at the point itself unless they say otherwise. For
        ``victim_tasks`` nobody asks (None), and the same holds as for whole gangs.
        """
        method = getattr(self, "unified_evictable" if point == "victim_tasks" else point)
        answer: VictimsAnswer = method(asker, tasks)
        return answer

    def gauges(self) -> Iterable[Gauge]:
        """What it shows on the metrics page after the session."""
        return ()

    def problems(self) -> Iterable[Problem]:
        """Objects that it finds misconfigured: each is told once in an Event on the object, and counted on the metrics
        page as long as it lasts. Asked after the session; it decides nothing."""
        return ()
