"""deploy/components/validation at a real API server: what each rule takes, what it refuses and in which words."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.deploy.kustomize import documents
from tests.deploy.test_manifests import DEPLOY
from tests.real.api import Api, Refused
from tests.real.controlplane import ControlPlane

pytestmark = pytest.mark.real

Obj = dict[str, Any]
POLICIES = DEPLOY / "components" / "validation" / "policies.yaml"
KINDS = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies.admissionregistration.k8s.io",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings.admissionregistration.k8s.io",
}
QUEUES, GROUPS = "queues.scheduling.volcano.sh", "podgroups.scheduling.volcano.sh"
SECONDS = 30.0
"""Until a policy is in force: the API server learns of it by a watch."""


class Rule(NamedTuple):
    """One rule: a policy's message, an object that it takes, and one that it refuses."""

    message: str
    taken: Obj
    refused: Obj


def queue(annotations: Obj | None = None, name: str = "tried", **spec: Any) -> Obj:
    return {"metadata": {"name": name, "annotations": annotations or {}}, "spec": spec}


def group(**spec: Any) -> Obj:
    return {"metadata": {"name": "tried", "namespace": "default"}, "spec": spec}


def pod(scheduler: str = "volcano", **annotations: str) -> Obj:
    meta = {
        "name": "tried",
        "namespace": "default",
        "annotations": {f"volcano.sh/{k}": v for k, v in annotations.items()},
    }
    return {"metadata": meta, "spec": {"schedulerName": scheduler, "containers": [{"name": "c", "image": "i"}]}}


def resources(amounts: Obj) -> Obj:
    return {"resource": amounts}


def hierarchy(path: str, weights: str) -> Obj:
    return {"volcano.sh/hierarchy": path, "volcano.sh/hierarchy-weights": weights}


BOTH = {"highestTierAllowed": 1, "highestTierName": "rack"}
ONE = {"highestTierName": "rack"}
MIN, MAX = "jdb-min-available", "jdb-max-unavailable"
QUEUE_RULES = [
    Rule("must not be negative", queue(capability={"cpu": "0"}), queue(capability={"cpu": "-1"})),
    Rule("must not be negative", queue(deserved={"memory": "1.5Gi"}), queue(deserved={"memory": "-1"})),
    Rule("whole numbers", queue(capability={"nvidia.com/gpu": 2}), queue(capability={"nvidia.com/gpu": "1500m"})),
    Rule("whole numbers", queue(capability={"cpu": "1500m", "pods": "3"}), queue(capability={"pods": "2.5"})),
    Rule(
        "spec.deserved must have each resource",
        queue(guarantee=resources({"cpu": "1"}), deserved={"cpu": "1000m"}),
        queue(guarantee=resources({"cpu": "1"}), deserved={"cpu": "999m"}),
    ),
    Rule(
        "spec.deserved must have each resource",
        queue(guarantee=resources({"cpu": 1}), deserved={"cpu": 1, "memory": "1"}),
        queue(guarantee=resources({"cpu": 1, "memory": "1"}), deserved={"cpu": 1}),
    ),
    Rule(
        "must not be more than spec.capability",
        queue(deserved={"cpu": "2", "memory": "1Gi"}, capability={"cpu": "2"}),
        queue(deserved={"cpu": "2"}, capability={"cpu": "1999m"}),
    ),
    Rule("cannot be its own parent", queue(parent="other"), queue(parent="tried")),
    Rule("as many parts", queue(hierarchy("root/sci", "1/2.5")), queue(hierarchy("root/sci", "1"))),
    Rule("as many parts", queue({}), queue({"volcano.sh/hierarchy": "root/sci"})),
    Rule("must be numbers above 0", queue(hierarchy("root/sci", "1/0.5")), queue(hierarchy("root/sci", "1/0"))),
    Rule("must be numbers above 0", queue(hierarchy("root/sci", "10/2")), queue(hierarchy("root/sci", "1/much"))),
]
GROUP_RULES = [
    Rule("spec.networkTopology: give", group(networkTopology=ONE), group(networkTopology=BOTH)),
    Rule(
        "spec.subGroupPolicy: give",
        group(subGroupPolicy=[{"name": "a"}, {"name": "b", "networkTopology": ONE}]),
        group(subGroupPolicy=[{"name": "a"}, {"name": "b", "networkTopology": BOTH}]),
    ),
]
POD_RULES = [
    Rule("not both", pod(**{MIN: "2"}), pod(**{MIN: "2", MAX: "1"})),
    *(
        Rule("must be a number above 0", pod(**{MIN: "50%"}), pod(**{MIN: text}))
        for text in ("0", "-1", "100%", "many")
    ),
    Rule("must be a number above 0", pod("default-scheduler", **{MAX: "0"}), pod(**{MAX: "0%"})),
]
RULES = [
    *((QUEUES, rule) for rule in QUEUE_RULES),
    *((GROUPS, rule) for rule in GROUP_RULES),
    *(("pods", rule) for rule in POD_RULES),
]


