"""Which nodes the members of HyperNodes select, and which members are wrong.

A wrong member is left out and reported; it never affects other members (docs/laws.md, law 6). Source: Volcano
``pkg/controllers/hypernode`` and ``api/hyper_node_info.go``.
"""

from __future__ import annotations

import re

import numpy as np

from vcd.model.objects import HyperNodeMember
from vcd.model.selectors import (
    IN,
    LabelSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    SelectorError,
)
from vcd.state.facts import Mask, NodeFacts

NODE, HYPER_NODE = "Node", "HyperNode"

_LONGEST_PATTERN = 1000
_REPEATS = "*+{"


class MemberError(ValueError):
    """A member that selects nothing because it is wrong; the message names field and value."""


def nodes_of(member: HyperNodeMember, facts: NodeFacts) -> Mask | list[int]:
    """Return the nodes that a member of type Node selects, as a mask or as rows. Raises MemberError.

    A name that no node has selects nothing, and neither does a label selector without requirements.
    """
    selector = member.selector
    if selector.exact_match is not None:
        row = facts.row_of.get(selector.exact_match.name)
        return [] if row is None else [row]
    if selector.regex_match is not None:
        pattern = _compile(selector.regex_match.pattern)
        return np.fromiter((pattern.search(name) is not None for name in facts.names), np.bool_, len(facts))
    assert selector.label_match is not None
    return _labelled(selector.label_match, facts)


def check_member(member: HyperNodeMember) -> None:
    """Raise MemberError for a member of unknown type, or without exactly one selector that its type allows."""
    selector = member.selector
    stated = [
        name
        for name, part in (
            ("exactMatch", selector.exact_match),
            ("regexMatch", selector.regex_match),
            ("labelMatch", selector.label_match),
        )
        if part is not None
    ]
    if member.type not in (NODE, HYPER_NODE):
        raise MemberError(f"type: {member.type!r} must be {NODE} or {HYPER_NODE}")
    if len(stated) != 1:
        raise MemberError("selector: it must have exactly one of exactMatch, regexMatch and labelMatch")
    if member.type == HYPER_NODE and selector.exact_match is None:
        raise MemberError(f"selector.{stated[0]}: members of type {HYPER_NODE} need exactMatch")


def _compile(pattern: str) -> re.Pattern[str]:
    """Compile a pattern of Go's syntax, which Python's mostly agrees with.

    What Python reads differently is refused, and so are nested repetitions: Go matches them in linear time, but Python
    may not finish.
    """
    where = f"selector.regexMatch.pattern: {pattern[:_LONGEST_PATTERN]!r}"
    if not pattern:
        raise MemberError(f"{where} is empty")
    if len(pattern) > _LONGEST_PATTERN:
        raise MemberError(f"{where}... is longer than {_LONGEST_PATTERN} characters")
    if "[:" in pattern:
        raise MemberError(f"{where} names a class such as [:digit:]; write [0-9] instead")
    if _repeats_repetition(pattern):
        raise MemberError(f"{where} repeats a group that contains a repetition; write it without the inner one")
    try:
        return re.compile(pattern, re.ASCII)
    except (re.error, OverflowError, RecursionError) as error:
        raise MemberError(f"{where} is no regular expression: {error}") from None


def _repeats_repetition(pattern: str) -> bool:
    """Whether a group that contains a repetition is itself repeated."""
    text = re.sub(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", "x", pattern, flags=re.DOTALL)
    contains_repeat = [False]
    for position, letter in enumerate(text):
        if letter == "(":
            contains_repeat.append(False)
        elif letter == ")" and len(contains_repeat) > 1:
            inner = contains_repeat.pop()
            if inner and text[position + 1 : position + 2] in (*_REPEATS,):
                return True
            contains_repeat[-1] |= inner
        elif letter in _REPEATS:
            contains_repeat[-1] = True
    return False


def _labelled(selector: LabelSelector, facts: NodeFacts) -> Mask:
    if not (selector.match_labels or selector.match_expressions):
        return np.zeros(len(facts), np.bool_)
    try:
        LabelSelector.compile(selector)
    except SelectorError as error:
        raise MemberError(f"selector.labelMatch.{error}") from None
    named = [NodeSelectorRequirement(key, IN, (value,)) for key, value in sorted(selector.match_labels.items())]
    stated = [NodeSelectorRequirement(need.key, need.operator, need.values) for need in selector.match_expressions]
    return facts.matches_term(NodeSelectorTerm(match_expressions=(*named, *stated)))
