"""Every expression of every dashboard and rule has data in a real Prometheus that scraped a live scheduler as the
Prometheus operator has it scraped, beside another one.

One night on a small cluster makes all there is to show: gangs that wait for different reasons, cards, preemption,
reclaim, objects that contradict themselves or that nobody can read, and two configurations.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.cluster import GROUPS, QUEUES, Cluster, Daemon, Obj, group, node, pod, until
from tests.e2e.test_eviction import CLASSES, JOBS, job, until_running
from tests.e2e.test_replicas import Replicas
from tests.external.test_prometheus import Prometheus, Series, program, scraping
from tests.grafana.written import ALERTS, GRAFANA, MONITOR, SHOWN, TARGET, Asked, rules, targets
from tests.waiting import WAIT_LIMIT

pytestmark = pytest.mark.external

CONF = """
actions: "enqueue, allocate, preempt, reclaim, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
  - name: predicates
  - name: nodeorder
  - name: {}
  - name: capacity-card
  - name: extender
    arguments: {{extender.urlPrefix: "http://127.0.0.1:9", extender.ignorable: true}}
"""
CARD = {"nvidia.com/gpu.product": "NVIDIA-H200", "nvidia.com/gpu.memory": "143771"}
GPU = "nvidia.com/gpu"
WORDS = {"$__rate_interval": "10s", "$__range": "1m"}
"""What Grafana puts in the place of its own variables."""
SCHEDULERS = {"volcano-system": "vcd-scheduler", "volcano-test": "vcd-scheduler"}
"""The namespaces and jobs of the schedulers that are scraped; all are the one that runs, told as several."""


def plain(expr: str, scheduler: dict[str, str]) -> str:
    """An expression as Grafana sends it with all of a scheduler chosen."""
    for name, text in (WORDS | {f"${label}": text for label, text in scheduler.items()}).items():
        expr = expr.replace(name, text)
    return re.sub(r"\$[a-z]+", ".*", expr)


def answered(expr: str) -> str:
    """An alert's expression that says 0 where all is well: what it compares must be there, with labels that match."""
    return re.sub(r" ([<>]) ", r" \1 bool ", expr)


# --- the scrape -------------------------------------------------------------------------------------------------------


def monitored(daemon: Daemon, namespace: str, job: str) -> dict[str, Any]:
    """What the Prometheus operator has Prometheus scrape where deploy/'s ServiceMonitor is in a namespace."""
    (endpoint,) = MONITOR["spec"]["endpoints"]
    target = {**TARGET, "namespace": namespace, "service": job, "job": job, "endpoint": endpoint["port"]}
    fields = {"sourceLabels": "source_labels", "targetLabel": "target_label"}
    return {
        "job_name": f"serviceMonitor/{namespace}/{job}/0",
        "metrics_path": endpoint["path"],
        "static_configs": [{"targets": [daemon.metrics_url.removeprefix("http://")], "labels": target}],
        "metric_relabel_configs": [
            {fields.get(name, name): value for name, value in each.items()} for each in endpoint["metricRelabelings"]
        ],
    }


# --- the night --------------------------------------------------------------------------------------------------------


def card_node(name: str, cpu: int, **labels: str) -> Obj:
    made = node(name, cpu)
    made["metadata"]["labels"] |= labels
    for amounts in (made["status"]["allocatable"], made["status"]["capacity"]):
        amounts[GPU] = "4"
    return made


def queue(name: str, quota: str = "", **spec: Any) -> Obj:
    marks = {"volcano.sh/card.quota": quota} if quota else {}
    return {"kind": "Queue", "metadata": {"name": name, "annotations": marks}, "spec": {"weight": 1, **spec}}


def with_card(asking: Obj) -> Obj:
    """A pod, or a job's pods, that ask for a card."""
    spec = asking["spec"] if asking["kind"] == "Pod" else asking["spec"]["tasks"][0]["template"]["spec"]
    spec["containers"][0]["resources"] = {"requests": {"cpu": "1", "memory": "64Mi", GPU: "1"}, "limits": {GPU: "1"}}
    return asking


