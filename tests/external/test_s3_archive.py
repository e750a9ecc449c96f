"""The archive in an S3-compatible store: a real server of that kind (versitygw), which checks signatures."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import botocore.session
import pytest

from tests.deploy.programs import go_tool
from tests.e2e.cluster import Cluster, Daemon, until
from tests.eventlog.samples import SECOND, fold, write_history
from tests.eventlog.test_replication import content
from tests.ports import free_port
from tests.waiting import WAIT_LIMIT
from vcd.eventlog import verify
from vcd.eventlog.archive.archive_verification import check
from vcd.eventlog.archive.restoration import RestoreJob, restore
from vcd.eventlog.archive.segment_index import SegmentIndex
from vcd.eventlog.archive.shipping import ShipJob, ShipProgress, ship
from vcd.eventlog.archive.stores import ArchiveError, store_of

pytestmark = pytest.mark.external
SECRET = "not-to-be-told-anywhere"
WHERE = "s3://logs/clusters/one"


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A store with an empty bucket; who asks finds it as AWS tools find theirs, the credentials in a file."""
    port = free_port()
    data, aside = tmp_path / "data", tmp_path / "aside"
    (data / "logs").mkdir(parents=True)
    aside.mkdir()
    credentials = tmp_path / "credentials"
    credentials.write_text(f"[default]\naws_access_key_id = archivist\naws_secret_access_key = {SECRET}\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(credentials))
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    command = [
        go_tool("versitygw"), "--port", f"127.0.0.1:{port}", "--health", "/health", "--quiet",
        "posix", "--sidecar", str(aside), str(data),
    ]  # fmt: skip
    keys = {"ROOT_ACCESS_KEY": "archivist", "ROOT_SECRET_KEY": SECRET}
    with (tmp_path / "server.log").open("wb") as output:
        process = subprocess.Popen(command, env=keys, stdout=output, stderr=output)
    try:
        asyncio.run(until(lambda: answers(port), what="the store answers"))
        yield
    finally:
        process.terminate()
        process.wait(WAIT_LIMIT)


def answers(port: int) -> bool:
    """Whether the server says that it is well."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2) as answer:
            return int(answer.status) == 200
    except (urllib.error.URLError, ConnectionError):
        return False


def shipped(path: Path, where: str = WHERE, age: int | None = None) -> int:
    """ShipJob a log; up to which event it is there then."""
    told: list[ShipProgress] = []
    ship(ShipJob(str(path), where, "test", 1, age), told.append)
    return told[-1].sequence


def test_a_log_is_shipped_checked_and_restored(bucket: None, tmp_path: Path) -> None:
    path, out = tmp_path / "log.sqlite", tmp_path / "out.sqlite"
    for round_ in range(3):
        asyncio.run(write_history(path, 2, checkpoints=(2 * round_ + 1,)))
        assert shipped(path) == 12 * (round_ + 1)
    assert check(WHERE).problems == []
    assert asyncio.run(restore(RestoreJob(WHERE, str(out)))).session == 6
    assert verify(out, fold).problems == []
    assert content(out) == content(path)


def test_what_is_old_goes_and_other_prefixes_stay(bucket: None, tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    asyncio.run(write_history(path, 4, checkpoints=(1, 3)))
    shipped(path, "s3://logs/clusters/one/other")
    shipped(path)
    before = store_of(WHERE).sizes()
    shipped(path, age=30 * SECOND)
    after = store_of(WHERE).sizes()
    assert set(after) < set(before)
    assert len(store_of("s3://logs/clusters/one/other").sizes()) == len(before)
    assert check(WHERE).problems == []


def test_a_segment_that_is_missing_or_was_exchanged_is_named(bucket: None, tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    asyncio.run(write_history(path, 6, checkpoints=(2, 4)))
    shipped(path)
    store = store_of(WHERE)
    first, second, third = SegmentIndex.of(store.sizes()).segments
    store.put(second.name, store.get(third.name))
    (problem,) = check(WHERE).problems
    assert second.name in problem
    store.delete(first.name)
    store.delete(second.name)
    found = asyncio.run(restore(RestoreJob(WHERE, str(tmp_path / "out.sqlite"))))
    assert (found.first, found.gaps) == (third.after + 1, [])


def test_what_the_store_refuses_is_told_without_the_secret(
    bucket: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log.sqlite"
    asyncio.run(write_history(path, 1))
    with pytest.raises(ArchiveError, match=r"archive s3://none/at-all: .*NoSuchBucket"):
        shipped(path, "s3://none/at-all")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong-and-secret")
    with pytest.raises(ArchiveError) as refused:
        shipped(path)
    assert "wrong-and-secret" not in str(refused.value)


def shown_by(daemon: Daemon) -> str:
    """What everybody on its machine sees of a process, and what it says."""
    return Path(f"/proc/{daemon.process.pid}/cmdline").read_text() + daemon.output.read_text()


async def test_a_daemon_ships_to_it_and_another_begins_with_it(bucket: None, tmp_path: Path) -> None:
    flags = (f"--archive={WHERE}", "--archive-every=200ms", "--checkpoint-interval=100")
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(2)
        first = await cluster.started("a", *flags, E2E_HOUSEKEEPING="0.1", E2E_UNFORKED="yes")
        await cluster.until_bound(cluster.submit("gang", 8))
        decided = first.sessions()
        await until(lambda: first.lines("shipped"), what="it is shipped")
        assert SECRET not in shown_by(first)
        first.signal(signal.SIGTERM)
        assert await first.ended() == 0
        first.log.rename(tmp_path / "lost.sqlite")
        again = await cluster.started("b", *flags)
        assert [line["archive"] for line in again.lines("restored")] == [WHERE]
        assert again.sessions()[: len(decided)] == decided
        await cluster.until_bound(cluster.submit("next", 8))


def test_a_client_is_what_aws_tools_find(bucket: None) -> None:
    """The fixture gives no credentials by the environment: they come from the file."""
    found = botocore.session.Session().get_credentials()
    assert found.method == "shared-credentials-file"
