"""Applications on few nodes: admitted one at a time while those before them still lack part of their minimum resources.

A Spark driver creates its executors after it started. A cluster that admits applications by its whole capacity lets
drivers fill the labelled nodes that they and their executors may use, so that no application ever runs (volcano#2838).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from vcd.model.reasons import Cause, Reason, ReasonCode
from vcd.model.status import TERMINATED_STATUSES, TaskStatus
from vcd.scheduling.framework.arguments import Argument
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.search.parts import Mask
from vcd.scheduling.search.predicates.node import required_nodes
from vcd.scheduling.session.jobs import inqueue
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job, Views
from vcd.state.holds import Hold, HoldKind
from vcd.state.records import Shape
from vcd.state.sums import Ints, sum_of

ADMIT_BY_NODES = Argument(
    "admitByNodesEnable",
    "bool",
    True,
    "Whether an application whose pods name their nodes (nodeSelector, required node affinity), and that does not have "
    "all the pods of its minimum resources yet, waits for admission while applications before it on these nodes lack "
    "part of theirs and both do not fit. Volcano compares the whole cluster alone.",
)
_NODES_RESERVED = ReasonCode(
    "nodes-reserved",
    Cause.ADMISSION,
    "the nodes that it names are reserved for applications admitted before it: {owners}",
    nodes_help=True,
)
_NAMED = 3
"""How many applications a reason names."""
_ENDED = np.array([status in TERMINATED_STATUSES for status in TaskStatus], np.bool_)


class Applications:
    """What admitted groups lack of their minimum resources on the nodes that their pods name.

    A group counts if all its pods name nodes, until it has its minimum resources or its pods ended.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._examples = Views(session.snapshot, session.queue_list, session.backing_off)
        self._masks: dict[int, Mask] = {}
        self._admitted: dict[int, Ints] = {}
        """What groups lack that are not in ``_found`` yet, by job index."""
        self._found: dict[int, tuple[Ints, Mask]] | None = None

    def admit(self, job: Job) -> None:
        """Count a group that this session admitted."""
        self._admitted[job.index] = self._session.jobs.missing(job.index)

    def refusal(self, job: Job) -> Reason | None:
        """Return why a group that asks for admission has to wait for others on its nodes; None if it need not."""
        session, jobs = self._session, self._session.jobs
        needed, there = jobs.missing(job.index), jobs.pending[job.index]
        if not (needed > there).any():
            return None  # it has all its pods: they are placed together
        nodes = self._named_nodes(job.index)
        if nodes is None:
            return None
        ahead = [
            (index, lacks)
            for index, (lacks, theirs) in self._lacking().items()
            if jobs.priority[index] >= job.priority and not (theirs & ~nodes).any()
        ]
        if not ahead:
            return None
        awaited = sum_of(np.array([lacks for _, lacks in ahead], np.int64))
        idle = sum_of(np.maximum(session.nodes.usage.idle[:, nodes], 0), axis=1)
        over = (needed > 0) & (awaited > 0) & (awaited + needed > idle)
        over[session.nodes.column_of["pods"]] = False
        if not over.any():
            return None
        amounts = session.told(np.flatnonzero(over), asks=needed, awaited=awaited, idle=idle)
        return _NODES_RESERVED({"owners": ", ".join(jobs.keys[index] for index, _ in ahead[:_NAMED])}, amounts=amounts)

    def holds(self) -> Iterator[Hold]:
        """Yield what is reserved for admitted applications on the nodes that they name."""
        session = self._session
        for index, (lacks, _) in sorted(self._lacking().items()):
            pairs = zip(session.nodes.resources, lacks.tolist(), strict=True)
            resources = {name: amount for name, amount in pairs if amount}
            key = session.jobs.keys[index]
            yield Hold(HoldKind.ADMISSION, key, key, resources=resources)

    def release(self) -> None:
        """Drop the example tasks, which refer to their jobs."""
        self._examples.release()

    # --- what is awaited --------------------------------------------------------------------------------------------

    def _lacking(self) -> dict[int, tuple[Ints, Mask]]:
        """Return what admitted groups lack, and their nodes, by job index."""
        if self._found is None:
            self._found = {}
            lacks = self._session.jobs.derived(inqueue)
            found = np.flatnonzero(lacks.any(axis=1) & self._names_nodes())
            self._admitted = {**{index: lacks[index] for index in found.tolist()}, **self._admitted}
        for index, amounts in self._admitted.items():
            nodes = self._named_nodes(index)
            if nodes is not None:
                self._found[index] = amounts, nodes
        self._admitted.clear()
        return self._found

    def _names_nodes(self) -> Mask:
        """Return which groups have pods that have not ended, all of which name their nodes."""
        jobs, tasks = self._session.jobs, self._session.snapshot.tasks
        of = jobs.of_row
        goes_on = (of >= 0) & ~_ENDED[tasks.status]
        named = goes_on & self._session.shape_flags(_names_nodes)[tasks.shape]
        count = len(jobs)
        with_names = np.bincount(of[named], minlength=count)
        result: Mask = (with_names > 0) & (with_names == np.bincount(of[goes_on], minlength=count))
        return result

    def _named_nodes(self, index: int) -> Mask | None:
        """Return the nodes that a group's pods may have, None where one of them names none."""
        tasks, names_nodes = self._session.snapshot.tasks, self._session.shape_flags(_names_nodes)
        found = np.zeros(len(self._session.nodes), np.bool_)
        rows = [row for row in self._session.jobs.rows_of(index) if not _ENDED[tasks.status[row]]]
        for shape, row in {int(tasks.shape[row]): row for row in rows}.items():
            if not names_nodes[shape]:
                return None
            found |= self._mask(shape, row)
        return found if rows else None

    def _mask(self, shape: int, row: int) -> Mask:
        known = self._masks.get(shape)
        if known is None:
            static = framework_of(self._session).evaluator.static(self._examples.task(row))
            known = self._masks[shape] = static.mask
        return known


def _names_nodes(shape: Shape) -> bool:
    return bool(shape.spec.node_selector) or required_nodes(shape.spec) is not None
