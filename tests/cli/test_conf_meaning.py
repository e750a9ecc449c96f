"""``vcd conf check`` and ``vcd conf diff``: what a configuration means, and where people keep it."""

from __future__ import annotations

import json
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from vcd.cli.conf import conf
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.framework import registry
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.framework.policy import DEFAULT_POLICY


def run(*arguments: object) -> Result:
    return CliRunner().invoke(conf, [str(argument) for argument in arguments])


def written(*plugins: str | dict[str, Any], actions: str = "enqueue, allocate, backfill") -> str:
    """A configuration with a tier for each few plugins, as people write it."""
    entries = [{"name": one} if isinstance(one, str) else one for one in plugins]
    return yaml.safe_dump({"actions": actions, "tiers": [{"plugins": entries}]}, sort_keys=False)


def findings(text: str) -> list[str]:
    """What does not fit, each as its first words."""
    return [problem.message for problem in read_policy(text).misfits]


MEASURED = "metrics: {type: metrics_server}\n"
GOOD = ("priority", "gang", "predicates", "proportion", "overcommit", "nodeorder")


@pytest.mark.parametrize(
    ("members", "is_slow"),
    [
        ({"predicates": lambda self: ()}, False),
        ({"job_order": lambda self, job: 0}, True),
        ({"job_order": lambda self, job: 0, "keys": ()}, False),
        ({"job_order": lambda self, job: 0, "keys": ("example.com/deadline",)}, False),
    ],
    ids=["filters only", "without keys", "no keys", "keys"],
)
def test_a_third_party_plugin_without_keys_is_slow(
    monkeypatch: pytest.MonkeyPatch, members: dict[str, Any], is_slow: bool
) -> None:
    known = MappingProxyType({**registry.plugins(), "ours": type("Ours", (Plugin,), {"name": "ours", **members})})
    monkeypatch.setattr(registry, "plugins", lambda: known)
    assert [each for each in findings(written(*GOOD, "ours")) if "declares no keys" in each] == findings(
        written(*GOOD, "ours")
    )
    assert bool(findings(written(*GOOD, "ours"))) == is_slow


@pytest.mark.parametrize("actions", ["enqueue, allocate", "enqueue, allocate, preempt, reclaim, backfill"])
def test_a_configuration_that_works_has_no_misfits(actions: str) -> None:
    assert findings(DEFAULT_POLICY) == []
    assert findings(written(*GOOD, actions=actions)) == []
    assert findings(written(*GOOD, "usage", actions=actions) + MEASURED) == []


@pytest.mark.parametrize(
    ("text", "start"),
    [
        (written(*GOOD, actions="enqueue, backfill"), "backfill binds pods without requests only"),
        (written(*GOOD, actions="enqueue"), "no action binds pods"),
        (written(*GOOD, "capacity"), "divides the cluster among queues as proportion does"),
        (written(*GOOD, "capacity-card"), "divides the cluster among queues as proportion does"),
        (written(*GOOD, actions="allocate"), "has no effect: it decides on admission only"),
        (written(*GOOD, "rescheduling") + MEASURED, "has no effect: it decides on the victims of shuffle only"),
        (written(*GOOD, "usage"), "has no effect: no usage of nodes is measured"),
        (written(*GOOD, "rescheduling", actions="allocate, enqueue, shuffle"), "has no effect: no usage of nodes is"),
        (written("gang", "nodeorder"), "pods are bound whatever their selectors"),
        (written("predicates", "nodeorder"), "pods are bound though their group has fewer than minMember"),
        (
            written("gang", "predicates", {"name": "nodeorder", "arguments": {"leastrequested.weight": -5}}),
            "leastrequested.weight is -5",
        ),
        (written(*GOOD, actions="enqueue, allocate, shuffle"), "shuffle never evicts"),
        (
            written(*GOOD[:3], {"name": "proportion", "enableHierarchy": True}, *GOOD[4:]),
            "enableHierarchy has no effect",
        ),
        (
            written(
                {"name": "gang", "enablePreemptable": False, "enableReclaimable": False},
                "predicates",
                actions="enqueue, allocate, preempt",
            ),
            "preempt never evicts",
        ),
    ],
)
def test_what_cannot_work_together_is_named(text: str, start: str) -> None:
    (found,) = findings(text)
    assert found.startswith(start)


