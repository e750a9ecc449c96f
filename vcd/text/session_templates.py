"""What a session decided, what changed before it, and what became of it: templates of sentences by code."""

from __future__ import annotations

from typing import Final

from vcd.text.templates import Templates

SESSIONS: Final = Templates(
    {
        "session": "session {session} at {now}, decided from event {head} (epoch {epoch})",
        "session shadow": "session {session} at {now}, decided from event {head} by a shadow; nothing was carried out",
        "meanwhile": "{count} came while it was decided",
        "bounded": "a bound on one session's work was reached: the next session goes on with the rest",
        "failed": "running the session again fails with {error}",
        "otherwise": "it comes out otherwise today, and the queues are of that plan: vcd replay tells the difference",
        "shadow began": "nothing of what it decides is done",
        # titles of lists
        "new": "new since session {previous}, {span} before:",
        "new first": "new since the log begins:",
        "decided": "decided:",
        "groups": "groups:",
        "faults": "plugins that failed, and what was decided without them:",
        "outside": "queries outside the cluster:",
        "waits": "changed reasons of waits:",
        "still": "waiting after it:",
        "queues": "queues:",
        "against": "against session {session}, {span} {when}:",
        # lists without items
        "new none": "nothing that a scheduler reads",
        "decided none": "no bind, eviction or nomination",
        "still none": "no group",
        "against none": "the same",
        # items
        "change": "{count} {what}: {names}",
        "more": "... and {count} more",
        "still one": "{count} at {reason}",
        "bind": "{who}: bind {names}",
        "hold": "{who}: hold capacity for {names}",
        "evict": "{who}: evict {names}{reason}",
        "dropped": "  dropped whole before any call: {why}",
        "calls": "  of {count}: {results}",
        "admitted": "{count} admitted: {names}",
        "wait": "{group} waits {now}; before {was}",
        "wait began": "{group} waits from now on {now}",
        "wait ended": "{group} waits no more; before {was}",
        "queue": "{queue}: {after} in use{before}{deserved}",
        "only": "only session {session}: {text}",
        "configuration": "session {session} was decided by another configuration",
        "questions": "{count}, {answered} answered",
        "questions failed": "{count} failed: {error}",
    }
)
