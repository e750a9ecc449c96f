"""Whether pods that terminate count against their queue (docs/laws.md, law 7)."""

from __future__ import annotations

import json

import pytest

from tests.dsl import gang, node, planned, queue
from tests.plugins.opened import conf

CARD, GPU = "NVIDIA-H200", "nvidia.com/gpu"


@pytest.mark.parametrize(("plugin", "bound"), [("capacity", 4), ("proportion", 4), ("capacity-card", 0)])
@pytest.mark.parametrize("resource", ["cpu", "gpu"])
def test_only_capacity_card_counts_pods_that_terminate(plugin: str, bound: int, resource: str) -> None:
    """A queue that may have 4 pods' worth holds 4 that terminate, and 4 more wait for it on an idle node."""
    limit = queue("q", capability={"cpu": "4", "nvidia.com/gpu": "4"})
    limit["metadata"]["annotations"] = {"volcano.sh/card.quota": json.dumps({CARD: 4})}
    labels = {f"{GPU}.product": CARD, f"{GPU}.memory": "81920"}
    nodes = [node(name, labels=labels, **{"cpu": 64, "memory": 64, GPU: 8}) for name in "nm"]
    asks = {"queue": "q", resource: 1, "memory": 1, "annotations": {"volcano.sh/card.name": CARD}}
    if resource == "cpu":
        del asks["annotations"]
    going = gang("going", 4, on=["n"] * 4, phase="Running", deleting=True, **asks)
    settled = conf("gang", "predicates", plugin, actions="allocate")
    result = planned(*nodes, limit, going, gang("new", 4, **asks), conf=settled)
    assert len(result.binds) == bound
