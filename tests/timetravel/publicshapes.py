"""Small manifests in the shapes that public repositories have, and what each comes to. A table: add a row."""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.dsl import Manifest

ONE: Manifest = {"name": "c", "image": "registry.example/work:1", "resources": {"requests": {"cpu": "100m"}}}
SPEC: Manifest = {"containers": [ONE]}
POD: Manifest = {"metadata": {"labels": {"app": "a"}}, "spec": SPEC}
SELECTOR: Manifest = {"matchLabels": {"app": "a"}}
SET: Manifest = {"selector": SELECTOR, "template": POD}
VOLCANO = "scheduling.volcano.sh/v1beta1"
KUBEFLOW = "kubeflow.org/v1"


class Shape(NamedTuple):
    """Manifests, how many pods they make, and the beginning of each line that is printed about them."""

    manifests: list[Manifest]
    pods: int = 0
    told: tuple[str, ...] = ()


def obj(version: str, kind: str, name: str = "w", spec: Any = None, **more: Any) -> Manifest:
    meta = {"name": name, **more.pop("meta", {})}
    return {"apiVersion": version, "kind": kind, "metadata": meta, **({} if spec is None else {"spec": spec}), **more}


def pod(name: str = "p", meta: Any = None, **spec: Any) -> Manifest:
    return obj("v1", "Pod", name, {**SPEC, **spec}, meta=meta or {})


def grouped(name: str, group: str) -> Manifest:
    return pod(name, {"annotations": {"scheduling.k8s.io/group-name": group}})


def roles(**counts: int) -> Manifest:
    return {role: {"replicas": count, "restartPolicy": "Never", "template": POD} for role, count in counts.items()}


def training(kind: str, member: str, policy: Manifest | None = None, **counts: int) -> Manifest:
    return obj(KUBEFLOW, kind, spec={member: roles(**counts), **({"runPolicy": policy} if policy else {})})


def printed(manifest: Manifest, **status: Any) -> Manifest:
    """As kubectl get -o yaml prints it."""
    meta = {"uid": "8c1f2a3b-0000-4111-8222-333344445555", "resourceVersion": "12", "generation": 1}
    meta |= {"creationTimestamp": "2026-01-01T00:00:00Z", "managedFields": [{"manager": "kubectl", "fieldsV1": {}}]}
    return {**manifest, "metadata": {**meta, **manifest["metadata"]}, "status": status}


def owned(manifest: Manifest, owner: Manifest) -> Manifest:
    reference = {key: owner[key] for key in ("apiVersion", "kind")} | {"name": owner["metadata"]["name"], "uid": "u"}
    meta = {**manifest["metadata"], "ownerReferences": [{**reference, "controller": True}]}
    return {**manifest, "metadata": meta}


def volcano_job(*counts: int, **spec: Any) -> Manifest:
    tasks = [{"name": f"t{index}", "replicas": count, "template": POD} for index, count in enumerate(counts)]
    spec = {"schedulerName": "volcano", "minAvailable": sum(counts), "tasks": tasks, **spec}
    return obj("batch.volcano.sh/v1alpha1", "Job", spec=spec)


def job(**spec: Any) -> Manifest:
    return obj("batch/v1", "Job", spec={"template": {"spec": {**SPEC, "restartPolicy": "Never"}}, **spec})


def lists(kind: str, *items: Manifest) -> Manifest:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"resourceVersion": ""}, "items": [*items]}


def ray(**workers: int) -> Manifest:
    groups = [
        {"groupName": name, "replicas": count, "rayStartParams": {}, "template": POD} for name, count in workers.items()
    ]
    return {"rayVersion": "2.9.0", "headGroupSpec": {"rayStartParams": {}, "template": POD}, "workerGroupSpecs": groups}


def spark(driver: Manifest, executor: Manifest) -> Manifest:
    spec = {"type": "Scala", "mode": "cluster", "sparkVersion": "3.5.0", "driver": driver, "executor": executor}
    return obj("sparkoperator.k8s.io/v1beta2", "SparkApplication", spec=spec)


