"""The time at which a pod's deletion was requested."""

from __future__ import annotations

from vcd.model.objects import Pod
from vcd.model.wording import SECOND
from vcd.state.records import seconds_of

_GRACE = 30
"""Kubernetes' default termination grace period, in seconds."""


def asked_since(pod: Pod, now: int) -> int:
    """Return when the deletion of a terminating pod was requested, in nanoseconds since the epoch.

    The API server stores that time plus the grace period, which the deleting client may choose. Return ``now`` if there
    is no valid time: the eviction is decided, and the pod is not marked for deletion yet.
    """
    until = pod.metadata.deletion_timestamp
    if until is None:
        return now
    stated = pod.metadata.deletion_grace_period_seconds
    if stated is None:
        stated = pod.spec.termination_grace_period_seconds
    try:
        return (seconds_of(until) - (_GRACE if stated is None else stated)) * SECOND
    except ValueError:
        return now
