"""What a namespace with thousands of statuses and Events to write does to the binds and writes of another one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.kube.scripted import Answer, ScriptedServer, Seen, client_of, running, scripted, until
from vcd.kube.client import KubeClient
from vcd.kube.event_recorder import EventRecorder
from vcd.kube.status_writer import StatusWriter
from vcd.model.events import GroupStatus
from vcd.model.objects import Condition

OBJECT = {"metadata": {"resourceVersion": "1", "uid": "u"}}


class Flood:
    """Writers of one client, and a server that answers what namespace ``flood`` has written once ``answers`` is set."""

    def __init__(self, server: ScriptedServer, client: KubeClient) -> None:
        self.server, self.client = server, client
        self.statuses = StatusWriter(client, lambda: True)
        self.recorder = EventRecorder(client, "vcd", lambda: True)
        self.answers = asyncio.Event()
        server.on("GET", "", Answer(200, OBJECT))
        for method in ("PATCH", "POST"):
            server.on(method, "", Answer(200, OBJECT))
            server.on(method, "/namespaces/flood/", self._late)

    async def _late(self, seen: Seen) -> Answer:
        await self.answers.wait()
        return Answer(200, OBJECT)

    def report(self, namespace: str, number: int) -> None:
        """Report at a pod and at its group that they wait."""
        key = f"{namespace}/p-{number}"
        self.statuses.submit_groups([GroupStatus(key, "Inqueue")])
        self.statuses.submit_pod_condition(key, "u", Condition("PodScheduled", "False", "Unschedulable", "m"))
        self.recorder.record("Pod", key, "u", "Warning", "FailedScheduling", "m")

    def writes(self) -> list[str]:
        """The namespaces that were written to, in order."""
        return [
            seen.path.partition("/namespaces/")[2].partition("/")[0]
            for seen in self.server.seen
            if seen.body is not None
        ]


@pytest.fixture(name="f")
async def fixture() -> AsyncIterator[Flood]:
    async with scripted() as server, client_of(server) as client:
        f = Flood(server, client)
        async with running(f.statuses.run()), running(f.recorder.run()):
            for number in range(1000):
                f.report("flood", number)
            await until(lambda: len(f.writes()) == 16)
            yield f


async def test_a_bind_waits_for_no_write_of_a_flood(f: Flood) -> None:
    await f.client.request("POST", "/api/v1/namespaces/other/pods/p/binding", b"{}")
    assert f.writes() == [*["flood"] * 16, "other"]
    f.answers.set()


async def test_statuses_and_events_of_another_namespace_come_in_turn(f: Flood) -> None:
    f.report("other", 0)
    f.answers.set()
    await f.statuses.wait_until_idle()
    await f.recorder.wait_until_idle()
    assert len(f.writes()) == 3003
    # before it go what is under way and what a worker of the writers has begun with
    assert [place for place, namespace in enumerate(f.writes()) if namespace == "other"][-1] < 100
