"""Which pods a ResourceQuota counts, and what each of them uses of it.

Source: Kubernetes ``pkg/quota/v1/evaluator/core/pods.go``. Which phases count is up to the caller: a quota counts pods
until they have ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from vcd.model.objects import PodAffinityTerm, PodSpec, ResourceQuotaSpec, ScopeRequirement
from vcd.model.podgroups import quota_usage
from vcd.model.qos import has_best_effort_class

_PRIORITY_CLASS: Final = "PriorityClass"


def usage_of_quota(spec: PodSpec) -> dict[str, str]:
    """Return what one pod uses by the names that quotas limit, such as ``pods``, ``cpu`` and ``requests.cpu``."""
    return quota_usage(msgspec.to_builtins(spec), 1)


def is_in_scope(quota: ResourceQuotaSpec, spec: PodSpec) -> bool:
    """Return whether a quota counts pods of this spec. A scope that Kubernetes does not define counts none."""
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
