"""A real kubectl from PATH against the embedded server: every served kind, and the commands that people use."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.embedded.serving import pod
from tests.waiting import WAIT_LIMIT
from vcd.embedded.api_server import ApiServer
from vcd.embedded.store import Store

pytestmark = pytest.mark.external

Obj = dict[str, Any]
FULL_SINCE = 29
_CONTAINERS = {"containers": [{"name": "main", "image": "busybox", "ports": [{"containerPort": 80}]}]}
_TEMPLATE = {"metadata": {"labels": {"app": "all"}}, "spec": _CONTAINERS}
_SELECTOR = {"matchLabels": {"app": "all"}}
_WIDGETS = {
    "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
    "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}],
}  # fmt: skip
_RULES = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]

# (apiVersion, kind, the rest of the manifest, a merge patch that changes it)
KINDS: tuple[tuple[str, str, Obj, Obj], ...] = (
    ("v1", "Namespace", {}, {}),
    ("v1", "ConfigMap", {"data": {"a": "1"}}, {"data": {"a": "2"}}),
    ("v1", "Secret", {"stringData": {"a": "1"}}, {"stringData": {"a": "2"}}),
    ("v1", "ServiceAccount", {}, {}),
    ("v1", "Service", {"spec": {"ports": [{"port": 80}]}}, {"spec": {"selector": {"b": "c"}}}),
    ("v1", "Pod", {"spec": _CONTAINERS}, {"spec": {"activeDeadlineSeconds": 60}}),
    ("v1", "Node", {"status": {"capacity": {"cpu": "4"}}}, {"spec": {"unschedulable": True}}),
    ("v1", "ResourceQuota", {"spec": {"hard": {"cpu": "1"}}}, {"spec": {"hard": {"cpu": "2"}}}),
    ("v1", "LimitRange", {"spec": {"limits": [{"type": "Container", "max": {"cpu": "4"}}]}},
     {"spec": {"limits": [{"type": "Container", "max": {"cpu": "8"}}]}}),
    ("v1", "PersistentVolume", {"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
                                         "hostPath": {"path": "/data"}}}, {"spec": {"capacity": {"storage": "2Gi"}}}),
    ("v1", "PersistentVolumeClaim", {"spec": {"accessModes": ["ReadWriteOnce"],
                                              "resources": {"requests": {"storage": "1Gi"}}}}, {}),
    ("v1", "Event", {"involvedObject": {"kind": "Pod", "namespace": "default", "name": "all"}, "reason": "R"},
     {"count": 2}),
    ("events.k8s.io/v1", "Event", {"regarding": {"kind": "Pod", "namespace": "default", "name": "all"}, "reason": "R",
                                   "metadata": {"name": "all-grouped"}}, {"deprecatedCount": 2}),
    ("apps/v1", "Deployment", {"spec": {"selector": _SELECTOR, "template": _TEMPLATE}}, {"spec": {"replicas": 3}}),
    ("apps/v1", "ReplicaSet", {"spec": {"selector": _SELECTOR, "template": _TEMPLATE}}, {"spec": {"replicas": 3}}),
    ("coordination.k8s.io/v1", "Lease", {"spec": {"holderIdentity": "a"}}, {"spec": {"holderIdentity": "b"}}),
    ("policy/v1", "PodDisruptionBudget", {"spec": {"minAvailable": 1, "selector": _SELECTOR}},
     {"spec": {"minAvailable": 2}}),
    ("scheduling.k8s.io/v1", "PriorityClass", {"value": 5}, {"description": "changed"}),
    ("storage.k8s.io/v1", "StorageClass", {"provisioner": "x"}, {"allowVolumeExpansion": True}),
    ("storage.k8s.io/v1", "CSIDriver", {"spec": {"podInfoOnMount": False}}, {"spec": {"podInfoOnMount": True}}),
    ("storage.k8s.io/v1", "CSINode", {"spec": {"drivers": []}}, {"spec": {"drivers": [{"name": "d", "nodeID": "n1"}]}}),
    ("storage.k8s.io/v1", "CSIStorageCapacity", {"storageClassName": "all", "capacity": "1Gi"}, {"capacity": "2Gi"}),
    ("rbac.authorization.k8s.io/v1", "Role", {"rules": _RULES}, {"rules": []}),
    ("rbac.authorization.k8s.io/v1", "ClusterRole", {"rules": _RULES}, {"rules": []}),
    ("rbac.authorization.k8s.io/v1", "RoleBinding", {"roleRef": {
        "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "all"}}, {"subjects": [
            {"kind": "ServiceAccount", "name": "all", "namespace": "default"}]}),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", {"roleRef": {
        "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "all"}}, {"subjects": []}),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition", {"metadata": {"name": "widgets.example.com"},
                                                             "spec": _WIDGETS}, {}),
    ("scheduling.volcano.sh/v1beta1", "Queue", {"spec": {"weight": 1}}, {"spec": {"weight": 2}}),
    ("scheduling.volcano.sh/v1beta1", "PodGroup", {"spec": {"minMember": 1}}, {"spec": {"minMember": 2}}),
    ("batch.volcano.sh/v1alpha1", "Job", {"spec": {"minAvailable": 1, "tasks": [
        {"name": "t", "replicas": 1, "template": _TEMPLATE}]}}, {"spec": {"minAvailable": 2}}),
    ("batch.volcano.sh/v1alpha1", "CronJob", {"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"tasks": [
        {"name": "t", "replicas": 1, "template": _TEMPLATE}]}}}}, {"spec": {"suspend": True}}),
    ("bus.volcano.sh/v1alpha1", "Command", {"action": "AbortJob"}, {"message": "changed"}),
    ("nodeinfo.volcano.sh/v1alpha1", "Numatopology", {"spec": {}}, {"spec": {"policies": {"a": "b"}}}),
    ("topology.volcano.sh/v1alpha1", "HyperNode", {"spec": {"tier": 1, "members": [
        {"type": "Node", "selector": {"exactMatch": {"name": "n1"}}}]}}, {"spec": {"tier": 2}}),
)  # fmt: skip


class Kubectl:
    """Runs kubectl against the server; ``store`` is what the server serves."""

    def __init__(self, server: ApiServer, home: Path) -> None:
        self.store = server.store
        self._server = server
        self._home = home

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            "kubectl", "--server", self._server.url, *arguments,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            env={"PATH": os.environ["PATH"], "HOME": str(self._home)},
        )  # fmt: skip

    async def run(self, *arguments: str, stdin: str = "", fails: bool = False) -> str:
        """The output of a command; its error output when it is expected to fail."""
        process = await self.start(*arguments)
        out, err = await asyncio.wait_for(process.communicate(stdin.encode()), WAIT_LIMIT)
        assert (process.returncode != 0) == fails, f"{arguments}: {out.decode()}{err.decode()}"
        return (err if fails else out).decode()

    async def json(self, *arguments: str) -> Any:
        return json.loads(await self.run(*arguments, "-o", "json"))


@asynccontextmanager
async def cluster(home: Path, *, any_version: bool = False) -> AsyncIterator[Kubectl]:
    server = ApiServer(Store())
    await server.start("127.0.0.1", 0)
    try:
        kubectl = Kubectl(server, home)
        if not any_version:
            await in_full(kubectl)
        yield kubectl
    finally:
        await server.stop()


def manifests(tmp_path: Path, *, changed: bool = False) -> str:
    """A file with one object named "all" of every kind."""
    documents = []
    for version, kind, rest, change in KINDS:
        metadata = {"name": "all", "labels": {"all": "yes"}, **rest.get("metadata", {})}
        document = {"apiVersion": version, "kind": kind, **rest, "metadata": metadata}
        for key, value in change.items() if changed else ():
            document[key] = {**document.get(key, {}), **value} if isinstance(value, dict) else value
        documents.append(document)
    file = tmp_path / ("changed.yaml" if changed else "all.yaml")
    file.write_text(yaml.safe_dump_all(documents))
    return str(file)


async def in_full(kubectl: Kubectl) -> None:
    """Debian's kubectl 1.20 is held to getting, describing, patching and deleting; from 1.29 on everything counts."""
    minor = (await kubectl.json("version", "--client"))["clientVersion"]["minor"]
    if int(re.sub(r"\D", "", minor)) < FULL_SINCE:
        pytest.skip(f"kubectl 1.{minor} is older than 1.{FULL_SINCE}")


