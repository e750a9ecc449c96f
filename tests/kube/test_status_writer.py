"""Statuses: what is written, what is not, and what happens when the object has changed meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.kube.recorded import answer, exchange
from tests.kube.scripted import Answer, HastyClock, ScriptedServer, Seen, client_of, failure, running, scripted, until
from vcd.kube import status_writer as module
from vcd.kube.status_writer import StatusWriter
from vcd.model.events import GroupStatus, QueueUsage
from vcd.model.objects import Condition, PodGroupStatus

UNSCHEDULABLE = ("Unschedulable", "True", "NotEnoughResources", "2/2 tasks in gang unschedulable")


class Store:
    """One object as the API server keeps it, with merge patches and versions."""

    def __init__(self, server: ScriptedServer, path: str, obj: dict[str, Any]) -> None:
        self.object = obj
        self.version = 10
        obj.setdefault("metadata", {})["resourceVersion"] = "10"
        server.on("GET", path, lambda seen: Answer(200, self.object))
        server.on("PATCH", path, self._patch)

    def _patch(self, seen: Seen) -> Answer:
        wanted = seen.body.get("metadata", {}).get("resourceVersion")
        if wanted and wanted != self.object["metadata"]["resourceVersion"]:
            recorded = exchange("renew from a stale copy")["response"]
            return Answer(recorded["status"], recorded["body"])
        self.merge(seen.body)
        return Answer(200, self.object)

    def merge(self, patch: dict[str, Any]) -> None:
        self.object = _merge(self.object, patch)
        self.version += 1
        self.object["metadata"]["resourceVersion"] = str(self.version)


def _merge(old: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    merged = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merge(merged.get(key), value)
    return merged


class Fixture:
    def __init__(self, server: ScriptedServer, writer: StatusWriter, clock: HastyClock) -> None:
        self.server, self.writer, self.clock = server, writer, clock
        self.leading = True
        self.with_nodes = set[str]()
        self.opposite = set[str]()
        """Types of conditions whose opposite was decided."""

    def group(self, **status: Any) -> Store:
        return Store(self.server, "/namespaces/ns/podgroups/g", {"spec": {"minMember": 2}, "status": status})

    def queue(self, **status: Any) -> Store:
        return Store(self.server, "/queues/q", {"spec": {"weight": 2}, "status": status})

    async def groups(self, *groups: GroupStatus, transition: str = "") -> None:
        self.writer.submit_groups(groups, transition)
        await self.writer.wait_until_idle()

    async def condition(self, condition: Condition, uid: str = "u") -> None:
        self.writer.submit_pod_condition("ns/p", uid, condition)
        await self.writer.wait_until_idle()

    async def again(self) -> None:
        self.writer.retry_unwritten()
        await self.writer.wait_until_idle()

    def patches(self) -> list[Any]:
        return [seen.body for seen in self.server.calls("PATCH")]


@asynccontextmanager
async def writing(in_flight: int = 64, **options: Any) -> AsyncIterator[Fixture]:
    clock = HastyClock()
    async with scripted() as server, client_of(server, in_flight=in_flight) as client:
        is_pending = lambda key: key not in f.with_nodes  # noqa: E731
        is_current = lambda key, type: type not in f.opposite  # noqa: E731
        options |= {"is_pending": is_pending, "is_current": is_current}
        writer = StatusWriter(client, lambda: f.leading, clock=clock, rand=lambda: 0.5, **options)
        f = Fixture(server, writer, clock)
        async with running(writer.run()):
            yield f


@pytest.fixture(name="f")
async def fixture() -> AsyncIterator[Fixture]:
    async with writing() as f:
        yield f


async def test_a_groups_phase_and_counts_are_written_with_the_object(f: Fixture) -> None:
    store = f.group(phase="Inqueue")
    await f.groups(GroupStatus("ns/g", "Running", running=2))
    assert f.patches() == [{"metadata": {"resourceVersion": "10"}, "status": {"phase": "Running", "running": 2}}]
    assert store.object["spec"] == {"minMember": 2}


async def test_the_recorded_group_is_read_and_written(f: Fixture) -> None:
    f.server.on("GET", "podgroups/g-pg", answer("get PodGroup"))
    f.server.on("PATCH", "podgroups/g-pg", answer("get PodGroup"))
    await f.groups(GroupStatus("default/g-pg", "Running"))
    version = answer("get PodGroup").body["metadata"]["resourceVersion"]
    assert f.patches() == [{"metadata": {"resourceVersion": version}, "status": {"phase": "Running"}}]


async def test_an_unchanged_group_is_not_written(f: Fixture) -> None:
    f.group(phase="Running", running=2)
    await f.groups(GroupStatus("ns/g", "Running", running=2))
    assert f.patches() == []


async def test_a_group_is_read_only_once(f: Fixture) -> None:
    f.group()
    for phase in ("Pending", "Inqueue", "Running"):
        await f.groups(GroupStatus("ns/g", phase))
    assert len(f.server.calls("GET")) == 1
    assert [patch["status"]["phase"] for patch in f.patches()] == ["Pending", "Inqueue", "Running"]


async def test_a_group_that_the_watch_told_of_is_not_read() -> None:
    """Fifty thousand statuses are fifty thousand requests, not twice as many."""
    async with writing(known_group={"ns/g": ("10", PodGroupStatus(phase="Inqueue"), "")}.get) as f:
        f.group(phase="Inqueue")
        await f.groups(GroupStatus("ns/g", "Running", running=2))
        assert f.server.calls("GET") == []
        assert f.patches() == [{"metadata": {"resourceVersion": "10"}, "status": {"phase": "Running", "running": 2}}]


async def test_a_group_that_changed_since_the_watch_told_of_it_is_read() -> None:
    async with writing(known_group={"ns/g": ("9", PodGroupStatus(phase="Pending", running=7), "")}.get) as f:
        store = f.group(phase="Inqueue", running=1)
        await f.groups(GroupStatus("ns/g", "Running", running=2))
        assert len(f.server.calls("GET")) == 1
        assert [patch["metadata"]["resourceVersion"] for patch in f.patches()] == ["9", "10"]
        assert store.object["status"] == {"phase": "Running", "running": 2}


async def test_a_group_that_was_refused_until_given_up_is_read_before_it_is_written_again() -> None:
    """What the watch knows may be behind what refused it: the next status is not written by that version either."""
    refused = exchange("renew from a stale copy")["response"]
    async with writing(known_group={"ns/g": ("9", PodGroupStatus(phase="Inqueue"), "")}.get) as f:
        f.server.on("GET", "/namespaces/ns/podgroups/g", lambda _: Answer(500, {}))
        f.server.on("PATCH", "/namespaces/ns/podgroups/g", lambda _: Answer(refused["status"], refused["body"]))
        await f.groups(GroupStatus("ns/g", "Running", running=1))
        assert [patch["metadata"]["resourceVersion"] for patch in f.patches()] == ["9"]
        store = f.group(phase="Inqueue")
        await f.groups(GroupStatus("ns/g", "Running", running=2))
        assert [patch["metadata"]["resourceVersion"] for patch in f.patches()] == ["9", "10"]
        assert store.object["status"] == {"phase": "Running", "running": 2}


@pytest.mark.parametrize("end", ["deleted", "gone for the server alone", "the Lease is lost"])
async def test_a_group_that_is_gone_is_doubted_no_more(end: str) -> None:
    """What refused a write says nothing of the next group of that name, nor of what a later term lists."""
    refused = exchange("renew from a stale copy")["response"]
    async with writing(known_group={"ns/g": ("9", PodGroupStatus(phase="Inqueue"), "")}.get) as f:
        f.server.on("GET", "/namespaces/ns/podgroups/g", lambda _: Answer(500, {}))
        f.server.on("PATCH", "/namespaces/ns/podgroups/g", lambda _: Answer(refused["status"], refused["body"]))
        await f.groups(GroupStatus("ns/g", "Running", running=1))
        if end == "deleted":
            f.writer.forget("PodGroup", "ns/g")
        elif end == "the Lease is lost":
            f.writer.begin_term()
        else:
            f.server.on("GET", "/namespaces/ns/podgroups/g", lambda _: failure(404, "NotFound", ""))
            await f.groups(GroupStatus("ns/g", "Running", running=2))
        f.server.on("GET", "/namespaces/ns/podgroups/g", lambda _: Answer(500, {}))
        f.server.on("PATCH", "/namespaces/ns/podgroups/g", lambda seen: Answer(200, {"metadata": {}}))
        await f.groups(GroupStatus("ns/g", "Running", running=3))
        assert f.patches()[-1] == {"metadata": {"resourceVersion": "9"}, "status": {"phase": "Running", "running": 3}}


async def test_what_is_too_much_to_wait_is_told_by_its_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CAPACITY", 2)
    dropped: list[str] = []
    async with writing(on_dropped=dropped.append) as f:
        for name in "abc":
            f.writer.submit_groups([GroupStatus(f"ns/{name}", "Running")])
        f.writer.submit_queues([QueueUsage("q", {}), QueueUsage("r", {})])  # the first takes the place of a group
        f.writer.submit_pod_condition("ns/p", "u", Condition("PodScheduled", "False", "Unschedulable", "m"))
        await f.writer.wait_until_idle()
    assert dropped == ["PodGroup", "PodGroup", "Queue", "Pod"]


async def test_counts_go_back_to_zero(f: Fixture) -> None:
    store = f.group(phase="Running", running=2)
    await f.groups(GroupStatus("ns/g", "Pending"))
    assert store.object["status"]["running"] == 0


async def test_a_condition_is_added_beside_the_others(f: Fixture) -> None:
    store = f.group(conditions=[{"type": "Scheduled", "status": "True"}])
    await f.groups(GroupStatus("ns/g", "Pending", UNSCHEDULABLE), transition="s-7")
    assert store.object["status"]["conditions"] == [
        {"type": "Scheduled", "status": "True"},
        {
            "type": "Unschedulable",
            "status": "True",
            "reason": "NotEnoughResources",
            "message": "2/2 tasks in gang unschedulable",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
            "transitionID": "s-7",
        },
    ]


async def test_a_condition_that_says_the_same_is_not_written(f: Fixture) -> None:
    f.group()
    await f.groups(GroupStatus("ns/g", "Pending", UNSCHEDULABLE), transition="s-7")
    await f.groups(GroupStatus("ns/g", "Pending", UNSCHEDULABLE), transition="s-8")
    assert len(f.patches()) == 1


@pytest.mark.parametrize("length", [4096, 4097, 300_000])
async def test_the_message_of_a_condition_is_cut(f: Fixture, length: int) -> None:
    """A pod with 15,000 resources made a condition of 304,012 characters."""
    f.server.on("PATCH", "pods/p/status", Answer(200, {}))
    f.group()
    condition = (*UNSCHEDULABLE[:3], "x" * length)
    for _ in range(2):
        await f.groups(GroupStatus("ns/g", "Pending", condition))
        await f.condition(Condition("PodScheduled", "False", "Unschedulable", "x" * length))
    assert [len(each["status"]["conditions"][0]["message"]) for each in f.patches()] == [4096, 4096]


async def test_a_condition_that_changes_its_words_keeps_its_transition_time(f: Fixture) -> None:
    store = f.group()
    await f.groups(GroupStatus("ns/g", "Pending", UNSCHEDULABLE))
    f.clock.now += 60
    await f.groups(GroupStatus("ns/g", "Pending", (*UNSCHEDULABLE[:3], "1/2 tasks")))
    condition = store.object["status"]["conditions"][0]
    assert (condition["message"], condition["lastTransitionTime"]) == ("1/2 tasks", "2026-01-01T00:00:00Z")


async def test_a_condition_that_its_opposite_followed_is_set_anew(f: Fixture) -> None:
    store = f.group(conditions=[{"type": "Other", "status": "True"}])
    scheduled = ("Scheduled", "True", "tasks in gang are ready to be scheduled", "")
    await f.groups(GroupStatus("ns/g", "Running", scheduled), transition="s-1")
    await f.groups(GroupStatus("ns/g", "Running", UNSCHEDULABLE), transition="s-2")
    f.clock.now += 60
    await f.groups(GroupStatus("ns/g", "Running", scheduled), transition="s-3")
    found = [(each["type"], each.get("transitionID")) for each in store.object["status"]["conditions"]]
    assert found == [("Other", None), ("Unschedulable", "s-2"), ("Scheduled", "s-3")]
    assert store.object["status"]["conditions"][-1]["lastTransitionTime"] == "2026-01-01T00:01:00Z"
    await f.groups(GroupStatus("ns/g", "Running", scheduled), transition="s-4")
    assert len(f.patches()) == 3


async def test_a_group_that_changed_meanwhile_is_read_again(f: Fixture) -> None:
    store = f.group()
    await f.groups(GroupStatus("ns/g", "Pending"))
    store.merge({"metadata": {"annotations": {"a": "b"}}})
    await f.groups(GroupStatus("ns/g", "Inqueue"))
    assert store.object["status"]["phase"] == "Inqueue"
    assert store.object["metadata"]["annotations"] == {"a": "b"}
    assert [seen.method for seen in f.server.seen] == ["GET", "PATCH", "PATCH", "GET", "PATCH"]


async def test_a_group_that_is_gone_is_left(f: Fixture) -> None:
    f.server.on("GET", "podgroups", failure(404, "NotFound", ""))
    with capture_logs() as told:
        await f.groups(GroupStatus("ns/g", "Pending"))
    assert (len(f.server.seen), told) == (1, [])


async def test_a_queues_allocation_goes_to_its_status_alone(f: Fixture) -> None:
    f.queue(state="Open", allocated={"cpu": "1", "nvidia.com/gpu": "8"})
    f.writer.submit_queues([QueueUsage("q", {"cpu": "2", "memory": "1Gi"})])
    await f.writer.wait_until_idle()
    assert f.patches() == [{"status": {"allocated": {"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": None}}}]
    assert f.server.calls("PATCH")[0].path.endswith("/queues/q/status")


async def test_an_unchanged_queue_is_not_written(f: Fixture) -> None:
    f.queue()
    for _ in range(2):
        f.writer.submit_queues([QueueUsage("q", {"cpu": "2"})])
        await f.writer.wait_until_idle()
    assert len(f.patches()) == 1


async def test_a_pod_condition_is_a_strategic_patch_of_its_status(f: Fixture) -> None:
    f.server.on("PATCH", "pods/p/status", answer("patch status conditions"))
    await f.condition(Condition("PodScheduled", "False", "Unschedulable", "0/1 nodes are available"))
    call = f.server.calls("PATCH")[0]
    recorded = exchange("patch status conditions")["request"]
    assert call.headers["Content-Type"] == recorded["headers"]["Content-Type"]
    assert call.body["metadata"] == {"uid": "u"}
    condition = dict(call.body["status"]["conditions"][0])
    assert condition.pop("lastTransitionTime") == "2026-01-01T00:00:00Z"
    assert condition == recorded["body"]["status"]["conditions"][0]


async def test_an_unchanged_pod_condition_is_not_written(f: Fixture) -> None:
    f.server.on("PATCH", "pods/p/status", Answer(200, {}))
    for _ in range(2):
        await f.condition(Condition("PodScheduled", "False", "Unschedulable", "no"))
    assert len(f.patches()) == 1


async def test_a_pod_condition_that_changes_its_words_keeps_its_transition_time(f: Fixture) -> None:
    f.server.on("PATCH", "pods/p/status", Answer(200, {}))
    await f.condition(Condition("PodScheduled", "False", "Unschedulable", "no"))
    await f.condition(Condition("PodScheduled", "False", "Unschedulable", "still no"))
    assert "lastTransitionTime" not in f.patches()[1]["status"]["conditions"][0]


async def test_a_new_pod_of_that_name_gets_its_condition(f: Fixture) -> None:
    f.server.on("PATCH", "pods/p/status", Answer(200, {}))
    for uid in ("u", "v"):
        await f.condition(Condition("PodScheduled", "False", "Unschedulable", "no"), uid)
    assert [patch["metadata"]["uid"] for patch in f.patches()] == ["u", "v"]


IMMUTABLE = 'Pod "p" is invalid: metadata.uid: Invalid value: "u": field is immutable'
ANOTHER = "Precondition failed: UID in precondition: u, UID in object meta: v"


@pytest.mark.parametrize(("status", "message"), [(404, ""), (409, ANOTHER), (422, IMMUTABLE)])
async def test_a_condition_of_a_pod_that_is_gone_is_dropped(f: Fixture, status: int, message: str) -> None:
    f.server.on("PATCH", "pods/p/status", failure(status, "", message))
    with capture_logs() as told:
        await f.condition(Condition("PodScheduled", "False", "Unschedulable", "no"))
    assert (len(f.patches()), told) == (1, [])


@pytest.mark.parametrize("fault", [
    Answer(drop=True), failure(503, "ServiceUnavailable", ""), failure(429, "", ""),
    failure(409, "Conflict", "the object has been modified"),
])  # fmt: skip
async def test_trouble_passes(f: Fixture, fault: Answer) -> None:
    f.server.on("PATCH", "pods/p/status", fault, Answer(200, {}))
    with capture_logs() as told:
        await f.condition(Condition("PodScheduled", "False", "Unschedulable", "no"))
    assert (len(f.patches()), told) == (2, [])


async def test_trouble_that_lasts_is_given_up_and_told(f: Fixture) -> None:
    f.server.on("PATCH", "pods/p/status", failure(503, "ServiceUnavailable", ""))
    with capture_logs() as told:
        await f.condition(Condition("PodScheduled", "False", "Unschedulable", "no"))
    assert (len(f.patches()), [line["event"] for line in told]) == (5, ["status_not_written"])


async def test_a_refused_write_is_told_and_not_repeated(f: Fixture) -> None:
    f.server.on("PATCH", "pods/p/status", failure(403, "Forbidden", ""))
    with capture_logs() as told:
        await f.condition(Condition("PodScheduled", "False", "Unschedulable", "no"))
    assert (len(f.patches()), [line["event"] for line in told]) == (1, ["status_refused"])


async def test_a_refused_condition_is_written_again_ever_later(f: Fixture) -> None:
    """A webhook denies it for a while; nobody says it again of a pod whose group waits as before."""
    f.server.on("PATCH", "pods/p/status", failure(403, "Forbidden", ""))
    await f.condition(Condition("PodScheduled", "False", "Unschedulable", "no"))
    written = []
    for _ in range(10):
        await f.again()
        written.append(len(f.patches()) - 1)
        f.clock.now += 10
    assert written == [1, 2, 2, 3, 3, 3, 4, 4, 4, 5]
    f.server.on("PATCH", "pods/p/status", Answer(200, {}))
    f.clock.now += 40
    await f.again()
    assert f.patches()[-1]["status"]["conditions"][0]["message"] == "no"
    f.clock.now += 40
    await f.again()
    assert len(f.patches()) == 7


@pytest.mark.parametrize("end", ["it is deleted", "it has a node", "another leads", "it is told something else"])
async def test_a_refused_condition_of_a_pod_is_not_written_again_after(f: Fixture, end: str) -> None:
    f.server.on("PATCH", "pods/p/status", failure(403, "Forbidden", ""), Answer(200, {}))
    await f.condition(Condition("PodScheduled", "False", "Unschedulable", "no"))
    if end == "it is deleted":
        f.writer.forget("Pod", "ns/p")
    elif end == "it has a node":
        f.with_nodes.add("ns/p")
    else:
        f.leading = end != "another leads"
        await f.condition(Condition("PodScheduled", "False", "Unschedulable", "still no"))
        f.leading = True
    before = len(f.patches())
    await f.again()
    f.with_nodes.clear()
    f.clock.now += 40
    await f.again()
    assert len(f.patches()) == before


async def test_only_the_newest_is_written_after_trouble(f: Fixture) -> None:
    def trouble(seen: Seen) -> Answer:
        f.server.on("PATCH", "pods/p/status", Answer(200, {}))
        f.writer.submit_pod_condition("ns/p", "u", Condition("PodScheduled", "False", "Unschedulable", "newer"))
        return failure(503, "ServiceUnavailable", "")

    f.server.on("PATCH", "pods/p/status", trouble)
    await f.condition(Condition("PodScheduled", "False", "Unschedulable", "older"))
    messages = [patch["status"]["conditions"][0]["message"] for patch in f.patches()]
    assert messages == ["older", "newer"]


@pytest.mark.parametrize(
    ("newer", "written"),
    [
        (("Scheduled", "True", "", "now"), ["now"]),
        (("Scheduled", "True", "", "shown"), []),  # it is as it was
    ],
)
async def test_a_group_that_waits_for_its_turn_is_written_as_it_is_then(
    newer: tuple[str, str, str, str], written: list[str]
) -> None:
    """Its gang was placed while the writes of others went first: it is not called unschedulable any more."""
    shown, looked = {"type": "Scheduled", "status": "True", "message": "shown"}, list[str]()

    def known(key: str) -> tuple[str, PodGroupStatus, str]:
        looked.append(key)
        return "10", PodGroupStatus(phase="Inqueue", conditions=(Condition("Scheduled", "True", "", "shown"),)), ""

    async def in_the_way(seen: Seen) -> Answer:
        f.writer.submit_groups([GroupStatus("ns/g", "Inqueue", UNSCHEDULABLE)])
        await until(lambda: looked)
        f.writer.submit_groups([GroupStatus("ns/g", "Inqueue", newer)])
        return Answer(200, {})

    async with writing(in_flight=1, known_group=known) as f:
        f.group(phase="Inqueue", conditions=[shown])
        f.server.on("PATCH", "pods/p/status", in_the_way)
        await f.condition(Condition("PodScheduled", "False", "Unschedulable", "no"))
        groups = [seen.body for seen in f.server.calls("PATCH") if "podgroups" in seen.path]
        assert [patch["status"]["conditions"][-1]["message"] for patch in groups] == written


@pytest.mark.parametrize("waits", ["for others", "for the server", "for a worker"])
async def test_a_condition_is_not_lost_to_figures_that_come_before_it_is_written(waits: str) -> None:
    """The next session only counts another pod as running."""
    looked, figures = list[str](), GroupStatus("ns/g", "Running", running=1)

    def known(key: str) -> None:
        looked.append(key)

    async def in_the_way(seen: Seen) -> Answer:
        f.writer.submit_groups([GroupStatus("ns/g", "Inqueue", UNSCHEDULABLE)], "session-1")
        await until(lambda: looked or waits == "for a worker")
        f.writer.submit_groups([figures], "session-2")
        return Answer(200, {})

    def trouble(seen: Seen) -> Answer:
        f.group(phase="Inqueue")
        f.writer.submit_groups([figures], "session-2")
        return failure(503, "ServiceUnavailable", "")

    concurrency = 1 if waits == "for a worker" else 2
    async with writing(in_flight=1, known_group=known, concurrency=concurrency) as f:
        f.group(phase="Inqueue")
        if waits == "for the server":
            f.server.on("PATCH", "podgroups/g", trouble)
            f.writer.submit_groups([GroupStatus("ns/g", "Inqueue", UNSCHEDULABLE)], "session-1")
        else:
            f.server.on("PATCH", "pods/p/status", in_the_way)
            f.writer.submit_pod_condition("ns/p", "u", Condition("PodScheduled", "False", "Unschedulable", "no"))
        await f.writer.wait_until_idle()
        told = f.patches()[-1]["status"]
        assert (told["phase"], told["running"]) == ("Running", 1)
        assert [each["transitionID"] for each in told["conditions"]] == ["session-1"]


async def test_of_a_pod_that_was_bound_while_it_waited_for_its_turn_nothing_is_written() -> None:
    async with writing(in_flight=1) as f:

        def in_the_way(seen: Seen) -> Answer:
            f.with_nodes.add("ns/p")
            return Answer(200, {})

        f.server.on("PATCH", "pods/o/status", in_the_way)
        f.server.on("PATCH", "pods/p/status", Answer(200, {}))
        for key in ("ns/o", "ns/p"):
            f.writer.submit_pod_condition(key, "u", Condition("PodScheduled", "False", "Unschedulable", "no"))
        await f.writer.wait_until_idle()
        assert [seen.path for seen in f.server.calls("PATCH")] == ["/api/v1/namespaces/ns/pods/o/status"]


async def test_of_a_group_that_was_placed_while_it_waited_for_its_turn_it_is_not_said_that_it_waits() -> None:
    async with writing(in_flight=1) as f:

        def in_the_way(seen: Seen) -> Answer:
            f.opposite.add("Unschedulable")
            return Answer(200, {})

        store = f.group(phase="Inqueue")
        f.server.on("PATCH", "pods/p/status", in_the_way)
        f.writer.submit_pod_condition("ns/p", "u", Condition("PodScheduled", "False", "Unschedulable", "no"))
        f.writer.submit_groups([GroupStatus("ns/g", "Running", UNSCHEDULABLE)])
        await f.writer.wait_until_idle()
        assert store.object["status"] == {"phase": "Running"}


async def test_a_replica_that_does_not_lead_writes_nothing(f: Fixture) -> None:
    f.group()
    f.leading = False
    await f.groups(GroupStatus("ns/g", "Pending"))
    assert f.server.seen == []


async def test_a_replica_that_leads_again_trusts_nothing_it_wrote_before(f: Fixture) -> None:
    store = f.queue()
    f.writer.submit_queues([QueueUsage("q", {"cpu": "2"})])
    await f.writer.wait_until_idle()
    f.leading = False
    f.writer.submit_queues([QueueUsage("q", {"cpu": "3"})])
    await f.writer.wait_until_idle()
    store.merge({"status": {"allocated": {"cpu": "9"}}})  # by the leader meanwhile
    f.leading = True
    f.writer.submit_queues([QueueUsage("q", {"cpu": "2"})])
    await f.writer.wait_until_idle()
    assert store.object["status"]["allocated"] == {"cpu": "2"}


async def test_a_new_queue_of_that_name_is_written(f: Fixture) -> None:
    f.queue()
    f.writer.submit_queues([QueueUsage("q", {"cpu": "2"})])
    await f.writer.wait_until_idle()
    store = f.queue()
    f.writer.forget("Queue", "q")
    f.writer.submit_queues([QueueUsage("q", {"cpu": "2"})])
    await f.writer.wait_until_idle()
    assert store.object["status"]["allocated"] == {"cpu": "2"}


async def test_what_a_restored_server_has_no_more_is_written_again_after_a_list(f: Fixture) -> None:
    f.queue()
    f.writer.submit_queues([QueueUsage("q", {"cpu": "2"})])
    await f.writer.wait_until_idle()
    store = f.queue()  # as it was before
    f.writer.forget_all("Pod")
    f.writer.submit_queues([QueueUsage("q", {"cpu": "2"})])
    await f.writer.wait_until_idle()
    assert "allocated" not in store.object.get("status", {})
    f.writer.forget_all("Queue")
    f.writer.submit_queues([QueueUsage("q", {"cpu": "2"})])
    await f.writer.wait_until_idle()
    assert store.object["status"]["allocated"] == {"cpu": "2"}


async def test_writes_under_way_are_bounded() -> None:
    async with writing(concurrency=3) as f:
        under_way = most = 0

        async def slow(seen: Seen) -> Answer:
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            await until(lambda: under_way == 3 or len(f.patches()) == 6)
            under_way -= 1
            return Answer(200, {})

        f.server.on("PATCH", "pods", slow)
        for index in range(6):
            f.writer.submit_pod_condition(f"ns/p{index}", "u", Condition("PodScheduled", "False", "U", "m"))
        await f.writer.wait_until_idle()
        assert most == 3


def group_of(f: Fixture, uid: str) -> Store:
    store = f.group(phase="Pending")
    store.object["metadata"]["uid"] = uid
    return store


async def test_an_answer_that_comes_after_the_group_went_says_nothing_about_the_next_one(f: Fixture) -> None:
    """PATCH was carried out, its answer is late; the watch tells first that the group is gone."""
    store, answered = group_of(f, "u-1"), asyncio.Event()

    async def late(seen: Seen) -> Answer:
        answer = store._patch(seen)
        await answered.wait()
        return answer

    f.server.on("PATCH", "/namespaces/ns/podgroups/g", late)
    f.writer.submit_groups([GroupStatus("ns/g", "Inqueue")], uid="u-1")
    await until(lambda: f.server.calls("PATCH"))
    f.writer.forget("PodGroup", "ns/g")
    answered.set()
    await f.writer.wait_until_idle()
    again = group_of(f, "u-2")  # the next one of that name
    f.writer.submit_groups([GroupStatus("ns/g", "Inqueue")], uid="u-2")
    await f.writer.wait_until_idle()
    assert again.object["status"]["phase"] == "Inqueue"


async def test_a_status_of_a_group_that_went_is_not_written_to_the_next_one(f: Fixture) -> None:
    """What was decided on a group is tried again while it is deleted and made anew."""
    store = group_of(f, "u-1")
    f.server.on("PATCH", "/namespaces/ns/podgroups/g", failure(503, "ServiceUnavailable"), store._patch)
    again: list[Store] = []
    sleep = f.clock.sleep

    async def remade(seconds: float) -> None:
        f.writer.forget("PodGroup", "ns/g")
        again.append(group_of(f, "u-2"))
        await sleep(seconds)

    f.clock.sleep = remade  # type: ignore[method-assign]
    f.writer.submit_groups([GroupStatus("ns/g", "Inqueue")], uid="u-1")
    await f.writer.wait_until_idle()
    assert again
    assert again[0].object["status"]["phase"] == "Pending"


async def test_conditions_that_were_refused_in_one_term_are_not_written_in_the_next(f: Fixture) -> None:
    """A webhook refuses; the Lease goes to another replica, which writes something newer, and comes back."""
    f.server.on("PATCH", "/pods/p", failure(403, "Forbidden", "a webhook says no"))
    await f.condition(Condition("PodScheduled", "False", "Unschedulable", "old: by the first term"))
    shown = Store(f.server, "/pods/p", {"status": {"conditions": ["new: by another leader"]}})
    for kind in ("Pod", "Node", "PodGroup"):
        f.writer.forget_all(kind)  # a new leader lists
    f.writer.begin_term()  # as StatusReporter does
    f.clock.now += 60
    await f.again()
    assert shown.object["status"]["conditions"] == ["new: by another leader"]


async def test_what_waits_to_be_sent_when_a_term_ends_is_not_sent_in_the_next() -> None:
    """The replica leads again before the request had its turn; what it begins with is written."""
    words = Condition("PodScheduled", "False", "Unschedulable", "by the first term")
    async with writing(in_flight=1) as f:
        f.server.on("PATCH", "/pods/first", Answer(200, {}, hang=True))
        shown = Store(f.server, "/pods/p", {})
        f.writer.submit_pod_condition("ns/first", "u", words)
        await until(lambda: f.server.seen)
        f.writer.submit_pod_condition("ns/p", "u", words)
        await until(lambda: f.writer._work.pending(("Pod", "ns/p")) is None)
        f.writer.begin_term()
        f.group(phase="Pending")
        f.writer.submit_groups([GroupStatus("ns/g", "Inqueue")])
        f.server.closing.set()
        await f.writer.wait_until_idle()
        assert shown.version == 10
        assert [patch["status"]["phase"] for patch in f.patches() if "phase" in patch["status"]] == ["Inqueue"]


async def test_a_status_that_somebody_took_away_is_written_again() -> None:
    """PodGroup has no status subresource: who replaces the whole object by its manifest takes the status away."""
    shown: dict[str, tuple[str, PodGroupStatus, str]] = {}
    async with writing(known_group=shown.get) as f:
        store = f.group(phase="Pending")
        shown["ns/g"] = "10", PodGroupStatus(phase="Pending"), ""
        await f.groups(GroupStatus("ns/g", "Inqueue"))
        assert store.object["status"]["phase"] == "Inqueue"
        shown["ns/g"] = "11", PodGroupStatus(phase="Inqueue"), ""
        # kubectl replace -f podgroup.yaml
        store.object = {"metadata": {"resourceVersion": "12"}, "spec": {"minMember": 2}, "status": {}}
        store.version = 12
        shown["ns/g"] = "12", PodGroupStatus(), ""
        await f.groups(GroupStatus("ns/g", "Inqueue"))  # the next session admits it again
        assert store.object["status"].get("phase") == "Inqueue"
