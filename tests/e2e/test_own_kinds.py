"""Kinds that plugins bring: watched, logged, decided on, and permitted, through the daemon and over HTTP."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.cluster import GROUPS, Cluster, Daemon, Obj, group, node, pod, until
from vcd.daemon.persistence.state_writer import restore
from vcd.embedded.resource_types import CRDS
from vcd.model import events as ev
from vcd.scheduling.framework import registry
from vcd.timetravel.log_operations import verify

CONF = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: gang
  - name: predicates
  - name: racks
    arguments:
      racks.notes: closures
"""
MODULE = """
from vcd.model.kinds import Kind
from vcd.model.objects import Object, Projected
from vcd.model.reasons import Cause, ReasonCode
from vcd.scheduling.framework.arguments import Argument
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.session.object_problems import Problem
from vcd.scheduling.search.scalar import ScalarPredicate


class RackSpec(Projected, frozen=True):
    closed: bool = False


class Rack(Object, frozen=True):
    spec: RackSpec = RackSpec()


class Notes(Object, frozen=True):
    data: dict[str, str] = {}


RACK = Kind("Rack", "example.com", "v1", "racks", False, Rack)
NOTES = Kind(
    "RackNotes", "", "v1", "configmaps", True, Notes, namespace="ops", object="<racks.notes>", manifest="ConfigMap"
)


CLOSED = ReasonCode("rack-closed", Cause.PLUGIN, "node(s) in a closed rack")


class OpenRack(ScalarPredicate):
    name = "open-rack"
    reason = CLOSED()

    def __init__(self, session, closed):
        super().__init__(session)
        self.closed = closed

    def passes(self, task, node):
        return node.labels.get("example.com/rack") not in self.closed


class RacksPlugin(Plugin):
    name = "racks"
    kinds = (RACK, NOTES)
    arguments = (Argument("racks.notes", "str", "notes", "The ConfigMap in ops that closes racks, too."),)

    def open(self, session):
        self.session = session
        self.racks = session.objects("Rack", Rack)
        notes = session.objects("RackNotes", Notes)
        self.closed = {name for name, rack in self.racks.items() if rack.spec.closed}
        self.closed.update(name for each in notes.values() for name, why in each.data.items() if why)

    def predicates(self):
        return [OpenRack(self.session, self.closed)]

    def problems(self):
        return [Problem("Rack", name, "closed for good?") for name, rack in self.racks.items() if rack.spec.closed]
"""
KNOWN = (registry.plugins, registry.actions, registry.distributions)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """A distribution with the plugin, for this process and those that it starts; undone, it is installed no more."""
    folder = tmp_path / "site"
    info = folder / "racks-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: racks\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[vcd.plugins]\nracks = racks_plugin:RacksPlugin\n")
    (folder / "racks_plugin.py").write_text(MODULE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")])))
        for each in KNOWN:
            each.cache_clear()
        yield patch
    for each in KNOWN:
        each.cache_clear()


def rack_definition() -> Obj:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "racks", "kind": "Rack", "singular": "rack", "listKind": "RackList"}
    spec = {"group": "example.com", "scope": "Cluster", "names": names, "versions": [version]}
    return {"metadata": {"name": "racks.example.com"}, "spec": spec}


def in_rack(name: str, rack: str) -> Obj:
    made = node(name, 4)
    made["metadata"]["labels"]["example.com/rack"] = rack
    return made


def notes(namespace: str, name: str, **data: str) -> Obj:
    return {"metadata": {"name": name, "namespace": namespace}, "data": data}


def nodes_of(cluster: Cluster, *keys: str) -> set[str]:
    return {bind.node for bind in cluster.binds if bind.key in keys}


def seen(daemon: Daemon, kind: str) -> list[str]:
    """The objects of a kind of which the log has a payload."""
    puts = [event for event in daemon.events("put") if isinstance(event, ev.ObjectPut) and event.payload is not None]
    return [event.key for event in puts if event.kind == kind]


