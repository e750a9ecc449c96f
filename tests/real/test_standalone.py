"""A real cluster without Volcano: Kubernetes' controllers make pods, the daemon their PodGroups and queues' states."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.cluster import GROUPS, QUEUES, Obj, until
from tests.e2e.standalone import FLAG
from tests.real.cluster import RealCluster
from tests.real.controlplane import ControlPlane

pytestmark = pytest.mark.real

DEPLOYMENTS, REPLICASETS = "deployments.apps", "replicasets.apps"
MARKS = {"scheduling.volcano.sh/group-min-member": "3", "volcano.sh/preemptable": "false"}


class Alone(RealCluster):
    """Daemons by deploy/base and deploy/components/controllers."""

    components = ("controllers",)

    def groups(self) -> list[Obj]:
        return list(self.store.list(GROUPS, "default"))

    def deploy(self, name: str, replicas: int) -> None:
        """A Deployment whose pods are of this scheduler."""
        container = {"name": "c", "image": "pause", "resources": {"requests": {"cpu": "1"}}}
        labels = {"app": name}
        template = {
            "metadata": {"labels": labels},
            "spec": {"schedulerName": "volcano", "terminationGracePeriodSeconds": 0, "containers": [container]},
        }
        spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
        meta = {"name": name, "namespace": "default", "annotations": MARKS}
        self.store.create(DEPLOYMENTS, {"metadata": meta, "spec": spec})


async def test_a_deployment_is_one_gang_whose_group_comes_and_goes_with_it(plane: ControlPlane, tmp_path: Path) -> None:
    async with Alone(tmp_path) as cluster:
        cluster.add_nodes(1, 8)
        await cluster.started("a", FLAG)
        cluster.deploy("web", 3)
        await until(lambda: len(cluster.binds) == 3, what="the pods are bound")
        (group,), (owner,) = cluster.groups(), cluster.store.list(REPLICASETS, "default")
        assert group["metadata"]["name"] == f"podgroup-{owner['metadata']['uid']}"
        assert group["metadata"]["annotations"] == {"volcano.sh/preemptable": "false"}
        assert (group["spec"]["minMember"], group["spec"]["minResources"]["cpu"]) == (3, "3")
        cluster.store.patch(DEPLOYMENTS, "default", "web", {"spec": {"replicas": 0}})
        await until(lambda: not cluster.groups(), what="the group of a set without pods goes")
        cluster.store.patch(DEPLOYMENTS, "default", "web", {"spec": {"replicas": 3}})
        await until(lambda: len(cluster.binds) == 6, what="its pods are bound again")
        cluster.store.delete(DEPLOYMENTS, "default", "web")
        await until(lambda: not cluster.groups(), what="the group goes with its owner")
        made = [call for call in cluster.made if (call.call.verb, call.call.resource) == ("create", GROUPS)]
        assert len(made) == 2


async def test_a_queue_is_closed_and_opened_by_its_status(plane: ControlPlane, tmp_path: Path) -> None:
    def state() -> str:
        return str(cluster.store.get(QUEUES, None, "q").get("status", {}).get("state"))

    async with Alone(tmp_path) as cluster:
        cluster.store.create(QUEUES, {"metadata": {"name": "q"}, "spec": {"parent": "root"}})
        await cluster.started("a", FLAG)
        await until(lambda: state() == "Open", what="it is open")
        cluster.store.patch(QUEUES, None, "q", {"status": {"state": "Closing"}}, "status")
        await until(lambda: state() == "Closed", what="it is closed, having no groups")
        cluster.store.patch(QUEUES, None, "q", {"status": {"state": "Open"}}, "status")
        wanted = {"minMember": 1, "queue": "q"}
        cluster.store.create(GROUPS, {"metadata": {"name": "g", "namespace": "default"}, "spec": wanted})
        await until(lambda: cluster.store.get(QUEUES, None, "q")["status"].get("inqueue") == 1, what="it is counted")
        assert state() == "Open"
