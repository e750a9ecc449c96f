"""The cost of queries for the live cycle: ``python -m bench explain`` or ``python -m bench.explain [--seconds N]``.

bench/asking.py measures single queries; this benchmark measures their effect on a daemon.

A daemon schedules 1,000 nodes of an embedded cluster with a constant rate of gangs, under three conditions: alone;
while another process continuously queries the daemon's log (``vcd explain`` of jobs, sessions, queues and the order,
and the overview of ``vcd view``); and while that process queries a copy of the log. The copy separates the effect of
the log from that of any busy process. The conditions alternate, so that a drift cancels out.

The cycle is measured by the daemon: from the snapshot through decide and verify until the session is in the log, for
sessions that bind one gang. Its wall time includes waits for a processor, which depend on the machine; the wait of the
deciding thread, as counted by the kernel, is printed separately. CPU times include no waits: of the deciding thread per
session, and of the daemon per gang. A delayed daemon decides on more gangs at once, so the latter can decrease.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import itertools
import json
import multiprocessing
import random
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from bench.clusters import Manifest, gang, nodes, queues
from bench.table import Row, row, show

NODES, QUEUES, GANG = 1000, 4, 10
RATE = 4.0
"""Gangs that arrive per second, and that end per second."""
KEPT = 40
"""Gangs that run at any time."""
SECONDS, ROUNDS = 108.0, 6
"""Measured seconds in total, and rounds; a round has one slice of each condition."""
SETTLE = 0.5
"""Seconds after a change of the condition before the measurement continues."""
GOAL = 5.0
ORDER = ALONE, COPY, ASKED = "alone", "a copy asked", "asked"


class Decided(NamedTuple):
    """A session: the monotonic time of its end, its seconds, the CPU seconds and the seconds of waiting for a processor
    of the deciding thread, the daemon's CPU seconds so far, and the number of bound pods."""

    at: float
    seconds: float
    cpu: float
    waited: float
    daemon: float
    binds: int


class Spent(NamedTuple):
    """The daemon's sessions, and for each append to the log its monotonic time and duration in seconds."""

    sessions: list[Decided]
    appends: list[tuple[float, float]]


@dataclass(frozen=True)
class Slice:
    """A measured interval (monotonic times), the number of answered queries, and the size of the WAL at its end."""

    condition: str
    began: float
    ended: float
    answered: int
    wal: int


# --- the cluster ------------------------------------------------------------------------------------------------------


def cluster(pipe: Connection) -> None:
    """Run the API server's process: send its address, and submit and delete gangs between the first two messages."""
    asyncio.run(_serve(pipe))


async def _serve(pipe: Connection) -> None:
    from vcd.embedded.api_server import ApiServer
    from vcd.embedded.cluster_clock import ClusterClock
    from vcd.embedded.embedded_cluster import EmbeddedCluster
    from vcd.embedded.store import Store

    clock = ClusterClock()
    store = Store(clock.now, random.Random(0))
    server = ApiServer(store)
    for namespace in ("volcano-system", "bench"):
        store.create("namespaces", {"metadata": {"name": namespace}})
    for queue in queues(QUEUES):
        store.create("queues.scheduling.volcano.sh", queue)
    for node in nodes(NODES):
        store.create("nodes", node)
    async with EmbeddedCluster(store, clock):
        await server.start()
        pipe.send(server.url)
        await asyncio.to_thread(pipe.recv)
        stream = asyncio.create_task(_stream(store))
        stopped = asyncio.create_task(asyncio.to_thread(pipe.recv))
        await asyncio.wait([stream, stopped], return_when=asyncio.FIRST_COMPLETED)
        if stream.done():
            stream.result()
        stream.cancel()
    await server.stop()


