"""The present going on in simulated time, many times over, as far as it matters to some jobs."""

from __future__ import annotations

import gc
import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property, partial
from random import Random
from typing import Any

import msgspec

from vcd.model import events as ev
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.framework.policy import Policy
from vcd.timetravel.parallel import Part, in_order
from vcd.timetravel.whatif.arrivals import Arrivals, Came
from vcd.timetravel.whatif.cluster import UNKNOWN_RUN, SimulatedCluster, SimulatedUnit
from vcd.timetravel.whatif.delays import Delays
from vcd.timetravel.whatif.measure import Measure
from vcd.timetravel.whatif.runtimes import RunTimes
from vcd.timetravel.whatif.workload import SECOND, Unit, Workload

PAIRED = 5
"""In so many runs it is looked at how others fare without what is submitted."""
EXACT = 30
"""So many sessions of a run are each of one period; the others are later by an even factor of the time gone by."""
LIMIT = 150
"""So many sessions a run has at most, the last of which is at its horizon."""
FOLLOWED = 400
"""A run goes on for the time in which so many jobs come, and at least as long as work usually runs; where none come,
for so many times as long as that."""
_ENDLESS = 10**18
"""A run time (ns) that ends in no run: of work like which nothing has ended."""
_COLLECTED = 20_000
"""After runs of so many units what they leave behind is collected; to look for it takes longer than a small run."""
_PEACEFUL = ("enqueue", "allocate", "backfill")
"""Actions that evict nobody."""
_MOVES = "shuffle"
"""The action that may evict though nobody waits."""


class SampledRun(msgspec.Struct):
    """What one run came to.

    ``started`` and ``ended`` of each watched group, ns since the epoch: None is "not until ``until``", when the run
    stopped; starts may be too late by up to ``grains`` (ns). ``reasons`` say what such a group waited for then.
    ``moved`` is when others start without what is submitted, and with it (ns since the epoch; None: they still wait
    long after it has ended), ``causes`` why they wait then; ``victims`` are evicted only with it. All are empty where
    that was not looked at.
    """

    until: int
    started: dict[str, int | None]
    ended: dict[str, int | None]
    reasons: dict[str, tuple[ev.Waiting, ...]]
    grains: dict[str, int]
    moved: dict[str, tuple[int, int | None]] = msgspec.field(default_factory=dict)
    causes: dict[str, str] = msgspec.field(default_factory=dict)
    victims: frozenset[str] = frozenset()


