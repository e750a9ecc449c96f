"""Planted bugs of vcd/state and vcd/model: the fold of events, checkpoints, snapshots, memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from tests.simulation.mutants import replaces
from vcd.model.objects import Condition, Pod
from vcd.model.status import condition_of
from vcd.state.checkpoint import StateCopy
from vcd.state.cluster_state import ClusterState
from vcd.state.gang_completion import Completion
from vcd.state.interning import Interner, Pages, Rows
from vcd.state.records import GroupRecord, task_status

# --- what is intended -----------------------------------------------------------------------------------------------

_place = ClusterState._place


def _place_without(state: ClusterState, verb: str, key: str, row: int) -> None:
    """Place a row as the API server shows it, whatever operation of a verb is intended for its pod."""
    _place(state, key, row)
    intent = state.intents.get(key)
    if intent is not None and intent.verb == verb:
        shown = state.shown_nodes[row]
        node = state._node_instead_of(state.tasks.at(row, "node"), shown)
        state.tasks.put(row, status=task_status(cast(Pod, state.pods[row]), shown), node=node)


@replaces(ClusterState._place, found_by="bound once")
def bind_intent_not_counted(self: ClusterState, key: str, row: int) -> None:
    """Until the watch shows a bind its resources count as free, and are given away once more."""
    _place_without(self, "bind", key, row)


@replaces(ClusterState._place, found_by="elsewhere before it is done")
def eviction_intent_not_counted(self: ClusterState, key: str, row: int) -> None:
    """A pod that is being evicted is evicted again by each session until the watch shows it."""
    _place_without(self, "evict", key, row)


@replaces(Completion._is_partial, found_by="gangs whole")
def roles_complete_by_total(self: Completion, number: int | None, record: GroupRecord | None) -> bool:
    """A gang whose minimum runs holds its resources for ever, though no role is complete. A past defect."""
    if number is None or record is None or not self._placed_of[number]:
        return False
    return bool(self._sure_of[number] < record.group.spec.min_member)


_init_completion = Completion.__init__


@replaces(Completion.__init__, found_by="gangs whole")
def release_counts_anew(
    self: Completion, tasks: Rows, pods: Pages[Pod | None], job_keys: Interner[str], *, believed: bool = False
) -> None:
    """A gang of which a webhook denies one pod holds its resources: its release is put off again. A past defect."""
    _init_completion(self, tasks, pods, job_keys, believed=True)


# --- what the API server shows --------------------------------------------------------------------------------------

_put_object, _drop = ClusterState._put_object, ClusterState._drop


@replaces(ClusterState._put_object, found_by="no node over")
def nodes_as_first_seen(self: ClusterState, kind: str, key: str, payload: bytes) -> None:
    """A node offers what it offered when it was first seen, however much its system reserves since."""
    if kind != "Node" or key not in self.nodes:
        _put_object(self, kind, key, payload)


@replaces(ClusterState._drop, found_by="bound there")
def node_removal_unseen(self: ClusterState, kind: str, key: str) -> None:
    """Pods are bound to nodes that are gone."""
    if kind == "Node":
        self.nodes.pop(key, None)
    else:
        _drop(self, kind, key)


@replaces(ClusterState._drop, found_by="no queue over")
def orphans_not_counted(self: ClusterState, kind: str, key: str) -> None:
    """Pods that outlive their group count against no queue, which gets their share once more."""
    _drop(self, kind, key)
    if kind == "PodGroup":
        self.former.pop(key, None)


@replaces(condition_of, found_by="reasons are true")
def opposite_not_counted(kind: str, conditions: Sequence[Condition]) -> Condition | None:
    """A gang that lost a pod and is whole again stays Unschedulable, for a reason that has passed. A past defect."""
    return next((each for each in reversed(conditions) if each.type == kind), None)


# --- checkpoints and order ------------------------------------------------------------------------------------------

_freeze = ClusterState.freeze


@replaces(
    ClusterState.freeze,
    found_by="tests/state/test_evictions.py::test_whose_nomination_is_the_later_is_the_same_after_a_checkpoint",
)
def checkpoint_without_nominations(self: ClusterState) -> StateCopy:
    """After a restart resources that evictions freed are given to others: the pods were evicted for nothing."""
    frozen = _freeze(self)
    frozen._dump.nominated = {}
    return frozen


@replaces(Interner.release, found_by="nothing is kept of what is gone")
def numbers_never_freed(self: Interner[object], number: int) -> None:
    """Specs, label sets and names of deleted pods are retained: memory grows with every pod."""
    self._uses[number] -= 1
