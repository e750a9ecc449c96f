"""Why a pod went where it went: the session is run again, watched, and its nodes are rated score by score."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import numpy.typing as npt

from vcd.model import events as ev
from vcd.scheduling import registry
from vcd.scheduling.arguments import parse_arguments
from vcd.scheduling.candidates import SCALE, Memory, fixed_point
from vcd.scheduling.nodes import fits
from vcd.scheduling.plugin import Plugin, Score
from vcd.scheduling.policy import PluginOption, Policy
from vcd.scheduling.session import Session
from vcd.state.snapshot import Snapshot

if TYPE_CHECKING:
    from vcd.scheduling.session import Task

SHOWN_NODES = 3
"""How many of the best nodes a choice lists, the chosen one aside."""

_NOWHERE = np.iinfo(np.int64).min


class Rated(msgspec.Struct, frozen=True):
    """A node that takes a pod: whether it has room now, its points, and the points by score (weights applied)."""

    node: str
    room_now: bool
    points: float
    scores: dict[str, float]


class Choice(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a session put a pod, at the moment when it did.

    ``passed`` of ``nodes`` took the pod; ``best`` rates the best of them in order, and the chosen one last where it
    is none of these; ``refused`` counts the other nodes by reason. ``nominated``: an earlier eviction made room for
    the pod there, and nothing was rated.
    """

    pod: str
    node: str
    nodes: int = 0
    passed: int = 0
    best: tuple[Rated, ...] = ()
    refused: dict[str, int] = {}
    nominated: bool = False


def choices(snapshot: Snapshot, policy: Policy, record: ev.SessionDecided, pods: Collection[str]) -> dict[str, Choice]:
    """The choices that a session made for some pods, by key; what it took back or never placed is not there."""
    faulty = {fault.partition(":")[0] for fault in ev.decode_plan(record.plan).faults}
    watcher = _Watcher(frozenset(pods))
    known = registry.plugins()
    tiers = [
        [
            (option, known[option.name](parse_arguments(known[option.name].arguments, option.arguments)))
            for option in tier
            if option.name not in faulty
        ]
        for tier in policy.tiers
    ]
    watching: list[tuple[PluginOption, Plugin]] = [(PluginOption(watcher.name, {}, {}), watcher)]
    session = Session(snapshot, policy, [watching, *tiers], record.now, record.seed, Memory())
    for name in policy.actions:
        action = registry.actions()[name]
        action(parse_arguments(action.arguments, policy.configurations.get(name, {}))).execute(session)
    return watcher.made


class _Watcher(Plugin):
    """Sees each choice of a node before it is made and what became of it, and has no opinion."""

    name = "watcher"

    def __init__(self, pods: frozenset[str]) -> None:
        super().__init__(parse_arguments((), {}))
        self._pods = pods
        self._rated: dict[str, Choice] = {}
        self.made: dict[str, Choice] = {}

    def open(self, session: Session) -> None:
        """Keep the session."""
        self._session = session

    def best_node(self, task: Task, keys: npt.NDArray[np.int64]) -> None:
        """Rate the nodes for a watched pod as they are now; the decision is left to the others."""
        if task.key in self._pods:
            self._rated[task.key] = _rating(self._session, task, keys)

    def on_allocate(self, task: Task, row: int) -> None:
        """A watched pod was placed."""
        if task.key not in self._pods:
            return
        node = self._session.nodes.facts.names[row]
        rated = self._rated.pop(task.key, None)
        if rated is None:
            self.made[task.key] = Choice(task.key, node, nominated=True)
            return
        shown = rated.best[:SHOWN_NODES]
        if all(one.node != node for one in shown):
            shown = (*shown, *(one for one in rated.best[SHOWN_NODES:] if one.node == node))
        self.made[task.key] = msgspec.structs.replace(rated, node=node, best=shown)

    def on_deallocate(self, task: Task, row: int) -> None:
        """A placement was taken back."""
        self.made.pop(task.key, None)


def _rating(session: Session, task: Task, keys: npt.NDArray[np.int64]) -> Choice:
    """All nodes that take a task, best first."""
    nodes = session.nodes
    passed = keys != _NOWHERE
    now = passed & fits(task.request, nodes.usage.idle)
    rated_together = now if now.any() else passed
    points: dict[str, npt.NDArray[np.int64]] = {}
    for score in session.evaluator.scores:
        if score.weight and score.applies(task):
            name = _free_name(points, score)
            points[name] = _points(session, task, score, rated_together)
    rows = [int(row) for row in np.argsort(-keys, kind="stable") if passed[row]]
    best = tuple(
        Rated(
            nodes.facts.names[row],
            bool(now[row]),
            sum(int(of[row]) for of in points.values()) / SCALE,
            {name: int(of[row]) / SCALE for name, of in points.items()},
        )
        for row in rows
    )
    return Choice(task.key, "", len(nodes), len(rows), best, session.candidates(task).reasons())


def _points(
    session: Session, task: Task, score: Score, feasible: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int64]:
    raw = score.raw(task, session.nodes.usage)
    return fixed_point((score.normalise(raw, feasible) if score.normalised else raw) * score.weight)


def _free_name(taken: dict[str, npt.NDArray[np.int64]], score: Score) -> str:
    """The score's name; two plugins may rate under the same one."""
    name, number = score.name, 2
    while name in taken:
        name, number = f"{score.name} {number}", number + 1
    return name
