"""Whatever a configuration file holds: it is a policy that a cycle can be decided with, or a PolicyError; nothing else.

Files are changed in their structure (a value of another type, a key that is gone, doubled, empty) and byte by byte.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.dsl import NOW_NS, gang, group, node, pod, queue
from tests.sizes import examples
from vcd.model.manifests import default_queues
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.decide import run
from vcd.scheduling.framework.action import Action
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.framework.policy import DEFAULT_POLICY, Policy, PolicyError
from vcd.scheduling.framework.registry import actions, bind_timeout, describe_policy, is_timed, plugins
from vcd.scheduling.session.session import Session
from vcd.scheduling.session_close import plan_of
from vcd.state.snapshot import SnapshotMaker
from vcd.timetravel.planning import state_of

_FOLDER = Path(__file__).parents[1] / "data" / "configurations"


def _entry(name: str) -> dict[str, object]:
    """A plugin's entry, with what its arguments require."""
    required = {each.key: "http://server" for each in plugins()[name].arguments if each.required}
    return {"name": name, "arguments": required}


_EVERYTHING = yaml.safe_dump(
    {
        "actions": ", ".join(actions()),
        "tiers": [{"plugins": [_entry(name) for name in plugins() if name != "proportion"]}],
        "configurations": [{"name": name, "arguments": {}} for name in actions()],
    }
)
TEXTS = [DEFAULT_POLICY, _EVERYTHING, *(path.read_text() for path in sorted(_FOLDER.iterdir()))]
_CLUSTER = [
    queue("team", weight=3, capability={"cpu": "6"}),
    node("n1", cpu=4, gpu=2, labels={"zone": "a"}),
    node("n2", cpu=4, labels={"zone": "b"}, taints=[{"key": "k", "effect": "NoSchedule"}]),
    *gang("train", 2, cpu=2),
    *gang("big", 3, cpu=3, queue="team", created=5),
    group("running", queue="team", phase="Running", minimum={"cpu": 1}),
    pod("running-0", group="running", on="n1", cpu=1),
    pod("best-effort", group="train"),
]


def decided(policy: Policy) -> tuple[str, ...]:
    """What fails in a cycle on a small cluster under a policy."""
    state = state_of([*default_queues(_CLUSTER), *_CLUSTER])
    session = run(SnapshotMaker(state).snapshot(), policy, NOW_NS, 0)
    plan_of(session)
    return session.faults


def check(text: str) -> Policy | None:
    """A policy that a cycle was decided with, or None where there is a clear error."""
    try:
        policy = read_policy(text)
    except PolicyError as error:
        assert error.problems
        assert not any("cannot be used" in problem.message for problem in error.problems), "the reader's own defect"
        assert all(1 <= problem.line <= text.count("\n") + 2 and problem.message for problem in error.problems)
        return None
    assert decided(policy) == ()
    described = describe_policy(policy)
    assert [entry["name"] for entry in described["actions"]] == list(policy.actions)
    is_timed(policy)
    bind_timeout(policy)
    return policy


# --- structure --------------------------------------------------------------------------------------------------------

_STRANGE = st.one_of(
    st.sampled_from([None, "", " ", "\n", 0, -1, 1, 2**31, 2**63, 2**70, 1e308, -1e308, float("inf"), float("nan")]),
    st.sampled_from(
        [True, False, [], {}, [None], [[]], {"": ""}, {"name": ""}, [{"name": ""}], "a,b", "1", "-1", "1e400"]
    ),
    st.sampled_from(
        ["0", "x", "gang", "allocate", "10s", "-5m", "99999999h", "ß\u2028", "[", "(", "*", "%", "x" * 5000]
    ),
    st.sampled_from([float("-inf"), 1e-300, 10**400, {"a": {"b": [1, {"c": None}]}}, [1, "a", {}], {1: 2}]),
)


def places(root: Any) -> list[tuple[Any, Any]]:
    """Every container with each of its keys."""
    found: list[tuple[Any, Any]] = []
    keys = list(root) if isinstance(root, dict) else range(len(root)) if isinstance(root, list) else ()
    for key in keys:
        found.append((root, key))
        found.extend(places(root[key]))
    return found


