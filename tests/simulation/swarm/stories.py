"""What is told of things that happen one after the other, each at its time."""

from __future__ import annotations

import json
from collections.abc import Iterator

from tests.simulation.script import Act
from tests.simulation.swarm.cluster import GPU, MODELS, card_labels
from tests.simulation.swarm.draw import Draw
from tests.simulation.swarm.scenes import PREEMPTABLE, RANKED
from tests.simulation.versions import FIRST, SECOND
from vcd.model.controllers import GROUP_NAME

_URGENT = {"queue": "default", "priorityClassName": "urgent"}


def evicted_again_and_again(draw: Draw) -> Iterator[Act]:
    """A job has all room, and its controller makes anew what it loses; one urgent pod after another comes, and ends.
    Who leads begins anew by what it kept, and more of them come."""
    at, step = draw.rng.uniform(5.0, 7.0), draw.pick((1.0, 1.0, 2.0))
    total = sum(draw.nodes.values())
    yield draw.act(0.1, "add_class", "urgent", 10_000, {})
    yield draw.act(1.0, "submit_job", "low", 1, [("all", 1, total, 1)], {}, PREEMPTABLE)
    count = draw.number(3, 7)
    for number in range(count):
        ends = {"annotations": {"vcd.sim/run-seconds": "3"}, **RANKED}
        yield draw.act(at + number * step, "submit", f"urgent-{number}", 1, 1, 1, _URGENT, ends)
    late = at + count * step + draw.pick((4.0, 6.0))
    if draw.often(0.7):
        yield draw.act(late, "kill", -1, 1.0)
    pods = draw.number(1, min(3, total))
    yield draw.act(late + draw.pick((4.0, 6.0)), "submit", "urgent-last", pods, pods, 1, _URGENT, RANKED)


def room_made_for_gangs(draw: Draw) -> Iterator[Act]:
    """A gang has all room, and waits for more; urgent gangs come, one after the other, for which it is evicted, and may
    end, so that later ones are known in another order than they are read in."""
    total = sum(draw.nodes.values())
    yield draw.act(0.1, "add_class", "urgent", 10_000, {})
    yield draw.act(1.0, "submit", "low", 1, 3 * total, 1, {}, PREEMPTABLE)
    at = draw.rng.uniform(5.0, 8.0)
    for number in range(5):
        pods = draw.pick((1, 2, 2))
        ends = {"annotations": {"vcd.sim/run-seconds": draw.pick(("3", "900"))}, **RANKED}
        yield draw.act(at, "submit", f"urgent-{number}", pods, pods, 1, _URGENT, ends)
        at += draw.pick((0.5, 0.5, 8.0))


def answered_before_it_arrived(draw: Draw) -> Iterator[Act]:
    """A bind is answered by who is in front of the server, tried again, and done when that arrives."""
    at = draw.rng.uniform(4.0, 8.0)
    for number in range(draw.number(1, 3)):
        early = draw.pick((502, 504)), draw.pick((0.2, 0.5, 1.5))
        yield draw.act(at, "answer_early", -1, draw.number(1, 2), "bindings", *early)
        yield draw.act(at + 1.0, "submit", f"early-{number}", 1, draw.number(1, 3), 1, {}, {})
        at += draw.pick((4.0, 6.0))


def denied_for_ever(draw: Draw) -> Iterator[Act]:
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


def told_later(draw: Draw) -> Iterator[Act]:
    """A webhook denies for a while what is told of gangs that wait, and nothing else brings it on."""
    at, seconds = draw.rng.uniform(2.0, 6.0), draw.pick((12.0, 20.0, 25.0))
    yield draw.act(at, "deny_writes", -1, seconds, 1.0, "status")
    for number in range(draw.number(1, 2)):
        pods = draw.number(1, 3)
        yield draw.act(at + 1.0 + number, "submit", f"told-{number}", pods, pods, 99, {}, {})


def lost_with_the_rest(draw: Draw) -> Iterator[Act]:
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


def rolled_to_another_version(draw: Draw) -> Iterator[Act]:
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


