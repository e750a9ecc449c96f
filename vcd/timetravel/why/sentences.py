"""The episodes of a story as sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from vcd.model.controllers import GROUP_NAME
from vcd.model.objects import Pod, PodGroup
from vcd.model.quantity import QuantityError, format_resource
from vcd.model.requests import pod_requests
from vcd.model.words import counted, some, span_in_words
from vcd.text.amounts import needs, quantities_text
from vcd.text.reasons import gates_text, reasons_text
from vcd.timetravel.why.placement import Placement, Rated
from vcd.timetravel.why.story import Episode, Story, created_at

_NAMED = 4
"""Nodes that a sentence names, at most."""


def sentence(episode: Episode, story: Story) -> str:
    """Return what happened in an episode."""
    return _SENTENCES[episode.what](episode, story)


def present(story: Story) -> str:
    """Return the state after the last event, in a sentence."""
    if story.only is not None:
        return _pod_now(story, story.only)
    if story.group is None:
        return "the job does not exist any more"
    phases = Counter(_standing(key, pod, story) for key, pod in story.pods.items())
    pods = ", ".join(f"{count} {standing}" for standing, count in sorted(phases.items()))
    words = f"the job is {story.phase or 'Pending'} with {pods or 'no pods'}"
    return f"{words}; {_why_pending(story)}" if story.waits_for or phases["Pending"] else words


def state(story: Story) -> str:
    """Return the status of its pods after the last event, in a few words: ``3 Running, 1 Pending``."""
    if story.group is None and not story.pods:
        return "gone"
    phases = Counter(_standing(key, pod, story) for key, pod in story.pods.items())
    if story.only is not None:
        return next(iter(phases), "gone")
    return ", ".join(f"{count:,} {standing}" for standing, count in sorted(phases.items())) or "no pods"


def pods_without_node(story: Story) -> str:
    """Return what its pods without a node request."""
    try:
        return needs([pod_requests(pod.spec) for pod in _pending(story)])
    except QuantityError:
        return ""


def pending_seconds(story: Story, now: int) -> float | None:
    """Return the age of the oldest pod without a node at a time (ns), or of the group while it has no pods; None if
    none of these states when it was created."""
    objects: Sequence[Pod | PodGroup] = _pending(story)
    if not story.pods and story.group is not None:
        objects = [story.group]
    created = [created_at(one.metadata.creation_timestamp, 0) for one in objects]
    known = [time for time in created if time > 0]
    return max(now - min(known), 0) / 1e9 if known else None


def _pending(story: Story) -> list[Pod]:
    return [pod for pod in story.pods.values() if not pod.spec.node_name and pod.status.phase in ("", "Pending")]


def _why_pending(story: Story) -> str:
    wait = story.waits_for
    if wait:
        return f"it waits: {reasons_text(wait)}"
    would = {
        key: where
        for (verb, key), where in story.shadowed.items()
        if verb == "bind" and not story.pods[key].spec.node_name
    }
    if would:
        places = some(
            [f"{key.partition('/')[2]} to {node} (session {session})" for key, (node, session) in would.items()]
        )
        return f"vcd, which is a shadow here, would have bound {places}; the scheduler that is there did not"
    return "no session has said yet why it waits"


def _pod_now(story: Story, key: str) -> str:
    pod = story.pods.get(key)
    if pod is None:
        return "the pod does not exist any more"
    words = f"the pod is {_standing(key, pod, story)}"
    if pod.spec.node_name or story.is_being_bound(key):
        return f"{words} on {pod.spec.node_name}" if pod.spec.node_name else words
    names = story.settings.scheduler_names
    if names and pod.spec.scheduler_name not in names:
        return f"{words}; its schedulerName is {pod.spec.scheduler_name}, and this scheduler serves {', '.join(names)}"
    if not pod.group_key:
        lacks = f"it has no annotation {GROUP_NAME}, so it is in no group that a session could place"
        return f"{words}; {lacks}; {_group_controller_hint(story)}"
    if story.group is None:
        return f"{words}; its group {story.group_key} is not there"
    return f"{words}; {_why_pending(story)}" if pod.status.phase in ("", "Pending") else words


def _group_controller_hint(story: Story) -> str:
    """Return what happens to a pod without a group."""
    if "podgroup" in story.settings.controllers:
        return "vcd makes its PodGroup next, and tells in an Event of the pod where it cannot"
    return "Volcano's controllers make its PodGroup; where they do not run, vcd run --controllers=podgroup does"


def _standing(key: str, pod: Pod, story: Story) -> str:
    phase = pod.status.phase or "Pending"
    if pod.metadata.deletion_timestamp is not None:
        return "leaving"
    if phase != "Pending":
        return phase
    if pod.spec.node_name:
        return "bound"
    return "being bound" if story.is_being_bound(key) else phase


# --- names ------------------------------------------------------------------------------------------------------------


def _names(keys: Iterable[str], story: Story) -> str:
    """Return pods by name, the first of many; in the story of one pod, the noun alone."""
    return "the pod" if story.only is not None else some([key.partition("/")[2] for key in keys])


def _placed(episode: Episode, story: Story) -> str:
    """Return pods and their nodes: ``a to n1, b to n2 and 8 more``."""
    if story.only is not None:
        return f"the pod to {episode.places[story.only]}"
    return some([f"{key.partition('/')[2]} to {node}" for key, node in episode.places.items()])


def _nodes(episode: Episode) -> str:
    nodes = sorted(set(episode.places.values()))
    return ", ".join(nodes) if len(nodes) <= _NAMED else counted(len(nodes), "node")


# --- sentences --------------------------------------------------------------------------------------------------------


def _created(episode: Episode, story: Story) -> str:
    if not episode.pods:
        return f"created: {episode.detail}"
    requests = {_requests_text(story.pods[key]) for key in episode.pods if key in story.pods}
    each = "each " if len(episode.pods) > 1 else ""
    wants = f", {each}requesting {requests.pop()}" if len(requests) == 1 else ""
    count = "" if story.only is not None else f"{counted(len(episode.pods), 'pod')} created: "
    return f"{count}{_names(episode.pods, story)}{wants}" if count else f"created{wants}"


def _edited(episode: Episode, story: Story) -> str:
    return f"the group was changed: {episode.detail}"


def _requests_text(pod: Pod) -> str:
    try:
        requests = pod_requests(pod.spec)
    except QuantityError as error:
        return f"what cannot be read ({error})"
    amounts = {name: format_resource(name, value) for name, value in requests.items() if value and name != "pods"}
    return quantities_text(amounts) or "no resources"


def _waited(episode: Episode, story: Story) -> str:
    if episode.end is None:
        verb = "waits already" if episode.older else "waits"
    else:
        span = span_in_words((episode.end - episode.start).total_seconds())
        verb = f"waited at least {span}" if episode.older else f"waited {span}"
    words = f"{verb} {gates_text(episode.waiting)}"
    first = gates_text(episode.waiting_first)
    return words if first in ("", gates_text(episode.waiting)) else f"{words}; at first {first}"


def _admitted(episode: Episode, story: Story) -> str:
    by = f" by session {episode.session}" if episode.session else ""
    if episode.shadow:
        return f"{'' if story.only is None else 'its job '}would have been admitted{by}"
    return f"{'admitted' if story.only is None else 'its job was admitted'}{by}"


def _phase(episode: Episode, story: Story) -> str:
    by = f" (session {episode.session})" if episode.session else ""
    return f"the job is {episode.detail}{by}"


def _bound(episode: Episode, story: Story) -> str:
    return f"{_by(episode)} {_would(episode, 'have bound', 'bound')} {_placed(episode, story)}"


def _by(episode: Episode) -> str:
    return f"session {episode.session} ({episode.action})"


def _would(episode: Episode, have: str, did: str) -> str:
    """Return what a session did, or what a shadow's session would have done."""
    return f"would {have}" if episode.shadow else did


