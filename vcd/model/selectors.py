"""Selectors, node affinity terms, taints and tolerations: the API's types and their evaluation.

The API types decode any text in an object; an operator or value that the API does not know is reported as SelectorError
when the selector is compiled or evaluated. Compiled selectors are in canonical form (requirements and values sorted,
duplicates dropped): they are equal and hash equally if their content is the same, whatever its order.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, Final

import msgspec

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""The API's integers; an object with a larger one is invalid."""

IN: Final = "In"
NOT_IN: Final = "NotIn"
EXISTS: Final = "Exists"
DOES_NOT_EXIST: Final = "DoesNotExist"
GREATER: Final = "Gt"
LESS: Final = "Lt"
EQUAL: Final = "Equal"

NO_SCHEDULE: Final = "NoSchedule"
PREFER_NO_SCHEDULE: Final = "PreferNoSchedule"
NO_EXECUTE: Final = "NoExecute"

_LABEL_OPERATORS: Final = (IN, NOT_IN, EXISTS, DOES_NOT_EXIST)
_NODE_OPERATORS: Final = (*_LABEL_OPERATORS, GREATER, LESS)
_FIELD_OPERATORS: Final = (IN, NOT_IN)
_TOLERATION_OPERATORS: Final = ("", EQUAL, EXISTS, LESS, GREATER)
_EFFECTS: Final = (NO_SCHEDULE, PREFER_NO_SCHEDULE, NO_EXECUTE)
_NODE_NAME: Final = "metadata.name"

_INT64_TEXT: Final = re.compile(r"[+-]?[0-9]+")
_CANONICAL_INT: Final = re.compile(r"0|-?[1-9][0-9]*")
_NAME: Final = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_WORD: Final = r"[^=!<>(),\s]++"
_TEXTUAL: Final = re.compile(
    rf"\s*+(?:!\s*(?P<absent>{_WORD})|(?P<key>{_WORD})\s*"
    rf"(?:(?P<sign>==?|!=|[<>])\s*(?P<value>{_WORD})?|(?P<set>in|notin)\s*\((?P<values>[^=!<>()]*)\))?)\s*+"
)
_SIGNS: Final = {"=": IN, "==": IN, "!=": NOT_IN, ">": GREATER, "<": LESS, "in": IN, "notin": NOT_IN, "": EXISTS,
                 "!": DOES_NOT_EXIST}  # fmt: skip
_FORMS: Final = "key, !key, key=value, key!=value, key>1, key<1, key in (a,b) or key notin (a,b)"
_BISECT_FROM: Final = 16


class SelectorError(ValueError):
    """A selector, term, taint or toleration that the API would refuse.

    ``field`` is the path below the object given, for example ``matchExpressions[0].operator``. ``value`` is the invalid
    value, ``allowed`` lists the valid ones.
    """

    def __init__(self, field: str, value: object, allowed: str) -> None:
        super().__init__(f"{field}: {value!r} {allowed}")
        self.field = field
        self.value = value
        self.allowed = allowed


# --- the API's types ------------------------------------------------------------------------------------------------


