"""Reads manifests: the objects that an API server would store, and the parts that are not understood.

All commands that take manifests use it, so that they report the same objects in the same words. Defaults of the API
server and its refusals of pods are in ``vcd.timetravel.plan_admission``.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

import msgspec

from vcd.model import events as ev
from vcd.model.controllers import GROUP_NAME, Manifest
from vcd.model.kinds import KINDS
from vcd.model.manifests import defaulted, flatten, system_classes
from vcd.model.objects import Node, Object, Pod, Queue
from vcd.model.projection_codec import BadObject, encode_payload, from_manifest
from vcd.model.wording import some
from vcd.scheduling.framework.registry import kinds
from vcd.state.cluster_state import ClusterState
from vcd.text.manifest_templates import MANIFESTS
from vcd.timetravel.plan_admission import PlanAdmission, is_applied
from vcd.timetravel.podtemplates import is_podless, templates_in, with_spark_templates
from vcd.timetravel.unknownfields import unknown_fields
from vcd.timetravel.workload_expansion import (
    ExpansionContext,
    Work,
    called,
    expand,
    identity,
    is_workload,
    kind_of,
    named,
    owners_in,
)

NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
"""The namespaces that every cluster has."""
_SERVER_SET = (
    "creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "generation", "managedFields",
    "ownerReferences", "resourceVersion", "selfLink",
)  # fmt: skip
_FIRST = ("Namespace", "CustomResourceDefinition", "PriorityClass", "StorageClass", "LimitRange", "Queue", "Node")
"""The kinds that others depend on, in the order in which they are created."""
_VERSIONS = {"DaemonSet": "apps/v1", "Deployment": "apps/v1"}
"""The versions of kinds that no scheduler reads, for objects that state none."""
_VOLCANO_JOBS = "batch.volcano.sh"
"""The API group of Volcano's Jobs and CronJobs."""
_SCHEDULER = "volcano"
"""The scheduler of a simulation."""
_LABEL = "kubernetes.io/metadata.name"
_SIMULATION = "vcd.sim/"
"""Prefix of annotations that a simulation reads."""


class Reading(msgspec.Struct):
    """The objects that are understood, and sentences about the others.

    An API server or Volcano would refuse the objects in ``bad`` and those that ``refusals`` name. ``unknown`` is not
    understood. ``notes`` state which pods are not considered.
    """

    objects: list[Manifest] = msgspec.field(default_factory=list)
    bad: list[BadObject] = msgspec.field(default_factory=list)
    refusals: list[str] = msgspec.field(default_factory=list)
    unknown: list[str] = msgspec.field(default_factory=list)
    notes: list[str] = msgspec.field(default_factory=list)

    def refused(self) -> list[str]:
        """Return a sentence for each refused object, and for pods of missing PodGroups."""
        return [*map(str, self.bad), *self.refusals]


