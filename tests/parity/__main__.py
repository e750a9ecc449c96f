"""`python -m tests.parity`: agreement with the oracle per family, and the cases that disagree."""

from __future__ import annotations

import argparse
import sys

from tests.parity.cases import NOW, compare, disagreements, measured, select
from tests.parity.implementations import IMPLEMENTATIONS
from vcd.scheduling.framework.policy import PolicyError


def main() -> int:
    """Print the table; the exit code is 0 only when all cases agree."""
    parser = argparse.ArgumentParser(prog="python -m tests.parity", description=__doc__)
    parser.add_argument("--implementation", choices=sorted(IMPLEMENTATIONS), default="reference")
    parser.add_argument("-v", "--verbose", action="store_true", help="print what disagrees in each case")
    parser.add_argument("--measured", action="store_true", help="also the random clusters that Volcano was measured on")
    parser.add_argument("--exactly", action="store_true", help="do not forgive other victims where no more are evicted")
    parser.add_argument("--family", help="only the families whose name holds this text")
    options = parser.parse_args()
    implementation = IMPLEMENTATIONS[options.implementation]
    judge = compare if options.exactly else disagreements
    families: dict[str, list[bool]] = {}
    lines = []
    cases = [*select(), *(measured() if options.measured else [])]
    for case in [case for case in cases if (options.family or "") in case.family]:
        try:
            problems = judge(case, implementation(case.objects, case.conf, NOW, case.seed))
        except PolicyError as error:
            problems = [str(error)]
        families.setdefault(case.family, []).append(not problems)
        if problems:
            lines.append(f"{case.name}" + "".join(f"\n    {problem}" for problem in problems if options.verbose))
    rows = [f"{family:34} {sum(agreed):3}/{len(agreed)}" for family, agreed in sorted(families.items())]
    agreed = sum(sum(results) for results in families.values())
    total = sum(len(results) for results in families.values())
    sys.stdout.write("\n".join([*rows, f"{'total':34} {agreed:3}/{total}", *lines]) + "\n")
    return 0 if agreed == total else 1


if __name__ == "__main__":
    sys.exit(main())
