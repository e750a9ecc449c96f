"""A cluster for end-to-end tests: the embedded API server here, daemons as processes, a wire to each that can fail.

Whatever a test does, the laws are watched: no pod is bound twice, no node gets more than it has, no two replicas
decide under one epoch, and no call goes beyond what deploy/'s roles allow.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
import yaml
from aiohttp import web

from tests.deploy.kustomize import apply, render
from tests.deploy.rbac import Grant, allows, grants
from tests.e2e.processes import Process, start
from tests.embedded.disturbed import Call, DisturbedServer
from tests.waiting import WAIT_LIMIT, until
from vcd.embedded.api_server import ADMIN
from vcd.embedded.cluster_clock import ClusterClock
from vcd.embedded.embedded_cluster import EmbeddedCluster
from vcd.embedded.store import Store
from vcd.eventlog import LogReader
from vcd.model import events as ev
from vcd.model.quantity import resource_value
from vcd.serving.connection_limits import stop_listening
from vcd.timetravel.log_operations import verify
from vcd.timetravel.replay import replay

Obj = dict[str, Any]
ROOT = Path(__file__).resolve().parents[2]
NAMESPACE = "volcano-system"
LEASES = "leases.coordination.k8s.io"
GROUPS = "podgroups.scheduling.volcano.sh"
QUEUES = "queues.scheduling.volcano.sh"
WON = ("leadership_won", "leading")
"""What a replica logs when it wins the Lease, then when it decides. Earlier versions log the second for both."""
LEASE_DURATION, RENEW_DEADLINE, RETRY_PERIOD, REQUEST_TIMEOUT = 6.0, 4.0, 0.3, 1.6
SHORT = (
    f"--leader-elect-lease-duration={LEASE_DURATION:g}s",
    f"--leader-elect-renew-deadline={RENEW_DEADLINE:g}s",
    f"--leader-elect-retry-period={RETRY_PERIOD * 1000:g}ms",
    f"--request-timeout={REQUEST_TIMEOUT * 1000:g}ms",
)
"""The only flags that replicas get beside their addresses: the times of the election, short for quick takeovers, but
longer than a busy machine holds up a process."""
LATE = float(os.environ.get("VCD_LATE_ANSWERS", "0"))
"""Seconds by which answers of the server are late at most, in pieces: with 0.25 shows what only a quick one hides."""

QUIET_LOOKS, QUIET_SECONDS = 100, 1.0
"""When `until_quiet` takes a log as complete. The looks count for a test process that the machine holds up, the time
for a daemon that it does not schedule."""


async def until_quiet(daemon: Daemon) -> None:
    """Wait until a daemon's log has not grown for `QUIET_LOOKS` looks and `QUIET_SECONDS`."""
    last, looks, since = -1, 0, time.monotonic()

    def quiet() -> bool:
        nonlocal last, looks, since
        with LogReader(daemon.log) as reader:
            head = reader.head()
        if head != last:
            last, looks, since = head, 0, time.monotonic()
        looks += 1
        return looks > QUIET_LOOKS and time.monotonic() - since >= QUIET_SECONDS

    await until(quiet, what="nothing is logged any more")


