"""Plugins of jobs and queues: priority, gang, overcommit, drf, proportion."""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, ValuesView
from dataclasses import dataclass, field, replace

from tests.reference import evictions, lending, reclaims
from tests.reference.applications import short_on_nodes
from tests.reference.config import Arguments
from tests.reference.model import ALLOCATED, Job, Queue, Task, total
from tests.reference.queues import hierarchical_drf
from tests.reference.session import PERMIT, REJECT, Session
from tests.reference.values import CPU, MEMORY, PODS, UNLIMITED, Resource, maximum, share


def priority(session: Session, arguments: Arguments) -> None:
    """Higher priority first, of tasks and of jobs."""
    session.register("taskOrder", "priority", lambda left, right: right.priority - left.priority)
    session.register("jobOrder", "priority", lambda left, right: right.priority - left.priority)
    evictions.priority(session)


def gang(session: Session, arguments: Arguments) -> None:
    """A job runs with its minimum or not at all."""

    def valid(job: Job) -> str | None:
        countable = job.having(*ALLOCATED, "Succeeded", "Pipelined", "Pending")
        if job.checks_roles:
            for role, minimum in sorted(job.task_minima.items()):
                if minimum and sum(task.role == role for task in countable) < minimum:
                    return "NotEnoughPodsOfTask"
        return "NotEnoughTasks" if len(countable) < job.min_available else None

    def ready(job: Job) -> bool:
        return job.has_enough_of_each_role(*ALLOCATED, "Succeeded") and job.is_ready

    def pipelined(job: Job) -> int:
        enough = job.waiting_count + job.ready_count + job.pending_best_effort >= job.min_available
        by_role = job.has_enough_of_each_role(*ALLOCATED, "Succeeded", "Pipelined")
        return PERMIT if enough and by_role else REJECT

    def rank(job: Job) -> int:
        """Broken gangs first, then those that have nothing, then those that are ready."""
        if job.is_ready:
            return 2
        return 0 if session.pains and job.ready_count else 1

    def close() -> None:
        for key, job in session.cluster.jobs.items():
            if job.tasks and (not job.is_ready or job.broken) and not _only_terminating(job):
                session.unschedulable.add(key)

    session.register("jobValid", "gang", valid)
    session.register("jobOrder", "gang", lambda left, right: rank(left) - rank(right))
    session.register("jobReady", "gang", ready)
    session.register("jobPipelined", "gang", pipelined)
    evictions.gang(session)
    session.closers.append(close)


def overcommit(session: Session, arguments: Arguments) -> None:
    """Admits jobs while what is admitted at their priority or above stays within the cluster, times a factor."""
    factor = arguments.number("overcommit-factor", 1.2)
    if factor < 1.0:
        factor = 1.2

    def reserve(job: Job, amount: Resource) -> None:
        counted = lending.reserving(session, job, amount)
        inqueue[job.priority].add(counted)
        taken[job.queue].add(counted)

    def is_guaranteed(job: Job) -> bool:
        """Whether the queue is guaranteed what the group asks for, beside what it holds: reclaim gives it back."""
        guarantee = session.cluster.queues[job.queue].guarantee
        asks = job.min_request
        if guarantee is None or not (asks.cpu > 0 or asks.memory > 0 or any((asks.scalars or {}).values())):
            return False
        names = [CPU, MEMORY, *(asks.scalars or {})]
        return not any(
            asks.get(name) > 0 and asks.get(name) + taken[job.queue].get(name) > guarantee.get(name) for name in names
        )

    nodes = [node for _, node in sorted(session.cluster.nodes.items())]
    room = total(node.allocatable for node in nodes).multiply(factor).sub(total(node.used for node in nodes))
    inqueue: dict[int, Resource] = {job.priority: Resource() for job in session.cluster.jobs.values()}
    taken = {name: Resource() for name in session.cluster.queues}
    opened: list[bool] = []

    def open_accounts() -> None:
        """When the first group asks: predicates are registered later than this."""
        if opened:
            return
        opened.append(True)
        for _, job in sorted(session.cluster.jobs.items()):
            taken[job.queue].add(job.allocated)
            if job.min_resources is None:
                continue
            if job.phase == "Inqueue":
                reserve(job, job.min_request)
            elif job.phase == "Running" and len(job.having(*ALLOCATED)) >= job.min_available:
                reserve(job, job.outstanding())

    def enqueueable(job: Job) -> int:
        open_accounts()
        if session.pains and is_guaranteed(job):
            return PERMIT
        least = job.priority if session.pains else min(inqueue)
        ahead = total(amount for priority, amount in sorted(inqueue.items()) if priority >= least)
        idle = room.clone().add(lending.freed(session, job, arguments))
        wanted = ahead.add(job.min_request)
        short = wanted.exceeding_requested(idle, job.min_request)
        if short:
            idle.add(lending.reclaimable(session, job, arguments))
            short = wanted.exceeding_requested(idle, job.min_request)
        short = short or short_on_nodes(session, job, arguments, factor)
        if short:
            job.notes["gate"] = {"overcommit": short}
        return REJECT if short else PERMIT

    def enqueued(job: Job) -> None:
        if job.min_resources is not None:
            reserve(job, job.min_request)

    session.register("jobEnqueueable", "overcommit", enqueueable)
    session.register("jobEnqueued", "overcommit", enqueued)


