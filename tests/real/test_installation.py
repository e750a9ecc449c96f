"""Faults of the installation at a real API server: a right that is missing, an admission policy that denies, and pods
that no controller makes a PodGroup for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cluster import pod
from tests.e2e.test_installation import GAUGE, events, scheduled
from tests.real.cluster import RealCluster
from tests.real.controlplane import ControlPlane
from tests.waiting import until

pytestmark = pytest.mark.real

Obj = dict[str, Any]
ROLES = "clusterroles.rbac.authorization.k8s.io"
POLICIES = "validatingadmissionpolicies.admissionregistration.k8s.io"
BINDINGS = "validatingadmissionpolicybindings.admissionregistration.k8s.io"
DENIES = "denies-podgroups"


def take_the_right(cluster: RealCluster) -> None:
    """Leave the role of deploy/ without the right to patch PodGroups; the next test applies it again."""
    role = cluster.store.get(ROLES, None, "vcd-scheduler")
    for rule in role["rules"]:
        if "podgroups" in rule["resources"] and "patch" in rule["verbs"]:
            rule["verbs"] = [verb for verb in rule["verbs"] if verb != "patch"]
    cluster.store.update(ROLES, role)


def deny_by_policy(cluster: RealCluster) -> None:
    """Let an admission policy refuse each change of a PodGroup."""
    rule = {
        "apiGroups": ["scheduling.volcano.sh"], "apiVersions": ["*"], "operations": ["UPDATE"],
        "resources": ["podgroups"],
    }  # fmt: skip
    checks = [{"expression": "false", "message": "nobody changes a PodGroup"}]
    spec = {"matchConstraints": {"resourceRules": [rule]}, "validations": checks}
    cluster.store.create(POLICIES, {"metadata": {"name": DENIES}, "spec": spec})
    bound = {"policyName": DENIES, "validationActions": ["Deny"]}
    cluster.store.create(BINDINGS, {"metadata": {"name": DENIES}, "spec": bound})


@pytest.fixture
def policies(plane: ControlPlane) -> Any:
    """Take away the policy that a test made."""
    yield
    for resource in (BINDINGS, POLICIES):
        plane.api.clear(resource, None)


@pytest.mark.usefixtures("policies")
@pytest.mark.parametrize(
    ("disturb", "code", "words"),
    [(take_the_right, 403, "cannot patch resource"), (deny_by_policy, 422, "nobody changes a PodGroup")],
)
async def test_a_status_that_is_refused_and_a_pod_without_a_group_are_reported(
    plane: ControlPlane, tmp_path: Path, disturb: Callable[[RealCluster], None], code: int, words: str
) -> None:
    async with RealCluster(tmp_path) as cluster:
        disturb(cluster)
        cluster.add_nodes(1)
        daemon = await cluster.started("a")
        cluster.submit("g", 1)
        lost = pod("lost", "elsewhere")
        del lost["metadata"]["annotations"]
        cluster.store.create("pods", lost)
        await until(lambda: daemon.events("fault"), what="the first fault is logged")
        await daemon.until_metric(f'{GAUGE}{{code="no-group",subject="default"}}', 1)
        await until(lambda: events(cluster, "StatusRefused"), what="the Event at the PodGroup")
        assert words in events(cluster, "StatusRefused")[0]["message"]
        found = await daemon.metrics()
        assert found[f'{GAUGE}{{code="write-refused",subject="patch podgroups {code}"}}'] >= 1
        await until(lambda: scheduled(cluster, "lost"), what="the condition")
        assert scheduled(cluster, "lost")["reason"] == "PodGroupMissing"
        await daemon.kill()
        assert all("podgroups" in each for each in cluster.refused)
        cluster.forbidden.clear()  # what the role lacks by this test's doing
