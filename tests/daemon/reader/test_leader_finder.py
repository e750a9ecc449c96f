"""Where the leader's pod is looked for, by who may list pods in some namespaces alone."""

from __future__ import annotations

import pytest

from tests.embedded.serving import Api, pod, serving
from vcd.daemon.reader.leader_finder import Finder, NoLeader, PodPort
from vcd.kube.client import KubeClient
from vcd.kube.kube_connection import connect
from vcd.kube.lease import ADDRESS, POD_NAMESPACE

OURS, LEASES = "batch", "volcano-system"
LOG = f"vcd-0_1 https://10.0.0.7:8444/vcd/log#sha256={'0' * 64}"


async def found(api: Api, *namespaces: str) -> PodPort:
    """The leader's pod, for who may list pods in these namespaces alone."""
    api.server.authorize = lambda _, call, __: call[:2] != ("list", "pods") or call.namespace in namespaces
    async with KubeClient(await connect(master=api.server.url)) as client:
        finder = Finder(client, api.server.url)
        return await finder.pod(await finder.lease(LEASES))


def lead(api: Api, **annotations: str) -> None:
    """A leader in OURS whose Lease is in LEASES, with these annotations beside that of the log."""
    for name in (OURS, LEASES):
        api.store.create("namespaces", {"metadata": {"name": name}})
    api.store.create("pods", {**pod("vcd-0"), "metadata": {"name": "vcd-0", "namespace": OURS}})
    api.store.patch("pods", OURS, "vcd-0", {"status": {"phase": "Running", "podIP": "10.0.0.7"}}, "status")
    metadata = {"name": "volcano", "namespace": LEASES, "annotations": {ADDRESS: LOG, **annotations}}
    api.store.create("leases.coordination.k8s.io", {"metadata": metadata, "spec": {"holderIdentity": "vcd-0_1"}})


async def test_it_is_found_in_the_namespace_that_the_lease_names() -> None:
    async with serving() as api:
        lead(api, **{POD_NAMESPACE: OURS})
        assert await found(api, OURS) == PodPort(OURS, "vcd-0", 8444, "vcd-reader")


@pytest.mark.parametrize("annotations", [{}, {POD_NAMESPACE: LEASES}], ids=["not told", "of one before"])
async def test_it_is_looked_for_everywhere_where_the_lease_does_not_know(annotations: dict[str, str]) -> None:
    async with serving() as api:
        lead(api, **annotations)
        with pytest.raises(NoLeader, match="other namespaces cannot be searched"):
            await found(api, LEASES, OURS)
        api.server.authorize = None
        async with KubeClient(await connect(master=api.server.url)) as client:
            finder = Finder(client, api.server.url)
            assert (await finder.pod(await finder.lease(LEASES))).namespace == OURS
