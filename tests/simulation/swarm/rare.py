"""Scripts of what needs several things one after the other, each at its time: one seed in sixteen is one of them.

Each shows a bug that two thousand seeds in which all is drawn by itself did not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

from tests.simulation.script import Act, Script
from tests.simulation.swarm.draw import Draw
from tests.simulation.swarm.flags import calm_after, storm_of, times
from tests.simulation.swarm.scenes import PREEMPTS

EVERY, THE = 16, 7
"""Of so many seeds that follow one another, the one with this number is such a script."""
_STORM = 30.0
_URGENT = {"queue": "default", "priorityClassName": "urgent"}

Story = Callable[[Draw], Iterator[Act]]


def is_rare(seed: int) -> bool:
    """Whether a seed is such a script."""
    return seed % EVERY == THE


def rare(rng: Random, seed: int) -> Script:
    """The script of such a seed."""
    story = rng.choice(list(_STORIES))
    conf, shared = _STORIES[story]
    draw = Draw(rng, _STORM, 2 if shared else rng.choice((1, 1, 2)), frozenset())
    for number in range(draw.number(1, 3)):
        draw.nodes[f"node-{number}"] = draw.pick((2, 4))
    acts = [draw.act(0.0, "add_node", name, cores, {}) for name, cores in draw.nodes.items()]
    acts += story(draw)
    given = {"checkpoint-interval": ["20"], **times(draw, acts, short=shared)}
    given |= {"replicas-address": [":7443"]} if shared else {}
    acts.sort(key=lambda act: act.at)
    return Script(seed, draw.replicas, given, conf, storm_of(draw, acts), calm_after(acts), tuple(acts))


def _evicted_again_and_again(draw: Draw) -> Iterator[Act]:
    """A job has all room, and its controller makes anew what it loses; one urgent pod after another comes, and ends.
    Who leads begins anew by what it kept, and more of them come."""
    at, step = draw.rng.uniform(5.0, 7.0), draw.pick((1.0, 1.0, 2.0))
    total = sum(draw.nodes.values())
    preemptable, ranked = {"annotations": {"volcano.sh/preemptable": "true"}}, {"spec": {"priorityClassName": "urgent"}}
    yield draw.act(0.1, "add_class", "urgent", 10_000, {})
    yield draw.act(1.0, "submit_job", "low", 1, [("all", 1, total, 1)], {}, preemptable)
    count = draw.number(3, 7)
    for number in range(count):
        ends = {"annotations": {"vcd.sim/run-seconds": "3"}, **ranked}
        yield draw.act(at + number * step, "submit", f"urgent-{number}", 1, 1, 1, _URGENT, ends)
    late = at + count * step + draw.pick((4.0, 6.0))
    if draw.often(0.7):
        yield draw.act(late, "kill", -1, 1.0)
    pods = draw.number(1, min(3, total))
    yield draw.act(late + draw.pick((4.0, 6.0)), "submit", "urgent-last", pods, pods, 1, _URGENT, ranked)


def _answered_before_it_arrived(draw: Draw) -> Iterator[Act]:
    """A bind is answered by who is in front of the server, tried again, and done when that arrives."""
    at = draw.rng.uniform(4.0, 8.0)
    for number in range(draw.number(1, 3)):
        early = draw.pick((502, 504)), draw.pick((0.2, 0.5, 1.5))
        yield draw.act(at, "answer_early", -1, draw.number(1, 2), "bindings", *early)
        yield draw.act(at + 1.0, "submit", f"early-{number}", 1, draw.number(1, 3), 1, {}, {})
        at += draw.pick((4.0, 6.0))


def _denied_for_ever(draw: Draw) -> Iterator[Act]:
    """A webhook denies one pod of a gang again and again, while others come that are decided about, until somebody else
    has its room: the gang can never be whole."""
    pods = draw.number(2, min(4, sum(draw.nodes.values())))
    yield draw.act(0.5, "refuse_binds", "default", "half-0", 900.0)
    yield draw.act(1.0, "submit", "half", pods, pods, 1, {}, {})
    late = draw.rng.uniform(33.0, 45.0)
    for number in range(8):
        yield draw.act(draw.rng.uniform(15.0, late), "submit", f"other-{number}", 1, 1, 0, {}, {})
    for number, cores in enumerate(draw.nodes.values()):
        yield draw.act(late, "bind_theirs", f"full-{number}", number, cores, 1, 900)


def _told_later(draw: Draw) -> Iterator[Act]:
    """A webhook denies for a while what is told of gangs that wait, and nothing else brings it on."""
    at, seconds = draw.rng.uniform(2.0, 6.0), draw.pick((12.0, 20.0, 25.0))
    yield draw.act(at, "deny_writes", -1, seconds, 1.0, "status")
    for number in range(draw.number(1, 2)):
        pods = draw.number(1, 3)
        yield draw.act(at + 1.0 + number, "submit", f"told-{number}", pods, pods, 99, {}, {})


def _lost_with_the_rest(draw: Draw) -> Iterator[Act]:
    """Who leads decides what nobody else has, and is lost; when it is back, and goes back to what the next leader has,
    that one is lost as it is about to send the rest."""
    at, alone, pause = draw.rng.uniform(4.0, 6.0), draw.pick((2.0, 4.0)), draw.pick((12.0, 14.0))
    for number in range(48):
        yield draw.act(at + 0.5 * number, "submit", f"gang-{number}", 1, 1, 0, {}, {})
    first = at + draw.rng.uniform(6.0, 8.0)
    yield draw.act(first, "lead_alone", alone, pause)
    back = first + alone + pause
    yield draw.act(back - 0.2, "kill_leader_at_message", draw.number(2, 4), draw.pick((20.0, 30.0)))
    yield draw.act(back + 8.0, "submit", "last", 1, 1, 0, {}, {})


_PLAIN = ""
_STORIES: dict[Story, tuple[str, bool]] = {
    _evicted_again_and_again: (PREEMPTS, False),
    _answered_before_it_arrived: (_PLAIN, False),
    _denied_for_ever: (_PLAIN, False),
    _told_later: (_PLAIN, False),
    _lost_with_the_rest: (_PLAIN, True),
}
"""What the scheduler is told in each, and whether its replicas have one log."""
