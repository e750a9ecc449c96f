"""The trace of a session: the calls of plugins, their answers, and the searches that led to a decision.

A session decides the same with and without a trace. Explanations read traces; plugins are not called again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

from vcd.scheduling.framework.guard import Method
from vcd.scheduling.framework.order_positions import PointParticipants, VictimStanding, victim_standing
from vcd.scheduling.framework.rules import plugin_of
from vcd.scheduling.framework.victims import Victims
from vcd.scheduling.search.candidates import Candidates, NodeRating, OtherCandidates
from vcd.scheduling.session.nodes import Ints
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job, Task

EVERYTHING: Final = None
"""Value of ``Trace.about``: every job and pod."""
PROTECTS: Final = -1
"""The tier of an answer by which a plugin protects pods where a tier without it decides."""


class PluginAnswer(NamedTuple):
    """The answer of a plugin in a tier (0 is called first)."""

    plugin: str
    tier: int
    answer: Any


class PointQuestion(NamedTuple):
    """One call at an extension point: arguments, the plugins' answers in order, and the combined result."""

    point: str
    asked: tuple[Any, ...]
    answers: tuple[PluginAnswer, ...]
    outcome: Any


class NodeChoice(NamedTuple):
    """A task's nodes as rated when one was chosen, and its row; None if no node was feasible.

    A plugin that chooses by itself (``best_node``) is among the ``answers`` of the call.
    """

    task: Task
    rating: NodeRating
    row: int | None


class VictimRound(NamedTuple):
    """One call about victims: the candidates in eviction order, the plugins that decided, and the plugin that protects
    each remaining candidate, by row (``kept``)."""

    tasks: tuple[Task, ...]
    leave: tuple[str, ...]
    kept: dict[int, str]


class VictimSearch(msgspec.Struct, frozen=True):
    """A search for victims for ``asker``: a task, or a context of several for gang actions.

    ``rounds`` are the calls at ``point``. ``going`` are the victims in eviction order. ``beside`` are pods that could
    have been evicted in addition, in order. ``spared`` has, by row, the plugin that protects a pod because of the
    earlier victims. ``standings`` explains, by row, the order of the first round. ``node`` is the row of the node
    (None: not one node), ``room`` its future idle resources before the evictions, and ``exempt`` are pods that were no
    candidates there, and why. ``asked`` counts the session's calls until then. ``noted`` is the result of the trace's
    ``note`` at that moment.
    """

    point: str
    asker: Any
    job: Job
    rounds: tuple[VictimRound, ...]
    going: tuple[Task, ...]
    beside: tuple[Task, ...]
    spared: dict[int, str]
    standings: dict[int, VictimStanding]
    node: int | None
    room: Ints | None
    exempt: tuple[tuple[Task, str], ...]
    asked: int
    noted: Any = None


