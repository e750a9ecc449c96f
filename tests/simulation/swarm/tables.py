"""What may happen: for each act how its givens are drawn, by families of which a seed has some on.

A new act is one line in a family.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.simulation.outside import HOW
from tests.simulation.script import Act
from tests.simulation.swarm.cluster import GROUP_LABEL, ZONE_LABEL, amounts, node_details, queue_marks, queue_spec
from tests.simulation.swarm.configurations import configuration
from tests.simulation.swarm.draw import Draw
from tests.simulation.swarm.work import pod_labels, pod_marks
from vcd.model.controllers import GROUP_NAME

Family = Mapping[str, tuple[str, Callable[[Draw], tuple[Any, ...]]]]
"""By a name of its own: an act's name, and what draws its givens."""

# --- what users and administrators change -----------------------------------------------------------------------------

CHANGES: Family = {
    "pods deleted": ("delete_pods", lambda d: (d.gang(), d.pick(_EVERY))),
    "pod deleted": ("delete", lambda d: ("pod", *d.pod())),
    "pod labelled": ("edit_pods", lambda d: (d.gang(), d.pick(_EVERY), {"metadata": {"labels": pod_labels(d)}})),
    "pod marked": ("edit_pods", lambda d: (d.gang(), d.pick(_EVERY), {"metadata": {"annotations": pod_marks(d)}})),
    "pod moved": ("edit_pods", lambda d: (d.gang(), d.pick(_EVERY), {"metadata": {"annotations": _named(d)}})),
    "pod resized": ("resize_pods", lambda d: (d.gang(), d.pick(_EVERY), d.pick(_SIZES), d.seconds(30))),
    "group deleted": ("delete", lambda d: ("group", *_group(d))),
    "group edited": ("edit", lambda d: ("group", *_group(d), {"spec": {"minMember": d.number(1, 5)}})),
    "group moved": ("edit", lambda d: ("group", *_group(d), {"spec": {"queue": d.pick(d.queues)}})),
    "group ranked": (
        "edit",
        lambda d: ("group", *_group(d), {"spec": {"priorityClassName": d.pick([*d.classes, ""])}}),
    ),
    "group labelled": ("edit", lambda d: ("group", *_group(d), {"metadata": {"labels": {"seen": d.pick("abc")}}})),
    "gates lifted": ("lift_gates", lambda d: (d.gang(), 1)),
    "pods come later": ("add_pods", lambda d: (d.gang(), d.number(2, 8), d.number(1, 3), 1, {})),
    "more pods": ("add_pods", lambda d: (d.gang(), 0, d.number(1, 6), 1, {})),
    "queue edited": ("edit", lambda d: ("queue", "", d.pick(d.queues), {"spec": queue_spec(d)})),
    "queue's marks": ("edit", lambda d: ("queue", "", d.pick(d.queues), {"metadata": {"annotations": queue_marks(d)}})),
    "quota shrunk": ("edit", lambda d: ("queue", "", d.pick(d.queues), {"spec": {"capability": amounts(d, 0)}})),
    "queue closed": ("command", lambda d: ("CloseQueue", "Queue", d.pick(d.queues))),
    "queue opened": ("command", lambda d: ("OpenQueue", "Queue", d.pick(d.queues))),
    "queue deleted": ("delete", lambda d: ("queue", "", d.pick(d.queues))),
    "queue made": ("add_queue", lambda d: (d.pick([*d.queues, "late"]), queue_spec(d), queue_marks(d))),
    "job scaled": ("scale_job", lambda d: (_job(d), d.number(0, 5), d.number(1, 4))),
    "job commanded": ("command", lambda d: (d.pick(_COMMANDS), "Job", _job(d))),
    "job deleted": ("delete", lambda d: ("job", "default", _job(d))),
    "deployment scaled": ("edit", lambda d: ("deployment", "default", _web(d), {"spec": {"replicas": d.number(0, 5)}})),
    "deployment deleted": ("delete", lambda d: ("deployment", "default", _web(d))),
    "budget edited": ("edit", lambda d: ("budget", "default", _budget(d), {"spec": {"minAvailable": d.number(0, 5)}})),
    "budget deleted": ("delete", lambda d: ("budget", "default", _budget(d))),
    "namespace limited": ("set_quota", lambda d: ("limit", d.pick(d.namespaces), amounts(d, 0))),
    "namespace counted": ("count_quota", lambda d: ("limit", d.pick(d.namespaces))),
    "namespace deleted": ("delete", lambda d: ("namespace", "", "team")),
    "namespace made": ("add_namespace", lambda d: ("team",)),
    "node joins": ("add_node", lambda d: (f"node-{d.number(0, 9)}", d.number(1, 8), node_details(d))),
    "class made": ("add_class", lambda d: (d.pick(("low", "high", "other")), d.number(-5, 50))),
    "class deleted": ("delete", lambda d: ("class", "", d.pick([*d.classes, "other"]))),
}
_EVERY = (1, 1, 2, 3)
"""Of how many pods of a gang one is meant."""
_SIZES = ("500m", "1", "2", "3", "20")
_COMMANDS = ("AbortJob", "ResumeJob", "RestartJob", "TerminateJob", "CompleteJob")


