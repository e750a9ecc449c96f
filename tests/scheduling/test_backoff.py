"""Back-off after refusals of the API server (docs/laws.md, law 8): the refused hold nothing while they wait."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
import pytest

from tests.dsl import BARE, Manifest, gang, node, pod, priority_class, queue
from tests.sizes import some
from tests.world import World
from vcd.model import events as ev
from vcd.model.objects import PodStatus
from vcd.model.projection_codec import encode_payload
from vcd.state.backoff import RELEASE, RefusalBackoff, after_refusal, after_release
from vcd.state.cluster_state import ClusterState
from vcd.state.deadlines import next_deadline

SECOND = 1_000_000_000
HIGH = {"priorityClassName": "high"}
PREEMPTING = """\
actions: "enqueue, allocate, preempt"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
- plugins:
  - name: overcommit
  - name: predicates
"""


class Refusing(World):
    """A cluster whose API server refuses the operations that ``refuses`` names, at the time of their session."""

    def __init__(
        self, *objects: Manifest | Iterable[Manifest], refuses: Callable[[ev.Operation], bool], conf: str = BARE
    ):
        self.refuses = refuses
        self.attempts: list[tuple[int, str]] = []
        """Second and pod of each refused operation."""
        super().__init__(*objects, conf=conf)
        self.began = self.now

    def cycle(self) -> ev.Plan:
        decided_at, plan = self.now, self.decide()
        for number, statement in enumerate(plan.statements):
            for position, operation in enumerate(statement.operations):
                done = (self.state.session, number, position)
                if operation.verb in ("bind", "evict") and self.refuses(operation):
                    self.attempts.append(((decided_at - self.began) // SECOND, operation.key.partition("/")[2]))
                    self.happen(ev.OperationDone(*done, "failed", "a webhook denied it", decided_at))
                elif operation.verb == "bind":
                    self.update_pod(operation.key, node=operation.node, phase="Running")
                elif operation.verb == "evict":
                    self.evicted.append(operation.key)
                    self.leave(operation.key)
        self.now = decided_at
        return plan

    def again(self, key: str) -> None:
        """An evicted pod's controller makes another one of its name."""
        pod = self.state.pod(key)
        assert pod is not None
        self.remove("Pod", key)
        meta = msgspec.structs.replace(pod.metadata, uid=f"{key} {len(self.evicted)}")
        spec = msgspec.structs.replace(pod.spec, node_name="")
        made = msgspec.structs.replace(pod, metadata=meta, spec=spec, status=PodStatus("Pending"))
        self.happen(ev.ObjectPut("Pod", key, "", encode_payload(made)))

    def run(self, seconds: int) -> None:
        """Decide whenever a deadline comes, as the daemon's cycle does."""
        end = self.now + seconds * SECOND
        self.cycle()
        while (due := next_deadline(self.state, self.now)) is not None and due <= end:
            self.now = due
            self.cycle()
        self.now = end


def binds_of(*names: str) -> Callable[[ev.Operation], bool]:
    return lambda operation: operation.verb == "bind" and operation.key.partition("/")[2] in names


@pytest.mark.parametrize(
    ("uid", "verb", "attempts"),
    [("u", "bind", 2), ("another", "bind", 1), ("u", "evict", 1), ("u", RELEASE, 1)],
    ids=["again", "another pod of the name", "another call", "released"],
)
def test_only_the_same_call_for_the_same_pod_is_refused_again(uid: str, verb: str, attempts: int) -> None:
    before = after_refusal(None, "u", "bind", 0, "no", node="n")
    found = after_release(before, uid, 0) if verb == RELEASE else after_refusal(before, uid, verb, 0, "no", node="m")
    assert found.attempts == attempts
    assert found.nodes == {RELEASE: ()}.get(verb, ("n", "m") if attempts > 1 else ("m",))


LATE = RefusalBackoff("u", "bind", 6, 32 * SECOND)
DEADLINES: dict[str, tuple[Callable[[ClusterState], object], int]] = {
    "a refused bind": (lambda s: s.backoffs.update(a=LATE), 32),
    "a refused eviction": (lambda s: s.backoffs.update(a=msgspec.structs.replace(LATE, verb="evict")), 1),
    "a released gang": (lambda s: s.released.update(a=LATE), 32),
    "a namespace": (lambda s: s.held_namespaces.update(a=5 * SECOND), 5),
    "a gang in part": (lambda s: s.stranded.update(a=2 * SECOND), 62),
}


