"""What keeps a daemon from its work is reported: refused statuses, kinds that are not served, pods without a group."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
from aiohttp import web

from tests.e2e.cluster import Cluster, Obj, failed, is_bind, pod
from tests.waiting import until
from vcd.embedded.controllers.controller_base import JOBS
from vcd.model import events as ev

OWN_LINES = {"a fault of the installation", "leadership_lost", "no longer leading"}
"""Lines of an outage that are not about a single request."""
GAUGE = "vcd_installation_faults"


def events(cluster: Cluster, reason: str) -> list[Obj]:
    return [event for event in cluster.store.list("events") if event["reason"] == reason]


def scheduled(cluster: Cluster, name: str) -> Obj:
    """A pod's condition PodScheduled; nothing where it has none."""
    conditions = cluster.store.get("pods", "default", name)["status"].get("conditions", [])
    return next((one for one in conditions if one["type"] == "PodScheduled"), {})


async def test_a_refused_status_and_a_pod_without_a_group_are_reported_where_people_look(tmp_path: Path) -> None:
    def refuses(request: web.Request) -> web.Response | None:
        is_status = request.method == "PATCH" and "/podgroups/" in request.path
        return failed(422, "Invalid", "status.phase: Unsupported value") if is_status else None

    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(1)
        with cluster.faults(refuses):
            daemon = await cluster.started("a")
            cluster.submit("g", 1)
            cluster.store.create("pods", pod("lost", "elsewhere"))
            await daemon.until_metric(f'{GAUGE}{{code="no-group",subject="default"}}', 1)
            found = await daemon.metrics()
            assert found[f'{GAUGE}{{code="write-refused",subject="patch podgroups 422"}}'] >= 1
            assert found['vcd_apiserver_requests_total{code="422",resource="podgroups",verb="patch"}'] >= 1
            assert {
                (one.code, one.subject) for one in daemon.events("fault") if isinstance(one, ev.InstallationFault)
            } == {
                ("write-refused", "patch podgroups 422"),
                ("no-group", "default"),
            }
            await until(lambda: scheduled(cluster, "lost"), what="the condition")
            await until(lambda: events(cluster, "PodGroupMissing"), what="the Event at the pod")
            assert "its PodGroup elsewhere does not exist" in events(cluster, "PodGroupMissing")[0]["message"]
            assert scheduled(cluster, "lost")["reason"] == "PodGroupMissing"
            await until(lambda: events(cluster, "StatusRefused"), what="the Event at the PodGroup")
            assert events(cluster, "StatusRefused")[0]["involvedObject"]["name"] == "g"
            await until(lambda: events(cluster, "WriteRefused"), what="the Event at the configuration")
            assert await daemon.health("readyz") == 200


async def test_refused_binds_and_statuses_that_get_no_answer_are_reported(tmp_path: Path) -> None:
    ended = asyncio.Event()

    async def webhooks(request: web.Request) -> web.Response | None:
        if request.method == "PATCH" and "/podgroups/" in request.path:
            await ended.wait()
        return failed(400, "", 'admission webhook "x" denied the request: no') if is_bind(request) else None

    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(1)
        with cluster.faults(webhooks):
            daemon = await cluster.started("a")
            cluster.submit("g", 1)
            await until(lambda: events(cluster, "WriteRefused"), what="the Event for the binds")
            await until(lambda: events(cluster, "WriteUnanswered"), what="the Event for the PodGroups")
            found = await daemon.metrics()
            ended.set()
        assert found[f'{GAUGE}{{code="write-refused",subject="create pods/binding 400"}}'] >= 1
        assert found[f'{GAUGE}{{code="write-unanswered",subject="patch podgroups"}}'] >= 3
        assert "get validatingwebhookconfigurations" in events(cluster, "WriteUnanswered")[0]["message"]


async def test_a_cluster_without_the_crds_makes_the_replica_not_ready(tmp_path: Path) -> None:
    def lacks_crds(request: web.Request) -> web.Response | None:
        is_crd = request.path.startswith("/apis/scheduling.volcano.sh")
        return web.Response(status=404, text="404 page not found\n") if is_crd else None

    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(1)
        with cluster.faults(lacks_crds):
            daemon = await cluster.start("a")
            await until(lambda: daemon.metrics_url and daemon.health_url, what="it listens")
            await daemon.until_metric(f'{GAUGE}{{code="kind-not-listed",subject="PodGroup"}}', 1)
            async with aiohttp.ClientSession() as session, session.get(f"{daemon.health_url}/readyz") as answer:
                text = await answer.text()
            assert answer.status == 503
            assert "a kind cannot be listed: PodGroup: the API server does not serve it; apply the CRDs" in text
            assert {name for name in await daemon.metrics() if name.startswith(GAUGE)} == {
                f'{GAUGE}{{code="kind-not-listed",subject="{kind}"}}' for kind in ("PodGroup", "Queue")
            }


async def test_volcano_jobs_that_no_controller_starts_are_reported(tmp_path: Path) -> None:
    template = {"spec": {"containers": [{"name": "c", "image": "pause"}]}}
    job = {
        "metadata": {"name": "j", "namespace": "default"},
        "spec": {"schedulerName": "volcano", "tasks": [{"name": "t", "replicas": 1, "template": template}]},
    }
    async with Cluster(tmp_path, controllers=False) as cluster:
        cluster.may("list", "batch.volcano.sh", "jobs")
        cluster.add_nodes(1)
        cluster.store.create(JOBS, job)
        daemon = await cluster.started("a", "--check-volcano-jobs", E2E_JOB_LISTS="0.1")
        await daemon.until_metric(f'{GAUGE}{{code="jobs-not-started",subject="default"}}', 1)
        await until(lambda: events(cluster, "JobsNotStarted"), what="the Event at the configuration")
        assert "look whether Volcano's controllers run" in events(cluster, "JobsNotStarted")[0]["message"]
        cluster.store.patch(JOBS, "default", "j", {"status": {"state": {"phase": "Pending"}}}, subresource="status")
        await daemon.until_metric(f'{GAUGE}{{code="jobs-not-started",subject="default"}}', None)


async def test_an_api_server_that_is_gone_is_one_fault_and_few_lines(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(1)
        daemon = await cluster.started("a")
        daemon.wire.hold()
        daemon.wire.cut()
        await daemon.until_metric(f'{GAUGE}{{code="unreachable",subject="API server"}}', 1)
        daemon.wire.release()
        await daemon.until_metric(f'{GAUGE}{{code="unreachable",subject="API server"}}', None)
        told = [line["event"] for line in daemon.lines() if line["level"] in ("warning", "error")]
        assert told.count("a fault of the installation") == 1
        of_requests = [event for event in told if event not in OWN_LINES]
        assert len(of_requests) <= 4, of_requests
