"""Feasibility: how many pods the nodes could take if they were empty, or can take with their idle resources.

A predicate can refuse a node permanently (its facts), until other pods are placed or removed (``reachable`` and
``divisions`` of ``Predicate``), or at the moment (``known_mask``). Extenders are not called; only answers that they
already gave in this session count.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import cached_property

import numpy as np

from vcd.scheduling.framework.framework import Framework
from vcd.scheduling.search.parts import VOLUMES, Mask, Reads, Rows, distinguishes_pods, is_fixed, pod_keys
from vcd.scheduling.search.podterms import has_required_affinity
from vcd.scheduling.session.views import Task, Views
from vcd.state.sums import Ints

MANY = 1 << 40
"""More pods than any cluster has."""


class Feasibility:
    """Evaluates a session's predicates for pods without trying to place them."""

    def __init__(self, framework: Framework) -> None:
        self._session = session = framework.session
        self._nodes = session.nodes
        self._examples = Views(session.snapshot, session.queue_list, session.backing_off)
        """Tasks for evaluation only, apart from the session's views, which contain what the actions used."""
        self._evaluator = framework.evaluator
        self._tests = framework.evaluator.predicates
        self._by_pods = [test for test in self._tests if test.reads & Reads.PODS]
        self._counts: dict[bytes, Ints] = {}
        """The number of nodes of each size class in a mask, by the mask."""
        self._numbers: dict[Hashable, int] = {}
        self._masks: dict[int, Mask] = {}
        fixed = [test for test in self._tests if is_fixed(test)]
        self.is_by_pod = any(pod_keys(test) or VOLUMES in test.keys for test in fixed)
        """Whether pods of one shape and queue can differ in the nodes whose facts they pass."""
        self._is_by_shape = not (self.is_by_pod or any(distinguishes_pods(test) for test in fixed))
        """Whether pods of one shape without volumes pass the same nodes, whatever their queue."""

    def release(self) -> None:
        """Drop the tasks, which refer to their jobs."""
        self._examples.release()

    def example(self, row: int) -> Task:
        """Return the task of a row, for evaluation only."""
        return self._examples.task(row)

    def examples(self, rows: list[int]) -> list[Task]:
        """Return the tasks of some rows, for evaluation only."""
        return self._examples.tasks_at(rows)

    def kinds(self, rows: Rows) -> Ints:
        """Return a number for each pod; pods with the same number pass the same nodes by facts."""
        if not self.is_by_pod:
            shapes, queues = self._session.snapshot.tasks.shape[rows], self._session.queue_of_row[rows]
            return shapes.astype(np.int64) * len(self._session.queue_list) + queues
        keys = map(self._evaluator.keys.fixed_key, self.examples(rows.tolist()))
        return np.array([self._numbers.setdefault(key, len(self._numbers)) for key in keys], np.int64)

    def keys(self, rows: list[int]) -> list[Hashable]:
        """Return for each pod everything that predicates on facts read. Keys are valid across sessions, in which a
        queue of the same name may have other rules."""
        shapes = self._session.snapshot.shapes.at(self._session.snapshot.tasks.shape[rows].tolist())
        keys = dict[int, Hashable](zip(rows, shapes, strict=True))
        others = [
            row
            for row, shape in zip(rows, shapes, strict=True)
            if shape is None or shape.spec.volumes or not self._is_by_shape
        ]
        keys.update(zip(others, map(self._evaluator.keys.fixed_key, self.examples(others)), strict=True))
        return list(keys.values())

    def nodes_of(self, rows: Rows) -> Mask | None:
        """Return the nodes whose facts at least one of the pods passes; None if there are no pods."""
        kinds, first = np.unique(self.kinds(rows), return_index=True)
        row_of = {kind: int(rows[at]) for kind, at in zip(kinds.tolist(), first, strict=True)}
        new = [kind for kind in row_of if kind not in self._masks]
        for kind, task in zip(new, self.examples([row_of[kind] for kind in new]), strict=True):
            self._masks[kind] = self._evaluator.static(task).mask
        distinct = {mask.tobytes(): mask for mask in map(self._masks.__getitem__, row_of)}
        return np.logical_or.reduce(list(distinct.values())) if distinct else None

    def most_together(self, task: Task, rows: Rows, coming: Mask) -> int:
        """Return how many of the pods ``rows``, which are equivalent to ``task``, the nodes could take together.

        The nodes are assumed empty, and the pods ``coming`` (by row) placed.
        """
        mask = self.reachable(task, coming)
        divisions = [codes for test in self._by_pods for codes in test.divisions(task, rows)]
        if divisions:
            return _together(np.where(mask, self._each(task)[self._size_classes[1]], 0), divisions)
        return self._sum_over(mask, task)

    def most_by_facts(self, task: Task) -> int:
        """Return how many pods like a task the nodes could take together if they were empty and other pods and claims
        did not matter."""
        return self._sum_over(self._evaluator.static(task).mask, task)

    def _each(self, task: Task) -> Ints:
        """Return how many pods like a task a node of each size takes."""
        sizes, _ = self._size_classes
        requested = np.flatnonzero(task.request > 0)
        requested = requested[
            requested != self._nodes.column_of["pods"]
        ]  # Volcano does not compare the resource pods here
        if not len(requested):
            return np.full(len(sizes), MANY)
        each: Ints = np.minimum((sizes[:, requested] // task.request[requested]).min(axis=1), MANY)
        return each

    def _sum_over(self, mask: Mask, task: Task) -> int:
        sizes, of = self._size_classes
        key = mask.tobytes()
        counts = self._counts.get(key)
        if counts is None:
            counts = self._counts[key] = np.bincount(of[mask], minlength=len(sizes))
        return min(int((self._each(task) * counts).sum()), MANY)

    @cached_property
    def _size_classes(self) -> tuple[Ints, Rows]:
        """The distinct allocatable resources of nodes, and the index of each node's."""
        facts = self._nodes.facts

        def divide() -> tuple[Ints, Rows]:
            sizes, of = np.unique(facts.allocatable, axis=0, return_inverse=True)
            return sizes, of.ravel()

        found: tuple[Ints, Rows] = facts.cached("size classes", divide)
        return found

    def reachable(self, task: Task, coming: Mask) -> Mask:
        """Return the nodes that can take a task after suitable evictions, if the pods ``coming`` are placed."""
        mask = self._evaluator.static(task).mask
        for test in self._by_pods:
            found = test.reachable(task, coming)
            if found is not None:
                mask = mask & found
        return mask

    def fit_now(self, task: Task, rows: Rows, coming: Mask) -> Ints:
        """Return by node how many pods like a task fit its future idle resources.

        Nodes that currently refuse the task take none. A node that lacks pods required by affinity is not refused while
        these pods are ``coming``. In each part of a division, only one node takes one of the pods ``rows``.
        """
        usage = self._nodes.usage
        each = np.zeros(len(self._nodes), np.int64)
        chosen = np.flatnonzero(self._nodes.with_room(task.floor) & self._evaluator.static(task).mask)
        requested = np.flatnonzero(task.request > 0)
        if not (len(chosen) and len(requested)):
            return each
        chosen = chosen[self._passing_now(task, coming)[chosen]]
        each[chosen] = (usage.future_idle[np.ix_(requested, chosen)] // task.request[requested, None]).min(axis=0)
        for codes in [codes for test in self._by_pods for codes in test.divisions(task, rows)]:
            each = _one_of_each(each, codes)
        return each

    def _passing_now(self, task: Task, coming: Mask) -> Mask:
        """Return the nodes that no predicate refuses now, facts excluded."""
        mask = np.ones(len(self._nodes), np.bool_)
        awaits = has_required_affinity(task.shape)
        for test in self._tests:
            if not is_fixed(test) and test.applies(task):
                found = test.reachable(task, coming) if awaits else None
                mask &= test.known_mask(task, self._nodes.usage) if found is None else found
        return mask


def _together(each: Ints, divisions: list[Rows]) -> int:
    """Return how many pods fit if no two share a part of a division; an upper bound if there are several divisions."""
    most = MANY
    for codes in divisions:
        most = min(most, int(_one_of_each(each, codes).sum()))
    return most


def _one_of_each(each: Ints, codes: Rows) -> Ints:
    """Return the numbers of pods by node, limited to one pod, on the first node, of each part of a division."""
    result = each.copy()
    taken = np.flatnonzero((each > 0) & (codes >= 0))
    result[taken] = 0
    result[taken[np.unique(codes[taken], return_index=True)[1]]] = 1
    return result
