"""extender: every verb with its request, its answer, and what follows where there is none."""

from __future__ import annotations

import itertools
import json
import math
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.actions.test_preempt import CLASSES, job
from tests.daemon.answering import server
from tests.daemon.cycle.test_session_loop import puts
from tests.daemon.fakes import FakeLog
from tests.dsl import NOW_NS, flat, gang, group, node, open_session, pod, queue
from tests.kube.scripted import running, until
from tests.plugins.opened import job_of, named, queue_of, task_of, tasks_of
from tests.waiting import WAIT_LIMIT, assert_prompt
from vcd.daemon.cycle.session_loop import Cycle
from vcd.daemon.cycle.watchdog import Watchdog
from vcd.daemon.outside.http_outside import HttpOutside
from vcd.daemon.persistence.state_writer import StateWriter
from vcd.eventlog import EventLog
from vcd.model import events as ev
from vcd.model.manifests import default_queues
from vcd.model.reasons import Reason
from vcd.scheduling import session_close
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.decide import decide, instances, run
from vcd.scheduling.framework.declared_reasons import all_told
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.framework.points import Vote
from vcd.scheduling.plugins.extender import ExtenderPlugin
from vcd.scheduling.search.candidates import Memory
from vcd.scheduling.session.outside import OneByOne, Question, Recorded, Recorder, Reply
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.statement import Statement
from vcd.state.cluster_state import ClusterState
from vcd.state.snapshot import Snapshot, SnapshotMaker
from vcd.timetravel.history import opened as history_of
from vcd.timetravel.planning import state_of
from vcd.timetravel.replay import replay
from vcd.timetravel.why.placement import choices

Json = dict[str, Any]
Answers = dict[str, Any]
"""By verb: an answer, or what makes one of a request; a text is an error."""
DEFAULTS = {"extender.urlPrefix": "http://server/", "extender.httpTimeout": "100ms"}


class Server(OneByOne):
    """Answers verbs by a table; keeps what it was asked."""

    def __init__(self, answers: Answers) -> None:
        self.answers = answers
        self.asked: list[tuple[str, Json]] = []
        self.questions: list[Question] = []

    def ask(self, question: Question) -> Reply:
        verb = question.url.rpartition("/")[2]
        request = json.loads(question.body)
        self.questions.append(question)
        self.asked.append((verb, request))
        answer = self.answers.get(verb, {})
        if callable(answer):
            answer = answer(request)
        if isinstance(answer, str):
            return Reply(error=answer)
        return Reply(answer if isinstance(answer, bytes) else json.dumps(answer).encode())

    def requests(self, verb: str) -> list[Json]:
        """What came with a verb."""
        return [request for name, request in self.asked if name == verb]


def conf_of(answers: Answers, arguments: Json, before: tuple[str, ...] = (), actions: str = "enqueue, allocate") -> str:
    """A configuration whose verbs are those answered, called what their argument is called."""
    given = {**DEFAULTS, **{f"extender.{verb}Verb": verb for verb in answers}, **arguments}
    lines = [f'actions: "{actions}"', "tiers:", "- plugins:"]
    lines += [f"  - name: {name}" for name in (*before, "extender")]
    lines += ["    arguments:", *(f"      {key}: {json.dumps(value)}" for key, value in given.items())]
    return "\n".join(lines) + "\n"


def snapshot_of(objects: Any) -> Snapshot:
    return SnapshotMaker(state_of(flat(objects))).snapshot()


def opened(answers: Answers, *objects: Any, **arguments: Any) -> tuple[Session, Server]:
    """A session in which no action ran, and who answers it; arguments without their prefix."""
    told, asked = Server(answers), {f"extender.{key}": value for key, value in arguments.items()}
    policy = read_policy(conf_of(answers, asked))
    session = open_session(snapshot_of(objects), policy, instances(policy), NOW_NS, 0, outside=told)
    return session, told


def decided(
    answers: Answers,
    *objects: Any,
    before: tuple[str, ...] = ("gang",),
    actions: str = "enqueue, allocate",
    **more: Any,
) -> tuple[Session, Server]:
    """A session after its last action."""
    told, arguments = Server(answers), {f"extender.{key}": value for key, value in more.items()}
    policy = read_policy(conf_of(answers, arguments, before, actions))
    return run(snapshot_of(objects), policy, NOW_NS, 0, outside=told), told


def plugin_of(session: Session) -> ExtenderPlugin:
    return next(plugin for plugin in framework_of(session).plugins if isinstance(plugin, ExtenderPlugin))


def binds(session: Session) -> dict[str, str]:
    """Pods and nodes of what will be bound."""
    operations = [op for statement in session.trial.statements for op in statement.operations()]
    return {op.key.partition("/")[2]: op.node for op in operations if op.verb == "bind"}


def why(session: Session, name: str) -> dict[str, int]:
    """The reasons of a job's tasks to wait, with their numbers of nodes."""
    return {waiting.reason: waiting.nodes for waiting in all_told(job_of(session, name).why) if waiting.gate != "gang"}


def refusing(*nodes: str, code: int = 0, status: str = "not here") -> Callable[[Json], Json]:
    """A predicate that refuses nodes."""
    return lambda request: {"status": status, "code": code} if request["node"]["Name"] in nodes else {}


NODES = [node("n0"), node("n1"), node("n2")]
ONE = gang("g", 1, cpu=1)


def one(**options: Any) -> list[Json]:
    return list(gang("g", 1, **{"cpu": 1, **options}))


# --- calls ------------------------------------------------------------------------------------------------------------


def test_a_verb_is_posted_to_the_prefix_with_time_out_and_limit() -> None:
    _, told = opened({"onSessionOpen": {}}, node("n"), urlPrefix="http://me:pass@server/base//", httpTimeout="250ms")
    (question,) = told.questions
    assert (question.plugin, question.url) == ("extender", "http://me:pass@server/base/onSessionOpen")
    assert (question.timeout, question.limit) == (250_000_000, 10 * 1024 * 1024)


def test_an_answer_may_take_a_second_unless_configured() -> None:
    policy = read_policy(conf_of({}, {}).replace('"100ms"', ""))
    ((plugin,),) = instances(policy)
    assert plugin[1].values["extender.httpTimeout"] == 1_000_000_000


def test_without_verbs_nothing_is_asked() -> None:
    session, told = decided({}, NODES, one())
    assert (len(binds(session)), told.asked) == (1, [])


@pytest.mark.parametrize("verb", ["queueOverused", "jobReady", "jobEnqueueable", "predicate"])
@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'"yes"', b"\xff", b'{"status": [1], "overused": 3}', b"[" * 100_000]
)
def test_an_answer_that_is_nonsense_is_a_failure(verb: str, body: bytes) -> None:
    session, _ = opened({verb: body}, NODES, one(phase="Pending"))
    plugin, job = plugin_of(session), job_of(session, "g")
    answers = {
        "queueOverused": lambda: plugin.overused(job.queue) is not None,
        "jobReady": lambda: not plugin.job_ready(job),
        "jobEnqueueable": lambda: isinstance(plugin.job_enqueueable(job), Reason),
        "predicate": lambda: not framework_of(session).candidates(task_of(session, "g-0")).passing().any(),
    }
    assert answers[verb]()


