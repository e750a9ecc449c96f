"""Tasks of a job count as equivalent only if no active rule can distinguish them: one difference each."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dsl import BARE, group, node, pod, session_of
from tests.plugins.opened import task_of
from vcd.scheduling.framework.framework import framework_of

FACTS = BARE + "- plugins:\n  - name: predicates\n"
CARDS = FACTS + "  - name: capacity-card\n"
APART = {"requiredDuringSchedulingIgnoredDuringExecution": [
    {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}
]}  # fmt: skip
CLAIM = {"volumeClaimTemplate": {"spec": {"resources": {"requests": {"storage": "1Gi"}}}}}
DISK = [{"name": "disk", "ephemeral": CLAIM}]
WEB: dict[str, Any] = {"labels": {"app": "web"}, "spec": {"affinity": {"podAntiAffinity": APART}}}


@pytest.mark.parametrize(
    ("first", "second", "are_equivalent"),
    [
        ({}, {}, True),
        ({}, {"cpu": 2}, False),
        ({}, {"labels": {"app": "web"}}, True),
        (WEB, WEB, True),
        (WEB, {**WEB, "labels": {"app": "db"}}, False),
        ({"spec": {"volumes": DISK}}, {"spec": {"volumes": DISK}}, False),
        ({"annotations": {"volcano.sh/card.name": "A"}}, {"annotations": {"volcano.sh/card.name": "B"}}, False),
        ({"annotations": {"seen": "a"}}, {"annotations": {"seen": "b"}}, True),
    ],
    ids=[
        *("nothing", "requests", "labels that no rule reads", "nothing beside a rule of labels"),
        *("labels that a rule reads", "claims of their own", "cards", "an annotation that no plugin reads"),
    ],
)
def test_what_a_rule_can_tell_apart_is_not_equivalent(
    first: dict[str, Any], second: dict[str, Any], are_equivalent: bool
) -> None:
    assert _are_equivalent(first, second, CARDS) == are_equivalent


@pytest.mark.parametrize(
    ("first", "second", "are_equivalent"),
    [({}, {}, True), ({}, {"cpu": 2}, False), ({"spec": {"volumes": DISK}}, {"spec": {"volumes": DISK}}, False)],
    ids=["nothing", "requests", "claims of their own"],
)
def test_neither_is_what_a_rule_tells_apart_by_facts_alone(
    first: dict[str, Any], second: dict[str, Any], are_equivalent: bool
) -> None:
    assert _are_equivalent(first, second, FACTS) == are_equivalent


def _are_equivalent(first: dict[str, Any], second: dict[str, Any], conf: str) -> bool:
    """Whether two pods of a job, which differ in this, are equivalent."""
    pods = [
        pod(name, group="g", **{"cpu": 1, "nvidia.com/gpu": 1, **options})
        for name, options in (("a", first), ("b", second))
    ]
    labels = {"nvidia.com/gpu.product": "A", "nvidia.com/gpu.memory": "1024"}
    session = session_of(node("n", labels=labels, **{"nvidia.com/gpu": 4}), group("g", members=2), *pods, conf=conf)
    one, other = framework_of(session).evaluator.keys.keys_in_job([task_of(session, "a"), task_of(session, "b")])
    return one == other
