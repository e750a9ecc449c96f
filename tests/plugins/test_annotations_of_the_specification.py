"""Every annotation and label that Volcano's descriptions name is listed by a plugin that obeys it, or read
by the scheduler itself.

What a plugin lists stands on its page in docs/plugins/. One example writes ``volcano.sh/card.card`` where it means
``volcano.sh/card.name``; the former is read by nobody.
"""

from __future__ import annotations

import pytest

from tests.dsl import BARE, gang, group, node, planned, pod, queue, session_of
from tests.plugins.opened import job_of, task_of
from vcd.scheduling.framework.registry import plugins

LISTED = {
    "volcano.sh/nodegroup-name": {"nodegroup"},
    "volcano.sh/task-topology-affinity": {"task-topology"},
    "volcano.sh/task-topology-anti-affinity": {"task-topology"},
    "volcano.sh/task-topology-task-order": {"task-topology"},
    "volcano.sh/task-spec": {"gang", "task-topology"},
    "volcano.sh/task-priority": {"priority"},
    "volcano.sh/cooldown-time": {"cdp"},
    "volcano.sh/resource-strategy-scoring-type": {"resource-strategy-fit"},
    "volcano.sh/resource-strategy-weight": {"resource-strategy-fit"},
    "volcano.sh/hierarchy": {"drf"},
    "volcano.sh/hierarchy-weights": {"drf"},
    "volcano.sh/revocable-zone": {"tdm"},
    "volcano.sh/preemptable": {"rescheduling", "tdm"},
    "sla-waiting-time": {"sla"},
    "volcano.sh/card.quota": {"capacity-card"},
    "volcano.sh/card.request": {"capacity-card"},
    "volcano.sh/card.name": {"capacity-card"},
}
"""Key -> plugins; descriptions name the hierarchy's, the zone's and the priority's by the fields they are read into."""


@pytest.mark.parametrize(("key", "names"), LISTED.items(), ids=LISTED)
def test_a_key_is_listed_by_the_plugins_that_obey_it(key: str, names: set[str]) -> None:
    assert {name for name, plugin in plugins().items() if key in plugin.keys} == names


@pytest.mark.parametrize(
    ("marks", "labels", "preemptable"),
    [
        ({}, {}, True),
        ({"volcano.sh/preemptable": "true"}, {}, True),
        ({"volcano.sh/preemptable": "false"}, {}, False),
        ({}, {"volcano.sh/preemptable": "false"}, False),
    ],
)
def test_pods_may_be_preempted_unless_they_say_no(
    marks: dict[str, str], labels: dict[str, str], preemptable: bool
) -> None:
    """volcano.sh/preemptable is true unless given; the scheduler reads it, whatever plugins are on."""
    session = session_of(node("n"), group("g"), pod("p", group="g", annotations=marks, labels=labels), conf=BARE)
    assert task_of(session, "p").preemptable is preemptable


def test_a_pod_without_group_names_its_queue() -> None:
    """scheduling.volcano.sh/queue-name, by which a pod names its queue."""
    wants = pod("p", cpu=1, annotations={"scheduling.volcano.sh/queue-name": "cr-queue1"})
    session = session_of(node("n"), queue("cr-queue1"), wants, conf=BARE)
    assert task_of(session, "p").job.queue.name == "cr-queue1"


def test_a_pod_names_its_group() -> None:
    """scheduling.k8s.io/group-name, by which tasks become jobs."""
    objects = [node("n"), list(gang("g", 2, cpu=1))]
    assert job_of(session_of(*objects, conf=BARE), "g").task_count == 2
    assert len(planned(*objects, conf=BARE).binds) == 2
