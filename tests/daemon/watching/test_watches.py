"""Watchers of all kinds as one: synced and listed anew together; one whose events cannot be logged ends them all."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.daemon.fakes import FakeLog
from tests.dsl import node
from tests.kube.scripted import Answer, ScriptedServer, client_of, failure, running, scripted, until
from vcd.daemon.persistence.state_writer import StateWriter
from vcd.daemon.service import SchedulerService
from vcd.daemon.watching.watches import Watches
from vcd.model import projection_codec
from vcd.model.events import Event, KindListed, ObjectPut, PolicyLoaded
from vcd.model.kinds import KINDS, Kind
from vcd.model.objects import Object
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.framework.registry import kinds_read
from vcd.state.cluster_state import ClusterState

STAY = Answer(lines=[], stay=True)


def listing(kind: str, *items: dict) -> Answer:
    return Answer(200, {"kind": f"{kind}List", "metadata": {"resourceVersion": "5"}, "items": list(items)})


def serve(server: ScriptedServer, path: str, kind: str, *items: dict) -> None:
    server.on("GET", f"{path}\\?(?!.*watch)", listing(kind, *items))
    server.on("GET", f"{path}\\?.*watch", STAY)


class Fixture:
    def __init__(self, server: ScriptedServer, watches: Watches, state: ClusterState, listed: list[str]) -> None:
        self.server = server
        self.watches = watches
        self.state = state
        self.listed = listed


@asynccontextmanager
async def opened(kinds: Sequence[str], error: Exception | None = None) -> AsyncIterator[Fixture]:
    """Watches of a scripted server that has one node and one pod."""
    async with scripted() as server, client_of(server) as client:
        serve(server, "/api/v1/nodes", "Node", node("a"))
        serve(server, "/api/v1/pods", "Pod")
        state, listed = ClusterState(), list[str]()

        async def sink(events: Sequence[Event]) -> None:
            if error is not None:
                raise error
            for event in events:
                state.apply(state.sequence + 1, event)
                if isinstance(event, KindListed):
                    listed.append(event.kind)

        yield Fixture(server, Watches(client, state, sink, [KINDS[kind] for kind in kinds]), state, listed)


async def test_it_is_synced_when_every_list_is_in() -> None:
    async with opened(["Node", "Pod"]) as fixture:
        assert not fixture.watches.synced()
        assert not fixture.watches.running()
        async with running(fixture.watches.run()):
            await fixture.watches.wait_synced()
            assert fixture.watches.running() == fixture.watches.statuses()
        assert sorted(fixture.listed) == ["Node", "Pod"]
        assert list(fixture.state.nodes) == ["a"]


async def test_one_list_that_hangs_keeps_all_from_being_synced() -> None:
    async with opened(["Node", "Pod"]) as fixture:
        fixture.server.on("GET", "/api/v1/pods\\?(?!.*watch)", Answer(hang=True))
        async with running(fixture.watches.run()):
            await until(lambda: fixture.watches.statuses()["Node"].synced)
            await until(lambda: fixture.server.calls("GET", "/api/v1/pods"))
            assert not fixture.watches.synced()


async def test_listing_again_lists_every_kind_and_finds_what_vanished() -> None:
    async with opened(["Node", "Pod"]) as fixture, running(fixture.watches.run()):
        await fixture.watches.wait_synced()
        serve(fixture.server, "/api/v1/nodes", "Node", node("b"))
        await fixture.watches.list_again()
        await fixture.watches.wait_synced()
        assert sorted(fixture.listed) == ["Node", "Node", "Pod", "Pod"]
        assert list(fixture.state.nodes) == ["b"]


async def test_what_a_watch_told_is_in_the_state_before_another_list_is_compared_with_it() -> None:
    was, then = node("a"), node("a", cpu=4)
    then["metadata"]["resourceVersion"] = "6"
    async with scripted() as server, client_of(server) as client:
        serve(server, "/api/v1/nodes", "Node", was)
        server.on("GET", "/api/v1/nodes\\?.*watch", Answer(lines=[{"type": "MODIFIED", "object": then}], stay=True))
        log, state = FakeLog(), ClusterState()
        state_writer = StateWriter(log.as_log(), state)

        async def sink(events: Sequence[Event]) -> None:
            log.held = isinstance(events[0], ObjectPut) and events[0].resource_version == "6"
            await state_writer.put(events)

        watches = Watches(client, state, sink, [KINDS["Node"]])
        async with running(watches.run()):
            await until(lambda: log.waiting)
            serve(server, "/api/v1/nodes", "Node", was)
            asyncio.get_running_loop().call_later(0.05, log.waiting.pop().set_result, None)
            await watches.list_again()
            await watches.wait_synced()
            await until(lambda: state.sequence == len(log.appended))
            assert state.nodes["a"].node == projection_codec.from_manifest(was)[1]


async def test_it_is_not_synced_while_it_lists_again() -> None:
    async with opened(["Node"]) as fixture, running(fixture.watches.run()):
        await fixture.watches.wait_synced()
        fixture.server.on("GET", "/api/v1/nodes\\?(?!.*watch)", Answer(hang=True))
        await fixture.watches.list_again()
        assert not fixture.watches.synced()


async def test_a_kind_can_be_added() -> None:
    async with opened(["Node"]) as fixture, running(fixture.watches.run()):
        await fixture.watches.wait_synced()
        await fixture.watches.read([KINDS["Node"], KINDS["Pod"]])
        assert not fixture.watches.synced()
        await fixture.watches.wait_synced()
        assert sorted(fixture.listed) == ["Node", "Pod"]


async def test_a_kind_that_is_not_read_any_more_is_neither_watched_nor_waited_for() -> None:
    """As after a reload without the plugin that needed it."""
    async with opened(["Node", "Pod"]) as fixture, running(fixture.watches.run()):
        fixture.server.on("GET", "/api/v1/pods\\?(?!.*watch)", failure(403, "Forbidden", "no"))
        await until(lambda: fixture.watches.statuses()["Node"].synced and fixture.server.calls("GET", "/api/v1/pods"))
        assert not fixture.watches.synced()
        await fixture.watches.read_only([KINDS["Node"]])
        assert fixture.watches.synced()
        assert fixture.watches.statuses().keys() == {"Node"}
        serve(fixture.server, "/api/v1/pods", "Pod")
        await fixture.watches.read([KINDS["Node"], KINDS["Pod"]])
        await fixture.watches.wait_synced()
        assert fixture.listed == ["Node", "Pod"]


@pytest.mark.parametrize("first", ["listing", "reading"])
async def test_a_kind_that_is_not_read_any_more_stays_away_while_all_are_listed_again(first: str) -> None:
    """As where the configuration is loaded anew at the moment in which a replica takes the lead."""
    async with opened(["Pod", "Node"]) as fixture, running(fixture.watches.run()):
        await fixture.watches.wait_synced()
        both = [fixture.watches.list_again(), fixture.watches.read_only([KINDS["Node"]])]
        await asyncio.gather(*(both if first == "listing" else reversed(both)))
        assert fixture.watches.statuses().keys() == {"Node"}
        await fixture.watches.wait_synced()
        assert fixture.listed.count("Node") == 2


async def test_other_objects_of_a_kind_can_be_asked_for() -> None:
    """As after a reload that names another object: what was read before is gone, what is read now is there."""
    one = Kind("Notes", "", "v1", "configmaps", True, Object, "ops", "one", manifest="ConfigMap")
    async with opened(["Node"]) as fixture, running(fixture.watches.run()):
        await fixture.watches.wait_synced()
        for name in ("one", "two"):
            listed = listing("ConfigMap", {"metadata": {"name": name, "namespace": "ops"}})
            path = f"/api/v1/namespaces/ops/configmaps\\?.*metadata.name%3D{name}"
            fixture.server.on("GET", f"{path}(?!.*watch)", listed)
            fixture.server.on("GET", f"{path}.*watch", STAY)
            await fixture.watches.read([KINDS["Node"], dataclasses.replace(one, object=name)])
            await fixture.watches.wait_synced()
            assert list(fixture.state.others["Notes"]) == [f"ops/{name}"]
        assert fixture.watches.narrow == {"Notes"}


async def test_a_defect_in_one_watcher_ends_neither_it_nor_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    identify = projection_codec.identify

    def stumble(raw: bytes) -> tuple[str, str]:
        monkeypatch.setattr(projection_codec, "identify", identify)
        raise RecursionError("too deep")

    async with opened(["Node", "Pod"]) as fixture:
        gone = {"type": "DELETED", "object": {"metadata": {"name": "x"}}}
        fixture.server.on("GET", "/api/v1/pods\\?.*watch", Answer(lines=[gone], stay=True))
        monkeypatch.setattr(projection_codec, "identify", stumble)
        async with running(fixture.watches.run()) as task:
            await until(lambda: fixture.listed.count("Pod") == 2)
            assert fixture.watches.statuses()["Pod"].crashes == 1
            assert not task.done()
            assert fixture.listed.count("Node") == 1


async def test_a_watcher_whose_events_cannot_be_logged_ends_all() -> None:
    async with opened(["Node", "Pod"], error=OSError("disk full")) as fixture:
        with pytest.raises(OSError, match="disk full"):
            await fixture.watches.run()


OLD = 'actions: "enqueue, allocate, reclaim"\ntiers:\n- plugins:\n  - name: gang\n  - name: nodeorder\n'
NEW = 'actions: "enqueue, allocate, reclaim"\ntiers:\n- plugins:\n  - name: gang\n  - name: pdb\n'


async def test_nothing_is_decided_under_a_configuration_before_what_it_reads_is_listed() -> None:
    log, state = FakeLog(), ClusterState()
    state_writer = StateWriter(log.as_log(), state)
    old, new = read_policy(OLD), read_policy(NEW)
    loaded, early = PolicyLoaded(new.digest, NEW), list[bool]()

    def folded(event: Event) -> None:
        if event == loaded:
            early.append(watches.synced() and "PodDisruptionBudget" not in state.listed)

    state_writer.observers.append(folded)
    async with scripted() as server, client_of(server) as client:
        server.on("GET", ".*", listing("Object"))
        server.on("GET", "watch=1", STAY)
        watches = Watches(client, state, state_writer.put, kinds_read(old))
        part = SimpleNamespace(
            state_writer=state_writer,
            watches=watches,
            policy=SimpleNamespace(policy=new),
            metrics=SimpleNamespace(series=SimpleNamespace(show=lambda *_: None)),
            usage=SimpleNamespace(reloaded=asyncio.Event()),
        )
        async with running(watches.run()):
            await until(watches.synced)
            await SchedulerService._policy_changed(cast(Any, part), loaded)
            await until(watches.synced)
    assert early == [False]
    assert "Service" not in watches.statuses()
