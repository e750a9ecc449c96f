"""Why a pod was evicted, why another one was not, and what came after: templates of sentences by code."""

from __future__ import annotations

from typing import Final

from vcd.text.templates import Templates

EVICTIONS: Final = Templates(
    {
        # the eviction; "chosen" names the next victim that was not evicted
        "logged": "evicted by {action}: {reason}",
        "moved": "evicted by {action}: {plugins} wants it elsewhere",
        "reclaimed": "evicted by {action} of queue {for_queue}{share}{held}{chosen}",
        "for its job": "evicted by {action} for {for_pod} of its own job{chosen}",
        "for its queue": (
            "evicted by {action} for {for_group} of its own queue {for_queue} (priority {for_priority}, its own"
            " {priority}){chosen}"
        ),
        "dropped": "was to be {eviction}",
        "none": "{kind} {key}: no session evicted it up to {until}",
        "count": "{kind} {key}: {count} up to {until}",
        # quantities of the queues
        "had": "had {had} {resource}",
        "had of limit": "{series} {limit} {resource}, had {had}",
        "held": "{had} {resource}",
        "held of": "{had} {resource} of {limit}",
        "held over": "{had} {resource} over {limit}",
        # details
        "requested": "{who} requested {requested}{lacked}{limits}; this pod freed {freed}",
        "needed": "an eviction was needed: {needed}",
        "ran": "it had run for {span}: that work is lost",
        "permitted": "{plugins} permitted it, as number {place} of {places} in order",
        "difference": "it went before {other}: {difference}",
        "otherwise": "deciding it again does not evict it; vcd replay shows why",
        # why an eviction was needed
        "no capacity": "{nodes} had no capacity",
        "some capacity": "{nodes} had capacity for {fits} of {missing}",
        "usable": "the {nodes} that it may use",
        "usable one": "the only node that it may use",
        "excluded": "; {node}{others} had, and {clause} keeps it out",
        "searched before": "{nodes} examined before could not free enough for it",
        "protected": "{plugin} protected {count}",
        # other possible victims
        "first": "{pod} is evicted first",
        "first because": "{pod} is evicted first: {difference}",
        "too": "is evicted, too",
        "for another": "is evicted for {group}",
        "not helpful": "holds nothing of what the node lacks",
        "not needed": "would be evicted first, but the others free enough",
        # afterwards
        "no call": "it was dropped before any call: {why}",
        "refused": "the call: {result}",
        "not gone": "it is not gone yet",
        "no answer": "the API server has not answered yet",
        "not replaced": "nothing has come in its place",
        "came back": "it came back after {span}",
        "replaced": "{pod} came in its place after {span}",
        "bound": ", and was bound to {node} {span} after the eviction",
        "waits": ", and waits: {reasons}",
    }
)
