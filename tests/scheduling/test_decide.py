"""decide(): pure, the same whatever the order of arrival or the hash seed, and whole though a plugin fails."""

from __future__ import annotations

import gc
import os
import random
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from tests.dsl import NOW_NS, flat, gang, node, pod, priority_class, queue
from tests.reasons import because
from tests.reference.clusters import random_case
from tests.world import World
from vcd.model import events as ev
from vcd.model.manifests import default_queues, defaulted
from vcd.model.projection_codec import encode_payload, from_manifest
from vcd.model.reasons import Reason
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.decide import decide, run, versions
from vcd.scheduling.framework import registry
from vcd.scheduling.framework.declared_reasons import all_told
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.search.candidates import Memory
from vcd.scheduling.session.queue_view import Queue
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job, Task
from vcd.state.cluster_state import ClusterState
from vcd.state.snapshot import Snapshot, SnapshotMaker
from vcd.timetravel.planning import state_of

Manifest = dict[str, Any]
ROOT = Path(__file__).resolve().parents[2]


def cluster() -> list[Manifest]:
    return flat(
        [
            *[node(f"n{i}", cpu=8, labels={"zone": "ab"[i % 2]}) for i in range(6)],
            *[queue("q1", weight=2), queue("q2", capability={"cpu": "6"}), priority_class("high", 9)],
            gang("old", 4, on=["n0", "n1", "n2"], cpu=2, queue="q1"),
            gang("leaving", 2, on=["n3", "n4"], cpu=7, deleting=True),
            gang("a", 4, members=2, cpu=2, queue="q1", created=1),
            gang("b", 3, cpu=3, queue="q2", created=1, phase="Pending", minimum={"cpu": 9}),
            gang("c", 5, members=1, cpu=1, queue="q1", created=1, group_spec={"priorityClassName": "high"}),
            gang("d", 2, queue="q2", created=1),
            gang("e", 1, cpu=64, created=1),
        ]
    )


def plan_bytes(snapshot: Snapshot, conf: str | None = None, **options: Any) -> bytes:
    return ev.encode_plan(decide(snapshot, read_policy(conf), NOW_NS, 0, **options))


def arrived(manifests: list[Manifest]) -> ClusterState:
    """The state after objects came one by one, in the order given."""
    state = ClusterState()
    for manifest in [*default_queues(manifests), *manifests]:
        kind, obj, version = from_manifest(defaulted(manifest))
        state.apply(state.sequence + 1, ev.ObjectPut(kind, obj.key, version, encode_payload(obj)))
    return state


def snapshot_of(manifests: list[Manifest]) -> Snapshot:
    return SnapshotMaker(arrived(manifests)).snapshot()


# --- docs/laws.md, law 5 ---------------------------------------------------------------------------------------------


def test_the_order_of_arrival_changes_no_byte() -> None:
    manifests = cluster()
    expected = plan_bytes(snapshot_of(manifests))
    rand = random.Random(7)
    for _ in range(10):
        rand.shuffle(manifests)
        assert plan_bytes(snapshot_of(manifests)) == expected


def test_objects_that_came_and_went_change_no_byte() -> None:
    state = arrived(cluster())
    for manifest in flat([node("aa", gpu=3), gang("gone", 3, cpu=1, created=0, labels={"x": "y"})]):
        kind, obj, version = from_manifest(defaulted(manifest))
        state.apply(state.sequence + 1, ev.ObjectPut(kind, obj.key, version, encode_payload(obj)))
        state.apply(state.sequence + 1, ev.ObjectGone(kind, obj.key))
    assert plan_bytes(SnapshotMaker(state).snapshot()) == plan_bytes(snapshot_of(cluster()))


def test_the_same_snapshot_gives_the_same_bytes_again_and_stays_as_it_was() -> None:
    snapshot = snapshot_of(cluster())
    before = snapshot.tasks.status.tobytes(), snapshot.tasks.node.tobytes(), dict(snapshot.groups)
    assert plan_bytes(snapshot) == plan_bytes(snapshot)
    assert (snapshot.tasks.status.tobytes(), snapshot.tasks.node.tobytes(), dict(snapshot.groups)) == before


