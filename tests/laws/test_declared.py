"""Law: nothing is declared that nobody reads.

Every argument of every plugin and action is read, or says that it is without effect; every enable flag takes its plugin
out of its points, or says so; every point is asked by some action; every kind that a plugin declares is looked at. What
is read is seen in cycles on clusters that give each plugin and action something to do.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec
import pytest

from tests.dsl import BARE, NOW_NS, Manifest, flat, gang, group, node, pod, priority_class, queue, session_of
from tests.plugins.test_deviceshare import card, gpus, vpod
from tests.predicates.storage import claim, csi_driver, storage_class, using
from tests.topology.manifests import hard, hyper_node
from tests.world import asked_first
from vcd.model.kinds import Kind
from vcd.model.manifests import default_queues
from vcd.scheduling import decide
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.framework import answer_checks, registry
from vcd.scheduling.framework.arguments import Argument, ArgumentError, ArgumentValues
from vcd.scheduling.framework.framework import Framework
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.framework.points import FLAGS, IDLE_FLAGS, POINTS, Vote
from vcd.scheduling.framework.policy import PluginOption, Policy
from vcd.scheduling.framework.registry import actions, plugins
from vcd.scheduling.framework.trace import VICTIM_POINTS
from vcd.scheduling.framework.victims import rule_of
from vcd.scheduling.search.candidates import Memory
from vcd.scheduling.session.session import Session
from vcd.scheduling.session_close import plan_of
from vcd.state.snapshot import SnapshotMaker
from vcd.timetravel.planning import state_of

ARGUMENTS: Mapping[str, Manifest] = {
    "binpack": {"binpack.resources": "nvidia.com/gpu"},
    "deviceshare": {
        "deviceshare.VGPUEnable": True,
        "deviceshare.GPUExclusiveRules": [{"tier": "hot"}],
        "deviceshare.ScheduleWeight": 1,
    },
    "extender": {
        "extender.urlPrefix": "http://server",
        "extender.ignorable": True,
        **{
            f"extender.{verb}Verb": verb
            for verb in ("predicate", "preemptable", "reclaimable", "allocateFunc", "deallocateFunc")
        },
    },
    "predicates": {"predicate.ProportionalEnable": True, "predicate.resources": "nvidia.com/gpu"},
    "resource-strategy-fit": {
        "resources": {"cpu": {}},
        "sra": {"enable": True, "resources": "nvidia.com/gpu"},
        "proportional": {"enable": True, "resources": "nvidia.com/gpu"},
    },
}
CONFIGURATIONS = {"preempt": {"enableTopologyAwarePreemption": True}}
ALL = tuple(name for name in plugins() if name != "proportion")
MAKING_ROOM = ("priority", "gang", "predicates", "capacity", "extender")


def policy_of(*names: str, only: Iterable[str] = (), hierarchy: bool = False, **more: Manifest) -> Policy:
    """A configuration of all actions (or some) and these plugins; ``more`` are arguments beside those above."""
    entries = [
        {
            "name": name,
            "enableHierarchy": hierarchy and name == "capacity",
            "arguments": {**ARGUMENTS.get(name, {}), **more.get(name, {})},
        }
        for name in names
    ]
    configured = [{"name": name, "arguments": given} for name, given in CONFIGURATIONS.items()]
    chosen = ", ".join(only or actions())
    return read_policy(json.dumps({"actions": chosen, "tiers": [{"plugins": entries}], "configurations": configured}))


def urgent(name: str, size: int, **options: Any) -> list[Manifest]:
    """A gang of a high priority."""
    container = {"name": "c", "resources": {"requests": {"cpu": "4"}}}
    spec = {"priority": 9, "containers": [container]}
    return list(gang(name, size, group_spec={"priorityClassName": "high"}, spec=spec, **options))


TERM = {
    "topologyKey": "zone",
    "labelSelector": {"matchLabels": {"app": "a"}},
    "namespaceSelector": {"matchLabels": {"team": "t"}},
}
AFFINITY = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [TERM],
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": TERM}],
    }
}
SUB_GROUPS = {"subGroupPolicy": [{"name": "s", "subGroupSize": 1, "matchLabelKeys": ["part"]}]}
PARTS = [pod(f"parts-{i}", group="parts", cpu=1, labels={"part": str(i)}) for i in range(2)]
ROOMY = [
    *[node(f"n{i}", cpu=4, gpu=2, labels={"zone": str(i)}) for i in range(3)],
    *gang("train", 2, cpu=1),
    *gang("needs", 1, cpu=1, spec=using("data")),
    claim("data"),
    storage_class("late", provisioner="driver"),
    csi_driver("driver", storage_capacity=True),
    *gang("far", 1, cpu=1, labels={"app": "a"}, spec={"affinity": AFFINITY}),
    {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "default", "labels": {"team": "t"}}},
    group("parts", members=2, **SUB_GROUPS),
    *PARTS,
    pod("best-effort", group="train"),
    group("comes", phase="Pending", minimum={"cpu": 1}),
    pod("comes-0", group="comes", cpu=1),
    *gang("runs", 2, members=1, cpu=1, on=["n0", "n1"]),
    hyper_node("rack", 1, "n0", "n1"),
    *gang("near", 2, cpu=1, group_spec=hard(1)),
]
FULL = [
    node("n", cpu=8),
    priority_class("high", 9),
    queue("q", deserved={"cpu": "8"}),
    queue("other", deserved={"cpu": "1"}),
]


def occupied(name: str, members: int) -> list[Manifest]:
    """A node full of a gang in a queue, for whose room an urgent one of queue q waits."""
    return [*FULL, *gang("v", 2, members=members, cpu=4, on=["n", "n"], queue=name), *urgent("g", 1, queue="q")]


TREE = [queue("parent"), queue("leaf", parent="parent"), *gang("g", 1, cpu=1, queue="leaf")]
CARDS = [gpus("n", card("A")), group("g"), vpod("p", memory=1, group="g")]
CYCLES: tuple[tuple[Policy, list[Manifest]], ...] = (
    (policy_of(*ALL), ROOMY),
    (policy_of("gang", "predicates", "nodeorder", "proportion", "extender"), ROOMY),
    (policy_of("gang", "predicates", "network-topology-aware"), ROOMY),
    (policy_of("gang", "deviceshare", "numa-aware"), CARDS),
    (policy_of("gang", "deviceshare", deviceshare={"deviceshare.NodeLockEnable": True}), CARDS),
    *(
        (policy_of(*MAKING_ROOM, only=["allocate", action]), occupied(name, members))
        for action, name in (("preempt", "q"), ("gangpreempt", "q"), ("reclaim", "other"), ("gangreclaim", "other"))
        for members in (1, 2)
    ),
    (policy_of("gang", "predicates", "capacity", hierarchy=True), [node("n", cpu=2), *TREE]),
    (policy_of("gang", "tdm", "rescheduling", "pdb", "cdp", only=["shuffle"]), ROOMY),
)


def cycle(policy: Policy, objects: list[Manifest], observers: list[Plugin], others: Any = None) -> Session:
    """A cycle; ``others`` stand in for the snapshot's other objects."""
    made = list(flat(objects))
    snapshot = SnapshotMaker(state_of([*default_queues(made), *made])).snapshot()
    if others is not None:
        others.update(snapshot.others)
        snapshot = dataclasses.replace(snapshot, others=others)
    with asked_first(*observers):
        session = decide.run(snapshot, policy, NOW_NS, 0)
    assert session.faults == ()
    plan_of(session)
    return session


