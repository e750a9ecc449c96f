"""Plugins of queues beyond the default ones: capacity, flat and as a tree, and drf's hierarchy."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial

from tests.reference import evictions, lending, reclaims
from tests.reference.config import Arguments
from tests.reference.model import ALLOCATED, QUEUE_GATE, Job, Queue, Task, annotations_of, quantities, total
from tests.reference.session import PERMIT, REJECT, Session
from tests.reference.values import CPU, MEMORY, PODS, Resource

Amounts = dict[str, float]
"""By the resource's name; what is missing is 0, in a capability unlimited."""


def _amounts(items: Resource) -> Amounts:
    found = {CPU: items.cpu, MEMORY: items.memory, **(items.scalars or {})}
    return {name: value for name, value in found.items() if value}


def _listed(raw: dict[str, str] | None) -> Amounts:
    """A resource list, zeros included."""
    items = Resource.of(quantities(raw))
    return {name: items.get(name) for name in (raw or {}) if name in (CPU, MEMORY) or name in (items.scalars or {})}


@dataclass(eq=False)
class _Account:
    """One queue's limits, and what it and the queues below it have."""

    queue: Queue
    guarantee: Amounts
    deserved: Amounts
    capability: Amounts
    kept: Amounts = field(default_factory=dict)
    real: Amounts = field(default_factory=dict)
    most_pods: float = math.inf
    parent: _Account | None = None
    children: list[_Account] = field(default_factory=list)
    problem: str = ""
    allocated: Resource = field(default_factory=Resource)
    elastic: Resource = field(default_factory=Resource)
    inqueue: list[tuple[int, Callable[[], Resource]]] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.queue.name

    def chain(self) -> list[_Account]:
        """Itself, its parent, and so on to the top."""
        return [self, *(self.parent.chain() if self.parent is not None else [])]

    def limit(self, name: str) -> float:
        return self.most_pods if name == PODS else self.real.get(name, math.inf)

    def rank(self) -> tuple[float, bool]:
        """Its share, and whether it deserves nothing; the smaller is served first."""
        due = {name: value for name, value in self.deserved.items() if value > 0}
        if not set(due) - {PODS}:
            return 1.0, True
        return max(self.allocated.get(name) / value for name, value in due.items()), False


