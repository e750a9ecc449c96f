"""What queues share beyond Volcano: demand that no node can take, what is lent, guarantees kept against all borrowers.

All of it differs from Volcano on purpose (docs/differences.md); everything is counted again whenever it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from tests.reference import predicates
from tests.reference.config import Arguments
from tests.reference.model import READY, Job, Node, Queue, Task, total
from tests.reference.session import PredicateFailure, Session
from tests.reference.values import CPU, MEMORY, PODS, Resource

if TYPE_CHECKING:
    from tests.reference.plugins import _Share

_CLAIMS = ("persistentVolumeClaim", "csi", "gcePersistentDisk", "awsElasticBlockStore")
Amounts = dict[str, int]


def names_of(items: Iterable[Resource]) -> list[str]:
    """All resources but places for pods."""
    return [CPU, MEMORY, *sorted({name for each in items for name in each.scalars or {}} - {PODS})]


def never_placed(session: Session) -> set[str]:
    """Pending pods that no node takes though it be empty, or whose gang cannot be whole so."""
    found: set[str] = set()
    places = _places(session)
    for job in session.cluster.jobs.values():
        pending = job.having("Pending")
        is_open = session.cluster.queues[job.queue].open
        out = {task.key for task in pending if not is_open or task.holds_nothing or not places[task.key]}
        if session.functions("jobReady"):
            possible = _possible(session, [task for task in pending if task.key not in out], places)
            if possible + len(job.having(*READY)) < job.min_available or _lacks_role(job, out):
                out = {task.key for task in pending}
        found |= out
    return found


def reserving(session: Session, job: Job, amount: Resource) -> Resource:
    """What an admitted group reserves of an amount: nothing for pods that no node takes, nor for a group too few of
    whose pods have a node."""
    if not session.pains or not session.node_order:
        return job.without_gated(amount)
    tasks, jobs = nowhere(session)
    return Resource() if job.key in jobs else job.without_gated(amount, tasks)


def nowhere(session: Session) -> tuple[frozenset[str], frozenset[str]]:
    """Tasks, as the session began, that no node takes, and jobs that cannot be whole for that; none without nodes."""
    if not session.node_order:
        return frozenset(), frozenset()
    if session.nowhere is None:
        session.nowhere = _nowhere(session)
    return session.nowhere


def _nowhere(session: Session) -> tuple[frozenset[str], frozenset[str]]:
    places = _places(session)
    tasks, jobs = set[str](), set[str]()
    for job in session.cluster.jobs.values():
        pending = job.having("Pending")
        tasks |= {task.key for task in pending if not places[task.key]}
        possible = _possible(session, [task for task in pending if places[task.key]], places)
        minimum, ready = max(1, job.min_available), len(job.having(*READY))
        if possible < len(pending) and possible + ready < minimum:
            jobs.add(job.key)
        if len(pending) + ready >= minimum and _lacks_role(job, {task.key for task in pending} & tasks):
            jobs.add(job.key)
    return frozenset(tasks), frozenset(jobs)


def _lacks_role(job: Job, without: set[str]) -> bool:
    """Whether a job has too few pods of a role, those that are to be left out aside."""
    there = [task for task in job.having("Pending", *READY) if task.key not in without]
    short = any(sum(task.role == role for task in there) < least for role, least in job.task_minima.items())
    return job.checks_roles and short


def _possible(session: Session, tasks: list[Task], places: dict[str, list[Node]]) -> int:
    """How many of a job's tasks the nodes take together if they are empty."""
    found = 0
    for alike in _alike(tasks):
        most = sum(_room_for(node, alike[0]) for node in places[alike[0].key])
        for parts in divisions(session, alike):
            found_in = [parts(node) for node in places[alike[0].key] if _room_for(node, alike[0])]
            alone = sum(_room_for(node, alike[0]) for node in places[alike[0].key] if parts(node) is None)
            most = min(most, alone + len({part for part in found_in if part is not None}))
        found += min(len(alike), most)
    return found


def _alike(tasks: list[Task], by_labels: bool = False) -> list[list[Task]]:
    """Tasks of one specification and namespace, and of equal labels where these matter."""
    found: dict[str, list[Task]] = {}
    for task in sorted(tasks, key=lambda task: task.key):
        labels = sorted(task.labels.items()) if by_labels else []
        found.setdefault(repr((task.spec, task.namespace, labels)), []).append(task)
    return list(found.values())


def divisions(session: Session, alike: list[Task]) -> list[Callable[[Node], str | None]]:
    """How pods of one specification keep each other away: of the nodes of one name no more than one takes one."""
    return [parts for function in session.functions("divisions", "predicate") for parts in function(alike)]


