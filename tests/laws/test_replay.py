"""Law: replaying a session from the log gives the same bytes; fold(all) = fold(checkpoint + tail)."""

from __future__ import annotations

import msgspec

from tests.dsl import gang, group, node
from tests.laws.answering import Answering
from tests.laws.histories import History, sessions
from tests.sizes import seeds
from vcd.model import events as ev
from vcd.scheduling.decide import decide
from vcd.scheduling.framework.declared_reasons import all_told
from vcd.state.cluster_state import ClusterState
from vcd.state.snapshot import SnapshotMaker

CLUSTERS = seeds(8, 120)
CYCLES = 8


def folded(log: list[ev.Event], state: ClusterState, upto: int) -> ClusterState:
    """The state after the first ``upto`` events."""
    for sequence in range(state.sequence, upto):
        state.apply(sequence + 1, log[sequence])
    return state


def decided_again(history: History, session: ev.SessionDecided, state: ClusterState) -> bytes:
    snapshot = SnapshotMaker(state).snapshot()
    assert snapshot.sequence == session.head
    return ev.encode_plan(decide(snapshot, history.policy, session.now, session.seed))


def test_each_session_is_decided_again_from_a_checkpoint_and_the_tail() -> None:
    for seed in CLUSTERS:
        history = History(seed)
        list(history.live(CYCLES))
        log, middle = history.log, history.random.randrange(len(history.log))
        state = ClusterState.load(folded(log, ClusterState(), middle).dump())
        for session in sessions(log):
            if session.head >= middle:
                folded(log, state, session.head)
                again = decided_again(history, session, state)
                assert again == session.plan, f"seed {seed}, session {session.session}, checkpoint {middle}"
        assert folded(log, state, len(log)).dump() == history.state.dump(), f"seed {seed}, checkpoint {middle}"


def words_of(state: ClusterState) -> bytes:
    """What waits for what, each reason's quantities in the order in which they are told."""
    return msgspec.json.encode({key: state.waiting[key] for key in sorted(state.waiting)})


def test_each_session_is_decided_again_from_the_log_alone_and_leaves_the_same_state() -> None:
    """What a session decided is folded as it is; from the log it comes decoded."""
    told = 0
    for seed in CLUSTERS:
        history, again = History(seed), ClusterState()
        for _ in history.live(CYCLES):
            for event in history.log[again.sequence :]:
                if isinstance(event, ev.SessionDecided):
                    plan = decided_again(history, event, again)
                    assert plan == event.plan, f"seed {seed}, session {event.session}"
                again.apply(again.sequence + 1, ev.decode_event(ev.encode_event(event)))
            assert again.dump() == history.state.dump(), f"seed {seed}, event {again.sequence}"
            assert words_of(again) == words_of(history.state), f"seed {seed}, event {again.sequence}"
            told += sum(len(each.detail) > 1 for known in again.waiting.values() for each in all_told(known))
    assert told


def test_a_resource_that_is_nowhere_any_more_changes_no_plan() -> None:
    """A state that saw it knows its name, one loaded from a checkpoint does not."""
    world = Answering(node("n", gpu=1), gang("g", 1, cpu=1, gpu=1, phase="Pending", minimum={"cpu": 1}))
    world.rest()
    world.remove("Pod", "default/g-0")
    world.put(node("n"), group("g", phase="Pending"))
    world.rest()
    loaded = ClusterState.load(world.state.dump())
    plans = [decide(SnapshotMaker(state).snapshot(), world.policy, world.now, 0) for state in (world.state, loaded)]
    assert ev.encode_plan(plans[0]) == ev.encode_plan(plans[1])
