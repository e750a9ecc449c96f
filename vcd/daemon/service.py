"""Constructs the components of one replica in the order of their dependencies, and starts and stops them.

`SchedulerService` is one replica on an open log and connection. `process` opens these, and constructs another service
if the replica has to restart. Before changing it: shutdown ends the cycle first, then the calls in flight, then the
Lease, so that the next leader need not wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import socket
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any

import structlog

from vcd.daemon.controllers.default_queues import DefaultQueues
from vcd.daemon.controllers.podgroup_creator import PodGroups
from vcd.daemon.controllers.queue_states import QueueStates
from vcd.daemon.controllers.role_label import RoleLabel
from vcd.daemon.cycle.replay_check import ReplayCheck
from vcd.daemon.cycle.session_loop import Cycle, Gather, wait_for_more
from vcd.daemon.cycle.watchdog import Watchdog
from vcd.daemon.faults.fault_monitor import FailingWrites, FaultMonitor, Look, Sighting
from vcd.daemon.faults.missing_objects import GroupsWithoutPods, PodsWithoutGroup, jobs_without_nodes
from vcd.daemon.faults.unstarted_jobs import UnstartedJobs
from vcd.daemon.http.endpoints import serve_metrics
from vcd.daemon.http.security import Security
from vcd.daemon.leadership.interlock import Interlock
from vcd.daemon.leadership.leadership_terms import Terms
from vcd.daemon.leadership.replica_status import StatusNote
from vcd.daemon.metrics.metrics_collector import Metrics
from vcd.daemon.options import PODGROUP, QUEUE, Options, split_address
from vcd.daemon.outside.http_outside import HttpOutside
from vcd.daemon.outside.usage_poller import UsagePoller
from vcd.daemon.persistence.archiver import Archiver
from vcd.daemon.persistence.housekeeping import maintain_log, watch_wall_clock
from vcd.daemon.persistence.state_writer import StateWriter
from vcd.daemon.policy_file import PolicyFile
from vcd.daemon.quiescence import Quiescence
from vcd.daemon.replicas.log_follower import LogDiverged, LogReplaced
from vcd.daemon.replicas.replica import Replica, TermEnded
from vcd.daemon.reporting.status_reporter import StatusReporter
from vcd.daemon.reporting.verdicts import Verdicts
from vcd.daemon.shadow_mode import Shadow, ShadowTerms
from vcd.daemon.watching.consistent_reads import ConsistentReads
from vcd.daemon.watching.outcome_resolver import OutcomeResolver
from vcd.daemon.watching.watches import Watches
from vcd.kube.client import KubeClient
from vcd.kube.clock import SYSTEM_CLOCK, Clock, SteadyClock, sleep_until
from vcd.kube.committer import Committer
from vcd.kube.lease import LeaderElector
from vcd.kube.request_info import CompletedRequest
from vcd.kube.volume_binder import BIND_TIMEOUT
from vcd.model import events as ev
from vcd.model.installation_faults import (
    CONFIGURATION_REFUSED,
    IDENTITY_SHARED,
    JOBS_NOT_STARTED,
    KIND_NOT_LISTED,
    NO_GROUP,
    NO_NODE,
    NO_PODS,
    OTHER_SCHEDULER,
    UNREACHABLE,
    WRITE_REFUSED,
    WRITE_UNANSWERED,
)
from vcd.model.wording import rfc3339
from vcd.scheduling.framework.policy import Policy
from vcd.scheduling.framework.registry import bind_timeout, kinds_read
from vcd.scheduling.session.session import Session

_log = structlog.get_logger(__name__)

_METRICS_PERIOD = 1.0
"""Seconds between updates of the replica's metrics."""

_RESTARTS = (TermEnded, LogReplaced, LogDiverged)
"""Errors after which the process continues with a new service: the service has not failed."""