def capacity(session: Session, arguments: Arguments) -> None:
    """Holds queues to the amounts in their spec, in a tree all the way up."""
    hierarchy = session.option("capacity").hierarchy
    as_volcano = not session.pains or arguments.boolean("volcanoSharesEnable", False)
    accounts = {name: _account(queue) for name, queue in sorted(session.cluster.queues.items())}
    everything = total(node.allocatable for _, node in sorted(session.cluster.nodes.items()))
    names = sorted(_every_name(session, accounts))
    if hierarchy:
        _grow(accounts)
        _check_tree(accounts, names)
    for _, job in sorted(session.cluster.jobs.items()):
        _load(accounts[job.queue], job, lambda job, amount: counted(job, amount))
    for account in accounts.values():
        account.kept = account.guarantee
        if not as_volcano:  # [differs] more than its capability is of no use to it
            most = account.capability
            account.kept = {name: min(value, most.get(name, math.inf)) for name, value in account.kept.items()}
        if not as_volcano and not _takes_work(account):
            account.kept = {name: min(value, account.allocated.get(name)) for name, value in account.kept.items()}
    if hierarchy:
        _limit_tree(accounts, everything, names)
    else:
        _limit_flat(accounts, everything, names)
    for account in accounts.values():
        account.most_pods = account.capability.get(PODS, math.inf)
        account.deserved = {n: max(account.deserved.get(n, 0), account.guarantee.get(n, 0)) for n in names}
    roots = [account.allocated for account in accounts.values() if account.parent is None]
    attainable = lending.attainable(session, roots)
    as_opened = {name: account.rank() for name, account in accounts.items()}

    def refuses(queue: Queue) -> bool:
        return not queue.open or (hierarchy and bool(accounts[queue.name].problem or accounts[queue.name].children))

    def order(left: Queue, right: Queue) -> int:
        mine, other = accounts[left.name], accounts[right.name]
        if left.priority != right.priority:
            return right.priority - left.priority
        if bool(mine.children) != bool(other.children):
            return 1 if mine.children else -1
        first, second = mine.rank(), other.rank()
        if hierarchy and not mine.children:
            for above, beside in zip(mine.chain()[::-1], other.chain()[::-1], strict=False):
                if above is not beside:
                    first = mine.rank() if above is mine else as_opened[above.name]
                    second = other.rank() if beside is other else as_opened[beside.name]
                    break
        return (first > second) - (first < second)

    def allocatable(queue: Queue, task: Task) -> bool:
        if refuses(queue):
            return False
        over = any(
            account.allocated.get(name) + let_through(account, task).get(name) + asks > account.limit(name)
            for account in accounts[queue.name].chain()
            for name, asks in _amounts(task.request).items()
        )
        return not over and (as_volcano or not takes_guaranteed(accounts[queue.name], task))

    def keeps(account: _Account, name: str, more: dict[str, float]) -> float:
        """What a queue and those below it hold or are guaranteed, with ``more`` by queue."""
        below = [child for child in accounts.values() if child.parent is account]
        own = account.allocated.get(name) - sum(child.allocated.get(name) for child in below)
        inside = own + more.get(account.name, 0) + sum(keeps(child, name, more) for child in below)
        return max(inside, 0 if account.name == "root" and hierarchy else account.kept.get(name, 0))

    def takes_guaranteed(account: _Account, task: Task) -> bool:
        """[differs] Whether others are guaranteed, together, what a task would take of any queue above it."""
        for name, asks in _amounts(task.request).items():
            for child in account.chain() if name != PODS else ():
                gains = keeps(child, name, {account.name: asks}) - keeps(child, name, {})
                if gains <= 0:
                    break
                most = attainable.get(name)
                if child.parent is not None:
                    most = min(most, child.parent.real.get(name, math.inf))
                rest = [other for other in accounts.values() if other.parent is child.parent]
                kept = [(keeps(other, name, {}), other.allocated.get(name)) for other in rest]
                idle = sum(keep - have for (keep, have), o in zip(kept, rest, strict=True) if o is not child)
                if child.parent is not None:
                    below = sum(other.allocated.get(name) for other in rest)
                    own = child.parent.allocated.get(name) - below
                else:
                    own = 0
                if idle > 0 and own + sum(keep for keep, _ in kept) + gains > most:
                    return True
        return False

    def let_through(account: _Account, task: Task) -> Resource:
        """What pods hold whose queue's gate is lifted and that wait for a node, but for the task itself."""
        return total(
            other.request
            for job in session.cluster.jobs.values()
            if account in accounts[job.queue].chain()
            for other in job.having("Pending")
            if other is not task and not other.gated and annotations_of(other.pod).get(QUEUE_GATE) == "true"
        )

    def enqueueable(job: Job) -> int:
        if refuses(session.cluster.queues[job.queue]):
            return REJECT
        if job.min_resources is None:
            return PERMIT
        chain = accounts[job.queue].chain()
        freed = lending.freed(session, job, arguments, within=True)
        for depth, account in enumerate(chain):
            for name, asks in _amounts(job.min_request).items():
                holds = account.allocated.get(name) + _ahead(account, job.priority, name) - account.elastic.get(name)
                holds -= freed.get(name)
                over = asks + holds > account.real.get(name, math.inf)
                if name != PODS and over and not comes_back(chain[:depth], account, job, name):
                    return REJECT
        return PERMIT

    def comes_back(below: list[_Account], full: _Account, job: Job, name: str) -> bool:
        """[pains] What a queue deserves or is guaranteed comes back to it by reclaim, though its parent is full."""
        for depth, entitled in enumerate(below):
            holds = job.min_request.get(name) + entitled.allocated.get(name) + _ahead(entitled, job.priority, name)
            due = entitled.deserved if depth == 0 else entitled.guarantee
            if holds <= due.get(name, 0) and holds <= full.real.get(name, math.inf):
                return True
        return False

    def surplus(job: Job) -> dict[str, Resource] | None:
        """What queues hold above what they deserve, or deserve nothing of; None where the job's has what is its due."""
        needed = _amounts(job.min_request)
        if not any(
            above.allocated.get(name) + _ahead(above, job.priority, name) + asks <= due.get(name, 0)
            for depth, above in enumerate(accounts[job.queue].chain())
            if above.name != "root" or depth == 0
            for due in (above.deserved if depth <= level else above.guarantee,)
            for name, asks in needed.items()
            if name != PODS
        ):
            return None
        return {name: _surplus_of(account) for name, account in accounts.items() if not account.children}

    def enqueued(job: Job) -> None:
        if job.min_resources is not None:
            for account in accounts[job.queue].chain():
                account.inqueue.append((job.priority, partial(counted, job, job.min_request)))

    def counted(job: Job, amount: Resource) -> Resource:
        return job.without_gated(amount) if as_volcano else lending.reserving(session, job, amount)

    def allocate(task: Task) -> None:
        for account in accounts[session.cluster.jobs[task.job].queue].chain():
            account.allocated.add(task.request)

    def deallocate(task: Task) -> None:
        for account in accounts[session.cluster.jobs[task.job].queue].chain():
            account.allocated.sub(task.request)

    session.register("queueOrder", "capacity", order)
    session.register("allocatable", "capacity", allocatable)
    session.register("jobEnqueueable", "capacity", enqueueable)
    session.register("jobEnqueued", "capacity", enqueued)
    session.register("surplus", "capacity", surplus)
    level = max(arguments.integer("ancestorReclaimLevel", 0), 0) if hierarchy else 0
    reclaims.capacity(session, accounts, level, refuses)
    session.handlers.append((allocate, deallocate))


