"""The dashboards as code. ``python -m grafana.dashboards`` writes grafana/dashboards/*.json."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from grafana.parts import (
    BLUE,
    GREEN,
    ORANGE,
    PAGE_OF_JOB,
    PAGE_OF_SESSION,
    RED,
    AnyPanel,
    Board,
    Query,
    Text,
    bars,
    heat,
    lines,
    number,
    of_queue,
    own,
    per_second,
    percentiles,
    quantile,
    rows,
    states,
)

FOLDER = Path(__file__).with_name("dashboards")
QUEUE = ("queue", "volcano_queue_share", "queue_name", "Queue")
CARD = ("card", "vcd_cards_total", "card", "Card")
RESOURCE = ("resource", "volcano_queue_allocated_scalar_resources", "resource", "Resource")
AMOUNTS = (
    ("volcano_queue_deserved", "deserved"),
    ("vcd_queue_guarantee", "guarantee"),
    ("volcano_queue_capacity", "capability"),
    ("volcano_queue_real_capacity", "real capability"),
    ("volcano_queue_allocated", "allocated"),
    ("volcano_queue_request", "request"),
    ("volcano_queue_inqueue", "inqueue"),
    ("vcd_queue_enqueue_reserved", "reserved by enqueue"),
)
"""The quantities of a queue's resources: prefix of the series' names, and name in dashboards."""
OLDEST = "time() - min by (queue) ({})"


# --- cluster overview -------------------------------------------------------------------------------------------------


def overview() -> Board:
    """Return the dashboard for an overview of the cluster."""
    return Board(
        "vcd-overview",
        "vcd: cluster overview",
        "Does vcd schedule, how full is the cluster, and which groups wait.",
        (("Now", _glance()), ("The cluster", _cluster()), ("Work", _work())),
    )


def _glance() -> list[AnyPanel]:
    leaders = Text("Leaders", "Replicas that hold the Lease. It must always be one.", runbook="no-leader")
    nodes = Text("Nodes", "Nodes that the scheduler can use.")
    cpu = Text("CPU used", "Share of all cores that pods request.", "percentunit")
    memory = Text("Memory used", "Share of all memory that pods request.", "percentunit")
    groups = Text("Groups waiting", "PodGroups that are pending or inqueue.", runbook="queue-starving")
    pending = own("vcd_queue_pod_groups", 'phase=~"pending|inqueue"')
    oldest = Text("Oldest waits", "Age of the oldest pod without a node.", "s", "queue-starving")

    def part(resource: str) -> Query:
        used, has = (own(f"vcd_cluster_{name}", f'resource="{resource}"') for name in ("used", "allocatable"))
        return Query(f"max({used}) / max({has})")

    return [
        number(leaders, Query(f"sum({own('vcd_leader')})"), [(2, RED)]),
        number(nodes, Query(f"max({own('vcd_cluster_nodes')})")),
        number(cpu, part("cpu"), [(0.95, ORANGE)]),
        number(memory, part("memory"), [(0.95, ORANGE)]),
        number(groups, Query(f"sum(max by (queue_name, phase) ({pending}))"), [(100, ORANGE)]),
        number(oldest, Query(f"max({OLDEST.format(own('vcd_waiting_oldest_timestamp_seconds'))})"), [(3600, ORANGE)]),
    ]


def _cluster() -> list[AnyPanel]:
    found: list[AnyPanel] = []
    for title, says, unit, matcher, legend in (
        ("CPU", "Cores of all nodes, and the part that pods request.", "short", 'resource="cpu"', ""),
        ("Memory", "Memory of all nodes, and the part that pods request.", "bytes", 'resource="memory"', ""),
        (
            "Other resources",
            "Cards and other devices of all nodes, and the part that pods request.",
            "short",
            'resource!~"cpu|memory|pods|ephemeral-storage|hugepages-.*"',
            "{{resource}} ",
        ),
    ):
        has, used = (own(f"vcd_cluster_{name}", matcher) for name in ("allocatable", "used"))
        queries = (
            Query(f"max by (resource) ({has})", f"{legend}allocatable"),
            Query(f"max by (resource) ({used})", f"{legend}used"),
        )
        found.append(lines(Text(title, says, unit), *queries))
    return found


def _work() -> list[AnyPanel]:
    groups = Query(f"sum by (phase) (max by (queue_name, phase) ({own('vcd_queue_pod_groups')}))", "{{phase}}")
    attempts = Text("Pods considered", "Pods that cycles placed, could not place, or failed to bind.", "ops")
    cycle = Text("Cycle time", "Duration of scheduling cycles.", "ms", "cycle-slow")
    share = Text("Share by queue", "The largest ratio of allocated to deserved of a queue. Above 1 the queue borrows.")
    taken = own("volcano_queue_share")
    wrong = Text(
        "Needs a fix", "Misconfigured objects, and invalid objects, which are set aside.", runbook="misconfigured"
    )
    misconfigured = Query(f"sum by (kind, name) ({own('vcd_misconfigured')})", "{{kind}} {{name}}")
    aside = Query(f"sum by (kind) ({own('vcd_objects_set_aside')})", "{{kind}} set aside")
    return [
        lines(Text("Groups by phase", "PodGroups by phase."), groups, stacked=True),
        lines(attempts, Query(per_second("volcano_schedule_attempts_total", "result"), "{{result}}")),
        lines(cycle, *percentiles("volcano_e2e_scheduling_latency_milliseconds")),
        bars(share, Query(f"max by (queue_name) ({taken})", "{{queue_name}}"), steps=[(1, ORANGE)], width=12),
        lines(wrong, misconfigured, aside, width=12),
    ]


# --- queues -----------------------------------------------------------------------------------------------------------


def queues() -> Board:
    """Return the dashboard for quotas of queues and their usage."""
    return Board(
        "vcd-queues",
        "vcd: queue quota",
        "Deserved, guarantee, capability, allocated and request of each queue.",
        (
            ("All queues", _all_queues()),
            ("CPU", [_quota("CPU", "milli_cpu", "short", 1000)]),
            ("Memory", [_quota("Memory", "memory_bytes", "bytes", 1)]),
            ("Other resources", [_quota("Others", "scalar_resources", "short", 1000, 'resource=~"$resource"')]),
        ),
        (QUEUE, RESOURCE),
    )


def _all_queues() -> list[AnyPanel]:
    def amount(series: str) -> Query:
        return Query(f"max by (queue_name) ({of_queue(series)}) / 1000")

    columns = {
        "cores": amount("volcano_queue_allocated_milli_cpu"),
        "deserved cores": amount("volcano_queue_deserved_milli_cpu"),
        "requested cores": amount("volcano_queue_request_milli_cpu"),
        "share": Query(f"max by (queue_name) ({of_queue('volcano_queue_share')})"),
        "weight": Query(f"max by (queue_name) ({of_queue('volcano_queue_weight')})"),
    }
    listed = Text(
        "Queues", "Allocated, deserved and requested cores of each queue. Only plugin proportion has weights."
    )
    share = Text("Share", "The largest ratio of allocated to deserved of a queue. Above 1 the queue borrows.")
    over = Text("Overused", "When a queue was overused (volcano_queue_overused).")
    words = {"0": ("below", GREEN), "1": ("overused", ORANGE)}
    full = Query(f"max by (queue_name) ({of_queue('volcano_queue_overused')})", "{{queue_name}}")
    return [
        rows(listed, columns, {"queue_name": "queue"}),
        lines(share, Query(f"max by (queue_name) ({of_queue('volcano_queue_share')})", "{{queue_name}}"), width=12),
        states(over, full, words=words, width=24),
    ]


def _quota(title: str, unit: str, shown: str, parts: int, *matchers: str) -> AnyPanel:
    """Return a panel per queue with all quantities of a resource; ``parts`` of the series are one displayed unit."""
    scale = "" if parts == 1 else f" / {parts}"
    by = "resource" if matchers else "queue_name"
    queries = (
        Query(
            f"max by ({by}) ({of_queue(f'{series}_{unit}', *matchers)}){scale}",
            f"{{{{resource}}}} {word}" if matchers else word,
        )
        for series, word in AMOUNTS
    )
    says = "A missing line means that there is no such limit. Allocated must never be above capability."
    return lines(
        Text(f"{title}: $queue", says, shown, "queue-over-quota"), *queries, width=12, height=9, repeat="queue"
    )


# --- cards ------------------------------------------------------------------------------------------------------------


def cards() -> Board:
    """Return the dashboard for cards and card quotas by model."""
    return Board(
        "vcd-cards",
        "vcd: cards",
        "Cards by model: in the cluster, used by online and offline services, and quotas of queues.",
        (("The cluster", _cards_of_cluster()), ("Queues", _cards_of_queues())),
        (QUEUE, CARD),
    )


def _of_card(name: str, *matchers: str) -> str:
    return own(name, 'card=~"$card"', *matchers)


def _cards_of_cluster() -> list[AnyPanel]:
    total = Query(f"max by (card) ({_of_card('vcd_cards_total')})", "{{card}}")
    found: list[AnyPanel] = [bars(Text("In the cluster", "Cards of each model on all nodes."), total, width=6)]
    for service in ("online", "offline"):
        matcher = f'service="{service}"'
        queries = (
            Query(f"max by (card) ({_of_card('vcd_cards_allocated', matcher)})", "{{card}} used"),
            Query(f"max by (card) ({_of_card('vcd_cards_requested', matcher)})", "{{card}} requested"),
        )
        says = f"Cards that {service} services use, and the ones that they use or request."
        found.append(lines(Text(service.capitalize(), says), *queries, width=6))
    has = " - ".join(f"sum by (card) ({_of_card(name)})" for name in ("vcd_cards_allocated", "vcd_cards_leaving"))
    free = f"clamp_min(max by (card) ({_of_card('vcd_cards_total')}) - {has}, 0)"
    promised = f"sum by (card) (max by (card, queue_name) ({_of_card('vcd_queue_card_quota')})) / {total.expr}"
    says = (
        "Sum of all queues' quotas as a share of the cards in the cluster. Above 1, more cards are promised than exist."
    )
    found += [
        lines(
            Text("Free", "Cards that no pod uses, including terminating pods."),
            Query(free, "{{card}}"),
            width=6,
        ),
        bars(Text("Promised", says, "percentunit"), Query(promised, "{{card}}"), steps=[(1.001, ORANGE)], width=12),
    ]
    unknown = Text(
        "Nodes without a model",
        "Nodes with cards and without a label for the model. Only pods that name no card use them, without a quota.",
    )
    nameless = Query(f"max by (resource) ({own('vcd_card_nodes_unidentified')})", "{{resource}}")
    return [*found, lines(unknown, nameless, width=12)]


def _cards_of_queues() -> list[AnyPanel]:
    words = ("quota", "guarantee", "allocated", "elastic")
    series = {word: of_queue(f"vcd_queue_card_{word}", 'card=~"$card"') for word in words}
    columns = {word: Query(f"max by (queue_name, card) ({series[word]})") for word in words}
    used = " / ".join(f"({columns[word].expr}{more})" for word, more in (("allocated", ""), ("quota", " > 0")))
    listed = Text("Quota by queue and card", "Allocated must never be above quota.", runbook="queue-over-quota")
    part = Text("Used quota", "Allocated cards of a queue as a share of its quota.", "percentunit")
    over_time = Text("Cards over time", "Allocated cards of queues by model.")
    return [
        rows(listed, columns, {"queue_name": "queue", "card": "card"}),
        bars(part, Query(used, "{{queue_name}} {{card}}"), steps=[(0.9, ORANGE), (1.001, RED)], width=12, height=9),
        lines(over_time, Query(columns["allocated"].expr, "{{queue_name}} {{card}}"), width=24),
    ]


# --- waiting ----------------------------------------------------------------------------------------------------------


def waiting() -> Board:
    """Return the dashboard for waiting pods: why and how long."""
    return Board(
        "vcd-waiting",
        "vcd: waiting",
        "Pending pods by reason, how long pods waited, and which jobs wait longest.",
        (("Why", _reasons()), ("How long", _waits()), ("Needs a fix", _mending())),
        (QUEUE,),
    )


def _reasons() -> list[AnyPanel]:
    pods, groups = (of_queue(f"vcd_waiting_{name}", label="queue") for name in ("pods", "groups"))
    reason = Text("Pods by reason", "Pending pods by reason. A pod with several reasons counts for each.")
    gate = Text("Groups by gate", "Waiting groups by gate, once for each cause.")
    columns = {"pods": Query(f"max by (queue, gate, reason) ({pods})")}
    listed = Text("Now", "Pending pods by queue, gate and cause.", runbook="queue-starving")
    lacking = Text("Jobs below their minimum", "Jobs with fewer pods than they need to start.")
    why = Text("Why pods wait", "Pending pods by the cause that held longest in their group's wait.")
    lost = Text("Lost to waiting", "Pod-hours of waiting in the last hour, by the same cause.", "h")
    verdicts, waited = (of_queue(name, label="queue") for name in ("vcd_verdict_pods", "vcd_lost_pod_seconds_total"))
    hours = f"sum by (cause) (increase({waited}[1h])) / 3600"
    return [
        lines(why, Query(f"sum by (cause) ({verdicts})", "{{cause}}"), width=12, stacked=True),
        lines(lost, Query(hours, "{{cause}}"), width=12, stacked=True),
        lines(reason, Query(f"sum by (reason) ({pods})", "{{reason}}"), width=12, stacked=True),
        lines(gate, Query(f"sum by (gate) ({groups})", "{{gate}}"), width=12, stacked=True),
        rows(listed, columns, {"queue": "queue", "gate": "gate", "reason": "reason"}),
        lines(lacking, Query(f"max({own('volcano_unschedule_job_count')})", "jobs"), width=12, height=9),
        _longest(),
    ]


def _longest() -> AnyPanel:
    """Return a table of the jobs that wait longest, with links to the page."""
    missing = f'label_replace({own("volcano_unschedule_task_count")} > 0, "job_name", "${{1}}", "job_id", "(.+)")'
    created = of_queue("volcano_e2e_job_scheduling_start_time", label="queue")
    named = f"max by (queue, job_namespace, job_name) ({created} and on (instance, job_name) {missing})"
    says = "Jobs below their minimum by age. Each links to the page, which explains why it waits."
    return rows(
        Text("Longest", says, "s", leads=PAGE_OF_JOB),
        {"age": Query(f"topk(20, time() - {named})")},
        {"job_namespace": "namespace", "job_name": "job", "queue": "queue"},
        width=24,
    )


def _waits() -> list[AnyPanel]:
    oldest = Text("Oldest by queue", "Age of the oldest pending pod of each queue.", "s", "queue-starving")
    since = OLDEST.format(of_queue("vcd_waiting_oldest_timestamp_seconds", label="queue"))
    buckets = of_queue("vcd_wait_seconds_bucket", label="queue")
    placed = Text("Wait until placed", "Age of pods when they were placed, without pods that still wait.", "s")
    queue = Text("p95 by queue", "95 % of the placed pods waited less than this.", "s", "queue-waits-long")
    spread = Text("Distribution", "Numbers of placed pods by the time that they waited.", "s")
    bound = Text("Age when bound", "Age of pods when they were placed, and when the API server had bound them.", "ms")
    milliseconds = "volcano_task_scheduling_latency_milliseconds"
    stages = percentiles(milliseconds, "{{stage}}", "stage")
    p95 = Query(quantile(0.95, "vcd_wait_seconds", "queue", of=buckets), "{{queue}}")
    return [
        lines(oldest, Query(since, "{{queue}}"), width=12),
        lines(queue, p95, width=12),
        lines(placed, *percentiles("vcd_wait_seconds", of=buckets)),
        heat(spread, f"sum by (le) (increase({buckets}[$__rate_interval]))", width=8),
        lines(bound, *stages),
    ]


def _mending() -> list[AnyPanel]:
    """Return panels about waits that capacity and quota do not end, and about misconfigured objects."""
    problems = Text("Misconfigured", "Objects in which plugins found a problem.", runbook="misconfigured")
    columns = {"problems": Query(f"sum by (kind, name) ({own('vcd_misconfigured')})")}
    aside = Text("Set aside", "Invalid objects, which vcd does not use.", runbook="objects-set-aside")
    causes = "queue-missing|queue-closed|invalid|unsupported|unschedulable-shape|pods-missing|gated"
    wrong = f'reason=~"{causes}"'
    never = Text("Waits for a change", "Groups that wait for a change of an object. Free capacity does not help them.")
    groups = f"sum by (queue, reason) ({own('vcd_waiting_groups', wrong)})"
    return [
        rows(problems, columns, {"kind": "kind", "name": "name"}, width=8),
        lines(aside, Query(f"sum by (kind) ({own('vcd_objects_set_aside')})", "{{kind}}"), height=9),
        lines(never, Query(groups, "{{queue}} {{reason}}"), height=9),
    ]


# --- the scheduler ----------------------------------------------------------------------------------------------------


def scheduler() -> Board:
    """Return the dashboard for the scheduler itself."""
    return Board(
        "vcd-scheduler",
        "vcd: scheduler",
        "Cycles, the event log, commits, leadership, faults.",
        (
            ("Leadership", _leading()),
            ("One log for all replicas", _followed()),
            ("Cycles", _cycles()),
            ("Event log and watches", _log()),
            ("Commits and faults", _outcomes()),
            ("The process", _process()),
        ),
    )


def _leading() -> list[AnyPanel]:
    words = {"0": ("follows", BLUE), "1": ("leads", GREEN)}
    leads = Text("Leader", "The replica that held the Lease. It must be one at any time.", runbook="two-leaders")
    epoch = Text("Epoch", "The Lease's leaseTransitions. A step is a change of leader.")
    number_of = Text("Sessions", "Logged sessions. Sessions in which nothing changed are not logged.", "ops")
    last = Text("Last session", "Number of the session. A point links to its page.", leads=PAGE_OF_SESSION)
    version = {"": Query(f"max by (instance, version) ({own('vcd_build_info')})")}
    policy = {"": Query(f"max by (instance, digest) ({own('vcd_policy_info')})")}
    return [
        states(leads, Query(f"max by (instance) ({own('vcd_leader')})", "{{instance}}"), words=words),
        lines(epoch, Query(f"max by (instance) ({own('vcd_epoch')})", "{{instance}}"), width=6, height=6),
        lines(number_of, Query(f"max(rate({own('vcd_session')}[$__rate_interval]))", "sessions"), width=6, height=6),
        lines(last, Query(f"max({own('vcd_session')} and {own('vcd_leader')} == 1)", "session"), width=8, height=5),
        rows(
            Text("Version", "The running version of each replica."),
            version, {"instance": "instance", "version": "version"}, width=8, height=5,
        ),
        rows(
            Text("Configuration", "The digest of the configuration in force.", runbook="configuration-rejected"),
            policy, {"instance": "instance", "digest": "digest"}, width=8, height=5,
        ),
    ]  # fmt: skip


def _followed() -> list[AnyPanel]:
    """Return panels about the replication of the log."""
    keeps_up = f"max by (instance) ({own('vcd_event_log_followers')} and {own('vcd_leader')} == 1)"
    lag = f"max by (instance) ({own('vcd_event_log_lag_events')})"
    late = f"sum by (instance) (increase({own('vcd_event_log_followers_late_total')}[$__rate_interval]))"
    waited = percentiles("vcd_event_log_followers_wait_seconds")
    says = "Replicas that follow the leader's log and are up to date. With 0, only one disk has the latest decisions."
    return [
        lines(Text("Followers", says, runbook="log-not-followed"), Query(keeps_up, "{{instance}}"), width=6),
        lines(
            Text(
                "Events behind",
                "Events of the leader's log that a replica does not have yet.",
                runbook="followers-late",
            ),
            Query(lag, "{{instance}}"),
            width=6,
        ),
        lines(
            Text(
                "Without a follower",
                "Decisions that were carried out before a follower had them.",
                "short",
                "followers-late",
            ),
            Query(late, "{{instance}}"),
            width=6,
        ),
        lines(
            Text("Wait for followers", "Time that a session's API calls waited for a follower.", "s"), *waited, width=6
        ),
    ]


def _cycles() -> list[AnyPanel]:
    total = "volcano_e2e_scheduling_latency_milliseconds"
    action, plugin = (f"volcano_{part}_scheduling_latency_milliseconds" for part in ("action", "plugin"))
    buckets = f"sum by (le) (increase({own(f'{total}_bucket')}[$__rate_interval]))"
    opened = "volcano_open_session_duration_milliseconds"
    return [
        lines(Text("Cycle time", "Duration of cycles.", "ms", "cycle-slow"), *percentiles(total)),
        heat(Text("Distribution of cycle times", "Numbers of cycles by duration.", "ms"), buckets, width=8),
        lines(Text("Opening", "Time to take a snapshot and open a session on it.", "ms"), *percentiles(opened)),
        lines(
            Text("By action, p95", "Duration of each action.", "ms"),
            Query(quantile(0.95, action, "action"), "{{action}}"),
        ),
        lines(
            Text("By plugin, p95", "Time of plugins at the beginning and the end of a session.", "ms"),
            Query(quantile(0.95, plugin, "plugin", "OnSession"), "{{plugin}} {{OnSession}}"),
        ),
        lines(
            Text("Other parts, p95", "Duration of snapshot, open, close and verify.", "s"),
            Query(quantile(0.95, "vcd_session_phase_seconds", "phase"), "{{phase}}"),
        ),
    ]


def _log() -> list[AnyPanel]:
    kinds = Query(f"max by (instance, kind) ({own('vcd_watch_lag_seconds')})", "{{instance}} {{kind}}")
    stale = Query(f"max by (instance, kind) ({own('vcd_watch_stale_seconds')})", "{{instance}} {{kind}}")
    known = "Time since list or watch of a kind last succeeded. A replica that only follows the log has no line."
    sizes = [
        Query(f"max by (instance) ({own(name)})", f"{{{{instance}}}} {word}")
        for name, word in (("vcd_event_log_bytes", "log"), ("vcd_event_log_volume_free_bytes", "free"))
    ]
    events = f"sum by (instance) (rate({own('vcd_event_log_sequence')}[$__rate_interval]))"
    relists, errors = (per_second(f"vcd_watch_{name}_total", "kind") for name in ("relists", "errors"))
    return [
        lines(Text("Lag", "Time from the arrival of a change to log and state.", "s", "log-lag"), kinds),
        lines(
            Text("Append", "Time until appended events are durable.", "s", "log-lag"),
            *percentiles("vcd_event_log_append_seconds"),
        ),
        lines(Text("Events logged", "Events that are appended to the log.", "ops"), Query(events, "{{instance}}")),
        lines(
            Text("Size", "Size of the log's file, and free space of its volume.", "bytes", "log-disk-nearly-full"),
            *sizes,
        ),
        lines(
            Text("Archive", "Age of the archive's newest event; 0 if it has the whole log.", "s", "log-not-archived"),
            Query(f"max by (instance) ({own('vcd_log_archive_age_seconds')})", "{{instance}}"),
        ),
        lines(Text("Stale kinds", known, "s", "watch-dead"), stale),
        lines(
            Text("Interrupted watches", "Lists after an interrupted watch, and errors.", "ops", "watch-dead"),
            Query(relists, "{{kind}} lists"),
            Query(errors, "{{kind}} errors"),
        ),
    ]


def _outcomes() -> list[AnyPanel]:
    done = Query(per_second("vcd_commit_operations_total", "verb", "result"), "{{verb}} {{result}}")
    verdicts = Query(per_second("vcd_session_statements_total", "verdict"), "{{verdict}}")
    took = percentiles("volcano_scheduling_stage_duration_milliseconds", "{{stage}}", "stage")
    faults = f"sum by (plugin) (increase({own('vcd_plugin_faults_total')}[$__rate_interval]))"
    mismatches = Query(f"sum({own('vcd_replay_mismatches_total')})")
    refused = Query(f"sum(increase({own('vcd_policy_reload_errors_total')}[$__range]))")
    says = "Sessions whose replay resulted in another plan. It must be 0."
    return [
        lines(Text("Binds and evictions", "Calls by outcome.", "ops", "commit-failures"), done),
        lines(Text("Statements", "Statements: committed, or stale when they were verified.", "ops"), verdicts),
        lines(Text("Time of a bind", "Time from the decision to the API server's response.", "ms"), *took),
        number(Text("Replay mismatches", says, runbook="replay-mismatch"), mismatches, [(1, RED)]),
        number(
            Text("Refused configurations", "Refused files in this time range.", runbook="configuration-rejected"),
            refused, [(1, RED)],
        ),
        lines(
            Text("Plugin faults", "Cycles that were decided without a failed plugin.", runbook="plugin-faults"),
            Query(faults, "{{plugin}}"), width=16,
        ),
    ]  # fmt: skip


def _process() -> list[AnyPanel]:
    pause = Query(f"max by (instance) ({own('vcd_loop_pause_seconds')})", "{{instance}}")
    cpu = Query(per_second("process_cpu_seconds_total", "instance"), "{{instance}}")
    memory = Query(f"max by (instance) ({own('process_resident_memory_bytes')})", "{{instance}}")
    return [
        lines(
            Text("Longest pause", "Longest time in which watches and Lease were not handled.", "s", "loop-pauses"),
            pause,
        ),
        lines(Text("CPU", "Cores that the process uses."), cpu),
        lines(Text("Memory", "Resident memory of the process.", "bytes"), memory),
    ]


# --- evictions --------------------------------------------------------------------------------------------------------


def evictions() -> Board:
    """Return the dashboard for evictions by queue and action."""
    return Board(
        "vcd-evictions",
        "vcd: preemption and reclaim",
        "Evictions by action, the queue of the preemptor and the queue of the victim, and their outcomes.",
        (("By queue", _who()), ("How many", _how_many())),
        (QUEUE,),
    )


def _who() -> list[AnyPanel]:
    gains, loses = (of_queue("vcd_evictions_total", label=label) for label in ("queue", "victim_queue"))
    labels = {"queue": "for queue", "victim_queue": "from queue", "action": "action"}
    columns = {"pods": Query(f"sum by (action, queue, victim_queue) ({gains} or {loses})")}
    says = "Evicted pods since the current leader leads. In preemption within a queue, both queues are the same."
    got = f"sum by (queue) (increase({gains}[$__rate_interval]))"
    lost = f"sum by (victim_queue) (increase({loses}[$__rate_interval]))"
    return [
        rows(Text("Evictions by queue", says, runbook="eviction-storm"), columns, labels),
        bars(
            Text("By pair", "Evicted pods by the queue of the victim and the queue of the preemptor.", "short"),
            Query(f"sum by (queue, victim_queue) ({gains} or {loses})", "{{victim_queue}} to {{queue}}"),
            width=12, height=9,
        ),
        lines(Text("Gained", "Pods that were evicted for a queue."), Query(got, "{{queue}}"), width=12),
        lines(Text("Lost", "Evicted pods of a queue."), Query(lost, "{{victim_queue}}"), width=12),
    ]  # fmt: skip


def _how_many() -> list[AnyPanel]:
    statements = per_second("volcano_eviction_transactions_total", "action")
    done = own("vcd_commit_operations_total", 'verb="evict"')
    preempted = f"sum(rate({own('volcano_total_preemption_attempts')}[$__rate_interval]))"
    victims = Query(f"max({own('volcano_pod_preemption_victims')})", "victims")
    share = Query(f"max by (queue_name) ({of_queue('volcano_queue_share')})", "{{queue_name}}")
    return [
        lines(Text("By action", "Statements that evict pods.", "ops"), Query(statements, "{{action}}")),
        lines(
            Text("Outcomes", "Evictions by the API server's response.", "ops", "commit-failures"),
            Query(per_second("", "result", of=done), "{{result}}"),
        ),
        lines(Text("Preemptions", "Statements of preempt that evict pods.", "ops"), Query(preempted, "statements")),
        lines(Text("Victims", "Victims of preemption in the last cycle."), victims, width=12),
        lines(Text("Share", "Reclaim evicts from queues above 1 for queues below 1."), share, width=12),
    ]


# --- writing ----------------------------------------------------------------------------------------------------------

BOARDS = (overview, queues, cards, waiting, scheduler, evictions)


def texts() -> Iterator[tuple[Path, str]]:
    """Yield the path and the content of each dashboard's file."""
    for make in BOARDS:
        board = make()
        yield FOLDER / f"{board.uid}.json", json.dumps(board.built(), cls=JSONEncoder, sort_keys=True, indent=2) + "\n"


def main() -> None:
    """Write the files."""
    for path, text in texts():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
