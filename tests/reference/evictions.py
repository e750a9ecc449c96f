"""Making room: the action preempt, whom the plugins let go, and the fewest that suffice."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cmp_to_key

from tests.reference import labels as lb
from tests.reference.config import Arguments
from tests.reference.displacing import displacing
from tests.reference.immunity import is_immune
from tests.reference.jobs import duration
from tests.reference.model import READY, Job, Node, Queue, Task, annotations_of, labels, meta
from tests.reference.session import PredicateFailure, Session, Statement
from tests.reference.values import CPU, MEMORY, Resource, share

SYSTEM_CLASSES = ("system-cluster-critical", "system-node-critical")
COOLDOWN = "volcano.sh/cooldown-time"
SETTLING = datetime.timedelta(seconds=10)
SHARE_DELTA = 0.000001
GANGS = "unifiedEvictable"
"""The point at which plugins are asked for a whole gang instead of a task."""
TRUE = ("1", "t", "T", "true", "TRUE", "True")


class Allowance:
    """What one plugin says of pods that may go: each for itself, and less with each that was taken."""

    def permits(self, task: Task) -> bool:
        return True

    def spend(self, task: Task) -> None:
        """The task goes."""


class Each(Allowance):
    """Pods that may go each for itself."""

    def __init__(self, may: Callable[[Task], bool]) -> None:
        self._may = may

    def permits(self, task: Task) -> bool:
        return self._may(task)


class Leave:
    """The answers of all plugins that were asked: a pod goes when each of them still permits it."""

    def __init__(self, allowances: list[Allowance], tasks: Iterable[Task]) -> None:
        self._allowances = allowances
        self.tasks = [task for task in tasks if all(one.permits(task) for one in allowances)]

    def take(self, task: Task) -> bool:
        if not all(one.permits(task) for one in self._allowances):
            return False
        for one in self._allowances:
            one.spend(task)
        return True


@dataclass
class Gang:
    """A job that asks for room for several of its tasks together, from its own queue or from others."""

    job: str
    priority: int
    reclaims: bool
    request: Resource


def leave(session: Session, point: str, asker: Task | Gang, tasks: list[Task]) -> Leave:
    """Who may go for a task or a gang: the first tier that lets anybody go decides, and nobody goes whom another one
    protects."""
    protecting = {**session.points.get("unprotected", {}), **session.points.get(f"unprotected {point}", {})}
    for tier in session.configuration.tiers:
        on = [one.name for one in tier if one.name in session.points.get(point, {}) and point not in one.off]
        if not on:
            continue
        answers = [answer for name in on if (answer := session.points[point][name](asker)) is not None]
        if not answers:
            continue
        others = [
            one.name
            for each in session.configuration.tiers
            for one in each
            if one.name in protecting and one.name not in on and point not in one.off
        ]
        found = Leave([*answers, *(protecting[name](asker) for name in others)], tasks)
        if found.tasks:
            return found
    return Leave([], [])


# -- what plugins say -------------------------------------------------------------


def priority(session: Session) -> None:
    """Jobs of lower priority; within a job, tasks of lower priority."""

    def lower(preemptor: Task) -> Allowance:
        jobs = session.cluster.jobs

        def may(task: Task) -> bool:
            if task.job == preemptor.job:
                return task.priority < preemptor.priority
            return jobs[task.job].priority < jobs[preemptor.job].priority

        return Each(may)

    def lower_jobs(gang: Gang) -> Allowance:
        return Each(lambda task: gang.reclaims or session.cluster.jobs[task.job].priority < gang.priority)

    session.register("preemptable", "priority", lower)
    session.register(GANGS, "priority", lower_jobs)
    session.register("jobStarving", "priority", lambda job: job.ready_count + job.waiting_count < len(job.tasks))


class Surplus(Allowance):
    """Of each job, as many as it has above its minimum; with ``whole`` also the last one of a job, and those of jobs
    that are below their minimum, but of none that is about to be whole."""

    def __init__(self, session: Session, whole: bool) -> None:
        self._session, self._whole = session, whole
        self._gone: Counter[str] = Counter()

    def permits(self, task: Task) -> bool:
        job = self._session.cluster.jobs[task.job]
        left = job.ready_count - self._gone[job.key]
        if left > job.min_available:
            return True
        waits = job.waiting_count + job.ready_count + job.pending_best_effort >= job.min_available
        if not self._whole or (job.waiting_count and waits):
            return False
        return left == 1 or job.ready_count < job.min_available

    def spend(self, task: Task) -> None:
        self._gone[task.job] += 1


def gang(session: Session) -> None:
    for point in ("preemptable", "reclaimable"):
        session.register(point, "gang", lambda _: Surplus(session, whole=False))
    session.register("unprotected", "gang", lambda _: Surplus(session, whole=True))
    for point in (GANGS, f"unprotected {GANGS}"):
        session.register(point, "gang", lambda _: Allowance())
    session.register("jobStarving", "gang", lambda job: job.ready_count + job.waiting_count < job.min_available)


def conformance(session: Session, arguments: Arguments) -> None:
    """What the system needs stays."""

    def may(task: Task) -> bool:
        return task.namespace != "kube-system" and task.spec.get("priorityClassName") not in SYSTEM_CLASSES

    for point in ("preemptable", "reclaimable", GANGS, "unprotected"):
        session.register(point, "conformance", lambda _: Each(may))


def cdp(session: Session, arguments: Arguments) -> None:
    """Who was placed a short while ago stays."""

    def may(task: Task) -> bool:
        text = _stated_cooldown(task)
        cooldown = None if text is None else duration(text)
        status = task.pod.get("status") or {}
        if cooldown is None or status.get("phase") != "Running":
            return True
        for condition in status.get("conditions") or []:
            if condition["type"] == "PodScheduled" and condition["status"] == "True":
                placed = datetime.datetime.fromisoformat(condition["lastTransitionTime"].replace("Z", "+00:00"))
                return placed + datetime.timedelta(microseconds=cooldown // 1000) <= session.now
        return True

    for point in ("preemptable", "reclaimable", GANGS, "unprotected"):
        session.register(point, "cdp", lambda _: Each(may))


def _stated_cooldown(task: Task) -> str | None:
    return labels(task.pod).get(COOLDOWN, annotations_of(task.pod).get(COOLDOWN))


def has_sound_cooldown(task: Task) -> bool:
    """Whether what a pod says of its cool-down, if anything, can be read."""
    text = _stated_cooldown(task)
    return text is None or duration(text) is not None


def asked_to_go(task: Task, now: datetime.datetime) -> datetime.datetime:
    """When a leaving pod was asked to: its deletion is due a grace period later."""
    until = meta(task.pod).get("deletionTimestamp")
    if until is None:
        return now
    grace = task.spec.get("terminationGracePeriodSeconds", 30)
    due = datetime.datetime.fromisoformat(str(until).replace("Z", "+00:00"))
    return due - datetime.timedelta(seconds=grace)


class Budgets(Allowance):
    """Each pod takes from all budgets that select it; none of which may be used up. Who went in this session, or in the
    last seconds, took from them already, whatever their status says."""

    def __init__(self, session: Session) -> None:
        self._budgets = [
            (budget, {"left": int((budget.get("status") or {}).get("disruptionsAllowed") or 0)})
            for budget in session.cluster.all("PodDisruptionBudget")
        ]
        for task in session.evicted:
            self.spend(task)
        for task in session.cluster.tasks.values():
            leaves = task.status == "Releasing" and task.node and not task.evicted
            if leaves and session.now < asked_to_go(task, session.now) + SETTLING:
                self.spend(task)

    def _of(self, task: Task) -> list[dict[str, int]]:
        found = []
        for budget, account in self._budgets:
            selector = (budget.get("spec") or {}).get("selector") or {}
            if (
                selector
                and meta(budget).get("namespace") == task.namespace
                and lb.label_selector(selector).matches(task.labels)
            ):
                found.append(account)
        return found

    def permits(self, task: Task) -> bool:
        return all(account["left"] > 0 for account in self._of(task))

    def spend(self, task: Task) -> None:
        for account in self._of(task):
            account["left"] -= 1


def pdb(session: Session, arguments: Arguments) -> None:
    for point in ("preemptable", "reclaimable", GANGS, "unprotected"):
        session.register(point, "pdb", lambda _: Budgets(session))


class LargerShares(Allowance):
    """Tasks whose jobs keep no smaller a share than the preemptor's job would have."""

    def __init__(self, session: Session, preemptor: Task, whole: Resource, held: dict[str, Resource]) -> None:
        self._whole, self._held = whole, {key: amount.clone() for key, amount in held.items()}
        self._mine = self._share(held[preemptor.job].clone().add(preemptor.request))

    def _share(self, held: Resource) -> float:
        names = self._whole.names()
        return max([0.0, *(share(held.get(name), self._whole.get(name)) for name in names)])

    def permits(self, task: Task) -> bool:
        theirs = self._share(self._held[task.job].clone().sub(task.request))
        return self._mine < theirs or abs(self._mine - theirs) <= SHARE_DELTA

    def spend(self, task: Task) -> None:
        self._held[task.job].sub(task.request)


