"""The digests of a night's seeds, in a file that is small enough to be kept: by it the same code is known again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

_A_LINE = 10
_DIGITS = 8


def write(path: Path, told: str, digests: Mapping[int, str]) -> None:
    """Keep the beginning of each seed's digest, of seeds that follow each other; ``told`` is a line on all of them."""
    first, lines = min(digests), [f"# {told}"]
    for start in range(first, first + len(digests), _A_LINE):
        some = (digests[seed][:_DIGITS] for seed in range(start, min(start + _A_LINE, first + len(digests))))
        lines.append(f"{start} {' '.join(some)}")
    path.write_text("\n".join(lines) + "\n")


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
