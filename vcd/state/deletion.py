"""Since when a pod that is being deleted has been asked to go."""

from __future__ import annotations

from vcd.model.objects import Pod
from vcd.state.records import seconds_of

_SECOND = 10**9
_GRACE = 30
"""Kubernetes' termination grace period where a pod states none, in seconds."""


def asked_since(pod: Pod, now: int) -> int:
    """When a pod that is being deleted was asked to go, in nanoseconds since the epoch.

    The API server writes that time plus the grace period, which who deletes it may choose. ``now`` where it shows
    nothing that can be read: the eviction has been decided, and the pod does not say so yet.
    """
    until = pod.metadata.deletion_timestamp
    if until is None:
        return now
    stated = pod.metadata.deletion_grace_period_seconds
    if stated is None:
        stated = pod.spec.termination_grace_period_seconds
    try:
        return (seconds_of(until) - (_GRACE if stated is None else stated)) * _SECOND
    except ValueError:
        return now
