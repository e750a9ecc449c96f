"""PodGroups for pods that bring none: the daemon makes them where no controller of Volcano's does."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.deploy.rbac import Grant, allows
from tests.e2e.cluster import GROUPS, QUEUES, Cluster, Daemon, Obj, failed, request_of, until
from tests.e2e.standalone import (
    FLAG,
    REPLICASETS,
    STATEFULSETS,
    added,
    alone,
    bare,
    batch_job,
    group_named,
    pod_set,
    reference,
)
from tests.e2e.test_leadership import two
from tests.sizes import some
from tests.waiting import WAIT_LIMIT
from vcd.api import explain
from vcd.model import events as ev

MINIMUM = "scheduling.volcano.sh/group-min-member"


def groups(cluster: Cluster) -> dict[str, Obj]:
    return {each["metadata"]["name"]: each for each in cluster.store.list(GROUPS, "default")}


def made(cluster: Cluster) -> int:
    """How many PodGroups were asked for, whatever the server said."""
    return sum(call.call.verb == "create" and call.call.resource == GROUPS for call in cluster.made)


def gone(daemon: Daemon) -> list[str]:
    """The PodGroups whose end is in a replica's log."""
    return [
        event.key for event in daemon.events("gone") if isinstance(event, ev.ObjectGone) and event.kind == "PodGroup"
    ]


OFTEN = {"E2E_SHOWS": "2"}
"""The environment of a daemon that sweeps each other second."""
AT_ONCE = {"E2E_SHOWS": str(2 * WAIT_LIMIT)}
"""The environment of a daemon that no sweep helps within the time that a test waits."""


async def test_a_bare_pod_gets_a_group_and_a_node_and_pods_of_others_are_left_alone(tmp_path: Path) -> None:
    async with alone(tmp_path) as cluster:
        daemon = await cluster.started("a", FLAG)
        marks = {"volcano.sh/card.name": "A", "scheduling.volcano.sh/queue-name": "default", "other": "1"}
        uid = cluster.store.create("pods", bare("p", **marks))["metadata"]["uid"]
        await cluster.until_bound(["default/p"])
        (group,) = groups(cluster).values()
        assert group["metadata"]["name"] == group_named(cluster, "default/p") == f"podgroup-{uid}"
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid, "controller": True}
        assert group["metadata"]["ownerReferences"] == [owner]
        assert group["metadata"]["annotations"] == {"volcano.sh/card.name": "A"}
        spec = group["spec"]
        assert (spec["minMember"], spec["queue"], spec["minResources"]["cpu"]) == (1, "default", "1")

        other = bare("other")
        other["spec"]["schedulerName"] = "default-scheduler"
        cluster.store.create("pods", other)
        keys = cluster.submit("mine", 1)
        cluster.store.create("pods", bare("last"))
        await cluster.until_bound([*keys, "default/last"])
        assert group_named(cluster, "default/mine-0") == "mine"
        assert group_named(cluster, "default/other") == ""
        named = [
            call.name for call in cluster.writes(daemon) if (call.call.resource, call.call.subresource) == ("pods", "")
        ]
        assert set(named) == {"p", "last"}  # a write without an answer is repeated


_STATUSES = [(500, "InternalError"), (429, "TooManyRequests"), (409, "Conflict")]
OWNERS: list[dict[str, str]] = [
    {"name": "caf\u00e9"}, {"name": "a\u0000b"}, {"name": "\u2028", "kind": "StatefulSet"}, {"name": "a b\r\nX: y"},
    {"name": "../../../../api/v1/nodes/node-0?x=1"}, {"name": ".."}, {"name": "%2e%2e"}, {"name": "x?watch=1#y"},
    {"uid": "a\u0000b"}, {"uid": "\u00e9"}, {"uid": "../x"}, {"kind": "ReplicaSet\u00e9"},
    {"apiVersion": "apps/\u00e9"},
]  # fmt: skip


async def test_whatever_pods_say_of_their_owners_harms_nobody_else(tmp_path: Path) -> None:
    """An API server demands of a reference only that its fields are not empty."""
    async with alone(tmp_path) as cluster:
        daemon = await cluster.started("a", FLAG)
        for number, owner in enumerate(OWNERS):
            odd = bare(f"odd-{number}")
            usual = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "x", "uid": "u", "controller": True}
            odd["metadata"]["ownerReferences"] = [{**usual, **owner}]
            cluster.store.create("pods", odd)
        cluster.store.create("pods", bare("p"))
        await cluster.until_bound(["default/p"])
        assert daemon.running
        assert not [line for line in daemon.lines() if line["event"] == "work_failed"]
        asked = {made.call.resource for made in cluster.made if made.call.verb == "get"}
        assert asked.isdisjoint({"nodes", "namespaces"})


