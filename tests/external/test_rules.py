"""What alerts link to, and when those on the log's replicas fire: by promtool, on series that are written here."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.external.test_prometheus import program
from tests.grafana.written import GRAFANA

pytestmark = pytest.mark.external

STEPS = 400
"""Minutes that are played."""
AT = STEPS * 60 * 1000
SET = "https://git.example.com/vcd/docs/runbooks.md"


def series(name: str, value: str, **labels: str) -> dict[str, str]:
    """One series of a cluster's scheduler, the same value each minute unless ``value`` says another thing."""
    told = ",".join(f'{key}="{text}"' for key, text in labels.items())
    return {"series": f"{name}{{{told}}}", "values": f"{value}x{STEPS}" if " " not in value else value}


def of(cluster: str, instance: str = "a") -> dict[str, str]:
    return {"cluster": cluster, "namespace": "volcano-system", "job": "vcd-scheduler", "instance": instance}


def page(cluster: str) -> dict[str, str]:
    return series("vcd_page_info", "1+0", **of(cluster), url=f"https://{cluster}.example.com")


async def check(
    folder: Path, given: list[dict[str, str]], alert: str, *expected: dict[str, Any], link: str = ""
) -> None:
    """The alert fires after STEPS minutes with the labels and annotations that are expected, and with no others."""
    rules = []
    for path in sorted((GRAFANA / "rules").glob("*.yaml")):
        text = path.read_text()
        rules.append(folder / path.name)
        rules[-1].write_text(text.replace('url: ""', f'url: "{link}"') if path.name == "links.yaml" else text)
    asked = {"eval_time": f"{STEPS}m", "alertname": alert, "exp_alerts": list(expected)}
    tests = {
        "rule_files": [str(path) for path in rules],
        "evaluation_interval": "1m",
        "group_eval_order": ["vcd-links", "vcd-recording", "vcd-alerts"],
        "tests": [{"interval": "1m", "input_series": given, "alert_rule_test": [asked]}],
    }
    file = folder / "tests.yaml"
    file.write_text(yaml.safe_dump(tests))
    command = [program("promtool"), "test", "rules", str(file)]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60, check=False)
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
    told = "A pod of q waits for 6h 40m 0s, and the queue has less than it deserves."
    return {
        "exp_labels": {**labels, "queue": "q", "severity": "warning"},
        "exp_annotations": {
            "summary": "A queue below what it deserves waits", "description": told,
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


@pytest.mark.parametrize(("link", "runbooks"), [(SET, SET), ("", "docs/runbooks.md")], ids=["set", "not set"])
async def test_with_all_pods_gone_nothing_links_to_their_page(tmp_path: Path, link: str, runbooks: str) -> None:
    gone = [{**page("east"), "values": "1+0x50"}, series("vcd_leader", "1+0x50 stale", **of("east"))]
    expected = {
        "exp_labels": {"severity": "critical"},
        "exp_annotations": {
            "summary": "No replica schedules", "description": "No replica holds the Lease, or none can be scraped.",
            "runbook_url": f"{runbooks}#no-leader", "page_url": "",
        },
    }  # fmt: skip
    await check(tmp_path, gone, "VcdNoLeader", expected, link=link)


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


def fires(alert: str, summary: str, description: str, anchor: str, **labels: str) -> dict[str, Any]:
    shared = {key: text for key, text in of("east").items() if key != "instance"}
    return {
        "exp_labels": {**shared, **labels, "severity": "warning"},
        "exp_annotations": {
            "summary": summary, "description": description, "runbook_url": f"{SET}#{anchor}", "page_url": "",
        },
    }  # fmt: skip


ALONE = "No other replica of vcd-scheduler has what is decided; with the leader and its disk the log would be lost."
NOT_FOLLOWED = fires("VcdLogNotFollowed", "No replica follows the log", ALONE, "log-not-followed")


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
    told = "b lacks 20k events of the leader's log, and answers as of then."
    behind = fires("VcdFollowerBehind", "A replica is far behind the log", told, "followers-late", instance="b")
    await check(tmp_path, given, "VcdFollowerBehind", behind, link=SET)


@pytest.mark.parametrize(("late", "much"), [("0+1", True), ("5+0", False)], ids=["each minute", "long ago"])
async def test_decisions_that_wait_for_nobody_are_told_of(tmp_path: Path, late: str, much: bool) -> None:
    told = "10 times in ten minutes vcd-scheduler acted before another replica had the decision on its disk."
    expected = fires("VcdFollowersLate", "Decisions do not wait for followers", told, "followers-late")
    await check(tmp_path, replica("a", 1, late=late), "VcdFollowersLate", *([expected] if much else []), link=SET)
