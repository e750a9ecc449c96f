"""Manifests of work as the groups and pods that controllers would make of them, for a cluster that a log knows."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from vcd.model.codec import BadObject, from_manifest
from vcd.model.controllers import GROUP_NAME, Manifest
from vcd.model.limitranges import LimitRanges
from vcd.model.manifests import (
    defaulted,
    flatten,
    group_for,
    refusal_of,
    with_group_queue,
    with_priority,
    with_scheduling_defaults,
)
from vcd.model.objects import Pod, PodGroup, PriorityClass, altered
from vcd.model.podadmission import UnknownPriorityClass
from vcd.model.quantity import QuantityError
from vcd.model.requests import pod_requests
from vcd.state.cluster import ClusterState
from vcd.state.records import GroupRecord
from vcd.timetravel.limits import bounds_left_out, is_limit_range, read_limit_ranges
from vcd.timetravel.unknownfields import unknown_fields
from vcd.timetravel.words import UID
from vcd.timetravel.workloads import (
    READ,
    Work,
    called,
    expand,
    identity,
    in_group,
    is_workload,
    kind_of,
    named,
    owners_in,
)

_HASH = "pod-template-hash"
TAKEN = (
    "the cluster has one of that name already; submit it under another name, or ask when that one starts"
    " (`vcd explain job`)"
)


def submitted(manifests: Iterable[Any], state: ClusterState, created: str) -> Work:
    """What manifests become when they are submitted to a cluster in ``state`` at ``created`` (RFC 3339).

    Every pod is taken as this scheduler's. LimitRanges among the manifests apply to it: a log has none. Raises
    BadObject for what cannot be read, is no work, is there already, is refused by the API server, or names what is not
    there.
    """
    everything, there = list(flatten(manifests)), _workloads_in(state)
    given = [manifest for manifest in everything if not is_limit_range(manifest)]
    limits = read_limit_ranges(everything, _refuse)
    admission = _Admission(state, limits)
    found = Work(notes=list(bounds_left_out(limits)))
    owners = owners_in(given)
    for manifest in given:
        found.notes.extend(f"{called(manifest)}: {words}" for words in unknown_fields(manifest))
        new = _named(manifest)
        if not is_workload(new):
            _object(new, found)
        elif (*kind_of(new), *identity(new)[1:]) in there:
            raise BadObject(new["kind"], "/".join(identity(new)[1:]), TAKEN)
        elif identity(new) not in owners:
            expand(new, found, admission.fill_in)
    if not found.pods:
        raise BadObject("(no kind)", "", f"there is no pod in what is submitted; it takes {READ}")
    _admit(found, state, created, admission)
    return found


def _refuse(error: BadObject) -> None:
    raise error


def job_name(group: str, pod: Pod | None) -> str:
    """The name by which users know a job: of its group, without the uid that a Volcano Job's has in it; where the group
    was made for a workload or a bare pod, of that, by one of its pods."""
    if pod is None or not group.partition("/")[2].startswith("podgroup-"):
        return UID.sub("", group)
    owner = next((owner.name for owner in pod.metadata.owner_references if owner.controller), "")
    return f"{pod.metadata.namespace}/{owner or pod.metadata.name}"


def _named(manifest: Manifest) -> Manifest:
    """With a namespace, and a uid in the form of an API server's, the same for the same name."""
    # a status is that of another time: what is submitted begins anew
    new = named({key: value for key, value in manifest.items() if key != "status"})
    meta = new["metadata"]
    same = f"{manifest.get('kind')}/{meta['namespace']}/{meta['name']}"
    meta["uid"] = meta["uid"] or str(uuid.uuid5(uuid.NAMESPACE_URL, same))
    return defaulted(new)


def _workloads_in(state: ClusterState) -> frozenset[tuple[str, str, str, str]]:
    """Kind, API group, namespace and name of what owns groups and pods that are there."""
    found = set()
    groups = (record.group for record in state.groups.values())
    pods = (pod for key in state.tasks.row_of if (pod := state.pod(key)) is not None)
    for obj in (*groups, *pods):
        meta = obj.metadata
        for owner in meta.owner_references:
            group = owner.api_version.rpartition("/")[0]
            found.add((owner.kind, group, meta.namespace, owner.name))
            if owner.kind == "ReplicaSet" and _HASH in meta.labels:
                found.add(("Deployment", group, meta.namespace, owner.name.removesuffix(f"-{meta.labels[_HASH]}")))
    return frozenset(found)


