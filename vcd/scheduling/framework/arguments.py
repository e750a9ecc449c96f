"""The arguments of plugins and actions: declared once, typed and validated, under Volcano's own keys.

A plugin or action declares each key that it reads as an `Argument`, including the contents of mappings and lists;
`parse_arguments` converts a configuration file's values. Volcano ignores a value of the wrong type; here it is an
error, because its author meant something. A key that is not declared, or has no effect, is a warning.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Literal, get_args

import msgspec

from vcd.model.quantity import QuantityError, parse_milli, parse_units
from vcd.model.urls import url_problem
from vcd.model.wording import did_you_mean
from vcd.scheduling.session.outside import without_user_info

Kind = Literal[
    "int", "float", "bool", "str", "scalar", "strings", "duration", "url", "cpu", "memory", "mapping", "list"
]
Path = tuple[str | int, ...]
"""The path to a value within arguments: keys of mappings and positions in lists."""

_PLACEHOLDER = re.compile(r"<[a-z-]+>")
_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_DURATION = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_UNITS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,  # U+00B5, the micro sign
    "μs": 10**3,  # U+03BC, the Greek letter
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_BOOLEANS = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}
_INT64 = range(-(2**63), 2**63)
MEANINGS: Mapping[Kind, str] = {
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "str": "a text",
    "scalar": "a text, a number, true or false",
    "strings": "a list of texts, or one text with commas",
    "duration": "a duration with units such as 1h30m or 500ms",
    "url": "a URL with http:// or https:// and a host",
    "cpu": "an amount of cpu such as 250m; a plain number is thousandths",
    "memory": "an amount of memory such as 200Mi; a plain number is Mi",
    "mapping": "a mapping",
    "list": "a list",
}
_MEBIBYTE = 1 << 20


class Argument(msgspec.Struct, frozen=True):
    """One key that a plugin or action reads.

    ``key`` is Volcano's. It may contain one placeholder such as ``<resource>``, which matches any text
    (``PLUGIN.resources.<resource>``). ``default`` applies if the file does not have the key. It is a value as after
    parsing (``duration`` in nanoseconds, ``strings`` a tuple), or None for "not set". With a placeholder, it is the
    default for names that the file does not list. ``minimum`` and ``maximum`` (inclusive) limit numbers, and durations
    in nanoseconds; ``choices`` limit texts. ``doc`` describes the effect, with units. ``caution`` is the warning for
    any value other than the default.

    ``fields`` declare the contents of a mapping, or of each item of a list; the value is then an ArgumentValues, or a
    tuple of them. If ``required``, a file without the key is an error. ``without_effect`` explains why a key that
    Volcano reads is accepted and changes nothing. A number below ``default_below`` counts as the default, with a
    warning.
    """

    key: str
    kind: Kind
    default: Any
    doc: str
    minimum: int | float | None = None
    maximum: int | float | None = None
    choices: tuple[str, ...] | None = None
    fields: tuple[Argument, ...] | None = None
    required: bool = False
    without_effect: str = ""
    caution: str = ""
    default_below: int | float | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise ValueError(f"argument {self.key}: no such kind: {self.kind}")
        if len(_PLACEHOLDER.findall(self.key)) > 1:
            raise ValueError(f"argument {self.key}: at most one placeholder")
        if self.fields is not None and self.kind not in ("mapping", "list"):
            raise ValueError(f"argument {self.key}: fields are for mappings and lists")

    @property
    def is_dynamic(self) -> bool:
        """Whether the key contains a placeholder."""
        return _PLACEHOLDER.search(self.key) is not None

    @property
    def allowed(self) -> str:
        """The allowed values, in words."""
        words = MEANINGS[self.kind]
        if self.choices is not None:
            words = ("any of " if self.kind == "strings" else "one of ") + ", ".join(filter(None, self.choices))
        if self.fields is not None:
            words += (" of " if self.kind == "mapping" else " of mappings of ") + _keys(self.fields)
        if self.minimum is not None and self.maximum is not None:
            return f"{words} from {self._bound(self.minimum)} to {self._bound(self.maximum)}"
        if self.minimum is not None:
            return f"{words} of at least {self._bound(self.minimum)}"
        if self.maximum is not None:
            return f"{words} of at most {self._bound(self.maximum)}"
        return words

    def _bound(self, bound: int | float) -> str:
        return format_duration(int(bound)) if self.kind == "duration" else str(bound)

    def placed(self, key: str) -> str | None:
        """Return the text of ``key`` at the placeholder; None if ``key`` does not match this argument."""
        head, tail = _PLACEHOLDER.split(self.key)
        fits = len(key) > len(head) + len(tail) and key.startswith(head) and key.endswith(tail)
        return key[len(head) : len(key) - len(tail)] if fits else None


class ArgumentError(ValueError):
    """An argument's value that is not allowed.

    ``value`` is as written, ``allowed`` and ``hint`` are words for the message, and ``path`` is the full path to the
    value.
    """

    def __init__(self, key: str, value: object, allowed: str, hint: str = "", path: Path = ()) -> None:
        super().__init__(f"{key}: {value!r} is not {allowed}{hint}")
        self.key = key
        self.value = value
        self.allowed = allowed
        self.hint = hint
        self.path = path or (key,)


class Notice(msgspec.Struct, frozen=True):
    """A remark for the author of a file: its path in the file, and a message that continues the path in a sentence."""

    path: Path
    message: str

    def __str__(self) -> str:
        return f"{in_words(self.path)}{self.message}"


class ArgumentValues(Mapping[str, Any]):
    """The values of one plugin or action, or of a nested mapping: every declared key without a placeholder, and the
    keys with placeholders that the file has.

    ``given`` has the declared keys that the file contains; ``notices`` are remarks about the file.
    """

    def __init__(self, declared: Iterable[Argument], read: Mapping[str, Any], notices: Iterable[Notice]) -> None:
        declared = tuple(declared)
        self._fixed = {argument.key: argument for argument in declared if not argument.is_dynamic}
        self._dynamic = {argument.key: argument for argument in declared if argument.is_dynamic}
        self._values = {**{key: _default(argument) for key, argument in self._fixed.items()}, **read}
        self.given = frozenset(read)
        self.notices = tuple(notices)

    @property
    def warnings(self) -> tuple[str, ...]:
        """The notices as sentences."""
        return tuple(map(str, self.notices))

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"ArgumentValues({self._values!r})"

    def declaration(self, key: str) -> Argument:
        """Return the declaration of ``key``. Raises KeyError if no declaration matches."""
        argument = self._fixed.get(key) or _find(self._dynamic.values(), key)
        if argument is None:
            raise KeyError(key)
        return argument

    def matching(self, pattern: str) -> dict[str, Any]:
        """Return the file's values for a key with a placeholder, by the text at the placeholder, sorted.

        Raises KeyError if no such key is declared.
        """
        wanted = self._dynamic[pattern]
        found: dict[str, Any] = {}
        for key in sorted(self.given):
            placed = wanted.placed(key)
            if placed is not None and self.declaration(key) is wanted:
                found[placed] = self._values[key]
        return found


def parse_arguments(declared: Iterable[Argument], raw: Mapping[str, Any] | None) -> ArgumentValues:
    """Return the typed values of ``raw`` (the mapping from YAML, or None).

    Keys that are not declared, have no value or have no effect, and cautions, are in the result's ``notices``. Raises
    ArgumentError for the first value that is not allowed, in ``raw``'s order, or for a missing required one.
    """
    values, errors = read_arguments(declared, raw)
    if errors:
        raise errors[0]
    return values


def read_arguments(
    declared: Iterable[Argument], raw: Mapping[str, Any] | None
) -> tuple[ArgumentValues, list[ArgumentError]]:
    """Return values as `parse_arguments`, and all errors; a value that is not allowed is replaced by its default."""
    errors: list[ArgumentError] = []
    return _read_mapping(tuple(declared), raw or {}, (), errors), errors


def in_words(path: Path) -> str:
    """Return a path as text, for example ``sra.resourceWeight`` or ``strategies[0].name``."""
    words = ""
    for part in path:
        words += f"[{part}]" if isinstance(part, int) else f".{part}" if words else part
    return words


def parse_duration(text: str) -> int:
    """Return the nanoseconds of a duration in Go's notation (``1h2m3.5s4ms5us6ns``, ``0``, an optional sign).

    Fractions of a nanosecond are cut off. Raises ValueError if ``text`` is no duration or exceeds 64 bits.
    """
    sign, rest = (text[0], text[1:]) if text[:1] in ("+", "-") else ("+", text)
    if rest == "0":
        return 0
    total = position = 0
    while position < len(rest):
        part = _DURATION.match(rest, position)
        if part is None:
            break
        whole, _, fraction = part[1].partition(".")
        unit = _UNITS[part[2]]
        total += int(whole or "0") * unit + int(fraction or "0") * unit // 10 ** len(fraction)
        position = part.end()
    total = -total if sign == "-" else total
    if not rest or position < len(rest) or total not in _INT64:
        raise ValueError(f"{text!r} is not a duration with units such as 1h30m or 500ms")
    return total


def format_duration(nanoseconds: int) -> str:
    """Return the shortest text in whole units that `parse_duration` reads as ``nanoseconds``: ``1h30m``, ``500ms``."""
    rest, parts = abs(nanoseconds), []
    for unit in ("h", "m", "s", "ms", "us", "ns"):
        count, rest = divmod(rest, _UNITS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return ("-" if nanoseconds < 0 else "") + ("".join(parts) or "0s")


def _find(dynamic: Iterable[Argument], key: str) -> Argument | None:
    """Return the argument with a placeholder that ``key`` matches; of several, the one with the longest fixed part."""
    fitting = [argument for argument in dynamic if argument.placed(key) is not None]
    return max(fitting, key=lambda argument: len(_PLACEHOLDER.sub("", argument.key)), default=None)


def _read_mapping(
    declared: tuple[Argument, ...], raw: Mapping[Any, Any], path: Path, errors: list[ArgumentError]
) -> ArgumentValues:
    fixed = {argument.key: argument for argument in declared if not argument.is_dynamic}
    dynamic = [argument for argument in declared if argument.is_dynamic]
    read: dict[str, Any] = {}
    notices: list[Notice] = []
    for key, value in ((str(key), value) for key, value in raw.items()):  # YAML keys can be numbers or dates
        here = (*path, key)
        argument = fixed.get(key) or _find(dynamic, key)
        if argument is None:
            notices.append(Notice(here, f" is not read{did_you_mean(key, [argument.key for argument in declared])}"))
            continue
        if argument.without_effect:
            notices.append(Notice(here, f" has no effect: {argument.without_effect}"))
        if value is None:
            notices.append(Notice(here, " has no value, the default holds"))
            continue
        count = len(errors)
        result = _read(argument, here, value, errors, notices)
        if len(errors) == count or (argument.fields is not None and result is not None):
            if argument.default_below is not None and result < argument.default_below:
                notices.append(
                    Notice(here, f" is below {argument.default_below}: the default {argument.default} holds")
                )
                result = argument.default
            read[key] = result
            if argument.caution and result != argument.default:
                notices.append(Notice(here, f": {argument.caution}"))
    errors.extend(_missing(argument, path) for argument in declared if argument.required and argument.key not in raw)
    return ArgumentValues(declared, read, notices)


def _missing(argument: Argument, path: Path) -> ArgumentError:
    here = (*path, argument.key)
    return ArgumentError(in_words(here), None, f"given: {argument.allowed}", path=here)


def _default(argument: Argument) -> Any:
    """Return an argument's default as a value; nested defaults come from ``fields``."""
    if argument.fields is None:
        return argument.default
    if argument.kind == "mapping":
        return _read_mapping(argument.fields, argument.default or {}, (), [])
    return tuple(_read_mapping(argument.fields, item, (), []) for item in argument.default)


