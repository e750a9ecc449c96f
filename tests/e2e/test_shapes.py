"""Pods of one template are of one shape, whatever the API server gives each of them as it lets it in."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.cluster import Cluster, Daemon, until
from vcd.daemon.persistence.state_writer import restore
from vcd.model.objects import PodSpec


def specs(daemon: Daemon) -> dict[str, PodSpec]:
    """By name of the pod, what its log has of it."""
    return {pod.metadata.name: pod.spec for pod in restore(daemon.log).pods if pod is not None}


async def test_pods_of_one_template_are_of_one_shape(tmp_path: Path) -> None:
    """A token's volume has a name of its own in each pod; one behind a claim still counts."""
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(2)
        daemon = await cluster.started("a")
        claim = {"name": "v", "persistentVolumeClaim": {"claimName": "missing"}}
        cluster.submit("claims", 1, volumes=[claim])
        for name in ("a", "b", "c"):
            own = [{"name": f"kube-api-access-{name * 5}", "emptyDir": {}}]
            await cluster.until_bound(cluster.submit(name, 2, volumes=own))
        await until(lambda: specs(daemon).keys() >= {"claims-0", "c-1"}, what="all of them are in the log")
        found = specs(daemon)
        assert len({id(found[f"{name}-{number}"]) for name in ("a", "b", "c") for number in range(2)}) == 1
        assert [volume.persistent_volume_claim is not None for volume in found["claims-0"].volumes] == [True]