async def _stream(store: Any) -> None:
    """Submit gangs until cancelled. The first one waits for ever, because it fits on no node."""
    large = {"containers": [{"name": "c", "image": "pause", "resources": {"requests": {"cpu": "64"}}}]}
    _create(store, gang(0, GANG, "q0", spec=lambda _: large))
    due, number = time.monotonic(), 0
    while True:
        number += 1
        _create(store, gang(number, GANG, f"q{number % QUEUES}"))
        if number > KEPT:
            for obj in gang(number - KEPT, GANG, ""):
                store.delete(_resource(obj), "bench", obj["metadata"]["name"])
        due += 1 / RATE
        await asyncio.sleep(due - time.monotonic())


def _create(store: Any, objects: Iterator[Manifest]) -> None:
    for obj in objects:
        store.create(_resource(obj), {key: value for key, value in obj.items() if key != "status"})


def _resource(obj: Manifest) -> str:
    return "pods" if obj["kind"] == "Pod" else "podgroups.scheduling.volcano.sh"


# --- the daemon -------------------------------------------------------------------------------------------------------


def scheduler(pipe: Connection, url: str, log: Path) -> None:
    """Run the daemon's process: report when it is ready, run until a message arrives, and send the measurements."""
    asyncio.run(_schedule(pipe, url, log))


async def _schedule(pipe: Connection, url: str, log: Path) -> None:
    from vcd.daemon import structured_logging
    from vcd.daemon.options import Options
    from vcd.daemon.process import open_service

    structured_logging.configure(verbosity=-1)
    options = Options(event_log=log, master=url, enable_metrics=False, enable_healthz=False, leader_elect=False)
    stop = asyncio.Event()
    async with open_service(options) as service:
        spent = _watched(service)
        running = asyncio.create_task(service.run(stop))
        await service.watches.wait_synced()
        pipe.send("ready")
        told = asyncio.create_task(asyncio.to_thread(pipe.recv))
        await asyncio.wait([running, told], return_when=asyncio.FIRST_COMPLETED)
        stop.set()
        await running
    pipe.send(spent)


def _watched(service: Any) -> Spent:
    """Measure a daemon: wrap the functions that receive its own measurements."""
    spent, cycle = Spent([], []), service.cycle
    decide, handover, appended = cycle._decide, cycle.handover, service.state_writer._on_append
    cost = (0.0, 0.0)

    def decided(*given: Any) -> Any:
        nonlocal cost
        cpu, waited = time.thread_time(), _waited()
        found = decide(*given)
        cost = time.thread_time() - cpu, _waited() - waited
        return found

    def handed_over(record: Any, plan: Any, session: Any, durations: dict[str, float]) -> None:
        if record is not None:
            binds = sum(one.verb == "bind" for statement in plan.statements for one in statement.operations)
            now, seconds = time.monotonic(), durations["total"]
            spent.sessions.append(Decided(now, seconds, *cost, time.process_time(), binds))
        handover(record, plan, session, durations)

    def was_appended(seconds: float) -> None:
        spent.appends.append((time.monotonic(), seconds))
        appended(seconds)

    cycle._decide, cycle.handover, service.state_writer._on_append = decided, handed_over, was_appended
    return spent


def _waited() -> float:
    """Return the seconds in which this thread was ready to run without a processor, since its start."""
    return int(Path("/proc/thread-self/schedstat").read_text(encoding="ascii").split()[1]) / 1e9


# --- queries ----------------------------------------------------------------------------------------------------------


def asker(pipe: Connection) -> None:
    """Run the process that queries: for each received log, query it until the next message and send the number of
    answers. None ends the process."""
    while (log := pipe.recv()) is not None:
        with _page(log) as page:
            pipe.send("ready")
            answered = 0
            questions = _questions(log, page)
            while not pipe.poll():
                answered += bool(next(questions))
            pipe.recv()
            pipe.send(answered)


def _questions(log: Path, page: HTTPConnection) -> Iterator[str]:
    """Send queries one after the other, without end; yield the answers."""
    for number in itertools.count():
        overview = _overview(page)
        yield overview
        jobs = [job["key"] for job in json.loads(overview)["jobs"]]
        yield _explained(log, "job", jobs[0])  # it waits for ever
        yield _explained(log, "job", jobs[-1])  # the newest
        yield _explained(log, "session", "last")
        yield _explained(log, "queue", f"q{number % QUEUES}")
        yield _explained(log, "order")


