"""Creates PodGroups for pods without one, bare or of a ReplicaSet, as Volcano's podgroup controller does."""

from __future__ import annotations

from typing import ClassVar, Final

from vcd.embedded.controllers.controller_base import (
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
from vcd.model.controllers import GROUP_NAME as GROUP_NAME
from vcd.model.podgroups import NAME_PREFIX, group_of_pod, lacks_group

SCHEDULER: Final = "volcano"
_POD, _REPLICA_SET = "Pod", "ReplicaSet"


class PodGroupController(Controller):
    """Creates a PodGroup for each pod of scheduler volcano without one, and names it in the pod's annotation.

    Annotations and labels under ``volcano.sh/`` are copied from a bare pod itself, or from the pod's ReplicaSet (which
    has its Deployment's annotations). Keys are (kind, namespace, name).
    """

    name: ClassVar[str] = "pg-controller"
    resources = (PODS, REPLICASETS)

    def observe(self, event: str, resource: str, obj: Obj) -> None:
        """Enqueue new pods and changed ReplicaSets."""
        if resource == REPLICASETS and event != DELETED:
            self.enqueue((_REPLICA_SET, *key_of(obj)))
        elif resource == PODS and event == ADDED and self._is_ours(obj):
            self.enqueue((_POD, *key_of(obj)))

    def reconcile(self, key: Key) -> None:
        """Create the group of a pod; create, update or delete the group of a ReplicaSet."""
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
        return pod["spec"].get("schedulerName") == SCHEDULER and lacks_group(pod)

    def _sync_replica_set(self, replica_set: Obj) -> None:
        uid, namespace = replica_set["metadata"]["uid"], replica_set["metadata"]["namespace"]
        if replica_set["spec"].get("replicas") == 0:
            self.remove_group(namespace, f"{NAME_PREFIX}{uid}")
            return
        pods = self.pods_by_controller.of(uid)
        if pods and self._is_ours(pods[0]):
            self._ensure(pods[0], update=True)

    def _ensure(self, pod: Obj, *, update: bool) -> None:
        wanted = group_of_pod(pod, *self._inherited(pod))
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

    def _inherited(self, pod: Obj) -> tuple[dict[str, str], dict[str, str]]:
        """Return the annotations and labels of a pod's workload, without the pod's own."""
        owner = controller_of(pod)
        if owner is None or owner["kind"] != _REPLICA_SET:
            return {}, {}
        replica_set, deployment = self.workload_above(pod["metadata"]["namespace"], owner)
        if replica_set is None:
            return {}, {}
        labels = {**(labels_of(deployment) if deployment else {}), **labels_of(replica_set)}
        return dict(annotations_of(replica_set)), labels
