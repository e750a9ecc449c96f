"""deploy/ at a real API server: it takes every object, and its roles are what the daemon needs, no more and no less."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.deploy.programs import go_tool
from tests.deploy.rbac import Grant
from tests.deploy.test_manifests import overlay_of
from tests.e2e.cluster import LEASES, granted, node, until
from tests.e2e.test_rbac import UNUSED, _add_gated, _add_volumes, _events, _wrote, used
from tests.real.api import Refused
from tests.real.cluster import RealCluster
from tests.real.controlplane import NAMESPACE, ControlPlane
from tests.waiting import WAIT_LIMIT

pytestmark = pytest.mark.real

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "chart" / "vcd"
QUIET = {
    Grant("patch", "", "pods", NAMESPACE, ""): "the label of its own pod",
    Grant("get", "", "pods", "", ""): "what became of a bind whose answer was lost",
    Grant("create", "scheduling.volcano.sh", "queues", "", ""): "the first queues, which the test made",
}
"""Rights that it need not make use of here, beside those that the configuration has no use for."""


async def exercise(cluster: RealCluster) -> None:
    """Have one daemon do all that a daemon does while the API server answers."""
    cluster.add_nodes(1, 8)
    await cluster.started("a")
    await cluster.until_bound(cluster.submit("fits", 4))
    waiting = cluster.submit("waits", 2, nodeSelector={"kubernetes.io/hostname": "node-99"})
    await until(lambda: _events(cluster, "waits"), what="an Event tells why it waits")
    for cordoned in (True, False):  # another reason, and then the first one again: its Event is counted up
        seen = len(_events(cluster, "waits"))
        cluster.store.patch("nodes", None, "node-00", {"spec": {"unschedulable": cordoned}})
        await until(lambda seen=seen: len(_events(cluster, "waits")) > seen or _wrote(cluster, "patch", "events", ""))
    cluster.store.create("nodes", node("node-99", 4))
    await cluster.until_bound(waiting)
    await cluster.until_bound([_add_gated(cluster)])
    _add_volumes(cluster)
    volumes = [{"name": "chosen", "persistentVolumeClaim": {"claimName": "chosen"}}]
    await cluster.until_bound(cluster.submit("stores", 1, volumes=volumes))
    cluster.submit("provisions", 1, volumes=[{"name": "made", "persistentVolumeClaim": {"claimName": "made"}}])
    await until(lambda: _wrote(cluster, "patch", "persistentvolumeclaims", ""), what="a claim is told its pod's node")
    await until(lambda: _wrote(cluster, "update", LEASES, ""), what="the Lease is renewed")
    await until(lambda: _wrote(cluster, "patch", "queues.scheduling.volcano.sh", "status"))


async def test_every_right_is_used_or_its_use_is_named_and_none_is_missing(plane: ControlPlane, tmp_path: Path) -> None:
    async with RealCluster(tmp_path) as cluster:
        await exercise(cluster)
        assert granted() - used(cluster.made) - set(QUIET) == set(UNUSED) - set(QUIET)
        assert not cluster.refused


async def test_what_is_not_granted_is_refused_and_seen(plane: ControlPlane, tmp_path: Path) -> None:
    """The check of every test here: the audit log tells of a daemon's call that its roles do not allow."""
    cluster = RealCluster(tmp_path)
    context = plane.api.with_token(cluster.token("a"))
    with pytest.raises(Refused, match="403"):
        context.request("GET", f"/api/v1/namespaces/{NAMESPACE}/secrets")
    context.close()
    await until(lambda: cluster.refused, what="the audit log tells of it")
    assert "secrets" in cluster.refused[0]


def built(folder: Path) -> str:
    """What kustomize makes of a folder."""
    command = [go_tool("kustomize"), "build", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=WAIT_LIMIT).stdout


def templated(*words: str) -> str:
    """What helm makes of the chart."""
    command = [go_tool("helm"), "template", "vcd", str(CHART), f"--namespace={NAMESPACE}", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=WAIT_LIMIT).stdout


OF_OPERATORS = {"servicemonitor"}
"""Components of kinds that an operator brings, which is not here."""
ALL = sorted({folder.name for folder in (ROOT / "deploy" / "components").iterdir()} - OF_OPERATORS)
COMPONENTS = ((), *((name,) for name in ALL), ("page-for-token-holders", "one-log", "network-policy", "statefulset"))
OVERLAYS = sorted(folder.name for folder in (ROOT / "deploy" / "overlays").iterdir())
RENDERINGS: dict[str, Callable[[Path], str]] = {
    **{
        f"base, {' and '.join(names) or 'alone'}": (lambda folder, names=names: built(overlay_of(folder, *names)))
        for names in COMPONENTS
    },
    **{f"overlay {name}": (lambda folder, name=name: built(ROOT / "deploy" / "overlays" / name)) for name in OVERLAYS},
    "chart": lambda folder: templated(),
    "chart, standalone": lambda folder: templated("-f", str(CHART / "examples" / "standalone.yaml")),
    "chart, in vc-scheduler's place": (
        lambda folder: templated("-f", str(CHART / "examples" / "replace-vc-scheduler.yaml"))
    ),
    "chart, as a shadow": lambda folder: templated("-f", str(CHART / "examples" / "shadow.yaml")),
    "chart, all of it": lambda folder: templated(
        "--set=eventLog.shared=true,page.enabled=true,networkPolicy.enabled=true,defaultQueue.create=true"
    ),
}


@pytest.mark.parametrize("rendering", RENDERINGS.values(), ids=RENDERINGS)
def test_the_api_server_takes_every_object(
    plane: ControlPlane, tmp_path: Path, rendering: Callable[[Path], str]
) -> None:
    """By ``kubectl apply --dry-run=server``."""
    found = [each for each in yaml.safe_load_all(rendering(tmp_path)) if each]
    command = ["kubectl", f"--kubeconfig={plane.kubeconfig('admin')}", "apply", "--dry-run=server", "-f", "-"]
    done = subprocess.run(
        command, input=yaml.safe_dump_all(found), capture_output=True, text=True, check=False, timeout=WAIT_LIMIT
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(found)
