"""Collects faults of the installation: conditions that prevent vcd from scheduling and are not caused by a job.

Checks find faults (`FaultMonitor.looks`), or a component reports one. A fault that begins, ends or gets another message
is logged and folded into the state, from which `vcd explain`, `vcd top` and the page read it. /readyz, the gauge
`vcd_installation_faults` and Events follow from the same table, `vcd.model.installation`.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import NamedTuple, NoReturn

import structlog

from vcd.daemon.metrics.series import SeriesStore
from vcd.kube.clock import SYSTEM_CLOCK, Clock
from vcd.kube.request_info import CompletedRequest, is_installation_fault
from vcd.model.events import Event, InstallationFault
from vcd.model.installation import FAULTS, MOST_SUBJECTS, OTHERS, fault_in_words
from vcd.state.cluster import ClusterState

_log = structlog.get_logger(__name__)

_PERIOD = 2.0
"""Seconds between two looks."""
_GRACE = 60.0
"""Seconds for which a new process leaves a fault in the log that it has not found yet."""
_REWORD = 600.0
"""Seconds for which a fault keeps its message: answers name objects, and each would be another message."""
_SETTLED, _FORGOTTEN = 60.0, 600.0
"""Seconds after the last refusal until a write counts as taken: if it succeeded since, and if nothing tried it."""
_UNANSWERED = 3
"""Writes in a row without an answer, each after an answer to another request, that make a fault."""
_NO_ANSWER = (0, 504)
"""No answer, and the API server's own answer when a write takes longer than the time that the client allows."""
_READS = ("get", "list", "watch")


class Sighting(NamedTuple):
    """A fault as it is seen now, and how many ``objects`` it concerns."""

    message: str
    objects: int = 1


Look = Callable[[], Mapping[str, Sighting]]
"""Finds all faults of one code, by subject."""


@dataclass(eq=False)
class FaultMonitor:
    """Collects faults, and logs and displays their changes.

    ``sink`` logs events, while ``writes`` says that this replica writes the log. ``announce`` makes an Event where the
    configuration is, from a reason and a message.
    """

    state: ClusterState
    sink: Callable[[Sequence[Event]], Awaitable[object]]
    writes: Callable[[], bool]
    series: SeriesStore
    announce: Callable[[str, str], None]
    _: KW_ONLY
    clock: Clock = SYSTEM_CLOCK
    looks: dict[str, Look] = field(default_factory=dict)
    """By code."""

    def __post_init__(self) -> None:
        self._began = self.clock.monotonic()
        self._reported: dict[str, dict[str, Sighting]] = {}
        """What components reported and did not clear, by code and subject."""
        self._listed: dict[tuple[str, str], Sighting] = {}
        """The faults as of the last look, each with the message that it keeps."""
        self._worded: dict[tuple[str, str], float] = {}
        """When faults got their messages."""

    def report(self, code: str, subject: str, message: str) -> None:
        """Note a fault that no look finds, until it is cleared."""
        self._reported.setdefault(code, {})[subject] = Sighting(message)

    def clear(self, code: str, subject: str) -> None:
        """Note that a reported fault has ended."""
        self._reported.get(code, {}).pop(subject, None)

    def announce_all(self) -> None:
        """Make the Events of all faults that last: this replica leads, and could make none before."""
        self._announce(self._listed)

    def not_ready(self) -> str | None:
        """The faults for which this replica is not ready as of now, in words; None without one."""
        found = [
            InstallationFault(code, subject, one.message)
            for code in FAULTS
            if FAULTS[code].not_ready
            for subject, one in sorted(self._sightings(code).items())[:MOST_SUBJECTS]
        ]
        return "; ".join(map(fault_in_words, found)) or None

    async def run(self) -> NoReturn:
        """Look until cancelled."""
        while True:
            await self.look()
            await self.clock.sleep(_PERIOD)

    async def look(self) -> None:
        """Look once, display what is found, and log what changed."""
        before, self._listed = self._listed, self._kept_messages(self._found())
        self.series.show("vcd_installation_faults", {name: one.objects for name, one in self._listed.items()})
        self._announce_changes(before)
        if self.writes() and (changes := self._changes(before)):
            await self.sink(changes)

    def _changes(self, before: Mapping[tuple[str, str], Sighting]) -> list[InstallationFault]:
        """Return changes that the log does not have yet."""
        logged, now = self.state.faults, {fault.key: fault for fault in self._faults()}
        is_new = self.clock.monotonic() - self._began < _GRACE
        ended = [
            InstallationFault(fault.code, fault.subject)
            for key, fault in logged.items()
            if key not in now and not (is_new and (fault.code, fault.subject) not in before)
        ]
        return [*ended, *(fault for key, fault in now.items() if logged.get(key) != fault)]

    def _faults(self) -> list[InstallationFault]:
        return [InstallationFault(*name, one.message) for name, one in self._listed.items()]

    def _sightings(self, code: str) -> dict[str, Sighting]:
        return {**self.looks.get(code, dict)(), **self._reported.get(code, {})}

    def _found(self) -> dict[tuple[str, str], Sighting]:
        """All faults as they are now, in order; of each code those that were listed before come first."""
        found: dict[tuple[str, str], Sighting] = {}
        for code in FAULTS:
            sightings = self._sightings(code)
            listed = [subject for subject in sorted(sightings) if (code, subject) in self._listed]
            order = list(dict.fromkeys([*listed, *sorted(sightings)]))
            found.update({(code, subject): sightings[subject] for subject in order[:MOST_SUBJECTS]})
            if others := order[MOST_SUBJECTS:]:
                objects = sum(sightings[subject].objects for subject in others)
                found[code, OTHERS] = Sighting("more subjects than are listed", objects)
        return found

    def _kept_messages(self, found: dict[tuple[str, str], Sighting]) -> dict[tuple[str, str], Sighting]:
        """The same with messages that change seldom."""
        now = self.clock.monotonic()
        for name, one in found.items():
            before = self._listed.get(name)
            if before is None or (before.message != one.message and now - self._worded[name] >= _REWORD):
                self._worded[name] = now
            elif before.message != one.message:
                found[name] = Sighting(before.message, one.objects)
        self._worded = {name: self._worded[name] for name in found}
        return found

    def _announce_changes(self, before: Mapping[tuple[str, str], Sighting]) -> None:
        """A log line for each change, and an Event for what begins or is another thing now."""
        for name in before.keys() - self._listed.keys():
            _log.info("a fault of the installation has ended", code=name[0], subject=name[1])
        for name, one in self._listed.items():
            if name in before and before[name].message == one.message:
                continue
            words = fault_in_words(InstallationFault(*name, one.message))
            _log.error("a fault of the installation", code=name[0], subject=name[1], objects=one.objects, reason=words)
            self._announce({name: one})

    def _announce(self, faults: Mapping[tuple[str, str], Sighting]) -> None:
        for name, one in faults.items():
            if reason := FAULTS[name[0]].event:
                self.announce(reason, fault_in_words(InstallationFault(*name, one.message)))


