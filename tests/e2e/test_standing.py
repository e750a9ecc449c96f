"""No replica is a wrong one to ask: each says whose log it has, by how much it lags, and who holds the Lease."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
from pathlib import Path
from typing import Any

from aiohttp import web
from click.testing import CliRunner, Result

from tests.cli.results import without_defect
from tests.e2e.cluster import NAMESPACE, Cluster, Daemon, failed, until
from tests.e2e.reading import Asked
from tests.e2e.test_page import asked, page_of
from tests.e2e.test_replicas import Replicas
from tests.waiting import WAIT_LIMIT
from vcd.cli import main
from vcd.timetravel.log_standing import LogStanding, standing

LEASE = f"{NAMESPACE}/volcano"


async def run(*arguments: object) -> Result:
    """Run ``vcd`` beside the daemons; a traceback fails the test."""
    result = await asyncio.to_thread(CliRunner().invoke, main, list(map(str, arguments)))
    return without_defect(result)


CLOSED = 18.0
"""Seconds after which the connection of one that says nothing is closed: a ping after 10, 5 more for its answer."""


def behind(daemon: Daemon) -> float:
    """By how many seconds a replica's log is said to lag."""
    found = standing(daemon.log)
    return 0.0 if found is None or found.behind is None else found.behind


async def until_stands(daemon: Daemon, role: str, *, lacks: bool) -> LogStanding:
    """Wait until a replica's log is said to be in a role; what is said."""

    def found() -> bool:
        one = standing(daemon.log)
        return one is not None and (one.role, one.lacks) == (role, lacks)

    await until(found, f"{daemon.name} is {role}, lacks: {lacks}, not {standing(daemon.log)}")
    one = standing(daemon.log)
    assert one is not None
    return one


def name_of(daemon: Daemon) -> str:
    """A leader's name in the Lease."""
    (name,) = daemon.identities()
    return name


