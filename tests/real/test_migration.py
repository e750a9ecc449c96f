"""The commands by which vcd takes vc-scheduler's place and gives it back, as the documentation has them."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.programs import go_tool
from tests.e2e.cluster import until
from tests.real.cluster import RealCluster, VolcanoCluster
from tests.real.controlplane import NAMESPACE, ControlPlane
from tests.real.volcano import chart
from tests.waiting import WAIT_LIMIT

pytestmark = [pytest.mark.real, pytest.mark.volcano]

Obj = dict[str, Any]
ROOT = Path(__file__).resolve().parents[2]
DEPLOYMENTS = "deployments.apps"


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
        yield from (line for line in lines if line.strip() and not line.startswith("#"))


async def run(plane: ControlPlane, command: str, folder: Path) -> str:
    """What a command prints in a folder; it must succeed."""
    path = f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}:{Path(go_tool('kustomize')).parent}"
    environ = {"PATH": path, "HOME": str(plane.folder), "KUBECONFIG": str(plane.kubeconfig("admin"))}
    process = await asyncio.create_subprocess_shell(
        command, cwd=folder, env=environ, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await asyncio.wait_for(process.communicate(), WAIT_LIMIT)
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


NEEDS_CONTAINERS = "kubectl -n volcano-system exec "
"""Played pods run nothing: tests/e2e/test_shadow.py and tests/real/test_shadow_volcano.py have these commands."""


def copied(folder: Path) -> Path:
    """A checkout of one's own with what the commands use, since one of them changes a file of it."""
    for name in ("deploy", "vcd/embedded/crds"):
        shutil.copytree(ROOT / name, folder / name)
    return folder


def images(cluster: RealCluster, name: str) -> set[str]:
    """The images of a Deployment."""
    found = [each for each in cluster.store.list(DEPLOYMENTS, NAMESPACE) if each["metadata"]["name"] == name]
    return {each["image"] for one in found for each in one["spec"]["template"]["spec"]["containers"]}


async def test_vcd_takes_vc_schedulers_place_and_gives_it_back(volcano: ControlPlane, tmp_path: Path) -> None:
    checkout = copied(tmp_path / "checkout")
    upgrade, patch, wait, apply = commands(section("deploy/README.md", "### In vc-scheduler's place"))
    assert upgrade.startswith("helm upgrade volcano volcano-sh/volcano ")  # of a repository that is not here
    make, named, check, plan, *pages = commands(section("docs/howto/migrate.md", "## Steps"))
    assert make.startswith("make image ")  # no image can be built here
    shadow = [command for command in pages[: pages.index(apply)] if not command.startswith(NEEDS_CONTAINERS)]
    _, status, *back = pages[pages.index(apply) :]
    async with VolcanoCluster(tmp_path) as cluster:
        cluster.add_nodes(1, 64)
        DefaultScheduler(cluster)
        (theirs,) = (each for each in chart() if (each["kind"], each["metadata"]["name"]) == ("Deployment", THEIRS))
        volcano.api.apply(theirs)
        await until(lambda: replicas(cluster, THEIRS) == 1, what="vc-scheduler runs")

        for command in (named, check, plan):
            await run(volcano, command, checkout)
        begin, beside, end, *stop = shadow
        assert stop == [upgrade, patch, wait]
        await run(volcano, begin, checkout)
        assert "successfully rolled out" in await run(volcano, beside, checkout)
        assert (replicas(cluster, "vcd-scheduler"), replicas(cluster, THEIRS)) == (1, 1)
        await run(volcano, end, checkout)
        await until(lambda: not images(cluster, "vcd-scheduler"), what="the shadow is gone")

        for command in (patch, wait):
            await run(volcano, command, checkout)
        await until(lambda: replicas(cluster, THEIRS) == 0, what="vc-scheduler does not run")
        await run(volcano, apply, checkout)
        assert "successfully rolled out" in await run(volcano, status, checkout)
        assert replicas(cluster, "vcd-scheduler") == 2
        assert images(cluster, "vcd-scheduler") == {named.partition("vcd=")[2].rstrip(")")}

        for command in back:
            await run(volcano, command, checkout)
        await until(lambda: replicas(cluster, THEIRS) == 1, what="vc-scheduler runs again")
        assert "volcano-scheduler-configmap" in {
            each["metadata"]["name"] for each in cluster.store.list("configmaps", NAMESPACE)
        }
        volcano.api.delete(DEPLOYMENTS, NAMESPACE, THEIRS)


THEIRS = "volcano-scheduler"
