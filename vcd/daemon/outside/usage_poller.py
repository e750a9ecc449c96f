"""Polls a monitoring system for the measured usage of nodes, and logs each sample as an event.

The configuration's section ``metrics`` names the source. A failed poll is logged and counted but makes no event,
because unknown usage is not zero usage. Source: Volcano ``pkg/scheduler/metrics/source``.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import aiohttp
import msgspec
import structlog

from vcd.daemon.outside.http_client import headers_for, open_session, read_within
from vcd.kube.api_errors import ApiError, BadResponse, KubeError, decode
from vcd.kube.asyncio_tasks import run_until_first
from vcd.kube.client import KubeClient
from vcd.kube.clock import SYSTEM_CLOCK, Clock
from vcd.model.events import Event
from vcd.model.objects import Named
from vcd.model.quantity import QuantityError, parse_milli, parse_units
from vcd.model.resource_requests import CPU, MEMORY
from vcd.scheduling.framework.arguments import ArgumentValues, format_duration, read_arguments
from vcd.scheduling.framework.policy import METRICS, names_source
from vcd.scheduling.framework.usage_samples import FRESH, NodeUsage, Samples, answered
from vcd.scheduling.session.outside import without_user_info
from vcd.state.cluster_state import ClusterState
from vcd.state.records import seconds_of

_log = structlog.get_logger(__name__)

_LOOK = 1.0
"""Seconds between checks for nodes, while there are none."""
LARGEST = 32 << 20
"""Largest accepted response in bytes."""
PERIOD = "10m"
"""Time over which usage is averaged."""

ELASTICSEARCH, METRICS_SERVER = "elasticsearch", "metrics_server"
ADAPTOR = ("prometheus_adaptor", "prometheus_adapt")

CPU_QUERY = (
    "avg_over_time(clamp_min(100 - 100 * avg by (instance)"
    f' (rate(node_cpu_seconds_total{{mode="idle"}}[5m])), 0)[{PERIOD}:30s])'
)
MEMORY_QUERY = f"100 * avg_over_time((1 - node_memory_MemAvailable_bytes / node_memory_MemTotal_bytes)[{PERIOD}:30s])"
NODE_METRICS = "/apis/metrics.k8s.io/v1beta1/nodes"
CUSTOM_METRICS = "/apis/custom.metrics.k8s.io"
CUSTOM_VERSIONS = ("v1beta2", "v1beta1")
CPU_METRIC, MEMORY_METRIC = "node_cpu_usage_avg", "node_memory_usage_avg"

Ask = Callable[..., Awaitable[Any]]
"""Sends a request (method, path, body) and returns the decoded JSON. Raises UsageFailed."""


class UsageFailed(Exception):
    """A sample could not be taken; the message states why."""


@dataclass(eq=False)
class UsagePoller:
    """Takes a sample at each interval while the configuration names a source.

    ``settings`` returns the section ``metrics`` in force, ``put`` logs and folds events, ``observe`` receives "taken"
    or "failed".
    """

    client: KubeClient
    state: ClusterState
    put: Callable[[Sequence[Event]], Awaitable[object]]
    settings: Callable[[], Mapping[str, str]]
    observe: Callable[[str], None]
    clock: Clock = SYSTEM_CLOCK
    reloaded: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    """Set by the caller after a change of the configuration, to take a sample at once."""

    async def run(self) -> None:
        """Take samples until cancelled."""
        while True:
            self.reloaded.clear()
            given = self.settings()
            settings = settings_of(given)
            if not names_source(given):
                await self.reloaded.wait()
            elif not self.state.nodes:
                await run_until_first(self.clock.sleep(_LOOK), self.reloaded.wait())
            else:
                await self.once(settings)
                await run_until_first(self.clock.sleep(settings["interval"] / 1e9), self.reloaded.wait())

    async def once(self, settings: ArgumentValues) -> None:
        """Take one sample and log it. A failure is logged and counted, and leaves the last sample in force."""
        try:
            event = answered(await self._sample(settings))
        except (UsageFailed, KubeError, ValueError) as error:
            _log.warning(
                "no sample of the nodes' usage; it counts as unknown once the last one is old", reason=str(error)
            )
            self.observe("failed")
            return
        await self.put([event])
        self.observe("taken")

    async def _sample(self, settings: ArgumentValues) -> Samples:
        """Return the nodes' usage. The timeout bounds the whole sample. Raises UsageFailed."""
        try:
            async with asyncio.timeout(settings["timeout"] / 1e9):
                usage = (await self._found(settings)).usage(sorted(self.state.nodes))
        except TimeoutError as error:
            waited = format_duration(settings["timeout"])
            raise UsageFailed(f"it did not answer within {waited} (metrics.timeout)") from error
        if not usage:
            raise UsageFailed("it knows no node's usage; samples are matched with nodes by name")
        now = self.clock.wall()
        usage = {name: each if each.at <= now else NodeUsage(each.cpu, each.memory) for name, each in usage.items()}
        if not any(each.is_fresh(now) for each in usage.values()):
            raise UsageFailed(f"all that it knows was measured more than {format_duration(FRESH)} ago")
        return Samples(now, settings["type"], usage)

    async def _found(self, settings: ArgumentValues) -> _Found:
        found = _Found()
        limit = 2 * settings["timeout"] / 1e9  # per request; the timeout of the whole sample ends earlier
        if settings["type"] == METRICS_SERVER:
            await self._query_metrics_server(found, limit)
        elif settings["type"] in ADAPTOR:
            await self._query_adapter(CPU_METRIC, found, found.cpu, limit)
            await self._query_adapter(MEMORY_METRIC, found, found.memory, limit)
        else:
            async with _server(settings) as ask:
                if settings["type"] == ELASTICSEARCH:
                    await _query_elasticsearch(ask, settings, sorted(self.state.nodes), found)
                else:
                    found.cpu, found.memory = await _query(ask, CPU_QUERY), await _query(ask, MEMORY_QUERY)
        return found

    # --- through the API server -------------------------------------------------------------------------------------

    async def _query_metrics_server(self, found: _Found, limit: float) -> None:
        """Read current usage as percent of capacity (metrics.k8s.io)."""
        for item in _items(await self.client.request("GET", NODE_METRICS, timeout=limit)):
            name = item.metadata.name
            record = self.state.nodes.get(name)
            if record is None or not found.note_time(name, item.timestamp):
                continue
            status = record.node.status
            for resource, read, result in ((CPU, parse_milli, found.cpu), (MEMORY, parse_units, found.memory)):
                capacity = status.capacity.get(resource) or status.allocatable.get(resource)
                part = _part(item.usage.get(resource), capacity, read)
                if part is not None:
                    result[name] = part

    async def _query_adapter(self, metric: str, found: _Found, result: dict[str, float], limit: float) -> None:
        """Read a metric of all nodes from Prometheus Adapter, a fraction of 1 (custom.metrics.k8s.io)."""
        for version in CUSTOM_VERSIONS:
            path = f"{CUSTOM_METRICS}/{version}/nodes/*/{metric}"
            try:
                raw = await self.client.request("GET", path, timeout=limit)
                break
            except ApiError as error:
                if error.status != 404 or version == CUSTOM_VERSIONS[-1]:
                    raise
        for item in _items(raw):
            name = item.described_object.name
            part = _part(item.value, 1, parse_milli)
            if part is not None and found.note_time(name, item.timestamp):
                result[name] = part


