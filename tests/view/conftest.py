"""Fixtures of the page's tests."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.waiting import WAIT_LIMIT


@pytest.fixture(scope="module")
def patient_page() -> Iterator[None]:
    """The page gives a question more time than a test waits, so that a busy machine refuses no answer."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vcd.view.page_worker.LIMIT", 2 * WAIT_LIMIT)
        yield


class _Thread(ThreadPoolExecutor):
    """A thread in place of the page's process."""

    _processes = None

    def __init__(self, count: int, *_: object, **__: object) -> None:
        super().__init__(count)


@pytest.fixture(scope="module")
def quick_page(patient_page: None) -> Iterator[None]:
    """The page answers in a thread of the test's process, and forecasts by a single run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vcd.view.page_worker.ProcessPoolExecutor", _Thread)
        patch.setattr("vcd.view.answers._FORECAST_RUNS", 1)
        yield
