"""Checkpoints hold pods as a table: a state that takes it over is what folding them one by one makes."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from tests.dsl import pod
from tests.sizes import seeds
from tests.state.test_cluster_state import BASE, BIND, decided, folded, put, random_events
from vcd.model import events as ev
from vcd.model.objects import Pod
from vcd.model.projection_codec import decode_payload, encode_payload
from vcd.model.resource_requests import may_be_resized
from vcd.state.checkpoint import decoded
from vcd.state.cluster_state import ClusterState
from vcd.state.podtable import PodTable
from vcd.state.snapshot import SnapshotMaker


def known(state: ClusterState) -> dict[str, Any]:
    """All that is known of each pod, without the numbers by which it is known."""
    tasks, found = SnapshotMaker(state).snapshot().tasks, {}
    interned = {
        "shape": state.shapes, "labels": state.label_sets, "namespace": state.namespaces,
        "scheduler": state.schedulers, "job": state.job_keys,
    }  # fmt: skip
    for key, row in state.tasks.row_of.items():
        at = {name: state.tasks.at(row, name) for name in interned}
        shared = {name: interned[name][number] if number >= 0 else None for name, number in at.items()}
        node = state.tasks.at(row, "node")
        named = state.node_names[node] if node >= 0 else ""
        plain = [int(column[row]) for column in (tasks.status, tasks.priority, tasks.created)]
        found[key] = (shared | {"shape": shared["shape"].requests}, named, plain, state.pod(key))
    return found


def uses(state: ClusterState) -> list[int]:
    """How many values there are in use, by kind."""
    return [
        len(of)
        for of in (state.shapes, state.label_sets, state.namespaces, state.schedulers, state.job_keys, state.node_names)
    ]


@pytest.mark.parametrize("seed", seeds(15, 40))
def test_a_loaded_state_knows_of_each_pod_what_the_folded_one_does(seed: int) -> None:
    state = folded(*random_events(seed))
    loaded = ClusterState.load(state.dump())
    assert known(loaded) == known(state)
    assert uses(loaded) == uses(state)


def test_a_pod_whose_time_cannot_be_read_holds_no_shape() -> None:
    odd = pod("b", group="g", cpu=7)
    odd["metadata"]["creationTimestamp"] = "yesterday"
    state = folded(*BASE, put(odd))
    assert uses(state) == uses(ClusterState.load(state.dump())) == uses(folded(*BASE))


def test_what_loaded_pods_share_goes_with_the_last_of_them() -> None:
    loaded = ClusterState.load(folded(*BASE, *(put(pod(name, group="g", on="n1")) for name in "abc")).dump())
    for name in "abc":
        loaded.apply(loaded.sequence + 1, ev.ObjectGone("Pod", f"default/{name}"))
    assert uses(loaded) == [0] * 6


def test_a_pod_with_a_nomination_or_an_intent_keeps_it() -> None:
    nominated = pod("b", group="g", cpu=1)
    nominated["status"]["nominatedNodeName"] = "n2"
    loaded = ClusterState.load(folded(*BASE, put(nominated), decided(BIND)).dump())
    assert known(loaded)["default/a"][1] == "n1"
    assert loaded.nominations() == {"default/b": ("n2", 0)}


def test_most_pods_are_in_the_table_and_those_that_are_being_resized_are_not() -> None:
    grown = pod("b", group="g", cpu=1, on="n1")
    resources = {"requests": {"cpu": "3"}}
    grown["status"]["containerStatuses"] = [{"name": "c", "resources": resources, "allocatedResources": {"cpu": "3"}}]
    state = folded(*BASE, put(grown))
    shown = state.pod("default/b")
    assert shown is not None and may_be_resized(shown)
    dump = decoded(state.dump())
    assert dump.pods.keys() == ["default/a"]
    assert [key for kind, key, _, _ in dump.objects if kind == "Pod"] == ["default/b"]
    assert known(ClusterState.load(state.dump())) == known(state)


@pytest.mark.parametrize("seed", seeds(5, 10))
def test_a_checkpoint_without_a_table_is_the_same_state(seed: int) -> None:
    """Those of older versions have none."""
    state = folded(*random_events(seed))
    dump = decoded(state.dump())
    objects = sorted(dump.every_object(), key=lambda one: one[:2])
    older = msgspec.structs.replace(dump, objects=objects, pods=PodTable())
    assert ClusterState.of(older).dump() == state.dump()


def test_every_object_of_a_dump_is_as_it_was_logged() -> None:
    events = [put(pod(name, group="g", on=on)) for name, on in (("a", ""), ("b", "n1"))]
    shown = {key: payload for _, key, payload, _ in decoded(folded(*events).dump()).every_object()}
    assert shown == {event.key: event.payload for event in events}


@pytest.mark.parametrize("change", ["time", "amount"])
def test_a_table_that_this_version_cannot_read_is_taken_pod_by_pod(change: str) -> None:
    state = folded(*BASE, put(pod("b", group="g", cpu=2, memory="1Gi")))
    dump = decoded(state.dump())
    table = dump.pods
    if change == "time":
        odd = msgspec.structs.replace(table.metas[table.meta_of[0]], creation_timestamp="yesterday")
        table.metas.append(odd)
        table.meta_of[0] = len(table.metas) - 1
    else:
        shown = decode_payload("Pod", put(pod("a", group="g", cpu="much")).payload or b"")
        assert isinstance(shown, Pod)
        table.specs[table.spec_of[0]] = shown.spec
    loaded = ClusterState.of(dump)
    assert [key for _, key in loaded.bad] == ["default/a"]
    assert list(loaded.tasks.row_of) == ["default/b"]
    assert sorted(loaded.keys("Pod")) == ["default/a", "default/b"]


def test_equal_states_have_equal_tables() -> None:
    pods = [put(pod(f"p{number}", group="g", cpu=number % 3 + 1)) for number in range(9)]
    expected = folded(*pods).dump()
    for seed in range(5):
        random.Random(seed).shuffle(pods)
        assert folded(*pods).dump() == expected
    assert len(decoded(expected).pods.specs) == 3


def test_a_pod_that_goes_by_another_key_than_its_own_is_not_in_the_table() -> None:
    payload = encode_payload(decode_payload("Pod", put(pod("a", group="g")).payload or b""))
    state = folded(ev.ObjectPut("Pod", "default/other", "1", payload))
    assert decoded(state.dump()).pods == PodTable()
    assert known(ClusterState.load(state.dump())) == known(state)