def test_now_does_not_matter_without_a_timed_plugin() -> None:
    snapshot, policy = snapshot_of(cluster()), read_policy(None)
    assert decide(snapshot, policy, 0, 0) == decide(snapshot, policy, NOW_NS, 0)


def test_the_seed_orders_equal_nodes_only() -> None:
    snapshot, policy = snapshot_of(cluster()), read_policy(None)
    plans = [decide(snapshot, policy, NOW_NS, seed) for seed in range(8)]
    bound = [[op.key for s in plan.statements for op in s.operations if op.verb == "bind"] for plan in plans]
    assert all(keys == bound[0] for keys in bound)
    assert len({ev.encode_plan(plan) for plan in plans}) > 1


_SCRIPT = """
import hashlib, sys
from tests.reference.clusters import random_case
from tests.scheduling.test_decide import cluster, plan_bytes
from vcd.state.snapshot import SnapshotMaker
from vcd.timetravel.planning import state_of
digest = hashlib.sha256()
for objects, conf in [(cluster(), None), *[(c.objects, c.conf) for c in map(random_case, range(25))]]:
    digest.update(plan_bytes(SnapshotMaker(state_of(objects)).snapshot(), conf))
sys.stdout.write(digest.hexdigest())
"""


def test_the_hash_seed_changes_no_byte() -> None:
    digests = {
        subprocess.run(
            [sys.executable, "-c", _SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "4242")
    }
    assert len(digests) == 1
    assert len(digests.pop()) == 64


# --- memory ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(0, 60, 3))
def test_memory_of_other_sessions_changes_no_byte(seed: int) -> None:
    """One memory sees three clusters, and each again after a change."""
    memory = Memory()
    for number in (seed, seed + 1, seed):
        case = random_case(number)
        snapshot = SnapshotMaker(state_of(case.objects)).snapshot()
        assert plan_bytes(snapshot, case.conf, memory=memory) == plan_bytes(snapshot, case.conf)


def test_a_session_that_is_asked_after_the_next_one_answers_for_itself_and_leaves_no_trace() -> None:
    """As where the daemon asks a session that it was told late why a group waits."""
    in_x = {"nodeSelector": {"in": "x"}}
    world = World([node(name, cpu=4, labels={"in": place}) for name, place in (("a", "x"), ("b", "y"))])
    world.put(gang("g", 1, cpu=5, spec=in_x))
    world.decide()
    world.put([node(name, cpu=4, labels={"in": place}) for name, place in (("a", "y"), ("b", "x"))])
    before = world.session
    world.decide()
    assert before is not None
    (task,) = next(before.jobs_with_pending()).pending()
    framework = framework_of(before)
    assert framework.evaluator.static(task).mask.tolist() == [True, False]
    assert not framework.candidates(task).passing().any()
    world.put(gang("h", 1, cpu=1, spec=in_x))
    world.cycle()
    assert world.placed() == {"h-0": "b"}


# --- plugins that fail ----------------------------------------------------------------------------------------------


class _Failing(Plugin):
    name = "failing"


class FailsToOpen(_Failing):
    def open(self, session: Session) -> None:
        raise RuntimeError("no")


class FailsToClose(_Failing):
    def close(self, session: Session) -> None:
        raise RuntimeError("no")


class FailsToOrder(_Failing):
    def job_order(self, job: Job) -> int:
        raise RuntimeError("no")


class FailsInTrial(_Failing):
    """Fails at the third placement, in the middle of a statement."""

    def open(self, session: Session) -> None:
        self.count = 0

    def on_allocate(self, tasks: list[Task], rows: list[int]) -> None:
        self.count += len(tasks)
        if self.count == 3:
            raise RuntimeError("no")


class FailsToMake(_Failing):
    def __init__(self, arguments: Any) -> None:
        raise RuntimeError("no")


class Answers(_Failing):
    """Does not fail: refuses all."""

    def allocatable(self, queue: Queue, task: Task, count: int) -> Reason | None:
        return because("not today")


def offered(monkeypatch: pytest.MonkeyPatch, plugin: type[Plugin]) -> None:
    known: Mapping[str, type[Plugin]] = MappingProxyType({**registry.plugins(), plugin.name: plugin})
    monkeypatch.setattr(registry, "plugins", lambda: known)


CONF = "actions: enqueue, allocate, backfill\ntiers:\n- plugins:\n  - name: priority\n  - name: gang\n"
WITH = CONF + "  - name: failing\n"


def test_a_plugin_that_works_takes_part(monkeypatch: pytest.MonkeyPatch) -> None:
    offered(monkeypatch, Answers)
    plan = decide(snapshot_of(flat([node("n"), gang("g", 1, cpu=1)])), read_policy(WITH), NOW_NS, 0)
    assert plan.statements == ()
    assert next((w.plugin, w.reason) for w in all_told(plan.waiting)) == ("failing", "not today")


@pytest.mark.parametrize("plugin", [FailsToOpen, FailsToClose, FailsToOrder, FailsInTrial, FailsToMake])
def test_a_plugin_that_raises_and_forbids_nothing_is_left_out_and_named(
    monkeypatch: pytest.MonkeyPatch, plugin: type[Plugin]
) -> None:
    offered(monkeypatch, plugin)
    snapshot = snapshot_of(cluster())
    plan = decide(snapshot, read_policy(WITH), NOW_NS, 0)
    without = decide(snapshot, read_policy(CONF), NOW_NS, 0)
    assert plan.faults == ("failing: RuntimeError('no')",)
    assert (plan.statements, plan.groups) == (without.statements, without.groups)


def test_a_plugin_that_raises_spoils_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    offered(monkeypatch, FailsInTrial)
    snapshot, memory = snapshot_of(cluster()), Memory()
    first = plan_bytes(snapshot, WITH, memory=memory)
    assert plan_bytes(snapshot, CONF, memory=memory) == plan_bytes(snapshot, CONF)
    assert plan_bytes(snapshot, WITH, memory=memory) == first


def test_an_error_that_no_plugin_made_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(session: Session) -> None:
        raise ZeroDivisionError

    policy = read_policy(CONF)
    monkeypatch.setattr("vcd.scheduling.actions.allocate.AllocateAction.execute", lambda self, session: broken(session))
    with pytest.raises(ZeroDivisionError):
        decide(snapshot_of(cluster()), policy, NOW_NS, 0)


# --- run ------------------------------------------------------------------------------------------------------------


def test_the_parts_of_a_session_are_told_as_they_end() -> None:
    told: list[str] = []
    run(snapshot_of(cluster()), read_policy(CONF), NOW_NS, 0, mark=told.append)
    parts = [name for name in dict.fromkeys(told) if "/" not in name]
    assert parts == ["open", "enqueue", "allocate", "backfill", "close"]
    assert [name for name in told if name.startswith("open/")] == ["open/gang", "open/priority"]


def test_a_session_names_what_decided_it() -> None:
    assert set(versions()) >= {"vcd", "projection"}


def test_a_pod_that_nobody_can_read_stops_nobody_else() -> None:
    bad = pod("bad", group="g", requests={"cpu": "much"})
    snapshot = SnapshotMaker(state_of(flat([node("n"), gang("g", 1, cpu=1), bad]))).snapshot()
    plan = decide(snapshot, read_policy(CONF), NOW_NS, 0)
    assert [op.key for s in plan.statements for op in s.operations] == ["default/g-0"]


def test_a_session_that_is_released_leaves_its_views_to_no_garbage_collector() -> None:
    """Collections of hundreds of thousands of views make the whole program stand still."""
    waiting = [gang(f"waits-{number}", 2, cpu=100, minimum={"cpu": number}) for number in range(100)]
    snapshot, policy = snapshot_of(list(flat([node("n"), *waiting]))), read_policy(CONF)
    gc.collect()
    before = _jobs()
    gc.disable()
    try:
        session = run(snapshot, policy, NOW_NS, 0)
        assert _jobs() - before >= 100
        session.release()
        del session
        assert _jobs() - before <= 5  # what tables of shapes hold as their example
    finally:
        gc.enable()


def _jobs() -> int:
    return sum(isinstance(each, Job) for each in gc.get_objects())
