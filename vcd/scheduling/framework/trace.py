"""What a session writes down of how it decides, for who asks why: it decides the same without."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

from vcd.scheduling.framework.guard import Method
from vcd.scheduling.framework.rules import plugin_of
from vcd.scheduling.framework.standing import VictimStanding, Who, victim_standing
from vcd.scheduling.framework.victims import Victims
from vcd.scheduling.search.candidates import Candidates, NodeRating, OtherCandidates
from vcd.scheduling.session.nodes import Ints
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job, Task

EVERYTHING: Final = None
"""What a trace may be about: every job and pod."""
PROTECTS: Final = -1
"""The tier of an answer at a victims' point by which a plugin protects where a tier without it decides."""


class PluginAnswer(NamedTuple):
    """What a plugin of a tier (0 is asked first) said."""

    plugin: str
    tier: int
    answer: Any


class PointQuestion(NamedTuple):
    """What was asked at an extension point, who answered in which order, and what came of it."""

    point: str
    asked: tuple[Any, ...]
    answers: tuple[PluginAnswer, ...]
    outcome: Any


class NodeChoice(NamedTuple):
    """A task's nodes as they were rated when one was chosen, and the row of that one; None where none passed. A plugin
    that chooses by itself (``best_node``) is among the ``answers`` of the question."""

    task: Task
    rating: NodeRating
    row: int | None


class VictimRound(NamedTuple):
    """One question about victims: who was asked about, in the order in which they would go; by whose leave who may;
    ``kept``, by row, who keeps a task whoever else goes."""

    tasks: tuple[Task, ...]
    leave: tuple[str, ...]
    kept: dict[int, str]


