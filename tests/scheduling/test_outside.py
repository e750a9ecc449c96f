"""The port to the world outside: questions, their record, and answers from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest

from tests.dsl import BARE, NOW_NS, flat, gang, node
from tests.reasons import because
from vcd.model import events as ev
from vcd.model.reasons import Reason
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.decide import decide, run
from vcd.scheduling.framework import registry
from vcd.scheduling.framework.declared_reasons import told
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.session.outside import (
    NOBODY,
    NOT_ASKED,
    OUT_OF_TIME,
    OneByOne,
    Question,
    Recorded,
    Recorder,
    Remembered,
    Reply,
    without_secrets,
    without_user_info,
)
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job
from vcd.state.snapshot import SnapshotMaker
from vcd.timetravel.planning import state_of

QUESTION = Question("extender", "http://server/predicate", b"{}", 1_000_000_000, 10)


def question(text: str) -> Question:
    return msgspec.structs.replace(QUESTION, body=text.encode())


class Oracle(OneByOne):
    """Answers in turn."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies)
        self.questions: list[Question] = []

    def ask(self, question: Question) -> Reply:
        self.questions.append(question)
        return self.replies.pop(0)


def recorded(*texts: str) -> tuple[ev.Asked, ...]:
    """The record of a session that asked texts and got them back with a mark."""
    recorder = Recorder(Oracle(*(Reply(f"{text}!".encode()) for text in texts)))
    for text in texts:
        recorder.ask(question(text))
    return recorder.asked


# --- questions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [{"plugin": "usage"}, {"url": "http://server/other"}, {"body": b"{ }"}, {"timeout": 1}, {"limit": 11}],
    ids=lambda changes: next(iter(changes)),
)
def test_every_part_of_a_question_identifies_it(changes: dict[str, Any]) -> None:
    assert msgspec.structs.replace(QUESTION, **changes).digest() != QUESTION.digest()


def test_the_digest_holds_nothing_of_user_and_password() -> None:
    secret = msgspec.structs.replace(QUESTION, url="http://me:secret@server/predicate")
    assert secret.digest() == QUESTION.digest()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://me:secret@server:80/a?b", "http://server:80/a?b"),
        ("https://token@server", "https://server"),
        ("https://me:p@ss@server/x", "https://server/x"),
        ("me:secret@server/x", "server/x"),
        ("http://server/a@b?c=d@e", "http://server/a@b?c=d@e"),
        ("http://server", "http://server"),
        ("", ""),
    ],
)
def test_urls_lose_their_user_info(url: str, shown: str) -> None:
    assert without_user_info(url) == shown


def test_where_nobody_is_there_every_answer_is_an_error() -> None:
    assert NOBODY.ask(QUESTION) == Reply(error="nobody to ask")


# --- records ----------------------------------------------------------------------------------------------------------


def test_a_recorder_passes_on_and_keeps_questions_and_answers_in_order() -> None:
    oracle = Oracle(Reply(b"yes"), Reply(error="no answer within 1s"))
    recorder = Recorder(oracle)
    replies = [recorder.ask(question("a")), recorder.ask(question("b"))]
    assert replies == [Reply(b"yes"), Reply(error="no answer within 1s")]
    assert oracle.questions == [question("a"), question("b")]
    assert recorder.asked == (
        ev.Asked(question("a").digest(), b"yes"),
        ev.Asked(question("b").digest(), error="no answer within 1s"),
    )


def test_a_session_that_is_decided_again_asks_again() -> None:
    recorder = Recorder(Oracle(Reply(b"1"), Reply(b"2")))
    recorder.ask(question("a"))
    recorder.restart()
    recorder.ask(question("b"))
    assert recorder.asked == (ev.Asked(question("b").digest(), b"2"),)


def test_a_record_answers_the_questions_that_were_asked_then() -> None:
    outside = Recorded(recorded("a", "b", "a"))
    assert [outside.ask(question(text)).body for text in "aba"] == [b"a!", b"b!", b"a!"]
    assert outside.departure() is None


