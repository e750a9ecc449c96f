"""``python -m tests.cost [SHAPE ...]``: print what sessions cost and their budgets; exit with 1 if one is too dear."""

from __future__ import annotations

import sys

import click

from tests.cost.budgets import Cost, measure, problems, read_budgets, write_budgets
from tests.cost.shapes import SHAPES


@click.command()
@click.argument("shapes", metavar="[SHAPE ...]", nargs=-1, type=click.Choice(list(SHAPES)))
@click.option("--write", is_flag=True, help="Record the counts as budgets.")
@click.option("--top", default=0, show_default=True, help="Print so many of the functions that are called most at 2n.")
def main(shapes: tuple[str, ...], write: bool, top: int) -> None:
    """Count the calls of each shape at n and 2n; all shapes unless some are named."""
    costs: list[Cost] = []
    found: list[str] = []
    budgets = read_budgets()
    click.echo(f"{'shape':38}{'n':>6}{'calls':>12}{'budget':>12}{'calls at 2n':>14}{'budget':>12}{'growth':>8}")
    for name in shapes or SHAPES:
        cost, budget = measure(name), budgets.get(name)
        (once, twice), (first, second) = cost.totals, budget or ("", "")
        click.echo(f"{name:38}{SHAPES[name].n:>6}{once:>12}{first:>12}{twice:>14}{second:>12}{cost.growth:>8.2f}")
        for function, count in cost.twice.most_common(top):
            click.echo(f"{count:>20} {function}")
        costs.append(cost)
        found += problems(cost, list(cost.totals) if write else budget)
    if write:
        write_budgets(costs)
    for problem in found:
        click.echo(problem, err=True)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