def read(
    manifests: Iterable[Any], there: Mapping[str, Collection[str] | None] | None = None, *, to_create: bool
) -> Reading:
    """Read documents, lists and single objects, in the order in which they are created.

    ``there`` has the keys of a cluster's objects by kind; with None for Namespace, no namespaces are added. With
    ``to_create`` the result is what `kubectl apply` would create: without fields that an API server sets, and without
    objects that other objects of the input create.
    """
    found = Reading()
    versions = _VERSIONS | {each.manifest_kind: each.api_version for each in kinds().values()}
    completed = (_complete(each, versions) for each in flatten(manifests, found.bad.append))
    given = [*_unique(completed, found)]
    read_kinds = {(each.manifest_kind, each.group) for each in kinds().values()}
    if to_create:
        made_from = [each for each in given if kind_of(each) in read_kinds or _is_understood(each)]
        makers = {(each["kind"], *_key(each).split("/", 1)) for each in made_from}
        given = [_without_server_fields(each) for each in given if not makers & owners_in([each])]
    known = [each for each in given if kind_of(each) in read_kinds or _is_understood(each)]
    found.unknown.extend(_unknown_kinds(given, read_kinds))
    found.unknown.extend(f"{called(each)}: {words}" for each in known for words in unknown_fields(each))
    known_keys = there or {}
    keys = {kind: {*(known_keys.get(kind, ()) or ())} for kind in ("PodGroup", "Namespace")}
    for each in known:
        keys.get(each["kind"], set()).add(_key(each))
    known = [*_with_groups(known, keys["PodGroup"], found)]
    spaces = {*NAMESPACES, *keys["Namespace"]}
    used = dict.fromkeys(space for each in known for space, slash, _ in [_key(each).partition("/")] if slash)
    namespaces = [
        _with_name_label({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        for name in used
        if name not in spaces and known_keys.get("Namespace", ()) is not None
    ]
    order = {kind: place for place, kind in enumerate(_FIRST)}
    found.objects = sorted([*namespaces, *known], key=lambda each: order.get(each["kind"], len(order)))
    return found


def work_of(
    objects: Sequence[Manifest],
    admission: PlanAdmission,
    nodes: Sequence[Node],
    bad: list[BadObject],
    uid: Callable[[Manifest], str],
) -> Iterator[tuple[Manifest, Work]]:
    """Yield each workload with the objects that its controller creates; none if the manifests have pods of it.

    Unreadable workloads are added to ``bad``.
    """
    owners = owners_in(objects)
    for manifest in filter(is_workload, objects):
        work = Work()
        try:
            new = named({**manifest, "metadata": {**(manifest.get("metadata") or {}), "uid": uid(manifest)}})
            if identity(new) not in owners:
                expand(new, work, ExpansionContext(admission.admitted, nodes))
        except BadObject as error:
            bad.append(error)
            continue
        work.pods = admission.created(work.pods)
        # a group that a controller creates from pods does not exist without created pods
        groups = [group for group in work.groups if work.pods or group.metadata.owner_references]
        work.groups = [admission.in_queue(group) for group in groups]
        yield new, work


def to_create(reading: Reading, controlled: Collection[tuple[str, str]], nodes: Iterable[Manifest]) -> list[Manifest]:
    """Return the objects to create in a cluster of ``nodes`` with controllers for the workloads of some kinds.

    Workloads of other kinds are replaced by their groups and pods, without owners. Pods that state no scheduler get
    this one. Missing priority classes are added with value 0. What is refused or not understood is added to the
    reading.
    """
    known = [*reading.objects, *system_classes(reading.objects)]
    admission = PlanAdmission(known, None, reading.bad.append, quotas=False)
    objects = [_with_scheduler(admission.stored(each)) for each in reading.objects]
    typed = nodes_in([*({"apiVersion": "v1", "kind": "Node", **node} for node in nodes), *objects])
    works = work_of(objects, admission, typed, reading.bad, short_uid)
    works_by_address = {_address(workload): work for workload, work in works}
    created: list[Manifest] = []
    scratch = ClusterState()
    for each in objects:
        if not is_workload(each):
            created.extend(_admit(each, admission, reading, scratch))
        elif kind_of(each) in controlled and _address(each) in works_by_address:
            created.append(each)
        elif (work := works_by_address.get(_address(each))) is not None:
            created.extend(_plain_work(each, work))
            reading.notes.extend(work.notes)
    classes = [_priority_class(name) for name in sorted(admission.classes)]
    reading.notes.extend(_of_other_schedulers(objects))
    reading.unknown.extend(admission.unknown())
    reading.refusals.extend(admission.refused())
    return [*classes, *map(_without_uid, created)]


def usable(manifest: Manifest, scratch: ClusterState) -> tuple[str, Any]:
    """Return kind and object of a manifest that a scheduler may read, or nothing, and add it to ``scratch``.

    Raises BadObject.
    """
    readers = [kind for kind in kinds().values() if (kind.manifest_kind, kind.group) == kind_of(manifest)]
    if not readers:
        return "", None
    name, obj, _ = from_manifest(defaulted(manifest, readers), readers)
    if why := unreadable(name, obj, scratch):
        raise BadObject(name, obj.key, why.removeprefix(f"{name} {obj.key}: "))
    return name, obj


def usable_objects(reading: Reading) -> list[tuple[str, Object]]:
    """Return kinds and objects that a scheduler may read, with the API server's defaults.

    Workloads are skipped. Unusable objects are added to the reading's ``bad``.
    """
    admission = PlanAdmission(reading.objects, None, reading.bad.append, quotas=False)
    scratch = ClusterState()
    found: list[tuple[str, Object]] = []
    for manifest in reading.objects:
        try:
            kind, obj = usable(admission.stored(manifest), scratch)
        except BadObject as error:
            reading.bad.append(error)
        else:
            found.extend([(kind, obj)] if kind and not is_workload(manifest) else [])
    return found


def queues_in(reading: Reading) -> list[Queue]:
    """Return the Queues; unusable ones are added to the reading's ``bad``."""
    return [obj for _, obj in usable_objects(reading) if isinstance(obj, Queue)]


def unreadable(kind: str, obj: Any, scratch: ClusterState) -> str:
    """Return why a scheduler sets an object aside; empty if it does not. The object is added to ``scratch``."""
    scratch.apply(scratch.sequence + 1, ev.ObjectPut(kind, obj.key, "", encode_payload(obj)))
    return scratch.bad.get((kind, obj.key), "")


def short_uid(workload: Manifest) -> str:
    """Return a uid that is the same for the same kind and name."""
    return f"{workload['kind'].lower()}-{workload['metadata'].get('name', '')}"


def _admit(manifest: Manifest, admission: PlanAdmission, reading: Reading, scratch: ClusterState) -> list[Manifest]:
    """Return the object, unless it is refused."""
    try:
        _, obj = usable(manifest, scratch)
        if isinstance(obj, Pod) and not admission.created([admission.admitted(obj)]):
            return []
    except BadObject as error:
        reading.bad.append(error)
        return []
    return [manifest]


def _with_scheduler(manifest: Manifest) -> Manifest:
    """Set this scheduler for pods that state none: a simulation has no other one."""
    is_pod = kind_of(manifest) == ("Pod", "")
    if not (is_pod or is_workload(manifest)) or kind_of(manifest)[1] == _VOLCANO_JOBS:
        return manifest
    manifest = with_spark_templates(manifest)
    if all(template["spec"].get("schedulerName") for _, template in templates_in(manifest)):
        return manifest
    new: Manifest = copy.deepcopy(manifest)
    for _, template in templates_in(new):
        template["spec"]["schedulerName"] = template["spec"].get("schedulerName") or _SCHEDULER
    return new


def _of_other_schedulers(objects: Iterable[Manifest]) -> Iterator[str]:
    """Yield a sentence for each scheduler other than this one that pods name."""
    found: dict[str, dict[str, None]] = {}
    for each in objects:
        if kind_of(each) == ("Pod", "") or is_workload(each):
            for _, template in templates_in(each):
                if (name := template["spec"].get("schedulerName")) and name != _SCHEDULER:
                    found.setdefault(str(name), {})[called(each)] = None
    for name, names in found.items():
        yield MANIFESTS.sentence("other scheduler", {"scheduler": name, "names": some([*names])})


def _plain_work(workload: Manifest, work: Work) -> Iterator[Manifest]:
    """Yield groups and pods as manifests without owners, with the workload's annotations for simulations."""
    marks = (workload["metadata"].get("annotations") or {}).items()
    own = {key: text for key, text in marks if key.startswith(_SIMULATION)}
    for kind, obj in (*(("PodGroup", each) for each in work.groups), *(("Pod", each) for each in work.pods)):
        plain: Manifest = msgspec.json.decode(msgspec.json.encode(obj))
        meta = {**plain["metadata"], "annotations": {**own, **plain["metadata"].get("annotations", {})}}
        meta.pop("ownerReferences", None)
        yield {**plain, "kind": kind, "apiVersion": KINDS[kind].api_version, "metadata": meta}


def _without_uid(manifest: Manifest) -> Manifest:
    return {**manifest, "metadata": {key: value for key, value in manifest["metadata"].items() if key != "uid"}}


def _priority_class(name: str) -> Manifest:
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": 0}


def nodes_in(objects: Iterable[Manifest]) -> list[Node]:
    """Return the nodes among manifests; unreadable ones are left out."""
    found = []
    for manifest in objects:
        if kind_of(manifest) != ("Node", ""):
            continue
        try:
            _, node, _ = from_manifest(manifest)
        except BadObject:
            continue
        if isinstance(node, Node):
            found.append(node)
    return found


# --- single objects ---------------------------------------------------------------------------------------------------


def _complete(manifest: Manifest, versions: Mapping[str, str]) -> Manifest:
    """Add the version to a kind that states none, and the name label to a namespace."""
    kind = manifest["kind"]
    if not manifest.get("apiVersion") and kind in versions:
        manifest = {**manifest, "apiVersion": versions[kind]}
    return _with_name_label(manifest) if kind_of(manifest) == ("Namespace", "") else manifest


def _with_name_label(namespace: Manifest) -> Manifest:
    meta = namespace.get("metadata") or {}
    labels = meta.get("labels") or {}
    if not isinstance(labels, Mapping):
        return namespace
    return {**namespace, "metadata": {**meta, "labels": {**labels, _LABEL: meta.get("name", "")}}}


def _unique(manifests: Iterable[Manifest], found: Reading) -> Iterator[Manifest]:
    """Yield objects with names; generated names are numbered. A duplicate counts once."""
    given = [*manifests]
    taken = {_address(each) for each in given}
    seen: set[tuple[str, str, str]] = set()
    numbers: dict[tuple[str, str, str], Iterator[int]] = {}
    for manifest in given:
        meta = manifest.get("metadata") or {}
        if not meta.get("name") and meta.get("generateName"):
            prefix = _address({**manifest, "metadata": {**meta, "name": meta["generateName"]}})
            names = (f"{meta['generateName']}{number}" for number in numbers.setdefault(prefix, count(1)))
            named_so = ({**manifest, "metadata": {**meta, "name": name}} for name in names)
            new = next(each for each in named_so if _address(each) not in taken)
            taken.add(_address(new))
            yield new
        elif not meta.get("name"):
            found.bad.append(BadObject(manifest["kind"], "", "it has no metadata.name"))
        elif _address(manifest) in seen:
            found.refusals.append(f"{called(manifest)}: it is given twice; leave one out")
        else:
            seen.add(_address(manifest))
            yield manifest


def _address(manifest: Manifest) -> tuple[str, str, str]:
    return *kind_of(manifest), _key(manifest)


def _key(manifest: Manifest) -> str:
    return called(manifest).partition(" ")[2]


def _without_server_fields(manifest: Manifest) -> Manifest:
    """Remove what an API server or a controller has set, also the node of a pod from a cluster."""
    meta = manifest["metadata"]
    new = {**manifest, "metadata": {key: value for key, value in meta.items() if key not in _SERVER_SET}}
    if is_workload(manifest) or manifest["kind"] in ("Pod", "PodGroup"):
        new.pop("status", None)
    if kind_of(manifest) == ("Pod", "") and meta.get("resourceVersion") and isinstance(manifest.get("spec"), Mapping):
        new["spec"] = {key: value for key, value in manifest["spec"].items() if key != "nodeName"}
    return new


def _is_understood(manifest: Manifest) -> bool:
    """Return whether a kind that no scheduler reads is read by admission, creates pods, or is known to create none."""
    podless = bool(manifest.get("apiVersion")) and is_podless(*kind_of(manifest))
    return podless or is_workload(manifest) or is_applied(manifest)


def _unknown_kinds(manifests: Iterable[Manifest], read_kinds: Collection[tuple[str, str]]) -> Iterator[str]:
    """Yield a sentence for each kind that is not understood."""
    found: dict[tuple[str, str], list[Manifest]] = {}
    for manifest in manifests:
        if kind_of(manifest) not in read_kinds and not _is_understood(manifest):
            found.setdefault(kind_of(manifest), []).append(manifest)
    for (kind, group), of_kind in found.items():
        path = next((path or "spec" for each in of_kind for path, _ in templates_in(each)), "")
        remedy = MANIFESTS.sentence("looks like pods" if path else "no template", {"path": path})
        facts = {"kind": kind, "group": group, "names": some([_key(each) for each in of_kind]), "remedy": remedy}
        yield MANIFESTS.sentence("unknown kind", facts, ["" if group else "unversioned"])


def _with_groups(manifests: Iterable[Manifest], groups: Collection[str], found: Reading) -> Iterator[Manifest]:
    """Yield the objects whose pods name no PodGroup, or an existing one."""
    lost: dict[tuple[str, str], list[str]] = {}
    for manifest in manifests:
        place = next((each for each in _groups_named(manifest) if each[1] not in groups), None)
        if place is None:
            yield manifest
        else:
            lost.setdefault(place, []).append(called(manifest))
    for (path, group), names in lost.items():
        found.refusals.append(f"there is no PodGroup {group}: {some(names)}, {path}; add the PodGroup")


def _groups_named(manifest: Manifest) -> Iterator[tuple[str, str]]:
    """Yield the path and the key of each PodGroup that unplaced pods name.

    Volcano's controller creates the group of a Volcano Job, whatever the annotations of its templates are.
    """
    is_pod = kind_of(manifest) == ("Pod", "")
    names_groups = is_pod or (is_workload(manifest) and kind_of(manifest)[1] != _VOLCANO_JOBS)
    space = _key(manifest).partition("/")[0]
    for path, template in templates_in(with_spark_templates(manifest)) if names_groups else ():
        meta = template.get("metadata")
        marks = meta.get("annotations") if isinstance(meta, Mapping) else None
        is_placed = is_pod and template["spec"].get("nodeName")
        if isinstance(marks, Mapping) and marks.get(GROUP_NAME) and not is_placed:
            yield f"{path}.metadata.annotations[{GROUP_NAME}]".removeprefix("."), f"{space}/{marks[GROUP_NAME]}"
