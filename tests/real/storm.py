"""Replicas under load at a real API server while their network, their server and their processes fail, in real time.

One seed draws what fails and what users do. Real time is not drawn: the same seed has the same mix of faults, not the
same run. ``VCD_STORM_SECONDS`` and ``VCD_STORM_SEED`` say how long and which.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from tests.e2e.cluster import LEASES, Daemon, Obj, Wire
from tests.e2e.usage import handles, memory
from tests.real.cluster import RealCluster
from tests.real.controlplane import kubeconfig
from tests.real.faultproxy import FaultProxy
from tests.real.stormlaws import Audit, Truth
from tests.real.stormload import CONF, PACE, Load
from tests.real.stormlogs import Intents
from tests.real.stormrest import left
from tests.real.stormtenants import GATED, GATES, Tenants
from tests.real.webhook import DENIES, Webhook

SECONDS = float(os.environ.get("VCD_STORM_SECONDS", "600"))
SEED = int(os.environ.get("VCD_STORM_SEED", "1"))
LEASE, RENEW, RETRY, REQUEST = 6.0, 3.0, 0.4, 1.2
RETENTION = 16 << 20
LOG, AHEAD = 2 * RETENTION, 64 << 20
"""Bytes of a log's limit, of its file at any time, which replicas that often begin anew look at seldom, and of its
write-ahead log, which SQLite bounds."""
FLAGS = (
    f"--leader-elect-lease-duration={LEASE:g}s", f"--leader-elect-renew-deadline={RENEW:g}s",
    f"--leader-elect-retry-period={RETRY * 1000:g}ms", f"--request-timeout={REQUEST * 1000:g}ms",
    f"--log-retention-size={RETENTION}",
)  # fmt: skip
"""Between the end of a leader's last request and the next leader there are almost two seconds: what a machine that
stands still may take from the time between a request's leaving and its coming to the server."""
LONGER = LEASE + 2
"""Seconds that a process stands still, or is cut off: beyond the lease."""
JUDGED = 10.0
"""Seconds between two looks at who wrote what."""
ENDS = 60.0
"""Seconds that a process may take to end when told to, while its server fails."""
HANDLES = 256
"""What a replica may have open at any time: 64 writes at once, as many idle connections, watches, its log's files."""
HANDLES_AT_REST = 160
MEMORY = 768 << 20
"""Bytes of a replica's memory at any time."""
Act = Callable[[str], Coroutine[Any, Any, None]]
"""Something that goes wrong with the replica of a name, until it is over."""


