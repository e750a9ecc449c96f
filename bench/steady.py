"""Sessions of a running scheduler without a change, or with one new pod, among many running or waiting jobs.

Each value is the median of five sessions including the snapshot; the scheduler has the caches of the daemon.
"""

from __future__ import annotations

import gc
import heapq
import statistics
import time
from collections.abc import Callable, Iterable, Iterator

from bench.clusters import Manifest, nodes, queues
from bench.session import DEFAULT
from bench.table import Row, row, show
from vcd.daemon.options import Options
from vcd.model.events import ObjectGone, ObjectPut, Plan, SessionDecided, encode_plan
from vcd.model.projection_codec import encode_payload, from_manifest
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.decide import decide
from vcd.scheduling.search.candidates import Memory
from vcd.scheduling.statement_verification import stale_statements
from vcd.state.snapshot import Snapshot, SnapshotMaker
from vcd.timetravel.planning import state_of

_SESSIONS = 5
_BORN = "2026-01-01T00:00:00Z"


class Scheduler:
    """A state with the caches of a scheduler, after its first sessions."""

    def __init__(self, objects: Iterable[Manifest], conf: str = DEFAULT) -> None:
        self.state = state_of(objects)
        self.state.settings = Options().settings()
        self._policy = read_policy(conf)
        self._maker = SnapshotMaker(self.state)
        self._memory = Memory()
        self._sessions = self._newcomers = 0
        for _ in range(3):
            self.fold(*self.decide())

    def decide(self) -> tuple[Snapshot, Plan]:
        """Decide a session on the current state."""
        self._sessions += 1
        snapshot = self._maker.snapshot()
        return snapshot, decide(snapshot, self._policy, self._sessions, 0, self._memory)

    def verify(self, snapshot: Snapshot, plan: Plan) -> None:
        """Verify a plan, decided from a snapshot, against the current state."""
        stale_statements(plan, self._maker.snapshot(), snapshot)

    def fold(self, snapshot: Snapshot, plan: Plan) -> None:
        """Fold a session into the state."""
        decided = SessionDecided(
            self._sessions, snapshot.sequence, self._policy.digest, self._sessions, 0, 0, {}, encode_plan(plan)
        )
        self.state.apply(self.state.sequence + 1, decided)

    def create_job(self) -> None:
        """Create a pod in a PodGroup of its own."""
        self._newcomers += 1
        self.put(_job(f"new-{self._newcomers}", "q0", "1", "Inqueue"))

    @property
    def newest(self) -> str:
        """Return the key of the last pod that ``create_job`` created."""
        return f"bench/new-{self._newcomers}"

    def is_bound(self, key: str) -> bool:
        """Return whether a session bound a pod."""
        return key in self.state.intents

    def put(self, objects: Iterable[Manifest]) -> None:
        """Create objects."""
        for manifest in objects:
            kind, obj, version = from_manifest(manifest)
            self.state.apply(self.state.sequence + 1, ObjectPut(kind, obj.key, version, encode_payload(obj)))

    def delete(self, objects: Iterable[Manifest]) -> None:
        """Delete objects of the namespace ``bench``."""
        for manifest in objects:
            gone = ObjectGone(manifest["kind"], f"bench/{manifest['metadata']['name']}")
            self.state.apply(self.state.sequence + 1, gone)

    def session(self) -> float:
        """Decide a session and fold it; return the seconds of the decision."""
        gc.collect()
        gc.freeze()
        began = time.perf_counter()
        snapshot, plan = self.decide()
        took = time.perf_counter() - began
        self.fold(snapshot, plan)
        return took

    def newcomer(self) -> float:
        """Return the seconds of a session with one new pod."""
        self.create_job()
        return self.session()


