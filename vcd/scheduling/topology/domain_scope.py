"""The domain in which tasks of one job are placed at the moment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job
from vcd.scheduling.topology.tree import Domain
from vcd.state.node_facts import Mask


class DomainScope:
    """Limits one job to a domain while it is tried there. Predicates read ``domain_for``."""

    def __init__(self, session: Session) -> None:
        self._trial = session.trial
        self._everywhere: Mask = np.ones(len(session.nodes), np.bool_)
        self._job: Job | None = None
        self._domain: Domain | None = None

    def domain_for(self, job: Job) -> Domain | None:
        """Return the domain in which a job is tried now; None if it may be placed on any node."""
        return self._domain if job is self._job else None

    def nodes_for(self, job: Job) -> Mask:
        """Return the nodes of that domain, or all nodes."""
        domain = self.domain_for(job)
        return self._everywhere if domain is None else domain.mask

    @contextmanager
    def within(self, job: Job, domain: Domain | None) -> Iterator[None]:
        """Limit a job to a domain until the context ends."""
        before = self._job, self._domain
        self._set(job, domain)
        try:
            yield
        finally:
            self._set(*before)

    def _set(self, job: Job | None, domain: Domain | None) -> None:
        self._job, self._domain = job, domain
        self._trial.changes += 1  # invalidates results that depend on the job


def scope_of(session: Session) -> DomainScope:
    """Return the session's scope."""
    return session.provided(DomainScope, lambda: DomainScope(session))
