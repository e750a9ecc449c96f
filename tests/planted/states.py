"""Causes of what objects say, of who came first, and of who is going."""

from __future__ import annotations

from tests import dsl
from tests.planted.plant import Fix, Plant, Stage, group_of
from tests.planted.site import KINDS, NOTHING, TIGHT, Site

OWNERS = (
    ("kubeflow.org/v1", "PyTorchJob"),
    ("ray.io/v1", "RayCluster"),
    ("sparkoperator.k8s.io/v1beta2", "SparkApplication"),
)


def _with_room(code: str, seed: int, kinds: tuple[str, ...] = KINDS) -> tuple[Site, int]:
    """A site with room for the job, and the job's minimum."""
    site = Site(code, seed, kinds)
    count = site.rng.randint(1, 5)
    nodes: list[str] = []
    while sum(map(site.holds, nodes)) < count + 2:
        nodes += site.fleet(1)
    busy = site.fleet(site.rng.randint(0, 20))
    site.leave(dict.fromkeys(busy[::2], NOTHING))
    site.backdrop()
    return site, count


def pods_missing(seed: int) -> Plant:
    """Fewer pods exist than the minimum; their group belongs to a workload of another controller."""
    site, count = _with_room("pods-missing", seed)
    rng = site.rng
    there = rng.randint(0, count - 1) if rng.random() < 0.7 else 0
    site.states_minimum = site.states_minimum and there > 0
    site.ask(count, spare=0)
    whole = site.pods_of(site.asked)
    for number in range(there, count):
        del site.objects["Pod", f"{site.asked}-{number}"]
    api, kind = rng.choice(OWNERS)
    name = site.asked.partition("/")[2]
    owner = {"apiVersion": api, "kind": kind, "name": name, "uid": f"uid-of-{name}", "controller": True}
    site.objects["PodGroup", site.asked]["metadata"]["ownerReferences"] = [owner]
    return site.plant({"owner": name}, Fix(put=tuple(whole)), variant="none" if not there else "some")


def gated(seed: int) -> Plant:
    """A scheduling gate of somebody else holds all pods of the gang, or one that it needs."""
    site, count = _with_room("gated", seed)
    rng = site.rng
    gate = rng.choice(("example.com/quota-check", "kueue.x-k8s.io/admission", "topology.example.com/wait"))
    site.ask(count, spare=0)
    pods = site.pods_of(site.asked)
    held = pods if rng.random() < 0.5 else pods[-1:]
    for pod in held:
        made = {**pod, "spec": {**pod["spec"], "schedulingGates": [{"name": gate}]}}
        site.put(made)
    return site.plant({"gate": gate}, Fix(put=tuple(held)), variant="all" if len(held) == count else "one")


def queue_closed(seed: int) -> Plant:
    """The job's queue is Closed, or Closing."""
    site, count = _with_room("queue-closed", seed)
    name = site.name("retired")
    site.add_queue(name, state=site.rng.choice(("Closed", "Closing")))
    site.ask(count, queue=name)
    mended = site.edited("Queue", name)
    mended["status"]["state"] = "Open"
    return site.plant({"queue": name}, Fix(put=(mended,)))


def queue_missing(seed: int) -> Plant:
    """Nobody made the job's queue."""
    site, count = _with_room("queue-missing", seed)
    name = site.name(site.rng.choice(("reserach", "q-gpu-typo", "tmp")))
    site.add_queue(name)
    made = site.objects.pop(("Queue", name))
    site.ask(count, queue=name)
    return site.plant({"queue": name}, Fix(put=(made,)))


def unsupported(seed: int) -> Plant:
    """The pods claim devices (DRA), or the group has to be within one HyperNode."""
    site, count = _with_room("unsupported", seed)
    if seed % 2:
        field = "networkTopology"
        site.ask(count, group={"networkTopology": {"mode": "hard", "highestTierAllowed": 1}})
        edits = [site.edited("PodGroup", site.asked)]
    else:
        field = "resourceClaims"
        claims = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]
        site.ask(count, spec={"resourceClaims": claims})
        edits = site.pods_of(site.asked)
    for made in edits:
        del made["spec"][field]
    return site.plant({"field": field}, Fix(put=tuple(edits)), variant=field)