class Shown(Replicas):
    """Replicas of one log, each with a page."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.pages: dict[str, str] = {}

    async def start(self, name: str, *flags: str, log: Path | None = None, **more: Any) -> Daemon:
        daemon = await super().start(name, "--view-address=127.0.0.1:0", *flags, log=log, **more)
        self.pages[name] = await page_of(daemon)
        return daemon

    async def page(self, daemon: Daemon, question: str) -> tuple[int, Any]:
        return await asked(f"{self.pages[daemon.name]}/api/{question}")


async def test_page_and_top_say_the_same_at_the_leader_and_at_a_follower(tmp_path: Path) -> None:
    async with Shown(tmp_path) as cluster:
        leader, follower = await cluster.agreed(2, 8)
        led = await until_stands(leader, "leader", lacks=False)
        holder = name_of(leader)
        assert (led.words, led.holder) == (f"the leader's log: {holder} holds Lease {LEASE}", holder)
        follows = await until_stands(follower, "follower", lacks=False)
        assert (follows.holder, follows.events) == (holder, 0)
        assert follows.words.startswith(f"the log of {follows.replica}, a follower: it had all that {holder} logged ")
        assert follows.words.endswith(f" s ago; {holder} holds Lease {LEASE}")
        for daemon, role in ((leader, "leader"), (follower, "follower")):
            status, head = await cluster.page(daemon, "head")
            assert (status, head["standing"]["role"], head["standing"]["lacks"]) == (200, role, False)
            top = await run("top", "--once", daemon.log)
            assert (top.exit_code, top.stderr) == (0, "")
            assert f"{holder} holds Lease {LEASE}" in top.stdout.splitlines()[1]
            document = json.loads((await run("top", "-o", "json", daemon.log)).stdout)
            assert (document["standing"]["role"], document["standing"]["holder"]) == (role, holder)
        both = [await cluster.page(daemon, "job?key=default/gang&session=1") for daemon in (leader, follower)]
        assert both[0] == both[1]
        # of what the leader does not have either, nothing is said of replicas
        for daemon in (leader, follower):
            unknown = await run("explain", "job", "nobody", "--event-log", daemon.log)
            assert (unknown.exit_code, "Lease" in unknown.stderr) == (2, False)


async def test_a_follower_that_is_cut_off_says_what_it_cannot_have_and_who_leads(tmp_path: Path) -> None:
    """The leader's clock is ten hours ahead, which no figure shows."""
    (ahead := tmp_path / "ahead").write_text("36000")
    async with Shown(tmp_path) as cluster:
        cluster.add_nodes(2)
        leader = await cluster.start("a", E2E_WALL_AHEAD=str(ahead))
        await cluster.until_leading(leader)
        follower = await cluster.start("b")
        await cluster.until_following(follower)
        await cluster.until_bound(cluster.submit("before", 4))
        await cluster.until_agreed(leader, follower)
        holder = name_of(leader)
        follows = await until_stands(follower, "follower", lacks=False)
        assert follows.behind is not None and follows.behind < 3600
        (tmp_path / "token-of-b").write_text("")
        follower.signal(signal.SIGSTOP)
        await until(lambda: behind(follower) > CLOSED, what="the leader has closed the connection")
        silent = await until_stands(follower, "follower", lacks=True)
        assert silent.words.startswith(f"{silent.replica}, which wrote this log, has written nothing for ")
        assert f"; {holder} held Lease {LEASE} " in silent.words
        follower.signal(signal.SIGCONT)
        await cluster.until_bound(cluster.submit("after", 4))
        await until(lambda: follower.lines("the leader's log is not followed"), what="it is cut off")
        words = f"a follower: it lacks what {holder} logged in the last "
        ends = f" s; {holder} holds Lease {LEASE}"
        await until(lambda: (standing(follower.log) or silent).words.endswith(ends), what="it has seen the Lease again")
        lags = await until_stands(follower, "follower", lacks=True)
        assert words in lags.words
        assert lags.behind is not None and 5 < lags.behind < 3600, "the leader's clock counts for nothing"
        await the_follower_says(cluster, follower, words, ends)
        await the_leader_has_all(cluster, leader)
        (tmp_path / "token-of-b").write_text("token-of-b")
        await until_stands(follower, "follower", lacks=False)
        assert (await run("explain", "job", "after", "--event-log", follower.log)).stderr == ""


async def the_follower_says(cluster: Shown, follower: Daemon, words: str, ends: str) -> None:
    """Of a job, a session and a time that it cannot have yet, on the page and in the terminal."""
    for question in (("job", "after"), ("session", "999"), ("pod", "after-0")):
        told = await run("explain", *question, "--event-log", follower.log)
        note, error = told.stderr.splitlines()
        assert told.exit_code == 2
        assert note.startswith("note: the log of ") and words in note and note.endswith(ends)
        assert words in error and error.endswith(ends)
    late = "2999-01-01T00:00:00Z"
    told = await run("explain", "job", "before", "--at", late, "--event-log", follower.log)
    assert (told.exit_code, words in told.stderr) == (0, True)
    (line,) = [line for line in (await run("top", "--once", follower.log)).stdout.splitlines() if words in line]
    assert line.endswith(ends)
    for question in (
        "job?key=default/after",
        "overview?session=999",
        "session?number=999",
        "job?key=default/before&session=999",
    ):
        status, told = await cluster.page(follower, question)
        assert (status, words in told["error"], told["error"].endswith(ends)) == (404, True, True)
    status, told = await cluster.page(follower, f"at?time={late}")
    assert (status, words in told["remark"]) == (200, True)
    assert (await cluster.page(follower, "head"))[1]["standing"]["lacks"]


async def the_leader_has_all(cluster: Shown, leader: Daemon) -> None:
    told = await run("explain", "job", "after", "--event-log", leader.log)
    assert (told.exit_code, told.stderr) == (0, "")
    status, told = await cluster.page(leader, "overview?session=999")
    assert (status, "Lease" in told["error"]) == (404, False)
    assert (await cluster.page(leader, "at?time=2999-01-01T00:00:00Z"))[1]["remark"] == ""


