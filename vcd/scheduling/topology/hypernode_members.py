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
from vcd.state.node_facts import Mask, NodeFacts

NODE, HYPER_NODE = "Node", "HyperNode"

_LONGEST_PATTERN = 1000
_SINGLE, _CHOICE, _REPETITION = range(3)
"""In how many ways a part of a pattern may match one text: one; a few; as many as the text is long."""
_REPEATED = re.compile(r"[*+{]")
_REPEATED_OFTEN = re.compile(r"[*+]|\{(?!\d\})")


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
        pattern = compile_pattern(selector.regex_match.pattern)
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


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a pattern of Go's syntax, which Python's mostly agrees with.

    What Python reads differently is refused, and so are repeated repetitions and choices: Go matches them in linear
    time, but Python may not finish. Raises MemberError.
    """
    where = f"selector.regexMatch.pattern: {pattern[:_LONGEST_PATTERN]!r}"
    if not pattern:
        raise MemberError(f"{where} is empty")
    if len(pattern) > _LONGEST_PATTERN:
        raise MemberError(f"{where}... is longer than {_LONGEST_PATTERN} characters")
    if "[:" in pattern:
        raise MemberError(f"{where} names a class such as [:digit:]; write [0-9] instead")
    if _repeats_choice(pattern):
        raise MemberError(
            f"{where} repeats a group that contains a repetition or a choice; write it without the inner one, or as a"
            " class such as [ab]"
        )
    try:
        return re.compile(pattern, re.ASCII)
    except (re.error, OverflowError, RecursionError) as error:
        raise MemberError(f"{where} is no regular expression: {error}") from None


def _repeats_choice(pattern: str) -> bool:
    """Whether a repeated group contains a repetition, alternatives or an optional part.

    A group that contains no repetition may be repeated a fixed number of times below 10.
    """
    text = re.sub(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", "x", pattern, flags=re.DOTALL).replace("(?", "(")
    inner = [_SINGLE]
    for position, letter in enumerate(text):
        if letter == "(":
            inner.append(_SINGLE)
        elif letter == ")" and len(inner) > 1:
            found = inner.pop()
            limit = _REPEATED if found == _REPETITION else _REPEATED_OFTEN
            if found != _SINGLE and limit.match(text, position + 1):
                return True
            inner[-1] = max(inner[-1], found)
        elif letter in "|?":
            inner[-1] = max(inner[-1], _CHOICE)
        elif _REPEATED.match(letter):
            inner[-1] = _REPETITION
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
