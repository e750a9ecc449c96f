"""PodDisruptionBudgets: computes how many of a budget's pods may be evicted now."""

from __future__ import annotations

from typing import ClassVar, Final

from vcd.embedded.cluster_clock import parse_timestamp
from vcd.embedded.controllers.controller_base import (
    DEPLOYMENTS,
    PODS,
    REPLICASETS,
    Controller,
    Key,
    Obj,
    controller_of,
    is_deleting,
    key_of,
    labels_of,
    with_condition,
)
from vcd.embedded.controllers.deployment_controller import percent_of, replicas_of
from vcd.embedded.controllers.pod_properties import has_ended, is_ready
from vcd.embedded.resource_types import PDBS
from vcd.model.selectors import LabelSelector

DISRUPTED_SECONDS: Final = 120.0


class DisruptionController(Controller):
    """Writes the status of each budget: expected and healthy pods, and the disruptions that these allow."""

    name: ClassVar[str] = "disruption-controller"
    resources = (PDBS, PODS, REPLICASETS, DEPLOYMENTS)

    def observe(self, event: str, resource: str, obj: Obj) -> None:
        """Enqueue a budget, or the budgets that a change of a pod, ReplicaSet or Deployment affects."""
        if resource == PDBS:
            super().observe(event, resource, obj)
            return
        for budget in self.store.list(PDBS, obj["metadata"]["namespace"]):
            if resource != PODS or self._selects(budget, obj):
                self.enqueue(key_of(budget))

    def reconcile(self, key: Key) -> None:
        """Count the budget's pods and write its status. If they cannot be counted, no disruption is allowed."""
        budget = self.find(PDBS, *key)
        if budget is None or is_deleting(budget):
            return
        pods = [pod for pod in self.store.list(PODS, key[0]) if self._selects(budget, pod) and not has_ended(pod)]
        try:
            expected, desired = self._expectation(budget, pods)
        except ValueError as error:
            self._write_failure(budget, str(error))
            return
        self._write(budget, pods, expected, desired)

    def _selects(self, budget: Obj, pod: Obj) -> bool:
        return LabelSelector.compile(budget["spec"].get("selector")).matches(labels_of(pod))

    def _expectation(self, budget: Obj, pods: list[Obj]) -> tuple[int, int]:
        """Return (expected pods, healthy pods that must remain). Raises ValueError if they are unknown."""
        spec = budget["spec"]
        if spec.get("maxUnavailable") is not None:
            expected = self._expected_scale(pods)
            return expected, max(0, expected - percent_of(spec["maxUnavailable"], expected, round_up=True))
        minimum = spec.get("minAvailable", 1)
        if isinstance(minimum, int):
            return len(pods), minimum
        expected = self._expected_scale(pods)
        return expected, percent_of(minimum, expected, round_up=True)

    def _expected_scale(self, pods: list[Obj]) -> int:
        """Return the sum of replicas of the pods' ReplicaSets, or of the Deployments that own these."""
        owners = {owner["uid"]: (pod["metadata"]["namespace"], owner) for pod in pods if (owner := controller_of(pod))}
        tops = [self._top(*each) for each in owners.values()]
        return sum({top["metadata"]["uid"]: replicas_of(top) for top in tops}.values())

    def _top(self, namespace: str, owner: Obj) -> Obj:
        if owner["kind"] != "ReplicaSet":
            raise ValueError(f"{owner['kind']} {owner['name']} does not implement the scale subresource")
        replica_set, deployment = self.workload_above(namespace, owner)
        top = deployment or replica_set
        if top is None:
            raise ValueError(f"ReplicaSet {owner['name']} not found")
        return top

    def _write(self, budget: Obj, pods: list[Obj], expected: int, desired: int) -> None:
        disrupted = self._still_disrupted(budget, pods)
        healthy = sum(
            is_ready(pod) and not is_deleting(pod) and pod["metadata"]["name"] not in disrupted for pod in pods
        )
        allowed = max(0, healthy - desired) if expected > 0 else 0
        status = {
            "observedGeneration": budget["metadata"].get("generation", 0),
            **({"disruptedPods": disrupted} if disrupted else {}),
            "disruptionsAllowed": allowed,
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "expectedPods": expected,
            "conditions": self._conditions(budget, allowed > 0, "SufficientPods" if allowed else "InsufficientPods"),
        }
        self.write_status(PDBS, budget, status)

    def _conditions(self, budget: Obj, allowed: bool, reason: str, message: str = "") -> list[Obj]:
        condition = {
            "type": "DisruptionAllowed",
            "status": "True" if allowed else "False",
            "reason": reason,
            "message": message,
            "observedGeneration": budget["metadata"].get("generation", 0),
        }
        return with_condition((budget.get("status") or {}).get("conditions") or (), condition, self.store.now)

    def _still_disrupted(self, budget: Obj, pods: list[Obj]) -> dict[str, str]:
        """Return recent evictions whose pods are not terminating yet; they expire after two minutes."""
        present = {pod["metadata"]["name"] for pod in pods if not is_deleting(pod)}
        known = (budget.get("status") or {}).get("disruptedPods") or {}
        until = {name: parse_timestamp(since) + DISRUPTED_SECONDS for name, since in known.items() if name in present}
        kept = {name: known[name] for name in sorted(until) if until[name] > self.clock.now()}
        if kept:
            self.enqueue_at(key_of(budget), min(until[name] for name in kept), background=True)
        return kept

    def _write_failure(self, budget: Obj, message: str) -> None:
        conditions = self._conditions(budget, False, "SyncFailed", message)
        status = {**(budget.get("status") or {}), "disruptionsAllowed": 0, "conditions": conditions}
        self.write_status(PDBS, budget, status)
