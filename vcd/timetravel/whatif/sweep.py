"""Run many what-ifs at once: over configurations and seeds, in processes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from vcd.eventlog import LogError, LogReader
from vcd.timetravel.process_pool import ignoring_ctrl_c, processes, processors
from vcd.timetravel.whatif.cluster_edits import edited
from vcd.timetravel.whatif.fidelity import Fidelity, fidelity
from vcd.timetravel.whatif.logged_workload import Workload
from vcd.timetravel.whatif.run_measures import GPU
from vcd.timetravel.whatif.runs import BASELINE, Run, Variant, policy_of, recorded, simulated
from vcd.timetravel.whatif.simulated_cluster import PERIOD
from vcd.timetravel.whatif.workloadreader import workload_of


class Stretch(NamedTuple):
    """The simulated part of a log: from the state after one event (None: its oldest) to another (None: its end)."""

    after: int | None = None
    until: int | None = None

    def workload(self, reader: LogReader) -> Workload:
        """Return the workload of this part. Raises LogError."""
        return workload_of(reader, self.until, self.after)


WHOLE = Stretch()
"""The whole log."""


class Sweep(msgspec.Struct):
    """The runs of a sweep, in the order of their variants; ``fidelity`` is how well the unchanged workload reproduces
    the record."""

    file: str
    runs: list[Run]
    fidelity: Fidelity


def variants_of(confs: Sequence[tuple[str, str | None]], seeds: Iterable[int], template: Variant) -> list[Variant]:
    """Return each configuration (name and text) with each seed; other fields are the template's."""
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
    stretch: Stretch = WHOLE,
    explain: bool = False,
    called: str | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Sweep:
    """Run a log's workload, or that of a ``stretch`` of it, under each variant.

    ``jobs`` processes work at once (None: one per processor). With ``explain``, the jobs that wait are diagnosed.
    ``called`` names the log if ``path`` is a copy, ``progress`` is called with the name of each finished run. Raises
    LogError, PolicyError, EditError before the first run, and LogError if a process ended early.
    """
    with LogReader(path) as reader:
        work = stretch.workload(reader)
    for variant in variants:
        policy_of(variant, work)
        edited(work, variant.edits)
    again = next((place for place, one in enumerate(variants) if _is_baseline(one, work)), len(variants))
    to_do = [*variants, *([Variant(BASELINE)] if again == len(variants) else [])]
    runs: dict[int, Run] = {}
    with processes(jobs or processors()) as executor, _report_early_end(path):
        with ignoring_ctrl_c():
            options = (period, gpu, stretch, explain)
            futures = {
                executor.submit(_run_variant, str(path), one, *options): place for place, one in enumerate(to_do)
            }
        for future in as_completed(futures):
            place = futures[future]
            runs[place] = future.result()
            progress(to_do[place].name)
    found = fidelity(work, recorded(work, gpu).jobs, runs[again].jobs)
    return Sweep(called or str(path), [runs[place] for place in range(len(variants))], found)


def _is_baseline(variant: Variant, work: Workload) -> bool:
    if variant.edits or variant.seed:
        return False
    return variant.conf is None or {variant.conf} == {work.policy, *(event.text for _, event in work.policies)}


def _run_variant(path: str, variant: Variant, period: int, gpu: str, stretch: Stretch, explain: bool) -> Run:
    with LogReader(path) as reader:
        work = stretch.workload(reader)
    return simulated(edited(work, variant.edits), variant, period, gpu, explain=explain)


@contextmanager
def _report_early_end(path: str | Path) -> Iterator[None]:
    """Report the early end of a process, whether work is submitted or awaited."""
    try:
        yield
    except BrokenProcessPool:
        raise LogError(f"event log {path}: a process that ran it ended early; try with fewer --jobs") from None