def _keys(declared: Iterable[Argument]) -> str:
    return ", ".join(argument.key for argument in declared)


def _read(argument: Argument, path: Path, value: object, errors: list[ArgumentError], notices: list[Notice]) -> Any:
    """Return ``value`` as the argument's kind; append an error and return None if the value is not allowed."""

    def refuse(hint: str = "") -> Any:
        printable = without_user_info(value) if argument.kind == "url" and isinstance(value, str) else value
        errors.append(ArgumentError(in_words(path), printable, argument.allowed, hint, path))
        return None

    try:
        result = READERS[argument.kind](value)
    except ValueError:
        return refuse()
    if argument.minimum is not None and result < argument.minimum:
        return refuse()
    if argument.maximum is not None and result > argument.maximum:
        return refuse()
    if argument.choices is not None:
        for word in result if isinstance(result, tuple) else (result,):
            if word not in argument.choices:
                return refuse(did_you_mean(word, argument.choices))
    if argument.fields is None:
        return result
    one = argument.kind == "mapping"
    items = []
    for here, item in [(path, result)] if one else [((*path, place), item) for place, item in enumerate(result)]:
        if isinstance(item, Mapping):
            items.append(_read_mapping(argument.fields, item, here, errors))
            notices.extend(items[-1].notices)
        else:
            errors.append(ArgumentError(in_words(here), item, f"a mapping of {_keys(argument.fields)}", path=here))
    return items[0] if one else tuple(items)


