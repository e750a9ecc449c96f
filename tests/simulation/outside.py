"""The other servers that a scheduler queries, in memory: an extender, and Prometheus.

What Prometheus says of a node is the node's annotation ``LOAD``. An extender answers as the slow reference's does.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import aiohttp

from tests.laws.compared import Answering
from tests.reference.extender import KIND, Server
from tests.simulation.loop import PROCESS
from tests.simulation.network import Link
from tests.simulation.workload import refusable
from vcd.daemon import service
from vcd.daemon.outside import usage_poller
from vcd.embedded.store import Store
from vcd.scheduling.session.outside import OUT_OF_TIME, OneByOne, Question, Reply

if TYPE_CHECKING:
    from tests.simulation.apiserver import SimulatedServer
    from tests.simulation.simulation import Simulation

Obj = dict[str, Any]
LOAD = "simulation.example/load"
"""Percent of cpu and memory that a node uses, with a blank between them."""
IDLE = "10 10"
EXTENDER, PROMETHEUS = "extender", "prometheus"
HOW = ("down", "late", "wrong", "failing")
"""What may be wrong with a server: nobody listens; it answers too late, or what nobody understands, or with 500."""


@dataclass
class Outside:
    """The servers of one simulation. ``wrong`` says what is wrong with one, and until when."""

    store: Store
    rng: Random
    time: Callable[[], float]
    affected: Counter[str]
    """How often acts had an effect."""
    wrong: dict[str, tuple[str, float]] = field(default_factory=dict)

    def state(self, name: str) -> str:
        """What is wrong with a server now; empty where nothing is."""
        how, until = self.wrong.get(name, ("", 0.0))
        how = how if self.time() < until else ""
        self.affected["disturb"] += bool(how)
        return how

    def loads(self) -> dict[str, tuple[float, float]]:
        """Percent of cpu and memory that nodes use, by their names."""
        found = {}
        for node in self.store.list("nodes"):
            cpu, memory = ((node["metadata"].get("annotations") or {}).get(LOAD) or IDLE).split()
            found[node["metadata"]["name"]] = float(cpu), float(memory)
        return found


_ALL: WeakKeyDictionary[SimulatedServer, Outside] = WeakKeyDictionary()


def outside_of(link: Link) -> Outside:
    """What can be asked beside the API server of a link."""
    server = link.server
    if server not in _ALL:
        _ALL[server] = Outside(server.store, link.loop.rng, link.loop.time, server.affected)
    return _ALL[server]


def _here() -> Link:
    process: Any = PROCESS.get()
    link: Link = process.link
    return link


# --- the extender -----------------------------------------------------------------------------------------------------

ANSWERS: Obj = {"kind": KIND, "metadata": {"name": "answers", "namespace": "vcd"}, "seed": 1, "down": []}
"""What the reference is told of the extender."""


class HttpOutside(OneByOne):
    """Answers a session's questions in its thread, in no time."""

    def __init__(self, look: Callable[[], None] = lambda: None) -> None:
        self._link = _here()
        self._server = Answering(Server(ANSWERS))

    def ask(self, question: Question) -> Reply:
        """The extender's answer, or what went wrong."""
        outside, road = outside_of(self._link), self._link.road
        match outside.state(EXTENDER) if road.up and road.down else "late":
            case "down":
                return Reply(error="ConnectionRefusedError: nobody listens")
            case "late":
                return Reply(error="no answer within 1s" if outside.rng.random() < 0.7 else OUT_OF_TIME)
            case "wrong":
                return Reply(outside.rng.choice((b"", b"null", b"[1]", b'{"status": {}}', b'{"status": "no"}')))
            case "failing":
                return Reply(error="HTTP 500")
        return self._server.ask(question)

    async def close(self) -> None:
        """There are no connections."""


# --- Prometheus -------------------------------------------------------------------------------------------------------


class _Answer:
    """A response of aiohttp, as far as it is read; it is its own content."""

    def __init__(self, status: int, body: bytes) -> None:
        self.status, self._body = status, body
        self.content = self

    async def iter_any(self) -> AsyncIterator[bytes]:
        """The body."""
        yield self._body


class _Session:
    """A session of aiohttp whose only server is Prometheus."""

    async def __aenter__(self) -> _Session:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing is open."""

    @asynccontextmanager
    async def request(self, method: str, url: str, **_: Any) -> AsyncIterator[_Answer]:
        """Ask it. Raises aiohttp.ClientError."""
        link = _here()
        outside = outside_of(link)
        await asyncio.sleep(link.takes())
        how = outside.state(PROMETHEUS) if link.road.up and link.road.down else "late"
        if how == "down":
            raise aiohttp.ClientConnectionError("nobody listens")
        if how == "late":
            await asyncio.sleep(3600.0)
        await asyncio.sleep(link.takes())
        if how == "wrong":
            yield _Answer(200, outside.rng.choice((b"", b"{", b'{"status": "success", "data": []}')))
        else:
            yield _Answer(500 if how == "failing" else 200, _vector(outside, "cpu" in url))


def _vector(outside: Outside, of_cpu: bool) -> bytes:
    result = [
        {"metric": {"instance": f"{name}:9100"}, "value": [0, str(load[0 if of_cpu else 1])]}
        for name, load in outside.loads().items()
    ]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()


def install() -> None:
    """Let the daemons of this process ask the simulated servers."""
    service.HttpOutside = HttpOutside  # type: ignore[misc, assignment]
    usage_poller.open_session = lambda **_: _Session()  # type: ignore[assignment, return-value]


# --- acts -------------------------------------------------------------------------------------------------------------


def load(sim: Simulation, name: str, cpu: int, memory: int) -> None:
    """A node uses so many percent of its cpu and memory from now on, by what its monitoring says."""
    with refusable():
        sim.store.patch("nodes", None, name, {"metadata": {"annotations": {LOAD: f"{cpu} {memory}"}}})


def disturb(sim: Simulation, name: str, how: str, seconds: float) -> None:
    """Something is wrong with a server beside the API server for so long."""
    _outside(sim).wrong[name] = (how, sim.loop.time() + seconds)


def _outside(sim: Simulation) -> Outside:
    return outside_of(Link(sim.loop, sim.server, ""))


def calm(sim: Simulation) -> None:
    """Servers answer, and no node is busy."""
    _outside(sim).wrong.clear()
    for node in sim.store.list("nodes"):
        if LOAD in (node["metadata"].get("annotations") or {}):
            load(sim, node["metadata"]["name"], 10, 10)


ACTS: dict[str, Callable[..., None]] = {each.__name__: each for each in (load, disturb)}