def reasons(episode: Episode, story: Story) -> list[str]:
    """Return why pods were placed on their nodes, each reason once."""
    return list(dict.fromkeys(_why(choice, episode, story) for choice in episode.choices))


def _why(choice: Placement, episode: Episode, story: Story) -> str:
    name = choice.pod.partition("/")[2]
    who = "it" if story.only is not None or len(episode.places) == 1 else name
    if choice.node != episode.places[choice.pod]:
        return f"deciding it again puts {who} on {choice.node}: vcd replay tells why it differs"
    if choice.nominated:
        return f"capacity had been freed for {who} on {choice.node}"
    refused = ", ".join(f"{counted(count, 'node')} {reason}" for reason, count in choice.refused.items())
    took = f"{choice.passed} of {counted(choice.nodes, 'node')} took {who}" + (f" ({refused})" if refused else "")
    if choice.passed == 1:
        return took
    return f"{took}: {_compared(choice)}"


def _compared(choice: Placement) -> str:
    """Return the comparison of the chosen node with the best other one."""
    chosen = next(one for one in choice.best if one.node == choice.node)
    other = next(one for one in choice.best if one is not chosen)
    if choice.best[0] is not chosen:
        rates = f"{rates_in_words(other)} against {rates_in_words(chosen)}"
        return f"a plugin chose {chosen.node} over {other.node}, which rates {rates}"
    if chosen.room_now and not other.room_now:
        return f"{chosen.node} has free capacity now, {other.node} only after its pods terminate"
    if chosen.points == other.points:
        rates = f"rate {chosen.points:g} points alike" if chosen.scores else "are not rated by any plugin"
        return f"{chosen.node} and {other.node} {rates}, and {chosen.node} comes first in the seeded order"
    return f"{chosen.node} rates {rates_in_words(chosen)}, {other.node} {rates_in_words(other)}"


