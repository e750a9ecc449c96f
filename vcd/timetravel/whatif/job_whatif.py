"""What-if of one job in another queue, or with another priority."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from vcd.model.wording import counted, did_you_mean, span_in_words
from vcd.text.outcomes import SENTENCES
from vcd.timetravel.history import History
from vcd.timetravel.query_errors import NotFound
from vcd.timetravel.whatif.cluster_edits import Assignment, Edits
from vcd.timetravel.whatif.runs import Variant, whatif
from vcd.timetravel.whatif.wait_shifts import Shift
from vcd.timetravel.why.name_lookup import keys_of


class JobWhatIf(msgspec.Struct, frozen=True):
    """How long a job waited, in seconds (None: it never started): in the log (``recorded``), in the baseline
    (``simulated``), and with ``what`` changed (``otherwise``). ``shifts`` are other jobs whose waits change most."""

    key: str
    what: str
    recorded: float | None
    simulated: float | None
    otherwise: float | None
    shifts: list[Shift]
    notes: list[str]

    def lines(self, seen: Callable[[str, str], bool] = lambda kind, key: True) -> Iterator[str]:
        """Yield the answer in sentences; other jobs are named if ``seen`` allows their kind and key."""
        facts = {"what": self.what, "otherwise": _waited(self.otherwise), "recorded": _waited(self.recorded)}
        facts["simulated"] = _waited(self.simulated)
        longer = sum(shift.is_longer for shift in self.shifts)
        facts |= {"longer": counted(longer, "other job"), "shorter": f"{len(self.shifts) - longer:,}"}
        yield from (SENTENCES[code].format_map(facts) for code in ("one-job", "one-job-was", "one-job-others"))
        for shift in self.shifts:
            if seen("PodGroup", shift.job):
                waits = f"{span_in_words(shift.baseline)} -> {span_in_words(shift.wait)}"
                yield f"    {shift.job} (queue {shift.queue}): {waits}"
        yield from (f"  note: {note}" for note in self.notes)


def _waited(seconds: float | None) -> str:
    if seconds is None:
        return SENTENCES["one-job-never"]
    return SENTENCES["one-job-waited"].format_map({"span": span_in_words(seconds)})


def job_whatif(history: History, key: str, queue: str = "", priority_class: str = "") -> JobWhatIf:
    """Run a log's workload again with one job in ``queue`` or with ``priority_class`` (empty: unchanged).

    ``key`` is the PodGroup's. Raises NotFound for a queue or class that is not in the log, EditError for a change that
    changes nothing, and LogError.
    """
    oldest = history.oldest()
    _check_named(history, "Queue", queue, oldest.queues)
    _check_named(history, "PriorityClass", priority_class, oldest.others.get("PriorityClass", {}))
    fields = (("queue", queue), ("priorityClassName", priority_class))
    changed = [(name, value) for name, value in fields if value]
    edits = Edits(
        tuple(Assignment(f"{name} {value}", "PodGroup", key, ("spec", name), value) for name, value in changed)
    )
    found = whatif(history.reader.path, [Variant("changed", edits=edits)])
    if key not in found.runs[0].jobs:
        raise NotFound(f"{key} ran already when the log begins: how long it waited is not in it")
    recorded, simulated, otherwise = (run.jobs.get(key, ("", None))[1] for run in found.runs)
    shifts = [shift for shift in found.shifts if shift.job != key]
    return JobWhatIf(key, edits.words, recorded, simulated, otherwise, shifts, found.notes)


def _check_named(history: History, kind: str, name: str, oldest: Iterable[str]) -> None:
    known = keys_of(history.reader, kind).union(oldest) if name else ()
    if name and name not in known:
        raise NotFound(f"there is no {kind} {name} in the log{did_you_mean(name, sorted(known))}")
