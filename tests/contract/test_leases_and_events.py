"""The Lease, Events and Nodes, with vcd's own elector and recorder."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.contract.server import Obj, Server
from tests.kube.scripted import running, until
from tests.waiting import WAIT_LIMIT
from vcd.kube.client import MERGE_PATCH, STRATEGIC_PATCH, KubeClient
from vcd.kube.event_recorder import EventRecorder
from vcd.kube.lease import LeaderElector

# --- Lease ----------------------------------------------------------------------------------------------------------


async def lease(server: Server) -> Obj:
    spec = {"holderIdentity": "me", "leaseDurationSeconds": 15, "leaseTransitions": 1,
            "renewTime": "2026-01-01T00:00:00.123456Z"}  # fmt: skip
    return await server.create("Lease", {"metadata": {"name": "l", "labels": {"x": "1"}}, "spec": spec})


async def test_a_lease_keeps_microseconds(server: Server) -> None:
    await lease(server)
    assert (await server.get("Lease", "l"))["spec"]["renewTime"] == "2026-01-01T00:00:00.123456Z"


async def test_a_second_lease_of_a_name_conflicts(server: Server) -> None:
    made = await lease(server)
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}, "spec": made["spec"]}
    assert (await server.refused("POST", server.path("Lease"), body)).status == 409


async def test_a_renewal_of_an_old_copy_conflicts(server: Server) -> None:
    made = await lease(server)
    other = {**made, "spec": {**made["spec"], "holderIdentity": "other"}}
    await server.call("PUT", server.path("Lease", "l"), other)
    mine = {**made, "spec": {**made["spec"], "renewTime": "2026-01-01T00:00:02.000000Z"}}
    error = await server.refused("PUT", server.path("Lease", "l"), mine)
    assert (error.status, error.reason) == (409, "Conflict")
    assert (await server.get("Lease", "l"))["spec"]["holderIdentity"] == "other"


async def test_a_renewal_of_no_version_is_refused(server: Server) -> None:
    made = await lease(server)
    metadata = {key: value for key, value in made["metadata"].items() if key != "resourceVersion"}
    assert (await server.refused("PUT", server.path("Lease", "l"), {**made, "metadata": metadata})).status == 422


async def test_of_two_renewals_at_once_one_is_taken(server: Server) -> None:
    made = await lease(server)
    bodies = [{**made, "spec": {**made["spec"], "holderIdentity": name}} for name in ("a", "b")]
    calls = (server.call("PUT", server.path("Lease", "l"), body) for body in bodies)
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert sorted(getattr(answer, "status", 200) for answer in answers if answer) == [200, 409]


@pytest.fixture
async def client(server: Server) -> AsyncIterator[KubeClient]:
    """A client whose requests are short enough for a short lease."""
    async with KubeClient(server.connection, request_timeout=5.0) as opened:
        yield opened


def elector(server: Server, client: KubeClient, identity: str, last_epoch: int = -1) -> LeaderElector:
    return LeaderElector(
        client, server.namespace, "election", identity, lease_duration=30.0, renew_deadline=20.0, retry_period=0.1,
        last_epoch=last_epoch,
    )  # fmt: skip


async def leads(candidate: LeaderElector) -> int:
    """The epoch of the candidate's next win."""
    async with asyncio.timeout(WAIT_LIMIT):
        change = await anext(candidate.changes())
    assert change.leading
    return change.epoch


async def test_one_of_two_candidates_leads_and_renews(server: Server, client: KubeClient) -> None:
    first, second = elector(server, client, "first"), elector(server, client, "second")
    async with running(first.run()):
        await leads(first)
        won = (await server.get("Lease", "election"))["spec"]
        async with running(second.run()):
            renewed = await server.until("Lease", "election", lambda obj: obj["spec"]["renewTime"] > won["renewTime"])
            await until(lambda: second.holder)
        assert (second.holder, second.is_leader(), first.is_leader()) == ("first", False, True)
        assert renewed["spec"]["leaseTransitions"] == won["leaseTransitions"]


async def test_a_lease_that_was_given_back_is_taken_under_a_new_epoch(server: Server, client: KubeClient) -> None:
    first, second = elector(server, client, "first"), elector(server, client, "second")
    async with running(first.run()):
        before = await leads(first)
    await first.release()
    async with running(second.run()):
        assert await leads(second) == before + 1