def _surplus_of(account: _Account) -> Resource:
    """All that it deserves nothing of, and of the rest what is above; nothing where it is above in none that it has."""
    spec = account.queue.manifest.get("spec") or {}
    named = {*(spec.get("deserved") or {}), *((spec.get("guarantee") or {}).get("resource") or {})}
    claims = {
        name: value
        for name, value in account.deserved.items()
        if name != PODS and (value > 0 or (name in named and name not in (CPU, MEMORY)))
    }
    held = {name: account.allocated.get(name) for name in {*claims, *account.allocated.names()}}
    if any(held[name] for name in claims) and all(held[name] <= value for name, value in claims.items()):
        return Resource()
    scalars = {name: value for name, value in claims.items() if name not in (CPU, MEMORY)}
    return account.allocated.minus_floor(Resource(claims.get(CPU, 0), claims.get(MEMORY, 0), scalars))


def _takes_work(account: _Account) -> bool:
    """[differs] Whether it, or a queue below it, could get a placement."""
    if account.children:
        return any(_takes_work(child) for child in account.children)
    return account.queue.open and not account.problem


def _account(queue: Queue) -> _Account:
    spec = queue.manifest.get("spec") or {}
    capability = _listed(spec.get("capability"))
    for name in (CPU, MEMORY):
        if capability.get(name, 0) <= 0:
            capability.pop(name, None)
    guarantee = _listed((spec.get("guarantee") or {}).get("resource"))
    return _Account(queue, guarantee, _listed(spec.get("deserved")), capability)


def _every_name(session: Session, accounts: dict[str, _Account]) -> set[str]:
    found = {CPU, MEMORY, PODS}
    for node in session.cluster.nodes.values():
        found.update(node.allocatable.scalars or {})
    for task in session.cluster.tasks.values():
        found.update(task.request.scalars or {})
    for job in session.cluster.jobs.values():
        found.update(_amounts(job.min_request))
    for account in accounts.values():
        found.update(account.guarantee, account.deserved, account.capability)
    return found


def _limit_flat(accounts: dict[str, _Account], everything: Resource, names: list[str]) -> None:
    """What others' guarantees leave of the cluster, up to the capability; nobody deserves more."""
    for account in accounts.values():
        for name in names:
            kept = sum(other.kept.get(name, 0) for other in accounts.values())
            own = account.kept.get(name, 0)
            left = max(everything.get(name) - kept, 0) + own
            account.real[name] = min(left, account.capability.get(name, math.inf))
    for account in accounts.values():
        account.deserved = {name: min(value, account.real[name]) for name, value in account.deserved.items()}


