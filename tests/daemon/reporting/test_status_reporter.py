"""What groups' conditions say: the reasons at once, then the verdict; never what is shown already."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, cast

import msgspec
import pytest

from tests.daemon.cycle.test_session_loop import puts
from tests.dsl import BARE, gang, group, node, pod
from tests.kube.scripted import Answer, FakeClock, client_of, running, scripted
from vcd.daemon.metrics.metrics_collector import Metrics
from vcd.daemon.options import parse_options
from vcd.daemon.reporting.status_reporter import StatusReporter
from vcd.kube.client import KubeClient
from vcd.model import events as ev
from vcd.model.manifests import default_queues
from vcd.model.objects import Condition
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.decide import run
from vcd.scheduling.session_close import plan_of
from vcd.state.cluster_state import ClusterState
from vcd.state.snapshot import SnapshotMaker


class Told:
    """A cluster whose sessions are told to nobody: what would be written of groups is kept, or written by a client."""

    def __init__(
        self, *objects: Any, leads: bool = True, state: ClusterState | None = None, client: KubeClient | None = None
    ) -> None:
        self.state = state or ClusterState()
        self.clock = FakeClock()
        options = parse_options({})
        self.metrics = Metrics()
        self.status_reporter = StatusReporter(
            options, cast(KubeClient, client), self.state, self.metrics, lambda: leads, self.clock
        )
        self.written: list[ev.GroupStatus] = []
        if client is None:
            self.status_reporter.statuses.submit_groups = lambda groups, *_, **__: self.written.extend(groups)  # type: ignore[method-assign]
        self._maker = SnapshotMaker(self.state)
        if state is None:
            self.happen(*puts(*default_queues([]), *objects))

    def happen(self, *events: ev.Event) -> None:
        for event in events:
            self.state.apply(self.state.sequence + 1, event)
            self.status_reporter.observe(event)

    async def session(self, *meanwhile: ev.Event) -> ev.Plan:
        """A session is decided, logged and told; ``meanwhile`` happens while it is decided."""
        plan = self.decide(*meanwhile)
        await self.tell()
        return plan

    def decide(self, *meanwhile: ev.Event) -> ev.Plan:
        """A session is decided and logged, and to be told."""
        policy = read_policy(BARE)
        session = run(self._maker.snapshot(), policy, self.clock.wall(), 0)
        plan = plan_of(session)
        record = ev.SessionDecided(
            self.state.session + 1, self.state.sequence, policy.digest, self.clock.wall(), 0, 1, {},
            ev.encode_plan(plan),
        )  # fmt: skip
        self.happen(*meanwhile, record)
        self.status_reporter.session(record, plan, session, {})
        return plan

    async def tell(self) -> None:
        """All that is to be told."""
        async with running(self.status_reporter.followup.run()):
            await self.status_reporter.followup.idle.wait()

    def uid(self, group: str) -> str:
        """That of a group that is there."""
        return self.state.groups[group].group.metadata.uid

    @property
    def messages(self) -> list[str | None]:
        return [None if one.condition is None else one.condition[3] for one in self.written if one.key == "default/g"]


async def test_the_plan_has_no_words_and_the_condition_the_reasons() -> None:
    told = Told(node("n", cpu=1), gang("g", 1, cpu=2))
    plan = await told.session()
    assert [one.condition for one in plan.groups] == [("Unschedulable", "True", "NotEnoughResources", "")]
    (message,) = told.messages
    assert message is not None and message.startswith("1/1 tasks in gang unschedulable: ")
    assert "Insufficient cpu" in message
    assert "fewer tasks than the minimum" not in message


async def test_a_verdict_takes_its_place_and_stays_when_statuses_are_written_again() -> None:
    told = Told(node("n", cpu=1), gang("g", 1, cpu=2))
    await told.session()
    told.status_reporter.verdict("default/g", "because")
    assert told.written[-1].condition == ("Unschedulable", "True", "NotEnoughResources", "because")
    assert told.written[-1].phase == told.written[0].phase
    told.status_reporter.write_groups_again()
    async with running(told.status_reporter.followup.run()):
        await told.status_reporter.followup.idle.wait()
    assert told.messages[1:] == ["because", "because"]


@pytest.mark.parametrize("shown", [True, False])
async def test_what_is_shown_is_not_written(shown: bool) -> None:
    condition = {"type": "Unschedulable", "status": "True", "reason": "NotEnoughResources", "message": "because"}
    there, *pods = gang("g", 1, cpu=2)
    there = {**there, "status": {**there.get("status", {}), "conditions": [condition] if shown else []}}
    told = Told(node("n", cpu=1), there, *pods)
    await told.session()
    told.happen(*puts(there))
    told.written.clear()
    told.status_reporter.verdict("default/g", "because")
    assert told.written == []  # nobody who has no such condition gets one
    told.status_reporter.verdict("default/g", "for another cause")
    assert told.messages == (["for another cause"] if shown else [])


async def test_of_a_group_that_went_while_its_session_was_decided_nothing_is_kept() -> None:
    told = Told(node("n", cpu=1), gang("g", 1, cpu=2))
    await told.session(ev.ObjectGone("PodGroup", "default/g"))
    assert told.messages == [None]


async def test_a_verdict_that_comes_when_the_gang_has_room_is_not_written() -> None:
    waits = {"type": "Unschedulable", "status": "True", "reason": "NotEnoughResources", "message": "because"}
    there = group("g", members=1)
    conditions = [waits, {"type": "Scheduled", "status": "True"}]
    told = Told({**there, "status": {**there.get("status", {}), "conditions": conditions}})
    told.status_reporter.verdict("default/g", "for another cause")
    assert told.written == []


async def test_a_verdict_that_comes_when_the_gang_was_placed_is_not_written_though_its_old_condition_is_shown() -> None:
    """Somebody edits the group before what was decided of it is written: the watch shows it as it was."""
    told = Told(node("n", cpu=1), gang("g", 1, cpu=2))
    await told.session()
    waits = {"type": "Unschedulable", "status": "True", "reason": "NotEnoughResources", "message": "because"}
    wanted = group("g", members=1)
    shown = {**wanted, "status": {**wanted.get("status", {}), "phase": "Inqueue", "conditions": [waits]}}
    told.happen(*puts(node("n", cpu=2)))
    await told.session()
    told.happen(*puts(shown))
    told.written.clear()
    told.status_reporter.verdict("default/g", "for another cause")
    assert told.written == []


async def test_first_words_are_for_a_group_that_shows_none() -> None:
    before = Told(node("n", cpu=1), gang("g", 1, cpu=2))
    await before.session()
    after = Told(state=before.state)  # a crash: what was decided is in the log, its words are not
    after.status_reporter.verdict("default/g", "what is known", True)
    assert after.messages == ["what is known"]
    after.status_reporter.verdict("default/g", "what else is known", True)
    assert after.messages == ["what is known"]
    after.status_reporter.verdict("default/g", "what held longest")
    assert after.messages == ["what is known", "what held longest"]


async def test_who_does_not_lead_writes_no_verdict() -> None:
    condition = {"type": "Unschedulable", "status": "True", "reason": "NotEnoughResources", "message": "because"}
    there = group("g", members=1)
    told = Told({**there, "status": {**there.get("status", {}), "conditions": [condition]}}, leads=False)
    told.status_reporter.verdict("default/g", "for another cause")
    assert told.written == []


async def test_after_a_crash_a_status_is_written_without_the_condition_until_there_is_a_verdict() -> None:
    told = Told(node("n", cpu=1), gang("g", 1, cpu=2))
    await told.session()
    again = Told(state=ClusterState.load(told.state.dump()))
    again.status_reporter.write_groups_again()
    async with running(again.status_reporter.followup.run()):
        await again.status_reporter.followup.idle.wait()
    intended = told.state.intended_status["default/g"]
    assert again.written == [msgspec.structs.replace(intended, condition=None)]


async def test_a_session_that_is_told_after_the_gang_was_placed_says_nothing_of_its_condition() -> None:
    """There is much to tell: others are placed before it is its turn, or that of what is to be written of it."""
    async with scripted() as server, client_of(server) as client:
        told = Told(node("n", cpu=1), gang("g", 1, cpu=2), client=client)
        statuses, uid = told.status_reporter.statuses, told.uid("default/g")
        there = Answer(200, {"metadata": {"name": "g", "namespace": "default", "uid": uid, "resourceVersion": "1"}})
        for method in ("GET", "PATCH"):
            server.on(method, "podgroups/g", there)
        told.decide()
        await told.tell()
        wanted = group("g", members=1)
        told.happen(*puts({**wanted, "status": {**wanted.get("status", {}), "phase": "Inqueue"}}))  # not written yet
        told.decide()
        told.happen(*puts(node("n", cpu=2)))
        told.decide()
        async with running(statuses.run()):
            await statuses.wait_until_idle()
            await told.tell()
            await statuses.wait_until_idle()
        written = [seen.body["status"] for seen in server.calls("PATCH") if "/podgroups/" in seen.path]
        assert [[one["type"] for one in each.get("conditions", [])] for each in written] == [[], [], ["Scheduled"]]


async def test_a_gang_is_told_pod_by_pod_with_a_pause_after_each(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(node("n", cpu=1), gang("g", 30, members=30, cpu=2))
    said: list[str] = []
    told.status_reporter.statuses.submit_pod_condition = lambda key, *_: said.append(key)  # type: ignore[method-assign]
    steps: list[Any] = []
    monkeypatch.setattr(told.status_reporter.followup, "add", lambda compute, tell: steps.append((compute, tell)))
    told.decide()
    ((compute, tell),) = steps
    after = [len(said) for _ in tell(compute())]
    assert after[-1] == 30
    assert max(more - before for before, more in pairwise([0, *after])) == 1


def test_events_that_are_too_many_to_wait_are_counted() -> None:
    told = Told()
    for number in range(5002):
        told.status_reporter.recorder.record("Pod", f"ns/p-{number}", f"u-{number}", "Normal", "R", "m")
    page = told.metrics.freeze()().decode()
    assert 'vcd_writes_dropped_total{kind="Event"} 2.0' in page
    assert 'vcd_writes_dropped_total{kind="Pod"} 0.0' in page


async def test_a_pod_that_holds_room_for_a_gang_that_waits_is_told_as_the_others() -> None:
    leaves = gang("leaves", 1, on=["n"], cpu=2, deleting=True)
    told = Told(node("n", cpu=3), leaves, gang("g", 4, members=3, cpu=1))
    said: list[str] = []
    told.status_reporter.statuses.submit_pod_condition = lambda key, *_: said.append(key)  # type: ignore[method-assign]
    plan = await told.session()  # one has room now, two wait for who leaves, and the last has none
    assert {operation.verb for statement in plan.statements for operation in statement.operations} == {"pipeline"}
    assert said == ["default/g-0", "default/g-1", "default/g-2", "default/g-3"]


async def test_a_pod_that_others_were_evicted_for_is_told_what_it_waits_for_now() -> None:
    """It may have its room, and lack its gang. The node is named whatever it is told: who leads next knows of it so."""
    busy, leaves = gang("busy", 1, on=["n"], cpu=2), gang("leaves", 1, on=["m"], cpu=2, deleting=True)
    g, *pods = gang("g", 3, cpu=1)
    for waiting, there in zip(pods, ("n", "m"), strict=False):
        waiting["status"] = {**waiting.get("status", {}), "nominatedNodeName": there}
    told = Told(node("n", cpu=3), node("m", cpu=2), busy, leaves, g, *pods)
    said: list[tuple[str, str, str]] = []

    def submit(key: str, _: str, condition: Condition, node: str = "") -> None:
        said.append((key, condition.message, node))

    told.status_reporter.statuses.submit_pod_condition = submit  # type: ignore[method-assign]
    plan = await told.session()
    assert {operation.key for statement in plan.statements for operation in statement.operations} == {
        "default/g-1", "default/g-2",
    }  # fmt: skip
    lacks = "fewer tasks than the minimum (have 1, min 3) [gang]"
    assert said == [
        ("default/g-0", lacks, "n"),
        ("default/g-1", "waits for capacity that evictions free on node m", "m"),
        ("default/g-2", lacks, ""),
    ]


async def test_condition_pods_and_events_begin_with_one_sentence_though_pods_wait_for_different_reasons(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cards = pod("g-1", group="g", cpu=1, gpu=1)
    told = Told(node("n", cpu=4), group("g", members=1), pod("g-0", group="g", cpu=9), cards)
    states: dict[str, str] = {}
    statuses, recorder = told.status_reporter.statuses, told.status_reporter.recorder
    monkeypatch.setattr(statuses, "submit_pod_condition", lambda key, _, one, *__: states.update({key: one.message}))
    monkeypatch.setattr(
        recorder, "record", lambda kind, key, uid, type, reason, message: states.update({f"{kind} {key}": message})
    )
    await told.session()
    assert states.keys() == {"default/g-0", "default/g-1"}  # their reasons at once, as autoscalers need
    sentence = "it needs 10 cpu, and all nodes together have 4"
    told.status_reporter.verdict("default/g", f"1/2 tasks in gang unschedulable: {sentence}")
    await told.tell()
    assert states.keys() == {
        "default/g-0", "default/g-1", "Pod default/g-0", "Pod default/g-1", "PodGroup default/g",
    }  # fmt: skip
    assert all(message.partition("; this pod: ")[0] == sentence for message in states.values())
    assert "nvidia.com/gpu" in states["default/g-1"] == states["Pod default/g-1"]
    states.clear()
    told.happen(*puts(node("n", cpu=5), pod("g-2", group="g", cpu=9)))
    await told.session()
    assert states.keys() >= {"default/g-2"}
    assert all(message.startswith(sentence) for message in states.values())


async def test_pods_that_a_restore_took_back_state_the_diagnosis_again(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(node("n", cpu=4), group("g", members=1), pod("g-0", group="g", cpu=9))
    states: dict[str, str] = {}
    statuses, recorder = told.status_reporter.statuses, told.status_reporter.recorder
    monkeypatch.setattr(statuses, "submit_pod_condition", lambda key, _, one, *__: states.update({key: one.message}))
    monkeypatch.setattr(recorder, "record", lambda *_: None)
    await told.session()
    sentence = "it needs 9 cpu, and all nodes together have 4"
    told.status_reporter.verdict("default/g", f"1/1 tasks in gang unschedulable: {sentence}")
    await told.tell()
    older = pod("g-0", group="g", cpu=9)
    older["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "message": "of before the restore"}]
    states.clear()
    told.happen(*puts(older), ev.KindListed("Pod", "9"))
    await told.session()
    assert states == {"default/g-0": sentence}


async def test_a_remark_on_holds_follows_the_reason_of_a_pod_that_it_explains(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(node("n", cpu=4), gang("x", 1, on=["n"], cpu=3, deleting=True))
    told.happen(*puts(gang("first", 1, cpu=3), gang("g", 1, cpu=2, created=1), gang("large", 1, cpu=9, created=2)))
    written: dict[str, str] = {}
    monkeypatch.setattr(
        told.status_reporter.statuses,
        "submit_pod_condition",
        lambda key, uid, condition, nominated: written.update({key: condition.message}),
    )
    await told.session()
    assert (
        written["default/g-0"]
        == "1 node Insufficient cpu; capacity that it could use is nominated for other jobs, such as default/first"
    )
    assert "nominated" not in written["default/large-0"]


async def test_jobs_of_other_namespaces_are_unnamed_in_all_that_a_namespace_shows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The job that capacity is nominated for is another tenant's, whose names are nobody's business here."""
    told = Told(node("n", cpu=4), gang("x", 1, on=["n"], cpu=3, deleting=True))
    for namespace, cpu, created in (("secretproject", 3, 0), ("tenant", 2, 1)):
        one = group("g", namespace=namespace, created=created), pod("g-0", group="g", namespace=namespace, cpu=cpu)
        told.happen(*puts(one))
    written: dict[str, str] = {}
    monkeypatch.setattr(
        told.status_reporter.statuses,
        "submit_pod_condition",
        lambda key, uid, condition, nominated: written.update({key: condition.message}),
    )
    monkeypatch.setattr(
        told.status_reporter.recorder,
        "record",
        lambda kind, key, uid, type, reason, message: written.update({f"{kind} {key}": message}),
    )
    await told.session()
    mine = {key: words for key, words in written.items() if "tenant/" in key}
    assert mine.keys() == {"tenant/g-0"}  # Events state the diagnosis, once it is known
    assert "such as a job of another namespace" in mine["tenant/g-0"]
    assert not any("secretproject" in words for words in mine.values())
