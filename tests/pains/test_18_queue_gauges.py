"""Pain 18: queue metrics are stale, missing, insufficient (volcano #2280, #4458, #5242)."""

from __future__ import annotations

from tests.dsl import gang, group, node, queue
from tests.laws.answering import Answering
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.session.gauges import Gauge

WEIGHT = "volcano_queue_weight"


def gauges(world: Answering, queue_name: str = "q") -> dict[str, float]:
    """Values of a queue by name and resource, capacities and weight left out."""
    assert world.session is not None
    values = {}
    for plugin in framework_of(world.session).plugins:
        for gauge in plugin.gauges():
            if not isinstance(gauge, Gauge):
                continue
            labels = dict(gauge.labels)
            if labels.get("queue_name") == queue_name and "capacity" not in gauge.name and gauge.name != WEIGHT:
                values[f"{gauge.name} {labels.get('resource', '')}".strip()] = float(gauge.value)
    return values


def running() -> Answering:
    world = Answering(node("n", cpu=4), queue("q"), gang("a", 1, cpu=2, queue="q", phase="Pending", minimum={"cpu": 2}))
    world.rest()
    return world


def test_a_running_job_shows_in_its_queues_gauges() -> None:
    shown = gauges(running())
    assert shown["volcano_queue_allocated_milli_cpu"] == 2000
    assert shown["volcano_queue_request_milli_cpu"] == 2000
    assert shown["volcano_queue_deserved_milli_cpu"] == 2000


def test_in_the_cycle_after_the_last_job_is_deleted_the_gauges_are_there_and_zero() -> None:
    world = running()
    before = gauges(world)
    world.remove("Pod", "default/a-0")
    world.remove("PodGroup", "default/a")
    world.cycle()
    assert gauges(world) == dict.fromkeys(before, 0.0)


def test_what_enqueue_reserved_is_a_series_of_its_own() -> None:
    world = running()
    world.put(group("b", queue="q", phase="Pending", minimum={"cpu": 2}))
    world.rest()
    shown = gauges(world)
    assert shown["volcano_queue_inqueue_milli_cpu"] == 2000
    assert shown["volcano_queue_allocated_milli_cpu"] == 2000


def test_the_gauges_of_a_deleted_queue_are_gone() -> None:
    world = running()
    world.remove("Pod", "default/a-0")
    world.remove("PodGroup", "default/a")
    world.remove("Queue", "q")
    world.cycle()
    assert gauges(world) == {}