async def test_a_plugin_from_elsewhere_schedules_by_kinds_of_its_own(
    tmp_path: Path, installed: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "scheduler.conf"
    file.write_text(CONF)
    async with Cluster(tmp_path) as cluster:
        for verb in ("list", "watch"):
            cluster.may(verb, "example.com", "racks")
            cluster.may(verb, "", "configmaps", namespace="ops", name="closures")
        cluster.store.create(CRDS, rack_definition())
        cluster.store.create("namespaces", {"metadata": {"name": "ops"}})
        for name in ("a", "b"):
            cluster.store.create("nodes", in_rack(f"node-{name}", f"rack-{name}"))
        cluster.store.create("racks.example.com", {"metadata": {"name": "rack-a"}, "spec": {"closed": True}})
        cluster.store.create("configmaps", notes("ops", "another", **{"rack-b": "of no concern"}))
        daemon = await cluster.started("a", f"--scheduler-conf={file}")
        first = cluster.submit("first", 4)
        await cluster.until_bound(first)
        assert nodes_of(cluster, *first) == {"node-b"}

        second = cluster.submit("second", 2)
        cluster.store.patch("racks.example.com", None, "rack-a", {"spec": {"closed": False}})
        await cluster.until_bound(second)
        assert nodes_of(cluster, *second) == {"node-a"}

        cluster.store.create("configmaps", notes("ops", "closures", **{"rack-a": "repair"}))
        await until(lambda: seen(daemon, "RackNotes"), what="the notes are in the log")
        third = cluster.submit("third", 1)
        cluster.store.delete("configmaps", "ops", "closures")
        await cluster.until_bound(third)
        assert nodes_of(cluster, *third) == {"node-a"}
        assert set(seen(daemon, "Rack")) == {"rack-a"}
        assert set(seen(daemon, "RackNotes")) == {"ops/closures"}
        told = [each["involvedObject"] for each in cluster.store.list("events") if each["reason"] == "Misconfigured"]
        assert [(each["apiVersion"], each["kind"], each["name"]) for each in told] == [
            ("example.com/v1", "Rack", "rack-a")
        ]
        daemon.signal(15)
        assert await daemon.ended() == 0

    with_plugin = restore(daemon.log).dump()
    installed.undo()
    for each in KNOWN:
        each.cache_clear()
    assert "racks" not in registry.plugins()
    assert verify(daemon.log).problems == []
    assert restore(daemon.log).dump() == with_plugin


CARDS = "volcano.sh/node-vgpu-register"
IDS = "volcano.sh/vgpu-ids-new"
SHARING = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: gang
  - name: predicates
  - name: deviceshare
    arguments:
      deviceshare.VGPUEnable: true
"""
GEOMETRY = """
nvidia:
  resourceMemoryName: example.com/blocks
  knownMigGeometries:
  - models: [A100]
    allowedGeometries:
    - group: whole
      geometries:
      - {name: 2g.10gb, memory: 10240, count: 2}
"""


@pytest.mark.plugin("deviceshare")
async def test_the_device_plugins_config_map_is_read_and_no_other(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.conf"
    file.write_text(SHARING)
    async with Cluster(tmp_path) as cluster:
        files = {"device-config.yaml": GEOMETRY, "notes.txt": "of no concern"}
        cluster.store.create("configmaps", notes("kube-system", "volcano-vgpu-device-config", **files))
        cluster.store.create("configmaps", notes("kube-system", "another", key="of no concern"))
        made = node("node-a", 8)
        made["metadata"]["annotations"] = {CARDS: "card,10,20480,NVIDIA-A100,true,mig:"}
        shares = {"volcano.sh/vgpu-number": "10", "example.com/blocks": "20480", "volcano.sh/vgpu-cores": "100"}
        for part in ("allocatable", "capacity"):
            made["status"][part] = {**made["status"][part], **shares}
        cluster.store.create("nodes", made)
        daemon = await cluster.started("a", f"--scheduler-conf={file}")
        cluster.store.create(GROUPS, group("train", 2))
        for number in range(2):
            asking = pod(f"train-{number}", "train")
            (container,) = asking["spec"]["containers"]
            container["resources"]["limits"] = {"example.com/blocks": "6000"}
            container["resources"]["requests"] |= {"example.com/blocks": "6000"}
            cluster.store.create("pods", asking)
        await cluster.until_bound(["default/train-0", "default/train-1"])
        ids = [each["metadata"]["annotations"][IDS] for each in cluster.store.list("pods")]
        assert sorted(ids) == [f"card[whole-{number}],NVIDIA,6000,0:" for number in range(2)]
        assert set(seen(daemon, "ConfigMap")) == {"kube-system/volcano-vgpu-device-config"}
        payloads = [event.payload for event in daemon.events("put") if isinstance(event, ev.ObjectPut)]
        assert not [payload for payload in payloads if payload and b"of no concern" in payload]


SPREADING = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: gang
  - name: predicates
  - name: nodeorder
    arguments:
      leastrequested.weight: 0
      balancedresource.weight: 0
"""


async def test_pods_of_services_and_sets_are_spread(tmp_path: Path) -> None:
    """Whose pods they are is read from the API server; of a set nothing enters the log but its selector."""
    file = tmp_path / "scheduler.conf"
    file.write_text(SPREADING)
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(3, 16)
        selected = {"selector": {"app": "web"}, "ports": [{"port": 80}]}
        cluster.store.create("services", {"metadata": {"name": "web", "namespace": "default"}, "spec": selected})
        template = {"metadata": {"labels": {"set": "a"}}, "spec": {"containers": [{"name": "secret", "image": "x"}]}}
        spec = {"selector": {"matchLabels": {"set": "a"}}, "serviceName": "none", "template": template}
        metadata = {"name": "a", "namespace": "default", "annotations": {"of": "no concern"}}
        made = cluster.store.create("statefulsets.apps", {"metadata": metadata, "spec": spec})
        owner = {"kind": "StatefulSet", "apiVersion": "apps/v1", "name": "a", "controller": True}
        owner["uid"] = made["metadata"]["uid"]
        daemon = await cluster.started("a", f"--scheduler-conf={file}")
        for name, labels, owners in (("web", {"app": "web"}, []), ("set", {"set": "a"}, [owner]), ("loose", {}, [])):
            cluster.store.create(GROUPS, group(name, 3))
            keys = [f"default/{name}-{number}" for number in range(3)]
            for number in range(3):
                asking = pod(f"{name}-{number}", name)
                asking["metadata"] |= {"labels": labels, "ownerReferences": owners}
                cluster.store.create("pods", asking)
            await cluster.until_bound(keys)
            assert len(nodes_of(cluster, *keys)) == (1 if name == "loose" else 3)
        assert set(seen(daemon, "StatefulSet")) == {"default/a"}
        payloads = [event.payload for event in daemon.events("put") if isinstance(event, ev.ObjectPut)]
        assert not [payload for payload in payloads if payload and (b"secret" in payload or b"no concern" in payload)]
