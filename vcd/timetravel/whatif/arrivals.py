"""Future arrivals of jobs, resampled from the recent past of a log in blocks.

A block is drawn as a whole (a circular moving-block bootstrap; Kuensch, Annals of Statistics 17, 1989). So jobs that
arrived together arrive together again, and some draws are from busy times and some from quiet ones. A run first draws
as many blocks as the recent past has, and then draws from these alone: the long-term rate of arrivals is known only as
precisely as that past shows it, and runs differ by as much (Efron and Tibshirani, An Introduction to the Bootstrap,
chapter 8).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator
from copy import copy

import msgspec

from vcd.model.controllers import GROUP_NAME
from vcd.model.objects import Pod, PodGroup, altered
from vcd.model.wording import SECOND, rfc3339
from vcd.state.records import seconds_of
from vcd.timetravel.whatif.expectedpods import ExpectedPods
from vcd.timetravel.whatif.logged_workload import GroupLife, Unit, Workload

RECENT = 400
"""The number of recent jobs to draw from."""
FEWEST = 3
"""With fewer jobs, no rate of arrivals can be estimated."""
_BLOCKS = 8
"""The number of blocks into which the recent past is cut."""

Uniform = Callable[[str], float]
"""Returns a number from 0 to 1 for a name, different in each run."""


class ArrivedJob(msgspec.Struct):
    """A job that arrived, with its pods. For a drawn job, ``of`` is the group that it is a copy of, and by key of its
    pods, ``lengths`` (ns) has the total run time of the original pod if known, and ``seen`` the time that it ran at
    least."""

    life: GroupLife
    units: list[Unit]
    of: str = ""
    lengths: dict[str, int] = msgspec.field(default_factory=dict)
    seen: dict[str, int] = msgspec.field(default_factory=dict)


class Arrivals:
    """The jobs that arrived in a log between ``begin`` and ``end`` (ns), to draw from."""

    def __init__(self, came: list[ArrivedJob], begin: int, end: int) -> None:
        """Create from ``came``, in order of time."""
        self.came = came if len(came) >= FEWEST and end > begin else []
        self.span = end - begin
        """The time (ns) in which they arrived."""
        self._begin = begin
        self._times = [one.life.arrived - begin for one in self.came]

    @classmethod
    def of(cls, past: Workload, meant: ExpectedPods) -> Arrivals:
        """Return the most recent jobs of a log, without those that existed when it began; jobs without pods get
        expected ones."""
        units = defaultdict[str, list[Unit]](list)
        for unit in past.units:
            units[unit.group].append(unit)
        lives = [life for life in past.groups.values() if life.arrived > past.begin and not _is_older(life, past.begin)]
        lives.sort(key=lambda life: (life.arrived, life.key))
        before = lives[-RECENT - 1].arrived if len(lives) > RECENT else past.begin
        came = [ArrivedJob(life, units[life.key] or meant.units(life.group, life.arrived)) for life in lives[-RECENT:]]
        return cls([one for one in came if one.units], before, past.end)

    def drawn(self, begin: int, until: int, uniform: Uniform) -> Iterator[ArrivedJob]:
        """Yield jobs that arrive from ``begin`` (ns) on, in order of time, with new names; from the blocks that begin
        by ``until`` (ns)."""
        number, length = 0, -(-self.span // _BLOCKS)
        block = 0
        while self.came and begin + block * length <= until:
            stretch = int(uniform(f"turn {block}") * _BLOCKS)
            offset = int(uniform(f"stretch {stretch}") * self.span)
            for time, one in self._between(offset, length):
                number += 1
                yield self._copy_at(one, begin + block * length + time, number)
            block += 1

    def _between(self, offset: int, length: int) -> Iterator[tuple[int, ArrivedJob]]:
        """Yield the jobs of a block, with the time since its beginning."""
        first = bisect_left(self._times, offset)
        for turn in range(len(self.came)):
            around, place = divmod(first + turn, len(self.came))
            time = self._times[place] + around * self.span - offset
            if time >= length:
                return
            yield time, self.came[place]

    def _copy_at(self, one: ArrivedJob, time: int, number: int) -> ArrivedJob:
        """Return a copy of a job with another name, at another time in whole seconds."""
        came = -(-time // SECOND) * SECOND
        mark, created = f"~{number}", rfc3339(came)
        meta = one.life.group.metadata
        named = {"name": meta.name + mark, "uid": meta.uid + mark, "creation_timestamp": created}
        group: PodGroup = altered(one.life.group, metadata=named)
        # all arriving jobs wait for admission, whatever the log observed
        group = altered(group, status=type(group.status)())
        life = GroupLife(group.key, group, came, waited=True)
        units, lengths, seen = [], {}, {}
        for unit in one.units:
            pod = _copy_pod(unit.pod, group.metadata.name, mark, created)
            new = copy(unit)
            new.key, new.uid, new.group, new.pod = pod.key, pod.metadata.uid, group.key, pod
            new.arrived, new.versions = came + max(0, unit.ready - one.life.arrived), []
            new.node, new.place, new.bound, new.ended, new.ending, new.earlier = "", "", None, None, "", []
            units.append(new)
            if unit.run is not None and unit.seen_whole:
                lengths[new.key] = unit.run
            elif unit.bound is not None:
                # otherwise long jobs, most of which still run, would be drawn as usual ones
                seen[new.key] = unit.seen_running(self._begin + self.span)
        return ArrivedJob(life, units, one.life.key, lengths, seen)


def _is_older(life: GroupLife, begin: int) -> bool:
    """Return whether a group existed before the log began, and was only observed later."""
    try:
        created = seconds_of(life.group.metadata.creation_timestamp)
    except ValueError:
        return False  # it does not state when it was created
    return bool(created) and (created + 1) * SECOND <= begin


def _copy_pod(pod: Pod, group: str, mark: str, created: str) -> Pod:
    meta = pod.metadata
    return altered(
        pod,
        metadata={
            "name": meta.name + mark,
            "uid": meta.uid + mark,
            "creation_timestamp": created,
            "annotations": {**meta.annotations, GROUP_NAME: group},
        },
        # no claims: those of the original belong to it, and are mostly deleted with it
        spec={"volumes": (), "resource_claims": ()},
    )
