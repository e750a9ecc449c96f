"""Deadlines: when time alone changes what a session decides. The cycle wakes at that time instead of polling."""

from __future__ import annotations

from collections.abc import Iterable

from vcd.model.wording import SECOND
from vcd.state.cluster_state import ClusterState


def next_deadline(state: ClusterState, now: int, wakes: Iterable[int] = ()) -> int | None:
    """Return the first time after ``now`` at which a session must run without an event; None if there is none.

    That is the end of a back-off or of a namespace's hold, the next search for victims after a refusal, the release of
    an incomplete gang, or the end of a reservation. ``wakes`` are times that plugins requested in the last session.
    Times are in ns since the epoch.
    """
    release_after = state.settings.release_after * SECOND
    ends = [
        *[backoff.until for table in (state.backoffs, state.released) for backoff in table.values()],
        *[backoff.others_from for backoff in state.backoffs.values() if backoff.verb == "evict"],
        *state.held_namespaces.values(),
        *[admission.due(state.settings.admission_timeout) for admission in state.admissions.values()],
        *[since + release_after for since in state.stranded.values()],
        *wakes,
    ]
    return min((end for end in ends if end > now), default=None)