# --- arguments --------------------------------------------------------------------------------------------------------

Owned = tuple[str, str]
"""A plugin's or ``action NAME``'s argument: whose, and the way to it."""


def nested(arguments: Iterable[Argument], before: str = "") -> Iterator[tuple[str, Argument]]:
    for each in arguments:
        yield before + each.key, each
        yield from nested(each.fields or (), f"{before}{each.key}.")


def owners() -> dict[str, tuple[Argument, ...]]:
    return {
        **{name: each.arguments for name, each in plugins().items()},
        **{f"action {name}": each.arguments for name, each in actions().items()},
    }


DECLARED: dict[Owned, Argument] = {
    (owner, key): each for owner, arguments in owners().items() for key, each in nested(arguments)
}


class Seen(ArgumentValues):
    """Values that note which of them are asked for."""

    _note: Callable[[str], None]
    _before: str

    @classmethod
    def of(cls, values: ArgumentValues, note: Callable[[str], None], before: str = "") -> Seen:
        made = cls.__new__(cls)
        made.__dict__.update(values.__dict__)
        made._note, made._before = note, before
        return made

    def __getitem__(self, key: str) -> Any:
        return self._seen(self.declaration(key).key, super().__getitem__(key))

    def matching(self, pattern: str) -> dict[str, Any]:
        return {name: self._seen(pattern, value) for name, value in super().matching(pattern).items()} or self._seen(
            pattern, {}
        )

    def _seen(self, key: str, value: Any) -> Any:
        way = self._before + key
        self._note(way)
        if isinstance(value, ArgumentValues):
            return Seen.of(value, self._note, f"{way}.")
        if isinstance(value, tuple):
            return tuple(
                Seen.of(each, self._note, f"{way}.") if isinstance(each, ArgumentValues) else each for each in value
            )
        return value


