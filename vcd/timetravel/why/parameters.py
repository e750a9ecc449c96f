"""Parameters that can be changed step by step to let a job start: quotas of queues, the resources of a node."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import msgspec
import numpy as np

from vcd.model.objects import Guarantee, altered
from vcd.model.quantity import format_resource, is_disk_or_huge_pages, per_unit
from vcd.model.resource_requests import CPU, MEMORY
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.framework.quotas import Amounts, Quota
from vcd.scheduling.session.queue_view import Queue
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job, Task
from vcd.state.snapshot import Snapshot
from vcd.state.sums import sum_of
from vcd.timetravel.why.snapshotchanges import Change, What, with_queue, with_resources

_BASIC = (CPU, MEMORY)
_MIB = 1024 * 1024


class Parameter(msgspec.Struct, frozen=True):
    """A parameter: its quantities by resource as they are ``now``, changed in steps of one ``unit`` (negative:
    downwards).

    ``steps`` are the most steps, ``likely`` as many as the job's own needs amount to; ``turned`` returns the snapshot
    with other quantities, ``shown`` formats one. A step may also concern one more of some ``nodes``, in order.
    """

    what: What
    subject: str
    field: str
    now: Amounts
    unit: Amounts
    likely: Amounts
    steps: Amounts
    turned: Callable[[Amounts], Snapshot]
    shown: Callable[[str, int], str] = format_resource
    nodes: tuple[str, ...] = ()

    def at(self, counts: Mapping[str, int]) -> Snapshot:
        """Return the snapshot after some steps."""
        return self.turned(self._amounts(counts))

    def change(self, counts: Mapping[str, int]) -> Change:
        """Return the change of some steps."""
        after = {name: self.shown(name, amount) for name, amount in self._amounts(counts).items()}
        before = {name: self.shown(name, self.now[name]) for name in after}
        return Change(self.what, self.subject, self.field, before, after, nodes=self.nodes[: counts.get("", 0)])

    def _amounts(self, counts: Mapping[str, int]) -> Amounts:
        return {name: max(self.now[name] + self.unit[name] * count, 0) for name, count in counts.items() if count}


def _unit_of(resource: str) -> int:
    """Return a whole unit of a resource: a cpu, a Mi of bytes, a pod, a card."""
    if resource == MEMORY or is_disk_or_huge_pages(resource):
        return _MIB
    return per_unit(resource)


class _Needs(msgspec.Struct, frozen=True):
    """What a job waits for (``own``, without zeros), and the sum of what all jobs hold, wait for and state as their
    minimum: no job ever needs more."""

    own: Amounts
    all: Amounts

    @classmethod
    def of(cls, session: Session, job: Job) -> _Needs:
        """Return the needs of a job in a session."""
        jobs, names = session.jobs, session.nodes.resources
        own = np.maximum(jobs.pending[job.index], jobs.min_resources[job.index]).tolist()
        total = sum_of(jobs.allocated + jobs.pending + jobs.min_resources).tolist()
        needed = {name: amount for name, amount in zip(names, own, strict=True) if amount}
        return cls(needed, dict(zip(names, total, strict=True)))


def _steps(amounts: Mapping[str, int], unit: Amounts, most: Mapping[str, int]) -> Amounts:
    """Return quantities in whole units, rounded up, as far as ``most`` allows."""
    counts = {name: min(-(-amounts[name] // abs(each)), most.get(name, _ANY)) for name, each in unit.items()}
    return {name: count for name, count in counts.items() if count > 0}


_ANY = 2**62


def quota_parameters(session: Session, job: Job) -> Iterator[tuple[str, list[Parameter]]]:
    """Yield the parameters of the quotas of the job's queue, then of its parents, then of the guarantees of other
    queues.

    Weights are quotas, too: plugins divide resources by weight.
    """
    needs, lineage = _Needs.of(session, job), session.lineage(job.queue)
    for queue in lineage:
        parameters = [_field_parameter(session, queue, "capability", needs)]
        parameters += _plugin_quotas(session, job, queue, needs)
        parameters += [_field_parameter(session, queue, field, needs) for field in ("deserved", "guarantee")]
        parameters.append(_weight_parameter(session, queue))
        yield queue.name, [parameter for parameter in parameters if parameter.steps]
    for queue in session.queue_list:
        if queue not in lineage and any(queue.record.guarantee.get(name) for name in needs.own):
            yield queue.name, [_lowered(session, queue, needs)]


def _with_amounts(session: Session, queue: Queue, field: str, amounts: Amounts) -> Snapshot:
    stated = getattr(queue.record.queue.spec, field)
    before = stated.resource if isinstance(stated, Guarantee) else stated
    after = {**before, **{name: format_resource(name, amount) for name, amount in amounts.items()}}
    whole = Guarantee(resource=after) if isinstance(stated, Guarantee) else after
    return with_queue(session.snapshot, altered(queue.record.queue, spec={field: whole}))


def _field_parameter(session: Session, queue: Queue, field: str, needs: _Needs) -> Parameter:
    """Return a queue's capability, deserved or guarantee as a parameter, upwards; the latter two up to the
    capability."""
    capability = queue.record.capability
    now: Amounts = {name: getattr(queue.record, field).get(name, 0) for name in needs.own}
    bounds: list[Mapping[str, int]] = []
    if field == "capability":  # an unset capability is no limit
        limits_zero = any(plugin.limits_zero for plugin in framework_of(session).plugins)
        silent = () if limits_zero else _BASIC
        now = {name: most for name, most in now.items() if most or (name in capability and name not in silent)}
    else:
        bounds.append({name: most for name, most in capability.items() if most})
    if field == "guarantee":
        bounds.append(_left_to_guarantee(session, queue))
    unit = {name: _unit_of(name) for name in now}
    most = {name: min((bound.get(name, _ANY) - now[name]) // unit[name] for bound in (*bounds, {})) for name in now}
    likely, steps = _steps(needs.own, unit, most), _steps(needs.all, unit, most)
    return Parameter(
        "quota", queue.name, field, now, unit, likely, steps, partial(_with_amounts, session, queue, field)
    )


def _left_to_guarantee(session: Session, queue: Queue) -> Amounts:
    """Return what the guarantees of other queues leave of the cluster: more cannot be guaranteed."""
    totals = zip(session.nodes.resources, session.nodes.total.tolist(), strict=True)
    apart = [
        one for one in session.queue_list if one not in session.lineage(queue) and queue not in session.lineage(one)
    ]
    return {name: total - sum(one.record.guarantee.get(name, 0) for one in apart) for name, total in totals}


def _lowered(session: Session, queue: Queue, needs: _Needs) -> Parameter:
    """Return another queue's guarantee as a parameter, downwards."""
    now = {name: queue.record.guarantee[name] for name in needs.own if queue.record.guarantee.get(name)}
    unit = {name: -_unit_of(name) for name in now}
    most = _steps(now, unit, {})
    turned = partial(_with_amounts, session, queue, "guarantee")
    return Parameter("quota", queue.name, "guarantee", now, unit, _steps(needs.own, unit, most), most, turned)