async def test_get_describe_patch_and_delete_a_pod_with_any_kubectl(tmp_path: Path) -> None:
    async with cluster(tmp_path, any_version=True) as kubectl:
        kubectl.store.create("pods", pod("a"))
        assert (await kubectl.run("get", "pods", "--no-headers")).split()[:3] == ["a", "0/1", "Pending"]
        assert "QoS Class:" in await kubectl.run("describe", "pod", "a")
        await kubectl.run("patch", "pod", "a", "-p", '{"metadata":{"labels":{"x":"y"}}}')
        assert kubectl.store.get("pods", "default", "a")["metadata"]["labels"]["x"] == "y"
        await kubectl.run("delete", "pod", "a")
        assert kubectl.store.list("pods") == []


async def test_api_resources_lists_every_kind(tmp_path: Path) -> None:
    async with cluster(tmp_path) as kubectl:
        listed = await kubectl.run("api-resources", "--no-headers")
        shown = {(line.split()[-3], line.split()[-1]) for line in listed.splitlines()}
        assert shown >= {(version, kind) for version, kind, _, _ in KINDS}


async def test_every_kind_is_created_shown_changed_and_deleted(tmp_path: Path) -> None:
    async with cluster(tmp_path) as kubectl:
        file, changed = manifests(tmp_path), manifests(tmp_path, changed=True)
        assert (await kubectl.run("create", "-f", file)).count(" created") == len(KINDS)
        assert (await kubectl.run("get", "-f", file, "-o", "name")).count("\n") == len(KINDS)
        assert "all" in await kubectl.run("get", "-f", file, "-o", "wide")
        assert (await kubectl.run("describe", "-f", file)).count("\nName: ") >= len(KINDS) - 1
        assert (await kubectl.run("label", "-f", file, "step=1")).count(" labeled") == len(KINDS)
        await kubectl.run("patch", "-f", file, "--type=merge", "-p", '{"metadata":{"annotations":{"a":"b"}}}')
        await kubectl.run("apply", "-f", changed)
        assert kubectl.store.get("queues.scheduling.volcano.sh", None, "all")["spec"]["weight"] == 2
        assert (await kubectl.run("apply", "--server-side", "--force-conflicts", "-f", file)).count(
            " serverside-applied") == len(KINDS)  # fmt: skip
        assert kubectl.store.get("queues.scheduling.volcano.sh", None, "all")["spec"]["weight"] == 1
        assert (await kubectl.run("delete", "-f", file)).count(" deleted") == len(KINDS)
        assert await kubectl.run("get", "-f", file, "--ignore-not-found", "-o", "name") == ""


