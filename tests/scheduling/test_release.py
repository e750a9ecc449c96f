"""A session that was released is freed at once, by the counts of references alone, whatever plugins it had."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from tests import dsl
from tests.world import World
from vcd.scheduling import decide
from vcd.scheduling.framework import registry
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.session_close import plan_of

LABELS = {"app": "wide"}
AFFINITY = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": LABELS}, "topologyKey": "kubernetes.io/hostname"}
        ],
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {
                "weight": 1,
                "podAffinityTerm": {"labelSelector": {"matchLabels": LABELS}, "topologyKey": "kubernetes.io/hostname"},
            }
        ],
    }
}
SPREAD = [
    {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": LABELS},
    }
]


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("plugin", sorted(registry.plugins()))
def test_a_released_session_is_freed_without_the_garbage_collector(plugin: str) -> None:
    tiers = [plugin] if plugin in ("predicates", "nodeorder") else [plugin, "predicates", "nodeorder"]
    given = {"extender": "    arguments:\n      extender.urlPrefix: http://nowhere\n"}
    named = "".join(f"  - name: {name}\n{given.get(name, '')}" for name in tiers)
    conf = f"actions: enqueue, allocate, backfill, preempt, reclaim, shuffle\ntiers:\n- plugins:\n{named}"
    spec = {"affinity": AFFINITY, "topologySpreadConstraints": SPREAD}
    world = World(
        [dsl.node(f"n-{number}", cpu=4, labels={"kubernetes.io/hostname": f"n-{number}"}) for number in range(3)],
        dsl.queue("other"),
        dsl.gang("runs", 2, cpu=1, on=["n-0", "n-1"], labels=LABELS, spec=spec),
        dsl.gang("fits", 2, cpu=1, labels=LABELS, spec=spec),
        dsl.gang("waits", 1, cpu=9, phase="Pending", queue="other"),
        conf=conf,
    )
    released, before = [], None
    for number in range(4):  # what is remembered from session to session has the last one
        world.put(dsl.gang(f"comes-{number}", 1, cpu=1, labels=LABELS, spec=spec))
        session = decide.run(world.maker.snapshot(), world.policy, world.now, 0, world.memory)
        plan_of(session)
        if before is not None:  # the one before is still asked
            (waits,) = next(job for job in before.all_jobs() if job.name == "waits").tasks()
            framework_of(before).candidates(waits).best()
            del waits
            before.release()
            released.append(weakref.ref(before))
        before = session
        del session
    assert [session() is None for session in released] == [True, True, True]
