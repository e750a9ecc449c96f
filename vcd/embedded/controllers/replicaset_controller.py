"""ReplicaSets: creates and deletes pods of a template up to the number of replicas."""

from __future__ import annotations

from typing import ClassVar, Final

from vcd.embedded.cluster_clock import parse_timestamp
from vcd.embedded.controllers.controller_base import (
    PODS,
    REPLICASETS,
    Controller,
    Key,
    Manager,
    Obj,
    controller_of,
    is_deleting,
    key_of,
    labels_of,
    with_condition,
)
from vcd.embedded.controllers.pod_properties import active_controller_uid, available_at, is_ready, node_of, phase_of
from vcd.embedded.status_errors import StatusError
from vcd.model.controllers import pod_of_template

BURST: Final = 500
_PHASE_ORDER: Final = {"Pending": 0, "Unknown": 1, "Running": 2}


class ReplicaSetController(Controller):
    """Creates missing pods (500 per pass), deletes surplus ones, and writes the counts."""

    name: ClassVar[str] = "replicaset-controller"
    resources = (REPLICASETS, PODS)

    def __init__(self, manager: Manager) -> None:
        super().__init__(manager)
        # there can be many ended pods, so a reconciliation must not visit them
        self._active = manager.index(PODS, active_controller_uid)

    def observe(self, event: str, resource: str, obj: Obj) -> None:
        """Enqueue a changed ReplicaSet, or the ReplicaSet of a changed pod."""
        if resource == REPLICASETS:
            super().observe(event, resource, obj)
            return
        ref = controller_of(obj)
        if ref and ref["kind"] == "ReplicaSet":
            self.enqueue((obj["metadata"]["namespace"], ref["name"]))

    def reconcile(self, key: Key) -> None:
        """Bring the number of pods to ``spec.replicas`` and write the status."""
        replica_set = self.find(REPLICASETS, *key)
        if replica_set is None:
            return
        failure: StatusError | None = None
        if not is_deleting(replica_set):
            failure = self._scale(replica_set)
        self._write_counts(replica_set, failure)
        if failure is not None:
            raise failure

    def _scale(self, replica_set: Obj) -> StatusError | None:
        pods = self._active.of(replica_set["metadata"]["uid"])
        missing = int(replica_set["spec"].get("replicas", 1)) - len(pods)
        if missing > 0:
            try:
                for _ in range(min(missing, BURST)):
                    pod = pod_of_template(replica_set, replica_set["spec"]["template"])
                    pod["metadata"]["generateName"] = f"{replica_set['metadata']['name']}-"
                    self.store.create(PODS, pod)
            except StatusError as error:
                message = f"Error creating: {error.message}"
                self.manager.events.record(self.name, replica_set, "Warning", "FailedCreate", message)
                return error
            if missing > BURST:
                self.enqueue(key_of(replica_set))
        for pod in sorted(pods, key=deletion_rank)[: max(0, -missing)]:
            self.remove(PODS, pod)
        return None

    def _write_counts(self, replica_set: Obj, failure: StatusError | None) -> None:
        pods = self._active.of(replica_set["metadata"]["uid"])
        spec = replica_set["spec"]
        labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
        times = [available_at(pod, spec.get("minReadySeconds") or 0) for pod in pods]
        now = self.clock.now()
        counts = {
            "replicas": len(pods),
            "fullyLabeledReplicas": sum(labels.items() <= labels_of(pod).items() for pod in pods),
            "readyReplicas": sum(map(is_ready, pods)),
            "availableReplicas": sum(when is not None and when <= now for when in times),
        }
        status = {name: count for name, count in counts.items() if count or name == "replicas"}
        generation = replica_set["metadata"].get("generation")
        if generation is not None:
            status["observedGeneration"] = generation
        conditions = _conditions(replica_set, failure, self.store.now)
        self.write_status(REPLICASETS, replica_set, {**status, **({"conditions": conditions} if conditions else {})})
        later = [when for when in times if when is not None and when > now]
        if later:
            self.enqueue_at(key_of(replica_set), min(later))


def _conditions(replica_set: Obj, failure: StatusError | None, now: str) -> list[Obj]:
    old = (replica_set.get("status") or {}).get("conditions") or []
    if failure is None:
        return [each for each in old if each.get("type") != "ReplicaFailure"]
    if any(each.get("type") == "ReplicaFailure" for each in old):
        return old  # each message names another refused pod; the first one is sufficient
    condition = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": failure.message}
    return with_condition(old, condition, now)


def deletion_rank(pod: Obj) -> tuple[int, int, int, int, float, str]:
    """Return the sort key for deletion: unbound, pending, not ready, lowest deletion cost, youngest pods first."""
    cost = (pod["metadata"].get("annotations") or {}).get("controller.kubernetes.io/pod-deletion-cost", "0")
    return (
        1 if node_of(pod) else 0,
        _PHASE_ORDER.get(phase_of(pod), 1),
        1 if is_ready(pod) else 0,
        int(cost) if cost.lstrip("-").isdigit() else 0,
        -parse_timestamp(pod["metadata"]["creationTimestamp"]),
        pod["metadata"]["name"],
    )
