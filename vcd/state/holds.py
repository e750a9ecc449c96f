"""Holds: what keeps resources, a node or an eviction from jobs that could use them (docs/laws.md, law 8).

Whatever the scheduler holds back or remembers between sessions is described by a ``Hold``: it has an owner, a kind,
which is its reason, and an end. The underlying records stay where they are folded (intents, nominations, evictions,
bind back-off, admissions). This module only defines their common form, for reasons and for the test of law 8.
"""

from __future__ import annotations

import enum

import msgspec


class HoldKind(enum.StrEnum):
    """Why something is held; the value is used in reasons, JSON and metrics."""

    BIND = "bind"
    """A bind that the API server has not confirmed. Ends with the outcome of the call."""
    NOMINATION = "nomination"
    """Capacity on a node for which a pod waits until others, mostly evicted ones, have terminated.

    Ends when the pod is bound or deleted, or cannot use the node.
    """
    BACKOFF = "backoff"
    """A pod whose bind failed is not tried before ``until``. It holds no resources."""
    ADMISSION = "admission"
    """Resources of an admitted group for pods that do not exist yet. Ends when they do, or at ``until``."""
    IMMUNITY = "immunity"
    """A replacement of an evicted pod is not evicted again for ``owner``.

    Ends when the owner ended or has its resources.
    """
    GUARANTEE = "guarantee"
    """The unused part of a queue's guarantee.

    Ends when the queue uses it, its specification changes, or it takes no work any more (not Open, or misconfigured).
    """
    SHARE = "share"
    """The unused part of a queue's deserved share, for demand that can be placed. Ends with that demand."""


class Hold(msgspec.Struct, frozen=True, omit_defaults=True):
    """One hold: ``owner`` is the key of the PodGroup or the name of the queue that benefits.

    ``subject`` is what is held (a pod's or a group's key, or empty). ``node`` is the node's name if the hold is on one
    node. ``resources`` are quantities in the units of ``vcd.model.resource_requests``. ``until`` is the end in ns since
    the epoch (0: it ends with an event, see its kind).
    """

    kind: HoldKind
    owner: str
    subject: str = ""
    node: str = ""
    resources: dict[str, int] = {}
    until: int = 0
