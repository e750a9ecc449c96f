"""shuffle: what plugins want elsewhere is evicted."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import pytest

from tests.dsl import Manifest, gang, node, planned, session_after
from tests.world import World
from vcd.scheduling.framework import registry
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.session.views import Task
from vcd.timetravel.planning import PlanResult

Chooser = Callable[[list[Task]], list[Task]]


def moving(monkeypatch: pytest.MonkeyPatch, *tiers: list[Chooser], flags: str = "", actions: str = "shuffle") -> str:
    """A configuration of plugins of our own that want tasks gone, tier by tier."""
    known: dict[str, type[Plugin]] = {}
    lines = [f"actions: {actions}", "tiers:"]
    for tier in tiers:
        lines.append("- plugins:")
        for chooser in tier:
            name = f"mover{len(known)}"

            def choose(self: Plugin, tasks: list[Task], chooser: Chooser = chooser) -> list[Task]:
                return chooser(tasks)

            known[name] = type(name, (Plugin,), {"name": name, "victim_tasks": choose})
            lines.append(f"  - name: {name}{flags}")
    monkeypatch.setattr(registry, "plugins", lambda: MappingProxyType(known))
    return "\n".join(lines) + "\n"


def called(*names: str) -> Chooser:
    return lambda tasks: [task for task in tasks if task.name in names]


def everyone(tasks: list[Task]) -> list[Task]:
    return tasks


def shuffled(conf: str, *objects: Any) -> PlanResult:
    return planned(node("n1"), node("n2"), *objects, conf=conf)


def running(**options: Any) -> list[Manifest]:
    return list(gang("a", 3, on=["n1"] * 3, cpu=1, **options))


def test_whom_a_plugin_names_is_evicted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shuffled(moving(monkeypatch, [called("a-1")]), running()).evictions == ["default/a-1"]


def test_without_a_plugin_that_names_anybody_nobody_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shuffled(moving(monkeypatch, [called()]), running()).evictions == []
    assert shuffled("actions: shuffle\ntiers:\n- plugins: []\n", running()).evictions == []


def test_all_that_a_tier_names_are(monkeypatch: pytest.MonkeyPatch) -> None:
    conf = moving(monkeypatch, [called("a-1"), called("a-0", "a-1")])
    assert sorted(shuffled(conf, running()).evictions) == ["default/a-0", "default/a-1"]


def test_the_first_tier_that_names_somebody_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    conf = moving(monkeypatch, [called()], [called("a-2")], [called("a-0")])
    assert shuffled(conf, running()).evictions == ["default/a-2"]


def test_the_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    conf = moving(monkeypatch, [called("a-1")], flags="\n    enabledVictim: false")
    assert shuffled(conf, running()).evictions == []


@pytest.mark.parametrize(
    "options",
    [{"phase": "Succeeded"}, {"phase": "Failed"}, {"phase": "Pending"}, {"deleting": True}],
    ids=["ended", "failed", "bound", "leaving"],
)
def test_only_running_tasks_are_offered(monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]) -> None:
    old = running()
    if "phase" in options:
        old[1]["status"]["phase"] = options["phase"]
    else:
        old[1]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    offered: list[str] = []

    def note(tasks: list[Task]) -> list[Task]:
        offered.extend(task.name for task in tasks)
        return []

    shuffled(moving(monkeypatch, [note]), old)
    assert offered == ["a-1", "a-2"]


@pytest.mark.parametrize("where", ["annotations", "labels"])
def test_a_pod_that_says_so_stays(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    marks: dict[str, Any] = {where: {"volcano.sh/preemptable": "false"}}
    assert shuffled(moving(monkeypatch, [everyone]), running(**marks)).evictions == []


def test_tasks_that_wait_are_not_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = shuffled(moving(monkeypatch, [everyone]), gang("a", 2, on=["n1"], cpu=1))
    assert plan.evictions == ["default/a-0"]


def test_they_are_offered_in_order_of_key(monkeypatch: pytest.MonkeyPatch) -> None:
    offered: list[str] = []

    def note(tasks: list[Task]) -> list[Task]:
        offered.extend(task.name for task in tasks)
        return []

    shuffled(moving(monkeypatch, [note]), gang("b", 2, on=["n1", "n2"], cpu=1), gang("a", 2, on=["n2", "n1"], cpu=1))
    assert offered == ["a-0", "a-1", "b-0", "b-1"]


def test_each_job_has_a_statement(monkeypatch: pytest.MonkeyPatch) -> None:
    conf = moving(monkeypatch, [everyone])
    session = session_after(
        node("n1"), gang("a", 2, on=["n1"] * 2, cpu=1), gang("b", 2, on=["n1"] * 2, cpu=1), conf=conf
    )
    parts = [(statement.action, statement.job.name, len(statement)) for statement in session.trial.statements]
    assert parts == [("shuffle", "a", 2), ("shuffle", "b", 2)]


def test_a_plugin_has_no_say_over_tasks_that_are_not_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    """It named a pod that has left since: what is not running is not evicted."""
    held: list[Task] = []

    def named(tasks: list[Task]) -> list[Task]:
        held.extend(task for task in tasks[0].job.tasks() if task not in tasks)
        return held

    assert shuffled(moving(monkeypatch, [named]), gang("a", 2, on=["n1"], cpu=1)).evictions == []


def test_the_pods_are_placed_again_by_later_cycles(monkeypatch: pytest.MonkeyPatch) -> None:
    conf = moving(
        monkeypatch, [lambda tasks: [task for task in tasks if task.node == 0][:1]], actions='"allocate, shuffle"'
    )
    world = World(node("n1", cpu=1), node("n2", cpu=1), gang("a", 1, on=["n1"], cpu=1), conf=conf)
    world.cycle()
    assert world.evicted == ["default/a-0"]
    world.put(node("n1", cpu=1, unschedulable=True), [*gang("a", 2, members=1, cpu=1)][2])
    world.cycle()
    assert list(world.placed()) == ["a-1"]


def test_a_pod_may_be_moved_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plugins that move have bounds in time of their own."""
    world = World(node("n1"), gang("a", 1, on=["n1"], cpu=1), conf=moving(monkeypatch, [everyone]))
    world.cycle()
    world.put([*gang("a", 2, members=1, on=["n1", "n1"], cpu=1)][2])
    world.cycle()
    assert world.evicted == ["default/a-0", "default/a-1"]


