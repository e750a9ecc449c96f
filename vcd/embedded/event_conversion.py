"""Converts Events between ``v1``, in which they are stored, and ``events.k8s.io/v1``."""

from __future__ import annotations

from typing import Any, Final

Object = dict[str, Any]

# core/v1 name -> events.k8s.io/v1 name
_RENAMED: Final = {
    "involvedObject": "regarding",
    "message": "note",
    "reportingComponent": "reportingController",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
}
_BACK: Final = {new: old for old, new in _RENAMED.items()}
CORE: Final = "v1"
GROUP: Final = "events.k8s.io/v1"


def to_group(event: Object) -> Object:
    """Convert a stored event to ``events.k8s.io/v1``."""
    return {**{_RENAMED.get(key, key): value for key, value in event.items()}, "apiVersion": GROUP}


def to_core(event: Object) -> Object:
    """Convert an ``events.k8s.io/v1`` event to the stored form."""
    return {**{_BACK.get(key, key): value for key, value in event.items()}, "apiVersion": CORE}
