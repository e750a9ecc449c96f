"""What a gang can spare is not spent on pods that somebody else protects, nor on pods whose going does not help.

Each of a tier's plugins is asked about all pods; vetoes hold first, then a job's surplus goes to those who help. Tried
under a tier of all protecting plugins and under the default tiers, in orders of plugins
within a tier of which a wide run takes all for some tests, and the others take each seventh.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import pytest

from tests.dsl import gang, group, node, planned, pod, priority_class, queue
from tests.sizes import WIDE

SPECIFIED = ("priority", "gang", "conformance", "pdb", "cdp")
SHARES = ("drf", "predicates", "proportion", "nodeorder")
COOLING = {
    "annotations": {"volcano.sh/cooldown-time": "2h"},
    "status": {
        "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-21T07:00:00Z"}]
    },
}
PROTECTED: dict[str, dict[str, Any]] = {
    "cdp": COOLING,
    "conformance": {"spec": {"priorityClassName": "system-node-critical"}},
    "pdb": {"labels": {"app": "kept"}},
}
BUDGET = {
    "apiVersion": "policy/v1",
    "kind": "PodDisruptionBudget",
    "metadata": {"name": "kept", "namespace": "default"},
    "spec": {"selector": {"matchLabels": {"app": "kept"}}},
    "status": {"disruptionsAllowed": 0},
}
PROTECTION = pytest.mark.parametrize("protection", sorted(PROTECTED))


def some_tiers() -> Iterable[tuple[tuple[str, ...], ...]]:
    """Each seventh of ``tiers``."""
    return itertools.islice(tiers(), 0, None, 7)


def tiers() -> Iterable[tuple[tuple[str, ...], ...]]:
    """Every order of that tier, and the default tiers with the other protecting plugins anywhere."""
    for order in itertools.permutations(SPECIFIED):
        yield order, SHARES
    for first in itertools.permutations(("priority", "gang", "conformance")):
        yield first, (*SHARES, "cdp", "pdb")
        yield first, ("pdb", *SHARES, "cdp")
    for first in itertools.permutations(("priority", "gang")):
        for rest in itertools.permutations(("conformance", "pdb", "cdp")):
            yield first, (*rest, *SHARES)


def conf(actions: str, order: Iterable[Iterable[str]], **arguments: str) -> str:
    lines = [f'actions: "{actions}"', "tiers:"]
    for tier in order:
        lines.append("- plugins:")
        for name in tier:
            lines.append(f"  - name: {name}")
            if name in arguments:
                lines += ["    arguments:", f"      {arguments[name]}"]
    return "\n".join(lines) + "\n"


def evicted(actions: str, order: Iterable[Iterable[str]], *objects: Any, **arguments: str) -> list[str]:
    """Who goes in one cycle."""
    objects = (priority_class("low", 1), priority_class("high", 9), BUDGET, *objects)
    result = planned(*objects, conf=conf(actions, order, **arguments))
    assert not (result.faults or result.set_aside)
    return sorted(key.partition("/")[2] for key in result.evictions)


def one(name: str, *, job: str, on: str = "n", **options: Any) -> dict[str, Any]:
    """A running pod of a group, with more of a status where options say so."""
    status = options.pop("status", {})
    made = pod(name, group=job, on=on, **options)
    made["status"].update(status)
    return made


def spares_one(protection: str, *protected: int, size: int = 3, of: str = "default") -> list[Any]:
    """A gang of low priority that can spare one of its 1-CPU pods, some of which are protected."""
    pods = [one(f"old-{i}", job="old", cpu=1, **(PROTECTED[protection] if i in protected else {})) for i in range(size)]
    return [group("old", members=size - 1, queue=of, phase="Running", priorityClassName="low"), *pods]


def wants_one(of: str = "default") -> list[Any]:
    return list(gang("new", 1, cpu=1, queue=of, group_spec={"priorityClassName": "high"}))


@PROTECTION
@pytest.mark.parametrize("action", ["preempt", "gangpreempt"])
def test_the_surplus_is_not_spent_on_pods_that_others_keep(action: str, protection: str) -> None:
    """Of three pods on a full node one may go; of those that would go first, two are kept."""
    for order in tiers() if WIDE else some_tiers():
        objects = (node("n", cpu=3), *spares_one(protection, 2, 0), *wants_one())
        assert evicted(action, order, *objects) == ["old-1"], order


@PROTECTION
@pytest.mark.parametrize("action", ["reclaim", "gangreclaim"])
def test_nor_where_another_queue_takes_back_its_share(action: str, protection: str) -> None:
    for order in some_tiers():
        queues = (queue("default"), queue("mine"))
        objects = (node("n", cpu=4), *queues, *spares_one(protection, 3, 0, 1, size=4), *wants_one("mine"))
        assert evicted(action, order, *objects) == ["old-2"], order


@pytest.mark.parametrize("action", ["preempt", "gangpreempt"])
def test_where_all_are_kept_nobody_goes(action: str) -> None:
    for order in some_tiers():
        objects = (node("n", cpu=3), *spares_one("cdp", 0, 1, 2), *wants_one())
        assert evicted(action, order, *objects) == [], order


@pytest.mark.parametrize("action", ["preempt", "gangpreempt"])
def test_the_surplus_is_not_spent_on_pods_whose_going_does_not_help(action: str) -> None:
    """The node lacks cards alone; the two that come last hold none."""
    pods = [one("old-0", job="old", gpu=1), *[one(f"old-{i}", job="old", cpu=1) for i in (1, 2)]]
    new = list(gang("new", 1, gpu=1, cpu=1, group_spec={"priorityClassName": "high"}))
    old = group("old", members=2, phase="Running", priorityClassName="low")
    for order in some_tiers():
        assert evicted(action, order, node("n", cpu=8, gpu=1), old, *pods, *new) == ["old-0"], order


@pytest.mark.parametrize("resource", ["cpu", "memory"])
def test_one_that_holds_much_goes_where_one_that_holds_little_does_not_do(resource: str) -> None:
    """Only one of the gang may go; the first in order holds some of what lacks, and not enough of it."""
    sizes = {"old-0": 3, "old-1": 2, "old-2": 1}
    pods = [one(name, job="old", **{resource: size}) for name, size in sizes.items()]
    old = group("old", members=2, phase="Running", priorityClassName="low")
    for order in some_tiers():
        new = gang("new", 1, **{resource: 3}, group_spec={"priorityClassName": "high"})
        assert evicted("preempt", order, node("n", **{resource: 6}), old, *pods, *new) == ["old-0"], order


def test_the_surplus_goes_to_the_pod_that_has_what_nobody_else_brings() -> None:
    """The job can spare a pod with cpu or one with memory; x-0, which may go, too, holds cpu."""
    old = group("old", members=1, phase="Running", priorityClassName="low")
    pods = [one("old-0", job="old", memory=2), one("old-1", job="old", cpu=2)]
    x = [group("x", members=0, phase="Running", priorityClassName="low"), one("x-0", job="x", cpu=2)]
    for order in some_tiers():
        new = gang("new", 1, cpu=2, memory=2, group_spec={"priorityClassName": "high"})
        gone = evicted("preempt", order, node("n", cpu=4, memory=2), old, *pods, *x, *new)
        assert gone == ["old-0", "x-0"], order


@PROTECTION
def test_a_zone_that_closes_takes_another_pod_where_one_is_kept(protection: str) -> None:
    """tdm takes one pod of a job at a time."""
    marks = {"volcano.sh/preemptable": "true"}
    objects = spares_one(protection, 0, 1)
    for each in objects:
        each["metadata"].setdefault("annotations", {}).update(marks)
    closed = node("n", cpu=3, labels={"volcano.sh/revocable-zone": "rz1"})
    for order in itertools.islice(itertools.permutations((*SPECIFIED, "tdm")), 0, None, 31):
        window = "tdm.revocable-zone.rz1: 01:00-01:01"
        assert evicted("shuffle", [order], closed, *objects, tdm=window) == ["old-2"], order
