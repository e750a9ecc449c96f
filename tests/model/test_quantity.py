"""Quantities; the tables' figures are what apimachinery 0.36 answers for the same texts."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcd.model.quantity import (
    INT64_MAX,
    QuantityError,
    format_milli,
    format_resource,
    format_units,
    is_scalar_resource,
    parse_milli,
    parse_units,
    resource_value,
)

AMOUNTS = st.integers(0, INT64_MAX)
POWERS = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
SUFFIXES: dict[str, Fraction] = {
    **{suffix: Fraction(10) ** power for suffix, power in POWERS.items()},
    **{f"{letter}i": Fraction(1024**power) for power, letter in enumerate("KMGTPE", start=1)},
    **{f"{e}{power}": Fraction(10) ** int(power) for e in "eE" for power in ("-12", "-03", "0", "+2", "7", "18")},
}


@pytest.mark.parametrize(
    ("text", "milli", "units"),
    [
        ("0", 0, 0),
        ("2", 2000, 2),
        ("100m", 100, 1),
        ("1500m", 1500, 2),
        ("0.5", 500, 1),
        (".5Gi", 536870912000, 536870912),
        ("1.Gi", 1073741824000, 1073741824),
        ("1n", 1, 1),
        ("1001u", 2, 1),
        ("1.00001Gi", 1073752561419, 1073752562),
        ("64Gi", 68719476736000, 68719476736),
        ("1.5Ki", 1536000, 1536),
        ("3k", 3000000, 3000),
        ("1E", None, 10**18),
        ("7Ei", None, 7 * 2**60),
        ("1e3", 1000000, 1000),
        ("1E+3", 1000000, 1000),
        ("1e03", 1000000, 1000),
        ("1.5e-3", 2, 1),
        ("1e-100", 1, 1),
        ("+007", 7000, 7),
        (" 4 ", 4000, 4),
        ("9223372036854775807", None, INT64_MAX),
        ("0e99999", 0, 0),
    ],
)
def test_text_is_read_as_apimachinery_reads_it(text: str, milli: int | None, units: int) -> None:
    assert parse_units(text) == units
    if milli is None:
        with pytest.raises(QuantityError, match=r"beyond int64.*milli-units"):
            parse_milli(text)
    else:
        assert parse_milli(text) == milli


@pytest.mark.parametrize("text", ["-1", "-1n", -2, -0.5])
def test_a_negative_amount_is_refused(text: str | float) -> None:
    with pytest.raises(QuantityError, match=r"negative; it must be zero or more"):
        parse_milli(text)


@pytest.mark.parametrize("text", ["-0", "-0.0Ki"])
def test_minus_zero_is_zero(text: str) -> None:
    assert parse_units(text) == 0


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "+",
        "-",
        ".",
        "Gi",
        "m",
        "1e",
        "1e+",
        "1e1.5",
        "1 Gi",
        "1ki",
        "1K",
        "1mi",
        "1i",
        "1Eei",
        "0x10",
        "1_000",
        "--1",
        "1,5",
        "1.2.3",
        "٣",
        "1\x00",
        "NaN",
        "inf",
        "9" * 600,
    ],
)
def test_malformed_text_is_refused(text: str) -> None:
    with pytest.raises(QuantityError, match=r"malformed; it must be a decimal number"):
        parse_units(text)


def test_the_message_names_the_text() -> None:
    with pytest.raises(QuantityError, match=r"quantity '12Gib' is malformed"):
        parse_units("12Gib")


def test_a_long_text_is_cut_in_the_message() -> None:
    with pytest.raises(QuantityError) as caught:
        parse_units("x" * 10_000)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("text", ["9223372036854775808", "8Ei", "16Ei", "10E", "1e19", "1e999999999999"])
def test_what_is_beyond_int64_is_refused(text: str) -> None:
    with pytest.raises(QuantityError, match=r"beyond int64"):
        parse_units(text)


@pytest.mark.parametrize("value", [True, None, math.nan, math.inf, -math.inf, b"1", ["1"], 2**64])
def test_what_is_neither_text_nor_a_finite_number_is_refused(value: object) -> None:
    with pytest.raises(QuantityError):
        parse_units(value)  # type: ignore[arg-type]


@pytest.mark.parametrize(("number", "milli"), [(2, 2000), (0.5, 500), (1e-7, 1), (1e15, 10**18), (0, 0)])
def test_a_number_is_read_as_its_json_text(number: float, milli: int) -> None:
    assert parse_milli(number) == milli


def test_true_is_refused_after_one_was_read() -> None:
    assert parse_units(1) == 1
    with pytest.raises(QuantityError):
        parse_units(True)


@given(
    whole=st.text("0123456789", min_size=1, max_size=18),
    fraction=st.text("0123456789", max_size=12),
    suffix=st.sampled_from(sorted(SUFFIXES)),
    scale=st.sampled_from([0, 3]),
)
def test_parsing_equals_exact_arithmetic(whole: str, fraction: str, suffix: str, scale: int) -> None:
    exact = math.ceil(Fraction(f"{whole}.{fraction or 0}") * SUFFIXES[suffix] * 10**scale)
    parse = parse_milli if scale else parse_units
    text = f"{whole}.{fraction}{suffix}" if fraction else whole + suffix
    if exact > INT64_MAX:
        with pytest.raises(QuantityError, match="beyond int64"):
            parse(text)
    else:
        assert parse(text) == exact


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (1500, "1500m"), (2000, "2"), (2_000_000, "2k"), (1, "1m"), (-1536, "-1536m")]
)
def test_milli_amounts_are_written_canonically(value: int, text: str) -> None:
    assert format_milli(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (64 * 2**30, "64Gi"),
        (1536 * 2**20, "1536Mi"),
        (2**63 - 2**60, "7Ei"),
        (1000, "1k"),
        (1023, "1023"),
        (1024, "1Ki"),
        (1025, "1025"),
        (2_000_000, "2000000"),
        (-2048, "-2Ki"),
        (0, "0"),
    ],
)
def test_byte_amounts_are_written_canonically(value: int, text: str) -> None:
    assert format_units(value) == text


def test_units_can_be_written_with_powers_of_ten() -> None:
    assert format_units(2_000_000, binary=False) == "2M"


@given(AMOUNTS)
def test_milli_text_reads_back(value: int) -> None:
    assert parse_milli(format_milli(value)) == value


@given(
    st.integers(0, INT64_MAX) | st.builds(lambda n, p: n * 1024**p, st.integers(0, 1023), st.integers(0, 5)),
    st.booleans(),
)
def test_unit_text_reads_back(value: int, binary: bool) -> None:
    assert parse_units(format_units(value, binary)) == value


@given(
    st.sampled_from(["cpu", "memory", "pods", "ephemeral-storage", "hugepages-2Mi", "nvidia.com/gpu"]),
    st.integers(0, INT64_MAX),
)
def test_resource_text_reads_back(name: str, value: int) -> None:
    assert resource_value(name, format_resource(name, value)) == value


@pytest.mark.parametrize("format_amount", [format_milli, format_units])
def test_an_amount_beyond_int64_is_not_written(format_amount: object) -> None:
    with pytest.raises(QuantityError, match="beyond int64"):
        format_amount(INT64_MAX + 1)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("cpu", "2", 2000),
        ("memory", "1Ki", 1024),
        ("memory", "1500m", 2),
        ("pods", "110", 110),
        ("ephemeral-storage", "1Ki", 1024),
        ("ephemeral-storage", "28Ti", 28 * 2**40),
        ("hugepages-2Mi", "4Mi", 4 * 2**20),
        ("nvidia.com/gpu", "8", 8000),
        ("attachable-volumes-csi-x", "25", 25000),
    ],
)
def test_bytes_and_pods_are_counted_whole_and_all_else_in_thousandths(name: str, text: str, value: int) -> None:
    assert resource_value(name, text) == value


def test_a_resource_error_names_resource_and_text() -> None:
    with pytest.raises(QuantityError, match=r"nvidia\.com/gpu: quantity '-1' is negative"):
        resource_value("nvidia.com/gpu", "-1")


@pytest.mark.parametrize(
    ("name", "text"),
    [("memory", "64Gi"), ("ephemeral-storage", "1536Mi"), ("nvidia.com/gpu", "8"), ("cpu", "250m"), ("pods", "110")],
)
def test_resources_are_written_as_users_write_them(name: str, text: str) -> None:
    assert format_resource(name, resource_value(name, text)) == text


@pytest.mark.parametrize(
    ("name", "scalar"),
    [
        ("nvidia.com/gpu", True),
        ("hugepages-1Gi", True),
        ("attachable-volumes-aws-ebs", True),
        ("pod.kubernetes.io/batch", True),
        ("count/pods", False),
        ("count/jobs.kubernetes.io/x", False),
        ("storage", False),
        ("requests.nvidia.com/gpu", False),
        ("Nvidia.com/gpu", False),
        ("nvidia.com/", False),
    ],
)
def test_which_names_are_scalar_resources(name: str, scalar: bool) -> None:
    assert is_scalar_resource(name) is scalar