async def test_a_namespace_names_the_queue_of_pods_that_name_none(tmp_path: Path) -> None:
    async with alone(tmp_path) as cluster:
        mark = {"metadata": {"annotations": {"scheduling.volcano.sh/queue-name": "q"}}}
        cluster.store.patch("namespaces", None, "default", mark)
        cluster.store.create(QUEUES, {"kind": "Queue", "metadata": {"name": "q"}, "spec": {"weight": 1}})
        await cluster.started("a", FLAG)
        cluster.store.create("pods", bare("p"))
        cluster.store.create("pods", bare("empty", **{"scheduling.volcano.sh/queue-name": ""}))
        await cluster.until_bound(["default/p", "default/empty"])
        assert [group["spec"]["queue"] for group in groups(cluster).values()] == ["q", "q"]


async def test_pods_of_a_replica_set_are_one_gang_with_its_deployments_minimum(tmp_path: Path) -> None:
    async with alone(tmp_path) as cluster:
        await cluster.started("a", FLAG)
        owner = pod_set(cluster, REPLICASETS, "web", 3, **{MINIMUM: "3", "volcano.sh/preemptable": "false"})
        for name in ("web-a", "web-b"):
            cluster.store.create("pods", bare(name, owner=owner))
        await until(lambda: group_named(cluster, "default/web-b"), what="both are in the group")
        (group,) = groups(cluster).values()
        assert group["metadata"]["name"] == f"podgroup-{owner['metadata']['uid']}"
        assert group["metadata"]["ownerReferences"] == [reference(owner)]
        assert group["metadata"]["annotations"] == {"volcano.sh/preemptable": "false"}
        assert (group["spec"]["minMember"], group["spec"]["minResources"]["cpu"]) == (3, "3")
        assert not cluster.binds
        cluster.store.create("pods", bare("web-c", owner=owner))
        await cluster.until_bound([f"default/web-{letter}" for letter in "abc"])
        assert made(cluster) == 1


async def test_pods_of_a_job_are_one_gang(tmp_path: Path) -> None:
    job = batch_job("train", **{MINIMUM: "2"})

    def served(request: web.Request) -> web.Response | None:
        there = request.method == "GET" and request.path == "/apis/batch/v1/namespaces/default/jobs/train"
        return web.json_response(job) if there else None

    async with alone(tmp_path) as cluster:
        with cluster.faults(served):
            await cluster.started("a", FLAG)
            for number in range(2):
                cluster.store.create("pods", bare(f"train-{number}", owner=job))
            await cluster.until_bound(["default/train-0", "default/train-1"])
        (group,) = groups(cluster).values()
        assert (group["metadata"]["name"], group["spec"]["minMember"]) == (f"podgroup-{job['metadata']['uid']}", 2)


async def test_without_the_flag_nobody_makes_one_and_explain_says_what_to_do(tmp_path: Path) -> None:
    async with alone(tmp_path) as cluster:
        daemon = await cluster.started("a")
        cluster.store.create("pods", bare("p"))
        await cluster.until_bound(cluster.submit("after", 1))
        assert (made(cluster), group_named(cluster, "default/p")) == (0, "")
        assert explain(daemon.log, "pod", "p").now == (
            "the pod is Pending; it has no annotation scheduling.k8s.io/group-name, so it is in no group that a session"
            " could place; Volcano's controllers create its PodGroup; without them, vcd run --controllers=podgroup does"
        )


async def test_a_new_leader_makes_what_the_last_one_did_not_and_nothing_twice(tmp_path: Path) -> None:
    async with alone(tmp_path) as cluster:
        owner = pod_set(cluster, REPLICASETS, "web", 2, **{MINIMUM: "2"})
        leader, follower = await two(cluster, FLAG)
        cluster.store.create("pods", bare("web-a", owner=owner))
        await until(lambda: group_named(cluster, "default/web-a"), what="the first one is in its group")
        await leader.kill()
        cluster.store.create("pods", bare("web-b", owner=owner))
        cluster.store.create("pods", bare("alone"))
        await cluster.until_bound(["default/web-a", "default/web-b", "default/alone"])
        assert cluster.leader() is follower
        assert len(groups(cluster)) == 2
        assert made(cluster) == 2


