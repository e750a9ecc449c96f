"""Discovery documents of the served groups, versions and resources, per path and aggregated."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from vcd.embedded.resource_types import Registry, ResourceType, Subresource

Object = dict[str, Any]

AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
VERSION: Final = {
    "major": "1", "minor": "36", "emulationMajor": "1", "emulationMinor": "36", "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "35", "gitVersion": "v1.36.0+vcd", "gitCommit": "", "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "", "platform": "python",
}  # fmt: skip


def wants_aggregated(accept: str) -> bool:
    """Return whether an Accept header prefers the aggregated form."""
    for choice in accept.split(","):
        plain = choice.replace(" ", "")
        if "as=APIGroupDiscoveryList" in plain and "v=v2" in plain.split(";") and "json" in plain:
            return True
        if plain == "application/json":
            return False
    return False


def versions(address: str) -> Object:
    """``/api``."""
    return {
        "kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    }  # fmt: skip


def _group(name: str, served: Iterable[str]) -> Object:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in served]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def groups(registry: Registry) -> Object:
    """``/apis``."""
    found = [_group(name, served) for name, served in registry.groups().items() if name]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": found}


def group(registry: Registry, name: str) -> Object | None:
    """``/apis/<group>``; None for a group that is not served."""
    served = registry.groups().get(name)
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, served)} if served else None


def resources(registry: Registry, group_name: str, version: str) -> Object | None:
    """``/api/v1`` and ``/apis/<group>/<version>``; None for what is not served."""
    types = registry.groups().get(group_name, {}).get(version)
    if types is None:
        return None
    listed = [item for rtype in sorted(types, key=lambda each: each.plural) for item in _listed(rtype)]
    where = {"apiVersion": "v1", "groupVersion": f"{group_name}/{version}"} if group_name else {"groupVersion": version}
    return {"kind": "APIResourceList", **where, "resources": listed}


def _listed(rtype: ResourceType) -> list[Object]:
    main: Object = {
        "name": rtype.plural, "singularName": rtype.singular_name, "namespaced": rtype.namespaced, "kind": rtype.kind,
        "verbs": list(rtype.verbs),
    }  # fmt: skip
    main |= _nicknames(rtype)
    if "get" in rtype.verbs:
        main["storageVersionHash"] = rtype.storage_hash
    return [main, *(_part(rtype, part) for part in rtype.subresources)]


def _nicknames(rtype: ResourceType) -> Object:
    names = {"shortNames": list(rtype.short_names), "categories": list(rtype.categories)}
    return {key: listed for key, listed in names.items() if listed}


def _part(rtype: ResourceType, part: Subresource) -> Object:
    foreign = part.version and (part.group, part.version) != (rtype.group, rtype.version)
    return {
        "name": f"{rtype.plural}/{part.name}", "singularName": "", "namespaced": rtype.namespaced,
        **({"group": part.group, "version": part.version} if foreign else {}),
        "kind": part.kind or rtype.kind, "verbs": list(part.verbs),
    }  # fmt: skip


def aggregated(registry: Registry, *, core: bool) -> Object:
    """``/api`` (``core``) or ``/apis`` as an APIGroupDiscoveryList."""
    items = []
    for name, served in registry.groups().items():
        if (name == "") != core:
            continue
        entries = [
            {
                "version": version,
                "resources": [_aggregated(rtype) for rtype in sorted(types, key=lambda each: each.plural)],
                "freshness": "Current",
            }
            for version, types in served.items()
        ]
        items.append({"metadata": {"name": name} if name else {}, "versions": entries})
    return {
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items
    }  # fmt: skip


def _aggregated(rtype: ResourceType) -> Object:
    made: Object = {
        "resource": rtype.plural,
        "responseKind": {"group": rtype.group, "version": rtype.version, "kind": rtype.kind},
        "scope": "Namespaced" if rtype.namespaced else "Cluster",
        "singularResource": rtype.singular_name,
        "verbs": list(rtype.verbs),
    }
    made |= _nicknames(rtype)
    if rtype.subresources:
        made["subresources"] = [
            {
                "subresource": part.name,
                "responseKind": {
                    "group": part.group if part.version else rtype.group,
                    "version": part.version or rtype.version,
                    "kind": part.kind or rtype.kind,
                },
                "verbs": list(part.verbs),
            }
            for part in rtype.subresources
        ]
    return made
