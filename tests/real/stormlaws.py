"""What must hold in a storm, by the server's truth: its pods as they are watched, and its audit log."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.cluster import LEASES, cpu_of
from tests.real.controlplane import AuditLog
from tests.real.stormload import GONE, NARROW, NODES, SPECS

Obj = dict[str, Any]
POD_NAME = "authentication.kubernetes.io/pod-name"
WRITES = frozenset({"create", "update", "patch", "delete"})
BIND, EVICTION = "pods/binding", "pods"
OF_LEADERS = frozenset({
    BIND, EVICTION, "pods/status", "podgroups.scheduling.volcano.sh/status", "queues.scheduling.volcano.sh/status",
    "queues.scheduling.volcano.sh",
})  # fmt: skip
"""What only who holds the Lease may write: of pods themselves, a deletion."""


@dataclass(frozen=True)
class Write:
    """One that the server took from a replica: seconds since the epoch of its coming and of its answer, what it was
    about, and its body."""

    received: float
    answered: float
    replica: str
    verb: str
    resource: str
    key: str
    body: Obj

    def __str__(self) -> str:
        return f"{self.verb} {self.resource} {self.key} by {self.replica} at {clock(self.received)} {self.body or ''}"


class Truth:
    """Told of each change of a pod in the server's order: who is where, and what is over by that."""

    def __init__(self) -> None:
        self.broken: list[str] = []
        self.binds: dict[str, str] = {}
        """Nodes by UID."""
        self._there: dict[str, Obj] = {}

    def see(self, event: str, _: str, obj: Obj) -> None:
        uid, place = obj["metadata"]["uid"], obj["spec"].get("nodeName")
        if event == "DELETED" or obj.get("status", {}).get("phase") in GONE:
            self._there.pop(uid, None)
            return
        if not place:
            return
        self._there[uid] = obj
        before = self.binds.get(uid)
        if before == place:
            return
        if before is not None:
            self.broken.append(f"{_named(obj)} was bound to {before} and to {place}")
        self.binds[uid] = place
        self._check_room(place, obj)

    def _check_room(self, place: str, newest: Obj) -> None:
        on_it = [each for each in self._there.values() if each["spec"]["nodeName"] == place]
        used, room = sum(map(cpu_of, on_it)), 1000 * NODES[place]
        if used > room:
            names = sorted(map(_named, on_it))
            self.broken.append(
                f"{place} has {room} thousandths of a CPU, {used} are used with {_named(newest)}: {names}"
            )

    def used(self, gangs: dict[str, str], queue: str) -> int:
        """Thousandths of a CPU that pods of a queue have that are not leaving; ``gangs`` has the queues of groups."""
        stay = [each for each in self._there.values() if not each["metadata"].get("deletionTimestamp")]
        return sum(cpu_of(each) for each in stay if gangs.get(group_of(each)) == queue)

    def check_queue(self, gangs: dict[str, str]) -> None:
        """No more of the queue that has a capability than that."""
        room = 1000 * int(SPECS[NARROW]["capability"]["cpu"])
        if (used := self.used(gangs, NARROW)) > room:
            self.broken.append(f"queue {NARROW} may have {room} thousandths of a CPU and has {used}")


