"""What conditions and Events state of a wait. Condition of the PodGroup, conditions of its pods and Events of one wait
begin with the same sentence."""

from __future__ import annotations

from collections.abc import Mapping

OWN = "; this pod: "
"""What is before the reason of a single pod."""
_IN_GANG = " tasks in gang unschedulable: "


def unschedulable(missing: int, tasks: int, words: str) -> str:
    """Return the message of the PodGroup's condition Unschedulable, which begins as Volcano's."""
    return f"{missing}/{tasks}{_IN_GANG}{words}"


def sentence_of(message: str) -> str:
    """Return the sentence of such a message."""
    return message.partition(_IN_GANG)[2] or message


def stated(sentence: str, pod: str, own: Mapping[str, str]) -> str:
    """Return what a pod states: the sentence of its group and, where pods of the group wait for different reasons, its
    own one. ``own`` has the reasons by pod."""
    if pod not in own or len(set(own.values())) == 1:
        return sentence
    return f"{sentence}{OWN}{own[pod]}"


def freed_on(node: str) -> str:
    """Return what a pod waits for that other pods are evicted for."""
    return f"waits for capacity that evictions free on node {node}"
