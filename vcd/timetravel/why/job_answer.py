"""The short answer about a job or a pod: its state, why it waits, which jobs hold capacity, what would help, its
history."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import chain

import msgspec

from vcd.diagnosis.holders import KEPT
from vcd.model.reasons import Cause
from vcd.model.wording import counted, ordinal, some, span_in_words
from vcd.text.amounts import pods_on_nodes, resource_name
from vcd.text.episode_templates import EPISODES
from vcd.text.job_names import without_uid
from vcd.timetravel.why.counterfactual import Counterfactual
from vcd.timetravel.why.explain import Explanation
from vcd.timetravel.why.jobepisodes import Episode
from vcd.timetravel.why.near_domains import domains_text
from vcd.timetravel.why.obstacles import Obstacles
from vcd.timetravel.why.verdict import Verdict

_WIDTH = 9
"""Width of the labels of the lines."""
_HOLDERS, _AHEAD, _MARKS = 3, 3, 5
"""Names in each list, at most; of more events in the history, those in the middle are counted."""
_TOGETHER = timedelta(seconds=1)
_MOST = 0.9
"""If a smaller share of a wait was examined, the answer states it."""
_OF_SHARES = (
    *(Cause.CLUSTER_FULL, Cause.ORDER, Cause.QUEUE_DESERVED, Cause.QUEUE_CAPABILITY),
    *(Cause.PARENT_LIMIT, Cause.OTHERS_GUARANTEE, Cause.ADMISSION),
)
"""Causes for which the share of the job's queue may matter."""
_EPISODE_WORDS = {
    "created": "created",
    "edited": "changed",
    "admitted": "admitted",
    "bound": "bound",
    "evicted": "evicted",
    "running": "running",
    "succeeded": "succeeded",
    "failed": "failed",
    "gone": "deleted",
    "bad": "could not be read",
}
"""The episodes in the history, with their words."""


def answer_lines(
    story: Explanation,
    verdict: Verdict | None = None,
    obstacles: Obstacles | None = None,
    change: Counterfactual | None = None,
    eta: Sequence[str] = (),
) -> Iterator[str]:
    """Yield the answer in lines: a head, and a line for each part; ``eta`` are the sentences of a forecast."""
    waits = _waits(story, verdict)
    queue = f"queue {story.queue}" if story.queue else ""
    yield "  ".join(filter(None, [without_uid(story.key), _state(story, verdict), queue, _needs_text(story)]))
    parts: list[tuple[str, str]] = []
    if verdict is not None:
        waited = f"waited {span_in_words(verdict.waited)}: " if not waits else ""
        parts.append(("Why" if waits else "Before", _sentence(f"{waited}{verdict.why}")))
        if len(verdict.funnel) > 1:
            parts.append(("Nodes", "; ".join(map(str, verdict.funnel))))
        if verdict.earlier:
            total = span_in_words(verdict.earlier_waited)
            facts = {"waits": counted(verdict.earlier, "wait"), "total": total}
            parts.append(("Earlier", EPISODES.sentence("earlier", facts)))
        if verdict.looked < _MOST:
            parts.append(("Examined", f"{verdict.looked:.0%} of the wait"))
    if obstacles is not None and waits and verdict is not None and verdict.cause != Cause.SHAPE:
        parts += [
            ("Queue", _place(story, obstacles, verdict.cause)),
            ("Held by", _holders(obstacles, verdict.cause)),
            ("Domains", domains_text(obstacles.domains)),
            ("Note", "; ".join(obstacles.remarks) if change is None else ""),
            ("Ahead", _ahead(obstacles)),
            ("Evicts", obstacles.evicts),
        ]
    if change is not None:
        parts.append(("Helps", change.sentence()))
    elif waits and verdict is not None:
        parts.append(("Remedy", verdict.remedy))
    if not waits and (story.state == "gone" or "Pending" in story.state):
        parts.append(("Now", _sentence(story.now)))
    parts += [("Starts", line) for line in eta]
    done = list(_without_failed_binds(story.episodes))
    parts += [*_placed(done), ("History", _history(done)), ("As of", _as_of(story))]
    for name, text in parts:
        if text:
            yield f"{name:<{_WIDTH}}{text}"


def _as_of(story: Explanation) -> str:
    facts = {"as_of": story.as_of, "quiet": span_in_words(round(story.quiet))}
    return EPISODES.sentence("as of", facts, ["quiet" if story.quiet >= 1 else ""])


def _sentence(words: str) -> str:
    first = words.partition(" ")[0]
    return f"{words[:1].upper() if first.islower() else words[:1]}{words[1:]}."


def _waits(story: Explanation, verdict: Verdict | None) -> bool:
    """Return whether it waits at the end; a verdict is about a job, of which a pod may run already."""
    return verdict is not None and verdict.still and (story.kind == "job" or story.state == "Pending")


