"""Whatever a manifest holds, ``vcd.plan`` plans without it or says BadObject."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vcd
from tests import dsl
from tests.model.oddities import MANIFESTS, ODD, ODD_JSON, WORKLOADS, Manifest, mutated
from tests.sizes import examples
from vcd.cli.sim import CONTROLLED
from vcd.state.cluster_state import ClusterState
from vcd.timetravel.manifest_reader import read, to_create
from vcd.timetravel.whatif.submitted_groups import submitted

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
FEW_PLUGINS = """\
actions: "enqueue, allocate"
tiers:
- plugins:
  - name: gang
  - name: predicates
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
    msgspec.json.encode(result)


@settings(max_examples=examples(500))
@given(st.sampled_from(WORKLOADS), st.integers(0, 2**32), st.sampled_from([ODD, ODD_JSON]))
def test_a_workload_changed_at_random_is_planned_set_aside_or_refused(
    manifest: Manifest, seed: int, odd: tuple[Any, ...]
) -> None:
    try:
        result = vcd.plan([mutated(manifest, seed, odd)], FEW_PLUGINS, dsl.NOW)
    except vcd.api.BadObject as error:
        msgspec.json.encode(str(error))
        return
    msgspec.json.encode(result)


@settings(max_examples=examples(300))
@given(st.sampled_from(WORKLOADS), st.integers(0, 2**32), st.sampled_from([ODD, ODD_JSON]))
def test_a_workload_changed_at_random_is_submitted_or_refused(
    manifest: Manifest, seed: int, odd: tuple[Any, ...]
) -> None:
    try:
        work = submitted([mutated(manifest, seed, odd)], ClusterState(), "2026-01-01T00:00:00Z")
    except vcd.api.BadObject as error:
        msgspec.json.encode(str(error))
        return
    msgspec.json.encode(work)


@settings(max_examples=examples(300))
@given(st.sampled_from([*WORKLOADS, *MANIFESTS]), st.integers(0, 2**32))
def test_a_manifest_changed_at_random_is_created_or_refused(manifest: Manifest, seed: int) -> None:
    try:
        reading = read([mutated(manifest, seed, ODD)], to_create=True)
    except vcd.api.BadObject:
        return
    msgspec.json.encode([to_create(reading, CONTROLLED, [dsl.node("n")]), reading.refused(), reading.unknown])


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        ("x", "a manifest must be a mapping, not str"),
        (["x"], "a manifest must be a mapping, not list"),
        ({"kind": "Pod", "metadata": "abc"}, "Pod .*metadata must be a mapping, not str"),
        ({"kind": "Pod", "metadata": 5}, "Pod .*metadata must be a mapping, not int"),
        ({"kind": "Queue", "metadata": {"name": ["a"]}}, "Queue .*metadata.name must be a text, not list"),
        ({"kind": "Queue", "metadata": {"name": {"a": 1}}}, "Queue .*metadata.name must be a text, not dict"),
        ({"kind": "Node", "metadata": {"name": 7}}, "Node .*metadata.name must be a text, not int"),
        ({"kind": "Pod", "metadata": {"name": "a", "namespace": [1]}}, "metadata.namespace must be a text"),
        ({"kind": ["Pod"]}, "kind must be a text, not list"),
        ({"kind": "List", "items": ["x"]}, "a manifest must be a mapping"),
        ({"kind": "PodList", "items": [7]}, "a manifest must be a mapping"),
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


# --- what JSON cannot hold --------------------------------------------------------------------------------------------


def _containing_itself() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"x": float("nan")}, "spec.x: nan is not a JSON number; write a finite one"),
        ({"x": [1, {"y": float("-inf")}], "z": None}, "spec.x[1].y: -inf is not a JSON number"),
        ({"a/b": "ab\ud800c"}, 'spec["a/b"]: "ab\\ud800c" has half a character'),
        ({"x": {"\udfff": 1}}, 'spec.x: a key: "\\udfff" has half a character'),
        ({"x": {True: 1}}, "spec.x: a key must be a text, not bool; write it in quotes"),
        ({"x": {(1, 2): 1}}, "spec.x: a key must be a text, not tuple; write it in quotes"),
        ({"x": 10**5000}, "spec.x: a number of more than 4,300 digits; write one of 64 bits"),
        ({"x": object()}, "spec.x: object is not JSON; write a text, a number"),
        ({"x": _containing_itself()}, "nested more than 1000 deep, or in itself"),
    ],
)
@pytest.mark.parametrize(
    ("kind", "version"), [("Pod", "v1"), ("Deployment", "apps/v1"), ("Job", "batch.volcano.sh/v1alpha1"), ("X", "x/v1")]
)
def test_what_json_cannot_hold_is_set_aside_by_its_place(kind: str, version: str, spec: Any, words: str) -> None:
    result = vcd.plan([{"kind": kind, "apiVersion": version, "metadata": {"name": "a"}, "spec": spec}])
    assert list(result.set_aside) == [f"{kind} default/a"]
    assert words in result.set_aside[f"{kind} default/a"]
    msgspec.json.encode(result)


@pytest.mark.parametrize("field", ["name", "namespace"])
@pytest.mark.parametrize("kind", ["Queue", "Pod", "Deployment"])
def test_a_name_with_half_a_character_is_refused(kind: str, field: str) -> None:
    with pytest.raises(vcd.api.BadObject, match=rf"metadata.{field} must be a text, not one with half a") as caught:
        vcd.plan([{"kind": kind, "metadata": {"name": "a", field: "\ud800"}}])
    msgspec.json.encode(str(caught.value))


def test_keys_that_are_numbers_are_texts() -> None:
    template = {"metadata": {"labels": {7: "x"}}, "spec": {"containers": [{"name": "c"}]}}
    meta = {"name": "d", "annotations": {3: "b", "scheduling.volcano.sh/group-min-member": "1"}}
    workload = {"kind": "Deployment", "apiVersion": "apps/v1", "metadata": meta, "spec": {"template": template}}
    assert vcd.plan([dsl.node("n"), workload]).binds == {"default/d-0": "n"}


def test_a_workload_whose_pods_have_a_priority_beyond_64_bits_is_set_aside() -> None:
    spec = {"template": {"spec": {"containers": [{"name": "c"}], "priorityClassName": "high"}}}
    workload = {"kind": "Deployment", "apiVersion": "apps/v1", "metadata": {"name": "d"}, "spec": spec}
    result = vcd.plan([workload, {"kind": "PriorityClass", "metadata": {"name": "high"}, "value": 10**30}])
    assert "what it makes: Pod default/d-0: " in result.set_aside["Deployment default/d"]