def set_text(path: Path, text: str) -> None:
    """Give a file another text at once: a daemon may read it at any moment."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.replace(path)


@functools.cache
def granted() -> set[Grant]:
    """What the deployed daemon's ServiceAccount may do, queues' gates included."""
    found = render(ROOT / "deploy" / "base")
    apply(ROOT / "deploy" / "components" / "queue-gates", found)
    return grants(found.values(), "vcd-scheduler", NAMESPACE)


def request_of(call: Call, name: str) -> Grant:
    """A call in the words of RBAC."""
    plural, _, group = call.resource.partition(".")
    resource = f"{plural}/{call.subresource}" if call.subresource else plural
    return Grant(call.verb, group, resource, call.namespace or "", name)


# --- objects ----------------------------------------------------------------------------------------------------------


def node(name: str, cpu: int = 8) -> Obj:
    room = {"cpu": str(cpu), "memory": "64Gi", "pods": "110"}
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"allocatable": room, "capacity": room, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def pod(name: str, group: str, cpu: int = 1, **spec: Any) -> Obj:
    requests = {"cpu": str(cpu), "memory": "64Mi"}
    return {
        "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "default", "annotations": {"scheduling.k8s.io/group-name": group},
        },
        "spec": {
            "schedulerName": "volcano", "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "pause", "resources": {"requests": requests}}], **spec,
        },
    }  # fmt: skip


def group(name: str, minimum: int, **spec: Any) -> Obj:
    wanted = {"minMember": minimum, "queue": "default", **spec}
    return {"kind": "PodGroup", "metadata": {"name": name, "namespace": "default"}, "spec": wanted}


# --- the wire ---------------------------------------------------------------------------------------------------------


class Wire:
    """A TCP proxy between one daemon and the server. ``hold`` keeps all bytes back, connections open.

    Answers come in pieces, each of them up to ``delay`` seconds late: 0 passes them on as they come."""

    def __init__(self, host: str, port: int, delay: float = 0.0) -> None:
        self._to = (host, port)
        self._delay = delay
        self._chance = random.Random(0)
        self._server: asyncio.Server | None = None
        self._open = asyncio.Event()
        self._open.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.url = ""

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        assert self._server is not None
        await stop_listening(self._server)
        self.release()
        for _ in range(2):  # what was accepted last becomes a task
            await asyncio.sleep(0)
        self.cut()
        while self._tasks:
            await asyncio.gather(*self._tasks)

    def hold(self) -> None:
        """From now on nothing gets through, in either direction."""
        self._open.clear()

    def release(self) -> None:
        """Let through again, what was kept back first."""
        self._open.set()

    def cut(self) -> None:
        """End all connections."""
        for writer in tuple(self._writers):
            writer.transport.abort()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        both = {writer}
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._to)
            both.add(far_writer)
            self._writers |= both
            await asyncio.gather(self._pump(reader, far_writer), self._pump(far_reader, writer, self._delay))
        finally:
            self._writers -= both
            for each in both:
                each.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: float = 0.0) -> None:
        try:
            while data := await reader.read(self._chance.randrange(1, 1 << 12) if delay else 1 << 16):
                await asyncio.sleep(self._chance.uniform(0, delay))
                await self._open.wait()
                writer.write(data)
                await writer.drain()
        except OSError:
            pass  # the other end is gone, which is all that closing says, too
        finally:
            writer.close()


# --- daemons ----------------------------------------------------------------------------------------------------------


@dataclass
class Daemon:
    """One replica's process. ``name`` is its identity at the server and, with a suffix, in the Lease."""

    name: str
    process: Process | subprocess.Popen[bytes]
    log: Path
    output: Path
    wire: Wire
    killed: bool = False

    def lines(self, event: str | None = None) -> list[Obj]:
        """What it wrote to standard error, as far as it is whole lines; only those of an event if given."""
        text = self.output.read_text()
        found = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines() if line.startswith("{")]
        return [line for line in found if event is None or line["event"] == event]

    def url(self, page: str) -> str:
        """The base URL at which it serves a page, as it reports since it listens; empty before."""
        found = [line["address"] for line in self.lines("listening") if page in line["pages"]]
        return f"http://127.0.0.1:{found[-1].rpartition(':')[2]}" if found else ""

    @property
    def metrics_url(self) -> str:
        """The base URL of `/metrics`."""
        return self.url("/metrics")

    @property
    def health_url(self) -> str:
        """The base URL of `/healthz` and `/readyz`."""
        return self.url("/healthz")

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def ended(self) -> int:
        """Its exit code, once it has ended."""
        await until(lambda: not self.running, f"{self.name} ends")
        return self.process.wait()

    async def kill(self) -> None:
        """As power loss does."""
        self.killed = True
        self.process.kill()
        await self.ended()

    async def metrics(self) -> dict[str, float]:
        """The metrics page: each series with its value."""
        async with aiohttp.ClientSession() as session, session.get(f"{self.metrics_url}/metrics") as answer:
            text = await answer.text()
        pairs = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, value in pairs}

    async def until_metric(self, series: str, value: float | None) -> None:
        """Wait until a series has a value, or is gone (None): what a session showed comes after the Events that it
        made."""
        deadline = time.monotonic() + WAIT_LIMIT
        while (found := (await self.metrics()).get(series)) != value:
            assert time.monotonic() < deadline, f"not within {WAIT_LIMIT:g} s: {series} is {found}, not {value}"
            await asyncio.sleep(0.02)

    async def health(self, page: str = "healthz") -> int:
        """The status of a probe; 0 when nobody answers."""
        try:
            async with aiohttp.ClientSession() as session, session.get(f"{self.health_url}/{page}") as answer:
                return answer.status
        except aiohttp.ClientError:
            return 0

    async def until_healthy(self, page: str = "healthz") -> None:
        """Wait until a probe is answered with 200."""
        async with asyncio.timeout(WAIT_LIMIT):
            while await self.health(page) != 200:  # noqa: ASYNC110 - the probe tells when it is asked
                await asyncio.sleep(0.02)

    def identities(self) -> set[str]:
        """The names under which it led."""
        return {line["identity"] for event in WON for line in self.lines(event)}

    def sessions(self) -> list[ev.SessionDecided]:
        """The sessions in its log."""
        return [event for event in self.events("session") if isinstance(event, ev.SessionDecided)]

    def events(self, type: str) -> list[ev.Event]:
        """The events of a type in its log."""
        if not self.log.exists():
            return []
        with LogReader(self.log) as reader:
            return [logged.event for logged in reader.find(type=type)]

    def has_seen(self, keys: Iterable[str]) -> bool:
        """Whether its log has objects of all these keys."""
        return {event.key for event in self.events("put") if isinstance(event, ev.ObjectPut)}.issuperset(keys)


