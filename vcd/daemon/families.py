"""The names on the metrics page: Volcano's, exactly as its source has them, and vcd's own.

Source of the first: Volcano ``pkg/scheduler/metrics`` and, for groups and jobs by phase, ``pkg/controllers``.
"""

from __future__ import annotations

from vcd.daemon.series import Family, exponential

_SESSION = exponential(1, 5000, 20)
_JOB = exponential(100, 120000, 30)
_PLUGIN = exponential(0.1, 100, 15)
_ACTION = exponential(1, 2000, 20)
_TASK = exponential(50, 60000, 30)
_STAGE = exponential(0.1, 500, 20)
_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_WAITS = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 1800.0, 3600.0, 10800.0, 21600.0, 43200.0, 86400.0, 259200.0, 604800.0)
_JOB_LABELS = ("job_name", "queue", "job_namespace")

COUNTED = (
    Family(
        "volcano_e2e_scheduling_latency_milliseconds", "histogram", "Time of one scheduling cycle, ms.", (), _SESSION
    ),
    Family(
        "volcano_open_session_duration_milliseconds",
        "histogram",
        "Time to take a snapshot and open a session on it, ms.",
        (),
        _SESSION,
    ),
    Family(
        "volcano_e2e_job_scheduling_latency_milliseconds",
        "histogram",
        "Age of jobs whenever some of their tasks were placed, ms.",
        (),
        _JOB,
    ),
    Family(
        "volcano_plugin_scheduling_latency_milliseconds",
        "histogram",
        "Time of a plugin at the beginning and the end of a session, ms.",
        ("plugin", "OnSession"),
        _PLUGIN,
    ),
    Family(
        "volcano_action_scheduling_latency_milliseconds", "histogram", "Time of an action, ms.", ("action",), _ACTION
    ),
    Family(
        "volcano_task_scheduling_latency_milliseconds",
        "histogram",
        "Age of pods when they were placed (Assumed) and when they were bound (Bound), ms.",
        ("stage",),
        _TASK,
    ),
    Family(
        "volcano_scheduling_stage_duration_milliseconds",
        "histogram",
        "Time from a decision to the answer of a pod's binding (Bind), ms.",
        ("stage",),
        _STAGE,
    ),
    Family(
        "volcano_schedule_attempts_total",
        "counter",
        "Pods that cycles looked at: scheduled, unschedulable, or not bound because of an error.",
        ("result",),
    ),
    Family("volcano_total_preemption_attempts", "counter", "Statements of preempt actions that evict pods."),
    Family("volcano_eviction_transactions_total", "counter", "Statements that evict pods, by action.", ("action",)),
    Family("vcd_session_phase_seconds", "histogram", "Time of the parts of a cycle.", ("phase",), _SECONDS),
    Family("vcd_session_statements_total", "counter", "Statements by what became of them.", ("verdict",)),
    Family(
        "vcd_commit_operations_total",
        "counter",
        "Binds, evictions and lifted scheduling gates by their outcome.",
        ("verb", "result"),
    ),
    Family("vcd_event_log_append_seconds", "histogram", "Time until appended events are durable.", (), _SECONDS),
    Family(
        "vcd_plugin_faults_total",
        "counter",
        "Sessions that a plugin failed in, or does not come back from.",
        ("plugin",),
    ),
    Family("vcd_usage_polls_total", "counter", "Samples of the nodes' usage: taken or failed.", ("result",)),
    Family(
        "vcd_lease_given_back_total",
        "counter",
        "How often the Lease was given back because a kind could not be listed.",
    ),
    Family("vcd_clock_jumps_total", "counter", "How often the machine's wall clock jumped."),
    Family("vcd_policy_reload_errors_total", "counter", "Configurations that were refused."),
    Family("vcd_replay_mismatches_total", "counter", "Sessions whose replay gave another plan."),
)
"""Families that count on as long as the daemon runs."""

BY_QUEUE = (
    Family("vcd_wait_seconds", "histogram", "Age of pods when they were placed, by queue.", ("queue",), _WAITS),
    Family(
        "vcd_evictions_total",
        "counter",
        "Pods that were chosen to go, by action, the queue that gets the room and the queue that they are of.",
        ("action", "queue", "victim_queue"),
    ),
)
"""Families that count on while their queues are there and this replica leads."""

E2E_DURATION = Family(
    "volcano_e2e_job_scheduling_duration", "gauge", "A job's age when tasks of it were last placed, ms.", _JOB_LABELS
)
E2E_START = Family("volcano_e2e_job_scheduling_start_time", "gauge", "When a job was created, Unix time.", _JOB_LABELS)
E2E_LAST = Family(
    "volcano_e2e_job_scheduling_last_time", "gauge", "When tasks of a job were last placed, Unix time.", _JOB_LABELS
)
RETRIES = Family("volcano_job_retry_counts", "counter", "Cycles in which a job stayed unschedulable.", ("job_id",))
COMPLETED = Family(
    "volcano_job_completed_phase_count", "counter", "How often a job completed.", ("job_name", "queue_name")
)
UNSCHEDULED_TASKS = Family(
    "volcano_unschedule_task_count", "gauge", "Tasks that a job lacks of its minimum.", ("job_id",)
)
UNSCHEDULED_JOBS = Family("volcano_unschedule_job_count", "gauge", "Jobs that have not their minimum of tasks.")
JOB_SERIES_LEFT_OUT = Family(
    "vcd_jobs_without_series", "gauge", "Jobs that have no series of their own, since they are more than --job-series."
)
VICTIMS = Family("volcano_pod_preemption_victims", "gauge", "Pods that the last cycle chose as victims of preemption.")

