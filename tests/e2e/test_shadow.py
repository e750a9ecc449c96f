"""``vcd run --shadow``: it decides beside another scheduler and does nothing, and what it tells of both is true."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from click.testing import CliRunner

from tests.e2e.beside import DECIDING, SHADOW, ShadowedCluster, first_fit
from tests.e2e.cluster import GROUPS, LEASES, QUEUES, Cluster, Daemon, Obj, failed, group, pod, set_text, until
from tests.e2e.first_fit import LEFT_ALONE
from tests.e2e.standalone import FLAG, added, bare
from tests.sizes import WIDE
from tests.waiting import WAIT_LIMIT
from vcd.cli import main
from vcd.eventlog import Logged, LogReader
from vcd.model import events as ev
from vcd.model.objects import Pod
from vcd.model.projection_codec import decode_payload
from vcd.timetravel.history import opened
from vcd.timetravel.shadow.shadow_comparison import ShadowDifference, compare_shadow

JOBS = 500 if WIDE else 100
SMALL = "small"
"""A queue that may have 10 cpu, which the other scheduler does not know."""


def add(cluster: Cluster, name: str, *, cpu: int = 1, queue: str = "default", alone: bool = False) -> str:
    """A job of one pod; its key. ``alone``: the other scheduler does not bind it."""
    cluster.store.create(GROUPS, group(name, 1, queue=queue))
    made = pod(f"{name}-0", name, cpu)
    made["metadata"]["annotations"] |= {LEFT_ALONE: "true"} if alone else {}
    cluster.store.create("pods", made)
    return f"default/{name}-0"


def add_small_queue(cluster: Cluster) -> None:
    cluster.store.create(QUEUES, {"metadata": {"name": SMALL}, "spec": {"weight": 1, "capability": {"cpu": "10"}}})


def vcd(*arguments: str) -> tuple[int, str]:
    """A command's exit code and output."""
    done = CliRunner().invoke(main, arguments)
    return done.exit_code, done.output


async def ended(daemon: Daemon) -> None:
    daemon.signal(signal.SIGTERM)
    assert await daemon.ended() == 0


def verbs(cluster: Cluster) -> set[str]:
    return {made.call.verb for made in cluster.made if made.identity == SHADOW}


# --- it writes nothing ------------------------------------------------------------------------------------------------


async def test_nothing_is_asked_of_the_server_but_to_read(tmp_path: Path) -> None:
    async with ShadowedCluster(
        tmp_path
    ) as cluster:  # and nothing is refused by its roles, which this checks at its end
        cluster.add_nodes(1, 4)
        shadow = await cluster.shadow()
        keys = [add(cluster, f"job-{number}", cpu=2) for number in range(3)]
        add_small_queue(cluster)
        cluster.store.create(
            QUEUES, {"metadata": {"name": "wrong"}, "spec": {"weight": 1, "capability": {"cpu": "-1"}}}
        )
        async with first_fit(cluster):
            await cluster.until_bound(keys[:2])
        await until(lambda: puts_of(shadow, "Queue", "wrong"), what="a queue that contradicts itself is seen")
        await until(lambda: len(waiting_of(shadow)) == 1, what="one job waits")
        await ended(shadow)
        assert verbs(cluster) == {"list", "watch"}
        assert cluster.lease() is None
        assert cluster.store.list("events", "default") == []


def waiting_of(daemon: Daemon) -> set[str]:
    """The groups that wait, by the sessions of a log."""
    waits: dict[str, tuple[ev.Waiting, ...]] = {}
    for session in daemon.sessions():
        waits = ev.waits_after(waits, ev.decode_plan(session.plan).waiting)
    return set(waits)


async def test_it_says_that_it_is_a_shadow(tmp_path: Path) -> None:
    async with ShadowedCluster(tmp_path) as cluster:
        shadow = await cluster.shadow()
        async with aiohttp.ClientSession() as session, session.get(f"{shadow.health_url}/healthz") as answer:
            assert (answer.status, "shadow" in await answer.text()) == (200, True)
        shown = await shadow.metrics()
        assert shown["vcd_shadow"] == 1
        told_of_sessions = ("vcd_leader", "vcd_epoch", "vcd_waiting_groups", "volcano_queue_")
        assert [name for name in shown if name.startswith(told_of_sessions)] == []


