"""Causes of queues, quotas and admission: there is room for the job, and something says that it may not have it."""

from __future__ import annotations

from collections.abc import Sequence

from tests.planted.plant import Fix, Manifest, Plant
from tests.planted.site import GPU, MODELS, Site, Size


def _roomy(site: Site, count: int, most: int = 8) -> list[str]:
    """Nodes on which ``count`` pods, and as many more, find room; some jobs run there."""
    nodes: list[str] = []
    while sum(map(site.holds, nodes)) < 2 * count:
        nodes += site.fleet(1)
    nodes += site.fleet(site.rng.randint(0, most))
    return nodes


def _used(site: Site, nodes: Sequence[str], slots: int, queue: str) -> str:
    """A job of a queue that holds so many slots on nodes; its key."""
    pods = []
    for name in nodes:
        here = min(site.holds(name), slots - len(pods))
        pods += [(name, site.slot)] * here
    return site.run(pods, queue=queue)


def _amount(site: Site, resource: str, slots: int, part: int = 0) -> str:
    """So many slots, and tenths of one, of a resource, as a quantity."""
    size = site.slot.times(slots).plus(site.slot.part(part))
    if resource == GPU:
        return str(size.gpus)
    return site.amounts(size)[resource]


def _resource(site: Site, *, cards: bool = True) -> str:
    return site.rng.choice(("cpu", "memory", GPU) if site.cards and cards else ("cpu", "memory"))


