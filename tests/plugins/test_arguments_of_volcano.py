"""Every argument that Volcano's plugins and actions read is declared here under its key, with its default.

The tables are typed by hand from Volcano's source (``pkg/scheduler/plugins``, ``pkg/scheduler/actions``); a dynamic key
holds a placeholder. Durations are nanoseconds. Beside an argument that differs on purpose stands `Differs`, with why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from tests.dsl import node, pod, session_of
from tests.plugins.opened import conf
from vcd.scheduling.framework.arguments import Argument, parse_arguments
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.framework.registry import actions, plugins
from vcd.scheduling.plugins.rescheduling.low_node_utilization import PARAMS, LowNodeUtilization
from vcd.scheduling.plugins.resource_strategy_fit import ResourceStrategyFitPlugin
from vcd.scheduling.plugins.usage import UsagePlugin
from vcd.scheduling.search.predicates.proportional import Rate
from vcd.scheduling.search.scores.resource_strategy import LEAST, Strategy

SECOND = 1_000_000_000
MINUTE = 60 * SECOND


@dataclass(frozen=True)
class Differs:
    """A default that is not Volcano's, and why."""

    default: Any
    volcano: Any
    why: str


@dataclass(frozen=True)
class Added:
    """A key that Volcano's source does not read, and where it comes from."""

    default: Any
    why: str


DRA = "Volcano takes Kubernetes' feature gate; ResourceClaims are not read here"
OLDER = "read by older versions of Volcano, no longer by its main branch (docs/semantics/plugins.md)"
MOVED = "of older versions; in Volcano's main branch an argument of deviceshare"
SHARES = Added(False, "vcd's own: how shares differ from Volcano's (docs/differences.md)")
VICTIMS = Added(True, "vcd's own: what evictions could free counts at admission (docs/differences.md)")
NODES = Added(True, "vcd's own: applications are admitted by the nodes that they name (docs/differences.md)")
GUIDE = "Volcano's guide to the plugin names it, its source does not read it"

