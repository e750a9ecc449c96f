"""The expected pods of groups without pods: their controllers create them once the groups are admitted."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from vcd.model.controllers import GROUP_NAME, TASK_SPEC
from vcd.model.objects import (
    Container,
    ObjectMeta,
    Pod,
    PodGroup,
    PodSpec,
    PriorityClass,
    ResourceRequirements,
    altered,
)
from vcd.model.projection_codec import BadObject
from vcd.model.quantity import format_resource
from vcd.model.resource_requests import PODS, pod_requests
from vcd.state.cluster_state import ClusterState
from vcd.state.records import GroupRecord, task_role
from vcd.timetravel.whatif.logged_workload import Unit, Workload


class ExpectedPods:
    """Derives a group's future pods: as the last group with an equal spec had, else equal pods by its minimum."""

    def __init__(self, past: Workload, state: ClusterState) -> None:
        self._names = state.settings.scheduler_names
        classes = state.others.get("PriorityClass", {}).values()
        self._priorities = {one.metadata.name: one.value for one in classes if isinstance(one, PriorityClass)}
        self._last_pods: dict[Hashable, tuple[PodGroup, dict[str, Pod]]] = {}
        for unit in past.units:
            life = past.groups.get(unit.group)
            if life is None:
                continue
            key = _spec_key(life.group)
            if key not in self._last_pods or self._last_pods[key][0].key != unit.group:
                self._last_pods[key] = life.group, {}
            self._last_pods[key][1][unit.key] = unit.pod

    def units(self, group: PodGroup, arrived: int) -> list[Unit]:
        """Return the pods of a group without any, which arrive at ``arrived`` (ns); none if the group does not specify
        them."""
        like, had = self._last_pods.get(_spec_key(group), (group, {}))
        if len(had) < group.spec.min_member:
            like, had = group, self._equal_pods(group)
        tasks = dict(zip(_tasks(like), _tasks(group), strict=True))
        made = [self._copy_for(pod, group, tasks, index) for index, pod in enumerate(had.values())]
        return [Unit(pod.key, pod.metadata.uid, group.key, pod, pod_requests(pod.spec), arrived) for pod in made]

    def _copy_for(self, pod: Pod, group: PodGroup, tasks: Mapping[str, str], index: int) -> Pod:
        meta, task = group.metadata, task_role(pod)
        marks = {TASK_SPEC: tasks.get(task, task)} if task else {}
        return altered(
            pod,
            metadata={
                "name": f"{meta.name}-{index}",
                "namespace": meta.namespace,
                "uid": f"{meta.uid}-{index}",
                "creation_timestamp": meta.creation_timestamp,
                "annotations": {**pod.metadata.annotations, **marks, GROUP_NAME: meta.name},
                "owner_references": meta.owner_references,
            },
            # no claims: the template's belong to its own pod
            spec={"volumes": (), "resource_claims": ()},
        )

    def _equal_pods(self, group: PodGroup) -> dict[str, Pod]:
        """Return pods that differ only in their tasks, as many as the group's minimum, which is at least one."""
        try:
            min_resources = GroupRecord.of(group).min_resources
        except BadObject:
            return {}  # the state sets it aside, too: it is never admitted
        if not min_resources:
            return {}
        spec, marks = self._spec(group, min_resources), group.metadata.annotations
        minima = group.spec.min_task_member
        tasks = [task for task in _tasks(group) for _ in range(minima[task])]
        tasks += [""] * (group.spec.min_member - len(tasks))
        return {
            str(place): Pod(ObjectMeta(annotations={**marks, TASK_SPEC: task} if task else marks), spec)
            for place, task in enumerate(tasks)
        }

    def _spec(self, group: PodGroup, min_resources: Mapping[str, int]) -> PodSpec:
        requests: dict[str, str | int | float] = {
            name: format_resource(name, -(-amount // group.spec.min_member))
            for name, amount in min_resources.items()
            if name != PODS
        }
        name = group.spec.priority_class_name
        return PodSpec(
            scheduler_name=self._names[0] if self._names else "",
            containers=(Container(resources=ResourceRequirements(requests)),),
            priority=self._priorities.get(name),
            priority_class_name=name,
        )


def _tasks(group: PodGroup) -> list[str]:
    """Return the tasks that have a minimum, the smallest first."""
    minima = group.spec.min_task_member
    return sorted(minima, key=lambda task: (minima[task], task))


def _spec_key(group: PodGroup) -> Hashable:
    """Return what a group specifies about its pods; groups with equal values are expected to have equal pods."""
    spec, marks = group.spec, group.metadata.annotations
    return (
        group.metadata.namespace,
        spec.queue,
        spec.min_member,
        tuple(sorted((spec.min_resources or {}).items())),
        tuple(sorted(spec.min_task_member.values())),
        tuple(sorted(marks.items())),
        spec.priority_class_name,
    )
