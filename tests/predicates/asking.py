"""Questions to a session's predicates, by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from tests.reasons import by_words
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.search.parts import Predicate
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task


def with_arguments(plugin: str, arguments: Mapping[str, Any] | None = None) -> str:
    """A configuration of one plugin."""
    lines = ["actions: allocate", "tiers:", "- plugins:", f"  - name: {plugin}"]
    if arguments:
        lines += ["    arguments:", *(f"      {key}: {value}" for key, value in arguments.items())]
    return "\n".join(lines) + "\n"


PREDICATES = with_arguments("predicates")


def pending(session: Session, name: str | None = None) -> Task:
    """The pending task of a name, or the first one."""
    tasks = [task for job in session.all_jobs() for task in job.pending()]
    return next(task for task in tasks if name in (None, task.name))


def named(session: Session, name: str) -> list[Predicate]:
    """The session's predicates of a name."""
    return [predicate for predicate in framework_of(session).evaluator.predicates if predicate.name == name]


def applies(session: Session, name: str) -> bool:
    """Whether a predicate can fail the first pending task."""
    return any(predicate.applies(pending(session)) for predicate in named(session, name))


def passing(session: Session, name: str, task: str | None = None) -> set[str]:
    """The nodes that pass the predicates of a name for a pending task."""
    asked, mask = pending(session, task), np.ones(len(session.nodes), np.bool_)
    for predicate in named(session, name):
        if predicate.applies(asked):
            mask &= predicate.mask(asked, session.nodes.usage)
    return {session.nodes.facts.names[row] for row in np.flatnonzero(mask)}


def reasons(session: Session, name: str) -> dict[str, int]:
    """Why nodes fail the predicates of a name for the first pending task."""
    asked, counts = pending(session), Counter[str]()
    for predicate in named(session, name):
        if predicate.applies(asked):
            failed = ~predicate.mask(asked, session.nodes.usage)
            if failed.any():
                counts.update(by_words(predicate.reasons(asked, session.nodes.usage, failed)))
    return dict(counts)


def refusal(session: Session) -> str | None:
    """Why no node at all may take the first pending task."""
    refused = framework_of(session).pre_predicate(pending(session))
    return None if refused is None else refused[1].words
