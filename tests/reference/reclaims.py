"""Taking back: the action reclaim, and whom proportion, capacity and drf's hierarchy let go for another queue."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from tests.reference import evictions
from tests.reference.evictions import GANGS, Allowance, Each, Gang
from tests.reference.immunity import is_immune
from tests.reference.model import ALLOCATED, Job, Node, Queue, Task, total
from tests.reference.session import PredicateFailure, Session, Statement
from tests.reference.values import CPU, MEMORY, PODS, Resource

if TYPE_CHECKING:
    from tests.reference.plugins import _Share
    from tests.reference.queues import _Account

POINT = "reclaimable"
TOLERANCE = 0.1


def _register(session: Session, plugin: str, ask: Callable[[Task], Allowance]) -> None:
    """Ask a plugin about reclaim, also where the tier of others decides."""
    session.register(POINT, plugin, ask)
    session.register(f"unprotected {POINT}", plugin, ask)


# -- proportion -------------------------------------------------------------------


class _AbovePart(Allowance):
    """Tasks of queues while these hold more of anything than their part."""

    def __init__(self, session: Session, held: dict[str, Resource], parts: dict[str, Resource]) -> None:
        self._session, self._held, self._parts = session, held, parts

    def _queue(self, task: Task) -> str:
        return self._session.cluster.jobs[task.job].queue

    def permits(self, task: Task) -> bool:
        return not self._held[self._queue(task)].fits(self._parts[self._queue(task)])

    def spend(self, task: Task) -> None:
        self._held[self._queue(task)].sub(task.request)


def proportion(
    session: Session,
    shares: dict[str, _Share],
    divide: Callable[[Resource, dict[str, Resource], dict[str, Resource]], dict[str, Resource]],
    everything: Resource,
    never: set[str],
) -> Callable[[frozenset[str]], dict[str, Resource]]:
    """Queues give what they hold above their part of what our pods can have, to those that stay within theirs. What
    counts is what they have and want on other nodes than those that others of our pods can have and the asker cannot.
    """
    known: dict[frozenset[str], dict[str, Resource]] = {}

    def elsewhere(beyond: frozenset[str]) -> dict[str, Resource]:
        """What each queue holds on some nodes."""
        found = {name: Resource() for name in shares}
        for job in session.cluster.jobs.values():
            for task in job.having(*ALLOCATED, "Pipelined"):
                if task.node in beyond:
                    found[job.queue].add(task.request)
        return found

    def parts(beyond: frozenset[str]) -> dict[str, Resource]:
        if beyond not in known:
            has = elsewhere(beyond)
            held = total(attr.allocated.clone().sub(has[name]) for name, attr in sorted(shares.items()))
            reachable = _reachable(session, held, beyond)
            reachable.limit_to(everything, missing_is_unlimited=False)
            known[beyond] = {
                name: part.limit_to(shares[name].deserved.minus_floor(has[name]), missing_is_unlimited=False)
                for name, part in divide(
                    reachable, has, _wanted_elsewhere(session, beyond, list(shares), never)
                ).items()
            }
        return known[beyond]

    def ask(asker: Task) -> Allowance:
        queue, beyond = session.cluster.jobs[asker.job].queue, _beyond(session, asker)
        found, has = parts(beyond), elsewhere(beyond)
        held = {name: attr.allocated.clone().sub(has[name]) for name, attr in shares.items()}
        for name in asker.request.names():
            if name != PODS and held[queue].get(name) + asker.request.get(name) >= found[queue].get(name) + TOLERANCE:
                return Each(lambda _: False)
        return _AbovePart(session, held, found)

    _register(session, "proportion", ask)
    return parts


def _suits(session: Session) -> Callable[[Task, Node], bool]:
    return session.points.get("suits", {}).get("predicates", lambda task, node: True)


def _ours(session: Session) -> list[Task]:
    tasks = [task for job in session.cluster.jobs.values() for task in job.tasks]
    return [task for task in tasks if task.status not in ("Succeeded", "Failed")]


def _beyond(session: Session, asker: Task) -> frozenset[str]:
    """The nodes that take others of our pods, and not the asker by a taint, or since they are cordoned."""
    suits, ours = _suits(session), _ours(session)
    admits = session.points.get("admits", {}).get("predicates", lambda task, node: True)
    return frozenset(
        name
        for name, node in session.cluster.nodes.items()
        if not admits(asker, node) and any(suits(task, node) for task in ours)
    )


def _takes(session: Session, task: Task, beyond: frozenset[str]) -> bool:
    """Whether a task has a node other than some, with any of all that it asks for."""
    suits = _suits(session)
    return any(
        suits(task, node) and all(node.allocatable.get(asked) > 0 for asked in task.request.names())
        for name, node in session.cluster.nodes.items()
        if name not in beyond
    )


def _wanted_elsewhere(
    session: Session, beyond: frozenset[str], queues: list[str], never: set[str]
) -> dict[str, Resource]:
    """What each queue's pods ask for that no other node takes."""
    found = {name: Resource() for name in queues}
    for job in session.cluster.jobs.values() if beyond else ():
        for task in job.having("Pending"):
            if task.key not in never and not _takes(session, task, beyond):
                found[job.queue].add(task.request)
    return found