def _job(name: str, queue: str, cpu: str, phase: str, node: str = "") -> Iterator[Manifest]:
    """Yield a PodGroup and its single pod."""
    meta = {"name": name, "namespace": "bench", "uid": name, "creationTimestamp": _BORN}
    running = {"phase": "Running"}
    yield {
        "kind": "PodGroup",
        "metadata": meta,
        "spec": {"minMember": 1, "queue": queue, "minResources": {"cpu": cpu}},
        "status": {"phase": phase, **({"running": 1} if node else {})},
    }
    requests = {"requests": {"cpu": cpu, "memory": "1Gi"}}
    yield {
        "kind": "Pod",
        "metadata": {**meta, "annotations": {"scheduling.k8s.io/group-name": name}, "labels": {"app": name}},
        "spec": {
            "schedulerName": "volcano",
            "containers": [{"name": "c", "image": "pause", "resources": requests}],
            **({"nodeName": node} if node else {}),
        },
        "status": running if node else {"phase": "Pending"},
    }


def running_jobs(count: int, node_count: int) -> Iterator[Manifest]:
    """Yield running jobs of one pod in ten queues."""
    yield from nodes(node_count, cpu=64)
    yield from queues(10)
    for number in range(count):
        yield from _job(f"job-{number}", f"q{number % 10}", "1", "Running", f"node-{number % node_count:05}")


def waiting_jobs(count: int, node_count: int, kinds: int, queue_count: int) -> Iterator[Manifest]:
    """Yield full nodes, and waiting jobs of several kinds."""
    yield from nodes(node_count, cpu=8)
    yield from queues(queue_count)
    for number in range(node_count):
        yield from _job(f"full-{number}", "q0", "8", "Running", f"node-{number:05}")
    for number in range(count):
        kind = number % kinds
        yield from _job(f"job-{number}", f"q{kind % queue_count}", f"{1000 + kind}m", "Inqueue")


def _figures(what: str, objects: Iterable[Manifest], peer: float | None, goals: tuple[float, float]) -> Iterator[Row]:
    scheduler = Scheduler(objects)
    sessions: tuple[tuple[str, Callable[[], float]], ...] = (
        ("nothing happens", scheduler.session),
        ("one newcomer", scheduler.newcomer),
    )
    for (name, session), goal in zip(sessions, goals, strict=True):
        milliseconds = statistics.median(session() for _ in range(_SESSIONS)) * 1000
        yield row(f"{what}: {name}", milliseconds, "ms", None if peer is None else peer * 1000, goal)


def bare_loop(node_count: int, pod_count: int) -> float:
    """Return the seconds in which plain Python places equal pods: with a heap of nodes by score, it takes the best
    feasible node for each pod, updates its usage and score, and records the bind."""
    took = []
    for _ in range(_SESSIONS):
        began = time.perf_counter()
        total = (32_000, 256 << 30, 256)
        asked = (1000, 1 << 30, 1)
        idle = [list(total) for _ in range(node_count)]
        heap = [(-200.0, number) for number in range(node_count)]
        binds = []
        for pod in range(pod_count):
            while heap:
                number = heap[0][1]
                left = idle[number]
                if all(have >= want for have, want in zip(left, asked, strict=True)):
                    break
                heapq.heappop(heap)
            else:
                break
            for column, want in enumerate(asked):
                left[column] -= want
            cpu, memory = left[0] / total[0], left[1] / total[1]
            heapq.heapreplace(heap, (-(100 * (cpu + memory) / 2 + 100 * (1 - abs(cpu - memory))), number))
            binds.append({"verb": "bind", "key": f"bench/pod-{pod}", "node": f"node-{number:05}"})
        took.append(time.perf_counter() - began)
    return statistics.median(took)


def run() -> list[Row]:
    """Measure and return the rows."""
    running, waiting = "50,000 running groups of one pod, 5,000 nodes", "equal pending groups, 500 full nodes"
    return [
        *_figures(running, running_jobs(50_000, 5000), 5.0, (5, 25)),
        *_figures(f"40,000 {waiting}", waiting_jobs(40_000, 500, 1, 1), None, (20, 50)),
        *_figures(f"10,000 {waiting}", waiting_jobs(10_000, 500, 1, 1), 9.5, (20, 50)),
        *_figures(
            "40,000 pending groups of 400 kinds in 200 queues", waiting_jobs(40_000, 500, 400, 200), None, (100, 100)
        ),
        row("a bare loop: 5,000 nodes, 10,000 pods", bare_loop(5000, 10_000), "s"),
        row("a bare loop: 20,000 nodes, 100,000 pods", bare_loop(20_000, 100_000), "s"),
    ]


if __name__ == "__main__":
    show(run())