def _group(d: Draw) -> tuple[str, str]:
    gang = d.gang()
    return d.gangs.get(gang, ("default", 0))[0], gang


def _named(d: Draw) -> dict[str, str | None]:
    """What names a pod's group: another one, or none."""
    return {GROUP_NAME: d.pick((d.gang(), d.gang(), None))}


def _job(d: Draw) -> str:
    return d.pick(d.jobs or ["nobody"])


def _web(d: Draw) -> str:
    return d.pick(d.deployments or ["nobody"])


def _text(d: Draw) -> str:
    return configuration(d.rng).text or 'actions: "enqueue, allocate, backfill"\n'


def _budget(d: Draw) -> str:
    return d.pick(d.budgets or ["nobody"])


# --- what goes wrong --------------------------------------------------------------------------------------------------

_LATE = (
    "disruption-controller", "queue-controller", "pg-controller", "vc-job-controller", "garbage-collector",
    "node-lifecycle-controller", "pod-garbage-collector", "replicaset-controller", "persistentvolume-controller",
)  # fmt: skip
_WRITES = ("bindings", "bindings", "deletes", "status", "events", "writes")
"""Those of what a leader does."""
_LED = ("bindings", "bindings", "bindings", "status", "status", "writes")
_BEFORE = (409, 429, 500, 502, 503, 504)
_TAINT = {"key": "dedicated", "value": "other", "effect": "NoSchedule"}

