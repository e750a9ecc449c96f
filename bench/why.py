"""How often vcd names the cause of a wait: ``python -m bench why``, or ``python -m bench.why [--seeds N] [CODE ...]``.

Each random cluster gets one planted cause (tests/planted), and the verdict of its log is computed. A row per code has
the share of clusters in which the verdict names cause and object first. The share of jobs that start after a fix of the
planted cause is printed, too, because a cluster with a second cause would prove nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import click

from bench.table import Row, row, show
from tests.planted.asking import fixed_as_told, misnamed, verdict_of
from tests.planted.causes import CAUSES, planted
from tests.planted.plant import Plant
from tests.planted.runs import by_hand
from vcd.api import NotFound

SEEDS = 20
NAMED, MENDED = 98.0, 100.0


class Score(NamedTuple):
    """Counts of one code: planted causes, causes that were named first, jobs that started after a fix (``mended``),
    changes that vcd found (``fixes``), jobs that started with that change in a new run (``true``); and the failures."""

    planted: int
    named: int
    mended: int
    fixes: int
    true: int
    wrong: list[str]


def run(seeds: int = SEEDS, codes: Iterable[str] = ()) -> list[Row]:
    """Plant each code (default: all) in ``seeds`` clusters and return the rows."""
    scores = {code: _score(code, seeds) for code in codes or CAUSES}
    for score in scores.values():
        for text in score.wrong:
            click.echo(text, err=True)
    return rows_of(scores)


def rows_of(scores: dict[str, Score]) -> list[Row]:
    """Return a row for each code, then the rows of all codes together."""
    rows = [_row(f"{code}: named first", score.named, score.planted, NAMED) for code, score in scores.items()]
    planted, named, mended, fixes, true = (sum(column) for column in list(zip(*scores.values(), strict=True))[:5])
    rows.append(_row("all codes: named first", named, planted, NAMED))
    rows.append(_row("all codes: mending what was planted lets the job start", mended, planted, MENDED))
    rows.append(_row("all codes: a change that vcd found lets the job start in a new run", true, fixes, MENDED))
    return rows


def _row(what: str, right: int, of: int, goal: float) -> Row:
    return row(f"{what} ({right} of {of})", 100 * right / of, "%", goal=goal)


def _score(code: str, seeds: int) -> Score:
    tried = []
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as folder:
            tried.append(asyncio.run(_tried(planted(code, seed), Path(folder))))
    counts = [sum(getattr(one, name) for one in tried) for name in Score._fields[:-1]]
    return Score._make([*counts, [text for one in tried for text in one.wrong]])


async def _tried(plant: Plant, folder: Path) -> Score:
    """Score one planted cause."""
    await by_hand(plant, folder / "planted")
    mended = (await by_hand(plant.fixed(), folder / "mended")).started
    try:
        verdict = await asyncio.to_thread(verdict_of, folder / "planted", plant)
    except NotFound as error:
        return Score(1, 0, mended, 0, 0, [f"{plant.label}: {error}"])
    wrong = list(misnamed(plant, verdict))
    named, fixed = not wrong, fixed_as_told(folder / "planted", plant, verdict.session)
    true = fixed is not None and (await by_hand(fixed, folder / "fixed")).started
    if fixed is not None and not true:
        wrong.append(f"{plant.label}: with {fixed.stages[-1]} in a new run the job does not start")
    return Score(1, named, mended, fixed is not None, true, wrong)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("codes", metavar="CODE", nargs="*")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    given = parser.parse_args()
    show(run(given.seeds, given.codes))