def _object(manifest: Manifest, found: Work) -> None:
    """A pod or a group as it is. Raises BadObject for anything else."""
    meta, kind = manifest["metadata"], str(manifest.get("kind", "")) or "(no kind)"
    if kind in ("Pod", "PodGroup"):
        _, obj, _ = from_manifest(manifest)
        if isinstance(obj, Pod):
            found.pods.append(obj)
        elif isinstance(obj, PodGroup):
            found.groups.append(obj)
        return
    of = f" of apiVersion {manifest.get('apiVersion')}" if kind in ("Job", "CronJob") else ""
    raise BadObject(kind, f"{meta['namespace']}/{meta['name']}", f"what is submitted{of} is not read; it takes {READ}")


# --- admission --------------------------------------------------------------------------------------------------------


class _Admission:
    """What the API server and Volcano's webhooks fill in and refuse, by a log's state and given LimitRanges."""

    def __init__(self, state: ClusterState, limits: Mapping[str, LimitRanges]) -> None:
        classes = state.others.get("PriorityClass", {})
        self._classes = {
            key: msgspec.to_builtins(obj) for key, obj in classes.items() if isinstance(obj, PriorityClass)
        }
        self._namespaces = state.others.get("Namespace", {})
        self._limits = limits

    def fill_in(self, pod: Pod) -> Pod:
        """Return a pod with defaults and priority. Raises BadObject for an unknown class."""
        try:
            return with_priority(with_scheduling_defaults(pod, self._limits.get(pod.metadata.namespace)), self._classes)
        except UnknownPriorityClass as error:
            message = f"its priorityClassName {error} is no PriorityClass that the log knows"
            raise BadObject("Pod", pod.key, message) from None

    def check(self, pod: Pod) -> None:
        """Raise BadObject for a filled-in pod that the API server refuses."""
        try:
            pod_requests(pod.spec)
        except QuantityError as error:
            raise BadObject("Pod", pod.key, f"resources: {error}") from error
        if refusal := refusal_of(pod, self._limits.get(pod.metadata.namespace)):
            raise BadObject("Pod", pod.key, f"the API server refuses it: {refusal}")

    def in_queue(self, group: PodGroup) -> PodGroup:
        """Return a group in its namespace's queue where it names none."""
        namespace = self._namespaces.get(group.metadata.namespace)
        return group if namespace is None else with_group_queue(group, namespace.metadata.annotations)


def _admit(found: Work, state: ClusterState, created: str, admission: _Admission) -> None:
    """Add what the API server and Volcano's controllers do, and refuse what they do; every pod is in a group then."""
    groups = {group.key: _new(group, group.key in state.groups, created) for group in found.groups}
    pods: dict[str, Pod] = {}
    for pod in found.pods:
        if pod.key in pods:
            raise BadObject("Pod", pod.key, "it is submitted twice")
        new = admission.fill_in(_new(pod, pod.key in state.tasks.row_of, created))
        admission.check(new)
        pods[pod.key] = made = _in_its_group(new, groups, state)
        group = made.group_key
        if group not in groups and group not in state.groups:
            raise BadObject(
                "Pod", pod.key, f"its group {group} is neither in the log nor submitted; submit the PodGroup, too"
            )
    for group_object in groups.values():
        GroupRecord.of(group_object)  # raises for quantities that cannot be read
    found.groups = [admission.in_queue(group) for group in groups.values()]
    found.pods = list(pods.values())


def _new(obj: Any, there: bool, created: str) -> Any:
    if there:
        kind = type(obj).__name__
        raise BadObject(kind, obj.key, TAKEN)
    status = type(obj.status)() if isinstance(obj, PodGroup) else obj.status
    return altered(obj, metadata={"creation_timestamp": created}, status=status)


def _in_its_group(pod: Pod, groups: dict[str, PodGroup], state: ClusterState) -> Pod:
    """Return a pod as this scheduler's, pending, in its group; one that is implied is added to ``groups``."""
    names = state.settings.scheduler_names
    ours = not names or pod.spec.scheduler_name in names
    spec = {"node_name": "", "scheduler_name": pod.spec.scheduler_name if ours else names[0]}
    pod = altered(pod, spec=spec, status=type(pod.status)(phase="Pending"))
    if GROUP_NAME not in pod.metadata.annotations:
        implied = from_manifest(group_for(pod))[1]
        assert isinstance(implied, PodGroup)
        groups.setdefault(implied.key, implied)
        pod = in_group(pod, implied.metadata.name)
    return pod
