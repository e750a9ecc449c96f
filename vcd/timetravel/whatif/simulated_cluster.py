"""A simulated cluster: a workload arrives, the scheduler decides, bound pods run for their time, evicted ones return.

Time is simulated, and `vcd.scheduling.decide` decides, as in `vcd run`. The module starts no program and has no API
server. Events of one time happen in the order in which they were planned, so that a run is deterministic.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from functools import partial
from statistics import median

import msgspec

from vcd.model import events as ev
from vcd.model.objects import PodGroup, PodStatus, altered
from vcd.model.projection_codec import encode_payload
from vcd.model.wording import SECOND, rfc3339
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.decide import run
from vcd.scheduling.framework.policy import Policy
from vcd.scheduling.framework.registry import is_timed
from vcd.scheduling.search.candidates import Memory
from vcd.scheduling.session_close import plan_of
from vcd.state.cluster_state import ClusterState
from vcd.state.deadlines import next_deadline
from vcd.state.records import QUEUE_ADMISSION_GATE
from vcd.state.snapshot import SnapshotMaker
from vcd.timetravel.whatif.delays import Delays
from vcd.timetravel.whatif.logged_workload import GroupLife, Unit, Workload
from vcd.timetravel.whatif.run_measures import Measure
from vcd.timetravel.whatif.runtimes import RunTimes

PERIOD = SECOND
"""Events within one period are decided together, as by vc-scheduler."""
UNKNOWN_RUN = 3600 * SECOND
"""The assumed run time of a pod about which nothing is known."""
_IDLE_WAKES = 60
_WAKE = 60 * SECOND
_OVER = ("Succeeded", "Failed")

Do = Callable[[], None]
Length = Callable[[Unit, int], int]
"""Returns how long a unit runs in total (ns), if it has run for some time already."""


class SimulatedUnit(msgspec.Struct):
    """A unit in the simulation.

    ``attempt`` counts its binds and evictions, so that events scheduled for an earlier one are ignored; ``due`` is
    when it ends unless it is evicted (None: it was never bound). ``version`` counts the unit's versions so far;
    ``ungated``: the scheduler removed its gate.
    """

    unit: Unit
    attempt: int = 0
    uid: str = ""
    present: bool = False
    node: str = ""
    over: bool = False
    due: int | None = None
    version: int = 0
    ungated: bool = False


class _Gang(msgspec.Struct):
    """A group in the simulation."""

    life: GroupLife
    pieces: list[SimulatedUnit] = msgspec.field(default_factory=list)
    admitted: bool = False


class SimulatedCluster:
    """One run of a workload under a configuration.

    ``length`` returns how long a unit runs; by default as long as in the log, else as long as ``run_times`` expects
    from earlier pods. ``delays`` diagnoses the jobs that wait. The run is deterministic.
    """

    def __init__(
        self,
        work: Workload,
        policy: Policy,
        measure: Measure,
        run_times: RunTimes,
        *,
        seed: int = 0,
        period: int = PERIOD,
        length: Length | None = None,
        progress: Callable[[int], None] = lambda _: None,
        delays: Delays | None = None,
    ) -> None:
        self.state = ClusterState()
        self.measure = measure
        self._delays = delays
        self.now = work.begin
        self._work = work
        self._policy = policy
        self._run_times = run_times
        self._length = length or self._expected_length
        self._seed = seed
        self._period = period
        self._progress = progress
        self._maker = SnapshotMaker(self.state)
        self._memory = Memory()
        self._termination_time = int(median(work.leaving)) if work.leaving else 0
        self._agenda: list[tuple[int, int, Do]] = []
        self._order = 0
        self._dirty = True
        self._deadline = 0
        """The last deadline of the state (ns since the epoch) that is on the agenda."""
        self._timed = is_timed(policy)
        self._of_key: dict[str, SimulatedUnit] = {}
        self._waiting: dict[str, SimulatedUnit] = {}
        """Existing units without a node, by key."""
        self._gangs: dict[str, _Gang] = {}

    # --- running ------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Let time pass until no event is left."""
        self._begin()
        idle = 0
        while not self._settled():
            if self._dirty and (not self._agenda or self._agenda[0][0] > self.now):
                idle = 0 if self._decide() else idle
                self._expect_deadline()
                continue
            if not self._agenda:
                if not (self._timed and self._waits() and idle < _IDLE_WAKES):
                    break
                idle += 1
                self.now, self._dirty = self.now + _WAKE, True
            else:
                due = self._agenda[0][0]
                if self._timed and due > self.now + _WAKE and self._waits():
                    self.now, self._dirty = self.now + _WAKE, True
                else:
                    # events within a period are observed together, at its end
                    step = self._step()
                    self.now = max(self.now, -(-due // step) * step)
            while self._agenda and self._agenda[0][0] <= self.now:
                heapq.heappop(self._agenda)[2]()
            self._progress(self.now)
        if self._delays is not None:
            self._delays.until(None)
        self.measure.close(self.now)

    def _begin(self) -> None:
        work = self._work
        self._happen(ev.PolicyLoaded(self._policy.digest, self._policy.text, work.settings.as_text()))
        for event in work.base:
            self._change(event)
        for time, event in work.changes:
            self._at(time, partial(self._change, event))
        self._expect(work.groups.values(), work.units)
        if work.spared.evicted or work.backoffs or work.released:
            self._at(self.now, self._take_over_holds)  # last, because each new object ends holds

    def _take_over_holds(self) -> None:
        """Take over holds, immunity and back-offs with the time that they have left."""
        work, state = self._work, self.state
        state.immunity.take_over(work.spared)
        state.backoffs.update({key: each for key, each in work.backoffs.items() if key in state.tasks.row_of})
        state.released.update({key: each for key, each in work.released.items() if key in state.groups})

    def _expect(self, groups: Iterable[GroupLife], units: Iterable[Unit]) -> None:
        """Schedule groups and pods at their arrival times, or pods after the admission of their group."""
        for life in groups:
            gang = self._gangs[life.key] = _Gang(life)
            self._at(life.arrived, partial(self._group_arrives, gang))
        for unit in units:
            piece = SimulatedUnit(unit)
            if unit.group in self._gangs:
                self._gangs[unit.group].pieces.append(piece)
            if unit.delay is None or unit.group not in self._gangs:
                self._at(unit.arrived, partial(self._pod_arrives, piece))

    def _expect_deadline(self) -> None:
        """Schedule a session for the next deadline in the state, if any pod waits then."""
        due = next_deadline(self.state, self.now)
        if due is not None and due != self._deadline and self._waits():
            self._deadline = due
            self._at(due, self._decide_again)

    def _decide_again(self) -> None:
        self._dirty = True

    def _settled(self) -> bool:
        """Whether the run may stop before all events have happened."""
        return False

    def _step(self) -> int:
        """Return the time (ns) within which events are decided together."""
        return self._period

    def _at(self, time: int, do: Do) -> None:
        self._order += 1
        heapq.heappush(self._agenda, (time, self._order, do))

    def _happen(self, event: ev.Event) -> None:
        self._fold(event)
        self._dirty = True

    def _fold(self, event: ev.Event) -> None:
        self.state.apply(self.state.sequence + 1, event)

    def _waits(self) -> bool:
        return bool(self._waiting)

    # --- arrivals and departures --------------------------------------------------------------------------------------

    def _change(self, event: ev.Event) -> None:
        self._happen(event)
        if isinstance(event, ev.PolicyLoaded):
            self._policy = read_policy(event.text, logged=True)
            self._timed = is_timed(self._policy)
        if isinstance(event, ev.ObjectPut) and event.kind == "Node" and event.key in self.state.nodes:
            self.measure.node(self.now, event.key, self.state.nodes[event.key].allocatable)
        elif isinstance(event, ev.ObjectGone) and event.kind == "Node":
            self.measure.node(self.now, event.key, {})
            for piece in [one for one in self._of_key.values() if one.node == event.key]:
                self._replace_evicted(piece)

    def _group_arrives(self, gang: _Gang) -> None:
        life = gang.life
        first, *later = life.versions or [(0, life.group)]
        self._happen(ev.ObjectPut("PodGroup", life.key, "", encode_payload(first[1])))
        self.measure.group(self.now, life, self._work.queue_of(life.key))
        for after, group in later:
            self._at(life.arrived + after, partial(self._group_changes, life.key, group))
        if life.withdrawn is not None and not gang.pieces:
            self._at(life.withdrawn, partial(self._happen, ev.ObjectGone("PodGroup", life.key)))

    def _group_changes(self, key: str, group: PodGroup) -> None:
        """Change a group's spec as its user or a controller did; its status is the scheduler's."""
        record = self.state.groups.get(key)
        if record is not None:
            changed = altered(group, status=record.group.status)
            self._happen(ev.ObjectPut("PodGroup", key, "", encode_payload(changed)))

    def _pod_arrives(self, piece: SimulatedUnit) -> None:
        unit = piece.unit
        if unit.node and not piece.attempt and unit.node not in self.state.nodes:
            piece.over = True  # its node was already gone
            return
        piece.present, piece.uid = True, unit.uid if not piece.attempt else f"{unit.uid}~{piece.attempt}"
        piece.version, piece.ungated = len(unit.versions) if piece.attempt else 0, False
        self._of_key[unit.key] = piece
        self.measure.unit(self.now, unit, self._work.job_of(unit), self._work.queue_of(unit.group))
        if unit.node and not piece.attempt:
            self._starts(piece, unit.node, self.now - (unit.bound or self.now))
            return
        self._waiting[unit.key] = piece
        self._report_pod(piece, "", "Pending")
        for after, _ in unit.versions[1:] if not piece.attempt else ():
            self._schedule_unless_moved(piece, after, partial(self._change_pod, piece))
        if unit.bound is None and unit.ended is not None:
            self._at(unit.ended, partial(self._delete_waiting, piece))

    def _delete_waiting(self, piece: SimulatedUnit) -> None:
        """Delete a waiting pod at the time at which its owner deleted it in the log."""
        if piece.present and not piece.node:
            self._ends(piece, "Failed")

    def _change_pod(self, piece: SimulatedUnit) -> None:
        """Change a waiting pod as its user or a controller did."""
        piece.version += 1
        self._report_pod(piece, "", "Pending")

    def _report_pod(self, piece: SimulatedUnit, node: str, phase: str) -> None:
        unit = piece.unit
        pod = unit.versions[piece.version][1] if piece.version < len(unit.versions) else unit.pod
        gates = pod.spec.scheduling_gates
        if piece.ungated:
            gates = tuple(gate for gate in gates if gate.name != QUEUE_ADMISSION_GATE)
        created = pod.metadata.creation_timestamp
        if piece.attempt or unit.delay is not None:
            created = rfc3339(self.now)
        observed = altered(
            pod,
            metadata={"uid": piece.uid, "creation_timestamp": created},
            spec={"node_name": node, "scheduling_gates": gates},
            status=PodStatus(phase=phase, start_time=rfc3339(self.now) if node else None),
        )
        self._happen(ev.ObjectPut("Pod", unit.key, "", encode_payload(observed)))

    def _starts(self, piece: SimulatedUnit, node: str, elapsed: int) -> None:
        piece.node = node
        piece.attempt += 1
        self._waiting.pop(piece.unit.key, None)
        self._report_pod(piece, node, "Running")
        self.measure.starts(self.now, piece.unit, node)
        rest = max(0, self._length(piece.unit, elapsed) - elapsed)
        piece.due = self.now + rest
        phase = "Failed" if piece.unit.ending == "failed" else "Succeeded"
        self._schedule_unless_moved(piece, rest, partial(self._ends, piece, phase))

    def _schedule_unless_moved(self, piece: SimulatedUnit, after: int, do: Do) -> None:
        """Do something after a time, unless the unit is bound or evicted before."""
        attempt = piece.attempt
        self._at(self.now + after, lambda: do() if piece.attempt == attempt else None)

    def _expected_length(self, unit: Unit, elapsed: int) -> int:
        if unit.run is not None:
            return unit.run
        known = max(elapsed, unit.seen_running(self._work.end))
        if not self._run_times.has_like(unit.pod):
            self.measure.invented(self.now - elapsed + known, self._work.job_of(unit))
        estimate = self._run_times.estimate(unit.pod, known)
        return max(2 * known, UNKNOWN_RUN) if estimate is None else estimate.median

    def _ends(self, piece: SimulatedUnit, phase: str) -> None:
        self.measure.ends(self.now, piece.unit, piece.node)
        self._report_pod(piece, piece.node, phase)
        piece.over, piece.node = True, ""
        piece.attempt += 1
        self._waiting.pop(piece.unit.key, None)
        gang = self._gangs.get(piece.unit.group)
        if gang is None:
            self._removed(piece)
        elif all(one.over for one in gang.pieces):
            for one in gang.pieces:
                self._removed(one)
            self._happen(ev.ObjectGone("PodGroup", gang.life.key))

    def _removed(self, piece: SimulatedUnit) -> None:
        if piece.present:
            piece.present = False
            del self._of_key[piece.unit.key]
            self._happen(ev.ObjectGone("Pod", piece.unit.key))

    def _replace_evicted(self, piece: SimulatedUnit) -> None:
        """Remove an evicted pod, and let its controller create another one."""
        self.measure.leaves(self.now, piece.unit, piece.node)
        piece.node = ""
        piece.attempt += 1
        self._removed(piece)
        self._pod_arrives(piece)

    # --- decisions ----------------------------------------------------------------------------------------------------

    def _decide(self) -> bool:
        """Decide one session and carry it out; return whether it changed anything."""
        self._dirty = False
        if self._delays is not None:
            self._delays.until(self.now)
        snapshot = self._maker.snapshot()
        session = run(snapshot, self._policy, self.now, self._seed, self._memory)
        plan = plan_of(session)
        self.measure.session(self.now, {name: record.queue.spec.weight for name, record in self.state.queues.items()})
        if plan != ev.Plan():
            number, digest = self.state.session + 1, self._policy.digest
            self._fold(
                ev.SessionDecided(number, snapshot.sequence, digest, self.now, self._seed, 1, {}, ev.encode_plan(plan))
            )
        if self._delays is not None:
            self._delays.decided(self.now, session, self.state.waiting)
        if plan == ev.Plan():
            return False
        acted = False
        for statement in plan.statements:
            for operation in statement.operations:
                acted |= operation.verb != "pipeline"
                self._carry_out(operation, statement.action)
        self._admit(plan.groups)
        self._dirty = self._dirty or plan.more
        return acted

    def _carry_out(self, operation: ev.Operation, action: str) -> None:
        piece = self._of_key[operation.key]
        if operation.verb == "bind":
            self._starts(piece, operation.node, 0)
        elif operation.verb == "ungate":
            piece.ungated = True
            self._report_pod(piece, "", "Pending")
        elif operation.verb == "evict":
            self.measure.evicted(self.now, piece.unit, action)
            piece.attempt += 1
            self._schedule_unless_moved(piece, self._termination_time, partial(self._replace_evicted, piece))

    def _admit(self, groups: Iterable[ev.GroupStatus]) -> None:
        """Schedule the pods that controllers create once their group is admitted."""
        for status in groups:
            gang = self._gangs.get(status.key)
            if gang is None or gang.admitted or status.phase == "Pending":
                continue
            gang.admitted = True
            for piece in gang.pieces:
                if piece.unit.delay is not None:
                    self._at(self.now + piece.unit.delay, partial(self._pod_arrives, piece))
