"""A replica: the production daemon as a sequence of processes, on a disk that outlives them."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.simulation.access import Access
from tests.simulation.disk import Disk, Drive
from tests.simulation.loop import Process, SimulatedLoop
from tests.simulation.network import Link
from tests.simulation.peers import Peers
from tests.simulation.road import Road
from tests.simulation.versions import FIRST
from vcd.daemon.options import Options, parse_options
from vcd.daemon.process import run
from vcd.daemon.service import SchedulerService

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 20.0
"""Seconds that the kubelet waits before it restarts an ended program, the first time and at most."""


@dataclass(eq=False)
class Machine(Process):
    """A process with its disk and its link: one incarnation of a replica."""

    disk: Disk = field(kw_only=True)
    link: Link = field(kw_only=True)
    peers: Peers = field(kw_only=True)
    version: int = FIRST
    service: SchedulerService | None = None
    told_to_end: bool = False
    code: int | None = None
    """The exit code with which the program ended by itself."""
    crash: Exception | None = None
    """The exception that ended the program."""

    @property
    def replica(self) -> str:
        """The name of its replica."""
        return self.name.partition("-")[0]

    @property
    def asks_as_it_ends(self) -> bool:
        """Whether its program is ending.

        An ending program examines the results of its parts after all of them have ended; if it is killed earlier, it
        does not.
        """
        return self.told_to_end or (self.service is not None and self.service.state_writer.log.failure is not None)


@dataclass(eq=False)
class Replica:
    """A pod of the Deployment; the kubelet restarts its program whenever it ends.

    ``flags`` are of vcd run. ``linked`` returns a link to the server under an identity. ``ended`` is called with the
    exit code at each end that was not requested. ``kept`` has every past incarnation with its log.
    """

    name: str
    loop: SimulatedLoop
    folder: Path
    flags: dict[str, list[str]]
    linked: Callable[[str], Link]
    ended: Callable[[Machine, int], None]
    peers: Peers
    kept: list[Machine] = field(default_factory=list)
    machine: Machine | None = None
    wall_ahead: float = 0.0
    busy: float = 0.0
    version: int = FIRST
    """The flags of the next program."""
    identity: str = ""
    """The ``--identity`` of the next programs; empty for the machine's name."""
    road: Road = field(default_factory=Road)
    drive: Drive = field(default_factory=Drive)
    starts: int = 0
    pods: int = 0
    """Number of pods so far: each has its own address and begins with an empty disk."""
    _pause: float = FIRST_PAUSE
    _stopped_until: float = 0.0
    """The time at which the next program starts, if none ran when the replica was stopped."""

    def __post_init__(self) -> None:
        self.access = Access(self.folder, self.name, self.loop.time)

    @property
    def host(self) -> str:
        """The address of its pod."""
        return f"{self.name}.{self.pods}"

    @property
    def service(self) -> SchedulerService | None:
        """The running daemon, once it is constructed."""
        return self.machine.service if self.machine is not None and self.machine.alive else None

    @property
    def leads(self) -> bool:
        """Return whether its daemon leads, or believes so."""
        return self.service is not None and self.service.terms.leads()

    def start(self, disk: Disk | None = None) -> None:
        """Start the program with the files on its disk."""
        self.starts += 1
        identity = f"{self.name}-{self.starts}"
        if disk is None:
            folder = self.folder / identity
            folder.mkdir(parents=True)
            disk = Disk(folder, self.drive)
        if not disk.log.exists():
            self.peers.hosts.discard(self.host)
            self.pods += 1
        self.peers.hosts.add(self.host)
        link = self.linked(identity)
        link.road = self.road
        machine = Machine(
            identity, disk=disk, link=link, peers=self.peers, version=self.version,
            wall_ahead=self.wall_ahead, busy=self.busy,
        )  # fmt: skip
        self.machine = machine
        self.kept.append(machine)
        if (left := self._stopped_until - self.loop.time()) > 0:
            self.stop_for(left)
        self.loop.add_process(machine)
        self.loop.create_task(self._run(machine), context=machine.context())

    async def _run(self, machine: Machine) -> None:
        @contextlib.asynccontextmanager
        async def beside(service: SchedulerService) -> AsyncIterator[None]:
            machine.service = service
            yield

        crash: Exception | None = None
        try:
            code = await run(self._options(machine), beside)
        except Exception as error:  # noqa: BLE001 - a traceback, and exit code 1
            crash, code = error, 1
        if not machine.alive or self.loop.is_closed():
            return  # by the garbage collector, much later
        machine.alive, machine.code, machine.crash = False, code, crash
        self.loop.look_through(machine)
        machine.link.closed()
        self.peers.closed(machine)
        if not machine.told_to_end:
            self.ended(machine, code)
        self._again(machine)

    def _options(self, machine: Machine) -> Options:
        always = {
            "kubeconfig": [str(self.access.kubeconfig)], "identity": [self.identity or machine.name],
            "event-log": [str(machine.disk.log)],
            "enable-metrics": ["false"], "enable-healthz": ["false"], "view-address": [""],
        }  # fmt: skip
        if "replicas-address" in self.flags:
            always["replicas-advertise"] = [self.host]
        return parse_options({**always, **self.flags})

    def _again(self, machine: Machine, pause: float | None = None) -> None:
        """Restart it as the kubelet does, after a growing pause."""
        if pause is None:
            pause, self._pause = self._pause, min(2 * self._pause, LONGEST_PAUSE)
        disk = machine.disk.after_crash(self.folder / f"{self.name}-{self.starts + 1}")
        world = self.loop.world.context()
        self.loop.call_later(pause, self.start, disk, context=world)

    # --- what is done to it -------------------------------------------------------------------------------------------

    def kill(self, disk: Disk | None = None, pause: float | None = None) -> None:
        """Kill it as SIGKILL does, and start it again, on a given disk or else on what it wrote."""
        machine = self.machine
        if machine is None or not machine.alive:
            return
        if not machine.asks_as_it_ends:
            self.loop.look_through(machine)
        machine.kill()
        machine.disk.gone = True
        machine.link.closed()
        self.peers.closed(machine, silently=disk is not None)
        if disk is None:
            self._again(machine, pause)
        else:
            self.peers.hosts.discard(self.host)
            self.loop.call_later(pause or FIRST_PAUSE, self.start, disk, context=self.loop.world.context())

    def terminate(self) -> None:
        """End it as SIGTERM does, and start it again."""
        machine = self.machine
        if machine is not None and machine.alive and (handler := machine.signals.get(signal.SIGTERM)):
            if not machine.asks_as_it_ends:
                self.loop.look_through(machine)
            machine.told_to_end = True
            handler()

    def stop_for(self, seconds: float) -> None:
        """Stop it for some seconds, as SIGSTOP and SIGCONT do; if no program runs, stop the next one."""
        machine, stop = self.machine, object()
        if machine is None or not machine.alive:
            self._stopped_until = max(self._stopped_until, self.loop.time() + seconds)
            return
        machine.stops.append(stop)
        self.loop.call_later(seconds, machine.go_on, stop, context=self.loop.world.context())

    def set_wall_ahead(self, seconds: float) -> None:
        """Set its machine's wall clock ahead by some seconds from now on."""
        self.wall_ahead = seconds
        if self.machine is not None:
            self.machine.wall_ahead = seconds

    def set_busy(self, seconds: float) -> None:
        """Make its machine busy: work in threads takes up to this many seconds longer."""
        self.busy = seconds
        if self.machine is not None:
            self.machine.busy = seconds

    def next_disk(self) -> Path:
        """Return the folder of the next incarnation."""
        return self.folder / f"{self.name}-{self.starts + 1}"
