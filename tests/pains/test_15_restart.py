"""Pain 15: after a restart the first session schedules, from checkpoint, tail and lists, and logs nothing twice.

The stated budget (20 s at 5,000 nodes and 140,000 pods) is measured by ``python -m bench.restart``; this is its way
at a small size.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench import restart


@pytest.fixture
async def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(restart, "NODES", 60)
    monkeypatch.setattr(restart, "GANGS", 20)
    monkeypatch.setattr(restart, "TAIL", 1000)
    monkeypatch.setattr(restart, "PAGE", 300)
    monkeypatch.setattr(restart.gc, "freeze", lambda: None)
    await restart.prepare(tmp_path)
    return await restart.start(tmp_path)


def test_the_first_session_schedules(started: dict[str, Any]) -> None:
    assert started["bound"] == 100


def test_unchanged_objects_are_not_logged_again(started: dict[str, Any]) -> None:
    assert started["rows"] == 101, "only the new gang: its group and its pods"
