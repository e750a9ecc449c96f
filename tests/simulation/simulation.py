"""One run: a cluster, replicas and users, the acts of a script, and whether the invariants hold."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import math
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.simulation import outside, peers, raising
from tests.simulation.apiserver import Request, SimulatedServer
from tests.simulation.loop import Restless, SimulatedLoop, Standstill
from tests.simulation.machine import EPOCH
from tests.simulation.names import NAMES
from tests.simulation.network import Link, SimulatedTransport
from tests.simulation.peers import Peers
from tests.simulation.replica import Machine, Replica
from tests.simulation.road import Asked
from tests.simulation.script import Act, Script
from vcd.embedded.cluster_clock import ClusterClock
from vcd.embedded.embedded_cluster import EmbeddedCluster
from vcd.embedded.store import Store
from vcd.eventlog import LogError, LogReader
from vcd.kube import client
from vcd.scheduling.framework.policy import DEFAULT_POLICY

Obj = dict[str, Any]
NAMESPACE = "volcano-system"
CONFIGURES = frozenset({"configure", "misconfigure"})
"""Acts that write the configuration file; replicas read the file only if it exists at the start."""
STEPS, STEPS_A_SECOND = 500_000, 500
"""Steps of the loop that a run may take: in total, and per second for the observations at rest."""


@dataclass
class Violation(Exception):
    """An invariant that did not hold, the time (simulated seconds), and the details."""

    invariant: str
    at: float
    what: str

    def __str__(self) -> str:
        return f"{self.invariant} at {self.at:.3f} s: {self.what}"


class Simulation:
    """The objects that a script's acts and the invariants work on."""

    def __init__(self, script: Script, folder: Path, loop: SimulatedLoop) -> None:
        self.script = script
        self.loop = loop
        self.folder = folder
        self.clock = ClusterClock(start=EPOCH, speed=1.0, monotonic=loop.time)
        self.store = Store(self.clock.now, random.Random(script.seed))
        self.server = SimulatedServer(self.store, bookmarks=5.0)
        self.cluster = EmbeddedCluster(self.store, self.clock)
        self.violations: list[Violation] = []
        self.trace = hashlib.sha256()
        self.store.create("namespaces", {"metadata": {"name": NAMESPACE}})
        self.conf_path = folder / "scheduler.conf"
        """The replicas' configuration file, if the script has one or acts that change it."""
        flags = dict(script.flags)
        if script.conf or any(act.what in CONFIGURES for act in script.acts):
            self.conf_path.write_text(script.conf or DEFAULT_POLICY)
            flags["scheduler-conf"] = [str(self.conf_path)]
        self.peers = Peers(loop)
        self.replicas = [
            Replica(name, loop, folder, flags, self._linked, self._ended, self.peers)
            for name in ("a", "b", "c")[: script.replicas]
        ]
        self.server.credentials = self._is_known
        self.heard: Callable[[str, Asked], None] = lambda what, asked: None
        """Called for each request of a program, as Link.heard is."""
        self.calm = False
        """Whether all faults have ended."""
        self.ends: dict[Hashable, float] = {}
        """The latest end of each temporary fault."""
        self.server.noted = self._carried_out

    def _linked(self, identity: str) -> Link:
        return Link(self.loop, self.server, identity, heard=lambda what, asked: self.heard(what, asked))

    def _is_known(self, identity: str, token: str) -> bool:
        name = identity.partition("-")[0]
        return any(replica.access.holds(token) for replica in self.replicas if replica.name == name)

    def _ended(self, machine: Machine, code: int) -> None:
        self.note("ended", machine.name, code)

    def violated(self, invariant: str, what: str) -> None:
        """Record a violated invariant. Raises ValueError for a name that is not in ``NAMES``."""
        if invariant not in NAMES:
            raise ValueError(f"{invariant!r} is not an invariant of tests/simulation/names.py")
        self.violations.append(Violation(invariant, round(self.loop.time(), 6), what))

    def note(self, *what: object) -> None:
        """Add to the digest that two runs of one seed must share."""
        self.trace.update(repr((round(self.loop.time(), 9), *what)).encode())

    def _carried_out(self, request: Request, status: int) -> None:
        # an Event on an unreadable configuration names its file, whose folder differs in each run
        body = hashlib.sha256(request.payload.replace(bytes(self.folder), b"")).hexdigest()
        self.note("carried out", request.identity, request.method, str(request.url), body, status)

    def _note_logs(self) -> None:
        """Add the last event of each replica's log to the digest."""
        for replica in self.replicas:
            if replica.machine is not None and replica.machine.disk.log.exists():
                try:
                    with LogReader(replica.machine.disk.log) as reader:
                        self.note("log", replica.name, reader.head(), reader.link(reader.head()))
                except LogError as error:
                    self.note("no log", replica.name, type(error).__name__)

    def _do(self, act: Act, what: Callable[..., None]) -> None:
        """Perform an act. An act that changes something on the server has an effect."""
        before = self.store.version
        what(self, *act.given)
        self.affected[act.what] += self.store.version != before

    @property
    def affected(self) -> Counter[str]:
        """Number of times that acts had an effect, without those of a single replica."""
        return self.server.affected

    def effects(self) -> dict[str, int]:
        """Return how often each act of the script had an effect."""
        found: Counter[str] = Counter()
        for affected in (self.affected, self.peers.affected, *(each.road.affected for each in self.replicas)):
            for name, count in affected.items():
                found[name.partition(" ")[0]] += count
        return {name: found[name] for name in sorted({act.what for act in self.script.acts})}

    @property
    def machines(self) -> list[Machine]:
        """All incarnations of all replicas."""
        return [machine for replica in self.replicas for machine in replica.kept]

    async def run(self, watched: Callable[[Simulation], Any], acts: dict[str, Callable[..., None]]) -> None:
        """Perform the script, then let everything come to rest. ``watched`` checks the invariants."""
        invariants = watched(self)
        async with self.cluster:
            for act in self.script.acts:
                self.loop.call_at(act.at, self._do, act, acts[act.what])
            for replica in self.replicas:
                self.loop.call_later(self.loop.rng.random(), replica.start)
            await asyncio.sleep(self.script.storm)
            self.calm = True
            acts["calm"](self)
            await asyncio.sleep(self.script.calm)
            await invariants.at_rest()
            self._note_logs()
            for replica in self.replicas:
                replica.terminate()
            await asyncio.sleep(0)


