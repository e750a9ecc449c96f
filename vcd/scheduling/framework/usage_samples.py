"""Samples of the real usage of nodes: the answer to the question ``usage``, as stored in the log and the state.

A sample is a JSON object {"at": nanoseconds since the epoch, "source": text, "nodes": {name: {"cpu": percent, "memory":
percent, "at": nanoseconds}}}. Percentages are from 0 to 100. A node has no ``at`` if its source reports none. Usage
that is missing, too old or unreadable is unknown, never zero: a failing monitoring system must not make its nodes look
idle.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from vcd.model.events import Answered
from vcd.scheduling.framework.arguments import format_duration

USAGE = "usage"
"""The question's name in the log."""
FRESH = 5 * 60 * 1_000_000_000
"""Nanoseconds for which a sample is valid (Volcano ``MetricsActiveTime``)."""
_HUNDRED = 100.0
_LATEST = 2**63


class UsageError(ValueError):
    """A sample that cannot be read; the message names field and value."""


class NodeUsage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A node's average use of cpu and memory over the last minutes, in percent of its capacity.

    ``at`` is when its source measured it (ns since the epoch), 0 if unknown.
    """

    cpu: float
    memory: float
    at: int = 0

    def is_fresh(self, now: int) -> bool:
        """Return whether it was measured recently enough to be valid at ``now``."""
        return not self.at or now - self.at <= FRESH


class Samples(msgspec.Struct, frozen=True):
    """One sample: when it was taken (ns since the epoch), its source, and the nodes with known usage."""

    at: int
    source: str
    nodes: Mapping[str, NodeUsage]

    def age(self, now: int) -> int:
        """Return the nanoseconds since it was taken; 0 for a sample from a clock that is ahead."""
        return max(0, now - self.at)

    def is_fresh(self, now: int) -> bool:
        """Return whether it is still valid at ``now``."""
        return self.age(now) <= FRESH


class KnownUsage(msgspec.Struct, frozen=True):
    """The known usage at one time: the nodes' samples. Without any, ``why`` is the cause in fixed words, and ``detail``
    has the particulars."""

    nodes: Mapping[str, NodeUsage]
    why: str = ""
    detail: str = ""


_decoder = msgspec.json.Decoder(Samples)
_encoder = msgspec.json.Encoder(order="deterministic")


def read_samples(answer: bytes) -> Samples:
    """Return the sample in an answer. Raises UsageError naming what is wrong with it."""
    try:
        samples = _decoder.decode(answer)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise UsageError(str(error)) from error
    return checked(samples)


def checked(samples: Samples) -> Samples:
    """Return the sample itself. Raises UsageError for an impossible time or percentage."""
    if not 0 <= samples.at < _LATEST:
        raise UsageError(f"at: {samples.at} is not a time in nanoseconds")
    for name, usage in samples.nodes.items():
        for field, value in (("cpu", usage.cpu), ("memory", usage.memory)):
            if not (math.isfinite(value) and 0 <= value <= _HUNDRED):
                raise UsageError(f"nodes.{name}.{field}: {value} is not from 0 to 100")
        if not 0 <= usage.at < _LATEST:
            raise UsageError(f"nodes.{name}.at: {usage.at} is not a time in nanoseconds")
    return samples


def answered(samples: Samples) -> Answered:
    """Return the event that brings a sample into the log. Raises UsageError."""
    return Answered(USAGE, _encoder.encode(checked(samples)))


def known_usage(answers: Mapping[str, bytes], now: int) -> KnownUsage:
    """Return the usage at ``now`` according to a snapshot's answers."""
    answer = answers.get(USAGE)
    if answer is None:
        return KnownUsage({}, "no sample yet")
    try:
        samples = read_samples(answer)
    except UsageError as error:
        return KnownUsage({}, "the last sample cannot be read", str(error))
    if not samples.is_fresh(now):
        age = format_duration(samples.age(now) // 10**9 * 10**9)
        return KnownUsage({}, "the last sample is too old", f"{age} old, more than {format_duration(FRESH)}")
    fresh = {name: usage for name, usage in samples.nodes.items() if usage.is_fresh(now)}
    if samples.nodes and not fresh:
        return KnownUsage(
            {}, "the last sample is too old", f"all of it was measured more than {format_duration(FRESH)} ago"
        )
    return KnownUsage(fresh)
