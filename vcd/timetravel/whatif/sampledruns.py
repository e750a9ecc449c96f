"""Simulates the future of a cluster many times, until some watched jobs have started and ended.

Each run samples run times and arrivals from the log, and decides its sessions like `vcd run`. Its seed determines it.
"""

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
from vcd.model.wording import SECOND
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.framework.policy import Policy
from vcd.timetravel.process_pool import Part, in_order
from vcd.timetravel.whatif.arrivals import Arrivals, ArrivedJob
from vcd.timetravel.whatif.delays import Delays
from vcd.timetravel.whatif.logged_workload import Unit, Workload
from vcd.timetravel.whatif.run_measures import Measure
from vcd.timetravel.whatif.runtimes import RunTimes
from vcd.timetravel.whatif.simulated_cluster import UNKNOWN_RUN, SimulatedCluster, SimulatedUnit

PAIRED = 5
"""Runs that are repeated without the submitted jobs, to see the effect on others."""
EXACT = 30
"""Sessions of a run that are one period apart; later ones are apart by a constant factor of the elapsed time."""
LIMIT = 150
"""Sessions of a run, at most; the last one is at its horizon."""
FOLLOWED = 400
"""A run lasts the expected time of this many arrivals, and at least the usual run time of pods; without arrivals, this
many times the usual run time."""
_ENDLESS = 10**18
"""The run time (ns) of pods if no similar pod has ended: longer than every simulation."""
_COLLECTED = 20_000
"""Units that were simulated before garbage is collected; a collection takes longer than a small run."""
_PEACEFUL = ("enqueue", "allocate", "backfill")
"""Actions that evict no pod."""
_MOVES = "shuffle"
"""The action that may evict although no pod waits."""


