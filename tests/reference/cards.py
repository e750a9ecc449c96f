"""The plugin deviceshare: pods share cards, card by card; vGPU (hami-core and MIG), GPU sharing, GPU number."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from typing import Any

import yaml

from tests.reference.config import Arguments
from tests.reference.model import ALLOCATED, Node, Task, annotations_of, quantities
from tests.reference.session import PredicateFailure, Session
from tests.reference.values import quantity, whole

REGISTER, IDS, INDEX = "volcano.sh/node-vgpu-register", "volcano.sh/vgpu-ids-new", "volcano.sh/gpu-index"
GPU_MEMORY, GPU_NUMBER = "volcano.sh/gpu-memory", "volcano.sh/gpu-number"
UNHEALTHY = "volcano.sh/gpu-unhealthy-ids"
MANY = 2**31
SERVED_WITHIN = 300
"""Seconds after which nobody waits for a device plugin any more."""


@dataclass
class Instance:
    """One place of a way to cut a card: the group's number and name, its position there, its memory."""

    group: int
    name: str
    position: int
    memory: int


@dataclass
class Card:
    """A card of a node; ``cuts`` are the places of all ways to cut a MIG card."""

    name: str
    memory: int
    slots: int
    kind: str = ""
    healthy: bool = True
    cuts: list[Instance] = field(default_factory=list)


@dataclass
class Want:
    """What one container asks of each of so many cards; ``percent`` of its memory goes before ``memory``."""

    number: int
    memory: int
    percent: int | None = None
    cores: int = 0
    alone: bool = False

    def of(self, card: Card) -> int:
        return self.memory if self.percent is None else card.memory * self.percent // 100


@dataclass
class Share:
    """A share of a card: its place on the node, what was asked, what it takes, which place of a MIG card."""

    container: int
    place: int
    name: str
    memory: int
    cores: int
    takes: int
    cut: tuple[int, int] | None = None


@dataclass
class Holder:
    """A task on a node with what it has of the node's cards."""

    task: Task
    node: str
    shares: list[Share]
    time: int | None = None
    """When it was bound, in seconds, while its device plugin has not handed it its cards."""

    @property
    def waits(self) -> bool:
        return self.task.status == "Pipelined"

    @property
    def leaves(self) -> bool:
        return self.task.status not in (*ALLOCATED, "Pipelined")


class _Config:
    """What of the device plugin's ConfigMap matters."""

    def __init__(self, session: Session) -> None:
        found = session.cluster.find("ConfigMap", "kube-system/volcano-vgpu-device-config") or {}
        nvidia = (yaml.safe_load((found.get("data") or {}).get("device-config.yaml") or "") or {}).get("nvidia") or {}
        self.names = [
            nvidia.get(key) or f"volcano.sh/vgpu-{name}"
            for key, name in (
                ("resourceCountName", "number"),
                ("resourceMemoryName", "memory"),
                ("resourceMemoryPercentageName", "memory-percentage"),
                ("resourceCoreName", "cores"),
            )
        ]
        self.factor = max(1, nvidia.get("gpuMemoryFactor") or 1)
        self.models = nvidia.get("knownMigGeometries") or []

    def cuts(self, kind: str) -> list[Instance]:
        for entry in self.models:
            if any(model in kind for model in entry["models"]):
                found = []
                for number, way in enumerate(entry["allowedGeometries"]):
                    places = [one["memory"] for one in way["geometries"] for _ in range(one["count"])]
                    found += [Instance(number, way["group"], i, memory) for i, memory in enumerate(places)]
                return found
        return []