def prepare(cluster: Cluster) -> None:
    """Nodes with 16 cores, classes, queues."""
    cluster.add_nodes(2, 4)
    cluster.store.create("nodes", card_node("cards", 8, **CARD))
    for name, value in (("low", 10), ("high", 1000)):
        cluster.store.create(CLASSES, {"kind": "PriorityClass", "metadata": {"name": name}, "value": value})
    few = {"cpu": "4", "memory": "8Gi"}
    for made in (
        queue("lender", deserved=few),
        queue("borrower", deserved=few, reclaimable=True),
        queue(
            "carded", '{"NVIDIA-H200": 3}', deserved=few | {GPU: "3"},
            capability={"cpu": "100", "memory": "800Gi", GPU: "4"},
            guarantee={"resource": {"cpu": "1", "memory": "1Gi", GPU: "1"}},
        ),
        queue("odd", capability={"cpu": "2"}, deserved={"cpu": "4"}),
    ):  # fmt: skip
        cluster.store.create(QUEUES, made)


async def use_cards(cluster: Cluster) -> None:
    """Two cards are offline, one is online, and who asks for one more waits for quota."""
    cluster.store.create(JOBS, with_card(job("train", 2, minimum=2, queue="carded")))
    await until_running(cluster, "train", 2)
    for name in ("serve", "more"):
        cluster.store.create(GROUPS, group(name, 1, queue="carded"))
        cluster.store.create("pods", with_card(pod(f"{name}-0", name)))
        if name == "serve":
            await cluster.until_bound(["default/serve-0"])


async def evict(cluster: Cluster) -> None:
    """A queue borrows all cores, another takes its own back, and a job preempts another of its queue."""
    cluster.store.create(JOBS, job("old", 13, queue="borrower", priority="low"))
    await until_running(cluster, "old", 13)
    cluster.store.create(JOBS, job("new", 4, minimum=4, queue="lender"))
    await until_running(cluster, "new", 4)
    cluster.store.create(JOBS, job("urgent", 1, queue="borrower", priority="high"))
    await until_running(cluster, "urgent", 1)


async def go_wrong(cluster: Cluster, daemon: Daemon) -> None:
    """What waits for a mending: a queue and a group that are not there, cards of no model, a pod that cannot be
    counted."""
    cluster.store.create("nodes", card_node("unnamed", 1))
    cluster.submit("huge", 1, cpu=64)
    cluster.store.create(GROUPS, group("lost", 1, queue="nowhere"))
    cluster.store.create("pods", pod("lost-0", "lost"))
    cluster.store.create("pods", pod("alone-0", "alone"))
    bad = pod("bad", "huge")
    bad["spec"]["containers"][0]["resources"]["requests"]["memory"] = "16Pi"
    cluster.store.create("pods", bad)
    await until(lambda: daemon.events("bad") or any("set aside" in line["event"] for line in daemon.lines()))


def configure(conf: Path, plugin: str) -> None:
    """Let ``plugin`` share the cluster out."""
    conf.write_text(CONF.format(plugin))


async def reconfigure(cluster: Cluster, daemon: Daemon, conf: Path, plugin: str) -> None:
    """Another plugin shares the cluster out from now on."""
    before = len(daemon.sessions())
    configure(conf, plugin)
    await until(lambda: len(daemon.events("policy")) == 2, what="the other configuration is in force")
    cluster.submit("later", 1)
    await until(lambda: len(daemon.sessions()) > before, what="a session under it")


@asynccontextmanager
async def night(folder: Path) -> AsyncIterator[tuple[Prometheus, float]]:
    """A Prometheus that saw it all, and when it began (Unix time)."""
    conf = folder / "scheduler.conf"
    configure(conf, "capacity")
    began = time.time()
    async with Replicas(folder) as cluster:  # of one log, so that what is told of it is there; who follows has no part
        prepare(cluster)
        (folder / "archive").mkdir()
        given = f"--scheduler-conf={conf}", f"--archive={folder / 'archive'}", "--archive-every=1s"
        daemon = await cluster.started("a", *given, E2E_HOUSEKEEPING="1")
        scraped = [monitored(daemon, namespace, job) for namespace, job in SCHEDULERS.items()]
        evaluated = [str(path) for path in hurried_rules(folder)]
        async with scraping(daemon, folder, scrape_configs=scraped, rule_files=evaluated) as prometheus:
            await use_cards(cluster)
            await evict(cluster)
            await go_wrong(cluster, daemon)
            for series in ("vcd_objects_set_aside", "vcd_installation_faults"):
                await prometheus.until(series, seen_of_all)
            await reconfigure(cluster, daemon, conf, "proportion")
            await prometheus.until("volcano_queue_weight", seen_of_all)
            yield prometheus, began