PLUGINS: Mapping[str, Mapping[str, Any]] = {
    "binpack": {
        "binpack.weight": 1,
        "binpack.cpu": 1,
        "binpack.memory": 1,
        "binpack.resources": (),
        "binpack.resources.<resource>": 1,
    },
    "capacity": {
        "ancestorReclaimLevel": 0,
        "capacity.DynamicResourceAllocationEnable": Differs(False, True, DRA),
        "capacity.DRAConsumableCapacityEnable": False,
        "volcanoSharesEnable": SHARES,
        "countVictimsEnable": VICTIMS,
    },
    # not in the source that the tables are typed from: Volcano's guide to the plugin
    "capacity-card": {
        "cardUnlimitedCpuMemory": False,
        "nodeOrderWeight": 1.0,
        "volcanoSharesEnable": SHARES,
        "countVictimsEnable": VICTIMS,
    },
    "cdp": {},
    "conformance": {},
    "deviceshare": {
        "deviceshare.GPUSharingEnable": False,
        "deviceshare.GPUNumberEnable": False,
        "deviceshare.NodeLockEnable": False,
        "deviceshare.VGPUEnable": False,
        "deviceshare.AscendMindClusterVNPUEnable": False,
        "deviceshare.AscendHAMiVNPUEnable": False,
        "deviceshare.SchedulePolicy": "",
        "deviceshare.ScheduleWeight": 0,
        "deviceshare.GPUExclusiveRules": (),
        "deviceshare.KnownGeometriesCMName": "volcano-vgpu-device-config",
        "deviceshare.KnownGeometriesCMNamespace": "kube-system",
    },
    "drf": {},
    "extender": {
        "extender.urlPrefix": "",
        "extender.httpTimeout": SECOND,
        "extender.sessionTimeout": Added(3 * SECOND, "vcd's own: what a session may spend on an extender in all"),
        "extender.onSessionOpenVerb": "",
        "extender.onSessionCloseVerb": "",
        "extender.predicateVerb": "",
        "extender.prioritizeVerb": "",
        "extender.preemptableVerb": "",
        "extender.reclaimableVerb": "",
        "extender.queueOverusedVerb": "",
        "extender.jobEnqueueableVerb": "",
        "extender.jobEnqueuedVerb": "",
        "extender.jobReadyVerb": "",
        "extender.allocateFuncVerb": "",
        "extender.deallocateFuncVerb": "",
        "extender.ignorable": False,
        "extender.managedResources": (),
    },
    "gang": {},
    "nodegroup": {"strict": True, "enablePreferredOrder": False},
    "nodeorder": {
        "nodeaffinity.weight": 2,
        "podaffinity.weight": 2,
        "leastrequested.weight": 1,
        "mostrequested.weight": 0,
        "balancedresource.weight": 1,
        "tainttoleration.weight": 3,
        "imagelocality.weight": 1,
        "podtopologyspread.weight": 2,
    },
    "numa-aware": {"weight": 1},
    "overcommit": {"overcommit-factor": 1.2, "countVictimsEnable": VICTIMS, "admitByNodesEnable": NODES},
    "pdb": {},
    "predicates": {
        "predicate.NodeAffinityEnable": True,
        "predicate.NodePortsEnable": True,
        "predicate.TaintTolerationEnable": True,
        "predicate.PodAffinityEnable": True,
        "predicate.NodeVolumeLimitsEnable": True,
        "predicate.VolumeZoneEnable": True,
        "predicate.PodTopologySpreadEnable": True,
        "predicate.VolumeBindingEnable": True,
        "predicate.CacheEnable": False,
        "predicate.DynamicResourceAllocationEnable": Differs(False, True, DRA),
        "volumebinding.weight": 1,
        "volumebinding.bindTimeoutSeconds": 600,
        "volumebinding.shape": (),
        "dynamicresources.filterTimeoutSeconds": 10,
        "predicate.ProportionalEnable": Added(False, OLDER),
        "predicate.resources": Added((), OLDER),
        "predicate.resources.<resource>.cpu": Added(1.0, OLDER),
        "predicate.resources.<resource>.memory": Added(1.0, OLDER),
        "predicate.GPUSharingEnable": Added(False, MOVED),
        "predicate.GPUNumberEnable": Added(False, MOVED),
    },
    "network-topology-aware": {
        "weight": 1,
        "hypernode.binpack.cpu": 1,
        "hypernode.binpack.memory": 1,
        "hypernode.binpack.resources": (),
        "hypernode.binpack.resources.<resource>": 1,
        "hypernode.binpack.normal-pod.enable": True,
        "hypernode.binpack.normal-pod.fading": 0.8,
        "hypernode.gradient.evict.max-hypernodes": 8,
        "labels": Added((), "vcd's own: domains from node labels"),
    },
    "priority": {},
    "proportion": {"volcanoSharesEnable": SHARES, "countVictimsEnable": VICTIMS},
    "rescheduling": {
        "interval": 5 * MINUTE,
        "metricsPeriod": 5 * MINUTE,
        "strategies": ({"name": "lowNodeUtilization"},),
        "queueSelector": Added((), GUIDE),
        "labelSelector": Added({}, GUIDE),
    },
    "resource-strategy-fit": {
        "resourceStrategyFitWeight": 10,
        "resources": None,
        "sra": None,
        "proportional": None,
    },
    "resourcequota": {},
    "sla": {"sla-waiting-time": None},
    "task-topology": {"task-topology.weight": 1},
    "tdm": {"tdm.revocable-zone.<zone>": None, "tdm.evict.period": MINUTE},
    "usage": {"usage.weight": 5, "cpu.weight": 1, "memory.weight": 1, "thresholds": {}, "estimator": {}},
}
"""Keys and defaults by plugin; what is within a mapping is held to Volcano's at the end of this file."""

CACHE = {"predicateErrorCacheEnable": True}

ACTIONS: Mapping[str, Mapping[str, Any]] = {
    "allocate": CACHE,
    "backfill": CACHE,
    "enqueue": {},
    # these two also read allocate's predicateErrorCacheEnable
    "gangpreempt": {"maxDomains": 8, "allowWholeBundle": True},
    "gangreclaim": {"maxDomains": 8, "allowWholeBundle": True},
    "preempt": {
        **CACHE,
        "enableTopologyAwarePreemption": False,
        "topologyAwarePreemptWorkerNum": 16,
        "minCandidateNodesPercentage": 10,
        "minCandidateNodesAbsolute": 1,
        "maxCandidateNodesAbsolute": 100,
    },
    "reclaim": CACHE,
    "shuffle": {},
}


def plain(default: Any) -> Any:
    return default.default if isinstance(default, Differs | Added) else default


def declared(arguments: tuple[Argument, ...]) -> dict[str, Any]:
    return {argument.key: argument.default for argument in arguments}


def typed(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key: plain(default) for key, default in table.items()}


def test_the_tables_are_of_all_plugins_and_actions_that_there_are() -> None:
    assert set(PLUGINS) == set(plugins())
    assert set(ACTIONS) == set(actions())


@pytest.mark.parametrize("name", PLUGINS)
def test_a_plugin_declares_volcanos_arguments_with_their_defaults(name: str) -> None:
    assert declared(plugins()[name].arguments) == typed(PLUGINS[name])


