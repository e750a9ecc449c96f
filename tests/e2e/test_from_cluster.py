"""``--from-cluster`` and ``kubectl vcd``: questions to a running daemon, by one's own rights at the API server."""

from __future__ import annotations

import asyncio
import fcntl
import itertools
import json
import os
import pty
import re
import resource
import select
import signal
import sqlite3
import struct
import termios
from pathlib import Path
from typing import IO

import aiohttp
import pytest
import yaml

from tests.deploy.rbac import Grant
from tests.e2e.cluster import LEASES, NAMESPACE, Daemon, until, until_quiet
from tests.e2e.reading import JANE, Asked, events_new, kubeconfig, rows, timeless
from tests.e2e.test_page import asked as asked_page
from tests.waiting import WAIT_LIMIT
from vcd.api import explain
from vcd.eventlog import LogReader
from vcd.kube.lease import ADDRESS

JOB = ("explain", "job", "gang")
OTHER = "note: another replica leads, and its log lacks some of the events above"


def head_of(log: Path) -> int:
    """Its last event."""
    with LogReader(log) as reader:
        return reader.head()


async def with_gang(cluster: Asked, *names: str) -> Daemon:
    """A leader that has placed a gang for each name."""
    cluster.add_nodes(4)
    leader = await cluster.started("a")
    for name in names or ("gang",):
        await cluster.until_bound(cluster.submit(name, 4))
    return leader


def all_run(daemon: Daemon, job: str) -> bool:
    """Whether all of a job's pods run, by a daemon's log."""
    return re.search(r" with \d+ Running$", explain(daemon.log, "job", job).now) is not None


async def until_all_run(daemon: Daemon, *others: str) -> None:
    """Wait until the gang's pods run, and those of others, and nothing more happens."""
    for job in ("gang", *others):
        await until(lambda job=job: all_run(daemon, job), what="all run")
    await until_quiet(daemon)


async def test_a_job_is_explained_as_from_the_leaders_own_file_also_where_the_copy_of_it_is_damaged(
    tmp_path: Path,
) -> None:
    async with Asked(tmp_path) as cluster:
        leader = await with_gang(cluster)
        await until_all_run(leader)
        asked = await cluster.vcd(*JOB, "--from-cluster", "-o", "json")
        own = await cluster.vcd(*JOB, "--event-log", leader.log, "-o", "json")
        assert (asked.returncode, own.returncode) == (0, 0), asked.stderr + own.stderr
        assert timeless(asked.stdout) == timeless(own.stdout)
        (line,) = asked.stderr.splitlines()
        (holder,) = leader.identities()
        with LogReader(leader.log) as reader:
            session = reader.last_session()
        assert line.startswith(f"log of {holder} in prod, up to session {session} of 2"), line
        assert own.stderr == ""
        for begin in (0, 4096):
            kept = cluster.kept()
            data = bytearray(kept.read_bytes())
            data[begin : begin + 8192] = b"\xff" * 8192
            kept.write_bytes(data)
            asked = await cluster.vcd(*JOB, "--from-cluster", "-o", "json")
            assert asked.returncode == 0, asked.stderr
            assert "; copying the log again" in asked.stderr
            assert timeless(asked.stdout) == timeless(own.stdout)
            assert cluster.kept() != kept


async def test_a_second_question_takes_over_only_what_is_new(tmp_path: Path) -> None:
    async with Asked(tmp_path) as cluster:
        leader = await with_gang(cluster, "gang", "another")
        await until_all_run(leader)
        first = events_new(await cluster.vcd(*JOB, "--from-cluster"))
        assert first == rows(leader.log) == rows(cluster.kept())
        assert events_new(await cluster.vcd(*JOB, "--from-cluster")) == 0
        await cluster.until_bound(cluster.submit("third", 2))
        await until_all_run(leader, "third")
        later = events_new(await cluster.vcd(*JOB, "--from-cluster"))
        assert 0 < later == rows(cluster.kept()) - first < first
        assert (await cluster.told("explain", "job", "third", "--from-cluster"))["now"].endswith("2 Running")
        (folder,) = cluster.cache.glob("vcd/*")
        assert {folder.stat().st_mode & 0o777, folder.parent.stat().st_mode & 0o777} == {0o700}
        assert cluster.kept().stat().st_mode & 0o777 == 0o600


