"""The configuration file: what it means, what is wrong with it, and on which line."""

from __future__ import annotations

import hashlib
from textwrap import dedent
from types import SimpleNamespace

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from vcd.scheduling.framework.arguments import Argument
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.framework.points import FLAGS, POINTS
from vcd.scheduling.framework.policy import DEFAULT_POLICY, PluginOption, Policy, PolicyError, parse_policy

ACTIONS = {
    "allocate": SimpleNamespace(arguments=(Argument("predicateErrorCacheEnable", "bool", True, "keep failures"),)),
    "backfill": SimpleNamespace(arguments=()),
    "enqueue": SimpleNamespace(arguments=()),
}
BINPACK = (
    Argument("binpack.weight", "int", 1, "weight of the score", minimum=0),
    Argument("binpack.resources.<resource>", "int", 1, "weight of a resource"),
)
NAMES = ("priority", "gang", "conformance", "overcommit", "predicates", "proportion", "nodeorder")
PLUGINS = {
    **{name: type(name, (Plugin,), {"name": name}) for name in NAMES},
    "binpack": type("binpack", (Plugin,), {"name": "binpack", "arguments": BINPACK}),
    "drf": type("drf", (Plugin,), {"name": "drf", "excludes": (("enableHierarchy", "proportion"),)}),
}


def parse(text: str | None) -> Policy:
    return parse_policy(None if text is None else dedent(text), actions=ACTIONS, plugins=PLUGINS)


def problems(text: str) -> list[str]:
    with pytest.raises(PolicyError) as caught:
        parse(text)
    return [str(problem) for problem in caught.value.problems]


def warnings(text: str) -> list[str]:
    return [str(warning) for warning in parse(text).warnings]


def plugin(entry: str) -> str:
    """A file with one action and one plugin, whose entry begins on line 4."""
    lines = dedent(entry).strip().splitlines()
    return "\n".join(["actions: allocate", "tiers:", "- plugins:", "  - " + lines[0], *("    " + x for x in lines[1:])])


def only_option(text: str) -> PluginOption:
    ((option,),) = parse(text).tiers
    return option


# what a file means --------------------------------------------------------------------------------------------------


def test_actions_keep_their_order() -> None:
    assert parse('actions: "enqueue, backfill,allocate"').actions == ("enqueue", "backfill", "allocate")


def test_action_may_run_twice() -> None:
    assert parse("actions: allocate, allocate").actions == ("allocate", "allocate")


def test_tiers_keep_the_order_of_their_plugins() -> None:
    policy = parse(
        """
        actions: allocate
        tiers:
        - plugins:
          - name: priority
          - name: gang
        - plugins:
          - name: drf
        """
    )
    assert [[option.name for option in tier] for tier in policy.tiers] == [["priority", "gang"], ["drf"]]


def test_no_file_means_the_compiled_in_default() -> None:
    assert parse(None) == parse(DEFAULT_POLICY)


def test_the_compiled_in_default_has_no_warnings() -> None:
    assert parse(None).warnings == ()


def test_flag_of_the_file_holds() -> None:
    assert not only_option(plugin("name: gang\nenablePreemptable: false")).is_on(POINTS["preemptable"])


def test_flag_that_the_file_does_not_hold_has_its_default() -> None:
    assert dict(only_option(plugin("name: gang")).enabled) == FLAGS


def test_flag_without_a_value_has_its_default() -> None:
    assert only_option(plugin("name: gang\nenableJobOrder:")).enabled["enableJobOrder"]


def test_the_order_of_clusters_is_off_unless_asked_for() -> None:
    assert not only_option(plugin("name: gang")).enabled["enabledClusterOrder"]


def test_point_without_a_flag_is_always_on() -> None:
    entry = "name: gang\n" + "\n".join(f"{flag}: false" for flag in FLAGS)
    assert only_option(plugin(entry)).is_on(POINTS["job_valid"])


def test_arguments_of_a_plugin_are_kept_as_written() -> None:
    option = only_option(plugin('name: binpack\narguments: {binpack.weight: "5"}'))
    assert option.arguments == {"binpack.weight": "5"}


