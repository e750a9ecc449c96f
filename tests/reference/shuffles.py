"""Who has to leave of himself: the action shuffle, and tdm's nodes that are ours by the hour only."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Callable

from tests.reference.config import Arguments
from tests.reference.evictions import TRUE, Allowance, Each, Leave, Surplus, _preemptable, asked_to_go
from tests.reference.jobs import duration
from tests.reference.model import ALLOCATED, Job, Manifest, Node, Task, annotations_of, created, labels
from tests.reference.session import PERMIT, REJECT, Session

ZONE, PREEMPTABLE = "volcano.sh/revocable-zone", "volcano.sh/preemptable"
LEAST, MOST = "volcano.sh/jdb-min-available", "volcano.sh/jdb-max-unavailable"
WINDOW, PERIOD = "tdm.revocable-zone.", "tdm.evict.period"


# -- the action -------------------------------------------------------------------


class _Wholes(Surplus):
    """What gangs can spare, and gangs that go whole: all of their placed pods are among those that go together."""

    def __init__(self, session: Session, going: list[Task]) -> None:
        super().__init__(session, whole=True)
        self._going = Counter(task.job for task in going)

    def permits(self, task: Task) -> bool:
        if super().permits(task):
            return True
        job = self._session.cluster.jobs[task.job]
        waits = job.waiting_count and (
            job.waiting_count + job.ready_count + job.pending_best_effort >= job.min_available
        )
        return not waits and self._going[job.key] >= job.ready_count - len(job.having("Succeeded"))


def _protection(session: Session, going: list[Task]) -> list[Allowance]:
    """What the plugins that protect say, in whatever tier they are."""
    found: list[Allowance] = []
    for tier in session.configuration.tiers:
        for one in tier:
            if one.name == "gang":
                found.append(_Wholes(session, going))
            elif one.name in session.points.get("unprotected", {}):
                found.append(session.points["unprotected"][one.name](None))
    return found


def let_go(session: Session, tasks: list[Task]) -> list[Task]:
    """Of those that would all go the ones that nobody keeps."""
    leave = Leave(_protection(session, tasks), tasks)
    return [task for task in leave.tasks if leave.take(task)]


def shuffle(session: Session) -> None:
    """What the first tier names of which anybody may go, goes; who is kept takes nobody else's place."""
    running = [
        task
        for _, task in sorted(session.cluster.tasks.items())
        if task.status == "Running" and task.node in session.cluster.nodes and task.job in session.cluster.jobs
    ]
    running = [task for task in running if _preemptable(task)]

    def named(functions: list[Callable[[list[Task]], list[Task]]], tasks: list[Task]) -> list[Task]:
        keys = {task.key for function in functions for task in function(tasks)}
        return [task for task in tasks if task.key in keys]

    for tier in session.tiers("victimTasks"):
        if not named(tier, running):
            continue
        free = Leave(_protection(session, running), running).tasks
        going = let_go(session, named(tier, free))
        if going:
            for task in going:
                session.evict(task)
            return


# -- tdm --------------------------------------------------------------------------


class _Budgets(Allowance):
    """Of each job as many as its budget lets; one where it states none."""

    def __init__(self, session: Session, may: Callable[[Task], bool]) -> None:
        self._may = may
        self._left = {}
        for key, job in session.cluster.jobs.items():
            stated = _stated(job)
            self._left[key] = 1 if stated is None else stated

    def permits(self, task: Task) -> bool:
        return self._may(task) and self._left[task.job] > 0

    def spend(self, task: Task) -> None:
        self._left[task.job] -= 1


