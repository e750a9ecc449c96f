"""Who waits, counted from session to session: the same as counted at once, whatever happened in between."""

from __future__ import annotations

import cProfile
import random
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from tests.daemon.pages import CONF, Page, kept, observe_session, page_of
from tests.dsl import BARE, gang, group, node, pod, policy_of, queue
from tests.laws.answering import Answering
from tests.laws.histories import History, sessions
from tests.sizes import seeds
from tests.world import World
from vcd.daemon.metrics.metrics_collector import Metrics
from vcd.daemon.metrics.pending_pods import NO_QUEUE, Alignment, Labels, WaitingCounts
from vcd.diagnosis.waiting_job import rank
from vcd.model import events as ev
from vcd.model.reasons import Cause
from vcd.model.status import UNSCHEDULABLE, Phase, TaskStatus
from vcd.scheduling import decide
from vcd.scheduling.framework.declared_reasons import cause_of, keeps_back
from vcd.scheduling.session.session import Session
from vcd.state.checkpoint import uncollected
from vcd.state.records import Settings

NAMES = [f"g{number:02}" for number in range(20)]
CAUSES = ("cluster-full", "queue-share", "gang-incomplete")
Figures = tuple[dict[Any, int], ...]
"""Groups and pods by labels, groups and pods by verdict, the oldest by queue."""


class _Waiting(History):
    """A history in which above all what waits changes, and how sessions' summaries come."""

    def __init__(self, seed: int) -> None:
        self.meanwhile: list[ev.Event] = []
        """What happens while the next session is decided."""
        super().__init__(seed)
        self.put(queue("a"), queue("b"))
        self._pods = 0

    def happen(self, *events: ev.Event) -> None:
        for event in events:
            if isinstance(event, ev.SessionDecided):
                super().happen(*self.meanwhile)
                self.meanwhile = []
            super().happen(event)

    def change(self) -> None:
        acts = (
            super().change, self.come, self.come, self.join, self.turn, self.queue_turns, self.configure, self.go_late,
            self.come_again, self.drop, self.elsewhere,
        )  # fmt: skip
        self.random.choice(acts)()

    def come(self) -> None:
        """Groups alike with pods or none, in a queue that is there or not, under names of some that went, perhaps; or
        pods without their group."""
        rand, where, phase = self.random, self._some_queue(), self.random.choice(("Pending", "Inqueue"))
        size, created, cpu = rand.randrange(4), rand.randrange(3) * 50, rand.choice((0, 1, 2, 400))
        members, minimum = rand.choice((size, size, 3)), rand.choice((None, {"cpu": 1}, {"cpu": 500}))
        orphans = rand.random() < 0.2
        for name in rand.sample(NAMES, rand.choice((1, 1, 3))):
            pods = [f"default/{name}-{number}" for number in range(4)]
            if f"default/{name}" not in self.state.groups and not self.state.tasks.row_of.keys() & pods:
                about: dict[str, Any] = {"queue": where, "phase": phase, "created": created, "minimum": minimum}
                made = [*gang(name, size, members=members, cpu=cpu, **about)]
                made[0]["metadata"]["uid"] = f"{name}-of-{self.state.sequence}"
                self.put(made[orphans:])

    def _some_queue(self) -> str:
        return self.random.choice(("", "default", "a", "b", "nowhere"))

    def join(self) -> None:
        """A pod comes to a group that is there; another scheduler's, perhaps."""
        self._pods += 1
        if groups := sorted(self.state.groups):
            namespace, _, name = self.random.choice(groups).partition("/")
            spec = {"schedulerName": self.random.choice(("volcano", "volcano", "another"))}
            self.put(pod(f"p{self._pods}", group=name, namespace=namespace, cpu=1, spec=spec))

    def turn(self) -> None:
        """A group comes to another queue."""
        if groups := sorted(self.state.groups):
            record = self.state.groups[self.random.choice(groups)]
            meta = record.group.metadata
            turned = group(meta.name, namespace=meta.namespace, queue=self._some_queue(), phase="Inqueue")
            turned["metadata"] |= {"uid": meta.uid, "creationTimestamp": meta.creation_timestamp}
            self.put(turned)

    def queue_turns(self) -> None:
        """A queue goes, comes back, or is closed."""
        name = self.random.choice(("a", "b", "default"))
        if name in self.state.queues and self.random.random() < 0.5:
            self.remove("Queue", name)
        else:
            self.put(queue(name, state=self.random.choice(("Open", "Open", "Closed")), capability={"cpu": "3"}))

    def configure(self) -> None:
        """Another configuration comes into force."""
        self.policy = policy_of(self.random.choice((CONF, None)))
        self.happen(ev.PolicyLoaded(self.policy.digest, self.policy.text))

    def go_late(self) -> None:
        """A group goes while the next session is decided."""
        if groups := sorted(self.state.groups):
            self.meanwhile.append(ev.ObjectGone("PodGroup", self.random.choice(groups)))

    def come_again(self) -> None:
        """A group goes, and another one of its name comes before anybody looks."""
        if groups := sorted(self.state.groups):
            key = self.random.choice(groups)
            self.remove("PodGroup", key)
            namespace, _, name = key.partition("/")
            self.put(group(name, namespace=namespace, queue=self._some_queue(), created=10))

    def drop(self) -> None:
        """A session is decided for nothing: the Lease was lost, or a group is not the one any more."""
        decide.run(self.maker.snapshot(), self.policy, self.now, 0, self.memory)


