"""The digests of many seeds in one small file, to compare a later version of the code with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path

_A_LINE = 10
_DIGITS = 8


def write(path: Path, seeds: range, told: str, digests: Mapping[int, str]) -> None:
    """Keep the beginning of each seed's digest; ``told`` is a line on all of these. What the file has of other
    seeds, and was told of them, stays: a night may have parts."""
    kept = read(path) if path.exists() else {}
    this = f"# {seeds.start}:{seeds.stop}: "
    others = [line for line in path.read_text().splitlines() if line.startswith("#")] if kept.keys() - seeds else []
    found = kept | {seed: digest[:_DIGITS] for seed, digest in digests.items() if digest}  # one that was ended has none
    lines = [*(line for line in others if not line.startswith(this)), this + told]
    for _, some in groupby(sorted(found), lambda seed: seed // _A_LINE):
        lines += [f"{first} {' '.join(found[seed] for seed in run)}" for first, run in _runs(some)]
    path.write_text("\n".join(lines) + "\n")


def _runs(seeds: Iterable[int]) -> Iterator[tuple[int, list[int]]]:
    """Seeds that follow each other, each with the first of them."""
    for _, some in groupby(enumerate(seeds), lambda each: each[1] - each[0]):
        run = [seed for _, seed in some]
        yield run[0], run


def read(path: Path) -> dict[int, str]:
    """What was kept of each seed. Raises ValueError for what is no such file."""
    found: dict[int, str] = {}
    for line in path.read_text().splitlines():
        if not line.startswith("#"):
            start, *digests = line.split()
            found.update(enumerate(digests, int(start)))
    return found


def differing(kept: Mapping[int, str], digests: Mapping[int, str]) -> list[int]:
    """The seeds of both that went another way."""
    return [seed for seed in sorted(digests.keys() & kept.keys()) if not digests[seed].startswith(kept[seed])]
