"""``vcd explain``: what it prints and how it exits."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests import dsl
from tests.cli.results import without_defect
from tests.timetravel.histories import CONF, scheduler
from vcd.cli import main
from vcd.timetravel.whatif.submission_forecast import eta


def run(*arguments: object) -> Result:
    """Run ``vcd explain``; a traceback fails the test."""
    result = CliRunner().invoke(main, ["explain", *map(str, arguments)])
    return without_defect(result)


def test_a_job_is_told_in_sentences(busy: Path) -> None:
    result = run("job", "large", "--all", "--event-log", busy)
    lines = result.stdout.splitlines()
    assert (result.exit_code, "job default/large in queue default" in lines) == (0, True)
    why = "the cluster is full: 34 of 40 cpu are free, and it needs 35; default/second holds most"
    assert f"Before   Waited 11 min: {why}." in lines
    assert any("waited 10 min at enqueue (overcommit): resource in cluster is overused" in line for line in lines)
    assert any("session 8 (allocate) bound large-0 to " in line for line in lines)


def test_a_choice_is_told_below_the_bind(busy: Path) -> None:
    lines = run("pod", "default/large-2", "--all", "--event-log", busy).stdout.splitlines()
    (index,) = (index for index, line in enumerate(lines) if "bound the pod to" in line)
    told = "3 of 5 nodes took it (2 nodes Insufficient cpu): n4 and n2 are not rated by any plugin, and n4 comes first"
    assert lines[index + 1].strip() == f"{told} in the seeded order"


def test_json_has_the_episodes(busy: Path) -> None:
    printed = json.loads(run("pod", "large-2", "-n", "default", "--event-log", busy, "-o", "json").stdout)
    assert (printed["of"], printed["key"], printed["group"]) == ("pod", "default/large-2", "default/large")
    assert [episode["what"] for episode in printed["episodes"]][:2] == ["created", "waited"]
    assert printed["episodes"][1]["waiting"][0]["detail"] == {"asks cpu": "35", "limit cpu": "32400m"}


def test_when_what_waits_will_start_is_told_after_the_verdict(busy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = functools.partial(eta, samples=1)
    # its runs are made once for both ways to print them
    monkeypatch.setattr("vcd.cli.explain.forecast_start", functools.cache(few))
    lines = run("job", "large", "--session", 7, "--eta", "--all", "--event-log", busy).stdout.splitlines()
    assert lines[0].startswith("default/large ")
    assert "Starts   cannot be told: nothing like default/second has ended yet" in lines
    printed = json.loads(run("job", "large", "--session", 7, "--eta", "--event-log", busy, "-o", "json").stdout)
    assert [job["key"] for job in printed["eta"]["jobs"]] == ["default/large"]
    assert "eta" not in json.loads(run("job", "large", "--event-log", busy, "-o", "json").stdout)


def test_of_what_does_not_wait_it_is_told_when_it_started(busy: Path) -> None:
    result = run("job", "large", "--eta", "--event-log", busy)
    assert (result.exit_code, result.stderr) == (0, "")
    story = run("job", "large", "--all", "--event-log", busy).stdout
    (line,) = (line for line in result.stdout.splitlines() if line.startswith("Starts"))
    words, started = line[:-19], line[-19:]
    assert words == "Starts   it does not wait: it started "
    assert f"{started.replace(' ', 'T')}" in story.replace(" ", "T")


def test_an_unknown_job_exits_with_2(busy: Path) -> None:
    result = run("job", "none", "--event-log", busy)
    assert (result.exit_code, result.stdout) == (2, "")
    hint = "for a Volcano Job look whether Volcano's controllers run: they make its PodGroup"
    assert result.stderr == f"Error: event log {busy}: no job default/none is in it; {hint}\n"


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (("job", "lagre"), "default/lagre is in it; did you mean large?"),
        (("job", "argle", "-n", "defalt"), "defalt/argle is in it; did you mean default/large, "),
        (("pod", "lareg-0"), "is in it; did you mean large-0, large-4 or large-3?"),
        (("queue", "samll"), "samll is in it; did you mean small?"),
        (("order", "samll"), "has no queue samll; did you mean small?"),
        (("eviction", "lareg"), "default/lareg is in it; did you mean large?"),
        (("jbo", "large"), "'order'; did you mean job?"),
        (("job", "large", "--chnage"), "Did you mean"),
    ],
)
def test_a_mistyped_name_is_told_what_is_near(busy: Path, arguments: tuple[str, ...], meant: str) -> None:
    result = run(*arguments, "--event-log", busy)
    assert (result.exit_code, meant in result.stderr) == (2, True), result.stderr


def test_a_missing_file_exits_with_2(tmp_path: Path) -> None:
    assert run("pod", "p", "--event-log", tmp_path / "none").exit_code == 2


def test_a_queue_cannot_be_explained(tmp_path: Path) -> None:
    assert run("queue", "q", "--event-log", tmp_path / "none").exit_code == 2


async def test_a_job_that_lacks_pods_has_a_verdict_though_no_session_says_that_it_waits(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log", CONF) as made:
        group, *_ = dsl.gang("train", 3, members=5)
        await made.show(dsl.queue("root"), dsl.queue("default"), dsl.node("n1"), group)
        await made.cycle()
    for asked in ((), ("--change",)):
        lines = run("job", "train", *asked, "--event-log", tmp_path / "log").stdout.splitlines()
        assert lines[0] == "default/train  WAITING 0 s  queue default"
        assert lines[1] == "Why      0 of 5 pods exist; whoever made the group has to create the others."


# --- other kinds ------------------------------------------------------------------------------------------------------


def test_a_job_that_waits_is_told_what_stands_in_its_way(busy: Path) -> None:
    lines = run("job", "large", "--session", 7, "--change", "--all", "--event-log", busy).stdout.splitlines()
    headed = [line for line in lines if line.startswith("job default/large at session 7 ")]
    assert len(headed) == 1
    assert sum("minMember 5 -> 3: " in line for line in lines) == 1


async def test_cause_and_change_are_of_one_session(tmp_path: Path) -> None:
    """Ten minutes in a closed queue, one in a full cluster: what would have opened the queue is told, and where."""
    async with scheduler(tmp_path / "log", CONF) as made:
        await made.show(dsl.queue("root"), dsl.queue("default"), dsl.node("n1", cpu=8), dsl.queue("q", state="Closed"))
        await made.show(dsl.gang("x", 1, cpu=4, on=["n1"], phase="Running"), dsl.gang("train", 1, cpu=8, queue="q"))
        await made.cycle(seconds=600)
        await made.show(dsl.queue("q"))
        await made.cycle(seconds=60)
        await made.cycle()
    log = ("--event-log", tmp_path / "log")
    for asked in ((), ("--session", "3")):
        told = json.loads(run("job", "train", "--change", *asked, *log, "-o", "json").stdout)
        assert (told["verdict"]["cause"], told["verdict"]["session"]) == ("queue-closed", 1)
        assert (told["change"]["session"], told["obstacles"]["session"]) == (1, 3)
        assert told["verdict"]["fix"] == ""  # nothing that is tried opens a queue, and node n1 was no matter then
        lines = run("job", "train", "--change", "--all", *asked, *log).stdout.splitlines()
        assert sum(line.startswith("job default/train at session 1 ") for line in lines) == 1


def test_a_job_is_told_as_of_a_time(busy: Path) -> None:
    at_time = run("job", "large", "--at", "30s", "--event-log", busy)
    assert at_time.stdout.startswith("default/large  WAITING 10 min  ")
    assert at_time.stdout == run("job", "large", "--session", 7, "--event-log", busy).stdout


def test_a_story_since_a_time_is_shorter(busy: Path) -> None:
    lines = run("pod", "large-2", "--since", "30s", "--all", "--event-log", busy).stdout.splitlines()
    assert 2 < len(lines) < len(run("pod", "large-2", "--all", "--event-log", busy).stdout.splitlines())


def test_json_of_a_job_holds_its_story_and_what_was_asked_beside(busy: Path) -> None:
    plain = json.loads(run("job", "large", "--event-log", busy, "-o", "json").stdout)
    asked = json.loads(run("job", "large", "--change", "--event-log", busy, "-o", "json").stdout)
    assert plain["key"] == asked["key"] == "default/large"
    assert "change" not in plain
    assert asked["change"]["key"] == "default/large"


@pytest.mark.parametrize(
    ("arguments", "first"),
    [
        (("queue", "small"), "queue small  Open  weight 1  1 waiting"),
        (("queue", "small", "--all"), "queue small, sessions 1 to 8"),
        (("queue", "small", "--all", "--from", "2", "--to", "4"), "queue small, sessions 2 to 4"),
        (("session",), "session 8 at "),
        (("session", "3"), "session 3 at "),
        (("order",), "session 8 at "),
        (("order", "default", "--session", "6"), "session 6 at "),
        (("order", "--at", "30s"), "session 7 at "),
        (("session", "--at", "30s"), "session 7 at "),
        (("queue", "small", "--all", "--at", "30s"), "queue small, sessions 1 to 7"),
        (("queue", "small", "--all", "--since", "30s"), "queue small, sessions 8 to 8"),
        (("queue", "small", "--all", "--since", "0s"), "queue small, sessions 8 to 8"),
        (("cluster", "--since", "0s"), "0.00056 pod-hours lost by 1 job in the interval"),
        (("job", "third", "--since", "0s"), "default/third  WAITING 11 min 4 s  queue small  2 x 2 cpu"),
    ],
)
def test_each_kind_says_what_it_is_about(busy: Path, arguments: tuple[str, ...], first: str) -> None:
    result = run(*arguments, "--event-log", busy)
    assert result.exit_code == 0
    assert result.stdout.startswith(first)
    assert isinstance(json.loads(run(*arguments, "--event-log", busy, "-o", "json").stdout), dict)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("queue",), 2, "explain queue needs a name"),
        (("cluster", "small"), 2, "explain cluster has no name argument"),
        (("session", "5", "--session", "7"), 2, "5 and --session both choose a session; give one of them"),
        (("session", "5", "--at", "5m"), 2, "5 and --at both choose a session; give one of them"),
        (("diff", "large@0", "third"), 2, "0 is no number of a session; they count from 1"),
        (("diff", f"large@{10**20}", "third"), 2, f"{10**20} is no number of a session; they count from 1"),
        (("job", "large", "--session", str(2**63)), 2, f"{2**63} is more than the largest number in a log"),
        (("queue", "nowhere"), 2, "default"),
        (("session", "99"), 2, "99"),
        (("order", "nowhere"), 2, "nowhere"),
        (("eviction", "nobody"), 2, "nobody"),
        (("pod", "large-0", "--change"), 2, "--change is for explain cluster and job"),
        (("job", "large", "--from", "2"), 2, "--from is for explain cluster and queue"),
        (("queue", "small", "--session", "2"), 2, "--session is for explain job and pod and session and order and"),
        (("order", "--since", "1h"), 2, "--since is for explain cluster and job and pod and queue and eviction"),
        (("job", "large", "--at", "5m", "--session", "2"), 2, "--at and --session both choose a session"),
        (("queue", "small", "--since", "5m", "--from", "2"), 2, "--since and --from both choose a session"),
        (
            ("job", "large", "--at", "noon"),
            2,
            "'noon' is not a time; write one such as 2026-01-31T05:12:00Z, 05:12 (in",
        ),
        (("order", "--at", "100d"), 2, "no session is at or before 2025-"),
        (("queue", "small", "--since", "2027-01-01T00:00:00Z"), 2, "no session is at or after 2027-01-01"),
    ],
)
def test_what_cannot_be_told_is_said_in_a_line(busy: Path, arguments: tuple[str, ...], code: int, words: str) -> None:
    result = run(*arguments, "--event-log", busy)
    assert (result.exit_code, words in result.stderr) == (code, True), result.output


# --- the cluster ------------------------------------------------------------------------------------------------------


def test_a_pod_that_waits_is_told_with_the_verdict_on_its_job(busy: Path) -> None:
    for asked in ((), ("--all",)):
        found = [
            run(kind, name, *asked, "--event-log", busy).stdout for kind, name in (("job", "large"), ("pod", "large-0"))
        ]
        (verdict,) = (line for line in found[0].splitlines() if "it needs 35;" in line and "Waited 11 min" in line)
        assert verdict in found[1].splitlines()


def test_without_a_kind_the_clusters_first_causes_are_told(busy: Path) -> None:
    lines = run("--event-log", busy).stdout.splitlines()
    assert lines[0].startswith("1.3 pod-hours lost by 2 jobs in the log's last 24 h, 2026-01-01T00:00:00.000Z to ")
    assert lines[1] == "1. cluster-full: cpu: 0.92 h (71%), 1 job"
    assert lines[2].strip().startswith("most by default/large: it waited 10 min: ")
    assert lines[-1] == "examined: 2 jobs with 100% of the hours"
    assert run("cluster", "--event-log", busy).stdout.splitlines() == lines


def test_the_clusters_first_causes_as_json(busy: Path) -> None:
    printed = json.loads(run("--event-log", busy, "--from", 6, "--to", 7, "-o", "json").stdout)
    assert (printed["first"], printed["last"], printed["whole_day"]) == (6, 7, False)
    assert [one["cause"] for one in printed["causes"]] == ["cluster-full", "queue-capability"]


# --- two jobs ---------------------------------------------------------------------------------------------------------


def test_two_jobs_are_compared(busy: Path) -> None:
    lines = run("diff", "large@7", "first", "--event-log", busy).stdout.splitlines()
    assert lines[0].startswith(
        "first started at session 1, large did at session 8: minMember is 3 against 5, and with the same value "
    )
    printed = json.loads(run("diff", "large@6", "large@7", "--event-log", busy, "-o", "json").stdout)
    assert (printed["one"]["session"], printed["other"]["session"]) == (6, 7)
    both = run("diff", "large", "--event-log", busy, "--other-log", busy.rename(busy.with_name("moved")))
    assert both.exit_code == 2


def test_only_a_comparison_takes_two_names(busy: Path) -> None:
    result = run("job", "large", "first", "--event-log", busy)
    assert (result.exit_code, "explain job requires one name" in result.stderr) == (2, True)
