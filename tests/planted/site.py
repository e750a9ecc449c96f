"""Random clusters to plant a cause into: nodes of several kinds, queues, jobs that run, jobs that wait for something of
their own. All of it follows from the code and the seed."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple

from tests import dsl
from tests.planted.plant import Fix, Manifest, Named, Plant, Stage, group_of, key_of

GPU = "nvidia.com/gpu"
KINDS = ("none", "proportion", "capacity", "tree", "card")
"""Who minds queues: nobody, proportion, capacity without and with a hierarchy, capacity-card."""
TIGHT = tuple(kind for kind in KINDS if kind != "proportion")
"""For clusters without a rest: of those proportion takes from each queue what the smallest job that waits asks for."""
SYSTEM = {"pool": "system"}
MODELS = {"NVIDIA-A100-SXM4-80GB": 81920, "NVIDIA-H200": 143771, "Tesla-V100-PCIE-32GB": 32768}
"""Models of cards, and their memory in MiB."""
_WORDS = (
    "bert",
    "resnet50",
    "llama-ft",
    "etl",
    "whisper",
    "diffusion",
    "rank",
    "eval",
    "dlrm",
    "sim",
    "genome",
    "mnist",
)
_PEOPLE = ("", "-ann", "-bo", "-nightly", "-v2", "-sweep", "-large", "-debug")
_SELECTORS = (("tier", "a100"), ("node-pool", "train"), ("example.com/class", "fast"), ("team", "vision"))
_TINY = {"cpu": "50m", "memory": "64Mi"}


class Size(NamedTuple):
    """Amounts: cpu in thousandths, memory in Mi, whole GPUs."""

    cpu: int
    memory: int
    gpus: int = 0

    def plus(self, other: Size, times: int = 1) -> Size:
        """So much more; less where ``times`` is below zero."""
        return Size(*(mine + times * others for mine, others in zip(self, other, strict=True)))

    def times(self, count: int) -> Size:
        """So many of these."""
        return Size(*(amount * count for amount in self))

    def part(self, of_ten: int, gpus: int | None = None) -> Size:
        """So many tenths of it, GPUs rounded down unless given."""
        return Size(*(amount * of_ten // 10 for amount in self[:2]), self.gpus * of_ten // 10 if gpus is None else gpus)

    def within(self, room: Size) -> bool:
        """Whether it fits."""
        return all(mine <= others for mine, others in zip(self, room, strict=True))


NOTHING = Size(0, 0, 0)


class Site:
    """A cluster in the making. ``slot`` is what each pod of the asked job asks for; ``free`` what nodes have left."""

    def __init__(self, code: str, seed: int, kinds: Sequence[str] = KINDS, *, cards: bool | None = None) -> None:
        self.code, self.seed = code, seed
        self.rng = Random(f"{code} {seed}")
        self.kind = self.rng.choice(kinds)
        self.cards = self.rng.random() < 0.5 if cards is None else cards
        self.namespace = self.rng.choice(("default", "default", "ml", "team-a"))
        self.objects: dict[Named, Manifest] = {}
        self.free: dict[str, Size] = {}
        self.size: dict[str, Size] = {}
        self._numbers = itertools.count(self.rng.randrange(40))
        self._style = self.rng.choice(
            ("node-{:03}", "ip-10-0-3-{}.ec2.internal", "rack{}.dc1.example.com", "gke-w-{:04x}")
        )
        self._taken: set[str] = set()
        self.model = self.rng.choice(sorted(MODELS))
        self.slot = self._some_slot()
        self.label = self.rng.choice(_SELECTORS)
        self.actions = self.rng.choice(("allocate, backfill", "allocate, preempt, reclaim, backfill", "allocate"))
        self.wants_enqueue = self.rng.random() < 0.7
        self.overcommit = self.rng.random() < 0.4
        self.factor = ""
        self.volcano_shares = False
        self.more_plugins: list[str] = []
        self.asked, self.minimum, self.missing = "", 0, 0
        self.states_minimum = self.rng.random() < 0.6
        self.queue = self._first_queues()

    def _some_slot(self) -> Size:
        rng = self.rng
        if self.cards:
            return Size(1000 * rng.choice((2, 4, 6)), 1024 * rng.choice((8, 16, 30)), rng.choice((1, 2, 4)))
        return Size(rng.choice((2000, 3500, 4000, 7500)), 1024 * rng.choice((4, 10, 16)), 0)

    # --- names and amounts --------------------------------------------------------------------------------------------

    def name(self, stem: str = "") -> str:
        """A name that nothing has yet."""
        while True:
            name = (stem or self.rng.choice(_WORDS)) + self.rng.choice(_PEOPLE)
            if name in self._taken:
                name += f"-{self.rng.randrange(2, 99)}"
            if name not in self._taken:
                self._taken.add(name)
                return name

    def amounts(self, size: Size) -> dict[str, str]:
        """A size as a resource list, in one of the ways in which people write it."""
        cpu = f"{size.cpu}m" if size.cpu % 1000 or self.rng.random() < 0.3 else str(size.cpu // 1000)
        in_gi = size.memory % 1024 == 0 and self.rng.random() < 0.7
        memory = f"{size.memory // 1024}Gi" if in_gi else self.rng.choice((f"{size.memory}Mi", str(size.memory << 20)))
        return {"cpu": cpu, "memory": memory} | ({GPU: str(size.gpus)} if size.gpus else {})

    # --- queues -------------------------------------------------------------------------------------------------------

    def _first_queues(self) -> str:
        rng = self.rng
        self.parent = "root"
        for name in ("root", "default"):
            self.add_queue(name, parent="")
        if self.kind == "tree":
            self.parent = self.name(rng.choice(("research", "dept-7", "org")))
            self.add_queue(self.parent, parent="root")
        self.beside = ["default"]
        for stem in rng.sample(("web", "batch", "infra", "ops"), rng.randint(1, 3)):
            self.beside.append(self.name(stem))
            self.add_queue(self.beside[-1], parent="root", weight=rng.randint(1, 4))
        if self.kind != "tree" and rng.random() < 0.2:
            return "default"
        name = self.name(rng.choice(("ml", "vision", "nlp", "q-train")))
        self.add_queue(name, weight=rng.randint(1, 4))
        return name

    def add_queue(self, name: str, *, parent: str | None = None, state: str = "Open", **spec: Any) -> Manifest:
        """A queue; below the asked job's parent queue unless told otherwise, where there is a tree."""
        made = dsl.queue(name, state=state, **spec)
        above = self.parent if parent is None else parent
        if self.kind == "tree" and above:
            made["spec"]["parent"] = above
        if self.kind == "card":
            quotas = ", ".join(f'"{model}": 4000' for model in sorted(MODELS))
            made["metadata"]["annotations"] = {"volcano.sh/card.quota": f"{{{quotas}}}"}
        return self.put(made)

    def other_queue(self) -> str:
        """A queue beside the asked job's, in which work can run."""
        return self.rng.choice([name for name in self.beside if name != self.queue])

    def any_queue(self) -> str:
        """The asked job's queue or another one."""
        return self.queue if self.rng.random() < 0.4 else self.other_queue()

    def spec_of(self, queue: str) -> Manifest:
        """A queue's spec, to be added to."""
        spec: Manifest = self.objects["Queue", queue]["spec"]
        return spec

    # --- nodes --------------------------------------------------------------------------------------------------------

    def node(self, size: Size, labels: Mapping[str, str] = {}, **options: Any) -> str:
        """A node, empty."""
        name = self._style.format(next(self._numbers))
        own = dict(labels)
        if size.gpus:
            own |= {"nvidia.com/gpu.product": self.model, "nvidia.com/gpu.memory": str(MODELS[self.model])}
        own |= {"kubernetes.io/os": "linux", "node.kubernetes.io/instance-type": f"c{size.cpu // 1000}"}
        made = dsl.node(name, labels=own, **{**options, **self.amounts(size)})
        self.put(made)
        self.free[name] = self.size[name] = size
        return name

    def fleet(self, count: int, *, slots: int = 0, labels: Mapping[str, str] = {}, **options: Any) -> list[str]:
        """Nodes with room for ``slots`` pods like the asked ones (some two to four), and a rest that takes none."""
        most = {0: 4, 1: 8, 2: 4, 4: 2}[self.slot.gpus if self.cards else 0]
        found = []
        for _ in range(count):
            whole = self.slot.times(slots or self.rng.randint(2, max(most, 2)))
            found.append(self.node(whole.plus(self.crumbs()), labels, **options))
        return found

    def crumbs(self) -> Size:
        """Some cpu and memory, less than a pod needs."""
        return Size(self.slot.cpu * self.rng.randint(0, 3) // 10, self.slot.memory * self.rng.randint(0, 3) // 10)

    def leave(self, rooms: Mapping[str, Size], *, own: bool = False) -> str:
        """Fill nodes until so much is free on each, most of it by one job, whose key is returned; or by one for each
        node (``own``)."""
        nodes = [name for name in rooms if self.free[name] != rooms[name]]
        beside = set() if len(nodes) < 4 else set(self.rng.sample(nodes, len(nodes) // 4))
        most = [name for name in nodes if name not in beside]
        jobs = [[name] for name in nodes] if own else [most, *([name] for name in sorted(beside))]
        keys = [self._filling(some, rooms) for some in jobs if some]
        return keys[0] if keys else ""

    def _filling(self, nodes: Sequence[str], rooms: Mapping[str, Size]) -> str:
        pods = []
        for name in nodes:
            taken = self.free[name].plus(rooms[name], -1)
            assert min(taken) >= 0, (name, taken)
            parts = 2 if taken.gpus != 1 and self.rng.random() < 0.5 else 1
            half = Size(taken.cpu // 2, taken.memory // 2, taken.gpus // 2)
            pods += [(name, half), (name, taken.plus(half, -1))] if parts == 2 else [(name, taken)]
        return self.run(pods, queue=self.any_queue())

    def filled(self, nodes: Iterable[str], slots: int) -> dict[str, Size]:
        """What to leave on nodes, so that in all so many pods like the asked ones find room."""
        left, rooms = slots, {}
        for name in nodes:
            here = min(left, self.holds(name))
            left -= here
            rooms[name] = self.slot.times(here)
        assert left == 0, "nodes for so many slots"
        return rooms

    def holds(self, name: str) -> int:
        """How many pods like the asked ones an empty node takes."""
        size = self.size[name]
        return min(have // want for have, want in zip(size, self.slot, strict=True) if want)

    # --- jobs ---------------------------------------------------------------------------------------------------------

    def put(self, manifest: Manifest) -> Manifest:
        """Have an object in the cluster from the start."""
        self.objects[manifest["kind"], key_of(manifest)] = manifest
        return manifest

    def job(
        self, name: str, sizes: Sequence[Size], *, on: Sequence[str] = (), queue: str = "", members: int | None = None,
        namespace: str = "", created: int = 0, group: Mapping[str, Any] = {}, spec: Mapping[str, Any] = {},
        marks: Mapping[str, str] = {}, labels: Mapping[str, str] = {}, minimum: bool = False, priority: str = "",
        deleting: bool = False,
    ) -> list[Manifest]:  # fmt: skip
        """A group and its pods, which run on the nodes ``on`` or wait; ``marks`` are the pods' annotations."""
        count = len(sizes) if members is None else members
        where = namespace or self.namespace
        queued = {"queue": queue or self.queue, "namespace": where, "members": count, "created": created}
        fields = {**group, **({"priorityClassName": priority} if priority else {})}
        made = dsl.group(name, phase="Running" if on else "Pending", **queued, **fields)  # type: ignore[arg-type]
        if minimum and sizes:
            made["spec"]["minResources"] = self._min_resources(sizes[:count])
        own = {**spec, **({"priorityClassName": priority} if priority else {})}
        return [
            made,
            *(
                dsl.pod(
                    f"{name}-{i}", group=name, on=on[i] if on else "", namespace=where, created=created,
                    labels={"volcano.sh/job-name": name, **labels}, annotations=dict(marks), spec=copy.deepcopy(own),
                    requests=self.amounts(size), deleting=deleting,
                )
                for i, size in enumerate(sizes)
            ),
        ]  # fmt: skip

    def _min_resources(self, sizes: Sequence[Size]) -> dict[str, str]:
        total = NOTHING
        for size in sizes:
            total = total.plus(size)
        plain = self.amounts(total)
        if self.rng.random() < 0.5:
            return plain
        return plain | {f"requests.{name}": text for name, text in plain.items()} | {"count/pods": str(len(sizes))}

    def run(self, pods: Sequence[tuple[str, Size]], *, queue: str, **options: Any) -> str:
        """A job that runs on these nodes; its key."""
        name = options.pop("name", "") or self.name()
        for node, size in pods:
            self.free[node] = self.free[node].plus(size, -1)
            assert min(self.free[node]) >= 0, (node, self.free[node])
        sizes, on = [size for _, size in pods], [node for node, _ in pods]
        if "reclaim" in self.actions:  # else who waits helps itself
            options["marks"] = {"volcano.sh/preemptable": "false", **options.get("marks", {})}
        for manifest in self.job(name, sizes, on=on, queue=queue, created=self.rng.randint(1, 50), **options):
            self.put(manifest)
        return f"{options.get('namespace') or self.namespace}/{name}"

    def ask(self, count: int, *, size: Size | None = None, spare: int | None = None, **options: Any) -> str:
        """The job that is asked about: ``count`` pods at least; its key."""
        name = self.name()
        more = self.rng.choice((0, 0, 1)) if spare is None else spare
        sizes = [size or self.slot] * (count + more)
        options = {"minimum": self.states_minimum, "members": count, **options}
        for manifest in self.job(name, sizes, **{"created": 60, **options}):
            self.put(manifest)
        self.asked, self.minimum = f"{self.namespace}/{name}", count
        return self.asked

    def pods_of(self, key: str) -> list[Manifest]:
        """A job's pods, each a copy to be edited."""
        names = [("Pod", f"{key}-{i}") for i in range(100)]
        return [copy.deepcopy(self.objects[name]) for name in names if name in self.objects]

    def edited(self, kind: str, key: str) -> Manifest:
        """A copy of an object, to be edited."""
        return copy.deepcopy(self.objects[kind, key])

    # --- what else there is -------------------------------------------------------------------------------------------

    def backdrop(self) -> None:
        """Nodes too small for the asked pods, with what runs there, what vcd places there, and who else waits."""
        rng = self.rng
        small = self.slot.part(6, gpus=0)
        count = rng.choice((1, 2, 3, 5, 8, 25))
        names = []
        for number in range(count):
            head = number < min(count - 1, 3) and rng.random() < 0.4
            taint = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}
            name = self.node(small, {} if head else SYSTEM, taints=[taint] if head else [])
            if not head:
                names.append(name)
            elif not self.cards:
                self._serve([name])
        self._serve(names)
        self._settle()
        for made in rng.sample(WAITING, rng.randint(1, len(WAITING))):
            made(self)

    def _serve(self, names: Sequence[str]) -> None:
        """Services fill these nodes, but for a little."""
        for some in (names[::2], names[1::2]):
            spare = {name: Size(10, 20) if number else Size(120, 180) for number, name in enumerate(some)}
            pods = [(name, self.free[name].plus(spare[name], -1)) for name in some]
            if pods:
                self.run(pods, queue=self.other_queue(), namespace="default", labels={"app": "web"})

    def _settle(self) -> None:
        """A small job that vcd places first, on what services leave."""
        name = self.name("cron")
        made = self.job(name, [Size(50, 64)] * 2, queue=self.other_queue(), spec={"nodeSelector": SYSTEM}, members=1)
        for manifest in made:
            self.put(manifest)
        # proportion may have nothing left for the queue of services
        self.settled = "" if self.kind == "proportion" else f"{self.namespace}/{name}"

    def waiter(self, stem: str, **options: Any) -> list[Manifest]:
        """A small job that waits for something of its own."""
        made = self.job(
            self.name(stem), [Size(100, 128)] * self.rng.randint(1, 3), created=self.rng.choice((30, 90)),
            **{"queue": self.any_queue(), "namespace": self.rng.choice(("default", self.namespace)), **options},
        )  # fmt: skip
        for manifest in made:
            self.put(manifest)
        return made

    # --- the configuration --------------------------------------------------------------------------------------------

    def conf(self) -> str:
        """The configuration's text."""
        first = ["priority", "gang", *(["conformance"] if self.rng.random() < 0.5 else [])]
        second = [*(["overcommit"] if self.overcommit else []), *(["drf"] if self.rng.random() < 0.3 else [])]
        second += ["predicates", *self.more_plugins, *_QUEUE_PLUGINS[self.kind]]
        second += self.rng.choice(([], ["nodeorder"], ["binpack"], ["nodeorder", "binpack"]))
        text = f'actions: "{"enqueue, " if self.wants_enqueue else ""}{self.actions}"\ntiers:\n'
        for tier in (first, second):
            text += "- plugins:\n" + "".join(f"  - name: {name}\n{self._options(name)}" for name in tier)
        return text

    def _options(self, plugin: str) -> str:
        if plugin == "capacity" and self.kind == "tree":
            return "    enableHierarchy: true\n"
        if plugin == "proportion" and self.volcano_shares:
            return "    arguments:\n      volcanoSharesEnable: true\n"
        if plugin == "overcommit" and self.factor:
            return f"    arguments:\n      overcommit-factor: {self.factor}\n"
        return ""

    # --- the plant ----------------------------------------------------------------------------------------------------

    def plant(
        self, subject: Mapping[str, str | tuple[str, ...]], fix: Fix, *, variant: str = "", later: Sequence[Stage] = (),
        conf: str = "", asked_late: bool = False,
    ) -> Plant:  # fmt: skip
        """What was planted, as it is now; ``asked_late``: the job comes once all else is at rest."""
        mine = [m for m in self.objects.values() if asked_late and self.asked in (key_of(m), group_of(m))]
        if mine:
            later = [Stage(tuple(mine)), *later]
        there = tuple(manifest for manifest in self.objects.values() if manifest not in mine)
        stages = (Stage(there, seconds=20 if later else 600, runs=(self.settled,) if self.settled else ()), *later)
        expected = {role: (text,) if isinstance(text, str) else text for role, text in subject.items()}
        everywhere = [manifest for stage in stages for manifest in stage.put]
        spaces = sorted({manifest["metadata"].get("namespace", "default") for manifest in everywhere})
        return Plant(
            self.code, self.seed, conf or self.conf(), self.asked, self.minimum, stages, expected, fix, variant,
            tuple(spaces),
        )  # fmt: skip


_QUEUE_PLUGINS = {
    "none": [],
    "proportion": ["proportion"],
    "capacity": ["capacity"],
    "tree": ["capacity"],
    "card": ["capacity-card"],
}


def _waits_for_a_claim(site: Site) -> None:
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": f"gone-{site.rng.randrange(99)}"}}]
    site.waiter("claimless", spec={"volumes": volumes})


def _waits_for_a_label(site: Site) -> None:
    site.waiter("typo", spec={"nodeSelector": {"disktype": "sssd"}})


def _waits_at_a_gate(site: Site) -> None:
    site.waiter("held", spec={"schedulingGates": [{"name": "example.com/approval"}]})


def _waits_for_a_queue(site: Site) -> None:
    site.waiter("nowhere", queue="no-such-queue")


def _waits_for_pods(site: Site) -> None:
    site.waiter("short", members=9)


WAITING = (_waits_for_a_claim, _waits_for_a_label, _waits_at_a_gate, _waits_for_a_queue, _waits_for_pods)