@pytest.mark.parametrize("body", [b"null", b'{"OVERUSED": null}', b'{"other": 1}', b"{}"])
def test_what_an_answer_does_not_hold_is_empty(body: bytes) -> None:
    session, _ = opened({"queueOverused": body}, NODES, one())
    assert framework_of(session).overused(queue_of(session, "default")) is None


def test_names_of_fields_are_read_in_any_case_as_go_does() -> None:
    session, _ = opened({"queueOverused": b'{"oVeruseD": true}'}, NODES, one())
    assert framework_of(session).overused(queue_of(session, "default")) is not None


def test_calls_that_failed_are_counted() -> None:
    session, _ = opened({"queueOverused": "HTTP 500"}, NODES, one())
    framework_of(session).overused(queue_of(session, "default"))
    assert [(gauge.name, gauge.value) for gauge in plugin_of(session).gauges()] == [
        ("vcd_extender_failed_calls", 1),
        ("vcd_extender_out", 0),
    ]


# --- sessions ---------------------------------------------------------------------------------------------------------


def test_the_extender_is_told_of_the_session() -> None:
    objects = [*NODES, queue("q", weight=3), *gang("g", 2, cpu=1, on=["n1"], queue="q")]
    _, told = opened({"onSessionOpen": b"not even JSON"}, *objects)
    (request,) = told.requests("onSessionOpen")
    assert set(request) == {"Jobs", "Nodes", "Queues", "NamespaceInfo", "RevocableNodes", "NodeList"}
    assert list(request["Nodes"]) == ["n0", "n1", "n2"]
    assert list(request["Nodes"]["n1"]["Tasks"]) == ["default/g-0"]
    assert list(request["Jobs"]) == ["default/g"]
    assert request["Queues"]["q"]["Weight"] == 3
    assert request["RevocableNodes"] == {}


def test_revocable_nodes_are_named() -> None:
    _, told = opened({"onSessionOpen": {}}, node("n", labels={"volcano.sh/revocable-zone": "z"}), node("m"))
    assert list(told.requests("onSessionOpen")[0]["RevocableNodes"]) == ["n"]


def test_the_extender_is_told_of_the_sessions_end() -> None:
    _, told = decided({"onSessionClose": {}, "predicate": {}}, NODES, one())
    assert [told.asked[-1], len(told.requests("onSessionClose"))] == [("onSessionClose", {}), 1]


def test_where_it_does_not_take_the_session_it_is_left_alone() -> None:
    answers = {"onSessionOpen": "HTTP 500", "onSessionClose": {}, "predicate": refusing("n0", "n1", "n2")}
    more = {"allocateFunc": {}, "jobEnqueueable": {"status": -1}, "queueOverused": {"overused": True}}
    session, told = decided({**answers, **more}, NODES, one(phase="Pending", minimum={"cpu": 1}))
    assert [verb for verb, _ in told.asked] == ["onSessionOpen", "onSessionClose"]
    assert len(binds(session)) == 1


def test_an_ignorable_one_goes_on_being_asked() -> None:
    answers = {"onSessionOpen": "HTTP 500", "predicate": refusing("n0", "n1", "n2")}
    session, _ = decided(answers, NODES, one(), ignorable=True)
    assert binds(session) == {}


# --- predicate --------------------------------------------------------------------------------------------------------


def test_nodes_that_it_refuses_are_not_taken() -> None:
    session, told = decided({"predicate": refusing("n0", "n2")}, NODES, one())
    assert binds(session) == {"g-0": "n1"}
    request = told.requests("predicate")[0]
    assert set(request) == {"task", "node"}
    assert (request["task"]["Name"], request["node"]["Name"]) == ("g-0", "n0")


def test_its_words_are_the_reason() -> None:
    answer = {"predicate": lambda request: {"status": "full" if request["node"]["Name"] == "n0" else "too far"}}
    session, _ = decided(answer, NODES, one())
    assert why(session, "g") == {"full": 1, "too far": 2}


@pytest.mark.parametrize("code", [0, 1, 2, 3])
def test_a_code_without_words_is_consent(code: int) -> None:
    session, _ = decided({"predicate": {"status": "", "code": code}}, NODES, one())
    assert len(binds(session)) == 1


@pytest.mark.parametrize(("code", "unresolvable"), [(0, True), (1, True), (2, False), (3, True), (4, True), (5, True)])
def test_only_unschedulable_can_be_resolved_by_evictions(code: int, unresolvable: bool) -> None:
    session, _ = opened({"predicate": refusing("n1", code=code)}, NODES, one())
    task, usage = task_of(session, "g-0"), session.nodes.usage
    (predicate,) = framework_of(session).evaluator.predicates
    failed = ~predicate.mask(task, usage)
    assert failed.tolist() == [False, True, False]
    assert predicate.unresolvable_nodes(task, usage, failed).tolist() == [False, unresolvable, False]


def test_where_it_fails_no_node_is_taken_and_the_reason_says_so() -> None:
    session, _ = decided({"predicate": "no answer within 100ms"}, NODES, one())
    assert why(session, "g") == {"the extender did not answer: no answer within 100ms": 3}


def test_where_it_fails_and_is_ignorable_all_nodes_are_taken() -> None:
    session, _ = decided({"predicate": "HTTP 500"}, NODES, one(), ignorable=True)
    assert len(binds(session)) == 1


def test_nodes_without_room_or_that_others_rule_out_are_not_asked_about() -> None:
    nodes = [node("full", cpu=0), node("off", unschedulable=True), node("tainted", taints=[TAINT]), node("free")]
    session, told = decided({"predicate": {}}, nodes, one(), before=("gang", "predicates"))
    assert binds(session) == {"g-0": "free"}
    assert [request["node"]["Name"] for request in told.requests("predicate")] == ["free"]


TAINT = {"key": "k", "value": "v", "effect": "NoSchedule"}


def test_reasons_of_others_stand_beside_its_own() -> None:
    nodes = [node("full", cpu=0), node("off", unschedulable=True), node("free")]
    session, _ = decided({"predicate": refusing("free")}, nodes, one(), before=("gang", "predicates"))
    assert why(session, "g") == {"Insufficient cpu": 1, "node(s) were unschedulable": 1, "not here": 1}


@pytest.mark.parametrize("gpus", [1, 4])
@pytest.mark.parametrize(
    "predicate", [refusing("n0"), "HTTP 500", lambda request: "HTTP 500" if request["node"]["Name"] == "n0" else {}]
)
def test_no_share_is_kept_for_pods_that_it_refuses(predicate: Any, gpus: int) -> None:
    """A queue's share stayed idle for pods that the extender kept off the only idle node."""
    cluster = [node("n0", gpu=2 * gpus), queue("asks"), queue("borrows")]
    refused = [m for i in range(gpus) for m in gang(f"a{i}", 1, queue="asks", cpu=1, gpu=1)]
    # The extender manages CPUs, which the borrowers do not ask for.
    others = [
        group("b", queue="borrows", members=1),
        *(pod(f"b-{i}", group="b", gpu=1, memory=1) for i in range(2 * gpus)),
    ]
    session, _ = decided(
        {"predicate": predicate},
        cluster,
        refused,
        others,
        before=("gang", "predicates", "proportion"),
        managedResources=["cpu"],
    )
    assert len(binds(session)) == 2 * gpus