def _weight_parameter(session: Session, queue: Queue) -> Parameter:
    """Return a queue's weight as a parameter, up to a hundred times that of all queues together."""

    def turned(amounts: Amounts) -> Snapshot:
        return with_queue(session.snapshot, altered(queue.record.queue, spec={"weight": amounts[""]}))

    total, most = sum(max(one.weight, 1) for one in session.queue_list), {"": 2**31 - 1 - queue.weight}
    unit, now = {"": 1}, {"": queue.weight}
    likely, steps = _steps({"": total}, unit, most), _steps({"": 100 * total}, unit, most)
    return Parameter("quota", queue.name, "weight", now, unit, likely, steps, turned, lambda _, value: str(value))


def _plugin_quotas(session: Session, job: Job, queue: Queue, needs: _Needs) -> Iterator[Parameter]:
    """Yield the quotas of a queue that only plugins count. Unreadable ones are skipped, since no number fixes them."""
    metadata = queue.record.queue.metadata
    for quota in [each for plugin in framework_of(session).plugins for each in plugin.quotas]:
        text = metadata.annotations.get(quota.annotation)
        try:
            stated = {} if text is None else quota.read(text)
            own = quota.counted(session, [job], needs.own)
            most = quota.counted(session, session.all_jobs(), needs.all)
        except ValueError:
            continue
        now = {name: stated.get(name, 0) for name in own if quota.closed or name in stated}
        unit = {name: _unit_of(name) for name in now}

        def turned(amounts: Amounts, quota: Quota = quota, stated: Amounts = stated) -> Snapshot:
            texts = {**metadata.annotations, quota.annotation: quota.written({**stated, **amounts})}
            return with_queue(session.snapshot, altered(queue.record.queue, metadata={"annotations": texts}))

        likely, steps = _steps(own, unit, {}), _steps(most, unit, {})
        yield Parameter("quota", queue.name, quota.name, now, unit, likely, steps, turned)


def node_parameter(session: Session, job: Job, task: Task, row: int) -> Parameter:
    """Return a node's resources as a parameter, by no more than the largest node has or one pod requests: with more,
    the limit would no longer be that of one node."""
    facts, needs, column_of = session.nodes.facts, _Needs.of(session, job), session.nodes.column_of
    now = {name: int(facts.allocatable[row, column_of[name]]) for name in needs.own}
    unit = {name: _unit_of(name) for name in now}
    most = {
        name: -(-max(int(facts.largest[column_of[name]]), int(task.request[column_of[name]])) // unit[name])
        for name in now
    }
    name = facts.names[row]

    def turned(amounts: Amounts) -> Snapshot:
        return with_resources(session.snapshot, name, {key: amount - now[key] for key, amount in amounts.items()})

    likely, steps = _steps(needs.own, unit, most), _steps(needs.all, unit, most)
    return Parameter("room", name, "room", now, unit, likely, steps, turned)
