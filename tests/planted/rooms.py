"""Causes of nodes: shape, selector, taint, cordon, room, pieces, and a full cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tests.planted.plant import Fix, Manifest, Plant
from tests.planted.site import GPU, NOTHING, TIGHT, Site, Size

Options = dict[str, Any]
"""What nodes have beside their size."""
DRAINED = {"key": "example.com/repair", "value": "gpu", "effect": "NoSchedule"}


def unschedulable_shape(seed: int) -> Plant:
    """One pod is larger than the largest node that its selector allows; that node is the largest in what it lacks."""
    site = Site("unschedulable-shape", seed)
    rng = site.rng
    key, value = site.label
    labels = {key: value} if rng.random() < 0.5 else {}
    common = site.fleet(rng.randint(1, 12), slots=2, labels=labels)
    largest = site.node(site.slot.times(3), labels)
    if labels:  # larger ones, which it may not use and which are in use
        beyond = site.fleet(rng.randint(1, 3), slots=8)
        site.leave(dict.fromkeys(beyond, NOTHING), own=True)
    site.leave(dict.fromkeys(rng.sample(common, len(common) // 2), site.slot))
    site.backdrop()
    cpu, memory, gpus = site.size[largest]
    by = rng.choice(("cpu", "memory", GPU) if site.cards else ("cpu", "memory"))
    size = {
        "cpu": Size(cpu + rng.choice((500, 1000, 8000)), site.slot.memory, site.slot.gpus),
        "memory": Size(site.slot.cpu, memory + rng.choice((512, 1024, 65536)), site.slot.gpus),
        GPU: Size(site.slot.cpu, site.slot.memory, gpus + rng.choice((1, gpus))),
    }[by]
    spec = {"nodeSelector": labels} if labels else {}
    site.ask(rng.choice((1, 1, 2)), size=size, spec=spec, spare=0)
    fresh = []
    for _ in range(site.minimum):
        name = site.node(size.plus(Size(500, 1024)), labels)
        fresh.append(site.objects.pop(("Node", name)))
    return site.plant({"node": largest}, Fix(put=tuple(fresh)), variant=by.rpartition("/")[2])


def _excluded(site: Site, allow: Callable[[], Options], bar: Callable[[], Options], other: Options) -> Sequence[str]:
    """Nodes that the asked job may use, with too little room, and such that it may not, with enough. The latter's names
    where there is room. A few nodes are barred by ``other`` alone, with less room, or by both."""
    rng = site.rng
    count, here = (n := rng.randint(2, 5)), rng.randint(0, n - 1)
    allowed = [name for _ in range(rng.randint(max(1, here), here + 4)) for name in site.fleet(1, **allow())]
    barred = [name for _ in range(rng.randint(count, count + 8)) for name in site.fleet(1, **bar())]
    site.leave(site.filled(allowed, here))
    rooms = site.filled(barred, rng.randint(count, sum(map(site.holds, barred))))
    site.leave(rooms)
    if rng.random() < 0.4:
        decoys = site.fleet(rng.randint(1, 3), **{**allow(), **other})
        site.leave(site.filled(decoys, 1))
    if rng.random() < 0.4:
        site.fleet(rng.randint(1, 2), **{**bar(), **other})
    site.backdrop()
    site.missing = count
    return [name for name in barred if rooms[name] != NOTHING]


def selector(seed: int) -> Plant:
    """Nodes with room lack a label that the job selects by."""
    site = Site("selector", seed)
    rng = site.rng
    key, value = site.label
    others = ("t4", "cpu-only", "test", "")

    def bar() -> Options:
        other = rng.choice(others)
        return {"labels": {key: other} if other else {}}

    other: Options = rng.choice(({"unschedulable": True}, {"taints": [DRAINED]}))
    roomy = _excluded(site, lambda: {"labels": {key: value}}, bar, other)
    variant = rng.choice(("label", "labels", "in", "notin"))
    spec: Manifest = {"nodeSelector": {key: value}}
    told: tuple[str, ...] = (f"{key}={value}", f"{key}: {value}")
    if variant == "labels":
        spec["nodeSelector"] |= {"kubernetes.io/os": "linux"}
    elif variant in ("in", "notin"):
        wants = {"key": key, "operator": "In", "values": [value, "never-made"]}
        if variant == "notin":  # what has no such label would pass, so that it has to exist, too
            wants = {"key": key, "operator": "NotIn", "values": [other for other in others if other]}
        terms = [{"matchExpressions": [wants, {"key": key, "operator": "Exists"}]}]
        required = {"nodeSelectorTerms": terms}
        spec = {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}
        told = (key,)
    site.ask(site.missing, spec=spec)
    edits = [site.edited("Node", name) for name in roomy]
    for node in edits:
        node["metadata"]["labels"][key] = value
    return site.plant({"clause": told}, Fix(put=tuple(edits)), variant=variant)


def taint(seed: int) -> Plant:
    """Nodes with room have a taint that the job does not tolerate; one or two have another taint."""
    site = Site("taint", seed)
    rng = site.rng
    key, value = rng.choice((("dedicated", "infra"), ("nvidia.com/gpu", "present"), ("example.com/drain", "")))
    culprit = {"key": key, "effect": rng.choice(("NoSchedule", "NoExecute")), **({"value": value} if value else {})}
    known = {"key": "team", "value": "ml", "effect": "NoSchedule"}

    def some(*taints: Manifest) -> Callable[[], Options]:
        return lambda: {"taints": [*taints, *([known] if rng.random() < 0.4 else [])]}

    roomy = _excluded(site, some(), some(culprit), {"unschedulable": True})
    tolerations = [{"key": "team", "operator": "Equal", "value": "ml", "effect": "NoSchedule"}]
    site.ask(site.missing, spec={"tolerations": tolerations})
    edits = [site.edited("Node", name) for name in roomy]
    for node in edits:
        node["spec"]["taints"].remove(culprit)
    told = (f"{key}={value}:{culprit['effect']}",) if value else (f"{key}:{culprit['effect']}", f"{key}=:")
    return site.plant({"clause": told}, Fix(put=tuple(edits)), variant="" if value else "without-value")


def unschedulable_node(seed: int) -> Plant:
    """Nodes with room are cordoned."""
    site = Site("unschedulable-node", seed)
    roomy = _excluded(site, dict, lambda: {"unschedulable": True}, {"taints": [DRAINED]})
    site.ask(site.missing)
    edits = [site.edited("Node", name) for name in roomy]
    for node in edits:
        node["spec"]["unschedulable"] = False
    return site.plant({"clause": ("unschedulable", "cordon")}, Fix(put=tuple(edits)))


def node_room(seed: int) -> Plant:
    """The nodes that the job may use are held by one job; elsewhere there are pieces, none of which is enough, of as
    much as it needs in sum."""
    site = Site("node-room", seed, cards=seed % 2 == 0)
    rng = site.rng
    site.slot = site.slot._replace(gpus=4 if site.cards else 0)
    key, value = site.label
    count = rng.randint(1, 4)
    allowed = site.fleet(rng.randint(2, 4), slots=2, labels={key: value})
    beyond = site.fleet(2 * count + rng.randint(1, 8), slots=2)
    best, piece = site.slot.part(9, 3 * bool(site.cards)), site.slot.part(6, 2 * bool(site.cards))
    pods = [(name, site.free[name].plus(best if name == allowed[0] else NOTHING, -1)) for name in allowed]
    holder = site.run(pods, queue=site.any_queue())
    site.leave(dict.fromkeys(beyond, piece), own=True)
    site.backdrop()
    count = min(count, len(allowed) * 2)
    site.ask(count, spec={"nodeSelector": {key: value}}, spare=0)
    return site.plant({"node": allowed[0], "holder": holder}, Fix(gone=(("PodGroup", holder),)))


def fragmentation(seed: int) -> Plant:
    """Enough is free in sum, in pieces of which no pod, or not enough pods, can be made. Packed, it is enough."""
    site = Site("fragmentation", seed, TIGHT)
    rng = site.rng
    if site.cards:
        site.slot = site.slot._replace(gpus=rng.choice((2, 4)))
    count, whole = (n := rng.randint(1, 6)), rng.randint(0, n - 1)
    pairs = count - whole + rng.randint(0, 2)
    nodes = site.fleet(2 * pairs, slots=2)
    piece = site.slot.part(rng.randint(5, 9), site.slot.gpus * rng.choice((2, 3)) // 4 if site.cards else 0)
    moved = site.slot.plus(piece, -1)
    movable = [site.run([(name, moved)], queue=site.any_queue()) for name in nodes[::2]]
    site.leave(dict.fromkeys(nodes, piece))
    if whole:
        full = site.fleet(whole, slots=2)
        site.leave(site.filled(full, whole))
    site.backdrop()
    site.ask(count, spare=0)
    edits = []
    for key, to in zip(movable, nodes[1::2], strict=True):
        (pod,) = site.pods_of(key)
        pod["spec"]["nodeName"] = to
        edits.append(pod)
    return site.plant({}, Fix(put=tuple(edits)), variant="whole" if whole else "")


def cluster_full(seed: int) -> Plant:
    """Other jobs hold the cluster, most of it one of them."""
    site = Site("cluster-full", seed)
    rng = site.rng
    count, free = (n := rng.randint(1, 6)), rng.randint(0, n - 1)
    nodes = site.fleet(rng.randint(max(3, count), 24))
    for name in nodes:  # nothing beside whole slots, so that what is free is what can be used
        rest = site.free[name].plus(site.slot, -site.holds(name))
        if any(rest):
            site.run([(name, rest)], queue=site.any_queue(), name=site.name("agent"))
    spread = site.filled(nodes, free)
    busy = [name for name in nodes if spread[name] != site.free[name]]
    pods = [(name, site.free[name].plus(spread[name], -1)) for name in busy]
    cut = len(pods) // 4
    for pod in pods[:cut]:
        site.run([pod], queue=site.any_queue())
    holder = site.run(pods[cut:], queue=site.any_queue())
    site.backdrop()
    held = sum(min(have // want for have, want in zip(size, site.slot, strict=True) if want) for _, size in pods[cut:])
    site.ask(min(count, free + held), spare=0)
    return site.plant({"holder": holder}, Fix(gone=(("PodGroup", holder),)), variant="some-free" if free else "")