@dataclass
class SampledRuns:
    """The present (``work``) as it goes on for the groups ``watched``, under ``policy``; everything is drawn by
    ``seed``, run ``sample`` of ``samples`` always in the same way.

    ``known`` says how long (ns) units run, by key, of which that is known. ``submitted`` are keys of units whose run
    time is drawn from other work if nothing like them has ended; other such units run on to the end. ``hopeless`` are
    keys of units that nothing will ever place. ``without`` is the present without what is submitted, where others are
    to be compared.
    """

    work: Workload
    policy: Policy
    model: RunTimes
    arrivals: Arrivals
    watched: tuple[str, ...]
    samples: int
    seed: int
    period: int
    known: Mapping[str, int] = field(default_factory=dict)
    submitted: frozenset[str] = frozenset()
    hopeless: frozenset[str] = frozenset()
    without: Workload | None = None

    def run(self, jobs: int, progress: Callable[[int], None]) -> list[SampledRun]:
        """All runs, done by up to ``jobs`` processes; ``progress`` is told how many are done."""
        found: list[SampledRun] = []
        size = -(-self.samples // (4 * jobs))
        parts = [(at, min(at + size, self.samples) - 1) for at in range(0, self.samples, size)]
        outcomes = self.outcomes((0, self.samples - 1)) if jobs < 2 else in_order(self.outcomes, parts, jobs)
        for outcome in outcomes:
            found.append(outcome)
            progress(len(found))
        return found

    def __getstate__(self) -> dict[str, Any]:
        """For another process, which reads the configuration anew."""
        return {**self.__dict__, "policy": self.policy.text}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = {**state, "policy": read_policy(state["policy"], logged=True)}

    def outcomes(self, part: Part) -> Iterator[SampledRun]:
        """The runs with these numbers."""
        garbage = 0
        for sample in range(part[0], part[1] + 1):
            yield self._outcome(sample)
            garbage += len(self.work.units)
            if garbage > _COLLECTED:
                gc.collect()  # a run refers to itself, and its arrays are large, which the collector does not see
                garbage = 0

    def _outcome(self, sample: int) -> SampledRun:
        compared = self.without is not None and sample < PAIRED
        others = self._others() if compared else ()
        delays = Delays() if compared else None
        run = Continued(self, self.work, sample, others, delays=delays)
        run.run()
        outcome = run.outcome()
        if compared and self.without is not None:
            without = Continued(self, self.without, sample, others, until=run.now)
            without.run()
            starts = {key: without.started(key) for key in others}
            outcome.moved = {key: (start, run.started(key)) for key, start in starts.items() if start is not None}
            causes = {} if delays is None else delays.found()
            outcome.causes = {key: causes[key].why for key in outcome.moved if key in causes}
            there = {unit.key for unit in self.without.units}
            outcome.victims = frozenset((run.measure.victims - without.measure.victims) & there)
        return outcome

    @cached_property
    def horizon(self) -> int:
        """When a run ends at the latest (ns since the epoch)."""
        came, usual = self.arrivals.came, self.model.usual or UNKNOWN_RUN
        between = self.arrivals.span / len(came) if came else usual
        return self.work.begin + max(SECOND, usual, round(FOLLOWED * between))

    @property
    def evicts(self) -> bool:
        """Whether somebody may be evicted."""
        return any(action not in _PEACEFUL for action in self.policy.actions)

    def _others(self) -> tuple[str, ...]:
        """Groups that wait now, and may start some time."""
        assert self.without is not None
        waiting = {unit.group for unit in self.without.units if not unit.node and unit.key not in self.hopeless}
        running = {unit.group for unit in self.without.units if unit.node}
        return tuple(sorted(waiting - running - set(self.watched)))

    def uniform(self, sample: int, name: str) -> float:
        """A number from 0 to 1, without 1, for a name; over the runs, one in each of as many equal strata."""
        digest = hashlib.blake2b(f"{self.seed}/{name}".encode(), digest_size=8).digest()
        random = Random(int.from_bytes(digest, "big"))
        strata = list(range(self.samples))
        random.shuffle(strata)
        within = [random.random() for _ in strata]
        return (strata[sample] + within[sample]) / self.samples


class Continued(SimulatedCluster):
    """One run: it goes on until every pod of the watched groups has had its node, and then until the ``others`` have
    started, at most as long again as the watched work took to end; in any case to ``until`` or the horizon at most.

    It decides only while somebody waits for whom there is hope.
    """

    def __init__(
        self,
        trials: SampledRuns,
        work: Workload,
        sample: int,
        others: Collection[str] = (),
        until: int | None = None,
        delays: Delays | None = None,
    ) -> None:
        work = copy(work)
        work.groups = dict(work.groups)
        super().__init__(
            work,
            trials.policy,
            Measure(work.begin),
            trials.model,
            seed=trials.seed,
            period=trials.period,
            length=self._drawn_length,
            delays=delays,
        )
        self._trials, self._sample, self._until = trials, sample, until
        self._known, self._seen = dict(trials.known), dict[str, int]()
        self._uniform = partial(trials.uniform, sample)
        self._model = trials.model.drawn(Random(f"{trials.seed}/{sample}"))
        self._luck: dict[str, float] = {}
        self._grains: dict[str, int] = {}
        self._others = list(others)
        self._open = {
            unit.key
            for unit in work.units
            if unit.group in trials.watched and not unit.node and unit.key not in trials.hopeless
        }
        self._never = {unit.group for unit in work.units if unit.key in trials.hopeless}

    # --- what it comes to ---------------------------------------------------------------------------------------------

    def started(self, key: str) -> int | None:
        """When a group first had its minimum on nodes."""
        job = self.measure.jobs.get(key)
        return None if job is None else job.started

    def outcome(self) -> SampledRun:
        """Of the watched groups."""
        watched = self._trials.watched
        started = {key: self.started(key) for key in watched}
        return SampledRun(
            until=self.now,
            started=started,
            ended={key: self._end(key) for key in watched},
            reasons={key: self.state.waiting.get(key, ()) for key in watched if started[key] is None},
            grains={key: self._grains.get(key, 0) for key in watched},
        )

    def _end(self, key: str) -> int | None:
        """When the last pod of a group ends, unless it is evicted meanwhile; None where one was never bound."""
        ends = [piece.due for piece in self._gangs[key].pieces]
        return None if not ends or None in ends else max(end for end in ends if end is not None)

    # --- when to stop, and how finely to look -------------------------------------------------------------------------

    def _settled(self) -> bool:
        until = self._trials.horizon if self._until is None else self._until
        if self.measure.sessions >= LIMIT or self.now > until:
            return True
        if self._open or (self._until is not None and self._trials.evicts):
            return False
        while self._others and self.started(self._others[-1]) is not None:
            self._others.pop()
        return not self._others or self.now > self._last()

    def _last(self) -> int:
        """Until when the others are watched: until the watched work has ended, and as long again."""
        ends = [self._end(key) or self.now for key in self._trials.watched if key in self._gangs]
        end = max(ends, default=self.now)
        return 2 * end - self._work.begin if self._until is None else self._until

    def _starts(self, piece: SimulatedUnit, node: str, elapsed: int) -> None:
        super()._starts(piece, node, elapsed)
        self._open.discard(piece.unit.key)
        if self.started(piece.unit.group) == self.now and self.measure.sessions >= EXACT:
            self._grains[piece.unit.group] = self._step()

    def _ends(self, piece: SimulatedUnit, phase: str) -> None:
        super()._ends(piece, phase)
        self._open.discard(piece.unit.key)

    def _step(self) -> int:
        gone, left = self.now - self._work.begin, LIMIT - self.measure.sessions
        if self.measure.sessions < EXACT or gone <= 0 or left <= 0:
            return self._period
        factor = ((self._trials.horizon - self._work.begin) / gone) ** (1 / left)
        return max(self._period, int(gone * (factor - 1)) // SECOND * SECOND)

    def _waits(self) -> bool:
        return any(key not in self._trials.hopeless for key in self._waiting)

    def _decide(self) -> bool:
        if not self._waits() and _MOVES not in self._policy.actions:
            self._dirty = False
            return False
        acted = super()._decide()
        if self._dirty:
            # what came of it is seen by the next session, which is a period later, as vc-scheduler's is
            self._dirty = False
            self._at(self.now + self._step(), self._look)
        return acted

    def _look(self) -> None:
        self._dirty = True

    # --- what is drawn ------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        super()._begin()
        coming = self._trials.arrivals.drawn(self._work.begin, self._trials.horizon, self._uniform)
        self._next(one for one in coming if one.of not in self._never)

    def _next(self, coming: Iterator[Came]) -> None:
        """Let the next job come, and the one after it when it has."""
        came = next(coming, None)
        if came is None:
            return
        self._work.groups[came.life.key] = came.life
        self._known |= came.lengths
        self._seen |= came.seen
        self._expect([came.life], came.units)
        self._at(came.life.arrived, partial(self._next, coming))

    def _drawn_length(self, unit: Unit, elapsed: int) -> int:
        known = self._known.get(unit.key)
        if known is not None:
            return known
        if unit.key not in self._trials.submitted and not self._trials.model.has_like(unit.pod):
            return _ENDLESS
        # the pods of a job share their luck: they mostly end together
        name = unit.group or unit.key
        if name not in self._luck:
            self._luck[name] = self._uniform(name)
        elapsed = max(elapsed, self._seen.get(unit.key, 0))
        drawn = self._model.draw(unit.pod, elapsed, self._luck[name])
        return max(2 * elapsed, UNKNOWN_RUN) if drawn is None else drawn


# --- hope -------------------------------------------------------------------------------------------------------------


class _Emptied(SimulatedCluster):
    """Everything that waits, on a cluster on which nothing else runs, each for a moment."""

    def __init__(self, work: Workload, policy: Policy, seed: int, period: int) -> None:
        super().__init__(
            work, policy, Measure(work.begin), RunTimes([]), seed=seed, period=period, length=lambda *_: period
        )
        self.placed: set[str] = set()

    @property
    def stopped(self) -> bool:
        """Whether it came to no end, so that it says nothing of what is not placed."""
        return self.measure.sessions >= LIMIT

    def _settled(self) -> bool:
        return self.stopped

    def _starts(self, piece: SimulatedUnit, node: str, elapsed: int) -> None:
        super()._starts(piece, node, elapsed)
        self.placed.add(piece.unit.key)


def hopeless(work: Workload, policy: Policy, seed: int, period: int) -> dict[str, tuple[ev.Waiting, ...]]:
    """Units that wait and would not be placed though nothing else ran, by key, with what their group waits for then."""
    waiting = {unit.group for unit in work.units if not unit.node}
    emptied = copy(work)
    emptied.units = [_bare(unit) for unit in work.units if unit.group in waiting]
    run = _Emptied(emptied, policy, seed, period)
    run.run()
    unplaced = [unit for unit in work.units if not unit.node and unit.key not in run.placed and not _follows(unit)]
    return {} if run.stopped else {unit.key: run.state.waiting.get(unit.group, ()) for unit in unplaced}


def _bare(unit: Unit) -> Unit:
    bare = copy(unit)
    bare.node, bare.place, bare.bound = "", "", None
    return bare


def _follows(unit: Unit) -> bool:
    """Whether it goes only where others are, so that an empty cluster says nothing of it."""
    affinity = unit.pod.spec.affinity
    return affinity is not None and affinity.pod_affinity is not None
