"""Selectors over labels, node selector terms, taints and tolerations."""

from __future__ import annotations

from typing import Any

Labels = dict[str, str]


class SelectorError(ValueError):
    """A selector that the API would not have admitted."""


class Selector:
    """A conjunction of requirements; `nothing` matches no labels, no requirement matches all."""

    def __init__(self, requirements: list[tuple[str, str, list[str]]], nothing: bool = False) -> None:
        self.requirements, self.nothing = requirements, nothing

    @property
    def empty(self) -> bool:
        return not self.nothing and not self.requirements

    def matches(self, labels: Labels) -> bool:
        return not self.nothing and all(_holds(labels, key, op, values) for key, op, values in self.requirements)

    def plus(self, requirements: list[tuple[str, str, list[str]]]) -> Selector:
        return Selector(self.requirements + requirements, self.nothing)


def label_selector(spec: dict[str, Any] | None) -> Selector:
    """Of a LabelSelector; absent selects nothing, empty everything."""
    if spec is None:
        return Selector([], nothing=True)
    found = [(k, "In", [v]) for k, v in (spec.get("matchLabels") or {}).items()]
    for expression in spec.get("matchExpressions") or []:
        operator = expression.get("operator")
        if operator not in ("In", "NotIn", "Exists", "DoesNotExist"):
            raise SelectorError(f"{operator!r} is not a label selector operator")
        found.append((expression["key"], operator, list(expression.get("values") or [])))
    return Selector(found)


def node_term_matches(term: dict[str, Any], name: str, labels: Labels) -> bool:
    """One node selector term; an empty one, or one with an unknown operator, matches no node."""
    expressions, fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    if not expressions and not fields:
        return False
    known = {"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"}
    if any(e.get("operator") not in known for e in expressions):
        return False
    if not all(_holds(labels, e["key"], e["operator"], list(e.get("values") or [])) for e in expressions):
        return False
    return all(_field_holds(field, name) for field in fields)


def node_terms_match(terms: list[dict[str, Any]], name: str, labels: Labels) -> bool:
    return any(node_term_matches(term, name, labels) for term in terms)


def tolerates(tolerations: list[dict[str, Any]], taint: dict[str, Any]) -> bool:
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def untolerated(taints: list[dict[str, Any]], tolerations: list[dict[str, Any]]) -> bool:
    """Whether a taint that keeps pods off (NoSchedule, NoExecute) is not tolerated."""
    hard = [t for t in taints if t.get("effect") in ("NoSchedule", "NoExecute")]
    return any(not tolerates(tolerations, taint) for taint in hard)


def _tolerates(toleration: dict[str, Any], taint: dict[str, Any]) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint.get("key"):
        return False
    operator = toleration.get("operator") or "Equal"
    if operator == "Equal":
        return (toleration.get("value") or "") == (taint.get("value") or "")
    return bool(operator == "Exists")


def _holds(labels: Labels, key: str, operator: str, values: list[str]) -> bool:
    present = key in labels
    if operator == "In":
        return present and labels[key] in values
    if operator == "NotIn":
        return not present or labels[key] not in values
    if operator == "Exists":
        return present
    if operator == "DoesNotExist":
        return not present
    return present and _compares(labels[key], operator, values)


def _compares(label: str, operator: str, values: list[str]) -> bool:
    try:
        left, right = int(label), int(values[0])
    except (ValueError, IndexError):
        return False
    return left > right if operator == "Gt" else left < right


def _field_holds(field: dict[str, Any], name: str) -> bool:
    values = list(field.get("values") or [])
    if field.get("operator") not in ("In", "NotIn") or len(values) != 1:
        return False
    value = name if field.get("key") == "metadata.name" else ""
    return bool((value == values[0]) == (field["operator"] == "In"))
