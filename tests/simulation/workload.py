"""Acts of users and administrators: nodes, queues, groups and pods are created, changed and deleted."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from tests.e2e.cluster import GROUPS, QUEUES, group, node, pod
from vcd.embedded.controllers.controller_base import COMMANDS, DEPLOYMENTS, JOBS, annotations_of
from vcd.embedded.controllers.pod_properties import add_quotas, quota_usage
from vcd.embedded.resource_types import PDBS, PRIORITY_CLASSES
from vcd.embedded.status_errors import StatusError
from vcd.model.controllers import GROUP_NAME

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

Obj = dict[str, Any]
HYPER_NODES = "hypernodes.topology.volcano.sh"
GATE = "simulation/gate"
"""A scheduling gate that a user removes later."""
RESOURCES = {
    "pod": "pods", "group": GROUPS, "job": JOBS, "queue": QUEUES, "node": "nodes", "deployment": DEPLOYMENTS,
    "budget": PDBS, "quota": "resourcequotas", "class": PRIORITY_CLASSES, "namespace": "namespaces",
    "claim": "persistentvolumeclaims", "hypernode": HYPER_NODES,
}  # fmt: skip
"""Short names of resources in acts."""


@contextlib.contextmanager
def refusable() -> Iterator[None]:
    """Suppress the refusal of a user's request, as when the name exists or the object to delete does not."""
    with contextlib.suppress(StatusError):
        yield


# --- the cluster ------------------------------------------------------------------------------------------------------


def add_node(sim: Simulation, name: str, cpu: int, more: Obj | None = None) -> None:
    """A node joins. ``more`` has its ``labels``, resources other than cpu and memory (``room``), and ``taints``."""
    more = more or {}
    made = node(name, cpu)
    made["metadata"]["labels"].update(more.get("labels") or {})
    for amounts in (made["status"]["allocatable"], made["status"]["capacity"]):
        amounts.update(more.get("room") or {})
    if more.get("taints"):
        made["spec"] = {"taints": list(more["taints"])}
    with refusable():
        sim.store.create("nodes", made)


def add_class(sim: Simulation, name: str, value: int, more: Obj | None = None) -> None:
    """An administrator creates a PriorityClass."""
    with refusable():
        sim.store.create(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value, **(more or {})})


def add_namespace(sim: Simulation, name: str) -> None:
    """An administrator creates a namespace."""
    with refusable():
        sim.store.create("namespaces", {"metadata": {"name": name}})


def add_hyper_node(sim: Simulation, name: str, spec: Obj) -> None:
    """An administrator creates a HyperNode."""
    with refusable():
        sim.store.create(HYPER_NODES, {"metadata": {"name": name}, "spec": spec})


def add_storage(sim: Simulation, name: str, mode: str) -> None:
    """An administrator creates a StorageClass with dynamic provisioning."""
    made = {"metadata": {"name": name}, "provisioner": "disk.example", "volumeBindingMode": mode}
    with refusable():
        sim.store.create("storageclasses.storage.k8s.io", made)


# --- queues and limits ------------------------------------------------------------------------------------------------


def add_queue(sim: Simulation, name: str, spec: Obj, annotations: dict[str, str] | None = None) -> None:
    """An administrator creates a queue."""
    with refusable():
        sim.store.create(QUEUES, {"metadata": {"name": name, "annotations": annotations or {}}, "spec": spec})


def command(sim: Simulation, action: str, kind: str, name: str) -> None:
    """A user sends a command to a Queue (OpenQueue, CloseQueue) or a Job (AbortJob, ResumeJob, ...), as vcctl does."""
    where = sim.store.find(RESOURCES[kind.lower()], "default", name)
    if where is None:
        return
    target = {"apiVersion": where["apiVersion"], "kind": kind, "name": name, "uid": where["metadata"]["uid"]}
    made = {"metadata": {"generateName": f"{name}-", "namespace": "default"}, "target": target, "action": action}
    with refusable():
        sim.store.create(COMMANDS, made)


def add_budget(sim: Simulation, name: str, spec: Obj) -> None:
    """A user protects pods by a PodDisruptionBudget."""
    with refusable():
        sim.store.create(PDBS, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})


def set_quota(sim: Simulation, name: str, namespace: str, hard: dict[str, str]) -> None:
    """An administrator creates or changes a ResourceQuota, and its controller counts the existing objects."""
    with refusable():
        if sim.store.find("resourcequotas", namespace, name) is None:
            sim.store.create("resourcequotas", {"metadata": {"name": name, "namespace": namespace}})
        sim.store.patch("resourcequotas", namespace, name, {"spec": {"hard": hard}})
        count_quota(sim, name, namespace)


