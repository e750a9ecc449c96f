"""The facts of an episode, of a choice of a node, and of the state at the end, for the templates of
`vcd.text.episode_templates`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from vcd.model.controllers import GROUP_NAME
from vcd.model.objects import Pod, PodGroup
from vcd.model.quantity import QuantityError, format_resource
from vcd.model.resource_requests import pod_requests
from vcd.model.wording import counted, some, span_in_words
from vcd.text.amounts import needs, quantities_text
from vcd.text.episode_templates import EPISODES
from vcd.text.reason_sentences import gates_text, reasons_text
from vcd.timetravel.why.jobepisodes import Episode, JobEpisodes, created_at
from vcd.timetravel.why.placement import Placement, Rated

_NAMED = 4
"""Nodes that a sentence names, at most."""


# --- episodes ---------------------------------------------------------------------------------------------------------


def sentence(episode: Episode, story: JobEpisodes) -> str:
    """Return what happened in an episode."""
    one, many = story.only is not None, story.only is None and len(episode.pods) > 1
    shadow, pod = ("shadow" if episode.shadow else "", "pod" if one else "")
    lasting, older = ("lasting" if episode.end is None else "", "older" if episode.older else "")
    flags = {
        "created": ("pod" if one else "pods" if episode.pods else "group",),
        "waited": (lasting, older),
        "dropped": (episode.verb if episode.verb in ("bind", "ungate") else "evict",),
        "outcome": (episode.verb if episode.verb in ("bind", "ungate") else "evict",),
        "found": (episode.detail, "many" if many else ""),
    }.get(episode.what, (shadow, pod, "many" if many else ""))
    return EPISODES.sentence(episode.what, _Facts(episode, story), flags)


class _Facts(dict[str, str]):
    """The facts of an episode by name, computed when a template has the name."""

    def __init__(self, episode: Episode, story: JobEpisodes) -> None:
        self.episode, self.story = episode, story
        number = f"session {episode.session}"
        super().__init__(
            detail=episode.detail,
            why=f": {episode.detail}" if episode.detail else "",
            session=f"{number} ({episode.action})",
            by_session=f" by {number}" if episode.session else "",
            in_session=f" ({number})" if episode.session else "",
            count=counted(len(episode.pods), "pod"),
            for_group=f" for {episode.group}" if episode.group != story.group_key else "",
        )

    def __missing__(self, name: str) -> str:
        found: str = getattr(self, f"_{name}")()
        return found

    def _names(self) -> str:
        """Return pods by name, the first of many; in the history of one pod, the noun alone."""
        keys = self.episode.pods or list(self.episode.places)
        if self.story.only is not None:
            return "the pod"
        return some([key.partition("/")[2] for key in keys]) if keys else "the job"

    def _places(self) -> str:
        """Return pods and their nodes: ``a to n1, b to n2 and 8 more``."""
        if self.story.only is not None:
            return EPISODES.sentence("pod to node", {"node": self.episode.places[self.story.only]})
        return some([f"{key.partition('/')[2]} to {node}" for key, node in self.episode.places.items()])

    def _nodes(self) -> str:
        nodes = sorted(set(self.episode.places.values()))
        return ", ".join(nodes) if len(nodes) <= _NAMED else counted(len(nodes), "node")

    def _where(self) -> str:
        return f" on {self._nodes()}" if self.episode.places else ""

    def _result(self) -> str:
        return EPISODES[f"result {self.episode.result}"]

    def _reasons(self) -> str:
        return gates_text(self.episode.waiting)

    def _at_first(self) -> str:
        first = gates_text(self.episode.waiting_first)
        return "" if first in ("", self._reasons()) else f"; at first {first}"

    def _span(self) -> str:
        end = self.episode.end or self.episode.start
        return span_in_words((end - self.episode.start).total_seconds())

    def _requests(self) -> str:
        pods = [self.story.pods[key] for key in self.episode.pods if key in self.story.pods]
        requests = {_requests_text(pod) for pod in pods}
        each = "each " if len(self.episode.pods) > 1 else ""
        return f", {each}requesting {requests.pop()}" if len(requests) == 1 else ""


def _requests_text(pod: Pod) -> str:
    try:
        requests = pod_requests(pod.spec)
    except QuantityError as error:
        return EPISODES.sentence("unreadable requests", {"error": str(error)})
    amounts = {name: format_resource(name, value) for name, value in requests.items() if value and name != "pods"}
    return quantities_text(amounts) or "no resources"


# --- choices of nodes -------------------------------------------------------------------------------------------------


def reasons(episode: Episode, story: JobEpisodes) -> list[str]:
    """Return why pods were placed on their nodes, each reason once."""
    return list(dict.fromkeys(_why(choice, episode, story) for choice in episode.choices))


def _why(choice: Placement, episode: Episode, story: JobEpisodes) -> str:
    is_one = story.only is not None or len(episode.places) == 1
    refused = ", ".join(f"{counted(count, 'node')} {reason}" for reason, count in choice.refused.items())
    facts = {"who": "it" if is_one else choice.pod.partition("/")[2], "node": choice.node}
    facts |= {"passed": f"{choice.passed}", "nodes": counted(choice.nodes, "node")}
    facts["refused"] = f" ({refused})" if refused else ""
    if choice.node != episode.places[choice.pod]:
        return EPISODES.sentence("choice otherwise", facts)
    if choice.nominated or choice.passed == 1:
        return EPISODES.sentence("choice nominated" if choice.nominated else "choice only", facts)
    return EPISODES.sentence("choice compared", {**facts, "comparison": _compared(choice)})


def _compared(choice: Placement) -> str:
    """Return the comparison of the chosen node with the best other one."""
    chosen = next(one for one in choice.best if one.node == choice.node)
    other = next(one for one in choice.best if one is not chosen)
    facts = {"chosen": chosen.node, "other": other.node, "points": f"{chosen.points:g}"}
    facts |= {"chosen_rates": rates_in_words(chosen), "other_rates": rates_in_words(other)}
    if choice.best[0] is not chosen:
        return EPISODES.sentence("better by plugin", facts)
    if chosen.room_now and not other.room_now:
        return EPISODES.sentence("better by time", facts)
    if chosen.points == other.points:
        return EPISODES.sentence("better by seed" if chosen.scores else "better unrated", facts)
    return EPISODES.sentence("better", facts)


def rates_in_words(rated: Rated) -> str:
    """Return a node's points, and their sum by score."""
    parts = ", ".join(f"{name} {points:g}" for name, points in rated.scores.items() if points)
    return f"{rated.points:g} points" + (f" ({parts})" if parts else "")


