"""Which binds are somebody else's. What follows of them is tried in tests/e2e/test_interlock.py."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.kube.scripted import FakeClock, running, until
from vcd.daemon.interlock import Interlock
from vcd.daemon.metrics import Metrics
from vcd.daemon.options import parse_options
from vcd.kube.lease import LeaderElector
from vcd.model import events as ev
from vcd.model.codec import encode_payload, from_manifest
from vcd.state.cluster import ClusterState


class Leader:
    """A leader's interlock, and what it tells of; it hears of no other replica, and nothing is under way."""

    def __init__(self, *shown: ev.Event) -> None:
        self.state, self.clock = ClusterState(), FakeClock()
        self.told: list[ev.Event] = []
        for event in shown:
            self.state.apply(self.state.sequence + 1, event)
        elector = SimpleNamespace(holder="a", identity="a", gave_way="", looked_at=0.0, free_since=0.0)
        self.interlock = Interlock(
            parse_options({"event-log": ["log"]}), self.state, cast(LeaderElector, elector), lambda: True, self._log,
            lambda key, uid, words: None, self._settled, lambda: None, Metrics(), self.clock,
        )  # fmt: skip

    async def _log(self, events: Sequence[ev.Event]) -> None:
        self.told += events

    async def _settled(self) -> None:
        pass

    def see(self, *events: ev.Event) -> None:
        for event in events:
            self.state.apply(self.state.sequence + 1, event)
            self.interlock.observe(event)

    async def foreign(self) -> list[tuple[str, str]]:
        """What it has told by its next look."""
        async with running(self.interlock.run()):
            await self.clock.advance_when_asleep(0.3)
            await until(lambda: self.clock.sleeping)
        return [(event.key, event.node) for event in self.told if isinstance(event, ev.ForeignBound)]


def shown(name: str, node: str = "", uid: str = "") -> ev.ObjectPut:
    """A pod as a watch tells of it."""
    meta = {"name": name, "namespace": "ns", "uid": uid or f"u-{name}", "resourceVersion": "9"}
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
