"""Clusters as a daemon meets them: beside plain gangs there are gates, nominations, pods of others, and sub-groups."""

from __future__ import annotations

import copy
import random
from typing import Any

from tests.dsl import pod

Manifest = dict[str, Any]

GATE = "scheduling.volcano.sh/queue-allocation-gate"
PART = "part"
_GROUP = "scheduling.k8s.io/group-name"


def mingled(rng: random.Random, objects: list[Manifest]) -> list[Manifest]:
    """A cluster with some of all this added; the manifests given stay as they are."""
    return _Mingler(rng, [copy.deepcopy(one) for one in objects]).mingle()


class _Mingler:
    def __init__(self, rng: random.Random, objects: list[Manifest]) -> None:
        self._rng = rng
        self._objects = objects
        self._groups = self._of_kind("PodGroup")
        self._nodes = [one["metadata"]["name"] for one in self._of_kind("Node")]

    def mingle(self) -> list[Manifest]:
        """All ingredients that come up."""
        for share, ingredient in (
            (0.4, self._nominate),
            (0.4, self._gate),
            (0.4, self._add_best_effort_members),
            (0.4, self._add_pods_of_others),
            (0.4, self._divide),
        ):
            if self._rng.random() < share:
                ingredient()
        return self._objects

    def _of_kind(self, kind: str) -> list[Manifest]:
        return [one for one in self._objects if one["kind"] == kind]

    def _members(self, group: Manifest) -> list[Manifest]:
        meta = group["metadata"]
        return [
            one
            for one in self._of_kind("Pod")
            if one["metadata"].get("namespace") == meta["namespace"]
            and (one["metadata"].get("annotations") or {}).get(_GROUP) == meta["name"]
        ]

    def _waiting(self) -> list[Manifest]:
        """Pods without a node that nobody deletes."""
        return [
            one
            for one in self._of_kind("Pod")
            if not one["spec"].get("nodeName")
            and one["status"].get("phase") == "Pending"
            and "deletionTimestamp" not in one["metadata"]
        ]

    def _nominate(self) -> None:
        """Preemptions of earlier days, also of another scheduler, named nodes for pods; some of these are gone."""
        for one in self._waiting():
            if self._rng.random() < 0.4:
                one["status"]["nominatedNodeName"] = self._rng.choice([*self._nodes, *self._nodes, "gone"])

    def _gate(self) -> None:
        """Pods at the queue's gate, that ask for it to be lifted or do not, and at the gates of others."""
        for one in self._waiting():
            if self._rng.random() < 0.3:
                names = self._rng.choice(((GATE,), (GATE,), ("example.com/hold",), (GATE, "example.com/hold")))
                one["spec"]["schedulingGates"] = [{"name": name} for name in names]
                if self._rng.random() < 0.8:
                    one["metadata"].setdefault("annotations", {})[GATE] = "true"

    def _add_best_effort_members(self) -> None:
        """Members that ask for nothing, of which a gang may need some."""
        for group in self._groups:
            if self._rng.random() < 0.5:
                roles = sorted(group["spec"].get("minTaskMember") or {"": 0})
                count = self._rng.randint(1, 2)
                for number in range(count):
                    role = self._rng.choice(roles)
                    self._objects.append(
                        self._member(group, f"be-{number}", {"volcano.sh/task-spec": role} if role else {})
                    )
                if self._rng.random() < 0.5:
                    group["spec"]["minMember"] = group["spec"].get("minMember", 0) + self._rng.randint(1, count)

    def _member(self, group: Manifest, suffix: str, annotations: dict[str, str], **options: Any) -> Manifest:
        meta = group["metadata"]
        name, namespace = f"{meta['name']}-{suffix}", meta["namespace"]
        return pod(name, group=meta["name"], namespace=namespace, annotations=annotations, **options)

    def _add_pods_of_others(self) -> None:
        """Pods of another scheduler: some run, some wait, some name a group of ours."""
        theirs = {"schedulerName": "default-scheduler"}
        for number in range(self._rng.randint(1, 4)):
            on = self._rng.choice([*self._nodes, ""])
            cpu = self._rng.choice((0, 1, 1, 2))
            if self._rng.random() < 0.4 and self._groups:
                group = self._rng.choice(self._groups)
                self._objects.append(self._member(group, f"other-{number}", {}, on=on, spec=theirs, cpu=cpu))
            else:
                self._objects.append(pod(f"other-{number}", on=on, spec=theirs, cpu=cpu))

    def _divide(self) -> None:
        """Groups whose pods are divided by a label; some pods have it not."""
        for group in self._groups:
            members = self._members(group)
            if members and self._rng.random() < 0.5:
                size = self._rng.choice((1, 2, 2))
                for index, one in enumerate(members):
                    if self._rng.random() < 0.9:
                        one["metadata"].setdefault("labels", {})[PART] = str(index // size)
                policy: Manifest = {"name": "p", "matchLabelKeys": [PART], "subGroupSize": size}
                policy["minSubGroups"] = self._rng.choice((0, 0, 1, 2))
                if self._rng.random() < 0.2:
                    app = members[0]["metadata"]["labels"].get("app", "x")
                    policy["labelSelector"] = {"matchLabels": {"app": app}}
                group["spec"]["subGroupPolicy"] = [policy]