def _plainly(session: Session, plan: ev.Plan, causes: Mapping[str, str]) -> Figures:
    """Who waits at the end of a session, one group after the other; ``causes`` of some groups held longest."""
    groups, pods, judged, waiting = (Counter[Any]() for _ in range(4))
    oldest = dict[tuple[str], int]()
    snapshot = session.snapshot
    for key, reasons in ev.waits_after(snapshot.waiting, plan.waiting).items():
        record, index = snapshot.groups.get(key), session.jobs.index(key)
        where = NO_QUEUE if record is None or index is None else session.queue_name_of(record)
        created = _pending(session, key, index)
        share = dict[Labels, int]()
        for one in filter(keeps_back, reasons):
            labels = (where, one.gate, cause_of(one))
            share[labels] = min(len(created), share.get(labels, 0) + (one.tasks or len(created)))
        groups.update(share.keys())
        pods.update(share)
        verdict = (where, causes.get(key) or _first(list(share)))
        judged[verdict] += 1
        waiting[verdict] += len(created)
        since = [record.created] if record is not None and not created else created if index is not None else []
        if known := [time for time in since if time > 0]:
            oldest[where,] = min(known + ([oldest[where,]] if (where,) in oldest else []))
    return groups, pods, judged, waiting, oldest


def _pending(session: Session, key: str, index: int | None) -> list[int]:
    """When those of a group's pods were created that are pending."""
    tasks, names, found = session.snapshot.tasks, session.snapshot.job_keys, []
    for row, (status, job, of) in enumerate(zip(tasks.status, tasks.job, session.job_of_row, strict=True)):
        is_its_own = of == index if index is not None else of < 0 and job >= 0 and names[job] == key
        if is_its_own and status == TaskStatus.PENDING:
            found.append(int(tasks.created[row]))
    return found


def _first(labels: list[Labels]) -> str:
    others = [each for each in labels if each[2] != Cause.GANG_INCOMPLETE]
    return others[0][2] if len(others) == 1 else min(labels, key=lambda each: rank(each[1], each[2]))[2]


def _figures(counts: WaitingCounts, session: Session) -> Figures:
    reasons, verdicts = counts.reasons, counts.verdicts
    return reasons.groups, reasons.pods, verdicts.groups, verdicts.pods, counts.oldest(session)


@pytest.mark.parametrize("seed", seeds(3, 6))
def test_counted_from_session_to_session_is_counted_at_once(seed: int) -> None:
    world, rand = _Waiting(seed), random.Random(seed)
    counts, causes = WaitingCounts(), dict[str, str]()
    for plan in world.live(40):
        if rand.random() < 0.1:  # its summary is nobody's
            continue
        if rand.random() < 0.05:  # the Lease was lost meanwhile
            counts, causes = WaitingCounts(), {}
        assert world.session is not None
        counts.update(world.session, plan)
        waits = ev.waits_after(world.session.snapshot.waiting, plan.waiting)
        causes = {key: cause for key, cause in causes.items() if key in waits}
        anew = WaitingCounts()
        anew.update(world.session, plan)
        anew.judge(causes)
        expected = _plainly(world.session, plan, causes)
        assert _figures(anew, world.session) == expected
        assert _figures(counts, world.session) == expected
        causes |= {key: rand.choice(CAUSES) for key in waits if rand.random() < 0.1}
        counts.judge({**causes, "default/unknown": "cluster-full"})


