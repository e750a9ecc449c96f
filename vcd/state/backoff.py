"""Back-off after refusals: what the API server refused is not tried again before a stated time (docs/laws.md, law 8).

A pod backs off after a refused bind, gate removal or eviction. A gang backs off after it was released because the API
server admitted it only in part. The records are folded from outcomes and sessions, so a replay has the same. Times come
from these events, never from a clock. During its back-off a pod or gang holds no resources and is not tried; afterwards
it comes behind others of equal order. A gang that the API server admitted only in part comes before them (law 3).

The record names the nodes of refused binds, since a webhook or policy may refuse some nodes only. allocate and backfill
try other nodes with idle resources first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from vcd.model.wording import SECOND
from vcd.state.holds import Hold, HoldKind

RELEASE = "release"
"""The action that evicts the bound pods of a gang that the API server admitted only in part."""

NAMESPACE = "namespace"
"""Used as a verb: no operation was refused, but the pod's namespace is held back."""

_FIRST_OF_POD, _LONGEST_OF_POD = 1, 300
"""Seconds. kube-scheduler begins with the same.

Its longest back-off of 10 s would let a preemptor whose evictions are always refused evict others every 10 s.
"""
_FIRST_OF_GANG, _LONGEST_OF_GANG = 60, 3600
"""Seconds, as in Kueue for workloads whose pods were not ready in time (``requeuingStrategy``)."""
_LONGEST_MESSAGE = 200
"""Maximum number of stored characters of the API server's answer."""
_MOST_NODES = 100
"""Maximum number of stored nodes. A pod refused so many times in a row has waited for more than seven hours."""


class RefusalBackoff(msgspec.Struct, frozen=True, omit_defaults=True):
    """A refused operation on the pod or group with ``uid``.

    ``attempts`` counts refusals in a row. It is not tried again before ``until`` (ns since the epoch). ``message`` is
    the last answer of the API server. ``preemptor`` is the key of the PodGroup for which the pod was to be evicted.
    ``nodes`` are the nodes of refused binds, the latest last.
    """

    uid: str
    verb: str
    attempts: int
    until: int
    message: str = ""
    preemptor: str = ""
    nodes: tuple[str, ...] = ()

    @property
    def others_from(self) -> int:
        """When the preemptor may look for other victims after a refused eviction (ns since the epoch).

        Without this, each refusal would start a session that finds the next victim, as fast as the API server can
        refuse it.
        """
        return self.until - (_seconds(self.attempts, _FIRST_OF_POD, _LONGEST_OF_POD) - _FIRST_OF_POD) * SECOND


def after_refusal(
    before: RefusalBackoff | None, uid: str, verb: str, at: int, message: str, preemptor: str = "", node: str = ""
) -> RefusalBackoff:
    """Return the back-off of a pod whose operation was refused at ``at`` (ns since the epoch).

    ``node`` is empty if the refusal does not concern a node.
    """
    found = _next(before, uid, verb, at, message, _FIRST_OF_POD, _LONGEST_OF_POD)
    nodes = before.nodes if before is not None and found.attempts > 1 else ()
    if node:
        nodes = (*[other for other in nodes if other != node], node)[-_MOST_NODES:]
    return msgspec.structs.replace(found, preemptor=preemptor, nodes=nodes)


def after_release(before: RefusalBackoff | None, uid: str, at: int) -> RefusalBackoff:
    """Return the back-off of a gang that the session of ``at`` (ns since the epoch) released."""
    return _next(before, uid, RELEASE, at, "", _FIRST_OF_GANG, _LONGEST_OF_GANG)


def namespace_backoff(until: int) -> RefusalBackoff:
    """Return the back-off of a pod whose namespace is held back because another scheduler binds pods there."""
    return RefusalBackoff("", NAMESPACE, 1, until)


def _next(
    before: RefusalBackoff | None, uid: str, verb: str, at: int, message: str, first: int, longest: int
) -> RefusalBackoff:
    is_repeated = before is not None and (before.uid, before.verb) == (uid, verb)
    attempts = 1 + (before.attempts if before is not None and is_repeated else 0)
    # to the next full second, so that pods that were refused together are tried together
    until = (-(-at // SECOND) + _seconds(attempts, first, longest)) * SECOND
    return RefusalBackoff(uid, verb, attempts, until, message[:_LONGEST_MESSAGE])


def _seconds(attempts: int, first: int, longest: int) -> int:
    return min(first << min(attempts - 1, 16), longest)


def resting_preemptors(backoffs: Iterable[RefusalBackoff], now: int) -> dict[str, int]:
    """Return PodGroups whose last evictions were refused, by key, with the time of their next search for victims.

    Times are in ns since the epoch. Refusals do not affect other PodGroups.
    """
    found: dict[str, int] = {}
    for backoff in backoffs:
        if backoff.preemptor and backoff.others_from > now:  # of an eviction: only evictions have a preemptor
            found[backoff.preemptor] = max(backoff.others_from, found.get(backoff.preemptor, 0))
    return found


def backoff_holds(
    pods: Iterable[tuple[str, str, RefusalBackoff]], gangs: Mapping[str, RefusalBackoff], now: int
) -> Iterator[Hold]:
    """Yield the back-offs that hold at ``now`` (ns since the epoch), pods first.

    Args:
        pods: The key of the group, the key of the pod and its back-off.
        gangs: Back-offs of groups by key.
    """
    for group, pod, backoff in pods:
        if backoff.until > now:
            yield Hold(HoldKind.BACKOFF, group, pod, until=backoff.until)
    for group, backoff in gangs.items():
        if backoff.until > now:
            yield Hold(HoldKind.BACKOFF, group, group, until=backoff.until)