@dataclass(slots=True)
class Trace:
    """What one session decides, and how.

    ``about`` has the keys of jobs and pods that are traced (EVERYTHING: all). A trace about something records every
    call at every extension point with all answers, and for traced jobs and pods the ratings of each choice of a node
    and each search for victims. A trace about nothing records only the calls that refuse, admit and place, with their
    results.

    ``note`` is called at each search with the session and the preemptor; its result is stored with the search.
    """

    about: Collection[str] | None = ()
    note: Callable[[Session, Any], Any] = lambda _, __: None
    questions: list[PointQuestion] = field(default_factory=list, init=False)
    choices: list[NodeChoice] = field(default_factory=list, init=False)
    searches: list[VictimSearch] = field(default_factory=list, init=False)
    _answers: list[PluginAnswer] = field(default_factory=list, init=False)
    _rounds: list[VictimRound] = field(default_factory=list, init=False)
    _participants: PointParticipants = field(default_factory=dict, init=False)
    _rows: frozenset[int] = field(default=frozenset(), init=False)
    _jobs: frozenset[int] = field(default=frozenset(), init=False)
    _session: Session | None = field(default=None, init=False)

    @property
    def is_idle(self) -> bool:
        """Whether it is about no job and no pod, so that equivalent pods and jobs may be decided together."""
        return self.about is not None and not self.about

    def open(self, session: Session, participants: PointParticipants) -> None:
        """Begin, or begin again: a session is repeated without a plugin that failed."""
        self._session, self._participants = session, participants
        for records in (self.questions, self.choices, self.searches, self._answers, self._rounds):
            records.clear()
        about = frozenset(self.about or ())
        rows = [row for row, key in enumerate(session.snapshot.tasks.keys) if key in about] if about else []
        groups = [session.jobs.index(key) for key in sorted(about)]
        self._rows = frozenset(rows)
        of_pods = [int(session.job_of_row[row]) for row in rows]
        self._jobs = frozenset([*of_pods, *(job for job in groups if job is not None)])

    def follows(self, job: Job) -> bool:
        """Return whether a job, or one of its pods, is traced."""
        return self.about is None or job.index in self._jobs

    def _follows_any(self, tasks: Iterable[Task]) -> bool:
        return self.about is None or any(task.row in self._rows for task in tasks)

    # --- calls --------------------------------------------------------------------------------------------------------

    def record_answers(self, tier: int, method: Method) -> Method:
        """Return a plugin's method, wrapped so that its answers are recorded."""
        if self.is_idle:
            return method
        recorded: Method = _RecordedMethod(self._answers, tier, method)
        return recorded

    def record_calls(self, point: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return the method by which actions call a point, wrapped so that calls are recorded."""
        write: Callable[..., Any] | None = self._call_for_node if point == "best_node" else None
        write = self._call_for_victims if point in VICTIM_POINTS else write
        questions, answers = self.questions, self._answers
        if self.is_idle:
            return self._record_results(point, call) if point in GATES_AND_MOVES else call

        def recorded_call(*subject: Any) -> Any:
            begin = len(answers)
            outcome = call(*subject) if write is None else write(call, *subject)
            questions.append(PointQuestion(point, subject, tuple(answers[begin:]), outcome))
            del answers[begin:]
            return outcome

        return recorded_call

    def _record_results(self, point: str, call: Callable[..., Any]) -> Callable[..., Any]:
        write = self.questions.append

        def recorded_call(*subject: Any) -> Any:
            outcome = call(*subject)
            write(PointQuestion(point, subject, (), outcome))
            return outcome

        return recorded_call

    def _call_for_node(
        self,
        call: Callable[[Task, Candidates | OtherCandidates], int | None],
        task: Task,
        candidates: Candidates | OtherCandidates,
    ) -> int | None:
        rating = candidates.rated() if self.follows(task.job) else None
        row = call(task, candidates)
        if rating is not None:
            self.choices.append(NodeChoice(task, rating, row))
        return row

    # --- victims ------------------------------------------------------------------------------------------------------

    def _call_for_victims(self, call: Callable[[Any, list[Task]], Victims], asker: Any, tasks: list[Task]) -> Victims:
        begin = len(self._answers)
        victims = call(asker, tasks)
        job = getattr(asker, "job", None)  # ``asker`` is a task or a context; third-party actions may pass anything
        if self._follows_any(tasks) or (isinstance(job, Job) and self.follows(job)):
            answers = self._answers[begin:]
            tier = max((each.tier for each in answers if each.tier != PROTECTS and each.answer is not None), default=0)
            last = next((place for place, each in enumerate(answers) if each.tier == tier), 0)
            decided = Victims(tasks, [(each.plugin, each.answer) for each in answers[last:]])
            kept = {task.row: name for task in tasks if (name := decided.protector(task)) is not None}
            self._rounds.append(VictimRound(tuple(tasks), tuple(name for name, _ in victims.answers), kept))
        return victims

    def searched(
        self,
        asker: Any,
        job: Job,
        going: Sequence[Task],
        victims: Victims,
        node: int | None = None,
        exempt: Callable[[], Iterable[tuple[Task, str]]] = tuple,
    ) -> None:
        """Record a search for victims that ended. ``going`` are the victims chosen from ``victims``, the last combined
        answer.
        """
        rounds, self._rounds[:] = tuple(self._rounds), ()
        if not rounds:
            return
        assert self._session is not None, "a trace is opened before anything is asked"
        point = next(each.point for each in reversed(self.questions) if each.point in VICTIM_POINTS)
        gone = {task.row for task in going}
        left = [task for task in victims.tasks if task.row not in gone] if going else []
        beside = [task for task in left if victims.protector(task) is None and victims.take(task)]
        gone.update(task.row for task in beside)
        spared = {
            task.row: name
            for task in rounds[-1].tasks
            if task.row not in gone and task.row not in rounds[-1].kept and (name := victims.protector(task))
        }
        self.searches.append(
            VictimSearch(
                point,
                asker,
                job,
                rounds,
                tuple(going),
                tuple(beside),
                spared,
                {task.row: victim_standing(self._participants, task, job.queue) for task in rounds[0].tasks},
                node,
                None if node is None else self._session.nodes.usage.future_idle_of(node).copy(),
                tuple(exempt()),
                len(self.questions),
                self.note(self._session, asker),
            )
        )

    # --- reading ------------------------------------------------------------------------------------------------------

    def choice_of(self, key: str) -> NodeChoice | None:
        """Return the last choice of a node for a pod."""
        return next((choice for choice in reversed(self.choices) if choice.task.key == key), None)

    def places(self) -> dict[str, int]:
        """Return the rows of pods that were placed and not removed again, by key."""
        found: dict[str, int] = {}
        for task, row, _ in self.moves():
            if row is None:
                found.pop(task.key, None)
            else:
                found[task.key] = row
        return found

    def at(self, *points: str) -> list[PointQuestion]:
        """Return the calls at some points, in order."""
        return [each for each in self.questions if each.point in points]

    def moves(self) -> list[tuple[Task, int | None, int]]:
        """Return placements and removals in order: the task, its row (None if removed), the number of calls before."""
        found: list[tuple[Task, int | None, int]] = []
        for number, (point, asked, _, _) in enumerate(self.questions):
            if point == "on_allocate":
                found += [(task, row, number) for task, row in zip(*asked, strict=True)]
            elif point == "on_deallocate":
                found += [(task, None, number) for task in asked[0]]
        return found


GATES_AND_MOVES: Final = frozenset(
    (
        *("job_valid", "job_enqueueable", "job_enqueued", "overused", "preemptive", "pre_predicate"),
        *("allocatable", "on_allocate", "on_deallocate"),
    )
)
"""The points at which something is refused, admitted, placed or removed."""
VICTIM_POINTS: Final = ("preemptable", "reclaimable", "unified_evictable")


class _RecordedMethod:
    """A plugin's method whose answers are recorded. It replaces the bound method."""

    __slots__ = ("__self__", "_answers", "_method", "_name", "_tier")

    def __init__(self, answers: list[PluginAnswer], tier: int, method: Method) -> None:
        self.__self__ = plugin_of(method)
        self._answers, self._tier, self._method = answers, tier, method
        self._name = self.__self__.name

    def __call__(self, *arguments: Any) -> Any:
        answer = self._method(*arguments)
        self._answers.append(PluginAnswer(self._name, self._tier, answer))
        return answer