# --- the state at the end ---------------------------------------------------------------------------------------------


def present(story: JobEpisodes) -> str:
    """Return the state after the last event, in a sentence."""
    if story.only is not None:
        return _pod_now(story, story.only)
    if story.group is None:
        return EPISODES.sentence("job gone", {})
    phases = _phases(story)
    facts = {"phase": story.phase or "Pending", "pods": _counts(phases) or "no pods", "wait": _why_pending(story)}
    return EPISODES.sentence("job now", facts, ["waits" if story.waits_for or phases["Pending"] else ""])


def state(story: JobEpisodes) -> str:
    """Return the status of its pods after the last event, in a few words: ``3 Running, 1 Pending``."""
    if story.group is None and not story.pods:
        return "gone"
    phases = _phases(story)
    return next(iter(phases), "gone") if story.only is not None else _counts(phases) or "no pods"


def is_terminating(story: JobEpisodes) -> bool:
    """Return whether all of its pods that have not ended are being deleted."""
    left = [phase for phase in _phases(story) if phase not in ("Succeeded", "Failed")]
    return left == ["terminating"]


def pods_without_node(story: JobEpisodes) -> str:
    """Return what its pods without a node request."""
    try:
        return needs([pod_requests(pod.spec) for pod in _pending(story)])
    except QuantityError:
        return ""


def pending_seconds(story: JobEpisodes, now: int) -> float | None:
    """Return the age of the oldest pod without a node at a time (ns), or of the group while it has no pods; None if
    none of these states when it was created."""
    objects: Sequence[Pod | PodGroup] = _pending(story)
    if not story.pods and story.group is not None:
        objects = [story.group]
    created = [created_at(one.metadata.creation_timestamp, 0) for one in objects]
    known = [time for time in created if time > 0]
    return max(now - min(known), 0) / 1e9 if known else None


def _pending(story: JobEpisodes) -> list[Pod]:
    return [pod for pod in story.pods.values() if not pod.spec.node_name and pod.status.phase in ("", "Pending")]


def _phases(story: JobEpisodes) -> Counter[str]:
    return Counter(_pod_state(key, pod, story) for key, pod in story.pods.items())


def _counts(phases: Counter[str]) -> str:
    return ", ".join(f"{count:,} {phase}" for phase, count in sorted(phases.items()))


def _pod_state(key: str, pod: Pod, story: JobEpisodes) -> str:
    phase = pod.status.phase or "Pending"
    if pod.metadata.deletion_timestamp is not None:
        return "terminating"
    if phase != "Pending":
        return phase
    if pod.spec.node_name:
        return "bound"
    return "being bound" if story.is_being_bound(key) else phase


def _why_pending(story: JobEpisodes) -> str:
    if story.waits_for:
        return EPISODES.sentence("wait", {"reasons": reasons_text(story.waits_for)})
    places = [
        f"{key.partition('/')[2]} to {node} (session {session})"
        for (verb, key), (node, session) in story.shadowed.items()
        if verb == "bind" and not story.pods[key].spec.node_name
    ]
    return EPISODES.sentence("wait", {"places": some(places)}, ["shadow" if places else "unknown"])


def _pod_now(story: JobEpisodes, key: str) -> str:
    pod = story.pods.get(key)
    if pod is None:
        return EPISODES.sentence("pod gone", {})
    names, node = story.settings.scheduler_names, pod.spec.node_name
    facts = {"state": _pod_state(key, pod, story), "node": node, "group": story.group_key, "annotation": GROUP_NAME}
    facts |= {"scheduler": pod.spec.scheduler_name, "schedulers": ", ".join(names)}
    if node or story.is_being_bound(key):
        variant = "placed" if node else ""
    elif names and pod.spec.scheduler_name not in names:
        variant = "served"
    elif not pod.group_key:
        variant = "grouped by vcd" if "podgroup" in story.settings.controllers else "grouped"
    elif story.group is None:
        variant = "without group"
    else:
        variant = "waits" if pod.status.phase in ("", "Pending") else ""
        facts["wait"] = _why_pending(story) if variant else ""
    return EPISODES.sentence("pod now", facts, [variant])
