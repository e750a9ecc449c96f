"""What the fast core and the slow reference decide on one random cluster, and where they differ.

Each function takes a case and returns the differences by kind of outcome and object, the reference first.
"""

from __future__ import annotations

import json
from typing import Any

import vcd
from tests.dsl import policy_of
from tests.parity.cases import NOW
from tests.reference import decide
from tests.reference.cards import IDS, INDEX
from tests.reference.clusters import RandomCase
from tests.reference.extender import KIND as EXTENDER
from tests.reference.extender import Server
from tests.reference.usage import KIND as USAGE
from vcd.model.events import Operation
from vcd.scheduling.decide import run
from vcd.scheduling.framework.registry import kinds_read
from vcd.scheduling.framework.usage_samples import NodeUsage, Samples, answered
from vcd.scheduling.session.outside import NOBODY, OneByOne, Question, Reply
from vcd.scheduling.session_close import plan_of
from vcd.state.snapshot import SnapshotMaker
from vcd.timetravel.planning import state_of

Differences = dict[str, Any]


def outcomes(case: RandomCase) -> Differences:
    """Binds, evictions, pipelined pods and phases."""
    slow, fast = decide(case.objects, case.conf, NOW), vcd.plan(case.objects, case.conf, NOW)
    found: Differences = {}
    for kind in ("binds", "pipelined", "phases"):
        left, right = getattr(slow, kind), getattr(fast, kind)
        keys = sorted(key for key in left.keys() | right.keys() if left.get(key) != right.get(key))
        if keys:
            found[kind] = {key: (left.get(key), right.get(key)) for key in keys}
    gone = sorted(set(slow.evictions) ^ set(fast.evictions))
    if gone:
        found["evictions"] = {key: (key in slow.evictions, key in fast.evictions) for key in gone}
    return found


def with_cards(case: RandomCase) -> Differences:
    """The same, and the cards that are written to bound pods."""
    return _with_annotations(case, (IDS, INDEX))


def with_cpus(case: RandomCase) -> Differences:
    """The same, and all that is written to bound pods: their CPUs."""
    return _with_annotations(case)


def _with_annotations(case: RandomCase, names: tuple[str, ...] | None = None) -> Differences:
    found, slow = outcomes(case), decide(case.objects, case.conf, NOW).annotations
    fast = {each.key: dict(each.annotations) for each in _operations(case) if each.verb == "bind" and each.annotations}
    for key in sorted({*slow, *fast}):
        one, other = slow.get(key, {}), fast.get(key, {})
        if names is not None:
            one, other = ({name: each.get(name) for name in names} for each in (one, other))
        if one != other:
            found.setdefault("annotations", {})[key] = one, other
    return found


def operations(case: RandomCase) -> Differences:
    """Binds, evictions and pipelined pods, with the answers from outside that are part of the case."""
    slow, fast = decide(case.objects, case.conf, NOW), _operations(case)
    planned = {verb: {one.key: one.node for one in fast if one.verb == verb} for verb in ("bind", "evict", "pipeline")}
    pairs: dict[str, tuple[Any, Any]] = {
        "binds": (slow.binds, planned["bind"]),
        "evictions": (slow.evictions, sorted(planned["evict"])),
        "pipelined": (slow.pipelined, planned["pipeline"]),
    }
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _operations(case: RandomCase) -> list[Operation]:
    """The fast core's operations; usage samples are in the log, an extender answers."""
    policy = policy_of(case.conf)
    given = [one for one in case.objects if one["kind"] not in (USAGE, EXTENDER)]
    state, outside = state_of(given, kinds=kinds_read(policy)), NOBODY
    for one in case.objects:
        if one["kind"] == USAGE:
            nodes = {name: NodeUsage(**usage) for name, usage in one["nodes"].items()}
            state.apply(state.sequence + 1, answered(Samples(one["at"], "prometheus", nodes)))
        elif one["kind"] == EXTENDER:
            outside = Answering(Server(one))
    session = run(SnapshotMaker(state).snapshot(), policy, int(NOW.timestamp()) * 10**9, 0, outside=outside)
    return [operation for statement in plan_of(session).statements for operation in statement.operations]


class Answering(OneByOne):
    """An extender's server behind its wire."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def ask(self, question: Question) -> Reply:
        verb, asked = question.url.rpartition("/")[2], json.loads(question.body)
        if verb in self._server.down:
            return Reply(error="connection refused")
        return Reply(json.dumps(self._answer(verb, asked)).encode())

    def _answer(self, verb: str, asked: Any) -> Any:
        server = self._server
        if verb == "predicate":
            refused = server.refuses(asked["task"]["Job"], asked["node"]["Name"], len(asked["node"]["Tasks"] or ()))
            return {"status": "refused"} if refused else {}
        if verb == "prioritize":
            job = asked["task"]["Job"]
            points = {n["Name"]: server.points(job, n["Name"], len(n["Tasks"] or ())) for n in asked["nodes"]}
            return {"nodeScore": points}
        if verb == "jobEnqueueable":
            return {"status": server.vote(_key(asked["job"]))}
        if verb == "jobReady":
            return {"status": server.ready(_key(asked["job"]))}
        if verb in ("preemptable", "reclaimable"):
            evictor, uids = _key(asked["evictor"]), [one["UID"] for one in asked["evictees"]]
            victims = [{"UID": uid} for uid in uids if server.names(verb, evictor, uid)]
            return {"status": int(server.has_a_say(verb, evictor)), "victims": victims}
        if verb == "allocateFunc":
            refused = server.forbids(_key(asked["task"]), asked["task"]["NodeName"])
            return {"errorMessage": "refused" if refused else ""}
        server.admitted += verb == "jobEnqueued"
        return {"overused": server.overused(asked["queue"]["Name"])} if verb == "queueOverused" else {}


def _key(told: Any) -> str:
    return f"{told['Namespace']}/{told['Name']}"
