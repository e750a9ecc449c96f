"""Place a job, or a sub-job, in the best of the domains that its plugins offer, with or without evictions.

Domains come in rows, the closest first. Each domain of a row is tried from the same save point, and the best one that
works is used. A domain with too little capacity on nodes whose labels and taints suit the tasks, by counting, is not
tried. Which domains there are is the plugins' decision (``hyper_node_gradient``). If they limit a job to none, the
whole cluster is its only domain. Source: Volcano ``actions/allocate`` (``allocateForJob``, ``allocateForSubJob``) and
``actions/utils``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from vcd.model.events import Waiting
from vcd.model.reasons import Cause, ReasonCode
from vcd.scheduling.framework.framework import Framework
from vcd.scheduling.session.nodes import Ints
from vcd.scheduling.session.statement import Statement
from vcd.scheduling.session.views import Job, SubJob, Task
from vcd.scheduling.topology.domain_scope import scope_of
from vcd.scheduling.topology.tree import Domain, DomainRow
from vcd.state.node_facts import Mask

NO_DOMAIN = ReasonCode(
    "topology-no-domain",
    Cause.FRAGMENTATION,
    "no allowed HyperNode fits: {domain} takes {fitting} of {needed} pods",
    mend="raise highestTierAllowed, or free capacity in one HyperNode",
    nodes_help=True,
)

_TOO_LITTLE = ReasonCode(
    "topology-too-little",
    Cause.CLUSTER_FULL,
    "all nodes together take {fitting} of the {needed} pods that it needs",
    nodes_help=True,
)

R = TypeVar("R")
Unit = Job | SubJob


class Attempt(NamedTuple, Generic[R]):
    """What an attempt left: the caller's result, and the points of the domains of its sub-jobs."""

    result: R
    points: float = 0.0


class Share(NamedTuple):
    """How many tasks a part of a domain gets."""

    domain: Domain
    tasks: int


class _Candidate(NamedTuple):
    """A domain, how many of the unit's tasks are nominated to its nodes, and how many it can take at most."""

    domain: Domain
    nominated: int
    fitting: int


def place_in_domains(
    framework: Framework,
    statement: Statement,
    unit: Unit,
    tasks: Iterable[Task],
    root: Domain | None,
    attempt: Callable[[Domain | None, Sequence[Share]], Attempt[R]],
) -> Attempt[R] | None:
    """Place a unit's tasks by ``attempt`` in the best domain within ``root``; None if it works in no domain.

    A domain works if the attempt places tasks, and the unit is ready or pipelined then. If closer domains within it
    were too small, the fewest of them get even shares of the tasks; if that fails, its nodes are tried without shares.
    The best domain of a row has most of the tasks' nominated nodes, then takes most of the tasks, then has the most
    points, then is the first by name. If no plugin limits the unit, the result of the only attempt is returned, whether
    it works or not.
    """
    rows = framework.hyper_node_gradient(unit, root)
    if rows is None:
        return attempt(root, ())
    job, scope, start = statement.job, scope_of(framework.session), statement.save()
    if not rows:
        attempt(root, ())  # notes why no node is allowed
        statement.undo(start)
        return None
    counted = Capacity(framework, unit, tasks, framework.session.nodes.usage.future_idle)
    reasons_before = list(job.why)
    reasons_of_failed: list[list[Waiting]] = []

    has_sub_jobs = isinstance(unit, Job) and unit.partition is not None
    tried: list[tuple[Domain, int]] = []

    def place_in(domain: Domain) -> Attempt[R] | None:
        shares = () if has_sub_jobs else _even_shares(domain, counted.needed, tried)
        for each in (shares, ()) if shares else ((),):
            unit.failed_roles.clear()
            with scope.within(job, domain):
                tested = attempt(domain, each)
            if statement.save() > start and _works(framework, unit):
                return tested
            statement.undo(start)
        reasons_of_failed.append(list(job.why))
        job.why[:] = reasons_before
        return None

    for row in rows:
        fitting = list(zip(row, counted.fitting(row), strict=True))
        tried += fitting
        candidates = [
            _Candidate(domain, counted.nominated(domain), count) for domain, count in fitting if count >= counted.needed
        ]
        if has_sub_jobs:
            done = _place_in_best_of_all(statement, candidates, place_in)
        else:
            done = _place_in_first(framework, unit, candidates, place_in)
        if done is not None:
            return done
    if reasons_of_failed:  # something other than capacity prevents it: a queue's limit, or other predicates
        job.why[:] = reasons_of_failed[0]
    elif counted.on_all_nodes < counted.needed <= counted.by_resources:
        attempt(root, ())  # notes which facts exclude nodes
        statement.undo(start)
    else:
        _note_failure(job, counted, tried)
    job.wants_second_round = False
    job.failed.clear()
    return None


