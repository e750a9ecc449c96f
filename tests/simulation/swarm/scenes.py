"""What seldom comes together by chance: several acts that are one story."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tests.simulation.script import Act
from tests.simulation.swarm.draw import Draw

APART = "apart"
"""A queue that may have all that there is, so that a scene comes to something."""
PREEMPTABLE = {"annotations": {"volcano.sh/preemptable": "true"}}
RANKED = {"spec": {"priorityClassName": "urgent"}}
"""What a pod says that may be evicted for one of more priority, and one that has it, once there is that class."""
Scene = Callable[[Draw], Iterator[Act]]


def scenes(draw: Draw) -> Iterator[Act]:
    """One of them, or none."""
    if draw.often(0.7):
        yield from a_scene(draw, SCENES)


def a_scene(draw: Draw, among: Sequence[Scene]) -> Iterator[Act]:
    """One of them."""
    affinity = {"nodeGroupAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": ["one", "two"]}}
    spec = {"weight": 4, **({"affinity": affinity} if "nodegroups" in draw.traits else {})}
    yield draw.act(0.0, "add_queue", APART, spec, {})
    yield from draw.pick(among)(draw)


def _half_a_gang(draw: Draw) -> Iterator[Act]:
    """Of a gang only some pods are let in; what is missing goes, or others take its room: it can never be whole."""
    pods = draw.number(2, 4)
    minimum = pods + draw.often(0.4)
    yield draw.act(0.5, "refuse_binds", "default", "half-0", draw.pick((15.0, 900.0, 900.0)))
    ends = {"annotations": {"vcd.sim/run-seconds": str(draw.number(3, 20))}} if draw.often(0.3) else {}
    if draw.often(0.4):  # what is there goes while it is decided about the rest
        yield draw.act(0.7, "keep_busy", -1, draw.pick((1.0, 3.0)), 60.0)
        yield draw.act(draw.rng.uniform(3.0, 14.0), "delete", "pod", "default", f"half-{draw.number(1, pods - 1)}")
    yield draw.act(1.0, "submit", "half", minimum, pods, 1, {"queue": APART}, ends)
    if minimum > pods:  # one that asks for nothing counts as placed, and no node takes it
        yield draw.act(1.0, "add_pods", "half", pods, 1, 0, {"spec": {"nodeSelector": {"kept": "away"}}})
    late = draw.rng.uniform(0.7, 1.0) * draw.storm
    if draw.often(0.4):  # it is tried again and again, until it is released
        yield draw.act(70.0, "edit", "group", "default", "half", {"metadata": {"labels": {"seen": "yes"}}})
    elif draw.often(0.3):
        yield draw.act(late, "delete", "pod", "default", "half-0")
    else:
        for number, cpu in enumerate(draw.nodes.values()):
            yield draw.act(late, "bind_theirs", f"full-{number}", number, cpu, 1, 900)


def _contended(draw: Draw) -> Iterator[Act]:
    """All room is taken by who may be evicted, or not; then comes somebody with more priority, or of another queue."""
    low, high = draw.rng.uniform(0.5, 2.0), draw.rng.uniform(4.0, 10.0)
    total = sum(draw.nodes.values())
    marks = {"labels": {"protected": "yes"}} if draw.budgets else {}
    annotations = {"volcano.sh/preemptable": "true"}
    queues = draw.pick(((APART,), (APART,), (APART, draw.pick(draw.queues)), (draw.pick(draw.queues), APART)))
    critical = {"spec": {"priorityClassName": "system-cluster-critical"}}
    protected = 0
    for number, more in enumerate(({}, {"namespace": "kube-system"}, critical)):
        count = draw.pick((0, 0, draw.number(1, 3))) if number else total
        protected += count if "namespace" not in more else 0
        details = {**marks, "annotations": annotations, **more}
        if draw.often(0.4):
            details["spec"] = {**details.get("spec", {}), "terminationGracePeriodSeconds": draw.number(1, 40)}
        how = draw.pick(("alone", "job", "deployment"))
        if number or how == "alone":
            yield draw.act(low, "submit", f"low-{number}", 1, count, 1, {"queue": queues[0]}, details)
        elif how == "job":
            yield draw.act(low, "submit_job", "low", 1, [("all", 1, count, 1)], {"queue": queues[0]}, details)
        else:
            where = {**annotations, "scheduling.volcano.sh/queue-name": queues[0]}
            yield draw.act(low, "submit_deployment", "low", count, 1, {**details, "annotations": where})
    for name in draw.budgets:
        least = {"spec": {"minAvailable": max(0, protected - draw.number(0, 2))}}
        yield draw.act(low + 1.0, "edit", "budget", "default", name, least)
    yield draw.act(0.1, "add_class", "urgent", 10_000, {})
    for number in range(draw.number(1, 3)):
        ranked: dict[str, Any] = {"spec": {"priorityClassName": "urgent"}}
        if draw.often(0.5):
            ranked["annotations"] = {"vcd.sim/run-seconds": "2"}
        spec = {"queue": draw.pick(queues), "priorityClassName": "urgent"}
        pods = draw.number(1, 3)
        at = high + number * draw.pick((0.0, 1.0, 6.0))
        yield draw.act(at, "submit", f"urgent-{number}", draw.number(1, pods), pods, draw.number(1, 2), spec, ranked)
    if draw.often(0.6):  # once more, when what went may be back
        yield draw.act(high + 8.0, "kill", -1, 1.0)
        spec, ranked = {"queue": queues[0], "priorityClassName": "urgent"}, {"spec": {"priorityClassName": "urgent"}}
        yield draw.act(high + 14.0, "submit", "urgent-last", 2, 2, 1, spec, ranked)
    if draw.budgets and draw.often(0.7):
        yield draw.act(high - 0.5, "late", "disruption-controller", draw.pick((5.0, 30.0)))


def _amid_a_decision(draw: Draw) -> Iterator[Act]:
    """Decisions take long, and what they were made for changes meanwhile."""
    at, slow = draw.rng.uniform(3.0, 9.0), draw.pick((0.5, 1.0, 3.0))
    yield draw.act(at - 2.0, "keep_busy", -1, slow, 60.0)
    moments = [at, at, at + draw.pick((2.0, 6.0))]
    for number in range(draw.number(2, 5)):
        pods = draw.number(2, 5)
        spec = {"queue": draw.pick((APART, draw.pick(draw.queues)))}
        yield draw.act(draw.pick(moments), "submit", f"amid-{number}", draw.number(1, pods), pods, 1, spec, {})
    shrinks = draw.often(0.6)
    for name, cpu in draw.nodes.items() if shrinks else ():
        shrunk = draw.pick(moments) + draw.rng.uniform(0.02, slow)
        yield draw.act(shrunk, "resize", name, {"cpu": str(draw.number(min(1, cpu - 1), cpu - 1))})
        yield draw.act(shrunk + 10.0, "resize", name, {"cpu": str(cpu)})
    for number in range(draw.number(0, 2) if shrinks else draw.number(3, 7)):
        what, given = draw.pick((
            ("bind_theirs", (f"amid-others-{number}", draw.number(0, 7), draw.number(1, 3), 1, 60)),
            ("lose_node", (draw.node(), draw.seconds(20), draw.number(1, 4))),
            ("delete", ("pod", "default", f"amid-{draw.number(0, 4)}-{draw.number(0, 2)}")),
        ))  # fmt: skip
        yield draw.act(draw.pick(moments) + draw.rng.uniform(0.02, slow), what, *given)


def _waiting(draw: Draw) -> Iterator[Act]:
    """Others have all room for a while, and who waits for it is of one kind."""
    at, seconds = draw.rng.uniform(1.0, 4.0), draw.number(4, 20)
    for number, cpu in enumerate(draw.nodes.values()):
        yield draw.act(at, "bind_theirs", f"before-{number}", number, cpu, 1, seconds + draw.number(0, 5))
    for number in range(draw.number(2, 4)):
        when = at + draw.pick((1.0, 1.0, 3.0, 6.0))
        yield draw.act(when, "submit", f"waits-{number}", 1, draw.number(1, 3), 1, {"queue": APART}, {})
    # what is left when its group is gone counts all the same
    yield draw.act(0.0, "add_queue", "narrow", {"capability": {"cpu": "3"}}, {})
    yield draw.act(at + 1.0, "submit", "left", 1, 3, 1, {"queue": "narrow"}, {})
    yield draw.act(at + seconds + draw.rng.uniform(7.0, 9.0), "delete", "group", "default", "left")
    late = at + seconds + draw.rng.uniform(10.0, 20.0)
    yield draw.act(late, "submit", "behind", 1, 2, 1, {"queue": "narrow"}, {})
    # who comes next has the rows of those that went, the last one first
    yield draw.act(at, "submit", "early", 1, 5, 0, {"queue": APART}, {})
    yield draw.act(at + 4.0, "delete_pods", "early", 1)
    yield draw.act(at + 6.0, "submit", "large", 2, draw.number(3, 5), 99, {"queue": APART}, {})


_WAYS_TO_KEEP_AWAY: tuple[tuple[str, Any, Any], ...] = (
    ("relabel", {"kept": None}, {"kept": "free"}),
    ("relabel", {"kept": "away"}, {"kept": "free"}),
    ("taint", [{"key": "kept", "value": "away", "effect": "NoSchedule"}], []),
    ("cordon", True, False),
)
"""Acts, what they do to a node that keeps pods away, and what to one that takes them."""


def _kept_away(draw: Draw) -> Iterator[Act]:
    """No node takes who comes, until somebody changes one of them."""
    at, late = draw.rng.uniform(2.0, 5.0), draw.rng.uniform(6.0, 10.0)
    how, keeps, lets = draw.pick(_WAYS_TO_KEEP_AWAY)
    more = {"spec": {"nodeSelector": {"kept": "free"}}} if how == "relabel" else {}
    for name in draw.nodes:
        yield draw.act(at, how, name, keeps)
    for number in range(draw.number(1, 3)):
        when = draw.rng.uniform(at + 0.5, late - 0.5)
        yield draw.act(when, "submit", f"kept-{number}", 1, draw.number(1, 2), 1, {"queue": APART}, more)
    yield draw.act(late, how, draw.node(), lets)
    for name in draw.nodes:
        yield draw.act(late + 6.0, how, name, lets)


def _end_of_a_term(draw: Draw) -> Iterator[Act]:
    """Who leads does not get its Lease renewed; what it says arrives late, and users go on working."""
    at = draw.rng.uniform(3.0, 6.0)
    yield draw.act(at, "slow_renewals", 0.1, 20.0, draw.pick((1.0, 3.0)))
    for number in range(12):
        when = at + number + draw.rng.uniform(0.0, 1.0)
        yield draw.act(when, "submit", f"late-{number}", 1, 1, 0, {"queue": APART}, {})


def _budget_shows_late(draw: Draw) -> Iterator[Act]:
    """Pods of one budget have all room, and go slowly; gangs with more priority come one after another, and what they
    cost the budget is shown late."""
    at, total = draw.rng.uniform(6.0, 9.0), sum(draw.nodes.values())
    yield draw.act(0.1, "add_class", "urgent", 10_000, {})
    slowly = {"spec": {"terminationGracePeriodSeconds": draw.number(1, 30)}} if draw.often(0.7) else {}
    marks = {"labels": {"protected": "yes"}, "annotations": {"volcano.sh/preemptable": "true"}, **slowly}
    yield draw.act(1.0, "submit", "low", 1, total, 1, {"queue": APART}, marks)
    for name in draw.budgets:
        least = {"spec": {"minAvailable": max(0, total - draw.number(1, 3))}}
        yield draw.act(2.0, "edit", "budget", "default", name, least)
    yield draw.act(at, "late", "disruption-controller", draw.pick((5.0, 20.0)))
    spec, ranked = {"queue": APART, "priorityClassName": "urgent"}, {"spec": {"priorityClassName": "urgent"}}
    for number in range(draw.number(2, 3)):
        pods, when = draw.number(1, 2), at + number * draw.pick((0.5, 1.5, 4.0))
        yield draw.act(when, "submit", f"above-{number}", pods, pods, 1, spec, ranked)


def _alone(draw: Draw) -> Iterator[Act]:
    """One gang comes when all else is done, and what it needs fails for a while: nothing else brings it on."""
    at, seconds, what = (
        draw.rng.uniform(32.0, 36.0),
        draw.pick((3.0, 10.0, 25.0)),
        draw.pick(("bindings", "bindings", "status")),
    )
    how, given = draw.pick((
        ("answer_instead", (draw.pick((409, 429, 500, 503)),)), ("answer_afterwards", (draw.pick((500, 502, 504)),)),
        ("lose_answers", ()), ("lose_requests", ()), ("refuse_connections", ()),
    ))  # fmt: skip
    yield draw.act(at - 1.0, how, -1, seconds, 1.0, what, *given)
    if draw.often(0.3):
        yield draw.act(at - 1.0, "answer_early", -1, 1, what, 504, draw.pick((0.2, 0.5, 1.5)))
    yield draw.act(at, "submit", "alone", 1, draw.number(1, 3), 1, {"queue": APART}, {})


def _flapping(draw: Draw) -> Iterator[Act]:
    """A node comes and goes, again and again, while some wait for it and others have it."""
    for number in range(draw.number(1, 3)):
        yield draw.act(
            draw.rng.uniform(1.0, 6.0), "submit", f"there-{number}", 1, draw.number(1, 3), 1, {"queue": APART}, {}
        )
    yield draw.act(draw.rng.uniform(3.0, 8.0), "flap", draw.node(), draw.pick((25.0, 40.0)), draw.pick((0.3, 0.6)))


PREEMPTS = (
    'actions: "enqueue, allocate, preempt, backfill"\n'
    "tiers:\n- plugins:\n  - name: priority\n  - name: gang\n- plugins:\n  - name: predicates\n  - name: proportion\n"
)
"""A configuration by which priority alone says who has to go."""


def _evicted_by_two(draw: Draw) -> Iterator[Act]:
    """Another takes over from who leads as that is about to evict somebody for somebody else."""
    at = draw.rng.uniform(4.0, 7.0)
    yield draw.act(0.1, "add_class", "urgent", 10_000, {})
    yield draw.act(0.5, "configure", PREEMPTS)
    yield draw.act(1.5, "submit", "low", 1, sum(draw.nodes.values()), 1, {"queue": APART}, PREEMPTABLE)
    if draw.replicas > 1:
        what = draw.pick(("deletes", "marks"))
        yield draw.act(at - 0.5, "two_leaders_at", 1, what, draw.pick((0.0, 0.5)), 40.0, draw.seconds(5))
    pods, spec = draw.number(1, 3), {"queue": APART, "priorityClassName": "urgent"}
    yield draw.act(at, "submit", "above", draw.number(1, pods), pods, 1, spec, RANKED)


def _room_comes(draw: Draw) -> Iterator[Act]:
    """Gangs wait, and while it is thought about them, or while that is logged, a node joins."""
    at, slow = draw.rng.uniform(3.0, 6.0), draw.pick((0.5, 1.0, 3.0))
    if draw.often(0.5):
        yield draw.act(at - 2.0, "keep_busy", -1, slow, 60.0)
    if draw.often(0.6):
        yield draw.act(at - 2.0, "slow_disk", -1, 60.0, slow)
    for name, cpu in draw.nodes.items():
        yield draw.act(at, "resize", name, {"cpu": "0"})
        yield draw.act(at + 14.0, "resize", name, {"cpu": str(cpu)})
    for number in range(draw.number(2, 6)):
        yield draw.act(at + 1.0 + number * 0.1, "submit", f"thought-of-{number}", 2, 2, 1, {"queue": APART}, {})
        if draw.often(0.5):
            marked = {"metadata": {"labels": {"seen": "yes"}}}
            yield draw.act(at + 2.0 + slow / 3, "edit", "group", "default", f"thought-of-{number}", marked)
    yield draw.act(at + 1.0 + draw.rng.uniform(0.5, 1.5) * slow, "add_node", "more", draw.pick((2, 8)), {})


def _comes_and_goes(draw: Draw) -> Iterator[Act]:
    """A queue is made, used, and deleted with all that was in it."""
    at = draw.rng.uniform(1.0, 3.0)
    yield draw.act(at, "add_queue", "passing", {"weight": 1}, {})
    yield draw.act(at + 1.0, "submit", "guest", 1, draw.number(1, 2), 1, {"queue": "passing"}, {})
    gone = at + draw.rng.uniform(4.0, 12.0)
    yield draw.act(gone, "delete", "group", "default", "guest")
    yield draw.act(gone + 0.5, "delete_pods", "guest", 1)
    yield draw.act(gone + draw.pick((1.0, 6.0)), "delete", "queue", "", "passing")
    yield draw.act(gone + 8.0, "delete", "queue", "", "passing")
    for number in range(draw.number(1, 3)):
        yield draw.act(gone + 4.0 * number, "submit", f"stays-{number}", 1, 1, 1, {"queue": APART}, {})


def _configured_anew(draw: Draw) -> Iterator[Act]:
    """Configurations take turns, while the disk is slow, or another one takes the lead."""
    at = draw.rng.uniform(3.0, 6.0)
    texts = (PREEMPTS, PREEMPTS.replace("preempt", "reclaim"), PREEMPTS.replace("proportion", "pdb"),
             PREEMPTS.replace("predicates", "resourcequota\n  - name: predicates"))  # fmt: skip
    if draw.replicas > 1 and draw.often(0.4):  # kinds come and go while all is listed that another one takes over
        yield draw.act(at, "slow_disk", -1, 40.0, draw.pick((0.3, 1.0)))
        yield draw.act(at, "kill_leader", 10.0)
        for number in range(16):
            yield draw.act(at + 3.0 + number, "configure", texts[3 * (number % 2)])
    elif draw.often(0.6):
        yield draw.act(at, "slow_disk", -1, 30.0, draw.pick((0.5, 2.0)))
    for number in range(draw.number(2, 6)):
        when = at + 4.0 * number + draw.rng.uniform(0.0, 1.0)
        yield draw.act(when, "configure", draw.pick(texts))
        if draw.replicas > 1 and draw.often(0.3):
            yield draw.act(when + draw.pick((-1.0, 0.0, 0.1)), "kill_leader", draw.seconds(10))
        if draw.often(0.3):
            yield draw.act(when + draw.pick((0.0, 0.1, 0.5)), "configure", draw.pick(texts))
        yield draw.act(when + draw.pick((0.0, 0.5)), "submit", f"under-{number}", 1, draw.number(1, 3), 1,
                       {"queue": APART}, {})  # fmt: skip


def _lost_amid_a_decision(draw: Draw) -> Iterator[Act]:
    """Decisions take long, and gangs lose one of those that they are decided for, or that they have; of some a pod is
    denied for a while, so that they are decided about again and again."""
    at, slow = draw.rng.uniform(3.0, 5.0), draw.pick((1.0, 2.0))
    yield draw.act(0.0, "add_node", "wide", 32, {})
    yield draw.act(at - 1.0, "keep_busy", -1, slow, 60.0)
    for number in range(5):
        name, least, denied = f"lost-{number}", draw.number(2, 3), draw.often(0.5)
        begins = at + number * (2.5 * slow + 1.0)
        if denied:
            yield draw.act(begins - 0.1, "refuse_binds", "default", f"{name}-0", 20.0)
        yield draw.act(begins, "submit", name, least, least + (not denied), 1, {"queue": APART}, {})
        goes = begins + slow * draw.rng.uniform(0.2, 0.95) + (draw.pick((1.0, 2.0, 4.0)) * slow if denied else 0.0)
        yield draw.act(goes, "delete", "pod", "default", f"{name}-{int(denied)}")


def _listed_in_pages(draw: Draw) -> Iterator[Act]:
    """Lists come in short pages, and pods go while they are read."""
    at = draw.rng.uniform(3.0, 8.0)
    for number in range(draw.number(2, 4)):
        yield draw.act(1.0 + number, "submit", f"paged-{number}", 1, 3, draw.pick((0, 1)), {"queue": APART}, {})
    for number in range(draw.number(1, 3)):
        yield draw.act(at + 8.0 * number, "list_anew", -1, draw.pick((3.0, 10.0)), draw.number(1, 3))


def _lists_again(draw: Draw) -> Iterator[Act]:
    """Whoever leads begins a new term and lists all again, while the disk is slow, nodes become what they were, and
    configurations take turns that read other kinds."""
    yield draw.act(0.5, "slow_disk", -1, 40.0, draw.pick((0.3, 1.0)))
    texts = (PREEMPTS, PREEMPTS.replace("predicates", "resourcequota\n  - name: pdb\n  - name: predicates"))
    for number in range(6):
        yield draw.act(0.1, "add_node", f"same-{number}", 1, {})
    for term in range(3):
        at = 4.0 + 10.0 * term + draw.rng.uniform(0.0, 1.0)
        yield draw.act(at, "delete_lease", 0)
        for number in range(2 * term, 2 * term + 2):
            moment = at + draw.rng.uniform(-0.5, 3.0)
            yield draw.act(moment, "cordon", f"same-{number}", True)
            yield draw.act(moment + draw.pick((0.1, 0.3, 0.6)), "cordon", f"same-{number}", False)
        if draw.often(0.5):
            moment = at + draw.rng.uniform(0.0, 2.0)
            yield draw.act(moment, "configure", texts[1])
            yield draw.act(moment + draw.pick((0.3, 0.8, 1.5)), "configure", texts[0])


SCENES: tuple[Scene, ...] = (
    _half_a_gang, _contended, _amid_a_decision, _waiting, _kept_away, _end_of_a_term, _evicted_by_two, _room_comes,
    _comes_and_goes, _configured_anew, _budget_shows_late, _alone, _flapping, _lost_amid_a_decision, _listed_in_pages,
    _lists_again,
)  # fmt: skip
EVICTING: tuple[Scene, ...] = (_contended, _contended, _budget_shows_late, _evicted_by_two)
"""Those in which somebody has to go."""
