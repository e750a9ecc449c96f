"""What was done, as the server said, and shows in no watch: it is looked at, told of, or listed again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from tests.dsl import node
from tests.kube.scripted import Answer, FakeClock, ScriptedServer, client_of, failure, running, scripted, until
from vcd.daemon.watching.outcome_resolver import OutcomeResolver
from vcd.daemon.watching.watches import Watches
from vcd.kube.committer import Committer
from vcd.kube.event_recorder import EventRecorder
from vcd.kube.status_writer import StatusWriter
from vcd.model import events as ev
from vcd.model.kinds import KINDS
from vcd.model.projection_codec import encode_payload, from_manifest
from vcd.state.cluster_state import ClusterState

UID = "u-a"
KEY = "ns/a"


def shown(name: str = "", uid: str = UID, deleted: bool = False) -> dict:
    meta = {"name": "a", "namespace": "ns", "uid": uid, "resourceVersion": "9"}
    meta |= {"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleted else {}
    return {"kind": "Pod", "metadata": meta, "spec": {"nodeName": name, "schedulerName": "volcano"}}


class Fixture:
    def __init__(self, server: ScriptedServer, lookups: OutcomeResolver, state: ClusterState, clock: FakeClock) -> None:
        self.server, self.lookups, self.state, self.clock = server, lookups, state, clock
        self.leads = True
        self.events: list[ev.Event] = []

    async def sink(self, events: Sequence[ev.Event]) -> None:
        for event in events:
            self.events.append(event)
            self.state.apply(self.state.sequence + 1, event)
            self.lookups.observe(event)

    async def decide(self, operation: ev.Operation, result: ev.Result = "done") -> None:
        """A session with this operation, and its outcome."""
        plan = ev.Plan((ev.Statement("ns/g", "allocate", (operation,)),))
        record = ev.SessionDecided(1, self.state.sequence, "", 0, 0, 0, {}, ev.encode_plan(plan))
        await self.sink([record, ev.OperationDone(1, 0, 0, result)])

    def outcomes(self) -> list[ev.Result]:
        return [event.result for event in self.events if isinstance(event, ev.OperationDone)]


@asynccontextmanager
async def looking(bound: str = "") -> AsyncIterator[Fixture]:
    """OutcomeResolver over a state with one pod of which a watch says nothing more."""
    async with scripted() as server, client_of(server) as client:
        server.on("GET", "/api/v1/pods\\?.*watch", Answer(lines=[], stay=True))
        state, clock = ClusterState(), FakeClock()
        watches = Watches(client, state, lambda events: f.sink(events), [KINDS["Pod"]])
        writers = (EventRecorder(client, "vcd", lambda: True), StatusWriter(client, lambda: True))
        committer = Committer(client, lambda events: f.sink(events), lambda _: True, *writers)
        lookups = OutcomeResolver(
            committer, state, watches, lambda events: f.sink(events), lambda: f.leads, clock=clock
        )
        f = Fixture(server, lookups, state, clock)
        for manifest in (node("n"), shown(bound)):
            kind, obj, _ = from_manifest(manifest)
            await f.sink([ev.ObjectPut(kind, obj.key, "5", encode_payload(obj))])
        async with running(watches.run()):
            yield f


def listed(*items: dict) -> Answer:
    return Answer(200, {"kind": "PodList", "metadata": {"resourceVersion": "9"}, "items": list(items)})


BIND = ev.Operation("bind", KEY, UID, "n")
EVICT = ev.Operation("evict", KEY, UID, "n", "preempt")


@pytest.mark.parametrize(("operation", "bound"), [(BIND, ""), (EVICT, "n")], ids=["bind", "evict"])
async def test_what_the_pod_does_not_show_either_has_failed(operation: ev.Operation, bound: str) -> None:
    async with looking(bound) as f:
        f.server.on("GET", "/api/v1/pods\\?.*limit", listed(shown(bound)))
        f.server.on("GET", "/pods/a", Answer(200, shown(bound)))
        await f.decide(operation)
        f.clock.now += 59
        await f.lookups.look()
        assert (f.outcomes(), list(f.state.intents)) == (["done"], [KEY])
        f.clock.now += 1
        await f.lookups.look()
        assert (f.outcomes(), f.state.intents) == (["done", "failed"], {})
        await f.lookups.look()
        assert f.outcomes() == ["done", "failed"]


@pytest.mark.parametrize(
    ("operation", "bound", "found", "items"),
    [
        (BIND, "", Answer(200, shown("n")), [shown("n")]),
        (BIND, "", Answer(200, shown("m")), [shown("m")]),
        (BIND, "", failure(404, "NotFound", ""), []),
        (EVICT, "n", failure(404, "NotFound", ""), []),
        (EVICT, "n", Answer(200, shown("n", deleted=True)), [shown("n", deleted=True)]),
    ],
    ids=["bound", "bound elsewhere", "gone", "evicted", "being evicted"],
)
async def test_what_the_watch_missed_is_listed_again(
    operation: ev.Operation, bound: str, found: Answer, items: list[dict]
) -> None:
    async with looking(bound) as f:
        f.server.on("GET", "/api/v1/pods\\?.*limit", listed(shown(bound)))
        await until(lambda: any(isinstance(event, ev.KindListed) for event in f.events))
        await f.decide(operation)
        f.server.on("GET", "/api/v1/pods\\?.*limit", listed(*items))
        f.server.on("GET", "/pods/a", found)
        f.clock.now += 60
        await f.lookups.look()
        await until(lambda: not f.state.intents)
        assert f.outcomes() == ["done"]


async def test_what_is_shown_in_time_is_not_asked_for() -> None:
    async with looking() as f:
        f.server.on("GET", "/api/v1/pods\\?.*limit", listed(shown()))
        await f.decide(BIND)
        _, obj, _ = from_manifest(shown("n"))
        await f.sink([ev.ObjectPut("Pod", KEY, "6", encode_payload(obj))])
        f.clock.now += 600
        await f.lookups.look()
        assert not f.server.calls("GET", "/pods/a")


async def test_without_an_answer_it_is_asked_again_later_and_without_the_lease_not_at_all() -> None:
    async with looking() as f:
        f.server.on("GET", "/api/v1/pods\\?.*limit", listed(shown()))
        f.server.on("GET", "/pods/a", failure(503, "ServiceUnavailable", ""), Answer(200, shown()))
        await f.decide(BIND)
        f.clock.now += 60
        f.leads = False
        await f.lookups.look()
        assert not f.server.calls("GET", "/pods/a")
        f.leads = True
        await f.lookups.look()
        assert f.outcomes() == ["done"]
        await f.lookups.look()
        assert f.outcomes() == ["done", "failed"]