def _state(story: Explanation, verdict: Verdict | None) -> str:
    if verdict is None or not _waits(story, verdict) or story.terminating:
        return story.state
    if story.pending is not None:
        return f"WAITING {span_in_words(round(story.pending))}"
    return f"WAITING {'at least ' if verdict.older else ''}{span_in_words(verdict.waited)}"


def _needs_text(story: Explanation) -> str:
    """Return what its pods without a node request, and how many pods of a job have to start together."""
    if not story.needs or story.kind == "pod":
        return story.needs
    if story.minimum <= 1:
        return story.needs
    together = "all or nothing" if story.minimum >= story.pods else f"at least {story.minimum} together"
    return f"{story.needs}, {together}"


def _holders(obstacles: Obstacles, cause: str) -> str:
    """Return the jobs that hold most of the missing resource: in the queue or cluster whose limit it is, else on the
    nearest node."""
    limits = [(one.resource, one.held_by) for one in obstacles.limits if one.held_by]
    nodes = [(next(iter(one.lacks), ""), one.held_by) for one in obstacles.nodes if one.held_by]
    if cause == Cause.CLUSTER_FULL and nodes:
        nodes = [(nodes[0][0], obstacles.held_by)]
    resource, held = next(chain(limits, nodes), ("", []))
    names = [f"{without_uid(one.job)} {one.amounts.get(resource, '0')} {resource_name(resource)}" for one in held]
    return some(names, _HOLDERS) if len(names) < KEPT else f"{', '.join(names[:_HOLDERS])} and more"


def _place(story: Explanation, obstacles: Obstacles, cause: str) -> str:
    """Return what its queue has of its deserved share, if that may matter, and the job's position in the queue."""
    place = obstacles.place
    if place is None:
        return ""
    words = []
    if place.deserved not in (None, "0") and cause in _OF_SHARES:
        share = f"{place.allocated} of its deserved {place.deserved} {resource_name(place.resource)}"
        words.append(f"{story.queue} has {share}")
    if place.waiting > 1:
        own = f"{story.key.partition('/')[0]}/"
        before = [
            f"{without_uid(job).removeprefix(own)}{f' (priority {priority})' if priority else ''}"
            for job, priority in reversed(place.before)
        ]
        behind = f", behind {some(before, _AHEAD, place.position - 1)}" if before else ""
        words.append(f"{ordinal(place.position)} of {place.waiting:,} waiting jobs{behind}")
    return "; ".join(words)


def _ahead(obstacles: Obstacles) -> str:
    """Return the jobs that were served before it in its last session."""
    names = [
        f"{without_uid(one.job)}{f' (priority {one.priority})' if one.priority else ''}" for one in obstacles.ahead
    ]
    return some(names, _AHEAD)


def _is_failed_bind(episode: Episode) -> bool:
    return episode.what == "outcome" and episode.verb == "bind" and episode.result not in ("done", "unknown")


def _without_failed_binds(episodes: Sequence[Episode]) -> Iterator[Episode]:
    """Yield the episodes; those of decided binds without the pods whose bind failed."""
    failed = {(one.session, pod) for one in episodes if _is_failed_bind(one) for pod in one.pods}
    for one in episodes:
        if one.what == "bound" and failed:
            places = {pod: node for pod, node in one.places.items() if (one.session, pod) not in failed}
            if places:
                yield msgspec.structs.replace(one, places=places)
        else:
            yield one


def _placed(episodes: Sequence[Episode]) -> Iterator[tuple[str, str]]:
    """Yield where its pods were last bound, or would have been bound by a shadow."""
    last = next((one for one in reversed(episodes) if one.what == "bound"), None)
    if last is not None:
        facts = {"where": pods_on_nodes(last.places.values()), "session": f"{last.session}"}
        words = EPISODES.sentence("placed there", facts, ["shadow" if last.shadow else ""])
        yield "Shadow" if last.shadow else "Placed", words


def _history(episodes: Sequence[Episode]) -> str:
    """Return the first and the last events with their times (UTC); events within a second are joined."""
    marks: list[tuple[datetime, list[str]]] = []
    for one in episodes:
        is_failed = _is_failed_bind(one)
        if (is_failed or one.what in _EPISODE_WORDS) and not one.shadow:
            pods = one.pods or one.places
            word = _EPISODE_WORDS.get(one.what, "")
            words = f"{counted(len(pods), 'pod')} {word}" if pods else word
            if is_failed:
                words = f"{counted(len(pods), 'bind')} failed"
            if not marks or one.start - marks[-1][0] >= _TOGETHER:
                marks.append((one.start, []))
            marks[-1][1].append(words)
    texts = [f"{time:%H:%M:%S} {', '.join(dict.fromkeys(words))}" for time, words in marks]
    if len(texts) > _MARKS:
        texts = [*texts[:2], f"{len(texts) - _MARKS + 1} more", *texts[3 - _MARKS :]]
    return "; ".join(texts)