# -- the action -------------------------------------------------------------------


def _starving(session: Session) -> dict[str, list[Job]]:
    """The jobs that may ask for room, by queue, in order of their keys."""
    starving: dict[str, list[Job]] = {}
    for _, job in sorted(session.cluster.jobs.items()):
        if job.is_pending or not session.cluster.queues[job.queue].open or not job.opened_with_pending:
            continue
        if session.why_invalid(job) is None and session.job_starving(job):
            starving.setdefault(job.queue, []).append(job)
    return starving


def in_turn(session: Session, overused_too: bool) -> Iterator[tuple[Queue, Job]]:
    """Starving jobs, all of a queue before those of the next, in the orders as they are when it is their turn."""
    starving = _starving(session)
    queues = [session.cluster.queues[name] for name in sorted(starving)]
    while queues:
        queue = session.queues_in_order(queues)[0]
        queues.remove(queue)
        if not overused_too and session.overused(queue):
            continue
        waiting = starving[queue.name]
        while waiting:
            job = session.jobs_in_order(waiting)[0]
            waiting.remove(job)
            yield queue, job


def preempt(session: Session) -> None:
    """Starving jobs, the first to be served first, wait where lower ones of their queue go; then tasks within a job."""
    starving = _starving(session)
    for queue in session.queues_in_order([session.cluster.queues[name] for name in sorted(starving)]):
        waiting = list(starving[queue.name])
        while waiting:
            job = session.jobs_in_order(waiting)[0]
            waiting.remove(job)
            _between_jobs(session, queue, job)
        for job in starving[queue.name]:
            _within(session, queue, job)


