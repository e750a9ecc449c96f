"""The search for a change that lets a job start: each trial decides the session again on a changed snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cached_property, partial

import msgspec
import numpy as np

from vcd.diagnosis.funnel import Funnel
from vcd.diagnosis.group_wait import waiting_task
from vcd.model import events as ev
from vcd.model.objects import PriorityClass
from vcd.model.status import READY_STATUSES, TaskStatus
from vcd.model.wording import counted
from vcd.scheduling.decide import decide
from vcd.scheduling.framework.policy import Policy
from vcd.scheduling.search.candidates import Memory
from vcd.scheduling.session.outside import Remembered
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job
from vcd.state.snapshot import Snapshot
from vcd.text.trial_templates import SMALLEST
from vcd.timetravel.why.job_waits import Wait
from vcd.timetravel.why.obstacles import nearness
from vcd.timetravel.why.parameters import Parameter, node_parameter, quota_parameters
from vcd.timetravel.why.podparameters import pod_parameters
from vcd.timetravel.why.snapshotchanges import Change, What, with_priority, without_jobs

NODES_TRIED = 8
"""The nearest nodes that are tried with more resources."""

ONE_BY_ONE = 30
"""Running jobs that are tried one by one if removing all of them does not help."""

STEP_BY_STEP = 4
"""Single steps before the steps grow: a small change may help where a larger one lets other jobs start."""

HIGHEST_PRIORITY = 1_000_000_000
"""The highest value of a user's PriorityClass; higher ones are the system's."""


class Effect(msgspec.Struct, frozen=True):
    """What the session decides with a change: pods of the job that are bound or pipelined, with their nodes; pods of
    other jobs that are bound only then, no longer bound, or evicted only then. ``admitted``: the group, which has no
    pods yet, is admitted."""

    bound: dict[str, str]
    held: dict[str, str]
    admitted: bool
    others_bound: dict[str, str]
    others_not_bound: list[str]
    evicted: list[str]


class Tried(msgspec.Struct, frozen=True):
    """A series of trials: the kind of change, of what, and the number of decisions."""

    what: What
    of: str
    decisions: int


class FoundChange(msgspec.Struct, frozen=True):
    """A change that lets the job start."""

    change: Change
    snapshot: Snapshot
    parameter: Parameter | None = None
    counts: Mapping[str, int] | None = None


class Trials:
    """Decides the session of a wait on changed snapshots, and returns whether the job starts."""

    def __init__(self, wait: Wait, policy: Policy, most: int) -> None:
        self.most = most
        self.decisions = 0
        self.exhausted = False
        self._wait = wait
        self._policy = policy
        self._memory = Memory()
        self._base = wait.plan
        job = wait.job
        self._has_pods = _pods_wait(wait)
        # if pods are pipelined without a change, only binds count
        self._holds_count = not self._places(self._base, "pipeline")
        self._ready = 0
        if job is not None:
            columns = wait.session.jobs
            ready = columns.counts[job.index, list(READY_STATUSES)].sum() + columns.best_effort_pending[job.index]
            self._ready = int(ready)

    def lets_in(self, snapshot: Snapshot) -> bool:
        """Return whether the job starts; False without a decision after too many trials."""
        if self.decisions >= self.most:
            self.exhausted = True
            return False
        return self._is_let_in(self._decide(snapshot, self._memory), snapshot)

    def effect(self, snapshot: Snapshot) -> Effect:
        """Return what is decided on a changed snapshot, without memory of earlier trials."""
        plan = self._decide(snapshot, None)
        assert self._is_let_in(plan, snapshot), "a decision that depends on what was tried before"
        (before, evicted_before), (after, evicted) = (
            ({one.key: one.node for one in of.operations("bind")}, {one.key for one in of.operations("evict")})
            for of in (self._base, plan)
        )
        mine = self._places(plan, "bind")
        return Effect(
            mine,
            self._places(plan, "pipeline"),
            not self._has_pods,
            {pod: node for pod, node in after.items() if pod not in before and pod not in mine},
            sorted(before.keys() - after.keys()),
            sorted(evicted - evicted_before),
        )

    def _decide(self, snapshot: Snapshot, memory: Memory | None) -> ev.Plan:
        self.decisions += 1
        record = self._wait.record
        if snapshot.turns or self._base.turns:  # otherwise the job's turn may come in another session
            snapshot = replace(snapshot, settings=snapshot.settings.with_all_tried(), turns={})
        return decide(
            snapshot,
            self._policy,
            record.now,
            record.seed,
            memory,
            outside=Remembered(record.asked),
            interrupted=record.interrupted,
        )

    def _is_let_in(self, plan: ev.Plan, snapshot: Snapshot) -> bool:
        wait = self._wait
        if not self._has_pods:
            return any(status.key == wait.group and status.phase != "Pending" for status in plan.groups)
        count = len(self._places(plan, "bind"))
        count += len(self._places(plan, "pipeline")) if self._holds_count else 0
        missing = snapshot.groups[wait.group].group.spec.min_member - self._ready
        return count >= max(missing, len(self._places(self._base, "bind")) + 1)

    def _places(self, plan: ev.Plan, verb: ev.Verb) -> dict[str, str]:
        """Return the job's pods that a plan binds or pipelines, with their nodes."""
        return {one.key: one.node for one in plan.operations(verb, self._wait.group)}