async def test_who_asks_is_no_replica_and_the_leader_waits_for_nobody(tmp_path: Path) -> None:
    async with Asked(tmp_path) as cluster:
        leader = await with_gang(cluster)
        following = cluster.begun("log", "tail", "-n", "0", "-f", "--from-cluster")
        try:
            await until(lambda: leader.lines("read"), what="somebody reads")
            await cluster.until_bound(cluster.submit("more", 4))
            metrics = await leader.metrics()
        finally:
            following.send_signal(signal.SIGINT)
            _, said = await asyncio.to_thread(following.communicate)
        assert (metrics["vcd_event_log_followers"], metrics["vcd_event_log_followers_late_total"]) == (0, 0)
        assert leader.lines("followed") == []
        assert "Traceback" not in said


async def test_after_a_change_of_leaders_the_next_ones_log_is_read(tmp_path: Path) -> None:
    async with Asked(tmp_path) as cluster:
        leader = await with_gang(cluster)
        assert (await cluster.vcd(*JOB, "--from-cluster")).returncode == 0
        follower = await cluster.start("b")
        await cluster.until_following(follower)
        await leader.kill()
        asked = asyncio.ensure_future(cluster.vcd(*JOB, "--from-cluster", "-o", "json"))  # while nobody leads
        await cluster.until_leading(follower)
        await cluster.until_bound(cluster.submit("second", 4))
        assert (await asked).returncode == 0, (await asked).stderr
        second = await cluster.vcd("explain", "job", "second", "--from-cluster")
        (holder,) = follower.identities()
        assert f"log of {holder} in prod" in second.stderr
        await until_all_run(follower, "second")
        assert await cluster.told(*JOB, "--from-cluster") == await cluster.told(*JOB, "--event-log", follower.log)


async def told_of(lines: IO[str], words: str) -> None:
    """Read what a command prints until it tells of something."""

    def read() -> bool:
        return any(words in line for line in lines)

    async with asyncio.timeout(WAIT_LIMIT):
        assert await asyncio.to_thread(read), f"it ended without {words}"


def end_of(log: Path) -> tuple[int, bytes | None]:
    """The last event's number and link, which holds all before it."""
    with LogReader(log) as reader:
        return (head := reader.head()), reader.link(head)


async def with_another_log(cluster: Asked) -> tuple[Daemon, Path]:
    """A leader that has placed a gang and then another one, ``lost``; and its log as it was before that one."""
    leader = await with_gang(cluster)
    await until_all_run(leader)
    leader.signal(signal.SIGTERM)
    await leader.ended()
    before = cluster.folder / "before.sqlite"
    before.write_bytes(leader.log.read_bytes())
    again = await cluster.started("a", log=leader.log)
    await cluster.until_bound(cluster.submit("lost", 4))
    return again, before