def clock_is_set(draw: Draw) -> Iterator[Act]:
    """A wall clock jumps, and after ten minutes its time is believed. Gangs come before that, and about then."""
    at, ahead = draw.rng.uniform(4.0, 8.0), draw.pick((-1.0, 1.0)) * draw.pick((60.0, 3_600.0, 86_400.0))
    yield draw.act(at, "set_clock", draw.anyone(), ahead, 700.0)
    for number, when in enumerate((1.0, at + 2.0, at + 590.0, at + 605.0, at + 650.0)):
        ends = {"annotations": {"vcd.sim/run-seconds": str(draw.number(2, 20))}}
        yield draw.act(when, "submit", f"gang-{number}", *(draw.number(1, 3),) * 2, 1, {}, ends)
    if draw.often(0.5):
        yield draw.act(at + draw.pick((300.0, 640.0)), "kill", -1, 1.0)


def carried_out_late(draw: Draw) -> Iterator[Act]:
    """The server takes its time with the binds of who leads, and another one leads before it has done them."""
    draw.replicas, at = 2, draw.rng.uniform(4.0, 7.0)
    yield draw.act(at, "hold_writes", -1, 20.0, 1.0, "bindings")
    for number in range(draw.number(3, 6)):
        yield draw.act(at + 0.5 * number, "submit", f"gang-{number}", *(draw.number(1, 2),) * 2, 1, {}, {})
    yield draw.act(at + draw.rng.uniform(0.5, 3.0), "kill_leader", 20.0)


def more_than_is_left_of_a_card(draw: Draw) -> Iterator[Act]:
    """Jobs ask for two cards each of a queue that may have an odd number of them, and end; perhaps that is edited."""
    details = {"labels": card_labels(MODELS[0]), "room": {GPU: "8"}}
    quota = draw.pick((1, 3, 5))
    yield draw.act(0.0, "add_node", "with-cards", 8, details)
    yield draw.act(0.0, "add_queue", "carded", {"capability": {"cpu": "16"}}, _quota(quota))
    for number in range(draw.number(3, 5)):
        marks = {"volcano.sh/card.name": MODELS[0], "vcd.sim/run-seconds": str(draw.number(4, 30))}
        more = {"requests": {GPU: "2"}, "annotations": marks}
        yield draw.act(draw.rng.uniform(2.0, 10.0), "submit", f"two-{number}", 1, 1, 1, {"queue": "carded"}, more)
    if draw.often(0.5):
        edited = {"metadata": {"annotations": _quota(quota + draw.pick((-1, 2)))}}
        yield draw.act(draw.rng.uniform(5.0, 20.0), "edit", "queue", "", "carded", edited)


def _quota(cards: int) -> dict[str, str]:
    return {"volcano.sh/card.quota": json.dumps({MODELS[0]: cards})}


def cards_shared_and_alone(draw: Draw) -> Iterator[Act]:
    """Pods come that want whole cards, and memory of one, to nodes of few, and end."""
    for number in range(draw.number(1, 2)):
        cards = draw.number(1, 3)
        room = {"volcano.sh/gpu-number": str(cards), "volcano.sh/gpu-memory": str(8 * cards)}
        yield draw.act(0.0, "add_node", f"with-cards-{number}", 8, {"room": room})
    for number in range(draw.number(4, 8)):
        asked = draw.pick(({"volcano.sh/gpu-number": "1"}, {"volcano.sh/gpu-memory": str(draw.number(2, 8))}))
        more = {"requests": asked, "annotations": {"vcd.sim/run-seconds": str(draw.number(4, 30))}}
        yield draw.act(draw.rng.uniform(2.0, 12.0), "submit", f"carded-{number}", 1, 1, 1, {}, more)


def pods_without_their_group(draw: Draw) -> Iterator[Act]:
    """Somebody deletes PodGroups of a queue that has room for a few pods, and their pods run on; others come to it."""
    room = draw.number(3, 4)
    yield draw.act(0.0, "add_node", "roomy", 8, {})
    yield draw.act(0.0, "add_queue", "narrow", {"capability": {"cpu": str(room)}}, {})
    orphans = draw.number(1, room - 2)
    for number in range(orphans):
        at = draw.rng.uniform(2.0, 4.0)
        yield draw.act(at, "submit", f"orphan-{number}", 1, 1, 1, {"queue": "narrow"}, {})
        yield draw.act(at + draw.pick((3.0, 5.0)), "delete", "group", "default", f"orphan-{number}")
    at = draw.rng.uniform(9.0, 14.0)
    yield draw.act(at, "submit", "next", 1, room - orphans + draw.number(0, 1), 1, {"queue": "narrow"}, {})
    if draw.often(0.5):
        yield draw.act(at + draw.pick((-1.0, 3.0)), "kill", -1, 1.0)