def count_quota(sim: Simulation, name: str, namespace: str) -> None:
    """The ResourceQuota's controller counts again, with its maximum delay."""
    quota = sim.store.find("resourcequotas", namespace, name)
    if quota is None:
        return
    hard = (quota.get("spec") or {}).get("hard") or {}
    pods = [each for each in sim.store.list("pods", namespace) if each["status"].get("phase") in ("Pending", "Running")]
    used = add_quotas(quota_usage(each["spec"], 1) for each in pods)
    status = {"hard": hard, "used": {what: used.get(what, "0") for what in hard}}
    with refusable():
        sim.store.patch("resourcequotas", namespace, name, {"status": status}, "status")


# --- work -------------------------------------------------------------------------------------------------------------


def _pod(name: str, gang: str, cpu: int, more: Obj) -> Obj:
    """Return a pod of a gang, or of none.

    ``cpu`` 0 requests nothing. ``more``: ``namespace``, ``annotations``, ``labels``, ``requests`` (other than cpu and
    memory), ``spec``.
    """
    made = pod(name, gang, cpu, **(more.get("spec") or {}))
    metadata, container = made["metadata"], made["spec"]["containers"][0]
    metadata["namespace"] = more.get("namespace", "default")
    metadata["labels"] = {"gang": gang, **(more.get("labels") or {})}
    metadata["annotations"].update(more.get("annotations") or {})
    if not gang:
        del metadata["annotations"][GROUP_NAME]
        metadata["labels"]["gang"] = name
    asked = {**(container["resources"]["requests"] if cpu else {}), **(more.get("requests") or {})}
    extended = {what: amount for what, amount in asked.items() if "/" in what}
    container["resources"] = {"requests": asked, **({"limits": extended} if extended else {})}
    return made


def submit(sim: Simulation, name: str, minimum: int, pods: int, cpu: int, spec: Obj, more: Obj | None = None) -> None:
    """A user submits a group and its pods.

    ``spec`` has further fields of the group, ``more`` the arguments of `_pod`, ``group`` (annotations of the group),
    and ``claim`` (the class of a disk for each pod).
    """
    more = more or {}
    made = group(name, minimum, **spec)
    made["metadata"]["namespace"] = more.get("namespace", "default")
    made["metadata"]["annotations"] = dict(more.get("group") or {})
    with refusable():
        sim.store.create(GROUPS, made)
    add_pods(sim, name, 0, pods, cpu, more)


def add_pods(sim: Simulation, gang: str, first: int, count: int, cpu: int, more: Obj) -> None:
    """Create pods of a gang, the first with this number; existing pods remain."""
    for number in range(first, first + count):
        made = _pod(f"{gang}-{number}", gang, cpu, more)
        if more.get("claim"):
            _claim(sim, made, more["claim"])
        with refusable():
            sim.store.create("pods", made)


def _claim(sim: Simulation, made: Obj, storage: str) -> None:
    namespace, name = made["metadata"]["namespace"], made["metadata"]["name"]
    asked = {"resources": {"requests": {"storage": "1Gi"}}, "accessModes": ["ReadWriteOnce"]}
    claim = {"metadata": {"name": name, "namespace": namespace}, "spec": {**asked, "storageClassName": storage}}
    with refusable():
        sim.store.create("persistentvolumeclaims", claim)
    made["spec"]["volumes"] = [{"name": "disk", "persistentVolumeClaim": {"claimName": name}}]


def submit_roles(
    sim: Simulation, name: str, roles: list[tuple[str, int, int, int]], spec: Obj, more: Obj | None = None
) -> None:
    """A user submits a group with a minimum for each role: (role, minimum, pods, cpu) of each."""
    more = more or {}
    minimum = sum(least for _, least, _, _ in roles)
    least_of = {role: least for role, least, _, _ in roles}
    submit(sim, name, minimum, 0, 1, {"minTaskMember": least_of, **spec}, more)
    first = 0
    for role, _, pods, cpu in roles:
        marks = {**(more.get("annotations") or {}), "volcano.sh/task-spec": role}
        add_pods(sim, name, first, pods, cpu, {**more, "annotations": marks})
        first += pods


def submit_bare(sim: Simulation, name: str, pods: int, cpu: int, more: Obj | None = None) -> None:
    """A user submits pods without a group; a controller creates one for each."""
    for number in range(pods):
        with refusable():
            sim.store.create("pods", _pod(f"{name}-{number}", "", cpu, more or {}))