def seen_of_all(found: Series) -> bool:
    """Each scheduler has been scraped with it: one may have it a scrape before another."""
    return {labels.get("namespace") for labels, _ in found} == set(SCHEDULERS)


def hurried_rules(folder: Path) -> list[Path]:
    """The rules, evaluated each second."""
    made = []
    for path in sorted((GRAFANA / "rules").glob("*.yaml")):
        rules = yaml.safe_load(path.read_text())
        for each in rules["groups"]:
            each["interval"] = "1s"
        made.append(folder / path.name)
        made[-1].write_text(yaml.safe_dump(rules))
    return made


# --- what is seen of it -----------------------------------------------------------------------------------------------


async def test_every_expression_has_data(tmp_path: Path) -> None:
    async with night(tmp_path) as (prometheus, began):
        window = {"start": str(began), "end": str(time.time() + 1), "step": "1"}

        async def found(expr: str) -> list[Any] | None:
            data = await prometheus.get("query_range", query=expr, **window)
            return None if data is None else data["result"]

        assert await found("vcd_leader > 1") == []  # there is such a thing as no data
        scheduler = await first(prometheus)
        asked = [Asked(each.where, answered(plain(each.expr, scheduler))) for each in (*targets(), *rules())]
        assert len(asked) > 100
        assert [each for each in asked if not await found(each.expr)] == []
        for must in ("VcdMisconfigured", "VcdObjectsSetAside"):
            assert await found(f'ALERTS{{alertname="{must}"}}'), must
        await check_rules(prometheus)
        assert [label for label in await prometheus.get("labels") if label.startswith("exported_")] == []
        (leaders,) = [asked for asked in targets() if asked.where == "vcd-overview.json: Leaders A"]
        assert await prometheus.series(plain(leaders.expr, scheduler)) == [({}, 1.0)]
        assert await prometheus.series("sum(vcd_leader)") == [({}, 2.0)]  # there is another one


async def first(prometheus: Prometheus) -> dict[str, str]:
    """The scheduler that a dashboard shows unless another is chosen, looked up as Grafana does."""
    found: dict[str, str] = {}
    for variable in SHOWN["vcd-overview.json"]["templating"]["list"][1:4]:
        match = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
        assert match is not None
        values = await prometheus.get(f"label/{match[2]}/values", **{"match[]": plain(match[1], found)})
        found[variable["name"]] = min(values, default="")
    assert found == {"cluster": "", "namespace": "volcano-system", "job": "vcd-scheduler"}  # no label names a cluster
    return found


async def check_rules(prometheus: Prometheus) -> None:
    """Prometheus evaluated every rule, and what is well is well."""
    data = await prometheus.get("rules")
    rules = [rule for each in data["groups"] for rule in each["rules"]]
    assert [rule for rule in rules if rule["health"] != "ok"] == []
    active = {rule["name"] for rule in rules if rule["type"] == "alerting" and rule["state"] != "inactive"}
    assert not active & {
        *("VcdNoLeader", "VcdTwoLeaders", "VcdQueueOverQuota", "VcdReplayMismatch", "VcdPluginFaults"),
        *("VcdWatchCrashes", "VcdWatchDrift", "VcdClockJumps", "VcdLogArchiveFailures"),
    }
    assert {rule["name"] for rule in rules if rule["type"] == "alerting"} == {rule["alert"] for rule in ALERTS}


async def test_promtool_finds_no_error_in_the_rules() -> None:
    files = sorted(map(str, (GRAFANA / "rules").glob("*.yaml")))
    assert files
    done = await asyncio.to_thread(
        subprocess.run,
        [program("promtool"), "check", "rules", *files],
        capture_output=True,
        timeout=WAIT_LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
