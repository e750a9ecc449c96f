"""extender: decisions of a server of one's own, asked over HTTP."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache, partial

from vcd.model.reasons import Cause, Reason, ReasonCode
from vcd.scheduling.framework.arguments import Argument, format_duration
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.framework.points import Vote
from vcd.scheduling.framework.victims import lets_go
from vcd.scheduling.plugins.extender.calls import (
    EnqueueableAnswer,
    EventAnswer,
    Extender,
    Nothing,
    OverusedAnswer,
    ReadyAnswer,
    VictimsAnswer,
)
from vcd.scheduling.plugins.extender.nodes import (
    UNANSWERED,
    ExtenderPredicate,
    ExtenderPriorities,
    ExtenderScore,
    ExtenderSession,
    Progress,
)
from vcd.scheduling.plugins.extender.wire import Wire
from vcd.scheduling.search.parts import Predicate, Score
from vcd.scheduling.session.gauges import Gauge
from vcd.scheduling.session.outside import without_user_info
from vcd.scheduling.session.queues import Queue
from vcd.scheduling.session.reasons import Problem
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job, Task
from vcd.state.records import Shape

_NOT_ADMITTED = ReasonCode("extender-not-admitted", Cause.OUTSIDE, "the extender does not admit the job")
_OVERUSED = ReasonCode("extender-overused", Cause.OUTSIDE, "the extender finds the queue overused")
_PLACEMENT_REFUSED = ReasonCode(
    "extender-placement", Cause.OUTSIDE, "the extender refuses the placement: {error}", nodes_help=True
)


def _verb(name: str, what: str) -> Argument:
    return Argument(f"extender.{name}Verb", "str", "", f"The verb that {what}; not called where it is empty.")


class ExtenderPlugin(Plugin):
    """Asks a server of one's own at the extension points whose verbs are given, by POST of JSON to urlPrefix/verb.

    What is sent are Volcano's own structures as Go writes them: `predicate` gets `{"task", "node"}`, `prioritize`
    `{"task", "nodes"}`, `preemptable` and `reclaimable` `{"evictor", "evictees"}`, `jobEnqueueable`, `jobEnqueued` and
    `jobReady` `{"job"}`, `queueOverused` `{"queue"}`, the two events `{"task"}`, `onSessionOpen` the whole session and
    `onSessionClose` nothing.

    Only pods that name one of managedResources in a container's requests or limits are asked about; queues and jobs
    always are. An answer of the extender may take httpTimeout and 10 MB, its status must be 200. What follows where it
    fails, and what where `ignorable` is true: predicate: the node is refused (passes); prioritize: no node is taken
    (no points); preemptable, reclaimable: no victims (the same); jobEnqueueable: rejected (permitted); queueOverused:
    overused (not); jobReady: ready (not ready); allocateFunc: the placement is refused (kept); deallocateFunc,
    jobEnqueued, onSessionClose: nothing; onSessionOpen: no verb but onSessionClose is called in this session (nothing).

    Once all that it is asked in a session took sessionTimeout, or it took longer in one session than a plugin may
    (``--plugin-timeout``), it is out of the session: nothing is asked any more, each verb fails at once, an Event at
    the configuration says so and ``vcd_extender_out`` is 1.

    Each answer is in the log with its session, so that a replay needs no server. A question of the same bytes is asked
    once in a session, unless the extender was told of an event in between. `predicate` is asked about nodes that
    nothing else rules out, sixteen questions at a time, and once for pods of a job that only their names, UIDs and
    numbers tell apart, until something is placed on the node. Source: Volcano ``plugins/extender``.
    """

    name = "extender"
    kinds = ("ResourceQuota",)
    timed = True
    asks_outside = True
    series = (
        ("vcd_extender_failed_calls", "Calls of the extender in the last session that failed."),
        ("vcd_extender_out", "Whether the last session went on without the extender, which had used up its time."),
    )
    arguments = (
        Argument(
            "extender.urlPrefix",
            "url",
            "",
            "The server's address; a user and password in it are sent, not logged.",
            required=True,
        ),
        Argument("extender.httpTimeout", "duration", 1_000_000_000, "How long one answer may take.", minimum=1),
        Argument(
            "extender.sessionTimeout",
            "duration",
            3_000_000_000,
            "How long all that it is asked in one session may take; then it is out of the session. vcd's own.",
            minimum=1,
        ),
        _verb("onSessionOpen", "is told of the session when it opens"),
        _verb("onSessionClose", "is told that the session is over"),
        _verb("predicate", "says whether a node takes a task"),
        _verb("prioritize", "gives nodes points for a task"),
        _verb("preemptable", "says which tasks may be preempted"),
        _verb("reclaimable", "says which tasks may be reclaimed"),
        _verb("queueOverused", "says whether a queue has more than its share"),
        _verb("jobEnqueueable", "says whether a job may be admitted"),
        _verb("jobEnqueued", "is told that a job was admitted"),
        _verb("jobReady", "says whether a job is ready to be bound"),
        _verb("allocateFunc", "is told of each placement, trials included, and may refuse it"),
        _verb("deallocateFunc", "is told of each placement that is taken back, and of each eviction"),
        Argument(
            "extender.ignorable", "bool", False, "Whether scheduling goes on as if the extender agreed when it fails."
        ),
        Argument(
            "extender.managedResources", "strings", (), "Resources whose pods it is asked about; none given: all pods."
        ),
    )

    def open(self, session: Session) -> None:
        """Tell the extender of the session; where it fails and is not ignorable, leave it alone in this session."""
        self._ignorable: bool = self.values["extender.ignorable"]
        self._managed = frozenset(self.values["extender.managedResources"])
        self._is_managed = cache(partial(_names_managed, self._managed))
        self._extender = Extender(
            self.name,
            session.outside,
            self.values["extender.urlPrefix"],
            self.values["extender.httpTimeout"],
            self.values["extender.sessionTimeout"],
        )
        if self.name in session.left_out:
            self._extender.out = "it was interrupted"
        self._wire = Wire(session)
        self._progress = Progress(session, self._is_managed)
        self._asked = ExtenderSession(session, self._extender, self._wire, self._progress, self._ignorable)
        self._active = True
        verb = self._verb("onSessionOpen")
        if verb:
            said = self._extender.tell(verb, self._wire.everything(), Nothing)
            self._active = not said.error or self._ignorable

    def close(self, session: Session) -> None:
        """Tell the extender that the session is over."""
        verb = self._verb("onSessionClose")
        if verb:
            self._extender.tell(verb, {}, Nothing)

    def _verb(self, name: str) -> str:
        verb: str = self.values[f"extender.{name}Verb"]
        return verb

    def _active_verb(self, name: str) -> str:
        return self._verb(name) if self._active else ""

    # --- nodes ------------------------------------------------------------------------------------------------------

    def predicates(self) -> Iterable[Predicate]:
        """The verb predicate; and prioritize, as far as no node is taken without its answer."""
        verb = self._active_verb("predicate")
        if verb:
            yield ExtenderPredicate(self._asked, verb)
        verb = self._active_verb("prioritize")
        if verb:
            yield ExtenderPriorities(self._asked, verb)

    def batch_node_order(self) -> Iterable[Score]:
        """The verb prioritize."""
        verb = self._active_verb("prioritize")
        if verb:
            yield ExtenderScore(self._asked, verb)

    # --- victims ----------------------------------------------------------------------------------------------------

    @lets_go("whom the extender names at the verb preemptable")
    def preemptable(self, preemptor: Task, tasks: list[Task]) -> list[Task] | None:
        """The verb preemptable."""
        return self._victims("preemptable", preemptor, tasks)

    @lets_go("whom the extender names at the verb reclaimable")
    def reclaimable(self, reclaimer: Task, tasks: list[Task]) -> list[Task] | None:
        """The verb reclaimable."""
        return self._victims("reclaimable", reclaimer, tasks)

    def _victims(self, name: str, evictor: Task, tasks: list[Task]) -> list[Task] | None:
        verb = self._active_verb(name)
        if not verb or not self._is_managed(evictor.shape):
            return None
        request = {"evictor": self._wire.task(evictor), "evictees": [self._wire.task(task) for task in tasks]}
        said = self._extender.ask(verb, request, VictimsAnswer)
        if said.error:
            return []
        if said.answer.status == 0:
            return None
        named = frozenset(victim.uid for victim in said.answer.victims)
        return [task for task in tasks if task.uid in named]

    # --- jobs and queues --------------------------------------------------------------------------------------------

    def job_enqueueable(self, job: Job) -> Vote | Reason:
        """The verb jobEnqueueable."""
        verb = self._active_verb("jobEnqueueable")
        if not verb:
            return Vote.ABSTAIN
        said = self._extender.ask(verb, {"job": self._wire.job(job)}, EnqueueableAnswer)
        if said.error:
            return Vote.PERMIT if self._ignorable else _unanswered(said.error)
        if said.answer.status < 0:
            return _NOT_ADMITTED()
        return Vote.PERMIT if said.answer.status else Vote.ABSTAIN

    def job_enqueued(self, job: Job) -> None:
        """The verb jobEnqueued."""
        verb = self._active_verb("jobEnqueued")
        if verb:
            self._extender.tell(verb, {"job": self._wire.job(job)}, Nothing)
            self._progress.forget()

    def overused(self, queue: Queue) -> Reason | None:
        """The verb queueOverused."""
        verb = self._active_verb("queueOverused")
        if not verb:
            return None
        said = self._extender.ask(verb, {"queue": self._wire.queue(queue)}, OverusedAnswer)
        if said.error:
            return None if self._ignorable else _unanswered(said.error)
        return _OVERUSED() if said.answer.overused else None

    def job_ready(self, job: Job) -> bool:
        """The verb jobReady."""
        verb = self._active_verb("jobReady")
        if not verb:
            return True
        said = self._extender.ask(verb, {"job": self._wire.job(job)}, ReadyAnswer)
        return not self._ignorable if said.error else said.answer.status

    # --- events -----------------------------------------------------------------------------------------------------

    def on_allocate(self, task: Task, row: int) -> Reason | None:
        """The verb allocateFunc; a refusal takes this placement back, and no other."""
        if not self._active:
            return None
        self._moved(task, row)
        error = self._event("allocateFunc", task)
        return _PLACEMENT_REFUSED({"error": error}) if error else None

    def on_deallocate(self, task: Task, row: int) -> None:
        """The verb deallocateFunc."""
        if not self._active:
            return
        self._moved(task, row)
        self._event("deallocateFunc", task)

    def _moved(self, task: Task, row: int) -> None:
        self._wire.moved(task, row)
        self._progress.moved(row)

    def _event(self, name: str, task: Task) -> str:
        """Tell of an event; why the extender refuses it."""
        verb = self._active_verb(name)
        if not verb or not self._is_managed(task.shape):
            return ""
        said = self._extender.tell(verb, {"task": self._wire.task(task)}, EventAnswer)
        self._progress.forget()
        if said.error:
            return "" if self._ignorable else said.error
        return said.answer.error_message

    # --- gauges -----------------------------------------------------------------------------------------------------

    def gauges(self) -> Iterator[Gauge]:
        """How many calls of the session got no answer, and whether the session went on without it."""
        yield Gauge("vcd_extender_failed_calls", (), self._extender.failures)
        yield Gauge("vcd_extender_out", (), int(bool(self._extender.out)))

    def problems(self) -> Iterator[Problem]:
        """That the session went on without it."""
        if self._extender.out:
            goes_on = "as if it agreed" if self._ignorable else "with what it has no say in only"
            yield Problem(
                "",
                "",
                f"plugin extender: {without_user_info(self.values['extender.urlPrefix'])} is not asked any more in "
                f"this session, since {self._extender.out} (extender.sessionTimeout "
                f"{format_duration(self.values['extender.sessionTimeout'])}); scheduling goes on {goes_on}",
            )


def _unanswered(error: str) -> Reason:
    return UNANSWERED({"error": error})


def _names_managed(managed: frozenset[str], shape: Shape) -> bool:
    """Whether an extender of some resources is asked about tasks of a shape; one of none is asked about all."""
    return not managed or any(
        name in managed
        for container in (*shape.spec.containers, *shape.spec.init_containers)
        for quantities in (container.resources.requests, container.resources.limits)
        for name in quantities
    )
