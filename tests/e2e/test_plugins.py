"""Each plugin through the daemon: what it decides is seen at the API server, from objects that came over the wire."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cluster import GROUPS, QUEUES, Cluster, Obj, group, node, pod, until
from tests.sizes import some
from vcd.scheduling.framework.registry import plugins

CLASSES = "priorityclasses.scheduling.k8s.io"
BUDGETS = "poddisruptionbudgets.policy"
SOFT, HARD = "preferredDuringSchedulingIgnoredDuringExecution", "requiredDuringSchedulingIgnoredDuringExecution"


def conf(actions: str, *entries: str) -> str:
    """A configuration of one tier; an entry is a plugin's name, with its arguments and flags as further lines."""
    lines = [f'actions: "{actions}"', "tiers:", "- plugins:"]
    for entry in entries:
        first, *rest = entry.splitlines()
        lines += [f"  - name: {first}", *[f"    {line}" for line in rest]]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Scenario:
    """A cluster and what becomes of it.

    ``first`` is there, and bound, before ``then`` comes. In the end ``bound`` have a node (the one given, if any),
    ``waits`` were told that they have none, and ``evicted`` are gone or going.
    """

    conf: str
    first: tuple[tuple[str, Obj], ...] = ()
    then: tuple[tuple[str, Obj], ...] = ()
    nodes: tuple[Obj, ...] = (node("n0", 2),)
    bound: tuple[tuple[str, str], ...] = ()
    waits: tuple[str, ...] = ()
    evicted: tuple[str, ...] = ()
    admitted_not: tuple[str, ...] = ()


def gang(name: str, *pods: Obj, minimum: int = 1, marks: dict[str, str] | None = None, **spec: Any) -> tuple[Any, ...]:
    """A group and its pods, as the store takes them."""
    made = group(name, minimum, **spec)
    if marks:
        made["metadata"]["annotations"] = marks
    return ((GROUPS, made), *[("pods", each) for each in pods])


def pods(name: str, count: int = 1, cpu: int = 1, **meta: Any) -> list[Obj]:
    """Pods of a group, placed in the order of their numbers; ``meta`` adds labels or annotations."""
    made = [pod(f"{name}-t-{number}", name, cpu) for number in range(count)]
    for each in made:
        for key, value in meta.items():
            each["metadata"].setdefault(key, {}).update(value)
    return made


def of_class(name: str, *made: Obj) -> list[Obj]:
    """The pods with a priority class, resolved as the API server's admission does."""
    for each in made:
        each["spec"] |= {"priorityClassName": name, "priority": {"high": 1000, "low": 10}[name]}
    return list(made)


def queue(name: str, marks: dict[str, str] | None = None, **spec: Any) -> tuple[str, Obj]:
    meta: Obj = {"name": name, **({"annotations": marks} if marks else {})}
    return QUEUES, {"kind": "Queue", "metadata": meta, "spec": {"weight": 1, **spec}}


def labelled(made: Obj, **labels: str) -> Obj:
    """A node with labels of Volcano's."""
    made["metadata"]["labels"] |= {f"volcano.sh/{key.replace('_', '-')}": value for key, value in labels.items()}
    return made


def in_roles(made: list[Obj], *roles: str) -> list[Obj]:
    for each, role in zip(made, roles, strict=True):
        each["metadata"]["annotations"]["volcano.sh/task-spec"] = role
    return made


CLASS_OBJECTS = tuple(
    (CLASSES, {"kind": "PriorityClass", "metadata": {"name": name}, "value": value})
    for name, value in (("high", 1000), ("low", 10))
)
PREEMPTING = "enqueue, allocate, preempt, backfill"
PLACING = "enqueue, allocate, backfill"


def _of_the_system(made: Obj) -> Obj:
    made["spec"] |= {"priorityClassName": "system-node-critical", "priority": 5}
    return made


def _selecting(name: str, wanted: str) -> Obj:
    return pod(f"{name}-t-0", name, nodeSelector={"kubernetes.io/hostname": wanted})


def selecting(where: str, *made: Obj) -> list[Obj]:
    """The pods for one node only."""
    for each in made:
        each["spec"]["nodeSelector"] = {"kubernetes.io/hostname": where}
    return list(made)


