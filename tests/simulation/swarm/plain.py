"""Scripts in which little is on: a small cluster, plain gangs, and one thing that goes wrong, often more than once.

Where all is on at once, one fault hides what another one does: a leader that is killed makes up for what it forgot.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from tests.simulation.script import Act, Script
from tests.simulation.swarm.draw import Draw
from tests.simulation.swarm.flags import beside_others, calm_after, storm_of, times
from tests.simulation.swarm.scenes import EVICTING, PREEMPTS, SCENES, a_scene
from tests.simulation.swarm.tables import CHANGES, FAMILIES, PEERS, Family, compared

_STORMS = (20.0, 40.0)
CONFIGURATIONS: tuple[tuple[str, str], ...] = (
    ("", ""),
    ("", ""),
    (PREEMPTS, ""),
    (PREEMPTS.replace("gang\n", "gang\n  - name: conformance\n"), ""),
    (PREEMPTS.replace("gang\n", "gang\n  - name: pdb\n"), "budgets"),
    (PREEMPTS.replace("preempt", "reclaim"), ""),
    (PREEMPTS.replace("proportion\n", "capacity\n    enableHierarchy: true\n"), "tree"),
    (PREEMPTS + '  - name: extender\n    arguments:\n      extender.urlPrefix: "http://extender:8080"\n'
                '      extender.predicateVerb: predicate\n      extender.prioritizeVerb: prioritize\n', "extender"),
)  # fmt: skip
"""What the scheduler is told, and the trait that its plugins need."""


@dataclass
class _Draw(Draw):
    """Faults are for all there is, and last."""

    def part(self) -> float:
        return self.pick((0.5, 1.0, 1.0))

    def anyone(self) -> int:
        return -1 if self.often(0.5) else self.replica()

    def call(self) -> str:
        return "bindings" if self.often(0.4) else super().call()

    def seconds(self, most: float) -> float:
        return round(most ** self.rng.uniform(0.0, 1.0), 3)


def plain(rng: Random, seed: int) -> Script:
    """The script of a seed in which little is on."""
    conf, trait = rng.choice(CONFIGURATIONS)
    draw = _Draw(rng, rng.choice(_STORMS), rng.choice((1, 1, 2, 2, 2, 3)), frozenset({trait} - {""}))
    shared = draw.replicas > 1 and draw.often(0.35)
    draw.replicas = draw.pick((2, 3)) if shared else draw.replicas
    acts = [*_cluster(draw), *_work(draw)]
    lot = rng.random()
    if lot < 0.5:
        acts += a_scene(draw, EVICTING if "preempt" in conf and draw.often(0.6) else SCENES)
    if lot >= 0.3:
        acts += one_thing(draw, _of_one_log(draw) if shared and draw.often(0.7) else draw.pick(_FAMILIES))
    given = {**times(draw, acts), **beside_others(draw, acts), **({"replicas-address": [":7443"]} if shared else {})}
    if draw.often(0.4):
        given["checkpoint-interval"] = [draw.pick(("20", "20", "100"))]
    if draw.often(0.4):
        given["schedule-period"] = ["5s"]
    if draw.often(0.15):
        acts.append(compared(draw))
    acts.sort(key=lambda act: act.at)
    return Script(seed, draw.replicas, given, conf, storm_of(draw, acts), calm_after(acts), tuple(acts))


_FAMILIES: tuple[Family, ...] = (
    *(family for family in (CHANGES, *FAMILIES.values()) for _ in family),
    *(FAMILIES["requests"] for _ in range(24)),
)
"""Each as often as it has lines; that of requests more often, as there are many kinds of them."""


def _of_one_log(draw: Draw) -> Family:
    return draw.pick(list(PEERS.values()))


def one_thing(draw: Draw, family: Family) -> Iterator[Act]:
    """One line of a family a few times, and often another one of it at the same moments."""
    names = [draw.pick(sorted(family))]
    if draw.often(0.5):
        names.append(draw.pick(sorted(family)))
    for _ in range(draw.number(2, 4)):
        at = draw.when(2.0)
        for name in names:
            what, givens = family[name]
            yield draw.act(at, what, *givens(draw))


def _cluster(draw: Draw) -> Iterator[Act]:
    cores = draw.pick((1, 4, 4, 8))
    for number in range(draw.pick((1, 2, 2, 3))):
        draw.nodes[f"node-{number}"] = cores
        yield draw.act(0.0, "add_node", f"node-{number}", cores, {})
    if "budgets" in draw.traits:
        draw.budgets.append("budget-0")
        budget = {"selector": {"matchLabels": {"protected": "yes"}}, "minAvailable": draw.number(0, 6)}
        yield draw.act(0.0, "add_budget", "budget-0", budget)
    if "tree" in draw.traits:
        draw.queues = ["queue-1", "queue-2"]
        most = draw.number(3, 6)
        for name, parent, cpu in (("queue-0", "root", most), *((one, "queue-0", most - 1) for one in draw.queues)):
            spec = {"weight": 1, "parent": parent, "capability": {"cpu": str(cpu)}}
            yield draw.act(0.0 if cpu == most else 0.1, "add_queue", name, spec, {})


def _work(draw: Draw) -> Iterator[Act]:
    """Gangs one after another, of one core a pod; some never fit."""
    step, at, ends = draw.pick((0.5, 1.0, 2.5)), draw.rng.uniform(2.0, 6.0), draw.often(0.5)
    for number in range(draw.pick((1, 2, 4, 8, 12))):
        pods = draw.number(1, 3)
        more = {"annotations": {"vcd.sim/run-seconds": "15"}} if ends and number % 2 else {}
        draw.gangs[f"gang-{number}"] = ("default", pods)
        minimum = draw.pick((1, pods, pods))
        spec = {"queue": draw.pick(draw.queues)} if len(draw.queues) > 1 else {}
        yield draw.act(round(at + number * step, 3), "submit", f"gang-{number}", minimum, pods, 1, spec, more)
    if draw.often(0.3):
        draw.gangs["large"] = ("default", 2)
        asks = {"minResources": {"cpu": "100"}} if draw.often(0.5) else {}
        yield draw.act(at, "submit", "large", 2, 2, draw.pick((1, 99)), asks, {})
