"""What alerts link to, and when those fire that take several series or much time: by promtool, on series that are
written here."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.external.test_prometheus import program
from tests.grafana.written import GRAFANA
from tests.waiting import WAIT_LIMIT

pytestmark = pytest.mark.external

STEPS = 400
"""Minutes that are played, unless told otherwise."""
DAY = 24 * 60
AT = STEPS * 60 * 1000
SET = "https://docs.example.com/vcd/runbooks.html"


def series(name: str, value: str, **labels: str) -> dict[str, str]:
    """One series of a cluster's scheduler, the same value each minute unless ``value`` says another thing."""
    told = ",".join(f'{key}="{text}"' for key, text in labels.items())
    return {"series": f"{name}{{{told}}}", "values": value if "x" in value else f"{value}x{STEPS}"}


def of(cluster: str, instance: str = "a") -> dict[str, str]:
    return {"cluster": cluster, "namespace": "volcano-system", "job": "vcd-scheduler", "instance": instance}


def page(cluster: str) -> dict[str, str]:
    return series("vcd_page_info", "1+0", **of(cluster), url=f"https://{cluster}.example.com")


async def check(
    folder: Path, given: list[dict[str, str]], alert: str, *expected: dict[str, Any], link: str = "", at: int = STEPS
) -> None:
    """The alert fires after ``at`` minutes with the labels and annotations that are expected, and with no others."""
    rules = []
    for path in sorted((GRAFANA / "rules").glob("*.yaml")):
        text = path.read_text()
        rules.append(folder / path.name)
        rules[-1].write_text(text.replace('url: ""', f'url: "{link}"') if path.name == "links.yaml" else text)
    asked = {"eval_time": f"{at}m", "alertname": alert, "exp_alerts": list(expected)}
    tests = {
        "rule_files": [str(path) for path in rules],
        "evaluation_interval": "1m",
        "group_eval_order": ["vcd-links", "vcd-recording", "vcd-alerts"],
        "tests": [{"interval": "1m", "input_series": given, "alert_rule_test": [asked]}],
    }
    file = folder / "tests.yaml"
    file.write_text(yaml.safe_dump(tests))
    command = [program("promtool"), "test", "rules", str(file)]
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=WAIT_LIMIT, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def starving(cluster: str) -> list[dict[str, str]]:
    """A queue that has less than it deserves, and whose older job waits since the beginning."""
    queue = {**of(cluster), "queue": "q"}
    jobs = [
        made
        for name, created in (("old", "0+0"), ("new", "3600+0"))
        for made in (
            series("volcano_e2e_job_scheduling_start_time", created, **queue, job_namespace="ml", job_name=name),
            series("volcano_unschedule_task_count", "2+0", **of(cluster), job_id=name),
        )
    ]
    waits = series("vcd_waiting_oldest_timestamp_seconds", "0+0", **queue)
    return [*jobs, waits, series("volcano_queue_share", "0+0", **of(cluster), queue_name="q")]


def starves(cluster: str, runbook: str, page_url: str) -> dict[str, Any]:
    labels = {key: text for key, text in of(cluster).items() if key != "instance"}
    told = "A pod of q waits for 6h 40m 0s, and the queue has less than its deserved share."
    return {
        "exp_labels": {**labels, "queue": "q", "severity": "warning"},
        "exp_annotations": {
            "summary": "A queue below its deserved share waits", "description": told,
            "runbook_url": f"{runbook}#queue-starving", "page_url": page_url,
        },
    }  # fmt: skip


async def test_an_alert_links_to_its_own_clusters_page_and_job(tmp_path: Path) -> None:
    given = [page("east"), page("west"), *starving("west"), *starving("east")]
    expected = [
        starves(name, f"https://{name}.example.com/runbooks.html", f"https://{name}.example.com/?at={AT}&job=ml/old")
        for name in ("east", "west")
    ]
    await check(tmp_path, given, "VcdQueueStarving", *expected)


async def test_the_one_setting_goes_before_the_page(tmp_path: Path) -> None:
    expected = starves("east", SET, f"https://east.example.com/?at={AT}&job=ml/old")
    await check(tmp_path, [page("east"), *starving("east")], "VcdQueueStarving", expected, link=SET)


@pytest.mark.parametrize(
    ("link", "runbooks"), [(SET, SET), ("", "docs/runbooks/leadership.md")], ids=["set", "not set"]
)
async def test_with_all_pods_gone_nothing_links_to_their_page(tmp_path: Path, link: str, runbooks: str) -> None:
    gone = [{**page("east"), "values": "1+0x50"}, series("vcd_leader", "1+0x50 stale", **of("east"))]
    labels = {key: text for key, text in of("east").items() if key != "instance"}
    expected = {
        "exp_labels": {**labels, "severity": "critical"},
        "exp_annotations": {
            "summary": "No replica schedules", "description": "No replica holds the Lease, or none can be scraped.",
            "runbook_url": f"{runbooks}#no-leader", "page_url": "",
        },
    }  # fmt: skip
    await check(tmp_path, gone, "VcdNoLeader", expected, link=link)


