"""Convert resource quantities of Kubernetes to exact int64 amounts and back.

A quantity is an optional sign, a decimal number and one suffix: ``n u m k M G T P E`` (powers of ten), ``Ki Mi Gi Ti Pi
Ei`` (powers of 1024) or a decimal exponent (``e3``, ``E-3``). Amounts are either whole units (bytes, pods) or
milli-units (cpu, scalar resources), rounded away from zero like apimachinery's ``Quantity.Value`` and
``Quantity.MilliValue``. What apimachinery wraps around or caps beyond int64 is an error here, and so are a sign or a
point without a digit, which it reads as zero.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

from vcd.model.selectors import is_qualified_name

INT64_MAX: Final = 2**63 - 1
INT64_MIN: Final = -(2**63)

_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX: Final = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY_SUFFIX: Final = {0: "", **{exponent: suffix for suffix, exponent in _BINARY.items()}}

_FORM: Final = re.compile(
    r"(?P<sign>[+-]?)(?=\.?[0-9])(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?"
    r"(?P<suffix>[numkMGTPE]?|[KMGTPE]i|[eE](?P<exponent>[+-]?[0-9]+))"
)
_ALLOWED: Final = "a decimal number with at most one of n u m k M G T P E, Ki Mi Gi Ti Pi Ei or an exponent as in 1e3"
# Python refuses to convert very long digit strings; no real quantity comes near either limit.
_MAX_LENGTH: Final = 512
# Beyond this power of ten every non-zero amount overflows int64, or is a fraction of the smallest unit.
_MAX_EXPONENT: Final = 1024

_UNITS_SCALE: Final = 0
_MILLI_SCALE: Final = 3


class QuantityError(ValueError):
    """A quantity that is malformed, negative, or beyond int64; the message names the text."""


def parse_milli(text: str | int | float) -> int:
    """Return the amount in thousandths of a unit, rounded away from zero: ``"1500m"`` is 1500, ``"1n"`` is 1.

    Numbers are read as their JSON text. Raises QuantityError.
    """
    return _parse(text, _MILLI_SCALE)


def parse_units(text: str | int | float) -> int:
    """Return the amount in whole units (bytes for memory), rounded away from zero: ``"1Ki"`` is 1024, ``"1m"`` is 1.

    Numbers are read as their JSON text. Raises QuantityError.
    """
    return _parse(text, _UNITS_SCALE)


def resource_value(resource_name: str, text: str | int | float) -> int:
    """Return the amount in the unit of the resource: a thousandth, or a whole one (``per_unit``).

    Raises QuantityError, naming the resource, for what is negative, malformed or beyond int64.
    """
    try:
        return _parse(text, _UNITS_SCALE if per_unit(resource_name) == 1 else _MILLI_SCALE)
    except QuantityError as error:
        raise QuantityError(f"{resource_name}: {error}") from None


def per_unit(resource_name: str) -> int:
    """Return how many counted units make one unit of a resource: 1 for bytes and pods, 1000 for all else.

    Volcano counts ephemeral-storage and huge pages in thousandths of a byte, in floats: in that unit, the disks of a
    large cluster are beyond int64.
    """
    return 1 if resource_name in ("memory", "pods") or is_disk_or_huge_pages(resource_name) else 1000


def to_volcanos_unit(resource_name: str) -> int:
    """Return the factor from an amount to the unit of Volcano's ``NewResource``, to compare with Volcano's numbers."""
    return 1000 if is_disk_or_huge_pages(resource_name) else 1


def is_disk_or_huge_pages(resource_name: str) -> bool:
    """Whether a resource other than memory is counted in bytes."""
    return resource_name == "ephemeral-storage" or resource_name.startswith("hugepages-")


def is_scalar_resource(resource_name: str) -> bool:
    """Whether a name other than cpu, memory, pods and ephemeral-storage counts as a resource.

    As in ``NewResource``: extended resources (``nvidia.com/gpu``), ``hugepages-*``, ``attachable-volumes-*`` and names
    under ``kubernetes.io/``; not the ``count/`` quotas and not bare names like ``storage``.
    """
    if resource_name.startswith("count/"):
        return False
    if resource_name.startswith(("hugepages-", "attachable-volumes-")) or "kubernetes.io/" in resource_name:
        return True
    return (
        "/" in resource_name
        and not resource_name.startswith("requests.")
        and is_qualified_name(f"requests.{resource_name}")
    )


def is_pod_level_resource(name: str) -> bool:
    """Whether a pod as a whole can request a resource, in addition to its containers (KEP-2837)."""
    return name in ("cpu", "memory") or name.startswith("hugepages-")


def add(total: dict[str, int], more: Mapping[str, int]) -> None:
    """Add amounts by resource to ``total``, in place."""
    for name, value in more.items():
        total[name] = total.get(name, 0) + value


def needed(running: Iterable[Mapping[str, int]], starting: Iterable[tuple[Mapping[str, int], bool]]) -> dict[str, int]:
    """Return what a pod's containers need, by resource: the sum of running ones, or more if the start needs more.

    ``starting`` are the init containers in order, with whether each is a sidecar, which keeps running. Each needs its
    amounts in addition to earlier sidecars (Kubernetes' ``component-helpers``, ``PodRequests``).
    """
    total: dict[str, int] = {}
    for amounts in running:
        add(total, amounts)
    sidecars: dict[str, int] = {}
    largest: dict[str, int] = {}
    for amounts, stays in starting:
        step = dict(sidecars)
        add(step, amounts)
        if stays:
            sidecars = step
        _raise_to(largest, step)
    add(total, sidecars)
    _raise_to(total, largest)
    return total


def _raise_to(total: dict[str, int], floor: Mapping[str, int]) -> None:
    for name, value in floor.items():
        if value > total.get(name, 0):
            total[name] = value


def format_milli(value: int) -> str:
    """Format an amount in milli-units as canonical decimal text: 1500 is ``"1500m"``, 2000 is ``"2"``."""
    return _format_decimal(_check_range(value), -_MILLI_SCALE)


def format_units(value: int, binary: bool = True) -> str:
    """Format an amount in whole units as canonical text: 1610612736 is ``"1536Mi"``, with ``binary=False`` decimal.

    Amounts within ±1023 are always decimal, as in apimachinery (1000 is ``"1k"``).
    """
    _check_range(value)
    if not binary or -1024 < value < 1024:
        return _format_decimal(value, 0)
    return _format_binary(value)


def format_resource(resource_name: str, value: int) -> str:
    """Format an amount in the unit of ``resource_value`` as canonical text, from which that returns the same amount.

    Bytes have binary suffixes.
    """
    if per_unit(resource_name) == 1:
        return format_units(value, binary=resource_name != "pods")
    return format_milli(value)


@lru_cache(maxsize=1 << 14)
def canonical(text: str) -> str:
    """Return a quantity of any size in the API's canonical form: ``1024Mi`` is ``1Gi``, ``0.5`` is ``500m``.

    No fraction, the largest suffix that leaves a whole number, precision no finer than nano (rounded up); a binary
    suffix stays binary from 1024 on, an exponent stays an exponent. Raises QuantityError.
    """
    form = _form_of(text)
    if len((form["exponent"] or "").lstrip("+-")) > 3:
        raise QuantityError(f"quantity {_quote(text)} is malformed; an exponent has at most three digits")
    nano = _scale(form, 9)
    if form["suffix"] in _BINARY and abs(nano) >= 1024 * 10**9:
        return _format_binary(_scale(form, 0))
    if form["exponent"] is None or not nano:
        return _format_decimal(nano, -9)
    value, exponent = _without_thousands(nano, -9, _MAX_EXPONENT)
    return f"{value}e{exponent}" if exponent else str(value)


def _parse(text: str | int | float, scale: int) -> int:
    return _parse_text(text if isinstance(text, str) else _number_text(text), scale)


def _number_text(number: object) -> str:
    """Return the JSON text of a number; other types are refused (bool is an int in Python)."""
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise QuantityError(f"quantity {_quote(number)} is a {type(number).__name__}; it must be text or a number")
    if isinstance(number, int) and not INT64_MIN <= number <= INT64_MAX:
        raise QuantityError(f"quantity is an integer of {number.bit_length()} bits; it must fit in int64")
    return repr(number)


@lru_cache(maxsize=1 << 14)
def _parse_text(text: str, scale: int) -> int:
    """Return ``text`` times ten to the ``scale``, rounded away from zero. Cached: a cluster has few distinct texts."""
    value = _scale(_form_of(text), scale)
    if value < 0:
        raise QuantityError(f"quantity {_quote(text)} is negative; it must be zero or more")
    if value > INT64_MAX:
        unit = "milli-units" if scale == _MILLI_SCALE else "units"
        raise QuantityError(f"quantity {_quote(text)} is beyond int64; it must be below 2^63 {unit}")
    return value


def _form_of(text: str) -> re.Match[str]:
    form = _FORM.fullmatch(text.strip()) if len(text) <= _MAX_LENGTH else None
    if form is None:
        raise QuantityError(f"quantity {_quote(text)} is malformed; it must be {_ALLOWED}")
    return form


def _scale(form: re.Match[str], scale: int) -> int:
    """Return the amount times ten to the ``scale``, rounded away from zero."""
    fraction = (form["fraction"] or "").rstrip("0")
    amount = int(form["whole"] + fraction or "0")
    suffix, exponent = form["suffix"], form["exponent"]
    power = scale - len(fraction)
    if exponent is not None:
        power += int(exponent)
    elif suffix in _BINARY:
        amount <<= _BINARY[suffix]
    else:
        power += _DECIMAL[suffix]
    power = max(-_MAX_EXPONENT, min(power, _MAX_EXPONENT))
    value = amount * int(10**power) if power >= 0 else -(-amount // int(10**-power))
    return -value if form["sign"] == "-" else value


def _format_decimal(value: int, exponent: int) -> str:
    """Format ``value`` times ten to the ``exponent``, with the largest suffix that leaves no fraction."""
    if value == 0:
        return "0"
    value, exponent = _without_thousands(value, exponent, 18)
    return f"{value}{_DECIMAL_SUFFIX[exponent]}"


def _without_thousands(value: int, exponent: int, largest: int) -> tuple[int, int]:
    while value % 1000 == 0 and exponent < largest:
        value //= 1000
        exponent += 3
    return value, exponent


def _format_binary(value: int) -> str:
    exponent = 0
    while value % 1024 == 0 and exponent < 60:
        value //= 1024
        exponent += 10
    return f"{value}{_BINARY_SUFFIX[exponent]}"


def _check_range(value: int) -> int:
    if not INT64_MIN <= value <= INT64_MAX:
        raise QuantityError(f"amount {value} is beyond int64")
    return value


def _quote(text: object) -> str:
    quoted = repr(text)
    return quoted if len(quoted) <= 64 else f"{quoted[:60]}..."
