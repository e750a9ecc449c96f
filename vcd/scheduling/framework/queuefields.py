"""Fields of Queues that the plugins of a configuration read, and fields that queues set without effect.

A plugin declares its fields in ``Plugin.queue_fields``. This module decides nothing: findings are reported by Events on
queues, by ``vcd plan`` and by ``vcd conf check``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from vcd.model.objects import ROOT_QUEUE, Queue, QueueSpec
from vcd.scheduling.framework import registry
from vcd.scheduling.framework.policy import Policy
from vcd.scheduling.session.object_problems import Problem

_EMPTY_SPEC = QueueSpec()
_DEFAULTED = {"weight": (1,), "parent": (ROOT_QUEUE,)}
"""Values that the API server writes if a user sets none."""


def unread_queue_fields(policy: Policy) -> dict[str, list[str]]:
    """Return the fields of a Queue's spec that no configured plugin reads, each with the plugins that would read it."""
    kinds, readers = registry.plugins(), dict[str, list[str]]()
    for name, kind in sorted(kinds.items()):
        for field in kind.queue_fields:
            readers.setdefault(field.partition("?")[0], []).append(name)
    for option in (option for tier in policy.tiers for option in tier):
        for field, _, flag in (each.partition("?") for each in kinds[option.name].queue_fields):
            if not flag or option.enabled.get(flag, False):
                readers.pop(field, None)
    return dict(sorted(readers.items()))


def find_unread_fields(policy: Policy, queues: Iterable[tuple[str, QueueSpec]]) -> Iterator[Problem]:
    """Yield a problem for each field that a queue, given by name and spec, sets without effect."""
    readers = unread_queue_fields(policy)
    unstated = {field: (getattr(_EMPTY_SPEC, field), *_DEFAULTED.get(field, ())) for field in readers}
    for name, spec in queues:
        for field, plugins in readers.items():
            if getattr(spec, field) not in unstated[field]:
                text = f"spec.{field} has no effect: no plugin that is on reads it; {', '.join(plugins)} would"
                yield Problem("Queue", name, text)


def check_queues(policy: Policy, queues: Iterable[Queue]) -> list[str]:
    """Return a sentence for each field that a queue sets without effect."""
    found = find_unread_fields(policy, ((queue.key, queue.spec) for queue in queues))
    return [f"queue {problem.key}: {problem.message}" for problem in found]
