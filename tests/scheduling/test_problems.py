"""What plugins find misconfigured: asked after the session, of ours and of others; nothing is decided by it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import MappingProxyType
from typing import Any

import pytest

from tests.dsl import NOW_NS, flat, node, pod, queue
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.decide import run
from vcd.scheduling.framework import execution, guard, registry
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.session.object_problems import Problem
from vcd.scheduling.session.session import Session
from vcd.state.snapshot import SnapshotMaker
from vcd.timetravel.planning import state_of

CONF = "actions: allocate\ntiers:\n- plugins:\n  - name: gang\n  - name: capacity\n  - name: odd\n"
PROBLEM = Problem("Queue", "q", "spec.weight 0: give it at least 1")

Offer = Callable[[Callable[[Any], Any]], None]


@pytest.fixture
def offer(monkeypatch: pytest.MonkeyPatch) -> Offer:
    """Have a plugin named odd, with this method, beside ours."""
    known = dict(registry.plugins())

    def offered(problems: Callable[[Any], Any]) -> None:
        kind = type("Odd", (Plugin,), {"name": "odd", "__module__": __name__, "problems": problems})
        monkeypatch.setattr(registry, "plugins", lambda: MappingProxyType({**known, "odd": kind}))

    return offered


def asked(*objects: Any, watch: guard.Watch | None = None) -> Session:
    """A session after its end, its plugins asked."""
    snapshot = SnapshotMaker(state_of(flat([node("n"), pod("p", cpu=1), *objects]))).snapshot()
    session = run(snapshot, read_policy(CONF), NOW_NS, 0)
    execution.take_problems(framework_of(session), registry.kinds(), watch)
    return session


def test_a_plugin_that_says_nothing_has_none(offer: Offer) -> None:
    offer(lambda self: ())
    assert asked().problems == {"gang": (), "capacity": (), "odd": ()}


def test_what_ours_find_is_kept_by_plugin(offer: Offer) -> None:
    offer(lambda self: ())
    session = asked(queue("q", capability={"cpu": "1"}, deserved={"cpu": "2"}))
    found = session.problems["capacity"]
    assert isinstance(found, tuple)
    assert [(problem.kind, problem.key) for problem in found] == [("Queue", "q")]


def test_what_others_find_is_kept_too(offer: Offer) -> None:
    def problems(self: Any) -> Iterator[Problem]:
        yield PROBLEM

    offer(problems)
    assert asked().problems["odd"] == (PROBLEM,)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (None, "an iterable"),
        (["text"], "Problems"),
        ([("Queue", "q", "text")], "Problems"),
        ([Problem("Queue", "q", 3)], "Problems"),  # type: ignore[arg-type]
        ([Problem("Queue", None, "text")], "Problems"),  # type: ignore[arg-type]
        ([Problem("Kueue", "q", "text")], "the kind of a Problem"),
    ],
)
def test_nonsense_is_told_in_the_problems_place(offer: Offer, answer: Any, expected: str) -> None:
    offer(lambda self: answer)
    found = asked().problems["odd"]
    assert isinstance(found, guard.InvalidAnswer)
    assert f"odd, asked at problems: expected {expected}" in str(found)


def test_who_raises_stops_nobody_else(offer: Offer) -> None:
    def problems(self: Any) -> Iterable[Problem]:
        raise RuntimeError("no")

    offer(problems)
    session = asked()
    assert repr(session.problems["odd"]) == "RuntimeError('no')"
    assert session.problems["capacity"] == ()
    assert session.faults == ()
    assert session.trial.statements


def test_who_takes_too_long_ends_the_session(offer: Offer) -> None:
    class Impatient:
        def enter(self, name: str, point: str) -> int:
            assert (name, point) == ("odd", "problems")
            return 0

        def leave(self, depth: int) -> None:
            raise guard.Interrupted

    offer(lambda self: ())
    with pytest.raises(guard.Interrupted):
        asked(watch=Impatient())
