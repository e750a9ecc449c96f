"""``kubectl vcd`` as kubectl itself runs it: a real kubectl from PATH, which finds the plugin there."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cluster import ROOT
from tests.e2e.reading import Asked

pytestmark = pytest.mark.external


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    """A folder with the executable that installing vcd makes of its entry point."""
    folder = tmp_path / "bin"
    folder.mkdir()
    file = folder / "kubectl-vcd"
    file.write_text(f"#!/bin/sh\nexec {sys.executable} -c 'from vcd.cli.kubectl import main; main()' \"$@\"\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return folder


async def kubectl(cluster: Asked, plugin: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment: dict[str, Any] = {
        **os.environ,
        "PATH": f"{plugin}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "KUBECONFIG": str(cluster.kubeconfig),
        "XDG_CACHE_HOME": str(cluster.cache),
    }
    run = subprocess.run
    return await asyncio.to_thread(
        run, ["kubectl", *words], env=environment, capture_output=True, text=True, timeout=60
    )


async def test_kubectl_finds_the_plugin_and_hands_its_options_on(tmp_path: Path, plugin: Path) -> None:
    async with Asked(tmp_path) as cluster:
        cluster.add_nodes(2)
        leader = await cluster.started("a")
        await cluster.until_bound(cluster.submit("gang", 4))
        listed = await kubectl(cluster, plugin, "plugin", "list")
        assert str(plugin / "kubectl-vcd") in listed.stdout
        for words in (("explain", "job", "default/gang"), ("explain", "job", "gang", "-n", "default")):
            asked = await kubectl(cluster, plugin, "vcd", *words, "--context", "prod", "-o", "json")
            assert asked.returncode == 0, asked.stderr
            assert json.loads(asked.stdout)["key"] == "default/gang"
            (holder,) = leader.identities()
            assert asked.stderr.startswith(f"log of {holder} in prod, up to session ")
        asked = await kubectl(cluster, plugin, "vcd", "explain", "job", "none")
        assert asked.returncode == 2
        asked = await kubectl(cluster, plugin, "vcd", "top", "--once", "--context", "nowhere")
        assert (asked.returncode, "does not know these credentials" in asked.stderr) == (2, True)