async def test_it_says_what_it_may_not_list(tmp_path: Path) -> None:
    def refuse(request: aiohttp.web.Request) -> aiohttp.web.Response | None:
        return failed(403, "Forbidden", "not for you") if "/priorityclasses" in request.path else None

    async with ShadowedCluster(tmp_path) as cluster:
        with cluster.faults(refuse):
            shadow = await cluster.start(SHADOW, "--shadow", "--leader-elect-list-deadline=3s")
            await until(lambda: shadow.lines("started"), what="it has started")
            async with aiohttp.ClientSession() as session:

                async def ready() -> str:
                    async with session.get(f"{shadow.health_url}/readyz") as answer:
                        return await answer.text()

                async with asyncio.timeout(WAIT_LIMIT):
                    # the probe tells when it is asked
                    while "a kind cannot be listed: PriorityClass: 403 Forbidden: not for you" not in await ready():  # noqa: ASYNC110
                        await asyncio.sleep(0.05)
        await until(lambda: shadow.lines(DECIDING), what="it decides once it may")


async def test_a_leader_beside_it_is_not_disturbed(tmp_path: Path) -> None:
    async with ShadowedCluster(tmp_path) as cluster:
        cluster.add_nodes(2)
        shadow = await cluster.shadow()
        leader = await cluster.started("a")
        await cluster.until_bound(cluster.submit("gang", 8))
        assert cluster.leader() is leader
        assert (await leader.metrics())["vcd_shadow"] == 0
        assert verbs(cluster) == {"list", "watch"}
        assert cluster.writes(shadow) == []
        assert [made for made in cluster.calls(shadow) if made.call.resource == LEASES] == []


@pytest.mark.parametrize("first", [("--shadow",), ()], ids=["of a shadow", "of a scheduler"])
async def test_a_log_is_a_shadows_or_a_schedulers(tmp_path: Path, first: tuple[str, ...]) -> None:
    async with ShadowedCluster(tmp_path) as cluster:
        cluster.add_nodes(1)
        one = await cluster.shadow() if first else await cluster.started("a")
        add(cluster, "job")
        await until(one.sessions, what="a session is logged")
        await ended(one)
        other = await cluster.start("b", *(() if first else ("--shadow",)), log=one.log)
        assert await other.ended() == 2
        (said,) = other.lines("stopped")
        assert "needs one of its own" in said["reason"]
        code, text = vcd("shadow", str(one.log))
        assert (code, "it is not the log of a shadow" in text) == ((0, False) if first else (2, True))


# --- what it decides --------------------------------------------------------------------------------------------------


async def test_what_it_decided_takes_no_room(tmp_path: Path) -> None:
    async with ShadowedCluster(tmp_path) as cluster:
        cluster.add_nodes(1, 4)
        shadow = await cluster.shadow()
        first = add(cluster, "job-a", cpu=4, alone=True)
        await until(lambda: first in given(shadow), what="it is given the node")
        add(cluster, "job-b", cpu=4, alone=True)
        await until(lambda: waiting_of(shadow) == {"default/job-b"}, what="the other one waits")
        cluster.store.delete("pods", "default", "job-a-0")
        cluster.store.delete(GROUPS, "default", "job-a")
        await until(lambda: "default/job-b-0" in given(shadow), what="the other one is given the node")
        assert (cluster.binds, waiting_of(shadow)) == ([], set())


def given(daemon: Daemon) -> dict[str, str]:
    """The nodes that sessions gave pods, as they were last."""
    return {one.key: one.node for session in daemon.sessions() for one in session.accepted().operations("bind")}


async def test_what_it_said_already_is_not_logged_again(tmp_path: Path) -> None:
    async with ShadowedCluster(tmp_path) as cluster:
        cluster.add_nodes(2, 4)
        shadow = await cluster.shadow()
        left = add(cluster, "job", alone=True)
        await until(lambda: left in given(shadow), what="it is given a node")
        before = len(shadow.sessions())
        for number in range(20):
            seen = len(puts_of(shadow, "Node", "node-00"))
            labels = {"metadata": {"labels": {"example.com/number": str(number)}}}
            cluster.store.patch("nodes", None, "node-00", labels)
            await until(lambda seen=seen: len(puts_of(shadow, "Node", "node-00")) > seen)
        add(cluster, "another", alone=True)  # of which a session tells after all of these
        await until(lambda: "default/another-0" in given(shadow), what="the next is given a node")
        news = shadow.sessions()[before:]
        assert [one.session for one in news if b"default/another" not in one.plan] == []
        assert len(news) <= 2  # its group may be seen before its pod is


def puts_of(daemon: Daemon, kind: str, key: str) -> list[ev.ObjectPut]:
    return [one for one in daemon.events("put") if isinstance(one, ev.ObjectPut) and (one.kind, one.key) == (kind, key)]


