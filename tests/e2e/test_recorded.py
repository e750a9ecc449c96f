"""What a daemon's own log lets come again where its controller makes the groups."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.e2e.cluster import Cluster, until
from tests.e2e.standalone import FLAG, REPLICASETS, alone, bare, group_named, pod_set
from tests.timetravel.plays import CONF
from vcd.cli import main
from vcd.eventlog import LogReader
from vcd.model.objects import Pod
from vcd.timetravel.history import object_in


def shown_bound(log: Path, key: str) -> int:
    """How many pods under a key the log shows on a node."""
    with LogReader(log) as reader:
        pods = [object_in(logged.event) for logged in reader.object_history("Pod", key)]
    return len({pod.metadata.uid for pod in pods if isinstance(pod, Pod) and pod.spec.node_name})


async def came(cluster: Cluster) -> None:
    """A bare pod, twice under one name, and a ReplicaSet that is scaled down and up."""
    owner = pod_set(cluster, REPLICASETS, "web", 3)
    pods = [bare("p"), *(bare(f"web-{name}", owner=owner) for name in "abc")]
    for pod in pods:
        cluster.store.create("pods", pod)
    await cluster.until_bound(["default/p", *(f"default/web-{name}" for name in "abc")])
    first = group_named(cluster, "default/p")
    for name in ("p", "web-c"):
        cluster.store.delete("pods", "default", name)
    cluster.store.create("pods", bare("p"))
    cluster.store.create("pods", bare("web-d", owner=owner))
    await cluster.until_bound(["default/p", "default/web-d"])
    await until(lambda: group_named(cluster, "default/p") not in ("", first), what="it has a group of its own")


async def test_what_its_controller_made_groups_for_starts_again(tmp_path: Path) -> None:
    async with alone(tmp_path) as cluster:
        daemon = await cluster.started("a", FLAG)
        await came(cluster)
        both = {"default/p": 2, "default/web-d": 1}
        await until(lambda: all(shown_bound(daemon.log, key) == many for key, many in both.items()), what="it is shown")
        log = daemon.log
    (tmp_path / "new.conf").write_text(CONF)
    words = ["gate", log, "--new", tmp_path / "new.conf", "--seeds", 1, "--jobs", 1, "--fail-if", "started < +0%"]
    result = await asyncio.to_thread(CliRunner().invoke, main, [*map(str, words), "-o", "json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    figures = {figure["name"]: figure for figure in found["figures"]}
    assert found["jobs"] == 3  # two bare pods and a set
    assert [figures[name]["old"]["median"] for name in ("started", "never_started")] == [3, 0]
    assert figures["wait.max"]["old"]["median"] == pytest.approx(0, abs=2)
    assert (found["fidelity"]["recorded"], found["fidelity"]["baseline"]) == (3, 3)