def drf(session: Session, arguments: Arguments) -> None:
    """Jobs with the smaller dominant share first."""
    everything = total(node.allocatable for _, node in sorted(session.cluster.nodes.items()))
    allocated = {key: job.allocated for key, job in session.cluster.jobs.items()}
    names = everything.names()

    def dominant(key: str) -> float:
        return max([0.0, *(share(allocated[key].get(name), everything.get(name)) for name in names)])

    def order(left: Job, right: Job) -> int:
        return (dominant(left.key) > dominant(right.key)) - (dominant(left.key) < dominant(right.key))

    def allocate(task: Task) -> None:
        allocated[task.job].add(task.request)

    def deallocate(task: Task) -> None:
        allocated[task.job].sub(task.request)

    session.register("jobOrder", "drf", order)
    session.register("preemptable", "drf", lambda asker: evictions.LargerShares(session, asker, everything, allocated))
    session.handlers.append((allocate, deallocate))
    if session.option("drf").hierarchy:
        hierarchical_drf(session, arguments)


@dataclass
class _Share:
    """What a queue has, wants and deserves."""

    weight: int
    real_capability: Resource
    guarantee: Resource
    most_pods: float | None = None
    deserved: Resource = field(default_factory=Resource)
    allocated: Resource = field(default_factory=Resource)
    request: Resource = field(default_factory=Resource)
    elastic: Resource = field(default_factory=Resource)
    inqueue: dict[int, Resource] = field(default_factory=dict)

    @property
    def share(self) -> float:
        names = self.deserved.names()
        return max([0.0, *(share(self.allocated.get(name), self.deserved.get(name)) for name in names)])


