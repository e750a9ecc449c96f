"""The fast core makes room for whole gangs as the slow reference does, on random full clusters."""

from __future__ import annotations

import pytest

from tests.laws.test_reference import blocks, differences
from tests.parity.cases import NOW
from tests.reference import decide
from tests.reference.clusters import RandomCase
from tests.reference.ganging import gang_case


@pytest.mark.parametrize("block", blocks(), ids=lambda block: f"{block.start}-{block.stop - 1}")
def test_the_fast_core_makes_room_for_gangs_as_the_reference(block: range) -> None:
    """The same pods go, as bundles of jobs, for the same gangs that wait."""
    wrong = {seed: found for seed in block if (found := differences(gang_case(seed)))}
    assert wrong == {}


def _ends_jobs(case: RandomCase, gone: list[str]) -> bool:
    """Whether a job goes as a whole that had a minimum."""
    least = {o["metadata"]["name"]: o["spec"]["minMember"] for o in case.objects if o["kind"] == "PodGroup"}
    runs: dict[str, list[str]] = {}
    for pod in case.objects:
        if pod["kind"] == "Pod" and pod["spec"].get("nodeName"):
            group = pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"]
            runs.setdefault(group, []).append(f"{pod['metadata']['namespace']}/{pod['metadata']['name']}")
    return any(least[name] > 0 and set(pods) <= set(gone) for name, pods in runs.items())


def test_the_gangs_get_room() -> None:
    """That the comparison is about something: in one of ten or more somebody goes, for either action, and in some a
    whole job does."""
    whole, gone = 0, {"gangpreempt": 0, "gangreclaim": 0}
    for case in map(gang_case, range(200)):
        evictions = decide(case.objects, case.conf, NOW).evictions
        whole += _ends_jobs(case, evictions)
        actions = case.conf.partition("\n")[0]
        for name in gone:
            gone[name] += bool(evictions) and name in actions
    assert min(gone.values()) >= 10
    assert whole >= 10
