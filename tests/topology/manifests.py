"""HyperNodes, and a cluster of racks, for tests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tests.dsl import Manifest, node

TIERS = """
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: predicates
  - name: network-topology-aware
"""
CONF = f'actions: "enqueue, allocate, backfill"{TIERS}'


def exact(name: str, kind: str = "Node") -> Manifest:
    """A member by its name."""
    return {"type": kind, "selector": {"exactMatch": {"name": name}}}


def hyper_node(name: str, tier: int, *members: Manifest | str, **spec: Any) -> Manifest:
    """A HyperNode; a member given as text is a node's name."""
    found = [exact(member) if isinstance(member, str) else member for member in members]
    return {
        "apiVersion": "topology.volcano.sh/v1alpha1",
        "kind": "HyperNode",
        "metadata": {"name": name},
        "spec": {"tier": tier, "members": found, **spec},
    }


def parent(name: str, tier: int, *children: str, **spec: Any) -> Manifest:
    """A HyperNode of other HyperNodes."""
    return hyper_node(name, tier, *[exact(child, "HyperNode") for child in children], **spec)


def racks(sizes: Iterable[int], **room: Any) -> Iterator[Manifest]:
    """Racks ``r0``, ``r1`` ... of tier 1 with nodes ``r0-n0`` ..., all in the HyperNode ``spine`` of tier 2."""
    names = []
    for rack, size in enumerate(sizes):
        names.append(f"r{rack}")
        nodes = [f"r{rack}-n{number}" for number in range(size)]
        yield hyper_node(f"r{rack}", 1, *nodes, tierName="rack")
        for name in nodes:
            yield node(name, labels={"rack": f"r{rack}", "zone": f"z{rack // 2}"}, **room)
    yield parent("spine", 2, *names, tierName="spine")


def hard(tier: int, **more: Any) -> Manifest:
    """A group's spec that requires one HyperNode of at most this tier."""
    return {"networkTopology": {"mode": "hard", "highestTierAllowed": tier, **more}}


SOFT: Manifest = {"networkTopology": {"mode": "soft"}}


def rack_of(node_name: str) -> str:
    """The rack of a node of ``racks``."""
    return node_name.partition("-")[0]
