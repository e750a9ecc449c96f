"""What a queue uses, who waits in it, and which pods were evicted: templates of sentences by code."""

from __future__ import annotations

from typing import Final

from vcd.text.templates import Templates

QUEUES: Final = Templates(
    {
        "gone": "queue {queue}  does not exist any more",
        "waiting": "{count} waiting",
        "waiting below": "{count} waiting in it and {below} below it",
        "more": "... and {count} more",
        "as of": "{until}, sessions {first} to {last}; --all shows its figures over time",
        "lost": "{pods} of it by {action} for queue {queue}",
        "won": "{pods} for it by {action} of queue {queue}",
        # the statistics and waits over time
        "title": "queue {queue}, sessions {first} to {last}, {span} until {until}",
        "figures": "figures, by deciding {sampled} of {sessions} again:",
        "overused": "  overused for {overused} of {span}",
        "none waited": "none of its jobs waited",
        "none waited below": "none of its jobs waited, nor of those of {below} below it",
        "waited": "{jobs} waited, {waiting} at the end, all together:",
        "waited below": "{jobs} waited in it and in {below} below it, {waiting} at the end, all together:",
        "reason": "  {span} at {reason} ({longest})",
        "reason many": "  {span} at {reason} ({jobs}, longest {longest} with {most})",
        "longest": "waited longest:",
        "job": "  {job}{where} {span}",
        "job still": "  {job}{where} {span}, and still waits: {reasons}",
        "evicted": "{pods} {title}:",
        "evicted pair": "  {pods} of queue {loser} by {action} for queue {winner}",
        "evicted last": "  the last {count} of them:",
        "evicted pod": "  {time}  session {session}: {pod} on {node} for {group}{reason}",
        # the state of a queue
        "no queue": "the queue does not exist",
        "idle": "nothing in use, nothing requested",
        "used of deserved": "{used} of {deserved} {resource} deserved",
        "used": "{used} {resource} in use",
        "resource request": "requested {amount}",
        "resource guarantee": "guarantee {amount}",
        "resource capability": "limit {amount}",
    }
)
