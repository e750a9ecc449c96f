"""extender equals the slow reference, whoever answers: a function of what the question says, or nobody."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.laws.plans import without_effect
from tests.laws.test_reference import blocks
from tests.parity.cases import NOW
from tests.reference import decide
from tests.reference.clusters import RandomCase
from tests.reference.extended import VICTIMS, extended_case
from tests.reference.extender import KIND, Server
from vcd.scheduling.closing import plan_of
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.decide import run
from vcd.scheduling.framework.registry import kinds_read
from vcd.scheduling.session.outside import OneByOne, Question, Reply
from vcd.state.snapshot import SnapshotMaker
from vcd.timetravel.planning import state_of


class Answering(OneByOne):
    """The server behind its wire."""

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


def planned(case: RandomCase) -> dict[str, dict[str, str]]:
    """The fast core's binds, evictions and pipelined pods."""
    policy = read_policy(case.conf)
    answers = Answering(Server(next(one for one in case.objects if one["kind"] == KIND)))
    state = state_of([one for one in case.objects if one["kind"] != KIND], kinds=kinds_read(policy))
    now = int(NOW.timestamp()) * 10**9
    plan = plan_of(run(SnapshotMaker(state).snapshot(), policy, now, 0, outside=answers))
    operations = [operation for statement in plan.statements for operation in statement.operations]
    return {
        verb: {one.key: one.node for one in operations if one.verb == verb} for verb in ("bind", "evict", "pipeline")
    }


def wrong(case: RandomCase) -> dict[str, Any]:
    """What the two decide differently."""
    slow, fast = decide(case.objects, case.conf, NOW), planned(case)
    pairs: dict[str, tuple[Any, Any]] = {
        "binds": (slow.binds, fast["bind"]),
        "evictions": (slow.evictions, sorted(fast["evict"])),
        "pipelined": (slow.pipelined, fast["pipeline"]),
    }
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


@pytest.mark.parametrize("block", blocks(), ids=lambda block: f"{block.start}-{block.stop - 1}")
def test_the_fast_core_asks_an_extender_as_the_reference(block: range) -> None:
    assert {seed: found for seed in block if (found := wrong(extended_case(seed)))} == {}


def test_the_answers_matter() -> None:
    """That the comparison is about something: without its answer to each question some clusters differ."""
    points = ("predicate", "nodeOrder", "jobEnqueueable", "jobEnqueued", "overused", "jobReady", *VICTIMS)
    assert without_effect(extended_case, [("extender", point) for point in points], range(300)) == {}


def test_refused_placements_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """That the comparison is about something: were no placement refused, some clusters would come out otherwise."""
    cases = [extended_case(seed) for seed in range(80)]
    results = [decide(case.objects, case.conf, NOW) for case in cases]
    monkeypatch.setattr(Server, "forbids", lambda *_: False)
    others = [decide(case.objects, case.conf, NOW) for case in cases]
    assert sum(one != other for one, other in zip(results, others, strict=True)) >= 4