def test_a_question_out_of_order_was_not_asked_then() -> None:
    outside = Recorded(recorded("a", "b"))
    assert [outside.ask(question(text)).error for text in "ba"] == [NOT_ASKED, NOT_ASKED]
    departure = outside.departure()
    assert departure is not None
    where, then, now = departure
    assert where == "question 0 to the world outside"
    assert then == f"{question('a').digest().hex()}, answered with 2 bytes"
    assert now == f"one of extender, {question('b').digest().hex()}"


def test_a_question_too_many_was_not_asked_then() -> None:
    outside = Recorded(recorded("a"))
    assert [outside.ask(question("a")), outside.ask(question("a"))] == [Reply(b"a!"), Reply(error=NOT_ASKED)]
    departure = outside.departure()
    assert departure is not None
    assert departure[:2] == ("question 1 to the world outside", "none")


def test_a_question_too_few_shows() -> None:
    outside = Recorded((*recorded("a"), ev.Asked(b"\x01", error="HTTP 500")))
    outside.ask(question("a"))
    assert outside.departure() == ("question 1 to the world outside", "01, HTTP 500", "none")


def test_who_looks_closer_may_ask_in_any_order_and_again() -> None:
    outside = Remembered((*recorded("a", "b"), ev.Asked(question("a").digest(), b"later")))
    answers = [outside.ask(question(text)) for text in "babaac"]
    assert [reply.body for reply in answers] == [b"b!", b"a!", b"b!", b"later", b"later", b""]
    assert answers[-1].error == NOT_ASKED


# --- sessions ---------------------------------------------------------------------------------------------------------


class Inquirer(Plugin):
    """Asks whether each job is valid."""

    name = "inquirer"

    def open(self, session: Session) -> None:
        self._session = session

    def job_valid(self, job: Job) -> Reason | None:
        reply = self._session.outside.ask(question(job.key))
        return because(reply.error) if reply.error else None


