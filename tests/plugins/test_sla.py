"""sla: deadlines order jobs, and admit what waited too long."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dsl import NOW_NS, Manifest, gang, node, planned, session_after, session_of
from tests.plugins.opened import conf, job_of, plugin_of
from vcd.scheduling.framework.declared_reasons import all_told
from vcd.scheduling.framework.points import Vote
from vcd.scheduling.framework.policy import PolicyError
from vcd.scheduling.plugins.sla import SlaPlugin
from vcd.scheduling.session.session import Session

CONF = conf("sla")
KEYS = ("volcano.sh/sla-waiting-time", "sla-waiting-time")
SECOND = 10**9
AGE = NOW_NS // SECOND - 1_767_225_600
"""Seconds that a group created at 0 has waited: from the first of January 2026 to now."""


def waiting(name: str, text: str | None = None, *, key: str = KEYS[1], size: int = 1, **options: Any) -> list[Manifest]:
    """A gang whose group states a waiting time."""
    manifests = list(gang(name, size, **options))
    if text is not None:
        manifests[0]["metadata"]["annotations"] = {key: text}
    return manifests


def sla(session: Session) -> SlaPlugin:
    return plugin_of(session, SlaPlugin)


def limited(text: str, *plugins: str, **options: Any) -> str:
    """A configuration in which all jobs have a waiting time."""
    return conf(*plugins, "sla", arguments={"sla-waiting-time": text}, **options)


# --- the deadline ---------------------------------------------------------------------------------------------------


LONG = 3_723_004_005_006


@pytest.mark.parametrize(
    ("texts", "argument", "created", "limit"),
    [
        *(({key: "1h2m3s4ms5us6ns"}, None, 100, LONG) for key in KEYS),
        ({}, "1h2m3s4ms5µs6ns", 0, LONG),
        ({KEYS[1]: "2h"}, "1h", 0, 7200 * SECOND),
        ({KEYS[0]: "2h", KEYS[1]: "1h"}, None, 0, 7200 * SECOND),
        # a time that cannot be read is passed over
        *(({KEYS[0]: text, KEYS[1]: "1h"}, None, 0, 3600 * SECOND) for text in ("soon", "", "10", "-1h", "0s")),
    ],
)
def test_the_deadline_is_creation_plus_the_groups_waiting_time_or_the_argument(
    texts: dict[str, str], argument: str | None, created: int, limit: int
) -> None:
    manifests = waiting("g", created=created)
    manifests[0]["metadata"]["annotations"] = texts
    session = session_of(manifests, conf=CONF if argument is None else limited(argument))
    assert sla(session).deadline(job_of(session, "g")) == NOW_NS + (created - AGE) * SECOND + limit


def test_a_waiting_job_tells_what_cannot_be_read() -> None:
    session = session_after(node("n", cpu=1), waiting("g", "soon", cpu=2), conf=CONF)
    told = [waits for waits in all_told(job_of(session, "g").why) if waits.plugin == "sla"]
    assert [(waits.reason, waits.detail["value"]) for waits in told] == [
        ("annotation sla-waiting-time of the group is no duration above zero, and is passed over", "soon")
    ]


@pytest.mark.parametrize("text", ["soon", "0s", "-5m", "12"])
def test_an_argument_that_is_no_time_above_zero_is_an_error(text: str) -> None:
    with pytest.raises(PolicyError, match="sla-waiting-time"):
        session_of(node("n"), conf=limited(f'"{text}"'))


# --- job order ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "flags"),
    [
        (("young", "1m", 50), ("old", "10m", 0), ""),
        (("limited", "876000h", 9), ("free", None, 0), ""),
        (("b", "90s", 10), ("a", "10s", 90), ""),  # equal deadlines: by age
        (("free", None, 0), ("limited", "1h", 9), "    enableJobOrder: false\n"),
    ],
)
def test_the_earlier_deadline_comes_first(first: tuple[Any, ...], second: tuple[Any, ...], flags: str) -> None:
    jobs = [waiting(name, text, created=created, cpu=1) for name, text, created in (second, first)]
    assert list(planned(node("n", cpu=1), *jobs, conf=CONF + flags).binds) == [f"default/{first[0]}-0"]


# --- votes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["job_enqueueable", "job_pipelined"])
@pytest.mark.parametrize(
    ("text", "vote"),
    [
        pytest.param(f"{AGE}s", Vote.PERMIT, id="the deadline is now"),
        pytest.param(f"{AGE}s1ns", Vote.ABSTAIN, id="a nanosecond is left"),
        pytest.param("1s", Vote.PERMIT, id="long over"),
        pytest.param(None, Vote.ABSTAIN, id="no limit"),
    ],
)
def test_from_the_deadline_on_it_permits(point: str, text: str | None, vote: Vote) -> None:
    session = session_of(node("n"), waiting("g", text), conf=CONF)
    assert getattr(sla(session), point)(job_of(session, "g")) is vote


TIERS = """\
actions: "enqueue, allocate"
tiers:
- plugins:
  - name: sla