def queues_that_go(draw: Draw) -> Iterator[Act]:
    """Groups and their pods are deleted, and then their queues, while other groups name queues that never were."""
    draw.replicas = draw.pick((1, 2))
    for number in range(draw.number(1, 3)):
        queue, gang, at = f"going-{number}", f"gang-{number}", draw.rng.uniform(2.0, 6.0)
        yield draw.act(at, "add_queue", queue, {"weight": 1}, {})
        yield draw.act(at + 1.0, "submit", gang, 1, 1, 1, {"queue": queue}, {})
        yield draw.act(at + 5.0, "delete_pods", gang, 1)
        yield draw.act(at + 5.0, "delete", "group", "default", gang)
        yield draw.act(at + draw.pick((6.0, 9.0)), "delete", "queue", "", queue)
    yield draw.act(draw.rng.uniform(3.0, 9.0), "submit", "typo", 1, 1, 1, {"queue": "nowhere"}, {})
    yield draw.act(draw.rng.uniform(12.0, 16.0), "delete", "group", "default", "typo")


def bits_that_a_disk_changed(draw: Draw) -> Iterator[Act]:
    """Gangs come and go; again and again all replicas are lost, find bits of their logs changed, and begin anew."""
    draw.replicas = 3
    for round_ in range(draw.number(8, 16)):
        at = 4.0 * round_ + 2.0
        for number, when in enumerate((at, at + 2.0)):
            ends = {"annotations": {"vcd.sim/run-seconds": "5"}}
            yield draw.act(when, "submit", f"gang-{round_}-{number}", 1, 2, 1, {}, ends)
        yield draw.act(at + 2.0 + draw.pick((0.0, 0.5)), "flip_bits", -1, draw.number(2, 4), 0.2)
        yield draw.act(at + 3.5, "lose_disk", -1, 0.2)


def never_told(draw: Draw) -> Iterator[Act]:
    """A watch leaves out that pods end, for whose room others wait, and goes on; who leads finds out when it is time to
    compare."""
    at, total = draw.rng.uniform(5.0, 8.0), sum(draw.nodes.values())
    pods = draw.number(1, total)
    yield draw.act(1.0, "submit", "first", 1, total, 1, {}, {})
    yield draw.act(3.0, "submit", "waits", *(draw.number(1, pods),) * 2, 1, {}, {})
    yield draw.act(at, "spoil", "pod", "drop", draw.number(2, 4) * pods)
    yield draw.act(at + 0.2, "delete_pods", "first", pods)
    yield draw.act(40.0, "compare_at_last")


def moved_as_it_is_decided(draw: Draw) -> Iterator[Act]:
    """Pods are moved to a gang that waits, just as a session decides about those that they leave."""
    at, total = draw.rng.uniform(4.0, 7.0), sum(draw.nodes.values())
    yield draw.act(1.0, "submit", "elsewhere", 2 * total, 1, 1, {}, {})
    moved = {"metadata": {"annotations": {GROUP_NAME: "elsewhere"}}}
    for number in range(draw.number(2, 4)):
        pods = draw.number(2, min(4, total))
        ends = {"annotations": {"vcd.sim/run-seconds": "3"}}
        yield draw.act(at, "edit_amid_session", draw.pick((0.5, 2.0)), f"gang-{number}", draw.number(1, 2), moved)
        yield draw.act(at + 0.1, "submit", f"gang-{number}", pods, pods, 1, {}, ends)
        at += draw.pick((6.0, 9.0))


def grown_unseen(draw: Draw) -> Iterator[Act]:
    """Gangs that run grow, again and again: their minimum is raised before their pods are made, and the watch of groups
    shows it later than that of pods. Some of the pods fit, mostly not all; others end, which makes room."""
    at = draw.rng.uniform(2.0, 4.0)
    gangs = [f"grows-{number}" for number in range(draw.number(2, 4))]
    for name in gangs:
        yield draw.act(1.0, "submit", name, 1, 1, 1, {}, {})
    for number in range(draw.number(4, 8)):
        seconds = draw.pick((0.05, 0.3, 2.0, 8.0))
        grown = draw.number(1, 3), draw.number(1, 2)
        yield draw.act(at, "grow_unseen", "default", draw.pick(gangs), *grown, "podgroups", seconds)
        ends = {"annotations": {"vcd.sim/run-seconds": str(draw.number(1, 5))}}
        yield draw.act(at + draw.pick((0.0, 0.5)), "submit", f"passes-{number}", 1, 1, 1, {}, ends)
        at += draw.rng.uniform(1.0, 4.0)


