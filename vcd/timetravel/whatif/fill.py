"""How many more copies of a job fit now, where, and which resource runs out first."""

from __future__ import annotations

import dataclasses
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from vcd.eventlog import LogReader
from vcd.model import events as ev
from vcd.model.codec import encode_payload
from vcd.model.controllers import GROUP_NAME, JOB_NAME
from vcd.model.objects import Pod, PodGroup, altered
from vcd.model.quantity import format_resource
from vcd.model.requests import PODS, names_in_order
from vcd.model.words import counted, rfc3339
from vcd.scheduling.closing import plan_of
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.decide import run
from vcd.scheduling.framework.policy import Policy
from vcd.scheduling.framework.reasons import Told, told
from vcd.scheduling.search.candidates import Memory
from vcd.scheduling.session.session import Session
from vcd.state.cluster import ClusterState
from vcd.state.records import NodeRecord
from vcd.state.snapshot import SnapshotMaker
from vcd.state.sums import sum_of
from vcd.text.amounts import quantities_text
from vcd.text.reasons import reasons_text
from vcd.text.times import clock
from vcd.timetravel.whatif.present import present
from vcd.timetravel.whatif.submitted import job_name, submitted
from vcd.timetravel.workloads import Work

_PLACING = ("enqueue", "allocate", "backfill")
"""Actions that neither evict nor move pods."""
_UNBOUNDED = 2**31 - 1


class NodeKind(msgspec.Struct, frozen=True):
    """Equivalent nodes: with equal allocatable resources, labels (except their own names) and taints. ``labels`` are
    those that differ from other kinds; ``took`` is how many pods of the copies were placed there."""

    nodes: int
    allocatable: dict[str, str]
    labels: dict[str, str]
    unschedulable: bool
    took: int

    @property
    def words(self) -> str:
        """The nodes as text: ``4 nodes of cpu 8, memory 32Gi (pool=a)``."""
        marks = [f"{key}={value}" for key, value in self.labels.items()] + ["cordoned"] * self.unschedulable
        size = quantities_text(self.allocatable) or "no room"
        return f"{counted(self.nodes, 'node')} of {size}" + (f" ({', '.join(marks)})" if marks else "")


class Filling(msgspec.Struct):
    """How many ``copies`` of ``job`` (with ``pods`` pods each) one session would place completely, all at the same
    time.

    ``at_limit``: all tried copies fit, perhaps more. ``kinds`` are the cluster's nodes; ``why`` is what the first copy
    that does not fit waits for. ``used`` is the part of each resource, 0 to 1, in use afterwards on the nodes that
    took copies, the fullest first. ``now`` is in ns since the epoch, ``session`` the last one before it.
    """

    job: str
    now: int
    session: int
    pods: int
    copies: int
    at_limit: bool
    kinds: list[NodeKind]
    why: list[Told]
    used: dict[str, float]
    notes: list[str]
    unknown: list[str] = []
    refused: list[str] = []

    def lines(self) -> Iterator[str]:
        """Yield the answer in sentences, with times in UTC."""
        after = f", after session {self.session}" if self.session else ""
        at = clock(self.now)
        if self.copies:
            least = "at least " if self.at_limit else ""
            pods = f" ({self.copies * self.pods:,} pods)" if self.pods > 1 else ""
            verb = "fits" if self.copies == 1 else "fit"
            yield f"{least}{self.copies:,} more of {self.job} {verb}{pods} at {at}{after}"
        else:
            yield f"no more of {self.job} fits at {at}{after}"
        for kind in self.kinds:
            yield f"  {counted(kind.took, 'pod') if kind.took else 'none'} on {kind.words}"
        if self.why:
            yield f"the next one waits: {reasons_text(self.why)}"
        if self.used:
            parts = [f"{name} {part:.0%}" for name, part in self.used.items()]
            yield f"then in use of the nodes that took them: {', '.join(parts)}"
        for note in self.notes:
            yield f"note: {note}"