@pytest.fixture(scope="module")
def read() -> set[Owned]:
    """What was read in all cycles."""
    found: set[Owned] = set()
    by_declaration = {id(arguments): owner for owner, arguments in owners().items()}
    real, values_of = registry.read_arguments, Policy.values

    def seen(values: ArgumentValues, declared: tuple[Argument, ...]) -> ArgumentValues:
        names = [owner for owner, arguments in owners().items() if arguments is declared]
        assert id(declared) in by_declaration
        return Seen.of(values, lambda way: found.update((name, way) for name in names))

    def values(
        policy: Policy, name: str, declared: tuple[Argument, ...], given: Mapping[str, Any] | None
    ) -> ArgumentValues:
        return seen(values_of(policy, name, declared, given), declared)

    def reading(
        declared: tuple[Argument, ...], raw: Mapping[str, Any] | None
    ) -> tuple[ArgumentValues, list[ArgumentError]]:
        values, errors = real(declared, raw)
        return seen(values, declared), errors

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Policy, "values", values)
        for policy, objects in CYCLES:
            cycle(policy, objects, [])
        patch.setattr(registry, "read_arguments", reading)
        registry.bind_timeout(policy_of("predicates"))
    return found


def has_no_effect(owner: str, key: str) -> bool:
    """Return whether an argument, or one that it is nested in, is declared to have no effect."""
    ways = [key, *(key[:place] for place, sign in enumerate(key) if sign == ".")]
    return any(DECLARED[owner, way].without_effect for way in ways if (owner, way) in DECLARED)


def test_every_argument_is_read_or_says_that_it_has_no_effect(read: set[Owned]) -> None:
    idle = {each for each in DECLARED if has_no_effect(*each)}
    assert DECLARED.keys() & read == DECLARED.keys() - idle


# --- points and flags -------------------------------------------------------------------------------------------------

NEUTRAL: Mapping[Any, Any] = {
    answer_checks.keys: 0,
    answer_checks.vote: Vote.ABSTAIN,
    answer_checks.admission: Vote.ABSTAIN,
    answer_checks.truth: True,
    answer_checks.count: 0,
    answer_checks.listed_victims: [],
    answer_checks.predicates: (),
    answer_checks.scores: (),
    answer_checks.volumes: (),
    answer_checks.texts: {},
    answer_checks.ratings: (),
}
"""An answer that is no opinion, by its check; None where that is not named here."""


