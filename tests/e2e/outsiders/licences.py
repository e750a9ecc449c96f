"""A plugin of somebody else's: queues have so many licences of a program, and each pod that names one takes one."""

from collections import Counter

from vcd.model.reasons import Cause, ReasonCode
from vcd.model.status import ALLOCATED_STATUSES
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.framework.quotas import Quota
from vcd.scheduling.session.gauges import Gauge

LICENCE = "example.com/licence"
ONE = 1000
"""Amounts are in thousandths, as those of all scalar resources."""


def licence_of(task):
    return task.pod.metadata.annotations.get(LICENCE, "")


NONE_LEFT = ReasonCode("licences", Cause.QUEUE_CAPABILITY, "queue has no licence left")


class Licences(Quota):
    """Licences by program; a program that a queue does not name has none there."""

    def counted(self, session, jobs, requests):
        wanted = Counter(licence_of(task) for job in jobs for task in job.tasks())
        return {name: count * ONE for name, count in sorted(wanted.items()) if name}

    def used(self, session, task, name, row):
        return ONE if licence_of(task) == name else 0


QUOTA = Licences("example.com/licence.quota", "licence quota", closed=True)

NONE_LEFT = ReasonCode("licences", Cause.QUEUE_CAPABILITY, "queue has no licence left")


class LicencesPlugin(Plugin):
    """Holds queues to their licences."""

    name = "licences"
    keys = (LICENCE, QUOTA.annotation)
    quotas = (QUOTA,)
    series = (("example_licences_used", "Licences of a program that a queue's pods hold."),)

    def open(self, session):
        """Count what is held."""
        texts = {
            queue.name: queue.record.queue.metadata.annotations.get(QUOTA.annotation) for queue in session.queue_list
        }
        self.limits = {name: QUOTA.read(text) if text else {} for name, text in texts.items()}
        self.held = Counter()
        for job in session.all_jobs():
            for task in job.tasks():
                if task.status in ALLOCATED_STATUSES:
                    self.on_allocate([task], [task.node])

    def allocatable(self, queue, task, count):
        """Whether enough licences are left."""
        name = licence_of(task)
        held, limit = self.held[queue.name, name], self.limits[queue.name].get(name, 0)
        if not name or held + count * ONE <= limit:
            return None
        told = {"asks": count * ONE, "allocated": held, QUOTA.name: limit}
        return NONE_LEFT({"queue": queue.name}, [(role, name, amount) for role, amount in told.items()])

    def on_allocate(self, tasks, rows):
        """Licences are taken."""
        self._count(tasks, ONE)

    def on_deallocate(self, tasks, rows):
        """Licences are given back."""
        self._count(tasks, -ONE)

    def _count(self, tasks, each):
        for task in tasks:
            if licence_of(task):
                self.held[task.job.queue.name, licence_of(task)] += each

    def gauges(self):
        """What queues hold."""
        for (queue, name), held in sorted(self.held.items()):
            yield Gauge("example_licences_used", (("queue_name", queue), ("licence", name)), held / ONE)