class VictimSearch(msgspec.Struct, frozen=True):
    """Who goes from where he is for ``asker``, a task or, with whole gangs, a context of some; asked at ``point``.

    ``rounds`` are the questions that were put, ``going`` those who were chosen, the first first, ``beside`` who could
    have gone beside them, in order, and ``spared``, by row, who keeps one for what goes before him. ``standings`` say,
    by row, why each is where he is in the order of those that were asked about first; ``node`` is the row of the node
    (None: of no one node), ``room`` what it had before anybody went, ``exempt`` who was not asked about there, and why
    not; ``asked`` counts the questions of the session until then, ``noted`` is what the trace's reader wanted to know
    at that moment.
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
    """What one session decides and how, for who asks about jobs and pods, by their keys: every question that an action
    asks, with who answered what; of those that it is ``about`` the rating of each choice of a node and each search for
    victims, too. About nobody, it has the questions that refuse, admit and place, and what came of them.

    ``note`` is asked at each of these searches, with who wants room, for what a reader wants to know of the session at
    that moment.
    """

    about: Collection[str] | None = ()
    note: Callable[[Session, Any], Any] = lambda _, __: None
    questions: list[PointQuestion] = field(default_factory=list, init=False)
    choices: list[NodeChoice] = field(default_factory=list, init=False)
    searches: list[VictimSearch] = field(default_factory=list, init=False)
    _answers: list[PluginAnswer] = field(default_factory=list, init=False)
    _rounds: list[VictimRound] = field(default_factory=list, init=False)
    _who: Who = field(default_factory=dict, init=False)
    _rows: frozenset[int] = field(default=frozenset(), init=False)
    _jobs: frozenset[int] = field(default=frozenset(), init=False)
    _session: Session | None = field(default=None, init=False)

    @property
    def is_idle(self) -> bool:
        """Whether it is about nobody: then pods and jobs alike may be decided together."""
        return self.about is not None and not self.about

    def open(self, session: Session, who: Who) -> None:
        """Begin, also anew: a session is decided once more without a plugin that failed."""
        self._session, self._who = session, who
        for kept in (self.questions, self.choices, self.searches, self._answers, self._rounds):
            kept.clear()
        about = frozenset(self.about or ())
        rows = [row for row, key in enumerate(session.snapshot.tasks.keys) if key in about] if about else []
        groups = [session.jobs.index(key) for key in sorted(about)]
        self._rows = frozenset(rows)
        of_pods = [int(session.job_of_row[row]) for row in rows]
        self._jobs = frozenset([*of_pods, *(job for job in groups if job is not None)])

    def follows(self, job: Job) -> bool:
        """Whether it is about a job, or one of its pods."""
        return self.about is None or job.index in self._jobs

    def _follows_any(self, tasks: Iterable[Task]) -> bool:
        return self.about is None or any(task.row in self._rows for task in tasks)

    # --- questions ----------------------------------------------------------------------------------------------------

    def answering(self, tier: int, method: Method) -> Method:
        """A plugin's method, whose answers are written down."""
        if self.is_idle:
            return method
        answers: Method = _Answering(self._answers, tier, method)
        return answers

    def asking(self, point: str, ask: Callable[..., Any]) -> Callable[..., Any]:
        """The way in which actions ask at a point, which is written down."""
        write: Callable[..., Any] | None = self._choose if point == "best_node" else None
        write = self._hear if point in VICTIM_POINTS else write
        questions, answers = self.questions, self._answers
        if self.is_idle:
            return self._asking_shortly(point, ask) if point in GATES_AND_MOVES else ask

        def asked(*subject: Any) -> Any:
            begin = len(answers)
            outcome = ask(*subject) if write is None else write(ask, *subject)
            questions.append(PointQuestion(point, subject, tuple(answers[begin:]), outcome))
            del answers[begin:]
            return outcome

        return asked

    def _asking_shortly(self, point: str, ask: Callable[..., Any]) -> Callable[..., Any]:
        write = self.questions.append

        def asked(*subject: Any) -> Any:
            outcome = ask(*subject)
            write(PointQuestion(point, subject, (), outcome))
            return outcome

        return asked

    def _choose(
        self,
        ask: Callable[[Task, Candidates | OtherCandidates], int | None],
        task: Task,
        candidates: Candidates | OtherCandidates,
    ) -> int | None:
        rating = candidates.rated() if self.follows(task.job) else None
        row = ask(task, candidates)
        if rating is not None:
            self.choices.append(NodeChoice(task, rating, row))
        return row

    # --- victims ------------------------------------------------------------------------------------------------------

    def _hear(self, ask: Callable[[Any, list[Task]], Victims], asker: Any, tasks: list[Task]) -> Victims:
        begin = len(self._answers)
        victims = ask(asker, tasks)
        job = getattr(asker, "job", None)  # of a task, or of a context; others ask in their own words
        if self._follows_any(tasks) or (isinstance(job, Job) and self.follows(job)):
            victims.lasts = False  # each who is alike asks for himself, and is written down
            said = self._answers[begin:]
            tier = max((each.tier for each in said if each.tier != PROTECTS and each.answer is not None), default=0)
            last = next((place for place, each in enumerate(said) if each.tier == tier), 0)
            decided = Victims(tasks, [(each.plugin, each.answer) for each in said[last:]])
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
        """A search for victims has ended: ``victims`` is the last leave that was asked for, which ``going`` spent."""
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
                {task.row: victim_standing(self._who, task, job.queue) for task in rounds[0].tasks},
                node,
                None if node is None else self._session.nodes.usage.room_of(node),
                tuple(exempt()),
                len(self.questions),
                self.note(self._session, asker),
            )
        )

    # --- reading ------------------------------------------------------------------------------------------------------

    def choice_of(self, key: str) -> NodeChoice | None:
        """The last choice that was made for a pod."""
        return next((choice for choice in reversed(self.choices) if choice.task.key == key), None)

    def places(self) -> dict[str, int]:
        """Who was placed and not taken away again: the rows, by the keys of the pods."""
        found: dict[str, int] = {}
        for task, row, _ in self.moves():
            if row is None:
                found.pop(task.key, None)
            else:
                found[task.key] = row
        return found

    def at(self, *points: str) -> list[PointQuestion]:
        """The questions at some points, in order."""
        return [each for each in self.questions if each.point in points]

    def moves(self) -> list[tuple[Task, int | None, int]]:
        """Who was placed on which row, or taken from where he was (None), in order; and after how many questions."""
        found: list[tuple[Task, int | None, int]] = []
        for number, (point, asked, _, _) in enumerate(self.questions):
            if point == "on_allocate":
                found.append((asked[0], asked[1], number))
            elif point == "on_deallocate":
                found.append((asked[0], None, number))
            elif point == "on_allocate_together":
                found += [(task, row, number) for task, row in zip(*asked, strict=True)]
        return found


GATES_AND_MOVES: Final = frozenset(
    (
        *("job_valid", "job_enqueueable", "job_enqueued", "overused", "preemptive", "pre_predicate"),
        *("allocatable", "allocatable_together", "on_allocate", "on_allocate_together", "on_deallocate"),
    )
)
"""The points at which something is refused, admitted, placed or taken away."""
VICTIM_POINTS: Final = ("preemptable", "reclaimable", "unified_evictable")


class _Answering:
    """A plugin's method of a tier whose answers are kept; it passes for the bound method that it stands for."""

    __slots__ = ("__self__", "_answers", "_method", "_name", "_tier")

    def __init__(self, answers: list[PluginAnswer], tier: int, method: Method) -> None:
        self.__self__ = plugin_of(method)
        self._answers, self._tier, self._method = answers, tier, method
        self._name = self.__self__.name

    def __call__(self, *asked: Any) -> Any:
        answer = self._method(*asked)
        self._answers.append(PluginAnswer(self._name, self._tier, answer))
        return answer
