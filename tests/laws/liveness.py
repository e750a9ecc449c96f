"""Clusters that come to rest under any order of actions and plugins, and a search for what could still be done there.

The search is the slow reference's: plain loops over plain manifests, none of the scheduler's own code.
"""

from __future__ import annotations

import datetime
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from tests.dsl import gang, priority_class
from tests.laws.contention import objects_of
from tests.laws.mingled import mingled
from tests.laws.parts import Parts
from tests.laws.returning import Returning
from tests.parity.cases import NOW
from tests.reference import PLUGINS
from tests.reference.carded import carded_case
from tests.reference.clusters import random_case
from tests.reference.config import parse
from tests.reference.evictions import has_sound_cooldown
from tests.reference.jobs import has_sound_topology
from tests.reference.model import READY, Job, Node, Task, build
from tests.reference.session import PredicateFailure, Session
from vcd.model import events as ev
from vcd.model.events import Waiting
from vcd.model.objects import Object
from vcd.model.projection_codec import encode_payload
from vcd.scheduling.framework.declared_reasons import Told, all_told
from vcd.scheduling.framework.framework import framework_of
from vcd.state.holds import Hold

Manifest = dict[str, Any]
Tiers = tuple[tuple[tuple[str, ...], ...], ...]

ORDERS = (
    "enqueue, allocate, backfill",
    "enqueue, allocate, preempt, reclaim, backfill",
    "enqueue, allocate, backfill, preempt",
    "reclaim, allocate, backfill, preempt",
    "enqueue, reclaim, allocate, backfill, preempt",
    "enqueue, allocate, backfill, reclaim, preempt",
    "allocate, backfill",
    "enqueue, preempt, allocate, backfill",
    "preempt, reclaim, backfill, allocate",
    "enqueue, backfill, allocate, reclaim",
    "enqueue, allocate, gangpreempt, gangreclaim, backfill",
    "gangreclaim, gangpreempt, enqueue, allocate, backfill",
)
TIERS: Tiers = (
    (("priority", "gang", "conformance"), ("overcommit", "drf", "predicates", "proportion", "nodeorder")),
    (("priority", "gang", "conformance"), ("drf", "predicates", "proportion", "nodeorder", "binpack")),
    (("priority", "conformance", "overcommit"), ("drf", "gang", "predicates", "proportion", "nodeorder", "binpack")),
    (("priority", "gang", "conformance"), ("predicates", "capacity", "nodeorder")),
    (("capacity", "drf", "gang"), ("predicates", "priority", "overcommit", "nodeorder")),
    (("priority", "gang", "conformance", "resourcequota"), ("overcommit", "predicates", "nodeorder")),
    (("priority",), ("drf", "predicates", "proportion", "nodeorder")),
)
CARDS = (("priority", "gang", "conformance"), ("drf", "predicates", "capacity-card", "nodeorder", "overcommit"))
_LEFT_OUT = ("volumes",)


def conf_of(rng: random.Random, choice: Tiers = TIERS) -> tuple[str, str]:
    """A configuration: the order of actions, and the tiers; one time in four their plugins are shuffled."""
    tiers = [list(tier) for tier in rng.choice(choice)]
    if rng.random() < 0.25:
        names = [name for tier in tiers for name in tier]
        rng.shuffle(names)
        cut = rng.randint(1, len(names))
        tiers = [tier for tier in (names[:cut], names[cut:]) if tier]
    lines = ["tiers:"]
    for tier in tiers:
        lines += ["- plugins:", *[f"  - name: {name}" for name in tier]]
    return rng.choice(ORDERS), "\n".join(lines) + "\n"


def cluster_of(rng: random.Random, seed: int) -> list[Manifest]:
    """A full cluster of plain pods, or one in which pods ask for everything a pod can ask for."""
    if rng.random() < 0.5:
        return list(objects_of(rng))
    return _schedulable(random_case(seed).objects)


def _schedulable(objects: list[Manifest]) -> list[Manifest]:
    return [_plain(manifest) for manifest in objects if _belongs(manifest)]