FAMILIES: Mapping[str, Family] = {
    "process": {
        "killed": ("kill", lambda d: (d.anyone(), d.seconds(30))),
        "killed at a write": ("kill_at_write", lambda d: (d.anyone(), d.soon(), d.often(0.5), d.seconds(30))),
        "killed at a call": ("kill_at_request", lambda d: (
            d.anyone(), d.soon(), d.often(0.5), d.seconds(30), d.call())),
        "ended": ("terminate", lambda d: (d.anyone(), d.seconds(30))),
        "paused": ("pause", lambda d: (d.anyone(), d.seconds(40))),
        "paused at a write": ("pause_at_write", lambda d: (d.anyone(), d.soon(), d.seconds(40))),
        "paused at a call": ("pause_at_request", lambda d: (d.anyone(), d.soon(), d.seconds(40), d.call())),
        "paused as it connects": ("pause_at_connection", lambda d: (
            d.anyone(), d.number(1, 4), d.seconds(2), d.seconds(40), d.call())),
        "clock": ("set_clock", lambda d: (d.anyone(), d.pick((-1, 1)) * d.seconds(4000), d.seconds(60))),
        "clock at a start": ("restart_with_clock", lambda d: (
            d.anyone(), d.pick((-1, 1)) * d.seconds(4000), d.seconds(30), d.seconds(60))),
    },
    "leaders": {
        "two leaders": ("two_leaders", lambda d: (d.seconds(40), d.seconds(20))),
        "two at a call": ("two_leaders_at", lambda d: (
            d.number(1, 4), d.pick(_LED), d.pick((0.0, d.seconds(1))), 40.0, d.seconds(5))),
        "two at an eviction": ("two_leaders_at", lambda d: (
            1, d.pick(("deletes", "marks")), d.pick((0.0, d.seconds(1))), 40.0, d.seconds(5))),
        "two as events come": ("two_leaders_at", lambda d: (d.soon(), "events", 0.0, 40.0, d.seconds(5))),
    },
    "Lease": {
        "slow renewals": ("slow_renewals", lambda d: (d.seconds(4), d.pick((10.0, 20.0)), d.seconds(4))),
        "clock back": ("clock_back", lambda d: (d.seconds(60), d.seconds(10))),
        "out of reach": ("term_amid_calls", lambda d: (d.seconds(3), d.pick(("bindings", "bindings", "writes")))),
        "Lease deleted": ("delete_lease", lambda d: (d.anyone(),)),
        "Lease taken": ("take_lease", lambda d: (d.seconds(40), d.seconds(20), d.pick((0, 1, 2)))),
    },
    "moments": {
        "pod made again": ("remake_pod", lambda d: (
            d.anyone(), d.number(1, 5), d.pick(("bindings", "deletes", "status")))),
        "pod bound": ("bind_pod", lambda d: (d.anyone(), d.number(1, 5))),
        "flapping": ("flap", lambda d: (d.node(), d.pick((5.0, 25.0, 40.0)), d.pick((0.3, 0.6, 3.0)))),
        "slow": ("hear_late", lambda d: (d.anyone(), d.seconds(40), d.seconds(6))),
    },
    "machines": {
        "busy amid a session": ("delete_amid_session", lambda d: (
            d.pick((0.5, 2.0, 6.0)), d.gang(), d.pick((1, 1, 2)))),
        "moved amid a session": ("edit_amid_session", lambda d: (
            d.pick((0.5, 2.0, 6.0)), d.gang(), d.pick(_EVERY), {"metadata": {"annotations": _named(d)}})),
        "marked amid a session": ("edit_amid_session", lambda d: (
            d.pick((0.5, 2.0, 6.0)), d.gang(), d.pick(_EVERY), {"metadata": {"annotations": pod_marks(d)}})),
        "stopped amid a session": ("pause_amid_session", lambda d: (d.pick((2.0, 6.0)), d.number(3, 30))),
        "busy": ("keep_busy", lambda d: (d.anyone(), d.pick((0.1, 0.5, 2.0, 6.0)), d.seconds(60))),
    },
    "handovers": {
        "succeeded blindly": ("blind_handover", lambda d: (d.number(1, 3), d.seconds(30), d.number(10, 40))),
        "ended amid calls": ("end_amid_calls", lambda d: (
            d.number(1, 4), d.pick((0.1, 0.3, 1.0)), d.pick((0.4, 0.6, 0.65)), d.number(5, 40))),
    },
    "restarts": {
        "at a bind": ("kill_at_request", lambda d: (
            d.anyone(), d.number(1, 3), d.often(0.5), d.seconds(30), "bindings")),
        "on a full disk": ("restart_full", lambda d: (
            d.anyone(), d.seconds(20), d.pick((0, 1, d.number(2, 100_000))), d.pick(("files", "blocks")))),
        "in a checkpoint": ("kill_in_checkpoint", lambda d: (d.replica(), d.number(1, 12), d.seconds(20))),
        "with an older log": ("age_log", lambda d: (d.anyone(), d.seconds(20))),
    },
    "requests": {
        "refused": ("refuse_connections", lambda d: (*d.share(20), d.call())),
        "lost": ("lose_requests", lambda d: (*d.share(20), d.call())),
        "unanswered": ("lose_answers", lambda d: (*d.share(20), d.call())),
        "cut": ("cut_answers", lambda d: (*d.share(20), d.call())),
        "slow": ("slow_requests", lambda d: (*d.share(30), d.call(), d.seconds(6))),
        "held": ("hold_writes", lambda d: (*d.share(30), d.pick(_WRITES))),
        "answered before": ("answer_instead", lambda d: (*d.share(20), d.call(), d.pick(_BEFORE))),
        "answered after": ("answer_afterwards", lambda d: (*d.share(20), d.call(), d.pick((500, 502, 504)))),
        "answered early": ("answer_early", lambda d: (
            d.anyone(), d.number(1, 4), d.pick(_WRITES), d.pick((502, 504)), d.pick((0.2, 0.5, 1.5)))),
        "with other tokens": ("rotate_tokens", lambda d: (d.anyone(), d.pick((0.0, 1.0, 90.0)), d.seconds(20))),
        "denied": ("deny_writes", lambda d: (*d.share(20), d.pick(("all", "bindings", "status", "events")))),
        "short pages": ("short_pages", lambda d: (d.anyone(), d.seconds(60), d.number(1, 5))),
        "tokens lost": ("lose_tokens", lambda d: d.share(30)),
    },
    "network": {
        "stale": ("stale_server", lambda d: (d.anyone(), d.seconds(30), d.seconds(15))),
        "late": ("late_watches", lambda d: (d.anyone(), d.seconds(40), d.seconds(15))),
        "parted": ("partition", lambda d: (d.anyone(), d.seconds(40), d.pick(("up", "down", "both")))),
        "reset": ("reset_connections", lambda d: (d.anyone(),)),
    },
    "server": {
        "restarts": ("restart_server", lambda d: (d.seconds(20),)),
        "compacts": ("compact", lambda d: ()),
    },
    "watches": {
        "closed": ("close_watches", lambda d: (d.part(),)),
        "expired": ("expire_watches", lambda d: (d.part(),)),
        "refused": ("refuse_watches", lambda d: (*d.share(20), d.pick((410, 429, 500, 503, 504)))),
        "failing": ("fail_watches", lambda d: (d.seconds(15), d.pick((410, 500)))),
        "broken": ("break_watches", lambda d: (d.anyone(), d.part())),
        "stalled": ("stall_watches", lambda d: d.share(60)),
        "of different speed": ("grow_unseen", lambda d: (
            *_group(d), d.number(1, 3), d.number(1, 2), d.pick(("podgroups", "queues")), d.seconds(9))),
        "without bookmarks": ("no_bookmarks", lambda d: (d.seconds(60),)),
        "ending soon": ("end_watches_soon", lambda d: (d.anyone(), d.seconds(20))),
        "begun earlier": ("watch_again", lambda d: (*d.share(40), d.pick((3, 30, 300)))),
        "compared": ("compare_lists", lambda d: (d.anyone(), d.number(1, 5), d.seconds(20))),
        "listed anew": ("list_anew", lambda d: (d.anyone(), d.seconds(20), d.number(1, 3))),
    },
    "disks": {
        "full": ("fill_disk", lambda d: (
            d.anyone(), d.seconds(20), d.pick((0, 1, d.number(2, 100_000))), d.pick(("files", "blocks")))),
        "slow": ("slow_disk", lambda d: (d.anyone(), d.seconds(30), d.seconds(30))),
        "failing": ("fail_disk", lambda d: d.share(20)),
        "without power": ("lose_power", lambda d: (d.anyone(), d.soon(), d.seconds(30))),
        "gone": ("lose_disk", lambda d: (d.anyone(), d.seconds(30))),
    },
    "configuration": {
        "changed": ("configure", lambda d: (_text(d),)),
        "bad": ("misconfigure", lambda d: (d.pick((None, "", "actions: allocate, nothing", "{")), d.seconds(30))),
    },
    "nodes": {
        "lost": ("lose_node", lambda d: (d.node(), d.pick((0, d.seconds(30))), d.number(1, 8))),
        "cordoned": ("cordon", lambda d: (d.node(), True)),
        "uncordoned": ("cordon", lambda d: (d.node(), False)),
        "drained": ("drain", lambda d: (d.node(),)),
        "not ready": ("set_ready", lambda d: (d.node(), d.pick(("False", "Unknown")))),
        "ready": ("set_ready", lambda d: (d.node(), "True")),
        "resized": ("resize", lambda d: (d.node(), {"cpu": str(d.number(0, 8)), "pods": str(d.pick((2, 110)))})),
        "relabelled": ("relabel", lambda d: (d.node(), {ZONE_LABEL: d.pick(("a", "b", None))})),
        "regrouped": ("relabel", lambda d: (d.node(), {GROUP_LABEL: d.pick(("one", "two", None))})),
        "tainted": ("taint", lambda d: (d.node(), [_TAINT])),
        "untainted": ("taint", lambda d: (d.node(), [])),
        "busy": ("load", lambda d: (d.node(), d.number(0, 100), d.number(0, 100))),
    },
    "kubelets": {
        "late": ("late", lambda d: (f"kubelet/{d.node()}", d.seconds(60))),
        "kept": ("hold", lambda d: (*d.pod(), d.seconds(60))),
        "failing": ("fail", lambda d: (d.number(1, 4),)),
        "backwards": ("go_back", lambda d: (d.number(1, 4), d.pick(("pending", "unready", "older")), d.seconds(20))),
    },
    "controllers": {
        "late": ("late", lambda d: (d.pick(_LATE), d.seconds(60))),
        "budgets late": ("late", lambda d: ("disruption-controller", d.seconds(60))),
    },
    "others": {
        "bind ours": ("bind_ours", lambda d: (d.number(1, 3), d.number(0, 7))),
        "bind theirs": ("bind_theirs", lambda d: (
            f"other-{d.number(0, 99)}", d.number(0, 7), d.number(1, 3), d.number(1, 3), d.number(5, 90))),
        "evict": ("evict", lambda d: (d.number(1, 3),)),
    },
    "outside": {
        "extender": ("disturb", lambda d: ("extender", d.pick(HOW), d.seconds(30))),
        "monitoring": ("disturb", lambda d: ("prometheus", d.pick(HOW), d.seconds(30))),
    },
    "webhooks": {
        "of new": ("webhook", lambda d: ("create", d.pick(_HOOKED), d.pick((403, 500)), d.seconds(30))),
        "of binds": ("refuse_binds", lambda d: (*d.pod(), d.seconds(60))),
        "of changes": ("webhook", lambda d: ("update", d.pick(_HOOKED), d.pick((403, 500)), d.seconds(20))),
    },
}  # fmt: skip
_HOOKED = ("pod", "group", "queue", "job", "events", "persistentvolumeclaims", "*")

