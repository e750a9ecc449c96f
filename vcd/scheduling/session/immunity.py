"""Which pods are not evicted for which preemptor, since they replace pods that were evicted for it before (immunity).

The losses are part of the state (``vcd.state.immunity``); this module only compares them with the session's jobs
(docs/semantics/actions.md#not-evicted-twice).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job, Task
from vcd.state.immunity import Evicted


class _Replacements:
    """The replacements of one group's evicted pods by row, the oldest first; ``all_are`` where no older pod is left."""

    def __init__(self, session: Session, index: int, evicted: Evicted) -> None:
        tasks = session.job(index).tasks()
        fresh = sorted((task for task in tasks if task.uid not in evicted.known), key=lambda t: (t.created, t.key))
        self.evicted = evicted
        self.all_are = len(fresh) == len(tasks)
        self.tasks = fresh
        self.place = {task.row: place for place, task in enumerate(fresh)}

    def immune(self, lost: int) -> list[Task]:
        """The pods that replace ``lost`` evicted ones: all, where the whole group was made again after a loss."""
        return self.tasks if lost and self.all_are else self.tasks[:lost]


class SessionImmunity:
    """The pods of a session that are immune, and to which jobs: a service of the session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._kinds: dict[int, Hashable] = {}
        self._startable: dict[int, bool] = {}
        self._lost: dict[tuple[int, str], int] = {}
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
        """Whether a placed task is not evicted for a job."""
        found = self._by_job.get(task.job.index) if self._by_job else None
        place = None if found is None else found.place.get(task.row)
        if found is None or place is None:
            return False
        lost = self._lost_to(task.job, preemptor, found.evicted)
        return lost > 0 if found.all_are else place < lost

    def scope(self, preemptor: Job) -> tuple[int, ...]:
        """Return what is equal for jobs to which the same pods are immune."""
        job_of = self._session.job
        return tuple(self._lost_to(job_of(index), preemptor, found.evicted) for index, found in self._by_job.items())

    def owners(self) -> Iterator[tuple[str, Task]]:
        """Each owner of a loss with each pod that is immune to it, in order of the keys of the pods' groups."""
        for _, found in sorted(self._by_job.items()):
            for owner, gone in sorted(found.evicted.losses.items()):
                for task in found.immune(len(gone)):
                    yield owner, task

    def _lost_to(self, victim: Job, preemptor: Job, evicted: Evicted) -> int:
        """How many pods a group lost whose replacements a job may not have evicted."""
        if evicted.undisturbed:
            return len(evicted.gone)
        known = (victim.index, preemptor.key)
        if known not in self._lost:
            found = (len(gone) for owner, gone in evicted.losses.items() if self._stands_for(owner, preemptor))
            self._lost[known] = sum(found)
        return self._lost[known]

    def _stands_for(self, owner: str, preemptor: Job) -> bool:
        """Whether a job is the owner of a loss, or equivalent to it while the owner waits. An owner that was refused
        stands for jobs that were refused: the next one may be able to use what the owner could not."""
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
        """Whether a pod of a job waits for nothing but resources. The API server's last answer counts even when the
        back-off after it is over, since it has not taken the refusal back."""
        if job.index not in self._startable:
            snapshot, session = self._session.snapshot, self._session
            self._startable[job.index] = job.key not in snapshot.released and any(
                row not in snapshot.backoffs and not session.task(row).gated
                for row in session.views.pending_rows(job.index)
            )
        return self._startable[job.index]

    def _kind(self, job: Job) -> Hashable:
        """Queue, priority and the shapes of the pods that waited when the session began; None where no pod did."""
        if job.index not in self._kinds:
            session = self._session
            shapes = frozenset(session.snapshot.tasks.shape[session.views.pending_rows(job.index)].tolist())
            self._kinds[job.index] = (job.queue.index, job.priority, shapes) if shapes else None
        return self._kinds[job.index]


def immunity_of(session: Session) -> SessionImmunity:
    """The session's immunity."""
    return session.provided(SessionImmunity, lambda: SessionImmunity(session))
