"""``vcd run``: the parts wired together, started and stopped in order."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import math
import os
import shutil
import signal
import socket
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import structlog

from vcd.daemon.asking import Asking
from vcd.daemon.cycle import Cycle, Gather, gather_briefly
from vcd.daemon.faults import FaultNews
from vcd.daemon.firstqueues import FirstQueues
from vcd.daemon.followup import FollowUp
from vcd.daemon.http import Endpoints
from vcd.daemon.keeper import Keeper
from vcd.daemon.latecomers import Latecomers
from vcd.daemon.lookups import Lookups
from vcd.daemon.metrics import Metrics, SessionSummary
from vcd.daemon.misconfigured import Misconfigured, uid_of
from vcd.daemon.nodeshelp import UNSCHEDULABLE, PodReasons
from vcd.daemon.options import Options
from vcd.daemon.policyfile import PolicyFile
from vcd.daemon.selfcheck import SelfCheck
from vcd.daemon.setaside import SetAside
from vcd.daemon.stepdown import StepDown, cannot_list
from vcd.daemon.usage import UsagePoller
from vcd.daemon.waiting import mending
from vcd.daemon.watchdog import Watchdog
from vcd.daemon.watches import Watches
from vcd.eventlog.errors import LogError
from vcd.eventlog.log import EventLog
from vcd.eventlog.reader import LogReader
from vcd.kube.client import KubeClient
from vcd.kube.clock import SYSTEM_CLOCK, Clock, SteadyClock
from vcd.kube.committer import Committer
from vcd.kube.connection import ConfigurationError, connect
from vcd.kube.lease import DEFAULT_NAMESPACE, LeaderElector
from vcd.kube.recorder import Recorder
from vcd.kube.status import StatusWriter
from vcd.kube.tokens import Reader, reader_of
from vcd.kube.volumes import BIND_TIMEOUT
from vcd.model import events as ev
from vcd.model.codec import group_status
from vcd.model.objects import Condition, Pod, PodGroupStatus
from vcd.model.status import TaskStatus
from vcd.model.words import reason_in_words
from vcd.scheduling.framework.arguments import parse_arguments
from vcd.scheduling.framework.guard import name_in
from vcd.scheduling.framework.policy import Policy, PolicyError
from vcd.scheduling.framework.registry import RegistryError, kinds, kinds_read, plugins
from vcd.scheduling.session.outside import without_secrets
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job
from vcd.state.cluster import ClusterState

_log = structlog.get_logger(__name__)

OK, FAILED, BAD_USAGE = 0, 1, 2

__all__ = ["BAD_USAGE", "DEFAULT_NAMESPACE", "FAILED", "OK", "SchedulerService", "assembled", "restore", "run"]

_LOOK = 0.001
"""Seconds between looks at whether a replica that is about to lead does."""
_COLLECTIONS = (10_000, 5, 500)
"""How many new objects begin a collection, how many of these one of older objects, and of those one of all."""
_CLOCK_LOOK = 1.0
"""Seconds between looks at whether the wall clock jumped."""


def restore(path: Path) -> ClusterState:
    """The state that a log's newest checkpoint and the events after it give. Raises LogError."""
    if not path.exists():
        return ClusterState()
    with LogReader(path) as reader:
        checkpoint = reader.latest_checkpoint()
        state = ClusterState() if checkpoint is None else ClusterState.load(checkpoint.state)
        for logged in reader.read(after=state.sequence):
            state.apply(logged.sequence, logged.event)
    return state


def collect_seldom() -> None:
    """Have the garbage collector look at all objects only once in a long while: the program stands still meanwhile."""
    gc.set_threshold(*_COLLECTIONS)


