"""Scripts of clusters with HyperNodes: groups with a network topology, trees that change and are wrong, lost nodes.

They are drawn from a random stream of their own, and of seeds beyond the recorded ones (digests.txt), so that no other
seed draws anything else because of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.simulation.script import Act, Script
from tests.simulation.swarm.draw import Draw
from tests.simulation.swarm.flags import beside_others, calm_after, storm_of, times
from tests.simulation.swarm.plain import one_thing
from tests.simulation.swarm.scenes import PREEMPTABLE, RANKED
from tests.simulation.swarm.tables import FAMILIES
from tests.topology.manifests import exact, hard, hyper_node, parent

Obj = dict[str, Any]
FIRST = 10_000
"""The first seed that may be one of these: every second one from here on is."""
RACK = "simulation.example/rack"
"""The label of nodes by which some HyperNodes select them."""
APART = "apart"
"""A HyperNode that no act changes, its group, and the taint that reserves its node for the group."""
_STORMS = (20.0, 40.0)
_PLACES = (
    'actions: "enqueue, allocate, backfill"\n'
    "tiers:\n- plugins:\n  - name: priority\n  - name: gang\n- plugins:\n  - name: predicates\n"
    "  - name: network-topology-aware\n"
)
CONFIGURATIONS = (
    _PLACES,
    _PLACES,
    _PLACES + "  - name: binpack\n  - name: nodeorder\n",
    _PLACES + "  - name: proportion\n",
    _PLACES.replace("allocate", "allocate, preempt"),
    _PLACES.replace("allocate", "allocate, preempt") + "  - name: proportion\n",
    _PLACES.replace("allocate", "allocate, gangpreempt"),
    _PLACES.replace("allocate", "allocate, reclaim") + "  - name: capacity\n",
)
_TIER_NAMES = {1: "rack", 2: "block", 3: "spine"}


def is_with_topology(seed: int) -> bool:
    """Whether a seed is such a script."""
    return seed >= FIRST and seed % 2 == 0


@dataclass
class _Draw(Draw):
    """Also has what was made: the racks with their nodes, the HyperNodes above them, and pods and cores of groups."""

    racks: dict[str, list[str]] = field(default_factory=dict)
    blocks: dict[str, list[str]] = field(default_factory=dict)
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)

    def rack(self) -> str:
        """One of the racks."""
        return self.pick(sorted(self.racks))

    def block(self) -> str:
        """One of the HyperNodes above racks."""
        return self.pick(sorted(self.blocks))

    def any_hyper_node(self) -> str:
        """One of the HyperNodes."""
        return self.pick(sorted({**self.racks, **self.blocks}))


def with_topology(seed: int) -> Script:
    """The script of such a seed. In half of them nothing fails but nodes and trees."""
    rng = Random(f"topology {seed}")
    conf = rng.choice(CONFIGURATIONS)
    draw = _Draw(rng, rng.choice(_STORMS), rng.choice((1, 1, 2, 2, 3)), frozenset())
    shared = draw.replicas > 1 and draw.often(0.35)
    acts = [*_cluster(draw), *_work(draw), *_changes(draw)]
    if "preempt" in conf and draw.often(0.8):
        acts += _contended(draw)
    if draw.often(0.5):
        acts += one_thing(draw, draw.pick(list(FAMILIES.values())))
    else:
        acts += _apart(draw)
    given = {**times(draw, acts), **beside_others(draw, acts), **({"replicas-address": [":7443"]} if shared else {})}
    if draw.often(0.4):
        given["checkpoint-interval"] = [draw.pick(("20", "100"))]
    if draw.often(0.4):
        given["schedule-period"] = ["5s"]
    acts.sort(key=lambda act: act.at)
    return Script(seed, draw.replicas, given, conf, storm_of(draw, acts), calm_after(acts), tuple(acts))


# --- nodes and HyperNodes ---------------------------------------------------------------------------------------------


def _cluster(draw: _Draw) -> Iterator[Act]:
    cores = draw.pick((2, 4, 4, 8))
    for number in range(draw.pick((2, 3, 3, 4))):
        rack = f"rack-{number}"
        draw.racks[rack] = []
        for _ in range(draw.number(1, 3)):
            name = f"node-{len(draw.nodes)}"
            draw.nodes[name] = cores
            draw.racks[rack].append(name)
            yield draw.act(0.0, "add_node", name, cores, {"labels": {RACK: rack}})
    for rack in draw.racks:
        yield _made(draw, hyper_node(rack, 1, *_members_of(draw, rack), tierName=_TIER_NAMES[1]))
    names = sorted(draw.racks)
    for number, some in enumerate((names[:2], names[2:])):
        if some:
            draw.blocks[f"block-{number}"] = some
            yield _made(draw, parent(f"block-{number}", 2, *some, tierName=_TIER_NAMES[2]))
    if draw.often(0.5):
        yield _made(draw, parent("spine", 3, *draw.blocks, tierName=_TIER_NAMES[3]))
        draw.blocks["spine"] = sorted(draw.blocks)
    yield draw.act(0.1, "add_class", "urgent", 10_000, {})


def _members_of(draw: _Draw, rack: str) -> list[Obj]:
    """The nodes of a rack by label, by name, or by a regular expression."""
    nodes = draw.racks[rack]
    pattern = "^(" + "|".join(nodes) + ")$"
    return draw.pick(
        (
            [{"type": "Node", "selector": {"labelMatch": {"matchLabels": {RACK: rack}}}}],
            [exact(name) for name in nodes],
            [_matching(pattern)],
        )
    )


def _matching(pattern: str) -> Obj:
    return {"type": "Node", "selector": {"regexMatch": {"pattern": pattern}}}


def _made(draw: _Draw, manifest: Obj, at: float = 0.2) -> Act:
    return draw.act(at, "add_hyper_node", manifest["metadata"]["name"], manifest["spec"])


# --- work -------------------------------------------------------------------------------------------------------------


def _work(draw: _Draw) -> Iterator[Act]:
    moments = [draw.when(2.0) for _ in range(3)]
    for number in range(draw.pick((3, 4, 6, 8, 12))):
        at = draw.pick(moments) if draw.often(0.4) else draw.when(2.0)
        more = _details(draw)
        if draw.often(0.25):
            yield from _divided(draw, at, f"divided-{number}", more)
        else:
            yield from _gang(draw, at, f"gang-{number}", more)


def _details(draw: _Draw) -> Obj:
    more: Obj = dict(RANKED if draw.often(0.3) else PREEMPTABLE)
    if draw.often(0.4):
        marks = {**more.get("annotations", {}), "vcd.sim/run-seconds": str(draw.number(2, 30))}
        more = {**more, "annotations": marks}
    return more


def _gang(draw: _Draw, at: float, name: str, more: Obj) -> Iterator[Act]:
    pods, cpu = draw.number(1, 5), draw.pick((1, 1, 1, 2, 0))
    draw.gangs[name], draw.sizes[name] = ("default", pods), (pods, cpu)
    spec = {**_ranked(more), **_limit(draw, 0.35)}
    yield draw.act(at, "submit", name, draw.pick((1, pods, pods)), pods, cpu, spec, more)


def _divided(draw: _Draw, at: float, name: str, more: Obj) -> Iterator[Act]:
    """A gang of sub-groups, each with a limit of its own, and often one for all together."""
    size, parts = draw.number(1, 3), draw.number(1, 3)
    policy: Obj = {"name": "parts", "matchLabelKeys": ["part"], "subGroupSize": size, **_limit(draw, 0.2)}
    if draw.often(0.6):
        policy["minSubGroups"] = draw.number(1, parts)
    spec = {**_ranked(more), "subGroupPolicy": [policy], **(hard(draw.number(2, 4)) if draw.often(0.4) else {})}
    draw.gangs[name] = ("default", size * parts)
    yield draw.act(at, "submit", name, draw.number(1, size * parts), 0, 1, spec, more)
    for part in range(parts):
        labelled = {**more, "labels": {"part": f"part-{part}"}}
        yield draw.act(at, "add_pods", name, part * size, size, 1, labelled)


def _contended(draw: _Draw) -> Iterator[Act]:
    """A gang has all nodes, and urgent ones come, for some of which no rack is large enough."""
    total = sum(draw.nodes.values())
    yield draw.act(1.0, "submit", "low", 1, total, 1, {}, PREEMPTABLE)
    for number in range(draw.number(1, 4)):
        pods = draw.number(1, max(2, total // 2))
        spec = {"priorityClassName": "urgent", **hard(draw.pick((1, 1, 2)))}
        ends = {**RANKED, "annotations": {"vcd.sim/run-seconds": str(draw.number(3, 90))}}
        yield draw.act(draw.when(4.0), "submit", f"urgent-{number}", draw.number(1, pods), pods, 1, spec, ends)


def _limit(draw: _Draw, free: float) -> Obj:
    """What a group or sub-group says of its topology: in that part of the cases nothing."""
    if draw.often(free):
        return {}
    if draw.often(0.2):
        return {"networkTopology": {"mode": "soft"}}
    if draw.often(0.2):
        return {"networkTopology": {"mode": "hard", "highestTierName": draw.pick((*_TIER_NAMES.values(), "nowhere"))}}
    return hard(draw.pick((1, 1, 1, 2, 2, 3, 4, 0)))


def _ranked(more: Obj) -> Obj:
    name = (more.get("spec") or {}).get("priorityClassName")
    return {"priorityClassName": name} if name else {}


# --- changes ----------------------------------------------------------------------------------------------------------


def _changes(draw: _Draw) -> Iterator[Act]:
    on = draw.some(sorted(CHANGES), 0.4) or ["relabelled"]
    for _ in range(draw.number(2, 8)):
        what, givens = CHANGES[draw.pick(on)]
        yield draw.act(draw.when(2.0), what, *givens(draw))


def _apart(draw: _Draw) -> Iterator[Act]:
    """After all changes, a group whose HyperNode and node nobody else uses is placed, whatever is wrong with others."""
    yield draw.act(0.0, "add_node", APART, 2, {"taints": [{"key": APART, "value": "", "effect": "NoSchedule"}]})
    yield _made(draw, hyper_node(APART, 1, APART))
    late = draw.storm + 1.0
    chosen = {"nodeSelector": {"kubernetes.io/hostname": APART}, "tolerations": [{"key": APART, "operator": "Exists"}]}
    yield draw.act(late, "submit", APART, 2, 2, 1, hard(1), {"spec": chosen})
    yield draw.act(late + 20.0, "expect_placed", APART, 2)


def _edited(name: str, **spec: Any) -> tuple[Any, ...]:
    return "hypernode", "", name, {"spec": spec}


def _of_hyper_nodes(*names: str) -> list[Obj]:
    return [exact(name, "HyperNode") for name in names]


def _pods_again(draw: _Draw) -> tuple[Any, ...]:
    gang = draw.pick(sorted(draw.sizes) or ["nobody"])
    pods, cpu = draw.sizes.get(gang, (1, 1))
    return gang, 0, pods + draw.number(0, 1), cpu, {}


CHANGES: Mapping[str, tuple[str, Callable[[_Draw], tuple[Any, ...]]]] = {
    "relabelled": ("relabel", lambda d: (d.node(), {RACK: d.pick((*sorted(d.racks), None))})),
    "deleted": ("delete", lambda d: ("hypernode", "", d.any_hyper_node())),
    "made again": ("add_hyper_node", lambda d: (
        rack := d.rack(), hyper_node(rack, 1, *_members_of(d, rack), tierName="rack")["spec"])),
    "other nodes": ("edit", lambda d: _edited(
        d.rack(), members=[exact(name) for name in (d.some(sorted(d.nodes), 0.4) or [d.node()])])),
    "nodes of all": ("edit", lambda d: _edited(d.rack(), members=[_matching("node-")])),
    "bad pattern": ("edit", lambda d: _edited(d.rack(), members=[_matching(d.pick(("(", "[", "*", "(z+)+")))])),
    "two parents": ("edit", lambda d: _edited(d.block(), members=_of_hyper_nodes(*sorted(d.racks)))),
    "cycle": ("edit", lambda d: _edited(
        d.block(), members=_of_hyper_nodes(d.rack(), *sorted(d.blocks)), tier=d.pick((1, 2, 3)))),
    "of nobody": ("edit", lambda d: _edited(d.any_hyper_node(), members=_of_hyper_nodes("nowhere"))),
    "tier": ("edit", lambda d: _edited(d.any_hyper_node(), tier=d.number(0, 5))),
    "tier's name": ("edit", lambda d: _edited(d.any_hyper_node(), tierName=d.pick(sorted(_TIER_NAMES.values())))),
    "node lost": ("lose_node", lambda d: (d.node(), d.pick((0, d.seconds(20))), d.pick((2, 4, 8)))),
    "node not ready": ("set_ready", lambda d: (d.node(), d.pick(("False", "True")))),
    "cordoned": ("cordon", lambda d: (d.node(), d.often(0.7))),
    "pods again": ("add_pods", _pods_again),
    "pod deleted": ("delete", lambda d: ("pod", *d.pod())),
    "limit changed": ("edit", lambda d: (
        "group", "default", d.gang(), {"spec": hard(d.number(1, 3))})),
}  # fmt: skip
"""What happens to HyperNodes, and to nodes and pods in them."""
