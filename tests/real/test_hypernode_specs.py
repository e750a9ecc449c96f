"""Volcano's own end-to-end specs of network topology, with vcd in vc-scheduler's place."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from tests.e2e.cluster import Obj
from tests.real.binaries import VOLCANO
from tests.real.cluster import VolcanoCluster
from tests.real.controlplane import ControlPlane
from tests.sizes import WIDE

pytestmark = [pytest.mark.real, pytest.mark.volcano]

CONF = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
- plugins:
  - name: drf
  - name: predicates
  - name: proportion
  - name: nodeorder
  - name: binpack
  - name: network-topology-aware
"""
NODES = 8
SPECS = [f"Case {number}[.]" for number in range(1, 10)] if WIDE else ["Case 1.2:"]
"""All before a release: each takes a minute, in most of which Volcano waits for the end of its namespace."""


class SpecCluster(VolcanoCluster):
    """The specs put pods on nodes by name, beyond what these have."""

    def _check_room(self, name: str, newest: Obj) -> None:
        pass


def kwok_node(number: int) -> Obj:
    """A node as Volcano's script ``hack/run-e2e-kind.sh`` creates it."""
    name = f"kwok-node-{number}"
    amounts = {"cpu": "8", "memory": "8Gi", "pods": "110"}
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "type": "kwok"}},
        "spec": {"taints": [{"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}]},
        "status": {
            "allocatable": amounts,
            "capacity": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def network_pod(number: int) -> Obj:
    """What the network's DaemonSet of kind (kindnet) requests on each node: the specs count on it."""
    container = {"name": "cni", "image": "kindnet", "resources": {"requests": {"cpu": "100m", "memory": "50Mi"}}}
    return {
        "metadata": {"name": f"kindnet-{number}", "namespace": "default"},
        "spec": {"nodeName": f"kwok-node-{number}", "containers": [container]},
    }


@pytest.mark.parametrize("specs", SPECS)
async def test_volcanos_hypernode_specs_pass(specs: str, volcano: ControlPlane, tmp_path: Path) -> None:
    conf, report = tmp_path / "scheduler.conf", tmp_path / "report.json"
    conf.write_text(CONF)
    async with SpecCluster(tmp_path) as cluster:
        for number in range(NODES):
            cluster.store.create("nodes", kwok_node(number))
            cluster.store.create("pods", network_pod(number))
        await cluster.started("a", f"--scheduler-conf={conf}")
        program = await asyncio.create_subprocess_exec(
            VOLCANO.program("hypernode.test"),
            "-ginkgo.no-color",
            f"-ginkgo.focus={specs}",
            f"-ginkgo.json-report={report}",
            env={**os.environ, "KUBECONFIG": str(volcano.kubeconfig("admin"))},
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            output, _ = await program.communicate()
        finally:
            if program.returncode is None:
                program.kill()
                await program.wait()
    (suite,) = json.loads(report.read_text())
    states = {spec["LeafNodeText"]: spec["State"] for spec in suite["SpecReports"] if spec["LeafNodeType"] == "It"}
    ran = {name: state for name, state in states.items() if state != "skipped"}
    assert ran
    assert {name for name, state in ran.items() if state != "passed"} == set(), output.decode()[-20000:]