async def test_what_the_next_leader_has_not_is_taken_back(tmp_path: Path) -> None:
    """Another replica leads by a log that ends before what was read: nothing may be left that it does not have."""
    async with Asked(tmp_path) as cluster:
        again, before = await with_another_log(cluster)
        assert (await cluster.vcd("explain", "job", "lost", "--from-cluster")).returncode == 0
        tail = cluster.begun("log", "tail", "-f", "--from-cluster")
        assert tail.stdout is not None
        await told_of(tail.stdout, "default/lost")
        await again.kill()
        other = await cluster.started("c", log=before)
        await cluster.until_bound(cluster.submit("third", 2))
        await until_all_run(other)
        asked = await cluster.vcd("explain", "job", "third", "--from-cluster")
        assert asked.returncode == 0, asked.stderr
        await until(lambda: end_of(cluster.kept()) == end_of(other.log), what="all is taken over, and nothing else")
        assert (await cluster.vcd("log", "verify", cluster.kept())).returncode == 0
        await told_of(tail.stdout, "default/third")
        tail.send_signal(signal.SIGINT)
        _, said = await asyncio.to_thread(tail.communicate)
        assert said.count(OTHER) == 1
        assert "Traceback" not in said
        assert cluster.kept().name == "events-2.sqlite"
        assert (await cluster.vcd("explain", "job", "third", "--from-cluster")).returncode == 0
        assert [one.name for one in cluster.kept().parent.glob("*.sqlite")] == ["events-2.sqlite"]
        back = await cluster.start("a", log=again.log)
        await cluster.until_following(back)
        await cluster.until_agreed(back, other)


def lose(log: Path) -> None:
    """Take a log away, as with its disk."""
    for suffix in ("", "-wal", "-shm", "-lock"):
        log.with_name(log.name + suffix).unlink(missing_ok=True)


async def jobs_on(page: str) -> set[str]:
    """The jobs that a page shows; none while nobody answers there."""
    try:
        status, overview = await asked_page(f"{page.rstrip('/')}/api/overview")
    except aiohttp.ClientError:
        return set()
    return {job["key"] for job in overview["jobs"]} if status == 200 else set()


def shown_on(terminal: int) -> str:
    """What a command wrote to a terminal up to now."""
    found = b""
    while select.select([terminal], [], [], 0)[0]:
        found += os.read(terminal, 1 << 16)
    return found.decode(errors="replace")


async def test_commands_that_follow_go_on_with_a_log_that_is_begun_anew(tmp_path: Path) -> None:
    """All replicas and their disks are lost, and the next leader begins without: nothing is as it was."""
    async with Asked(tmp_path) as cluster:
        leader = await with_gang(cluster, "old")
        tail = cluster.begun("log", "tail", "-n", "5", "-f", "--from-cluster")
        page = cluster.begun("view", "--address", "127.0.0.1:0", "--from-cluster")
        terminal, side = pty.openpty()
        fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
        top = cluster.begun("top", "--interval", "0.2", "--from-cluster", stdout=side, stderr=side)
        os.close(side)
        try:
            assert tail.stdout is not None and page.stdout is not None
            await told_of(tail.stdout, "default/old")
            url = (await asyncio.to_thread(page.stdout.readline)).strip()
            assert "default/old" in await jobs_on(url)
            seen = [shown_on(terminal)]
            await until(lambda: seen.append(shown_on(terminal)) or "session" in "".join(seen), what="top shows it")
            await leader.kill()
            lose(leader.log)
            other = await cluster.started("a", log=leader.log)
            await cluster.until_bound(cluster.submit("new", 4))
            await told_of(tail.stdout, "default/new")
            await until(lambda: seen.append(shown_on(terminal)) or OTHER in "".join(seen), what="top says so")
            await until(lambda: head_of(cluster.kept()) == head_of(other.log), what="all is taken over")
            async with asyncio.timeout(WAIT_LIMIT):
                while "default/new" not in await jobs_on(url):  # noqa: ASYNC110 - the page tells when it is asked
                    await asyncio.sleep(0.05)
            assert [one.poll() for one in (tail, page, top)] == [None] * 3
        finally:
            for one in (tail, page, top):
                one.send_signal(signal.SIGINT)
            said = [(await asyncio.to_thread(one.communicate))[1] for one in (tail, page)]
            os.close(terminal)
            await asyncio.to_thread(top.wait)
        assert [(text.count(OTHER), "Traceback" in text) for text in said] == [(1, False)] * 2, said
        assert (await cluster.vcd("explain", "job", "new", "--from-cluster")).returncode == 0
        assert (await cluster.vcd("log", "verify", cluster.kept())).returncode == 0


