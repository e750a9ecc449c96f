"""Reasons as tests give and compare them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from vcd.model.reasons import Cause, Reason, ReasonCode


@cache
def code_of(words: str) -> ReasonCode:
    """A declared code with these words."""
    return ReasonCode(f"test {words}", Cause.PLUGIN, words.replace("{", "{{").replace("}", "}}"))


def because(words: str = "no", names: Mapping[str, str] | None = None) -> Reason:
    """A reason in these words."""
    return code_of(words)(names)


def told(reason: object) -> tuple[str, dict[str, str]] | None:
    """What is told of a reason: its words, and what they do not hold; None of anything else."""
    return (reason.words, reason.detail) if isinstance(reason, Reason) else None


def by_words(counts: Mapping[Reason, int]) -> dict[str, int]:
    """Numbers of nodes by what is said of them."""
    return {reason.words: nodes for reason, nodes in counts.items()}