def _pods_wait(wait: Wait) -> bool:
    """Return whether pods of a job wait, also if its queue does not exist."""
    if wait.job is not None:
        return bool(wait.job.pending())
    snapshot = wait.session.snapshot
    mine = [number for number, key in enumerate(snapshot.job_keys) if key == wait.group]
    return bool((np.isin(snapshot.tasks.job, mine) & (snapshot.tasks.status == TaskStatus.PENDING)).any())


class Search:
    """Searches the smallest change, kind by kind, in at most ``most`` decisions."""

    def __init__(self, wait: Wait, policy: Policy, most: int) -> None:
        self.trials = Trials(wait, policy, most)
        self.tried: list[Tried] = []
        self._wait = wait
        self._session = wait.session
        self._snapshot = wait.session.snapshot
        self._pod_parameters: list[Parameter] | None = None

    def run(self, kinds: Iterable[What]) -> FoundChange | None:
        """Return the first kind of change that works, with its smallest amount."""
        job = self._wait.job
        if job is None:
            return None
        looks: dict[What, Callable[[Job], FoundChange | None]] = {
            "quota": self._quotas,
            "room": self._rooms,
            "priority": self._priorities,
            "job": self._remove_jobs,
        }
        found = (looks[kind](job) if kind in looks else self._by_parameters(job, kind) for kind in kinds)
        return next((one for one in found if one is not None), None)

    def _note(self, what: What, of: str, since: int) -> None:
        self.tried.append(Tried(what, of, self.trials.decisions - since))

    # --- pods and nodes -----------------------------------------------------------------------------------------------

    def _by_parameters(self, job: Job, kind: What) -> FoundChange | None:
        """Return the first parameter of a kind that works."""
        since, parameters = (
            self.trials.decisions,
            [parameter for parameter in self._parameters(job) if parameter.what == kind],
        )
        found = (self._smallest(parameter) for parameter in parameters)
        first = next((one for one in found if one is not None), None)
        if parameters:
            self._note(kind, _bounded(kind, parameters), since)
        return first

    def _parameters(self, job: Job) -> list[Parameter]:
        if self._funnel is None or not len(self._session.nodes):
            return []
        if self._pod_parameters is None:
            self._pod_parameters = list(pod_parameters(self._session, job, self._funnel))
        return self._pod_parameters

    @cached_property
    def _funnel(self) -> Funnel | None:
        """The nodes for the pod that found none; None if no pod waits for a node."""
        task = None if self._wait.job is None else waiting_task(self._wait, self._wait.job)
        return None if task is None else Funnel(self._session, task)

    # --- quotas -------------------------------------------------------------------------------------------------------

    def _quotas(self, job: Job) -> FoundChange | None:
        for queue, parameters in quota_parameters(self._session, job):
            since, found = self.trials.decisions, None
            for parameter in parameters:
                found = self._smallest(parameter)
                if found is not None:
                    break
            if parameters:
                self._note("quota", SMALLEST.sentence("tried quotas", {"queue": queue}), since)
            if found is not None:
                return found
        return None

    # --- resources of a node ------------------------------------------------------------------------------------------

    def _rooms(self, job: Job) -> FoundChange | None:
        """Try the nodes that lack least; of those that work, return the one that needs the fewest resources, and least
        of a single one."""
        if self._funnel is None:
            return None
        since, best, task = self.trials.decisions, None, self._funnel.task
        rows = nearness(self._funnel).rows[:NODES_TRIED]
        for row in rows:
            parameter = node_parameter(self._session, job, task, row)
            if best is not None and best.counts is not None and len(best.counts) == 1:
                best = self._with_less(parameter, best.counts) or best
                continue
            found = self._smallest(parameter)
            if best is None or (found is not None and len(found.counts or ()) < len(best.counts or ())):
                best = found
        self._note("room", SMALLEST.sentence("tried capacity", {"nodes": counted(len(rows), "node")}), since)
        return best

    def _with_less(self, parameter: Parameter, counts: Mapping[str, int]) -> FoundChange | None:
        """Return the change of another node if it needs less of the one resource."""
        ((name, count),) = counts.items()
        if (
            count < 2
            or parameter.steps.get(name, 0) < count - 1
            or not self.trials.lets_in(parameter.at({name: count - 1}))
        ):
            return None
        fewest = self._fewest(lambda steps: parameter.at({name: steps}), 0, count - 1)
        return FoundChange(parameter.change({name: fewest}), parameter.at({name: fewest}), parameter, {name: fewest})

    # --- priorities ---------------------------------------------------------------------------------------------------

    def _priorities(self, job: Job) -> FoundChange | None:
        """Return the lowest priority that works, with the lowest class that gives one."""
        since, values = self.trials.decisions, _priorities_above(self._session, job)
        found = None

        def turned(steps: int) -> Snapshot:
            return with_priority(self._snapshot, job.key, values[steps])

        if values and self.trials.lets_in(turned(len(values) - 1)):
            at = self._fewest(turned, -1, len(values) - 1)
            before, after = {"": str(job.priority)}, {"": str(values[at])}
            change = Change("priority", job.key, "priority", before, after, self._class_from(job, values[at]))
            found = FoundChange(change, turned(at))
        code, facts = ("tried priorities", {"most": f"{values[-1]}"}) if values else ("tried no priority", {})
        self._note("priority", SMALLEST.sentence(code, facts), since)
        return found

    def _class_from(self, job: Job, value: int) -> str:
        """Return the lowest PriorityClass of at least a value if the job starts with it, too; empty if there is
        none."""
        classes = sorted((one.value, one.metadata.name) for one in _classes(self._session) if one.value >= value)
        if not classes or classes[0][0] > HIGHEST_PRIORITY:
            return ""
        least, name = classes[0]
        if least > value and not self.trials.lets_in(with_priority(self._snapshot, job.key, least)):
            return ""
        return f"PriorityClass {name}" + (f" has {least}" if least > value else "")

    # --- running jobs -------------------------------------------------------------------------------------------------

    def _remove_jobs(self, job: Job) -> FoundChange | None:
        """Try running jobs one after the other: the lowest priority first, then the fewest pods, then the youngest."""
        since = self.trials.decisions
        held = self._session.jobs.allocated  # at the beginning of the session
        running = [one for one in self._session.all_jobs() if one is not job and held[one.index].any()]
        running.sort(key=lambda one: (one.priority, one.task_count, -one.created, one.key))
        gone = self._first_helpful([one.key for one in running])
        # without all of them, other jobs may take their resources
        for one in running[:ONE_BY_ONE] if gone is None else ():
            if self.trials.lets_in(without_jobs(self._snapshot, [one.key])):
                gone = one.key
                break
        self._note("job", SMALLEST.sentence("tried jobs", {"count": counted(len(running), "running job")}), since)
        return (
            None if gone is None else FoundChange(Change("job", gone, "", {}, {}), without_jobs(self._snapshot, [gone]))
        )

    def _first_helpful(self, keys: list[str]) -> str | None:
        """Return the first of some jobs whose removal lets the job start. If removing all does not help, none is
        tried."""
        if not keys or not self.trials.lets_in(without_jobs(self._snapshot, keys)):
            return None
        if len(keys) == 1:
            return keys[0]
        half = len(keys) // 2
        return self._first_helpful(keys[:half]) or self._first_helpful(keys[half:])

    # --- amounts ------------------------------------------------------------------------------------------------------

    def _smallest(self, parameter: Parameter) -> FoundChange | None:
        """Return the smallest change of a parameter that works: of one resource if that is enough, else of as few as
        possible.

        The job's own needs are tried first: a larger change may let other jobs start, which take the resources. If
        neither that nor the maximum works, nothing in between is tried.
        """
        for most in (parameter.likely, parameter.steps) if parameter.likely != parameter.steps else (parameter.steps,):
            if most and self.trials.lets_in(parameter.at(most)):
                return self._less(parameter, most)
        return None

    def _less(self, parameter: Parameter, most: Mapping[str, int]) -> FoundChange:
        """Return the smallest change of a parameter, where ``most`` is known to work."""
        counts = dict(most)
        alone = (name for name in most if self.trials.lets_in(parameter.at({name: most[name]})))
        first = next(alone, None) if len(most) > 1 else None
        if first is not None:
            counts = {first: most[first]}
        for name in list(counts):
            low = 0 if len(counts) == 1 else -1  # with the other resources changed, this one may be unnecessary
            counts[name] = self._fewest(partial(_with_steps, parameter, dict(counts), name), low, counts[name])
        counts = {name: count for name, count in counts.items() if count}
        return FoundChange(parameter.change(counts), parameter.at(counts), parameter, counts)

    def _fewest(self, at: Callable[[int], Snapshot], low: int, high: int) -> int:
        """Return the fewest steps that work, where ``high`` is known to work and ``low`` is known not to."""
        width, first = 1, low
        while low + width < high:
            if self.trials.lets_in(at(low + width)):
                high = low + width
                break
            low += width
            width = 1 if low - first < STEP_BY_STEP else width * 2
        while high - low > 1:
            middle = (low + high) // 2
            if self.trials.lets_in(at(middle)):
                high = middle
            else:
                low = middle
        return high


