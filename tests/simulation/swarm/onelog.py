"""Whether the replicas of a script have one log, and what goes wrong between them then."""

from __future__ import annotations

from tests.simulation.script import Act
from tests.simulation.swarm.draw import Draw
from tests.simulation.swarm.tables import PEERS, happenings

SHARE = 0.4
"""Of the scripts with more than one replica."""
SHORT = {"checkpoint-interval": ["20"], "log-retention-size": ["64k"]}
"""Flags by which a leader soon lacks what others have."""


def one_log(draw: Draw, *, faulty: bool) -> tuple[dict[str, list[str]], list[Act]]:
    """The flags of replicas of one log, of which there may be one more then, and what happens between them; nothing for
    those with a log each."""
    if draw.replicas < 2 or not draw.often(SHARE):
        return {}, []
    draw.replicas = max(draw.replicas, draw.pick((2, 2, 3)))
    given = {"replicas-address": [":7443"]}
    if draw.often(0.35):
        given |= SHORT
    return given, list(happenings(draw, PEERS, 0.6)) if faulty else []
