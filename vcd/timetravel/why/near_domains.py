"""The domains in which a waiting job may be placed, and which jobs hold capacity there."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from vcd.diagnosis.holders import Holder, holders_of
from vcd.model.status import TaskStatus
from vcd.model.wording import counted
from vcd.scheduling.framework.domainsearch import Capacity
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.session.nodeview import NodeView
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job, Task
from vcd.scheduling.topology.tree import Domain
from vcd.text.amounts import resource_name
from vcd.text.domain_templates import DOMAINS
from vcd.text.job_names import without_uid

_LISTED = 20
"""Domains of which the result has the quantities, at most."""
_SHOWN, _HOLDERS = 3, 2
"""Domains of a sentence, and jobs of each, at most."""


class NearDomain(msgspec.Struct, frozen=True):
    """A domain: its name, tier and number of nodes, how many of the ``needs`` missing pods fit there (``fits``), and
    the jobs that hold most of the resource that the next pod lacks."""

    name: str
    tier: int
    nodes: int
    needs: int
    fits: int
    held_by: list[Holder]


def near_domains(session: Session, job: Job) -> list[NearDomain]:
    """Return the domains that the limits of a job's network topology allow at the end of a session, at most 20, those
    first that take most pods; empty without a limit."""
    framework = framework_of(session)
    pending = [task for task in job.pending() if task.status == TaskStatus.PENDING and not task.best_effort]
    if not pending:
        return []
    unit = job if job.partition is None else job.partition.of(pending[0])
    tasks = pending if job.partition is None else [task for task in pending if job.partition.of(task) is unit]
    rows = framework.hyper_node_gradient(unit, None)
    capacity = Capacity(framework, unit, tasks, session.nodes.usage.future_idle)
    found = [each for row in rows or () for each in zip(row, capacity.fitting(row), strict=True)]
    found.sort(key=lambda each: (-each[1], each[0].tier, each[0].name))
    return [
        NearDomain(
            domain.name,
            domain.tier,
            int(domain.mask.sum()),
            capacity.needed,
            fits,
            holders_of(session, _tasks_in(session, domain), [_scarcest(session, domain, tasks[0])]),
        )
        for domain, fits in found[:_LISTED]
    ]


def _tasks_in(session: Session, domain: Domain) -> Iterator[Task]:
    for row in np.flatnonzero(domain.mask).tolist():
        yield from NodeView(session, row).tasks


def _scarcest(session: Session, domain: Domain, task: Task) -> str:
    """Return the resource of which a domain's nodes have the least for tasks like this one."""
    free, request = session.nodes.usage.future_idle[:, domain.mask], task.request
    columns: list[int] = np.flatnonzero(request > 0).tolist()
    scarcest = min(columns, key=lambda column: int((free[column] // request[column]).sum()))
    return session.nodes.resources[scarcest]


def domains_text(domains: list[NearDomain]) -> str:
    """Return how many pods each domain takes, and which jobs hold capacity in those that take too few."""
    texts = [_sentence(domain, "" if place else "first") for place, domain in enumerate(domains[:_SHOWN])]
    more = len(domains) - len(texts)
    return "; ".join([*texts, f"{more} more"] if more else texts)


def _sentence(domain: NearDomain, flag: str) -> str:
    holders = [
        f"{without_uid(one.job)} {amount} {resource_name(resource)}"
        for one in domain.held_by[:_HOLDERS]
        for resource, amount in one.amounts.items()
    ]
    facts = {
        "domain": domain.name,
        "tier": f"{domain.tier}",
        "fits": f"{domain.fits}",
        "needs": counted(domain.needs, "pod"),
        "holders": ", ".join(holders),
    }
    return DOMAINS.sentence("takes", facts, [flag, "held" if holders else ""])