class SampledRun(msgspec.Struct):
    """The outcome of one run.

    ``started`` and ``ended`` of each watched group are ns since the epoch; None means "not until ``until``", when the
    run stopped. Starts may be late by up to ``grains`` (ns). ``reasons`` state what such a group waited for then.
    ``moved`` is when other groups start without the submitted jobs, and with them (ns since the epoch; None: they
    still wait long after these ended), ``causes`` why they wait then; ``victims`` are evicted only with them. All
    three are empty if the run was not repeated.
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
    """The runs of the present (``work``) for the groups ``watched``, under ``policy``. All random values derive from
    ``seed``; run ``sample`` of ``samples`` is deterministic.

    ``known`` has stated run times (ns) of units, by key. ``submitted`` are keys of units whose run time is drawn from
    other work if no similar pod has ended; other such units run to the end. ``hopeless`` are keys of units that are
    never placed. ``without`` is the present without the submitted jobs, for the comparison of others.
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
        """Return all runs, computed by up to ``jobs`` processes; ``progress`` is called with the number of finished
        ones."""
        found: list[SampledRun] = []
        size = -(-self.samples // (4 * jobs))
        parts = [(at, min(at + size, self.samples) - 1) for at in range(0, self.samples, size)]
        outcomes = self.outcomes((0, self.samples - 1)) if jobs < 2 else in_order(self.outcomes, parts, jobs)
        for outcome in outcomes:
            found.append(outcome)
            progress(len(found))
        return found

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for another process, which parses the configuration again."""
        return {**self.__dict__, "policy": self.policy.text}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = {**state, "policy": read_policy(state["policy"], logged=True)}

    def outcomes(self, part: Part) -> Iterator[SampledRun]:
        """Yield the runs with these numbers."""
        garbage = 0
        for sample in range(part[0], part[1] + 1):
            yield self._outcome(sample)
            garbage += len(self.work.units)
            if garbage > _COLLECTED:
                gc.collect()  # a run refers to itself, and the collector does not see the size of its arrays
                garbage = 0

    def _outcome(self, sample: int) -> SampledRun:
        compared = self.without is not None and sample < PAIRED
        others = self._others() if compared else ()
        delays = Delays() if compared else None
        run = ContinuedRun(self, self.work, sample, others, delays=delays)
        run.run()
        outcome = run.outcome()
        if compared and self.without is not None:
            without = ContinuedRun(self, self.without, sample, others, until=run.now)
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
        """Whether a configured action may evict pods."""
        return any(action not in _PEACEFUL for action in self.policy.actions)

    def _others(self) -> tuple[str, ...]:
        """Return the groups that wait now, and may start at some time."""
        assert self.without is not None
        waiting = {unit.group for unit in self.without.units if not unit.node and unit.key not in self.hopeless}
        running = {unit.group for unit in self.without.units if unit.node}
        return tuple(sorted(waiting - running - set(self.watched)))

    def uniform(self, sample: int, name: str) -> float:
        """Return a number in [0, 1) for a name; over the runs, one in each of as many equal strata."""
        digest = hashlib.blake2b(f"{self.seed}/{name}".encode(), digest_size=8).digest()
        random = Random(int.from_bytes(digest, "big"))
        strata = list(range(self.samples))
        random.shuffle(strata)
        within = [random.random() for _ in strata]
        return (strata[sample] + within[sample]) / self.samples


class ContinuedRun(SimulatedCluster):
    """One run, which continues until every pod of the watched groups has had its node, and then until the ``others``
    have started, for at most as long again as the watched work took to end; at most to ``until`` or the horizon.

    It decides only while a pod waits that may be placed at some time.
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

    # --- outcome ------------------------------------------------------------------------------------------------------

    def started(self, key: str) -> int | None:
        """Return when a group first had its minimum on nodes."""
        job = self.measure.jobs.get(key)
        return None if job is None else job.started

    def outcome(self) -> SampledRun:
        """Return the outcome of the watched groups."""
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
        """Return when the last pod of a group ends, unless it is evicted before; None if one was never bound."""
        ends = [piece.due for piece in self._gangs[key].pieces]
        return None if not ends or None in ends else max(end for end in ends if end is not None)

    # --- when to stop, and the step between sessions ------------------------------------------------------------------

    def _settled(self) -> bool:
        until = self._trials.horizon if self._until is None else self._until
        if self.measure.sessions >= LIMIT or self.now > until:
            return True
        if self._open or (self._until is not None and self._trials.evicts):
            return False
        while self._others and self.started(self._others[-1]) is not None:
            self._others.pop()
        return not self._others or self.now > self._watch_until()

    def _watch_until(self) -> int:
        """Return until when the others are watched: twice the time until the watched work has ended."""
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
            # the next session observes the outcome, a period later, as vc-scheduler's does
            self._dirty = False
            self._at(self.now + self._step(), self._mark_dirty)
        return acted

    def _mark_dirty(self) -> None:
        self._dirty = True

    # --- random values ------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        super()._begin()
        coming = self._trials.arrivals.drawn(self._work.begin, self._trials.horizon, self._uniform)
        self._next(one for one in coming if one.of not in self._never)

    def _next(self, coming: Iterator[ArrivedJob]) -> None:
        """Schedule the next arrival, which schedules the one after it."""
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
        # the pods of a job share one draw: they mostly end together
        name = unit.group or unit.key
        if name not in self._luck:
            self._luck[name] = self._uniform(name)
        elapsed = max(elapsed, self._seen.get(unit.key, 0))
        drawn = self._model.draw(unit.pod, elapsed, self._luck[name])
        return max(2 * elapsed, UNKNOWN_RUN) if drawn is None else drawn


# --- pods that are never placed ---------------------------------------------------------------------------------------


class _EmptyClusterRun(SimulatedCluster):
    """Everything that waits, on an otherwise empty cluster, each pod for a moment."""

    def __init__(self, work: Workload, policy: Policy, seed: int, period: int) -> None:
        super().__init__(
            work, policy, Measure(work.begin), RunTimes([]), seed=seed, period=period, length=lambda *_: period
        )
        self.placed: set[str] = set()

    @property
    def stopped(self) -> bool:
        """Whether the run was cut off, so that unplaced pods may be placeable."""
        return self.measure.sessions >= LIMIT

    def _settled(self) -> bool:
        return self.stopped

    def _starts(self, piece: SimulatedUnit, node: str, elapsed: int) -> None:
        super()._starts(piece, node, elapsed)
        self.placed.add(piece.unit.key)


def hopeless(work: Workload, policy: Policy, seed: int, period: int) -> dict[str, tuple[ev.Waiting, ...]]:
    """Return units that wait and would not be placed on an otherwise empty cluster, by key, with the reasons of their
    group."""
    waiting = {unit.group for unit in work.units if not unit.node}
    emptied = copy(work)
    emptied.units = [_bare(unit) for unit in work.units if unit.group in waiting]
    run = _EmptyClusterRun(emptied, policy, seed, period)
    run.run()
    unplaced = [unit for unit in work.units if not unit.node and unit.key not in run.placed and not _follows(unit)]
    return {} if run.stopped else {unit.key: run.state.waiting.get(unit.group, ()) for unit in unplaced}


def _bare(unit: Unit) -> Unit:
    bare = copy(unit)
    bare.node, bare.place, bare.bound = "", "", None
    return bare


def _follows(unit: Unit) -> bool:
    """Return whether it has pod affinity, so that an empty cluster does not show whether it can be placed."""
    affinity = unit.pod.spec.affinity
    return affinity is not None and affinity.pod_affinity is not None
