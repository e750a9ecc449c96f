"""Queue status where no controller of Volcano's keeps it: the daemon does."""

from __future__ import annotations

from pathlib import Path

import pytest
from aiohttp import web

from tests.e2e.cluster import GROUPS, QUEUES, Cluster, Daemon, Obj, failed, group, until, until_quiet
from tests.e2e.standalone import FLAG, alone
from tests.e2e.test_leadership import two
from tests.sizes import some
from vcd.model import events as ev

MARK = "volcano.sh/closed-by-parent"


def add_queue(cluster: Cluster, name: str, **spec: object) -> None:
    cluster.store.create(QUEUES, {"kind": "Queue", "metadata": {"name": name}, "spec": {"weight": 1, **spec}})


def status(cluster: Cluster, name: str) -> Obj:
    shown: Obj = (cluster.store.find(QUEUES, None, name) or {}).get("status") or {}
    return shown


def state(cluster: Cluster, name: str) -> str:
    return str(status(cluster, name).get("state", ""))


def counts(cluster: Cluster, name: str) -> Obj:
    """The counts that are not 0."""
    shown = status(cluster, name)
    return {
        phase: shown[phase] for phase in ("pending", "inqueue", "running", "unknown", "completed") if shown.get(phase)
    }


def write_state(cluster: Cluster, name: str, value: str) -> None:
    """What ``kubectl patch queue NAME --subresource=status`` does."""
    cluster.store.patch(QUEUES, None, name, {"status": {"state": value}}, "status")


def last_seen(daemon: Daemon, name: str) -> bytes:
    """The payload of a queue as the daemon's log has it last."""
    puts = [event for event in daemon.events("put") if isinstance(event, ev.ObjectPut)]
    return [put.payload for put in puts if (put.kind, put.key) == ("Queue", name) and put.payload is not None][-1]


def writes_of_queues(cluster: Cluster) -> int:
    return sum(made.call.verb == "patch" and made.call.resource == QUEUES for made in cluster.made)


async def series_of_groups(daemon: Daemon) -> tuple[set[str], set[str]]:
    """The series that count groups by phase: those of vcd, and those of Volcano's queue controller."""
    await daemon.until_metric("vcd_cluster_nodes", 1)
    page = await daemon.metrics()
    ours = {line for line in page if line.startswith("vcd_queue_pod_groups{")}
    return ours, {line for line in page if line.startswith("volcano_queue_pod_group_")}


async def test_queues_are_open_and_count_their_groups_by_phase(tmp_path: Path) -> None:
    async with alone(tmp_path, cpu=4) as cluster:
        daemon = await cluster.started("a", FLAG)
        await until(lambda: (state(cluster, "root"), state(cluster, "default")) == ("Open", "Open"))
        keys = cluster.submit("runs", 2)
        cluster.submit("waits", 1, cpu=3)
        await cluster.until_bound(keys)
        await until(lambda: counts(cluster, "default") == {"running": 1, "inqueue": 1}, what="both are counted")
        await until(lambda: status(cluster, "default").get("allocated", {}).get("cpu") == "2", what="who runs, too")
        ours, theirs = await series_of_groups(daemon)
        assert len(theirs) == len(ours) > 0
        cluster.store.delete(GROUPS, "default", "waits")
        await until(lambda: counts(cluster, "default") == {"running": 1}, what="one is gone")
        assert daemon.lines("queue status not written") == []


@pytest.mark.parametrize("flags", some(1, [(("--controllers=podgroup",),), ((),)]))
async def test_without_the_flag_only_what_is_allocated_is_written_and_the_controllers_series_are_its_own(
    tmp_path: Path, flags: tuple[str, ...]
) -> None:
    """Where a controller of Volcano's exposes its series, a sum over both would count each group twice."""
    async with alone(tmp_path) as cluster:
        daemon = await cluster.started("a", *flags)
        await cluster.until_bound(cluster.submit("runs", 2))
        await until(lambda: status(cluster, "default"), what="what is allocated is written")
        assert set(status(cluster, "default")) == {"allocated"}
        ours, theirs = await series_of_groups(daemon)
        assert ours
        assert theirs == set()


async def test_a_queue_is_closed_once_its_groups_are_gone_and_opened_again(tmp_path: Path) -> None:
    async with alone(tmp_path) as cluster:
        add_queue(cluster, "q")
        daemon = await cluster.started("a", FLAG)
        await until(lambda: state(cluster, "q") == "Open", what="it is open")
        cluster.store.create(GROUPS, group("g", 1, queue="q"))
        await until(lambda: counts(cluster, "q").get("inqueue") == 1, what="its group is admitted")
        write_state(cluster, "q", "Closing")
        # each kind has a watch of its own: a group that is seen before the state is admitted
        await until(lambda: b"Closing" in last_seen(daemon, "q"), what="the state is seen")
        cluster.store.create(GROUPS, group("late", 1, queue="q"))
        await until(lambda: counts(cluster, "q").get("pending") == 1, what="nothing new is admitted")
        assert state(cluster, "q") == "Closing"
        for name in ("g", "late"):
            cluster.store.delete(GROUPS, "default", name)
        await until(lambda: state(cluster, "q") == "Closed", what="it is closed")
        write_state(cluster, "q", "Open")
        cluster.store.create(GROUPS, group("after", 1, queue="q"))
        await until(lambda: counts(cluster, "q").get("inqueue") == 1, what="it admits groups again")
        assert state(cluster, "q") == "Open"


