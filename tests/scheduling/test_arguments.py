"""Typed arguments: what each kind takes, what it refuses, and how keys find their declarations."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcd.model.wording import did_you_mean
from vcd.scheduling.framework.arguments import (
    Argument,
    ArgumentError,
    Kind,
    format_duration,
    parse_arguments,
    parse_duration,
)

SECOND = 10**9

BINPACK = (
    Argument("binpack.weight", "int", 1, "weight of the plugin's score", minimum=0),
    Argument("binpack.resources", "strings", (), "resources beside cpu and memory"),
    Argument("binpack.resources.<resource>", "int", 1, "weight of a resource", minimum=0),
)


def read(kind: Kind, value: object, **limits: Any) -> Any:
    return parse_arguments([Argument("key", kind, None, "", **limits)], {"key": value})["key"]


@pytest.mark.parametrize(
    ("kind", "written", "value"),
    [
        ("int", 10, 10),
        ("int", -3, -3),
        ("int", "10", 10),
        ("int", " +7 ", 7),
        ("float", 1.2, 1.2),
        ("float", 2, 2.0),
        ("float", "1e3", 1000.0),
        ("bool", True, True),
        ("bool", "T", True),
        ("bool", "0", False),
        ("str", "a, b", "a, b"),
        ("strings", "a, nvidia.com/gpu ,", ("a", "nvidia.com/gpu")),
        ("strings", ["a", " b"], ("a", "b")),
        ("strings", "", ()),
        ("duration", "1h2m3s4ms5us", 3723 * SECOND + 4_005_000),
        ("duration", "0", 0),
        ("duration", 0, 0),
        ("mapping", {"cpu": 80}, {"cpu": 80}),
        ("list", [{"utilization": 0, "score": 1}], ({"utilization": 0, "score": 1},)),
    ],
)
def test_value_is_read_as_its_kind(kind: Kind, written: object, value: object) -> None:
    result = read(kind, written)
    assert (result, type(result) is bool) == (value, type(value) is bool)


@pytest.mark.parametrize(
    ("kind", "written"),
    [
        ("int", 1.0),
        ("int", True),
        ("int", "ten"),
        ("int", "1_0"),
        ("int", 2**63),
        ("float", "fast"),
        ("float", True),
        ("float", float("inf")),
        ("float", 10**400),
        ("bool", 1),
        ("bool", "yes"),
        ("str", 5),
        ("strings", ["a", 1]),
        ("strings", {"a": 1}),
        ("duration", 30),
        ("duration", False),
        ("duration", "30"),
        ("mapping", [1]),
        ("list", "a"),
    ],
)
def test_value_of_another_kind_is_refused(kind: Kind, written: object) -> None:
    with pytest.raises(ArgumentError):
        read(kind, written)


def test_default_holds_where_the_key_is_absent() -> None:
    assert parse_arguments(BINPACK, {})["binpack.weight"] == 1


def test_no_arguments_at_all_is_like_empty_ones() -> None:
    assert dict(parse_arguments(BINPACK, None)) == {"binpack.weight": 1, "binpack.resources": ()}


def test_value_below_the_minimum_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"binpack\.weight: -1 is not an integer of at least 0"):
        parse_arguments(BINPACK, {"binpack.weight": -1})


def test_value_above_the_maximum_is_refused() -> None:
    with pytest.raises(ArgumentError, match="an integer from 1 to 100"):
        read("int", 101, minimum=1, maximum=100)


def test_bounds_are_allowed_themselves() -> None:
    assert [read("int", value, minimum=1, maximum=100) for value in (1, 100)] == [1, 100]


def test_bound_of_a_duration_is_named_with_its_unit() -> None:
    with pytest.raises(ArgumentError, match="of at least 1m30s"):
        read("duration", "3s", minimum=90 * SECOND)


def test_text_beyond_the_choices_gets_a_suggestion() -> None:
    with pytest.raises(ArgumentError, match=r"is not one of binpack, spread; did you mean spread\?"):
        read("str", "sprad", choices=("binpack", "spread"))


def test_each_of_several_texts_must_be_a_choice() -> None:
    with pytest.raises(ArgumentError, match="any of a, b"):
        read("strings", "a, c", choices=("a", "b"))


def test_error_carries_key_value_and_what_is_allowed() -> None:
    with pytest.raises(ArgumentError) as caught:
        parse_arguments(BINPACK, {"binpack.weight": "x"})
    assert (caught.value.key, caught.value.value, caught.value.allowed) == (
        "binpack.weight",
        "x",
        "an integer of at least 0",
    )


def test_unknown_key_is_a_warning_with_a_suggestion() -> None:
    values = parse_arguments(BINPACK, {"binpack.wieght": 5})
    assert values.warnings == ("binpack.wieght is not read; did you mean binpack.weight?",)


def test_unknown_key_is_no_value() -> None:
    assert "binpack.wieght" not in parse_arguments(BINPACK, {"binpack.wieght": 5})


def test_key_without_a_value_keeps_the_default() -> None:
    assert parse_arguments(BINPACK, {"binpack.weight": None})["binpack.weight"] == 1


def test_key_without_a_value_is_a_warning() -> None:
    values = parse_arguments(BINPACK, {"binpack.weight": None})
    assert values.warnings == ("binpack.weight has no value, the default holds",)


def test_dynamic_key_is_read_by_what_its_placeholder_stands_for() -> None:
    values = parse_arguments(BINPACK, {"binpack.resources.nvidia.com/gpu": 8, "binpack.resources": "nvidia.com/gpu"})
    assert values.matching("binpack.resources.<resource>") == {"nvidia.com/gpu": 8}


def test_dynamic_key_is_checked_like_a_fixed_one() -> None:
    with pytest.raises(ArgumentError, match=r"binpack\.resources\.example\.com/foo"):
        parse_arguments(BINPACK, {"binpack.resources.example.com/foo": "much"})


def test_placeholder_may_stand_in_the_middle() -> None:
    declared = (
        Argument("predicate.resources.<resource>.cpu", "float", None, ""),
        Argument("predicate.resources.<resource>.memory", "float", None, ""),
    )
    values = parse_arguments(declared, {"predicate.resources.nvidia.com/gpu.cpu": 4})
    assert values.matching("predicate.resources.<resource>.cpu") == {"nvidia.com/gpu": 4.0}


def test_placeholder_stands_for_at_least_one_character() -> None:
    assert parse_arguments(BINPACK, {"binpack.resources.": 1}).warnings


def test_of_two_patterns_the_one_that_spells_out_more_is_taken() -> None:
    declared = (Argument("a.<any>", "int", 0, ""), Argument("a.<any>.cpu", "int", 0, ""))
    values = parse_arguments(declared, {"a.b.cpu": 3})
    assert (values.matching("a.<any>"), values.matching("a.<any>.cpu")) == ({}, {"b": 3})


def test_matching_of_an_undeclared_pattern_is_an_error() -> None:
    with pytest.raises(KeyError):
        parse_arguments(BINPACK, {}).matching("binpack.<resource>")


def test_declaration_of_a_dynamic_key() -> None:
    values = parse_arguments(BINPACK, {"binpack.resources.a": 8})
    assert values.declaration("binpack.resources.a") is BINPACK[2]


def test_declaration_of_an_unknown_key_is_an_error() -> None:
    with pytest.raises(KeyError):
        parse_arguments(BINPACK, {}).declaration("other")


def test_given_names_the_keys_of_the_file() -> None:
    assert parse_arguments(BINPACK, {"binpack.weight": 1, "other": 2}).given == {"binpack.weight"}


def test_argument_of_an_unknown_kind_cannot_be_declared() -> None:
    with pytest.raises(ValueError, match="no such kind: number"):
        Argument("key", "number", 0, "")  # type: ignore[arg-type]


def test_argument_with_two_placeholders_cannot_be_declared() -> None:
    with pytest.raises(ValueError, match="at most one placeholder"):
        Argument("a.<one>.<two>", "int", 0, "")


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("1.5h", 5400 * SECOND),
        ("-2m", -120 * SECOND),
        ("+1s", SECOND),
        (".5s", SECOND // 2),
        ("1.s", SECOND),
        ("3µs", 3000),
        ("3μs", 3000),
        ("0.9ns", 0),
        ("1m1m", 120 * SECOND),
        ("2562047h47m16.854775807s", 2**63 - 1),
    ],
)
def test_duration_is_read_as_go_reads_it(text: str, nanoseconds: int) -> None:
    assert parse_duration(text) == nanoseconds


@pytest.mark.parametrize("text", ["", "-", "1", "s", ".s", "1d", "1h 2m", "1hm", "1e3s", "2562047h47m16.854775808s"])
def test_duration_that_go_refuses_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)


@given(st.integers(-(2**63) + 1, 2**63 - 1))
def test_written_duration_reads_back(nanoseconds: int) -> None:
    assert parse_duration(format_duration(nanoseconds)) == nanoseconds


def test_suggestion_ignores_case() -> None:
    assert did_you_mean("ALLOCATE", ["allocate", "backfill"]) == "; did you mean allocate?"


def test_no_suggestion_where_nothing_is_near() -> None:
    assert did_you_mean("xyz", ["allocate"]) == ""
