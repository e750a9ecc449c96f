"""Replicas whose programs are killed or stopped: the unretrieved exceptions of a killed program are no fault."""

from __future__ import annotations

import signal
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from tests.simulation.replica import Machine, Replica


def replica(folder: Path, looked_through: list[object], failure: Exception | None = None) -> Replica:
    """A replica with a running program; ``failure`` is that of its log."""
    loop = Mock(look_through=looked_through.append, time=lambda: 0.0)
    found = Replica("a", loop, folder, {}, Mock(), Mock(), Mock())
    found.machine = Machine("a-1", disk=Mock(), link=Mock(), peers=Mock())
    found.machine.service = SimpleNamespace(state_writer=SimpleNamespace(log=SimpleNamespace(failure=failure)))  # type: ignore[assignment]
    found.machine.signals[signal.SIGTERM] = lambda: None
    return found


@pytest.mark.parametrize(("failure", "times"), [(None, 1), (OSError("disk full"), 0)])
def test_who_is_killed_is_looked_through_unless_it_is_ending(
    failure: Exception | None, times: int, tmp_path: Path
) -> None:
    looked_through: list[object] = []
    replica(tmp_path, looked_through, failure).kill()
    assert len(looked_through) == times


def test_who_is_told_to_end_is_looked_through_before_and_not_as_it_is_killed(tmp_path: Path) -> None:
    looked_through: list[object] = []
    it = replica(tmp_path, looked_through)
    it.terminate()
    assert looked_through == [it.machine]
    it.kill()
    assert looked_through == [it.machine]


def test_a_program_that_starts_while_its_replica_is_stopped_goes_on_after_that(tmp_path: Path) -> None:
    time, ends = 0.0, list[float]()
    loop = Mock(
        time=lambda: time,
        create_task=lambda program, context: program.close(),
        call_later=lambda seconds, *_, context: ends.append(time + seconds),
    )
    it = Replica("a", loop, tmp_path, {}, Mock(), Mock(), Mock())
    it.stop_for(10.0)
    time = 4.0
    it.start()
    assert it.machine is not None
    assert it.machine.stopped
    assert ends == [10.0]