_SLOW = (0.3, 0.9, 1.2, 3.0, 15.0)
_WAYS = ("there", "back", "both", "both")
PEERS: Mapping[str, Family] = {
    "roads": {
        "parted": ("part_peers", lambda d: (d.anyone(), d.anyone(), d.seconds(40), d.pick(_WAYS))),
        "late": ("late_peers", lambda d: (d.anyone(), d.anyone(), d.seconds(30), d.pick(_SLOW))),
        "reset": ("reset_peers", lambda d: (d.anyone(),)),
        "cut": ("cut_amid_message", lambda d: (d.replica(), d.soon())),
    },
    "programs": {
        "killed at a message": ("kill_at_message", lambda d: (d.replica(), d.soon(), d.often(0.5), d.seconds(30))),
        "paused at a message": ("pause_at_message", lambda d: (d.replica(), d.soon(), d.often(0.5), d.seconds(40))),
        "leader killed": ("kill_leader", lambda d: (d.seconds(30),)),
    },
    "successions": {
        "behind": ("succeed_behind", lambda d: (d.seconds(6), d.number(10, 40), d.seconds(60))),
        "alone": ("lead_alone", lambda d: (d.seconds(12), d.number(5, 40))),
    },
    "copies": {
        "slow": ("slow_followers", lambda d: (d.seconds(40), d.pick(_SLOW))),
        "full": ("fill_followers", lambda d: (d.seconds(20), d.pick((0, 1, 4096, 20_000)))),
    },
}
"""What happens to replicas of one log."""

