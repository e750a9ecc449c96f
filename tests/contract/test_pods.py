"""Binding and eviction: what a committed operation relies on, asked directly and through vcd's committer."""

from __future__ import annotations

from typing import Literal

import pytest

from tests.contract.server import JSON_PATCH, Obj, Server
from tests.kube.scripted import Log
from vcd.kube.client import STRATEGIC_PATCH
from vcd.kube.committer import Committer
from vcd.kube.event_recorder import EventRecorder
from vcd.kube.status_writer import StatusWriter
from vcd.model.events import Operation, OperationDone, Plan, SessionDecided, Statement, encode_plan

NOBODY = "00000000-0000-4000-8000-000000000000"


def binding(server: Server, name: str, node: str = "nowhere", **metadata: str) -> Obj:
    target = {"apiVersion": "v1", "kind": "Node", "name": server.unique(node)}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, **metadata}, "target": target}


async def bind(server: Server, name: str, node: str = "nowhere", **metadata: str) -> Obj:
    body = binding(server, name, node, **metadata)
    answer: Obj = await server.call("POST", server.path("Pod", name, "binding"), body)
    return answer


async def run_pod(server: Server, name: str, labels: Obj) -> Obj:
    """A pod that runs and is ready, as far as the server knows."""
    pod = await server.pod(name, labels)
    await bind(server, name)
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    patch = {"status": {"phase": "Running", "conditions": [ready]}}
    await server.call("PATCH", server.path("Pod", name, "status"), patch, STRATEGIC_PATCH)
    return pod


async def budget(server: Server, name: str, minimum: int, allowed: int) -> None:
    """A disruption budget over the pods labelled app=x, once the controller allows so many disruptions."""
    spec = {"minAvailable": minimum, "selector": {"matchLabels": {"app": "x"}}}
    await server.create("PodDisruptionBudget", {"metadata": {"name": name}, "spec": spec})
    await server.until(
        "PodDisruptionBudget", name,
        lambda pdb: pdb.get("status", {}).get("expectedPods", 0) > 0
        and pdb["status"].get("disruptionsAllowed", 0) == allowed
        and pdb["status"].get("observedGeneration") == pdb["metadata"]["generation"],
    )  # fmt: skip


def eviction(server: Server, name: str, **options: Obj) -> Obj:
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": server.namespace},
            **({"deleteOptions": options} if options else {})}  # fmt: skip


# --- binding --------------------------------------------------------------------------------------------------------


async def test_a_binding_sets_the_node_and_the_condition(server: Server) -> None:
    pod = await server.pod("a")
    await bind(server, "a", uid=pod["metadata"]["uid"])
    bound = await server.get("Pod", "a")
    assert bound["spec"]["nodeName"] == server.unique("nowhere")
    scheduled = [each["status"] for each in bound["status"]["conditions"] if each["type"] == "PodScheduled"]
    assert scheduled == ["True"]


@pytest.mark.parametrize("node", ["nowhere", "elsewhere"])
async def test_a_second_binding_conflicts(server: Server, node: str) -> None:
    await server.pod("a")
    await bind(server, "a")
    error = await server.refused("POST", server.path("Pod", "a", "binding"), binding(server, "a", node))
    assert (error.status, error.reason) == (409, "Conflict")
    assert (await server.get("Pod", "a"))["spec"]["nodeName"] == server.unique("nowhere")


async def test_a_binding_of_another_uid_conflicts(server: Server) -> None:
    await server.pod("a")
    body = binding(server, "a", uid=NOBODY)
    assert (await server.refused("POST", server.path("Pod", "a", "binding"), body)).status == 409
    assert "nodeName" not in (await server.get("Pod", "a"))["spec"]


async def test_a_binding_of_no_pod_is_404(server: Server) -> None:
    assert (await server.refused("POST", server.path("Pod", "a", "binding"), binding(server, "a"))).status == 404


async def test_a_gated_pod_is_not_bound_before_its_gates_are_gone(server: Server) -> None:
    await server.pod("a", schedulingGates=[{"name": "contract.vcd.example/gate"}])
    body = binding(server, "a")
    assert (await server.refused("POST", server.path("Pod", "a", "binding"), body)).status == 409
    patch = [{"op": "remove", "path": "/spec/schedulingGates"}]
    await server.call("PATCH", server.path("Pod", "a"), patch, JSON_PATCH)
    await bind(server, "a")
    assert (await server.get("Pod", "a"))["spec"]["nodeName"] == server.unique("nowhere")


async def test_a_pod_that_is_being_deleted_is_not_bound(server: Server) -> None:
    await server.pod("a")
    held = {"metadata": {"finalizers": ["contract.vcd.example/held"]}}
    await server.call("PATCH", server.path("Pod", "a"), held, STRATEGIC_PATCH)
    await server.call("DELETE", server.path("Pod", "a"))
    try:
        error = await server.refused("POST", server.path("Pod", "a", "binding"), binding(server, "a"))
        assert error.status == 409
    finally:
        free = [{"op": "remove", "path": "/metadata/finalizers"}]
        await server.call("PATCH", server.path("Pod", "a"), free, JSON_PATCH)