def invalid(seed: int) -> Plant:
    """A node affinity cannot be read, or the queue is none that takes jobs."""
    variant = ("affinity", "not-a-leaf", "no-parent")[seed % 3]
    site, count = _with_room("invalid", seed, KINDS if variant == "affinity" else ("tree",))
    if variant == "affinity":
        wants = [{"key": "example.com/generation", "operator": "Gt", "values": ["seven"]}]
        required = {"nodeSelectorTerms": [{"matchExpressions": wants}]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
        site.ask(count, spec={"affinity": affinity})
        edits = site.pods_of(site.asked)
        for pod in edits:
            del pod["spec"]["affinity"]
        return site.plant({"field": "ffinity"}, Fix(put=tuple(edits)), variant=variant)
    if variant == "not-a-leaf":
        site.ask(count, queue=site.parent)
        mended = site.edited("PodGroup", site.asked)
        mended["spec"]["queue"] = site.queue
        return site.plant({"field": "queue"}, Fix(put=(mended,)), variant=variant)
    name = site.name("orphan")
    site.add_queue(name, parent="no-such-parent")
    site.ask(count, queue=name)
    mended = site.edited("Queue", name)
    mended["spec"]["parent"] = site.parent
    return site.plant({"field": "parent"}, Fix(put=(mended,)), variant=variant)


# --- who came first, and who is going ---------------------------------------------------------------------------------


def _full(code: str, seed: int, least: int, kinds: tuple[str, ...] = TIGHT) -> tuple[Site, int, str]:
    """A site in which one job holds just what the asked one needs, pod by pod, and others hold the rest."""
    site = Site(code, seed, kinds)
    count = site.rng.randint(least, 5)
    nodes: list[str] = []
    while sum(map(site.holds, nodes)) < count + 2:
        nodes += site.fleet(1)
    pods = [(name, site.slot) for name in nodes for _ in range(site.holds(name))][:count]
    holder = site.run(pods, queue=site.any_queue(), spec={"terminationGracePeriodSeconds": 3600})
    site.leave(dict.fromkeys(nodes, NOTHING))
    site.leave(dict.fromkeys(site.fleet(site.rng.randint(0, 12)), NOTHING))
    site.backdrop()
    return site, count, holder


def _end_of(site: Site, key: str) -> tuple[tuple[str, str], ...]:
    return (*(("Pod", f"{pod['metadata']['namespace']}/{pod['metadata']['name']}") for pod in site.pods_of(key)),
            ("PodGroup", key))  # fmt: skip


def order(seed: int) -> Plant:
    """What the job waited for goes to a job of a higher priority, or of a queue of a higher one, or, piece by piece, to
    small ones that came later."""
    variant = ("priority", "overtaken", "queue")[seed % 3]
    kinds = ("capacity", "card") if variant == "queue" else TIGHT
    site, count, holder = _full("order", seed, 2 if variant == "overtaken" else 1, kinds)
    for name, value in (("urgent", 1000), ("usual", 100), ("top", 100000)):
        site.put({"apiVersion": "scheduling.k8s.io/v1", **dsl.priority_class(name, value)})
    ends = _end_of(site, holder)
    if variant == "overtaken":
        return _overtaken(site, count, ends)
    site.ask(count, spare=0, priority="usual")
    name, queue, subject = site.name("rush"), site.queue, {"key": "priority"}
    if variant == "queue":
        queue, subject = site.name("vip"), {}
        site.add_queue(queue, priority=10)
        edits = [site.edited("Queue", site.queue)]
        edits[0]["spec"]["priority"] = 20
    else:
        edits = [site.edited("PodGroup", site.asked), *site.pods_of(site.asked)]
        for made in edits:
            made["spec"]["priorityClassName"] = "top"
    rank = "usual" if variant == "queue" else "urgent"
    rush = site.job(name, [site.slot] * count, created=200, priority=rank, queue=queue)
    key = f"{site.namespace}/{name}"
    later = [Stage(tuple(rush), ends, runs=(key,))]
    return site.plant({"ahead": key, **subject}, Fix(put=tuple(edits)), variant=variant, later=later)


def _overtaken(site: Site, count: int, ends: tuple[tuple[str, str], ...]) -> Plant:
    """Each time a pod of the holder ends, a small job has come that fits, and the gang does not."""
    site.ask(count, spare=0)
    later, keys, fix = [], [], list[tuple[str, str]]()
    for number in range(count):
        name = site.name(f"small-{number}")
        keys.append(f"{site.namespace}/{name}")
        made = site.job(name, [site.slot], created=100 + 10 * number, queue=site.queue)
        fix.append(("PodGroup", keys[-1]))
        gone = (ends[number], *([ends[-1]] if number == count - 1 else []))
        later.append(Stage(tuple(made), gone, seconds=10.0 if number < count - 1 else 900.0, runs=(keys[-1],)))
    return site.plant({"ahead": tuple(keys)}, Fix(gone=tuple(fix)), variant="overtaken", later=later)


def leaving(seed: int) -> Plant:
    """The pods of who holds the room are being deleted, with an hour's grace."""
    site, count, holder = _full("leaving", seed, 1)
    for name, manifest in list(site.objects.items()):
        if name[0] == "Pod" and group_of(manifest) == holder:
            manifest["metadata"]["deletionTimestamp"] = "2026-01-01T01:00:00Z"
    site.ask(count, spare=0)
    return site.plant({"holder": holder}, Fix(gone=(("PodGroup", holder),)))