async def test_a_closed_queue_closes_its_children_and_opens_them_again(tmp_path: Path) -> None:
    async with alone(tmp_path) as cluster:
        for name, parent in (("top", "root"), ("child", "top"), ("shut", "top"), ("leaf", "child")):
            add_queue(cluster, name, parent=parent)
        await cluster.started("a", FLAG)
        names = ("top", "child", "shut", "leaf")
        await until(lambda: {state(cluster, name) for name in names} == {"Open"}, what="all are open")
        write_state(cluster, "shut", "Closed")
        await until(lambda: state(cluster, "shut") == "Closed")
        write_state(cluster, "top", "Closed")
        await until(lambda: {state(cluster, name) for name in names} == {"Closed"}, what="all are closed")
        marks = {name: cluster.store.get(QUEUES, None, name)["metadata"].get("annotations", {}) for name in names}
        assert [name for name in names if marks[name].get(MARK) == "true"] == ["child", "leaf"]
        write_state(cluster, "top", "Open")
        await until(lambda: [state(cluster, name) for name in names] == ["Open", "Open", "Closed", "Open"])


async def test_a_new_leader_writes_only_what_changed(tmp_path: Path) -> None:
    async with alone(tmp_path) as cluster:
        leader, follower = await two(cluster, FLAG)
        keys = cluster.submit("runs", 2)
        await cluster.until_bound(keys)
        await until(lambda: counts(cluster, "default") == {"running": 1}, what="it is counted")
        await leader.kill()
        cluster.submit("more", 1)
        await until(lambda: counts(cluster, "default") == {"running": 2}, what="the next leader counts on")
        assert cluster.leader() is follower


@pytest.mark.parametrize(
    "status_code, reason", some(1, [(409, "Conflict"), (500, "InternalError"), (403, "Forbidden")])
)
async def test_what_fails_is_told_once_and_tried_again(tmp_path: Path, status_code: int, reason: str) -> None:
    seen: list[str] = []

    def fails(request: web.Request) -> web.Response | None:
        if request.method != "PATCH" or not request.path.endswith("/queues/q/status"):
            return None
        seen.append(request.path)
        return failed(status_code, reason)

    async with alone(tmp_path) as cluster:
        add_queue(cluster, "q")
        with cluster.faults(fails):
            daemon = await cluster.started("a", FLAG)
            await until(lambda: state(cluster, "default") == "Open", what="the others are written")
            await until(lambda: len(seen) > 2, what="it is tried again and again")
            told = [line["error"] for line in daemon.lines("queue status not written") if line["queue"] == "q"]
            assert set(told) == {f"{status_code} {reason}: injected"}
            assert len(told) < len(seen)
            assert state(cluster, "q") == ""
        await until(lambda: state(cluster, "q") == "Open", what="it is written at last")


async def test_a_queue_that_is_replaced_shows_its_counts_again(tmp_path: Path) -> None:
    async with alone(tmp_path) as cluster:
        add_queue(cluster, "q")
        await cluster.started("a", FLAG)
        cluster.store.create(GROUPS, group("g", 1, queue="q"))
        await until(lambda: counts(cluster, "q") == {"inqueue": 1}, what="it is counted")
        cluster.store.delete(QUEUES, None, "q")  # as `kubectl replace --force` does
        add_queue(cluster, "q")
        await until(
            lambda: (state(cluster, "q"), counts(cluster, "q")) == ("Open", {"inqueue": 1}), what="and the new one"
        )


async def test_a_queue_is_written_when_it_changes_or_somebody_overwrote_its_counts(tmp_path: Path) -> None:
    async with alone(tmp_path) as cluster:
        daemon = await cluster.started("a", FLAG)
        await cluster.until_bound(cluster.submit("runs", 1))
        await until(lambda: counts(cluster, "default") == {"running": 1})
        await until(lambda: state(cluster, "root") == "Open", what="the other queue is written")
        await until_quiet(daemon)
        written = writes_of_queues(cluster)
        add_queue(cluster, "q")
        await until(lambda: state(cluster, "q") == "Open", what="a look came by")
        assert writes_of_queues(cluster) == written + 1
        cluster.store.patch(QUEUES, None, "default", {"status": {"running": 7, "pending": 3}}, "status")
        await until(lambda: counts(cluster, "default") == {"running": 1}, what="it is counted again")
        written = writes_of_queues(cluster)
        await until_quiet(daemon)
        assert writes_of_queues(cluster) == written


@pytest.mark.parametrize("code", some(1, [500, 429, 403]))
async def test_a_child_is_opened_again_where_its_status_is_refused_for_a_while(tmp_path: Path, code: int) -> None:
    async with alone(tmp_path) as cluster:
        for name, parent in (("top", "root"), ("child", "top")):
            add_queue(cluster, name, parent=parent)
        daemon = await cluster.started("a", FLAG)
        await until(lambda: {state(cluster, name) for name in ("top", "child")} == {"Open"}, what="all are open")
        write_state(cluster, "top", "Closed")
        await until(lambda: state(cluster, "child") == "Closed", what="both are closed")
        left = [1]

        async def once(request: web.Request) -> web.Response | None:
            its_status = request.method == "PATCH" and request.path.endswith("/queues/child/status")
            if not (its_status and left[0] and b'"state"' in await request.read()):
                return None
            left[0] -= 1
            return failed(code, "Injected")

        with cluster.faults(once):
            write_state(cluster, "top", "Open")
            await until(lambda: not left[0], what="it was refused once")
            await until(lambda: daemon.lines("queue status not written"))
            await until(lambda: state(cluster, "child") == "Open", what="the child is open again")
        await until(lambda: cluster.store.get(QUEUES, None, "child")["metadata"]["annotations"].get(MARK) == "false")
