"""What happened to a job or a pod, why a pod got its node, and the state at the end: templates of sentences by code."""

from __future__ import annotations

from typing import Final

from vcd.model.objects import PodGroup
from vcd.model.wording import counted
from vcd.text.amounts import quantities_text
from vcd.text.templates import Templates

EPISODES: Final = Templates(
    {
        "created": "created",
        "created group": "created: {detail}",
        "created pod": "created{requests}",
        "created pods": "{count} created: {names}{requests}",
        "edited": "the group was changed: {detail}",
        "waited": "waited {span} {reasons}{at_first}",
        "waited older": "waited at least {span} {reasons}{at_first}",
        "waited lasting": "waits {reasons}{at_first}",
        "waited lasting older": "waits already {reasons}{at_first}",
        "admitted": "admitted{by_session}",
        "admitted pod": "its job was admitted{by_session}",
        "admitted shadow": "would have been admitted{by_session}",
        "admitted shadow pod": "its job would have been admitted{by_session}",
        "phase": "the job is {detail}{in_session}",
        "bound": "{session} bound {places}",
        "bound shadow": "{session} would have bound {places}",
        "held": "{session} holds capacity that is being freed: {places}",
        "held shadow": "{session} would hold capacity that it would free: {places}",
        "evicted": "{session} evicted {names} from {nodes}{for_group}{why}",
        "evicted shadow": "{session} would have evicted {names} from {nodes}{for_group}{why}",
        "ungated": "{session} found capacity in the queue for {names}, and lifts the gate",
        "ungated shadow": "{session} found capacity in the queue for {names}, and would lift the gate",
        "dropped bind": "{session} dropped binding {names} before any call: {detail}",
        "dropped ungate": "{session} dropped lifting the gate of {names} before any call: {detail}",
        "dropped evict": "{session} dropped evicting {names} before any call: {detail}",
        "outcome bind": "bind of {names}: {result}{why}",
        "outcome ungate": "lifting the gate of {names}: {result}{why}",
        "outcome evict": "eviction of {names}: {result}{why}",
        "placed": "{names} was placed by another scheduler{where}{why}",
        "placed many": "{names} were placed by another scheduler{where}{why}",
        "found": "{names} was on {nodes} already when the log first shows it",
        "found many": "{names} were on {nodes} already when the log first shows them",
        "found Running": "{names} ran on {nodes} already when the log first shows it",
        "found Running many": "{names} ran on {nodes} already when the log first shows them",
        "found Succeeded": "{names} had succeeded on {nodes} already when the log first shows it",
        "found Succeeded many": "{names} had succeeded on {nodes} already when the log first shows them",
        "found Failed": "{names} had failed on {nodes} already when the log first shows it",
        "found Failed many": "{names} had failed on {nodes} already when the log first shows them",
        "running": "{names} runs{where}{why}",
        "running many": "{names} run{where}{why}",
        "succeeded": "{names} succeeded{where}{why}",
        "failed": "{names} failed{where}{why}",
        "leaving": "{names} is being deleted{where}{why}",
        "leaving many": "{names} are being deleted{where}{why}",
        "gone": "{names} is gone{where}{why}",
        "gone many": "{names} are gone{where}{why}",
        "bad": "{names} is set aside{where}{why}",
        "bad many": "{names} are set aside{where}{why}",
        "pod to node": "the pod to {node}",
        "unreadable requests": "what cannot be read ({error})",
        # the short answer
        "as of": "{as_of}",
        "as of quiet": "{as_of}; the last event was {quiet} before",
        "placed there": "{where}, session {session}",
        "placed there shadow": "would have bound it to {where}, session {session}",
        "earlier": "{waits} of {total} in all",
        # the answer of the API server
        "result done": "done by the API server",
        "result conflict": "refused by the API server as a conflict",
        "result gone": "the pod was gone",
        "result failed": "failed",
        "result unknown": "no answer; it is looked at again",
        # the choice of a node
        "choice otherwise": "deciding it again puts {who} on {node}; vcd replay shows why",
        "choice nominated": "capacity had been freed for {who} on {node}",
        "choice only": "{passed} of {nodes} took {who}{refused}",
        "choice compared": "{passed} of {nodes} took {who}{refused}: {comparison}",
        "better by plugin": "a plugin chose {chosen} over {other}, which rates {other_rates} against {chosen_rates}",
        "better by time": "{chosen} has free capacity now, {other} only after its pods terminate",
        "better by seed": (
            "{chosen} and {other} rate {points} points alike, and {chosen} comes first in the seeded order"
        ),
        "better unrated": (
            "{chosen} and {other} are not rated by any plugin, and {chosen} comes first in the seeded order"
        ),
        "better": "{chosen} rates {chosen_rates}, {other} {other_rates}",
        # the state at the end
        "job gone": "the job does not exist any more",
        "job now": "the job is {phase} with {pods}",
        "job now waits": "the job is {phase} with {pods}; {wait}",
        "pod gone": "the pod does not exist any more",
        "pod now": "the pod is {state}",
        "pod now placed": "the pod is {state} on {node}",
        "pod now waits": "the pod is {state}; {wait}",
        "pod now served": (
            "the pod is {state}; its schedulerName is {scheduler}, and this scheduler serves {schedulers}"
        ),
        "pod now without group": "the pod is {state}; its PodGroup {group} does not exist",
        "pod now grouped by vcd": (
            "the pod is {state}; it has no annotation {annotation}, so it is in no group that a session could place;"
            " vcd creates its PodGroup next, or reports in an Event of the pod why it cannot"
        ),
        "pod now grouped": (
            "the pod is {state}; it has no annotation {annotation}, so it is in no group that a session could place;"
            " Volcano's controllers create its PodGroup; without them, vcd run --controllers=podgroup does"
        ),
        "wait": "it waits: {reasons}",
        "wait shadow": "vcd, which is a shadow here, would have bound {places}; the active scheduler did not",
        "wait unknown": "no session has stated why it waits",
    }
)
"""A flag selects a variant: shadow (decided, not done), pod (the history of one pod), many (pods)."""


def group_text(group: PodGroup) -> str:
    """Return what a PodGroup's spec states about its pods: queue, minimum and priority class."""
    words = f"queue {group.spec.queue or 'not named'}, at least {counted(group.spec.min_member, 'pod')} together"
    minimum = group.spec.min_resources
    if minimum:
        words += f", minimum {quantities_text({name: str(value) for name, value in minimum.items()})}"
    priority = group.spec.priority_class_name
    return f"{words}, priority class {priority}" if priority else words