async def test_apply_twice_leaves_everything_as_it_was(tmp_path: Path) -> None:
    async with cluster(tmp_path) as kubectl:
        file = manifests(tmp_path)
        await kubectl.run("apply", "-f", file)
        version = kubectl.store.version
        await kubectl.run("apply", "-f", file)
        assert kubectl.store.version == version


async def test_server_side_apply_twice_leaves_everything_as_it_was(tmp_path: Path) -> None:
    async with cluster(tmp_path) as kubectl:
        file = manifests(tmp_path)
        await kubectl.run("apply", "--server-side", "-f", file)
        version = kubectl.store.version
        await kubectl.run("apply", "--server-side", "-f", file)
        assert kubectl.store.version == version


async def test_apply_takes_away_what_the_manifest_no_longer_names(tmp_path: Path) -> None:
    async with cluster(tmp_path) as kubectl:
        before = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "1", "b": "2"}}
        await kubectl.run("apply", "-f", "-", stdin=json.dumps(before))
        await kubectl.run("apply", "-f", "-", stdin=json.dumps({**before, "data": {"a": "1"}}))
        assert kubectl.store.get("configmaps", "default", "c")["data"] == {"a": "1"}


@pytest.mark.parametrize(
    ("kind", "patch"),
    [
        ("strategic", '{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"s"}]}}}}'),
        ("json", '[{"op":"add","path":"/spec/template/spec/containers/-","value":{"name":"side","image":"s"}}]'),
    ],
)
async def test_patch_types(tmp_path: Path, kind: str, patch: str) -> None:
    async with cluster(tmp_path) as kubectl:
        kubectl.store.create("deployments.apps", {
            "metadata": {"name": "d"}, "spec": {"selector": _SELECTOR, "template": _TEMPLATE}})  # fmt: skip
        await kubectl.run("patch", "deployment", "d", "--type", kind, "-p", patch)
        spec = kubectl.store.get("deployments.apps", "default", "d")["spec"]["template"]["spec"]
        assert {container["name"] for container in spec["containers"]} == {"main", "side"}


async def test_a_misspelt_field_is_refused_by_name(tmp_path: Path) -> None:
    async with cluster(tmp_path) as kubectl:
        made = pod("a")
        made["spec"]["schedulerNam"] = "volcano"
        refused = await kubectl.run("create", "-f", "-", stdin=json.dumps(made), fails=True)
        assert 'unknown field "spec.schedulerNam"' in refused