@pytest.mark.parametrize(("holds", "due"), DEADLINES.values(), ids=DEADLINES)
def test_a_session_runs_when_anything_that_holds_ends(holds: Callable[[ClusterState], object], due: int) -> None:
    state = ClusterState()
    assert next_deadline(state, 0) is None
    holds(state)
    assert next_deadline(state, 0) == due * SECOND
    assert next_deadline(state, 0, [SECOND // 2]) == SECOND // 2
    assert next_deadline(state, 99 * SECOND) is None


def test_the_nodes_that_refused_a_pod_are_in_the_order_of_their_last_refusals() -> None:
    backoff = None
    for node_name in ("n", "m", "n"):
        backoff = after_refusal(backoff, "u", "bind", 0, "no", node=node_name)
    assert backoff is not None and backoff.nodes == ("m", "n")


def test_a_refused_pod_backs_off_longer_each_time_and_holds_nothing_meanwhile() -> None:
    bad = gang("bad", 1, cpu=4, group_spec=HIGH)
    world = Refusing(node("n", cpu=4), priority_class("high", 1000), bad, refuses=binds_of("bad-0"))
    world.run(2000)
    assert [second for second, _ in world.attempts[:6]] == [0, 1, 3, 7, 15, 31]
    gaps = [later - earlier for (earlier, _), (later, _) in zip(world.attempts, world.attempts[1:], strict=False)]
    assert max(gaps) == 300
    world.put(gang("ok", 4, cpu=1))
    world.cycle()
    assert sorted(world.placed()) == ["ok-0", "ok-1", "ok-2", "ok-3"]


@pytest.mark.parametrize("count", [1, 5, 40])
def test_pods_that_are_refused_together_are_tried_together(count: int) -> None:
    pods = [gang(f"g{number}", 1, cpu=1) for number in range(count)]
    world = Refusing(node("n", cpu=100), *pods, refuses=lambda operation: operation.verb == "bind")
    world.run(100)
    assert len(world.attempts) == 7 * count
    assert len([event for event in world.log if isinstance(event, ev.SessionDecided)]) <= 14


def test_afterwards_it_comes_behind_others_of_equal_order() -> None:
    refused = ["a-0"]
    world = Refusing(node("n", cpu=1), gang("a", 1, cpu=1, created=1), refuses=lambda op: op.key[8:] in refused)
    world.cycle()
    refused.clear()
    world.put(gang("b", 1, cpu=1, created=2))
    world.now += 5 * SECOND
    world.cycle()
    assert list(world.placed()) == ["b-0"]
    world.put(node("n", cpu=2))
    world.cycle()
    assert sorted(world.placed()) == ["a-0", "b-0"]


def test_a_gang_that_was_admitted_only_in_part_comes_before_others_of_equal_order() -> None:
    refused = ["a-1"]
    world = Refusing(node("n", cpu=2), gang("a", 2, cpu=1, created=1), refuses=lambda op: op.key[8:] in refused)
    world.cycle()
    assert list(world.placed()) == ["a-0"]
    refused.clear()
    world.put(gang("b", 1, cpu=1, created=0))
    world.now += 5 * SECOND
    world.cycle()
    assert sorted(world.placed()) == ["a-0", "a-1"]


def test_a_job_that_has_its_minimum_was_not_admitted_in_part() -> None:
    refused = ["a-1"]
    job = gang("a", 2, members=1, cpu=1, created=1)
    world = Refusing(node("n", cpu=2), job, refuses=lambda op: op.key[8:] in refused)
    world.cycle()
    refused.clear()
    world.put(gang("b", 1, cpu=1, created=2))
    world.now += 5 * SECOND
    world.cycle()
    assert sorted(world.placed()) == ["a-0", "b-0"]


def test_among_the_tasks_of_its_job_too() -> None:
    refused = ["g-0"]
    world = Refusing(node("n", cpu=2), gang("g", 3, members=1, cpu=1), refuses=lambda op: op.key[8:] in refused)
    world.cycle()
    assert list(world.placed()) == ["g-1"]
    world.now += 5 * SECOND
    refused.clear()
    world.cycle()
    assert sorted(world.placed()) == ["g-1", "g-2"]


def test_no_nomination_or_reservation_is_left_to_it() -> None:
    """A preemptor that is refused leaves what it was made room with, and its admission, to others."""
    low = gang("low", 4, members=1, cpu=1, on=["n"] * 4)
    world = Refusing(node("n", cpu=4), priority_class("high", 9), low, refuses=binds_of("high-0"), conf=PREEMPTING)
    world.put(gang("high", 1, cpu=3, group_spec=HIGH, minimum={"cpu": 3}))
    for _ in range(4):
        world.cycle()
    assert len(world.attempts) >= 1
    world.put(gang("late", 1, cpu=1, phase="Pending", minimum={"cpu": 1}))
    world.cycle()
    assert "late-0" in world.placed()


ENDS: dict[str, Callable[[World], None]] = {
    "bound": lambda world: world.update_pod("default/g-0", node="n", phase="Running"),
    "gone": lambda world: world.remove("Pod", "default/g-0"),
    "replaced": lambda world: world.put(
        {**(p := pod("g-0", group="g", cpu=1)), "metadata": {**p["metadata"], "uid": "x"}}
    ),
    "another spec": lambda world: world.put(pod("g-0", group="g", cpu=2)),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_it_ends(end: Callable[[World], None]) -> None:
    world = Refusing(node("n", cpu=2), gang("g", 1, cpu=1), refuses=binds_of("g-0"))
    world.cycle()
    assert list(world.state.backoffs) == ["default/g-0"]
    assert world.cycle().statements == ()
    end(world)
    assert not world.state.backoffs


def test_a_change_of_labels_or_status_does_not_end_it() -> None:
    world = Refusing(node("n", cpu=2), gang("g", 1, cpu=1), refuses=binds_of("g-0"))
    world.cycle()
    world.put(pod("g-0", group="g", cpu=1, labels={"new": "label"}))
    assert list(world.state.backoffs) == ["default/g-0"]


def test_the_reason_names_the_refusal_and_the_time() -> None:
    world = Refusing(node("n", cpu=2), gang("g", 1, cpu=1), refuses=binds_of("g-0"))
    world.cycle()
    world.cycle()
    assert "refused to bind the pod (refusals in a row: 1): " in world.reasons("g")
    assert "a webhook denied it; it is tried again at" in world.reasons("g")


def test_an_outcome_without_a_time_lets_nothing_back_off() -> None:
    """As logs of earlier versions have them: their sessions replay as they were decided."""
    world = World(node("n", cpu=2), gang("g", 1, cpu=1), conf=BARE)
    world.decide()
    world.happen(ev.OperationDone(1, 0, 0, "failed", "refused"))
    assert [op.verb for op in world.decide().operations("bind")] == ["bind"]


@pytest.mark.parametrize("size", [2, 3])
def test_a_victim_whose_eviction_is_refused_stays_and_is_not_asked_for_again_at_once(size: int) -> None:
    low = [gang(f"low{n}", size, members=1, cpu=1, on=["n"] * size) for n in range(2)]
    world = Refusing(
        node("n", cpu=2 * size),
        priority_class("high", 9),
        *low,
        refuses=lambda op: op.verb == "evict" and "low1" in op.key,
        conf=PREEMPTING,
    )
    world.put(gang("high", 1, cpu=1, group_spec=HIGH))
    world.run(10)
    assert "high-0" in world.placed()
    assert [key.partition("/")[2][:4] for key in world.evicted] == ["low0"]


def test_where_every_eviction_is_refused_no_session_follows_the_other_at_once() -> None:
    low = gang("low", 20, members=1, cpu=1, on=["n"] * 20)
    refuses = lambda op: op.verb == "evict"  # noqa: E731
    world = Refusing(node("n", cpu=20), priority_class("high", 9), low, refuses=refuses, conf=PREEMPTING)
    world.put(gang("high", 1, cpu=1, group_spec=HIGH))
    world.run(30)
    assert 20 <= len(world.attempts) <= 31
    assert len({key for _, key in world.attempts}) >= 4  # none is the only one that is tried


RECLAIMING = PREEMPTING.replace("allocate, preempt", "allocate, reclaim").replace("overcommit", "proportion")


@pytest.mark.parametrize("conf", [PREEMPTING, PREEMPTING.replace("preempt", "gangpreempt")])
@pytest.mark.parametrize("jobs", [1, 3])
def test_a_refused_eviction_delays_no_other_job(conf: str, jobs: int) -> None:
    """The victims of one job are refused; a job of another node evicts in the same second."""
    on = {"spec": {"nodeSelector": {"name": "a"}}}
    world = Refusing(
        *[node(name, cpu=2, labels={"name": name}) for name in ("a", "b")],
        priority_class("high", 9),
        *[gang(f"low-{name}", 2, members=1, cpu=1, on=[name] * 2) for name in ("a", "b")],
        refuses=lambda op: op.verb == "evict" and "low-a" in op.key,
        conf=conf,
    )
    world.put(*[gang(f"high-{number}", 1, cpu=1, group_spec=HIGH, **on) for number in range(jobs)])
    world.cycle()
    assert world.attempts and not world.evicted
    other = {"spec": {"nodeSelector": {"name": "b"}}}
    world.put(gang("other", 1, cpu=1, group_spec=HIGH, **other))
    world.cycle()
    assert [key.partition("/")[2][:5] for key in world.evicted] == ["low-b"]


def test_a_refused_eviction_delays_no_other_queue() -> None:
    world = Refusing(
        *[node(name, cpu=2, labels={"name": name}) for name in ("a", "b")],
        *[queue(name) for name in ("rich", "poor", "needy")],
        *[gang(f"rich-{name}", 2, members=1, cpu=1, on=[name] * 2, queue="rich") for name in ("a", "b")],
        refuses=lambda op: op.verb == "evict" and "rich-a" in op.key,
        conf=RECLAIMING,
    )
    world.put(gang("poor", 1, cpu=1, queue="poor", spec={"nodeSelector": {"name": "a"}}))
    world.cycle()
    assert world.attempts and not world.evicted
    world.put(gang("needy", 1, cpu=1, queue="needy", spec={"nodeSelector": {"name": "b"}}))
    world.cycle()
    assert [key.partition("/")[2][:6] for key in world.evicted] == ["rich-b"]


@pytest.mark.parametrize("count", [2, 5])
def test_of_equivalent_jobs_each_waits_after_its_own_refusals(count: int) -> None:
    low = gang("low", 20, members=1, cpu=1, on=["n"] * 20)
    refuses = lambda op: op.verb == "evict"  # noqa: E731
    world = Refusing(node("n", cpu=20), priority_class("high", 9), low, refuses=refuses, conf=PREEMPTING)
    world.put(*[gang(f"high-{number}", 1, cpu=1, group_spec=HIGH) for number in range(count)])
    world.run(10)
    assert 10 <= len(world.attempts) <= 11 * count
    assert len([event for event in world.log if isinstance(event, ev.SessionDecided)]) <= 24


def test_where_few_evictions_are_refused_the_attempts_are_ever_rarer() -> None:
    low = gang("low", 2, members=1, cpu=1, on=["n", "n"])
    refuses = lambda op: op.verb == "evict"  # noqa: E731
    world = Refusing(node("n", cpu=2), priority_class("high", 9), low, refuses=refuses, conf=PREEMPTING)
    world.put(gang("high", 1, cpu=1, group_spec=HIGH))
    world.run(100)
    assert len(world.attempts) <= 14
    assert sorted(world.placed()) == ["low-0", "low-1"]


def test_a_gang_of_which_one_bind_is_always_refused_leaves_its_resources_to_others_ever_longer() -> None:
    world = Refusing(node("n", cpu=3), gang("g", 3, cpu=1), refuses=binds_of("g-2"))
    world.leave = world.again  # type: ignore[method-assign]
    world.run(7200)
    released = len(world.evicted) // 2
    assert 4 <= released <= 8  # with a constant back-off it would be 60
    assert world.placed() == {} or len(world.placed()) == 2
    record = world.state.released["default/g"]
    assert record.attempts == released
    world.now = record.until - 10 * SECOND
    world.put(gang("other", 3, cpu=1))
    world.cycle()
    assert sorted(world.placed("other")) == ["other-0", "other-1", "other-2"]


def test_a_released_gang_that_is_completed_is_as_any_other() -> None:
    refused = ["g-2"]
    world = Refusing(
        node("n", cpu=3), gang("g", 3, cpu=1), refuses=lambda op: op.verb == "bind" and op.key[8:] in refused
    )
    world.leave = world.again  # type: ignore[method-assign]
    world.run(62)
    assert list(world.state.released) == ["default/g"]
    refused.clear()
    world.run(300)
    assert len(world.placed()) == 3
    world.put(gang("h", 1, cpu=1))
    world.cycle()
    assert not world.state.released


@pytest.mark.parametrize("seconds", [0, 5, 64, 200])
def test_a_checkpoint_holds_it(seconds: int) -> None:
    world = Refusing(node("n", cpu=3), gang("g", 3, cpu=1), refuses=binds_of("g-2"))
    world.run(seconds)
    resumed = ClusterState.load(world.state.dump())
    assert (resumed.backoffs, resumed.released) == (world.state.backoffs, world.state.released)
    assert resumed.dump() == world.state.dump()


# --- a preemptor that is refused does not stand in the way of the next ------------------------------------------------

TAKES = pytest.mark.parametrize("action", ["preempt", "reclaim", "gangpreempt", "gangreclaim"])


TAKING = """\
actions: "allocate, ACTION"
tiers:
- plugins:
  - name: priority
  - name: conformance
- plugins:
  - name: predicates
  - name: capacity
"""


def refused_preemptor(action: str, size: int, refuses: tuple[str, ...]) -> Refusing:
    """``size`` pods of low fill the nodes and come back when evicted; bad-0 evicts each of them once and is refused."""
    owner, lender = ("owner", "lender") if "reclaim" in action else ("owner", "owner")
    world = Refusing(
        *[node(f"n{number}", cpu=2) for number in range(size)],
        queue("owner", deserved={"cpu": str(2 * size), "memory": "64Gi"}),
        queue("lender", deserved={"cpu": "0"}),
        priority_class("high", 1000),
        gang("low", size, members=1, on=[f"n{number}" for number in range(size)], queue=lender, cpu=2, phase="Running"),
        refuses=binds_of(*refuses),
        conf=TAKING.replace("ACTION", action),
    )
    world.leave = world.again  # type: ignore[method-assign]
    urgent(world, "bad", owner)
    return world


def rest(world: Refusing) -> None:
    """Decide until nothing more happens, whatever backs off."""
    for exponent in range(8):
        world.now += SECOND << exponent
        for _ in range(3):
            world.cycle()


def urgent(world: Refusing, name: str, in_queue: str = "owner", size: int = 1) -> None:
    spec = {"priority": 1000}
    world.put(gang(name, size, members=1, queue=in_queue, cpu=2, group_spec=HIGH, spec=spec, phase="Inqueue"))
    rest(world)


@pytest.mark.parametrize("size", some(1, [2, 1, 4]))
@TAKES
def test_an_equivalent_job_evicts_the_replacement_that_a_refused_owner_could_not_use(action: str, size: int) -> None:
    world = refused_preemptor(action, size, ("bad-0",))
    assert (len(world.evicted), len(world.placed("low"))) == (size, size)
    assert {name for _, name in world.attempts} == {"bad-0"}
    urgent(world, "ok")
    assert list(world.placed("ok")) == ["ok-0"]
    assert (len(world.evicted), len(world.placed("low"))) == (size + 1, size - 1)


@TAKES
def test_the_refused_owner_evicts_no_replacement(action: str) -> None:
    world = refused_preemptor(action, 1, ("bad-0",))
    for number in range(4):
        world.put(gang(f"news{number}", 1, queue="owner", cpu=99, phase="Inqueue"))
        rest(world)
    assert world.evicted == ["default/low-0"]


@TAKES
def test_each_of_many_refused_jobs_evicts_one_pod_at_most(action: str) -> None:
    names = [f"bad{number}" for number in range(2)]
    world = refused_preemptor(action, 1, ("bad-0", *(f"{name}-0" for name in names)))
    for name in names:
        urgent(world, name)
    assert len(world.evicted) == 1 + len(names)
    before = list(world.evicted)
    for number in range(4):
        world.put(gang(f"news{number}", 1, queue="owner", cpu=99, phase="Inqueue"))
        rest(world)
    assert world.evicted == before


# --- a refused eviction makes no pod immune ---------------------------------------------------------------------------


@pytest.mark.parametrize("size", some(1, [2, 4]))
@TAKES
def test_a_job_evicts_a_replacement_though_that_was_refused_once(action: str, size: int) -> None:
    """``size`` pods of low come back after evictions, one of them finds a node again, and the rest wait."""
    refused: list[str] = []
    lender = "lender" if "reclaim" in action else "owner"
    names = [f"n{number}" for number in range(size + 1)]
    held = gang("held", 1, on=names[-1:], queue="owner", cpu=2, phase="Running", spec={"priority": 1000})
    world = Refusing(
        *[node(name, cpu=2) for name in names],
        queue("owner", deserved={"cpu": str(2 * size + 2), "memory": "64Gi"}),
        queue("lender", deserved={"cpu": "0"}),
        priority_class("high", 1000),
        held,
        gang("low", size, members=1, on=names[:-1], queue=lender, cpu=2, phase="Running"),
        refuses=lambda op: op.verb == "evict" and op.key in refused,
        conf=TAKING.replace("ACTION", action),
    )
    world.leave = world.again  # type: ignore[method-assign]
    for number in range(size):
        urgent(world, f"first{number}")
    world.update_pod("default/held-0", phase="Succeeded")
    rest(world)
    (back,) = world.placed("low")
    refused.append(f"default/{back}")
    world.put(gang("last", 1, members=1, queue="owner", cpu=2, group_spec=HIGH, spec={"priority": 1000}))
    world.cycle()
    assert [name for _, name in world.attempts] == [back]
    refused.clear()
    rest(world)
    assert list(world.placed("last")) == ["last-0"]
    assert len(world.evicted) == size + 1


@pytest.mark.parametrize("size", some(1, [3, 5]))
@TAKES
def test_a_pod_whose_eviction_was_refused_replaces_none_that_was_evicted_with_it(action: str, size: int) -> None:
    """``size`` pods of low come back after evictions, two find nodes again. A gang of two evicts both; the first
    eviction is refused once."""
    refused: list[str] = []
    lender = "lender" if "reclaim" in action else "owner"
    names = [f"n{number}" for number in range(size + 2)]
    spec = {"priority": 1000}
    world = Refusing(
        *[node(name, cpu=2) for name in names],
        queue("owner", deserved={"cpu": str(2 * size + 4), "memory": "64Gi"}),
        queue("lender", deserved={"cpu": "0"}),
        priority_class("high", 1000),
        gang("held", 2, on=names[-2:], queue="owner", cpu=2, phase="Running", spec=spec),
        gang("low", size, members=1, on=names[:-2], queue=lender, cpu=2, phase="Running"),
        refuses=lambda op: op.verb == "evict" and op.key in refused,
        conf=TAKING.replace("ACTION", action),
    )
    world.leave = world.again  # type: ignore[method-assign]
    for number in range(size):
        urgent(world, f"first{number}")
    for number in range(2):
        world.update_pod(f"default/held-{number}", phase="Succeeded")
    rest(world)
    back = sorted(world.placed("low"))
    assert len(back) == 2
    refused.append(f"default/{back[0]}")
    world.put(gang("last", 2, queue="owner", cpu=2, group_spec=HIGH, spec=spec))
    world.cycle()
    assert [name for _, name in world.attempts] == back[:1]
    refused.clear()
    rest(world)
    assert list(world.placed("last")) == ["last-0", "last-1"]
    assert len(world.evicted) == size + 2
