"""What is within mappings and lists of a configuration is typed and declared as flat arguments are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from vcd.cli import main
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.framework.arguments import Argument, ArgumentError, ArgumentValues, parse_arguments, read_arguments
from vcd.scheduling.framework.policy import PolicyError
from vcd.scheduling.framework.registry import actions, describe_policy, plugins

LEVELS = (
    Argument("low", "int", 10, "", minimum=0, maximum=100),
    Argument("name", "str", "", "", choices=("a", "b")),
    Argument("every.<name>", "float", 1.0, ""),
)
DECLARED = (
    Argument("levels", "mapping", None, "", fields=LEVELS),
    Argument("steps", "list", ({"low": 3},), "", fields=LEVELS),
    Argument("by", "mapping", {}, "", fields=(Argument("<name>", "mapping", None, "", fields=LEVELS),)),
    Argument("must", "url", "", "", required=True),
    Argument("idle", "bool", False, "", without_effect="nobody minds"),
)
MUST = {"must": "http://server:80/x"}


def values(**raw: Any) -> ArgumentValues:
    return parse_arguments(DECLARED, {**MUST, **raw})


def warnings(**raw: Any) -> tuple[str, ...]:
    return values(**raw).warnings


# --- values -----------------------------------------------------------------------------------------------------------


def test_what_is_not_given_within_has_its_default() -> None:
    found = values(levels={"low": 4})
    assert dict(found["levels"]) == {"low": 4, "name": ""}
    assert found["levels"].given == {"low"}
    assert dict(values()["levels"]) == {"low": 10, "name": ""}


def test_items_of_a_list_are_read_each() -> None:
    assert [dict(item) for item in values(steps=[{"low": 4}, {"name": "b"}])["steps"]] == [
        {"low": 4, "name": ""},
        {"low": 10, "name": "b"},
    ]
    assert [item["low"] for item in values()["steps"]] == [3]


def test_keys_that_a_file_names_itself_are_found() -> None:
    found = values(by={"x": {"every.y": 2}, 7: {}})["by"]
    assert {name: each.matching("every.<name>") for name, each in found.items()} == {"x": {"y": 2.0}, "7": {}}


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ({"levels": {"low": "eighty"}}, "levels.low: 'eighty' is not an integer from 0 to 100"),
        ({"levels": {"low": 101}}, "levels.low: 101 is not an integer from 0 to 100"),
        ({"levels": {"name": "c"}}, "levels.name: 'c' is not one of a, b"),
        ({"levels": {"every.x": "?"}}, "levels.every.x: '?' is not a number"),
        ({"levels": [1]}, "levels: [1] is not a mapping of low, name, every.<name>"),
        ({"steps": [{}, {"low": True}]}, "steps[1].low: True is not an integer from 0 to 100"),
        ({"steps": [3]}, "steps[0]: 3 is not a mapping of low, name, every.<name>"),
        ({"by": {"x": {"low": -1}}}, "by.x.low: -1 is not an integer from 0 to 100"),
        ({"must": "server:80"}, "must: 'server:80' is not a URL with http:// or https:// and a host"),
        ({"must": "http://server:port/"}, "must: 'http://server:port/' is not a URL with http://"),
    ],
)
def test_a_wrong_value_is_named_with_the_whole_way_to_it(raw: dict[str, Any], words: str) -> None:
    with pytest.raises(ArgumentError) as raised:
        values(**raw)
    assert words in str(raised.value)


def test_what_is_required_is_missed() -> None:
    with pytest.raises(ArgumentError, match="must: None is not given: a URL with http:// or https:// and a host"):
        parse_arguments(DECLARED, {})


def test_every_wrong_value_is_told_and_all_others_hold() -> None:
    found, errors = read_arguments(DECLARED, {"levels": {"low": "x", "name": "b"}, "steps": [{"name": "x", "low": 1}]})
    assert [error.key for error in errors] == ["levels.low", "steps[0].name", "must"]
    assert (dict(found["levels"]), dict(found["steps"][0])) == ({"low": 10, "name": "b"}, {"low": 1, "name": ""})


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ({"levels": {"lowe": 3}}, "levels.lowe is not read; did you mean low?"),
        ({"steps": [{}, {"nam": "a"}]}, "steps[1].nam is not read; did you mean name?"),
        ({"by": {"x": {"LOW": 1}}}, "by.x.LOW is not read; did you mean low?"),
        ({"levels": {"low": None}}, "levels.low has no value, the default holds"),
        ({"idle": True}, "idle has no effect: nobody minds"),
        ({"idle": False}, "idle has no effect: nobody minds"),
    ],
)
def test_what_nobody_reads_is_told(raw: dict[str, Any], words: str) -> None:
    assert warnings(**raw) == (words,)


def test_only_mappings_and_lists_have_fields() -> None:
    with pytest.raises(ValueError, match="argument x: fields are for mappings and lists"):
        Argument("x", "int", 1, "", fields=LEVELS)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "params", "thresholds", "cpu", "low", "type", "weight", "enable", ""])
            | st.integers()
            | st.booleans()
            | st.text(max_size=3),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(name=st.sampled_from(sorted({**plugins(), **actions()})), data=st.data())
def test_whatever_a_file_holds_is_read_or_refused_with_words(name: str, data: st.DataObject) -> None:
    declared = ({**plugins(), **actions()})[name].arguments
    keys = [argument.key.replace("<", "").replace(">", "") for argument in declared] or ["x"]
    raw = data.draw(st.dictionaries(st.sampled_from(keys) | st.text(max_size=4), JSON, max_size=4))
    found, errors = read_arguments(declared, raw)
    assert all(str(error) and error.path for error in errors)
    assert len(found.warnings) == len(found.notices)
    json.dumps({key: repr(found[key]) for key in found})


# --- in a file --------------------------------------------------------------------------------------------------------

USAGE = """\
actions: "enqueue, allocate"
tiers:
- plugins:
  - name: gang
  - name: usage
    arguments:
      thresholds:
        cpu: eighty
        mme: 70
      estimator: {be_cpu: lots}
