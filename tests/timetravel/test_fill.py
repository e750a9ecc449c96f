"""How many more fit: on clusters whose room can be counted by hand."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests import dsl
from tests.dsl import Manifest
from tests.timetravel.histories import CONF, SCORED, scheduler
from vcd.eventlog import LogError
from vcd.model.codec import BadObject
from vcd.scheduling.framework.policy import PolicyError
from vcd.timetravel.whatif.fill import Filling, fill

PLAIN = "actions: allocate\ntiers:\n- plugins:\n  - name: priority\n  - name: gang\n  - name: predicates\n"
PREEMPTING = PLAIN.replace("actions: allocate", 'actions: "allocate, preempt"')


async def logged(path: Path, *objects: Manifest | Iterable[Manifest], conf: str = PLAIN) -> Path:
    """A log of one session over these objects."""
    async with scheduler(path / "log", conf) as made:
        await made.show(dsl.queue("root"), dsl.queue("default"), *objects)
        await made.carry_out(await made.cycle())
    return path / "log"


def took(filling: Filling) -> list[tuple[int, int]]:
    return [(kind.nodes, kind.took) for kind in filling.kinds]


async def test_pods_fill_what_nodes_have_left(tmp_path: Path) -> None:
    # 3 nodes of 8 take 2 pods of 3 each; the node that runs one of 4 takes 1
    log = await logged(tmp_path, [dsl.node(f"n{i}") for i in range(3)], dsl.gang("there", 1, cpu=4, on=["n0"]))
    found = fill(log, dsl.pod("more", cpu=3))
    assert (found.copies, found.pods, found.at_limit, took(found)) == (5, 1, False, [(3, 5)])
    assert [(why.gate, why.reason, why.nodes) for why in found.why] == [
        ("predicate", "Insufficient cpu", 3),
        ("gang", "fewer tasks than the minimum", 0),
    ]
    assert next(iter(found.used.items())) == ("cpu", (4 + 5 * 3) / 24)


async def test_the_answer_is_told_in_sentences(tmp_path: Path) -> None:
    log = await logged(
        tmp_path,
        [dsl.node(f"a{i}", cpu=4, labels={"pool": "a", "os": "linux"}) for i in range(2)],
        dsl.node("b", cpu=5, memory=8, labels={"pool": "b", "os": "linux"}),
    )
    assert list(fill(log, dsl.pod("more", cpu=2, memory=4)).lines()) == [
        "6 more of default/more fit at 2026-01-01 00:00:00, after session 1",
        "  4 pods on 2 nodes of 4 cpu, 32Gi memory (pool=a)",
        "  2 pods on 1 node of 5 cpu, 8Gi memory (pool=b)",
        "the next one waits: more-copy-000006: 3 nodes Insufficient cpu; more-copy-000006: 1 node Insufficient memory",
        "then in use of the nodes that took them: cpu 92%, memory 33%, pods 2%",
    ]


async def test_a_gang_fits_whole_or_not_at_all(tmp_path: Path) -> None:
    # 10 places of 2 cpu: 3 gangs of 3, and one place is left
    log = await logged(tmp_path, [dsl.node(f"n{i}", cpu=4) for i in range(5)])
    found = fill(log, dsl.flat([dsl.gang("ring", 3, cpu=2)]))
    assert (found.job, found.copies, found.pods, sum(kind.took for kind in found.kinds)) == ("default/ring", 3, 3, 9)
    assert next(iter(found.lines())).startswith("3 more of default/ring fit (9 pods) at ")


async def test_copies_that_begin_with_less_are_counted_whole(tmp_path: Path) -> None:
    # each of 4 copies would get one of its two pods first, so that none is whole; 2 copies are
    log = await logged(tmp_path, dsl.node("n", cpu=4))
    assert fill(log, dsl.flat([dsl.gang("pair", 2, members=1, cpu=1)])).copies == 2


@pytest.mark.parametrize("size", range(1, 12))
async def test_it_is_what_counting_one_by_one_gives(tmp_path: Path, size: int) -> None:
    log = await logged(tmp_path, dsl.node("n", cpu=size), dsl.node("m", cpu=3))
    assert fill(log, dsl.pod("one", cpu=1)).copies == size + 3


async def test_a_queue_may_run_out_before_the_nodes(tmp_path: Path) -> None:
    log = await logged(tmp_path, dsl.node("n", cpu=100), dsl.queue("small", capability={"cpu": "8"}), conf=CONF)
    found = fill(log, dsl.flat([dsl.gang("pair", 2, cpu=3, queue="small")]))
    assert found.copies == 1
    assert next((why.gate, why.plugin, why.reason, why.detail) for why in found.why) == (
        "queue",
        "proportion",
        "queue has no room within what it deserves",
        {"asks cpu": "3", "deserved cpu": "8", "allocated cpu": "6"},
    )


async def test_nobody_is_evicted_for_it(tmp_path: Path) -> None:
    low, high = dsl.priority_class("low", 1), dsl.priority_class("high", 100)
    running = dsl.gang("low", 2, members=1, cpu=4, on=["n", "n"], spec={"priorityClassName": "low", "priority": 1})
    log = await logged(tmp_path, dsl.node("n", cpu=10), low, high, running, conf=PREEMPTING)
    found = fill(log, dsl.pod("high", cpu=2, spec={"priorityClassName": "high"}))
    assert (found.copies, found.notes) == (1, ["preempt left out: no pod is evicted or moved"])


async def test_none_fits_where_there_is_no_room(tmp_path: Path) -> None:
    log = await logged(tmp_path, dsl.node("n", cpu=1))
    found = fill(log, dsl.pod("large", cpu=2))
    assert (found.copies, found.used, took(found)) == (0, {}, [(1, 0)])
    assert next(iter(found.lines())) == "no more of default/large fits at 2026-01-01 00:00:00, after session 1"


async def test_there_is_a_limit(tmp_path: Path) -> None:
    log = await logged(tmp_path, dsl.node("n", cpu=100))
    found = fill(log, dsl.pod("one", cpu=1), limit=7)
    assert (found.copies, found.at_limit, found.why) == (7, True, [])
    assert next(iter(found.lines())).startswith("at least 7 more of default/one fit at ")


async def test_best_effort_copies_are_counted_by_their_place(tmp_path: Path) -> None:
    conf = SCORED  # backfill places what asks for nothing
    log = await logged(tmp_path, dsl.node("n", pods=5), conf=conf)
    assert fill(log, dsl.pod("light")).copies == 5


async def test_copies_avoid_each_other_as_the_job_does(tmp_path: Path) -> None:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "db"}}}
    apart = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}
    log = await logged(tmp_path, [dsl.node(f"n{i}") for i in range(3)])
    assert fill(log, dsl.pod("db", cpu=1, labels={"app": "db"}, spec=apart)).copies == 3


async def test_it_may_be_asked_of_an_earlier_session(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log", PLAIN) as made:
        await made.show(dsl.queue("default"), dsl.node("n", cpu=8))
        await made.cycle()
        await made.show(dsl.gang("there", 1, cpu=6))
        await made.carry_out(await made.cycle())
    assert fill(tmp_path / "log", dsl.pod("one", cpu=1)).copies == 2
    assert fill(tmp_path / "log", dsl.pod("one", cpu=1), session=2).copies == 2  # its bind counts once it is decided
    assert fill(tmp_path / "log", dsl.pod("one", cpu=1), session=1).copies == 8
    with pytest.raises(LogError, match="session 9 is not in it; it has sessions 1 to 2"):
        fill(tmp_path / "log", dsl.pod("one", cpu=1), session=9)


async def test_who_waits_already_is_decided_on_in_the_same_session(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log", PLAIN) as made:
        await made.show(dsl.queue("default"), dsl.node("n", cpu=8))
        await made.cycle()
        await made.show(dsl.gang("waits", 2, cpu=2))
    found = fill(tmp_path / "log", dsl.pod("one", cpu=1, created=9))
    assert (found.copies, found.notes) == (4, ["2 pods that waited were placed in the same session"])


async def test_another_configuration_may_be_asked(tmp_path: Path) -> None:
    log = await logged(tmp_path, dsl.node("n", cpu=100), dsl.queue("small", capability={"cpu": "8"}), conf=PLAIN)
    job = dsl.flat([dsl.gang("one", 1, cpu=1, queue="small")])
    assert (fill(log, job).copies, fill(log, job, conf=CONF).copies) == (100, 8)
    with pytest.raises(PolicyError, match="did you mean allocate"):
        fill(log, job, conf="actions: allocat\n")


async def test_nodes_are_told_by_what_they_offer(tmp_path: Path) -> None:
    taint = {"key": "gpu", "value": "only", "effect": "NoSchedule"}
    log = await logged(
        tmp_path,
        dsl.node("a", labels={"zone": "1", "host": "a"}),
        dsl.node("b", labels={"zone": "1", "host": "b"}),
        dsl.node("c", labels={"zone": "2", "host": "c"}),
        dsl.node("d", labels={"zone": "1", "host": "d"}, taints=[taint]),
        dsl.node("e", labels={"zone": "1", "host": "e"}, unschedulable=True),
        dsl.node("f", labels={"zone": "1", "host": "f"}, gpu=4),
    )
    kinds = fill(log, dsl.pod("one", cpu=8)).kinds
    assert [(kind.words, kind.took) for kind in kinds] == [
        ("2 nodes of 8 cpu, 32Gi memory (zone=1)", 2),
        ("1 node of 8 cpu, 32Gi memory (zone=2)", 1),
        ("1 node of 8 cpu, 32Gi memory, 4 GPU (zone=1)", 1),
        ("1 node of 8 cpu, 32Gi memory (zone=1)", 0),
        ("1 node of 8 cpu, 32Gi memory (zone=1, cordoned)", 0),
    ]


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        ({"kind": "Service", "metadata": {"name": "s"}}, "the submitted manifests have no pod"),
        (
            dsl.pod("p", cpu="much"),
            "Pod default/p: resources: resource cpu: cpu: quantity 'much' is",
        ),
        (dsl.pod("p", group="gone", cpu=1), "there is no PodGroup default/gone: Pod default/p, metadata"),
        (dsl.group("g"), "the submitted manifests have no pod"),
        ([3], "a manifest is a mapping, not int"),
    ],
)
async def test_what_is_no_job_is_refused(tmp_path: Path, manifest: Any, message: str) -> None:
    log = await logged(tmp_path, dsl.node("n"))
    with pytest.raises(BadObject, match=message):
        fill(log, manifest)