ILLEGAL_FAMILY: Family = {
    "events lost": ("spoil", lambda d: (d.pick(_SPOILED), "drop", d.number(1, 3))),
    "events swapped": ("spoil", lambda d: (d.pick(_SPOILED), "swap", d.number(1, 3))),
    "events come again": ("spoil", lambda d: (d.pick(_SPOILED), "repeat", d.number(1, 3))),
    "restored": ("restore", lambda d: (d.seconds(20),)),
    "bits flipped": ("flip_bits", lambda d: (d.anyone(), d.number(1, 3), d.seconds(10))),
    "event damaged": ("damage_event", lambda d: (d.replica(), d.seconds(20))),
    "syncs lost": ("lose_syncs", lambda d: (d.anyone(), d.seconds(20), d.seconds(10))),
}
_SPOILED = ("pod", "pod", "group", "node", "queue")


def compared(draw: Draw) -> Act:
    """Throughout a storm what is known is compared with lists."""
    every = draw.pick((2.0, 5.0, 10.0))
    return draw.act(1.0, "compare_lists", -1, int(draw.storm / every) + 1, every)


def happenings(draw: Draw, families: Mapping[str, Family], part: float) -> Iterator[Act]:
    """Acts of the families that are on, each of which is with that probability."""
    for family in families.values():
        if draw.often(part):
            yield from of_family(draw, family)


def of_family(draw: Draw, family: Family) -> Iterator[Act]:
    """A few acts of those of a family that are on."""
    on = draw.some(sorted(family), 0.4) or [draw.pick(sorted(family))]
    for _ in range(draw.number(1, 4)):
        what, givens = family[draw.pick(on)]
        yield draw.act(draw.when(1.0), what, *givens(draw))