- plugins:
  - name: gang
  - name: overcommit
    arguments:
      overcommit-factor: 1.0
"""


SAME = TIERS.replace("- plugins:\n  - name: gang\n", "  - name: gang\n")
OFF = TIERS.replace("- name: sla\n", "- name: sla\n    enableJobEnqueued: false\n")


@pytest.mark.parametrize(
    ("text", "tiers", "phase"),
    [("1s", TIERS, "Inqueue"), ("876000h", TIERS, "Pending"), ("1s", SAME, "Pending"), ("1s", OFF, "Pending")],
    ids=["waited too long", "has time", "rejected in the same tier", "vote off"],
)
def test_a_job_that_waited_too_long_is_admitted_against_later_tiers(text: str, tiers: str, phase: str) -> None:
    objects = waiting("g", text, phase="Pending", minimum={"cpu": 9}, size=2, cpu=4)
    assert planned(node("n", cpu=8), objects, conf=tiers).phases["default/g"] == phase


ALLOCATE = TIERS.replace("enqueue, allocate", "allocate")


@pytest.mark.parametrize(("text", "held"), [("1s", 1), ("876000h", 0)])
def test_a_gang_that_waited_too_long_keeps_the_room_it_found(text: str, held: int) -> None:
    """8 of the gang's 16 CPU are there: past its deadline another job cannot have them."""
    nodes = node("n", cpu=8), node("full", cpu=8), gang("runs", 1, on=["full"], cpu=8)
    session = session_after(*nodes, waiting("g", text, size=2, cpu=8), conf=ALLOCATE)
    assert len(session.trial.pipelined) == held


@pytest.mark.parametrize(("size", "cpu"), [(3, 8), (5, 4)])
def test_a_gang_that_can_never_be_complete_holds_nothing(size: int, cpu: int) -> None:
    """It held a whole node for ever while others waited (docs/laws.md, law 8)."""
    others = gang("later", 2, members=1, cpu=8, created=1)
    plan = planned(node("n", cpu=8), node("m", cpu=8), waiting("g", "1s", size=size, cpu=cpu), others, conf=ALLOCATE)
    assert sorted(plan.binds) == ["default/later-0", "default/later-1"]


def test_time_alone_changes_what_it_says() -> None:
    assert SlaPlugin.timed


def test_a_job_of_another_kind_goes_between_two_that_are_alike() -> None:
    """Deadlines follow age: that of the second of two jobs alike is later than one's that came between them."""
    jobs = [
        gang("a0", 1, cpu=1, created=0),
        gang("a1", 1, cpu=1, created=100),
        gang("b", 1, cpu=1, memory=1, created=50),
    ]
    plan = planned(node("n", cpu=2), *jobs, conf=conf("sla", "gang", "predicates", actions="allocate"))
    assert sorted(plan.binds) == ["default/a0-0", "default/b-0"]