DEPLOYMENT = obj("apps/v1", "Deployment", spec={"replicas": 3, **SET})
REPLICAS = owned(obj("apps/v1", "ReplicaSet", "w-abc", {"replicas": 2, **SET}), DEPLOYMENT)
LAUNCHED = [owned(printed(pod(f"w-abc-{n}"), phase="Pending"), REPLICAS) for n in "xy"]
QUEUE = obj(VOLCANO, "Queue", "q", {"weight": 1, "capability": {"cpu": "4"}})
GROUP = obj(VOLCANO, "PodGroup", "g", {"minMember": 2})
LAST = {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"}}
RAY = "ray.io/v1"
LEADERS: Manifest = {"size": 4, "workerTemplate": POD}
TEAM = obj("v1", "Namespace", "team")
HIGH = obj("scheduling.k8s.io/v1", "PriorityClass", "high", value=1000)

SHAPES: dict[str, Shape] = {
    # --- Kubernetes' own workloads
    "a pod": Shape([pod()], 1),
    "a pod with two containers": Shape([pod(containers=[ONE, {**ONE, "name": "d"}])], 1),
    "a pod with an init container": Shape([pod(initContainers=[{**ONE, "name": "i"}])], 1),
    "a pod of another scheduler": Shape([pod(schedulerName="default-scheduler")], 1),
    "a pod with a volume": Shape([pod(volumes=[{"name": "v", "emptyDir": {}}])], 1),
    "a pod on the host's network": Shape([pod(hostNetwork=True)], 1),
    "a pod with tolerations": Shape([pod(tolerations=[{"operator": "Exists"}])], 1),
    "a deployment": Shape([DEPLOYMENT], 3),
    "a deployment without replicas": Shape([obj("apps/v1", "Deployment", spec=SET)], 1),
    "a deployment of none": Shape([obj("apps/v1", "Deployment", spec={"replicas": 0, **SET})]),
    "a replica set": Shape([obj("apps/v1", "ReplicaSet", spec={"replicas": 2, **SET})], 2),
    "a replication controller": Shape([obj("v1", "ReplicationController", spec={"replicas": 2, "template": POD})], 2),
    "a stateful set": Shape([obj("apps/v1", "StatefulSet", spec={"serviceName": "s", "replicas": 3, **SET})], 3),
    "a daemon set": Shape([obj("apps/v1", "DaemonSet", spec=SET)], 2),
    "a daemon set of some nodes": Shape(
        [obj("apps/v1", "DaemonSet", spec={"template": {"spec": {**SPEC, "nodeSelector": {"pool": "gpu"}}}})], 1
    ),
    "a daemon set that tolerates all": Shape(
        [obj("apps/v1", "DaemonSet", spec={"template": {"spec": {**SPEC, "tolerations": [{"operator": "Exists"}]}}})], 3
    ),
    "a job": Shape([job()], 1),
    "a parallel job": Shape([job(parallelism=4, completions=4)], 4),
    "an indexed job": Shape([job(parallelism=2, completions=8, completionMode="Indexed")], 2),
    "a suspended job": Shape([job(suspend=True)]),
    "a cron job": Shape(
        [obj("batch/v1", "CronJob", spec={"schedule": "* * * * *", "jobTemplate": {"spec": job()["spec"]}})], 1
    ),
    "a suspended cron job": Shape(
        [obj("batch/v1", "CronJob", spec={"suspend": True, "jobTemplate": {"spec": job()["spec"]}})]
    ),
    # --- Volcano
    "a volcano job": Shape([volcano_job(1, 3)], 4),
    "a volcano job with a smaller minimum": Shape([volcano_job(4, minAvailable=2)], 4),
    "a volcano job with plugins": Shape([volcano_job(2, plugins={"ssh": [], "svc": []}, maxRetry=3)], 2),
    "a volcano job with policies": Shape(
        [volcano_job(2, policies=[{"event": "PodEvicted", "action": "RestartJob"}])], 2
    ),
    "a volcano job of a queue": Shape([QUEUE, volcano_job(2, queue="q")], 2),
    "a volcano job before its queue": Shape([volcano_job(2, queue="q"), QUEUE], 2),
    "a volcano cron job": Shape(
        [
            obj(
                "batch.volcano.sh/v1alpha1",
                "CronJob",
                spec={"schedule": "@daily", "jobTemplate": {"spec": volcano_job(2)["spec"]}},
            )
        ],
        2,
    ),
    "a gang of plain pods": Shape([GROUP, grouped("a", "g"), grouped("b", "g")], 2),
    "a queue alone": Shape([QUEUE]),
    "the default queue": Shape([obj(VOLCANO, "Queue", "default", {"weight": 1, "capability": {"cpu": "4"}}), pod()], 1),
    "the root queue": Shape([obj(VOLCANO, "Queue", "root", {"weight": 1}), pod()], 1),
    "a queue without a version": Shape([{"kind": "Queue", "metadata": {"name": "x"}, "spec": {"weight": 2}}, pod()], 1),
    "a command": Shape([obj("bus.volcano.sh/v1alpha1", "Command", action="CloseQueue"), pod()], 1),
    "a hyper node": Shape([obj("topology.volcano.sh/v1alpha1", "HyperNode", spec={"tier": 1}), pod()], 1),
    "a typo in a volcano job": Shape(
        [volcano_job(2, minAvailble=2)],
        2,
        ("Job default/w: spec.minAvailble is not a field; did you mean minAvailable?",),
    ),
    "a typo in a queue": Shape(
        [obj(VOLCANO, "Queue", "x", {"wieght": 1}), pod()], 1, ("Queue x: spec.wieght is not a field",)
    ),
    "a job flow": Shape(
        [obj("flow.volcano.sh/v1alpha1", "JobFlow", spec={"flows": [{"name": "a"}]}), pod()],
        1,
        ("JobFlow of API group flow.volcano.sh is not understood: default/w; it has no pod template",),
    ),
    "a minimum above the replicas": Shape(
        [volcano_job(2, minAvailable=9), pod()], 1, ("Job default/w: spec.minAvail",)
    ),
    # --- training
    "a pytorch job": Shape([training("PyTorchJob", "pytorchReplicaSpecs", Master=1, Worker=3)], 4),
    "a pytorch job with a minimum": Shape(
        [training("PyTorchJob", "pytorchReplicaSpecs", {"schedulingPolicy": {"minAvailable": 2}}, Master=1, Worker=3)],
        4,
    ),
    "a suspended pytorch job": Shape([training("PyTorchJob", "pytorchReplicaSpecs", {"suspend": True}, Master=1)]),
    "a pytorch job of a queue": Shape(
        [QUEUE, training("PyTorchJob", "pytorchReplicaSpecs", {"schedulingPolicy": {"queue": "q"}}, Worker=2)], 2
    ),
    "a tf job": Shape([training("TFJob", "tfReplicaSpecs", Chief=1, PS=2, Worker=4)], 7),
    "an mpi job": Shape([training("MPIJob", "mpiReplicaSpecs", Launcher=1, Worker=2)], 3),
    "an mpi job of v2": Shape(
        [
            obj(
                "kubeflow.org/v2beta1",
                "MPIJob",
                spec={"slotsPerWorker": 1, "mpiReplicaSpecs": roles(Launcher=1, Worker=2)},
            )
        ],
        3,
    ),
    "an xgboost job": Shape([training("XGBoostJob", "xgbReplicaSpecs", Master=1, Worker=2)], 3),
    "an mx job": Shape([training("MXJob", "mxReplicaSpecs", Scheduler=1, Server=1, Worker=1)], 3),
    "a paddle job": Shape([training("PaddleJob", "paddleReplicaSpecs", Worker=2)], 2),
    "a jax job": Shape([training("JAXJob", "jaxReplicaSpecs", Worker=2)], 2),
    "a pytorch job without replicas": Shape(
        [obj(KUBEFLOW, "PyTorchJob", spec={"pytorchReplicaSpecs": {"Worker": {"template": POD}}})], 1
    ),
    "a pytorch job without a template": Shape(
        [obj(KUBEFLOW, "PyTorchJob", spec={"pytorchReplicaSpecs": {"Worker": {"replicas": 1}}}), pod()],
        1,
        ("PyTorchJob default/w: spec.pytorchReplicaSpecs.Worker.template has no spec.containers",),
    ),
    "a notebook": Shape([obj("kubeflow.org/v1beta1", "Notebook", spec={"template": POD})], 1),
    "a train job": Shape(
        [obj("trainer.kubeflow.org/v1alpha1", "TrainJob", spec={"runtimeRef": {"name": "torch"}}), pod()],
        1,
        ("TrainJob of API group trainer.kubeflow.org is not understood: default/w; it has no pod template",),
    ),
    # --- Ray, Spark, sets of sets
    "a ray cluster": Shape([obj(RAY, "RayCluster", spec=ray(small=2, large=1))], 4),
    "a ray cluster of old": Shape([obj("ray.io/v1alpha1", "RayCluster", spec=ray(small=1))], 2),
    "a ray cluster without workers": Shape([obj(RAY, "RayCluster", spec=ray())], 1),
    "a ray cluster of hosts": Shape(
        [
            obj(
                RAY,
                "RayCluster",
                spec={
                    **ray(),
                    "workerGroupSpecs": [{"groupName": "tpu", "replicas": 2, "numOfHosts": 2, "template": POD}],
                },
            )
        ],
        5,
    ),
    "a ray cluster that grows": Shape(
        [
            obj(
                RAY,
                "RayCluster",
                spec={
                    **ray(),
                    "workerGroupSpecs": [{"groupName": "w", "minReplicas": 2, "maxReplicas": 9, "template": POD}],
                },
            )
        ],
        3,
    ),
    "a suspended ray cluster": Shape([obj(RAY, "RayCluster", spec={"suspend": True, **ray(small=1)})]),
    "a ray job": Shape([obj(RAY, "RayJob", spec={"entrypoint": "python a.py", "rayClusterSpec": ray(small=2)})], 3),
    "a ray job on a cluster": Shape([obj(RAY, "RayJob", spec={"clusterSelector": {"ray.io/cluster": "c"}})]),
    "a ray service": Shape([obj(RAY, "RayService", spec={"rayClusterConfig": ray(small=1)})], 2),
    "a spark application": Shape(
        [spark({"cores": 1, "memory": "512m"}, {"cores": 1, "instances": 2, "memory": "1g"})], 3
    ),
    "a spark application with fractions": Shape(
        [spark({"coreRequest": "100m"}, {"coreRequest": "200m", "coreLimit": "1"})], 2
    ),
    "a spark application with templates": Shape([spark({"template": POD}, {"instances": 2, "template": POD})], 3),
    "a spark application with odd memory": Shape(
        [spark({"memory": "much"}, {}), pod()], 1, ("SparkApplication default/w: resources of",)
    ),
    "a spark application by the clock": Shape(
        [
            obj(
                "sparkoperator.k8s.io/v1beta2",
                "ScheduledSparkApplication",
                spec={"schedule": "@daily", "template": spark({}, {"instances": 2})["spec"]},
            )
        ],
        3,
    ),
    "a ray job by the clock": Shape(
        [obj(RAY, "RayCronJob", spec={"schedule": "@daily", "jobTemplate": {"rayClusterSpec": ray(small=1)}})], 2
    ),
    "a job set": Shape(
        [
            obj(
                "jobset.x-k8s.io/v1alpha2",
                "JobSet",
                spec={
                    "replicatedJobs": [
                        {"name": "driver", "template": {"spec": job()["spec"]}},
                        {"name": "workers", "replicas": 2, "template": {"spec": job(parallelism=3)["spec"]}},
                    ]
                },
            )
        ],
        7,
    ),
    "a job set with completions": Shape(
        [
            obj(
                "jobset.x-k8s.io/v1alpha2",
                "JobSet",
                spec={
                    "replicatedJobs": [
                        {"name": "few", "replicas": 2, "template": {"spec": job(parallelism=3, completions=1)["spec"]}},
                        {
                            "name": "many",
                            "replicas": 2,
                            "template": {"spec": job(parallelism=2, completions=9)["spec"]},
                        },
                    ]
                },
            )
        ],
        6,
    ),
    "a job set with too many pods": Shape(
        [
            obj(
                "jobset.x-k8s.io/v1alpha2",
                "JobSet",
                spec={"replicatedJobs": [{"name": "w", "replicas": 99_999, "template": {"spec": job()["spec"]}}]},
            ),
            pod(),
        ],
        1,
        ("JobSet default/w: it makes 99,999 pods (spec.replicatedJobs[0].replicas 99999); make them 20,000 at most",),
    ),
    "a leader worker set with too many pods": Shape(
        [
            obj(
                "leaderworkerset.x-k8s.io/v1",
                "LeaderWorkerSet",
                spec={"replicas": 99_999, "leaderWorkerTemplate": {**LEADERS, "size": 2}},
            ),
            pod(),
        ],
        1,
        ("LeaderWorkerSet default/w: it makes 199,998 pods (spec.replicas 99999, spec.leaderWorkerTemplate.size 2);",),
    ),
    "a suspended job set": Shape(
        [obj("jobset.x-k8s.io/v1alpha2", "JobSet", spec={"suspend": True, "replicatedJobs": []})]
    ),
    "a leader worker set": Shape(
        [obj("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", spec={"replicas": 2, "leaderWorkerTemplate": LEADERS})],
        8,
    ),
    "a leader worker set with a leader": Shape(
        [
            obj(
                "leaderworkerset.x-k8s.io/v1",
                "LeaderWorkerSet",
                spec={"leaderWorkerTemplate": {**LEADERS, "leaderTemplate": POD}},
            )
        ],
        4,
    ),
    "leaders alone": Shape(
        [obj("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", spec={"leaderWorkerTemplate": {"workerTemplate": POD}})],
        1,
    ),
    "a clone set": Shape([obj("apps.kruise.io/v1alpha1", "CloneSet", spec={"replicas": 2, **SET})], 2),
    "an advanced stateful set": Shape([obj("apps.kruise.io/v1beta1", "StatefulSet", spec={"replicas": 2, **SET})], 2),
    # --- other kinds that make pods
    "a rollout": Shape(
        [obj("argoproj.io/v1alpha1", "Rollout", spec={"replicas": 2, **SET}), pod()],
        1,
        ("Rollout of API group argoproj.io is not understood: default/w; spec.template looks like a pod template",),
    ),
    "a workflow": Shape(
        [obj("argoproj.io/v1alpha1", "Workflow", spec={"templates": [{"container": ONE}]}), pod()], 1, ("Workflow of",)
    ),
    "a serverless service": Shape(
        [obj("serving.knative.dev/v1", "Service", spec={"template": POD}), pod()],
        1,
        ("Service of API group serving.kn",),
    ),
    "a wrapped job": Shape(
        [obj("workload.codeflare.dev/v1beta2", "AppWrapper", spec={"components": [{"template": job()}]}), pod()],
        1,
        ("AppWrapper of API group workload.codeflare.dev is not understood: default/w; spec.components[0].template",),
    ),
    "a model server": Shape(
        [obj("serving.kserve.io/v1beta1", "InferenceService", spec={"predictor": {"model": {}}}), pod()],
        1,
        ("InferenceService of",),
    ),
    "a database": Shape(
        [obj("postgresql.cnpg.io/v1", "Cluster", spec={"instances": 3}), pod()], 1, ("Cluster of API group",)
    ),
    "three of one unknown kind": Shape(
        [*(obj("x.com/v1", "Thing", name) for name in "abc"), pod()],
        1,
        ("Thing of API group x.com is not understood: default/a, default/b, default/c",),
    ),
    "a deployment of old": Shape(
        [obj("extensions/v1beta1", "Deployment", spec=SET), pod()], 1, ("Deployment of API group extensions is not",)
    ),
    "a kind without a version": Shape(
        [{"kind": "Thing", "metadata": {"name": "t"}}, pod()], 1, ("Thing of no apiVersion",)
    ),
    # --- kinds that make none
    **{
        f"beside a {kind}": Shape([obj(version, kind, spec={}), pod()], 1)
        for version, kind in (
            ("v1", "ConfigMap"),
            ("v1", "Secret"),
            ("v1", "Service"),
            ("v1", "ServiceAccount"),
            ("v1", "Endpoints"),
            ("rbac.authorization.k8s.io/v1", "ClusterRole"),
            ("rbac.authorization.k8s.io/v1", "RoleBinding"),
            ("networking.k8s.io/v1", "Ingress"),
            ("networking.k8s.io/v1", "NetworkPolicy"),
            ("gateway.networking.k8s.io/v1", "HTTPRoute"),
            ("autoscaling/v2", "HorizontalPodAutoscaler"),
            ("cert-manager.io/v1", "Certificate"),
            ("monitoring.coreos.com/v1", "ServiceMonitor"),
            ("kueue.x-k8s.io/v1beta1", "ClusterQueue"),
            ("kueue.x-k8s.io/v1beta1", "LocalQueue"),
            ("kustomize.config.k8s.io/v1beta1", "Kustomization"),
            ("resource.k8s.io/v1", "ResourceClaimTemplate"),
        )
    },
    # --- what a cluster's objects stand for
    "a namespace that is not given": Shape([pod(meta={"namespace": "research"})], 1),
    "a namespace of its own": Shape([TEAM, pod(meta={"namespace": "team"})], 1),
    "the default namespace": Shape([obj("v1", "Namespace", "default"), pod()], 1),
    "a priority class": Shape([HIGH, pod(priorityClassName="high")], 1),
    "a system class": Shape([pod(priorityClassName="system-node-critical")], 1),
    "a system class of its own": Shape(
        [obj("scheduling.k8s.io/v1", "PriorityClass", "system-node-critical", value=2000001000), pod()], 1
    ),
    "a limit range": Shape(
        [
            obj("v1", "LimitRange", spec={"limits": [{"type": "Container", "max": {"cpu": "50m"}}]}),
            pod(),
            pod("q", {"namespace": "x"}),
        ],
        1,
        ("the API server refuses 1 pod (default/p): container c requests 100m of cpu, above its limit of 50m",),
    ),
    "a runtime class that is not given": Shape(
        [pod(runtimeClassName="gvisor")], 1, ("there is no RuntimeClass gvisor",)
    ),
    "a runtime class": Shape(
        [obj("node.k8s.io/v1", "RuntimeClass", "gvisor", handler="runsc"), pod(runtimeClassName="gvisor")], 1
    ),
    "a claim": Shape([obj("v1", "PersistentVolumeClaim", spec={"accessModes": ["ReadWriteOnce"]}), pod()], 1),
    # --- how they are given
    "a generated name": Shape([{**pod(), "metadata": {"generateName": "p-"}}], 1),
    "generated names beside a given one": Shape(
        [*({**job(), "metadata": {"generateName": "w-"}} for _ in "ab"), pod("w-1")], 3
    ),
    "a list": Shape([lists("List", pod("a"), pod("b"))], 2),
    "a typed list": Shape(
        [lists("PodList", *({key: value for key, value in pod(name).items() if key != "kind"} for name in "ab"))], 2
    ),
    "a list in a list": Shape([lists("List", lists("List", pod("a")), pod("b"))], 2),
    "an empty list": Shape([lists("List"), pod()], 1),
    "one object twice": Shape([pod(), pod()], 1, ("Pod default/p: it is given twice",)),
    "as it was applied": Shape([{**pod(), "metadata": {"name": "p", **LAST}}], 1),
    "as a cluster prints it": Shape([printed(DEPLOYMENT, replicas=3, readyReplicas=3)], 3),
    "a printed queue": Shape([printed(QUEUE, state="Open", allocated={"cpu": "0"}), volcano_job(1, queue="q")], 1),
    "a printed group": Shape([printed(GROUP, phase="Pending"), grouped("a", "g"), grouped("b", "g")], 2),
    "a printed deployment with all that it made": Shape([lists("List", DEPLOYMENT, REPLICAS, *LAUNCHED)], 2),
    "a pod of a group that is not given": Shape(
        [grouped("a", "g"), pod()],
        1,
        ("there is no PodGroup default/g: Pod default/a, metadata.annotations[scheduling",),
    ),
    "a deployment of a group that is not given": Shape(
        [
            obj("apps/v1", "Deployment", spec={"template": {"metadata": grouped("a", "g")["metadata"], "spec": SPEC}}),
            pod(),
        ],
        1,
        ("there is no PodGroup default/g: Deployment default/w, spec.template.metadata.annotations[",),
    ),
    "executors of a group that is not given": Shape(
        [spark({}, {"annotations": grouped("a", "g")["metadata"]["annotations"]}), pod()],
        1,
        ("there is no PodGroup default/g: SparkApplication default/w, spec.executor",),
    ),
    "a volcano job whose template names a group": Shape(
        [volcano_job(1, tasks=[{"replicas": 1, "template": {**POD, "metadata": grouped("a", "g")["metadata"]}}])], 1
    ),
    "a pod that cannot be": Shape([pod("bad", nodeSelector="x"), pod()], 1, ("Pod default/bad: ",)),
    "a number that is a word": Shape(
        [obj("apps/v1", "Deployment", spec={"replicas": "many", **SET}), pod()], 1, ("Deployment default/w: spec.rep",)
    ),
    "a workload without containers": Shape(
        [obj("apps/v1", "StatefulSet", spec={}), pod()], 1, ("StatefulSet default/w: spec.template",)
    ),
    "a quantity that is none": Shape(
        [obj(VOLCANO, "Queue", "x", {"capability": {"cpu": "lots"}}), pod()], 1, ("Queue x: ",)
    ),
}
