"""What users submit: gangs of all kinds, what their pods ask for, and how long they run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tests.simulation.script import Act
from tests.simulation.swarm.cluster import GPU, MODELS, ZONE_LABEL
from tests.simulation.swarm.draw import Draw
from tests.simulation.workload import GATE

Obj = dict[str, Any]
HOST_LABEL = "kubernetes.io/hostname"
QUEUE_NAME = "scheduling.volcano.sh/queue-name"
QUEUE_GATE = "scheduling.volcano.sh/queue-allocation-gate"


def work(draw: Draw) -> Iterator[Act]:
    """Submissions over the storm, of the kinds that are on."""
    kinds = [name for name in KINDS if draw.often(0.5)] or ["gang"]
    spices = draw.some(list(SPICES), 0.4)
    # bursts: who comes in the same moment as others is ordered, and what is there is contended for
    moments = [draw.when() for _ in range(draw.number(1, 4))]
    for number in range(draw.pick((1, 2, 3, 4, 5, 6, 8, 12))):
        at = draw.pick(moments) if draw.often(0.5) else draw.when()
        kind = draw.pick(kinds)
        yield from KINDS[kind](draw, at, f"{kind}-{number}", _details(draw, spices))


def _details(draw: Draw, spices: list[str]) -> Obj:
    more: Obj = {"annotations": {}, "labels": {}, "group": {}, "spec": {}, "requests": {}}
    for name in spices:
        if draw.often(0.5):
            SPICES[name](draw, more)
    return more


# --- what pods ask for ------------------------------------------------------------------------------------------------


def _ends(draw: Draw, more: Obj) -> None:
    more["annotations"]["vcd.sim/run-seconds"] = f"{draw.seconds(60):g}"
    if draw.often(0.15):
        more["annotations"]["vcd.sim/exit-code"] = "1"


def _selects(draw: Draw, more: Obj) -> None:
    more["spec"]["nodeSelector"] = {ZONE_LABEL: draw.pick(("a", "b", "nowhere"))}


def _tolerates(draw: Draw, more: Obj) -> None:
    keys = ({"key": "dedicated", "operator": "Exists"}, {"operator": "Exists"})
    more["spec"]["tolerations"] = [dict(draw.pick(keys))]


def _likes(draw: Draw, more: Obj) -> None:
    which = draw.pick(("podAffinity", "podAntiAffinity"))
    term = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": draw.pick((HOST_LABEL, ZONE_LABEL))}
    rule: Obj = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    if draw.often(0.3):
        rule = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 50, "podAffinityTerm": term}]}
    more["spec"]["affinity"] = {which: rule}
    more["labels"]["app"] = "web"


def _spreads(draw: Draw, more: Obj) -> None:
    when = draw.pick(("DoNotSchedule", "DoNotSchedule", "ScheduleAnyway"))
    rule = {"maxSkew": 1, "topologyKey": draw.pick((HOST_LABEL, ZONE_LABEL)), "whenUnsatisfiable": when,
            "labelSelector": {"matchLabels": {"app": "wide"}}}  # fmt: skip
    more["spec"]["topologySpreadConstraints"] = [rule]
    more["labels"]["app"] = "wide"


def _has_cards(draw: Draw, more: Obj) -> None:
    more["requests"][GPU] = str(draw.number(1, 2))
    if "shares" in draw.traits and "cards" not in draw.traits:
        more["requests"] = {"volcano.sh/gpu-number": str(draw.number(1, 2))}
    if "cards" in draw.traits:
        names = "|".join(draw.rng.sample(MODELS, draw.number(1, 2)))
        more[draw.pick(("annotations", "group"))]["volcano.sh/card.name"] = names


def _is_gated(draw: Draw, more: Obj) -> None:
    if draw.often(0.3):
        more["annotations"][QUEUE_GATE] = "true"
        more["spec"]["schedulingGates"] = [{"name": QUEUE_GATE}]
    else:
        more["spec"]["schedulingGates"] = [{"name": GATE}]


def _has_disks(draw: Draw, more: Obj) -> None:
    more["claim"] = "disks"


def _leaves_slowly(draw: Draw, more: Obj) -> None:
    more["spec"]["terminationGracePeriodSeconds"] = draw.number(1, 30)


def _is_ranked(draw: Draw, more: Obj) -> None:
    if draw.classes:
        more["spec"]["priorityClassName"] = draw.pick(draw.classes)


def _is_elsewhere(draw: Draw, more: Obj) -> None:
    more["namespace"] = draw.pick(draw.namespaces)


def _is_marked(draw: Draw, more: Obj) -> None:
    marks = (
        ("annotations", "volcano.sh/preemptable", draw.pick(("true", "false"))),
        ("annotations", "volcano.sh/revocable-zone", "*"),
        ("labels", "volcano.sh/cooldown-time", "15s"),
        ("labels", "protected", "yes"),
        ("group", "volcano.sh/sla-waiting-time", "10s"),
        ("group", "volcano.sh/preemptable", "true"),
        ("group", "volcano.sh/jdb-min-available", "1"),
    )
    for where, key, value in marks:
        if draw.often(0.3):
            more[where][key] = value


def _has_two_containers(draw: Draw, more: Obj) -> None:
    requests = {"cpu": f"{draw.number(1, 15) * 100}m", "memory": "1Gi"}
    waits = {"name": "first", "image": "pause", "resources": {"requests": requests}}
    more["spec"]["initContainers"] = [{**waits, "restartPolicy": "Always"} if draw.often(0.5) else waits]


def _has_ports(draw: Draw, more: Obj) -> None:
    requests = {"cpu": "100m"}
    port = {"containerPort": 80, "hostPort": 80}
    side = {"name": "side", "image": "pause", "ports": [port], "resources": {"requests": requests}}
    more["spec"]["initContainers"] = [{**side, "restartPolicy": "Always"}]


SPICES: dict[str, Callable[[Draw, Obj], None]] = {
    "ends": _ends, "ends soon": _ends, "selects": _selects, "tolerates": _tolerates, "likes": _likes,
    "spreads": _spreads, "cards": _has_cards, "gated": _is_gated, "disks": _has_disks, "slow": _leaves_slowly,
    "ranked": _is_ranked, "elsewhere": _is_elsewhere, "marked": _is_marked, "two": _has_two_containers,
    "ports": _has_ports,
}  # fmt: skip
"""What pods of a submission may have beside cores, by the name under which a seed has it on."""


# --- what of pods changes later ---------------------------------------------------------------------------------------

_LABELS: dict[str, tuple[str | None, ...]] = {
    "app": ("web", "wide", None),
    "protected": ("yes", "yes", None),
    "volcano.sh/preemptable": ("true", "false", None),
    "volcano.sh/cooldown-time": ("15s", "never", None),
    "seen": ("a", "b"),
}
_MARKS: dict[str, tuple[str | None, ...]] = {
    "volcano.sh/preemptable": ("true", "false", None),
    "volcano.sh/revocable-zone": ("*", None),
    "volcano.sh/cooldown-time": ("15s", "never", None),
    "volcano.sh/task-spec": ("master", "worker", None),
    "volcano.sh/task-priority": ("-5", "5", None),
    "volcano.sh/card.name": (*MODELS, None),
    QUEUE_GATE: ("true", None),
}


def pod_labels(draw: Draw) -> dict[str, str | None]:
    """Labels by which rules, budgets and plugins select, and one that nobody minds, as they are changed to; None is
    none."""
    return {name: draw.pick(_LABELS[name]) for name in draw.some(list(_LABELS), 0.4) or ["app"]}


def pod_marks(draw: Draw) -> dict[str, str | None]:
    """Annotations that plugins heed, as they are changed to; None is none."""
    known = {**_MARKS, QUEUE_NAME: (*draw.queues, None)}
    return {name: draw.pick(known[name]) for name in draw.some(list(known), 0.3) or ["volcano.sh/preemptable"]}


# --- kinds of submissions ---------------------------------------------------------------------------------------------


def _group_spec(draw: Draw, more: Obj) -> Obj:
    spec: Obj = {"queue": draw.pick(draw.queues)} if draw.often(0.7) else {}
    if name := more["spec"].get("priorityClassName"):
        spec["priorityClassName"] = name
    return spec


def _gang(draw: Draw, at: float, name: str, more: Obj) -> Iterator[Act]:
    pods, cpu = draw.pick((1, 2, 2, 3, 4, 6)), draw.pick((1, 1, 1, 2, 3))
    minimum = pods if draw.often(0.5) else draw.number(1, pods)
    spec = _group_spec(draw, more)
    if draw.often(0.5):
        spec["minResources"] = {"cpu": str(minimum * cpu), **({GPU: "1"} if GPU in more["requests"] else {})}
    draw.gangs[name] = (more.get("namespace", "default"), pods)
    at_first = pods if draw.often(0.8) else draw.number(0, pods)
    yield draw.act(at, "submit", name, minimum, at_first, cpu, spec, more)
    if at_first < pods:
        yield draw.act(draw.when(at), "add_pods", name, at_first, pods - at_first, cpu, more)
    yield from _gate(draw, at, name, more)


def _gate(draw: Draw, at: float, name: str, more: Obj) -> Iterator[Act]:
    if any(gate["name"] == GATE for gate in more["spec"].get("schedulingGates") or ()) and draw.often(0.9):
        yield draw.act(draw.when(at), "lift_gates", name, draw.pick((1, 1, 2)))


def _divided(draw: Draw, at: float, name: str, more: Obj) -> Iterator[Act]:
    size, parts, cpu = draw.number(1, 3), draw.number(1, 3), draw.pick((1, 1, 2))
    policy: Obj = {"name": "parts", "matchLabelKeys": ["part"], "subGroupSize": size}
    if draw.often(0.7):
        policy["minSubGroups"] = draw.number(1, parts)
    spec = {**_group_spec(draw, more), "subGroupPolicy": [policy]}
    draw.gangs[name] = (more.get("namespace", "default"), size * parts)
    yield draw.act(at, "submit", name, draw.number(1, size * parts), 0, cpu, spec, more)
    for part in range(parts):
        labelled = {**more, "labels": {**more["labels"], "part": f"part-{part}"}}
        pods = size - 1 if draw.often(0.15) else size
        yield draw.act(at, "add_pods", name, part * size, pods, cpu, labelled)
    yield from _gate(draw, at, name, more)


def _roles_of(draw: Draw) -> list[tuple[str, int, int, int]]:
    found = []
    for role in ("master", "worker", "ps")[: draw.number(1, 3)]:
        pods = draw.number(1, 3)
        found.append((role, draw.number(0, pods), pods, draw.number(1, 2)))
    return found


def _roles(draw: Draw, at: float, name: str, more: Obj) -> Iterator[Act]:
    roles = _roles_of(draw)
    if draw.often(0.5) and len(roles) > 1:
        more["group"]["volcano.sh/task-topology-affinity"] = "master,worker"
    draw.gangs[name] = (more.get("namespace", "default"), sum(pods for _, _, pods, _ in roles))
    yield draw.act(at, "submit_roles", name, roles, _group_spec(draw, more), more)
    yield from _gate(draw, at, name, more)


def _job(draw: Draw, at: float, name: str, more: Obj) -> Iterator[Act]:
    roles = _roles_of(draw)
    total = sum(pods for _, _, pods, _ in roles)
    spec: Obj = {**_group_spec(draw, more), "maxRetry": draw.number(1, 3)}
    if draw.often(0.5):
        events = ("PodFailed", "PodEvicted", "TaskCompleted", "PodPending")
        action = draw.pick(("RestartJob", "AbortJob", "TerminateJob", "CompleteJob"))
        policy = {"event": draw.pick(events), "action": action}
        spec["policies"] = [{**policy, **({"timeout": "5s"} if policy["event"] == "PodPending" else {})}]
    if draw.often(0.3):
        spec["ttlSecondsAfterFinished"] = draw.number(0, 20)
    more.pop("namespace", None)
    draw.jobs.append(name)
    draw.gangs[name] = ("default", 0)
    yield draw.act(at, "submit_job", name, draw.number(1, total), roles, spec, more)


def _bare(draw: Draw, at: float, name: str, more: Obj) -> Iterator[Act]:
    if draw.often(0.4):
        more["annotations"][QUEUE_NAME] = draw.pick(draw.queues)
    for number in range(draw.number(1, 4)):
        draw.gangs[f"{name}{number}-0"] = (more.get("namespace", "default"), 1)
        yield draw.act(at, "submit_bare", f"{name}{number}", 1, draw.pick((0, 1, 2)), more)
        yield from _gate(draw, at, f"{name}{number}-0", more)


def _best_effort(draw: Draw, at: float, name: str, more: Obj) -> Iterator[Act]:
    pods = draw.number(1, 4)
    more["requests"] = {}
    draw.gangs[name] = (more.get("namespace", "default"), pods)
    yield draw.act(at, "submit", name, draw.number(1, pods), pods, 0, _group_spec(draw, more), more)
    yield from _gate(draw, at, name, more)


def _deployment(draw: Draw, at: float, name: str, more: Obj) -> Iterator[Act]:
    draw.deployments.append(name)
    draw.gangs[name] = ("default", 0)
    more.pop("namespace", None)
    more["annotations"].pop("vcd.sim/run-seconds", None)  # new ones would be made for ever
    yield draw.act(at, "submit_deployment", name, draw.number(1, 4), draw.number(1, 2), more)


KINDS: dict[str, Callable[[Draw, float, str, Obj], Iterator[Act]]] = {
    "gang": _gang, "large": _gang, "roles": _roles, "job": _job, "bare": _bare, "best": _best_effort,
    "divided": _divided, "web": _deployment,
}  # fmt: skip
"""How users submit work, by the name under which a seed has it on."""