def _unschedulable(session: Session) -> dict[str, int]:
    """What each unschedulable job lacks of its minimum."""
    stands_for, found = dict(session.classes.followers()), dict[str, int]()
    for index, (kind, *_) in session.conditions.items():
        if kind == UNSCHEDULABLE and not session.classes.follows[index]:
            job = session.job(index)
            for each in (index, *stands_for.get(index, ())):
                found[session.jobs.keys[each]] = max(0, job.min_available - job.ready_count)
    return found


def _by_name(counts: Mapping[str, int]) -> dict[frozenset[tuple[str, str]], float]:
    """Series by job as they are shown."""
    found = Counter[str]()
    for key, count in counts.items():
        found[key.partition("/")[2]] += count
    return {kept(job_id=name): count for name, count in found.items()}


@pytest.mark.parametrize("seed", range(3))
def test_what_is_known_of_a_job_lasts_as_long_as_its_group(seed: int) -> None:
    world, metrics = _Waiting(seed), Metrics()
    retries, placed, born = Counter[str](), dict[str, int](), dict[str, tuple[str, int]]()
    for plan in world.live(20):
        session, record = world.session, list(sessions(world.log))[-1]
        assert session is not None
        observe_session(metrics, session, plan, record, {})
        groups, jobs = session.snapshot.groups, session.jobs.keys
        before, born = born, {key: (each.group.metadata.uid, each.created) for key, each in groups.items()}
        there = {key for key, which in born.items() if before.get(key) == which}
        lacks = _unschedulable(session)
        retries = Counter({key: count for key, count in retries.items() if key in there})
        retries.update(lacks.keys())
        stale, at = dict(record.stale), record.now // 10**9
        placed = {key: time for key, time in placed.items() if key in there}
        for number, statement in enumerate(plan.statements):
            verbs = {operation.verb for operation in statement.operations}
            if number not in stale and verbs - {"evict", "ungate"} and statement.group in jobs:
                placed[statement.group] = at
        page = page_of(metrics)
        expected = _by_name({key: retries[key] for key in jobs if retries[key]})
        assert page.get("volcano_job_retry_counts", {}) == expected
        found = {labels: count for labels, count in page.get("volcano_unschedule_task_count", {}).items() if count}
        ended = {key for key, phase in zip(jobs, session.jobs.phase, strict=True) if phase == Phase.COMPLETED}
        assert found == _by_name({key: count for key, count in lacks.items() if count and key not in ended})
        times = page.get("volcano_e2e_job_scheduling_last_time", {})
        named = {f"{dict(labels)['job_namespace']}/{dict(labels)['job_name']}": time for labels, time in times.items()}
        assert named == {key: time for key, time in placed.items() if key in jobs}


@pytest.mark.parametrize("queue_goes", [False, True])
def test_a_job_under_the_name_of_one_that_went_starts_anew(queue_goes: bool) -> None:
    jobs = (gang("placed", 1, cpu=1, queue="q"), gang("left", 3, cpu=1, queue="q"))
    world, metrics = Answering(queue("q"), node("n", cpu=2), *jobs, conf=CONF), Metrics()
    first = _noted(metrics, world)
    assert len(first["volcano_e2e_job_scheduling_last_time"]) == 1
    assert first["volcano_job_retry_counts"] == {kept(job_id="left"): 1}
    if queue_goes:
        world.remove("Queue", "q")
        _noted(metrics, world)
    world.remove("Pod", "default/placed-0", *[f"default/left-{number}" for number in range(3)])
    world.remove("PodGroup", "default/placed", "default/left")
    _noted(metrics, world)
    world.put(queue("q"), gang("placed", 1, cpu=9, queue="q"), gang("left", 3, cpu=1, queue="q"))
    again = _noted(metrics, world)
    assert not again.get("volcano_e2e_job_scheduling_last_time")
    assert again["volcano_job_retry_counts"] == {kept(job_id="left"): 1, kept(job_id="placed"): 1}