def unlike(where: str, members: int = 1) -> list[Json]:
    """Three pods of a job that differ in a label or an annotation."""
    pods = [pod(f"g-{i}", group="g", cpu=1, **{where: {"example.com/card": f"n{i}"}}) for i in range(3)]
    return [group("g", members=members), *pods]


@pytest.mark.parametrize("where", ["labels", "annotations"])
def test_pods_that_differ_are_asked_about_each(where: str) -> None:
    def split(request: Json) -> Json:
        wanted = request["task"]["Pod"]["metadata"][where]["example.com/card"]
        return {} if request["node"]["Name"] == wanted else {"status": "not yours"}

    session, _ = decided({"predicate": split}, NODES, unlike(where, 3))
    assert binds(session) == {"g-0": "n0", "g-1": "n1", "g-2": "n2"}


def test_a_task_that_fails_does_not_speak_for_one_that_is_unlike_it() -> None:
    def only_the_second(request: Json) -> Json:
        return {} if request["task"]["Name"] == "g-1" else {"status": "not you"}

    session, _ = decided({"predicate": only_the_second}, NODES, unlike("labels"))
    assert list(binds(session)) == ["g-1"]


@pytest.mark.parametrize(("pods", "nodes"), [(4, 5), (12, 3)])
def test_pods_that_are_alike_are_asked_about_once_for_each_state_of_a_node(pods: int, nodes: int) -> None:
    numbered = [
        pod(f"g-{i}", group="g", cpu="100m", annotations={"volcano.sh/task-index": str(i)}) for i in range(pods)
    ]
    session, told = decided(
        {"predicate": {}}, [node(f"n{i}") for i in range(nodes)], [group("g", members=pods), *numbered]
    )
    assert len(binds(session)) == pods
    assert len(told.asked) == nodes + pods - 1  # all at first, then the one that was taken


def questions(
    objects: Iterable[Json],
    predicate: Any = None,
    before: tuple[str, ...] = ("gang",),
    actions: str = "enqueue, allocate",
) -> list[Question]:
    """The questions of a session about objects that arrived in this order."""
    state, told, objects = ClusterState(), Server({"predicate": predicate or {}}), flat(list(objects))
    for sequence, event in enumerate(puts(*default_queues(objects), *objects), 1):
        state.apply(sequence, event)
    run(
        SnapshotMaker(state).snapshot(),
        read_policy(conf_of(told.answers, {}, before, actions)),
        NOW_NS,
        0,
        outside=told,
    )
    return told.questions


@pytest.mark.parametrize("actions", ["enqueue, allocate", "preempt, allocate", "reclaim, allocate"])
def test_of_nominated_pods_none_is_asked_about_first_because_it_came_first(actions: str) -> None:
    owner, *pods = unlike("labels")
    for each in pods:
        each["status"]["nominatedNodeName"] = "n1"

    first = questions([*NODES, owner, *pods], actions=actions)
    assert first == questions([*NODES, owner, *reversed(pods)], actions=actions) != []


def test_pods_that_may_use_a_share_are_asked_about_in_order_of_key() -> None:
    """The order in which their specs were first seen decided."""
    borrowers = [pod(f"b-{i}", group="b", gpu=1, memory=1) for i in range(4)]
    cluster = [node("n0", gpu=4), queue("asks"), queue("borrows"), group("b", queue="borrows", members=1), *borrowers]
    asks = [pod(f"a-{i}", group="a", cpu=1, gpu=1, memory=i + 1) for i in range(3)]
    owner, before = group("a", queue="asks", members=1), ("gang", "predicates", "proportion")

    def only_borrowers(request: Json) -> Json:
        return {} if request["task"]["Name"] in {each["metadata"]["name"] for each in borrowers} else {"status": "no"}

    found = [questions([*cluster, owner, *order], only_borrowers, before) for order in (asks, asks[::-1])]
    assert found[0] == found[1]
    assert [json.loads(question.body)["task"]["Name"] for question in found[0]].count("a-0") > 1


def test_pods_of_two_jobs_are_asked_about_each() -> None:
    _, told = decided({"predicate": {}}, NODES, gang("a", 1, cpu=1), gang("b", 1, cpu=1))
    assert {request["task"]["Job"] for request in told.requests("predicate")} == {"default/a", "default/b"}


def test_only_the_node_that_changed_is_asked_about_again() -> None:
    session, told = opened({"predicate": {}}, NODES, gang("g", 2, cpu=1))
    first, second = tasks_of(session, "g-0", "g-1")
    framework_of(session).pre_predicate(first)
    assert framework_of(session).candidates(first).passing().all()
    framework_of(session).pre_predicate(second)
    assert framework_of(session).candidates(second).passing().all()
    assert len(told.asked) == 3
    Statement(session.trial, "allocate", first.job).allocate([first], [1])
    assert framework_of(session).candidates(second).passing().all()
    (request,) = [request for _, request in told.asked[3:]]
    assert list(request["node"]["Tasks"]) == ["default/g-0"]
    assert request["node"]["Idle"]["MilliCPU"] == 7000


def test_what_was_asked_is_not_asked_again_once_a_trial_is_taken_back() -> None:
    session, told = opened({"predicate": {}}, NODES, gang("g", 2, cpu=1))
    first, second = tasks_of(session, "g-0", "g-1")
    framework_of(session).candidates(second).passing()
    statement = Statement(session.trial, "allocate", first.job)
    statement.allocate([first], [1])
    framework_of(session).candidates(second).passing()
    statement.discard()
    framework_of(session).candidates(second).passing()
    assert len(told.asked) == 4


def test_everything_is_asked_again_once_it_was_told_of_an_event() -> None:
    session, told = opened({"predicate": {}, "allocateFunc": {}}, NODES, gang("g", 2, cpu=1))
    first, second = tasks_of(session, "g-0", "g-1")
    framework_of(session).candidates(second).passing()
    Statement(session.trial, "allocate", first.job).allocate([first], [1])
    framework_of(session).candidates(second).passing()
    assert len(told.requests("predicate")) == 6


# --- managed resources ------------------------------------------------------------------------------------------------

GPU = "nvidia.com/gpu"


def managed_by(container: Json, kind: str = "containers") -> bool:
    """Whether a pod with such a container is asked about."""
    spec = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}], "initContainers": []}
    spec[kind] = [*spec[kind], {"name": "x", "image": "i", "resources": container}]
    _, told = decided(
        {"predicate": {}}, node("n", gpu=4), group("g"), pod("p", group="g", spec=spec), managedResources=[GPU]
    )
    return bool(told.asked)


def test_pods_are_managed_by_requests_and_limits_of_any_container() -> None:
    assert managed_by({"requests": {GPU: "1"}})
    assert managed_by({"limits": {GPU: "1"}})
    assert managed_by({"requests": {GPU: "1"}}, "initContainers")
    assert not managed_by({"requests": {"cpu": "1", "memory": "1Gi"}})


def test_pods_that_are_not_managed_go_where_they_fit() -> None:
    answers: Answers = dict.fromkeys(["predicate", "prioritize", "allocateFunc", "deallocateFunc"], "HTTP 500")
    session, told = decided(answers, NODES, one(), managedResources=[GPU])
    assert (len(binds(session)), told.asked) == (1, [])
    (task,) = tasks_of(session, "g-0")
    assert plugin_of(session).preemptable(task, [task]) is None


