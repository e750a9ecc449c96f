"""Runs a replica as a process: opens log and connection, handles signals, and restarts with another log.

A replica that loses the Lease of a shared log cannot continue with its state. It ends its `SchedulerService`, and this
module constructs the next one on the leader's log, in the same process: probes, metrics and configuration stay.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

import structlog

from vcd.daemon.cycle.session_loop import Gather, wait_for_more
from vcd.daemon.http.endpoints import Probes, serve_probes
from vcd.daemon.metrics.metrics_collector import Metrics
from vcd.daemon.options import QUEUE, Options
from vcd.daemon.persistence.archiver import restore_from_archive
from vcd.daemon.persistence.state_writer import StateWriter, restore
from vcd.daemon.policy_file import PolicyFile
from vcd.daemon.replicas.log_divergence import rewind_and_preserve
from vcd.daemon.replicas.log_follower import LogDiverged, LogReplaced, OwnLogDamaged
from vcd.daemon.replicas.replica import TermEnded
from vcd.daemon.service import SchedulerService
from vcd.daemon.shadow_mode import check_log
from vcd.eventlog.log_errors import LogError, NewerSchema
from vcd.eventlog.log_writer import EventLog
from vcd.kube.client import KubeClient
from vcd.kube.clock import SYSTEM_CLOCK, Clock, SteadyClock
from vcd.kube.kube_connection import ConfigurationError, connect
from vcd.scheduling.framework.policy import PolicyError
from vcd.scheduling.framework.registry import RegistryError
from vcd.serving.connection_limits import raise_file_limit

_log = structlog.get_logger(__name__)

OK, FAILED, BAD_USAGE = 0, 1, 2

_COLLECTIONS = (10_000, 5, 500)
"""Thresholds of Python's garbage collector for its three generations."""


def tune_garbage_collection() -> None:
    """Let the garbage collector visit all objects rarely, because a full collection pauses the program."""
    gc.set_threshold(*_COLLECTIONS)


@contextlib.asynccontextmanager
async def open_service(
    options: Options,
    clock: Clock = SYSTEM_CLOCK,
    gather: Gather = wait_for_more,
    inherited: _Inherited | None = None,
) -> AsyncIterator[SchedulerService]:
    """Open log and connection, and construct a replica; ``clock`` is the time of decisions and of the log.

    ``gather`` waits for related changes before a session. ``inherited`` comes from the last service of this process.

    Raises LogError, ConfigurationError, PolicyError, OSError.
    """
    policy, metrics = inherited or _Inherited.of(options)
    # without a log there is no earlier configuration to fall back on: refuse a bad file before creating the log
    loaded = None if options.event_log.exists() else policy.load()
    connection = await connect(options.kubeconfig, options.master)
    connection.check_streams()
    async with EventLog.open(options.event_log, clock=clock.wall) as log:
        gc.unfreeze()  # the last service's state, if there was one in this process
        gc.collect()
        state = await asyncio.to_thread(restore, options.event_log)
        check_log(options.event_log, state, shadow=options.shadow)
        gc.collect()
        gc.freeze()  # the restored state is as old as the process: collections need not visit it
        tune_garbage_collection()
        async with KubeClient(
            connection,
            qps=options.kube_api_qps,
            burst=options.kube_api_burst,
            request_timeout=options.request_timeout,
            read_only=options.shadow,
        ) as client:
            state_writer = StateWriter(
                log,
                state,
                is_relevant=policy.depends_on,
                on_append=metrics.series.distribution("vcd_event_log_append_seconds").observe,
            )
            loaded = loaded or policy.load(state.policy)
            if state.policy != loaded and not options.replicas_address:
                await state_writer.put([loaded])
            service = SchedulerService(options, client, state_writer, policy, loaded, metrics, clock, gather)
            service.metrics.series.show("vcd_policy_info", {(loaded.digest,): 1})
            yield service


async def run(
    options: Options, beside: Callable[[SchedulerService], contextlib.AbstractAsyncContextManager[object]]
) -> int:
    """Run a replica until SIGTERM or SIGINT and return the exit code. Errors that a user can fix are one log line.

    ``beside`` returns a context that is open while the replica runs.
    """
    raise_file_limit()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    how = _Restart()
    probes = Probes()
    try:
        async with serve_probes(options, probes):
            restoring = probes.of(lambda: None, lambda: f"the event log is restored from {options.archive}")
            await restore_from_archive(options, stop, restoring)
            inherited = _Inherited.of(options)
            while (again := await _run_service(options, beside, probes, stop, how, inherited)) is not None:
                how = again
                inherited.metrics.begin_service()
                _log.info("restarting with the leader's log")
    except (LogError, ConfigurationError, PolicyError, RegistryError, OSError, ValueError) as error:
        _log.error("stopped", reason=str(error))
        return BAD_USAGE if isinstance(error, (ConfigurationError, NewerSchema, PolicyError)) else FAILED
    return OK


class _Inherited(NamedTuple):
    """What the next service of the same process inherits: the configuration and the counters."""

    policy: PolicyFile
    metrics: Metrics

    @classmethod
    def of(cls, options: Options) -> _Inherited:
        controls_queues = QUEUE in options.controllers
        metrics = Metrics(job_series=options.job_series, shadow=options.shadow, controls_queues=controls_queues)
        return cls(PolicyFile(options.scheduler_conf, options.settings()), metrics)


class _Restart(NamedTuple):
    """When the next service may stand for election (monotonic clock), and whether its log is incomplete."""

    stands_at: float = 0.0
    lacks: bool = False


async def _run_service(
    options: Options,
    beside: Callable[[SchedulerService], contextlib.AbstractAsyncContextManager[object]],
    probes: Probes,
    stop: asyncio.Event,
    how: _Restart,
    inherited: _Inherited,
) -> _Restart | None:
    """Run a service until ``stop`` (returns None), or until another log replaces its own (returns how to restart)."""
    stands_at, lacks = how
    try:
        async with open_service(options, SteadyClock(), inherited=inherited) as service:
            service.terms.elector.abstain_until(stands_at)
            if service.replica is not None:
                service.replica.lacks = lacks
            _log.info(
                "started", pid=os.getpid(), event_log=str(options.event_log), session=service.state_writer.state.session
            )
            async with beside(service):
                with probes.of(service.healthy, service.ready):
                    await service.run(stop)
        return None
    except TermEnded as ended:
        stands_at, lacks = ended.abstains_until, False
        _log.warning("restarting: this replica no longer leads", reason=str(ended))
    except LogReplaced:
        lacks = True
        _log.info("the log was replaced by a checkpoint of the leader's log")
    except LogDiverged as divergence:
        lacks = True
        aside = await asyncio.to_thread(rewind_and_preserve, options.event_log, divergence.to)
        if isinstance(divergence, OwnLogDamaged):
            what = "the log is damaged: it is set aside, and the leader's log is copied"
        else:
            what = "the log is rewound to what the leader's log has"
        _log.warning(what, reason=str(divergence), kept=str(aside or ""))
    return None if stop.is_set() else _Restart(stands_at, lacks)