def spy(asked: set[str], *, chooses: bool = True) -> Plugin:
    """A plugin that has a method for every point, and no opinion; where one ``chooses`` nodes, tasks go one by one."""

    def method(name: str) -> Callable[..., Any]:
        def answer(self: Plugin, *_: Any) -> Any:
            asked.add(name)
            return NEUTRAL.get(POINTS[name].check)

        return answer

    says = {"name": "spy", "__module__": "vcd.spy", "keys": ()}
    kind = type("Spy", (Plugin,), {**says, **{name: method(name) for name in POINTS if chooses or name != "best_node"}})
    made: Plugin = kind(ArgumentValues((), {}, ()))
    return made


def test_every_point_is_asked_by_some_action() -> None:
    asked: set[str] = set()
    for policy, objects in CYCLES:
        cycle(policy, objects, [spy(asked)])
    volumes = [claim("data"), storage_class("late", provisioner="driver"), *gang("v", 1, cpu=1, spec=using("data"))]
    objects = [node("n", cpu=4), *gang("g", 3, cpu=1), *volumes]
    cycle(policy_of("gang", "predicates"), objects, [spy(asked, chooses=False)])
    assert asked == set(POINTS)


@pytest.mark.parametrize("flag", FLAGS)
def test_every_flag_takes_its_plugin_out_of_its_points_or_says_that_it_has_no_effect(flag: str) -> None:
    """But for enableHierarchy, which drf reads itself."""
    points = [name for name, point in POINTS.items() if point.flag == flag]
    assert bool(points) == (flag not in IDLE_FLAGS and flag != "enableHierarchy")
    plugin = spy(set())
    for on in (True, False):
        policy = read_policy(BARE)  # its own: what takes part is worked out once a policy
        framework = Framework(session_of(), policy, [[(PluginOption("spy", {flag: on}, {}), plugin)]], Memory())
        assert [len(framework.participants[name].methods) for name in points] == [int(on)] * len(points)


def test_the_flag_that_is_a_plugins_own_is_read_by_it() -> None:
    class Asked(dict[str, bool]):
        def __getitem__(self, key: str) -> bool:
            seen.add(key)
            return super().__getitem__(key)

        def get(self, key: str, default: Any = None) -> Any:
            seen.add(key)
            return super().get(key, default)

    seen: set[str] = set()
    policy = policy_of("gang", "drf", "predicates")
    tiers = tuple(
        tuple(msgspec.structs.replace(option, enabled=Asked(option.enabled)) for option in tier)
        for tier in policy.tiers
    )
    cycle(dataclasses.replace(policy, tiers=tiers), ROOMY, [])
    assert "enableHierarchy" in seen


# --- kinds ------------------------------------------------------------------------------------------------------------


class Others(dict[str, Any]):
    """Objects by kind that note which kinds are asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def get(self, kind: str, default: Any = None) -> Any:
        self.seen.add(kind)
        return super().get(kind, default)

    def __getitem__(self, kind: str) -> Any:
        self.seen.add(kind)
        return super().__getitem__(kind)


KINDS = [
    (name, kind.name if isinstance(kind, Kind) else kind) for name, plugin in plugins().items() for kind in plugin.kinds
]


@pytest.fixture(scope="module")
def looked_at() -> dict[str, set[str]]:
    """The kinds that are looked at in cycles with each plugin that declares some."""
    found: dict[str, set[str]] = {}
    for name in dict(KINDS):
        for objects in (ROOMY, CARDS, occupied("q", 1)):
            others = Others()
            verbs = {"extender.onSessionOpenVerb": "open"} if name == "extender" else {}
            cycle(policy_of("gang", name, **{name: verbs}), objects, [], others)
            found.setdefault(name, set()).update(others.seen)
    return found


def test_every_kind_that_a_plugin_declares_is_looked_at(looked_at: dict[str, set[str]]) -> None:
    assert [(plugin, kind) for plugin, kind in KINDS if kind not in looked_at[plugin]] == []


# --- what plugins say of their answers --------------------------------------------------------------------------------


def test_a_plugin_that_lets_tasks_go_declares_whom() -> None:
    answering = [(name, point) for name, kind in plugins().items() for point in VICTIM_POINTS if hasattr(kind, point)]
    assert len(answering) > 20
    assert [one for one in answering if not rule_of(plugins()[one[0]], one[1])] == []
