"""The metrics page: Volcano's names and labels, series that vanish with their object, few labels, little time."""

from __future__ import annotations

import asyncio
import cProfile
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import numpy as np
import pytest
import structlog

from tests.daemon.cycle.test_session_loop import Replica, puts
from tests.daemon.pages import CONF, Ticks, kept, observe, observe_session, page_of, recorded, value
from tests.dsl import BARE, NOW_NS, flat, gang, group, node, pod, queue, session_after
from tests.kube.scripted import until
from vcd.daemon.metrics.metric_series import Distribution, exponential
from vcd.daemon.metrics.metrics_collector import PAUSE_WINDOW, REMEMBERED_SESSIONS, Metrics
from vcd.daemon.options import Options
from vcd.daemon.persistence.housekeeping import maintain_log
from vcd.daemon.persistence.state_writer import StateWriter
from vcd.daemon.reporting.status_reporter import StatusReporter
from vcd.daemon.service import SchedulerService
from vcd.daemon.watching.consistent_reads import ConsistentReads
from vcd.eventlog.log_writer import EventLog
from vcd.kube.clock import SYSTEM_CLOCK
from vcd.kube.watcher import WatchStatus
from vcd.model import events as ev
from vcd.model.events import (
    ClockJumped,
    Operation,
    OperationDone,
    Plan,
    SessionDecided,
    Statement,
    Waiting,
    encode_plan,
)
from vcd.model.manifests import default_queues
from vcd.model.reasons import Reason
from vcd.scheduling.framework.declared_reasons import cause_of, mending
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.session.gauges import Gauge, JobGauge
from vcd.state.checkpoint import uncollected
from vcd.state.cluster_state import ClusterState

DEFAULT = queue("default")
QUEUE_SERIES = {
    f"volcano_queue_{name}_{unit}"
    for name in ("allocated", "request", "deserved", "inqueue", "real_capacity")
    for unit in ("milli_cpu", "memory_bytes")
}


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


