"""Turn manifests into the groups and pods that controllers would create, for a cluster whose state is logged."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

import msgspec

from vcd.model import events as ev
from vcd.model.controllers import GROUP_NAME, Manifest
from vcd.model.manifests import defaulted, group_for, system_classes
from vcd.model.objects import Node, Pod, PodGroup, altered
from vcd.model.projection_codec import BadObject, encode_payload, from_manifest
from vcd.model.quantity import QuantityError
from vcd.model.resource_requests import pod_requests
from vcd.state.cluster_state import ClusterState
from vcd.state.records import GroupRecord
from vcd.text.job_names import without_uid
from vcd.timetravel.manifest_reader import Reading, nodes_in, read, usable, work_of
from vcd.timetravel.plan_admission import PlanAdmission
from vcd.timetravel.workload_expansion import Work, identity, in_group, is_workload, kind_of

_HASH = "pod-template-hash"
TAKEN = (
    "the cluster already has an object of that name; submit it under another name, or forecast the existing one"
    " (`vcd explain job`)"
)


NO_POD = "the submitted manifests have no pod"


class NothingSubmitted(BadObject):
    """The submitted manifests contain no pod; the text states why, as do ``refused``, ``unknown`` and ``notes``."""

    def __init__(self, work: Work) -> None:
        super().__init__("Pod", "", "")
        self.refused, self.unknown, self.notes = work.refused, work.unknown, work.notes
        self.message = "; ".join([*work.refused, *work.unknown, *work.notes, NO_POD])
        self.args = (self.message,)


def submitted(manifests: Iterable[Any], state: ClusterState, created: str) -> Work:
    """Return what manifests become when they are submitted to a cluster in ``state`` at ``created`` (RFC 3339).

    Every pod is assigned to this scheduler. Queues, PriorityClasses, Namespaces and other objects that a scheduler
    reads replace the cluster's. Only submitted LimitRanges and RuntimeClasses apply: a log has none. Raises
    NothingSubmitted if no pod is left.
    """
    keys = {"PodGroup": state.groups, "Namespace": state.others.get("Namespace", ())}
    reading = read(manifests, keys, to_create=True)
    given = [defaulted(_with_uid(manifest)) for manifest in reading.objects]
    cluster = [
        _plain(kind, obj) for kind in ("PriorityClass", "Namespace") for obj in state.others.get(kind, {}).values()
    ]
    known = [*cluster, *given]
    known = [*system_classes(known), *known]
    admission = PlanAdmission(known, None, reading.bad.append, is_whole=True, quotas=False)
    given = [admission.stored(manifest) for manifest in given]
    found, there = Work(), _workloads_in(state)
    for new, work in work_of(given, admission, [*_nodes_of(state), *nodes_in(given)], reading.bad, _uid):
        if (*kind_of(new), *identity(new)[1:]) in there:
            reading.bad.append(BadObject(new["kind"], "/".join(identity(new)[1:]), TAKEN))
        else:
            found.groups.extend(work.groups)
            found.pods.extend(work.pods)
            found.notes.extend(work.notes)
    scratch = ClusterState()
    for manifest in given:
        if not is_workload(manifest):
            _add_object(manifest, found, reading, scratch)
    _admit(found, state, created, admission, reading)
    found.unknown = [*reading.unknown, *admission.unknown()]
    found.refused = [*reading.refused(), *admission.refused()]
    if not found.pods:
        raise NothingSubmitted(found)
    return found


def _plain(kind: str, obj: Any) -> Manifest:
    return {"kind": kind, **msgspec.to_builtins(obj)}


def _nodes_of(state: ClusterState) -> list[Node]:
    return [record.node for record in state.nodes.values()]


def job_name(group: str, pod: Pod | None) -> str:
    """Return the name by which users know a job: of its group, without the uid in the group's name of a Volcano Job;
    if the group was created for a workload or a bare pod, the name of that."""
    if pod is None or not group.partition("/")[2].startswith("podgroup-"):
        return without_uid(group)
    owner = next((owner.name for owner in pod.metadata.owner_references if owner.controller), "")
    return f"{pod.metadata.namespace}/{owner or pod.metadata.name}"


def _uid(manifest: Manifest) -> str:
    """Return the uid of a manifest, or a generated one that is the same for the same name."""
    meta = manifest["metadata"]
    same = f"{manifest['kind']}/{meta.get('namespace') or 'default'}/{meta['name']}"
    return str(meta.get("uid") or uuid.uuid5(uuid.NAMESPACE_URL, same))


def _with_uid(manifest: Manifest) -> Manifest:
    return {**manifest, "metadata": {**manifest["metadata"], "uid": _uid(manifest)}}


def _workloads_in(state: ClusterState) -> frozenset[tuple[str, str, str, str]]:
    """Return kind, API group, namespace and name of the owners of existing groups and pods."""
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


def _add_object(manifest: Manifest, found: Work, reading: Reading, scratch: ClusterState) -> None:
    """Add a pod, a group, or another object as an event. An unreadable one is refused."""
    try:
        kind, obj = usable(manifest, scratch)
    except BadObject as error:
        reading.bad.append(error)
        return
    if isinstance(obj, Pod):
        found.pods.append(obj)
    elif isinstance(obj, PodGroup):
        found.groups.append(obj)
    elif kind:
        found.others.append(ev.ObjectPut(kind, obj.key, "", encode_payload(obj)))


# --- admission --------------------------------------------------------------------------------------------------------


def _admit(found: Work, state: ClusterState, created: str, admission: PlanAdmission, reading: Reading) -> None:
    """Fill in and refuse what the API server and Volcano's controllers do; afterwards every pod is in a group."""
    groups: dict[str, PodGroup] = {}
    for group in found.groups:
        try:
            groups[group.key] = new = _new(group, group.key in state.groups, created)
            GroupRecord.of(new)  # raises for quantities that cannot be parsed
        except BadObject as error:
            reading.bad.append(error)
            groups.pop(group.key, None)
    pods: dict[str, Pod] = {}
    for pod in found.pods:
        try:
            new_pod = admission.admitted(_new(pod, pod.key in state.tasks.row_of, created))
            pod_requests(new_pod.spec)
        except QuantityError as error:
            reading.bad.append(BadObject("Pod", pod.key, f"resources: {error}"))
        except BadObject as error:
            reading.bad.append(error)
        else:
            if admission.created([new_pod]):
                made = _in_its_group(new_pod, groups, state)
                if made.group_key in groups or made.group_key in state.groups:
                    pods[pod.key] = made
    found.groups = [admission.in_queue(group) for group in groups.values()]
    found.pods = list(pods.values())


def _new(obj: Any, there: bool, created: str) -> Any:
    if there:
        kind = type(obj).__name__
        raise BadObject(kind, obj.key, TAKEN)
    status = type(obj.status)() if isinstance(obj, PodGroup) else obj.status
    return altered(obj, metadata={"creation_timestamp": created}, status=status)


def _in_its_group(pod: Pod, groups: dict[str, PodGroup], state: ClusterState) -> Pod:
    """Return a pod as this scheduler's, pending, in its group; an implied group is added to ``groups``."""
    names = state.settings.scheduler_names
    is_own = not names or pod.spec.scheduler_name in names
    spec = {"node_name": "", "scheduler_name": pod.spec.scheduler_name if is_own else names[0]}
    pod = altered(pod, spec=spec, status=type(pod.status)(phase="Pending"))
    if GROUP_NAME not in pod.metadata.annotations:
        implied = from_manifest(group_for(pod))[1]
        assert isinstance(implied, PodGroup)
        groups.setdefault(implied.key, implied)
        pod = in_group(pod, implied.metadata.name)
    return pod
