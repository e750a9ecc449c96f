"""Ten minutes in which everything fails that may, on a real API server: what vcd promises holds all the while."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from pathlib import Path

import pytest

from tests.e2e import processes
from tests.e2e.usage import handles
from tests.real.controlplane import ControlPlane
from tests.real.storm import HANDLES_AT_REST, SECONDS, SEED, Storm
from tests.real.stormlaws import BIND, EVICTION
from tests.real.stormlogs import SESSIONS, has_sessions, held_back

pytestmark = [pytest.mark.real, pytest.mark.wide]

REST = 180.0
"""Seconds after the last fault within which all has come to rest: 60, or more where others load the machine."""

LIMIT = SECONDS + 1800
"""Seconds for all of it: the storm, rest, and what the logs are read for."""


@pytest.mark.timeout(LIMIT)
async def test_a_storm_of_faults_breaks_nothing_and_leaves_nothing_undone(plane: ControlPlane, tmp_path: Path) -> None:
    print(f"VCD_STORM_SEED={SEED} VCD_STORM_SECONDS={SECONDS:g}")  # noqa: T201 - shown with a failure
    async with Storm(tmp_path, SEED) as storm:
        storm.load.furnish()
        storm.tenants.furnish()
        for name in storm.names:
            await storm.begin(name)
        await storm.rage(SECONDS)
        seconds = await storm.rest(REST)
        check_handles(storm)
        await end(storm)
        await check_logs(storm)
        print(report(storm, seconds))  # noqa: T201 - shown by pytest -rP


def check_handles(storm: Storm) -> None:
    """At rest few files and sockets are open."""
    for name, daemon in storm.replicas.items():
        found = handles(daemon.process.pid)
        storm.peaks["handles at rest"] = max(storm.peaks["handles at rest"], found)
        assert found <= HANDLES_AT_REST, f"{storm.where()}: at rest {name} has {found} handles"


async def end(storm: Storm) -> None:
    """All replicas, as they are told; what they wrote last is looked at, too."""
    for daemon in storm.replicas.values():
        daemon.signal(signal.SIGTERM)
    codes = {name: await daemon.ended() for name, daemon in storm.replicas.items()}
    assert set(codes.values()) == {0}, f"{storm.where()}: replicas that were told to end: {codes}"
    storm.audit.read()
    storm.fail_on(storm.truth.broken + list(storm.audit.broken()))


async def check_logs(storm: Storm) -> None:
    """Each is sound, replays byte for byte, and has an intent for all that its replica did."""
    for name, daemon in storm.replicas.items():
        for words in (["log", "verify"], *([["replay"]] if has_sessions(daemon.log) else [])):
            done = await asyncio.to_thread(
                processes.run, "vcd.cli:main", [*words, daemon.log], storm.folder, {}, timeout=600
            )
            said = f"{done.stdout[-3000:]}{done.stderr[-3000:]}"
            assert done.returncode == 0, f"{storm.where()}: vcd {' '.join(words)} of {name}'s log: {said}"
        intents = storm.intents[name]
        intents.read_all(daemon.log)
        storm.fail_on([*intents.broken(storm.audit, name), *held_back(daemon.log)])
        intents.look(daemon.log, storm.tenants.probes)
        slow = [
            f"{key} waits for {count} sessions in {name}" for key, count in intents.waits.items() if count > SESSIONS
        ]
        storm.fail_on(slow)


def report(storm: Storm, seconds: float) -> str:
    """The figures of a storm."""
    injected: Counter[str] = sum((proxy.injected for proxy in storm.proxies.values()), Counter())
    waits = Counter(count for each in storm.intents.values() for count in each.waits.values())
    figures = {
        "replicas": f"{len(storm.names)}{' of one log' if storm.one_log else ''}",
        "binds": len(storm.audit.of(BIND)),
        "evictions": len(storm.audit.of(EVICTION, "delete")),
        "logs kept apart": len(list(storm.folder.glob("*-apart-*.sqlite"))),
        "terms": sum(bool(term.holder) for term in storm.audit.terms()),
        "load": dict(storm.load.done + storm.tenants.done),
        "processes and partitions": dict(storm.done),
        "faults injected": f"{injected.total()}: {dict(injected)}",
        "sessions until the bind of an innocent job": dict(sorted(waits.items())),
        "most": dict(storm.peaks),
        "seconds to rest": round(seconds, 1),
    }
    return "\n".join(f"{name}: {value}" for name, value in figures.items())
