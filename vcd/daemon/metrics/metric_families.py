"""Declares all metrics: Volcano's names, exactly as in its source, and vcd's own (``vcd_*``).

Source: Volcano ``pkg/scheduler/metrics`` and, for groups and jobs by phase, ``pkg/controllers``. The reference in docs/
is generated from these declarations.
"""

from __future__ import annotations

from functools import partial

from vcd.daemon.metrics.metric_series import Family, exponential

_counter, _gauge, _histogram = (partial(Family, kind) for kind in ("counter", "gauge", "histogram"))

_SESSION = exponential(1, 5000, 20)
_JOB = exponential(100, 120000, 30)
_PLUGIN = exponential(0.1, 100, 15)
_ACTION = exponential(1, 2000, 20)
_TASK = exponential(50, 60000, 30)
_STAGE = exponential(0.1, 500, 20)
_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_WAITS = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 1800.0, 3600.0, 10800.0, 21600.0, 43200.0, 86400.0, 259200.0, 604800.0)
_JOB_LABELS = ("job_name", "queue", "job_namespace")
_WHY = ("queue", "gate", "reason")
_VERDICT = ("queue", "cause")
_KIND = ("kind",)
_REQUEST = ("verb", "resource")

WATCH = {
    "synced": _gauge("vcd_watch_synced", "Whether a kind's first list is complete.", _KIND),
    "lag": _gauge("vcd_watch_lag_seconds", "Seconds from the arrival of a change to log and state.", _KIND),
    "lists": _counter("vcd_watch_lists_total", "Completed lists.", _KIND),
    "relists": _counter("vcd_watch_relists_total", "Lists because a watch could not continue.", _KIND),
    "connections": _counter("vcd_watch_connections_total", "Watches opened.", _KIND),
    "drift": _counter("vcd_watch_drift_total", "Objects of a list that differ from what the watch delivered.", _KIND),
    "crashes": _counter("vcd_watch_crashes_total", "Internal errors after which a watch was restarted.", _KIND),
    "errors": _counter("vcd_watch_errors_total", "Lists and watches that failed.", _KIND),
    "events": _counter("vcd_watch_events_total", "Changes received.", _KIND),
    "bad": _counter("vcd_watch_bad_objects_total", "Received objects that cannot be decoded.", _KIND),
}
"""By field of `WatchStatus`."""
WATCH_AGES = {
    "last_event": _gauge("vcd_watch_last_event_age_seconds", "Time since the last change.", _KIND),
    "last_contact": _gauge("vcd_watch_last_contact_age_seconds", "Time since the last line of the watch.", _KIND),
}
"""By field of `WatchStatus` that has the time."""

