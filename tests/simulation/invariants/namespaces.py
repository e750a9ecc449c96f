"""What admitted groups still ask for of their namespaces' quotas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from tests.reference.model import pod_requests
from tests.reference.values import quantity

Obj = dict[str, Any]


def still_asked(minimum: Mapping[str, Any] | None, pods: Iterable[Obj], used: Mapping[str, Any]) -> dict[str, Fraction]:
    """Return a group's minResources less what its own pods, given as manifests, have in a quota's ``status.used``."""
    own: Counter[str] = Counter()
    for pod in pods:
        if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
            own.update(pod_requests(pod, False))  # type: ignore[arg-type]
    return {
        name: max(quantity(text) - min(own[name], quantity(used.get(name, 0))), Fraction())
        for name, text in (minimum or {}).items()
    }