@pytest.mark.parametrize("statuses", some(1, [(_STATUSES[turn:] + _STATUSES[:turn],) for turn in range(3)]))
async def test_whatever_fails_is_tried_again(tmp_path: Path, statuses: list[tuple[int, str]]) -> None:
    calls = (("POST", "/podgroups"), ("PATCH", "/pods/web-a"), ("GET", "/replicasets/web"))
    seen: Counter[str] = Counter()

    def twice(request: web.Request) -> web.Response | None:
        for (method, end), (code, reason) in zip(calls, statuses, strict=True):
            if request.method == method and request.path.endswith(end) and seen[method] < 2:
                seen[method] += 1
                return failed(code, reason)
        return None

    async with alone(tmp_path) as cluster:
        owner = pod_set(cluster, REPLICASETS, "web", 1)
        with cluster.faults(twice):
            await cluster.started("a", FLAG)
            cluster.store.create("pods", bare("web-a", owner=owner))
            await cluster.until_bound(["default/web-a"])
        assert seen == {method: 2 for method, _ in calls}
        assert len(groups(cluster)) == 1


async def test_an_answer_that_got_lost_makes_no_second_group(tmp_path: Path) -> None:
    async with alone(tmp_path) as cluster:
        lost: list[str] = []

        async def without_answer(request: web.Request) -> web.StreamResponse | None:
            if request.method != "POST" or not request.path.endswith("/podgroups") or lost:
                return None
            lost.append(request.path)
            await cluster.carry_out(request)
            assert request.transport is not None
            request.transport.abort()
            return web.Response()

        with cluster.faults(without_answer):
            await cluster.started("a", FLAG)
            cluster.store.create("pods", bare("p"))
            await cluster.until_bound(["default/p"])
        assert (len(lost), len(groups(cluster))) == (1, 1)


async def test_a_refusal_is_told_at_the_pod_and_others_get_theirs(tmp_path: Path) -> None:
    def told() -> list[tuple[str, str]]:
        events = cluster.store.list("events", "default")
        return [(e["involvedObject"]["name"], e["message"]) for e in events if e["reason"] == "PodGroupMissing"]

    async def refused(request: web.Request) -> web.Response | None:
        if request.method == "POST" and request.path.endswith("/podgroups") and uid in await request.text():
            return failed(403, "Forbidden", "exceeded quota: groups")
        return None

    async with alone(tmp_path) as cluster:
        uid = cluster.store.create("pods", bare("p"))["metadata"]["uid"]
        with cluster.faults(refused):
            daemon = await cluster.started("a", FLAG)
            cluster.store.create("pods", bare("q"))
            await cluster.until_bound(["default/q"])
            await until(told, what="an Event at the pod")
            words = f"its PodGroup podgroup-{uid} cannot be made: 403 Forbidden: exceeded quota: groups"
            assert told() == [("p", words)]
            assert "vcd creates its PodGroup next" in explain(daemon.log, "pod", "p").now
        await cluster.until_bound(["default/p"])


async def test_a_group_that_somebody_deleted_is_made_again(tmp_path: Path) -> None:
    async with alone(tmp_path, cpu=1) as cluster:
        await cluster.started("a", FLAG)
        cluster.store.create("pods", bare("first"))
        await cluster.until_bound(["default/first"])
        cluster.store.create("pods", bare("waits"))
        await until(lambda: group_named(cluster, "default/waits"), what="it is in its group")
        name = group_named(cluster, "default/waits")
        uid = groups(cluster)[name]["metadata"]["uid"]
        cluster.store.delete(GROUPS, "default", name)
        await until(lambda: name in groups(cluster), what="the group is made again")
        assert groups(cluster)[name]["metadata"]["uid"] != uid


