"""Decisions about pods that are newer than what the watches of their groups and queues have shown."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from tests.daemon.fakes import FakeLog
from tests.dsl import NOW_NS
from tests.e2e.cluster import GROUPS, QUEUES, failed, group, node, pod
from tests.embedded.disturbed import DisturbedServer
from tests.embedded.serving import serving
from tests.kube.scripted import FakeClock, running, until
from vcd.daemon.cycle.session_loop import Cycle
from vcd.daemon.persistence.state_writer import StateWriter
from vcd.daemon.watching.consistent_reads import GET_AT_MOST, PATIENCE, ConsistentReads
from vcd.daemon.watching.watches import Watches
from vcd.embedded.api_server import ADMIN
from vcd.embedded.resource_types import PRIORITY_CLASSES
from vcd.kube.client import KubeClient
from vcd.kube.kube_connection import connect
from vcd.model.events import Operation, Plan, Statement, Verb
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.framework.policy import Policy
from vcd.scheduling.framework.registry import kinds_read
from vcd.state.cluster_state import ClusterState
from vcd.state.snapshot import SnapshotMaker

POLICY = read_policy(
    'actions: "enqueue, allocate, backfill"\n'
    "tiers:\n- plugins:\n  - name: gang\n- plugins:\n  - name: predicates\n  - name: capacity\n"
)
Obj = dict[str, Any]


class Scheduler:
    """A cycle whose watches and reads go to an embedded API server; nothing is written there."""

    def __init__(self, client: KubeClient, server: DisturbedServer, policy: Policy = POLICY) -> None:
        self.server, self.store = server, server.store
        self.log, self.clock = FakeLog(), FakeClock()
        self.state_writer = StateWriter(self.log.as_log(), ClusterState())
        self.watches = Watches(client, self.state_writer.state, self.state_writer.put, kinds_read(policy))
        self.reads = ConsistentReads(client, self.watches, self.clock)
        self.state_writer.observers.append(self.reads.observe)
        self.cycle = Cycle(
            self.state_writer, lambda: policy, lambda: 1, lambda *_: None, clock=lambda: NOW_NS, read=self.reads.read
        )

    def make(self, resource: str, *objects: Obj) -> None:
        for each in objects:
            self.store.create(resource, each)

    def edit(self, resource: str, name: str, spec: Obj) -> None:
        self.store.patch(resource, "default" if resource == GROUPS else None, name, {"spec": spec})

    def close(self, queue: str) -> None:
        self.store.patch(QUEUES, None, queue, {"status": {"state": "Closed"}}, "status")

    def run(self, *pods: Obj) -> None:
        """Make pods that run on the node."""
        self.make("pods", *({**each, "spec": {**each["spec"], "nodeName": "n"}} for each in pods))
        for each in pods:
            self.store.patch("pods", "default", each["metadata"]["name"], {"status": {"phase": "Running"}}, "status")

    async def shows(self, *pods: str) -> None:
        await until(lambda: all(self.state_writer.state.pod(f"default/{name}") for name in pods))

    async def decides(self, verb: Verb = "bind") -> tuple[list[str], list[str]]:
        """The pods that one session binds, or evicts by ``verb``, and why statements are stale."""
        known = len(self.log.sessions)
        await self.cycle.once(1)
        records = self.log.sessions[known:]
        keys = [operation.key for record in records for operation in record.accepted().operations(verb)]
        return sorted(keys), [reason for record in records for _, reason in record.stale]

    def asked(self, verb: str) -> dict[str, int]:
        """How many such requests the server got for objects of each resource, and forgets them."""
        calls = self.server.audit.get(ADMIN, {})
        found = {call.resource.partition(".")[0]: count for call, count in calls.items() if call.verb == verb}
        calls.clear()
        return found


@asynccontextmanager
async def scheduling(*queues: Obj, policy: Policy = POLICY) -> AsyncIterator[Scheduler]:
    """A cluster of one node with 7 cores, where a gang of one runs and all watches are open."""
    async with serving() as api:
        found = api.server
        async with KubeClient(await connect(master=found.url)) as client:
            one = Scheduler(client, found, policy)
            one.make(QUEUES, *({"metadata": {"name": name}, "spec": {}} for name in ("root", "default")), *queues)
            made = node("n", cpu=7)
            made["status"]["allocatable"]["pods"] = "500"
            one.make("nodes", made)
            one.store.patch("nodes", None, "n", {"spec": {"taints": None}})  # not-ready, which new nodes get
            one.make(GROUPS, group("g", 1))
            first = pod("g-0", "g", nodeName="n")
            one.make("pods", first)
            one.store.patch("pods", "default", "g-0", {"status": {"phase": "Running"}}, "status")
            async with running(one.watches.run()):
                await one.watches.wait_synced()
                await until(lambda: all(status.watched for status in one.watches.statuses().values()))
                await one.decides()
                one.asked("get")
                yield one


@asynccontextmanager
async def behind(one: Scheduler, resource: str) -> AsyncIterator[None]:
    """While the watch of a kind shows nothing."""
    assert one.server.stall_watches(resource)
    yield
    one.server.resume_watches()
    await until(lambda: one.watches.statuses()[{GROUPS: "PodGroup", QUEUES: "Queue"}[resource]].last_event > 0)


def queue(name: str, parent: str = "root", **spec: Any) -> Obj:
    return {"metadata": {"name": name}, "spec": {"parent": parent, **spec}}


CHANGES = {
    "minimum": (GROUPS, "g", {"minMember": 4}, "PodGroup default/g has changed"),
    "roles": (GROUPS, "g", {"minMember": 2, "minTaskMember": {"worker": 2}}, "PodGroup default/g has changed"),
    "queue": (QUEUES, "narrow", {"capability": {"cpu": "1"}}, "Queue narrow has changed"),
    "queue above": (QUEUES, "wide", {"capability": {"cpu": "1"}}, "Queue wide has changed"),
    "other queue": (GROUPS, "g", {"queue": "narrow"}, "PodGroup default/g has changed"),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_pods_that_came_after_a_change_are_not_bound_before_the_change_is_shown(change: str) -> None:
    resource, name, spec, why = CHANGES[change]
    queues = queue("wide", capability={"cpu": "6"}), queue("narrow", "wide", capability={"cpu": "6"})
    async with scheduling(*queues) as one:
        if resource == QUEUES:
            one.edit(GROUPS, "g", {"queue": "narrow"})
            await until(lambda: one.state_writer.state.groups["default/g"].group.spec.queue == "narrow")
        async with behind(one, resource):
            one.edit(resource, name, spec)
            one.make("pods", *(pod(f"g-{number}", "g", cpu=2) for number in (1, 2)))
            await one.shows("g-1", "g-2")
            binds, (first, *others) = await one.decides()
            assert (binds, first) == ([], f"{why}, which its watch has not shown")
            assert others == len(others) * ["an earlier statement of its group was dropped"]
            assert not await one.cycle.once(1), "the next session waits for the watch"


async def test_pods_that_came_after_their_queue_was_closed_are_not_bound() -> None:
    async with scheduling() as one, behind(one, QUEUES):
        one.close("default")
        one.make("pods", pod("g-1", "g"))
        await one.shows("g-1")
        assert await one.decides() == ([], ["Queue default has changed, which its watch has not shown"])


EVICTING = """
actions: "allocate, preempt, reclaim"
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins: [{name: predicates}, {name: proportion}]
"""


@asynccontextmanager
async def full(victims: int) -> AsyncIterator[Scheduler]:
    """A node that an elastic gang of priority 0 fills, in a queue below another one; ``high`` and ``other`` wait."""
    queues = queue("wide"), queue("narrow", "wide"), queue("apart")
    async with scheduling(*queues, policy=read_policy(EVICTING)) as one:
        one.make(PRIORITY_CLASSES, {"metadata": {"name": "urgent"}, "value": 1000})
        one.make(GROUPS, group("high", 1, queue="narrow", priorityClassName="urgent"), group("other", 1, queue="apart"))
        one.make(GROUPS, group("low", 1, queue="narrow"))
        one.run(*(pod(f"low-{number}", "low", cpu=6 // victims) for number in range(victims)))
        await one.shows(*(f"low-{number}" for number in range(victims)))
        await until(lambda: {"default/high", "default/low", "default/other"} <= one.state_writer.state.groups.keys())
        await until(lambda: "urgent" in one.state_writer.state.others.get("PriorityClass", {}))
        await one.decides()
        yield one


PROTECTING = {
    "preempt, gang": ("high", GROUPS, "low", {"minMember": 9}, "PodGroup default/low"),
    "preempt, queue of both": ("high", QUEUES, "narrow", {"priority": 3}, "Queue narrow"),
    "reclaim, gang": ("other", GROUPS, "low", {"minMember": 9}, "PodGroup default/low"),
    "reclaim, queue of the victim": ("other", QUEUES, "narrow", {"reclaimable": False}, "Queue narrow"),
    "reclaim, queue above": ("other", QUEUES, "wide", {"reclaimable": False}, "Queue wide"),
}


@pytest.mark.parametrize("victims", [2, 3])
@pytest.mark.parametrize("change", PROTECTING)
async def test_nothing_is_evicted_for_pods_that_came_after_a_change_that_protects_it(change: str, victims: int) -> None:
    waiting, resource, name, spec, changed = PROTECTING[change]
    async with full(victims) as one, behind(one, resource):
        one.edit(resource, name, spec)
        one.make("pods", pod(f"{waiting}-0", waiting, cpu=2))
        await one.shows(f"{waiting}-0")
        assert await one.decides("evict") == ([], [f"{changed} has changed, which its watch has not shown"])
        assert not await one.cycle.once(1), "the next session waits for the watch"


async def test_each_object_that_protects_victims_is_read_once() -> None:
    async with full(6) as one:
        one.make(GROUPS, *(group(f"high-{number}", 1, queue="narrow", priorityClassName="urgent") for number in (1, 2)))
        await until(lambda: "default/high-2" in one.state_writer.state.groups)
        one.make("pods", pod("high-0", "high", cpu=1), *(pod(f"high-{n}-0", f"high-{n}", cpu=1) for n in (1, 2)))
        await one.shows("high-0", "high-1-0", "high-2-0")
        one.asked("get")
        assert len((await one.decides("evict"))[0]) == 3
        assert one.asked("get") == {"podgroups": 4, "queues": 3}


async def test_a_gang_that_grew_is_bound_whole_once_its_watch_has_shown_it() -> None:
    async with scheduling() as one:
        async with behind(one, GROUPS):
            one.edit(GROUPS, "g", {"minMember": 3})
            one.make("pods", *(pod(f"g-{number}", "g", cpu=2) for number in (1, 2)))
            await one.shows("g-1", "g-2")
            assert (await one.decides())[0] == []
        await until(lambda: one.state_writer.state.groups["default/g"].group.spec.min_member == 3)
        assert await one.decides() == (["default/g-1", "default/g-2"], [])


@pytest.mark.parametrize("again", [False, True], ids=["gone", "another"])
async def test_pods_of_a_group_that_is_gone_are_not_bound(again: bool) -> None:
    async with scheduling() as one, behind(one, GROUPS):
        one.store.delete(GROUPS, "default", "g")
        if again:
            one.make(GROUPS, group("g", 1))
        one.make("pods", pod("g-1", "g"))
        await one.shows("g-1")
        assert await one.decides() == ([], ["PodGroup default/g is gone, which its watch has not shown"])


async def test_what_a_watch_that_has_caught_up_shows_is_not_read_again() -> None:
    async with scheduling() as one:
        one.make("pods", pod("g-1", "g"))
        one.make(GROUPS, group("other", 1))
        one.store.patch(QUEUES, None, "default", {"metadata": {"labels": {"seen": "yes"}}})
        await one.shows("g-1")
        await until(lambda: "default/other" in one.state_writer.state.groups)
        await until(lambda: one.watches.statuses()["Queue"].last_event)
        assert (await one.decides())[0] == ["default/g-1"]
        assert one.asked("get") == {}


async def test_a_session_reads_each_object_once_and_a_kind_of_which_it_needs_many_as_a_list() -> None:
    async with scheduling() as one:
        one.make(GROUPS, *(group(f"g{number}", 1) for number in range(GET_AT_MOST + 1)))
        one.make("pods", *(pod(f"g{number}-0", f"g{number}", cpu=0) for number in range(GET_AT_MOST)))
        await one.shows(*(f"g{number}-0" for number in range(GET_AT_MOST)))
        assert len((await one.decides())[0]) == GET_AT_MOST
        assert one.asked("get") == {"podgroups": GET_AT_MOST, "queues": 2}
        one.make("pods", *(pod(f"g{number}-1", f"g{number}", cpu=0) for number in range(GET_AT_MOST + 1)))
        await one.shows(*(f"g{number}-1" for number in range(GET_AT_MOST + 1)))
        assert len((await one.decides())[0]) == GET_AT_MOST + 1
        calls = one.server.audit[ADMIN]
        assert {(call.verb, call.resource.partition(".")[0]): count for call, count in calls.items()} == {
            ("list", "podgroups"): 1, ("get", "queues"): 2,
        }  # fmt: skip


@pytest.mark.parametrize("status", [403, 500, 503])
async def test_a_kind_that_cannot_be_read_keeps_pods_back_for_a_bounded_time_and_says_so(status: int) -> None:
    async with scheduling() as one:
        one.make("pods", pod("g-1", "g"))
        await one.shows("g-1")

        def refused(request: web.Request) -> web.Response | None:
            return failed(status, "Refused") if request.path.endswith("/podgroups/g") else None

        one.server.faults = refused
        with capture_logs() as told:
            assert await one.decides() == ([], ["PodGroup default/g could not be read again"])
            one.clock.advance(PATIENCE - 1)
            assert (await one.decides())[0] == []
            one.clock.advance(1)
            assert await one.decides() == (["default/g-1"], [])
        (line,) = [line for line in told if line["event"] == "objects_not_read_again"]
        assert (line["kind"], line["log_level"]) == ("PodGroup", "warning")


async def test_a_failure_long_after_another_one_keeps_pods_back_again() -> None:
    """Though no read succeeded in between: none was needed, since the watch caught up."""
    async with scheduling() as one:
        for number in (1, 2):
            one.make("pods", pod(f"g-{number}", "g"))
            await one.shows(f"g-{number}")
            one.server.faults = lambda request: failed(500, "Refused") if "/podgroups/g" in request.path else None
            assert (await one.decides())[0] == []
            one.server.faults = None
            one.make(GROUPS, group(f"later-{number}", 1))
            await until(lambda number=number: f"default/later-{number}" in one.state_writer.state.groups)
            assert (await one.decides())[0] == [f"default/g-{number}"]
            assert "podgroups" not in one.asked("get")
            one.clock.advance(2 * PATIENCE)


@pytest.mark.parametrize("gap", [11.0, 15.0, 31.0])
async def test_sessions_far_apart_trust_the_watch_of_a_kind_that_still_cannot_be_read(gap: float) -> None:
    async with scheduling() as one:
        one.make("pods", pod("g-1", "g"))
        await one.shows("g-1")
        one.server.faults = lambda request: failed(500, "Refused") if "/podgroups/g" in request.path else None
        assert (await one.decides())[0] == []
        one.clock.advance(gap)
        assert await one.decides() == (["default/g-1"], [])


async def test_a_kind_whose_watch_is_trusted_is_tried_once_per_patience() -> None:
    async with scheduling() as one:
        refused: list[str] = []

        def refuse(request: web.Request) -> web.Response | None:
            if "/podgroups/g" not in request.path:
                return None
            refused.append(request.path)
            return failed(403, "Forbidden")

        async def binds_a_new_pod(number: int) -> int:
            """How often the PodGroup was read for a session that binds one more pod of it."""
            one.make("pods", pod(f"g-{number}", "g"))
            await one.shows(f"g-{number}")
            before = len(refused)
            assert (await one.decides())[0] == [f"default/g-{number}"]
            return len(refused) - before

        one.server.faults = refuse
        one.make("pods", pod("g-1", "g"))
        await one.shows("g-1")
        assert (await one.decides())[0] == []
        one.clock.advance(PATIENCE)
        assert (await one.decides())[0] == ["default/g-1"]
        assert await binds_a_new_pod(2) == 0
        one.clock.advance(PATIENCE - 1)
        assert await binds_a_new_pod(3) == 0
        one.clock.advance(1)
        assert await binds_a_new_pod(4) == 1
        one.server.faults = None
        assert one.reads.trusts_watches
        one.clock.advance(PATIENCE)
        await binds_a_new_pod(5)
        assert not one.reads.trusts_watches


async def test_evictions_need_no_read_and_end_no_failure() -> None:
    async with scheduling() as one:
        one.make("pods", pod("g-1", "g"))
        await one.shows("g-1")
        one.server.faults = lambda request: failed(500, "Refused") if "/podgroups/g" in request.path else None
        assert (await one.decides())[0] == []
        evict = Operation("evict", "default/g-0", "uid")
        await one.reads.read(
            Plan((Statement("default/g", "preempt", (evict,)),)), SnapshotMaker(one.state_writer.state).snapshot()
        )
        one.clock.advance(PATIENCE)
        assert await one.decides() == (["default/g-1"], [])


async def test_kinds_that_are_numbered_apart_are_read_in_each_session() -> None:
    """As where another etcd holds PodGroups: that their numbers are higher says nothing."""
    async with scheduling() as one:
        one.reads._is_one_counter = None

        def apart(request: web.Request) -> web.Response | None:
            if "fieldSelector" not in request.query or not request.path.endswith("/pods"):
                return None
            return web.json_response({"kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": []})

        one.server.faults = apart
        for number in (1, 2):
            one.make("pods", pod(f"g-{number}", "g"))
            one.make(GROUPS, group(f"other-{number}", 1))
            await one.shows(f"g-{number}")
            await until(lambda number=number: f"default/other-{number}" in one.state_writer.state.groups)
            assert (await one.decides())[0] == [f"default/g-{number}"]
            assert one.asked("get") == {"podgroups": 1, "queues": 2}


async def test_of_pods_that_are_not_new_nothing_is_remembered() -> None:
    async with scheduling() as one:
        one.make("pods", *(pod(f"g-{number}", "g", cpu=9) for number in range(1, 30)))
        await one.shows(*(f"g-{number}" for number in range(1, 30)))
        one.make(GROUPS, group("later", 1))
        one.store.patch(QUEUES, None, "default", {"metadata": {"labels": {"seen": "yes"}}})
        await until(lambda: "default/later" in one.state_writer.state.groups)
        await until(lambda: one.watches.statuses()["Queue"].last_event)
        one.make("pods", pod("fits", "g"))
        await one.shows("fits")
        assert (await one.decides())[0] == ["default/fits"]
        assert list(one.reads._pods) == ["default/fits"]
