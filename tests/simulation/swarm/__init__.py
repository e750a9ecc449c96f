"""Draws a script from a seed: which faults, plugins, actions and queue trees are on, and what users do."""

from __future__ import annotations

from random import Random

from tests.simulation.script import Script
from tests.simulation.swarm.cluster import cluster
from tests.simulation.swarm.configurations import configuration
from tests.simulation.swarm.draw import Draw
from tests.simulation.swarm.flags import flags
from tests.simulation.swarm.tables import CHANGES, FAMILIES, ILLEGAL_FAMILY, happenings, of_family
from tests.simulation.swarm.work import work

CALM = 75.0
"""Seconds in which all has to come to rest."""


def drawn(seed: int) -> Script:
    """The script of a seed. A fifth of the seeds have no faults, a tenth illegal ones beside the others."""
    rng = Random(seed)
    replicas = rng.choice((1, 1, 2, 2, 2, 2, 2, 3))
    conf = configuration(rng)
    draw = Draw(rng, rng.choice((10.0, 15.0, 20.0, 30.0, 45.0)), replicas, conf.traits)
    acts = [*cluster(draw), *work(draw)]
    acts += happenings(draw, {"changes": CHANGES}, 0.7)
    lot = rng.random()
    if lot >= 0.2:
        acts += happenings(draw, FAMILIES, 0.35)
    if lot >= 0.9:
        acts += of_family(draw, ILLEGAL_FAMILY)
    given, more = flags(draw, acts)
    acts = sorted([*more, *acts], key=lambda act: act.at)
    return Script(seed, replicas, given, conf.text, draw.storm, CALM, tuple(acts))
