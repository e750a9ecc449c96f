"""Draws a script from a seed: which faults, plugins, actions and queue trees are on, and what users do."""

from __future__ import annotations

from random import Random

from tests.simulation import illegal
from tests.simulation.script import Act, Script
from tests.simulation.swarm.cluster import cluster
from tests.simulation.swarm.configurations import configuration
from tests.simulation.swarm.draw import Draw
from tests.simulation.swarm.flags import calm_after, flags, storm_of
from tests.simulation.swarm.onelog import one_log
from tests.simulation.swarm.plain import plain
from tests.simulation.swarm.rare import is_rare, rare
from tests.simulation.swarm.scenes import scenes
from tests.simulation.swarm.tables import CHANGES, FAMILIES, ILLEGAL_FAMILY, compared, happenings, of_family
from tests.simulation.swarm.topology import is_with_topology, with_topology
from tests.simulation.swarm.work import work

PLAIN = 0.5
"""The part of the seeds in which little is on."""
SILENT = 100.0
"""Seconds after which a watch without bookmarks is begun anew (``watcher.IDLE_TIMEOUT``), as who was not stopped is to
have done before all is looked at."""
ASKS_OUTSIDE = {"extender", "loads"}
"""The traits of configurations by which servers beside the API server are asked."""
UNHEALED, HALF_AN_HOUR = 5.0, 2300.0
"""Seconds for which what watches told wrongly stays as it is, and for which all programs then stand still, and the last
lists are old when they go on: half an hour and a quarter more."""


def drawn(seed: int) -> Script:
    """The script of a seed. Of those in which all may be on a fifth have no faults, a tenth illegal ones beside the
    others."""
    if is_with_topology(seed):
        return with_topology(seed)
    rng = Random(seed)
    if is_rare(seed):
        return rare(rng, seed)
    if rng.random() < PLAIN:
        return plain(rng, seed)
    replicas = rng.choice((1, 1, 2, 2, 2, 2, 2, 3))
    conf = configuration(rng)
    draw = Draw(rng, rng.choice((10.0, 15.0, 20.0, 30.0, 45.0)), replicas, conf.traits)
    acts = [*cluster(draw), *work(draw), *scenes(draw)]
    acts += happenings(draw, {"changes": CHANGES}, 0.7)
    lot = rng.random()
    if lot >= 0.2:
        asks = draw.traits & ASKS_OUTSIDE
        acts += happenings(draw, {name: of for name, of in FAMILIES.items() if name != "outside" or asks}, 0.35)
    if lot >= 0.9:
        acts += of_family(draw, ILLEGAL_FAMILY)
    given, more = flags(draw, acts)
    shared, between = one_log(draw, faulty=lot >= 0.2)
    given, more = {**given, **shared}, [*more, *between]
    if draw.often(0.25):
        more.append(compared(draw))
    acts = sorted([*more, *acts], key=lambda act: act.at)
    storm, calm = storm_of(draw, acts), calm_after(acts)
    if any(act.what in illegal.ACTS for act in acts):
        healing, seconds = healed(draw, storm + UNHEALED)
        acts, calm = [*acts, *healing], calm + UNHEALED + seconds
    return Script(seed, draw.replicas, given, conf.text, storm, calm, tuple(acts))


def healed(draw: Draw, at: float) -> tuple[list[Act], float]:
    """What lets all replicas list again, from some time on, without waiting for it: who leads goes on and compares, or
    all stand still for so long that the next leader lists anew. And how long that takes."""
    if draw.often(0.5):
        return [draw.act(at, "compare_at_last")], 0.0
    still = draw.act(at, "pause", -1, HALF_AN_HOUR)
    return [still, draw.act(at, "no_bookmarks", HALF_AN_HOUR - SILENT)], HALF_AN_HOUR
