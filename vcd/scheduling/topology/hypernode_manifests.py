"""HyperNodes as manifests, for domains that node labels declare."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from vcd.scheduling.topology.hypernode_members import HYPER_NODE, NODE
from vcd.scheduling.topology.tree import Declared, declared_by_labels
from vcd.state.node_facts import NodeFacts

_LONGEST_NAME = 50
_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")


def hyper_nodes_of(keys: Sequence[str], facts: NodeFacts) -> list[dict[str, Any]]:
    """Return manifests of the HyperNodes that node labels declare, the lowest tiers first, then by name.

    The nodes of a HyperNode are selected by labels. A HyperNode with parts has these as members, and its label selector
    only if some of its nodes lack the labels of the parts.
    """
    declared = {each.name: each for each in declared_by_labels(keys, facts)}
    found = [_manifest(each, _labels_of(each, keys, facts), declared) for each in declared.values()]
    return sorted(found, key=lambda manifest: (manifest["spec"]["tier"], manifest["metadata"]["name"]))


def _labels_of(domain: Declared, keys: Sequence[str], facts: NodeFacts) -> dict[str, str]:
    """Return the labels that all nodes of a domain have: those of its own key and of the keys before."""
    node = facts.nodes[int(domain.nodes.argmax())]
    return {key: node.metadata.labels[key] for key in keys[: keys.index(domain.tier_name) + 1]}


def _manifest(domain: Declared, labels: Mapping[str, str], declared: Mapping[str, Declared]) -> dict[str, Any]:
    children = [declared[name] for name in sorted(domain.children)]
    members: list[dict[str, Any]] = [
        {"type": HYPER_NODE, "selector": {"exactMatch": {"name": _name_of(child.name)}}} for child in children
    ]
    if sum(int(child.nodes.sum()) for child in children) < int(domain.nodes.sum()):
        members.append({"type": NODE, "selector": {"labelMatch": {"matchLabels": dict(labels)}}})
    return {
        "apiVersion": "topology.volcano.sh/v1alpha1",
        "kind": HYPER_NODE,
        "metadata": {"name": _name_of(domain.name)},
        "spec": {"tier": domain.tier, "tierName": domain.tier_name, "members": members},
    }


def _name_of(path: str) -> str:
    """Return a valid name for a domain's path, with a hash because equal names may result from different paths."""
    readable = _NOT_IN_NAMES.sub("-", path.lower()).strip("-")[:_LONGEST_NAME].strip("-")
    return f"{readable or 'hypernode'}-{hashlib.sha256(path.encode()).hexdigest()[:6]}"
