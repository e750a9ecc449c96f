"""PodGroups for pods that bring none, bare or of a ReplicaSet, as Volcano's podgroup controller makes them."""

from __future__ import annotations

from typing import ClassVar, Final

from vcd.embedded.controllers.base import (
    ADDED,
    DELETED,
    PODGROUPS,
    PODS,
    REPLICASETS,
    Controller,
    Key,
    Obj,
    annotations_of,
    controller_of,
    key_of,
    labels_of,
)
from vcd.embedded.controllers.pods import quota_usage
from vcd.model.controllers import GROUP_NAME as GROUP_NAME
from vcd.model.controllers import POD_ANNOTATIONS, POD_LABELS, controller_reference, min_member, topology_of

QUEUE_ANNOTATION: Final = "scheduling.volcano.sh/queue-name"
SCHEDULER: Final = "volcano"
PREFIX: Final = "volcano.sh/"
_POD, _REPLICA_SET = "Pod", "ReplicaSet"


def group_name(pod: Obj) -> str:
    """``podgroup-<uid>`` of the pod's controller, or of the pod when it has none."""
    owner = controller_of(pod)
    return f"podgroup-{owner['uid'] if owner else pod['metadata']['uid']}"


class PodGroupController(Controller):
    """Makes a PodGroup for each pod of our scheduler that has none, and names it in the pod's annotation.

    Annotations and labels under ``volcano.sh/`` are copied from the workload: the pod itself when it is bare, its
    ReplicaSet (which has its Deployment's annotations) otherwise. Keys are (kind, namespace, name).
    """

    name: ClassVar[str] = "pg-controller"
    resources = (PODS, REPLICASETS)

    def observe(self, event: str, resource: str, obj: Obj) -> None:
        """A new pod, or a change of a ReplicaSet."""
        if resource == REPLICASETS and event != DELETED:
            self.enqueue((_REPLICA_SET, *key_of(obj)))
        elif resource == PODS and event == ADDED and self._is_ours(obj):
            self.enqueue((_POD, *key_of(obj)))

    def reconcile(self, key: Key) -> None:
        """Make the group of a pod; of a ReplicaSet make, update or remove it."""
        kind, namespace, name = key
        if kind == _POD:
            pod = self.find(PODS, namespace, name)
            if pod is not None and self._is_ours(pod):
                self._ensure(pod, update=False)
            return
        replica_set = self.find(REPLICASETS, namespace, name)
        if replica_set is not None:
            self._sync_replica_set(replica_set)

    def _is_ours(self, pod: Obj) -> bool:
        return pod["spec"].get("schedulerName") == SCHEDULER and not annotations_of(pod).get(GROUP_NAME)

    def _sync_replica_set(self, replica_set: Obj) -> None:
        uid, namespace = replica_set["metadata"]["uid"], replica_set["metadata"]["namespace"]
        if replica_set["spec"].get("replicas") == 0:
            self.remove_group(namespace, f"podgroup-{uid}")
            return
        pods = self.pods_by_controller.of(uid)
        if pods and self._is_ours(pods[0]):
            self._ensure(pods[0], update=True)

    def _ensure(self, pod: Obj, *, update: bool) -> None:
        wanted = self._group_of(pod)
        group = self.find(PODGROUPS, *key_of(wanted))
        if group is None:
            self.store.create(PODGROUPS, wanted)
        elif update:
            self._update(group, wanted)
        self.store.patch(PODS, *key_of(pod), {"metadata": {"annotations": {GROUP_NAME: key_of(wanted)[1]}}})

    def _update(self, group: Obj, wanted: Obj) -> None:
        marks = {member: wanted["metadata"][member] for member in ("annotations", "labels")}
        spec = {**group["spec"], **wanted["spec"]}
        self.store.update(PODGROUPS, {**group, "metadata": {**group["metadata"], **marks}, "spec": spec})

    def _group_of(self, pod: Obj) -> Obj:
        annotations, labels = self._inherited(pod)
        members = min_member(annotations)
        owner = controller_of(pod)
        of_pod = {key: annotations_of(pod)[key] for key in POD_ANNOTATIONS if key in annotations_of(pod)}
        spec: Obj = {"minMember": members, "minResources": quota_usage(pod["spec"], members)}
        if pod["spec"].get("priorityClassName"):
            spec["priorityClassName"] = pod["spec"]["priorityClassName"]
        if QUEUE_ANNOTATION in annotations_of(pod):
            spec["queue"] = annotations_of(pod)[QUEUE_ANNOTATION]
        topology = topology_of(annotations_of(pod))
        if topology:
            spec["networkTopology"] = topology
        return {
            "metadata": {
                "namespace": pod["metadata"]["namespace"],
                "name": group_name(pod),
                "annotations": {**_volcano(annotations), **of_pod},
                "labels": {**labels, **{k: v for k, v in labels_of(pod).items() if k in POD_LABELS}},
                "ownerReferences": (
                    pod["metadata"]["ownerReferences"] if owner else [controller_reference({**pod, "kind": "Pod"})]
                ),
            },
            "spec": spec,
            "status": {"phase": "Pending"},
        }

    def _inherited(self, pod: Obj) -> tuple[dict[str, str], dict[str, str]]:
        """The workload's annotations, all of them, and its labels under ``volcano.sh/``."""
        owner = controller_of(pod)
        if owner is None:
            return _volcano(annotations_of(pod)), _volcano(labels_of(pod))
        if owner["kind"] != _REPLICA_SET:
            return {}, {}
        replica_set, deployment = self.workload_above(pod["metadata"]["namespace"], owner)
        if replica_set is None:
            return {}, {}
        labels = {**(labels_of(deployment) if deployment else {}), **labels_of(replica_set)}
        return dict(annotations_of(replica_set)), _volcano(labels)


def _volcano(marks: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in marks.items() if key.startswith(PREFIX)}
