"""Which pods a ResourceQuota counts, how much each of them uses, and which limits refuse one.

Source: Kubernetes ``pkg/quota/v1/evaluator/core/pods.go``. Callers select pods by phase: a quota counts pods until they
have ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from vcd.model.controllers import Manifest
from vcd.model.objects import (
    Pod,
    PodAffinityTerm,
    PodSpec,
    Quantities,
    ResourceQuota,
    ResourceQuotaSpec,
    ScopeRequirement,
)
from vcd.model.podgroups import Amounts, quota_usage, unit_name
from vcd.model.projection_codec import from_manifest
from vcd.model.qos import has_best_effort_class
from vcd.model.quantity import QuantityError, resource_value

_PRIORITY_CLASS: Final = "PriorityClass"
_COMPUTE: Final = ("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory")
"""What each pod must declare in a namespace where a quota limits it."""


def quota_amounts(quantities: Quantities | Mapping[str, str]) -> Amounts:
    """Return quantities by the names of a quota, in the units of ``resource_value``, without invalid ones."""
    found: Amounts = {}
    for name, text in quantities.items():
        try:
            found[name] = resource_value(unit_name(name), text)
        except QuantityError:
            continue
    return found


def unstated(hard: Mapping[str, int], usage: Mapping[str, int]) -> list[str]:
    """Return what a pod must declare because a quota limits it, by name."""
    return sorted(name for name in hard if name in _COMPUTE and name not in usage)


def exceeded(hard: Mapping[str, int], used: Mapping[str, int], more: Mapping[str, int]) -> list[str]:
    """Return the limits of a quota that current usage plus ``more`` exceeds, by name."""
    return sorted(name for name in hard if more.get(name) and used.get(name, 0) + more[name] > hard[name])


def usage_of_quota(spec: PodSpec) -> dict[str, str]:
    """Return what one pod uses by the names that quotas limit, such as ``pods``, ``cpu`` and ``requests.cpu``."""
    return quota_usage(msgspec.to_builtins(spec), 1)


def usage_in_scope(quota: Manifest, pod: Manifest) -> Amounts:
    """Return what a pod uses of a quota, both as manifests; nothing if it is not in the quota's scopes.

    Raises BadObject if one of them is invalid.
    """
    limits, counted = from_manifest({**quota, "kind": "ResourceQuota"})[1], from_manifest({**pod, "kind": "Pod"})[1]
    assert isinstance(limits, ResourceQuota)
    assert isinstance(counted, Pod)
    return quota_amounts(usage_of_quota(counted.spec)) if is_in_scope(limits.spec, counted.spec) else {}


def is_in_scope(quota: ResourceQuotaSpec, spec: PodSpec) -> bool:
    """Whether a quota counts pods of this spec. A scope that Kubernetes does not define counts none."""
    selected = () if quota.scope_selector is None else quota.scope_selector.match_expressions
    scopes = (*[ScopeRequirement(name, "Exists") for name in quota.scopes], *selected)
    return all(_matches(scope, spec) for scope in scopes)


def _matches(scope: ScopeRequirement, spec: PodSpec) -> bool:
    if scope.scope_name == _PRIORITY_CLASS:
        return _matches_class(scope, spec.priority_class_name)
    is_of_scope = _SCOPES.get(scope.scope_name)
    return is_of_scope is not None and is_of_scope(spec)


def _matches_class(scope: ScopeRequirement, name: str) -> bool:
    is_listed = bool(name) and name in scope.values
    answers = {"In": is_listed, "NotIn": not is_listed, "Exists": bool(name), "DoesNotExist": not name}
    return answers.get(scope.operator, False)


def _has_deadline(spec: PodSpec) -> bool:
    return spec.active_deadline_seconds is not None and spec.active_deadline_seconds >= 0


def _reaches_other_namespaces(spec: PodSpec) -> bool:
    if spec.affinity is None:
        return False
    affinities = (spec.affinity.pod_affinity, spec.affinity.pod_anti_affinity)
    terms: list[PodAffinityTerm] = []
    for affinity in filter(None, affinities):
        terms += [*affinity.required, *[weighted.pod_affinity_term for weighted in affinity.preferred]]
    return any(term.namespaces or term.namespace_selector is not None for term in terms)


_SCOPES: Final[Mapping[str, Callable[[PodSpec], bool]]] = {
    "Terminating": _has_deadline,
    "NotTerminating": lambda spec: not _has_deadline(spec),
    "BestEffort": has_best_effort_class,
    "NotBestEffort": lambda spec: not has_best_effort_class(spec),
    "CrossNamespacePodAffinity": _reaches_other_namespaces,
}