async def test_watch_shows_what_happens(tmp_path: Path) -> None:
    async with cluster(tmp_path) as kubectl:
        process = await kubectl.start("get", "pods", "--watch", "--no-headers")
        assert process.stdout is not None
        kubectl.store.create("pods", pod("a"))
        assert (await asyncio.wait_for(process.stdout.readline(), WAIT_LIMIT)).split()[:3] == [b"a", b"0/1", b"Pending"]
        kubectl.store.patch("pods", "default", "a", {"status": {"phase": "Running"}}, "status")
        assert (await asyncio.wait_for(process.stdout.readline(), WAIT_LIMIT)).split()[2] == b"Running"
        process.terminate()
        await process.communicate()


async def test_wait_for_a_condition_and_for_the_end(tmp_path: Path) -> None:
    async with cluster(tmp_path) as kubectl:
        kubectl.store.create("pods", pod("a"))
        ready = await kubectl.start("wait", "pod/a", "--for=condition=Ready", "--timeout=30s")
        kubectl.store.patch(
            "pods", "default", "a", {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}, "status"
        )
        out, _ = await ready.communicate()
        assert (ready.returncode, out) == (0, b"pod/a condition met\n")
        gone = await kubectl.start("wait", "pod/a", "--for=delete", "--timeout=30s")
        kubectl.store.delete("pods", "default", "a")
        await gone.communicate()
        assert gone.returncode == 0


async def test_describe_pod_shows_its_events(tmp_path: Path) -> None:
    async with cluster(tmp_path) as kubectl:
        uid = kubectl.store.create("pods", pod("a"))["metadata"]["uid"]
        kubectl.store.create("events", {
            "metadata": {"name": "e"}, "reason": "FailedScheduling", "message": "no room", "type": "Warning",
            "involvedObject": {"kind": "Pod", "namespace": "default", "name": "a", "uid": uid}})  # fmt: skip
        shown = await kubectl.run("describe", "pod", "a")
        assert "FailedScheduling" in shown
        assert "no room" in shown


async def test_imperative_creation(tmp_path: Path) -> None:
    async with cluster(tmp_path) as kubectl:
        await kubectl.run("create", "namespace", "team")
        await kubectl.run("--namespace", "team", "create", "configmap", "c", "--from-literal=a=1")
        await kubectl.run("--namespace", "team", "create", "deployment", "d", "--image=busybox", "--replicas=2")
        await kubectl.run("--namespace", "team", "scale", "deployment", "d", "--replicas=5")
        assert kubectl.store.get("configmaps", "team", "c")["data"] == {"a": "1"}
        assert kubectl.store.get("deployments.apps", "team", "d")["spec"]["replicas"] == 5


async def test_drain_evicts_what_runs_on_a_node(tmp_path: Path) -> None:
    async with cluster(tmp_path) as kubectl:
        kubectl.store.create("nodes", {"metadata": {"name": "n1"}})
        kubectl.store.create("pods", pod("a"))
        kubectl.store.bind("default", "a", {"target": {"name": "n1"}})

        def kubelet(kind: str, resource: str, obj: Obj) -> None:
            if "deletionTimestamp" in obj["metadata"] and kind == "MODIFIED":
                loop.call_soon(ends)

        def ends() -> None:
            if kubectl.store.list("pods"):
                kubectl.store.delete("pods", "default", "a", grace_period=0)

        loop = asyncio.get_running_loop()
        kubectl.store.subscribe(["pods"], kubelet)
        await kubectl.run("drain", "n1", "--force", "--timeout=30s")
        assert kubectl.store.list("pods") == []
        assert kubectl.store.get("nodes", None, "n1")["spec"]["unschedulable"] is True


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("pod.spec.containers", "terminationMessagePath"),
        ("queues.spec", "capability"),
        ("podgroup.spec.minMember", "run together"),
        ("job.spec.tasks", "minAvailable"),
    ],
)
async def test_explain(tmp_path: Path, what: str, expected: str) -> None:
    async with cluster(tmp_path) as kubectl:
        assert expected in await kubectl.run("explain", what)


async def test_who_am_i(tmp_path: Path) -> None:
    async with cluster(tmp_path) as kubectl:
        assert "system:admin" in await kubectl.run("auth", "whoami")
        assert (await kubectl.run("auth", "can-i", "create", "pods")).strip() == "yes"
