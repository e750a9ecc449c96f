"""Reasons and amounts in words, for messages, Events, conditions and reports."""

from __future__ import annotations

from collections.abc import Mapping

from vcd.model.events import Waiting


def quantities_in_words(amounts: Mapping[str, str]) -> str:
    """``cpu 4, memory 8Gi``."""
    return ", ".join(f"{name} {amount}" for name, amount in amounts.items())


def reason_in_words(waiting: Waiting) -> str:
    """A reason with its numbers, without the group and the gate: ``3 nodes Insufficient cpu (asks cpu 4)``."""
    words = waiting.reason
    if waiting.nodes:
        words = f"{counted(waiting.nodes, 'node')} {words}"
    detail = quantities_in_words({name: text for name, text in waiting.detail.items() if name != "message"})
    message = waiting.detail.get("message")
    if message:
        words = f"{words}: {message}"
    return f"{words} ({detail})" if detail else words


def counted(count: int, noun: str) -> str:
    """``1 node``, ``1,000 nodes``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
