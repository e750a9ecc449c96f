"""deviceshare: schedule pods that share GPU cards, card by card (Volcano ``plugins/deviceshare``)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache, partial

import msgspec
import numpy as np

from vcd.model.objects import Pod
from vcd.model.reasons import MEND_NAMED, Cause, Reason, ReasonCode
from vcd.model.status import ALLOCATED_STATUSES, TaskStatus
from vcd.scheduling.framework.arguments import Argument, ArgumentError, ArgumentValues
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.plugins.deviceshare import gpushare, vgpu
from vcd.scheduling.plugins.deviceshare.assignments import Assignments
from vcd.scheduling.plugins.deviceshare.card_limits import CardLimits
from vcd.scheduling.plugins.deviceshare.shared_card_rules import CardScore, OneAtATime, SharedCards
from vcd.scheduling.plugins.deviceshare.shared_cards import Cards, Piece, PodRequest, Request
from vcd.scheduling.plugins.deviceshare.sharing import Fittings, Sharing
from vcd.scheduling.search.parts import ANY_KEY, Mask, Predicate, Score
from vcd.scheduling.session.gauges import Gauge
from vcd.scheduling.session.queue_view import Queue
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task
from vcd.state.records import Shape

_UNREADABLE = ReasonCode("card-request-unreadable", Cause.INVALID, "{error}", mend=MEND_NAMED)
_NO_NPUS = ReasonCode(
    "npu-unsupported",
    Cause.UNSUPPORTED,
    "asks for {name}: Ascend vNPU is not supported; let another scheduler place this pod, or turn off {switch} where "
    "{name} is a plain resource",
    mend="take the field away, or give the pods to a scheduler that knows it",
)

_RULES = "deviceshare.GPUExclusiveRules"
_LOCK = "NodeLockEnable"
_MIND, _HAMI = "AscendMindClusterVNPU", "AscendHAMiVNPU"
_NPU_CORES = "huawei.com/npu-core"
_NPUS_WAIT = "Not supported: pods that request virtual Ascend NPUs wait, with a reason that names it."


class _Holding(msgspec.Struct):
    """A placed pod's shares of its node's cards, and the quantities that its queue is charged.

    ``releasing``: the pod is terminating, and its queue is no longer charged. ``waiting``: it is Pipelined. ``time``:
    when it was bound, while its node's device plugin has not assigned the cards yet.
    """

    row: int
    pieces: tuple[Piece, ...]
    marks: tuple[str, ...]
    queue: int
    memory: int
    cores: int
    releasing: bool = False
    waiting: bool = False
    time: int | None = None


def _switch(name: str, doc: str, caution: str = "") -> Argument:
    return Argument(f"deviceshare.{name}", "bool", False, doc, caution=caution)


class DeviceSharePlugin(Plugin):
    """Place pods on shared cards: each share must fit its card, and the bind names the cards for the device plugin.

    - vGPU: each container that requests ``volcano.sh/vgpu-number`` (1 if it requests only memory) gets that many cards
      of its node. On each card it gets ``vgpu-memory`` MB, or ``vgpu-memory-percentage`` of the card's memory (all of
      it if neither is requested), and ``vgpu-cores`` percent. A share fits a card if fewer pods share it than it
      allows, memory used + requested <= memory, and cores used + requested <= 100. 100 cores need an unused card. Cards
      come from the node's annotation ``volcano.sh/node-vgpu-register``; unhealthy cards get no pods. On MIG nodes a
      share is the smallest free instance with enough memory. Cards registered as mps count as hami-core.
    - GPU sharing: ``volcano.sh/gpu-memory`` of one card, the first with enough memory.
    - GPU number: ``volcano.sh/gpu-number`` unused cards.

    With ScheduleWeight, a node scores weight x the sum over the chosen cards of 100 x memory used / memory, with the
    pod (binpack), or of 100 for each unused card (spread). The policy also orders a node's cards. A queue's capability
    of vgpu-memory and vgpu-cores, its own or an ancestor's, limits the sum over cards: number x share.

    The choice is written in the bind call. The device plugin serves the pods of its node in the order of their bind
    times, so each pod gets a distinct time; see NodeLockEnable for one pod at a time. MIG needs the geometries of the
    device plugin's ConfigMap; cards of models that it does not name are shared as hami-core.

    With ``enablePredicate: false``, nodes are neither filtered nor scored by their cards, and a placement on a node
    without suitable cards is refused.

    Ascend vNPU is not supported. With one of its switches, pods that request virtual NPUs (``huawei.com/npu-core``; the
    resources that the ConfigMap's vnpus name) are not scheduled, because their device plugin would not know the
    assignment. Source: Volcano ``plugins/deviceshare``, ``api/devices/nvidia``.
    """

    name = "deviceshare"
    timed = f"deviceshare.{_LOCK}"
    kinds = (vgpu.CONFIG_MAP,)
    keys = (
        ANY_KEY,
        vgpu.REGISTER,
        vgpu.MODE,
        vgpu.GROUP_POLICY,
        vgpu.USE_TYPE,
        vgpu.NO_TYPE,
        vgpu.USE_UUID,
        vgpu.NO_UUID,
        vgpu.ASSIGNED_IDS,
        gpushare.GPU_INDEX,
        gpushare.UNHEALTHY,
    )
    arguments = (
        _switch("VGPUEnable", "Whether vGPU cards are shared; not together with the two others."),
        _switch("GPUSharingEnable", "Whether pods share cards by `volcano.sh/gpu-memory`."),
        _switch("GPUNumberEnable", "Whether pods get whole cards by `volcano.sh/gpu-number`."),
        _switch(
            _LOCK,
            "Whether a node gets the next pod with shared cards only when the device plugin has served the previous "
            "one, or after five minutes. A gang can then start only one such pod per node.",
        ),
        _switch(f"{_MIND}Enable", _NPUS_WAIT, caution=_NPUS_WAIT),
        _switch(f"{_HAMI}Enable", _NPUS_WAIT, caution=_NPUS_WAIT),
        Argument(
            "deviceshare.SchedulePolicy",
            "str",
            "",
            "Which vGPU cards are filled first, and which nodes get points: those with the most memory in use, or "
            "those with the fewest pods.",
            choices=("binpack", "spread", ""),
        ),
        Argument("deviceshare.ScheduleWeight", "int", 0, "Weight of the score; none at 0 or below."),
        Argument(
            _RULES,
            "list",
            (),
            "Rules of labels; pods that match all labels of one rule share no vGPU card with each other.",
            fields=(Argument("<label>", "scalar", "", "The label's value."),),
        ),
        Argument(
            "deviceshare.KnownGeometriesCMName",
            "str",
            "volcano-vgpu-device-config",
            "The ConfigMap with the device plugin's configuration, for MIG.",
        ),
        Argument(
            "deviceshare.KnownGeometriesCMNamespace",
            "str",
            "kube-system",
            "The namespace of that ConfigMap. Another namespace or name needs a Role; `vcd conf rbac` prints it.",
        ),
    )

    def __init__(self, arguments: ArgumentValues) -> None:
        super().__init__(arguments)
        switches = [name for name in ("VGPU", "GPUSharing", "GPUNumber") if arguments[f"deviceshare.{name}Enable"]]
        for name in switches[1:]:
            other = f"false where deviceshare.{switches[0]}Enable is true"
            raise ArgumentError(f"deviceshare.{name}Enable", True, other)
        self._kind = switches[0] if switches else ""
        self._rules = [_rule(entry) for entry in arguments[_RULES]]

    # --- opening ------------------------------------------------------------------------------------------------------

    def open(self, session: Session) -> None:
        """Read the nodes' cards and the placed pods' shares, if any pod requests cards."""
        self._session = session
        self._pod_requests: dict[int, PodRequest | None] = {}
        self._holdings: dict[int, _Holding] = {}
        self._marks: dict[str, None] = {}
        self._config = vgpu.device_config(self._config_text(session))
        self._requested = cache(partial(_requests_of, self._kind, self._config))
        self._npus = (
            *((_NPU_CORES,) if self.values[f"deviceshare.{_MIND}Enable"] else ()),
            *(self._config.npus if self.values[f"deviceshare.{_HAMI}Enable"] else ()),
        )
        requesting = session.shape_flags(lambda shape: bool(self._requested(shape)))
        self.active = bool(self._kind) and bool(requesting.any())
        names = (self._config.memory, self._config.cores) if self.active and self._kind == "VGPU" else ()
        self.limits = CardLimits(session, names)
        self._cards = self._read_cards(session) if self.active else Cards([], [], [])
        order = {"VGPU": self.values["deviceshare.SchedulePolicy"] or "last"}.get(self._kind, "first")
        self._sharing = Sharing(self._cards, order, self._config.factor)
        self.fittings = session.provide(Fittings(self._sharing, self.request_of))
        self._assignments = Assignments(session.nodes.facts, session.now, vgpu_cards=self._kind == "VGPU")
        if self.active:
            self._read_requests(session, requesting)
            self._read_placed(session, requesting)

    def _config_text(self, session: Session) -> str | None:
        parts = ("deviceshare.KnownGeometriesCMNamespace", "deviceshare.KnownGeometriesCMName")
        key = "/".join(self.values[part] for part in parts)
        found = session.objects(vgpu.CONFIG_MAP.name, vgpu.DeviceConfigMap).get(key)
        return None if found is None else found.data.device_config

    def _read_cards(self, session: Session) -> Cards:
        facts, config = session.nodes.facts, self._config
        if self._kind == "VGPU":
            cards: Cards = facts.cached(("vgpu cards", config), lambda: vgpu.vgpu_cards(facts.nodes, config))
        else:
            cards = facts.cached("gpu cards", lambda: gpushare.indexed_cards(facts.nodes))
        return cards

    def _read_requests(self, session: Session, requesting: Mask) -> None:
        """Read the requests of pending pods, in the order of their keys, and collect the marks that they avoid."""
        tasks = session.snapshot.tasks
        pending = (tasks.status == TaskStatus.PENDING) & (session.job_of_row >= 0) & requesting[tasks.shape]
        rows = sorted(np.flatnonzero(pending).tolist(), key=lambda row: tasks.keys[row] or "")
        for row in rows:
            pod_request = self._pod_requests[row] = self._request_of_row(row)
            if pod_request is not None:
                self._marks.update(dict.fromkeys(pod_request.avoids))

    def _read_placed(self, session: Session, requesting: Mask) -> None:
        tasks = session.snapshot.tasks
        placed = tasks.placed & requesting[tasks.shape]
        rows = np.flatnonzero(placed)
        releasing = ~np.isin(tasks.status[rows], ALLOCATED_STATUSES)
        columns = (rows, tasks.node[rows], tasks.shape[rows], session.queue_of_row[rows], releasing)
        shares = []
        for row, node, shape, queue, is_releasing in zip(*(column.tolist() for column in columns), strict=True):
            held = self._holdings[row] = self._holding_of(row, node, shape, queue, is_releasing)
            shares.append((node, held.pieces, held.marks))
            if held.time is not None:
                self._assignments.add(node, held.time)
            if self.limits and not is_releasing:
                self._count(held, 1)
        self._sharing.fill(shares, releasing.tolist())

    def _holding_of(self, row: int, node: int, number: int, queue: int, releasing: bool) -> _Holding:
        """Return a placed pod's holding; if its cards are unknown, its queue is charged what it requests."""
        snapshot = self._session.snapshot
        pod, shape, job = snapshot.tasks.pods[row], snapshot.shapes[number], int(snapshot.tasks.job[row])
        assert pod is not None and shape is not None
        requests = self._requested(shape)
        annotations: Mapping[str, str] = pod.metadata.annotations
        bind_annotations = snapshot.annotations.get(snapshot.tasks.keys[row] or "")
        if bind_annotations:
            annotations = {**annotations, **bind_annotations}
        pieces = tuple(self._shares_of(annotations, node, requests))
        if pieces:
            memory, cores = sum(piece.memory for piece in pieces), sum(piece.cores for piece in pieces)
        else:
            requested = PodRequest(requests if isinstance(requests, tuple) else ())
            memory, cores = requested.memory, requested.cores
        marks = self._marks_of(pod, snapshot.job_keys[job] if job >= 0 else None)
        time = self._assignments.time_of(annotations, pod.status.phase) if pieces else None
        return _Holding(node, pieces, marks, queue, memory, cores, releasing, time=time)

    def _shares_of(self, annotations: Mapping[str, str], node: int, requests: tuple[Request, ...] | str) -> list[Piece]:
        """Return the shares in a placed pod's annotations, including those of its bind that are not observed yet."""
        places, cards = self._cards.places[node], self._cards.nodes[node]
        if self._kind == "VGPU":
            return vgpu.shares_in(annotations.get(vgpu.ASSIGNED_IDS, ""), places, cards, self._config.factor)
        return gpushare.shares_by_index(annotations, places, requests if isinstance(requests, tuple) else ())

    # --- requests -----------------------------------------------------------------------------------------------------

    def request_of(self, task: Task) -> PodRequest | None:
        """Return a task's request of cards; None if it has none, or an unreadable one."""
        if not self.active:
            return None
        row = task.row
        if row not in self._pod_requests:
            self._pod_requests[row] = self._request_of_row(row) if self._requested(task.shape) else None
        return self._pod_requests[row]

    def _request_of_row(self, row: int) -> PodRequest | None:
        session = self._session
        tasks = session.snapshot.tasks
        pod, shape, job = tasks.pods[row], session.snapshot.shapes[int(tasks.shape[row])], int(session.job_of_row[row])
        assert pod is not None and shape is not None
        requests = self._requested(shape)
        if isinstance(requests, str) or not requests:
            return None
        if self._kind != "VGPU":
            return PodRequest(requests)
        annotations = pod.metadata.annotations
        avoids = self._rules_of(pod)
        if job >= 0 and annotations.get(vgpu.GROUP_POLICY) == "spread":
            avoids = (*avoids, f"group {session.jobs.keys[job]}")
        queue = session.queue_list[int(session.jobs.queue[job])].name if job >= 0 else ""
        by_share = any(request.percent is not None for request in requests)
        return PodRequest(
            requests,
            annotations.get(vgpu.MODE, ""),
            tuple(word.upper() for word in vgpu.words(annotations.get(vgpu.USE_TYPE))),
            tuple(word.upper() for word in vgpu.words(annotations.get(vgpu.NO_TYPE))),
            vgpu.words(annotations.get(vgpu.USE_UUID)),
            vgpu.words(annotations.get(vgpu.NO_UUID)),
            avoids,
            queue if by_share and self.limits.memory_left(queue) is not None else "",
        )

    def _rules_of(self, pod: Pod) -> tuple[str, ...]:
        labels = pod.metadata.labels
        return tuple(
            f"rule {i}"
            for i, rule in enumerate(self._rules)
            if all(labels.get(key) == value for key, value in rule.items())
        )

    def _marks_of(self, pod: Pod, group: str | None) -> tuple[str, ...]:
        """Return the marks that a pod leaves on its cards, if any pending pod avoids them."""
        if not self._marks:
            return ()
        return tuple(mark for mark in (*self._rules_of(pod), f"group {group}") if mark in self._marks)

    # --- points -------------------------------------------------------------------------------------------------------

    def pre_predicate(self, task: Task) -> Reason | None:
        """Return a reason if no card can serve the pod."""
        for name in self._npus:
            if name in task.shape.requests:
                switch = f"deviceshare.{_MIND if name == _NPU_CORES else _HAMI}Enable"
                field = f"spec.containers[].resources.limits[{name}]"
                return _NO_NPUS({"name": name, "switch": switch, "field": field})
        requests = self._requested(task.shape)
        return _UNREADABLE({"error": requests}) if isinstance(requests, str) else None

    def predicates(self) -> Iterable[Predicate]:
        """Return the filters of cards, if any pod requests some."""
        if self.active:
            yield SharedCards(self.fittings, self.limits)
            if self.values[f"deviceshare.{_LOCK}"] and self._kind != "GPUNumber":
                yield OneAtATime(self._session, self.fittings, self._assignments)

    def node_order(self) -> Iterable[Score]:
        """Return the score, if it has a weight and the filter of cards is enabled."""
        weight: int = self.values["deviceshare.ScheduleWeight"]
        if self.active and weight > 0 and self.flags.get("enablePredicate", True):
            yield CardScore(self.fittings, weight)

    def bind_annotations(self, task: Task, row: int) -> Mapping[str, str]:
        """Return the annotations with the task's cards."""
        held = self._holdings.get(task.row) if self.active else None
        if held is None or held.time is None:
            return {}
        if self._kind != "VGPU":
            return gpushare.indexed(held.pieces, held.time)
        requests = self._requested(task.shape)
        return vgpu.assigned(held.pieces, len(requests), self._session.nodes.facts.names[row], held.time)

    # --- queues -------------------------------------------------------------------------------------------------------

    def allocatable(self, queue: Queue, task: Task, count: int) -> Reason | None:
        """Return a reason if the tasks' shares, summed over cards, exceed their queue's or an ancestor's capability."""
        pod_request = self.request_of(task) if self.limits else None
        if pod_request is None:
            return None
        return self.limits.refusal(queue, count * pod_request.memory, count * pod_request.cores)

    def preemptive(self, queue: Queue, tasks: list[Task]) -> Reason | None:
        """Return a reason if the tasks together exceed the capability."""
        if not self.limits:
            return None
        pod_requests = [pod_request for pod_request in map(self.request_of, tasks) if pod_request is not None]
        return self.limits.refusal(
            queue,
            sum(pod_request.memory for pod_request in pod_requests),
            sum(pod_request.cores for pod_request in pod_requests),
        )

    def _count(self, held: _Holding, times: int) -> None:
        if self.limits and held.queue >= 0:
            self.limits.count(held.queue, times * held.memory, times * held.cores)

    # --- events of placements -----------------------------------------------------------------------------------------

    def on_allocate(self, tasks: list[Task], rows: list[int]) -> Reason | None:
        """Assign cards to tasks, or refuse the placement; assign them again when an eviction is rolled back."""
        refusals = [self._hold(task, row) for task, row in zip(tasks, rows, strict=True) if self.active]
        return next((refusal for refusal in refusals if refusal is not None), None)

    def _hold(self, task: Task, row: int) -> Reason | None:
        held = self._holdings.get(task.row)
        if held is not None:
            self._restore(held)
            return None
        pod_request = self.request_of(task)
        if pod_request is None:
            requests = self._requested(task.shape)
            return _UNREADABLE({"error": requests}) if isinstance(requests, str) else None
        waiting = task.status == TaskStatus.PIPELINED
        plan = self.fittings.of_request(pod_request).plan(row, later=waiting)
        if plan is None:
            return SharedCards.reason
        marks = self._marks_of(task.pod, task.job.key)
        queue = task.job.queue.index
        time = None if waiting or not plan.pieces else self._assignments.next(row)
        held = _Holding(row, plan.pieces, marks, queue, plan.memory, plan.cores, waiting=waiting, time=time)
        if time is not None:
            self._assignments.add(row, time)
        self._holdings[task.row] = held
        self._sharing.change(row, plan.pieces, marks, now=0 if waiting else 1, later=1)
        self._count(held, 1)
        return None

    def on_deallocate(self, tasks: list[Task], rows: list[int]) -> None:
        """Free evicted tasks' cards for later, or roll back a placement."""
        for task, row in zip(tasks, rows, strict=True) if self.active else ():
            self._drop(task, row)

    def _drop(self, task: Task, row: int) -> None:
        held = self._holdings.get(task.row)
        if held is None:
            return
        if task.status == TaskStatus.RELEASING:
            self._release(held)
            return
        del self._holdings[task.row]
        if held.time is not None:
            self._assignments.remove(row, held.time)
        later = 0 if held.releasing else -1
        self._sharing.change(held.row, held.pieces, held.marks, now=0 if held.waiting else -1, later=later)
        if not held.releasing:
            self._count(held, -1)

    def _release(self, held: _Holding) -> None:
        if not held.releasing:
            held.releasing = True
            self._sharing.change(held.row, held.pieces, held.marks, later=-1)
            self._count(held, -1)

    def _restore(self, held: _Holding) -> None:
        if held.releasing:
            held.releasing = False
            self._sharing.change(held.row, held.pieces, held.marks, later=1)
            self._count(held, 1)

    # --- gauges -------------------------------------------------------------------------------------------------------

    def gauges(self) -> Iterator[Gauge]:
        """Return Volcano's metrics of vGPU cards and the pods on them."""
        if not self.active or self._kind != "VGPU":
            return
        used, names = self._sharing.now, self._session.nodes.facts.names
        for row, cards in enumerate(self._cards.nodes):
            for place, card in enumerate(cards):
                labels = (("devID", card.uuid), ("NodeName", names[row]))
                for series, value in (
                    ("memory_limit", card.memory),
                    ("shared_number", used.pods[row, place]),
                    ("allocated_memory", used.memory[row, place]),
                    ("allocated_cores", used.cores[row, place]),
                ):
                    yield Gauge(f"volcano_vgpu_device_{series}", labels, float(value))
        for task_row, held in self._holdings.items():
            if not held.waiting:
                yield from self._pod_gauges(self._session.snapshot.tasks.keys[task_row] or "", held)

    def _pod_gauges(self, key: str, held: _Holding) -> Iterator[Gauge]:
        cards, node = self._cards.nodes[held.row], self._session.nodes.facts.names[held.row]
        sums: dict[int, list[int]] = {}
        for piece in held.pieces:
            total = sums.setdefault(piece.card, [0, 0])
            total[0] += piece.takes
            total[1] += piece.cores
        for place, (memory, cores) in sums.items():
            labels = (("devID", cards[place].uuid), ("NodeName", node), ("podName", key.partition("/")[2]))
            yield Gauge("volcano_vgpu_device_memory_allocation_for_a_certain_pod", labels, float(memory))
            yield Gauge("volcano_vgpu_device_core_allocation_for_a_certain_pod", labels, float(cores))


def _rule(entry: ArgumentValues) -> dict[str, str]:
    """Return the labels of a rule for exclusive cards. Raises ArgumentError if there are none."""
    labels = entry.matching("<label>")
    if not labels:
        raise ArgumentError(_RULES, {}, "a list of mappings, each of labels and their values")
    return labels


def _requests_of(kind: str, config: vgpu.DeviceConfig, shape: Shape) -> tuple[Request, ...] | str:
    if kind == "VGPU":
        return vgpu.vgpu_requests(shape.spec, config)
    return gpushare.indexed_requests(shape.spec, by_number=kind == "GPUNumber") if kind else ()
