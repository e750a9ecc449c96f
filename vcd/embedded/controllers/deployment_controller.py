"""Deployments: creates a ReplicaSet for each template, and rolls from the old ones to the new one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import ClassVar, Final

from vcd.embedded.cluster_clock import parse_timestamp
from vcd.embedded.controllers.controller_base import (
    DELETED,
    DEPLOYMENTS,
    PODS,
    REPLICASETS,
    Controller,
    Key,
    Manager,
    Obj,
    annotations_of,
    controller_of,
    is_deleting,
    key_of,
    labels_of,
    with_condition,
)
from vcd.embedded.controllers.pod_properties import has_ended
from vcd.model.controllers import controller_reference

HASH_LABEL: Final = "pod-template-hash"
REVISION: Final = "deployment.kubernetes.io/revision"
COMPLETE: Final = "NewReplicaSetAvailable"
_OWN_ANNOTATIONS: Final = frozenset(
    {
        REVISION,
        "kubectl.kubernetes.io/last-applied-configuration",
        "deployment.kubernetes.io/revision-history",
    }
)
_HASH_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"


def template_hash(template: Obj) -> str:
    """Return a short hash of a pod template, in an alphabet without vowels so that it contains no words."""
    text = json.dumps(template, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).digest()
    return "".join(_HASH_LETTERS[byte % len(_HASH_LETTERS)] for byte in digest[:10])


def percent_of(value: int | str, total: int, *, round_up: bool) -> int:
    """Parse a count or a percentage of ``total``. Raises ValueError."""
    if isinstance(value, int):
        return value
    if not value.endswith("%"):
        raise ValueError(f"{value!r} is neither a number nor a percentage")
    share = int(value[:-1]) * total
    return -(-share // 100) if round_up else share // 100


def rolling_bounds(deployment: Obj) -> tuple[int, int]:
    """Return (maxSurge, maxUnavailable) as numbers of pods."""
    strategy = deployment["spec"].get("strategy") or {}
    replicas = replicas_of(deployment)
    if strategy.get("type") == "Recreate":
        return 0, 0
    rolling = strategy.get("rollingUpdate") or {}
    surge = percent_of(rolling.get("maxSurge", "25%"), replicas, round_up=True)
    unavailable = percent_of(rolling.get("maxUnavailable", "25%"), replicas, round_up=False)
    if surge == 0 and unavailable == 0:
        unavailable = 1
    return surge, min(unavailable, replicas)


def replicas_of(obj: Obj) -> int:
    """Return ``spec.replicas``, 1 if it is missing."""
    value = obj["spec"].get("replicas")
    return 1 if value is None else int(value)


def _count(obj: Obj, field: str) -> int:
    return int((obj.get("status") or {}).get(field) or 0)


class DeploymentController(Controller):
    """Creates and scales the ReplicaSets of a Deployment, within maxSurge and maxUnavailable, or by Recreate."""

    name: ClassVar[str] = "deployment-controller"
    resources = (DEPLOYMENTS, REPLICASETS, PODS)

    def __init__(self, manager: Manager) -> None:
        super().__init__(manager)
        self._replica_sets = manager.index(REPLICASETS)

    def observe(self, event: str, resource: str, obj: Obj) -> None:
        """Enqueue the Deployment of a ReplicaSet, or of a deleted pod, for which Recreate may wait."""
        if resource == DEPLOYMENTS:
            super().observe(event, resource, obj)
            return
        ref = controller_of(obj)
        namespace = obj["metadata"]["namespace"]
        if resource == PODS:
            if event != DELETED or not ref or ref["kind"] != "ReplicaSet":
                return
            replica_set = self.find(REPLICASETS, namespace, ref["name"])
            ref = controller_of(replica_set) if replica_set else None
        if ref and ref["kind"] == "Deployment":
            self.enqueue((namespace, ref["name"]))

    def reconcile(self, key: Key) -> None:
        """Create, scale and delete ReplicaSets by one step, and write the status."""
        deployment = self.find(DEPLOYMENTS, *key)
        if deployment is None:
            return
        if not is_deleting(deployment):
            self._sync(deployment)
            deployment = self.store.get(DEPLOYMENTS, *key)
        self._write_status(deployment)

    def _owned(self, deployment: Obj) -> list[Obj]:
        owned = self._replica_sets.of(deployment["metadata"]["uid"])
        return sorted(owned, key=lambda each: (parse_timestamp(each["metadata"]["creationTimestamp"]), key_of(each)))

    def _current(self, deployment: Obj) -> Obj | None:
        wanted = template_hash(deployment["spec"]["template"])
        return next((each for each in self._owned(deployment) if labels_of(each).get(HASH_LABEL) == wanted), None)

    def _old(self, deployment: Obj) -> list[Obj]:
        current = self._current(deployment)
        uid = current["metadata"]["uid"] if current else ""
        return [each for each in self._owned(deployment) if each["metadata"]["uid"] != uid]

    def _sync(self, deployment: Obj) -> None:
        if deployment["spec"].get("paused"):
            self._scale_newest(deployment)
            return
        recreate = (deployment["spec"].get("strategy") or {}).get("type") == "Recreate"
        if recreate and not self._emptied(deployment):
            return
        self._ensure_current(deployment)
        self._roll(deployment, at_once=recreate)
        self._clean_up(deployment)

    def _emptied(self, deployment: Obj) -> bool:
        """Scale the old ReplicaSets to 0. Return whether all of their pods have ended."""
        for old in self._old(deployment):
            self._scale(old, 0)
        pods = (pod for old in self._old(deployment) for pod in self.pods_by_controller.of(old["metadata"]["uid"]))
        return all(map(has_ended, pods))

    def _ensure_current(self, deployment: Obj) -> None:
        current = self._current(deployment)
        revision = 1 + max((int(annotations_of(old).get(REVISION, "0")) for old in self._old(deployment)), default=0)
        inherited = {k: v for k, v in annotations_of(deployment).items() if k not in _OWN_ANNOTATIONS}
        if current is None:
            current = self.store.create(REPLICASETS, self._new_replica_set(deployment, inherited, revision))
        else:
            kept = int(annotations_of(current).get(REVISION, "0"))
            revision = max(revision, kept)
            wanted = {**annotations_of(current), **inherited, REVISION: str(revision)}
            if wanted != annotations_of(current):
                self.store.update(REPLICASETS, _with_annotations(current, wanted))
        if annotations_of(deployment).get(REVISION) != str(revision):
            fresh = self.store.get(DEPLOYMENTS, *key_of(deployment))
            self.store.update(DEPLOYMENTS, _with_annotations(fresh, {**annotations_of(fresh), REVISION: str(revision)}))

    def _new_replica_set(self, deployment: Obj, inherited: dict[str, str], revision: int) -> Obj:
        spec = deployment["spec"]
        mark = {HASH_LABEL: template_hash(spec["template"])}
        template = dict(spec["template"])
        meta = dict(template.get("metadata") or {})
        template["metadata"] = {**meta, "labels": {**(meta.get("labels") or {}), **mark}}
        selector = dict(spec["selector"])
        selector["matchLabels"] = {**(selector.get("matchLabels") or {}), **mark}
        surge, _ = rolling_bounds(deployment)
        wanted = replicas_of(deployment)
        room = wanted + surge - sum(map(replicas_of, self._owned(deployment)))
        return {
            "metadata": {
                "namespace": deployment["metadata"]["namespace"],
                "name": f"{deployment['metadata']['name']}-{mark[HASH_LABEL]}",
                "labels": template["metadata"]["labels"],
                "annotations": {**inherited, REVISION: str(revision)},
                "ownerReferences": [controller_reference(deployment)],
            },
            "spec": {
                "replicas": max(0, min(wanted, room)),
                "selector": selector,
                "template": template,
                **({"minReadySeconds": spec["minReadySeconds"]} if spec.get("minReadySeconds") else {}),
            },
        }

    def _scale_newest(self, deployment: Obj) -> None:
        """Scale a paused Deployment, without a roll."""
        if owned := self._owned(deployment):
            newest = owned[-1]
            self._scale(newest, max(0, replicas_of(deployment) - sum(map(replicas_of, owned[:-1]))))

    def _roll(self, deployment: Obj, *, at_once: bool) -> None:
        surge, unavailable = rolling_bounds(deployment)
        wanted = replicas_of(deployment)
        current = self._current(deployment)
        assert current is not None
        room = max(0, wanted + surge - sum(map(replicas_of, self._owned(deployment))))
        self._scale(current, wanted if at_once else min(wanted, replicas_of(current) + room))
        if not at_once:
            self._shrink_old(deployment, wanted - unavailable)

    def _shrink_old(self, deployment: Obj, minimum: int) -> None:
        """Scale down the old ReplicaSets, unavailable pods first, so that ``minimum`` pods remain available."""
        current = self._current(deployment)
        assert current is not None
        pods = sum(map(replicas_of, self._owned(deployment)))
        not_yet = max(0, replicas_of(current) - _count(current, "availableReplicas"))
        spare = pods - minimum - not_yet
        spare = self._take(deployment, spare, lambda old: replicas_of(old) - _count(old, "availableReplicas"))
        available = sum(_count(each, "availableReplicas") for each in self._owned(deployment))
        self._take(deployment, min(spare, available - minimum), replicas_of)

    def _take(self, deployment: Obj, spare: int, most: Callable[[Obj], int]) -> int:
        """Scale down the old ReplicaSets by up to ``spare`` pods, each by at most ``most``. Return the rest."""
        for old in self._old(deployment):
            taken = min(most(old), spare)
            if taken > 0:
                spare -= taken
                self._scale(old, replicas_of(old) - taken)
        return spare

    def _scale(self, replica_set: Obj, replicas: int) -> None:
        if replicas != replicas_of(replica_set):
            self.store.update(REPLICASETS, {**replica_set, "spec": {**replica_set["spec"], "replicas": replicas}})

    def _clean_up(self, deployment: Obj) -> None:
        limit = deployment["spec"].get("revisionHistoryLimit")
        idle = [
            old
            for old in self._old(deployment)
            if replicas_of(old) == 0 and _count(old, "replicas") == 0 and not is_deleting(old)
        ]
        for old in idle[: max(0, len(idle) - (10 if limit is None else int(limit)))]:
            self.remove(REPLICASETS, old)

    def _write_status(self, deployment: Obj) -> None:
        owned = self._owned(deployment)
        current = self._current(deployment)
        total = sum(_count(each, "replicas") for each in owned)
        available = sum(_count(each, "availableReplicas") for each in owned)
        counts = {
            "replicas": total,
            "updatedReplicas": _count(current, "replicas") if current else 0,
            "readyReplicas": sum(_count(each, "readyReplicas") for each in owned),
            "availableReplicas": available,
            "unavailableReplicas": max(0, replicas_of(deployment) - available),
        }
        status: Obj = {name: count for name, count in counts.items() if count}
        generation = deployment["metadata"].get("generation")
        if generation is not None:
            status["observedGeneration"] = generation
        status["conditions"] = self._conditions(deployment, counts)
        self.write_status(DEPLOYMENTS, deployment, status)

    def _conditions(self, deployment: Obj, counts: dict[str, int]) -> list[Obj]:
        _, unavailable = rolling_bounds(deployment)
        enough = counts["availableReplicas"] >= replicas_of(deployment) - unavailable
        now = self.store.now
        conditions = (deployment.get("status") or {}).get("conditions") or []
        available = {
            "type": "Available",
            "status": "True" if enough else "False",
            "reason": "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable",
            "message": f"Deployment {'has' if enough else 'does not have'} minimum availability.",
        }
        if not any(available.items() <= each.items() for each in conditions):
            conditions = with_condition(conditions, {**available, "lastUpdateTime": now}, now)
        progress = self._progress(deployment, counts)
        return conditions if progress is None else with_condition(conditions, {**progress, "lastUpdateTime": now}, now)

    def _progress(self, deployment: Obj, counts: dict[str, int]) -> Obj | None:
        """Return the new Progressing condition, None for no change; a complete roll stays so if it only loses pods."""
        status = deployment.get("status") or {}
        old = next((each for each in status.get("conditions") or () if each["type"] == "Progressing"), None)
        subject = f'Deployment "{deployment["metadata"]["name"]}"'
        complete = old is not None and old["reason"] == COMPLETE
        if counts["updatedReplicas"] == counts["replicas"] == counts["availableReplicas"] == replicas_of(deployment):
            message = f"{subject} has successfully progressed."
            done = {"type": "Progressing", "status": "True", "reason": COMPLETE, "message": message}
            return None if complete else done
        if old is not None and not (complete and counts["updatedReplicas"] < counts["replicas"]):
            return None
        message = f"{subject} is progressing."
        return {"type": "Progressing", "status": "True", "reason": "ReplicaSetUpdated", "message": message}


def _with_annotations(obj: Obj, annotations: dict[str, str]) -> Obj:
    return {**obj, "metadata": {**obj["metadata"], "annotations": annotations}}