def submit_job(
    sim: Simulation, name: str, minimum: int, roles: list[tuple[str, int, int, int]], spec: Obj, more: Obj | None = None
) -> None:
    """A user submits a Volcano Job: (role, minimum, pods, cpu) of each task; ``spec`` has further fields of the Job."""
    tasks = []
    for role, least, pods, cpu in roles:
        made = _pod(role, name, cpu, more or {})
        metadata = {"labels": made["metadata"]["labels"], "annotations": annotations_of(made)}
        metadata["annotations"].pop(GROUP_NAME)
        template = {"metadata": metadata, "spec": {**made["spec"], "restartPolicy": "Never"}}
        tasks.append({"name": role, "replicas": pods, "minAvailable": least, "template": template})
    made = {"minAvailable": minimum, "schedulerName": "volcano", "queue": "default", "tasks": tasks, **spec}
    with refusable():
        sim.store.create(JOBS, {"metadata": {"name": name, "namespace": "default"}, "spec": made})


def submit_deployment(sim: Simulation, name: str, replicas: int, cpu: int, more: Obj | None = None) -> None:
    """A user submits a Deployment, whose pods are one group."""
    made = _pod(name, "", cpu, more or {})
    metadata = {"labels": made["metadata"]["labels"], "annotations": annotations_of(made)}
    template = {"metadata": metadata, "spec": {**made["spec"], "restartPolicy": "Always"}}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"gang": name}}, "template": template}
    with refusable():
        sim.store.create(DEPLOYMENTS, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})


def scale_job(sim: Simulation, name: str, replicas: int, minimum: int) -> None:
    """A user changes the number of pods of a Job's first task, and the Job's minimum."""
    job = sim.store.find(JOBS, "default", name)
    if job is not None:
        first, *others = job["spec"]["tasks"]
        first = {**first, "replicas": replicas, "minAvailable": min(replicas, first.get("minAvailable", 0))}
        with refusable():
            sim.store.patch(JOBS, "default", name, {"spec": {"minAvailable": minimum, "tasks": [first, *others]}})


# --- changes ----------------------------------------------------------------------------------------------------------


def edit(sim: Simulation, what: str, namespace: str, name: str, patch: Obj) -> None:
    """A user changes an object by a merge patch."""
    with refusable():
        sim.store.patch(RESOURCES[what], namespace, name, patch)


def delete(sim: Simulation, what: str, namespace: str, name: str) -> None:
    """A user deletes an object, by default with its dependents."""
    with refusable():
        sim.store.delete(RESOURCES[what], namespace, name, propagation="Background")


def delete_pods(sim: Simulation, gang: str, every: int) -> None:
    """A user deletes a gang's pods, or every second one, third one ..."""
    for each in pods_of(sim, gang)[::every]:
        with refusable():
            sim.store.delete("pods", each["metadata"]["namespace"], each["metadata"]["name"])


def lift_gates(sim: Simulation, gang: str, every: int) -> None:
    """A user removes the gate of a gang's pods, of all or of every second one, third one ..."""
    for each in pods_of(sim, gang)[::every]:
        gates = [gate for gate in each["spec"].get("schedulingGates") or () if gate["name"] != GATE]
        with refusable():
            metadata = each["metadata"]
            sim.store.patch("pods", metadata["namespace"], metadata["name"], {"spec": {"schedulingGates": gates}})


def edit_pods(sim: Simulation, gang: str, every: int, patch: Obj) -> None:
    """A user changes a gang's pods, or every second one, third one ..., by a merge patch."""
    for each in pods_of(sim, gang)[::every]:
        with refusable():
            sim.store.patch("pods", each["metadata"]["namespace"], each["metadata"]["name"], patch)


def annotate_often(sim: Simulation, gang: str, size: int, count: int, every: float) -> None:
    """A user repeatedly writes an annotation of random bytes to a gang's pods, at intervals of some seconds."""
    text = sim.loop.rng.randbytes(size).hex()
    edit_pods(sim, gang, 1, {"metadata": {"annotations": {"simulation.example/large": text}}})
    if count > 1:
        sim.loop.call_later(every, annotate_often, sim, gang, size, count - 1, every)


def pods_of(sim: Simulation, gang: str) -> list[Obj]:
    """Return the pods of a gang."""
    return [each for each in sim.store.list("pods") if (each["metadata"].get("labels") or {}).get("gang") == gang]


ACTS: dict[str, Callable[..., None]] = {
    each.__name__: each
    for each in (
        add_node, add_hyper_node, add_class, add_namespace, add_storage, add_queue, command, add_budget, set_quota,
        count_quota, submit, add_pods, submit_roles, submit_bare, submit_job, submit_deployment, scale_job, edit,
        delete, delete_pods, lift_gates, edit_pods, annotate_often,
    )
}  # fmt: skip