async def test_a_full_disk_is_told_with_how_to_mend_it_and_what_was_kept_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Asked(tmp_path) as cluster:
        leader = await with_gang(cluster)
        await until_all_run(leader)
        assert (await cluster.vcd(*JOB, "--from-cluster")).returncode == 0
        await cluster.until_bound(cluster.submit("more", 4))
        await until_all_run(leader)
        kept, count = cluster.kept(), rows(cluster.kept())
        monkeypatch.setenv("E2E_FILE_LIMIT", "4096")
        asked = await cluster.vcd(*JOB, "--from-cluster", program="tests.e2e.command")
        assert (asked.returncode, asked.stdout) == (2, "")
        (line,) = asked.stderr.splitlines()
        assert line.startswith(f"Error: event log {kept.parent}/")
        assert line.endswith("; or set XDG_CACHE_HOME to another folder")
        monkeypatch.delenv("E2E_FILE_LIMIT")
        assert (cluster.kept(), rows(kept)) == (kept, count)
        assert 0 < events_new(await cluster.vcd(*JOB, "--from-cluster")) == rows(kept) - count


async def test_a_disk_that_is_full_while_history_is_taken_back_does_not_end_who_follows(tmp_path: Path) -> None:
    async with Asked(tmp_path) as cluster:
        again, before = await with_another_log(cluster)
        tail = cluster.begun("log", "tail", "-f", "--from-cluster")
        try:
            assert tail.stdout is not None and tail.stderr is not None
            await told_of(tail.stdout, "default/lost")
            full = cluster.kept().stat().st_size // 2
            _, most = resource.prlimit(tail.pid, resource.RLIMIT_FSIZE, (full, resource.RLIM_INFINITY))
            await again.kill()
            other = await cluster.started("c", log=before)
            await told_of(tail.stderr, "or set XDG_CACHE_HOME to another folder")
            assert cluster.kept().name == "events-1.sqlite"
            resource.prlimit(tail.pid, resource.RLIMIT_FSIZE, (most, most))
            await cluster.until_bound(cluster.submit("third", 2))
            await told_of(tail.stdout, "default/third")
        finally:
            tail.send_signal(signal.SIGINT)
            _, said = await asyncio.to_thread(tail.communicate)
        assert said.count(OTHER) == 1
        assert "Traceback" not in said
        assert cluster.kept().name == "events-2.sqlite"
        back = await cluster.start("a", log=again.log)
        await cluster.until_following(back)
        await cluster.until_agreed(back, other)


async def test_what_only_a_question_finds_damaged_is_taken_over_anew_by_the_next(tmp_path: Path) -> None:
    async with Asked(tmp_path) as cluster:
        leader = await with_gang(cluster)
        await until_all_run(leader)
        assert (await cluster.vcd(*JOB, "--from-cluster")).returncode == 0
        kept = cluster.kept()
        with sqlite3.connect(kept) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            ((page,),) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'group_event'")
            ((size,),) = connection.execute("PRAGMA page_size")
        connection.close()
        with kept.open("r+b") as file:
            file.seek((page - 1) * size)
            file.write(b"\xff" * size)
        asked = await cluster.vcd(*JOB, "--from-cluster")
        assert (asked.returncode, asked.stdout) == (2, "")
        assert "it is truncated or damaged" in asked.stderr
        asked = await cluster.vcd(*JOB, "--from-cluster")
        assert asked.returncode == 0, asked.stderr
        assert "it is damaged, as was found" in asked.stderr
        assert "; copying the log again" in asked.stderr


