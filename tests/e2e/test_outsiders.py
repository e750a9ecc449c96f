"""Plugins of others, each one file that nothing else knows: scheduled by, explained, shown, permitted and replayed."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from click.testing import CliRunner

from tests.deploy.rbac import grants
from tests.e2e.cluster import GROUPS, NAMESPACE, QUEUES, Cluster, Daemon, group, pod, until
from vcd.cli import main
from vcd.embedded.resource_types import CRDS
from vcd.model import events as ev
from vcd.scheduling.framework import registry
from vcd.scheduling.framework.declared_reasons import all_told

HERE = Path(__file__).parent / "outsiders"
KNOWN = (registry.plugins, registry.actions, registry.distributions)
CONF = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: gang
  - name: predicates
  - name: {name}
"""
Install = Callable[[str, str], Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs a distribution with one plugin, for this process and those that it starts; its configuration file."""

    def installed(name: str, kind: str) -> Path:
        folder = tmp_path / "site"
        info = folder / f"{name}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[vcd.plugins]\n{name} = my_{name}:{kind}\n")
        shutil.copy(HERE / f"{name}.py", folder / f"my_{name}.py")
        monkeypatch.syspath_prepend(folder)
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")])))
        for each in KNOWN:
            each.cache_clear()
        file = tmp_path / "scheduler.conf"
        file.write_text(CONF.format(name=name))
        return file

    yield installed
    for each in KNOWN:
        each.cache_clear()


def vcd(*arguments: object) -> str:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def explained(daemon: Daemon, *arguments: object) -> Any:
    return json.loads(vcd("explain", *arguments, "--event-log", daemon.log, "-o", "json"))


def submit(
    cluster: Cluster, name: str, size: int = 1, queue: str = "default", licence: str = "", **said: str
) -> list[str]:
    """A gang whose group, and pods, have annotations; its pods' keys."""
    made = group(name, size, queue=queue)
    made["metadata"]["annotations"] = {f"example.com/{key}": text for key, text in said.items()}
    cluster.store.create(GROUPS, made)
    for number in range(size):
        one = pod(f"{name}-{number}", name)
        if licence:
            one["metadata"]["annotations"]["example.com/licence"] = licence
        cluster.store.create("pods", one)
    return [f"default/{name}-{number}" for number in range(size)]


def waiting(daemon: Daemon) -> dict[str, set[str]]:
    """Why groups wait, as the sessions in the log said it first."""
    found: dict[str, set[str]] = {}
    for record in daemon.sessions():
        for reason in all_told(ev.decode_plan(record.plan).waiting):
            found.setdefault(reason.group, set()).add(reason.reason)
    return found


async def test_one_that_orders_says_what_its_keys_mean(tmp_path: Path, install: Install) -> None:
    file = install("deadlines", "DeadlinesPlugin")
    async with Cluster(tmp_path) as cluster:
        daemon = await cluster.started("a", f"--scheduler-conf={file}")
        submit(cluster, "late", deadline="40")
        submit(cluster, "early", deadline="20")
        submit(cluster, "urgent", urgent="yes")
        await until(lambda: len(waiting(daemon)) == 3, what="all three wait")
        cluster.add_nodes(1, 1)
        await cluster.until_bound(["default/urgent-0"])

        first = min(record.session for record in daemon.sessions() if len(ev.decode_plan(record.plan).statements))
        jobs = explained(daemon, "order", "--session", first)["jobs"]["default"]
        values = [{factor["plugin"]: factor["values"] for factor in one["factors"]} for one in jobs]
        assert [(one["key"], said["deadlines"]) for one, said in zip(jobs, values, strict=True)] == [
            ("default/urgent", {"urgent": "yes", "deadline": "none"}),
            ("default/early", {"urgent": "no", "deadline": "minute 20"}),
            ("default/late", {"urgent": "no", "deadline": "minute 40"}),
        ]
        assert [one.get("before_next") for one in jobs] == [
            {"words": "is urgent (yes against no)", "plugin": "deadlines"},
            {"words": "earlier deadline (minute 20 against minute 40)", "plugin": "deadlines"},
            None,
        ]


async def test_one_with_a_quota_says_which_limit_is_in_the_way_and_what_would_do(
    tmp_path: Path, install: Install
) -> None:
    file = install("licences", "LicencesPlugin")
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(1, 16)
        quota = {"example.com/licence.quota": '{"solver": 3}'}
        cluster.store.create(QUEUES, {"metadata": {"name": "research", "annotations": quota}, "spec": {"weight": 1}})
        daemon = await cluster.started("a", f"--scheduler-conf={file}")
        await cluster.until_bound(submit(cluster, "first", 2, "research", "solver"))
        second = submit(cluster, "second", 2, "research", "solver")
        await until(
            lambda: "queue has no licence left" in waiting(daemon).get("default/second", ()),
            what="the second job waits",
        )

        told = explained(daemon, "job", "second", "--change")
        (limit,) = told["obstacles"]["limits"]
        held_by = [{"job": "default/first", "queue": "research", "priority": 0, "pods": 2, "amounts": {"solver": "2"}}]
        assert limit == {
            "gate": "queue", "plugin": "licences", "queue": "research", "resource": "solver", "bound": "licence quota",
            "asks": "1", "taken": "3", "limit": "3", "own": "1", "held_by": held_by,
        }  # fmt: skip
        text = vcd("explain", "job", "second", "--change", "--all", "--event-log", daemon.log)
        assert "queue research may use 3 solver: 2 in use, and it requests 2" in " ".join(text.split())
        assert "queue research's licence quota of solver 3 -> 4: all 2 pods are bound" in text

        page = (await daemon.metrics())['example_licences_used{licence="solver",queue_name="research"}']
        assert page == 2
        async with aiohttp.ClientSession() as session, session.get(f"{daemon.metrics_url}/metrics") as answer:
            assert "# HELP example_licences_used Licences of a program that a queue's pods hold." in await answer.text()

        more = {"example.com/licence.quota": '{"solver": 4}'}
        cluster.store.patch(QUEUES, None, "research", {"metadata": {"annotations": more}})
        await cluster.until_bound(second)


async def test_one_with_a_kind_of_its_own_is_allowed_to_read_it_and_decides_by_it(
    tmp_path: Path, install: Install
) -> None:
    """The replicas are allowed what `vcd conf rbac` prints and no more; what they decided is replayed at the end."""
    file = install("freezes", "FreezesPlugin")
    names = {"plural": "freezes", "kind": "Freeze", "singular": "freeze", "listKind": "FreezeList"}
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    spec = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]}
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(1)
        cluster.store.create(CRDS, {"metadata": {"name": "freezes.example.com"}, "spec": spec})
        for grant in grants(yaml.safe_load_all(vcd("conf", "rbac", file)), "vcd-scheduler", NAMESPACE):
            cluster.may(grant.verb, grant.group, grant.resource, namespace=grant.namespace, name=grant.name)
        metadata = {"name": "release", "namespace": "default"}
        cluster.store.create("freezes.example.com", {"metadata": metadata, "spec": {"because": "a release"}})
        daemon = await cluster.started("a", f"--scheduler-conf={file}")
        keys = submit(cluster, "train")
        await until(lambda: "namespace is frozen" in waiting(daemon).get("default/train", ()), what="the job waits")
        assert "namespace is frozen (because a release)" in vcd(
            "explain", "job", "train", "--all", "--event-log", daemon.log
        )
        cluster.store.delete("freezes.example.com", "default", "release")
        await cluster.until_bound(keys)
        puts = [event for event in daemon.events("put") if isinstance(event, ev.ObjectPut)]
        assert {event.key for event in puts if event.kind == "Freeze"} == {"default/release"}