async def test_pods_and_groups_that_are_deleted_meanwhile_are_waited_for_by_none_that_come(tmp_path: Path) -> None:
    async with alone(tmp_path) as cluster:
        await cluster.started("a", FLAG, **AT_ONCE)
        owner = pod_set(cluster, STATEFULSETS, "db", 1)
        for pod in (bare("db-0", owner=owner), bare("single")):
            cluster.store.create("pods", pod)
        await cluster.until_bound(["default/db-0", "default/single"])
        for pod in (bare("db-0", owner=owner), bare("single")):
            cluster.store.delete("pods", "default", pod["metadata"]["name"], grace_period=0)
            cluster.store.create("pods", pod)
        await until(lambda: len(cluster.binds) == 4, what="pods that come again under their names are bound")

        owner = pod_set(cluster, REPLICASETS, "web", 2, **{MINIMUM: "2"})
        cluster.store.create("pods", bare("web-0", owner=owner))
        await until(lambda: group_named(cluster, "default/web-0"), what="it is in its group")
        cluster.store.delete(GROUPS, "default", group_named(cluster, "default/web-0"))
        cluster.store.create("pods", bare("web-1", owner=owner))
        await cluster.until_bound(["default/web-0", "default/web-1"])

        owner = pod_set(cluster, REPLICASETS, "late", 3, **{MINIMUM: "3"})
        for name in ("late-0", "late-1"):
            cluster.store.create("pods", bare(name, owner=owner))
        await until(lambda: all(group_named(cluster, f"default/late-{at}") for at in (0, 1)), what="they are named")
        name = group_named(cluster, "default/late-0")
        cluster.store.delete(GROUPS, "default", name)
        await until(lambda: name in groups(cluster), what="it is there again, though no pod came")


async def test_a_group_that_is_gone_before_its_answer_is_here_is_there_for_the_next_pod(tmp_path: Path) -> None:
    async with alone(tmp_path) as cluster:
        shown = asyncio.Event()

        async def late(request: web.Request) -> web.StreamResponse | None:
            if request.method != "POST" or not request.path.endswith("/podgroups") or groups(cluster) or shown.is_set():
                return None
            answer = await cluster.carry_out(request)
            cluster.store.delete(GROUPS, "default", *groups(cluster))
            await shown.wait()
            return answer

        with cluster.faults(late):
            daemon = await cluster.started("a", FLAG, **AT_ONCE)
            owner = pod_set(cluster, REPLICASETS, "web", 2, **{MINIMUM: "2"})
            cluster.store.create("pods", bare("web-0", owner=owner))
            await until(lambda: gone(daemon), what="the watch tells its end")
            shown.set()
            await until(lambda: group_named(cluster, "default/web-0"), what="it is in its group")
            cluster.store.create("pods", bare("web-1", owner=owner))
            await cluster.until_bound(["default/web-0", "default/web-1"])


async def test_a_minimum_beyond_all_measure_is_told_and_harms_nobody(tmp_path: Path) -> None:
    async with alone(tmp_path) as cluster:
        daemon = await cluster.started("a", FLAG)
        owner = pod_set(cluster, REPLICASETS, "huge", 1, **{MINIMUM: "999999999"})
        huge = bare("huge-0", owner=owner)
        huge["spec"]["containers"][0]["resources"]["requests"]["memory"] = "64Gi"
        cluster.store.create("pods", huge)
        name = f"podgroup-{owner['metadata']['uid']}"
        await until(lambda: name in groups(cluster), what="it has its group")
        cluster.store.create("pods", bare("fine"))
        await cluster.until_bound(["default/fine"])
        assert groups(cluster)[name]["spec"]["minResources"]["memory"] == str(2**63 - 1)
        assert [line["key"] for line in daemon.lines("object set aside")] == [f"default/{name}"]
        assert daemon.running


async def test_an_owner_that_is_not_there_is_told_at_its_pod(tmp_path: Path) -> None:
    async with alone(tmp_path) as cluster:
        await cluster.started("a", FLAG)
        owner = pod_set(cluster, REPLICASETS, "gone", 1)
        cluster.store.delete(REPLICASETS, "default", "gone")
        cluster.store.create("pods", bare("left", owner=owner))

        def told() -> list[str]:
            events = cluster.store.list("events", "default")
            return [each["message"] for each in events if each["reason"] == "PodGroupMissing"]

        await until(told, what="an Event at the pod")
        (message,) = told()
        assert "its owner is not there (/apis/apps/v1/namespaces/default/replicasets/gone)" in message