def _places(session: Session) -> dict[str, list[Node]]:
    """By pending pod the nodes that take it if they are empty and the company that it requires is placed: that runs,
    or can be placed itself."""
    tasks = [task for job in session.cluster.jobs.values() for task in job.having("Pending")]
    company: list[Task] = []
    while True:
        found = {task.key: _nodes_for(session, task, company) for task in tasks}
        more = [
            task
            for task in tasks
            if task not in company
            and not task.holds_nothing
            and session.cluster.queues[session.cluster.jobs[task.job].queue].open
            and _nodes_for(session, task, [*company, task])
        ]
        if not more:
            return found
        company += more


def _nodes_for(session: Session, task: Task, company: list[Task]) -> list[Node]:
    if _is_refused(session, task):
        return []
    reach = session.functions("reaches", "predicate")
    return [
        node
        for node in session.node_order
        if session._takes(task, node) and _room_for(node, task) and all(one(task, node, company) for one in reach)
    ]


def _is_refused(session: Session, task: Task) -> bool:
    volumes = task.spec.get("volumes") or []
    if any("ephemeral" in volume for volume in volumes) or not any(k in v for v in volumes for k in _CLAIMS):
        return False
    try:
        session.pre_predicate(task)
    except PredicateFailure:
        return True
    return False