def fires(
    summary: str, description: str, anchor: str, severity: str = "warning", cluster: str = "east", **labels: str
) -> dict[str, Any]:
    """An alert of a cluster's scheduler; of none in particular where ``cluster`` is empty."""
    shared = {key: text for key, text in of(cluster).items() if key != "instance"} if cluster else {}
    return {
        "exp_labels": {**shared, **labels, "severity": severity},
        "exp_annotations": {
            "summary": summary, "description": description, "runbook_url": f"{SET}#{anchor}", "page_url": "",
        },
    }  # fmt: skip


# --- a scheduler that is gone -----------------------------------------------------------------------------------------

GONE = "1+0x50 stale"


def missed(cluster: str = "east") -> dict[str, Any]:
    said = "No replica holds the Lease, or none can be scraped."
    return fires("No replica schedules", said, "no-leader", "critical", cluster)


def shown(value: str, name: str = "vcd_leader", **labels: str) -> dict[str, str]:
    """What a replica of production shows, or who ``labels`` name."""
    return series(name, value, **{**of("east"), **labels})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([shown(GONE), shown("1+0", namespace="staging")], [missed()]),
        ([shown(GONE), shown("1+0", "vcd_shadow", job="vcd-shadow")], [missed()]),
        ([shown(GONE), shown("1+0", "vcd_shadow", instance="b")], [missed()]),
        ([shown("1+0"), shown(GONE, "vcd_shadow", job="vcd-shadow")], []),
        ([shown(GONE), shown("1+0", instance="b")], []),
        ([shown("0+0"), shown("1+0", namespace="staging")], [missed()]),
        ([shown("1+0", "vcd_shadow")], []),
        ([shown("1+0", "up")], [missed("")]),
    ],
    ids=[
        "beside staging", "beside a shadow", "beside a shadow of the same job", "a shadow is gone",
        "a replica is gone", "nobody leads", "a shadow alone", "there never was one",
    ],
)  # fmt: skip
async def test_a_scheduler_that_is_gone_whole_is_missed(
    tmp_path: Path, given: list[dict[str, str]], expected: list[dict[str, Any]]
) -> None:
    await check(tmp_path, given, "VcdNoLeader", *expected, link=SET)


@pytest.mark.parametrize(
    ("at", "others", "expected"),
    [
        (DAY, True, [missed()]),
        (DAY, False, [missed()]),
        (DAY + 60, True, []),
        (DAY + 60, False, [missed("")]),
    ],
    ids=["within a day", "within a day, alone", "after it", "after it, alone"],
)
async def test_a_scheduler_that_was_removed_is_missed_for_a_day(
    tmp_path: Path, at: int, others: bool, expected: list[dict[str, Any]]
) -> None:
    given = [shown(GONE), *([shown(f"1+0x{at}", namespace="staging")] if others else [])]
    await check(tmp_path, given, "VcdNoLeader", *expected, link=SET, at=at)


# --- watches, the archive, the clock ----------------------------------------------------------------------------------

ONCE = f"0+0x{STEPS - 5} 1+0x5"
"""A counter that went up five minutes ago."""


def counted(kind: str, summary: str, description: str, anchor: str) -> dict[str, Any]:
    labels = {"instance": "a"} | ({"kind": kind} if kind else {})
    return fires(summary, description, anchor, **labels)


CRASHED = counted(
    "Pod", "A defect of vcd ended a watch",
    "A defect of vcd ended the watch of Pod on a, which lists all objects of that kind again.", "watch-crashes",
)  # fmt: skip
DRIFTED = counted(
    "Pod", "A watch missed changes",
    "Pod on a: a list contained other objects or versions than the watch had delivered.", "watch-drift",
)  # fmt: skip
JUMPED = counted(
    "", "A wall clock jumped", "The wall clock of the machine of a jumped by more than 5 s.", "clock-jumps"
)
NOT_SHIPPED = counted(
    "", "Archive runs fail repeatedly",
    "a repeatedly failed for half an hour to ship the event log, or to read how much of it is shipped.",
    "log-not-archived",
)  # fmt: skip


