"""The smallest change that would have let a job start at a session: found by trials, verified by deciding again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import get_args

import msgspec

from vcd.model.wording import counted, some
from vcd.text.time_formats import moment
from vcd.text.trial_templates import KINDS as KINDS_IN_WORDS
from vcd.text.trial_templates import SMALLEST
from vcd.timetravel.history import History
from vcd.timetravel.plan_differences import difference_from
from vcd.timetravel.why.change_search import Effect, FoundChange, Search, Tried
from vcd.timetravel.why.job_waits import Wait, wait_of
from vcd.timetravel.why.name_lookup import Kind
from vcd.timetravel.why.snapshotchanges import Change, What

MOST_DECISIONS = 200
"""Changed snapshots that are decided, at most."""

KINDS: tuple[What, ...] = get_args(What)
"""The kinds of change, in the order of their cost, in which they are tried."""

_NAMED = 5
"""Pods, nodes or jobs that a sentence names, at most."""


class Counterfactual(msgspec.Struct, frozen=True):
    """The smallest change that would have let a job start at a session; None if no single change does.

    ``time`` is the session's (RFC 3339); ``decisions`` counts all trials. ``kinds`` are the kinds of change that were
    tried; ``notes`` state limits of the answer.
    """

    kind: Kind
    key: str
    kinds: list[What]
    session: int
    time: str
    change: Change | None
    effect: Effect | None
    pods: int
    tried: list[Tried]
    decisions: int
    notes: list[str]

    def sentence(self) -> str:
        """Return the change, and its effect."""
        if self.change is None or self.effect is None:
            return SMALLEST.sentence("none", {"kinds": _or([KINDS_IN_WORDS[what] for what in self.kinds])})
        facts = {"change": self.change.text(), "effect": _effect_in_words(self.effect, self.pods)}
        return SMALLEST.sentence("change", facts)

    def lines(self) -> Iterator[str]:
        """Yield the answer in sentences."""
        facts = {"kind": self.kind, "key": self.key, "session": f"{self.session}", "time": self.time}
        yield SMALLEST.sentence("at", facts)
        yield SMALLEST.sentence("found", {"change": self.sentence()}) if self.change else self.sentence()
        if self.effect is not None:
            yield from _side_effects(self.effect)
        tried = ", ".join(f"{one.of} ({counted(one.decisions, 'decision')})" for one in self.tried)
        yield SMALLEST.sentence("tried", {"tried": tried or "nothing"})
        yield from (f"note: {note}" for note in self.notes)


def _effect_in_words(effect: Effect, pods: int) -> str:
    if effect.admitted:
        return SMALLEST["admitted"]
    words = []
    for code, places in (("bound", effect.bound), ("held", effect.held)):
        if places:
            count = f"all {pods} pods" if len(places) == pods else f"{len(places)} of {counted(pods, 'pod')}"
            facts = {"count": count, "nodes": some(sorted(set(places.values())), _NAMED)}
            words.append(SMALLEST.sentence(code, facts, ["many" if pods > 1 else ""]))
    return " and ".join(words)


def _side_effects(effect: Effect) -> Iterator[str]:
    bound = [f"{pod} to {node}" for pod, node in effect.others_bound.items()]
    effects = {"evicted only": effect.evicted, "bound only": bound, "not bound": effect.others_not_bound}
    for code, names in effects.items():
        if names:
            yield SMALLEST.sentence(code, {"count": counted(len(names), "pod"), "names": some(names, _NAMED)})


def _or(words: list[str]) -> str:
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def smallest_change(
    history: History,
    name: str,
    session: int | None = None,
    kinds: Sequence[What] = KINDS,
    most_decisions: int = MOST_DECISIONS,
) -> Counterfactual:
    """Return the smallest change that would have let a job start, at a session of a log, by default the last one in
    which it waited.

    The kinds are tried in the order of KINDS, which is that of their cost; the first one that works is returned with
    its smallest amount. Only ``kinds`` are tried if given. The search ends after ``most_decisions``, with a note.
    Names are as for ``explain``. Raises NotFound if no job has the name or it does not wait there, and LogError for
    what the log does not have.
    """
    wait = wait_of(history, name, session)
    search = Search(wait, history.policy(wait.record), most_decisions)
    found = search.run(kinds)
    return Counterfactual(
        "job",
        wait.group,
        list(kinds),
        wait.record.session,
        moment(wait.record.now),
        None if found is None else found.change,
        None if found is None else search.trials.effect(found.snapshot),
        0 if wait.job is None else len(wait.job.pending()),
        search.tried,
        search.trials.decisions,
        _notes(wait, search, found),
    )


def _notes(wait: Wait, search: Search, found: FoundChange | None) -> list[str]:
    notes = []
    if difference_from(wait.record, wait.plan) is not None:
        notes.append(SMALLEST["otherwise"])
    if found is not None and found.change.what in ("quota", "room") and wait.session.snapshot.evicted:
        notes.append(SMALLEST["memory"])
    if search.trials.exhausted:
        notes.append(SMALLEST.sentence("ended", {"most": f"{search.trials.most}"}))
    return notes
