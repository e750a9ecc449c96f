"""Lists and watches over HTTP: versions, pages, selectors, bookmarks, expiry."""

from __future__ import annotations

import pytest

from tests.embedded.serving import PODS, TABLE, Api, config_map, pod, serving

EVERY = "/api/v1/pods"
MAPS = "/api/v1/namespaces/default/configmaps"


async def pods(api: Api, *names: str) -> None:
    for name in names:
        api.store.create("pods", pod(name))


# --- lists ----------------------------------------------------------------------------------------------------------


async def test_pages_show_the_cluster_as_it_was_at_the_first_one() -> None:
    async with serving() as api:
        await pods(api, "a", "b", "c", "d")
        first = (await api.get(f"{PODS}?limit=2")).body
        api.store.delete("pods", "default", "c")
        api.store.create("pods", pod("bb"))
        api.store.patch("pods", "default", "d", {"metadata": {"labels": {"x": "y"}}})
        rest = (await api.get(f"{PODS}?limit=9&continue={first['metadata']['continue']}")).body
        assert [item["metadata"]["name"] for item in rest["items"]] == ["c", "d"]
        assert "x" not in rest["items"][1]["metadata"]["labels"]
        assert rest["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


async def test_pages_over_all_namespaces() -> None:
    async with serving() as api:
        for namespace in ("default", "kube-system"):
            for name in ("a", "b"):
                api.store.create("configmaps", {"metadata": {"name": name, "namespace": namespace}})
        seen, query = [], "limit=1"
        while True:
            page = (await api.get(f"/api/v1/configmaps?{query}")).body
            seen += [(item["metadata"]["namespace"], item["metadata"]["name"]) for item in page["items"]]
            if "continue" not in page["metadata"]:
                break
            query = f"limit=1&continue={page['metadata']['continue']}"
        assert seen == [("default", "a"), ("default", "b"), ("kube-system", "a"), ("kube-system", "b")]


async def test_the_token_of_an_expired_page_continues_at_the_present() -> None:
    async with serving() as api:
        await pods(api, "a", "b")
        token = (await api.get(f"{PODS}?limit=1")).body["metadata"]["continue"]
        await pods(api, "c")
        api.store.compact()
        expired = await api.get(f"{PODS}?limit=1&continue={token}")
        assert (expired.status, expired.body["reason"]) == (410, "Expired")
        again = expired.body["metadata"]["continue"]
        assert await api.names(f"{PODS}?continue={again}") == ["b", "c"]


async def test_an_exact_version_is_listed_from_history() -> None:
    async with serving() as api:
        await pods(api, "a")
        version = api.store.version
        await pods(api, "b")
        assert await api.names(f"{PODS}?resourceVersion={version}&resourceVersionMatch=Exact") == ["a"]
        assert await api.names(f"{PODS}?resourceVersion={version}&resourceVersionMatch=NotOlderThan") == ["a", "b"]


async def test_history_is_bounded_by_count() -> None:
    from tests.embedded.serving import make_store

    async with serving(make_store(history=2)) as api:
        await pods(api, "a")
        version = api.store.version
        await pods(api, "b", "c", "d")
        answer = await api.get(f"{PODS}?resourceVersion={version}&resourceVersionMatch=Exact")
        assert answer.status == 410


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("labelSelector=app%3Da", ["a"]),
        ("labelSelector=app%21%3Da", ["b", "c"]),
        ("labelSelector=%21app", []),
        ("fieldSelector=metadata.name%3Db", ["b"]),
        ("fieldSelector=spec.nodeName%3Dn1", ["c"]),
        ("fieldSelector=spec.nodeName%21%3Dn1,metadata.name%21%3Da", ["b"]),
        ("fieldSelector=spec.schedulerName%3Dvolcano", []),
    ],
)
async def test_selectors(query: str, expected: list[str]) -> None:
    async with serving() as api:
        await pods(api, "a", "b", "c")
        api.store.bind("default", "c", {"target": {"name": "n1"}})
        assert await api.names(f"{PODS}?{query}") == expected


async def test_a_selector_that_cannot_be_read_is_refused() -> None:
    async with serving() as api:
        assert (await api.get(f"{PODS}?labelSelector=a%3D%3D%3Db")).status == 400


