"""Pods that come to a group which waits already are told why, once a session has seen them."""

from __future__ import annotations

from typing import Any

from tests.dsl import gang, node, pod
from tests.world import World
from vcd.daemon.reporting.late_pods import LatePods
from vcd.model import events as ev

Manifest = dict[str, Any]


class Watched:
    """A cluster whose events are seen as they are folded."""

    def __init__(self, *objects: Any) -> None:
        self.world = World(*objects)
        self.late = LatePods(self.world.state)

    def put(self, *manifests: Manifest) -> None:
        for manifest in manifests:
            self.world.put(manifest)
            self.late.observe(self.world.log[-1])

    def told(self) -> list[str]:
        """Who is told after one more session."""
        sequence = self.world.state.sequence
        self.world.decide()
        return [key for key, _, reasons in self.late.seen(sequence) if reasons]


def too_large() -> list[Manifest]:
    return [node("n", cpu=1), *gang("g", 2, cpu=4)]


def waiting() -> Watched:
    watched = Watched(too_large())
    watched.world.decide()
    return watched


def test_a_pod_that_comes_to_a_group_that_waits_is_told_once() -> None:
    watched = waiting()
    watched.put(pod("g-9", group="g", cpu=4))
    assert watched.told() == ["default/g-9"]
    assert watched.told() == []


def test_a_pod_that_no_session_has_seen_is_told_after_the_next() -> None:
    watched = waiting()
    sequence = watched.world.state.sequence
    watched.put(pod("g-9", group="g", cpu=4))
    assert list(watched.late.seen(sequence)) == []
    assert watched.told() == ["default/g-9"]


def test_who_was_told_is_bound_or_is_gone_is_not_told() -> None:
    watched = waiting()
    shows = pod("told", group="g", cpu=4)
    shows["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
    watched.put(shows, pod("bound", group="g", cpu=1, on="n"), pod("gone", group="g", cpu=4))
    gone = ev.ObjectGone("Pod", "default/gone")
    watched.world.happen(gone)
    watched.late.observe(gone)
    assert watched.told() == []


def test_a_pod_whose_group_waits_for_nothing_is_told_nothing() -> None:
    watched = Watched(node("n"), gang("g", 1, cpu=1))
    watched.put(pod("g-9", group="g", cpu=1))
    assert watched.told() == []


def test_a_new_leader_looks_at_all_that_wait_whatever_they_show_but_gates() -> None:
    watched = waiting()
    shows, gated = pod("shows", group="g", cpu=4), pod("gated", group="g", cpu=4)
    shows["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
    gated["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]
    gated["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
    watched.put(shows, gated)
    assert watched.told() == []
    watched.late.look()
    assert watched.told() == ["default/g-0", "default/g-1", "default/shows"]


def test_who_is_looked_at_anew_while_others_are_told_is_left_to_a_later_session() -> None:
    """A new term begins while a session of the last one is told: what that writes is lost with the Lease."""
    watched = waiting()
    watched.late.look()
    sequence = watched.world.state.sequence
    watched.world.decide()
    told = watched.late.seen(sequence)
    next(told)
    watched.world.decide()
    watched.late.look()
    assert list(told) == []
    assert watched.told() == ["default/g-0", "default/g-1"]


def test_who_does_not_lead_any_more_keeps_nobody() -> None:
    watched = waiting()
    watched.put(pod("g-9", group="g", cpu=4))
    watched.late.forget()
    assert watched.told() == []
