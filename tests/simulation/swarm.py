"""Draws a script from a seed: which faults, plugins, actions and queue trees are on, and what users do."""

from __future__ import annotations

from random import Random

from tests.simulation.script import Act, Script


def drawn(seed: int) -> Script:
    """The script of a seed."""
    rng = Random(seed)
    storm = rng.choice((30.0, 60.0, 90.0))
    acts = [Act(0.0, "add_node", (f"node-{number}", rng.randint(2, 8))) for number in range(rng.randint(2, 6))]
    for number in range(rng.randint(2, 10)):
        pods = rng.randint(1, 6)
        given = (f"gang-{number}", rng.randint(1, pods), pods, rng.randint(1, 2), {})
        acts.append(Act(rng.uniform(0, storm), "submit", given))
    acts += [
        Act(rng.uniform(0, storm), "kill", (rng.randrange(2), rng.uniform(0, 30))) for _ in range(rng.randint(0, 3))
    ]
    acts += [
        Act(rng.uniform(0, storm), "pause", (rng.randrange(2), rng.uniform(0, 30))) for _ in range(rng.randint(0, 2))
    ]
    return Script(seed, storm=storm, acts=tuple(sorted(acts, key=lambda act: act.at)))
