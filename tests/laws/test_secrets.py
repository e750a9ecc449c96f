"""Nothing secret that the API lets a manifest carry gets into a payload or the log's file (docs/laws.md)."""

from __future__ import annotations

import copy
import itertools
import json
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sizes import examples
from vcd.eventlog import EventLog, LogReader
from vcd.model.events import ObjectPut
from vcd.model.kinds import KINDS
from vcd.model.objects import Pod
from vcd.model.projection_codec import BadObject, decode_json, decode_payload, encode_payload, from_manifest

Obj = dict[str, Any]
MARK = re.compile(r"s3cr3t-\d{4}-[0-9a-f]{32}")
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


class Planter:
    """Makes secrets, each a string that occurs nowhere else, and remembers them."""

    def __init__(self, seed: int) -> None:
        self.planted: list[str] = []
        self._random = random.Random(seed)

    def __call__(self) -> str:
        secret = f"s3cr3t-{len(self.planted):04}-{self._random.getrandbits(128):032x}"
        self.planted.append(secret)
        return secret


# --- every place where the API takes something that is nobody else's business ---------------------------------------


def env(plant: Planter) -> list[Obj]:
    return [
        {"name": plant(), "value": plant()},
        {"name": "A", "valueFrom": {"secretKeyRef": {"name": plant(), "key": plant(), "optional": True}}},
        {"name": "B", "valueFrom": {"configMapKeyRef": {"name": plant(), "key": plant()}}},
        {"name": "C", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": plant()}}},
        {"name": "D", "valueFrom": {"resourceFieldRef": {"containerName": plant(), "resource": "limits.cpu"}}},
        {"name": "E", "valueFrom": {"fileKeyRef": {"volumeName": plant(), "path": plant(), "key": plant()}}},
    ]


def env_from(plant: Planter) -> list[Obj]:
    return [
        {"prefix": plant(), "secretRef": {"name": plant()}},
        {"configMapRef": {"name": plant(), "optional": False}},
    ]


def handler(plant: Planter) -> Obj:
    headers = [{"name": plant(), "value": plant()}]
    return {
        "exec": {"command": [plant()]},
        "httpGet": {"path": plant(), "host": plant(), "port": 80, "httpHeaders": headers},
        "tcpSocket": {"host": plant(), "port": 80},
        "grpc": {"port": 80, "service": plant()},
    }


def security(plant: Planter) -> Obj:
    return {"seLinuxOptions": {"user": plant(), "level": plant()}, "windowsOptions": {"gmsaCredentialSpec": plant()}}


CONTAINER: dict[str, Callable[[Planter], Any]] = {
    "env": env,
    "envFrom": env_from,
    "command": lambda plant: [plant(), "-c", plant()],
    "args": lambda plant: [f"--token={plant()}", plant()],
    "workingDir": lambda plant: plant(),
    "lifecycle": lambda plant: {"postStart": handler(plant), "preStop": handler(plant)},
    "livenessProbe": handler,
    "readinessProbe": handler,
    "startupProbe": handler,
    "volumeMounts": lambda plant: [{"name": "v", "mountPath": plant(), "subPath": plant(), "subPathExpr": plant()}],
    "securityContext": security,
    "terminationMessagePath": lambda plant: plant(),
}

VOLUMES: dict[str, Callable[[Planter], Obj]] = {
    "secret": lambda plant: {"secretName": plant(), "items": [{"key": plant(), "path": plant()}]},
    "configMap": lambda plant: {"name": plant(), "items": [{"key": plant(), "path": plant()}]},
    "downwardAPI": lambda plant: {"items": [{"path": plant(), "fieldRef": {"fieldPath": plant()}}]},
    "projected": lambda plant: {"sources": [
        {"secret": {"name": plant(), "items": [{"key": plant(), "path": plant()}]}},
        {"configMap": {"name": plant(), "items": [{"key": plant(), "path": plant()}]}},
        {"serviceAccountToken": {"audience": plant(), "path": plant()}},
        {"clusterTrustBundle": {"name": plant(), "path": plant()}},
    ]},
    "csi": lambda plant: {"driver": "csi.example", "volumeAttributes": {plant(): plant()},
                          "nodePublishSecretRef": {"name": plant()}},
    "flexVolume": lambda plant: {"driver": "d", "options": {"k": plant()}, "secretRef": {"name": plant()}},
    "cephfs": lambda plant: {"user": plant(), "secretFile": plant(), "secretRef": {"name": plant()}},
    "rbd": lambda plant: {"user": plant(), "keyring": plant(), "secretRef": {"name": plant()}},
    "iscsi": lambda plant: {"initiatorName": plant(), "secretRef": {"name": plant()}},
    "scaleIO": lambda plant: {"secretRef": {"name": plant()}, "gateway": plant()},
    "storageos": lambda plant: {"secretRef": {"name": plant()}},
    "azureFile": lambda plant: {"secretName": plant(), "shareName": plant()},
    "gitRepo": lambda plant: {"repository": f"https://user:{plant()}@example", "revision": plant()},
    "hostPath": lambda plant: {"path": plant()},
    "nfs": lambda plant: {"server": plant(), "path": plant()},
}  # fmt: skip

SPEC: dict[str, Callable[[Planter], Any]] = {
    "imagePullSecrets": lambda plant: [{"name": plant()}],
    "hostAliases": lambda plant: [{"ip": "10.0.0.1", "hostnames": [plant()]}],
    "dnsConfig": lambda plant: {"searches": [plant()], "options": [{"name": plant(), "value": plant()}]},
    "securityContext": lambda plant: {**security(plant), "sysctls": [{"name": plant(), "value": plant()}]},
    "hostname": lambda plant: plant(),
    "serviceAccountName": lambda plant: plant(),
}

STATUS: dict[str, Callable[[Planter], Any]] = {
    "message": lambda plant: plant(),
    "containerStatuses": lambda plant: [{
        "name": "main", "containerID": plant(), "imageID": plant(),
        "state": {"terminated": {"message": plant(), "reason": plant()}, "waiting": {"message": plant()}},
        "lastState": {"terminated": {"message": plant()}},
        "volumeMounts": [{"name": "v", "mountPath": plant()}],
    }],
    "initContainerStatuses": lambda plant: [{"name": "i", "state": {"terminated": {"message": plant()}}}],
    "ephemeralContainerStatuses": lambda plant: [{"name": "e", "state": {"terminated": {"message": plant()}}}],
}  # fmt: skip


def container(name: str, places: list[str], plant: Planter) -> Obj:
    made: Obj = {"name": name, "image": "train:1", "resources": {"requests": {"cpu": "1"}}}
    return {**made, **{place: CONTAINER[place](plant) for place in places if place in CONTAINER}}


def manifest(places: list[str], kept: dict[str, str], plant: Planter) -> Obj:
    """A pod with a secret in each of the places; ``kept`` are its labels and its other annotations."""
    spec: Obj = {place: SPEC[place](plant) for place in places if place in SPEC}
    spec["containers"] = [container("main", places, plant)]
    spec["initContainers"] = [container("init", places, plant)]
    spec["ephemeralContainers"] = [container("debug", places, plant)]
    spec["volumes"] = [
        {"name": f"v{index}", place: VOLUMES[place](plant)} for index, place in enumerate(places) if place in VOLUMES
    ]
    status: Obj = {place: STATUS[place](plant) for place in places if place in STATUS}
    pod: Obj = {
        "apiVersion": "v1", "kind": "Pod", "spec": spec, "status": {"phase": "Running", **status},
        "metadata": {"name": "a", "namespace": "ns", "uid": "u", "labels": kept, "annotations": dict(kept)},
    }  # fmt: skip
    if "managedFields" in places:
        fields: Obj = {
            f"f:{plant()}": {},
            "f:spec": {'k:{"name":"main"}': {"f:env": {f'k:{{"name":"{plant()}"}}': {}}}},
        }
        pod["metadata"]["managedFields"] = [{"manager": plant(), "operation": "Update", "fieldsV1": fields}]
    if LAST_APPLIED in places:
        pod["metadata"]["annotations"][LAST_APPLIED] = json.dumps(copy.deepcopy(pod))
        pod["metadata"]["annotations"][LAST_APPLIED] += plant()
    return pod


PLACES = sorted({*CONTAINER, *VOLUMES, *SPEC, *STATUS, "managedFields", LAST_APPLIED})

_names = st.text("abcdefghijklmnopqrstuvwxyz-./ü日", min_size=1, max_size=20)
_kept = st.dictionaries(_names, st.text(max_size=30), max_size=5)


def found(planted: list[str], data: bytes) -> list[str]:
    return [secret for secret in planted if secret.encode() in data]


def payload_of(pod: Obj) -> bytes:
    return encode_payload(decode_json(KINDS["Pod"], json.dumps(pod).encode())[0])


# --- payloads -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", PLACES)
def test_a_secret_in_one_place_is_not_in_the_payload(place: str) -> None:
    plant = Planter(1)
    pod = manifest([place], {}, plant)
    assert plant.planted
    assert found(plant.planted, json.dumps(pod).encode()) == plant.planted
    assert found(plant.planted, payload_of(pod)) == []


@settings(max_examples=examples(60), deadline=None)
@given(places=st.lists(st.sampled_from(PLACES), unique=True), kept=_kept, seed=st.integers(0, 2**32))
def test_no_secret_of_any_pod_is_in_its_payload(places: list[str], kept: dict[str, str], seed: int) -> None:
    plant = Planter(seed)
    assert found(plant.planted, payload_of(manifest(places, kept, plant))) == []


@settings(max_examples=examples(60), deadline=None)
@given(places=st.lists(st.sampled_from(PLACES), unique=True), kept=_kept)
def test_labels_and_other_annotations_are_kept(places: list[str], kept: dict[str, str]) -> None:
    pod = decode_payload("Pod", payload_of(manifest(places, kept, Planter(1))))
    assert isinstance(pod, Pod)
    assert (pod.metadata.labels, pod.metadata.annotations) == (kept, kept)


@settings(max_examples=examples(30), deadline=None)
@given(places=st.lists(st.sampled_from(PLACES), unique=True), kept=_kept)
def test_what_a_secret_is_does_not_change_the_payload(places: list[str], kept: dict[str, str]) -> None:
    assert len({payload_of(manifest(places, kept, Planter(seed))) for seed in range(3)}) == 1


VOLUME_SECRETS: dict[str, Callable[[Planter], Obj]] = {
    "PersistentVolume": lambda plant: {"spec": {"csi": {
        "driver": "d", "volumeHandle": "h", "volumeAttributes": {plant(): plant()},
        **{f"{call}SecretRef": {"name": plant(), "namespace": plant()}
           for call in ("nodeStage", "nodePublish", "nodeExpand", "controllerPublish", "controllerExpand")}}}},
    "StorageClass": lambda plant: {"provisioner": "p", "parameters": {"secretName": plant(), "token": plant()}},
    "CSIDriver": lambda plant: {"spec": {"tokenRequests": [{"audience": plant()}]}},
}  # fmt: skip


@pytest.mark.parametrize("kind", VOLUME_SECRETS)
def test_secrets_that_volumes_name_are_not_in_their_payload(kind: str) -> None:
    plant = Planter(1)
    body = {"kind": kind, "metadata": {"name": "a"}, **VOLUME_SECRETS[kind](plant)}
    assert found(plant.planted, encode_payload(decode_json(KINDS[kind], json.dumps(body).encode())[0])) == []


@pytest.mark.parametrize("kind", KINDS)
def test_no_kind_keeps_what_was_last_applied_or_who_manages_fields(kind: str) -> None:
    plant = Planter(1)
    fields = [{"manager": plant(), "fieldsV1": {f"f:{plant()}": {}}}]
    body = {"kind": kind, "metadata": {"name": "a", "annotations": {LAST_APPLIED: plant()}, "managedFields": fields}}
    assert found(plant.planted, encode_payload(decode_json(KINDS[kind], json.dumps(body).encode())[0])) == []


@pytest.mark.parametrize("kind", ["Secret", "ConfigMap"])
def test_secrets_and_config_maps_are_not_read_at_all(kind: str) -> None:
    plant = Planter(1)
    body = {"kind": kind, "metadata": {"name": "a"}, "data": {plant(): plant()}, "stringData": {"k": plant()}}
    with pytest.raises(BadObject) as error:
        from_manifest(body)
    assert found(plant.planted, str(error.value).encode()) == []


@pytest.mark.parametrize("place", PLACES)
def test_the_message_about_a_bad_pod_tells_no_secret(place: str) -> None:
    plant = Planter(1)
    pod = manifest([place], {}, plant)
    pod["spec"]["priority"] = "high"
    with pytest.raises(BadObject) as error:
        decode_json(KINDS["Pod"], json.dumps(pod).encode())
    assert found(plant.planted, str(error.value).encode()) == []


# --- the log's file -------------------------------------------------------------------------------------------------


def written(folder: Path) -> Iterator[bytes]:
    """All that a log left on the disk: the file and what SQLite keeps beside it."""
    for file in sorted(folder.iterdir()):
        yield file.read_bytes()


async def test_no_secret_is_in_the_file_of_a_log(tmp_path: Path) -> None:
    plant = Planter(7)
    pods = [manifest([place, *PLACES[index % 7 :: 7]], {}, plant) for index, place in enumerate(PLACES)]
    versions = itertools.count(1)
    async with EventLog.open(tmp_path / "events.db") as log:
        for pod in pods:
            payload = payload_of(pod)
            await log.append([ObjectPut("Pod", "ns/a", str(next(versions)), payload)])
        await log.checkpoint(log.head, b"".join(map(payload_of, pods)))
        during = b"".join(written(tmp_path))
    after = b"".join(written(tmp_path))
    assert len(plant.planted) > 200
    assert found(plant.planted, during + after) == []


async def test_no_secret_is_in_what_the_log_gives_back(tmp_path: Path) -> None:
    """The rows are compressed, so that a secret in them could not be seen in the bytes of the file."""
    plant = Planter(8)
    async with EventLog.open(tmp_path / "events.db") as log:
        await log.append([ObjectPut("Pod", "ns/a", "1", payload_of(manifest(PLACES, {"keep": "this"}, plant)))])
    with LogReader(tmp_path / "events.db") as reader:
        (event,) = [logged.event for logged in reader.read(0)]
    assert isinstance(event, ObjectPut) and event.payload is not None
    assert MARK.search(event.payload.decode(errors="replace")) is None
    assert b"keep" in event.payload and b"this" in event.payload