def _started(arguments: list[str], output: Path, environment: dict[str, str]) -> Process | subprocess.Popen[bytes]:
    given = {**os.environ, **environment}
    with output.open("wb") as file:
        if "E2E_UNFORKED" in environment:
            command = [sys.executable, "-m", "tests.e2e.daemon", *arguments]
            return subprocess.Popen(command, stdout=file, stderr=file, cwd=ROOT, env=given)
        return start("tests.e2e.daemon:run", arguments, stdout=file, stderr=file, environment=given)


# --- the cluster ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Made:
    """One request that the server took: when (monotonic seconds), by whom, and what."""

    at: float
    identity: str
    call: Call
    name: str


@dataclass(frozen=True)
class Bound:
    """One bind that the store saw."""

    at: float
    key: str
    uid: str
    node: str


@dataclass
class Held:
    """Requests that came and are not carried out yet."""

    requests: list[web.Request] = field(default_factory=list)
    released: asyncio.Event = field(default_factory=asyncio.Event)

    def __len__(self) -> int:
        return len(self.requests)

    def release(self) -> None:
        """Carry them out, and those that still come."""
        self.released.set()


@dataclass
class _Watched:
    """What the store did, and what it should not have done."""

    binds: list[Bound] = field(default_factory=list)
    nodes: dict[str, str] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)