def fill(
    path: str | Path,
    manifest: Mapping[str, Any] | Iterable[Any],
    *,
    conf: str | None = None,
    session: int | None = None,
    limit: int = 100_000,
) -> Filling:
    """Return how many more copies of a job fit after a session of a log (None: at its end), at most ``limit``.

    ``manifest`` is one job: a Job, a Deployment, a Pod, or a PodGroup and its pods. A number of copies fits if one
    session binds all their pods, without evictions. ``conf`` is another configuration's text (None: the one in force).
    Raises LogError, PolicyError, BadObject.
    """
    with LogReader(path) as reader:
        here = present(reader, session)
    whole = read_policy(here.conf if conf is None else conf, logged=conf is None)
    policy = dataclasses.replace(whole, actions=tuple(name for name in whole.actions if name in _PLACING))
    job = submitted([manifest] if isinstance(manifest, Mapping) else manifest, here.state, rfc3339(here.now))
    trial = _Trial(here.state, policy, job, here.now)
    copies, at_limit = _largest_fitting(trial, limit)
    why = [] if at_limit else trial.first_waits(copies + 1)
    placed = trial.session(copies)
    notes = [*job.notes, *trial.others()]
    left_out = [name for name in whole.actions if name not in _PLACING]
    if left_out:
        notes.append(f"{', '.join(left_out)} left out: no pod is evicted or moved")
    return Filling(
        job=trial.name,
        now=here.now,
        session=here.session,
        pods=len(job.pods),
        copies=copies,
        at_limit=at_limit,
        kinds=_kinds(here.state, trial.places()),
        why=why,
        used=_use(placed, set(trial.places())),
        notes=notes,
        unknown=job.unknown,
        refused=job.refused,
    )


def _largest_fitting(trial: _Trial, limit: int) -> tuple[int, bool]:
    """Return the largest number of copies that fits, and whether that is the limit. The number is doubled, then
    bisected.

    How many of too many copies are bound in one session is only a first guess: copies whose minimum is less than all
    their pods share the capacity, and possibly none of them is bound completely.
    """
    fits, fails = 0, 1
    while trial.whole(fails) == fails:
        if fails == limit:
            return limit, True
        fits, fails = fails, min(2 * fails, limit)
    guess = trial.whole(fails)
    while fails - fits > 1:
        tried = guess if fits < guess < fails else guess + 1 if fits < guess + 1 < fails else (fits + fails) // 2
        if trial.whole(tried) == tried:
            fits = tried
        else:
            fails = tried
    return fits, False


class _Trial:
    """A state to which copies of a job are added and from which they are removed, decided again each time."""

    def __init__(self, state: ClusterState, policy: Policy, job: Work, now: int) -> None:
        self._state = state
        self._policy = policy
        self._job = job
        self._now = now
        self._memory = Memory()
        self._copies: list[tuple[list[str], list[str]]] = []
        """Keys of each copy's groups and pods."""
        self._present = 0
        self._plan = ev.Plan()
        self._decided = -1
        self._session: Session | None = None
        # one session places all of them, however many
        settings = msgspec.structs.replace(state.settings.as_done(), placements=_UNBOUNDED)
        self._happen(ev.PolicyLoaded(policy.digest, policy.text, settings.as_text()))
        for event in job.others:
            self._happen(event)
        self._maker = SnapshotMaker(state)

    @property
    def name(self) -> str:
        """The name of the job; of several, of the first one."""
        pod = self._job.pods[0]
        return job_name(pod.group_key, pod)

    def session(self, count: int) -> Session:
        """Return the session that decides about ``count`` copies."""
        if self._decided != count or self._session is None:
            self._set_copies(count)
            self._session = run(self._maker.snapshot(), self._policy, self._now, 0, self._memory)
            self._plan, self._decided = plan_of(self._session), count
        return self._session

    def whole(self, count: int) -> int:
        """Return how many of ``count`` copies are bound completely."""
        self.session(count)
        bound = self._bound()
        return sum(all(pod in bound for pod in pods) for _, pods in self._copies[:count])

    def first_waits(self, count: int) -> list[Told]:
        """Return why the first of ``count`` copies that is not bound completely waits."""
        self.session(count)
        bound = self._bound()
        for groups, pods in self._copies[:count]:
            if not all(pod in bound for pod in pods):
                own = set(groups)
                return [told(waiting) for waiting in self._plan.waiting if waiting.group in own and waiting.gate]
        return []

    def places(self) -> Counter[str]:
        """Return how many pods of the last decided copies each node takes."""
        copied = {pod for _, pods in self._copies[: self._decided] for pod in pods}
        return Counter(node for key, node in self._bound().items() if key in copied)

    def others(self) -> Iterator[str]:
        """Yield how many pods that waited already were placed in the last decided session."""
        count = len(self._bound()) - sum(self.places().values())
        if count:
            yield f"{counted(count, 'pod')} that waited were placed in the same session"

    def _bound(self) -> dict[str, str]:
        return {operation.key: operation.node for operation in self._plan.operations("bind")}

    def _set_copies(self, count: int) -> None:
        """Add or remove copies until there are ``count``."""
        for number in range(self._present, count):
            groups, pods = self._copy(number)
            if number == len(self._copies):
                self._copies.append(([group.key for group in groups], [pod.key for pod in pods]))
            for group in groups:
                self._happen(ev.ObjectPut("PodGroup", group.key, "", encode_payload(group)))
            for pod in pods:
                self._happen(ev.ObjectPut("Pod", pod.key, "", encode_payload(pod)))
        for group_keys, pod_keys in self._copies[count : self._present]:
            for key in pod_keys:
                self._happen(ev.ObjectGone("Pod", key))
            for key in group_keys:
                self._happen(ev.ObjectGone("PodGroup", key))
        self._present = count

    def _happen(self, event: ev.Event) -> None:
        self._state.apply(self._state.sequence + 1, event)

    def _copy(self, number: int) -> tuple[list[PodGroup], list[Pod]]:
        """Return the job with other names, which sort by number."""
        mark = f"-copy-{number:06d}"
        renamed = {group.key for group in self._job.groups}
        groups = [_copy_of(group, mark, renamed) for group in self._job.groups]
        return groups, [_copy_of(pod, mark, renamed) for pod in self._job.pods]