EVENT_LOG = (
    Family("vcd_event_log_sequence", "gauge", "The last event in the event log."),
    Family("vcd_event_log_bytes", "gauge", "Size of the event log's file."),
    Family("vcd_event_log_volume_bytes", "gauge", "Size of the file system that holds the event log."),
    Family("vcd_event_log_volume_free_bytes", "gauge", "What is free for vcd on that file system."),
)
LEADER = Family("vcd_leader", "gauge", "1 while this replica holds the Lease.")
EPOCH = Family("vcd_epoch", "gauge", "The Lease's transitions when this replica last won or lost it.")
POLICY = Family("vcd_policy_info", "gauge", "The configuration in force.", ("digest",))
BUILD = Family("vcd_build_info", "gauge", "The program.", ("version",))
SET_ASIDE = Family("vcd_objects_set_aside", "gauge", "Objects that cannot be read and are not scheduled.", ("kind",))
MISCONFIGURED = Family(
    "vcd_misconfigured", "gauge", "Problems that plugins see in an object's configuration.", ("kind", "name")
)
PAUSE = Family("vcd_loop_pause_seconds", "gauge", "The event loop's longest pause in the last one to two minutes.")
CLOCK = Family(
    "vcd_clock_ahead_seconds",
    "gauge",
    "How far the machine's wall clock is ahead of the time that decisions and the log have.",
)
SESSION = Family("vcd_session", "gauge", "The number of the last session that this replica decided and logged.")
WAITING_GROUPS = Family(
    "vcd_waiting_groups", "gauge", "Groups that wait, by queue, gate and kind of reason.", ("queue", "gate", "reason")
)
WAITING_PODS = Family(
    "vcd_waiting_pods", "gauge", "Pods that wait, once for each kind of reason.", ("queue", "gate", "reason")
)
WAITING_OLDEST = Family(
    "vcd_waiting_oldest_timestamp_seconds",
    "gauge",
    "When the oldest pod that waits was created, or the group where it has none yet, Unix time.",
    ("queue",),
)
CLUSTER_NODES = Family("vcd_cluster_nodes", "gauge", "Nodes that cycles can choose from.")
CLUSTER_ALLOCATABLE = Family(
    "vcd_cluster_allocatable", "gauge", "What all nodes have: cores, bytes, pods or pieces.", ("resource",)
)
CLUSTER_USED = Family(
    "vcd_cluster_used", "gauge", "What pods have of it, those of other schedulers included.", ("resource",)
)

WATCH = {
    "synced": Family("vcd_watch_synced", "gauge", "Whether a kind's first list is complete.", ("kind",)),
    "lag": Family("vcd_watch_lag_seconds", "gauge", "From arrival to log and state, of the last changes.", ("kind",)),
    "lists": Family("vcd_watch_lists_total", "counter", "Complete lists.", ("kind",)),
    "relists": Family("vcd_watch_relists_total", "counter", "Lists made because a watch could not go on.", ("kind",)),
    "connections": Family("vcd_watch_connections_total", "counter", "Watches begun.", ("kind",)),
    "drift": Family(
        "vcd_watch_drift_total", "counter", "Objects that a list showed otherwise than the watch had told.", ("kind",)
    ),
    "crashes": Family("vcd_watch_crashes_total", "counter", "Defects after which a watch began anew.", ("kind",)),
    "errors": Family("vcd_watch_errors_total", "counter", "Lists and watches that failed.", ("kind",)),
    "events": Family("vcd_watch_events_total", "counter", "Changes received.", ("kind",)),
    "bad": Family("vcd_watch_bad_objects_total", "counter", "Objects received that cannot be read.", ("kind",)),
}
"""By the field of a watch's status that they show."""
WATCH_STALE = Family(
    "vcd_watch_stale_seconds", "gauge", "For how long a kind could neither be listed nor watched.", ("kind",)
)
WATCH_AGES = {
    "last_event": Family("vcd_watch_last_event_age_seconds", "gauge", "Since the last change.", ("kind",)),
    "last_contact": Family("vcd_watch_last_contact_age_seconds", "gauge", "Since the last line at all.", ("kind",)),
}

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
    **{
        f"volcano_queue_pod_group_{phase}_count": f"Groups of a queue in phase {phase.capitalize()}."
        for phase in ("pending", "inqueue", "running", "unknown", "completed")
    },
}
"""Help texts of gauges that sessions give, by name, but for those that one plugin alone shows (``Plugin.series``)."""