async def test_a_file_that_is_followed_is_held_to_its_bounds_and_nothing_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Asked(tmp_path) as cluster:
        cluster.add_nodes(8)
        leader = await cluster.started("a", "--checkpoint-interval=20", E2E_HOUSEKEEPING="0.1")
        await cluster.until_bound(cluster.submit("gang", 4))
        monkeypatch.setenv("E2E_RETENTION", "0.2")
        tail = cluster.begun(
            "log", "tail", "-n", "0", "-f", "-o", "json", "--from-cluster", program="tests.e2e.command"
        )
        monkeypatch.delenv("E2E_RETENTION")
        assert tail.stdout is not None and tail.stderr is not None
        told: list[int] = []
        reading = asyncio.create_task(asyncio.to_thread(note_sequences, tail.stdout, told))
        try:
            await until(lambda: leader.lines("read"), what="somebody reads")
            begins, gangs = [first_event(cluster.kept())], itertools.count()
            while len(begins) < 5 or told[0] >= begins[-1]:  # what was told first is among what is removed
                async with asyncio.timeout(WAIT_LIMIT):
                    while first_event(cluster.kept()) <= begins[-1]:  # it grows old by what comes after it
                        await cluster.until_bound(cluster.submit(f"more-{next(gangs)}", 8, cpu=0))
                begins.append(first_event(cluster.kept()))
                assert (await cluster.vcd("top", "--once", "--from-cluster")).returncode == 0
            assert cluster.kept().name == "events-1.sqlite"
            assert first_event(leader.log) == 1
            last = head_of(leader.log)
            await until(lambda: told[-1] >= last, what="all is told")
        finally:
            tail.send_signal(signal.SIGINT)
            await reading
            _, said = await asyncio.to_thread(tail.communicate)
        assert told == list(range(told[0], told[-1] + 1))
        assert (OTHER in said, "Traceback" in said) == (False, False)
        assert (await cluster.vcd("log", "verify", cluster.kept())).returncode == 0


def note_sequences(lines: IO[str], told: list[int]) -> None:
    """Note the numbers of the events that a command tells, as it tells them."""
    told.extend(json.loads(line)["sequence"] for line in lines)


def first_event(log: Path) -> int:
    """Its first event."""
    with LogReader(log) as reader:
        return reader.first() or 0


async def test_commands_at_once_share_one_file(tmp_path: Path) -> None:
    async with Asked(tmp_path) as cluster:
        leader = await with_gang(cluster)
        await until_all_run(leader)
        asked = await asyncio.gather(*(cluster.vcd(*JOB, "--from-cluster", "-o", "json") for _ in range(4)))
        assert [one.returncode for one in asked] == [0] * 4, [one.stderr for one in asked]
        assert len({timeless(one.stdout) for one in asked}) == 1
        assert sorted(events_new(one) for one in asked) == [0, 0, 0, rows(cluster.kept())]


async def test_beside_one_that_follows_others_read_what_it_keeps(tmp_path: Path) -> None:
    async with Asked(tmp_path) as cluster:
        leader = await with_gang(cluster)
        page = cluster.begun("view", "--address", "127.0.0.1:0", "--from-cluster")
        try:
            assert page.stdout is not None
            url = await asyncio.to_thread(page.stdout.readline)
            assert url.startswith("http://127.0.0.1:")
            await cluster.until_bound(cluster.submit("later", 4))

            def kept() -> bool:
                with LogReader(cluster.kept()) as mine, LogReader(leader.log) as theirs:
                    return mine.head() == theirs.head()

            await until(kept, what="what comes is followed")
            asked = await cluster.vcd("explain", "job", "later", "--from-cluster")
            assert (asked.returncode, events_new(asked)) == (0, 0), asked.stderr
        finally:
            page.send_signal(signal.SIGTERM)
            _, said = await asyncio.to_thread(page.communicate)
        assert (page.returncode, "Traceback" in said) == (0, False), said


MISSING = {
    ("get", "leases"): "may not get leases.coordination.k8s.io in namespace volcano-system: grant a Role in",
    ("list", "pods"): "may not list pods in namespace volcano-system: grant a Role in namespace volcano-system",
    ("get", "pods/portforward"): "may not get and create pods/portforward in namespace volcano-system",
    ("create", "serviceaccounts/token"): "may not create serviceaccounts/token in namespace volcano-system",
}


