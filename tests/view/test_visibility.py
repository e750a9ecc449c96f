"""What somebody sees of a page who may not see all of it: by their rights in the cluster, question by question."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator

from tests import dsl
from tests.dsl import Manifest
from tests.sizes import WIDE
from tests.timetravel.histories import Scheduler, scheduler
from tests.view.cluster import GROUPS, guarded
from tests.view.pages import Asker
from vcd.diagnosis.diagnosedwaits import DiagnosedWait
from vcd.model import events as ev
from vcd.serving.authorization import MOST_A_SECOND, REFUSED_SECONDS
from vcd.view.answers import forget
from vcd.view.page_documents import PageError
from vcd.view.page_openapi import description
from vcd.view.page_server import View
from vcd.view.questions import PARAMETERS, QUESTIONS

pytestmark = pytest.mark.usefixtures("quick_page")

CONF = """\
actions: "enqueue, allocate, preempt, reclaim, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: resourcequota
- plugins:
  - name: proportion
  - name: predicates
  - name: nodeorder
"""
HERS, HIS = "aurora", "borealis"
"""Namespaces, each of which the names of all that is in it begin with; that of one is long, as users' are."""
THEIRS = f"{HIS}-{'long' * 12}"
LAST = 9

ALL = f"list {GROUPS}"
RIGHTS = {
    "root": ["get on the nonResourceURL /vcd/page"],
    "ann": [f"list {GROUPS} in namespace {HERS}", f"get {GROUPS} in namespace {HERS}"],
    "bob": [f"list {GROUPS} in namespace {THEIRS}", f"get {GROUPS} in namespace {THEIRS}"],
    "ops": [
        ALL,
        f"get {GROUPS}",
        "get nodes",
        "get queues.scheduling.volcano.sh",
        "list pods",
        "get priorityclasses.scheduling.k8s.io",
    ],
    "eve": [],
}

QUERIES = {
    "head": ["head"],
    "sessions": ["sessions", "sessions?from=2&to=4"],
    "overview": ["overview", *(f"overview?session={number}" for number in range(1, LAST + 1))],
    "session": ["session", *(f"session?number={number}" for number in range(1, LAST + 1))],
    "job": [
        f"{{}}?key={namespace}/{word}-{job}&session={number}"
        for namespace, word in ((HERS, HERS), (THEIRS, HIS))
        for job in ("low", "high", "big", "owed", "none", "lo", "")
        for number in (4, 6, 8)
    ],
    "eta": [f"{{}}?key={namespace}/{word}-big" for namespace, word in ((HERS, HERS), (THEIRS, HIS))],
    "at": ["at?time=2h", "at?time=2026-01-01T00:10:00Z"],
    "node": [f"node?name=n{node}&session={session}" for node in (0, 1, 2, 3) for session in (3, 5, 8)],
    "whatif": [
        f"{{}}?key={namespace}/{word}-{job}&{change}"
        for namespace, word in ((HERS, HERS), (THEIRS, HIS))
        for job in ("big", "none")
        for change in ("queue=right", "queue=nowhere", "priority=urgent", "priority=none", "")
    ],
}
"""Of every question, what is asked; a question without would not be looked at."""


FEW = 4
"""Outside of a wide run, of a question that is asked more often than this only each fourth query is made."""


def asked() -> list[str]:
    chosen = {name: queries[:: FEW if len(queries) > FEW and not WIDE else 1] for name, queries in QUERIES.items()}
    return [query.replace("{}", name) for name, queries in chosen.items() for query in queries]


def in_namespace(objects: Iterable[Manifest], namespace: str) -> list[Manifest]:
    """Objects as they are in another namespace."""
    moved = [{**one, "metadata": {**one["metadata"], "namespace": namespace}} for one in objects]
    for one in moved:
        if one["kind"] == "Pod":
            one["metadata"]["uid"] = f"uid-{namespace}-{one['metadata']['name']}"
    return moved