DAEMON = (
    _histogram("volcano_e2e_scheduling_latency_milliseconds", "Time of one scheduling cycle, ms.", (), _SESSION),
    _histogram(
        "volcano_open_session_duration_milliseconds",
        "Time to take a snapshot and open a session on it, ms.",
        (),
        _SESSION,
    ),
    _histogram(
        "volcano_e2e_job_scheduling_latency_milliseconds",
        "Age of jobs when some of their tasks were placed, ms.",
        (),
        _JOB,
    ),
    _histogram(
        "volcano_plugin_scheduling_latency_milliseconds",
        "Time of a plugin at the beginning and the end of a session, ms.",
        ("plugin", "OnSession"),
        _PLUGIN,
    ),
    _histogram("volcano_action_scheduling_latency_milliseconds", "Time of an action, ms.", ("action",), _ACTION),
    _histogram(
        "volcano_task_scheduling_latency_milliseconds",
        "Age of pods when they were placed (Assumed) and when they were bound (Bound), ms.",
        ("stage",),
        _TASK,
    ),
    _histogram(
        "volcano_scheduling_stage_duration_milliseconds",
        "Time from a decision to the answer of a pod's binding (Bind), ms.",
        ("stage",),
        _STAGE,
    ),
    _counter(
        "volcano_schedule_attempts_total",
        "Pods that cycles considered: scheduled, unschedulable, or not bound because of an error.",
        ("result",),
    ),
    _counter("volcano_total_preemption_attempts", "Statements of preempt actions that evict pods."),
    _counter("volcano_eviction_transactions_total", "Statements that evict pods, by action.", ("action",)),
    _histogram("vcd_session_phase_seconds", "Time of the parts of a cycle.", ("phase",), _SECONDS),
    _counter(
        "vcd_session_statements_total",
        "Statements by verdict: committed, or stale because the state changed.",
        ("verdict",),
    ),
    _counter(
        "vcd_commit_operations_total",
        "Binds, evictions and removed scheduling gates by outcome.",
        ("verb", "result"),
    ),
    _counter(
        "vcd_writes_dropped_total",
        "Events, statuses and conditions dropped because too many were queued, by the kind of the object.",
        _KIND,
    ),
    _histogram("vcd_event_log_append_seconds", "Time until appended events are durable.", (), _SECONDS),
    _counter("vcd_plugin_faults_total", "Sessions in which a plugin failed or did not return.", ("plugin",)),
    _counter("vcd_usage_polls_total", "Samples of the nodes' usage, by result.", ("result",)),
    _counter("vcd_lease_given_back_total", "How often the Lease was given back because a kind could not be listed."),
    _counter(
        "vcd_apiserver_requests_total",
        "Requests to the API server by HTTP status; <error> without an answer.",
        (*_REQUEST, "code"),
    ),
    _histogram(
        "vcd_apiserver_request_duration_seconds",
        "Duration of requests to the API server, including those without an answer.",
        _REQUEST,
        _SECONDS,
    ),
    _counter("vcd_foreign_binds_total", "Pods of vcd that another scheduler bound, as observed by the leader."),
    _gauge(
        "vcd_installation_faults",
        "Objects that an installation fault affects, or 1 if the fault is not about objects.",
        ("code", "subject"),
    ),
    _gauge(
        "vcd_namespaces_held_back", "Namespaces in which vcd decides nothing because another scheduler binds its pods."
    ),
    _gauge(
        "vcd_watches_trusted",
        "1 while PodGroups or Queues cannot be read again before a write, so that their watches are trusted.",
    ),
    _counter("vcd_clock_jumps_total", "How often the machine's wall clock jumped."),
    _gauge(
        "vcd_policy_last_reload_successful",
        "0 while the configuration file is refused and the last valid one is in force.",
    ),
    _counter("vcd_policy_reload_errors_total", "Configuration files that were refused."),
    _counter("vcd_certificate_reload_errors_total", "Certificates and keys in --tls-cert-file that were refused."),
    _counter("vcd_replay_mismatches_total", "Sessions whose replay resulted in another plan."),
    _gauge("vcd_event_log_sequence", "Sequence number of the last event in the event log."),
    _gauge("vcd_event_log_lag_events", "Events of the leader's log that this follower does not have yet."),
    _gauge("vcd_event_log_followers", "Followers of this replica's log that are up to date."),
    _histogram(
        "vcd_event_log_followers_wait_seconds", "Time that a session's API calls waited for followers.", (), _SECONDS
    ),
    _counter("vcd_event_log_sent_bytes_total", "Bytes of the event log sent to followers."),
    _counter("vcd_event_log_followers_late_total", "Decisions that no longer waited for slow followers."),
    _gauge(
        "vcd_log_archive_age_seconds", "Age of the newest event in the archive; 0 if the archive has the whole log."
    ),
    _counter("vcd_log_archive_failures_total", "Runs in which the log could not be shipped to the archive."),
    _counter("vcd_log_archive_bytes_total", "Bytes shipped to the archive."),
    _counter(
        "vcd_log_archive_missed_events_total",
        "Events that were removed because of the log's size and are not in the archive.",
    ),
    _gauge("vcd_event_log_bytes", "Size of the event log's file."),
    _gauge("vcd_event_log_volume_bytes", "Size of the file system that holds the event log."),
    _gauge("vcd_event_log_volume_free_bytes", "Free space for vcd on that file system."),
    _gauge("vcd_leader", "1 while this replica holds the Lease."),
    _gauge("vcd_shadow", "1 if vcd decides without acting (--shadow)."),
    _gauge("vcd_epoch", "The Lease's leaseTransitions when this replica last won or lost it."),
    _gauge("vcd_policy_info", "1 for the configuration in force.", ("digest",)),
    _gauge("vcd_build_info", "1 for the running version.", ("version",)),
    _gauge("vcd_page_info", "1 for the URL of the page (--page-url), to which alerts and dashboards link.", ("url",)),
    _gauge("vcd_objects_set_aside", "Invalid objects, which vcd does not use.", _KIND),
    _gauge("vcd_loop_pause_seconds", "The event loop's longest pause in the last one to two minutes."),
    _gauge(
        "vcd_clock_ahead_seconds",
        "How far the machine's wall clock is ahead of the time in decisions and in the log.",
    ),
    _gauge("vcd_session", "The number of the last session that this replica decided and logged."),
    *WATCH.values(),
    *WATCH_AGES.values(),
    _gauge("vcd_watch_stale_seconds", "Time for which a kind could be neither listed nor watched.", _KIND),
)
"""Families that each replica exposes, whether it leads or not."""