def _even_shares(domain: Domain, count: int, counted: Sequence[tuple[Domain, int]]) -> list[Share]:
    """Divide tasks evenly over the fewest closer domains within a domain; empty if these do not take all of them.

    ``counted`` has the closer domains, and how many tasks each takes at most. Of equally few domains that take an even
    share, the fullest are chosen, so that large ones remain. The shares of a domain are divided in the same way.
    """
    inside = [each for each in counted if each[1] and each[0].parent == domain.number != each[0].number]
    largest_first = sorted(inside, key=lambda each: (-each[1], each[0].name))
    totals = np.cumsum([takes for _, takes in largest_first])
    fewest = int(np.searchsorted(totals, count)) + 1
    if fewest > len(largest_first):
        return []
    fullest_first = sorted(inside, key=lambda each: (each[1], each[0].name))
    enough = [each for each in fullest_first if each[1] * fewest >= count]
    chosen = enough[:fewest] if len(enough) >= fewest else largest_first[fewest - 1 :: -1]
    shares: list[Share] = []
    for place, (part, takes) in enumerate(chosen):
        share = min(takes, -(-count // (fewest - place)))
        count -= share
        shares += _even_shares(part, share, counted) or [Share(part, share)]
    return sorted(shares, key=lambda each: each.domain.name)


def _works(framework: Framework, unit: Unit) -> bool:
    if isinstance(unit, Job):
        return framework.job_ready(unit) or framework.job_pipelined(unit)
    return framework.sub_job_ready(unit) or framework.sub_job_pipelined(unit)


def _place_in_first(
    framework: Framework,
    unit: Unit,
    candidates: list[_Candidate],
    place_in: Callable[[Domain], Attempt[R] | None],
) -> Attempt[R] | None:
    """Place a unit in the first domain that works, in the order from the best.

    Points of a sub-job's domains depend on each other, so they are computed again without a domain that failed.
    """
    while candidates:
        points = framework.hyper_node_order(unit, [each.domain for each in candidates])
        best = _best_of(candidates, points)
        done = place_in(candidates[best].domain)
        if done is not None:
            return done._replace(points=points[best])
        candidates = candidates[:best] + candidates[best + 1 :]
    return None


def _place_in_best_of_all(
    statement: Statement,
    candidates: list[_Candidate],
    place_in: Callable[[Domain], Attempt[R] | None],
) -> Attempt[R] | None:
    """Try a job with sub-jobs in all domains, because their points result from the attempts; place it in the best."""
    start = statement.save()
    worked: list[_Candidate] = []
    results: list[tuple[Attempt[R], list[tuple[Task, int, int]]]] = []
    for candidate in candidates:
        done = place_in(candidate.domain)
        if done is not None:
            worked.append(candidate)
            results.append((done, statement.placements(start)))
            statement.undo(start)
    if not worked:
        return None
    chosen, places = results[_best_of(worked, [done.points for done, _ in results])]
    for task, node, status in places:
        statement.place_again(task, node, status)
    return chosen


def _best_of(candidates: Sequence[_Candidate], points: Sequence[float]) -> int:
    """Return the position of the best candidate; points become integers before they are compared."""

    def key(place: int) -> tuple[int, int, int, str]:
        domain, nominated, fitting = candidates[place]
        return -nominated, -fitting, -round(points[place] * 10**6), domain.name

    return min(range(len(candidates)), key=key)


def evict_in_domains(
    framework: Framework, statement: Statement, unit: Unit, tasks: Iterable[Task], attempt: Callable[[], bool]
) -> bool:
    """Run ``attempt``, which evicts and places, in the domain of the closest row with the smallest loss of victims.

    Return whether it succeeded; otherwise everything is undone. Domains that could not hold the unit even if they were
    empty are not tried. The domain in which the job is tried already limits a sub-job's domains.
    """
    job, scope = statement.job, scope_of(framework.session)
    rows = framework.hyper_node_gradient(unit, scope.domain_for(job))
    if rows is None:
        return attempt()
    counted = Capacity(framework, unit, tasks, framework.session.nodes.usage.allocatable)
    save_point = statement.save()
    for row in rows:
        losses: list[tuple[tuple[int, int], str, Domain]] = []
        for domain, count in zip(row, counted.fitting(row), strict=True):
            if count < counted.needed:
                continue
            with scope.within(job, domain):
                if attempt():
                    losses.append((_loss(statement.evicted()), domain.name, domain))
            statement.undo(save_point)
        if losses:
            with scope.within(job, min(losses)[2]):
                return attempt()
    return False


def _loss(victims: Sequence[Task]) -> tuple[int, int]:
    return len(victims), sum(victim.priority for victim in victims)


class Capacity:
    """Counts how many of a unit's tasks a domain could take at most, by ``free`` resources and the facts of its nodes.

    ``needed`` is the fewest tasks that must be placed for the unit to be ready or pipelined.
    """

    def __init__(self, framework: Framework, unit: Unit, tasks: Iterable[Task], free: Ints) -> None:
        tasks = list(tasks)
        nodes = (
            [framework.session.nominated_node(task) for task in tasks] if framework.session.snapshot.nominated else []
        )
        self._nominated = [node for node in nodes if node is not None]
        self._kinds = [
            _Kind(len(each), _fitting_each(each[0].request, free, len(each)), framework.evaluator.static(each[0]).mask)
            for each in _equivalent(framework, unit, tasks)
        ]
        missing = framework.missing_tasks(unit) if isinstance(unit, Job) else -unit.margin
        if isinstance(unit, Job) and unit.partition is not None:
            missing = 0  # the minima of sub-groups may need fewer tasks
        self.needed = max(1, missing - unit.waiting_count)

    def nominated(self, domain: Domain) -> int:
        """Return how many of the tasks are nominated to nodes of a domain."""
        return int(domain.mask[self._nominated].sum()) if self._nominated else 0

    def fitting(self, domains: Sequence[Domain]) -> list[int]:
        """Return the most tasks that fit each domain; tasks of different requests do not compete."""
        row = domains if isinstance(domains, DomainRow) else DomainRow(domains)
        found = np.zeros(len(row), np.int64)
        for kind in self._kinds:
            found += np.minimum(row.sums(kind.per_node * kind.passing), kind.size)
        return found.tolist()

    @property
    def by_resources(self) -> int:
        """The most tasks that fit all nodes of the cluster together, whatever the facts of the nodes."""
        return sum(min(kind.size, int(kind.per_node.sum())) for kind in self._kinds)

    @property
    def on_all_nodes(self) -> int:
        """The most tasks that fit all nodes of the cluster together."""
        return sum(min(kind.size, int(kind.per_node[kind.passing].sum())) for kind in self._kinds)


class _Kind(NamedTuple):
    """Equivalent tasks: how many there are, how many of them each node takes, and the nodes whose facts they pass."""

    size: int
    per_node: Ints
    passing: Mask


def _equivalent(framework: Framework, unit: Unit, tasks: list[Task]) -> list[list[Task]]:
    """Return tasks by what predicates on facts read of them, and by their requests."""
    job = unit if isinstance(unit, Job) else unit.job
    if not tasks or framework.can_place_together(job):
        return [tasks] if tasks else []
    found: dict[Hashable, list[Task]] = {}
    for task in tasks:
        key = task.request.tobytes(), framework.evaluator.keys.fixed_key(task)
        found.setdefault(key, []).append(task)
    return list(found.values())


def _fitting_each(request: Ints, free: Ints, count: int) -> Ints:
    """Return for each node how many tasks of a request fit it, at most ``count``."""
    columns = np.flatnonzero(request > 0)
    found: Ints = np.full(free.shape[1], count, np.int64)
    for column in columns:
        np.minimum(found, free[column] // request[column], out=found)
    return np.maximum(found, 0, out=found)


def _note_failure(job: Job, counted: Capacity, tried: Sequence[tuple[Domain, int]]) -> None:
    needed = ("needed", "", counted.needed)
    if counted.on_all_nodes < counted.needed:
        job.note("predicate", "", _TOO_LITTLE(amounts=[needed, ("fitting", "", counted.on_all_nodes)]))
        return
    domain, fitting = min(tried, key=lambda each: (-each[1], each[0].tier, each[0].name))
    amounts = [needed, ("fitting", "", fitting), ("tier", "", domain.tier), ("tried", "", len(tried))]
    job.note("predicate", "", NO_DOMAIN({"domain": domain.name}, amounts))
