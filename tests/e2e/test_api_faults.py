"""An API server that refuses, fails, is slow, answers nothing, or ends watches: each bind happens once all the same."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from aiohttp import web

from tests.e2e.cluster import (
    GROUPS,
    LEASES,
    QUEUES,
    Cluster,
    Daemon,
    failed,
    group,
    is_bind,
    node,
    until,
)
from tests.embedded.disturbed import Habits
from vcd.model import events as ev
from vcd.state.backoff import after_refusal

Hook = Callable[[web.Request], web.Response | None]


class Once:
    """Answers the first bind of each pod by ``answer``, and counts all binds."""

    def __init__(self, answer: Callable[[], web.Response]) -> None:
        self.asked: Counter[str] = Counter()
        self._answer = answer

    def __call__(self, request: web.Request) -> web.Response | None:
        if not is_bind(request):
            return None
        self.asked[request.path] += 1
        return self._answer() if self.asked[request.path] == 1 else None


def results(daemon: Daemon) -> Counter[str]:
    """The outcomes in a replica's log."""
    return Counter(event.result for event in daemon.events("outcome") if isinstance(event, ev.OperationDone))


async def test_a_refusal_for_now_and_an_error_are_tried_again_not_before_the_time_that_the_server_names(
    tmp_path: Path,
) -> None:
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(1)
        daemon = await cluster.started("a")
        refused: list[float] = []

        def answer() -> web.Response:
            refused.append(time.monotonic())
            if len(refused) % 2:
                return failed(429, "TooManyRequests", **{"Retry-After": "1"})
            return failed(500, "InternalError")

        with cluster.faults(Once(answer)):
            await cluster.until_bound(cluster.submit("gang", 8))
        assert len(refused) == 8
        assert cluster.binds[-1].at - refused[0] >= 1
        await until(lambda: results(daemon) == {"done": 8})


