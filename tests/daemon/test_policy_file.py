"""The configuration file: a bad version changes nothing and is told, a good one comes into force."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.kube.scripted import running, until
from vcd.daemon.policy_file import PolicyFile
from vcd.kube.kube_connection import ConfigurationError
from vcd.model.events import PolicyLoaded
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.framework.policy import PolicyError
from vcd.state.records import Settings

GOOD = "actions: allocate\ntiers:\n- plugins:\n  - name: gang\n"
BETTER = "actions: enqueue, allocate\ntiers:\n- plugins:\n  - name: gang\n"
TYPO = "actions: allocat\ntiers:\n- plugins:\n  - name: gang\n"


class Follower:
    """A policy that follows a file, and what it told."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = PolicyFile(path, Settings(default_queue="main"))
        self.loaded: list[PolicyLoaded] = []
        self.refused: list[str] = []

    def write(self, text: str) -> None:
        """Replace the file at once, as a mounted ConfigMap is."""
        fresh = self.path.with_suffix(".new")
        fresh.write_text(text)
        fresh.replace(self.path)

    async def _changed(self, event: PolicyLoaded) -> None:
        self.loaded.append(event)

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        self.file.load()
        async with running(self.file.follow(self._changed, self.refused.append, period=0.001)):
            yield


@pytest.fixture
def follower(tmp_path: Path) -> Follower:
    path = tmp_path / "scheduler.conf"
    path.write_text(GOOD)
    return Follower(path)


def test_without_a_file_the_compiled_in_default_is_in_force() -> None:
    event = PolicyFile(None, Settings()).load()
    assert event.digest == read_policy(None).digest


def test_the_event_of_a_file_carries_its_text_digest_and_the_settings(follower: Follower) -> None:
    event = follower.file.load()
    assert (event.text, event.digest) == (GOOD, read_policy(GOOD).digest)
    assert event.settings["default-queue"] == "main"


def test_a_typo_at_the_start_is_an_error_that_names_line_and_key(follower: Follower) -> None:
    follower.write(TYPO)
    with pytest.raises(PolicyError, match=r"line 1: actions.*allocat"):
        follower.file.load()


def test_a_file_that_is_missing_at_the_start_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"none\.conf"):
        PolicyFile(tmp_path / "none.conf", Settings()).load()


async def test_a_new_version_comes_into_force(follower: Follower) -> None:
    async with follower.following():
        follower.write(BETTER)
        await until(lambda: follower.loaded)
    assert follower.loaded[0].text == BETTER
    assert follower.file.policy.actions == ("enqueue", "allocate")
    assert follower.refused == []


async def test_a_typo_at_reload_keeps_the_old_version_and_is_told_once(follower: Follower) -> None:
    """Volcano #4660."""
    async with follower.following():
        before = follower.file.policy
        follower.write(TYPO)
        await until(lambda: follower.refused)
        follower.write(BETTER)
        await until(lambda: follower.loaded)
    assert "allocat" in follower.refused[0]
    assert len(follower.refused) == 1
    assert before.text == GOOD
    assert [event.text for event in follower.loaded] == [BETTER]


async def test_the_old_version_stays_in_force_after_a_typo(follower: Follower) -> None:
    async with follower.following():
        follower.write(TYPO)
        await until(lambda: follower.refused)
        assert follower.file.policy.text == GOOD
    assert follower.loaded == []


async def test_going_back_to_the_version_in_force_after_a_typo_is_no_error(follower: Follower) -> None:
    async with follower.following():
        follower.write(TYPO)
        await until(lambda: follower.refused)
        follower.write(GOOD)
        await until(lambda: follower.loaded)
    assert follower.loaded[0].digest == read_policy(GOOD).digest


async def test_a_file_that_vanishes_keeps_the_old_version(follower: Follower) -> None:
    async with follower.following():
        follower.path.unlink()
        await until(lambda: follower.refused)
        assert follower.file.policy.text == GOOD