async def test_a_copy_of_a_log_has_no_standing_and_says_nothing_of_replicas(tmp_path: Path) -> None:
    async with Replicas(tmp_path) as cluster:
        _, follower = await cluster.agreed(1, 1)
        await until_stands(follower, "follower", lacks=False)
        files = await asyncio.to_thread(lambda: list(tmp_path.glob(f"{follower.log.name}*")))
        (away := tmp_path / "away").mkdir()
        for file in files:
            shutil.copy2(file, away)
        copy, exported = away / follower.log.name, tmp_path / "exported.sqlite"
        assert (copy.with_name(copy.name + "-standing")).exists()
        assert (await run("log", "export", follower.log, exported)).exit_code == 0
        for log in (copy, exported):
            assert standing(log) is None
            told = await run("explain", "job", "nobody", "--event-log", log)
            assert (told.exit_code, "Lease" in told.stderr, "note:" in told.stderr) == (2, False, False)
            assert "Lease" not in (await run("top", "--once", log)).stdout
        follower.signal(signal.SIGTERM)
        assert await follower.ended() == 0
        assert standing(follower.log) is None, "who ends says no more where it stands"


async def test_a_replica_with_a_log_of_its_own_says_who_decides(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(1)
        leader = await cluster.started("a")
        other = await cluster.start("b")
        await cluster.until_bound(cluster.submit("gang", 1))
        led = await until_stands(leader, "leader", lacks=False)
        apart = await until_stands(other, "apart", lacks=True)
        assert apart.words == (
            f"{apart.replica}'s own log, and what others decide is in theirs; {led.replica} holds Lease {LEASE}"
        )
        told = await run("explain", "session", "1", "--event-log", other.log)
        assert (told.exit_code, told.stderr.splitlines()[-1].endswith(f"; {apart.words}")) == (2, True)


async def test_without_rights_to_the_lease_nobody_is_named(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:

        def refuse(request: web.Request) -> web.Response | None:
            return failed(403, "Forbidden") if "/leases" in request.path else None

        with cluster.faults(refuse):
            daemon = await cluster.start("a")
            await until(lambda: daemon.lines("lease_not_reached"), what="it may not read the Lease")
            await until(lambda: standing(daemon.log) is not None, what="it says where its log stands")
            found = await until_stands(daemon, "apart", lacks=False)
        assert found.words.endswith(f"; who holds Lease {LEASE} was never seen")


async def test_from_outside_it_is_said_by_how_much_what_was_read_lags(tmp_path: Path) -> None:
    async with Asked(tmp_path) as cluster:
        cluster.add_nodes(1)
        leader = await cluster.started("a")
        await cluster.until_bound(cluster.submit("gang", 1))
        holder = name_of(leader)
        once = await cluster.vcd("top", "--once", "--from-cluster")
        line = once.stdout.splitlines()[1]
        assert line.startswith(f"read from outside, it had all that {holder} logged "), once
        assert line.endswith(f"; {holder} holds Lease {LEASE}")
        page = cluster.begun("view", "--address", "127.0.0.1:0", "--from-cluster")
        try:
            assert page.stdout is not None
            url = (await asyncio.to_thread(page.stdout.readline)).strip()
            assert (await asked(f"{url}api/head"))[1]["standing"]["lacks"] is False
            await leader.kill()
            async with asyncio.timeout(WAIT_LIMIT):
                while not (await asked(f"{url}api/head"))[1]["standing"]["lacks"]:  # noqa: ASYNC110 - it is asked
                    await asyncio.sleep(0.1)
            status, told = await asked(f"{url}api/job?key=default/later")
            assert (status, f"it lacks what {holder} logged in the last " in told["error"]) == (404, True)
        finally:
            page.send_signal(signal.SIGTERM)
            _, said = await asyncio.to_thread(page.communicate)
        assert "Traceback" not in said