def _int(value: object) -> int:
    if isinstance(value, str) and _INTEGER.fullmatch(value.strip()):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value not in _INT64:
        raise ValueError(value)
    return value


def _float(value: object) -> float:
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(value)
    try:
        number = float(value)
    except OverflowError:
        raise ValueError(value) from None
    if not math.isfinite(number):
        raise ValueError(value)
    return number


def _bool(value: object) -> bool:
    if isinstance(value, str) and value in _BOOLEANS:
        return _BOOLEANS[value]
    if not isinstance(value, bool):
        raise ValueError(value)
    return value


def _reader_of(kind: type) -> Callable[[object], Any]:
    """Return a reader that accepts values of a type unchanged."""

    def read(value: object) -> Any:
        if not isinstance(value, kind):
            raise ValueError(value)
        return value

    return read


_str: Callable[[object], str] = _reader_of(str)
_mapping, _list = _reader_of(Mapping), _reader_of(list)


def _strings(value: object) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else _list(value)
    return tuple(word for word in (_str(part).strip() for part in parts) if word)


def _duration(value: object) -> int:
    # YAML reads a bare 0, Go's one duration without a unit, as a number.
    return 0 if value == 0 and not isinstance(value, bool) else parse_duration(_str(value))


def _scalar(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int | float):
        raise ValueError(value)
    return str(value)


def _url(value: object) -> str:
    if url_problem(_str(value)):
        raise ValueError(value)
    return _str(value)


def _amount(value: object, parse: Callable[[str], int], unit: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(value)
    try:
        found = parse(value) if isinstance(value, str) else value * unit
    except QuantityError:
        raise ValueError(value) from None
    if found < 0:
        raise ValueError(value)
    return found


READERS: Mapping[Kind, Callable[[object], Any]] = {
    "int": _int,
    "float": _float,
    "bool": _bool,
    "str": _str,
    "scalar": _scalar,
    "strings": _strings,
    "duration": _duration,
    "url": _url,
    "cpu": lambda value: _amount(value, parse_milli, 1),
    "memory": lambda value: _amount(value, parse_units, _MEBIBYTE),
    "mapping": lambda value: MappingProxyType(dict(_mapping(value))),
    "list": lambda value: tuple(_list(value)),
}
