"""`kubectl kustomize` renders deploy/ to what the other tests checked."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.deploy.kustomize import Key, Manifest, key, render
from tests.deploy.test_manifests import BASE, REPLACE, STANDALONE, names, overlay_of

pytestmark = pytest.mark.external

# kubectl before 1.21 carries kustomize 2.0, which takes neither folders as resources nor components.
FIRST_WITH_OVERLAYS = (1, 21)


@pytest.fixture(scope="module")
def kubectl() -> str:
    """The kubectl on PATH; a machine without one fails here."""
    path = shutil.which("kubectl")
    assert path, "kubectl is not on PATH: make external-tools"
    return path


@pytest.fixture(scope="module")
def modern_kubectl(kubectl: str) -> str:
    """A kubectl that can render overlays."""
    shown = json.loads(run(kubectl, "version", "--client", "--output=json"))["clientVersion"]
    version = tuple(int(re.sub(r"\D", "", shown[part])) for part in ("major", "minor"))
    if version < FIRST_WITH_OVERLAYS:
        pytest.skip(f"kubectl {shown['gitVersion']} renders no overlays; the base is tested with it")
    return kubectl


def run(*command: str) -> str:
    """The standard output of a command that must end well and say nothing on standard error."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def kustomized(kubectl: str, folder: Path) -> dict[Key, Manifest]:
    return {key(manifest): manifest for manifest in yaml.safe_load_all(run(kubectl, "kustomize", str(folder)))}


def test_the_base_renders(kubectl: str) -> None:
    assert kustomized(kubectl, BASE) == render(BASE)


@pytest.mark.parametrize("folder", [REPLACE, STANDALONE], ids=names)
def test_an_overlay_renders(modern_kubectl: str, folder: Path) -> None:
    assert kustomized(modern_kubectl, folder) == render(folder)


@pytest.mark.parametrize("component", ["log-on-claims", "without-servicemonitor"])
def test_a_component_changes_the_base(modern_kubectl: str, component: str, tmp_path: Path) -> None:
    overlay = overlay_of(tmp_path, component)
    assert kustomized(modern_kubectl, overlay) == render(overlay)