def refusal(api: Api, resource: str, obj: Obj) -> str:
    """Why a creation is refused; empty where it is not."""
    try:
        api.create(resource, obj)
    except Refused as error:
        return str(error)
    meta = obj["metadata"]
    api.delete(resource, meta.get("namespace"), meta["name"], grace_period=0)
    return ""


def until(api: Api, refuses: bool) -> None:
    """Wait until the policies are in force, or no more: the last object of each kind tells."""
    deadline = time.monotonic() + SECONDS
    last = [next((r, rule) for r, rule in reversed(RULES) if r == kind) for kind in (QUEUES, GROUPS, "pods")]
    while any(bool(refusal(api, resource, rule.refused)) is not refuses for resource, rule in last):
        assert time.monotonic() < deadline, f"not within {SECONDS} s: {refuses=}"


@pytest.fixture(scope="module")
def api(plane: ControlPlane) -> Iterator[Api]:
    """A server with the policies in force, and with the queues that are never to be deleted."""
    made = documents(POLICIES)
    api = plane.api
    for name in ("root", "default"):
        api.apply({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", **queue(name=name, weight=1)})
    for manifest in made:
        api.apply(manifest)
    until(api, refuses=True)
    yield api
    for manifest in made:
        api.delete(KINDS[manifest["kind"]], None, manifest["metadata"]["name"])
    until(api, refuses=False)
    for name in ("root", "default"):
        api.delete(QUEUES, None, name)


@pytest.mark.parametrize(("resource", "rule"), RULES, ids=str)
def test_a_rule_takes_what_is_right_and_refuses_what_is_not(api: Api, resource: str, rule: Rule) -> None:
    assert refusal(api, resource, rule.taken) == ""
    assert rule.message in refusal(api, resource, rule.refused)


@pytest.mark.parametrize("name", ["root", "default"])
def test_the_first_queues_cannot_be_deleted(api: Api, name: str) -> None:
    with pytest.raises(Refused, match="the queues root and default cannot be deleted"):
        api.delete(QUEUES, None, name)
    api.create(QUEUES, queue(name="other"))
    api.delete(QUEUES, None, "other")


def test_what_the_root_queue_has_cannot_be_changed(api: Api) -> None:
    api.patch(QUEUES, None, "root", {"spec": {"weight": 2}})
    with pytest.raises(Refused, match="of the queue root cannot be changed"):
        api.patch(QUEUES, None, "root", {"spec": {"capability": {"cpu": "1"}}})


def test_a_change_is_judged_as_a_creation(api: Api) -> None:
    api.create(QUEUES, queue(name="changed", capability={"cpu": "1"}))
    with pytest.raises(Refused, match="must not be negative"):
        api.patch(QUEUES, None, "changed", {"spec": {"capability": {"cpu": "-1"}}})
    api.patch(QUEUES, None, "changed", {"status": {"state": "Closed"}}, "status")
    api.delete(QUEUES, None, "changed")


def test_the_api_server_finds_no_fault_in_the_expressions(api: Api) -> None:
    for manifest in documents(POLICIES):
        if manifest["kind"] == "ValidatingAdmissionPolicy":
            found = api.get(KINDS[manifest["kind"]], None, manifest["metadata"]["name"])
            assert not found["status"].get("typeChecking", {}).get("expressionWarnings")


@pytest.mark.parametrize(
    ("resource", "refused"),
    [
        (QUEUES, queue(weight=0)),
        (QUEUES, queue(capability={"cpu": "much"})),
        (GROUPS, group(minMember=-1)),
        (GROUPS, group(queue="Not A Name")),
    ],
    ids=str,
)
def test_what_the_custom_resources_refuse_by_themselves(api: Api, resource: str, refused: Obj) -> None:
    assert "Invalid value" in refusal(api, resource, refused)


def test_what_the_custom_resources_fill_in_by_themselves(api: Api) -> None:
    assert api.create(QUEUES, queue(name="filled"))["spec"]["weight"] == 1
    api.delete(QUEUES, None, "filled")
    assert api.create(GROUPS, group())["spec"]["queue"] == "default"
    api.delete(GROUPS, "default", "tried")


def test_every_rule_has_its_examples() -> None:
    messages = [
        each["message"]
        for manifest in documents(POLICIES)
        if manifest["kind"] == "ValidatingAdmissionPolicy"
        and manifest["metadata"]["name"] != "vcd-scheduler-queues-kept"
        for each in manifest["spec"]["validations"]
    ]
    tried = {rule.message for _, rule in RULES} | {"of the queue root cannot be changed"}
    assert [message for message in messages if not any(words in message for words in tried)] == []
