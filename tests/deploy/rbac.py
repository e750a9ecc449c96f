"""Who may do what under a set of rendered RBAC manifests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple


class Grant(NamedTuple):
    """One thing that is allowed. `namespace` empty: in all of them; `name` empty: objects of any name."""

    verb: str
    group: str
    resource: str
    namespace: str
    name: str


def grants(manifests: Iterable[dict[str, Any]], service_account: str, namespace: str) -> set[Grant]:
    """All that the roles bound to a ServiceAccount allow it."""
    found = list(manifests)
    roles = {(m["kind"], m["metadata"].get("namespace", ""), m["metadata"]["name"]): m for m in found}
    result: set[Grant] = set()
    for binding in found:
        if binding["kind"] not in {"ClusterRoleBinding", "RoleBinding"}:
            continue
        subjects = [(s["kind"], s["name"], s.get("namespace", "")) for s in binding["subjects"]]
        if ("ServiceAccount", service_account, namespace) not in subjects:
            continue
        scope = binding["metadata"].get("namespace", "")
        kind = binding["roleRef"]["kind"]
        role = roles[kind, scope if kind == "Role" else "", binding["roleRef"]["name"]]
        result.update(rule_grants(role["rules"], scope))
    return result


def rule_grants(rules: list[dict[str, list[str]]], namespace: str) -> Iterator[Grant]:
    """The rules of one role about resources, spelled out."""
    for rule in rules:
        for group in rule.get("apiGroups", ()):
            for resource in rule.get("resources", ()):
                for verb in rule["verbs"]:
                    for name in rule.get("resourceNames", [""]):
                        yield Grant(verb, group, resource, namespace, name)


def allows(granted: set[Grant], request: Grant) -> bool:
    """Whether a request (with the namespace and name that it names, if any) is covered."""
    return any(
        (g.verb, g.group, g.resource) == (request.verb, request.group, request.resource)
        and g.namespace in {"", request.namespace}
        and g.name in {"", request.name}
        for g in granted
    )