def test_dynamic_argument_is_known() -> None:
    text = plugin("name: binpack\narguments: {binpack.resources.nvidia.com/gpu: 8}")
    assert parse(text).warnings == ()


def test_configuration_of_an_action_is_kept() -> None:
    policy = parse(
        """
        actions: allocate
        configurations:
        - name: allocate
          arguments:
            predicateErrorCacheEnable: false
        """
    )
    assert policy.configurations == {"allocate": {"predicateErrorCacheEnable": False}}


def test_first_of_two_configurations_of_an_action_holds() -> None:
    policy = parse(
        """
        actions: allocate
        configurations:
        - name: allocate
          arguments: {predicateErrorCacheEnable: false}
        - name: allocate
          arguments: {predicateErrorCacheEnable: true}
        """
    )
    assert policy.configurations["allocate"]["predicateErrorCacheEnable"] is False


def test_metrics_are_texts_as_written() -> None:
    policy = parse("actions: allocate\nmetrics: {type: metrics_server, interval: 30s, tls.insecureSkipVerify: true}")
    assert policy.metrics == {"type": "metrics_server", "interval": "30s", "tls.insecureSkipVerify": "true"}


@pytest.mark.parametrize("kind", ["prometheus", "elasticsearch"])
@pytest.mark.parametrize("rest", ["", ", address: ''", ", interval: 30s"])
def test_a_monitoring_system_without_an_address_is_warned_of_on_its_line(kind: str, rest: str) -> None:
    text = f"actions: allocate\nmetrics: {{type: {kind}{rest}}}"
    missing = f"missing: no sample is ever taken without the URL of {kind}"
    assert f"line 2: metrics.address: {missing}" in warnings(text)
    assert parse(text).metrics["type"] == kind


@pytest.mark.parametrize(
    "metrics", ["type: prometheus_adaptor", "type: metrics_server", "address: http://p:9090", "type: ''", "{}"]
)
def test_what_needs_no_address_needs_none(metrics: str) -> None:
    assert [each for each in warnings(f"actions: allocate\nmetrics:\n  {metrics}") if "metrics" in each] == []


def test_settings_of_samples_that_nobody_takes_are_warned_of() -> None:
    warning = "line 2: metrics: has no effect: neither type nor address says where samples come from"
    assert warning in warnings("actions: allocate\nmetrics: {interval: 30s}")


def test_digest_is_of_the_text() -> None:
    assert parse("actions: allocate").digest == hashlib.blake2b(b"actions: allocate").hexdigest()


def test_aliases_and_merged_mappings_are_followed() -> None:
    text = """
    actions: allocate
    tiers:
    - plugins:
      - &base {name: gang, enableJobOrder: false}
      - {<<: *base, name: drf}
    """
    assert [option.enabled["enableJobOrder"] for option in parse(text).tiers[0]] == [False, False]


def test_a_key_given_anew_beside_a_merge_is_no_warning() -> None:
    text = """
    actions: allocate
    tiers:
    - plugins:
      - &base {name: gang}
      - {<<: *base, name: drf}
    """
    assert warnings(text) == []


@pytest.mark.parametrize(
    ("written", "value"),
    [("y", True), ("off", False), ("1e3", 1000.0), ("10:00", "10:00"), ("2026-01-01", "2026-01-01"), ("010", 8)],
)
def test_scalars_are_what_go_yaml_makes_of_them(written: str, value: object) -> None:
    option = only_option(plugin(f"name: drf\narguments: {{key: {written}}}"))
    assert (option.arguments["key"], type(option.arguments["key"])) == (value, type(value))


# errors -------------------------------------------------------------------------------------------------------------


