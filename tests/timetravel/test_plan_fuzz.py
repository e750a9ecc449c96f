"""Whatever a manifest holds, ``vcd.plan`` plans without it or says BadObject."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vcd
from tests import dsl
from tests.model.oddities import MANIFESTS, ODD, ODD_JSON, Manifest, mutated

EVERY_PLUGIN = """\
actions: "enqueue, allocate, backfill, preempt, reclaim"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
  - name: sla
  - name: pdb
  - name: cdp
- plugins:
  - name: overcommit
  - name: drf
  - name: predicates
  - name: {queues}
  - name: nodeorder
  - name: binpack
  - name: resourcequota
  - name: task-topology
  - name: nodegroup
  - name: numa-aware
  - name: tdm
  - name: deviceshare
"""
POLICIES = [EVERY_PLUGIN.format(queues=name) for name in ("proportion", "capacity", "capacity-card")]
SOUND: list[Manifest] = [
    *(dsl.node(f"sound-{index}") for index in range(2)),
    {"kind": "Pod", "metadata": {"name": "sound", "namespace": "ns"}, "spec": {"schedulerName": "volcano"}},
]


@given(
    st.sampled_from([*MANIFESTS, *SOUND]),
    st.integers(0, 2**32),
    st.sampled_from(POLICIES),
    st.sampled_from([ODD, ODD_JSON]),
)
def test_a_manifest_changed_at_random_is_planned_without_or_refused(
    manifest: Manifest, seed: int, conf: str, odd: tuple[Any, ...]
) -> None:
    sound = copy.deepcopy(SOUND)
    try:
        result = vcd.plan([*sound, mutated(manifest, seed, odd)], conf, dsl.NOW)
    except vcd.api.BadObject:
        return
    assert sound == SOUND
    assert result.faults == []


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        ("x", "a manifest is a mapping, not str"),
        (["x"], "a manifest is a mapping, not list"),
        ({"kind": "Pod", "metadata": "abc"}, "Pod .*metadata is a mapping, not str"),
        ({"kind": "Pod", "metadata": 5}, "Pod .*metadata is a mapping, not int"),
        ({"kind": "Queue", "metadata": {"name": ["a"]}}, "Queue .*metadata.name is a text, not list"),
        ({"kind": "Queue", "metadata": {"name": {"a": 1}}}, "Queue .*metadata.name is a text, not dict"),
        ({"kind": "Node", "metadata": {"name": 7}}, "Node .*metadata.name is a text, not int"),
        ({"kind": "Pod", "metadata": {"name": "a", "namespace": [1]}}, "metadata.namespace is a text"),
        ({"kind": ["Pod"]}, "kind is a text, not list"),
        ({"kind": "List", "items": ["x"]}, "a manifest is a mapping"),
        ({"kind": "PodList", "items": [7]}, "a manifest is a mapping"),
    ],
)
def test_what_is_no_manifest_is_a_bad_object_that_says_what_it_is(manifest: Any, words: str) -> None:
    with pytest.raises(vcd.api.BadObject, match=words):
        vcd.plan([manifest])


@pytest.mark.parametrize(
    ("spec", "key"),
    [
        ({"containers": {(1, 2): 3}}, "default/a"),
        ({"containers": object()}, "default/a"),
        ({"overhead": {"cpu": 10**30}}, "default/a"),
        ({"nodeName": "\ud800"}, "default/a"),
    ],
)
def test_a_value_that_no_object_can_have_sets_its_object_aside(spec: Any, key: str) -> None:
    result = vcd.plan([{"kind": "Pod", "metadata": {"name": "a"}, "spec": spec}])
    assert list(result.set_aside) == [f"Pod {key}"]


def test_a_list_that_holds_itself_is_refused() -> None:
    endless: dict[str, Any] = {"kind": "List", "items": []}
    endless["items"].append(endless)
    with pytest.raises(vcd.api.BadObject, match="lists in lists"):
        vcd.plan([endless])


def test_managed_fields_of_a_manifest_are_not_looked_at() -> None:
    fields: Any = {}
    for _ in range(3000):
        fields = {"f:a": fields}
    pod = {"kind": "Pod", "metadata": {"name": "a", "managedFields": [{"fieldsV1": fields}]}, "spec": {}}
    assert vcd.plan([dsl.node("n"), pod]).binds == {"default/a": "n"}
