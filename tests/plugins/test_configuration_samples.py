"""Every configuration that Volcano's descriptions show is read as it stands.

A sample of ``tests/data/configurations`` is named by what its description is about. One that shows the tiers alone gets
Volcano's actions, one that shows an action's arguments alone gets its tiers: both are missing in the description only.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from vcd.scheduling.configuration import read_policy
from vcd.scheduling.framework.arguments import parse_arguments
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.framework.policy import DEFAULT_POLICY, Policy, PolicyError, parse_policy
from vcd.scheduling.framework.registry import actions, plugins

SAMPLES = {path.stem: path for path in sorted((Path(__file__).parents[1] / "data" / "configurations").glob("*.yaml"))}
OWN_ACTION = "framework-launch"
"""A guide to an action of one's own: examples/launch has it, its tests hold it to what it shows."""


def text_of(name: str) -> str:
    """A sample as a whole file."""
    text = SAMPLES[name].read_text()
    default = DEFAULT_POLICY.partition("tiers:")
    shown = yaml.safe_load(text)
    if "tiers" not in shown:
        text = "tiers:" + default[2] + text
    if "actions" not in shown:
        named = [entry["name"] for entry in shown.get("configurations", ())]
        text = (f"actions: {', '.join(named)}\n" if named else default[0]) + text
    return text


def read(name: str) -> Policy:
    return read_policy(text_of(name))


def made(name: str, plugin: str) -> Plugin:
    """A plugin as a session would make it of a sample."""
    policy = read(name)
    (option,) = [option for tier in policy.tiers for option in tier if option.name == plugin]
    return plugins()[plugin](parse_arguments(plugins()[plugin].arguments, option.arguments))


SHOWN = {"plugins": 14, "actions": 4, "framework": 12, "cards": 1}


def test_there_are_as_many_samples_as_the_descriptions_have() -> None:
    documents = [name.partition("-")[0] for name in SAMPLES]
    assert {document: documents.count(document) for document in documents} == SHOWN


@pytest.mark.parametrize("name", [name for name in SAMPLES if name != OWN_ACTION])
def test_a_sample_is_read_without_a_warning(name: str) -> None:
    """But for switches that have no effect here, which are told of."""
    assert [warning for warning in read(name).warnings if " has no effect: " not in warning.message] == []


@pytest.mark.parametrize("name", [name for name in SAMPLES if name != OWN_ACTION])
def test_all_that_a_sample_names_is_there(name: str) -> None:
    """Nothing that is written is passed over: actions, plugins, arguments and flags come back as they were written."""
    shown: dict[str, Any] = yaml.safe_load(text_of(name))
    policy = read(name)
    assert policy.actions == tuple(action.strip() for action in shown["actions"].split(","))
    written = [[entry["name"] for entry in tier["plugins"]] for tier in shown["tiers"]]
    assert [[option.name for option in tier] for tier in policy.tiers] == written
    for tier, options in zip(shown["tiers"], policy.tiers, strict=True):
        for entry, option in zip(tier["plugins"], options, strict=True):
            assert dict(option.arguments) == entry.get("arguments", {})
            flags = {key: on for key, on in entry.items() if key not in ("name", "arguments")}
            assert {flag: option.enabled[flag] for flag in flags} == flags
    for entry in shown.get("configurations", ()):
        assert dict(policy.configurations[entry["name"]]) == entry["arguments"]


def test_the_action_of_ones_own_is_all_that_is_missing() -> None:
    with pytest.raises(PolicyError, match="there is no action launch"):
        read(OWN_ACTION)
    declared = {**actions(), "launch": SimpleNamespace(arguments=())}
    policy = parse_policy(text_of(OWN_ACTION), actions=declared, plugins=plugins())
    assert (policy.actions, policy.warnings) == (("enqueue", "launch"), ())


# --- what samples come to ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "plugin", "expected"),
    [
        ("plugins-overcommit", "overcommit", {"overcommit-factor": 1.5}),
        ("plugins-nodegroup", "nodegroup", {"strict": True}),
        ("plugins-task-topology", "task-topology", {"task-topology.weight": 10}),
        (
            "plugins-extender",
            "extender",
            {
                "extender.urlPrefix": "http://my-extender-service:8080",
                "extender.httpTimeout": 100_000_000,
                "extender.allocateFuncVerb": "allocate",
                "extender.deallocateFuncVerb": "deallocate",
                "extender.ignorable": True,
                "extender.managedResources": ("nvidia.com/gpu", "nvidia.com/gpumem"),
            },
        ),
        (
            "framework-binpack",
            "binpack",
            {
                "binpack.resources": ("nvidia.com/gpu", "example.com/foo"),
                "binpack.resources.nvidia.com/gpu": 2,
                "binpack.resources.example.com/foo": 3,
            },
        ),
        (
            "framework-predicates",
            "predicates",
            {"predicate.resources.nvidia.com/gpu.cpu": 4.0, "predicate.resources.nvidia.com/gpu.memory": 8.0},
        ),
        ("framework-overcommit", "overcommit", {"overcommit-factor": 1.0}),
        ("framework-sla", "sla", {"sla-waiting-time": 3_723_004_005_006}),
        ("cards-capacity-card", "capacity-card", {"cardUnlimitedCpuMemory": True}),
    ],
)
def test_the_values_of_a_sample(name: str, plugin: str, expected: dict[str, Any]) -> None:
    values = made(name, plugin).values
    assert {key: values[key] for key in expected} == expected


@pytest.mark.parametrize(
    ("name", "plugin"), [("actions-allocate", "drf"), ("framework-gang", "gang"), ("cards-capacity-card", "drf")]
)
def test_a_flag_of_a_sample(name: str, plugin: str) -> None:
    """Preemptable is on unless the sample switches it off."""
    (option,) = [option for tier in read(name).tiers for option in tier if option.name == plugin]
    assert option.enabled["enablePreemptable"] is (name == "actions-allocate")
