"""Volcano Jobs that no controller starts are an installation fault."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, cast

import msgspec
import pytest

from tests.kube.scripted import FakeClock
from vcd.daemon.faults.unstarted_jobs import UnstartedJobs
from vcd.kube.api_errors import ApiError, KubeError, NoResponse
from vcd.kube.client import KubeClient, Page
from vcd.state.cluster_state import ClusterState
from vcd.state.records import Settings

Obj = dict[str, Any]


def job(name: str, namespace: str = "default", phase: str = "", **spec: Any) -> Obj:
    metadata = {"name": name, "namespace": namespace, "uid": f"{namespace}/{name}"}
    return {"metadata": metadata, "spec": spec, "status": {"state": {"phase": phase}} if phase else {}}


class Checked:
    """A leader and the Jobs of its API server, in pages of two."""

    def __init__(self, *schedulers: str) -> None:
        self.jobs: list[Obj] = []
        self.leads = True
        self.error: KubeError | None = None
        self.restarts = False
        """Whether a list begins again after its first page."""
        self.failures: list[str] = []
        self.state = ClusterState()
        self.state.settings = Settings(scheduler_names=schedulers or ("volcano",))
        self.found = UnstartedJobs(cast(KubeClient, self), self.state, lambda: self.leads, clock=FakeClock())

    async def list_pages(self, path: str) -> AsyncIterator[Page]:
        assert path == "/apis/batch.volcano.sh/v1alpha1/jobs"
        if self.error is not None:
            raise self.error
        for start in (*([0] if self.restarts else []), *range(0, len(self.jobs), 2)):
            items = [msgspec.Raw(json.dumps(each).encode()) for each in self.jobs[start : start + 2]]
            yield Page(items, "1", start == 0)

    def log_failure(self, log: Any, event: str, error: KubeError) -> None:
        self.failures.append(str(error))

    async def after(self, checks: int = 1) -> dict[str, int]:
        """The reported number of Jobs by namespace, after so many lists."""
        for _ in range(checks):
            await self.found.check()
        return {name: one.objects for name, one in self.found.look().items()}


@pytest.fixture
def checked() -> Checked:
    return Checked()


async def test_jobs_that_two_lists_have_without_a_phase_are_counted_by_namespace(checked: Checked) -> None:
    checked.jobs = [job("a"), job("b"), job("c", "other"), job("d", phase="Pending")]
    assert await checked.after() == {}
    checked.jobs.append(job("new"))
    assert await checked.after() == {"default": 2, "other": 1}
    checked.jobs = [job("a", phase="Running"), job("c", "other")]
    assert await checked.after() == {"other": 1}
    assert await checked.after() == {"other": 1}
    checked.jobs = []
    assert await checked.after() == {}


@pytest.mark.parametrize(
    ("schedulers", "counted"), [(("volcano",), 2), (("mine",), 1), (("mine", "volcano"), 3)], ids=str
)
async def test_jobs_of_other_schedulers_do_not_count(schedulers: tuple[str, ...], counted: int) -> None:
    checked = Checked(*schedulers)
    checked.jobs = [job("a"), job("b", schedulerName="volcano"), job("c", schedulerName="mine")]
    assert await checked.after(2) == {"default": counted}


async def test_a_list_that_begins_again_counts_each_job_once(checked: Checked) -> None:
    checked.jobs, checked.restarts = [job("a"), job("b"), job("c")], True
    assert await checked.after(2) == {"default": 3}


async def test_a_job_that_cannot_be_read_is_left_out(checked: Checked) -> None:
    checked.jobs = [{"metadata": [], "status": 1}, job("a"), {**job("b"), "status": {"state": "odd"}}]
    assert await checked.after(2) == {"default": 1}


async def test_a_replica_that_does_not_lead_lists_nothing(checked: Checked) -> None:
    checked.jobs = [job("a")]
    assert await checked.after(2) == {"default": 1}
    checked.leads, checked.error = False, AssertionError  # type: ignore[assignment]
    assert await checked.after() == {}


async def test_a_failed_list_keeps_the_last_result_and_is_logged_once(checked: Checked) -> None:
    checked.jobs = [job("a")]
    await checked.after(2)
    for error in (ApiError(403, "Forbidden", "no"), NoResponse("gone", sent=True)):
        checked.error = error
        assert await checked.after(3) == {"default": 1}
    assert len(checked.failures) == 2


async def test_a_cluster_without_volcano_jobs_has_no_fault(checked: Checked) -> None:
    checked.jobs = [job("a")]
    await checked.after(2)
    checked.error = ApiError(404, "NotFound", "404 page not found")
    assert await checked.after() == {}
    assert not checked.failures