async def test_the_group_of_a_set_that_is_scaled_to_nothing_goes(tmp_path: Path) -> None:
    async with alone(tmp_path) as cluster:
        await cluster.started("a", FLAG, **OFTEN)
        both: dict[str, Any] = {name: pod_set(cluster, STATEFULSETS, name, 1) for name in ("stays", "goes")}
        for name, owner in both.items():
            cluster.store.create("pods", bare(f"{name}-0", owner=owner))
        await cluster.until_bound([f"default/{name}-0" for name in both])
        cluster.store.patch(STATEFULSETS, "default", "goes", {"spec": {"replicas": 0}})
        for name in both:
            cluster.store.delete("pods", "default", f"{name}-0", grace_period=0)
        await until(lambda: len(groups(cluster)) == 1, what="one of the groups goes")
        assert list(groups(cluster)) == [f"podgroup-{both['stays']['metadata']['uid']}"]


async def test_every_right_is_used(tmp_path: Path) -> None:
    def used(right: Grant) -> bool:
        return any(allows({right}, request_of(made.call, made.name)) for made in cluster.calls(daemon))

    async with alone(tmp_path) as cluster:
        daemon = await cluster.started("a", FLAG, **OFTEN)
        for number, kind in enumerate((REPLICASETS, STATEFULSETS)):
            cluster.store.create("pods", bare(f"p-{number}", owner=pod_set(cluster, kind, "goes", 1)))
        cluster.store.create(QUEUES, {"kind": "Queue", "metadata": {"name": "q"}, "spec": {"parent": "default"}})
        await cluster.until_bound(["default/p-0", "default/p-1"])
        cluster.store.patch(QUEUES, None, "default", {"status": {"state": "Closed"}}, "status")
        for number, kind in enumerate((REPLICASETS, STATEFULSETS)):
            cluster.store.patch(kind, "default", "goes", {"spec": {"replicas": 0}})
            cluster.store.delete("pods", "default", f"p-{number}", grace_period=0)
        await until(lambda: not groups(cluster), what="the groups go")
        unserved = {Grant("get", "apps", "daemonsets", "", ""), Grant("get", "batch", "jobs", "", "")}
        assert {right for right in added() if not used(right)} == unserved  # the embedded server has neither


async def test_a_changed_workload_reaches_its_group_with_its_next_pod(tmp_path: Path) -> None:
    async with alone(tmp_path) as cluster:
        await cluster.started("a", FLAG)
        owner = pod_set(cluster, STATEFULSETS, "db", 2, **{MINIMUM: "1"})
        cluster.store.create("pods", bare("db-0", owner=owner))
        await cluster.until_bound(["default/db-0"])
        (name,) = groups(cluster)
        cluster.store.patch(GROUPS, "default", name, {"metadata": {"annotations": {"mine": "1"}}})
        cluster.store.patch(STATEFULSETS, "default", "db", {"metadata": {"annotations": {MINIMUM: "2"}}})
        cluster.store.create("pods", bare("db-1", owner=owner, cpu=2))
        await until(lambda: groups(cluster)[name]["spec"]["minMember"] == 2, what="the minimum follows")
        group = groups(cluster)[name]
        assert (group["spec"]["minResources"]["cpu"], group["metadata"]["annotations"]) == ("4", {"mine": "1"})


async def test_each_pod_that_waits_for_a_group_is_told_why_those_that_come_later_too(tmp_path: Path) -> None:
    tried: list[str] = []

    def denied(request: web.Request) -> web.Response | None:
        if request.method != "POST" or not request.path.endswith("/podgroups"):
            return None
        tried.append(request.path)
        return failed(403, "Forbidden", "denied by a webhook")

    def told() -> dict[str, int]:
        events = cluster.store.list("events", "default")
        return {e["involvedObject"]["name"]: e["count"] for e in events if e["reason"] == "PodGroupMissing"}

    async with alone(tmp_path) as cluster:
        with cluster.faults(denied):
            await cluster.started("a", FLAG)
            owner = pod_set(cluster, REPLICASETS, "web", 3)
            cluster.store.create("pods", bare("web-a", owner=owner))
            await until(lambda: "web-a" in told(), what="the first is told")
            for name in ("web-b", "web-c"):
                cluster.store.create("pods", bare(name, owner=owner))
            await until(lambda: told().keys() == {"web-a", "web-b", "web-c"}, what="all are told")
            before = len(tried)
            await until(lambda: len(tried) > before, what="it is tried again")
            assert set(told().values()) == {1}
