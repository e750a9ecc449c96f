"""Many pods that wait for their volumes at once: how often they ask, and how soon each is answered."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from random import Random
from typing import Any, cast

import pytest

from tests.kube.scripted import FakeClock
from vcd.kube.api_errors import ApiError, LeadershipLost
from vcd.kube.client import KubeClient
from vcd.kube.volume_binder import REPEATS_PER_SECOND, VolumeBinder, VolumeError
from vcd.model.events import Operation, VolumeChoice

MANY = 300
NODE = "g-n1"


class Storage:
    """A client of an API server that answers at once, and a provisioner that makes volumes when a test says so."""

    def __init__(self) -> None:
        self.requests = 0
        self.overloaded = False
        self.provisioned = False

    async def request(
        self, method: str, path: str, *args: Any, fence: Callable[[], bool] | None = None, **options: Any
    ) -> bytes:
        if fence is not None and not fence():
            raise LeadershipLost
        self.requests += 1
        if self.overloaded:
            raise ApiError(429, "TooManyRequests", "later")
        name = path.rpartition("/")[2]
        told = {"volume.kubernetes.io/selected-node": NODE}
        bound = {"pv.kubernetes.io/bind-completed": "yes"} if self.provisioned else {}
        meta = {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "1", "annotations": told | bound}
        spec = {"volumeName": f"v-{name}" if self.provisioned else ""}
        return json.dumps({"kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec}).encode()


class Waiting:
    """Pods that each wait for one claim, as decided in a ``term``; ``ended`` tells when each of them did, and why."""

    def __init__(self, pods: int, **options: Any) -> None:
        self.clock, self.storage = FakeClock(), Storage()
        client = cast(KubeClient, self.storage)
        self.binder = VolumeBinder(client, clock=self.clock, rand=Random(1).random, **options)
        self.term = 1
        self.ended: list[tuple[float, str]] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.add(pods)

    def add(self, pods: int) -> None:
        """More pods, of the term that is."""
        names = [f"c{len(self.tasks) + number}" for number in range(pods)]
        self.tasks += [asyncio.ensure_future(self._bind(name, self.term)) for name in names]

    async def _bind(self, name: str, term: int) -> None:
        operation = Operation("bind", f"ns/{name}", name, NODE, volumes=(VolumeChoice(f"ns/{name}", "", name),))
        try:
            await self.binder.bind(operation, lambda: term == self.term, self._look_at_pod)
            self.ended.append((self.clock.now, ""))
        except VolumeError as error:
            self.ended.append((self.clock.now, error.detail))
        except LeadershipLost as error:
            self.ended.append((self.clock.now, str(error)))

    async def _look_at_pod(self) -> None:
        await self.storage.request("GET", "/api/v1/namespaces/ns/pods/p")

    async def pass_by(self, seconds: float) -> int:
        """Let time pass; how many requests were made meanwhile."""
        before, end = self.storage.requests, self.clock.now + seconds
        while True:
            for _ in range(20):  # what is due runs
                await asyncio.sleep(0)
            if not self.clock.sleeping or self.clock.next_wake > end:
                break
            self.clock.advance(self.clock.next_wake - self.clock.now)
        self.clock.advance(end - self.clock.now)
        return self.storage.requests - before

    async def all_end_within(self, seconds: float) -> bool:
        """Whether each pod is answered so soon, and not one was dropped."""
        await self.pass_by(seconds)
        return len(self.ended) == len(self.tasks)


@pytest.mark.parametrize("overloaded", [False, True])
async def test_the_rate_of_requests_does_not_grow_with_the_pods_that_wait(overloaded: bool) -> None:
    waiting = Waiting(MANY)
    waiting.storage.overloaded = overloaded
    assert await waiting.pass_by(0) <= 3 * MANY
    assert await waiting.pass_by(60) <= 2 * REPEATS_PER_SECOND * (60 + 1)
    waiting.storage.overloaded, waiting.storage.provisioned = False, True
    assert await waiting.all_end_within(MANY / REPEATS_PER_SECOND + 2)
    assert {why for _, why in waiting.ended} == {""}


@pytest.mark.parametrize("pods", [1, 50])
async def test_few_pods_are_answered_within_two_seconds(pods: int) -> None:
    waiting = Waiting(pods)
    await waiting.pass_by(60)
    waiting.storage.provisioned = True
    assert await waiting.all_end_within(2)


async def test_where_many_wait_time_is_up_for_each_at_its_turn() -> None:
    waiting = Waiting(MANY, timeout=30.0)
    began = waiting.clock.now
    await waiting.pass_by(29.9)
    assert waiting.ended == []
    assert await waiting.all_end_within(0.1 + MANY / REPEATS_PER_SECOND + 2)
    assert {why.partition(":")[0] for _, why in waiting.ended} == {"binding volumes took longer than 30 s"}
    assert min(at for at, _ in waiting.ended) >= began + 30.0


async def test_who_waits_when_a_term_is_lost_takes_no_turn_from_the_next_terms_pods() -> None:
    waiting = Waiting(MANY)
    await waiting.pass_by(10)
    waiting.term = 2
    waiting.add(1)
    await waiting.pass_by(0)
    waiting.storage.provisioned = True
    await waiting.pass_by(1)
    assert [why for _, why in waiting.ended].count("") == 1
    assert await waiting.all_end_within(1)  # the longest pause of who had its turn just before
    assert [why for _, why in waiting.ended].count("lost leadership") == MANY
