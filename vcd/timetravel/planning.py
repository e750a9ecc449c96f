"""One cycle over manifests: fold a state from them, decide, and return the result by names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from vcd.diagnosis.diagnosedwaits import DiagnosedWait, diagnosed_waits, job_name
from vcd.model import events as ev
from vcd.model.controllers import GROUP_NAME, Manifest
from vcd.model.kinds import KINDS, Kind
from vcd.model.manifests import (
    default_queues,
    defaulted,
    flatten,
    group_for,
    system_classes,
)
from vcd.model.objects import Pod, PodGroup
from vcd.model.projection_codec import BadObject, encode_payload, from_manifest, kinds_of
from vcd.model.quantity import QuantityError
from vcd.scheduling.decide import run
from vcd.scheduling.framework import execution
from vcd.scheduling.framework.declared_reasons import told
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.framework.policy import Policy
from vcd.scheduling.framework.registry import kinds, kinds_read
from vcd.scheduling.session.session import Session
from vcd.scheduling.session_close import plan_of
from vcd.state.cluster_state import ClusterState
from vcd.state.records import Settings
from vcd.state.snapshot import SnapshotMaker
from vcd.timetravel.manifest_reader import Reading, nodes_in, read, short_uid, work_of
from vcd.timetravel.plan_admission import PlanAdmission, is_stored
from vcd.timetravel.workload_expansion import Work, identity, in_group, kind_of

EVERY_SCHEDULER = Settings(scheduler_names=(), kinds=0)

Entry = tuple[str, str, str, bytes | str]
"""Object kind, key, the pod that implies it (empty for none), and payload or fault."""


class PlacedJob(msgspec.Struct):
    """A job with pods that would be bound or pipelined: ``group`` is the key of its PodGroup, ``job`` the name that
    users know, ``binds`` and ``pipelined`` give nodes by pod."""

    group: str
    job: str
    queue: str
    binds: dict[str, str]
    pipelined: dict[str, str]


class PlanResult(msgspec.Struct):
    """What one cycle would do; keys are ``namespace/name``.

    ``placed`` has the same binds and pipelined pods by job; ``waits`` the jobs that wait, each with its cause.
    ``ungated`` are pods whose queue's scheduling gate would be lifted. ``why`` has the reasons of each waiting group:
    gate, plugin, reason, nodes, pods and quantities. ``notes`` state which pods were not considered, ``unknown`` what
    is not understood in the manifests, ``refused`` which objects and pods an API server would refuse. ``set_aside``
    has objects that could not be used, with the reason; ``problems`` what plugins find wrong with objects that were
    used, by ``Kind key``; ``faults`` plugins and actions that failed and were left out, as ``name: error``.
    """

    binds: dict[str, str] = msgspec.field(default_factory=dict)
    evictions: list[str] = msgspec.field(default_factory=list)
    ungated: list[str] = msgspec.field(default_factory=list)
    pipelined: dict[str, str] = msgspec.field(default_factory=dict)
    placed: list[PlacedJob] = msgspec.field(default_factory=list)
    waits: list[DiagnosedWait] = msgspec.field(default_factory=list)
    phases: dict[str, str] = msgspec.field(default_factory=dict)
    why: dict[str, list[dict[str, Any]]] = msgspec.field(default_factory=dict)
    set_aside: dict[str, str] = msgspec.field(default_factory=dict)
    problems: dict[str, list[str]] = msgspec.field(default_factory=dict)
    faults: list[str] = msgspec.field(default_factory=list)
    notes: list[str] = msgspec.field(default_factory=list)
    unknown: list[str] = msgspec.field(default_factory=list)
    refused: list[str] = msgspec.field(default_factory=list)


def state_of(manifests: Iterable[Any], kinds: Collection[Kind] = tuple(KINDS.values())) -> ClusterState:
    """Return the state that manifests describe, as if listed from an API server with Volcano's controllers.

    Pods of workloads are created as the controllers do, unless they are given. Objects of kinds other than ``kinds``
    are ignored. Order does not matter.
    """
    reading = Reading()
    reading.objects = [*flatten(manifests, reading.bad.append)]
    return _fold_manifests(reading, kinds, EVERY_SCHEDULER)[0]


def _fold_manifests(
    reading: Reading, kinds: Collection[Kind], settings: Settings
) -> tuple[ClusterState, PlanAdmission, list[str]]:
    """Return the state, the admission of its objects, and notes; ``settings`` as for `plan`."""
    schedulers = settings.scheduler_names or None
    kinds_by_name = _by_name(kinds)
    known = [defaulted(manifest, kinds_by_name.get(kind_of(manifest)[0], ())) for manifest in reading.objects]
    known = [*known, *default_queues(known, settings.default_queue), *system_classes(known)]
    admission = PlanAdmission(known, schedulers, reading.bad.append)
    known = [admission.stored(manifest) for manifest in known]
    state = ClusterState()
    state.apply(1, ev.PolicyLoaded("", "", settings.as_text()))
    entries: list[Entry] = []
    notes: list[str] = []
    if schedulers is None:  # a cluster lists the pods of its workloads itself
        for workload, work in work_of(known, admission, nodes_in(known), reading.bad, short_uid):
            notes.extend(work.notes)
            try:
                entries.extend(_entries_of(workload, work))
            except BadObject as error:
                reading.bad.append(error)
    bad: list[Entry] = [(error.kind, error.key, "", error.message) for error in reading.bad]
    for manifest in known:
        for read_as in _readers(manifest, kinds_by_name):
            try:
                entries.extend(_entries(manifest, read_as, admission))
            except BadObject as error:
                entries.append((error.kind, error.key, "", error.message))
    unusable = {(kind, key) for kind, key, _, content in bad}
    entries = [entry for entry in entries if entry[:2] not in unusable]  # only as bad objects
    for kind, key, pod, content in sorted([*entries, *bad], key=lambda entry: entry[:3]):
        if pod and key in state.digests.get(kind, {}):
            continue  # the group is given, or an earlier pod of the same owner implied it
        event = (
            ev.ObjectBad(kind, key, "", content) if isinstance(content, str) else ev.ObjectPut(kind, key, "", content)
        )
        state.apply(state.sequence + 1, event)
    return state, admission, notes


def _by_name(kinds: Iterable[Kind]) -> Mapping[str, list[Kind]]:
    found: defaultdict[str, list[Kind]] = defaultdict(list)
    for kind in kinds:
        found[kind.manifest_kind].append(kind)
    return found


def _readers(manifest: Manifest, kinds: Mapping[str, list[Kind]]) -> list[Kind]:
    name, group = kind_of(manifest)
    read = kinds_of(manifest, kinds.get(name, ()))
    return [kind for kind in read if not manifest.get("apiVersion") or kind.group == group]


def _entries_of(workload: Manifest, work: Work) -> list[Entry]:
    """Return entries for what a workload creates. Raises BadObject with the workload's name for a number beyond 64
    bits."""
    try:
        return [
            *(("PodGroup", group.key, "", encode_payload(group)) for group in work.groups),
            *(("Pod", pod.key, "", encode_payload(pod)) for pod in work.pods),
        ]
    except BadObject as error:
        kind, space, name = identity(workload)
        raise BadObject(kind, f"{space}/{name}", f"what it makes: {error}") from error


def _entries(manifest: Any, read: Kind, admission: PlanAdmission) -> list[Entry]:
    """Return the object of a manifest and its implied group; nothing for a refused pod. Raises BadObject."""
    kind, obj, version = from_manifest(manifest, (read,))
    groups: list[PodGroup] = []
    if isinstance(obj, Pod) and admission.is_ours(obj):
        there = is_stored(obj, version)
        obj = admission.admitted(obj, is_stored=there)
        if not there and not admission.created([obj]):
            return []
        groups, obj = _with_group(obj)
        groups = [admission.in_queue(group) for group in groups]
    return [
        (kind, obj.key, "", encode_payload(obj)),
        *(("PodGroup", group.key, obj.key, encode_payload(group)) for group in groups),
    ]


def _with_group(pod: Pod) -> tuple[list[PodGroup], Pod]:
    """Return the group that a controller creates for a pod without one, and the pod in it."""
    if GROUP_NAME in pod.metadata.annotations or (pod.spec.node_name and pod.spec.scheduler_name != "volcano"):
        return [], pod
    try:
        _, group, _ = from_manifest(group_for(pod))
    except (QuantityError, BadObject):
        return [], pod  # the pod itself is set aside, with the reason, when it is folded
    assert isinstance(group, PodGroup)
    return [group], in_group(pod, group.metadata.name)


def plan(
    manifests: Iterable[Any],
    policy: Policy,
    now: int,
    seed: int = 0,
    settings: Settings = EVERY_SCHEDULER,
) -> PlanResult:
    """Decide one cycle over manifests at ``now`` (nanoseconds since the epoch).

    If ``settings`` name schedulers, the manifests are all that a cluster lists: pods of these schedulers are planned,
    workloads have the listed pods, and the API server has validated all fields. Otherwise users wrote the manifests,
    and all their pending pods are planned.
    """
    if settings.scheduler_names:
        reading = Reading()
        reading.objects = [*flatten(manifests, reading.bad.append)]
    else:
        reading = read(manifests, to_create=False)
    state, admission, notes = _fold_manifests(reading, kinds_read(policy), settings)
    session = run(SnapshotMaker(state).snapshot(), policy, now, seed)
    execution.take_problems(framework_of(session), kinds(), None)
    result = _result_of(state, session, plan_of(session))
    result.notes.extend([*notes, *admission.notes()])
    if not settings.scheduler_names:
        result.unknown.extend([*reading.unknown, *admission.unknown()])
        set_aside = (f"{name}: {words.removeprefix(f'{name}: ')}" for name, words in result.set_aside.items())
        result.refused.extend([*set_aside, *reading.refusals, *admission.refused()])
    for name, found in session.problems.items():
        if isinstance(found, Exception):
            result.faults.append(f"{name}: problems: {type(found).__name__}: {found}")
            continue
        for problem in sorted(found):
            result.problems.setdefault(f"{problem.kind} {problem.key}", []).append(problem.message)
    return result


def _result_of(state: ClusterState, session: Session, plan: ev.Plan) -> PlanResult:
    result = PlanResult(set_aside={f"{kind} {key}": message for (kind, key), message in sorted(state.bad.items())})
    result.faults.extend(plan.faults)
    result.binds = dict(sorted((one.key, one.node) for one in plan.operations("bind")))
    result.pipelined = dict(sorted((one.key, one.node) for one in plan.operations("pipeline")))
    result.evictions = sorted(one.key for one in plan.operations("evict"))
    result.placed = _placed_jobs(state, session, plan)
    result.waits = diagnosed_waits(session, ev.waits_after(session.snapshot.waiting, plan.waiting))
    result.ungated = sorted(one.key for one in plan.operations("ungate"))
    phases = {key: record.group.status.phase or "Pending" for key, record in state.groups.items()}
    phases.update({status.key: status.phase for status in plan.groups})
    result.phases = dict(sorted(phases.items()))
    for waiting in plan.waiting:
        entry: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(told(waiting)))
        result.why.setdefault(entry.pop("group"), []).append(entry)
    return result


def _placed_jobs(state: ClusterState, session: Session, plan: ev.Plan) -> list[PlacedJob]:
    """Return the jobs that a plan gives nodes, by key, each with its pods."""
    found: dict[str, PlacedJob] = {}
    for operation in sorted((*plan.operations("bind"), *plan.operations("pipeline")), key=lambda one: one.key):
        pod = state.pod(operation.key)
        record = None if pod is None else state.groups.get(pod.group_key)
        if record is None:
            continue
        key = record.group.key
        if key not in found:
            found[key] = PlacedJob(key, job_name(record.group), session.queue_name_of(record), {}, {})
        nodes = found[key].binds if operation.verb == "bind" else found[key].pipelined
        nodes[operation.key] = operation.node
    return [found[key] for key in sorted(found)]