def _belongs(manifest: Manifest) -> bool:
    """Nobody makes groups for single pods here, and nobody binds claims."""
    return manifest["kind"] != "Pod" or "scheduling.k8s.io/group-name" in manifest["metadata"].get("annotations", {})


def _plain(manifest: Manifest) -> Manifest:
    if manifest["kind"] != "Pod":
        return manifest
    return {**manifest, "spec": {name: part for name, part in manifest["spec"].items() if name not in _LEFT_OUT}}


class Living(Returning):
    """A cluster on which nothing happens but what is decided: what leaves is gone, what was evicted comes back."""

    def __init__(self, seed: int) -> None:
        rng, more = random.Random(seed), random.Random(f"more {seed}")
        self.seed = seed
        self.lifted: list[str] = []
        """Pods whose queue's gate was lifted."""
        if more.random() < 0.1:
            self.actions, self.tiers = conf_of(rng, (CARDS,))
            objects = _schedulable(carded_case(seed).objects)
        else:
            self.actions, self.tiers = conf_of(rng)
            objects = cluster_of(rng, seed)
        if more.random() < 0.5:
            objects = mingled(more, objects)
        self.conf = f'actions: "{self.actions}"\n{self.tiers}'
        super().__init__(objects, conf=self.conf, renames=rng.random() < 0.4)

    def cycle(self) -> ev.Plan:
        """One session, carried out; the gates that it lifts are gone, too."""
        plan = super().cycle()
        for index, statement in enumerate(plan.statements):
            for position, operation in enumerate(statement.operations):
                if operation.verb == "ungate":
                    self._ungate(operation.key)
                    self.happen(ev.OperationDone(self.state.session, index, position, "done"))
        return plan

    def _ungate(self, key: str) -> None:
        pod = self.state.pod(key)
        assert pod is not None
        self.lifted.append(key)
        spec = msgspec.structs.replace(pod.spec, scheduling_gates=())
        self.happen(ev.ObjectPut("Pod", key, "", encode_payload(msgspec.structs.replace(pod, spec=spec))))

    def settle(self, limit: int = 60) -> ev.Plan:
        """Sessions until three in a row change nothing; the last plan."""
        quiet = 0
        for count in range(limit):
            plan = self.cycle()
            if count == 1:
                self._let_go()
            busy = plan.groups or any(op.verb != "pipeline" for each in plan.statements for op in each.operations)
            quiet = 0 if busy else quiet + 1
            if quiet == 3:
                return plan
        raise AssertionError(f"no rest after {limit} sessions")

    def _let_go(self) -> None:
        keys = [key for key in sorted(self.state.tasks.row_of) if self._is_leaving(key)]
        self.remove("Pod", *keys)

    def _is_leaving(self, key: str) -> bool:
        pod = self.state.pod(key)
        return pod is not None and pod.metadata.deletion_timestamp is not None

    def objects(self) -> Iterator[Manifest]:
        """Everything as it is now, as manifests; what another scheduler has not placed is nobody's business."""
        state = self.state
        yield from (_manifest("Node", record.node) for record in state.nodes.values())
        yield from (_manifest("Queue", record.queue) for record in state.queues.values())
        yield from (_manifest("PodGroup", record.group) for record in state.groups.values())
        for key in state.tasks.row_of:
            pod = state.pod(key)
            if pod is not None and (pod.spec.scheduler_name == "volcano" or pod.spec.node_name):
                yield _manifest("Pod", pod)
        for kind, objects in state.others.items():
            yield from (_manifest(kind, obj) for obj in objects.values())


