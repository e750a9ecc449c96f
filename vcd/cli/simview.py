"""The output of ``vcd sim``: lines of progress, and a summary at the end."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from vcd.cli.simulation import Simulation
from vcd.embedded.controllers.controller_base import NODES, PODS, Obj, annotations_of, key_of
from vcd.embedded.controllers.pod_properties import TERMINAL, node_of, phase_of
from vcd.embedded.controllers.podgroup_controller import GROUP_NAME
from vcd.model.wording import span_in_words
from vcd.text.reason_sentences import full_reason_text

_NAMED_OBJECTS = 20
"""Objects that the summary names, at most; ``-o json`` names all."""


class Unplaced(msgspec.Struct, frozen=True):
    """An object that was refused or not placed, and why."""

    name: str
    reason: str


class SimulationSummary(msgspec.Struct, frozen=True):
    """The outcome of a simulation. Seconds are real ones, except ``cluster_seconds``; ``log_bytes`` is the file's
    size.

    ``cpu_seconds`` are the process's: API server, controllers, kubelets and daemon together. ``refused`` are objects
    that the API server rejected, ``unknown`` lists fields of the manifests that vcd does not know. ``waiting`` are
    PodGroups that wait at the end, ``never_bound`` pods that have no node then. ``pods`` and ``pod_groups`` are counted
    by phase, including those that ended and were removed.
    """

    wall_seconds: float
    cpu_seconds: float
    cluster_seconds: float
    nodes: int
    created: int
    sessions: int
    binds: int
    pods: dict[str, int]
    pod_groups: dict[str, int]
    event_log: str
    log_bytes: int
    refused: list[Unplaced]
    waiting: list[Unplaced]
    never_bound: list[Unplaced]
    unknown: list[str] = []

    def closed(self, timing: Timing) -> SimulationSummary:
        """Return the summary after all parts have ended: with the log's final size and the total time."""
        size = size_of(Path(self.event_log))
        return msgspec.structs.replace(
            self, wall_seconds=round(timing.wall(), 3), cpu_seconds=round(timing.cpu(), 3), log_bytes=size
        )

    def lines(self) -> list[str]:
        """Return the summary as text."""
        pods = ", ".join(f"{count:,} {phase}" for phase, count in self.pods.items()) or "none"
        groups = ", ".join(f"{count:,} {phase}" for phase, count in self.pod_groups.items()) or "none"
        simulated = span_in_words(self.cluster_seconds)
        lines = [
            f"time        {self.wall_seconds:.1f} s, {self.cpu_seconds:.1f} s of CPU, for {simulated}",
            f"decided     {self.sessions:,} sessions, {self.binds:,} binds on {self.nodes:,} nodes",
            f"pods        {pods}",
            f"groups      {groups}",
            f"event log   {self.event_log} ({self.log_bytes / 1e6:.1f} MB)",
        ]
        lists = (("refused", self.refused), ("waiting groups", self.waiting), ("never bound", self.never_bound))
        for title, items in lists:
            if items:
                lines.append(f"{title} ({len(items):,}):")
                lines.extend(f"  {item.name}: {item.reason}" for item in items[:_NAMED_OBJECTS])
                lines.extend([f"  ... and {len(items) - _NAMED_OBJECTS:,} more"] if len(items) > _NAMED_OBJECTS else [])
        return lines


class Timing:
    """Real and CPU seconds since its construction."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def wall(self) -> float:
        return time.perf_counter() - self._wall

    def cpu(self) -> float:
        """Return the CPU seconds of the process, all threads."""
        return time.process_time() - self._cpu


def summary(simulation: Simulation, timing: Timing) -> SimulationSummary:
    """Return the outcome of the simulation so far."""
    tally, feeder = simulation.tally, simulation.feeder
    phases = Counter(group.phase or "Pending" for group in tally.groups.values())
    if tally.completed:
        phases["Completed"] = tally.completed
    return SimulationSummary(
        wall_seconds=round(timing.wall(), 3),
        cpu_seconds=round(timing.cpu(), 3),
        cluster_seconds=round(simulation.elapsed, 3),
        nodes=len(simulation.store.list(NODES)),
        created=feeder.created,
        sessions=simulation.sessions,
        binds=tally.binds,
        pods={phase: count for phase, count in sorted({**tally.phases, **tally.ended}.items()) if count},
        pod_groups=dict(sorted(phases.items())),
        event_log=str(simulation.plan.event_log),
        log_bytes=size_of(simulation.plan.event_log),
        refused=[
            *(Unplaced(*each.split(": ", 1)) for each in simulation.plan.refused),
            *(Unplaced(name, message) for name, message in feeder.refused),
        ],
        waiting=_waiting(simulation),
        never_bound=_never_bound(simulation),
        unknown=simulation.plan.unknown,
    )


def size_of(log: Path) -> int:
    """Return the bytes of a log, including its WAL."""
    files = (log, log.with_name(f"{log.name}-wal"))
    return sum(file.stat().st_size for file in files if file.exists())


def _waiting(simulation: Simulation) -> list[Unplaced]:
    """Return the groups that do not run, with their reasons."""
    known = {} if simulation.service is None else simulation.service.state_writer.state.waiting
    groups = ((key, group) for key, group in simulation.tally.groups.items() if group.ready < max(1, group.minimum))
    return [Unplaced(key, _in_words(known[key])) for key, _ in groups if key in known]


def _never_bound(simulation: Simulation) -> list[Unplaced]:
    pods = (pod for pod in simulation.store.list(PODS) if not node_of(pod) and phase_of(pod) not in TERMINAL)
    return [Unplaced("/".join(key_of(pod)), _reason(simulation, pod)) for pod in pods]


def _reason(simulation: Simulation, pod: Obj) -> str:
    """Return why a pod waits, by the scheduler's latest reasons."""
    service, key = simulation.service, "/".join(key_of(pod))
    group = annotations_of(pod).get(GROUP_NAME, "")
    known = (
        () if service is None else service.state_writer.state.waiting.get(f"{pod['metadata']['namespace']}/{group}", ())
    )
    own = [waiting for waiting in known if key in waiting.pods] or known
    return _in_words(own) or "not considered yet"


def _in_words(reasons: Iterable[Any]) -> str:
    return "; ".join(dict.fromkeys(full_reason_text(waiting) for waiting in reasons))


# --- while it runs ----------------------------------------------------------------------------------------------------


def progress(simulation: Simulation) -> str:
    """Return the progress as one line."""
    tally = simulation.tally
    running, ended = tally.phases["Running"], tally.ended.total()
    return (
        f"{span_in_words(simulation.elapsed)}: {simulation.feeder.created:,} objects came; "
        f"pods: {tally.unbound:,} waiting, {running:,} running, {ended:,} ended; "
        f"{tally.binds:,} binds in {simulation.sessions:,} sessions"
    )
