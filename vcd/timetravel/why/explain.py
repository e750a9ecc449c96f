"""The story of a job or a pod from a log: its waits and their reasons, and its placement and the reasons for it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from vcd.eventlog import LogError, LogReader
from vcd.model.events import ObjectGone
from vcd.text.session_templates import SESSIONS
from vcd.text.time_formats import moment
from vcd.timetravel.history import WHOLE, History, LogWindow
from vcd.timetravel.query_errors import NotFound
from vcd.timetravel.why.episodefacts import (
    is_terminating,
    pending_seconds,
    pods_without_node,
    present,
    reasons,
    sentence,
    state,
)
from vcd.timetravel.why.job_waits import every_wait
from vcd.timetravel.why.jobepisodes import Episode, JobEpisodes
from vcd.timetravel.why.name_lookup import Kind, named
from vcd.timetravel.why.placement import choices

CHOICES = 3
"""Pods of a job, per session, whose choice of a node is explained, at most."""

_WIDTH = len("2026-01-01 00:00:00 - 00:00:00")


class Explanation(msgspec.Struct, omit_defaults=True):
    """The story of a job (a PodGroup and its pods) or of a pod.

    ``key`` and ``group`` are ``namespace/name``; ``now`` describes in a sentence the state at ``until``, the time of
    the last examined event (RFC 3339), and ``state`` in a few words. ``needs`` is what its pods without a node
    request; of its ``pods`` a job needs ``minimum`` together. ``pending`` is the age (seconds) of the oldest pod
    without a node, or of the group while it has no pods, up to ``as_of`` (RFC 3339): now for a log that is being
    written, which is ``quiet`` seconds after ``until``.
    """

    kind: Kind
    key: str
    group: str
    queue: str
    until: str
    now: str
    episodes: list[Episode]
    state: str = ""
    terminating: bool = False
    """Whether all of its pods that have not ended are being deleted."""
    needs: str = ""
    pods: int = 0
    minimum: int = 0
    pending: float | None = None
    as_of: str = ""
    quiet: float = 0.0

    def lines(self) -> Iterator[str]:
        """Yield the explanation in sentences, with times in UTC."""
        yield f"{self.kind} {self.key}" + (f" in queue {self.queue}" if self.queue else "")
        for episode in self.episodes:
            yield f"  {_span(episode)}  {episode.text}"
            yield from (f"  {'':{_WIDTH}}    {why}" for why in episode.why)
        yield f"{self.until}: {self.now}"


def _span(episode: Episode) -> str:
    start = f"{episode.start:%Y-%m-%d %H:%M:%S}"
    if episode.lasting:
        return f"{start} - now".ljust(_WIDTH)
    if episode.end is None or f"{episode.end:%Y-%m-%d %H:%M:%S}" == start:
        return start.ljust(_WIDTH)
    same_day = episode.end.date() == episode.start.date()
    return f"{start} - {episode.end:%H:%M:%S}" if same_day else f"{start} - {episode.end:%Y-%m-%d %H:%M:%S}"


def explain(
    history: History, kind: Kind, name: str, namespace: str = "default", window: LogWindow = WHOLE
) -> Explanation:
    """Explain a job or pod from a log.

    ``name`` may be ``namespace/name``. A job is named by its PodGroup, by a unique prefix of the PodGroup's name, or
    by the Volcano Job that the PodGroup belongs to. Raises NotFound, and LogError for what the log does not have.
    """
    _, key, group = named(history, kind, name, namespace)
    oldest = history.oldest()
    known = key in (oldest.tasks.row_of if kind == "pod" else oldest.groups)
    first, last = _life(history.reader, kind, key, known)
    if window.session is not None and first >= window.session.sequence:
        number = window.session.number
        raise NotFound(f"event log {history.reader.path}: session {number}: {kind} {key} is not there yet")
    return _explain_story(history, kind, key, group, min(last, window.until or last), window)


def _life(reader: LogReader, kind: str, key: str, known: bool) -> tuple[int, int]:
    """Return the range of events to read: after the first number, up to the second. ``known``: it is older than the
    log."""
    history = reader.object_history("Pod" if kind == "pod" else "PodGroup", key)
    events = [(logged.sequence, isinstance(logged.event, ObjectGone)) for logged in history]
    first = reader.oldest() if known or not events else events[0][0] - 1
    last = events[-1][0] if events and events[-1][1] else reader.head()
    return first, last


def _explain_story(history: History, kind: Kind, key: str, group: str, last: int, window: LogWindow) -> Explanation:
    story = JobEpisodes(group, only=key if kind == "pod" else None)
    history.feed_concerning(story, group, story.only, last)
    story.add_waits(every_wait(history, group, story.only, last, story.time) if group else ())
    time = next((logged.time for logged in history.reader.read(last - 1, last)), story.time) if last else 0
    now = max(window.end(history.reader), time) if last == history.reader.head() else time
    episodes = story.finish(window.since)
    for episode in episodes:
        episode.text = sentence(episode, story)
        if episode.what == "bound":
            _work_out(history, story, episode)
    queue = "" if story.group is None else story.settings.queue_of(story.group)
    minimum = 0 if story.group is None else story.group.spec.min_member
    stands = (
        state(story),
        is_terminating(story),
        pods_without_node(story),
        len(story.pods),
        minimum,
        pending_seconds(story, now),
    )
    up_to = moment(now), (now - time) / 1e9
    return Explanation(kind, key, group, queue, moment(time), present(story), episodes, *stands, *up_to)


def _work_out(history: History, story: JobEpisodes, episode: Episode) -> None:
    """Explain why pods were placed on their nodes, by deciding the session again."""
    if not history.reader.sessions_with_state(episode.session, episode.session):
        episode.why = [f"retention took away what session {episode.session} was decided from"]
        return
    pods = sorted(episode.places)[:CHOICES]
    try:
        made = choices(history, episode.session, pods)
    except LogError:
        raise
    except Exception as error:  # noqa: BLE001 - a plugin may fail now; the logged facts are returned anyway
        episode.why = [SESSIONS.sentence("failed", {"error": f"{type(error).__name__}: {error}"})]
        return
    episode.choices = tuple(made[pod] for pod in pods if pod in made)
    episode.why = reasons(episode, story)