class Unfolding(Living):
    """A living cluster in which things happen, one after the other, and that comes to rest after each: jobs of higher
    priority come, jobs end or are deleted, nodes go and come back."""

    STEPS = ("an urgent job comes", "a job ends", "a job is deleted", "a node goes", "nodes come back")

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._rng = random.Random(f"history {seed}")
        self._gone: list[Manifest] = []
        self.deleted: list[str] = []
        """The keys of the groups and pods that were deleted with their job."""
        self.put(priority_class("urgent", 5000))
        self.settle()

    def step(self) -> str:
        """One thing happens, and all is decided that follows from it; what it was."""
        what = self._rng.choice(self.STEPS)
        jobs = sorted(self.state.groups)
        if what == "an urgent job comes":
            self._urgent_job()
        elif what == "nodes come back":
            self.put(*self._gone)
            self._gone.clear()
        elif what == "a node goes" and len(self.state.nodes) > 1:
            name = self._rng.choice(sorted(self.state.nodes))
            self._gone.append(_manifest("Node", self.state.nodes[name].node))
            self.remove("Pod", *[key for key in sorted(self.state.tasks.row_of) if self._is_on(key, name)])
            self.remove("Node", name)
        elif what == "a job ends" and jobs:
            keys = [key for key in self.pods_of(self._rng.choice(jobs)) if not self._is_on(key, "")]
            self.finish(*keys)
        elif what == "a job is deleted" and jobs:
            self.delete_job(self._rng.choice(jobs))
        self.settle()
        return what

    def pods_of(self, group: str) -> list[str]:
        """The keys of a group's pods."""
        found = ((key, self.state.pod(key)) for key in sorted(self.state.tasks.row_of))
        return [key for key, pod in found if pod is not None and pod.group_key == group]

    def delete_job(self, group: str) -> None:
        """Delete a group with its pods."""
        pods = self.pods_of(group)
        self.remove("Pod", *pods)
        self.remove("PodGroup", group)
        self.deleted += [group, *pods]

    def _urgent_job(self) -> None:
        name, size = f"urgent{len(self.log)}", self._rng.randint(1, 2)
        queues = sorted(name for name in self.state.queues if name != "root")
        spec = {"priorityClassName": "urgent"}
        where, cpu = self._rng.choice(queues), self._rng.choice((1, 2))
        pod_spec = {**spec, "priority": 5000}
        self.put(
            gang(name, size, members=1, queue=where, group_spec=spec, spec=pod_spec, cpu=cpu, created=len(self.log))
        )
        if self._rng.random() < 0.4:  # it goes while others are being evicted for it
            self.cycle()
            self.delete_job(f"default/{name}")

    def _is_on(self, key: str, node: str) -> bool:
        pod = self.state.pod(key)
        return pod is not None and pod.spec.node_name == node

    def holds(self) -> list[Hold]:
        """The live holds, as the last session has them."""
        assert self.session is not None
        return framework_of(self.session).holds()

    def remembered(self) -> list[str]:
        """The deleted objects that the state still remembers; the reasons of other groups may name them."""
        dump = msgspec.msgpack.decode(self.state.dump())
        kept = {name: part for name, part in dump.items() if name not in ("objects", "groups", "pods", "waiting")}
        return sorted(set(self.deleted) & set(_texts_in(kept)))


def _texts_in(found: Any) -> Iterator[str]:
    if isinstance(found, str):
        yield found
    elif isinstance(found, Mapping):
        for key, part in found.items():
            yield from (*_texts_in(key), *_texts_in(part))
    elif isinstance(found, list | tuple):
        for part in found:
            yield from _texts_in(part)


def _manifest(kind: str, obj: Object) -> Manifest:
    manifest: Manifest = msgspec.json.decode(msgspec.json.encode(obj))
    return {**manifest, "kind": kind}