@dataclass
class _Failing:
    """Writes of one kind that fail: the last answer, how many there were and where, when the last one failed, and when
    such a write in that namespace succeeded since."""

    message: str = ""
    times: int = 0
    namespace: str = ""
    at: float = -math.inf
    taken_at: float = -math.inf

    def add(self, done: CompletedRequest, message: str, now: float) -> None:
        """Note one more."""
        self.message, self.times, self.namespace, self.at = message, self.times + 1, done.namespace, now

    def is_over(self, now: float) -> bool:
        """Return whether such writes succeed again, or are no longer attempted."""
        return now - self.at >= (_SETTLED if self.taken_at > self.at else _FORGOTTEN)


@dataclass(eq=False)
class FailingWrites:
    """Notes which writes the API server refuses, and which it does not answer while it answers other requests.

    A webhook may fail in one namespace only, so a write that succeeds elsewhere ends nothing.
    """

    clock: Clock = SYSTEM_CLOCK

    def __post_init__(self) -> None:
        self._refused: dict[tuple[str, str, int], _Failing] = {}
        """By verb, resource and HTTP status."""
        self._unanswered: dict[tuple[str, str, str], _Failing] = {}
        """By verb, resource and namespace; those of an outage, when nothing is answered, count as one."""
        self._answered_at = -math.inf
        """When the API server answered any request last."""

    def observe(self, done: CompletedRequest) -> None:
        """Note how a request ended."""
        now, about = self.clock.monotonic(), (done.verb, done.resource)
        if done.verb not in _READS:
            if done.code in _NO_ANSWER:
                failing = self._unanswered.setdefault((*about, done.namespace), _Failing())
                if self._answered_at > failing.at:
                    failing.add(done, f"no answer in time, the last one in {_scope(done)}", now)
            else:
                self._unanswered.pop((*about, done.namespace), None)
            if done.error is None and done.code:
                self._note_success(about, done.namespace, now)
            elif done.error is not None and is_installation_fault(done.error):
                self._refused.setdefault((*about, done.code), _Failing()).add(done, str(done.error), now)
        if done.code:
            self._answered_at = now

    def _note_success(self, about: tuple[str, str], namespace: str, now: float) -> None:
        for name, one in self._refused.items():
            if (name[:2], one.namespace) == (about, namespace):
                one.taken_at = now

    def refused(self) -> dict[str, Sighting]:
        """The writes that are refused, by what is refused and the status."""
        now = self.clock.monotonic()
        self._refused = {name: one for name, one in self._refused.items() if not one.is_over(now)}
        return {
            f"{verb} {resource} {code}": Sighting(one.message, one.times)
            for (verb, resource, code), one in sorted(self._refused.items())
        }

    def unanswered(self) -> dict[str, Sighting]:
        """The writes that get no answer, by what is written."""
        now, found = self.clock.monotonic(), dict[str, Sighting]()
        self._unanswered = {name: one for name, one in self._unanswered.items() if not one.is_over(now)}
        for (verb, resource, _), one in sorted(self._unanswered.items()):
            if one.times >= _UNANSWERED:
                before = found.get(f"{verb} {resource}", Sighting(one.message, 0))
                found[f"{verb} {resource}"] = Sighting(before.message, before.objects + one.times)
        return found


def _scope(done: CompletedRequest) -> str:
    return f"namespace {done.namespace}" if done.namespace else "the cluster"
