"""The text of conditions and Events about a wait. The PodGroup's condition, the conditions of its pods and the Events
of one wait begin with the same sentence."""

from __future__ import annotations

from collections.abc import Mapping

OWN = "; this pod: "
"""The text before the reason of a single pod."""
_IN_GANG = " tasks in gang unschedulable: "


def unschedulable(missing: int, tasks: int, words: str) -> str:
    """Return the message of the PodGroup's condition Unschedulable, which begins as Volcano's."""
    return f"{missing}/{tasks}{_IN_GANG}{words}"


def sentence_of(message: str) -> str:
    """Return the sentence of such a message."""
    return message.partition(_IN_GANG)[2] or message


def stated(sentence: str, pod: str, own: Mapping[str, str]) -> str:
    """Return the text of a pod's condition: the sentence of its group and, if pods of the group wait for different
    reasons, the pod's own reason. ``own`` maps pods to reasons."""
    if pod not in own or len(set(own.values())) == 1:
        return sentence
    return f"{sentence}{OWN}{own[pod]}"


def freed_on(node: str) -> str:
    """Return why a pod waits whose capacity evictions are freeing."""
    return f"waits for capacity that evictions free on node {node}"
