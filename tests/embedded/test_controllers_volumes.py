"""Claims and volumes: matching, provisioning, waiting for a consumer, release."""

from typing import Any

import pytest

from tests.embedded.simulated import Simulated
from vcd.embedded.controllers.volume_controller import CLAIMS, CLASSES, VOLUMES


@pytest.fixture
def sim() -> Simulated:
    return Simulated()


def claim(name: str = "c", size: str = "10Gi", storage_class: str = "fast", **spec: Any) -> dict[str, Any]:
    asked = {"resources": {"requests": {"storage": size}}, "accessModes": ["ReadWriteOnce"]}
    meta = {"name": name, "namespace": "default"}
    return {"metadata": meta, "spec": {**asked, "storageClassName": storage_class, **spec}}


def volume(name: str, size: str = "10Gi", storage_class: str = "fast", labels: dict[str, str] | None = None,
           **spec: Any) -> dict[str, Any]:  # fmt: skip
    given = {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "storageClassName": storage_class}
    return {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {**given, "hostPath": {"path": "/x"}, "persistentVolumeReclaimPolicy": "Retain", **spec},
    }


def storage_class(sim: Simulated, mode: str = "Immediate", provisioner: str = "disk.example") -> None:
    sim.create(CLASSES, {"metadata": {"name": "fast"}, "provisioner": provisioner, "volumeBindingMode": mode})


def bound(sim: Simulated, name: str = "c") -> str | None:
    found = sim.get(CLAIMS, name)
    return found["spec"].get("volumeName") if found["status"]["phase"] == "Bound" else None


def phase(sim: Simulated, name: str) -> str:
    return str(sim.get(VOLUMES, name, "")["status"]["phase"])


def test_a_claim_takes_the_smallest_volume_that_is_large_enough(sim: Simulated) -> None:
    for name, size in (("large", "100Gi"), ("small", "5Gi"), ("right", "20Gi")):
        sim.create(VOLUMES, volume(name, size))
    sim.create(CLAIMS, claim())
    assert (bound(sim), phase(sim, "right"), phase(sim, "large")) == ("right", "Bound", "Available")


def test_a_claim_waits_for_a_volume(sim: Simulated) -> None:
    sim.create(CLAIMS, claim())
    assert bound(sim) is None
    sim.create(VOLUMES, volume("v"))
    assert bound(sim) == "v"


@pytest.mark.parametrize(
    "other",
    [
        volume("v", storage_class="slow"), volume("v", accessModes=["ReadOnlyMany"]), volume("v", volumeMode="Block"),
        volume("v", labels={"tier": "b"}),
    ],
)  # fmt: skip
def test_a_volume_of_another_kind_does_not_do(sim: Simulated, other: dict[str, Any]) -> None:
    sim.create(VOLUMES, other)
    sim.create(CLAIMS, claim(selector={"matchLabels": {"tier": "a"}}))
    assert bound(sim) is None


def test_two_claims_do_not_share_a_volume(sim: Simulated) -> None:
    sim.create(VOLUMES, volume("v"))
    for name in ("a", "b"):
        sim.create(CLAIMS, claim(name))
    assert (bound(sim, "a"), bound(sim, "b")) == ("v", None)


def test_a_volume_is_made_by_the_provisioner(sim: Simulated) -> None:
    storage_class(sim)
    made = sim.create(CLAIMS, claim(size="7Gi"))
    name = f"pvc-{made['metadata']['uid']}"
    assert bound(sim) == name
    assert sim.get(VOLUMES, name, "")["spec"]["capacity"]["storage"] == "7Gi"


def test_a_class_without_provisioner_makes_none(sim: Simulated) -> None:
    storage_class(sim, provisioner="kubernetes.io/no-provisioner")
    sim.create(CLAIMS, claim())
    assert bound(sim) is None


def test_a_claim_that_waits_for_its_consumer_is_left_alone(sim: Simulated) -> None:
    storage_class(sim, "WaitForFirstConsumer")
    sim.create(VOLUMES, volume("v"))
    sim.create(CLAIMS, claim())
    assert bound(sim) is None


def test_a_chosen_node_lets_the_volume_be_made(sim: Simulated) -> None:
    storage_class(sim, "WaitForFirstConsumer")
    sim.create(CLAIMS, claim())
    sim.patch(CLAIMS, "c", {"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "n0"}}})
    assert bound(sim) is not None


def test_a_volume_that_a_scheduler_gave_to_the_claim_is_taken(sim: Simulated) -> None:
    storage_class(sim, "WaitForFirstConsumer", "kubernetes.io/no-provisioner")
    sim.create(VOLUMES, volume("v"))
    made = sim.create(CLAIMS, claim())
    ref = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": "c", "uid": made["metadata"]["uid"]}
    sim.store.patch(VOLUMES, None, "v", {"spec": {"claimRef": ref}})
    sim.settle()
    assert bound(sim) == "v"


def test_a_volume_named_by_the_claim_is_taken(sim: Simulated) -> None:
    for name in ("a", "b"):
        sim.create(VOLUMES, volume(name))
    sim.create(CLAIMS, claim(volumeName="b"))
    assert bound(sim) == "b"


def test_a_made_volume_goes_with_its_claim(sim: Simulated) -> None:
    storage_class(sim)
    sim.create(CLAIMS, claim())
    sim.delete(CLAIMS, "c")
    assert sim.store.list(VOLUMES) == []


def test_a_retained_volume_is_released(sim: Simulated) -> None:
    sim.create(VOLUMES, volume("v"))
    sim.create(CLAIMS, claim())
    sim.delete(CLAIMS, "c")
    assert phase(sim, "v") == "Released"


def test_a_released_volume_is_not_given_to_the_next(sim: Simulated) -> None:
    sim.create(VOLUMES, volume("v"))
    sim.create(CLAIMS, claim())
    sim.delete(CLAIMS, "c")
    sim.create(CLAIMS, claim())
    assert bound(sim) is None