def test_several_resources_may_be_written_with_commas() -> None:
    _, told = decided({"predicate": {}}, node("n", gpu=4), one(gpu=1), managedResources=f"example.com/x, {GPU}")
    assert told.asked


# --- prioritize -------------------------------------------------------------------------------------------------------


def test_its_points_choose_the_node() -> None:
    session, told = decided({"prioritize": {"nodeScore": {"n1": 3, "n2": 7.5}}}, NODES, one())
    assert binds(session) == {"g-0": "n2"}
    (request,) = told.requests("prioritize")
    assert (request["task"]["Name"], [each["Name"] for each in request["nodes"]]) == ("g-0", ["n0", "n1", "n2"])


def test_its_points_add_to_those_of_others() -> None:
    packed = [node("n0"), node("n1"), pod("x", on="n1", cpu=4)]
    few, _ = decided({"prioritize": {"nodeScore": {"n0": 1}}}, packed, one(), before=("gang", "binpack"))
    many, _ = decided({"prioritize": {"nodeScore": {"n0": 1000}}}, packed, one(), before=("gang", "binpack"))
    assert (binds(few), binds(many)) == ({"g-0": "n1"}, {"g-0": "n0"})


def test_only_nodes_that_are_left_are_rated() -> None:
    answers = {"predicate": refusing("n0"), "prioritize": {"nodeScore": {"n0": 9, "n2": 5, "gone": 99}}}
    session, told = decided(answers, NODES, one())
    assert [each["Name"] for each in told.requests("prioritize")[0]["nodes"]] == ["n1", "n2"]
    assert binds(session) == {"g-0": "n2"}


def test_a_node_alone_needs_no_points() -> None:
    session, told = decided({"prioritize": "HTTP 500"}, node("n"), one())
    assert (binds(session), told.asked) == ({"g-0": "n"}, [])


def test_points_beyond_all_bounds_still_compare() -> None:
    session, _ = decided({"prioritize": {"nodeScore": {"n0": -1e300, "n1": 1e300, "n2": 1}}}, NODES, one())
    assert binds(session) == {"g-0": "n1"}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("HTTP 500", "HTTP 500"),
        ({"errorMessage": "no idea"}, "no idea"),
        ({"nodeScore": {"n1": 3}, "errorMessage": "no idea"}, "no idea"),
        ({}, "it answers none"),
    ],
)
def test_without_points_no_node_is_taken(answer: Any, reason: str) -> None:
    session, _ = decided({"prioritize": answer}, NODES, one())
    assert binds(session) == {}
    assert why(session, "g") == {f"the extender returned no priorities: {reason}": 3}


def test_a_failure_that_is_ignorable_gives_no_points() -> None:
    session, _ = decided({"prioritize": "HTTP 500"}, NODES, one(), ignorable=True)
    assert len(binds(session)) == 1


def test_an_error_that_it_answers_is_not_ignored() -> None:
    session, _ = decided({"prioritize": {"errorMessage": "no idea"}}, NODES, one(), ignorable=True)
    assert binds(session) == {}


# --- victims ----------------------------------------------------------------------------------------------------------

VICTIMS = [*NODES, *gang("v", 2, cpu=1, on=["n0", "n1"]), *one()]


@pytest.mark.parametrize("verb", ["preemptable", "reclaimable"])
def test_victims_are_those_it_names(verb: str) -> None:
    session, told = opened({verb: {"status": 1, "victims": [{"UID": "uid-default-v-1"}, {"UID": "?"}]}}, *VICTIMS)
    evictor, *victims = tasks_of(session, "g-0", "v-0", "v-1")
    chosen = getattr(plugin_of(session), verb)(evictor, victims)
    assert named(chosen) == ["v-1"]
    (request,) = told.requests(verb)
    assert request["evictor"]["Name"] == "g-0"
    assert [(each["Name"], each["NodeName"], each["Status"]) for each in request["evictees"]] == [
        ("v-0", "n0", 32),
        ("v-1", "n1", 32),
    ]


@pytest.mark.parametrize("verb", ["preemptable", "reclaimable"])
@pytest.mark.parametrize(
    ("answer", "ignorable", "chosen"),
    [
        ({"status": 0, "victims": [{"UID": "uid-default-v-1"}]}, False, None),
        ({"status": 1}, False, []),
        ({"status": -1, "victims": None}, False, []),
        ("HTTP 500", False, []),
        ("HTTP 500", True, []),
        ({"status": "yes"}, False, []),
    ],
)
def test_it_abstains_or_names_nobody(verb: str, answer: Any, ignorable: bool, chosen: list[Any] | None) -> None:
    session, _ = opened({verb: answer}, *VICTIMS, ignorable=ignorable)
    evictor, *victims = tasks_of(session, "g-0", "v-0", "v-1")
    assert getattr(plugin_of(session), verb)(evictor, victims) == chosen


def test_without_the_verb_it_abstains() -> None:
    session, _ = opened({}, *VICTIMS)
    evictor, *victims = tasks_of(session, "g-0", "v-0")
    assert plugin_of(session).preemptable(evictor, victims) is None
    assert plugin_of(session).reclaimable(evictor, victims) is None


# --- jobs and queues --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "ignorable", "vote"),
    [
        ({"status": 1}, False, Vote.PERMIT),
        ({"status": 0}, False, Vote.ABSTAIN),
        ({"status": -1}, False, "the extender does not admit the job"),
        ("HTTP 500", False, "the extender did not answer: HTTP 500"),
        ("HTTP 500", True, Vote.PERMIT),
    ],
)
def test_it_votes_on_admission(answer: Any, ignorable: bool, vote: Any) -> None:
    session, told = opened({"jobEnqueueable": answer}, NODES, one(phase="Pending"), ignorable=ignorable)
    found = plugin_of(session).job_enqueueable(job_of(session, "g"))
    assert (found.words if isinstance(found, Reason) else found) == vote
    assert told.requests("jobEnqueueable")[0]["job"]["UID"] == "default/g"


def test_a_job_that_it_does_not_admit_waits_and_says_why() -> None:
    answers = {"jobEnqueueable": {"status": -1}, "jobEnqueued": {}}
    session, told = decided(answers, NODES, one(phase="Pending", minimum={"cpu": 1}))
    assert why(session, "g") == {"the extender does not admit the job": 0}
    assert told.requests("jobEnqueued") == []


@pytest.mark.parametrize("answer", [{}, "HTTP 500"])
def test_it_is_told_of_admission(answer: Any) -> None:
    session, told = decided({"jobEnqueued": answer}, NODES, one(phase="Pending", minimum={"cpu": 1}))
    assert [request["job"]["Name"] for request in told.requests("jobEnqueued")] == ["g"]
    assert len(binds(session)) == 1


@pytest.mark.parametrize(
    ("answer", "ignorable", "overused"),
    [
        ({"overused": True}, False, "the extender finds the queue overused"),
        ({"overused": False}, False, None),
        ("HTTP 500", False, "the extender did not answer: HTTP 500"),
        ("HTTP 500", True, None),
    ],
)
def test_it_says_whether_a_queue_is_overused(answer: Any, ignorable: bool, overused: str | None) -> None:
    session, told = opened({"queueOverused": answer}, queue("q", weight=2), ignorable=ignorable)
    found = plugin_of(session).overused(queue_of(session, "q"))
    assert (None if found is None else found.words) == overused
    assert told.requests("queueOverused")[0]["queue"]["UID"] == "q"


