"""A comparison as one self-contained HTML file: tables and plots (SVG)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from vcd.model.words import span_in_words
from vcd.timetravel.whatif.compare import RECORDED, Comparison, Points, Run, Waits
from vcd.timetravel.whatif.fidelity import Fidelity, unlike_in_words
from vcd.timetravel.whatif.gate import (
    Gated,
    change_in_words,
    judgement_in_words,
    spread_in_words,
    summary,
    told_figures,
    verdict_in_words,
)
from vcd.timetravel.whatif.shifts import Shift
from vcd.timetravel.words import moment

_WIDTH, _HEIGHT = 860, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 12, 12, 28
_COLOURS = ("#7a7a7a", "#1f6fb4", "#d1495b", "#2e8b57", "#b8860b", "#7b4fa3", "#00868b", "#c2562d")
_TICKS = 4
_STYLE = """
:root { color-scheme: light dark; --ink: #1c1c1c; --soft: #666; --line: #d8d8d8; --paper: #fff; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e6e6; --soft: #a0a0a0; --line: #3a3a3a; --paper: #161616; } }
body { margin: 2rem auto; max-width: 920px; padding: 0 1rem; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--line); text-align: right; }
th:first-child, td:first-child { text-align: left; }
p, figcaption { color: var(--soft); } figure { margin: 1rem 0; }
svg text { fill: var(--soft); font-size: 11px; } svg .axis { stroke: var(--line); }
.key { display: inline-block; width: .8em; height: .8em; margin: 0 .3em 0 1em; border-radius: 2px; }
"""


def html_report(comparison: Comparison) -> str:
    """Return the report of a comparison as HTML."""
    title = f"What if: {', '.join(run.name for run in comparison.runs[2:]) or 'as it was'}"
    span = f"{moment(comparison.begin)} to {moment(comparison.end)}"
    parts = [
        f"<p>{escape(comparison.file)}: {comparison.pods:,} pods, {span}</p>",
        *_loud(_unlike(comparison.fidelity)),
        _table(comparison.runs),
        *_plots(comparison.runs),
        _shifts(comparison.shifts),
        _notes(comparison.notes),
    ]
    return _page(title, parts)


def gate_report(found: Gated) -> str:
    """Return the report of a gate: the verdict with its conditions, the metrics, the time series of the first seed's
    runs."""
    gate = found.gate
    verdict = "cannot be judged" if gate.unjudged else "passed" if gate.passed else "failed"
    title = f"{gate.new} {verdict} against {gate.old}"
    judged = [
        (verdict_in_words(one, judged=not gate.unjudged), one.text, judgement_in_words(one).partition(": ")[2])
        for one in gate.conditions
    ]
    figures = [
        (one.name, spread_in_words(one.old, one.unit), spread_in_words(one.new, one.unit), change_in_words(one))
        for one in told_figures(gate)
    ]
    parts = [
        f"<p>{escape(summary(gate))}</p>",
        *_loud(gate.unjudged or _unlike(gate.fidelity)),
        _html_table(("", "fails if", "figures"), judged),
        _html_table(("median (over the seeds)", f"old: {gate.old}", f"new: {gate.new}", "change"), figures),
        *_plots([found.old_runs[0], found.new_runs[0]]),
        _shifts(gate.shifts),
        _notes(gate.notes),
    ]
    return _page(title, parts)


def _unlike(found: Fidelity) -> list[str]:
    return [unlike_in_words(found)] if found.far else []


def _loud(sentences: Iterable[str]) -> Iterator[str]:
    return (f"<p><strong>{escape(sentence)}</strong></p>" for sentence in sentences)


def _page(title: str, parts: Sequence[str]) -> str:
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join([f"<h1>{escape(title)}</h1>", *parts])
        + "\n</body></html>\n"
    )


# --- tables -----------------------------------------------------------------------------------------------------------


def _table(runs: Sequence[Run]) -> str:
    rows = [
        ("what is other", [run.what for run in runs]),
        ("jobs that came (never started)", [f"{run.waits.jobs:,} ({run.waits.never:,})" for run in runs]),
        ("more that ran already", [f"{run.running:,}" if run.running else "" for run in runs]),
        ("wait: median", [span_in_words(run.waits.median) for run in runs]),
        ("wait: 95 in 100 under", [span_in_words(run.waits.p95) for run in runs]),
        ("evictions", [f"{sum(run.evictions.values()):,}" for run in runs]),
        ("pod-hours lost by them", [f"{run.lost_hours:,.1f}" for run in runs]),
        ("GPUs free, mean", [f"{run.free_gpus:,.1f} of {run.gpus:,.0f}" if run.gpus else "" for run in runs]),
        ("of them on empty nodes", [f"{run.free_gpus_on_empty_nodes:,.1f}" if run.gpus else "" for run in runs]),
        ("fairness, mean", ["" if run.fairness is None else f"{run.fairness:.3f}" for run in runs]),
        ("all over after", [span_in_words(run.seconds) for run in runs]),
    ]
    resources = dict.fromkeys(name for run in runs for name in run.utilisation)
    rows += [(f"{name} used", [f"{run.utilisation.get(name, 0):.1%}" for run in runs]) for name in resources]
    queues = dict.fromkeys(name for run in runs for name in run.queues)
    rows += [
        (f"queue {name or '(none)'}: median, 95 in 100", [_waits(run.queues.get(name)) for run in runs])
        for name in queues
    ]
    return _html_table(["", *(run.name for run in runs)], [(name, *cells) for name, cells in rows if any(cells)])


def _html_table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    body = "".join(_html_row("td", row) for row in rows)
    return f"<table><thead>{_html_row('th', head)}</thead><tbody>{body}</tbody></table>"


def _html_row(tag: str, cells: Iterable[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"


def _waits(waits: Waits | None) -> str:
    return "" if waits is None else f"{span_in_words(waits.median)}, {span_in_words(waits.p95)}"


def _shifts(shifts: Sequence[Shift]) -> str:
    if not shifts:
        return "<h2>Jobs</h2><p>No job waits otherwise than in the baseline.</p>"
    rows = [(one.job, one.queue, one.run, span_in_words(one.baseline), span_in_words(one.wait)) for one in shifts]
    table = _html_table(("job", "queue", "run", "baseline", "wait"), rows)
    return f"<h2>Jobs whose wait changes most</h2>{table}"


def _notes(notes: Sequence[str]) -> str:
    lines = "".join(f"<p>{escape(line)}</p>" for line in notes)
    return f"<h2>Notes</h2>{lines}" if lines else ""


# --- plots ------------------------------------------------------------------------------------------------------------


def _plots(runs: Sequence[Run]) -> Iterable[str]:
    """Yield a plot for each time series of any run, with a line for each run."""
    for name in dict.fromkeys(name for run in runs for name in run.courses):
        lines = [(place, run.name, run.courses[name]) for place, run in enumerate(runs) if run.courses.get(name)]
        if any(value for _, _, points in lines for _, value in points):
            yield f"<h2>{escape(name)}</h2>{_figure(name, lines)}"


def _figure(name: str, lines: Sequence[tuple[int, str, Points]]) -> str:
    most = max(value for _, _, points in lines for _, value in points)
    last = max(points[-1][0] for _, _, points in lines) or 1.0
    parts = [_axes(most, last)]
    for place, run, points in lines:
        coordinates = " ".join(f"{_x(time, last):.1f},{_y(value, most):.1f}" for time, value in points)
        dashes = ' stroke-dasharray="4 3"' if run == RECORDED else ""
        parts.append(
            f'<polyline fill="none" stroke="{_colour(place)}" stroke-width="1.5"{dashes} points="{coordinates}">'
            f"<title>{escape(run)}</title></polyline>"
        )
    keys = "".join(
        f'<span class="key" style="background:{_colour(place)}"></span>{escape(run)}' for place, run, _ in lines
    )
    label = escape(f"{name} over time, by run", quote=True)
    return (
        f'<figure><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{label}">{"".join(parts)}</svg>'
        f"<figcaption>{keys}</figcaption></figure>"
    )


def _axes(most: float, last: float) -> str:
    parts = []
    for step in range(_TICKS + 1):
        value, time = most * step / _TICKS, last * step / _TICKS
        y, x = _y(value, most), _x(time, last)
        parts.append(f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:.3g}</text>')
        anchor = "end" if step == _TICKS else "middle"
        parts.append(f'<text x="{x:.1f}" y="{_HEIGHT - 8}" text-anchor="{anchor}">{span_in_words(time)}</text>')
    return "".join(parts)


def _colour(place: int) -> str:
    return _COLOURS[place % len(_COLOURS)]


def _x(time: float, last: float) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * time / last


def _y(value: float, most: float) -> float:
    return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * value / (most or 1.0)
