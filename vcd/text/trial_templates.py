"""What a change does, or would have done: templates for the smallest change, bisect and the difference of two jobs."""

from __future__ import annotations

from typing import Final

from vcd.text.templates import Templates

CHANGES: Final = Templates(
    {
        "cordon": "uncordon {nodes}",
        "label": "label {nodes} {subject}",
        "toleration": "tolerate taint {subject}",
        "term": "drop the pods' {subject}",
        "job": "running job {subject} gone",
        "node": "{more} like {subject}",
        "field": "{whose} {subject}'s {field}{steps}{by}",
    }
)
"""A single change, by its kind."""

SMALLEST: Final = Templates(
    {
        "at": "{kind} {key} at session {session} ({time})",
        "found": "smallest change: {change}",
        "change": "{change}: {effect}",
        "none": "no change of {kinds} alone lets it start",
        "tried": "tried: {tried}",
        "ended": "the search ended after {most} decisions; later changes were not tried",
        "tried nodes": "{kind}s of up to {most}",
        "tried types": "up to {most} more of {count} of nodes",
        "tried minimum": "its minimum down to 1",
        "tried tier": "its highest tier up to the whole cluster",
        "tried quotas": "quotas of queue {queue} up to what all jobs ask for",
        "tried capacity": "capacity of {nodes}, each with as much more as the largest node has or a pod asks for",
        "tried priorities": "priorities up to {most}",
        "tried no priority": "no higher priority",
        "tried jobs": "{count} gone",
        "otherwise": "this version decides the session differently; vcd replay shows the difference",
        "memory": (
            "earlier evictions are remembered as they were; in the cluster, a changed queue or node makes the"
            " scheduler forget them, so pods that replaced evicted ones may be evicted, too"
        ),
        "admitted": "its group is admitted; it has no pods yet",
        "bound": "the pod is bound, to {nodes}",
        "bound many": "{count} are bound, to {nodes}",
        "held": "the pod is waiting for capacity that is being freed on {nodes}",
        "held many": "{count} are waiting for capacity that is being freed on {nodes}",
        "evicted only": "  besides, {count} evicted only then: {names}",
        "bound only": "  besides, {count} of other jobs bound only then: {names}",
        "not bound": "  besides, {count} of other jobs no longer bound: {names}",
    }
)
"""The smallest change that lets a job start, and its effect."""

KINDS: Final[dict[str, str]] = {
    "cordon": "cordons",
    "label": "nodes' labels",
    "toleration": "one toleration",
    "term": "one term of the pods",
    "tier": "its highest tier",
    "minimum": "its minimum",
    "node": "the number of nodes",
    "quota": "one queue's quota",
    "room": "one node's capacity",
    "priority": "its priority",
    "job": "one running job",
}
"""What a kind of change concerns."""

BISECTIONS: Final = Templates(
    {
        "without": "  without {change}: {became}",
        "starts": "starts at session {session}",
        "starts not": "does not start",
        "starts unknown": "not tried, as no session of that wait that can be tried had it",
        "started": "it started at session {session}",
        "started never": "it never started",
        "job": "{name} would have started at session {session} ({time}), and {then}: {change} prevented it (verified)",
        "job unchanged": "nothing was changed before a session in which {name} waits; {then}",
        "job oldest": "  changes from before the log began cannot be undone",
        "job none": "none of {changes} prevented the start of {name}: undoing none of them starts it; {then}",
        "job tried": "tried at {sessions} of {waits} in which it waits, in {decisions}",
        "job ended": "note: the search was ended after {most} decisions",
        "waits": "waits {where} would have been {new} instead of {old} without {change} (verified)",
        "waits unchanged": "nothing was changed; waits {where}: {old}",
        "waits none": "none of {changes} made waits {where} longer: {old}",
        "waits effect": "{spans}{never}",
        "waits together": "  {change}: undone together with others, which did not help",
        "waits basis": (
            "{jobs}, {runs} in simulated time: each job is submitted again at its time; one that never starts waits"
            " until the end"
        ),
        "spans": "{p95} (p95; mean {mean})",
    }
)
"""Which edit prevented a start, or made waits longer."""

DIFFERENCES: Final = Templates(
    {
        "sessions": "{one} at session {session} and at session {other_session}",
        "neither": "neither {one} nor {other} started",
        "both": "{one} and {other} both started at session {session}",
        "first": "{one} started at session {session}, {other} did at session {other_session}",
        "first only": "{one} started at session {session}, {other} never did",
        "why": "{what}: {why}",
        "differs": "it differs in {names}",
        "equal": "nothing differs",
        "enough": "{name} is {one} against {other}, and with the same value {job} starts (verified)",
        "waits": "{job} waits: {reasons}",
        "side": "  {name}: it does not wait",
        "side waits": "  {name}: it waits: {reasons}",
        "side verdict": "  {name}, as of session {session}: {verdict}",
        "order": "  order: {order}",
        "no difference": "  they differ in nothing that scheduling reads",
    }
)
"""Why one job started and another did not."""