class Search:
    """What an opened reference session finds that could be done, and what of the ``told`` reasons is not so.

    ``makes_default``: whether the default queue is made where it is missing; ``now``: what deadlines are compared with.
    """

    def __init__(
        self,
        objects: Iterable[Manifest],
        conf: str,
        told: Mapping[str, Sequence[Waiting]],
        *,
        makes_default: bool = True,
        now: datetime.datetime = NOW,
    ) -> None:
        configuration = parse(conf)
        self._enqueues = "enqueue" in configuration.actions
        self.session = Session(build(objects, makes_default=makes_default), configuration, 0, True, now)
        for tier in configuration.tiers:
            for option in tier:
                PLUGINS[option.name](self.session, option.arguments)
        self._gangs = "gang" in self.session.points.get("jobReady", {})
        self._told = told
        self._jobs = [job for _, job in sorted(self.session.cluster.jobs.items())]
        self._keeping = [job.key for job in self._jobs if self._keeps(job)]
        """Jobs that keep what room they find though they are not complete, as sla has it: others go without."""

    # --- what could be done -----------------------------------------------------------------------------------------

    def left_undone(self) -> list[str]:
        """Groups that could be admitted, pods that could be bound, one alone or a gang's together, and gates that could
        be lifted; and pods that could be lent what no queue has a use for."""
        found = self._left_undone()
        lends = [function(True) for function in self.session.functions("lend", "allocatable")]
        if any(lends) and not found:
            found = self._left_undone()
        for function in self.session.functions("lend", "allocatable"):
            function(False)
        return found

    def _left_undone(self) -> list[str]:
        found: list[str] = []
        for job in self._jobs:
            if job.is_pending:
                found += self._admission(job)
            elif self._is_valid(job):
                found += [*self._binding(job), *self._lifting(job)]
        return found

    def _is_valid(self, job: Job) -> bool:
        return self.session.why_invalid(job) is None and not (self._gangs and Parts(job).too_few())

    def _keeps(self, job: Job) -> bool:
        waits = not job.is_pending and bool(job.having("Pending"))
        return waits and self.session.job_pipelined(job) and not self.session.job_ready(job)

    def _goes_without(self, job: Job) -> bool:
        return any(key != job.key for key in self._keeping)

    def _is_open(self, job: Job) -> bool:
        return self.session.cluster.queues[job.queue].open

    def _may_be_admitted(self, job: Job) -> bool:
        if not self._is_open(job):
            return False
        return not self._enqueues or job.min_resources is None or self.session.enqueueable(job)

    def _admission(self, job: Job) -> Iterator[str]:
        if self._may_be_admitted(job):
            yield f"{job.key} could be admitted"

    def _binding(self, job: Job) -> Iterator[str]:
        alone = [text for task in job.having("Pending") for text in self._binding_of(job, task)]
        yield from alone
        if not alone and (together := self._that_fit_together(job)):
            yield f"{', '.join(task.key for task in together)} could be bound together"

    def _binding_of(self, job: Job, task: Task) -> Iterator[str]:
        if self._goes_without(job):
            return
        for node in self._places(job, task):
            if not self.session.place(task, node, "Allocated"):
                continue
            ready = self._is_ready_with(job, [task])
            self.session.displace(task)
            if ready:
                yield f"{task.key} could be bound to {node.name}"
                break

    def _that_fit_together(self, job: Job) -> list[Task]:
        """Pending tasks that make the job ready, each placed beside those before it as allocate would; none where all
        that find room do not suffice."""
        if self._goes_without(job):
            return []
        placed: list[Task] = []
        ready = False
        for task in self.session.tasks_in_order(job.having("Pending")):
            nodes = self._places(job, task)
            if nodes and self.session.place(task, self.session.best(task, nodes), "Allocated"):
                placed.append(task)
                ready = self._is_ready_with(job, placed)
            if ready:
                break
        for task in reversed(placed):
            self.session.displace(task)
        return placed if ready else []

    def _is_ready_with(self, job: Job, placed: list[Task]) -> bool:
        parts = Parts(job)
        if self._gangs and (parts.too_few_ready() or not all(parts.is_ready(parts.of(task)) for task in placed)):
            return False
        return self.session.job_ready(job)

    def _lifting(self, job: Job) -> Iterator[str]:
        for task in job.having("Pending"):
            if task.gated_by_queue_only and not task.waits_in_vain:
                task.gated = False
                if any(self._binding_of(job, task)):
                    yield f"the gate of {task.key} could be lifted"
                task.gated = True

    def _places(self, job: Job, task: Task) -> list[Node]:
        """The nodes that a task could have now."""
        queue = self.session.cluster.queues[job.queue]
        if task.gated or not self.session.allocatable(queue, task):
            return []
        if not task.best_effort and self.session.overused(queue):
            return []
        try:
            self.session.pre_predicate(task)
        except PredicateFailure:
            return []
        return self.session.feasible(task, self.session.node_order, need_idle=True)[0]

    # --- what is told -----------------------------------------------------------------------------------------------

    def untrue(self) -> list[str]:
        """Waiting groups that do not say why, and reasons that are none."""
        return [text for job in self._jobs for text in self._untrue_of(job)]

    def _untrue_of(self, job: Job) -> Iterator[str]:
        waiting = all_told(self._told.get(job.key, ()))
        if not waiting and (job.is_pending or job.having("Pending")):
            yield f"{job.key} waits and does not say why"
        for reason in waiting:
            if not self._holds(job, reason):
                yield f"{job.key} says what is not so: {reason}"

    def _holds(self, job: Job, told: Told) -> bool:
        tasks = [task for task in job.tasks if task.key in told.pods]
        if any(task.status != "Pending" for task in tasks):
            return False
        match told.gate:
            case "enqueue" if told.code == "admission-lapsed":
                return job.phase == "Inqueue" and len(job.tasks) < max(job.min_available, 1)
            case "enqueue":
                return job.is_pending and not self._may_be_admitted(job)
            case "invalid" if told.plugin == "cdp":  # which protects nobody by it, and keeps nobody back
                return not any(map(has_sound_cooldown, tasks))
            case "invalid":
                return not self._is_valid(job)
            case "gated":
                return all(task.gated for task in tasks)
            case "gang":
                return self._gang_says_no(job, told)
            case "queue":
                return self._queue_says_no(job, told, tasks)
            case "predicate":
                return self._nodes_say_no(job, told, tasks)
            case "preempt" | "reclaim" | "gangpreempt" | "gangreclaim":  # tests/actions/test_vetoes.py
                return bool(job.having("Pending"))
            case "held":  # tests/scheduling/test_holdnotes.py
                return bool(job.having("Pending")) or job.is_pending
            case "annotation":  # it is passed over, and keeps nobody back
                return told.plugin == "task-topology" and not has_sound_topology(job)
        return False

    @staticmethod
    def _gang_says_no(job: Job, told: Told) -> bool:
        if told.reason == "fewer sub-groups than the minimum":
            return Parts(job).too_few_ready()
        if told.reason == "fewer tasks of a sub-group have room than its size":
            return Parts(job).one_is_not_ready()
        return len(job.having(*READY)) < job.min_available

    def _queue_says_no(self, job: Job, told: Told, tasks: list[Task]) -> bool:
        queue = self.session.cluster.queues[job.queue]
        if "overused" in told.reason:
            return self.session.overused(queue)
        if told.reason.startswith("queue is "):
            return not queue.open
        return self._had_less(job) or not any(self.session.allocatable(queue, task) for task in tasks)

    def _nodes_say_no(self, job: Job, told: Told, tasks: list[Task]) -> bool:
        if told.reason == "there is no node":
            return not self.session.cluster.nodes
        if "larger than any node" in told.reason or told.reason.startswith("no node offers "):
            return job.too_large
        return self._had_less(job) or not any(self._places(job, task) for task in tasks)

    def _had_less(self, job: Job) -> bool:
        """Whether what was free as it was tried may have been less than is free now: beside others of a gang, which do
        not suffice, or as others keep what room they find."""
        return self._goes_without(job) or (_beside_others(job) and not self._that_fit_together(job))


def _beside_others(job: Job) -> bool:
    """Whether tasks were tried beside others of a gang, which had room then and have not now: more than one of it is
    missing, or some role may be."""
    return len(job.having(*READY)) + 1 < job.min_available or bool(job.task_minima) or Parts(job).are_there