async def test_each_right_that_is_missing_is_named_with_its_role(tmp_path: Path) -> None:
    async with Asked(tmp_path) as cluster:
        await cluster.started("a")
        all_rights = set(cluster.rights)
        for missing, words in MISSING.items():
            cluster.rights = {one for one in all_rights if (one.verb, one.resource) != missing}
            assert cluster.rights < all_rights
            asked = await cluster.vcd(*JOB, "--from-cluster")
            assert (asked.returncode, asked.stdout) == (2, "")
            (line,) = asked.stderr.splitlines()
            assert line.startswith(f"Error: {words}"), line
            assert "the role vcd-operator has all required rights" in line


async def test_each_right_of_the_operator_is_needed_and_no_other(tmp_path: Path) -> None:
    async with Asked(tmp_path) as cluster:
        await with_gang(cluster)
        assert (await cluster.vcd(*JOB, "--from-cluster")).returncode == 0
        asked = {(made.call.verb, made.call.resource, made.call.subresource) for made in cluster.made_by(JANE)}
        assert asked == {
            ("get", LEASES, ""),
            ("list", "pods", ""),
            ("create", "serviceaccounts", "token"),
            ("get", "pods", "portforward"),
        }


async def test_a_token_that_may_not_read_is_refused_by_the_leader(tmp_path: Path) -> None:
    async with Asked(tmp_path) as cluster:
        await with_gang(cluster)
        del cluster.rendered["ClusterRoleBinding", "", "vcd-log-reader"]
        asked = await cluster.vcd(*JOB, "--from-cluster")
        assert asked.returncode == 2
        assert "refuses to serve its log to this token; bind its user to a ClusterRole" in asked.stderr


async def test_a_token_may_be_given_and_one_for_another_audience_is_refused(tmp_path: Path) -> None:
    async with Asked(tmp_path) as cluster:
        await with_gang(cluster)
        assert cluster.server.tokens is not None
        cluster.server.tokens["mine"] = "a"
        cluster.rights = {one for one in cluster.rights if one.resource != "serviceaccounts/token"}
        file = tmp_path / "token"
        file.write_text("mine\n")
        asked = await cluster.vcd(*JOB, "--from-cluster", "--token-file", file)
        assert asked.returncode == 2
        assert "refuses the token; create one for audience vcd" in asked.stderr
        file.write_text("another\n")
        cluster.server.tokens["another"] = "a"
        cluster.server.audiences["another"] = ("vcd",)
        asked = await cluster.vcd(*JOB, "--from-cluster", "--token-file", file)
        assert asked.returncode == 0, asked.stderr


async def test_a_leader_without_one_log_is_told_with_what_to_set(tmp_path: Path) -> None:
    async with Asked(tmp_path) as cluster:
        await cluster.start("a", "--replicas-address=")
        await until(lambda: cluster.lease() is not None)
        asked = await cluster.vcd(*JOB, "--from-cluster", "--scheduler-namespace", "volcano-system")
        assert (asked.returncode, asked.stdout) == (2, "")
        assert "holds Lease volcano-system/volcano and serves no log: set eventLog.shared=true" in asked.stderr
        assert "components/one-log" in asked.stderr and "--replicas-address" in asked.stderr


async def test_another_certificate_than_the_leases_is_shown_no_token(tmp_path: Path) -> None:
    async with Asked(tmp_path) as cluster:
        leader = await with_gang(cluster)
        (lease,) = cluster.store.list(LEASES, NAMESPACE)
        told = lease["metadata"]["annotations"][ADDRESS]
        forged = told.rpartition("=")[0] + "=" + "0" * 64
        with cluster.lease_says(forged):
            asked = await cluster.vcd(*JOB, "--from-cluster", program="tests.e2e.impatient")
        assert asked.returncode == 2
        assert "has another certificate than the Lease names; no token was sent" in asked.stderr
        assert leader.lines("read") == []


