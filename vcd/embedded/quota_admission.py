"""Computes what objects use of the ResourceQuotas of their namespace, and refuses objects that exceed a quota.

A quota counts pods (by the rules of ``vcd.model.podquotas``), the storage that claims request, and objects of a kind by
number (``count/jobs.batch``, ``services``). As in an API server, the limits in its status apply; the controller
(``vcd.embedded.controllers.quota_controller``) copies them there. Source: ``pkg/quota/v1`` of Kubernetes and its
admission plugin for quotas.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from vcd.embedded.resource_types import ResourceType
from vcd.embedded.schema_codec import copy, name_of
from vcd.embedded.status_errors import forbidden
from vcd.embedded.watch_cache import Entry
from vcd.model.podgroups import Amounts, unit_name
from vcd.model.podquotas import exceeded, quota_amounts, unstated, usage_in_scope
from vcd.model.quantity import add, format_resource

Object = dict[str, Any]

RESOURCE: Final = "resourcequotas"
CLAIMS: Final = "persistentvolumeclaims"
PODS: Final = "pods"
_BY_NUMBER: Final = ("configmaps", CLAIMS, "replicationcontrollers", RESOURCE, "secrets", "services")
"""Resources that a quota also counts under their own name."""


def charges(rtype: ResourceType, obj: Object, entries: Iterable[Entry]) -> list[Object]:
    """Return the quotas of its namespace with a new object counted in their status; only those that count it.

    Raises StatusError 403 for an object that exceeds one of them, or does not state what one of them limits.
    """
    found = []
    for quota in [entry.obj for entry in entries] if rtype.namespaced else ():
        status = quota.get("status") or {}
        hard, used = (quota_amounts(status.get(name) or {}) for name in ("hard", "used"))
        usage = usage_of(rtype.storage, obj, quota)
        more = {name: amount for name, amount in usage.items() if name in hard and amount}
        if usage and rtype.storage == PODS and (missing := unstated(hard, usage)):
            raise _refused(rtype, obj, f"failed quota: {name_of(quota)}: must specify {','.join(missing)}")
        if names := exceeded(hard, used, more):
            amounts = {"requested": more, "used": {name: used.get(name, 0) for name in names}, "limited": hard}
            parts = [f"{what}: {_listed(each, names)}" for what, each in amounts.items()]
            raise _refused(rtype, obj, f"exceeded quota: {name_of(quota)}, {', '.join(parts)}")
        if more:
            add(used, more)
            found.append(with_status(quota, used))
    return found


def usage_of(storage: str, obj: Object, quota: Object) -> Amounts:
    """Return what an object uses of a quota, by the quota's names; nothing if it is not in the quota's scopes."""
    if storage == PODS:
        return usage_in_scope(quota, obj)
    limits = quota.get("spec") or {}
    if limits.get("scopes") or limits.get("scopeSelector"):
        return {}  # scopes apply to pods only
    usage = {f"count/{storage}": "1", **({storage: "1"} if storage in _BY_NUMBER else {})}
    if storage == CLAIMS:
        spec = obj.get("spec") or {}
        requests = (spec.get("resources") or {}).get("requests") or {}
        usage["requests.storage"] = requests.get("storage", "0")
        if class_name := spec.get("storageClassName"):
            prefix = f"{class_name}.storageclass.storage.k8s.io"
            usage[f"{prefix}/requests.storage"] = usage["requests.storage"]
            usage[f"{prefix}/{CLAIMS}"] = "1"
    return quota_amounts(usage)


def with_status(quota: Object, used: Amounts) -> Object:
    """Return a quota whose status has the limits of its specification, and ``used`` of them."""
    hard = (quota.get("spec") or {}).get("hard") or {}
    written = {name: format_resource(unit_name(name), used.get(name, 0)) for name in hard}
    return {**quota, "metadata": copy(quota["metadata"]), "status": {"hard": copy(hard), "used": written}}


def resources_of(quota: Object) -> Iterator[str]:
    """Yield the resources whose objects a quota counts, each once."""
    hard = (quota.get("spec") or {}).get("hard") or {}
    names = {name.removeprefix("count/") for name in hard if name.startswith("count/")}
    names |= {name for name in hard if name in _BY_NUMBER}
    if any(name == "requests.storage" or "storageclass.storage.k8s.io/" in name for name in hard):
        names.add(CLAIMS)
    yield from sorted({PODS, *names})


def _refused(rtype: ResourceType, obj: Object, why: str) -> Exception:
    return forbidden(rtype.resource, name_of(obj), why)


def _listed(amounts: Amounts, names: Iterable[str]) -> str:
    return ",".join(f"{name}={format_resource(unit_name(name), amounts[name])}" for name in names)
