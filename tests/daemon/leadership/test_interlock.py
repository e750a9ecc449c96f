"""Which binds are somebody else's, and which namespaces are held back for it. A daemon does so in
tests/e2e/test_interlock.py, a session in tests/scheduling/test_heldnamespaces.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.kube.scripted import FakeClock, running, until
from vcd.daemon.leadership.interlock import Interlock
from vcd.daemon.metrics.metrics_collector import Metrics
from vcd.daemon.options import parse_options
from vcd.model import events as ev
from vcd.model.projection_codec import encode_payload, from_manifest
from vcd.state.cluster_state import ClusterState


class Leader:
    """A leader's interlock, and what it logs, which is folded at once."""

    def __init__(self, *shown: ev.Event, **flags: list[str]) -> None:
        self.state, self.clock, self.metrics = ClusterState(), FakeClock(), Metrics()
        self.logged: list[ev.ForeignBound] = []
        self.words: list[str] = []
        for event in shown:
            self.state.apply(self.state.sequence + 1, event)
        given = {name.replace("_", "-"): texts for name, texts in flags.items()}
        options = parse_options({"event-log": ["log"], **given})
        self.interlock = Interlock(
            options, self.state, lambda: True, self._log, lambda key, uid, words: self.words.append(words),
            self.metrics, self.clock,
        )  # fmt: skip

    async def _log(self, events: Sequence[ev.Event]) -> None:
        for event in events:
            assert isinstance(event, ev.ForeignBound)
            self.logged.append(event)
            self.state.apply(self.state.sequence + 1, event)

    def see(self, *events: ev.Event) -> None:
        for event in events:
            self.state.apply(self.state.sequence + 1, event)
            self.interlock.observe(event)

    async def foreign(self) -> list[tuple[str, str]]:
        """The foreign binds that it has logged by now: pods and nodes."""
        async with running(self.interlock.run()):
            await until(self.interlock._new.empty)
        return [(event.key, event.node) for event in self.logged]

    async def bind_elsewhere(self, *names: str, namespace: str = "ns") -> None:
        """Have somebody else bind pods, one after the other."""
        for name in names:
            self.see(shown(name, namespace=namespace), shown(name, "n", namespace=namespace))
        await self.foreign()


def shown(name: str, node: str = "", uid: str = "", namespace: str = "ns") -> ev.ObjectPut:
    """A pod as a watch tells of it."""
    meta = {"name": name, "namespace": namespace, "uid": uid or f"u-{name}", "resourceVersion": "9"}
    spec: dict[str, Any] = {"nodeName": node, "schedulerName": "volcano", "containers": []}
    kind, obj, _ = from_manifest({"kind": "Pod", "metadata": meta, "spec": spec})
    return ev.ObjectPut(kind, obj.key, "9", encode_payload(obj))


def bound(name: str, node: str) -> ev.SessionDecided:
    """A session that bound a pod."""
    operation = ev.Operation("bind", f"ns/{name}", f"u-{name}", node)
    plan = ev.Plan(statements=(ev.Statement("ns/g", "allocate", (operation,)),))
    return ev.SessionDecided(1, 1, "p", 0, 0, 0, {}, ev.encode_plan(plan))


async def test_a_bind_that_no_session_decided_is_somebody_elses() -> None:
    leader = Leader(shown("a"))
    leader.see(shown("b"), shown("a", "n"), shown("b", "n"))
    assert await leader.foreign() == [("ns/a", "n"), ("ns/b", "n")]


@pytest.mark.parametrize("since_when", ["start", "watch"])
async def test_a_watch_that_tells_again_how_a_bind_came_about_tells_of_nobody_else(since_when: str) -> None:
    leader = Leader(shown("a", "n")) if since_when == "start" else Leader(shown("a"))
    leader.see(bound("a", "n"), *[shown("a", "n"), shown("a")] * 2, shown("a", "n"))
    assert await leader.foreign() == []


async def test_who_comes_next_under_a_name_is_another_pod() -> None:
    leader = Leader(shown("a", "n"))
    leader.see(shown("a", uid="u-next"), shown("a", "m", "u-next"))
    assert await leader.foreign() == [("ns/a", "m")]


async def test_the_third_foreign_bind_holds_its_namespace_back_and_no_other() -> None:
    leader = Leader()
    await leader.bind_elsewhere("a", "b")
    await leader.bind_elsewhere("x", "y", namespace="other")
    assert leader.state.held_namespaces == {}
    await leader.bind_elsewhere("c")
    assert leader.state.held_namespaces == {"ns": leader.clock.wall() + 300 * 10**9}
    assert leader.interlock.held_back() == 1
    assert "vcd decides nothing in this namespace until" in leader.words[-1]
    assert "vcd_namespaces_held_back 1.0" in leader.metrics.freeze()().decode()


async def test_a_tenant_of_several_namespaces_holds_back_its_own() -> None:
    leader = Leader()
    for namespace in ("mine", "mine-too"):
        await leader.bind_elsewhere(*(f"{number}" for number in range(20)), namespace=namespace)
    assert sorted(leader.state.held_namespaces) == ["mine", "mine-too"]


async def test_foreign_binds_that_are_a_quiet_period_apart_hold_nothing_back() -> None:
    leader = Leader()
    for name in "abcdef":
        await leader.bind_elsewhere(name)
        leader.clock.advance(151)
    assert leader.state.held_namespaces == {}


async def test_each_further_bind_prolongs_a_hold_and_it_ends_after_a_quiet_period() -> None:
    leader = Leader(others_quiet_period=["10s"])
    await leader.bind_elsewhere("a", "b", "c")
    leader.clock.advance(9)
    await leader.bind_elsewhere("d")
    assert leader.state.held_namespaces["ns"] == leader.clock.wall() + 10 * 10**9
    leader.clock.advance(10)
    assert leader.interlock.held_back() == 0
    await leader.bind_elsewhere("e")
    assert leader.interlock.held_back() == 0


async def test_with_the_flag_foreign_binds_are_reported_and_hold_nothing_back() -> None:
    leader = Leader(lead_beside_others=["true"])
    await leader.bind_elsewhere(*"abcde")
    assert (len(leader.logged), leader.state.held_namespaces) == (5, {})


async def test_what_is_remembered_of_many_foreign_binds_is_bounded() -> None:
    leader = Leader()
    await leader.bind_elsewhere(*(f"p{number}" for number in range(200)))
    assert (len(leader.words), len(leader.logged)) == (10, 200)
    assert sum(map(len, leader.interlock._last.values())) == 3
