"""One cycle over plain manifests: a state folded from them, decided on, and told as names."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

import msgspec

from vcd.model import events as ev
from vcd.model.codec import BadObject, encode_payload, from_manifest, kinds_of
from vcd.model.controllers import GROUP_NAME, Manifest
from vcd.model.kinds import KINDS, Kind
from vcd.model.manifests import (
    default_queues,
    defaulted,
    flatten,
    group_for,
    with_limits_as_requests,
)
from vcd.model.objects import Object, Pod, altered
from vcd.model.quantity import QuantityError
from vcd.scheduling.closing import plan_of
from vcd.scheduling.decide import run
from vcd.scheduling.framework import execution
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.framework.policy import Policy
from vcd.scheduling.framework.reasons import told
from vcd.scheduling.framework.registry import kinds, kinds_read
from vcd.state.cluster import ClusterState
from vcd.state.records import Settings
from vcd.state.snapshot import SnapshotMaker
from vcd.timetravel.unknownfields import unknown_fields
from vcd.timetravel.workloads import (
    Work,
    called,
    expand,
    identity,
    in_group,
    is_workload,
    kind_of,
    named,
    owners_in,
    passed_over,
)

EVERY_SCHEDULER = Settings(scheduler_names=())


class PlanResult(msgspec.Struct):
    """What one cycle would do; keys are ``namespace/name``.

    ``ungated`` are pods whose queue's scheduling gate would be lifted.
    ``why`` tells for each group that waits what for: entries of gate, plugin, reason, nodes, pods and quantities.
    ``notes`` say what of the manifests was passed over, ``unknown`` names fields that there are none of.
    ``set_aside`` holds objects that could not be used, with the reason; ``problems`` what plugins find wrong with
    objects that were used, by ``Kind key``; ``faults`` plugins and actions that failed and were left out, as
    ``name: error``.
    """

    binds: dict[str, str] = msgspec.field(default_factory=dict)
    evictions: list[str] = msgspec.field(default_factory=list)
    ungated: list[str] = msgspec.field(default_factory=list)
    pipelined: dict[str, str] = msgspec.field(default_factory=dict)
    phases: dict[str, str] = msgspec.field(default_factory=dict)
    why: dict[str, list[dict[str, Any]]] = msgspec.field(default_factory=dict)
    set_aside: dict[str, str] = msgspec.field(default_factory=dict)
    problems: dict[str, list[str]] = msgspec.field(default_factory=dict)
    faults: list[str] = msgspec.field(default_factory=list)
    notes: list[str] = msgspec.field(default_factory=list)
    unknown: list[str] = msgspec.field(default_factory=list)


def state_of(manifests: Iterable[Any], kinds: Collection[Kind] = tuple(KINDS.values())) -> ClusterState:
    """The state that manifests describe, as if listed from an API server with Volcano's controllers.

    Workloads whose pods are not given are taken as these make pods of them. Objects of other kinds than ``kinds`` are
    passed over. Order does not matter.
    """
    return _described(list(flatten(manifests)), kinds, EVERY_SCHEDULER)[0]


def _described(
    manifests: list[Manifest], kinds: Collection[Kind], settings: Settings
) -> tuple[ClusterState, list[str]]:
    """The state, and what was passed over; ``settings`` as `plan` has them."""
    schedulers = settings.scheduler_names or None
    known = [defaulted(manifest, kinds) for manifest in manifests]
    state = ClusterState()
    state.apply(1, ev.PolicyLoaded("", "", settings.as_text()))
    entries: list[tuple[str, str, str, bytes | str]] = []  # kind, key, of which pod it is implied, payload or fault
    # the pods of a cluster's workloads are listed themselves, and more would be of no use to it
    workloads = [manifest for manifest in known if is_workload(manifest)] if schedulers is None else []
    work, bad = _worked_out(workloads, owners_in(known))
    entries.extend(("PodGroup", group.key, "", encode_payload(group)) for group in work.groups)
    entries.extend(("Pod", pod.key, "", encode_payload(pod)) for pod in _with_priorities(work.pods, known))
    for manifest in (*known, *default_queues(known, settings.default_queue)):
        for read in _readers(manifest, kinds):
            try:
                entries.extend(_entries(manifest, read, schedulers))
            except BadObject as error:
                entries.append((error.kind, error.key, "", error.message))
    unusable = {(kind, key) for kind, key, _, content in bad}
    entries = [entry for entry in entries if entry[:2] not in unusable]  # those that other objects are spread by, too
    for kind, key, pod, content in sorted([*entries, *bad], key=lambda entry: entry[:3]):
        if pod and key in state.digests.get(kind, {}):
            continue  # the group is given, or an earlier pod of the same owner implied it
        event = (
            ev.ObjectBad(kind, key, "", content) if isinstance(content, str) else ev.ObjectPut(kind, key, "", content)
        )
        state.apply(state.sequence + 1, event)
    rest = [each for each in known if not is_workload(each) and not _readers(each, (*KINDS.values(), *kinds))]
    return state, [*work.notes, *passed_over(rest)]


def _readers(manifest: Manifest, kinds: Collection[Kind]) -> list[Kind]:
    """The kinds that read an object; those of another API group that are called the same do not."""
    _, group = kind_of(manifest)
    return [read for read in kinds_of(manifest, kinds) if not manifest.get("apiVersion") or read.group == group]


def _worked_out(
    workloads: list[Manifest], owners: Collection[tuple[str, str, str]]
) -> tuple[Work, list[tuple[str, str, str, str]]]:
    """What is made of workloads of which nothing is given yet, and entries for those that cannot be read."""
    work = Work()
    bad: list[tuple[str, str, str, str]] = []
    for manifest in workloads:
        kind, meta = str(manifest["kind"]), manifest.get("metadata") or {}
        try:
            new = named({**manifest, "metadata": {**meta, "uid": f"{kind.lower()}-{meta.get('name', '')}"}})
            if identity(new) not in owners:
                expand(new, work)
        except BadObject as error:
            bad.append((error.kind, error.key, "", error.message))
    work.pods = [with_limits_as_requests(pod) for pod in work.pods]
    return work, bad


def _with_priorities(pods: Iterable[Pod], manifests: Iterable[Manifest]) -> Iterator[Pod]:
    """Pods with the priority of their class, as the API server fills it in, where the manifests have that class."""
    values = {
        str((each.get("metadata") or {}).get("name", "")): each.get("value")
        for each in manifests
        if each.get("kind") == "PriorityClass"
    }
    for pod in pods:
        value = values.get(pod.spec.priority_class_name)
        if pod.spec.priority is None and isinstance(value, int):
            yield altered(pod, spec={"priority": value})
        else:
            yield pod


def _entries(manifest: Any, read: Kind, schedulers: Collection[str] | None) -> list[tuple[str, str, str, bytes]]:
    """The object of a manifest, and the group that is implied. Raises BadObject."""
    kind, obj, _ = from_manifest(manifest, (read,))
    groups: list[Object] = []
    if isinstance(obj, Pod) and (schedulers is None or obj.spec.scheduler_name in schedulers):
        groups, obj = _grouped(with_limits_as_requests(obj))
    return [
        (kind, obj.key, "", encode_payload(obj)),
        *(("PodGroup", group.key, obj.key, encode_payload(group)) for group in groups),
    ]


def _grouped(pod: Pod) -> tuple[list[Object], Pod]:
    """The group that is made for a pod which is to be scheduled and names none, and the pod in it."""
    if GROUP_NAME in pod.metadata.annotations or (pod.spec.node_name and pod.spec.scheduler_name != "volcano"):
        return [], pod
    try:
        _, group, _ = from_manifest(group_for(pod))
    except (QuantityError, BadObject):
        return [], pod  # it is set aside itself, with the reason, when it is folded
    return [group], in_group(pod, group.metadata.name)


def plan(
    manifests: Iterable[Any],
    policy: Policy,
    now: int,
    seed: int = 0,
    settings: Settings = EVERY_SCHEDULER,
) -> PlanResult:
    """One cycle over manifests at ``now`` (nanoseconds since the epoch).

    Where ``settings`` name schedulers, the manifests are all that a cluster lists: pods of these schedulers are ours,
    workloads have the pods that are listed, and fields were checked by the API server. Else they are people's, whose
    every pending pod is ours.
    """
    given = list(flatten(manifests))
    state, notes = _described(given, kinds_read(policy), settings)
    session = run(SnapshotMaker(state).snapshot(), policy, now, seed)
    execution.take_problems(framework_of(session), kinds(), None)
    result = _result_of(state, plan_of(session))
    result.notes.extend(notes)
    if not settings.scheduler_names:
        unknown = (f"{called(manifest)}: {words}" for manifest in given for words in unknown_fields(manifest))
        result.unknown.extend(unknown)
    for name, found in session.problems.items():
        if isinstance(found, Exception):
            result.faults.append(f"{name}: problems: {type(found).__name__}: {found}")
            continue
        for problem in sorted(found):
            result.problems.setdefault(f"{problem.kind} {problem.key}", []).append(problem.message)
    return result


def _result_of(state: ClusterState, plan: ev.Plan) -> PlanResult:
    """A plan told as names."""
    result = PlanResult(set_aside={f"{kind} {key}": message for (kind, key), message in sorted(state.bad.items())})
    result.faults.extend(plan.faults)
    result.binds = dict(sorted((one.key, one.node) for one in plan.operations("bind")))
    result.pipelined = dict(sorted((one.key, one.node) for one in plan.operations("pipeline")))
    result.evictions = sorted(one.key for one in plan.operations("evict"))
    result.ungated = sorted(one.key for one in plan.operations("ungate"))
    phases = {key: record.group.status.phase or "Pending" for key, record in state.groups.items()}
    phases.update({status.key: status.phase for status in plan.groups})
    result.phases = dict(sorted(phases.items()))
    for waiting in plan.waiting:
        entry: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(told(waiting)))
        result.why.setdefault(entry.pop("group"), []).append(entry)
    return result