async def test_a_stolen_lease_ends_leadership(server: Server, client: KubeClient) -> None:
    candidate = elector(server, client, "mine")
    async with running(candidate.run()):
        await leads(candidate)
        await server.change("Lease", "election", lambda obj: obj["spec"].update(holderIdentity="thief"))
        async with asyncio.timeout(WAIT_LIMIT):
            change = await anext(candidate.changes())
    assert (change.leading, candidate.is_leader()) == (False, False)


async def test_a_renewal_keeps_the_labels_of_others(server: Server, client: KubeClient) -> None:
    candidate = elector(server, client, "mine")
    async with running(candidate.run()):
        await leads(candidate)
        await server.change("Lease", "election", lambda obj: obj["metadata"].update(labels={"x": "1"}))
        since = (await server.get("Lease", "election"))["spec"]["renewTime"]
        renewed = await server.until("Lease", "election", lambda obj: obj["spec"]["renewTime"] > since)
    assert renewed["metadata"]["labels"] == {"x": "1"}


# --- Events ---------------------------------------------------------------------------------------------------------


def event(server: Server, namespace: str = "") -> Obj:
    about = {"apiVersion": "v1", "kind": "Pod", "name": "a", "namespace": namespace or server.namespace, "uid": "u"}
    return {
        "metadata": {"name": "a.1"}, "involvedObject": about, "type": "Warning", "reason": "Unschedulable",
        "message": "0/1 nodes", "source": {"component": "volcano"}, "reportingComponent": "volcano", "count": 1,
        "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z",
    }  # fmt: skip


async def test_an_event_is_counted_up_by_a_patch(server: Server) -> None:
    await server.create("Event", event(server))
    patch = {"count": 2, "lastTimestamp": "2026-01-01T00:00:09Z"}
    await server.call("PATCH", server.path("Event", "a.1"), patch, STRATEGIC_PATCH)
    found = await server.get("Event", "a.1")
    assert (found["count"], found["lastTimestamp"], found["message"]) == (2, "2026-01-01T00:00:09Z", "0/1 nodes")


async def test_an_event_about_another_namespaces_object_is_refused(server: Server) -> None:
    body = {"apiVersion": "v1", "kind": "Event", **event(server, "elsewhere")}
    assert (await server.refused("POST", server.path("Event"), body)).status == 422


async def test_a_patch_of_an_event_that_expired_is_404(server: Server) -> None:
    assert (await server.refused("PATCH", server.path("Event", "a.1"), {"count": 2}, STRATEGIC_PATCH)).status == 404


async def test_the_recorder_writes_one_event_for_repeats(server: Server) -> None:
    pod = await server.pod("a")
    recorder = EventRecorder(server.client, "volcano", lambda: True)
    async with running(recorder.run()):
        for _ in range(3):
            recorder.record("Pod", server.key("a"), pod["metadata"]["uid"], "Warning", "Unschedulable", "0/1 nodes")
            await recorder.wait_until_idle()
    found = (await server.listed("Event", fieldSelector="reason=Unschedulable,involvedObject.name=a"))["items"]
    assert [(each["count"], each["message"], each["involvedObject"]["uid"]) for each in found] == [
        (3, "0/1 nodes", pod["metadata"]["uid"])
    ]


# --- Nodes ----------------------------------------------------------------------------------------------------------


async def test_a_nodes_status_and_taints_are_written_apart(with_nodes: Server) -> None:
    server, name = with_nodes, with_nodes.unique("node")
    taint = {"key": "contract.vcd.example/own", "value": server.namespace, "effect": "NoSchedule"}
    await server.create("Node", {"metadata": {"name": name}, "spec": {"unschedulable": True, "taints": [taint]}})
    status = {"status": {"allocatable": {"cpu": "4", "contract.vcd.example/card": "8"}}}
    await server.call("PATCH", server.path("Node", name, "status"), status, MERGE_PATCH)
    node = await server.get("Node", name)
    assert node["status"]["allocatable"]["contract.vcd.example/card"] == "8"
    assert taint in [{key: each[key] for key in taint if key in each} for each in node["spec"]["taints"]]


async def test_nodes_are_watched_by_label(with_nodes: Server) -> None:
    server, name = with_nodes, with_nodes.unique("node")
    start = (await server.listed("Node", limit=1))["metadata"]["resourceVersion"]
    labels = {"contract.vcd.example/own": server.namespace}
    await server.create("Node", {"metadata": {"name": name, "labels": labels}, "spec": {"unschedulable": True}})
    selector = f"contract.vcd.example/own={server.namespace}"
    async with server.watch("Node", resourceVersion=start, labelSelector=selector) as lines:
        events = await lines.until(lambda event: event["type"] == "ADDED")
    assert [event["object"]["metadata"]["name"] for event in events] == [name]