IN_QUOTES = 'name: gang\nenableJobOrder: "true"'
SEVEN = "actions: allocate\nconfigurations:\n- name: allocate\n  arguments: {predicateErrorCacheEnable: 7}"
TWICE = "actions: allocate\ntiers:\n- plugins:\n  - name: gang\n- plugins:\n  - name: gang\n"
HIERARCHICAL = "actions: allocate\ntiers:\n- plugins:\n  - {name: drf, enableHierarchy: true}\n  - name: proportion\n"
NO_ACTIONS = "line 1: actions: missing: names of actions with commas between them"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            'actions: "enqueue, allocat"',
            'line 1: actions: "enqueue, allocat": there is no action allocat; did you mean allocate?',
        ),
        (
            plugin("name: bnpack"),
            'line 4: tiers[0].plugins[0].name: "bnpack": there is no plugin bnpack; did you mean binpack?',
        ),
        (
            plugin("name: binpack\narguments:\n  binpack.weight: -1"),
            'line 6: tiers[0].plugins[0].arguments.binpack.weight: "-1": must be an integer of at least 0',
        ),
        (SEVEN, 'line 4: configurations[0].arguments.predicateErrorCacheEnable: "7": must be true or false'),
        (TWICE, 'line 6: tiers[1].plugins[0].name: "gang": is already on line 4'),
        (
            HIERARCHICAL,
            "line 4: tiers[0].plugins[0].enableHierarchy: true excludes the plugin proportion,"
            " which is in the same tier",
        ),
        (
            plugin(IN_QUOTES),
            'line 5: tiers[0].plugins[0].enableJobOrder: "true": must be true or false, without quotes',
        ),
        *[(text, NO_ACTIONS) for text in ("", "# nothing\n", "---\n", "actions:\n", "tiers: []\n")],
        (
            "actions: allocate\nmetrics: \x07",
            r"line 2: not YAML: it holds '\x07', which YAML does not allow",
        ),
        pytest.param(
            f"actions: allocate\nmetrics: {'[' * 2000}{']' * 2000}", "line 1: nested too deeply", id="brackets"
        ),
        (
            plugin("name: gang\narguments: {key: &a [*a]}"),
            "line 5: not YAML: found unconstructable recursive node",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_line_and_field(text: str, problem: str) -> None:
    assert problems(text) == [problem]


def test_every_problem_is_named_in_the_order_of_the_lines() -> None:
    text = """\
    metrics: []
    actions: alocate
    tiers:
    - plugins:
      - name: gnag
      - name: binpack
        enableJobOrder: maybe
        arguments: {binpack.weight: many}
    """
    assert [problem.split(":")[0] for problem in problems(text)] == ["line 1", "line 2", "line 5", "line 7", "line 8"]


def test_hierarchical_drf_in_another_tier_than_proportion() -> None:
    text = """\
    actions: allocate
    tiers:
    - plugins: [{name: drf, enableHierarchy: true}]
    - plugins: [{name: proportion}]
    """
    assert len(parse(text).tiers) == 2


@pytest.mark.parametrize("text", ['actions: ""', "actions: allocate,", "actions: allocate,,backfill"])
def test_action_without_a_name(text: str) -> None:
    (problem,) = problems(text)
    assert problem.endswith("an action without a name: write names with a comma between two")


@pytest.mark.parametrize("entry", ["enableJobOrder: true", "name:", "~"])
def test_plugin_without_a_name(entry: str) -> None:
    assert [problem.rpartition(": ")[2] for problem in problems(plugin(entry))] == ["the plugin has no name"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("- allocate", "line 1: the file must be a mapping"),
        ("actions: [allocate]", "line 1: actions: must be a text"),
        ("actions: allocate\ntiers: {plugins: []}", "line 2: tiers: must be a list"),
        ("actions: allocate\ntiers:\n- gang", 'line 3: tiers[0]: "gang": must be a mapping'),
        ("actions: allocate\ntiers:\n- plugins: gang", 'line 3: tiers[0].plugins: "gang": must be a list'),
        (plugin("gang"), 'line 4: tiers[0].plugins[0]: "gang": must be a mapping'),
        (plugin("name: [gang]"), "line 4: tiers[0].plugins[0].name: must be a text"),
        (plugin("name: gang\narguments: [1]"), "line 5: tiers[0].plugins[0].arguments: must be a mapping"),
        ("actions: allocate\nmetrics: {type: [a]}", "line 2: metrics.type: must be a text"),
        ("actions: allocate\n? [a]\n: b", "line 2: a key must be a text"),
    ],
)
def test_wrong_type(text: str, problem: str) -> None:
    assert problem in problems(text)


