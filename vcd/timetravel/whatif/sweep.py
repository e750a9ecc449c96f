"""Many what-ifs at once: over configurations and seeds, on this machine's processors or an engine's workers."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from vcd.eventlog import LogError, LogReader
from vcd.timetravel.parallel import kept_from_ctrl_c, processes, processors
from vcd.timetravel.whatif.cluster import PERIOD
from vcd.timetravel.whatif.compare import BASELINE, Run, Variant, policy_of, recorded, simulated
from vcd.timetravel.whatif.edits import edited
from vcd.timetravel.whatif.fidelity import Fidelity, fidelity
from vcd.timetravel.whatif.lives import workload_of
from vcd.timetravel.whatif.measure import GPU
from vcd.timetravel.whatif.workload import Workload

_CONNECT = 5
"""Seconds in which an engine's scheduler has to answer."""


class Stretch(NamedTuple):
    """What of a log is run: from the state after one event (None: its oldest) to another (None: its end)."""

    after: int | None = None
    until: int | None = None

    def workload(self, reader: LogReader) -> Workload:
        """What the log holds of it. Raises LogError."""
        return workload_of(reader, self.until, self.after)


WHOLE = Stretch()
"""All of a log."""


class Sweep(msgspec.Struct):
    """The runs of a sweep, in the order in which their variants were given; ``fidelity`` is how far the workload comes
    out as recorded where it is decided again as it was."""

    file: str
    runs: list[Run]
    fidelity: Fidelity


def variants_of(confs: Sequence[tuple[str, str | None]], seeds: Iterable[int], template: Variant) -> list[Variant]:
    """Each configuration (name and text) with each seed; all else is the template's."""
    seeds = list(seeds)
    return [
        Variant(f"{name} seed {seed}" if len(seeds) > 1 else name, text, template.edits, seed)
        for (name, text), seed in itertools.product(confs, seeds)
    ]


def sweep(
    path: str | Path,
    variants: Sequence[Variant],
    *,
    jobs: int | None = None,
    period: int = PERIOD,
    gpu: str = GPU,
    scheduler: str | None = None,
    stretch: Stretch = WHOLE,
    explain: bool = False,
    called: str | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Sweep:
    """Run a log's workload, or that of a ``stretch`` of it, under each variant.

    ``jobs`` processes work at once (None: one for each processor); with ``scheduler``, the address of a Dask scheduler,
    its workers do, and must be able to read ``path``. With ``explain``, the jobs that
    wait are diagnosed. ``called`` names the log where ``path`` is a copy of it,
    ``progress`` is told the name of each run that is done. Raises LogError, PolicyError, EditError before the first
    run, LogError where a process ended early, and ModuleNotFoundError where Dask is not installed.
    """
    with LogReader(path) as reader:
        work = stretch.workload(reader)
    for variant in variants:
        policy_of(variant, work)
        edited(work, variant.edits)
    again = next((place for place, one in enumerate(variants) if _is_baseline(one, work)), len(variants))
    to_do = [*variants, *([Variant(BASELINE)] if again == len(variants) else [])]
    runs: dict[int, Run] = {}
    with _executor(jobs, scheduler) as executor, _ends_told(path):
        with kept_from_ctrl_c():
            asked = (period, gpu, stretch, explain)
            futures = {executor.submit(_one, str(path), one, *asked): place for place, one in enumerate(to_do)}
        for future in as_completed(futures):
            place = futures[future]
            runs[place] = future.result()
            progress(to_do[place].name)
    found = fidelity(work, recorded(work, gpu).jobs, runs[again].jobs)
    return Sweep(called or str(path), [runs[place] for place in range(len(variants))], found)


def _is_baseline(variant: Variant, work: Workload) -> bool:
    """Whether a run is the one of the workload as it was."""
    if variant.edits or variant.seed:
        return False
    return variant.conf is None or {variant.conf} == {work.policy, *(event.text for _, event in work.policies)}


def _one(path: str, variant: Variant, period: int, gpu: str, stretch: Stretch, explain: bool) -> Run:
    """One run, in a worker."""
    with LogReader(path) as reader:
        work = stretch.workload(reader)
    return simulated(edited(work, variant.edits), variant, period, gpu, explain=explain)


@contextmanager
def _ends_told(path: str | Path) -> Iterator[None]:
    """Let an error say that a process ended, be that seen when it is asked for more or when it should answer."""
    try:
        yield
    except BrokenProcessPool:
        raise LogError(f"event log {path}: a process that ran it ended early; try with fewer --jobs") from None


@contextmanager
def _executor(jobs: int | None, scheduler: str | None) -> Iterator[Executor]:
    if scheduler is None:
        with processes(jobs or processors()) as executor:
            yield executor
    else:
        engine: Any = importlib.import_module("distributed")  # an extra, which few need
        with engine.Client(scheduler, timeout=_CONNECT) as client, client.get_executor() as executor:
            yield executor