class Audit:
    """The writes of replicas, and who held the Lease when."""

    def __init__(self, path: Path) -> None:
        self._log = AuditLog(path)
        self.writes: list[Write] = []
        self.forbidden: list[str] = []

    def read(self) -> None:
        """Take over what was written since the last time."""
        for line in self._log.new():
            names = line["user"].get("extra", {}).get(POD_NAME)
            if names is None or line["verb"] not in WRITES or line["stage"] != "ResponseComplete":
                continue
            if line.get("annotations", {}).get("authorization.k8s.io/decision") == "forbid":
                self.forbidden.append(f"{names[0]}: {line['verb']} {line['requestURI']}")
            elif line["responseStatus"]["code"] < 300:
                self.writes.append(_write(line, names[0].removeprefix("vcd-")))

    def of(self, resource: str, verb: str = "create") -> list[Write]:
        return [each for each in self.writes if (each.resource, each.verb) == (resource, verb)]

    def beside(self, resource: str) -> list[Write]:
        return [each for each in self.writes if each.resource != resource]

    def broken(self, first: int = 0, last: int | None = None) -> Iterator[str]:
        """Of the writes from ``first`` and before ``last``, who did not hold the Lease; pods bound or evicted twice."""
        yield from (f"beyond deploy/'s roles: {each}" for each in self.forbidden)
        terms = self.terms()
        for write in self.writes[first:last]:
            if write.resource in OF_LEADERS and not any(term.covers(write) for term in terms):
                yield f"written without the Lease: {write}; it was held by {'; '.join(map(str, terms[-12:]))}"
        for what, writes in (("bound", self.of(BIND)), ("evicted", self.of(EVICTION, "delete"))):
            uids = Counter(map(uid_of, writes))
            yield from (f"names no UID: {each}" for each in writes if not uid_of(each))
            for uid in (uid for uid, count in uids.items() if count > 1):
                yield f"{what} {uids[uid]} times: {[str(each) for each in writes if uid_of(each) == uid]}"

    def terms(self) -> list[Term]:
        """Who held the Lease from when to when, by the writes of it, which follow upon each other by its version."""
        found: list[Term] = []
        for write in sorted(self.of(LEASES, "create") + self.of(LEASES, "update"), key=_version):
            holder = write.body["spec"].get("holderIdentity") or ""
            epoch = write.body["spec"].get("leaseTransitions") or 0
            if found and (found[-1].holder, found[-1].epoch) == (holder, epoch):
                continue
            if found:
                found[-1].until = write.answered
            found.append(Term(write.replica if holder else "", holder, epoch, write.received))
        return found


@dataclass
class Term:
    """``replica`` held the Lease as ``holder``, at the longest ``since`` one time and ``until`` another."""

    replica: str
    holder: str
    epoch: int
    since: float
    until: float = float("inf")

    def __str__(self) -> str:
        ends = "now" if self.until == float("inf") else clock(self.until)
        return f"{self.holder or 'nobody'} from {clock(self.since)} to {ends} as epoch {self.epoch}"

    def covers(self, write: Write) -> bool:
        """Whether a write may have come to the server, and been carried out, in this term."""
        return self.replica == write.replica and self.since <= write.answered and write.received <= self.until


def clock(seconds: float) -> str:
    """A time since the epoch as a time of day."""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%H:%M:%S.%f")[:-3]


def uid_of(write: Write) -> str:
    """The UID that a bind or an eviction is for; empty where it names none."""
    about = write.body.get("metadata" if write.resource == BIND else "preconditions") or {}
    return str(about.get("uid") or "")


def group_of(obj: Obj) -> str:
    """The group that a pod names; empty for none."""
    name: str = obj["metadata"].get("annotations", {}).get("scheduling.k8s.io/group-name", "")
    return name


def _named(obj: Obj) -> str:
    return f"{obj['metadata']['name']} ({obj['metadata']['uid']})"


def _version(write: Write) -> tuple[int, float]:
    """A Lease's writes in order: each but the first names the version that it replaces, and versions grow."""
    return int(write.body["metadata"].get("resourceVersion") or 0), write.answered


def _write(line: Obj, replica: str) -> Write:
    ref = line["objectRef"]
    resource = ".".join(filter(None, (ref["resource"], ref.get("apiGroup", ""))))
    if "subresource" in ref:
        resource = f"{resource}/{ref['subresource']}"
    received, answered = (
        datetime.datetime.fromisoformat(line[when]).timestamp()
        for when in ("requestReceivedTimestamp", "stageTimestamp")
    )
    key = f"{ref.get('namespace', '')}/{ref.get('name', '')}"
    return Write(received, answered, replica, line["verb"], resource, key, line.get("requestObject") or {})