def rates_in_words(rated: Rated) -> str:
    """Return a node's points, and their sum by score."""
    parts = ", ".join(f"{name} {points:g}" for name, points in rated.scores.items() if points)
    return f"{rated.points:g} points" + (f" ({parts})" if parts else "")


def _held(episode: Episode, story: Story) -> str:
    holds = _would(episode, "hold capacity that it would free", "holds capacity that is being freed")
    return f"{_by(episode)} {holds}: {_placed(episode, story)}"


def _evicted(episode: Episode, story: Story) -> str:
    who = _names(episode.places, story)
    other = f" for {episode.group}" if episode.group != story.group_key else ""
    reason = f": {episode.detail}" if episode.detail else ""
    evicted = _would(episode, "have evicted", "evicted")
    return f"{_by(episode)} {evicted} {who} from {_nodes(episode)}{other}{reason}"


def _ungated(episode: Episode, story: Story) -> str:
    who = _names(episode.places, story)
    lifts = _would(episode, "lift the gate", "lifts the gate")
    return f"{_by(episode)} found capacity in the queue for {who}, and {lifts}"


def _dropped(episode: Episode, story: Story) -> str:
    verb = {"bind": "binding", "ungate": "lifting the gate of"}.get(episode.verb, "evicting")
    who = _names(episode.places, story)
    return f"session {episode.session} ({episode.action}) dropped {verb} {who} before any call: {episode.detail}"


def _outcome(episode: Episode, story: Story) -> str:
    what = {"bind": "bind", "ungate": "lifting the gate"}.get(episode.verb, "eviction")
    detail = f": {episode.detail}" if episode.detail else ""
    return f"{what} of {_names(episode.pods, story)}: {_RESULTS[episode.result]}{detail}"


_RESULTS = {
    "done": "done by the API server",
    "conflict": "refused by the API server as a conflict",
    "gone": "the pod was gone",
    "failed": "failed",
    "unknown": "no answer; it is looked at again",
}


def _pods_sentence(verb: str, plural: str) -> Callable[[Episode, Story], str]:
    """Return a function for sentences about pods that do the same."""

    def describe(episode: Episode, story: Story) -> str:
        many = story.only is None and len(episode.pods) > 1
        place = f" on {_nodes(episode)}" if episode.places else ""
        detail = f": {episode.detail}" if episode.detail else ""
        if not episode.pods:
            return f"the job {verb}{detail}"
        return f"{_names(episode.pods, story)} {plural if many else verb}{place}{detail}"

    return describe


def _found_sentence(episode: Episode, story: Story) -> str:
    """Return the sentence about pods with a node in their first event: the log does not show which scheduler placed
    them."""
    did = {"Running": "ran", "Succeeded": "had succeeded", "Failed": "had failed"}.get(episode.detail)
    one = story.only is not None or len(episode.pods) == 1
    did, them = did or ("was" if one else "were"), "it" if one else "them"
    return f"{_names(episode.pods, story)} {did} on {_nodes(episode)} already when the log first shows {them}"


_SENTENCES: dict[str, Callable[[Episode, Story], str]] = {
    "created": _created,
    "edited": _edited,
    "waited": _waited,
    "admitted": _admitted,
    "phase": _phase,
    "bound": _bound,
    "held": _held,
    "evicted": _evicted,
    "ungated": _ungated,
    "dropped": _dropped,
    "outcome": _outcome,
    "placed": _pods_sentence("was placed by another scheduler", "were placed by another scheduler"),
    "found": _found_sentence,
    "running": _pods_sentence("runs", "run"),
    "succeeded": _pods_sentence("succeeded", "succeeded"),
    "failed": _pods_sentence("failed", "failed"),
    "leaving": _pods_sentence("is being deleted", "are being deleted"),
    "gone": _pods_sentence("is gone", "are gone"),
    "bad": _pods_sentence("is set aside", "are set aside"),
}
