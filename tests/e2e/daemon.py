"""``python -m tests.e2e.daemon run ...``: the command ``vcd run``, with what a test does to its process.

``E2E_SLOW_PLUGIN`` (seconds) adds the plugin "slow", which holds each session that has pods to place for so long.
``E2E_PAUSES`` (a path) has each pause of the event loop of more than 20 ms written there, as a JSON line.
``E2E_HOUSEKEEPING`` (seconds) is the time between two looks at what no event tells of, for which there is no flag.
``E2E_FILE_LIMIT`` (bytes) is the size beyond which no file can grow, as a full disk.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import resource
import time
from pathlib import Path

import numpy as np

from vcd.cli import main
from vcd.daemon.metrics import Metrics
from vcd.scheduling import registry
from vcd.scheduling.plugin import Plugin
from vcd.scheduling.session import Session


class Slow(Plugin):
    """Takes its time: half of it in Python, which keeps the interpreter's lock, half in numpy on large columns."""

    name = "slow"

    def open(self, session: Session) -> None:
        seconds = float(os.environ["E2E_SLOW_PLUGIN"])
        if all(not job.pending() for job in session.viewed_jobs()):
            return
        half = time.monotonic() + seconds / 2
        count = 0
        while time.monotonic() < half:
            count += sum(range(1000))
        column = np.arange(2_000_000, dtype=np.int64)
        while time.monotonic() < half + seconds / 2:
            column = np.sort(column[::-1]) + count % 2


def _add_slow_plugin() -> None:
    known = {**registry.plugins(), Slow.name: Slow}
    registry.plugins = lambda: known  # type: ignore[assignment]


def _write_pauses(path: Path) -> None:
    observe = Metrics.observe_pause
    file = path.open("a", buffering=1)

    def written(self: Metrics, seconds: float) -> None:
        observe(self, seconds)
        if seconds > 0.02:
            file.write(json.dumps({"at": time.time(), "seconds": seconds}) + "\n")

    Metrics.observe_pause = written  # type: ignore[method-assign]


def _keep_house_each(seconds: float) -> None:
    module = importlib.import_module("vcd.cli.run")
    parse = module.parse_options
    module.parse_options = lambda *given: dataclasses.replace(parse(*given), housekeeping_period=seconds)


if __name__ == "__main__":
    if "E2E_SLOW_PLUGIN" in os.environ:
        _add_slow_plugin()
    if "E2E_PAUSES" in os.environ:
        _write_pauses(Path(os.environ["E2E_PAUSES"]))
    if "E2E_HOUSEKEEPING" in os.environ:
        _keep_house_each(float(os.environ["E2E_HOUSEKEEPING"]))
    if "E2E_FILE_LIMIT" in os.environ:
        limit = int(os.environ["E2E_FILE_LIMIT"])
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    main()
