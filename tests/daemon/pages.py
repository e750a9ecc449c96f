"""Metrics pages in tests: sessions from manifests, pages as numbers by name and labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.dsl import NOW_NS, Manifest, session_after
from vcd.daemon.metrics.metrics_collector import Metrics
from vcd.model.events import Plan, SessionDecided, encode_plan
from vcd.scheduling.session.session import Session
from vcd.scheduling.session_close import plan_of

CONF = """\
actions: enqueue, allocate, backfill
tiers:
- plugins:
  - name: priority
  - name: gang
- plugins:
  - name: overcommit
  - name: predicates
  - name: proportion
"""

Page = dict[str, dict[frozenset[tuple[str, str]], float]]


def page_of(metrics: Metrics) -> Page:
    """The rendered page: sample name -> labels -> value. Fails on a series that is given twice."""
    page: Page = {}
    for family in text_string_to_metric_families(metrics.freeze()().decode()):
        for sample in family.samples:
            labels = frozenset(sample.labels.items())
            series = page.setdefault(sample.name, {})
            assert labels not in series, f"{sample.name}{sample.labels} twice"
            series[labels] = sample.value
    return page


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    """One series' value, None where there is none."""
    return page_of(metrics).get(name, {}).get(frozenset(labels.items()))


def recorded(session: Session, number: int = 1, stale: tuple[tuple[int, str], ...] = ()) -> tuple[Plan, SessionDecided]:
    """A session's plan, and its row as the log has it."""
    plan = plan_of(session)
    record = SessionDecided(
        session=number,
        head=session.snapshot.sequence,
        policy=session.policy_digest,
        now=NOW_NS,
        seed=0,
        epoch=1,
        versions={},
        plan=encode_plan(plan),
        stale=stale,
    )
    return plan, record


def observe_session(
    metrics: Metrics, session: Session, plan: Plan, record: SessionDecided | None, durations: Mapping[str, float]
) -> None:
    """Let a session be noted from its beginning to its end."""
    metrics.end_session(metrics.begin_session(session, plan, record, durations)())


def observe(
    metrics: Metrics,
    *objects: Manifest | Iterable[Manifest],
    conf: str = CONF,
    number: int = 1,
    stale: tuple[tuple[int, str], ...] = (),
    durations: Mapping[str, float] | None = None,
) -> Plan:
    """Let one session over the objects be noted."""
    session = session_after(*objects, conf=conf)
    plan, record = recorded(session, number, stale)
    observe_session(metrics, session, plan, record, durations or {})
    return plan


class Ticks:
    """A clock that tests turn."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def kept(**values: Any) -> frozenset[tuple[str, str]]:
    """Labels as a key of a page."""
    return frozenset((name, str(word)) for name, word in values.items())
