"""Limits of queues: quotas that only a plugin can count, and the limits that a reason is about."""

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
"""Names of limits that are not a plugin's quota: two fields of a queue, and the limit that all nodes allow."""


@dataclass(frozen=True)
class Quota:
    """A limit in an annotation of queues that only the plugin can count: amounts by name, as a JSON object.

    ``name`` is the limit's name, and the role of its amounts in the plugin's reasons. If ``closed``, names that are
    missing in the annotation have a limit of zero, otherwise none. A plan is not committed if the annotation, or the
    queue's use of the quota, changed since its snapshot. Explanations state how much more quota would be enough.
    """

    annotation: str
    name: str
    closed: bool = False

    def read(self, text: str) -> Amounts:
        """Return the amounts in the annotation's text. Raises ValueError."""
        return {name: resource_value(name, amount) for name, amount in json_mapping(text).items()}

    def written(self, amounts: Mapping[str, int]) -> str:
        """Return the annotation's text for some amounts."""
        return json.dumps({name: format_resource(name, amount) for name, amount in amounts.items()})

    def counted(self, session: Session, jobs: Iterable[Job], requests: Mapping[str, int]) -> Amounts:
        """Return the largest use of the quota by jobs with these ``requests`` by resource, by the quota's names."""
        return dict(requests)

    def used(self, session: Session, task: Task, name: str, row: int) -> int:
        """Return how much a task on a node uses of a name of the quota that is not a resource."""
        return 0


class QueueLimit(NamedTuple):
    """A limit that makes a job wait: the allowed amount, and what counts against it.

    ``bound`` is the kind of limit. ``queue`` and ``bound`` are empty if the reason does not name them. ``asks`` is the
    request. If the reason does not state the request, ``asks`` is None, and limits that are not exceeded are included,
    too.
    """

    queue: str
    bound: str
    resource: str
    asks: int | None
    taken: int
    limit: int

    @property
    def is_short(self) -> bool:
        """Whether this limit makes the job wait."""
        return self.asks is not None or self.taken >= self.limit


def limits_in(reason: Waiting, quotas: tuple[Quota, ...]) -> Iterator[QueueLimit]:
    """Yield the limits in a reason of a queue's gate that contains their amounts."""
    content = reason.reason
    if isinstance(content, str) or reason.gate not in ("queue", "enqueue"):
        return
    bounds = (CAPABILITY, DESERVED, OF_THE_CLUSTER, *[quota.name for quota in quotas])
    bound, limits = next(((role, found) for role in bounds if (found := content.amounts_of(role))), ("", {}))
    held = content.amounts_of("allocated") | content.amounts_of("admitted")
    requested, after, reserved, attempted = (
        content.amounts_of(role) for role in ("asks", "would hold", "reserved", "attempted")
    )
    for name in requested or {**limits, **held}:  # a reason omits zeros
        taken = held.get(name, 0) + reserved.get(name, 0) + attempted.get(name, 0)
        taken = max(after[name] - requested.get(name, 0), 0) if name in after else taken
        yield QueueLimit(
            dict(content.names).get("queue", ""), bound, name, requested.get(name), taken, limits.get(name, 0)
        )