async def test_explanations_say_what_would_have_been(tmp_path: Path) -> None:
    async with ShadowedCluster(tmp_path) as cluster:
        cluster.add_nodes(2, 4)
        shadow = await cluster.shadow()
        key = add(cluster, "job", alone=True)
        await until(lambda: key in given(shadow), what="it is given a node")
        log = f"--event-log={shadow.log}"
        for kind, name in (("job", "job"), ("pod", "job-0"), ("session", "1")):
            code, told = vcd("explain", kind, name, *(() if kind == "session" else ("--all",)), log)
            assert code == 0, told
            assert ("would have bound" in told) or ("nothing was carried out" in told), told
            assert ") bound" not in told, told
            assert "call" not in told, told
        answer = vcd("explain", "job", "job", log)[1]
        assert "the active scheduler did not" in answer
        assert "Shadow   would have bound it to node-0" in answer
        assert "Placed" not in answer


async def test_what_ifs_of_its_log_run_what_was_submitted(tmp_path: Path) -> None:
    async with ShadowedCluster(tmp_path) as cluster:
        cluster.add_nodes(2, 4)
        (ahead := tmp_path / "ahead").write_text("0")
        shadow = await cluster.shadow(E2E_WALL_AHEAD=str(ahead))
        keys = [add(cluster, f"job-{number}") for number in range(4)]
        async with first_fit(cluster):
            await cluster.until_bound(keys)
        await until(lambda: len(bound_in(shadow)) == 4, what="the log shows it")
        # a run ends with the log: who came last finds its session there
        set_text(ahead, "4")
        cluster.store.patch("nodes", None, "node-00", {"metadata": {"labels": {"seen": "yes"}}})
        await until(lambda: len(puts_of(shadow, "Node", "node-00")) > 1, what="the log goes on for some seconds")
        await ended(shadow)
        code, told = vcd("whatif", str(shadow.log), "--seed", "1", "-o", "json")
        assert code == 0, told
        waits = [run["waits"] for run in json.loads(told)["runs"]]
        assert [(each["jobs"], each["never"]) for each in waits] == [(4, 0)] * 3


def bound_in(daemon: Daemon) -> dict[str, str]:
    """The nodes of pods, as a log shows them."""
    found = {}
    for event in daemon.events("put"):
        if isinstance(event, ev.ObjectPut) and event.kind == "Pod" and event.payload is not None:
            obj = decode_payload("Pod", event.payload)
            assert isinstance(obj, Pod)
            if obj.spec.node_name:
                found[event.key] = obj.spec.node_name
    return found


# --- the comparison ---------------------------------------------------------------------------------------------------


async def test_of_many_jobs_every_difference_is_true(tmp_path: Path) -> None:
    async with ShadowedCluster(tmp_path) as cluster:
        cluster.add_nodes(40, 16)
        add_small_queue(cluster)
        early = add(cluster, "early")  # waits already when the shadow begins to look
        shadow = await cluster.shadow()
        await until(lambda: early in given(shadow), what="it sees who waits")
        async with first_fit(cluster):
            keys, alone = [], []
            for number in range(JOBS):
                queue, left = (SMALL if number % 5 == 0 else "default"), number % 50 == 7
                key = add(cluster, f"job-{number:03}", queue=queue, alone=left)
                (alone if left else keys).append(key)
                if number % 20 == 19:  # they come in their time
                    await cluster.until_bound(keys)
        await until(lambda: bound_in(shadow).keys() >= set(keys), what="the log shows it")
        await ended(shadow)
        assert verbs(cluster) == {"list", "watch"}
        found = compare_shadow(shadow.log)
        assert {one.pod for one in found.differences} == {early, *keys, *alone}
        assert sum(found.pods.values()) == JOBS + 1
        assert found.pods["only-vcd"] == len(alone) == JOBS // 50
        assert found.pods["kept-back"] > 0
        assert found.pods["other-node"] > 0
        assert [one.pod for one in found.differences if not one.timed] == [early]
        with LogReader(shadow.log) as reader:
            events = list(reader.read())
        for one in found.differences:
            check(one, events)
        check_reasons(shadow.log, [one for one in found.differences if one.kind == "kept-back"])
        check_queues(found.queues, found.differences)
        check_command(shadow.log, found.pods)


def shown_pods(events: list[Logged], key: str) -> Iterator[tuple[Logged, Pod]]:
    for logged in events:
        event = logged.event
        if isinstance(event, ev.ObjectPut) and (event.kind, event.key) == ("Pod", key) and event.payload is not None:
            obj = decode_payload("Pod", event.payload)
            assert isinstance(obj, Pod)
            yield logged, obj


