"""The output of ``vcd whatif`` and ``vcd gate``: the same table, the jobs that wait longer, and the basis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from vcd.model.wording import span_in_words
from vcd.text.causes import cut
from vcd.text.outcomes import (
    LABELS,
    Screen,
    assumed_sentence,
    effect_sentence,
    run_time_sentence,
    use_row,
    verdict_sentence,
)
from vcd.timetravel.whatif.fidelity import Fidelity
from vcd.timetravel.whatif.gate import GateResult, change_in_words, judgement_in_words, spread_in_words
from vcd.timetravel.whatif.runs import BASELINE, Comparison, Run, run_time_notes
from vcd.timetravel.whatif.wait_shifts import Shift, WaitChanges

_WORST = 10
"""Rows in the table of jobs that wait longer."""
Table = tuple[tuple[str, ...], list[tuple[str, ...]]]


def comparison_screen(found: Comparison) -> Screen:
    """Return the output for the last run of a comparison, compared with the baseline."""
    before, after = next(run for run in found.runs if run.name == BASELINE), found.runs[-1]
    effect, jobs = found.effects[-1], len(after.jobs)
    change = after.what.replace("another configuration", after.name)
    resource, use = use_row([*before.utilisation, *after.utilisation])
    columns = [dict(_cells(run, resource)) for run in (before, after)]
    rows = _rows({**LABELS, resource: use}, {name: (columns[0][name], columns[1][name]) for name in columns[0]})
    tables: list[Table] = [(("", "BEFORE", "AFTER"), rows), *_worse(effect)]
    notes = [note for note in found.notes if note not in run_time_notes(found.estimated, found.accuracy)]
    run_times = [run_time_sentence(found.pods, found.estimated)]
    if after.resting:
        run_times.append(assumed_sentence(after.resting, jobs, after.invented))
    basis = _basis(found.fidelity, run_times, notes)
    return Screen([effect_sentence(change, jobs, effect.longer, effect.shorter)], tables, basis)


def gate_screen(found: GateResult) -> Screen:
    """Return the output of a gate: the verdict with its conditions, and the rest as for a comparison."""
    verdict = "NOT JUDGED" if found.unjudged else "PASSED" if found.passed else "FAILED"
    answer = [verdict_sentence(verdict, found.new, found.old, found.jobs, found.seeds)]
    answer += [judgement_in_words(one, judged=not found.unjudged) for one in found.conditions]
    resource, use = use_row(one.name.partition(".")[2] for one in found.figures if one.unit == "part")
    cells = {
        one.name: (*(spread_in_words(each, one.unit) for each in (one.old, one.new)), change_in_words(one))
        for one in found.figures
    }
    rows = _rows({**LABELS, f"utilisation.{resource}": use}, cells)
    notes = [note for note in found.notes if note not in run_time_notes(found.estimated, found.accuracy)]
    tables = [(("", "BEFORE", "AFTER", "CHANGE"), rows), *([] if found.effect is None else _worse(found.effect))]
    fidelity = None if found.fidelity.far and found.unjudged else found.fidelity
    return Screen(answer, tables, _basis(fidelity, [run_time_sentence(found.pods, found.estimated)], notes))


def _rows(labels: Mapping[str, str], cells: Mapping[str, tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return the rows of a table, in the order of their labels; without evictions, the row of lost hours is left
    out."""
    return [
        (label, *cells[name])
        for name, label in labels.items()
        if name in cells and (name != "lost_hours" or {*cells[name]} - {"0.0", "="})
    ]


def _cells(run: Run, resource: str) -> Iterator[tuple[str, str]]:
    yield "started", f"{run.waits.jobs - run.waits.never:,} of {run.waits.jobs:,}"
    yield "wait.p50", span_in_words(run.waits.median)
    yield "wait.p95", span_in_words(run.waits.p95)
    yield "wait.max", span_in_words(run.waits.longest)
    yield "wait.mean", span_in_words(run.waits.mean)
    yield "evictions", f"{sum(run.evictions.values()):,}"
    yield "lost_hours", f"{run.lost_hours:,.1f}"
    if resource:
        yield resource, f"{run.utilisation.get(resource, 0.0):.1%}"


def _worse(effect: WaitChanges) -> Iterator[Table]:
    """Yield the table of the jobs that wait longer, if there are any."""
    if not effect.longer:
        return
    rows = [_worse_row(shift) for shift in effect.worst[:_WORST]]
    if effect.longer > len(rows):
        rows.append((f"and {effect.longer - len(rows):,} more", "", "", "", ""))
    yield ("WAITS LONGER", "QUEUE", "BEFORE", "AFTER", "WHY"), rows


def _worse_row(shift: Shift) -> tuple[str, ...]:
    waits = (span_in_words(shift.baseline), span_in_words(shift.wait))
    return cut(shift.name), cut(shift.queue), *waits, shift.why


def _basis(fidelity: Fidelity | None, run_times: Sequence[str], notes: Sequence[str]) -> list[tuple[str, str]]:
    """Return the basis of the numbers, as label and sentence; a label is not repeated."""
    baseline = [] if fidelity is None else fidelity.sentences
    lines: Mapping[str, Sequence[str]] = {"Baseline": baseline, "Run times": run_times, "Note": notes}
    return [
        (label if not place else "", sentence)
        for label, sentences in lines.items()
        for place, sentence in enumerate(sentences)
    ]
