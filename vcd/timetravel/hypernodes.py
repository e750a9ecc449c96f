"""HyperNodes for the node labels in manifests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from vcd.scheduling.topology.hypernode_manifests import hyper_nodes_of
from vcd.state.snapshot import SnapshotMaker
from vcd.timetravel.planning import state_of


def hyper_nodes_for(manifests: Iterable[Any], keys: Sequence[str]) -> list[dict[str, Any]]:
    """Return the HyperNodes that labels of the nodes in manifests describe; ``keys`` has the widest label first."""
    return hyper_nodes_of(keys, SnapshotMaker(state_of(manifests)).snapshot().facts)
