"""Reports the results of sessions: log lines, metrics, Events, and conditions and statuses of objects.

Most of it runs in `FollowUp`, in slices after the session. Before changing it: objects may be deleted, recreated or
changed between the decision and the write, so each write checks UID and current state.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass
from functools import partial

import msgspec
import numpy as np
import structlog

from vcd.daemon.concurrency.followup import FollowUp
from vcd.daemon.metrics.metric_series import LabelValues
from vcd.daemon.metrics.metrics_collector import Metrics, SessionSummary
from vcd.daemon.options import Options
from vcd.daemon.reporting.autoscaler_hint import POD_GROUP_MISSING, UNSCHEDULABLE, PodReasons
from vcd.daemon.reporting.invalid_objects import InvalidObjects
from vcd.daemon.reporting.late_pods import LatePods
from vcd.daemon.reporting.reason_texts import ReasonTexts
from vcd.daemon.reporting.report_dedup import FaultDedup, ProblemDedup, uid_of
from vcd.kube.client import KubeClient
from vcd.kube.clock import Clock
from vcd.kube.event_recorder import EventRecorder
from vcd.kube.status_writer import StatusWriter
from vcd.model import events as ev
from vcd.model.objects import Condition, Pod, PodGroupStatus
from vcd.model.projection_codec import group_status
from vcd.model.status import UNSCHEDULABLE as NOT_READY
from vcd.model.status import TaskStatus, condition_of
from vcd.scheduling.framework.guard import name_in
from vcd.scheduling.framework.registry import kinds
from vcd.scheduling.session.session import Session
from vcd.state.cluster_state import ClusterState
from vcd.state.records import GroupRecord
from vcd.text.condition_texts import freed_on, sentence_of, stated, unschedulable

_HAS_NO_NODE = (TaskStatus.PENDING, TaskStatus.ALLOCATED, TaskStatus.PIPELINED)
"""States of tasks without a bind. Tasks that are allocated within a waiting gang are reported like pending ones."""

_log = structlog.get_logger(__name__)


def _release_session(record: ev.SessionDecided | None, plan: ev.Plan, session: Session, at: int) -> None:
    session.release()


def _nominations(record: ev.SessionDecided | None, plan: ev.Plan) -> list[ev.Operation]:
    """Return the operations that nominate pods for the capacity of victims of the same statement."""
    stale = {} if record is None else dict(record.stale)
    valid = [one.operations for number, one in enumerate(plan.statements) if record is not None and number not in stale]
    evicting = [operations for operations in valid if any(operation.verb == "evict" for operation in operations)]
    return [operation for operations in evicting for operation in operations if operation.verb == "pipeline"]


@dataclass(eq=False)
class StatusReporter:
    """Follows sessions and events, and writes to the API server while this replica leads (``leads``)."""

    options: Options
    client: InitVar[KubeClient]
    state: ClusterState
    metrics: Metrics
    leads: Callable[[], bool]
    clock: InitVar[Clock]

    def __post_init__(self, client: KubeClient, clock: Clock) -> None:
        self._observed_groups: dict[str, tuple[str, PodGroupStatus, str]] = {}
        """Version, status and UID of each group as last observed by the watch."""
        dropped = partial(self.metrics.series.add, "vcd_writes_dropped_total")
        self.recorder = EventRecorder(
            client, self.options.scheduler_names[0], self.leads, on_dropped=dropped, clock=clock, kinds=kinds()
        )
        self.statuses = StatusWriter(
            client,
            self.leads,
            known_group=self._observed_groups.get,
            is_pending=self._may_wait,
            is_current=self._still_holds,
            observed_status=self._observed_status,
            on_dropped=dropped,
            on_refused=self._status_refused,
            clock=clock,
        )
        self.followup = FollowUp()
        self._fault_dedup = FaultDedup(clock.monotonic)
        self._misconfigured = ProblemDedup()
        self._late_pods = LatePods(self.state)
        self._invalid_objects = InvalidObjects(self.state, self.recorder, self.statuses)
        self._clock = clock
        self._messages: dict[str, str] = {}
        """The last message of the condition, by group below its minimum."""
        self._sentences: dict[str, str] = {}
        """The diagnosis that condition, pods and Events of a waiting group state; missing until it is known."""
        self._unstated: dict[str, None] = {}
        """Groups with a diagnosis that their pods and Events do not state yet."""
        self._nominated: set[str] = set()
        """Pods whose condition states that they wait for the capacity of victims."""
        self._texts = ReasonTexts()
        self.on_reported: Callable[[ev.SessionDecided | None, ev.Plan, Session, int], None] = _release_session
        """Called with each reported session and its time (ns). The callee must release the session."""

    def begin(self) -> None:
        """Begin a term: report what only the log has."""
        self.statuses.begin_term()
        self._sentences.clear()
        self._late_pods.look()
        self._invalid_objects.report_all()
        self.write_groups_again()

    def session(
        self, record: ev.SessionDecided | None, plan: ev.Plan, session: Session, durations: Mapping[str, float]
    ) -> None:
        """Report a session. ``record`` is None if nothing changed in it."""
        summary = self.metrics.begin_session(session, plan, record, durations)
        self._report_faults(plan, session)
        self._report_misconfigured(session)
        at = self._clock.wall()
        self.followup.add(summary, lambda found: self._report(found, record, plan, session, at))

    def _report(
        self, summary: SessionSummary, record: ev.SessionDecided | None, plan: ev.Plan, session: Session, at: int
    ) -> Iterator[None]:
        """Write the results of a session in slices that end at each yield."""
        self.metrics.end_session(summary)
        yield
        nominations = _nominations(record, plan)
        nominated = {**session.snapshot.nominated, **{pod.key: pod.node for pod in nominations}}
        if record is not None:
            yield from self._note_messages(plan, session)
            decided = session.snapshot.groups
            yield from self._write_groups(plan.groups, decided, f"session-{record.session}")
            self.statuses.submit_queues(plan.queues)
            yield from self._report_waiting(plan, session, nominated)
        yield from self._report_late_pods(session, {waiting.group for waiting in plan.waiting}, nominated)
        for pod in nominations:
            self._report_nominated(pod.key, pod.uid, pod.node)
            yield
        self.on_reported(record, plan, session, at)

    def retry_unwritten(self) -> None:
        """Write statuses and conditions again that the API server does not have."""
        self.write_groups_again()
        self.statuses.retry_unwritten()

    def write_groups_again(self) -> None:
        """Write decided statuses that the API server does not have, for example after a crash."""
        if self.leads() and self.state.intended_status:
            self.followup.add(
                lambda: list(self.state.intended_status.values()),
                lambda groups: self._write_groups(groups, self.state.groups),
            )

    def _write_groups(
        self, groups: Sequence[ev.GroupStatus], of: Mapping[str, GroupRecord], transition: str = ""
    ) -> Iterator[None]:
        """Submit statuses to the groups ``of`` the session that decided them."""
        for group in groups:
            if record := of.get(group.key):
                self.statuses.submit_groups((self._with_message(group),), transition, record.group.metadata.uid)
            yield

    # --- conditions of groups ---------------------------------------------------------------------------------------

    def _note_messages(self, plan: ev.Plan, session: Session) -> Iterator[None]:
        """Note the message of each group that gets the condition: the diagnosis if it is known, else the reasons."""
        for status in plan.groups:
            if status.key not in self.state.groups:  # deleted since the decision
                continue
            reasons, index = self.state.waiting.get(status.key), session.jobs.index(status.key)
            if reasons and index is not None and status.condition is not None and status.condition[0] == NOT_READY:
                job = session.job(index)
                given = self._texts.of(reasons).text_of([one for one in reasons if one.gate != "gang"] or reasons)
                words = self._sentences.get(status.key, given)
                message = unschedulable(job.min_available - job.ready_count, job.task_count, words)
                self._messages[status.key] = message
                yield

    def _with_message(self, status: ev.GroupStatus) -> ev.GroupStatus:
        """Return a status with the message of its condition, or without the condition until the message is known."""
        condition = status.condition
        if condition is None or condition[0] != NOT_READY:
            return status
        message = self._messages.get(status.key)
        return msgspec.structs.replace(status, condition=None if message is None else (*condition[:3], message))

    def _still_holds(self, key: str, condition: str) -> bool:
        """Return whether a group's condition still holds. The session that decided it may be outdated by now."""
        record = self.state.groups.get(key)
        return record is None or condition_of(condition, record.group.status.conditions) is not None

    def verdict(self, group: str, message: str, first: bool = False) -> None:
        """State the diagnosis of a waiting group in its condition, its pods' conditions and Events.

        If ``first``, the message applies only to a group whose condition has no message, for example after a crash.
        """
        record = self.state.groups.get(group)
        if record is None or group not in self.state.waiting or not self.leads():  # placed or deleted since
            return
        condition = condition_of(NOT_READY, record.group.status.conditions)
        if condition is not None and condition.status == "True":
            known = condition.message or self._messages.get(group, "")
            message = known if first and known else message
            if message != known or not first:
                self._write_message(group, record, condition, message)
        sentence = sentence_of(message)
        if self._sentences.get(group) != sentence and not (first and group in self._sentences):
            self._sentences[group] = sentence
            if not self._unstated:
                self.followup.add(lambda: None, lambda _: self._state_sentences())
            self._unstated[group] = None

    def _write_message(self, group: str, record: GroupRecord, condition: Condition, message: str) -> None:
        self._messages[group] = message
        if condition.message != message:
            new_condition, status = (condition.type, condition.status, condition.reason, message), record.group.status
            counts = (status.running, status.succeeded, status.failed)
            self.statuses.submit_groups(
                (ev.GroupStatus(group, status.phase, new_condition, *counts),), uid=record.group.metadata.uid
            )

    def _state_sentences(self) -> Iterator[None]:
        """State the diagnoses of groups on their pods without a node and in Events."""
        groups, self._unstated = self._unstated, {}
        rows_of = self._pending_rows(groups)
        for group in groups:
            record, reasons = self.state.groups.get(group), self.state.waiting.get(group)
            sentence = self._sentences.get(group, "")
            if record is None or not reasons or not sentence or not self.leads():
                continue
            self.recorder.record("PodGroup", group, record.group.metadata.uid, "Warning", "Unschedulable", sentence)
            reason_of = PodReasons(reasons, self.state.settings.queue_of(record.group), self.state.queues)
            own = self._texts.of(reasons).by_pod()
            for row in rows_of.get(group, ()):
                pod = self.state.pods[row]
                if pod is None or pod.group_key != group or pod.key in self._nominated:  # the row was reused since
                    continue
                words = stated(sentence, pod.key, own)
                if self._may_wait(pod.key) and not self._states_message(pod, words):
                    self._report_pod(pod, reason_of, words, "")
                yield

    def _pending_rows(self, groups: Iterable[str]) -> dict[str, list[int]]:
        """Return the rows of the pending pods of groups, in one pass over all pods."""
        tasks, number_of = self.state.tasks, self.state.job_keys.number
        numbers = {number: group for group in groups if (number := number_of(group)) is not None}
        jobs = tasks.column("job")
        rows = np.flatnonzero(np.isin(jobs, list(numbers)) & (tasks.column("status") == TaskStatus.PENDING))
        found: dict[str, list[int]] = {}
        for row, number in zip(rows.tolist(), jobs[rows].tolist(), strict=True):
            found.setdefault(numbers[number], []).append(row)
        return found

    # --- plugins ----------------------------------------------------------------------------------------------------

    def record_at_configuration(self, reason: str, message: str) -> None:
        """Record a warning Event at the scheduler's ConfigMap."""
        namespace = os.environ.get("POD_NAMESPACE") or self.options.lease_namespace
        subject = f"{namespace}/{self.options.scheduler_configmap}"
        self.recorder.record("ConfigMap", subject, "", "Warning", reason, message)

    def report_foreign_bind(self, key: str, uid: str, message: str) -> None:
        """Report by an Event at a pod that another scheduler bound it."""
        self.recorder.record("Pod", key, uid, "Warning", "ForeignBind", message)

    def _report_faults(self, plan: ev.Plan, session: Session) -> None:
        """Report new faults of plugins: a log line with the traceback, and an Event at the ConfigMap."""
        for fault in plan.faults:
            if self._fault_dedup.is_news(fault):
                error = session.errors.get(name_in(fault))
                _log.error("plugin failed; the cycle went on without it", fault=fault, exc_info=error)
                self.record_at_configuration("PluginFault", f"{fault}; the cycle went on without it")

    def report_stuck_plugin(self, late: ev.PluginLate, words: str) -> None:
        """Report a plugin that does not return, and blocks its session."""
        _log.error("plugin does not come back; only a restart helps", fault=late.fault)
        self.record_at_configuration("PluginFault", f"{words}; vcd has to be restarted, and goes on without it")
        self.metrics.series.add("vcd_plugin_faults_total", late.name)

    def _report_misconfigured(self, session: Session) -> None:
        """Record an Event at each object in which a plugin found a new problem."""
        for problem in self._misconfigured.news(session):
            if not problem.kind:
                _log.warning("a plugin cannot do its work", problem=problem.message)
                self.record_at_configuration("PluginFault", problem.message)
                continue
            uid = uid_of(self.state, problem.kind, problem.key)
            _log.warning("object is misconfigured", kind=problem.kind, key=problem.key, problem=problem.message)
            self.recorder.record(problem.kind, problem.key, uid, "Warning", "Misconfigured", problem.message)
        self.metrics.observe_misconfigured(self._misconfigured.counts())

    # --- conditions of pods -----------------------------------------------------------------------------------------

    def _report_waiting(self, plan: ev.Plan, session: Session, nominated: Mapping[str, str]) -> Iterator[None]:
        """Write the condition of each pod that waits: the diagnosis of its group if it is known, else the reasons.

        Cluster autoscalers read from the condition which pods more nodes would help.
        """
        for key, reasons in ev.waits_by_group(plan.waiting).items():
            yield
            if not reasons:
                self._sentences.pop(key, None)
                continue
            own, words = self._messages_of(key, reasons)
            index = session.jobs.index(key)
            if index is None:
                continue
            job = session.job(index)
            reason_of = PodReasons(reasons, job.queue.name, self.state.queues)
            for task in job.pending():
                node = nominated.get(task.key, "")
                if task.status == TaskStatus.PIPELINED and node:
                    self._report_nominated(task.key, task.pod.metadata.uid, node)
                elif task.status in _HAS_NO_NODE:
                    self._report_pod(task.pod, reason_of, own.get(task.key, words), node)
                yield

    def _messages_of(self, group: str, reasons: Sequence[ev.Waiting], sentence: str = "") -> tuple[dict[str, str], str]:
        """Return the messages of a group's pods that have their own, by key, and the message of all others.
        ``sentence`` is the diagnosis if this process has none."""
        rendered, sentence = self._texts.of(reasons), self._sentences.get(group) or sentence
        own = rendered.by_pod()
        if not sentence:
            return own, rendered.text_of(reasons)
        return {pod: stated(sentence, pod, own) for pod in own}, sentence

    def _report_late_pods(
        self, session: Session, reported: Container[str], nominated: Mapping[str, str]
    ) -> Iterator[None]:
        """Write the condition of late pods, whose group is not in ``reported`` because its reasons did not change."""
        known: tuple[Sequence[ev.Waiting], dict[str, str], str] | None = None
        for key, pod, reasons in self._late_pods.seen(session.snapshot.sequence):
            yield
            group = session.snapshot.groups.get(reasons[0].group)
            if known is None or known[0] is not reasons:  # pods of one group mostly arrived one after the other
                shown = () if group is None else group.group.status.conditions
                condition = condition_of(NOT_READY, shown)  # may have the diagnosis of an earlier process
                sentence = "" if condition is None or condition.status != "True" else sentence_of(condition.message)
                known = reasons, *self._messages_of(reasons[0].group, reasons, sentence)
            words = known[1].get(key, known[2])
            if reasons[0].group not in reported and not self._states_message(pod, words):
                queue = "" if group is None else session.queue_name_of(group)
                self._report_pod(pod, PodReasons(reasons, queue, self.state.queues), words, nominated.get(key, ""))

    def _may_wait(self, key: str) -> bool:
        """Return whether a pod may still be pending: it is unknown, pending or binding."""
        row = self.state.tasks.row_of.get(key)
        return row is None or self.state.tasks.at(row, "status") in (TaskStatus.PENDING, TaskStatus.BINDING)

    def _observed_status(self, key: str, uid: str, type: str) -> str:
        """Return the observed status of a pod's condition; empty if there is none, or the UID differs."""
        pod = self.state.pod(key)
        found = None if pod is None or pod.metadata.uid != uid else condition_of(type, pod.status.conditions)
        return "" if found is None else found.status

    def _states_message(self, pod: Pod, words: str) -> bool:
        """Return whether a pod's submitted or observed condition states these words, or that it is nominated."""
        observed = condition_of("PodScheduled", pod.status.conditions)
        condition = self.statuses.pod_condition(pod.key, pod.metadata.uid) or observed
        nominated = pod.status.nominated_node_name
        return condition is not None and condition.message in (words, freed_on(nominated) if nominated else words)

    def _report_pod(self, pod: Pod, reason_of: PodReasons, message: str, nominated: str) -> None:
        key, uid = pod.key, pod.metadata.uid
        self._nominated.discard(key)
        if not pod.spec.scheduling_gates:  # for gated pods the API server writes SchedulingGated
            reason = UNSCHEDULABLE if self.options.unschedulable == "all" else reason_of.of(key)
            self.statuses.submit_pod_condition(key, uid, Condition("PodScheduled", "False", reason, message), nominated)
        sentence = self._sentences.get(pod.group_key)
        if sentence and message.startswith(sentence):  # Events state nothing but the diagnosis
            self.recorder.record("Pod", key, uid, "Warning", "FailedScheduling", message)

    def _report_nominated(self, key: str, uid: str, node: str) -> None:
        """Write the condition of a preemptor, with the node on which it waits for the capacity of its victims."""
        if self.state.pod(key) is not None:  # sessions are reported later: the pod can be deleted by then
            self._nominated.add(key)
        condition = Condition("PodScheduled", "False", UNSCHEDULABLE, freed_on(node))
        self.statuses.submit_pod_condition(key, uid, condition, node)

    def _status_refused(self, kind: str, key: str, why: str) -> None:
        """Report by an Event that an object's status cannot be written, so that the object stays outdated."""
        message = f"vcd cannot write the status of this {kind}: {why}"
        self.recorder.record(kind, key, uid_of(self.state, kind, key), "Warning", "StatusRefused", message)

    def report_missing_group(self, pod: Pod, why: str) -> None:
        """Report at a pod that it belongs to no PodGroup, or that its PodGroup cannot be created."""
        if not pod.spec.scheduling_gates:  # for gated pods the API server writes SchedulingGated
            condition = Condition("PodScheduled", "False", POD_GROUP_MISSING, why)
            self.statuses.submit_pod_condition(pod.key, pod.metadata.uid, condition)
        self.recorder.record("Pod", pod.key, pod.metadata.uid, "Warning", POD_GROUP_MISSING, why)

    def observe_causes(self, causes: Mapping[str, str]) -> None:
        """Pass the causes that held longest, by group, to the metrics."""
        self.followup.add(self.metrics.judge(causes), self._expose_verdicts)

    def _expose_verdicts(self, verdicts: Mapping[LabelValues, int]) -> Iterator[None]:
        self.metrics.observe_verdicts(verdicts)
        yield

    # --- events -----------------------------------------------------------------------------------------------------

    def observe(self, event: ev.Event) -> None:
        """Note an event that is in the state."""
        if self.leads():
            self._late_pods.observe(event)
        else:
            self._late_pods.forget()
        if isinstance(event, ev.KindListed):  # a restore of etcd can undo writes
            self.statuses.forget_all(event.kind)
            if event.kind == "Pod" and self.leads():
                self._late_pods.look()
        if isinstance(event, (ev.ObjectPut, ev.ObjectGone, ev.ObjectBad)):
            if event.kind == "PodGroup":
                self._note_group(event)
                if isinstance(event, ev.ObjectGone):
                    self._messages.pop(event.key, None)
                if not isinstance(event, ev.ObjectPut):
                    self._sentences.pop(event.key, None)
            elif event.kind == "Queue":
                self.statuses.observe_queue(event.key, event.resource_version)
            if isinstance(event, ev.ObjectGone):
                if event.kind == "Pod":
                    self._nominated.discard(event.key)
                self.statuses.forget(event.kind, event.key)
                if self._misconfigured.forget(event.kind, event.key):
                    self.metrics.observe_misconfigured(self._misconfigured.counts())
            self._invalid_objects.observe(event)

    def _note_group(self, event: ev.ObjectPut | ev.ObjectGone | ev.ObjectBad) -> None:
        """Cache a group's observed status, so that a write needs no read before it."""
        known, record = self._observed_groups.pop(event.key, None), self.state.groups.get(event.key)
        if not isinstance(event, ev.ObjectPut) or record is None:
            return
        status = known[1] if known is not None else None
        if event.payload is not None:
            status = group_status(event.payload)
        if status is not None and event.resource_version:
            self._observed_groups[event.key] = (event.resource_version, status, record.group.metadata.uid)
