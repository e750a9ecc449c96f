"""Immunity: which groups lost pods to which others, and until when (docs/laws.md, law 8).

A replacement of an evicted pod is not evicted again for the same preemptor. Each loss has an owner, the PodGroup for
which the pods were evicted. The state folds losses from sessions; ``vcd.scheduling.session.session_immunity`` decides
which pods are immune to which preemptor. A loss ends when its owner ended, when the owner needs resources for a newer
reason, or when no eviction cycle is under way any more (``settle``). Removing one of these ends brings back evictions
that are refused for good (kai-scheduler#84); removing one of the conditions in ``settle`` brings back eviction loops
(volcano#4947).

Each new PodGroup and each new pod of a group that lost no pods is an *input*, and inputs are numbered. A group needs
resources because of its own last input, or because of the input behind the group that evicted its pods. This number
only rises, and a loss ends only when it rises for the owner, so each input has an end of its evictions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from vcd.model.status import TaskStatus
from vcd.state.interning import Interner, Rows

ENDED = (TaskStatus.SUCCEEDED, TaskStatus.FAILED)
"""Statuses of pods that have ended."""
_SURE = (TaskStatus.BOUND, TaskStatus.RUNNING, *ENDED)
"""Statuses of pods that need no node, or have one for certain: a bind in progress may fail."""
Dumped = tuple[dict[str, tuple[str, ...]], tuple[str, ...], bool]
DumpedInputs = tuple[int, dict[str, int]]
DumpedOlder = dict[str, dict[str, tuple[str, ...]]]
Ints = npt.NDArray[np.integer[Any]]


class Evicted(msgspec.Struct, frozen=True):
    """What preemption and reclaim took from a group.

    ``losses`` holds the UIDs of evicted pods by the key of the PodGroup for which they were evicted. ``known`` holds
    the UIDs of all pods of the group before its first eviction. ``older`` holds, by owner, the other pods of the group
    before the first eviction for that owner: these replace no pod that was evicted for it. ``undisturbed`` is true
    while nothing happened since the last of these evictions, except decisions of sessions. A second eviction at such a
    time would be the scheduler's own doing, whichever group is the preemptor. Without losses, the group only waits for
    its pods to come back.
    """

    losses: dict[str, tuple[str, ...]]
    known: tuple[str, ...]
    undisturbed: bool = True
    older: dict[str, tuple[str, ...]] = {}

    def with_losses(self, losses: dict[str, tuple[str, ...]]) -> Evicted:
        """Return a copy with fewer owners or evicted pods."""
        older = {owner: uids for owner, uids in self.older.items() if owner in losses}
        return msgspec.structs.replace(self, losses=losses, older=older)

    def older_for(self, owners: Iterable[str]) -> frozenset[str]:
        """Return the UIDs that ``older`` holds for every one of the owners."""
        found = [frozenset(self.older.get(owner, ())) for owner in owners]
        return frozenset.intersection(*found) if found else frozenset()

    @property
    def gone(self) -> list[str]:
        """The UIDs of all evicted pods."""
        return [uid for uids in self.losses.values() for uid in uids]


class GroupProgress:
    """How many pods of each group are placed, pending or ended, counted once for all groups."""

    def __init__(self, tasks: Rows, job_keys: Interner[str]) -> None:
        status, job = tasks.column("status"), tasks.column("job")
        self._job_keys = job_keys

        def count(chosen: npt.NDArray[np.bool_]) -> Ints:
            return np.bincount(job[chosen & (job >= 0)], minlength=len(job_keys.values))

        self._all, self._pending = count(job >= 0), count(status == TaskStatus.PENDING)
        self._sure, self._ended = count(np.isin(status, _SURE)), count(np.isin(status, ENDED))

    def has_ended(self, group: str) -> bool:
        """Whether a group has pods and all of them ended."""
        number = self._job_keys.number(group)
        return number is not None and 0 < self._all[number] == self._ended[number]

    def is_served(self, group: str) -> bool:
        """Whether a group has pods and each of them is placed or ended."""
        number = self._job_keys.number(group)
        return number is not None and 0 < self._all[number] == self._sure[number]

    def waits(self, group: str, size: int) -> bool:
        """Whether pods of a group that had ``size`` pods are pending, or were not created again yet."""
        number = self._job_keys.number(group)
        return number is None or bool(self._pending[number] or self._sure[number] < size)


class Immunity:
    """The losses of all groups, by the group that lost pods."""

    def __init__(self) -> None:
        self.evicted: dict[str, Evicted] = {}
        self._owned: dict[str, dict[str, None]] = {}
        """By owner, the groups that lost pods to it."""
        self._undisturbed: dict[str, None] = {}
        self._newest = 0
        self._inputs: dict[str, int] = {}
        """By group, the number of the input that it needs resources for; 0 for inputs before the oldest loss."""

    # --- beginnings ---------------------------------------------------------------------------------------------------

    def remember(self, owner: str, group: str, uids: Iterable[str], members: Iterable[str]) -> None:
        """Record that pods of ``group``, which has ``members`` (UIDs), are evicted for ``owner``."""
        self._inherit_input(owner, group)
        before = self.evicted.get(group)
        has = tuple(sorted(members))
        if before is None or not before.losses:
            self._set(group, Evicted({owner: tuple(uids)}, has))
            return
        older = before.older
        if owner not in before.losses:
            fresh = tuple(uid for uid in has if uid not in before.known)
            older = {**older, owner: fresh} if fresh else older
        losses = {**before.losses, owner: (*before.losses.get(owner, ()), *uids)}
        self._set(group, Evicted(losses, before.known, older=older))

    def _inherit_input(self, owner: str, group: str) -> None:
        """Record that ``group``, which loses pods to ``owner``, needs resources because of the same input.

        If that input is newer than the one for which the group evicted others, its need is not a repetition: losses to
        the group end.
        """
        number = self._inputs.get(owner, 0)
        if number > self._inputs.get(group, 0):
            self._inputs[group] = number
            self._end_owned(group)

    def take_over(self, found: Immunity) -> None:
        self._newest, self._inputs = found._newest, dict(found._inputs)
        for group, evicted in found.evicted.items():
            self._set(group, evicted)

    # --- ends ---------------------------------------------------------------------------------------------------------

    def withdraw(self, group: str, uid: str) -> str:
        """Forget the eviction of one pod, which failed; return the key of its preemptor, empty if none is remembered.

        A refusal counts as new information: otherwise replacements that the group already had would be immune to every
        PodGroup, though nothing was evicted.
        """
        before = self.evicted.get(group)
        if before is None or uid not in before.gone:
            return ""
        left = {owner: tuple(gone for gone in uids if gone != uid) for owner, uids in before.losses.items()}
        losses = {owner: uids for owner, uids in left.items() if uids}
        self._set(group, msgspec.structs.replace(before.with_losses(losses), undisturbed=False) if losses else None)
        return next(owner for owner, uids in before.losses.items() if uid in uids)

    def clear(self) -> None:
        """Forget everything, after a change of nodes, queues or configuration."""
        self.evicted.clear()
        self._owned.clear()
        self._undisturbed.clear()
        self._newest, self._inputs = 0, {}

    def forget_group(self, group: str) -> None:
        """Forget what a group lost and what it took, after it was deleted or its specification changed."""
        self._set(group, None)
        self._inputs.pop(group, None)
        self.record_end(group)

    def record_arrival(self, group: str) -> None:
        """Record that a group, or a pod of a group, is new. A pod that replaces an evicted one is no new input."""
        self.record_end(group)
        if self.evicted and group not in self.evicted:
            self._newest += 1
            self._inputs[group] = self._newest

    def record_end(self, group: str) -> None:
        """Record that a pod of a group ended or was deleted.

        Pods of a group that lost pods come and go for that reason, so they are no new input.
        """
        if group in self.evicted:
            return
        self._end_owned(group)
        for victim in self._undisturbed:
            self.evicted[victim] = msgspec.structs.replace(self.evicted[victim], undisturbed=False)
        self._undisturbed.clear()

    def settle(self, standing: GroupProgress) -> None:
        """Forget the losses that cannot be part of an eviction cycle any more.

        A disturbed loss is over when its owner has its resources and no group waits in the chain of losses that begins
        with this loss: a waiting group could evict the owner, and the owner would evict again. A group without losses
        is forgotten when its pods are back.
        """
        waiting = self._waiting(standing)
        over = [
            (victim, owner)
            for victim, evicted in self.evicted.items()
            for owner in evicted.losses
            if standing.has_ended(owner)
            or not (evicted.undisturbed or victim in waiting or not standing.is_served(owner))
        ]
        for victim, owner in over:
            self._without(victim, owner)
        for group in [group for group, evicted in self.evicted.items() if not evicted.losses and group not in waiting]:
            self._set(group, None)

    def _waiting(self, standing: GroupProgress) -> set[str]:
        """Return the groups that lost pods and wait, or that took pods from such a group."""
        left = [group for group, evicted in self.evicted.items() if standing.waits(group, len(evicted.known))]
        found = set(left)
        while left:
            for owner in self.evicted[left.pop()].losses:
                if owner in self.evicted and owner not in found:
                    found.add(owner)
                    left.append(owner)
        return found

    def _end_owned(self, owner: str) -> None:
        for victim in list(self._owned.get(owner, {})):
            self._without(victim, owner)

    def _without(self, victim: str, owner: str) -> None:
        before = self.evicted.get(victim)
        if before is not None:
            losses = {other: uids for other, uids in before.losses.items() if other != owner}
            self._set(victim, before.with_losses(losses))

    def _set(self, group: str, evicted: Evicted | None) -> None:
        """Replace what a group lost. Inputs count only while some group has lost something."""
        before = self.evicted.pop(group, None)
        for owner in () if before is None else before.losses:
            victims = self._owned.get(owner, {})
            victims.pop(group, None)
            if not victims:
                self._owned.pop(owner, None)
        self._undisturbed.pop(group, None)
        if evicted is None:
            if not self.evicted:
                self._newest, self._inputs = 0, {}
            return
        self.evicted[group] = evicted
        for owner in evicted.losses:
            self._owned.setdefault(owner, {})[group] = None
        if evicted.undisturbed:
            self._undisturbed[group] = None

    # --- checkpoints --------------------------------------------------------------------------------------------------

    def dump(self) -> dict[str, Dumped]:
        """Return the losses in the form of a checkpoint."""
        return {group: (one.losses, one.known, one.undisturbed) for group, one in self.evicted.items()}

    def dump_inputs(self) -> DumpedInputs:
        """Return the numbers of inputs in the form of a checkpoint: the newest, and by group."""
        return self._newest, dict(self._inputs)

    def dump_older(self) -> DumpedOlder:
        """Return, by group and owner, the pods that the group had before its first eviction for that owner."""
        return {group: one.older for group, one in self.evicted.items() if one.older}

    def copy(self) -> Immunity:
        """Return an independent copy."""
        return self.load(self.dump(), self.dump_inputs(), self.dump_older())

    @classmethod
    def load(
        cls, found: Mapping[str, Dumped], inputs: DumpedInputs = (0, {}), older: Mapping[str, Any] = {}
    ) -> Immunity:
        """Load the results of ``dump``, ``dump_inputs`` and ``dump_older``.

        Losses in checkpoints of versions before 0.2.0 name no owner and are not read.
        """
        immunity = cls()
        for group, fields in found.items():
            immunity._set(group, Evicted(*fields, older.get(group, {})))
        immunity._newest, immunity._inputs = inputs[0], dict(inputs[1])
        return immunity
