"""A plugin of somebody else's: jobs that are urgent come first, then those with the earlier deadline."""

from vcd.scheduling.framework.order import Label, labelled, yes_or_no
from vcd.scheduling.framework.plugin import Plugin

URGENT, DEADLINE = "example.com/urgent", "example.com/deadline"
NEVER = 10**6


def in_minutes(minutes):
    return f"minute {minutes}" if minutes < NEVER else "none"


class DeadlinesPlugin(Plugin):
    """Orders jobs by two annotations of their group."""

    name = "deadlines"
    keys = (URGENT, DEADLINE)

    @labelled(
        Label("urgent", "is urgent", "is not urgent", lambda waits: yes_or_no(not waits)),
        Label("deadline", "earlier deadline", "later deadline", in_minutes),
    )
    def job_order(self, job):
        """Urgent ones first, then the earlier deadline."""
        annotations = job.record.group.metadata.annotations
        return (URGENT not in annotations, int(annotations.get(DEADLINE, NEVER)))