def _room_for(node: Node, task: Task) -> int:
    asked = [name for name in task.request.names() if name != PODS]
    return min([10**9, *[int(node.allocatable.get(name) // task.request.get(name)) for name in asked]])


def usable(session: Session, unused: dict[str, Amounts], never: set[str]) -> dict[str, Amounts]:
    """What of ``unused`` amounts each queue's admitted jobs can go on with, as far as nodes that they can have are
    idle or being freed."""
    found: dict[str, Amounts] = {}
    running = _places(session)
    for name, left in unused.items():
        asks, tasks = Resource(), list[Task]()
        for job in session.cluster.jobs.values():
            waits = [task for task in job.having("Pending") if task.key not in never]
            if job.queue != name or job.is_pending or not waits:
                continue
            needed = min(max(job.min_available - len(job.having(*READY, "Pipelined")), 1), len(waits))
            wanted = total(task.request for task in waits)
            wish = {each: _part(int(wanted.get(each)), needed, len(waits)) for each in left}
            if any(wish.values()) and all(amount <= left[each] for each, amount in wish.items() if amount):
                asks.add(wanted)
                tasks += waits
        if tasks:
            fit, nodes = _fit_now(session, tasks, running)
            found[name] = {
                each: min(int(fit.get(each)), amount, sum(int(max(n.future_idle.get(each), 0)) for n in nodes))
                for each, amount in left.items()
            }
    return found


def _fit_now(session: Session, tasks: list[Task], places: dict[str, list[Node]]) -> tuple[Resource, list[Node]]:
    """What whole pods ask for that fit what is idle, or being freed, on nodes that do not refuse them now; and these
    nodes."""
    fit, used = Resource(), dict[str, Node]()
    everyone = [task for job in session.cluster.jobs.values() for task in job.tasks]
    for alike in _alike(tasks, any(predicates.terms(task, "podAntiAffinity", hard=True) for task in everyone)):
        first = alike[0]
        awaits = bool(predicates.terms(first, "podAffinity", hard=True))  # company, which may be placed yet
        can = places[first.key] if awaits else [node for node in session.node_order if _passes(session, first, node)]
        takes = {node.name: _fits(node, first) for node in can}
        for parts in divisions(session, alike):
            seen: set[str] = set()
            for name, count in sorted(takes.items()):
                part = parts(session.cluster.nodes[name]) if count else None
                takes[name] = count if part is None else int(part not in seen)
                seen |= {part} - {None}
        used |= {name: session.cluster.nodes[name] for name, count in takes.items() if count}
        for task in alike[: sum(takes.values())]:
            fit.add(task.request)
    return fit, [used[name] for name in sorted(used)]


def _passes(session: Session, task: Task, node: Node) -> bool:
    return session._takes(task, node) and not any(one(task, node) for one in session.functions("predicate"))


def _fits(node: Node, task: Task) -> int:
    """How many pods like one fit what is idle, or being freed, places for pods included."""
    if not task.request.fits(node.future_idle):
        return 0
    asked = [name for name in task.request.names() if task.request.get(name) > 0]
    return min(int(node.future_idle.get(name) // task.request.get(name)) for name in asked)


def _part(amount: int, needed: int, count: int) -> int:
    whole, rest = divmod(amount, count)
    return whole * needed - (-rest * needed // count)


def reserved(session: Session, queue: Queue, volcano: bool) -> Resource:
    """[differs] What others have to leave of a queue's guarantee: of one without placements, what it holds."""
    guarantee = queue.guarantee or Resource()
    if volcano:
        return guarantee
    guarantee = within_capability(queue, guarantee)
    if queue.open:
        return guarantee
    held = total(job.allocated for job in session.cluster.jobs.values() if job.queue == queue.name)
    return _each([*names_of([guarantee]), PODS], lambda name: min(guarantee.get(name), held.get(name)))


def within_capability(queue: Queue, guarantee: Resource) -> Resource:
    """[differs] What of a guarantee the queue's own capability lets it use; zero cpu or memory limits nothing."""
    if queue.capability is None:
        return guarantee
    limits = {**(queue.capability.scalars or {}), CPU: queue.capability.cpu, MEMORY: queue.capability.memory}
    limits = {name: most for name, most in limits.items() if most or name not in (CPU, MEMORY)}
    return _each(
        [*names_of([guarantee]), PODS], lambda name: min(guarantee.get(name), limits.get(name, guarantee.get(name)))
    )


def attainable(session: Session, held: Iterable[Resource]) -> Resource:
    """[differs] What queues can have together: what they hold, and what is idle or being freed on nodes that are
    neither cordoned nor out of order."""
    nodes = [node for _, node in sorted(session.cluster.nodes.items()) if not _is_out_of_order(node)]
    idle = [
        _each(node.future_idle.names(), lambda name, node=node: max(node.future_idle.get(name), 0)) for node in nodes
    ]
    return total([*held, *idle])


def _is_out_of_order(node: Node) -> bool:
    taints = node.spec.get("taints") or []
    return bool(node.spec.get("unschedulable")) or any(
        taint["key"].startswith("node.kubernetes.io/") and taint.get("effect") in ("NoSchedule", "NoExecute")
        for taint in taints
    )


def takes_guaranteed(
    guaranteed: dict[str, Resource], held: dict[str, Resource], queue: str, request: Resource, whole: Resource
) -> bool:
    """Whether a queue that gets so much more gets what others are guaranteed and do not hold."""
    for name in request.names():
        due = {other: guarantee.get(name) for other, guarantee in guaranteed.items()}
        have = {other: held[other].get(name) if other in held else 0 for other in due}
        keeps = {other: max(have[other], due[other]) for other in due}
        more = max(have[queue] + request.get(name), due[queue]) - keeps[queue]
        idle = sum(keeps[other] - have[other] for other in due if other != queue)
        if name != PODS and more > 0 and idle > 0 and sum(keeps.values()) + more > whole.get(name):
            return True
    return False


def divide_all(
    shares: dict[str, _Share], everything: Resource, guaranteed: dict[str, Resource], divide: Callable[..., None]
) -> None:
    """Divide by weight what is left beside unused guarantees; where guarantees that are used make that too much, what
    queues get above them shrinks alike."""
    names = names_of(
        [everything, *guaranteed.values(), *[part for a in shares.values() for part in (a.request, a.guarantee)]]
    )
    whole = {name: attr.guarantee for name, attr in shares.items()}
    rest = everything.clone()
    used: dict[str, Resource] = {}
    for name, attr in shares.items():
        used[name] = _each([*names, PODS], lambda r, a=attr: min(a.guarantee.get(r), max(a.request.get(r), 0)))
        rest.sub(_each(names, lambda r, n=name: whole[n].get(r) - used[n].get(r)))
    for name, guarantee in guaranteed.items():
        if name not in shares:
            rest.sub(_each(names, guarantee.get))
    rest = _each([*names, PODS], lambda r: max(rest.get(r), 0))
    for name, attr in shares.items():
        attr.guarantee = used[name]
    divide(shares, rest)
    above = {
        name: _each([*names, PODS], lambda r, n=name: shares[n].deserved.get(r) - used[n].get(r)) for name in shares
    }
    for resource in names:
        room = max(rest.get(resource) - sum(used[name].get(resource) for name in sorted(shares)), 0)
        wanted = sum(above[name].get(resource) for name in sorted(shares))
        factor = room / wanted if wanted > room else 1.0
        for name, attr in shares.items():
            part = used[name].get(resource) + above[name].get(resource) * factor
            _set(attr.deserved, resource, max(part, whole[name].get(resource)))
    for name, attr in shares.items():
        attr.guarantee = whole[name]


def _each(names: list[str], of: Callable[[str], float]) -> Resource:
    found = Resource()
    for name in names:
        _set(found, name, of(name))
    return found


def _set(items: Resource, name: str, value: float) -> None:
    if name == CPU:
        items.cpu = value
    elif name == MEMORY:
        items.memory = value
    else:
        items.scalars = {**(items.scalars or {}), name: value}


class Loan:
    """What allocate lends, and what it keeps for others."""

    def __init__(self, free: Callable[[], Resource], kept: dict[str, Amounts]) -> None:
        self.free, self.kept = free, kept

    def permits(self, queue: Queue, task: Task) -> bool:
        """Whether there is that much beside what other queues can use."""
        free = self.free()
        for name in task.request.names():
            others = sum(kept.get(name, 0) for other, kept in self.kept.items() if other != queue.name)
            if name != PODS and others > 0 and task.request.get(name) > free.get(name) - others:
                return False
        return True


def reclaimable(session: Session, job: Job, arguments: Arguments) -> Resource:
    """[differs] What reclaim could free for a group with which its queue stays within its share: what other reclaimable
    queues hold above theirs and can lose."""
    actions = {"reclaim", "gangreclaim"} & set(session.configuration.actions)
    if not session.pains or not actions or not arguments.boolean("countVictimsEnable", True) or _never(session, job):
        return Resource()
    bounds = [surplus(job) for surplus in session.functions("surplus", "reclaimable")]
    if not bounds or None in bounds:
        return Resource()
    keeps = "gangreclaim" not in actions and bool(session.functions("jobReady", "reclaimable"))
    found = Resource()
    for name, queue in sorted(session.cluster.queues.items()):
        if name != job.queue and (queue.manifest.get("spec") or {}).get("reclaimable") is not False:
            loses = total(_loses(other, keeps) for other in session.cluster.jobs.values() if other.queue == name)
            parts = [loses, *[bound.get(name, Resource()) for bound in bounds]]
            found.add(_each(names_of(parts), lambda name, parts=parts: min(part.get(name) for part in parts) // 1))
    return found


def _loses(job: Job, keeps: bool) -> Resource:
    if not _is_preemptable(job):
        return Resource()
    if keeps and len(job.having("Bound", "Running")) > 1:
        return job.allocated.minus_floor(job.min_request)
    return job.allocated.clone()


def freed(session: Session, job: Job, arguments: Arguments, within: bool = False) -> Resource:
    """[differs] What preempt could free in a group's queue: what others of lower priority can lose, or (``within``) can
    lose of their minimum. A gang keeps its minimum resources, unless one pod has a place or gangs go as a whole."""
    actions = {"preempt", "gangpreempt"} & set(session.configuration.actions)
    if not session.pains or not actions or not arguments.boolean("countVictimsEnable", True) or _never(session, job):
        return Resource()
    lower = [o for o in session.cluster.jobs.values() if o.queue == job.queue and o.priority < job.priority]
    lower = [other for other in lower if _is_preemptable(other)]
    above = [other.allocated.minus_floor(other.min_request) for other in lower]
    keeps = "gangpreempt" not in actions and bool(session.functions("jobReady", "preemptable"))
    loses_all = [not keeps or len(other.having("Bound", "Running")) <= 1 for other in lower]
    minima = [
        other.allocated.sub(elastic) if goes else Resource()
        for other, elastic, goes in zip(lower, above, loses_all, strict=True)
    ]
    return total(minima) if within else total([*minima, *above])


def lose_any(session: Session, job: Job, arguments: Arguments) -> list[Job]:
    """[differs] Groups of lower priority in a group's queue that preempt could take anything from."""
    actions = {"preempt", "gangpreempt"} & set(session.configuration.actions)
    if not session.pains or not actions or not arguments.boolean("countVictimsEnable", True) or _never(session, job):
        return []
    return [
        other
        for _, other in sorted(session.cluster.jobs.items())
        if other.queue == job.queue and other.priority < job.priority and _is_preemptable(other)
    ]


def lose_minimum(session: Session, job: Job, arguments: Arguments) -> list[Job]:
    """[differs] Of these, groups that preempt could take all of their minimum from."""
    keeps = "gangpreempt" not in session.configuration.actions and bool(session.functions("jobReady", "preemptable"))
    below = lose_any(session, job, arguments)
    return [other for other in below if not keeps or len(other.having("Bound", "Running")) <= 1]


def _is_preemptable(job: Job) -> bool:
    meta = job.group.get("metadata") or {}
    marks = {**(meta.get("labels") or {}), **(meta.get("annotations") or {})}
    return marks.get("volcano.sh/preemptable", "true") in ("1", "t", "T", "TRUE", "true", "True")


def _never(session: Session, job: Job) -> bool:
    name = (job.group.get("spec") or {}).get("priorityClassName")
    return (session.cluster.find("PriorityClass", name or "") or {}).get("preemptionPolicy") == "Never"
