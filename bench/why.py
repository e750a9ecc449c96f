"""How often vcd names why a job waits: ``python -m bench why``, or ``python -m bench.why [--seeds N] [CODE ...]``.

Into random clusters one cause is planted at a time, so many of each code (tests/planted), and the verdict of the log is
asked. A row for each code: of how many it names the cause and the object first. How many jobs start once the planted
cause is mended is counted beside, since a plant that has another cause, too, would prove nothing.
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
from tests.planted.asking import misnamed, verdict_of
from tests.planted.causes import CAUSES, planted
from tests.planted.plant import Plant
from tests.planted.runs import by_hand
from vcd.api import NotFound

SEEDS = 20
NAMED, MENDED = 98.0, 100.0


class Score(NamedTuple):
    """Of one code: what was planted, what of it was named first, what started once it was mended; what was wrong."""

    planted: int
    named: int
    mended: int
    wrong: list[str]


def run(seeds: int = SEEDS, codes: Iterable[str] = ()) -> list[Row]:
    """The rows, from so many plants of each code, all codes unless some are named."""
    scores = {code: _score(code, seeds) for code in codes or CAUSES}
    for score in scores.values():
        for text in score.wrong:
            click.echo(text, err=True)
    return rows_of(scores)


def rows_of(scores: dict[str, Score]) -> list[Row]:
    """A row for each code, then those of all together."""
    rows = [_row(f"{code}: named first", score.named, score.planted, NAMED) for code, score in scores.items()]
    planted, named, mended = (sum(column) for column in list(zip(*scores.values(), strict=True))[:3])
    rows.append(_row("all codes: named first", named, planted, NAMED))
    rows.append(_row("all codes: the fix lets the job start", mended, planted, MENDED))
    return rows


def _row(what: str, right: int, of: int, goal: float) -> Row:
    return row(f"{what} ({right} of {of})", 100 * right / of, "%", goal=goal)


def _score(code: str, seeds: int) -> Score:
    named = mended = 0
    wrong: list[str] = []
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as folder:
            faults, starts = asyncio.run(_tried(planted(code, seed), Path(folder)))
        named, mended = named + (not faults), mended + starts
        wrong += faults
    return Score(seeds, named, mended, wrong)


async def _tried(plant: Plant, folder: Path) -> tuple[list[str], bool]:
    """What the verdict of a plant names otherwise, and whether the job starts once the cause is mended."""
    await by_hand(plant, folder / "planted")
    mended = await by_hand(plant.fixed(), folder / "mended")
    try:
        verdict = await asyncio.to_thread(verdict_of, folder / "planted", plant)
    except NotFound as error:
        return [f"{plant.label}: {error}"], mended.started
    return list(misnamed(plant, verdict)), mended.started


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("codes", metavar="CODE", nargs="*")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    given = parser.parse_args()
    show(run(given.seeds, given.codes))
