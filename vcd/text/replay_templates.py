"""Where a plan differs when a session is decided again, and why a shadow leaves a pod waiting: templates by code."""

from __future__ import annotations

from typing import Final

from vcd.text.templates import Templates

REPLAYS: Final = Templates(
    {
        "difference": "{where}: recorded {recorded}; replayed {replayed}",
        "recorded plan": "the recorded plan",
        "unreadable": "{size} bytes that this version cannot read: {error}",
        "encoded plan": "the encoded plan",
        "size": "{size} bytes",
        "same content": "{size} bytes with the same content",
        "statement": "{action} for {group} with {count} operations",
        "statement first": "{action} for {group} with {count} operations, first {operation}",
        # the scores of the nodes of then and of now
        "other node": "evaluated one by one, {pod} goes to {node}: {cause}",
        "impure": "a plugin is not pure",
        "other rules": "it was decided by rules {rules}",
        "nominated": "{node} has the capacity that an earlier eviction freed for {pod}",
        "rates": "{node} rates {rates} now",
        "node absent": "no node {node} was there",
        "refused": "{node} does not take {pod} now ({refused})",
        # a shadow
        "held": "waits for capacity that session {session} would have freed on {node} by evictions",
    }
)
