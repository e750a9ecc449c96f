"""Collects faults of the installation: conditions that prevent vcd from scheduling and are not caused by a job.

Checks find faults (`FaultMonitor.looks`), or a component reports one. A fault that begins, ends or gets another message
is logged and folded into the state, from which `vcd explain`, `vcd top` and the page read it. /readyz, the gauge
`vcd_installation_faults` and Events follow from the same table, `vcd.model.installation_faults`.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import NamedTuple, NoReturn

import structlog

from vcd.daemon.metrics.metric_series import SeriesStore
from vcd.kube.clock import SYSTEM_CLOCK, Clock
from vcd.kube.request_info import CompletedRequest, is_installation_fault
from vcd.model.events import Event, InstallationFault
from vcd.model.installation_faults import FAULTS, MOST_SUBJECTS, OTHERS, fault_in_words
from vcd.state.cluster_state import ClusterState

_log = structlog.get_logger(__name__)

_PERIOD = 2.0
"""Seconds between two checks."""
_GRACE = 60.0
"""Seconds for which a new process does not end a logged fault that it has not found yet."""
_REWORD = 600.0
"""Seconds until a fault's message may change. Responses name objects, so each one would be another message."""
_SETTLED, _FORGOTTEN = 60.0, 600.0
"""Seconds after the last refusal until such writes count as accepted: after a success, and without an attempt."""
_UNANSWERED = 3
"""Successive writes without a response that count as a fault, each after a response to another request."""
_NO_ANSWER = (0, 504)
"""No response, and the API server's status for a write that exceeds the client's timeout."""
_READS = ("get", "list", "watch")


class Sighting(NamedTuple):
    """A fault that was found, and the number of ``objects`` that it affects."""

    message: str
    objects: int = 1


Look = Callable[[], Mapping[str, Sighting]]
"""Returns all faults of one code, by subject."""


@dataclass(eq=False)
class FaultMonitor:
    """Collects faults, and logs and displays their changes.

    ``sink`` logs events, while this replica ``writes`` the log. ``announce(reason, message)`` records an Event at the
    ConfigMap.
    """

    state: ClusterState
    sink: Callable[[Sequence[Event]], Awaitable[object]]
    writes: Callable[[], bool]
    series: SeriesStore
    announce: Callable[[str, str], None]
    _: KW_ONLY
    clock: Clock = SYSTEM_CLOCK
    looks: dict[str, Look] = field(default_factory=dict)
    """Checks by code."""

    def __post_init__(self) -> None:
        self._began = self.clock.monotonic()
        self._reported: dict[str, dict[str, Sighting]] = {}
        """Reported faults that were not cleared, by code and subject."""
        self._listed: dict[tuple[str, str], Sighting] = {}
        """The faults as of the last check, with their current messages."""
        self._worded: dict[tuple[str, str], float] = {}
        """When the messages were set."""

    def report(self, code: str, subject: str, message: str) -> None:
        """Report a fault until it is cleared."""
        self._reported.setdefault(code, {})[subject] = Sighting(message)

    def clear(self, code: str, subject: str) -> None:
        """End a reported fault."""
        self._reported.get(code, {}).pop(subject, None)

    def announce_all(self) -> None:
        """Record Events for all current faults, because this replica leads now."""
        self._announce(self._listed)

    def not_ready(self) -> str | None:
        """Return the current faults that make this replica not ready, as text; None if there is none."""
        found = [
            InstallationFault(code, subject, one.message)
            for code in FAULTS
            if FAULTS[code].not_ready
            for subject, one in sorted(self._sightings(code).items())[:MOST_SUBJECTS]
        ]
        return "; ".join(map(fault_in_words, found)) or None

    async def run(self) -> NoReturn:
        """Check periodically until cancelled."""
        while True:
            await self.look()
            await self.clock.sleep(_PERIOD)

    async def look(self) -> None:
        """Check once, update the metric, and log changes."""
        before, self._listed = self._listed, self._stabilize_messages(self._found())
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
        """Return all current faults, ordered by code; faults of the last check come first in their code."""
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

    def _stabilize_messages(self, found: dict[tuple[str, str], Sighting]) -> dict[tuple[str, str], Sighting]:
        """Replace recent messages by the ones that are displayed."""
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
        """Write a log line for each change, and an Event for each new fault or message."""
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
    """Failing writes of one kind: the last response, their number and namespaces, the time of the last failure, and of
    a later success in the same namespace."""

    message: str = ""
    times: int = 0
    namespace: str = ""
    at: float = -math.inf
    taken_at: float = -math.inf

    def add(self, done: CompletedRequest, message: str, now: float) -> None:
        """Note a failed write."""
        self.message, self.times, self.namespace, self.at = message, self.times + 1, done.namespace, now

    def is_over(self, now: float) -> bool:
        """Return whether such writes succeed again, or are no longer attempted."""
        return now - self.at >= (_SETTLED if self.taken_at > self.at else _FORGOTTEN)


@dataclass(eq=False)
class FailingWrites:
    """Notes which writes the API server refuses, and which it does not answer while it answers other requests.

    A webhook may fail in one namespace only, so a success in another namespace does not end a fault.
    """

    clock: Clock = SYSTEM_CLOCK

    def __post_init__(self) -> None:
        self._refused: dict[tuple[str, str, int], _Failing] = {}
        """By verb, resource and HTTP status."""
        self._unanswered: dict[tuple[str, str, str], _Failing] = {}
        """By verb, resource and namespace. All failures of an outage without any response count as one."""
        self._answered_at = -math.inf
        """Time of the API server's last response to any request."""

    def observe(self, done: CompletedRequest) -> None:
        """Note a completed request."""
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
        """Return the refused writes, by verb, resource and status."""
        now = self.clock.monotonic()
        self._refused = {name: one for name, one in self._refused.items() if not one.is_over(now)}
        return {
            f"{verb} {resource} {code}": Sighting(one.message, one.times)
            for (verb, resource, code), one in sorted(self._refused.items())
        }

    def unanswered(self) -> dict[str, Sighting]:
        """Return the writes without a response, by verb and resource."""
        now, found = self.clock.monotonic(), dict[str, Sighting]()
        self._unanswered = {name: one for name, one in self._unanswered.items() if not one.is_over(now)}
        for (verb, resource, _), one in sorted(self._unanswered.items()):
            if one.times >= _UNANSWERED:
                before = found.get(f"{verb} {resource}", Sighting(one.message, 0))
                found[f"{verb} {resource}"] = Sighting(before.message, before.objects + one.times)
        return found


def _scope(done: CompletedRequest) -> str:
    return f"namespace {done.namespace}" if done.namespace else "the cluster"