def queue_deserved(seed: int) -> Plant:
    """A queue of a greater weight, whose job selects a label that no node has, claims most of the cluster.

    Only Volcano's formula counts a job that no node can take, and lends nothing of what it claims."""
    site = Site("queue-deserved", seed, ("proportion",))
    rng = site.rng
    site.volcano_shares = True
    site.overcommit = False
    count = rng.randint(2, 5)
    nodes = _roomy(site, count)
    site.backdrop()
    total = sum(map(site.holds, nodes)) + sum(size.cpu for size in site.size.values()) // site.slot.cpu + 1
    total = max(total, sum(size.memory for size in site.size.values()) // site.slot.memory + 1)
    heavy = site.name("prod")
    site.add_queue(heavy, weight=(total // count + 3) * (weight := rng.randint(1, 3)))
    site.spec_of(site.queue)["weight"] = weight
    for manifest in site.job(
        site.name("serving"), [site.slot] * total, queue=heavy, created=20, spec={"nodeSelector": {"tier": "gold"}}
    ):
        site.put(manifest)
    site.ask(count, spare=0)
    mended = site.edited("Queue", site.queue)
    mended["spec"]["weight"] = 100 * site.spec_of(heavy)["weight"]
    return site.plant({"queue": site.queue, "field": "spec.weight"}, Fix(put=(mended,)))


def queue_capability(seed: int) -> Plant:
    """The queue holds all, or all but too little, of its capability; or groups without pods reserve it."""
    site = Site("queue-capability", seed, ("proportion", "capacity", "tree", "card"))
    rng = site.rng
    count, held = rng.randint(1, 5), rng.randint(0, 3)
    nodes = _roomy(site, count + held + 3)
    subject: dict[str, str | tuple[str, ...]] = {}
    if held and rng.random() < 0.4:
        site.wants_enqueue = site.states_minimum = True
        subject = {"holder": _reserving(site, held, site.queue)}
    elif held:
        _used(site, nodes, held, site.queue)
    site.backdrop()
    short = _resource(site, cards=site.kind != "card")
    spec = site.spec_of(site.queue)
    named = {short, *rng.sample(("cpu", "memory"), rng.randint(0, 2))}
    limits = {each: _amount(site, each, held + count + 3, 9) for each in sorted(named)}
    spec["capability"] = limits | {short: _limit(site, short, held, count)}
    site.ask(count, spare=0)
    mended = site.edited("Queue", site.queue)
    mended["spec"]["capability"][short] = _amount(site, short, held + count + 3)
    variant = f"{site.kind}-{short.rpartition('/')[2]}" + ("-reserved" if subject else "")
    asked_late = bool(subject)
    subject |= {"queue": site.queue, "field": f"spec.capability.{short}"}
    return site.plant(subject, Fix(put=(mended,)), variant=variant, asked_late=asked_late)


def _limit(site: Site, resource: str, held: int, count: int) -> str:
    """Between what is held and what is wanted beside it; no cpu or memory would be no limit."""
    slots = held + site.rng.randint(0, count - 1)
    if resource == GPU:
        return _amount(site, resource, slots)
    return _amount(site, resource, slots, 0 if slots and site.rng.random() < 0.5 else 5)


def parent_limit(seed: int) -> Plant:
    """A queue above the job's own is full, by what a queue beside it holds."""
    site = Site("parent-limit", seed, ("tree",))
    rng = site.rng
    count, held = rng.randint(1, 5), rng.randint(1, 4)
    limited = site.parent
    if rng.random() < 0.5:  # the limit is two levels up
        below = site.name("group")
        site.add_queue(below)
        site.spec_of(site.queue)["parent"] = below
    sibling = site.name("sibling")
    site.add_queue(sibling, parent=limited)
    nodes = _roomy(site, count + held + 4)
    _used(site, nodes, held, sibling)
    site.backdrop()
    short = _resource(site)
    site.spec_of(limited)["capability"] = {short: _limit(site, short, held, count)}
    site.ask(count, spare=0, created=70)
    mended = site.edited("Queue", limited)
    mended["spec"]["capability"][short] = _amount(site, short, held + count + 4)
    subject = {"queue": limited, "field": f"spec.capability.{short}"}
    return site.plant(subject, Fix(put=(mended,)), variant=short.rpartition("/")[2])


def others_guarantee(seed: int) -> Plant:
    """Most of the cluster is guaranteed to a queue that uses none of it."""
    site = Site("others-guarantee", seed, ("proportion", "capacity"))
    rng = site.rng
    site.overcommit = False
    count = rng.randint(1, 5)
    _roomy(site, count)
    site.backdrop()
    short = _resource(site)
    whole = {"cpu": 0, "memory": 1, GPU: 2}[short]
    total = sum(size[whole] for size in site.size.values())
    kept = total - site.slot[whole] * count + max(site.slot[whole] // 4, 1)
    site.settled = ""  # what the guarantee leaves may be used up
    holder = site.name("gold")
    amount = {"cpu": f"{kept}m", "memory": f"{kept}Mi", GPU: str(kept)}[short]
    site.add_queue(holder, guarantee={"resource": {short: amount}}, deserved={short: amount})
    site.ask(count, spare=0)
    mended = site.edited("Queue", holder)
    del mended["spec"]["guarantee"]
    subject = {"queue": holder, "field": f"spec.guarantee.resource.{short}"}
    return site.plant(subject, Fix(put=(mended,)), variant=f"{site.kind}-{short.rpartition('/')[2]}")


def card_quota(seed: int) -> Plant:
    """The queue's quota of the card that the job names is used, or too small; there are such cards free, and others."""
    site = Site("card-quota", seed, ("card",), cards=True)
    rng = site.rng
    count, held = rng.randint(1, 5), rng.randint(0, 3)
    nodes = _roomy(site, count + held)
    wanted = site.model
    site.model = rng.choice([model for model in sorted(MODELS) if model != wanted])
    site.fleet(rng.randint(1, 4))  # of another model
    if held:
        _used(site, nodes, held, site.queue)
    site.model = wanted
    site.backdrop()
    quota = (held + rng.randint(0, count - 1)) * site.slot.gpus
    queue = site.objects["Queue", site.queue]
    queue["metadata"]["annotations"]["volcano.sh/card.quota"] = _quotas({wanted: quota, "NVIDIA-L4": 6})
    mended = site.edited("Queue", site.queue)
    mended["metadata"]["annotations"]["volcano.sh/card.quota"] = _quotas({wanted: (held + count + 1) * site.slot.gpus})
    site.ask(count, spare=0, marks={"volcano.sh/card.name": wanted})
    return site.plant({"queue": site.queue, "card": wanted}, Fix(put=(mended,)))


def _quotas(quotas: dict[str, int]) -> str:
    return "{" + ", ".join(f'"{model}": {count}' for model, count in quotas.items()) + "}"


def namespace_quota(seed: int) -> Plant:
    """The namespace's ResourceQuota was lowered below what the job's pods use of it."""
    site = Site("namespace-quota", seed)
    rng = site.rng
    site.wants_enqueue = site.states_minimum = True
    site.more_plugins = ["resourcequota"]
    count, held = rng.randint(1, 5), rng.randint(0, 3)
    nodes = _roomy(site, count + held)
    if held:
        _used(site, nodes, held, site.queue)
    site.backdrop()
    site.ask(count, spare=0)
    written = site.objects["PodGroup", site.asked]["spec"]["minResources"]
    names = [name for name in ("cpu", "memory", "requests.cpu", f"requests.{GPU}") if name in written]
    short = rng.choice(names)
    resource = short.removeprefix("requests.")
    used = {short: _amount(site, resource, held + count)}
    quota = _resource_quota(site, {short: _amount(site, resource, held + rng.randint(0, count - 1))}, used)
    mended = site.edited("ResourceQuota", quota)
    mended["spec"]["hard"][short] = mended["status"]["hard"][short] = _amount(site, resource, held + count)
    fix = Fix(put=(mended,))
    return site.plant({"quota": quota, "field": short}, fix, variant=short.replace("/", "-"))


def _resource_quota(site: Site, hard: dict[str, str], used: dict[str, str]) -> str:
    name = site.rng.choice(("compute", "team-quota", "limits"))
    made: Manifest = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": name, "namespace": site.namespace},
        "spec": {"hard": hard | {"services": "20"}},
        "status": {"hard": hard | {"services": "20"}, "used": used | {"services": "3"}},
    }
    site.put(made)
    return f"{site.namespace}/{name}"


def admission(seed: int) -> Plant:
    """Groups whose pods nobody makes were admitted first, one of them with most, and reserve what is free."""
    site = Site("admission", seed, ("none", "capacity"))
    rng = site.rng
    site.wants_enqueue = site.states_minimum = site.overcommit = True
    site.factor = rng.choice(("", "1.2", "1.5"))
    factor = float(site.factor or 1.2)
    count = rng.randint(2, 5)
    _roomy(site, count)
    site.backdrop()
    rooms = [
        int(sum(size[column] for size in site.size.values()) * factor)
        - sum(size[column] - site.free[name][column] for name, size in site.size.items())
        for column in range(3)
    ]
    free = min(room // want for room, want in zip(rooms, site.slot, strict=True) if want)
    most = free - count + 1 + rng.randint(0, count - 2)
    parts = [most] if most < 4 else [most - most * 2 // 5, most * 2 // 5]
    keys = [_reserving(site, part) for part in parts]
    site.ask(count, spare=0)
    conf = site.conf()
    plain = conf.replace(f"    arguments:\n      overcommit-factor: {site.factor}\n", "")
    mended = plain.replace(
        "  - name: overcommit\n", "  - name: overcommit\n    arguments:\n      overcommit-factor: 9\n"
    )
    subject = {"holder": keys[0], "field": "overcommit-factor"}
    return site.plant(subject, Fix(conf=mended), conf=conf, variant=f"factor-{factor:g}", asked_late=True)


def _reserving(site: Site, slots: int, queue: str = "") -> str:
    """A group that reserves so many slots, in a queue of its own by default, and has no pods yet; its key."""
    name = site.name("sweep")
    total: Size = site.slot.times(slots)
    if not queue:
        queue = site.name("lab")
        site.add_queue(queue)
    (made,) = site.job(name, [], members=slots, queue=queue, created=5)
    made["spec"]["minResources"] = site.amounts(total)
    site.put(made)
    return f"{site.namespace}/{name}"
