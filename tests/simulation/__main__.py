"""``python -m tests.simulation [SEEDS]``: run seeds, and tell of what did not hold. SEEDS is N (the first N) or A:B."""

from __future__ import annotations

import os
import sys

from tests.simulation import machine


def main(seeds: str = "100") -> int:
    """Run them; 1 where an invariant did not hold."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.execve(
            sys.executable, [sys.executable, "-m", "tests.simulation", seeds], {**os.environ, "PYTHONHASHSEED": "0"}
        )
    machine.install()
    from tests.simulation.night import run_seeds

    first, _, last = seeds.rpartition(":")
    return run_seeds(range(int(first or 0), int(last)))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