@pytest.mark.parametrize(
    ("alert", "name", "value", "expected"),
    [
        ("VcdWatchCrashes", "vcd_watch_crashes_total", ONCE, CRASHED),
        ("VcdWatchCrashes", "vcd_watch_crashes_total", "5+0", None),
        ("VcdWatchDrift", "vcd_watch_drift_total", f"0+0x{STEPS - 50} 1+0x50", DRIFTED),
        ("VcdWatchDrift", "vcd_watch_drift_total", "5+0", None),
        ("VcdClockJumps", "vcd_clock_jumps_total", f"0+0x{STEPS - 50} 1+0x50", JUMPED),
        ("VcdClockJumps", "vcd_clock_jumps_total", "5+0", None),
        ("VcdLogArchiveFailures", "vcd_log_archive_failures_total", f"0+0x{STEPS - 40} 1+0x4 1+1x35", NOT_SHIPPED),
        ("VcdLogArchiveFailures", "vcd_log_archive_failures_total", ONCE, None),
        ("VcdLogArchiveFailures", "vcd_log_archive_failures_total", f"0+0x{STEPS - 20} 0+1x19", None),
    ],
    ids=[
        "a crash", "crashes of long ago", "drift", "drift of long ago", "a jump", "jumps of long ago",
        "the archive is away", "a run failed", "the archive was away for minutes",
    ],
)  # fmt: skip
async def test_what_is_counted_is_told_of(
    tmp_path: Path, alert: str, name: str, value: str, expected: dict[str, Any] | None
) -> None:
    labels = {"kind": "Pod"} if name.startswith("vcd_watch_") else {}
    given = [shown(value, name, **labels), shown("0+0", name, **labels, instance="b")]
    await check(tmp_path, given, alert, *([expected] if expected else []), link=SET)


@pytest.mark.parametrize(
    ("leader", "follower", "late"),
    [("0+0", None, []), ("0+60", None, ["a"]), ("0+0", "0+60x300 stale", []), ("0+0", "0+60", ["b"])],
    ids=["a follower watches nothing", "the leader is late", "it watches nothing any more", "each watches"],
)
async def test_who_watches_nothing_is_not_late(
    tmp_path: Path, leader: str, follower: str | None, late: list[str]
) -> None:
    stale = "vcd_watch_stale_seconds"
    given = [*replica("a", 1, "1+0"), *replica("b", 0), shown(leader, stale, kind="Pod")]
    given += [] if follower is None else [shown(follower, stale, kind="Pod", instance="b")]
    told = "{} could neither list nor watch Pod for 6h 40m 0s."
    expected = [
        fires("A kind can be neither listed nor watched", told.format(name), "watch-dead", instance=name, kind="Pod")
        for name in late
    ]
    await check(tmp_path, given, "VcdWatchDead", *expected, link=SET)


# --- one log for all replicas -----------------------------------------------------------------------------------------


def replica(
    instance: str, leads: int, followers: str = "0+0", lag: str = "0+0", late: str = "0+0"
) -> list[dict[str, str]]:
    labels = of("east", instance)
    return [
        series("vcd_leader", f"{leads}+0", **labels),
        series("vcd_build_info", "1+0", **labels, version="0.2.0"),
        series("vcd_event_log_followers", followers, **labels),
        series("vcd_event_log_lag_events", lag, **labels),
        series("vcd_event_log_followers_late_total", late, **labels),
    ]


ALONE = "No other replica of vcd-scheduler has the latest decisions; a loss of the leader and its disk would lose them."
NOT_FOLLOWED = fires("No replica follows the log", ALONE, "log-not-followed")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([*replica("a", 1, "1+0"), *replica("b", 0)], []),
        ([*replica("a", 1), *replica("b", 0)], [NOT_FOLLOWED]),
        (replica("a", 1, "1+0x300 0x100"), [NOT_FOLLOWED]),
        (replica("a", 1), []),
        ([series("vcd_leader", "1+0", **of("east")), series("vcd_leader", "0+0", **of("east", "b"))], []),
    ],
    ids=["followed", "there is another one", "there was another one", "one replica", "a log each"],
)
async def test_a_log_that_nobody_follows_is_told_of_where_replicas_are_wanted(
    tmp_path: Path, given: list[dict[str, str]], expected: list[dict[str, Any]]
) -> None:
    await check(tmp_path, given, "VcdLogNotFollowed", *expected, link=SET)


async def test_who_is_far_behind_is_told_of(tmp_path: Path) -> None:
    given = [*replica("a", 1, "1+0"), *replica("b", 0, lag="20000+0"), *replica("c", 0, lag="100+0")]
    told = "b lacks 20k events of the leader's log; its page and commands display an older state."
    behind = fires("A replica is far behind the log", told, "followers-late", instance="b")
    await check(tmp_path, given, "VcdFollowerBehind", behind, link=SET)


@pytest.mark.parametrize(("late", "much"), [("0+1", True), ("5+0", False)], ids=["each minute", "long ago"])
async def test_decisions_that_wait_for_nobody_are_told_of(tmp_path: Path, late: str, much: bool) -> None:
    told = "In ten minutes, vcd-scheduler carried out 10 decisions before another replica had them on its disk."
    expected = fires("Decisions are carried out before a follower has them", told, "followers-late")
    await check(tmp_path, replica("a", 1, late=late), "VcdFollowersLate", *([expected] if much else []), link=SET)
