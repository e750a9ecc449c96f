"""Whoever says no says so by a code that it declared: no reason is made of a text, and none is of no cause."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from vcd.diagnosis.job_diagnosis import OF_THE_CASE
from vcd.model.events import Plan, Waiting, decode_plan, encode_plan
from vcd.model.reasons import CODES, Amount, Cause, InvalidReason, Reason, ReasonCode, well_formed
from vcd.model.resource_requests import LARGEST_SUM
from vcd.scheduling.framework import registry

HOUSE = Path(__file__).parents[2] / "vcd"


@cache
def written() -> str:
    """The source of the house."""
    return "\n".join(path.read_text() for path in sorted(HOUSE.rglob("*.py")))


def declared() -> list[ReasonCode]:
    """The codes of the house; plugins that other tests brought along may have declared some of theirs."""
    dict(registry.plugins()), dict(registry.actions())
    return [code for code in CODES.values() if f'"{code.name}"' in written()]


def test_every_code_is_named_as_its_kind_is_written() -> None:
    assert [code.name for code in declared() if not re.fullmatch(r"[a-z]+(-[a-z]+)*", code.name)] == []
    assert len(declared()) > 80


def test_every_code_of_ours_has_a_cause_of_its_own() -> None:
    """A plugin that rejects without a word, or fails, is a cause of its own."""
    assert [code.name for code in declared() if code.cause is Cause.PLUGIN] == ["rejected", "plugin-failed"]


def test_every_cause_is_one_that_somebody_gives() -> None:
    assert set(Cause) == {code.cause for code in declared()} | set(OF_THE_CASE)


def test_reasons_are_made_by_their_codes() -> None:
    makers = {path.relative_to(HOUSE).as_posix() for path in HOUSE.rglob("*.py") if makes_a_reason(path.read_text())}
    assert makers == {"model/reasons.py"}


def makes_a_reason(source: str) -> bool:
    """Whether a module calls ``Reason`` by its name."""
    return "Reason(" in source and any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Reason"
        for node in ast.walk(ast.parse(source))
    )


def test_a_code_is_one_kind_of_reason() -> None:
    """A module that is imported again declares the same again."""
    for _ in range(2):
        ReasonCode("test once", Cause.NODE_ROOM, "{what}")
    with pytest.raises(ValueError, match="the reason test once is declared twice"):
        ReasonCode("test once", Cause.NODE_ROOM, "{what}", mend="otherwise")


def test_a_sum_beyond_what_can_be_logged_is_the_largest() -> None:
    reason = SHORT({"queue": "q"}, [("asks", "cpu", 2**80), ("limit", "cpu", 1)])
    plan = Plan(waiting=(Waiting("ns/g", "queue", "", reason),))
    assert decode_plan(encode_plan(plan)).waiting[0].reason == reason
    assert reason.by_resource() == {"cpu": {"asks": LARGEST_SUM, "limit": 1}}


@pytest.mark.parametrize("words", ["{}", "{0}", "{a.b}", "{a[0]}", "{a", "a}", "{a b}"])
def test_braces_name_roles(words: str) -> None:
    with pytest.raises(ValueError):
        ReasonCode("test braces", Cause.PLUGIN, words)
    assert "test braces" not in CODES


@pytest.mark.parametrize("amounts", [[], [("asks", "cpu", 1000)]])
def test_what_another_version_does_not_tell_is_left_open(amounts: list[Amount]) -> None:
    assert SHORT({"queue": "q"}, amounts).words == ("<q> lacks cpu: 1 of ?" if amounts else "<q> lacks ?: ? of ?")


SHORT = ReasonCode("test short", Cause.NODE_ROOM, "<{queue}> lacks {resource}: {asks} of {limit}")


def test_a_sentence_is_said_of_each_resource() -> None:
    amounts = [("asks", "cpu", 1500), ("limit", "cpu", 1000), ("asks", "memory", 2**31), ("limit", "memory", 2**30)]
    reason = SHORT({"queue": "q", "or": "wait"}, [*amounts, ("others", "cpu", 3000)])
    assert reason.words == "<q> lacks cpu: 1500m of 1; <q> lacks memory: 2Gi of 1Gi"
    assert reason.detail == {"or": "wait", "others cpu": "3"}


def test_what_the_words_do_not_hold_is_told_beside_them() -> None:
    counts = [("have", "", 2), ("min", "", 4)]
    short = next(code for code in declared() if code.name == "gang-short")
    reason = short({"policy": "p"}, counts)
    assert (reason.words, reason.detail) == ("fewer tasks than the minimum", {"policy": "p", "have": "2", "min": "4"})


def test_names_may_hold_braces() -> None:
    assert (
        SHORT({"queue": "{x}", "resource": "r", "asks": "1", "limit": "{asks}"}).words == "<{x}> lacks r: 1 of {asks}"
    )


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        (Reason("nobody's"), "a declared code"),
        (Reason(3), "Expected `str`, got `int`"),  # type: ignore[arg-type]
        (Reason("test short", {"a": "b"}), "Expected `array`, got `object`"),  # type: ignore[arg-type]
        (Reason("test short", (("a", 1),)), "Expected `str`, got `int`"),  # type: ignore[arg-type]
        (Reason("test short", (("a",),)), "Expected `array` of length 2"),  # type: ignore[arg-type]
        (Reason("test short", (), (("asks", "cpu", 1.5),)), "Expected `int`, got `float`"),  # type: ignore[arg-type]
        (Reason("test short", (), (("asks", "cpu", object()),)), "unsupported"),  # type: ignore[arg-type]
        (Reason("test short", (), (("asks", "cpu", 2**64),)), "can't serialize ints"),
        (Reason("test short", (("a", "\ud800"),)), "surrogates not allowed"),
    ],
)
def test_what_is_no_reason_is_told(reason: Reason, told: str) -> None:
    with pytest.raises(InvalidReason, match=told):
        well_formed(reason)
