"""The commands by which vcd takes vc-scheduler's place and gives it back, as the documentation has them."""

from __future__ import annotations

import asyncio
import os
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cluster import until
from tests.real.cluster import RealCluster, VolcanoCluster
from tests.real.controlplane import NAMESPACE, ControlPlane
from tests.real.volcano import chart

pytestmark = [pytest.mark.real, pytest.mark.volcano]

Obj = dict[str, Any]
ROOT = Path(__file__).resolve().parents[2]
DEPLOYMENTS = "deployments.apps"
MONITORS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "servicemonitors.monitoring.coreos.com"},
    "spec": {
        "group": "monitoring.coreos.com",
        "names": {"kind": "ServiceMonitor", "plural": "servicemonitors", "singular": "servicemonitor"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1", "served": True, "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}  # fmt: skip
"""The kind that the Prometheus operator brings, without which the overlay needs a component more."""


def section(path: str, heading: str) -> str:
    """A section of a page, without what follows its next heading."""
    text = (ROOT / path).read_text()
    following = text[text.index(f"\n{heading}\n") + len(heading) + 1 :]
    without_comments = re.sub(r"^# .*\n", "", following, flags=re.MULTILINE)  # shells' look like headings
    return re.split(r"^#+ ", without_comments, maxsplit=1, flags=re.MULTILINE)[0]


def commands(text: str) -> Iterator[str]:
    """The commands in its code blocks, one each."""
    for block in re.findall(r"^ *```(?:sh)?\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL):
        lines = re.sub(r"\\\n\s*", "", textwrap.dedent(block)).splitlines()
        yield from (line for line in lines if line.strip())


async def run(plane: ControlPlane, command: str) -> str:
    """What a command prints; it must succeed."""
    path = f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}"
    environ = {"PATH": path, "HOME": str(plane.folder), "KUBECONFIG": str(plane.kubeconfig("admin"))}
    process = await asyncio.create_subprocess_shell(
        command, cwd=ROOT, env=environ, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, f"{command}\n{output.decode()}"
    return output.decode()


class DefaultScheduler:
    """Binds what is not ours to the first node, as the cluster's own scheduler would."""

    def __init__(self, cluster: RealCluster) -> None:
        self._cluster = cluster
        self._bound: set[str] = set()
        cluster.store.subscribe(["pods"], self._note)

    def _note(self, event: str, _: str, pod: Obj) -> None:
        meta, spec = pod["metadata"], pod["spec"]
        if event == "DELETED" or spec["schedulerName"] != "default-scheduler" or "nodeName" in spec:
            return
        if meta["uid"] not in self._bound and not meta["name"].startswith("vcd-a"):
            self._bound.add(meta["uid"])
            target = {"apiVersion": "v1", "kind": "Node", "name": "node-00"}
            body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": meta["name"]}, "target": target}
            self._cluster.plane.api.request(
                "POST", f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/binding", body
            )


def replicas(cluster: RealCluster, name: str) -> int:
    """How many of a Deployment are available."""
    found = [each for each in cluster.store.list(DEPLOYMENTS, NAMESPACE) if each["metadata"]["name"] == name]
    return found[0].get("status", {}).get("availableReplicas", 0) if found else 0


async def test_vcd_takes_vc_schedulers_place_and_gives_it_back(volcano: ControlPlane, tmp_path: Path) -> None:
    upgrade, patch, wait, apply = commands(section("deploy/README.md", "### In vc-scheduler's place"))
    assert upgrade.startswith("helm upgrade volcano volcano-sh/volcano ")  # of a repository that is not here
    pages = list(commands(section("docs/operations.md", "## In vc-scheduler's place")))
    check, plan = pages[:2]
    # between them is the shadow, whose commands run in its pod, which a played kubelet does not have
    _, status, *back = pages[pages.index(apply) :]
    async with VolcanoCluster(tmp_path) as cluster:
        cluster.add_nodes(1, 64)
        DefaultScheduler(cluster)
        volcano.api.apply(MONITORS)
        (theirs,) = (each for each in chart() if (each["kind"], each["metadata"]["name"]) == ("Deployment", THEIRS))
        volcano.api.apply(theirs)
        await until(lambda: replicas(cluster, THEIRS) == 1, what="vc-scheduler runs")

        for command in (check, plan, patch, wait):
            await run(volcano, command)
        await until(lambda: replicas(cluster, THEIRS) == 0, what="vc-scheduler does not run")
        await run(volcano, apply)
        assert "successfully rolled out" in await run(volcano, status)
        assert replicas(cluster, "vcd-scheduler") == 2

        for command in back:
            await run(volcano, command)
        await until(lambda: replicas(cluster, THEIRS) == 1, what="vc-scheduler runs again")
        assert "volcano-scheduler-configmap" in {
            each["metadata"]["name"] for each in cluster.store.list("configmaps", NAMESPACE)
        }
        volcano.api.delete(DEPLOYMENTS, NAMESPACE, THEIRS)


THEIRS = "volcano-scheduler"