class SchedulerService:
    """One replica."""

    def __init__(
        self,
        options: Options,
        client: KubeClient,
        state_writer: StateWriter,
        policy: PolicyFile,
        loaded: ev.PolicyLoaded,
        metrics: Metrics,
        clock: Clock = SYSTEM_CLOCK,
        gather: Gather = wait_for_more,
    ) -> None:
        self.options = options
        self.loaded = loaded
        self.clock = clock
        self.client = client
        self.state_writer = state_writer
        self.policy = policy
        state = state_writer.state
        self.commits: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None
        self.metrics = metrics
        if options.page_url:
            self.metrics.series.show("vcd_page_info", {(options.page_url.rstrip("/"),): 1})
        self.shadow = Shadow(self.metrics, clock) if options.shadow else None
        refused = partial(self.metrics.series.add, "vcd_certificate_reload_errors_total")
        self.security = Security(options, client, refused)
        self.watches = Watches(
            client, state, state_writer.put, kinds_read(policy.policy), on_synced=state_writer.changed.set
        )
        terms = ShadowTerms if options.shadow else Terms
        self.terms = terms(
            options,
            client,
            state_writer,
            self.watches,
            self.metrics,
            self._begin_to_lead,
            make_replica=self._build_replica if options.replicas_address else None,
            to_log_first=self._policy_to_log,
        )
        leads = self.terms.leads
        self.replica = self.terms.replica
        if self.replica is None and not options.shadow:
            self.terms.writes.set()
        self.status_reporter = StatusReporter(options, client, state, self.metrics, leads, clock)
        self.committer = self._build_committer()
        self.lookups = OutcomeResolver(self.committer, state, self.watches, state_writer.put, leads, clock=clock)
        self.watchdog = Watchdog(state_writer, options.plugin_timeout or math.inf, wall=clock.wall)
        self.outside = HttpOutside(self.watchdog.check)
        self.reads = ConsistentReads(client, self.watches, clock)
        self.cycle = self._build_cycle(gather)
        self.verdicts = self._build_verdicts()
        self.status_reporter.on_reported = self.verdicts.session
        usage_polled = partial(self.metrics.series.add, "vcd_usage_polls_total")
        self.usage = UsagePoller(client, state, state_writer.put, lambda: policy.policy.metrics, usage_polled, clock)
        self.default_queues = self._build_default_queues()
        self.podgroups = PodGroups(client, state, leads, self.status_reporter.report_missing_group, clock=clock)
        self.rest = Quiescence(
            state_writer, self.watches, self.terms, self.cycle, self.status_reporter, self.verdicts, self.commits
        )
        identity = self.terms.elector.identity
        self.archiver = Archiver(options, state_writer.log, self.metrics, identity, self._leads_under, clock)
        self.queue_states = QueueStates(client, state, leads, self.status_reporter.statuses.version_of, clock=clock)
        self.failing_writes = FailingWrites(clock)
        self.unstarted_jobs = UnstartedJobs(client, state, leads, clock=clock)
        self.installation = self._build_installation()
        self._connect()
        self.interlock = None if options.shadow else self._build_interlock()

    def _connect(self) -> None:
        """Subscribe the components to events, and to requests that ended."""
        state_writer, state = self.state_writer, self.state_writer.state
        self.client.on_completed = self._request_completed
        self.metrics.watches = self.watches.running
        self.metrics.set_aside = lambda: state.bad
        state_writer.observers += [self._observe, self.status_reporter.observe, self.verdicts.observe]
        state_writer.observers += [
            self.lookups.observe,
            self.rest.observe,
            self.reads.observe,
            self.default_queues.observe,
        ]
        if PODGROUP in self.options.controllers:
            state_writer.observers.append(self.podgroups.observe)
        if QUEUE in self.options.controllers:
            state_writer.observers.append(self.queue_states.observe)

    def _build_committer(self) -> Committer:
        return Committer(
            self.client,
            self.state_writer.put,
            self.terms.holds,
            self.status_reporter.recorder,
            self.status_reporter.statuses,
            bind_timeout=bind_timeout(self.policy.policy) or BIND_TIMEOUT,
            clock=self.clock,
        )

    def _build_verdicts(self) -> Verdicts:
        return Verdicts(
            self.options.event_log,
            self.state_writer.state,
            self.cycle.deciding,
            self.watchdog,
            self.status_reporter.verdict,
            self.status_reporter.observe_causes,
            lambda name, error: self.metrics.observe_reporting_fault(name, "verdict", error),
            self.clock,
        )

    def _build_default_queues(self) -> DefaultQueues:
        return DefaultQueues(
            self.client,
            self.options.default_queue,
            lambda: self.state_writer.state.keys("Queue"),
            self.terms.leads,
            partial(self.status_reporter.record_at_configuration, "QueueMissing"),
            clock=self.clock,
        )

    def _build_replica(self, elector: LeaderElector) -> Replica:
        admit = self.security.check_follower
        return Replica(self.state_writer, elector, admit, self._replica_headers, self.clock)

    def _replica_headers(self) -> dict[str, str]:
        """Return the headers for following another replica. The kubelet renews the token's file."""
        file = self.options.replicas_token_file
        return {} if file is None else {"Authorization": f"Bearer {file.read_text().strip()}"}

    def _followed(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Serve the log to other replicas, if an address is set. Raises OSError."""
        if self.replica is None:
            return contextlib.nullcontext()
        host, port = split_address(self.options.replicas_address, "--replicas-address")
        advertised = self.options.replicas_advertise or os.environ.get("POD_IP") or socket.gethostname()
        return self.replica.served(host, port, advertised)

    def _policy_to_log(self) -> list[ev.Event]:
        """Return the configuration of the file, unless the log has it already: the file may have changed while another
        replica's log was followed."""
        if not self.terms.writes.is_set():  # else the file is followed
            self.loaded = self.policy.load(self.state_writer.state.policy)
            self.watches.expect(kinds_read(self.policy.policy))
            self.metrics.series.show("vcd_policy_info", {(self.loaded.digest,): 1})
        return [] if self.state_writer.state.policy == self.loaded else [self.loaded]

    def _build_cycle(self, gather: Gather) -> Cycle:
        shadow = self.shadow
        # a shadow may only list and watch, and carries out no statement
        mode: dict[str, Any] = (
            {"read": self.reads.read} if shadow is None else {"is_news": shadow.is_news, "is_done": False}
        )
        return Cycle(
            self.state_writer,
            self._policy_in_force,
            self.terms.epoch_to_decide_under,
            self._hand_over if shadow is None else shadow.session,
            seed=self.options.seed,
            period=self.options.schedule_period,
            gather=gather,
            room=self.status_reporter.followup.room,
            in_session=self._session_first,
            clock=self.clock.wall,
            until=partial(sleep_until, self.clock),
            outside=self.outside,
            watchdog=self.watchdog,
            check=ReplayCheck(
                self.options.replay_every, partial(self.metrics.series.add, "vcd_replay_mismatches_total")
            ),
            **mode,
        )

    @contextlib.contextmanager
    def _session_first(self) -> Iterator[None]:
        """Pause the reporting of earlier sessions while a session is decided."""
        with self.client.session(), self.status_reporter.followup.session():
            yield

    def _build_interlock(self) -> Interlock:
        made = Interlock(
            self.options,
            self.state_writer.state,
            self.terms.leads,
            self.state_writer.put,
            self.status_reporter.report_foreign_bind,
            self.metrics,
            self.clock,
        )
        self.state_writer.observers.append(made.observe)
        return made

    def _build_installation(self) -> FaultMonitor:
        groupless = PodsWithoutGroup(
            self.state_writer.state,
            self.terms.leads,
            self.status_reporter.report_missing_group,
            lambda: "PodGroup" in self.terms.kinds_not_listed(),
            clock=self.clock,
        )
        admitted = GroupsWithoutPods(self.state_writer.state, clock=self.clock)
        looks: dict[str, Look] = {
            UNREACHABLE: self._unreachable,
            WRITE_REFUSED: self.failing_writes.refused,
            WRITE_UNANSWERED: self.failing_writes.unanswered,
            KIND_NOT_LISTED: self.terms.kinds_not_listed,
            IDENTITY_SHARED: self.terms.identity_shared,
            CONFIGURATION_REFUSED: self._configuration_refused,
            OTHER_SCHEDULER: self._other_scheduler,
            NO_NODE: partial(jobs_without_nodes, self.state_writer.state),
            NO_GROUP: groupless.look,
            NO_PODS: admitted.look,
            JOBS_NOT_STARTED: self.unstarted_jobs.look,
        }
        return FaultMonitor(
            self.state_writer.state,
            self.state_writer.put,
            self.terms.writes.is_set,
            self.metrics.series,
            lambda reason, message: (
                self.status_reporter.record_at_configuration(reason, message) if self.terms.leads() else None
            ),
            looks=looks,
            clock=self.clock,
        )

    def _unreachable(self) -> dict[str, Sighting]:
        since = self.client.unreachable_since
        return {"API server": Sighting(f"no request has been answered since {rfc3339(since)}")} if since else {}

    def _configuration_refused(self) -> dict[str, Sighting]:
        why = self.policy.refused
        self.metrics.series.show("vcd_policy_last_reload_successful", not why)
        return {"--scheduler-conf": Sighting(why)} if why else {}

    def _other_scheduler(self) -> dict[str, Sighting]:
        held, now = self.state_writer.state.held_namespaces, self.clock.wall()
        found = Sighting("another scheduler binds pods of vcd's schedulerName (vcd log ls --type foreign)")
        return {namespace: found for namespace, until in held.items() if until > now}

    def _request_completed(self, done: CompletedRequest) -> None:
        self.metrics.observe_request(done)
        self.failing_writes.observe(done)

    def _leads_under(self) -> int | None:
        """Return the epoch under which this replica leads, if it does."""
        if not self.terms.leads():
            return None
        return self.terms.elector.epoch if self.options.leader_elect else 0

    def _policy_in_force(self) -> Policy:
        """Return the policy of the log's head: no session may be decided under a newer one."""
        loaded = self.state_writer.state.policy
        return self.policy.policy if loaded is None else self.policy.named(loaded.digest)

    def _begin_to_lead(self) -> None:
        self.verdicts.begin()
        self.status_reporter.begin()
        self.installation.announce_all()
        if self.policy.refused:  # refused before this term, when it could write no Event
            self.status_reporter.record_at_configuration("BadConfiguration", f"--scheduler-conf: {self.policy.refused}")
        self.default_queues.due.set()

    def _hand_over(
        self, record: ev.SessionDecided | None, plan: ev.Plan, session: Session, durations: dict[str, float]
    ) -> None:
        self.metrics.series.show("vcd_watches_trusted", self.reads.trusts_watches)
        self.status_reporter.session(record, plan, session, durations)
        if record is None:
            return
        if any(statement.operations for statement in plan.statements):
            task = asyncio.get_running_loop().create_task(self._commit(record, plan, self.cycle.logged))
            self.commits.add(task)
            task.add_done_callback(self._commit_ended)
        _log.debug(
            "session",
            statements=len(plan.statements),
            stale=len(record.stale),
            seconds=round(durations["total"], 4),
        )

    async def _commit(self, record: ev.SessionDecided, plan: ev.Plan, sequence: int) -> None:
        """Carry a session out, once a follower has its event."""
        if self.replica is not None:
            began = self.clock.monotonic()
            await self.replica.have_all(sequence)
            waited = self.metrics.series.distribution("vcd_event_log_followers_wait_seconds")
            waited.observe(self.clock.monotonic() - began)
        await self.committer.commit(record, plan)

    def _commit_ended(self, task: asyncio.Task[None]) -> None:
        self.commits.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("commit failed", error=repr(task.exception()))  # the state writer ends the process

    def _observe(self, event: ev.Event) -> None:
        if isinstance(event, ev.OperationDone):
            self.metrics.observe_outcome(event)
        elif isinstance(event, ev.PluginLate) and (stuck := self.watchdog.stuck()) is not None:
            self.status_reporter.report_stuck_plugin(event, stuck)

    async def _policy_changed(self, event: ev.PolicyLoaded) -> None:
        kinds = kinds_read(self.policy.policy)
        await self.watches.read(kinds)  # no session may use it before these are listed
        await self.state_writer.put([event])
        await self.watches.read_only(kinds)
        self.metrics.series.show("vcd_policy_info", {(event.digest,): 1})
        self.usage.reloaded.set()

    def _policy_refused(self, reason: str) -> None:
        self.metrics.series.add("vcd_policy_reload_errors_total")
        self.status_reporter.record_at_configuration("BadConfiguration", reason)

    # --- probes ------------------------------------------------------------------------------------------------------

    def ready(self) -> str | None:
        """Return why this replica is not ready, or None. A follower is ready if it has the leader's log."""
        if self.replica is not None and not self.terms.writes.is_set():
            return self.replica.behind()
        return self.installation.not_ready() or (None if self.watches.synced() else "not all lists are in")

    def healthy(self) -> str | None:
        """Return why this replica should be restarted, or None."""
        if self.state_writer.log.failure is not None:
            return str(self.state_writer.log.failure)
        if self._failure is not None:
            return repr(self._failure)
        return self.watchdog.stuck()

    # --- run and shutdown ---------------------------------------------------------------------------------------------

    async def run(self, stop: asyncio.Event) -> None:
        """Run all components until ``stop``; then end calls in flight, write a checkpoint and release the Lease."""
        async with serve_metrics(self.options, self.metrics, self.security), self._followed():
            tasks = [asyncio.get_running_loop().create_task(part) for part in self._parts()]
            stopping = asyncio.get_running_loop().create_task(stop.wait())
            try:
                await self._until_one_fails(stopping, tasks)
            finally:
                stopping.cancel()
                await self._shut_down(tasks)

    def _parts(self) -> list[Coroutine[Any, Any, None]]:
        """Return the coroutines to run; the cycle is the first, because shutdown ends it first."""
        state_writer, metrics, status_reporter = self.state_writer, self.metrics, self.status_reporter
        parts: list[Coroutine[Any, Any, None]] = [
            self.cycle.run(),
            state_writer.until_broken(),
            self._when_it_writes(self.watches.run),
            status_reporter.recorder.run(),
            status_reporter.statuses.run(),
            status_reporter.followup.run(),
            self.verdicts.run(),
            self.installation.run(),
            *self.terms.parts(),
            maintain_log(
                self.options,
                state_writer,
                metrics,
                self.clock,
                status_reporter.retry_unwritten,
                self.terms.writes.is_set,
                self.archiver,
            ),
            self.archiver.run(),
            self._when_it_writes(partial(self.policy.follow, self._policy_changed, self._policy_refused)),
            metrics.measure_pauses(),
            self._when_it_writes(self.usage.run),
            self.default_queues.run(),
            self._when_it_writes(self.lookups.run),
        ]
        if PODGROUP in self.options.controllers:
            parts.append(self.podgroups.run())
        if QUEUE in self.options.controllers:
            parts.append(self.queue_states.run())
        if self.options.check_volcano_jobs:
            parts.append(self.unstarted_jobs.run())
        if isinstance(self.clock, SteadyClock):
            parts.append(self._when_it_writes(partial(watch_wall_clock, self.clock, state_writer, metrics)))
        if self.interlock is not None:
            parts.append(self.interlock.run())
        if self.options.leader_elect and not self.shadow:
            follower = None if self.replica is None else self.replica.follower
            note = StatusNote(self.options.event_log, self.terms.elector, follower, self.terms.leads)
            parts.append(note.run())
        if self.replica is not None:
            parts += [self.replica.run(), self._update_replica_metrics(self.replica)]
        if (pod := os.environ.get("POD_NAME")) and (namespace := os.environ.get("POD_NAMESPACE")) and not self.shadow:
            parts.append(RoleLabel(self.client, f"{namespace}/{pod}", self.terms.leads, self.clock).run())
        return parts

    async def _update_replica_metrics(self, replica: Replica) -> None:
        series, followers, late, sent = self.metrics.series, replica.followers, 0, 0
        while True:
            series.show("vcd_event_log_lag_events", replica.follower.lag)
            series.show("vcd_event_log_followers", sum(one.keeps_up for one in followers.connected))
            series.add("vcd_event_log_followers_late_total", by=followers.late - late)
            series.add("vcd_event_log_sent_bytes_total", by=followers.sent - sent)
            late, sent = followers.late, followers.sent
            await self.clock.sleep(_METRICS_PERIOD)

    async def _when_it_writes(self, part: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a component that logs events once this replica writes the log."""
        await self.terms.writes.wait()
        await part()

    async def _until_one_fails(self, stopping: asyncio.Task[Any], tasks: list[asyncio.Task[None]]) -> None:
        waiting = {stopping, *tasks}
        while stopping in waiting:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done - {stopping}:
                error = task.exception()
                if error is not None:
                    self._failure = None if isinstance(error, _RESTARTS) else error
                    raise error

    async def _shut_down(self, tasks: list[asyncio.Task[None]]) -> None:
        cycle, timeout, led = tasks[0], self.client.request_timeout, self._leads_under()
        cycle.cancel()
        await self.outside.close()
        if self.commits:
            await asyncio.wait(self.commits, timeout=timeout)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self.status_reporter.followup.idle.wait()
                await self.status_reporter.statuses.wait_until_idle()
        cut_off = self.client.is_writing or self._failure is not None
        self.terms.end()
        ending = [*tasks, *self.commits]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        if self.replica is None:
            await self.terms.release(cut_off=cut_off)
            await self._keep()
        elif not self.terms.elector.is_leader():
            await self.terms.release(cut_off=cut_off)
        else:
            try:
                await self._keep()
                await self.replica.have_all()  # so that the next leader has it
            finally:
                await self.terms.release(cut_off=cut_off)
                self.replica.followers.dismissed.set()  # so that followers look for the next leader at once
        await self.archiver.finish(led)

    async def _keep(self) -> None:
        """Write a checkpoint, unless the log was just replaced, so that the state is not the fold of the new log."""
        if self.state_writer.log.failure is None and 0 < self.state_writer.state.sequence == self.state_writer.log.head:
            await self.state_writer.checkpoint()