TDM = """
actions: "shuffle"
tiers:
- plugins:
  - name: tdm
    arguments:
      tdm.revocable-zone.night: "22:00-6:00"
  - name: gang
"""


@pytest.mark.parametrize("conf", [TDM, TDM.replace("  - name: gang", "- plugins:\n  - name: gang")])
@pytest.mark.parametrize(("size", "gone"), [(4, ["default/a-3"]), (5, ["default/a-3", "default/a-4"])])
def test_a_gang_whose_pods_are_leaving_is_not_called_unschedulable(conf: str, size: int, gone: list[str]) -> None:
    """Pods that this session evicts still fill their gang until they are gone, as those do that were evicted before:
    the group shows no phase Unknown in between."""
    nights = node("n2", labels={"volcano.sh/revocable-zone": "night"})
    places = ["n1"] * (size - len(gone)) + ["n2"] * len(gone)
    objects = list(gang("a", size, on=places, cpu=1, members=size))
    objects[0]["metadata"]["annotations"] = {"volcano.sh/jdb-max-unavailable": "100%"}
    objects[1]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:01Z"  # it is below its minimum already
    objects[0]["status"]["phase"] = "Running"
    plan = planned(node("n1"), nights, objects, conf=conf)
    assert plan.evictions == gone
    assert plan.phases["default/a"] == "Running"
    assert session_after(node("n1"), nights, objects, conf=conf).conditions == {}