class Cards:
    """The cards of all nodes and who holds them."""

    def __init__(self, session: Session, arguments: Arguments) -> None:
        self.session = session
        on = [n for n in ("VGPU", "GPUSharing", "GPUNumber") if arguments.boolean(f"deviceshare.{n}Enable", False)]
        self.kind = on[0] if on else ""
        self.policy = arguments.text("deviceshare.SchedulePolicy", "")
        self.rules: list[dict[str, str]] = arguments.values.get("deviceshare.GPUExclusiveRules") or []
        self.locks = arguments.boolean("deviceshare.NodeLockEnable", False) and self.kind == "VGPU"
        self.config = _Config(session)
        self.now = int((session.now - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)).total_seconds())
        read = self._registered if self.kind == "VGPU" else self._counted
        self.mig: dict[str, bool] = {}
        self.cards = {node.name: read(node) for node in session.cluster.nodes.values()}
        self.holders: dict[str, Holder] = {}
        for node in session.cluster.nodes.values():
            for task, _ in node.tasks.values():
                if self.wants(task):
                    self.holders[task.key] = Holder(task, node.name, self._read(task, node.name))
                    self.holders[task.key].time = self._time(self.holders[task.key])

    # -- what there is ------------------------------------------------------------

    def _registered(self, node: Node) -> list[Card]:
        text = annotations_of(node.manifest).get(REGISTER) or ""
        offers = all(node.listed.get(name, 0) > 0 for i, name in enumerate(self.config.names) if i != 2)
        found = []
        for entry in text.split(":") if offers else ():
            if "," in entry:
                name, slots, memory, kind, health, mode = entry.split(",")
                cuts = self.config.cuts(kind) if mode == "mig" else []
                self.mig[node.name] = bool(cuts)
                found.append(Card(name, int(memory), int(slots), kind, health == "true" and "NVIDIA" in kind, cuts))
        return found

    def _counted(self, node: Node) -> list[Card]:
        listed = quantities((node.manifest.get("status") or {}).get("capacity"))
        number = whole(listed.get(GPU_NUMBER, quantity(0))) if GPU_MEMORY in listed else 0
        ill = (annotations_of(node.manifest).get(UNHEALTHY) or "").split(",")
        return [
            Card(str(i), whole(listed[GPU_MEMORY]) // number, MANY, healthy=str(i) not in ill) for i in range(number)
        ]

    def wants(self, task: Task) -> list[Want]:
        """What a pod's containers ask for; raises ValueError for what no card has."""
        containers = task.spec.get("containers") or []

        def stated(container: dict[str, Any], name: str) -> int | None:
            resources = container.get("resources") or {}
            value = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}.get(name)
            return None if value is None else whole(quantity(value))

        if self.kind != "VGPU":
            name = GPU_NUMBER if self.kind == "GPUNumber" else GPU_MEMORY
            each, first = (
                [stated(one, name) or 0 for one in task.spec.get(key) or []] for key in ("containers", "initContainers")
            )
            amount = max(sum(each), max(first, default=0)) if self.kind else 0
            if not amount:
                return []
            return [Want(amount, 0, alone=True)] if self.kind == "GPUNumber" else [Want(1, amount)]
        found = []
        for container in containers:
            number, memory, percent, cores = (stated(container, name) for name in self.config.names)
            if number is not None or memory is not None:
                if percent is None and not memory:
                    percent = 100
                if number != 0:
                    found.append(Want(number or 1, memory or 0, percent, cores or 0, cores == 100))
        return found

    # -- who has what -------------------------------------------------------------

    def _read(self, task: Task, node: str) -> list[Share]:
        """What a placed pod's annotation says that it has."""
        marks, cards = annotations_of(task.pod), self.cards[node]
        places = {card.name: place for place, card in enumerate(cards)}
        found = []
        if self.kind != "VGPU":
            memory = self.wants(task)[0].memory
            names = dict.fromkeys((marks.get(INDEX) or "").split(","))
            return [Share(0, places[name], name, memory, 0, memory) for name in names if name in places]
        for container, part in enumerate((marks.get(IDS) or "").split(";")):
            for entry in filter(None, part.split(":")):
                name, _, memory, cores = entry.split(",")
                uuid, _, position = name.partition("[")
                if uuid in places:
                    share = Share(container, places[uuid], name, int(memory), int(cores), int(memory))
                    for cut in cards[places[uuid]].cuts:
                        if position == f"{cut.name}-{cut.position}]":
                            share.cut, share.takes = (cut.group, cut.position), cut.memory // self.config.factor
                    found.append(share)
        return found

    def _time(self, holder: Holder) -> int | None:
        marks = annotations_of(holder.task.pod)
        phase = (holder.task.pod.get("status") or {}).get("phase") or "Pending"
        if not holder.shares or phase != "Pending" or marks.get("volcano.sh/bind-phase") != "allocating":
            return None
        time = int(marks.get("volcano.sh/bind-time") or 0)
        return None if time > self.now + SERVED_WITHIN else time

    def busy(self, node: str) -> bool:
        """Whether a node's device plugin still has to hand cards to somebody."""
        times = [one.time for one in self.holders.values() if one.node == node and not one.waits]
        return any(time is not None and time >= self.now - SERVED_WITHIN for time in times)

    # -- what a task would get ----------------------------------------------------

    def marks(self, task: Task) -> set[str]:
        """What a task leaves on its cards that others may mind."""
        rules = {
            f"rule {i}"
            for i, rule in enumerate(self.rules)
            if all(task.labels.get(key) == value for key, value in rule.items())
        }
        return {*rules, f"group {task.job}"} if self.kind == "VGPU" else set()

    def avoids(self, task: Task, mig: bool) -> set[str]:
        spreads = annotations_of(task.pod).get("volcano.sh/vgpu-podgroup-policy") == "spread"
        return {
            mark
            for mark in self.marks(task)
            if (mark.startswith("rule") and not mig) or (mark.startswith("group") and spreads)
        }

    def may(self, task: Task, card: Card) -> bool:
        """Whether a card is of the kind that a pod wants."""
        marks = annotations_of(task.pod) if self.kind == "VGPU" else {}

        def listed(name: str) -> list[str]:
            return [word.strip() for word in (marks.get(name) or "").split(",") if word.strip()]

        wanted, unwanted = listed("nvidia.com/use-gputype"), listed("nvidia.com/nouse-gputype")
        kind = card.kind.upper()
        if wanted and not any(word.upper() in kind for word in wanted):
            return False
        if not wanted and any(word.upper() in kind for word in unwanted):
            return False
        only, never = listed("volcano.sh/vgpu-use-gpuuuid"), listed("volcano.sh/vgpu-nouse-gpuuuid")
        return card.healthy and (not only or card.name in only) and card.name not in never

    def plan(self, task: Task, node: str, later: bool) -> tuple[list[Share], float] | None:
        """The shares that a task would get, now or once who leaves is gone and who waits is there, and their points.

        For now a card is as full as it is at one time or the other.
        """
        cards, mig = self.cards[node], self.mig.get(node, False)
        mode = annotations_of(task.pod).get("volcano.sh/vgpu-mode")
        if self.kind == "VGPU" and mode and mode != ("mig" if mig else "hami-core"):
            return None
        here = [one for one in self.holders.values() if one.node == node]
        after = [one for one in here if not one.leaves]
        sides = [after] if later else [after, [one for one in here if not one.waits]]
        barred = {
            share.place
            for side in sides
            for one in side
            for share in one.shares
            if self.marks(one.task) & self.avoids(task, mig)
        }

        def most(place: int, amount: str) -> int:
            def of(share: Share) -> int:
                return 1 if amount == "pods" else int(getattr(share, amount))

            return max(sum(of(s) for one in side for s in one.shares if s.place == place) for side in sides)

        memory, pods, cores = ({i: most(i, name) for i in range(len(cards))} for name in ("takes", "pods", "cores"))
        taken = {(s.place, s.cut) for side in sides for one in side for s in one.shares if s.cut is not None}
        found, points = [], 0.0
        for container, want in enumerate(self.wants(task)):
            left = want.number
            for place in self._order(memory, pods):
                card, need = cards[place], want.of(cards[place])
                fits = card.slots > pods[place] and card.memory - memory[place] >= need
                fits = fits and cores[place] + want.cores <= 100 and not (want.alone and pods[place])
                fits = fits and not (cores[place] == 100 and not want.cores and not want.alone)
                if not left or place in barred or not fits or not self.may(task, card):
                    continue
                share = Share(container, place, card.name, need, want.cores, need)
                if mig:
                    cut = self._cut(card, place, {c for p, c in taken if p == place and c is not None}, need)
                    if cut is None:
                        continue
                    share.cut, share.takes = (cut.group, cut.position), cut.memory // self.config.factor
                    share.name = f"{card.name}[{cut.name}-{cut.position}]"
                    taken.add((place, share.cut))
                if self.policy == "binpack" and card.memory and self.kind == "VGPU":
                    points += (100 * 10**6 * (memory[place] + share.takes) // card.memory) / 10**6
                elif self.policy == "spread" and not pods[place] and self.kind == "VGPU":
                    points += 100
                memory[place] += share.takes
                pods[place] += 1
                cores[place] += want.cores
                found.append(share)
                left -= 1
            if left:
                return None
        return found, points

    def _order(self, memory: dict[int, int], pods: dict[int, int]) -> list[int]:
        if self.kind != "VGPU":
            return sorted(memory)
        if self.policy == "binpack":
            return sorted(memory, key=lambda place: (-memory[place], place))
        if self.policy == "spread":
            return sorted(memory, key=lambda place: (pods[place], place))
        return sorted(memory, reverse=True)

    def _cut(self, card: Card, place: int, taken: set[tuple[int, int]], need: int) -> Instance | None:
        """The smallest free place with enough memory, of the way in which a card is cut or else of the first that
        has one."""
        groups = sorted({group for group, _ in taken}) or sorted({cut.group for cut in card.cuts})
        for group in groups:
            free = [
                cut
                for cut in card.cuts
                if cut.group == group and (group, cut.position) not in taken and cut.memory >= need * self.config.factor
            ]
            if free:
                return min(free, key=lambda cut: (cut.memory, cut.position))
        return None


def deviceshare(session: Session, arguments: Arguments) -> None:
    """Each share must fit its card."""
    cards, weight = Cards(session, arguments), arguments.integer("deviceshare.ScheduleWeight", 0)

    def pre_predicate(task: Task) -> None:
        if any(want.cores > 100 or (want.percent or 0) > 100 for want in cards.wants(task)):
            raise PredicateFailure("more than a whole card")

    def best(task: Task, node: Node) -> tuple[list[Share], float] | None:
        now = cards.plan(task, node.name, later=False)
        if now is not None or (task.request.fits(node.idle) and not session.may_wait):
            return now
        return cards.plan(task, node.name, later=True)

    def predicate(task: Task, node: Node) -> list[str]:
        if not cards.wants(task):
            return []
        if best(task, node) is None:
            return ["no card with enough room"]
        if cards.locks and cards.busy(node.name) and task.request.fits(node.idle):
            return ["device plugin is busy"]
        return []

    def score(task: Task, nodes: list[Node]) -> dict[str, float]:
        if not cards.wants(task):
            return {}
        plans = {node.name: best(task, node) for node in nodes}
        return {name: weight * int((plan[1] if plan else 0) + 0.5) for name, plan in plans.items()}

    def allocate(task: Task) -> bool:
        """Hand out cards; refuses a placement for which there are none."""
        if task.key in cards.holders or not cards.wants(task):
            return False
        plan = cards.plan(task, task.node, later=task.status == "Pipelined")
        if plan is None:
            return True
        time = cards.now if task.status == "Allocated" and plan[0] else None
        cards.holders[task.key] = Holder(task, task.node, plan[0], time)
        return False

    def deallocate(task: Task) -> None:
        if not task.evicted:
            cards.holders.pop(task.key, None)

    def annotations(task: Task) -> dict[str, str]:
        held = cards.holders.get(task.key)
        if held is None or held.time is None:
            return {}
        if cards.kind != "VGPU":
            return {INDEX: ",".join(share.name for share in held.shares)}
        groups = [
            "".join(f"{s.name},NVIDIA,{s.memory},{s.cores}:" for s in held.shares if s.container == number)
            for number in range(len(cards.wants(task)))
        ]
        return {IDS: ";".join(groups)}

    def kind(task: Task) -> Any:
        return [value for name, value in sorted(annotations_of(task.pod).items()) if "gpu" in name]

    session.handlers.append((allocate, deallocate))
    session.register("prePredicate", "deviceshare", pre_predicate)
    session.register("predicate", "deviceshare", predicate)
    session.register("bindAnnotations", "deviceshare", annotations)
    session.register("kind", "deviceshare", kind)
    if weight > 0 and "predicate" not in session.option("deviceshare").off:
        session.register("nodeOrder", "deviceshare", score)