def _bounded(kind: What, parameters: list[Parameter]) -> str:
    """Return how far the parameters of a kind were changed: ``labels of up to 8 nodes``."""
    most = max(parameter.steps.get("", 0) for parameter in parameters)
    if kind in ("cordon", "label"):
        return SMALLEST.sentence("tried nodes", {"kind": kind, "most": counted(most, "node")})
    if kind == "node":
        facts = {"most": f"{most}", "count": counted(len(parameters), "type")}
        return SMALLEST.sentence("tried types", facts)
    if kind == "tier":
        return SMALLEST["tried tier"]
    if kind == "minimum":
        return SMALLEST["tried minimum"]
    return counted(len(parameters), kind)


def _with_steps(parameter: Parameter, counts: Mapping[str, int], name: str, steps: int) -> Snapshot:
    return parameter.at({**counts, name: steps})


def _priorities_above(session: Session, job: Job) -> list[int]:
    """Return the priorities above a job's that matter: those of other jobs, one more than these, and those of
    classes."""
    known = {one.priority for one in session.all_jobs() if one is not job}
    known |= {value + 1 for value in known} | {one.value for one in _classes(session)}
    return sorted(value for value in known if job.priority < value <= HIGHEST_PRIORITY)


def _classes(session: Session) -> list[PriorityClass]:
    objects = session.snapshot.others.get("PriorityClass", {}).values()
    return [one for one in objects if isinstance(one, PriorityClass)]
