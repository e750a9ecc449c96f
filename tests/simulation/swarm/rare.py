"""Scripts of what needs several things one after the other, each at its time: some seeds are one of them.

Most show a bug that two thousand seeds in which all is drawn by itself did not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

from tests.simulation.script import Act, Script
from tests.simulation.swarm.draw import Draw
from tests.simulation.swarm.flags import calm_after, storm_of, times
from tests.simulation.swarm.scenes import PREEMPTS
from tests.simulation.versions import FIRST, SECOND

_STORM = 30.0
_URGENT = {"queue": "default", "priorityClassName": "urgent"}

Story = Callable[[Draw], Iterator[Act]]


def is_rare(seed: int) -> bool:
    """Whether a seed is such a script."""
    return bool(_stories(seed))


def _stories(seed: int) -> dict[Story, tuple[str, bool]]:
    """Those that a seed may tell."""
    return next((told for (every, the), told in _STORIES.items() if seed % every == the), {})


def rare(rng: Random, seed: int) -> Script:
    """The script of such a seed."""
    stories = _stories(seed)
    story = rng.choice(list(stories))
    conf, shared = stories[story]
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
    """A webhook denies one pod of a gang, perhaps the only one of a role, again and again, while others come that are
    decided about, until somebody else has its room: the gang can never be whole."""
    pods = draw.number(2, min(4, sum(draw.nodes.values())))
    yield draw.act(0.5, "refuse_binds", "default", "half-0", 900.0)
    if pods > 2 and draw.often(0.5):  # one more than the group's minimum, which runs without the one that is denied
        yield draw.act(1.0, "submit_roles", "half", [("ps", 1, 1, 1), ("worker", pods - 2, pods - 1, 1)], {}, {})
    else:
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


def _rolled_to_another_version(draw: Draw) -> Iterator[Act]:
    """Pods are replaced, one after the other, by those of a version whose words the ones before do not understand, and
    perhaps back, while gangs come. Who is replaced ends in order, is lost, or loses its log, too."""
    draw.replicas, at = draw.pick((2, 2, 3)), draw.rng.uniform(4.0, 7.0)
    for version in (SECOND, FIRST)[: draw.pick((1, 1, 1, 2))]:
        for replica in draw.rng.sample(range(draw.replicas), draw.replicas):
            yield draw.act(at, "install", replica, version)
            end, given = draw.pick((("terminate", 8.0), ("kill", 1.0), ("lose_disk", 1.0)))
            yield draw.act(at, end, replica, given)
            at += draw.pick((3.0, 8.0, 14.0))
    for number in range(int(at)):
        ends = {"annotations": {"vcd.sim/run-seconds": str(draw.number(2, 9))}}
        yield draw.act(1.0 + number, "submit", f"gang-{number}", *(draw.number(1, 2),) * 2, 1, {}, ends)


def _clock_is_set(draw: Draw) -> Iterator[Act]:
    """A wall clock jumps, and after ten minutes its time is believed. Gangs come before that, and about then."""
    at, ahead = draw.rng.uniform(4.0, 8.0), draw.pick((-1.0, 1.0)) * draw.pick((60.0, 3_600.0, 86_400.0))
    yield draw.act(at, "set_clock", draw.anyone(), ahead, 700.0)
    for number, when in enumerate((1.0, at + 2.0, at + 590.0, at + 605.0, at + 650.0)):
        ends = {"annotations": {"vcd.sim/run-seconds": str(draw.number(2, 20))}}
        yield draw.act(when, "submit", f"gang-{number}", *(draw.number(1, 3),) * 2, 1, {}, ends)
    if draw.often(0.5):
        yield draw.act(at + draw.pick((300.0, 640.0)), "kill", -1, 1.0)


def _carried_out_late(draw: Draw) -> Iterator[Act]:
    """The server takes its time with the binds of who leads, and another one leads before it has done them."""
    draw.replicas, at = 2, draw.rng.uniform(4.0, 7.0)
    yield draw.act(at, "hold_writes", -1, 20.0, 1.0, "bindings")
    for number in range(draw.number(3, 6)):
        yield draw.act(at + 0.5 * number, "submit", f"gang-{number}", *(draw.number(1, 2),) * 2, 1, {}, {})
    yield draw.act(at + draw.rng.uniform(0.5, 3.0), "kill_leader", 20.0)


_PLAIN = ""
_STORIES: dict[tuple[int, int], dict[Story, tuple[str, bool]]] = {
    (16, 7): {
        _evicted_again_and_again: (PREEMPTS, False),
        _answered_before_it_arrived: (_PLAIN, False),
        _denied_for_ever: (_PLAIN, False),
        _told_later: (_PLAIN, False),
        _lost_with_the_rest: (_PLAIN, True),
    },
    (64, 19): {_rolled_to_another_version: (_PLAIN, True)},
    (64, 35): {_clock_is_set: (_PLAIN, False)},
    (64, 51): {_carried_out_late: (_PLAIN, False)},
}
"""Of so many seeds that follow one another, the one with this number tells one of some stories: what the scheduler is
told in each, and whether its replicas have one log."""