@pytest.mark.parametrize(
    ("answer", "ignorable", "ready"),
    [({"status": True}, False, True), ({}, False, False), ("HTTP 500", False, False), ("HTTP 500", True, True)],
)
def test_it_says_whether_a_job_is_ready(answer: Any, ignorable: bool, ready: bool) -> None:
    session, told = decided({"jobReady": answer}, NODES, one(), ignorable=ignorable)
    assert bool(binds(session)) == ready
    assert told.requests("jobReady")[0]["job"]["TaskStatusIndex"].keys() == {"2"}
    reasons = [
        (why.gate, why.plugin, why.reason.code)
        for why in session_close.plan_of(session).waiting
        if why.group == "default/g"
    ]
    assert ready or ("gang", "extender", "rejected") in reasons


# --- events -----------------------------------------------------------------------------------------------------------


def test_it_is_told_of_placements_and_their_reverse() -> None:
    answers = {"allocateFunc": {}, "deallocateFunc": {}}
    session, told = decided(answers, node("n", cpu=1), gang("g", 2, cpu=1))
    assert binds(session) == {}
    (came,), (went,) = told.requests("allocateFunc"), told.requests("deallocateFunc")
    assert (came["task"]["Name"], came["task"]["NodeName"], came["task"]["Status"]) == ("g-0", "n", 2)
    assert (went["task"]["Name"], went["task"]["NodeName"], went["task"]["Status"]) == ("g-0", "", 1)


def test_it_is_told_of_evictions_and_their_reverse() -> None:
    session, told = opened({"allocateFunc": {"errorMessage": "no"}, "deallocateFunc": {}}, *VICTIMS)
    (victim,) = tasks_of(session, "v-0")
    statement = Statement(session.trial, "preempt", victim.job)
    statement.evict(victim, "for another")
    statement.discard()
    assert [(verb, request["task"]["Status"]) for verb, request in told.asked] == [
        ("deallocateFunc", 64),
        ("allocateFunc", 32),
    ]
    assert plugin_of(session).job_ready(victim.job)  # what stays where it was needs no consent


@pytest.mark.parametrize(
    ("answer", "ignorable", "bound"),
    [
        ({"errorMessage": "no license"}, False, False),
        ({"errorMessage": "no license"}, True, False),
        ("HTTP 500", False, False),
        ("HTTP 500", True, True),
        ({}, False, True),
    ],
)
def test_a_placement_that_it_refuses_is_not_made(answer: Any, ignorable: bool, bound: bool) -> None:
    session, _ = decided({"allocateFunc": answer}, NODES, one(), ignorable=ignorable)
    assert bool(binds(session)) == bound
    if not bound:
        words = answer if isinstance(answer, str) else answer["errorMessage"]
        assert why(session, "g") == {f"the extender refuses the placement: {words}": 0}


def no_license(*names: str) -> Callable[[Json], Json]:
    """Refuses to have tasks of some names placed."""
    return lambda request: {"errorMessage": "no license"} if request["task"]["Name"] in names else {}


@pytest.mark.parametrize("refused", ["g-0", "g-1", "g-2"])
@pytest.mark.parametrize("before", [("gang",), ("priority", "gang", "drf", "proportion"), ()])
def test_one_refused_placement_takes_back_that_task_only(refused: str, before: tuple[str, ...]) -> None:
    """One refused allocateFunc kept its whole job waiting for ever; Volcano takes back that task only."""
    session, told = decided(
        {"allocateFunc": no_license(refused), "deallocateFunc": {}},
        NODES,
        gang("g", 3, members=2, cpu=1),
        before=before,
    )
    assert sorted(binds(session)) == sorted({"g-0", "g-1", "g-2"} - {refused})
    assert [request["task"]["Name"] for request in told.requests("deallocateFunc")] == [refused]
    assert int(session.nodes.usage.used[session.nodes.resources.index("cpu")].sum()) == 2000
    reason = "the extender refuses the placement: no license"
    assert [(each.plugin, each.pods) for each in all_told(job_of(session, "g").why) if each.reason == reason] == [
        ("extender", (f"default/{refused}",))
    ]


def test_a_refused_placement_leaves_a_gang_below_its_minimum_unbound() -> None:
    session, _ = decided({"allocateFunc": no_license("g-1")}, NODES, gang("g", 3, cpu=1))
    assert (binds(session), int(session.nodes.usage.used.sum())) == ({}, 0)


def test_a_refused_placement_of_a_pod_that_asks_for_nothing_takes_back_that_one_only() -> None:
    session, _ = decided(
        {"allocateFunc": no_license("g-0")}, NODES, gang("g", 3, members=1), actions="enqueue, allocate, backfill"
    )
    assert sorted(binds(session)) == ["g-1", "g-2"]


@pytest.mark.parametrize("action", ["preempt", "reclaim", "gangpreempt", "gangreclaim"])
def test_nobody_is_evicted_for_a_placement_that_it_refuses(action: str) -> None:
    """The room would be made in vain, again in each session."""
    queues = [queue("q"), queue("other", weight=1)]
    high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 9}
    victims = gang("v", 2, members=1, cpu=4, on=["n", "n"], queue="other" if "reclaim" in action else "q")
    urgent = {"priority": 9, "containers": [{"name": "c", "resources": {"requests": {"cpu": "4"}}}]}
    wants = gang("g", 1, queue="q", group_spec={"priorityClassName": "high"}, spec=urgent)
    objects = [node("n", cpu=8), *queues, high, *victims, *wants]
    before = ("priority", "gang", "predicates", *(["proportion"] if "reclaim" in action else []))
    for answer, evicted in (({}, True), (no_license("g-0"), False)):
        session, told = decided({"allocateFunc": answer}, objects, before=before, actions=f"allocate, {action}")
        verbs = [op.verb for statement in session.trial.statements for op in statement.operations()]
        assert ("evict" in verbs) == evicted
        assert told.requests("allocateFunc")


@pytest.mark.parametrize("refused", [(2, 3), (3, 5), tuple(range(3, 99))])
def test_a_wait_that_is_looked_at_anew_is_not_refused_afterwards(refused: tuple[int, ...]) -> None:
    """allocate sees whether who waits for idle room could be bound: a server that fails then ended each session."""
    count = itertools.count(1)

    def answer(request: Json) -> Any:
        return "timed out" if next(count) in refused else {}

    for size in (1, 2):
        count = itertools.count(1)
        session, _ = decided(
            {"allocateFunc": answer}, node("n", cpu=8), gang("g", size, cpu=1), actions="preempt, allocate"
        )
        operations = [op for statement in session.trial.statements for op in statement.operations()]
        assert session.faults == ()
        assert {op.verb for op in operations} <= {"pipeline", "bind"}


def failing_after(name: str, answers: int) -> Callable[[Json], Any]:
    """Lets pods of such a name in that many times, and is silent then."""
    count = itertools.count(1)
    return lambda request: {} if not request["task"]["Name"].startswith(name) or next(count) <= answers else "timed out"