@dataclass
class _Found:
    """Percent of cpu and memory by node, and the time of measurement (ns since the epoch) if the source states it."""

    cpu: dict[str, float] = field(default_factory=dict)
    memory: dict[str, float] = field(default_factory=dict)
    times: dict[str, int] = field(default_factory=dict)

    def note_time(self, name: str, text: str | None) -> bool:
        """Note when a node was measured, or the earliest of several times. Return whether the time is valid."""
        if not text:
            return True
        try:
            measured = seconds_of(text) * 10**9
        except ValueError:
            return False
        self.times[name] = min(measured, self.times.get(name, measured))
        return measured > 0

    def usage(self, names: Sequence[str]) -> dict[str, NodeUsage]:
        """Return the usage of nodes with both values, limited to 0 to 100."""
        found: dict[str, NodeUsage] = {}
        for name in names:
            cpu, memory = self.cpu.get(name, math.nan), self.memory.get(name, math.nan)
            if math.isfinite(cpu) and math.isfinite(memory):
                found[name] = NodeUsage(_bounded(cpu), _bounded(memory), self.times.get(name, 0))
        return found


def _bounded(value: float) -> float:
    return round(min(max(value, 0.0), 100.0), 2)


def settings_of(given: Mapping[str, str]) -> ArgumentValues:
    """Parse the section ``metrics`` of a configuration; empty values get their defaults."""
    return read_arguments(METRICS, {key: text for key, text in given.items() if text})[0]


# --- Prometheus and Elasticsearch -------------------------------------------------------------------------------------


