"""extender: delegate decisions to an external HTTP server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache, partial

from vcd.model.reasons import Cause, Reason, ReasonCode
from vcd.scheduling.framework.arguments import Argument, format_duration
from vcd.scheduling.framework.plugin import CALLS, Plugin
from vcd.scheduling.framework.points import Vote
from vcd.scheduling.framework.victims import victim_rule
from vcd.scheduling.plugins.extender.extender_calls import (
    EnqueueableAnswer,
    EventAnswer,
    Extender,
    Nothing,
    OverusedAnswer,
    ReadyAnswer,
    VictimsAnswer,
)
from vcd.scheduling.plugins.extender.extender_encoding import Wire
from vcd.scheduling.plugins.extender.extender_rules import (
    UNANSWERED,
    ExtenderPredicate,
    ExtenderPriorities,
    ExtenderScore,
    ExtenderSession,
    Progress,
)
from vcd.scheduling.search.parts import Predicate, Score
from vcd.scheduling.session.gauges import Gauge
from vcd.scheduling.session.object_problems import Problem
from vcd.scheduling.session.outside import without_user_info
from vcd.scheduling.session.queue_view import Queue
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job, Task
from vcd.state.records import Shape

_NOT_ADMITTED = ReasonCode("extender-not-admitted", Cause.OUTSIDE, "the extender does not admit the job")
_OVERUSED = ReasonCode("extender-overused", Cause.OUTSIDE, "the extender finds the queue overused")
_PLACEMENT_REFUSED = ReasonCode(
    "extender-placement", Cause.OUTSIDE, "the extender refuses the placement: {error}", nodes_help=True
)


def _verb(name: str, what: str) -> Argument:
    return Argument(f"extender.{name}Verb", "str", "", f"The verb that {what}; not called if empty.")


class ExtenderPlugin(Plugin):
    """Call an external server at the extension points with a configured verb: POST of JSON to urlPrefix/verb.

    Requests are Volcano's own structures as Go encodes them: `predicate` gets `{"task", "node"}`, `prioritize`
    `{"task", "nodes"}`, `preemptable` and `reclaimable` `{"evictor", "evictees"}`, `jobEnqueueable`, `jobEnqueued` and
    `jobReady` `{"job"}`, `queueOverused` `{"queue"}`, the two events `{"task"}`, `onSessionOpen` the whole session and
    `onSessionClose` nothing.

    For tasks, the extender is called only if a container's requests or limits name one of managedResources. Queues and
    jobs are always sent. A response may take at most httpTimeout and 10 MB, and its status must be 200. A failed call
    has this result:

    | verb | result | with `ignorable: true` |
    | --- | --- | --- |
    | predicate | the node is refused | it passes |
    | prioritize | no node is chosen | no points |
    | preemptable, reclaimable | no victims | no victims |
    | jobEnqueueable | rejected | permitted |
    | queueOverused | overused | not overused |
    | jobReady | not ready | ready |
    | allocateFunc | the placement is refused | it remains |
    | deallocateFunc, jobEnqueued, onSessionClose | nothing | nothing |
    | onSessionOpen | only onSessionClose is called in this session | nothing |

    If all calls of a session together exceed sessionTimeout, or the plugin exceeds its time in one session
    (``--plugin-timeout``), the extender is excluded from the session. It is not called again, each verb fails at once,
    an Event at the configuration reports it, and ``vcd_extender_out`` is 1.

    Each response is logged with its session, so that a replay needs no server. Identical requests are sent once in a
    session, unless an event was sent in between. `predicate` is called only for nodes that nothing else excludes, up to
    sixteen calls concurrently. Pods of a job that differ only in names, UIDs and numbers share one call, until
    something is placed on the node. Source: Volcano ``plugins/extender``.
    """

    name = "extender"
    kinds = ("ResourceQuota",)
    timed = True
    outside = (CALLS,)
    series = (
        ("vcd_extender_failed_calls", "Calls of the extender in the last session that failed."),
        ("vcd_extender_out", "Whether the last session went on without the extender, which had used up its time."),
    )
    arguments = (
        Argument(
            "extender.urlPrefix",
            "url",
            "",
            "The server's address. A user and password in it are sent, not logged.",
            required=True,
        ),
        Argument("extender.httpTimeout", "duration", 1_000_000_000, "Timeout of one call.", minimum=1),
        Argument(
            "extender.sessionTimeout",
            "duration",
            3_000_000_000,
            "Timeout of all calls in one session together; then the extender is excluded. Not in Volcano.",
            minimum=1,
        ),
        _verb("onSessionOpen", "announces that the session opens"),
        _verb("onSessionClose", "announces that the session is over"),
        _verb("predicate", "decides whether a node accepts a task"),
        _verb("prioritize", "gives nodes points for a task"),
        _verb("preemptable", "names the tasks that may be preempted"),
        _verb("reclaimable", "names the tasks that may be reclaimed"),
        _verb("queueOverused", "decides whether a queue is overused"),
        _verb("jobEnqueueable", "decides whether a job is admitted"),
        _verb("jobEnqueued", "announces that a job was admitted"),
        _verb("jobReady", "decides whether a job is ready to be bound"),
        _verb("allocateFunc", "announces each placement, including trials, and may refuse it"),
        _verb("deallocateFunc", "announces each placement that is rolled back, and each eviction"),
        Argument("extender.ignorable", "bool", False, "Whether a call that fails counts as agreement."),
        Argument(
            "extender.managedResources", "strings", (), "Resources whose pods the extender handles; empty: all pods."
        ),
    )

    def open(self, session: Session) -> None:
        """Send onSessionOpen; if it fails and is not ignorable, use no other verb than onSessionClose."""
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
        self._context = ExtenderSession(session, self._extender, self._wire, self._progress, self._ignorable)
        self._active = True
        verb = self._verb("onSessionOpen")
        if verb:
            response = self._extender.notify(verb, self._wire.everything(), Nothing)
            self._active = not response.error or self._ignorable

    def close(self, session: Session) -> None:
        """Send onSessionClose."""
        verb = self._verb("onSessionClose")
        if verb:
            self._extender.notify(verb, {}, Nothing)

    def _verb(self, name: str) -> str:
        verb: str = self.values[f"extender.{name}Verb"]
        return verb

    def _active_verb(self, name: str) -> str:
        return self._verb(name) if self._active else ""

    # --- nodes ------------------------------------------------------------------------------------------------------

    def predicates(self) -> Iterable[Predicate]:
        """Return the filter of the verb predicate, and the filter that needs a response of prioritize."""
        verb = self._active_verb("predicate")
        if verb:
            yield ExtenderPredicate(self._context, verb)
        verb = self._active_verb("prioritize")
        if verb:
            yield ExtenderPriorities(self._context, verb)

    def batch_node_order(self) -> Iterable[Score]:
        """Return the score of the verb prioritize."""
        verb = self._active_verb("prioritize")
        if verb:
            yield ExtenderScore(self._context, verb)

    # --- victims ----------------------------------------------------------------------------------------------------

    @victim_rule("tasks that the extender returns for the verb preemptable")
    def preemptable(self, preemptor: Task, tasks: list[Task]) -> list[Task] | None:
        """Return the victims that the verb preemptable names."""
        return self._victims("preemptable", preemptor, tasks)

    @victim_rule("tasks that the extender returns for the verb reclaimable")
    def reclaimable(self, reclaimer: Task, tasks: list[Task]) -> list[Task] | None:
        """Return the victims that the verb reclaimable names."""
        return self._victims("reclaimable", reclaimer, tasks)

    def _victims(self, name: str, evictor: Task, tasks: list[Task]) -> list[Task] | None:
        verb = self._active_verb(name)
        if not verb or not self._is_managed(evictor.shape):
            return None
        request = {"evictor": self._wire.task(evictor), "evictees": [self._wire.task(task) for task in tasks]}
        response = self._extender.query(verb, request, VictimsAnswer)
        if response.error:
            return []
        if response.answer.status == 0:
            return None
        named = frozenset(victim.uid for victim in response.answer.victims)
        return [task for task in tasks if task.uid in named]

    # --- jobs and queues --------------------------------------------------------------------------------------------

    def job_enqueueable(self, job: Job) -> Vote | Reason:
        """Return the vote of the verb jobEnqueueable."""
        verb = self._active_verb("jobEnqueueable")
        if not verb:
            return Vote.ABSTAIN
        response = self._extender.query(verb, {"job": self._wire.job(job)}, EnqueueableAnswer)
        if response.error:
            return Vote.PERMIT if self._ignorable else _unanswered(response.error)
        if response.answer.status < 0:
            return _NOT_ADMITTED()
        return Vote.PERMIT if response.answer.status else Vote.ABSTAIN

    def job_enqueued(self, job: Job) -> None:
        """Send the verb jobEnqueued."""
        verb = self._active_verb("jobEnqueued")
        if verb:
            self._extender.notify(verb, {"job": self._wire.job(job)}, Nothing)
            self._progress.forget()

    def overused(self, queue: Queue) -> Reason | None:
        """Return a reason if the verb queueOverused reports the queue as overused."""
        verb = self._active_verb("queueOverused")
        if not verb:
            return None
        response = self._extender.query(verb, {"queue": self._wire.queue(queue)}, OverusedAnswer)
        if response.error:
            return None if self._ignorable else _unanswered(response.error)
        return _OVERUSED() if response.answer.overused else None

    def job_ready(self, job: Job) -> bool:
        """Return the answer of the verb jobReady."""
        verb = self._active_verb("jobReady")
        if not verb:
            return True
        response = self._extender.query(verb, {"job": self._wire.job(job)}, ReadyAnswer)
        return self._ignorable if response.error else response.answer.status

    # --- events -----------------------------------------------------------------------------------------------------

    def on_allocate(self, tasks: list[Task], rows: list[int]) -> Reason | None:
        """Send the verb allocateFunc; a refusal rolls back this placement only."""
        errors = self._moved("allocateFunc", tasks, rows)
        return _PLACEMENT_REFUSED({"error": errors[0]}) if errors else None

    def on_deallocate(self, tasks: list[Task], rows: list[int]) -> None:
        """Send the verb deallocateFunc."""
        self._moved("deallocateFunc", tasks, rows)

    def _moved(self, verb: str, tasks: list[Task], rows: list[int]) -> list[str]:
        """Send the verb for each task; return why the extender refuses some."""
        errors = []
        for task, row in zip(tasks, rows, strict=True) if self._active else ():
            self._wire.moved(task, row)
            self._progress.moved(row)
            errors.append(self._event(verb, task))
        return [error for error in errors if error]

    def _event(self, name: str, task: Task) -> str:
        """Send an event; return why the extender refuses it, or an empty text."""
        verb = self._active_verb(name)
        if not verb or not self._is_managed(task.shape):
            return ""
        response = self._extender.notify(verb, {"task": self._wire.task(task)}, EventAnswer)
        self._progress.forget()
        if response.error:
            return "" if self._ignorable else response.error
        return response.answer.error_message

    # --- gauges -----------------------------------------------------------------------------------------------------

    def gauges(self) -> Iterator[Gauge]:
        """Return the number of failed calls in the session, and whether the extender was excluded."""
        yield Gauge("vcd_extender_failed_calls", (), self._extender.failures)
        yield Gauge("vcd_extender_out", (), int(bool(self._extender.out)))

    def problems(self) -> Iterator[Problem]:
        """Report that the session continued without the extender."""
        if self._extender.out:
            consequence = "as if it agreed" if self._ignorable else "for pods that the extender does not handle"
            yield Problem(
                "",
                "",
                f"plugin extender: {without_user_info(self.values['extender.urlPrefix'])} is not asked any more in "
                f"this session, since {self._extender.out} (extender.sessionTimeout "
                f"{format_duration(self.values['extender.sessionTimeout'])}); scheduling goes on {consequence}",
            )


def _unanswered(error: str) -> Reason:
    return UNANSWERED({"error": error})


def _names_managed(managed: frozenset[str], shape: Shape) -> bool:
    """Return whether the extender handles tasks of a shape; without managedResources it handles all."""
    return not managed or any(
        name in managed
        for container in (*shape.spec.containers, *shape.spec.init_containers)
        for quantities in (container.resources.requests, container.resources.limits)
        for name in quantities
    )