def _grow(accounts: dict[str, _Account]) -> None:
    """Give each account its parent; one without a parent that is there, or in a circle, counts below the root."""
    above: dict[str, str] = {}
    for name, account in accounts.items():
        if name == "root":
            continue
        above[name] = (account.queue.manifest.get("spec") or {}).get("parent") or "root"
        if above[name] not in accounts and above[name] != "root":
            account.problem = "no such parent"
    for name, account in accounts.items():
        seen, place = [name], above.get(name)
        while place is not None and place not in seen:
            seen.append(place)
            place = above.get(place)
        if place == name:
            account.problem = "a circle"
    for name, account in accounts.items():
        if name != "root":
            account.parent = accounts.get("root" if account.problem else above[name])
            if account.parent is not None:
                account.parent.children.append(account)


def _downwards(accounts: dict[str, _Account]) -> list[_Account]:
    level = [account for account in accounts.values() if account.parent is None]
    ordered = []
    while level:
        ordered += level
        level = [child for account in level for child in account.children]
    return ordered


def _check_tree(accounts: dict[str, _Account], names: list[str]) -> None:
    """Capability from the top down; what has impossible sums takes nothing, nor what is below."""
    for account in _downwards(accounts):
        parent = account.parent
        over = parent is not None and any(
            account.capability.get(name, 0) > parent.capability.get(name, math.inf) for name in names
        )
        if parent is not None:
            account.capability = {**parent.capability, **account.capability}
        if account.name == "root":
            account.guarantee = _sum([child.guarantee for child in account.children])
            account.deserved = _sum([_due(child) for child in account.children])
        elif not over and account.children:
            over = _exceeds(_sum([_due(child) for child in account.children]), _due(account)) or _exceeds(
                _sum([child.guarantee for child in account.children]), account.guarantee
            )
        if over and not account.problem:
            account.problem = "impossible sums"
    for account in _downwards(accounts):
        if account.parent is not None and account.parent.problem and not account.problem:
            account.problem = "its parent"


def _limit_tree(accounts: dict[str, _Account], everything: Resource, names: list[str]) -> None:
    """Real capability from the top down."""
    for account in _downwards(accounts):
        if account.parent is None:
            account.real = dict(account.capability)
        kept = _sum([child.kept for child in account.children])
        for child in account.children:
            for name in names:
                most, own = account.real.get(name, math.inf), child.kept.get(name, 0)
                if account.name == "root" and kept.get(name, 0) > own:
                    most = min(most, everything.get(name))
                limit = child.capability.get(name, account.capability.get(name, math.inf))
                child.real[name] = min(max(most - kept.get(name, 0), 0) + own, limit)


def _due(account: _Account) -> Amounts:
    names = {*account.deserved, *account.guarantee}
    return {name: max(account.deserved.get(name, 0), account.guarantee.get(name, 0)) for name in sorted(names)}


def _sum(parts: list[Amounts]) -> Amounts:
    found: Amounts = {}
    for part in parts:
        for name, value in part.items():
            found[name] = found.get(name, 0) + value
    return found


def _exceeds(parts: Amounts, whole: Amounts) -> bool:
    return any(value > whole.get(name, 0) for name, value in parts.items())


def _ahead(account: _Account, priority: int, name: str) -> float:
    return sum(amount().get(name) for known, amount in account.inqueue if known >= priority)


def _load(account: _Account, job: Job, counted: Callable[[Job, Resource], Resource]) -> None:
    has = job.allocated
    runs = job.phase == "Running" and len(job.having(*ALLOCATED)) >= job.min_available
    for above in account.chain():
        above.allocated.add(has)
        above.elastic.add(has.minus_floor(job.min_request))
        if job.min_resources is not None and (job.phase == "Inqueue" or runs):
            above.inqueue.append((job.priority, partial(counted, job, job.outstanding())))


# -- drf's hierarchy --------------------------------------------------------------

_ONE, _GRAIN = 1 << 44, 1 << 10
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


@dataclass(eq=False)
class _Place:
    """A place in the tree of queues; jobs are at its leaves."""

    name: str
    weight: float
    below: dict[str, _Place] = field(default_factory=dict)
    jobs: list[Job] = field(default_factory=list)


State = tuple[dict[str, int], int, bool]
"""Of a place or a job: shares by resource in parts of ``_ONE``, the largest of them, whether it is saturated."""