def arguments_of(entry: Any) -> list[str]:
    """The keys that a plugin's or action's entry may hold among its arguments."""
    name = entry.get("name") if isinstance(entry, dict) else None
    known = {**actions(), **plugins()}.get(name) if isinstance(name, str) else None
    return [] if known is None else [argument.key.replace("<", "").replace(">", "") for argument in known.arguments]


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """A sample file in which some values, keys and entries are others."""
    root = yaml.safe_load(draw(st.sampled_from(TEXTS)))
    root.setdefault("actions", "enqueue, allocate, preempt, reclaim, backfill")
    for _ in range(draw(st.integers(1, 3))):
        there = places(root)
        if not there:
            break
        container, key = draw(st.sampled_from(there))
        entry = container[key]
        what = draw(st.sampled_from(["value", "value", "argument", "argument", "argument", "gone", "twice", "key"]))
        if what == "argument" and arguments_of(entry):
            given_ = entry["arguments"] = dict(entry["arguments"]) if isinstance(entry.get("arguments"), dict) else {}
            given_[draw(st.sampled_from(arguments_of(entry)))] = draw(_STRANGE)
        elif what == "gone":
            del container[key]
        elif what == "twice" and isinstance(container, list):
            container.append(copy.deepcopy(entry))
        elif what == "key" and isinstance(container, dict):
            container[draw(_STRANGE.filter(lambda value: isinstance(value, (str, int, float))))] = container.pop(key)
        else:
            container[key] = copy.deepcopy(draw(_STRANGE))
    return yaml.safe_dump(root, allow_unicode=True)


@given(mutated())
@settings(max_examples=examples(300))
def test_a_file_whose_structure_was_changed_can_be_decided_with_or_is_refused(text: str) -> None:
    check(text)


@given(st.data())
@settings(max_examples=examples(200))
def test_a_file_whose_bytes_were_changed_can_be_decided_with_or_is_refused(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(TEXTS))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        until = min(len(text), at + data.draw(st.sampled_from([0, 1, 1, 2, 7, 40])))
        put = data.draw(
            st.sampled_from(["", " ", "\n", "\n  ", "- ", ": ", "|\n", "&a ", "*a", "<<: ", "~", "'", "[", "!!int "])
        )
        text = text[:at] + put + text[until:]
    check(text)


# --- what was seen ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [DEFAULT_POLICY, _EVERYTHING])
def test_the_default_and_a_file_with_every_plugin_and_action_can_be_decided_with(text: str) -> None:
    assert check(text) is not None


@pytest.mark.parametrize(
    "entry",
    [
        "name: |\n    arguments:\n      predicate.GPUSharingEnable: true",
        "name: |\n",
        "name: ''",
        "name: >-\n",
        "name: ' '",
        "name: &anchor ''",
    ],
)
def test_a_plugin_whose_name_is_empty_or_swallows_its_arguments_is_refused_with_its_line(entry: str) -> None:
    with pytest.raises(PolicyError, match=r"line 5: tiers\[0\]\.plugins\[1\]"):
        read_policy(f"actions: allocate\ntiers:\n- plugins:\n  - name: gang\n  - {entry}\n")


def test_configurations_without_a_name_are_refused_each_with_its_line() -> None:
    with pytest.raises(PolicyError) as caught:
        read_policy("actions: allocate\nconfigurations:\n- name: ''\n- arguments: {}\n")
    assert [str(problem) for problem in caught.value.problems] == [
        "line 3: configurations[0]: the action has no name",
        "line 4: configurations[1]: the action has no name",
    ]


def test_a_name_with_a_line_break_is_told_what_is_wrong_with_it() -> None:
    with pytest.raises(PolicyError, match="must be gang, without a space or line break beside it"):
        read_policy("actions: allocate\ntiers:\n- plugins:\n  - name: |\n      gang\n")


def test_aliases_that_stand_for_billions_of_values_are_refused() -> None:
    lines = ["l0: &l0 [x, x]", *(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 30))]
    with pytest.raises(PolicyError, match="aliases stand for more than"):
        read_policy("actions: allocate\nmore:\n  " + "\n  ".join(lines) + "\n")


def test_a_file_larger_than_a_configmap_is_refused_unread() -> None:
    with pytest.raises(PolicyError, match="larger than 1 MiB"):
        read_policy("actions: allocate\n" + "# padding\n" * 120_000)


def test_a_plugin_that_a_cycle_fails_with_is_refused_with_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever wiring raises: here the plugin, when the session opens."""

    def fails(self: Plugin, session: Session) -> None:
        raise OverflowError("weights too large")

    monkeypatch.setattr(plugins()["gang"], "open", fails)
    with pytest.raises(PolicyError, match=r'line 5: tiers\[0\]\.plugins\[1\]: "gang": .*weights too large'):
        read_policy("actions: allocate\ntiers:\n- plugins:\n  - name: priority\n  - name: gang\n")


def test_an_action_that_a_cycle_fails_with_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: Action, session: Session) -> None:
        raise ZeroDivisionError("no share")

    monkeypatch.setattr(actions()["backfill"], "execute", fails)
    with pytest.raises(PolicyError, match="no share"):
        read_policy("actions: allocate, backfill\n")
