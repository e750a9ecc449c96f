"""A real Prometheus scrapes a real daemon: its page is taken, Volcano's series are there, and those of the gone go."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from tests.e2e.cluster import GROUPS, QUEUES, Cluster, Daemon, pod
from tests.ports import free_port
from tests.waiting import WAIT_LIMIT

pytestmark = pytest.mark.external

QUEUE = "research"
LOOK = 0.1
"""Seconds between two questions to Prometheus, which tells of nothing by itself."""

Series = list[tuple[dict[str, str], float]]


def program(name: str) -> str:
    """A program of Debian's package prometheus; a machine without it fails here."""
    path = shutil.which(name)
    assert path, f"{name} is not on PATH: make external-tools"
    return path


@dataclass
class Prometheus:
    """A running Prometheus that scrapes one daemon."""

    url: str
    http: aiohttp.ClientSession

    async def get(self, page: str, **parameters: str) -> Any:
        """``data`` of an answer of its API; None while it does not answer yet."""
        try:
            async with self.http.get(f"{self.url}/api/v1/{page}", params=parameters) as answer:
                body = json.loads(await answer.text())
        except (aiohttp.ClientError, json.JSONDecodeError):
            return None
        if body.get("status") != "success":
            return None
        return body["data"]

    async def series(self, expression: str) -> Series:
        """The present series of an expression: labels without name, job and instance, and the value."""
        data = await self.get("query", query=expression)
        hidden = ("__name__", "job", "instance")
        return [
            ({key: text for key, text in one["metric"].items() if key not in hidden}, float(one["value"][1]))
            for one in ([] if data is None else data["result"])
        ]

    async def until(self, expression: str, holds: Callable[[Series], bool]) -> Series:
        """The series of an expression once they hold; fails after `WAIT_LIMIT` with what they were."""
        deadline = time.monotonic() + WAIT_LIMIT
        while not holds(found := await self.series(expression)):
            assert time.monotonic() < deadline, f"{expression} not within {WAIT_LIMIT:g} s: {found}"
            await asyncio.sleep(LOOK)
        return found


def _started(command: list[str], output: Path) -> subprocess.Popen[bytes]:
    with output.open("wb") as file:
        return subprocess.Popen(command, stdout=file, stderr=file)


@asynccontextmanager
async def scraping(daemon: Daemon, folder: Path, **more: Any) -> AsyncIterator[Prometheus]:
    """A Prometheus that scrapes a daemon each second; ``more`` is further configuration, or takes this one's place."""
    address = f"127.0.0.1:{free_port()}"
    target = daemon.metrics_url.removeprefix("http://")
    job = {"job_name": "vcd", "static_configs": [{"targets": [target]}]}
    conf = folder / "prometheus.yml"
    conf.write_text(
        yaml.safe_dump({"global": {"scrape_interval": "1s", "scrape_timeout": "1s"}, "scrape_configs": [job], **more})
    )
    command = [
        program("prometheus"), f"--config.file={conf}", f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address={address}", "--log.level=warn",
    ]  # fmt: skip
    output = folder / "prometheus.log"
    process = _started(command, output)
    try:
        async with aiohttp.ClientSession() as http:
            prometheus = Prometheus(f"http://{address}", http)
            await prometheus.until("up", lambda found: bool(found) and all(value == 1.0 for _, value in found))
            yield prometheus
    finally:
        process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(process.wait, 20)
        print(output.read_text())  # noqa: T201 - pytest shows it with a failure


@asynccontextmanager
async def scraped(folder: Path) -> AsyncIterator[tuple[Cluster, Daemon, Prometheus]]:
    """A cluster with a gang of three in a queue, placed, its daemon, and a Prometheus that scrapes it."""
    async with Cluster(folder) as cluster:
        cluster.add_nodes(2)
        spec = {"weight": 2, "capability": {"cpu": "12", "memory": "64Gi"}}
        cluster.store.create(QUEUES, {"metadata": {"name": QUEUE}, "spec": spec})
        daemon = await cluster.started("a")
        cluster.store.create(
            GROUPS, {"metadata": {"name": "train", "namespace": "default"}, "spec": {"minMember": 3, "queue": QUEUE}}
        )
        for number in range(3):
            cluster.store.create("pods", pod(f"train-{number}", "train", 2))
        await cluster.until_bound([f"default/train-{number}" for number in range(3)])
        async with scraping(daemon, folder) as prometheus:
            yield cluster, daemon, prometheus


