"""Samples of what the nodes really use: taken from a monitoring system at an interval, and put into the log.

The section ``metrics`` of the configuration says where from. A sample that cannot be taken is told and counted, and
leaves no event: what is not known is not zero. Source: Volcano ``pkg/scheduler/metrics/source``.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import aiohttp
import msgspec
import structlog

from vcd.daemon.outgoing import headers_for, open_session, read_within
from vcd.kube.client import ApiError, KubeClient, KubeError
from vcd.kube.clock import SYSTEM_CLOCK, Clock
from vcd.model.events import Event
from vcd.model.objects import Node
from vcd.model.quantity import QuantityError, parse_milli, parse_units
from vcd.model.requests import CPU, MEMORY
from vcd.scheduling.framework.arguments import did_you_mean, format_duration, read_arguments
from vcd.scheduling.framework.policy import METRICS
from vcd.scheduling.framework.usage_samples import FRESH, NodeUsage, Samples, answered
from vcd.scheduling.session.outside import without_user_info
from vcd.state.cluster import ClusterState
from vcd.state.records import seconds_of

_log = structlog.get_logger(__name__)

_LOOK = 1.0
"""Seconds between looks whether there are nodes at all."""
LARGEST = 32 << 20
"""Bytes of the largest answer."""
PERIOD = "10m"
"""Over which usage is averaged."""

PROMETHEUS, ADAPTOR, ELASTICSEARCH, METRICS_SERVER = (
    "prometheus",
    "prometheus_adaptor",
    "elasticsearch",
    "metrics_server",
)
_TYPES = {
    PROMETHEUS: PROMETHEUS,
    ADAPTOR: ADAPTOR,
    "prometheus_adapt": ADAPTOR,
    ELASTICSEARCH: ELASTICSEARCH,
    METRICS_SERVER: METRICS_SERVER,
}

CPU_QUERY = (
    "avg_over_time(clamp_min(100 - 100 * avg by (instance)"
    f' (rate(node_cpu_seconds_total{{mode="idle"}}[5m])), 0)[{PERIOD}:30s])'
)
MEMORY_QUERY = f"100 * avg_over_time((1 - node_memory_MemAvailable_bytes / node_memory_MemTotal_bytes)[{PERIOD}:30s])"
NODE_METRICS = "/apis/metrics.k8s.io/v1beta1/nodes"
CUSTOM_METRICS = "/apis/custom.metrics.k8s.io"
CUSTOM_VERSIONS = ("v1beta2", "v1beta1")
CPU_METRIC, MEMORY_METRIC = "node_cpu_usage_avg", "node_memory_usage_avg"

Percent = dict[str, float]
Times = dict[str, int]
"""When nodes were measured, in nanoseconds since the epoch, as far as a source says."""


class UsageFailed(Exception):
    """A sample could not be taken; the message says why."""


@dataclass(eq=False)
class UsagePoller:
    """Takes a sample at each interval, as long as the configuration names where from.

    ``settings`` gives the section ``metrics`` in force, ``put`` logs and folds, ``observe`` is told "taken" or
    "failed".
    """

    client: KubeClient
    state: ClusterState
    put: Callable[[Sequence[Event]], Awaitable[None]]
    settings: Callable[[], Mapping[str, str]]
    observe: Callable[[str], None]
    clock: Clock = SYSTEM_CLOCK

    def __post_init__(self) -> None:
        self._reloaded = asyncio.Event()

    def reloaded(self) -> None:
        """The configuration is another one: take a sample by it at once."""
        self._reloaded.set()

    async def run(self) -> None:
        """Take samples until cancelled."""
        while True:
            self._reloaded.clear()
            settings = self.settings()
            if not names_source(settings):
                await self._reloaded.wait()
            elif not self.state.nodes:
                await self._pause(_LOOK)
            else:
                await self.once(settings)
                await self._pause(interval_of(settings))

    async def _pause(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        waiting = [
            loop.create_task(each) for each in (_ended(self.clock.sleep(seconds)), _ended(self._reloaded.wait()))
        ]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()

    async def once(self, settings: Mapping[str, str]) -> bool:
        """Take one sample and log it; whether that worked. A failure is told and counted, and changes nothing."""
        source = settings.get("type") or PROMETHEUS
        try:
            usage = await self._in_time(settings)
            if not usage:
                raise UsageFailed("it knows no node's usage; samples are matched with nodes by name")
            now = self.clock.wall()
            usage = {name: each if each.at <= now else NodeUsage(each.cpu, each.memory) for name, each in usage.items()}
            if not any(each.is_fresh(now) for each in usage.values()):
                raise UsageFailed(f"all that it knows was measured more than {format_duration(FRESH)} ago")
            event = answered(Samples(now, source, usage))
        except (UsageFailed, KubeError, ValueError) as error:
            _log.warning(
                "no sample of the nodes' usage; it counts as unknown once the last one is old", reason=str(error)
            )
            self.observe("failed")
            return False
        await self.put([event])
        self.observe("taken")
        return True

    async def _in_time(self, settings: Mapping[str, str]) -> dict[str, NodeUsage]:
        """The nodes' usage, within the time that taking a sample may take in all."""
        limit = timeout_of(settings)  # over before that of a single request, which is twice as long
        try:
            async with asyncio.timeout(limit):
                return await self._taken(settings)
        except TimeoutError as error:
            waited = format_duration(round(limit * 1e9))
            raise UsageFailed(f"it did not answer within {waited} (metrics.timeout)") from error

    async def _taken(self, settings: Mapping[str, str]) -> dict[str, NodeUsage]:
        given = settings.get("type") or PROMETHEUS
        kind = _TYPES.get(given)
        names = sorted(self.state.nodes)
        if kind is None:
            hint = did_you_mean(given, _TYPES)
            raise UsageFailed(f"metrics.type {given!r} is none of {', '.join(_TYPES)}{hint}")
        if kind == METRICS_SERVER:
            return combined(*await self._from_metrics_server(timeout_of(settings)), names)
        if kind == ADAPTOR:
            times: Times = {}
            cpu = await self._custom(CPU_METRIC, timeout_of(settings), times)
            memory = await self._custom(MEMORY_METRIC, timeout_of(settings), times)
            return combined(cpu, memory, times, names)
        async with _Server(settings) as server:
            if kind == ELASTICSEARCH:
                return combined(*await _from_elasticsearch(server, settings, names), {}, names)
            return combined(await _query(server, CPU_QUERY), await _query(server, MEMORY_QUERY), {}, names)

    # --- by way of the API server -----------------------------------------------------------------------------------

    async def _from_metrics_server(self, limit: float) -> tuple[Percent, Percent, Times]:
        """Momentary usage, as percent of capacity (metrics.k8s.io)."""
        cpu: Percent = {}
        memory: Percent = {}
        times: Times = {}
        for item in _items(await self.client.request("GET", NODE_METRICS, timeout=2 * limit)):
            name, used = _text(item, "metadata", "name"), item.get("usage")
            record = self.state.nodes.get(name)
            if record is None or not isinstance(used, dict) or not _note_time(item, name, times):
                continue
            for resource, read, result in ((CPU, parse_milli, cpu), (MEMORY, parse_units, memory)):
                part = _part(used.get(resource), _capacity(record.node, resource), read)
                if part is not None:
                    result[name] = part
        return cpu, memory, times

    async def _custom(self, metric: str, limit: float, times: Times) -> Percent:
        """A metric of all nodes that Prometheus Adapter offers, a part of 1 (custom.metrics.k8s.io); ``times`` get
        when it was measured."""
        for version in CUSTOM_VERSIONS:
            path = f"{CUSTOM_METRICS}/{version}/nodes/*/{metric}"
            try:
                raw = await self.client.request("GET", path, timeout=2 * limit)
            except ApiError as error:
                if error.status != 404 or version == CUSTOM_VERSIONS[-1]:
                    raise
            else:
                break
        found: Percent = {}
        for item in _items(raw):
            try:
                part = parse_milli(item.get("value", "")) / 1000
            except (QuantityError, TypeError):
                continue
            name = _text(item, "describedObject", "name")
            if _note_time(item, name, times):
                found[name] = 100 * part
        return found


