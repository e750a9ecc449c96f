"""Law: row order is by key, never by arrival: what came first, or what was there before, changes no plan."""

from __future__ import annotations

import random
from typing import Any

from tests.dsl import NOW_NS, flat, gang, group, node, queue
from tests.reference.clusters import random_case
from tests.sizes import seeds
from vcd.model import events as ev
from vcd.model.manifests import default_queues, defaulted
from vcd.model.projection_codec import encode_payload, from_manifest
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.decide import decide
from vcd.state.cluster_state import ClusterState
from vcd.state.snapshot import SnapshotMaker

CLUSTERS = seeds(10, 250)

PASSERS_BY = flat(
    [
        node("passing-node", cpu=64, **{"example.com/odd": 3}),
        queue("passing-queue", weight=9, capability={"example.com/odder": "1"}),
        gang("passing", 7, cpu=1, labels={"app": "web"}, requests={"cpu": "1", "example.com/oddest": "1"}),
        group("passing-alone", phase="Pending", minimum={"example.com/last": 1}),
    ]
)


class Fold:
    """Events applied one after the other."""

    def __init__(self) -> None:
        self.state = ClusterState()

    def put(self, manifests: list[dict[str, Any]]) -> None:
        for manifest in manifests:
            kind, obj, version = from_manifest(defaulted(manifest))
            self._apply(ev.ObjectPut(kind, obj.key, version, encode_payload(obj)))

    def remove(self, manifests: list[dict[str, Any]]) -> None:
        for manifest in manifests:
            kind, obj, _ = from_manifest(defaulted(manifest))
            self._apply(ev.ObjectGone(kind, obj.key))

    def _apply(self, event: ev.Event) -> None:
        self.state.apply(self.state.sequence + 1, event)

    def plan(self, conf: str) -> bytes:
        return ev.encode_plan(decide(SnapshotMaker(self.state).snapshot(), read_policy(conf), NOW_NS, 0))


def cluster(seed: int) -> tuple[list[dict[str, Any]], str]:
    case = random_case(seed)
    return [*case.objects, *default_queues(case.objects)], case.conf


def test_the_order_of_events_does_not_matter() -> None:
    for seed in CLUSTERS:
        objects, conf = cluster(seed)
        straight, shuffled = Fold(), Fold()
        straight.put(objects)
        shuffled.put(random.Random(seed).sample(objects, len(objects)))
        assert straight.plan(conf) == shuffled.plan(conf), f"seed {seed}"


def test_what_was_there_before_and_left_its_rows_does_not_matter() -> None:
    for seed in CLUSTERS:
        objects, conf = cluster(seed)
        order = random.Random(seed)
        straight, reused = Fold(), Fold()
        straight.put(objects)
        half = len(objects) // 2
        mixed = order.sample(objects, len(objects))
        reused.put(order.sample(PASSERS_BY, len(PASSERS_BY)))
        reused.put(mixed[:half])
        reused.remove(order.sample(PASSERS_BY, len(PASSERS_BY)))
        gone = mixed[: half // 2]
        reused.remove(gone)
        reused.put(mixed[half:] + gone)
        assert straight.plan(conf) == reused.plan(conf), f"seed {seed}"


def test_equal_folds_have_equal_dumps() -> None:
    for seed in CLUSTERS[::5]:
        objects, _ = cluster(seed)
        straight, shuffled = Fold(), Fold()
        straight.put(objects)
        shuffled.put(random.Random(seed).sample(objects, len(objects)))
        assert straight.state.dump() == shuffled.state.dump(), f"seed {seed}"