@pytest.fixture
def inquirer(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    known = {**registry.plugins(), "inquirer": Inquirer}
    monkeypatch.setattr(registry, "plugins", lambda: known)
    yield


CONF = BARE + "  - name: inquirer\n"


def bound(plan: ev.Plan) -> list[str]:
    return [op.key for statement in plan.statements for op in statement.operations]


@pytest.mark.usefixtures("inquirer")
def test_a_plugin_asks_through_the_session() -> None:
    snapshot = SnapshotMaker(state_of(flat([node("n"), gang("a", 1, cpu=1), gang("b", 1, cpu=1)]))).snapshot()
    recorder = Recorder(Oracle(Reply(b"{}"), Reply(error="HTTP 500")))
    plan = decide(snapshot, read_policy(CONF), NOW_NS, 0, outside=recorder)
    assert bound(plan) == ["default/a-0"]
    again = decide(snapshot, read_policy(CONF), NOW_NS, 0, outside=Recorded(recorder.asked))
    assert ev.encode_plan(again) == ev.encode_plan(plan)


@pytest.mark.usefixtures("inquirer")
def test_without_an_outside_there_is_nobody_to_ask() -> None:
    snapshot = SnapshotMaker(state_of(flat([node("n"), gang("a", 1, cpu=1)]))).snapshot()
    session = run(snapshot, read_policy(CONF), NOW_NS, 0)
    first = told(session.job(0).why[0])
    assert (first.gate, first.plugin, first.reason) == ("invalid", "inquirer", "nobody to ask")


def test_rows_of_sessions_that_asked_nothing_are_as_they_were() -> None:
    row = ev.SessionDecided(1, 2, "p", 3, 4, 5, {}, b"")
    assert b"asked" not in ev.encode_event(row)
    asked = ev.SessionDecided(1, 2, "p", 3, 4, 5, {}, b"", asked=recorded("a"))
    assert ev.decode_event(ev.encode_event(asked)) == asked


# --- configurations ---------------------------------------------------------------------------------------------------

SECRETIVE = """\
actions: allocate
tiers:
- plugins:
  - name: extender
    arguments: {extender.urlPrefix: "https://me:s3cret@server/x", extender.predicateVerb: predicate}
metrics:
  address: http://you:s3cret@elastic:9200
  elasticsearch.username: you
  elasticsearch.password: my s3cret  # not for the log
"""


def test_a_configuration_loses_its_passwords_and_nothing_else() -> None:
    text = without_secrets(SECRETIVE)
    assert "s3cret" not in text
    policy = read_policy(text)
    ((option,),) = policy.tiers
    assert option.arguments == {"extender.urlPrefix": "https://server/x", "extender.predicateVerb": "predicate"}
    assert policy.metrics == {
        "address": "http://elastic:9200",
        "elasticsearch.username": "you",
        "elasticsearch.password": "(not logged)",
    }


@pytest.mark.parametrize(
    "line",
    [
        "metrics: {type: elasticsearch, address: 'http://e:9200', elasticsearch.password: s3cret, interval: 5s}",
        "metrics: {'elasticsearch.password': 's3cret'}",
        'metrics:\n  "elasticsearch.password": "s3cret"',
    ],
)
def test_passwords_are_found_however_they_are_written(line: str) -> None:
    text = without_secrets(BARE + line + "\n")
    assert "s3cret" not in text
    assert read_policy(text).metrics["elasticsearch.password"] == "(not logged)"


def test_a_configuration_without_passwords_stays_as_it_is() -> None:
    text = BARE + "metrics:\n  address: http://server/a@b\n  elasticsearch.password:\n"
    assert without_secrets(text) == text


# --- many questions, and the time that they take ----------------------------------------------------------------------

OUT = Reply(error=OUT_OF_TIME)


class Slow(Oracle):
    """Answers in turn, each answer taking so long by its own clock."""

    def __init__(self, takes: int, *replies: Reply) -> None:
        super().__init__(*replies)
        self.takes = takes
        self.now = 0

    def ask(self, question: Question) -> Reply:
        self.now += self.takes
        return super().ask(question)


def answers(*texts: str) -> list[Reply]:
    return [Reply(text.encode()) for text in texts]


def test_many_questions_are_recorded_in_their_order_and_answered_from_there() -> None:
    recorder = Recorder(Oracle(*answers("x", "y", "z")))
    asked = [question(text) for text in "abc"]
    assert recorder.ask_all(asked, 10) == answers("x", "y", "z")
    record = Recorded(recorder.asked)
    assert record.ask_all(asked, 1) == answers("x", "y", "z")
    assert record.departure() is None


def test_once_its_time_is_used_up_nobody_is_asked_any_more() -> None:
    server = Slow(3, *answers("x", "y"))
    recorder = Recorder(server, lambda: server.now)
    assert recorder.ask_all([question("a"), question("b")], 5) == answers("x", "y")
    assert recorder.ask_all([question("c"), question("d")], 5) == [OUT, OUT]
    assert len(server.questions) == 2


def test_the_time_of_a_session_is_each_plugins_own() -> None:
    server = Slow(9, *answers("x", "y"))
    recorder = Recorder(server, lambda: server.now)
    recorder.ask_all([question("a")], 5)
    other = msgspec.structs.replace(question("b"), plugin="another")
    assert recorder.ask_all([other], 5) == answers("y")


def test_an_interrupted_session_does_not_get_its_time_back() -> None:
    server = Slow(9, *answers("x"))
    recorder = Recorder(server, lambda: server.now)
    recorder.ask_all([question("a")], 5)
    recorder.restart()
    assert recorder.ask_all([question("a")], 5) == [OUT]


class Ragged(Oracle):
    """Gives all replies at once, whatever their order."""

    def ask_all(self, questions: Sequence[Question], within: int) -> list[Reply]:
        return self.replies


@pytest.mark.parametrize("came", [[Reply(b"x"), OUT, Reply(b"z")], [Reply(b"x"), OUT, OUT]])
def test_what_came_after_the_first_that_was_out_of_time_does_not_count(came: list[Reply]) -> None:
    """So one entry stands for all of them, whichever of several parallel questions was answered last."""
    recorder = Recorder(Ragged(*came))
    asked = [question(text) for text in "abc"]
    assert recorder.ask_all(asked, 5) == [Reply(b"x"), OUT, OUT]
    assert [one.error for one in recorder.asked] == ["", OUT_OF_TIME]
    for again in (Recorded(recorder.asked), Remembered(recorder.asked)):
        assert again.ask_all(asked, 5) == [Reply(b"x"), OUT, OUT]