def hierarchical_drf(session: Session, arguments: Arguments) -> None:
    """Queues along the tree that their annotations name: not saturated ones first, then the smaller share by weight."""
    everything = total(node.allocatable for _, node in sorted(session.cluster.nodes.items()))
    whole = {name: everything.get(name) for name in everything.names()}
    paths = _tree(session)
    asked = {
        key: total(task.request for task in job.tasks if task.status not in ("Succeeded", "Failed"))
        for key, job in session.cluster.jobs.items()
    }
    for _, job in sorted(session.cluster.jobs.items()):
        if _amounts(asked[job.key]):
            paths[job.queue][-1].jobs.append(job)

    moved: dict[str, Resource] = {}
    """What jobs are taken to hold beside what they do."""

    def held(job: Job) -> Resource:
        return total([moved[job.key]] if job.key in moved else []).add(
            total(task.request for task in job.having(*ALLOCATED, "Pipelined"))
        )

    def job_state(job: Job, full: set[str]) -> State:
        has, wants = held(job), asked[job.key]
        parts = {name: round(has.get(name) / most * _ONE) for name, most in whole.items()}
        saturated = any(
            wants.get(name) > 0 and has.get(name) > 0 and (name in full or has.get(name) >= wants.get(name))
            for name in _amounts(has)
        )
        return parts, max([0, *parts.values()]), saturated

    def state(place: _Place, full: set[str]) -> State:
        children = [state(child, full) for child in place.below.values()] + [job_state(j, full) for j in place.jobs]
        rising = [share for _, share, saturated in children if not saturated and share]
        least = min([*rising, _ONE])
        parts = {}
        for name in whole:
            kept = sum(part[name] for part, _, saturated in children if saturated)
            scaled = sum(
                round(Fraction(part[name], share) * _ONE)
                for part, share, saturated in children
                if not saturated and share
            )
            parts[name] = kept + (least * scaled + _ONE // 2) // _ONE
        return parts, max([0, *parts.values()]), all(saturated for _, _, saturated in children)

    def standing(queue: Queue) -> list[tuple[bool, int]]:
        used = total(held(job) for _, job in sorted(session.cluster.jobs.items()))
        full = {name for name in {*whole, *_amounts(used)} if used.get(name) >= everything.get(name)}
        found = []
        for place in paths[queue.name]:
            _, share, saturated = state(place, full)
            found.append((saturated, round(share / place.weight / _GRAIN)))
        return found

    def order(left: Queue, right: Queue) -> int:
        mine, other = standing(left), standing(right)
        depth = min(len(mine), len(other))
        return (mine[:depth] > other[:depth]) - (mine[:depth] < other[:depth])

    def comes_after(asker: Task, task: Task) -> bool:
        """Whether a task's queue without it would come after the asker's with the asker."""
        moved[asker.job], moved[task.job] = asker.request, task.request.clone().multiply(-1)
        jobs, queues = session.cluster.jobs, session.cluster.queues
        found = order(queues[jobs[asker.job].queue], queues[jobs[task.job].queue]) < 0
        moved.clear()
        return found

    session.register("queueOrder", "drf", order)
    session.register("reclaimable", "drf", lambda asker: evictions.Each(lambda task: comes_after(asker, task)))


def _tree(session: Session) -> dict[str, list[_Place]]:
    """Each queue's places from below the root down to where its jobs are."""
    root = _Place("root", 1.0)
    paths: dict[str, list[_Place]] = {}
    for name, queue in sorted(session.cluster.queues.items()):
        marks = annotations_of(queue.manifest)
        text, weights = marks.get("volcano.sh/hierarchy", ""), marks.get("volcano.sh/hierarchy-weights", "").split("/")
        place = root
        path: list[_Place] = []
        for depth, step in enumerate(text.split("/")[1:] if text else [], 1):
            weight = _weight(weights[depth]) if depth < len(weights) else 1.0
            place = place.below.setdefault(step, _Place(step, weight))
            path.append(place)
        paths[name] = path
    inner = {name: not path or bool(path[-1].below) for name, path in paths.items()}
    for name, path in sorted(paths.items()):
        if inner[name]:
            above = path[-1] if path else root
            path.append(above.below.setdefault(f"queue/{name}", _Place(f"queue/{name}", 1.0)))
    return paths


def _weight(text: str) -> float:
    weight = float(text) if _NUMBER.fullmatch(text) else 1.0
    return weight if 1 <= weight < math.inf else 1.0
