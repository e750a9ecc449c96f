"""Lists: discovery, pages, versions, selectors."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from tests.contract.server import Obj, Server
from tests.kube.scripted import Log, running, until
from vcd.kube.client import MERGE_PATCH as MERGE
from vcd.kube.watcher import Watcher
from vcd.model.kinds import KINDS, Kind

WRITTEN = {
    # group version -> resource -> verbs, of what the daemon calls beside list and watch
    "/api/v1": {
        "pods": {"get", "delete"}, "pods/binding": {"create"}, "pods/status": {"patch"}, "events": {"create", "patch"},
    },
    "/apis/scheduling.volcano.sh/v1beta1": {
        "podgroups": {"get", "patch"}, "queues": {"get"}, "queues/status": {"patch"},
    },
    "/apis/coordination.k8s.io/v1": {"leases": {"get", "create", "update"}},
}  # fmt: skip


async def resources(server: Server, group_version: str) -> dict[str, Obj]:
    listed = await server.call("GET", group_version)
    return {entry["name"]: entry for entry in listed["resources"]}


def version_of(obj: Obj) -> int:
    return int(obj["metadata"]["resourceVersion"])


# --- discovery ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
async def test_every_kind_that_vcd_reads_is_served(server: Server, kind: Kind) -> None:
    entry = (await resources(server, kind.path.rpartition("/")[0]))[kind.plural]
    assert (entry["kind"], entry["namespaced"]) == (kind.name, kind.namespaced)
    assert {"get", "list", "watch"} <= set(entry["verbs"])


@pytest.mark.parametrize("group_version", WRITTEN)
async def test_every_call_that_vcd_makes_is_served(server: Server, group_version: str) -> None:
    served = await resources(server, group_version)
    missing = {name: verbs - set(served[name]["verbs"]) for name, verbs in WRITTEN[group_version].items()}
    assert missing == {name: set() for name in missing}


async def test_a_kind_that_is_not_served_is_404(server: Server) -> None:
    assert (await server.refused("GET", "/apis/contract.vcd.example/v1/nothings")).status == 404


# --- pages ----------------------------------------------------------------------------------------------------------


async def test_pages_have_the_items_in_order_under_one_version(server: Server) -> None:
    for name in "dbeac":
        await server.pod(name)
    pages = [page async for page in server.client.list_pages(server.path("Pod"), limit=2)]
    assert [json.loads(bytes(item))["metadata"]["name"] for page in pages for item in page.items] == list("abcde")
    assert [page.first for page in pages] == [True, False, False]
    assert len({page.resource_version for page in pages}) == 1


async def test_later_pages_show_the_cluster_as_it_was_at_the_first(server: Server) -> None:
    for name in "abc":
        await server.pod(name)
    first = await server.listed("Pod", limit=2)
    await server.pod("d")
    await server.call("DELETE", server.path("Pod", "c"))
    token = first["metadata"]["continue"]
    assert await server.names("Pod", **{"limit": 2, "continue": token}) == ["c"]


async def test_a_continue_token_that_is_none_is_refused(server: Server) -> None:
    assert (await server.refused("GET", f"{server.path('Pod')}?limit=2&continue=nonsense")).status == 400


async def test_a_long_list_comes_in_whole(server: Server) -> None:
    count = 1200
    free = asyncio.Semaphore(32)

    async def make(number: int) -> None:
        async with free:
            body = {"metadata": {"name": f"room-{number:04}"}, "storageClassName": "nobody", "capacity": "1Gi"}
            await server.create("CSIStorageCapacity", body)

    await asyncio.gather(*(make(number) for number in range(count)))
    log = Log()
    kind = replace(KINDS["CSIStorageCapacity"], namespace=server.namespace)
    watcher = Watcher(server.client, kind, log, log.sink)
    async with running(watcher.run()):
        await until(lambda: watcher.status.synced)
    assert log.keys("CSIStorageCapacity") == [server.key(f"room-{number:04}") for number in range(count)]


# --- versions -------------------------------------------------------------------------------------------------------


async def test_every_change_has_a_greater_version(server: Server) -> None:
    made = await server.pod("a")
    changed = await server.call("PATCH", server.path("Pod", "a"), {"metadata": {"labels": {"x": "1"}}}, MERGE)
    assert version_of(changed) > version_of(made)


async def test_a_write_that_changes_nothing_keeps_the_version(server: Server) -> None:
    made = await server.pod("a", {"x": "1"})
    same = await server.call("PATCH", server.path("Pod", "a"), {"metadata": {"labels": {"x": "1"}}}, MERGE)
    assert version_of(same) == version_of(made)


async def test_a_list_has_all_that_was_written_before_it(server: Server) -> None:
    made = await server.pod("a")
    listed = await server.listed("Pod")
    assert version_of(listed) >= version_of(made)
    assert listed["items"][0]["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_a_list_not_older_than_a_version_has_it(server: Server) -> None:
    made = await server.pod("a")
    query = {"resourceVersion": made["metadata"]["resourceVersion"], "resourceVersionMatch": "NotOlderThan"}
    assert await server.names("Pod", **query) == ["a"]


async def test_a_list_at_any_version_says_at_which(server: Server) -> None:
    listed = await server.listed("Pod", resourceVersion=0)
    assert version_of(listed) > 0


# --- selectors ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({"labelSelector": "app=x"}, ["a"]),
        ({"labelSelector": "app in (x,y),!extra"}, ["a"]),
        ({"labelSelector": "app!=x"}, ["b", "c"]),
        ({"labelSelector": "extra"}, ["b"]),
        ({"fieldSelector": "metadata.name=b"}, ["b"]),
        ({"fieldSelector": "spec.nodeName=,metadata.name!=a"}, ["b", "c"]),
        ({"fieldSelector": "spec.schedulerName=vcd-contract-other"}, ["c"]),
        ({"fieldSelector": "status.phase!=Pending"}, []),
        ({"fieldSelector": "metadata.name!=b", "labelSelector": "app"}, ["a"]),
    ],
    ids=lambda value: "&".join(value.values()) if isinstance(value, dict) else None,
)
async def test_selectors(server: Server, query: dict[str, str], names: list[str]) -> None:
    await server.pod("a", {"app": "x"})
    await server.pod("b", {"app": "y", "extra": ""})
    await server.pod("c", schedulerName="vcd-contract-other")
    assert await server.names("Pod", **query) == names


async def test_a_field_that_cannot_be_selected_by_is_refused(server: Server) -> None:
    assert (await server.refused("GET", f"{server.path('Pod')}?fieldSelector=spec.nothing%3Dx")).status == 400


# --- text -----------------------------------------------------------------------------------------------------------


async def test_text_comes_back_as_it_was_written(server: Server) -> None:
    text = 'Größe 日本語 🌋 \u2028 "quoted" \\ \t<&>'
    await server.pod("a")
    patch = {"metadata": {"annotations": {"contract.vcd.example/text": text}}}
    await server.call("PATCH", server.path("Pod", "a"), patch, MERGE)
    assert (await server.get("Pod", "a"))["metadata"]["annotations"]["contract.vcd.example/text"] == text
