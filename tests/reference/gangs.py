"""Room for whole gangs: the actions gangpreempt and gangreclaim, whose victims go in bundles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from tests.reference.displacing import displacing
from tests.reference.evictions import GANGS, TRUE, Gang, _preemptable, _wanting, in_turn, leave
from tests.reference.immunity import is_immune
from tests.reference.model import ALLOCATED, READY, Job, Node, Queue, Task, annotations_of, labels, total
from tests.reference.session import PredicateFailure, Session, Statement
from tests.reference.values import CPU, MEMORY, Resource

PREEMPTABLE = "volcano.sh/preemptable"


@dataclass
class Bundle:
    """Tasks of a job that go together: what it can spare, or (``whole``) the rest, without which it is no more."""

    job: Job
    tasks: list[Task]
    whole: bool

    @property
    def units(self) -> list[list[Task]]:
        """Those that can go without the others, in the order of eviction."""
        return [self.tasks] if self.whole else [[task] for task in self.tasks]

    @property
    def freed(self) -> Resource:
        return total(task.request for task in self.tasks)


@dataclass
class Asking:
    """A job that asks, the tasks that want a place, what they need, and of what the cluster lacks for them."""

    session: Session
    statement: Statement
    reclaims: bool
    queue: Queue
    job: Job
    tasks: list[Task]
    need: Resource
    wanted: list[str]

    @property
    def gang(self) -> Gang:
        return Gang(self.job.key, self.job.priority, self.reclaims, self.need)

    @property
    def action(self) -> str:
        return "gangreclaim" if self.reclaims else "gangpreempt"


def gangpreempt(session: Session) -> None:
    """Starving jobs wait, all of their tasks at once, where jobs of lower priority in their queue go."""
    for queue, job in in_turn(session, overused_too=True):
        _make_room(session, queue, job, reclaims=False)


def gangreclaim(session: Session) -> None:
    """Starving jobs wait, all of their tasks at once, where jobs of other queues go."""
    for queue, job in in_turn(session, overused_too=False):
        _make_room(session, queue, job, reclaims=True)


def _make_room(session: Session, queue: Queue, job: Job, reclaims: bool) -> None:
    tasks = [task for task in _wanting(session, job) if not task.best_effort]
    if not tasks or any(task.spec.get("preemptionPolicy") == "Never" for task in tasks):
        return
    need = total(task.request for task in tasks)
    if reclaims:
        together = replace(tasks[0], request=need)
        if not all(function(queue, together) for function in session.functions("preemptive")):
            return

    def attempt(evicts: bool) -> bool:
        statement = Statement(session)
        asking = Asking(session, statement, reclaims, queue, job, tasks, need, _wanted(session, need))
        if _take(asking) and (statement.evicts or not evicts):
            statement.commit()
            return True
        statement.discard()
        return False

    if not attempt(False) and not reclaims:
        displacing(session, job, lambda: attempt(True))


def _wanted(session: Session, need: Resource) -> list[str]:
    """Of what the cluster has too little idle; if of nothing, all that is needed."""
    room = total(_not_negative(node.future_idle) for _, node in sorted(session.cluster.nodes.items()))
    asked = [name for name in need.names() if need.get(name) > 0]
    return [name for name in asked if need.get(name) > room.get(name)] or asked


def _take(asking: Asking) -> bool:
    """Evict bundle after bundle until all tasks have a place; whose going helps nobody stays."""
    if _place_all(asking):
        return True
    asking.statement.discard()
    taken: list[Bundle] = []
    for bundle in _allowed(asking, _in_order(asking, _offered(asking))):
        _evict(asking, bundle.units)
        taken.append(bundle)
        evicted = len(asking.statement.steps)
        if _place_all(asking):
            _give_back(asking, taken)
            return True
        asking.statement.undo(evicted)
    return False


def _evict(asking: Asking, units: list[list[Task]]) -> None:
    for unit in units:
        for task in unit:
            asking.statement.evict(task)


def _place_all(asking: Asking) -> bool:
    """Let all tasks wait on their best nodes, those with room now before those with room to come."""
    session = asking.session
    for task in asking.tasks:
        if not session.allocatable(asking.queue, task):
            return False
        try:
            session.pre_predicate(task)
        except PredicateFailure:
            return False
        nodes = session.places_to_wait(task)
        if not nodes:
            return False
        asking.statement.pipeline(task, session.best(task, nodes))
    return session.job_ready(asking.job) or session.job_pipelined(asking.job)


# -- who may be asked ---------------------------------------------------------------


def _offered(asking: Asking) -> list[Bundle]:
    """The bundles of all jobs that may be asked."""
    found = []
    for _, job in sorted(asking.session.cluster.jobs.items()):
        if _may_be_asked(asking, job):
            found += _bundles(asking, job, _candidates(asking, job))
    return found


def _may_be_asked(asking: Asking, job: Job) -> bool:
    """Reclaiming, jobs of other queues that give; else jobs of lower priority in the same one."""
    marks = annotations_of(job.group).get(PREEMPTABLE, labels(job.group).get(PREEMPTABLE))
    if marks is not None and marks not in TRUE:
        return False
    if not asking.reclaims:
        return job.queue == asking.job.queue and job is not asking.job and job.priority < asking.job.priority
    spec = asking.session.cluster.queues[job.queue].manifest.get("spec") or {}
    return job.queue != asking.job.queue and spec.get("reclaimable") is not False


def _candidates(asking: Asking, job: Job) -> list[Task]:
    found = [t for t in job.having("Bound", "Running") if t.node in asking.session.cluster.nodes and _preemptable(t)]
    return [t for t in found if not is_immune(asking.session, t, asking.job)]


def _bundles(asking: Asking, job: Job, tasks: list[Task]) -> list[Bundle]:
    """What a job can spare of some tasks, those of low priority first, but before them those that hold any of what is
    wanted; and the rest, where nothing of the job would stay behind."""
    ordered = sorted(tasks, key=lambda t: (not _holds_any(t, asking.wanted), t.priority, t.uid, t.key))
    surplus = len(job.having(*READY)) - job.min_available
    if not ordered:
        return []
    if surplus < 0:
        is_about_to_be_whole = job.waiting_count and (
            job.waiting_count + job.ready_count + job.pending_best_effort >= job.min_available
        )
        return [] if is_about_to_be_whole else [Bundle(job, ordered, whole=False)]
    left = _spare_of_roles(job)
    spare, rest = [], []
    for task in ordered:
        if surplus > 0 and left.get(task.role, 1) > 0:
            spare.append(task)
            surplus -= 1
            if task.role in left:
                left[task.role] -= 1
        else:
            rest.append(task)
    found = [Bundle(job, spare, whole=False)] if spare else []
    nobody_stays = len(ordered) == len(job.having(*ALLOCATED)) and not job.waiting_count
    return [*found, Bundle(job, rest, whole=True)] if rest and nobody_stays else found


def _spare_of_roles(job: Job) -> dict[str, int]:
    """How many each role with a minimum has above it, where that counts."""
    if not job.checks_roles:
        return {}
    placed = job.having(*READY) + [task for task in job.having("Pending") if task.best_effort]
    return {role: sum(task.role == role for task in placed) - least for role, least in job.task_minima.items()}


def _holds_any(task: Task, names: list[str]) -> bool:
    return any(task.request.get(name) > 0 for name in names)


def _in_order(asking: Asking, bundles: list[Bundle]) -> list[Bundle]:
    """What can be spared before what is whole. Preempting: the job that comes last first. Reclaiming: queues as plugins
    say, else the one that is served last first; in each the job that gives most for what it loses."""
    session = asking.session
    jobs = {bundle.job.key: bundle.job for bundle in bundles}
    if not asking.reclaims:
        backwards = list(reversed(session.jobs_in_order(list(jobs.values()))))
        return sorted(bundles, key=lambda bundle: (bundle.whole, backwards.index(bundle.job)))
    functions = session.functions("victimQueueOrder")
    names = sorted({job.queue for job in jobs.values()})
    queues = session.queues_in_order([session.cluster.queues[name] for name in names])
    queues.reverse()
    queues.sort(key=lambda other: [function(other, asking.queue) for function in functions])
    place = {queue.name: number for number, queue in enumerate(queues)}
    return sorted(bundles, key=lambda b: (b.whole, place[b.job.queue], *_loss_for_gain(b, asking.need), b.job.key))


def _loss_for_gain(bundle: Bundle, need: Resource) -> tuple[bool, Fraction]:
    """The smaller the better: nothing lost comes first, then the most of what is needed for what the job loses."""
    gain, loss = Fraction(0), Fraction(0)
    freed, held = bundle.freed, total(task.request for task in bundle.job.tasks)
    for name in need.names():
        most = need.get(name)
        if most > 0:
            gain += Fraction(min(freed.get(name), most)) / Fraction(most)
            loss += Fraction(held.get(name)) / Fraction(most)
    if not bundle.whole or loss == 0:
        return False, Fraction(0)
    return True, -gain / loss


def _allowed(asking: Asking, bundles: list[Bundle]) -> Iterator[Bundle]:
    """What plugins let go of each bundle, asked when it is its turn. A job of which some are kept spares others, and
    does not go as a whole."""
    partly: list[Job] = []
    arguments = asking.session.configuration.action_arguments.get(asking.action)
    may_go_whole = arguments is None or arguments.boolean("allowWholeBundle", True)
    for bundle in bundles:
        going = _let_go(asking, bundle.tasks)
        if bundle.whole:
            if may_go_whole and bundle.job not in partly and len(going) == len(bundle.tasks):
                yield bundle
            continue
        if len(going) < len(bundle.tasks):
            partly.append(bundle.job)
            free = leave(asking.session, GANGS, asking.gang, _candidates(asking, bundle.job)).tasks
            others = [one for one in _bundles(asking, bundle.job, free) if not one.whole]
            going = _let_go(asking, [task for one in others for task in one.tasks])
        if going:
            yield Bundle(bundle.job, going, whole=False)


def _let_go(asking: Asking, tasks: list[Task]) -> list[Task]:
    found = leave(asking.session, GANGS, asking.gang, tasks)
    return [task for task in found.tasks if found.take(task)]


# -- who stays after all --------------------------------------------------------------


def _give_back(asking: Asking, taken: list[Bundle]) -> None:
    """Let stay who has room beside those that wait, those that would go last first, a whole job only whole; where that
    keeps the tasks from where they are, as many of them go after all as it takes, in the order of eviction."""
    order = [unit for bundle in taken for unit in bundle.units]
    needed = _needed(asking, taken)
    others = [unit for unit in order if unit[0] not in needed]
    if not others:
        return
    places = [asking.session.cluster.nodes[task.node] for task in asking.tasks]
    for count in range(len(others) + 1):
        asking.statement.discard()
        _evict(asking, [unit for unit in order if unit not in others[count:]])
        if all(_place_again(asking, task, node) for task, node in zip(asking.tasks, places, strict=True)):
            return
    asking.statement.discard()
    _evict(asking, order)
    _place_all(asking)


def _place_again(asking: Asking, task: Task, node: Node) -> bool:
    if not asking.session.takes_waiting(task, node) or not asking.session.allocatable(asking.queue, task):
        return False
    asking.statement.pipeline(task, node)
    return True


def _needed(asking: Asking, taken: list[Bundle]) -> list[Task]:
    """Who has no room beside those that wait."""
    rooms = {name: node.future_idle for name, node in asking.session.cluster.nodes.items()}
    found: list[Task] = []
    ended: list[Job] = []
    for bundle in reversed(taken):
        for unit in reversed(bundle.units):
            if bundle.job in ended or not _has_room(asking, rooms, unit):
                found += unit
                ended += [bundle.job] if bundle.whole else []
    return found


def _has_room(asking: Asking, rooms: dict[str, Resource], tasks: Iterable[Task]) -> bool:
    """Whether tasks can stay, of what they hold nothing lacking for those that wait on their nodes; then they do."""
    after = {name: room.clone() for name, room in rooms.items()}
    for task in tasks:
        room = after[task.node].sub(task.request)
        on_node = asking.session.cluster.nodes[task.node].tasks.values()
        lacks = any(task.request.get(name) > 0 and room.get(name) < 0 for name in task.request.names())
        if lacks and any(status == "Pipelined" for _, status in on_node):
            return False
    rooms.update(after)
    return True


def _not_negative(room: Resource) -> Resource:
    scalars = {name: max(value, 0) for name, value in (room.scalars or {}).items()}
    return Resource(max(room.get(CPU), 0), max(room.get(MEMORY), 0), scalars)