# --- eviction -------------------------------------------------------------------------------------------------------


async def test_an_eviction_deletes_the_pod(server: Server) -> None:
    await run_pod(server, "a", {"app": "x"})
    await server.call("POST", server.path("Pod", "a", "eviction"), eviction(server, "a"))
    await server.until_gone("Pod", "a")


async def test_a_budget_with_nothing_left_refuses(server: Server) -> None:
    await run_pod(server, "a", {"app": "x"})
    await budget(server, "b", minimum=1, allowed=0)
    error = await server.refused("POST", server.path("Pod", "a", "eviction"), eviction(server, "a"))
    assert (error.status, error.reason) == (429, "TooManyRequests")
    assert "deletionTimestamp" not in (await server.get("Pod", "a"))["metadata"]


async def test_a_budget_lets_go_what_it_can_spare_and_no_more(server: Server) -> None:
    for name in "ab":
        await run_pod(server, name, {"app": "x"})
    await budget(server, "b", minimum=1, allowed=1)
    await server.call("POST", server.path("Pod", "a", "eviction"), eviction(server, "a"))
    error = await server.refused("POST", server.path("Pod", "b", "eviction"), eviction(server, "b"))
    assert error.status == 429


async def test_a_budget_does_not_protect_the_pods_of_others(server: Server) -> None:
    await run_pod(server, "a", {"app": "x"})
    await run_pod(server, "b", {"app": "y"})
    await budget(server, "b", minimum=1, allowed=0)
    await server.call("POST", server.path("Pod", "b", "eviction"), eviction(server, "b"))
    await server.until_gone("Pod", "b")


async def test_an_eviction_of_another_uid_conflicts(server: Server) -> None:
    await run_pod(server, "a", {"app": "x"})
    body = eviction(server, "a", preconditions={"uid": NOBODY})
    assert (await server.refused("POST", server.path("Pod", "a", "eviction"), body)).status == 409


# --- vcd's committer ------------------------------------------------------------------------------------------------


async def outcomes(server: Server, *operations: Operation, epoch: int = 1) -> list[str]:
    """The results of operations of one statement, decided under epoch 1."""
    plan = Plan(statements=(Statement(server.key("gang"), "allocate", operations),))
    record = SessionDecided(1, 0, "digest", 0, 0, 1, {}, encode_plan(plan))
    log = Log()
    writers = (EventRecorder(server.client, "vcd", lambda: True), StatusWriter(server.client, lambda: True))
    committer = Committer(server.client, log.sink, lambda decided: decided == epoch, *writers, concurrency=1)
    await committer.commit(record, plan)
    return [event.result for event in sorted(log.of(OperationDone), key=lambda event: event.operation)]


def operation(server: Server, pod: Obj, verb: Literal["bind", "evict"], uid: str = "") -> Operation:
    node = server.unique("nowhere") if verb == "bind" else ""
    name, own = pod["metadata"]["name"], pod["metadata"]["uid"]
    return Operation(verb, server.key(name), uid or own, node, reason="the contract")


async def test_the_committer_binds_once(server: Server) -> None:
    pods = [await server.pod(name) for name in "ab"]
    binds = [operation(server, pod, "bind") for pod in (*pods, pods[0])]
    assert await outcomes(server, *binds) == ["done", "done", "conflict"]


@pytest.mark.parametrize("verb", ["bind", "evict"])
async def test_the_committer_leaves_a_pod_of_another_uid_alone(server: Server, verb: Literal["bind", "evict"]) -> None:
    pod = await server.pod("a")
    assert await outcomes(server, operation(server, pod, verb, NOBODY)) == ["conflict"]
    now = await server.get("Pod", "a")
    assert now["metadata"]["resourceVersion"] == pod["metadata"]["resourceVersion"]


@pytest.mark.parametrize("verb", ["bind", "evict"])
async def test_the_committer_finds_a_deleted_pod_gone(server: Server, verb: Literal["bind", "evict"]) -> None:
    pod = await server.pod("a")
    await server.call("DELETE", server.path("Pod", "a"))
    assert await outcomes(server, operation(server, pod, verb)) == ["gone"]


async def test_the_committer_evicts_and_says_why(server: Server) -> None:
    pod = await server.pod("a", terminationGracePeriodSeconds=30)
    await bind(server, "a")
    assert await outcomes(server, operation(server, pod, "evict")) == ["done"]
    ending = await server.get("Pod", "a")
    told = {each["type"]: each["reason"] for each in ending["status"]["conditions"] if "reason" in each}
    assert "deletionTimestamp" in ending["metadata"]
    assert (told["Ready"], told["DisruptionTarget"]) == ("Evict", "PreemptionByScheduler")


async def test_the_committer_does_nothing_under_another_epoch(server: Server) -> None:
    pod = await server.pod("a")
    assert await outcomes(server, operation(server, pod, "bind"), epoch=2) == ["failed"]
    assert "nodeName" not in (await server.get("Pod", "a"))["spec"]