def tdm(session: Session, arguments: Arguments) -> None:
    """Nodes of a revocable zone take pods that allow it, in the zone's window; afterwards these leave."""
    windows = {key[len(WINDOW) :]: str(text) for key, text in arguments.values.items() if key.startswith(WINDOW)}
    closed = {zone for zone, text in windows.items() if not _is_open(text, session.now)}
    period = duration(arguments.values.get(PERIOD, "1m")) or 0
    since = session.now - datetime.timedelta(microseconds=period // 1000)

    def predicate(task: Task, node: Node) -> list[str]:
        zone = _zone(node)
        if zone and (zone not in windows or zone in closed):
            return ["node(s) in a revocable zone that is closed"]
        return ["node(s) in a revocable zone"] if zone and not _uses_zones(task.pod) else []

    def score(task: Task, nodes: list[Node]) -> dict[str, float]:
        opened = windows.keys() - closed
        return {node.name: 100.0 for node in nodes if _zone(node) in opened and _uses_zones(task.pod)}

    def preemptable(asker: Task) -> Allowance:
        if _preemptable(asker) or _uses_zones(asker.pod):
            return Each(lambda _: False)
        nodes = session.cluster.nodes

        def may(task: Task) -> bool:
            return task.status == "Running" and _preemptable(task) and not _zone(nodes[task.node])

        return _Budgets(session, may)

    def victims(tasks: list[Task]) -> list[Task]:
        """Pods on nodes of closed zones; a gang that would be too small then, and states no budget, as a whole."""
        out = [task for task in tasks if _zone(session.cluster.nodes[task.node]) in closed]
        resting = {task.job for task in out if _gave_just_now(session.cluster.jobs[task.job], since, session.now)}
        leave = Leave([_Budgets(session, lambda task: task.job not in resting)], out)
        going = [task for task in leave.tasks if leave.take(task)]
        some_go = {task.job for task in let_go(session, going)}
        for key in sorted({task.job for task in going} - some_go):
            own = [task for task in tasks if task.job == key]
            if _stated(session.cluster.jobs[key]) is None and len(let_go(session, own)) == len(own):
                going += own
        return going

    def pipelined(job: Job) -> int:
        """As gang has it; Volcano, without its pains, looks at no roles here."""
        enough = job.waiting_count + job.ready_count + job.pending_best_effort >= job.min_available
        by_role = not session.pains or job.has_enough_of_each_role(*ALLOCATED, "Succeeded", "Pipelined")
        return PERMIT if enough and by_role else REJECT

    session.register("kind", "tdm", lambda task: [annotations_of(task.pod).get(name) for name in (PREEMPTABLE, ZONE)])
    session.register("predicate", "tdm", predicate)
    session.register("nodeOrder", "tdm", score)
    session.register("preemptable", "tdm", preemptable)
    session.register("victimTasks", "tdm", victims)
    session.register("jobOrder", "tdm", lambda left, right: _is_preemptable(left) - _is_preemptable(right))
    session.register("jobPipelined", "tdm", pipelined)
    session.register("jobStarving", "tdm", lambda job: bool(job.having("Pending")) and not _is_preemptable(job))


def _zone(node: Node) -> str:
    return node.labels.get(ZONE, "")


def _uses_zones(pod: Manifest) -> bool:
    marks = annotations_of(pod)
    return marks[ZONE] == "*" if ZONE in marks else marks.get(PREEMPTABLE) in TRUE


def _is_preemptable(job: Job) -> bool:
    return annotations_of(job.group).get(PREEMPTABLE, labels(job.group).get(PREEMPTABLE)) in TRUE


def _is_open(text: str, now: datetime.datetime) -> bool:
    """Whether a window of the day, in UTC and with both ends, holds a time; it may go past midnight."""
    start, end = (int(hour) * 60 + int(minute) for hour, minute in (part.split(":") for part in text.split("-")))
    minute = now.hour * 60 + now.minute
    until = minute if now.second == 0 else minute + 1
    """The first full minute that is not before the time: 8:00:01 is after a window that ends at 8:00."""
    if start < end:
        return start <= minute and until <= end
    return start == end or minute >= start or until <= end


def _stated(job: Job) -> int | None:
    """How many running pods its budget lets go now, if it states one."""
    marks, running = annotations_of(job.group), len(job.having("Running"))
    least, most = (_amount(marks.get(key), len(job.tasks)) for key in (LEAST, MOST))
    if least is not None:
        return max(running - least, 0)
    if most is not None:
        ended = len(job.having("Succeeded", "Failed"))
        return max(most - (len(job.tasks) - ended - running), 0)
    return None


def _amount(text: str | None, whole: int) -> int | None:
    """A number, or a percentage of the whole, rounded up; None for anything else."""
    number = (text or "").removesuffix("%")
    if not number.isdigit():
        return None
    return -(-int(number) * whole // 100) if text != number else int(number)


def _gave_just_now(job: Job, since: datetime.datetime, now: datetime.datetime) -> bool:
    """Whether one of its pods was asked to go, or made, after a time."""
    return any(
        (asked_to_go(task, now) if task.status == "Releasing" else created(task.pod)) > since for task in job.tasks
    )
