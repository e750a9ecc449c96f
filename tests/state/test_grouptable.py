"""Checkpoints hold PodGroups as a table: a state that takes it over is what folding them one by one makes."""

from __future__ import annotations

import msgspec
import pytest

from tests.dsl import group, pod
from tests.sizes import seeds
from tests.state.test_cluster_state import folded, put, random_events
from vcd.model import events as ev
from vcd.model.projection_codec import decode_payload, encode_payload
from vcd.state.checkpoint import decoded
from vcd.state.cluster_state import ClusterState
from vcd.state.grouptable import GroupTable


@pytest.mark.parametrize("seed", seeds(15, 40))
def test_a_loaded_state_knows_of_each_group_what_the_folded_one_does(seed: int) -> None:
    state = folded(*random_events(seed))
    loaded = ClusterState.load(state.dump())
    assert {key: msgspec.structs.asdict(one) for key, one in loaded.groups.items()} == {
        key: msgspec.structs.asdict(state.groups[key]) for key in sorted(state.groups)
    }
    assert loaded.former == state.former
    assert loaded.digests.get("PodGroup", {}) == state.digests.get("PodGroup", {})


@pytest.mark.parametrize("seed", seeds(5, 10))
def test_a_checkpoint_without_a_table_is_the_same_state(seed: int) -> None:
    """Those of older versions have none."""
    state = folded(*random_events(seed))
    dump = decoded(state.dump())
    assert len(dump.groups.digests) == len(state.groups)
    groups = [one for one in dump.every_object() if one[0] == "PodGroup"]
    objects = sorted([*groups, *[one for one in dump.objects if one[0] != "PodGroup"]], key=lambda one: one[:2])
    older = msgspec.structs.replace(dump, objects=objects, groups=GroupTable())
    assert ClusterState.of(older).dump() == state.dump()


def test_a_group_that_comes_after_its_pods_is_no_former_one() -> None:
    loaded = ClusterState.load(folded(put(pod("a", group="g")), put(pod("b", group="h")), put(group("g"))).dump())
    assert loaded.former == {"default/h": None}


@pytest.mark.parametrize("change", ["time", "amount"])
def test_a_table_that_this_version_cannot_read_is_taken_group_by_group(change: str) -> None:
    dump = decoded(folded(put(group("g", minimum={"cpu": "1"})), put(group("h"))).dump())
    table = dump.groups
    if change == "time":
        table.metas[0] = msgspec.structs.replace(table.metas[0], creation_timestamp="yesterday")
    else:
        table.specs[0] = msgspec.structs.replace(table.specs[0], min_resources={"cpu": "much"})
    loaded = ClusterState.of(dump)
    assert [key for _, key in loaded.bad] == ["default/g"]
    assert list(loaded.groups) == ["default/h"]
    assert sorted(loaded.keys("PodGroup")) == ["default/g", "default/h"]


def test_a_group_that_goes_by_another_key_than_its_own_is_not_in_the_table() -> None:
    payload = encode_payload(decode_payload("PodGroup", put(group("g")).payload or b""))
    state = folded(ev.ObjectPut("PodGroup", "default/other", "1", payload))
    assert decoded(state.dump()).groups == GroupTable()
    assert list(ClusterState.load(state.dump()).groups) == ["default/other"]
