"""Who asks from outside: a ServiceAccount that may read the log and no more, and a role of who may make its tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.deploy.kustomize import Key, Manifest, render
from tests.deploy.rbac import Grant, grants, rule_grants
from tests.deploy.test_manifests import NAMESPACE, overlay_of, pod_of
from vcd.daemon.reader.leader_finder import ACCOUNT, OPERATOR, READER
from vcd.daemon.replicas.replica_protocol import PATH


@pytest.fixture
def rendered(tmp_path: Path) -> dict[Key, Manifest]:
    return render(overlay_of(tmp_path, "one-log"))


def test_the_reader_may_read_the_log_and_nothing_else(rendered: dict[Key, Manifest]) -> None:
    assert grants(rendered.values(), ACCOUNT, NAMESPACE) == set()
    assert rules_of(rendered, ACCOUNT) == [{"nonResourceURLs": [PATH], "verbs": ["get"]}]
    assert rendered["ServiceAccount", NAMESPACE, ACCOUNT]["automountServiceAccountToken"] is False


def test_the_pods_name_the_reader(rendered: dict[Key, Manifest]) -> None:
    assert pod_of(rendered)["metadata"]["annotations"] == {READER: ACCOUNT}


def test_the_operator_may_find_the_leader_forward_a_port_and_make_tokens_of_the_reader_alone(
    rendered: dict[Key, Manifest],
) -> None:
    role = rendered["Role", NAMESPACE, OPERATOR]
    leases = "coordination.k8s.io", "leases"
    assert set(rule_grants(role["rules"], NAMESPACE)) == {
        Grant("get", *leases, NAMESPACE, ""),
        Grant("list", *leases, NAMESPACE, ""),
        Grant("list", "", "pods", NAMESPACE, ""),
        Grant("get", "", "pods/portforward", NAMESPACE, ""),
        Grant("create", "", "pods/portforward", NAMESPACE, ""),
        Grant("create", "", "serviceaccounts/token", NAMESPACE, ACCOUNT),
    }


def test_nobody_is_an_operator_and_no_other_role_takes_it_up(rendered: dict[Key, Manifest]) -> None:
    bound = [each["roleRef"]["name"] for (kind, _, _), each in rendered.items() if kind.endswith("Binding")]
    assert bound
    assert OPERATOR not in bound
    labels = [label for each in rendered.values() for label in each["metadata"].get("labels", {})]
    assert not [label for label in labels if "aggregate" in label]


def rules_of(rendered: dict[Key, Manifest], account: str) -> list[dict[str, Any]]:
    """The rules of all ClusterRoles that are bound to a ServiceAccount."""
    return [
        rule
        for (kind, _, _), binding in rendered.items()
        if kind == "ClusterRoleBinding" and account in {subject["name"] for subject in binding["subjects"]}
        for rule in rendered["ClusterRole", "", binding["roleRef"]["name"]]["rules"]
    ]
