"""Fixtures of the page's tests."""

from __future__ import annotations

import pytest

from tests.waiting import WAIT_LIMIT


@pytest.fixture
def patient_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page gives a question more time than a test waits, so that a busy machine refuses no answer."""
    monkeypatch.setattr("vcd.view.worker.LIMIT", 2 * WAIT_LIMIT)
