"""Immunity: pods that replace evicted pods are not evicted again for the same preemptor, or an equivalent one.

A loss is an eviction of a group's pods for an owner, the preempting PodGroup. Losses are part of the state
(``vcd.state.immunity``); this module only compares them with the session's jobs
(docs/semantics/actions.md#not-evicted-twice).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job, Task
from vcd.state.immunity import Evicted


class _Replacements:
    """The replacements of one group's evicted pods."""

    def __init__(self, session: Session, index: int, evicted: Evicted) -> None:
        tasks = session.job(index).tasks()
        self.evicted = evicted
        self.tasks = sorted((task for task in tasks if task.uid not in evicted.known), key=lambda t: (t.created, t.key))
        """The oldest first."""
        self._size = len(tasks)
        self._rows: dict[tuple[str, ...], frozenset[int]] = {}

    def of(self, owners: tuple[str, ...]) -> list[Task]:
        """Return the pods that replace those that were evicted for some owners: as many as were evicted, or all if the
        whole group was created again since."""
        lost = sum(len(self.evicted.losses[owner]) for owner in owners)
        older = self.evicted.older_for(owners)
        found = [task for task in self.tasks if task.uid not in older] if older else self.tasks
        return found if lost and len(found) == self._size else found[:lost]

    def rows_of(self, owners: tuple[str, ...]) -> frozenset[int]:
        """Return the rows of these pods, cached."""
        if owners not in self._rows:
            self._rows[owners] = frozenset([task.row for task in self.of(owners)])
        return self._rows[owners]


class SessionImmunity:
    """The immune pods of a session, and the jobs for which they are immune: a service of the session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._kinds: dict[int, Hashable] = {}
        self._startable: dict[int, bool] = {}
        self._owners: dict[tuple[int, str], tuple[str, ...]] = {}
        self._by_job: dict[int, _Replacements] = {}
        """By the group that lost pods."""
        for key, evicted in sorted(session.snapshot.evicted.items()):
            index = session.jobs.index(key)
            if index is not None and evicted.losses:
                found = _Replacements(session, index, evicted)
                if found.tasks:
                    self._by_job[index] = found

    def __bool__(self) -> bool:
        return bool(self._by_job)

    def covers(self, task: Task, preemptor: Job) -> bool:
        """Return whether a placed task is immune to eviction for a job."""
        found = self._by_job.get(task.job.index) if self._by_job else None
        return found is not None and task.row in found.rows_of(
            self._equivalent_owners(task.job, preemptor, found.evicted)
        )

    def scope(self, preemptor: Job) -> tuple[frozenset[int], ...]:
        """Return a key that is equal for jobs for which the same pods are immune."""
        job_of = self._session.job
        return tuple(
            found.rows_of(self._equivalent_owners(job_of(index), preemptor, found.evicted))
            for index, found in self._by_job.items()
        )

    def owners(self) -> Iterator[tuple[str, Task]]:
        """Yield each owner of a loss with each pod that is immune to it, in order of the keys of the pods'
        groups."""
        for _, found in sorted(self._by_job.items()):
            for owner in sorted(found.evicted.losses):
                for task in found.of((owner,)):
                    yield owner, task

    def _equivalent_owners(self, victim: Job, preemptor: Job, evicted: Evicted) -> tuple[str, ...]:
        """Return the owners of a group's losses whose replacements are immune to ``preemptor``."""
        if evicted.undisturbed:
            return tuple(evicted.losses)
        known = (victim.index, preemptor.key)
        if known not in self._owners:
            self._owners[known] = tuple([owner for owner in evicted.losses if self._represents(owner, preemptor)])
        return self._owners[known]

    def _represents(self, owner: str, preemptor: Job) -> bool:
        """Return whether a job is the owner of a loss, or equivalent to it while the owner waits.

        An owner that was refused is only equivalent to jobs that were refused: another job may be able to use what the
        owner could not.
        """
        if owner == preemptor.key:
            return True
        index = self._session.jobs.index(owner)
        if index is None:
            return False
        job = self._session.job(index)
        kind = self._kind(job)
        if kind is None or kind != self._kind(preemptor):
            return False
        return self._could_start(job) or not self._could_start(preemptor)

    def _could_start(self, job: Job) -> bool:
        """Return whether some pod of a job waits only for resources.

        The API server's last refusal counts even after its back-off, because the API server has not accepted the pod
        since.
        """
        if job.index not in self._startable:
            snapshot, session = self._session.snapshot, self._session
            self._startable[job.index] = job.key not in snapshot.released and any(
                row not in snapshot.backoffs and not session.task(row).gated
                for row in session.views.pending_rows(job.index)
            )
        return self._startable[job.index]

    def _kind(self, job: Job) -> Hashable:
        """Return queue, priority and the shapes of the pods that waited when the session began; None if no pod did."""
        if job.index not in self._kinds:
            session = self._session
            shapes = frozenset(session.snapshot.tasks.shape[session.views.pending_rows(job.index)].tolist())
            self._kinds[job.index] = (job.queue.index, job.priority, shapes) if shapes else None
        return self._kinds[job.index]


def immunity_of(session: Session) -> SessionImmunity:
    """Return the session's immunity."""
    return session.provided(SessionImmunity, lambda: SessionImmunity(session))
