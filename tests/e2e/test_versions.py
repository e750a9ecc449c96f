"""Two versions of vcd: an older one's log, a newer one's log, and replicas of one log that are not of one version.

The older ones are wheels, built from the revisions that `git archive` gives.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.e2e.cluster import ROOT, Cluster, Daemon, until
from tests.e2e.test_replicas import Replicas, sessions
from tests.ports import free_port
from tests.waiting import WAIT_LIMIT
from vcd.eventlog import verify

pytestmark = pytest.mark.external  # git and its history
ALONE = "--identity=alone"
FIRST = ("v0.1.0", "bb0ef3bb6ed75599cc7d2d5600c9a6c83d02593b")
"""0.1.0: its tag, or where there is none the last revision of its schema of the log."""
REPLICAS = ("v0.2.0", "c6d880ffd09d6cdb5fac23300f13cb1bbef71dc6")
"""A version whose replicas have one log."""


class Version(NamedTuple):
    """An installed wheel, and the tests of its revision, which run its daemon."""

    tree: Path
    source: Path

    @property
    def environment(self) -> dict[str, str]:
        """What lets a process be of this version, which none can that is forked from one of another."""
        path = f"{self.tree}{os.pathsep}{self.source}"
        return {"PYTHONPATH": path, "PYTHONSAFEPATH": "1", "E2E_UNFORKED": "yes"}

    def vcd(self, *words: object) -> subprocess.CompletedProcess[str]:
        """The command ``vcd`` of this version."""
        command = [sys.executable, "-m", "vcd", *map(str, words)]
        environment = {**os.environ, **self.environment}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=WAIT_LIMIT)


def run(*command: object) -> bytes:
    """What a command prints that must end well."""
    done = subprocess.run(
        [str(word) for word in command], cwd=ROOT, capture_output=True, check=False, timeout=WAIT_LIMIT
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def installed(folder: Path, tag: str, revision: str) -> Version:
    """The wheel of a tag, or of a revision where there is no such tag."""
    known = run("git", "tag", "--list", tag).decode().strip()
    source, dist, tree = (folder / name for name in ("source", "dist", "tree"))
    source.mkdir(parents=True)
    packed = folder / "source.tar"
    packed.write_bytes(run("git", "archive", known or revision))
    run("tar", "xf", packed, "-C", source)
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", dist, source)
    (wheel,) = dist.glob("*.whl")
    run(sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", tree, wheel)
    for name in ("vcd", "migrations"):  # what runs is the wheel
        (source / name).rename(source / f"not-{name}")
    return Version(tree, source)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Version:
    """Version 0.1.0."""
    return installed(tmp_path_factory.mktemp("first"), *FIRST)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Version:
    """An earlier version whose replicas have one log."""
    return installed(tmp_path_factory.mktemp("other"), *REPLICAS)


async def stopped(daemon: Daemon) -> None:
    """End a replica as a rollout does."""
    daemon.signal(signal.SIGTERM)
    assert await daemon.ended() == 0


def vcd(*words: object) -> subprocess.CompletedProcess[str]:
    """The command of this version."""
    command = [sys.executable, "-m", "vcd", *map(str, words)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=WAIT_LIMIT)


async def test_an_upgrade_continues_the_log_and_a_downgrade_begins_a_new_one(tmp_path: Path, first: Version) -> None:
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(4)
        old = await cluster.started("a", ALONE, **first.environment)
        await cluster.until_bound(cluster.submit("before", 8))
        await stopped(old)

        new = await cluster.started("a", ALONE, log=old.log)
        await cluster.until_bound(cluster.submit("after", 8))
        await stopped(new)
        decided = len(new.sessions())

        refused = first.vcd("log", "verify", old.log)
        assert (refused.returncode, "Traceback" in refused.stderr) == (2, False)
        assert "use a newer vcd for this file" in refused.stderr
        again = await cluster.start("a", ALONE, log=old.log, **first.environment)
        assert await again.ended() != 0
        assert "use a newer vcd for this file" in again.lines("stopped")[0]["reason"]

        back = await cluster.started("a", ALONE, log=tmp_path / "new.sqlite", **first.environment)
        await cluster.until_bound(cluster.submit("last", 8))
        await stopped(back)
        assert vcd("log", "compact", back.log).returncode == 0

        once_more = await cluster.started("a", ALONE, log=old.log)
        await cluster.until_bound(cluster.submit("once-more", 4))
        await stopped(once_more)
        assert len(once_more.sessions()) > decided
        assert verify(old.log).problems == []
        bound = sorted(bind.key for bind in cluster.binds)
        assert len(bound) == len(set(bound)) == 28


def _health_of(environment: dict[str, str]) -> list[str]:
    """The flag that an older version needs to be asked for its health: it does not report the port that it got."""
    return [f"--healthz-address=127.0.0.1:{free_port()}"] if environment else []


@pytest.mark.parametrize("older_leads", [True, False], ids=["older leads", "newer leads"])
async def test_replicas_of_two_versions_have_one_log(tmp_path: Path, other: Version, older_leads: bool) -> None:
    """As a rolling update, or its rollback, has them for a while."""
    async with Replicas(tmp_path) as cluster:
        cluster.add_nodes(4)
        one, two = ({}, other.environment) if not older_leads else (other.environment, {})
        leader = await cluster.started("a", *_health_of(one), **one)
        follower = await cluster.start("b", *_health_of(two), **two)
        await cluster.until_following(follower)
        await cluster.until_bound(cluster.submit("before", 8))
        await cluster.until_agreed(leader, follower)
        decided = sessions(leader)
        await stopped(leader)
        await cluster.until_leading(follower)
        await cluster.until_bound(cluster.submit("after", 8))
        assert sessions(follower)[: len(decided)] == decided
        again = await cluster.start("a", *_health_of(one), log=leader.log, **one)
        await cluster.until_following(again)
        await cluster.until_agreed(again, follower)


async def test_a_replica_that_speaks_another_version_says_so_and_harms_no_log(tmp_path: Path) -> None:
    async with Replicas(tmp_path) as cluster:
        cluster.add_nodes(2)
        leader = await cluster.started("a")
        other = await cluster.start("b", E2E_WIRE="2")
        await until(lambda: other.lines("the leader's log is not followed"), what="it is told")
        assert "version" in other.lines("the leader's log is not followed")[0]["reason"]
        assert await other.health("healthz") == 200
        assert await other.health("readyz") == 503
        await cluster.until_bound(cluster.submit("gang", 8))
        await stopped(other)
        assert sessions(other) == []
        assert sessions(leader) != []


def test_schemas_of_versions_are_told(first: Version) -> None:
    """What docs/upgrading.md says of the older version is what its wheel has."""
    found = sorted(each.name for each in (first.tree / "vcd" / "eventlog" / "migrations").iterdir())
    assert found == ["0001_event_log.sql"]
