"""The one place that asks for the verdict, and what of it is not as planted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.planted.plant import Plant
from tests.planted.turning import fix_of, minimum_after
from tests.timetravel.questions import smallest_change, verdict
from vcd.timetravel.query_errors import NotFound

LONGEST = 200


def verdict_of(log: Path, plant: Plant) -> Any:
    """What vcd says that the asked job waits for."""
    namespace, name = plant.asked.split("/")
    return verdict(log, name, namespace)


def fixed_as_told(log: Path, plant: Plant, session: int) -> Plant | None:
    """The cluster in which the smallest change is made that vcd finds at a session; None where it finds none."""
    try:
        change = smallest_change(log, plant.asked, session).change
    except NotFound:  # there is nothing in the session that waits: pods are missing
        return None
    if change is None:
        return None
    return plant.then(fix_of(plant, change), minimum_after(plant, change))


def misnamed(plant: Plant, verdict: Any) -> Iterator[str]:
    """What the verdict names otherwise than planted: its cause, its subject."""
    if verdict.cause != plant.code:
        yield f"{plant.label}: {verdict.cause}, and not {plant.code}: {verdict.text}"
        return
    for role, texts in plant.subject.items():
        found = verdict.subject.get(role, "")
        if not any(text in found for text in texts):
            yield f"{plant.label}: {role} is {found!r}, not {' or '.join(texts)}: {verdict.text}"


def malformed(plant: Plant, verdict: Any) -> Iterator[str]:
    """What no verdict of a job that waited all the time may be."""
    if not 0 < len(verdict.text) <= LONGEST or "\n" in verdict.text:
        yield f"{plant.label}: a text of {len(verdict.text)} characters: {verdict.text}"
    if not 0.5 < verdict.share <= 1:
        yield f"{plant.label}: a share of {verdict.share}"
    if not verdict.waited > 0:
        yield f"{plant.label}: waited {verdict.waited} s"
    for resource, roles in verdict.amounts.items():
        if not all(isinstance(amount, int) for amount in roles.values()):
            yield f"{plant.label}: {resource}: {roles}"
