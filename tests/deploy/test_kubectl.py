"""kubectl and kustomize render deploy/ to what the other tests checked, also in a namespace of a user's own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.kustomize import Key, Manifest, key, render
from tests.deploy.programs import go_tool, options_in
from tests.deploy.rbac import Grant, allows, grants
from tests.deploy.test_manifests import BASE, DEPLOY, NAMESPACE, REPLACE, SHADOW, STANDALONE, names, overlay_of
from tests.deploy.test_ports import INGRESS
from tests.waiting import WAIT_LIMIT

pytestmark = pytest.mark.external


@pytest.fixture(scope="module")
def kubectl() -> str:
    """The kubectl on PATH; a machine without one fails here."""
    path = shutil.which("kubectl")
    assert path, "kubectl is not on PATH: make external-tools"
    return path


@pytest.fixture(scope="module")
def kustomize() -> str:
    """kustomize itself, since a kubectl before 1.21 knows neither components nor folders as resources."""
    return go_tool("kustomize")


def run(*command: str) -> str:
    """The standard output of a command that must end well and say nothing on standard error."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=WAIT_LIMIT)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def kustomized(kubectl: str, folder: Path) -> dict[Key, Manifest]:
    return manifests(run(kubectl, "kustomize", str(folder)))


def built(kustomize: str, folder: Path) -> dict[Key, Manifest]:
    return manifests(run(kustomize, "build", str(folder)))


def manifests(text: str) -> dict[Key, Manifest]:
    return {key(manifest): manifest for manifest in yaml.safe_load_all(text)}


def test_the_base_renders(kubectl: str) -> None:
    assert kustomized(kubectl, BASE) == render(BASE)


@pytest.mark.parametrize("folder", [BASE, REPLACE, STANDALONE, SHADOW], ids=names)
def test_an_overlay_renders(kustomize: str, folder: Path) -> None:
    assert built(kustomize, folder) == render(folder)


def test_the_page_behind_an_ingress_renders(kustomize: str) -> None:
    assert built(kustomize, INGRESS) == render(INGRESS)


@pytest.mark.parametrize(
    "component",
    [
        *("log-on-claims", "metrics-for-token-holders", "network-policy", "one-log", "page-for-token-holders"),
        *("servicemonitor", "statefulset"),
    ],
)
def test_a_component_changes_the_base(kustomize: str, component: str, tmp_path: Path) -> None:
    overlay = overlay_of(tmp_path, component)
    assert built(kustomize, overlay) == render(overlay)


COMPONENTS = (
    "log-on-claims",
    "servicemonitor",
    "metrics-for-token-holders",
    "network-policy",
    "page-for-token-holders",
)


def moved(kustomize: str, folder: Path, **fields: Any) -> dict[Key, Manifest]:
    """The standalone overlay with components, in a namespace of one's own."""
    return built(kustomize, overlay_of(folder, *COMPONENTS, base="overlays/standalone", namespace="batch", **fields))


def test_the_namespace_of_an_overlay_moves_everything(kustomize: str, tmp_path: Path) -> None:
    found = moved(kustomize, tmp_path)
    assert {namespace for _, namespace, _ in found} == {"", "batch"}
    assert [name for kind, _, name in found if kind == "Namespace"] == ["batch"]
    crds = {"CustomResourceDefinition"}
    assert NAMESPACE not in json.dumps([manifest for manifest in found.values() if manifest["kind"] not in crds])


def test_the_namespace_of_an_overlay_moves_the_lease(kustomize: str, tmp_path: Path) -> None:
    found = moved(kustomize, tmp_path)
    lease = options_in(found, "batch").lease_namespace
    granted = grants(found.values(), "vcd-scheduler", "batch")
    assert lease == "batch"
    assert allows(granted, Grant("create", "coordination.k8s.io", "leases", lease, ""))
    assert allows(granted, Grant("update", "coordination.k8s.io", "leases", lease, "volcano"))


def test_the_vgpu_plugins_config_map_stays_readable_where_it_is(kustomize: str, tmp_path: Path) -> None:
    transformer = os.path.relpath(DEPLOY / "transformers" / "vgpu-in-kube-system", tmp_path.resolve())
    found = moved(kustomize, tmp_path, transformers=[transformer])
    granted = grants(found.values(), "vcd-scheduler", "batch")
    base = grants(render(BASE).values(), "vcd-scheduler", NAMESPACE)
    assert {grant for grant in granted if grant.namespace == "kube-system"} == {
        grant for grant in base if grant.namespace == "kube-system"
    }
    assert not grants(found.values(), "vcd-scheduler", NAMESPACE)


def test_in_vc_schedulers_place_the_lease_is_vc_schedulers(kustomize: str) -> None:
    options = options_in(built(kustomize, REPLACE), NAMESPACE)
    assert (options.lease_namespace, options.lease_name) == ("volcano-system", "volcano")
