"""A slow, independent reading of HyperNodes and groups from manifests, and the laws that every plan has to obey.

Nothing here uses vcd: domains are sets of node names.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tests.dsl import Manifest


class Domain(NamedTuple):
    """Nodes within a HyperNode, with what its children contain."""

    name: str
    tier: int
    nodes: frozenset[str]


def domains_of(objects: Iterable[Manifest]) -> list[Domain]:
    """The HyperNodes of a cluster, by tier and name. Members that are wrong are left out."""
    nodes: list[Manifest] = []
    found: dict[str, Manifest] = {}
    for each in objects:
        if each["kind"] == "Node":
            nodes.append(each)
        elif each["kind"] == "HyperNode":
            found[each["metadata"]["name"]] = each["spec"]
    ordered = sorted(found, key=lambda name: (found[name]["tier"], name))
    within: dict[str, set[str]] = {}
    taken: set[str] = set()
    for name in ordered:
        within[name] = set()
        for member in found[name]["members"]:
            selector = member["selector"]
            if member["type"] == "Node":
                within[name] |= {each["metadata"]["name"] for each in nodes if _selects(selector, each["metadata"])}
            elif "exactMatch" in selector:
                child = selector["exactMatch"]["name"]
                if child in found and found[child]["tier"] < found[name]["tier"] and child not in taken:
                    taken.add(child)
                    within[name] |= within[child]
    return [Domain(name, found[name]["tier"], frozenset(within[name])) for name in ordered]


def _selects(selector: Manifest, meta: Manifest) -> bool:
    if "exactMatch" in selector:
        return bool(selector["exactMatch"]["name"] == meta["name"])
    if "regexMatch" in selector:
        return re.search(selector["regexMatch"]["pattern"], meta["name"]) is not None
    wanted, labels = selector["labelMatch"], meta.get("labels") or {}
    needs = [(key, "In", [value]) for key, value in (wanted.get("matchLabels") or {}).items()]
    needs += [(need["key"], need["operator"], need.get("values")) for need in wanted.get("matchExpressions") or ()]
    return bool(needs) and all(_meets(labels.get(key), operator, values) for key, operator, values in needs)


def _meets(value: str | None, operator: str, values: list[str]) -> bool:
    if operator in ("In", "NotIn"):
        return (value in values) == (operator == "In")
    return (value is not None) == (operator == "Exists")


def tier_around(domains: Iterable[Domain], nodes: Iterable[str]) -> int | None:
    """The lowest tier of a domain that holds all these nodes; None if none does."""
    wanted = set(nodes)
    return min((domain.tier for domain in domains if wanted <= domain.nodes), default=None)


def group_of(pod: Manifest) -> str:
    """The key of a pod's group."""
    meta = pod["metadata"]
    name = (meta.get("annotations") or {}).get("scheduling.k8s.io/group-name", "")
    return f"{meta.get('namespace', 'default')}/{name}"


def key_of(obj: Manifest) -> str:
    """Namespace and name."""
    return f"{obj['metadata'].get('namespace', 'default')}/{obj['metadata']['name']}"


def nodes_by_group(objects: Iterable[Manifest], placed: Mapping[str, str]) -> dict[str, set[str]]:
    """The nodes of each group's pods: where they run, or where the plan placed them."""
    found: dict[str, set[str]] = defaultdict(set)
    for pod in objects:
        if pod["kind"] == "Pod":
            node = placed.get(key_of(pod)) or pod["spec"].get("nodeName")
            if node:
                found[group_of(pod)].add(node)
    return found
