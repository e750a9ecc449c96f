"""Under which configurations replicas of one log decide, one term after another."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.simulation.invariants.decisions import Decisions
from tests.simulation.replica import Machine
from vcd.daemon.service import SchedulerService
from vcd.model import events as ev
from vcd.scheduling.configuration import read_policy

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

LATE = 5.0
"""Seconds after which nobody who takes the lead has the file from before."""


class Configurations:
    """Looks at the first session of each term. A file that said something bad is a matter of tests of its own."""

    def __init__(self, sim: Simulation, decisions: Decisions) -> None:
        self._sim = sim
        self._file: Path | None = getattr(sim, "conf_path", None)
        self._text = ""
        """What the file said last."""
        self._said: list[tuple[float, str]] = []
        """The digests of what the file said, as of each session, and since when, in order."""
        self._used = 0
        """Which of them was decided by last."""
        self._epoch = -1
        if not any(act.what == "misconfigure" for act in sim.script.acts):
            decisions.looks.append(self._decided)

    def _decided(self, machine: Machine, service: SchedulerService, event: ev.SessionDecided) -> None:
        if service.replica is None or self._file is None or not self._file.exists():
            return
        if event.epoch < self._epoch:
            return  # it does not know yet that another leads
        self._look(self._file)
        last = max((at for at, (_, digest) in enumerate(self._said) if digest == event.policy), default=self._used)
        if event.epoch > self._epoch and last < self._used:
            since = self._said[last + 1][0]
            if since < self._sim.loop.time() - LATE:
                what = f"{machine.name} decides by a configuration that was given up at {since:.3f} s"
                self._sim.violated("configurations go on", what)
        self._epoch, self._used = event.epoch, max(self._used, last)

    def _look(self, file: Path) -> None:
        text = file.read_text()
        if text == self._text:
            return
        self._text, digest = text, read_policy(text).digest
        if not self._said or self._said[-1][1] != digest:
            self._said.append((self._sim.loop.time(), digest))
