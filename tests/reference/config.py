"""The scheduler's configuration file: actions, tiers of plugins, flags, arguments."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import yaml

LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's where it is there: tests read thousands of configurations."""

DEFAULT = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
- plugins:
  - name: overcommit
  - name: drf
  - name: predicates
  - name: proportion
  - name: nodeorder
"""

# extension point -> the key that turns it off
FLAGS = {
    "jobOrder": "enableJobOrder",
    "jobReady": "enableJobReady",
    "jobPipelined": "enableJobPipelined",
    "jobEnqueued": "enableJobEnqueued",
    "taskOrder": "enableTaskOrder",
    "queueOrder": "enableQueueOrder",
    "predicate": "enablePredicate",
    "nodeOrder": "enableNodeOrder",
    "overused": "enabledOverused",
    "allocatable": "enabledAllocatable",
}
EVICTION_FLAGS = {
    "jobStarving": "enableJobStarving",
    "preemptable": "enablePreemptable",
    "reclaimable": "enableReclaimable",
    "preemptive": "enablePreemptive",
    "victimTasks": "enabledVictim",
}
ACTIONS = ("enqueue", "allocate", "backfill", "preempt", "reclaim", "shuffle", "gangpreempt", "gangreclaim")
PLUGINS = (
    "priority",
    "gang",
    "conformance",
    "overcommit",
    "drf",
    "proportion",
    "predicates",
    "nodeorder",
    "binpack",
    "sla",
    "resourcequota",
    "task-topology",
    "nodegroup",
    "resource-strategy-fit",
    "capacity",
    "capacity-card",
    "pdb",
    "cdp",
    "tdm",
    "numa-aware",
    "deviceshare",
    "usage",
    "extender",
    "rescheduling",
)
_TRUE, _FALSE = {"1", "t", "T", "true", "TRUE", "True"}, {"0", "f", "F", "false", "FALSE", "False"}


@dataclass
class Arguments:
    """A plugin's or action's arguments; a value of another type than asked for is as if absent."""

    values: dict[str, Any] = field(default_factory=dict)

    def integer(self, key: str, default: int) -> int:
        value = self.values.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else default

    def number(self, key: str, default: float) -> float:
        value = self.values.get(key)
        return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else default

    def boolean(self, key: str, default: bool) -> bool:
        value = self.values.get(key)
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value in _TRUE | _FALSE:
            return value in _TRUE
        return default

    def text(self, key: str, default: str) -> str:
        value = self.values.get(key)
        return value if isinstance(value, str) else default


@dataclass
class PluginOption:
    """One plugin of a tier, with the extension points that are off."""

    name: str
    off: set[str]
    arguments: Arguments
    hierarchy: bool = False


@dataclass
class Configuration:
    """What is run: actions in order, plugins by tier, arguments of actions."""

    actions: list[str]
    tiers: list[list[PluginOption]]
    action_arguments: dict[str, Arguments]


def parse(text: str | None) -> Configuration:
    """Read a configuration file, or the compiled-in one for None."""
    raw = yaml.load(DEFAULT if text is None else text, Loader=LOADER) or {}
    actions = [name.strip() for name in str(raw.get("actions") or "").split(",")]
    unknown = [name for name in actions if name not in ACTIONS]
    if unknown:
        raise ValueError(f"the reference has no action {unknown[0]!r}")
    tiers = [[_option(plugin) for plugin in tier.get("plugins") or []] for tier in raw.get("tiers") or []]
    arguments: dict[str, Arguments] = {}
    for item in raw.get("configurations") or []:
        arguments.setdefault(item.get("name"), Arguments(item.get("arguments") or {}))
    return Configuration(actions, tiers, arguments)


def _option(raw: dict[str, Any]) -> PluginOption:
    if raw.get("name") not in PLUGINS:
        raise ValueError(f"the reference has no plugin {raw.get('name')!r}")
    off = {point for point, key in {**FLAGS, **EVICTION_FLAGS}.items() if raw.get(key) is False}
    return PluginOption(raw["name"], off, Arguments(raw.get("arguments") or {}), raw.get("enableHierarchy") is True)
