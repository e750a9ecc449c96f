"""Why a job waits in a few words: each cause has a template, and one that fits the figures."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dsl import flat, gang, group, node, queue
from vcd import plan
from vcd.model.diagnosis import Diagnosis
from vcd.model.reasons import Cause
from vcd.text.phrases import LONGEST, PHRASES, phrase

BY_WORDS = {
    Cause.SELECTOR, Cause.DEVICE, Cause.VOLUME, Cause.POD_AFFINITY, Cause.SPREAD, Cause.PORTS,
    Cause.GANG_INCOMPLETE, Cause.QUEUE_MISSING, Cause.INVALID, Cause.OUTSIDE, Cause.PLUGIN,
}  # fmt: skip
"""Causes of clauses, which have one template for all of them, and those that only their reasons' words tell."""


def test_each_cause_has_a_template_or_tells_the_words_of_its_reason() -> None:
    assert set(Cause) - set(PHRASES) == BY_WORDS


@pytest.mark.parametrize("amounts", [{}, {"cpu": {"left": 1}}, {"cpu": {"pod": 1}}, {"": {"count": 1}}])
def test_a_reason_with_few_figures_is_told_in_its_words(amounts: dict[str, dict[str, int]]) -> None:
    """A plugin may declare a code with any cause, and give what figures it has."""
    texts = {cause: phrase(Diagnosis(cause, {}, amounts, "as it was given")) for cause in Cause}
    assert texts == dict.fromkeys(Cause, "as it was given")


def test_a_phrase_is_never_longer_than_a_row_allows() -> None:
    assert len(phrase(Diagnosis(Cause.PLUGIN, {}, {}, "word " * 100))) == LONGEST


def required(key: str, *values: str) -> dict[str, Any]:
    """A required node affinity for a label with one of some values."""
    terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": [*values]}]}]
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}


GPUS = [node(f"gpu-{number}", cpu=16, gpu=4, labels={"tier": "a100"}) for number in range(3)]


@pytest.mark.parametrize(
    ("objects", "needs", "why"),
    [
        ([gang("new", 1, cpu=1, gpu=8)], "1 x 8 GPU", "never: the largest node has 4 GPU"),
        (
            [gang("new", 1, cpu=1, spec={"nodeSelector": {"tier": "h100"}})],
            "1 x 1 cpu",
            "no node has tier=h100 (existing: a100)",
        ),
        ([gang("new", 1, cpu=1, spec={"nodeSelector": {"gpu": "h100"}})], "1 x 1 cpu", "no node has gpu=h100"),
        (
            [
                *(node(f"other-{tier}", labels={"tier": f"t{tier}"}) for tier in range(6)),
                gang("new", 1, cpu=1, spec={"affinity": {"nodeAffinity": required("tier", "h100", "h200")}}),
            ],
            "1 x 1 cpu",
            "no node has tier In h100|h200 (existing: a100, t0, t1, t2, t3 and 2 more)",
        ),
        (
            [queue("a", capability={"nvidia.com/gpu": "0"}), gang("new", 1, cpu=1, gpu=2, queue="a")],
            "1 x 2 GPU",
            "queue a may use 0 GPU, needs 2",
        ),
        ([gang("new", 4, cpu=1, gpu=4)], "4 x 4 GPU", "never: all nodes together have 12 GPU"),
        (
            [gang("old", 3, cpu=1, gpu=4, on=["gpu-0", "gpu-1", "gpu-2"]), gang("new", 2, cpu=1, gpu=2)],
            "2 x 2 GPU",
            "cluster full: 0 of 12 GPU free",
        ),
        (
            [gang("old", 3, cpu=1, gpu=1, on=["gpu-0", "gpu-1", "gpu-2"]), gang("new", 2, cpu=1, gpu=4)],
            "2 x 4 GPU",
            "fragmented: 9 GPU free, no node has 4",
        ),
        ([gang("new", 1, members=3, cpu=1)], "1 x 1 cpu", "1 of 3 pods exist"),
        (
            [queue("small", capability={"cpu": "1"}), gang("new", 2, cpu=1, queue="small")],
            "2 x 1 cpu",
            "queue small: 0 of 1 cpu in use",
        ),
        (
            [
                queue("small", capability={"cpu": "2"}),
                group("early", members=2, minimum={"cpu": 2}, queue="small"),
                gang("new", 1, cpu=1, phase="Pending", minimum={"cpu": 1}, created=1, queue="small"),
            ],
            "1 x 1 cpu",
            "queue small: 2 of 2 cpu in use or reserved",
        ),
        ([gang("new", 1, cpu=1, queue="nowhere")], "", "queue nowhere does not exist"),
    ],
)
def test_why_a_job_waits_by_the_cluster_that_it_waits_in(objects: list[Any], needs: str, why: str) -> None:
    (found,) = [wait for wait in plan(flat([*GPUS, *objects])).waits if wait.job == "default/new"]
    assert (found.needs, found.why) == (needs, why)