@pytest.mark.parametrize("answers", [0, 1, 2])
def test_no_gang_goes_for_one_that_is_refused_when_others_are_to_stay_after_all(answers: int) -> None:
    nodes = [node("n1", cpu=4), node("n2", cpu=4), node("n3", cpu=1)]
    kept = job("kept", "low", on=["n2"], cpu=1, annotations={"volcano.sh/preemptable": "false"})
    others = [job("x", "low", on=["n1"], cpu=4), kept, job("y", "low", on=["n2"], cpu=1, created=9)]
    session, _ = decided(
        {"allocateFunc": failing_after("new", answers), "deallocateFunc": {}},
        flat([*nodes, CLASSES, *others, job("new", "high", cpu=4)]),
        before=("priority", "gang", "predicates"),
        actions="allocate, gangpreempt",
    )
    operations = [op for statement in session.trial.statements for op in statement.operations()]
    assert [(op.verb, op.key) for op in operations] == (
        [("evict", "default/x-0"), ("pipeline", "default/new-0")] if answers == 2 else []
    )


@pytest.mark.parametrize("answers", [4, 5, 6, 7, 8])
def test_a_sub_group_is_bound_whole_though_the_extender_fails_meanwhile(answers: int) -> None:
    """One sub-group has room, the other one waits: the first is placed again to be bound alone."""
    policy = {"name": "p", "subGroupSize": 2, "minSubGroups": 0, "matchLabelKeys": ["part"]}
    pods = [
        pod(f"g-{i}", group="g", cpu=2, labels={"part": part}, spec={"nodeSelector": {"kubernetes.io/hostname": on}})
        for i, (part, on) in enumerate([("a", "n2"), ("a", "n2"), ("b", "n1"), ("b", "n1")])
    ]
    leaving = pod("old", on="n2", cpu=4, deleting=True)
    session, _ = decided(
        {"allocateFunc": failing_after("g-", answers), "deallocateFunc": {}},
        *[node("n1", cpu=4), node("n2", cpu=4), leaving, group("g", members=1, subGroupPolicy=[policy]), pods],
        before=("priority", "gang", "predicates"),
        actions="allocate",
    )
    bound = [op.key for statement in session.trial.statements for op in statement.operations() if op.verb == "bind"]
    assert bound == ["default/g-2", "default/g-3"]


def test_reclaim_tries_the_next_node_where_a_placement_is_refused() -> None:
    """As Volcano does: the first node's pods stay, the second one's go."""
    queues = [queue("q"), queue("other", weight=1)]
    victims = gang("v", 4, members=1, cpu=4, on=["n0", "n0", "n1", "n1"], queue="other")
    objects = [node("n0", cpu=8), node("n1", cpu=8), *queues, *victims, *gang("g", 2, members=1, queue="q", cpu=4)]

    def answer(request: Json) -> Json:
        task = request["task"]
        return {"errorMessage": "no license"} if (task["Name"], task["NodeName"]) == ("g-0", "n0") else {}

    before = ("priority", "gang", "predicates", "proportion")
    session, _ = decided({"allocateFunc": answer}, objects, before=before, actions="enqueue, reclaim")
    operations = [op for statement in session.trial.statements for op in statement.operations()]
    assert [(op.key, op.node) for op in operations if op.verb == "pipeline"] == [("default/g-0", "n1")]
    assert [op.node for op in operations if op.verb == "evict"] == ["n1"]


def test_a_reverse_that_it_refuses_is_made_all_the_same() -> None:
    session, told = decided({"deallocateFunc": {"errorMessage": "no"}}, node("n", cpu=1), gang("g", 2, cpu=1))
    assert (len(told.asked), int(session.nodes.usage.used.sum())) == (1, 0)


# --- the wire form ----------------------------------------------------------------------------------------------------

# The fields of Volcano's structures, in their order there (pkg/scheduler/api).
TASK_INFO = """UID Job Name Namespace TaskRole Resreq InitResreq DRAResreq ResourceClaimKeys ResourceClaimDRAResreq
NodeName EvictionOccurred JobAllocatedHyperNode Status LastTransaction Priority VolumeReady Preemptable BestEffort
HasRestartableInitContainer SchGated RevocableZone NumaInfo Pod PodAnnotations CustomBindErrHandlerSucceeded"""
NODE_INFO = """Name Node State Releasing Pipelined Idle Used Allocatable Capacity ResourceUsage Tasks NumaInfo
UnassignedNumaPods NumaSchedulerInfo RevocableZone Others OversubscriptionNode OfflineJobEvicting
OversubscriptionResource ImageStates Generation BindGeneration"""
JOB_INFO = """UID PgUID Name Namespace Queue Priority MinAvailable WaitingTime JobFitErrors NodesFitErrors
AllocatedHyperNode NetworkTopology SubJobs TaskToSubJob MinSubJobs TaskStatusIndex Tasks TaskMinAvailable
TaskMinAvailableTotal Allocated TotalRequest CreationTimestamp PodGroup ScheduleStartTimestamp Preemptable
RevocableZone Budget"""
QUEUE_INFO = "UID Name Weight Weights Hierarchy Queue"


def whole(*objects: Any) -> Json:
    _, told = opened({"onSessionOpen": {}}, *objects)
    return told.requests("onSessionOpen")[0]


def test_structures_have_the_fields_of_volcanos() -> None:
    request = whole(*VICTIMS)
    assert set(request["Jobs"]["default/v"]) == set(JOB_INFO.split())
    assert set(request["Nodes"]["n0"]) == set(NODE_INFO.split())
    assert set(request["Queues"]["default"]) == set(QUEUE_INFO.split())
    assert set(request["Nodes"]["n0"]["Tasks"]["default/v-0"]) == set(TASK_INFO.split())


def test_a_job_without_pods_asks_for_nothing() -> None:
    asked = whole(node("n"), group("g"))["Jobs"]["default/g"]["TotalRequest"]
    assert (asked["MilliCPU"], asked["Memory"]) == (0, 0)


