"""Plugins that fail (docs/laws.md, law 7): what a built-in one forbids stays forbidden where it fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.dsl import NOW_NS, Manifest, flat, gang, node, priority_class, queue
from tests.plugins.opened import conf
from vcd.model.events import Plan
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.decide import decide
from vcd.scheduling.framework import registry
from vcd.scheduling.session.queue_view import Queue
from vcd.scheduling.session.views import Job, Task
from vcd.state.snapshot import SnapshotMaker
from vcd.timetravel.planning import state_of

Raises = Callable[..., Any]
BINDING = frozenset(
    ("job_valid", "job_enqueueable", "overused", "allocatable", "job_ready", "pre_predicate", "predicates")
)
"""Points at which each job, its queue or its pods are asked about before something is bound."""
EVICTING = {
    "preempt": "preemptable",
    "reclaim": "reclaimable",
    "gangpreempt": "unified_evictable",
    "gangreclaim": "unified_evictable",
}
IN_GROUP = {"nodeGroupAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": ["group"]}}
LABELS = {"volcano.sh/nodegroup-name": "group"}
QUEUES = [queue(name, affinity=IN_GROUP) for name in ("bad", "good")]


def has(plugin: str, point: str) -> bool:
    return point in vars(registry.plugins()[plugin])


def built_in(points: frozenset[str]) -> list[tuple[str, str]]:
    """The built-in plugins that answer at points, with each of these; extender answers where it is given a server."""
    plugins = sorted(registry.plugins().keys() - {"extender"})
    return [(plugin, point) for plugin in plugins for point in sorted(points) if has(plugin, point)]


def named(subject: Any) -> str:
    """The queue that a question is about."""
    if isinstance(subject, Queue):
        return subject.name
    if isinstance(subject, Job):
        return subject.queue.name
    return subject.job.queue.name if isinstance(subject, Task) else ""


def failing(monkeypatch: pytest.MonkeyPatch, plugin: str, point: str, only: str = "") -> None:
    """Let a plugin raise at a point, and at the one for several pods at once: always, or where it is asked about a
    queue, its jobs or their pods."""
    kind = registry.plugins()[plugin]

    def raising(answer: Raises) -> Raises:
        def raises(self: Any, *asked: Any) -> Any:
            if not only or any(named(each) == only for each in asked):
                raise KeyError("broken")
            return answer(self, *asked)

        return raises

    for name in (point, f"{point}_together"):
        if name == point or hasattr(kind, name):
            monkeypatch.setattr(kind, name, raising(getattr(kind, name)))


def jobs(name: str, **options: Any) -> list[Manifest]:
    return list(gang(name, 2, queue=name, cpu=1, gpu=1, minimum={"cpu": 2}, **options))


def waiting() -> list[Manifest]:
    """Two jobs, one in each queue, that can both be bound."""
    return flat(
        [node("n", cpu=8, gpu=8, labels=LABELS), QUEUES, jobs("bad", phase="Pending"), jobs("good", phase="Pending")]
    )


BINDS, PATCH = "enqueue, allocate, backfill", pytest.MonkeyPatch


def decided(objects: list[Manifest], plugin: str, actions: str, patch: PATCH, point: str = "", only: str = "") -> Plan:
    """A plan; the plugin begins to fail after its configuration was taken, which tries it out."""
    plugins = dict.fromkeys(("gang", "predicates", plugin))
    policy = read_policy(conf(*plugins, actions=actions))
    failing(patch, plugin, point, only)
    return decide(SnapshotMaker(state_of(objects)).snapshot(), policy, NOW_NS, 0)


def operations(plan: Plan, verb: str) -> set[str]:
    return {op.key for statement in plan.statements for op in statement.operations if op.verb == verb}


@pytest.mark.parametrize(("plugin", "point"), built_in(BINDING))
def test_nothing_is_bound_that_a_failing_plugin_could_forbid(
    monkeypatch: pytest.MonkeyPatch, plugin: str, point: str
) -> None:
    plan = decided(waiting(), plugin, BINDS, monkeypatch, point)
    assert [fault.partition(":")[0] for fault in plan.faults] == [plugin]
    assert operations(plan, "bind") == set()


@pytest.mark.parametrize(("plugin", "point"), [each for each in built_in(BINDING) if each[1] != "predicates"])
def test_what_it_did_not_fail_on_is_decided(monkeypatch: pytest.MonkeyPatch, plugin: str, point: str) -> None:
    plan = decided(waiting(), plugin, BINDS, monkeypatch, point, only="bad")
    assert operations(plan, "bind") == {"default/good-0", "default/good-1"}
    reasons = [str(waiting.reason) for waiting in plan.waiting if waiting.group == "default/bad"]
    assert any("plugin-failed" in reason for reason in reasons)
    assert not any("broken" in reason for reason in reasons), "an error may name another tenant's object"


@pytest.mark.parametrize(
    ("action", "plugin"),
    [(action, one) for action, point in EVICTING.items() for one, _ in built_in(frozenset([point]))],
)
def test_nobody_is_evicted_whom_a_failing_plugin_could_protect(
    monkeypatch: pytest.MonkeyPatch, plugin: str, action: str
) -> None:
    own = "good" if "preempt" in action else "bad"
    objects = flat(
        [
            node("n", cpu=2, gpu=2),
            priority_class("high", 100),
            QUEUES,
            gang("old", 2, members=0, queue=own, cpu=1, gpu=1, on=["n"] * 2, phase="Running"),
            gang("new", 1, queue="good", cpu=1, gpu=1, priorityClassName="high"),
        ]
    )
    plan = decided(objects, plugin, f"allocate, {action}", monkeypatch, EVICTING[action])
    assert operations(plan, "evict") == set()


@pytest.mark.parametrize("plugin", sorted(registry.plugins().keys() - {"extender"}))
@pytest.mark.parametrize("point", ["__init__", "open"])
def test_a_plugin_that_does_not_open_forbids_all_that_it_could_forbid(
    monkeypatch: pytest.MonkeyPatch, plugin: str, point: str
) -> None:
    plan = decided(waiting(), plugin, BINDS, monkeypatch, point)
    forbids = any(has(plugin, each) for each in BINDING)
    assert operations(plan, "bind") == (
        set() if forbids else {f"default/{q}-{i}" for q in ("bad", "good") for i in (0, 1)}
    )


@pytest.mark.parametrize("plugin", ["capacity", "proportion"])
@pytest.mark.parametrize("point", ["open", "on_allocate", "allocatable", "queue_order"])
def test_a_queue_stays_within_its_capability(monkeypatch: pytest.MonkeyPatch, plugin: str, point: str) -> None:
    """One KeyError in capacity, and a queue of a capability of 2 got 6."""
    objects = flat(
        [
            node("n", cpu=8),
            queue("q", capability={"cpu": "2"}),
            *[gang(f"g{i}", 1, queue="q", cpu=1, minimum={"cpu": 1}) for i in range(6)],
        ]
    )
    plan = decided(objects, plugin, BINDS, monkeypatch, point)
    assert plan.faults
    assert len(operations(plan, "bind")) <= 2
