"""The Kubernetes roles that a configuration needs for reading."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from vcd.model.kinds import Kind
from vcd.scheduling.framework.policy import Policy
from vcd.scheduling.framework.registry import kinds_read

Manifest = dict[str, Any]

_VERBS = ("list", "watch")
_GROUP = "rbac.authorization.k8s.io"


def roles_for(policy: Policy, account: str, namespace: str) -> list[Manifest]:
    """Return roles and bindings that let a ServiceAccount list and watch exactly the kinds that a policy reads.

    Kinds that are read as a whole are in a ClusterRole; kinds of which only one namespace is read are in a Role there.
    """
    kinds = kinds_read(policy)
    places = sorted({kind.namespace for kind in kinds})
    subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
    found: list[Manifest] = []
    for place in places:
        name = f"{account}-reads"
        metadata = {"name": name, "namespace": place} if place else {"name": name}
        role = "Role" if place else "ClusterRole"
        rules = list(_rules(kind for kind in kinds if kind.namespace == place))
        reference = {"apiGroup": _GROUP, "kind": role, "name": name}
        found.append({"apiVersion": f"{_GROUP}/v1", "kind": role, "metadata": metadata, "rules": rules})
        found.append(
            {
                "apiVersion": f"{_GROUP}/v1",
                "kind": f"{role}Binding",
                "metadata": metadata,
                "roleRef": reference,
                "subjects": [subject],
            }
        )
    return found


def _rules(kinds: Iterable[Kind]) -> Iterator[Manifest]:
    """Yield a rule for each API group and each named object."""
    whole: dict[tuple[str, str], list[str]] = {}
    for kind in kinds:
        whole.setdefault((kind.group, kind.object), []).append(kind.plural)
    for (group, name), plurals in sorted(whole.items()):
        rule: Manifest = {"apiGroups": [group], "resources": sorted(set(plurals))}
        yield rule | ({"resourceNames": [name]} if name else {}) | {"verbs": list(_VERBS)}
