"""Pain 2: the pending reason is masked by a gang message (volcano #2285, #2357, #4971)."""

from __future__ import annotations

import pytest

from tests.dsl import gang, group, node, pod
from tests.laws.answering import Answering
from vcd.diagnosis.group_wait import GroupWait
from vcd.diagnosis.job_diagnosis import diagnosed
from vcd.diagnosis.waiting_job import served
from vcd.text.causes import said

LOST = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "lost"}}]}


def test_a_missing_claim_is_named_in_the_reasons_of_its_pod() -> None:
    world = Answering(node("n"), gang("g", 1, cpu=1, phase="Pending", minimum={"cpu": 1}, spec=LOST))
    world.rest()
    assert world.placed() == {}
    first = world.why("g")[0]
    assert (first.gate, first.pods) == ("predicate", ("default/g-0",))
    assert first.reason == 'persistentvolumeclaim "lost" not found'


@pytest.mark.parametrize("members", [1, 3])
def test_a_missing_claim_is_named_in_what_the_groups_condition_says(members: int) -> None:
    good = [pod(f"g-{i}", group="g", cpu=1) for i in range(1, members)]
    world = Answering(node("n"), group("g", members=members), pod("g-0", group="g", cpu=1, spec=LOST), *good)
    world.rest()
    condition = world.state.groups["default/g"].group.status.conditions[0]
    assert (condition.type, condition.status) == ("Unschedulable", "True")
    assert world.session is not None
    waits = GroupWait("default/g", world.session, world.state.waiting["default/g"])
    assert 'persistentvolumeclaim "lost" not found' in said(diagnosed(waits, served(frozenset())))


def test_the_reason_goes_once_the_claim_is_there() -> None:
    world = Answering(node("n"), gang("g", 1, cpu=1, spec=LOST))
    world.rest()
    world.put(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": "pv"},
            "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "claimRef": {"name": "lost"}},
            "status": {"phase": "Bound"},
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": "lost",
                "namespace": "default",
                "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
            },
            "spec": {"volumeName": "pv", "accessModes": ["ReadWriteOnce"]},
            "status": {"phase": "Bound"},
        },
    )
    world.rest()
    assert world.placed() == {"g-0": "n"}
    assert world.why("g") == []
