"""What a replica asks the server for is bounded, whatever the server answers, and keeps to what the server wants."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.simulation.invariants.known import may_go_back
from tests.simulation.invariants.witness import Call, Witness
from tests.simulation.replica import Machine
from tests.simulation.road import Asked
from vcd.daemon.options import Options
from vcd.daemon.service import SchedulerService
from vcd.kube.watcher import Watcher
from vcd.model import events as ev

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

WITHIN = 10.0
"""Seconds in which calls are counted."""
MOST_READS = 150
"""Lists and watches of a kind in that time: after one that told something there is a pause of 50 to 100 ms."""
MOST_TRIES = 30
"""Calls for one bind, or one eviction."""
MOST_EVENTS = 32
"""Events about one object that one program writes: 25, and a few that come back with time."""
PATIENCE = 60.0
"""Seconds that lie between two attempts for one status at most."""
MOST_AT_ONCE = 200
"""Requests of a replica under way, lists and watches included."""
_POD = re.compile(r"/pods/[^/]+(?:/status)?$")
_OBJECT = re.compile(r"/(?:pods|podgroups|queues)/[^/]+(?:/status)?$")
_VERSION = re.compile(r"\bresourceVersion=(\d+)")


@dataclass(frozen=True)
class _Failed:
    """When a change failed last, in which term, and what it was."""

    at: float
    epoch: int
    body: bytes


class Calls:
    """Is told of each request as it is made, and when it is over."""

    def __init__(self, sim: Simulation, witness: Witness) -> None:
        self._sim = sim
        self._times: dict[tuple[str, str], deque[float]] = defaultdict(deque)
        """When something was asked for lately, by machine and what."""
        self._waits: dict[tuple[str, str], tuple[float, object, str]] = {}
        """Until when the server does not want to be asked, who was told so, and how, by machine and kind."""
        self._known: dict[tuple[str, str], int] = {}
        """The newest version that a machine was told of a kind."""
        self._asked_under: dict[tuple[str, str], int] = {}
        """Under which epoch a machine asked for something last."""
        self._open: Counter[str] = Counter()
        self._events: dict[tuple[str, str], set[tuple[str, int]]] = defaultdict(set)
        """The Events that were written about an object, by machine and object, each time that it was counted higher."""
        self._about: dict[tuple[str, str], str] = {}
        """What the Events of a machine are about, by their names."""
        self._tokens: dict[str, tuple[float, float]] = {}
        """The writes that a machine may make at once, and when that was so."""
        self._refused: dict[tuple[str, str], str] = {}
        """The version that a write to an object was refused with, by machine and path, until it is read or listed."""
        self._failed: dict[tuple[str, str], _Failed] = {}
        """Conditions of pods that came to nothing, by machine and path."""
        self._told: set[tuple[str, str]] = set()
        self._restored = may_go_back(sim.script)
        witness.requests.append(self._heard)
        witness.services.append(self._watch)
        witness.calls.append(self._called)

    def _violated(self, invariant: str, machine: Machine, what: str) -> None:
        """Tell of it once for each machine: it would happen again and again."""
        if (invariant, machine.name) not in self._told:
            self._told.add((invariant, machine.name))
            self._sim.violated(invariant, f"{machine.name} {what}")

    def _heard(self, what: str, machine: Machine, asked: Asked) -> None:
        if what == "asked":
            self._asked(machine, asked)
        elif what == "over":
            self._over(machine, asked)

    def _asked(self, machine: Machine, asked: Asked) -> None:
        if asked.method == "WATCH" or (asked.method == "GET" and "limit=" in asked.path):
            self._reads(machine, asked)
        elif asked.method != "GET" and "/leases" not in asked.place:
            self._rate(machine, asked)
            if asked.place.endswith("/binding") or asked.method == "DELETE":
                self._count(machine, f"{asked.method} {asked.place}", MOST_TRIES)
        self._conflicts(machine, asked)
        self._asked_under[machine.name, asked.place] = _epoch(machine)
        self._open[machine.name] += 1
        if self._open[machine.name] > MOST_AT_ONCE:
            self._violated("calls are bounded", machine, f"has {self._open[machine.name]} requests under way")

    def _over(self, machine: Machine, asked: Asked) -> None:
        self._open[machine.name] -= 1
        if asked.status == 429 and asked.wait and (watcher := _watcher(machine, asked)) is not None:
            self._waits[machine.name, watcher.kind.name] = self._sim.loop.time() + asked.wait, watcher, asked.method
        self._came_to(machine, asked)
        if asked.status == 409 and asked.method == "PATCH" and (version := _version_in(asked.body)):
            self._refused[machine.name, asked.place] = version
        elif asked.status == 200 and asked.method == "GET" and "limit=" in asked.path:
            self._forget_refused(machine, asked.place.rpartition("/")[2])

    def _forget_refused(self, machine: Machine, plural: str) -> None:
        """What was listed since is known as it is."""
        for name, place in list(self._refused):
            if name == machine.name and place.removesuffix("/status").split("/")[-2] == plural:
                del self._refused[name, place]

    def _count(self, machine: Machine, what: str, most: int) -> None:
        times, now = self._times[machine.name, what], self._sim.loop.time()
        times.append(now)
        while times[0] < now - WITHIN:
            times.popleft()
        if len(times) > most:
            self._violated("calls are bounded", machine, f"asks {len(times)} times in {WITHIN:g} s: {what}")

    # --- lists and watches --------------------------------------------------------------------------------------------

    def _reads(self, machine: Machine, asked: Asked) -> None:
        watcher = _watcher(machine, asked)
        if watcher is None:
            return
        kind = watcher.kind.name
        if "continue=" not in asked.path:  # how many pages a list has is the server's affair
            self._count(machine, f"lists and watches of {kind}", MOST_READS)
        until, who, refused = self._waits.pop((machine.name, kind), (0.0, None, ""))
        goes_on = (refused, asked.method) == ("GET", "WATCH")  # where it was to be compared
        if who is watcher and not goes_on and (early := until - self._sim.loop.time()) > 1e-6:
            self._violated("Retry-After is kept", machine, f"asks for {kind} {early:.3f} s too early")
        if asked.method != "WATCH":
            return
        if sum(_place(line.path) == asked.place and not line.closed for line in machine.link.lines) > 1:
            self._violated("one watch a kind", machine, f"watches {kind} twice")
        found, known = _VERSION.search(asked.path), self._known.get((machine.name, kind), 0)
        if found is not None and int(found.group(1)) < known and not self._restored:
            self._violated("watches go on", machine, f"watches {kind} from {found.group(1)}, and knows {known}")

    def _watch(self, machine: Machine, service: SchedulerService) -> None:
        def folded(event: ev.Event) -> None:
            if isinstance(event, (ev.ObjectPut, ev.ObjectGone, ev.KindListed)) and event.resource_version.isdigit():
                self._known[machine.name, event.kind] = int(event.resource_version)  # a server may tell again

        service.state_writer.observers.append(folded)
        for name, about in list(self._events):
            if name == machine.name:  # it begins anew with another's log, and knows of no Event that it wrote
                del self._events[name, about]

    # --- writes -------------------------------------------------------------------------------------------------------

    def _rate(self, machine: Machine, asked: Asked) -> None:
        """A bucket of twice the burst: what was let in before the program was stopped goes out behind that."""
        if machine.service is None:
            return
        options, now = machine.service.options, self._sim.loop.time()
        most = 2.0 * options.kube_api_burst + 8
        tokens, since = self._tokens.get(machine.name, (most, now))
        tokens = min(most, tokens + (now - since) * _rate_of(options)) - 1
        self._tokens[machine.name] = max(tokens, 0.0), now
        if tokens < 0:
            self._violated("calls are bounded", machine, f"writes faster than it may: {asked.method} {asked.place}")

    def _conflicts(self, machine: Machine, asked: Asked) -> None:
        if not _OBJECT.search(asked.place):
            return
        version = self._refused.pop((machine.name, asked.place), "")
        if version and asked.method == "PATCH" and version == _version_in(asked.body):
            self._violated("conflicts are read anew", machine, f"changes {asked.place} at {version} again")

    def _came_to(self, machine: Machine, asked: Asked) -> None:
        """A condition that may be written yet has to be tried again, or its pod looked at."""
        if not _POD.search(asked.place):
            return
        name, status = (machine.name, asked.place.removesuffix("/status")), asked.status or 0
        self._failed.pop(name, None)
        if asked.place.endswith("/status") and (status in (0, 403, 429) or status >= 500):
            self._failed[name] = _Failed(
                self._sim.loop.time(), self._asked_under[machine.name, asked.place], asked.body
            )

    def at_rest(self) -> None:
        """Look at what was not tried again in the term in which it failed, of pods that wait still."""
        leading = {
            each.machine.name: _epoch(each.machine) for each in self._sim.replicas if each.machine and each.leads
        }
        waiting = {pod["metadata"]["uid"] for pod in self._sim.store.list("pods") if _waits(pod)}
        for (name, path), failed in self._failed.items():
            lost = failed.at < self._sim.loop.time() - PATIENCE and _uid_in(failed.body) in waiting
            if lost and failed.epoch == leading.get(name):
                self._sim.violated("what failed is tried again", f"{name} gave up {path} at {failed.at:.3f} s")

    def _called(self, call: Call) -> None:
        if not call.writes or "/events" not in call.request.path:
            return
        if "involvedObject" in call.body:
            name, about = call.body["metadata"]["name"], json.dumps(call.body["involvedObject"], sort_keys=True)
            self._about[call.machine.name, name] = about
        else:  # one that is seen again
            name = _place(call.request.path).rpartition("/")[2]
            about = self._about.get((call.machine.name, name), "")
        written = self._events[call.machine.name, about]
        written.add((name, call.body["count"]))
        if len(written) > MOST_EVENTS:
            self._violated("calls are bounded", call.machine, f"writes {MOST_EVENTS} Events and more about {about}")


def _place(path: str) -> str:
    return path.partition("?")[0]


def _rate_of(options: Options) -> float:
    return 1.05 * options.kube_api_qps


def _watcher(machine: Machine, asked: Asked) -> Watcher | None:
    """Whose list or watch it is; None for somebody's who only lists."""
    watchers = {} if machine.service is None else machine.service.watches._watchers
    return next((each for each in watchers.values() if _place(each.kind.path) == asked.place), None)


def _epoch(machine: Machine) -> int:
    """The epoch of a program's last term, as far as it knows."""
    return -1 if machine.service is None else machine.service.terms.elector.epoch


def _waits(pod: dict[str, Any]) -> bool:
    """Whether a pod has no node yet, and may have one."""
    there = not pod["metadata"].get("deletionTimestamp") and pod["status"].get("phase", "Pending") == "Pending"
    return there and not pod["spec"].get("nodeName")


def _uid_in(body: bytes) -> str:
    return str((json.loads(body or b"{}").get("metadata") or {}).get("uid") or "")


def _version_in(body: bytes) -> str:
    metadata = json.loads(body or b"{}").get("metadata") or {}
    return str(metadata.get("resourceVersion") or "")
