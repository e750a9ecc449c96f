"""Plugins of jobs beyond the default ones: sla, resourcequota, task-topology."""

from __future__ import annotations

import datetime
import functools
import re
from fractions import Fraction
from typing import Any

from tests.reference import lending
from tests.reference.config import Arguments
from tests.reference.model import (
    ALLOCATED,
    TASK_SPEC,
    Job,
    Node,
    Quantities,
    Task,
    annotations_of,
    created,
    meta,
    pod_requests,
    quantities,
    total,
)
from tests.reference.session import ABSTAIN, PERMIT, REJECT, Session
from tests.reference.values import Resource

_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")
_NOTHING = Fraction(0)
SLA_KEYS = ("volcano.sh/sla-waiting-time", "sla-waiting-time")


def duration(text: Any) -> int | None:
    """Nanoseconds of a Go duration above zero; None for anything else."""
    parts = _PART.findall(str(text))
    if not parts or "".join(number + unit for number, unit in parts) != str(text):
        return None
    nanoseconds = sum(int(Fraction(number) * _UNITS[unit]) for number, unit in parts)
    return nanoseconds if nanoseconds > 0 else None


def sla(session: Session, arguments: Arguments) -> None:
    """Jobs with the earlier deadline first; from it on they are admitted, and keep what they wait for."""
    for_all = duration(arguments.values["sla-waiting-time"]) if "sla-waiting-time" in arguments.values else None

    def deadline(job: Job) -> datetime.datetime | None:
        stated = [duration(annotations_of(job.group).get(key, "")) for key in SLA_KEYS]
        waiting = next((value for value in stated if value is not None), for_all)
        return None if waiting is None else created(job.group) + datetime.timedelta(microseconds=waiting // 1000)

    def order(left: Job, right: Job) -> int:
        mine, other = deadline(left), deadline(right)
        if mine is None or other is None:
            return (mine is None) - (other is None)
        return (mine > other) - (mine < other)

    def vote(job: Job) -> int:
        until = deadline(job)
        return PERMIT if until is not None and session.now >= until else ABSTAIN

    @functools.cache
    def placeable() -> frozenset[str]:
        """Pods, as the session began, that can be placed some day. Predicates are registered later than this."""
        pending = {task.key for job in session.cluster.jobs.values() for task in job.having("Pending")}
        return frozenset(pending - (lending.never_placed(session) if session.pains else set()))

    def wait(job: Job) -> int:
        """[differs] What can never be complete holds nothing."""
        return vote(job) if any(task.key in placeable() for task in job.tasks) else ABSTAIN

    session.register("jobOrder", "sla", order)
    session.register("jobEnqueueable", "sla", vote)
    session.register("jobPipelined", "sla", wait)
    session.openers.append(placeable)


def resourcequota(session: Session, arguments: Arguments) -> None:
    """A group is admitted while every ResourceQuota of its namespace has room for what its pods, as far as they count
    in it, leave of its minimum, name by name."""
    admitted: dict[str, dict[str, Fraction]] = {}

    def left(job: Job, name: str, used: Fraction) -> Fraction:
        counted = sum((_uses(task, name) for task in job.tasks if task.status not in ("Succeeded", "Failed")), _NOTHING)
        return max((job.min_resources or {})[name] - min(counted, used), _NOTHING)

    def enqueueable(job: Job) -> int:
        if job.min_resources is None:
            return PERMIT
        namespace = job.key.partition("/")[0]
        for quota, hard, used in quotas_of(namespace):
            before = admitted.get(quota, {})
            for name in hard.keys() & job.min_resources.keys():
                has = used.get(name, _NOTHING)
                if has + before.get(name, _NOTHING) + left(job, name, has) > hard[name]:
                    return REJECT
        return PERMIT

    def enqueued(job: Job) -> None:
        if job.too_large:
            return
        for quota, hard, used in quotas_of(job.key.partition("/")[0]):
            mine = admitted.setdefault(quota, {})
            for name in hard.keys() & (job.min_resources or {}).keys():
                mine[name] = mine.get(name, _NOTHING) + left(job, name, used.get(name, _NOTHING))

    def quotas_of(namespace: str) -> list[tuple[str, Quantities, Quantities]]:
        found = [quota for quota in session.cluster.all("ResourceQuota") if meta(quota).get("namespace") == namespace]
        statuses = [(str(meta(quota)["name"]), quota.get("status") or {}) for quota in found]
        return [(name, quantities(each.get("hard")), quantities(each.get("used"))) for name, each in statuses]

    session.register("jobEnqueueable", "resourcequota", enqueueable)
    session.register("jobEnqueued", "resourcequota", enqueued)


def _uses(task: Task, name: str) -> Fraction:
    """What a pod counts with in a quota's limit of that name."""
    resource = name.removeprefix("requests.")
    if resource in ("pods", "count/pods"):
        return Fraction(1)
    return pod_requests(task.pod, use_status=False).get(resource, _NOTHING)


# -- task-topology ----------------------------------------------------------------

_AFFINITY, _ANTI, _ORDER = (f"volcano.sh/task-topology-{name}" for name in ("affinity", "anti-affinity", "task-order"))
_MIB = 1024 * 1024


class _Bucket:
    """Tasks that belong together; ``members`` in the order in which they came."""

    def __init__(self) -> None:
        self.members: list[Task] = []
        self.waited: set[str] = set()

    def waiting(self) -> list[Task]:
        return [task for task in self.members if task.key in self.waited and not task.node]

    def load(self) -> float:
        """What its waiting tasks ask for as one number: a thousandth counts as much as a mebibyte."""
        asked = [task.request for task in self.waiting()]
        return sum(r.cpu + r.memory / _MIB + sum((r.scalars or {}).values()) for r in asked)


class _Topology:
    """The buckets of one job, made when the session opens."""

    def __init__(self, session: Session, job: Job) -> None:
        marks = annotations_of(job.group)
        self.session, self.job = session, job
        self.likes = _pairs(_sets(marks.get(_AFFINITY)))
        self.shuns = _pairs(_sets(marks.get(_ANTI)))
        order = _sets(marks.get(_ORDER))
        names = order[0] if order else ()
        self.order = {name: len(names) - place for place, name in enumerate(names)}
        self.kind = _kinds(_sets(marks.get(_AFFINITY)), _sets(marks.get(_ANTI)))
        self.buckets: list[_Bucket] = []
        self._fill()
        self.largest = max((len(bucket.members) for bucket in self.buckets), default=0)

    def _fill(self) -> None:
        concerned = [task for task in self.job.tasks if _role(task) in self.kind]
        by_node: dict[str, _Bucket] = {}
        known = self.session.cluster.nodes
        for task in sorted((t for t in concerned if t.node), key=lambda t: (t.node not in known, t.node, t.key)):
            place = task.node if task.node in known else ""
            if place not in by_node:
                by_node[place] = self._new()
            by_node[place].members.append(task)
        for task in sorted((t for t in concerned if not t.node), key=lambda t: (self.rank(t), t.name)):
            best = self._best(task)
            bucket = self._new() if best is None else best
            bucket.members.append(task)
            bucket.waited.add(task.key)

    def _new(self) -> _Bucket:
        self.buckets.append(_Bucket())
        return self.buckets[-1]

    def _best(self, task: Task) -> _Bucket | None:
        """The bucket of which the task likes most, then the lightest, then the oldest; none where it shuns all."""
        if not self.buckets:
            return None
        liking = [sum(self._liking(task, other) for other in bucket.members) for bucket in self.buckets]
        if max(liking) < 0:
            return None
        alike = [bucket for bucket, value in zip(self.buckets, liking, strict=True) if value == max(liking)]
        return min(alike, key=lambda bucket: bucket.load())

    def _liking(self, task: Task, other: Task) -> int:
        pair = (_role(task), _role(other))
        return (pair in self.likes) - (pair in self.shuns)

    def rank(self, task: Task) -> tuple[int, int]:
        return -self.order.get(_role(task), 0), -self.kind[_role(task)]

    def bucket_of(self, task: Task) -> tuple[int, _Bucket] | None:
        return next(((i, bucket) for i, bucket in enumerate(self.buckets) if task in bucket.members), None)

    def key(self, task: Task) -> tuple[int, ...]:
        found = self.bucket_of(task)
        if found is None:
            return (1, 0, 0, 0, 0)
        index, bucket = found
        return (0, -len(bucket.waiting()), index, *self.rank(task))

    def points(self, task: Task, node: Node) -> float:
        """Of 0 to ``largest``: tasks of the bucket that are on the node, or would fit there with this one."""
        found = self.bucket_of(task)
        if found is None:
            return 0.0
        room = node.idle.add(node.releasing)
        if not task.request.fits(room):
            return 0.0
        bucket = found[1]
        there = sum(other.node == node.name for other in bucket.members)
        shunned = sum(
            (_role(task), _role(other)) in self.shuns
            for other in self.job.tasks
            if _role(other) and other.node == node.name and other.status in (*ALLOCATED, "Pipelined")
        )
        return float(there - shunned + self._fitting(bucket, task, room))

    def _fitting(self, bucket: _Bucket, task: Task, room: Resource) -> int:
        """How many of the waiting tasks fit into the room together, the last ones left out first."""
        waiting = bucket.waiting()
        while not total(other.request for other in waiting).fits(room):
            others = [other for other in waiting if other is not task]
            if not others:
                break
            waiting.remove(others[-1])
        return len(waiting)


def has_sound_topology(job: Job) -> bool:
    """Whether what a group says of its roles, if anything, is of roles that its pods have."""
    marks, roles = annotations_of(job.group), {task.role for task in job.tasks}
    stated = [_sets(marks.get(name)) for name in (_AFFINITY, _ANTI, _ORDER)]
    return all(_is_sound(names, roles) for sets in stated for names in sets)


def task_topology(session: Session, arguments: Arguments) -> None:
    """Tasks of one job together, or apart, by what its group says of their roles."""
    weight = arguments.integer("task-topology.weight", 1)
    jobs: dict[str, _Topology] = {}
    for key, job in sorted(session.cluster.jobs.items()):
        marks = annotations_of(job.group)
        states = any(name in marks for name in (_AFFINITY, _ANTI, _ORDER))
        if job.having("Pending") and states and has_sound_topology(job):
            jobs[key] = _Topology(session, job)

    def order(left: Task, right: Task) -> int:
        mine, other = (jobs[t.job].key(t) if t.job in jobs else (1, 0, 0, 0, 0) for t in (left, right))
        return (mine > other) - (mine < other)

    def score(task: Task, nodes: list[Node]) -> dict[str, float]:
        topology = jobs.get(task.job)
        if topology is None or not topology.largest:
            return {}
        return {node.name: topology.points(task, node) * (weight * 100.0) / topology.largest for node in nodes}

    session.register("taskOrder", "task-topology", order)
    if weight:
        session.register("nodeOrder", "task-topology", score)


def _role(task: Task) -> str:
    return annotations_of(task.pod).get(TASK_SPEC) or ""


def _sets(text: str | None) -> list[tuple[str, ...]]:
    return [] if text is None else [tuple(names.split(",")) for names in text.split(";")]


def _is_sound(names: tuple[str, ...], roles: set[str]) -> bool:
    named = [name for name in names if name]
    return len(set(named)) == len(named) and roles.issuperset(named)


def _pairs(sets: list[tuple[str, ...]]) -> set[tuple[str, str]]:
    """(role, other) for the members of each set; a role alone is paired with itself."""
    return {(one, other) for names in sets for one in names for other in names if one != other or len(names) == 1}


def _kinds(affinity: list[tuple[str, ...]], anti: list[tuple[str, ...]]) -> dict[str, int]:
    """Roles that a rule names, and how early their tasks come for it."""
    found: dict[str, int] = {}
    for sets, alone, together in ((affinity, 2, 3), (anti, 4, 1)):
        for names in sets:
            for name in names:
                found[name] = max(found.get(name, 0), alone if len(names) == 1 else together)
    return found