@pytest.mark.parametrize("name", ACTIONS)
def test_an_action_declares_volcanos_arguments_with_their_defaults(name: str) -> None:
    assert declared(actions()[name].arguments) == typed(ACTIONS[name])


DIFFERING = [
    pytest.param(name, key, value, id=f"{name} {key}")
    for name, table in PLUGINS.items()
    for key, value in table.items()
    if isinstance(value, Differs)
]


@pytest.mark.parametrize(("name", "key", "value"), DIFFERING)
def test_a_different_default_says_so_in_the_documentation(name: str, key: str, value: Differs) -> None:
    """What Volcano's default switches on may be written all the same, and is told of."""
    (argument,) = [argument for argument in plugins()[name].arguments if argument.key == key]
    assert value.default != value.volcano
    assert parse_arguments(plugins()[name].arguments, {key: value.volcano}).warnings == (
        f"{key} has no effect: {argument.without_effect}",
    )


# --- what Volcano takes where a value makes no sense ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("binpack", "binpack.cpu"),
        ("binpack", "binpack.memory"),
        ("capacity", "ancestorReclaimLevel"),
        ("overcommit", "overcommit-factor"),
        ("resource-strategy-fit", "resourceStrategyFitWeight"),
        ("usage", "usage.weight"),
        ("usage", "cpu.weight"),
        ("usage", "memory.weight"),
        ("gangpreempt", "maxDomains"),
        ("gangreclaim", "maxDomains"),
    ],
)
def test_a_value_for_which_volcano_takes_its_default_is_no_error(name: str, key: str) -> None:
    declarations = (plugins().get(name) or actions()[name]).arguments
    (argument,) = [each for each in declarations if each.key == key]
    taken = -1 if argument.default_below is None else argument.default
    assert parse_arguments(declarations, {key: -1})[key] == taken


# --- within mappings --------------------------------------------------------------------------------------------------


def made(name: str, **arguments: Any) -> Plugin:
    return plugins()[name](parse_arguments(plugins()[name].arguments, arguments))


def test_the_sections_of_usage() -> None:
    plugin = made("usage")
    assert isinstance(plugin, UsagePlugin)
    assert plugin.thresholds == (80, 80)
    assert msgspec.structs.asdict(plugin.estimator) == {
        "request_ratio": 0.7,
        "burst_ratio": 0.0,
        "risk_threshold": 0.6,
        "risk_factor": 1.2,
        "be_cpu": 250.0,
        "be_mem": 200.0 * 2**20,
    }


def test_the_resources_of_resource_strategy_fit() -> None:
    """Not given, and given without type or weight."""
    plugin = made("resource-strategy-fit")
    assert isinstance(plugin, ResourceStrategyFitPlugin)
    assert plugin.strategies == {"cpu": Strategy(LEAST, 1), "memory": Strategy(LEAST, 1)}
    plugin = made("resource-strategy-fit", resources={"cpu": {}})
    assert isinstance(plugin, ResourceStrategyFitPlugin)
    assert plugin.strategies == {"cpu": Strategy(LEAST, 1)}


def test_scarce_resources_of_resource_strategy_fit() -> None:
    """Off; switched on, each resource counts 1, and 1 core and 1 gigabyte are kept for it.

    The weight of sra itself is 1 where not given, as documented; Volcano's source takes 0, which is off.
    """
    section = {"enable": True, "resources": "a/b"}
    plugin = made("resource-strategy-fit", sra=section, proportional=section)
    assert isinstance(plugin, ResourceStrategyFitPlugin)
    assert (plugin.scarce, plugin.rates) == ({"a/b": 1}, {"a/b": Rate(1.0, 1.0)})
    objects = [node("n", **{"a/b": 1}), pod("p", cpu=1)]
    shown = {}
    for on in ("false", "true"):
        sections = dict.fromkeys(("sra", "proportional"), f"{{enable: {on}, resources: a/b}}")
        evaluator = framework_of(session_of(*objects, conf=conf("resource-strategy-fit", arguments=sections))).evaluator
        shown[on] = (len(evaluator.predicates), len(evaluator.scores))
    assert shown == {"false": (0, 1), "true": (1, 2)}


def test_the_parameters_of_low_node_utilization() -> None:
    assert msgspec.structs.asdict(LowNodeUtilization.of(parse_arguments(PARAMS, {}))) == {
        "low": {"cpu": 100.0, "memory": 100.0},
        "high": {"cpu": 100.0, "memory": 100.0},
        "priority_class": "system-cluster-critical",
        "node_fit": True,
    }
