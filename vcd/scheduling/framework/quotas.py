"""Limits of queues: those that only a plugin can count, and what its reasons tell of any."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from vcd.model.annotations import json_mapping
from vcd.model.events import Waiting
from vcd.model.quantity import format_resource, resource_value
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job, Task

Amounts = dict[str, int]

CAPABILITY, DESERVED, OF_THE_CLUSTER = "capability", "deserved", "limit"
"""What a limit is called that is no plugin's quota: two fields of a queue, and what all nodes allow."""


@dataclass(frozen=True)
class Quota:
    """A limit of queues that only the plugin can count: an annotation of theirs with amounts by name, as a JSON object.

    ``name`` is what it is called, also as the role of its amounts in the plugin's reasons. ``closed``:
    what the annotation does not name is zero, else without limit. A plan that counted by another text, or by another
    use of the queue, is not committed; explanations tell how much more would do.
    """

    annotation: str
    name: str
    closed: bool = False

    def read(self, text: str) -> Amounts:
        """The amounts that a text states. Raises ValueError."""
        return {name: resource_value(name, amount) for name, amount in json_mapping(text).items()}

    def written(self, amounts: Mapping[str, int]) -> str:
        """The text that states amounts."""
        return json.dumps({name: format_resource(name, amount) for name, amount in amounts.items()})

    def counted(self, session: Session, jobs: Iterable[Job], requests: Mapping[str, int]) -> Amounts:
        """What jobs may come to by the names of the quota, whose ``requests`` by resource are these."""
        return dict(requests)

    def used(self, session: Session, task: Task, name: str, row: int) -> int:
        """How much a task takes on a node of what it names, where that is no resource."""
        return 0


class QueueLimit(NamedTuple):
    """A limit that keeps a job out: what ``bound`` allows, and what counts against it already.

    ``queue`` and ``bound`` are empty where the reason does not name them; ``asks`` is None where it does not tell, and
    then limits are told that are not short, too.
    """

    queue: str
    bound: str
    resource: str
    asks: int | None
    taken: int
    limit: int

    @property
    def is_short(self) -> bool:
        """Whether it is this one that keeps the job out."""
        return self.asks is not None or self.taken >= self.limit


def limits_in(reason: Waiting, quotas: tuple[Quota, ...]) -> Iterator[QueueLimit]:
    """The limits of which a reason at a queue's gate tells the numbers."""
    said = reason.reason
    if isinstance(said, str) or reason.gate not in ("queue", "enqueue"):
        return
    bounds = (CAPABILITY, DESERVED, OF_THE_CLUSTER, *[quota.name for quota in quotas])
    bound, limits = next(((role, found) for role in bounds if (found := said.amounts_of(role))), ("", {}))
    held = said.amounts_of("allocated") | said.amounts_of("admitted")
    asked, after, reserved, attempted = (
        said.amounts_of(role) for role in ("asks", "would hold", "reserved", "attempted")
    )
    for name in asked or {**limits, **held}:  # what is zero is left out
        taken = held.get(name, 0) + reserved.get(name, 0) + attempted.get(name, 0)
        taken = max(after[name] - asked.get(name, 0), 0) if name in after else taken
        yield QueueLimit(dict(said.names).get("queue", ""), bound, name, asked.get(name), taken, limits.get(name, 0))