def _reachable(session: Session, held: Resource, beyond: frozenset[str]) -> Resource:
    """What our pods hold, and of each node that takes one of them, but for some, what is free or being freed, in whole
    multiples of the largest amount that measures the requests of all that have a node there."""
    ours, suits = _ours(session), _suits(session)
    sizes = [task for task in ours if not beyond or _takes(session, task, beyond)]
    found = held.clone()
    for name, node in session.cluster.nodes.items():
        if name in beyond or not any(suits(task, node) for task in ours):
            continue
        room = node.future_idle
        for resource in (CPU, MEMORY, *(room.scalars or {})):
            free = int(max(room.get(resource), 0))
            grain = math.gcd(*(int(task.request.get(resource)) for task in sizes))
            _add(found, resource, free - free % grain if grain else free)
    return found


def _add(amounts: Resource, name: str, value: float) -> None:
    if name == CPU:
        amounts.cpu += value
    elif name == MEMORY:
        amounts.memory += value
    else:
        amounts.add_scalar(name, value)


# -- capacity ---------------------------------------------------------------------


class _Borrowed(Allowance):
    """Tasks that hold some of what the asker lacks, of queues that hold more of it than they deserve, down to what they
    and those above them are guaranteed."""

    def __init__(self, session: Session, accounts: dict[str, _Account], asker: Task | Gang, level: int) -> None:
        self._session, self._asker, self._level = session, asker, level
        self._accounts = accounts
        self._mine = accounts[session.cluster.jobs[asker.job].queue]
        self._left = {name: account.allocated.clone() for name, account in accounts.items()}
        self._full = next((above for above in self._mine.chain()[1:] if self._is_full(above)), None)

    def _is_full(self, account: _Account) -> bool:
        asks = self._asker.request
        return any(account.allocated.get(n) + asks.get(n) > account.limit(n) for n in asks.names())

    def _helps(self, asker: Task, task: Task) -> bool:
        """Whether a task holds some of what its node lacks for the asker."""
        asks, room = asker.request, self._session.cluster.nodes[task.node].future_idle
        short = [n for n in dict.fromkeys((CPU, MEMORY, *asks.names())) if asks.get(n) > room.get(n)]
        return any(task.request.get(name) > 0 for name in short or [name for name in asks.names() if name != PODS])

    def permits(self, task: Task) -> bool:
        holds = task.request
        if isinstance(self._asker, Task) and not self._helps(self._asker, task):
            return False
        account = self._accounts[self._session.cluster.jobs[task.job].queue]
        if self._full is not None and self._full not in account.chain():
            return False
        if any(self._left[account.name].get(n) - holds.get(n) < v for n, v in account.guarantee.items() if v > 0):
            return False
        if not deserves_some(account, task):
            if self._is_related(account) and not deserves_some(self._mine, self._asker):
                return False
        elif not self._exceeds(account, task):
            return False
        return all(self._agrees(above, depth, task) for depth, above in enumerate(account.chain()) if depth)

    def _exceeds(self, account: _Account, task: Task) -> bool:
        """Whether a queue has more than it deserves of something that a task holds; what is nowhere named is not
        looked at, scalars named as zero are deserved none of."""
        spec = account.queue.manifest.get("spec") or {}
        named = {*(spec.get("deserved") or {}), *((spec.get("guarantee") or {}).get("resource") or {})}
        if account.name == "root":
            named = {name for name, value in account.deserved.items() if value > 0}
        return any(
            self._left[account.name].get(name) > account.deserved.get(name, 0)
            for name in task.request.names()
            if name != PODS and (account.deserved.get(name, 0) > 0 or (name in named and name not in (CPU, MEMORY)))
        )

    def _is_related(self, account: _Account) -> bool:
        """Whether both are below something under the root that is within reach, or that is guaranteed anything."""
        reach = self._mine.chain()[1 : 1 + self._level]
        for depth, above in enumerate(account.chain()):
            if depth == 0 or above.name == "root":
                continue
            if depth <= self._level and above in reach:
                return True
            if _is_guaranteed(above) and above in self._mine.chain()[1:]:
                return True
        return False

    def _agrees(self, above: _Account, depth: int, task: Task) -> bool:
        """What is above the victim's queue, and not above the asker's, keeps what it deserves where it is within reach,
        and what it is guaranteed wherever it is."""
        if above.name == "root":
            return True
        mine = self._mine.chain()
        beside = depth <= self._level and not (depth < len(mine) and mine[depth] is above)
        if beside and deserves_some(above, task) and not self._exceeds(above, task):
            return False
        if above in mine:
            return True
        left = self._left[above.name]
        return not any(
            task.request.get(name) > 0 and left.get(name) - task.request.get(name) < value
            for name, value in above.guarantee.items()
            if value > 0
        )

    def spend(self, task: Task) -> None:
        for account in self._accounts[self._session.cluster.jobs[task.job].queue].chain():
            self._left[account.name].sub(task.request)


