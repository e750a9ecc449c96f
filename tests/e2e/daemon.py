"""``python -m tests.e2e.daemon run ...``: the command ``vcd run``, with what a test does to its process.

``E2E_SLOW_PLUGIN`` (seconds) has the plugin gang hold each session that knows of a group for so long.
``E2E_PAUSES`` (a path) has each pause of the event loop of more than 20 ms written there, as a JSON line,
with the part of it in which the process wanted to go on and other processes had the machine.
``E2E_HOUSEKEEPING`` (seconds) is the time between two looks at what no event tells of, for which there is no flag.
``E2E_SILENCE`` (seconds) is after how long a silent watch is begun anew.
``E2E_WALL_AHEAD`` (a path) holds the seconds that the wall clock is ahead of the machine's, at each look.
``E2E_LOOKUP`` (seconds) is for how long a call that was done may not show in the watch.
``E2E_SHOWS`` (seconds) is the time between two sweeps over pods that have no group, and how long a group that was made
may not show in the watch.
``E2E_ASKED`` (seconds) is after how long a waiting group is asked about again, and told other figures.
``E2E_JOB_LISTS`` (seconds) is the time between two lists of Volcano Jobs.
``E2E_WIRE`` (a number) is the version of what replicas say to each other.
``E2E_ARCHIVE`` (seconds) is after how long a store that says nothing is given up, and a restore after twice that.
``E2E_UNFORKED`` has it be a process that began by itself, with its own command line and seed of hashes.
``E2E_FILE_LIMIT`` (bytes) is the size beyond which no file can grow, as a full disk.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import json
import os
import resource
import time
from pathlib import Path

import numpy as np

from vcd.cli import main
from vcd.daemon.controllers import podgroup_creator
from vcd.daemon.faults import unstarted_jobs
from vcd.daemon.metrics.metrics_collector import Metrics
from vcd.daemon.persistence import archiver
from vcd.daemon.replicas import replica_protocol
from vcd.daemon.reporting import verdicts
from vcd.daemon.watching import outcome_resolver
from vcd.kube.clock import SystemClock
from vcd.kube.watcher import Watcher
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.framework.registry import plugins
from vcd.scheduling.session.session import Session


def _hold(seconds: float) -> None:
    """Compute for so long: half in Python, which keeps the interpreter's lock, half in numpy on a large column."""
    began = time.monotonic()
    count = 0
    while time.monotonic() < began + seconds / 2:
        count += sum(range(1000))
    column = np.arange(2_000_000, dtype=np.int64)
    while time.monotonic() < began + seconds:
        column = np.sort(column[::-1]) + count % 2


def _slow_down(plugin: type[Plugin], seconds: float) -> None:
    opened = plugin.open

    def slowly(self: Plugin, session: Session) -> None:
        if session.jobs.keys:
            _hold(seconds)
        opened(self, session)

    plugin.open = slowly  # type: ignore[method-assign]


def _write_pauses(path: Path) -> None:
    observe = Metrics.observe_pause
    file = path.open("a", buffering=1)
    before = [_waited_for_cpu()]

    def written(self: Metrics, seconds: float) -> None:
        observe(self, seconds)
        waited, before[0] = _waited_for_cpu() - before[0], _waited_for_cpu()
        if seconds > 0.02:
            file.write(json.dumps({"at": time.time(), "seconds": seconds, "waited": waited}) + "\n")

    Metrics.observe_pause = written  # type: ignore[method-assign]


def _waited_for_cpu() -> float:
    """Seconds that this process's threads were ready and had no CPU, because other processes had them all."""
    waited = 0
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread may end meanwhile
            waited += int((task / "schedstat").read_text().split()[1])
    return waited / 1e9


def _notice_silence_after(seconds: float) -> None:
    defaults = Watcher.__init__.__kwdefaults__
    assert defaults is not None
    defaults["idle_timeout"] = seconds


def _wall_ahead(path: Path) -> None:
    wall = SystemClock.wall
    SystemClock.wall = lambda self: wall(self) + round(float(path.read_text()) * 1e9)  # type: ignore[method-assign]


def _look_again_after(seconds: float) -> None:
    outcome_resolver.PATIENCE = seconds


def _sweep_after(seconds: float) -> None:
    podgroup_creator._SHOWS = podgroup_creator._SWEEP = seconds


def _list_jobs_each(seconds: float) -> None:
    unstarted_jobs.PERIOD = seconds


def _ask_again_after(seconds: float) -> None:
    verdicts.REPEAT_DELAY = verdicts.QUANTITIES_DELAY = seconds


def _give_a_store_up_after(seconds: float) -> None:
    archiver.SILENCE = archiver.SHIPPING_SILENCE = seconds
    archiver.LONGEST = 2 * seconds


def _keep_house_each(seconds: float) -> None:
    module = importlib.import_module("vcd.cli.run")
    parse = module.parse_options
    module.parse_options = lambda *given: dataclasses.replace(parse(*given), housekeeping_period=seconds)


def run() -> None:
    """The command, by this process's arguments and environment."""
    if "E2E_SLOW_PLUGIN" in os.environ:
        _slow_down(plugins()["gang"], float(os.environ["E2E_SLOW_PLUGIN"]))
    if "E2E_PAUSES" in os.environ:
        _write_pauses(Path(os.environ["E2E_PAUSES"]))
    if "E2E_HOUSEKEEPING" in os.environ:
        _keep_house_each(float(os.environ["E2E_HOUSEKEEPING"]))
    if "E2E_SILENCE" in os.environ:
        _notice_silence_after(float(os.environ["E2E_SILENCE"]))
    if "E2E_WALL_AHEAD" in os.environ:
        _wall_ahead(Path(os.environ["E2E_WALL_AHEAD"]))
    if "E2E_LOOKUP" in os.environ:
        _look_again_after(float(os.environ["E2E_LOOKUP"]))
    if "E2E_SHOWS" in os.environ:
        _sweep_after(float(os.environ["E2E_SHOWS"]))
    if "E2E_ASKED" in os.environ:
        _ask_again_after(float(os.environ["E2E_ASKED"]))
    if "E2E_JOB_LISTS" in os.environ:
        _list_jobs_each(float(os.environ["E2E_JOB_LISTS"]))
    if "E2E_WIRE" in os.environ:
        replica_protocol.VERSION = int(os.environ["E2E_WIRE"])
    if "E2E_ARCHIVE" in os.environ:
        _give_a_store_up_after(float(os.environ["E2E_ARCHIVE"]))
    if "E2E_FILE_LIMIT" in os.environ:
        limit = int(os.environ["E2E_FILE_LIMIT"])
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    main()


if __name__ == "__main__":
    run()