def _noted(metrics: Metrics, world: World) -> Page:
    """The page after a session."""
    plan = world.cycle()
    assert world.session is not None
    observe_session(metrics, world.session, plan, list(sessions(world.log))[-1], {})
    return page_of(metrics)


def _counted(counts: WaitingCounts, world: World) -> tuple[Session, ev.Plan]:
    """A session that is counted."""
    plan = world.cycle()
    assert world.session is not None
    counts.update(world.session, plan)
    return world.session, plan


def test_groups_that_came_while_nobody_counted_and_have_no_queue_are_found() -> None:
    world, counts = Answering(node("n")), WaitingCounts()
    _counted(counts, world)
    world.put(gang("stranger", 2, queue="nowhere"), gang("waits", 1, cpu=500))
    world.cycle()
    world.cycle()
    session, plan = _counted(counts, world)
    assert _figures(counts, session) == _plainly(session, plan, {})
    assert counts.reasons.pods[NO_QUEUE, "queue", "queue-missing"] == 2


def test_a_group_whose_other_queue_has_the_number_of_its_last_one_is_counted_there() -> None:
    world = Answering(queue("a"), queue("b"), node("n"), gang("waits", 1, cpu=500, queue="b"), conf=BARE)
    counts = WaitingCounts()
    number = [_counted(counts, world)[0].jobs.queue.tolist() for _ in range(3)][-1]
    world.remove("Queue", "a")
    world.put(queue("c"), group("waits", queue="c"))
    session, plan = _counted(counts, world)
    assert session.jobs.queue.tolist() == number
    assert not plan.waiting
    assert {labels[0] for labels in counts.reasons.groups} == {"c"}


@pytest.mark.parametrize("seed", seeds(10, 20))
def test_where_keys_were(seed: int) -> None:
    rand = random.Random(seed)
    names = [f"ns/{number:04}" for number in range(rand.choice((0, 1, 10, 2000)))]
    before, now = (sorted(rand.sample(names, int(rand.choice((0.5, 0.99, 1)) * len(names)))) for _ in range(2))
    aligned = Alignment(before, now)
    assert aligned.places.tolist() == [before.index(key) if key in before else -1 for key in now]
    assert aligned.gone == {key: place for place, key in enumerate(before) if key not in now}


def test_noting_a_session_costs_what_changed() -> None:
    waiting = [gang(f"g{number:04}", 1, cpu=500, minimum={"cpu": 1}) for number in range(1000)]
    world, metrics = Answering(node("n"), *waiting), Metrics(job_series=10)
    calls = []
    for number in range(4):
        world.put(gang(f"g{number * 300:04}-new", 1, cpu=500, minimum={"cpu": 1}))
        plan, profile = world.cycle(), cProfile.Profile()
        assert world.session is not None
        with uncollected():
            profile.runcall(observe_session, metrics, world.session, plan, None, {})
        calls.append(sum(entry.callcount for entry in profile.getstats()))
    assert calls[0] > 10 * 1000  # all of them are new
    assert calls[-1] < 2000  # whatever their number


def test_a_remark_alone_keeps_nobody_waiting() -> None:
    """A session that is full leaves pods untried, of which nothing is known but what gangreclaim passed over."""
    conf = 'actions: "gangreclaim, allocate"\ntiers:\n- plugins:\n  - name: gang\n  - name: proportion\n'
    running = gang("old", 2, members=1, cpu=1, queue="old", on=["n", "n"])
    newcomer = gang("new", 2, members=1, cpu=1, queue="new")
    world = Answering(queue("old", weight=9), queue("new"), node("n", cpu=3), running, newcomer, conf=conf)
    counts = WaitingCounts()
    world.happen(ev.PolicyLoaded(world.policy.digest, world.policy.text, Settings(placements=1).as_text()))
    _, plan = _counted(counts, world)
    assert plan.more
    assert plan.waiting
    assert not any(map(keeps_back, plan.waiting))
    assert counts.reasons.groups == counts.verdicts.groups == {}
