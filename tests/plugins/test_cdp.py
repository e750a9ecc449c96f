"""cdp: who cools down is no victim."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from tests.dsl import NOW, Manifest, gang, group, node, planned, pod, priority_class, session_after, session_of
from tests.plugins.opened import conf, job_of, named, plugin_of, task_of
from vcd.scheduling.framework.declared_reasons import all_told
from vcd.scheduling.plugins.cdp import CdpPlugin

CONF = conf("cdp")
KEY = "volcano.sh/cooldown-time"
POINTS = ("preemptable", "reclaimable", "unified_evictable")


def scheduled(manifest: Manifest, ago: int, **changes: Any) -> Manifest:
    """A pod that was placed some seconds ago."""
    since = (NOW - datetime.timedelta(seconds=ago)).isoformat().replace("+00:00", "Z")
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": since, **changes}
    manifest["status"]["conditions"] = [{"type": "Ready", "status": "True"}, condition]
    return manifest


def may_go(manifest: Manifest, point: str = "preemptable") -> bool:
    """Whether the pod `a` is a victim."""
    session = session_of(node("n"), group("g"), group("want"), pod("p", group="want"), manifest, conf=CONF)
    asked = getattr(plugin_of(session, CdpPlugin), point)(task_of(session, "p"), [task_of(session, "a")])
    return named(asked) == ["a"]


def running(text: str | None = None, **options: Any) -> Manifest:
    return pod("a", group="g", on="n", annotations={} if text is None else {KEY: text}, **options)


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize(
    ("ago", "goes"),
    [
        pytest.param(599, False, id="cools down"),
        pytest.param(600, True, id="is over"),
        pytest.param(9999, True, id="long over"),
    ],
)
def test_a_running_pod_is_no_victim_before_its_cool_down_is_over(point: str, ago: int, goes: bool) -> None:
    assert may_go(scheduled(running("10m"), ago), point) is goes


@pytest.mark.parametrize("text", ["600s", "10m", "0.25h", "600000000µs", "9m59s999ms1000us"])
def test_durations_are_gos(text: str) -> None:
    long_enough = text == "0.25h"
    assert may_go(scheduled(running(text), 599)) is False
    assert may_go(scheduled(running(text), 601)) is not long_enough


@pytest.mark.parametrize(
    ("manifest", "goes"),
    [
        pytest.param(scheduled(pod("a", group="g", on="n", labels={KEY: "10m"}), 1), False, id="a label"),
        pytest.param(scheduled(running("10m", labels={KEY: "1s"}), 5), True, id="a label before an annotation"),
        pytest.param(scheduled(running(), 1), True, id="no cool-down"),
        *[
            pytest.param(scheduled(running(text), 1), True, id=text)
            for text in ("", "ten minutes", "600", "-10m", "0s")
        ],
        *[pytest.param(scheduled(running("10m", phase=phase), 1), True, id=phase) for phase in ("Pending", "Unknown")],
        pytest.param(running("10m"), True, id="no condition"),
        pytest.param(scheduled(running("10m"), 1, status="False"), True, id="status False"),
        pytest.param(scheduled(running("10m"), 1, type="Ready"), True, id="another condition"),
        pytest.param(scheduled(running("10m"), 1, lastTransitionTime=None), True, id="no time"),
        pytest.param(scheduled(running("10m"), 1, lastTransitionTime="yesterday"), True, id="what is no time"),
    ],
)
def test_a_cool_down_needs_a_duration_of_a_running_pod_and_the_time_of_its_placement(
    manifest: Manifest, goes: bool
) -> None:
    assert may_go(manifest) is goes


def test_the_order_stays() -> None:
    manifests = [scheduled(pod(f"a{i}", group="g", on="n", annotations={KEY: "1m"}), 61 - i % 2 * 60) for i in range(4)]
    session = session_of(node("n"), group("g"), group("want"), pod("p", group="want"), *manifests, conf=CONF)
    tasks = [task_of(session, f"a{i}") for i in (3, 2, 1, 0)]
    assert named(plugin_of(session, CdpPlugin).preemptable(task_of(session, "p"), tasks)) == ["a2", "a0"]


@pytest.mark.parametrize("text", ["soon", "-1m"])
def test_a_waiting_job_tells_what_cannot_be_read(text: str) -> None:
    session = session_after(node("n", cpu=1), gang("g", 1, cpu=2, annotations={KEY: text}), conf=CONF)
    told = [
        (waits.reason, waits.detail["value"], waits.pods)
        for waits in all_told(job_of(session, "g").why)
        if waits.plugin == "cdp"
    ]
    reason = "volcano.sh/cooldown-time of the pod is no duration from zero up, and does not protect it"
    assert told == [(reason, text, ("default/g-0",))]


@pytest.mark.parametrize(("ago", "evicted"), [(599, []), (600, ["default/run-0"])])
def test_another_tier_does_not_override_it(ago: int, evicted: list[str]) -> None:
    preempt = (
        'actions: "allocate, preempt"\ntiers:\n- plugins:\n  - name: priority\n  - name: gang\n'
        "- plugins:\n  - name: cdp\n  - name: predicates\n"
    )
    group_, run = gang(
        "run", 1, members=0, on=["n"], cpu=4, annotations={KEY: "10m"}, group_spec={"priorityClassName": "low"}
    )
    result = planned(
        node("n", cpu=4),
        priority_class("low", 10),
        priority_class("high", 100),
        [group_, scheduled(run, ago)],
        gang("new", 1, cpu=4, group_spec={"priorityClassName": "high"}, spec={"priority": 100}),
        conf=preempt,
    )
    assert list(result.evictions) == evicted


def test_it_protects_and_time_alone_changes_what_it_says() -> None:
    assert (CdpPlugin.protects, CdpPlugin.timed) == (True, True)
