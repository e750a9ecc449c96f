"""The network between replicas of one log: WebSockets with the real messages, and faults of the network.

It replaces the network below ``vcd.daemon.replicas.replica_network``. A certificate is a unique fingerprint here;
tokens are not reviewed, so every caller may follow. The process that answers at an address is simulated: none at the
address of a deleted pod, and a program with another certificate after a restart.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp import web

from tests.simulation.loop import PROCESS, SimulatedLoop
from tests.simulation.socket import End, Frame
from vcd.daemon.http.security import Security
from vcd.daemon.replicas import replica_network
from vcd.daemon.replicas.replica_identity import Address

if TYPE_CHECKING:
    from tests.simulation.replica import Machine

LATENCY = 0.001
"""Mean seconds that a message takes."""
PORT = 7443
_ATTEMPTS = (0.0, 1.0, 2.0, 2.0)
"""Seconds between a machine's attempts to connect; after the last one it gives up."""
_GRACE = 1.0
"""Seconds that connected replicas have to leave when a program ends."""

Answer = Callable[[Any], Awaitable[Any]]
Told = Callable[[End, bytes], None]


@dataclass(eq=False)
class Direction:
    """The state of the direction from one replica to another; ``late`` seconds are added to each message."""

    open: bool = True
    late: float = 0.0


@dataclass(eq=False)
class Listener:
    """The program that answers at an address."""

    machine: Machine
    answer: Answer
    fingerprint: bytes
    handlers: set[asyncio.Task[None]] = field(default_factory=set)

    def come(self, end: End) -> None:
        """Serve a caller, in the program that listens."""
        task = asyncio.get_running_loop().create_task(self._handled(end))
        self.handlers.add(task)
        task.add_done_callback(self.handlers.discard)

    async def _handled(self, end: End) -> None:
        try:
            await self.answer(Visit(end))
        except web.HTTPException as refused:
            end.send(Frame.REFUSED, refused.status)
        except ConnectionError:
            pass  # the caller has left
        finally:
            end.drop()

    async def shut_down(self) -> None:
        """End the connections of all callers."""
        if self.handlers:
            await asyncio.wait(set(self.handlers), timeout=_GRACE)
        for task in self.handlers:
            task.cancel()
        await asyncio.gather(*self.handlers, return_exceptions=True)


@dataclass(eq=False)
class Visit:
    """A request to follow a log."""

    end: End

    @property
    def protocol(self) -> object:
        """A substitute for the request's connection."""
        return self.end


@dataclass(eq=False)
class Peers:
    """All connections between replicas, and callbacks for the events on them."""

    loop: SimulatedLoop
    directions: dict[tuple[str, str], Direction] = field(default_factory=lambda: defaultdict(Direction))
    listeners: dict[str, Listener] = field(default_factory=dict)
    ends: list[End] = field(default_factory=list)
    """The ends of all existing connections."""
    sent: list[Told] = field(default_factory=list)
    """Called for each message before it leaves."""
    read: list[Told] = field(default_factory=list)
    """Called for each message when a program reads it."""
    plans: dict[bool, list[Told]] = field(default_factory=lambda: {True: [], False: []})
    """Functions for later messages, at sending (True) or reading (False); they may end the program or the connection.
    """
    tried: list[Callable[[Machine, str], None]] = field(default_factory=list)
    """Called for each attempt of a machine to reach an address."""
    affected: Counter[str] = field(default_factory=Counter)
    """Number of times that each fault had an effect, by the name of the act."""
    hosts: set[str] = field(default_factory=set)
    """The addresses of existing pods."""
    certificates: int = 0

    def takes(self, origin: str, to: str) -> float:
        """Return the seconds that a message takes from one replica to another."""
        return LATENCY * self.loop.rng.expovariate(1.0) + self.directions[origin, to].late

    async def dialled(self, machine: Machine, where: Address) -> End:
        """Connect to an address. Raises aiohttp's errors."""
        for tried in self.tried:
            tried(machine, where.url)
        listener = await self._found(machine, where)
        near, far = End(self, machine, dialled=True), End(self, listener.machine, dialled=False)
        near.other, far.other, far.come, near.url = far, near, listener.come, where.url
        self.ends += near, far
        try:
            if listener.fingerprint != where.fingerprint:
                raise aiohttp.ServerFingerprintMismatch(where.fingerprint, listener.fingerprint, where.url, PORT)
            near.begin()
            far.begin()
            near.send(Frame.OPEN)
            await near.opened
        except BaseException:
            near.drop()
            raise
        return near

    async def _found(self, machine: Machine, where: Address) -> Listener:
        """Return the listener at an address, if it is reachable."""
        host = where.url.removeprefix("https://").partition(":")[0]
        for pause in _ATTEMPTS:
            await asyncio.sleep(pause)
            name = host.partition(".")[0]
            there, back = self.directions[machine.replica, name], self.directions[name, machine.replica]
            if there.open and back.open and host in self.hosts:
                await asyncio.sleep(self.takes(machine.replica, name) + self.takes(name, machine.replica))
                listener = self.listeners.get(where.url)
                if listener is None or not listener.machine.alive:
                    raise aiohttp.ClientConnectionError(f"{where.url}: connection refused")
                return listener
        raise aiohttp.ConnectionTimeoutError(f"{where.url}: no connection within 5 s")

    def resume(self) -> None:
        """Deliver the messages whose direction is open again."""
        for end in list(self.ends):
            end.resume()

    def between(self, one: str, other: str) -> list[End]:
        """Return the ends, at the first replica, of the connections between two replicas."""
        return [end for end in self.ends if (end.machine.replica, end.other.machine.replica) == (one, other)]

    def closed(self, machine: Machine, *, silently: bool = False) -> None:
        """End a program's connections; ``silently``: the other side is not notified."""
        for url in [url for url, listener in self.listeners.items() if listener.machine is machine]:
            del self.listeners[url]
        for end in [end for end in self.ends if end.machine is machine]:
            if silently:
                end.vanish()
            else:
                end.drop()


def _here() -> Machine:
    machine: Any = PROCESS.get()
    return machine  # type: ignore[no-any-return]


@asynccontextmanager
async def _listening(
    name: str, host: str, port: int, advertised: str, answer: Answer, admitted: object
) -> AsyncIterator[Address]:
    machine = _here()
    peers = machine.peers
    peers.certificates += 1
    fingerprint = sha256(f"{name} {peers.certificates}".encode()).digest()
    address = Address.of(advertised, PORT, fingerprint)
    listener = peers.listeners[address.url] = Listener(machine, answer, fingerprint)
    try:
        yield address
    finally:
        if peers.listeners.get(address.url) is listener:
            del peers.listeners[address.url]
        await listener.shut_down()


async def _accepted(visit: Visit) -> End:
    visit.end.send(Frame.OPENED)
    return visit.end


@asynccontextmanager
async def _reached(where: Address, headers: Mapping[str, str]) -> AsyncIterator[End]:
    machine = _here()
    async with asyncio.timeout(replica_network.SILENCE):
        end = await machine.peers.dialled(machine, where)
    try:
        yield end
    finally:
        await end.close()


async def _admitted(security: Security, request: object) -> bool:
    return True


def install() -> None:
    """Let replicas of this process reach each other through ``peers`` only."""
    replica_network.listening = _listening  # type: ignore[assignment]
    replica_network.accepted = _accepted  # type: ignore[assignment]
    replica_network.reached = _reached  # type: ignore[assignment]
    Security.check_follower = _admitted  # type: ignore[method-assign, assignment]