def names_source(settings: Mapping[str, str]) -> bool:
    """Whether the section says where samples come from."""
    return bool(settings.get("type") or settings.get("address"))


def interval_of(settings: Mapping[str, str]) -> float:
    """Seconds between samples."""
    return _seconds_of("interval", settings)


def timeout_of(settings: Mapping[str, str]) -> float:
    """Seconds that taking a sample may take in all."""
    return _seconds_of("timeout", settings)


def _seconds_of(key: str, settings: Mapping[str, str]) -> float:
    values, _ = read_arguments(METRICS, settings)
    return float(values[key] / 1e9)


def combined(cpu: Percent, memory: Percent, times: Times, names: Sequence[str]) -> dict[str, NodeUsage]:
    """The nodes of which both are known, as numbers from 0 to 100."""
    return {
        name: NodeUsage(_bounded(cpu[name]), _bounded(memory[name]), times.get(name, 0))
        for name in names
        if _is_number(cpu.get(name)) and _is_number(memory.get(name))
    }


def _is_number(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _bounded(value: float) -> float:
    return round(min(max(value, 0.0), 100.0), 2)


async def _ended(waiting: Awaitable[Any]) -> None:
    await waiting


# --- Prometheus and Elasticsearch -------------------------------------------------------------------------------------


class _Server:
    """A monitoring system's address, asked over HTTP. Use it as an async context manager."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        address = settings.get("address", "")
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageFailed(f"metrics.address {without_user_info(address)!r} is no URL with http:// or https://")
        self._address = without_user_info(address).rstrip("/")
        user = settings.get("elasticsearch.username") or unquote(parts.username or "")
        password = settings.get("elasticsearch.password") or unquote(parts.password or "")
        self._headers = headers_for(user, password)
        self._insecure = settings.get("tls.insecureSkipVerify") == "true"

    async def __aenter__(self) -> _Server:
        """Open a session of its own: a sample is taken too seldom to keep a connection."""
        self._session = open_session(verify=not self._insecure, headers=self._headers)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close it."""
        await self._session.close()

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The JSON that answers a request. Raises UsageFailed."""
        try:
            async with self._session.request(
                method, self._address + path, json=body, allow_redirects=False
            ) as response:
                if response.status != 200:
                    raise UsageFailed(f"{self._address} answered HTTP {response.status}")
                text = await read_within(response, LARGEST)
                if text is None:
                    raise UsageFailed(f"{self._address} answered more than {LARGEST} bytes")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise UsageFailed(f"{self._address} cannot be asked: {error or type(error).__name__}") from error
        return _json(text, self._address)


async def _query(server: _Server, query: str) -> Percent:
    """The values of an instant query, by node: instances are named as nodes are, with a port or without."""
    told = await server.ask("GET", f"/api/v1/query?query={quote(query, safe='')}")
    data = told.get("data") if isinstance(told, dict) else None
    result = data.get("result") if isinstance(data, dict) and data.get("resultType") == "vector" else None
    if not isinstance(told, dict) or told.get("status") != "success" or not isinstance(result, list):
        raise UsageFailed(f"Prometheus answered no vector to {query}")
    found: Percent = {}
    for each in result:
        try:
            instance, value = each["metric"]["instance"], float(each["value"][1])
        except (LookupError, TypeError, ValueError, OverflowError):
            continue
        if isinstance(instance, str):
            found.setdefault(instance.rpartition(":")[0] or instance, value)
            found[instance] = value
    return found


async def _from_elasticsearch(
    server: _Server, settings: Mapping[str, str], names: Sequence[str]
) -> tuple[Percent, Percent]:
    """What Metricbeat wrote of the nodes, averaged per host name."""
    host = settings.get("elasticsearch.hostnameFieldName") or "host.hostname"
    index = settings.get("elasticsearch.index") or "metricbeat-*"
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
    told = await server.ask("POST", f"/{quote(index, safe='*,')}/_search", body)
    cpu: Percent = {}
    memory: Percent = {}
    try:
        for bucket in told["aggregations"]["nodes"]["buckets"]:
            for field, result in (("cpu", cpu), ("mem", memory)):
                part = bucket[field]["value"]
                if isinstance(part, int | float):
                    result[bucket["key"]] = 100.0 * part
    except (LookupError, TypeError, OverflowError) as error:
        raise UsageFailed("Elasticsearch answered no buckets of nodes") from error
    return cpu, memory


# --- answers ----------------------------------------------------------------------------------------------------------


def _json(raw: bytes, source: str) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise UsageFailed(f"{source} answered what is no JSON: {error}") from error


def _items(raw: bytes) -> list[dict[str, Any]]:
    told = _json(raw, "the API server")
    items = told.get("items") if isinstance(told, dict) else None
    if not isinstance(items, list):
        raise UsageFailed("the API server answered no list")
    return [item for item in items if isinstance(item, dict)]


def _note_time(item: Mapping[str, Any], name: str, times: Times) -> bool:
    """Keep when an item was measured, the earlier one where a node has several; False where that cannot be read."""
    text = _text(item, "timestamp")
    if not text:
        return True
    try:
        measured = seconds_of(text) * 10**9
    except ValueError:
        return False
    times[name] = min(measured, times.get(name, measured))
    return measured > 0


def _text(item: Mapping[str, Any], *path: str) -> str:
    value: Any = item
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, str) else ""


def _capacity(node: Node, resource: str) -> str | int | float | None:
    return node.status.capacity.get(resource) or node.status.allocatable.get(resource)


def _part(used: Any, capacity: Any, read: Callable[[str | int | float], int]) -> float | None:
    """``used`` as percent of ``capacity``; None where one of them cannot be read."""
    try:
        whole = read(capacity)
        return 100.0 * read(used) / whole if whole > 0 else None
    except (QuantityError, TypeError, ValueError):
        return None