def gang(namespace: str, name: str, size: int, **options: Any) -> list[Manifest]:
    """A gang of one of the namespaces."""
    word = HERS if namespace == HERS else HIS
    return in_namespace(dsl.gang(f"{word}-{name}", size, **options), namespace)


async def write_history(path: Path) -> None:
    """Two namespaces that share nodes and queues: each has jobs that wait for the other's, and takes pods from it by
    priority and by share; jobs come, are bound, fail to be, end and are deleted."""
    urgent = {"priorityClassName": "urgent"}
    async with scheduler(path, CONF) as made:
        await made.show(
            [dsl.node(f"n{number}", cpu=8) for number in range(3)],
            [dsl.queue(name) for name in ("root", "default", "left", "right")],
            dsl.priority_class("urgent", 10),
            [{"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name}} for name in (HERS, THEIRS)],
        )
        await made.show(quota(HERS), quota(THEIRS))
        await made.show(gang(HERS, "low", 2, members=1, cpu=8, queue="left", phase="Pending", minimum={"cpu": 8}))
        await made.carry_out(await made.cycle(), "failed", "the node does not answer")
        await made.carry_out(await made.cycle())
        await made.show(gang(THEIRS, "low", 1, members=0, cpu=8, queue="right", created=1))
        await made.carry_out(await made.cycle())
        await made.show(gang(THEIRS, "high", 1, cpu=8, queue="left", created=2, group_spec=urgent))  # preempts hers
        await made.carry_out(await made.cycle(seconds=60))
        await made.carry_out(await made.cycle(seconds=60))
        await made.show(gang(HERS, "high", 1, cpu=8, queue="right", created=3, group_spec=urgent))  # preempts his
        await made.carry_out(await made.cycle(seconds=60))
        await made.carry_out(await made.cycle(seconds=60))
        for namespace in (HERS, THEIRS):
            await made.show(gang(namespace, "big", 2, cpu=8, queue="left", created=4))
            await made.show(gang(namespace, "owed", 1, cpu=5, queue="right", created=5))
        await made.cycle(seconds=600)
        await gone(made)
        await made.carry_out(await made.cycle())


def quota(namespace: str) -> Manifest:
    word = HERS if namespace == HERS else HIS
    return {
        "kind": "ResourceQuota", "apiVersion": "v1", "metadata": {"name": f"{word}-quota", "namespace": namespace},
        "spec": {"hard": {"pods": "90"}}, "status": {"hard": {"pods": "90"}, "used": {"pods": "1"}},
    }  # fmt: skip


async def gone(made: Scheduler) -> None:
    """What ran of either ends, and is deleted."""
    for namespace, word in ((HERS, HERS), (THEIRS, HIS)):
        await made.finish(f"{namespace}/{word}-high-0")
        await made.delete("Pod", f"{namespace}/{word}-owed-0")
        await made.delete("PodGroup", f"{namespace}/{word}-owed")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log of ``write_history``."""
    path = tmp_path_factory.mktemp("shared") / "shared.log"
    asyncio.run(write_history(path))
    return path


@pytest.fixture(scope="module")
def whole(shared: Path, quick_page: None) -> dict[str, tuple[int, str]]:
    """The answers to all that is asked, as a user who may see everything."""

    async def ask() -> dict[str, tuple[int, str]]:
        async with guarded(shared, RIGHTS) as (page, _):
            return await answers(page, "root")

    return asyncio.run(ask())


async def answers(page: Asker, user: str) -> dict[str, tuple[int, str]]:
    """Status and text of the answers to all that is asked, as one user."""
    found = {}
    for query in asked():
        status, body, _ = await page.get(f"api/{query}", Authorization=f"Bearer {user}")
        found[query] = status, json.dumps(body)
    return found


def test_the_api_is_as_described(whole: dict[str, tuple[int, str]]) -> None:
    described = description()
    Draft202012Validator.check_schema({"$defs": described["components"]["schemas"]})
    for query, (status, text) in whole.items():
        name = query.partition("?")[0]
        responses = described["paths"][f"/api/{name}"]["get"]["responses"]
        schema = responses[str(status)]["content"]["application/json"]["schema"]
        Draft202012Validator({**schema, "components": described["components"]}).validate(json.loads(text))
        kind = QUESTIONS[name].answer if status == 200 else PageError
        assert json.loads(msgspec.json.encode(msgspec.json.decode(text, type=kind))) == json.loads(text)


def test_parameters_are_described() -> None:
    for name, question in QUESTIONS.items():
        parameters = description()["paths"][f"/api/{name}"]["get"]["parameters"]
        assert [each["name"] for each in parameters] == list(question.parameters)
    assert PARAMETERS.keys() == {name for question in QUESTIONS.values() for name in question.parameters}


# --- nothing of another namespace -------------------------------------------------------------------------------------


def test_every_route_is_asked_for_and_has_a_rule() -> None:
    routes = {route.resource.canonical for route in View(Path("none"))._application().router.routes() if route.resource}
    asked_for = {f"/api/{query.partition('?')[0]}" for query in asked()}
    static = {route for route in routes if "/api" not in route}
    assert routes - static == asked_for
    assert QUERIES.keys() == QUESTIONS.keys()
    assert all(question.part is not question.whole for question in QUESTIONS.values())


@pytest.mark.parametrize(("user", "other"), [("ann", HIS), ("bob", HERS)])
async def test_no_answer_names_anything_of_another_namespace(
    shared: Path, whole: dict[str, tuple[int, str]], user: str, other: str
) -> None:
    async with guarded(shared, RIGHTS) as (page, _):
        seen = await answers(page, user)
        named = {query for query, (_, text) in whole.items() if other in text}
        own = [query for query in named if other in seen[query][1] and other not in query]
        assert own == []
        # of what was asked by a name of the other nothing comes back but that it may not be seen
        for query in (query for query in named if other in query):
            status, text = seen[query]
            assert status == 403
            assert text.count(other) == text.count(f"namespace {THEIRS if other == HIS else HERS}")
        # and all of that is there to be seen
        assert {query.partition("?")[0] for query in named} == {"overview", "session", "job", "eta", "node", "whatif"}


async def test_causes_are_those_of_jobs_that_one_sees(shared: Path) -> None:
    async with guarded(shared, RIGHTS) as (page, _):
        causes = {
            user: (await page.get("api/overview?session=8", Authorization=f"Bearer {user}"))[1]["waits"]
            for user in ("root", "ann", "bob")
        }
    assert [one for one in causes["root"] if one["group"].startswith(HERS)] == causes["ann"] != []
    assert [one for one in causes["root"] if one["group"].startswith(THEIRS)] == causes["bob"] != []


async def test_the_cause_of_a_wait_names_no_job_of_others(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A phrase may name the job ahead, or be a plugin's words, which are cut."""
    job = f"{HERS}/{HERS}-big"

    def waits(history: object, number: int, jobs: object, most: int) -> list[DiagnosedWait]:
        return [
            DiagnosedWait(job, job, "left", "1 x 8 cpu", "order", why, "")
            for why in (f"behind {THEIRS}/{HIS}-high", f"behind {THEIRS}...")
        ]

    monkeypatch.setattr("vcd.view.answers.longest_waits", waits)
    forget()
    async with guarded(shared, RIGHTS) as (page, _):
        causes = {
            user: [one["why"] for one in (await page.get("api/overview", Authorization=f"Bearer {user}"))[1]["waits"]]
            for user in ("root", "ann")
        }
    forget()
    assert causes == {
        "root": [f"behind {THEIRS}/{HIS}-high", f"behind {THEIRS}..."],
        "ann": ["behind another namespace's", "behind ..."],
    }


@pytest.mark.parametrize(("user", "word", "namespace"), [("ann", HERS, HERS), ("bob", HIS, THEIRS)])
async def test_who_sees_a_namespace_is_told_of_its_jobs(shared: Path, user: str, word: str, namespace: str) -> None:
    async with guarded(shared, RIGHTS) as (page, _):
        overview = (await page.get("api/overview?session=8", Authorization=f"Bearer {user}"))[1]
        assert [job["key"] for job in overview["jobs"]] == [
            f"{namespace}/{word}-{name}" for name in ("big", "high", "low", "owed")
        ]
        assert (overview["queues"], overview["nodes"], overview["pods"]) == ([], [], {})
        job = await page.get(f"api/job?key={namespace}/{word}-big", Authorization=f"Bearer {user}")
        assert (job[0], job[1]["lines"][0]) == (200, [0, f"job {namespace}/{word}-big in queue left"])
        assert job[1]["answer"][0].startswith(f"{namespace}/{word}-big  ")
        told = await page.get("api/session?number=8", Authorization=f"Bearer {user}")
        assert any(f"{namespace}/{word}-big waits" in text for _, text in told[1]["lines"])


async def test_of_an_eviction_the_pod_is_told_and_not_for_whom(shared: Path) -> None:
    async with guarded(shared, RIGHTS) as (page, _):
        lines = (await page.get("api/session?number=4", Authorization="Bearer ann"))[1]["lines"]
        words = [text for _, text in lines]
        assert any(
            text.startswith("preempt for a job of another namespace: evict aurora/aurora-low-") for text in words
        )
        lines = (await page.get(f"api/job?key={HERS}/{HERS}-low&session=5", Authorization="Bearer ann"))[1]["lines"]
        assert any("evicted aurora-low-" in text and "for another namespace's" in text for _, text in lines)


async def verdict_of(page: Asker, user: str, job: str, session: int) -> str:
    """Why a job waits or waited, as its answer has it."""
    _, body, _ = await page.get(f"api/job?key={job}&session={session}", Authorization=f"Bearer {user}")
    return str(body["answer"][1].partition("  ")[2].strip())


async def test_a_cause_is_told_without_the_job_that_it_is_about(shared: Path) -> None:
    async with guarded(shared, RIGHTS) as (page, _):
        for job, session in ((f"{HERS}/{HERS}-high", 6), (f"{THEIRS}/{HIS}-high", 4)):
            user, other = ("ann", HIS) if job.startswith(HERS) else ("bob", HERS)
            assert other in await verdict_of(page, "root", job, session)
            assert await verdict_of(page, user, job, session) == (
                "Capacity is being freed for it: 1 pod of a job of another namespace terminating."
            )
            assert other in await verdict_of(page, "ops", job, session)


async def test_who_went_first_is_not_told_nor_why(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "ahead.log", CONF.replace("  - name: proportion\n", "")) as made:
        await made.show(dsl.node("n1", cpu=8), dsl.queue("root"), dsl.queue("left"), dsl.priority_class("urgent", 10))
        await made.show(gang(THEIRS, "first", 1, cpu=8, queue="left", group_spec={"priorityClassName": "urgent"}))
        await made.show(gang(HERS, "second", 1, cpu=8, queue="left"))
        await made.cycle(seconds=60)
    async with guarded(tmp_path / "ahead.log", RIGHTS) as (page, _):
        job = f"{HERS}/{HERS}-second"
        whole, part = await verdict_of(page, "root", job, 1), await verdict_of(page, "ann", job, 1)
        assert HIS in whole and "higher priority (10 against 0), says priority" in whole
        assert part.endswith("hat it needs went to a job of another namespace first.")


async def test_what_a_reason_says_is_told_without_names_of_others(tmp_path: Path) -> None:
    """Reasons are anybody's words, as an extender's are."""

    def forge(plan: ev.Plan) -> ev.Plan:
        words = f"3/5 cards of {THEIRS}/{HIS}-first are taken, by kubernetes.io/hostname; {HERS}/{HERS}-other has none"
        waiting = ev.Waiting(f"{HERS}/{HERS}-second", "queue", "extender", words)
        return msgspec.structs.replace(plan, waiting=(waiting,))

    told = "3/5 cards of another namespace's are taken, by kubernetes.io/hostname; aurora/aurora-other has none"
    async with scheduler(tmp_path / "words.log", CONF) as made:
        await made.show(dsl.node("n1", cpu=8), dsl.queue("root"), dsl.queue("left"))
        await made.show(gang(HERS, "second", 1, cpu=9, queue="left"))
        await made.cycle(forge=forge)
    async with guarded(tmp_path / "words.log", RIGHTS) as (page, _):
        for query in ("overview", "session", f"job?key={HERS}/{HERS}-second"):
            whole = (await page.get(f"api/{query}", Authorization="Bearer root"))[1]
            part = (await page.get(f"api/{query}", Authorization="Bearer ann"))[1]
            assert f"{THEIRS}/{HIS}-first" in json.dumps(whole)
            assert told in json.dumps(part)


async def test_what_others_do_is_not_in_a_session_without_their_names_either(shared: Path) -> None:
    async with guarded(shared, RIGHTS) as (page, _):
        for number in range(1, LAST + 1):
            answer = await page.get(f"api/session?number={number}", Authorization="Bearer ann")
            for _, text in answer[1]["lines"]:
                own = HERS in text or "another namespace" not in text
                assert own, text


async def test_a_session_counts_what_one_may_see(shared: Path) -> None:
    async with guarded(shared, RIGHTS) as (page, _):
        lines = {
            user: (await page.get("api/sessions", Authorization=f"Bearer {user}"))[1]
            for user in ("root", "ops", "ann", "bob", "eve")
        }
        assert lines["root"] == lines["ops"]
        for whole, ann, bob, eve in zip(*(lines[user] for user in ("root", "ann", "bob", "eve")), strict=True):
            assert [one[:2] for one in (ann, bob, eve)] == [whole[:2]] * 3
            assert [mine + his for mine, his in zip(ann[2:8], bob[2:8], strict=True)] == whole[2:8]
            assert eve[2:8] == [0] * 6
        assert any(sum(line[2:8]) for line in lines["ann"]) and any(sum(line[2:8]) for line in lines["bob"])


async def test_who_may_see_everything_in_the_cluster_sees_what_a_reader_of_the_page_sees(
    shared: Path, whole: dict[str, tuple[int, str]]
) -> None:
    async with guarded(shared, RIGHTS) as (page, roles):
        ops = await answers(page, "ops")
        told_alike = {query for query, (status, _) in whole.items() if status == 200 and query[0] != "o"}
        assert {query for query in told_alike if ops[query] != whole[query]} <= {q for q in whole if q[:7] == "session"}
        assert ops["overview?session=8"] == whole["overview?session=8"]
        assert {access for user, access in roles.asked if user == "ops" and " in namespace " in access} == {
            f"get {GROUPS} in namespace {namespace}" for namespace in (HERS, THEIRS)
        }


# --- right by right ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("right", "part", "left_out"),
    [
        ("get queues.scheduling.volcano.sh", "queues", ["jobs of other namespaces", "nodes"]),
        ("get nodes", "nodes", ["jobs of other namespaces", "queues"]),
        (ALL, "jobs", ["queues", "nodes"]),
    ],
)
async def test_each_right_shows_its_part_of_an_overview(
    shared: Path, right: str, part: str, left_out: list[str]
) -> None:
    async with guarded(shared, {"eve": [right]}) as (page, _):
        overview = (await page.get("api/overview", Authorization="Bearer eve"))[1]
        assert [name for name in ("queues", "nodes", "jobs", "pods") if overview[name]] == [part]
        assert [text.removeprefix("left out: ").partition(" (it takes")[0] for text in overview["withheld"]] == left_out


async def test_a_job_takes_the_right_to_get_it_in_its_namespace(shared: Path) -> None:
    async with guarded(shared, RIGHTS) as (page, _):
        for question in ("job", "eta"):
            for key in (f"{HERS}/{HERS}-big", f"{HERS}/nothing", "nowhere/nothing"):
                status, sentence = await page.error(f"api/{question}?key={key}", Authorization="Bearer eve")
                namespace = key.partition("/")[0]
                assert (status, sentence) == (
                    403,
                    f"eve may not see jobs of namespace {namespace}: it takes get {GROUPS} in namespace {namespace},"
                    " or get on the nonResourceURL /vcd/page",
                )


async def test_what_can_be_no_namespace_is_not_asked_about(shared: Path) -> None:
    async with guarded(shared, RIGHTS) as (page, roles):
        for namespace in ("*", "A", "a.b", "-a", "x" * 64, "%0a", "a%20"):
            status, sentence = await page.error(f"api/job?key={namespace}/x", Authorization="Bearer eve")
            assert (status, sentence.partition(" can be")[2]) == (403, " no namespace, so eve may see nothing of it")
        assert roles.asked == [("eve", "get on the nonResourceURL /vcd/page")]


async def test_of_a_job_that_is_not_there_no_other_is_named(shared: Path) -> None:
    rights = {"ann": RIGHTS["ann"]}
    async with guarded(shared, rights) as (page, _):
        status, sentence = await page.error(f"api/job?key={HERS}/{HIS}-bi", Authorization="Bearer ann")
        assert (status, sentence) == (
            404,
            f"no job {HERS}/{HIS}-bi is in the log, or it is not one alone",
        )


# --- reviews ----------------------------------------------------------------------------------------------------------


async def test_rights_are_reviewed_once_a_minute_and_a_no_every_ten_seconds(shared: Path) -> None:
    clock = [1000.0]
    async with guarded(shared, RIGHTS, now=lambda: clock[0]) as (page, roles):
        for _ in range(3):
            await page.get("api/overview", Authorization="Bearer ann")
        first = list(roles.asked)
        assert len(first) == len(set(first))
        assert ("ann", f"list {GROUPS} in namespace {THEIRS}") in first
        clock[0] += REFUSED_SECONDS
        await page.get("api/overview", Authorization="Bearer ann")
        again = roles.asked[len(first) :]
        assert ("ann", f"list {GROUPS} in namespace {THEIRS}") in again
        assert ("ann", f"list {GROUPS} in namespace {HERS}") not in again


async def test_a_right_that_is_given_shows_within_ten_seconds(shared: Path) -> None:
    clock = [1000.0]
    async with guarded(shared, {"eve": []}, now=lambda: clock[0]) as (page, roles):
        assert (await page.get("api/overview", Authorization="Bearer eve"))[0] == 403
        roles.rights["eve"] = [f"list {GROUPS} in namespace {HERS}"]
        clock[0] += REFUSED_SECONDS
        assert (await page.get("api/overview", Authorization="Bearer eve"))[0] == 200


async def test_who_guesses_namespaces_is_put_off_and_nobody_else(shared: Path) -> None:
    async with guarded(shared, RIGHTS, now=lambda: 1000.0) as (page, roles):
        told = [
            (await page.get(f"api/job?key=guess-{number}/x", Authorization="Bearer eve"))[0]
            for number in range(2 * MOST_A_SECOND)
        ]
        assert set(told) == {403, 429}
        assert len(roles.asked) <= MOST_A_SECOND
        assert (await page.get("api/overview", Authorization="Bearer ann"))[0] == 200


async def test_what_a_failure_says_is_for_who_sees_everything(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(*_: object, **__: object) -> None:
        raise RuntimeError(f"{THEIRS}/{HIS}-low is odd")

    async with guarded(shared, RIGHTS) as (page, _):
        monkeypatch.setattr(page.view._worker, "ask", fails)
        told = {user: await page.error("api/overview", Authorization=f"Bearer {user}") for user in ("root", "ann")}
    assert told["root"] == (500, f"the query failed with RuntimeError: {THEIRS}/{HIS}-low is odd")
    assert told["ann"] == (500, "the query failed; the program's log has the error")


async def test_rights_that_cannot_be_asked_about_let_nobody_see_anything(shared: Path) -> None:
    async with guarded(shared, RIGHTS) as (page, roles):
        await page.get("api/head", Authorization="Bearer ann")
        roles.fails = True
        status, sentence = await page.error("api/overview", Authorization="Bearer ann")
        assert (status, sentence) == (503, "the API server did not answer about what you may do")
