"""Which pods of a plan the ResourceQuotas of their namespace refuse, as the API server does when pods are created.

Each workload is judged alone, and so is each pod without one: a plan does not know which of several workloads creates
its pods first, nor whether enqueue holds one of them back. A note names the quotas that are too small for all of them
together. Source: package ``apiserver/pkg/admission/plugin`` of Kubernetes, its quota plugin.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from vcd.model.objects import Pod, ResourceQuota, altered
from vcd.model.podgroups import Amounts, add_quotas
from vcd.model.podquotas import exceeded, is_in_scope, quota_amounts, unstated, usage_of_quota
from vcd.model.quantity import QuantityError, add
from vcd.model.resource_requests import pod_requests
from vcd.text.manifest_templates import MANIFESTS

_ENDED = ("Succeeded", "Failed")


class PlannedQuotas:
    """The quotas of a plan, and what the created pods use of them."""

    def __init__(self, quotas: Iterable[ResourceQuota]) -> None:
        self.by_key = {quota.key: quota for quota in sorted(quotas, key=lambda each: each.key)}
        self._quotas: dict[str, list[ResourceQuota]] = {}
        for quota in self.by_key.values():
            self._quotas.setdefault(quota.metadata.namespace, []).append(quota)
        self._total: dict[str, Amounts] = {}

    def refused(self, pods: Iterable[Pod]) -> dict[str, str]:
        """Return why pods of one workload are refused, by their keys; the others are created, in the given order."""
        found: dict[str, str] = {}
        used: dict[str, Amounts] = {}
        for pod in pods:
            quotas = [each for each in self._quotas.get(pod.metadata.namespace, ()) if is_in_scope(each.spec, pod.spec)]
            if not quotas or not _is_readable(pod):
                continue
            usage = quota_amounts(usage_of_quota(pod.spec))
            refusals = (_refusal(each, usage, used.get(each.key, {})) for each in quotas)
            if refusal := next(filter(None, refusals), ""):
                found[pod.key] = refusal
                continue
            for quota in quotas:
                for total in (used, self._total):
                    add(total.setdefault(quota.key, {}), usage)
        return found

    def notes(self) -> list[str]:
        """Return a sentence for each quota that is too small for all pods that the plan creates."""
        short = [(quota, _exceeded(quota, self._total.get(quota.key, {}))) for quota in self.by_key.values()]
        return [
            MANIFESTS.sentence("quota short", {"quota": quota.key, "names": ", ".join(names)})
            for quota, names in short
            if names
        ]


def with_quota_status(quota: ResourceQuota, pods: Iterable[Pod]) -> ResourceQuota:
    """Return a quota with the status that its controller would write for existing pods, unless it has one."""
    if quota.status.hard:
        return quota
    there = [pod for pod in pods if pod.metadata.namespace == quota.metadata.namespace]
    counted = [pod for pod in there if pod.status.phase not in _ENDED and is_in_scope(quota.spec, pod.spec)]
    used = add_quotas(usage_of_quota(pod.spec) for pod in counted)
    status = {"hard": quota.spec.hard, "used": {name: used.get(name, "0") for name in quota.spec.hard}}
    return altered(quota, status=status)


def _is_readable(pod: Pod) -> bool:
    """Return whether a pod's requests can be parsed; otherwise it is set aside when it is folded into the state."""
    try:
        pod_requests(pod.spec)
    except QuantityError:
        return False
    return True


def _refusal(quota: ResourceQuota, usage: Amounts, used: Amounts) -> str:
    """Return why a quota refuses a pod, in addition to ``used`` by its workload; empty if it does not."""
    if missing := unstated(quota_amounts(quota.status.hard), usage):
        return MANIFESTS.sentence("quota unstated", {"quota": quota.key, "names": ", ".join(missing)})
    together = dict(usage)
    add(together, {name: amount for name, amount in used.items() if name in usage})
    if names := _exceeded(quota, together):
        limits = ", ".join(f"{name} {quota.status.hard[name]}" for name in names)
        return MANIFESTS.sentence("quota exceeded", {"quota": quota.key, "limits": limits})
    return ""


def _exceeded(quota: ResourceQuota, more: Mapping[str, int]) -> list[str]:
    """Return the limits that the usage plus ``more`` exceeds."""
    return exceeded(quota_amounts(quota.status.hard), quota_amounts(quota.status.used), more)