class Cluster:
    """Server, controllers, kubelets and daemons; ``async with`` starts and ends them."""

    def __init__(self, folder: Path, *, controllers: bool = True) -> None:
        self.folder = folder
        self.clock = ClusterClock()
        self.store = Store(self.clock.now, random.Random(0))
        self.server = DisturbedServer(self.store, tokens={}, bookmarks=1.0)
        self.server.authorize = self._authorize
        self.made: list[Made] = []
        self.refused: list[str] = []
        self._granted_beside: set[Grant] = set()
        self.daemons: list[Daemon] = []
        self._watched = _Watched()
        self._controllers = EmbeddedCluster(self.store, self.clock) if controllers else None
        self.store.subscribe(["pods"], self._note)
        self.store.create("namespaces", {"metadata": {"name": NAMESPACE}})

    async def __aenter__(self) -> Self:
        await self.server.start()
        if self._controllers is not None:
            await self._controllers.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._end_daemons()
        finally:
            self.server.faults = None
            if self._controllers is not None:
                await self._controllers.stop()
            await self.server.stop()
        if error is not None:
            self._show()
            return
        self.check_laws()

    async def _end_daemons(self) -> None:
        for daemon in self.daemons:
            if daemon.running:
                daemon.signal(signal.SIGCONT)
                daemon.process.kill()
            daemon.process.wait()
            await daemon.wire.stop()

    def _show(self) -> None:
        for daemon in self.daemons:
            tail = daemon.output.read_text().splitlines()[-60:]
            print(f"--- {daemon.output.name}", *tail, sep="\n")  # noqa: T201 - pytest shows it with the failure

    # --- the laws -------------------------------------------------------------------------------------------------

    def _authorize(self, identity: str, call: Call, name: str) -> bool:
        self.made.append(Made(time.monotonic(), identity, call, name))
        asked = request_of(call, name)
        if identity == ADMIN:
            return True
        if not allows(granted() | self._granted_beside, asked):
            self.refused.append(f"{identity}: {asked}")
            return False
        return True

    def may(self, verb: str, group: str, resource: str, *, namespace: str = "", name: str = "") -> None:
        """Let replicas do more than deploy/base lets them, as a component of deploy/ would."""
        self._granted_beside.add(Grant(verb, group, resource, namespace, name))

    def _note(self, event: str, _: str, obj: Obj) -> None:
        name = obj["spec"].get("nodeName")
        uid, key = obj["metadata"]["uid"], f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"
        if not name or event == "DELETED":
            return
        before = self._watched.nodes.get(uid)
        if before == name:
            return
        if before is not None:
            self._watched.broken.append(f"{key} was bound to {before} and to {name}")
        self._watched.nodes[uid] = name
        self._watched.binds.append(Bound(time.monotonic(), key, uid, name))
        self._check_room(name, obj)

    def _check_room(self, name: str, newest: Obj) -> None:
        on_it = {
            each["metadata"]["uid"]: each
            for each in [*self._pods_now(), newest]
            if each["spec"].get("nodeName") == name
            and each.get("status", {}).get("phase") not in ("Succeeded", "Failed")
        }
        used = sum(cpu_of(each) for each in on_it.values())
        nodes = [each for each in self.store.list("nodes") if each["metadata"]["name"] == name]
        room = resource_value("cpu", nodes[0]["status"]["allocatable"]["cpu"]) if nodes else 0
        if used > room:
            self._watched.broken.append(f"{name} has {room} thousandths of a CPU and got {used}")

    def _pods_now(self) -> list[Obj]:
        return self.store.list("pods")

    def check_laws(self) -> None:
        """Fails when a law was broken; called at the end of each test that went well."""
        assert not self._watched.broken
        assert not self.refused, f"beyond deploy/'s roles: {self.refused}"
        deciders: dict[int, set[Path]] = {}
        for log in {daemon.log for daemon in self.daemons}:
            if not log.exists():
                continue
            problems = verify(log).problems
            assert not problems, problems
            with LogReader(log) as reader:
                for info in reader.sessions():
                    deciders.setdefault(info.epoch, set()).add(log)
                decided = reader.last_session()
            if decided:
                assert [each.difference for each in replay(log) if each.difference is not None] == []
        assert {epoch: logs for epoch, logs in deciders.items() if len(logs) > 1} == {}

    # --- what is in it ----------------------------------------------------------------------------------------------

    def add_nodes(self, count: int, cpu: int = 8) -> None:
        for number in range(count):
            self.store.create("nodes", node(f"node-{number:02}", cpu))

    def submit(self, name: str, size: int, *, minimum: int | None = None, cpu: int = 1, **spec: Any) -> list[str]:
        """A gang of ``size`` pods; their keys. ``spec`` adds to that of the pods."""
        self.store.create(GROUPS, group(name, size if minimum is None else minimum))
        for number in range(size):
            self.store.create("pods", pod(f"{name}-{number}", name, cpu, **spec))
        return [f"default/{name}-{number}" for number in range(size)]

    async def post(self, path: str, raw: bytes) -> int:
        """Create an object as an administrator, of bytes that go out as they are; the answer's status."""
        self.server.tokens[ADMIN] = ADMIN
        headers = {"Authorization": f"Bearer {ADMIN}", "Content-Type": "application/json"}
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.post(self.server.url + path, data=raw) as answer,
        ):
            return answer.status

    @property
    def binds(self) -> list[Bound]:
        """Every bind so far, in order."""
        return self._watched.binds

    def bound(self, keys: list[str]) -> bool:
        """Whether all these pods have a node."""
        return {bind.key for bind in self.binds}.issuperset(keys)

    async def until_bound(self, keys: list[str]) -> None:
        await until(lambda: self.bound(keys), f"{len(keys)} pods are bound")

    def calls(self, daemon: Daemon, *verbs: str, since: float = 0.0) -> list[Made]:
        """What a replica asked of the server, only certain verbs if given."""
        return [
            made
            for made in self.made
            if made.identity == daemon.name and made.at >= since and (not verbs or made.call.verb in verbs)
        ]

    def writes(self, daemon: Daemon, since: float = 0.0) -> list[Made]:
        """What a replica wrote, but for the Lease."""
        found = self.calls(daemon, "create", "update", "patch", "delete", since=since)
        return [made for made in found if made.call.resource != LEASES]

    def lease(self) -> Obj | None:
        """The Lease's spec, None while there is none."""
        found = [each for each in self.store.list(LEASES, NAMESPACE) if each["metadata"]["name"] == "volcano"]
        return found[0]["spec"] if found else None

    def leader(self) -> Daemon | None:
        """Who holds the Lease."""
        holder = (self.lease() or {}).get("holderIdentity", "")
        return next((daemon for daemon in self.daemons if holder and holder in daemon.identities()), None)

    # --- daemons ------------------------------------------------------------------------------------------------------

    async def start(
        self, name: str, *flags: str, log: Path | None = None, short: bool = True, **environment: str
    ) -> Daemon:
        """Start a replica. ``log`` lets it go on from another one's file; the flags are vcd run's."""
        number = len(self.daemons)
        wire, kubeconfig = await self._credentials(name, number)
        path = log or self.folder / f"{name}.sqlite"
        output = self.folder / f"{number}-{name}.log"
        arguments = [
            "run", f"--kubeconfig={kubeconfig}", f"--event-log={path}", "--listen-address=127.0.0.1:0",
            "--healthz-address=127.0.0.1:0", "--log-format=json", "--view-address=", *(SHORT if short else ()), *flags,
        ]  # fmt: skip
        daemon = Daemon(name, _started(arguments, output, environment), path, output, wire)
        self.daemons.append(daemon)
        return daemon

    async def _credentials(self, name: str, number: int) -> tuple[Wire, Path]:
        """A wire to the server, and the kubeconfig with which a replica reaches it there under its name."""
        host, _, port = self.server.url.removeprefix("http://").partition(":")
        wire = Wire(host, int(port), LATE)
        await wire.start()
        assert self.server.tokens is not None
        self.server.tokens[f"token-of-{name}"] = name
        path = self.folder / f"{number}-{name}.kubeconfig"
        path.write_text(yaml.safe_dump(_kubeconfig(wire.url, f"token-of-{name}")))
        return wire, path

    async def started(
        self, name: str, *flags: str, log: Path | None = None, short: bool = True, **environment: str
    ) -> Daemon:
        """Start a replica and wait until it decides."""
        daemon = await self.start(name, *flags, log=log, short=short, **environment)
        await self.until_leading(daemon)
        return daemon

    async def until_leading(self, daemon: Daemon) -> None:
        """Wait until a replica has won, waited and listed: it decides from now on."""

        def leads() -> bool:
            assert daemon.running, f"{daemon.name} has ended"
            return _decides(daemon)

        await until(leads, f"{daemon.name} leads")

    # --- what goes wrong ------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def faults(self, hook: Callable[[web.Request], Any]) -> Iterator[None]:
        """Let ``hook`` answer requests in the server's place."""
        self.server.faults = hook
        try:
            yield
        finally:
            self.server.faults = None

    @contextlib.contextmanager
    def holding_binds(self, of: Daemon | None = None) -> Iterator[Held]:
        """Let binds, only those ``of`` a replica if given, wait at the server until they are released."""
        held = Held()

        async def hold(request: web.Request) -> None:
            if is_bind(request) and (of is None or request.headers["Authorization"].endswith(f"token-of-{of.name}")):
                held.requests.append(request)
                await held.released.wait()

        with self.faults(hold):
            yield held

    async def carry_out(self, request: web.Request) -> web.StreamResponse:
        """Do what a request asks, for a hook that keeps the answer or delays it."""
        return await self.server._route(request, self.server._identity(request))


def _decides(daemon: Daemon) -> bool:
    """Whether its last word on leadership is that it decides: the Lease is won, then the service decides."""
    events = [line["event"] for line in daemon.lines()]
    last = [event for event in events if event in (*WON, "leadership_lost")][-2:]
    return last[1:] == ["leading"] and last[0] in WON


def cpu_of(obj: Obj) -> int:
    """What a pod asks for, in thousandths."""
    asked = (each.get("resources", {}).get("requests", {}) for each in obj["spec"]["containers"])
    return sum(resource_value("cpu", requests.get("cpu", "0")) for requests in asked)


def _kubeconfig(url: str, token: str) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }


def is_bind(request: web.Request) -> bool:
    """Whether a request binds a pod."""
    return request.method == "POST" and request.path.endswith("/binding")


def failed(code: int, reason: str, message: str = "injected", **headers: str) -> web.Response:
    """A Status with an error."""
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
    }
    return web.json_response(body, status=code, headers=headers)