async def test_items_of_built_in_lists_do_not_repeat_their_kind() -> None:
    async with serving() as api:
        await pods(api, "a")
        listed = (await api.get(EVERY)).body
        assert listed["kind"] == "PodList"
        assert "kind" not in listed["items"][0]


# --- watches --------------------------------------------------------------------------------------------------------


async def test_a_watch_without_version_begins_with_what_there_is() -> None:
    async with serving() as api:
        await pods(api, "a")
        async with api.watch(f"{PODS}?watch=1") as lines:
            assert await lines.take(1) == [("ADDED", "a")]
            await pods(api, "b")
            assert await lines.take(1) == [("ADDED", "b")]


async def test_initial_events_end_with_a_bookmark() -> None:
    async with serving() as api:
        await pods(api, "a")
        query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
        async with api.watch(f"{PODS}?{query}") as lines:
            assert await lines.take(1) == [("ADDED", "a")]
            bookmark = await lines.next()
            assert bookmark is not None
            assert bookmark["type"] == "BOOKMARK"
            assert bookmark["object"]["metadata"] == {
                "resourceVersion": str(api.store.version), "annotations": {"k8s.io/initial-events-end": "true"}
            }  # fmt: skip


async def test_initial_events_need_the_matching_version_rule() -> None:
    async with serving() as api:
        assert (await api.get(f"{PODS}?watch=1&sendInitialEvents=true")).status == 400


async def test_bookmarks_tell_the_version_while_nothing_happens() -> None:
    async with serving(bookmarks=0.01) as api:
        version = api.store.version
        api.store.create("configmaps", config_map("c"))
        async with api.watch(f"{PODS}?watch=1&resourceVersion={version}&allowWatchBookmarks=true") as lines:
            bookmark = await lines.next()
            assert bookmark is not None
            assert bookmark["object"]["metadata"] == {"resourceVersion": str(api.store.version)}


async def test_coming_into_a_selection_is_an_addition() -> None:
    async with serving() as api:
        await pods(api, "a")
        version = api.store.version
        async with api.watch(f"{PODS}?watch=1&resourceVersion={version}&fieldSelector=spec.nodeName%3Dn1") as lines:
            api.store.bind("default", "a", {"target": {"name": "n1"}})
            assert await lines.take(1) == [("ADDED", "a")]


async def test_an_expired_version_is_an_error_line_and_the_end() -> None:
    async with serving() as api, api.watch(f"{PODS}?watch=1&resourceVersion=1") as lines:
        error = await lines.next()
        assert error is not None
        assert (error["type"], error["object"]["code"]) == ("ERROR", 410)
        assert await lines.next() is None


async def test_a_watch_of_one_name() -> None:
    async with serving() as api:
        version = api.store.version
        async with api.watch(f"{PODS}?watch=1&resourceVersion={version}&fieldSelector=metadata.name%3Db") as lines:
            await pods(api, "a", "b")
            assert await lines.take(1) == [("ADDED", "b")]


async def test_a_watch_in_table_form_sends_its_columns_once() -> None:
    async with serving() as api:
        await pods(api, "a", "b")
        async with api.watch(f"{PODS}?watch=1", TABLE) as lines:
            first, second = await lines.next(), await lines.next()
            assert first is not None and second is not None
            assert [row["cells"][0] for row in first["object"]["rows"]] == ["a"]
            assert first["object"]["columnDefinitions"] and not second["object"]["columnDefinitions"]


async def test_cut_watches_end() -> None:
    async with serving() as api, api.watch(f"{PODS}?watch=1") as lines:
        assert api.server.cut_watches("nodes") == 0
        assert api.server.cut_watches("pods") == 1
        assert await lines.next() is None


async def test_stalled_watches_keep_their_events_back() -> None:
    async with serving() as api, api.watch(f"{PODS}?watch=1") as lines:
        assert api.server.stall_watches() == 1
        await pods(api, "a")
        assert await api.names(PODS) == ["a"]
        assert api.server.open_watches()[0].waiting == 1
        api.server.resume_watches()
        assert await lines.take(1) == [("ADDED", "a")]


async def test_a_watch_whose_client_left_is_closed() -> None:
    async with serving() as api:
        async with api.watch(f"{PODS}?watch=1"):
            assert len(api.server.open_watches()) == 1
        for _ in range(100):
            if not api.server.open_watches():
                break
            await api.get("/readyz")
        assert api.server.open_watches() == []