async def test_the_target_is_up_and_nothing_is_dropped(tmp_path: Path) -> None:
    async with scraped(tmp_path) as (_, daemon, prometheus):
        data = await prometheus.get("targets", state="active")
        assert [(one["health"], one["lastError"]) for one in data["activeTargets"]] == [("up", "")]
        page = await daemon.metrics()
        taken = await prometheus.until("scrape_samples_post_metric_relabeling", lambda found: bool(found))
        assert taken[0][1] > 0.9 * len(page)


async def test_queue_series_have_volcanos_names_and_labels(tmp_path: Path) -> None:
    async with scraped(tmp_path) as (_, _, prometheus):
        for name, value in (
            ("volcano_queue_allocated_milli_cpu", 6000.0),
            ("volcano_queue_allocated_memory_bytes", 3.0 * 64 * 2**20),
            ("volcano_queue_request_milli_cpu", 6000.0),
            ("volcano_queue_capacity_milli_cpu", 12000.0),
            ("volcano_queue_weight", 2.0),
            ("volcano_queue_overused", 1.0),
        ):
            expected = [({"queue_name": QUEUE}, value)]
            await prometheus.until(f'{name}{{queue_name="{QUEUE}"}}', lambda found, e=expected: found == e)  # type: ignore[misc]


async def test_scheduling_series_have_volcanos_names_and_labels(tmp_path: Path) -> None:
    async with scraped(tmp_path) as (_, _, prometheus):
        await prometheus.until("volcano_schedule_attempts_total", lambda found: ({"result": "scheduled"}, 3.0) in found)
        for expression, labels in (
            ("volcano_e2e_scheduling_latency_milliseconds_count", {}),
            ('volcano_action_scheduling_latency_milliseconds_count{action="allocate"}', {"action": "allocate"}),
            ('volcano_task_scheduling_latency_milliseconds_count{stage="Bound"}', {"stage": "Bound"}),
            (
                'volcano_plugin_scheduling_latency_milliseconds_count{plugin="proportion",OnSession="OnSessionOpen"}',
                {"plugin": "proportion", "OnSession": "OnSessionOpen"},
            ),
            (
                "volcano_e2e_job_scheduling_start_time",
                {"job_name": "train", "queue": QUEUE, "job_namespace": "default"},
            ),
        ):
            found = await prometheus.until(expression, lambda found: bool(found))
            assert [labels for labels, _ in found] == [labels]
            assert found[0][1] > 0


async def test_a_jobs_share_is_there_while_the_job_is(tmp_path: Path) -> None:
    async with scraped(tmp_path) as (cluster, _, prometheus):
        more = cluster.submit("later", 1)
        await cluster.until_bound(more)
        await prometheus.until(
            'vcd_queue_pod_groups{queue_name="default",phase="running"}',
            lambda found: found == [({"queue_name": "default", "phase": "running"}, 1.0)],
        )
        assert await prometheus.series('volcano_job_share{job_id="train"}')


async def test_series_of_a_deleted_queue_vanish(tmp_path: Path) -> None:
    async with scraped(tmp_path) as (cluster, _, prometheus):
        of_queue = f'{{__name__=~"volcano_queue_.*|vcd_queue_.*|vcd_waiting_.*",queue_name="{QUEUE}"}}'
        await prometheus.until(of_queue, lambda found: bool(found))
        for number in range(3):
            cluster.store.delete("pods", "default", f"train-{number}")
        cluster.store.delete(GROUPS, "default", "train")
        cluster.store.delete(QUEUES, "", QUEUE)
        await prometheus.until(of_queue, lambda found: found == [])
        others = await prometheus.series('volcano_queue_weight{queue_name="default"}')
        assert others == [({"queue_name": "default"}, 1.0)]


async def test_promtool_finds_no_error_on_the_page(tmp_path: Path) -> None:
    async with scraped(tmp_path) as (_, daemon, prometheus):
        async with prometheus.http.get(f"{daemon.metrics_url}/metrics") as answer:
            page = await answer.read()
        done = await asyncio.to_thread(
            subprocess.run,
            [program("promtool"), "check", "metrics"],
            input=page,
            capture_output=True,
            timeout=60,
            check=False,
        )
        said = (done.stdout + done.stderr).decode().splitlines()
        # 1 is a page that cannot be read, 3 one with names that promtool would choose otherwise: Volcano's are its own
        assert done.returncode in (0, 3), said
        assert [line for line in said if not re.match(r"volcano_", line)] == []
