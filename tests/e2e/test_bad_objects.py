"""An object that cannot be used never stops the cycle, and its owner is told (docs/laws.md, law 6)."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from tests.e2e.cluster import Cluster, group, pod, until

TOO_MUCH = "16Pi"


@pytest.mark.parametrize("before", [False, True], ids=["while it leads", "before it led"])
async def test_a_pod_that_cannot_be_counted_is_told_of_once_and_the_rest_is_bound(tmp_path: Path, before: bool) -> None:
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(1)
        daemon = None if before else await cluster.started("a")
        bad = pod("bad", "odd")
        bad["spec"]["containers"][0]["resources"]["requests"]["memory"] = TOO_MUCH
        cluster.store.create("podgroups.scheduling.volcano.sh", group("odd", 1))
        namespace = cluster.store.create("pods", bad)["metadata"]["namespace"]
        daemon = daemon or await cluster.started("a")
        await cluster.until_bound(cluster.submit("good", 2))

        def told() -> list[str]:
            events = cluster.store.list("events", namespace)
            return [event["message"] for event in events if event["reason"] == "SetAside"]

        def conditions() -> list[str]:
            shown = cluster.store.get("pods", namespace, "bad")["status"].get("conditions", [])
            return [one["message"] for one in shown if one["reason"] == "SchedulerError"]

        await until(told)
        await until(conditions)
        assert "Pod" in told()[0] and "memory" in told()[0]
        assert conditions() == told()
        cluster.store.patch("pods", namespace, "bad", {"metadata": {"labels": {"changed": "yes"}}})
        await cluster.until_bound(cluster.submit("better", 2))
        assert [line["key"] for line in daemon.lines("object set aside")] == ["default/bad"]


def nested(obj: dict[str, Any], levels: int) -> bytes:
    """The object's JSON with managed fields nested so deep, as whoever may create a pod can have them stored."""
    fields = b'{"f:a":' * levels + b"{}" + b"}" * levels
    entry = b'{"manager":"m","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":%s}' % fields
    return msgspec.json.encode(obj).replace(b'"metadata":{', b'"metadata":{"managedFields":[%s],' % entry, 1)


async def test_managed_fields_nested_without_end_stop_nothing_and_their_pod_is_bound_too(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(1)
        daemon = await cluster.started("a")
        cluster.store.create("podgroups.scheduling.volcano.sh", group("deep", 3))
        for number, levels in enumerate((990, 5000)):
            body = nested(pod(f"deep-{number}", "deep"), levels)
            assert await cluster.post("/api/v1/namespaces/default/pods", body) == 201
            shown = cluster.store.entry(cluster.store.type_of("pods"), "default", f"deep-{number}").json
            assert shown.count(b'"f:a":{') >= levels
        cluster.store.create("pods", pod("deep-2", "deep"))
        await cluster.until_bound([f"default/deep-{number}" for number in range(3)])
        await cluster.until_bound(cluster.submit("other", 2))
        assert daemon.running
        assert [line for line in daemon.lines() if line["level"] == "error"] == []


async def test_managed_fields_nested_without_end_do_not_end_a_replica_that_starts(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(1)
        cluster.store.create("podgroups.scheduling.volcano.sh", group("deep", 1))
        assert await cluster.post("/api/v1/namespaces/default/pods", nested(pod("deep-0", "deep"), 2000)) == 201
        first = await cluster.started("a")
        await cluster.until_bound(["default/deep-0", *cluster.submit("other", 2)])
        first.signal(signal.SIGTERM)
        await until(lambda: not first.running)
        await cluster.started("b", log=first.log)
        await cluster.until_bound(cluster.submit("third", 2))


async def test_a_list_and_a_watch_of_odd_bytes_cost_only_their_object(tmp_path: Path) -> None:
    odd = b'{"metadata":{"namespace":"default","name":"odd","uid":"u","resourceVersion":"1","labels":{"a":"\xff"}}}'
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(1)

        def with_odd(request: web.Request) -> web.Response | None:
            if request.path != "/api/v1/pods" or "watch" in request.query:
                return None
            version = cluster.store.version
            body = b'{"kind":"PodList","metadata":{"resourceVersion":"%d"},"items":[%s]}' % (version, odd)
            return web.Response(body=body, content_type="application/json")

        with cluster.faults(with_odd):
            daemon = await cluster.started("a")
            await cluster.until_bound(cluster.submit("good", 2))
            aside = [line for line in daemon.lines() if line["event"] == "object set aside"]
            assert [(line["kind"], line["key"]) for line in aside][:1] == [("Pod", "default/odd")]