def _wanting(session: Session, job: Job) -> list[Task]:
    return session.tasks_in_order([task for task in job.having("Pending") if not task.gated])


def _between_jobs(session: Session, queue: Queue, job: Job) -> None:
    def may(task: Task) -> bool:
        other = session.cluster.jobs[task.job]
        return other.queue == queue.name and other is not job and not outranks(session, other, job)

    def attempt(evicts: bool) -> bool:
        statement = Statement(session)
        return make_wait(session, job, statement, lambda task: _take(session, queue, statement, task, may), evicts)

    if not attempt(False):
        displacing(session, job, lambda: attempt(True))


def outranks(session: Session, other: Job, job: Job) -> bool:
    """Whether another job is of higher priority and comes first: it would get what its own victims free."""
    return other.priority > job.priority and session.jobs_in_order([other, job])[0] is other


def make_wait(
    session: Session, job: Job, statement: Statement, take: Callable[[Task], object], evicts: bool = False
) -> bool:
    """Tasks wait, one after the other, until the job starves no more; where it may not wait so, those of roles that
    miss their minimum come first. With ``evicts`` nothing comes of it unless somebody goes."""
    tasks = _wanting(session, job)
    for order in (tasks, sorted(tasks, key=lambda task: not misses(job, task.role))):
        for task in order:
            if not session.job_starving(job):
                break
            take(task)
        if session.job_pipelined(job):
            if evicts and not statement.evicts:
                break
            statement.commit()
            return True
        statement.discard()
    statement.discard()
    return False


def misses(job: Job, role: str) -> bool:
    """Whether a role has fewer than its minimum, where that counts."""
    placed = job.having(*READY) + [task for task in job.having("Pending") if task.needs_no_room]
    return job.checks_roles and sum(task.role == role for task in placed) < job.task_minima.get(role, 0)


def _within(session: Session, queue: Queue, job: Job) -> None:
    for task in _wanting(session, job):
        statement = Statement(session)
        taken = _take(session, queue, statement, task, lambda other: other.job == job.key)
        if not taken or not session.job_pipelined(job):
            statement.discard()
            return
        statement.commit()


def _take(session: Session, queue: Queue, statement: Statement, task: Task, may: Callable[[Task], bool]) -> bool:
    """Let a task wait where it has room already, else on the best rated node on which enough others go."""
    if task.spec.get("preemptionPolicy") == "Never":
        return False
    try:
        session.pre_predicate(task)
    except PredicateFailure:
        return False
    if session.allocatable(queue, task):
        vacant = session.places_to_wait(task)
        if vacant:
            return statement.pipeline(task, session.best(task, vacant))
    start = len(statement.steps)
    for node in session.may_be_freed(session.ranked(task, session.node_order), task):
        if _free(session, queue, statement, task, node, may):
            placed = statement.pipeline(task, node)
            if not placed:
                statement.undo(start)
            return placed
    return False


