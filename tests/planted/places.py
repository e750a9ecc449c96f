"""Causes of volumes and of where other pods are: there is room for the job, on nodes that these keep from it."""

from __future__ import annotations

import copy
from typing import Any

from tests.planted.plant import Fix, Manifest, Plant
from tests.planted.site import NOTHING, Site

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"


# --- volumes ----------------------------------------------------------------------------------------------------------


def volume(seed: int) -> Plant:
    """A claim is missing, unbound, bound to a volume on a node that is full, or to one in another zone."""
    site = Site("volume", seed)
    rng = site.rng
    variant = ("missing", "unbound", "elsewhere", "zone")[seed % 4]
    count = rng.randint(1, 3)
    zones = {ZONE: "eu-1a"}, {ZONE: "eu-1b"}
    roomy = site.fleet(count + rng.randint(0, 10), labels=zones[0])
    full = site.fleet(rng.randint(1, 4), labels=zones[1])
    site.leave(dict.fromkeys(roomy[count:], site.slot))
    site.leave(dict.fromkeys(full, NOTHING))
    site.backdrop()
    claim, pv = site.name(rng.choice(("data", "dataset", "checkpoints"))), f"pv-{rng.randrange(999)}"
    key = f"{site.namespace}/{claim}"
    good = _claim(site, claim, pv), _volume(site, claim, pv)
    if variant == "missing":
        pass
    elif variant == "unbound":
        site.put(_claim(site, claim, ""))
    else:
        site.put(good[0])
        site.put(_kept(good[1], zones[1] if variant == "zone" else {HOST: full[0]}, by_label=variant == "zone"))
    site.ask(count, spec={"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]})
    return site.plant({"claim": (key, claim)}, Fix(put=good), variant=variant)


def _claim(site: Site, name: str, pv: str) -> Manifest:
    spec = {"accessModes": ["ReadWriteMany"], "storageClassName": "nfs", "resources": {"requests": {"storage": "5Gi"}}}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": name,
            "namespace": site.namespace,
            "uid": f"uid-{name}",
            "annotations": {"pv.kubernetes.io/bind-completed": "yes"} if pv else {},
        },
        "spec": spec | ({"volumeName": pv} if pv else {}),
        "status": {"phase": "Bound" if pv else "Pending"},
    }


def _volume(site: Site, claim: str, name: str) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "5Gi"},
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "nfs",
            "persistentVolumeReclaimPolicy": "Retain",
            "nfs": {"server": "10.1.1.1", "path": f"/{name}"},
            "claimRef": {"kind": "PersistentVolumeClaim", "namespace": site.namespace, "name": claim},
        },
        "status": {"phase": "Bound"},
    }


def _kept(volume: Manifest, labels: dict[str, str], *, by_label: bool) -> Manifest:
    """The volume on nodes of these labels alone: by its own label (a zone), or by its node affinity."""
    made = copy.deepcopy(volume)
    if by_label:
        made["metadata"]["labels"] = labels
        return made
    wants = [{"key": key, "operator": "In", "values": [value]} for key, value in labels.items()]
    made["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": wants}]}}
    return made


# --- other pods -------------------------------------------------------------------------------------------------------


def pod_affinity(seed: int) -> Plant:
    """Pods that must be apart, or near, leave no node that has room: the job's own terms, or those of who runs."""
    site = Site("pod-affinity", seed)
    rng = site.rng
    variant = ("apart", "from-others", "near", "refused")[seed % 4]
    count = rng.randint(2, 4)
    app = rng.choice(("trainer", "cache", "ingest", "store"))
    roomy = site.fleet(count + (-1 if variant == "apart" else rng.randint(0, 6)), slots=4)
    full = site.fleet(rng.randint(1, 5))
    other = site.slot.part(2, gpus=0)
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": HOST}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    beside: dict[str, Any] = {"labels": {"app": app}} if variant in ("from-others", "near") else {}
    if variant == "refused":
        beside = {"spec": {"affinity": apart}}
    on = full if variant == "near" else roomy
    running = site.run([(name, other) for name in on], queue=site.other_queue(), **beside)
    site.leave(dict.fromkeys(full, NOTHING))
    site.backdrop()
    own: dict[str, Any] = {"labels": {"app": app}} if variant in ("apart", "refused") else {}
    if variant != "refused":
        own["spec"] = {"affinity": near if variant == "near" else apart}
    site.ask(count, spare=0, **own)
    edits = site.pods_of(running if variant in ("from-others", "refused") else site.asked)
    for pod in edits:
        pod["spec"].pop("affinity", None)
        if variant == "from-others":
            del pod["metadata"]["labels"]["app"]
    return site.plant({"term": app}, Fix(put=tuple(edits)), variant=variant)


def spread(seed: int) -> Plant:
    """Zones must have alike many of the job's pods, and one zone has no room."""
    site = Site("spread", seed)
    rng = site.rng
    count = rng.randint(3, 6)
    key = rng.choice((ZONE, "example.com/rack"))
    roomy: list[str] = []
    while sum(map(site.holds, roomy)) < count + 1:
        roomy += site.fleet(1, labels={key: "a"})
    full = site.fleet(rng.randint(1, 5), labels={key: "b"})
    site.leave(dict.fromkeys(full, NOTHING))
    site.backdrop()
    app = rng.choice(("trainer", "shard"))
    constraint = {
        "maxSkew": 1,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": app}},
        "nodeTaintsPolicy": "Honor",
    }
    site.ask(count, spare=0, labels={"app": app}, spec={"topologySpreadConstraints": [constraint]})
    edits = site.pods_of(site.asked)
    for pod in edits:
        pod["spec"]["topologySpreadConstraints"][0]["maxSkew"] = count
    return site.plant({"term": key}, Fix(put=tuple(edits)))


def ports(seed: int) -> Plant:
    """On each node with room somebody has the host port that the job's pods need."""
    site = Site("ports", seed)
    rng = site.rng
    count = rng.randint(1, 4)
    port = rng.choice((8080, 9100, 29500))
    asks = {"containers": [{"name": "c", "image": "image", "ports": [{"containerPort": port, "hostPort": port}]}]}
    roomy = site.fleet(count + rng.randint(0, 8), slots=2)
    pods = [(name, site.slot.part(2, gpus=0)) for name in roomy]
    running = site.run(pods, queue=site.other_queue())
    with_port = [_with_ports(pod, asks) for pod in site.pods_of(running)]
    bare = site.pods_of(running)
    for pod in with_port:
        site.put(pod)
    full = site.fleet(rng.randint(0, 5), slots=2)
    site.leave(dict.fromkeys(full, NOTHING))
    site.backdrop()
    key = site.ask(count, spare=0)
    for pod in site.pods_of(key):
        site.put(_with_ports(pod, asks))
    return site.plant({"term": str(port)}, Fix(put=tuple(bare)))


def _with_ports(pod: Manifest, asks: Manifest) -> Manifest:
    pod["spec"]["containers"][0]["ports"] = copy.deepcopy(asks["containers"][0]["ports"])
    return pod