def deserves_some(account: _Account, task: Task | Gang) -> bool:
    return any(account.deserved.get(name, 0) > 0 for name in task.request.names())


def _is_guaranteed(account: _Account) -> bool:
    return any(value > 0 for value in account.guarantee.values())


def capacity(session: Session, accounts: dict[str, _Account], level: int, refuses: Callable[[Queue], bool]) -> None:
    """Queues take back what they deserve, from those that hold more; what is guaranteed above them comes back too."""

    def preemptive(queue: Queue, task: Task) -> bool:
        if refuses(queue):
            return False
        mine, asks = accounts[queue.name], task.request
        names = [name for name in asks.names() if name != PODS]
        if any(mine.allocated.get(n) + asks.get(n) > mine.real.get(n, math.inf) for n in names):
            return False
        for depth, account in enumerate(mine.chain()):
            if depth and account.name == "root":
                continue
            due = account.deserved if depth <= level else account.guarantee
            if any(account.allocated.get(n) + asks.get(n) <= due.get(n, 0) for n in names):
                return True
        return False

    def nearer(queue: Queue, asking: Queue) -> int:
        """The more they are below together, the sooner it gives."""
        mine = accounts[asking.name].chain()[1:]
        return -sum(above in mine for above in accounts[queue.name].chain()[1:])

    session.register("preemptive", "capacity", preemptive)
    session.register("victimQueueOrder", "capacity", nearer)

    def borrowed_for_gang(gang: Gang) -> Allowance:
        return _Borrowed(session, accounts, gang, level) if gang.reclaims else Allowance()

    _register(session, "capacity", lambda asker: _Borrowed(session, accounts, asker, level))
    for point in (GANGS, f"unprotected {GANGS}"):
        session.register(point, "capacity", borrowed_for_gang)


# -- the action -------------------------------------------------------------------


def reclaim(session: Session) -> None:
    """Starving jobs, queue by queue, wait where pods of other queues go."""
    for queue, job in evictions.in_turn(session, overused_too=False):
        _reclaim(session, queue, job)


def _reclaim(session: Session, queue: Queue, job: Job) -> None:
    statement = Statement(session)

    def take(task: Task) -> None:
        if task.spec.get("preemptionPolicy") != "Never" and _may_reclaim(session, queue, task):
            _take(session, queue, statement, task)

    evictions.make_wait(session, job, statement, take)


def _may_reclaim(session: Session, queue: Queue, task: Task) -> bool:
    try:
        session.pre_predicate(task)
    except PredicateFailure:
        return False
    return all(function(queue, task) for function in session.functions("preemptive"))


def _take(session: Session, queue: Queue, statement: Statement, task: Task) -> None:
    """Let a task wait where it has room already, else on the first node on which enough others go."""
    if session.allocatable(queue, task):
        vacant = session.places_to_wait(task)
        if vacant:
            statement.pipeline(task, session.best(task, vacant))
            return
    start = len(statement.steps)
    for node in session.may_be_freed(session.node_order, task):
        if _free(session, queue, statement, task, node):
            if statement.pipeline(task, node):
                return
            statement.undo(start)


def _free(session: Session, queue: Queue, statement: Statement, task: Task, node: Node) -> bool:
    """Evict the fewest on a node that let the task fit there; nobody where all of them would not do."""
    held = [other for other in node.pods() if other.status in ("Bound", "Running")]
    offered = [other for other in held if _is_offered(session, queue, other)]
    offered = [other for other in offered if other.best_effort or not task.best_effort]
    offered = [other for other in offered if not is_immune(session, other, session.cluster.jobs[task.job])]
    if not offered:
        return False
    offered = _in_victim_order(session, queue, offered)
    going = evictions._who_goes(task, node.future_idle, lambda: evictions.leave(session, POINT, task, offered))
    start = len(statement.steps)
    for count, victim in enumerate(going, 1):
        statement.evict(victim)
        if evictions._fits(session, queue, task, node):
            evictions._spare(session, queue, statement, start, task, node, going[:count])
            return True
    statement.undo(start)
    return False


def _is_offered(session: Session, queue: Queue, task: Task) -> bool:
    job = session.cluster.jobs.get(task.job)
    if job is None or job.queue == queue.name or not evictions._preemptable(task):
        return False
    spec = session.cluster.queues[job.queue].manifest.get("spec") or {}
    return bool(spec.get("reclaimable") is not False)


def _in_victim_order(session: Session, queue: Queue, tasks: Iterable[Task]) -> list[Task]:
    """Queues as plugins say, else the one that is served last first; in each the last job, in that the last task."""
    jobs, order = session.cluster.jobs, session.functions("victimQueueOrder")
    ordered = evictions._in_victim_order(session, list(tasks))
    names = sorted({jobs[task.job].queue for task in ordered})
    queues = session.queues_in_order([session.cluster.queues[name] for name in names])
    queues.reverse()
    queues.sort(key=lambda other: [function(other, queue) for function in order])
    return [task for other in queues for task in ordered if jobs[task.job].queue == other.name]
