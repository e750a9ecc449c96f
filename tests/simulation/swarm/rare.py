"""Scripts of what needs several things one after the other, each at its time: some seeds are one of them.

Most show a bug that two thousand seeds in which all is drawn by itself did not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from random import Random
from types import MappingProxyType
from typing import NamedTuple

from tests.simulation.script import Act, Script
from tests.simulation.swarm import blind, stories
from tests.simulation.swarm.draw import Draw
from tests.simulation.swarm.flags import calm_after, controlled, storm_of, times
from tests.simulation.swarm.scenes import PREEMPTS

_STORM = 30.0

JobEpisodes = Callable[[Draw], Iterator[Act]]


class _Told(NamedTuple):
    """How a story is told: what the scheduler's configuration is, whether its replicas have one log, and which
    controllers' work they do."""

    conf: str = ""
    one_log: bool = False
    controllers: tuple[str, ...] = ()
    flags: Mapping[str, list[str]] = MappingProxyType({})
    """Flags of vcd run beside those that each story has."""


def _with(plugin: str) -> str:
    """A configuration that only places, with a plugin that says what may be had."""
    return PREEMPTS.replace("preempt, ", "").replace("proportion", plugin)


_ASKS = PREEMPTS + (
    "  - name: extender\n    arguments:\n"
    "      extender.urlPrefix: http://extender:8080\n      extender.predicateVerb: predicate\n"
)
"""A configuration that asks a server about nodes."""

_ADMITS = (
    'actions: "enqueue, allocate, backfill"\n'
    "tiers:\n- plugins:\n  - name: priority\n  - name: gang\n  - name: overcommit\n- plugins:\n  - name: predicates\n"
    "  - name: proportion\n"
)
_RECLAIMS = PREEMPTS.replace("preempt", "reclaim").replace("proportion", "capacity")

_STORIES: dict[tuple[int, int], dict[JobEpisodes, _Told]] = {
    (16, 7): {
        stories.evicted_again_and_again: _Told(PREEMPTS),
        stories.answered_before_it_arrived: _Told(),
        stories.denied_for_ever: _Told(),
        stories.told_later: _Told(),
        stories.lost_with_the_rest: _Told(one_log=True),
    },
    (64, 19): {stories.rolled_to_another_version: _Told(one_log=True)},
    (64, 35): {stories.clock_is_set: _Told()},
    (64, 51): {stories.carried_out_late: _Told()},
    (64, 11): {stories.grown_unseen: _Told()},
    (64, 59): {stories.room_made_for_gangs: _Told(_ASKS)},
    (64, 43): {
        blind.one_identity: _Told(PREEMPTS),
        blind.log_of_large_events: _Told(flags=blind.LARGE_EVENTS),
        blind.plugin_that_raises: _Told(blind.WITH_RAISING),
        blind.conditions_of_others: _Told(PREEMPTS),
        blind.gates_that_are_lifted: _Told(PREEMPTS),
        blind.weights_that_change: _Told(PREEMPTS),
    },
    (64, 27): {
        stories.one_urgent_job_after_another: _Told(PREEMPTS),
        stories.refused_beside_others: _Told(_ADMITS),
        stories.ended_and_deleted: _Told(_ADMITS),
        stories.borrowed_and_never_run: _Told(_RECLAIMS),
    },
    (64, 3): {
        stories.more_than_is_left_of_a_card: _Told(_with("capacity-card")),
        stories.cards_shared_and_alone: _Told(
            _with("deviceshare\n    arguments:\n      deviceshare.GPUNumberEnable: true")
        ),
        stories.pods_without_their_group: _Told(_with("capacity")),
        stories.queues_that_go: _Told(controllers=("queue",)),
        stories.bits_that_a_disk_changed: _Told(),
        stories.never_told: _Told(),
        stories.moved_as_it_is_decided: _Told(),
    },
}
"""Of so many seeds that follow one another, the one with this number tells one of some stories."""


def is_rare(seed: int) -> bool:
    """Whether a seed is such a script."""
    return bool(_stories(seed))


def _stories(seed: int) -> dict[JobEpisodes, _Told]:
    """Those that a seed may tell."""
    return next((told for (every, the), told in _STORIES.items() if seed % every == the), {})


def rare(rng: Random, seed: int) -> Script:
    """The script of such a seed."""
    known = _stories(seed)
    story = rng.choice(list(known))
    told = known[story]
    draw = Draw(rng, _STORM, 2 if told.one_log else rng.choice((1, 1, 2)), frozenset())
    for number in range(draw.number(1, 3)):
        draw.nodes[f"node-{number}"] = draw.pick((2, 4))
    acts = [draw.act(0.0, "add_node", name, cores, {}) for name, cores in draw.nodes.items()]
    acts += story(draw)
    controllers, retired = controlled(draw, told.controllers)
    given = {"checkpoint-interval": ["20"], **times(draw, acts, short=told.one_log), **controllers}
    given |= {"replicas-address": [":7443"]} if told.one_log else {}
    given |= told.flags
    acts += retired
    acts.sort(key=lambda act: act.at)
    return Script(seed, draw.replicas, given, told.conf, storm_of(draw, acts), calm_after(acts), tuple(acts))
