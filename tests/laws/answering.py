"""A world whose server also shows what sessions write: statuses of groups and queues come back as watch events."""

from __future__ import annotations

import msgspec

from tests.world import World
from vcd.model import events as ev
from vcd.model.objects import Condition, PodGroupStatus
from vcd.model.projection_codec import encode_payload


class Answering(World):
    """A World that comes to rest also while groups wait, since their conditions are shown."""

    def cycle(self) -> ev.Plan:
        """One session, carried out whole: binds, evictions, and the statuses that it decided."""
        plan = super().cycle()
        for status in plan.groups:
            self._show_group(status)
        for usage in plan.queues:
            self._show_queue(usage)
        return plan

    def finish(self, *keys: str, phase: str = "Succeeded") -> None:
        """Running pods end."""
        for key in keys:
            self.update_pod(key, phase=phase)

    def _show_group(self, wanted: ev.GroupStatus) -> None:
        record = self.state.groups.get(wanted.key)
        if record is None:
            return
        conditions = record.group.status.conditions
        if wanted.condition is not None:
            new = Condition(*wanted.condition)
            conditions = (*[shown for shown in conditions if shown.type != new.type], new)
        status = PodGroupStatus(wanted.phase, conditions, wanted.running, wanted.succeeded, wanted.failed)
        group = msgspec.structs.replace(record.group, status=status)
        self.happen(ev.ObjectPut("PodGroup", wanted.key, "", encode_payload(group)))

    def _show_queue(self, usage: ev.QueueUsage) -> None:
        queue = self.state.queues[usage.name].queue
        status = msgspec.structs.replace(queue.status, allocated=usage.allocated)
        changed = msgspec.structs.replace(queue, status=status)
        self.happen(ev.ObjectPut("Queue", usage.name, "", encode_payload(changed)))
