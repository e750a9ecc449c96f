"""Watches: from a version, selectors, bookmarks, initial events, expiry; and vcd's own watcher on them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from aiohttp import web

from tests.contract.server import SCHEDULER, Obj, Server, named
from tests.kube.scripted import Log, running, until
from vcd.kube.api_errors import ApiError
from vcd.kube.client import MERGE_PATCH as MERGE
from vcd.kube.watcher import Watcher
from vcd.model.events import ObjectPut
from vcd.model.kinds import KINDS
from vcd.model.objects import Pod
from vcd.model.projection_codec import LAST_APPLIED, decode_payload

INITIAL_END = "k8s.io/initial-events-end"


async def version(server: Server) -> str:
    found: str = (await server.listed("Pod", limit=1))["metadata"]["resourceVersion"]
    return found


async def label(server: Server, name: str, value: str | None) -> None:
    await server.call("PATCH", server.path("Pod", name), {"metadata": {"labels": {"x": value}}}, MERGE)


async def remove(server: Server, name: str) -> None:
    await server.call("DELETE", server.path("Pod", name))


# --- what comes -----------------------------------------------------------------------------------------------------


async def test_a_watch_tells_every_change_since_its_version(server: Server) -> None:
    start = await version(server)
    await server.pod("a")
    await label(server, "a", "1")
    await remove(server, "a")
    async with server.watch("Pod", resourceVersion=start) as lines:
        events = await lines.until(named("DELETED", "a"))
    kinds = [event["type"] for event in events]
    assert (kinds[0], kinds[-1]) == ("ADDED", "DELETED")
    assert set(kinds[1:-1]) == {"MODIFIED"}


async def test_the_versions_of_a_watch_rise(server: Server) -> None:
    start = await version(server)
    for name in "ab":
        await server.pod(name)
    await remove(server, "a")
    async with server.watch("Pod", resourceVersion=start) as lines:
        events = await lines.until(named("DELETED", "a"))
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(set(versions))


async def test_a_watch_goes_on_with_what_happens_later(server: Server) -> None:
    async with server.watch("Pod", resourceVersion=await version(server)) as lines:
        await server.pod("a")
        await lines.until(named("ADDED", "a"))
        await server.pod("b")
        assert [event["object"]["metadata"]["name"] for event in await lines.until(named("ADDED", "b"))] == ["b"]


async def test_the_objects_of_a_watch_say_their_kind(server: Server) -> None:
    start = await version(server)
    await server.pod("a")
    async with server.watch("Pod", resourceVersion=start) as lines:
        (event,) = await lines.until(named("ADDED", "a"))
    assert (event["object"]["kind"], event["object"]["apiVersion"]) == ("Pod", "v1")


async def test_the_last_state_of_a_deleted_object_has_the_version_of_its_deletion(server: Server) -> None:
    start = await version(server)
    made = await server.pod("a")
    await remove(server, "a")
    async with server.watch("Pod", resourceVersion=start) as lines:
        last = (await lines.until(named("DELETED", "a")))[-1]["object"]["metadata"]
    assert last["uid"] == made["metadata"]["uid"]
    assert int(last["resourceVersion"]) > int(made["metadata"]["resourceVersion"])


# --- selectors ------------------------------------------------------------------------------------------------------


async def test_leaving_a_label_selection_is_a_deletion_and_coming_back_an_addition(server: Server) -> None:
    await server.pod("a", {"x": "1"})
    start = await version(server)
    for value in (None, "1"):
        await label(server, "a", value)
    async with server.watch("Pod", resourceVersion=start, labelSelector="x") as lines:
        assert [event["type"] for event in await lines.until(named("ADDED", "a"))] == ["DELETED", "ADDED"]


async def test_a_field_selection_sees_only_its_own(server: Server) -> None:
    start = await version(server)
    await server.pod("a", schedulerName="vcd-contract-other")
    await server.pod("b")
    async with server.watch("Pod", resourceVersion=start, fieldSelector=f"spec.schedulerName={SCHEDULER}") as lines:
        (event,) = await lines.until(named("ADDED", "b"))
    assert event["object"]["metadata"]["name"] == "b"


async def test_a_bound_pod_leaves_the_selection_of_pods_without_node(server: Server) -> None:
    pod = await server.pod("a")
    start = await version(server)
    node = server.unique("nowhere")
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "a"}, "target": {"name": node}}
    async with server.watch("Pod", resourceVersion=start, fieldSelector="spec.nodeName=") as lines:
        await server.call("POST", server.path("Pod", "a", "binding"), binding)
        last = (await lines.until(named("DELETED", "a")))[-1]
    assert last["object"]["metadata"]["uid"] == pod["metadata"]["uid"]


# --- bookmarks, initial events, ends --------------------------------------------------------------------------------


async def test_bookmarks_carry_a_version_and_nothing_else(server: Server) -> None:
    """Two seconds before the end a server sends one; a real one need not, and so nobody may wait for it."""
    start = await version(server)
    events: list[Obj] = []
    async with server.watch("Pod", resourceVersion=start, allowWatchBookmarks="true", timeoutSeconds=4) as lines:
        await server.pod("a")
        while (event := await lines.next()) is not None:
            events.append(event)
    assert events[0]["type"] == "ADDED"
    assert len(events) > 1 or server.store is None
    for bookmark in events[1:]:
        assert (bookmark["type"], bookmark["object"]["kind"]) == ("BOOKMARK", "Pod")
        assert int(bookmark["object"]["metadata"]["resourceVersion"]) >= int(start)
        assert "name" not in bookmark["object"]["metadata"]


async def test_a_watch_ends_after_its_timeout(server: Server) -> None:
    async with server.watch("Pod", resourceVersion=await version(server), timeoutSeconds=1) as lines:
        assert await lines.next() is None


async def test_initial_events_come_before_a_bookmark_or_are_refused(server: Server) -> None:
    await server.pod("a")
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    try:
        async with server.watch("Pod", **query) as lines:
            first = await lines.next()
            assert first is not None
            if first["type"] == "ERROR":  # its etcd is too old for that, which it tells within the watch
                assert "the required storage feature RequestWatchProgress" in first["object"]["message"]
                return
            events = [first, *await lines.until(lambda event: event["type"] == "BOOKMARK")]
    except ApiError as error:
        assert (error.status, error.reason) == (422, "Invalid"), error  # the server has no WatchList
        return
    assert [event["object"]["metadata"].get("name") for event in events[:-1]] == ["a"]
    assert events[-1]["object"]["metadata"]["annotations"][INITIAL_END] == "true"


async def test_a_watch_without_version_begins_with_what_there_is(server: Server) -> None:
    if server.store is None:
        pytest.skip("beside etcd 3.4 an API server's cache may stay behind; vcd asks for no such watch")
    for name in "ab":
        await server.pod(name)
    events: list[Obj | None] = [None]
    while events[0] is None or events[0].get("object", {}).get("code") == 504:  # its cache is behind: come again
        async with server.watch("Pod") as lines:
            events = [await lines.next(), await lines.next()]
    assert sorted((event["type"], event["object"]["metadata"]["name"]) for event in events if event) == [
        ("ADDED", "a"), ("ADDED", "b")
    ]  # fmt: skip


# --- vcd's watcher --------------------------------------------------------------------------------------------------


def watcher(server: Server, log: Log) -> Watcher:
    return Watcher(server.client, replace(KINDS["Pod"], namespace=server.namespace), log, log.sink)


async def test_the_watcher_begins_with_a_list_and_goes_on_from_it(server: Server) -> None:
    await server.pod("a")
    log = Log()
    async with running((watching := watcher(server, log)).run()):
        await until(lambda: watching.status.synced)
        await server.pod("b")
        await remove(server, "a")
        await until(lambda: log.keys("Pod") == [server.key("b")])
    assert list(dict.fromkeys(event.key for event in log.of(ObjectPut))) == [server.key("a"), server.key("b")]
    assert watching.status.lists == 1


async def test_the_watcher_reads_what_was_written(server: Server) -> None:
    made = await server.pod("a", {"x": "y"}, nodeSelector={"disk": "fast"})
    log = Log()
    async with running((watching := watcher(server, log)).run()):
        await until(lambda: watching.status.synced)
    (put,) = log.of(ObjectPut)
    pod = decode_payload("Pod", put.payload)
    assert isinstance(pod, Pod)
    assert (pod.key, pod.metadata.uid) == (server.key("a"), made["metadata"]["uid"])
    assert (pod.metadata.labels, pod.spec.node_selector) == ({"x": "y"}, {"disk": "fast"})
    assert pod.spec.containers[0].resources.requests == {"cpu": "1m"}


async def test_a_change_that_no_scheduler_sees_has_no_payload(server: Server) -> None:
    await server.pod("a")
    log = Log()
    async with running((watching := watcher(server, log)).run()):
        await until(lambda: watching.status.synced)
        patch = {"metadata": {"annotations": {LAST_APPLIED: "{}"}}}
        changed = await server.call("PATCH", server.path("Pod", "a"), patch, MERGE)
        newest = changed["metadata"]["resourceVersion"]
        await until(lambda: any(event.resource_version == newest for event in log.of(ObjectPut)))
    assert next(event for event in log.of(ObjectPut) if event.resource_version == newest).payload is None


# --- history that is gone: only the embedded server can be made to forget -------------------------------------------


@pytest.fixture
def forgetful(server: Server) -> Server:
    """A server whose history can be compacted."""
    if server.store is None:
        pytest.skip("a real server's history cannot be compacted by a test")
    return server


async def forget(server: Server) -> None:
    """Let time pass without a pod's change, and compact."""
    assert server.store is not None
    await server.create("CSIStorageCapacity", {"metadata": {"name": "c"}, "storageClassName": "nobody"})
    server.store.compact()