class SchedulerService:
    """One replica."""

    def __init__(
        self,
        options: Options,
        client: KubeClient,
        keeper: Keeper,
        policy: PolicyFile,
        clock: Clock = SYSTEM_CLOCK,
        gather: Gather = gather_briefly,
    ) -> None:
        self.options = options
        self.clock = clock
        self.client = client
        self.keeper = keeper
        self.policy = policy
        self.metrics = Metrics(job_series=options.job_series)
        state = keeper.state
        identity = options.identity or f"{socket.gethostname()}_{uuid.uuid4()}"
        self.elector = LeaderElector(
            client,
            options.lease_namespace,
            options.lease_name,
            identity,
            lease_duration=options.lease_duration,
            renew_deadline=options.renew_deadline,
            retry_period=options.retry_period,
            last_epoch=state.epoch if state.epoch or state.session else -1,
        )
        self.watches = Watches(client, state, keeper.put, kinds_read(policy.policy))
        self.metrics.watches = self.watches.statuses
        self.metrics.set_aside = lambda: state.bad
        self.recorder = Recorder(client, options.scheduler_names[0], fence=self._leads, clock=clock, kinds=kinds())
        self._shown_groups: dict[str, tuple[str, PodGroupStatus]] = {}
        """Version and status of groups, as the watch last told them."""
        self.statuses = StatusWriter(client, self._leads, clock=clock, known_group=self._shown_groups.get)
        self.committer = Committer(
            client,
            keeper.put,
            self._holds,
            recorder=self.recorder,
            conditions=self.statuses,
            bind_timeout=bind_timeout(policy.policy),
            clock=clock,
        )
        self.lookups = Lookups(self.committer, state, self.watches, keeper.put, self._leads, clock=clock)
        self.watchdog = Watchdog(keeper, options.plugin_timeout or math.inf, wall=clock.wall)
        self.asking = Asking(self.watchdog.check)
        self.followup = FollowUp()
        self._fault_news = FaultNews(clock.monotonic)
        self._misconfigured = Misconfigured()
        self._latecomers = Latecomers(state)
        self._set_aside = SetAside(state, self.recorder, self.statuses)
        self.cycle = Cycle(
            keeper,
            self._policy_in_force,
            self._epoch_to_decide_under,
            self._hand_over,
            seed=options.seed,
            period=options.schedule_period,
            gather=gather,
            clock=clock.wall,
            outside=self.asking,
            watchdog=self.watchdog,
            check=SelfCheck(options.replay_every, self.metrics.observe_mismatch),
        )
        self._deciding: int | None = None
        self._commits: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None
        self._checkpointed_at = state.sequence
        self._versions: dict[str, str] = {}
        self._folded = asyncio.Event()
        self.usage = UsagePoller(
            client, state, keeper.put, lambda: self.policy.policy.metrics, self.metrics.observe_usage, clock
        )
        self.first_queues = FirstQueues(
            client,
            options.default_queue,
            lambda: keeper.state.keys("Queue"),
            self._leads,
            lambda words: self._record_at_configuration("QueueMissing", words),
            clock=clock,
        )
        self._list_deadlines = (options.list_deadline, options.stale_deadline)
        keeper.minded = self._is_minded
        keeper.observe = self._observe
        keeper.appended = self.metrics.observe_append

    def _is_minded(self, question: str) -> bool:
        """Whether a plugin that is on decides by the answers to a question."""
        known = plugins()
        return any(question in known[option.name].questions for tier in self.policy.policy.tiers for option in tier)

    def _policy_in_force(self) -> Policy:
        """The policy that the log shows: what a session is decided under is never newer than its head."""
        loaded = self.keeper.state.policy
        return self.policy.policy if loaded is None else self.policy.named(loaded.digest)

    # --- leadership -------------------------------------------------------------------------------------------------

    def _leads(self) -> bool:
        return self._deciding is not None and self._holds(self._deciding)

    def _holds(self, epoch: int) -> bool:
        return self.elector.holds(epoch) if self.options.leader_elect else epoch == 0

    def _epoch_to_decide_under(self) -> int | None:
        """The epoch, while this replica leads, has seen all lists, and its log can be written."""
        if self._deciding is None or not self._holds(self._deciding) or self.keeper.log.failure is not None:
            return None
        return self._deciding if self.watches.synced() else None

    async def _follow_leadership(self) -> None:
        """On a win: wait out the old leader's requests, list anew, then decide (docs/laws.md, law 4)."""
        if not self.options.leader_elect:
            await self._lead(ev.LeadershipChanged(0, self.elector.identity, leading=True))
            return
        async for change in self.elector.changes():
            self._deciding = None
            self.metrics.observe_leadership(change.leading, change.epoch)
            if change.leading:
                await self._lead(change)
            else:
                _log.warning("no longer leading", epoch=change.epoch)
                await self.keeper.put([change])

    async def _lead(self, change: ev.LeadershipChanged) -> None:
        if self.options.leader_elect:
            if not await self.elector.wait_safe():
                return
            await self.watches.list_again()
        elif self.keeper.state.intents:
            await asyncio.sleep(self.client.request_timeout)  # what the process before this one asked may still happen
            await self.watches.list_again()
        if not await self.watches.wait_synced(lambda: self._holds(change.epoch)):
            return
        await self.keeper.put([change, *self._never_done()])
        if not self._holds(change.epoch):
            return
        self._deciding = change.epoch
        self._latecomers.look()
        self._set_aside.tell_owners()
        self.metrics.observe_leadership(True, change.epoch)
        _log.info("leading", epoch=change.epoch, identity=self.elector.identity)
        self.keeper.changed.set()
        self._write_groups_again()
        self.first_queues.due()

    def _gave_back(self, stuck: Mapping[str, str]) -> None:
        self.metrics.observe_given_back()
        _log.error("the Lease is given back: what is known of these kinds is too old", cannot_list=dict(stuck))

    def _never_done(self) -> list[ev.Event]:
        """Outcomes of what was decided in an earlier term and shows in none of the fresh lists.

        No call of then can be under way any more, so it did not happen, and would be waited for without end.
        """
        words = "not to be seen when the next term began"
        return [
            ev.OperationDone(intent.session, intent.statement, intent.operation, "failed", words)
            for intent in self.keeper.state.intents.values()
        ]

    def _write_groups_again(self) -> None:
        """Statuses that were decided and that the API server does not show: a crash or a long fault kept them back."""
        if self._leads() and self.keeper.state.intended_status:
            self.followup.add(lambda: list(self.keeper.state.intended_status.values()), self._write_groups)

    def _write_groups(self, groups: Sequence[ev.GroupStatus], transition: str = "") -> Iterator[None]:
        for group in groups:
            self.statuses.submit_groups((group,), transition)
            yield

    # --- sessions ---------------------------------------------------------------------------------------------------

    def _hand_over(
        self, record: ev.SessionDecided | None, plan: ev.Plan, session: Session, durations: dict[str, float]
    ) -> None:
        summary = self.metrics.begin_session(session, plan, record, durations)
        self._tell_faults(plan, session)
        self._tell_misconfigured(session)
        self.followup.add(summary, lambda found: self._tell(found, record, plan, session))
        if record is None:
            return
        if any(statement.operations for statement in plan.statements):
            task = asyncio.get_running_loop().create_task(self.committer.commit(record, plan))
            self._commits.add(task)
            task.add_done_callback(self._commit_ended)
        _log.debug(
            "session",
            statements=len(plan.statements),
            stale=len(record.stale),
            seconds=round(durations["total"], 4),
        )

    def _tell(
        self, summary: SessionSummary, record: ev.SessionDecided | None, plan: ev.Plan, session: Session
    ) -> Iterator[None]:
        """Show and write what a session found out, with a pause wherever a yield is: there may be a great deal."""
        self.metrics.end_session(summary)
        yield
        if record is None:
            yield from self._tell_latecomers(session, frozenset())
        else:
            yield from self._tell_decided(record, plan, session)
        session.release()

    def _tell_decided(self, record: ev.SessionDecided, plan: ev.Plan, session: Session) -> Iterator[None]:
        yield from self._write_groups(plan.groups, f"session-{record.session}")
        self.statuses.submit_queues(plan.queues)
        yield from self._tell_waiting(plan, session)
        yield from self._tell_latecomers(session, frozenset(waiting.group for waiting in plan.waiting))
        self._tell_nominated(record, plan)

    def _tell_faults(self, plan: ev.Plan, session: Session) -> None:
        """A log line with the traceback and an Event where the configuration is: it names the plugin."""
        for fault in plan.faults:
            if self._fault_news.is_news(fault):
                error = session.errors.get(name_in(fault))
                _log.error("plugin failed; the cycle went on without it", fault=fault, exc_info=error)
                self._record_at_configuration("PluginFault", f"{fault}; the cycle went on without it")

    def _tell_late(self, late: ev.PluginLate) -> None:
        """At once of a plugin that does not come back; of one that does, the session tells that is decided without."""
        stuck = self.watchdog.stuck()
        if stuck is not None:
            _log.error("plugin does not come back; only a restart helps", fault=late.fault)
            self._record_at_configuration("PluginFault", f"{stuck}; vcd has to be restarted, and goes on without it")
            self.metrics.observe_fault(late.name)

    def _tell_misconfigured(self, session: Session) -> None:
        """An Event on each object that a plugin finds a new problem with."""
        for problem in self._misconfigured.news(session):
            if not problem.kind:
                _log.warning("a plugin cannot do its work", problem=problem.message)
                self._record_at_configuration("PluginFault", problem.message)
                continue
            uid = uid_of(self.keeper.state, problem.kind, problem.key)
            _log.warning("object is misconfigured", kind=problem.kind, key=problem.key, problem=problem.message)
            self.recorder.record(problem.kind, problem.key, uid, "Warning", "Misconfigured", problem.message)
        self.metrics.observe_misconfigured(self._misconfigured.counts())

    def _commit_ended(self, task: asyncio.Task[None]) -> None:
        self._commits.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("commit failed", error=repr(task.exception()))

    def _tell_waiting(self, plan: ev.Plan, session: Session) -> Iterator[None]:
        """A condition on every pod that waits, so that autoscalers see whom nodes help, and Events for new reasons."""
        by_group: dict[str, list[ev.Waiting]] = {}
        for waiting in plan.waiting:
            if waiting.gate:
                by_group.setdefault(waiting.group, []).append(waiting)
        for key, reasons in by_group.items():
            yield
            words = "; ".join(in_words(waiting) for waiting in reasons)
            group = self.keeper.state.groups.get(key)
            if group is not None:
                self.recorder.record("PodGroup", key, group.group.metadata.uid, "Warning", "Unschedulable", words)
            index = session.jobs.index_of.get(key)
            if index is not None:
                self._tell_pods(session.job(index), reasons, words)

    def _tell_pods(self, job: Job, reasons: list[ev.Waiting], words: str) -> None:
        own = {pod: in_words(waiting) for waiting in reversed(reasons) for pod in waiting.pods}
        reason_of = PodReasons(reasons, job.queue.name, self.keeper.state.queues)
        for task in job.pending():
            if task.status == TaskStatus.PENDING:
                self._tell_pod(task.pod, reason_of, own.get(task.key, words))

    def _tell_latecomers(self, session: Session, told: frozenset[str]) -> Iterator[None]:
        """The same for pods that came to groups that wait as before, and so are not among those ``told``."""
        for _, pod, reasons in self._latecomers.seen(session.snapshot.sequence):
            yield
            group = session.snapshot.groups.get(reasons[0].group)
            if reasons[0].group not in told:
                queue = "" if group is None else session.queue_name_of(group)
                reason_of = PodReasons(reasons, queue, self.keeper.state.queues)
                self._tell_pod(pod, reason_of, "; ".join(in_words(waiting) for waiting in reasons))

    def _tell_pod(self, pod: Pod, reason_of: PodReasons, message: str) -> None:
        key, uid = pod.key, pod.metadata.uid
        if not pod.spec.scheduling_gates:  # of these the API server says SchedulingGated
            reason = UNSCHEDULABLE if self.options.unschedulable == "all" else reason_of.of(key)
            self.statuses.submit_pod_condition(key, uid, Condition("PodScheduled", "False", reason, message))
        self.recorder.record("Pod", key, uid, "Warning", "FailedScheduling", message)

    def _tell_nominated(self, record: ev.SessionDecided, plan: ev.Plan) -> None:
        """On pods that others are evicted for: the node where they wait for their room."""
        stale = {index for index, _ in record.stale}
        for index, statement in enumerate(plan.statements):
            if index in stale or not any(operation.verb == "evict" for operation in statement.operations):
                continue
            for operation in statement.operations:
                if operation.verb == "pipeline":
                    words = f"waits for room that evictions free on node {operation.node}"
                    condition = Condition("PodScheduled", "False", "Unschedulable", words)
                    self.statuses.submit_pod_condition(operation.key, operation.uid, condition, operation.node)

    def _observe(self, event: ev.Event) -> None:
        self._folded.set()
        if self._leads():
            self._latecomers.observe(event)
        if isinstance(event, ev.OperationDone):
            self.metrics.observe_outcome(event)
            self.lookups.observe(event)
        elif isinstance(event, ev.PluginLate):
            self._tell_late(event)
        elif isinstance(event, (ev.ObjectPut, ev.ObjectGone, ev.ObjectBad, ev.KindListed)):
            self._versions[event.kind] = event.resource_version
            if event.kind == "PodGroup" and not isinstance(event, ev.KindListed):
                self._note_group(event)
            if isinstance(event, ev.ObjectGone):
                self.statuses.forget(event.kind, event.key)
            if not isinstance(event, ev.KindListed):
                self._set_aside.observe(event)

    def _note_group(self, event: ev.ObjectPut | ev.ObjectGone | ev.ObjectBad) -> None:
        """Keep what the watch told of a group's status, so that writing it needs no reading."""
        known = self._shown_groups.pop(event.key, None)
        if not isinstance(event, ev.ObjectPut):
            return
        status = known[1] if known is not None else None
        if event.payload is not None:
            status = group_status(event.payload)
        if status is not None and event.resource_version:
            self._shown_groups[event.key] = (event.resource_version, status)

    # --- housekeeping -----------------------------------------------------------------------------------------------

    async def _keep_house(self) -> None:
        """Checkpoints, retention and gauges of the log, in the background."""
        options = self.options
        while True:
            await asyncio.sleep(options.housekeeping_period)
            state, log = self.keeper.state, self.keeper.log
            self.metrics.observe_log(log.head, *await asyncio.to_thread(_sizes, options.event_log))
            self._write_groups_again()
            if state.sequence - self._checkpointed_at >= options.checkpoint_interval:
                await self.checkpoint()
                await log.retain(self._age_to_keep(), options.retention_size)

    def _age_to_keep(self) -> int | None:
        """The age beyond which history may go; None while nobody can tell how old it is."""
        steady = not isinstance(self.clock, SteadyClock) or self.clock.is_steady()
        return self.options.retention_age if steady else None

    async def _mind_clock(self, clock: SteadyClock) -> None:
        """Tell, and log, where the machine's wall clock jumps."""
        while True:
            await clock.sleep(_CLOCK_LOOK)
            for jump in clock.news():
                self.metrics.observe_clock_jump()
                _log.error(
                    "the machine's wall clock jumped" + ("; it is believed now" if jump.followed else ""),
                    seconds=round(jump.by / 1e9, 3),
                )
                await self.keeper.put([ev.ClockJumped(jump.by, jump.followed)])
            self.metrics.observe_clock(clock.ahead)

    async def checkpoint(self) -> None:
        """Keep the state as it is now, encoded in a thread."""
        await self.keeper.whole.wait()
        state = self.keeper.state
        sequence, frozen = state.sequence, state.freeze()
        data = await asyncio.to_thread(frozen.encode)
        await self.keeper.log.checkpoint(sequence, data)
        self._checkpointed_at = sequence

    async def _policy_changed(self, event: ev.PolicyLoaded) -> None:
        await self.keeper.put([_for_the_log(event)])
        self.metrics.observe_policy(event.digest, ok=True)
        await self.watches.read(kinds_read(self.policy.policy))
        self.usage.reloaded()

    def _policy_refused(self, reason: str) -> None:
        self.metrics.observe_policy(self.policy.policy.digest, ok=False)
        self._record_at_configuration("BadConfiguration", reason)

    def _record_at_configuration(self, reason: str, message: str) -> None:
        subject = f"{self.options.lease_namespace}/volcano-scheduler-configmap"
        self.recorder.record("ConfigMap", subject, "", "Warning", reason, message)

    # --- rest, for a cluster whose time stands still until its scheduler has done what is to be done ----------------

    async def caught_up(self, versions: Mapping[str, int]) -> None:
        """Return once all up to the given resource versions (by kind) is in the state, and all decided is done.

        ``versions`` may grow meanwhile. Statuses count as decided, Events do not.
        """
        while True:
            await self.followup.idle()
            await self.statuses.idle()
            if self._commits:
                await asyncio.wait(set(self._commits))
            elif self._behind(versions):
                self._folded.clear()
                await self._folded.wait()
            else:
                return

    async def rest(self, versions: Mapping[str, int]) -> None:
        """Return once this replica leads, has caught up, decided on all there is, and written all Events."""
        while True:
            await self.caught_up(versions)
            await self.recorder.idle()
            await self.cycle.idle.wait()
            if self.at_rest(versions):
                return
            await asyncio.sleep(0 if self.keeper.changed.is_set() else _LOOK)

    def at_rest(self, versions: Mapping[str, int]) -> bool:
        """Whether ``rest`` would return at once."""
        return (
            self._deciding is not None
            and self.cycle.idle.is_set()
            and not self.keeper.changed.is_set()
            and self.followup.is_idle
            and not self._commits
            and not self.statuses.waiting
            and not self.recorder.waiting
            and not self._behind(versions)
        )

    def _behind(self, versions: Mapping[str, int]) -> bool:
        """Whether something happened at the API server, up to these versions, that the state does not show yet.

        Of a kind of which only some objects are watched nobody knows: the last change may be of another one.
        """
        whole = self.watches.statuses().keys() - self.watches.narrow
        return any(int(self._versions.get(kind) or 0) < versions.get(kind, 0) for kind in whole)

    def ready(self) -> str | None:
        """Why this replica cannot serve; None when it can. A follower is ready: it watches and logs."""
        if not self.watches.synced():
            return "not all lists are in"
        stuck = self.watches.stuck(*self._list_deadlines)
        return cannot_list(stuck) if stuck else None

    def healthy(self) -> str | None:
        """Why this replica should be restarted; None when all is well."""
        if self.keeper.log.failure is not None:
            return str(self.keeper.log.failure)
        if self._failure is not None:
            return repr(self._failure)
        return self.watchdog.stuck()

    async def reader_of(self, token: str) -> Reader:
        """Who shows a token, and whether they may read the page. Raises KubeError."""
        return await reader_of(self.client, token)

    # --- life -------------------------------------------------------------------------------------------------------

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until ``stop``; then end what is in flight, keep a checkpoint and give the lease back."""
        async with Endpoints(self.options, self.metrics, self.healthy, self.ready):
            tasks = [asyncio.get_running_loop().create_task(part) for part in self._parts()]
            stopping = asyncio.get_running_loop().create_task(stop.wait())
            try:
                await self._until_one_fails(stopping, tasks)
            finally:
                stopping.cancel()
                await self._shut_down(tasks)

    def _parts(self) -> list[Coroutine[Any, Any, None]]:
        parts: list[Coroutine[Any, Any, None]] = [
            self.watches.run(),
            self.recorder.run(),
            self.statuses.run(),
            self.cycle.run(),
            self.followup.run(),
            self._follow_leadership(),
            self._keep_house(),
            self.policy.follow(self._policy_changed, self._policy_refused),
            self.metrics.measure_pauses(),
            self.usage.run(),
            self.first_queues.run(),
            self.lookups.run(),
        ]
        if isinstance(self.clock, SteadyClock):
            parts.append(self._mind_clock(self.clock))
        if self.options.leader_elect:
            parts.append(StepDown(self.elector, self.watches, *self._list_deadlines, self._gave_back).run())
            parts.append(self.elector.run())
        return parts

    async def _until_one_fails(self, stopping: asyncio.Task[Any], tasks: list[asyncio.Task[None]]) -> None:
        waiting = {stopping, *tasks}
        while stopping in waiting:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done - {stopping}:
                error = task.exception()
                if error is not None:
                    self._failure = error
                    raise error

    async def _shut_down(self, tasks: list[asyncio.Task[None]]) -> None:
        cycle, elector = tasks[3], tasks[-1] if self.options.leader_elect else None
        cycle.cancel()
        await self.asking.close()
        if self._commits:
            await asyncio.wait(self._commits, timeout=self.client.request_timeout)
        cut_off = bool(self._commits) or self._failure is not None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.client.request_timeout):
                await self.followup.idle()
                await self.statuses.idle()
        self._deciding = None
        for task in (*tasks, *self._commits):
            task.cancel()
        await asyncio.gather(*tasks, *self._commits, return_exceptions=True)
        if elector is not None:
            if cut_off:  # such a call may still be carried out, and who takes a lease that was given back does not wait
                await asyncio.sleep(self.client.request_timeout)
            await self.elector.release()
        if self.keeper.log.failure is None:
            await self.checkpoint()


def _for_the_log(loaded: ev.PolicyLoaded) -> ev.PolicyLoaded:
    """A configuration as the log keeps it: what is decided by it does not depend on its passwords."""
    return msgspec.structs.replace(loaded, text=without_secrets(loaded.text))


def _sizes(path: Path) -> tuple[int, int, int]:
    """The bytes of a file, and those of its file system: all, and those that are free for this process."""
    volume = shutil.disk_usage(path.parent)
    return path.stat().st_size, volume.total, volume.free


def bind_timeout(policy: Policy) -> float:
    """Seconds that a pod's volumes may take, as the predicates plugin's entry says; read when the program starts."""
    for tier in policy.tiers:
        for option in tier:
            if option.name == "predicates":
                values = parse_arguments(plugins()["predicates"].arguments, option.arguments)
                return float(values["volumebinding.bindTimeoutSeconds"])
    return BIND_TIMEOUT


def in_words(waiting: ev.Waiting) -> str:
    """A reason in a sentence, with its numbers, the plugin that says so, and what to do where waiting does not help."""
    source = f" [{waiting.plugin}]" if waiting.plugin else ""
    to_do = mending(waiting.reason)
    return f"{reason_in_words(waiting)}{source}" + (f"; this does not pass by itself: {to_do}" if to_do else "")


@contextlib.asynccontextmanager
async def assembled(
    options: Options, clock: Clock = SYSTEM_CLOCK, gather: Gather = gather_briefly
) -> AsyncIterator[SchedulerService]:
    """A replica with its log and its connection open; ``clock`` is the time that decisions and the log are of.

    ``gather`` waits, after a change, for what shall be decided on together with it.

    Raises LogError, ConfigurationError, PolicyError, OSError.
    """
    policy = PolicyFile(options.scheduler_conf, options.settings())
    loaded = _for_the_log(policy.load())
    connection = await connect(options.kubeconfig, options.master)
    async with EventLog.open(options.event_log, clock=clock.wall) as log:
        state = await asyncio.to_thread(restore, options.event_log)
        gc.collect()
        gc.freeze()  # what was restored lives as long as the program: no collection needs to look at it
        collect_seldom()
        async with KubeClient(
            connection,
            user_agent="vcd",
            qps=options.kube_api_qps,
            burst=options.kube_api_burst,
            request_timeout=options.request_timeout,
        ) as client:
            keeper = Keeper(log, state)
            if state.policy != loaded:
                await keeper.put([loaded])
            service = SchedulerService(options, client, keeper, policy, clock, gather)
            service.metrics.observe_policy(loaded.digest, ok=True)
            yield service


async def run(
    options: Options, beside: Callable[[SchedulerService], contextlib.AbstractAsyncContextManager[object]]
) -> int:
    """Run a replica until SIGTERM or SIGINT; the exit code. What a user can mend is told in one line.

    ``beside`` gives what is to be open as long as the replica runs.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        async with assembled(options, SteadyClock()) as service:
            _log.info(
                "started", pid=os.getpid(), event_log=str(options.event_log), session=service.keeper.state.session
            )
            async with beside(service):
                await service.run(stop)
    except (LogError, ConfigurationError, PolicyError, RegistryError, OSError, ValueError) as error:
        _log.error("stopped", reason=str(error))
        return BAD_USAGE if isinstance(error, (ConfigurationError, PolicyError)) else FAILED
    return OK