def _fits(session: Session, queue: Queue, task: Task, node: Node) -> bool:
    return session.takes_waiting(task, node) and session.allocatable(queue, task)


def _free(
    session: Session, queue: Queue, statement: Statement, task: Task, node: Node, may: Callable[[Task], bool]
) -> bool:
    """Evict the fewest on a node that let the task fit there; nobody where all of them would not do."""
    if _fits(session, queue, task, node):
        return True
    offered = [
        other
        for other in node.pods()
        if other.status in ("Bound", "Running") and other.job in session.cluster.jobs and _preemptable(other)
    ]
    offered = [other for other in offered if may(other) and (other.best_effort or not task.best_effort)]
    offered = [other for other in offered if not is_immune(session, other, session.cluster.jobs[task.job])]
    offered = _in_victim_order(session, offered)
    going = _who_goes(task, node.future_idle, lambda: leave(session, "preemptable", task, offered))
    start = len(statement.steps)
    for count, victim in enumerate(going, 1):
        statement.evict(victim)
        if _fits(session, queue, task, node):
            _spare(session, queue, statement, start, task, node, going[:count])
            return True
    statement.undo(start)
    return False


def _spare(
    session: Session, queue: Queue, statement: Statement, start: int, task: Task, node: Node, chosen: list[Task]
) -> None:
    """Give back whom it takes not, those that would go last first."""
    for victim in list(reversed(chosen[:-1])):
        rest = [other for other in chosen if other is not victim]
        _evict_just(statement, start, rest)
        if _fits(session, queue, task, node):
            chosen = rest
    _evict_just(statement, start, chosen)


def _evict_just(statement: Statement, start: int, victims: list[Task]) -> None:
    statement.undo(start)
    for victim in victims:
        statement.evict(victim)


def _preemptable(task: Task) -> bool:
    text = annotations_of(task.pod).get("volcano.sh/preemptable", labels(task.pod).get("volcano.sh/preemptable"))
    return text is None or text in TRUE


def _in_victim_order(session: Session, tasks: list[Task]) -> list[Task]:
    """The job that comes last first, in it the task that comes last."""
    jobs = session.cluster.jobs

    def compare(left: Task, right: Task) -> int:
        return session.first_difference("jobOrder", jobs[right.job], jobs[left.job])

    backwards = session.tasks_in_order(tasks)
    backwards.reverse()
    return sorted(backwards, key=cmp_to_key(compare))


def _lacking(task: Task, room: Resource) -> list[str]:
    """What a room has too little of for the task: cpu and memory in any case, scalars that it asks for."""
    names = [CPU, MEMORY, *sorted(name for name, value in (task.request.scalars or {}).items() if value > 0)]
    return [name for name in names if task.request.get(name) > room.get(name)]


def _with(room: Resource, victims: Iterable[Task]) -> Resource:
    room = room.clone()
    for victim in victims:
        room.add(victim.request)
    return room


def _who_goes(task: Task, room: Resource, ask: Callable[[], Leave]) -> list[Task]:
    """Who goes one after the other; where some resource lacks at the end, those that hold most of it go first."""
    allowed = ask()
    victims, scarce = allowed.tasks, set[str]()
    while victims and not _lacking(task, _with(room, victims)):
        going = _together(task, room, allowed, victims)
        lacking = set(_lacking(task, _with(room, going)))
        if not lacking:
            return going
        if lacking <= scarce:
            return []
        scarce |= lacking
        lack = {name: task.request.get(name) - room.get(name) for name in sorted(scarce)}
        allowed = ask()
        victims = sorted(
            allowed.tasks,
            key=lambda victim: -sum(min(victim.request.get(name), most) / most for name, most in lack.items()),
        )
    return []


def _together(task: Task, room: Resource, allowed: Leave, victims: list[Task]) -> list[Task]:
    """First those that hold some of what still lacks, then the others, who may be in the way all the same."""
    room, going = room.clone(), list[Task]()
    for _ in range(2):
        others = []
        for victim in victims:
            lacking = _lacking(task, room)
            if lacking and not any(victim.request.get(name) > 0 for name in lacking):
                others.append(victim)
            elif allowed.take(victim):
                going.append(victim)
                room.add(victim.request)
        victims = others
    return going