def check(one: ShadowDifference, events: list[Logged]) -> None:
    """Whether what is told of a pod is what the log's own rows show."""
    gave = [
        (logged.event, operation)
        for logged in events
        if isinstance(logged.event, ev.SessionDecided)
        for operation in logged.event.accepted().operations("bind")
        if operation.key == one.pod
    ]
    bound = next(((logged, obj) for logged, obj in shown_pods(events, one.pod) if obj.spec.node_name), None)
    assert (bound is not None) == bool(one.bound_to)
    if bound is not None:
        assert one.bound_to == bound[1].spec.node_name
        assert one.bound_at == written(bound[0].time)
    if gave:
        session, operation = gave[0]
        assert (one.session, one.node, one.at) == (session.session, operation.node, written(session.now))
        assert one.kind == ("only-vcd" if bound is None else "same-node" if one.node == one.bound_to else "other-node")
        end = events[-1].time if bound is None else bound[0].time
        assert one.seconds == pytest.approx((end - session.now) / 1e9)
    else:
        assert (one.kind in ("kept-back", "undecided"), one.node, one.seconds) == (True, "", None)


def written(nanoseconds: int) -> str:
    from vcd.model.wording import rfc3339

    return rfc3339(nanoseconds, 3)


def check_reasons(log: Path, kept_back: list[ShadowDifference]) -> None:
    """Whether the sessions that are named, decided again, keep those pods waiting for what is told."""
    with opened(log) as history:
        for one in kept_back[:: max(1, len(kept_back) // 10)]:
            record, session = history.rerun(one.session)
            task = next(row for row, key in enumerate(session.snapshot.tasks.keys) if key == one.pod)
            assert task >= 0
            assert one.pod not in {operation.key for operation in record.accepted().operations("bind")}
            group = one.pod.removesuffix("-0")
            waits = ev.waits_after(session.snapshot.waiting, ev.decode_plan(record.plan).waiting)[group]
            assert one.why.startswith("queue"), one.why
            assert {"queue-capability", "queue-deserved"} & {one.cause}, one.cause
            assert any(waiting.gate in ("queue", "enqueue") for waiting in waits)


def check_queues(queues: list[Any], differences: list[ShadowDifference]) -> None:
    for queue in queues:
        leads = sorted(
            one.seconds
            for one in differences
            if one.queue == queue.queue and one.timed and one.bound_to and one.seconds is not None
        )
        assert (queue.timed, queue.most) == (len(leads), leads[-1])
        assert leads[0] <= queue.p50 <= queue.p95 <= queue.most
    assert [queue.queue for queue in queues] == ["default", SMALL]


def check_command(log: Path, pods: dict[str, int]) -> None:
    """What the command prints is the same."""
    code, text = vcd("shadow", str(log), "-o", "json", "--limit", "3")
    printed: Obj = json.loads(text)
    assert (code, printed["pods"], len(printed["differences"])) == (0, pods, 3)
    code, text = vcd("shadow", str(log), "--kind", "kept-back")
    assert code == 0
    assert f"{pods['kept-back']}  kept-back" in text


async def test_what_happened_while_it_did_not_look_is_not_timed(tmp_path: Path) -> None:
    async with ShadowedCluster(tmp_path) as cluster:
        cluster.add_nodes(2, 4)
        shadow = await cluster.shadow()
        before = add(cluster, "before")
        await until(lambda: before in given(shadow), what="it is given a node")
        await ended(shadow)
        async with first_fit(cluster):
            await cluster.until_bound([before])
        again = await cluster.shadow()
        after = add(cluster, "after")
        await until(lambda: after in given(again), what="the next is given a node")
        async with first_fit(cluster):
            await cluster.until_bound([after])
        await until(lambda: after in bound_in(again), what="the log shows it")
        await ended(again)
        timed = {one.pod: one.timed for one in compare_shadow(again.log).differences}
        assert timed == {before: False, after: True}


async def test_pods_that_are_given_their_group_later_are_told_of_with_its_queue(tmp_path: Path) -> None:
    async with ShadowedCluster(tmp_path) as cluster:
        for right in added():
            cluster.may(right.verb, right.group, right.resource, namespace=right.namespace, name=right.name)
        cluster.add_nodes(1, 8)
        add_small_queue(cluster)
        shadow = await cluster.shadow()
        await cluster.started("a", FLAG)
        for number in range(3):
            cluster.store.create("pods", bare(f"bare-{number}", **{"scheduling.volcano.sh/queue-name": SMALL}))
        await cluster.until_bound([f"default/bare-{number}" for number in range(3)])
        await until(lambda: len(bound_in(shadow)) == 3, what="the log shows it")
        found = compare_shadow(shadow.log)
        assert [one.queue for one in found.differences] == [SMALL] * 3
        assert [queue.queue for queue in found.queues] == [SMALL]
