"""The order in which queues and jobs are served: templates of sentences by code."""

from __future__ import annotations

from typing import Final

from vcd.text.templates import Templates

ORDERS: Final = Templates(
    {
        "session": "session {session} at {time}, as it began: in which order queues and jobs are served",
        "no queue": "no job waits in any queue",
        "missing": "{why}; its jobs are never served: {names}",
        "queue": "queue {queue}: {count} waiting",
        "queue idle": "queue {queue}: no job waits",
        "more": "and {count} more",
        "first": "{noun} {first} comes before {second}: {why}",
        # why a queue is passed over
        "state": "queue is {state}",
        "overused": "{words} ({plugin})",
        "overused detail": "{words} ({plugin}: {detail})",
    }
)