class TestQueues:
    def test_amounts_have_volcanos_names_and_labels(self, metrics: Metrics) -> None:
        observe(metrics, DEFAULT, node("n", cpu=8), gang("a", 2, cpu=2))
        page = page_of(metrics)
        assert page.keys() >= QUEUE_SERIES
        assert page["volcano_queue_allocated_milli_cpu"][kept(queue_name="default")] == 4000

    def test_scalar_resources_have_a_label_each(self, metrics: Metrics) -> None:
        observe(metrics, DEFAULT, node("n", cpu=8, gpu=4), gang("a", 1, cpu=1, gpu=2))
        assert value(
            metrics, "volcano_queue_allocated_scalar_resources", queue_name="default", resource="nvidia.com/gpu"
        ) == pytest.approx(2000)

    @pytest.mark.parametrize("name", ["volcano_queue_share", "volcano_queue_weight", "volcano_queue_overused"])
    def test_single_values(self, metrics: Metrics, name: str) -> None:
        observe(metrics, DEFAULT, node("n", cpu=8), gang("a", 1, cpu=1))
        assert value(metrics, name, queue_name="default") is not None

    def test_series_of_a_deleted_queue_vanish(self, metrics: Metrics) -> None:
        observe(metrics, DEFAULT, queue("b", guarantee={"resource": {"cpu": "1"}}), node("n"), gang("a", 1, queue="b"))
        assert b'"b"' in metrics.freeze()()
        observe(metrics, DEFAULT, node("n"), number=2)
        assert b'"b"' not in metrics.freeze()()

    def test_gauges_are_zero_in_the_cycle_after_the_last_job(self, metrics: Metrics) -> None:
        observe(metrics, DEFAULT, node("n"), gang("a", 1, cpu=1))
        session = session_after(DEFAULT, node("n"), conf=CONF)
        observe_session(metrics, session, Plan(), None, {})
        assert value(metrics, "volcano_queue_allocated_milli_cpu", queue_name="default") == 0
        assert value(metrics, "volcano_queue_inqueue_milli_cpu", queue_name="default") == 0

    def test_guarantee_is_vcds_own(self, metrics: Metrics) -> None:
        resources = {"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "1"}
        observe(metrics, DEFAULT, queue("b", guarantee={"resource": resources}), node("n"))
        page = page_of(metrics)
        assert page["vcd_queue_guarantee_milli_cpu"] == {kept(queue_name="b"): 2000}
        assert page["vcd_queue_guarantee_memory_bytes"] == {kept(queue_name="b"): 2**30}
        assert page["vcd_queue_guarantee_scalar_resources"] == {kept(queue_name="b", resource="nvidia.com/gpu"): 1000}

    def test_what_enqueue_reserved_is_a_series_of_its_own(self, metrics: Metrics) -> None:
        observe(metrics, DEFAULT, node("n", cpu=8), group("a", phase="Pending", minimum={"cpu": 3}))
        assert value(metrics, "vcd_queue_enqueue_reserved_milli_cpu", queue_name="default") == 3000

    def test_groups_by_phase_as_the_plan_leaves_them(self, metrics: Metrics) -> None:
        observe(
            metrics,
            DEFAULT,
            queue("empty"),
            node("n", cpu=8),
            group("admitted", phase="Pending", minimum={"cpu": 1}),
            group("refused", phase="Pending", minimum={"cpu": 100}),
        )
        page = page_of(metrics)
        counts = {
            phase: page[f"volcano_queue_pod_group_{phase}_count"][kept(queue_name="default")]
            for phase in ("pending", "inqueue", "running", "unknown", "completed")
        }
        assert counts == {"pending": 1, "inqueue": 1, "running": 0, "unknown": 0, "completed": 0}
        assert page["volcano_queue_pod_group_pending_count"][kept(queue_name="empty")] == 0
        own = {phase: page["vcd_queue_pod_groups"][kept(queue_name="default", phase=phase)] for phase in counts}
        assert own == counts

    def test_beside_volcanos_queue_controller_its_series_are_its_own(self) -> None:
        metrics = Metrics(controls_queues=False)
        observe(metrics, DEFAULT, node("n", cpu=8), group("a", phase="Pending", minimum={"cpu": 1}))
        page = page_of(metrics)
        assert not [name for name in page if name.startswith("volcano_queue_pod_group_")]
        assert page["vcd_queue_pod_groups"][kept(queue_name="default", phase="inqueue")] == 1


class TestJobs:
    def test_times_of_a_placed_job(self, metrics: Metrics) -> None:
        observe(metrics, DEFAULT, node("n", cpu=8), gang("a", 2, cpu=1, created=60))
        page = page_of(metrics)
        labels = kept(job_name="a", queue="default", job_namespace="default")
        start = page["volcano_e2e_job_scheduling_start_time"][labels]
        assert page["volcano_e2e_job_scheduling_last_time"][labels] == NOW_NS // 10**9
        assert page["volcano_e2e_job_scheduling_duration"][labels] == (NOW_NS // 10**9 - start) * 1000
        assert page["volcano_e2e_job_scheduling_latency_milliseconds_count"][kept()] == 1

    def test_an_unschedulable_job_lacks_tasks_and_is_retried(self, metrics: Metrics) -> None:
        for number in (1, 2):
            observe(metrics, DEFAULT, node("n", cpu=2), gang("a", 3, cpu=1), number=number)
        page = page_of(metrics)
        assert page["volcano_unschedule_task_count"] == {kept(job_id="a"): 3}
        assert page["volcano_unschedule_job_count"] == {kept(): 1}
        assert page["volcano_job_retry_counts"] == {kept(job_id="a"): 2}

    def test_jobs_alike_are_counted_each(self, metrics: Metrics) -> None:
        jobs = [gang(name, 3, cpu=1) for name in "abcd"]
        observe(metrics, DEFAULT, node("n", cpu=2), *jobs)
        page = page_of(metrics)
        assert page["volcano_unschedule_task_count"] == {kept(job_id=name): 3 for name in "abcd"}
        assert page["volcano_unschedule_job_count"] == {kept(): 4}
        assert page["volcano_job_retry_counts"] == {kept(job_id=name): 1 for name in "abcd"}
        assert value(metrics, "volcano_schedule_attempts_total", result="unschedulable") == 4

    def test_jobs_of_one_name_in_two_namespaces_are_one_series(self, metrics: Metrics) -> None:
        other = list(gang("a", 4, cpu=1))
        for manifest in other:
            manifest["metadata"]["namespace"] = "other"
        observe(metrics, DEFAULT, node("n", cpu=1), gang("a", 3, cpu=1), other)
        assert page_of(metrics)["volcano_unschedule_task_count"] == {kept(job_id="a"): 7}

    def test_series_of_a_deleted_job_vanish(self, metrics: Metrics) -> None:
        observe(metrics, DEFAULT, node("n", cpu=2), gang("left", 3, cpu=1), gang("placed", 1, cpu=1))
        observe(metrics, DEFAULT, node("n", cpu=2), number=2)
        assert not re.search(rb'"(default/)?(left|placed)"', metrics.freeze()())

    def test_a_new_job_of_a_deleted_ones_name_starts_anew(self, metrics: Metrics) -> None:
        observe(metrics, DEFAULT, node("n", cpu=2), gang("a", 3, cpu=1))
        observe(metrics, DEFAULT, node("n", cpu=2), number=2)
        observe(metrics, DEFAULT, node("n", cpu=2), gang("a", 3, cpu=1), number=3)
        assert value(metrics, "volcano_job_retry_counts", job_id="a") == 1

    @pytest.mark.parametrize("other", [{"uid": "other"}, {"creationTimestamp": "2024-01-02T00:00:00Z"}], ids=list)
    @pytest.mark.parametrize("queue_goes", [False, True])
    def test_a_job_made_again_between_two_sessions_starts_anew(
        self, metrics: Metrics, other: dict[str, str], queue_goes: bool
    ) -> None:
        def objects(cpu: int, **meta: str) -> list[Any]:
            manifests = flat([DEFAULT, node("n", cpu=4), *(gang(name, 1, cpu=cpu, queue="b") for name in "ab")])
            for made in manifests:
                if made["kind"] == "PodGroup":
                    made["metadata"] |= {"uid": "first", **meta}
            return manifests

        observe(metrics, queue("b"), *objects(3))
        first = page_of(metrics)
        assert len(first["volcano_e2e_job_scheduling_duration"]) == len(first["volcano_job_retry_counts"]) == 1
        if queue_goes:
            observe(metrics, *objects(3), number=2)
        observe(metrics, queue("b"), *objects(9, **other), number=3)
        again = page_of(metrics)
        assert not {"volcano_e2e_job_scheduling_duration", "volcano_e2e_job_scheduling_last_time"} & again.keys()
        assert again["volcano_job_retry_counts"] == {kept(job_id="a"): 1, kept(job_id="b"): 1}

    def test_a_completed_group_is_counted_once(self, metrics: Metrics) -> None:
        objects = [DEFAULT, node("n"), group("a", phase="Running"), pod("a-0", group="a", on="n", phase="Succeeded")]
        observe(metrics, *objects)
        labels = {"job_name": "default/a", "queue_name": "default"}
        assert value(metrics, "volcano_job_completed_phase_count", **labels) == 1
        objects[2] = group("a", phase="Completed")
        observe(metrics, *objects, number=2)
        assert value(metrics, "volcano_job_completed_phase_count", **labels) == 1


class TestAttempts:
    def test_binds_of_a_plan_are_scheduled_pods(self, metrics: Metrics) -> None:
        observe(metrics, DEFAULT, node("n", cpu=8), gang("a", 2, cpu=1))
        assert value(metrics, "volcano_schedule_attempts_total", result="scheduled") == 2
        assert value(metrics, "vcd_session_statements_total", verdict="committed") == 1

    def test_a_stale_statement_schedules_nothing(self, metrics: Metrics) -> None:
        observe(metrics, DEFAULT, node("n", cpu=8), gang("a", 2, cpu=1), stale=((0, "the pod is gone"),))
        assert value(metrics, "volcano_schedule_attempts_total", result="scheduled") == 0
        assert value(metrics, "vcd_session_statements_total", verdict="stale") == 1

    def test_pods_without_a_place_are_unschedulable(self, metrics: Metrics) -> None:
        observe(metrics, DEFAULT, node("n", cpu=1), gang("a", 1, cpu=2))
        assert value(metrics, "volcano_schedule_attempts_total", result="unschedulable") == 1

    def test_evictions_are_counted_by_action(self, metrics: Metrics) -> None:
        session = session_after(DEFAULT, node("n"), conf=CONF)
        victims = tuple(Operation("evict", f"default/v{number}", "uid") for number in range(3))
        plan = Plan((Statement("default/a", "preempt", victims[:2]), Statement("default/a", "reclaim", victims[2:])))
        observe_session(metrics, session, plan, None, {})
        page = page_of(metrics)
        assert page["volcano_eviction_transactions_total"] == {kept(action="preempt"): 1, kept(action="reclaim"): 1}
        assert page["volcano_total_preemption_attempts"] == {kept(): 1}
        assert page["volcano_pod_preemption_victims"] == {kept(): 2}

    RECLAIMING: ClassVar = CONF.replace("backfill", "reclaim, backfill")
    BORROWED: ClassVar = [
        queue("lender"), queue("borrower"), node("n", cpu=4),
        group("old", queue="borrower", phase="Running"),
        *(pod(f"old-{number}", group="old", on="n", cpu=1) for number in range(4)),
        *gang("new", 2, cpu=1, queue="lender"),
    ]  # fmt: skip

    def test_who_was_evicted_from_whom(self, metrics: Metrics) -> None:
        observe(metrics, *self.BORROWED, conf=self.RECLAIMING)
        labels = kept(action="reclaim", queue="lender", victim_queue="borrower")
        assert page_of(metrics)["vcd_evictions_total"] == {labels: 2}

    def test_a_stale_eviction_took_nothing(self, metrics: Metrics) -> None:
        observe(metrics, *self.BORROWED, conf=self.RECLAIMING, stale=((0, "a pod is gone"),))
        assert page_of(metrics).get("vcd_evictions_total", {}) == {}

    def test_evictions_of_a_deleted_queue_vanish(self, metrics: Metrics) -> None:
        observe(metrics, *self.BORROWED, conf=self.RECLAIMING)
        observe(metrics, queue("lender"), node("n", cpu=4), conf=self.RECLAIMING, number=2)
        assert page_of(metrics).get("vcd_evictions_total", {}) == {}


class TestLatencies:
    DURATIONS: ClassVar = {
        "snapshot": 0.002, "open": 0.003, "enqueue": 0.001, "allocate": 0.1, "close": 0.001, "verify": 0.0,
        "total": 0.11, "open/proportion": 0.002, "close/gang": 0.001,
    }  # fmt: skip

    @pytest.mark.parametrize(
        ("series", "labels", "milliseconds"),
        [
            ("volcano_e2e_scheduling_latency_milliseconds", {}, 110),
            ("volcano_open_session_duration_milliseconds", {}, 5),
            ("volcano_action_scheduling_latency_milliseconds", {"action": "allocate"}, 100),
            (
                "volcano_plugin_scheduling_latency_milliseconds",
                {"plugin": "proportion", "OnSession": "OnSessionOpen"},
                2,
            ),
            ("volcano_plugin_scheduling_latency_milliseconds", {"plugin": "gang", "OnSession": "OnSessionClose"}, 1),
        ],
    )
    def test_parts_of_a_cycle(self, metrics: Metrics, series: str, labels: dict[str, str], milliseconds: float) -> None:
        observe(metrics, DEFAULT, node("n"), durations=self.DURATIONS)
        assert value(metrics, f"{series}_count", **labels) == 1
        assert value(metrics, f"{series}_sum", **labels) == pytest.approx(milliseconds)

    def test_vcds_own_parts_are_in_seconds(self, metrics: Metrics) -> None:
        observe(metrics, DEFAULT, node("n"), durations=self.DURATIONS)
        assert value(metrics, "vcd_session_phase_seconds_sum", phase="snapshot") == pytest.approx(0.002)

    def test_pods_age_when_placed(self, metrics: Metrics) -> None:
        observe(metrics, DEFAULT, node("n", cpu=8), gang("a", 3, cpu=1, created=60))
        name = "volcano_task_scheduling_latency_milliseconds"
        start = value(
            metrics, "volcano_e2e_job_scheduling_start_time", job_name="a", queue="default", job_namespace="default"
        )
        assert start is not None
        assert value(metrics, f"{name}_count", stage="Assumed") == 3
        assert value(metrics, f"{name}_sum", stage="Assumed") == 3 * (NOW_NS / 1e6 - start * 1000)

    def test_pods_age_when_placed_by_queue(self, metrics: Metrics) -> None:
        gangs = (gang("a", 3, cpu=1, created=60), gang("b", 1, cpu=1, created=5, queue="b"))
        observe(metrics, DEFAULT, queue("b"), node("n", cpu=8), *gangs)
        counts = page_of(metrics)["vcd_wait_seconds_count"]
        assert counts == {kept(queue="default"): 3, kept(queue="b"): 1}
        assert value(metrics, "vcd_wait_seconds_sum", queue="default") == pytest.approx(3 * _age("a", metrics))
        observe(metrics, DEFAULT, node("n", cpu=8), number=2)
        assert page_of(metrics)["vcd_wait_seconds_count"] == {kept(queue="default"): 3}

    def test_histograms_go_on_when_their_objects_are_gone(self, metrics: Metrics) -> None:
        observe(metrics, DEFAULT, node("n", cpu=8), gang("a", 3, cpu=1))
        observe(metrics, number=2)
        assert value(metrics, "volcano_task_scheduling_latency_milliseconds_count", stage="Assumed") == 3

    def test_buckets_are_volcanos(self) -> None:
        bounds = exponential(1, 5000, 20)
        assert len(bounds) == 20
        assert (bounds[0], bounds[-1]) == (1, pytest.approx(5000))
        assert bounds[2] / bounds[1] == pytest.approx(bounds[19] / bounds[18])

    def test_many_values_count_as_each_of_them(self) -> None:
        values = [0.5, 1.0, 1.5, 10.0, 99.0]
        one, many = Distribution((1.0, 10.0)), Distribution((1.0, 10.0))
        for number in values:
            one.observe(number)
        many.observe_many(np.array(values))
        assert (one.counts, one.total) == (many.counts, many.total) == ([2, 2, 1], 112.0)

    def test_buckets_are_cumulative(self, metrics: Metrics) -> None:
        for seconds in (0.0001, 0.02, 100.0):
            metrics.series.distribution("vcd_event_log_append_seconds").observe(seconds)
        buckets = page_of(metrics)["vcd_event_log_append_seconds_bucket"]
        assert [buckets[kept(le=bound)] for bound in ("0.0005", "0.025", "10.0", "+Inf")] == [1, 2, 2, 3]


class TestOutcomes:
    def test_the_verb_is_found_in_the_plan(self, metrics: Metrics) -> None:
        observe(metrics, DEFAULT, node("n", cpu=8), gang("a", 2, cpu=1), number=7)
        metrics.observe_outcome(OperationDone(7, 0, 0, "done"))
        metrics.observe_outcome(OperationDone(7, 0, 1, "conflict"))
        counts = page_of(metrics)["vcd_commit_operations_total"]
        assert {labels: count for labels, count in counts.items() if count} == {
            kept(verb="bind", result="done"): 1,
            kept(verb="bind", result="conflict"): 1,
        }

    def test_an_outcome_of_an_unknown_session_still_counts(self, metrics: Metrics) -> None:
        metrics.watches = _watched
        metrics.observe_outcome(OperationDone(3, 0, 0, "gone"))
        assert value(metrics, "vcd_commit_operations_total", verb="unknown", result="gone") == 1

    @pytest.mark.parametrize("led_before", [False, True])
    def test_who_follows_counts_none_of_the_leaders_outcomes(self, metrics: Metrics, led_before: bool) -> None:
        if led_before:
            metrics.observe_leadership(False, 1)
            metrics.begin_service()
        metrics.observe_outcome(OperationDone(7, 0, 0, "done"))
        metrics.observe_leadership(True, 2)
        metrics.observe_outcome(OperationDone(7, 0, 1, "failed"))  # it takes over what it lacks before it writes
        assert not any(page_of(metrics)["vcd_commit_operations_total"].values())
        metrics.watches = _watched
        metrics.observe_outcome(OperationDone(7, 0, 2, "failed"))  # never done, as the fresh lists show
        assert value(metrics, "vcd_commit_operations_total", verb="unknown", result="failed") == 1

    def test_what_was_under_way_when_the_lease_was_lost_is_counted(self, metrics: Metrics) -> None:
        observe(metrics, DEFAULT, node("n", cpu=8), gang("a", 1, cpu=1), number=3)
        metrics.observe_leadership(False, 1)
        metrics.observe_outcome(OperationDone(3, 0, 0, "failed"))
        assert value(metrics, "vcd_commit_operations_total", verb="bind", result="failed") == 1

    def test_a_bind_that_failed_is_an_error(self, metrics: Metrics) -> None:
        observe(metrics, DEFAULT, node("n", cpu=8), gang("a", 1, cpu=1), number=3)
        metrics.observe_outcome(OperationDone(3, 0, 0, "failed"))
        assert value(metrics, "volcano_schedule_attempts_total", result="error") == 1

    def test_time_until_bound(self) -> None:
        clock = Ticks()
        metrics = Metrics(clock)
        observe(metrics, DEFAULT, node("n", cpu=8), gang("a", 1, cpu=1))
        clock.now += 0.25
        metrics.observe_outcome(OperationDone(1, 0, 0, "done"))
        assumed = value(metrics, "volcano_task_scheduling_latency_milliseconds_sum", stage="Assumed")
        bound = value(metrics, "volcano_task_scheduling_latency_milliseconds_sum", stage="Bound")
        assert assumed is not None
        assert bound is not None
        assert bound - assumed == pytest.approx(250)
        assert value(metrics, "volcano_scheduling_stage_duration_milliseconds_sum", stage="Bind") == pytest.approx(250)

    def test_outcomes_that_come_before_the_session_is_summed_up_are_timed_as_they_came(self) -> None:
        session = session_after(DEFAULT, node("n", cpu=8), gang("a", 3, cpu=1), conf=CONF)
        clock = Ticks()
        metrics = Metrics(clock)
        summed_up = metrics.begin_session(session, *recorded(session), {})
        clock.now += 0.25
        metrics.observe_outcome(OperationDone(1, 0, 0, "done"))
        metrics.observe_outcome(OperationDone(1, 0, 1, "failed"))
        clock.now += 5
        metrics.end_session(summed_up())
        metrics.observe_outcome(OperationDone(1, 0, 2, "done"))
        counts = page_of(metrics)["vcd_commit_operations_total"]
        assert counts[kept(verb="bind", result="done")] == 2
        assert counts[kept(verb="bind", result="failed")] == 1
        bind = "volcano_scheduling_stage_duration_milliseconds"
        assert value(metrics, f"{bind}_count", stage="Bind") == 2
        assert value(metrics, f"{bind}_sum", stage="Bind") == pytest.approx(250 + 5250)
        metrics.observe_outcome(OperationDone(1, 0, 2, "done"))
        assert value(metrics, f"{bind}_count", stage="Bind") == 2

    def test_an_eviction_is_not_timed_as_a_bind(self, metrics: Metrics) -> None:
        session = session_after(DEFAULT, node("n"), gang("a", 1, cpu=1), conf=CONF)
        plan = Plan((Statement("default/a", "preempt", (Operation("evict", "default/v", "uid"),)),))
        observe_session(metrics, session, plan, _decided(plan), {})
        metrics.observe_outcome(OperationDone(1, 0, 0, "done"))
        assert value(metrics, "vcd_commit_operations_total", verb="evict", result="done") == 1
        assert value(metrics, "volcano_scheduling_stage_duration_milliseconds_count", stage="Bind") is None

    def test_sessions_without_outcomes_are_forgotten(self, metrics: Metrics) -> None:
        session = session_after(DEFAULT, node("n", cpu=8), gang("a", 1, cpu=1), conf=CONF)
        for number in range(REMEMBERED_SESSIONS + 1):
            observe_session(metrics, session, *recorded(session, number), {})
        metrics.watches = _watched
        metrics.observe_outcome(OperationDone(0, 0, 0, "done"))
        assert value(metrics, "vcd_commit_operations_total", verb="unknown", result="done") == 1

    def test_what_did_not_happen_yet_counts_zero(self, metrics: Metrics) -> None:
        observe(metrics, DEFAULT, node("n"))
        page = page_of(metrics)
        assert page["vcd_commit_operations_total"][kept(verb="bind", result="failed")] == 0
        assert page["vcd_plugin_faults_total"][kept(plugin="gang")] == 0


class TestWaiting:
    def test_pods_by_queue_gate_and_reason(self, metrics: Metrics) -> None:
        observe(metrics, DEFAULT, queue("b"), node("n", cpu=4), gang("a", 2, cpu=8, queue="b"), conf=BARE)
        page = page_of(metrics)
        labels = kept(queue="b", gate="predicate", reason="node-room")
        assert page["vcd_waiting_groups"][labels] == 1
        assert page["vcd_waiting_pods"][labels] >= 1

    def test_a_group_that_was_not_admitted_waits_with_all_its_pods(self, metrics: Metrics) -> None:
        observe(metrics, DEFAULT, node("n", cpu=8), gang("a", 5, cpu=4, phase="Pending", minimum={"cpu": 20}))
        found = {labels: pods for labels, pods in page_of(metrics)["vcd_waiting_pods"].items() if pods}
        assert found[kept(queue="default", gate="enqueue", reason="admission")] == 5

    def test_who_waits_no_more_is_gone(self, metrics: Metrics) -> None:
        observe(metrics, DEFAULT, node("n", cpu=1), gang("a", 1, cpu=2))
        observe(metrics, DEFAULT, node("n", cpu=4), gang("a", 1, cpu=2), number=2)
        page = page_of(metrics)
        assert page.get("vcd_waiting_groups", {}) == {}
        assert page.get("vcd_waiting_pods", {}) == {}

    def test_the_oldest_pod_or_group_without_pods_of_a_queue(self, metrics: Metrics) -> None:
        gangs = (gang("a", 1, cpu=9, created=60), gang("b", 1, cpu=9, created=30), gang("placed", 1, cpu=1, created=90))
        admitted_later = group("c", queue="b", phase="Pending", minimum={"cpu": 100}, created=40)
        observe(metrics, DEFAULT, queue("b"), node("n", cpu=8), *gangs, admitted_later)
        page = page_of(metrics)
        oldest = page["vcd_waiting_oldest_timestamp_seconds"]
        starts = {dict(labels)["job_name"]: at for labels, at in page["volcano_e2e_job_scheduling_start_time"].items()}
        assert oldest == {kept(queue="default"): min(starts["a"], starts["b"]), kept(queue="b"): starts["c"]}

    def test_queues_that_do_not_exist_make_up_no_labels(self, metrics: Metrics) -> None:
        groups = [group(f"g{i}", queue=f"made-up-{i}", created=60 - i) for i in range(20)]
        observe(metrics, DEFAULT, node("n"), groups)
        page = page_of(metrics)
        assert page["vcd_waiting_groups"] == {kept(queue="", gate="queue", reason="queue-missing"): 20}
        session = session_after(DEFAULT, node("n"), groups, conf=CONF)
        oldest = min(record.created for record in session.snapshot.groups.values())
        assert page["vcd_waiting_oldest_timestamp_seconds"] == {kept(queue=""): oldest}

    def test_what_an_older_log_says_in_words_is_one_cause(self) -> None:
        assert cause_of(Waiting("ns/g", "predicate", "", "Insufficient cpu")) == "said-in-words"

    def test_a_plugin_that_is_not_here_any_more_is_one_cause(self) -> None:
        assert cause_of(Waiting("ns/g", "predicate", "gone", Reason("of-a-plugin-that-is-gone"))) == "not-installed"

    @pytest.mark.parametrize(
        ("code", "words"),
        [
            ("queue-missing", "create the queue"),
            ("queue-closed", "open the queue"),
            ("queue-misconfigured", "correct what is named"),
            ("queue-unusable", "correct what is named"),
            ("card-unreadable", "correct what is named"),
            ("scheduling-gate", "whoever set the gate"),
            ("queue-deserved", ""),
            ("node-room", ""),
            ("gang-short", ""),
        ],
    )
    def test_what_no_waiting_ends_says_what_to_do(self, code: str, words: str) -> None:
        found = mending(Waiting("ns/g", "queue", "", Reason(code)))
        assert found.startswith(words)
        assert bool(found) is bool(words)


class TestTheCluster:
    def test_what_it_has_and_what_is_used(self, metrics: Metrics) -> None:
        observe(metrics, DEFAULT, [node(f"n{i}", cpu=8, gpu=4) for i in range(2)], gang("a", 3, cpu=2, gpu=1))
        page = page_of(metrics)
        assert page["vcd_cluster_nodes"] == {kept(): 2}
        for resource, has, used in (("cpu", 16, 6), ("nvidia.com/gpu", 8, 3), ("pods", 220, 3)):
            assert page["vcd_cluster_allocatable"][kept(resource=resource)] == has
            assert page["vcd_cluster_used"][kept(resource=resource)] == used
        assert page["vcd_cluster_allocatable"][kept(resource="memory")] > 2**30


class TestTheDaemon:
    async def test_the_event_log(self, metrics: Metrics, tmp_path: Path) -> None:
        options = Options(event_log=tmp_path / "log.sqlite", housekeeping_period=0)
        looked = asyncio.Event()
        async with EventLog.open(options.event_log) as log:
            await log.append([ClockJumped(1, False)])
            state_writer = StateWriter(log, ClusterState())
            house = asyncio.create_task(maintain_log(options, state_writer, metrics, SYSTEM_CLOCK, looked.set))
            await looked.wait()
            house.cancel()
        page = page_of(metrics)
        assert page["vcd_event_log_sequence"][kept()] == 1
        assert page["vcd_event_log_bytes"][kept()] > 0
        free, whole = (page[f"vcd_event_log_volume_{name}"][kept()] for name in ("free_bytes", "bytes"))
        assert 0 < free <= whole

    async def test_of_a_volume_that_may_hold_less_than_its_disk_that_is_shown(
        self, metrics: Metrics, tmp_path: Path
    ) -> None:
        (tmp_path / "beside").mkdir()
        (tmp_path / "beside" / "apart").write_bytes(b"x" * 100_000)
        options = Options(event_log=tmp_path / "log.sqlite", housekeeping_period=0, volume_size=2**20)
        looked = asyncio.Event()
        async with EventLog.open(options.event_log) as log:
            house = asyncio.create_task(
                maintain_log(options, StateWriter(log, ClusterState()), metrics, SYSTEM_CLOCK, looked.set)
            )
            await looked.wait()
            house.cancel()
        page = page_of(metrics)
        free, whole = (page[f"vcd_event_log_volume_{name}"][kept()] for name in ("free_bytes", "bytes"))
        assert whole == 2**20
        assert whole / 2 < free <= whole - 100_000 - page["vcd_event_log_bytes"][kept()] / 2

    def test_leadership(self, metrics: Metrics) -> None:
        metrics.observe_leadership(True, 5)
        assert (value(metrics, "vcd_leader"), value(metrics, "vcd_epoch")) == (1, 5)

    def test_who_lost_the_lease_shows_no_queue_and_no_job(self, metrics: Metrics) -> None:
        observe(metrics, DEFAULT, node("n", cpu=1), gang("a", 2, cpu=2))
        metrics.observe_leadership(False, 5)
        names = [name for name, series in page_of(metrics).items() if any("queue" in dict(labels) for labels in series)]
        assert names == []
        assert value(metrics, "volcano_queue_weight", queue_name="default") is None

    def test_one_policy_is_in_force(self, metrics: Metrics) -> None:
        for digest in ("one", "two"):
            metrics.series.show("vcd_policy_info", {(digest,): 1})
        assert page_of(metrics)["vcd_policy_info"] == {kept(digest="two"): 1}

    def test_objects_set_aside_by_kind(self, metrics: Metrics) -> None:
        metrics.set_aside = lambda: [("Pod", "a/b"), ("Pod", "a/c"), ("Node", "n")]
        assert page_of(metrics)["vcd_objects_set_aside"] == {kept(kind="Pod"): 2, kept(kind="Node"): 1}

    def test_watches(self) -> None:
        clock = Ticks()
        metrics = Metrics(clock)
        metrics.watches = lambda: {
            "Pod": WatchStatus(synced=True, relists=2, events=7, last_event=90.0, lag=0.5),
            "Node": WatchStatus(),
        }
        page = page_of(metrics)
        assert page["vcd_watch_relists_total"] == {kept(kind="Pod"): 2, kept(kind="Node"): 0}
        assert page["vcd_watch_events_total"][kept(kind="Pod")] == 7
        assert page["vcd_watch_last_event_age_seconds"] == {kept(kind="Pod"): 10}
        assert page["vcd_watch_synced"] == {kept(kind="Pod"): 1, kept(kind="Node"): 0}

    def test_who_begins_anew_counts_on_and_shows_nothing_of_before(self, metrics: Metrics) -> None:
        metrics.observe_leadership(True, 3)
        metrics.series.add("vcd_lease_given_back_total")
        metrics.series.distribution("vcd_event_log_append_seconds").observe(0.1)
        metrics.series.show("vcd_policy_info", {("digest",): 1})
        metrics.set_aside = lambda: [("Pod", "a/b")]
        page_of(metrics)
        metrics.begin_service()
        assert value(metrics, "vcd_lease_given_back_total") == 1
        assert value(metrics, "vcd_event_log_append_seconds_count") == 1
        assert (value(metrics, "vcd_leader"), value(metrics, "vcd_epoch")) == (0, 0)
        page = page_of(metrics)
        assert not page.keys() & {"vcd_policy_info", "vcd_objects_set_aside"}
        assert page["vcd_build_info"]

    def test_a_plugin_that_was_left_out_is_counted(self, metrics: Metrics) -> None:
        session = session_after(DEFAULT, node("n"), conf=CONF)
        observe_session(metrics, session, Plan(faults=("drf: ZeroDivisionError()",)), None, {})
        assert value(metrics, "vcd_plugin_faults_total", plugin="drf") == 1

    def test_replay_mismatches_start_at_zero(self, metrics: Metrics) -> None:
        before = value(metrics, "vcd_replay_mismatches_total")
        metrics.series.add("vcd_replay_mismatches_total")
        assert (before, value(metrics, "vcd_replay_mismatches_total")) == (0, 1)

    def test_the_process(self, metrics: Metrics) -> None:
        assert (value(metrics, "process_resident_memory_bytes") or 0) > 1_000_000

    def test_the_longest_pause_is_shown_for_one_to_two_windows(self) -> None:
        clock = Ticks()
        metrics = Metrics(clock)
        metrics.observe_pause(0.5)
        clock.now += PAUSE_WINDOW
        metrics.observe_pause(0.1)
        assert value(metrics, "vcd_loop_pause_seconds") == 0.5
        clock.now += PAUSE_WINDOW
        metrics.observe_pause(0.01)
        assert value(metrics, "vcd_loop_pause_seconds") == 0.1

    async def test_a_pause_of_the_loop_is_measured(self, metrics: Metrics) -> None:
        watcher = asyncio.create_task(metrics.measure_pauses())
        await asyncio.sleep(0)
        began = time.perf_counter()
        while time.perf_counter() - began < 0.1:
            pass
        while not value(metrics, "vcd_loop_pause_seconds"):  # noqa: ASYNC110 - the condition waited for
            await asyncio.sleep(0.005)
        watcher.cancel()
        assert (value(metrics, "vcd_loop_pause_seconds") or 0) > 0.05


class _Odd(Plugin):
    name = "odd"

    def __init__(self, gauges: Sequence[Gauge | JobGauge]) -> None:
        self.given = gauges

    def gauges(self) -> Iterator[Gauge | JobGauge]:
        yield from self.given


class TestPluginsThatAreNotOurs:
    def test_their_gauges_are_shown(self, metrics: Metrics) -> None:
        session = session_after(DEFAULT, node("n"), conf=CONF)
        framework_of(session).plugins.append(_Odd([Gauge("odd_things", (("kind", "x"),), 3)]))
        observe_session(metrics, session, Plan(), None, {})
        assert value(metrics, "odd_things", kind="x") == 3

    def test_what_they_tell_of_each_job_is_shown(self, metrics: Metrics) -> None:
        session = session_after(DEFAULT, node("n"), gang("a", 1), gang("b", 1), conf=CONF)
        framework_of(session).plugins.append(_Odd([JobGauge("odd_jobs", np.array([3.0, 4.0]))]))
        observe_session(metrics, session, Plan(), None, {})
        assert [value(metrics, "odd_jobs", job_ns="default", job_id=name) for name in "ab"] == [3, 4]

    @pytest.mark.parametrize(
        "gauge",
        [
            Gauge("not a name", (), 1),
            Gauge("odd", (), "many"),  # type: ignore[arg-type]
            ("odd",),
            JobGauge("of_too_few_jobs", np.array([])),
            JobGauge("of_texts", np.array(["many"])),
        ],
    )
    def test_a_bad_gauge_costs_their_gauges_only(self, metrics: Metrics, gauge: Gauge) -> None:
        session = session_after(DEFAULT, node("n"), gang("a", 1), conf=CONF)
        framework_of(session).plugins.append(_Odd([Gauge("odd_things", (), 3), gauge]))
        observe_session(metrics, session, Plan(), None, {})
        assert value(metrics, "odd_things") is None
        assert value(metrics, "vcd_plugin_faults_total", plugin="odd") == 1
        assert value(metrics, "volcano_queue_weight", queue_name="default") == 1

    def test_a_series_given_twice_is_shown_once(self, metrics: Metrics) -> None:
        session = session_after(DEFAULT, node("n"), conf=CONF)
        one, again = (("a", "x"), ("b", "y")), (("b", "y"), ("a", "x"))
        framework_of(session).plugins.append(_Odd([Gauge("odd_things", one, 3), Gauge("odd_things", again, 4)]))
        observe_session(metrics, session, Plan(), None, {})
        assert value(metrics, "odd_things", a="x", b="y") == 4

    def test_they_cannot_take_a_name_of_ours(self, metrics: Metrics) -> None:
        session = session_after(DEFAULT, node("n"), conf=CONF)
        framework_of(session).plugins.append(_Odd([Gauge("vcd_leader", (), 3)]))
        observe_session(metrics, session, Plan(), None, {})
        assert value(metrics, "vcd_leader") == 0


class TestThePage:
    def test_it_can_be_written_while_counting_goes_on(self, metrics: Metrics) -> None:
        metrics.series.distribution("vcd_event_log_append_seconds").observe(0.1)
        write = metrics.freeze()
        metrics.series.distribution("vcd_event_log_append_seconds").observe(0.1)
        assert b"vcd_event_log_append_seconds_count 1.0" in write()

    def test_label_values_are_escaped(self, metrics: Metrics) -> None:
        metrics.series.show("vcd_policy_info", {('a"b\\c\n',): 1})
        assert page_of(metrics)["vcd_policy_info"] == {kept(digest='a"b\\c\n'): 1}

    def test_groups_that_came_and_went_leave_no_series(self, metrics: Metrics) -> None:
        session = session_after(DEFAULT, node("n", cpu=2), gang("a", 3, cpu=1), conf=CONF)
        observe_session(metrics, session, *recorded(session), {})
        before = len(metrics.freeze()().splitlines())
        for number in range(50):
            observe(metrics, DEFAULT, node("n", cpu=2), gang(f"g{number}", 3, cpu=1), number=number + 2)
        observe_session(metrics, session, *recorded(session, 99), {})
        assert len(metrics.freeze()().splitlines()) == before

    def test_noting_a_session_of_1400_jobs_costs_some_calls_a_job(self, metrics: Metrics) -> None:
        jobs = [manifest for i in range(1400) for manifest in gang(f"j{i}", 2, cpu=1)]
        session = session_after(DEFAULT, queue("b"), [node(f"n{i}", cpu=16) for i in range(100)], jobs, conf=CONF)
        plan, record = recorded(session)
        profile = cProfile.Profile()
        with uncollected():  # what another test left would be counted, too
            profile.runcall(observe_session, metrics, session, plan, record, {"total": 0.1})
        calls = sum(entry.callcount for entry in profile.getstats())
        assert calls < 45 * len(session.jobs)  # some 40, since all of them are new


def test_every_series_of_volcanos_source_that_is_ever_set_is_there(metrics: Metrics) -> None:
    durations = {"open": 0.1, "open/gang": 0.1, "allocate": 0.1, "total": 0.2}
    objects = (DEFAULT, node("n", cpu=4, gpu=1), gang("a", 1, cpu=1, gpu=1), gang("b", 1, cpu=9))
    observe(metrics, *objects, durations=durations)
    metrics.observe_outcome(OperationDone(1, 0, 0, "done"))
    page = page_of(metrics)
    missing = {name for name in VOLCANO if not {name, f"{name}_count"} & page.keys()}
    assert missing == set()


def _age(job: str, metrics: Metrics) -> float:
    labels = {"job_name": job, "queue": "default", "job_namespace": "default"}
    return NOW_NS / 1e9 - (value(metrics, "volcano_e2e_job_scheduling_start_time", **labels) or 0)


def _watched() -> dict[str, WatchStatus]:
    """Of a replica that writes the log."""
    return {"Pod": WatchStatus(synced=True)}


def _decided(plan: Plan) -> SessionDecided:
    return SessionDecided(1, 0, "", NOW_NS, 0, 1, {}, encode_plan(plan))


def test_a_statement_of_a_group_that_is_not_in_the_session_is_still_counted(metrics: Metrics) -> None:
    session = session_after(DEFAULT, node("n"), conf=CONF)
    plan = Plan((Statement("default/x", "allocate", (Operation("bind", "default/x-0", "uid", "n"),)),))
    observe_session(metrics, session, plan, _decided(plan), {})
    assert value(metrics, "volcano_schedule_attempts_total", result="scheduled") == 1


VOLCANO = {
    *QUEUE_SERIES,
    *(f"volcano_queue_{name}_scalar_resources" for name in ("allocated", "request", "deserved", "inqueue")),
    "volcano_queue_share",
    "volcano_queue_weight",
    "volcano_queue_overused",
    "volcano_queue_pod_group_pending_count",
    "volcano_queue_pod_group_inqueue_count",
    "volcano_queue_pod_group_running_count",
    "volcano_queue_pod_group_unknown_count",
    "volcano_queue_pod_group_completed_count",
    "volcano_e2e_scheduling_latency_milliseconds",
    "volcano_open_session_duration_milliseconds",
    "volcano_e2e_job_scheduling_latency_milliseconds",
    "volcano_e2e_job_scheduling_duration",
    "volcano_e2e_job_scheduling_start_time",
    "volcano_e2e_job_scheduling_last_time",
    "volcano_plugin_scheduling_latency_milliseconds",
    "volcano_action_scheduling_latency_milliseconds",
    "volcano_task_scheduling_latency_milliseconds",
    "volcano_scheduling_stage_duration_milliseconds",
    "volcano_schedule_attempts_total",
    "volcano_pod_preemption_victims",
    "volcano_total_preemption_attempts",
    "volcano_unschedule_task_count",
    "volcano_unschedule_job_count",
    "volcano_job_retry_counts",
}


class TestManyJobs:
    """Series of single jobs are bounded: 50,000 waiting groups made 200,747 series and a page of 13 MB."""

    LIMIT = 20
    PER_JOB = (
        "volcano_e2e_job_scheduling_start_time",
        "volcano_unschedule_task_count",
        "volcano_job_retry_counts",
        "volcano_job_share",
    )

    def page(self, metrics: Metrics, count: int, number: int = 1) -> dict[str, dict[frozenset[tuple[str, str]], float]]:
        waiting = [gang(f"g{index:03}", 2, cpu=20, minimum={"cpu": 1}) for index in range(count)]
        conf = CONF.replace("overcommit", "drf")
        observe(metrics, DEFAULT, node("n", cpu=8), *waiting, conf=conf, number=number)
        return page_of(metrics)

    def test_up_to_the_limit_each_job_has_its_series(self) -> None:
        page = self.page(Metrics(job_series=self.LIMIT), self.LIMIT)
        assert {name: len(page[name]) for name in self.PER_JOB} == dict.fromkeys(self.PER_JOB, self.LIMIT)
        assert page["vcd_jobs_without_series"] == {kept(): 0}

    def test_beyond_it_none_has_and_the_sums_stay(self) -> None:
        page = self.page(Metrics(job_series=self.LIMIT), self.LIMIT + 1)
        assert {name: len(page.get(name, ())) for name in self.PER_JOB} == dict.fromkeys(self.PER_JOB, 0)
        assert page["vcd_jobs_without_series"] == {kept(): self.LIMIT + 1}
        assert page["volcano_unschedule_job_count"] == {kept(): self.LIMIT + 1}
        assert sum(page["vcd_waiting_groups"].values()) >= self.LIMIT + 1

    def test_the_number_of_series_does_not_grow_with_the_jobs(self) -> None:
        few, many = (
            sum(map(len, self.page(Metrics(job_series=self.LIMIT), count).values()))
            for count in (self.LIMIT + 1, 10 * self.LIMIT)
        )
        assert many == few

    def test_that_series_are_left_out_is_said_once_and_so_is_their_return(self) -> None:
        metrics = Metrics(job_series=self.LIMIT)
        with structlog.testing.capture_logs() as lines:
            for number, count in enumerate((self.LIMIT + 1, self.LIMIT + 2, self.LIMIT)):
                self.page(metrics, count, number + 1)
        assert [line["event"] for line in lines] == [
            "series of single jobs omitted",
            "series of single jobs exposed again",
        ]

    def test_a_summary_that_comes_after_the_lease_was_lost_shows_nothing(self) -> None:
        metrics = Metrics()
        session = session_after(DEFAULT, node("n"), gang("a", 1, cpu=1), conf=CONF)
        plan, record = recorded(session)
        summary = metrics.begin_session(session, plan, record, {})()
        metrics.observe_leadership(False, 1)
        metrics.end_session(summary)
        assert "volcano_queue_weight" not in page_of(metrics)


def test_lost_time_of_groups_whose_queue_is_missing_adds_up() -> None:
    clock = Ticks()
    metrics = Metrics(clock)
    lost = []
    for number in range(1, 5):
        observe(metrics, DEFAULT, node("n"), gang("a", 2, queue="typo"), number=number)
        clock.now += 10
        lost.append(sum(page_of(metrics)["vcd_lost_pod_seconds_total"].values()))
    assert lost == [20, 40, 60, 80]


def test_lost_time_of_a_queue_that_is_deleted_does_not_come_back() -> None:
    clock = Ticks()
    metrics = Metrics(clock)
    gone = gang("a", 2, cpu=4, queue="b")
    observe(metrics, DEFAULT, queue("b"), node("n", cpu=1), gone, gang("left", 1, cpu=4))
    clock.now += 100
    before = page_of(metrics)["vcd_lost_pod_seconds_total"]
    assert sorted(before.values()) == [100, 200]
    clock.now += 30
    observe(metrics, DEFAULT, node("n", cpu=1), gang("left", 1, cpu=4), number=2)
    assert list(page_of(metrics)["vcd_lost_pod_seconds_total"].values()) == [130]
    clock.now += 10
    assert list(page_of(metrics)["vcd_lost_pod_seconds_total"].values()) == [140]


def test_a_queue_that_is_deleted_before_its_last_session_is_summed_up_does_not_come_back() -> None:
    clock = Ticks()
    metrics = Metrics(clock)
    placed = gang("placed", 1, cpu=1, queue="b", created=60)
    sessions = [
        session_after(DEFAULT, queue("b"), node("n", cpu=1), placed, gang("a", 2, cpu=4, queue="b"), conf=CONF),
        session_after(DEFAULT, node("n", cpu=1), conf=CONF),
    ]
    summed_up = [metrics.begin_session(each, *recorded(each, number), {}) for number, each in enumerate(sessions, 1)]
    for each in summed_up:
        metrics.end_session(each())
        clock.now += 30
        page = page_of(metrics)
        of_leader = ("vcd_wait_seconds_count", "vcd_verdict_pods", "vcd_lost_pod_seconds_total")
        assert not [labels for name in of_leader for labels in page.get(name, ()) if ("queue", "b") in labels]


def test_a_verdict_that_comes_after_the_lease_was_lost_shows_nothing() -> None:
    clock = Ticks()
    metrics = Metrics(clock)
    observe(metrics, DEFAULT, node("n", cpu=1), gang("a", 3, cpu=2))
    judged = metrics.judge({"default/a": "cluster-full"})
    metrics.observe_leadership(False, 1)
    metrics.observe_verdicts(judged())
    clock.now += 3600
    page = page_of(metrics)
    assert page.get("vcd_verdict_pods", {}) == {}
    assert sum(page.get("vcd_lost_pod_seconds_total", {}).values()) == 0


async def test_a_session_that_is_handed_over_after_the_lease_was_lost_shows_nothing() -> None:
    """The Lease goes while the session is being logged, which may take long: the next leader shows all of that."""
    replica = Replica()
    await replica.state_writer.put(puts(*default_queues([]), node("n", cpu=4), gang("waits", 3, cpu=9)))
    clock = Ticks()
    metrics = Metrics(clock)
    metrics.observe_leadership(True, 1)

    def handover(record: Any, plan: Plan, session: Any, durations: dict[str, float]) -> None:
        observe_session(metrics, session, plan, record, durations)
        replica.handed.append((record, plan))

    replica.cycle.handover = handover
    replica.log.held = True
    async with replica.runs():
        await until(lambda: replica.log.sessions)  # it is under way to the disk
        replica.epoch = None
        metrics.observe_leadership(False, 1)
        for gate in replica.log.waiting:
            gate.set_result(None)
        await until(lambda: replica.handed)
    clock.now += 3600
    page = page_of(metrics)
    assert page.get("vcd_waiting_pods", {}) == {}
    assert page.get("vcd_verdict_pods", {}) == {}
    assert sum(page.get("vcd_lost_pod_seconds_total", {}).values()) == 0


@pytest.mark.parametrize("trusted", [True, False])
def test_it_shows_whether_watches_are_trusted_that_could_not_be_read_again(trusted: bool) -> None:
    service = object.__new__(SchedulerService)
    service.metrics = Metrics()
    service.reads = cast(ConsistentReads, SimpleNamespace(trusts_watches=trusted))
    service.status_reporter = cast(StatusReporter, SimpleNamespace(session=lambda *_: None))
    service._hand_over(None, ev.Plan(), session_after(), {})
    assert value(service.metrics, "vcd_watches_trusted") == trusted