metrics:
  type: promtheus
  adress: http://server
  interval: 30
"""
FIT = """\
actions: allocate
tiers:
- plugins:
  - name: resource-strategy-fit
    arguments:
      resources:
        nvidia.com/*:
          type: MostAlocated
          wieght: 2
      sra:
        enabled: true
        resourceWeight:
          nvidia.com/gpu: much
"""
EXTENDER = """\
actions: allocate
tiers:
- plugins:
  - name: extender
    arguments:
      extender.predicateVerb: filter
"""
BARE = "actions: allocate\ntiers:\n- plugins:\n  - name: gang\n  - name: extender\n"
RESCHEDULING = """\
actions: shuffle
tiers:
- plugins:
  - name: rescheduling
    arguments:
      strategies:
      - name: lowNodeUtilization
        params:
          thresholds: {cpu: 20, memroy: 20}
          nodeFitt: true
          numberOfNodes: 2
      - name: lowPriorityfirst
configurations:
- name: shuffle
"""
FOUND: dict[str, tuple[str, list[str], list[str]]] = {
    "usage": (
        USAGE,
        [
            'line 8: tiers[0].plugins[1].arguments.thresholds.cpu: "eighty": must be an integer from 0 to 100',
            'line 10: tiers[0].plugins[1].arguments.estimator.be_cpu: "lots": must be an amount of cpu such as 250m; '
            "a plain number is thousandths",
            'line 12: metrics.type: "promtheus": must be one of prometheus, prometheus_adaptor, prometheus_adapt, '
            "elasticsearch, metrics_server; did you mean prometheus?",
            'line 14: metrics.interval: "30": must be a duration with units such as 1h30m or 500ms of at least 1ns',
        ],
        [
            "line 9: tiers[0].plugins[1].arguments.thresholds: mme is not read; did you mean mem?",
            "line 13: metrics: adress is not read; did you mean address?",
        ],
    ),
    "resource-strategy-fit": (
        FIT,
        [
            'line 8: tiers[0].plugins[0].arguments.resources.nvidia.com/*.type: "MostAlocated": must be one of '
            "MostAllocated, LeastAllocated; did you mean MostAllocated?",
            'line 13: tiers[0].plugins[0].arguments.sra.resourceWeight.nvidia.com/gpu: "much": must be an integer',
        ],
        [
            "line 9: tiers[0].plugins[0].arguments.resources.nvidia.com/*: wieght is not read; did you mean weight?",
            "line 11: tiers[0].plugins[0].arguments.sra: enabled is not read; did you mean enable?",
        ],
    ),
    "extender": (
        EXTENDER,
        [
            "line 6: tiers[0].plugins[0].arguments.extender.urlPrefix: must be given: a URL with http:// or https:// "
            "and a host"
        ],
        [],
    ),
    "extender without arguments": (
        BARE,
        [
            "line 5: tiers[0].plugins[1].arguments.extender.urlPrefix: must be given: a URL with http:// or https:// "
            "and a host"
        ],
        [],
    ),
    "rescheduling": (
        RESCHEDULING,
        [
            'line 12: tiers[0].plugins[0].arguments.strategies[1].name: "lowPriorityfirst": must be one of '
            "lowNodeUtilization, offlineOnly, lowPriorityFirst, shortLifeTimeFirst, bigObjectFirst, "
            "moreReplicasFirst; did you mean lowPriorityFirst?"
        ],
        [
            "line 9: tiers[0].plugins[0].arguments.strategies[0].params.thresholds: memroy is not read; "
            "did you mean memory?",
            "line 10: tiers[0].plugins[0].arguments.strategies[0].params: nodeFitt is not read; did you mean nodeFit?",
            "line 11: tiers[0].plugins[0].arguments.strategies[0].params: numberOfNodes has no effect: Volcano "
            "does not use it either",
        ],
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_a_typo_within_a_mapping_is_found_with_line_and_key_and_what_was_meant(name: str) -> None:
    """Typos inside mappings passed the check of a configuration."""
    text, errors, warned = FOUND[name]
    with pytest.raises(PolicyError) as raised:
        read_policy(text)
    assert [str(problem) for problem in raised.value.problems] == errors
    assert [str(warning) for warning in raised.value.warnings] == warned


@pytest.mark.parametrize("name", FOUND)
def test_the_check_tells_of_them(name: str, tmp_path: Path) -> None:
    text, errors, warned = FOUND[name]
    file = tmp_path / "scheduler.conf"
    file.write_text(text)
    done = CliRunner().invoke(main, ["conf", "check", str(file)])
    assert done.exit_code == 1
    for severity, lines in (("error", errors), ("warning", warned)):
        for line in lines:
            number, _, sentence = line.removeprefix("line ").partition(": ")
            assert f"{file}:{number}: {severity}: {sentence}" in done.output


@pytest.mark.parametrize("name", FOUND)
def test_a_log_that_was_decided_by_such_a_file_stays_readable(name: str) -> None:
    """What was taken for its default then is so still, and a warning now."""
    text, errors, warned = FOUND[name]
    policy = read_policy(text, logged=True)
    told = [str(warning) for warning in policy.warnings]
    assert sorted(told) == sorted([*warned, *(f"{error}; the default holds" for error in errors)])
    described = describe_policy(policy)
    if name == "usage":
        (usage,) = [plugin for plugin in described["tiers"][0] if plugin["name"] == "usage"]
        assert usage["arguments"]["thresholds"]["value"] == {"cpu": 80, "mem": 80}
        assert "type" not in policy.metrics


def test_what_a_mapping_comes_to_is_shown_whole() -> None:
    text = (
        USAGE.replace("eighty", "85")
        .replace("lots", "1")
        .replace("promtheus", "prometheus")
        .replace(": 30", ": 1m")
        .replace("adress", "address")
    )
    (_, usage) = describe_policy(read_policy(text))["tiers"][0]
    assert usage["arguments"]["thresholds"] == {"value": {"cpu": 85, "mem": 80}, "default": False}
    assert usage["arguments"]["estimator"]["value"]["be_cpu"] == 1


def test_a_url_that_is_wrong_is_told_without_its_password() -> None:
    text = EXTENDER + '      extender.urlPrefix: "htp://me:s3cret@server"\nmetrics: {address: "me:s3cret@server"}\n'
    with pytest.raises(PolicyError) as raised:
        read_policy(text)
    assert [(problem.line, problem.value) for problem in raised.value.problems] == [(7, "htp://server"), (8, "server")]
    assert "s3cret" not in str(raised.value)


# --- without effect ---------------------------------------------------------------------------------------------------

IDLE = """\
actions: "allocate, preempt, gangpreempt"
tiers:
- plugins:
  - name: gang
    enableReservedNodes: true
  - name: predicates
    enabledClusterOrder: true
    arguments:
      predicate.GPUSharingEnable: true
  - name: capacity
    arguments:
      capacity.DynamicResourceAllocationEnable: false
  - name: rescheduling
    arguments: {metricsPeriod: 5m}
configurations:
- name: preempt
  arguments:
    topologyAwarePreemptWorkerNum: 4
- name: allocate
  arguments:
    predicateErrorCacheEnable: false
- name: gangpreempt
  arguments: {maxDomains: 2}
"""


def test_switches_without_effect_are_each_told_of(tmp_path: Path) -> None:
    told = {(warning.line, warning.message.partition(": ")[0]) for warning in read_policy(IDLE).warnings}
    assert told == {
        (5, "enableReservedNodes has no effect"),
        (7, "enabledClusterOrder has no effect"),
        (9, "predicate.GPUSharingEnable has no effect"),
        (12, "capacity.DynamicResourceAllocationEnable has no effect"),
        (14, "metricsPeriod has no effect"),
        (18, "topologyAwarePreemptWorkerNum has no effect"),
        (21, "predicateErrorCacheEnable has no effect"),
        (23, "maxDomains has no effect"),
    }
    file = tmp_path / "scheduler.conf"
    file.write_text(IDLE)
    done = CliRunner().invoke(main, ["conf", "check", str(file)])
    assert done.exit_code == 0
    assert all(f": {switch}: " in done.output for _, switch in told)