class _Api(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """Base of the API types: camel case in JSON, absent fields have the API's zero values."""


class LabelSelectorRequirement(_Api, frozen=True):
    """One of a label selector's ``matchExpressions``; operator In, NotIn, Exists or DoesNotExist."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class LabelSelector(_Api, frozen=True):
    """A label selector of an object; all parts must match, and one without parts matches everything."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()

    def __hash__(self) -> int:
        return hash((tuple(sorted(self.match_labels.items())), self.match_expressions))

    @staticmethod
    def compile(source: LabelSelector | Mapping[str, Any] | None) -> Selector:
        """Compile a selector, given typed or as plain data; None (no selector) matches nothing.

        Raises SelectorError for an operator, key or value that the API does not allow.
        """
        if source is None:
            return NOTHING
        if isinstance(source, LabelSelector):
            return _compile_label_selector(source)
        try:
            typed = msgspec.convert({k: v for k, v in source.items() if v is not None}, LabelSelector)
        except msgspec.ValidationError as error:
            raise SelectorError("selector", dict(source), f"is no label selector: {error}") from None
        return _compile_label_selector(typed)


class NodeSelectorRequirement(_Api, frozen=True):
    """One requirement of a node selector term; operator In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class NodeSelectorTerm(_Api, frozen=True, cache_hash=True):
    """Requirements on a node's labels and on its ``metadata.name``, ANDed; without any, the term matches no node."""

    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class NodeSelector(_Api, frozen=True):
    """Node selector terms, ORed."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredSchedulingTerm(_Api, frozen=True):
    """A node selector term that adds its weight, 1 to 100, to the score of the nodes that it matches."""

    weight: Int32 = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class Taint(_Api, frozen=True):
    """A node's taint; effect NoSchedule, PreferNoSchedule or NoExecute."""

    key: str = ""
    value: str = ""
    effect: str = ""


class Toleration(_Api, frozen=True):
    """A pod's toleration; operator Equal (also when empty), Exists, Lt or Gt; an empty effect means every effect."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: Int64 | None = None


# --- compiled selectors ---------------------------------------------------------------------------------------------


class Requirement(msgspec.Struct, frozen=True, order=True, gc=False):
    """A checked requirement on one label: operator as in node selectors, values sorted and distinct."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The requirement in kubectl's syntax."""
        if self.operator in (IN, NOT_IN):
            values = ",".join(self.values)
            one = self.operator == IN and len(self.values) == 1
            return f"{self.key}={values}" if one else f"{self.key} {self.operator.lower()} ({values})"
        if self.operator in (EXISTS, DOES_NOT_EXIST):
            return self.key if self.operator == EXISTS else f"!{self.key}"
        return f"{self.key} {self.operator} {','.join(self.values)}"

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels meet it. NotIn and DoesNotExist hold if the key is missing; Gt and Lt compare int64."""
        value = labels.get(self.key)
        operator = self.operator
        if operator == IN:
            return value is not None and _among(value, self.values)
        if operator == NOT_IN:
            return value is None or not _among(value, self.values)
        if operator == EXISTS:
            return value is not None
        if operator == DOES_NOT_EXIST:
            return value is None
        number, bound = int64_of(value or ""), int64_of(self.values[0])
        if number is None or bound is None:
            return False
        return number > bound if operator == GREATER else number < bound


class Selector(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """A compiled label selector: requirements ANDed, no requirement selects everything; ``nothing`` selects nothing."""

    requirements: tuple[Requirement, ...] = ()
    nothing: bool = False

    @property
    def text(self) -> str:
        """The selector in kubectl's syntax: ``app=web,tier in (a,b)``; empty if it selects everything."""
        return ",".join(need.text for need in self.requirements)

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels is selected."""
        if self.nothing:
            return False
        for requirement in self.requirements:  # noqa: SIM110 - a generator costs more than the usual one requirement
            if not requirement.matches(labels):
                return False
        return True


NOTHING: Final = Selector(nothing=True)
EVERYTHING: Final = Selector()


class FieldRequirement(msgspec.Struct, frozen=True, order=True, gc=False):
    """``field`` has the value or, with ``equal`` false, another one."""

    field: str
    value: str
    equal: bool = True


class FieldSelector(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """A compiled field selector: requirements ANDed."""

    requirements: tuple[FieldRequirement, ...] = ()

    def matches(self, fields: Mapping[str, str]) -> bool:
        """Whether an object with these fields is selected; a missing field counts as empty."""
        return all((fields.get(need.field, "") == need.value) is need.equal for need in self.requirements)


class _NodeTerm(msgspec.Struct, frozen=True):
    """A node selector term, compiled."""

    labels: Selector
    fields: FieldSelector

    def matches(self, labels: Mapping[str, str], fields: Mapping[str, str]) -> bool:
        return self.labels.matches(labels) and self.fields.matches(fields)


# --- label and field selectors --------------------------------------------------------------------------------------


@lru_cache(maxsize=1 << 12)
def parse_label_selector(text: str) -> Selector:
    """Parse the selector of a list call, as in ``a=b,c!=d,e in (x,y),f notin (z),g,!h,i>3``; "" selects everything.

    Raises SelectorError.
    """
    needs: list[Requirement] = []
    at = 0
    while at < len(text) and (needs or text.strip()):
        form = _TEXTUAL.match(text, at)
        end = at if form is None else form.end()
        if form is None or text[end : end + 1] not in ("", ",") or text[end:] == ",":
            raise SelectorError("labelSelector", text, f"cannot be read from {text[end:]!r} on; expected {_FORMS}")
        sign = "!" if form["absent"] else form["sign"] or form["set"] or ""
        values = (form["values"] or form["value"] or "").split(",") if sign not in ("", "!") else ()
        key = form["absent"] or form["key"]
        needs.append(_requirement("labelSelector", key, _SIGNS[sign], [value.strip() for value in values]))
        at = end + 1
    return _selector(needs)


@lru_cache(maxsize=1 << 12)
def parse_field_selector(text: str) -> FieldSelector:
    r"""Parse the field selector of a list call, as in ``metadata.name=x,spec.nodeName!=y``; ``\`` escapes , = and \.

    Raises SelectorError. Callers must check which fields a kind can be selected by.
    """
    terms = re.findall(r"(?:[^,\\]|\\.|\\\Z)+", text, re.DOTALL)
    return _field_selector([_field_requirement(text, term) for term in terms])


@lru_cache(maxsize=1 << 14)
def _compile_label_selector(source: LabelSelector) -> Selector:
    needs = [_requirement(f"matchLabels[{key}]", key, IN, (value,)) for key, value in source.match_labels.items()]
    for index, need in enumerate(source.match_expressions):
        path = f"matchExpressions[{index}]"
        _check_known(f"{path}.operator", need.operator, _LABEL_OPERATORS)
        needs.append(_requirement(path, need.key, need.operator, need.values))
    return _selector(needs)


def _selector(needs: Sequence[Requirement]) -> Selector:
    return Selector(tuple(sorted(set(needs)))) if needs else EVERYTHING


def _field_selector(needs: Sequence[FieldRequirement]) -> FieldSelector:
    return FieldSelector(tuple(sorted(set(needs))))


def _requirement(path: str, key: str, operator: str, values: Sequence[str]) -> Requirement:
    """Return a requirement with a known operator; checks key and values like apimachinery's ``NewRequirement``."""
    if not is_qualified_name(key):
        raise SelectorError(f"{path}.key", key, "is no label key: [DNS subdomain/]name of at most 63 characters")
    if operator in (IN, NOT_IN):
        if not values:
            raise SelectorError(f"{path}.values", (), f"must hold at least one value for operator {operator}")
    elif operator in (EXISTS, DOES_NOT_EXIST):
        if values:
            raise SelectorError(f"{path}.values", tuple(values), f"must be empty for operator {operator}")
    elif len(values) != 1 or int64_of(values[0]) is None:
        raise SelectorError(f"{path}.values", tuple(values), f"must be a single integer for operator {operator}")
    for index, value in enumerate(values):
        if not is_label_value(value):
            raise SelectorError(
                f"{path}.values[{index}]",
                value,
                "is not a label value: at most 63 of A-Z a-z 0-9 - _ . that begin and end with a letter or digit",
            )
    return Requirement(key, operator, tuple(sorted(set(values)) if values[1:] else values))


def _field_requirement(selector: str, term: str) -> FieldRequirement:
    field, sign, escaped = (*re.split("(!=|==|=)", term, maxsplit=1), "", "")[:3]
    if not sign or not field:
        raise SelectorError("fieldSelector", selector, f"cannot be read: {term!r} must be field=value or field!=value")
    if not re.fullmatch(r"(?:[^\\,=]|\\[\\,=])*", escaped):
        raise SelectorError("fieldSelector", selector, f"cannot be read: escape \\ , and = in {escaped!r} with one \\")
    return FieldRequirement(field, re.sub(r"\\(.)", r"\1", escaped), sign != "!=")


# --- node selector terms --------------------------------------------------------------------------------------------


def node_terms_match(terms: Sequence[NodeSelectorTerm], labels: Mapping[str, str], node_name: str) -> bool:
    """Whether a node matches one of the terms (ORed); no term, or only empty ones, match no node.

    As in kube-scheduler, an invalid term does not hide one that matches: SelectorError is raised only when no term
    matches.
    """
    fields = {_NODE_NAME: node_name}
    faulty = False
    for term in terms:
        compiled = _compile_node_term(term)
        if isinstance(compiled, SelectorError):
            faulty = True
        elif compiled is not None and compiled.matches(labels, fields):
            return True
    if faulty:
        check_node_terms(terms)
    return False


def check_node_terms(terms: Sequence[NodeSelectorTerm]) -> None:
    """Raise SelectorError for the first invalid term, whether or not some node matches another one."""
    for index, term in enumerate(terms):
        compiled = _compile_node_term(term)
        if isinstance(compiled, SelectorError):
            raise SelectorError(f"nodeSelectorTerms[{index}].{compiled.field}", compiled.value, compiled.allowed)


@lru_cache(maxsize=1 << 14)
def _compile_node_term(term: NodeSelectorTerm) -> _NodeTerm | SelectorError | None:
    if not term.match_expressions and not term.match_fields:
        return None
    needs: list[Requirement] = []
    try:
        for index, need in enumerate(term.match_expressions):
            path = f"matchExpressions[{index}]"
            _check_known(f"{path}.operator", need.operator, _NODE_OPERATORS)
            needs.append(_requirement(path, need.key, need.operator, need.values))
        fields = [_node_field(f"matchFields[{index}]", need) for index, need in enumerate(term.match_fields)]
    except SelectorError as error:
        return SelectorError(error.field, error.value, error.allowed)  # without traceback
    return _NodeTerm(_selector(needs), _field_selector(fields))


def _node_field(path: str, need: NodeSelectorRequirement) -> FieldRequirement:
    _check_known(f"{path}.operator", need.operator, _FIELD_OPERATORS)
    if need.key != _NODE_NAME:
        raise SelectorError(f"{path}.key", need.key, f"is no field of nodes to select by; only {_NODE_NAME} is")
    if len(need.values) != 1:
        raise SelectorError(f"{path}.values", need.values, "must hold exactly one node name")
    return FieldRequirement(need.key, need.values[0], need.operator == IN)


# --- taints and tolerations -----------------------------------------------------------------------------------------


def tolerates(tolerations: Sequence[Toleration], taint: Taint) -> bool:
    """Whether one of the tolerations covers the taint.

    Empty key and effect cover every key and effect. Lt and Gt (Kubernetes 1.35) hold when the taint's value is below or
    above the toleration's; both must be canonical int64 texts, else the toleration does not cover the taint. Raises
    SelectorError for an unknown operator or effect in a checked toleration, or in the taint.
    """
    _check_known("taint.effect", taint.effect, _EFFECTS)
    for index, toleration in enumerate(tolerations):
        _check_toleration(index, toleration)
        if _covers(toleration, taint):
            return True
    return False


def check_tolerations(tolerations: Sequence[Toleration]) -> None:
    """Raise SelectorError for the first toleration with an unknown operator or effect."""
    for index, toleration in enumerate(tolerations):
        _check_toleration(index, toleration)


def _check_toleration(index: int, toleration: Toleration) -> None:
    _check_known(f"tolerations[{index}].operator", toleration.operator, _TOLERATION_OPERATORS)
    if toleration.effect:
        _check_known(f"tolerations[{index}].effect", toleration.effect, _EFFECTS)


def _covers(toleration: Toleration, taint: Taint) -> bool:
    operator, effect = toleration.operator, toleration.effect
    if (effect and effect != taint.effect) or (toleration.key and toleration.key != taint.key):
        return False
    if operator == EXISTS:
        return True
    if operator in ("", EQUAL):
        return toleration.value == taint.value
    value, bound = _canonical_int64(taint.value), _canonical_int64(toleration.value)
    if value is None or bound is None:
        return False
    return value < bound if operator == LESS else value > bound


# --- syntax of names and values -----------------------------------------------------------------------------------


@lru_cache(maxsize=1 << 14)
def is_qualified_name(text: str) -> bool:
    """Whether a text is a label key: a name of 1 to 63 characters, after an optional DNS subdomain and ``/``."""
    prefix, slash, name = text.rpartition("/")
    if slash and not (len(prefix) <= 253 and _SUBDOMAIN.fullmatch(prefix)):
        return False
    return len(name) <= 63 and _NAME.fullmatch(name) is not None


def is_label_value(text: str) -> bool:
    """Whether a text is a label value: empty, or 1 to 63 characters of a name."""
    return not text or (len(text) <= 63 and _NAME.fullmatch(text) is not None)


def _check_known(field: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise SelectorError(field, value, f"is unknown; allowed are {', '.join(filter(None, allowed))}")


def _among(value: str, ordered: tuple[str, ...]) -> bool:
    if len(ordered) < _BISECT_FROM:
        return value in ordered
    at = bisect_left(ordered, value)
    return at < len(ordered) and ordered[at] == value


def int64_of(text: str) -> int | None:
    """Parse a number as Go's ParseInt in base ten (sign and leading zeros allowed); None for anything else."""
    if len(text) > 64 or not _INT64_TEXT.fullmatch(text):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


def _canonical_int64(text: str) -> int | None:
    return int64_of(text) if _CANONICAL_INT.fullmatch(text) else None