async def test_a_watch_from_a_version_that_is_gone_is_410(forgetful: Server) -> None:
    start = await version(forgetful)
    await forget(forgetful)
    async with forgetful.watch("Pod", resourceVersion=start) as lines:
        event = await lines.next()
        assert event is not None
        assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")
        assert await lines.next() is None


async def test_a_page_whose_version_is_gone_is_410_and_the_list_begins_again(forgetful: Server) -> None:
    for name in "abc":
        await forgetful.pod(name)
    pages = forgetful.client.list_pages(forgetful.path("Pod"), limit=1)
    first = await anext(pages)
    await forget(forgetful)
    rest = [page async for page in pages]
    assert (len(first.items), rest[0].first, sum(len(page.items) for page in rest)) == (1, True, 3)


async def test_the_watcher_finds_what_was_deleted_while_it_could_not_see(forgetful: Server) -> None:
    api = forgetful.api
    assert api is not None
    for name in "ab":
        await forgetful.pod(name)
    log = Log()
    async with running((watching := watcher(forgetful, log)).run()):
        await until(lambda: api.open_watches("pods"))
        api.faults = lambda request: web.Response(status=503) if "watch" in request.query else None
        api.cut_watches("pods")
        await remove(forgetful, "a")
        await forget(forgetful)
        api.faults = None
        await until(lambda: watching.status.lists == 2)
    assert log.keys("Pod") == [forgetful.key("b")]
    assert watching.status.relists == 1
