"""The outcome of a simulated run compared with another one, as text: the answer, the tables' rows, and their basis."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from vcd.model.wording import counted, cut, some
from vcd.text.amounts import main_resource, resource_name
from vcd.text.causes import cut as short_name

LABELS: Final[dict[str, str]] = {
    "started": "jobs started",
    "wait.p50": "wait, median",
    "wait.p95": "wait, 95 in 100 under",
    "wait.max": "wait, longest",
    "wait.mean": "wait, mean",
    "evictions": "evictions",
    "lost_hours": "pod-hours lost by them",
}
"""Labels of the table's rows by metric; a row of the scarce resource's use follows."""

SENTENCES: Final[dict[str, str]] = {
    "changed": "{change}: {longer} of {jobs} {wait} longer, {shorter} shorter",
    "unchanged": "{change}: no wait of {jobs} changes",
    "verdict": "{verdict}  {new} instead of {old}: {jobs}, {seeds} each",
    "reproduced": "reproduces the record: {again} of {jobs} that started in the log start again",
    "unlike": "does not reproduce the record: {again} of {jobs} that started in the log start again",
    "lost": "{jobs} never {start} again ({names})",
    "late": "{jobs} {start} again only after the log's end ({names})",
    "gained": "{jobs} that the log never started {start} ({names})",
    "waits": "their mean wait is {wait}, in the log {logged}",
    "logged": "in the log, for all of {pods}",
    "estimated": "in the log for {known} of {pods}, estimated for the others",
    "assumed": "nothing like {names} has ended: {resting} of {jobs} {start} after an assumed end",
    "delayed": "waits longer for it: {job} (queue {queue}) {before} -> {after}{why}",
    "one-job": "with {what} it would have {otherwise}",
    "one-job-was": "  with the recorded configuration it {recorded}; simulated, it {simulated}",
    "one-job-others": "  {longer} would wait longer, {shorter} shorter",
    "one-job-waited": "waited {span}",
    "one-job-never": "never started",
    "no-start": "no job starts, neither under {old} nor under {new}",
    "as-logged": "as the log has it",
    "as-it-was": "as it was",
    "other-configuration": "another configuration",
    "calls": "calls of the plugin {plugin} get no answer",
    "outside": "{question} is what the log recorded, though other pods would have used other nodes",
    "run-times": "run times are the log's; those of {pods} pods, which it does not hold, are estimated",
    "started-only": (
        "{jobs} that {start} under {has} never {do} under {lacks}: waits are of jobs that start; never_started counts"
        " these"
    ),
    "configurations": "{count} configurations were in force in this part of the log; old is the last of them",
    "one-seed": "with one seed, a difference can come from the order of equal nodes alone; use --seeds 5",
    "baseline": "the baseline {sentences}",
}

LONGEST_CHANGE = 60
"""Characters of the change in an answer, at most."""
_NAMES = 2
"""Jobs that a sentence names, at most."""


class Screen(msgspec.Struct, frozen=True):
    """The output of a command that compares two runs: sentences, then tables (columns and rows), then the basis of the
    result (labels and sentences)."""

    answer: list[str]
    tables: list[tuple[tuple[str, ...], list[tuple[str, ...]]]]
    basis: list[tuple[str, str]]


def effect_sentence(change: str, jobs: int, longer: int, shorter: int) -> str:
    """Return the answer: how many jobs wait longer and how many shorter with a change."""
    facts = {"change": cut(change, LONGEST_CHANGE), "jobs": counted(jobs, "job")}
    facts |= {"longer": f"{longer:,}", "shorter": f"{shorter:,}", "wait": "waits" if 1 in (longer, jobs) else "wait"}
    return SENTENCES["changed" if longer or shorter else "unchanged"].format_map(facts)


def verdict_sentence(verdict: str, new: str, old: str, jobs: int, seeds: int) -> str:
    """Return the answer of a gate."""
    facts = {"verdict": verdict, "new": new, "old": old}
    return SENTENCES["verdict"].format_map({**facts, "jobs": counted(jobs, "job"), "seeds": counted(seeds, "seed")})


def baseline_sentence(started: int, again: int, *, unlike: bool) -> str:
    """Return whether the baseline reproduces the record: how many of the jobs that started in the log start again."""
    facts = {"jobs": counted(started, "job"), "again": f"{again:,}"}
    return SENTENCES["unlike" if unlike else "reproduced"].format_map(facts)


def differing_jobs(kind: str, count: int, names: Sequence[str]) -> str:
    """Return how many jobs start differently in the baseline than in the log; ``kind`` is lost, late or gained."""
    facts = {"jobs": counted(count, "job"), "start": "starts" if count == 1 else "start"}
    return SENTENCES[kind].format_map({**facts, "names": some([*map(short_name, names)], _NAMES, count)})


def run_time_sentence(pods: int, estimated: int) -> str:
    """Return the source of run times: the log, or estimates."""
    facts = {"pods": counted(pods, "pod"), "known": f"{pods - estimated:,}"}
    return SENTENCES["estimated" if estimated else "logged"].format_map(facts)


def assumed_sentence(resting: int, jobs: int, names: Sequence[str]) -> str:
    """Return how many jobs start at times that depend on run times that the log does not have."""
    facts = {"resting": f"{resting:,}", "jobs": counted(jobs, "job"), "start": "starts" if resting == 1 else "start"}
    return SENTENCES["assumed"].format_map({**facts, "names": some([*map(short_name, names)], 1)})


def delay_sentence(job: str, queue: str, before: str, after: str | None, why: str) -> str:
    """Return how long a job waits without and with the submitted one (None: until long after that one ends)."""
    facts = {"job": short_name(job), "queue": short_name(queue), "before": before, "why": f": {why}" if why else ""}
    return SENTENCES["delayed"].format_map({**facts, "after": after or "long after its end"})


def use_row(utilisation: Iterable[str]) -> tuple[str, str]:
    """Return the resource whose use is displayed (empty if none is used), and the row's label."""
    resource = main_resource(dict.fromkeys(utilisation, 1))
    return resource, f"{resource_name(resource)} in use"