def proportion(session: Session, arguments: Arguments) -> None:
    """Divides the cluster among queues by weight, within capability and above guarantee."""
    everything = total(node.allocatable for _, node in sorted(session.cluster.nodes.items()))
    lends = session.pains and not arguments.boolean("volcanoSharesEnable", False)
    guaranteed = {
        name: lending.reserved(session, queue, volcano=not lends) for name, queue in session.cluster.queues.items()
    }
    shares = _Lazy(lambda: opened())
    never: set[str] = set()
    excluding: set[str] = set()
    loans: list[lending.Loan] = []
    attainable: list[Resource] = []

    def opened() -> dict[str, _Share]:
        """[differs] What no node can take is no request. Predicates are registered later than this."""
        if lends:
            never.update(lending.never_placed(session))
            excluding.update(j.queue for j in session.cluster.jobs.values() if any(t.key in never for t in j.tasks))
        found = _shares(session, everything, never, guaranteed, counted)
        divide(found, everything)
        attainable.append(lending.attainable(session, [attr.allocated for attr in found.values()]))
        return found

    def divide(attrs: dict[str, _Share], whole: Resource) -> None:
        if lends:
            lending.divide_all(attrs, whole, guaranteed, _divide)
        else:
            _divide(attrs, whole)

    def order(left: Queue, right: Queue) -> int:
        if left.priority != right.priority:
            return right.priority - left.priority
        mine, other = shares[left.name].share, shares[right.name].share
        return (mine > other) - (mine < other)

    def allocatable(queue: Queue, task: Task) -> bool:
        future = shares[queue.name].allocated.clone().add(task.request)
        most = shares[queue.name].most_pods
        if session.pains and most is not None and future.get(PODS) > most:
            return False
        if not queue.open:
            return False
        if lends and task.key in never:
            return not future.exceeding_requested(_limit(shares[queue.name]), task.request)
        if loans:
            if future.exceeding_requested(_limit(shares[queue.name]), task.request):
                return False
            if not loans[-1].permits(queue, task):
                return False
        elif not preemptive(queue, task):
            return False
        held = {name: attr.allocated for name, attr in shares.items()}
        return not lends or not lending.takes_guaranteed(guaranteed, held, queue.name, task.request, attainable[0])

    def preemptive(queue: Queue, task: Task) -> bool:
        future = shares[queue.name].allocated.clone().add(task.request)
        most = shares[queue.name].most_pods
        if session.pains and most is not None and future.get(PODS) > most:
            return False
        return queue.open and not future.exceeding_requested(shares[queue.name].deserved, task.request)

    def overused(queue: Queue) -> bool:
        if loans or queue.name in excluding:
            return False
        return shares[queue.name].deserved.fits(shares[queue.name].allocated)

    def lend(begins: bool) -> bool:
        loans.clear()
        if not begins or not lends:
            return False
        unused = {}
        for name, part in parts(frozenset()).items():
            left = shares[name].allocated
            names = lending.names_of([part, left])
            unused[name] = {each: max(int(part.get(each) // 1) - int(left.get(each)), 0) for each in names}
        if not any(max(node.future_idle.get(each), 0) for node in session.node_order for each in everything.names()):
            return False
        loans.append(lending.Loan(free, lending.usable(session, unused, never)))
        return True

    def free() -> Resource:
        return reclaims._reachable(session, Resource(), frozenset())

    def enqueueable(job: Job) -> int:
        attr = shares[job.queue]
        if not session.cluster.queues[job.queue].open:
            job.notes["gate"] = {"proportion": ["queue is not open"]}
            return REJECT
        least = job.priority if session.pains else min([job.priority, *attr.inqueue])
        ahead = total(amount for priority, amount in sorted(attr.inqueue.items()) if priority >= least)
        wanted = job.min_request.add(attr.allocated).add(ahead).sub(attr.elastic)
        wanted.sub(lending.freed(session, job, arguments, within=True))
        short = wanted.exceeding_requested(attr.real_capability, job.min_request)
        if short:
            job.notes["gate"] = {"proportion": short}
        return REJECT if short else PERMIT

    def enqueued(job: Job) -> None:
        if job.min_resources is not None:
            _reserve(shares[job.queue], job, counted(job, job.min_request))

    def counted(job: Job, amount: Resource) -> Resource:
        return lending.reserving(session, job, amount) if lends else job.without_gated(amount)

    def divided(total: Resource, has: dict[str, Resource], wants: dict[str, Resource]) -> dict[str, Resource]:
        """What queues get of a total that leaves out what they have and want elsewhere."""
        fresh = {
            name: replace(
                attr,
                deserved=Resource(),
                request=attr.request.clone().sub(has[name]).sub(wants[name]),
                real_capability=_less(attr.real_capability, has[name]),
                guarantee=attr.guarantee.minus_floor(has[name]),
            )
            for name, attr in shares.items()
        }
        divide(fresh, total)
        return {name: attr.deserved for name, attr in fresh.items()}

    def surplus(job: Job) -> dict[str, Resource] | None:
        """What queues hold above their parts if the job's asks for all that it may have; None for one above its own."""
        reachable = reclaims._reachable(session, total(attr.allocated for attr in shares.values()), frozenset())
        reachable.limit_to(everything, missing_is_unlimited=False)
        fresh = {
            name: replace(attr, deserved=Resource(), request=attr.request.clone()) for name, attr in shares.items()
        }
        fresh[job.queue].request = shares[job.queue].real_capability.clone()
        divide(fresh, reachable)
        mine, part = shares[job.queue], fresh[job.queue].deserved
        ahead = total(amount for priority, amount in sorted(mine.inqueue.items()) if priority >= job.priority)
        after = job.min_request.add(mine.allocated).add(ahead)
        for name in lending.names_of([job.min_request]):
            if job.min_request.get(name) > 0 and after.get(name) >= part.get(name) + reclaims.TOLERANCE:
                return None
        return {name: attr.allocated.minus_floor(fresh[name].deserved) for name, attr in shares.items()}

    def allocate(task: Task) -> None:
        shares[session.cluster.jobs[task.job].queue].allocated.add(task.request)

    def deallocate(task: Task) -> None:
        shares[session.cluster.jobs[task.job].queue].allocated.sub(task.request)

    session.register("queueOrder", "proportion", order)
    session.register("overused", "proportion", overused)
    session.register("lend", "proportion", lend)
    session.register("allocatable", "proportion", allocatable)
    session.register("jobEnqueueable", "proportion", enqueueable)
    session.register("jobEnqueued", "proportion", enqueued)
    session.register("preemptive", "proportion", preemptive)
    session.register("surplus", "proportion", surplus)
    parts = reclaims.proportion(session, shares, divided, everything, never)
    session.handlers.append((allocate, deallocate))


def _limit(attr: _Share) -> Resource:
    """What a queue may have at all; a scalar that its capability does not name is unlimited."""
    return attr.real_capability


def _only_terminating(job: Job) -> bool:
    """Whether pods that still end on their nodes fill the gang, with nothing left to place."""
    ending = [task for task in job.having("Releasing") if task.node]
    if not ending or job.having("Pending", "Pipelined"):
        return False
    return len(job.having("Running", "Bound", "Failed", "Succeeded")) + len(ending) >= job.min_available


class _Lazy(dict[str, "_Share"]):
    """Shares that are made when one is first asked for."""

    def __init__(self, make: Callable[[], dict[str, _Share]]) -> None:
        super().__init__()
        self._make: Callable[[], dict[str, _Share]] | None = make

    def _fill(self) -> None:
        make, self._make = self._make, None
        if make is not None:
            self.update(make())

    def __getitem__(self, name: str) -> _Share:
        self._fill()
        return super().__getitem__(name)

    def items(self) -> ItemsView[str, _Share]:
        self._fill()
        return super().items()

    def values(self) -> ValuesView[_Share]:
        self._fill()
        return super().values()

    def __iter__(self) -> Iterator[str]:
        self._fill()
        return super().__iter__()


def _shares(
    session: Session,
    everything: Resource,
    never: set[str],
    guarantees: dict[str, Resource],
    counted: Callable[[Job, Resource], Resource],
) -> dict[str, _Share]:
    """A share for each queue that has a job."""
    guaranteed = total(guarantees[name] for name in sorted(guarantees))
    shares: dict[str, _Share] = {}
    for _, job in sorted(session.cluster.jobs.items()):
        if job.queue not in shares:
            queue = session.cluster.queues[job.queue]
            guarantee = guarantees[job.queue].clone()
            real = everything.minus_floor(guaranteed).add(guarantee)
            if queue.capability is not None:
                limit = queue.capability.clone()
                limit.cpu, limit.memory = limit.cpu or UNLIMITED, limit.memory or UNLIMITED
                real.limit_to(limit, missing_is_unlimited=True)
            limits = (queue.capability.scalars or {}) if queue.capability is not None else {}
            shares[job.queue] = _Share(queue.weight, real, guarantee, limits.get(PODS))
        attr = shares[job.queue]
        attr.allocated.add(job.allocated)
        attr.request.add(job.allocated)
        for task in job.having("Pending"):
            attr.request.add(Resource() if task.key in never else task.request)
        if job.min_resources is not None and (
            job.phase == "Inqueue" or (job.phase == "Running" and len(job.having(*ALLOCATED)) >= job.min_available)
        ):
            _reserve(attr, job, counted(job, job.outstanding()))
        attr.elastic.add(job.allocated.minus_floor(job.min_request))
    return shares


def _less(limit: Resource, has: Resource) -> Resource:
    """A limit beside what is had; a scalar that it does not name is unlimited."""
    scalars = None if limit.scalars is None else {name: v - has.get(name) for name, v in limit.scalars.items()}
    return Resource(limit.cpu - has.cpu, limit.memory - has.memory, scalars)


def _reserve(attr: _Share, job: Job, amount: Resource) -> None:
    """Note what an admitted job may still take, by its priority."""
    attr.inqueue.setdefault(job.priority, Resource()).add(amount)


def _divide(shares: dict[str, _Share], everything: Resource) -> None:
    """Hand out the cluster by weight, round by round, until all are met or nothing moves."""
    remaining, met = everything.clone(), set[str]()
    while True:
        weight = sum(attr.weight for name, attr in shares.items() if name not in met)
        if weight == 0:
            return
        before, more, less = remaining.clone(), Resource(), Resource()
        for name, attr in sorted(shares.items()):
            if name in met:
                continue
            old = attr.deserved.clone()
            attr.deserved.add(remaining.clone().multiply(attr.weight / weight))
            attr.deserved.limit_to(attr.real_capability, missing_is_unlimited=True)
            attr.deserved.limit_to(attr.request, missing_is_unlimited=False)
            attr.deserved = maximum(attr.deserved, attr.guarantee)
            if attr.request.fits(attr.deserved) or attr.deserved.same_as(old):
                met.add(name)
            more.add(attr.deserved.minus_floor(old))
            less.add(old.minus_floor(attr.deserved))
        remaining = remaining.clone().add(less).minus_floor(more)
        if remaining.is_empty() or remaining.same_as(before):
            return