def test_check_names_the_line_and_exits_with_0(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.conf"
    file.write_text(written(*GOOD, "capacity"))
    result = run("check", file)
    assert result.exit_code == 0
    assert result.stdout.startswith(f'{file}:10: warning: tiers[0].plugins[6]: "capacity": divides the cluster')


def test_a_factor_that_vc_scheduler_replaces_is_named() -> None:
    """Below 1 it is the default, so headroom that 0.8 would leave is not left."""
    entry = {"name": "overcommit", "arguments": {"overcommit-factor": 0.8}}
    policy = read_policy(written(*GOOD[:4], entry))
    (warning,) = policy.warnings
    assert "overcommit-factor is below 1: the default 1.2 holds" in str(warning)


@pytest.mark.parametrize(
    ("name", "key"), [("binpack", "binpack.cpu"), ("binpack", "binpack.resources.x/y"), ("usage", "usage.weight")]
)
def test_a_negative_weight_that_the_default_replaces_is_not_said_to_hold(name: str, key: str) -> None:
    """It was named as a weight that turns the order of nodes around."""
    entry = {"name": name, "arguments": {key: -1, **({"binpack.resources": "x/y"} if "x/y" in key else {})}}
    policy = read_policy(written(*GOOD, entry) + MEASURED)
    assert policy.misfits == ()
    assert [f"{key} is below 0: the default" in str(warning) for warning in policy.warnings] == [True]


def test_what_configures_an_action_that_is_not_among_the_actions_is_named() -> None:
    section = "configurations:\n- name: preempt\n  arguments: {enableTopologyAwarePreemption: true}\n"
    (warning,) = read_policy(written(*GOOD) + section).warnings
    assert "has no effect: preempt is not among the actions" in str(warning)
    assert read_policy(written(*GOOD, actions="allocate, preempt") + section).warnings == ()


@pytest.mark.parametrize(("name", "is_read"), [("capacity", True), ("drf", True), ("nodegroup", True), ("gang", False)])
def test_a_hierarchy_is_accepted_where_a_plugin_has_one(name: str, is_read: bool) -> None:
    names = [{"name": name, "enableHierarchy": True}, *{"gang", "predicates"} - {name}]
    assert ("enableHierarchy" not in "".join(findings(written(*names)))) is is_read


MAP = """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: volcano-scheduler-configmap
data:
  volcano-scheduler.conf: |
    actions: "enqueue, allocate"
    tiers:
    - plugins:
      - name: gang
      - name: nosuch
"""
CHART = MAP.replace("apiVersion: v1\nkind: ConfigMap\n", "basic: {}\n").replace("data:", "custom:")
CHART = CHART.replace("volcano-scheduler.conf", "scheduler_config_override")
OWN_CHART = CHART.replace("custom:", "scheduler:").replace("scheduler_config_override", "configuration")
AMONG_OTHERS = "kind: Namespace\nmetadata: {name: n}\n---\n" + MAP
WEBHOOKS = MAP[: MAP.index("\ndata:")] + "\ndata:\n  volcano-admission.conf: |\n    resourceGroups: []\n---\n"
LISTED = json.dumps({"kind": "List", "items": [yaml.safe_load(MAP)]})


HOLDING = [(MAP, 11), (CHART, 10), (OWN_CHART, 10), (AMONG_OTHERS, 14), (WEBHOOKS + MAP, 19), (LISTED, 5)]


@pytest.mark.parametrize(("text", "line"), HOLDING)
def test_it_reads_what_holds_a_configuration(tmp_path: Path, text: str, line: int) -> None:
    file = tmp_path / "file.yaml"
    file.write_text(text)
    result = run("check", file)
    assert result.exit_code == 1
    assert f'{file}:{line}: error: tiers[0].plugins[1].name: "nosuch": there is no plugin nosuch' in result.stdout


@pytest.mark.parametrize("count", [0, 2])
def test_a_configmap_has_one_configuration(tmp_path: Path, count: int) -> None:
    file = tmp_path / "file.yaml"
    data = {f"{number}.conf": DEFAULT_POLICY for number in range(count)}
    file.write_text(yaml.safe_dump({"kind": "ConfigMap", "metadata": {"name": "m"}, "data": data}))
    result = run("check", file)
    assert result.exit_code == 2
    assert f"{file}: {count} configurations in m; leave one with actions and tiers" in result.stderr


def changes(old: str, new: str, folder: Path) -> Result:
    files = folder / "old.conf", folder / "new.conf"
    for file, text in zip(files, (old, new), strict=True):
        file.write_text(text)
    return run("diff", *files)


def test_what_is_written_otherwise_is_no_change(tmp_path: Path) -> None:
    result = changes(DEFAULT_POLICY, "# the default\n" + DEFAULT_POLICY.replace('"', ""), tmp_path)
    assert result.exit_code == 0
    assert "decide identically" in result.stdout


@pytest.mark.parametrize(
    ("plugin", "flag", "counts"),
    [
        ("gang", "enableNodeOrder", False),
        ("gang", "enableJobReady", True),
        ("nodeorder", "enablePreemptable", False),
        ("nodeorder", "enableNodeOrder", True),
        ("predicates", "enableReservedNodes", False),
        ("proportion", "enableHierarchy", False),
        ("capacity", "enableHierarchy", True),
        ("drf", "enableHierarchy", True),
    ],
)
def test_flags_of_points_that_a_plugin_lacks_are_no_change(
    tmp_path: Path, plugin: str, flag: str, counts: bool
) -> None:
    written_otherwise = {"name": plugin, flag: flag == "enableHierarchy"}
    result = changes(written(plugin), written(written_otherwise), tmp_path)
    assert (result.exit_code, f"plugin {plugin}: {flag}: default -> " in result.stdout) == (int(counts), counts)


def test_diff_names_actions_plugins_arguments_flags_and_fields(tmp_path: Path) -> None:
    old = written("gang", "predicates", "proportion", "nodeorder")
    gang = {"name": "gang", "enablePreemptable": False}
    order = {"name": "nodeorder", "arguments": {"leastrequested.weight": 3}}
    result = changes(old, written(gang, "predicates", "capacity", order, actions="allocate, reclaim"), tmp_path)
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[0] == "actions: enqueue, allocate, backfill -> allocate, reclaim"
    assert "plugin gang: enablePreemptable: default -> false" in lines
    assert any(line.startswith("plugin proportion: tier 1 -> none (no longer: ") for line in lines)
    assert any(line.startswith("plugin capacity: none -> tier 1 (") for line in lines)
    assert "plugin nodeorder: leastrequested.weight: 1 -> 3" in lines
    assert "queues: spec.deserved: not read -> read" in lines
    assert "queues: spec.weight: read -> not read" in lines


@pytest.mark.parametrize(
    ("plugins", "actions", "line"),
    [
        (
            ("priority", "gang", "predicates"),
            "allocate",
            "order of tier 1: gang, priority, predicates -> priority, gang",
        ),
        (("gang", "priority", "predicates"), "allocate, allocate", "actions: allocate -> allocate, allocate"),
    ],
)
def test_order_and_repetition_are_changes(tmp_path: Path, plugins: tuple[str, ...], actions: str, line: str) -> None:
    old = written("gang", "priority", "predicates", actions="allocate")
    result = changes(old, written(*plugins, actions=actions), tmp_path)
    assert result.exit_code == 1
    assert result.stdout.startswith(line)


def test_diff_names_what_no_longer_fits(tmp_path: Path) -> None:
    result = changes(written(*GOOD), written(*GOOD, "capacity"), tmp_path)
    assert "divides the cluster among queues as proportion does" in result.stdout


def test_diff_of_a_file_that_cannot_be_used_exits_with_2(tmp_path: Path) -> None:
    result = changes(DEFAULT_POLICY, DEFAULT_POLICY.replace("gang", "gnag"), tmp_path)
    assert result.exit_code == 2
    assert "did you mean gang?" in result.stderr