async def test_kubectls_plugin_means_the_cluster_and_the_contexts_namespace(tmp_path: Path) -> None:
    async with Asked(tmp_path) as cluster:
        leader = await with_gang(cluster)
        await until_all_run(leader)
        plugin = {"program": "vcd.cli.kubectl"}
        own = await cluster.told(*JOB, "--event-log", leader.log)
        assert await cluster.told("explain", "job", "default/gang", **plugin) == own
        assert await cluster.told("-n", "default", "explain", "job", "gang", **plugin) == own
        other = tmp_path / "another.kubeconfig"
        other.write_text(yaml.safe_dump(kubeconfig(cluster.server.url, namespace="ml")))
        given = ("--kubeconfig", other, "--context", "prod")
        asked = await cluster.vcd("explain", "job", "gang", *given, **plugin)
        assert asked.returncode == 2
        assert "ml/gang" in asked.stderr
        assert await cluster.told(*JOB, "-n", "default", *given, **plugin) == own
        asked = await cluster.vcd(*given[:3], "nowhere", "top", **plugin)
        assert asked.returncode == 2
        assert "does not know these credentials" in asked.stderr


async def test_the_only_scheduler_is_found_wherever_it_is(tmp_path: Path) -> None:
    async with Asked(tmp_path) as cluster:
        cluster.store.create("namespaces", {"metadata": {"name": "batch"}})
        cluster.may("create", "coordination.k8s.io", "leases", namespace="batch")
        for verb in ("get", "update"):
            cluster.may(verb, "coordination.k8s.io", "leases", namespace="batch", name="ours")
        where = "--leader-elect-resource-namespace=batch", "--leader-elect-resource-name=ours"
        await cluster.start("a", *where)
        await until(lambda: cluster.store.list(LEASES, "batch"), what="it leads")
        asked = await cluster.vcd("top", "--once", "--from-cluster")
        assert asked.returncode == 2
        assert "may not list leases.coordination.k8s.io: grant a ClusterRole" in asked.stderr
        assert "or --scheduler-namespace, where vcd runs" in asked.stderr
        cluster.rights |= {Grant("list", "coordination.k8s.io", "leases", "", ""), Grant("list", "", "pods", "", "")}
        asked = await cluster.vcd("top", "--once", "--from-cluster")
        assert asked.returncode == 0, asked.stderr
        cluster.rights = {one._replace(namespace="batch") for one in cluster.rights} | cluster.rights
        for chosen in ("batch", "batch/ours"):
            asked = await cluster.vcd("top", "--once", "--from-cluster", "--scheduler-namespace", chosen)
            assert asked.returncode == 0, asked.stderr


READING = (
    ("top", "--once"),
    ("explain", "cluster"),
    ("replay", "--jobs", "1"),
    ("whatif", "--seed", "1"),
    ("sweep", "--jobs", "1"),
    ("bisect", "waits"),
    ("log", "ls", "--limit", "1"),
    ("log", "tail", "-n", "1"),
    ("log", "verify"),
    ("conf", "show"),
)


def without_standing(text: str) -> str:
    """JSON as printed, but for whose log it was read from, and when."""
    return timeless(re.sub(r'"standing": \{.*?\}', '"standing": {}', text, flags=re.DOTALL))


async def test_each_command_that_reads_a_log_reads_the_clusters(tmp_path: Path) -> None:
    async with Asked(tmp_path) as cluster:
        leader = await with_gang(cluster)
        await until_all_run(leader)
        for words in READING:
            asked, own = await asyncio.gather(
                cluster.vcd(*words, "--from-cluster", "-o", "json"),
                cluster.vcd(*words, "--event-log", leader.log, "-o", "json"),
            )
            assert (asked.returncode, own.returncode) == (0, 0), asked.stderr + own.stderr
            told = next(line for line in asked.stderr.splitlines() if line.startswith("log of "))
            mine = asked.stdout.replace(told.partition(",")[0], str(leader.log))
            mine = mine.replace(str(cluster.kept()), str(leader.log))
            assert without_standing(mine) == without_standing(own.stdout), words
