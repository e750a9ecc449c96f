"""When plugins ask for a session though nothing happens."""

from __future__ import annotations

import pytest

from tests.dsl import NOW_NS, gang, node, pod, priority_class, session_after
from tests.plugins.opened import conf
from vcd.scheduling.framework import execution
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.plugins.tdm import Window
from vcd.scheduling.session.session import Session

SECOND = 10**9
HOUR = 3600 * SECOND


def configured(plugin: str, **arguments: str) -> str:
    return conf("priority", "gang", "predicates", plugin, actions="enqueue, allocate, preempt", arguments=arguments)


def wakes(session: Session) -> tuple[int, ...]:
    execution.take_wakes(framework_of(session))
    return session.wakes


@pytest.mark.parametrize(
    ("window", "turns"),
    [
        (Window(9 * 3600, 10 * 3600), [1 * HOUR, 2 * HOUR + SECOND]),
        (Window(7 * 3600, 9 * 3600), [23 * HOUR, HOUR + SECOND]),
        (Window(22 * 3600, 6 * 3600), [14 * HOUR, 22 * HOUR + SECOND]),
        (Window(8 * 3600, 9 * 3600), [24 * HOUR, HOUR + SECOND]),
        (Window(5, 5), []),
    ],
)
def test_the_turns_of_a_window(window: Window, turns: list[int]) -> None:
    """It is eight o'clock."""
    found = window.turns(NOW_NS)
    assert found == [NOW_NS + turn for turn in turns]
    assert all(window.holds(time) != window.holds(time - SECOND) for time in found)


@pytest.mark.parametrize("waits", [True, False])
def test_tdm_names_the_next_turn_of_a_zone_if_a_pod_waits(waits: bool) -> None:
    zones = {"tdm.revocable-zone.z": "10:00-11:00", "tdm.revocable-zone.y": "9:00-11:00"}
    jobs = [gang("g", 1, cpu=1)] if waits else []
    nodes = node("n", labels={"volcano.sh/revocable-zone": "z"})
    session = session_after(nodes, *jobs, conf=configured("tdm", **zones))
    assert wakes(session) == ((NOW_NS + 2 * HOUR,) if waits else ())


@pytest.mark.parametrize("hours", [1, 5])
def test_sla_names_the_next_deadline_of_a_job_that_waits(hours: int) -> None:
    created = (NOW_NS - 1767225600 * SECOND) // SECOND
    marked = [list(gang(f"g{number}", 1, cpu=99, created=created)) for number in range(2)]
    for number, job in enumerate(marked):
        job[0]["metadata"]["annotations"] = {"sla-waiting-time": f"{hours + number}h"}
    session = session_after(node("n"), *marked, gang("runs", 1, on=["n"], cpu=1), conf=configured("sla"))
    assert wakes(session) == (NOW_NS + hours * HOUR,)


@pytest.mark.parametrize("minutes", [1, 30])
def test_cdp_names_the_end_of_a_cool_down_that_keeps_a_victim(minutes: int) -> None:
    low = list(gang("low", 2, members=1, cpu=4, on=["n", "n"], labels={"volcano.sh/cooldown-time": f"{minutes}m"}))
    for each in low[1:]:
        condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-21T08:00:00Z"}
        each["status"]["conditions"] = [condition]
    high = gang("high", 1, cpu=4, group_spec={"priorityClassName": "high"})
    session = session_after(node("n"), priority_class("high", 9), low, high, conf=configured("cdp"))
    assert wakes(session) == (NOW_NS + minutes * 60 * SECOND,)


def test_without_such_a_plugin_there_is_none() -> None:
    assert wakes(session_after(node("n"), pod("p", cpu=99), conf=configured("drf"))) == ()
