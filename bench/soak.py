"""Growth of memory, metrics, log and open files over days of simulated time: pods, waiting groups, storms of updates.

Run it with ``python -m bench soak``. It is the simulation of ``tests/simulation`` with the production daemon and
without faults. The embedded API server and its controllers run in the same process, so the memory includes them.
"""

from __future__ import annotations

import gc
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from bench.table import Row, row
from tests.e2e.usage import handles, memory

PODS, GANG, NODES, CPUS = 100_000, 10, 60, 64
WAITING = 50_000
"""Groups that wait for an hour of the second day."""
STORM = 60_000
"""Updates of nodes within a minute."""
RUN_SECONDS = "vcd.sim/run-seconds"
"""Annotation with the seconds after which a pod ends."""
DAY = 86_400.0
DAYS = 2
FLAGS = {"log-retention-age": ["6h"]}
AT = (0.5, 1.0, 1.25, 1.5, 1.99)
"""The days of the measurements: before, during and after the waiting groups, and at the end."""


def script(scale: float = 1.0) -> Any:
    """Return the script: gangs until shortly before the end, and on the second day waiting groups, then the storm."""
    from tests.simulation.script import Act, Script

    rng, gangs = random.Random(1), int(PODS * scale) // GANG
    acts = [Act(0.0, "add_node", (f"node-{number}", CPUS)) for number in range(NODES)]
    for number in range(gangs):
        at = 60.0 + (DAYS - 0.1) * DAY * number / gangs
        acts.append(Act(at, "come_and_go", (f"gang-{number}", GANG, round(rng.uniform(30, 600)))))
    acts.append(Act(1.2 * DAY, "wait", (int(WAITING * scale), DAY / 24)))
    acts.append(Act(1.4 * DAY, "report", (int(STORM * scale), 60.0)))
    acts += [Act(day * DAY, "look", (day,)) for day in AT]
    return Script(1, replicas=1, flags=FLAGS, storm=DAYS * DAY, calm=60.0, acts=tuple(acts))


class _Looks:
    """Measures the process at given times."""

    def __init__(self, sim: Any) -> None:
        gc.enable()  # as in the daemon
        sim.loop.most = 10**12
        sim.looks = self
        self.sim = sim
        self.found: dict[float, dict[str, float]] = {}
        sim.store.subscribe(["pods"], self._seen)
        self.bound = 0
        self._compact()

    def _seen(self, event: str, _: str, obj: dict[str, Any]) -> None:
        self.bound += event == "MODIFIED" and obj["status"].get("phase") == "Running"

    def _compact(self) -> None:
        """Compact the store every few minutes, as an API server does, so that its history does not grow."""
        self.sim.store.compact(self.sim.store.version)
        self.sim.loop.call_later(300, self._compact)

    def look(self, day: float) -> None:
        service = self.sim.replicas[0].service
        assert service is not None
        self.found[day] = {
            "pods": self.bound,
            "memory": memory("self") / 2**20,
            "series": sum(not line.startswith(b"#") for line in service.metrics.freeze()().splitlines()),
            "log": sum(each.stat().st_size for each in self.sim.replicas[0].machine.disk.folder.iterdir()) / 2**20,
            "files": handles("self"),
        }

    async def at_rest(self) -> None:
        """Do nothing: the measurements were taken before."""


def _come(sim: Any, name: str, pods: int, cpu: int, annotations: dict[str, str]) -> None:
    from tests.simulation import workload

    workload.submit(sim, name, pods, pods, cpu, {}, {"annotations": annotations})


def _leave(sim: Any, name: str, pods: int) -> None:
    from tests.simulation import workload

    for number in range(pods):
        workload.delete(sim, "pod", "default", f"{name}-{number}")
    workload.delete(sim, "group", "default", name)


def _come_and_go(sim: Any, name: str, pods: int, seconds: int) -> None:
    _come(sim, name, pods, 1, {RUN_SECONDS: str(seconds)})
    sim.loop.call_later(seconds + 120, _leave, sim, name, pods)


def _wait(sim: Any, groups: int, seconds: float) -> None:
    for number in range(groups):
        at, name = 600 * number / groups, f"waits-{number}"
        sim.loop.call_later(at, _come, sim, name, 1, 2 * CPUS, {})
        sim.loop.call_later(seconds + at, _leave, sim, name, 1)


def _report(sim: Any, updates: int, seconds: float) -> None:
    def once(number: int) -> None:
        found = sim.store.get("nodes", None, f"node-{number % NODES}")
        labels = {**found["metadata"].get("labels", {}), "reported": str(number)}
        sim.store.update("nodes", {**found, "metadata": {**found["metadata"], "labels": labels}})

    for number in range(updates):
        sim.loop.call_later(seconds * number / updates, once, number)


def _soaked(scale: float) -> dict[float, dict[str, float]]:
    from tests.simulation import machine

    machine.install()
    from tests.simulation.acts import ACTS
    from tests.simulation.night import silence
    from tests.simulation.simulation import simulate
    from vcd.daemon.concurrency import followup

    silence()
    followup.SLICE = 0.02  # without faults, no other work has to run between two steps
    made: list[_Looks] = []

    def watched(sim: Any) -> _Looks:
        made.append(_Looks(sim))
        return made[0]

    own: dict[str, Callable[..., None]] = {
        "come_and_go": _come_and_go,
        "wait": _wait,
        "report": _report,
        "look": lambda sim, day: sim.looks.look(day),
    }
    outcome = simulate(script(scale), watched, {**ACTS, **own})
    assert not outcome.violations, outcome.violations
    return made[0].found


def run(scale: float = 1.0) -> list[Row]:
    """Run the simulation and return the rows of all measurements."""
    command = [sys.executable, "-m", "bench.soak", str(scale)]
    done = subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": "0"}, stdout=subprocess.PIPE, check=True)
    found = {float(day): look for day, look in json.loads(done.stdout).items()}
    units = {"pods": "pods", "memory": "MiB", "series": "series", "log": "MiB", "files": "files"}
    words = {"pods": "ran so far", "memory": "memory", "series": "metric series", "log": "event log", "files": "open"}
    return [
        row(f"soak, day {day:g}: {words[name]}", look[name], units[name])
        for day, look in sorted(found.items())
        for name in units
    ]


if __name__ == "__main__":
    print(json.dumps(_soaked(float(sys.argv[1]))))  # noqa: T201 - for the parent process