def _explained(log: Path, *asked: str) -> str:
    """Return the output of ``vcd explain``, called in this process to save the start of Python."""
    from vcd.cli.explain import explain

    with contextlib.redirect_stdout(io.StringIO()) as told:
        explain.main([*asked, "--event-log", str(log)], standalone_mode=False)
    return told.getvalue()


@contextmanager
def _page(log: Path) -> Iterator[HTTPConnection]:
    """Run ``vcd view`` for a log, and yield a connection to it."""
    command = [sys.executable, "-m", "vcd", "view", "--event-log", str(log), "--address", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as view:
        assert view.stdout is not None
        try:
            url = view.stdout.readline().strip()
            if not url:
                raise RuntimeError(f"{' '.join(command)} ended with {view.wait()}")
            with closing(HTTPConnection(urlsplit(url).netloc)) as connection:
                yield connection
        finally:
            view.terminate()


def _overview(page: HTTPConnection) -> str:
    page.request("GET", "/api/overview")
    response = page.getresponse()
    text = response.read().decode()
    if response.status != 200:
        raise RuntimeError(f"/api/overview: {response.status} {text}")
    return text


# --- measurement ------------------------------------------------------------------------------------------------------


def run(seconds: float = SECONDS) -> list[Row]:
    """Measure for so many seconds and return the rows."""
    with tempfile.TemporaryDirectory() as folder:
        slices, spent = measured(Path(folder), seconds / (3 * ROUNDS))
    return rows_of(slices, spent)


def measured(folder: Path, seconds: float) -> tuple[list[Slice], Spent]:
    """Measure slices of so many seconds each; return them and the daemon's measurements."""
    log, slices = folder / "log.sqlite", list[Slice]()
    with _started(cluster) as server, _started(asker) as asking:
        with _started(scheduler, server.recv(), log) as daemon:
            daemon.recv()
            server.send("go")
            time.sleep(KEPT / RATE)
            for number in range(ROUNDS):
                for condition in ORDER if number % 2 == 0 else reversed(ORDER):
                    if server.poll() or daemon.poll() or asking.poll():
                        raise RuntimeError("the cluster, the daemon or who asks ended; see above")
                    slices.append(_slice(condition, log, asking, seconds))
            daemon.send("stop")
            spent = daemon.recv()
        server.send("stop")
        asking.send(None)
    return slices, spent


def _slice(condition: str, log: Path, asking: Connection, seconds: float) -> Slice:
    about, answered = log, 0
    if condition == COPY:
        about = log.with_name(f"copy-{time.monotonic_ns()}.sqlite")
        with closing(sqlite3.connect(log)) as source, closing(sqlite3.connect(about)) as target:
            source.backup(target)
    if condition != ALONE:
        asking.send(about)
        asking.recv()
    time.sleep(SETTLE)
    began = time.monotonic()
    time.sleep(seconds)
    ended, wal = time.monotonic(), log.with_name(f"{log.name}-wal").stat().st_size
    if condition != ALONE:
        asking.send("stop")
        answered = asking.recv()
    return Slice(condition, began, ended, answered, wal)


@contextmanager
def _started(work: Callable[..., None], *given: Any) -> Iterator[Connection]:
    """Run ``work`` in a process that ends with the context; yield the pipe to it."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=work, args=(theirs, *given))
    process.start()
    theirs.close()  # so that reading from a process that died raises an error
    try:
        yield ours
        process.join(30)
    finally:
        if process.is_alive():
            process.terminate()
            process.join()
        ours.close()


# --- results ----------------------------------------------------------------------------------------------------------

Figure = Callable[[Spent, list[Slice]], float]


def rows_of(slices: list[Slice], spent: Spent) -> list[Row]:
    """Return each result under each condition, and its increase against the daemon alone."""
    rows = [row(f"explain, {NODES:,} nodes, {RATE:g} gangs of {GANG} a second", None, "")]
    for name, figure, goal in (
        ("cycle, median", _of_sessions(statistics.median, _wall), GOAL),
        ("cycle, mean", _of_sessions(statistics.fmean, _wall), GOAL),
        ("CPU of the thread that decides, median", _of_sessions(statistics.median, _cpu), GOAL),
        ("CPU of the thread that decides, mean", _of_sessions(statistics.fmean, _cpu), GOAL),
        ("wait of that thread for a processor, mean", _of_sessions(statistics.fmean, _wait), None),
        ("CPU of the daemon for a gang", _daemon, None),
        ("append to the log, median", _append, None),
    ):
        rows += _compared(name, figure, goal, slices, spent)
    for condition in ORDER:
        of = _in(condition, slices)
        rows.append(row(f"  {condition}: sessions that bound one gang", len(_same(spent, of)), ""))
        rows.append(row(f"  {condition}: questions answered", sum(one.answered for one in of), ""))
    rows.append(row("  write-ahead log at most", max(one.wal for one in slices) / 2**20, "MiB"))
    return rows


def _in(condition: str, slices: list[Slice]) -> list[Slice]:
    return [one for one in slices if one.condition == condition]


def _compared(name: str, figure: Figure, goal: float | None, slices: list[Slice], spent: Spent) -> Iterator[Row]:
    values = {condition: figure(spent, _in(condition, slices)) for condition in ORDER}
    for condition in ORDER:
        yield row(f"  {name}: {condition}", values[condition], "ms")
    if goal is None:
        return
    yield row(f"    {ASKED}, more than {ALONE}", _more(values[ALONE], values[ASKED]), "%", goal=goal)
    yield row(f"    {ASKED}, more than {COPY}", _more(values[COPY], values[ASKED]), "%")
    rounds = [slices[i : i + len(ORDER)] for i in range(0, len(slices), len(ORDER))]
    single = sorted(_more(figure(spent, _in(ALONE, one)), figure(spent, _in(ASKED, one))) for one in rounds)
    yield row(f"    {ASKED}, more than {ALONE}, in single rounds", f"{single[0]:.0f} to {single[-1]:.0f}", "%")


def _more(before: float, after: float) -> float:
    return 100 * (after / before - 1)


def _same(spent: Spent, slices: list[Slice]) -> list[Decided]:
    """Return the sessions that bound one gang. Raises RuntimeError if a slice has none."""
    found = []
    for one in slices:
        bound = [session for session in _within(spent, one) if session.binds == GANG]
        if not bound:
            raise RuntimeError("no session bound one gang in a slice; give it more --seconds")
        found += bound
    return found


def _within(spent: Spent, one: Slice) -> list[Decided]:
    return [session for session in spent.sessions if one.began <= session.at < one.ended]


def _of_sessions(average: Callable[[Iterable[float]], float], seconds: Callable[[Decided], float]) -> Figure:
    return lambda spent, slices: 1000 * average([seconds(one) for one in _same(spent, slices)])


def _wall(session: Decided) -> float:
    return session.seconds


def _cpu(session: Decided) -> float:
    return session.cpu


def _wait(session: Decided) -> float:
    return session.waited


def _daemon(spent: Spent, slices: list[Slice]) -> float:
    """Return the daemon's CPU time per gang, between the first and the last session of each slice."""
    cpu, binds = 0.0, 0
    for one in slices:
        sessions = _within(spent, one)
        cpu += sessions[-1].daemon - sessions[0].daemon
        binds += sum(session.binds for session in sessions[1:])
    return 1000 * cpu * GANG / binds


def _append(spent: Spent, slices: list[Slice]) -> float:
    took = [seconds for one in slices for at, seconds in spent.appends if one.began <= at < one.ended]
    return 1000 * statistics.median(took)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"to measure in all, {SECONDS:g} by default")
    given = parser.parse_args()
    show(run(given.seconds))


if __name__ == "__main__":
    main()