def test_text_that_is_no_yaml() -> None:
    (problem,) = problems('actions: "allocate\ntiers:')
    assert problem.startswith("line 2: not YAML: ")


@pytest.mark.parametrize("value", ["!!python/name:os.system", "!!int ten", "!!bool maybe", "!!timestamp soon"])
def test_tag_that_does_not_fit(value: str) -> None:
    (problem,) = problems(plugin(f"name: gang\narguments: {{key: {value} }}"))
    assert problem.startswith("line 5: not YAML: ")


def test_value_of_several_lines_is_shown_on_one() -> None:
    (problem,) = problems('actions: "no\n\n  such"')
    assert "\n" not in problem


_fragments = [
    "actions",
    "tiers",
    "plugins",
    "name",
    "arguments",
    "configurations",
    "gang",
    "binpack.weight",
    "<<",
    "&a",
]
_fragments += ["*a", "!!int", "!!bool", "!!set", "!!timestamp", "~", "1e3", "-1", '"', "'", "\n", "\n ", "\n  ", "\n- "]
_fragments += [": ", "- ", ", ", "? ", "[", "]", "{", "}", "#", "|", ">", "---", "\t", "\ufeff", "\ud800", "\x00", "%"]


@given(st.lists(st.sampled_from(_fragments), max_size=30))
def test_any_text_is_a_policy_or_an_error_with_lines(parts: list[str]) -> None:
    text = "".join(parts)
    try:
        found = parse_policy(text, actions=ACTIONS, plugins=PLUGINS).warnings
    except PolicyError as error:
        found = error.problems
    assert all(1 <= problem.line <= text.count("\n") + 2 for problem in found)


def test_error_holds_the_warnings_too() -> None:
    with pytest.raises(PolicyError) as caught:
        parse("actions: alocate\ntier: []")
    assert "line 2: tier is not read; did you mean tiers?" in map(str, caught.value.warnings)


# warnings -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        (
            plugin("name: gang") + "\nconfiguration: []",
            "line 5: configuration is not read; did you mean configurations?",
        ),
        (
            plugin("name: binpack\narguments:\n  binpack.wieght: 5"),
            "line 6: tiers[0].plugins[0].arguments: binpack.wieght is not read; did you mean binpack.weight?",
        ),
        *[
            (
                plugin(f"name: gang\n{wrong}: false"),
                f"line 5: tiers[0].plugins[0]: {wrong} is not read; Volcano spells it {right}",
            )
            for wrong, right in (("enableVictim", "enabledVictim"), ("enabledJobOrder", "enableJobOrder"))
        ],
        (
            plugin("name: gang\nenableJobOrder: true\nenableJobOrder: false"),
            "line 6: tiers[0].plugins[0]: enableJobOrder is given twice; only the last one is read",
        ),
        ("actions: allocate", "line 1: tiers: no plugin is on"),
        (plugin("name: gang") + "\n---\nactions: x", "line 6: only the first document of the file is read"),
    ],
)
def test_what_has_no_effect_is_warned_of_with_its_line(text: str, warning: str) -> None:
    assert warnings(text) == [warning]


def test_flag_with_the_wrong_prefix_has_no_effect() -> None:
    assert only_option(plugin("name: gang\nenableVictim: false")).is_on(POINTS["victim_tasks"])


def test_last_of_a_key_given_twice_holds() -> None:
    option = only_option(plugin("name: gang\nenableJobOrder: true\nenableJobOrder: false"))
    assert not option.enabled["enableJobOrder"]


def test_default_policy_is_what_vc_scheduler_compiles_in() -> None:
    assert yaml.safe_load(DEFAULT_POLICY) == {
        "actions": "enqueue, allocate, backfill",
        "tiers": [
            {"plugins": [{"name": name} for name in ("priority", "gang", "conformance")]},
            {"plugins": [{"name": name} for name in ("overcommit", "drf", "predicates", "proportion", "nodeorder")]},
        ],
    }