@asynccontextmanager
async def _server(settings: ArgumentValues) -> AsyncIterator[Ask]:
    """Open an HTTP session to a monitoring system. Samples are too rare to reuse a connection."""
    parts = urlsplit(settings["address"])
    if not parts.hostname:
        raise UsageFailed("metrics.address is no URL with http:// or https://")
    address = without_user_info(settings["address"]).rstrip("/")
    user = settings["elasticsearch.username"] or unquote(parts.username or "")
    password = settings["elasticsearch.password"] or unquote(parts.password or "")

    async def ask(method: str, path: str, body: Any = None) -> Any:
        try:
            async with session.request(method, address + path, json=body, allow_redirects=False) as response:
                if response.status != 200:
                    raise UsageFailed(f"{address} answered HTTP {response.status}")
                text = await read_within(response, LARGEST)
                if text is None:
                    raise UsageFailed(f"{address} answered more than {LARGEST} bytes")
                return msgspec.json.decode(text)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise UsageFailed(f"{address} answered what is no JSON: {error}") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise UsageFailed(f"{address} cannot be queried: {error or type(error).__name__}") from error

    verify = not settings["tls.insecureSkipVerify"]
    async with open_session(verify=verify, headers=headers_for(user, password)) as session:
        yield ask


async def _query(ask: Ask, query: str) -> dict[str, float]:
    """Return the values of an instant query by node: the label instance is the node's name, with or without a port."""
    answer = await ask("GET", f"/api/v1/query?query={quote(query, safe='')}")
    data = answer.get("data") if isinstance(answer, dict) else None
    result = data.get("result") if isinstance(data, dict) and data.get("resultType") == "vector" else None
    if not isinstance(result, list) or answer.get("status") != "success":
        raise UsageFailed(f"Prometheus answered no vector to {query}")
    found: dict[str, float] = {}
    for each in result:
        try:
            instance, value = each["metric"]["instance"], float(each["value"][1])
        except (LookupError, TypeError, ValueError, OverflowError):
            continue
        if isinstance(instance, str):
            found.setdefault(instance.rpartition(":")[0] or instance, value)
            found[instance] = value
    return found


async def _query_elasticsearch(ask: Ask, settings: ArgumentValues, names: Sequence[str], found: _Found) -> None:
    """Query Metricbeat's documents of the nodes, averaged per host name."""
    host = settings["elasticsearch.hostnameFieldName"]
    body = {
        "size": 0,
        "query": {
            "bool": {
                "filter": [
                    {"range": {"@timestamp": {"gte": f"now-{PERIOD}", "lt": "now"}}},
                    {"terms": {host: list(names)}},
                ]
            }
        },
        "aggs": {
            "nodes": {
                "terms": {"field": host, "size": max(1, len(names))},
                "aggs": {
                    "cpu": {"avg": {"field": "host.cpu.usage"}},
                    "mem": {"avg": {"field": "system.memory.actual.used.pct"}},
                },
            }
        },
    }
    answer = await ask("POST", f"/{quote(settings['elasticsearch.index'], safe='*,')}/_search", body)
    try:
        for bucket in answer["aggregations"]["nodes"]["buckets"]:
            for name, result in (("cpu", found.cpu), ("mem", found.memory)):
                part = bucket[name]["value"]
                if isinstance(part, int | float):
                    result[bucket["key"]] = 100.0 * part
    except (LookupError, TypeError, OverflowError) as error:
        raise UsageFailed("Elasticsearch answered no buckets of nodes") from error


# --- the API server's answers -----------------------------------------------------------------------------------------


class _Item(msgspec.Struct, rename="camel"):
    metadata: Named = Named()
    described_object: Named = Named()
    usage: dict[str, Any] = {}
    value: Any = None
    timestamp: str | None = None


class _List(msgspec.Struct):
    items: list[msgspec.Raw]


_list_decoder, _item_decoder = msgspec.json.Decoder(_List), msgspec.json.Decoder(_Item)


def _items(raw: bytes) -> Iterator[_Item]:
    """Yield the valid measurements of a list. Raises BadResponse if it is no list."""
    for item in decode(_list_decoder, raw, "list of measurements").items:
        with contextlib.suppress(BadResponse):
            yield decode(_item_decoder, item, "measurement")


def _part(used: Any, capacity: Any, read: Callable[[str | int | float], int]) -> float | None:
    """Return ``used`` as percent of ``capacity``; None if one of them is invalid."""
    try:
        whole = read(capacity)
        return 100.0 * read(used) / whole if whole > 0 else None
    except (QuantityError, TypeError, ValueError):
        return None