def one_urgent_job_after_another(draw: Draw) -> Iterator[Act]:
    """Urgent jobs come and end, each after what it evicted was replaced: the last one preempts as the first did."""
    total, pause = sum(draw.nodes.values()), draw.pick((15.0, 20.0))
    yield draw.act(0.1, "add_class", "urgent", 10_000, {})
    yield draw.act(1.0, "submit_deployment", "low", total, 1, PREEMPTABLE)
    at = draw.rng.uniform(8.0, 10.0)
    for number in range(draw.number(3, 5)):
        pods = draw.number(1, min(2, total - 1))  # gang keeps the minimum of one
        ends = {"annotations": {"vcd.sim/run-seconds": "2"}, **RANKED}
        yield draw.act(at, "submit", f"urgent-{number}", pods, pods, 1, _URGENT, ends)
        yield draw.act(at + 12.0, "expect_placed", f"urgent-{number}", pods)
        at += pause
    yield draw.act(at + 12.0, "expect_placed", "low", total)


def refused_beside_others(draw: Draw) -> Iterator[Act]:
    """A webhook refuses the binding of an urgent pod as large as a node for as long as the story lasts; pods that fit
    the same node are placed all the same."""
    name = draw.node()
    cores = draw.nodes[name]
    others = draw.number(1, cores)
    selects = {"spec": {"nodeSelector": {"kubernetes.io/hostname": name}, "priorityClassName": "urgent"}}
    yield draw.act(0.1, "add_class", "urgent", 10_000, {})
    yield draw.act(0.5, "refuse_binds", "default", "refused-0", 900.0)
    at = draw.rng.uniform(3.0, 5.0)
    yield draw.act(at, "submit", "refused", 1, 1, cores, _URGENT, selects)
    for number in range(others):
        chosen = {"spec": {"nodeSelector": {"kubernetes.io/hostname": name}}}
        yield draw.act(at + 3.0 + number, "submit", f"other-{number}", 1, 1, 1, {}, chosen)
        yield draw.act(at + 40.0, "expect_placed", f"other-{number}", 1)


def ended_and_deleted(draw: Draw) -> Iterator[Act]:
    """Groups are admitted, their pods end and are deleted, and the groups stay; a group that needs the whole cluster is
    admitted and placed."""
    total = sum(draw.nodes.values())
    for number in range(draw.number(2, 4)):
        asked = {"minResources": {"cpu": str(max(1, total // 2))}}
        ends = {"annotations": {"vcd.sim/run-seconds": "1"}}
        yield draw.act(1.0 + number, "submit", f"ended-{number}", 1, 1, 1, asked, ends)
        yield draw.act(15.0, "delete_pods", f"ended-{number}", 1)
    yield draw.act(20.0, "submit", "whole", total, total, 1, {"minResources": {"cpu": str(total)}}, {})
    yield draw.act(40.0, "expect_placed", "whole", total)


def borrowed_and_never_run(draw: Draw) -> Iterator[Act]:
    """Pods of one queue are bound to all that another queue deserves, and no kubelet starts them; the other queue gets
    its own back."""
    total = sum(draw.nodes.values())
    yield draw.act(0.1, "add_queue", "owner", {"deserved": {"cpu": str(total)}, "reclaimable": False}, {})
    yield draw.act(0.1, "add_queue", "borrower", {"reclaimable": True}, {})
    for name in draw.nodes:
        yield draw.act(1.0, "late", f"kubelet/{name}", 60.0)
    for number in range(total):
        yield draw.act(2.0, "submit", f"borrows-{number}", 1, 1, 1, {"queue": "borrower"}, PREEMPTABLE)
    at, pods = draw.rng.uniform(10.0, 14.0), draw.number(1, total)
    yield draw.act(at, "submit", "owns", pods, pods, 1, {"queue": "owner"}, {})
    for number in range(total if pods == total else 0):
        yield draw.act(at + 20.0, "expect_evicted", f"borrows-{number}", 1)
    yield draw.act(at + 100.0, "expect_placed", "owns", pods)
