"""Why nothing is evicted for a waiting job, as a phrase."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

SPARED: Final[dict[str, str]] = {
    "victims-protected": "{plugin} protects pods",
    "victims-not-preemptable": 'pods say volcano.sh/preemptable: "false"',
    "victims-not-reclaimable": "queues are not reclaimable",
    "victims-refused": "the API server refused an eviction",
    "victims-immune": "pods replace earlier victims",
    "victims-not-lower": "no job has a lower priority",
    "victims-not-whole": "jobs have no pod to spare, and allowWholeBundle is false",
    "victims-unnamed": "no plugin names victims",
    "never-evicts": "its preemptionPolicy is Never",
    "may-not-reclaim": "its queue would exceed its share",
}
"""Phrases by the code of an eviction action's remark. ``plugin`` is the plugin with the victim rule."""


def spared_in_words(remarks: Iterable[tuple[str, str, str]]) -> str:
    """Return ``nothing: gang protects pods (preempt); queues are not reclaimable (reclaim)`` for the actions, codes
    and plugins of some remarks; empty if none concerns victims."""
    words = [f"{SPARED[code].format(plugin=plugin)} ({action})" for action, code, plugin in remarks if code in SPARED]
    return f"nothing: {'; '.join(dict.fromkeys(words))}" if words else ""