class Storm(RealCluster):
    """The cluster, its users, and what goes wrong. ``seed`` decides what is drawn."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.one_log = self.chance.random() < 0.5
        self.components = ("queue-gates", "one-log") if self.one_log else ("queue-gates",)
        super().__init__(folder)
        self.names = ["a", "b", "c"][: self.chance.choice([2, 3, 3])]
        self.proxies: dict[str, FaultProxy] = {}
        self.intents = {name: Intents() for name in self.names}
        self.replicas: dict[str, Daemon] = {}
        """By name, the process that is now."""
        self.done: Counter[str] = Counter()
        self.peaks: Counter[str] = Counter()
        self.truth, self.audit = Truth(), Audit(self.plane.audit)
        self.load = Load(self.plane.api, random.Random(f"{seed} load"))
        self.store.subscribe(["pods"], self.truth.see)
        self.store.subscribe(["pods"], self.load.see)
        self.tenants = Tenants(self.plane.api, random.Random(f"{seed} tenants"))
        self.store.subscribe(["pods"], self.tenants.see)
        self._webhook = Webhook(self.plane, DENIES, *GATES, namespace=GATED)
        self._began = time.monotonic()
        self._busy: set[str] = set()
        self._judged = self._known = 0
        """How many writes were judged, and were there when that was done."""
        self._judge_at = 0.0
        self._incarnations = count(1)
        (folder / "scheduler.conf").write_text(CONF)

    def _note(self, event: str, _: str, obj: Obj) -> None:
        """Nothing: the truth is told, which asks no server for what it knows."""

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        await self._stack.enter_async_context(self._webhook)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await super().__aexit__(kind, error, trace)
        finally:
            await self.tenants.leave()
            for proxy in self.proxies.values():
                await proxy.stop()

    def check_laws(self) -> None:
        """Those of a storm are checked by its test, at their time."""

    # --- replicas -----------------------------------------------------------------------------------------------------

    async def _credentials(self, name: str, number: int) -> tuple[Wire, Path]:
        proxy = self.proxies.get(name)
        if proxy is None:
            serving = self.plane.authority.issue(f"proxy-{name}")
            authority = self.plane.authority.certificate
            proxy = FaultProxy(self.plane.url, authority, serving, random.Random(f"{self.seed} {name}"))
            await proxy.start()
            self.proxies[name] = proxy
        path = self.folder / f"{number}-{name}.kubeconfig"
        user = {"token": await asyncio.to_thread(self.token, name)}
        path.write_text(yaml.safe_dump(kubeconfig(proxy.url, self.plane.authority.certificate, user)))
        return proxy, path  # type: ignore[return-value]

    async def begin(self, name: str) -> None:
        """Start a replica, or start it again on its log."""
        conf = f"--scheduler-conf={self.folder / 'scheduler.conf'}"
        identity = f"--identity={name}-{next(self._incarnations)}"
        shared = await asyncio.to_thread(self._shared, name) if self.one_log else []
        self.replicas[name] = await self.start(name, conf, identity, *FLAGS, *shared, short=False)

    def _shared(self, name: str) -> list[str]:
        """The flags of a replica that has one log with the others."""
        path = self.folder / f"token-of-{name}"
        path.write_text(self.token(name, "vcd"))
        return ["--replicas-address=127.0.0.1:0", "--replicas-advertise=127.0.0.1", f"--replicas-token-file={path}"]

    def leading(self) -> str:
        """The name of the replica that holds the Lease; empty for none that runs."""
        holder = (self.lease() or {}).get("holderIdentity") or ""
        return holder.partition("-")[0] if holder else ""

    # --- what goes wrong ----------------------------------------------------------------------------------------------

    async def kill(self, name: str) -> None:
        """As power loss does; the same log goes on."""
        await self.replicas[name].kill()
        await self.begin(name)

    async def pause(self, name: str) -> None:
        """A process that stands still beyond its lease."""
        self.replicas[name].signal(signal.SIGSTOP)
        await asyncio.sleep(LONGER)
        self.replicas[name].signal(signal.SIGCONT)

    async def terminate(self, name: str) -> None:
        """A rolling update's way."""
        self.replicas[name].signal(signal.SIGTERM)
        code = await self.replicas[name].ended()
        assert code == 0, f"{self.where()}: {name} was told to end and ended with {code}"
        await self.begin(name)

    async def part_up(self, name: str) -> None:
        """Its requests get nowhere."""
        await self._parted(name, up=True)

    async def part_down(self, name: str) -> None:
        """Its requests are carried out, and no answer comes."""
        await self._parted(name, down=True)

    async def part_both(self, name: str) -> None:
        """Nothing gets through."""
        await self._parted(name, up=True, down=True)

    async def _parted(self, name: str, *, up: bool = False, down: bool = False) -> None:
        self.proxies[name].part(up=up, down=down)
        await asyncio.sleep(LONGER)
        self.proxies[name].join()

    async def refuse(self, name: str) -> None:
        """Nobody listens for a while, as when a server is restarted."""
        await self.proxies[name].refuse()
        await asyncio.sleep(self.chance.uniform(0.2, 4))
        await self.proxies[name].listen()

    def _drawn(self) -> list[Act]:
        """All that goes wrong with a replica as a whole, in an order of chance."""
        acts = [self.kill, self.pause, self.terminate, self.part_up, self.part_down, self.part_both, self.refuse]
        self.chance.shuffle(acts)
        return acts

    async def rage(self, seconds: float) -> None:
        """Have users come and go, and let all go wrong, for so long: each act once a minute, and once at least."""
        self._began = time.monotonic()
        for proxy in self.proxies.values():
            proxy.begin()
        acts = [act for _ in range(max(1, round(seconds / 60))) for act in self._drawn()]
        between, due = seconds / len(acts), self._began
        under_way = [asyncio.create_task(self.tenants.run(self._began + seconds))]
        try:
            while time.monotonic() < self._began + seconds or acts:
                free = [name for name in self.names if name not in self._busy]
                if acts and free and time.monotonic() >= due:
                    due += between
                    await self.load.burst()
                    under_way.append(asyncio.create_task(self._act(acts.pop(), await self._victim(free))))
                for ended in filter(asyncio.Task.done, under_way):
                    ended.result()
                await self.load.look(more=True)
                await self.watch()
                await asyncio.sleep(PACE)
            await asyncio.gather(*under_way)
        finally:
            for task in under_way:
                task.cancel()
        for proxy in self.proxies.values():
            proxy.heal()

    async def _victim(self, free: list[str]) -> str:
        """Who leads more often than not; nothing else happens to it meanwhile."""
        leading = await asyncio.to_thread(self.leading)
        name = leading if leading in free and self.chance.random() < 0.7 else self.chance.choice(free)
        self._busy.add(name)
        return name

    async def _act(self, act: Act, name: str) -> None:
        await act(name)
        self.done[act.__name__] += 1
        self._busy.discard(name)

    # --- what holds all the while -------------------------------------------------------------------------------------

    def where(self) -> str:
        """Which storm this is, and how far."""
        return f"storm of VCD_STORM_SEED={self.seed} after {time.monotonic() - self._began:.1f} s"

    async def watch(self) -> None:
        """Fail once something is as it must not be."""
        self.truth.check_queue({name: gang.queue for name, gang in self.load.gangs.items()})
        await asyncio.to_thread(self.audit.read)
        for name in self.names:
            if name not in self._busy:
                self._check_process(name)
        assert not any(task.done() for task in self._tasks), f"{self.where()}: the pods are not watched any more"
        self.fail_on(self.truth.broken + self.tenants.broken)
        if time.monotonic() > self._judge_at:
            # what was there the last time: what is newer may still wait for the line that tells who led by then
            self.fail_on(list(self.audit.broken(self._judged, self._known)))
            self._judged, self._known = self._known, len(self.audit.writes)
            for name, daemon in self.replicas.items():
                await asyncio.to_thread(self.intents[name].look, daemon.log, self.tenants.probes)
            self._judge_at = time.monotonic() + JUDGED

    def fail_on(self, broken: list[str]) -> None:
        """Fail if anything is broken, and say when and in which storm."""
        assert not broken, "\n".join([f"{self.where()}: {len(broken)} times", *broken[:20]])

    def _check_process(self, name: str) -> None:
        process = self.replicas[name].process
        code = process.poll()
        assert code is None, f"{self.where()}: {name} ended by itself with {code}, see {self.replicas[name].output}"
        amounts = (
            ("handles", HANDLES, handles(process.pid)),
            ("memory", MEMORY, memory(process.pid)),
            ("log", LOG, size_of(self.replicas[name].log)),
            ("write-ahead log", AHEAD, size_of(Path(f"{self.replicas[name].log}-wal"))),
        )
        for what, most, found in amounts:
            self.peaks[what] = max(self.peaks[what], found)
            assert found <= most, f"{self.where()}: {name} has {found} {what}, more than {most}"

    # --- rest ---------------------------------------------------------------------------------------------------------

    async def rest(self, limit: float) -> float:
        """Wait until nothing is left to do; the seconds that it took. Fails after ``limit`` and says what is left."""
        began = time.monotonic()
        await self.load.keep()
        written, since = -1, time.monotonic()
        while undone := [*await asyncio.to_thread(list, left(self)), *self._stirs(written, since)]:
            assert time.monotonic() - began < limit, f"{self.where()}: no rest within {limit:g} s: {undone}"
            await self.load.look(more=False)
            await self.watch()
            if (now := self._written()) != written:
                written, since = now, time.monotonic()
            await asyncio.sleep(PACE)
        return time.monotonic() - began

    def _written(self) -> int:
        """How much replicas wrote beside the Lease."""
        return len(self.audit.beside(LEASES))

    def _stirs(self, written: int, since: float) -> Iterator[str]:
        if self._written() != written or time.monotonic() - since < 3:
            yield f"replicas still write: {[str(write) for write in self.audit.beside(LEASES)[-3:]]}"


def size_of(path: Path) -> int:
    """Bytes of a file; 0 while it is not there, as when another log takes its place."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