def topology(name: str, free: str) -> tuple[str, Obj]:
    """Eight CPUs on two NUMA nodes, as the resource exporter publishes them: it lists no pods."""
    spec = {
        "policies": {"CPUManagerPolicy": "static", "TopologyManagerPolicy": "single-numa-node"},
        "numares": {"cpu": {"allocatable": free, "capacity": 8}},
        "cpuDetail": {str(cpu): {"numa": cpu // 4, "socket": cpu // 4, "core": cpu} for cpu in range(8)},
    }
    return "numatopologies.nodeinfo.volcano.sh", {"metadata": {"name": name}, "spec": spec}


def rack(name: str, *nodes: str) -> tuple[str, Obj]:
    """A HyperNode of tier 1."""
    members = [{"type": "Node", "selector": {"exactMatch": {"name": node}}} for node in nodes]
    return "hypernodes.topology.volcano.sh", {"metadata": {"name": name}, "spec": {"tier": 1, "members": members}}


IN_ONE_RACK: Obj = {"networkTopology": {"mode": "hard", "highestTierAllowed": 1}}


def pinned(name: str, cpu: int) -> list[Obj]:
    """A pod with CPUs of its own on one NUMA node."""
    made = pods(name, 1, cpu, annotations={"volcano.sh/numa-topology-policy": "single-numa-node"})
    for each in made:
        resources = each["spec"]["containers"][0]["resources"]
        resources["limits"] = dict(resources["requests"])
    return made


SCENARIOS: dict[str, Scenario] = {
    "priority": Scenario(
        conf(PLACING, "priority", "gang", "predicates"),
        then=(
            *CLASS_OBJECTS,
            *gang("early", *pods("early", 2), minimum=2, priorityClassName="low"),
            *gang("late", *pods("late", 2), minimum=2, priorityClassName="high"),
        ),
        bound=(("late-t-0", ""), ("late-t-1", "")),
        waits=("early-t-0", "early-t-1"),
    ),
    "gang": Scenario(
        conf(PLACING, "gang", "predicates"),
        then=(*gang("three", *pods("three", 3), minimum=3), *gang("two", *pods("two", 2), minimum=2)),
        bound=(("two-t-0", ""), ("two-t-1", "")),
        waits=("three-t-0", "three-t-1", "three-t-2"),
    ),
    "conformance": Scenario(
        conf(PREEMPTING, "priority", "conformance", "predicates"),
        first=(*CLASS_OBJECTS, *gang("s", _of_the_system(pods("s")[0])), *gang("b", *of_class("low", *pods("b")))),
        then=gang("x", *of_class("high", *pods("x")), priorityClassName="high"),
        bound=(("x-t-0", "n0"), ("s-t-0", "n0")),
        evicted=("b-t-0",),
    ),
    "pdb": Scenario(
        conf(PREEMPTING, "priority", "pdb", "predicates"),
        first=(
            *CLASS_OBJECTS,
            (
                BUDGETS,
                {
                    "kind": "PodDisruptionBudget",
                    "metadata": {"name": "keep", "namespace": "default"},
                    "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}},
                },
            ),
            *gang("a", *of_class("low", *pods("a", labels={"app": "kept"}))),
            *gang("b", *of_class("low", *pods("b"))),
        ),
        then=gang("x", *of_class("high", *pods("x")), priorityClassName="high"),
        bound=(("x-t-0", "n0"), ("a-t-0", "n0")),
        evicted=("b-t-0",),
    ),
    "cdp": Scenario(
        conf(PREEMPTING, "priority", "cdp", "predicates"),
        first=(
            *CLASS_OBJECTS,
            *gang("a", *of_class("low", *pods("a", labels={"volcano.sh/cooldown-time": "1h"}))),
            *gang("b", *of_class("low", *pods("b"))),
        ),
        then=gang("x", *of_class("high", *pods("x")), priorityClassName="high"),
        bound=(("x-t-0", "n0"), ("a-t-0", "n0")),
        evicted=("b-t-0",),
    ),
    "numa-aware": Scenario(
        # what is free on n1 lacks the CPU of the pod that runs there, which holds no other one: 1-3 and 4-7 are left
        conf("enqueue, allocate, backfill", "gang", "predicates", "numa-aware"),
        nodes=(node("n0", 8), node("n1", 8)),
        first=(topology("n0", "1-2,4-5"), topology("n1", "1-7"), *gang("a", *selecting("n1", *pinned("a", 1)))),
        then=(*gang("g", *pinned("g", 4)), *gang("h", *pinned("h", 3)), *gang("i", *pinned("i", 3))),
        bound=(("g-t-0", "n1"), ("h-t-0", "n1")),
        waits=("i-t-0",),
    ),
    "network-topology-aware": Scenario(
        # without racks, n0 and n2 would each take a pod, too
        conf(PLACING, "gang", "predicates", "network-topology-aware"),
        nodes=(node("n0", 3), node("n1", 4), node("n2", 1)),
        then=(rack("r0", "n0", "n2"), rack("r1", "n1"), *gang("t", *pods("t", 2, 2), minimum=2, **IN_ONE_RACK)),
        bound=(("t-t-0", "n1"), ("t-t-1", "n1")),
    ),
    "overcommit": Scenario(
        conf(PLACING, "overcommit\narguments:\n  overcommit-factor: 1.0", "predicates"),
        then=(
            *gang("a", *pods("a", cpu=2), minResources={"cpu": "2"}),
            *gang("b", *pods("b"), minResources={"cpu": "1"}),
        ),
        bound=(("a-t-0", ""),),
        admitted_not=("b",),
    ),
    "drf": Scenario(
        conf(PLACING, "drf", "predicates"),
        nodes=(node("n0", 3),),
        # the groups are known, and one watch has both pods: a session cannot see that of a alone
        first=(*gang("a", *pods("a", cpu=2)), *gang("b")),
        then=(*(("pods", each) for each in pods("b")), ("pods", pod("a-t-1", "a"))),
        bound=(("b-t-0", ""),),
        waits=("a-t-1",),
    ),
    "proportion": Scenario(
        conf(PLACING, "proportion", "predicates"),
        then=(
            queue("q1"),
            queue("q2"),
            *gang("a", *pods("a", 2), queue="q1"),
            *gang("b", *pods("b", 2), queue="q2"),
        ),
        bound=(("a-t-0", ""), ("b-t-0", "")),
        waits=("a-t-1", "b-t-1"),
    ),
    "capacity": Scenario(
        conf(PLACING, "capacity\nenableHierarchy: true", "predicates"),
        nodes=(node("n0", 8),),
        then=(
            queue("root"),
            queue("top", capability={"cpu": "1"}, parent="root"),
            queue("leaf", parent="top"),
            *gang("a", *pods("a", 2), queue="leaf"),
        ),
        bound=(("a-t-0", ""),),
        waits=("a-t-1",),
    ),
    "predicates": Scenario(
        conf(PLACING, "predicates"),
        nodes=(node("n0", 2), node("n1", 2)),
        then=(*gang("a", _selecting("a", "n1")), *gang("b", _selecting("b", "n7"))),
        bound=(("a-t-0", "n1"),),
        waits=("b-t-0",),
    ),
    "binpack": Scenario(
        conf(PLACING, "binpack", "predicates"),
        nodes=(node("n0", 8), node("n1", 8), node("n2", 8)),
        first=gang("a", _selecting("a", "n2")),
        then=gang("b", *pods("b", 2)),
        bound=(("b-t-0", "n2"), ("b-t-1", "n2")),
    ),
    "resource-strategy-fit": Scenario(
        conf(
            PLACING,
            "resource-strategy-fit\narguments:\n  resources:\n    cpu: {type: MostAllocated, weight: 2}\n"
            "    memory: {type: LeastAllocated}",
            "predicates",
        ),
        nodes=(node("n0", 8), node("n1", 8), node("n2", 8)),
        first=gang("a", _selecting("a", "n2")),
        then=gang("b", *pods("b", 2)),
        bound=(("b-t-0", "n2"), ("b-t-1", "n2")),
    ),
    "tdm": Scenario(
        conf(PLACING, 'tdm\narguments: {tdm.revocable-zone.z: "0:00-0:00"}', "predicates"),
        nodes=(labelled(node("n0", 1), revocable_zone="z"), labelled(node("n1", 1), revocable_zone="y")),
        then=(
            *gang("a", *pods("a", 2, annotations={"volcano.sh/revocable-zone": "*"})),
            *gang("b", *pods("b")),
        ),
        bound=(("a-t-0", "n0"),),
        waits=("a-t-1", "b-t-0"),
    ),
    "nodeorder": Scenario(
        conf(PLACING, "nodeorder", "predicates"),
        nodes=(node("n0", 8), node("n1", 8)),
        first=gang("a", _selecting("a", "n0")),
        then=gang("b", *pods("b")),
        bound=(("b-t-0", "n1"),),
    ),
    "nodegroup": Scenario(
        conf(PLACING, "nodegroup", "predicates"),
        nodes=(labelled(node("n0", 2), nodegroup_name="blue"), labelled(node("n1", 2), nodegroup_name="red")),
        then=(
            queue("q", affinity={"nodeGroupAffinity": {HARD: ["red"]}}),
            *gang("a", *pods("a", 3), queue="q"),
        ),
        bound=(("a-t-0", "n1"), ("a-t-1", "n1")),
        waits=("a-t-2",),
    ),
    "resourcequota": Scenario(
        conf(PLACING, "resourcequota", "predicates"),
        first=(
            (
                "resourcequotas",
                {
                    "kind": "ResourceQuota",
                    "metadata": {"name": "quota", "namespace": "default"},
                    "spec": {"hard": {"cpu": "1"}},
                },
            ),
        ),
        then=(
            *gang("a", minResources={"cpu": "2"}),  # its controller makes the pods once it is admitted
            *gang("b", *pods("b"), minResources={"cpu": "1"}),
        ),
        bound=(("b-t-0", ""),),
        admitted_not=("a",),
    ),
    "sla": Scenario(
        conf(PLACING, "sla", "gang", "predicates"),
        then=(
            *gang("early", *pods("early", 2), minimum=2),
            *gang("hurry", *pods("hurry", 2), minimum=2, marks={"volcano.sh/sla-waiting-time": "1h"}),
        ),
        bound=(("hurry-t-0", ""), ("hurry-t-1", "")),
        waits=("early-t-0", "early-t-1"),
    ),
    "task-topology": Scenario(
        conf(PLACING, "task-topology", "predicates"),
        nodes=(node("n0", 2), node("n1", 2)),
        then=gang(
            "t",
            *in_roles(pods("t", 4), "ps", "ps", "worker", "worker"),
            minimum=4,
            marks={"volcano.sh/task-topology-anti-affinity": "ps;worker"},
        ),
        bound=(("t-t-0", "n0"), ("t-t-1", "n1"), ("t-t-2", "n0"), ("t-t-3", "n1")),
    ),
}


READ = (
    "capacity", "cdp", "network-topology-aware", "nodegroup", "numa-aware", "pdb", "priority", "resourcequota", "sla",
    "task-topology", "tdm",
)  # fmt: skip
"""Plugins that decide by kinds, fields, labels or annotations that no other test of a daemon sends over the wire."""


@pytest.mark.parametrize("name", some(len(READ), [*READ, *sorted(SCENARIOS.keys() - set(READ))]))
async def test_a_plugin_decides_from_what_came_over_the_wire(name: str, tmp_path: Path) -> None:
    scenario = SCENARIOS[name]
    file = tmp_path / "scheduler.conf"
    file.write_text(scenario.conf)
    async with Cluster(tmp_path) as cluster:
        for each in scenario.nodes:
            cluster.store.create("nodes", each)
        if scenario.first:
            put(cluster, scenario.first)
            first = await cluster.started("a", f"--scheduler-conf={file}")
            placed = [f"default/{made['metadata']['name']}" for kind, made in scenario.first if kind == "pods"]
            await cluster.until_bound(placed)
            await until(lambda: all(phase(cluster, key) == "Running" for key in placed), what="the first ones run")
            put(cluster, scenario.then)
            assert first.running
        else:
            put(cluster, scenario.then)
            await cluster.started("a", f"--scheduler-conf={file}")
        await cluster.until_bound([f"default/{key}" for key, _ in scenario.bound])
        await until(lambda: set(scenario.waits) <= told(cluster), what=f"{scenario.waits} are told to wait")
        await until(lambda: set(scenario.admitted_not) <= waiting_groups(cluster), what="groups are kept out")
        places = {bind.key.partition("/")[2]: bind.node for bind in cluster.binds}
        assert {key: places[key] for key, wanted in scenario.bound if wanted} == {
            key: wanted for key, wanted in scenario.bound if wanted
        }
        assert not set(scenario.waits) & set(places)
        gone = {key for key in places if phase(cluster, f"default/{key}") is None}
        assert gone == set(scenario.evicted)


def put(cluster: Cluster, objects: tuple[tuple[str, Obj], ...]) -> None:
    for kind, made in objects:
        cluster.store.create(kind, made)


def phase(cluster: Cluster, key: str) -> str | None:
    """A pod's phase; None of one that is gone or going."""
    found = [
        each for each in cluster.store.list("pods", "default") if each["metadata"]["name"] == key.partition("/")[2]
    ]
    if not found or found[0]["metadata"].get("deletionTimestamp"):
        return None
    return str(found[0].get("status", {}).get("phase", ""))


def told(cluster: Cluster) -> set[str]:
    """The pods that show that they were not scheduled."""
    return {
        each["metadata"]["name"]
        for each in cluster.store.list("pods", "default")
        if any(
            (one["type"], one["status"]) == ("PodScheduled", "False")
            for one in each.get("status", {}).get("conditions", [])
        )
    }


def waiting_groups(cluster: Cluster) -> set[str]:
    """Groups that a session looked at and left Pending."""
    return {
        each["metadata"]["name"]
        for each in cluster.store.list(GROUPS, "default")
        if each.get("status", {}).get("phase") == "Pending"
    }


def test_every_plugin_is_tried_through_the_daemon() -> None:
    """By a scenario here, or by a test beside this one that is marked with the plugin's name."""
    marked = set(SCENARIOS)
    for path in Path(__file__).parent.glob("test_*.py"):
        marked.update(re.findall(r'@pytest\.mark\.plugin\("([\w-]+)"\)', path.read_text()))
    assert set(plugins()) - marked == set()