async def test_a_file_that_is_gone_is_told_of_once_until_it_can_be_read_again(
    follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, read_text = list[Path](), Path.read_text

    def looked(path: Path) -> str:
        looks.append(path)
        return read_text(path)

    monkeypatch.setattr(Path, "read_text", looked)

    async def looked_at(times: int) -> None:
        before = len(looks)
        await until(lambda: len(looks) > before + times)

    async with follower.following():
        for times in (1, 2):
            follower.path.unlink()
            await until(lambda: follower.refused)
            await looked_at(3)
            assert len(follower.refused) == times
            follower.write(GOOD)  # as it was: nothing is to be loaded, and the next end is another one
            await looked_at(2)
        follower.path.write_bytes(b"\xff")
        await until(lambda: len(follower.refused) == 3)
        follower.path.unlink()  # for another reason
        await until(lambda: len(follower.refused) == 4)
    assert follower.loaded == []
    assert all(f"--scheduler-conf {follower.path} cannot be read" in reason for reason in follower.refused)


async def test_a_link_that_is_turned_to_another_file_is_noticed(follower: Follower, tmp_path: Path) -> None:
    """A mounted ConfigMap changes so."""
    follower.path.unlink()
    for name, text in (("one", GOOD), ("two", BETTER)):
        (tmp_path / name).write_text(text)
    follower.path.symlink_to(tmp_path / "one")
    async with follower.following():
        turned = tmp_path / "turned"
        turned.symlink_to(tmp_path / "two")
        turned.replace(follower.path)
        await until(lambda: follower.loaded)
    assert follower.loaded[0].text == BETTER


async def test_without_a_file_there_is_nothing_to_follow() -> None:
    told: list[str] = []

    async def changed(event: PolicyLoaded) -> None:
        told.append(event.digest)

    await PolicyFile(None, Settings()).follow(changed, told.append)
    assert told == []


def test_policies_are_found_by_their_digest(follower: Follower) -> None:
    digest = follower.file.load().digest
    assert follower.file.named(digest).text == GOOD
    assert follower.file.named("unheard of") is follower.file.policy


def test_of_versions_that_were_in_force_the_last_ones_are_kept(follower: Follower) -> None:
    first = follower.file.load().digest
    for number in range(20):
        follower.write(f"{GOOD}# {number}\n")
        last = follower.file.load().digest
    assert follower.file.named(last).text.endswith("# 19\n")
    assert first not in follower.file._policies._values


@pytest.mark.parametrize("bad", [TYPO, None])
def test_the_next_service_of_a_process_keeps_the_last_good_version(follower: Follower, bad: str | None) -> None:
    first = follower.file.load()
    follower.path.unlink() if bad is None else follower.write(bad)
    assert follower.file.load() == first
    follower.write(BETTER)
    assert follower.file.load().digest == read_policy(BETTER).digest


async def test_a_file_that_could_not_be_read_at_a_takeover_is_taken_when_it_can_be(follower: Follower) -> None:
    follower.file.load()
    follower.path.unlink()
    better = read_policy(BETTER)
    assert follower.file.load(PolicyLoaded(better.digest, BETTER, "{}")).digest == better.digest
    async with running(follower.file.follow(follower._changed, follower.refused.append, period=0.001)):
        follower.write(GOOD)
        await until(lambda: follower.loaded)
    assert follower.file.policy.text == GOOD


@pytest.mark.parametrize("text", [TYPO, None], ids=["refused", "unreadable"])
def test_a_start_with_a_bad_file_goes_on_with_the_last_good_version_of_the_log(
    follower: Follower, text: str | None
) -> None:
    logged = follower.file.load()
    follower.path.unlink()
    if text is not None:
        follower.write(text)
    again = PolicyFile(follower.path, Settings(default_queue="main"))
    assert again.load(logged) == logged
    assert ("allocat" if text else "cannot be read") in again.refused
    follower.write(BETTER)
    assert again.load(logged).text == BETTER
    assert again.refused == ""


def test_a_start_with_a_bad_file_and_a_bad_version_in_the_log_is_an_error(follower: Follower) -> None:
    follower.write(TYPO)
    with pytest.raises(PolicyError, match="allocat"):
        follower.file.load(PolicyLoaded("digest", TYPO))


async def test_a_refused_file_is_known_as_such_until_a_good_one_comes(follower: Follower) -> None:
    async with follower.following():
        assert follower.file.refused == ""
        follower.write(TYPO)
        await until(lambda: "allocat" in follower.file.refused)
        follower.path.unlink()
        await until(lambda: "cannot be read" in follower.file.refused)
        follower.write(TYPO)
        await until(lambda: "allocat" in follower.file.refused)
        follower.write(BETTER)
        await until(lambda: not follower.file.refused)