def _copy_of(obj: Any, mark: str, groups: set[str]) -> Any:
    """Return an object with another name, also in references to copied groups and jobs."""
    meta = obj.metadata
    annotations, labels = dict(meta.annotations), dict(meta.labels)
    if f"{meta.namespace}/{annotations.get(GROUP_NAME, '')}" in groups:
        annotations[GROUP_NAME] += mark
    for marks in (annotations, labels):
        if JOB_NAME in marks:
            marks[JOB_NAME] += mark
    name, uid = meta.name + mark, str(uuid.uuid5(uuid.NAMESPACE_URL, f"{meta.uid}{mark}"))
    return altered(obj, metadata={"name": name, "uid": uid, "annotations": annotations, "labels": labels})


# --- nodes ------------------------------------------------------------------------------------------------------------


def _kinds(state: ClusterState, took: Mapping[str, int]) -> list[NodeKind]:
    """Return the cluster's nodes by what they offer, those with most new pods first."""
    # without labels whose value is the node's own name, such as kubernetes.io/hostname
    label_keys = {
        key
        for name, record in state.nodes.items()
        for key, value in record.node.metadata.labels.items()
        if value != name
    }
    by_offer: dict[Any, list[str]] = {}
    for name, record in sorted(state.nodes.items()):
        by_offer.setdefault(_offer(record, label_keys), []).append(name)
    shared = set.intersection(*(set(labels) for _, labels, *_ in by_offer)) if by_offer else set()
    found = [
        NodeKind(
            nodes=len(names),
            allocatable=_size(dict(allocatable)),
            labels={key: value for key, value in labels if (key, value) not in shared},
            unschedulable=unschedulable,
            took=sum(took.get(name, 0) for name in names),
        )
        for (allocatable, labels, _, unschedulable), names in by_offer.items()
    ]
    return sorted(found, key=lambda kind: (-kind.took, -kind.nodes, kind.words))


def _offer(record: NodeRecord, label_keys: set[str]) -> tuple[Any, tuple[tuple[str, str], ...], Any, bool]:
    spec, labels = record.node.spec, record.node.metadata.labels
    own = tuple(sorted((key, value) for key, value in labels.items() if key in label_keys))
    return tuple(sorted(record.allocatable.items())), own, spec.taints, spec.unschedulable


def _size(allocatable: dict[str, int]) -> dict[str, str]:
    """Return the resources that distinguish nodes: all but their number of pods."""
    names = [name for name in names_in_order(allocatable) if name != PODS and allocatable[name]]
    return {name: format_resource(name, allocatable[name]) for name in names}


def _use(session: Session, names: set[str]) -> dict[str, float]:
    """Return the used part of each resource of some nodes at the end of a session, the fullest first."""
    nodes = session.nodes
    rows = [row for row, name in enumerate(nodes.facts.names) if name in names]
    if not rows:
        return {}
    used = sum_of(nodes.usage.used[:, rows], axis=1).tolist()
    room = sum_of(nodes.usage.allocatable[:, rows], axis=1).tolist()
    parts = {name: one / all_ for name, one, all_ in zip(nodes.resources, used, room, strict=True) if all_ and one}
    return dict(sorted(parts.items(), key=lambda part: (-part[1], part[0])))