def test_a_task_as_go_writes_it() -> None:
    marks = {"volcano.sh/task-spec": "worker", "volcano.sh/preemptable": "false", "volcano.sh/revocable-zone": "*"}
    spec = {"priority": 7, "initContainers": [{"name": "s", "image": "i", "restartPolicy": "Always"}]}
    request = whole(
        node("n", gpu=8), group("g"), pod("p", group="g", cpu="1500m", memory=2, gpu=1, annotations=marks, spec=spec)
    )
    task = request["Jobs"]["default/g"]["Tasks"]["uid-default-p"]
    amounts = {
        "MilliCPU": 1500,
        "Memory": 2 << 30,
        "ScalarResources": {"nvidia.com/gpu": 1000, "pods": 1},
        "MaxTaskNum": 0,
    }
    expected = {
        "UID": "uid-default-p",
        "Job": "default/g",
        "Name": "p",
        "Namespace": "default",
        "TaskRole": "worker",
        "Resreq": amounts,
        "InitResreq": amounts,
        "NodeName": "",
        "Status": 1,
        "Priority": 7,
        "Preemptable": False,
        "BestEffort": False,
        "HasRestartableInitContainer": True,
        "SchGated": False,
        "RevocableZone": "*",
        "LastTransaction": None,
    }
    assert {key: task[key] for key in expected} == expected
    assert task["Pod"]["metadata"]["name"] == "p"
    assert task["Pod"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "1500m"
    assert task["PodAnnotations"]["volcano.sh/task-spec"] == "worker"


def test_a_node_as_go_writes_it() -> None:
    labels = {"volcano.sh/oversubscription": "true", "volcano.sh/revocable-zone": "z"}
    request = whole(node("n", gpu=8, labels=labels), *gang("g", 2, cpu=1, gpu=1, on=["n"]))
    found = request["Nodes"]["n"]
    scalars = {"nvidia.com/gpu": 8000, "pods": 110}
    assert (
        found["Allocatable"]
        == found["Capacity"]
        == {
            "MilliCPU": 8000,
            "Memory": 32 << 30,
            "ScalarResources": scalars,
            "MaxTaskNum": 110,
        }
    )
    assert found["Idle"]["ScalarResources"] == {"nvidia.com/gpu": 7000, "pods": 109}
    assert found["Used"] == {
        "MilliCPU": 1000,
        "Memory": 0,
        "ScalarResources": {"nvidia.com/gpu": 1000, "pods": 1},
        "MaxTaskNum": 0,
    }
    assert found["Releasing"] == {"MilliCPU": 0, "Memory": 0, "ScalarResources": None, "MaxTaskNum": 0}
    assert (found["State"], found["OversubscriptionNode"], found["RevocableZone"]) == (
        {"Phase": 1, "Reason": ""},
        True,
        "z",
    )
    assert found["ResourceUsage"]["MetricsTime"] == "0001-01-01T00:00:00Z"
    assert found["Node"]["metadata"]["labels"]["volcano.sh/revocable-zone"] == "z"


def test_a_job_as_go_writes_it() -> None:
    made = group("g", members=2, minTaskMember={"a": 1, "b": 1}, phase="Inqueue")
    made["metadata"]["annotations"] = {"volcano.sh/sla-waiting-time": "1m30s", "volcano.sh/jdb-min-available": "50%"}
    request = whole(node("n"), made, pod("p0", group="g", cpu=1, on="n"), pod("p1", group="g", cpu=1))
    job = request["Jobs"]["default/g"]
    expected = {
        "UID": "default/g",
        "Queue": "default",
        "MinAvailable": 2,
        "WaitingTime": 90_000_000_000,
        "TaskMinAvailable": {"a": 1, "b": 1},
        "TaskMinAvailableTotal": 2,
        "Preemptable": False,
        "Budget": {"MinAvailable": "50%", "MaxUnavailable": ""},
    }
    assert {key: job[key] for key in expected} == expected
    assert {key: list(tasks) for key, tasks in job["TaskStatusIndex"].items()} == {
        "32": ["uid-default-p0"],
        "1": ["uid-default-p1"],
    }
    assert (job["Allocated"]["MilliCPU"], job["TotalRequest"]["MilliCPU"]) == (1000, 2000)
    assert (job["PodGroup"]["metadata"]["name"], job["PodGroup"]["spec"]["minMember"]) == ("g", 2)
    assert (job["PodGroup"]["status"]["phase"], job["PodGroup"]["Version"]) == ("Inqueue", "v1beta1")


def test_a_queue_as_go_writes_it() -> None:
    made = queue("q", weight=3)
    made["metadata"]["annotations"] = {"volcano.sh/hierarchy": "root/q", "volcano.sh/hierarchy-weights": "1/3"}
    found = whole(made)["Queues"]["q"]
    assert {key: found[key] for key in ("UID", "Name", "Weight", "Weights", "Hierarchy")} == {
        "UID": "q",
        "Name": "q",
        "Weight": 3,
        "Weights": "1/3",
        "Hierarchy": "root/q",
    }
    assert found["Queue"]["spec"]["weight"] == 3


# --- replay -----------------------------------------------------------------------------------------------------------


def answering(request: Json) -> Json:
    """By name, so that neither order nor number of nodes matter."""
    return {"status": "odd"} if (len(request["node"]["Tasks"]) + int(request["node"]["Name"][1:])) % 2 else {}


BUSY: Answers = {
    "onSessionOpen": {},
    "predicate": answering,
    "prioritize": lambda request: {"nodeScore": {each["Name"]: len(each["Tasks"]) for each in request["nodes"]}},
    "queueOverused": {},
    "jobReady": lambda request: {"status": len(request["job"]["TaskStatusIndex"].get("2", ())) >= 2},
    "allocateFunc": {},
    "deallocateFunc": {},
    "onSessionClose": {},
}


@pytest.mark.parametrize("kept", [False, True])
def test_a_record_gives_the_same_plan_with_and_without_memory(kept: bool) -> None:
    objects = [
        *(node(f"n{i}", cpu=3) for i in range(6)),
        *gang("a", 3, cpu=1),
        *gang("b", 4, cpu=2),
        *gang("c", 2, cpu=1),
    ]
    snapshot, policy = snapshot_of(objects), read_policy(conf_of(BUSY, {}, ("gang", "binpack")))
    recorder, memory = Recorder(Server(BUSY)), Memory()
    if kept:
        decide(snapshot, policy, NOW_NS, 0, memory, outside=Server(BUSY))
    plan = decide(snapshot, policy, NOW_NS, 0, memory if kept else None, outside=recorder)
    assert plan.statements
    assert len(recorder.asked) > 30
    record = Recorded(recorder.asked)
    assert ev.encode_plan(decide(snapshot, policy, NOW_NS, 0, outside=record)) == ev.encode_plan(plan)
    assert record.departure() is None


def test_another_answer_in_the_record_shows() -> None:
    snapshot, policy = snapshot_of([*NODES, *one()]), read_policy(conf_of({"predicate": {}}, {}))
    recorder = Recorder(Server({"predicate": refusing("n0", "n1")}))
    assert decide(snapshot, policy, NOW_NS, 0, outside=recorder).statements[0].operations[0].node == "n2"
    changed = [ev.Asked(one.question, b'{"status": "no"}') for one in recorder.asked]
    assert decide(snapshot, policy, NOW_NS, 0, outside=Recorded(changed)).statements == ()


async def test_why_a_node_was_chosen_is_told_from_the_record(tmp_path: Path) -> None:
    answers = {"predicate": refusing("n0"), "prioritize": {"nodeScore": {"n1": 3, "n2": 7}}}
    policy, recorder, state = read_policy(conf_of(answers, {})), Recorder(Server(answers)), ClusterState()
    async with EventLog.open(tmp_path / "log", clock=lambda: NOW_NS) as log:
        state_writer = StateWriter(log, state)
        await state_writer.put(
            [ev.PolicyLoaded(policy.digest, policy.text), *puts(*default_queues([]), *NODES, *one())]
        )
        head, plan = state.sequence, decide(SnapshotMaker(state).snapshot(), policy, NOW_NS, 0, outside=recorder)
        data = ev.encode_plan(plan)
        await state_writer.put(
            [ev.SessionDecided(1, head, policy.digest, NOW_NS, 0, 1, {}, data, asked=recorder.asked)]
        )
    with history_of(tmp_path / "log") as history:
        choice = choices(history, 1, ["default/g-0"])["default/g-0"]
    assert (choice.node, choice.refused) == ("n2", {"not here": 1})
    assert [(rated.node, rated.scores) for rated in choice.best] == [("n2", {"extender": 7}), ("n1", {"extender": 3})]


async def write_history(path: Path, url: str) -> None:
    """A log of one session that an extender had its say in."""
    policy = read_policy(
        conf_of({"predicate": {}}, {"extender.urlPrefix": url, "extender.httpTimeout": "10s"}, ("gang",))
    )
    state = ClusterState()
    async with EventLog.open(path, clock=lambda: NOW_NS) as log:
        state_writer = StateWriter(log, state)
        await state_writer.put([ev.PolicyLoaded(policy.digest, policy.text)])
        await state_writer.put(puts(*default_queues([]), *NODES, *one()))
        asking = HttpOutside()
        cycle = Cycle(state_writer, lambda: policy, lambda: 1, lambda *_: None, clock=lambda: NOW_NS, outside=asking)
        await cycle.once(1)
        await asking.close()


async def test_a_session_decided_with_an_extender_replays_without_one(tmp_path: Path) -> None:
    with server() as told:
        told.answer = lambda request: (200, json.dumps(refusing("n0", "n2")(json.loads(request.body))).encode())
        await write_history(tmp_path / "log", told.url.replace("http://", "http://me:secret@"))
        asked = len(told.requests)
    (one_session,) = replay(tmp_path / "log")
    assert (one_session.operations, one_session.difference, asked) == (1, None, 3)


async def test_a_hanging_extender_holds_up_nothing_but_its_session() -> None:
    with server() as told:
        told.answer = told.hang
        policy = read_policy(
            conf_of({"predicate": {}}, {"extender.urlPrefix": told.url, "extender.httpTimeout": "20s"}, ("gang",))
        )
        log = FakeLog()
        state_writer = StateWriter(log.as_log(), ClusterState())
        await state_writer.put(puts(*default_queues([]), node("n"), *one()))
        asking = HttpOutside()
        cycle = Cycle(state_writer, lambda: policy, lambda: 1, lambda *_: None, clock=lambda: NOW_NS, outside=asking)
        async with running(cycle.run()):
            await until(told.hanging.is_set)
            head = state_writer.state.sequence
            await state_writer.put(puts(node("m")))  # the loop goes on: what happens meanwhile is logged and folded
            assert (state_writer.state.sequence, log.sessions) == (head + 1, [])
            told.answer = lambda _: (200, b"{}")
            told.released.set()
            await until(lambda: log.sessions)
        await asking.close()
    assert log.sessions[0].head == head
    (answer,) = log.sessions[0].asked
    assert answer.error or answer.answer == b"late"


# --- a budget of time -------------------------------------------------------------------------------------------------


async def one_session(
    url: str, count: int, arguments: Json, answers: Answers, limit: float = math.inf
) -> tuple[FakeLog, Session, float]:
    """A session of a daemon's cycle on so many nodes: its log, the session, and the seconds that it took.

    What was logged of it is decided again by the record, without a server.
    """
    given = {"extender.urlPrefix": url, **{f"extender.{key}": value for key, value in arguments.items()}}
    policy = read_policy(conf_of(answers, given, ("gang",)))
    log, held = FakeLog(), list[Session]()
    state_writer = StateWriter(log.as_log(), ClusterState())
    await state_writer.put(puts(*default_queues([]), *(node(f"n{i}") for i in range(count)), *gang("g", 3, cpu=1)))
    watchdog = Watchdog(state_writer, limit, wall=lambda: NOW_NS)
    asking = HttpOutside(watchdog.check)
    cycle = Cycle(
        state_writer,
        lambda: policy,
        lambda: 1,
        lambda record, plan, session, _: held.append(session),
        clock=lambda: NOW_NS,
        outside=asking,
        watchdog=watchdog,
    )
    snapshot = SnapshotMaker(state_writer.state).snapshot()
    began = time.monotonic()
    await cycle.once(1)
    took = time.monotonic() - began
    await asking.close()
    for logged in log.sessions:
        record = Recorded(logged.asked)
        again = decide(snapshot, policy, logged.now, logged.seed, outside=record, interrupted=logged.interrupted)
        assert (ev.encode_plan(again), record.departure()) == (logged.plan, None)
    return log, held[0], took


@pytest.mark.parametrize("ignorable", [False, True])
@pytest.mark.parametrize("verb", ["predicate", "prioritize", "jobReady", "allocateFunc", "onSessionOpen"])
async def test_a_silent_server_costs_a_session_its_budget_at_most(verb: str, ignorable: bool) -> None:
    """A thousand nodes and a silent server stopped the cycle for a quarter of an hour."""
    budget = {"sessionTimeout": "400ms", "httpTimeout": "150ms", "ignorable": ignorable}
    with server() as told:
        told.answer = told.hang
        _, session, took = await one_session(told.url, 1000, budget, {verb: {}})
    assert_prompt(took, 15.0)
    bound = len(binds(session))
    assert bound == (3 if ignorable or verb == "onSessionOpen" else 0)
    if verb == "predicate":
        (out,) = [gauge.value for gauge in session.gauges["extender"] if gauge.name == "vcd_extender_out"]
        ((problem,),) = [told for name, told in session.problems.items() if name == "extender"]
        assert (out, problem.kind, problem.key) == (1, "", "")
        assert "is not asked any more in this session" in problem.message


async def test_a_server_that_is_slow_is_asked_sixteen_questions_at_a_time() -> None:
    """It answers sixteen questions once it has them all: asked one after the other it would answer none in time."""
    together, count = threading.Barrier(16), itertools.count()

    def answer(_: Any) -> tuple[int, bytes]:
        if next(count) < 32:
            together.wait(WAIT_LIMIT)
        return 200, b"{}"

    with server() as told:
        told.answer = answer
        budget = {"sessionTimeout": "600s", "httpTimeout": "600s"}
        _, session, _ = await one_session(told.url, 32, budget, {"predicate": {}})
    assert len(binds(session)) == 3


async def test_a_wrong_server_is_asked_once_for_each_node_and_record_and_replay_agree() -> None:
    with server() as told:
        told.answer = lambda request: (200, b"[]") if b"n1" in request.body else (503, b"")
        budget = {"sessionTimeout": "600s", "httpTimeout": "600s"}
        _, session, _ = await one_session(told.url, 50, budget, {"predicate": {}})
        assert len(told.requests) == 50
    assert binds(session) == {}


@pytest.mark.parametrize("ignorable", [False, True])
async def test_the_watchdog_ends_its_waiting_and_what_it_guards_stays_guarded(ignorable: bool) -> None:
    """A budget beyond what a plugin may take is no way around the watchdog; without its consent no pod is placed."""
    budget = {"sessionTimeout": "60s", "httpTimeout": "60s", "ignorable": ignorable}
    with server() as told:
        told.answer = told.hang
        log, session, took = await one_session(told.url, 20, budget, {"predicate": {}}, 0.5)
    assert_prompt(took, 15.0)
    (record,) = log.sessions
    assert [fault.partition(" s in ")[0] for fault in record.interrupted] == ["extender: took more than 0.5"]
    assert len(binds(session)) == (3 if ignorable else 0)
    if not ignorable:
        assert why(session, "g") == {"the extender did not answer: it was interrupted": 20}
