"""The digests of a run's seeds, in a small file. A later run with the same digests has the same behaviour."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path

_A_LINE = 10
_DIGITS = 8


def write(path: Path, seeds: range, told: str, digests: Mapping[int, str]) -> None:
    """Write the beginning of each seed's digest, and a line of summary on these seeds.

    Digests and summaries of other seeds in the file are preserved, because a run can be done in parts.
    """
    kept = read(path) if path.exists() else {}
    this = f"# {seeds.start}:{seeds.stop}: "
    others = [line for line in path.read_text().splitlines() if line.startswith("#")] if kept.keys() - seeds else []
    # a part that was ended has no summary
    found = kept | {seed: digest[:_DIGITS] for seed, digest in digests.items() if digest}
    lines = [*(line for line in others if not line.startswith(this)), this + told]
    for _, some in groupby(sorted(found), lambda seed: seed // _A_LINE):
        lines += [f"{first} {' '.join(found[seed] for seed in run)}" for first, run in _runs(some)]
    path.write_text("\n".join(lines) + "\n")


def _runs(seeds: Iterable[int]) -> Iterator[tuple[int, list[int]]]:
    """Return blocks of consecutive seeds, each with its first seed."""
    for _, some in groupby(enumerate(seeds), lambda each: each[1] - each[0]):
        run = [seed for _, seed in some]
        yield run[0], run


def read(path: Path) -> dict[int, str]:
    """Read the digests of each seed. Raises ValueError for a file of another format."""
    found: dict[int, str] = {}
    for line in path.read_text().splitlines():
        if not line.startswith("#"):
            start, *digests = line.split()
            found.update(enumerate(digests, int(start)))
    return found


def differing(kept: Mapping[int, str], digests: Mapping[int, str]) -> list[int]:
    """Return the seeds whose digests differ."""
    return [seed for seed in sorted(digests.keys() & kept.keys()) if not digests[seed].startswith(kept[seed])]
