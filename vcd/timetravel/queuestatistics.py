"""What queues have allocated, request and deserve in a session, as the plugins count it."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from vcd.model import events as ev
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.session.gauges import Gauge, JobGauge
from vcd.scheduling.session.nodes import Ints
from vcd.scheduling.session.session import Session
from vcd.state.sums import sums_by
from vcd.text.amounts import number


class QueueStatistics(msgspec.Struct, omit_defaults=True):
    """The statistics of one queue.

    ``amounts`` has, by series (``allocated``, ``deserved`` ...), whole numbers by resource: cpu and scalars in
    thousandths, bytes as such, cards by model. A series that no plugin counts is missing; a missing resource is
    unlimited in ``capability`` and ``real_capability``, and zero elsewhere. ``share`` is the value by which the
    queue's plugin orders queues (None: no plugin does).
    """

    name: str
    weight: int
    state: str
    parent: str = ""
    share: float | None = None
    overused: bool = False
    amounts: dict[str, dict[str, int]] = {}

    def quantity(self, series: str, resource: str) -> str:
        """Return a quantity as text; ``no limit`` if there is none."""
        amounts = self.amounts.get(series, {})
        if resource not in amounts and "capability" in series:
            return "no limit"
        return number(resource, amounts.get(resource, 0))


def queue_statistics(session: Session) -> dict[str, QueueStatistics]:
    """Return the statistics of all queues at the end of a session, by name, in order."""
    found = {
        queue.name: QueueStatistics(queue.name, queue.weight, queue.state or "Open", queue.record.queue.spec.parent)
        for queue in session.queue_list
    }
    for name, amounts in held_by_queue(session, allocated_now(session)).items():
        found[name].amounts["allocated"] = amounts
        guarantee = session.queues[name].record.guarantee
        if guarantee:
            found[name].amounts["guarantee"] = dict(sorted(guarantee.items()))
    for plugin in framework_of(session).plugins:
        _take(plugin.gauges(), found)
    for figures in found.values():  # plugins also report a queue as overused that has and requests nothing
        figures.overused &= any(figures.amounts.get("allocated", {}).values())
    return found


def held_back(figures: dict[str, QueueStatistics], session: Session, plan: ev.Plan) -> dict[str, QueueStatistics]:
    """Return the same, with ``overused`` only if a job of the queue, or of one below it, waits at the queue gate. A
    queue that has its deserved share while no job waits for more is not a problem."""
    if not any(one.overused for one in figures.values()):
        return figures
    waits = ev.waits_after(session.snapshot.waiting, plan.waiting)
    waiting: set[str] = set()
    for key, reasons in waits.items():
        record = session.snapshot.groups.get(key)
        if record is None or not any(reason.gate == "queue" for reason in reasons):
            continue
        queue = session.queue_name_of(record)
        while queue in figures and queue not in waiting:
            waiting.add(queue)
            queue = figures[queue].parent
    for one in figures.values():
        one.overused &= one.name in waiting
    return figures


def allocated_now(session: Session) -> Ints:
    """Return what each job holds at this moment of the session."""
    held = session.jobs.allocated.copy()
    moved = [job for job in session.views.jobs() if job.touched]
    if moved:
        held[[job.index for job in moved]] = [job.allocated for job in moved]
    return held


def held_by_queue(session: Session, held: Ints) -> dict[str, dict[str, int]]:
    """Return what the jobs of each queue hold, by resource; ``held`` has it by job."""
    names = session.nodes.resources
    sums = sums_by(session.jobs.queue, held, len(session.queue_list))
    return {
        queue.name: {name: int(value) for name, value in zip(names, sums[queue.index], strict=True) if value}
        for queue in session.queue_list
    }


def _take(gauges: Iterable[Gauge | JobGauge], found: dict[str, QueueStatistics]) -> None:
    counted: dict[tuple[str, str], dict[str, int]] = {}
    for figure in [gauge.figure for gauge in gauges if isinstance(gauge, Gauge) and gauge.figure is not None]:
        figures = found.get(figure.queue)
        if figures is None:
            continue
        if figure.resource:
            counted.setdefault((figures.name, figure.series), {})[figure.resource] = round(figure.value)
        elif figure.series == "share":
            figures.share = figure.value
        elif figure.series == "overused":
            figures.overused = bool(figure.value)
    for (queue, series), amounts in counted.items():
        found[queue].amounts[series] = amounts
