"""Declares all metrics: Volcano's names, exactly as in its source, and vcd's own (``vcd_*``).

Source: Volcano ``pkg/scheduler/metrics`` and, for groups and jobs by phase, ``pkg/controllers``. The reference in docs/
is generated from these declarations.
"""

from __future__ import annotations

from functools import partial

from vcd.daemon.metrics.series import Family, exponential

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
    "lag": _gauge("vcd_watch_lag_seconds", "From arrival to log and state, of the last changes.", _KIND),
    "lists": _counter("vcd_watch_lists_total", "Complete lists.", _KIND),
    "relists": _counter("vcd_watch_relists_total", "Lists made because a watch could not go on.", _KIND),
    "connections": _counter("vcd_watch_connections_total", "Watches begun.", _KIND),
    "drift": _counter("vcd_watch_drift_total", "Objects that a list showed otherwise than the watch had told.", _KIND),
    "crashes": _counter("vcd_watch_crashes_total", "Defects after which a watch began anew.", _KIND),
    "errors": _counter("vcd_watch_errors_total", "Lists and watches that failed.", _KIND),
    "events": _counter("vcd_watch_events_total", "Changes received.", _KIND),
    "bad": _counter("vcd_watch_bad_objects_total", "Objects received that cannot be read.", _KIND),
}
"""By the field of a watch's status that they show."""
WATCH_AGES = {
    "last_event": _gauge("vcd_watch_last_event_age_seconds", "Since the last change.", _KIND),
    "last_contact": _gauge("vcd_watch_last_contact_age_seconds", "Since the last line at all.", _KIND),
}
"""By the field of a watch's status with the time."""

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
        "Age of jobs whenever some of their tasks were placed, ms.",
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
        "Pods that cycles looked at: scheduled, unschedulable, or not bound because of an error.",
        ("result",),
    ),
    _counter("volcano_total_preemption_attempts", "Statements of preempt actions that evict pods."),
    _counter("volcano_eviction_transactions_total", "Statements that evict pods, by action.", ("action",)),
    _histogram("vcd_session_phase_seconds", "Time of the parts of a cycle.", ("phase",), _SECONDS),
    _counter("vcd_session_statements_total", "Statements by what became of them.", ("verdict",)),
    _counter(
        "vcd_commit_operations_total",
        "Binds, evictions and lifted scheduling gates by their outcome.",
        ("verb", "result"),
    ),
    _counter(
        "vcd_writes_dropped_total",
        "Events, statuses and conditions that were not written because too many waited, by the kind of the object.",
        _KIND,
    ),
    _histogram("vcd_event_log_append_seconds", "Time until appended events are durable.", (), _SECONDS),
    _counter("vcd_plugin_faults_total", "Sessions that a plugin failed in, or does not come back from.", ("plugin",)),
    _counter("vcd_usage_polls_total", "Samples of the nodes' usage: taken or failed.", ("result",)),
    _counter("vcd_lease_given_back_total", "How often the Lease was given back because a kind could not be listed."),
    _counter(
        "vcd_apiserver_requests_total",
        "Requests to the API server by HTTP status, <error> for no answer.",
        (*_REQUEST, "code"),
    ),
    _histogram(
        "vcd_apiserver_request_duration_seconds",
        "Time until a request to the API server was answered, or ended without an answer.",
        _REQUEST,
        _SECONDS,
    ),
    _counter("vcd_foreign_binds_total", "Pods of ours that somebody else bound, as seen by who leads."),
    _gauge(
        "vcd_installation_faults",
        "Objects that a fault of the installation concerns, 1 where it is not about objects.",
        ("code", "subject"),
    ),
    _gauge(
        "vcd_namespaces_held_back", "Namespaces in which nothing is decided because somebody else binds pods of ours."
    ),
    _gauge(
        "vcd_watches_trusted",
        "1 while PodGroups or Queues cannot be read again and what their watches have shown is trusted instead.",
    ),
    _counter("vcd_clock_jumps_total", "How often the machine's wall clock jumped."),
    _gauge("vcd_policy_last_reload_successful", "0 while the configuration file is refused, and not the one in force."),
    _counter("vcd_policy_reload_errors_total", "Configurations that were refused."),
    _counter("vcd_certificate_reload_errors_total", "Certificates and keys in --tls-cert-file that were refused."),
    _counter("vcd_replay_mismatches_total", "Sessions whose replay gave another plan."),
    _gauge("vcd_event_log_sequence", "The last event in the event log."),
    _gauge("vcd_event_log_lag_events", "Events of the leader's log that a replica which follows it lacks."),
    _gauge("vcd_event_log_followers", "Replicas that follow this one's log and keep up."),
    _histogram(
        "vcd_event_log_followers_wait_seconds", "Time that a session's calls waited for who follows.", (), _SECONDS
    ),
    _counter("vcd_event_log_sent_bytes_total", "Bytes of the event log sent to who follows."),
    _counter("vcd_event_log_followers_late_total", "Decisions that were not held back any longer for who follows."),
    _gauge("vcd_log_archive_age_seconds", "Age of the newest event in the archive; 0 while all of the log is there."),
    _counter("vcd_log_archive_failures_total", "Runs in which the log could not be shipped to the archive."),
    _counter("vcd_log_archive_bytes_total", "Bytes that were shipped to the archive."),
    _counter("vcd_log_archive_missed_events_total", "Events that went for the log's size and are not in the archive."),
    _gauge("vcd_event_log_bytes", "Size of the event log's file."),
    _gauge("vcd_event_log_volume_bytes", "Size of the file system that holds the event log."),
    _gauge("vcd_event_log_volume_free_bytes", "What is free for vcd on that file system."),
    _gauge("vcd_leader", "1 while this replica holds the Lease."),
    _gauge("vcd_shadow", "1 where nothing of what is decided is done (--shadow)."),
    _gauge("vcd_epoch", "The Lease's transitions when this replica last won or lost it."),
    _gauge("vcd_policy_info", "The configuration in force.", ("digest",)),
    _gauge("vcd_build_info", "The program.", ("version",)),
    _gauge("vcd_page_info", "Where people open the page (--page-url); links of alerts and dashboards.", ("url",)),
    _gauge("vcd_objects_set_aside", "Objects that cannot be read and are not scheduled.", _KIND),
    _gauge("vcd_loop_pause_seconds", "The event loop's longest pause in the last one to two minutes."),
    _gauge(
        "vcd_clock_ahead_seconds",
        "How far the machine's wall clock is ahead of the time that decisions and the log have.",
    ),
    _gauge("vcd_session", "The number of the last session that this replica decided and logged."),
    *WATCH.values(),
    *WATCH_AGES.values(),
    _gauge("vcd_watch_stale_seconds", "For how long a kind could neither be listed nor watched.", _KIND),
)
"""Families of this replica, whether it leads or not."""

