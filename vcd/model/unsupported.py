"""The list of fields that vcd does not support, or only with a plugin that supports them (``Plugin.supports``).

Pods with an unsupported demand wait: they must not be placed as if it were not there. An unsupported wish is ignored,
and reported. docs/reference/unsupported.md has a row for each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vcd.model.objects import NetworkTopology, PodGroupSpec
from vcd.model.term_counts import MOST, terms_in_affinity, terms_in_spread

UsesField = Callable[[Any], bool]
"""Whether an object's spec uses a field."""


def _has_topology(spec: PodGroupSpec, *, soft: bool) -> bool:
    return _has_mode(spec.network_topology, soft=soft)


def _has_sub_group_topology(spec: PodGroupSpec, *, soft: bool) -> bool:
    return any(_has_mode(policy.network_topology, soft=soft) for policy in spec.sub_group_policy)


def _has_mode(topology: NetworkTopology | None, *, soft: bool) -> bool:
    return topology is not None and (topology.mode.lower() == "soft") is soft


DEMANDS: dict[str, dict[str, UsesField]] = {
    "Pod": {
        "spec.resourceClaims": lambda spec: bool(spec.resource_claims),
        "spec.workloadRef": lambda spec: spec.workload_ref is not None,
        "spec.schedulingGroup": lambda spec: spec.scheduling_group is not None,
        f"spec.affinity with more than {MOST} terms and requirements": lambda spec: terms_in_affinity(spec) > MOST,
        f"spec.topologySpreadConstraints with more than {MOST} constraints and requirements": (
            lambda spec: terms_in_spread(spec) > MOST
        ),
    },
    "PodGroup": {
        "spec.networkTopology": lambda spec: _has_topology(spec, soft=False),
        "spec.subGroupPolicy[].networkTopology": lambda spec: _has_sub_group_topology(spec, soft=False),
    },
}
"""Fields by kind that make pods wait.

DRA's devices, Kubernetes' own gangs, pods with too many terms, pods within one HyperNode (mode hard).
"""

WISHES: dict[str, dict[str, tuple[str, UsesField]]] = {
    "PodGroup": {
        "spec.networkTopology": (
            "pods near to each other (mode soft): they may be on any nodes",
            lambda spec: _has_topology(spec, soft=True),
        ),
        "spec.subGroupPolicy[].networkTopology": (
            "a sub-group's pods near to each other (mode soft): they may be on any nodes",
            lambda spec: _has_sub_group_topology(spec, soft=True),
        ),
    },
    "Queue": {
        "spec.dequeueStrategy": (
            "fifo: later groups are tried where the first one waits, as vc-scheduler does",
            lambda spec: spec.dequeue_strategy == "fifo",
        ),
        "spec.extendClusters": (
            "other clusters: pods are placed in this one",
            lambda spec: bool(spec.extend_clusters),
        ),
    },
}
"""Fields by kind that are ignored: what happens instead, and whether a spec has them."""


def demands(kind: str, spec: object) -> tuple[str, ...]:
    """Return the fields for which pods with this spec, or pods of a group with it, have to wait."""
    return tuple(path for path, uses_field in DEMANDS[kind].items() if uses_field(spec))


def wishes(kind: str, spec: object) -> tuple[str, ...]:
    """Return the ignored fields of a spec."""
    return tuple(path for path, (_, uses_field) in WISHES[kind].items() if uses_field(spec))


def describe_wish(kind: str, path: str) -> str:
    """Return a sentence about an ignored field."""
    return f"{path} is not supported and passed over ({WISHES[kind][path][0]})"