LEADER = (
    _histogram("vcd_wait_seconds", "Age of pods when they were placed, by queue.", ("queue",), _WAITS),
    _counter(
        "vcd_evictions_total",
        "Victims, by action, the queue of the preemptor and the queue of the victim.",
        ("action", "queue", "victim_queue"),
    ),
    _gauge("vcd_verdict_pods", "Pending pods by the cause that held longest in their group's wait.", _VERDICT),
    _counter(
        "vcd_lost_pod_seconds_total",
        "Time that pods waited, by the cause that held longest in their group's wait.",
        _VERDICT,
    ),
    _gauge("vcd_misconfigured", "Problems that plugins found in an object's configuration.", ("kind", "name")),
    _gauge("vcd_jobs_without_series", "Jobs without series of their own, because there are more than --job-series."),
)
"""Families that continue while this replica leads; series with a queue, as long as the queue exists."""

LAST_SESSION = (
    _gauge("volcano_unschedule_job_count", "Jobs with fewer tasks than their minimum."),
    _gauge("volcano_pod_preemption_victims", "Pods that the last cycle chose as victims of preemption."),
    _gauge("vcd_waiting_groups", "Waiting PodGroups by queue, gate and cause.", _WHY),
    _gauge("vcd_waiting_pods", "Pending pods by queue, gate and cause; a pod counts once for each cause.", _WHY),
    _gauge(
        "vcd_waiting_oldest_timestamp_seconds",
        "When the oldest pending pod, or waiting PodGroup without pods, was created, Unix time.",
        ("queue",),
    ),
    _gauge("vcd_cluster_nodes", "Nodes that cycles can use."),
    _gauge("vcd_cluster_allocatable", "Allocatable of all nodes: cores, bytes, pods or pieces.", ("resource",)),
    _gauge("vcd_cluster_used", "Requests of all bound pods, including other schedulers' pods.", ("resource",)),
)

JOBS = (
    _gauge("volcano_e2e_job_scheduling_start_time", "When a job was created, Unix time.", _JOB_LABELS),
    _gauge("volcano_e2e_job_scheduling_duration", "A job's age when tasks of it were last placed, ms.", _JOB_LABELS),
    _gauge("volcano_e2e_job_scheduling_last_time", "When tasks of a job were last placed, Unix time.", _JOB_LABELS),
    _counter("volcano_job_retry_counts", "Cycles in which a job stayed unschedulable.", ("job_id",)),
    _counter("volcano_job_completed_phase_count", "How often a job completed.", ("job_name", "queue_name")),
    _gauge("volcano_unschedule_task_count", "Tasks that a job lacks of its minimum.", ("job_id",)),
)
"""Families of single jobs, as of the last session."""

_QUEUE_AMOUNTS = {
    "volcano_queue_allocated": "allocated to a queue's tasks",
    "volcano_queue_request": "allocated to and requested by a queue's tasks",
    "volcano_queue_deserved": "a queue's deserved share",
    "volcano_queue_capacity": "a queue's capability",
    "volcano_queue_real_capacity": "a queue's capability after other queues' guarantees are subtracted",
    "volcano_queue_inqueue": "what admitted PodGroups may still allocate",
    "vcd_queue_guarantee": "a queue's guarantee",
    "vcd_queue_enqueue_reserved": "reserved by enqueue for admitted PodGroups",
}
_UNITS = {"milli_cpu": "CPU in thousandths", "memory_bytes": "memory in bytes", "scalar_resources": "other resources"}
DOCS = {
    **{
        f"{name}_{unit}": f"{words}: {what}." for name, what in _QUEUE_AMOUNTS.items() for unit, words in _UNITS.items()
    },
    "volcano_queue_share": "The largest ratio of allocated to deserved over all resources of a queue.",
    "volcano_queue_weight": "A queue's weight.",
    "volcano_queue_overused": "1 if a queue is overused.",
    "vcd_queue_pod_groups": "PodGroups of a queue by phase.",
    **{
        f"volcano_queue_pod_group_{phase}_count": (
            f"PodGroups of a queue in phase {phase.capitalize()}. Only with --controllers=queue; otherwise Volcano's "
            "controller-manager exposes it."
        )
        for phase in ("pending", "inqueue", "running", "unknown", "completed")
    },
}
"""Help texts of gauges of sessions, by name, except gauges of one plugin (``Plugin.series``)."""