async def test_a_bind_that_happened_without_an_answer_is_not_repeated(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(1)
        daemon = await cluster.started("a")
        asked: Counter[str] = Counter()

        async def swallow(request: web.Request) -> None:
            if is_bind(request):
                asked[request.path] += 1
                await cluster.carry_out(request)
                await asyncio.Event().wait()

        with cluster.faults(swallow):
            cluster.submit("gang", 8)
            await until(lambda: results(daemon) == {"done": 8})
        assert set(asked.values()) == {1}


async def test_a_bind_that_hangs_holds_up_nothing_else(tmp_path: Path) -> None:
    """Volcano #4692: the sessions go on, so do the lease and what they decide."""
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(1)
        daemon = await cluster.started("a")
        let_go = asyncio.Event()
        hanging: list[str] = []

        async def hang(request: web.Request) -> None:
            if is_bind(request) and "/stuck-" in request.path and not let_go.is_set():
                hanging.append(request.path)
                await let_go.wait()

        with cluster.faults(hang):
            stuck = cluster.submit("stuck", 1)
            await until(lambda: hanging)
            began = time.monotonic()
            for number in range(3):
                await cluster.until_bound(cluster.submit(f"free-{number}", 2))
            await until(lambda: len(hanging) > 1)  # it was given up and is tried again
            renewed = [made for made in cluster.calls(daemon, "update", since=began) if made.call.resource == LEASES]
            assert renewed
            assert not cluster.bound(stuck)
            let_go.set()
            await cluster.until_bound(stuck)
        assert await daemon.health() == 200


async def test_a_doubt_that_lasts_longer_than_all_attempts_is_cleared_in_the_end(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(1)
        daemon = await cluster.started("a")
        looks: Counter[str] = Counter()

        def fail(request: web.Request) -> web.Response | None:
            if is_bind(request):
                return failed(500, "InternalError") if not looks else None
            if request.method == "GET" and request.path.startswith("/api/v1/namespaces/default/pods/"):
                looks[request.path] += 1
                return failed(503, "ServiceUnavailable") if looks[request.path] < 5 else None
            return None

        with cluster.faults(fail):
            await cluster.until_bound(cluster.submit("gang", 2))
        await until(lambda: results(daemon) == {"done": 2})


async def test_a_pod_that_another_bound_is_a_conflict_and_one_that_is_gone_gives_its_room_back(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(2, 4)
        daemon = await cluster.started("a", short=False)  # what is held for a while is not given up
        with cluster.holding_binds() as held:
            cluster.submit("gang", 4, minimum=1)
            await until(lambda: len(held) == 4)
            elsewhere = {"node-00": "node-01", "node-01": "node-00"}[(await _target(held.requests[0]))]
            cluster.store.bind("default", _pod_of(held.requests[0]), {"target": {"name": elsewhere}})
            cluster.store.delete("pods", "default", _pod_of(held.requests[1]))
            held.release()
            await until(lambda: results(daemon) == {"done": 2, "conflict": 1, "gone": 1})
        await cluster.until_bound(cluster.submit("next", 5))


def _pod_of(request: web.Request) -> str:
    return request.path.split("/")[-2]


async def _target(request: web.Request) -> str:
    name: str = (await request.json())["target"]["name"]
    return name


async def test_a_binding_that_is_said_to_be_done_and_is_not_is_looked_up_and_made(tmp_path: Path) -> None:
    done = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(2)
        daemon = await cluster.started("a", E2E_LOOKUP="1")
        with cluster.faults(Once(lambda: web.json_response(done, status=201))):
            await cluster.until_bound(cluster.submit("gang", 4))
        assert results(daemon)["failed"] == 4


async def test_whatever_becomes_of_the_watches_nothing_is_missed(tmp_path: Path) -> None:
    """They are cut, fall silent, are refused, and end with an error: in the end lists report what happens."""
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(3)
        await cluster.started("a", E2E_SILENCE="2")
        await until(lambda: len(cluster.server.open_watches()) > 5)
        assert cluster.server.cut_watches() > 5
        await cluster.until_bound(cluster.submit("cut", 8))
        await until(lambda: len(cluster.server.open_watches()) > 5)
        assert cluster.server.stall_watches() > 5
        await cluster.until_bound(cluster.submit("silent", 8))
        for name, habits in (("refused", Habits(refuse_watches=500)), ("failing", Habits(fail_watches=500))):
            cluster.server.habits = habits
            cluster.server.cut_watches()
            await cluster.until_bound(cluster.submit(name, 4))


async def test_watches_without_bookmarks_of_kinds_where_nothing_happens_are_no_trouble(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(2)
        cluster.server.habits.bookmarks = False
        daemon = await cluster.started("a", E2E_SILENCE="0.8")
        since = time.monotonic()

        def begun_anew() -> int:
            return sum(made.call.resource == QUEUES for made in cluster.calls(daemon, "watch", since=since))

        await until(lambda: begun_anew() > 2)
        metrics = await daemon.metrics()
        assert {name: value for name, value in metrics.items() if "vcd_watch_errors_total" in name and value} == {}
        assert [line for line in daemon.lines() if line["level"] in ("warning", "error")] == []
        await cluster.until_bound(cluster.submit("gang", 16))


async def test_lists_without_a_version_do_not_make_running_pods_vanish(tmp_path: Path) -> None:
    def empty(request: web.Request) -> web.Response | None:
        listed = request.method == "GET" and request.path == "/api/v1/pods" and "watch" not in request.query
        return web.json_response({"kind": "PodList", "metadata": {}, "items": []}) if listed else None

    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(1, cpu=4)
        daemon = await cluster.started("a")
        await cluster.until_bound(cluster.submit("first", 4))
        cluster.server.habits = Habits(list_versions=False, fail_watches=500)
        with cluster.faults(empty):
            cluster.server.cut_watches()
            await until(lambda: any("resourceVersion" in line.get("error", "") for line in daemon.lines()))
        cluster.server.habits = Habits()
        second = cluster.submit("second", 1)
        cluster.store.create("nodes", node("late", 4))
        await cluster.until_bound(second)
        assert not daemon.events("gone")


async def test_a_deletion_while_disconnected_is_found_although_the_history_is_gone(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(1, 4)
        daemon = await cluster.started("a")
        await cluster.until_bound(cluster.submit("old", 4))
        off = [True]

        def no_watch(request: web.Request) -> web.Response | None:
            return failed(503, "ServiceUnavailable") if off[0] and "watch" in request.query else None

        with cluster.faults(no_watch):
            cluster.server.cut_watches()
            for number in range(4):
                cluster.store.delete("pods", "default", f"old-{number}", grace_period=0)
            cluster.store.delete(GROUPS, "default", "old")
            cluster.store.compact()
            off[0] = False
            await cluster.until_bound(cluster.submit("new", 4))
        assert any(
            event.kind == "Pod" and event.key == "default/old-0"
            for event in daemon.events("gone")
            if isinstance(event, ev.ObjectGone)
        )


async def test_a_server_that_is_away_for_a_while_is_waited_for(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(1)
        daemon = await cluster.started("a")
        daemon.wire.cut()
        with cluster.faults(lambda request: failed(503, "ServiceUnavailable")):
            await until(lambda: daemon.lines("lease_not_renewed"))
        await cluster.until_bound(cluster.submit("gang", 8))


async def test_a_gang_that_was_let_in_only_in_part_comes_first_after_its_back_off(tmp_path: Path) -> None:
    """While it backs off it holds nothing, so another job gets the resources that its last pod asks for."""
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(1, 4)
        daemon = await cluster.started("a")
        refusing = [True]

        def refuse(request: web.Request) -> web.Response | None:
            refused = is_bind(request) and refusing[0] and "/first-0/" in request.path
            return failed(403, "Forbidden") if refused else None

        with cluster.faults(refuse):
            keys = cluster.submit("first", 4)
            await until(lambda: results(daemon)["done"] == 3 and results(daemon)["failed"])
            await cluster.until_bound(cluster.submit("between", 1))
            later = cluster.submit("later", 1)
            await until(lambda: _waits(daemon, "default/later"))
            await until(lambda: time.time_ns() > _back_off_ends(daemon, "default/first-0"))
            refusing[0] = False
            cluster.store.delete("pods", "default", "between-0", grace_period=0)
            await cluster.until_bound(keys)
        assert not cluster.bound(later)


def _waits(daemon: Daemon, job: str) -> bool:
    return any(one.group == job for session in daemon.sessions() for one in session.accepted().waiting)


def _back_off_ends(daemon: Daemon, pod: str) -> int:
    """When the pod that was refused is tried again (ns since the epoch)."""
    backoff = None
    for event in daemon.events("outcome"):
        if isinstance(event, ev.OperationDone) and event.refused_at:
            backoff = after_refusal(backoff, pod, "bind", event.refused_at, event.detail)
    assert backoff is not None
    return backoff.until


async def test_a_pod_that_cannot_be_bound_is_not_tried_all_the_time(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(1, 4)
        daemon = await cluster.started("a")
        asked: list[float] = []

        def refuse(request: web.Request) -> web.Response | None:
            if not is_bind(request) or "/bad-0/" not in request.path:
                return None
            asked.append(time.monotonic())
            return failed(403, "Forbidden")

        with cluster.faults(refuse):
            cluster.submit("bad", 1)
            for number in range(8):  # there is always something else to decide on
                await cluster.until_bound(cluster.submit(f"good-{number}", 1, cpu=0))
            await until(lambda: len(asked) == 4)
        gaps = [after - before for before, after in itertools.pairwise(asked)]
        assert all(gap >= least for gap, least in zip(gaps, (0.125, 0.25, 0.5), strict=False))
        assert len(daemon.sessions()) < 40


async def test_a_phase_that_could_not_be_written_for_long_is_written_in_the_end(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        daemon = await cluster.started("a", E2E_HOUSEKEEPING="0.5")
        cluster.add_nodes(1)
        failing = [True]

        def refuse(request: web.Request) -> web.Response | None:
            refused = failing[0] and request.method == "PATCH" and "/podgroups/" in request.path
            return failed(400, "BadRequest") if refused else None

        with cluster.faults(refuse):
            cluster.store.create(GROUPS, group("empty", 1, minResources={"cpu": "1"}))  # its pods come once it may
            await until(lambda: daemon.lines("status_refused"))
            failing[0] = False
            await until(lambda: _phase(cluster, "empty") == "Inqueue")


def _phase(cluster: Cluster, name: str) -> str:
    phase: str = cluster.store.get(GROUPS, "default", name).get("status", {}).get("phase", "")
    return phase