@dataclass
class Outcome:
    """The result of a run: its violations, its cost, its digest, and how often each act of its script had an effect."""

    seed: int
    violations: list[Violation] = field(default_factory=list)
    digest: str = ""
    steps: int = 0
    effects: dict[str, int] = field(default_factory=dict)


def _install() -> None:
    """Connect the daemons of this process to the simulation. Not at import: other tests import this."""
    client.HttpTransport = SimulatedTransport  # type: ignore[misc, assignment]
    peers.install()
    outside.install()
    raising.install()


def simulate(
    script: Script, watched: Callable[[Simulation], Any], acts: dict[str, Callable[..., None]], keep: Path | None = None
) -> Outcome:
    """Run a script; ``keep`` is the folder for its logs.

    A process runs one script and ends: what a run leaves in memory would be collected during the next one, at moments
    that differ.
    """
    gc.disable()
    _install()
    folder = Path(tempfile.mkdtemp(prefix="vcd-simulation-"))
    try:
        return _simulated(script, watched, acts, folder)
    finally:
        if keep is not None:
            shutil.copytree(folder, keep, dirs_exist_ok=True)
        shutil.rmtree(folder, ignore_errors=True)


def _simulated(
    script: Script, watched: Callable[[Simulation], Any], acts: dict[str, Callable[..., None]], folder: Path
) -> Outcome:
    random.seed(script.seed)
    outcome = Outcome(script.seed)
    most = STEPS + STEPS_A_SECOND * math.ceil(script.storm + script.calm)
    loop = SimulatedLoop(random.Random(script.seed), most)
    asyncio.set_event_loop(loop)
    try:
        simulation = Simulation(script, folder, loop)
        try:
            loop.run_until_complete(simulation.run(watched, acts))
        except (Restless, Standstill) as error:
            simulation.violated("comes to rest", str(error))
        outcome.violations = simulation.violations
        outcome.digest = simulation.trace.hexdigest()[:16]
        outcome.effects = simulation.effects()
    finally:
        outcome.steps = loop.steps
        asyncio.set_event_loop(None)
        loop.close()
    return outcome
