"""Random small clusters with configurations: the same seed gives the same case, on any machine.

Each feature (affinity, spread, volumes, gates, closed queues, flags that are off ...) is in a case with a probability
of its own, so that thousands of seeds cover the combinations.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from tests.reference.config import FLAGS

Manifest = dict[str, Any]

ZONES = ("a", "b", "c")
APPS = ("web", "db", "cache")
GPU = "nvidia.com/gpu"
PREDICATE_FLAGS = (
    "NodeAffinityEnable", "NodePortsEnable", "TaintTolerationEnable", "PodAffinityEnable", "NodeVolumeLimitsEnable",
    "VolumeZoneEnable", "PodTopologySpreadEnable", "VolumeBindingEnable",
)  # fmt: skip
SCORE_WEIGHTS = (
    "leastrequested", "mostrequested", "balancedresource", "nodeaffinity", "podaffinity", "tainttoleration",
    "imagelocality", "podtopologyspread",
)  # fmt: skip


@dataclass
class RandomCase:
    """One cluster and the configuration to schedule it with."""

    seed: int
    conf: str
    objects: list[Manifest] = field(default_factory=list)


class Maker:
    """Draws one case. `chance` decides which features it has at all, `often` how often one of them is used."""

    flags = tuple(sorted(FLAGS.values()))
    """The keys that turn an extension point off."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.objects: list[Manifest] = []
        self.clock = 0
        self.nodes: list[str] = []
        self.claims: list[str] = []
        self.has = {name: self.random.random() < 0.35 for name in _FEATURES}

    def often(self, probability: float) -> bool:
        return self.random.random() < probability

    def uses(self, feature: str, probability: float = 0.5) -> bool:
        return self.has[feature] and self.often(probability)

    def pick(self, choices: Any) -> Any:
        return self.random.choice(list(choices))

    def time(self) -> str:
        self.clock += self.random.randint(0, 1)
        return f"2026-01-01T00:{self.clock // 60:02d}:{self.clock % 60:02d}Z"

    # -- the cluster's furniture ----------------------------------------------

    def make_nodes(self) -> None:
        for number in range(self.random.randint(1, 3 if self.has["crowded"] else 6)):
            name = f"n{number}"
            self.nodes.append(name)
            cpus = (4, 8) if self.has["crowded"] else (2, 4, 8)
            listed = {"cpu": str(self.pick(cpus)), "memory": f"{self.pick((4, 8, 16))}Gi"}
            listed["pods"] = str(self.pick((3, 110, 110)))
            if self.uses("gpu", 0.6):
                listed[GPU] = str(self.pick((1, 2, 4)))
            labels = {"kubernetes.io/hostname": name, "disk": self.pick(("ssd", "hdd")), "size": str(number)}
            if self.often(0.85):
                labels["zone"] = self.pick(ZONES)
            if self.has["zones"] and self.often(0.8):
                labels["topology.kubernetes.io/zone"] = self.pick(ZONES[:2])
            spec: dict[str, Any] = {}
            if self.uses("taints"):
                effect = self.pick(("NoSchedule", "PreferNoSchedule", "NoExecute"))
                spec["taints"] = [{"key": "dedicated", "value": self.pick("xy"), "effect": effect}]
            if self.uses("taints", 0.15):
                spec["unschedulable"] = True
            status: dict[str, Any] = {"allocatable": listed, "capacity": dict(listed)}
            if self.uses("images"):
                status["images"] = [
                    {"names": [f"image-{i}:latest"], "sizeBytes": (50, 300, 900)[i] * 2**20}
                    for i in range(3)
                    if self.often(0.5)
                ]
            meta = {"name": name, "labels": labels}
            self.objects.append({"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": spec, "status": status})
            if self.has["volumes"] and self.often(0.85):
                driver: dict[str, Any] = {"name": "csi.example.com", "nodeID": name}
                if self.often(0.6):
                    driver["allocatable"] = {"count": self.random.randint(1, 2)}
                self.add("storage.k8s.io/v1", "CSINode", {"name": name}, spec={"drivers": [driver]})

    def add(self, version: str, kind: str, meta: dict[str, Any], **rest: Any) -> None:
        self.objects.append({"apiVersion": version, "kind": kind, "metadata": meta, **rest})

    def make_namespaces(self) -> None:
        for name in ("default", "other"):
            self.add("v1", "Namespace", {"name": name, "labels": {"team": name[0]}})

    def make_classes(self) -> None:
        for name, value in (("high", 1000), ("low", 10)):
            meta = {"name": name}
            default = name == "low" and self.uses("priorities", 0.3)
            self.add("scheduling.k8s.io/v1", "PriorityClass", meta, value=value, globalDefault=default)

    def make_queues(self) -> list[str]:
        names = ["default"] + [f"q{i}" for i in range(self.random.randint(0, 2))]
        for name in names:
            spec: dict[str, Any] = {"weight": self.random.randint(1, 4)}
            if self.uses("quota"):
                spec["capability"] = {"cpu": str(self.random.randint(2, 12))}
                if self.often(0.15):
                    spec["capability"]["pods"] = str(self.random.randint(1, 6))
                if self.often(0.5):
                    spec["capability"]["memory"] = f"{self.random.randint(4, 24)}Gi"
                if self.uses("gpu"):
                    spec["capability"][GPU] = str(self.random.randint(0, 3))
            if self.uses("quota", 0.3):
                spec["guarantee"] = {"resource": {"cpu": str(self.random.randint(1, 3))}}
            if self.uses("quota", 0.2):
                spec["priority"] = self.random.randint(0, 2)
            state = "Open" if not self.uses("closed", 0.3) else self.pick(("Closed", "Closing"))
            meta = {"name": name, "creationTimestamp": self.time()}
            self.add("scheduling.volcano.sh/v1beta1", "Queue", meta, spec=spec, status={"state": state})
        return names

    def make_storage(self) -> None:
        for name, mode in (("late", "WaitForFirstConsumer"), ("now", "Immediate")):
            provisioner = "csi.example.com" if self.often(0.6) else "kubernetes.io/no-provisioner"
            rest: dict[str, Any] = {"provisioner": provisioner, "volumeBindingMode": mode}
            if self.often(0.3):
                values = self.random.sample(ZONES, 2)
                rest["allowedTopologies"] = [{"matchLabelExpressions": [{"key": "zone", "values": values}]}]
            self.add("storage.k8s.io/v1", "StorageClass", {"name": name}, **rest)
        driver = {"attachRequired": True, "storageCapacity": self.often(0.5)}
        self.add("storage.k8s.io/v1", "CSIDriver", {"name": "csi.example.com"}, spec=driver)
        for number in range(self.random.randint(0, 2)):
            topology = {"matchLabels": {"zone": self.pick(ZONES)}}
            meta = {"name": f"room{number}", "namespace": "default"}
            amount = f"{self.pick((1, 10, 100))}Gi"
            self.add(
                "storage.k8s.io/v1", "CSIStorageCapacity", meta,
                storageClassName="late", nodeTopology=topology, capacity=amount,
            )  # fmt: skip
        for number in range(self.random.randint(1, 4)):
            self.make_volume(f"pv{number}", None)
        for number in range(self.random.randint(1, 5)):
            self.make_claim(f"claim{number}")

    def make_volume(self, name: str, claim: str | None) -> None:
        spec: dict[str, Any] = {
            "capacity": {"storage": f"{self.pick((5, 10, 20))}Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "late" if claim is None else self.pick(("late", "now")),
        }
        if self.often(0.5):
            spec["csi"] = {"driver": "csi.example.com", "volumeHandle": name}
        else:
            spec["local"] = {"path": f"/{name}"}
        if self.often(0.6):
            expression = {"key": "zone", "operator": "In", "values": self.random.sample(ZONES, 2)}
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
        labels = {"tier": self.pick(("gold", "iron"))}
        if self.has["zones"] and self.often(0.4):
            labels["topology.kubernetes.io/zone"] = self.pick(("a", "b", "a__b"))
        if claim is not None:
            spec["claimRef"] = {"namespace": "default", "name": claim, "uid": f"uid-{claim}"}
        phase = "Available" if claim is None else "Bound"
        self.add("v1", "PersistentVolume", {"name": name, "labels": labels}, spec=spec, status={"phase": phase})

    def make_claim(self, name: str) -> None:
        self.claims.append(name)
        if self.often(0.1):
            return
        meta: dict[str, Any] = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
        spec: dict[str, Any] = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": self.pick(("late", "late", "late", "now")),
            "resources": {"requests": {"storage": f"{self.pick((3, 8, 15))}Gi"}},
        }
        status = {"phase": "Pending"}
        if self.often(0.4):
            spec["volumeName"] = f"{name}-volume"
            status["phase"] = "Bound"
            meta["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
            if self.often(0.9):
                self.make_volume(f"{name}-volume", name)
        elif self.often(0.15):
            spec["selector"] = {"matchLabels": {"tier": "gold"}}
        elif self.often(0.15):
            meta["annotations"] = {"volume.kubernetes.io/selected-node": self.pick(self.nodes)}
        self.add("v1", "PersistentVolumeClaim", meta, spec=spec, status=status)

    # -- pods -------------------------------------------------------------------

    def make_job(self, number: int, queues: list[str]) -> None:
        name, namespace = f"j{number}", "other" if self.uses("namespaces", 0.4) else "default"
        size = self.random.randint(1, 5)
        roles = ["", "worker"] if self.often(0.3) else ["master", "worker"]
        spec: dict[str, Any] = {"minMember": self.random.randint(0, size + (1 if self.often(0.1) else 0))}
        if queues and self.often(0.95):
            spec["queue"] = self.pick(queues)
        if self.uses("roles"):
            spec["minTaskMember"] = {"worker": self.random.randint(0, 2), "master": self.random.randint(0, 1)}
        if self.uses("priorities"):
            spec["priorityClassName"] = self.pick(("high", "low", "unknown"))
        if self.often(0.6):
            spec["minResources"] = {"cpu": str(self.random.randint(1, 6))}
            if self.often(0.5):
                spec["minResources"]["memory"] = f"{self.random.randint(1, 8)}Gi"
            if self.uses("gpu"):
                spec["minResources"][GPU] = str(self.random.randint(1, 2))
        phase = self.pick(("Pending", "Pending", "Inqueue", "Running"))
        meta = {"name": name, "namespace": namespace, "creationTimestamp": self.time()}
        self.add("scheduling.volcano.sh/v1beta1", "PodGroup", meta, spec=spec, status={"phase": phase})
        twins = self.often(0.5)
        template = self.pod_spec(namespace)
        placed = phase == "Running" or self.often(0.15)
        for index in range(size):
            spec = template if twins else self.pod_spec(namespace)
            self.make_pod(f"{name}-{self.pick(('p-', ''))}{index}", namespace, name, self.pick(roles), spec, placed)

    def make_fillers(self, queues: list[str]) -> None:
        """A pod that takes most of a node, and often is about to leave it."""
        for node in [one for one in self.objects if one["kind"] == "Node"]:
            name = f"fill-{node['metadata']['name']}"
            cpus = int(node["status"]["allocatable"]["cpu"])
            meta = {"name": name, "namespace": "default", "creationTimestamp": self.time()}
            group = {"minMember": 1, "queue": self.pick(queues)}
            self.add("scheduling.volcano.sh/v1beta1", "PodGroup", meta, spec=group, status={"phase": "Running"})
            requests = {"cpu": str(self.random.randint(cpus - 1, cpus)), "memory": "1Gi"}
            spec: dict[str, Any] = {
                "containers": [{"name": "c0", "image": "image-0", "resources": {"requests": requests}}],
                "nodeName": node["metadata"]["name"],
                "schedulerName": "volcano",
            }
            marks = {"annotations": {"scheduling.k8s.io/group-name": name}, "labels": {"app": self.pick(APPS)}}
            pod = {**meta, **marks, "uid": name}
            if self.often(0.6):
                pod["deletionTimestamp"] = "2026-01-01T01:00:00Z"
            self.add("v1", "Pod", pod, spec=spec, status={"phase": "Running"})

    def make_loose_pods(self) -> None:
        """Pods without a group, some of one owner, as a user writes them: no status, no uid."""
        for number in range(self.random.randint(1, 4)):
            meta: dict[str, Any] = {"name": f"loose-{number}", "labels": {"app": self.pick(APPS)}}
            if self.often(0.5):
                meta["namespace"] = "default"
            if self.often(0.4):
                meta["ownerReferences"] = [{"kind": "ReplicaSet", "name": "rs", "uid": "rs-uid", "controller": True}]
            if self.often(0.3):
                meta["annotations"] = {"scheduling.volcano.sh/queue-name": self.pick(("default", "q0"))}
            spec = self.pod_spec("default")
            if self.often(0.3):
                spec["nodeName"] = self.pick(self.nodes)
                spec["schedulerName"] = self.pick(("volcano", "default-scheduler"))
            self.add("v1", "Pod", meta, spec=spec)

    def make_pod(self, name: str, namespace: str, group: str, role: str, spec: Manifest, placed: bool) -> None:
        annotations = {"scheduling.k8s.io/group-name": group}
        if role:
            annotations["volcano.sh/task-spec"] = role
        if self.uses("priorities", 0.2):
            annotations["volcano.sh/task-priority"] = self.pick(("5", "-1", "x"))
        meta: dict[str, Any] = {
            "name": name, "namespace": namespace, "uid": f"{namespace}-{name}", "creationTimestamp": self.time(),
            "annotations": annotations, "labels": {"app": self.pick(APPS)},
        }  # fmt: skip
        spec = {**spec, "schedulerName": "volcano"}
        if self.uses("priorities", 0.4):
            spec["priority"] = self.pick((0, 10, 1000))
        phase = "Pending"
        if placed and self.often(0.7):
            phase = self.pick(("Running", "Running", "Running", "Pending", "Succeeded", "Failed", "Unknown"))
            spec["nodeName"] = self.pick([*self.nodes, "gone"] if self.often(0.05) else self.nodes)
            if self.uses("terminating", 0.5):
                meta["deletionTimestamp"] = "2026-01-01T01:00:00Z"
        elif self.uses("terminating", 0.1):
            meta["deletionTimestamp"] = "2026-01-01T01:00:00Z"
        elif self.uses("gates", 0.4):
            gates = ["scheduling.volcano.sh/queue-allocation-gate", "example.com/wait"]
            spec["schedulingGates"] = [{"name": self.pick(gates)}]
        status: dict[str, Any] = {"phase": phase}
        if phase == "Pending" and self.often(0.05):
            status["nominatedNodeName"] = self.pick(self.nodes)
        self.add("v1", "Pod", meta, spec=spec, status=status)

    def pod_spec(self, namespace: str) -> Manifest:
        containers = [self.container(i) for i in range(1 if self.often(0.8) else 2)]
        spec: dict[str, Any] = {"containers": containers}
        if self.uses("init"):
            init = self.container(7)
            if self.often(0.5):
                init["restartPolicy"] = "Always"
            spec["initContainers"] = [init]
        if self.uses("init", 0.2):
            spec["overhead"] = {"cpu": "100m", "memory": "64Mi"}
        if self.uses("init", 0.2):
            spec["resources"] = {"requests": {"cpu": "1500m"}}
        if self.uses("taints"):
            toleration = {"key": "dedicated", "operator": self.pick(("Exists", "Equal"))}
            if toleration["operator"] == "Equal":
                toleration["value"] = self.pick("xy")
            if self.often(0.4):
                toleration["effect"] = self.pick(("NoSchedule", "PreferNoSchedule"))
            spec["tolerations"] = [toleration]
            if self.often(0.2):
                spec["tolerations"] = [{"operator": "Exists"}]
        if self.uses("selectors", 0.25):
            spec["nodeSelector"] = {"disk": self.pick(("ssd", "hdd"))}
        affinity = self.affinity()
        if affinity:
            spec["affinity"] = affinity
        if self.uses("spread"):
            spec["topologySpreadConstraints"] = [self.spread() for _ in range(self.random.randint(1, 2))]
        if self.uses("volumes") and self.claims and namespace == "default":
            names = self.random.sample(self.claims, min(len(self.claims), self.random.randint(1, 2)))
            spec["volumes"] = [{"name": n, "persistentVolumeClaim": {"claimName": n}} for n in names]
        return spec

    def container(self, number: int) -> Manifest:
        requests: dict[str, str] = {}
        if not self.uses("besteffort", 0.4):
            requests["cpu"] = self.pick(("100m", "500m", "1", "2", "3"))
            if self.often(0.8):
                requests["memory"] = self.pick(("128Mi", "1Gi", "2Gi", "3G"))
            if self.uses("gpu", 0.4):
                requests[GPU] = self.pick(("1", "2"))
        container: dict[str, Any] = {"name": f"c{number}", "image": f"image-{self.random.randint(0, 3)}"}
        container["resources"] = {"requests": requests}
        if self.uses("ports", 0.5):
            port = {
                "containerPort": 80,
                "hostPort": self.pick((8080, 8081)),
                "protocol": self.pick(("TCP", "TCP", "UDP")),
            }
            if self.often(0.3):
                port["hostIP"] = "10.0.0.1"
            container["ports"] = [port]
        return container

    def affinity(self) -> Manifest:
        found: dict[str, Any] = {}
        hard, soft = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"
        if self.uses("selectors"):
            node: dict[str, Any] = {}
            if self.often(0.5):
                terms = [self.node_term() for _ in range(self.random.randint(1, 2))]
                node[hard] = {"nodeSelectorTerms": terms}
            if self.often(0.6):
                node[soft] = [
                    {"weight": self.random.randint(1, 100), "preference": self.node_term()}
                    for _ in range(self.random.randint(1, 2))
                ]
            found["nodeAffinity"] = node
        for kind in ("podAffinity", "podAntiAffinity"):
            if self.uses("affinity"):
                pod: dict[str, Any] = {}
                if self.often(0.45):
                    pod[hard] = [self.pod_term()]
                if self.often(0.6):
                    pod[soft] = [{"weight": self.random.randint(1, 100), "podAffinityTerm": self.pod_term()}]
                found[kind] = pod
        return found

    def node_term(self) -> Manifest:
        key = self.pick(("zone", "disk", "size", "absent"))
        operator = self.pick(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
        expression: dict[str, Any] = {"key": key, "operator": operator}
        if operator in ("In", "NotIn"):
            expression["values"] = self.random.sample(["a", "b", "ssd", "1"], 2)
        elif operator in ("Gt", "Lt"):
            expression["values"] = [str(self.random.randint(0, 4))]
        if self.often(0.1):
            return {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [self.pick(self.nodes)]}]}
        return {"matchExpressions": [expression]}

    def selector(self) -> Manifest:
        if self.often(0.6):
            return {"matchLabels": {"app": self.pick(APPS)}}
        values = self.random.sample(APPS, 2)
        return {"matchExpressions": [{"key": "app", "operator": self.pick(("In", "NotIn")), "values": values}]}

    def topology(self) -> str:
        return str(self.pick(("kubernetes.io/hostname", "zone")))

    def pod_term(self) -> Manifest:
        term: dict[str, Any] = {"labelSelector": self.selector(), "topologyKey": self.topology()}
        if self.uses("namespaces", 0.3):
            term["namespaces"] = ["other"]
        if self.uses("namespaces", 0.4):
            term["namespaceSelector"] = self.pick(({}, {"matchLabels": {"team": "o"}}))
        return term

    def spread(self) -> Manifest:
        constraint: dict[str, Any] = {
            "maxSkew": self.random.randint(1, 2),
            "topologyKey": self.topology(),
            "whenUnsatisfiable": self.pick(("DoNotSchedule", "ScheduleAnyway")),
            "labelSelector": self.selector(),
        }
        if constraint["whenUnsatisfiable"] == "DoNotSchedule" and self.often(0.2):
            constraint["minDomains"] = self.random.randint(1, 4)
        if self.often(0.3):
            constraint["nodeAffinityPolicy"] = self.pick(("Honor", "Ignore"))
        if self.often(0.3):
            constraint["nodeTaintsPolicy"] = self.pick(("Honor", "Ignore"))
        if self.often(0.2):
            constraint["matchLabelKeys"] = ["app"]
        return constraint

    # -- configuration --------------------------------------------------------------

    def plugins(self) -> list[str]:
        """Which plugins are on, in order."""
        plugins = ["priority", "gang", "conformance", "overcommit", "drf", "predicates", "proportion", "nodeorder"]
        if self.often(0.3):
            plugins.append("binpack")
        if self.often(0.3):
            optional = ["gang", "overcommit", "drf", "proportion", "nodeorder", "priority", "predicates"]
            plugins = [name for name in plugins if name not in self.random.sample(optional, 2)]
        if self.often(0.2):
            self.random.shuffle(plugins)
        return plugins

    def actions(self) -> str:
        """Which actions there are, in order."""
        return self.pick(("enqueue, allocate, backfill", "allocate, backfill", "enqueue, allocate", "allocate"))

    def conf(self) -> str:
        actions = self.actions()
        plugins = self.plugins()
        cut = self.random.randint(0, len(plugins) - 1)
        lines = [f'actions: "{actions}"', "tiers:"]
        for tier in (plugins[:cut], plugins[cut:]):
            if tier:
                lines.append("- plugins:")
                for name in tier:
                    lines.extend(self.plugin_lines(name))
        return "\n".join(lines) + "\n"

    def plugin_lines(self, name: str) -> list[str]:
        lines = [f"  - name: {name}"]
        if self.uses("flags", 0.3):
            keys = self.random.sample(self.flags, self.random.randint(1, 3))
            lines += [f"    {key}: {self.pick(('true', 'false', 'false'))}" for key in keys]
        arguments = self.arguments(name)
        if arguments:
            lines += ["    arguments:", *[f"      {key}: {value}" for key, value in arguments.items()]]
        return lines

    def arguments(self, name: str) -> dict[str, Any]:
        if name == "overcommit" and self.often(0.4):
            return {"overcommit-factor": self.pick((0.5, 1.0, 1.5, 2))}
        if name == "predicates" and self.has["flags"]:
            return {f"predicate.{flag}": "false" for flag in PREDICATE_FLAGS if self.often(0.2)}
        if name == "nodeorder" and self.often(0.5):
            return {f"{key}.weight": self.random.randint(0, 5) for key in SCORE_WEIGHTS if self.often(0.6)}
        if name == "binpack":
            found: dict[str, Any] = {
                "binpack.weight": self.random.randint(0, 10),
                "binpack.cpu": self.random.randint(0, 3),
            }
            if self.has["gpu"]:
                found.update({"binpack.resources": GPU, f"binpack.resources.{GPU}": self.random.randint(0, 8)})
            return found
        return {}

    def make(self) -> list[Manifest]:
        self.make_namespaces()
        self.make_nodes()
        self.make_classes()
        queues = self.make_queues()
        if self.has["volumes"]:
            self.make_storage()
        if self.has["full"]:
            self.make_fillers(queues)
        if self.has["loose"] and self.often(0.4):
            self.make_loose_pods()
        for number in range(self.random.randint(1, 8 if self.has["crowded"] else 5)):
            self.make_job(number, queues)
        return self.objects


_FEATURES = (
    "crowded", "full", "gpu", "zones", "taints", "images", "priorities", "quota", "closed", "namespaces", "roles",
    "terminating", "gates", "loose", "init", "selectors", "affinity", "spread", "volumes", "besteffort", "ports",
    "flags",
)  # fmt: skip


def random_case(seed: int) -> RandomCase:
    """The case of a seed."""
    maker = Maker(seed)
    objects = maker.make()
    return RandomCase(seed, maker.conf(), objects)