LEADER = (
    _histogram("vcd_wait_seconds", "Age of pods when they were placed, by queue.", ("queue",), _WAITS),
    _counter(
        "vcd_evictions_total",
        "Pods that were chosen to go, by action, the queue that gets the room and the queue that they are of.",
        ("action", "queue", "victim_queue"),
    ),
    _gauge("vcd_verdict_pods", "Pods that wait, by the cause that held longest of their group's wait.", _VERDICT),
    _counter("vcd_lost_pod_seconds_total", "Time that pods waited, by the same cause.", _VERDICT),
    _gauge("vcd_misconfigured", "Problems that plugins see in an object's configuration.", ("kind", "name")),
    _gauge("vcd_jobs_without_series", "Jobs that have no series of their own, since they are more than --job-series."),
)
"""Families that go on while this replica leads, those with a queue while that is there."""

LAST_SESSION = (
    _gauge("volcano_unschedule_job_count", "Jobs that have not their minimum of tasks."),
    _gauge("volcano_pod_preemption_victims", "Pods that the last cycle chose as victims of preemption."),
    _gauge("vcd_waiting_groups", "Groups that wait, by queue, gate and cause.", _WHY),
    _gauge("vcd_waiting_pods", "Pods that wait, once for each cause.", _WHY),
    _gauge(
        "vcd_waiting_oldest_timestamp_seconds",
        "When the oldest pod that waits was created, or the group where it has none yet, Unix time.",
        ("queue",),
    ),
    _gauge("vcd_cluster_nodes", "Nodes that cycles can choose from."),
    _gauge("vcd_cluster_allocatable", "What all nodes have: cores, bytes, pods or pieces.", ("resource",)),
    _gauge("vcd_cluster_used", "What pods have of it, those of other schedulers included.", ("resource",)),
)

JOBS = (
    _gauge("volcano_e2e_job_scheduling_start_time", "When a job was created, Unix time.", _JOB_LABELS),
    _gauge("volcano_e2e_job_scheduling_duration", "A job's age when tasks of it were last placed, ms.", _JOB_LABELS),
    _gauge("volcano_e2e_job_scheduling_last_time", "When tasks of a job were last placed, Unix time.", _JOB_LABELS),
    _counter("volcano_job_retry_counts", "Cycles in which a job stayed unschedulable.", ("job_id",)),
    _counter("volcano_job_completed_phase_count", "How often a job completed.", ("job_name", "queue_name")),
    _gauge("volcano_unschedule_task_count", "Tasks that a job lacks of its minimum.", ("job_id",)),
)
"""Of single jobs, as of the last session."""

_QUEUE_AMOUNTS = {
    "volcano_queue_allocated": "what a queue's tasks have",
    "volcano_queue_request": "what a queue's tasks have and ask for",
    "volcano_queue_deserved": "what a queue deserves",
    "volcano_queue_capacity": "what a queue may have by its capability",
    "volcano_queue_real_capacity": "what a queue may have once other queues' guarantees are taken off",
    "volcano_queue_inqueue": "what admitted groups may still take",
    "vcd_queue_guarantee": "what is kept for a queue",
    "vcd_queue_enqueue_reserved": "what enqueue reserved for admitted groups",
}
_UNITS = {"milli_cpu": "CPU in thousandths", "memory_bytes": "memory in bytes", "scalar_resources": "other resources"}
DOCS = {
    **{
        f"{name}_{unit}": f"{words}: {what}." for name, what in _QUEUE_AMOUNTS.items() for unit, words in _UNITS.items()
    },
    "volcano_queue_share": "The largest part of what a queue deserves that it has.",
    "volcano_queue_weight": "A queue's weight.",
    "volcano_queue_overused": "1 when a queue has all that it deserves.",
    "vcd_queue_pod_groups": "Groups of a queue by phase.",
    **{
        f"volcano_queue_pod_group_{phase}_count": (
            f"Groups of a queue in phase {phase.capitalize()}. Shown with --controllers=queue only; else Volcano's "
            "controller-manager shows it."
        )
        for phase in ("pending", "inqueue", "running", "unknown", "completed")
    },
}
"""Help texts of gauges that sessions give, by name, but for those that one plugin alone shows (``Plugin.series``)."""
