"""Pain 19: memory grows with what has been, not with what is there (volcano #4745, #3205)."""

from __future__ import annotations

import gc
import tracemalloc
from itertools import pairwise

from tests.dsl import NOW_NS, flat, gang, node, queue
from tests.sizes import WIDE
from vcd.model import events as ev
from vcd.model.manifests import defaulted
from vcd.model.projection_codec import encode_payload, from_manifest
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.decide import run
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.search.candidates import Memory
from vcd.scheduling.session.session import Session
from vcd.scheduling.session_close import plan_of
from vcd.state.cluster_state import ClusterState
from vcd.state.snapshot import SnapshotMaker

BATCH = 250
WARM, SETTLING, MEASURED = 3, 2, 5
ROUNDS = 80 if WIDE else 16
"""Batches of 250 jobs: 4,000 pods, or 20,000 in a wide run, and as many groups come and go. Memory is traced during a
part of them."""
SLACK = 100_000
"""Bytes that may come and go between two batches; a leak of 80 bytes a job would be more."""


class Churn:
    """Batches of jobs appear, are decided on, run and are deleted again; nothing keeps the log."""

    def __init__(self) -> None:
        self.state = ClusterState()
        self.maker = SnapshotMaker(self.state)
        self.memory = Memory()
        self.policy = read_policy(None)
        self.session: Session | None = None
        self.made = 0
        self._put(queue("default"), *[node(f"n{i}", cpu=64, pods=1000) for i in range(8)])

    def _put(self, *manifests: dict) -> list[tuple[str, str]]:
        keys = []
        for manifest in flat(manifests):
            kind, obj, version = from_manifest(defaulted(manifest))
            self._apply(ev.ObjectPut(kind, obj.key, version, encode_payload(obj)))
            keys.append((kind, obj.key))
        return keys

    def _apply(self, event: ev.Event) -> None:
        self.state.apply(self.state.sequence + 1, event)

    def decide(self) -> None:
        snapshot = self.maker.snapshot()
        self.session = run(snapshot, self.policy, NOW_NS, 0, self.memory)
        plan = ev.encode_plan(plan_of(self.session))
        number = self.state.session + 1
        self._apply(ev.SessionDecided(number, snapshot.sequence, "", NOW_NS, 0, 1, {}, plan))

    def batch(self) -> None:
        """Every job has names, labels and a shape of its own; every second one can never be placed."""
        keys = []
        for _ in range(BATCH):
            self.made += 1
            number = self.made
            requests = {"cpu": "100m" if number % 2 else "65"}
            container = {"name": "c", "image": f"image-{number}", "resources": {"requests": requests}}
            labels = {"job": f"j{number}"}
            job = gang(f"j{number}", 1, labels=labels, minimum={"cpu": "1"}, spec={"containers": [container]})
            keys.extend(self._put(*job))
        self.decide()
        for kind, key in keys:
            self._apply(ev.ObjectGone(kind, key))
        self.decide()

    def traced_after(self, batches: int) -> int:
        """Bytes in use after some more batches."""
        for _ in range(batches):
            self.batch()
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    def series(self) -> int:
        assert self.session is not None
        return sum(1 for plugin in framework_of(self.session).plugins for _ in plugin.gauges())

    def sizes(self) -> dict[str, int]:
        """How long the state's tables are."""
        state = self.state
        interners = {
            name: len(getattr(state, name).values)
            for name in ("node_names", "job_keys", "shapes", "label_sets", "namespaces", "schedulers")
        }
        kept = {name: len(getattr(state, name)) for name in ("groups", "queues", "waiting", "intents", "bad", "pods")}
        return {**interners, **kept, "rows": len(state.tasks.keys), "digests": sum(map(len, state.digests.values()))}


def test_tables_series_and_memory_are_as_large_as_what_is_there_at_once() -> None:
    churn = Churn()
    for _ in range(WARM):
        churn.batch()
    sizes, series = churn.sizes(), churn.series()
    tracemalloc.start()
    moments = [churn.traced_after(batches) for batches in (SETTLING, MEASURED, MEASURED)]
    tracemalloc.stop()
    for _ in range(ROUNDS - WARM - SETTLING - 2 * MEASURED):
        churn.batch()
    assert churn.made == ROUNDS * BATCH
    assert churn.sizes() == sizes
    assert sizes["rows"] == BATCH
    assert churn.series() == series
    growth = min(after - before for before, after in pairwise(moments))  # a table that grew once is no leak
    assert growth < SLACK
